//! What each fact means for a load. Pure; a check returns `None` if it does not apply to the load.

use loadlab_load::IoChoice;
use loadlab_load::io::uring::{MAX_RINGS, RESERVED_FILES};
use loadlab_plan::Isolation;
use loadlab_record::text::units::{format_bytes, format_count, plural};

use super::{Conntrack, Demand, Facts, Finding, Severity};

type Check = fn(Option<&Demand>, &Facts) -> Option<Finding>;

/// All checks, in the order they are reported.
pub(super) const ALL: &[Check] = &[
    open_files,
    component_files,
    source_ports,
    closed_connections,
    accept_queue,
    half_open,
    connection_tracking,
    io_uring,
    cores,
    cpu_quota,
    others,
    steal,
    governor,
    clock,
    memory,
    swap,
];

/// How long the kernel keeps the side that closed first (`TCP_TIMEWAIT_LEN`), and after how long a port may be reused
/// if `tcp_tw_reuse` allows it.
const TIME_WAIT_S: f64 = 60.0;
const REUSE_S: f64 = 1.0;
/// The backlog that nginx, Node and Redis request by default.
const COMMON_BACKLOG: u64 = 511;
/// Memory of the process without connections; then, per connection, ours and the kernel's for one end.
const BASE_BYTES: u64 = 12 << 20;
const OWN_BYTES: u64 = 512;
const KERNEL_BYTES: u64 = 3584;
/// A closed-loop load without keep-alive may well open this many connections a second.
const FAST_PER_S: f64 = 10_000.0;

fn n(value: u64) -> String {
    format_count(value as f64)
}

/// Rounds up to a power of two, the usual form of such settings.
fn round_up(value: u64) -> u64 {
    value.checked_next_power_of_two().unwrap_or(value)
}

/// A blocker if it is certain to happen, a doubt if it only may.
fn by_certainty(sure: bool) -> Severity {
    if sure { Severity::Blocker } else { Severity::Doubt }
}

fn on_uring(planned: Option<&Demand>, facts: &Facts) -> bool {
    planned.is_none_or(|p| p.io != IoChoice::Epoll) && facts.io_uring.refused.is_none()
}

fn open_files(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let limit = facts.open_files?;
    let found = |figure: String| Finding::new("open files", figure);
    let Some(soft) = limit.soft else {
        return Some(
            found("unlimited".to_owned()).effect(Severity::Ok, "connections are limited only by memory"),
        );
    };
    let found = found(format!("{} allowed", n(soft)));
    let room = soft.saturating_sub(facts.open_files_used + RESERVED_FILES);
    let Some(planned) = planned else {
        let effect = match on_uring(None, facts) {
            true => "sockets of io_uring need none".to_owned(),
            false => format!("room for {} connections", n(room)),
        };
        return Some(found.effect(Severity::Ok, effect));
    };
    if on_uring(Some(planned), facts) {
        return Some(rings(planned, soft, facts.component_files.unwrap_or(soft), found));
    }
    let most = planned.connections_most;
    if most <= room {
        return Some(found.effect(Severity::Ok, format!("room for {} connections", n(most))));
    }
    let needed = most.saturating_add(facts.open_files_used + RESERVED_FILES);
    let effect = format!(
        "{} of {} connections could not be opened: their requests fail as `connect`",
        n(most - room),
        n(most)
    );
    let remedy = match limit.hard.is_none_or(|hard| needed <= hard) {
        true => format!("ulimit -n {needed}"),
        false => format!("sudo prlimit --pid $$ --nofile={needed}:{needed}"),
    };
    Some(found.effect(by_certainty(planned.connections > room), effect).remedy(remedy))
}

/// A component that is to have more open files than this process can grant would not start.
fn component_files(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let (wanted, component) = planned?.component_files.as_ref()?;
    let found = Finding::new("component files", format!("{} for `{component}`", n(*wanted)));
    match facts.open_files?.hard {
        Some(hard) if *wanted > hard && !facts.may_raise_limits => {
            let effect = format!("the hard limit is {}: the component would not start", n(hard));
            let remedy = format!("sudo prlimit --pid $$ --nofile={wanted}:{wanted}");
            Some(found.effect(Severity::Blocker, effect).remedy(remedy))
        }
        _ => Some(found.effect(Severity::Ok, "allowed")),
    }
}

/// io_uring sockets use no descriptors, but the same limit bounds the size of a ring's table.
fn rings(planned: &Demand, soft: u64, of_server: u64, found: Finding) -> Finding {
    let per_ring = soft.saturating_sub(RESERVED_FILES).max(1);
    let threads = planned.threads.max(1);
    let rings = planned.connections_most.div_ceil(threads).div_ceil(per_ring).max(1);
    let max_rings = MAX_RINGS as u64;
    if rings > max_rings {
        let most = per_ring.saturating_mul(max_rings * threads);
        let effect = format!(
            "a thread has at most {MAX_RINGS} rings of {} sockets each, all threads {} sockets",
            n(per_ring),
            n(most)
        );
        let needed = planned.connections_most.div_ceil(threads * max_rings) + RESERVED_FILES;
        return found
            .effect(by_certainty(planned.connections > most), effect)
            .remedy(format!("ulimit -n {needed}"));
    }
    // A server on this machine most likely runs under the shell's limit, and its sockets are ordinary ones.
    if planned.loopback && planned.connections > of_server {
        let effect = format!(
            "sockets of io_uring need none here, but a server process that may have {} accepts {0} of {}",
            n(of_server),
            n(planned.connections)
        );
        return found
            .effect(Severity::Note, effect)
            .remedy(format!("ulimit -n {}", planned.connections + RESERVED_FILES));
    }
    let effect = match rings {
        1 => "sockets of io_uring need none".to_owned(),
        _ => format!("sockets of io_uring need none; {rings} rings per thread"),
    };
    found.effect(Severity::Ok, effect)
}

/// Number of ports from one source address to one destination.
fn ports(facts: &Facts) -> Option<u64> {
    let (from, to) = facts.port_range?;
    Some((u64::from(to - from) + 1).saturating_sub(facts.ports_reserved))
}

/// Number of ports from all sources to all destinations.
fn all_ports(each: u64, planned: &Demand) -> u64 {
    each.saturating_mul(planned.sources.max(1)).saturating_mul((planned.destinations.len() as u64).max(1))
}

fn port_figure(each: u64, planned: &Demand) -> String {
    let times = |count: u64, name: &str| match count {
        0 | 1 => String::new(),
        _ => format!(" × {} {name}", n(count)),
    };
    let (sources, destinations) = (planned.sources, planned.destinations.len() as u64);
    format!("{}{}{}", n(each), times(sources, "sources"), times(destinations, "destinations"))
}

/// The most serious finding among groups of loads that share ports; the first, if several are equally serious.
fn worst_of(groups: &[Demand], of: impl Fn(&Demand) -> Finding) -> Option<Finding> {
    groups.iter().map(of).min_by_key(|found| std::cmp::Reverse(found.severity))
}

/// The remedy: a wider port range if that is enough, otherwise more source addresses.
fn more_ports(planned: &Demand, each: u64, needed: f64) -> String {
    const WIDEST: u64 = 65_535 - 1024 + 1;
    let destinations = (planned.destinations.len() as u64).max(1);
    let pairs = planned.sources.max(1) * destinations;
    if each < WIDEST && needed <= (WIDEST * pairs) as f64 || !planned.loopback {
        return "sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"".to_owned();
    }
    // 8,000 connections per source, as the engine itself chooses: finding the last free ports is slow.
    let sources = ((needed / (8000 * destinations) as f64).ceil() as u32).clamp(2, 65_000);
    let last = std::net::Ipv4Addr::from(0x7f00_0101 + (sources - 1));
    format!("loadlab bench … --source 127.0.1.1-{last}")
}

fn source_ports(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let each = ports(facts)?;
    let Some(planned) = planned else {
        let effect = format!("{} connections from one address to one server", n(each));
        return Some(Finding::new("source ports", n(each)).effect(Severity::Ok, effect));
    };
    worst_of(&planned.by_ports(), |loads| ports_of(loads, each)).or_else(|| {
        let effect = "none needed: no target uses TCP";
        Some(Finding::new("source ports", n(each)).effect(Severity::Ok, effect))
    })
}

/// The finding about the ports of loads that share them.
fn ports_of(planned: &Demand, each: u64) -> Finding {
    let found = Finding::new("source ports", port_figure(each, planned));
    let (capacity, most) = (all_ports(each, planned), planned.connections_most);
    if most > capacity {
        let effect = format!(
            "no port for {} of {} connections: their requests fail as `connect`",
            n(most - capacity),
            n(most)
        );
        let sure = planned.connections > capacity;
        return found.effect(by_certainty(sure), effect).remedy(more_ports(planned, each, most as f64));
    }
    if planned.connections as f64 > 0.85 * capacity as f64 {
        let effect = "enough, but connecting gets slow: finding the last free ports takes the kernel long";
        return found.effect(Severity::Note, effect).remedy(more_ports(planned, each, capacity as f64 * 2.0));
    }
    found.effect(Severity::Ok, format!("enough for {} connections", n(most)))
}

/// Without keep-alive: ports still held by closed connections.
fn closed_connections(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let each = ports(facts)?;
    let reuse = facts.tw_reuse?;
    let Some(planned) = planned else {
        let held_s = if reuse == 0 { TIME_WAIT_S } else { REUSE_S };
        let found = Finding::new("closed connections", format!("hold a port {held_s} s"));
        let per_s = format!("{} new connections/s", format_count((each as f64 / held_s).floor()));
        return Some(found.effect(Severity::Ok, format!("up to {per_s} without keep-alive")));
    };
    let closing: Vec<Demand> = planned.by_ports().into_iter().filter(|loads| !loads.keep_alive).collect();
    worst_of(&closing, |loads| closed_of(loads, each, reuse))
}

/// The finding about shared ports held by closed connections.
fn closed_of(planned: &Demand, each: u64, reuse: u64) -> Finding {
    // 2: only over the loopback interface.
    let is_over_loopback = planned.loopback && planned.isolation != Isolation::Each;
    let reused = reuse == 1 || reuse == 2 && is_over_loopback;
    let held_s = if reused { REUSE_S } else { TIME_WAIT_S };
    let capacity = all_ports(each, planned) as f64;
    let found = Finding::new("closed connections", format!("hold a port {held_s} s"));
    let per_s = format!("{} new connections/s", format_count((capacity / held_s).floor()));
    let remedy = || match reused {
        false => "sysctl -w net.ipv4.tcp_tw_reuse=1".to_owned(),
        true => more_ports(planned, each, capacity * 2.0),
    };
    match planned.surely_opened_within(held_s) {
        Some(opened) if opened <= capacity => found
            .effect(Severity::Ok, format!("enough for {} connections in that time", format_count(opened))),
        Some(opened) => {
            let after_s = full_after_s(planned, capacity).map(|s| format!(" after {} s", format_count(s)));
            let effect = format!(
                "{} connections in that time for {} ports: where loadlab closes first, ports run out{} and \
                 requests fail as `connect`",
                format_count(opened),
                format_count(capacity),
                after_s.unwrap_or_default()
            );
            found.effect(Severity::Doubt, effect).remedy(remedy())
        }
        None if capacity / held_s < FAST_PER_S => {
            let effect = format!(
                "above {per_s}, ports run out where loadlab closes first, and requests fail as `connect`"
            );
            found.effect(Severity::Doubt, effect).remedy(remedy())
        }
        None => found.effect(Severity::Ok, format!("up to {per_s}")),
    }
}

/// When new connections will have filled the room left by those kept open, in seconds.
fn full_after_s(planned: &Demand, room: f64) -> Option<f64> {
    let kept = planned.surely_opened_within(0.0)?;
    planned.new_per_s.filter(|per_s| *per_s > 0.0).map(|per_s| (room - kept).max(0.0) / per_s)
}

/// Users that connect at the same moment, compared with the queue of a server on this machine.
fn accept_queue(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let longest = facts.somaxconn?;
    let found = Finding::new("accept queue", format!("somaxconn {}", n(longest)));
    let Some(planned) = planned else {
        let effect =
            format!("{} may connect at once, if the server asks for a queue of that length", n(longest));
        return Some(found.effect(Severity::Ok, effect));
    };
    let burst = planned.burst;
    if !planned.loopback {
        return Some(found.effect(Severity::Ok, "the server is on another machine, and so is its queue"));
    }
    if burst > longest {
        let effect = format!(
            "{} connect at once: those that find the queue full are retried after 1 s, 3 s, 7 s, which their \
             response times include",
            n(burst)
        );
        let remedy = format!("sysctl -w net.core.somaxconn={}", round_up(burst));
        return Some(found.effect(Severity::Doubt, effect).remedy(remedy));
    }
    if burst > COMMON_BACKLOG {
        let effect = format!(
            "{} connect at once; nginx, Node and Redis ask for a queue of {COMMON_BACKLOG} by default",
            n(burst)
        );
        let seconds = burst.div_ceil(COMMON_BACKLOG);
        return Some(
            found.effect(Severity::Note, effect).remedy(format!("loadlab bench … --ramp {seconds}s")),
        );
    }
    Some(found.effect(Severity::Ok, "long enough for all that connect at once"))
}

fn half_open(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let longest = facts.syn_backlog?;
    let cookies = if facts.syn_cookies { "cookies beyond" } else { "no cookies" };
    let found = Finding::new("half-open queue", format!("{}, {cookies}", n(longest)));
    let burst = planned.filter(|p| p.loopback).map_or(0, |p| p.burst);
    if burst <= longest {
        return Some(found.effect(Severity::Ok, "long enough for all that connect at once"));
    }
    let remedy = format!("sysctl -w net.ipv4.tcp_max_syn_backlog={}", round_up(burst));
    let (severity, effect) = match facts.syn_cookies {
        true => (Severity::Note, "some handshakes are answered with cookies, which costs the server time"),
        false => (Severity::Doubt, "handshakes beyond it are dropped and retried after 1 s, 3 s, 7 s"),
    };
    Some(found.effect(severity, format!("{} connect at once: {effect}", n(burst))).remedy(remedy))
}

fn connection_tracking(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let Some(table) = facts.conntrack else {
        return Some(Finding::new("connection tracking", "none").effect(Severity::Ok, "no table to fill"));
    };
    let figure = format!("{} of {} entries", n(table.count), n(table.max));
    let found = Finding::new("connection tracking", figure);
    if planned.is_some_and(|p| p.isolation != Isolation::None) {
        let effect = "nothing is tracked in the run's own network";
        return Some(found.effect(Severity::Ok, effect));
    }
    if table.tracks == Some(false) && planned.is_none_or(|p| p.loopback) {
        return Some(found.effect(Severity::Ok, "connections to this machine are not tracked"));
    }
    let room = table.max.saturating_sub(table.count);
    let per_s = room as f64 / table.time_wait_s.max(1) as f64;
    let Some(planned) = planned else {
        let effect = format!(
            "fills up at {} new connections/s; then packets are dropped without an error",
            format_count(per_s)
        );
        let severity = if table.tracks == Some(true) { Severity::Note } else { Severity::Ok };
        return Some(found.effect(severity, effect));
    };
    let surely = planned.surely_opened_within(table.time_wait_s as f64);
    let surely_full = surely.is_some_and(|opened| opened > room as f64);
    Some(match planned.opened_within(table.time_wait_s as f64) {
        Some(opened) if opened <= room as f64 => {
            found.effect(Severity::Ok, format!("room for {} connections", format_count(opened)))
        }
        Some(opened) => {
            let after_s = full_after_s(planned, room as f64).filter(|_| !planned.keep_alive && surely_full);
            let when = match after_s {
                Some(s) => format!("full after {} s", format_count(s)),
                None => "it will be full".to_owned(),
            };
            let effect = format!(
                "{when}: then packets are dropped without an error, and connects hang, also those of other programs"
            );
            let certain = table.tracks == Some(true) && surely_full;
            found.effect(by_certainty(certain), effect).remedy(track_less(planned, table, opened))
        }
        None if per_s < FAST_PER_S => {
            let effect = format!(
                "above {} new connections/s it fills up within {} s: then packets are dropped without an error",
                format_count(per_s),
                table.time_wait_s
            );
            let needed = FAST_PER_S * table.time_wait_s as f64;
            found.effect(Severity::Doubt, effect).remedy(track_less(planned, table, needed))
        }
        None => found.effect(Severity::Ok, format!("up to {} new connections/s", format_count(per_s))),
    })
}

/// A separate namespace has no rules, so nothing in it is tracked; for a target elsewhere, a larger table.
fn track_less(planned: &Demand, table: Conntrack, needed: f64) -> String {
    match planned.loopback {
        true => "unshare -rn sh -c 'ip link set lo up && exec loadlab …'   # or, as root, `isolate: shared` in the plan"
            .to_owned(),
        false => {
            let max = round_up((table.count as f64 + needed).ceil() as u64);
            format!("sysctl -w net.netfilter.nf_conntrack_max={max}")
        }
    }
}

fn io_uring(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let Some(reason) = &facts.io_uring.refused else {
        return Some(Finding::new("io_uring", "allowed").effect(Severity::Ok, "the faster backend is used"));
    };
    if planned.is_some_and(|p| p.io == IoChoice::Epoll) {
        let effect = "you chose epoll";
        return Some(Finding::new("io_uring", "refused").effect(Severity::Ok, effect));
    }
    let disabled = facts.io_uring.disabled.filter(|n| *n > 0);
    let figure = match disabled {
        Some(n) => format!("kernel.io_uring_disabled = {n}"),
        None => format!("refused: {reason}"),
    };
    let found = Finding::new("io_uring", figure);
    let found = match planned.is_some_and(|p| p.io == IoChoice::Uring) {
        true => found.effect(Severity::Blocker, "`--io uring` cannot work"),
        false => found.effect(Severity::Note, "epoll is used: more CPU per request, and open files count"),
    };
    Some(found.remedy(match disabled {
        Some(_) => "sysctl -w kernel.io_uring_disabled=0",
        None => "docker run --security-opt seccomp=unconfined …",
    }))
}

fn cores(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let figure = match facts.cores < facts.cores_online {
        true => format!("{} of {}", n(facts.cores), n(facts.cores_online)),
        false => n(facts.cores),
    };
    let found = Finding::new("cores", figure);
    let Some(planned) = planned else {
        let severity = if facts.cores < 2 { Severity::Note } else { Severity::Ok };
        let effect = match facts.cores {
            0 | 1 => "a system here shares its core with the load".to_owned(),
            cores => format!("{} for the load, {} for a system here", n(cores / 2), n(cores - cores / 2)),
        };
        return Some(found.effect(severity, effect));
    };
    let threads = planned.threads;
    if threads > facts.cores {
        let effect = format!(
            "{} load threads compete for cores: measured times include their own waiting",
            n(threads)
        );
        return Some(
            found
                .effect(Severity::Doubt, effect)
                .remedy(format!("loadlab bench … -t {}", (facts.cores / 2).max(1))),
        );
    }
    if planned.loopback && threads == facts.cores {
        let effect = format!(
            "{} no core to a system here: latencies include its wait for a core",
            plural(threads, "load thread leaves", "load threads leave")
        );
        let found = found.effect(Severity::Doubt, effect);
        return Some(match facts.cores {
            0 | 1 => found,
            cores => found.remedy(format!("loadlab bench … -t {}", cores / 2)),
        });
    }
    let left = facts.cores - threads;
    let rest = if planned.loopback { format!(", {} left to the system", n(left)) } else { String::new() };
    Some(found.effect(Severity::Ok, format!("{} for the load{rest}", n(threads))))
}

fn cpu_quota(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let Some((quota, path)) = &facts.cgroup.cpu_cores else {
        return Some(
            Finding::new("CPU quota on loadlab", "none").effect(Severity::Ok, "it may use whole cores"),
        );
    };
    let found = Finding::new("CPU quota on loadlab", format!("{} cores", format_count(*quota)));
    let threads = planned.map_or(1, |p| p.threads);
    let remedy = match path.file_name().is_some_and(|f| f == "cpu.max") {
        true => format!("echo max > {}", path.display()),
        false => format!("echo -1 > {}", path.display()),
    };
    if *quota < threads as f64 {
        let effect = format!(
            "{} throttled for the rest of each period once the quota is used up: requests go out late, in bursts",
            plural(threads, "load thread is", "load threads are")
        );
        return Some(found.effect(Severity::Doubt, effect).remedy(remedy));
    }
    let effect = "enough for the load threads, but other processes in the group share it";
    Some(found.effect(Severity::Note, effect).remedy(remedy))
}

fn others(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let busy = facts.cpu.busy_cores?;
    let found = Finding::new("other programs", format!("{busy:.1} cores busy"));
    let needed = planned.map_or(1, |p| p.threads + u64::from(p.loopback)).min(facts.cores);
    // Other programs may be busy on any core of the machine, and only some of its cores may be ours.
    let idle = facts.cores_online.max(facts.cores) as f64 - busy;
    let left = idle.min(facts.cores as f64);
    // An idle desktop uses about a tenth of a core.
    if left + 0.1 * facts.cores as f64 >= needed as f64 {
        return Some(found.effect(Severity::Ok, "enough cores are idle"));
    }
    let effect = format!(
        "{:.1} of {} cores left for the load and its system: latencies include waiting for a core",
        left.max(0.0),
        n(facts.cores)
    );
    Some(found.effect(Severity::Doubt, effect).remedy("top -o %CPU"))
}

fn steal(_: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let steal = facts.cpu.steal_percent?;
    let found = Finding::new("steal time", format!("{steal:.1}%"));
    Some(match steal {
        5.0.. => found.effect(
            Severity::Doubt,
            "the hypervisor gives this machine's cores to others: latencies include these pauses; repeat on a \
             dedicated machine",
        ),
        1.0.. => found.effect(Severity::Note, "the hypervisor gives some of this machine's time to others"),
        _ => found.effect(Severity::Ok, "no core time is stolen"),
    })
}

fn governor(_: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let Some(slow) = facts.governors.iter().find(|g| g.name != "performance") else {
        let figure = facts.governors.first().map_or("none", |_| "performance");
        let effect = "the clock rate is fixed";
        return Some(Finding::new("CPU governor", figure).effect(Severity::Ok, effect));
    };
    let figure = format!("{} on {}", slow.name, n(slow.count));
    let found = Finding::new("CPU governor", figure);
    // These drivers call it "powersave" although it scales with the load.
    let scales = slow.driver.contains("pstate") || slow.driver.contains("epp");
    let found = match slow.name == "powersave" && !scales {
        true => found.effect(
            Severity::Doubt,
            "the cores stay at their lowest clock rate: everything is slower \
                                               than it could be",
        ),
        false => found.effect(
            Severity::Note,
            "the clock rate follows the load: low request rates measure slower than high ones, and early \
             seconds slower than late ones",
        ),
    };
    Some(found.remedy("cpupower frequency-set -g performance"))
}

fn clock(_: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let source = facts.clock_source.as_ref()?;
    let found = Finding::new("clock source", source.clone());
    const SLOW: [&str; 6] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit", "xen"];
    if !SLOW.contains(&source.as_str()) {
        return Some(found.effect(Severity::Ok, "read without a system call"));
    }
    let found = found.effect(
        Severity::Doubt,
        "each clock reading is a system call of a microsecond or more: fewer requests per second, coarser times",
    );
    let better =
        ["tsc", "kvm-clock", "arch_sys_counter"].iter().find(|b| facts.clock_sources.iter().any(|s| s == *b));
    Some(match better {
        Some(better) => {
            let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            found.remedy(format!("echo {better} > {file}"))
        }
        None => found,
    })
}

fn memory(planned: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    let of_group = facts
        .cgroup
        .memory_bytes
        .as_ref()
        .map(|(limit, path)| (limit.saturating_sub(facts.cgroup.memory_used_bytes), Some((limit, path))));
    let of_machine = facts.memory.available_bytes.map(|free| (free, None));
    let (free, group) = of_group.into_iter().chain(of_machine).min_by_key(|(free, _)| *free)?;
    let figure = match group {
        Some((limit, _)) => {
            format!("{} free below a limit of {}", format_bytes(free as f64), format_bytes(*limit as f64))
        }
        None => format!("{} free", format_bytes(free as f64)),
    };
    let found = Finding::new("memory", figure);
    let Some(planned) = planned else {
        let each = OWN_BYTES + 2 * KERNEL_BYTES;
        let connections = free.saturating_sub(BASE_BYTES) / each / 1000 * 1000;
        return Some(found.effect(Severity::Ok, format!("about {} connections, both ends", n(connections))));
    };
    // If the server is on this machine, the kernel's other end is in the same memory; what the server uses is unknown.
    let ends = if planned.loopback { 2 } else { 1 };
    let each = OWN_BYTES + ends * KERNEL_BYTES;
    let needs = |connections: u64| connections.saturating_mul(each).saturating_add(BASE_BYTES);
    let most = needs(planned.connections_most);
    let effect =
        format!("{} connections take about {}", n(planned.connections_most), format_bytes(most as f64));
    if most <= free / 2 {
        return Some(found.effect(Severity::Ok, effect));
    }
    if most <= free {
        return Some(found.effect(Severity::Note, format!("{effect}, which leaves little for the system")));
    }
    let effect = format!("{effect}: the kernel would kill loadlab or something else during the load");
    let found = found.effect(by_certainty(needs(planned.connections) > free), effect);
    Some(match group {
        Some((_, path)) => {
            let none = if path.file_name().is_some_and(|f| f == "memory.max") { "max" } else { "-1" };
            found.remedy(format!("echo {none} > {}", path.display()))
        }
        None => found,
    })
}

fn swap(_: Option<&Demand>, facts: &Facts) -> Option<Finding> {
    const LITTLE: u64 = 64 << 20;
    let used = facts.memory.swap_used_bytes;
    let found = Finding::new("swap", format!("{} in use", format_bytes(used as f64)));
    Some(match facts.memory.swap_pages_per_s {
        Some(pages) if pages >= 1.0 => {
            let effect = format!(
                "{} pages/s are swapped in and out: whatever needs one waits for the disk",
                format_count(pages)
            );
            found.effect(Severity::Doubt, effect).remedy("swapoff -a")
        }
        _ if used > LITTLE => {
            let effect = "swapped-out pages are read from the disk when they are first needed";
            found.effect(Severity::Note, effect).remedy("swapoff -a")
        }
        _ => found.effect(Severity::Ok, "no swapping"),
    })
}
