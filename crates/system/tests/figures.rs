//! Limits on the cost of watching and limiting components, by what can be counted: memory of this process, the kernel's
//! own accounting of a component, system calls of the thread that brings it up. Times are printed but never judged,
//! because they depend on what else the machine is doing. Run with `--nocapture` to see them.

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Bench, FIXTURE, PATIENCE_NS, eventually, free_port};
use loadlab_record::watch::sample::Sample;
use loadlab_system::{Cancel, Limits, Ready, Target, clock};
use rustix::time::{ClockId, clock_gettime};

fn thread_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Private resident memory of this process, in bytes.
fn own_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Fifty components and the host may cost 30 MB, with ten minutes of samples kept as in a trial, and should cost 1 % of
/// a core; `watching.rs` bounds the latter by the number of reads.
#[test]
fn fifty_components_cost_little() {
    let bench = Bench::new();
    let up = |i| bench.system.up(&bench.spec(&format!("c{i}"), "exec sleep 1000")).unwrap();
    let components: Vec<_> = (0..50).map(up).collect();
    let before = own_memory();
    let mut targets: Vec<Target> = components.iter().map(|c| c.target()).collect();
    targets.extend([Target::generator(), Target::host()]);
    let mut read = || targets.iter_mut().map(|t| t.read_now().unwrap()).collect::<Vec<Sample>>();
    let mut kept = read();
    const ROUNDS: usize = 20;
    let begin_s = thread_cpu_s();
    for _ in 0..ROUNDS {
        kept.extend(read());
    }
    let per_round_s = (thread_cpu_s() - begin_s) / ROUNDS as f64;
    let round = kept[kept.len() - 52..].to_vec();
    kept.extend(std::iter::repeat_n(round, 600).flatten());
    let grown = own_memory().saturating_sub(before);
    eprintln!(
        "50 components, loadlab and host: {:.2} % of a core at a reading a second; {:.1} MB with 600 seconds kept",
        per_round_s * 100.0,
        grown as f64 / 1e6
    );
    assert!(kept.len() > 600 * 52 && grown < 30_000_000, "{grown} bytes");
}

/// The kernel enforces one per cent of a core, and our readings agree with the kernel's counts.
#[test]
fn one_per_cent_of_a_core_is_that() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return common::skip::skip_for_limits("without limits there is nothing to measure");
    }
    let mut spin = bench.spec("spin", &format!("exec {FIXTURE} spin"));
    spin.limits = Limits { cpu_cores: Some(0.01), ..Limits::default() };
    let component = bench.system.up(&spin).unwrap();
    assert_eq!(component.limits_in_force().cpu_cores, Some(0.01));
    let mut target = component.target();
    let mut read = || target.read_now().unwrap();
    let first = read();
    // Unlimited, it would take a whole core. A process limited to a share of a core is throttled in each period.
    let last = eventually("being stopped ten times", || {
        let sample = read();
        (sample.throttled_periods? >= first.throttled_periods? + 10).then_some(sample)
    });
    assert!(last.periods >= last.throttled_periods && last.throttled_s > first.throttled_s, "{last:?}");
    // Our reading lies between two independent ones.
    let dirs = cgroups_of_spin(component.process().pid);
    let (before_s, sample, after_s) = (cpu_in(&dirs), read(), cpu_in(&dirs));
    let cpu_s = sample.cpu_s.unwrap();
    eprintln!("a limit of 1 % of a core: {cpu_s:.3} s in {:?} periods", sample.periods);
    assert!(before_s <= cpu_s && cpu_s <= after_s && cpu_s > 0.0, "{before_s} {cpu_s} {after_s}");
}

/// The cgroups of the component `spin`, found through its process, under every mounted hierarchy.
fn cgroups_of_spin(pid: u32) -> Vec<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(|p| p.trim_start_matches('/'));
    let paths = paths.filter(|path| path.ends_with("/spin"));
    let mounts = || fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|e| e.path());
    let roots: Vec<PathBuf> = mounts().chain([PathBuf::from("/sys/fs/cgroup")]).collect();
    paths.flat_map(|path| roots.iter().map(move |root| root.join(path))).collect()
}

/// CPU time of a cgroup in seconds, from whichever file has it.
fn cpu_in(dirs: &[PathBuf]) -> f64 {
    let v1 = |dir: &PathBuf| {
        let ns = fs::read_to_string(dir.join("cpuacct.usage")).ok()?;
        Some(ns.trim().parse::<f64>().ok()? / 1e9)
    };
    let v2 = |dir: &PathBuf| {
        let stat = fs::read_to_string(dir.join("cpu.stat")).ok()?;
        let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(us.parse::<f64>().ok()? / 1e6)
    };
    // If both exist, v2 rounds to microseconds what v1 has in full.
    dirs.iter().find_map(v1).or_else(|| dirs.iter().find_map(v2)).expect("a group that counts CPU time")
}

/// A limit of fifteen MiB means fifteen MiB, and the kill is reported.
#[test]
fn fifteen_mib_kill_at_fifteen_mib() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return common::skip::skip_for_limits("without limits there is nothing to measure");
    }
    let mut hog = bench.spec("hog", &format!("exec {FIXTURE} hog {}", 64 << 20));
    hog.limits = Limits { memory_bytes: Some(15 << 20), ..Limits::default() };
    let component = bench.system.up(&hog).unwrap();
    let mut target = component.target();
    let mut peak = 0;
    let status = eventually("its end", || {
        peak = peak.max(target.read_now().and_then(|s| s.memory_peak_bytes).unwrap_or(0));
        component.ended().map(|ended| ended.status)
    });
    eprintln!("a limit of 15 MiB: {status}, peak {:.2} MiB", peak as f64 / f64::from(1 << 20));
    assert_eq!(status.to_string(), "out of memory (limit 15.0 MiB), signal 9 (SIGKILL)");
    assert!(component.oom_kills() > Some(0));
    assert!(peak <= 15 << 20, "{peak}");
}

/// What loadlab adds to a component's own start-up: its cgroups, its limits, and the wait for its port. The cost to the
/// machine is the writes: they are bounded per component, and the last component takes as many as the first.
#[test]
fn bringing_up_adds_little() {
    let bench = Bench::new();
    let cancel = Cancel::new();
    let (mut took_ms, mut cpu_s, mut writes) = (Vec::new(), 0.0f64, Vec::new());
    for i in 0..11 {
        let port = free_port();
        let mut spec = bench.spec(&format!("serve{i}"), &format!("exec {FIXTURE} serve {port} x"));
        spec.ready = Ready::Tcp { addr: format!("127.0.0.1:{port}"), timeout_ns: PATIENCE_NS };
        spec.ports = vec![port];
        let (begun_ns, begun_s, calls) = (clock::now_ns(), thread_cpu_s(), common::calls_of_thread());
        let component = bench.system.up(&spec).unwrap();
        writes.extend(common::calls_of_thread().zip(calls).map(|(after, before)| after.1 - before.1));
        bench.system.ready(&component, &cancel).unwrap();
        took_ms.push((clock::now_ns() - begun_ns) as f64 / 1e6);
        cpu_s += thread_cpu_s() - begun_s;
    }
    took_ms.sort_by(f64::total_cmp);
    let cpu_ms = cpu_s * 1e3 / took_ms.len() as f64;
    eprintln!(
        "bringing up a component: median {:.1} ms, {:.1} to {:.1}, of which {cpu_ms:.1} ms CPU time of loadlab",
        took_ms[5], took_ms[0], took_ms[10]
    );
    if writes.is_empty() {
        return common::skip::skip("this kernel does not count what a thread writes");
    }
    eprintln!("writes for each: {writes:?}");
    assert!(writes[0] <= 12 && writes.iter().all(|n| *n == writes[0]), "{writes:?}");
}

/// Limits of a running component can be changed and lifted.
#[test]
fn limits_of_a_living_component_change() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return common::skip::skip_for_limits("without limits there is nothing to change");
    }
    let mut spec = bench.spec("a", "sleep 1000 & exec sleep 1000");
    spec.limits = Limits { cpu_cores: Some(0.5), open_files: Some(50), ..Limits::default() };
    spec.cpus = vec![0];
    let component = bench.system.up(&spec).unwrap();
    eventually("two processes", || (component.pids().len() == 2).then_some(()));
    let shown = || component.limits_in_force().describe().join(", ");
    assert_eq!(shown(), "50 % of a core, 50 open files, cores 0");
    let other =
        Limits { memory_bytes: Some(64 << 20), memory_swap_bytes: Some(96 << 20), ..Limits::default() };
    let other = Limits { pids: Some(9), open_files: Some(40), ..other };
    bench.system.limit(&component, &other).unwrap();
    assert!(shown().starts_with("64.0 MiB of memory, "), "{}", shown());
    assert!(shown().ends_with("9 processes and threads, 40 open files, cores 0"), "{}", shown());
    // Up and down again, so memory and swap are raised and lowered in either order.
    for mib in [128u64, 32, 64] {
        let limits = Limits { memory_bytes: Some(mib << 20), open_files: Some(40), ..Limits::default() };
        bench.system.limit(&component, &limits).unwrap();
        assert_eq!(component.limits_in_force().memory_bytes, Some(mib << 20));
    }
    bench.system.limit(&component, &Limits { open_files: Some(40), ..Limits::default() }).unwrap();
    assert_eq!(shown(), "40 open files, cores 0");
    // Raising a hard limit needs a capability; without it the call fails, and the limit in force is unchanged.
    match bench.system.limit(&component, &Limits { open_files: Some(70), ..Limits::default() }) {
        Ok(_) => assert_eq!(shown(), "70 open files, cores 0"),
        Err(error) => {
            assert!(error.to_string().contains("cannot limit open files to 70"), "{error}");
            assert_eq!(shown(), "40 open files, cores 0");
        }
    }
}

/// A paused component stops with all its processes, including those started meanwhile, and then resumes.
#[test]
fn a_paused_component_uses_nothing() {
    let bench = Bench::new();
    let line = format!("{FIXTURE} spin & setsid {FIXTURE} spin & exec sleep 1000");
    let component = bench.system.up(&bench.spec("a", &line)).unwrap();
    eventually("three processes", || (component.pids().len() >= 3).then_some(()));
    let stopped = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    assert!(component.pause().unwrap() && component.is_paused());
    eventually("all stopped", || component.pids().into_iter().all(stopped).then_some(()));
    assert!(component.resume().unwrap() && !component.is_paused());
    eventually("all running", || (!component.pids().into_iter().any(stopped)).then_some(()));
    // A paused component can be taken down.
    component.pause().unwrap();
    bench.system.down(&component).unwrap();
}

/// A component that leaves its cgroup is detected: it is no longer counted, but is still taken down.
#[test]
fn one_that_leaves_its_cgroup_is_found_by_its_mark() {
    let bench = Bench::new();
    if bench.system.cgroup_version() == "none" {
        return common::skip::skip_for_limits("without cgroups there is nothing to leave");
    }
    let out =
        "for f in $(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs); do echo $$ > $f 2>/dev/null; done";
    let line = format!(
        "setsid sh -c '{out}; echo $$ > {}; exec sleep 1000' & exec sleep 1000",
        bench.path("pid").display()
    );
    let component = bench.system.up(&bench.spec("a", &line)).unwrap();
    let gone = common::pid_in(&bench.path("pid"));
    if component.pids().contains(&gone.pid) {
        return common::skip::skip("this user may not leave a cgroup");
    }
    assert_eq!(component.escaped(), [gone.pid]);
    assert_eq!(bench.system.down(&component).unwrap().escaped, 1);
    assert!(!common::runs(gone), "it is taken down with the rest");
}
