//! Figures that the watching and limiting of components is held to, with what counts them: CPU time of the thread that
//! reads, memory of this process, CPU time and kills as the kernel tells them. Run with `--nocapture` to see them.

mod common;

use std::fs;

use common::{Bench, FIXTURE, PATIENCE_NS, eventually, free_port};
use loadlab_record::sample::Sample;
use loadlab_system::{Cancel, Limits, Ready, Target, clock};
use rustix::time::{ClockId, clock_gettime};

fn thread_cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Resident memory of this process that is its own, bytes.
fn own_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Fifty components and the host may cost 1 % of a core and 30 MB. An unoptimised build is allowed three times the CPU
/// time; samples of ten minutes are kept, as a trial keeps them.
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
    if bench.system.cgroup_version() != "none" {
        assert!(per_round_s < 0.030, "{per_round_s} s");
    }
}

/// One per cent of a core is one per cent, by the kernel's own count over ten seconds.
#[test]
fn one_per_cent_of_a_core_is_that() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return common::skip::skip_for_limits("without limits there is nothing to measure");
    }
    let mut spin = bench.spec("spin", &format!("exec {FIXTURE} spin"));
    spin.limits = Limits { cpu_cores: Some(0.01), ..Limits::default() };
    let component = bench.system.up(&spin).unwrap();
    let mut target = component.target();
    let mut cpu_s = || (clock::now_ns(), target.read_now().unwrap().cpu_s.unwrap());
    // Its start takes more than its share of the first period.
    Cancel::new().wait_until(clock::now_ns() + 1_000_000_000);
    let (from_ns, from_s) = cpu_s();
    Cancel::new().wait_until(from_ns + 10_000_000_000);
    let (to_ns, to_s) = cpu_s();
    let percent = (to_s - from_s) / ((to_ns - from_ns) as f64 / 1e9) * 100.0;
    eprintln!("a limit of 1 % of a core: {percent:.3} % over 10 s");
    assert_eq!(component.limits_in_force().cpu_cores, Some(0.01));
    // More than its limit it never gets; less where others take the core from it.
    assert!(percent < 1.1, "{percent}");
}

/// Fifteen MiB are fifteen MiB, and the kill has a time.
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

/// What loadlab adds to a component's own start: its cgroups, limits, and the wait for its port. Counted in CPU time of
/// the thread that does it; the elapsed time is told, and depends on who else is on the machine.
#[test]
fn bringing_up_adds_little() {
    let bench = Bench::new();
    let cancel = Cancel::new();
    let (mut took_ms, mut cpu_s) = (Vec::new(), 0.0f64);
    for i in 0..11 {
        let port = free_port();
        let mut spec = bench.spec(&format!("serve{i}"), &format!("exec {FIXTURE} serve {port} x"));
        spec.ready = Ready::Tcp { addr: format!("127.0.0.1:{port}"), within_ns: PATIENCE_NS };
        spec.ports = vec![port];
        let (begun_ns, begun_s) = (clock::now_ns(), thread_cpu_s());
        let component = bench.system.up(&spec).unwrap();
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
    assert!(cpu_ms < 50.0, "{cpu_ms} ms");
}

/// Limits are changed on what lives, and let go.
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
    let words = || component.limits_in_force().words().join(", ");
    assert_eq!(words(), "50 % of a core, 50 open files, cores 0");
    let other =
        Limits { memory_bytes: Some(64 << 20), memory_swap_bytes: Some(96 << 20), ..Limits::default() };
    let other = Limits { pids: Some(9), open_files: Some(40), ..other };
    bench.system.limit(&component, &other).unwrap();
    assert!(words().starts_with("64.0 MiB of memory, "), "{}", words());
    assert!(words().ends_with("9 processes and threads, 40 open files, cores 0"), "{}", words());
    // Up and down again, in either order of memory and swap.
    for mib in [128u64, 32, 64] {
        let limits = Limits { memory_bytes: Some(mib << 20), open_files: Some(40), ..Limits::default() };
        bench.system.limit(&component, &limits).unwrap();
        assert_eq!(component.limits_in_force().memory_bytes, Some(mib << 20));
    }
    bench.system.limit(&component, &Limits { open_files: Some(40), ..Limits::default() }).unwrap();
    assert_eq!(words(), "40 open files, cores 0");
    // Raising a hard limit takes a capability; where it is missing that is an error, and nothing is claimed.
    match bench.system.limit(&component, &Limits { open_files: Some(70), ..Limits::default() }) {
        Ok(_) => assert_eq!(words(), "70 open files, cores 0"),
        Err(error) => {
            assert!(error.to_string().contains("cannot limit open files to 70"), "{error}");
            assert_eq!(words(), "40 open files, cores 0");
        }
    }
}

/// It stands still with all its processes, those that it started meanwhile included, and goes on.
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
    assert!(component.pause() && component.is_paused());
    eventually("all stopped", || component.pids().into_iter().all(stopped).then_some(()));
    assert!(component.resume() && !component.is_paused());
    eventually("all running", || (!component.pids().into_iter().any(stopped)).then_some(()));
    // One that is paused can be taken down.
    component.pause();
    bench.system.down(&component).unwrap();
}

/// A component that leaves its cgroup is seen: it is no longer counted, and it is still taken down.
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
    assert!(!gone.is_alive(), "it is taken down with the rest");
}
