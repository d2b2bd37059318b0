//! The language of journeys: what a plan becomes, and its mistakes.

use loadlab_plan::{
    Auth, Body, CaptureFrom, Case, Escape, Expect, FeedFormat, Model, OnFailure, Operator, Options,
    PartContent, Plan, Protocol, Segment, Unit, Variable,
};

use proptest::prelude::*;

use crate::common::{HEAD, mistakes};

const JOURNEY: &str = include_str!("plans/journey.yaml");

fn parsed(text: &str) -> Plan {
    Plan::parse("shop/plan.yaml", text, &Options::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn shop() -> Case {
    parsed(JOURNEY).cases()[0].clone()
}

/// First lines and hints of the mistakes in a load.
fn wrong(load: &str) -> String {
    let text = format!("{HEAD}load:\n  users: 1\n  requests: 1\n{load}");
    shown(&text)
}

fn shown(text: &str) -> String {
    let all = mistakes(text, &Options::default());
    let kept = all.lines().filter(|l| {
        l.starts_with("plan.yaml")
            || l.contains("hint:")
            || l.contains("is here:")
            || l.contains("captured here:")
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// The mistakes in a step.
fn step(step: &str) -> String {
    wrong(&format!("  journey:\n    - {step}\n"))
}

#[test]
fn a_journey_in_words() {
    insta::assert_snapshot!(parsed(JOURNEY).describe().join("\n"), @r#"
    a shop
    one trial
    setup: POST http://127.0.0.1:8080/admin/login, captures admin, a failure ends the journey
    load: 100 users, each sends when its last request has ended, for 1m
    load: timeout 30s, grace 5s
    load: a row of `people` for each user, each row once; a row of `items` for each journey, shuffled; users keep cookies; follows up to 3 redirects; HTTP/2 where the server offers it; requests compressed responses; through the proxy http://127.0.0.1:3128
    user_setup: POST https://127.0.0.1:8443/login with the form `user=${people.name}&password=${people.secret}&a+b=c%26d`, captures token, next, a failure ends the journey
    journey: GET https://127.0.0.1:8443${raw(next)} → 200 or 304, checks headers, text, JSON, size, time, captures id, price, all, a failure makes the user leave, then POST https://127.0.0.1:8443/buy/${id}?n=${random(1, 6)} with JSON `{"user":${user},"price":${price},"at":"${now.iso}","ms":${no…`, then POST unix:/run/shop.sock:/upload?n=${sequence} with the parts note, picture (data/picture.png), then GET the URLs of data/urls.txt in turn
    user_teardown: POST https://127.0.0.1:8443/logout
    "#);
}

#[test]
fn variables_become_numbers() {
    let case = shop();
    let load = &case.loads[0];
    assert_eq!(case.setup.captures[0].name, "admin");
    let names: Vec<(&str, bool)> =
        load.script.captures.iter().map(|c| (c.name.as_str(), c.is_number)).collect();
    assert_eq!(names, [("token", false), ("next", false), ("id", false), ("price", true), ("all", false)]);
    let columns = |feed: usize| -> Vec<&str> {
        load.script.feeds[feed].columns.iter().map(|c| c.name.as_str()).collect()
    };
    assert_eq!((columns(0), columns(1)), (vec!["name", "secret"], vec!["name", "id"]));

    let buy = &load.journey[1];
    let url = buy.url.resolve(&|_| None).unwrap();
    let capture = |slot, is_number| Variable::Capture { slot, is_number };
    assert_eq!(
        url,
        [
            Segment::Text { text: "https://127.0.0.1:8443/buy/".into(), escape: Escape::Raw },
            Segment::Variable { variable: capture(3, false), escape: Escape::Url },
            Segment::Text { text: "?n=".into(), escape: Escape::Raw },
            Segment::Variable { variable: Variable::Random { low: 1, high: 6 }, escape: Escape::Url },
        ]
    );
    let Body::Json(json) = &buy.body else { panic!("a JSON body") };
    assert_eq!(
        json.to_string(),
        r#"{"user":${user},"price":${price},"at":"${now.iso}","ms":${now},"what":"${items.name} x${iteration}","raw":"${raw(all)}"}"#
    );
    let variables: Vec<Variable> = json.variables().collect();
    assert_eq!(
        variables,
        [
            Variable::User,
            capture(4, true),
            Variable::Now(Unit::Rfc3339),
            Variable::Now(Unit::Millis),
            Variable::Feed { feed: 1, column: 0 },
            Variable::Iteration,
            capture(5, false),
        ]
    );
    let next = load.journey[0].url.resolve(&|_| None).unwrap();
    assert_eq!(next[1], Segment::Variable { variable: capture(2, false), escape: Escape::UrlTarget });
    let Body::Form(form) = &load.script.user_setup[0].body else { panic!("a form") };
    assert_eq!(form.to_string(), "user=${people.name}&password=${people.secret}&a+b=c%26d");
    assert_eq!(buy.url.render(&|_| None).unwrap_err().name, "id");
}

#[test]
fn the_rest_is_read() {
    let case = shop();
    let load = &case.loads[0];
    let Some(Auth::Basic { user, password }) = &case.setup.steps[0].auth else { panic!("basic") };
    assert_eq!((user.as_text(), password.as_text()), (Some("admin"), Some("a:b")));
    let [people, items] = load.script.feeds.as_slice() else { panic!("two feeds") };
    assert_eq!((people.format, people.is_once, people.is_per_user), (FeedFormat::Csv, true, true));
    assert_eq!((items.format, items.is_shuffled, items.is_once), (FeedFormat::JsonLines, true, false));
    assert_eq!((items.file.as_str(), items.at.line, items.at.column), ("shop/data/items.jsonl", 12, 20));
    assert!(load.script.cookies && load.http.compression && !load.script.is_mix);
    assert_eq!(
        (load.script.redirects, load.http.protocol, load.http.streams_per_connection),
        (3, Protocol::Auto, 8)
    );
    let tls = &load.http.tls;
    assert_eq!(tls.identity, Some(("shop/us.pem".to_owned(), "shop/us.key".to_owned())));
    assert_eq!((tls.versions.as_slice(), tls.is_resumed, tls.is_insecure), (&[13][..], true, false));

    let first = &load.journey[0];
    assert_eq!(first.statuses, Some(vec![200, 304]));
    assert_eq!(first.on_failure, OnFailure::Leave);
    assert_eq!(first.checks.headers[0], ("content-type".into(), Expect::Contains("json".into())));
    assert_eq!(first.checks.headers[1], ("x-version".into(), Expect::Text("2".into())));
    let json: Vec<&Expect> = first.checks.json.iter().map(|(_, e)| e).collect();
    assert_eq!(json[0], &Expect::Number("3".into()));
    assert!(
        matches!(json[2], Expect::Within(b) if b.len() == 2 && b[1].operator == Operator::AtMost && b[1].value == 9.5)
    );
    assert_eq!(json[3..], [&Expect::Null, &Expect::Bool(true), &Expect::Text("text".into())]);
    assert_eq!((first.checks.size[0].value, first.checks.time[0].value), (10_000.0, 200e6));
    assert_eq!(first.captures[0].from, CaptureFrom::Regex(r"id=(\d+)".into()));
    // Setup has slot 0, `user_setup` 1 and 2.
    assert_eq!(first.captures.iter().map(|c| c.slot).collect::<Vec<_>>(), [3, 4, 5]);

    let Body::Multipart(parts) = &load.journey[2].body else { panic!("parts") };
    assert!(
        matches!(&parts[1].content, PartContent::File(path, at) if path == "shop/data/picture.png" && at.line > 0)
    );
    assert_eq!(
        (parts[1].filename.as_deref(), parts[1].content_type.as_deref()),
        (Some("picture.png"), Some("image/png"))
    );
    assert_eq!(load.journey[3].urls.as_deref(), Some("shop/data/urls.txt"));
    assert_eq!(load.script.user_setup[0].on_failure, OnFailure::End);
    assert_eq!(load.script.user_teardown[0].on_failure, OnFailure::Continue);
}

#[test]
fn users_that_arrive() {
    let model = |sessions: &str| {
        let text = format!(
            "{HEAD}load: {{ sessions: {sessions}, duration: 1m, journey: [{{ get: \"http://127.0.0.1:1/\" }}] }}\n"
        );
        parsed(&text).cases()[0].loads[0].model.clone()
    };
    assert!(matches!(model("5/s"), Model::Sessions { rate_per_s: 5.0, max_users: 10_000, .. }));
    let wide = model("{ rate: 30/m, arrivals: poisson, max_users: 7 }");
    assert!(matches!(wide, Model::Sessions { rate_per_s: 0.5, max_users: 7, .. }));
    let both = format!(
        "{HEAD}load: {{ sessions: 5/s, users: 3, duration: 1m, journey: [{{ get: \"http://127.0.0.1:1/\" }}] }}\n"
    );
    insta::assert_snapshot!(shown(&both), @r"
    plan.yaml:3:24: `sessions` and `users` cannot be combined
      `sessions` is here: plan.yaml:3:9
      hint: a load is either closed (a number of users) or open (a rate); the unit of `stages` decides, and a `command` makes its own load
    ");
}

#[test]
fn a_mix() {
    let text = format!(
        "{HEAD}load:\n  users: 1\n  requests: 1\n  journey:\n    - {{ get: \"http://a/\", weight: 3 }}\n    - {{ get: \"http://b/\", weight: 1 }}\n"
    );
    let plan = parsed(&text);
    let load = &plan.cases()[0].loads[0];
    assert!(load.script.is_mix);
    assert_eq!(load.journey.iter().map(|s| s.weight).collect::<Vec<_>>(), [Some(3), Some(1)]);
    insta::assert_snapshot!(wrong("  journey:\n    - { get: \"http://a/\", weight: 3 }\n    - { get: \"http://b/\" }\n  user_teardown:\n    - { get: \"http://b/\", weight: 1 }\n"), @r"
    plan.yaml:8:7: this step has no `weight`, but others do
      a step with a weight is here: plan.yaml:7:27
      hint: give all steps of a journey a weight (each round then takes one of them), or none
    plan.yaml:9:3: users of a load with `requests` have no last journey: it ends with its last request
      `requests` is here: plan.yaml:5:3
      hint: bound it by `duration`, or by `repeats`, the number of journeys of each user
    plan.yaml:10:27: all of these steps are taken, one after another
      hint: a `weight` belongs to the steps of a `journey`
    ");
    insta::assert_snapshot!(wrong("  journey:\n    - { get: \"http://a/\", weight: 3, capture: { a: { json: /a } } }\n    - { get: \"http://b/${a}\", weight: 1 }\n"), @r"
    plan.yaml:8:26: `a` is used before any step captures it
      captured here: plan.yaml:7:49
      hint: capture it in an earlier step
    ");
}

#[test]
fn mistakes_in_variables() {
    insta::assert_snapshot!(step("{ get: \"http://a/${usr}/${random}/${random(6, 1)}/${random(a, 1)}/${now.min}/${raw(x)}/${case.x}\" }"), @r"
    plan.yaml:7:26: unknown name `${usr}`
      hint: did you mean `${user}`?
    plan.yaml:7:33: `random` needs bounds
      hint: `${random(1, 6)}`
    plan.yaml:7:43: `random(6, 1)`: the lower bound comes first
      hint: `${random(1, 6)}`
    plan.yaml:7:59: `random(a, 1)`: `a` is not a whole number
      hint: `${random(1, 6)}`
    plan.yaml:7:75: `min` is not a form of the time
      hint: `now.s`, `now.ms`, `now.us`, `now.ns`, or `now.iso`
    plan.yaml:7:86: `x` is not a variable
      hint: `raw(NAME)` inserts a captured value unchanged
    plan.yaml:7:96: unknown name `${case.x}`
      hint: known here: `case.name`, `plan.dir`, `run.dir`, `uuid`, `now`, `random(1, 6)`, `user`, `iteration`, `sequence`, `unique`
    ");
    insta::assert_snapshot!(step("{ get: \"http://${user}/\" }"), @r"
    plan.yaml:7:14: the host must be known before the load starts
      hint: write scheme, host and port; for a captured path `http://HOST:PORT${raw(next)}`
    ");
    insta::assert_snapshot!(step("{ get: \"http://a:80${user}\" }"), @r"
    plan.yaml:7:14: the host must be known before the load starts
      hint: write scheme, host and port; for a captured path `http://HOST:PORT${raw(next)}`
    ");
    insta::assert_snapshot!(wrong("  journey:\n    - { get: \"http://a/${token}\" }\n    - { get: \"http://a/\", capture: { token: { json: /t } } }\n"), @r"
    plan.yaml:7:26: `token` is used before any step captures it
      captured here: plan.yaml:8:38
      hint: capture it in an earlier step
    ");
    insta::assert_snapshot!(wrong("  journey:\n    - { get: \"http://a/\", capture: { token: { json: /t } } }\n    - { get: \"http://a/${tokn}\" }\n"), @r"
    plan.yaml:8:26: unknown name `${tokn}`
      hint: did you mean `${token}`?
    ");
    insta::assert_snapshot!(wrong("  feeds: { people: { file: a.csv }, user: { file: b.csv }, odd: { file: c.txt } }\n  journey:\n    - { get: \"http://a/${people}/${peple.name}/${odd.x}\", capture: { people: { json: /t } } }\n"), @r"
    plan.yaml:6:37: `user` is not a valid name for a feed: it is reserved
    plan.yaml:6:73: unknown format of `c.txt`
      hint: add `format: csv` or `format: json_lines`
    plan.yaml:8:26: `people` is a feed: name one of its columns
      hint: `${people.COLUMN}`
    plan.yaml:8:36: unknown name `${peple.name}`
      hint: did you mean `${people.name}`?
    plan.yaml:8:70: `people` is the name of a feed
      the feed is here: plan.yaml:6:12
      hint: rename one of the two
    ");
    insta::assert_snapshot!(shown(&format!("{HEAD}setup:\n  - {{ get: \"http://a/${{user}}\", capture: {{ a: {{ json: /a }} }} }}\nload:\n  users: 1\n  requests: 1\n  feeds: {{ a: {{ file: a.csv }} }}\n  journey:\n    - {{ get: \"http://a/${{a}}\", capture: {{ a: {{ json: /a }} }} }}\n")), @r"
    plan.yaml:4:24: `setup` does not run as a user, so there is no `${user}`
    plan.yaml:8:12: `a` is already captured by `setup`
      captured here: plan.yaml:4:43
      hint: rename one of the two
    plan.yaml:10:42: `a` is already captured by `setup`
      captured here: plan.yaml:4:43
      hint: all users see that value: rename this one
    ");
    insta::assert_snapshot!(wrong("  user_setup:\n    - { get: \"http://a/\", capture: { n: { json: /t } } }\n  journey:\n    - { get: \"http://a/\", capture: { n: { json: /t, number: true }, port: { json: /p } } }\n"), @r"
    plan.yaml:9:38: `n` is a number in one place but not in the other
      the other one is here: plan.yaml:7:38
      hint: use `number: true` in both, or another name
    plan.yaml:9:69: `port` is not a valid name for a captured value: it is reserved
    ");
}

#[test]
fn a_host_is_known_up_to_the_first_variable() {
    const UNKNOWN_HOST: &str = "the host must be known before the load starts";
    for (url, expect) in [
        ("http://a#x/${user}", "the part after `#` is never sent"),
        ("unix:/a.sock:x/${user}", UNKNOWN_HOST),
        ("unix:/a.sock:?q=${user}", UNKNOWN_HOST),
    ] {
        let all = step(&format!("{{ get: \"{url}\" }}"));
        assert!(all.starts_with(&format!("plan.yaml:7:14: {expect}\n")), "{url}: {all}");
    }
    assert_eq!(step("{ get: \"UNIX:/a:/x${user}\" }"), "");
}

#[test]
fn mistakes_in_captures_and_checks() {
    insta::assert_snapshot!(step("{ get: \"http://a/\", capture: { a: { regex: \"(\" }, b: { regex: x }, c: { json: a.b }, d: { header: \"a b\" }, e: {}, f: { json: /a, header: b }, g: { body: false } } }"), @r"
    plan.yaml:7:50: this is not a regular expression: unclosed group
    plan.yaml:7:69: `x` has no group
      hint: put `(…)` around the part to capture
    plan.yaml:7:85: `a.b` is not a JSON pointer: a pointer starts with `/`
      hint: `/a/b`
    plan.yaml:7:105: `a b` is not a valid name for a header field
    plan.yaml:7:114: a capture needs one of `json`, `header`, `regex`, `body`
      hint: a value has one source
    plan.yaml:7:136: `json` and `header` cannot be combined
      `json` is here: plan.yaml:7:126
      hint: a value has one source
    plan.yaml:7:160: `body` can only be `true`
      hint: leave it out
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", check: { size: 10kB, time: \"< 10\", json: { id: 3, /a: [1], /b: { number: \"3\" }, /c: { is: 3 } }, contains: [], header: { \"a\": { exists: maybe } } } }"), @r"
    plan.yaml:7:42: `10kB` is not a comparison such as `< 10kB`
      hint: `< 10kB`?
    plan.yaml:7:54: cannot compare with `10` here
      hint: such as `< 200ms`
    plan.yaml:7:70: `id` is not a JSON pointer: a pointer starts with `/`
      hint: `/id`
    plan.yaml:7:81: expected a value, or `{exists: …}` and the like, found a list
      hint: check its items: `/list/0`
    plan.yaml:7:100: `3` is not a comparison such as `> 3`
      hint: `< 3`?
    plan.yaml:7:113: unknown key `is` in an expected value
      hint: one of `exists`, `contains`, `number`
    plan.yaml:7:134: no text to look for
    plan.yaml:7:163: `maybe` is neither `true` nor `false`
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", check: {} }"), @r"
    plan.yaml:7:34: `check` checks nothing
      hint: leave it out: every status below 400 is then ok
    ");
}

#[test]
fn mistakes_in_bodies() {
    insta::assert_snapshot!(step("{ post: \"http://a/\", body: x, form: { a: b } }"), @r"
    plan.yaml:7:37: `body` and `form` cannot be combined
      `body` is here: plan.yaml:7:28
      hint: a request has one body
    ");
    insta::assert_snapshot!(step("{ post: \"http://a/\", multipart: [] }"), @r"plan.yaml:7:28: `multipart` is empty");
    insta::assert_snapshot!(step("{ post: \"http://a/\", multipart: [ { name: 'a\"b', text: x }, { text: x }, { name: a }, { name: a, text: b, filename: c } ] }"), @r"
    plan.yaml:7:49: `name` must be a single line without quotes
    plan.yaml:7:67: a part needs `name`
      hint: the field's name
    plan.yaml:7:80: a part needs one of `text`, `file`
      hint: a part has one content
    plan.yaml:7:113: `filename` needs `file`, which is missing
      hint: a `text` is a plain field
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", headers: { Authorization: x }, auth: { basic: { user: \"a:b\", password: c } } }"), @r"
    plan.yaml:7:58: there is also an `authorization` header
      hint: remove one of the two
    plan.yaml:7:81: a user name cannot contain a colon here
      hint: the colon separates it from the password
    ");
    insta::assert_snapshot!(step("{ get: \"http://a/\", auth: { basic: { user: a } } }"), @r"
    plan.yaml:7:35: `basic` needs `password`
      hint: the password
    ");
}

#[test]
fn mistakes_in_protocol_settings() {
    let load = |keys: &str| wrong(&format!("  {keys}\n  journey:\n    - {{ get: \"http://a/\" }}\n"));
    insta::assert_snapshot!(load("streams_per_connection: 5"), @r"
    plan.yaml:6:3: an HTTP/1.1 connection has one request at a time
      hint: use `protocol: http/2`, or `auto`
    ");
    insta::assert_snapshot!(load("tls: { cert: a, insecure: true, ca: b, versions: [1.1] }"), @r"
    plan.yaml:6:10: `cert` needs `key`, which is missing
      hint: a certificate needs its key
    plan.yaml:6:35: with `insecure`, no certificate is checked against `ca`
      `insecure` is here: plan.yaml:6:19
      hint: remove one of the two
    plan.yaml:6:53: unsupported TLS version `1.1`
      hint: use `1.2` or `1.3`
    ");
    insta::assert_snapshot!(load("proxy: \"http://a:1/x\""), @r"
    plan.yaml:6:10: a proxy has no path
      hint: `http://HOST:PORT`
    ");
    insta::assert_snapshot!(step("{ get: \"unix:/x\" }"), @r"
    plan.yaml:7:14: expected the path of a socket and the path to request there
      hint: `unix:/run/service.sock:/path`
    ");
}

#[test]
fn columns_are_checked_once_files_are_read() {
    let plan = parsed(JOURNEY);
    let mut asked = Vec::new();
    let mut columns = |feed: &loadlab_plan::FeedSpec| {
        asked.push(feed.file.clone());
        match feed.format {
            FeedFormat::Csv => Ok(vec!["name".to_owned(), "secrets".to_owned()]),
            FeedFormat::JsonLines | FeedFormat::UrlList => Err("no such file".to_owned()),
        }
    };
    let errors = plan.check_feeds(&mut columns).unwrap_err();
    insta::assert_snapshot!(errors.to_string(), @r#"
    shop/plan.yaml:22:52: feed `people` has no column `secret`
       |
    22 |       form: { user: "${people.name}", password: "${people.secret}", "a b": "c&d" }
       |                                                    ^^^^^^^^^^^^^
      hint: did you mean `secrets`?

    shop/plan.yaml:12:20: cannot read the feed `items`: no such file
       |
    12 |     items: { file: data/items.jsonl, order: shuffled }
       |                    ^^^^^^^^^^^^^^^^
      hint: relative paths start at the plan's folder
    "#);
    assert_eq!(asked, ["shop/data/people.csv", "shop/data/items.jsonl"]);
    let all = |_: &loadlab_plan::FeedSpec| Ok(["name", "secret", "id"].map(str::to_owned).to_vec());
    assert_eq!(plan.check_feeds(&mut { all }), Ok(()));
}

#[test]
fn the_whole_schema_knows_the_whole_language() {
    let schema = loadlab_plan::schema();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let plan: serde_json::Value = serde_saphyr::from_str(JOURNEY).expect("YAML");
    let errors: Vec<String> =
        validator.iter_errors(&plan).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert_eq!(loadlab_plan::schema(), schema);
}

/// Every path of a plan.
fn paths(value: &serde_json::Value, at: String, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| {
            paths(v, format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), out);
        }),
        serde_json::Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| paths(v, format!("{at}/{i}"), out));
        }
        _ => {}
    }
    out.push(at);
}

/// Values that might occur anywhere.
fn odd_value() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::json;
    let odd = vec![
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!(["a"]),
        json!([{}]),
        json!(3),
        json!(0),
        json!(0.5),
        json!("< 5"),
        json!("5/s"),
        json!("1s"),
        json!("/a"),
        json!("a(b)"),
        json!("${user}"),
        json!("${uuid}"),
        json!("${raw(token)}"),
        json!("${people.x}"),
        json!("${random(1, 2)}"),
        json!("http://a/${id}"),
        json!("ws://a/"),
        json!("unix:/a:/b"),
        json!("shuffled"),
        json!("http/2"),
        json!("x.csv"),
        json!({ "exists": true }),
        json!({ "json": "/a" }),
        json!({ "number": "> 1" }),
        json!("${"),
    ];
    prop::sample::select(odd)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever the reader accepts, the schema accepts; and nothing makes either of them panic.
    #[test]
    fn accepted_journeys_validate(changes in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 1..3)) {
        thread_local!(static VALIDATOR: jsonschema::Validator =
            jsonschema::validator_for(&loadlab_plan::schema()).expect("a schema"));
        let mut plan: serde_json::Value = serde_saphyr::from_str(JOURNEY).expect("YAML");
        for (index, value) in changes {
            let mut all = Vec::new();
            paths(&plan, String::new(), &mut all);
            *plan.pointer_mut(&all[index.index(all.len())]).expect("a path of the plan") = value;
        }
        let text = plan.to_string();
        if let Ok(parsed) = Plan::parse("plan.yaml", &text, &Options::default()) {
            prop_assert!(!parsed.describe().is_empty());
            VALIDATOR.with(|v| {
                let errors: Vec<String> = v.iter_errors(&plan).map(|e| format!("{}: {e}", e.instance_path())).collect();
                prop_assert!(errors.is_empty(), "{errors:?}\n{text}");
                Ok(())
            })?;
        }
        let _ = Plan::parse("plan.yaml", &text, &Options::default());
    }
}

/// The plan above uses the whole language.
#[test]
fn all_of_it_can_be_carried_out() {
    let plan = Plan::parse("plan.yaml", JOURNEY, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!plan.cases().is_empty());
}

#[test]
fn what_can_be_carried_out_is_read() {
    let text = format!(
        "{HEAD}load:\n  users: 1\n  requests: 1\n  journey:\n    - {{ post: \"http://127.0.0.1:1/\", form: {{ a: b c }}, auth: {{ bearer: x }} }}\n"
    );
    let plan = Plan::parse("plan.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let step = &plan.cases()[0].loads[0].journey[0];
    assert!(matches!(&step.body, Body::Form(form) if form.as_text() == Some("a=b+c")));
}

/// A header field is compared as it is written, whatever it looks like.
#[test]
fn header_fields_are_texts() {
    let plan = parsed(&format!(
        "{HEAD}matrix: {{ axes: {{ on: [true] }} }}\nload:\n  users: 1\n  requests: 1\n  journey:\n    \
         - {{ get: \"http://a/\", check: {{ header: {{ a: 007, b: 1_000, c: true, d: \"${{case.on}}\", e: 0x10, f: yes }} }} }}\n"
    ));
    let checks = &plan.cases()[0].loads[0].journey[0].checks;
    let texts: Vec<&str> = checks
        .headers
        .iter()
        .map(|(_, expect)| match expect {
            Expect::Text(text) => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, ["007", "1_000", "true", "true", "0x10", "yes"]);
}

#[test]
fn checks_compare_with_what_is_the_same_as_in_the_request() {
    let plan = parsed(&format!(
        "{HEAD}load:\n  users: 1\n  requests: 1\n  journey:\n    - {{ get: \"http://a/\", capture: {{ id: {{ json: /id }} }} }}\n    \
         - {{ get: \"http://a/${{id}}\", check: {{ json: {{ /id: \"${{id}}\", /n: 3 }}, header: {{ x-user: \"u${{user}}\" }}, contains: [plain, \"of ${{id}}\"] }} }}\n"
    ));
    let checks = &plan.cases()[0].loads[0].journey[1].checks;
    let texts: Vec<String> = checks
        .json
        .iter()
        .chain(&checks.headers)
        .map(|(name, expect)| match expect {
            Expect::Written(text) => format!("{name} {text}"),
            other => format!("{name} {other:?}"),
        })
        .collect();
    assert_eq!(texts, ["/id ${id}", "/n Number(\"3\")", "x-user u${user}"]);
    assert_eq!((checks.contains.len(), checks.contains_written.len()), (1, 1));
    insta::assert_snapshot!(step("{ get: \"http://a/\", check: { json: { /a: \"${uuid}\", /b: \"${nobody}\" }, contains: \"${random(1, 2)}\" } }"), @r"
    plan.yaml:7:48: this variable has a different value here than in the request
      hint: compare with what was captured, a feed's column, `${user}` or `${iteration}`
    plan.yaml:7:66: unknown name `${nobody}`
      hint: known here: `case.name`, `plan.dir`, `run.dir`, `uuid`, `now`, `random(1, 6)`, `user`, `iteration`, `sequence`, `unique`; for the shell's own `${nobody}` write `$${nobody}`
    plan.yaml:7:88: this variable has a different value here than in the request
      hint: compare with what was captured, a feed's column, `${user}` or `${iteration}`
    ");
    insta::assert_snapshot!(wrong("  keep_alive: false\n  protocol: http/2\n  journey: [{ get: \"http://a/\" }]\n"), @r"
    plan.yaml:6:3: HTTP/2 always keeps its connections open
      `protocol` is here: plan.yaml:7:3
      hint: leave `keep_alive` out
    ");
}
