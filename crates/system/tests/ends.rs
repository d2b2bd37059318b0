//! How the end of a container is noticed, against an engine that answers only when released.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use loadlab_record::text::time::SECOND_NS;
use loadlab_system::{Cancel, ComposeSpec, Notice, Ready};

use crate::common::{Bench, PATIENCE_NS, write_program};

/// An engine with one container, `one`, whose first process has this pid. When asked how the container ended, it
/// signals `asked`, and answers once `let_go` permits it.
struct Asked {
    pid: u32,
    asked: Sender<()>,
    let_go: Mutex<Receiver<()>>,
    /// Whether `/wait` was asked, and whether everything is answered again.
    is_blocked: AtomicBool,
    is_let_go: AtomicBool,
}

impl Asked {
    /// Waits until the test lets the engine go.
    fn wait(&self) {
        let gate = self.let_go.lock().unwrap();
        if !self.is_let_go.load(Ordering::Relaxed) {
            // The sender may be gone.
            let _ = gate.recv();
            self.is_let_go.store(true, Ordering::Relaxed);
        }
    }
}

fn engine(socket: &Path, asked: Asked) {
    let listener = UnixListener::bind(socket).unwrap();
    let asked = Arc::new(asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = asked.clone();
            std::thread::spawn(move || answer(stream, &asked));
        }
    });
}

fn answer(mut stream: UnixStream, asked: &Asked) {
    let mut lines = BufReader::new(&stream).lines().map_while(std::result::Result::ok);
    let request = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = request.split(' ').nth(1).unwrap_or_default();
    let body = if path.ends_with("/version") {
        r#"{"ApiVersion":"1.41","MinAPIVersion":"1.24"}"#.to_owned()
    } else if path.contains("/containers/json") {
        r#"[{"Id":"one","State":"running","Labels":{"com.docker.compose.service":"web"}}]"#.to_owned()
    } else if path.ends_with("/containers/one/json") {
        // Whoever gives up waiting asks this instead.
        if asked.is_blocked.load(Ordering::Relaxed) {
            asked.wait();
        }
        let config = r#"{"StopTimeout":75}"#;
        format!(r#"{{"State":{{"Pid":{},"Running":true,"ExitCode":7}},"Config":{config}}}"#, asked.pid)
    } else if path.ends_with("/containers/one/wait") {
        asked.is_blocked.store(true, Ordering::Relaxed);
        // The receiver may be gone.
        let _ = asked.asked.send(());
        asked.wait();
        r#"{"StatusCode":7}"#.to_owned()
    } else if path.contains("/volumes") {
        r#"{"Volumes":[]}"#.to_owned()
    } else if path.contains("/logs") {
        String::new()
    } else {
        "[]".to_owned()
    };
    let length = body.len();
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
}

fn compose_in(bench: &Bench) -> ComposeSpec {
    let bin = bench.path("bin");
    fs::create_dir(&bin).unwrap();
    write_program(&bin.join("docker"), "#!/bin/sh\n");
    fs::write(bench.path("compose.yml"), "services: {}\n").unwrap();
    ComposeSpec {
        file: bench.path("compose.yml"),
        env: vec![("PATH".into(), format!("{}:/usr/bin:/bin", bin.display()))],
        services: Default::default(),
        timeout_ns: PATIENCE_NS,
        log: bench.path("compose.out"),
    }
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_engine_that_does_not_answer_delays_no_other_death() {
    let bench = Bench::new();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let (asked, is_asked) = channel();
    let (let_go, may_answer) = channel();
    let socket = bench.path("engine.sock");
    engine(
        &socket,
        Asked {
            pid: child.id(),
            asked,
            let_go: Mutex::new(may_answer),
            is_blocked: AtomicBool::new(false),
            is_let_go: AtomicBool::new(false),
        },
    );
    bench.system.use_engine(socket.to_str());
    let cancel = Cancel::new();
    let project =
        bench.system.compose_up(&compose_in(&bench), &cancel, &|_, name| bench.spec(name, "")).unwrap();
    let container = &project.components()[0];
    bench.system.ready_when(container, &Ready::Alive, &cancel).unwrap();
    let process = bench.system.up(&bench.spec("process", "exec sleep 1000")).unwrap();
    bench.system.ready(&process, &cancel).unwrap();

    end(child);
    is_asked.recv().unwrap();
    // The engine is blocked; meanwhile another component ends.
    process.send(loadlab_system::Signal::KILL);
    let died = || match bench.notice() {
        Notice::Died { component, status, .. } => (component.name().to_owned(), status.to_string()),
        other => panic!("{other:?}"),
    };
    assert_eq!(died(), ("process".to_owned(), "signal 9 (SIGKILL)".to_owned()));
    assert!(container.ended().is_none(), "nobody knows yet how it has ended");
    let_go.send(()).unwrap();
    assert_eq!(died(), ("web".to_owned(), "exit status 7".to_owned()));
}

/// An engine would otherwise kill it after ten seconds when an event restarts it.
#[test]
fn a_service_has_the_time_to_stop_that_its_file_gives_it() {
    let bench = Bench::new();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let socket = bench.path("engine.sock");
    let (asked, _) = channel();
    // Nothing holds the engine back.
    let (_, may_answer) = channel();
    let let_go = Mutex::new(may_answer);
    let (is_blocked, is_let_go) = (AtomicBool::new(false), AtomicBool::new(true));
    engine(&socket, Asked { pid: child.id(), asked, let_go, is_blocked, is_let_go });
    bench.system.use_engine(socket.to_str());
    let cancel = Cancel::new();
    let project =
        bench.system.compose_up(&compose_in(&bench), &cancel, &|_, name| bench.spec(name, "")).unwrap();
    let stop = project.components()[0].spec().stop;
    // Taking the system down waits for its end, also if the test fails.
    end(child);
    assert_eq!(stop.timeout_ns, 75 * SECOND_NS);
}
