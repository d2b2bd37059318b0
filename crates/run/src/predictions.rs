//! Predicts, before a run, what it will not be able to decide: expectations of percentiles that need more requests than
//! there will be, and differences between cases with too few trials.
//!
//! The number of requests is known for schedules and for loads limited by count. A closed load with a duration sends as
//! many as the system can handle, so only the required rate is reported for it. Nothing here reads a clock or a file.

use loadlab_analysis::cases::case::TRIALS_FOR_DIFFERENCES;
use loadlab_plan::{Case, LoadSpec, Model, Plan, Step, Until, planned_end_ns};
use loadlab_record::counts::load::Window;
use loadlab_record::counts::quantile::{quantile_of, ranks, samples_needed};
use loadlab_record::expr::{Expr, NameRef, SERIES_PREFIXES, TrialPart};
use loadlab_record::text::units::{format_count, format_duration_ns, significant};

use crate::rounds;

/// Something a run cannot decide, or may not be able to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// The prediction, in words.
    pub text: String,
    /// What the prediction is based on.
    pub basis: Basis,
}

/// What a prediction is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The number of requests the plan makes due.
    Requests,
    /// A rate that the system may or may not reach.
    Rate,
    /// The number of trials.
    Trials,
}

/// All predictions, each listed once, naming the cases it applies to unless it applies to all.
pub fn predict(plan: &Plan) -> Vec<Prediction> {
    let mut found: Vec<(Prediction, Vec<&str>)> = Vec::new();
    for case in plan.own_cases() {
        for prediction in case.expect.iter().filter_map(|e| of_expectation(case, e.text.as_str())) {
            match found.iter_mut().find(|(known, _)| *known == prediction) {
                Some((_, cases)) => cases.push(&case.name),
                None => found.push((prediction, vec![&case.name])),
            }
        }
    }
    let all = plan.own_cases().len();
    let named = |(mut prediction, cases): (Prediction, Vec<&str>)| {
        if cases.len() < all {
            let more = if cases.len() > 1 { format!(" and {} more", cases.len() - 1) } else { String::new() };
            prediction.text = format!("case “{}”{more}: {}", cases[0], prediction.text);
        }
        prediction
    };
    let mut out: Vec<Prediction> = found.into_iter().map(named).collect();
    out.extend(differences(plan));
    out
}

fn differences(plan: &Plan) -> Option<Prediction> {
    if plan.until_certain.is_some() {
        return rounds::check(plan).err().map(|text| Prediction { text, basis: Basis::Trials });
    }
    let trials = plan.trials as usize;
    let too_few = plan.cases().len() > 1 && trials < TRIALS_FOR_DIFFERENCES && !plan.quick;
    let text = format!(
        "{} of each case: too few to tell cases from chance (at least {TRIALS_FOR_DIFFERENCES} are needed; `--trials \
         {TRIALS_FOR_DIFFERENCES}`)",
        loadlab_record::text::units::plural(trials as u64, "trial", "trials")
    );
    too_few.then_some(Prediction { text, basis: Basis::Trials })
}

/// The prediction for the percentile in an expectation that is furthest from having enough samples.
fn of_expectation(case: &Case, text: &str) -> Option<Prediction> {
    let expr = Expr::parse(text).ok()?;
    let lacking = expr.names().into_iter().filter_map(|name| of_name(case, &name));
    let (_, lacking) = lacking.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(Prediction { text: format!("`{text}`: {}", lacking.text), ..lacking })
}

/// How many times more requests a percentile needs, and the prediction.
fn of_name(case: &Case, name: &NameRef) -> Option<(f64, Prediction)> {
    let (prefix, figure) = name.text.rsplit_once('.').unwrap_or(("response", &name.text));
    let quantile = quantile_of(figure)?;
    let tag = prefix.strip_prefix("tag.");
    // The number of connects and failures is not known in advance.
    let is_of_all = ["response", "ok", "service", "late", "blocked"].contains(&prefix);
    if tag.is_none() && !(is_of_all && SERIES_PREFIXES.contains(&prefix)) {
        return None;
    }
    let tag = tag.map(|tag| tag.strip_suffix(".ok").unwrap_or(tag));
    let part_s = match name.part {
        None => None,
        Some(TrialPart::Window(window)) => {
            let end_s = planned_end_ns(&case.loads).map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
            Some(Window { to_s: window.to_s.min(end_s), ..window }.length_s())
        }
        // How long batches and drains take is unknown.
        Some(TrialPart::Batch(_) | TrialPart::Drain) => return None,
    };
    let dues: Vec<DueRequests> = case.loads.iter().map(|load| DueRequests::of(load, tag)).collect();
    let most_s = dues.iter().map(|due| due.lasts_s).fold(0.0, f64::max);
    let lasts_s = part_s.unwrap_or(most_s);
    let known = dues.iter().map(|due| match part_s {
        // A part of a schedule gets a proportional share of the requests; in a load limited by count, the timing is
        // unknown.
        Some(part_s) if due.lasts_s > 0.0 => due.requests.map(|n| n * (part_s / due.lasts_s).min(1.0)),
        Some(_) => None,
        None => due.requests,
    });
    let needed = samples_needed(quantile);
    let figure = figure.replace('_', ".");
    let shown = name.text.rsplit_once('.').map_or(figure.clone(), |(prefix, _)| format!("{prefix}.{figure}"));
    let many = |n: f64| format_count(n);
    match known.sum::<Option<f64>>() {
        Some(due) if due >= needed as f64 => None,
        Some(due) => {
            let due = due.floor().max(0.0);
            let times = needed as f64 / due.max(1.0);
            let longer = match lasts_s > 0.0 && due > 0.0 {
                true => format!(", which takes {}", format_duration_ns((lasts_s * times * 1e9).ceil())),
                false => String::new(),
            };
            // Without an upper end the interval is never below any limit.
            let open = match ranks(due as u64, quantile, 1.0).high {
                None => "an upper limit cannot be met, only missed or left undecided",
                Some(_) => "it may be left undecided",
            };
            let text = format!(
                "{} requests are due, and {shown} needs {}{longer}: {open}",
                many(due),
                many(needed as f64)
            );
            Some((times, Prediction { text, basis: Basis::Requests }))
        }
        None if lasts_s > 0.0 => {
            let rate = significant(needed as f64 / lasts_s, 3).parse().unwrap_or(0.0);
            let text = format!(
                "{shown} needs {} requests, {}/s over {}; with fewer it may be left undecided",
                many(needed as f64),
                format_count(rate),
                format_duration_ns(lasts_s * 1e9)
            );
            Some((1.0, Prediction { text, basis: Basis::Rate }))
        }
        None => None,
    }
}

/// Requests due in the measured window of a load.
struct DueRequests {
    /// `None`: as many as the system can handle.
    requests: Option<f64>,
    /// Length of the measured window in seconds; 0 if the load ends by count.
    lasts_s: f64,
}

impl DueRequests {
    /// For all requests, or, with a tag, for the share of the journey's requests that have it.
    fn of(load: &LoadSpec, tag: Option<&str>) -> DueRequests {
        let a_journey = in_a_round(load, &Step::requests);
        let wanted = |step: &Step| tag.map_or_else(|| step.requests(), |tag| step.requests_in(tag));
        let share = if a_journey > 0.0 { in_a_round(load, &wanted) / a_journey } else { 0.0 };
        let batches = f64::from(load.batches);
        let requests = |each: f64| Some(each * share * batches);
        let ns = match load.until {
            Until::Requests(n) => {
                // Of sessions they are users, each of whom makes a journey.
                let each = if matches!(load.model, Model::Sessions { .. }) { a_journey } else { 1.0 };
                return DueRequests { requests: requests(n as f64 * each), lasts_s: 0.0 };
            }
            Until::Repeats(n) => {
                let users = if let Model::Closed { users, .. } = load.model { users } else { 1 };
                let each = n as f64 * users as f64 * a_journey;
                return DueRequests { requests: requests(each), lasts_s: 0.0 };
            }
            Until::Elapsed(ns) => ns,
        };
        let (all_s, warm_s) = (ns as f64 / 1e9, load.warmup_ns.min(ns) as f64 / 1e9);
        let lasts_s = all_s - warm_s;
        let per_level = match load.model {
            Model::Open { .. } => Some(1.0),
            Model::Sessions { .. } => Some(a_journey),
            // The number that are due; users still waiting for an answer send fewer.
            Model::Closed { pace_ns: Some(pace_ns), .. } if pace_ns > 0 => Some(1e9 / pace_ns as f64),
            Model::Closed { .. } | Model::Command(_) => None,
        };
        // Assumes that a warm-up removes the same share of the stages as of the time.
        let levels = level_seconds(load, all_s) * if all_s > 0.0 { lasts_s / all_s } else { 0.0 };
        DueRequests { requests: per_level.and_then(|n| requests(n * levels)), lasts_s: lasts_s * batches }
    }
}

/// Sum over a round's steps; where a round takes one of them by weight, their weighted mean.
fn in_a_round(load: &LoadSpec, of_step: &dyn Fn(&Step) -> u64) -> f64 {
    if !load.script.is_mix {
        return load.journey.iter().map(of_step).sum::<u64>() as f64;
    }
    let weight = |step: &Step| f64::from(step.weight.unwrap_or(0));
    let all: f64 = load.journey.iter().map(weight).sum();
    let weighted: f64 = load.journey.iter().map(|step| weight(step) * of_step(step) as f64).sum();
    if all > 0.0 { weighted / all } else { 0.0 }
}

/// ∫ level dt over the duration of a load, where level is users or requests per second.
fn level_seconds(load: &LoadSpec, all_s: f64) -> f64 {
    if !load.stages.is_empty() {
        return load.stages.iter().map(|s| (s.from + s.to) / 2.0 * s.over_ns as f64 / 1e9).sum();
    }
    let level = match load.model {
        Model::Closed { users, .. } => users as f64,
        Model::Open { rate_per_s, .. } | Model::Sessions { rate_per_s, .. } => rate_per_s,
        Model::Command(_) => 0.0,
    };
    let ramp_s = (load.ramp_ns as f64 / 1e9).min(all_s);
    level * (all_s - ramp_s / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(load: &str, rest: &str) -> Vec<String> {
        let text = format!(
            "loadlab: 1\nname: x\nload:\n  journey: [{{ get: \"http://127.0.0.1:1/\", tags: [a] }}, {{ get: \"http://127.0.0.1:1/\" }}]\n  {load}\n{rest}\n"
        );
        let plan = Plan::parse("plan.yaml", &text, &loadlab_plan::Options::default());
        let plan = plan.unwrap_or_else(|e| panic!("{text}{e}"));
        predict(&plan)
            .into_iter()
            .map(|f| format!("{}{}", if f.basis == Basis::Rate { "? " } else { "" }, f.text))
            .collect()
    }

    #[test]
    fn what_a_plan_cannot_decide() {
        let check = |load: &str, expect: &str, said: &[&str]| {
            assert_eq!(of(load, &format!("expect: [\"{expect}\"]")), said, "{load}, {expect}");
        };
        let rate = "{ rate: 100/s, duration: 10s }".trim_matches(['{', '}', ' ']).replace(", ", "\n  ");
        check(&rate, "p99 < 1s", &[]);
        check(&rate, "errors < 1%", &[]);
        check(
            &rate,
            "p99.9 < 1s",
            &[
                "`p99.9 < 1s`: 1,000 requests are due, and p99.9 needs 10,000, which takes 1m40s: an upper limit cannot be met, only missed or left undecided",
            ],
        );
        check(
            &rate,
            "tag.a.p99 < 1s",
            &[
                "`tag.a.p99 < 1s`: 500 requests are due, and tag.a.p99 needs 1,000, which takes 20.0 s: it may be left undecided",
            ],
        );
        check(
            &rate,
            "p95[2s..3s] < 1s and p99[2s..4s] < 1s",
            &[
                "`p95[2s..3s] < 1s and p99[2s..4s] < 1s`: 200 requests are due, and p99 needs 1,000, which takes 10.0 s: an upper limit cannot be met, only missed or left undecided",
            ],
        );
        check(
            "rate: 100/s\n  duration: 10s\n  warmup: 5s",
            "p99 < 1s",
            &[
                "`p99 < 1s`: 500 requests are due, and p99 needs 1,000, which takes 10.0 s: it may be left undecided",
            ],
        );
        check(
            "users: 5\n  requests: 300",
            "p99 < 1s",
            &[
                "`p99 < 1s`: 300 requests are due, and p99 needs 1,000: an upper limit cannot be met, only missed or left undecided",
            ],
        );
        check("users: 5\n  repeats: 100", "p99 < 1s", &[]);
        check(
            "users: 5\n  duration: 10s",
            "p99 < 1s",
            &[
                "? `p99 < 1s`: p99 needs 1,000 requests, 100/s over 10.0 s; with fewer it may be left undecided",
            ],
        );
        check("users: 10\n  pace: 1s\n  duration: 10s", "p90 < 1s", &[]);
        check(
            "stages: [{ to: 10, over: 10s }]\n  pace: 1s",
            "p90 < 1s",
            &[
                "`p90 < 1s`: 50 requests are due, and p90 needs 100, which takes 20.0 s: it may be left undecided",
            ],
        );
        check("users: 5\n  duration: 10s", "connect.p99 < 1s", &[]);
    }

    #[test]
    fn cases_and_trials() {
        let axes =
            "trials: 3\nmatrix: [{ name: slow, n: 10 }, { name: fast, n: 1000 }]\nexpect: [\"p99 < 1s\"]";
        assert_eq!(
            of("users: 5\n  requests: \"${case.n}\"", axes),
            [
                "case “slow”: `p99 < 1s`: 10 requests are due, and p99 needs 1,000: an upper limit cannot be met, only missed or left undecided",
                "3 trials of each case: too few to tell cases from chance (at least 5 are needed; `--trials 5`)"
            ]
        );
        assert_eq!(of("users: 5\n  requests: 10", "trials: 1"), [] as [&str; 0]);
    }
}
