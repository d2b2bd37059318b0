//! What the kernel allows.

/// Files kept free for the rest of the process when a ring's table is sized.
const RESERVED_FILES: u64 = 64;

/// Whether the kernel's release is at least this; not, if it cannot be told.
pub fn is_at_least((major, minor): (u32, u32)) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// How many sockets one ring's table may hold: the kernel bounds it by the limit on open files.
pub fn table_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX).clamp(1, 1 << 20)
}
