//! A counting server that misbehaves on request: a load's counts are compared with the server's own.
//!
//! One thread per connection, blocking sockets, a port of its own. Its behaviour is a [`Script`]: steps before the
//! first byte is read, steps when a head is complete, steps when the request is. It must not know anything of loadlab:
//! it counts what its sockets received and sent.

#![expect(unsafe_code, reason = "a server that resets, lingers and refuses needs the socket calls for it")]

use super::ports;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long anything here waits before a test fails instead of hanging.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// A request as the server read it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number across all connections, from 0, in the order in which heads were completed.
    pub number: u64,
    /// Number of its connection, from 0.
    pub connection: u64,
    /// Number on its connection, from 0.
    pub on_connection: u64,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

/// What the server does next on a connection.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes.
    Send(Vec<u8>),
    /// Writes these bytes one at a time.
    Trickle(Vec<u8>),
    /// Writes this many filler bytes, or until the peer is gone.
    Flood(u64),
    /// Waits.
    Wait(Duration),
    /// Shuts down its own side and keeps reading until the peer closes as well: nothing is lost.
    Finish,
    /// Closes at once, with or without unread data.
    Close,
    /// Closes the connection with a reset.
    Reset,
    /// Never sends anything again; reads until the peer gives up.
    Hang,
}

/// What a server does. A plain function answers complete requests.
pub trait Script: Send + Sync + 'static {
    /// Steps before anything is read.
    fn accepted(&self, _connection: u64) -> Vec<Step> {
        Vec::new()
    }
    /// Steps when the head is complete and the body not read yet.
    fn head(&self, _request: &Request) -> Vec<Step> {
        Vec::new()
    }
    /// Steps when the request is complete.
    fn answer(&self, request: &Request) -> Vec<Step>;
}

impl<F: Fn(&Request) -> Vec<Step> + Send + Sync + 'static> Script for F {
    fn answer(&self, request: &Request) -> Vec<Step> {
        self(request)
    }
}

/// What the server counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Most connections open at one time.
    pub peak: u64,
    /// Complete heads.
    pub heads: u64,
    /// Complete requests, bodies included.
    pub requests: u64,
    /// Requests for which every step was completed.
    pub answered: u64,
    /// Bytes its sockets received.
    pub received: u64,
    /// Bytes its sockets sent.
    pub sent: u64,
    /// Connections the peer closed cleanly between requests.
    pub ended: u64,
    /// Connections that ended within a request.
    pub cut: u64,
    /// Connections the peer reset, as far as a read or write revealed it.
    pub resets: u64,
    /// Complete requests by target.
    pub targets: BTreeMap<String, u64>,
    /// Complete requests by method.
    pub methods: BTreeMap<String, u64>,
    /// For each request, when it was complete and when the last byte of its answer was written (without one, when its
    /// last step was done), since the server's start.
    pub log: Vec<(Duration, Duration)>,
    /// The last request.
    pub last: Option<Request>,
}

#[derive(Default)]
struct Books {
    counts: Counts,
    open: u64,
    frozen: bool,
    /// Sockets by connection, so that they can be shut down from outside.
    sockets: BTreeMap<u64, TcpStream>,
}

struct Shared {
    script: Box<dyn Script>,
    began: Instant,
    books: Mutex<Books>,
    changed: Condvar,
    stopping: AtomicBool,
}

/// The server; it ends when dropped.
pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    listener: TcpListener,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts on a free port of 127.0.0.1.
    pub fn start(script: impl Script) -> Server {
        Server::on(ports::listener(), script)
    }

    /// Starts at this address.
    pub fn at(address: &str, script: impl Script) -> Server {
        Server::on(TcpListener::bind(address).expect("a port of this machine"), script)
    }

    fn on(listener: TcpListener, script: impl Script) -> Server {
        // The library's backlog of 128 overflows when a thousand connections arrive in a second.
        // SAFETY: calling listen again on our own listening socket only changes its backlog.
        unsafe { libc::listen(listener.as_raw_fd(), 4096) };
        let shared = Arc::new(Shared {
            script: Box::new(script),
            began: Instant::now(),
            books: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let address = listener.local_addr().expect("an address");
        let (accepts, for_thread) = (listener.try_clone().expect("a descriptor"), shared.clone());
        let accepting = Some(std::thread::spawn(move || accept(&accepts, &for_thread)));
        Server { address, shared, listener, accepting }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.shared.books()
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.books().counts.clone()
    }

    /// The counts once every connection has ended; ending them is up to the peer.
    pub fn settled(&self) -> Counts {
        self.until("all connections have ended", |books| books.open == 0)
    }

    /// Waits until this many connections were accepted and all have ended: an accept may happen after the peer has
    /// closed.
    pub fn settled_after(&self, connections: u64) -> Counts {
        self.until("all connections came and ended", |b| b.open == 0 && b.counts.connections >= connections)
    }

    /// Waits until this many requests were read.
    pub fn after(&self, requests: u64) -> Counts {
        self.until("enough requests came", |books| books.counts.requests >= requests)
    }

    fn until(&self, what: &str, done: impl Fn(&Books) -> bool) -> Counts {
        let (books, timeout) = self
            .shared
            .changed
            .wait_timeout_while(self.books(), TIMEOUT, |books| !done(books))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "waited in vain until {what}: {} still open", books.open);
        books.counts.clone()
    }

    /// Holds back all answers until [`Server::thaw`].
    pub fn freeze(&self) {
        self.books().frozen = true;
    }

    pub fn thaw(&self) {
        self.books().frozen = false;
        self.shared.changed.notify_all();
    }

    /// As if the process ended: nothing listens, every connection is closed.
    pub fn die(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // SAFETY: shutdown on our own listening socket; it wakes the thread in accept and refuses connects.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
        for socket in self.books().sockets.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.thaw();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.books().counts);
        self.changed.notify_all();
    }

    fn wait_while_frozen(&self) {
        let stopping = || self.stopping.load(Ordering::SeqCst);
        drop(self.changed.wait_while(self.books(), |books| books.frozen && !stopping()));
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let number = {
            let mut books = shared.books();
            let number = books.counts.connections;
            books.counts.connections += 1;
            books.open += 1;
            books.counts.peak = books.counts.peak.max(books.open);
            if let Ok(socket) = stream.try_clone() {
                books.sockets.insert(number, socket);
            }
            number
        };
        let for_thread = shared.clone();
        let serve = move || {
            let _ = stream.set_nodelay(true);
            let mut connection = Connection {
                shared: &for_thread,
                stream: Some(stream),
                number,
                served: 0,
                buffer: Vec::new(),
                wrote: None,
                end: None,
            };
            connection.serve();
            connection.stream = None;
            let mut books = for_thread.books();
            books.open -= 1;
            drop(books);
            for_thread.changed.notify_all();
        };
        std::thread::Builder::new().stack_size(256 * 1024).spawn(serve).expect("a thread");
    }
}

/// How the peer ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Orderly,
    Cut,
    Reset,
}

struct Connection<'s> {
    shared: &'s Shared,
    stream: Option<TcpStream>,
    number: u64,
    served: u64,
    /// Bytes read but not used yet.
    buffer: Vec<u8>,
    /// When the last bytes of an answer were written, since the server's start.
    wrote: Option<Duration>,
    end: Option<End>,
}

impl Connection<'_> {
    fn serve(&mut self) {
        let accepted = self.shared.script.accepted(self.number);
        let mut open = self.steps(accepted);
        while open {
            let Some(mut request) = self.head() else { break };
            let early = self.shared.script.head(&request);
            if !self.steps(early) || !self.body(&mut request) {
                break;
            }
            let came = self.shared.began.elapsed();
            self.shared.count(|c| {
                c.requests += 1;
                *c.targets.entry(request.target.clone()).or_default() += 1;
                *c.methods.entry(request.method.clone()).or_default() += 1;
                c.last = Some(request.clone());
            });
            self.shared.wait_while_frozen();
            let answer = self.shared.script.answer(&request);
            self.wrote = None;
            open = self.steps(answer);
            let done = self.wrote.unwrap_or_else(|| self.shared.began.elapsed());
            self.shared.count(|c| {
                c.log.push((came, done));
                c.answered += 1;
            });
            self.served += 1;
        }
        self.shared.books().sockets.remove(&self.number);
        let end = self.end;
        self.shared.count(|c| match end {
            Some(End::Orderly) => c.ended += 1,
            Some(End::Cut) => c.cut += 1,
            Some(End::Reset) => c.resets += 1,
            None => {}
        });
    }

    /// Reads the next head; `None` if the connection ended.
    fn head(&mut self) -> Option<Request> {
        let mut looked = 0;
        let end = loop {
            // Search only the new bytes, or an endless head would take for ever.
            if let Some(at) = self.buffer[looked..].windows(4).position(|w| w == b"\r\n\r\n") {
                break looked + at + 4;
            }
            looked = self.buffer.len().saturating_sub(3);
            if !self.read(!self.buffer.is_empty()) {
                return None;
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.lines();
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
        let headers =
            lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_owned(), v.trim().to_owned()));
        let mut request = Request {
            number: 0,
            connection: self.number,
            on_connection: self.served,
            method: method.to_owned(),
            target: target.to_owned(),
            headers: headers.collect(),
            body: Vec::new(),
        };
        self.shared.count(|c| {
            request.number = c.heads;
            c.heads += 1;
        });
        Some(request)
    }

    /// Reads the body; false if the connection ended within it.
    fn body(&mut self, request: &mut Request) -> bool {
        let length: usize = request.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
        while self.buffer.len() < length {
            if !self.read(true) {
                return false;
            }
        }
        request.body = self.buffer.drain(..length).collect();
        true
    }

    /// Reads more bytes; false at the end of the stream, which is recorded.
    fn read(&mut self, inside: bool) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut chunk = [0; 16 * 1024];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => {
                    self.end = Some(if inside { End::Cut } else { End::Orderly });
                    return false;
                }
                Ok(n) => {
                    self.buffer.extend_from_slice(&chunk[..n]);
                    self.shared.count(|c| c.received += n as u64);
                    return true;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.end = Some(End::Reset);
                    return false;
                }
            }
        }
    }

    /// Performs the steps; false once the connection is over.
    #[expect(
        clippy::disallowed_methods,
        reason = "a scripted server that answers late: the delay is what is tested"
    )]
    fn steps(&mut self, steps: Vec<Step>) -> bool {
        for step in steps {
            let go_on = match step {
                Step::Send(bytes) => self.write(&bytes),
                Step::Trickle(bytes) => bytes.iter().all(|b| self.write(&[*b])),
                Step::Flood(bytes) => self.flood(bytes),
                Step::Wait(time) => {
                    std::thread::sleep(time);
                    true
                }
                Step::Finish => self.finish(),
                Step::Close => {
                    self.forget();
                    false
                }
                Step::Reset => self.reset(),
                Step::Hang => self.drain(),
            };
            if !go_on {
                return false;
            }
        }
        true
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let mut rest = bytes;
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(n) => {
                    // Before the wait for the counts, which a thousand other connections may want as well.
                    self.wrote = Some(self.shared.began.elapsed());
                    rest = &rest[n..];
                    self.shared.count(|c| c.sent += n as u64);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.end = Some(End::Reset);
                    return false;
                }
            }
        }
        true
    }

    fn flood(&mut self, bytes: u64) -> bool {
        let filler = vec![b'x'; 256 * 1024];
        let mut left = bytes;
        while left > 0 {
            let n = left.min(filler.len() as u64) as usize;
            if !self.write(&filler[..n]) {
                return false;
            }
            left -= n as u64;
        }
        true
    }

    /// Reads to the end, counting the bytes.
    fn drain(&mut self) -> bool {
        while self.read(false) {
            self.buffer.clear();
        }
        false
    }

    fn finish(&mut self) -> bool {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(Shutdown::Write);
        }
        self.drain()
    }

    /// Drops both descriptors of the socket.
    fn forget(&mut self) {
        self.shared.books().sockets.remove(&self.number);
        self.stream = None;
    }

    fn reset(&mut self) -> bool {
        if let Some(stream) = &self.stream {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            // SAFETY: the option takes a `linger` of this size, which is live during the call.
            unsafe {
                libc::setsockopt(
                    stream.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_LINGER,
                    (&raw const linger).cast(),
                    size_of::<libc::linger>() as libc::socklen_t,
                )
            };
        }
        self.forget();
        false
    }
}

/// A step that sends these bytes.
pub fn send(text: impl AsRef<[u8]>) -> Step {
    Step::Send(text.as_ref().to_vec())
}

/// A plain response with a length.
pub fn response(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Text\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Answers every request with status 200.
pub fn good(_: &Request) -> Vec<Step> {
    vec![Step::Send(response(200, "hello"))]
}

/// Answers every request with status 200, after this delay.
pub fn slow(by: Duration) -> impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static {
    move |_| vec![Step::Wait(by), Step::Send(response(200, "hello"))]
}

/// Answers every request with the same steps.
pub fn always(steps: Vec<Step>) -> impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static {
    move |_| steps.clone()
}
