//! A proof by intervention: what each lever costs, what more of it brings, and how that was measured.

use loadlab_record::documents::manifest::Manifest;
use loadlab_record::documents::summary::Verdict;
use loadlab_record::documents::why::{Effect, LeverCall, LeverFacts, RaisedFacts, WhyFacts};

use crate::document::{Block, Cell, Document, Fact, Ratio, Ratios, Remark, Section, Table, Weight};
use crate::figures::{self, NOTHING};
use crate::plane::RangedValue;
use crate::wording::capital;

/// Turns the report of a run that is a proof into one of its answer: its loads are not compared with one another.
pub fn as_why_report(mut document: Document, manifest: &Manifest) -> Document {
    let Some(why) = &manifest.why else { return document };
    document.answer.retain(|fact| fact.name == "Confidence");
    let rounds = why.blocks.iter().map(|block| block.round).max().unwrap_or(0);
    let asked = format!(
        "which limit holds “{}” back: {} changed under load, {} of {} s in up to {}.",
        why.case,
        figures::plural(why.levers.len() as u64, "lever", "levers"),
        figures::plural(why.blocks.len() as u64, "block", "blocks"),
        why.block_s,
        figures::plural(u64::from(rounds), "round", "rounds"),
    );
    let found = why.found.clone().unwrap_or_else(|| "nothing yet: the run did not finish".to_owned());
    document.answer.insert(0, Fact::new("Asked", asked));
    document.answer.insert(1, Fact::new("Found", format!("{found}.")));
    if let Some(next) = &why.next {
        document.answer.insert(2, Fact::new("Next", format!("{}.", capital(&next.text))));
    }
    if document.verdict != Verdict::Invalid {
        document.verdict = Verdict::None;
    }
    let place = usize::from(document.sections.first().is_some_and(|section| section.id == "system"));
    document.sections.insert(place, section(why));
    document
}

fn section(why: &WhyFacts) -> Section {
    let mut blocks = Vec::new();
    blocks.extend(costs(why).map(Block::Ratios));
    blocks.extend((!why.levers.is_empty()).then(|| Block::Table(levers(why))));
    blocks
        .extend(why.levers.iter().filter(|lever| !lever.raised.is_empty()).map(|l| Block::Table(raised(l))));
    let not_raised = why.levers.iter().filter_map(|lever| Some((lever, lever.not_raised.as_ref()?)));
    let mut remarks: Vec<Remark> =
        not_raised.map(|(lever, reason)| remark(&format!("{} not raised", lever.name), reason)).collect();
    remarks.extend(why.not_tried.iter().map(|one| remark(&format!("{} not tried", one.name), &one.why)));
    remarks.extend(left_out(why));
    let first = why.levers.first().and_then(|lever| lever.component.as_ref());
    remarks.extend(first.zip(why.profiled.as_ref()).map(|(name, load)| {
        remark(
            "functions",
            &format!("where CPU time of {name} goes, and where its threads wait, is in “{load}” below"),
        )
    }));
    blocks.extend((!remarks.is_empty()).then_some(Block::Remarks(remarks)));
    Section::new("why", "What each limit costs", blocks)
}

fn remark(label: &str, text: &str) -> Remark {
    Remark { weight: Weight::Plain, label: label.to_owned(), text: text.to_owned(), hint: None }
}

/// Blocks that are not counted, if any: too many of them leave too little evidence.
fn left_out(why: &WhyFacts) -> Option<Remark> {
    let missing = why.blocks.iter().filter(|block| block.goodput_per_s.is_none()).count();
    let text = format!(
        "{missing} of {} blocks are not counted: their change took more than a second to make, or some of their seconds \
         are missing",
        why.blocks.len()
    );
    (missing > 0).then(|| Remark { weight: Weight::Doubtful, ..remark("left out", &text) })
}

fn weight(call: LeverCall) -> Weight {
    match call {
        LeverCall::Binds => Weight::Bad,
        LeverCall::Free => Weight::Good,
        LeverCall::CannotTell => Weight::Doubtful,
    }
}

/// The goodput under each change, drawn.
fn costs(why: &WhyFacts) -> Option<Ratios> {
    let row = |lever: &LeverFacts| Ratio {
        name: format!("{}: {}", lever.name, lever.less),
        call: lever.call.describe().to_owned(),
        weight: weight(lever.call),
        value: lever.goodput.map(around),
        instead: None,
    };
    why.levers.iter().any(|lever| lever.goodput.is_some()).then(|| Ratios {
        title: "Goodput with one limit a step tighter, over the goodput without a change".into(),
        equivalence_margin: why.margin,
        rows: why.levers.iter().map(row).collect(),
        note: Some(format!(
            "A limit binds if its whole interval is below {} ×. Intervals hold for all levers together with 95 %: Student's t \
             over rounds, divided among the levers.",
            figures::number(figures::round(1.0 - why.margin, 3))
        )),
    })
}

fn around(effect: Effect) -> RangedValue {
    RangedValue { value: effect.value, low: effect.low, high: effect.high }
}

/// Every lever, the most costly first.
fn levers(why: &WhyFacts) -> Table {
    let row = |lever: &LeverFacts| {
        let used = lever.used.map_or_else(|| NOTHING.to_owned(), share);
        vec![
            Cell::new(&lever.name),
            Cell::new(&lever.now),
            Cell::new(used),
            Cell::new(&lever.less),
            change(lever.goodput),
            Cell::new(lever.elasticity.map_or_else(
                || NOTHING.to_owned(),
                |e| format!("{} ({} … {})", two(e.value), two(e.low), two(e.high)),
            )),
            Cell::new(figures::or_nothing(lever.p99_ms, figures::ms)),
            Cell::new(lever.call.describe()).with_weight(weight(lever.call)),
        ]
    };
    let without = why.goodput_per_s.map_or_else(String::new, |rate| {
        let p99 = why.p99_ms.map_or_else(String::new, |ms| format!(", p99 {}", figures::ms(ms)));
        format!("Without a change: {}{p99}. ", figures::rate(rate))
    });
    Table {
        caption: "What one step less costs".into(),
        head: ["lever", "now", "used", "changed to", "goodput", "elasticity", "p99", "verdict"]
            .map(str::to_owned)
            .to_vec(),
        text_columns: vec![1, 3, 7],
        rows: why.levers.iter().map(row).collect(),
        note: Some(format!(
            "{without}Elasticity: relative change of the goodput over relative change of the limit; 1 means proportional. The \
             p99 is reported and not tested: a component that its CPU limit stops is slow at any limit."
        )),
    }
}

/// What more of a lever brings.
fn raised(lever: &LeverFacts) -> Table {
    let row = |raised: &RaisedFacts| {
        let fits = match raised.is_as_predicted {
            Some(true) => Cell::new("as predicted").with_weight(Weight::Good),
            Some(false) => Cell::new("not as predicted").with_weight(Weight::Doubtful),
            None => Cell::new(NOTHING),
        };
        let used: Vec<String> = raised
            .used
            .iter()
            .take(MOST_USED)
            .map(|(name, used)| format!("{name} {}", share(*used)))
            .collect();
        vec![
            Cell::new(&raised.to),
            Cell::new(
                raised.predicted.map_or_else(|| NOTHING.to_owned(), |e| change(Some(e)).text + &interval(e)),
            ),
            change(raised.goodput),
            fits,
            Cell::new(figures::or_nothing(raised.p99_ms, figures::ms)),
            Cell::new(if used.is_empty() { NOTHING.to_owned() } else { used.join(", ") }),
        ]
    };
    Table {
        caption: format!("What more of {} brings", lever.name),
        head: ["raised to", "predicted", "goodput", "", "p99", "CPU used of the limit"].map(str::to_owned).to_vec(),
        text_columns: vec![3, 5],
        rows: lever.raised.iter().map(row).collect(),
        note: Some(
            "The prediction assumes that the goodput responds to a raise as it did to the tightening, until another CPU limit is \
             reached, and is as uncertain as both measurements together."
                .into(),
        ),
    }
}

/// Components listed with what they use.
const MOST_USED: usize = 3;

/// `−9.4 %` with its interval beneath.
fn change(goodput: Option<Effect>) -> Cell {
    let Some(effect) = goodput else { return Cell::new(NOTHING) };
    let detail = Some(format!("{} … {}", signed(effect.low), signed(effect.high)));
    Cell { detail, ..Cell::new(signed(effect.value)) }
}

fn interval(effect: Effect) -> String {
    format!(" ({} … {})", signed(effect.low), signed(effect.high))
}

/// A share of a limit.
fn share(used: f64) -> String {
    figures::cpu_percent(used * 100.0)
}

fn signed(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    let sign = if percent < 0.0 { "−" } else { "+" };
    format!("{sign}{:.1} %", percent.abs())
}

fn two(value: f64) -> String {
    format!("{value:.2}").replace('-', "−")
}
