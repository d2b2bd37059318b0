//! What to watch if the plan names no components.

use loadlab_load::LoadSpec;
use loadlab_load::target::Address;
use loadlab_record::watch::evidence::Evidence;
use loadlab_system::{Answering, Listening, ProcessId, WatchEvent, find_answering, is_local, open_files};

/// What to watch if the plan names no components.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Find the processes on this machine that answer, and those they call.
    pub finds: bool,
    /// Watch these processes regardless of what answers.
    pub processes: Vec<ProcessId>,
}

/// If fewer open files than this are allowed, all are left to the load.
const FEWEST_FILES: u64 = 256;

/// Whether enough open files are allowed to watch processes in addition to the connections.
pub fn leaves_files() -> bool {
    open_files::allowed() >= FEWEST_FILES
}

/// Evidence for what could not be observed and will not be searched for again during the trial.
pub fn unseen(found: &Answering) -> Option<WatchEvent> {
    let not_seen = found.not_seen.clone();
    (!not_seen.is_empty())
        .then(|| WatchEvent::Evidence(Box::new(Evidence { not_seen, ..Evidence::default() })))
}

impl Watch {
    /// Finds the processes that answer at these addresses, and those they call.
    pub fn find(&self, addresses: &[Listening]) -> Answering {
        if leaves_files() {
            return find_answering(addresses, &self.processes, Answering::default());
        }
        let too_few = format!("the processes that answer: fewer than {FEWEST_FILES} open files are allowed");
        let not_seen = if addresses.is_empty() { Vec::new() } else { vec![too_few] };
        Answering { processes: Vec::new(), not_seen }
    }

    /// Where a load goes, as far as that is on this machine.
    pub fn addresses(&self, spec: &LoadSpec) -> Vec<Listening> {
        let local = |address: &Address| match address {
            Address::Inet(address) => is_local(address.ip()).then_some(Listening::Inet(*address)),
            Address::Unix(path) => Some(Listening::Unix(path.to_string())),
        };
        let all = spec.hosts.iter().flatten().filter(|_| self.finds);
        all.filter_map(local).collect()
    }
}
