//! The engine: sends requests on schedule, times them, counts them.
//!
//! It knows nothing of plans, systems under test or reports. *When* ([`schedule`]), *what* ([`spec::request`]), *how*
//! ([`protocol`]) and *until* ([`Until`]) never refer to one another; they meet in the worker's loop (`worker`). Each
//! load thread owns one loop, one I/O backend ([`io`]) and one recorder. Threads hand over their counts ten times a
//! second, and [`run()`] merges them, on the caller's thread, into ticks and totals.
//!
//! Once started, the loop does not allocate per request (the library under [`protocol::tls`] does, once per record),
//! lock, log, or share a cache line with another thread. It reads time only from the backend's clock, so the simulated
//! backend ([`io::sim`]) replays a load exactly.

pub mod io;
pub mod journey;
pub mod measure;
pub mod pool;
pub mod protocol;
pub mod random;
pub mod resident;
pub mod run;
pub mod schedule;
pub mod spec;
mod start;
pub mod target;
mod worker;

pub use loadlab_record::spec::schedule::{Arrivals, Until, WhenBehind};
pub use measure::delta::Ids;
pub use pool::ConnectionPool;
pub use run::{Control, LoadError, LoadEvent, LoadResult, run};
pub use spec::{IoChoice, LoadSpec, Model};
