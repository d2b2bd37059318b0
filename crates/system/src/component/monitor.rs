//! One thread that notices when a process ends, the kernel kills one for memory, or a log exceeds its bound.
//!
//! It sleeps in `poll` on one pidfd per component, so a death is seen at once and an idle system costs nothing; four
//! times a second it checks log sizes and OOM counters, which cannot be polled for. It is also the only place that
//! reaps, so exactly one thread learns each exit status; a container's status requires asking its engine, which a
//! separate thread does.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use loadlab_record::sync::lock;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Component, Inner, Origin, Status};
use crate::clock;
use crate::error::{Error, Result};

/// How often logs and OOM counters are checked.
const CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// Something a component did on its own.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// Its first process ended, after it was ready and without being asked to end.
    Died {
        /// The component that died.
        component: Component,
        /// How it ended; `Display` puts it in words.
        status: Status,
        /// When it was noticed, nanoseconds of `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// The kernel killed some of its processes for memory; its first process is alive.
    OutOfMemory {
        /// The component they belong to.
        component: Component,
        /// OOM kills since it was started.
        kills: u64,
        /// When it was noticed, nanoseconds of `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// A log reached its bound and was cut back to its first half. Reported once per log.
    LogCut {
        /// The component that writes the log.
        component: Component,
        /// The log's path.
        path: PathBuf,
        /// When it was cut, nanoseconds of `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
}

/// The monitor thread, and what it watches.
#[derive(Debug)]
pub(crate) struct Monitor {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    kept: Mutex<Vec<Arc<Inner>>>,
    wake: OwnedFd,
    stop: AtomicBool,
    log_limit_bytes: u64,
}

impl Monitor {
    pub fn start(log_limit_bytes: u64, notices: Sender<Notice>) -> Result<Monitor> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::Os { doing: "create an event descriptor", source: e.into() })?;
        let shared =
            Arc::new(Shared { kept: Mutex::default(), wake, stop: AtomicBool::new(false), log_limit_bytes });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("loadlab-keep".into())
            .spawn(move || theirs.run(&notices))
            .map_err(|source| Error::Os { doing: "start a thread", source })?;
        Ok(Monitor { shared, thread: Some(thread) })
    }

    pub fn keep(&self, inner: Arc<Inner>) {
        lock(&self.shared.kept).push(inner);
        self.shared.wake();
    }

    /// Stops tracking a component that was taken down.
    pub fn forget(&self, inner: &Arc<Inner>) {
        lock(&self.shared.kept).retain(|kept| !Arc::ptr_eq(kept, inner));
        self.shared.wake();
    }

    /// All components that are up, oldest first; dead ones are included until they are taken down.
    pub fn all(&self) -> Vec<Arc<Inner>> {
        lock(&self.shared.kept).clone()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already been reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wake(&self) {
        // A full counter leaves the eventfd readable, so a failed write changes nothing.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn run(&self, notices: &Sender<Notice>) {
        let mut looked_ns = 0;
        while !self.stop.load(Ordering::SeqCst) {
            let kept = lock(&self.kept).clone();
            let is_watched = |c: &&Arc<Inner>| {
                lock(&c.life).ended.is_none() && !c.is_status_requested.load(Ordering::SeqCst)
            };
            let living: Vec<&Arc<Inner>> = kept.iter().filter(is_watched).collect();
            let mut fds: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
            fds.extend(living.iter().map(|c| PollFd::from_borrowed_fd(c.pidfd.as_fd(), PollFlags::IN)));
            // With no component alive, only the wake-up matters.
            let timeout = (!kept.is_empty()).then_some(&CHECK_INTERVAL);
            let _ = poll(&mut fds, timeout);
            let now_ns = clock::now_ns();
            if !fds[0].revents().is_empty() {
                let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
            }
            for (inner, fd) in living.iter().zip(&fds[1..]) {
                if !fd.revents().is_empty() {
                    ended(inner, now_ns, notices);
                }
            }
            if now_ns - looked_ns >= CHECK_INTERVAL.tv_nsec as u64 {
                looked_ns = now_ns;
                kept.iter().for_each(|inner| self.look(inner, now_ns, notices));
            }
        }
    }

    fn look(&self, inner: &Arc<Inner>, at_ns: u64, notices: &Sender<Notice>) {
        let component = || Component { inner: inner.clone() };
        // Whoever set the limit: the plan, a Compose file, or the container loadlab runs in.
        let kills = inner.group.oom_kills().unwrap_or(0);
        let mut life = lock(&inner.life);
        if kills > life.oom_kills {
            life.oom_kills = kills;
            if life.ended.is_none() && !inner.is_command {
                let _ = notices.send(Notice::OutOfMemory { component: component(), kills, at_ns });
            }
        }
        for (i, log) in inner.logs.iter().enumerate() {
            if log.cut(self.log_limit_bytes) && !life.cut.contains(&i) {
                life.cut.push(i);
                let path = log.path.clone();
                let _ = notices.send(Notice::LogCut { component: component(), path, at_ns });
            }
        }
    }
}

/// Learns how a component ended, and sends the notice. An engine may answer slowly or never; no other component's end
/// may wait for that.
fn ended(inner: &Arc<Inner>, at_ns: u64, notices: &Sender<Notice>) {
    // The answer of an engine may take seconds, and what died before them was not about to be stopped.
    let was_leaving = inner.is_leaving();
    if matches!(inner.origin, Origin::Process) {
        return reap(inner, at_ns, was_leaving, notices);
    }
    // Read while the cgroup exists: the engine removes it, and does not report the OOM kill if it sees the end first.
    inner.count_oom_kills(&mut lock(&inner.life));
    inner.is_status_requested.store(true, Ordering::SeqCst);
    let (theirs, to) = (inner.clone(), notices.clone());
    let asks = std::thread::Builder::new().name("loadlab-ended".into());
    if asks.spawn(move || reap(&theirs, at_ns, was_leaving, &to)).is_err() {
        reap(inner, at_ns, was_leaving, notices);
    }
}

fn reap(inner: &Arc<Inner>, at_ns: u64, was_leaving: bool, notices: &Sender<Notice>) {
    if !inner.reap(at_ns, was_leaving)
        || was_leaving
        || inner.is_command
        || !inner.was_ready.load(Ordering::SeqCst)
    {
        return;
    }
    if let Some(ended) = lock(&inner.life).ended.clone() {
        // The receiver may be gone.
        let component = Component { inner: inner.clone() };
        let _ = notices.send(Notice::Died { component, status: ended.status, at_ns });
    }
}
