//! What threads do, and what they wait for.
//!
//! Looking at a thread costs a few microseconds, and a component may have thousands of them: each reading has a budget of
//! CPU time, of which every component has a share, and what does not fit is left to chance. CPU is counted once per line
//! for all threads, from what the readings left of their budgets.

use std::time::{Duration, Instant};

use loadlab_record::evidence::Threads;
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
    /// The call of a thread could not be looked at, and nothing else told.
    is_hidden: bool,
}

/// Sums over readings.
#[derive(Debug, Default)]
struct Sums {
    count: f64,
    read: f64,
    doing: [f64; Doing::COUNT],
}

#[derive(Debug)]
struct Process {
    pid: u32,
    threads: Vec<Thread>,
    /// When its threads were listed, and for how long that is good.
    listed: Option<(Instant, Duration)>,
    /// The last sweep counted the CPU of all its threads.
    is_swept: bool,
    may_trace: bool,
    program: Option<FileId>,
    runtime: Option<Runtime>,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    tid: u32,
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

impl ThreadReader {
    /// Has read nothing.
    pub fn new() -> ThreadReader {
        let seed = Instant::now();
        let tools = Tools {
            files: TaskFiles::new(),
            random: Random::new(u64::from(std::process::id()) ^ std::ptr::from_ref(&seed) as u64),
            reading: 0,
            cost_ns: 5_000,
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
        // Of new processes, so that their first line has figures, too.
        let until_ns = budget_ns.saturating_sub(clock.spent_ns());
        let sweep = CpuClock::start();
        for component in &mut self.components {
            component.sweep(
                &mut self.tools,
                |p| !p.is_swept && p.threads.iter().all(|t| t.counted.is_none()),
                || sweep.spent_ns() < until_ns,
            );
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
        // Somebody who is read at all is counted at all, whatever is left.
        let saved_ns = std::mem::take(&mut self.saved_ns).max(0) as u64;
        let mut by_size: Vec<&mut Component> = self.components.iter_mut().collect();
        by_size.sort_by_cached_key(|c| c.count());
        let clock = CpuClock::start();
        let mut used: Vec<(String, Usage)> = Vec::new();
        let number = by_size.len();
        for (i, component) in by_size.into_iter().enumerate() {
            let spent_ns = clock.spent_ns();
            let until_ns = spent_ns + saved_ns.saturating_sub(spent_ns) / (number - i) as u64;
            let mut usage = Usage { least_s: length_s / 2.0, ..Usage::default() };
            component.count_cpu(&mut self.tools, &mut usage, || clock.spent_ns() < until_ns);
            used.push((component.name.clone(), usage));
        }
        let mut lines = Vec::new();
        for component in &mut self.components {
            let usage =
                used.iter().position(|(name, _)| *name == component.name).map(|i| used.swap_remove(i).1);
            let sums = std::mem::take(&mut component.sums);
            component.say_what_is_hidden(usage.as_ref(), not_seen);
            if sums.count > 0.0 && readings > 0.0 {
                lines.push(line(component, &sums, readings, usage, &mut self.tools.files));
            }
        }
        self.components.retain(|c| c.is_present);
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

    /// Looks at some threads, in about this much CPU time, and at one at least.
    fn look(&mut self, tools: &mut Tools, share_ns: u64) {
        let (mut busy, mut others) = (std::mem::take(&mut tools.busy), std::mem::take(&mut tools.others));
        self.draw_up(tools.reading, &mut busy, &mut others);
        let mut strata = [Stratum::new(busy.len()), Stratum::new(others.len())];
        let clock = CpuClock::start();
        let (mut looked, mut spent_ns) = (0, 0);
        // Both kinds in turn while there are both, whoever comes first.
        let mut turn = tools.random.below(2);
        let mut until_clock = group(share_ns, tools.cost_ns);
        loop {
            let from = if turn == 0 { [&mut busy, &mut others] } else { [&mut others, &mut busy] };
            let [first, second] = from;
            let (spots, which) = if first.is_empty() { (second, 1 - turn) } else { (first, turn) };
            if spots.is_empty() {
                break;
            }
            let spot = spots.swap_remove(tools.random.below(spots.len()));
            self.look_at(spot, tools, &mut strata[which]);
            turn = 1 - turn;
            looked += 1;
            until_clock -= 1;
            if until_clock == 0 {
                spent_ns = clock.spent_ns();
                if spent_ns >= share_ns {
                    break;
                }
                until_clock = group(share_ns - spent_ns, tools.cost_ns);
            }
        }
        if looked >= 4 && spent_ns > 0 {
            tools.cost_ns = (tools.cost_ns * 7 + spent_ns / looked) / 8;
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

    fn look_at(&mut self, spot: Spot, tools: &mut Tools, stratum: &mut Stratum) {
        let process = &mut self.processes[spot.process as usize];
        let thread = &mut process.threads[spot.thread as usize];
        let doing = match wait::look(&mut tools.files, process.pid, thread.tid, process.may_trace) {
            Ok(Seen::Doing(doing)) => doing,
            Ok(Seen::WithoutCall(doing)) => {
                process.may_trace = false;
                self.is_hidden |= doing.is_none();
                doing.unwrap_or(Doing::Other)
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

    /// Counts the CPU of threads of some processes for the first time.
    fn sweep(&mut self, tools: &mut Tools, which: impl Fn(&Process) -> bool, may_go_on: impl Fn() -> bool) {
        for process in self.processes.iter_mut().filter(|p| p.listed.is_some() && which(p)) {
            if !may_go_on() {
                return;
            }
            process.count_cpu(tools, &mut Usage::default(), &may_go_on);
        }
    }

    /// Counts the CPU of its threads, those that ran lately first, while it may go on.
    fn count_cpu(&mut self, tools: &mut Tools, usage: &mut Usage, may_go_on: impl Fn() -> bool) {
        for process in &mut self.processes {
            process.count_cpu(tools, usage, &may_go_on);
        }
    }

    fn say_what_is_hidden(&mut self, usage: Option<&Usage>, not_seen: &mut Vec<String>) {
        let name = &self.name;
        if std::mem::take(&mut self.is_hidden) {
            not_seen.push(format!("what threads of {name} wait for: another user's process"));
        }
        if usage.is_some_and(|u| u.is_delay_unknown) {
            not_seen.push(format!("run delay of {name}: the kernel does not count it"));
        }
        if usage.is_some_and(|u| u.is_partial) {
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
            is_swept: false,
            may_trace: true,
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
        let mut known = self.threads.iter().peekable();
        for tid in &tools.tids {
            while known.next_if(|thread| thread.tid < *tid).is_some() {}
            let same = known.next_if(|thread| thread.tid == *tid).filter(|thread| !thread.is_gone);
            tools.merged.push(same.copied().unwrap_or_else(|| Thread::new(*tid)));
        }
        std::mem::swap(&mut self.threads, &mut tools.merged);
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

    /// Counts the CPU of its threads, those that ran lately first, while it may go on, and adds it to `usage`.
    fn count_cpu(&mut self, tools: &mut Tools, usage: &mut Usage, may_go_on: impl Fn() -> bool) {
        let was_swept = std::mem::replace(&mut self.is_swept, true);
        let mut counted = 0u64;
        for ran_lately in [true, false] {
            let threads = self.threads.iter_mut().filter(|t| !t.is_gone);
            for thread in threads.filter(|t| (t.ran_until >= tools.reading) == ran_lately) {
                counted += 1;
                if counted.is_multiple_of(GROUP_MAX) && !may_go_on() {
                    self.is_swept = false;
                    usage.is_partial = true;
                    return;
                }
                let Ok(cpu) = tools.files.cpu(self.pid, thread.tid) else { continue };
                let now = Counted { at: Instant::now(), cpu };
                if let Some(before) = thread.counted.replace(now) {
                    usage.add(self.pid, thread.tid, before, now);
                }
            }
        }
        usage.is_partial |= !was_swept;
    }
}

impl Thread {
    fn new(tid: u32) -> Thread {
        Thread { tid, is_gone: false, busy_until: 0, ran_until: 0, counted: None }
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
            let weight = f64::from(stratum.count) / known * read / f64::from(stratum.read);
            for (sum, number) in self.doing.iter_mut().zip(stratum.doing) {
                *sum += f64::from(number) * weight;
            }
        }
    }
}

/// CPU of a component's threads between two sweeps.
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
fn line(c: &Component, sums: &Sums, readings: f64, usage: Option<Usage>, files: &mut TaskFiles) -> Threads {
    let usage = usage.unwrap_or_default();
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

/// Random numbers for drawing threads (xorshift64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        // It must not be zero.
        Random(seed | 1)
    }

    /// Below `end`; 0 if that is 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The high half is the better one, and the bias of a multiplication is below one in millions.
        (((self.0 >> 32) * end as u64) >> 32) as usize
    }
}
