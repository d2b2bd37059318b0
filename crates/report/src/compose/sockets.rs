//! A table of what `ss -s` and `top` show of a machine: TCP sockets by state, connections the kernel dropped, load
//! average, and waiting for a core. Components with their own network have their own rows.

use std::collections::BTreeMap;

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::trial::bottleneck::flow::waiting;
use loadlab_analysis::trial::counter::{Counter, During};
use loadlab_record::text::units::format_duration_ns;
use loadlab_record::watch::evidence::Pair;
use loadlab_record::watch::names::PROBES;
use loadlab_record::watch::sample::{Pressure, Sample, Tcp};

use super::PlanOrder;
use super::tables::drop_unknown_columns;
use crate::document::{Cell, Table, Weight};
use crate::figures::{self, NOTHING};

/// How many pairs of components their table lists.
const MOST_PAIRS: usize = 12;

/// All readings.
const ALWAYS: During = During { from_s: f64::NEG_INFINITY, to_s: f64::INFINITY };

/// From the trial with the median goodput: the maximum of levels, the growth of counters.
pub fn table(by_component: &BTreeMap<String, Vec<Sample>>, order: &PlanOrder<'_>) -> Option<Table> {
    if !by_component.values().flatten().any(|s| s.tcp.is_some()) {
        return None;
    }
    let mut lists: Vec<(&str, &[Sample])> = by_component
        .iter()
        .map(|(name, list)| (name.as_str(), list.as_slice()))
        .filter(|(name, _)| *name != PROBES)
        .collect();
    order.sort(&mut lists, |(name, _)| name);
    Some(of(&lists))
}

/// Connections between components, and how many of them waited for an answer.
pub fn pairs(case: &CaseFindings<'_>) -> Option<Table> {
    let mut pairs: Vec<&Pair> = case.diagnosis.pairs.iter().filter(|p| p.from != p.to).collect();
    if pairs.is_empty() {
        return None;
    }
    pairs.sort_by(|a, b| waiting(b).total_cmp(&waiting(a)));
    let left_out = pairs.len().saturating_sub(MOST_PAIRS);
    let or_unknown = |name: &str| if name.is_empty() { "(not known)".to_owned() } else { name.to_owned() };
    let row = |p: &&Pair| {
        let count = |value: f64| figures::number((value * 10.0).round() / 10.0);
        vec![
            Cell::new(or_unknown(&p.from)),
            Cell::new(or_unknown(&p.to)),
            Cell::new(if p.is_udp { format!("{} (UDP)", p.address) } else { p.address.clone() }),
            Cell::new(count(p.open)),
            Cell::new(count(waiting(p))),
            Cell::new(count(p.unknown)),
            Cell::new(figures::or_nothing(p.rtt_ms, |ms| format_duration_ns(ms * 1e6))),
            Cell::new(figures::count(p.retransmits)),
        ]
    };
    let head = ["from", "to", "at", "open", "busy", "not known", "round trip", "sent again"];
    let mut note = "Means over the load. Busy: the caller waits for an answer. Not known: the kernel's clock is too coarse \
                    to tell, and Unix sockets have no such clock."
        .to_owned();
    if left_out > 0 {
        note.push_str(&format!(
            " {} with fewer busy connections are left out.",
            figures::plural(left_out as u64, "pair", "pairs")
        ));
    }
    let mut table = Table {
        caption: "Connections between components".into(),
        head: head.map(str::to_owned).to_vec(),
        text_columns: vec![1, 2],
        rows: pairs.iter().take(MOST_PAIRS).map(row).collect(),
        note: Some(note),
    };
    drop_unknown_columns(&mut table);
    Some(table)
}

fn of(lists: &[(&str, &[Sample])]) -> Table {
    let head = [
        "component",
        "established",
        "time wait",
        "orphaned",
        "by state",
        "accept queue full",
        "SYN dropped",
        "sent again",
        "load average",
        "waited for a core",
    ];
    let mut table = Table {
        caption: "Sockets and waiting".into(),
        head: head.map(str::to_owned).to_vec(),
        text_columns: vec![4],
        rows: lists.iter().map(|(name, list)| row(name, list)).collect(),
        note: Some(
            "Levels are the most at one time; dropped connections and resent segments are counts. The sockets of \
             components without their own network are in the host's row. A machine has a load average; for a \
             component it is the share of time in which something in it waited for a core."
                .into(),
        ),
    };
    drop_unknown_columns(&mut table);
    table
}

fn row(name: &str, list: &[Sample]) -> Vec<Cell> {
    let tcp = |read: fn(&Tcp) -> Option<u64>| list.iter().filter_map(move |s| read(s.tcp.as_ref()?));
    let most =
        |read: fn(&Tcp) -> Option<u64>| Cell::new(figures::or_nothing(tcp(read).max(), figures::count));
    let growth = |read: fn(&Tcp) -> Option<u64>| {
        let counter = Counter::of(list, |s| Some(read(s.tcp.as_ref()?)? as f64));
        // A single reading shows no growth, only that the counter exists.
        let grown = counter.used(ALWAYS).or_else(|| tcp(read).next().map(|_| 0.0)).map(|n| n as u64);
        let cell = Cell::new(figures::or_nothing(grown, figures::count));
        if grown.is_some_and(|n| n > 0) { cell.with_weight(Weight::Doubtful) } else { cell }
    };
    let load_average = list
        .iter()
        .filter_map(|s| s.load_average)
        .fold(None, |most: Option<f64>, v| Some(most.map_or(v, |most| most.max(v))));
    let waited = waited(list, |p| p.cpu_s);
    vec![
        Cell::new(name),
        most(|t| t.established),
        most(|t| t.time_wait),
        most(|t| t.orphaned),
        Cell::new(states(list)),
        growth(|t| t.accept_overflows),
        growth(|t| t.syn_drops),
        Cell::new(growth(|t| t.retransmits).text),
        Cell::new(figures::or_nothing(load_average, figures::number)),
        Cell::new(figures::or_nothing(waited, figures::percent)),
    ]
}

/// The most sockets of each state.
fn states(list: &[Sample]) -> String {
    let mut most: BTreeMap<&str, u64> = BTreeMap::new();
    for (state, count) in list.iter().filter_map(|s| s.tcp.as_ref()).flat_map(|t| &t.by_state) {
        let slot = most.entry(state).or_default();
        *slot = (*slot).max(*count);
    }
    let mut most: Vec<_> = most.into_iter().filter(|(_, count)| *count > 0).collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let texts: Vec<String> =
        most.into_iter().map(|(state, count)| format!("{state} {}", figures::count(count))).collect();
    if texts.is_empty() { NOTHING.to_owned() } else { texts.join(", ") }
}

/// The share of time spent waiting, between the first and the last reading.
fn waited(list: &[Sample], read: fn(&Pressure) -> Option<f64>) -> Option<f64> {
    let share = Counter::of(list, |s| read(s.pressure.as_ref()?)).per_s(ALWAYS)?;
    Some(share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_s: f64, tcp: Option<Tcp>, waited_s: f64, load_average: Option<f64>) -> Sample {
        let pressure = Some(Pressure { cpu_s: Some(waited_s), ..Pressure::default() });
        Sample { at_s, tcp, pressure, load_average, ..Sample::default() }
    }

    #[test]
    fn what_goes_up_and_down_and_what_only_grows() {
        let tcp = |established, overflows, state: &str| {
            Some(Tcp {
                established: Some(established),
                accept_overflows: Some(overflows),
                by_state: BTreeMap::from([(state.to_owned(), established / 2)]),
                ..Tcp::default()
            })
        };
        let host = [
            sample(0.0, tcp(10, 500, "LISTEN"), 3.0, Some(1.5)),
            sample(10.0, tcp(4, 507, "LISTEN"), 8.0, Some(0.5)),
        ];
        let web = [sample(1.0, None, 0.0, None), sample(5.0, None, 1.0, None)];
        let table = of(&[("web", &web[..]), ("host", &host[..])]);
        let rows: Vec<String> = table
            .rows
            .iter()
            .map(|r| r.iter().map(|c| c.text.as_str()).collect::<Vec<_>>().join(" | "))
            .collect();
        assert_eq!(
            table.head.join(" | "),
            "component | established | by state | accept queue full | load average | waited for a core"
        );
        assert_eq!(rows, ["web | – | – | – | – | 25.0 %", "host | 10 | LISTEN 5 | 7 | 1.5 | 50.0 %"]);
        assert_eq!(table.text_columns, [2]);
    }

    #[test]
    fn what_a_restarted_component_counted_before_counts_too() {
        let tcp = |syn_drops| Some(Tcp { syn_drops: Some(syn_drops), ..Tcp::default() });
        // It grows by 90 from 10 on, is restarted, and by the last reading has dropped 5 again.
        let web = [
            sample(0.0, tcp(10), 2.0, None),
            sample(4.0, tcp(100), 4.0, None),
            sample(8.0, tcp(3), 1.0, None),
            sample(10.0, tcp(5), 3.0, None),
        ];
        let table = of(&[("web", &web[..])]);
        let texts: Vec<&str> = table.rows[0].iter().map(|c| c.text.as_str()).collect();
        assert_eq!(table.head, ["component", "SYN dropped", "waited for a core"]);
        assert_eq!(texts, ["web", "95", "50.0 %"]);
    }
}
