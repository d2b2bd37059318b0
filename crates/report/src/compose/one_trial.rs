//! One trial in the form its charts need: its moments, its marks, and the axis that all of them share.

use std::collections::BTreeMap;

use loadlab_analysis::cases::metric::Unit;

use super::readings::{Readings, TickBin};
use crate::document::{Along, Band, Chart, Line, Mark};

/// A trial in the form its charts need.
pub(super) struct ChartedTrial<'a> {
    /// Prefix of its charts' names.
    pub(super) prefix: String,
    /// Where the time axis begins and ends.
    pub(super) axis: (f64, f64),
    pub(super) marks: Vec<Mark>,
    pub(super) turns: Vec<Mark>,
    pub(super) bands: Vec<Band>,
    pub(super) ticks: Vec<TickBin<'a>>,
    pub(super) samples: Readings,
    /// CPU limits by component, in per cent of a core.
    pub(super) cpu_limits: BTreeMap<&'a str, f64>,
}

impl ChartedTrial<'_> {
    /// A chart with no content yet.
    pub(super) fn empty(&self, name: &str, title: &str, unit: Unit, at_s: Vec<f64>) -> Chart {
        Chart {
            id: format!("{}-{name}", self.prefix),
            title: title.to_owned(),
            group: self.prefix.clone(),
            along: Along::Seconds,
            unit,
            logarithmic: false,
            span: Some(self.axis),
            at: at_s,
            lines: Vec::new(),
            heat: None,
            marks: self.marks.clone(),
            turns: self.turns.clone(),
            bands: self.bands.clone(),
            note: None,
        }
    }

    /// A chart with lines; `None` if they would be single points.
    pub(super) fn chart(
        &self,
        name: &str,
        title: &str,
        unit: Unit,
        at_s: Vec<f64>,
        lines: Vec<Line>,
    ) -> Option<Chart> {
        let is_drawn = at_s.len() > 1 && lines.iter().any(|l| l.values.iter().any(Option::is_some));
        is_drawn.then(|| Chart { lines, ..self.empty(name, title, unit, at_s) })
    }
}
