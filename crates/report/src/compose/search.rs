//! Searches for capacity: the result, and the path to it, for a record that is a search, and for trials that search.

use loadlab_analysis::cases::case::{CaseFindings, TrialFindings};
use loadlab_analysis::cases::metric::Unit;
use loadlab_analysis::findings::Findings;
use loadlab_analysis::{is_left_open, verdict_of_search};
use loadlab_record::documents::manifest::Manifest;
use loadlab_record::documents::search::{Capacity, SearchFacts, SearchStep, SearchVariable, StepOutcome};
use loadlab_record::documents::summary::Verdict;

use crate::colour::Colour;
use crate::document::{Block, Cell, Document, Fact, Section, Table, Weight};
use crate::figures::{self, NOTHING};
use crate::plane::{Axis, Group, LOG_FROM, Plane, PlaneMark, RangedValue, Spot};

/// Turns the report of a run that is a search into a search report: the result comes first, and a level that missed
/// is not a failure of the run.
pub fn as_search_report(mut document: Document, manifest: &Manifest, findings: &Findings<'_>) -> Document {
    let Some(search) = &manifest.search else { return document };
    let mut found =
        search.found.clone().unwrap_or_else(|| "nothing yet: the search did not finish".to_owned());
    if let Some(capacity) = &search.capacity {
        found.push_str(&format!(
            "; a fit to all levels gives a capacity of {}",
            interval(search.vary, capacity)
        ));
    }
    let tested = format!(
        "{} from {} to {} for {}, in {}",
        search.vary.name(),
        figures::count(search.low),
        figures::count(search.high),
        manifest.expect.iter().map(|e| format!("`{e}`")).collect::<Vec<_>>().join(" and "),
        figures::plural(search.path.len() as u64, "trial", "trials"),
    );
    document.answer.retain(|f| f.name == "Confidence");
    let of_level = |level: u64| {
        let is = |c: &&CaseFindings<'_>| {
            c.case.facts.users == Some(level) || c.case.facts.rate_per_s == Some(level as f64)
        };
        findings.cases.iter().find(is)
    };
    let gave = search.above.and_then(of_level).and_then(|c| c.diagnosis.suspects.first());
    if let (Some(suspect), Some(above)) = (gave, search.above) {
        let text = format!("at {}: {}.", level(search.vary, above as f64), suspect.text);
        document.answer.insert(0, Fact::new("First bottleneck", text));
    }
    document.answer.insert(0, Fact::new("Searched", format!("{tested}.")));
    document.answer.insert(1, Fact::new("Found", format!("{found}.")));
    document.verdict = verdict_of_search(search);
    document.sections.insert(0, section(search));
    document
}

/// The results of trials that search, by case; `None` if none searches.
pub fn of_trials(findings: &Findings<'_>) -> Option<Section> {
    let searches = searches(findings);
    let (first, _) = searches.first()?.1.first()?;
    let first = *first;
    let mut blocks = vec![Block::Table(found(first.vary, &searches))];
    let curves: Vec<(String, Vec<&SearchFacts>)> = searches
        .iter()
        .map(|(case, trials)| (case.label.clone(), trials.iter().map(|(facts, _)| *facts).collect()))
        .collect();
    blocks.extend(response(first.vary, &curves).map(Block::Plane));
    Some(Section::new("capacity", "Capacity", blocks))
}

/// A case, and each trial of it that searched, with its number.
type OfCase<'a> = (&'a CaseFindings<'a>, Vec<(&'a SearchFacts, u32)>);

fn searches<'a>(findings: &'a Findings<'a>) -> Vec<OfCase<'a>> {
    let of_case = |case: &'a CaseFindings<'a>| {
        let searched = |t: &'a TrialFindings<'a>| Some((t.summary?.search.as_ref()?, t.number));
        (case, case.trials.iter().filter_map(searched).collect::<Vec<_>>())
    };
    findings.cases.iter().map(of_case).filter(|(_, trials)| !trials.is_empty()).collect()
}

/// A level as readers know it.
fn level(vary: SearchVariable, level: f64) -> String {
    match vary {
        SearchVariable::Rate => figures::rate(level),
        SearchVariable::Users => figures::plural(level as u64, "user", "users"),
    }
}

/// A capacity with its interval.
fn interval(vary: SearchVariable, c: &Capacity) -> String {
    let low = match vary {
        SearchVariable::Rate => figures::number(figures::round(c.low, 3)),
        SearchVariable::Users => figures::count(c.low as u64),
    };
    format!("{} ({low} … {}, 95 %)", level(vary, c.value), level(vary, c.high))
}

/// The lowest level that missed the conditions; `None` if too few requests left it undecided.
fn missed(search: &SearchFacts) -> Option<u64> {
    search.above.filter(|level| !is_left_open(search, *level))
}

/// Every search: what it found, with its interval, and what held the system back above that.
fn found(vary: SearchVariable, searches: &[OfCase<'_>]) -> Table {
    let name = |at: Option<u64>| at.map_or_else(|| NOTHING.to_owned(), |at| level(vary, at as f64));
    let row = |case: &CaseFindings<'_>, search: &SearchFacts, trial: u32| {
        let (capacity, interval) = match (&search.capacity, search.level) {
            (Some(c), _) => (
                Cell::new(level(vary, c.value)),
                format!("{} … {}", figures::number(figures::round(c.low, 3)), level(vary, c.high)),
            ),
            (None, Some(least)) => (
                Cell::new(format!("≥ {}", level(vary, least as f64))).with_weight(Weight::Doubtful),
                NOTHING.to_owned(),
            ),
            (None, None) => (Cell::new(NOTHING).with_weight(Weight::Bad), NOTHING.to_owned()),
        };
        let gave = search.bottleneck.as_ref().map_or_else(
            || NOTHING.to_owned(),
            |bottleneck| {
                let kind = bottleneck.kind.name().replace('_', " ");
                bottleneck.component.as_ref().map_or(kind.clone(), |component| format!("{component}: {kind}"))
            },
        );
        vec![
            Cell::new(&case.label),
            Cell::new(trial.to_string()),
            capacity,
            Cell::new(interval),
            Cell::new(name(search.level)),
            Cell::new(name(missed(search))),
            Cell::new(search.path.len().to_string()),
            Cell::new(gave),
        ]
    };
    let rows =
        searches.iter().flat_map(|(case, trials)| trials.iter().map(|(search, n)| row(case, search, *n)));
    Table {
        caption: "What each search found".into(),
        head: ["case", "trial", "capacity", "95 %", "met", "missed", "levels", "held back by"]
            .map(str::to_owned)
            .to_vec(),
        text_columns: vec![0, 7],
        rows: rows.collect(),
        note: Some(
            "The capacity and its interval come from a curve fitted to all levels of the search, the last columns from the \
             levels on either side of it. Every other figure of a trial is that of its highest level that met the \
             conditions."
                .into(),
        ),
    }
}

/// Reads a response time of a level.
type ReadStep = fn(&SearchStep) -> Option<f64>;

/// Response times over the levels that were tried; `None` if hardly any are known.
fn response(vary: SearchVariable, cases: &[(String, Vec<&SearchFacts>)]) -> Option<Plane> {
    let steps = || cases.iter().flat_map(|(_, searches)| searches.iter().flat_map(|search| &search.path));
    let all = steps().count();
    let read: [(&str, ReadStep); 3] = [("p99", |s| s.p99_ms), ("p90", |s| s.p90_ms), ("p50", |s| s.p50_ms)];
    // The highest percentile that most levels have.
    let (name, read) = read.into_iter().find(|(_, read)| 5 * steps().filter_map(read).count() > 4 * all)?;
    let group = |(rank, (case, searches)): (usize, &(String, Vec<&SearchFacts>))| {
        let spot = |step: &SearchStep| {
            let verdict = match step.outcome {
                StepOutcome::Met => Verdict::Pass,
                StepOutcome::Invalid => Verdict::Invalid,
                StepOutcome::Missed | StepOutcome::Undecided => Verdict::Fail,
            };
            Some(Spot {
                name: format!("{}: {}", level(vary, step.level as f64), step.outcome.word()),
                label: None,
                across: RangedValue::exact(step.level as f64),
                up: RangedValue::exact(read(step).filter(|ms| *ms > 0.0)?),
                is_open: false,
                verdict,
                section: None,
            })
        };
        let mut spots: Vec<Spot> = searches.iter().flat_map(|s| &s.path).filter_map(spot).collect();
        spots.sort_by(|a, b| a.across.value.total_cmp(&b.across.value));
        Group { name: case.clone(), colour: Colour::Nth(rank), joined: true, spots }
    };
    let mark = |(case, searches): &(String, Vec<&SearchFacts>)| {
        let mut found: Vec<Capacity> = searches.iter().filter_map(|search| search.capacity).collect();
        found.sort_by(|a, b| a.value.total_cmp(&b.value));
        let middle = found.get(found.len().saturating_sub(1) / 2)?;
        let of = if cases.len() > 1 { format!("{case}: ") } else { String::new() };
        Some(PlaneMark {
            at: middle.value,
            between: Some((middle.low, middle.high)),
            text: format!("{of}{}", level(vary, middle.value)),
        })
    };
    let values = |read: &dyn Fn(&SearchStep) -> Option<f64>| {
        let all: Vec<f64> = steps().filter_map(read).filter(|value| *value > 0.0).collect();
        all.iter().copied().fold(0.0, f64::max) > LOG_FROM * all.iter().copied().fold(f64::INFINITY, f64::min)
    };
    let unit = match vary {
        SearchVariable::Rate => Unit::PerS,
        SearchVariable::Users => Unit::Count,
    };
    Some(Plane {
        title: format!("{name} over the {}", vary.name()),
        across: Axis::of(vary.name(), unit, values(&|s| Some(s.level as f64))),
        up: Axis::of(name, Unit::Ms, values(&read)),
        groups: cases.iter().enumerate().map(group).filter(|group| !group.spots.is_empty()).collect(),
        curves: Vec::new(),
        marks: cases.iter().filter_map(mark).collect(),
        heights: Vec::new(),
        behind: "the record".into(),
        note: Some(
            "Each point is a level of a search; the marks are capacities with their intervals.".into(),
        ),
    })
}

fn section(search: &SearchFacts) -> Section {
    let row = |(place, step): (usize, &SearchStep)| {
        let weight = match step.outcome {
            StepOutcome::Met => Weight::Good,
            StepOutcome::Missed => Weight::Plain,
            StepOutcome::Undecided | StepOutcome::Invalid => Weight::Doubtful,
        };
        vec![
            Cell::new((place + 1).to_string()),
            Cell::new(figures::count(step.level)),
            Cell::new(step.outcome.word()).with_weight(weight),
            Cell::new(&step.why),
        ]
    };
    let table = Table {
        caption: "Levels tried, in order".into(),
        head: ["trial", search.vary.name(), "outcome", "by"].map(str::to_owned).to_vec(),
        text_columns: vec![2, 3],
        rows: search.path.iter().enumerate().map(row).collect(),
        note: Some(
            "Levels are halved on a logarithmic scale until two per cent apart; both ends of the answer are measured again, \
             and if the trials of a level disagree, the majority counts."
                .into(),
        ),
    };
    let mut blocks = vec![Block::Table(table)];
    blocks.extend(response(search.vary, &[("levels".to_owned(), vec![search])]).map(Block::Plane));
    Section::new("search", "The search", blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_of_a_single_user_is_one() {
        assert_eq!(level(SearchVariable::Users, 1.0), "1 user");
        assert_eq!(level(SearchVariable::Users, 1500.0), "1,500 users");
        assert_eq!(level(SearchVariable::Rate, 1.0), "1/s");
    }

    #[test]
    fn a_level_that_is_undecided_was_not_missed() {
        let of = |outcome: StepOutcome| {
            let path = vec![SearchStep { level: 51, outcome, ..SearchStep::default() }];
            missed(&SearchFacts { level: Some(50), above: Some(51), path, ..SearchFacts::default() })
        };
        assert_eq!([of(StepOutcome::Missed), of(StepOutcome::Undecided)], [Some(51), None]);
    }
}
