//! Figures over a numeric axis.

use loadlab_analysis::cases::metric::Unit;
use loadlab_record::documents::summary::Verdict;
use loadlab_record::store::RunRecord;
use loadlab_report::document::{Block, Document, Trends};
use loadlab_report::plane::Plane;
use loadlab_report::{html, markdown, text};

use crate::support::{Spec, compose, matrix, spec};

fn trends(document: &Document) -> Option<&Trends> {
    document
        .sections
        .iter()
        .flat_map(|s| &s.blocks)
        .find_map(|b| if let Block::Trends(t) = b { Some(t) } else { None })
}

fn plane<'a>(document: &'a Document, title: &str) -> &'a Plane {
    let all = &trends(document).expect("trends").planes;
    all.iter()
        .find(|p| p.title == title)
        .unwrap_or_else(|| panic!("no {title} in {:?}", all.iter().map(|p| &p.title).collect::<Vec<_>>()))
}

/// Four sizes by two ways to store, in three trials; the larger the slower.
fn sizes() -> RunRecord {
    let axes: [(&str, &[&str]); 2] =
        [("size", &["1KiB", "10KiB", "100KiB", "1MiB"]), ("store", &["disk", "memory"])];
    matrix(&axes, 3, &["p50 < 20ms"], |p| {
        let slow = [2.0, 4.0, 9.0, 40.0][p[0]] * if p[1] == 0 { 2.0 } else { 1.0 };
        Spec { seconds: 4, ..spec("", 4, 100 - 20 * p[0] as u64, slow) }
    })
}

#[test]
fn a_numeric_axis_is_an_x_axis() {
    let record = sizes();
    let document = compose(&record);
    let p50 = plane(&document, "p50");
    assert!(p50.across.logarithmic && p50.across.is_numeric && p50.across.name == "size");
    assert_eq!(p50.up.unit, Unit::Ms);
    let names: Vec<&str> = p50.groups.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, ["store=disk", "store=memory"]);
    for group in &p50.groups {
        let at: Vec<f64> = group.spots.iter().map(|s| s.across.value).collect();
        assert_eq!(at, [1024.0, 10_240.0, 102_400.0, 1_048_576.0]);
        assert!(
            group.joined && group.spots.iter().all(|s| s.up.low <= s.up.value && s.up.value <= s.up.high)
        );
        assert!(group.spots.iter().any(|s| s.up.low < s.up.high), "no range over trials");
    }
    // 1 MiB misses 20 ms
    let failed = |s: &loadlab_report::plane::Spot| s.verdict == Verdict::Fail;
    assert!(p50.groups.iter().all(|g| failed(&g.spots[3]) && !failed(&g.spots[0])));
    let page = html(&document);
    assert!(page.contains("<h4>Figures over size (logarithmic)</h4>"));
    assert!(
        page.contains(" failed\" data-group=") && page.contains("Red ring: the case failed or is invalid.")
    );
    assert!(page.contains("size=1MiB, store=disk, FAIL: p50 "), "a point has no words");
    // the drawings come before the grids, which are all that the other formats have
    assert!(page.find("Figures over size") < page.find("class=\"grid-of\""));
    for page in [text(&document, 100, false), markdown(&document)] {
        assert!(!page.contains("Figures over size") && page.contains("size ↓ store →"));
    }
}

#[test]
fn one_axis_is_one_line_and_even_steps_are_linear() {
    let axes: [(&str, &[&str]); 1] = [("delay", &["0", "10ms", "20ms", "30ms"])];
    let record = matrix(&axes, 1, &[], |p| Spec { seconds: 4, ..spec("", 4, 100, 2.0 + 10.0 * p[0] as f64) });
    let document = compose(&record);
    let p50 = plane(&document, "p50");
    assert!(!p50.across.logarithmic);
    assert_eq!(p50.groups.len(), 1);
    let (across, _) = p50.scales();
    let labels: Vec<String> = across.labels(&p50.across).into_iter().map(|(_, text)| text).collect();
    assert_eq!(labels.len(), 4, "{labels:?}");
    // even steps are evenly apart
    let places: Vec<f64> = p50.groups[0].spots.iter().map(|s| across.place(s.across.value)).collect();
    let steps: Vec<f64> = places.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(steps.iter().all(|s| (s - steps[0]).abs() < 1e-9), "{places:?}");
    // nothing failed: a sentence
    let note = trends(&document).and_then(|t| t.note.clone()).unwrap_or_default();
    assert!(note.contains("errors: 0 % in all cases."), "{note}");
}

#[test]
fn what_is_known_from_below_alone_is_hollow() {
    let mut record = sizes();
    for trial in &mut record.cases[7].trials {
        let times = &mut trial.summary.as_mut().expect("a summary").response_ms;
        times.p50 = None;
        times.over_ms.insert("p50".into(), 66.0);
    }
    let document = compose(&record);
    let p50 = plane(&document, "p50");
    let spot = &p50.groups[1].spots[3];
    assert!(spot.is_open && spot.up.value == 66.0, "{spot:?}");
    assert_eq!(p50.groups.iter().flat_map(|g| &g.spots).filter(|s| s.is_open).count(), 1);
    let page = html(&document);
    assert!(page.contains(" hollow failed\"") && page.contains("p50 ≥ 66.0 ms"));
    assert!(page.contains("Hollow: at least this; the true value may be higher."));
}

#[test]
fn further_axes_are_facets() {
    let axes: [(&str, &[&str]); 3] = [
        ("region", &["eu", "us"]),
        ("rate", &["100/s", "200/s", "400/s", "800/s"]),
        ("kind", &["a", "b", "c"]),
    ];
    let record = matrix(&axes, 1, &[], |p| Spec {
        seconds: 3,
        ..spec("", 4, 50, 2.0 + (p[0] + p[1] * 2 + p[2]) as f64)
    });
    let document = compose(&record);
    for region in ["eu", "us"] {
        let plane = plane(&document, &format!("p50, region={region}"));
        assert_eq!(plane.groups.len(), 3);
        assert!(plane.groups.iter().all(|g| g.spots.len() == 4));
        assert!(plane.across.logarithmic);
    }
}

#[test]
fn cases_with_names_of_their_own_are_drawn_by_their_numbers() {
    let mut record = matrix(&[("limit", &["1%", "10%", "50%"])], 1, &[], |p| Spec {
        seconds: 3,
        ..spec("", 4, 50, [40.0, 9.0, 2.0][p[0]])
    });
    for (case, name) in record.manifest.cases.iter_mut().zip(["starved", "tight", "ample"]) {
        case.name = name.to_owned();
    }
    for (case, name) in record.cases.iter_mut().zip(["starved", "tight", "ample"]) {
        case.facts.name = name.to_owned();
    }
    let document = compose(&record);
    let spots = &plane(&document, "p50").groups[0].spots;
    let shown: Vec<(&str, Option<&str>)> =
        spots.iter().map(|s| (s.name.as_str(), s.section.as_deref())).collect();
    let expect = [
        ("starved (limit=1%)", Some("case-1")),
        ("tight (limit=10%)", Some("case-2")),
        ("ample (limit=50%)", Some("case-3")),
    ];
    assert_eq!(shown, expect);
    assert!(html(&document).contains("<a href=\"#case-2\" tabindex=\"-1\" class=\"dot "));
}

#[test]
fn words_and_two_numbers_are_no_axis() {
    for values in [&["1", "2"][..], &["small", "medium", "large"], &["1", "10", "unlimited"]] {
        let record = matrix(&[("size", values)], 1, &[], |_| Spec { seconds: 3, ..spec("", 4, 50, 4.0) });
        assert!(trends(&compose(&record)).is_none(), "{values:?}");
    }
}

#[test]
fn ugly_cases_leave_gaps() {
    let mut record = sizes();
    record.cases[0].trials.clear();
    let document = compose(&record);
    assert_eq!(plane(&document, "p50").groups.iter().map(|g| g.spots.len()).collect::<Vec<_>>(), [3, 4]);
    for case in &mut record.cases {
        case.trials.clear();
    }
    assert!(trends(&compose(&record)).is_none());
    let failed = matrix(&[("size", &["1", "10", "100"])], 1, &[], |_| Spec {
        fail_every: 1,
        seconds: 3,
        ..spec("", 4, 50, 4.0)
    });
    let _ = html(&compose(&failed));
}
