//! Credentials as input: from the environment, from files, from the command line. Messages about them do not show them.

use crate::common;
use crate::common::server::{Server, good};
use crate::run_support::Lab;

const LOAD: &str = "loadlab: 1\nname: given\nload:\n  users: 1\n  requests: 2\n  journey:\n";

#[test]
fn a_check_reports_all_that_is_missing_at_once() {
    let lab = Lab::new();
    lab.file("short.txt", "abc\n");
    std::fs::write(lab.path().join("bytes"), [0xff; 20]).unwrap();
    let steps = "    - { get: \"http://127.0.0.1:1/?a=${env.GIVEN_UNSET}\", auth: { bearer: \"${file:no/such}\" } }\n    \
                 - { get: \"http://127.0.0.1:1/?b=${file:short.txt}&c=${file:bytes}&d=${file:.}\" }\n";
    lab.file("plan.yaml", &format!("{LOAD}{steps}"));
    let ran = lab.loadlab(&["check", "plan.yaml"]);
    ran.expect(
        2,
        &[
            "plan.yaml:7:39: the environment variable `GIVEN_UNSET` is not set",
            "hint: set it for loadlab: `export GIVEN_UNSET=…`",
            "plan.yaml:7:77: cannot read the file `no/such`: No such file or directory",
            "hint: the path is relative to the plan's folder",
            "plan.yaml:8:39: the value of `${file:short.txt}` has 3 bytes: a secret needs at least 8",
            "hint: if it is not a secret, write `${public:file:short.txt}`",
            "plan.yaml:8:59: the file `bytes` is not UTF-8 text",
            "cannot read the file `.`: Is a directory",
        ],
    );
    let ran = lab.command(&["run", "plan.yaml"]).env("GIVEN_UNSET", "it is now").output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.code() == Some(2) && !err.contains("GIVEN_UNSET` is not set"), "{err}");
}

#[test]
fn a_plan_elsewhere_reads_files_beside_it_and_the_record_has_their_names() {
    let server = Server::start(good);
    let lab = Lab::new();
    std::fs::create_dir(lab.path().join("sub")).unwrap();
    lab.file("sub/token.txt", "token-of-a-file\n");
    let steps = format!(
        "    - {{ get: \"{}\", auth: {{ bearer: \"${{file:token.txt}}\" }} }}\n    \
         - {{ get: \"{}\", auth: {{ basic: {{ user: ada, password: lovelace }} }} }}\n",
        server.url("/?name=${public:env.GIVEN_NAME}"),
        server.url("/b"),
    );
    lab.file("sub/plan.yaml", &format!("{LOAD}{steps}"));
    let out = lab.run_name();
    let set = "load.journey.1.headers={X-Api-Key: key-from-set, X-Plain: plain}";
    let args = [
        "run",
        "sub/plan.yaml",
        "--out",
        &out,
        "--set",
        set,
        "--set",
        "load.journey.1.auth.basic.password=pw",
    ];
    let ran = lab.command(&args).env("GIVEN_NAME", "a b&c").output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let first = server.counts().targets.keys().cloned().collect::<Vec<_>>();
    assert_eq!(first, ["/?name=a%20b%26c", "/b"]);
    let manifest = lab.record().manifest();
    let text = manifest["plan_text"].as_str().unwrap();
    assert!(
        text.contains("bearer: \"${file:token.txt}\"") && text.contains("${public:env.GIVEN_NAME}"),
        "{text}"
    );
    assert!(text.contains("password: \"***\""), "{text}");
    let options = manifest["options"].to_string();
    assert!(options.contains("X-Api-Key: \\\"***\\\"") && options.contains("X-Plain: plain"), "{options}");
    assert!(options.contains("--set load.journey.1.auth.basic.password=***"), "{options}");
    let plan = std::fs::read(lab.path().join("sub/plan.yaml")).unwrap();
    assert_eq!(manifest["plan_sha256"], sha256(&plan), "the hash is that of the file");
    let all =
        [std::fs::read(lab.record().dir.join("manifest.json")).unwrap(), ran.stdout, ran.stderr].concat();
    let report = lab.record().report("html") + &lab.record().report("text") + &String::from_utf8_lossy(&all);
    for secret in ["lovelace", "token-of-a-file", "key-from-set"] {
        assert!(!report.contains(secret), "{secret}");
    }
}

fn sha256(bytes: &[u8]) -> String {
    use std::io::Write;
    let mut child = std::process::Command::new("sha256sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("coreutils");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("it reads");
    let out = child.wait_with_output().expect("it ends").stdout;
    String::from_utf8_lossy(&out).split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn headers_come_from_a_file() {
    let server = Server::start(good);
    let lab = Lab::new();
    lab.file("headers", "Authorization: Bearer from-a-file\r\n\nX-Team: blue-team\n");
    let url = server.url("/");
    let bench =
        |more: &[&str]| lab.loadlab(&[&["bench", &url, "-c", "1", "-n", "1", "--quiet"], more].concat());
    bench(&["-H", "@headers", "-H", "Accept: */*"]).expect(0, &[]);
    let last = server.counts().last.unwrap();
    let of = |name: &str| last.header(name).map(str::to_owned);
    assert_eq!(of("authorization").as_deref(), Some("Bearer from-a-file"));
    assert_eq!((of("x-team").as_deref(), of("accept").as_deref()), (Some("blue-team"), Some("*/*")));
    bench(&["-H", "@gone"]).expect(2, &["-H: cannot read gone: No such file or directory"]);
    lab.file("short", "Accept: text/plain\nX-Short: abc\n");
    bench(&["-H", "@short"]).expect(
        2,
        &[
            "short:2: the value of `X-Short` has 3 bytes",
            "hint: give what is not a secret on the command line",
        ],
    );
    lab.file("bad", "Authorization Bearer very-secret\n");
    let ran = bench(&["-H", "@bad"]);
    ran.expect(2, &["bad:1: expected `Name: value`"]);
    assert!(!ran.err.contains("very-secret"), "{}", ran.err);
    let ran = bench(&["--otlp", "http://127.0.0.1:1", "--otlp-header", "@gone"]);
    ran.expect(2, &["--otlp-header: cannot read gone"]);
}

#[test]
fn a_proxy_comes_from_a_file() {
    let server = Server::start(good);
    let proxy = common::proxy::Proxy::start(Some("Basic dXNlcjpwYXNzIHdvcmQ="));
    let lab = Lab::new();
    lab.file("proxy", &format!("http://user:pass%20word@{}\n", proxy.address));
    let ran = lab.loadlab(&["bench", &server.url("/"), "-c", "1", "-n", "3", "--quiet", "--proxy", "@proxy"]);
    ran.expect(0, &[]);
    assert_eq!((proxy.counts().refused, server.counts().requests), (0, 3));
    lab.file("bad", "ftp://user:pass-word@127.0.0.1:1\n");
    let ran = lab.loadlab(&["bench", &server.url("/"), "--proxy", "@bad"]);
    ran.expect(2, &["bad: "]);
    assert!(!ran.err.contains("pass-word"), "{}", ran.err);
}

/// Whatever is wrong with a command line, the error does not repeat its credentials, however short they are.
#[test]
fn messages_about_the_command_line_show_no_credentials() {
    let lab = Lab::new();
    let plan = format!("{LOAD}    - {{ get: \"http://127.0.0.1:1/\" }}\n");
    lab.file("plan.yaml", &plan);
    for args in [
        &["bench", "http://127.0.0.1:1/", "-H", "Authorization Bearer sekret"][..],
        &["bench", "http://127.0.0.1:1/", "--proxy", "ftp://user:sekret@127.0.0.1:1"],
        &["bench", "http://127.0.0.1:1/", "--proxy=http://user:sekret@127.0.0.1:1/path"],
        &["bench", "http://user:sekret@127.0.0.1:1/"],
        &["bench", "http://127.0.0.1:1/", "--otlp", "http://user:sekret@127.0.0.1:1"],
        &["bench", "http://127.0.0.1:1/", "--otlp-header=Cookie=sekret", "--otlp", "http://127.0.0.1:1"],
        &["bench", "-H", "Cookie: sekret", "--no-such-option"],
        &["find", "http://user:sekret@127.0.0.1:1/", "--expect", "p99 < 1s"],
        &["run", "plan.yaml", "--set", "load.journey.0.auth.bearer=[sekret]"],
        &["run", "plan.yaml", "--set", "load.journey.0.get=http://user:sekret@127.0.0.1/"],
        &["run", "plan.yaml", "--set", "load.journey.0.auth.basic={user: u, password: sekret"],
    ] {
        let ran = lab.loadlab(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("sekret") && !ran.out.contains("sekret"), "{args:?}: {}", ran.err);
    }
}
