//! Rounds of trials until it is certain how the cases differ: which cases the next round measures, and how close the
//! comparisons are to being settled.

use loadlab_analysis::comparison::compare::Side;
use loadlab_analysis::comparison::design::{Design, Standing};
use loadlab_analysis::comparison::interval::Call;
use loadlab_analysis::comparison::pairs::{control_of, pairs};
use loadlab_load::random::Random;
use loadlab_plan::Plan;
use loadlab_record::documents::manifest::{Manifest, UntilEnded};
use loadlab_record::text::units::plural;

use crate::event::RunEvent;
use crate::manifest;
use crate::result::{ComparisonProgress, FigureProgress, TrialEnd};

/// The cases of each round in random order, as (case index, round from 1).
pub fn rounds_in_random_order(cases: usize, rounds: u32, seed: u64) -> Vec<(usize, u32)> {
    let of_round = |round: u32| {
        let mut random = Random::of(seed, u64::from(round));
        let mut order: Vec<usize> = (0..cases).collect();
        // Fisher-Yates shuffle. The bias of the remainder is below 2⁻⁵⁰.
        for left in (2..=cases).rev() {
            order.swap(left - 1, (random.next_u64() % left as u64) as usize);
        }
        order.into_iter().map(move |case| (case, round))
    };
    (1..=rounds).flat_map(of_round).collect()
}

/// Checks that the maximum number of rounds can settle anything at all, whatever is measured.
///
/// # Errors
/// The minimum number of rounds needed, in words.
pub fn check(plan: &Plan) -> Result<(), String> {
    let Some(until) = plan.until_certain.map(manifest::until_certain) else { return Ok(()) };
    let cases = || plan.cases().iter().filter(|case| case.control_of.is_none());
    let bases = match plan.revisions.first() {
        None => 1,
        Some(first) => {
            cases().filter(|case| case.values.last().is_some_and(|(_, v)| *v == first.name)).count()
        }
    };
    let comparisons = if bases == 0 { 0 } else { cases().count() - bases };
    if comparisons == 0 {
        let hint = "--case leaves out the cases of the first revision, or all but one case";
        return Err(format!("there is no case to compare with another\nhint: {hint}"));
    }
    let design = Design::new(&until, plan.trials, comparisons, &manifest::figures(plan));
    let fewest = design.fewest_rounds();
    if plan.trials as usize >= fewest {
        return Ok(());
    }
    Err(format!(
        "{} cannot settle anything, whatever is measured: this number of cases and of figures that matter takes at least {fewest}\n\
         hint: raise `trials.at_most`, or name fewer `figures`",
        plural(u64::from(plan.trials), "round", "rounds")
    ))
}

/// The indices of cases that are compared.
#[derive(Clone, Copy)]
struct Compared {
    base: usize,
    other: usize,
    /// The control of the base, if it has one.
    control: Option<usize>,
}

/// Rounds that continue until every comparison is settled.
pub struct Rounds {
    design: Design,
    names: Vec<String>,
    compared: Vec<Compared>,
    at_most: u32,
    budget_s: Option<f64>,
    /// By case: whether the next round measures it.
    wanted: Vec<bool>,
    /// Number of rounds made by this process.
    rounds: u32,
    latest: Vec<ComparisonProgress>,
    ended: Option<UntilEnded>,
}

impl Rounds {
    /// The rounds of a run; `None` if its number of trials is fixed.
    pub fn of(manifest: &Manifest) -> Option<Rounds> {
        let design = Design::of(manifest)?;
        let names: Vec<String> = manifest.cases.iter().map(|c| c.name.clone()).collect();
        let with_control = |(base, other)| Compared { base, other, control: control_of(manifest, base) };
        let compared = pairs(manifest).into_iter().map(with_control).collect();
        let budget_s = manifest.until_certain.as_ref().and_then(|until| until.budget_s);
        let wanted = vec![true; names.len()];
        let (at_most, rounds) = (manifest.trials, 0);
        let (latest, ended) = (Vec::new(), None);
        Some(Rounds { design, names, compared, at_most, budget_s, wanted, rounds, latest, ended })
    }

    /// Whether the next round measures this case.
    pub fn wants(&self, case: usize) -> bool {
        self.wanted[case]
    }

    /// Counts another round.
    pub fn round_made(&mut self) {
        self.rounds += 1;
    }

    /// Why no more rounds follow; `None` if the rounds themselves were not the reason.
    pub fn ended(&self) -> Option<UntilEnded> {
        self.ended
    }

    /// The comparisons as of the last round.
    pub fn into_latest(self) -> Vec<ComparisonProgress> {
        self.latest
    }

    /// After a round: reports how close each comparison is, and decides which cases the next round measures.
    /// `elapsed_s` is the time taken by the rounds of this process; `given_up` are cases that cannot be measured.
    pub fn judge(
        &mut self,
        round: u32,
        elapsed_s: f64,
        done: &[TrialEnd],
        given_up: &dyn Fn(usize) -> bool,
    ) -> RunEvent {
        let sides: Vec<Side<'_>> = self.names.iter().map(|name| side(name, done)).collect();
        self.wanted.fill(false);
        let mut latest = Vec::new();
        for Compared { base, other, control } in self.compared.iter().copied() {
            let of_control = control.map(|control| &sides[control]);
            let standings = self.design.deciding(&sides[base], &sides[other], of_control);
            let is_open = standings.iter().any(Standing::is_open) || standings.iter().all(is_unknown);
            let all = [Some(base), Some(other), control].into_iter().flatten();
            if is_open && !all.clone().any(given_up) {
                all.for_each(|case| self.wanted[case] = true);
            }
            latest.push(ComparisonProgress {
                base: self.names[base].clone(),
                other: self.names[other].clone(),
                is_settled: !is_open,
                figures: standings.iter().map(figure).collect(),
            });
        }
        self.latest = latest;
        let round_s = if self.rounds > 0 { elapsed_s / f64::from(self.rounds) } else { 0.0 };
        self.ended = match () {
            () if self.latest.iter().all(|c| c.is_settled) => Some(UntilEnded::Settled),
            () if !self.wanted.contains(&true) => Some(UntilEnded::NotMeasured),
            () if round >= self.at_most => Some(UntilEnded::AtMost),
            () if self.budget_s.is_some_and(|budget_s| elapsed_s + round_s > budget_s) => {
                Some(UntilEnded::Budget)
            }
            () => None,
        };
        if self.ended.is_some() {
            self.wanted.fill(false);
        }
        RunEvent::RoundEnded {
            round,
            at_most: self.at_most,
            left_s: self.left(round, round_s, elapsed_s),
            comparisons: self.latest.clone(),
            ended: self.ended,
        }
    }

    /// Estimated time left; figures whose outcome cannot be predicted are assumed to need all remaining rounds.
    fn left(&self, round: u32, round_s: f64, elapsed_s: f64) -> Option<f64> {
        if self.ended.is_some() || self.rounds == 0 {
            return None;
        }
        let open =
            self.latest.iter().filter(|c| !c.is_settled).flat_map(|c| &c.figures).filter(|f| f.is_open);
        let more: Option<Vec<usize>> = open.map(|figure| figure.more).collect();
        let rounds = more.and_then(|more| more.into_iter().max()).unwrap_or(usize::MAX);
        let left_s = rounds.min((self.at_most - round) as usize) as f64 * round_s;
        Some(self.budget_s.map_or(left_s, |budget_s| left_s.min(budget_s - elapsed_s)))
    }
}

/// Whether the figure was never measured: that does not count as settled.
fn is_unknown(standing: &Standing) -> bool {
    standing.call() == Call::CannotTell && standing.effect().is_none()
}

fn side<'a>(name: &str, done: &'a [TrialEnd]) -> Side<'a> {
    let own = done.iter().filter(|end| end.case == name);
    Side::of(name, own.map(|end| (end.trial, end.summary.as_ref())))
}

fn figure(standing: &Standing) -> FigureProgress {
    FigureProgress {
        name: standing.metric.title(),
        call: standing.call(),
        is_open: standing.is_open(),
        is_unresolved: standing.why_unresolved().is_some(),
        is_ratio: standing.is_ratio(),
        effect: standing.effect(),
        more: standing.more(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cases and a control, without any trials.
    fn nothing_measured(budget_s: Option<f64>) -> Rounds {
        let case = |name: &str, control_of: Option<&str>| {
            serde_json::json!({ "name": name, "dir": name, "values": [], "users": null, "rate_per_s": null,
                                "control_of": control_of })
        };
        let manifest = serde_json::json!({
            "record": 2, "loadlab": "0", "name": "test", "plan_path": "", "plan_text": "", "plan_sha256": "",
            "options": [], "started": "", "ended": null, "how": "complete", "writer": { "pid": 1, "start_ticks": 1 },
            "host": { "kernel": "", "cpu": "", "cores": 2, "memory_bytes": 1, "clock_source": "", "cgroup": "" },
            "words": [], "components": [], "axes": [], "trials": 20, "expect": [], "quick": false,
            "cases": [case("old", None), case("new", None), case("old (control)", Some("old"))],
            "until_certain": { "within": 0.02, "budget_s": budget_s, "seed": 7 },
        });
        let manifest: Manifest = serde_json::from_value(manifest).expect("a manifest");
        Rounds::of(&manifest).expect("trials until it is certain")
    }

    /// The state after `rounds` rounds of ten seconds each.
    fn after(rounds: u32, budget_s: Option<f64>, given_up: &[usize]) -> (Rounds, Option<f64>) {
        let mut progress = nothing_measured(budget_s);
        (0..rounds).for_each(|_| progress.round_made());
        let elapsed_s = 10.0 * f64::from(rounds);
        let event = progress.judge(rounds, elapsed_s, &[], &|case| given_up.contains(&case));
        let RunEvent::RoundEnded { left_s, .. } = event else { panic!("{event:?}") };
        (progress, left_s)
    }

    #[test]
    fn no_round_begins_that_would_exceed_the_budget() {
        let (progress, left_s) = after(3, Some(40.0), &[]);
        assert_eq!((progress.ended(), left_s), (None, Some(10.0)));
        assert!((0..3).all(|case| progress.wants(case)));
        let (progress, left_s) = after(4, Some(40.0), &[]);
        assert_eq!((progress.ended(), left_s), (Some(UntilEnded::Budget), None));
        assert!((0..3).all(|case| !progress.wants(case)));
        // Without a budget, rounds continue up to the maximum.
        let (progress, left_s) = after(19, None, &[]);
        assert_eq!((progress.ended(), left_s), (None, Some(10.0)));
        assert_eq!(after(20, None, &[]).0.ended(), Some(UntilEnded::AtMost));
    }

    #[test]
    fn what_waits_for_a_case_that_cannot_be_measured_ends() {
        for given_up in 0..3 {
            let (progress, _) = after(1, None, &[given_up]);
            assert_eq!(progress.ended(), Some(UntilEnded::NotMeasured), "{given_up}");
            assert!(progress.into_latest().iter().all(|comparison| !comparison.is_settled));
        }
    }

    #[test]
    fn each_round_has_every_case_once_in_an_order_that_a_coin_decides() {
        let (cases, rounds) = (3, 600);
        let all = rounds_in_random_order(cases, rounds, 7);
        let mut orders = std::collections::BTreeMap::<Vec<usize>, u32>::new();
        for (round, of_round) in (1..).zip(all.chunks(cases)) {
            assert!(of_round.iter().all(|(_, number)| *number == round), "{of_round:?}");
            let order: Vec<usize> = of_round.iter().map(|(case, _)| *case).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
            *orders.entry(order).or_default() += 1;
        }
        // Six orders, a hundred times each on average.
        assert!(orders.len() == 6 && orders.values().all(|n| (60..140).contains(n)), "{orders:?}");
        assert_eq!(all, rounds_in_random_order(cases, rounds, 7));
        assert_ne!(all, rounds_in_random_order(cases, rounds, 8));
    }
}
