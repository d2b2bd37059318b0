//! Names in samples and connections that are not components'.

/// The load generator.
pub const GENERATOR: &str = "loadlab";
/// The machine.
pub const HOST: &str = "host";
/// Probes that belong to no component.
pub const PROBES: &str = "probes";
/// All of them: no component may have one of these names.
pub const RESERVED: [&str; 3] = [GENERATOR, HOST, PROBES];
