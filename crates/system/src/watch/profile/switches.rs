//! Asks the kernel for samples of threads that leave their cores, and for records of their return.
//!
//! A busy service makes hundreds of thousands of switches a second; sampling them all would cost more than it shows. So
//! in each second only some threads, drawn at random, are sampled and stand for all: as many as keep the number of
//! samples, and of events (which are open files), within a budget. Every switch of a drawn thread is sampled: the
//! kernel's adaptive rate follows bursts of short waits, and then weighs the long wait after them as if it were many.
//! Only if a single thread is too much, one in N of its switches is sampled.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use super::super::evidence::Members;
use super::super::evidence::random::Random;
use super::events::{ANY_CORE, Attributes, DISABLE, ENABLE, control, online_cores, refused, share_ring};
use super::ring::{Kind, Record, Ring};
use crate::process::task::TaskFiles;

/// As in `events.rs`; a thread that leaves its core is in the kernel, so kernel functions must be permitted.
const PARANOID: u32 = 1;
/// Budget of samples per second, for each core and each unit of the plan's rate: a sample takes a microsecond or two.
const SAMPLES_OF_RATE: u32 = 10;
/// Threads sampled in the first second.
const FIRST_THREADS: f64 = 2.0;
/// Maximum number of events: one for each sampled thread and core.
const MOST_EVENTS: usize = 1_024;
/// Events of the threads sampled in a second.
pub(super) struct Switches {
    random: Random,
    /// Budget of samples per second.
    enough: f64,
    /// Number of threads that keeps within the budget; below 1, the share of one thread's switches.
    few: f64,
    rings: BTreeMap<i32, Ring>,
    events: Vec<OwnedFd>,
    /// Threads sampled in this second, the number of their switches per sample, and the samples so far.
    sampled: usize,
    period: u32,
    samples: u64,
    lost: u64,
    /// Why threads are not sampled, by component.
    refused: BTreeMap<String, String>,
}

impl Switches {
    /// Checks whether the kernel allows sampling.
    ///
    /// # Errors
    /// The reason why not, as a sentence.
    pub fn open(rate_per_s: u32, random: Random) -> Result<Switches, String> {
        // A thread that leaves its core is in the kernel: without permission to see that, there is nothing to sample.
        const THIS_THREAD: u32 = 0;
        let tried = Attributes::new(Kind::Wait, 1, true).open(Some(THIS_THREAD), ANY_CORE);
        tried.map_err(|error| refused(&error, PARANOID))?;
        Ok(Switches {
            random,
            enough: (rate_per_s * SAMPLES_OF_RATE) as f64 * online_cores().len() as f64,
            few: FIRST_THREADS,
            rings: BTreeMap::new(),
            events: Vec::new(),
            sampled: 0,
            period: 1,
            samples: 0,
            lost: 0,
            refused: BTreeMap::new(),
        })
    }

    /// Starts sampling threads drawn at random. Returns how many threads each of them stands for.
    pub fn begin(&mut self, members: &[Members]) -> f64 {
        let mut threads: Vec<(u32, &str)> = Vec::new();
        let (mut files, mut tids) = (TaskFiles::new(), Vec::new());
        for one in members {
            let begin = threads.len();
            for pid in &one.pids {
                tids.clear();
                // A list that lacks some threads is still good enough to draw from; the next second has another.
                if files.list(*pid, &mut tids).is_ok() {
                    threads.extend(tids.iter().map(|tid| (*tid, one.component.as_str())));
                }
            }
            for place in (begin + 1..threads.len()).rev() {
                threads.swap(place, begin + self.random.below(place + 1 - begin));
            }
        }
        let all = threads.len();
        let cores = online_cores();
        let most = (self.few as usize).min(MOST_EVENTS / cores.len()).max(1);
        // Evenly along the list, so that each component has its share.
        if all > most {
            let step = all as f64 / most as f64;
            let first = self.random.below(1 << 16) as f64 / f64::from(1 << 16) * step;
            let drawn = (0..most).filter_map(|n| threads.get((first + n as f64 * step) as usize).copied());
            threads = drawn.collect();
        }
        // Not a constant period, which a pattern of switches may be in step with.
        let least = (1.0 / self.few).max(1.0) as u32;
        self.period = least + self.random.below(least as usize) as u32;
        let attributes = Attributes::new(Kind::Wait, self.period, true);
        (self.sampled, self.samples) = (0, 0);
        for (tid, component) in threads {
            match self.sample(&attributes, tid, &cores) {
                Ok(()) => self.sampled += 1,
                // The thread has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => {
                    self.refused.entry(component.to_owned()).or_insert_with(|| refused(&error, PARANOID));
                }
            }
        }
        self.control_all(ENABLE);
        all as f64 / self.sampled.max(1) as f64
    }

    fn sample(&mut self, attributes: &Attributes, tid: u32, cores: &[i32]) -> io::Result<()> {
        for core in cores {
            let event = attributes.open(Some(tid), *core)?;
            share_ring(&mut self.rings, *core, &event, Kind::Wait)?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Stops sampling.
    pub fn end(&mut self) {
        self.control_all(DISABLE);
    }

    fn control_all(&self, request: u64) {
        for event in &self.events {
            // An event whose thread has ended may be refused, and samples nothing anyway.
            let _ = control(event, request, 0);
        }
    }

    /// Reads the records so far.
    pub fn fetch(&mut self, mut each: impl FnMut(Record<'_>)) {
        for ring in self.rings.values_mut() {
            ring.read(|record| {
                match record {
                    Record::Lost(count) => {
                        self.lost += count;
                        self.samples += count;
                    }
                    Record::Leave { .. } => self.samples += 1,
                    _ => {}
                }
                each(record);
            });
        }
    }

    /// Whether there are so many samples in this second that it must end early.
    pub fn has_too_many(&self) -> bool {
        self.samples as f64 > 2.0 * self.enough
    }

    /// Closes the second's events, once the last records were read, and sets the number of threads for the next second.
    pub fn close(&mut self) {
        self.events.clear();
        self.rings.clear();
        let sampled = self.sampled.max(1) as f64 / f64::from(self.period);
        // A second in which little happened is a poor predictor of the next.
        let few = (sampled * self.enough / self.samples.max(1) as f64).min(self.few * 4.0);
        self.few = few.clamp(1e-4, MOST_EVENTS as f64);
    }

    /// Number of records lost because a buffer was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What is not sampled, and why.
    pub fn not_seen(&self) -> Vec<String> {
        self.refused.iter().map(|(component, why)| format!("waits of {component}: {why}")).collect()
    }
}
