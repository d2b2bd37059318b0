//! What merging costs the coordinator: unpacks the reports of many agents, puts them in order and merges them. Prints
//! the CPU time per second of load, and the memory halfway and at the end.
//!
//! `reduce AGENTS SERIES SECONDS`

#![expect(clippy::print_stdout, reason = "that is what it is for")]

#[path = "../tests/support.rs"]
#[expect(dead_code, reason = "what the tests need besides")]
mod support;

use std::fs;

use loadlab_load::io::sim::Sim;
use loadlab_load::measure::delta::Delta;
use loadlab_load::run::simulate_part;
use loadlab_load::spec::OtherThreads;
use loadlab_load::{Control, LoadSpec, Model, Until};
use loadlab_swarm::block::{Block, pack_counted, pack_ended};
use loadlab_swarm::reduce::{Reducer, ReportId};

use crate::support::{Varying, merged_blocks, spec};

/// Requests per second of each agent.
const RATE_PER_S: f64 = 200.0;
/// Number of agents that are simulated; the others report the same as these.
const SIMULATED: usize = 4;

fn main() {
    let number = |place: usize, default: usize| {
        std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (agents, series, seconds) = (number(1, 1_000), number(2, 10).max(1), number(3, 20));
    let mut whole = spec(RATE_PER_S * agents as f64, false, false);
    if let Model::Open { max_in_flight, .. } = &mut whole.model {
        *max_in_flight = 50 * agents as u64;
    }
    whole.until = Until::Elapsed(seconds as u64 * 1_000_000_000);
    whole.tags = (0..series).map(|n| format!("series {n}")).collect();
    let request = whole.requests.remove(0);
    whole.requests = vec![request; series];
    (0..).zip(&mut whole.requests).for_each(|(n, request)| request.tags = vec![n]);
    let simulated: Vec<Vec<Vec<u8>>> = (0..SIMULATED).map(|part| packed(&whole, part, agents)).collect();
    let sizes: Vec<usize> = simulated.iter().flatten().map(Vec::len).collect();
    let each = sizes.iter().sum::<usize>() / sizes.len().max(1);

    let (began_s, mut halfway) = (cpu_s(), 0.0);
    let mut reducer = Reducer::new(agents);
    let rounds = simulated.iter().map(Vec::len).max().unwrap_or(0);
    let all = (0..rounds).flat_map(|round| (0..agents).map(move |slot| (round, slot)));
    let reports = all.flat_map(|(round, slot)| {
        if (round, slot) == (rounds / 2, 0) {
            halfway = resident_mb();
        }
        let Some(bytes) = simulated[slot % SIMULATED].get(round) else { return Vec::new() };
        let id = ReportId { slot, epoch: 0, number: round as u64 };
        reducer.take(id, Block::open(bytes).expect("it was packed here"))
    });
    let outcome = merged_blocks(&whole, agents, reports, &mut |_| {});
    println!(
        "{:.3} {halfway:.1} {:.1} {each} {}",
        (cpu_s() - began_s) / seconds as f64,
        resident_mb(),
        outcome.measured.counts.due
    );
}

/// The reports of one agent, in order.
fn packed(whole: &LoadSpec, part: usize, agents: usize) -> Vec<Vec<u8>> {
    let (before, after) = (part as u64, (agents - 1 - part) as u64);
    let own = LoadSpec { threads: 1, other_threads: OtherThreads { before, after }, ..whole.clone() };
    let mut reports = Vec::new();
    let mut report = |delta: &mut Delta| reports.push(pack_counted(delta));
    let end = simulate_part(&own, &Control::default(), &mut Sim::new(Varying), &mut report);
    reports.push(pack_ended(&end.expect("it can be simulated")));
    reports
}

/// CPU time of this process, in seconds.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("the kernel says it");
    let numbers: Vec<u64> =
        stat.rsplit(") ").next().unwrap_or("").split(' ').map_while(|n| n.parse().ok().or(Some(0))).collect();
    // Ticks of a hundredth of a second, as on all x86 and Arm kernels.
    (numbers[11] + numbers[12]) as f64 / 100.0
}

/// Resident memory of this process, in MB.
fn resident_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel says it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).map_or(0.0, |kb| kb / 1e3)
}
