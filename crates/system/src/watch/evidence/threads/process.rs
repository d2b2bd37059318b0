//! A process and the list of its threads, which is refreshed now and then.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::Tools;
use super::clock::CpuClock;
use super::usage::Counted;
use crate::process::runtime::Runtime;
use crate::process::task::FileId;

/// Minimum time for which a list of threads is valid.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// The same as a multiple of the list's CPU cost: listing thousands of threads takes milliseconds.
const LIST_EVERY_COSTS: u32 = 400;
/// How many threads' names are inspected to recognise a runtime: it starts its own threads first.
const NAMES_LOOKED_AT: usize = 8;

/// A process of a component.
#[derive(Debug)]
pub(super) struct Process {
    pub pid: u32,
    pub threads: Vec<Thread>,
    /// When its threads were listed, and for how long the list is valid.
    pub listed: Option<(Instant, Duration)>,
    /// Whether the list has all its threads.
    pub is_list_whole: bool,
    /// Whether the CPU time of its threads is being counted.
    pub is_chosen: bool,
    /// Whether the last count covered all its threads; `None` if there was none.
    pub is_whole: Option<bool>,
    pub may_trace: bool,
    /// Number of its threads' files that are open.
    pub open: usize,
    pub program: Option<FileId>,
    pub runtime: Option<Runtime>,
}

/// One thread of a process.
#[derive(Debug)]
pub(super) struct Thread {
    pub tid: u32,
    /// Its `syscall` file, if kept open.
    pub open: Option<OwnedFd>,
    pub is_gone: bool,
    /// Number of the reading until which it is inspected before others.
    pub busy_until: u32,
    /// Number of the reading until which its CPU time is counted before others'.
    pub ran_until: u32,
    pub counted: Option<Counted>,
}

impl Process {
    pub fn new(pid: u32) -> Process {
        // It has at least its first thread, even before a list shows more.
        Process {
            pid,
            threads: vec![Thread::new(pid)],
            listed: None,
            is_list_whole: true,
            is_chosen: false,
            is_whole: None,
            may_trace: true,
            open: 0,
            program: None,
            runtime: None,
        }
    }

    pub fn is_list_old(&self, now: Instant) -> bool {
        self.listed.is_none_or(|(at, good_for)| now.duration_since(at) >= good_for)
    }

    /// Lists its threads, and keeps what is known of those that still exist.
    pub fn list(&mut self, tools: &mut Tools, now: Instant) {
        let clock = CpuClock::start();
        tools.tids.clear();
        // Many processes have a single thread, whose id is known.
        let listed = match tools.files.count(self.pid) {
            Ok(1) => {
                tools.tids.push(self.pid);
                Ok(true)
            }
            Ok(_) => tools.files.list(self.pid, &mut tools.tids),
            Err(error) => Err(error),
        };
        self.is_list_whole = listed.unwrap_or_else(|_| {
            // It has ended, with all its threads.
            tools.tids.clear();
            true
        });
        tools.tids.sort_unstable();
        let pid = self.pid;
        let Tools { files, tids, merged, .. } = tools;
        self.merge(tids, merged, |tid| files.state(pid, tid).is_ok());
        self.open = self.threads.iter().filter(|thread| thread.open.is_some()).count();
        // It may have dropped privileges, or gained them.
        self.may_trace = true;
        self.look_at_program(tools);
        let cost = Duration::from_nanos(clock.spent_ns());
        self.listed = Some((now, LIST_EVERY.max(cost * LIST_EVERY_COSTS)));
    }

    /// Takes over a list of its threads, in order. A list may lack some: one that is known is dropped only if it no
    /// longer exists, or its CPU time would be missing from a sum that is said to be of all.
    fn merge(&mut self, tids: &[u32], merged: &mut Vec<Thread>, mut exists: impl FnMut(u32) -> bool) {
        merged.clear();
        let mut known = self.threads.drain(..).filter(|thread| !thread.is_gone).peekable();
        for tid in tids {
            while let Some(thread) = known.next_if(|thread| thread.tid < *tid) {
                if exists(thread.tid) {
                    merged.push(thread);
                }
            }
            let same = known.next_if(|thread| thread.tid == *tid);
            merged.push(same.unwrap_or_else(|| Thread::new(*tid)));
        }
        merged.extend(known.filter(|thread| exists(thread.tid)));
        std::mem::swap(&mut self.threads, merged);
    }

    /// Recognises its runtime, once for each program that it runs.
    fn look_at_program(&mut self, tools: &mut Tools) {
        let program = tools.files.program(self.pid);
        if program.is_some() && program == self.program {
            return;
        }
        if program.is_none() && self.listed.is_some() {
            return;
        }
        self.program = program;
        self.runtime = Runtime::of_program(self.pid).or_else(|| {
            let pid = self.pid;
            let mut first = self.threads.iter().take(NAMES_LOOKED_AT);
            first.find_map(|thread| Runtime::of_thread(&tools.files.name(pid, thread.tid)))
        });
    }
}

impl Thread {
    pub fn new(tid: u32) -> Thread {
        Thread { tid, open: None, is_gone: false, busy_until: 0, ran_until: 0, counted: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_a_list_lacks_is_kept_unless_it_is_gone() {
        let thread = |tid: u32, is_gone: bool| Thread { is_gone, ran_until: tid, ..Thread::new(tid) };
        let mut process = Process::new(10);
        let known = [(10, false), (11, false), (12, true), (13, false), (15, false)];
        process.threads = known.map(|(tid, is_gone)| thread(tid, is_gone)).into();
        process.merge(&[10, 12, 14], &mut Vec::new(), |tid| tid != 13);
        let left: Vec<_> = process.threads.iter().map(|thread| (thread.tid, thread.ran_until)).collect();
        // Number 12 is another thread now, and number 14 is new.
        assert_eq!(left, [(10, 10), (11, 11), (12, 0), (14, 0), (15, 15)]);
    }
}
