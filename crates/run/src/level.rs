//! A level of a search: what becomes of the plan's case at it.

use loadlab_plan::{self as plan, Case};
use serde::{Deserialize, Serialize};

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variable {
    /// Users of the closed model.
    Users,
    /// Requests per second of the open model.
    Rate,
}

impl Variable {
    /// Its name in the record.
    pub const fn name(self) -> &'static str {
        match self {
            Variable::Users => "users",
            Variable::Rate => "rate",
        }
    }

    /// A level in words.
    pub fn level(self, level: u64) -> String {
        match self {
            Variable::Users => format!("{level} users"),
            Variable::Rate => format!("{level}/s"),
        }
    }
}

/// A level, and how long it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// What is varied.
    pub vary: Variable,
    /// Index of the load that is varied.
    pub load: usize,
    /// Users, or requests per second.
    pub level: u64,
    /// How long it settles, nanoseconds.
    pub settle_ns: u64,
    /// How long it is measured after that, nanoseconds.
    pub length_ns: u64,
}

impl Level {
    /// The plan's case at this level. Its components live as long as the search.
    pub fn case(&self, base: &Case) -> Case {
        let mut case = base.clone();
        for component in &mut case.system.components {
            component.lifetime = plan::Lifetime::Experiment;
        }
        let name = self.vary.name();
        case.name = format!("{name} {}", self.level);
        case.values.retain(|(axis, _)| axis != name);
        case.values.push((name.to_owned(), self.level.to_string()));
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
            (Variable::Users, plan::Model::Closed { pace_ns, .. }) => {
                plan::Model::Closed { users: level, pace_ns: *pace_ns }
            }
            (Variable::Users, _) => plan::Model::Closed { users: level, pace_ns: None },
            (Variable::Rate, plan::Model::Open { arrivals, max_in_flight, .. }) => plan::Model::Open {
                rate_per_s: level as f64,
                arrivals: *arrivals,
                max_in_flight: *max_in_flight,
            },
            (Variable::Rate, _) => plan::Model::Open {
                rate_per_s: level as f64,
                arrivals: plan::Arrivals::Constant,
                max_in_flight: 10_000,
            },
        }
    }
}
