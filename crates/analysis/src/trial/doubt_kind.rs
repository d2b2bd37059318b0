//! Kinds of doubts that are looked for in summaries, or arise in more than one place. All others are named where they
//! arise.

/// Requests left after they fell due.
pub const LATE: &str = "late";
/// loadlab was throttled by a CPU limit.
pub const THROTTLED: &str = "throttled";
/// A load thread ran later than it asked to.
pub const GENERATOR_STALLED: &str = "generator_stalled";
/// Connection attempts failed on limits of loadlab's own machine.
pub const CLIENT_LIMIT: &str = "client_limit";
/// The load threads had no CPU time in reserve.
pub const GENERATOR_CPU: &str = "generator_cpu";
/// Users were idle in a load that gives them no pauses.
pub const USERS_IDLE: &str = "users_idle";
/// The cap on requests in flight was reached.
pub const IN_FLIGHT_CAP: &str = "in_flight_cap";
/// The system does not keep up with the rate.
pub const BACKLOG: &str = "backlog";
/// The median response rose throughout.
pub const LATENCY_RISING: &str = "latency_rising";
