//! `loadlab bench` by routes other than a host and a port: through a proxy, to a Unix socket, over IPv6.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;

use crate::common::nginx::Nginx;
use crate::common::proxy::Proxy;
use crate::common::server::{Request, Server, Step, good};
use crate::common::{bench, failures, file, measured, n};
use crate::on_every_backend;

on_every_backend! {
    a_proxy_is_asked_for_whole_urls
    a_proxy_is_asked_for_tunnels_to_https
    http_2_goes_through_tunnels
    a_proxy_that_wants_a_user_is_reported_one_or_refuses
    a_proxy_that_gives_no_tunnel
    a_proxy_is_sent_no_name_that_is_not_allowed
    a_proxy_is_sent_no_host_but_the_urls
    unix_sockets
    a_unix_socket_with_a_short_queue_is_waited_for
    a_list_of_urls_may_name_sockets_and_hosts
    ipv6
    a_source_reaches_addresses_of_its_family
}

fn counted(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    counts.iter().map(|(k, n)| (k.as_str(), *n)).collect()
}

fn a_proxy_is_asked_for_whole_urls() {
    let (server, proxy) = (Server::start(good), Proxy::start(None));
    let url = server.url("/x?y=z");
    let (json, code) = measured(&[&url, "--proxy", &proxy.url(), "-c", "3", "-n", "60", "-b", "hello"]);
    assert_eq!((code, n(&json, "requests.ok"), n(&json, "connections.opened")), (0, 60, 3), "{json:#}");
    let counts = proxy.counts();
    assert_eq!(counted(&counts.asked), [(url.as_str(), 60)]);
    assert_eq!((counts.connections, counts.tunnels.len()), (3, 0));
    let seen = server.settled();
    assert_eq!((seen.requests, seen.targets.get("/x?y=z")), (60, Some(&60)));
    assert_eq!(seen.last.unwrap().header("host"), Some(server.address.to_string().as_str()));
}

fn a_proxy_is_asked_for_tunnels_to_https() {
    let (nginx, proxy) = (Nginx::start(), Proxy::start(None));
    let url = format!("https://{}/page", nginx.secure);
    let ca = nginx.certificate();
    let args = [&url, "--proxy", &proxy.url(), "--cacert", &ca, "-c", "4", "-n", "80"];
    let (json, code) = measured(&args);
    assert_eq!((code, n(&json, "requests.ok"), n(&json, "connections.opened")), (0, 80, 4), "{json:#}");
    assert_eq!(n(&json, "tls_ms.count"), 4);
    assert_eq!(counted(&proxy.counts().tunnels), [(nginx.secure.to_string().as_str(), 4)]);
    assert_eq!(nginx.answered("HTTP/1.1 200 /page", 80), 80);
    // Each request through its own tunnel; and tunnels that are opened before the load begins.
    let (json, _) = measured(&[&args[..], &["--no-keep-alive"]].concat());
    assert_eq!((n(&json, "requests.ok"), n(&json, "connections.opened")), (80, 80), "{json:#}");
    let (json, _) = measured(&[&args[..], &["--connections", "10"]].concat());
    assert_eq!((n(&json, "requests.ok"), n(&json, "connections.opened")), (80, 10), "{json:#}");
    assert_eq!(proxy.counts().tunnels.values().sum::<u64>(), 4 + 80 + 10);
}

fn http_2_goes_through_tunnels() {
    let (nginx, proxy) = (Nginx::start(), Proxy::start(None));
    let url = format!("https://{}/page", nginx.secure);
    let streams = ["--http2", "--streams", "5", "-c", "10", "-n", "200"];
    let (json, code) =
        measured(&[&[url.as_str(), "--proxy", &proxy.url(), "--insecure"], &streams[..]].concat());
    assert_eq!((code, n(&json, "requests.ok"), n(&json, "connections.opened")), (0, 200, 2), "{json:#}");
    assert_eq!(counted(&proxy.counts().tunnels), [(nginx.secure.to_string().as_str(), 2)]);
    assert_eq!(nginx.answered("HTTP/2.0 200 /page", 200), 200);
}

fn a_proxy_that_wants_a_user_is_reported_one_or_refuses() {
    let nginx = Nginx::start();
    let proxy = Proxy::start(Some("Basic YWRhOnAgdw=="));
    let with_user = format!("http://ada:p%20w@{}", proxy.address);
    let secure = format!("https://{}/page", nginx.secure);
    let plain = format!("http://{}/page", nginx.plain);
    for url in [&secure, &plain] {
        let (json, code) = measured(&[url, "--proxy", &with_user, "--insecure", "-c", "2", "-n", "10"]);
        assert_eq!((code, n(&json, "requests.ok")), (0, 10), "{json:#}");
    }
    assert_eq!(proxy.counts().refused, 0);
    // For a full URL, the proxy's answer is the response; for a tunnel, it is a failed connect.
    let (json, _) = measured(&[&plain, "--proxy", &proxy.url(), "-c", "2", "-n", "10"]);
    assert_eq!((n(&json, "statuses.407"), failures(&json)), (10, vec![("http_4xx".to_owned(), 10)]));
    let ran = bench(&[&secure, "--proxy", &proxy.url(), "--insecure", "-c", "1", "-n", "1"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    let reported =
        format!("cannot connect to {}: the proxy answered 407 Proxy Authentication Required", proxy.address);
    assert!(ran.stderr.contains(&reported), "{}", ran.stderr);
    assert!(ran.stderr.contains("http://USER:PASSWORD@HOST:PORT"), "{}", ran.stderr);
    let reported = bench(&[&secure, "--proxy", &with_user, "--insecure", "-n", "5", "--json"]);
    assert!(!reported.stdout.contains("p w") && !reported.stdout.contains("YWRh"), "{}", reported.stdout);
}

/// For this many requests, the proxy grants the first two a tunnel and then follows these steps.
fn with_faulty_proxy(requests: u64, steps: Vec<Step>) -> (serde_json::Value, u64) {
    // Long enough that no answer is late, however busy the machine is.
    let timeout = if matches!(steps[..], [Step::Hang]) { "5s" } else { "20s" };
    let script = move |request: &Request| match request.connection {
        // Requests through a tunnel are answered here as well.
        _ if request.method != "CONNECT" => good(request),
        0 | 1 => vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())],
        _ => steps.clone(),
    };
    let proxy = Server::start(script);
    let proxy_url = proxy.url("");
    let requests = requests.to_string();
    let args = ["--http2", "--proxy", &proxy_url, "-c", "1", "-n", &requests, "--timeout", timeout];
    let (json, _) = measured(&[&["http://127.0.0.1:9/"], &args[..]].concat());
    // The proxy may accept a connection after its request has timed out.
    let counts = proxy.settled_after(n(&json, "connections.attempted"));
    (json, counts.methods.get("CONNECT").copied().unwrap_or(0))
}

fn a_proxy_that_gives_no_tunnel() {
    // HTTP/2 fails on the two established tunnels (the proxy does not speak it): the other requests are what matters.
    for (steps, failure, requests) in [
        (vec![Step::Send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_vec())], "connect", 10),
        (vec![Step::Close], "connect", 10),
        (vec![Step::Reset], "connect", 10),
        (vec![Step::Trickle(b"HTTP/1.1 200".to_vec()), Step::Finish], "connect", 10),
        (vec![Step::Send(b"SSH-2.0-x\r\n\r\n".to_vec())], "connect", 10),
        // A connection that is not established within the timeout is abandoned together with the request waiting for
        // it. Each of the two takes as long as the timeout.
        (vec![Step::Hang], "timeout", 4),
    ] {
        let shown = format!("{steps:?}");
        let (json, asked) = with_faulty_proxy(requests, steps);
        let of = |name: &str| n(&json, &format!("failures.{name}"));
        assert_eq!((of(failure), asked), (requests - 2, requests), "{shown}: {json:#}");
        assert_eq!((n(&json, "requests.failed"), n(&json, "connections.opened")), (requests, 2), "{shown}");
    }
}

fn a_proxy_is_sent_no_name_that_is_not_allowed() {
    let (server, proxy) = (Server::start(good), Proxy::start(None));
    let port = server.address.port();
    // Both resolve to this machine here; only the proxy knows where they lead from its side.
    let short = format!("http://127.1:{port}/");
    let given = format!("shop.invalid:{port}:127.0.0.1");
    let shop = format!("http://shop.invalid:{port}/");
    let through = ["--proxy", &proxy.url(), "-c", "1", "-n", "1"];
    let ran = bench(&[&[short.as_str()], &through[..]].concat());
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("the proxy would resolve `127.1`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: ") && ran.stderr.contains("--allow-host 127.1"), "{}", ran.stderr);
    for more in [&[][..], &["--allow-host", "shop.invalid"], &["--http2"]] {
        let ran = bench(&[&[shop.as_str(), "--resolve", &given], &through[..], more].concat());
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("`--resolve` has no effect with a proxy"), "{}", ran.stderr);
    }
    assert_eq!((proxy.counts().connections, server.settled().connections), (0, 0));
    let local = format!("http://localhost:{port}/");
    let (json, code) = measured(&[&[local.as_str()], &through[..]].concat());
    assert_eq!((code, n(&json, "requests.ok")), (0, 1), "{json:#}");
}

fn a_proxy_is_sent_no_host_but_the_urls() {
    let (server, nginx) = (Server::start(good), Nginx::start());
    let proxy = Proxy::start(Some("Basic YTpi"));
    let (plain, secure) = (server.url("/"), format!("https://{}/page", nginx.secure));
    let with_user = format!("http://a:b@{}", proxy.address);
    let through = ["--proxy", with_user.as_str(), "--insecure", "-c", "1", "-n", "3"];
    let with_host = |url: &str, host: &str| bench(&[&[url, "-H", host, "--json"], &through[..]].concat());
    for host in ["Host: shop.invalid", "HOST: 127.0.0.1", "Host:"] {
        let ran = with_host(&plain, host);
        assert_eq!(ran.code, 2, "{host}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("cannot be sent through a proxy together with `http://127.0.0.1:"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("hint: put the host into the URL"), "{}", ran.stderr);
    }
    assert_eq!((proxy.counts().connections, server.settled().connections), (0, 0));
    // Repeating the URL's own host, however it is spelled, changes nothing; inside a tunnel the proxy does not see it.
    let same = with_host(&plain, &format!("hOST: {}", server.address));
    assert_eq!((same.code, server.settled().requests), (0, 3), "{}", same.stderr);
    let tunnelled = with_host(&secure, "Host: shop.invalid");
    assert_eq!((tunnelled.code, nginx.answered("HTTP/1.1 200 /page", 3)), (0, 3), "{}", tunnelled.stderr);
    let direct = bench(&[&plain, "-H", "Host: shop.invalid", "-n", "1", "--json"]);
    assert_eq!(direct.code, 0, "{}", direct.stderr);
    assert_eq!(server.settled().last.unwrap().header("host"), Some("shop.invalid"));
}

fn unix_sockets() {
    let nginx = Nginx::start();
    let url = format!("unix:{}:/page", nginx.socket().display());
    let (json, code) = measured(&[&url, "-c", "5", "-n", "500"]);
    assert_eq!((code, n(&json, "requests.ok"), n(&json, "connections.opened")), (0, 500, 5), "{json:#}");
    assert_eq!(nginx.answered("HTTP/1.1 200 /page", 500), 500);
    assert!(n(&json, "bytes.received") > 500 * 1000);
    let (json, _) = measured(&[&url, "-c", "5", "-n", "100", "--no-keep-alive", "--source", "127.0.0.5"]);
    assert_eq!((n(&json, "requests.ok"), n(&json, "connections.opened")), (100, 100), "{json:#}");
    // A body longer than a segment, which matters if TCP is told not to delay.
    let body = format!("@{}", nginx.certificate());
    let (json, _) = measured(&[&url, "-c", "2", "-n", "20", "-b", &body]);
    assert_eq!(n(&json, "statuses.405"), 20, "{json:#}");
    let ran = bench(&[&url, "-n", "1", "--json", "-c", "1"]);
    assert!(ran.stdout.contains("unix:"), "{}", ran.stdout);
    assert!(!ran.stderr.contains("port"), "no port is worth a word: {}", ran.stderr);

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("unix:{}:/", folder.path().join(name).display());
    // A process that another test starts at this moment has a copy of the socket until its exec; it listens no more.
    let refused = UnixListener::bind(folder.path().join("refused")).unwrap();
    rustix::net::shutdown(&refused, rustix::net::Shutdown::Both).unwrap();
    drop(refused);
    std::fs::write(folder.path().join("file"), "x").unwrap();
    for (name, why) in [
        ("nothing", "no such file or directory"),
        ("refused", "connection refused"),
        ("file", "connection refused"),
    ] {
        let ran = bench(&[&path(name), "-n", "5"]);
        assert_eq!(ran.code, 5, "{}", ran.stderr);
        let reported = format!("cannot connect to {}: {why}", path(name).trim_end_matches(":/"));
        assert!(ran.stderr.contains(&reported), "{}", ran.stderr);
        assert!(ran.stderr.contains("is this the socket it listens on"), "{}", ran.stderr);
    }
    let ran = bench(&["unix:relative.sock:/", "-n", "1"]);
    assert!(ran.code == 2 && ran.stderr.contains("does not begin with `/`"), "{}", ran.stderr);
    let ran = bench(&[&url, "-n", "1", "--proxy", "http://127.0.0.1:1"]);
    assert!(ran.code == 2 && ran.stderr.contains("cannot be reached through a proxy"), "{}", ran.stderr);
}

fn a_unix_socket_with_a_short_queue_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::{Read, Write};
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let (json, code) = measured(&[&format!("unix:{}:/", path.display()), "-c", "40", "-n", "400"]);
    assert_eq!((code, n(&json, "requests.ok")), (0, 400), "{json:#}");
}

fn a_list_of_urls_may_name_sockets_and_hosts() {
    let nginx = Nginx::start();
    let list = format!("# both\nunix:{}:/page\n\nhttp://{}/none\n", nginx.socket().display(), nginx.plain);
    let (_folder, path) = file(list);
    let (json, _) = measured(&["--urls", &path.display().to_string(), "-c", "2", "-n", "20"]);
    assert_eq!((n(&json, "statuses.200"), n(&json, "statuses.404")), (10, 10), "{json:#}");
    assert_eq!(
        (nginx.answered("HTTP/1.1 200 /page", 10), nginx.answered("HTTP/1.1 404 /none", 10)),
        (10, 10)
    );
}

fn ipv6() {
    let server = Server::at("[::1]:0", good);
    let (json, code) = measured(&[&server.url("/"), "-c", "2", "-n", "20"]);
    assert_eq!((code, n(&json, "requests.ok"), server.settled().requests), (0, 20, 20), "{json:#}");
    let named = format!("http://shop.invalid:{}/", server.address.port());
    let given = format!("shop.invalid:{}:[::1]", server.address.port());
    let (json, _) = measured(&[&named, "--resolve", &given, "-n", "20"]);
    assert_eq!(n(&json, "requests.ok"), 20, "{json:#}");
    let ran = bench(&[&named, "-n", "20"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot resolve the name `shop.invalid` (dns)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--resolve shop.invalid:"), "{}", ran.stderr);
}

fn a_source_reaches_addresses_of_its_family() {
    let v4 = Server::start(good);
    let port = v4.address.port();
    let v6 = Server::at(&format!("[::1]:{port}"), good);
    let url = format!("http://both.test:{port}/");
    let given = ["127.0.0.1", "::1"].map(|address| format!("both.test:{port}:{address}"));
    for (source, server, other) in [("127.0.0.5", &v4, &v6), ("::1", &v6, &v4)] {
        let before = other.settled().requests;
        let resolve = ["--resolve", &given[0], "--resolve", &given[1]];
        let (json, code) =
            measured(&[&[&url, "--source", source, "-c", "2", "-n", "20"], &resolve[..]].concat());
        assert_eq!((code, n(&json, "requests.ok")), (0, 20), "{source}: {json:#}");
        assert_eq!((server.settled().requests, other.settled().requests), (20, before), "{source}");
    }
    let ran = bench(&[&format!("http://[::1]:{port}/"), "--source", "127.0.0.5", "-n", "1"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("`::1` has no IPv4 address, so nothing can be sent to it from 127.0.0.5"),
        "{}",
        ran.stderr
    );
}
