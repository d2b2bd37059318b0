//! A global allocator that counts the program's live bytes, whatever allocator it wraps.
//!
//! Resident memory alone does not distinguish a program that holds much from an allocator that returns little. The
//! bytes the program requested and has not freed (live bytes) are the other half, and they must mean the same for every
//! allocator, so they are counted here and not read from the allocator.
//!
//! Every call is passed on unchanged, `realloc` and `alloc_zeroed` included: emulating them by `alloc` and a copy
//! would remove the very shortcuts that distinguish allocators.

#![expect(unsafe_code, reason = "an allocator is an unsafe trait; this one counts around another")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// How many bytes a thread allocates or frees before it updates the shared counter.
///
/// The counter would otherwise be the one cache line that all threads contend for, at some hundred thousand
/// allocations per request: the measurement would slow what it measures.
pub const SETTLE_AT_BYTES: isize = 16 * 1024;

thread_local! {
    /// Bytes this thread has allocated (or, below zero, freed) and not settled yet.
    ///
    /// `const` and without a destructor, hence never allocating: it is used inside the allocator.
    static UNSETTLED_BYTES: Cell<isize> = const { Cell::new(0) };
}

/// Wraps an allocator and counts live bytes.
///
/// Figures are accurate to within [`SETTLE_AT_BYTES`] per thread. The unsettled part belongs to the thread and not to
/// the instance, so a process can use only one instance.
pub struct Counting<A> {
    inner: A,
    settled_bytes: AtomicIsize,
    peak_bytes: AtomicIsize,
}

impl<A> Counting<A> {
    /// Counts what goes through `inner`, from zero.
    pub const fn new(inner: A) -> Self {
        Self { inner, settled_bytes: AtomicIsize::new(0), peak_bytes: AtomicIsize::new(0) }
    }

    /// Bytes requested and not freed, by layout size: the allocator's own rounding is not included.
    pub fn live_bytes(&self) -> u64 {
        // Includes the reader's own unsettled remainder.
        self.settle(UNSETTLED_BYTES.replace(0));
        clamp(self.settled_bytes.load(Relaxed))
    }

    /// The peak of live bytes.
    pub fn peak_live_bytes(&self) -> u64 {
        self.settle(UNSETTLED_BYTES.replace(0));
        clamp(self.peak_bytes.load(Relaxed))
    }

    fn count(&self, bytes: isize) {
        let unsettled = UNSETTLED_BYTES.get() + bytes;
        if unsettled.abs() < SETTLE_AT_BYTES {
            UNSETTLED_BYTES.set(unsettled);
        } else {
            UNSETTLED_BYTES.set(0);
            self.settle(unsettled);
        }
    }

    fn settle(&self, bytes: isize) {
        let live = self.settled_bytes.fetch_add(bytes, Relaxed) + bytes;
        // Reading first keeps the line shared while the peak is unchanged, which is nearly always.
        if live > self.peak_bytes.load(Relaxed) {
            self.peak_bytes.fetch_max(live, Relaxed);
        }
    }
}

/// A thread that frees another's allocation may settle first: the sum is then briefly below zero.
fn clamp(bytes: isize) -> u64 {
    bytes.max(0) as u64
}

/// Layouts never exceed `isize::MAX`, so the cast keeps the value.
fn signed(size: usize) -> isize {
    size as isize
}

// SAFETY: every method hands its arguments to `inner` unchanged and returns what that returned, so
// the contract holds as it holds for `inner`. Counting touches only atomics and a thread-local
// without destructor: it neither allocates nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of `inner.alloc`.
        let block = unsafe { self.inner.alloc(layout) };
        if !block.is_null() {
            self.count(signed(layout.size()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of `inner.alloc_zeroed`.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        if !block.is_null() {
            self.count(signed(layout.size()));
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are those of `inner.dealloc`.
        unsafe { self.inner.dealloc(block, layout) };
        self.count(-signed(layout.size()));
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are those of `inner.realloc`.
        let moved = unsafe { self.inner.realloc(block, layout, new_size) };
        // A failed realloc leaves the old block as it was.
        if !moved.is_null() {
            self.count(signed(new_size) - signed(layout.size()));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    //! The counting allocator is not the global one in tests, and every test has its own thread: figures are exact.

    use super::*;
    use std::alloc::System;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 8).unwrap()
    }

    #[test]
    fn counts_what_is_held_and_remembers_the_peak() {
        let counting = Counting::new(System);
        // SAFETY: blocks are freed once, with the layout they were allocated with.
        unsafe {
            let small = counting.alloc(layout(100));
            let large = counting.alloc(layout(1_000_000));
            assert_eq!(counting.live_bytes(), 1_000_100);
            counting.dealloc(large, layout(1_000_000));
            assert_eq!(counting.live_bytes(), 100);
            counting.dealloc(small, layout(100));
        }
        assert_eq!(counting.live_bytes(), 0);
        assert_eq!(counting.peak_live_bytes(), 1_000_100);
    }

    #[test]
    fn realloc_counts_the_difference_and_keeps_the_content() {
        let counting = Counting::new(System);
        // SAFETY: each block is used and freed with the size it has at that time.
        unsafe {
            let block = counting.alloc(layout(64));
            block.write_bytes(7, 64);
            let grown = counting.realloc(block, layout(64), 200_000);
            assert_eq!(counting.live_bytes(), 200_000);
            assert!((0..64).all(|at| *grown.add(at) == 7));
            let shrunk = counting.realloc(grown, layout(200_000), 16);
            assert_eq!(counting.live_bytes(), 16);
            counting.dealloc(shrunk, layout(16));
        }
        assert_eq!(counting.live_bytes(), 0);
    }

    #[test]
    fn zeroed_blocks_are_zero_and_counted() {
        let counting = Counting::new(System);
        // SAFETY: the block is read within its size and freed once.
        unsafe {
            let block = counting.alloc_zeroed(layout(4096));
            assert!((0..4096).all(|at| *block.add(at) == 0));
            assert_eq!(counting.live_bytes(), 4096);
            counting.dealloc(block, layout(4096));
        }
        assert_eq!(counting.live_bytes(), 0);
    }

    #[test]
    fn a_failed_allocation_counts_nothing() {
        struct Empty;
        // SAFETY: null is the answer of an allocator that has nothing left.
        unsafe impl GlobalAlloc for Empty {
            unsafe fn alloc(&self, _: Layout) -> *mut u8 {
                std::ptr::null_mut()
            }
            unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
        }
        let counting = Counting::new(Empty);
        // SAFETY: the layout is not empty, and null is never freed.
        assert!(unsafe { counting.alloc(layout(1_000_000)) }.is_null());
        assert_eq!((counting.live_bytes(), counting.peak_live_bytes()), (0, 0));
    }

    #[test]
    fn blocks_freed_by_another_thread_balance_out() {
        const BLOCK_BYTES: usize = 50;
        const BLOCKS: usize = 10_000;
        let counting = Counting::new(System);
        std::thread::scope(|scope| {
            let allocate = || {
                // SAFETY: the layout is not empty. As a number, the address may change threads.
                let one = |_| unsafe { counting.alloc(layout(BLOCK_BYTES)) } as usize;
                (0..BLOCKS).map(one).collect::<Vec<_>>()
            };
            for address in scope.spawn(allocate).join().unwrap() {
                // SAFETY: allocated above with this layout, and freed nowhere else.
                unsafe { counting.dealloc(address as *mut u8, layout(BLOCK_BYTES)) };
            }
        });
        // Only what the ended thread had not settled is missing.
        assert!((counting.live_bytes() as isize) < SETTLE_AT_BYTES);
        assert!(counting.peak_live_bytes() as isize > (BLOCKS * BLOCK_BYTES) as isize - SETTLE_AT_BYTES);
    }
}
