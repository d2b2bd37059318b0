//! Feeds the open pages: each frame is made once for all of them, each page has a short queue, and nothing waits for a
//! page.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use loadlab_record::sync::{lock, wait, wait_timeout};

use super::snapshot::frame;
use crate::live::Live;
use crate::serve::SECURITY_HEADERS;

/// Time between two frames: faster is not readable.
const PERIOD: Duration = Duration::from_millis(250);
/// How many frames may be queued for a page; a page that falls further behind is dropped, reconnects and starts over.
const QUEUE: usize = 8;
/// How many of the newest seconds and readings a frame has for pages that have the earlier ones. A page that missed
/// more starts over.
const TAIL: usize = 8;
/// Write timeout: the longest a page may take to read a frame.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Keep-alive interval: without one, a page that is gone would keep its place.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The connected pages.
#[derive(Default)]
pub struct Feed {
    pages: Mutex<Pages>,
    woken: Condvar,
}

#[derive(Default)]
struct Pages {
    following: Vec<Follower>,
    /// The last frame, once everything is over.
    end: Option<Arc<str>>,
}

struct Follower {
    queue: SyncSender<Arc<str>>,
    /// Its first frame, which has everything so far, was sent.
    has_all: bool,
}

impl Feed {
    /// Runs until the end: makes frames while there are pages to read them, and sleeps while there are none.
    pub fn run(&self, live: &Live) {
        let mut pages = self.pages();
        while pages.end.is_none() {
            if pages.following.is_empty() {
                pages = wait(&self.woken, pages);
                continue;
            }
            drop(pages);
            self.send(live);
            pages = self.pages();
            if pages.end.is_none() {
                pages = wait_timeout(&self.woken, pages, PERIOD);
            }
        }
        drop(pages);
        self.finish(live);
    }

    /// Sends a frame to every page: everything to new ones, otherwise only what changed.
    fn send(&self, live: &Live) {
        let (state, now_s) = live.read(|state, now_s| (state.clone(), now_s));
        let tail: Arc<str> = event("now", &frame(&state, now_s, TAIL)).into();
        let mut all: Option<Arc<str>> = None;
        self.pages().following.retain_mut(|page| {
            let text = match page.has_all {
                true => tail.clone(),
                false => {
                    all.get_or_insert_with(|| event("all", &frame(&state, now_s, usize::MAX)).into()).clone()
                }
            };
            page.has_all = true;
            page.queue.try_send(text).is_ok()
        });
    }

    /// Sends the last measurements and the end frame, then closes the queues.
    fn finish(&self, live: &Live) {
        self.send(live);
        let mut pages = self.pages();
        let end = pages.end.clone().unwrap_or_default();
        for page in pages.following.drain(..) {
            let _ = page.queue.try_send(end.clone());
        }
    }

    /// Announces that everything is over, and returns the number of connected pages.
    pub fn end(&self, is_report: bool) -> usize {
        let mut pages = self.pages();
        pages.end = Some(event("end", &format!("{{\"report\":{is_report}}}")).into());
        self.woken.notify_all();
        pages.following.len()
    }

    /// Writes frames to a page until the feed ends or the page is gone.
    ///
    /// # Errors
    /// The page went away, or takes too long.
    pub fn follow(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        stream.set_nodelay(true)?;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{SECURITY_HEADERS}Connection: close\r\n\r\nretry: 1000\n\n"
        );
        stream.write_all(head.as_bytes())?;
        let frames = match self.join() {
            Ok(frames) => frames,
            Err(end) => return stream.write_all(end.as_bytes()),
        };
        loop {
            match frames.recv_timeout(KEEP_ALIVE_INTERVAL) {
                Ok(frame) => stream.write_all(frame.as_bytes())?,
                Err(RecvTimeoutError::Timeout) => stream.write_all(b": still here\n\n")?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// A new queue, or the end frame if everything is over.
    fn join(&self) -> Result<Receiver<Arc<str>>, Arc<str>> {
        let mut pages = self.pages();
        if let Some(end) = &pages.end {
            return Err(end.clone());
        }
        let (queue, frames) = sync_channel(QUEUE);
        pages.following.push(Follower { queue, has_all: false });
        self.woken.notify_all();
        Ok(frames)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        lock(&self.pages)
    }
}

/// A server-sent event; the JSON contains no line breaks.
fn event(name: &str, json: &str) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_does_not_keep_up_is_dropped_and_the_others_go_on() {
        let (feed, live) = (Feed::default(), Live::new("test"));
        let slow = feed.join().unwrap();
        let quick = feed.join().unwrap();
        for _ in 0..QUEUE {
            feed.send(&live);
            assert!(quick.try_recv().is_ok());
        }
        assert_eq!(feed.pages().following.len(), 2);
        feed.send(&live);
        assert_eq!(feed.pages().following.len(), 1, "its queue was full");
        assert!(quick.try_recv().unwrap().starts_with("event: now\ndata: {"));
        let had: Vec<_> = slow.iter().collect();
        assert_eq!(had.len(), QUEUE, "what was queued is still there, then it ends");
        assert!(had[0].starts_with("event: all\ndata: {") && had[1].starts_with("event: now\n"));
    }

    #[test]
    fn the_end_comes_last_and_to_those_who_come_late() {
        let (feed, live) = (Feed::default(), Live::new("test"));
        let frames = feed.join().unwrap();
        assert_eq!(feed.end(true), 1);
        feed.run(&live);
        let had: Vec<_> = frames.iter().collect();
        assert!(had[0].starts_with("event: all\n"), "{had:?}");
        assert_eq!(&*had[1], "event: end\ndata: {\"report\":true}\n\n");
        assert_eq!(had.len(), 2);
        assert!(feed.join().is_err_and(|end| end == had[1]));
    }
}
