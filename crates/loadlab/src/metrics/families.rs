//! Which parts of a run's state are metrics: names, units, and current values. Other modules send them.

use loadlab_record::counts::load::Counts;
use loadlab_run::event::Progress;

use crate::live::state::{Component, FigureResult, Load, Probe, State};

/// Names and values of labels, in order.
pub type Labels = Vec<(&'static str, String)>;

/// Values with their labels.
type Points = Vec<(Labels, f64)>;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// It only grows, from zero at the beginning of each trial.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name in snake case, without the prefix `loadlab` and the unit.
    pub name: &'static str,
    /// The suffix of its Prometheus name: the unit, and `_total` for counters.
    pub suffix: &'static str,
    /// Its unit, in UCUM notation.
    pub unit: &'static str,
    /// Counter or gauge.
    pub kind: MetricType,
    /// A description for readers of the metrics, in one line.
    pub help: &'static str,
    /// Its values; never empty.
    pub points: Vec<(Labels, f64)>,
}

/// All metrics that have a value now.
pub fn families(state: &State) -> Vec<Family> {
    let mut all = Families { of: Labels::new(), list: Vec::new() };
    if !state.trial.is_empty() {
        all.of.push(("trial", state.trial.clone()));
    }
    let phase = vec![(vec![("phase", state.phase.clone())], 1.0)];
    all.gauge("phase", "1", "1 for what is being done", phase);
    loads(&mut all, &state.loads);
    components(&mut all, &state.components);
    let probe = |p: &Probe| Some((vec![("probe", p.name.clone())], p.values.back().copied().flatten()?));
    let probes = state.probes.iter().filter_map(probe).collect();
    all.gauge("probe", "1", "Last reading of a probe of the plan", probes);
    let result = |result: &FigureResult| {
        (vec![("figure", result.name.clone()), ("unit", result.unit.clone())], result.value)
    };
    let results = state.results.iter().map(result).collect();
    all.gauge("figure", "1", "A figure of the plan, once the trial is over", results);
    all.list
}

struct Families {
    /// Labels that every value carries.
    of: Labels,
    list: Vec<Family>,
}

impl Families {
    /// Adds a metric if it has a value.
    fn add(&mut self, family: Family) {
        let labelled = |(labels, value): (Labels, f64)| {
            (self.of.iter().cloned().chain(labels).collect::<Labels>(), value)
        };
        let points: Points =
            family.points.into_iter().filter(|(_, value)| value.is_finite()).map(labelled).collect();
        if !points.is_empty() {
            self.list.push(Family { points, ..family });
        }
    }

    fn counter(&mut self, name: &'static str, unit: &'static str, help: &'static str, points: Points) {
        self.add(Family { name, suffix: "_total", unit, kind: MetricType::Counter, help, points });
    }

    /// Adds a gauge whose Prometheus name does not contain its unit.
    fn gauge(&mut self, name: &'static str, unit: &'static str, help: &'static str, points: Points) {
        self.add(Family { name, suffix: "", unit, kind: MetricType::Gauge, help, points });
    }
}

fn loads(all: &mut Families, loads: &[Load]) {
    // Counters continue over the batches of a trial.
    let each = |read: &dyn Fn(&Progress, &Counts) -> Points| -> Points {
        let of = |l: &Load| {
            let named =
                |(labels, value)| (std::iter::once(("load", l.name.clone())).chain(labels).collect(), value);
            let mut counts = l.before.clone();
            counts.merge(&l.progress.counts);
            read(&l.progress, &counts).into_iter().map(named).collect::<Vec<_>>()
        };
        loads.iter().flat_map(of).collect()
    };
    let one = |value: f64| vec![(Labels::new(), value)];
    let outcomes = each(&|_, counts| {
        let of = |name: &str, n: u64| (vec![("outcome", name.to_owned())], n as f64);
        let failures = counts.failures.nonzero().map(|(kind, n)| of(kind.name(), n));
        std::iter::once(of("ok", counts.ok)).chain(failures).collect()
    });
    all.counter("requests", "{request}", "Requests that ended, by how", outcomes);
    let due = each(&|_, counts| one(counts.due as f64));
    all.counter("due", "{request}", "Requests that fell due", due);
    let dropped = each(&|_, counts| one(counts.dropped as f64));
    all.counter("dropped", "{request}", "Requests due and never sent", dropped);
    let in_flight = each(&|p, _| one(p.counts.in_flight as f64));
    all.gauge("in_flight", "{request}", "Requests without an answer yet", in_flight);
    let connections = each(&|p, _| one(p.connections as f64));
    all.gauge("connections", "{connection}", "Connections open", connections);
    let quantiles = each(&|p, _| {
        let reported = [("0.5", p.p50_ms), ("0.99", p.p99_ms)];
        reported
            .into_iter()
            .filter_map(|(q, ms)| Some((vec![("quantile", q.to_owned())], ms? / 1e3)))
            .collect()
    });
    all.add(Family {
        name: "response",
        suffix: "_seconds",
        unit: "s",
        kind: MetricType::Gauge,
        help: "Response times of ok outcomes since the load began",
        points: quantiles,
    });
}

/// A metric of components. The first five fields are those of [`Family`].
struct ComponentMetric {
    name: &'static str,
    suffix: &'static str,
    unit: &'static str,
    kind: MetricType,
    help: &'static str,
    /// How it is read. Counters grow from the first reading in the trial.
    read: fn(&Component) -> Option<f64>,
}

const OF_COMPONENTS: [ComponentMetric; 8] = [
    ComponentMetric {
        name: "component_cpu",
        suffix: "_seconds_total",
        unit: "s",
        kind: MetricType::Counter,
        help: "CPU time",
        read: |c| c.used.cpu_s.grown(),
    },
    ComponentMetric {
        name: "component_throttled",
        suffix: "_seconds_total",
        unit: "s",
        kind: MetricType::Counter,
        help: "Time stopped by a CPU limit",
        read: |c| c.used.throttled_s.grown(),
    },
    ComponentMetric {
        name: "component_memory",
        suffix: "_bytes",
        unit: "By",
        kind: MetricType::Gauge,
        help: "Memory",
        read: |c| Some(c.memory_bytes? as f64),
    },
    ComponentMetric {
        name: "component_memory_limit",
        suffix: "_bytes",
        unit: "By",
        kind: MetricType::Gauge,
        help: "Limit of memory",
        read: |c| Some(c.last.as_ref()?.memory_limit_bytes? as f64),
    },
    ComponentMetric {
        name: "component_network_received",
        suffix: "_bytes_total",
        unit: "By",
        kind: MetricType::Counter,
        help: "Received",
        read: |c| c.used.net_in_bytes.grown(),
    },
    ComponentMetric {
        name: "component_network_sent",
        suffix: "_bytes_total",
        unit: "By",
        kind: MetricType::Counter,
        help: "Sent",
        read: |c| c.used.net_out_bytes.grown(),
    },
    ComponentMetric {
        name: "component_block_read",
        suffix: "_bytes_total",
        unit: "By",
        kind: MetricType::Counter,
        help: "Read from block devices",
        read: |c| c.used.block_read_bytes.grown(),
    },
    ComponentMetric {
        name: "component_block_written",
        suffix: "_bytes_total",
        unit: "By",
        kind: MetricType::Counter,
        help: "Written to block devices",
        read: |c| c.used.block_written_bytes.grown(),
    },
];

fn components(all: &mut Families, components: &[Component]) {
    for ComponentMetric { name, suffix, unit, kind, help, read } in OF_COMPONENTS {
        let of = |c: &Component| Some((vec![("component", c.name.clone())], read(c)?));
        let points = components.iter().filter_map(of).collect();
        all.add(Family { name, suffix, unit, kind, help, points });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use loadlab_analysis::{TrialInput, summarise};
    use loadlab_record::documents::figure::{Better, FigureValue, NumberKind};
    use loadlab_record::documents::manifest::FigureFacts;
    use loadlab_record::watch::sample::Sample;
    use loadlab_run::RunEvent;

    use super::*;

    /// Each batch of a load starts at zero; a counter continues.
    #[test]
    fn counters_go_on_over_batches() {
        let mut state = State::default();
        let mut reported = Vec::new();
        for batch in 1..=3 {
            let (load, planned_s, planned_requests) = ("main".to_owned(), None, Some(40));
            state.on_event(
                0.0,
                &RunEvent::LoadStarted { load, batch: (batch, 3), planned_s, planned_requests },
            );
            for ok in [15, 40] {
                let counts = Counts { due: ok, started: ok, ok, ..Counts::default() };
                let progress = Progress { load: "main".into(), counts, ..Progress::default() };
                state.on_event(0.0, &RunEvent::Progress(progress));
                let all = families(&state);
                let requests = all.iter().find(|f| f.name == "requests").expect("there are some");
                reported.push(requests.points[0].1);
            }
        }
        assert_eq!(reported, [15.0, 40.0, 55.0, 80.0, 95.0, 120.0]);
    }

    fn started(trial: u32, figures: Vec<FigureFacts>) -> RunEvent {
        let (case, cpu_limits) = ("a".to_owned(), BTreeMap::new());
        RunEvent::TrialStarted { case, trial, place: 1, of: 2, at_most: false, cpu_limits, figures }
    }

    /// A component's own counters are totals since it started; those of a trial start with its first reading.
    #[test]
    fn counters_of_components_start_again_with_each_trial() {
        let mut state = State::default();
        let mut reported = Vec::new();
        for (trial, readings) in [(1, [(500.0, 7000), (502.5, 9000)]), (2, [(600.0, 9500), (601.0, 9500)])] {
            state.on_event(0.0, &started(trial, Vec::new()));
            for (at_s, (cpu_s, received)) in [0.0, 1.0].into_iter().zip(readings) {
                let component = "web".to_owned();
                let (cpu_s, net_in_bytes) = (Some(cpu_s), Some(received));
                let sample = Sample { at_s, component, cpu_s, net_in_bytes, ..Sample::default() };
                state.on_event(at_s, &RunEvent::Watched(vec![sample]));
                let all = families(&state);
                let of = |name: &str| all.iter().find(|f| f.name == name).expect("it is read").points[0].1;
                reported.push((of("component_cpu"), of("component_network_received")));
            }
        }
        assert_eq!(reported, [(0.0, 0.0), (2.5, 2000.0), (0.0, 0.0), (1.0, 0.0)]);
    }

    /// The plan's figures have values from the end of a trial until the next trial begins.
    #[test]
    fn figures_are_those_of_the_trial_that_ended() {
        let facts = FigureFacts {
            name: "capacity".into(),
            value: "capacity".into(),
            kind: NumberKind::Rate,
            unit: None,
            better: Better::More,
            about: None,
        };
        let mut state = State::default();
        let of = |state: &State| families(state).into_iter().find(|f| f.name == "figure");
        state.on_event(0.0, &started(1, vec![facts.clone()]));
        assert_eq!(of(&state), None);
        let mut summary = summarise(TrialInput::default());
        let value = FigureValue { value: Some(412.5), unit: "/s".into(), ..FigureValue::default() };
        summary.figures.insert("capacity".into(), value);
        state.on_event(
            1.0,
            &RunEvent::TrialEnded {
                case: "a".into(),
                trial: 1,
                summary: Some(Box::new(summary)),
                failure: None,
                figures: vec![facts.clone()],
            },
        );
        let labels = [("trial", "a, trial 1"), ("figure", "capacity"), ("unit", "/s")];
        let labels = labels.map(|(name, value)| (name, value.to_owned())).to_vec();
        assert_eq!(of(&state).expect("one").points, [(labels, 412.5)]);
        state.on_event(2.0, &started(2, vec![facts.clone()]));
        assert_eq!(of(&state), None);
    }
}
