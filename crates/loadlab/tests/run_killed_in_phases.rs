//! `kill -9` of loadlab in every phase of a run with containers, with a Compose file, and with processes in their own
//! networks; every other time, of its guardian as well. After `loadlab clean`, none of its processes, control groups,
//! namespaces, network devices, containers, networks or volumes is left.
//!
//! Each run has its own `/run`, so that `clean` affects no other run on this machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::run_support;
use crate::run_support::engine::{Engine, context};
use crate::run_support::{LOADLAB, Lab, eventually};

/// The phase in which a run is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// It has started to record what it creates, and has created little of it.
    BeforeUp,
    Building,
    Starting,
    Preparing,
    Loading,
    Draining,
    GoingDown,
}

const PHASES: [Phase; 7] = [
    Phase::BeforeUp,
    Phase::Building,
    Phase::Starting,
    Phase::Preparing,
    Phase::Loading,
    Phase::Draining,
    Phase::GoingDown,
];

/// The kind of components in the run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Containers,
    Compose,
    Namespaces,
}

/// Makes a phase last: lines added to the plan, and the shell condition that detects the phase.
struct Stay {
    system: &'static str,
    rest: &'static str,
    until: &'static str,
}

impl Phase {
    fn stay(self) -> Stay {
        let stay = |system, rest, until| Stay { system, rest, until };
        match self {
            Phase::BeforeUp => stay("", "", "test -e /run/loadlab/*.json"),
            Phase::Building => stay("", "", "if engine; then running; else test -e at; fi"),
            Phase::Starting => stay("", "", "if engine; then running; else test -e $TRIAL/logs/web.out; fi"),
            Phase::Preparing => stay("  before_trial: touch at; exec sleep 1000\n", "", "test -e at"),
            Phase::Loading => stay("", "", "test -s $TRIAL/ticks.jsonl"),
            Phase::Draining => stay(
                "  probes: { one: { command: echo 1 } }\n",
                "drain: { until: \"one == 2\", at_most: 10m }\n",
                "grep -q drain_started $TRIAL/events.jsonl",
            ),
            // The first process of a container ignores the signal, and so does the process below.
            Phase::GoingDown => stay("", "", "test -s $TRIAL/summary.json"),
        }
    }

    /// The load's duration: short if another phase follows the load.
    fn load(self) -> &'static str {
        if matches!(self, Phase::Draining | Phase::GoingDown) { "1100ms" } else { "10m" }
    }

    /// The port that readiness checks. In the starting phase it is one on which the component never becomes ready.
    fn port(self) -> u16 {
        if self == Phase::Starting { 9 } else { 8080 }
    }
}

impl Kind {
    /// Writes the plan and what it needs into the lab's folder.
    fn write(self, lab: &Lab, engine: Option<&Engine>, phase: Phase) {
        let Stay { system, rest, .. } = phase.stay();
        let (port, duration) = (phase.port(), phase.load());
        let ready = format!("ready: {{ tcp: \"${{address}}:{port}\", timeout: 10m }}");
        let at = "${components.web.address}:8080";
        let load = format!(
            "load: {{ users: 1, duration: {duration}, journey: [{{ get: \"http://{at}/\" }}] }}\n{rest}"
        );
        let engine = engine.map(|e| format!("  engine: {}\n", e.host())).unwrap_or_default();
        let hang = "touch at; exec sleep 1000";
        let text = match self {
            Kind::Containers => {
                let web = "web: { container: { build: image, command: \"httpd -f -p 8080 -h /\", volumes: [\"data:/data\"] }, ";
                format!("{engine}  components:\n    {web}{ready} }}\n{system}{load}")
            }
            Kind::Compose => {
                lab.file("docker-compose.yml", COMPOSE);
                format!(
                    "{engine}  compose: docker-compose.yml\n  components:\n    web: {{ compose: web, {ready} }}\n{system}{load}"
                )
            }
            Kind::Namespaces => {
                // Its first process ignores the signal; its relay is another process.
                let web = "\"everywhere\": true";
                let build =
                    if phase == Phase::Building { &format!("build: {hang}") } else { "limits: { pids: 40 }" };
                let web = run_support::component("web", web, &["port: 8080", &ready, build]);
                let relayed = web.replace("limits: {", "limits: { delay: 1ms, ");
                let stubborn = "    stubborn: { run: \"trap '' TERM; while :; do sleep 0.05; done\" }\n";
                format!("  components:\n{relayed}{stubborn}{system}isolate: true\n{load}")
            }
        };
        lab.file("plan.yaml", &format!("loadlab: 1\nname: test\nsystem:\n{text}"));
        if self != Kind::Namespaces {
            let image = context(lab.path());
            if phase == Phase::Building {
                let dockerfile = std::fs::read_to_string(image.join("Dockerfile")).expect("it was written");
                let hanging = dockerfile.replace("CMD", "RUN [\"/bin/sleep\", \"1000\"]\nCMD");
                std::fs::write(image.join("Dockerfile"), hanging).expect("it can be written");
            }
        }
    }
}

const COMPOSE: &str = r#"version: "3.8"
services:
  web:
    build: ./image
    command: ["/bin/httpd", "-f", "-p", "8080", "-h", "/"]
    depends_on: [store]
    volumes: ["data:/data"]
  store:
    build: ./image
volumes: { data: {} }
"#;

/// Runs the plan up to its phase, records what it has created, kills it, and cleans up.
const SCRIPT: &str = r#"
    mount -t tmpfs none /run || exit 99
    TRIAL="$NAME/cases/default/1"
    engine() { test -n "$DOCKER_HOST"; }
    running() { test -n "$(docker ps --quiet)"; }
    "$LOADLAB" run plan.yaml --out "$NAME" --quiet > output 2>&1 & dying=$!
    looks=0
    until eval "$UNTIL" 2> /dev/null; do
        looks=$((looks + 1))
        if ! kill -0 $dying || test $looks -gt 9000; then kill -9 $dying; cat output; exit 98; fi
        sleep 0.02
    done
    guardian=$(sed -n '/"guardian"/,/}/s/.*"pid": *\([0-9]*\).*/\1/p' /run/loadlab/"$NAME"-$dying-*.json)
    for environ in $(grep -l "LOADLAB_RUN=$NAME-" /proc/[0-9]*/environ 2> /dev/null); do
        readlink "${environ%environ}ns/net"
    done > namespaces
    if engine; then
        docker ps --all --quiet --no-trunc > containers
        for id in $(docker ps --quiet); do readlink /proc/$(docker inspect --format '{{.State.Pid}}' $id)/ns/net; done >> namespaces
        for id in $(docker network ls --quiet); do ls -d /sys/class/net/br-$id; ls /sys/class/net/br-$id/brif; done > devices 2> /dev/null
    fi
    if test $HOW = both; then kill -9 $guardian $dying; else kill -9 $dying; fi
    wait $dying
    while kill -0 $guardian 2> /dev/null; do sleep 0.02; done
    "$LOADLAB" clean > cleaned; echo "exit $?" >> cleaned
    "$LOADLAB" clean > again
    ls /run/loadlab > state
"#;

/// Network namespaces of all processes.
fn namespaces() -> BTreeSet<PathBuf> {
    let pids = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    pids.filter_map(|e| std::fs::read_link(e.path().join("ns/net")).ok()).collect()
}

/// Folders of containers in any cgroup hierarchy.
fn groups_of(ids: &[String]) -> Vec<PathBuf> {
    let (mut found, mut look) = (Vec::new(), vec![PathBuf::from("/sys/fs/cgroup")]);
    while let Some(dir) = look.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                found.extend(ids.iter().any(|id| name.contains(id.as_str())).then(|| entry.path()));
                look.push(entry.path());
            }
        }
    }
    found
}

/// Checks that everything that existed when the run was killed is gone.
fn nothing_stays(lab: &Lab, engine: Option<&Engine>, what: &str) {
    let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let made: Vec<PathBuf> = lab.lines("namespaces").into_iter().map(PathBuf::from).collect();
    let devices: Vec<String> = lab.lines("devices");
    let containers = lab.lines("containers");
    let left = || {
        let mut left = lab.left_behind();
        left.extend(engine.map(Engine::left_behind).unwrap_or_default());
        let all = namespaces();
        let stays = made.iter().filter(|ns| **ns != own && all.contains(*ns));
        left.extend(stays.map(|ns| ns.display().to_string()));
        let device = |name: &str| Path::new("/sys/class/net").join(name.rsplit('/').next().unwrap_or(name));
        left.extend(devices.iter().filter(|name| device(name).exists()).cloned());
        left.extend(groups_of(&containers).into_iter().map(|dir| dir.display().to_string()));
        left
    };
    // The kernel removes namespaces and their devices some time after their last process.
    let mut last = Vec::new();
    eventually(&format!("the end of all of it ({what})"), || {
        last = left();
        last.is_empty().then_some(())
    });
    assert!(lab.read("cleaned").ends_with("exit 0\n"), "{what}: {}", lab.read("cleaned"));
    assert_eq!(lab.read("again"), "nothing to clean\n", "{what}");
    assert_eq!(lab.read("state"), "", "{what}");
}

fn killed(kind: Kind, phase: Phase, how: &str, engine: Option<&Engine>) {
    let what = format!("{kind:?}, {phase:?}, {how} killed");
    let lab = Lab::new();
    kind.write(&lab, engine, phase);
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", SCRIPT])
        .current_dir(lab.path())
        .env("LOADLAB", LOADLAB)
        .env("NAME", lab.run_name())
        .env("UNTIL", phase.stay().until)
        .env("HOW", how)
        .env("DOCKER_HOST", engine.map(Engine::host).unwrap_or_default())
        .output()
        .expect("unshare is there (util-linux)");
    let reported = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {} {reported}", output.status);
    if !matches!(phase, Phase::BeforeUp | Phase::Building) {
        let own = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        let apart = lab.lines("namespaces").iter().any(|ns| Path::new(ns) != own);
        assert!(apart, "{what}: there was something to remove");
    }
    nothing_stays(&lab, engine, &what);
}

/// Every phase, alternating between the ways to kill, so that each phase sees both, for one kind or another.
fn killed_in_every_phase(kind: Kind, engine: Option<&Engine>) {
    let ways = match kind {
        Kind::Compose => ["loadlab", "both"],
        _ => ["both", "loadlab"],
    };
    for (phase, how) in PHASES.into_iter().zip(ways.into_iter().cycle()) {
        killed(kind, phase, how, engine);
    }
}

#[test]
fn containers() {
    killed_in_every_phase(Kind::Containers, Some(&Engine::start()));
}

#[test]
fn a_compose_file() {
    killed_in_every_phase(Kind::Compose, Some(&Engine::start()));
}

#[test]
fn processes_in_network_namespaces() {
    killed_in_every_phase(Kind::Namespaces, None);
}
