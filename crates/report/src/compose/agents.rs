//! The agents of a swarm: what each sent of a case's loads, and what was not offered because one was lost.

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_record::documents::summary::{AgentSummary, LostAgent, Requests};
use loadlab_record::text::units::{format_count, significant};

use crate::document::{Cell, Table, Weight};

/// Most rows of the table; agents with losses come first.
const MOST_ROWS: usize = 40;

/// The agents of the trial with the median goodput, if agents sent its loads.
pub fn table(case: &CaseFindings<'_>) -> Option<Table> {
    let summary = case.typical().and_then(|trial| trial.summary).or_else(|| case.whole().next())?;
    (!summary.agents.is_empty()).then(|| of_agents(&summary.agents))
}

fn of_agents(agents: &[AgentSummary]) -> Table {
    let mut agents: Vec<&AgentSummary> = agents.iter().collect();
    agents.sort_by_key(|agent| (agent.lost.is_empty(), agent.slot));
    let left_out = agents.len().saturating_sub(MOST_ROWS);
    let mut notes = vec!["Clock: how far the agent's may be off, in milliseconds.".to_owned()];
    if agents.iter().any(|agent| !agent.lost.is_empty()) {
        notes.push(
            "Not offered: what would have been due while nobody sent the part; at least, since what an agent sent after \
             its last report is unknown, and at most."
                .to_owned(),
        );
    }
    if left_out > 0 {
        notes.push(format!("{left_out} more are in summary.json."));
    }
    let head = ["part", "agent", "threads", "due", "ok", "failed", "not offered", "clock ±", "lost"];
    Table {
        caption: "Agents that sent the load".into(),
        head: head.map(str::to_owned).to_vec(),
        text_columns: vec![1, 8],
        rows: agents.into_iter().take(MOST_ROWS).map(row).collect(),
        note: Some(notes.join(" ")),
    }
}

fn row(agent: &AgentSummary) -> Vec<Cell> {
    let requests = &agent.requests;
    let count = |n: u64| Cell::new(format_count(n as f64));
    let weight = if agent.lost.is_empty() { Weight::Plain } else { Weight::Doubtful };
    let failed = if requests.failed > 0 { Weight::Doubtful } else { Weight::Plain };
    vec![
        count(agent.slot),
        Cell::new(agent.agent.clone()),
        count(agent.threads),
        count(requests.due),
        count(requests.ok),
        count(requests.failed).with_weight(failed),
        Cell::new(not_offered(requests)).with_weight(weight),
        Cell::new(agent.clock_uncertainty_ms.map_or("–".to_owned(), |ms| significant(ms, 2))),
        Cell::new(agent.lost.iter().map(lost).collect::<Vec<_>>().join("; ")).with_weight(weight),
    ]
}

/// Requests that nobody sent.
fn not_offered(requests: &Requests) -> String {
    match requests.not_offered_min.zip(requests.not_offered) {
        None => "unknown".to_owned(),
        Some((least, most)) if least == most => format_count(most as f64),
        Some((least, most)) => format!("{}–{}", format_count(least as f64), format_count(most as f64)),
    }
}

/// An agent that was lost, and who took its place.
fn lost(lost: &LostAgent) -> String {
    let until = format!("{} after {:.0} s", lost.agent, lost.reported_until_s);
    match lost.replaced_at_s {
        Some(at_s) => format!("{until}, replaced at {at_s:.1} s"),
        None => until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_agents_come_first() {
        let requests = Requests {
            due: 10,
            ok: 10,
            not_offered: Some(0),
            not_offered_min: Some(0),
            ..Default::default()
        };
        let agent = |slot: u64| AgentSummary {
            slot,
            agent: format!("a{slot}"),
            threads: 2,
            clock_uncertainty_ms: Some(0.1234),
            requests: requests.clone(),
            ..Default::default()
        };
        let gone = LostAgent {
            agent: "x".into(),
            reported_until_s: 3.0,
            replaced_at_s: Some(9.25),
            ..Default::default()
        };
        let mut last = agent(60);
        last.lost = vec![gone];
        (last.requests.not_offered, last.requests.not_offered_min) = (Some(1_200), Some(900));
        let agents: Vec<AgentSummary> = (0..60).map(agent).chain([last]).collect();
        let table = of_agents(&agents);
        let texts: Vec<&str> = table.rows[0].iter().map(|cell| cell.text.as_str()).collect();
        let shown =
            ["60", "a60", "2", "10", "10", "0", "900–1,200", "0.12", "x after 3 s, replaced at 9.2 s"];
        assert_eq!(texts, shown);
        assert_eq!(table.rows.len(), MOST_ROWS);
        assert!(table.note.is_some_and(|note| note.ends_with("21 more are in summary.json.")));
    }
}
