//! Components as real processes: up, ready, limited, dying, down.

use std::fs;

use loadlab_record::text::time::SECOND_NS;
use loadlab_record::text::units::format_duration_ns;
use loadlab_system::{
    Cancel, Command, CommandSpec, Ending, Error, Limits, Notice, ProcessId, Ready, Signal, Stop, clock,
};

use crate::common;
use crate::common::{Bench, FIXTURE, eventually, free_port, has_become_sleep, pid_in, runs, with_daemon};

#[test]
fn a_simple_line_replaces_the_shell_and_inherits_nothing() {
    let bench = Bench::new();
    let mut spec = bench.spec("a", "sleep 1000");
    spec.env = vec![("GREETING".into(), "hello".into())];
    let component = bench.system.up(&spec).unwrap();
    bench.system.ready(&component, &Cancel::new()).unwrap();
    let proc = format!("/proc/{}", component.process().pid);
    // On a busy machine the shell may not have run it yet, or it may be loading its libraries.
    eventually("`sleep` with nothing but standard input, output and error", || {
        let files = fs::read_dir(format!("{proc}/fd")).unwrap().count();
        (has_become_sleep(component.process().pid) && files == 3).then_some(())
    });
    let environ = fs::read_to_string(format!("{proc}/environ")).unwrap();
    assert!(environ.split('\0').any(|e| e == "GREETING=hello"));
    assert_eq!(component.pids(), [component.process().pid]);
    // Its own process group, so that a signal to loadlab's group does not reach it.
    let stat = fs::read_to_string(format!("{proc}/stat")).unwrap();
    let group = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace().nth(2).unwrap();
    assert_eq!(group, component.process().pid.to_string());

    let same = bench.system.up(&spec).unwrap_err();
    assert!(matches!(same, Error::AlreadyUp { .. }), "{same}");
    let down = bench.system.down(&component).unwrap();
    assert_eq!((down.ending, down.stragglers), (Ending::Exited, 0));
    assert!(!component.process().is_alive());
    assert_eq!(component.ended().unwrap().status.to_string(), "signal 15 (SIGTERM)");
    // An end that was requested is not reported, and the name is free again.
    let again = bench.system.up(&spec).unwrap();
    bench.system.kill(&again).unwrap();
    assert!(bench.notices.try_recv().is_err());
    bench.system.close().unwrap();
    assert!(!bench.dir.path().join("scratch").exists());
    assert_eq!(fs::read_dir(bench.dir.path().join("state")).unwrap().count(), 0);
}

/// Otherwise its guardian, or `loadlab clean`, would remove the folder while it is used.
#[test]
fn the_scratch_folder_that_a_killed_run_left_is_not_taken_over() {
    let namespace = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/self/ns/pid").unwrap());
    let bench = Bench::with(|spec| {
        fs::create_dir(&spec.scratch).unwrap();
        fs::write(spec.scratch.join("old"), "").unwrap();
        // This pid, but another start time.
        let mark = format!("LOADLAB_RUN=run/1/2/{:x}-1-{namespace:x}", std::process::id());
        fs::write(spec.scratch.join(".loadlab-scratch"), mark).unwrap();
    });
    let scratch = bench.dir.path().join("scratch");
    assert!(scratch.is_dir() && !scratch.join("old").exists());
    bench.system.close().unwrap();
    assert!(!scratch.exists());
}

#[test]
fn readiness_by_http_tcp_and_log() {
    let bench = Bench::new();
    let timeout_ns = common::PATIENCE_NS;
    let (http, tcp) = (free_port(), free_port());
    let url = format!("http://127.0.0.1:{http}/health");
    for (name, command, port, ready) in [
        (
            "http",
            format!("sleep 0.1; exec {FIXTURE} serve {http} ok"),
            Some(http),
            Ready::Http { url, timeout_ns },
        ),
        (
            "tcp",
            format!("exec {FIXTURE} serve {tcp} ok"),
            Some(tcp),
            Ready::Tcp { addr: format!("127.0.0.1:{tcp}"), timeout_ns },
        ),
        (
            "log",
            "printf 'now rea' >&2; sleep 0.1; echo 'dy to serve' >&2; exec sleep 1000".into(),
            None,
            Ready::Log { pattern: "ready to serve".into(), timeout_ns },
        ),
    ] {
        let mut spec = bench.spec(name, &command);
        spec.ready = ready;
        spec.ports = port.into_iter().collect();
        let component = bench.system.up(&spec).unwrap();
        let after_s = bench.system.ready(&component, &Cancel::new()).unwrap();
        assert!(after_s > 0.0, "{name}");
        assert!(bench.system.died().is_empty(), "{name}");
    }
    let names: Vec<String> = bench.system.components().iter().map(|c| c.name().to_owned()).collect();
    assert_eq!(names, ["http", "tcp", "log"]);
    let downs = bench.system.down_all().unwrap();
    assert!(downs.iter().all(|(_, down)| down.ending == Ending::Exited), "{downs:?}");
    assert!(bench.system.components().is_empty());
}

#[test]
fn one_that_is_never_ready_is_reported_with_its_last_lines() {
    let bench = Bench::new();
    let port = free_port();
    let spec = bench.spec("web", "echo starting; echo no such table >&2; exec sleep 1000");
    let component = bench.system.up(&spec).unwrap();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    eventually("its lines", || {
        (read(&spec.logs.stdout) == "starting\n" && read(&spec.logs.stderr) == "no such table\n")
            .then_some(())
    });
    // The time counts from its start, and its lines may have taken long.
    let timeout_ns = clock::now_ns() - component.started_ns() + 8 * SECOND_NS;
    let ready = Ready::Http { url: format!("http://127.0.0.1:{port}/health"), timeout_ns };
    let message = bench.system.ready_when(&component, &ready, &Cancel::new()).unwrap_err().to_string();
    let message = message
        .replace(&bench.dir.path().display().to_string(), "DIR")
        .replace(&port.to_string(), "PORT")
        .replace(&format_duration_ns(timeout_ns as f64), "TIME");
    insta::assert_snapshot!(message, @r"
    component `web` was not ready within TIME: GET http://127.0.0.1:PORT/health: cannot connect to 127.0.0.1:PORT: Connection refused (os error 111)
    last lines of DIR/logs/web.out:
      | starting
    last lines of DIR/logs/web.err:
      | no such table
    hint: check that it listens where `ready` looks, or allow more time
    ");
}

#[test]
fn one_that_ends_while_waited_for_is_reported_at_once() {
    let bench = Bench::new();
    let mut spec = bench.spec("db", "echo cannot open data.db >&2; exit 3");
    spec.ready = Ready::Tcp { addr: format!("127.0.0.1:{}", free_port()), timeout_ns: u64::MAX / 4 };
    let component = bench.system.up(&spec).unwrap();
    let message = bench.system.ready(&component, &Cancel::new()).unwrap_err().to_string();
    let message = message.replace(&bench.dir.path().display().to_string(), "DIR");
    insta::assert_snapshot!(message, @r"
    component `db` ended before it was ready: exit status 3
    last lines of DIR/logs/db.err:
      | cannot open data.db
    ");
    // Reported once, by `ready`, and not by a notice as well.
    assert_eq!(bench.system.down(&component).unwrap().ending, Ending::Exited);
    assert!(bench.notices.try_recv().is_err());
}

#[test]
fn waiting_can_be_cancelled() {
    let bench = Bench::new();
    let mut spec = bench.spec("db", "exec sleep 1000");
    spec.ready = Ready::Log { pattern: "never".into(), timeout_ns: u64::MAX / 4 };
    let component = bench.system.up(&spec).unwrap();
    let cancel = Cancel::new();
    let canceller = {
        let cancel = cancel.clone();
        std::thread::spawn(move || cancel.cancel())
    };
    let error = bench.system.ready(&component, &cancel).unwrap_err();
    assert_eq!(error.to_string(), "interrupted while waiting for component `db`");
    canceller.join().unwrap();
}

#[test]
fn what_cannot_start_says_why() {
    let bench = Bench::new();
    let mut spec = bench.spec("a", "");
    spec.command = Command::Argv(vec!["./nothing-here".into(), "--x".into()]);
    let message = bench.system.up(&spec).unwrap_err().to_string();
    insta::assert_snapshot!(message.replace(&bench.dir.path().display().to_string(), "DIR"), @r"
    component `a`: cannot start `./nothing-here --x` in DIR: no such program
    hint: is it installed, and in PATH? relative paths start at the folder above
    ");

    let mut spec = bench.spec("a", "true");
    spec.dir = bench.path("missing");
    let message = bench.system.up(&spec).unwrap_err().to_string();
    assert!(message.contains("the folder does not exist"), "{message}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut spec = bench.spec("a", "true");
    spec.ports = vec![port];
    let message = bench.system.up(&spec).unwrap_err().to_string();
    assert!(
        message.contains(&format!("port {port} is already taken by pid {} (", std::process::id())),
        "{message}"
    );

    let mut spec = bench.spec("a", "true");
    spec.limits.open_files = Some(1 << 40);
    let message = bench.system.up(&spec).unwrap_err().to_string();
    assert!(
        message.contains("cannot limit open files to 1099511627776") && message.contains("CAP_SYS_RESOURCE"),
        "{message}"
    );
    assert!(bench.system.components().is_empty());
}

#[test]
fn a_death_is_noticed_with_its_status() {
    let bench = Bench::new();
    for (name, command, signal, expect) in [
        ("exits", "until [ -e go ]; do sleep 0.01; done; exit 7", None, "exit status 7"),
        ("killed", "exec sleep 1000", Some(Signal::KILL), "signal 9 (SIGKILL)"),
    ] {
        let component = bench.system.up(&bench.spec(name, command)).unwrap();
        bench.system.ready(&component, &Cancel::new()).unwrap();
        match signal {
            Some(signal) => assert!(component.send(signal)),
            None => fs::write(bench.path("go"), "").unwrap(),
        }
        match bench.notice() {
            Notice::Died { component, status, .. } => {
                assert_eq!((component.name(), status.to_string().as_str()), (name, expect));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.system.died().len(), 1);
        assert!(!component.send(Signal::TERM), "nobody is there to be signalled");
        bench.system.down(&component).unwrap();
        assert!(bench.system.died().is_empty());
    }
}

#[test]
fn a_stubborn_one_is_killed() {
    for bench in Bench::of_all_kinds() {
        let mut spec = bench.spec("a", "trap '' TERM; echo deaf; while :; do sleep 0.05; done");
        spec.ready = Ready::Log { pattern: "deaf".into(), timeout_ns: common::PATIENCE_NS };
        spec.stop = Stop { signal: Signal::TERM, timeout_ns: SECOND_NS / 10 };
        let component = bench.system.up(&spec).unwrap();
        bench.system.ready(&component, &Cancel::new()).unwrap();
        let down = bench.system.down(&component).unwrap();
        assert_eq!(down.ending, Ending::Killed);
        assert!(!component.process().is_alive());
    }
}

#[test]
fn a_component_paused_by_a_signal_can_be_taken_down() {
    let bench = Bench::new();
    let component = bench.system.up(&bench.spec("a", "exec sleep 1000")).unwrap();
    bench.system.ready(&component, &Cancel::new()).unwrap();
    component.send(Signal::STOP);
    let down = bench.system.down(&component).unwrap();
    assert_eq!(down.ending, Ending::Exited);
}

/// The first process waits for one that has a group of its own, as that of PostgreSQL does.
#[test]
fn a_paused_component_is_resumed_with_all_its_groups_to_end() {
    for bench in Bench::of_all_kinds() {
        let worker = r#"setsid sh -c 'trap "exit 0" USR1; echo up; while :; do sleep 0.05; done'"#;
        let mut spec = bench.spec("a", &format!("trap 'kill -USR1 $!; wait; exit 0' TERM; {worker} & wait"));
        spec.ready = Ready::Log { pattern: "up".into(), timeout_ns: common::PATIENCE_NS };
        let component = bench.system.up(&spec).unwrap();
        bench.system.ready(&component, &Cancel::new()).unwrap();
        assert!(component.pause().unwrap());
        let down = bench.system.down(&component).unwrap();
        assert_eq!(down.ending, Ending::Exited);
        assert_eq!(component.ended().unwrap().status.exit, Some(0));
    }
}

#[test]
fn daemons_do_not_survive_down() {
    for bench in Bench::of_all_kinds() {
        let component = bench.system.up(&bench.spec("a", &with_daemon("pid"))).unwrap();
        bench.system.ready(&component, &Cancel::new()).unwrap();
        let daemon = pid_in(&bench.path("pid"));
        assert!(daemon.is_alive());
        // The shell waits for the daemon's parent before it becomes `sleep`: from then on the daemon is the only other.
        eventually("the end of the daemon's parent", || {
            has_become_sleep(component.process().pid).then_some(())
        });
        let down = bench.system.down(&component).unwrap();
        assert!(!runs(daemon), "{down:?}");
        assert_eq!((down.ending, down.stragglers), (Ending::Exited, 1));
    }
}

/// A process that repeatedly forks itself into a new session and exits has no parent and no process group to find it
/// by.
#[test]
fn one_that_runs_away_is_caught_in_its_cgroup() {
    for bench in Bench::of_all_kinds() {
        fs::write(bench.path("hop"), "sleep 0.002; echo . >> hops; setsid sh ./hop & exit").unwrap();
        let component = bench.system.up(&bench.spec("a", "sh ./hop; exec sleep 1000")).unwrap();
        let hops = || fs::metadata(bench.path("hops")).map_or(0, |m| m.len());
        eventually("some hops", || (hops() > 20).then_some(()));
        if bench.system.cgroup_version() == "none" && !has_kill(&component) {
            // Only a cgroup could hold it: without its script it stops.
            fs::remove_file(bench.path("hop")).unwrap();
            bench.system.down(&component).unwrap();
            continue;
        }
        let down = bench.system.down(&component).unwrap();
        assert!(component.pids().is_empty());
        let after = hops();
        assert!(down.stragglers > 0 && after > 0, "{down:?}");
        Cancel::new().wait_until(clock::now_ns() + 50_000_000);
        assert_eq!(hops(), after);
    }
}

/// Whether the component has its own cgroup, even one without controllers.
fn has_kill(component: &loadlab_system::Component) -> bool {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", component.process().pid)).unwrap_or_default();
    groups.contains("/loadlab/")
}

#[test]
fn dropping_the_system_takes_it_down() {
    for bench in Bench::of_all_kinds() {
        let component = bench.system.up(&bench.spec("a", &with_daemon("pid"))).unwrap();
        let daemon = pid_in(&bench.path("pid"));
        drop(bench.system);
        assert!(!component.process().is_alive() && !runs(daemon));
        assert!(!bench.dir.path().join("scratch").exists());
    }
}

#[test]
fn cpu_is_limited() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return limits_are_refused(&bench);
    }
    let mut spec = bench.spec("spin", &format!("exec {FIXTURE} spin"));
    spec.limits.cpu_cores = Some(0.1);
    let component = bench.system.up(&spec).unwrap();
    let mut target = component.target();
    // If the whole machine is stopped, the kernel counts each period it missed as one in which the limit was reached:
    // then it is measured again.
    eventually("its share of the periods", || {
        // The clock is read around the readings: a pause in between must not raise the share.
        let begin_ns = clock::now_ns();
        let first = target.read_now().unwrap();
        // Thirty periods of 100 ms in which the limit was reached.
        let last = eventually("throttling", || {
            let sample = target.read_now().unwrap();
            (sample.throttled_periods? >= first.throttled_periods? + 30).then_some(sample)
        });
        let elapsed_s = (clock::now_ns() - begin_ns) as f64 / 1e9;
        let cpu_s = last.cpu_s.unwrap() - first.cpu_s.unwrap();
        let throttled = (last.throttled_periods.unwrap() - first.throttled_periods.unwrap()) as f64;
        eprintln!("{cpu_s} s in {throttled} periods, in {elapsed_s} s");
        // About 10 ms in each period, and never more than that share of the elapsed time.
        assert!(cpu_s / elapsed_s < 0.13 && last.throttled_s > first.throttled_s, "{last:?}");
        (cpu_s >= throttled * 0.007).then_some(())
    });
}

#[test]
fn a_memory_hog_is_killed_and_reported() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return limits_are_refused(&bench);
    }
    let limits = Limits { memory_bytes: Some(15 << 20), ..Limits::default() };
    let wait = "until [ -e go ]; do sleep 0.01; done";
    let mut whole = bench.spec("whole", &format!("{wait}; exec {FIXTURE} hog 100000000"));
    let mut worker = bench.spec("worker", &format!("{wait}; {FIXTURE} hog 100000000; sleep 1000"));
    for spec in [&mut whole, &mut worker] {
        spec.limits = limits;
        let component = bench.system.up(spec).unwrap();
        bench.system.ready(&component, &Cancel::new()).unwrap();
    }
    fs::write(bench.path("go"), "").unwrap();
    let (mut died, mut lived) = (None, None);
    while died.is_none() || lived.is_none() {
        match bench.notice() {
            Notice::Died { component, status, .. } => died = Some((component, status)),
            // `whole` may report this too, if it is seen between the kill and its end.
            Notice::OutOfMemory { component, kills, .. } if component.name() == "worker" => {
                lived = Some((component, kills))
            }
            _ => {}
        }
    }
    let (component, status) = died.unwrap();
    assert_eq!(
        (component.name(), status.to_string().as_str()),
        ("whole", "out of memory (limit 15.0 MiB), signal 9 (SIGKILL)")
    );
    let (component, kills) = lived.unwrap();
    assert_eq!((kills, component.ended()), (1, None));
    let sample = component.target().read_now().unwrap();
    assert_eq!((sample.oom_kills, sample.memory_limit_bytes), (Some(1), Some(15 << 20)));
}

#[test]
fn one_that_is_never_ready_since_it_has_too_little_memory_is_reported_why() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return limits_are_refused(&bench);
    }
    let mut spec = bench.spec("web", &format!("{FIXTURE} hog 100000000; exec sleep 1000"));
    spec.limits = Limits { memory_bytes: Some(15 << 20), ..Limits::default() };
    spec.ready = Ready::Tcp { addr: format!("127.0.0.1:{}", free_port()), timeout_ns: 1 };
    let component = bench.system.up(&spec).unwrap();
    let mut target = component.target();
    eventually("the kill", || target.read_now().filter(|sample| sample.oom_kills == Some(1)));
    let message = bench.system.ready(&component, &Cancel::new()).unwrap_err().to_string();
    let hint = message.lines().last().unwrap();
    insta::assert_snapshot!(hint, @"hint: the kernel killed one of its processes for lack of memory: give it more");
}

#[test]
fn processes_and_files_are_limited() {
    let bench = Bench::new();
    if !bench.has_limits() {
        return limits_are_refused(&bench);
    }
    let forks = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo all of them";
    let mut spec = bench.spec("a", &format!("ulimit -n; {forks}; wait"));
    spec.limits = Limits { pids: Some(4), open_files: Some(77), ..Limits::default() };
    let component = bench.system.up(&spec).unwrap();
    let ended = eventually("the failing fork", || component.ended());
    assert!(ended.status.exit.is_some_and(|exit| exit != 0), "{}", ended.status);
    let out = fs::read_to_string(&spec.logs.stdout).unwrap();
    assert_eq!(out, "77\n");
    assert!(fs::read_to_string(&spec.logs.stderr).unwrap().contains("fork"));
    assert_eq!(component.pids().len(), 3);
    assert_eq!(bench.system.down(&component).unwrap().stragglers, 3);
}

/// What holds when limits cannot be applied: each is reported as an error, and everything else works.
fn limits_are_refused(bench: &Bench) {
    for limits in [
        Limits { cpu_cores: Some(0.1), ..Limits::default() },
        Limits { memory_bytes: Some(15 << 20), ..Limits::default() },
        Limits { pids: Some(4), ..Limits::default() },
    ] {
        let mut spec = bench.spec("a", "sleep 1000");
        spec.limits = limits;
        let message = bench.system.up(&spec).unwrap_err().to_string();
        assert!(
            message.contains("component `a`: cannot limit ")
                && message.contains("\nhint: run loadlab as root"),
            "{message}"
        );
    }
    assert!(bench.system.components().is_empty());
}

#[test]
fn a_host_without_cgroups_refuses_limits_and_does_the_rest() {
    let bench = Bench::without_cgroups();
    assert_eq!(bench.system.cgroup_version(), "none");
    let whats: Vec<&str> = bench.system.unavailable().iter().map(|u| u.what.as_str()).collect();
    assert_eq!(whats, ["cgroups", "a guardian"]);
    limits_are_refused(&bench);
    let mut spec = bench.spec("a", "ulimit -n; sleep 1000 & sleep 1000");
    spec.limits.open_files = Some(50);
    let component = bench.system.up(&spec).unwrap();
    bench.system.ready(&component, &Cancel::new()).unwrap();
    // A process that is about to exec another program, or loads its libraries, has one more file open.
    let sample = eventually("three processes with nothing but standard input, output and error", || {
        let sample = component.target().read_now()?;
        ((sample.pids, sample.open_files) == (Some(3), Some(9))).then_some(sample)
    });
    assert_eq!(fs::read_to_string(&spec.logs.stdout).unwrap(), "50\n");
    assert_eq!(sample.throttled_s, None);
    assert!(sample.memory_bytes > Some(0) && sample.memory_bytes == sample.resident_bytes);
    bench.system.close().unwrap();
    assert!(component.pids().is_empty());
}

#[test]
fn commands_run_to_their_end_and_leave_nothing() {
    for bench in [Bench::new(), Bench::without_cgroups()] {
        let spec = |name: &str, line: &str| CommandSpec {
            name: name.into(),
            command: line.into(),
            dir: bench.dir.path().to_owned(),
            env: vec![("N".into(), "3".into())],
            timeout_ns: None,
            log: bench.path("logs/commands.log"),
        };
        let run = |spec: &CommandSpec| bench.system.run_command(spec, &Cancel::new());

        let seed = run(&spec("seed", "test $N = 3")).unwrap();
        assert!(seed.is_ok(), "{seed:?}");

        let failed = run(&spec("build", "echo compiling; echo no space left >&2; exit 2")).unwrap();
        let message = failed.checked().unwrap_err().to_string();
        let expect = "build failed with exit status 2: `echo compiling; echo no space left >&2; exit 2`\nlast lines of DIR/logs/commands.log:\n  | compiling\n  | no space left";
        assert_eq!(message.replace(&bench.dir.path().display().to_string(), "DIR"), expect);

        let slow =
            CommandSpec { timeout_ns: Some(SECOND_NS / 10), ..spec("wait", "echo waiting; sleep 1000") };
        let message = run(&slow).unwrap_err().to_string();
        assert!(
            message.starts_with("wait did not finish within 100 ms: `echo waiting; sleep 1000`\n"),
            "{message}"
        );

        let cancel = Cancel::new();
        cancel.cancel();
        let error = bench.system.run_command(&spec("seed", "sleep 1000"), &cancel).unwrap_err();
        assert_eq!(error.to_string(), "interrupted while running seed: `sleep 1000`");
        assert!(bench.system.components().is_empty() && bench.notices.try_recv().is_err());
    }
}

#[test]
fn a_daemon_started_by_a_command_is_gone_with_it() {
    for bench in [Bench::new(), Bench::without_cgroups()] {
        let spec = CommandSpec {
            name: "seed".into(),
            command: "(setsid sh -c 'echo $$ > pid; exec sleep 1000' &); until [ -s pid ]; do sleep 0.01; done; cp pid kept"
                .into(),
            dir: bench.dir.path().to_owned(),
            env: Vec::new(),
            timeout_ns: None,
            log: bench.path("seed.log"),
        };
        bench.system.run_command(&spec, &Cancel::new()).unwrap().checked().unwrap();
        let pid: u32 = fs::read_to_string(bench.path("kept")).unwrap().trim().parse().unwrap();
        assert!(ProcessId::of(pid).is_none_or(|daemon| !runs(daemon)), "{pid}");
    }
}

#[test]
fn a_log_without_end_is_bounded() {
    let bench = Bench::with(|spec| spec.log_limit_bytes = 100_000);
    let component = bench.system.up(&bench.spec("a", "exec yes")).unwrap();
    bench.system.ready(&component, &Cancel::new()).unwrap();
    match bench.notice() {
        Notice::LogCut { path, .. } => assert_eq!(path, component.spec().logs.stdout),
        other => panic!("{other:?}"),
    }
    bench.system.down(&component).unwrap();
    // It may be cut once more just now, and the note comes after the cut.
    eventually("the note of the cut", || {
        let text = fs::read_to_string(&component.spec().logs.stdout).unwrap();
        (text.starts_with("y\ny\n") && text.contains(" bytes were removed here]\n")).then_some(())
    });
}

#[test]
fn cgroups_are_gone_afterwards() {
    let bench = Bench::new();
    let component = bench.system.up(&bench.spec("a", "sleep 1000")).unwrap();
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", component.process().pid)).unwrap();
    assert_eq!(groups.contains("/loadlab/test-"), bench.system.cgroup_version() != "none", "{groups}");
    let state: Vec<_> = fs::read_dir(bench.path("state")).unwrap().flatten().collect();
    let text = fs::read_to_string(state[0].path()).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    let dirs: Vec<String> = state["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|r| r["cgroup"].as_str().map(str::to_owned))
        .collect();
    assert!(dirs.iter().all(|dir| std::path::Path::new(dir).join("a").is_dir()), "{dirs:?}");
    bench.system.close().unwrap();
    assert!(dirs.iter().all(|dir| !std::path::Path::new(dir).exists()), "{dirs:?}");
}

#[test]
fn nginx_comes_up_under_a_limit_and_quits_in_order() {
    if !std::path::Path::new("/usr/sbin/nginx").exists() {
        return common::skip::skip("nginx is not installed");
    }
    let bench = Bench::new();
    let port = free_port();
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {};", bench.path(kind).display()))
        .join(" ");
    let config = format!(
        "daemon off; worker_processes 2; pid {}; error_log stderr; events {{}} \
         http {{ access_log off; {temp} server {{ listen 127.0.0.1:{port}; location / {{ return 200 'up'; }} }} }}",
        bench.path("nginx.pid").display()
    );
    fs::write(bench.path("nginx.conf"), config).unwrap();
    let mut spec = bench.spec("edge", &format!("/usr/sbin/nginx -c {}", bench.path("nginx.conf").display()));
    spec.ready = Ready::Http { url: format!("http://127.0.0.1:{port}/"), timeout_ns: common::PATIENCE_NS };
    spec.ports = vec![port];
    spec.stop.signal = Signal::parse("QUIT").unwrap();
    if bench.has_limits() {
        spec.limits = Limits {
            cpu_cores: Some(0.01),
            memory_bytes: Some(64 << 20),
            pids: Some(20),
            open_files: Some(1024),
            ..Limits::default()
        };
    }
    let component = bench.system.up(&spec).unwrap();
    bench.system.ready(&component, &Cancel::new()).unwrap();
    eventually("master and workers", || (component.pids().len() == 3).then_some(()));
    let down = bench.system.down(&component).unwrap();
    assert_eq!((down.ending, down.stragglers), (Ending::Exited, 0));
    assert_eq!(component.ended().unwrap().status.to_string(), "exit status 0");
}
