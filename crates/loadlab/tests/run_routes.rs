//! `loadlab run` by routes other than a host and a port: through a proxy, to a Unix socket, over IPv6, from a list of
//! URLs. The checks rely on the other end's counts.

use crate::common::nginx::Nginx;
use crate::common::proxy::Proxy;
use crate::common::server::{Request, Server, Step, good, response, send};
use crate::run_support::{Lab, eventually};

fn plan(load: &str, journey: &str) -> String {
    format!("loadlab: 1\nname: routes\nload:\n  users: 2\n{load}  journey:\n{journey}")
}

fn statuses(lab: &Lab) -> serde_json::Value {
    lab.record().summary("default", 1)["statuses"].clone()
}

/// Sets a cookie for `/in`, redirects from `/from` to it, and accepts only clients that send the cookie there.
fn doors(request: &Request) -> Vec<Step> {
    let head = |status: &str, field: &str| {
        send(format!("HTTP/1.1 {status}\r\n{field}\r\nContent-Length: 0\r\n\r\n").into_bytes())
    };
    vec![match request.target.as_str() {
        "/in/login" => head("200 OK", "Set-Cookie: id=7; Path=/in"),
        "/in/from?a=b" => head("302 Found", "Location: to"),
        "/in/to" if request.header("cookie") == Some("id=7") => head("204 No Content", "X-A: b"),
        _ => send(response(400, "")),
    }]
}

#[test]
fn a_journey_goes_through_a_proxy_in_whole_urls() {
    let (server, proxy) = (Server::start(doors), Proxy::start(Some("Basic YTpi")));
    let lab = Lab::new();
    let load =
        format!("  repeats: 5\n  cookies: true\n  redirects: 2\n  proxy: http://a:b@{}\n", proxy.address);
    let journey = format!(
        "    - {{ get: \"{}\" }}\n    - {{ get: \"{}?a=${{raw(w)}}\", check: {{ status: 204 }} }}\n",
        server.url("/in/login"),
        server.url("/in/from"),
    );
    let journey = format!("{}  feeds: {{ f: {{ file: f.csv }} }}\n", journey.replace("${raw(w)}", "${f.w}"));
    lab.file("f.csv", "w\nb\n");
    let ran = lab.run(&plan(&load, &journey), &[]);
    ran.expect(0, &[]);
    assert_eq!(statuses(&lab), serde_json::json!({ "200": 10, "302": 10, "204": 10 }));
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.refused, counts.tunnels.len()), (2, 0, 0));
    assert_eq!(counts.asked.get(&server.url("/in/to")), Some(&10));
    assert_eq!(server.counts().requests, 30);
    let reported = lab.loadlab(&["run", "plan.yaml", "--dry-run"]).out;
    assert!(reported.contains("through the proxy http://***@127.0.0.1:"), "{reported}");
    assert_eq!(server.counts().last.unwrap().header("proxy-authorization"), None);
}

#[test]
fn redirects_go_through_the_proxy_which_alone_gets_its_credentials() {
    let (nginx, second, proxy) = (Nginx::start(), Server::start(good), Proxy::start(Some("Basic YTpi")));
    let (page, there) = (format!("https://{}/page", nginx.secure), second.url("/there"));
    let to = [page.clone(), there.clone()];
    let first = Server::start(move |request: &Request| {
        let to = &to[usize::from(request.target == "/second")];
        vec![send(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").into_bytes())]
    });
    let lab = Lab::new();
    let load = format!(
        "  repeats: 5\n  redirects: 2\n  proxy: http://a:b@{}\n  tls: {{ ca: \"{}\" }}\n",
        proxy.address,
        nginx.certificate()
    );
    // Redirects are followed only to hosts of the journey, so each has a step.
    let urls = [&first.url("/first"), &first.url("/second"), &page, &there];
    let journey: String = urls.iter().map(|url| format!("    - {{ get: \"{url}\" }}\n")).collect();
    lab.run(&plan(&load, &journey), &[]).expect(0, &[]);
    assert_eq!(statuses(&lab), serde_json::json!({ "200": 40, "302": 20 }));
    let counts = proxy.counts();
    let asked = [(first.url("/first"), 10), (first.url("/second"), 10), (there, 20)];
    assert_eq!((counts.refused, counts.asked), (0, asked.into()));
    // Everything for nginx went through tunnels, and only the proxy connected to the others.
    let tunnels = counts.tunnels.get(&nginx.secure.to_string()).copied().unwrap_or(0);
    // nginx logs after it answers.
    eventually("nginx's logs", || {
        let logged = (nginx.proxy_users().values().sum::<u64>(), nginx.connections("HTTP/1.1") as u64);
        (logged.0 >= 20 && logged.1 >= tunnels).then_some(())
    });
    assert_eq!((tunnels, counts.tunnels.len()), (nginx.connections("HTTP/1.1") as u64, 1));
    assert_eq!(counts.users, [("Basic YTpi".to_owned(), 40 + tunnels)].into());
    assert_eq!(nginx.proxy_users(), [("-".to_owned(), 20)].into());
    assert_eq!((first.counts().requests, second.counts().requests), (20, 20));
    assert!(
        first.counts().connections <= counts.connections && second.counts().connections <= counts.connections
    );
}

#[test]
fn https_goes_through_tunnels_of_a_proxy() {
    let (nginx, proxy) = (Nginx::start(), Proxy::start(None));
    for (protocol, answered, times) in [
        ("http/1.1", "HTTP/1.1 200 /page", 1),
        ("http/2", "HTTP/2.0 200 /page", 1),
        ("auto", "HTTP/2.0 200 /page", 2),
    ] {
        let lab = Lab::new();
        let load = format!(
            "  requests: 40\n  protocol: {protocol}\n  proxy: {}\n  tls: {{ ca: \"{}\" }}\n",
            proxy.url(),
            nginx.certificate()
        );
        let ran =
            lab.run(&plan(&load, &format!("    - {{ get: \"https://{}/page\" }}\n", nginx.secure)), &[]);
        ran.expect(0, &[]);
        let counted = (statuses(&lab), nginx.answered(answered, times * 40));
        assert_eq!(counted, (serde_json::json!({ "200": 40 }), times * 40), "{protocol}");
    }
    // One tunnel for each connection of the loads, and one to determine the server's protocol.
    let opened = proxy.counts().tunnels.get(&nginx.secure.to_string()).copied();
    assert_eq!(opened, Some(7));
}

#[test]
fn a_proxy_must_be_allowed_and_let_us() {
    let lab = Lab::new();
    let journey = "    - { get: \"https://127.0.0.1:9/\" }\n";
    let with = |proxy: &str| plan(&format!("  requests: 4\n  proxy: {proxy}\n"), journey);
    lab.run(&with("http://192.0.2.1:3128"), &[]).expect(
        5,
        &["`proxy` of `load`: `192.0.2.1` (192.0.2.1) is not loopback", "hint: if you may load it"],
    );
    lab.run(&with("http://proxy.invalid:3128"), &[])
        .expect(5, &["`proxy` of `load`: cannot resolve the name `proxy.invalid` (dns)"]);
    let named =
        plan("  requests: 4\n  proxy: http://127.0.0.1:9\n", "    - { get: \"http://192.0.2.1/\" }\n");
    lab.run(&named, &[]).expect(5, &["step 1 of `load`: `192.0.2.1` (192.0.2.1) is not loopback"]);
    // The proxy resolves names, whatever they mean on this machine; this holds for steps of every kind.
    for step in [
        "{ get: \"http://127.1/\" }",
        "{ get: \"https://127.1/${user}\" }",
        "{ websocket: \"ws://127.1/\", messages: [{ send: a }] }",
        "{ urls: list }",
    ] {
        lab.file("list", "http://127.0.0.1/\nhttp://127.1/\n");
        let by_name = plan("  requests: 4\n  proxy: http://127.0.0.1:9\n", &format!("    - {step}\n"));
        lab.run(&by_name, &[]).expect(5, &["step 1 of `load`: the proxy would resolve `127.1`"]);
        lab.run(&by_name, &["--resolve", "127.1:80:127.0.0.1"])
            .expect(2, &["`proxy` of `load`: `--resolve` has no effect with a proxy"]);
    }
    let socket = plan("  requests: 4\n  proxy: http://127.0.0.1:9\n", "    - { get: \"unix:/run/x:/\" }\n");
    lab.run(&socket, &[]).expect(2, &["`unix:/run/x` cannot be reached through a proxy"]);
    lab.run(&with("http://127.0.0.1:9/x"), &[]).expect(2, &["plan.yaml:6:10: a proxy has no path"]);

    let host = "    - { get: \"http://127.0.0.1:9/\", headers: { host: shop.invalid } }\n";
    lab.run(&plan("  requests: 4\n  proxy: http://127.0.0.1:9\n", host), &[]).expect(
        2,
        &["step 1 of `load`: `Host: shop.invalid` cannot be sent through a proxy together with `http://127.0.0.1:9`"],
    );

    let proxy = Proxy::start(Some("Basic YTpi"));
    let lab = Lab::new();
    let ran = lab.run(&with(&proxy.url()), &[]);
    ran.expect(5, &["the proxy answered 407 Proxy Authentication Required", "USER:PASSWORD"]);
    // Once it is clear that there is no way, the load ends: attempts that were still under way may have been refused.
    let summary = lab.record().summary("default", 1);
    let failed = summary["failures"]["connect"].as_u64().unwrap();
    let refusable = failed + summary["requests"]["in_flight"].as_u64().unwrap();
    let refused = proxy.counts().refused;
    assert!(failed > 0 && (failed..=refusable).contains(&refused), "{refused}: {summary:#}");
    // The server's protocol is determined through the proxy as well, before the load.
    let proxy = Proxy::start(Some("Basic YTpi"));
    let lab = Lab::new();
    let auto = with(&proxy.url()).replace("requests: 4", "requests: 4\n  protocol: auto");
    lab.run(&auto, &[])
        .expect(5, &["`protocol` of `load`", "the proxy answered 407 Proxy Authentication Required"]);
    assert_eq!(proxy.counts().refused, 1);
}

#[test]
fn a_journey_goes_to_a_unix_socket() {
    let nginx = Nginx::start();
    let socket = nginx.socket().display().to_string();
    let lab = Lab::new();
    let journey = format!(
        "    - {{ get: \"unix:{socket}:/page\", check: {{ status: 200, size: == 1000 }} }}\n\
         \x20   - {{ get: \"unix:{socket}:/p${{user}}?x\", check: {{ status: 404 }} }}\n"
    );
    lab.run(&plan("  repeats: 10\n", &journey), &[]).expect(0, &[]);
    assert_eq!(statuses(&lab), serde_json::json!({ "200": 20, "404": 20 }));
    assert_eq!((nginx.answered("HTTP/1.1 200 /page", 20), nginx.answered("HTTP/1.1 404 /p1", 10)), (20, 10));

    let lab = Lab::new();
    let none = format!("    - {{ get: \"unix:{socket}.none:/page\" }}\n");
    let ran = lab.run(&plan("  repeats: 10\n", &none), &[]);
    ran.expect(5, &[&format!("cannot connect to unix:{socket}.none: no such file or directory"), "hint: "]);
}

#[test]
fn lists_of_urls_are_taken_in_turn() {
    let (one, other) = (Server::start(good), Server::at("[::1]:0", good));
    let lab = Lab::new();
    lab.file("both", &format!("# two\n{}\n{}\n", one.url("/a"), other.url("/b")));
    lab.run(&plan("  requests: 40\n", "    - { urls: both, tags: [t] }\n"), &[]).expect(0, &[]);
    assert_eq!((one.settled().targets["/a"], other.settled().targets["/b"]), (20, 20));
    assert_eq!(lab.record().summary("default", 1)["by_tag"]["t"]["requests"]["ok"], 40);

    // In a journey with other steps, each round takes the next URL; all URLs lead to one host.
    let lab = Lab::new();
    lab.file("list", &format!("{}\n{}\n{}\n", one.url("/x?y=1"), one.url("/x?y=2"), one.url("/z")));
    let journey = format!(
        "    - {{ get: \"{}\" }}\n    - {{ urls: list, check: {{ contains: hello }} }}\n",
        one.url("/first")
    );
    lab.run(&plan("  threads: 1\n  repeats: 3\n", &journey), &[]).expect(0, &[]);
    let seen = one.settled().targets;
    assert_eq!((seen["/first"], seen["/x?y=1"], seen["/x?y=2"], seen["/z"]), (6, 2, 2, 2));

    let lab = Lab::new();
    lab.file("list", "http://127.0.0.1:1/\nnothing://x\n");
    let ran = lab.run(&plan("  requests: 40\n", "    - { urls: list }\n"), &[]);
    ran.expect(2, &["step 1 of `load`:", "list:2:1: `nothing://x` is not a URL", "hint: "]);
    lab.file("list", "http://127.0.0.1:1/\nhttp://192.0.2.1/\n");
    let ran = lab.run(&plan("  requests: 40\n", "    - { urls: list }\n"), &[]);
    ran.expect(5, &["step 1 of `load`: `192.0.2.1` (192.0.2.1) is not loopback"]);
    let ran = lab.run(&plan("  requests: 40\n", "    - { urls: none }\n"), &[]);
    ran.expect(2, &["cannot read ", "none: "]);
    let around = plan(
        "  requests: 4\n  user_teardown: [{ urls: list }]\n",
        "    - { get: \"http://127.0.0.1:1/\" }\n",
    );
    lab.run(&around, &[]).expect(2, &["plan.yaml:6:21: all of these steps are taken, one after another"]);
}

#[test]
fn every_address_of_a_name_is_used_and_a_name_without_one_is_reported() {
    let one = Server::start(good);
    let port = one.address.port();
    let others = [Server::at(&format!("127.0.0.2:{port}"), good), Server::at(&format!("[::1]:{port}"), good)];
    let lab = Lab::new();
    let shop = |address: &str| format!("shop.invalid:{port}:{address}");
    let given = ["127.0.0.1", "127.0.0.2", "::1"].map(shop);
    let args: Vec<&str> = given.iter().flat_map(|given| ["--resolve", given.as_str()]).collect();
    let six = plan("  repeats: 10\n", &format!("    - {{ get: \"http://shop.invalid:{port}/\" }}\n"));
    lab.run(&six.replace("users: 2", "users: 6"), &args).expect(0, &[]);
    for server in [&one, &others[0], &others[1]] {
        let seen = server.settled();
        assert_eq!((seen.connections, seen.requests), (2, 20), "each connection takes the next address");
        assert_eq!(seen.last.unwrap().header("host"), Some(format!("shop.invalid:{port}").as_str()));
    }
    lab.loadlab(&["run", "plan.yaml", "--resolve", "shop"])
        .expect(2, &["is not of the form HOST:PORT:ADDRESS"]);

    for address in ["127.0.0.1:0", "[::1]:0"] {
        let server = Server::at(address, good);
        let url = format!("http://{}/", server.address);
        let lab = Lab::new();
        lab.run(&plan("  requests: 10\n", &format!("    - {{ get: \"{url}\" }}\n")), &[]).expect(0, &[]);
        assert_eq!(server.settled().requests, 10);
    }
    let lab = Lab::new();
    let ran = lab.run(&plan("  requests: 4\n", "    - { get: \"http://shop.invalid/\" }\n"), &[]);
    ran.expect(
        5,
        &["step 1 of `load`: cannot resolve the name `shop.invalid` (dns)", "hint: is it spelled right?"],
    );
}
