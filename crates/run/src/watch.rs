//! Who is watched where no plan names components.

use loadlab_load::LoadSpec;
use loadlab_load::target::Address;
use loadlab_system::{Listening, ProcessId, is_local};

/// Who is watched where no plan names components.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Processes of this machine that answer are found, with those that they ask.
    pub finds: bool,
    /// These are watched, whoever answers.
    pub processes: Vec<ProcessId>,
}

impl Watch {
    /// Where a load goes, if that is on this machine.
    pub fn addresses(&self, spec: &LoadSpec) -> Vec<Listening> {
        let local = |address: &Address| match address {
            Address::Inet(address) => is_local(address.ip()).then_some(Listening::Inet(*address)),
            Address::Unix(path) => Some(Listening::Unix(path.to_string())),
        };
        let all = spec.hosts.iter().flatten().filter(|_| self.finds);
        all.filter_map(local).collect()
    }
}
