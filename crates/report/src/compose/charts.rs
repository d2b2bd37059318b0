//! Charts of one trial of a case, as small multiples on one clock: the load first, then the component that held it
//! back, the other components, and the generator last.

use std::collections::BTreeMap;

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::trial::bottleneck::BottleneckKind;
use loadlab_record::watch::sample::Sample;

use super::component_charts::ChartGroup;
use super::marks::{axis_of, bands, marks, shown_time, turns};
use super::one_trial::ChartedTrial;
use super::readings::{Readings, rebin};
use super::{PlanOrder, cases};
use crate::document::{Mark, Multiples};

/// The charts of the case's typical trial, grouped by part.
pub fn of_case(
    index: usize,
    case: &CaseFindings<'_>,
    by_component: BTreeMap<String, Vec<Sample>>,
    order: &PlanOrder<'_>,
) -> Vec<Multiples> {
    let Some((record, summary)) = case.typical().and_then(|t| Some((t.record?, t.summary?))) else {
        return Vec::new();
    };
    let Some(shown) = shown_time(record) else { return Vec::new() };
    let axis = axis_of(shown);
    let within =
        |marks: Vec<Mark>| marks.into_iter().filter(|m| (axis.0..=axis.1).contains(&m.at_s)).collect();
    let limits = summary.components.iter().filter_map(|(n, c)| Some((n.as_str(), c.cpu_limit? * 100.0)));
    let trial = ChartedTrial {
        prefix: format!("case-{}", index + 1),
        axis,
        marks: within(marks(record)),
        turns: within(turns(record, &summary.load)),
        bands: bands(record),
        ticks: rebin(&record.ticks),
        samples: Readings::of(by_component, order, shown),
        cpu_limits: limits.collect(),
    };
    let mut parts = vec![trial.load(record, !summary.load.is_command())];
    parts.extend(trial.system(case));
    parts.retain(|p| !p.charts.is_empty() || !p.quiet.is_empty());
    // Sentences alone are no picture: a trial without anything to draw is in the tables.
    if parts.iter().all(|p| p.charts.is_empty()) { Vec::new() } else { parts }
}

impl ChartedTrial<'_> {
    /// The component that held the load back, all others, and the generator.
    fn system(&self, case: &CaseFindings<'_>) -> Vec<Multiples> {
        let found = case.diagnosis.bottleneck.as_ref();
        // If nothing was saturated, no component held the load back.
        let saturated = found.filter(|found| {
            !matches!(found.kind, BottleneckKind::Nothing | BottleneckKind::Latency | BottleneckKind::HostCpu)
        });
        let named = saturated.and_then(|found| found.component.as_deref());
        let is_blamed = |name: &str| named == Some(name);
        let (blamed, others): (Vec<_>, Vec<_>) = self.samples.components().partition(|(n, _)| is_blamed(n));
        let first = found.map_or("cpu", |found| chart_of(found.kind));
        let mut parts = Vec::new();
        let bottleneck = format!("First bottleneck: {}", cases::bottleneck(case));
        let (title, components) = match (blamed.is_empty(), others.is_empty()) {
            (true, _) => ("Components".to_owned(), others),
            // The bottleneck is the only component.
            (false, true) => (bottleneck, blamed),
            (false, false) => {
                let of = named.unwrap_or_default();
                parts.push(self.part(
                    bottleneck,
                    &ChartGroup { id: "first-", of, components: blamed },
                    first,
                ));
                ("Other components".to_owned(), others)
            }
        };
        let mut rest = self.part(title, &ChartGroup { id: "", of: "", components }, first);
        self.probes(&mut rest);
        parts.push(rest);
        let own = ChartGroup { id: "own-", of: "loadlab", components: self.samples.generator().collect() };
        parts.push(self.part("Load generator".to_owned(), &own, "cpu"));
        parts
    }
}

/// The chart that shows a bottleneck best.
fn chart_of(kind: BottleneckKind) -> &'static str {
    match kind {
        BottleneckKind::Memory => "memory",
        BottleneckKind::Disk => "block",
        BottleneckKind::Link => "net",
        _ => "cpu",
    }
}
