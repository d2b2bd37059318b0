//! What threads do, and what they wait for.
//!
//! Inspecting a thread takes a few microseconds, and a component may have thousands of them: each reading has a budget
//! of CPU time, of which every component gets a share, and the threads to inspect are sampled at random if not all fit.
//! CPU time is counted once per line for all threads, from what the readings left of their budgets.

pub(crate) mod clock;
mod component;
mod process;
mod sums;
mod usage;

use std::time::Instant;

use loadlab_record::watch::evidence::Threads;
use rustix::process::{Resource, getrlimit};

use self::clock::CpuClock;
use self::component::{ComponentThreads, Spot};
use self::process::{Process, Thread};
use self::sums::ThreadSums;
use self::usage::Usage;
use super::Members;
use super::random::Random;
use crate::process::task::TaskFiles;
use crate::process::wait::Doing;

/// Maximum number of threads' files kept open, if that is a small part of what this process may have.
const OPEN_MAX: usize = 512;

/// Reads the threads of components and adds up what they do.
#[derive(Debug)]
pub(crate) struct ThreadReader {
    components: Vec<ComponentThreads>,
    tools: Tools,
    /// Number of readings since the last line.
    readings: u32,
    /// What the readings since the last line left of their budgets.
    saved_ns: i64,
}

/// State shared by all readings.
#[derive(Debug)]
struct Tools {
    files: TaskFiles,
    random: Random,
    /// Number of the current reading.
    reading: u32,
    /// The cost of inspecting a thread, as measured so far.
    cost_ns: u64,
    /// How many files of one component's threads may stay open, and how many in total.
    open_each: usize,
    open_max: usize,
    open: usize,
    tids: Vec<u32>,
    merged: Vec<Thread>,
    busy: Vec<Spot>,
    others: Vec<Spot>,
    by_size: Vec<usize>,
}

impl Default for ThreadReader {
    fn default() -> ThreadReader {
        ThreadReader::new()
    }
}

impl ThreadReader {
    /// A reader that has read nothing yet.
    pub fn new() -> ThreadReader {
        let tools = Tools {
            files: TaskFiles::new(),
            random: Random::new(std::process::id().into()),
            reading: 0,
            cost_ns: 5_000,
            open_each: 0,
            open_max: OPEN_MAX.min(open_files_allowed() / 16),
            open: 0,
            tids: Vec::new(),
            merged: Vec::new(),
            busy: Vec::new(),
            others: Vec::new(),
            by_size: Vec::new(),
        };
        ThreadReader { components: Vec::new(), tools, readings: 0, saved_ns: 0 }
    }

    /// One reading: inspects the state of some threads of every component, in about this much CPU time. A quarter of it
    /// is for listing threads, and a quarter is kept for [`ThreadReader::take`].
    pub fn read(&mut self, members: &[Members], budget_ns: u64) {
        let clock = CpuClock::start();
        self.readings += 1;
        self.tools.reading = self.tools.reading.wrapping_add(1);
        self.follow(members);
        self.list(&clock, budget_ns / 4);
        self.tools.open = self.components.iter().map(ComponentThreads::open).sum();
        self.tools.open_each = self.tools.open_max / self.components.len().max(1);
        // The smallest first: what they leave of their share goes to the larger ones.
        let mut by_size = std::mem::take(&mut self.tools.by_size);
        by_size.clear();
        by_size.extend(0..self.components.len());
        by_size.sort_by_cached_key(|i| self.components[*i].count());
        for (i, component) in by_size.iter().enumerate() {
            let left_ns = (budget_ns / 4 * 3).saturating_sub(clock.spent_ns());
            let share_ns = left_ns / (by_size.len() - i) as u64;
            self.components[*component].look(&mut self.tools, share_ns);
        }
        self.tools.by_size = by_size;
        // Count new processes for the first time, so that their first line has figures, too.
        let is_new = |p: &Process| p.listed.is_some() && p.threads.iter().all(|t| t.counted.is_none());
        for component in &mut self.components {
            component
                .count_cpu(&mut self.tools, &mut Usage::default(), is_new, || clock.spent_ns() < budget_ns);
        }
        self.saved_ns += budget_ns as i64 - clock.spent_ns() as i64;
    }

    /// Sums up what was read since the last call: means over the readings, and CPU time between this call and the last
    /// one, `length_s` ago. What could not be seen is appended to `not_seen`, with the reason.
    ///
    /// Numbers of threads that run, wait and so on refer to the threads read, and add up to their number. If busy
    /// threads were read before others, both kinds are weighted by their number among all threads.
    pub fn take(&mut self, length_s: f64, not_seen: &mut Vec<String>) -> Vec<Threads> {
        let readings = f64::from(std::mem::take(&mut self.readings));
        let saved_ns = std::mem::take(&mut self.saved_ns).max(0) as u64;
        let mut by_size: Vec<&mut ComponentThreads> = self.components.iter_mut().collect();
        by_size.sort_by_cached_key(|component| component.count());
        let clock = CpuClock::start();
        let mut left = by_size.len() as u64;
        for component in by_size {
            let spent_ns = clock.spent_ns();
            let until_ns = spent_ns + saved_ns.saturating_sub(spent_ns) / left;
            left -= 1;
            let mut usage = Usage { least_s: length_s / 2.0, ..Usage::default() };
            component.count_cpu(&mut self.tools, &mut usage, |_| true, || clock.spent_ns() < until_ns);
            component.usage = usage;
        }
        let mut lines = Vec::new();
        for component in &mut self.components {
            component.say_what_is_hidden(not_seen);
            let (sums, usage) = (std::mem::take(&mut component.sums), std::mem::take(&mut component.usage));
            if sums.count > 0.0 && readings > 0.0 {
                lines.push(line(component, &sums, readings, &usage, &mut self.tools.files));
            }
        }
        self.components.retain(|component| component.is_present);
        lines
    }

    /// Updates the components to the current members.
    fn follow(&mut self, members: &[Members]) {
        for component in &mut self.components {
            component.is_present = false;
        }
        for (i, of) in members.iter().enumerate() {
            let is_same = |c: &ComponentThreads| c.name == of.component;
            let at = if self.components.get(i).is_some_and(is_same) {
                i
            } else {
                self.components.iter().position(is_same).unwrap_or_else(|| {
                    let new = ComponentThreads { name: of.component.clone(), ..ComponentThreads::default() };
                    self.components.push(new);
                    self.components.len() - 1
                })
            };
            self.components[at].follow(&of.pids);
        }
        for component in self.components.iter_mut().filter(|c| !c.is_present) {
            component.pids.clear();
            component.processes.clear();
        }
    }

    /// Lists the threads of processes whose lists are outdated, within this much CPU time, but of at least one process.
    fn list(&mut self, clock: &CpuClock, until_ns: u64) {
        let now = Instant::now();
        let number = self.components.len();
        // The last processes may be left out, so start at random.
        let first = self.tools.random.below(number);
        for i in 0..number {
            for process in &mut self.components[(first + i) % number].processes {
                if process.is_list_old(now) {
                    process.list(&mut self.tools, now);
                    if clock.spent_ns() >= until_ns {
                        return;
                    }
                }
            }
        }
    }
}

/// The evidence of a component.
fn line(
    c: &ComponentThreads,
    sums: &ThreadSums,
    readings: f64,
    usage: &Usage,
    files: &mut TaskFiles,
) -> Threads {
    let doing = |what: Doing| sums.doing[what as usize] / readings;
    let is_whole = usage.threads > 0 && !usage.is_partial;
    Threads {
        component: c.name.clone(),
        count: sums.count / readings,
        read: sums.read / readings,
        running: doing(Doing::Running),
        lock: doing(Doing::Lock),
        disk: doing(Doing::Disk),
        network: doing(Doing::Network),
        poll: doing(Doing::Poll),
        sleep: doing(Doing::Sleep),
        other: doing(Doing::Other),
        busiest_cores: usage.busiest.map(|b| b.cores),
        busiest_name: usage.busiest.map(|b| files.name(b.pid, b.tid)).unwrap_or_default(),
        busiest_id: usage.busiest.map(|b| b.tid),
        run_delay_cores: (is_whole && !usage.is_delay_unknown).then_some(usage.delay_cores),
        cpu_cores: is_whole.then_some(usage.cpu_cores),
    }
}

/// The number of files this process may have open.
fn open_files_allowed() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const PLENTY_NS: u64 = 1_000_000_000;
    /// Long enough for a busy machine.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A child process, killed at the end.
    struct Own(Child);

    impl Own {
        fn start(program: &str, args: &[&str]) -> Own {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            Own(command.spawn().unwrap())
        }

        fn members(&self, component: &str) -> Members {
            Members { component: component.to_owned(), pids: vec![self.0.id()] }
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Takes lines of one reading each until a line of the first component is as expected.
    fn until(
        members: &[Members],
        budget_ns: u64,
        is_wanted: impl Fn(&Threads, &[String]) -> bool,
    ) -> (Vec<Threads>, Vec<String>) {
        let mut reader = ThreadReader::new();
        let (mut last, begin) = ((Vec::new(), Vec::new()), Instant::now());
        while begin.elapsed() < TIMEOUT {
            reader.read(members, budget_ns);
            let mut not_seen = Vec::new();
            let lines = reader.take(0.0, &mut not_seen);
            last = (lines, not_seen);
            let found = last.0.iter().find(|line| line.component == members[0].component);
            if found.is_some_and(|line| is_wanted(line, &last.1)) {
                return last;
            }
            thread::yield_now();
        }
        panic!("never seen; last: {last:#?}");
    }

    #[test]
    fn a_sleeping_process_sleeps() {
        let sleeper = Own::start("sleep", &["100000"]);
        let (lines, not_seen) = until(&[sleeper.members("sleeper")], PLENTY_NS, |line, _| line.sleep > 0.0);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((line.count, line.read, line.sleep, line.other), (1.0, 1.0, 1.0, 0.0));
        assert_eq!(not_seen, [""; 0]);
    }

    #[test]
    fn a_spinning_thread_is_the_busiest() {
        let spinner = Own::start("sh", &["-c", "while :; do :; done"]);
        let sleeper = Own::start("sleep", &["100000"]);
        // One component with two processes.
        let pids = vec![sleeper.0.id(), spinner.0.id()];
        let members = [Members { component: "both".to_owned(), pids }];
        let (lines, _) = until(&members, PLENTY_NS, |line, _| {
            line.busiest_id == Some(spinner.0.id()) && line.running == 1.0
        });
        let line = &lines[0];
        assert_eq!((line.count, line.read, line.busiest_name.as_str()), (2.0, 2.0, "sh"));
        let busiest = line.busiest_cores.unwrap();
        assert!(busiest > 0.0 && busiest <= 1.0, "{busiest}");
        assert!(line.cpu_cores.unwrap() >= busiest.min(0.99), "{line:?}");
        assert!(line.run_delay_cores.unwrap() >= 0.0);
    }

    #[test]
    fn means_are_over_all_readings() {
        let sleeper = Own::start("sleep", &["100000"]);
        let members = [sleeper.members("sleeper")];
        let mut reader = ThreadReader::new();
        for members in [&members[..], &[], &[], &members] {
            reader.read(members, PLENTY_NS);
        }
        let lines = reader.take(1.0, &mut Vec::new());
        assert_eq!((lines[0].count, lines[0].read), (0.5, 0.5));
        // Nothing was read since, so there is nothing to report.
        assert_eq!(reader.take(1.0, &mut Vec::new()), []);
        // A component that has left has no line.
        reader.read(&[], PLENTY_NS);
        assert_eq!(reader.take(1.0, &mut Vec::new()), []);
        assert!(reader.components.is_empty());
    }

    #[test]
    fn processes_that_ended_are_no_threads() {
        let mut ended = Own::start("true", &[]);
        ended.0.wait().unwrap();
        let mut reader = ThreadReader::new();
        let gone = ended.members("gone");
        for _ in 0..3 {
            reader.read(std::slice::from_ref(&gone), PLENTY_NS);
        }
        assert_eq!(reader.take(1.0, &mut Vec::new()), []);
    }

    #[test]
    fn a_large_component_neither_starves_others_nor_is_left_out() {
        const WAITING: usize = 200;
        let (ready, end) = (Arc::new(Barrier::new(WAITING + 1)), Arc::new(Barrier::new(WAITING + 1)));
        let threads: Vec<_> = (0..WAITING)
            .map(|_| {
                let (ready, end) = (Arc::clone(&ready), Arc::clone(&end));
                thread::spawn(move || {
                    ready.wait();
                    end.wait();
                })
            })
            .collect();
        ready.wait();
        let sleeper = Own::start("sleep", &["100000"]);
        let large = Members { component: "large".to_owned(), pids: vec![std::process::id()] };
        let members = [large, sleeper.members("small")];
        let mut reader = ThreadReader::new();
        // No budget at all: one thread of each component, a different one each time.
        let readings = 2_000;
        for _ in 0..readings {
            reader.read(&members, 0);
        }
        let looked_at: HashSet<u32> = reader.components[0].processes[0]
            .threads
            .iter()
            .filter(|thread| thread.busy_until > 0)
            .map(|thread| thread.tid)
            .collect();
        let lines = reader.take(1.0, &mut Vec::new());
        end.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let [large, small] = &lines[..] else { panic!("{lines:?}") };
        assert!(large.count >= WAITING as f64, "{large:?}");
        // Other tests' threads may end while they are looked at.
        assert!(large.read > 0.5 && large.read <= 1.0, "{large:?}");
        assert_eq!((small.count, small.read), (1.0, 1.0));
        assert!(looked_at.len() > WAITING / 2, "{} of {WAITING}", looked_at.len());
    }

    #[test]
    fn files_stay_open_within_bounds_and_go_with_their_threads() {
        let sleepers: Vec<Own> = (0..6).map(|_| Own::start("sleep", &["100000"])).collect();
        let pids = |of: &[Own]| of.iter().map(|own| own.0.id()).collect::<Vec<_>>();
        let component = |name: &str, of: &[Own]| Members { component: name.to_owned(), pids: pids(of) };
        let members = [component("large", &sleepers[..5]), component("small", &sleepers[5..])];
        let mut reader = ThreadReader::new();
        reader.tools.open_max = 4;
        for _ in 0..3 {
            reader.read(&members, PLENTY_NS);
        }
        let open =
            |reader: &ThreadReader| reader.components.iter().map(ComponentThreads::open).collect::<Vec<_>>();
        assert_eq!(open(&reader), [2, 1]);
        let lines = reader.take(1.0, &mut Vec::new());
        assert_eq!((lines[0].read, lines[1].read), (5.0, 1.0));
        reader.read(&members[1..], PLENTY_NS);
        assert_eq!(open(&reader), [0, 1]);
    }
}
