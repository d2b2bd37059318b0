//! A secret is found however it is written; nothing else is touched.

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
