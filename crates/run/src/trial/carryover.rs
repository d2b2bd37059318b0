//! What goes from probe to probe of a search: connections, and what each component had open before there were any.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use loadlab_load::ConnectionPool;
use loadlab_plan as plan;
use loadlab_system::IdleReadings;

/// Taking over a connection takes a load thread so long; the load begins after it.
const TAKE_NS: u64 = 10_000;

/// It belongs to a search, and outlives its trials.
#[derive(Debug, Default)]
pub struct Carried {
    /// For each load its connections; none where the system is another one each time.
    pools: Vec<Arc<ConnectionPool>>,
    /// Open files of each component at rest: later readings have the connections that are pools in them.
    files: Mutex<BTreeMap<String, u64>>,
}

impl Carried {
    /// With connections for so many loads.
    pub fn for_loads(loads: usize) -> Carried {
        let pools = (0..loads).map(|_| Arc::new(ConnectionPool::sharing(loads))).collect();
        Carried { pools, ..Carried::default() }
    }

    /// What a load goes on with.
    pub fn of(&self, load: usize) -> Option<Arc<ConnectionPool>> {
        self.pools.get(load).cloned()
    }

    /// Closes what those of these loads that are chosen have.
    pub fn connect_anew(&self, chosen: impl Fn(usize) -> bool) {
        self.pools.iter().enumerate().filter(|(load, _)| chosen(*load)).for_each(|(_, pool)| pool.clear());
    }

    /// Closes what the loads of a case will have no use for: a server must not hold more than they have.
    pub fn trim(&self, case: &plan::Case) {
        for (pool, load) in self.pools.iter().zip(&case.loads) {
            if let plan::Model::Closed { users, .. } = load.model {
                pool.trim(usize::try_from(users).unwrap_or(usize::MAX));
            }
        }
    }

    /// How long it takes to take up what there is.
    pub fn takes_ns(&self) -> u64 {
        self.pools.iter().map(|pool| pool.len() as u64).sum::<u64>() * TAKE_NS
    }

    /// Notes what is open before a load.
    pub fn note(&self, at_rest: &IdleReadings) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, open) in at_rest.open_files() {
            files.entry(name.to_owned()).and_modify(|least| *least = open.min(*least)).or_insert(open);
        }
    }

    /// What a component has open by itself, if that is known.
    pub fn own_files(&self, name: &str) -> Option<u64> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }
}
