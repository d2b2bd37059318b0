//! What is kept from trial to trial of a search: connections, and what each component had open before there were any.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use loadlab_load::ConnectionPool;
use loadlab_plan as plan;
use loadlab_system::IdleReadings;

/// How long a load thread takes to adopt a connection; the load begins after that.
const TAKE_NS: u64 = 10_000;

/// Belongs to a search, and outlives its trials.
#[derive(Debug, Default)]
pub struct Carried {
    /// The connections of each load; empty if the system is a new one each time.
    pools: Vec<Arc<ConnectionPool>>,
    /// Open files of each component at rest: later readings include the pooled connections.
    files: Mutex<BTreeMap<String, u64>>,
}

impl Carried {
    /// For this many loads.
    pub fn for_loads(loads: usize) -> Carried {
        let pools = (0..loads).map(|_| Arc::new(ConnectionPool::sharing(loads))).collect();
        Carried { pools, ..Carried::default() }
    }

    /// The connections that a load starts with.
    pub fn of(&self, load: usize) -> Option<Arc<ConnectionPool>> {
        self.pools.get(load).cloned()
    }

    /// Closes the connections of the chosen loads.
    pub fn connect_anew(&self, chosen: impl Fn(usize) -> bool) {
        self.pools.iter().enumerate().filter(|(load, _)| chosen(*load)).for_each(|(_, pool)| pool.clear());
    }

    /// Closes what the loads of a case will not use: a server must not hold more than they have.
    pub fn trim(&self, case: &plan::Case) {
        for (pool, load) in self.pools.iter().zip(&case.loads) {
            if let plan::Model::Closed { users, .. } = load.model {
                pool.trim(usize::try_from(users).unwrap_or(usize::MAX));
            }
        }
    }

    /// How long it takes to adopt the existing connections.
    pub fn takes_ns(&self) -> u64 {
        self.pools.iter().map(|pool| pool.len() as u64).sum::<u64>() * TAKE_NS
    }

    /// Records what is open before a load.
    pub fn note(&self, at_rest: &IdleReadings) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, open) in at_rest.open_files() {
            files.entry(name.to_owned()).and_modify(|least| *least = open.min(*least)).or_insert(open);
        }
    }

    /// What components have open on their own, as far as that is known.
    pub fn own_files(&self) -> BTreeMap<String, u64> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
