//! The service of index-page: `GET /index` counts a view in MongoDB, and shows the latest ten records of MongoDB and of
//! Elasticsearch. This file parses options, answers requests and shuts down gracefully; `stores.rs` queries the stores,
//! `page.rs` is the page, `records.rs` generates what the stores are filled with.

mod page;
mod records;
mod stores;

use std::env;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use futures_util::future::{join_all, try_join};
use stores::{Elastic, Mongo};
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "\
index-page [--mongo URL] [--elastic URL] [--host ADDRESS] [--port PORT] [--backlog N]
                                             serve (127.0.0.1, 5000; 1024 connections may wait to be accepted)
index-page seed [--records N] [--rounds N]   fill both stores with N records (100000) and ask each of them for the
                                             latest N times (1000), so that they are warm
index-page views                             print how many views were counted

By default the stores are at mongodb://127.0.0.1:27017 and http://127.0.0.1:9200.";
/// Longest wait for a store that is reported up but does not answer yet.
const PATIENCE: Duration = Duration::from_secs(30);
/// Concurrent requests while the stores are warmed up.
const WARMING: usize = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Job {
    #[default]
    Serve,
    Seed,
    Views,
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    job: Job,
    mongo: String,
    elastic: String,
    host: String,
    port: u16,
    /// Connections that may wait to be accepted.
    backlog: u32,
    records: usize,
    rounds: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            job: Job::Serve,
            mongo: "mongodb://127.0.0.1:27017".to_owned(),
            elastic: "http://127.0.0.1:9200".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 5000,
            backlog: 1024,
            records: 100_000,
            rounds: 1_000,
        }
    }
}

/// What all requests share.
#[derive(Clone)]
struct Stores {
    mongo: Mongo,
    elastic: Elastic,
}

fn main() -> ExitCode {
    let options = match parse(env::args().skip(1)) {
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
    match ran.and_then(|runtime| runtime.block_on(run(&options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// `None` if help was requested. An error is one line, without a final full stop.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "seed" => options.job = Job::Seed,
            "views" => options.job = Job::Views,
            "--mongo" => options.mongo = value()?,
            "--elastic" => options.elastic = value()?,
            "--host" => options.host = value()?,
            "--port" => options.port = number(&argument, &value()?)?,
            "--backlog" => options.backlog = number(&argument, &value()?)?,
            "--records" => options.records = number(&argument, &value()?)?,
            "--rounds" => options.rounds = number(&argument, &value()?)?,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(Some(options))
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} is not a number that is possible here: {text}"))
}

async fn run(options: &Options) -> Result<(), String> {
    let stores =
        Stores { mongo: Mongo::new(&options.mongo).await?, elastic: Elastic::new(&options.elastic)? };
    match options.job {
        Job::Serve => serve(options, stores).await,
        Job::Seed => seed(&stores, options.records, options.rounds).await,
        Job::Views => {
            println!("{}", stores.mongo.views().await?);
            Ok(())
        }
    }
}

/// Listens as tokio does, with this accept backlog.
fn listen(address: SocketAddr, backlog: u32) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

async fn serve(options: &Options, stores: Stores) -> Result<(), String> {
    let (host, port) = (options.host.as_str(), options.port);
    let cannot_listen = |error| format!("cannot listen on {host}:{port}: {error}");
    let mut addresses = lookup_host((host, port)).await.map_err(cannot_listen)?;
    let address = addresses.next().ok_or_else(|| format!("{host} has no address"))?;
    let listener = listen(address, options.backlog).map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    // Must come before the line printed below: its reader may request the stop at once.
    let stop = stop_asked().map_err(|error| format!("cannot listen for signals: {error}"))?;
    println!("listening on http://{address}");
    axum::serve(listener, router(stores))
        .with_graceful_shutdown(stop)
        .await
        .map_err(|error| error.to_string())
}

fn router(stores: Stores) -> Router {
    Router::new().route("/index", get(index)).route("/health", get(|| async {})).with_state(stores)
}

async fn index(State(Stores { mongo, elastic }): State<Stores>) -> Response {
    // All three at once, and a failure of one does not cancel the others: a view that is counted stays counted.
    let (views, records, found) = tokio::join!(mongo.count_view(), mongo.latest(), elastic.latest());
    let page = async {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        page::page(views?, now.as_millis(), &records?, &found?).map_err(|error| error.to_string())
    };
    match page.await {
        Ok(page) => Html(page).into_response(),
        Err(problem) => unavailable(problem),
    }
}

fn unavailable(problem: String) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")).into_response()
}

/// Fills both stores at the same time, then warms them up.
async fn seed(Stores { mongo, elastic }: &Stores, count: usize, rounds: usize) -> Result<(), String> {
    patiently(|| elastic.cluster()).await?;
    patiently(|| mongo.views()).await?;
    try_join(mongo.fill(records::records(count)), elastic.fill(records::entries(count))).await?;
    let (in_mongo, in_elastic) = try_join(mongo.records(), elastic.entries()).await?;
    if (in_mongo, in_elastic) != (count as u64, count as u64) {
        return Err(format!(
            "{count} records were written; MongoDB has {in_mongo}, Elasticsearch {in_elastic}"
        ));
    }
    let ask = async |times: usize| {
        for _ in 0..times {
            try_join(mongo.latest(), elastic.latest()).await?;
        }
        Ok::<(), String>(())
    };
    for asked in
        join_all((0..WARMING).map(|i| ask(rounds / WARMING + usize::from(i < rounds % WARMING)))).await
    {
        asked?;
    }
    println!("{count} records in each store");
    Ok(())
}

/// Retries every quarter of a second, for at most [`PATIENCE`].
async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, String>) -> Result<T, String> {
    let begun = tokio::time::Instant::now();
    loop {
        match ask().await {
            Err(_) if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(250)).await,
            answer => return answer,
        }
    }
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

    #[test]
    fn options() {
        let parse = |arguments: &[&str]| parse(arguments.iter().map(|a| (*a).to_owned()));
        assert_eq!(parse(&[]), Ok(Some(Options::default())));
        let seed =
            Options { job: Job::Seed, records: 7, mongo: "mongodb://m".to_owned(), ..Options::default() };
        assert_eq!(parse(&["seed", "--records", "7", "--mongo", "mongodb://m"]), Ok(Some(seed)));
        assert_eq!(parse(&["views", "--help"]), Ok(None));
        for wrong in [&["--port", "70000"][..], &["--port"], &["x"], &["seed", "--records", "-1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
