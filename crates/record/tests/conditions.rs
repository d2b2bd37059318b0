//! The book's page with every name of conditions is current. `UPDATE_REFERENCE=1 cargo test -p loadlab-record --test
//! all conditions` rewrites it.

use std::path::Path;

use loadlab_record::expr::{
    NAMES, SERIES_PREFIXES, component_names, conditions_page, number_names, probe_names, tag_names,
};

#[test]
fn the_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conditions.md");
    let made = conditions_page();
    if std::env::var_os("UPDATE_REFERENCE").is_some_and(|v| v == "1") {
        std::fs::write(&path, &made).expect("the book can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(kept.lines()).position(|(a, b)| a != b);
    assert!(
        made == kept,
        "docs/conditions.md is not what the tables of names say, first at line {:?}\nUPDATE_REFERENCE=1 writes it anew",
        differs.map(|i| i + 1)
    );
}

#[test]
fn every_name_is_on_it() {
    let page = conditions_page();
    let mut names: Vec<String> = NAMES.into_iter().chain(SERIES_PREFIXES).map(str::to_owned).collect();
    names.extend(component_names("COMPONENT"));
    names.extend(number_names("NAME"));
    // The name of a probe alone is explained in words.
    names.extend(probe_names("PROBE").into_iter().skip(1));
    let is_plain = |name: &String| name.matches('.').count() == 2;
    names.extend(tag_names("NAME").into_iter().filter(is_plain));
    assert!(names.len() > 100, "{}", names.len());
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}
