//! A search for capacity: the result, and the path to it.

use loadlab_analysis::case::CaseFindings;
use loadlab_analysis::findings::Findings;
use loadlab_record::manifest::Manifest;
use loadlab_record::search::{SearchFacts, SearchStep, SearchVariable};
use loadlab_record::summary::Verdict;

use crate::document::{Block, Cell, Document, Fact, Section, Table, Weight};
use crate::figures;

/// Turns the report of a run that is a search into a search report: the result comes first, and a level that missed
/// is not a failure of the run.
pub fn described(mut document: Document, manifest: &Manifest, findings: &Findings<'_>) -> Document {
    let Some(search) = &manifest.search else { return document };
    let found = search.found.clone().unwrap_or_else(|| "nothing yet: the search did not finish".to_owned());
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
        let level = match search.vary {
            SearchVariable::Rate => figures::rate(above as f64),
            SearchVariable::Users => format!("{} users", figures::count(above)),
        };
        document.answer.insert(0, Fact::new("First bottleneck", format!("at {level}: {}.", suspect.text)));
    }
    document.answer.insert(0, Fact::new("Searched", format!("{tested}.")));
    document.answer.insert(1, Fact::new("Found", format!("{found}.")));
    document.verdict = match (&search.found, search.level) {
        (None, _) => Verdict::None,
        (Some(_), Some(_)) => Verdict::Pass,
        (Some(_), None) if is_open(search) => Verdict::Undecided,
        (Some(_), None) => Verdict::Fail,
    };
    document.sections.insert(0, section(search));
    document
}

/// Not even the lowest level was met, but none of its trials definitely missed anything.
fn is_open(search: &SearchFacts) -> bool {
    let mut lowest = search.path.iter().filter(|step| Some(step.level) == search.above);
    search.above.is_some() && lowest.all(|step| step.outcome == "undecided")
}

fn section(search: &SearchFacts) -> Section {
    let row = |(place, step): (usize, &SearchStep)| {
        let weight = match step.outcome.as_str() {
            "met" => Weight::Good,
            "missed" => Weight::Plain,
            _ => Weight::Doubtful,
        };
        vec![
            Cell::new((place + 1).to_string()),
            Cell::new(figures::count(step.level)),
            Cell::new(&step.outcome).weighing(weight),
            Cell::new(&step.why),
        ]
    };
    let table = Table {
        caption: "Levels tried, in order".into(),
        head: ["trial", search.vary.name(), "outcome", "by"].map(str::to_owned).to_vec(),
        words: vec![2, 3],
        rows: search.path.iter().enumerate().map(row).collect(),
        note: Some(
            "Levels are halved on a logarithmic scale until two per cent apart; both ends of the answer are measured again, \
             and of a level that contradicts itself the majority counts."
                .into(),
        ),
    };
    Section::new("search", "The search", vec![Block::Table(table)])
}
