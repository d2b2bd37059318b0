//! Profiles: stacks of components' threads while they run, and when they begin to wait, sampled by the kernel
//! (`perf_event_open(2)`, software events, which virtual machines and containers have, too).
//!
//! Sampling costs something, so it is on in one second of every two, drawn at random: the other seconds show its cost
//! within the same trial. `events.rs` asks the kernel for samples of what runs, `switches.rs` of what begins to wait;
//! `ring.rs` reads them, `waits.rs` turns them into waits, `stacks.rs` counts them, and `names.rs` turns addresses into
//! functions, once the load is over and while the processes still exist.

mod events;
mod names;
mod ring;
mod stacks;
mod switches;
mod waits;

use std::thread::JoinHandle;

use loadlab_record::text::time::SECOND_NS;
use loadlab_record::watch::names::{GENERATOR, HOST};
use loadlab_record::watch::profile::{Profile, TimeSpan};

use self::events::Events;
use self::ring::Record;
use self::stacks::{Reason, Stacks};
use self::switches::Switches;
use self::waits::ThreadWaits;
use super::evidence::Members;
use super::evidence::random::Random;
use super::evidence::threads::clock::CpuClock;
use super::spread;
use crate::cancel::Cancel;
use crate::clock::{self, TrialClock};
use crate::error::{Error, Result};
use crate::process::background;

/// What to sample.
#[derive(Clone, Debug, Default)]
pub struct ProfileSpec {
    /// Names of the components to sample; empty means all.
    pub components: Vec<String>,
    /// Samples per second on each core.
    pub rate_per_s: u32,
    /// Whether to sample where threads spend CPU time.
    pub on_cpu: bool,
    /// Whether to sample where threads wait.
    pub on_wait: bool,
}

/// The samples taken, by address.
#[derive(Debug, Default)]
pub struct Samples {
    spec: ProfileSpec,
    cpu: Stacks,
    waits: Stacks,
    waits_ns: u64,
    windows: Vec<TimeSpan>,
    lost: u64,
    has_kernel: bool,
    not_seen: Vec<String>,
    cpu_ns: u64,
}

impl Samples {
    fn nothing(why: String) -> Samples {
        Samples { not_seen: vec![why], ..Samples::default() }
    }

    /// Every process seen, with its component.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let mut all = self.cpu.processes();
        all.extend(self.waits.processes());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Resolves addresses to function names, which takes a while: the load must be over and its work done, and the
    /// processes must still exist.
    pub fn named(self) -> Profile {
        let cpu = CpuClock::start();
        let mut not_seen = self.not_seen;
        let components = self.cpu.named(&self.spec.components, &mut not_seen);
        let waits = self.waits.named(&self.spec.components, &mut not_seen);
        Profile {
            rate_per_s: self.spec.rate_per_s,
            windows: self.windows,
            lost: self.lost,
            cpu_s: (self.cpu_ns + cpu.spent_ns()) as f64 / 1e9,
            has_kernel: self.has_kernel,
            components,
            waits,
            waits_s: self.waits_ns as f64 / 1e9,
            not_seen,
        }
    }
}

/// Interval at which samples are fetched from the kernel and processes are looked up.
const FETCH_NS: u64 = 100_000_000;

/// Takes samples until it is stopped or dropped.
pub struct Profiler {
    stop: Cancel,
    thread: Option<JoinHandle<Samples>>,
}

impl std::fmt::Debug for Profiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiler").finish_non_exhaustive()
    }
}

impl Profiler {
    /// Starts sampling the processes that `members` lists. The profile reports what the kernel does not allow.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(
        spec: ProfileSpec,
        clock: TrialClock,
        members: impl Fn() -> Vec<Members> + Send + 'static,
    ) -> Result<Profiler> {
        let stop = Cancel::new();
        let stopped = stop.clone();
        let body = move || {
            background::enter();
            Sampling::new(spec, clock).run(&members, &stopped)
        };
        let thread = std::thread::Builder::new().name("loadlab-profile".into()).spawn(body);
        let thread = thread.map_err(|source| Error::Os { doing: "start a thread", source })?;
        Ok(Profiler { stop, thread: Some(thread) })
    }

    /// Stops sampling. Returns at once: what follows the load must not wait.
    pub fn stop(mut self) -> Samples {
        self.stop.cancel();
        let ended = self.thread.take().and_then(|thread| thread.join().ok());
        ended.unwrap_or_else(|| Samples::nothing("everything: the thread that takes samples failed".into()))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A kind of sample: where it comes from and where it goes.
enum Source {
    Cpu(Box<(Events, Stacks)>),
    Wait(Box<(Switches, ThreadWaits)>),
}

impl Source {
    fn begin(&mut self, members: &[Members]) {
        match self {
            Source::Cpu(of) => of.0.enable(true),
            Source::Wait(of) => {
                let each = of.0.begin(members);
                of.1.begin(each, clock::now_ns());
            }
        }
    }

    fn end(&mut self) {
        match self {
            Source::Cpu(of) => of.0.enable(false),
            Source::Wait(of) => of.0.end(),
        }
    }

    /// Fetches the samples taken so far; `is_over` marks the last fetch of a second, after sampling has been switched
    /// off.
    fn fetch(&mut self, members: &[Members], is_over: bool) {
        match self {
            Source::Cpu(of) => {
                let (events, stacks) = &mut **of;
                stacks.set_members(members);
                events.follow(members);
                events.fetch(|record| match record {
                    Record::Sample { pid, chain } => stacks.add(pid, chain.iter(), Reason::Ran, 1),
                    Record::Fork { pid, parent, .. } => stacks.forked(pid, parent),
                    _ => {}
                });
            }
            Source::Wait(of) => {
                let (switches, waits) = &mut **of;
                waits.stacks().set_members(members);
                // Records from now on are in some buffers already, and not yet in others.
                let now_ns = clock::now_ns();
                switches.fetch(|record| waits.add(record));
                waits.handle(now_ns);
                if is_over || switches.has_too_many() {
                    switches.end();
                    waits.end(now_ns);
                }
                if is_over {
                    switches.close();
                }
            }
        }
    }
}

/// State of the sampling thread.
struct Sampling {
    spec: ProfileSpec,
    clock: TrialClock,
    random: Random,
    windows: Vec<TimeSpan>,
    cpu: CpuClock,
}

impl Sampling {
    fn new(spec: ProfileSpec, clock: TrialClock) -> Sampling {
        let random = Random::new(clock.origin_ns);
        Sampling { spec, clock, random, windows: Vec::new(), cpu: CpuClock::start() }
    }

    fn run(mut self, members: &dyn Fn() -> Vec<Members>, stop: &Cancel) -> Samples {
        let wanted = self.wanted(members());
        let mut not_seen = Vec::new();
        let mut sources = Vec::new();
        let rate_per_s = self.spec.rate_per_s;
        if self.spec.on_cpu {
            match Events::open(rate_per_s, &wanted) {
                Ok(events) => sources.push(Source::Cpu(Box::new((events, Stacks::default())))),
                Err(why) => not_seen.push(why),
            }
        }
        if self.spec.on_wait {
            match Switches::open(rate_per_s, Random::new(self.clock.origin_ns ^ 1)) {
                Ok(switches) => sources.push(Source::Wait(Box::new((switches, ThreadWaits::default())))),
                Err(why) => not_seen.push(format!("waits: {why}")),
            }
        }
        for pair in 0u64.. {
            let second = 2 * pair + self.random.below(2) as u64;
            let from_ns = self.clock.origin_ns + second * SECOND_NS;
            if sources.is_empty() || stop.wait_until(from_ns) {
                break;
            }
            if self.window(&mut sources, from_ns, members, stop) {
                break;
            }
        }
        self.samples(sources, not_seen)
    }

    /// The processes of the components to sample, never those of loadlab or of the machine.
    fn wanted(&self, mut members: Vec<Members>) -> Vec<Members> {
        let is_ours = |name: &str| matches!(name, GENERATOR | HOST);
        let names = &self.spec.components;
        members
            .retain(|one| !is_ours(&one.component) && (names.is_empty() || names.contains(&one.component)));
        members
    }

    /// Samples for one second. Returns whether sampling was stopped.
    fn window(
        &mut self,
        sources: &mut [Source],
        from_ns: u64,
        members: &dyn Fn() -> Vec<Members>,
        stop: &Cancel,
    ) -> bool {
        let end_ns = from_ns + SECOND_NS;
        if clock::now_ns() >= end_ns {
            return false;
        }
        let wanted = self.wanted(members());
        sources.iter_mut().for_each(|source| source.begin(&wanted));
        let began_ns = clock::now_ns();
        let is_stopped = loop {
            let next_ns = spread::off_line(self.clock, clock::now_ns() + FETCH_NS).min(end_ns);
            let is_stopped = stop.wait_until(next_ns);
            let is_over = is_stopped || clock::now_ns() >= end_ns;
            if is_over {
                sources.iter_mut().for_each(Source::end);
            }
            let wanted = self.wanted(members());
            sources.iter_mut().for_each(|source| source.fetch(&wanted, is_over));
            if is_over {
                break is_stopped;
            }
        };
        let at_s = |ns| self.clock.at_s(ns);
        // The end of the load may have cut the second short: record only the part that was sampled.
        self.windows.push(TimeSpan { from_s: at_s(began_ns), to_s: at_s(clock::now_ns().min(end_ns)) });
        is_stopped
    }

    fn samples(self, sources: Vec<Source>, mut not_seen: Vec<String>) -> Samples {
        let (mut cpu, mut waits) = (Stacks::default(), Stacks::default());
        let (mut lost, mut has_kernel, mut waits_ns) = (0, true, 0);
        for source in sources {
            match source {
                Source::Cpu(of) => {
                    lost += of.0.lost();
                    has_kernel = of.0.has_kernel();
                    not_seen.extend(of.0.not_seen());
                    cpu = of.1;
                }
                Source::Wait(of) => {
                    lost += of.0.lost();
                    not_seen.extend(of.0.not_seen());
                    (waits, waits_ns) = of.1.into_stacks();
                }
            }
        }
        let (spec, windows, cpu_ns) = (self.spec, self.windows, self.cpu.spent_ns());
        Samples { spec, cpu, waits, waits_ns, windows, lost, has_kernel, not_seen, cpu_ns }
    }
}
