//! stair-stepper: a small web service that is bad with memory on purpose, to compare allocators.
//!
//! `POST /widgets` does needless work on its body and holds the results while it sleeps; `GET /memory` reports what the
//! process holds and what it occupies; `GET /health` reports that it is up. The allocator is a cargo feature. This file
//! reads the settings, starts the service and shuts it down gracefully.

mod bodies;
mod counting;
mod memory;
mod widgets;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use std::env;
use std::future::poll_fn;
use std::path::PathBuf;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
stair-stepper [--host ADDRESS] [--port PORT]   serve; port 0 takes a free one
stair-stepper bodies DIR                       write the request bodies (tiny, small, medium, large)

environment: HOST (127.0.0.1), PORT (3000), SLEEP_MS (0): how long a handler waits with its memory held";

/// The largest body is 2 MB; axum's own limit, 2 MiB, is too close to it.
const BODY_LIMIT_BYTES: usize = 16 << 20;

/// How long requests in flight may take once a stop was requested.
const GRACE: Duration = Duration::from_secs(10);

/// The command on the command line.
#[derive(Debug, PartialEq)]
enum Command {
    Serve { host: String, port: u16, sleep: Duration },
    Bodies { folder: PathBuf },
    Help,
}

fn main() -> ExitCode {
    let command = match parse(env::args().skip(1), |name| env::var(name).ok()) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("error: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match command {
        Command::Help => {
            println!("{USAGE}");
            Ok(())
        }
        Command::Bodies { folder } => bodies::write(&folder)
            .map_err(|error| format!("cannot write bodies to {}: {error}", folder.display())),
        Command::Serve { host, port, sleep } => run(&host, port, sleep),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Options override the environment. An error is one line, without a final full stop.
fn parse(
    mut arguments: impl Iterator<Item = String>,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Command, String> {
    let mut host = environment("HOST").unwrap_or_else(|| "127.0.0.1".to_owned());
    let mut port = environment("PORT").unwrap_or_else(|| "3000".to_owned());
    let sleep_ms = environment("SLEEP_MS").unwrap_or_else(|| "0".to_owned());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--host" => host = value()?,
            "--port" => port = value()?,
            "bodies" => return Ok(Command::Bodies { folder: value()?.into() }),
            "--help" | "-h" => return Ok(Command::Help),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    let port = port.parse().map_err(|_| format!("port is not a number from 0 to 65535: {port}"))?;
    let sleep_ms =
        sleep_ms.parse().map_err(|_| format!("SLEEP_MS is not a number of milliseconds: {sleep_ms}"))?;
    Ok(Command::Serve { host, port, sleep: Duration::from_millis(sleep_ms) })
}

fn run(host: &str, port: u16, sleep: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))?.block_on(serve(host, port, sleep))
}

async fn serve(host: &str, port: u16, sleep: Duration) -> Result<(), String> {
    let cannot_listen = |error| format!("cannot listen on {host}:{port}: {error}");
    let listener = TcpListener::bind((host, port)).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    // Must come before the line printed below: its reader may request the stop at once.
    let stop = stop_asked().map_err(|error| format!("cannot listen for signals: {error}"))?;
    println!("listening on http://{address}");
    axum::serve(listener, router(widgets::Settings { sleep }))
        .with_graceful_shutdown(stop)
        .await
        .map_err(|error| error.to_string())
}

fn router(settings: widgets::Settings) -> Router {
    Router::new()
        .route("/widgets", post(widgets::create))
        .route("/memory", get(memory::report))
        .route("/health", get(|| async {}))
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .with_state(settings)
}

/// Completes on SIGTERM or SIGINT. Requests in flight are then finished, or, after [`GRACE`], the process exits.
fn stop_asked() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        poll_fn(|context| match (terminate.poll_recv(context), interrupt.poll_recv(context)) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        tokio::spawn(async {
            tokio::time::sleep(GRACE).await;
            eprintln!("error: requests were still in flight {} s after the stop", GRACE.as_secs());
            std::process::exit(1);
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::{Request, StatusCode};
    use serde_json::{Value, json};
    use tower::ServiceExt;

    /// Sends one request to the service in memory; the body is parsed if there is one.
    fn send(method: &str, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
            let response =
                router(widgets::Settings { sleep: Duration::ZERO }).oneshot(request).await.unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
        })
    }

    fn command(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Command, String> {
        let variable = |name: &str| {
            environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        parse(arguments.iter().map(|argument| (*argument).to_owned()), variable)
    }

    #[test]
    fn a_widget_is_created_with_id_and_size() {
        let payload = json!([{ "name": "a", "tags": ["x"] }]);
        let (status, answer) = send(
            "POST",
            "/widgets",
            json!({ "eventType": "test", "payload": payload }).to_string().into_bytes(),
        );
        assert_eq!(status, StatusCode::CREATED);
        assert_eq!(answer["size"], payload.to_string().len());
        assert!(answer["id"].as_str().is_some_and(|id| !id.is_empty()));
    }

    #[test]
    fn bodies_over_two_megabytes_are_taken_and_endless_ones_are_not() {
        let widget = |bytes: usize| {
            json!({ "eventType": "test", "payload": "x".repeat(bytes) }).to_string().into_bytes()
        };
        assert_eq!(send("POST", "/widgets", widget(3_000_000)).0, StatusCode::CREATED);
        assert_eq!(send("POST", "/widgets", widget(BODY_LIMIT_BYTES)).0, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn what_is_no_widget_is_refused() {
        let (status, answer) = send("POST", "/widgets", b"{".to_vec());
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(answer["error"].is_string());
        assert_eq!(
            send("POST", "/widgets", b"{\"payload\":[]}".to_vec()).0,
            StatusCode::UNPROCESSABLE_ENTITY
        );
        assert_eq!(send("GET", "/widgets", Vec::new()).0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn health_and_memory_answer() {
        assert_eq!(send("GET", "/health", Vec::new()).0, StatusCode::OK);
        let (status, answer) = send("GET", "/memory", Vec::new());
        assert_eq!(status, StatusCode::OK);
        assert!(["system", "jemalloc", "mimalloc"].contains(&answer["allocator"].as_str().unwrap()));
        assert!(answer["live_bytes"].is_u64() && answer["peak_live_bytes"].is_u64());
        if cfg!(target_os = "linux") {
            assert!(
                answer["resident_bytes"].as_u64().unwrap() <= answer["peak_resident_bytes"].as_u64().unwrap()
            );
        }
        assert_eq!(answer["jemalloc"].is_object(), cfg!(feature = "jemalloc"));
    }

    #[test]
    fn options_win_over_the_environment() {
        let serve = |host: &str, port, sleep_ms| {
            Ok(Command::Serve { host: host.to_owned(), port, sleep: Duration::from_millis(sleep_ms) })
        };
        assert_eq!(command(&[], &[]), serve("127.0.0.1", 3000, 0));
        assert_eq!(
            command(&[], &[("PORT", "0"), ("HOST", "::1"), ("SLEEP_MS", "450")]),
            serve("::1", 0, 450)
        );
        assert_eq!(command(&["--port", "81"], &[("PORT", "80")]), serve("127.0.0.1", 81, 0));
        assert_eq!(command(&["bodies", "here"], &[]), Ok(Command::Bodies { folder: "here".into() }));
        assert!(command(&["--port", "70000"], &[]).is_err());
        assert!(command(&["--sport", "1"], &[]).is_err());
        assert!(command(&["--port"], &[]).is_err());
        assert!(command(&[], &[("SLEEP_MS", "long")]).is_err());
    }
}
