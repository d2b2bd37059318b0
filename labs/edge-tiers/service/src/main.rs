//! The backend of edge-tiers: a small magazine. `GET /articles/N` is a page of 1 to 60 KB that lists the most similar
//! articles, `GET /search?word=N` ranks all articles by a word, `GET /stats` reports what was served, `GET /health`
//! that it is up. This file parses options, answers requests and shuts down gracefully; the content is in `library.rs`.

mod library;

use axum::extract::{Path, Query, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use library::Library;
use serde::{Deserialize, Serialize};
use std::env;
use std::future::poll_fn;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str =
    "edge-tiers [--host ADDRESS] [--port PORT]   serve (127.0.0.1, 3000); port 0 takes a free one";

/// Pages rarely change: a cache in front may reuse one for this long.
const PAGE: [(HeaderName, &str); 2] =
    [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "public, max-age=30")];

/// Search results are private to the user.
const SEARCH: [(HeaderName, &str); 2] =
    [(CONTENT_TYPE, "text/html; charset=utf-8"), (CACHE_CONTROL, "private, no-store")];

/// What all requests share.
struct Backend {
    library: Library,
    articles: AtomicU64,
    searches: AtomicU64,
}

fn main() -> ExitCode {
    let (host, port) = match parse(env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("error: {problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ran = runtime.map_err(|error| format!("cannot start: {error}"));
    match ran.and_then(|runtime| runtime.block_on(serve(&host, port))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Host and port; `None` if help was requested. An error is one line, without a final full stop.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<(String, u16)>, String> {
    let (mut host, mut port) = ("127.0.0.1".to_owned(), "3000".to_owned());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--host" => host = value()?,
            "--port" => port = value()?,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    let port = port.parse().map_err(|_| format!("port is not a number from 0 to 65535: {port}"))?;
    Ok(Some((host, port)))
}

async fn serve(host: &str, port: u16) -> Result<(), String> {
    let cannot_listen = |error| format!("cannot listen on {host}:{port}: {error}");
    let listener = TcpListener::bind((host, port)).await.map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    // Must come before the line printed below: its reader may request the stop at once.
    let stop = stop_asked().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let router = router(Library::new(library::ARTICLES));
    println!("listening on http://{address}");
    axum::serve(listener, router).with_graceful_shutdown(stop).await.map_err(|error| error.to_string())
}

fn router(library: Library) -> Router {
    let backend = Backend { library, articles: AtomicU64::new(0), searches: AtomicU64::new(0) };
    Router::new()
        .route("/articles/{number}", get(article))
        .route("/search", get(search))
        .route("/stats", get(stats))
        .route("/health", get(|| async {}))
        .with_state(Arc::new(backend))
}

async fn article(State(backend): State<Arc<Backend>>, Path(number): Path<usize>) -> Response {
    backend.articles.fetch_add(1, Ordering::Relaxed);
    match backend.library.page(number) {
        Some(page) => (PAGE, page).into_response(),
        None => (StatusCode::NOT_FOUND, format!("there is no article {number}\n")).into_response(),
    }
}

#[derive(Deserialize)]
struct Wanted {
    word: usize,
}

async fn search(State(backend): State<Arc<Backend>>, Query(wanted): Query<Wanted>) -> Response {
    backend.searches.fetch_add(1, Ordering::Relaxed);
    match backend.library.search(wanted.word) {
        Some(page) => (SEARCH, page).into_response(),
        None => (StatusCode::NOT_FOUND, format!("there is no word {}\n", wanted.word)).into_response(),
    }
}

/// Requests that reached this backend since it started.
#[derive(Serialize)]
struct Stats {
    served: u64,
    articles: u64,
    searches: u64,
}

async fn stats(State(backend): State<Arc<Backend>>) -> Json<Stats> {
    let articles = backend.articles.load(Ordering::Relaxed);
    let searches = backend.searches.load(Ordering::Relaxed);
    Json(Stats { served: articles + searches, articles, searches })
}

/// Completes on SIGTERM or SIGINT; requests in flight are then finished.
fn stop_asked() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(poll_fn(move |context| match (terminate.poll_recv(context), interrupt.poll_recv(context)) {
        (Poll::Pending, Poll::Pending) => Poll::Pending,
        _ => Poll::Ready(()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    /// Sends requests to one backend in memory; returns the status, `Cache-Control` and body of each.
    fn send(paths: &[&str]) -> Vec<(StatusCode, String, String)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let router = router(Library::new(50));
        let one = |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            let router = router.clone();
            runtime.block_on(async {
                let response = router.oneshot(request).await.unwrap();
                let cache = response.headers().get(CACHE_CONTROL);
                let cache = cache.map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
                let status = response.status();
                let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
                (status, cache, String::from_utf8(body.to_vec()).unwrap())
            })
        };
        paths.iter().map(|path| one(path)).collect()
    }

    #[test]
    fn pages_may_be_cached_and_searches_may_not() {
        let answers = send(&["/articles/1", "/search?word=3"]);
        assert_eq!((answers[0].0, answers[0].1.as_str()), (StatusCode::OK, "public, max-age=30"));
        assert_eq!((answers[1].0, answers[1].1.as_str()), (StatusCode::OK, "private, no-store"));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let answers =
            send(&["/articles/0", "/articles/51", "/articles/x", "/search", "/search?word=999999", "/"]);
        let statuses: Vec<u16> = answers.iter().map(|a| a.0.as_u16()).collect();
        assert_eq!(statuses, [404, 404, 400, 400, 404, 404]);
        assert!(answers.iter().all(|a| a.1.is_empty()), "an error is not to be cached");
    }

    #[test]
    fn what_was_served_is_counted() {
        let answers = send(&["/articles/1", "/articles/2", "/search?word=3", "/health", "/stats"]);
        assert_eq!(answers[4].2, r#"{"served":3,"articles":2,"searches":1}"#);
    }

    #[test]
    fn options() {
        let parse = |arguments: &[&str]| parse(arguments.iter().map(|a| (*a).to_owned()));
        assert_eq!(parse(&[]), Ok(Some(("127.0.0.1".to_owned(), 3000))));
        assert_eq!(parse(&["--host", "0.0.0.0", "--port", "0"]), Ok(Some(("0.0.0.0".to_owned(), 0))));
        assert_eq!(parse(&["--help"]), Ok(None));
        assert!(
            parse(&["--port", "70000"]).is_err() && parse(&["--port"]).is_err() && parse(&["x"]).is_err()
        );
    }
}
