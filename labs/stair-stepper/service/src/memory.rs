//! The allocator of this build, and `GET /memory`: what the process holds and what it occupies.
//!
//! The allocator is chosen by cargo feature and not at run time: a program has one global allocator, and linking the
//! others in would change what is measured.

use crate::counting::Counting;
use axum::Json;
use serde::Serialize;

#[cfg(all(feature = "jemalloc", feature = "mimalloc"))]
compile_error!("choose one allocator: `jemalloc` or `mimalloc`, not both");

#[cfg(feature = "jemalloc")]
mod chosen {
    pub const NAME: &str = "jemalloc";
    pub const INNER: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
    pub type Inner = tikv_jemallocator::Jemalloc;
}

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
mod chosen {
    pub const NAME: &str = "mimalloc";
    pub const INNER: mimalloc::MiMalloc = mimalloc::MiMalloc;
    pub type Inner = mimalloc::MiMalloc;
}

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
mod chosen {
    pub const NAME: &str = "system";
    pub const INNER: std::alloc::System = std::alloc::System;
    pub type Inner = std::alloc::System;
}

// Not in tests: they count on their own instances, and the unsettled remainder is per thread.
#[cfg_attr(not(test), global_allocator)]
static ALLOCATOR: Counting<chosen::Inner> = Counting::new(chosen::INNER);

/// The answer of `GET /memory`. All sizes are bytes of the whole process.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// Physical memory in use, as the kernel counts it; `null` without Linux's `/proc`.
    resident_bytes: Option<u64>,
    /// The peak of resident memory.
    peak_resident_bytes: Option<u64>,
    /// Requested and not freed; within 16 KiB per thread.
    live_bytes: u64,
    /// The peak of live bytes.
    peak_live_bytes: u64,
    /// `system`, `jemalloc` or `mimalloc`.
    allocator: &'static str,
    /// What jemalloc reports about itself; only in its build.
    #[serde(skip_serializing_if = "Option::is_none")]
    jemalloc: Option<Jemalloc>,
}

/// jemalloc's own statistics, see `stats.*` in jemalloc(3).
#[derive(Debug, Serialize)]
struct Jemalloc {
    /// Live bytes rounded up to size classes.
    allocated_bytes: u64,
    /// Pages with at least one live byte: `active - allocated` is what fragmentation inside pages costs.
    active_bytes: u64,
    /// Pages mapped and possibly resident: `resident - active` is kept for the next request.
    resident_bytes: u64,
    /// Address space kept without memory behind it.
    retained_bytes: u64,
}

/// `GET /memory`.
pub async fn report() -> Json<Memory> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    Json(Memory {
        resident_bytes: status_bytes(&status, "VmRSS:"),
        peak_resident_bytes: status_bytes(&status, "VmHWM:"),
        live_bytes: ALLOCATOR.live_bytes(),
        peak_live_bytes: ALLOCATOR.peak_live_bytes(),
        allocator: chosen::NAME,
        jemalloc: jemalloc(),
    })
}

/// A size from `/proc/self/status`: the same counters as in `statm`, but in kB and not in pages, whose size would have
/// to be queried. `smaps_rollup` would walk all page tables at every reading.
fn status_bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(feature = "jemalloc")]
fn jemalloc() -> Option<Jemalloc> {
    use tikv_jemalloc_ctl::{epoch, stats};
    // Statistics are a snapshot: without a new epoch every reading repeats the first.
    epoch::advance().ok()?;
    Some(Jemalloc {
        allocated_bytes: stats::allocated::read().ok()? as u64,
        active_bytes: stats::active::read().ok()? as u64,
        resident_bytes: stats::resident::read().ok()? as u64,
        retained_bytes: stats::retained::read().ok()? as u64,
    })
}

#[cfg(not(feature = "jemalloc"))]
fn jemalloc() -> Option<Jemalloc> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_status() {
        let status = "Name:\tstair-stepper\nVmHWM:\t  716800 kB\nVmRSS:\t     512 kB\nThreads:\t3\n";
        assert_eq!(status_bytes(status, "VmRSS:"), Some(512 * 1024));
        assert_eq!(status_bytes(status, "VmHWM:"), Some(700 << 20));
        assert_eq!(status_bytes(status, "VmSwap:"), None);
        assert_eq!(status_bytes("VmRSS:\tnone\n", "VmRSS:"), None);
    }
}
