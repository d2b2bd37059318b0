//! The book's page with every key is current. `UPDATE_REFERENCE=1 cargo test -p loadlab-plan --test all reference`
//! rewrites it.

#![expect(clippy::disallowed_methods, reason = "compares a page of the book, or rewrites it")]

use std::path::Path;

use loadlab_plan::{reference, schema};

#[test]
fn the_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan-reference.md");
    let made = reference();
    if std::env::var_os("UPDATE_REFERENCE").is_some_and(|v| v == "1") {
        std::fs::write(&path, &made).expect("the book can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(kept.lines()).position(|(a, b)| a != b);
    assert!(
        made == kept,
        "docs/plan-reference.md is not what the table of keys says, first at line {:?}\nUPDATE_REFERENCE=1 writes it anew",
        differs.map(|i| i + 1)
    );
}

#[test]
fn every_map_and_key_of_the_schema_is_on_it() {
    let (page, schema) = (reference(), schema());
    let mut keys = 0;
    let defs = schema["$defs"].as_object().expect("definitions");
    for (name, section) in defs.iter().map(|(n, s)| (n.as_str(), s)).chain([("plan", &schema)]) {
        let start = page.find(&format!("\n## {name}\n")).unwrap_or_else(|| panic!("no heading for {name}"));
        let rest = &page[start + 1..];
        let section_text = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
        for key in section["properties"].as_object().expect("properties").keys() {
            assert!(section_text.contains(&format!("`{key}`")), "{name}.{key}");
            keys += 1;
        }
    }
    assert!(keys > 100, "{keys}");
}
