//! `--ui` in a real browser: the page shows what is recorded, turns into the report, and admits nobody else.

#[allow(dead_code, reason = "the part of it that these tests need")]
#[path = "../../report/tests/support/browser.rs"]
pub mod driver;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use driver::Browser;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::run_support;
use crate::run_support::{Lab, Served, component, plan};

/// The page's address, from the output.
#[track_caller]
pub fn page_in(reported: &str) -> String {
    let url = reported.split("live in the browser: ").nth(1).and_then(|t| t.lines().next());
    url.unwrap_or_else(|| panic!("no address in {reported}")).to_owned()
}

/// Script for the names and counts of the outcomes that the page shows.
const OUTCOMES: &str = "Object.fromEntries([...document.querySelectorAll('.outcomes li')].map((li) => [li.dataset.key, Number(li.dataset.count)]))";

/// Keeps the page's last contents available after it has turned into the report.
fn keep_the_last(browser: &mut Browser) {
    browser.value(&format!(
        "addEventListener('pagehide', () => {{ sessionStorage.setItem('last', JSON.stringify({OUTCOMES})); \
         sessionStorage.setItem('title', document.getElementById('title').textContent); }})"
    ));
}

fn kept(browser: &mut Browser) -> Value {
    let text = browser.value("sessionStorage.getItem('last')");
    serde_json::from_str(text.as_str().expect("the page was left")).expect("JSON")
}

#[test]
fn the_page_shows_what_is_recorded_and_turns_into_the_report() {
    // The load ends when this server receives a post, which the test sends once it has seen enough.
    let server = Served::start("\"slow_ms\": 1");
    let lab = Lab::new();
    let rest = format!(
        "  probes: {{ stored: {{ http: \"http://127.0.0.1:${{components.web.port}}/stats\", json: /stored }} }}\n\
         events: [{{ at: 200ms, do: \"pause aside\" }}]\nstop_when: [\"failed > 0\"]\n\
         load:\n  users: 2\n  duration: 10m\n  think: 5ms\n  journey: [{{ get: \"{}\", check: {{ json: {{ /posted: {{ number: \"< 1\" }} }} }} }}]\n",
        server.url("/stats")
    );
    let aside = "    aside: { run: \"exec sleep 1000\" }\n".to_owned();
    let mut browser = Browser::start();
    let mut running = lab.start(&plan(&[component("web", "", &[]), aside], &rest), &["--ui"]);
    running.wait_for_output("live in the browser: http://127.0.0.1:");
    let url = page_in(&lab.read("stderr"));
    browser.visit(&url);
    browser.until("document.querySelector('.outcomes li[data-key=ok]')?.dataset.count > 0");
    keep_the_last(&mut browser);
    for shown in [
        "document.getElementById('title').textContent === 'test'",
        "document.getElementById('phase').textContent === 'loading'",
        "document.getElementById('link').textContent === 'live'",
        "document.querySelector('[data-figure=rate]').textContent.endsWith('/s')",
        "[...document.querySelectorAll('#components tbody th')].map((t) => t.textContent).join() === 'web,aside,loadlab'",
        "document.querySelector('#probes tbody th')?.textContent === 'stored'",
        "document.querySelector('#events ul').textContent.includes('web ready')",
        "document.querySelector('#events ul').textContent.includes('event: pause aside')",
        "document.querySelectorAll('.charts canvas').length === 2",
        "document.querySelector('.charts .plot').getAttribute('aria-label').includes('ok ')",
    ] {
        browser.until(shown);
    }
    let mut end = TcpStream::connect(server.url("").trim_start_matches("http://")).unwrap();
    end.write_all(b"POST /x HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n").unwrap();
    browser.until_report();
    // On a busy machine the measurement may be INVALID, but it is still recorded.
    let ran = running.end();
    assert!(matches!(ran.code, Some(0 | 4)), "{ran:?}");
    let (summary, last) = (lab.record().summary("default", 1), kept(&mut browser));
    let requests = &summary["requests"];
    assert_eq!(last["ok"], requests["ok"], "{last}");
    assert_eq!(last["check"], summary["failures"]["check"], "{last}");
    assert!(last["check"].as_u64() > Some(0) && summary["ended"] == "stopped", "{last}");
    assert_eq!(last["in flight"], requests["in_flight"], "{last}");
    // The page turns into the report in place: the address is the same, and the report is the one on disk.
    assert_eq!(browser.value("location.href"), json!(url));
    let report = std::fs::read_to_string(lab.record().dir.join("report.html")).unwrap();
    let title = browser.value("document.title");
    assert!(report.contains(&format!("<title>{}</title>", title.as_str().unwrap())), "{title}");
    browser.is_silent();
}

#[test]
fn it_names_the_figures_that_matter() {
    let lab = Lab::new();
    let at = "http://127.0.0.1:${components.web.port}";
    let rest = format!(
        "figures:\n  peak memory: web.memory.max\n  \"items, p50\": {{ value: \"'tag.GET /items.p50'\", about: of one step }}\n  all done: drain\n\
         load:\n  users: 2\n  duration: 10m\n  think: 5ms\n  journey: [get: \"{at}/items\", get: \"{at}/stats\"]\n"
    );
    let mut browser = Browser::start();
    let mut running = lab.start(&plan(&[component("web", "", &[])], &rest), &["--ui"]);
    running.wait_for_output("live in the browser: ");
    browser.visit(&page_in(&lab.read("stderr")));
    let shown =
        |name: &str| format!("document.querySelector('#figures [data-figure=\"{name}\"]')?.textContent");
    browser.until(&format!("{}?.endsWith('iB')", shown("peak memory")));
    browser.until(&format!("/^~?[0-9.]+ (µs|ms)$/.test({})", shown("items, p50")));
    browser.until(&format!("{} === '–'", shown("all done")));
    browser.until("document.querySelector('#figures .spark path[d*=L]') !== null");
    // The components' resource use is shown, too.
    browser.until("document.querySelector('#components .readout').textContent.includes('%')");
    for size in [(420, 900), (1280, 900)] {
        browser.screen(size, "light");
        browser.until(
            "[...document.querySelectorAll('.charts .plot')].every((p) => p.querySelector('.uplot')?.clientWidth === p.clientWidth)",
        );
        let wide =
            browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, json!(0), "at {size:?} it scrolls sideways");
        let picture = format!("live-figures-{}.png", size.0);
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture));
    }
    running.signal(Signal::INT);
    browser.until_report();
    running.end().expect(130, &[]);
    browser.is_silent();
}

/// A screen full of trouble: long names, failures, a component at its limit, a probe that grows.
fn ugly() -> String {
    let long = "a-component-whose-name-has-no-blank-in-it-and-goes-on-and-on";
    let busy = "      run: \"while :; do :; done\"\n      limits: { cpu: 20%, memory: 30MiB }\n";
    let others: String =
        (0..6).map(|i| format!("    shard-{i:02}: {{ run: \"exec sleep 1000\" }}\n")).collect();
    let probes = "  probes:\n    a_probe_that_counts_what_was_posted_and_has_a_long_name: { http: \"http://127.0.0.1:${components.web.port}/stats\", json: /stored }\n";
    let load = "loads:\n  the-first-of-two-loads-with-a-name-that-nobody-would-read-twice:\n    rate: 300/s\n    duration: 10m\n    \
        journey:\n      - { post: \"http://127.0.0.1:${components.web.port}/x\" }\n      \
        - { get: \"http://127.0.0.1:${components.web.port}/\", check: { status: 201 } }\n  \
        nobody:\n    users: 1\n    duration: 10m\n    think: 100ms\n    timeout: 1ms\n    \
        journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";
    let rest = format!(
        "    {long}:\n{busy}{others}{probes}events: [{{ at: 1s, do: kill shard-03 }}, {{ at: 2s, do: limit shard-04 cpu 5% }}]\n{load}"
    );
    plan(&[component("web", "", &[])], &rest)
}

#[test]
fn it_is_whole_on_every_screen_and_with_the_keyboard() {
    let lab = Lab::new();
    let mut browser = Browser::start();
    let mut running = lab.start(&ugly(), &["--ui"]);
    running.wait_for_output("live in the browser: ");
    browser.visit(&page_in(&lab.read("stderr")));
    browser.until("document.querySelectorAll('section.load').length === 2");
    browser.until("document.querySelectorAll('#components tbody tr').length === 9");
    // A few seconds, so that there are lines to look at.
    browser.until("document.querySelectorAll('.spark path[d*=L]').length > 8");
    browser.until("document.querySelector('.spark path').getAttribute('d').split('L').length > 6");
    browser.until("document.querySelector('.charts .legend output').textContent !== ''");
    for (size, scheme) in
        [((400, 900), "light"), ((400, 2600), "dark"), ((1280, 900), "dark"), ((1600, 2000), "light")]
    {
        browser.screen(size, scheme);
        browser.until(
            "[...document.querySelectorAll('.charts .plot')].every((p) => p.querySelector('.uplot')?.clientWidth === p.clientWidth)",
        );
        let wide =
            browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, json!(0), "at {size:?} it scrolls sideways");
        let picture = format!("live-ugly-{}-{}-{scheme}.png", size.0, size.1);
        browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(picture));
    }
    browser.value("document.querySelector('.charts .plot').focus()");
    browser.key("Home");
    browser.until("document.getElementById('voice').textContent.startsWith('at 0:0')");
    browser.key("Escape");
    browser.value("document.activeElement.blur()");
    browser.click("#pause");
    browser.until("document.getElementById('link').textContent === 'paused'");
    let clock = browser.value("document.getElementById('clock').textContent");
    running.signal(Signal::INT);
    // A page paused at one moment keeps showing it until everything is over.
    browser.until(&format!(
        "document.getElementById('clock') === null || document.getElementById('clock').textContent === {clock}"
    ));
    browser.until_report();
    running.end().expect(130, &[]);
    browser.is_silent();
}

#[test]
fn bench_has_the_page_and_the_report() {
    let server = Served::start("\"slow_ms\": 2");
    let lab = Lab::new();
    let mut browser = Browser::start();
    let mut command = lab.command(&["bench", &server.url("/"), "-c", "3", "-d", "10m", "--ui", "--json"]);
    command.stderr(std::fs::File::create(lab.path().join("stderr")).unwrap());
    let child = command.spawn().unwrap();
    let reported = run_support::eventually("the page", || {
        Some(lab.read("stderr")).filter(|t| t.contains("live in the browser: ") && t.ends_with('\n'))
    });
    browser.visit(&page_in(&reported));
    browser.until("document.querySelector('.outcomes li[data-key=ok]')?.dataset.count > 0");
    browser.until("document.querySelector('.charts .legend output').textContent !== ''");
    keep_the_last(&mut browser);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    browser.until_report();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(kept(&mut browser)["ok"], summary["requests"]["ok"]);
    let text = browser.value("document.querySelector('header').textContent");
    assert!(text.as_str().unwrap().contains("3 users for 10m"), "{text}");
    browser.is_silent();
}

#[test]
fn a_search_serves_the_page_and_does_not_wait_for_its_readers() {
    let server = Served::start("\"slow_ms\": 1");
    let lab = Lab::new();
    let url = server.url("/");
    // Long enough for this test to have the page before the search is over.
    let args = [
        "find",
        &url,
        "--expect",
        "p50 < 10s",
        "--users",
        "1..2",
        "--level-duration",
        "4s",
        "--settle",
        "0s",
        "--ui",
    ];
    let mut command = lab.command(&args);
    command.stderr(std::fs::File::create(lab.path().join("stderr")).unwrap());
    let child = command.spawn().unwrap();
    let reported = run_support::eventually("the page", || {
        Some(lab.read("stderr")).filter(|t| t.contains("live in the browser: ") && t.contains("trial 1"))
    });
    let page = page_in(&reported);
    let (address, path) = page.trim_start_matches("http://").split_once('/').unwrap();
    let events = asked(address, &format!("GET /{path}live HTTP/1.1\nHost: {address}\n\n"));
    assert!(events.contains("Content-Type: text/event-stream\r\n"), "{events}");
    // The last frame has the final counts and their rate.
    let frames: Vec<Value> = events
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .filter_map(|l| serde_json::from_str(l).ok())
        .filter(|frame: &Value| frame["trial"].as_str().is_some_and(|t| t.starts_with("users 2, trial ")))
        .collect();
    let last = &frames.last().expect("a frame of a probe")["loads"][0];
    assert_eq!((&last["far"], &last["connections"]), (&json!("ended"), &json!("0")), "{last}");
    assert!(last["ended"].as_u64() > Some(0) && last["rate"] != "0/s", "{last}");
    assert!(events.ends_with("event: end\ndata: {\"report\":true}\n\n"), "{events}");
    let output = child.wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
}

/// The response to a raw request, including the status line.
fn asked(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn requests_without_the_token_or_from_another_origin_are_refused() {
    let lab = Lab::new();
    let mut running = lab.start(&plan(&[component("web", "", &[])], run_support::LONG), &["--ui", "--quiet"]);
    running.wait_for_output("live in the browser: ");
    let url = page_in(&lab.read("stderr"));
    let (address, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let token = path.trim_end_matches('/');
    let right = format!("GET /{token}/ HTTP/1.1\nHost: {address}\n\n");
    let page = asked(address, &right);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("connect-src 'self'"), "{page}");
    for header in ["Cache-Control: no-store", "Referrer-Policy: no-referrer", "X-Frame-Options: DENY"] {
        assert!(page.contains(header), "{header}");
    }
    assert!(!page.contains("Access-Control-Allow"), "no other origin");
    for request in [
        format!("GET / HTTP/1.1\nHost: {address}\n\n"),
        format!("GET /live HTTP/1.1\nHost: {address}\n\n"),
        format!("GET /{}/ HTTP/1.1\nHost: {address}\n\n", "0".repeat(token.len())),
        format!("GET /{token}/ HTTP/1.1\nHost: rebound.example\n\n"),
        format!("GET /{token}/live HTTP/1.1\nHost: {address}\nOrigin: http://evil.example\n\n"),
        format!("GET /{token}/live HTTP/1.1\nHost: {address}\nSec-Fetch-Site: cross-site\n\n"),
    ] {
        let answer = asked(address, &request);
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{request}{answer}");
        assert!(!answer.contains(token) && !answer.contains("<html"), "{answer}");
    }
    assert!(asked(address, &format!("POST /{token}/ HTTP/1.1\nHost: {address}\n\n")).contains(" 405 "));
    assert!(asked(address, &format!("GET /{token}/x HTTP/1.1\nHost: {address}\n\n")).contains(" 404 "));
    // A client that never reads, and one that never sends, hold up neither the load nor other clients.
    let mut deaf = TcpStream::connect(address).unwrap();
    deaf.write_all(format!("GET /{token}/live HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let _mute = TcpStream::connect(address).unwrap();
    assert!(asked(address, &right).starts_with("HTTP/1.1 200 OK\r\n"));
    running.signal(Signal::INT);
    running.end().expect(130, &[]);
}

#[test]
fn an_address_that_cannot_be_had_is_reported_before_anything_runs() {
    let lab = Lab::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("--ui={}", taken.local_addr().unwrap());
    let text = plan(&[component("web", "", &[])], "");
    lab.run(&text, &[&address]).expect(2, &["--ui: cannot serve the page on", "hint: `--ui` without a port"]);
    lab.run(&text, &["--ui=0.0.0.0:80"]).expect(2, &["the page is served on loopback only"]);
    assert!(!lab.record().dir.exists());
}
