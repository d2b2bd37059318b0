//! Lists of runs and trends on terminals of every width.

use loadlab_analysis::cases::metric::named;
use loadlab_record::documents::manifest::{CommitFacts, RunEnded};
use loadlab_record::documents::search::SearchFacts;
use loadlab_record::documents::summary::Verdict;
use loadlab_record::store::RunRecord;
use loadlab_report::history::{Listed, list_json, list_text, trend, trend_text};
use loadlab_report::terminal::width_of;
use loadlab_report::{html, markdown};

use crate::support::{run, spec};

/// Three runs, newest first: the last one was cut off.
fn runs() -> Vec<Listed> {
    let of = |day: u32, rate: u64, p50_ms: f64| {
        let specs = [spec("10 users", 10, rate, p50_ms), spec("100 users", 100, 2 * rate, 4.0 * p50_ms)];
        let mut record = run("checkout", &specs, 2, &["p95 < 100ms"]);
        record.manifest.started = format!("2026-11-{day:02}T09:30:00Z");
        Listed { name: format!("checkout-202611{day:02}-093000"), run: record.into(), baseline: day == 18 }
    };
    let mut all = vec![of(20, 55, 12.0), of(19, 80, 8.0), of(18, 81, 7.9)];
    change(&mut all[0], |run| run.manifest.how = RunEnded::Interrupted);
    all
}

fn change(listed: &mut Listed, change: impl FnOnce(&mut RunRecord)) {
    let mut record = (*listed.run).clone();
    change(&mut record);
    listed.run = record.into();
}

#[test]
fn a_list_says_when_how_and_how_much() {
    insta::assert_snapshot!(list_text(&runs(), 120, false), @"
    3 runs
    run                       started           verdict      cases            ok             p50            p99  errors
    checkout-20261120-093000  2026-11-20 09:30  interrupted  2 × 2  52.2 … 112/s  12.0 … 48.4 ms  90.1 … 276 ms     0 %
    checkout-20261119-093000  2026-11-19 09:30  PASS         2 × 2  77.5 … 162/s  8.00 … 32.3 ms  44.7 … 170 ms     0 %
    checkout-20261118-093000  2026-11-18 09:30  PASS         2 × 2  78.7 … 158/s  7.91 … 31.8 ms  48.8 … 181 ms     0 %
    Figures are the lowest … the highest of a run’s cases, each the median over its valid trials. checkout-20261118-093000
    is the baseline of `checkout`.
    ");
}

/// Levels that missed are how a search finds the answer.
#[test]
fn a_search_is_listed_with_its_own_verdict() {
    let mut all = runs();
    change(&mut all[1], |run| {
        let missed = run.cases[1].trials[0].summary.as_mut().expect("measured");
        missed.verdict = Verdict::Fail;
        run.cases[0].trials.truncate(1);
        let (found, level) = (Some("10 users".to_owned()), Some(10));
        run.manifest.trials = 1;
        run.manifest.search = Some(SearchFacts { found, level, above: Some(100), ..SearchFacts::default() });
    });
    let text = list_text(&all, 120, false);
    let line = text.lines().find(|line| line.starts_with("checkout-20261119")).expect("its line");
    assert!(line.contains("PASS         2 × 2"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&list_json(&all)).expect("JSON");
    assert_eq!((&json[1]["verdict"], &json[1]["cases"][1]["verdict"]), (&"pass".into(), &"fail".into()));
}

#[test]
fn a_trend_runs_from_old_to_new() {
    let p50 = named("p50").expect("a figure");
    insta::assert_snapshot!(trend_text(&runs(), std::slice::from_ref(&p50), &|_| true, 80, false), @"
    10 users: p50
    checkout-20261118-093000  7.91 ms (7.86 … 7.91 ms)  ██████████▌  ← baseline
    checkout-20261119-093000  8.00 ms (7.97 … 8.00 ms)  ██████████▋
    checkout-20261120-093000                   12.0 ms  ████████████████

    100 users: p50
    checkout-20261118-093000  31.8 ms (31.6 … 31.8 ms)  ██████████▌  ← baseline
    checkout-20261119-093000  32.3 ms (32.2 … 32.3 ms)  ██████████▊
    checkout-20261120-093000  48.4 ms (48.2 … 48.4 ms)  ████████████████
    ");
    let some = trend_text(&runs(), std::slice::from_ref(&p50), &|name| name == "10 users", 80, false);
    assert!(some.contains("10 users") && !some.contains("100 users"), "{some}");
    assert_eq!(trend_text(&[], std::slice::from_ref(&p50), &|_| true, 80, false), "no runs\n");
}

#[test]
fn every_width_holds() {
    let p99 = named("p99").expect("a figure");
    for width in [40, 80, 200] {
        let text = list_text(&runs(), width, false)
            + &trend_text(&runs(), std::slice::from_ref(&p99), &|_| true, width, false);
        for line in text.lines() {
            assert!(width_of(line) <= width, "{} > {width}: {line}", width_of(line));
        }
    }
}

#[test]
fn json_holds_each_run_once() {
    let json: serde_json::Value = serde_json::from_str(&list_json(&runs())).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(3));
    assert_eq!(json[0]["how"], "interrupted");
    assert_eq!(json[2]["cases"][1]["name"], "100 users");
}

#[test]
fn a_trend_is_drawn_case_by_case_with_the_baseline() {
    let metrics = ["p50", "goodput"].map(|id| named(id).expect("a figure"));
    let document = trend(&runs(), &metrics, &|_| true);
    let markdown = markdown(&document);
    let table = markdown
        .split("**10 users**\n\n")
        .nth(1)
        .expect("its table")
        .split("\n\n")
        .next()
        .unwrap_or_default();
    insta::assert_snapshot!(table, @"
    | run | started | verdict | trials | p50 | goodput |
    |---|---|---|---:|---:|---:|
    | checkout-20261118-093000 | 2026-11-18 09:30 | PASS | 2 | 7.91 ms (7.86 … 7.91 ms) | 78.7/s (78.7 … 81/s) |
    | checkout-20261119-093000 | 2026-11-19 09:30 | PASS | 2 | 8.00 ms (7.97 … 8.00 ms) | 77.5/s (77.5 … 78.3/s) |
    | checkout-20261120-093000 | 2026-11-20 09:30 | interrupted | 2 | 12.0 ms | 52.2/s (52.2 … 55.4/s) |
    ");
    assert!(markdown.contains("**Baseline.** checkout-20261118-093000 of \\`checkout\\`."), "{markdown}");
    let page = html(&document);
    // two cases, two figures, three runs; a run that was cut off is marked
    assert_eq!(page.matches("<i class=\"dot s").count(), 12);
    assert_eq!(page.matches("<span class=\"word above\"").count(), 4);
    assert!(page.contains("title=\"checkout-20261120-093000, interrupted: p50 12.0 ms\""), "{page}");
    let some = html(&trend(&runs(), &metrics[..1], &|name| name == "100 users"));
    assert_eq!(some.matches("<i class=\"dot s").count(), 3);
    assert!(html(&trend(&[], &metrics, &|_| true)).contains("no runs"));
}

/// Runs of other plans, of other files with the same name, and with other settings are other series.
#[test]
fn a_series_is_one_plans() {
    let with = |edit: &dyn Fn(&mut loadlab_record::documents::manifest::Manifest)| {
        let mut all = runs();
        change(&mut all[1], |run| edit(&mut run.manifest));
        let p50 = named("p50").expect("a figure");
        let text = trend_text(&all, std::slice::from_ref(&p50), &|name| name == "10 users", 100, false);
        let titles = text.lines().filter(|l| l.ends_with(": p50")).map(str::to_owned);
        titles.collect::<Vec<_>>()
    };
    assert_eq!(with(&|_| ()), ["10 users: p50"]);
    assert_eq!(with(&|m| m.name = "search".into()), ["checkout / 10 users: p50", "search / 10 users: p50"]);
    assert_eq!(
        with(&|m| m.options = vec!["--trials 2".into(), "--set load.users=10".into()]),
        ["checkout / 10 users: p50", "checkout --set load.users=10 / 10 users: p50"]
    );
    // The file was edited, or copied: still the same plan.
    assert_eq!(with(&|m| m.plan_sha256 = "other".into()), ["10 users: p50"]);
    assert_eq!(with(&|m| m.plan_path = "elsewhere/plan.yaml".into()), ["10 users: p50"]);
    // Another file with another text that happens to have the same name.
    let other = with(&|m| {
        m.plan_sha256 = "other".into();
        m.plan_path = "elsewhere/plan.yaml".into();
    });
    assert_eq!(other, ["checkout / 10 users: p50", "checkout (elsewhere/plan.yaml) / 10 users: p50"]);
    // What a series lacks is reported.
    let mut all = runs();
    change(&mut all[0], |run| {
        run.cases.truncate(1);
        run.manifest.cases.truncate(1);
    });
    let p50 = named("p50").expect("a figure");
    let text = trend_text(&all, std::slice::from_ref(&p50), &|_| true, 100, false);
    assert!(text.contains("Left out: 1 of 3 runs without this case."), "{text}");
    assert!(html(&trend(&all, &[p50], &|_| true)).contains("Left out: 1 of 3 runs without this case."));
}

/// Twelve runs, newest first, of which the last five take half as long again; each at its own commit.
fn history() -> Vec<Listed> {
    let of = |day: u32| {
        let is_slow = day > 17;
        let p50_ms = if is_slow { 12.0 } else { 8.0 } + f64::from(day % 3) / 10.0;
        let mut record = run("checkout", &[spec("10 users", 10, 80, p50_ms)], 1, &[]);
        record.manifest.started = format!("2026-11-{day:02}T09:30:00Z");
        record.manifest.commit = Some(CommitFacts {
            commit: format!("{day:02}c0ffee00c0ffee"),
            subject: if day == 18 { "Ask the <stock> twice".into() } else { "Other things".into() },
            changed: day == 18,
        });
        Listed { name: format!("checkout-202611{day:02}-093000"), run: record.into(), baseline: false }
    };
    (11..=22).rev().map(of).collect()
}

/// A figure of which only a lower bound is known, and one that was zero, change as well, and are drawn.
#[test]
fn a_change_is_found_however_far_it_goes() {
    let mut runs = history();
    for (place, listed) in runs.iter_mut().enumerate() {
        change(listed, |run| {
            let trials = run.cases.iter_mut().flat_map(|case| &mut case.trials);
            for summary in trials.filter_map(|trial| trial.summary.as_mut()) {
                summary.drain_s = Some(if place < 5 { 5.0 } else { 0.0 });
                if place < 5 {
                    summary.response_ms.p50 = None;
                    summary.response_ms.over_ms.insert("p50".to_owned(), 30_000.0);
                }
            }
        });
    }
    let [p50, drain] = ["p50", "drain"].map(|name| named(name).expect("a figure"));
    let text = trend_text(&runs, &[p50.clone(), drain], &|_| true, 200, false);
    let changed: Vec<&str> = text.lines().filter(|line| line.contains("changed at")).collect();
    assert_eq!(changed.len(), 2, "{text}");
    assert!(changed.iter().all(|line| line.contains(" at checkout-20261118-093000: ")), "{text}");
    assert!(changed[1].contains("(up 5.00 s, worse; p = "), "{text}");
    let page = html(&trend(&runs, &[p50], &|_| true));
    assert!(
        page.contains("Hollow: at least this; the true value may be higher."),
        "hollow points are explained"
    );
}

/// Memory is known as exactly as the machines of the two runs beside the change know it, whatever ran before, and
/// whatever cannot be trusted.
#[test]
fn a_change_of_memory_counts_if_its_own_runs_resolve_it() {
    const LAST_BEFORE: usize = 5;
    let memory = named("memory_peak").expect("a figure");
    // Two components, of which each takes 3 MiB more from the change on: by place, the newest run first.
    let is_found = |cores: &dyn Fn(usize) -> u64, edit: &dyn Fn(&mut RunRecord, usize)| {
        let mut runs = history();
        for (place, listed) in runs.iter_mut().enumerate() {
            change(listed, |run| {
                let summary = run.cases[0].trials[0].summary.as_mut().expect("measured");
                summary.generator.machine_cores = Some(cores(place));
                let kib = if place < LAST_BEFORE { 103 << 10 } else { 100 << 10 } + place % 3;
                for component in summary.components.values_mut() {
                    component.memory_bytes.max = Some((kib << 10) as f64);
                }
                edit(run, place);
            });
        }
        trend_text(&runs, std::slice::from_ref(&memory), &|_| true, 200, false).contains("changed at")
    };
    let nothing = |_: &mut RunRecord, _: usize| {};
    // 2 MiB on four cores, 32 MiB on 64.
    assert!(is_found(&|_| 4, &nothing));
    assert!(!is_found(&|_| 64, &nothing));
    assert!(is_found(&|place| if place > LAST_BEFORE { 64 } else { 4 }, &nothing));
    assert!(!is_found(&|place| if place == LAST_BEFORE { 64 } else { 4 }, &nothing));
    // A trial that cannot be trusted, on another machine.
    let with_invalid = |run: &mut RunRecord, place: usize| {
        if place == LAST_BEFORE {
            let mut trial = run.cases[0].trials[0].clone();
            let summary = trial.summary.as_mut().expect("measured");
            (summary.verdict, summary.generator.machine_cores) = (Verdict::Invalid, Some(64));
            trial.number = 2;
            run.cases[0].trials.push(trial);
        }
    };
    assert!(is_found(&|_| 4, &with_invalid));
}

#[test]
fn a_change_for_good_is_found_with_its_commit() {
    let p50 = named("p50").expect("a figure");
    insta::assert_snapshot!(trend_text(&history(), std::slice::from_ref(&p50), &|_| true, 80, false), @r"
    10 users: p50
    checkout-20261111-093000  8.20 ms  ██████████████████████████▉
    checkout-20261112-093000  8.00 ms  ██████████████████████████▎
    checkout-20261113-093000  8.10 ms  ██████████████████████████▌
    checkout-20261114-093000  8.20 ms  ██████████████████████████▉
    checkout-20261115-093000  8.00 ms  ██████████████████████████▎
    checkout-20261116-093000  8.10 ms  ██████████████████████████▌
    checkout-20261117-093000  8.20 ms  ██████████████████████████▉
    checkout-20261118-093000  12.0 ms  ███████████████████████████████████████▍
    checkout-20261119-093000  12.1 ms  ███████████████████████████████████████▋
    checkout-20261120-093000  12.2 ms  ████████████████████████████████████████
    checkout-20261121-093000  12.0 ms  ███████████████████████████████████████▍
    checkout-20261122-093000  12.1 ms  ███████████████████████████████████████▋
    ▲ p50 changed at checkout-20261118-093000: 8.11 ms → 12.1 ms (1.49 ×, worse; p =
      0.001), commits 17c0ffee00..18c0ffee00 “Ask the <stock> twice”, with
      uncommitted changes
    ");
    for line in trend_text(&history(), std::slice::from_ref(&p50), &|_| true, 40, false).lines() {
        assert!(width_of(line) <= 40, "{line}");
    }
    // There is no change before it was made, nor in runs that cannot be trusted.
    let without = |runs: &[Listed]| {
        !trend_text(runs, std::slice::from_ref(&p50), &|_| true, 80, false).contains("changed")
    };
    assert!(without(&history()[5..]));
    let mut spoiled = history();
    for listed in &mut spoiled[..5] {
        change(listed, |run| {
            let trials = run.cases.iter_mut().flat_map(|case| &mut case.trials);
            trials.filter_map(|trial| trial.summary.as_mut()).for_each(|s| s.verdict = Verdict::Invalid);
        });
    }
    assert!(without(&spoiled));
    let document = trend(&history(), &[p50], &|_| true);
    let (markdown, page) = (markdown(&document), html(&document));
    assert!(markdown.contains("| 18c0ffee00 (and changes) |"), "{markdown}");
    assert!(page.contains("Ask the &lt;stock&gt; twice") && !page.contains("<stock>"));
    let json: serde_json::Value = serde_json::from_str(&list_json(&history())).expect("JSON");
    assert_eq!(json[0]["commit"]["commit"], "22c0ffee00c0ffee");
}
