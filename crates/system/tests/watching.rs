//! Samples and probes of real processes, on the trial's clock.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadlab_record::watch::sample::Sample;
use loadlab_system::{
    Cancel, IdleReadings, Probe, ProbeSpec, Ready, SampleTiming, Target, TrialClock, WatchEvent, Watcher,
    clock,
};

use crate::common;
use crate::common::{Bench, FIXTURE, PATIENCE_NS, eventually, free_port};

/// The most reads one reading of a component may take: some fifteen files in v1, each read to its end.
const MOST_READS: u64 = 60;

#[test]
fn components_loadlab_and_host_are_read_each_second_of_the_trial() {
    let bench = Bench::new();
    let port = free_port();
    let mut serve =
        bench.spec("serve", &format!("exec {FIXTURE} serve {port} '{{\"queues\": [{{\"depth\": 42}}]}}'"));
    serve.ready = Ready::Tcp { addr: format!("127.0.0.1:{port}"), timeout_ns: PATIENCE_NS };
    let spin = bench.spec("spin", &format!("exec {FIXTURE} spin"));
    let components: Vec<_> = [serve, spin]
        .iter()
        .map(|spec| {
            let component = bench.system.up(spec).unwrap();
            bench.system.ready(&component, &Cancel::new()).unwrap();
            component
        })
        .collect();
    let probe = |name: &str, pointer: &str| {
        let url = format!("http://127.0.0.1:{port}/stats");
        Probe::new(ProbeSpec::http(name, &url, Some(pointer))).unwrap()
    };
    assert_eq!(probe("depth", "/queues/0/depth").read_now().unwrap(), 42.0);

    let (send, receive) = channel();
    let emit = Arc::new(move |watched| drop(send.send(watched)));
    let mut targets: Vec<Target> = components.iter().map(|c| c.target()).collect();
    targets.extend([Target::generator(), Target::host()]);
    let probes = vec![probe("depth", "/queues/0/depth"), probe("broken", "/nothing")];
    // Read before the clock's zero is set: a busy machine may take longer for it than until a zero that is set already.
    let at_rest = IdleReadings::read(targets);
    let trial = TrialClock { origin_ns: clock::now_ns() + 300_000_000 };
    let mut watcher = Watcher::start_in(SampleTiming::default(), trial, at_rest, probes, emit).unwrap();

    let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    let mut notes = Vec::new();
    let mut take = |watched| match watched {
        WatchEvent::Samples(all) => {
            all.into_iter().for_each(|s| samples.entry(s.component.clone()).or_default().push(s))
        }
        WatchEvent::Note(text) => notes.push(text),
        WatchEvent::Evidence(_) => {}
    };
    // This few targets are read one after another, once a second.
    let (mut seconds, mut failures) = (0, 0);
    while seconds < 3 || failures < 3 {
        let watched = receive.recv_timeout(Duration::from_nanos(PATIENCE_NS)).unwrap();
        if let WatchEvent::Samples(all) = &watched {
            seconds += i32::from(all.len() == 4 && all[0].at_s >= 0.0);
            failures += i32::from(all.iter().any(|sample| !sample.probes_failed.is_empty()));
        }
        take(watched);
    }
    watcher.read_all().unwrap();
    watcher.stop();
    let rest: Vec<WatchEvent> = receive.into_iter().collect();
    let together = rest.iter().filter(|w| matches!(w, WatchEvent::Samples(all) if all.len() == 4)).count();
    assert!(together >= 2, "all at the load's end, and all when stopped: {rest:?}");
    rest.into_iter().for_each(&mut take);
    // Each sample has its own time, even within one reading.
    let mut times: Vec<f64> = samples
        .iter()
        .filter(|(name, _)| *name != "probes")
        .flat_map(|(_, s)| s.iter().map(|s| s.at_s))
        .collect();
    let readings = times.len();
    times.sort_by(f64::total_cmp);
    times.dedup();
    assert_eq!(times.len(), readings);

    for name in ["serve", "spin", "loadlab", "host"] {
        let read = &samples[name];
        // One at once, one per second from 0 on, one at the end of the load, one when stopped.
        let before = read.iter().filter(|s| s.at_s < 0.0).count();
        assert!(before >= 1 && read.len() >= before + 5, "{name}: {read:?}");
        assert!(
            read.windows(2).all(|w| w[0].at_s < w[1].at_s && w[0].cpu_s <= w[1].cpu_s),
            "{name}: {read:?}"
        );
        let last = read.last().unwrap();
        assert!(
            last.cpu_s.is_some() && last.memory_bytes > Some(0) && last.pids > Some(0),
            "{name}: {last:?}"
        );
    }
    assert!(samples["spin"].last().unwrap().cpu_s > samples["spin"][0].cpu_s);
    // Standard input, output and error, plus a listening socket for the server.
    let files = |name: &str| samples[name].last().unwrap().open_files;
    assert_eq!((files("spin"), files("serve").map(|n| n >= 4)), (Some(3), Some(true)));
    let (read, failed): (Vec<&Sample>, Vec<&Sample>) =
        samples["probes"].iter().partition(|s| s.probes_failed.is_empty());
    assert!(read.iter().all(|s| s.probes == BTreeMap::from([("depth".to_owned(), 42.0)])));
    // Every failure is recorded, but reported only once.
    assert!(failed.iter().all(|s| s.probes_failed["broken"].contains("nothing at")));
    let broken: Vec<_> = notes.iter().filter(|n| n.contains("probe `broken`")).collect();
    assert_eq!(broken.len(), 1, "reported once while it fails the same way: {notes:?}");
    assert!(broken[0].contains("there is nothing at `/nothing`"), "{broken:?}");
}

#[test]
fn one_that_is_down_is_left_out_and_one_that_is_up_again_is_read() {
    let bench = Bench::new();
    let spec = bench.spec("a", "exec sleep 1000");
    let first = bench.system.up(&spec).unwrap();
    let read: Arc<Mutex<Vec<usize>>> = Arc::default();
    let theirs = read.clone();
    let emit = Arc::new(move |watched| {
        if let WatchEvent::Samples(samples) = watched {
            theirs.lock().unwrap().push(samples.len());
        }
    });
    let clock = TrialClock { origin_ns: clock::now_ns() };
    let watcher = Watcher::start(clock, vec![first.target()], Vec::new(), emit).unwrap();
    let wait_for = |samples: usize| {
        let from = read.lock().unwrap().len();
        eventually("a reading", || read.lock().unwrap()[from..].contains(&samples).then_some(()));
    };
    wait_for(1);
    bench.system.down(&first).unwrap();
    wait_for(0);
    let again = bench.system.up(&spec).unwrap();
    watcher.add(again.target());
    wait_for(1);
    watcher.stop();
}

#[test]
fn something_external_is_read_by_its_process() {
    let bench = Bench::new();
    let component = bench.system.up(&bench.spec("a", "sleep 1000 & exec sleep 1000")).unwrap();
    eventually("two processes", || (component.pids().len() == 2).then_some(()));
    // A shell that is about to exec another program has one more file open.
    let by_tree = eventually("nothing but standard input, output and error", || {
        let read = Target::process_tree("x", component.process()).read_now()?;
        (read.open_files == Some(6)).then_some(read)
    });
    assert_eq!((by_tree.component.as_str(), by_tree.pids), ("x", Some(2)));
    match Target::cgroup_of("x", component.process().pid) {
        Some(mut target) => assert_eq!(target.read_now().unwrap().pids, Some(2)),
        None => assert_eq!(bench.system.cgroup_version(), "none"),
    }
    assert!(Target::cgroup_of("own", std::process::id()).is_none());
}

#[test]
fn what_is_written_to_disk_is_counted() {
    for bench in [Bench::new(), Bench::without_cgroups()] {
        // An in-memory file system does not write to disk.
        let magic = rustix::fs::statfs(bench.dir.path()).unwrap().f_type;
        if magic as u64 == 0x0102_1994 {
            return common::skip::skip("temporary files are in memory");
        }
        let command =
            "dd if=/dev/zero of=data bs=64k count=32 conv=fsync 2>/dev/null; echo written; exec sleep 1000";
        let mut spec = bench.spec("a", command);
        spec.ready = Ready::Log { pattern: "written".into(), timeout_ns: PATIENCE_NS };
        let component = bench.system.up(&spec).unwrap();
        let mut target = component.target();
        bench.system.ready(&component, &Cancel::new()).unwrap();
        let sample = target.read_now().unwrap();
        assert!(sample.block_written_bytes >= Some(2 << 20), "{sample:?}");
        assert_eq!(fs::metadata(bench.path("data")).unwrap().len(), 2 << 20);
    }
}

/// A reading costs the files it reads: a bounded number per component, however many components there are, and none for
/// processes outside components.
#[test]
fn fifty_components_are_cheap_to_read() {
    let bench = Bench::new();
    if bench.system.cgroup_version() == "none" {
        return common::skip::skip("without cgroups every process is looked at");
    }
    let components: Vec<_> =
        (0..50).map(|i| bench.system.up(&bench.spec(&format!("c{i}"), "exec sleep 1000")).unwrap()).collect();
    let mut targets: Vec<Target> = components.iter().map(|c| c.target()).collect();
    let mut reads_of = |count: usize| {
        let (before, _) = common::calls_of_thread()?;
        targets[..count].iter_mut().for_each(|t| assert!(t.read_now().is_some()));
        Some(common::calls_of_thread()?.0 - before)
    };
    // The first reading of each target opens the files that later readings reuse.
    reads_of(50);
    let (Some(none), Some(one), Some(fifty)) = (reads_of(0), reads_of(1), reads_of(50)) else {
        return common::skip::skip("this kernel does not count what a thread reads");
    };
    let (one, fifty) = (one - none, fifty - none);
    eprintln!("{one} reads for one component, {fifty} for fifty");
    assert!(one > 0 && one <= MOST_READS, "{one}");
    assert!(fifty <= 50 * MOST_READS, "{fifty} for fifty, {one} for one");
}
