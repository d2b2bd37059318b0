//! Counts, bytes and histograms of a trial, added up over its loads and batches. Histograms merge exactly; nothing is
//! averaged that must not be.

use std::collections::BTreeMap;

use loadlab_record::counts::dependence::Dependence;
use loadlab_record::counts::load::{
    Bytes, Connections, Counts, Measured, PerUser, Series, Stragglers, TagMeasured,
};
use loadlab_record::counts::numbers::Numbers;

use crate::trial::input::LoadRun;
/// Sums over loads and batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests.
    pub counts: Counts,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes on the wire.
    pub bytes: Bytes,
    /// Durations; `service_*` holds the response times of loads whose requests start when due.
    pub series: Series,
    /// By tag.
    pub by_tag: BTreeMap<String, TagMeasured>,
    /// Captured numbers, by name.
    pub numbers: BTreeMap<String, Numbers>,
    /// Connections; `peak` is the largest of one load, since peaks at different times do not add up.
    pub connections: Connections,
    /// ∫ in-flight dt, over the whole load.
    pub busy_s: f64,
    /// As `busy_s`, within the windows.
    pub busy_in_window_s: f64,
    /// Requests in flight when a load was over that ended later.
    pub stragglers: Stragglers,
    /// How autocorrelated response times are: the highest of any load.
    pub dependence: Dependence,
    /// The first identity of [`Counts::balance`] that a load breaks, with the load's name.
    pub unbalanced: Option<String>,
}

impl Totals {
    /// Adds up what the loads measured.
    pub fn of(loads: &[LoadRun]) -> Totals {
        let mut out = Totals::default();
        for run in loads {
            out.add(&run.measured);
            if let (Err(why), None) = (run.measured.counts.balance(), &out.unbalanced) {
                out.unbalanced = Some(format!("load `{}`, batch {}: {why}", run.load, run.batch));
            }
        }
        out
    }

    fn add(&mut self, m: &Measured) {
        self.counts.merge(&m.counts);
        self.dependence = self.dependence.or(Dependence::of_requests(&m.in_order));
        for (status, n) in &m.statuses {
            *self.statuses.entry(*status).or_default() += n;
        }
        self.bytes.merge(m.bytes);
        self.series.merge(&m.series);
        if service_is_response(&m.series) {
            self.series.service_ok.merge(&m.series.response_ok);
            self.series.service_censored.merge(&m.series.response_censored);
        }
        for (tag, theirs) in &m.by_tag {
            self.by_tag.entry(tag.clone()).or_default().merge(theirs);
        }
        for (name, theirs) in &m.numbers {
            self.numbers.entry(name.clone()).or_default().merge(theirs);
        }
        self.connections.add_made(&m.connections);
        self.connections.peak = self.connections.peak.max(m.connections.peak);
        // With several loads or batches that hold connections, the longest opening and the largest share.
        let larger = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        self.connections.connect_phase_s =
            larger(self.connections.connect_phase_s, m.connections.connect_phase_s);
        self.connections.bytes_per_connection =
            larger(self.connections.bytes_per_connection, m.connections.bytes_per_connection);
        self.connections.in_flight_peak = self.connections.in_flight_peak.max(m.connections.in_flight_peak);
        self.connections.users_peak = self.connections.users_peak.max(m.connections.users_peak);
        // Users of several loads or batches are not the same: the least even load is reported.
        let evenness = |p: &PerUser| p.jain;
        let reported = [self.connections.per_user, m.connections.per_user];
        self.connections.per_user =
            reported.into_iter().flatten().min_by(|a, b| evenness(a).total_cmp(&evenness(b)));
        self.connections.users_without_row += m.connections.users_without_row;
        self.busy_s += m.busy_s;
        self.busy_in_window_s += m.busy_in_window_s;
        self.stragglers.merge(m.stragglers);
    }
}

/// The engine leaves the service series empty if every request starts when due. A load that separates the two records
/// both for every ok outcome, so an ok response without a service time shows that they are the same.
fn service_is_response(series: &Series) -> bool {
    series.service_ok.is_empty()
        && series.service_censored.is_empty()
        && (!series.response_ok.is_empty() || series.late.is_empty() && !series.response_censored.is_empty())
}
