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
    /// The plan's case at this level, as a separate case named after the level.
    pub fn case(&self, base: &Case) -> Case {
        let mut case = self.of_trial(base);
        let name = self.vary.name();
        case.name = format!("{name} {}", self.level);
        case.values.retain(|(axis, _)| axis != name);
        case.values.push((name.to_owned(), self.level.to_string()));
        case
    }

    /// The plan's case at this level, under its own name. The loads beside the one that is varied are all there while the
    /// level is measured, and end with it.
    pub fn of_trial(&self, base: &Case) -> Case {
        let mut case = base.clone();
        for (i, load) in case.loads.iter_mut().enumerate() {
            load.until = plan::Until::Elapsed(self.settle_ns.saturating_add(self.length_ns));
            (load.warmup_ns, load.is_warmup_found) = (self.settle_ns, false);
            (load.batches, load.pause_ns, load.start_ns) = (1, 0, 0);
            let ramp_ns = self.settle_ns / 2;
            load.ramp_ns = load.ramp_ns.min(ramp_ns);
            if i == self.load {
                load.ramp_ns = ramp_ns;
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

#[cfg(test)]
mod tests {
    use loadlab_plan::{Options, Plan};

    use super::*;

    /// Otherwise a level would be measured while they still ramp up, or go on when it is over.
    #[test]
    fn the_loads_beside_it_are_there_for_the_whole_level() {
        let journey = "journey: [{ get: \"http://127.0.0.1:1/\" }]";
        let text = format!(
            "loadlab: 1\nname: n\nloads:\n  varied: {{ users: 1, duration: 1m, ramp: 10s, start: 3s, {journey} }}\n  \
             slow: {{ users: 40, duration: 1m, ramp: 30s, start: 20s, {journey} }}\n  \
             quick: {{ rate: 50/s, requests: 900, ramp: 200ms, {journey} }}\n"
        );
        let plan = Plan::parse("plan.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let (vary, settle_ns, length_ns) = (SearchVariable::Users, 2_000_000_000, 10_000_000_000);
        let level = Level { vary, load: 0, level: 7, settle_ns, length_ns };
        let case = level.of_trial(&plan.cases()[0]);
        let until = plan::Until::Elapsed(12_000_000_000);
        let of = |load: &plan::LoadSpec| (load.start_ns, load.ramp_ns, load.until, load.warmup_ns);
        let found: Vec<_> = case.loads.iter().map(of).collect();
        let expect = |ramp_ns: u64| (0, ramp_ns, until, settle_ns);
        assert_eq!(found, [expect(1_000_000_000), expect(1_000_000_000), expect(200_000_000)]);
        let models = [&case.loads[0].model, &case.loads[1].model];
        let users = |users: u64| plan::Model::Closed { users, pace_ns: None };
        assert_eq!(models, [&users(7), &users(40)]);
    }
}
