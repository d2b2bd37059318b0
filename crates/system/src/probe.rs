//! Probes: numbers the system tells about itself, such as a queue's depth or the rows it has stored.

use serde_json::Value;

use crate::clock;
use crate::http::{self, HttpError, Url};

/// A reading may take so long.
const READ_NS: u64 = 5_000_000_000;

/// A named number behind an HTTP URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Its name in samples and expressions.
    pub name: String,
    /// `http://…`.
    pub url: String,
    /// Where in the JSON body it is, a JSON pointer (RFC 6901) such as `/queues/0/depth`. `None`: the body is the number.
    pub json: Option<String>,
}

/// A probe whose URL and pointer are valid.
#[derive(Clone, Debug)]
pub struct Probe {
    spec: ProbeSpec,
    url: Url,
}

/// Why a probe has no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The pointer is none.
    #[error(
        "probe `{probe}`: `{pointer}` is not a JSON pointer\n\
         hint: it is empty or begins with `/`, such as `/stats/stored`; `~1` stands for `/` in a name, `~0` for `~`"
    )]
    Pointer {
        /// Which.
        probe: String,
        /// As given.
        pointer: String,
    },
    /// No response.
    #[error("probe `{probe}`: GET {url}: {source}")]
    Http {
        /// Which.
        probe: String,
        /// What was asked.
        url: String,
        /// Why.
        source: HttpError,
    },
    /// The response is not what was hoped for.
    #[error("probe `{probe}`: GET {url}: {why}")]
    Value {
        /// Which.
        probe: String,
        /// What was asked.
        url: String,
        /// What came instead.
        why: String,
    },
}

impl Probe {
    /// Checks URL and pointer.
    pub fn new(spec: ProbeSpec) -> Result<Probe, ProbeError> {
        if let Some(pointer) = &spec.json
            && !is_pointer(pointer)
        {
            return Err(ProbeError::Pointer { probe: spec.name, pointer: pointer.clone() });
        }
        match Url::parse(&spec.url) {
            Ok(url) => Ok(Probe { spec, url }),
            Err(source) => Err(ProbeError::Http { probe: spec.name, url: spec.url, source }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Reads it now; blocks for at most 5 s.
    pub fn read_now(&self) -> Result<f64, ProbeError> {
        self.read(&mut || false)
    }

    /// Reads it now; `stop` is asked every 20 ms whether to give up.
    pub fn read(&self, stop: &mut dyn FnMut() -> bool) -> Result<f64, ProbeError> {
        let response = http::fetch(&self.url, clock::now_ns() + READ_NS, stop).map_err(|source| {
            ProbeError::Http { probe: self.spec.name.clone(), url: self.spec.url.clone(), source }
        })?;
        value_in(response.status, &response.body, self.spec.json.as_deref()).map_err(|why| {
            ProbeError::Value { probe: self.spec.name.clone(), url: self.spec.url.clone(), why }
        })
    }
}

/// Valid by RFC 6901: empty, or `/` before every name, with `~` only in `~0` and `~1`.
fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1).all(|after| after.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && escapes
}

fn value_in(status: u16, body: &[u8], pointer: Option<&str>) -> Result<f64, String> {
    if !(200..300).contains(&status) {
        return Err(format!("answered with status {status}"));
    }
    let Some(pointer) = pointer else {
        let text = String::from_utf8_lossy(body);
        let number = text.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        return number.ok_or_else(|| format!("the body is not a number but `{}`", short(text.trim())));
    };
    let document: Value = serde_json::from_slice(body).map_err(|e| format!("the body is not JSON: {e}"))?;
    match document.pointer(pointer) {
        Some(Value::Number(number)) => number.as_f64().ok_or_else(|| format!("{number} is out of range")),
        Some(other) => Err(format!("`{pointer}` is not a number but `{}`", short(&other.to_string()))),
        None => Err(format!("there is nothing at `{pointer}` in `{}`", short(&document.to_string()))),
    }
}

fn short(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let body = r#"{"stored": 12, "a/b": {"m~n": [1, 2.5]}, "name": "x", "none": null}"#;
        for (pointer, expect) in [
            ("/stored", Ok(12.0)),
            ("/a~1b/m~0n/1", Ok(2.5)),
            ("/name", Err("`/name` is not a number but `\"x\"`")),
            ("/none", Err("`/none` is not a number but `null`")),
            ("/a~1b/m~0n/7", Err("there is nothing at `/a~1b/m~0n/7`")),
            ("", Err("`` is not a number but `{\"stored\":12,")),
        ] {
            match (value_in(200, body.as_bytes(), Some(pointer)), expect) {
                (Ok(value), Ok(expect)) => assert_eq!(value, expect, "{pointer}"),
                (Err(why), Err(expect)) => assert!(why.starts_with(expect), "{pointer}: {why}"),
                (got, _) => panic!("{pointer}: {got:?}"),
            }
        }
        assert_eq!(value_in(200, b" 7\n", None), Ok(7.0));
        assert_eq!(value_in(200, b"nan", None).unwrap_err(), "the body is not a number but `nan`");
        assert_eq!(value_in(503, b"7", None).unwrap_err(), "answered with status 503");
        assert!(value_in(200, b"{", Some("/x")).unwrap_err().starts_with("the body is not JSON"));
    }

    #[test]
    fn pointers_are_checked_before_the_run() {
        for (pointer, valid) in [
            ("", true),
            ("/", true),
            ("/a/0", true),
            ("/a~0~1", true),
            ("a", false),
            ("/a~", false),
            ("/~2", false),
        ] {
            assert_eq!(is_pointer(pointer), valid, "{pointer}");
        }
        let spec =
            ProbeSpec { name: "stored".into(), url: "http://127.0.0.1/".into(), json: Some("stored".into()) };
        insta::assert_snapshot!(Probe::new(spec).unwrap_err(), @r"
        probe `stored`: `stored` is not a JSON pointer
        hint: it is empty or begins with `/`, such as `/stats/stored`; `~1` stands for `/` in a name, `~0` for `~`
        ");
    }
}
