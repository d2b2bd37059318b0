//! Components that are not loadlab's own processes, end to end on a real engine: containers, Compose files, systems
//! that are already running. However a run ends, nothing of it is left behind.

use std::fmt::Write as _;

use rustix::process::Signal;

use crate::run_support::engine::{Engine, context};
use crate::run_support::{LOADLAB, Lab, eventually};

/// A web server in a container that answers `hello`; `more` are further settings.
fn web(more: &str) -> String {
    let ready = match more.contains("ready:") {
        true => "",
        false => "      ready: { tcp: \"${address}:8080\" }\n",
    };
    let line = "echo $GREETING > /index.html; echo serving; echo oh >&2; exec httpd -f -p 8080 -h /";
    format!(
        "    web:\n      container: {{ build: {{ context: image, args: {{ GREETING: hello }} }}, command: \"{line}\" }}\n{more}{ready}"
    )
}

fn plan(engine: &Engine, components: &str, rest: &str) -> String {
    let mut text = format!("loadlab: 1\nname: test\nsystem:\n  engine: {}\n", engine.host());
    if !components.is_empty() {
        write!(text, "  components:\n{components}").expect("text");
    }
    text.push_str(rest);
    text
}

const LOAD: &str =
    "load: { users: 1, requests: 100, journey: [{ get: \"http://${components.web.address}:8080/\" }] }\n";
const LONG: &str =
    "load: { users: 1, duration: 10m, journey: [{ get: \"http://${components.web.address}:8080/\" }] }\n";

/// The tests' Compose file: a web server that waits for another service, and a service that only prepares something.
const COMPOSE: &str = r#"version: "3.8"
services:
  web:
    build: ./image
    command: ["/bin/sh", "-c", "echo $GREETING $$EXTRA > /index.html; echo serving; exec httpd -f -p 8080 -h /"]
    depends_on: [store]
    stop_signal: SIGKILL
  store:
    build: ./image
    stop_signal: SIGKILL
    volumes: ["data:/data"]
  prepare:
    build: ./image
    command: ["/bin/true"]
volumes: { data: {} }
"#;

fn compose(engine: &Engine, load: &str) -> String {
    let system = "  compose: { file: docker-compose.yml, env: { GREETING: hi } }\n";
    let web = "    web: { compose: web, env: { EXTRA: \"x$y\" }, limits: { memory: 48MiB }, ready: { http: \"http://${address}:8080/\" } }\n";
    plan(engine, web, &format!("{system}{load}"))
}

#[test]
fn containers_are_components() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    let more = "      limits: { cpu: 50%, memory: 32MiB, pids: 40, open_files: 500 }\n      stop: { signal: KILL }\n";
    let other = "    client:\n      container:\n        build: image\n        entrypoint: [/bin/sh, -c]\n        \
                 command: [\"wget -q -O - http://web:8080/ && exec httpd -f -p 80 -h /\"]\n        port: 80\n        \
                 volumes: [\"data:/data\", \"./image:/host:ro\"]\n        \
                 health: { command: \"test -e /host/Dockerfile -a -d /data\", interval: 100ms }\n      \
                 port: auto\n      stop: { signal: KILL }\n";
    let check = "    process: { run: \"sleep 1000\", env: { AT: \"${components.client.port}\" } }\n";
    let load = format!("{LOAD}expect: [\"errors == 0\", \"web.memory < 32MiB\"]\n");
    let ran = lab.run(&plan(&engine, &format!("{}{other}{check}", web(more)), &load), &[]);
    ran.expect(0, &["image of web", "client ready"]);
    let record = lab.record();
    let logs = record.trial("default", 1).join("logs");
    let log = |name: &str| std::fs::read_to_string(logs.join(name)).unwrap();
    assert_eq!((log("web.out").as_str(), log("web.err").as_str()), ("serving\n", "oh\n"));
    assert_eq!(log("client.out"), "hello\n");
    let samples = record.lines("default", 1, "samples.jsonl");
    let last = samples.iter().rfind(|s| s["component"] == "web").unwrap();
    assert!(last["cpu_s"].as_f64() > Some(0.0) && last["memory_limit_bytes"] == 32 << 20, "{last}");
    // 100 answers of more than 200 bytes, plus the other container's traffic.
    assert!(last["net_out_bytes"].as_u64() > Some(20_000), "{last}");
    assert!(last["net_in_bytes"].as_u64() > Some(5_000), "{last}");
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_container_is_reported() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    let run = |components: &str, expect: &[&str]| {
        let _ = std::fs::remove_dir_all(lab.record().dir);
        let ran = lab.run(&plan(&engine, components, LOAD), &[]);
        ran.expect(3, expect);
        assert_eq!(engine.left_behind(), Vec::<String>::new(), "{components}");
        ran.err
    };
    run(
        "    web: { container: { image: \"nobody/nothing:9\" } }\n",
        &[
            "component `web`: cannot pull the image `nobody/nothing:9`, which is not on this machine",
            "hint: name an image",
        ],
    );
    let said = run(
        &web("      ready: { health: true, timeout: 1s }\n      stop: { signal: KILL }\n")
            .replace("command:", "health: { command: \"false\", interval: 100ms }, command:"),
        &["component `web` was not ready within 1.00 s: its health check"],
    );
    // The container's output so far, or the statement that there is none yet.
    assert!(said.contains("  | serving") || said.contains("\nit wrote no output\n"), "{said}");
    run(
        // Without `ready` it would be up as soon as it runs, and it may still be running when it is checked.
        "    web: { container: { build: image, command: \"echo no; exit 7\" }, ready: { tcp: \"${address}:8080\" } }\n",
        &["component `web` ended before it was ready: exit status 7", "  | no"],
    );
    run(
        "    web: { container: { build: image, command: [/bin/nothing] } }\n",
        &["component `web`: cannot start the container", "hint: the command is looked for in the image"],
    );
    run("    web: { container: { build: image }, limits: { memory: 1MiB } }\n", &["inimum memory limit"]);
    run("    web: { container: { build: nowhere } }\n", &["cannot build the image", "nowhere"]);
    let gone = plan(&engine, &web(""), LOAD).replace(&engine.host(), "unix:///nonexistent/engine.sock");
    let _ = std::fs::remove_dir_all(lab.record().dir);
    lab.run(&gone, &[])
        .expect(3, &["no container engine responds", "/nonexistent/engine.sock", "hint: start Docker"]);
}

#[test]
fn a_kill_for_memory_is_reported() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    // `tail` keeps the last line of its input, and `/dev/zero` has no end. It starts only once the load has, since an
    // earlier death is a different case. Nothing else in the container is large: the kernel chooses what to kill.
    let line = "echo hello > /index.html; httpd -p 8080 -h /; until test -e /flag/go; do sleep 0.1; done; \
                exec tail /dev/zero";
    let web = format!(
        "    web: {{ container: {{ build: image, command: \"{line}\", volumes: [\"./flag:/flag:ro\"] }}, \
         limits: {{ memory: 16MiB }}, ready: {{ tcp: \"${{address}}:8080\" }} }}\n"
    );
    std::os::unix::fs::symlink("busybox", lab.path().join("image/bin/tail")).unwrap();
    std::os::unix::fs::symlink("busybox", lab.path().join("image/bin/test")).unwrap();
    std::fs::create_dir(lab.path().join("flag")).unwrap();
    let running = lab.start(&plan(&engine, &web, LONG), &[]);
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    eventually("a second of load", || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0));
    lab.file("flag/go", "");
    let ran = running.end();
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let died = lab.record().events("default", 1, "died");
    let status = died[0]["status"].as_str().unwrap();
    assert!(status.contains("out of memory (limit 16.0 MiB)"), "{status}");
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

#[test]
fn a_compose_file_is_a_system() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    lab.file("docker-compose.yml", COMPOSE);
    let load = LOAD.replace(":8080/\" }", ":8080/\", check: { contains: \"hi x$y\" } }");
    assert_ne!(load, LOAD);
    let load = format!("{load}trials: 2\nexpect: [\"errors == 0\", \"web.memory < 20MiB\"]\n");
    let ran = lab.run(&compose(&engine, &load), &[]);
    ran.expect(0, &["web ready", "store ready"]);
    let record = lab.record();
    let samples = record.lines("default", 2, "samples.jsonl");
    let of = |name: &str| samples.iter().rfind(|s| s["component"] == name);
    assert_eq!(of("web").unwrap()["memory_limit_bytes"], 48 << 20);
    assert!(of("store").is_some() && of("prepare").is_none());
    let notes = record.events("default", 1, "note");
    assert!(notes.iter().any(|n| n["text"] == "prepare finished its work and ended"), "{notes:?}");
    let log = std::fs::read_to_string(record.trial("default", 1).join("logs/web.out")).unwrap();
    assert_eq!(log, "serving\n");
    assert_eq!(engine.left_behind(), Vec::<String>::new());
    // Compose reports errors in its file.
    lab.file("docker-compose.yml", "services: { web: { imago: x } }\n");
    std::fs::remove_dir_all(lab.record().dir).unwrap();
    lab.run(&compose(&engine, LOAD), &[]).expect(3, &["compose", "imago"]);
}

/// A container and a service are restarted in the middle of a load: it is the same container, with its current limits
/// rather than its initial ones. What cannot be done is reported.
#[test]
fn containers_start_again() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    // Without the service that ends: its address would be the lowest free one.
    let prepare = "  prepare:\n    build: ./image\n    command: [\"/bin/true\"]\n";
    assert!(COMPOSE.contains(prepare));
    // A page that exists from the second start on; the load ends once it was served, however long that takes.
    let second = |text: &str| {
        let first = "echo $GREETING";
        assert!(text.contains(first));
        text.replace(first, "test -e /index.html && echo again > /again; echo $GREETING")
    };
    lab.file("docker-compose.yml", &second(&COMPOSE.replace(prepare, "")));
    let load =
        LOAD.replace("requests: 100", "duration: 2m, timeout: 500ms").replace(":8080/\"", ":8080/again\"");
    let events = "events: [{ at: 500ms, do: limit web memory 64MiB }, { at: 1s, do: restart web }]\n\
                  stop_when: [\"ok > 10\"]\n";
    let limits = "limits: { memory: 48MiB, cpuset: \"0\", block_read: 10MiB/s, block_write_ops: 50/s }";
    let container = second(&web(&format!("      {limits}\n      stop: {{ signal: KILL }}\n")));
    let service = compose(&engine, &format!("{load}{events}")).replace("limits: { memory: 48MiB }", limits);
    for (text, what) in
        [(plan(&engine, &container, &format!("{load}{events}")), "container"), (service, "service")]
    {
        let _ = std::fs::remove_dir_all(lab.record().dir);
        lab.run(&text, &[]).expect(0, &[]);
        let record = lab.record();
        let up = record.events("default", 1, "up");
        let pids: Vec<_> = up.iter().filter(|e| e["component"] == "web").map(|e| e["pid"].clone()).collect();
        assert!(pids.len() == 2 && pids[0] != pids[1], "{what}: {up:?}");
        let limited = record.events("default", 1, "limited");
        let of_web: Vec<_> =
            limited.iter().filter(|e| e["component"] == "web").map(|e| &e["limits"]).collect();
        let (first, last) = (of_web[0], of_web[of_web.len() - 1]);
        assert_eq!(
            (&first["memory_bytes"], &last["memory_bytes"]),
            (&(48 << 20).into(), &(64 << 20).into()),
            "{what}"
        );
        for limits in [first, last] {
            assert_eq!(limits["cpuset"], "0", "{what}: {limits}");
            assert_eq!(limits["block_read_bytes_per_s"], 10 << 20, "{what}: {limits}");
            assert_eq!(limits["block_write_ops_per_s"], 50, "{what}: {limits}");
        }
        let ended = record.events("default", 1, "load_ended");
        assert_eq!(ended[0]["how"], "stopped: ok > 10", "{what}: it answers again");
        let log = std::fs::read_to_string(record.trial("default", 1).join("logs/web.out")).unwrap();
        assert_eq!(log, "serving\nserving\n", "{what}: each start is in its log once");
        let summary = record.summary("default", 1);
        assert_eq!(summary["components"]["web"]["restarts"], 1, "{what}: {summary:#}");
        assert_eq!(engine.left_behind(), Vec::<String>::new(), "{what}");
    }
}

/// A container and a service are killed, and come back or not: this does not count as a death, and the next trial has
/// what it needs.
#[test]
fn containers_are_killed_and_come_back() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    let prepare = "  prepare:\n    build: ./image\n    command: [\"/bin/true\"]\n";
    lab.file("docker-compose.yml", &COMPOSE.replace(prepare, ""));
    // At most 50 requests a second: this many succeed only if it comes back, however long that takes. The kill comes
    // late enough for answers before it, even if the machine stalls for a moment.
    let load = LOAD.replace("requests: 100", "duration: \"${case.length}\", timeout: 500ms, think: 20ms");
    let back = "matrix:\n  - { name: back, back: restart web, length: 2m }\n  \
                - { name: away, back: none, length: 4s }\n";
    let rest = format!(
        "{load}{back}trials: 2\nstop_when: [\"ok > 250\"]\nevents: [{{ at: 1500ms, do: kill web }}, {{ at: 2s, do: \"${{case.back}}\" }}]\n"
    );
    let container = web("      stop: { signal: KILL }\n      lifetime: experiment\n");
    for (text, what) in
        [(plan(&engine, &container, &rest), "container"), (compose(&engine, &rest), "service")]
    {
        let _ = std::fs::remove_dir_all(lab.record().dir);
        let ran = lab.run(&text, &[]);
        let record = lab.record();
        // Users that think run late on a busy machine.
        let trials = [("back", 1), ("away", 1), ("back", 2), ("away", 2)];
        ran.expect_however_busy(&trials.map(|(case, trial)| record.summary(case, trial)), false);
        for (case, trial, answers) in
            [("back", 1, true), ("away", 1, false), ("back", 2, true), ("away", 2, false)]
        {
            let at = format!("{what}, {case}, trial {trial}");
            let down = record.events(case, trial, "down");
            let killed = down.iter().filter(|e| e["component"] == "web" && e["how"] == "killed by an event");
            assert_eq!(killed.count(), 1, "{at}: {down:?}");
            assert!(!down.iter().any(|e| e["how"] == "restarted by an event"), "{at}: {down:?}");
            assert_eq!(record.events(case, trial, "died").len(), 0, "{at}");
            let ticks = record.lines(case, trial, "ticks.jsonl");
            let ok = |tick: &serde_json::Value| tick["ok"].as_u64() > Some(0);
            let ended = record.events(case, trial, "load_ended");
            assert_eq!(ended[0]["how"] == "stopped: ok > 250", answers, "{at}: {ended:?}");
            let killed_s = down.iter().find(|e| e["component"] == "web").and_then(|e| e["at_s"].as_f64());
            // Whatever happened to it in the previous trial, it is up when this one begins.
            let is_before = |tick: &&serde_json::Value| tick["from_s"].as_f64() < killed_s;
            assert!(ticks.iter().filter(is_before).any(ok), "{at}: {ticks:?}");
            // An answer that came before the kill may be read a moment after it.
            let later_s = killed_s.map(|killed_s| killed_s + 0.5);
            let is_later = |tick: &&serde_json::Value| tick["from_s"].as_f64() > later_s;
            assert_eq!(ticks.iter().filter(is_later).any(ok), answers, "{at}: {ticks:?}");
        }
        // The second round runs the cases in the other order. The container lives on: it is started for the first trial
        // and wherever the previous trial killed it without restarting it (both of the second round), and comes back in
        // two trials; the service is new in each of the four.
        let ups = |trial| {
            let of_web = |case| {
                record.events(case, trial, "up").into_iter().filter(|e| e["component"] == "web").count()
            };
            of_web("back") + of_web("away")
        };
        assert_eq!(ups(1) + ups(2), if what == "container" { 3 + 2 } else { 4 + 2 }, "{what}");
        assert_eq!(engine.left_behind(), Vec::<String>::new(), "{what}");
    }
}

/// A container that an event could not restart is still taken down, and the next trial gets a new one.
#[test]
fn a_container_that_does_not_start_again() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    let line =
        "test -e /once && exit 7; echo x > /once; echo hello > /index.html; exec httpd -f -p 8080 -h /";
    let web = format!(
        "    web: {{ container: {{ build: image, command: \"{line}\" }}, lifetime: experiment, stop: {{ signal: KILL }}, ready: {{ tcp: \"${{address}}:8080\" }} }}\n"
    );
    let load = LOAD.replace("requests: 100", "duration: 4s, timeout: 300ms");
    let rest = format!("{load}trials: 2\nevents: [{{ at: 2s, do: restart web }}]\n");
    let ran = lab.run(&plan(&engine, &web, &rest), &[]);
    ran.expect(3, &["event `restart web` failed: web: ", "exit status 7"]);
    assert!(!ran.err.contains("cannot take down"), "{}", ran.err);
    for trial in [1, 2] {
        let record = lab.record();
        // The second start may have been up for a moment.
        let ups = record.events("default", trial, "up").len();
        assert!((1..=2).contains(&ups), "{trial}: {ups}");
        assert!(record.events("default", trial, "down").len() <= 2, "{trial}");
        assert!(record.summary("default", trial)["requests"]["ok"].as_u64() > Some(0), "{trial}");
    }
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

#[test]
fn ended_in_the_middle_nothing_stays() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    lab.file("docker-compose.yml", COMPOSE);
    let ticks = lab.record().trial("default", 1).join("ticks.jsonl");
    let begun = || std::fs::metadata(&ticks).ok().filter(|m| m.len() > 0).map(drop);
    let stop = "      stop: { signal: KILL }\n";
    for text in [plan(&engine, &web(stop), LONG), compose(&engine, LONG)] {
        for signal in [Signal::INT, Signal::KILL] {
            let _ = std::fs::remove_dir_all(lab.record().dir);
            let running = lab.start(&text, &[]);
            eventually("a second of load", begun);
            assert!(!engine.left_behind().is_empty());
            running.signal(signal);
            let ended = running.end();
            if signal == Signal::INT {
                ended.expect(130, &[]);
                assert_eq!(engine.left_behind(), Vec::<String>::new());
            }
            eventually("the guardian's work", || engine.left_behind().is_empty().then_some(()));
            eventually("the guardian's work", || lab.left_behind().is_empty().then_some(()));
        }
    }
}

/// With the guardian killed too, containers keep running until `loadlab clean`. The test has its own `/run`, so that no
/// other run on this machine is affected.
#[test]
fn clean_removes_containers() {
    let (engine, lab) = (Engine::start(), Lab::new());
    context(lab.path());
    lab.file("plan.yaml", &plan(&engine, &web("      ready: { tcp: \"${address}:8080\" }\n"), LONG));
    let script = r#"
        mount -t tmpfs none /run || exit 99
        "$LOADLAB" run plan.yaml --out run --quiet > /dev/null & dying=$!
        until test -s run/cases/default/1/ticks.jsonl; do kill -0 $dying || exit 98; sleep 0.05; done
        guardian=$(sed -n '/"guardian"/,/}/s/.*"pid": *\([0-9]*\).*/\1/p' /run/loadlab/run-$dying-*.json)
        kill -9 $guardian $dying; wait $dying
        "$LOADLAB" clean --dry-run > dry
        "$LOADLAB" clean > cleaned; echo "exit $?" >> cleaned
        "$LOADLAB" clean > again
    "#;
    let status = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .current_dir(lab.path())
        .env("LOADLAB", LOADLAB)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let (dry, cleaned) = (lab.read("dry"), lab.read("cleaned"));
    for what in ["container loadlab-run-", "network loadlab-run-", "state file "] {
        assert!(dry.contains(&format!("would remove {what}")), "{dry}");
        assert!(cleaned.contains(&format!("removed {what}")), "{cleaned}");
    }
    assert!(cleaned.ends_with("exit 0\n"), "{cleaned}");
    assert_eq!(lab.read("again"), "nothing to clean\n");
    assert_eq!(engine.left_behind(), Vec::<String>::new());
}

/// An engine may finish a request long after loadlab and its guardian are gone, when no state file is left: `clean`
/// finds the result by its label. It leaves alone anything of a live run, or whose owner cannot be known.
#[test]
fn clean_finds_what_no_state_file_knows_of() {
    let (engine, lab) = (Engine::start(), Lab::new());
    let image = context(lab.path()).display().to_string();
    engine.docker(&["build", "--tag", "own", &image]);
    let namespace = std::fs::metadata("/proc/self/ns/pid").expect("a namespace");
    let namespace = std::os::unix::fs::MetadataExt::ino(&namespace);
    let stat = std::fs::read_to_string("/proc/self/stat").expect("it can be read");
    let start: u64 =
        stat.rsplit(')').next().and_then(|s| s.split_whitespace().nth(19)?.parse().ok()).expect("a start");
    let tag = |start: u64, namespace: u64| format!("{:x}-{start:x}-{namespace:x}", std::process::id());
    let (alive, dead) = (tag(start, namespace), tag(start + 1, namespace));
    let elsewhere = tag(start + 1, namespace + 1);
    let run = |tag: &str| format!("loadlab.run=shop-1/1/2/{tag}");
    let project = |tag: &str| format!("com.docker.compose.project=loadlab-shop-1-{tag}");
    let user = "com.docker.compose.project=shop".to_owned();
    for (i, label) in
        [run(&dead), project(&dead), run(&alive), project(&alive), run(&elsewhere), user].iter().enumerate()
    {
        engine.docker(&["create", "--name", &format!("c{i}"), "--network=none", "--label", label, "own"]);
        engine.docker(&["network", "create", "--label", label, &format!("n{i}")]);
        engine.docker(&["volume", "create", "--label", label, &format!("v{i}")]);
    }
    // A separate `/run`, so that no other run on this machine is affected.
    let script = "mount -t tmpfs none /run || exit 99; \"$LOADLAB\" clean --dry-run > dry; \"$LOADLAB\" clean > cleaned; \"$LOADLAB\" clean > again";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(lab.path());
    let status = command.env("LOADLAB", LOADLAB).env("DOCKER_HOST", engine.host()).status().unwrap();
    assert!(status.success(), "{status}");
    let (dry, cleaned) = (lab.read("dry"), lab.read("cleaned"));
    for what in ["container c", "network n", "volume v"] {
        for i in 0..6 {
            let is_listed = dry.contains(&format!("would remove {what}{i} of run shop-1"));
            assert_eq!(is_listed, i < 2, "{what}{i}: {dry}");
            assert_eq!(
                cleaned.contains(&format!("removed {what}{i} of run shop-1")),
                i < 2,
                "{what}{i}: {cleaned}"
            );
        }
    }
    let left = engine.left_behind();
    let expect: Vec<String> = ["container c", "network n", "volume v"]
        .iter()
        .flat_map(|w| (2..6).map(move |i| format!("{w}{i}")))
        .collect();
    assert!(left.len() == expect.len() && expect.iter().all(|one| left.contains(one)), "{left:?}");
    assert_eq!(lab.read("again"), "nothing to clean\n");
}
