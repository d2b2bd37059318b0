//! Every place that takes a URL parses it the same way: what one refuses, all refuse, with a suggestion.

use crate::common::{bench, file};
use crate::run_support::Lab;

/// Hosts and ports that parsers might understand differently, or not at all, each with the message that refuses it.
const NONE: [(&str, &str); 9] = [
    ("[localhost]:8080", "`[localhost]` is not an IPv6 address"),
    ("[::1", "`[::1` has no `]`"),
    ("[::1]8080", "`8080` after `]` is not a port"),
    ("127.0.0.1:8080:9090", "`127.0.0.1:8080:9090` has a second port, `9090`"),
    ("::1:8080", "`::1:8080` is an IPv6 address without brackets"),
    ("127.0.0.1:+80", "`+80` is not a port"),
    ("127.0.0.1:0", "`0` is not a port"),
    ("a\\b:80", "`a\\b` is not a host"),
    (":8080", "the host is missing"),
];

/// Asserts exit code 2, the reason and a hint, whatever else is printed.
fn refused(ran: (i32, &str), place: &str, why: &str) {
    let (code, reported) = ran;
    assert_eq!(code, 2, "{place}: {reported}");
    assert!(reported.contains(why) && reported.contains("hint: "), "{place}: {reported}");
}

#[test]
fn options_refuse_what_is_no_host() {
    for (authority, why) in NONE {
        let url = format!("http://{authority}/x");
        let (_folder, list) = file(format!("http://127.0.0.1:1/\n{url}\n"));
        let list = list.display().to_string();
        let proxy = format!("http://{authority}");
        for args in [
            vec![url.as_str()],
            vec!["--urls", &list],
            vec!["http://127.0.0.1:1/", "--proxy", &proxy],
            vec!["http://127.0.0.1:1/", "--otlp", &url],
        ] {
            let ran = bench(&[&args[..], &["-n", "1"]].concat());
            refused((ran.code, &ran.stderr), &args.join(" "), why);
        }
        let ran = Lab::new().loadlab(&["find", &url, "--expect", "p99 < 1s", "--users", "1..2"]);
        refused((ran.code.unwrap_or(-1), &ran.err), "find", why);
    }
}

#[test]
fn plans_refuse_what_is_no_host() {
    let plan = |system: &str, load: &str, step: &str| {
        format!(
            "loadlab: 1\nname: n\nsystem:\n{system}load:\n  users: 1\n  requests: 1\n{load}  journey:\n    - {step}\n"
        )
    };
    let component = |ready: &str| format!("  components: {{ a: {{ run: a, ready: {{ {ready} }} }} }}\n");
    let (none, get) = (component("log: x"), "{ get: \"http://127.0.0.1:1/\" }");
    for (authority, why) in NONE {
        // In single quotes of YAML.
        let http = format!("'http://{authority}/x'");
        let bare = format!("'{authority}'");
        let mut places = vec![
            ("step", plan(&none, "", &format!("{{ get: {http} }}"))),
            (
                "websocket",
                plan(&none, "", &format!("{{ websocket: 'ws://{authority}/', messages: [{{ send: a }}] }}")),
            ),
            ("proxy", plan(&none, &format!("  proxy: 'http://{authority}'\n"), get)),
            ("ready http", plan(&component(&format!("http: {http}")), "", get)),
            ("ready tcp", plan(&component(&format!("tcp: {bare}")), "", get)),
            ("probe", plan(&format!("{none}  probes: {{ p: {{ http: {http} }} }}\n"), "", get)),
            (
                "prometheus",
                plan(&format!("{none}  probes: {{ p: {{ prometheus: {http}, metric: m }} }}\n"), "", get),
            ),
            ("redis", plan(&format!("{none}  probes: {{ p: {{ redis: {bare}, llen: l }} }}\n"), "", get)),
            (
                "external",
                plan(&format!("  components: {{ a: {{ external: {{ prometheus: {http} }} }} }}\n"), "", get),
            ),
            ("durability", plan(&none, "", get) + &format!("durability: {{ http: {http} }}\n")),
        ];
        // A value from the matrix is checked once it is known.
        places.push((
            "case",
            plan(&none, "", "{ get: '${case.at}/x' }")
                + &format!("matrix: [{{ name: c, at: 'http://{authority}' }}]\n"),
        ));
        for (place, text) in places {
            let lab = Lab::new();
            lab.file("plan.yaml", &text);
            let ran = lab.loadlab(&["check", "plan.yaml"]);
            refused((ran.code.unwrap_or(-1), &ran.err), &format!("{place}: {text}"), why);
        }
    }
}
