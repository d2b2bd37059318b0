//! Reads the outcome of a revision's trial: the figure's value, that the trial does not count, or that the revision
//! cannot be tested.

use loadlab_analysis::Exit;
use loadlab_analysis::trial::judge::was_unreachable;
use loadlab_record::documents::figure::FigureValue;
use loadlab_record::documents::summary::{Ended, Summary, Verdict};

/// The figure's value in a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    pub value: f64,
    /// `value` is a lower bound: the figure falls among requests that never ended.
    pub is_at_least: bool,
}

/// The outcome of a revision's trial.
#[derive(Debug)]
pub enum Measured {
    Value(Reading),
    Invalid,
    /// It does not build, does not come up, or nothing can connect to it.
    Skipped(String),
}

/// Why a trial gives no value.
#[derive(Debug)]
pub enum Unusable {
    /// The trial says something about its revision, or can be repeated.
    Measured(Measured),
    /// The trial says nothing about its revision, and others would fare no better.
    Failed(String),
}

/// The summary of a trial, if the trial counts.
pub fn usable(summary: Option<Summary>, exit: Exit, why: Option<String>) -> Result<Summary, Unusable> {
    let skipped =
        |or: &str| Unusable::Measured(Measured::Skipped(why.clone().unwrap_or_else(|| or.to_owned())));
    let failed = || Unusable::Failed(why.clone().unwrap_or_default());
    let Some(summary) = summary else {
        return Err(if exit == Exit::CouldNotRun { failed() } else { skipped("nothing was measured") });
    };
    match exit {
        // The revision's system came up, but accepts no connection.
        Exit::CouldNotRun if was_unreachable(&summary) => Err(skipped("nothing can connect to it")),
        Exit::CouldNotRun => Err(failed()),
        _ if !matches!(summary.ended, Ended::Complete | Ended::Stopped) => {
            Err(skipped("the system broke during the load"))
        }
        _ if summary.verdict == Verdict::Invalid => Err(Unusable::Measured(Measured::Invalid)),
        _ => Ok(summary),
    }
}

/// The value of a figure in a trial. Of a figure that falls among requests that never ended, only a lower bound is
/// known.
pub fn reading_of(name: &str, figure: Option<&FigureValue>) -> Result<Reading, String> {
    let exact = figure.and_then(|f| f.value).map(|value| Reading { value, is_at_least: false });
    let least = || Some(Reading { value: figure?.at_least?, is_at_least: true });
    exact.or_else(least).ok_or_else(|| {
        let few = figure.and_then(|figure| figure.few);
        let why = match few {
            Some(few) => format!("it needs {} requests, and there were {}", few.needed, few.samples),
            None => figure.and_then(|f| f.note.clone()).unwrap_or_else(|| "nothing reports it".to_owned()),
        };
        let hint = "a longer load, or a figure that takes fewer requests";
        format!("`{name}` is not known in a trial: {why}\nhint: {hint}")
    })
}

/// The first trial whose value is a lower bound that may mislead the search if it is taken as exact. A bound that is
/// nearer to the higher end than to the lower one does not: the true value is even further on that side. All values are
/// on the search's scale. `None` until both ends are measured.
pub fn misleading(trials: &[(usize, Reading)], last: usize) -> Option<usize> {
    let level = |end: usize| {
        let mut own: Vec<f64> = trials.iter().filter(|t| t.0 == end).map(|t| t.1.value).collect();
        own.sort_by(f64::total_cmp);
        own.get(own.len() / 2).copied()
    };
    let (good, bad) = (level(0)?, level(last)?);
    let lower = if good <= bad { 0 } else { last };
    let middle = (good + bad) / 2.0;
    trials.iter().position(|(revision, reading)| {
        reading.is_at_least && (*revision == lower || reading.value <= middle)
    })
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::Failure;
    use loadlab_record::counts::quantile::FewSamples;

    use super::*;

    #[test]
    fn a_revision_that_lets_no_one_connect_is_skipped() {
        let none = || summarise(TrialInput { ended: Ended::Complete, ..TrialInput::default() });
        let refused = |ended: Ended| {
            let mut summary = none();
            summary.failures.add(Failure::Connect, 3);
            summary.requests.failed = 3;
            summary.ended = ended;
            summary
        };
        let mut half = refused(Ended::Complete);
        (half.requests.ok, half.connections.opened) = (5, 2);
        let mut own = refused(Ended::Complete);
        own.connections.own_limits.ports = 3;
        // Given up early: the requests that were still in flight failed in another way.
        let mut given_up = refused(Ended::Broken);
        given_up.requests.failed = 4;
        let mut invalid = none();
        invalid.verdict = Verdict::Invalid;
        for (what, summary, exit, expect) in [
            ("unreachable", Some(refused(Ended::Complete)), Exit::CouldNotRun, "skipped"),
            ("given up", Some(given_up), Exit::CouldNotRun, "skipped"),
            ("out of ports", Some(own), Exit::CouldNotRun, "trouble"),
            ("record lost", Some(none()), Exit::CouldNotRun, "trouble"),
            ("record lost, some refused", Some(half), Exit::CouldNotRun, "trouble"),
            ("never began", None, Exit::CouldNotRun, "trouble"),
            ("not up", None, Exit::NotUp, "skipped"),
            ("died", Some(Summary { ended: Ended::Broken, ..none() }), Exit::Failed, "skipped"),
            ("invalid", Some(invalid), Exit::Invalid, "invalid"),
            ("measured", Some(none()), Exit::Failed, "usable"),
        ] {
            let got = match usable(summary, exit, Some("why".to_owned())) {
                Ok(_) => "usable",
                Err(Unusable::Measured(Measured::Skipped(_))) => "skipped",
                Err(Unusable::Measured(Measured::Invalid)) => "invalid",
                Err(Unusable::Measured(Measured::Value(_))) => "measured",
                Err(Unusable::Failed(_)) => "trouble",
            };
            assert_eq!(got, expect, "{what}");
        }
    }

    #[test]
    fn a_figure_in_a_trial_is_known_or_known_from_below() {
        let exact = FigureValue { value: Some(3.0), ..FigureValue::default() };
        let least = FigureValue { at_least: Some(900.0), ..FigureValue::default() };
        let few = FewSamples { samples: 40, needed: 100, needed_s: None };
        let few = FigureValue { few: Some(few), estimate: Some(7.0), ..FigureValue::default() };
        let reading = |value, is_at_least| Ok(Reading { value, is_at_least });
        for (figure, expect) in [
            (Some(&exact), reading(3.0, false)),
            (Some(&least), reading(900.0, true)),
            (Some(&few), Err("it needs 100 requests, and there were 40")),
            (None, Err("nothing reports it")),
        ] {
            match (reading_of("p99", figure), expect) {
                (Err(got), Err(expect)) => assert!(got.contains(expect), "{got}"),
                (got, expect) => assert_eq!(got.ok(), expect.ok()),
            }
        }
    }

    #[test]
    fn what_is_known_from_below_counts_where_it_cannot_lead_astray() {
        // Revision, value, and whether it is only a lower bound. The bad one is revision 9.
        type Trials = &'static [(usize, f64, bool)];
        let tables: [(Trials, Option<usize>); 10] = [
            (&[], None),
            (&[(0, 20.0, false), (9, 100.0, false), (5, 30.0, false)], None),
            // Only one end is measured.
            (&[(9, 30.0, true)], None),
            // Beyond the good end: how far does not matter.
            (&[(0, 20.0, false), (9, 1000.0, true)], None),
            (&[(0, 20.0, false), (9, 1000.0, true), (5, 800.0, true)], None),
            // It may be as bad as the bad end, but would count as good.
            (&[(0, 20.0, false), (9, 100.0, false), (5, 30.0, true)], Some(2)),
            // The bad end may be anywhere from below the good one upwards.
            (&[(0, 20.0, false), (9, 15.0, true)], Some(1)),
            (&[(0, 20.0, true), (9, 15.0, true)], Some(1)),
            // The other way round: it has become faster.
            (&[(0, 1000.0, true), (9, 20.0, false)], None),
            (&[(0, 1000.0, true), (9, 20.0, false), (5, 400.0, true)], Some(2)),
        ];
        for (trials, expect) in tables {
            let of = |(revision, value, is_at_least): &(usize, f64, bool)| {
                (*revision, Reading { value: *value, is_at_least: *is_at_least })
            };
            let trials: Vec<(usize, Reading)> = trials.iter().map(of).collect();
            assert_eq!(misleading(&trials, 9), expect, "{trials:?}");
        }
    }
}
