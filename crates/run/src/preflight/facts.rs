//! The machine as it is, read from /proc and /sys and from three experiments: creating a ring, opening a few
//! connections to ourselves, and watching the CPUs for a moment. What cannot be read is `None`, never a guess.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use loadlab_load::io::uring::{Size, Uring};
use loadlab_record::text::cores::{MAX_OF_KERNEL, parse_cores};
use loadlab_system::open_files;

/// What the preflight knows about the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// `RLIMIT_NOFILE` of this process.
    pub open_files: Option<Limit>,
    /// This process may raise its children's limits above the hard limit (CAP_SYS_RESOURCE).
    pub may_raise_limits: bool,
    /// Number of files this process has open.
    pub open_files_used: u64,
    /// Open-file limit of the processes it starts, if different.
    pub component_files: Option<u64>,
    /// First and last port of the ephemeral range for outgoing connections.
    pub port_range: Option<(u16, u16)>,
    /// Number of ports in that range that are never assigned automatically.
    pub ports_reserved: u64,
    /// `tcp_tw_reuse`: 0 off, 1 on, 2 on for loopback only.
    pub tw_reuse: Option<u64>,
    /// Maximum length of an accept queue (`somaxconn`).
    pub somaxconn: Option<u64>,
    /// Maximum length of the half-open queue (`tcp_max_syn_backlog`).
    pub syn_backlog: Option<u64>,
    /// `tcp_syncookies` is not 0.
    pub syn_cookies: bool,
    /// The connection-tracking table, if the kernel has one.
    pub conntrack: Option<Conntrack>,
    /// Limits of this process's cgroup and its ancestors.
    pub cgroup: CgroupLimits,
    /// Number of cores this process may use.
    pub cores: u64,
    /// Number of online cores of the machine.
    pub cores_online: u64,
    /// CPU frequency governors in use, with the number of frequency domains each.
    pub governors: Vec<Governor>,
    /// CPU time used by others.
    pub cpu: CpuUse,
    /// The kernel's current clock source.
    pub clock_source: Option<String>,
    /// Available clock sources.
    pub clock_sources: Vec<String>,
    /// Whether io_uring is available.
    pub io_uring: IoUring,
    /// The machine's memory and swap.
    pub memory: Memory,
}

/// A soft and a hard limit; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// The highest value the soft limit can be raised to without privileges.
    pub hard: Option<u64>,
}

/// The connection-tracking table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Maximum number of entries.
    pub max: u64,
    /// Current number of entries.
    pub count: u64,
    /// How long a closed connection stays in the table, in seconds.
    pub time_wait_s: u64,
    /// Whether connections to this machine itself are tracked; `None` if unknown.
    pub tracks: Option<bool>,
}

/// Limits of our own cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupLimits {
    /// CPU limit in cores, and the file that sets it.
    pub cpu_cores: Option<(f64, PathBuf)>,
    /// Memory limit in bytes, and the file that sets it.
    pub memory_bytes: Option<(u64, PathBuf)>,
    /// Bytes in use in the cgroup with that limit, excluding cached files, which the kernel drops under memory
    /// pressure.
    pub memory_used_bytes: u64,
}

/// A governor and how many frequency domains use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Governor {
    /// Its name.
    pub name: String,
    /// The cpufreq driver.
    pub driver: String,
    /// Number of frequency domains (mostly one per core).
    pub count: u64,
}

/// CPU time that was not available to us.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// Percentage of time the hypervisor gave to other guests; since boot if the CPUs were not watched.
    pub steal_percent: Option<f64>,
    /// Cores kept busy by other programs while the CPUs were watched.
    pub busy_cores: Option<f64>,
}

/// Whether io_uring is available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoUring {
    /// `kernel.io_uring_disabled`: 0 allows everyone, 1 a group, 2 no one.
    pub disabled: Option<u64>,
    /// Why the kernel refused a ring like the engine's; `None` if it was created.
    pub refused: Option<String>,
}

/// The machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Bytes available without swapping.
    pub available_bytes: Option<u64>,
    /// Bytes of swap in use.
    pub swap_used_bytes: u64,
    /// Pages moved to or from swap per second while the machine was watched.
    pub swap_pages_per_s: Option<f64>,
}

/// Inspects this machine. `watch` is how long the CPUs are watched, during which the caller blocks; zero skips that,
/// and steal is then since boot.
#[expect(clippy::disallowed_methods, reason = "how busy the machine is shows over a time")]
pub fn read(watch: Duration) -> Facts {
    let root = Path::new("/");
    let mut facts = read_in(root);
    facts.io_uring.refused = try_io_uring();
    facts.component_files = open_files::given().and_then(|given| given.current);
    if let Some(conntrack) = &mut facts.conntrack {
        conntrack.tracks = try_tracking(root);
    }
    if !watch.is_zero() {
        let before = (cpu_times(root), swapped_pages(root));
        std::thread::sleep(watch);
        let after = (cpu_times(root), swapped_pages(root));
        if let (Some(before), Some(after)) = (before.0, after.0) {
            facts.cpu = after.since(before, facts.cores_online);
        }
        let pages = before.1.zip(after.1).map(|(b, a)| a.saturating_sub(b));
        facts.memory.swap_pages_per_s = pages.map(|p| p as f64 / watch.as_secs_f64());
    }
    facts
}

/// The facts shown by files below `root`: `/`, or a tree made for a test. Runs no experiments.
pub fn read_in(root: &Path) -> Facts {
    let number = |path: &str| text(root, path)?.trim().parse::<u64>().ok();
    let port_range = port_range(root);
    Facts {
        open_files: open_files(root),
        may_raise_limits: may_raise_limits(root),
        component_files: None,
        open_files_used: std::fs::read_dir(root.join("proc/self/fd")).map_or(0, |d| d.count() as u64),
        port_range,
        ports_reserved: port_range.map_or(0, |(from, to)| ports_reserved(root, from, to)),
        tw_reuse: number("proc/sys/net/ipv4/tcp_tw_reuse"),
        somaxconn: number("proc/sys/net/core/somaxconn"),
        syn_backlog: number("proc/sys/net/ipv4/tcp_max_syn_backlog"),
        syn_cookies: number("proc/sys/net/ipv4/tcp_syncookies").is_some_and(|n| n > 0),
        conntrack: conntrack(root),
        cgroup: cgroup(root),
        cores: cores(root),
        cores_online: cores_online(root),
        governors: governors(root),
        cpu: cpu_times(root)
            .map_or_else(CpuUse::default, |t| CpuUse { busy_cores: None, ..t.since(CpuTimes::default(), 1) }),
        clock_source: clock(root, "current_clocksource").into_iter().next(),
        clock_sources: clock(root, "available_clocksource"),
        io_uring: IoUring { disabled: number("proc/sys/kernel/io_uring_disabled"), refused: None },
        memory: memory(root),
    }
}

/// Whether CAP_SYS_RESOURCE, bit 24 of the effective capabilities (capabilities(7)), is set.
fn may_raise_limits(root: &Path) -> bool {
    let status = text(root, "proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).is_some_and(|m| m >> 24 & 1 == 1)
}

fn text(root: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(root.join(path)).ok()
}

fn open_files(root: &Path) -> Option<Limit> {
    let limit = open_files::parsed(&text(root, "proc/self/limits")?)?;
    Some(Limit { soft: limit.current, hard: limit.maximum })
}

fn port_range(root: &Path) -> Option<(u16, u16)> {
    let range = text(root, "proc/sys/net/ipv4/ip_local_port_range")?;
    let mut ports = range.split_whitespace().map(|n| n.parse::<u16>().ok());
    Some((ports.next()??, ports.next()??)).filter(|(from, to)| from <= to)
}

/// Counts ports of this range in `ip_local_reserved_ports`, for example `8080,9000-9009`.
fn ports_reserved(root: &Path, from: u16, to: u16) -> u64 {
    let list = text(root, "proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let of = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        let (first, last) = (first.parse::<u16>().ok()?.max(from), last.parse::<u16>().ok()?.min(to));
        (first <= last).then(|| u64::from(last - first) + 1)
    };
    list.split(',').filter_map(of).sum()
}

fn conntrack(root: &Path) -> Option<Conntrack> {
    let number = |name: &str| {
        text(root, &format!("proc/sys/net/netfilter/nf_conntrack_{name}"))?.trim().parse::<u64>().ok()
    };
    Some(Conntrack {
        max: number("max")?,
        count: number("count")?,
        time_wait_s: number("tcp_timeout_time_wait").unwrap_or(120),
        tracks: None,
    })
}

/// The lowest limits from our own cgroup up to the root, for cgroup v1 and v2.
fn cgroup(root: &Path) -> CgroupLimits {
    let mut out = CgroupLimits::default();
    for line in text(root, "proc/self/cgroup").unwrap_or_default().lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let has = |name: &str| controllers.split(',').any(|c| c == name);
        if controllers.is_empty() {
            for base in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
                upward(root, base, path, |dir| v2_limits(dir, &mut out));
            }
        }
        // One hierarchy may have both.
        if has("cpu") {
            upward(root, &mounted(root, "cpu", controllers), path, |dir| v1_cpu(dir, &mut out));
        }
        if has("memory") {
            upward(root, &mounted(root, "memory", controllers), path, |dir| v1_memory(dir, &mut out));
        }
    }
    // Show paths relative to the root, as users find them.
    let strip =
        |path: &Path| Path::new("/").join(path.strip_prefix(root).unwrap_or(path).to_string_lossy().as_ref());
    out.cpu_cores = out.cpu_cores.map(|(n, path)| (n, strip(&path)));
    out.memory_bytes = out.memory_bytes.map(|(n, path)| (n, strip(&path)));
    out
}

fn mounted(root: &Path, name: &str, controllers: &str) -> String {
    let own = format!("sys/fs/cgroup/{name}");
    if root.join(&own).is_dir() { own } else { format!("sys/fs/cgroup/{controllers}") }
}

/// Visits a cgroup's folder and its ancestors. In a container the path may be the host's, where only the mount point
/// itself is visible.
fn upward(root: &Path, base: &str, path: &str, mut each: impl FnMut(&Path)) {
    let base = root.join(base);
    let below = path.trim_start_matches('/');
    let own = base.join(below);
    let mut dir = if own.is_dir() && !path.contains("..") { own } else { base.clone() };
    loop {
        each(&dir);
        if dir == base || !dir.pop() {
            return;
        }
    }
}

fn lower_cpu(out: &mut CgroupLimits, cores: f64, path: PathBuf) {
    if out.cpu_cores.as_ref().is_none_or(|(known, _)| cores < *known) {
        out.cpu_cores = Some((cores, path));
    }
}

fn lower_memory(out: &mut CgroupLimits, bytes: u64, used: u64, path: PathBuf) {
    // Cgroup v1 expresses "no limit" as a number near 2^63.
    let none = bytes >= 1 << 60;
    if !none && out.memory_bytes.as_ref().is_none_or(|(known, _)| bytes < *known) {
        out.memory_bytes = Some((bytes, path));
        out.memory_used_bytes = used;
    }
}

fn v2_limits(dir: &Path, out: &mut CgroupLimits) {
    let max = text(dir, "cpu.max").unwrap_or_default();
    let mut numbers = max.split_whitespace().map(|n| n.parse::<f64>().ok());
    if let (Some(Some(quota)), Some(Some(period))) = (numbers.next(), numbers.next())
        && period > 0.0
    {
        lower_cpu(out, quota / period, dir.join("cpu.max"));
    }
    let number = |name: &str| text(dir, name)?.trim().parse::<u64>().ok();
    if let Some(bytes) = number("memory.max") {
        let used = number("memory.current").unwrap_or(0).saturating_sub(cached_files(dir, ""));
        lower_memory(out, bytes, used, dir.join("memory.max"));
    }
}

/// Bytes of files in a cgroup's page cache. In-memory files (tmpfs) do not count: they can only be swapped out.
fn cached_files(dir: &Path, prefix: &str) -> u64 {
    let stat = text(dir, "memory.stat").unwrap_or_default();
    let of = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        let is_file = matches!(name.strip_prefix(prefix)?, "inactive_file" | "active_file");
        is_file.then(|| bytes.trim().parse::<u64>().ok())?
    };
    stat.lines().filter_map(of).fold(0, u64::saturating_add)
}

fn v1_cpu(dir: &Path, out: &mut CgroupLimits) {
    let number = |name: &str| text(dir, name)?.trim().parse::<f64>().ok().filter(|n| *n > 0.0);
    if let (Some(quota), Some(period)) = (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us")) {
        lower_cpu(out, quota / period, dir.join("cpu.cfs_quota_us"));
    }
}

fn v1_memory(dir: &Path, out: &mut CgroupLimits) {
    let number = |name: &str| text(dir, name)?.trim().parse::<u64>().ok();
    if let Some(bytes) = number("memory.limit_in_bytes") {
        // Usage includes descendant groups, so use the `total_` statistics, which include them too.
        let used = number("memory.usage_in_bytes").unwrap_or(0).saturating_sub(cached_files(dir, "total_"));
        lower_memory(out, bytes, used, dir.join("memory.limit_in_bytes"));
    }
}

/// Number of cores in `Cpus_allowed_list` of `/proc/self/status`; the machine's cores if it is missing.
fn cores(root: &Path) -> u64 {
    let status = text(root, "proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    parse_cores(list, MAX_OF_KERNEL).map_or_else(|| cores_online(root), |cores| cores.len() as u64)
}

fn cores_online(root: &Path) -> u64 {
    let stat = text(root, "proc/stat").unwrap_or_default();
    let is_core = |l: &&str| l.starts_with("cpu") && !l.starts_with("cpu ");
    (stat.lines().filter(is_core).count() as u64).max(1)
}

fn governors(root: &Path) -> Vec<Governor> {
    let mut out: Vec<Governor> = Vec::new();
    let Ok(policies) = std::fs::read_dir(root.join("sys/devices/system/cpu/cpufreq")) else { return out };
    for dir in policies.flatten().map(|e| e.path()) {
        let Some(name) = text(&dir, "scaling_governor") else { continue };
        let driver = text(&dir, "scaling_driver").unwrap_or_default();
        let (name, driver) = (name.trim(), driver.trim());
        match out.iter_mut().find(|g| g.name == name && g.driver == driver) {
            Some(known) => known.count += 1,
            None => out.push(Governor { name: name.to_owned(), driver: driver.to_owned(), count: 1 }),
        }
    }
    out.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    out
}

fn clock(root: &Path, file: &str) -> Vec<String> {
    let path = format!("sys/devices/system/clocksource/clocksource0/{file}");
    text(root, &path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn memory(root: &Path) -> Memory {
    let info = text(root, "proc/meminfo").unwrap_or_default();
    let bytes = |name: &str| {
        let line = info.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Memory {
        available_bytes: bytes("MemAvailable"),
        swap_used_bytes: bytes("SwapTotal").zip(bytes("SwapFree")).map_or(0, |(t, f)| t.saturating_sub(f)),
        swap_pages_per_s: None,
    }
}

/// Number of pages moved to and from swap since boot.
fn swapped_pages(root: &Path) -> Option<u64> {
    let vmstat = text(root, "proc/vmstat")?;
    let number = |name: &str| vmstat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(number("pswpin ")? + number("pswpout ")?)
}

/// The first line of `/proc/stat` (proc(5)), in ticks.
#[derive(Clone, Copy, Default)]
struct CpuTimes {
    busy: u64,
    steal: u64,
    all: u64,
}

fn cpu_times(root: &Path) -> Option<CpuTimes> {
    let stat = text(root, "proc/stat")?;
    let line = stat.lines().find_map(|l| l.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is already included in user.
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(CpuTimes { busy, steal, all: busy + idle + iowait + steal })
}

impl CpuTimes {
    fn since(self, before: CpuTimes, cores: u64) -> CpuUse {
        let all = self.all.saturating_sub(before.all);
        if all == 0 {
            return CpuUse::default();
        }
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / all as f64;
        CpuUse {
            steal_percent: Some(share(self.steal, before.steal) * 100.0),
            busy_cores: Some(share(self.busy, before.busy) * cores as f64),
        }
    }
}

/// Why the engine's ring is not available, if it is not. Runs on a separate thread because it changes its timer slack.
fn try_io_uring() -> Option<String> {
    let ring = || Uring::new(Size { connections: 1, in_flight: 1, keep_alive: true, sources: false }).err();
    match std::thread::spawn(ring).join() {
        Ok(error) => error.map(|e| e.to_string()),
        Err(_) => Some("the attempt failed".to_owned()),
    }
}

/// Whether connections to this machine are tracked: opens a few and compares the table's entry count. Other connections
/// come and go meanwhile, so values in between mean "unknown".
fn try_tracking(root: &Path) -> Option<bool> {
    const TRIED: u64 = 8;
    let count = || Some(conntrack(root)?.count);
    let listener = TcpListener::bind("127.0.0.1:0").ok()?;
    let address = listener.local_addr().ok()?;
    let before = count()?;
    let within = Duration::from_secs(1);
    let made: Vec<_> = (0..TRIED).map_while(|_| TcpStream::connect_timeout(&address, within).ok()).collect();
    let after = count()?;
    match (made.len() as u64 == TRIED, after) {
        (_, 0) => Some(false),
        (true, after) if after >= before + TRIED => Some(true),
        (true, after) if after <= before => Some(false),
        _ => None,
    }
}
