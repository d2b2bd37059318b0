//! A checked plan: plain values with their units in their names.
//!
//! Everything that depends on the case is resolved here; what only a run can know (ports to be found, the run's folder)
//! stays in [`Template`]s.

use loadlab_record::documents::figure::{Better, NumberKind};
use loadlab_record::documents::search::SearchVariable;
use loadlab_record::spec::schedule::{Arrivals, Stage, Think, Until, WhenBehind};

use crate::model::component_kind::{Command, Lifetime};
use crate::model::component_kind::{ComponentKind, ComposeSpec};
use crate::model::journey::Step;
use crate::model::journey::{Http, Place, Script, Setup};
use crate::model::limits::{LimitName, Limits};
use crate::model::template::Template;

/// One point of the matrix, fully resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Unique within the plan: as given, or `axis=value, axis=value`, or `default` without a matrix.
    pub name: String,
    /// A value for every axis, as written, in the order of [`crate::Plan::axes`].
    pub values: Vec<(String, String)>,
    /// The plan's folder, in the case's revision: where its commands run.
    pub dir: String,
    /// The case that this one repeats under another name.
    pub control_of: Option<String>,
    /// The system under test.
    pub system: SystemSpec,
    /// Steps taken once, before the loads of each trial.
    pub setup: Setup,
    /// The loads; at least one.
    pub loads: Vec<LoadSpec>,
    /// The plan's named figures, in order.
    pub figures: Vec<FigureSpec>,
    /// Conditions, any of which ends the load.
    pub stop_when: Vec<Expression>,
    /// How to wait for the work to be done after the load.
    pub drain: Option<DrainSpec>,
    /// Conditions, all of which must hold.
    pub expect: Vec<Expression>,
    /// What each trial searches for; `None`: it measures the loads as they are.
    pub find: Option<FindSpec>,
    /// Events during the load, in order of time.
    pub events: Vec<EventSpec>,
    /// What can be changed while the system is up.
    pub levers: Vec<LeverSpec>,
    /// Whose stacks are sampled while loads run.
    pub profile: Option<ProfileSpec>,
    /// How to find out what was stored, to compare it with what was accepted.
    pub durability: Option<DurabilitySpec>,
}

/// Stacks that are sampled while loads run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSpec {
    /// Names of components, replicas by their own names; empty: all.
    pub components: Vec<String>,
    /// Samples per second and core; about ten times as many for waits.
    pub rate_per_s: u32,
    /// Whether to sample where threads spend CPU time.
    pub on_cpu: bool,
    /// Whether to sample where threads wait.
    pub on_wait: bool,
}

impl ProfileSpec {
    /// CPU time of these components; of all if the list is empty. The rate is not a multiple of a round one, so that
    /// work in step with a timer is neither always nor never seen.
    pub fn of(components: Vec<String>) -> ProfileSpec {
        ProfileSpec { components, rate_per_s: 199, on_cpu: true, on_wait: false }
    }

    /// Whether a component is sampled.
    pub fn covers(&self, component: &str) -> bool {
        self.components.is_empty() || self.components.iter().any(|name| name == component)
    }
}

/// A search for the highest load that meets conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct FindSpec {
    /// What is varied.
    pub vary: SearchVariable,
    /// Lowest and highest level; the lowest is at least 1.
    pub range: (u64, u64),
    /// Index of the load that is varied.
    pub load: usize,
    /// Conditions that a level must meet.
    pub expect: Vec<Expression>,
    /// How long each level is measured.
    pub level_ns: u64,
    /// How long a level settles before it is measured.
    pub settle_ns: u64,
    /// The maximum number of levels to measure, including repeats.
    pub max_levels: u32,
}

/// Something that happens to components during the load.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    /// Time after the start of the trial's loads.
    pub at_ns: u64,
    /// As written: `kill edge2`.
    pub text: String,
    /// The components it happens to; at least one.
    pub components: Vec<String>,
    /// What is done.
    pub action: Action,
}

/// What an event does to its components.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Kills all its processes at once.
    Kill,
    /// Suspends its execution.
    Pause,
    /// Resumes its execution.
    Resume,
    /// Stops it gracefully and starts it again.
    Restart,
    /// Changes one of its limits.
    Limit {
        /// Limit to change.
        limit: LimitName,
        /// Cores, bytes, a count, or any of these per second; `None` is no limit.
        value: Option<f64>,
    },
    /// Cuts its link, so that nothing reaches it.
    Disconnect,
    /// Restores its link.
    Reconnect,
    /// Sets a lever of the plan. Only `loadlab why` uses it, never a plan: it applies to no component.
    Set {
        /// Index in [`Case::levers`].
        lever: usize,
        /// Number of the value, see [`LeverSpec::setting`].
        setting: usize,
    },
}

/// Something that the plan says can be changed while the system is up: a pool, a number of workers.
#[derive(Clone, Debug, PartialEq)]
pub struct LeverSpec {
    /// Its name.
    pub name: String,
    /// The planned value.
    pub now: LeverSetting,
    /// The value one step tighter.
    pub less: LeverSetting,
    /// Raised values, in order.
    pub more: Vec<LeverSetting>,
}

impl LeverSpec {
    /// Its values by number: the planned one, the tighter one, then the raised ones.
    pub fn setting(&self, number: usize) -> Option<&LeverSetting> {
        [&self.now, &self.less].into_iter().chain(&self.more).nth(number)
    }
}

/// A value of a lever, and the command that sets it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeverSetting {
    /// The value; above 0.
    pub value: f64,
    /// As written.
    pub text: String,
    /// Command that sets the value, run in the plan's folder.
    pub command: Command,
}

/// How loss is determined.
#[derive(Clone, Debug, PartialEq)]
pub struct DurabilitySpec {
    /// Where to find out what was stored.
    pub persisted: Persisted,
    /// Its place in the plan.
    pub at: Place,
}

/// The source of the ids that were stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Persisted {
    /// A URL that lists the ids.
    Http {
        /// URL: `http://…`.
        url: Template,
        /// JSON pointer to the list; `None`: the body is the list.
        json_pointer: Option<String>,
    },
    /// A command that prints the ids.
    Command(Command),
    /// A probe that counts the ids: then only bounds are known.
    Probe(String),
}

/// A figure derived from figures of the plan's cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedSpec {
    /// Its name.
    pub name: String,
    /// As written; names are `CASE.FIGURE`.
    pub value: String,
    /// Another derived figure that it is compared with.
    pub against: Option<String>,
}

/// A figure: a name for a number computed from others.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureSpec {
    /// Unique within the plan.
    pub name: String,
    /// How it is computed, with the case's values put in; a [`loadlab_record::expr::Formula`].
    pub value: String,
    /// Its kind.
    pub kind: NumberKind,
    /// What a plain number counts.
    pub unit: Option<String>,
    /// Which direction is better.
    pub better: Better,
    /// Description for readers.
    pub about: Option<String>,
}

/// A condition as written, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// As written, with the case's values put in.
    pub text: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Its place: the plan's path, or an option.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// What a condition is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `expect`: must hold.
    Expect,
    /// `stop_when`: ends the load.
    StopWhen,
    /// `drain.until`: the work is done.
    DrainUntil,
}

/// How to wait for the work to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainSpec {
    /// Done when this holds.
    pub until: Expression,
    /// Maximum wait.
    pub at_most_ns: u64,
}

/// Everything under test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemSpec {
    /// Every replica, in the order in which they are started.
    pub components: Vec<ComponentSpec>,
    /// Run once the system is ready, in the plan's folder, one after another.
    pub seed: Vec<Command>,
    /// Run before the load of each trial.
    pub before_trial: Vec<Command>,
    /// Run after the load of each trial.
    pub after_trial: Vec<Command>,
    /// Numbers read while it runs.
    pub probes: Vec<ProbeSpec>,
    /// How often components are sampled, in nanoseconds; `None`: once a second.
    pub sample_interval_ns: Option<u64>,
    /// The Compose file whose services are components, too.
    pub compose: Option<ComposeSpec>,
    /// Container engine: `docker`, `podman`, a socket; `None`: detected.
    pub engine: Option<String>,
}

/// One replica of a component.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentSpec {
    /// `edge2`; the component's plain name if there is only one replica. Unique within the system.
    pub name: String,
    /// The component as the plan names it: `edge`.
    pub group: String,
    /// Number of this replica, from 1.
    pub replica: u32,
    /// Number of replicas.
    pub replicas: u32,
    /// What it is, and how it is started.
    pub kind: ComponentKind,
    /// Its build commands, one after another, in `dir`; the same for replicas unless the plan uses `${replica}`.
    pub build: Vec<Command>,
    /// Environment variables, in addition to inherited ones.
    pub env: Vec<(String, Template)>,
    /// Working folder, relative to the plan's folder unless the plan gives an absolute one.
    pub dir: String,
    /// Ports, the unnamed one first.
    pub ports: Vec<PortSpec>,
    /// When it counts as up; `None`: as soon as its process runs.
    pub ready: Option<ReadySpec>,
    /// What it may use.
    pub limits: Limits,
    /// Whether its link has a delay or packet loss in this case or another, or through an event: a relay is then in
    /// between from the start and in all cases, so that the cases differ in nothing else.
    pub is_relayed: bool,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// How it is stopped.
    pub stop: StopSpec,
}

/// A port of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// `None` for `port`, a name for one of `ports`.
    pub name: Option<String>,
    /// `None`: `auto`, a free one is chosen when the system comes up.
    pub number: Option<u16>,
}

impl PortSpec {
    /// Its name in templates: `port`, or `port.NAME`.
    pub fn variable(&self) -> String {
        self.name.as_ref().map_or("port".to_owned(), |n| format!("port.{n}"))
    }
}

/// When a component counts as up.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadySpec {
    /// The sign to wait for.
    pub sign: ReadySign,
    /// Time limit for the sign.
    pub timeout_ns: u64,
}

/// The sign that a component is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadySign {
    /// This URL answers with a status below 400.
    Http(Template),
    /// `HOST:PORT` accepts a connection.
    Tcp(Template),
    /// This text appears in a line of its output.
    Log(Template),
    /// The container's health check reports healthy.
    Health,
}

/// How a component is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopSpec {
    /// Name without SIG: one of TERM, INT, QUIT, HUP, KILL, USR1, USR2.
    pub signal: String,
    /// Time limit for stopping before it is killed.
    pub timeout_ns: u64,
}

/// A number read from the system while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSpec {
    /// Its name in expressions.
    pub name: String,
    /// Where it comes from.
    pub source: ProbeSource,
}

/// Where a probe's number comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeSource {
    /// JSON from a URL.
    Http {
        /// URL: `http://…`.
        url: Template,
        /// JSON pointer (RFC 6901) to the number.
        json_pointer: String,
    },
    /// A page in Prometheus' text format.
    Prometheus {
        /// URL: `http://…/metrics`.
        url: Template,
        /// The metric's name.
        metric: String,
        /// Labels it must have.
        labels: Vec<(String, String)>,
    },
    /// A Redis command whose answer is a number.
    Redis {
        /// Address: `HOST:PORT`.
        address: Template,
        /// The command; at least one word.
        words: Vec<Template>,
    },
    /// A command that prints a number in its last line.
    Command(Command),
    /// How many lines of the components' logs contain a text.
    Log {
        /// Names of replicas; at least one.
        components: Vec<String>,
        /// A text within one line.
        contains: String,
    },
}

/// What is sent, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSpec {
    /// Its name; `load` if there is only one.
    pub name: String,
    /// Closed or open, or made by a command.
    pub model: Model,
    /// What ends it.
    pub until: Until,
    /// Users start, or the rate grows, evenly over this time.
    pub ramp_ns: u64,
    /// The window starts after this time.
    pub warmup_ns: u64,
    /// Whether the window starts after a warm-up whose end is detected.
    pub is_warmup_found: bool,
    /// Number of batches; 1 unless the plan says otherwise.
    pub batches: u32,
    /// Pause between two batches.
    pub pause_ns: u64,
    /// Delay from the start of the trial's loads to the start of this one.
    pub start_ns: u64,
    /// How users or rate change; empty: they do not, apart from the ramp. The model then has their maximum, and the
    /// load ends with the last stage.
    pub stages: Vec<Stage>,
    /// Each user's pause after an answer.
    pub think: Think,
    /// What happens to requests that cannot start when due.
    pub when_behind: WhenBehind,
    /// Maximum wait for an answer.
    pub timeout_ns: u64,
    /// Time within which requests in flight at the end may finish.
    pub grace_ns: u64,
    /// Whether connections are reused.
    pub keep_alive: bool,
    /// Number of load threads; `None`: as many as there are cores left by the system.
    pub threads: Option<u32>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The steps, in order; at least one, or none for a [`Model::Command`].
    pub journey: Vec<Step>,
    /// What surrounds the steps: each user's steps before and after, data feeds, captures.
    pub script: Script,
    /// Its protocol settings.
    pub http: Http,
}

impl LoadSpec {
    /// The program that makes it, if one does.
    pub fn command(&self) -> Option<&CommandLoad> {
        match &self.model {
            Model::Command(command) => Some(command),
            _ => None,
        }
    }

    /// When it ends at the latest by its plan, apart from requests in flight then, after the start of the trial's loads;
    /// `None` if it ends by number, or has batches.
    pub fn planned_end_ns(&self) -> Option<u64> {
        match self.until {
            Until::Elapsed(ns) if self.batches == 1 => Some(self.start_ns.saturating_add(ns)),
            _ => None,
        }
    }

    /// All its steps: those before its journey, the journey's, those after it.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.script.user_setup.iter().chain(&self.journey).chain(&self.script.user_teardown)
    }
}

/// When the last of these loads ends, see [`LoadSpec::planned_end_ns`]; `None` if that is unknown for any.
pub fn planned_end_ns(loads: &[LoadSpec]) -> Option<u64> {
    loads.iter().map(LoadSpec::planned_end_ns).try_fold(0, |end, ns| Some(end.max(ns?)))
}

/// Who decides when a request is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// Users, each of which sends its next request after its last one ended.
    Closed {
        /// Number of users.
        users: u64,
        /// Each user's steps fall due at this interval.
        pace_ns: Option<u64>,
    },
    /// Requests sent on a schedule.
    Open {
        /// Requests per second.
        rate_per_s: f64,
        /// How arrivals are spread.
        arrivals: Arrivals,
        /// Maximum number of requests in flight.
        max_in_flight: u64,
    },
    /// A program of the user's, which makes the load itself.
    Command(CommandLoad),
    /// Users that arrive on a schedule, make one journey and leave.
    Sessions {
        /// Users per second.
        rate_per_s: f64,
        /// How arrivals are spread.
        arrivals: Arrivals,
        /// Maximum number of users at a time.
        max_users: u64,
    },
}

/// A program that makes a load. The load has no steps of its own, and all its request settings are defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLoad {
    /// Command to run.
    pub command: Command,
    /// The probe whose increase counts its requests.
    pub counted_by: String,
    /// Number of requests it must make; `None` if unknown.
    pub requests: Option<u64>,
    /// The load begins when this appears in the program's output; `None`: when the program is started.
    pub started_when_output: Option<Template>,
    /// Time limit after which the program is killed.
    pub timeout_ns: u64,
    /// Environment variables, in addition to inherited ones.
    pub env: Vec<(String, Template)>,
    /// Working folder, relative to the plan's folder unless the plan gives an absolute one.
    pub dir: String,
}
