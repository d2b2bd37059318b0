//! Images: already present, pulled, or built from a folder.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::error::IMAGE_HINT;
use super::{Call, Engine, EngineError, Result, context, encoded, refused};
use crate::cancel::Cancel;

/// Time limit for pulling or building, nanoseconds.
const PULL_OR_BUILD_TIMEOUT_NS: u64 = 3_600_000_000_000;
/// Longest line of the engine's progress output, in bytes; longer ones are skipped.
const LINE_BYTES: u64 = 1 << 20;

/// An image to build from a folder with a Dockerfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageBuild {
    /// The name given to the image.
    pub image: String,
    /// The build context: the folder sent to the engine.
    pub context: PathBuf,
    /// Path of the Dockerfile in `context`; `None` is `Dockerfile`.
    pub dockerfile: Option<String>,
    /// Values for its `ARG`s.
    pub args: Vec<(String, String)>,
    /// The build stage to stop at.
    pub target: Option<String>,
}

impl Engine {
    /// Whether an image is present.
    pub(crate) fn has_image(&self, image: &str) -> Result<bool> {
        let doing = format!("look for the image `{image}`");
        let path = format!("/images/{}/json", encoded(image));
        Ok(self.call(Call::new(doing, "GET", path))?.status != 404)
    }

    /// Ensures that an image is present, pulling it if necessary.
    ///
    /// # Errors
    /// It is neither present nor can it be pulled, or the wait was cancelled.
    pub fn ensure_image(&self, image: &str, cancel: &Cancel) -> Result<()> {
        if self.has_image(image)? {
            return Ok(());
        }
        let (name, tag) = match image.rsplit_once(':') {
            _ if image.contains('@') => (image, ""),
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (image, "latest"),
        };
        let doing = format!("pull the image `{image}`, which is not on this machine");
        let path = format!("/images/create?fromImage={}&tag={}", encoded(name), encoded(tag));
        let call = Call::new(doing.clone(), "POST", path).with_timeout(PULL_OR_BUILD_TIMEOUT_NS);
        let pulled = self.streaming_call(&call, &mut std::io::empty(), 0, cancel, &mut std::io::sink());
        pulled.map_err(|error| match error {
            EngineError::Refused { doing, status, message, .. } => {
                EngineError::Refused { doing, status, message, hint: IMAGE_HINT }
            }
            other => other,
        })
    }

    /// Builds an image; the engine's output goes to `log`.
    ///
    /// # Errors
    /// A file of the folder cannot be read; a build step fails, with its message; `cancel` was triggered.
    pub fn build_image(
        &self,
        build: &ImageBuild,
        scratch: &Path,
        cancel: &Cancel,
        log: &mut dyn Write,
    ) -> Result<()> {
        let failed = |(path, source): (PathBuf, std::io::Error)| EngineError::Context {
            image: build.image.clone(),
            path,
            source,
        };
        let path = scratch.join(format!("context-{}.tar", std::process::id()));
        let mut archive = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(|e| failed((path.clone(), e)))?;
        // The file is unlinked here and disappears with its last descriptor, whatever happens.
        let _ = std::fs::remove_file(&path);
        let dockerfile = build.dockerfile.as_deref().unwrap_or("Dockerfile");
        let bytes = context::write(&build.context, dockerfile, &mut archive).map_err(failed)?;
        archive.seek(SeekFrom::Start(0)).map_err(|e| failed((path, e)))?;
        let mut query = format!("t={}&rm=1&forcerm=1", encoded(&build.image));
        if let Some(dockerfile) = &build.dockerfile {
            query.push_str(&format!("&dockerfile={}", encoded(dockerfile)));
        }
        if let Some(target) = &build.target {
            query.push_str(&format!("&target={}", encoded(target)));
        }
        if !build.args.is_empty() {
            let args: serde_json::Map<String, Value> =
                build.args.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            query.push_str(&format!("&buildargs={}", encoded(&Value::Object(args).to_string())));
        }
        let doing = format!("build the image `{}` from {}", build.image, build.context.display());
        let call = Call::new(doing, "POST", format!("/build?{query}")).with_timeout(PULL_OR_BUILD_TIMEOUT_NS);
        self.streaming_call(&call, &mut archive, bytes, cancel, log)
    }

    /// Makes a call that is answered with a stream of JSON lines, one of which may be an error.
    fn streaming_call(
        &self,
        call: &Call<'_>,
        file: &mut dyn Read,
        bytes: u64,
        cancel: &Cancel,
        log: &mut dyn Write,
    ) -> Result<()> {
        self.send_file(call, file, bytes, &|| cancel.is_cancelled(), |response| {
            let status = response.status()?;
            log_lines(&call.doing, status, &mut BufReader::new(response), log)
        })?
    }
}

/// Logs the lines of a response as they arrive, since a long build may print more than should be kept in memory. If the
/// call failed, returns the first error among them.
fn log_lines(
    doing: &str,
    status: u16,
    response: &mut impl BufRead,
    log: &mut dyn Write,
) -> std::io::Result<Result<()>> {
    let mut error = None;
    // The beginning of an error response.
    let mut refusal = Vec::new();
    let mut line = Vec::new();
    while {
        line.clear();
        response.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line)? > 0
    } {
        if status >= 400 {
            let room = LINE_BYTES as usize - refusal.len().min(LINE_BYTES as usize);
            refusal.extend_from_slice(&line[..line.len().min(room)]);
        }
        let Ok(said) = serde_json::from_slice::<Value>(&line) else { continue };
        if let Some(text) = said["stream"].as_str().or(said["status"].as_str()) {
            // The log is only for reading; the build does not depend on it.
            let _ = log.write_all(text.as_bytes());
        }
        error = error.or(said["error"].as_str().map(|text| text.trim().to_owned()));
    }
    Ok(if let Some(message) = error {
        let _ = writeln!(log, "{message}");
        Err(EngineError::Refused { doing: doing.to_owned(), status, message, hint: "" })
    } else if status >= 400 {
        let parsed = serde_json::from_slice(&refusal).unwrap_or(Value::Null);
        Err(refused(doing, status, &parsed, &refusal))
    } else {
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, text: &str) -> (std::result::Result<(), String>, String) {
        let mut log = Vec::new();
        let result = log_lines("build", status, &mut text.as_bytes(), &mut log).unwrap();
        (result.map_err(|e| e.to_string()), String::from_utf8(log).unwrap())
    }

    #[test]
    fn what_an_engine_says_of_its_work() {
        let failed = "cannot build: no such file (status 200 of the container engine)";
        for (status, text, expect, log) in [
            (
                200,
                "{\"stream\":\"Step 1\\n\"}\r\n{\"aux\":{}}\r\n{\"stream\":\"done\\n\"}",
                Ok(()),
                "Step 1\ndone\n",
            ),
            (200, "{\"status\":\"Pulling\"}\n\n", Ok(()), "Pulling"),
            (
                200,
                "{\"stream\":\"a\\n\"}\n{\"error\":\"no such file\\n\"}\n{\"error\":\"later\"}\n",
                Err(failed),
                "a\nno such file\n",
            ),
            (
                500,
                "{\"message\":\"no builder\"}\n",
                Err("cannot build: no builder (status 500 of the container engine)"),
                "",
            ),
            (502, "oh\nno\n", Err("cannot build: oh\nno (status 502 of the container engine)"), ""),
        ] {
            assert_eq!(read(status, text), (expect.map_err(str::to_owned), log.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_build_may_say_more_than_is_ever_kept() {
        let line = format!("{{\"status\":\"{}\"}}\n", "x".repeat(1000));
        let many = 3 * crate::http::BODY_BYTES / line.len();
        let text = format!(
            "{}{}{{\"error\":\"full\"}}\n",
            line.repeat(many),
            "x".repeat(3 * LINE_BYTES as usize) + "\n"
        );
        let (result, log) = read(200, &text);
        assert_eq!(result, Err("cannot build: full (status 200 of the container engine)".to_owned()));
        assert_eq!(log.len(), 1000 * many + "full\n".len());
    }
}
