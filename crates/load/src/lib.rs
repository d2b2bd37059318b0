//! The engine: sends requests on schedule, times them, counts them.
//!
//! It knows no plan, system or report. *When* ([`schedule`]), *what* ([`source`]), *how* ([`http1`]) and
//! *until* ([`spec::Until`]) never name one another; they meet in the worker's loop (`worker`). Each load
//! thread owns one loop, one I/O backend ([`io`]) and one recorder; what they counted is handed over ten
//! times a second and merged by [`run()`], on the caller's thread, into ticks and totals.
//!
//! After its start the loop neither allocates per request (what [`tls`] rests on does, once a record), locks,
//! logs, nor shares a cache line with another thread. Time enters through the backend's clock alone, so that the simulated backend
//! ([`io::sim`]) replays a load exactly.

mod addresses;
mod conn;
pub mod course;
mod deadline;
mod due;
pub mod exhibit;
mod feed;
mod hidden;
mod keeper;
mod kept;
mod life;
mod multiplex;
mod next;
pub mod proxy;
mod recorder;
mod rooms;
mod secure;
mod start;
mod talk;
mod together;
mod users;
mod worker;

pub mod generator;
pub mod http1;
pub mod http2;
pub mod io;
pub mod journey;
pub mod names;
pub mod random;
pub mod resident;
pub mod run;
pub mod schedule;
pub mod script;
pub mod source;
pub mod spec;
pub mod stages;
pub mod target;
pub mod tls;
pub mod websocket;

pub use kept::Kept;
pub use recorder::Ids;
pub use run::{Control, LoadError, LoadEvent, Outcome, run};
pub use spec::{Arrivals, IoChoice, LoadSpec, Model, Until, WhenBehind};
