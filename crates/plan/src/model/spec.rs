//! A checked plan: plain values with their units in their names.
//!
//! Everything that depends on the case is resolved here; what only a run can know (ports to be found, the run's
//! folder) is left in [`Template`]s.

use loadlab_record::expr::NumberKind;
use loadlab_record::figure::Better;
use loadlab_record::schedule::{Arrivals, Stage, Think, Until, WhenBehind};
use loadlab_record::search::SearchVariable;

use crate::model::journey::Step;
use crate::model::journey::{Http, Place, Script, Setup};
use crate::model::part::{Command, Lifetime};
use crate::model::part::{ComponentKind, ComposeSpec};
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
    /// The case that it is once more, under another name.
    pub control_of: Option<String>,
    /// The system under test.
    pub system: SystemSpec,
    /// Steps taken once, before the loads of each trial.
    pub setup: Setup,
    /// What is sent; at least one.
    pub loads: Vec<LoadSpec>,
    /// The figures that matter, in order.
    pub figures: Vec<FigureSpec>,
    /// Any of these ends the load.
    pub stop_when: Vec<Expression>,
    /// How to wait for the work to be done after the load.
    pub drain: Option<DrainSpec>,
    /// All of these must hold.
    pub expect: Vec<Expression>,
    /// What each trial searches for; `None`: it measures the loads as they are.
    pub find: Option<FindSpec>,
    /// Events during the load, in order of time.
    pub events: Vec<EventSpec>,
    /// What can be changed while it is up.
    pub levers: Vec<LeverSpec>,
    /// Whose stacks are sampled while loads run.
    pub profile: Option<ProfileSpec>,
    /// How to find out what was stored, to compare it with what was accepted.
    pub durability: Option<DurabilitySpec>,
}

/// Stacks that are sampled while loads run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSpec {
    /// Components, replicas by their own names; empty: all.
    pub components: Vec<String>,
    /// Samples per second and core; of waits about ten times as many.
    pub rate_per_s: u32,
    /// Where threads spend CPU time.
    pub on_cpu: bool,
    /// Where threads wait.
    pub on_wait: bool,
}

impl ProfileSpec {
    /// CPU time of these components; none: of all. The rate is no multiple of a round one, so that work in step with a
    /// timer is neither always seen nor never.
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
    /// What a level must meet.
    pub expect: Vec<Expression>,
    /// How long each level is measured.
    pub level_ns: u64,
    /// How long it settles before that.
    pub settle_ns: u64,
    /// The maximum number of levels to measure, including repeats.
    pub max_levels: u32,
}

/// Something that happens to components during the load.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    /// This long after the start of the trial's loads.
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
    /// Ends it at once, all its processes.
    Kill,
    /// Stops its execution.
    Pause,
    /// Continues it.
    Resume,
    /// Stops it in order and starts it again.
    Restart,
    /// Changes one of its limits.
    Limit {
        /// Which.
        limit: LimitName,
        /// Cores, bytes, a count, or any of these per second; `None` is no limit.
        value: Option<f64>,
    },
    /// Cuts its link: nothing reaches it.
    Disconnect,
    /// Restores its link.
    Reconnect,
    /// Sets a lever of the plan. `loadlab why` does, no plan: it happens to no component.
    Set {
        /// Its place in [`Case::levers`].
        lever: usize,
        /// Which value, see [`LeverSpec::setting`].
        setting: usize,
    },
}

/// Something that the plan says can be changed while the system is up: a pool, a number of workers.
#[derive(Clone, Debug, PartialEq)]
pub struct LeverSpec {
    /// Its name.
    pub name: String,
    /// As planned.
    pub now: LeverSetting,
    /// One step tighter.
    pub less: LeverSetting,
    /// More of it, in order.
    pub more: Vec<LeverSetting>,
}

impl LeverSpec {
    /// Its values in order: the planned one, the tighter one, more of it.
    pub fn setting(&self, number: usize) -> Option<&LeverSetting> {
        [&self.now, &self.less].into_iter().chain(&self.more).nth(number)
    }
}

/// A value of a lever, and what sets it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeverSetting {
    /// The value; above 0.
    pub value: f64,
    /// As written.
    pub text: String,
    /// Run in the plan's folder.
    pub command: Command,
}

/// One of the limits of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitName {
    /// CPU time, in cores.
    Cpu,
    /// Memory, in bytes.
    Memory,
    /// Memory and swap together, in bytes.
    MemorySwap,
    /// Processes and threads.
    Pids,
    /// Open files of each process.
    OpenFiles,
    /// Bytes read per second from each disk.
    BlockRead,
    /// Bytes written per second to each disk.
    BlockWrite,
    /// Reads per second from each disk.
    BlockReadOps,
    /// Writes per second to each disk.
    BlockWriteOps,
    /// Bytes per second over its link, each way.
    Bandwidth,
    /// Added round-trip time of its link, in nanoseconds.
    Delay,
    /// Maximum variation of the delay, in nanoseconds.
    Jitter,
    /// Share of the traffic on its link that is lost, 0 to 1.
    PacketLoss,
}

/// A limit that follows from what an earlier case measured: a figure times a factor.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredLimit {
    /// Which limit.
    pub limit: LimitName,
    /// The case that measured it.
    pub case: String,
    /// One of its components, or a group of replicas, which are averaged.
    pub component: String,
    /// As in conditions: `memory.mean`.
    pub figure: String,
    /// What it is multiplied by.
    pub factor: f64,
    /// As written.
    pub text: String,
    /// Where.
    pub at: Place,
}

/// How loss is determined.
#[derive(Clone, Debug, PartialEq)]
pub struct DurabilitySpec {
    /// Where to find out what was stored.
    pub persisted: Persisted,
    /// Where in the plan.
    pub at: Place,
}

/// The source of what was stored.
#[derive(Clone, Debug, PartialEq)]
pub enum Persisted {
    /// A URL that lists the ids.
    Http {
        /// `http://…`.
        url: Template,
        /// Where the list is; `None`: the body is the list.
        json_pointer: Option<String>,
    },
    /// A command that prints them.
    Command(Command),
    /// A probe that counts them: then only bounds are known.
    Probe(String),
}

/// A figure derived from figures of the plan's cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedSpec {
    /// Its name.
    pub name: String,
    /// As written; names are `CASE.FIGURE`.
    pub value: String,
    /// Another one that it is compared with.
    pub against: Option<String>,
}

/// A figure that matters: a name for a number computed from others.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureSpec {
    /// Unique within the plan.
    pub name: String,
    /// How it is computed, with the case's values put in; a [`loadlab_record::expr::Sum`].
    pub value: String,
    /// Its kind.
    pub kind: NumberKind,
    /// What a plain number counts.
    pub unit: Option<String>,
    /// Which direction is better.
    pub better: Better,
    /// What it is, for readers.
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
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
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
    /// Longest wait.
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
    /// Which container engine: `docker`, `podman`, a socket; `None`: detected.
    pub engine: Option<String>,
}

/// One replica of a component.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentSpec {
    /// `edge2`; the component's own name if there is only one replica. Unique within the system.
    pub name: String,
    /// The component as the plan names it: `edge`.
    pub group: String,
    /// From 1.
    pub replica: u32,
    /// How many there are.
    pub replicas: u32,
    /// What it is, and how it is started.
    pub part: ComponentKind,
    /// Its build commands, one after another, in `dir`; the same for replicas unless the plan uses `${replica}`.
    pub build: Vec<Command>,
    /// Environment variables, in addition to inherited ones.
    pub env: Vec<(String, Template)>,
    /// Folder, relative to the plan's folder unless the plan gives an absolute one.
    pub dir: String,
    /// Ports, the unnamed one first.
    pub ports: Vec<PortSpec>,
    /// When it counts as up; `None`: as soon as its process runs.
    pub ready: Option<ReadySpec>,
    /// What it may use.
    pub limits: Limits,
    /// In this case or another, or through an event, its link has a delay or packet loss: a relay is in between from
    /// the start and in all cases, so that these differ in nothing else.
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
    /// How long it may take.
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

/// What a component may use; `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Cores.
    pub cpu_cores: Option<f64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Memory and swap together, bytes.
    pub memory_swap_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Bytes read per second from each disk.
    pub block_read_bytes_per_s: Option<u64>,
    /// Bytes written per second to each disk.
    pub block_write_bytes_per_s: Option<u64>,
    /// Reads per second from each disk.
    pub block_read_ops_per_s: Option<u64>,
    /// Writes per second to each disk.
    pub block_write_ops_per_s: Option<u64>,
    /// Bytes per second over its link, each way.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Added round-trip time of its link, nanoseconds.
    pub delay_ns: Option<u64>,
    /// Maximum variation of the delay, nanoseconds; not more than the delay.
    pub jitter_ns: Option<u64>,
    /// Share of the traffic on its link that is lost, 0 to 1.
    pub packet_loss: Option<f64>,
    /// Cores it may run on; empty: all.
    pub cpuset: Vec<usize>,
    /// Limits that are known only once an earlier case has run; their own fields are `None`.
    pub measured: Vec<MeasuredLimit>,
}

/// How a component is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopSpec {
    /// Name without SIG: one of TERM, INT, QUIT, HUP, KILL, USR1, USR2.
    pub signal: String,
    /// How long it may take before it is killed.
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
        /// `http://…`.
        url: Template,
        /// JSON pointer (RFC 6901) to the number.
        json_pointer: String,
    },
    /// A page in Prometheus' text format.
    Prometheus {
        /// `http://…/metrics`.
        url: Template,
        /// The metric's name.
        metric: String,
        /// Labels it must have.
        labels: Vec<(String, String)>,
    },
    /// A Redis command whose answer is a number.
    Redis {
        /// `HOST:PORT`.
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
        /// A part of one line.
        contains: String,
    },
}

/// What is sent, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadSpec {
    /// `load` if there is only one.
    pub name: String,
    /// Closed or open, or made by a command.
    pub model: Model,
    /// What ends it.
    pub until: Until,
    /// Users start, or the rate grows, evenly over this time.
    pub ramp_ns: u64,
    /// The window starts after this time.
    pub warmup_ns: u64,
    /// The window starts after the warm-up, whose end is to be detected.
    pub is_warmup_found: bool,
    /// How many batches in all; 1 unless the plan says otherwise.
    pub batches: u32,
    /// Between two batches.
    pub pause_ns: u64,
    /// Begins this long after the trial's loads do.
    pub start_ns: u64,
    /// How users or rate change; empty: they do not, apart from the ramp. The model then has their maximum, and the
    /// load ends with the last stage.
    pub stages: Vec<Stage>,
    /// Each user's pause after an answer.
    pub think: Think,
    /// What happens to requests that cannot start when due.
    pub when_behind: WhenBehind,
    /// Longest wait for an answer.
    pub timeout_ns: u64,
    /// What is in flight at the end may finish within this time.
    pub grace_ns: u64,
    /// Reuse connections.
    pub keep_alive: bool,
    /// `None`: as many as there are cores left by the system.
    pub threads: Option<u32>,
    /// Seed of all random choices.
    pub seed: u64,
    /// The steps, in order; at least one, or none for a [`Model::Command`].
    pub journey: Vec<Step>,
    /// What surrounds them: each user's steps before and after, data feeds, captures.
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

    /// All its steps: those before its journey, the journey's, those after it.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.script.user_setup.iter().chain(&self.journey).chain(&self.script.user_teardown)
    }
}

/// Who decides when a request is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// Users, each sends its next request after its last one ended.
    Closed {
        /// How many.
        users: u64,
        /// Each user's steps fall due at this interval.
        pace_ns: Option<u64>,
    },
    /// A schedule.
    Open {
        /// Requests per second.
        rate_per_s: f64,
        /// How they are spread.
        arrivals: Arrivals,
        /// Most in flight at a time.
        max_in_flight: u64,
    },
    /// A program of the user's, which makes its own load.
    Command(CommandLoad),
    /// Users that arrive on a schedule, make one journey and leave.
    Sessions {
        /// Users per second.
        rate_per_s: f64,
        /// How they are spread.
        arrivals: Arrivals,
        /// Most users at a time.
        max_users: u64,
    },
}

/// A program that makes a load. The load has no steps of its own, and all its request settings are defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandLoad {
    /// What is run.
    pub command: Command,
    /// The probe that counts its requests, by its increase.
    pub counted_by: String,
    /// How many it must make; `None` if unknown.
    pub requests: Option<u64>,
    /// The load begins when this appears in its output; `None`: when it is started.
    pub started_when_output: Option<Template>,
    /// Killed after this long.
    pub timeout_ns: u64,
    /// Environment variables, in addition to inherited ones.
    pub env: Vec<(String, Template)>,
    /// Folder, relative to the plan's folder unless the plan gives an absolute one.
    pub dir: String,
}
