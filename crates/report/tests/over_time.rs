//! Charts over time: their order, the time they show, and what becomes a sentence instead.

use loadlab_record::store::RunRecord;
use loadlab_record::watch::sample::Sample;
use loadlab_report::colour::Colour;
use loadlab_report::document::{Block, Chart, Document, Multiples};
use loadlab_report::{html, markdown, text};

use crate::support::{Component, Spec, component, compose, run, spec};

fn parts(document: &Document, case: &str) -> Vec<Multiples> {
    let section = document.sections.iter().find(|s| s.id == case).expect("a case");
    section
        .blocks
        .iter()
        .filter_map(|b| if let Block::Multiples(part) = b { Some(part.clone()) } else { None })
        .collect()
}

fn charts(document: &Document, case: &str) -> Vec<Chart> {
    parts(document, case).into_iter().flat_map(|part| part.charts).collect()
}

/// Adds what the generator itself used, which hand-made records lack.
fn with_generator(mut record: RunRecord) -> RunRecord {
    for trial in record.cases.iter_mut().flat_map(|c| &mut c.trials) {
        let mut samples = trial.samples.unpacked();
        samples.extend((-3..40).map(|s| Sample {
            at_s: f64::from(s),
            component: "loadlab".into(),
            cpu_s: Some(f64::from(s * s) / 100.0),
            memory_bytes: Some(14_000_000),
            ..Sample::default()
        }));
        trial.samples = samples.into();
    }
    record
}

/// A component that its CPU limit holds back, between two whose limits do not.
fn limited() -> RunRecord {
    let app = Component { cpu_limit: Some(0.5), ..component("app", 0.9, 63 << 20) };
    let components = vec![component("proxy", 0.2, 20 << 20), app, component("database", 0.3, 90 << 20)];
    with_generator(run(
        "limited",
        &[Spec { components, fail_every: 9, probes: true, ..spec("a", 4, 30, 21.0) }],
        1,
        &[],
    ))
}

#[test]
fn the_load_comes_first_then_the_bottleneck_and_the_generator_last() {
    let document = compose(&limited());
    let parts = parts(&document, "case-1");
    let titles: Vec<&str> = parts.iter().map(|p| p.title.as_str()).collect();
    assert_eq!(titles, ["Load", "First bottleneck: app · CPU limit", "Other components", "Load generator"]);
    let ids: Vec<Vec<&str>> =
        parts.iter().map(|p| p.charts.iter().map(|c| c.id.as_str()).collect()).collect();
    assert_eq!(ids[0], ["case-1-throughput", "case-1-failures", "case-1-response", "case-1-heat"]);
    assert_eq!(ids[1][..2], ["case-1-first-cpu", "case-1-first-throttled"]);
    assert_eq!(ids[2].first(), Some(&"case-1-cpu"));
    assert_eq!(ids[3], ["case-1-own-cpu"]);
    let names = |chart: &Chart| chart.lines.iter().map(|l| l.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&parts[1].charts[0]), ["app", "limit of app (50.0 %)"]);
    assert_eq!(names(&parts[2].charts[0]), ["proxy", "database"]);
    // and so it is in the other formats
    for page in [text(&document, 100, false), markdown(&document), html(&document)] {
        let places: Vec<usize> =
            titles[1..].iter().map(|t| page.rfind(t).unwrap_or_else(|| panic!("no {t}"))).collect();
        assert!(places.is_sorted(), "{places:?}");
    }
}

#[test]
fn the_only_component_may_be_the_bottleneck() {
    let app = Component { cpu_limit: Some(0.5), ..component("app", 0.9, 63 << 20) };
    let limited = Spec { components: vec![app], ..spec("a", 4, 30, 21.0) };
    let titles = |record: &RunRecord| -> Vec<String> {
        parts(&compose(record), "case-1").into_iter().map(|p| p.title).collect()
    };
    assert_eq!(titles(&run("one", &[limited], 1, &[])), ["Load", "First bottleneck: app · CPU limit"]);
    assert_eq!(titles(&run("free", &[spec("b", 4, 30, 21.0)], 1, &[])), ["Load", "Components"]);
}

#[test]
fn charts_show_the_load_and_the_drain_and_nothing_else() {
    let document = compose(&limited());
    let charts = charts(&document, "case-1");
    assert!(charts.len() > 6);
    for chart in &charts {
        // 20 s of load and 2.4 s of drain; samples run from −2 s to 24 s
        let (from, to) = chart.span.expect("an axis");
        assert_eq!(from, 0.0, "{}", chart.id);
        assert!((22.4..22.9).contains(&to), "{}: {to}", chart.id);
        assert!(chart.at.iter().all(|at| (from..=22.4).contains(at)), "{}: {:?}", chart.id, chart.at);
        assert!(chart.at.is_sorted_by(|a, b| a < b), "{}", chart.id);
        assert!(chart.marks.iter().all(|m| (from..=to).contains(&m.at_s)));
    }
    let page = html(&document);
    assert!(page.contains("\"from\":0,\"to\":22.7"), "the page has another axis");
    assert!(!page.contains(">-0") && !page.contains(">−0"));
}

#[test]
fn throttling_is_a_share_of_periods_and_where_only_the_time_is_known_of_one_core() {
    // Throttled on eight cores in nine periods of ten of every other second, and in three of ten of the rest.
    let drawn = |has_periods: bool| {
        let mut record = limited();
        for trial in &mut record.cases[0].trials {
            let stopped = |s: Sample| {
                if s.component != "app" {
                    return s;
                }
                let seconds = (s.at_s + 2.0).round() as u64;
                let stopped = seconds / 2 * 12 + seconds % 2 * 9;
                Sample {
                    throttled_periods: Some(stopped),
                    periods: has_periods.then_some(10 * seconds),
                    throttled_s: Some(stopped as f64 * 0.8),
                    ..s
                }
            };
            trial.samples = trial.samples.unpacked().into_iter().map(stopped).collect::<Vec<_>>().into();
        }
        let chart = charts(&compose(&record), "case-1")
            .into_iter()
            .find(|c| c.id == "case-1-first-throttled")
            .expect("app is throttled");
        let most = chart.lines[0].values.iter().flatten().copied().fold(0.0, f64::max);
        (chart.title, (most * 10.0).round() / 10.0)
    };
    assert_eq!(drawn(true), ("app: Throttled, share of periods".to_owned(), 0.9));
    assert_eq!(drawn(false), ("app: Throttled, of one core".to_owned(), 7.2));
}

#[test]
fn a_chart_without_information_is_a_sentence() {
    let quiet = |name: &str| Component { cpu_limit: Some(0.5), ..component(name, 0.1, 64 << 20) };
    let mut record =
        run("quiet", &[Spec { components: vec![quiet("app")], ..spec("a", 4, 30, 21.0) }], 1, &[]);
    for trial in &mut record.cases[0].trials {
        let still = |s: Sample| Sample {
            throttled_s: Some(0.0),
            block_read_bytes: Some(7),
            block_written_bytes: Some(7),
            memory_bytes: Some(64 << 20),
            ..s
        };
        trial.samples = trial.samples.unpacked().into_iter().map(still).collect::<Vec<_>>().into();
    }
    let document = compose(&record);
    let ids: Vec<String> = charts(&document, "case-1").into_iter().map(|c| c.id).collect();
    for gone in ["failures", "held", "memory", "block", "throttled"] {
        assert!(!ids.contains(&format!("case-1-{gone}")), "{gone} is drawn");
    }
    assert!(ids.contains(&"case-1-cpu".to_owned()) && ids.contains(&"case-1-throughput".to_owned()));
    for page in [text(&document, 200, false), markdown(&document), html(&document)] {
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "Failures: none.",
            "Throttled: never.",
            "Block I/O: 0 B/s throughout.",
            "Memory: 64.0 MiB throughout.",
        ] {
            assert!(page.contains(said), "`{said}` is not said");
        }
    }
}

#[test]
fn failures_are_red_and_a_component_has_one_colour() {
    let mut record = limited();
    let second = run(
        "more",
        &[Spec { components: vec![component("database", 0.4, 9 << 20)], ..spec("b", 4, 30, 21.0) }],
        1,
        &[],
    );
    record.cases.extend(second.cases);
    record.manifest.cases.extend(second.manifest.cases);
    let document = compose(&record);
    let mut colours = std::collections::BTreeMap::new();
    for line in ["case-1", "case-2"].iter().flat_map(|case| charts(&document, case)).flat_map(|c| c.lines) {
        match line.of.as_slice() {
            [name] => assert_eq!(*colours.entry(name.clone()).or_insert(line.colour), line.colour, "{name}"),
            _ => {
                assert!(!matches!(line.colour, Colour::Component(_)), "{} looks like a component", line.name)
            }
        }
    }
    assert_eq!(colours.get("loadlab"), Some(&Colour::Generator));
    assert_eq!(colours.get("database"), Some(&Colour::Component(2)));
    let all = charts(&document, "case-1");
    let of = |id: &str| all.iter().find(|c| c.id == format!("case-1-{id}")).expect("a chart").lines.clone();
    assert!(of("failures").iter().all(|l| matches!(l.colour, Colour::Failure(_))));
    assert!(of("response").iter().all(|l| matches!(l.colour, Colour::Percentile { .. })));
}

#[test]
fn ugly_trials_are_drawn_or_left_out() {
    let crowd: Vec<_> =
        (0..60).map(|i| component(&format!("shard-{i:02}"), 0.02 * f64::from(i), 1 << 20)).collect();
    let long = "a-name-of-eighty-characters-".repeat(3);
    let specs = [
        Spec { components: crowd, ..spec("sixty", 4, 50, 8.0) },
        Spec {
            fail_every: 1,
            components: vec![component(&long, 0.5, 1 << 20)],
            ..spec("all failed", 4, 50, 8.0)
        },
        Spec { rate: 0, ..spec("no requests", 4, 0, 8.0) },
        Spec { seconds: 1, ..spec("one second", 4, 50, 8.0) },
        Spec { components: Vec::new(), ..spec("nothing watched", 4, 50, 8.0) },
        spec("no trials", 4, 50, 8.0),
    ];
    let mut record = run("ugly", &specs, 1, &["p99 < 1s"]);
    record.cases[5].trials.clear();
    let document = compose(&record);
    let busiest = charts(&document, "case-1").into_iter().find(|c| c.id == "case-1-cpu").expect("a chart");
    assert!(busiest.lines.len() <= 10, "{} lines", busiest.lines.len());
    assert!(busiest.lines.iter().any(|l| l.name.starts_with("largest of ")));
    assert!(parts(&document, "case-6").is_empty());
    for page in [text(&document, 40, false), markdown(&document), html(&document)] {
        assert!(page.contains("Throughput: 0/s throughout."), "no word of what was not sent");
    }
}
