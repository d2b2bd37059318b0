//! A level of a search, and the plan's case at that level.

use loadlab_plan::{self as plan, Case};
use loadlab_record::documents::search::SearchVariable;
use serde::{Deserialize, Serialize};

/// A level and how long it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// What is varied.
    pub vary: SearchVariable,
    /// Index of the load that is varied.
    pub load: usize,
    /// Users, or requests per second.
    pub level: u64,
    /// Settling time before the measurement, in nanoseconds.
    pub settle_ns: u64,
    /// Length of the measurement after that, in nanoseconds.
    pub length_ns: u64,
}

impl Level {
    /// The plan's case at this level, as a separate case named after the level. Its components live as long as the
    /// search.
    pub fn case(&self, base: &Case) -> Case {
        let mut case = self.of_trial(base);
        let name = self.vary.name();
        case.name = format!("{name} {}", self.level);
        case.values.retain(|(axis, _)| axis != name);
        case.values.push((name.to_owned(), self.level.to_string()));
        case
    }

    /// The plan's case at this level, under its own name. Its components live as long as the search.
    pub fn of_trial(&self, base: &Case) -> Case {
        let mut case = base.clone();
        for component in &mut case.system.components {
            component.lifetime = plan::Lifetime::Experiment;
        }
        for (i, load) in case.loads.iter_mut().enumerate() {
            load.until = plan::Until::Elapsed(self.settle_ns.saturating_add(self.length_ns));
            (load.warmup_ns, load.is_warmup_found) = (self.settle_ns, false);
            (load.batches, load.pause_ns) = (1, 0);
            if i == self.load {
                load.ramp_ns = self.settle_ns / 2;
                load.model = self.model(&load.model);
            }
        }
        case
    }

    fn model(&self, model: &plan::Model) -> plan::Model {
        let level = self.level;
        match (self.vary, model) {
            (SearchVariable::Users, plan::Model::Closed { pace_ns, .. }) => {
                plan::Model::Closed { users: level, pace_ns: *pace_ns }
            }
            (SearchVariable::Users, _) => plan::Model::Closed { users: level, pace_ns: None },
            (SearchVariable::Rate, plan::Model::Open { arrivals, max_in_flight, .. }) => plan::Model::Open {
                rate_per_s: level as f64,
                arrivals: *arrivals,
                max_in_flight: *max_in_flight,
            },
            (SearchVariable::Rate, _) => plan::Model::Open {
                rate_per_s: level as f64,
                arrivals: plan::Arrivals::Constant,
                max_in_flight: 10_000,
            },
        }
    }
}
