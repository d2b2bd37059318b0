//! What a run reports while in progress: enough for a live view, none of the engine's state.

use std::collections::BTreeMap;

use loadlab_record::Secrets;
use loadlab_record::counts::load::{Counts, Tick};
use loadlab_record::documents::figure::FigureValue;
use loadlab_record::documents::manifest::{FigureFacts, UntilEnded};
use loadlab_record::documents::summary::{Doubt, Summary};
use loadlab_record::watch::sample::Sample;

use crate::result::{ComparisonProgress, FigureProgress};
use crate::senders::AgentNow;

/// What a record will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Trials of cases.
    Trials,
    /// Levels of a search.
    Levels,
    /// Loads under which limits are compared.
    Loads,
}

/// One event, reported in the order things happened.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// The record's folder exists.
    Recording {
        /// The record's folder.
        dir: std::path::PathBuf,
        /// Number of them to be run.
        count: usize,
        /// What they are.
        of: Recorded,
        /// `count` is an upper bound.
        at_most: bool,
    },
    /// A build command started.
    Building {
        /// What is being built.
        what: String,
        /// The command line.
        command: String,
    },
    /// A build command succeeded.
    Built {
        /// What was built.
        what: String,
        /// How long the command took.
        took_s: f64,
    },
    /// A trial started.
    TrialStarted {
        /// Name of its case.
        case: String,
        /// Its number within the case.
        trial: u32,
        /// Its position in the schedule, from 1.
        place: usize,
        /// Number of trials in the schedule.
        of: usize,
        /// `of` is an upper bound: trials run until it is certain how the cases differ.
        at_most: bool,
        /// CPU limits of its components, in cores, by component name.
        cpu_limits: BTreeMap<String, f64>,
        /// The figures that matter, as defined for its case.
        figures: Vec<FigureFacts>,
    },
    /// A component is ready.
    Ready {
        /// Name of the component.
        component: String,
        /// Seconds from its start until it was ready.
        after_s: f64,
    },
    /// A command of the plan ran.
    Command {
        /// `seed`, `before_trial` or `after_trial`.
        name: String,
        /// How long the command took.
        took_s: f64,
    },
    /// A load started.
    LoadStarted {
        /// Name of the load.
        load: String,
        /// Batch index, from 0, and number of batches.
        batch: (u32, u32),
        /// Planned duration, if known.
        planned_s: Option<f64>,
        /// Planned number of requests, if known.
        planned_requests: Option<u64>,
    },
    /// Ten times a second while a load runs, and once more when it has ended, then with the values that are recorded.
    Progress(Progress),
    /// Current values of the figures that matter, by name, in the plan's order: once a second while a load runs, if
    /// someone is watching.
    Figures {
        /// Name of the load.
        load: String,
        /// Figure name and value; many are unknown until the trial is over.
        values: Vec<(String, FigureValue)>,
    },
    /// A second of a load is complete.
    Second(Box<Tick>),
    /// The agents that send a load: about once a second, and once more when the load has ended.
    Agents {
        /// Name of the load.
        load: String,
        /// All agents, in slot order.
        agents: Vec<AgentNow>,
    },
    /// Samples of components and probes.
    Watched(Vec<Sample>),
    /// A reason to doubt a load, reported when it arises; the trial's final doubts are in its summary.
    Doubt {
        /// Name of the load.
        load: String,
        /// The doubt as it is now.
        doubt: Doubt,
    },
    /// A load ended.
    LoadEnded {
        /// Name of the load.
        load: String,
        /// `complete`, or the reason it ended early.
        how: String,
    },
    /// Draining: waiting for the system to finish its work.
    Draining {
        /// The condition to wait for.
        until: String,
    },
    /// Draining ended.
    Drained {
        /// How long after the end of the loads.
        took_s: f64,
        /// The condition held; `false` if the deadline passed first.
        done: bool,
    },
    /// An action scheduled by the plan was carried out, or failed.
    Acted {
        /// The action, as the plan words it.
        what: String,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// A component exited without being asked to.
    Died {
        /// Name of the component.
        component: String,
        /// Its exit status, in words.
        status: String,
    },
    /// A message for the user.
    Note(String),
    /// A trial ended.
    TrialEnded {
        /// Name of its case.
        case: String,
        /// Its number within the case, from 1.
        trial: u32,
        /// Its measurements, if it got that far.
        summary: Option<Box<Summary>>,
        /// Why it failed, if it did.
        failure: Option<String>,
        /// The figures that matter, as defined for its case.
        figures: Vec<FigureFacts>,
    },
    /// A round ended in a run whose trials continue until it is certain how the cases differ.
    RoundEnded {
        /// The round that ended, from 1.
        round: u32,
        /// Maximum number of rounds.
        at_most: u32,
        /// Estimated time left; `None` if no more rounds follow, or none was made by this process yet.
        left_s: Option<f64>,
        /// How close each comparison is to being settled.
        comparisons: Vec<ComparisonProgress>,
        /// Why no more rounds follow, if none do.
        ended: Option<UntilEnded>,
    },
}

impl RunEvent {
    /// This event with secrets masked, so that every receiver may show all of it.
    pub fn masked(self, secrets: &Secrets) -> RunEvent {
        if secrets.is_empty() {
            return self;
        }
        let text = |text: String| secrets.mask(&text).into_owned();
        let withheld = || RunEvent::Note("something could not be masked, so it is not shown".to_owned());
        let some = |text: Option<String>| text.map(|text| secrets.mask(&text).into_owned());
        match self {
            RunEvent::Recording { .. } => self,
            RunEvent::Building { what, command } => {
                RunEvent::Building { what: text(what), command: text(command) }
            }
            RunEvent::Built { what, took_s } => RunEvent::Built { what: text(what), took_s },
            RunEvent::TrialStarted { case, trial, place, of, at_most, cpu_limits, figures } => {
                let cpu_limits = cpu_limits.into_iter().map(|(name, limit)| (text(name), limit)).collect();
                let figures = secrets.mask_value(figures).unwrap_or_default();
                RunEvent::TrialStarted { case: text(case), trial, place, of, at_most, cpu_limits, figures }
            }
            RunEvent::Ready { component, after_s } => RunEvent::Ready { component: text(component), after_s },
            RunEvent::Command { name, took_s } => RunEvent::Command { name: text(name), took_s },
            RunEvent::LoadStarted { load, batch, planned_s, planned_requests } => {
                RunEvent::LoadStarted { load: text(load), batch, planned_s, planned_requests }
            }
            RunEvent::Progress(progress) => {
                RunEvent::Progress(Progress { load: text(progress.load), ..progress })
            }
            RunEvent::Figures { load, values } => {
                let value = |of: FigureValue| FigureValue { note: some(of.note), ..of };
                let values = values.into_iter().map(|(name, of)| (text(name), value(of))).collect();
                RunEvent::Figures { load: text(load), values }
            }
            RunEvent::Second(tick) => {
                secrets.mask_value(*tick).map_or_else(withheld, |tick| RunEvent::Second(Box::new(tick)))
            }
            RunEvent::Agents { load, agents } => {
                let name = |of: AgentNow| AgentNow { agent: text(of.agent), ..of };
                let agents = agents.into_iter().map(name).collect();
                RunEvent::Agents { load: text(load), agents }
            }
            RunEvent::Watched(samples) => RunEvent::Watched(secrets.mask_value(samples).unwrap_or_default()),
            RunEvent::Doubt { load, doubt } => secrets
                .mask_value(doubt)
                .map_or_else(withheld, |doubt| RunEvent::Doubt { load: text(load), doubt }),
            RunEvent::LoadEnded { load, how } => RunEvent::LoadEnded { load: text(load), how: text(how) },
            RunEvent::Draining { until } => RunEvent::Draining { until: text(until) },
            RunEvent::Drained { .. } => self,
            RunEvent::Acted { what, error } => RunEvent::Acted { what: text(what), error: some(error) },
            RunEvent::Died { component, status } => {
                RunEvent::Died { component: text(component), status: text(status) }
            }
            RunEvent::Note(note) => RunEvent::Note(text(note)),
            RunEvent::TrialEnded { case, trial, summary, failure, figures } => RunEvent::TrialEnded {
                case: text(case),
                trial,
                summary: summary.and_then(|summary| secrets.mask_value(*summary)).map(Box::new),
                failure: some(failure),
                figures: secrets.mask_value(figures).unwrap_or_default(),
            },
            RunEvent::RoundEnded { round, at_most, left_s, comparisons, ended } => {
                let figure = |of: FigureProgress| FigureProgress { name: text(of.name), ..of };
                let one = |of: ComparisonProgress| ComparisonProgress {
                    base: text(of.base),
                    other: text(of.other),
                    figures: of.figures.into_iter().map(figure).collect(),
                    ..of
                };
                let comparisons = comparisons.into_iter().map(one).collect();
                RunEvent::RoundEnded { round, at_most, left_s, comparisons, ended }
            }
        }
    }
}

/// The progress of a load.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Name of the load.
    pub load: String,
    /// Seconds since its start.
    pub at_s: f64,
    /// Totals so far; `in_flight` is the current number.
    pub counts: Counts,
    /// Successful responses per second over roughly the last second.
    pub ok_per_s: f64,
    /// Median response time so far, if there were any responses.
    pub p50_ms: Option<f64>,
    /// 99th percentile so far.
    pub p99_ms: Option<f64>,
    /// Number of open connections.
    pub connections: u64,
}
