//! A small load from simulated agents, against a server that responds, refuses or stays silent.

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::measure::delta::{Delta, Sizes};
use loadlab_load::run::{LoadEvent, LoadResult, Origin, PartContent, PartReport, merge, simulate_part};
use loadlab_load::spec::OtherThreads;
use loadlab_load::spec::request::RequestParts;
use loadlab_load::{Arrivals, Control, LoadSpec, Model, Until, WhenBehind};
use loadlab_swarm::reduce::OrderedReport;

const MS: u64 = 1_000_000;

/// Responds after a delay that depends on the time of the request; some requests are refused, some never answered.
pub struct Varying;

impl Server for Varying {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns + MS)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        let turn = at_ns / MS;
        if turn.is_multiple_of(31) {
            return vec![];
        }
        let status = if turn.is_multiple_of(20) { "503 Busy" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").into_bytes();
        vec![(at_ns + (1 + turn * 7 % 40) * MS, Reply::Bytes(answer))]
    }
}

pub fn spec(rate_per_s: f64, is_closed: bool, has_warmup: bool) -> LoadSpec {
    let open = Model::Open {
        rate_per_s,
        arrivals: Arrivals::Poisson,
        when_behind: WhenBehind::Queue,
        max_in_flight: 50,
    };
    let model = if is_closed { Model::Closed { users: rate_per_s as u64 / 10 + 1 } } else { open };
    let parts = RequestParts {
        method: "GET".into(),
        host: "sim".into(),
        path: "/".into(),
        ..RequestParts::default()
    };
    let request = RequestParts { keep_alive: true, ..parts }.build().unwrap();
    let address = "127.0.0.1:80".parse().unwrap();
    let mut spec = LoadSpec::new(model, Until::Elapsed(3_000 * MS), vec![request], address);
    (spec.timeout_ns, spec.grace_ns) = (700 * MS, 100 * MS);
    spec.warmup_ns = if has_warmup { 500 * MS } else { 0 };
    spec.tags = vec!["all".into()];
    spec.requests[0].tags = vec![0];
    spec
}

/// The reports of all parts, one part after another.
pub fn reports(spec: &LoadSpec, parts: u64) -> Vec<PartReport> {
    let mut reports = Vec::new();
    for part in 0..parts {
        let other_threads = OtherThreads { before: part, after: parts - 1 - part };
        let own = LoadSpec { other_threads, ..spec.clone() };
        let part = part as usize;
        let end = simulate_part(&own, &Control::default(), &mut Sim::new(Varying), &mut |delta| {
            let mut taken = Delta::new(Sizes { worker: 0, tags: 1, numbers: 0, warmup: spec.warmup_ns > 0 });
            std::mem::swap(&mut taken, delta);
            reports.push(PartReport { part, content: PartContent::Counted(Box::new(taken)) });
        });
        reports.push(PartReport { part, content: PartContent::Ended(Box::new(end.unwrap())) });
    }
    reports
}

/// Merges what parts reported.
pub fn merged_of(spec: &LoadSpec, parts: usize, mut reports: impl Iterator<Item = PartReport>) -> LoadResult {
    merge(spec, ORIGIN, parts, &mut |_| reports.next(), &mut |_| {})
}

/// Merges blocks whose turn has come; each reuses the memory of the one before.
pub fn merged_blocks(
    spec: &LoadSpec,
    parts: usize,
    mut blocks: impl Iterator<Item = OrderedReport>,
    observer: &mut dyn FnMut(LoadEvent<'_>),
) -> LoadResult {
    let mut next = |used| {
        let OrderedReport { part, block } = blocks.next()?;
        let (content, whole) = block.into_content(used);
        whole.expect("it was packed here");
        Some(PartReport { part, content })
    };
    merge(spec, ORIGIN, parts, &mut next, observer)
}

pub const ORIGIN: Origin = Origin { start_ns: 0, zero_ns: 0, batch: 0, first_id: 0 };
