//! What was seen of components while a load ran.
//!
//! - [`sample`]: one reading of a component; [`packed_samples`]: a trial's samples, packed; [`names`] that components
//!   cannot have.
//! - [`evidence`] of which component waited for which; [`limits`] in force; [`profile`]: where CPU time went.

pub mod evidence;
pub mod limits;
pub mod names;
pub mod packed_samples;
pub(crate) mod pprof;
pub mod profile;
pub mod sample;
