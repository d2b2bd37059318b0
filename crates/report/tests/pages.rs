//! Reports of many shapes: written to the target folder for inspection, and searched for what must not be there.

use std::path::Path;

use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::manifest::RunEnded;
use loadlab_record::store::RunRecord;
use loadlab_report::{brief, csv, html, json, markdown, text};

use crate::support::{Component, Spec, component, compose, edges, run, spec};

/// Names that try to be markup.
const UGLY: &str = "</script><img src=x onerror=alert(1)> & \"quoted\" 'name' | `tick` \u{2028}\u{202e}txet 負荷試験 🦀 a-very-long-name-without-any-blank-in-it-that-goes-on-and-on-and-on-and-on-for-longer-than-any-screen-is-wide";

fn many() -> RunRecord {
    let specs: Vec<Spec> = (1..=12)
        .map(|i| {
            let users = 10 * i * i;
            let fail_every = if i > 9 { 40 } else { 0 };
            Spec {
                fail_every,
                ..spec(&format!("{users} users, grouped inserts"), users, 400 + 60 * i.min(6), 2.0 * i as f64)
            }
        })
        .collect();
    run("users until it gives", &specs, 1, &["p99 < 200ms"])
}

fn ugly() -> RunRecord {
    let bad = Spec {
        components: vec![Component { dies_at_s: Some(7.0), ..component(UGLY, 0.9, 50 << 20) }],
        tags: vec![UGLY.into()],
        fail_every: 5,
        ..spec(UGLY, 3, 40, 20.0)
    };
    let unwatched = Spec { components: Vec::new(), ..spec("nothing watched", 1, 60, 0.05) };
    let silent = Spec { rate: 0, ..spec("zero requests", 5, 0, 1.0) };
    let missing = spec("never began", 5, 50, 1.0);
    let mut record =
        run(UGLY, &[bad, unwatched, silent, missing], 3, &["p99 < 2s", "errors < 0.1%", "p99_9 < 1s"]);
    record.manifest.plan_text = format!("name: {UGLY}\n```\n</details></pre><script>alert(2)</script>\n");
    record.manifest.how = RunEnded::Interrupted;
    record.notes.push(format!("cases/{UGLY}/1/ticks.jsonl: the last line was cut off"));
    // one trial cut off, one that never came up, and a case without any data
    record.cases[0].trials[1].summary = None;
    record.cases[0].trials[2].summary = None;
    record.cases[0].trials[2].ticks.clear();
    let text = format!("{UGLY} did not become ready within 10 s\nhint: see its log");
    record.cases[0].trials[2].events.push(Event { at_s: -1.0, what: EventKind::Failed { text } });
    record.cases[1].trials.pop();
    record.cases[3].trials.clear();
    record
}

fn write(name: &str, record: &RunRecord) -> [String; 5] {
    let document = compose(record);
    let run = record.clone().into();
    let forms = [text(&document, 100, false), markdown(&document), html(&document), json(&run), csv(&run)];
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (form, ending) in forms.iter().zip(["txt", "md", "html", "json", "csv"]) {
        std::fs::write(dir.join(format!("{name}.{ending}")), form).expect("the target folder can be written");
    }
    forms
}

#[test]
fn twice_the_same_bytes() {
    let record = edges(5);
    assert_eq!(write("edges", &record), write("edges", &record));
}

#[test]
fn nothing_from_outside_becomes_markup() {
    let [text, markdown, html, json, csv] = write("ugly", &ugly());
    // the plan is in a fence, where markup is text
    let markdown: String = markdown.split("```").step_by(2).collect();
    for page in [&markdown, &html] {
        assert!(!page.contains("<img"), "a name became an element");
        assert!(!page.contains("\u{2028}") && !page.contains("\u{202e}"));
    }
    // two scripts and one block of data, and nothing else that runs
    assert_eq!(html.matches("<script").count(), 3);
    assert_eq!(html.matches("</script>").count(), 3);
    assert!(!html.contains("<script>alert"));
    assert!(!html.contains("onerror=alert(1)>"), "the bracket is escaped");
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    let columns = |line: &str| line.split('"').step_by(2).map(|s| s.matches(',').count()).sum::<usize>();
    assert!(
        csv.lines().all(|l| columns(l) == columns(csv.lines().next().unwrap_or_default())),
        "a row of another length"
    );
}

#[test]
fn what_draws_the_charts_comes_with_its_licence() {
    let page = html(&compose(&many()));
    assert!(page.contains("Leon Sorokin") && page.contains("Permission is hereby granted"));
}

#[test]
fn what_failed_or_is_missing_is_said() {
    let [text, markdown, html, _, csv] = write("ugly", &ugly());
    for page in [&text, &markdown, &html] {
        let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in ["interrupted", "loadlab was killed", "did not become ready", "never began", "cut off"] {
            assert!(flat.contains(said), "`{said}` is not said");
        }
    }
    assert!(csv.lines().any(|l| l.starts_with("never began,") && l.contains(",missing,")));
}

#[test]
fn every_width_holds() {
    for record in [edges(2), ugly(), many()] {
        let document = compose(&record);
        for width in [40, 80, 200] {
            for line in text(&document, width, false).lines() {
                let columns = loadlab_report::terminal::width_of(line);
                assert!(columns <= width, "{columns} > {width}: {line}");
            }
        }
    }
}

#[test]
fn colour_only_adds() {
    let document = compose(&edges(1));
    let coloured = text(&document, 80, true);
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, r)| r);
    }
    plain.push_str(rest);
    assert_eq!(plain, text(&document, 80, false));
}

#[test]
fn many_cases_can_be_picked() {
    let [_, _, html, _, _] = write("many", &many());
    assert!(html.contains("id=\"picker\""));
    assert_eq!(html.matches("<section id=\"case-").count(), 12);
    // whatever the browser, there is nothing to fetch
    assert!(!html.contains("src=\"http") && !html.contains("<link") && html.contains("default-src 'none'"));
}

/// A case of whose times only a lower bound is known has a bar up to the bound, open from there on: a blank would look
/// fast.
#[test]
fn bars_of_what_is_known_from_below_are_long_and_open() {
    let mut record = run("censored", &[spec("fast", 10, 100, 4.0), spec("slow", 10, 100, 60.0)], 1, &[]);
    for trial in &mut record.cases[1].trials {
        let times = &mut trial.summary.as_mut().expect("a summary").response_ms;
        for name in ["p50", "p95", "p99"] {
            times.over_ms.insert(name.into(), 66.0);
        }
        (times.p50, times.p95, times.p99) = (None, None, None);
    }
    let [text, markdown, html, ..] = write("censored", &record);
    let bar = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"));
        (line.matches('█').count(), line.matches('░').count(), line.contains("> 66.0 ms"))
    };
    let (fast, slow) = (bar("fast p50"), bar("slow p50"));
    assert!(fast.0 < slow.0 && fast.1 == 0 && slow.1 > 0 && slow.2, "{fast:?} {slow:?}\n{text}");
    assert!(markdown.lines().any(|l| l.starts_with("| slow |") && l.contains('█') && l.contains('░')));
    assert_eq!(html.matches("<i class=\"beyond p").count(), 3, "one for each percentile");
    assert!(html.contains("the true value may be higher"));
}

#[test]
fn the_end_of_a_run_fits_a_screen() {
    let three = || {
        vec![component("web", 0.6, 64 << 20), component("api", 0.4, 128 << 20), component("db", 0.2, 1 << 30)]
    };
    for (cases, trials, components) in [(1, 1, 3), (6, 1, 3), (6, 5, 3), (6, 5, 12)] {
        let case = |i: u64| {
            let mut all = three();
            all.extend((3..components).map(|n| component(&format!("other-{n}"), 0.01, 1 << 20)));
            Spec { seconds: 4, components: all, ..spec(&format!("case {i}"), 4 + i, 50, 8.0) }
        };
        let specs: Vec<Spec> = (1..=cases).map(case).collect();
        let record = run("a run", &specs, trials, &["p50 < 50ms"]);
        let end = text(&brief(&record.into()), 80, false);
        let lines: Vec<&str> = end.lines().collect();
        assert!(lines.len() <= 45, "{} lines of {cases} cases:\n{end}", lines.len());
        for line in lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for wanted in ["goodput", "web", "api", "db", "✔ holds", "loadlab →"] {
            assert!(end.contains(wanted), "no {wanted} in\n{end}");
        }
        assert!(!end.contains("other-3  "), "{end}");
        assert_eq!(end.contains("9 components that used less"), components == 12, "{end}");
    }
}
