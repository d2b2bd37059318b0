//! Points in a plane in every format: throughput over users with its law, latency over throughput, and a hand-made
//! one.

use loadlab_analysis::cases::metric::Unit;
use loadlab_record::documents::summary::Verdict;
use loadlab_report::colour::Colour;
use loadlab_report::document::{Block, Document, Section};
use loadlab_report::plane::{Axis, Group, Plane, PlaneMark, RangedValue, Spot};
use loadlab_report::terminal::width_of;
use loadlab_report::{html, markdown, text};

use crate::support::{compose, scaling};

fn planes(document: &Document) -> Vec<&Plane> {
    let blocks = document.sections.iter().flat_map(|s| &s.blocks);
    blocks
        .filter_map(|block| match block {
            Block::Plane(plane) => Some(plane),
            _ => None,
        })
        .collect()
}

fn by_hand(name: &str) -> Document {
    let spot = |at: f64, value: f64| Spot {
        name: format!("{name} {at}"),
        label: Some(name.to_owned()),
        across: RangedValue::exact(at),
        up: RangedValue { value, low: value * 0.8, high: value * 1.25 },
        is_open: false,
        verdict: Verdict::None,
        section: None,
    };
    let plane = Plane {
        title: name.to_owned(),
        across: Axis {
            names: vec![(0.0, name.into()), (1.0, "b".into()), (2.0, "c".into())],
            ..Axis::of("runs", Unit::Count, false)
        },
        up: Axis::of("p99", Unit::Ms, false),
        groups: vec![Group {
            name: name.to_owned(),
            colour: Colour::Nth(0),
            joined: true,
            spots: vec![spot(0.0, 10.0), spot(1.0, 12.0), spot(2.0, 31.0)],
        }],
        curves: Vec::new(),
        marks: Vec::new(),
        heights: vec![PlaneMark { at: 10.5, between: Some((9.0, 12.0)), text: "baseline".into() }],
        behind: "the table below".into(),
        note: Some("A note.".into()),
    };
    let section = Section {
        id: "plane".into(),
        title: "Plane".into(),
        case: None,
        is_folded: false,
        blocks: vec![Block::Plane(plane)],
    };
    Document {
        is_brief: false,
        title: "by hand".into(),
        subtitle: String::new(),
        answer: Vec::new(),
        verdict: Verdict::None,
        cases: Vec::new(),
        sections: vec![section],
    }
}

#[test]
fn on_a_terminal() {
    insta::assert_snapshot!(text(&by_hand("trend"), 60, false), @r"
    by hand



    Plane
    ═════

    trend
    40.0 ms │
            │                                         │
            │                                         │
    30.0 ms │                                         ●
            │                                         │
            │
    20.0 ms │
            │                         │
    10.0 ms │┄┄┄┄┄┄┄┄●┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄●┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
            │        │
            │
          0 │
                   trend              b               c
             ● trend  ┄ baseline 10.5 ms, over runs
    A note.
    ");
}

#[test]
fn every_form_holds_the_levels_the_law_and_its_marks() {
    let document = compose(&scaling(3));
    let found = planes(&document);
    assert_eq!(
        found.iter().map(|p| p.title.as_str()).collect::<Vec<_>>(),
        ["Throughput over users", "Latency over throughput"]
    );
    let [throughput, latency] = found[..] else { panic!("two drawings") };
    assert_eq!(throughput.groups[0].spots.len(), 8);
    // every point is near the curve, and the band is around it
    let law = &throughput.curves[0].line;
    assert!(law.iter().all(|(_, v)| v.low < v.value && v.value < v.high), "{law:?}");
    for spot in &throughput.groups[0].spots {
        let near = law
            .iter()
            .min_by(|a, b| (a.0 - spot.across.value).abs().total_cmp(&(b.0 - spot.across.value).abs()));
        let near = near.expect("a curve").1.value;
        assert!((spot.up.value / near - 1.0).abs() < 0.15, "{} is off the curve: {near}", spot.up.value);
        assert!(spot.up.low <= spot.up.value && spot.up.value <= spot.up.high);
    }
    let [knee, peak] = &throughput.marks[..] else { panic!("{:?}", throughput.marks) };
    assert!(knee.text.starts_with("knee ") && knee.at < peak.at, "{knee:?}");
    let between = peak.between.expect("an interval");
    assert!(peak.text.starts_with("peak ") && between.0 < 43.6 && 43.6 < between.1, "{peak:?}");
    // the levels are joined in order, so that the line turns back where throughput does
    assert_eq!(latency.groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["p50", "p99"]);
    let labels: Vec<_> = latency.groups[0].spots.iter().filter_map(|s| s.label.as_deref()).collect();
    assert_eq!(labels, ["1", "2", "4", "8", "16", "32", "64", "128"]);
    let page = html(&document);
    let spots: usize = found.iter().flat_map(|p| &p.groups).map(|g| g.spots.len()).sum();
    assert_eq!(page.matches("<i class=\"dot s").count(), spots);
    assert!(
        page.contains("aria-label=\"Throughput over users: 8 points of goodput, knee "),
        "no words for it"
    );
    for width in [40, 80, 200] {
        for line in text(&document, width, false).lines() {
            assert!(width_of(line) <= width, "{line}");
        }
    }
    assert!(markdown(&document).contains("**Latency over throughput**\n\n```text\n"));
}

#[test]
fn no_name_becomes_markup() {
    let document = by_hand("</p><img src=x onerror=alert(1)> ``` \u{202e}");
    let (html, markdown) = (html(&document), markdown(&document));
    for page in [&html, &markdown] {
        assert!(!page.contains('\u{202e}'), "a direction was turned");
    }
    assert!(!html.contains("<img"), "a name became an element");
    // between the two fences there is no third
    assert_eq!(markdown.matches("```").count(), 2, "{markdown}");
}
