//! Whether this machine is fit for a load, checked before the load runs: each limit or setting that would spoil it,
//! with its figure, its effect on this load, and the remedy as a command.
//!
//! [`read`] inspects the machine; [`findings`] and [`notes`] are pure: the same facts give the same words. Nothing is
//! changed here and no remedy is applied. What only the run itself can show (lateness, drops) is left to the run's
//! doubts.

mod checks;
mod facts;
mod planned;

use std::fmt;

use loadlab_plan::Isolation;

pub use facts::{CgroupLimits, Conntrack, CpuUse, Facts, Governor, IoUring, Limit, Memory, read, read_in};
pub use planned::Demand;

/// How serious a finding is for a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It does not affect this load.
    Ok,
    /// Worth knowing; the figures remain valid.
    Note,
    /// The figures may be spoiled.
    Doubt,
    /// The load cannot run as the plan describes it.
    Blocker,
}

impl Severity {
    /// The severity as a single word.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Doubt => "doubt",
            Severity::Blocker => "blocker",
        }
    }
}

/// The finding about one limit or setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked: `open files`, `source ports` …
    pub what: &'static str,
    /// The measured value, with its unit.
    pub figure: String,
    /// Its effect on this load; without a load, how much the machine could handle.
    pub effect: String,
    /// A command that helps, if there is one. Some need root; none is ever run by loadlab.
    pub remedy: Option<String>,
    /// How serious it is.
    pub severity: Severity,
}

impl Finding {
    fn new(what: &'static str, figure: impl Into<String>) -> Finding {
        Finding { what, figure: figure.into(), effect: String::new(), remedy: None, severity: Severity::Ok }
    }

    fn effect(mut self, severity: Severity, effect: impl Into<String>) -> Finding {
        self.severity = severity;
        self.effect = effect.into();
        self
    }

    fn remedy(mut self, command: impl Into<String>) -> Finding {
        self.remedy = Some(command.into());
        self
    }
}

impl fmt::Display for Finding {
    /// One line: what, figure, effect, and the remedy in backquotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.what, self.figure, self.effect)?;
        match &self.remedy {
            Some(command) => write!(f, "; remedy: `{command}`"),
            None => Ok(()),
        }
    }
}

/// All checks in a fixed order, good or bad. Without a load, they report how much the machine could handle, and only
/// what would spoil every load is rated above a note.
pub fn findings(planned: Option<&Demand>, facts: &Facts) -> Vec<Finding> {
    let isolation = planned.map_or(Isolation::None, |planned| planned.isolation);
    if isolation == Isolation::None {
        return checks::ALL.iter().filter_map(|check| check(planned, facts)).collect();
    }
    // A new network namespace starts with the kernel's defaults, whatever the machine's settings are.
    let facts = Facts {
        port_range: facts.port_range.map(|_| (32_768, 60_999)),
        ports_reserved: 0,
        tw_reuse: facts.tw_reuse.map(|_| 2),
        somaxconn: facts.somaxconn.map(|_| 4096),
        ..facts.clone()
    };
    let found = checks::ALL.iter().filter_map(|check| check(planned, &facts));
    found.map(|finding| in_own_network(finding, isolation)).collect()
}

/// The run's own network does not use the machine's network settings; only a component started in it can change them.
fn in_own_network(mut finding: Finding, isolation: Isolation) -> Finding {
    if !finding.remedy.as_deref().is_some_and(|remedy| remedy.starts_with("sysctl -w net.")) {
        return finding;
    }
    let is_of_server = ["accept queue", "half-open queue"].contains(&finding.what);
    if isolation == Isolation::Shared || is_of_server {
        finding
            .effect
            .push_str("; the run's own network is set by a component whose `run` begins with the command");
    } else {
        finding.remedy = None;
    }
    finding
}

/// Doubts and blockers of a load, one line each, most serious first; printed before a run.
pub fn notes(planned: &Demand, facts: &Facts) -> Vec<String> {
    let mut found = findings(Some(planned), facts);
    found.retain(|f| f.severity >= Severity::Doubt);
    found.sort_by_key(|f| std::cmp::Reverse(f.severity));
    found.iter().map(Finding::to_string).collect()
}

/// The findings of several cases as one list: the most serious of each kind, with the case's name where cases differ.
pub fn worst(cases: &[(String, Vec<Finding>)]) -> Vec<Finding> {
    let mut out: Vec<(&str, Finding)> = Vec::new();
    for (case, found) in cases {
        for finding in found {
            match out.iter_mut().find(|(_, f)| f.what == finding.what) {
                None => out.push((case, finding.clone())),
                Some(kept) if kept.1.severity < finding.severity => *kept = (case, finding.clone()),
                Some(_) => {}
            }
        }
    }
    let differs =
        |f: &Finding| cases.iter().flat_map(|(_, all)| all).any(|g| g.what == f.what && g.effect != f.effect);
    let mut out: Vec<(String, Finding)> = out.into_iter().map(|(c, f)| (c.to_owned(), f)).collect();
    for (case, finding) in &mut out {
        if finding.severity > Severity::Ok && differs(finding) {
            finding.effect = format!("case `{case}`: {}", finding.effect);
        }
    }
    out.into_iter().map(|(_, f)| f).collect()
}

#[cfg(test)]
mod tests;
