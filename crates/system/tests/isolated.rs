//! Components in their own network namespaces: reached, cut off, reconnected, rate-limited. Needs root.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use loadlab_system::{Cancel, Command, ComponentSpec, Error, Isolation, Net, Ready};

use crate::common::{Bench, FIXTURE, PATIENCE_NS, eventually};

/// How long to wait for a connection to a component that is cut off; no wait would be long enough.
const SHORT: Duration = Duration::from_millis(200);

/// Brings up a server in its own namespace and returns its address.
fn up(bench: &Bench, name: &str) -> IpAddr {
    let words = [FIXTURE, "serve-all", "8080", "hello"].map(str::to_owned).to_vec();
    let address = bench.system.own_address(name).unwrap();
    let ready = Ready::Tcp { addr: format!("{address}:8080"), timeout_ns: PATIENCE_NS };
    let spec = ComponentSpec { command: Command::Argv(words), ready, ..bench.spec(name, "") };
    let component = bench.system.up(&spec).unwrap();
    bench.system.ready(&component, &Cancel::new()).unwrap();
    address
}

fn ask(address: IpAddr) -> std::io::Result<String> {
    ask_within(address, Duration::from_nanos(PATIENCE_NS))
}

fn ask_within(address: IpAddr, within: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, 8080), within)?;
    stream.set_read_timeout(Some(within))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text)
}

#[test]
fn links_are_cut_joined_and_narrowed() {
    let net = Net::enter(Isolation::Each).expect("root, and iproute2");
    let mut bench = Bench::new();
    bench.system.isolate(net);
    let (one, two) = (up(&bench, "one"), up(&bench, "two"));
    assert_ne!(one, two);
    assert!(ask(one).unwrap().ends_with("hello") && ask(two).unwrap().ends_with("hello"));

    bench.system.disconnect("one").unwrap();
    assert!(ask_within(one, SHORT).is_err() && ask(two).is_ok(), "only that one");
    bench.system.reconnect("one").unwrap();
    eventually("the link", || ask(one).ok());

    // The kernel enforces the rate of a limited link; this checks that the rule is set and removed.
    let rules = || {
        let shown = std::process::Command::new("tc").args(["qdisc", "show"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).matches("tbf").count()
    };
    bench.system.set_bandwidth("one", Some(1 << 20)).unwrap();
    assert_eq!(rules(), 1);
    assert!(ask(one).is_ok());
    bench.system.set_bandwidth("one", None).unwrap();
    bench.system.set_bandwidth("one", None).unwrap();
    assert_eq!(rules(), 0);

    let components = bench.system.components();
    let bytes = components[0].target().read_now().unwrap().net_out_bytes;
    assert!(bytes > Some(100), "{bytes:?}");
    assert!(matches!(bench.system.disconnect("three"), Err(Error::NoLink { .. })));
    // After a restart it has the address that the others know.
    bench.system.down(&components[0]).unwrap();
    assert_eq!(up(&bench, "one"), one);
    assert!(ask(one).is_ok());
}

#[test]
fn a_shared_network_has_no_links() {
    let net = Net::enter(Isolation::Shared).expect("root, and iproute2");
    let mut bench = Bench::new();
    bench.system.isolate(net);
    assert_eq!(bench.system.own_address("one"), None);
    assert!(matches!(bench.system.disconnect("one"), Err(Error::NoLink { .. })));
}
