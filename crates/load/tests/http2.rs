//! The HTTP/2 session against other implementations' servers: both ends must see the same requests and answers. The
//! `h2` crate's server is always available; nghttpd and nginx are added if they are installed.
//!
//! The driver is as simple as possible: one blocking socket and a window of requests.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use loadlab_load::protocol::http2::{Code, Event, Head, HeadParts, Heads, Session, Settings};

use crate::{ports, skip};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A request to send.
#[derive(Clone)]
struct Ask {
    head: Head,
    body: Vec<u8>,
}

/// The answer received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Reset(&'static str),
    Unprocessed,
}

/// Sends all requests, at most `at_once` concurrently, and reads until every one has ended.
fn drive(address: SocketAddr, settings: Settings, asks: &[Ask], at_once: usize) -> Vec<Answer> {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut session = Session::new(settings);
    let (mut out, mut buffer) = (Vec::new(), vec![0; 40_000]);
    let mut answers = vec![Answer::default(); asks.len()];
    let mut waiting: VecDeque<usize> = (0..asks.len()).collect();
    session.start(&mut out);
    let (mut going_away, mut greeted) = (false, false);
    while answers.iter().any(|a| a.end.is_none()) {
        while session.open() < if greeted { at_once } else { 5 } && session.free_streams() > 0 {
            let Some(next) = waiting.pop_front() else { break };
            session.send(next as u32, &asks[next].head, &asks[next].body, &mut out).expect("room for it");
        }
        while !out.is_empty() {
            socket.write_all(&out).expect("it takes our bytes");
            out.clear();
            if session.wants_flush() {
                session.flush(|token| &asks[token as usize].body, &mut out);
            }
        }
        if going_away && session.open() == 0 {
            break;
        }
        let n = socket.read(&mut buffer).expect("its bytes");
        assert!(n > 0, "it closed with {} open", session.open());
        let received = session.receive(&buffer[..n], &mut out, &mut |event| match event {
            Event::Field { token, name, value } => {
                let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
                answers[token as usize].fields.push((text(name), text(value)));
            }
            Event::Head { token, status, end } => {
                let answer = &mut answers[token as usize];
                answer.status = status;
                answer.end = end.then_some(End::Whole);
            }
            Event::Data { token, bytes, end } => {
                let answer = &mut answers[token as usize];
                answer.body.extend_from_slice(bytes);
                answer.end = end.then_some(End::Whole);
            }
            Event::Reset { token, code } => answers[token as usize].end = Some(End::Reset(code.name())),
            Event::Unprocessed { token } => answers[token as usize].end = Some(End::Unprocessed),
            Event::GoAway { .. } => going_away = true,
            Event::Malformed { message, .. } => panic!("malformed: {message}"),
            Event::HeadTooLarge { .. } => panic!("a head is too long"),
            Event::SettingsChanged { .. } => greeted = true,
        });
        assert!(received.is_ok(), "{received:?}");
        if session.wants_flush() {
            session.flush(|token| &asks[token as usize].body, &mut out);
        }
    }
    answers
}

/// A request from a method, path, headers and body.
fn ask(heads: &mut Heads, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Ask {
    let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let parts = HeadParts { method, scheme: "http", authority: "localhost", path, headers: &headers };
    Ask { head: heads.add(&parts).expect("a head"), body: body.to_vec() }
}

/// Bytes that vary by position.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

/// A server of the `h2` crate on its own thread, for one connection.
fn h2_server(builder: h2::server::Builder) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            listener.set_nonblocking(true).expect("nonblocking");
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let (socket, _) = listener.accept().await.expect("a connection");
            let tasks = tokio::task::LocalSet::new();
            tasks.run_until(serve(builder, socket)).await;
        });
    });
    address
}

async fn serve(builder: h2::server::Builder, socket: tokio::net::TcpStream) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        if request.uri().path() == "/goodbye" {
            connection.graceful_shutdown();
        }
        tokio::task::spawn_local(answer(request, respond));
    }
}

/// Answers by path; fields whose names begin with `x-` are echoed.
async fn answer(request: http::Request<h2::RecvStream>, mut respond: h2::server::SendResponse<Bytes>) {
    let (parts, mut body) = request.into_parts();
    let path: Vec<&str> = parts.uri.path().split('/').collect();
    let mut response = http::Response::builder();
    for (name, value) in parts.headers.iter().filter(|(n, _)| n.as_str().starts_with("x-")) {
        response = response.header(name, value);
    }
    let method = parts.method.as_str();
    let response = response.header("x-method", method);
    let mut trailers = None;
    let (status, bytes) = match path[1] {
        "bytes" => (200, pattern(path[2].parse().expect("a number"))),
        "status" => (path[2].parse().expect("a number"), Vec::new()),
        "reset" => return respond.send_reset(h2::Reason::REFUSED_STREAM),
        "trailers" => {
            let mut map = http::HeaderMap::new();
            map.insert("x-trailer", http::HeaderValue::from_static("last"));
            trailers = Some(map);
            (200, pattern(10))
        }
        _ => {
            let mut all = Vec::new();
            while let Some(piece) = body.data().await {
                let Ok(piece) = piece else { return };
                all.extend_from_slice(&piece);
                let _ = body.flow_control().release_capacity(piece.len());
            }
            (200, all)
        }
    };
    let response = response.status(status).body(()).expect("a head");
    let nothing = bytes.is_empty() && trailers.is_none();
    let Ok(mut stream) = respond.send_response(response, nothing) else { return };
    if !nothing {
        let _ = stream.send_data(bytes.into(), trailers.is_none());
        if let Some(trailers) = trailers {
            let _ = stream.send_trailers(trailers);
        }
    }
}

fn whole(status: u16, body: Vec<u8>) -> (u16, Vec<u8>, Option<End>) {
    (status, body, Some(End::Whole))
}

fn short(answer: &Answer) -> (u16, Vec<u8>, Option<End>) {
    (answer.status, answer.body.clone(), answer.end.clone())
}

#[test]
fn every_kind_of_response_of_the_h2_crate() {
    let mut heads = Heads::default();
    let mut asks = Vec::new();
    let mut expect = Vec::new();
    for round in 0..20 {
        let large = pattern(round * 7001);
        for (method, path, body, answer) in [
            ("GET", "/bytes/0", &[][..], whole(200, vec![])),
            ("GET", "/bytes/128", &[], whole(200, pattern(128))),
            ("GET", "/bytes/300000", &[], whole(200, pattern(300_000))),
            ("GET", "/status/404", &[], whole(404, vec![])),
            ("GET", "/status/204", &[], whole(204, vec![])),
            ("GET", "/trailers", &[], whole(200, pattern(10))),
            ("GET", "/reset", &[], (0, vec![], Some(End::Reset("REFUSED_STREAM")))),
            ("POST", "/echo", &large, whole(200, large.clone())),
            ("PUT", "/echo", b"x", whole(200, b"x".to_vec())),
        ] {
            asks.push(ask(&mut heads, method, path, &[], body));
            expect.push(answer);
        }
    }
    let mut small = h2::server::Builder::new();
    small
        .initial_window_size(1000)
        .initial_connection_window_size(70_000)
        .max_concurrent_streams(7)
        .header_table_size(0);
    let mut large = h2::server::Builder::new();
    large.initial_window_size(1 << 20).max_frame_size(1 << 20).header_table_size(1 << 16);
    let narrow = Settings { stream_window: 5000, connection_window: 65_535, ..Settings::default() };
    let wide = Settings { max_frame: 1 << 20, ..Settings::default() };
    for (builder, settings, at_once) in
        [(h2::server::Builder::new(), Settings::default(), 30), (small, narrow, 50), (large, wide, 1)]
    {
        let answers = drive(h2_server(builder), settings, &asks, at_once);
        for (i, (answer, expect)) in answers.iter().zip(&expect).enumerate() {
            let seen = short(answer);
            // Print only the length: the bodies are too long.
            assert!(seen == *expect, "answer {i}: {} {:?} {} bytes", seen.0, seen.2, seen.1.len());
        }
    }
}

#[test]
fn fields_survive_both_ways() {
    let mut heads = Heads::default();
    let mut asks = Vec::new();
    let mut expect = Vec::new();
    for i in 0..300usize {
        // Some values repeat, some are new; enough to turn both dynamic tables over many times.
        let repeated = format!("value {}", i % 7);
        let unique = "\u{7e}!(*){}".repeat(i % 40) + &i.to_string();
        let headers =
            [("X-Repeated", repeated.as_str()), ("x-unique", &unique), ("x-empty", ""), ("user-agent", "a")];
        asks.push(ask(&mut heads, "GET", "/bytes/1", &headers, b""));
        expect.push(BTreeMap::from([
            (":status".to_owned(), "200".to_owned()),
            ("x-repeated".to_owned(), repeated.clone()),
            ("x-unique".to_owned(), unique.clone()),
            ("x-empty".to_owned(), String::new()),
            ("x-method".to_owned(), "GET".to_owned()),
        ]));
    }
    let settings = Settings { report_fields: true, ..Settings::default() };
    for table in [4096, 100, 0] {
        let mut builder = h2::server::Builder::new();
        builder.header_table_size(table);
        let answers = drive(h2_server(builder), settings, &asks, 10);
        for (answer, expect) in answers.into_iter().zip(&expect) {
            assert_eq!(&answer.fields.into_iter().collect::<BTreeMap<_, _>>(), expect);
        }
    }
}

#[test]
fn after_goaway_every_request_is_accounted_for() {
    let mut heads = Heads::default();
    let mut asks: Vec<Ask> = (0..40).map(|_| ask(&mut heads, "GET", "/bytes/100", &[], b"")).collect();
    asks[20] = ask(&mut heads, "GET", "/goodbye", &[], b"");
    let answers = drive(h2_server(h2::server::Builder::new()), Settings::default(), &asks, 8);
    let ended = |end: &End| answers.iter().filter(|a| a.end.as_ref() == Some(end)).count();
    let never = answers.iter().filter(|a| a.end.is_none()).count();
    assert!(ended(&End::Whole) >= 21, "{}", ended(&End::Whole));
    assert_eq!(ended(&End::Whole) + ended(&End::Unprocessed) + never, 40);
    assert_eq!(Code::NO_ERROR.name(), "NO_ERROR");
}

/// A server process, killed when the test ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that listens on the port; `None`, with a message, if it is not installed.
fn start(command: &mut Command, address: SocketAddr) -> Option<Program> {
    // Debian installs servers in `/usr/sbin`, which is not on every user's PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = &child
        && error.kind() == ErrorKind::NotFound
    {
        skip::skip(&format!("{} is not installed", command.get_program().display()));
        return None;
    }
    let program = Program(child.expect("a program that is there starts"));
    let until = Instant::now() + TIMEOUT;
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < until, "{command:?} does not listen");
        std::thread::yield_now();
    }
    Some(program)
}

#[test]
fn files_from_every_installed_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let sizes = [0usize, 1, 128, 20_000, 500_000];
    let mut heads = Heads::default();
    for size in sizes {
        std::fs::create_dir_all(folder.path().join("bytes")).expect("a folder");
        std::fs::write(folder.path().join(format!("bytes/{size}")), pattern(size)).expect("a file");
    }
    let of = |heads: &mut Heads, method: &str, size| {
        ask(heads, method, &format!("/bytes/{size}"), &[("user-agent", "loadlab")], b"")
    };
    let mut asks: Vec<Ask> = (0..500).map(|i| of(&mut heads, "GET", sizes[i % 5])).collect();
    let crate_server = drive(h2_server(h2::server::Builder::new()), Settings::default(), &asks, 20);
    asks.extend((0..50).map(|i| of(&mut heads, "HEAD", sizes[i % 5])));
    asks.push(ask(&mut heads, "GET", "/none", &[], b""));
    let check = |answers: &[Answer], who: &str| {
        for (i, answer) in answers.iter().enumerate().take(550) {
            let body = if i < 500 { pattern(sizes[i % 5]) } else { Vec::new() };
            assert!(
                short(answer) == whole(200, body),
                "{who}: answer {i}: {:?}",
                (answer.status, &answer.end)
            );
        }
        assert!(answers.get(550).is_none_or(|last| last.status == 404), "{who}");
    };
    check(&crate_server, "the h2 crate");

    let address = ports::unused();
    let port = address.port().to_string();
    let mut nghttpd = Command::new("nghttpd");
    nghttpd.args(["--no-tls", "-a", "127.0.0.1", "-d"]).arg(folder.path()).arg(&port);
    if let Some(_server) = start(&mut nghttpd, address) {
        check(&drive(address, Settings::default(), &asks, 20), "nghttpd");
    }

    let address = ports::unused();
    let config = folder.path().join("nginx.conf");
    let root = folder.path().display();
    let text = format!(
        "daemon off; master_process off; pid {root}/pid; error_log stderr; events {{}}
         http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;
         uwsgi_temp_path {root}/u; scgi_temp_path {root}/s; keepalive_requests 100000;
         server {{ listen {address} http2; root {root}; }} }}"
    );
    std::fs::write(&config, text).expect("a file");
    let mut nginx = Command::new("nginx");
    nginx.arg("-c").arg(&config).arg("-p").arg(folder.path());
    if let Some(_server) = start(&mut nginx, address) {
        check(&drive(address, Settings::default(), &asks, 20), "nginx");
        let narrow = Settings { stream_window: 20_000, connection_window: 70_000, ..Settings::default() };
        check(&drive(address, narrow, &asks, 100), "nginx, narrow windows");
    }
}
