//! What readings of memory resolve. The kernel charges a control group's memory ahead, so a smaller difference says
//! nothing, however many trials have it: it is not called.
//!
//! It knows nothing of chance: what trials show by chance is for the tests, and for the control.

use loadlab_record::documents::summary::Summary;
use loadlab_record::text::units::format_bytes;

use crate::cases::metric::{CHARGED_AHEAD_BYTES, Metric};
use crate::comparison::compare::{Call, Comparison, Row};
use crate::comparison::control::is_called;

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
            "the difference is smaller than {}, and memory is not known more exactly: the kernel charges it ahead, \
             by up to {} for each core and component",
            format_bytes(resolution),
            format_bytes(CHARGED_AHEAD_BYTES)
        )
    })
}

impl Comparison {
    /// Takes back verdicts on differences that the readings do not resolve; parts in which such a difference was looked
    /// for are dropped.
    pub(crate) fn without_unresolved(
        mut self,
        base: &[(u32, &Summary)],
        other: &[(u32, &Summary)],
    ) -> Comparison {
        let take_back = |row: &mut Row| {
            let ratio = row.effect.filter(|_| is_called(row.call)).map(|effect| effect.value);
            let why = ratio.and_then(|ratio| unresolved(&row.metric, ratio, base, other));
            let is_taken_back = why.is_some();
            if is_taken_back {
                (row.call, row.note) = (Call::CannotTell, why);
            }
            is_taken_back
        };
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

#[cfg(test)]
mod tests {
    use loadlab_record::documents::figure::{Better, NumberKind};
    use loadlab_record::documents::manifest::{FigureFacts, UntilCertain};
    use loadlab_record::documents::summary::{ComponentSummary, MemorySummary, Verdict};

    use super::*;
    use crate::comparison::compare::{Method, Options, Side, compare};
    use crate::comparison::design::Design;
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

    #[test]
    fn figures_of_a_plan_are_known_as_exactly_as_the_readings_they_add_up() {
        let summary = trials(2, &[1200.0, 1200.0]).swap_remove(0);
        let check = |value: &str, kind: NumberKind, kib: f64| {
            let (name, better) = ("figure".to_owned(), Better::Less);
            let facts = FigureFacts { name, value: value.to_owned(), kind, unit: None, better, about: None };
            assert_eq!(Metric::of_plan(&facts).resolution(&summary), kib * 1024.0, "{value}");
        };
        check("web0.memory", NumberKind::Bytes, 512.0);
        check("web0.memory.max[drain]", NumberKind::Bytes, 512.0);
        check("web0.memory.mean + web1.memory.last", NumberKind::Bytes, 1024.0);
        // A share of a reading is known more exactly, and a limit exactly.
        check("web0.memory / ok", NumberKind::Bytes, 0.0);
        check("web0.memory.limit", NumberKind::Bytes, 0.0);
        check("elsewhere.memory", NumberKind::Bytes, 0.0);
        check("p99", NumberKind::Duration, 0.0);
    }
}
