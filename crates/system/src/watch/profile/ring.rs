//! The kernel's buffer of samples of one core, mapped, and its records.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// What a buffer holds, besides its first page: a power of two of pages. A sample with the longest stack has about a
/// kilobyte.
const DATA: usize = 64 * PAGE;
const PAGE: usize = 4096;
/// Offsets in the first page (`struct perf_event_mmap_page`): how far the kernel has written, and how far was read.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// The longest record: its size has 16 bits.
const LONGEST: usize = 1 << 16;

/// The buffer of one core.
#[derive(Debug)]
pub(super) struct Ring {
    at: *mut u8,
    // Kept: the kernel writes to it for as long as this is open.
    event: OwnedFd,
    record: Vec<u8>,
}

/// A record that matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A thread was on a core.
    Sample {
        /// Its process.
        pid: u32,
        /// Addresses as the kernel gives them, the innermost first, with its marks between.
        chain: Chain<'a>,
    },
    /// Samples did not fit.
    Lost(u64),
    /// A thread or process was created.
    Fork {
        /// The new one.
        pid: u32,
        /// Its first thread, or the new thread.
        tid: u32,
        /// Who made it.
        parent: u32,
    },
}

/// A stack as recorded: 8 bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain<'a>(&'a [u8]);

impl Chain<'_> {
    /// Its addresses and marks.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
    }
}

// SAFETY: the mapping is this value's alone.
#[expect(unsafe_code, reason = "a mapping that its owner takes along")]
unsafe impl Send for Ring {}

impl Ring {
    /// The buffer of an event that has none yet.
    ///
    /// # Errors
    /// The kernel's limit on such memory (`kernel.perf_event_mlock_kb`).
    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    pub fn of(event: OwnedFd) -> io::Result<Ring> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), PAGE + DATA, access, MapFlags::SHARED, event.as_fd(), 0)
        }?;
        Ok(Ring { at: at.cast(), event, record: Vec::new() })
    }

    /// The event that it belongs to.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }

    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and changed as a whole by either side.
        unsafe { AtomicU64::from_ptr(self.at.add(offset).cast()) }
    }

    /// Hands out what the kernel has written, and gives the room back.
    pub fn read(&mut self, mut each: impl FnMut(Record<'_>)) {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut tail = self.position(TAIL).load(Ordering::Relaxed);
        let mut record = std::mem::take(&mut self.record);
        while tail < head {
            let mut start = [0; 8];
            self.copy(tail, &mut start);
            let size = usize::from(u16::from_ne_bytes([start[6], start[7]]));
            // The kernel never writes less than a header, nor more than it says it has.
            if size < 8 || size as u64 > head - tail || size > LONGEST {
                tail = head;
                break;
            }
            record.resize(size, 0);
            self.copy(tail, &mut record);
            if let Some(record) = Record::of(&record) {
                each(record);
            }
            tail += size as u64;
        }
        self.record = record;
        self.position(TAIL).store(tail, Ordering::Release);
    }

    /// Bytes from a position on, which may wrap around.
    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    fn copy(&self, from: u64, to: &mut [u8]) {
        let at = (from % DATA as u64) as usize;
        let before_end = to.len().min(DATA - at);
        let (first, second) = to.split_at_mut(before_end);
        // SAFETY: both parts lie within the buffer, whose bytes the kernel leaves alone until they are given back.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.add(PAGE + at), first.as_mut_ptr(), first.len());
            std::ptr::copy_nonoverlapping(self.at.add(PAGE), second.as_mut_ptr(), second.len());
        }
    }
}

impl Drop for Ring {
    #[expect(unsafe_code, reason = "the buffer is shared with the kernel")]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing of it outlives it.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), PAGE + DATA) };
    }
}

impl<'a> Record<'a> {
    /// A record (`struct perf_event_header` and what follows it); `None` if it does not matter, or is not what it should
    /// be.
    fn of(bytes: &'a [u8]) -> Option<Record<'a>> {
        const LOST: u32 = 2;
        const FORK: u32 = 7;
        const SAMPLE: u32 = 9;
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        match word(0)? {
            // pid, tid; length, addresses
            SAMPLE => {
                let length = usize::try_from(long(16)?).ok()?.checked_mul(8)?;
                let chain = bytes.get(24..length.checked_add(24)?)?;
                Some(Record::Sample { pid: word(8)?, chain: Chain(chain) })
            }
            // id, how many
            LOST => Some(Record::Lost(long(16)?)),
            // pid, parent's pid, tid, parent's tid
            FORK => Some(Record::Fork { pid: word(8)?, parent: word(12)?, tid: word(16)? }),
            _ => None,
        }
    }
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
        let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let sample = record(9, &[both(7, 8), 2, 0x10, 0x20]);
        let Some(Record::Sample { pid: 7, chain }) = Record::of(&sample) else { panic!("{sample:?}") };
        assert_eq!(chain.iter().collect::<Vec<_>>(), [0x10, 0x20]);
        assert_eq!(Record::of(&record(2, &[1, 5])), Some(Record::Lost(5)));
        let fork = record(7, &[both(9, 7), both(10, 8), 0]);
        assert_eq!(Record::of(&fork), Some(Record::Fork { pid: 9, parent: 7, tid: 10 }));
        // More addresses than there are, and another kind.
        assert_eq!(Record::of(&record(9, &[0, 3, 0x10])), None);
        assert_eq!(Record::of(&record(3, &[0, 0])), None);
    }

    proptest! {
        #[test]
        fn no_record_is_too_odd(kind in 0u32..12, words in proptest::collection::vec(any::<u64>(), 0..8)) {
            if let Some(Record::Sample { chain, .. }) = Record::of(&record(kind, &words)) {
                prop_assert!(chain.iter().count() < words.len());
            }
        }
    }
}
