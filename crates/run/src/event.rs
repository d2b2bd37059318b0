//! What a run reports while it is in progress: enough for a live view, nothing of the engine's state.

use std::collections::BTreeMap;

use loadlab_record::Secrets;
use loadlab_record::figure::FigureValue;
use loadlab_record::load::{Counts, Tick};
use loadlab_record::manifest::{FigureFacts, UntilEnded};
use loadlab_record::sample::Sample;
use loadlab_record::summary::{Doubt, Summary};

use crate::result::{Settled, SettledFigure};
use crate::senders::AgentNow;

/// One thing that happened, in the order it happened.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// The record's folder exists.
    Recording {
        /// Where.
        dir: std::path::PathBuf,
        /// Cases times trials.
        trials: usize,
        /// There may be fewer: they go on until it is certain how the cases differ.
        at_most: bool,
    },
    /// A build command starts.
    Building {
        /// What for.
        what: String,
        /// The command.
        command: String,
    },
    /// It succeeded.
    Built {
        /// What for.
        what: String,
        /// How long it took.
        took_s: f64,
    },
    /// A trial begins.
    TrialStarted {
        /// Its case.
        case: String,
        /// Its number within the case.
        trial: u32,
        /// Its place in the schedule, from 1.
        place: usize,
        /// How many there are; at most, if they go on until it is certain how the cases differ.
        of: usize,
        /// That is so.
        at_most: bool,
        /// CPU limits of its components, in cores.
        cpu_limits: BTreeMap<String, f64>,
        /// The figures that matter, as defined for its case.
        figures: Vec<FigureFacts>,
    },
    /// A component is ready.
    Ready {
        /// Which.
        component: String,
        /// How long after its start.
        after_s: f64,
    },
    /// A command of the plan ran.
    Command {
        /// `seed`, `before_trial`, `after_trial`.
        name: String,
        /// How long it took.
        took_s: f64,
    },
    /// A load begins.
    LoadStarted {
        /// Its name.
        load: String,
        /// Which batch, from 0, of how many.
        batch: (u32, u32),
        /// How long it is planned to take, if that is known.
        planned_s: Option<f64>,
        /// How many requests are planned, if that is known.
        planned_requests: Option<u64>,
    },
    /// Ten times a second while a load runs, and once more when it has ended: then with the values that are recorded.
    Progress(Progress),
    /// The values so far of the figures that matter, by name, in the plan's order: once a second while a load runs,
    /// if someone is watching.
    Figures {
        /// Which load.
        load: String,
        /// Name and value; many are unknown until the trial is over.
        values: Vec<(String, FigureValue)>,
    },
    /// A second of a load is complete.
    Second(Box<Tick>),
    /// The agents that send a load, about once a second, and once more when it has ended.
    Agents {
        /// Which load.
        load: String,
        /// All of them, in the order of their parts.
        agents: Vec<AgentNow>,
    },
    /// Components and probes were read, about once a second each.
    Watched(Vec<Sample>),
    /// A reason to doubt a load, when it arises; the trial's doubts are in its summary.
    Doubt {
        /// Which load.
        load: String,
        /// The doubt, as of now.
        doubt: Doubt,
    },
    /// A load ended.
    LoadEnded {
        /// Its name.
        load: String,
        /// `complete`, or why not.
        how: String,
    },
    /// Waiting until the work is done.
    Draining {
        /// The condition.
        until: String,
    },
    /// That ended.
    Drained {
        /// How long it took.
        took_s: f64,
        /// The condition held; otherwise its deadline passed.
        done: bool,
    },
    /// An event of the plan was carried out.
    Acted {
        /// What, as the plan words it.
        what: String,
        /// Why it could not be.
        error: Option<String>,
    },
    /// A component ended without being asked to.
    Died {
        /// Which.
        component: String,
        /// How, in words.
        status: String,
    },
    /// Something worth reading.
    Note(String),
    /// A trial ended.
    TrialEnded {
        /// Its case.
        case: String,
        /// Its number.
        trial: u32,
        /// What it measured, if it got that far.
        summary: Option<Box<Summary>>,
        /// What spoiled it.
        failure: Option<String>,
        /// The figures that matter, as defined for its case.
        figures: Vec<FigureFacts>,
    },
    /// After a round of trials that go on until it is certain how the cases differ.
    Settling {
        /// From 1.
        round: u32,
        /// Rounds at most.
        at_most: u32,
        /// About how much longer it takes; `None` if there are no more rounds.
        left_s: Option<f64>,
        /// How near each comparison is.
        comparisons: Vec<Settled>,
        /// Why there are no more rounds.
        ended: Option<UntilEnded>,
    },
}

impl RunEvent {
    /// The same with secrets masked: every receiver may show all of it.
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
            RunEvent::Settling { round, at_most, left_s, comparisons, ended } => {
                let figure = |of: SettledFigure| SettledFigure { name: text(of.name), ..of };
                let one = |of: Settled| Settled {
                    base: text(of.base),
                    other: text(of.other),
                    figures: of.figures.into_iter().map(figure).collect(),
                    ..of
                };
                let comparisons = comparisons.into_iter().map(one).collect();
                RunEvent::Settling { round, at_most, left_s, comparisons, ended }
            }
        }
    }
}

/// The progress of a load.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Which.
    pub load: String,
    /// Time since its start.
    pub at_s: f64,
    /// Counted so far; `in_flight` is the current number.
    pub counts: Counts,
    /// Successful responses per second over about the last second.
    pub ok_per_s: f64,
    /// Median response time so far, if anything was answered.
    pub p50_ms: Option<f64>,
    /// 99th percentile so far.
    pub p99_ms: Option<f64>,
    /// Connections open.
    pub connections: u64,
}
