//! What readings of memory resolve. The kernel charges a control group's memory ahead, so a smaller difference says
//! nothing, however many trials have it: it is not called, and no trials are asked for that would show it.
//!
//! It knows nothing of chance: what trials show by chance is for the tests, and for the control.

use loadlab_record::documents::summary::Summary;
use loadlab_record::text::units::format_bytes;

use crate::cases::metric::{CHARGED_AHEAD_BYTES, Metric};
use crate::comparison::compare::{Comparison, Row};
use crate::comparison::control::is_called;
use crate::comparison::interval::{Call, EquivalenceBounds};

/// Why other and base with this ratio are not called different, in words; `None` if the readings resolve it. The
/// coarser of the two decides.
pub(crate) fn unresolved(
    metric: &Metric,
    ratio: f64,
    base: &[(u32, &Summary)],
    other: &[(u32, &Summary)],
) -> Option<String> {
    let resolution = base.iter().chain(other).map(|trial| metric.resolution(trial.1)).fold(0.0, f64::max);
    // Ratios are of geometric means.
    let values = base.iter().filter_map(|trial| metric.of(trial.1).known());
    let logs: Vec<f64> = values.filter(|value| *value > 0.0).map(f64::ln).collect();
    let level = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
    let is_smaller = level * (ratio - 1.0).abs() < resolution;
    is_smaller.then(|| {
        format!(
            "the difference is smaller than {}, and memory is not known more exactly: the kernel charges a cgroup's \
             memory ahead, by up to {} for each core and component",
            format_bytes(resolution),
            format_bytes(CHARGED_AHEAD_BYTES)
        )
    })
}

impl Comparison {
    /// Takes back verdicts on differences that the readings do not resolve. No number of trials settles them, so they
    /// do not decide; parts in which such a difference was looked for are dropped. Nor does any number settle such a
    /// difference that is not certain yet, unless it may turn out to be the same.
    pub(crate) fn without_unresolved(
        mut self,
        base: &[(u32, &Summary)],
        other: &[(u32, &Summary)],
    ) -> Comparison {
        let take_back = |row: &mut Row| {
            let Some(why) = why_unresolved(row, base, other).filter(|_| is_called(row.call)) else {
                return false;
            };
            (row.call, row.decides) = (Call::CannotTell, false);
            add_note(row, why);
            true
        };
        let margin = self.options.equivalence_margin;
        for row in self.rows.iter_mut().filter(|row| row.trials_needed.is_some()) {
            if let Some(why) = why_unresolved(row, base, other).filter(|_| !is_inside(row, margin)) {
                row.trials_needed = None;
                add_note(row, why);
            }
        }
        let taken_back = self.rows.iter_mut().map(take_back).filter(|is_taken_back| *is_taken_back).count();
        for part in &mut self.details {
            take_back(part);
        }
        if taken_back > 0 {
            let trials: Vec<&Summary> = base.iter().chain(other).map(|trial| trial.1).collect();
            self.keep_parts_of_called(&trials);
        }
        self
    }
}

fn why_unresolved(row: &Row, base: &[(u32, &Summary)], other: &[(u32, &Summary)]) -> Option<String> {
    unresolved(&row.metric, row.effect?.value, base, other)
}

/// Whether the ratio as estimated counts as the same.
fn is_inside(row: &Row, margin: f64) -> bool {
    let same = EquivalenceBounds::of(row.scale, margin);
    row.effect.is_some_and(|effect| (same.low..=same.high).contains(&effect.value.ln()))
}

fn add_note(row: &mut Row, why: String) {
    row.note = Some(match row.note.take() {
        Some(note) => format!("{note}; {why}"),
        None => why,
    });
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::figure::{Better, FigureValue, NumberKind};
    use loadlab_record::documents::manifest::{FigureFacts, UntilCertain};
    use loadlab_record::documents::summary::{ComponentSummary, MemorySummary, Verdict};

    use super::*;
    use crate::comparison::compare::{Options, Side, compare};
    use crate::comparison::design::Design;
    use crate::comparison::interval::Method;
    use crate::{TrialInput, summarise};

    const ROUNDS: u32 = 24;

    /// Trials on a machine with these cores. Each component has this much memory, give or take a little.
    fn trials(cores: u64, components_kib: &[f64]) -> Vec<Summary> {
        let of = |round: u32| {
            let mut summary = summarise(TrialInput::default());
            (summary.doubts, summary.verdict) = (Vec::new(), Verdict::None);
            summary.generator.machine_cores = Some(cores);
            for (place, kib) in components_kib.iter().enumerate() {
                let max = kib * 1024.0 * (1.0 + f64::from(round % 3) / 10_000.0);
                let memory_bytes = MemorySummary { max: Some(max), ..MemorySummary::default() };
                let component = ComponentSummary { memory_bytes, ..ComponentSummary::default() };
                summary.components.insert(format!("web{place}"), component);
            }
            summary
        };
        (1..=ROUNDS).map(of).collect()
    }

    fn side<'a>(name: &str, trials: &'a [Summary]) -> Side<'a> {
        Side::of(name, (1..).zip(trials).map(|(round, summary)| (round, Some(summary))))
    }

    #[test]
    fn memory_is_called_different_only_beyond_what_the_kernel_charges_ahead() {
        let check = |cores: [u64; 2], base_kib: &[f64], other_kib: &[f64], expect: Call| {
            let (of_base, of_other) = (trials(cores[0], base_kib), trials(cores[1], other_kib));
            let (base, other) = (side("old", &of_base), side("new", &of_other));
            let until = UntilCertain { within: 0.02, budget_s: None, seed: 7, ended: None };
            let design = Design::new(&until, ROUNDS, 1, &[]);
            for found in [
                compare(&base, &other, Method::Paired, &[], Options::default()),
                compare(&base, &other, Method::Welch, &[], Options::default()),
                design.compare(&base, &other, None, Options::default()),
            ] {
                let about = format!("{:?}, {cores:?}: {base_kib:?} and {other_kib:?}", found.method);
                let row = found.rows.iter().find(|row| row.metric.id == "memory_peak").expect("it is known");
                assert_eq!(row.call, expect, "{about}");
                let is_explained = row.note.as_ref().is_some_and(|note| note.contains("256 KiB"));
                assert_eq!(is_explained, expect == Call::CannotTell, "{about}: {:?}", row.note);
                assert!(row.effect.is_some() && row.trials_needed.is_none(), "{about}: {row:?}");
                let has_parts = found.differing_details().next().is_some();
                assert_eq!(has_parts, base_kib.len() > 1 && is_called(expect), "{about}");
            }
        };
        // 512 KiB on two cores
        check([2, 2], &[1200.0], &[1700.0], Call::CannotTell);
        check([2, 2], &[1700.0], &[1200.0], Call::CannotTell);
        check([2, 2], &[1200.0], &[1730.0], Call::Worse);
        check([2, 2], &[1730.0], &[1200.0], Call::Better);
        check([2, 2], &[1200.0], &[1200.0], Call::Same);
        // The larger machine decides: 16 MiB on 64 cores.
        check([64, 2], &[100_000.0], &[116_000.0], Call::CannotTell);
        check([2, 64], &[100_000.0], &[116_000.0], Call::CannotTell);
        check([64, 64], &[100_000.0], &[117_000.0], Call::Worse);
        // The peaks of two components add up, and so does what is charged ahead.
        check([2, 2], &[1200.0, 1200.0], &[2200.0, 1200.0], Call::CannotTell);
        check([2, 2], &[1200.0, 1200.0], &[2300.0, 1200.0], Call::Worse);
    }

    fn facts(name: &str, value: &str, kind: NumberKind) -> FigureFacts {
        let (name, value, better) = (name.to_owned(), value.to_owned(), Better::Less);
        FigureFacts { name, value, kind, unit: None, better, about: None }
    }

    /// The first trials, with a figure of the plan that is this much memory, by turns more and less by e^noise.
    fn noisy(count: usize, kib: f64, noise: f64) -> Vec<Summary> {
        let mut all = trials(2, &[kib]);
        all.truncate(count);
        for (place, summary) in all.iter_mut().enumerate() {
            let factor = if place % 2 == 0 { (-noise).exp() } else { noise.exp() };
            let value = FigureValue { value: Some(kib * 1024.0 * factor), ..FigureValue::default() };
            summary.figures.insert("held".to_owned(), value);
        }
        all
    }

    /// A design that may have many more rounds than there are.
    fn design_of_held() -> Design {
        let until = UntilCertain { within: 0.02, budget_s: None, seed: 7, ended: None };
        Design::new(&until, 200, 1, &[facts("held", "web0.memory", NumberKind::Bytes)])
    }

    /// The plan's figure by all three methods: the other case has a tenth more of it.
    fn held(kib: f64, noise: f64) -> Vec<Row> {
        let (of_base, of_other) = (noisy(24, kib, 0.0), noisy(24, kib * 1.1, noise));
        let (base, other) = (side("old", &of_base), side("new", &of_other));
        let figures = [Metric::of_plan(&facts("held", "web0.memory", NumberKind::Bytes))];
        let all = [
            compare(&base, &other, Method::Paired, &figures, Options::default()),
            compare(&base, &other, Method::Welch, &figures, Options::default()),
            design_of_held().compare(&base, &other, None, Options::default()),
        ];
        let row = |found: Comparison| found.rows.into_iter().find(|row| row.metric.id == "held");
        all.into_iter().filter_map(row).collect()
    }

    #[test]
    fn a_difference_that_is_not_resolved_does_not_decide() {
        let check = |kib: f64, expect: (Call, bool)| {
            let rows = held(kib, 0.0);
            let got: Vec<(Call, bool)> = rows.iter().map(|row| (row.call, row.decides)).collect();
            assert_eq!(got, [expect; 3], "{kib}");
            assert!(rows.iter().all(|row| row.trials_needed.is_none()), "{rows:?}");
        };
        check(1200.0, (Call::CannotTell, false));
        check(1_200_000.0, (Call::Worse, true));
    }

    #[test]
    fn no_trials_are_asked_for_that_would_show_what_is_not_resolved() {
        // In noise: a tenth, of which the readings resolve nothing, and of which they do.
        for (kib, is_resolved) in [(1200.0, false), (1_200_000.0, true)] {
            for row in held(kib, 0.4) {
                let got = (row.call, row.trials_needed.is_some(), row.note.is_none());
                assert_eq!(got, (Call::CannotTell, is_resolved, is_resolved), "{row:?}");
            }
            let standing = |rounds: usize| {
                let (of_base, of_other) = (noisy(rounds, kib, 0.0), noisy(rounds, kib * 1.1, 0.4));
                let (base, other) = (side("old", &of_base), side("new", &of_other));
                design_of_held().deciding(&base, &other, None).swap_remove(0)
            };
            let late = standing(24);
            assert_eq!((late.is_open(), late.more().is_some()), (is_resolved, is_resolved), "{late:?}");
            assert_eq!(late.why_unresolved().is_none(), is_resolved, "{late:?}");
            // The rest of the rounds are not given up after the first few.
            let early = standing(4);
            assert_eq!((early.is_open(), early.more().is_some()), (true, is_resolved), "{early:?}");
        }
        // What may turn out to be the same is worth more trials.
        let (of_base, of_other) = (noisy(24, 1200.0, 0.0), noisy(24, 1201.0, 0.1));
        let (base, other) = (side("old", &of_base), side("new", &of_other));
        let standing = design_of_held().deciding(&base, &other, None).swap_remove(0);
        assert!(standing.is_open() && standing.why_unresolved().is_none(), "{standing:?}");
    }

    #[test]
    fn a_reason_is_added_to_what_was_noted() {
        let mut row = held(1200.0, 0.0).swap_remove(0);
        row.note = Some("first".to_owned());
        add_note(&mut row, "second".to_owned());
        assert_eq!(row.note.as_deref(), Some("first; second"));
    }

    #[test]
    fn figures_of_a_plan_are_known_as_exactly_as_the_readings_they_add_up() {
        let summary = trials(2, &[1200.0, 1200.0]).swap_remove(0);
        let check = |value: &str, kind: NumberKind, kib: f64| {
            let metric = Metric::of_plan(&facts("figure", value, kind));
            assert_eq!(metric.resolution(&summary), kib * 1024.0, "{value}");
        };
        check("web0.memory", NumberKind::Bytes, 512.0);
        check("web0.memory.max[drain]", NumberKind::Bytes, 512.0);
        check("web0.memory.mean + web1.memory.last", NumberKind::Bytes, 1024.0);
        check("web0.memory[drain] - web0.memory", NumberKind::Bytes, 1024.0);
        check("web0.memory - 10MiB", NumberKind::Bytes, 512.0);
        // A multiple is known less exactly, and a part more.
        check("2 * web0.memory - web1.memory", NumberKind::Bytes, 1536.0);
        check("(web0.memory + web1.memory) / 4", NumberKind::Bytes, 256.0);
        // A limit is known exactly; how exactly these are known is not worked out.
        check("web0.memory / ok", NumberKind::Bytes, 0.0);
        check("web0.memory * web1.memory / web0.memory", NumberKind::Bytes, 0.0);
        check("another_figure + web0.memory", NumberKind::Bytes, 0.0);
        check("web0.memory.limit", NumberKind::Bytes, 0.0);
        check("elsewhere.memory", NumberKind::Bytes, 0.0);
        check("p99", NumberKind::Duration, 0.0);
    }
}
