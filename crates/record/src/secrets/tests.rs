//! A secret is found in any encoding; nothing else is touched.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;

fn secrets(values: &[&str]) -> Secrets {
    let mut secrets = Secrets::default();
    values.iter().for_each(|v| secrets.add(v.as_bytes()).expect("long enough"));
    secrets
}

#[track_caller]
fn check(secret: &str, text: &str, expect: &str) {
    assert_eq!(secrets(&[secret]).mask(text), expect, "{secret} in {text}");
}

#[test]
fn a_secret_is_found_however_it_is_written() {
    check("s3cr/t+k y\"", "a s3cr/t+k y\" b", "a *** b");
    check("s3cr/t+k y\"", "a=s3cr%2Ft%2bk%20y%22&b", "a=***&b");
    check("s3cr/t+k y\"", "a=%733cr/t%2Bk+y%22&b", "a=***&b");
    check("s3cr/t+k y\"", r#"{"a":"s3cr\/t\u002bk y\""}"#, r#"{"a":"***"}"#);
    check("s3cr/t+k y\"", "<p>s3cr&sol;t&#43;k&#x20;y&quot;</p>", "<p>***</p>");
    check("line\nbreak\\", r"a line\nbreak\\ b", "a *** b");
    check("пароль12", r"a \u043f\u0430\u0440\u043e\u043b\u044c12 b", "a *** b");
    check("key😀key😀", r"a key\ud83d\ude00key&#128512; b", "a *** b");
    // an escape of an escape
    check("s3cr/t+key", r#""{\"a\":\"s3cr\\\/t\\u002bkey\"}""#, r#""{\"a\":\"***\"}""#);
    check("s3cr/t+key", "s3cr%252Ft%252Bkey and s3cr&amp;#47;t&amp;plus;key", "*** and ***");
}

#[test]
fn base64_is_found_at_every_place_and_in_both_alphabets() {
    let secret = "s3cr?t>>key~~";
    for user in ["", "u", "me", "bob", "alice:"] {
        let text = format!("{user}{secret}");
        for encoded in [STANDARD.encode(&text), URL_SAFE.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
            let masked = secrets(&[secret]).mask(&format!("Basic {encoded};")).into_owned();
            assert!(masked.starts_with("Basic ") && masked.ends_with("***;"), "{encoded}: {masked}");
            let escaped = encoded.replace('/', r"\/").replace('+', "%2B").replace('=', "%3d");
            let masked = secrets(&[secret]).mask(&format!("Basic {escaped};")).into_owned();
            assert!(masked.ends_with("***;"), "{escaped}: {masked}");
            assert!(masked.len() <= "Basic ***;".len() + user.len() * 4 / 3, "{escaped}: {masked}");
        }
    }
}

#[test]
fn what_is_given_percent_encoded_is_found_decoded() {
    check("p%40ss%2Fword", "a p@ss/word b p%40ss%2fword", "a *** b ***");
    assert!(!secrets(&["p%40ss%2Fword"]).mask(&STANDARD.encode("me:p@ss/word")).contains("cHBzcy93b3"));
    assert_eq!(secrets(&["p%40ss%2Fword"]).mask(&STANDARD.encode("abcp@ss/word")), "YWJj***");
}

/// A key in the usual format, of made-up bytes: 26 lines, the last of them short.
fn key() -> String {
    let bytes: Vec<u8> = (0..1220u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|l| std::str::from_utf8(l).unwrap()).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

#[test]
fn a_secret_of_several_lines_is_found_line_by_line() {
    let key = key();
    let of = secrets(&[&key]);
    assert_eq!(of.mask(&format!("a {key} b")), "a *** b");
    assert_eq!(of.mask(&format!("a {} b", key.escape_debug())), "a *** b");
    let body: Vec<&str> = key.lines().filter(|line| !line.starts_with("-----")).collect();
    assert!(body.len() == 26 && body.iter().all(|line| line.len() >= LEAST_BYTES), "{key}");
    let logged: Vec<String> = key.lines().map(|line| format!("12:00 web | {line}")).collect();
    for shown in
        [logged.join("\n"), body.concat(), body.join(" "), STANDARD.encode(body[0]), body.join("\\r\\n")]
    {
        let masked = of.mask(&shown).into_owned();
        assert!(masked.contains("***"), "{shown}");
        assert!(!body.iter().any(|line| masked.contains(&line[..line.len() - 1])), "{masked}");
    }
    assert_eq!(of.mask(&logged[0]), "12:00 web | -----BEGIN PRIVATE KEY-----");
    assert_eq!(of.mask(&logged[1]), "12:00 web | ***");
    check("first line;\r\n  short\r\n\r\n  third line ", "first line; short third line", "*** short ***");
}

#[test]
fn overlapping_secrets_leave_nothing_between_them() {
    let both = secrets(&["abcdefgh", "efghijkl"]);
    assert_eq!(both.mask("xabcdefghijklx"), "x***x");
    assert_eq!(both.mask("xabcdefghabcdefghx"), "x******x");
}

#[test]
fn the_beginning_of_a_secret_that_was_cut_off_is_not_shown() {
    let of = secrets(&["correct-horse-battery"]);
    for (text, expect) in [
        ("a `correct-horse…` b", "a `…` b"),
        ("`correct-horse-b…` and `corr…`, whole: correct-horse-battery", "`…` and `…`, whole: ***"),
        ("form `p=correct%2Dhorse…`", "form `p=…`"),
        // Not cut off, or too little of it to know.
        ("a correct-horse b … c", "a correct-horse b … c"),
        ("a `co…` b", "a `co…` b"),
        ("nothing", "nothing"),
    ] {
        assert_eq!(of.mask_shortened(text), expect, "{text}");
    }
    assert_eq!(Secrets::default().mask_shortened("a `correct-horse…`"), "a `correct-horse…`");
}

#[test]
fn short_secrets_are_refused_and_none_is_shown() {
    let mut secrets = Secrets::default();
    assert!(secrets.is_empty());
    assert_eq!(secrets.add(b"1234567"), Err(TooShort { bytes: 7 }));
    assert!(secrets.is_empty());
    secrets.add(b"12345678").unwrap();
    assert!(!secrets.is_empty());
    assert_eq!(format!("{secrets:?}"), "Secrets(1)");
    assert_eq!(Secrets::default().mask("12345678"), "12345678");
}

#[test]
fn names_of_fields_and_variants_are_no_texts() {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Password,
    }
    #[derive(serde::Serialize)]
    struct Line {
        password: &'static str,
        kind: Kind,
        by: std::collections::BTreeMap<&'static str, Option<&'static str>>,
    }
    let by = [("my password", Some("password")), ("none", None)].into();
    let line = Line { password: "the password", kind: Kind::Password, by };
    let json = secrets(&["password"]).json(&line).unwrap();
    assert_eq!(
        String::from_utf8(json).unwrap(),
        r#"{"password":"the ***","kind":"password","by":{"my ***":"***","none":null}}"#
    );
}

/// Every kind of value that can be written as JSON.
#[derive(Clone, Debug, serde::Serialize)]
enum Any {
    Nothing,
    One(f64),
    Two(String, Option<u8>),
    Named { number: i64, none: Option<()>, list: Vec<Any> },
    Map(std::collections::BTreeMap<u16, Any>),
    By(std::collections::BTreeMap<String, Any>),
    Flag(bool, char, Unit, f32),
    Value(serde_json::Value),
}

#[derive(Clone, Debug, serde::Serialize)]
struct Unit;

fn any_value() -> impl Strategy<Value = Any> {
    let value = prop_oneof![
        any::<i64>().prop_map(|n| serde_json::json!({"a": n, "b": [null, "\u{1}\"ü", []], "c": {}})),
        ".{0,9}".prop_map(|text| serde_json::json!([text, {}])),
    ];
    let leaf = prop_oneof![
        Just(Any::Nothing),
        any::<f64>().prop_map(Any::One),
        (".{0,12}", any::<Option<u8>>()).prop_map(|(text, n)| Any::Two(text, n)),
        (any::<bool>(), any::<char>(), any::<f32>()).prop_map(|(flag, c, n)| Any::Flag(flag, c, Unit, n)),
        value.prop_map(Any::Value),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            (any::<i64>(), prop::collection::vec(inner.clone(), 0..4))
                .prop_map(|(number, list)| Any::Named { number, none: None, list }),
            prop::collection::btree_map(any::<u16>(), inner.clone(), 0..4).prop_map(Any::Map),
            prop::collection::btree_map(".{0,4}", inner, 0..4).prop_map(Any::By),
        ]
    })
}

#[test]
fn only_what_can_be_a_key_is_one() {
    use std::collections::BTreeMap;
    let of = secrets(&["password"]);
    assert_eq!(of.json(&BTreeMap::from([(true, 1)])).unwrap(), br#"{"true":1}"#);
    assert_eq!(of.json(&BTreeMap::from([(-1, "my password")])).unwrap(), br#"{"-1":"my ***"}"#);
    assert!(of.json(&BTreeMap::from([(None::<u8>, 1)])).is_err());
    assert!(of.json(&BTreeMap::from([(vec![1], 1)])).is_err());
}

/// Returns a few bytes at a time.
struct Slowly<'a>(&'a [u8], usize);

impl Read for Slowly<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(self.0.len()).min(into.len());
        into[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

#[test]
fn a_stream_is_masked_wherever_it_is_cut() {
    let secret = "s3cr/t+key+of+mine";
    let secrets = secrets(&[secret]);
    let encoded = STANDARD.encode(format!("me:{secret}"));
    // each length puts the secret elsewhere across the end of the first block
    for before in BLOCK_BYTES - 60..BLOCK_BYTES + 2 {
        for written in [secret, "s3cr%2Ft%2Bkey%2bof&plus;mine", &encoded] {
            let text = format!("{}{written} end", "x ".repeat(before / 2));
            let mut to = Vec::new();
            assert!(secrets.mask_stream(&mut Slowly(text.as_bytes(), 1000), &mut to).unwrap());
            assert_eq!(String::from_utf8(to).unwrap(), secrets.mask(&text));
        }
    }
    let mut to = Vec::new();
    assert!(!secrets.mask_stream(&mut &b"nothing of it s3cr/t"[..], &mut to).unwrap());
    assert_eq!(to, b"nothing of it s3cr/t");
}

#[test]
fn a_file_is_replaced_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (log, beside) = (dir.path().join("a.out"), dir.path().join("a.out.masked"));
    std::fs::write(&log, "one\ns3cret+token\ntwo\n").unwrap();
    secrets(&["s3cret+token"]).mask_file(&log).unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\n***\ntwo\n");
    assert!(!beside.exists());
    // A link may lead to another user's file.
    let other = dir.path().join("other");
    std::fs::write(&other, "s3cret+token").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    secrets(&["s3cret+token"]).mask_file(&link).unwrap();
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "s3cret+token");
}

/// One character in one of its encodings.
fn written(c: char, way: u8) -> String {
    let bytes = c.to_string().into_bytes();
    let percent = |upper: bool| {
        let hex = |b: &u8| if upper { format!("%{b:02X}") } else { format!("%{b:02x}") };
        bytes.iter().map(hex).collect::<String>()
    };
    let unicode = |text: String| {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).to_vec();
        units.iter().map(|u| format!("{text}{u:04x}")).collect::<String>()
    };
    match way {
        1 => percent(true),
        2 => percent(false),
        3 if c == ' ' => "+".into(),
        4 => unicode(r"\u".into()).to_uppercase().replace(r"\U", r"\u"),
        5 => unicode(r"\u".into()),
        6 => format!("&#{};", c as u32),
        7 => format!("&#x{:X};", c as u32),
        8 => percent(true).replace('%', "%25"),
        9 => unicode(r"\\u".into()),
        10 => format!("&amp;#{};", c as u32),
        11 if c.is_ascii_punctuation() => format!(r"\{c}"),
        12 => {
            let json = serde_json::to_string(&c.to_string()).expect("JSON");
            json[1..json.len() - 1].to_owned()
        }
        13 if c == '&' => "&amp;".into(),
        13 if c == '"' => "&quot;".into(),
        13 if c == '<' => "&lt;".into(),
        _ => c.into(),
    }
}

proptest! {
    #[test]
    fn json_is_written_as_it_always_is(value in any_value()) {
        for secrets in [Secrets::default(), secrets(&["not in there at all"])] {
            prop_assert_eq!(secrets.json(&value).unwrap(), serde_json::to_vec(&value).unwrap());
            prop_assert_eq!(secrets.json_pretty(&value).unwrap(), serde_json::to_vec_pretty(&value).unwrap());
        }
    }

    #[test]
    fn every_way_of_writing_a_secret_is_found(
        secret in r#"[a-z/+ &"<>%\\ü😀-]{8,20}"#,
        ways in prop::collection::vec(0u8..14, 20),
        (before, after) in ("[0-9A-Z .]{0,30}", "[A-Z .]{0,30}"),
        user in "[0-9A-Z]{0,8}",
    ) {
        let of = secrets(&[&secret]);
        let mixed: String = secret.chars().zip(&ways).map(|(c, way)| written(c, *way)).collect();
        prop_assert_eq!(of.mask(&format!("{before}{mixed}{after}")).into_owned(), format!("{before}***{after}"));
        for way in 0..14 {
            let text: String = secret.chars().map(|c| written(c, way)).collect();
            prop_assert_eq!(of.mask(&format!("{before}{text}{after}")).into_owned(), format!("{before}***{after}"), "{}", text);
        }
        for encoded in [STANDARD.encode(format!("{user}:{secret}")), URL_SAFE.encode(format!("{user}:{secret}"))] {
            let masked = of.mask(&format!("Basic {encoded}, ")).into_owned();
            prop_assert!(masked.ends_with("***, "), "{encoded}: {masked}");
            prop_assert!(masked.len() <= 11 + (user.len() + 1) * 4 / 3, "{encoded}: {masked}");
        }
    }

    #[test]
    fn what_holds_no_secret_stays_as_it_is(text in r"[a-z%+&;#x\\/ 0-9]{0,80}") {
        let of = secrets(&["SECRET+VALUE", "Ü-secret-Ü"]);
        prop_assert_eq!(of.mask(&text).into_owned(), text);
    }

    #[test]
    fn any_bytes_do(bytes in prop::collection::vec(any::<u8>(), 0..200), secret in prop::collection::vec(any::<u8>(), 8..20), at in 0usize..200) {
        let mut of = Secrets::default();
        of.add(&secret).unwrap();
        let mut text = bytes.clone();
        let at = at.min(text.len());
        text.splice(at..at, secret.iter().copied());
        let masked = of.mask_bytes(&text).into_owned();
        prop_assert!(!masked.windows(secret.len()).any(|w| w == secret));
        let mut to = Vec::new();
        of.mask_stream(&mut Slowly(&text, 7), &mut to).unwrap();
        prop_assert_eq!(to, masked);
        let _ = of.mask(&String::from_utf8_lossy(&text));
        let beginning = of.mask_beginning(&text[..at + secret.len() / 2]).into_owned();
        prop_assert!(beginning.len() <= at + 3);
    }
}

/// A secret may equal a name that the record itself uses: the record stays readable, and its texts are masked.
#[test]
fn names_of_the_record_survive_secrets_that_equal_them() {
    use crate::counts::load::Tick;
    use crate::documents::event::{Event, EventKind};
    for name in ["component", "load_started", "statuses", "in_flight", "failures"] {
        let of = secrets(&[name, "hunter22"]);
        let text = |text: &str| text.to_owned();
        let died = EventKind::Died { component: text("web"), status: text("exit 1: hunter22") };
        let event = Event { at_s: 1.0, what: died };
        let masked = of.mask_value(event).expect("an event");
        assert_eq!(
            masked.what,
            EventKind::Died { component: text("web"), status: text("exit 1: ***") },
            "{name}"
        );
        let began = Event { at_s: 0.0, what: EventKind::LoadStarted { load: text("browse"), batch: 0 } };
        assert_eq!(of.mask_value(began.clone()), Some(began), "{name}");
        let mut tick = Tick { load: text("hunter22"), ..Tick::default() };
        tick.counts.started = 3;
        let masked = of.mask_value(tick.clone()).expect("a tick");
        assert_eq!(masked, Tick { load: text("***"), ..tick }, "{name}");
    }
}

#[test]
fn keys_that_differ_in_their_secrets_alone_stay_apart() {
    let of = secrets(&["hunter22", "hunter33"]);
    let map = std::collections::BTreeMap::from([("a hunter22", 1), ("a hunter33", 2), ("b", 3)]);
    let json = String::from_utf8(of.json(&map).unwrap()).unwrap();
    assert_eq!(json, r#"{"a ***":1,"a *** (2)":2,"b":3}"#);
}
