//! Asks the kernel for samples of what runs (`perf_event_open(2)`).
//!
//! Where it is allowed (root, `CAP_PERFMON`, or `kernel.perf_event_paranoid` below 1), one event per core samples
//! whatever runs on it, and samples of other processes are dropped on reading: processes that come and go are all seen,
//! and the number of events does not depend on the number of threads. Otherwise there is one event per core for each
//! thread of a component, inherited by the threads it creates.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use loadlab_record::text::cores::{MAX_OF_KERNEL, parse_cores};

use super::super::evidence::Members;
use super::ring::{Kind, Record, Ring};
use crate::process::task::TaskFiles;

/// Up to this `kernel.perf_event_paranoid` users may sample their own processes, without kernel functions.
const PARANOID: u32 = 2;
/// Maximum number of events if each thread needs its own: each is an open file.
const MOST_EVENTS: usize = 2_048;

/// Open events, and the cores' ring buffers.
pub(super) struct Events {
    rate_per_s: u32,
    has_kernel: bool,
    lost: u64,
    /// One ring buffer per online core.
    rings: BTreeMap<i32, Ring>,
    /// Per-thread events; `None`: whatever runs is sampled.
    threads: Option<Threads>,
}

/// Per-thread events, which write to the buffer of their core.
#[derive(Default)]
struct Threads {
    events: Vec<OwnedFd>,
    /// Threads that are sampled, directly or because they inherited an event.
    sampled: HashSet<u32>,
    processes: HashSet<u32>,
    is_enabled: bool,
    /// Why some threads are not sampled, by component.
    refused: BTreeMap<String, String>,
}

impl Events {
    /// Opens what the kernel allows; sampling has not started yet.
    ///
    /// # Errors
    /// The reason why nothing can be sampled, as a sentence.
    pub fn open(rate_per_s: u32, members: &[Members]) -> Result<Events, String> {
        let cores = online_cores();
        let mut rings = BTreeMap::new();
        let whole = cores.iter().try_for_each(|core| {
            let event = Attributes::new(Kind::Cpu, rate_per_s, true).open(None, *core)?;
            rings.insert(*core, Ring::of(event, Kind::Cpu)?);
            io::Result::Ok(())
        });
        let error = match whole {
            Ok(()) => {
                return Ok(Events { rate_per_s, has_kernel: true, lost: 0, rings, threads: None });
            }
            Err(error) => error,
        };
        if !matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) {
            return Err(refused(&error, PARANOID));
        }
        for has_kernel in [true, false] {
            let threads = Some(Threads::default());
            let mut events = Events { rate_per_s, has_kernel, lost: 0, rings: BTreeMap::new(), threads };
            events.follow(members);
            if !events.rings.is_empty() {
                return Ok(events);
            }
        }
        Err(refused(&error, PARANOID))
    }

    /// Whether kernel functions are sampled as well.
    pub fn has_kernel(&self) -> bool {
        self.has_kernel
    }

    /// Number of samples lost because a buffer was full.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What is not sampled, and why.
    pub fn not_seen(&self) -> Vec<String> {
        let refused = self.threads.iter().flat_map(|threads| &threads.refused);
        refused.map(|(component, why)| format!("threads of {component}: {why}")).collect()
    }

    /// Starts or stops sampling.
    pub fn enable(&mut self, is_enabled: bool) {
        if let Some(threads) = &mut self.threads {
            threads.is_enabled = is_enabled;
        }
        let of_threads = self.threads.iter().flat_map(|threads| &threads.events);
        for event in self.rings.values().map(Ring::event).chain(of_threads) {
            control(event, if is_enabled { ENABLE } else { DISABLE }, 0);
        }
    }

    /// Opens events for threads that are not sampled yet, if each needs its own.
    pub fn follow(&mut self, members: &[Members]) {
        let Some(mut threads) = self.threads.take() else { return };
        for one in members {
            for pid in &one.pids {
                if threads.processes.insert(*pid)
                    && let Err(error) = self.follow_process(&mut threads, *pid)
                {
                    threads.refused.entry(one.component.clone()).or_insert(error);
                }
            }
        }
        self.threads = Some(threads);
    }

    /// Opens events for every thread of a process; threads created meanwhile inherit their creator's events or are
    /// listed. A list that lacks threads, because others ended, is not repeated later: nothing reports a thread that
    /// inherits events while sampling is off, so one that was found then could be sampled twice.
    fn follow_process(&mut self, threads: &mut Threads, pid: u32) -> Result<(), String> {
        let mut tids = Vec::new();
        if TaskFiles::new().list(pid, &mut tids).is_err() {
            return Ok(());
        }
        for tid in tids {
            if !threads.sampled.insert(tid) {
                continue;
            }
            for core in online_cores() {
                if threads.events.len() >= MOST_EVENTS {
                    return Err(format!("there are more than {MOST_EVENTS} for all cores"));
                }
                match self.open_thread(tid, core) {
                    Ok(event) => {
                        if threads.is_enabled {
                            control(&event, ENABLE, 0);
                        }
                        threads.events.push(event);
                    }
                    // The thread has ended.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                    Err(error) => return Err(refused(&error, PARANOID)),
                }
            }
        }
        Ok(())
    }

    /// Opens a thread's event on a core. The first event of a core creates its buffer.
    fn open_thread(&mut self, tid: u32, core: i32) -> io::Result<OwnedFd> {
        let event = Attributes::new(Kind::Cpu, self.rate_per_s, self.has_kernel).open(Some(tid), core)?;
        share_ring(&mut self.rings, core, &event, Kind::Cpu)?;
        Ok(event)
    }

    /// Reads the records so far.
    pub fn fetch(&mut self, mut each: impl FnMut(Record<'_>)) {
        let Events { rings, threads, lost, .. } = self;
        // First pass, forks only: a process's fork may be in one core's buffer and its samples in another's.
        for ring in rings.values_mut() {
            ring.look(|record| {
                if let Record::Fork { .. } = record {
                    each(record);
                }
            });
        }
        for ring in rings.values_mut() {
            ring.read(|record| {
                match record {
                    Record::Lost(count) => *lost += count,
                    Record::Fork { pid, tid, parent } => {
                        if let Some(threads) = threads.as_mut().filter(|t| t.processes.contains(&parent)) {
                            threads.processes.insert(pid);
                            threads.sampled.insert(tid);
                        }
                    }
                    _ => {}
                }
                each(record);
            });
        }
    }
}

/// Makes an event of a thread write to the buffer of its core; the first event of a core creates that buffer.
///
/// # Errors
/// The kernel's limit on memory for such buffers, or the thread has ended.
pub(super) fn share_ring(
    rings: &mut BTreeMap<i32, Ring>,
    core: i32,
    event: &OwnedFd,
    kind: Kind,
) -> io::Result<()> {
    match rings.get(&core) {
        Some(ring) if control(event, SET_OUTPUT, ring.event().as_raw_fd().into()) => Ok(()),
        Some(_) => Err(io::Error::last_os_error()),
        None => {
            rings.insert(core, Ring::of(event.try_clone()?, kind)?);
            Ok(())
        }
    }
}

/// Why the kernel refuses to sample. With `kernel.perf_event_paranoid` up to `most` it would sample one's own
/// processes.
pub(super) fn refused(error: &io::Error, most: u32) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "the kernel does not allow samples (kernel.perf_event_paranoid is {}): root or CAP_PERFMON is needed, or {most} or \
                 less to sample your own processes",
                paranoid.trim()
            )
        }
        Some(libc::ENOSYS) => "this kernel, or a seccomp filter, has no perf events".to_owned(),
        _ => format!("the kernel takes no samples: {error}"),
    }
}

/// The online cores, from a list such as `0-3,5`.
pub(super) fn online_cores() -> Vec<i32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cores = parse_cores(&text, MAX_OF_KERNEL).unwrap_or_else(|| vec![0]);
    cores.into_iter().map(|core| core as i32).collect()
}

/// `ioctl(2)` requests for events (`linux/perf_event.h`).
pub(super) const ENABLE: u64 = 0x2400;
pub(super) const DISABLE: u64 = 0x2401;
const SET_OUTPUT: u64 = 0x2405;

/// Returns whether the request succeeded: an event whose thread has ended may be refused, and samples nothing anyway.
#[expect(unsafe_code, reason = "events have no other way in")]
pub(super) fn control(event: &OwnedFd, request: u64, value: i64) -> bool {
    // SAFETY: the requests take a number, and the descriptor is open.
    unsafe { libc::ioctl(event.as_raw_fd(), request as libc::Ioctl, value) == 0 }
}

/// The registers of the first three arguments of a system call (`asm/perf_regs.h`), as a bit mask.
#[cfg(target_arch = "x86_64")]
const ARGUMENTS: u64 = 1 << 3 | 1 << 4 | 1 << 5;
#[cfg(not(target_arch = "x86_64"))]
const ARGUMENTS: u64 = 0b111;

/// Any core: the event follows its thread.
pub(super) const ANY_CORE: i32 = -1;

/// `struct perf_event_attr`, in its Linux 4.8 size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    /// Samples per second, or events per sample.
    sample_rate: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config_1: u64,
    config_2: u64,
    branches: u64,
    registers_of_user: u64,
    stack_of_user: u32,
    clock: i32,
    registers: u64,
    aux_watermark: u32,
    most_frames: u16,
    reserved: u16,
}

impl Attributes {
    /// `rate`: for CPU time, samples per second; for waits, how many switches a sample stands for.
    pub fn new(kind: Kind, rate: u32, has_kernel: bool) -> Attributes {
        const SOFTWARE: u32 = 1;
        const PROCESS_AND_THREAD: u64 = 1 << 1;
        const TIME: u64 = 1 << 2;
        const CALL_CHAIN: u64 = 1 << 5;
        const PERIOD: u64 = 1 << 8;
        const REGISTERS_OF_USER: u64 = 1 << 12;
        const DISABLED: u64 = 1;
        const INHERIT: u64 = 1 << 1;
        const EXCLUDE_KERNEL: u64 = 1 << 5;
        const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
        const EXCLUDE_IDLE: u64 = 1 << 7;
        const FREQUENCY: u64 = 1 << 10;
        /// Emit records of threads and processes that are created.
        const TASKS: u64 = 1 << 13;
        /// All records carry their thread and time.
        const SAMPLE_ID_ALL: u64 = 1 << 18;
        const USE_CLOCK: u64 = 1 << 25;
        /// Emit records of threads that leave or enter a core.
        const SWITCHES: u64 = 1 << 26;
        let kernel = if has_kernel { 0 } else { EXCLUDE_KERNEL };
        let common = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            sample_rate: rate.into(),
            flags: DISABLED | EXCLUDE_HYPERVISOR | EXCLUDE_IDLE | kernel,
            ..Attributes::default()
        };
        match kind {
            // A per-core clock that runs while something runs on the core.
            Kind::Cpu => Attributes {
                config: 0,
                sample_type: PROCESS_AND_THREAD | CALL_CHAIN,
                flags: common.flags | INHERIT | FREQUENCY | TASKS,
                ..common
            },
            // A sample when a thread leaves its core, or for one in every `rate` times.
            Kind::Wait => Attributes {
                config: 3,
                sample_type: PROCESS_AND_THREAD | TIME | CALL_CHAIN | PERIOD | REGISTERS_OF_USER,
                registers_of_user: ARGUMENTS,
                flags: common.flags | SAMPLE_ID_ALL | USE_CLOCK | SWITCHES,
                clock: libc::CLOCK_MONOTONIC,
                ..common
            },
        }
    }

    /// Opens an event for a thread (0: this one), or for whatever runs, on a core.
    #[expect(unsafe_code, reason = "the system call has no wrapper")]
    pub fn open(&self, tid: Option<u32>, core: i32) -> io::Result<OwnedFd> {
        const CLOSE_ON_EXEC: u64 = 1 << 3;
        const NO_GROUP: i32 = -1;
        let tid = tid.map_or(-1, |tid| tid as i32);
        // SAFETY: the kernel reads as many bytes as the struct says it has, and returns a descriptor.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                std::ptr::from_ref(self),
                tid,
                core,
                NO_GROUP,
                CLOSE_ON_EXEC,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: a descriptor that was just opened and is owned by nothing else.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_are_as_long_as_the_kernels() {
        assert_eq!(size_of::<Attributes>(), 112);
    }
}
