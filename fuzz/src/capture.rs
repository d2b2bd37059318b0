//! `capture`: a value is found where a parsed tree would find it, whatever else is in the document; heads and cookies
//! of arbitrary bytes do no harm.
//!
//! Input: a line with a JSON pointer, a line with a header name; then a head, a zero byte, and a body.

use std::slice::from_ref;

use loadlab_load::journey::capture::{Capture, CaptureSlots, CaptureSource, header, headers};
use loadlab_load::journey::cookies::{CookieScope, Jar, MAX_COOKIES, MAX_JAR};
use loadlab_load::journey::json::Pointer;
use loadlab_load::journey::rows::Rows;
use serde_json::Value;

const NOW_S: u64 = 1_795_166_999;

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let mut lines = data.splitn(3, |b| *b == b'\n');
    let (Some(pointer), Some(name), Some(rest)) = (lines.next(), lines.next(), lines.next()) else { return };
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    let (head, body) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());

    let text = String::from_utf8_lossy(pointer);
    if let Ok(pointer) = Pointer::parse(&text) {
        found_as_in_a_tree(&pointer, &text, body);
        let mut slots = CaptureSlots::new(1);
        let mut capture = Capture { from: CaptureSource::Json(pointer), is_number: false };
        let taken = slots.take(0, &mut capture, head, body).is_ok();
        assert_eq!(taken, slots.get(0).is_some(), "a slot without its value");
    }
    let found = header(head, name);
    let expected = headers(head).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v);
    assert_eq!(found, expected);
    cookies(head);
    let column = String::from_utf8_lossy(name).into_owned();
    for rows in [Rows::from_csv(body, from_ref(&column)), Rows::from_json_lines(body, from_ref(&column))] {
        let Ok(rows) = rows else { continue };
        assert!(rows.count() > 0 && rows.cell(rows.count() as u32, 0).is_none());
    }
}

fn found_as_in_a_tree(pointer: &Pointer, text: &str, body: &[u8]) {
    let found = pointer.find(body);
    if let Ok(Some(value)) = found {
        let place = value.raw.as_ptr() as usize;
        let within = body.as_ptr() as usize..=body.as_ptr() as usize + body.len();
        assert!(within.contains(&place), "a value from elsewhere");
    }
    let Ok(tree) = serde_json::from_slice::<Value>(body) else { return };
    assert!(found.is_ok(), "JSON that is refused");
    // Of two members with the same name a tree keeps the last and our parser takes the first; reserialized, there is
    // only one.
    let plain = serde_json::to_vec(&tree).expect("JSON");
    let found = pointer.find(&plain).expect("JSON");
    let expected = tree.pointer(text);
    assert_eq!(found.is_some(), expected.is_some(), "{text} in {}", String::from_utf8_lossy(&plain));
    if let (Some(found), Some(expected)) = (found, expected) {
        assert_eq!(&serde_json::from_slice::<Value>(found.raw).expect("JSON"), expected);
        if let Some(text) = expected.as_str() {
            assert!(found.is_text(text.as_bytes()));
        }
    }
}

fn cookies(head: &[u8]) {
    let mut jar = Jar::default();
    let site = CookieScope { host: b"a.example.org", path: b"/a/b", is_secure: false };
    for (_, value) in headers(head) {
        jar.set(value, &site, NOW_S);
        assert!(jar.count() <= MAX_COOKIES && jar.heap_bytes() <= 2 * MAX_JAR);
    }
    let mut out = b"x".to_vec();
    let any = jar.write(&site, NOW_S, &mut out);
    assert_eq!(any, out.len() > 1);
    assert!(!out.iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f), "a cookie breaks the head");
}
