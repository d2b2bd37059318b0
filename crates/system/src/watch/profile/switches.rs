//! Asks the kernel for samples of threads that leave their cores, and for records of when they return.
//!
//! A busy service makes hundreds of thousands of switches a second: to sample them all would cost more than it shows. So in
//! each second only some threads are sampled, drawn at random, and count for all: as many as keep the number of samples
//! within a budget, and that of events, which are open files. Of a drawn thread every switch is sampled: the kernel's own
//! adaptive rate follows bursts of short waits, and then weighs the long one after them as if it were many. Only where one
//! thread is too much, one in so many of its switches is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use super::super::evidence::Members;
use super::super::evidence::random::Random;
use super::events::{ANY_CORE, Attributes, DISABLE, ENABLE, control, online_cores, refused, share_ring};
use super::ring::{Kind, Record, Ring};

/// As in `events.rs`; a thread that leaves its core is in the kernel, which it must show.
const PARANOID: u32 = 1;
/// Samples in a second, for each core and each of the plan's rate: a microsecond or two each.
const SAMPLES_OF_RATE: u32 = 10;
/// Threads that are sampled in the first second.
const FIRST_THREADS: f64 = 2.0;
/// The largest number of events: one for each sampled thread and core.
const MOST_EVENTS: usize = 1_024;
/// Events of threads that are sampled, for a second.
pub(super) struct Switches {
    random: Random,
    /// Samples in a second that are enough.
    enough: f64,
    /// How many threads are few enough; below 1, which part of one.
    few: f64,
    rings: BTreeMap<i32, Ring>,
    events: Vec<OwnedFd>,
    /// Threads that are sampled in this second, one in so many of their switches, and the samples so far.
    sampled: usize,
    period: u32,
    samples: u64,
    lost: u64,
    /// Why threads are not sampled, by component.
    refused: BTreeMap<String, String>,
}

impl Switches {
    /// Asks whether the kernel allows it.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn open(rate_per_s: u32, random: Random) -> Result<Switches, String> {
        // A thread that leaves its core is in the kernel: without the right to see that, there is nothing to sample.
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

    /// Begins to sample threads that it draws. Returns how many each of them stands for.
    pub fn begin(&mut self, members: &[Members]) -> f64 {
        let mut threads: Vec<(u32, &str)> = Vec::new();
        for one in members {
            let begin = threads.len();
            for pid in &one.pids {
                let listed = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
                let tids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
                threads.extend(tids.map(|tid| (tid, one.component.as_str())));
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
        // Not a constant one, which a pattern of switches may be in step with.
        let least = (1.0 / self.few).max(1.0) as u32;
        self.period = least + self.random.below(least as usize) as u32;
        let attributes = Attributes::new(Kind::Wait, self.period, true);
        (self.sampled, self.samples) = (0, 0);
        for (tid, component) in threads {
            match self.sample(&attributes, tid, &cores) {
                Ok(()) => self.sampled += 1,
                // It has ended.
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

    /// Takes no more samples.
    pub fn end(&mut self) {
        self.control_all(DISABLE);
    }

    fn control_all(&self, request: u64) {
        for event in &self.events {
            // One whose thread has ended may be refused, and samples nothing anyway.
            let _ = control(event, request, 0);
        }
    }

    /// Reads what there is.
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

    /// There are so many samples in this second that it must end early.
    pub fn has_too_many(&self) -> bool {
        self.samples as f64 > 2.0 * self.enough
    }

    /// The last of a second was read: its events are closed, and the next second has as many as fit.
    pub fn close(&mut self) {
        self.events.clear();
        self.rings.clear();
        let sampled = self.sampled.max(1) as f64 / f64::from(self.period);
        // A second in which little happened is a poor predictor of the next.
        let few = (sampled * self.enough / self.samples.max(1) as f64).min(self.few * 4.0);
        self.few = few.clamp(1e-4, MOST_EVENTS as f64);
    }

    /// Records for which there was no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What is not sampled, and why.
    pub fn not_seen(&self) -> Vec<String> {
        self.refused.iter().map(|(component, why)| format!("waits of {component}: {why}")).collect()
    }
}
