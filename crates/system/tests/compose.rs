//! Compose files that fail to come up, with a scripted engine and a scripted Compose.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use loadlab_system::{Cancel, ComposeSpec, Error, Project, Result};

use crate::common;
use crate::common::Bench;

/// An engine with one container, `one`, that was listed as running and has since ended with this exit status.
fn engine(socket: &Path, exit: i32) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| answer(stream, exit)));
}

fn answer(mut stream: UnixStream, exit: i32) {
    let mut lines = BufReader::new(&stream).lines().map_while(std::result::Result::ok);
    let asked = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let path = asked.split(' ').nth(1).unwrap_or_default();
    let body = if path.ends_with("/version") {
        r#"{"ApiVersion":"1.41","MinAPIVersion":"1.24"}"#.to_owned()
    } else if path.contains("/containers/json") {
        r#"[{"Id":"one","State":"running","Labels":{"com.docker.compose.service":"migrate"}}]"#.to_owned()
    } else if path.ends_with("/containers/one/json") {
        format!(r#"{{"State":{{"Pid":0,"Running":false,"ExitCode":{exit}}}}}"#)
    } else if path.ends_with("/volumes/shop_data") {
        r#"{"Name":"shop_data","Labels":null}"#.to_owned()
    } else if path.contains("/volumes/") {
        r#"{"message":"no such volume"}"#.to_owned()
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

/// The result of bringing a project up, and the Compose commands it took.
fn up(exit_of_up: i32, exit_of_container: i32) -> (Result<Project>, Vec<String>) {
    up_with("docker", "services: {}\n", exit_of_up, exit_of_container)
}

/// As [`up`], with this Compose tool and this file.
fn up_with(
    tool: &str,
    file: &str,
    exit_of_up: i32,
    exit_of_container: i32,
) -> (Result<Project>, Vec<String>) {
    let bench = Bench::new();
    engine(&bench.path("engine.sock"), exit_of_container);
    bench.system.use_engine(bench.path("engine.sock").to_str());
    let bin = bench.path("bin");
    fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\ncase \"$*\" in *' up '*) exit {exit_of_up};; *' config') exit {};; esac\n",
        bench.path("asked").display(),
        // Older versions of Podman's Compose do not know this command.
        if tool == "podman-compose" { 2 } else { 0 },
    );
    let others = ["docker", "docker-compose"].into_iter().filter(|other| *other != tool);
    for (name, text) in others.map(|other| (other, "#!/bin/sh\nexit 1\n")).chain([(tool, script.as_str())]) {
        common::write_program(&bin.join(name), text);
    }
    fs::write(bench.path("compose.yml"), file).unwrap();
    let spec = ComposeSpec {
        file: bench.path("compose.yml"),
        env: vec![("PATH".into(), format!("{}:/usr/bin:/bin", bin.display()))],
        services: Default::default(),
        timeout_ns: common::PATIENCE_NS,
        log: bench.path("compose.out"),
    };
    let project = bench.system.compose_up(&spec, &Cancel::new(), &|_, name| bench.spec(name, ""));
    let asked = fs::read_to_string(bench.path("asked")).unwrap();
    let words = |line: &str| {
        let verbs = ["version", "config", "up", "stop", "down"];
        line.split(' ').find(|word| verbs.contains(word)).unwrap_or(line).to_owned()
    };
    (project, asked.lines().map(words).collect())
}

#[test]
fn one_that_did_not_come_up_is_taken_down() {
    let (project, asked) = up(1, 0);
    assert!(matches!(project, Err(Error::CommandFailed { .. })), "{project:?}");
    assert_eq!(asked, ["version", "config", "up", "stop"]);
}

#[test]
fn a_service_may_do_its_work_and_end_whenever_it_is_looked_at() {
    let (project, asked) = up(0, 0);
    let project = project.unwrap();
    assert_eq!((project.done.as_slice(), project.components().len()), (&["migrate".to_owned()][..], 0));
    assert_eq!(asked, ["version", "config", "up"]);
    let (failed, asked) = up(0, 3);
    assert!(matches!(failed, Err(Error::EndedEarly { .. })), "{failed:?}");
    assert_eq!(asked, ["version", "config", "up", "stop"]);
}

/// Podman's Compose starts, stops and removes by name, so nothing with the same name may exist before.
#[test]
fn nothing_is_brought_up_over_what_others_have() {
    let file = |name: &str| format!("services: {{}}\nvolumes: {{ data: {{ name: {name} }} }}\n");
    let (taken, asked) = up_with("podman-compose", &file("shop_data"), 0, 0);
    let message = taken.unwrap_err().to_string();
    assert!(message.contains("would take the volume `shop_data`") && message.contains("hint: "), "{message}");
    assert_eq!(asked, ["version", "config"], "it was not brought up, so there is nothing to take down");
    let (project, asked) = up_with("podman-compose", &file("my_data"), 0, 0);
    assert!(project.is_ok(), "{project:?}");
    assert_eq!(asked, ["version", "config", "up"]);
    let (unknown, asked) = up_with("podman-compose", &file("\"${SHOP}\""), 0, 0);
    assert!(matches!(unknown, Err(Error::ComposeConfig { .. })), "{unknown:?}");
    assert_eq!(asked, ["version", "config"]);
}
