//! Copies what a container writes from the engine into the run's log files.
//!
//! One thread per container copies for as long as the container lives, whatever happens to the engine meanwhile: an
//! engine restarted under its containers breaks the stream, but once it is back it still has everything that was
//! written. Without a terminal the engine sends frames: one byte for the stream (1 output, 2 errors), three zero bytes,
//! four for the length, then the text.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::{Call, Engine, Result};
use crate::cancel::Cancel;
use crate::clock;

/// How long the remaining output may take to arrive after the container has ended.
const REST_NS: u64 = 2_000_000_000;
/// Pause between two attempts to resume reading from an engine that is gone.
const RETRY_INTERVAL_NS: u64 = 250_000_000;
/// Longest line of a response head, in bytes.
const LINE_BYTES: usize = 64 << 10;

/// The copying thread.
#[derive(Debug)]
pub(crate) struct Follower {
    thread: Option<JoinHandle<()>>,
    /// Set when there is nothing more to wait for.
    enough: Arc<AtomicBool>,
}

impl Follower {
    /// Starts copying output and errors into files, from the container's first byte or from a given Unix time in
    /// nanoseconds. `lives` reports whether the container's first process still exists.
    pub fn start(
        engine: &Engine,
        id: &str,
        files: [Option<File>; 2],
        since_ns: Option<u128>,
        lives: impl Fn() -> bool + Send + 'static,
    ) -> Result<Follower> {
        let since = since_ns.map(|ns| format!("&since={}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000));
        let since = since.unwrap_or_default();
        let path = format!("/containers/{id}/logs?follow=1&stdout=1&stderr=1{since}");
        let engine = engine.clone();
        let open = move || engine.stream(&Call::new("read a container's logs", "GET", path.clone()));
        let stream = open()?;
        let copies = files.map(StreamCopy::into);
        let enough = Arc::new(AtomicBool::new(false));
        let stop = enough.clone();
        let thread = std::thread::Builder::new()
            .name("loadlab-logs".into())
            .spawn(move || follow(stream, copies, &open, &|| stop.load(Ordering::SeqCst), &lives));
        Ok(Follower { thread: thread.ok(), enough })
    }

    /// Waits for the remaining output of a container that has ended.
    pub fn finish(&mut self) {
        let until_ns = clock::now_ns() + REST_NS;
        let never = Cancel::new();
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) && clock::now_ns() < until_ns {
            never.wait_until(clock::now_ns() + 5_000_000);
        }
        self.enough.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // The thread checks `enough` before each of its reads.
            let _ = thread.join();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The body of a response, dechunked and read as it arrives, however long it gets.
pub(super) struct Body<R, S> {
    stream: R,
    /// Called before each read; if it returns true, the read fails.
    stop: S,
    bytes: Vec<u8>,
    at: usize,
    left: Remaining,
    /// The response's status, once the head has been read.
    status: Option<u16>,
}

/// How much of the body is still to come.
#[derive(Clone, Copy)]
enum Remaining {
    /// This many bytes of the current chunk.
    OfChunk(u64),
    /// This many bytes of the whole body.
    OfAll(u64),
    UntilClose,
    Nothing,
}

fn cut_off() -> std::io::Error {
    std::io::Error::new(ErrorKind::UnexpectedEof, "the response ended before it was complete")
}

impl<R: Read, S: FnMut() -> bool> Body<R, S> {
    pub fn new(stream: R, stop: S) -> Body<R, S> {
        Body { stream, stop, bytes: Vec::new(), at: 0, left: Remaining::UntilClose, status: None }
    }

    /// The response's status; reads the head if necessary.
    pub fn status(&mut self) -> std::io::Result<u16> {
        match self.status {
            Some(status) => Ok(status),
            None => self.head(),
        }
    }

    /// Reads more bytes from the stream; false at the end of the stream.
    fn more(&mut self) -> std::io::Result<bool> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let mut chunk = [0u8; 16 << 10];
        loop {
            if (self.stop)() {
                return Err(std::io::Error::other("no longer needed"));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    self.bytes.extend_from_slice(&chunk[..n]);
                    return Ok(true);
                }
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// A line of the head or of the chunk framing, without its line end.
    fn line(&mut self) -> std::io::Result<String> {
        loop {
            if let Some(end) = self.bytes[self.at..].iter().position(|b| *b == b'\n') {
                let line = String::from_utf8_lossy(&self.bytes[self.at..self.at + end]).trim().to_owned();
                self.at += end + 1;
                return Ok(line);
            }
            if self.bytes.len() - self.at > LINE_BYTES {
                return Err(std::io::Error::other("a line of the response head is too long"));
            }
            if !self.more()? {
                return Err(cut_off());
            }
        }
    }

    fn head(&mut self) -> std::io::Result<u16> {
        loop {
            let line = self.line()?;
            let status = line.split(' ').nth(1).and_then(|word| word.parse::<u16>().ok());
            let status = status.filter(|_| line.starts_with("HTTP/1."));
            let status = status.ok_or_else(|| std::io::Error::other("the response is not HTTP/1.1"))?;
            let mut left = Remaining::UntilClose;
            loop {
                let line = self.line()?.to_ascii_lowercase();
                match line.split_once(':').map(|(name, value)| (name.trim(), value.trim())) {
                    Some(("transfer-encoding", value)) if value.ends_with("chunked") => {
                        left = Remaining::OfChunk(0)
                    }
                    Some(("content-length", value)) if !matches!(left, Remaining::OfChunk(_)) => {
                        left = value.parse().map_or(Remaining::UntilClose, Remaining::OfAll);
                    }
                    _ if line.is_empty() => break,
                    _ => {}
                }
            }
            // Skip what precedes the response, such as `100 Continue`.
            if !(100..200).contains(&status) {
                (self.left, self.status) = (left, Some(status));
                return Ok(status);
            }
        }
    }

    /// Fills the buffer; false when the response ends before it is full.
    fn fill(&mut self, into: &mut [u8]) -> std::io::Result<bool> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..])? {
                0 => return Ok(false),
                n => filled += n,
            }
        }
        Ok(true)
    }
}

impl<R: Read, S: FnMut() -> bool> Read for Body<R, S> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.status()?;
        if let Remaining::OfChunk(0) = self.left {
            // An empty line ends the previous chunk.
            let mut line = self.line()?;
            if line.is_empty() {
                line = self.line()?;
            }
            let size = u64::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16);
            match size.map_err(|_| std::io::Error::other("a chunk without a size"))? {
                0 => self.left = Remaining::Nothing,
                size => self.left = Remaining::OfChunk(size),
            }
        }
        if into.is_empty() || matches!(self.left, Remaining::Nothing | Remaining::OfAll(0)) {
            return Ok(0);
        }
        if self.at == self.bytes.len() && !self.more()? {
            return if matches!(self.left, Remaining::UntilClose) { Ok(0) } else { Err(cut_off()) };
        }
        let there = (self.bytes.len() - self.at).min(into.len());
        let within = |left: u64| there.min(usize::try_from(left).unwrap_or(there));
        let n = match &mut self.left {
            Remaining::OfChunk(left) | Remaining::OfAll(left) => {
                let n = within(*left);
                *left -= n as u64;
                n
            }
            Remaining::UntilClose | Remaining::Nothing => there,
        };
        into[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// The destination of one of a container's streams.
struct StreamCopy {
    file: Option<File>,
    /// How many bytes of the stream are in the file …
    bytes: u64,
    /// … and how many will arrive again before anything new.
    skip: u64,
}

impl StreamCopy {
    fn into(file: Option<File>) -> StreamCopy {
        StreamCopy { file, bytes: 0, skip: 0 }
    }

    fn write(&mut self, text: &[u8]) {
        let known = text.len().min(usize::try_from(self.skip).unwrap_or(text.len()));
        self.skip -= known as u64;
        self.bytes += (text.len() - known) as u64;
        if let Some(file) = &mut self.file {
            // A full disk must not stop the container's output.
            let _ = file.write_all(&text[known..]);
        }
    }
}

/// Copies until the container has ended or the caller stops waiting. A stream that ends before its container is
/// reopened, and what was already copied is skipped.
fn follow(
    mut stream: UnixStream,
    mut copies: [StreamCopy; 2],
    open: &dyn Fn() -> Result<UnixStream>,
    stop: &dyn Fn() -> bool,
    lives: &dyn Fn() -> bool,
) {
    let never = Cancel::new();
    let mut has_read = false;
    loop {
        let mut body = Body::new(stream, stop);
        let is_there = body.status().is_ok_and(|status| status == 200);
        let is_whole = is_there && copy(&mut body, &mut copies).is_ok();
        // A container that keeps no logs will have none later either; nor will a removed one.
        let has_none = body.status.is_some_and(|status| status != 200 && (!has_read || status == 404));
        has_read |= is_there;
        if stop() || has_none || is_whole && !lives() {
            return;
        }
        stream = loop {
            never.wait_until(clock::now_ns() + RETRY_INTERVAL_NS);
            match open() {
                _ if stop() => return,
                Ok(stream) => break stream,
                Err(_) => {}
            }
        };
        copies.iter_mut().for_each(|copied| copied.skip = copied.bytes);
    }
}

/// Sorts frames into files until there are no more. Fails if the stream ends within a frame.
fn copy<R: Read, S: FnMut() -> bool>(
    body: &mut Body<R, S>,
    copies: &mut [StreamCopy; 2],
) -> std::io::Result<()> {
    let mut head = [0u8; 8];
    let mut text = vec![0u8; 16 << 10];
    while body.fill(&mut head)? {
        let mut left = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let copied = &mut copies[usize::from(head[0] == 2)];
        while left > 0 {
            let n = left.min(text.len());
            if !body.fill(&mut text[..n])? {
                return Err(cut_off());
            }
            left -= n;
            copied.write(&text[..n]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that delivers its bytes in pieces of a given size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(self.0.len()).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn frame(stream: u8, text: &[u8]) -> Vec<u8> {
        [&[stream, 0, 0, 0][..], &(text.len() as u32).to_be_bytes(), text].concat()
    }

    #[test]
    fn frames_are_sorted_however_they_are_cut() {
        let frames = [frame(1, b"one\n"), frame(2, b"oh\n"), frame(1, b"two\n")].concat();
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut chunked = head.as_bytes().to_vec();
        for part in frames.chunks(5) {
            chunked.extend(format!("{:x}\r\n", part.len()).bytes());
            chunked.extend(part);
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        let plain = [b"HTTP/1.1 200 OK\r\n\r\n", frames.as_slice()].concat();
        let dir = tempfile::tempdir().unwrap();
        for bytes in [&chunked, &plain] {
            for size in [1, 2, 3, 7, 1000] {
                let path = |name: &str| dir.path().join(name);
                let file = |name: &str| StreamCopy::into(File::create(path(name)).ok());
                let mut body = Body::new(Pieces(bytes, size), || false);
                copy(&mut body, &mut [file("out"), file("err")]).unwrap();
                let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
                assert_eq!((read("out").as_str(), read("err").as_str()), ("one\ntwo\n", "oh\n"), "{size}");
            }
        }
    }
    #[test]
    fn bodies_by_their_framing() {
        let ok = |status, text: &str| Ok((status, text.to_owned()));
        for (answer, expect) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more", ok(200, "hi")),
            ("HTTP/1.1 200 OK\r\n\r\nhi", ok(200, "hi")),
            ("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", ok(404, "")),
            ("HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", ok(200, "x")),
            (
                "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
                ok(500, "abcd"),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", Err("before it was complete")),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", Err("before it was complete")),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
                Err("before it was complete"),
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Err("a chunk without a size")),
            ("SSH-2.0-OpenSSH\r\n", Err("not HTTP/1.1")),
            ("", Err("before it was complete")),
        ] {
            for size in [1, 4, 1000] {
                let mut body = Body::new(Pieces(answer.as_bytes(), size), || false);
                let mut text = String::new();
                let read = body.read_to_string(&mut text).and_then(|_| Ok((body.status()?, text)));
                match (read, &expect) {
                    (Ok(read), Ok(expect)) => assert_eq!(&read, expect, "{answer}"),
                    (Err(e), Err(part)) => assert!(e.to_string().contains(part), "{answer}: {e}"),
                    (read, _) => panic!("{answer}: {read:?}"),
                }
            }
        }
    }

    /// An engine that is restarted while the container lives: its first answer breaks off in the middle of a line, then
    /// it is gone, then it sends everything from the beginning.
    #[test]
    fn what_an_engine_breaks_off_goes_on_when_it_is_back() {
        let frames =
            [frame(1, b"one\n"), frame(2, b"oh\n"), frame(1, b"two\n"), frame(1, b"three\n")].concat();
        let answer = |bytes: &[u8], end: &str| {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            [head.as_bytes(), format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, end.as_bytes()].concat()
        };
        let whole = answer(&frames, "\r\n0\r\n\r\n");
        for first in [
            answer(&frames[..30], ""),
            // An engine that shuts down cleanly ends its answer cleanly.
            answer(&frames[..12], "\r\n0\r\n\r\n"),
            answer(&[], ""),
            Vec::new(),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let file = |name: &str| StreamCopy::into(File::create(dir.path().join(name)).ok());
            let saying = |bytes: &[u8]| {
                let (mut there, here) = UnixStream::pair().unwrap();
                there.write_all(bytes).unwrap();
                here
            };
            let opened = std::cell::Cell::new(0);
            let open = || {
                opened.set(opened.get() + 1);
                match opened.get() {
                    1 => Err(super::super::EngineError::None { tried: Vec::new() }),
                    _ => Ok(saying(&whole)),
                }
            };
            // The container ends once the last answer has been read.
            let lives = || opened.get() < 2;
            follow(saying(&first), [file("out"), file("err")], &open, &|| false, &lives);
            let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert_eq!((read("out").as_str(), read("err").as_str()), ("one\ntwo\nthree\n", "oh\n"));
        }
    }

    #[test]
    fn one_that_keeps_no_logs_is_not_asked_again() {
        let (mut there, here) = UnixStream::pair().unwrap();
        there.write_all(b"HTTP/1.1 501 No\r\nContent-Length: 0\r\n\r\n").unwrap();
        let open = || panic!("it is asked again");
        follow(here, [StreamCopy::into(None), StreamCopy::into(None)], &open, &|| false, &|| true);
    }

    #[test]
    fn one_that_never_pauses_is_given_up_too() {
        let endless = b"HTTP/1.1 200 OK\r\n\r\n".chain(std::io::repeat(b'x'));
        let mut reads = 0;
        let mut body = Body::new(endless, || {
            reads += 1;
            reads > 3
        });
        assert!(std::io::copy(&mut body, &mut std::io::sink()).is_err());
        assert_eq!(reads, 4);
    }
}
