//! Containers, through the HTTP API of Docker's or Podman's engine on its Unix socket.
//!
//! A thin client for the few calls that are needed, over the HTTP code of the readiness checks. It negotiates the API
//! version with the engine. It must not read statistics there: samples come from the container's cgroup and network
//! namespace, as for processes ([`crate::watch::target`]), because the engine's statistics take a second per container.
//!
//! [`container`] handles running containers, [`image`] provides their images, `output` has their logs, `leftovers`
//! removes everything that carries a run's label, even after the run is gone.

pub(crate) mod container;
mod context;
pub(crate) mod error;
pub(crate) mod image;
pub(crate) mod leftovers;
pub(crate) mod logs;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

pub use self::error::EngineError;
pub(crate) use self::error::Result;
use self::logs::Body;
use crate::clock;
use crate::http::{self, HttpError, SLICE};

/// The newest API version spoken here, and the oldest (Docker 19.03, Podman 3).
const NEWEST: Version = (1, 47);
const OLDEST: Version = (1, 40);
/// Time limit of a call that does not wait for something.
const CALL_TIMEOUT_NS: u64 = 30_000_000_000;

type Version = (u32, u32);

/// An engine that answers.
#[derive(Clone, Debug)]
pub struct Engine {
    socket: PathBuf,
    version: Version,
    is_podman: bool,
}

/// A call: its purpose in words, method, path with query, body.
pub(crate) struct Call<'a> {
    pub doing: String,
    pub method: &'static str,
    pub path: String,
    pub body: Option<&'a Value>,
    pub timeout_ns: u64,
}

impl<'a> Call<'a> {
    pub fn new(doing: impl Into<String>, method: &'static str, path: impl Into<String>) -> Call<'a> {
        Call { doing: doing.into(), method, path: path.into(), body: None, timeout_ns: CALL_TIMEOUT_NS }
    }

    pub fn body(self, body: &'a Value) -> Call<'a> {
        Call { body: Some(body), ..self }
    }

    pub fn with_timeout(self, timeout_ns: u64) -> Call<'a> {
        Call { timeout_ns, ..self }
    }
}

/// The engine's response: its status, and its body as JSON (`null` if it is not JSON).
pub(crate) struct EngineResponse {
    pub status: u16,
    pub body: Value,
}

impl Engine {
    /// Connects to the engine: the one named (`docker`, `podman`, `unix:///PATH` or a path), else the one that
    /// `DOCKER_HOST` or `CONTAINER_HOST` names, else the first that answers at a usual socket.
    ///
    /// # Errors
    /// No engine answers, access is denied to all that might, it is on another machine, or it is too old or too new.
    pub fn connect(named: Option<&str>) -> Result<Engine> {
        first_of(&candidates(named)?, &Engine::at)
    }

    /// Every engine that answers at a usual socket or at the one named by the environment.
    pub(crate) fn all() -> Vec<Engine> {
        let sockets = candidates(None).unwrap_or_default();
        sockets.iter().filter(|socket| socket.exists()).filter_map(|socket| Engine::at(socket).ok()).collect()
    }

    /// The engine behind a socket.
    pub(crate) fn at(socket: &Path) -> Result<Engine> {
        let asked = Engine { socket: socket.to_owned(), version: (0, 0), is_podman: false };
        let response = asked.call(Call::new("ask for the engine's version", "GET", "/version"))?;
        let text = |key: &str| response.body[key].as_str().unwrap_or_default().to_owned();
        let (least, most) = (text("MinAPIVersion"), text("ApiVersion"));
        let found = version_of(&most).map(|most| most.min(NEWEST));
        let least_wanted = version_of(&least).unwrap_or(OLDEST).max(OLDEST);
        let Some(version) = found.filter(|version| *version >= least_wanted) else {
            return Err(EngineError::Version { socket: socket.to_owned(), least, most });
        };
        let parts = response.body["Components"].as_array().cloned().unwrap_or_default();
        let is_podman = parts.iter().any(|p| p["Name"].as_str().is_some_and(|n| n.contains("Podman")));
        Ok(Engine { version, is_podman, ..asked })
    }

    /// Its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether this is Podman.
    pub fn is_podman(&self) -> bool {
        self.is_podman
    }

    /// Makes a call; a status below 400, or 404, counts as a response.
    pub(crate) fn call(&self, call: Call<'_>) -> Result<EngineResponse> {
        self.call_while(call, &mut || false)
    }

    /// As [`Engine::call`], but gives up when `stop` returns true.
    fn call_while(&self, call: Call<'_>, stop: &mut dyn FnMut() -> bool) -> Result<EngineResponse> {
        let body = call.body.map(Value::to_string).unwrap_or_default();
        let head = self.head(&call, "application/json", body.len() as u64);
        let until_ns = clock::now_ns().saturating_add(call.timeout_ns);
        let failed = |source| self.failed(&call.doing, source);
        let mut stream = self.open().map_err(failed)?;
        let request = format!("{head}{body}");
        let response = http::exchange(&mut stream, request.as_bytes(), until_ns, stop, &|e| self.broken(e));
        response_of(&call.doing, response.map_err(failed)?)
    }

    /// Sends a file as the body; `read` consumes the response as it arrives, and its result is returned. `stop` is
    /// checked before each read.
    fn send_file<T>(
        &self,
        call: &Call<'_>,
        file: &mut dyn Read,
        bytes: u64,
        stop: &dyn Fn() -> bool,
        read: impl FnOnce(&mut Body<UnixStream, &dyn Fn() -> bool>) -> std::io::Result<T>,
    ) -> Result<T> {
        let failed = |source| self.failed(&call.doing, source);
        let until_ns = clock::now_ns().saturating_add(call.timeout_ns);
        let is_late = || clock::now_ns() >= until_ns;
        let mut stream = self.open().map_err(failed)?;
        let head = self.head(call, "application/x-tar", bytes);
        let mut send = || {
            stream.write_all(head.as_bytes())?;
            std::io::copy(file, &mut stream).map(drop)
        };
        // An engine that refuses may close before it has read everything; its response then has the reason.
        let sent = send();
        let give_up: &dyn Fn() -> bool = &|| stop() || is_late();
        let response = read(&mut Body::new(stream, give_up));
        response.map_err(|e| match e {
            _ if stop() => failed(HttpError::Interrupted),
            _ if is_late() => failed(HttpError::Timeout),
            e => failed(self.broken(sent.err().unwrap_or(e))),
        })
    }

    /// Opens the stream of an endless response; it includes the head and the chunk framing.
    pub(crate) fn stream(&self, call: &Call<'_>) -> Result<UnixStream> {
        let failed = |source| self.failed(&call.doing, source);
        let mut stream = self.open().map_err(failed)?;
        let head = self.head(call, "application/json", 0);
        stream.write_all(head.as_bytes()).map_err(|e| failed(self.broken(e)))?;
        Ok(stream)
    }

    fn open(&self) -> std::result::Result<UnixStream, HttpError> {
        let stream = UnixStream::connect(&self.socket).map_err(|e| self.broken(e))?;
        stream.set_read_timeout(Some(SLICE)).map_err(|e| self.broken(e))?;
        stream.set_write_timeout(Some(Duration::from_nanos(CALL_TIMEOUT_NS))).map_err(|e| self.broken(e))?;
        Ok(stream)
    }

    fn broken(&self, source: std::io::Error) -> HttpError {
        HttpError::Socket { path: self.socket.clone(), source }
    }

    fn failed(&self, doing: &str, source: HttpError) -> EngineError {
        match source {
            HttpError::Socket { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                EngineError::NotPermitted { socket: self.socket.clone() }
            }
            source => EngineError::Http { doing: doing.to_owned(), socket: self.socket.clone(), source },
        }
    }

    fn head(&self, call: &Call<'_>, media: &str, bytes: u64) -> String {
        let version = match self.version {
            (0, 0) => String::new(),
            (major, minor) => format!("/v{major}.{minor}"),
        };
        format!(
            "{} {version}{} HTTP/1.1\r\nHost: engine\r\nUser-Agent: loadlab\r\nContent-Type: {media}\r\n\
             Content-Length: {bytes}\r\nConnection: close\r\n\r\n",
            call.method, call.path
        )
    }

    /// The error for a response that lacks something.
    pub(crate) fn missing(&self, doing: &str, missing: &'static str) -> EngineError {
        EngineError::Incomplete { doing: doing.to_owned(), socket: self.socket.clone(), missing }
    }
}

fn response_of(doing: &str, response: http::Response) -> Result<EngineResponse> {
    let http::Response { status, body } = response;
    let parsed: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    if status < 400 || status == 404 {
        return Ok(EngineResponse { status, body: parsed });
    }
    Err(refused(doing, status, &parsed, &body))
}

pub(crate) fn refused(doing: &str, status: u16, parsed: &Value, body: &[u8]) -> EngineError {
    let text = String::from_utf8_lossy(body);
    let message = parsed["message"].as_str().unwrap_or(text.trim()).to_owned();
    let has = |part: &str| message.to_ascii_lowercase().contains(part);
    let hint = if has("port is already allocated") || has("address already in use") {
        "another program or container has the port; `loadlab clean` removes what a killed run left behind"
    } else if has("already in use by container") {
        "a container of that name exists; `loadlab clean` removes what a killed run left behind"
    } else if has("minimum memory limit") {
        "the engine accepts no smaller limit for a container; process components can have any limit"
    } else if has("executable file not found") || has("no such file or directory") {
        "the command is looked for in the image, not on this machine"
    } else {
        ""
    };
    EngineError::Refused { doing: doing.to_owned(), status, message, hint }
}

impl EngineResponse {
    /// The response's body, if the requested resource exists.
    pub fn found(self, doing: &str) -> Result<Value> {
        match self.status {
            404 => Err(refused(doing, 404, &self.body, b"not found")),
            _ => Ok(self.body),
        }
    }
}

/// Parses a version such as `1.41`.
fn version_of(text: &str) -> Option<Version> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Sockets to try, in order.
fn candidates(named: Option<&str>) -> Result<Vec<PathBuf>> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("XDG_RUNTIME_DIR").map(PathBuf::from);
    let docker = [Some(PathBuf::from("/var/run/docker.sock")), user.as_ref().map(|d| d.join("docker.sock"))];
    let podman =
        [Some(PathBuf::from("/run/podman/podman.sock")), user.as_ref().map(|d| d.join("podman/podman.sock"))];
    let host = variable("DOCKER_HOST").or_else(|| variable("CONTAINER_HOST"));
    let named = named.map(str::to_owned).or(host);
    Ok(match named.as_deref() {
        Some("docker") => docker.into_iter().flatten().collect(),
        Some("podman") => podman.into_iter().flatten().collect(),
        Some(path) if path.starts_with('/') => vec![PathBuf::from(path)],
        Some(url) => match url.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => vec![PathBuf::from(path)],
            _ => return Err(EngineError::Elsewhere { host: url.to_owned() }),
        },
        None => docker.into_iter().chain(podman).flatten().collect(),
    })
}

/// The first engine that answers. One that this user may not use, such as root's, is passed over: the user may have
/// another.
fn first_of(sockets: &[PathBuf], at: &dyn Fn(&Path) -> Result<Engine>) -> Result<Engine> {
    let (mut tried, mut refused) = (Vec::new(), None);
    for socket in sockets {
        match at(socket) {
            Ok(engine) => return Ok(engine),
            Err(EngineError::Http { source: HttpError::Socket { source, .. }, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
            {
                tried.push(format!("{} ({source})", socket.display()));
            }
            Err(error @ EngineError::NotPermitted { .. }) => refused = refused.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(refused.unwrap_or(EngineError::None { tried }))
}

/// Percent-encodes a text as a query value.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The encoded value of `?filters=` for everything that has a label.
pub(crate) fn labelled(label: &str) -> String {
    encoded(&serde_json::json!({ "label": [label] }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_named_by_word_path_or_url() {
        let of = |text: &str| candidates(Some(text)).map(|c| c[0].display().to_string());
        assert_eq!(of("docker").unwrap(), "/var/run/docker.sock");
        assert_eq!(of("podman").unwrap(), "/run/podman/podman.sock");
        assert_eq!(of("/a/b.sock").unwrap(), "/a/b.sock");
        assert_eq!(of("unix:///a/b.sock").unwrap(), "/a/b.sock");
        insta::assert_snapshot!(of("tcp://10.0.0.1:2375").unwrap_err(), @r"
        the container engine `tcp://10.0.0.1:2375` cannot be used: its containers are not processes of this machine
        hint: name a local socket, such as `unix:///var/run/docker.sock`, or `docker` or `podman`
        ");
    }

    #[test]
    fn a_missing_engine_is_reported_with_what_was_tried() {
        insta::assert_snapshot!(Engine::connect(Some("/nonexistent/engine.sock")).unwrap_err(), @r"
        no container engine responds; tried /nonexistent/engine.sock (No such file or directory (os error 2))
        hint: start Docker (`systemctl start docker`) or Podman's service (`systemctl start podman.socket`), or name the socket: DOCKER_HOST=unix:///path/to/docker.sock, or `engine` in `system`
        ");
    }

    #[test]
    fn an_engine_that_may_not_be_used_hides_no_other() {
        let sockets = ["/root.sock", "/own.sock"].map(PathBuf::from);
        let connect = |answers: &str| {
            first_of(&sockets, &|socket| match socket.to_str() == Some(answers) {
                true => Ok(Engine { socket: socket.to_owned(), version: NEWEST, is_podman: true }),
                false => Err(EngineError::NotPermitted { socket: socket.to_owned() }),
            })
        };
        assert_eq!(connect("/own.sock").unwrap().socket(), Path::new("/own.sock"));
        let refused = connect("/none.sock").unwrap_err();
        assert!(
            matches!(&refused, EngineError::NotPermitted { socket } if *socket == sockets[0]),
            "the first is named: {refused}"
        );
    }

    #[test]
    fn versions_and_queries() {
        assert_eq!(version_of("1.41"), Some((1, 41)));
        assert_eq!(version_of("x"), None);
        assert_eq!(encoded("a b=ä/1"), "a%20b%3D%C3%A4%2F1");
    }
}
