//! `--swarm`: agents send the loads of a run, and this program is their coordinator. They receive the plan as text,
//! with the options that change it; they read it as this program does, and resolve what it asks for from outside on
//! their own machines.

mod launch;
mod local;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_load::LoadSpec;
use loadlab_load::run::{Control, LoadEvent, Origin};
use loadlab_load::target::Resolved;
use loadlab_plan::{LoadSpec as PlannedLoad, Options, Outside, Plan, Reference, Until};
use loadlab_record::documents::summary::{AgentSummary, LostAgent, Requests};
use loadlab_run::rfc3339_now;
use loadlab_run::senders::{
    AgentNow, ReadySenders, RemoteLoad, SenderNews, Senders, SentLoad, files_of, not_by_others,
    private_key_of,
};
use loadlab_swarm::nats::coordinator::{
    Coordinator, Loss, LossPolicy, News, NotOffered, PartState, ReadyLoad, RunOffer,
};
use loadlab_swarm::nats::{Server, SwarmError};
use loadlab_swarm::signed::SigningKey;
use loadlab_system::Cancel;
use serde::{Deserialize, Serialize};

use crate::args::{AgentSource, LostAgentArg, SwarmArgs};
use crate::exit::note;
use launch::{Launch, Launched};
use local::{LocalSwarm, random};

/// Deadline for agents to join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time from the decision that a load begins to its beginning.
const LEAD_NS: u64 = 1_000_000_000;

/// The hint for a plan that needs something that is not sent to agents.
const IS_HERE: &str = "\nhint: `--swarm local:N` has agents on this machine, which have the plan's folder";

/// What all loads of a run share; sent to every agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bundle {
    /// The plan's name in messages.
    pub path: String,
    /// The plan's text.
    pub text: String,
    /// The plan's folder on the coordinator's machine.
    pub dir: String,
    /// `--profile`.
    pub profile: Option<String>,
    /// `--set`.
    pub set: Vec<(String, String)>,
    /// `--tags`.
    pub tags: Vec<String>,
    /// `--case`.
    pub case: Option<String>,
    /// `--trials`.
    pub trials: Option<u32>,
    /// `--until-certain`: such a plan has one more case, its control.
    pub until_certain: bool,
    /// Whether `loadlab find` reads the plan: what is expected is of each level.
    #[serde(default)]
    pub is_search: bool,
    /// Hosts that the user allows to be loaded, beside the plan's.
    pub allow_hosts: Vec<String>,
    /// `--resolve`.
    pub resolved: Vec<String>,
    /// Names of the files that agents receive with the plan, in the order in which they are sent.
    pub files: Vec<String>,
}

impl Bundle {
    /// The plan's options, without the values that it takes from outside: those are still to be read.
    pub fn options(&self) -> Options {
        Options {
            profile: self.profile.clone(),
            set: self.set.clone(),
            tags: self.tags.clone(),
            cases_glob: self.case.clone(),
            trials: self.trials,
            until_certain: self.until_certain,
            is_search: self.is_search,
            // The components run on the coordinator's machine.
            flame_graphs: None,
            revisions: Vec::new(),
            plan_dir: Some(self.dir.clone()),
            outside: Outside::default(),
        }
    }

    /// Why the plan can be read only where its folder is, in words; `None` if it can be read anywhere. A file that
    /// holds a value is not sent: the value is likely to be a secret.
    pub fn asks_for_file(&self) -> Option<String> {
        let asked = Plan::asks_for(&self.text, &self.options()).into_iter();
        let file = asked.into_iter().find(|asked| matches!(asked, Reference::File(_)))?;
        Some(format!(
            "the plan takes a value from `${{{file}}}`, and such a file is not sent to agents{IS_HERE}"
        ))
    }
}

/// The agents of a run.
pub struct Swarm {
    coordinator: Arc<Coordinator>,
    /// Agents on this machine; dropped after `coordinator`, so that they learn that the run is over before they are
    /// ended.
    _local: Option<LocalSwarm>,
    /// Agents that a scheduler has started; dropped after `coordinator`, too.
    launched: Option<Launched>,
    agents: usize,
}

/// The loads to send, and who is to send them.
pub struct Wanted<'a> {
    /// `--swarm` and its companion options.
    pub args: &'a SwarmArgs,
    /// The plan.
    pub plan: &'a Plan,
    /// The plan's text.
    pub text: &'a str,
    /// The plan's name in messages.
    pub path: &'a str,
    /// The options with which the plan was read.
    pub read_with: &'a Options,
    /// `--allow-host`.
    pub allow_hosts: &'a [String],
    /// `--resolve`.
    pub resolved: &'a [Resolved],
    /// `--quiet`.
    pub is_quiet: bool,
}

/// Why agents do not send the loads.
pub struct NoSenders {
    /// The exit to end with.
    pub exit: Exit,
    /// The reason in words.
    pub why: String,
}

impl NoSenders {
    fn new(exit: Exit, why: impl std::fmt::Display) -> NoSenders {
        NoSenders { exit, why: why.to_string() }
    }
}

/// Gathers the agents that send the loads; `None` if this process sends them.
///
/// # Errors
/// Others cannot send the plan's loads; the server cannot be reached; agents do not join in time.
pub fn gathered(wanted: &Wanted<'_>, cancel: &Cancel) -> Result<Option<Arc<dyn Senders>>, NoSenders> {
    let Some(source) = &wanted.args.swarm else { return Ok(None) };
    if let Some(why) = not_by_others(wanted.plan) {
        let hint = "without --swarm this machine sends the loads";
        return Err(NoSenders::new(Exit::BadPlan, format!("--swarm: {why}\nhint: {hint}")));
    }
    let on_loss = match wanted.args.on_lost_agent {
        LostAgentArg::Fail => LossPolicy::Fail,
        LostAgentArg::Degrade => LossPolicy::Degrade,
        LostAgentArg::Replace => LossPolicy::Replace,
    };
    if on_loss == LossPolicy::Replace
        && let Some(why) = not_replaced(source, wanted.plan)
    {
        return Err(NoSenders::new(Exit::BadPlan, format!("--on-lost-agent replace: {why}")));
    }
    let failed = |error: SwarmError| {
        let exit = if cancel.is_cancelled() { Exit::Interrupted } else { Exit::CouldNotRun };
        NoSenders::new(exit, format!("--swarm: {error}"))
    };
    let stopped = || cancel.is_cancelled();
    if let AgentSource::Local(agents) = source
        && let Some(why) = not_for_local(wanted.args, *agents)
    {
        return Err(NoSenders::new(Exit::BadPlan, why));
    }
    let described = bundle_of(wanted);
    let swarm = match source {
        AgentSource::Local(agents) => {
            let offer = |server, key| {
                let bundle = serde_json::to_value(&described).expect("texts");
                RunOffer { server, run: run_id(), slots: *agents, bundle, files: Vec::new(), key, on_loss }
            };
            local(*agents, offer, &stopped, &failed)?
        }
        AgentSource::Nats(url) => on_server(wanted, url, described, on_loss, &stopped, &failed)?,
    };
    let agents = swarm.agents;
    if !wanted.is_quiet {
        let launched = swarm.launched.as_ref().map(|launched| format!(", {}", launched.described()));
        note(&format!("waiting for {agents} agents{}", launched.unwrap_or_default()));
    }
    let came = match &swarm.launched {
        Some(launched) => launched.gather(&swarm.coordinator, &stopped),
        None => swarm.coordinator.gather(JOIN_TIMEOUT, &stopped),
    };
    came.map_err(failed)?;
    Ok(Some(Arc::new(swarm)))
}

/// Why an option does not apply to agents on this machine, in words.
fn not_for_local(args: &SwarmArgs, agents: usize) -> Option<String> {
    if args.launch.is_some() {
        return Some(
            "--launch: `local:N` starts its own agents\nhint: --swarm nats://HOST:PORT names a server that the \
             scheduler's machines reach"
                .to_owned(),
        );
    }
    if let Some(slots) = args.slots.filter(|slots| *slots != agents) {
        let hint = format!("--swarm local:{slots} starts {slots}");
        return Some(format!("--slots {slots}: `local:{agents}` has {agents} agents\nhint: {hint}"));
    }
    let of_server = [
        ("--swarm-key", args.swarm_key.is_some()),
        ("--swarm-creds", args.swarm_creds.is_some()),
        ("--swarm-ca", args.swarm_ca.is_some()),
    ];
    let (option, _) = of_server.into_iter().find(|(_, is_given)| *is_given)?;
    let hint = "leave it out, or name a server with --swarm nats://HOST:PORT";
    Some(format!("{option}: `local:N` starts its own NATS server with its own key\nhint: {hint}"))
}

/// Starts agents on this machine.
fn local(
    agents: usize,
    offer: impl FnOnce(Server, SigningKey) -> RunOffer,
    stopped: &dyn Fn() -> bool,
    failed: &dyn Fn(SwarmError) -> NoSenders,
) -> Result<Swarm, NoSenders> {
    let key = SigningKey::new();
    let local = LocalSwarm::start(agents, &key.public());
    let local = local.map_err(|why| NoSenders::new(Exit::CouldNotRun, format!("--swarm: {why}")))?;
    let coordinator = Arc::new(Coordinator::start(offer(local.server(), key), stopped).map_err(failed)?);
    Ok(Swarm { coordinator, _local: Some(local), launched: None, agents })
}

/// Offers the run to the agents that a server connects; with `--launch`, has a scheduler start them.
fn on_server(
    wanted: &Wanted<'_>,
    url: &str,
    mut described: Bundle,
    on_loss: LossPolicy,
    stopped: &dyn Fn() -> bool,
    failed: &dyn Fn(SwarmError) -> NoSenders,
) -> Result<Swarm, NoSenders> {
    let of_key = || {
        let key = private_key_of(wanted.plan)?;
        Some(format!("a load needs the private key `{key}`, and keys are not sent to agents{IS_HERE}"))
    };
    if let Some(why) = described.asks_for_file().or_else(of_key) {
        return Err(NoSenders::new(Exit::BadPlan, format!("--swarm: {why}")));
    }
    let missing = |what: &str| NoSenders::new(Exit::BadPlan, format!("--swarm nats://… needs {what}"));
    let agents = wanted.args.slots.ok_or_else(|| missing("--slots N: how many agents take part"))?;
    let path = wanted.args.swarm_key.as_ref().ok_or_else(|| {
        missing(
            "--swarm-key FILE\nhint: `loadlab agent --new-key FILE` makes a key, and prints what agents need",
        )
    })?;
    if let Some(why) = launch::missing(wanted.args, url) {
        return Err(NoSenders::new(Exit::BadPlan, format!("--launch: {why}")));
    }
    let key = SigningKey::read(path)
        .map_err(|error| NoSenders::new(Exit::BadPlan, format!("--swarm-key: {error}")))?;
    let server = Server {
        url: url.to_owned(),
        credentials: wanted.args.swarm_creds.clone(),
        ca: wanted.args.swarm_ca.clone(),
        name: "loadlab coordinator".to_owned(),
        inbox: "coordinator".to_owned(),
    };
    described.files = files_of(wanted.plan).into_iter().map(|needed| needed.file).collect();
    let files = described.files.iter().map(|file| Path::new(&described.dir).join(file)).collect();
    let bundle = serde_json::to_value(&described).expect("texts");
    let public_key = key.public();
    let run = run_id();
    let offer = RunOffer { server, run: run.clone(), slots: agents, bundle, files, key, on_loss };
    let coordinator = Arc::new(Coordinator::start(offer, stopped).map_err(failed)?);
    let launch = Launch {
        args: wanted.args,
        url,
        run: &run,
        agents,
        public_key: &public_key,
        allow_hosts: wanted.plan.allow_hosts.iter().chain(wanted.allow_hosts).cloned().collect(),
    };
    let launched = Launched::start(&launch);
    let launched = launched.map_err(|why| NoSenders::new(Exit::CouldNotRun, format!("--launch: {why}")))?;
    Ok(Swarm { coordinator, _local: None, launched, agents })
}

/// Why a lost agent cannot be replaced, in words.
fn not_replaced(source: &AgentSource, plan: &Plan) -> Option<String> {
    if matches!(source, AgentSource::Local(_)) {
        return Some(
            "with `local:N` there is no spare agent to take over\nhint: start more agents than `--slots` on a NATS server"
                .to_owned(),
        );
    }
    let loads = || plan.cases().iter().flat_map(|case| &case.loads);
    if let Some(load) = loads().find(|load| load.script.feeds.iter().any(|feed| feed.is_once)) {
        return Some(format!(
            "load `{}` uses each row of a feed once, and an agent that takes over would use those of the lost one \
             again\nhint: leave out `once`, or let the load go on without the lost agent: `degrade`",
            load.name
        ));
    }
    let is_counted = |load: &&PlannedLoad| matches!(load.until, Until::Repeats(_)) && load.journey.len() > 1;
    let load = loads().find(is_counted)?;
    Some(format!(
        "load `{}` is bounded by `repeats`, and how many of them a lost agent completed is unknown\nhint: give it a \
         duration or a number of requests",
        load.name
    ))
}

fn bundle_of(wanted: &Wanted<'_>) -> Bundle {
    let Options { profile, set, tags, cases_glob, trials, until_certain, is_search, plan_dir, .. } =
        wanted.read_with.clone();
    Bundle {
        path: wanted.path.to_owned(),
        text: wanted.text.to_owned(),
        dir: plan_dir.unwrap_or_default(),
        profile,
        set,
        tags,
        case: cases_glob,
        trials,
        until_certain,
        is_search,
        allow_hosts: wanted.allow_hosts.to_vec(),
        resolved: wanted.resolved.iter().map(ToString::to_string).collect(),
        files: Vec::new(),
    }
}

/// An id that no other run has, of lower-case letters and digits, as names in Kubernetes need them. Jobs that begin at
/// the same time in containers of their own often have the same process id.
fn run_id() -> String {
    let time: String = rfc3339_now().chars().filter(char::is_ascii_digit).collect();
    format!("{time}x{:08x}", random() >> 32)
}

impl Senders for Swarm {
    fn prepare(
        &self,
        load: &RemoteLoad,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Box<dyn ReadySenders>, String> {
        let what = serde_json::to_value(load).expect("texts and numbers");
        let ready = self.coordinator.prepare(load.first_id, load.threads, what, cancelled);
        let ready = ready.map_err(|error| error.to_string())?;
        Ok(Box::new(ReadyAgents { ready, agents: self.agents }))
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }
}

/// Agents that are ready for a load.
struct ReadyAgents {
    ready: ReadyLoad,
    agents: usize,
}

impl ReadySenders for ReadyAgents {
    fn described(&self) -> String {
        let ms = self.ready.uncertainty_ns as f64 / 1e6;
        format!("{} agents send the load; their clocks are known to within {ms:.3} ms", self.agents)
    }

    fn send(
        &self,
        spec: &LoadSpec,
        control: &Control,
        origin: Origin,
        cancelled: &dyn Fn() -> bool,
        on_news: &dyn Fn(SenderNews),
        observer: &mut dyn FnMut(LoadEvent<'_>),
    ) -> SentLoad {
        let on_news = |news: News| {
            on_news(match news {
                News::Note(text) => SenderNews::Note(text),
                News::Parts(parts) => SenderNews::Agents(parts.into_iter().map(agent_now).collect()),
            });
        };
        let sent = self.ready.run(spec, control, origin, cancelled, &on_news, observer);
        let agents = sent.parts.into_iter().zip(0..).map(|(part, slot)| {
            let losses: Vec<&Loss> =
                sent.losses.iter().filter(|loss| loss.lost.slot as u64 == slot).collect();
            let missing = |of: fn(NotOffered) -> u64| {
                losses.iter().map(|loss| loss.not_offered.map(of)).sum::<Option<u64>>()
            };
            AgentSummary {
                slot,
                agent: part.agent,
                threads: part.threads,
                clock_offset_s: part.clock.map(|clock| clock.offset_ns as f64 / 1e9),
                clock_uncertainty_ms: part.clock.map(|clock| clock.uncertainty_ns as f64 / 1e6),
                requests: Requests {
                    not_offered: missing(|bounds| bounds.most),
                    not_offered_min: missing(|bounds| bounds.least),
                    ..Requests::from(&part.counts)
                },
                lost: losses.iter().map(|loss| lost_agent(loss, spec, origin)).collect(),
            }
        });
        let agents = agents.collect();
        SentLoad { outcome: sent.outcome, trouble: sent.trouble.map(|error| error.to_string()), agents }
    }
}

fn agent_now(part: PartState) -> AgentNow {
    let PartState { slot, agent, ok_per_s, counts, is_missing } = part;
    AgentNow { slot: slot as u64, agent, ok_per_s, counts, is_missing }
}

/// A lost agent as the record has it.
fn lost_agent(loss: &Loss, spec: &LoadSpec, origin: Origin) -> LostAgent {
    let at_s = |ns: u64| (origin.start_ns.saturating_sub(origin.zero_ns) + ns) as f64 / 1e9;
    LostAgent {
        agent: loss.lost.agent.clone(),
        load: spec.name.clone(),
        batch: origin.batch,
        reported_until_s: at_s(loss.lost.until_ns),
        replaced_at_s: loss.lost.joined_ns.map(at_s),
        not_offered: loss.not_offered.map(|bounds| bounds.most),
        not_offered_min: loss.not_offered.map(|bounds| bounds.least),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise two runs would share a stream, and each would take the other's agents.
    #[test]
    fn two_runs_of_one_second_and_process_id_have_different_ids() {
        let [one, other] = [run_id(), run_id()];
        assert_ne!(one, other);
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{one}");
    }
}
