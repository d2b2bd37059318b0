//! A component's threads: which to inspect in a reading, and which to count.

use std::time::Instant;

use super::Tools;
use super::clock::CpuClock;
use super::process::Process;
use super::sums::{Stratum, ThreadSums};
use super::usage::{Counted, Usage};
use crate::process::runtime::Runtime;
use crate::process::wait::{self, Doing, Observation};

/// For how many readings a thread that ran, or waited for a lock or a disk, is inspected before others.
const BUSY_READINGS: u32 = 40;
/// Maximum number of threads inspected between two looks at the clock.
const GROUP_MAX: u64 = 8;

/// A component's processes, and what was seen of their threads.
#[derive(Debug, Default)]
pub(super) struct ComponentThreads {
    pub name: String,
    pub is_present: bool,
    pub pids: Vec<u32>,
    pub processes: Vec<Process>,
    pub sums: ThreadSums,
    pub usage: Usage,
}

/// A thread's position in a component.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub process: u32,
    pub thread: u32,
}

impl ComponentThreads {
    pub fn follow(&mut self, pids: &[u32]) {
        self.is_present = true;
        if self.pids == pids {
            return;
        }
        self.pids.clear();
        self.pids.extend_from_slice(pids);
        self.processes.retain(|p| pids.contains(&p.pid));
        for pid in pids {
            if !self.processes.iter().any(|p| p.pid == *pid) {
                self.processes.push(Process::new(*pid));
            }
        }
    }

    pub fn count(&self) -> usize {
        self.processes.iter().map(|p| p.threads.len()).sum()
    }

    /// Number of its threads' files that are open.
    pub fn open(&self) -> usize {
        self.processes.iter().map(|p| p.open).sum()
    }

    /// Inspects some threads, in about this much CPU time, but at least one.
    pub fn look(&mut self, tools: &mut Tools, share_ns: u64) {
        let (mut busy, mut others) = (std::mem::take(&mut tools.busy), std::mem::take(&mut tools.others));
        self.draw_up(tools.reading, &mut busy, &mut others);
        let mut strata = [Stratum::new(busy.len()), Stratum::new(others.len())];
        let clock = CpuClock::start();
        let (mut looked, mut timed, mut spent_ns) = (0, 0, 0);
        // Alternates between the two kinds while both are left, starting with either.
        let mut turn = tools.random.below(2);
        let mut until_clock = group(share_ns, tools.cost_ns);
        let mut may_open = tools.open_each.saturating_sub(self.open());
        loop {
            let from = if turn == 0 { [&mut busy, &mut others] } else { [&mut others, &mut busy] };
            let [first, second] = from;
            let (spots, which) = if first.is_empty() { (second, 1 - turn) } else { (first, turn) };
            if spots.is_empty() {
                break;
            }
            let spot = spots.swap_remove(tools.random.below(spots.len()));
            self.look_at(spot, tools, &mut strata[which], &mut may_open);
            turn = 1 - turn;
            looked += 1;
            until_clock -= 1;
            if until_clock == 0 {
                (timed, spent_ns) = (looked, clock.spent_ns());
                if spent_ns >= share_ns {
                    break;
                }
                until_clock = group(share_ns - spent_ns, tools.cost_ns);
            }
        }
        if timed >= 4 {
            tools.cost_ns = (tools.cost_ns * 7 + spent_ns / timed) / 8;
        }
        (tools.busy, tools.others) = (busy, others);
        self.sums.add(&strata);
    }

    /// Collects the threads that were busy lately, and the others.
    fn draw_up(&self, reading: u32, busy: &mut Vec<Spot>, others: &mut Vec<Spot>) {
        busy.clear();
        others.clear();
        for (process, of) in (0u32..).zip(&self.processes) {
            for (thread, known) in (0u32..).zip(&of.threads).filter(|(_, known)| !known.is_gone) {
                let list = if known.busy_until >= reading { &mut *busy } else { &mut *others };
                list.push(Spot { process, thread });
            }
        }
    }

    fn look_at(&mut self, spot: Spot, tools: &mut Tools, stratum: &mut Stratum, may_open: &mut usize) {
        let process = &mut self.processes[spot.process as usize];
        let thread = &mut process.threads[spot.thread as usize];
        if thread.open.is_none() && process.may_trace && *may_open > 0 && tools.open < tools.open_max {
            thread.open = tools.files.open_place(process.pid, thread.tid).ok();
            let opened = usize::from(thread.open.is_some());
            process.open += opened;
            tools.open += opened;
            *may_open -= opened;
        }
        let seen = if process.may_trace {
            wait::look(&mut tools.files, process.pid, thread.tid, thread.open.as_ref())
        } else {
            wait::look_without_call(&mut tools.files, process.pid, thread.tid)
        };
        let doing = match seen {
            Ok(Observation::Clearly(doing)) => doing,
            Ok(Observation::ByFunction(doing)) => {
                process.may_trace = false;
                self.sums.by_function += 1;
                doing
            }
            Ok(Observation::Hidden) => {
                process.may_trace = false;
                self.sums.hidden += 1;
                Doing::Other
            }
            Err(_) => {
                thread.is_gone = true;
                stratum.count -= 1;
                return;
            }
        };
        let until = tools.reading + BUSY_READINGS;
        if matches!(doing, Doing::Running | Doing::Lock | Doing::Disk) {
            thread.busy_until = until;
        }
        if doing == Doing::Running {
            thread.ran_until = until;
        }
        stratum.read += 1;
        stratum.doing[doing as usize] += 1;
    }

    /// Counts the CPU time of some processes' threads, recently active ones first, while the budget lasts.
    pub fn count_cpu(
        &mut self,
        tools: &mut Tools,
        usage: &mut Usage,
        which: impl Fn(&Process) -> bool,
        may_go_on: impl Fn() -> bool,
    ) {
        for process in &mut self.processes {
            // A process that was never listed is new: nothing is known beyond its first thread.
            process.is_chosen = process.listed.is_some() && which(process);
            if process.is_chosen {
                usage.is_partial |= process.is_whole == Some(false) || !process.is_list_whole;
                process.is_whole = Some(process.is_list_whole);
            }
        }
        let (mut until_clock, mut is_over) = (GROUP_MAX, false);
        for ran_lately in [true, false] {
            for process in self.processes.iter_mut().filter(|p| p.is_chosen) {
                let threads = process.threads.iter_mut().filter(|t| !t.is_gone);
                for thread in threads.filter(|t| (t.ran_until >= tools.reading) == ran_lately) {
                    until_clock -= 1;
                    if until_clock == 0 {
                        until_clock = GROUP_MAX;
                        is_over |= !may_go_on();
                    }
                    if is_over {
                        process.is_whole = Some(false);
                        usage.is_partial = true;
                        break;
                    }
                    let Ok(cpu) = tools.files.cpu(process.pid, thread.tid) else { continue };
                    let now = Counted { at: Instant::now(), cpu };
                    if let Some(before) = thread.counted.replace(now) {
                        usage.add(process.pid, thread.tid, before, now);
                    }
                }
            }
        }
    }

    pub fn say_what_is_hidden(&self, not_seen: &mut Vec<String>) {
        let name = &self.name;
        // A thread that has just begun to wait looks hidden, too, so a few do not suffice.
        if self.sums.hidden > self.sums.by_function {
            not_seen.push(format!("what threads of {name} wait for: another user's process"));
        }
        if self.usage.is_delay_unknown {
            not_seen.push(format!("run delay of {name}: the kernel does not count it"));
        }
        // Recently active threads are counted first: those left out did little.
        if self.usage.is_partial && 2 * (self.usage.threads as usize) < self.count() {
            not_seen.push(format!("CPU of all threads of {name}: there are too many to read in time"));
        }
        let has = |runtime| self.processes.iter().any(|p| p.runtime == Some(runtime));
        if has(Runtime::Go) {
            not_seen.push(format!("what goroutines of {name} wait for: Go schedules them itself"));
        }
        if has(Runtime::Node) {
            not_seen.push(format!("what callbacks of {name} wait for: Node runs them in one thread"));
        }
    }
}

/// How many threads to inspect until the next look at the clock.
fn group(left_ns: u64, cost_ns: u64) -> u64 {
    (left_ns / cost_ns.max(1)).clamp(1, GROUP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_without_an_unlisted_thread_is_not_of_all() {
        let listed = Some((Instant::now(), std::time::Duration::ZERO));
        let mut tools = super::super::ThreadReader::new().tools;
        let mut component = ComponentThreads::default();
        component.processes.push(Process { listed, ..Process::new(std::process::id()) });
        // Between two whole lists, up to one that lacks a thread, from there on, and when it was counted twice again.
        let partial = [true, false, true, true].map(|is_whole| {
            component.processes[0].is_list_whole = is_whole;
            let mut usage = Usage::default();
            component.count_cpu(&mut tools, &mut usage, |_| true, || true);
            usage.is_partial
        });
        assert_eq!(partial, [false, true, true, false]);
    }

    #[test]
    fn what_is_hidden_is_said() {
        let mut component = ComponentThreads { name: "db".to_owned(), ..ComponentThreads::default() };
        component.processes = vec![
            Process { runtime: Some(Runtime::Go), ..Process::new(1) },
            Process { runtime: Some(Runtime::Go), ..Process::new(2) },
            Process { runtime: Some(Runtime::Node), ..Process::new(3) },
        ];
        component.sums.hidden = 3;
        component.usage.is_delay_unknown = true;
        component.usage.is_partial = true;
        let mut not_seen = Vec::new();
        component.say_what_is_hidden(&mut not_seen);
        assert_eq!(
            not_seen,
            [
                "what threads of db wait for: another user's process",
                "run delay of db: the kernel does not count it",
                "CPU of all threads of db: there are too many to read in time",
                "what goroutines of db wait for: Go schedules them itself",
                "what callbacks of db wait for: Node runs them in one thread",
            ]
        );
        // Some threads begin to wait just when they are inspected.
        component = ComponentThreads { name: "db".to_owned(), ..ComponentThreads::default() };
        (component.sums.hidden, component.sums.by_function) = (3, 100);
        not_seen.clear();
        component.say_what_is_hidden(&mut not_seen);
        assert_eq!(not_seen, [""; 0]);
    }
}
