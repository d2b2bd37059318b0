//! The part of GitHub's API that comments on a pull request, served on loopback: it lists, creates and changes
//! comments.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Path of the pull request's comments, and path prefix of a single comment.
const LIST: &str = "/repos/owner/name/issues/7/comments";
const ONE: &str = "/repos/owner/name/issues/comments/";

/// The server; its thread ends with this program.
pub struct Api {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    comments: Vec<String>,
    refuses: bool,
}

impl Api {
    /// Starts the server; it refuses requests without the token.
    ///
    /// # Errors
    /// No port is available.
    pub fn start(token: &str) -> Result<Api> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, state) = (listener.local_addr()?, Arc::new(Mutex::new(State::default())));
        let (shared, token) = (Arc::clone(&state), format!("Bearer {token}"));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // On an error the client gets no answer, and reports that itself.
                let _ = answer(stream, &shared, &token);
            }
        });
        Ok(Api { address, state })
    }

    /// Base URL of the API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The current comments.
    pub fn comments(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).comments.clone()
    }

    /// Refuses every request from now on.
    pub fn refuse(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).refuses = true;
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>, token: &str) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let (mut length, mut shown) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.parse()?,
            "authorization" => value.clone_into(&mut shown),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().context("a method")?, words.next().context("a target")?);
    let path = target.split('?').next().unwrap_or_default();
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, answer) = match shown == token && !state.refuses {
        true => act(&mut state.comments, method, path, &body),
        false => ("403 Forbidden", json!({})),
    };
    let answer = answer.to_string();
    let length = answer.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}")?;
    Ok(())
}

/// Carries out a request.
fn act(comments: &mut Vec<String>, method: &str, path: &str, body: &[u8]) -> (&'static str, Value) {
    let said = || serde_json::from_slice::<Value>(body).ok()?["body"].as_str().map(str::to_owned);
    let one = || comments.len().checked_sub(1).filter(|i| path.strip_prefix(ONE) == Some(&i.to_string()));
    match (method, path) {
        ("GET", LIST) => {
            let list = comments.iter().enumerate().map(|(id, body)| json!({ "id": id, "body": body }));
            ("200 OK", list.collect())
        }
        ("POST", LIST) => match said() {
            Some(body) => {
                comments.push(body);
                ("201 Created", json!({}))
            }
            None => ("422 Unprocessable Entity", json!({})),
        },
        ("PATCH", _) => match (one(), said()) {
            (Some(id), Some(body)) => {
                comments[id] = body;
                ("200 OK", json!({}))
            }
            _ => ("404 Not Found", json!({})),
        },
        _ => ("404 Not Found", json!({})),
    }
}
