//! Values from environment and files: put in where they are asked for, shown nowhere.

use std::collections::BTreeMap;

use loadlab_plan::{Auth, Body, ComponentKind, Missing, Options, Plan, Reference, Segment, Template};

use crate::common;
use crate::common::{HEAD, LOAD};

/// The contents of the environment and the plan's folder.
const KNOWN: [(&str, &str); 10] = [
    ("env.HOST", "127.0.0.1:8080"),
    ("env.TOKEN", "t0ken/with+odd=chars&\"quotes\""),
    ("env.PASSWORD", "p@ss word:1"),
    ("env.PORT", "8080"),
    ("env.BASE", "http://127.0.0.1:8080/api"),
    ("env.TIME", "3s"),
    ("env.LINES", "one line\nand another"),
    ("env.URL", "http://proxy-user:proxy-password@127.0.0.1:3128"),
    ("file:token.txt", "token-from-a-file\r\n"),
    ("file:two.txt", "two-newlines\n\n"),
];

/// As the binary does it: provides what is asked for, as far as it is known.
fn options(text: &str, options: Options) -> Options {
    let mut options = options;
    for reference in Plan::asks_for(text, &options) {
        let known = KNOWN.iter().find(|(name, _)| *name == reference.to_string());
        let missing = match &reference {
            Reference::Env(name) if name == "BROKEN" => Missing::NotText,
            Reference::Env(_) => Missing::Unset,
            Reference::File(path) if path == "huge" => Missing::TooLong,
            Reference::File(_) => Missing::Unreadable("No such file or directory (os error 2)".to_owned()),
        };
        options.outside.give(reference, known.map(|(_, value)| (*value).to_owned()).ok_or(missing));
    }
    options
}

fn read(text: &str) -> Plan {
    read_with(text, Options::default())
}

fn read_with(text: &str, more: Options) -> Plan {
    Plan::parse("plan.yaml", text, &options(text, more)).unwrap_or_else(|errors| panic!("{errors}"))
}

fn mistakes(text: &str) -> String {
    common::mistakes(text, &options(text, Options::default()))
}

fn step(inside: &str) -> String {
    format!("{HEAD}load:\n  users: 1\n  requests: 1\n  journey:\n    - {inside}\n")
}

fn filled(template: &Template) -> String {
    template.render(&|_| None).unwrap()
}

#[test]
fn a_value_is_escaped_for_its_place_and_shown_by_its_name() {
    let text = step(
        "{ post: \"${public:env.BASE}/x?t=${env.TOKEN}\", headers: { X-A: \"a ${file:token.txt}\" }, \
         form: { p: \"${env.PASSWORD}\" } }",
    );
    let plan = read(&text);
    let step = &plan.cases()[0].loads[0].journey[0];
    assert_eq!(filled(&step.url), "http://127.0.0.1:8080/api/x?t=t0ken%2Fwith%2Bodd%3Dchars%26%22quotes%22");
    assert_eq!(step.url.to_string(), "http://127.0.0.1:8080/api/x?t=${env.TOKEN}");
    assert_eq!(step.url.until_variable().as_deref(), Some(filled(&step.url).as_str()));
    assert_eq!(filled(&step.headers[0].1), "a token-from-a-file", "one newline is stripped");
    let Body::Form(form) = &step.body else { panic!() };
    assert_eq!(filled(form), "p=p%40ss+word%3A1");
    assert_eq!(form.to_string(), "p=${env.PASSWORD}");
    let segments = form.resolve(&|_| None).unwrap();
    let is_raw =
        |s: &Segment| matches!(s, Segment::Text { escape, .. } if *escape == loadlab_plan::Escape::Raw);
    assert!(segments.iter().all(is_raw), "nothing is escaped twice");
    let shown = format!("{plan:?}");
    assert!(!shown.contains("t0ken") && !shown.contains("p%40ss"), "not even for whoever debugs");
}

#[test]
fn a_body_of_json_quotes_and_escapes() {
    let text = step(
        "{ post: \"http://127.0.0.1/\", body: { json: { t: \"${env.TOKEN}\", p: \"${public:env.PORT}\", \
         r: \"${raw(file:two.txt)}\" } } }",
    );
    let plan = read(&text);
    let Body::Json(json) = &plan.cases()[0].loads[0].journey[0].body else { panic!() };
    assert_eq!(
        filled(json),
        "{\"t\":\"t0ken/with+odd=chars&\\\"quotes\\\"\",\"p\":\"8080\",\"r\":\"two-newlines\n\"}"
    );
    assert_eq!(json.to_string(), "{\"t\":\"${env.TOKEN}\",\"p\":\"8080\",\"r\":\"${raw(file:two.txt)}\"}");
}

#[test]
fn outside_values_are_allowed_wherever_a_text_is() {
    let text = format!(
        r#"{HEAD}
system:
  components:
    web:
      run: "./web --token ${{env.TOKEN}}"
      env: {{ TOKEN: "${{file:token.txt}}", TEAM: "${{public:env.PORT}}" }}
      port: "${{public:env.PORT}}"
      ready: {{ http: "http://127.0.0.1:${{public:env.PORT}}/ready?key=${{env.TOKEN}}" }}
  before_trial: "./login ${{env.PASSWORD}}"
  probes:
    rows: {{ command: "./rows ${{env.TOKEN}}" }}
setup:
  - {{ post: "http://127.0.0.1/login", body: "${{env.PASSWORD}}", capture: {{ s: {{ json: /s }} }} }}
load:
  users: 1
  duration: "${{public:env.TIME}}"
  proxy: "http://u:${{env.PASSWORD}}@127.0.0.1:${{public:env.PORT}}"
  user_setup: [ {{ get: "http://127.0.0.1/", auth: {{ bearer: "${{file:token.txt}}" }} }} ]
  journey: [ {{ get: "http://127.0.0.1/", auth: {{ basic: {{ user: u, password: "${{env.PASSWORD}}" }} }} }} ]
"#
    );
    let plan = read(&text);
    let case = &plan.cases()[0];
    let web = &case.system.components[0];
    let ComponentKind::Process(loadlab_plan::Command::Shell(run)) = &web.kind else { panic!() };
    assert_eq!(filled(run), "./web --token t0ken/with+odd=chars&\"quotes\"");
    assert_eq!(web.kind.text(), "./web --token ${env.TOKEN}");
    assert_eq!(web.ports[0].number, Some(8080));
    let Some(ready) = web.ready.as_ref() else { panic!() };
    let loadlab_plan::ReadySign::Http(ready) = &ready.sign else { panic!() };
    assert_eq!(filled(ready), "http://127.0.0.1:8080/ready?key=t0ken%2Fwith%2Bodd%3Dchars%26%22quotes%22");
    let env: Vec<String> = web.env.iter().map(|(_, value)| filled(value)).collect();
    assert_eq!(env, ["token-from-a-file", "8080"]);
    let load = &case.loads[0];
    assert_eq!(load.until, loadlab_plan::Until::Elapsed(3_000_000_000));
    let proxy = load.http.proxy.as_ref().unwrap();
    assert_eq!(filled(proxy), "http://u:p%40ss%20word%3A1@127.0.0.1:8080");
    let Some(Auth::Basic { password, .. }) = &load.journey[0].auth else { panic!() };
    assert_eq!(filled(password), "p@ss word:1");
    let described = plan.describe().join("\n");
    assert!(described.contains("${env.TOKEN}") && described.contains("for 3s"), "{described}");
    for secret in ["t0ken", "p@ss", "p%40ss", "token-from-a-file"] {
        assert!(!described.contains(secret), "{described}");
        assert!(
            !plan
                .secrets
                .mask("t0ken/with+odd=chars&\"quotes\" p@ss word:1 token-from-a-file")
                .contains(secret)
        );
    }
    assert_eq!(plan.secrets.mask("port 8080 for 3s"), "port 8080 for 3s", "public values are no secrets");
    assert_eq!(plan.shown_text, text, "names stay as they are written");
    let given =
        [("env.PORT", "8080"), ("env.TIME", "3s")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(plan.given, BTreeMap::from(given), "public values alone");
}

#[test]
fn a_host_may_come_from_outside() {
    for url in ["http://${public:env.HOST}/a@b", "http://${public:env.HOST}/", "${public:env.BASE}"] {
        let plan = read(&step(&format!("{{ get: \"{url}\" }}")));
        let url = filled(&plan.cases()[0].loads[0].journey[0].url);
        assert!(url.starts_with("http://127.0.0.1:8080/"), "{url}");
    }
}

#[test]
fn a_whole_proxy_may_come_from_outside_and_its_password_is_a_secret_too() {
    let load = "load: { users: 1, requests: 1, proxy: \"${env.URL}\", journey: [ { get: \"http://127.0.0.1:1/\" } ] }";
    let plan = read(&format!("{HEAD}{load}\n"));
    let proxy = plan.cases()[0].loads[0].http.proxy.as_ref().unwrap();
    assert_eq!(filled(proxy), "http://proxy-user:proxy-password@127.0.0.1:3128");
    assert_eq!(plan.secrets.mask("a proxy-password b"), "a *** b");
}

#[test]
fn values_of_the_matrix_may_come_from_outside() {
    let text = format!(
        "{HEAD}load: {{ users: 1, requests: 1, journey: [ {{ get: \"http://127.0.0.1/?k=${{case.key}}\" }} ] }}\n\
         matrix: {{ axes: {{ key: [plain, \"${{env.TOKEN}}\", \"k-${{public:env.PORT}}\"] }} }}\n"
    );
    let plan = read(&text);
    let urls: Vec<String> = plan.cases().iter().map(|c| filled(&c.loads[0].journey[0].url)).collect();
    assert_eq!(
        urls,
        [
            "http://127.0.0.1/?k=plain",
            "http://127.0.0.1/?k=t0ken%2Fwith%2Bodd%3Dchars%26%22quotes%22",
            "http://127.0.0.1/?k=k-8080"
        ]
    );
    let names: Vec<&str> = plan.cases().iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["key=plain", "key=${env.TOKEN}", "key=k-${public:env.PORT}"]);
}

#[test]
fn a_set_option_asks_as_a_plan_does() {
    let more = Options {
        set: vec![
            ("load.journey.0.auth.bearer".to_owned(), "${env.TOKEN}".to_owned()),
            ("load.timeout".to_owned(), "${public:env.TIME}".to_owned()),
        ],
        ..Options::default()
    };
    let plan = read_with(&format!("{HEAD}{LOAD}"), more);
    let load = &plan.cases()[0].loads[0];
    assert_eq!(load.timeout_ns, 3_000_000_000);
    assert_eq!(plan.given, BTreeMap::from([("env.TIME".to_owned(), "3s".to_owned())]));
    assert!(matches!(&load.journey[0].auth, Some(Auth::Bearer(t)) if filled(t).starts_with("t0ken")));
    assert_eq!(
        plan.shown_set,
        ["load.journey.0.auth.bearer=${env.TOKEN}", "load.timeout=${public:env.TIME}"]
    );
}

#[test]
fn what_is_missing_is_reported_at_once_with_its_place() {
    let text = step(
        "{ get: \"http://127.0.0.1/?a=${env.NONE}&b=${env.PORT}\", headers: { A: \"${file:gone}\", \
         B: \"${env.LINES}\", C: \"${env.BROKEN}${file:huge}\" }, auth: { bearer: \"${env.9}\" }, \
         tags: [\"${env:TOKEN}\"] }",
    );
    insta::assert_snapshot!(briefly(&mistakes(&text)), @r"
    plan.yaml:7:37: the environment variable `NONE` is not set
      hint: set it for loadlab: `export NONE=…`
    plan.yaml:7:51: the value of `${env.PORT}` has 4 bytes: a secret needs at least 8, because it is masked wherever it appears
      hint: if it is not a secret, write `${public:env.PORT}`
    plan.yaml:7:80: cannot read the file `gone`: No such file or directory (os error 2)
      hint: the path is relative to the plan's folder
    plan.yaml:7:99: the value of `${env.LINES}` contains a line break or control character
      hint: a header field must be a single line
    plan.yaml:7:118: the environment variable `BROKEN` is not UTF-8 text
      hint: encode it, in base64 for example
    plan.yaml:7:131: the file `huge` is larger than 64 KiB
      hint: to send a file as the body, write `body: { file: PATH }`
    plan.yaml:7:165: `9` is not the name of an environment variable
      hint: letters, digits and `_`, not starting with a digit
    plan.yaml:7:186: `${env:TOKEN}` is not a valid reference to an environment variable or file
      hint: `${env.NAME}` or `${file:PATH}`, and `${public:env.NAME}` for what is not a secret
    ");
    let text = "loadlab: 1\nname: \"${env.TOKEN}\"\n".to_owned() + LOAD;
    insta::assert_snapshot!(briefly(&mistakes(&text)), @r"
    plan.yaml:2:7: `name` cannot contain a secret: folders are named after it
      hint: if it is not a secret, write `${public:env.NAME}`
    ");
    let tagged = step("{ get: \"http://127.0.0.1/\", tags: [\"${file:token.txt}\"] }");
    assert!(
        mistakes(&tagged).starts_with("plan.yaml:7:42: a tag cannot contain a secret"),
        "{}",
        mistakes(&tagged)
    );
    let text =
        format!("{HEAD}{LOAD}trials: \"${{env.TOKEN}}\"\nmatrix: {{ axes: {{ a: [\"${{env.NONE}}\"] }} }}\n")
            + "expect: [\"${case.a}\", \"${public:x}\"]\n";
    insta::assert_snapshot!(mistakes(&text), @r#"
    plan.yaml:4:9: `***` is not a whole number
       |
     4 | trials: "${env.TOKEN}"
       |         ^^^^^^^^^^^^^^

    plan.yaml:5:23: the environment variable `NONE` is not set
       |
     5 | matrix: { axes: { a: ["${env.NONE}"] } }
       |                       ^^^^^^^^^^^^^
      used here, in case `a=${env.NONE}`: plan.yaml:6:10
       |
     6 | expect: ["${case.a}", "${public:x}"]
       |          ^^^^^^^^^^^
      hint: set it for loadlab: `export NONE=…`

    plan.yaml:6:26: `${public:x}` is neither an environment variable nor a file
       |
     6 | expect: ["${case.a}", "${public:x}"]
       |                          ^^^^^^^^
      hint: `${env.NAME}` or `${file:PATH}`, and `${public:env.NAME}` for what is not a secret
    "#);
}

/// First lines and hints only.
fn briefly(all: &str) -> String {
    let kept = all.lines().filter(|l| l.starts_with("plan.yaml") || l.contains("hint:"));
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn only_the_chosen_profile_needs_its_outside_values() {
    let text =
        format!("{HEAD}{LOAD}profiles: {{ ci: {{ load.journey.0.auth.bearer: \"${{env.NONE}}\" }} }}\n");
    read(&text);
    let chosen = Options { profile: Some("ci".to_owned()), ..Options::default() };
    let all = common::mistakes(&text, &options(&text, chosen));
    assert!(all.starts_with("plan.yaml:4:50: the environment variable `NONE` is not set"), "{all}");
}

#[test]
fn mistakes_show_no_part_of_a_secret_in_whichever_profile_they_are() {
    let long = format!("start-of-a-long-token-{}", "0123456789".repeat(8));
    for value in ["short-token", long.as_str()] {
        let mut options = Options::default();
        options.outside.give(Reference::Env("KEY".to_owned()), Ok(value.to_owned()));
        for changed in ["trials: \"${env.KEY}\"", "profiles: { other: { trials: \"${env.KEY}\" } }"] {
            let all = common::mistakes(&format!("{HEAD}{LOAD}{changed}\n"), &options);
            assert!(all.contains("is not a whole number") && !all.contains(&value[..8]), "{all}");
        }
    }
}

#[test]
fn what_only_another_profile_asks_for_is_not_masked() {
    let profile = "profiles: { ci: { load.journey.0.headers: { X-Host: \"${env.HOST}\" } } }";
    let text = format!("{HEAD}{LOAD}{profile}\n");
    assert_eq!(read(&text).secrets.mask("at 127.0.0.1:8080"), "at 127.0.0.1:8080");
    let chosen = Options { profile: Some("ci".to_owned()), ..Options::default() };
    assert_eq!(read_with(&text, chosen).secrets.mask("at 127.0.0.1:8080"), "at ***");
}

#[test]
fn no_part_of_a_credential_is_described() {
    let plan = read(&step(
        "{ post: \"http://127.0.0.1:1/login\", \
         body: { json: { user: administrator, password: correct-horse-battery-staple } } }",
    ));
    let described = plan.describe().join("\n");
    assert!(described.contains("with JSON `{\"user\":\"administrator\",\"password\":\"…`"), "{described}");
}

#[test]
fn a_proxys_password_is_masked_even_if_it_is_not_encoded() {
    let load = "load: { users: 1, requests: 1, proxy: \"http://u:let/me?in#now@127.0.0.1:3128\", \
                journey: [ { get: \"http://127.0.0.1:1/\" } ] }";
    let text = format!("{HEAD}{load}\n");
    let plan = read(&text);
    assert_eq!(plan.shown_text, text.replace("let/me?in#now", "***"));
    assert_eq!(plan.secrets.mask("a let/me?in#now b"), "a *** b");
    for password in ["let/me?in#now", "pw/1"] {
        let without_scheme = format!("u:{password}");
        let all = common::plain(&text.replacen("http://u:let/me?in#now", &without_scheme, 1));
        assert!(all.contains("is not a URL") && !all.contains(password), "{all}");
    }
}

#[test]
fn a_password_that_is_also_the_users_name_is_not_shown() {
    for run in [
        "exec ./app --amqp amqp://guest:guest@mq",
        "|\n        exec ./app --amqp amqp://guest:guest@mq\n        --more\n",
        ">-\n        exec ./app\n        --amqp amqp://guest:guest@mq\n",
        "\"./app \\\"amqp://guest:guest@mq\\\"\"",
    ] {
        let text = format!(
            "loadlab: 1\nname: n\nsystem:\n  components:\n    web:\n      run: {run}\nload: {{ users: 1, requests: 1, journey: [{{ get: \"http://127.0.0.1:1/\" }}] }}\n"
        );
        let shown = text.replace("guest:guest", "guest:***");
        assert_eq!(read(&text).shown_text, shown);
    }
}

#[test]
fn credentials_that_a_plan_writes_out_are_not_shown() {
    let text = r#"loadlab: 1
name: n
system:
  components:
    web: { run: ./web, env: { DB_PASSWORD: swordfish, TOKEN_TTL: 3600s, PLAIN: visible } }
load:
  users: 1
  requests: 1
  proxy: http://let:let%20me%20in@127.0.0.1:3128
  journey:
    - get: http://127.0.0.1:1/
      auth: { basic: { user: alice, password: pw } }
    - get: http://127.0.0.1:1/
      headers: { Cookie: "a=first-cookie; b=2", x-api-key: 'an "odd" key' }
      auth:
        bearer: literal-bearer-token
    - post: http://127.0.0.1:1/
      headers: { Authorization: Bearer header-token }
      body:
        json:
          user: bob
          password: "with \"quotes\" in it"
          secret: >-
            folded over
            two lines
          client_secret: |
            a block
            of lines
      capture: { token: { json: /token } }
profiles:
  ci: { load.journey.1.auth.bearer: profile-token }
"#;
    let plan = read(text);
    let shown = text
        .replace("swordfish", "\"***\"")
        .replace("let%20me%20in", "***")
        .replace("password: pw", "password: \"***\"")
        .replace("first-cookie; b=2", "***; b=***")
        .replace("an \"odd\" key", "***")
        .replace(" literal-bearer-token", " \"***\"")
        .replace("header-token", "***")
        .replace("\"with \\\"quotes\\\" in it\"", "\"***\"")
        .replace("folded over\n            two lines", "\"***\"\n            \"***\"")
        .replace("a block\n            of lines", "\"***\"\n            \"***\"")
        .replace("profile-token", "\"***\"");
    assert_eq!(plan.shown_text, shown);
    let mask = |text: &str| plan.secrets.mask(text).into_owned();
    for secret in ["swordfish", "let me in", "first-cookie", "literal-bearer-token", "header-token"] {
        assert_eq!(mask(secret), "***", "{secret}");
    }
    assert_eq!(mask("pw alice bob visible 3600s"), "pw alice bob visible 3600s");
    Plan::parse("plan.yaml", &plan.shown_text, &Options::default()).expect("it is still a plan");
}

#[test]
fn what_a_credential_has_beside_names_is_not_shown() {
    let text = r#"loadlab: 1
name: n
system:
  components:
    web:
      run: ./web
      env:
        DB_PASSWORD: "swordfish-${case.n}"
        API_TOKEN: start-7f3a-${case.n}
        SAME_TOKEN: "${case.n}-${env.TOKEN}"
  probes:
    rows: { command: "./rows http://u:probe-part-${env.TOKEN}@127.0.0.1/" }
matrix:
  - { name: one, n: 1, at: "http://u:matrix-part-${env.TOKEN}@127.0.0.1/" }
load:
  users: 1
  requests: 1
  journey:
    - get: http://127.0.0.1:1/
      headers: { Authorization: "Bearer ${env.TOKEN}.c2lnbmF0dXJl", X-At: "${case.at}" }
    - get: http://127.0.0.1:1/
      headers:
        X-Folded: >-
          http://env:${env.TOKEN}TOKEN@127.0.0.1
          and more
"#;
    let plan = read(text);
    let shown = text
        .replace("swordfish-${case.n}", "***")
        .replace("start-7f3a-${case.n}", "\"***\"")
        .replace("probe-part-", "***")
        .replace("matrix-part-", "***")
        .replace(".c2lnbmF0dXJl", "***")
        .replace("}TOKEN@", "}***@");
    assert_eq!(plan.shown_text, shown);
    for part in ["swordfish-", "start-7f3a-", "probe-part-", "matrix-part-", ".c2lnbmF0dXJl"] {
        assert_eq!(plan.secrets.mask(part), "***", "{part}");
    }
    read(&plan.shown_text);
}

#[test]
fn boilerplate_beside_names_is_masked_nowhere_else() {
    let text = r#"loadlab: 1
name: n
system:
  components:
    auth: { run: ./auth, port: auto }
    web:
      run: ./web
      env:
        OAUTH_TOKEN: "http://127.0.0.1:${components.auth.port}/token"
        LOGIN_TOKEN: "http://u:url-part-${env.TOKEN}@127.0.0.1:${components.auth.port}/"
        GITHUB_TOKEN: "${run.dir}/token-file"
        SESSION_TOKEN: "loadtest-user-${env.TOKEN}"
load:
  users: 1
  requests: 1
  journey:
    - get: http://127.0.0.1:1/
      headers:
        X-Auth-Token: "Token token=${env.TOKEN}"
        X-Api-Key: "Bearer ${env.TOKEN}"
        Cookie: "consent=accepted; s=${env.TOKEN}"
"#;
    let plan = read(text);
    let shown = text
        .replace("url-part-", "***")
        .replace("}/token-file", "}***")
        .replace("loadtest-user-${env.TOKEN}", "***")
        .replace("Token token=", "Token ***")
        .replace("accepted", "***");
    assert_eq!(plan.shown_text, shown);
    assert_eq!(plan.secrets.mask("url-part-"), "***");
    let all = "http://127.0.0.1:8080/token /token-file loadtest-user-7 Token token= accepted";
    assert_eq!(plan.secrets.mask(all), all);
    read(&plan.shown_text);
}

#[test]
fn a_credential_with_a_literal_brace_is_masked_as_it_is_sent() {
    let text = step(
        "{ get: \"http://127.0.0.1:1/\", auth: { bearer: \"pa$${x}word\" }, \
         headers: { X-At: \"http://u:in$${y}url@h/\" } }",
    );
    let plan = read(&text);
    assert_eq!(plan.shown_text, text.replace("pa$${x}word", "***").replace("in$${y}url", "***"));
    for sent in ["pa${x}word", "in${y}url"] {
        assert_eq!(plan.secrets.mask(sent), "***", "{sent}");
    }
}

#[test]
fn a_password_from_outside_is_no_template() {
    let mut options = Options::default();
    let value = "http://u:pa${x}word@127.0.0.1:3128".to_owned();
    options.outside.give(Reference::Env("PROXY".to_owned()), Ok(value));
    let load = "load: { users: 1, requests: 1, proxy: \"${env.PROXY}\", journey: [ { get: \"http://127.0.0.1:1/\" } ] }";
    let text = format!("{HEAD}{load}\n");
    let plan = Plan::parse("plan.yaml", &text, &options).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(plan.secrets.mask("a pa${x}word b"), "a *** b");
}

#[test]
fn credentials_are_shown_in_no_message() {
    let text =
        step("{ get: \"http://127.0.0.1/\", auth: { basic: { user: u, pasword: hunter22 } }, oops: 1 }");
    let all = common::plain(&text);
    assert!(all.contains("did you mean `password`"), "{all}");
    let text = step("{ get: \"http://127.0.0.1/\", auth: { bearer: hunter22-token }, oops: 1 }");
    let all = common::plain(&text);
    assert!(all.contains("unknown key `oops`") && !all.contains("hunter22"), "{all}");
    let set = |path: &str, value: &str| Options {
        set: vec![(path.to_owned(), value.to_owned())],
        ..Options::default()
    };
    for (path, value) in [
        ("load.journey.0.auth.bearer", "[hunter22]"),
        ("load.journey.0.auth.bearer", "{ hunter22"),
        ("load.proxy", "http://u:hunter22@127.0.0.1:99999"),
    ] {
        let all = common::mistakes(&format!("{HEAD}{LOAD}"), &set(path, value));
        assert!(all.contains("--set") && !all.contains("hunter22"), "{path}: {all}");
    }
}

#[test]
fn secrets_of_set_options_are_shown_as_asterisks() {
    let set = [
        ("load.journey.0.auth", "{ bearer: some-token }"),
        ("load.journey.0.headers.Cookie", "session=abc"),
        ("load.proxy", "http://u:pw@127.0.0.1:3128"),
        ("load.journey.0.form.password", "'1234'"),
        ("load.users", "3"),
    ];
    let set = set.map(|(path, value)| (path.to_owned(), value.to_owned())).to_vec();
    let step = step("{ post: \"http://127.0.0.1/\" }");
    let plan = read_with(&step, Options { set, ..Options::default() });
    assert_eq!(
        plan.shown_set,
        [
            "load.journey.0.auth={ bearer: \"***\" }",
            "load.journey.0.headers.Cookie=session=***",
            "load.proxy=http://u:***@127.0.0.1:3128",
            "load.journey.0.form.password='***'",
            "load.users=3"
        ]
    );
    assert_eq!(plan.secrets.mask("some-token"), "***");
}
