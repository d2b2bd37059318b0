//! A record for other programs: summaries with figures over trials as JSON, and every figure as CSV.

use std::fmt::Write;

use loadlab_analysis::DiagnosedRun;
use loadlab_analysis::cases::case::{CaseFindings, Spread};
use loadlab_analysis::cases::metric::{self, COMPONENT, Metric, Value};
use loadlab_analysis::comparison::compare::{Comparison, Row};
use loadlab_analysis::comparison::derived::Derived;
use loadlab_analysis::comparison::figures::Scale;
use loadlab_analysis::comparison::interval::Method;
use loadlab_analysis::findings::findings;
use loadlab_analysis::scaling::scalability::{Level, Scalability};
use loadlab_analysis::scaling::usl::{FittedValue, Knee};
use loadlab_analysis::trial::bottleneck::Suspect;
use loadlab_analysis::trial::profile::{self, CaseProfile};
use loadlab_record::counts::numbers::NumberSummary;
use loadlab_record::counts::quantile::Estimate;
use loadlab_record::documents::summary::Summary;
use loadlab_record::watch::profile::{ComponentProfile, Function};
use serde_json::{Map, Value as Json, json};

/// The run as JSON: what was tested, and for every case its figures over trials and its trials' summaries exactly as
/// in the record. A cut-off trial's summary is reconstructed from what is left of it; a missing one is `null`, with
/// the reason in `trouble`.
pub fn json(run: &DiagnosedRun) -> String {
    let findings = findings(run);
    let m = &run.manifest;
    let of_plan = if findings.are_of_plan { findings.figures.as_slice() } else { &[] };
    let document = json!({
        "loadlab": m.loadlab,
        "record": m.record,
        "name": m.name,
        "started": m.started,
        "ended": m.ended,
        "how": m.how,
        "plan_sha256": m.plan_sha256,
        "host": m.host,
        "axes": m.axes,
        "trials": m.trials,
        "quick": m.quick,
        "expect": m.expect,
        "figures": m.figures,
        "statement": {
            "tested": findings.statement.tested,
            "result": findings.statement.result,
            "first_bottleneck": findings.statement.first_bottleneck,
            "confidence": findings.statement.confidence,
        },
        "no_differences": findings.no_differences,
        "comparisons": findings.comparisons.iter().map(comparison).collect::<Vec<_>>(),
        "scalability": findings.scalability.iter().map(scalability).collect::<Vec<_>>(),
        "derived": findings.derived.iter().map(derived).collect::<Vec<_>>(),
        "notes": run.notes,
        "cases": findings.cases.iter().map(|c| case(c, of_plan)).collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn case(case: &CaseFindings<'_>, of_plan: &[Metric]) -> Json {
    let all = metric::all().into_iter().chain(of_plan.iter().cloned());
    let figures: Map<String, Json> = all.map(|m| (m.id.to_string(), figure(case, &m))).collect();
    let facts = &case.case.facts;
    let values: Map<String, Json> =
        facts.values.iter().map(|(axis, value)| (axis.clone(), json!(value))).collect();
    let trials: Vec<Json> = case
        .trials
        .iter()
        .map(|t| json!({ "trial": t.number, "trouble": t.trouble, "summary": t.summary }))
        .collect();
    let mut document = json!({
        "name": facts.name,
        "dir": facts.dir,
        "values": values,
        "verdict": case.verdict,
        "bottleneck": case.diagnosis.bottleneck,
        "suspects": case.diagnosis.suspects.iter().map(suspect).collect::<Vec<_>>(),
        "profile": profile::of_case(case.case.trials.iter()).as_ref().map(profiled),
        "figures": figures,
        "trials": trials,
    });
    if let Some(base) = &facts.control_of {
        document["control_of"] = json!(base);
    }
    document
}

/// Functions of each component with most samples; all stacks are in the record.
fn profiled(profile: &CaseProfile) -> Json {
    const MOST_FUNCTIONS: usize = 50;
    let function = |f: &Function<'_>| json!({ "name": f.name, "own": f.own, "total": f.total });
    let component = |c: &ComponentProfile, functions: Vec<Function<'_>>| {
        json!({
            "component": c.component,
            "samples": c.samples,
            "incomplete": c.incomplete,
            "unnamed": c.unnamed,
            "functions": functions.iter().take(MOST_FUNCTIONS).map(function).collect::<Vec<_>>(),
            "idle": c.idle,
        })
    };
    let cpu = |c: &ComponentProfile| component(c, c.functions());
    let waits = |c: &ComponentProfile| component(c, c.waiting_functions());
    let cost = profile.cost;
    json!({
        "rate_per_s": profile.rate_per_s,
        "lost": profile.lost,
        "has_kernel": profile.has_kernel,
        "not_seen": profile.not_seen,
        "cost": {
            "pairs": cost.pairs,
            "goodput": cost.goodput,
            "p99_ms": cost.p99_ms.map(|(with, without)| json!({ "sampled": with, "not_sampled": without })),
        },
        "waits_s": profile.waits_s,
        "components": profile.components.iter().map(cpu).collect::<Vec<_>>(),
        "waits": profile.waits.iter().map(waits).collect::<Vec<_>>(),
    })
}

fn derived(d: &Derived) -> Json {
    let rounds = |s: &Spread| s.values.iter().map(|v| v.known()).collect::<Vec<_>>();
    json!({
        "name": d.facts.name,
        "how": { "value": d.facts.value, "against": d.facts.against },
        "unit": d.unit.name(),
        "value": d.value.median.known(),
        "against": d.against.as_ref().and_then(|s| s.median.known()),
        "ratio": d.ratio.as_ref().and_then(|s| s.median.known()),
        "low": d.interval.map(|(low, _)| low),
        "high": d.interval.map(|(_, high)| high),
        "rounds": {
            "value": rounds(&d.value),
            "against": d.against.as_ref().map(rounds),
            "ratio": d.ratio.as_ref().map(rounds),
        },
        "why_not": d.why_not,
    })
}

fn suspect(s: &Suspect) -> Json {
    json!({ "kind": s.kind.name(), "who": s.component, "at_s": s.at_s, "share": s.share, "text": s.text, "evidence": s.evidence })
}

/// Comparisons of two cases each, as `loadlab compare --format json` prints them.
pub fn comparisons_json(comparisons: &[Comparison]) -> String {
    let document = json!({ "comparisons": comparisons.iter().map(comparison).collect::<Vec<_>>() });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn comparison(c: &Comparison) -> Json {
    let is_paired = match c.method {
        Method::Paired | Method::Sequential => true,
        Method::Welch => false,
    };
    let interval = |r: &Row| r.effect.and_then(|e| e.interval);
    let row = |r: &Row| {
        json!({
            "figure": r.metric.id,
            "unit": r.metric.unit.name(),
            "base": r.base.median.known(),
            "base_range": [r.base.min, r.base.max.known()],
            "other": r.other.median.known(),
            "other_range": [r.other.min, r.other.max.known()],
            "scale": if r.scale == Scale::Ratio { "ratio" } else { "difference" },
            "effect": r.effect.map(|e| e.value),
            "paired": is_paired,
            "low": interval(r).map(|i| i.low),
            "high": interval(r).map(|i| i.high),
            "confidence": interval(r).map(|i| i.confidence),
            "chance": interval(r).and_then(|i| i.chance),
            "verdict": r.call.name(),
            "decides": r.decides,
            "visible": r.visible,
            "trials_needed": r.trials_needed,
            "note": r.note,
        })
    };
    json!({
        "base": c.base,
        "other": c.other,
        "method": c.method.name(),
        "trials": [c.trials.0, c.trials.1],
        "equivalence_margin": c.options.equivalence_margin,
        "why_not": c.why_not,
        "left_out": c.left_out,
        "bottleneck_moved": c.moved,
        "figures": c.rows.iter().map(row).collect::<Vec<_>>(),
        "details": c.details.iter().map(row).collect::<Vec<_>>(),
    })
}

fn scalability(s: &Scalability) -> Json {
    let interval = |i: FittedValue| json!({ "value": i.value, "low": i.low, "high": i.high });
    let level = |l: &Level| {
        json!({
            "users": l.users,
            "case": l.case,
            "goodput": l.goodput.values.iter().map(|v| v.known()).collect::<Vec<_>>(),
            "p50_ms": l.p50_ms.median.known(),
            "p99_ms": l.p99_ms.median.known(),
            "fitted_per_s": s.fit.as_ref().ok().map(|f| f.per_s(l.users as f64)),
        })
    };
    let fit = s.fit.as_ref().ok().map(|f| {
        let peak = f.peak.as_ref().ok().map(|p| json!({ "users": interval(p.users), "per_s": p.per_s }));
        json!({
            "lambda_per_s": interval(f.lambda),
            "alpha": interval(f.alpha),
            "beta": interval(f.beta),
            "peak": peak,
            "no_peak": f.peak.as_ref().err().map(ToString::to_string),
            "knee_users": f.knee_users,
            "residual": f.residual,
        })
    });
    let (at, at_most, at_least) = match s.knee {
        Some(Knee::At(users)) => (Some(users as u64), None, None),
        Some(Knee::AtMost(users)) => (None, Some(users as u64), None),
        Some(Knee::AtLeast(users)) => (None, None, Some(users as u64)),
        None => (None, None, None),
    };
    json!({
        "of": s.of,
        "levels": s.levels.iter().map(level).collect::<Vec<_>>(),
        "knee_users": at,
        "knee_at_most_users": at_most,
        "knee_at_least_users": at_least,
        "fit": fit,
        "no_fit": s.fit.as_ref().err().map(ToString::to_string),
    })
}

fn figure(case: &CaseFindings<'_>, metric: &Metric) -> Json {
    let spread = case.spread(metric);
    let mut out = json!({
        "unit": metric.unit.name(),
        "median": spread.median.known(),
        "min": spread.min,
        "max": spread.max.known(),
        "trials": spread.values.iter().map(|v| v.known()).collect::<Vec<_>>(),
    });
    if let Value::Over(bound) = spread.median {
        out["median_over"] = json!(bound);
    }
    if let Value::Over(bound) = spread.max {
        out["max_over"] = json!(bound);
    }
    out
}

/// One row per figure of a trial: `case`, the axes, `trial`, `verdict`, `figure`, `value`, `unit`, `note`. Unknown
/// figures have no value and the reason in `note` (`over 1000`: at least that; `estimate 41 interval 30..44`: too few
/// samples; in older records `needs 1000`).
pub fn csv(run: &DiagnosedRun) -> String {
    let findings = findings(run);
    let of_plan = if findings.are_of_plan { findings.figures.as_slice() } else { &[] };
    let mut out = String::new();
    let axes: Vec<String> = run.manifest.axes.iter().map(|axis| field(axis)).collect();
    let mut head = vec!["case".to_owned()];
    head.extend(axes);
    head.extend(["trial", "verdict", "figure", "value", "unit", "note"].map(str::to_owned));
    let _ = writeln!(out, "{}", head.join(","));
    for case in &findings.cases {
        let facts = &case.case.facts;
        let value_of =
            |axis: &String| facts.values.iter().find(|(a, _)| a == axis).map_or("", |(_, v)| v.as_str());
        let mut lead = vec![field(&facts.name)];
        lead.extend(run.manifest.axes.iter().map(|axis| field(value_of(axis))));
        for trial in &case.trials {
            let lead = format!("{},{}", lead.join(","), trial.number);
            match trial.summary {
                Some(summary) => rows(&mut out, &lead, summary, of_plan, trial.trouble.as_deref()),
                None => {
                    let why = trial.trouble.as_deref().unwrap_or("missing");
                    let _ = writeln!(out, "{lead},,missing,,,{}", field(why));
                }
            }
        }
    }
    out
}

/// An estimate and its interval, open on a side without a number.
fn between(estimate: Estimate) -> String {
    let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    let value = estimate.value.map_or(String::new(), |v| format!("estimate {v} "));
    format!("{value}interval {}..{}", number(estimate.low), number(estimate.high))
}

fn rows(out: &mut String, lead: &str, summary: &Summary, of_plan: &[Metric], trouble: Option<&str>) {
    let verdict = super::render::verdict_word(summary.verdict).replace(' ', "_").to_lowercase();
    let mut row = |figure: &str, value: Value, unit: &str| {
        let (value, note) = match value {
            Value::Known(v) => (format!("{v}"), String::new()),
            Value::Over(v) => (String::new(), format!("over {v}")),
            Value::Between(few) if few.is_unknown() => (String::new(), format!("needs {}", few.needed)),
            Value::Between(few) => (String::new(), between(few.estimate)),
            Value::Nothing => return,
        };
        let _ = writeln!(out, "{lead},{verdict},{},{value},{unit},{note}", field(figure));
    };
    for metric in metric::all().iter().chain(of_plan) {
        row(&metric.id, metric.of(summary), metric.unit.name());
    }
    for (name, component) in &summary.components {
        for (figure, unit, read) in COMPONENT {
            row(&format!("{name}.{figure}"), read(component).into(), unit.name());
        }
    }
    for (name, probe) in &summary.probes {
        for (figure, value) in
            [("first", probe.first), ("last", probe.last), ("max", probe.max), ("mean", probe.mean)]
        {
            row(&format!("{name}.{figure}"), value.into(), "number");
        }
    }
    for (load, l) in &summary.by_load {
        row(&format!("load.{load}.due"), Value::Known(l.requests.due as f64), "count");
        row(&format!("load.{load}.dropped"), Value::Known(l.requests.dropped as f64), "count");
        row(&format!("load.{load}.failed"), metric::failed_of_load(summary, load), "count");
        row(&format!("load.{load}.goodput"), Value::Known(l.rate_per_s.ok), "per_s");
        for figure in ["mean", "p50", "p95", "p99", "max"] {
            row(&format!("load.{load}.{figure}"), metric::figure(&l.response_ms, figure), "ms");
        }
    }
    for (tag, t) in &summary.by_tag {
        row(&format!("tag.{tag}.requests"), Value::Known(t.requests.started as f64), "count");
        row(&format!("tag.{tag}.failed"), Value::Known(t.requests.failed as f64), "count");
        for figure in ["mean", "p50", "p95", "p99", "max"] {
            row(&format!("tag.{tag}.{figure}"), metric::figure(&t.response_ms, figure), "ms");
        }
    }
    for (name, number) in &summary.numbers {
        for figure in NumberSummary::FIGURES {
            let unit = if figure == "count" { "count" } else { "number" };
            row(&format!("number.{name}.{figure}"), metric::number(number, figure), unit);
        }
    }
    if let Some(why) = trouble {
        let _ = writeln!(out, "{lead},{verdict},trouble,,,{}", field(why));
    }
}

/// A field of RFC 4180: quoted if it must be, or if a spreadsheet would take it for a formula.
fn field(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let formula = text.starts_with(['=', '+', '-', '@']);
    let text = if formula { format!("'{text}") } else { text };
    match text.contains([',', '"']) || formula {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::comparison::compare::{Options, Side, compare};
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::documents::summary::{Requests, Verdict};

    use super::*;

    #[test]
    fn ratios_within_rounds_are_paired_however_they_are_judged() {
        let mut trial = summarise(TrialInput::default());
        (trial.doubts, trial.verdict) = (Vec::new(), Verdict::None);
        trial.requests = Requests { started: 1000, ok: 1000, ..Requests::default() };
        trial.rate_per_s.ok = 100.0;
        let side = |name| Side::of(name, (1..=2).map(|round| (round, Some(&trial))));
        let found = compare(&side("old"), &side("new"), Method::Paired, &[], Options::default());
        for (method, expect) in [(Method::Paired, true), (Method::Sequential, true), (Method::Welch, false)] {
            let text = comparisons_json(&[Comparison { method, ..found.clone() }]);
            let document: Json = serde_json::from_str(&text).unwrap();
            assert_eq!(document["comparisons"][0]["figures"][0]["paired"], expect, "{method:?}");
        }
    }

    #[test]
    fn fields_stay_fields() {
        for (text, expect) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"\n", "\"say \"\"x\"\" \""),
            ("=cmd()", "\"'=cmd()\""),
            ("", ""),
        ] {
            assert_eq!(field(text), expect);
        }
    }
}
