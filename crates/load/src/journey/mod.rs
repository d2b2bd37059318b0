//! Journeys at run time, the pure part: bytes in, bytes and verdicts out.
//!
//! [`template`] writes requests with variables, [`capture`] takes values from responses ([`json`] locates one in a
//! document), [`check`] judges responses, [`rows`] deals the rows of data feeds, [`cookies`] is a user's jar. Nothing
//! here knows a plan, a connection or a clock: times, numbers and randomness are passed in. Code that runs before a
//! load starts may allocate; code that runs per request writes into buffers it is given.

pub mod capture;
pub mod check;
pub mod cookies;
pub mod decode;
pub mod example;
pub mod failure;
pub mod json;
pub mod order;
pub mod redirect;
pub mod response;
pub mod rows;
pub mod script;
pub mod template;
pub(crate) mod users;
