//! The engine: sends requests on schedule, times them, counts them.
//!
//! It knows no plan, system or report. *When* ([`schedule`]), *what* ([`spec::request`]), *how* ([`protocol`])
//! and *until* ([`Until`]) never name one another; they meet in the worker's loop (`worker`). Each load
//! thread owns one loop, one I/O backend ([`io`]) and one recorder; what they counted is handed over ten
//! times a second and merged by [`run()`], on the caller's thread, into ticks and totals.
//!
//! After its start the loop neither allocates per request (what [`protocol::tls`] rests on does, once a record), locks,
//! logs, nor shares a cache line with another thread. Time enters through the backend's clock alone, so that the simulated backend
//! ([`io::sim`]) replays a load exactly.

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

pub use loadlab_record::schedule::{Arrivals, Until, WhenBehind};
pub use measure::batch::Ids;
pub use pool::ConnectionPool;
pub use run::{Control, LoadError, LoadEvent, Outcome, run};
pub use spec::{IoChoice, LoadSpec, Model};
