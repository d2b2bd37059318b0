//! What threads do, and what they wait for.
//!
//! Looking at a thread costs a few microseconds, and a component may have thousands of them: each reading has a budget of
//! CPU time, of which every component has a share, and what does not fit is left to chance. CPU is counted once per line
//! for all threads, from what the readings left of their budgets.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use loadlab_record::evidence::Threads;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::Members;
use crate::process::runtime::Runtime;
use crate::process::task::{CpuUse, FileId, TaskFiles};
use crate::process::wait::{self, Doing, Seen};

/// How long a list of threads is good for, at least.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// And in terms of what the list costs: a list of thousands of threads takes milliseconds.
const LIST_EVERY_COSTS: u32 = 400;
/// For how many readings a thread that ran or waited for a lock or a disk is looked at before others.
const BUSY_READINGS: u32 = 40;
/// The most files of threads that stay open, where so many are a small part of those that this process may have.
const OPEN_MAX: usize = 512;
/// The most threads that are looked at between two looks at the clock.
const GROUP_MAX: u64 = 8;
/// How many threads' names are looked at to tell a runtime: it starts its own threads first.
const NAMES_LOOKED_AT: usize = 8;

/// Reads threads of components and adds them up.
#[derive(Debug)]
pub(crate) struct ThreadReader {
    components: Vec<Component>,
    tools: Tools,
    /// Since the last line.
    readings: u32,
    /// What readings since the last line left of their budgets.
    saved_ns: i64,
}

/// What reading needs, whatever is read.
#[derive(Debug)]
struct Tools {
    files: TaskFiles,
    random: Random,
    /// Number of the reading.
    reading: u32,
    /// What looking at a thread costs, as learned.
    cost_ns: u64,
    /// How many files of a component's threads may stay open, and of all.
    open_each: usize,
    open_max: usize,
    open: usize,
    tids: Vec<u32>,
    merged: Vec<Thread>,
    busy: Vec<Spot>,
    others: Vec<Spot>,
    by_size: Vec<usize>,
}

#[derive(Debug, Default)]
struct Component {
    name: String,
    is_present: bool,
    pids: Vec<u32>,
    processes: Vec<Process>,
    sums: Sums,
    usage: Usage,
}

/// Sums over readings.
#[derive(Debug, Default)]
struct Sums {
    count: f64,
    read: f64,
    doing: [f64; Doing::COUNT],
    /// Looks at threads whose call may not be looked at: those that the kernel's function told of, and the others.
    by_function: u32,
    hidden: u32,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    threads: Vec<Thread>,
    /// When its threads were listed, and for how long that is good.
    listed: Option<(Instant, Duration)>,
    /// Its threads' CPU is being counted.
    is_chosen: bool,
    /// The last count got to all its threads; `None` if there was none.
    is_whole: Option<bool>,
    may_trace: bool,
    /// How many files of its threads are open.
    open: usize,
    program: Option<FileId>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    /// Its file that stays open.
    open: Option<OwnedFd>,
    is_gone: bool,
    /// Number of the reading until which it is looked at before others.
    busy_until: u32,
    /// And counted before others.
    ran_until: u32,
    counted: Option<Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Instant,
    cpu: CpuUse,
}

/// A thread's place in a component.
#[derive(Clone, Copy, Debug)]
struct Spot {
    process: u32,
    thread: u32,
}

impl Default for ThreadReader {
    fn default() -> ThreadReader {
        ThreadReader::new()
    }
}

impl ThreadReader {
    /// Has read nothing.
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

    /// One reading: of every component some threads' state, in about this much CPU time. A quarter of it is for lists of
    /// threads, and a quarter is kept for [`ThreadReader::take`].
    pub fn read(&mut self, members: &[Members], budget_ns: u64) {
        let clock = CpuClock::start();
        self.readings += 1;
        self.tools.reading = self.tools.reading.wrapping_add(1);
        self.follow(members);
        self.list(&clock, budget_ns / 4);
        self.tools.open = self.components.iter().map(Component::open).sum();
        self.tools.open_each = self.tools.open_max / self.components.len().max(1);
        // The smallest first: what they leave of their share is for the larger ones.
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
        // The first count of new processes, so that their first line has figures, too.
        let is_new = |p: &Process| p.listed.is_some() && p.threads.iter().all(|t| t.counted.is_none());
        for component in &mut self.components {
            component
                .count_cpu(&mut self.tools, &mut Usage::default(), is_new, || clock.spent_ns() < budget_ns);
        }
        self.saved_ns += budget_ns as i64 - clock.spent_ns() as i64;
    }

    /// Sums up what was read since the last time: means over the readings, and CPU over the time between this call and
    /// the last one, which was `length_s` ago. What could not be seen is appended to `not_seen`, with its reason.
    ///
    /// Numbers of threads that run, wait and so on are of those read, and add up to them. Where busy threads were read
    /// before others, both kinds have the weight they have among all threads.
    pub fn take(&mut self, length_s: f64, not_seen: &mut Vec<String>) -> Vec<Threads> {
        let readings = f64::from(std::mem::take(&mut self.readings));
        let saved_ns = std::mem::take(&mut self.saved_ns).max(0) as u64;
        let mut by_size: Vec<&mut Component> = self.components.iter_mut().collect();
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

    /// Takes over who belongs to whom.
    fn follow(&mut self, members: &[Members]) {
        for component in &mut self.components {
            component.is_present = false;
        }
        for (i, of) in members.iter().enumerate() {
            let is_same = |c: &Component| c.name == of.component;
            let at = if self.components.get(i).is_some_and(is_same) {
                i
            } else {
                self.components.iter().position(is_same).unwrap_or_else(|| {
                    let new = Component { name: of.component.clone(), ..Component::default() };
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

    /// Lists the threads of processes whose lists are old, within this much CPU time, and of one process at least.
    fn list(&mut self, clock: &CpuClock, until_ns: u64) {
        let now = Instant::now();
        let number = self.components.len();
        // Who comes last may be left out: not always the same.
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

impl Component {
    fn follow(&mut self, pids: &[u32]) {
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

    fn count(&self) -> usize {
        self.processes.iter().map(|p| p.threads.len()).sum()
    }

    /// How many files of its threads are open.
    fn open(&self) -> usize {
        self.processes.iter().map(|p| p.open).sum()
    }

    /// Looks at some threads, in about this much CPU time, and at one at least.
    fn look(&mut self, tools: &mut Tools, share_ns: u64) {
        let (mut busy, mut others) = (std::mem::take(&mut tools.busy), std::mem::take(&mut tools.others));
        self.draw_up(tools.reading, &mut busy, &mut others);
        let mut strata = [Stratum::new(busy.len()), Stratum::new(others.len())];
        let clock = CpuClock::start();
        let (mut looked, mut timed, mut spent_ns) = (0, 0, 0);
        // Both kinds in turn while there are both, whoever comes first.
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

    /// Threads that were busy lately, and the others.
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
            Ok(Seen::Clearly(doing)) => doing,
            Ok(Seen::ByFunction(doing)) => {
                process.may_trace = false;
                self.sums.by_function += 1;
                doing
            }
            Ok(Seen::Hidden) => {
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

    /// Counts the CPU of threads of some processes, those that ran lately first, while it may go on.
    fn count_cpu(
        &mut self,
        tools: &mut Tools,
        usage: &mut Usage,
        which: impl Fn(&Process) -> bool,
        may_go_on: impl Fn() -> bool,
    ) {
        for process in &mut self.processes {
            // One that was not even listed is new: what it has beyond its first thread is not known.
            process.is_chosen = process.listed.is_some() && which(process);
            if process.is_chosen {
                usage.is_partial |= process.is_whole == Some(false);
                process.is_whole = Some(true);
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

    fn say_what_is_hidden(&self, not_seen: &mut Vec<String>) {
        let name = &self.name;
        // A thread that has just stopped to wait looks hidden, too: so it takes more than some.
        if self.sums.hidden > self.sums.by_function {
            not_seen.push(format!("what threads of {name} wait for: another user's process"));
        }
        if self.usage.is_delay_unknown {
            not_seen.push(format!("run delay of {name}: the kernel does not count it"));
        }
        // Those that ran lately are counted first: who is left out did little.
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

impl Process {
    fn new(pid: u32) -> Process {
        // It has its first thread at least, until a list says more.
        Process {
            pid,
            threads: vec![Thread::new(pid)],
            listed: None,
            is_chosen: false,
            is_whole: None,
            may_trace: true,
            open: 0,
            program: None,
            runtime: None,
        }
    }

    fn is_list_old(&self, now: Instant) -> bool {
        self.listed.is_none_or(|(at, good_for)| now.duration_since(at) >= good_for)
    }

    /// Lists its threads, and keeps what is known of those that are still there.
    fn list(&mut self, tools: &mut Tools, now: Instant) {
        let clock = CpuClock::start();
        tools.tids.clear();
        // Many processes have one thread, and its id is known.
        let listed = match tools.files.count(self.pid) {
            Ok(1) => {
                tools.tids.push(self.pid);
                Ok(())
            }
            Ok(_) => tools.files.list(self.pid, &mut tools.tids),
            Err(error) => Err(error),
        };
        if listed.is_err() {
            tools.tids.clear();
        }
        tools.tids.sort_unstable();
        tools.merged.clear();
        let mut known = self.threads.drain(..).peekable();
        for tid in &tools.tids {
            while known.next_if(|thread| thread.tid < *tid).is_some() {}
            let same = known.next_if(|thread| thread.tid == *tid).filter(|thread| !thread.is_gone);
            tools.merged.push(same.unwrap_or_else(|| Thread::new(*tid)));
        }
        drop(known);
        std::mem::swap(&mut self.threads, &mut tools.merged);
        self.open = self.threads.iter().filter(|thread| thread.open.is_some()).count();
        // It may have given its rights away, or got them.
        self.may_trace = true;
        self.look_at_program(tools);
        let cost = Duration::from_nanos(clock.spent_ns());
        self.listed = Some((now, LIST_EVERY.max(cost * LIST_EVERY_COSTS)));
    }

    /// Finds out its runtime, once for each program that it runs.
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
    fn new(tid: u32) -> Thread {
        Thread { tid, open: None, is_gone: false, busy_until: 0, ran_until: 0, counted: None }
    }
}

/// How many threads to look at until the next look at the clock.
fn group(left_ns: u64, cost_ns: u64) -> u64 {
    (left_ns / cost_ns.max(1)).clamp(1, GROUP_MAX)
}

/// Threads of one kind in one reading.
#[derive(Debug)]
struct Stratum {
    count: u32,
    read: u32,
    doing: [u32; Doing::COUNT],
}

impl Stratum {
    fn new(count: usize) -> Stratum {
        Stratum { count: count as u32, read: 0, doing: [0; Doing::COUNT] }
    }
}

impl Sums {
    /// Adds a reading. Each kind of threads weighs as much as it has threads, not as much as were read of it.
    fn add(&mut self, strata: &[Stratum; 2]) {
        self.count += strata.iter().map(|s| f64::from(s.count)).sum::<f64>();
        let read: f64 = strata.iter().map(|s| f64::from(s.read)).sum();
        self.read += read;
        let known: f64 = strata.iter().filter(|s| s.read > 0).map(|s| f64::from(s.count)).sum();
        for stratum in strata.iter().filter(|s| s.read > 0) {
            // In this order it is exactly 1 where all were read.
            let weight = (f64::from(stratum.count) * read) / (known * f64::from(stratum.read));
            for (sum, number) in self.doing.iter_mut().zip(stratum.doing) {
                *sum += f64::from(number) * weight;
            }
        }
    }
}

/// CPU of a component's threads between two counts.
#[derive(Debug, Default)]
struct Usage {
    /// The least time between two counts of a thread.
    least_s: f64,
    threads: u32,
    cpu_cores: f64,
    delay_cores: f64,
    is_delay_unknown: bool,
    /// Threads are missing that were there all the time.
    is_partial: bool,
    busiest: Option<Busiest>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Busiest {
    pid: u32,
    tid: u32,
    cores: f64,
}

impl Usage {
    fn add(&mut self, pid: u32, tid: u32, before: Counted, now: Counted) {
        let length = now.at.duration_since(before.at);
        // Counters only grow: a smaller one is of another thread with the same id.
        let Some(on_ns) = now.cpu.on_ns.checked_sub(before.cpu.on_ns) else { return };
        if length.is_zero() || length.as_secs_f64() < self.least_s {
            return;
        }
        let length_ns = length.as_nanos() as f64;
        let cores = on_ns as f64 / length_ns;
        self.threads += 1;
        self.cpu_cores += cores;
        match now.cpu.delay_ns.zip(before.cpu.delay_ns) {
            Some((now, before)) => self.delay_cores += now.saturating_sub(before) as f64 / length_ns,
            None => self.is_delay_unknown = true,
        }
        // The kernel counts in steps: a thread may show a little more than there was.
        let cores = cores.min(1.0);
        if on_ns > 0 && self.busiest.is_none_or(|busiest| cores > busiest.cores) {
            self.busiest = Some(Busiest { pid, tid, cores });
        }
    }
}

/// A component's line.
fn line(c: &Component, sums: &Sums, readings: f64, usage: &Usage, files: &mut TaskFiles) -> Threads {
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

/// How many files this process may have open.
fn open_files_allowed() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// CPU time of the calling thread.
#[derive(Debug)]
struct CpuClock {
    start_ns: u64,
}

impl CpuClock {
    fn start() -> CpuClock {
        CpuClock { start_ns: CpuClock::now_ns() }
    }

    fn spent_ns(&self) -> u64 {
        CpuClock::now_ns().saturating_sub(self.start_ns)
    }

    fn now_ns() -> u64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// Random numbers for drawing what is looked at (xorshift64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Spread over all bits, and not zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The high half is the better one, and the bias of a multiplication is below one in millions.
        (((self.0 >> 32) * end as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    const PLENTY_NS: u64 = 1_000_000_000;
    /// Far more readings than any wait takes.
    const READINGS_MAX: usize = 200_000;

    /// A process of its own, killed in the end.
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

    /// Takes lines of one reading each until one of the first component is as wanted.
    fn until(
        members: &[Members],
        budget_ns: u64,
        is_wanted: impl Fn(&Threads, &[String]) -> bool,
    ) -> (Vec<Threads>, Vec<String>) {
        let mut reader = ThreadReader::new();
        let mut last = (Vec::new(), Vec::new());
        for _ in 0..READINGS_MAX {
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
        // One component of two processes.
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
        // Nothing was read since, so there is nothing to say.
        assert_eq!(reader.take(1.0, &mut Vec::new()), []);
        // Who has left has no line.
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
        // No budget at all: a thread of each, a different one each time.
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
        let open = |reader: &ThreadReader| reader.components.iter().map(Component::open).collect::<Vec<_>>();
        assert_eq!(open(&reader), [2, 1]);
        let lines = reader.take(1.0, &mut Vec::new());
        assert_eq!((lines[0].read, lines[1].read), (5.0, 1.0));
        reader.read(&members[1..], PLENTY_NS);
        assert_eq!(open(&reader), [0, 1]);
    }

    #[test]
    fn each_kind_of_thread_has_its_weight() {
        let stratum = |count, read, running, poll| {
            let mut stratum = Stratum { count, read, ..Stratum::new(0) };
            stratum.doing[Doing::Running as usize] = running;
            stratum.doing[Doing::Poll as usize] = poll;
            stratum
        };
        let check = |strata: [Stratum; 2], read: f64, running: f64, poll: f64| {
            let mut sums = Sums::default();
            sums.add(&strata);
            let got = [sums.read, sums.doing[Doing::Running as usize], sums.doing[Doing::Poll as usize]];
            let near = got.iter().zip([read, running, poll]).all(|(got, want)| (got - want).abs() < 1e-9);
            assert!(near, "{got:?}, not {:?}", [read, running, poll]);
        };
        // All were read.
        check([stratum(4, 4, 3, 1), stratum(6, 6, 0, 6)], 10.0, 3.0, 7.0);
        // All 10 busy ones, and 10 of the 90 others: of a hundred 10 run, so of twenty 2.
        check([stratum(10, 10, 10, 0), stratum(90, 10, 0, 10)], 20.0, 2.0, 18.0);
        // Nothing is known of a kind that was not read.
        check([stratum(10, 5, 5, 0), stratum(90, 0, 0, 0)], 5.0, 5.0, 0.0);
        check([stratum(0, 0, 0, 0), stratum(0, 0, 0, 0)], 0.0, 0.0, 0.0);
    }

    #[test]
    fn usage_is_of_threads_that_were_there_all_the_time() {
        let start = Instant::now();
        let counted = |ms: u64, on_ms: u64, delay_ms: Option<u64>| Counted {
            at: start + Duration::from_millis(ms),
            cpu: CpuUse { on_ns: on_ms * 1_000_000, delay_ns: delay_ms.map(|ms| ms * 1_000_000) },
        };
        let mut usage = Usage { least_s: 0.5, ..Usage::default() };
        usage.add(1, 10, counted(0, 100, Some(0)), counted(1000, 350, Some(100)));
        usage.add(1, 11, counted(0, 0, Some(0)), counted(1000, 750, Some(50)));
        // Another thread with the same id, one that is too young, and one that did nothing.
        usage.add(1, 12, counted(0, 900, Some(0)), counted(1000, 5, Some(0)));
        usage.add(1, 13, counted(900, 0, Some(0)), counted(1000, 100, Some(0)));
        usage.add(1, 14, counted(0, 7, Some(0)), counted(1000, 7, Some(0)));
        assert_eq!((usage.threads, usage.cpu_cores), (3, 1.0));
        assert!((usage.delay_cores - 0.15).abs() < 1e-9, "{usage:?}");
        assert_eq!(usage.busiest, Some(Busiest { pid: 1, tid: 11, cores: 0.75 }));
        assert!(!usage.is_delay_unknown);
        usage.add(1, 15, counted(0, 0, None), counted(1000, 1010, None));
        assert!(usage.is_delay_unknown);
        assert_eq!(usage.busiest.map(|b| (b.tid, b.cores)), Some((15, 1.0)));
    }

    #[test]
    fn what_is_hidden_is_said() {
        let mut component = Component { name: "db".to_owned(), ..Component::default() };
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
        // Some threads stop to wait just when they are looked at.
        component = Component { name: "db".to_owned(), ..Component::default() };
        (component.sums.hidden, component.sums.by_function) = (3, 100);
        not_seen.clear();
        component.say_what_is_hidden(&mut not_seen);
        assert_eq!(not_seen, [""; 0]);
    }

    #[test]
    fn random_numbers_reach_all_below() {
        let mut random = Random::new(0);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[random.below(10)] += 1;
        }
        assert!(counts.iter().all(|n| (800..1200).contains(n)), "{counts:?}");
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }
}
