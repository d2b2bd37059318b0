//! The programs that this crate's tests start, watch and kill; not part of the product.
//!
//! `own JSON` owns a system with one component until its stdin closes; `__guardian` is that system's guardian, and
//! `__relay` a relay in front of a component's ports. `hog BYTES`, `spin` and `serve PORT BODY` are components;
//! `serve-all PORT BODY` is one with its own network. Unlike the library it prints, because tests read its output.

#![expect(clippy::print_stdout, reason = "a program that the tests of `system` start and kill")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use loadlab_system::{Cancel, ComponentSpec, System, SystemSpec, guardian, relay};
use serde::Deserialize;

#[derive(Deserialize)]
struct Own {
    run_id: String,
    dir: PathBuf,
    state_dir: PathBuf,
    cgroup_root: PathBuf,
    guarded: bool,
    command: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["__guardian"] => std::process::exit(guardian::main(std::io::stdin())),
        [relay::ARG, ports] => relay::main(&[ports.to_owned()]).map_err(Into::into),
        ["own", json] => own(serde_json::from_str(json)?),
        ["hog", bytes] => hog(bytes.parse()?),
        ["spin"] => loop {
            std::hint::spin_loop();
        },
        ["serve", port, body] => serve(Ipv4Addr::LOCALHOST, port.parse()?, body),
        // In its own network namespace.
        ["serve-all", port, body] => serve(Ipv4Addr::UNSPECIFIED, port.parse()?, body),
        _ => Err("own JSON | hog BYTES | spin | serve PORT BODY".into()),
    }
}

fn own(own: Own) -> Result<(), Box<dyn std::error::Error>> {
    let exe = std::env::current_exe()?;
    let guardian = if own.guarded { Some(guardian::spawn(&exe, "__guardian")?) } else { None };
    let guardian_id = guardian.as_ref().map(|g| g.process());
    let spec = SystemSpec {
        state_dir: own.state_dir,
        cgroup_root: own.cgroup_root,
        ..SystemSpec::new(&own.run_id, &own.dir, &own.dir.join("scratch"), guardian)
    };
    let (system, _notices) = System::new(spec)?;
    let component =
        system.up(&ComponentSpec::new("main", own.command.as_str(), &own.dir, own.dir.join("logs")))?;
    system.ready(&component, &Cancel::new())?;
    let report = serde_json::json!({
        "component": component.process(),
        "guardian": guardian_id,
        "version": system.cgroup_version(),
        "unavailable": system.unavailable().iter().map(|u| &u.what).collect::<Vec<_>>(),
    });
    println!("{report}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    system.close()?;
    Ok(())
}

/// Allocates memory bit by bit, touching all of it.
fn hog(bytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    while held.len() << 20 < bytes {
        held.push(vec![1; 1 << 20]);
    }
    println!("holding {}", held.iter().map(Vec::len).sum::<usize>());
    loop {
        std::thread::park();
    }
}

/// Answers every request with the body, one connection at a time.
fn serve(at: Ipv4Addr, port: u16, body: &str) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind((at, port))?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let _ = stream.read(&mut [0u8; 4096]);
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    Ok(())
}
