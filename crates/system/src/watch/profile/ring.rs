//! The kernel's ring buffer of samples of one core, mapped, and its records.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Size of a buffer without its first page: a power of two of pages, whether a page has 4, 16 or 64 KiB. A sample with
/// the longest stack has about a kilobyte.
const DATA: usize = 256 << 10;
/// Offsets in the first page (`struct perf_event_mmap_page`): how far the kernel has written, and how far we have read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// The longest record: its size field has 16 bits.
const MAX_RECORD_BYTES: usize = 1 << 16;

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Threads that run.
    Cpu,
    /// Threads that begin to wait.
    Wait,
}

/// The ring buffer of one core.
#[derive(Debug)]
pub(super) struct Ring {
    at: *mut u8,
    /// The machine's page size, which is the length of the first page.
    page: usize,
    kind: Kind,
    // Kept open: the kernel writes to the buffer for as long as this is.
    event: OwnedFd,
    record: Vec<u8>,
}

/// A record of interest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A thread was on a core.
    Sample {
        /// Its process.
        pid: u32,
        /// Addresses as the kernel gives them, innermost first, interspersed with its context marks.
        chain: Chain<'a>,
    },
    /// A sampled thread leaves its core.
    Leave {
        /// The thread, and its process.
        pid: u32,
        tid: u32,
        /// Nanoseconds on the monotonic clock.
        at_ns: u64,
        /// How many such switches this one stands for.
        period: u64,
        /// The first three arguments of the system call it is in.
        arguments: [u64; 3],
        /// As in `Sample`.
        chain: Chain<'a>,
    },
    /// A thread left its core although it could run on: it does not wait.
    Preempted { tid: u32, at_ns: u64 },
    /// A thread is back on a core.
    Return { tid: u32, at_ns: u64 },
    /// This many records did not fit.
    Lost(u64),
    /// A thread or process was created.
    Fork {
        /// Its process: the new one, or the creator's for a new thread.
        pid: u32,
        /// The new thread, or the new process's first.
        tid: u32,
        /// The process that created it.
        parent: u32,
    },
}

/// A recorded stack, 8 bytes per entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain<'a>(&'a [u8]);

impl Chain<'_> {
    /// Its addresses and context marks.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
    }
}

// SAFETY: the mapping is this value's alone.
#[expect(unsafe_code, reason = "a mapping that its owner takes along")]
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the buffer of an event that has none yet.
    ///
    /// # Errors
    /// The kernel's limit on memory for such buffers (`kernel.perf_event_mlock_kb`).
    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    pub fn of(event: OwnedFd, kind: Kind) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), page + DATA, access, MapFlags::SHARED, event.as_fd(), 0)
        }?;
        Ok(Ring { at: at.cast(), page, kind, event, record: Vec::new() })
    }

    /// The event the buffer belongs to.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }

    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and changed as a whole by either side.
        unsafe { AtomicU64::from_ptr(self.at.add(offset).cast()) }
    }

    /// Passes on the records the kernel has written, and frees their space.
    pub fn read(&mut self, each: impl FnMut(Record<'_>)) {
        let tail = self.walk(each);
        self.position(TAIL).store(tail, Ordering::Release);
    }

    /// Passes on the records the kernel has written, but keeps them for [`Ring::read`].
    pub fn look(&mut self, each: impl FnMut(Record<'_>)) {
        self.walk(each);
    }

    fn walk(&mut self, mut each: impl FnMut(Record<'_>)) -> u64 {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut tail = self.position(TAIL).load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        while tail < head {
            let mut start = [0; 8];
            self.copy(tail, &mut start);
            let size = usize::from(u16::from_ne_bytes([start[6], start[7]]));
            // The kernel never writes a record shorter than its header, nor longer than what `head` announces.
            if size < 8 || size as u64 > head - tail || size > MAX_RECORD_BYTES {
                tail = head;
                break;
            }
            record.resize(size, 0);
            self.copy(tail, &mut record);
            if let Some(record) = Record::of(&record, self.kind) {
                each(record);
            }
            tail += size as u64;
        }
        self.record = record;
        tail
    }

    /// Copies bytes from a position, which may wrap around.
    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    fn copy(&self, from: u64, to: &mut [u8]) {
        let at = (from % DATA as u64) as usize;
        let before_end = to.len().min(DATA - at);
        let (first, second) = to.split_at_mut(before_end);
        // SAFETY: both parts lie within the buffer, whose bytes the kernel leaves alone until they are given back.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.add(self.page + at), first.as_mut_ptr(), first.len());
            std::ptr::copy_nonoverlapping(self.at.add(self.page), second.as_mut_ptr(), second.len());
        }
    }
}

impl Drop for Ring {
    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing of it outlives it.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.page + DATA) };
    }
}

impl<'a> Record<'a> {
    /// Parses a record (`struct perf_event_header` and what follows); `None` if it is of no interest or malformed.
    fn of(bytes: &'a [u8], kind: Kind) -> Option<Record<'a>> {
        const LOST: u32 = 2;
        const FORK: u32 = 7;
        const SAMPLE: u32 = 9;
        const SWITCH: u32 = 14;
        /// Bits of a switch record: the thread leaves its core; it could have run on.
        const OUT: u16 = 1 << 13;
        const PREEMPTED: u16 = 1 << 14;
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        // A length and that many addresses; returns them, and where they end.
        let chain = |at: usize| {
            let length = usize::try_from(long(at)?).ok()?.checked_mul(8)?;
            let end = length.checked_add(at + 8)?;
            Some((Chain(bytes.get(at + 8..end)?), end))
        };
        match word(0)? {
            // pid, tid; addresses
            SAMPLE if kind == Kind::Cpu => Some(Record::Sample { pid: word(8)?, chain: chain(16)?.0 }),
            // pid, tid; time; period; addresses; ABI of the registers (0: none), their values
            SAMPLE => {
                let (chain, end) = chain(32)?;
                let register = |place: usize| long(end + 8 + 8 * place).unwrap_or(u64::MAX);
                let arguments =
                    if long(end)? == 0 { [u64::MAX; 3] } else { in_order([0, 1, 2].map(register)) };
                let (pid, tid, at_ns, period) = (word(8)?, word(12)?, long(16)?, long(24)?);
                Some(Record::Leave { pid, tid, at_ns, period, arguments, chain })
            }
            // pid, tid; time
            SWITCH => {
                let (tid, at_ns) = (word(12)?, long(16)?);
                match u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?) {
                    bits if bits & OUT == 0 => Some(Record::Return { tid, at_ns }),
                    bits if bits & PREEMPTED != 0 => Some(Record::Preempted { tid, at_ns }),
                    _ => None,
                }
            }
            // id, number of lost records
            LOST => Some(Record::Lost(long(16)?)),
            // pid, parent's pid, tid, parent's tid
            FORK => Some(Record::Fork { pid: word(8)?, parent: word(12)?, tid: word(16)? }),
            _ => None,
        }
    }
}

/// Sorts registers by argument: x86 numbers the third argument's register first, then the second's, then the first's.
fn in_order(mut registers: [u64; 3]) -> [u64; 3] {
    if cfg!(target_arch = "x86_64") {
        registers.reverse();
    }
    registers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0, 0, 0]);
        words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn records_are_read() {
        let of = |bytes: &'static [u8]| Record::of(bytes, Kind::Cpu);
        let leak = |bytes: Vec<u8>| -> &'static [u8] { bytes.leak() };
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let sample = leak(record(9, &[both(7, 8), 2, 0x10, 0x20]));
        let Some(Record::Sample { pid: 7, chain }) = of(sample) else { panic!("{sample:?}") };
        assert_eq!(chain.iter().collect::<Vec<_>>(), [0x10, 0x20]);
        assert_eq!(of(leak(record(2, &[1, 5]))), Some(Record::Lost(5)));
        let fork = leak(record(7, &[both(9, 7), both(10, 8), 0]));
        assert_eq!(of(fork), Some(Record::Fork { pid: 9, parent: 7, tid: 10 }));
        // More addresses than the record holds, and a record of another kind.
        assert_eq!(of(leak(record(9, &[0, 3, 0x10]))), None);
        assert_eq!(of(leak(record(3, &[0, 0]))), None);
    }

    #[test]
    fn records_of_threads_that_leave_their_cores_are_read() {
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let with = |bits: u16, mut bytes: Vec<u8>| {
            bytes[4..6].copy_from_slice(&bits.to_ne_bytes());
            bytes
        };
        let registers = in_order([3, 0x80, 2]);
        let leave = record(9, &[both(7, 8), 99, 4, 1, 0x10, 2, registers[0], registers[1], registers[2]]);
        let Some(Record::Leave { pid: 7, tid: 8, at_ns: 99, period: 4, arguments, chain }) =
            Record::of(&leave, Kind::Wait)
        else {
            panic!("{leave:?}")
        };
        assert_eq!((arguments, chain.iter().collect::<Vec<_>>()), ([3, 0x80, 2], vec![0x10]));
        // A kernel thread has no user registers.
        let of_kernel = record(9, &[both(7, 8), 99, 4, 1, 0x10, 0]);
        let Some(Record::Leave { arguments, .. }) = Record::of(&of_kernel, Kind::Wait) else { panic!() };
        assert_eq!(arguments, [u64::MAX; 3]);
        let switch = |bits| with(bits, record(14, &[both(7, 8), 99]));
        assert_eq!(Record::of(&switch(0), Kind::Wait), Some(Record::Return { tid: 8, at_ns: 99 }));
        assert_eq!(Record::of(&switch(3 << 13), Kind::Wait), Some(Record::Preempted { tid: 8, at_ns: 99 }));
        assert_eq!(Record::of(&switch(1 << 13), Kind::Wait), None);
    }

    proptest! {
        #[test]
        fn no_record_is_too_odd(kind in 0u32..16, words in proptest::collection::vec(any::<u64>(), 0..12)) {
            for of in [Kind::Cpu, Kind::Wait] {
                let record = record(kind, &words);
                if let Some(Record::Sample { chain, .. } | Record::Leave { chain, .. }) = Record::of(&record, of) {
                    prop_assert!(chain.iter().count() < words.len());
                }
            }
        }
    }
}
