//! Tables of the preflight's conclusions, and facts read from made-up machines.

use std::path::Path;
use std::time::Duration;

use loadlab_load::IoChoice;

use super::*;

/// A machine without anything that spoils a load.
fn good() -> Facts {
    Facts {
        open_files: Some(Limit { soft: Some(20_000), hard: Some(20_000) }),
        may_raise_limits: false,
        open_files_used: 10,
        component_files: None,
        port_range: Some((32_768, 60_999)),
        ports_reserved: 0,
        tw_reuse: Some(2),
        somaxconn: Some(4096),
        syn_backlog: Some(4096),
        syn_cookies: true,
        conntrack: None,
        cgroup: CgroupLimits::default(),
        cores: 4,
        cores_online: 4,
        governors: Vec::new(),
        cpu: CpuUse { steal_percent: Some(0.0), busy_cores: Some(0.1) },
        clock_source: Some("tsc".to_owned()),
        clock_sources: vec!["tsc".to_owned(), "hpet".to_owned()],
        io_uring: IoUring { disabled: Some(0), refused: None },
        memory: Memory { available_bytes: Some(8 << 30), swap_used_bytes: 0, swap_pages_per_s: Some(0.0) },
    }
}

/// Fifty users on loopback for ten seconds.
fn small() -> Demand {
    Demand {
        connections: 50,
        connections_most: 50,
        burst: 50,
        keep_alive: true,
        new_per_s: None,
        new_in_all: None,
        duration_s: Some(10.0),
        destinations: vec!["127.0.0.1:80".to_owned()],
        is_tcp: true,
        loopback: true,
        sources: 1,
        threads: 2,
        io: IoChoice::Auto,
        component_files: None,
        isolation: loadlab_plan::Isolation::None,
        parts: Vec::new(),
    }
}

fn users(connections: u64) -> Demand {
    Demand { connections, connections_most: connections, burst: connections, ..small() }
}

/// Requests at a fixed rate, each on a new connection.
fn opening(rate_per_s: f64, duration_s: f64) -> Demand {
    Demand {
        connections: 1,
        connections_most: 10_000,
        burst: 0,
        keep_alive: false,
        new_per_s: Some(rate_per_s),
        duration_s: Some(duration_s),
        ..small()
    }
}

fn epoll(planned: Demand) -> Demand {
    Demand { io: IoChoice::Epoll, ..planned }
}

fn tracked(max: u64, count: u64, tracks: Option<bool>) -> Facts {
    Facts { conntrack: Some(Conntrack { max, count, time_wait_s: 120, tracks }), ..good() }
}

/// Asserts severity, effect (a substring) and remedy (a substring; empty: none) of one finding.
fn check(what: &str, planned: &Demand, facts: &Facts, expect: (Severity, &str, &str)) {
    let found = findings(Some(planned), facts);
    let found = found.iter().find(|f| f.what == what).unwrap_or_else(|| panic!("nothing about {what}"));
    let remedy = found.remedy.as_deref().unwrap_or_default();
    assert_eq!(found.severity, expect.0, "{found}");
    assert!(found.effect.contains(expect.1), "{:?} is not in: {found}", expect.1);
    assert!(remedy.contains(expect.2) && remedy.is_empty() == expect.2.is_empty(), "{:?}: {found}", expect.2);
}

use Severity::{Blocker, Doubt, Note, Ok as Fine};

#[test]
fn a_good_machine_has_nothing_to_say() {
    assert_eq!(notes(&small(), &good()), Vec::<String>::new());
    assert!(findings(Some(&small()), &good()).iter().all(|f| f.severity == Fine));
    let found = findings(None, &good());
    assert!(found.iter().all(|f| f.severity == Fine && !f.effect.is_empty()), "{found:?}");
    let open = Demand { connections: 1, connections_most: 10_000, burst: 0, new_per_s: Some(1e4), ..small() };
    assert_eq!(notes(&open, &good()), Vec::<String>::new());
}

#[test]
fn unknown_facts_about_the_machine_raise_no_notes() {
    let silent = Facts { cores: 4, cores_online: 4, ..Facts::default() };
    assert_eq!(notes(&users(1_000_000), &silent), Vec::<String>::new());
    assert_eq!(notes(&opening(1e6, 60.0), &silent), Vec::<String>::new());
}

#[test]
fn open_files() {
    let what = "open files";
    let facts = |soft, hard| Facts { open_files: Some(Limit { soft, hard }), ..good() };
    let tight = facts(Some(1024), Some(20_000));
    check(what, &epoll(users(950)), &tight, (Fine, "room for 950 connections", ""));
    check(
        what,
        &epoll(users(951)),
        &tight,
        (Blocker, "1 of 951 connections could not be opened", "ulimit -n 1025"),
    );
    let beyond = (Blocker, "as `connect`", "sudo prlimit --pid $$ --nofile=30074:30074");
    check(what, &epoll(users(30_000)), &tight, beyond);
    // With a cap that may never be reached, it is only a doubt.
    let open = Demand { connections: 1, burst: 0, ..epoll(users(5000)) };
    check(what, &open, &tight, (Doubt, "4,050 of 5,000", "ulimit -n 5074"));
    check(what, &users(900), &tight, (Fine, "sockets of io_uring need none", ""));
    check(what, &users(5000), &tight, (Note, "accepts 1,024 of 5,000", "ulimit -n 5064"));
    let away = Demand { loopback: false, ..users(5000) };
    check(what, &away, &tight, (Fine, "3 rings per thread", ""));
    let million = Demand { loopback: false, ..users(1_000_000) };
    check(
        what,
        &million,
        &tight,
        (Blocker, "64 rings of 960 sockets each, all threads 122,880", "ulimit -n 7877"),
    );
    check(what, &epoll(users(1_000_000)), &facts(None, None), (Fine, "only by memory", ""));
    let refused = IoUring { disabled: Some(2), refused: Some("not permitted".to_owned()) };
    let without = Facts { io_uring: refused, ..tight };
    check(what, &users(5000), &without, (Blocker, "could not be opened", "ulimit -n 5074"));
}

#[test]
fn files_of_components() {
    let what = "component files";
    let with = |files| Demand { component_files: Some((files, "web".to_owned())), ..small() };
    assert!(findings(Some(&small()), &good()).iter().all(|f| f.what != what));
    check(what, &with(20_000), &good(), (Fine, "allowed", ""));
    let beyond = (Blocker, "the hard limit is 20,000: the component would not start", "--nofile=50000:50000");
    check(what, &with(50_000), &good(), beyond);
    let root = Facts { may_raise_limits: true, ..good() };
    check(what, &with(50_000), &root, (Fine, "allowed", ""));
    let unlimited = Facts { open_files: Some(Limit { soft: Some(1024), hard: None }), ..good() };
    check(what, &with(50_000), &unlimited, (Fine, "allowed", ""));
}

#[test]
fn source_ports() {
    let what = "source ports";
    check(what, &users(20_000), &good(), (Fine, "enough for 20,000 connections", ""));
    check(what, &users(25_000), &good(), (Note, "slow", "ip_local_port_range=\"1024 65535\""));
    check(what, &users(30_000), &good(), (Blocker, "1,768 of 30,000", "ip_local_port_range=\"1024 65535\""));
    check(what, &users(100_000), &good(), (Blocker, "71,768 of 100,000", "--source 127.0.1.1-127.0.1.13"));
    check(what, &users(1_000_000), &good(), (Blocker, "as `connect`", "--source 127.0.1.1-127.0.1.125"));
    let two =
        Demand { destinations: vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()], ..users(30_000) };
    check(what, &two, &good(), (Fine, "30,000", ""));
    let many = Demand { sources: 125, ..users(1_000_000) };
    check(what, &many, &good(), (Fine, "1,000,000", ""));
    let reserved = Facts { ports_reserved: 28_000, ..good() };
    check(what, &users(300), &reserved, (Blocker, "68 of 300", "1024 65535"));
    let open = Demand { connections: 1, connections_most: 50_000, ..small() };
    check(what, &open, &good(), (Doubt, "21,768 of 50,000", "1024 65535"));
}

#[test]
fn closed_connections() {
    let what = "closed connections";
    let none = Facts { tw_reuse: Some(0), ..good() };
    assert!(findings(Some(&small()), &none).iter().all(|f| f.what != what));
    check(what, &opening(400.0, 600.0), &none, (Fine, "24,000 connections in that time", ""));
    check(what, &opening(1000.0, 20.0), &none, (Fine, "20,000 connections in that time", ""));
    let spent = (Doubt, "60,000 connections in that time for 28,232 ports", "tcp_tw_reuse=1");
    check(what, &opening(1000.0, 600.0), &none, spent);
    check(what, &opening(1000.0, 600.0), &none, (Doubt, "after 28.2 s", "tcp_tw_reuse=1"));
    check(what, &opening(1000.0, 600.0), &good(), (Fine, "1,000 connections in that time", ""));
    check(what, &opening(40_000.0, 600.0), &good(), (Doubt, "40,000 connections", "1024 65535"));
    // Ports to other machines are reused early only if the setting is 1.
    let away = Demand { loopback: false, ..opening(1000.0, 600.0) };
    check(what, &away, &good(), (Doubt, "60,000", "tcp_tw_reuse=1"));
    let closed = Demand { keep_alive: false, ..small() };
    check(what, &closed, &good(), (Fine, "up to 28,232 new connections/s", ""));
    check(what, &closed, &none, (Doubt, "above 470 new connections/s", "tcp_tw_reuse=1"));
    check(what, &Demand { new_in_all: Some(20_000), ..closed }, &none, (Fine, "20,000", ""));
}

/// What one load demands is not mixed up with the other loads' behaviour.
#[test]
fn several_loads_at_once() {
    let planned = |loads: &str| {
        let url = "journey: [ { get: \"http://127.0.0.1:1/\" } ]";
        let text = format!("loadlab: 1\nname: n\nloads:\n{}", loads.replace("URL", url));
        let plan = loadlab_plan::Plan::parse("p.yaml", &text, &loadlab_plan::Options::default()).unwrap();
        Demand::of_case(&plan.cases()[0], 1).unwrap()
    };
    let big = "  a: { users: 60000, duration: 1m, URL }\n";
    let beside = planned(&format!("{big}  b: {{ users: 5, duration: 1m, URL }}\n"));
    check("source ports", &beside, &good(), (Fine, "enough for", ""));
    // A load that runs out of ports is found even beside one that does not.
    let open = "  b: { rate: 5/s, max_in_flight: 40000, duration: 1m, URL }\n";
    check("source ports", &planned(&format!("{big}{open}")), &good(), (Doubt, "11,768 of 40,000", "1024"));

    let fast = "  a: { rate: 5000/s, duration: 10m, max_in_flight: 1000, URL }\n";
    let slow = "  b: { rate: 1/s, duration: 10m, keep_alive: false, URL }\n";
    let table = tracked(262_144, 0, Some(true));
    let both = planned(&format!("{fast}{slow}"));
    check("connection tracking", &both, &table, (Fine, "room for 1,120 connections", ""));
    check("closed connections", &both, &good(), (Fine, "enough for 2 connections", ""));
    let full = planned(&format!("{fast}{}", slow.replace("1/s", "5000/s")));
    check("connection tracking", &full, &table, (Blocker, "full after 52.4 s", "unshare -rn"));
    // Users that arrive and leave produce closed connections.
    let sessions = "  a: { sessions: 5000/s, duration: 10m, URL }\n";
    check("connection tracking", &planned(sessions), &table, (Blocker, "full after 52.4 s", "unshare -rn"));
    // Beside a cap that may never be reached, it is only a doubt.
    let cap = "  a: { rate: 5/s, duration: 10m, max_in_flight: 300000, URL }\n";
    let both = planned(&format!("{cap}{slow}"));
    check("connection tracking", &both, &table, (Doubt, "it will be full", "unshare -rn"));
}

#[test]
fn the_networks_of_a_run() {
    let table = tracked(262_144, 0, Some(true));
    let none = (Fine, "nothing is tracked in the run's own network", "");
    for isolation in [loadlab_plan::Isolation::Shared, loadlab_plan::Isolation::Each] {
        check("connection tracking", &opening(5000.0, 600.0).isolated(isolation), &table, none);
    }
    // A link is not the loopback interface, where ports are reused early.
    let opening = opening(1000.0, 600.0);
    check("closed connections", &opening, &good(), (Fine, "1,000 connections in that time", ""));
    let linked = opening.isolated(loadlab_plan::Isolation::Each);
    check("closed connections", &linked, &good(), (Doubt, "60,000", ""));
    // A new network has the kernel's defaults, and a command run on the machine would not help.
    let tuned =
        Facts { port_range: Some((1024, 65_535)), tw_reuse: Some(1), somaxconn: Some(1 << 20), ..good() };
    check(
        "closed connections",
        &linked,
        &tuned,
        (Doubt, "60,000 connections in that time for 28,232 ports", ""),
    );
    check("accept queue", &users(5000), &tuned, (Note, "queue of 511", "--ramp"));
    for isolation in [loadlab_plan::Isolation::Shared, loadlab_plan::Isolation::Each] {
        let own = "set by a component whose `run` begins with the command";
        check("accept queue", &users(5000).isolated(isolation), &tuned, (Doubt, own, "somaxconn=8192"));
    }
}

#[test]
fn queues_of_a_server_here() {
    check("accept queue", &users(511), &good(), (Fine, "long enough", ""));
    check("accept queue", &users(512), &good(), (Note, "queue of 511", "--ramp 2s"));
    check("accept queue", &users(5000), &good(), (Doubt, "5,000 connect at once", "somaxconn=8192"));
    let ramped = Demand { burst: 500, ..users(5000) };
    check("accept queue", &ramped, &good(), (Fine, "long enough", ""));
    let away = Demand { loopback: false, ..users(5000) };
    check("accept queue", &away, &good(), (Fine, "another machine", ""));
    check("half-open queue", &users(5000), &good(), (Note, "cookies", "tcp_max_syn_backlog=8192"));
    check("half-open queue", &away, &good(), (Fine, "long enough", ""));
    let without = Facts { syn_cookies: false, ..good() };
    check("half-open queue", &users(5000), &without, (Doubt, "dropped", "tcp_max_syn_backlog=8192"));
    check("half-open queue", &users(4096), &without, (Fine, "long enough", ""));
}

#[test]
fn connection_tracking() {
    let what = "connection tracking";
    let table = |tracks| tracked(262_144, 0, tracks);
    check(what, &opening(5000.0, 600.0), &good(), (Fine, "no table", ""));
    check(what, &opening(5000.0, 600.0), &table(Some(false)), (Fine, "not tracked", ""));
    let full = (Blocker, "full after 52.4 s: then packets are dropped without an error", "unshare -rn");
    check(what, &opening(5000.0, 600.0), &table(Some(true)), full);
    check(what, &opening(5000.0, 600.0), &table(None), (Doubt, "full after 52.4 s", "unshare -rn"));
    check(what, &opening(5000.0, 30.0), &table(Some(true)), (Fine, "room for 150,000", ""));
    check(what, &opening(2000.0, 600.0), &table(Some(true)), (Fine, "room for 240,000", ""));
    // Without a rate, the machine sets the pace, and it can exceed this rate.
    let closed = Demand { keep_alive: false, ..small() };
    check(what, &closed, &table(Some(true)), (Doubt, "above 2,185 new connections/s", "unshare -rn"));
    check(what, &users(300_000), &table(Some(true)), (Blocker, "it will be full", "unshare -rn"));
    check(what, &users(200_000), &table(Some(true)), (Fine, "room for 200,000", ""));
    check(what, &users(200_000), &tracked(262_144, 100_000, Some(true)), (Blocker, "full", "unshare -rn"));
    let away = Demand { loopback: false, ..opening(5000.0, 600.0) };
    check(what, &away, &table(Some(false)), (Doubt, "full", "nf_conntrack_max=1048576"));
}

#[test]
fn io_uring() {
    let refused = |disabled| Facts {
        io_uring: IoUring { disabled: Some(disabled), refused: Some("Operation not permitted".to_owned()) },
        ..good()
    };
    check("io_uring", &small(), &good(), (Fine, "faster", ""));
    check("io_uring", &small(), &refused(2), (Note, "epoll is used", "kernel.io_uring_disabled=0"));
    check("io_uring", &small(), &refused(0), (Note, "epoll is used", "seccomp=unconfined"));
    check("io_uring", &epoll(small()), &refused(2), (Fine, "you chose epoll", ""));
    let forced = Demand { io: IoChoice::Uring, ..small() };
    check("io_uring", &forced, &refused(2), (Blocker, "cannot work", "io_uring_disabled=0"));
}

#[test]
fn cores_and_what_takes_them() {
    let cores = |cores| Facts { cores, ..good() };
    check("cores", &small(), &cores(3), (Fine, "2 for the load, 1 left to the system", ""));
    check("cores", &small(), &cores(2), (Doubt, "no core to a system", "-t 1"));
    check("cores", &Demand { threads: 1, ..small() }, &cores(1), (Doubt, "no core to a system", ""));
    check("cores", &Demand { threads: 9, ..small() }, &cores(4), (Doubt, "compete for cores", "-t 2"));
    check("cores", &Demand { loopback: false, ..small() }, &cores(2), (Fine, "2 for the load", ""));

    let quota = |n, path: &str| {
        let cgroup = CgroupLimits { cpu_cores: Some((n, path.into())), ..CgroupLimits::default() };
        Facts { cgroup, ..good() }
    };
    let what = "CPU quota on loadlab";
    check(what, &small(), &good(), (Fine, "whole cores", ""));
    check(what, &small(), &quota(0.5, "/a/cpu.max"), (Doubt, "late, in bursts", "echo max > /a/cpu.max"));
    let v1 = quota(3.0, "/a/cpu.cfs_quota_us");
    check(what, &small(), &v1, (Note, "enough", "echo -1 > /a/cpu.cfs_quota_us"));

    let used =
        |busy, steal| Facts { cpu: CpuUse { steal_percent: Some(steal), busy_cores: Some(busy) }, ..good() };
    check("other programs", &small(), &used(1.0, 0.0), (Fine, "idle", ""));
    check("other programs", &small(), &used(1.9, 0.0), (Doubt, "2.1 of 4 cores left", "top"));
    // If only some cores are ours, other programs can use the rest.
    let some = |busy| Facts { cores: 4, cores_online: 16, ..used(busy, 0.0) };
    check("other programs", &small(), &some(9.0), (Fine, "idle", ""));
    check("other programs", &small(), &some(14.1), (Doubt, "1.9 of 4 cores left", "top"));
    check("steal time", &small(), &used(0.0, 0.9), (Fine, "stolen", ""));
    check("steal time", &small(), &used(0.0, 1.0), (Note, "gives", ""));
    check("steal time", &small(), &used(0.0, 7.0), (Doubt, "pauses", ""));
}

#[test]
fn clocks() {
    let governor = |name: &str, driver: &str| Facts {
        governors: vec![Governor { name: name.to_owned(), driver: driver.to_owned(), count: 4 }],
        ..good()
    };
    let what = "CPU governor";
    let remedy = "cpupower frequency-set -g performance";
    check(what, &small(), &good(), (Fine, "fixed", ""));
    check(what, &small(), &governor("performance", "acpi-cpufreq"), (Fine, "fixed", ""));
    check(what, &small(), &governor("schedutil", "acpi-cpufreq"), (Note, "follows the load", remedy));
    check(what, &small(), &governor("powersave", "intel_pstate"), (Note, "follows the load", remedy));
    check(what, &small(), &governor("powersave", "acpi-cpufreq"), (Doubt, "lowest clock", remedy));

    let source = |name: &str| Facts { clock_source: Some(name.to_owned()), ..good() };
    check("clock source", &small(), &source("kvm-clock"), (Fine, "without a system call", ""));
    check("clock source", &small(), &source("hpet"), (Doubt, "system call", "echo tsc >"));
    let only = Facts { clock_sources: vec!["acpi_pm".to_owned()], ..source("acpi_pm") };
    check("clock source", &small(), &only, (Doubt, "system call", ""));
}

#[test]
fn memory_and_swap() {
    let free = |bytes| Facts { memory: Memory { available_bytes: Some(bytes), ..good().memory }, ..good() };
    check("memory", &users(100_000), &free(4 << 30), (Fine, "100,000 connections take", ""));
    check("memory", &users(100_000), &free(1 << 30), (Note, "leaves little", ""));
    check("memory", &users(100_000), &free(500 << 20), (Blocker, "would kill", ""));
    let open = Demand { connections: 1, ..users(100_000) };
    check("memory", &open, &free(500 << 20), (Doubt, "would kill", ""));
    let limit = CgroupLimits {
        memory_bytes: Some((20 << 20, "/a/memory.max".into())),
        memory_used_bytes: 9 << 20,
        ..CgroupLimits::default()
    };
    let limited = Facts { cgroup: limit, ..good() };
    check("memory", &small(), &limited, (Blocker, "would kill", "echo max > /a/memory.max"));

    let swap = |used, pages| Facts {
        memory: Memory { swap_used_bytes: used, swap_pages_per_s: pages, ..good().memory },
        ..good()
    };
    check("swap", &small(), &swap(1 << 20, None), (Fine, "no swapping", ""));
    check("swap", &small(), &swap(1 << 30, Some(0.0)), (Note, "first needed", "swapoff -a"));
    check("swap", &small(), &swap(1 << 30, Some(40.0)), (Doubt, "40 pages/s", "swapoff -a"));
}

#[test]
fn notes_are_lines_the_worst_first() {
    let facts = Facts { clock_source: Some("hpet".to_owned()), ..good() };
    assert_eq!(
        notes(&epoll(users(30_000)), &facts)[1..3],
        [
            "source ports (28,232): no port for 1,768 of 30,000 connections: their requests fail as `connect`; remedy: `sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"`",
            "accept queue (somaxconn 4,096): 30,000 connect at once: those that find the queue full are retried after 1 s, 3 s, 7 s, which their response times include; remedy: `sysctl -w net.core.somaxconn=32768`",
        ]
    );
    let all = notes(&epoll(users(30_000)), &facts);
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(all[0].starts_with("open files") && all[3].starts_with("clock source"), "{all:#?}");
    assert!(all.iter().all(|n| !n.contains('\n')));
}

#[test]
fn of_several_cases_the_worst_is_reported() {
    let of = |name: &str, n| (name.to_owned(), findings(Some(&users(n)), &good()));
    let found = worst(&[of("few", 10), of("many", 30_000), of("more", 40_000)]);
    assert_eq!(found.len(), findings(Some(&small()), &good()).len());
    let ports = found.iter().find(|f| f.what == "source ports").unwrap();
    assert_eq!(
        ports.effect,
        "case `many`: no port for 1,768 of 30,000 connections: their requests fail as `connect`"
    );
    let files = found.iter().find(|f| f.what == "clock source").unwrap();
    assert!(!files.effect.contains("case"), "{files}");
    assert!(worst(&[]).is_empty());
}

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn a_machine_is_read() {
    let clock = "sys/devices/system/clocksource/clocksource0";
    let dir = tree(&[
        (
            "proc/self/limits",
            "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024                 unlimited            files     \n",
        ),
        (
            "proc/self/status",
            "Name:\tx\nCapEff:\t0000000001000000\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,3\n",
        ),
        ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
        ("proc/sys/net/ipv4/ip_local_reserved_ports", "80,32768-32769,60999-61010\n"),
        ("proc/sys/net/ipv4/tcp_tw_reuse", "2\n"),
        ("proc/sys/net/core/somaxconn", "4096\n"),
        ("proc/sys/net/ipv4/tcp_max_syn_backlog", "2048\n"),
        ("proc/sys/net/ipv4/tcp_syncookies", "1\n"),
        ("proc/sys/net/netfilter/nf_conntrack_max", "262144\n"),
        ("proc/sys/net/netfilter/nf_conntrack_count", "17\n"),
        ("proc/sys/kernel/io_uring_disabled", "1\n"),
        ("proc/stat", "cpu  100 0 50 800 20 10 10 10 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nintr 5\n"),
        ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\nSwapTotal: 100 kB\nSwapFree: 60 kB\n"),
        (&format!("{clock}/current_clocksource"), "tsc\n"),
        (&format!("{clock}/available_clocksource"), "tsc hpet acpi_pm \n"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "intel_pstate\n"),
        ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n"),
        ("sys/devices/system/cpu/cpufreq/policy1/scaling_driver", "intel_pstate\n"),
    ]);
    let facts = read_in(dir.path());
    assert_eq!(facts.open_files, Some(Limit { soft: Some(1024), hard: None }));
    assert!(facts.may_raise_limits);
    assert_eq!((facts.port_range, facts.ports_reserved), (Some((32_768, 60_999)), 3));
    assert_eq!((facts.tw_reuse, facts.somaxconn, facts.syn_backlog), (Some(2), Some(4096), Some(2048)));
    assert!(facts.syn_cookies);
    let table = Conntrack { max: 262_144, count: 17, time_wait_s: 120, tracks: None };
    assert_eq!(facts.conntrack, Some(table));
    assert_eq!((facts.cores, facts.cores_online), (3, 4));
    assert_eq!(facts.cpu, CpuUse { steal_percent: Some(1.0), busy_cores: None });
    assert_eq!((facts.clock_source.as_deref(), facts.clock_sources.len()), (Some("tsc"), 3));
    assert_eq!(facts.io_uring.disabled, Some(1));
    assert_eq!((facts.memory.available_bytes, facts.memory.swap_used_bytes), (Some(2 << 20), 40 << 10));
    let governor = Governor { name: "powersave".to_owned(), driver: "intel_pstate".to_owned(), count: 2 };
    assert_eq!(facts.governors, [governor]);
    assert_eq!(facts.cgroup, CgroupLimits::default());
}

#[test]
fn nothing_readable_is_nothing_known() {
    let dir = tree(&[]);
    assert_eq!(read_in(dir.path()), Facts { cores: 1, cores_online: 1, ..Facts::default() });
    let odd = tree(&[
        ("proc/self/limits", "Max open files\n"),
        ("proc/stat", "cpu  1 2\n"),
        ("proc/sys/net/ipv4/ip_local_port_range", "9 8\n"),
        ("proc/self/cgroup", "nonsense\n::\n1:cpu\n"),
        ("proc/self/status", "Cpus_allowed_list:\t5-1,x-,-\n"),
    ]);
    assert_eq!(read_in(odd.path()), Facts { cores: 1, cores_online: 1, ..Facts::default() });
}

#[test]
fn limits_of_both_cgroup_versions() {
    let cgroup = |files: &[(&str, &str)]| {
        let dir = tree(files);
        let limits = read_in(dir.path()).cgroup;
        let shown = |path: &Path| path.display().to_string();
        (
            limits.cpu_cores.map(|(n, path)| (n, shown(&path))),
            limits.memory_bytes.map(|(n, path)| (n, limits.memory_used_bytes, shown(&path))),
        )
    };
    let v2 = cgroup(&[
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/a/memory.max", "1048576\n"),
        ("sys/fs/cgroup/a/memory.current", "9096\n"),
        // Cached files that a build has read and written can be dropped.
        ("sys/fs/cgroup/a/memory.stat", "anon 4000\nfile 5096\ninactive_file 3000\nactive_file 2000\n"),
    ]);
    assert_eq!(v2.0, Some((1.5, "/sys/fs/cgroup/a/cpu.max".to_owned())));
    assert_eq!(v2.1, Some((1 << 20, 4096, "/sys/fs/cgroup/a/memory.max".to_owned())));
    let v1 = cgroup(&[
        ("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/seen/only/by/the/host\n0::/\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "15728640\n"),
        ("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "6000\n"),
        (
            "sys/fs/cgroup/memory/box/memory.stat",
            "inactive_file 7\nactive_file 7\ntotal_inactive_file 3000\ntotal_active_file 2000\nodd\n",
        ),
    ]);
    assert_eq!(v1.0, Some((0.5, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us".to_owned())));
    assert_eq!(v1.1, Some((15 << 20, 1000, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes".to_owned())));
    let together = cgroup(&[
        ("proc/self/cgroup", "4:cpu,memory:/box\n"),
        ("sys/fs/cgroup/cpu,memory/box/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu,memory/box/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu,memory/box/memory.limit_in_bytes", "15728640\n"),
        ("sys/fs/cgroup/cpu,memory/box/memory.usage_in_bytes", "6000\n"),
    ]);
    assert_eq!(together.0.map(|(cores, _)| cores), Some(0.5));
    assert_eq!(together.1.map(|(bytes, ..)| bytes), Some(15 << 20));
    let none = cgroup(&[
        ("proc/self/cgroup", "3:cpu:/\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ]);
    assert_eq!(none, (None, None));
}

#[test]
fn this_machine_is_read() {
    let facts = read(Duration::from_millis(20));
    assert!(facts.cores >= 1 && facts.cores_online >= 1);
    assert!(facts.open_files.is_some() && facts.open_files_used > 0, "{facts:?}");
    assert!(facts.port_range.is_some() && facts.clock_source.is_some(), "{facts:?}");
    assert!(!findings(None, &facts).is_empty());
}
