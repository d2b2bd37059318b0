//! How the run was made: everything needed to repeat it, and to know what it ran on.

use loadlab_analysis::DiagnosedRun;
use loadlab_record::documents::manifest::{RunEnded, UntilEnded};
use loadlab_record::text::units::format_duration_ns;

use crate::document::{Block, Fact, Remark, Section, Weight};
use crate::figures::{self, bytes, plural};

/// One line under the title.
pub fn subtitle(run: &DiagnosedRun) -> String {
    let m = &run.manifest;
    let host = &m.host;
    format!(
        "{} UTC, {} of {}, {}, loadlab {}.",
        m.started.get(..16).unwrap_or(&m.started).replace('T', " "),
        plural(host.cores, "core", "cores"),
        if host.cpu.is_empty() { "unknown CPU" } else { &host.cpu },
        bytes(host.memory_bytes as f64),
        m.loadlab
    )
}

/// The last section.
pub fn section(run: &DiagnosedRun) -> Section {
    let m = &run.manifest;
    let mut blocks = Vec::new();
    if !m.words.is_empty() {
        blocks.push(Block::Heading("Experiment".into()));
        let remarks = m.words.iter().map(|w| Remark {
            weight: Weight::Plain,
            label: String::new(),
            text: w.clone(),
            hint: None,
        });
        blocks.push(Block::Remarks(remarks.collect()));
    }
    blocks.push(Block::Heading("Machine and run".into()));
    blocks.push(Block::Facts(facts(run)));
    if !run.notes.is_empty() {
        blocks.push(Block::Heading("Missing from the record".into()));
        let notes = run.notes.iter().map(|text| Remark {
            weight: Weight::Doubtful,
            label: "note".into(),
            text: text.clone(),
            hint: None,
        });
        blocks.push(Block::Remarks(notes.collect()));
    }
    blocks.push(Block::Folded { title: format!("The plan ({})", m.plan_path), text: m.plan_text.clone() });
    Section { is_folded: true, ..Section::new("made", "Setup", blocks) }
}

fn facts(run: &DiagnosedRun) -> Vec<Fact> {
    let m = &run.manifest;
    let ended = match m.how {
        RunEnded::Complete => "complete",
        RunEnded::Broken => "with trials that failed",
        RunEnded::Interrupted => "interrupted",
        RunEnded::Partial => "still going, or killed",
    };
    let mut facts = vec![
        Fact::new("started", &m.started),
        Fact::new("ended", format!("{} ({ended})", m.ended.as_deref().unwrap_or("–"))),
        Fact::new("plan", format!("{} (SHA-256 {})", m.plan_path, m.plan_sha256)),
        Fact::new("trials per case", trials(run)),
        Fact::new("kernel", &m.host.kernel),
        Fact::new("CPU", format!("{}, {}", m.host.cpu, plural(m.host.cores, "core", "cores"))),
        Fact::new("memory", bytes(m.host.memory_bytes as f64)),
        Fact::new("clock source", &m.host.clock_source),
        Fact::new("cgroups", &m.host.cgroup),
        Fact::new("loadlab", &m.loadlab),
    ];
    if !m.options.is_empty() {
        facts.insert(3, Fact::new("options", m.options.join(" ")));
    }
    if !m.expect.is_empty() {
        facts.push(Fact::new("expected", m.expect.join("; ")));
    }
    facts.extend(m.components.iter().map(|c| Fact::new(format!("component {}", c.name), &c.run)));
    facts.retain(|f| !f.text.is_empty());
    facts
}

/// How many trials each case has, or until when trials continued.
fn trials(run: &DiagnosedRun) -> String {
    let m = &run.manifest;
    let Some(until) = &m.until_certain else { return m.trials.to_string() };
    let ended = match until.ended {
        Some(UntilEnded::Settled) => "every comparison was settled",
        Some(UntilEnded::AtMost) => "the maximum number of rounds was reached",
        Some(UntilEnded::Budget) => "another round would have exceeded the budget",
        Some(UntilEnded::NotMeasured) => "a case could not be measured",
        None => "the run was cut off",
    };
    let made: Vec<String> = run.cases.iter().map(|case| case.trials.len().to_string()).collect();
    let budget = until.budget_s.map(|s| format!(" and at most {}", format_duration_ns(s * 1e9)));
    format!(
        "{}, until certain within {} (at most {}{}): {ended}",
        made.join(", "),
        figures::percent(until.within),
        m.trials,
        budget.unwrap_or_default(),
    )
}
