//! Ratios with their intervals in every format, from a hand-made document.

use loadlab_record::documents::summary::Verdict;
use loadlab_report::document::{Block, Document, Ratio, Ratios, Section, Weight};
use loadlab_report::plane::RangedValue;
use loadlab_report::terminal::width_of;
use loadlab_report::{html, markdown, text};

fn ratio(name: &str, call: &str, weight: Weight, value: Option<(f64, f64, f64)>) -> Ratio {
    let value = value.map(|(value, low, high)| RangedValue { value, low, high });
    Ratio { name: name.into(), call: call.into(), weight, value, instead: None }
}

fn document() -> Document {
    let rows = vec![
        ratio("goodput", "worse", Weight::Bad, Some((0.8, 0.76, 0.85))),
        ratio("p50", "same", Weight::Plain, Some((1.003, 0.995, 1.011))),
        ratio("p99 <b>", "better", Weight::Good, Some((0.62, 0.5, 0.77))),
        ratio("CPU per request", "cannot tell", Weight::Doubtful, Some((1.05, 0.8, 1.4))),
        ratio("lost", "cannot tell", Weight::Doubtful, None),
    ];
    let ratios = Ratios {
        title: "1% CPU against control".into(),
        equivalence_margin: 0.02,
        rows,
        note: Some("A note.".into()),
    };
    let section = Section {
        is_folded: false,
        id: "differences".into(),
        title: "Differences".into(),
        case: None,
        blocks: vec![Block::Ratios(ratios)],
    };
    Document {
        is_brief: false,
        title: "edges".into(),
        subtitle: String::new(),
        answer: Vec::new(),
        verdict: Verdict::None,
        cases: Vec::new(),
        sections: vec![section],
    }
}

#[test]
fn on_a_terminal() {
    insta::assert_snapshot!(text(&document(), 90, false), @r"
    edges



    Differences
    ═══════════

    1% CPU against control
    goodput          worse        0.8 × (0.76 … 0.85)              ├●─┤   ┆
    p50              same         1 × (0.995 … 1.01)                      ●
    p99 <b>          better       0.62 × (0.5 … 0.77)   ├─────●────┤      ┆
    CPU per request  cannot tell  1.05 × (0.8 … 1.4)                ├──────●───────┤
    lost             cannot tell  –                                       ┆
    A note.
    ");
    for width in [40, 60, 200] {
        for line in text(&document(), width, false).lines() {
            assert!(width_of(line) <= width, "{line}");
        }
    }
}

#[test]
fn in_markdown_and_html() {
    let markdown = markdown(&document());
    assert!(markdown.contains("| p99 &lt;b&gt; | better | 0.62 × (0.5 … 0.77) |"), "{markdown}");
    let html = html(&document());
    assert!(html.contains("<b class=\"bad\">worse</b> · 0.8 × (0.76 … 0.85)"), "{html}");
    // one point for each that is reported, and 1 in the middle
    assert_eq!(html.matches("<i class=\"dot ").count(), 4);
    assert!(!html.contains("p99 <b>"));
}

#[test]
fn places_are_by_logarithm_around_one() {
    let document = document();
    let Block::Ratios(ratios) = &document.sections[0].blocks[0] else { panic!("made above") };
    assert_eq!(ratios.place(1.0), 0.5);
    assert!((ratios.place(2.0) + ratios.place(0.5) - 1.0).abs() < 1e-9);
    assert_eq!((ratios.place(0.0), ratios.place(1e9)), (0.0, 1.0));
    // The band is the margin of the verdicts.
    let (from, to) = (ratios.place(0.98) * 100.0, ratios.place(1.02) * 100.0);
    let band = format!("<i class=\"same\" style=\"left:{from:.2}%;width:{:.2}%\"></i>", to - from);
    assert_eq!(html(&document).matches(&band).count(), 5, "{band}");
}
