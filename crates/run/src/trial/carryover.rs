//! What a search carries from trial to trial: connections, and how many files each component had open without them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use loadlab_load::ConnectionPool;
use loadlab_plan as plan;
use loadlab_record::sync::lock;
use loadlab_system::IdleReadings;

/// How long a load thread takes to adopt a connection; the load starts after that.
const ADOPT_COST_NS: u64 = 10_000;

/// Belongs to a search and outlives its trials.
#[derive(Debug, Default)]
pub struct Carried {
    /// The connection pool of each load; empty if the system is brought up anew each time.
    pools: Vec<Arc<ConnectionPool>>,
    /// Open files of each component at rest: later readings include pooled connections.
    files: Mutex<BTreeMap<String, u64>>,
}

impl Carried {
    /// A pool for each of this many loads.
    pub fn for_loads(loads: usize) -> Carried {
        let pools = (0..loads).map(|_| Arc::new(ConnectionPool::sharing(loads))).collect();
        Carried { pools, ..Carried::default() }
    }

    /// The connection pool that a load starts with.
    pub fn of(&self, load: usize) -> Option<Arc<ConnectionPool>> {
        self.pools.get(load).cloned()
    }

    /// Closes the pooled connections of the chosen loads.
    pub fn connect_anew(&self, chosen: impl Fn(usize) -> bool) {
        self.pools.iter().enumerate().filter(|(load, _)| chosen(*load)).for_each(|(_, pool)| pool.clear());
    }

    /// Closes pooled connections that the loads of a case will not use: a server must not hold more than the case has
    /// users.
    pub fn trim(&self, case: &plan::Case) {
        for (pool, load) in self.pools.iter().zip(&case.loads) {
            if let plan::Model::Closed { users, .. } = load.model {
                pool.trim(usize::try_from(users).unwrap_or(usize::MAX));
            }
        }
    }

    /// How long it takes to adopt the pooled connections.
    pub fn takes_ns(&self) -> u64 {
        self.pools.iter().map(|pool| pool.len() as u64).sum::<u64>() * ADOPT_COST_NS
    }

    /// Records which files components have open before a load; the lowest number counts.
    pub fn note(&self, at_rest: &IdleReadings) {
        let mut files = lock(&self.files);
        for (name, open) in at_rest.open_files() {
            files.entry(name.to_owned()).and_modify(|least| *least = open.min(*least)).or_insert(open);
        }
    }

    /// How many files components have open by themselves, as far as known.
    pub fn own_files(&self) -> BTreeMap<String, u64> {
        lock(&self.files).clone()
    }
}
