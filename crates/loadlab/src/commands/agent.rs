//! `loadlab agent`: sends parts of loads that a coordinator orders.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_load::LoadSpec;
use loadlab_load::resident;
use loadlab_load::spec::Model;
use loadlab_load::target::Allowed;
use loadlab_plan::Plan;
use loadlab_record::files;
use loadlab_run::senders::{PlanFiles, RemoteLoad, spec_of};
use loadlab_swarm::nats::Server;
use loadlab_swarm::nats::agent::{AgentOptions, Loads, serve};
use loadlab_swarm::signed::{SigningKey, VerifyingKey};
use loadlab_system::open_files;
use serde_json::Value;

use crate::args::{AgentArgs, given};
use crate::commands::bench::default_threads;
use crate::exit::{self, Ended};
use crate::swarm::Bundle;
use crate::{mask, output, signals};

/// Runs it.
pub fn command(args: &AgentArgs) -> Ended {
    if let Some(path) = &args.new_key {
        return new_key(path);
    }
    let wrong = |why: String| Ended::error(Exit::BadPlan, why);
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
        return wrong("--nats URL is needed: where the coordinator announces its runs".to_owned());
    };
    let _ = open_files::raise();
    let cancel = match signals::cancel_on_signal() {
        Ok(cancel) => cancel,
        Err(error) => return Ended::error(Exit::CouldNotRun, format!("cannot handle signals: {error}")),
    };
    resident::leave_start_behind();
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
        told: Mutex::default(),
    });
    let served = serve(&options, &loads, &|text| exit::line(text), &|| cancel.is_cancelled());
    if args.once && args.spool.is_none() {
        // Only if it is empty.
        let _ = std::fs::remove_dir(&options.spool);
    }
    match served {
        Ok(()) if cancel.is_cancelled() => Ended::with(Exit::Interrupted),
        Ok(()) => Ended::with(Exit::Ok),
        Err(error) => Ended::error(Exit::CouldNotRun, error),
    }
}

/// Makes a key for a coordinator, and says what agents need of it.
fn new_key(path: &Path) -> Ended {
    let key = SigningKey::new();
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file.and_then(|mut file| writeln!(file, "{}", key.seed())) {
        Ok(()) => {
            output::print(&format!("{}\n", key.public()));
            exit::note(&format!(
                "the coordinator signs with {} (--swarm-key); agents check with the key above (--coordinator-key)",
                path.display()
            ));
            Ended::with(Exit::Ok)
        }
        Err(error) => {
            Ended::error(Exit::CouldNotRun, format!("cannot write the key {}: {error}", path.display()))
        }
    }
}

/// Makes a folder that nobody else can read, unless it exists. One that others can write to is refused: an agent sends what
/// its files say. Returns its absolute path.
fn own_folder(path: &Path) -> Result<PathBuf, String> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    match made.and_then(|()| files::not_ones_own(path)) {
        Ok(None) => std::path::absolute(path).map_err(|error| error.to_string()),
        Ok(Some(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}

/// The machine and the process: no other agent has both.
fn default_name() -> String {
    let uname = rustix::system::uname();
    format!("{}-{}", uname.nodename().to_string_lossy(), std::process::id())
}

/// Loads of plans that coordinators send.
struct PlannedLoads {
    /// Hosts that this agent's user allows.
    allow_hosts: Vec<String>,
    /// Every host that the plan allows is allowed, and its folder is here, too.
    trusts_plan: bool,
    max_rate: Option<f64>,
    max_connections: Option<u64>,
    /// What was said already.
    told: Mutex<BTreeSet<String>>,
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
        // Before any file is read.
        if let Some(why) = bundle.asks_for_file().filter(|_| !self.trusts_plan) {
            return Err(why);
        }
        options.outside = given::outside(&bundle.text, &options, &dir);
        let plan = Plan::parse(&bundle.path, &bundle.text, &options).map_err(|errors| errors.to_string())?;
        mask::add_all(&plan.secrets);
        for note in &plan.notes {
            if self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(note.clone()) {
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
            // Networks of the coordinator's own making are on its machine.
            addresses: if self.trusts_plan { load.addresses.clone() } else { Vec::new() },
            ..Allowed::default()
        };
        // A plan may name any file of this machine.
        let files = match self.trusts_plan {
            true => PlanFiles::Folder(dir),
            false => PlanFiles::Received(bundle.files.iter().cloned().zip(files.iter().cloned()).collect()),
        };
        let mut spec = spec_of(&plan, &files, &load, &allowed, threads)?;
        spec.secrets = mask::secrets();
        Ok(spec)
    }

    fn accepts(&self, part: &LoadSpec) -> Result<(), String> {
        let all = part.elsewhere.before + part.threads as u64 + part.elsewhere.after;
        if let (Model::Open { rate_per_s, .. }, Some(most)) = (&part.model, self.max_rate) {
            let own = rate_per_s * part.threads as f64 / all as f64;
            if own > most {
                return Err(format!(
                    "its part is {own:.0} requests a second, and it may send {most} (--max-rate)"
                ));
            }
        }
        let connections = (part.connections_per_thread() * part.threads) as u64;
        match self.max_connections.filter(|most| connections > *most) {
            Some(most) => Err(format!(
                "its part takes {connections} connections, and it may open {most} (--max-connections)"
            )),
            None => Ok(()),
        }
    }
}
