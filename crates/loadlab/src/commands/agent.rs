//! `loadlab agent`: sends parts of loads that a coordinator orders.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_load::LoadSpec;
use loadlab_load::journey::script::Script;
use loadlab_load::spec::Model;
use loadlab_load::target::Allowed;
use loadlab_plan::Plan;
use loadlab_record::store::files;
use loadlab_record::sync::lock;
use loadlab_run::senders::{PlanFiles, RemoteLoad, spec_of};
use loadlab_swarm::nats::Server;
use loadlab_swarm::nats::agent::{AgentOptions, Loads, serve};
use loadlab_swarm::signed::{SigningKey, VerifyingKey};
use serde_json::Value;

use crate::args::{AgentArgs, given};
use crate::commands::bench::default_threads;
use crate::commands::session;
use crate::exit::{self, CommandEnd};
use crate::swarm::Bundle;
use crate::{mask, output};

/// Runs the command.
pub fn command(args: &AgentArgs) -> CommandEnd {
    if let Some(path) = &args.new_key {
        return new_key(path);
    }
    let wrong = |why: String| CommandEnd::error(Exit::BadPlan, why);
    let Some(key) = &args.coordinator_key else {
        return wrong(
            "--coordinator-key KEY is needed: an agent follows the orders of one coordinator\nhint: `loadlab agent \
             --new-key FILE` makes a key"
                .to_owned(),
        );
    };
    let coordinator = match VerifyingKey::parse(key) {
        Ok(key) => key,
        Err(error) => return wrong(format!("--coordinator-key: {error}")),
    };
    let Some(url) = args.nats.clone() else {
        return wrong(
            "--nats URL is needed: the server on which the coordinator announces its runs".to_owned(),
        );
    };
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended,
    };
    let name = args.name.clone().unwrap_or_else(default_name);
    let spool =
        args.spool.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("loadlab-agent-{name}")));
    let spool = match own_folder(&spool) {
        Ok(spool) => spool,
        Err(why) => {
            let hint = "--spool names another folder";
            return wrong(format!("reports cannot be kept in {}: {why}\nhint: {hint}", spool.display()));
        }
    };
    let options = AgentOptions {
        server: Server {
            url,
            credentials: args.creds.clone(),
            ca: args.ca.clone(),
            name: format!("loadlab agent {name}"),
            inbox: args.slot.map_or_else(String::new, |slot| format!("slot{slot}")),
        },
        coordinator,
        threads: args.threads.unwrap_or_else(|| default_threads(&[])),
        spool,
        name,
        slot: args.slot,
        once: args.once,
        leaves_after: args.leave_unannounced.map(Duration::from_nanos),
    };
    let loads: Arc<dyn Loads> = Arc::new(PlannedLoads {
        allow_hosts: args.allow_host.clone(),
        trusts_plan: args.trust_plan,
        max_rate: args.max_rate,
        max_connections: args.max_connections,
        sources: args.source.as_ref().map_or_else(Vec::new, |sources| sources.0.clone()),
        shown: Mutex::default(),
    });
    let served = serve(&options, &loads, &|text| exit::line(text), &|| cancel.is_cancelled());
    if args.spool.is_none() {
        // Only if it is empty: reports that the coordinator does not have yet stay.
        let _ = std::fs::remove_dir(&options.spool);
    }
    match served {
        Ok(()) if cancel.is_cancelled() => CommandEnd::with(Exit::Interrupted),
        Ok(()) => CommandEnd::with(Exit::Ok),
        Err(error) => CommandEnd::error(Exit::CouldNotRun, error),
    }
}

/// Makes a key for a coordinator, and prints its public part, which agents need.
fn new_key(path: &Path) -> CommandEnd {
    let key = SigningKey::new();
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file.and_then(|mut file| writeln!(file, "{}", key.seed())) {
        Ok(()) => {
            output::print(&format!("{}\n", key.public()));
            exit::note(&format!(
                "the coordinator signs with {} (--swarm-key); agents check with the key above (--coordinator-key)",
                path.display()
            ));
            CommandEnd::with(Exit::Ok)
        }
        Err(error) => {
            CommandEnd::error(Exit::CouldNotRun, format!("cannot write the key {}: {error}", path.display()))
        }
    }
}

/// Makes a folder that nobody else can read, unless it exists. A folder that others can write to is refused: an agent
/// sends what its files say. Returns the folder's absolute path.
fn own_folder(path: &Path) -> Result<PathBuf, String> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    match made.and_then(|()| files::why_untrusted(path)) {
        Ok(None) => std::path::absolute(path).map_err(|error| error.to_string()),
        Ok(Some(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}

/// Host name and process id: no other agent has both.
fn default_name() -> String {
    let uname = rustix::system::uname();
    format!("{}-{}", uname.nodename().to_string_lossy(), std::process::id())
}

/// Loads of plans that coordinators send.
struct PlannedLoads {
    /// Hosts that this agent's user allows.
    allow_hosts: Vec<String>,
    /// Allows every host that the plan allows, and reads files from the plan's folder, which is on this machine.
    trusts_plan: bool,
    max_rate: Option<f64>,
    max_connections: Option<u64>,
    /// Addresses to connect from; empty: the kernel's choice.
    sources: Vec<IpAddr>,
    /// Notes that were already shown.
    shown: Mutex<BTreeSet<String>>,
}

impl Loads for PlannedLoads {
    fn load(
        &self,
        bundle: &Value,
        files: &[PathBuf],
        what: &Value,
        threads: usize,
    ) -> Result<LoadSpec, String> {
        let wrong = |error: serde_json::Error| format!("the order cannot be understood: {error}");
        let bundle: Bundle = serde_json::from_value(bundle.clone()).map_err(wrong)?;
        let load: RemoteLoad = serde_json::from_value(what.clone()).map_err(wrong)?;
        // Only a coordinator on this machine knows its folders.
        let dir = if self.trusts_plan { PathBuf::from(&bundle.dir) } else { PathBuf::from("/nonexistent") };
        let mut options = bundle.options();
        // Checked before any file is read.
        if let Some(why) = bundle.asks_for_file().filter(|_| !self.trusts_plan) {
            return Err(why);
        }
        options.outside = given::outside(&bundle.text, &options, &dir);
        let plan = Plan::parse(&bundle.path, &bundle.text, &options).map_err(|errors| errors.to_string())?;
        mask::add_all(&plan.secrets);
        for note in &plan.notes {
            if lock(&self.shown).insert(note.clone()) {
                exit::note(note);
            }
        }
        let hosts = plan.allow_hosts.iter().chain(&bundle.allow_hosts);
        let is_allowed = |host: &&String| {
            self.trusts_plan || self.allow_hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
        };
        let allowed = Allowed {
            hosts: hosts.filter(is_allowed).cloned().collect(),
            resolved: bundle.resolved.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
            // Networks that the coordinator has made exist only on its machine.
            addresses: if self.trusts_plan { load.addresses.clone() } else { Vec::new() },
            source: self.sources.first().copied(),
            ..Allowed::default()
        };
        // A plan that is not trusted could name any file of this machine.
        let files = match self.trusts_plan {
            true => PlanFiles::Folder(dir),
            false => PlanFiles::Received(bundle.files.iter().cloned().zip(files.iter().cloned()).collect()),
        };
        let mut spec = spec_of(&plan, &files, &load, &allowed, threads)?;
        spec.secrets = mask::secrets();
        if !self.sources.is_empty() {
            spec.sources = self.sources.clone();
        }
        Ok(spec)
    }

    fn accepts(&self, part: &LoadSpec) -> Result<(), String> {
        if let Some(most) = self.max_rate {
            let Some(own) = most_per_s(part) else {
                return Err(format!(
                    "its users send as fast as they are answered, but this agent may send at most {most} requests/s \
                     (--max-rate): a `pace`, or a `think` time after every step, limits their rate"
                ));
            };
            if own > most {
                return Err(format!(
                    "its part is {own:.0} requests/s, but this agent may send at most {most} (--max-rate)"
                ));
            }
        }
        let connections = part.connections_per_thread() as u64 * own_busy_threads(part);
        match self.max_connections.filter(|most| connections > *most) {
            Some(most) => Err(format!(
                "its part takes {connections} connections, but this agent may open at most {most} (--max-connections)"
            )),
            None => Ok(()),
        }
    }
}

/// How many of a part's threads have something to send.
fn own_busy_threads(part: &LoadSpec) -> u64 {
    let busy = part.busy_threads();
    let before = part.other_threads.before.min(busy);
    (part.other_threads.before + part.threads as u64).min(busy) - before
}

/// The most requests per second that a part sends on average, without redirects; `None` if nothing limits it. Users who
/// pause are assumed to be answered at once: they send no more than that.
fn most_per_s(part: &LoadSpec) -> Option<f64> {
    let busy = part.busy_threads();
    let own = own_busy_threads(part);
    match &part.model {
        Model::Open { rate_per_s, .. } => {
            // Each user that arrives makes a whole journey.
            let journey = part.journey.as_ref().filter(|journey| journey.sessions).map(|j| &j.step_order);
            let each = journey.map_or(1, |step_order| {
                let round = if step_order.weights.is_empty() { step_order.round } else { 1 };
                u64::from(step_order.before)
                    + u64::from(round) * step_order.rounds
                    + u64::from(step_order.after)
            });
            Some(rate_per_s * each as f64 * own as f64 / busy as f64)
        }
        Model::Closed { users } => {
            let users = (users.div_ceil(busy) * own) as f64;
            let of_script = |script: &Script| script.think.unwrap_or(part.think).mean_ns().unwrap_or(0);
            let scripts = part.journey.iter().flat_map(|journey| &journey.scripts);
            // Users whose steps fail may repeat one step again and again: the shortest think time counts.
            let think_ns = scripts.map(of_script).min().unwrap_or(part.think.mean_ns().unwrap_or(0));
            let each_ns = part.pace_ns.unwrap_or(think_ns);
            (each_ns > 0).then(|| users * 1e9 / each_ns as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use loadlab_load::journey::capture::CaptureSlots;
    use loadlab_load::journey::order::StepOrder;
    use loadlab_load::journey::script::Journey;
    use loadlab_load::spec::OtherThreads;
    use loadlab_load::{Arrivals, Until, WhenBehind};
    use loadlab_record::spec::schedule::Think;

    use super::*;

    const CLOSED: Model = Model::Closed { users: 10 };
    const OPEN: Model = Model::Open {
        rate_per_s: 100.0,
        arrivals: Arrivals::Constant,
        when_behind: WhenBehind::Queue,
        max_in_flight: 1000,
    };

    /// A part with two of four threads.
    fn part(model: Model) -> LoadSpec {
        let address = "127.0.0.1:80".parse().expect("an address");
        let spec = LoadSpec::new(model, Until::Elapsed(1_000_000_000), Vec::new(), address);
        LoadSpec { threads: 2, other_threads: OtherThreads { before: 2, after: 0 }, ..spec }
    }

    fn journey(thinks: &[Option<Think>], sessions: bool) -> Option<Box<Journey>> {
        let script = |think: &Option<Think>| Script { think: *think, ..Script::plain() };
        let round = thinks.len() as u32;
        Some(Box::new(Journey {
            step_order: StepOrder { before: 1, round: round - 1, rounds: 1, ..StepOrder::default() },
            scripts: thinks.iter().map(script).collect(),
            sites: Vec::new(),
            cookies: false,
            feeds: Vec::new(),
            dealings: Vec::new(),
            shared: CaptureSlots::new(0),
            own: 0,
            remembered: Vec::new(),
            numbers: Vec::new(),
            sessions,
            unix_ns: None,
        }))
    }

    #[test]
    fn the_rate_of_a_part_is_that_of_its_requests() {
        let half_s = Think::Constant(500_000_000);
        assert_eq!(most_per_s(&part(OPEN)), Some(50.0));
        let steps = [None, None, None];
        assert_eq!(most_per_s(&LoadSpec { journey: journey(&steps, false), ..part(OPEN) }), Some(50.0));
        assert_eq!(most_per_s(&LoadSpec { journey: journey(&steps, true), ..part(OPEN) }), Some(150.0));
        // Nothing limits users who do not pause, or not after every step.
        assert_eq!(most_per_s(&part(CLOSED)), None);
        let some = [Some(half_s), Some(Think::None), Some(half_s)];
        assert_eq!(most_per_s(&LoadSpec { journey: journey(&some, false), ..part(CLOSED) }), None);
        assert_eq!(
            most_per_s(&LoadSpec { journey: journey(&some, false), think: half_s, ..part(CLOSED) }),
            None
        );
        // Two of four threads have at most six of ten users.
        assert_eq!(most_per_s(&LoadSpec { think: half_s, ..part(CLOSED) }), Some(12.0));
        assert_eq!(
            most_per_s(&LoadSpec { journey: journey(&steps, false), think: half_s, ..part(CLOSED) }),
            Some(12.0)
        );
        assert_eq!(most_per_s(&LoadSpec { pace_ns: Some(2_000_000_000), ..part(CLOSED) }), Some(3.0));
        // A single user belongs to one thread, which is not in this part.
        let one = LoadSpec { think: half_s, ..part(Model::Closed { users: 1 }) };
        assert_eq!(most_per_s(&one), Some(0.0));
    }

    #[test]
    fn an_agent_with_a_limit_refuses_what_has_none() {
        let with = |max_rate: f64| PlannedLoads {
            allow_hosts: Vec::new(),
            trusts_plan: false,
            max_rate: Some(max_rate),
            max_connections: None,
            sources: Vec::new(),
            shown: Mutex::default(),
        };
        let why = with(1e9).accepts(&part(CLOSED)).expect_err("nothing limits it");
        assert!(why.contains("as fast as they are answered") && why.contains("--max-rate"), "{why}");
        let why = with(49.0).accepts(&part(OPEN)).expect_err("it is too much");
        assert_eq!(why, "its part is 50 requests/s, but this agent may send at most 49 (--max-rate)");
        assert_eq!(with(50.0).accepts(&part(OPEN)), Ok(()));
    }
}
