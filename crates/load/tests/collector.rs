//! The collector of the load threads' counts gets no CPU time for a while: nothing is lost, the reported seconds only
//! become longer.

use loadlab_load::io::ConnId;
use loadlab_load::io::sim::{Reply, Server, Sim};
use loadlab_load::run::{Second, simulate};
use loadlab_load::{Arrivals, Control, LoadEvent, LoadResult, LoadSpec, Model, Until, WhenBehind};
use loadlab_record::counts::load::{Counts, Series};

use crate::support;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Answers after a delay that varies from request to request; refuses one request in twenty.
struct Varying(u64);

impl Server for Varying {
    fn connect(&mut self, at_ns: u64, _: ConnId) -> Result<u64, (u64, i32)> {
        Ok(at_ns + MS)
    }

    fn request(&mut self, at_ns: u64, _: ConnId, _: &[u8]) -> Vec<(u64, Reply)> {
        self.0 += 1;
        let status = if self.0.is_multiple_of(20) { "503 Busy" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").into_bytes();
        vec![(at_ns + (1 + self.0 * 7 % 40) * MS, Reply::Bytes(answer))]
    }
}

/// Ten seconds of load from `threads` load threads; nothing is collected between the given times.
fn go(threads: usize, uncollected: Option<(u64, u64)>) -> (LoadResult, Vec<Second>) {
    let model = Model::Open {
        rate_per_s: 300.0,
        arrivals: Arrivals::Poisson,
        when_behind: WhenBehind::Queue,
        max_in_flight: 50,
    };
    let mut spec = LoadSpec::new(model, Until::Elapsed(10 * S), vec![support::get()], support::address());
    (spec.threads, spec.warmup_ns) = (threads, 1_500 * MS);
    spec.tags = vec!["all".into()];
    spec.requests[0].tags = vec![0];
    let mut sim = Sim::new(Varying(0));
    if let Some((from_ns, until_ns)) = uncollected {
        sim = sim.uncollected(from_ns, until_ns);
    }
    let mut seconds = Vec::new();
    let outcome = simulate(&spec, &Control::default(), &mut sim, &mut |event| {
        if let LoadEvent::Second(second) = event {
            seconds.push(second.clone());
        }
    });
    (outcome.unwrap(), seconds)
}

/// The totals over all seconds.
fn sum(seconds: &[Second]) -> (Counts, Series, Series, u64, u64) {
    let (mut counts, mut window, mut before) = (Counts::default(), Series::default(), Series::default());
    let (mut received, mut tagged) = (0, 0);
    for second in seconds {
        counts.merge(&Counts { in_flight: 0, ..second.tick.counts.clone() });
        window.merge(&second.window);
        before.merge(&second.before);
        received += second.tick.bytes.received;
        tagged += second.by_tag["all"].counts.ok;
    }
    (counts, window, before, received, tagged)
}

#[test]
fn nothing_is_lost_while_the_collector_is_suspended() {
    let spans = |seconds: &[Second]| -> Vec<(f64, f64)> {
        seconds.iter().map(|s| (s.tick.from_s, s.tick.to_s)).collect()
    };
    for threads in [1, 3] {
        let (usual, all) = go(threads, None);
        assert_eq!((usual.generator.coarse_s, all.len() >= 10), (0.0, true));
        // A collector that is a second and a half behind loses no resolution.
        let (behind, same) = go(threads, Some((2_300 * MS, 3_800 * MS)));
        assert_eq!((&behind.measured, behind.generator.coarse_s), (&usual.measured, 0.0));
        assert_eq!(spans(&same), spans(&all));
        for (from_ms, until_ms) in [(2_300, 8_500), (1_000, 5_000), (500, 9_990), (4_000, 60_000)] {
            let (outcome, coarse) = go(threads, Some((from_ms * MS, until_ms * MS)));
            let mut measured = outcome.measured.clone();
            // The peaks are then known only per longer interval, as an upper bound.
            assert!(measured.connections.peak >= usual.measured.connections.peak);
            assert!(measured.connections.in_flight_peak >= usual.measured.connections.in_flight_peak);
            measured.connections.peak = usual.measured.connections.peak;
            measured.connections.in_flight_peak = usual.measured.connections.in_flight_peak;
            assert_eq!(measured, usual.measured);
            assert_eq!(sum(&coarse), sum(&all));
            // Every second is reported exactly once, alone or merged with others.
            let spans = spans(&coarse);
            assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
            let long = |(from_s, to_s): &&(f64, f64)| to_s - from_s > 1.5;
            let coarse_s: f64 = spans.iter().filter(long).map(|(from_s, to_s)| to_s - from_s).sum();
            assert_eq!(
                (outcome.generator.coarse_s, spans.iter().filter(long).count()),
                (coarse_s, 1),
                "{spans:?}"
            );
        }
    }
}
