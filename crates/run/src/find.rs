//! The search for capacity: one system, brought up once, and one trial after another until its capacity is known.
//! [`loadlab_analysis::search`] decides which level comes next; here levels become loads, and loads become outcomes.
//!
//! Each level is a case of the record, and each measurement of it a trial, so a search leaves the same record as any
//! run.

use loadlab_analysis::Exit;
use loadlab_analysis::search::{Answer, Next, Outcome, Search};
use loadlab_load::target::Allowed;
use loadlab_plan::{self as plan, Case, Plan};
use loadlab_record::Failure;
use loadlab_record::expr::{Expr, Known, Numbers, SummaryNumbers, TrialPart};
use loadlab_record::manifest::{RunEnded, SearchFacts, SearchStep};
use loadlab_record::summary::{Expectation, PERCENTILES, Requests, Summary, Verdict};
use loadlab_system::{Cancel, clock};

use crate::conduct::{RunError, allowed_of, conditions_of, dir_of, never_began, prepare, state_of};
use crate::event::RunEvent;
use crate::level::{Level, Variable};
use crate::logs;
use crate::manifest::{Record, figures_of_case};
use crate::options::RunOptions;
use crate::site::RunningSystem;
use crate::site::durability::Ids;
use crate::state::EventSink;
use crate::trial::carryover::Carried;
use crate::trial::{Conditions, Trial};

/// What to search.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchRequest {
    /// What is varied.
    pub vary: Variable,
    /// Lowest and highest level.
    pub range: (u64, u64),
    /// The maximum number of levels to measure, including repeats.
    pub max_levels: u32,
    /// Index of the load that is varied.
    pub load: usize,
    /// How long each trial is measured.
    pub level_ns: u64,
    /// How long it settles before that.
    pub settle_ns: u64,
}

impl SearchRequest {
    /// The maximum number of trials: each level as often as it may be measured again.
    pub fn most_trials(&self) -> u64 {
        u64::from(self.max_levels) * u64::from(1 + INVALID_AGAIN + GROWS)
    }

    /// Whether requests of all its trials have unique ids, if ids report what was stored.
    pub fn ids_suffice(&self, case: &Case) -> bool {
        let by_ids =
            case.durability.as_ref().is_some_and(|loss| !matches!(loss.persisted, plan::Persisted::Probe(_)));
        let blocks = self.most_trials().saturating_mul(case.loads.len() as u64);
        !by_ids || blocks <= plan::ids::MOST_BLOCKS
    }

    /// Ids of a search's trials. Each load runs once in each.
    fn ids(&self, case: &Case) -> Ids {
        Ids::for_blocks(self.most_trials(), case.loads.len() as u64)
    }
}

/// The result of a search.
pub struct SearchResult {
    /// The record's folder.
    pub dir: std::path::PathBuf,
    /// How it ended.
    pub ended: RunEnded,
    /// The answer; `None` if there is none.
    pub answer: Option<Answer>,
    /// As recorded.
    pub facts: SearchFacts,
    /// Why it ended early.
    pub trouble: Option<String>,
    /// The exit that all of it calls for.
    pub exit: Exit,
}

/// Searches. The plan has one case, with what is expected of a level.
///
/// # Errors
/// Nothing could be measured: a target is not allowed, the record cannot be created, a build failed.
pub fn find(
    plan: &Plan,
    request: &SearchRequest,
    how: &RunOptions,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<SearchResult, RunError> {
    let emit: EventSink<'_> = &|event: RunEvent| emit(event.masked(&how.secrets));
    let mut conditions = conditions_of(plan, how)?;
    let Some(base) = plan.cases().first().cloned() else {
        return Err(RunError::NotUp("the plan has no case".to_owned()));
    };
    let allowed = allowed_of(plan, how)?;
    let facts = SearchFacts {
        vary: request.vary.name().to_owned(),
        low: request.range.0,
        high: request.range.1,
        ..SearchFacts::default()
    };
    let mut record = Record::begin_search(plan, how, facts.clone())?;
    emit(RunEvent::Recording { dir: how.out.clone(), trials: request.max_levels as usize, at_most: true });
    let site = match prepare(plan, how, &mut record, cancel, emit) {
        Ok(site) => site,
        Err(error) => return Err(never_began(&mut record, None, error, cancel)),
    };
    let is_up_anew = base.system.compose.is_some();
    let carried = Carried::for_loads(if is_up_anew { 0 } else { base.loads.len() });
    let search = SearchRun {
        plan,
        base,
        carried,
        request,
        how,
        conditions: conditions.pop().unwrap_or_default(),
        allowed,
        record,
        cancel,
        emit,
        facts,
        made: 0,
        trouble: None,
    };
    Ok(search.run(site))
}

/// A search in progress.
struct SearchRun<'a> {
    plan: &'a Plan,
    /// The case whose load is varied.
    base: Case,
    request: &'a SearchRequest,
    how: &'a RunOptions,
    conditions: Conditions,
    allowed: Allowed,
    record: Record,
    cancel: &'a Cancel,
    emit: EventSink<'a>,
    facts: SearchFacts,
    /// What is kept from level to level.
    carried: Carried,
    /// Trials so far: a repeated one decides no level, but still has its own ids.
    made: usize,
    /// What ended it early, and the exit that calls for.
    trouble: Option<(String, Exit)>,
}

impl SearchRun<'_> {
    fn run(mut self, mut site: RunningSystem) -> SearchResult {
        let mut search = Search::new(self.request.range.0, self.request.range.1, self.request.max_levels);
        let answer = loop {
            if self.cancel.is_cancelled() || self.trouble.is_some() {
                break None;
            }
            match search.next() {
                Next::Done(answer) => break Some(answer),
                Next::Measure { level, again } => {
                    // A connection is assigned to one of the server's workers when it is accepted, at random: what
                    // was measured with one assignment is confirmed with another.
                    if again {
                        self.carried.connect_anew(|_| true);
                    }
                    if let Some(outcome) = self.measure_level(&mut site, level) {
                        search.add(level, outcome);
                    }
                }
            }
        };
        self.end(site, answer)
    }

    /// One trial; `None` if it was inconclusive, which ends the search. A trial that was too short is repeated with
    /// the length it needs.
    fn measure_level(&mut self, site: &mut RunningSystem, level: u64) -> Option<Outcome> {
        let (mut length_ns, mut again) = (self.request.level_ns, 0);
        loop {
            let (summary, trial) = self.measure(site, level, length_ns)?;
            if self.cancel.is_cancelled() {
                return None;
            }
            let longer = longer(&summary, &self.conditions.expect);
            let most = self.request.level_ns.saturating_mul(MOST_LONGER);
            if let Some(factor) = longer.filter(|_| length_ns < most && !self.cancel.is_cancelled()) {
                length_ns = grown(length_ns, factor, most);
                let text = format!(
                    "measuring {} again, for {}: a percentile needs more requests",
                    self.request.vary.level(level),
                    loadlab_record::units::format_duration_ns(length_ns as f64)
                );
                (self.emit)(RunEvent::Note(text));
                continue;
            }
            let (outcome, why) = judge(&summary, &self.conditions.expect);
            if outcome != Outcome::Met {
                // The connections that were in flight under overload are more than a lower rate needs.
                self.carried.connect_anew(|load| self.is_open(load));
            }
            // Usually another program on this machine: what was not measured is measured again.
            if outcome == Outcome::Invalid && again < INVALID_AGAIN && !self.cancel.is_cancelled() {
                again += 1;
                (self.emit)(RunEvent::Note(format!(
                    "measuring {} again: {why}",
                    self.request.vary.level(level)
                )));
                continue;
            }
            let word = match outcome {
                Outcome::Missed if why.starts_with(UNDECIDED) => "undecided",
                Outcome::Met => "met",
                Outcome::Missed => "missed",
                Outcome::Invalid => "invalid",
            };
            (self.emit)(RunEvent::Note(format!("{}: {word} ({why})", self.request.vary.level(level))));
            self.facts.path.push(SearchStep { level, trial, outcome: word.to_owned(), why });
            self.record.search(&self.facts);
            if outcome != Outcome::Met {
                self.recover(&summary);
            }
            return Some(outcome);
        }
    }

    /// A load of the search follows a schedule.
    fn is_open(&self, load: usize) -> bool {
        let varied = load == self.request.load;
        match self.base.loads[load].model {
            _ if varied => self.request.vary == Variable::Rate,
            plan::Model::Closed { .. } => false,
            _ => true,
        }
    }

    /// Lets the system work off what a trial left behind, so that the next one does not pay for it.
    fn recover(&self, summary: &Summary) {
        let left = (summary.requests.in_flight + summary.failures.get(Failure::Timeout)) as f64;
        let wait_s = (left / summary.rate_per_s.ok.max(1.0)).min(MOST_RECOVERY_S);
        let until_ns = clock::now_ns().saturating_add((wait_s * 1e9) as u64);
        while clock::now_ns() < until_ns && !self.cancel.is_cancelled() {
            self.cancel.wait_until(until_ns);
        }
    }

    /// A trial of a level, and its number; any failure ends the search, except a component that died: that is an
    /// answer.
    fn measure(&mut self, site: &mut RunningSystem, level: u64, length_ns: u64) -> Option<(Summary, u32)> {
        let level = Level {
            vary: self.request.vary,
            load: self.request.load,
            level,
            settle_ns: self.request.settle_ns,
            length_ns,
        };
        let case = level.case(&self.base);
        let opened = self.record.level(&case);
        let (index, number) = match opened {
            Ok(place) => place,
            Err(error) => return self.give_up(error.to_string(), Exit::CouldNotRun),
        };
        let event = RunEvent::TrialStarted {
            case: case.name.clone(),
            trial: number,
            place: self.facts.path.len() + 1,
            of: self.request.max_levels as usize,
            at_most: true,
            cpu_limits: crate::trial::cpu_limits(&case),
            figures: figures_of_case(&case),
        };
        (self.emit)(event);
        let writer = match self.record.trial(index, number) {
            Ok(writer) => writer,
            Err(error) => return self.give_up(error.to_string(), Exit::CouldNotRun),
        };
        let state = state_of(&mut self.record, writer, self.cancel, site);
        let dir = dir_of(self.plan);
        let trial = Trial {
            index: 0,
            place: self.made,
            ids: self.request.ids(&case),
            case: &case,
            conditions: &self.conditions,
            plan_dir: &dir,
            allowed: &self.allowed,
            threads: self.how.threads,
            generator: &self.how.generator,
            senders: self.how.senders.as_deref(),
            level: Some(&level),
            carried: Some(&self.carried),
            watch: &self.how.watch,
        };
        self.made += 1;
        let outcome = trial.run(site, &state, self.emit).masked(&self.how.secrets);
        let next = (!self.cancel.is_cancelled()).then_some(0);
        if next.is_none() {
            self.carried.connect_anew(|_| true);
        }
        let left = site.end_trial(next, false, &state);
        logs::mask_ended(&state, &site.open_logs(), self.emit);
        let (reported, failure) = (outcome.summary.clone().map(Box::new), outcome.failure.clone());
        let figures = figures_of_case(&case);
        (self.emit)(RunEvent::TrialEnded {
            case: case.name,
            trial: number,
            summary: reported,
            failure,
            figures,
        });
        if let Some((text, exit)) = left.into_iter().next() {
            return self.give_up(text, exit);
        }
        match (outcome.summary, outcome.failure, outcome.exit) {
            (Some(_), Some(why), Exit::CouldNotRun | Exit::NotUp) => self.give_up(why, outcome.exit),
            (None, why, exit) => self.give_up(why.unwrap_or_else(|| "nothing was measured".into()), exit),
            (Some(summary), _, _) => Some((summary, number)),
        }
    }

    fn give_up<T>(&mut self, why: String, exit: Exit) -> Option<T> {
        self.trouble.get_or_insert((why, exit));
        None
    }

    /// No trial of a level definitely missed anything.
    fn is_open_at(&self, level: u64) -> bool {
        let mut trials = self.facts.path.iter().filter(|step| step.level == level);
        trials.all(|step| step.outcome == "undecided")
    }

    fn end(mut self, site: RunningSystem, answer: Option<Answer>) -> SearchResult {
        // A server that is to shut down cleanly may wait for its connections.
        self.carried.connect_anew(|_| true);
        if let Err(error) = site.close() {
            let text = format!("cleanup failed: {error}\nhint: try `loadlab clean`");
            (self.emit)(RunEvent::Note(text));
        }
        logs::mask_all(&self.record.dir, &self.how.secrets, self.emit);
        let (ended, exit) = match (&answer, &self.trouble) {
            _ if self.cancel.is_cancelled() => (RunEnded::Interrupted, Exit::Interrupted),
            (_, Some((_, exit))) => (RunEnded::Broken, *exit),
            (Some(Answer::LessThan { level }), None) if self.is_open_at(*level) => {
                (RunEnded::Complete, Exit::Undecided)
            }
            (Some(answer), None) => (RunEnded::Complete, exit_of(answer)),
            (None, None) => (RunEnded::Broken, Exit::CouldNotRun),
        };
        if let Some(answer) = &answer {
            self.facts.found = Some(match answer {
                Answer::LessThan { level } if exit == Exit::Undecided => format!(
                    "nothing: at {}, the lowest level, too few requests leave the expectations undecided; a longer \
                     `--level-duration` decides them",
                    self.request.vary.level(*level)
                ),
                _ => words_of(answer, self.request.vary),
            });
            (self.facts.level, self.facts.above) = match *answer {
                Answer::Most { level, above, .. } => (Some(level), Some(above)),
                Answer::AtLeast { level, .. } => (Some(level), None),
                Answer::LessThan { level } => (None, Some(level)),
                Answer::Generator { level, above } => (level, Some(above)),
            };
            self.facts.confirmed =
                matches!(answer, Answer::Most { confirmed: true, .. } | Answer::AtLeast { is_top: true, .. });
        }
        self.record.search(&self.facts);
        let mut exits = vec![exit];
        if let Err(error) = self.record.end(ended) {
            exits.push(Exit::CouldNotRun);
            (self.emit)(RunEvent::Note(error.to_string()));
        }
        SearchResult {
            dir: self.how.out.clone(),
            ended,
            answer,
            facts: self.facts,
            trouble: self.trouble.map(|(why, _)| why),
            exit: Exit::of(exits),
        }
    }
}

/// A trial that was too short grows to this many times its length at most.
const MOST_LONGER: u64 = 8;

/// It becomes longer than necessary by this factor: no two trials have the same rate.
const LONGER_BY: f64 = 1.1;

/// How many times an INVALID trial is repeated before the level counts as INVALID.
const INVALID_AGAIN: u32 = 2;
/// How many times a trial that is too short grows at most, a tenth each time or more, until it is [`MOST_LONGER`]
/// times as long.
const GROWS: u32 = 22;

/// A system without further load recovers within this time, or never.
const MOST_RECOVERY_S: f64 = 10.0;

fn exit_of(answer: &Answer) -> Exit {
    match answer {
        Answer::Most { .. } | Answer::AtLeast { .. } => Exit::Ok,
        Answer::LessThan { .. } => Exit::Failed,
        Answer::Generator { .. } => Exit::Invalid,
    }
}

/// The answer as a sentence without its full stop.
fn words_of(answer: &Answer, vary: Variable) -> String {
    let words = |level: u64| vary.level(level);
    match *answer {
        Answer::Most { level, above, confirmed } => {
            let sure = match confirmed {
                true => "both measured twice",
                false => "not confirmed: the search ran out of trials; `--max-levels` allows more",
            };
            format!("{} meet the expectations, {} do not ({sure})", words(level), words(above))
        }
        Answer::AtLeast { level, is_top: true } => {
            format!("at least {}, the highest level to be tried", words(level))
        }
        Answer::AtLeast { level, is_top: false } => format!(
            "at least {}: no measured level failed before the search ran out of trials; `--max-levels` allows more",
            words(level)
        ),
        Answer::LessThan { level } => {
            format!("less than {}: even the lowest level misses the expectations", words(level))
        }
        Answer::Generator { level: Some(level), above } => format!(
            "at least {}: at {} loadlab itself, not the system, was saturated",
            words(level),
            words(above)
        ),
        Answer::Generator { level: None, above } => {
            format!("nothing: even at {} loadlab itself, not the system, was saturated", words(above))
        }
    }
}

/// Prefix of the reason when too few samples leave a level open.
const UNDECIDED: &str = "undecided: ";

/// The outcome of a trial, and the reason.
fn judge(summary: &Summary, expect: &[Expr]) -> (Outcome, String) {
    if summary.verdict == Verdict::Invalid {
        let grave = summary.doubts.iter().find(|d| d.grave);
        return (
            Outcome::Invalid,
            grave.map_or("INVALID".to_owned(), |d| format!("{}: {}", d.kind, d.evidence)),
        );
    }
    if let Some((name, died)) = summary.components.iter().find_map(|(n, c)| Some((n, c.died.as_ref()?))) {
        return (Outcome::Missed, format!("{name} died: {died}"));
    }
    let numbers = SummaryNumbers::new(summary, &[]);
    let not_met = |(expr, said): &(&Expr, &Expectation)| {
        said.holds != Some(true) && expr.evaluate(&Slowest(&numbers)).holds != Some(true)
    };
    let not_met: Vec<_> = expect.iter().zip(&summary.expectations).filter(not_met).collect();
    if let Some((_, said)) = not_met.iter().find(|(_, said)| said.is_missed()) {
        return (Outcome::Missed, loadlab_words(said));
    }
    // It could not be made longer. An expectation not known to hold does not count as met.
    if let Some((_, said)) = not_met.first() {
        let why = format!("{UNDECIDED}{}; a longer `--level-duration` decides it", loadlab_words(said));
        return (Outcome::Missed, why);
    }
    // Met for now, but not for long: a growing backlog is not yet in the percentiles.
    if let Some(doubt) = summary.doubts.iter().find(|d| UNSTEADY.contains(&d.kind.as_str())) {
        return (Outcome::Missed, format!("not steady: {}", doubt.evidence));
    }
    let Requests { dropped, due, .. } = summary.requests;
    if dropped as f64 > MOST_DROPPED * due as f64 {
        return (Outcome::Missed, format!("not steady: {dropped} of {due} requests due were never sent"));
    }
    let shown: Vec<String> = summary.expectations.iter().map(loadlab_words).collect();
    (Outcome::Met, shown.join(", "))
}

/// A system that keeps up does not drop more than this share of what is due.
const MOST_DROPPED: f64 = 0.01;

/// Doubts that mean that a level cannot be sustained.
const UNSTEADY: [&str; 2] = ["backlog", "latency_rising"];

/// An expectation with its figure.
fn loadlab_words(e: &Expectation) -> String {
    match (e.value, &e.note) {
        (Some(value), _) => {
            format!("{}: {} {}", e.expr, loadlab_record::units::significant(value, 3), e.unit)
                .trim_end()
                .to_owned()
        }
        (None, Some(note)) => format!("{}: {note}", e.expr),
        (None, None) => e.expr.clone(),
    }
}

/// A summary's numbers, with the slowest response in place of a percentile with too few samples: if even that meets
/// an expectation, the percentile does.
struct Slowest<'a>(&'a SummaryNumbers<'a>);

impl Numbers for Slowest<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        let (prefix, figure) = name.rsplit_once('.').map_or(("", name), |(p, f)| (p, f));
        match self.0.number(name, part) {
            Known::Unknown(_) | Known::Between(_) if PERCENTILES.iter().any(|(n, _)| *n == figure) => {
                let most = if prefix.is_empty() { "max".to_owned() } else { format!("{prefix}.max") };
                self.0.number(&most, part)
            }
            known => known,
        }
    }

    fn steady(&self, name: &str, for_ns: u64) -> Option<bool> {
        self.0.steady(name, for_ns)
    }
}

/// The next length of a trial that was too short.
fn grown(length_ns: u64, factor: f64, most_ns: u64) -> u64 {
    let wanted = (length_ns as f64 * factor).ceil() as u64;
    wanted.clamp(length_ns + 1, most_ns)
}

/// How many times longer a trial must be for an expectation that lacked samples; `None` if it does not lack samples.
fn longer(summary: &Summary, expect: &[Expr]) -> Option<f64> {
    let numbers = SummaryNumbers::new(summary, &[]);
    let unreported = expect
        .iter()
        .zip(&summary.expectations)
        .filter(|(expr, said)| said.holds.is_none() && expr.evaluate(&Slowest(&numbers)).holds != Some(true));
    let factors = unreported.flat_map(|(expr, _)| expr.names()).filter_map(|name| {
        let (prefix, figure) = name.text.rsplit_once('.').map_or(("", name.text.as_str()), |(p, f)| (p, f));
        let (_, quantile) = PERCENTILES.iter().find(|(n, _)| *n == figure)?;
        let count = match prefix.strip_prefix("tag.") {
            Some(tag) => summary.by_tag.get(tag)?.response_ms.count,
            None => summary.response_ms.count,
        };
        let needed = loadlab_record::numbers::samples_needed(*quantile);
        (count > 0 && count < needed).then(|| needed as f64 / count as f64 * LONGER_BY)
    });
    factors.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_makes_no_more_trials_than_it_has_ids_for() {
        // Each time, a single sample may be missing.
        for level_ns in [1, 2, 9, 1_000, 10_000_000_000, u64::MAX / MOST_LONGER] {
            for needed in [2u64, 100, 1_000_000] {
                let factor = needed as f64 / (needed - 1) as f64 * LONGER_BY;
                let most = level_ns.saturating_mul(MOST_LONGER);
                let (mut length_ns, mut grows) = (level_ns, 0);
                while length_ns < most {
                    length_ns = grown(length_ns, factor, most);
                    grows += 1;
                }
                assert!(grows <= GROWS, "{level_ns} ns by {factor}: {grows}");
            }
        }
        let request = |max_levels| SearchRequest {
            vary: Variable::Users,
            range: (1, 1000),
            max_levels,
            load: 0,
            level_ns: 1,
            settle_ns: 0,
        };
        // A trial, repeated if INVALID, and each time it was too short.
        assert_eq!(request(100).most_trials(), 100 * (1 + 2 + 22));
        let last = request(100).most_trials() - 1;
        let ids = Ids::for_blocks(request(100).most_trials(), 3);
        assert!(ids.first(last as usize, 2) > ids.first(last as usize, 1), "none is dealt twice");
        assert!(ids.first(last as usize, 2) < 1 << plan::ids::ID_BITS);
    }
}
