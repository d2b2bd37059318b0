//! The interval of a percentile of few samples contains the true one as often as promised, on simulated systems.
//!
//! Each system is simulated at length to learn its percentile, and then many times briefly. The seeds are fixed. 95 %
//! is promised for independent requests; 90 % is required where requests are autocorrelated.

use loadlab_record::counts::dependence::{Dependence, InOrder};
use loadlab_record::counts::quantile::{quantile_of, ranks};

/// Pseudo-random numbers (xorshift64*), the same in every run.
struct Random(u64);

impl Random {
    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Response times of `n` requests of a system, in the order in which they fell due. A service takes 1 on average.
type System = fn(&mut Random, usize) -> Vec<f64>;

/// A server that is equally fast for everyone.
fn independent(random: &mut Random, n: usize) -> Vec<f64> {
    (0..n).map(|_| random.normal().exp()).collect()
}

/// One server with a queue before it, at utilization `used`, in its steady state.
fn queue(random: &mut Random, n: usize, used: f64) -> Vec<f64> {
    let idle = random.unit() > used;
    let mut wait = if idle { 0.0 } else { random.exponential(1.0 / (1.0 - used)) };
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        let response = wait + random.exponential(1.0);
        out.push(response);
        wait = (response - random.exponential(1.0 / used)).max(0.0);
    }
    out
}

fn queue_half_used(random: &mut Random, n: usize) -> Vec<f64> {
    queue(random, n, 0.5)
}

fn busy_queue(random: &mut Random, n: usize) -> Vec<f64> {
    queue(random, n, 0.75)
}

/// Bursts of 20 requests at one moment, each of which waits for those before it.
fn bursts(random: &mut Random, n: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(n + 20);
    let mut wait = 0.0f64;
    while out.len() < n {
        let mut at = wait;
        for _ in 0..20 {
            at += random.exponential(1.0);
            out.push(at);
        }
        wait = (at - 30.0).max(0.0);
    }
    out.truncate(n);
    out
}

/// Ten users who think for 8 on average and wait for one server.
fn closed_loop(random: &mut Random, n: usize) -> Vec<f64> {
    const SETTLE: usize = 100;
    let mut users: Vec<f64> = (0..10).map(|_| random.exponential(8.0)).collect();
    let (mut free, mut out) = (0.0f64, Vec::with_capacity(n));
    for at in 0..n + SETTLE {
        let user = (0..10).min_by(|a, b| users[*a].total_cmp(&users[*b])).unwrap();
        let due = users[user];
        free = due.max(free) + random.exponential(1.0);
        if at >= SETTLE {
            out.push(free - due);
        }
        users[user] = free + random.exponential(8.0);
    }
    out
}

/// A server whose speed drifts: caches fill, other programs compute.
fn drifting(random: &mut Random, n: usize) -> Vec<f64> {
    let mut state = random.normal();
    let mut next = || {
        state = 0.9 * state + 0.19f64.sqrt() * random.normal();
        (0.5 * state + 0.5 * random.normal()).exp()
    };
    (0..n).map(|_| next()).collect()
}

const SYSTEMS: [(&str, System); 6] = [
    ("independent", independent),
    ("a queue half used", queue_half_used),
    ("a busy queue", busy_queue),
    ("bursts", bursts),
    ("a closed loop", closed_loop),
    ("drifting", drifting),
];

/// A percentile's interval from these responses, with and without taking their order into account.
fn measured(responses: &[f64], name: &str) -> [(f64, f64); 2] {
    let mut order = InOrder::default();
    (0..).zip(responses).for_each(|(at, response)| order.record(at, (response * 1e6) as u64));
    let mut sorted = responses.to_vec();
    sorted.sort_by(f64::total_cmp);
    [Dependence::of_requests(&order), Dependence::NONE].map(|dependence| {
        let ranks = ranks(sorted.len() as u64, quantile_of(name).unwrap(), dependence.inflation());
        let of = |rank: Option<u64>, open: f64| rank.map_or(open, |rank| sorted[rank as usize - 1]);
        (of(ranks.low, 0.0), of(ranks.high, f64::INFINITY))
    })
}

/// The share of many brief loads whose interval contains the percentile; and the same without taking order into
/// account.
fn coverage(system: System, (name, n): (&str, usize), truth: f64) -> [f64; 2] {
    const LOADS: usize = 120;
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut held = [0; 2];
    for _ in 0..LOADS {
        let intervals = measured(&system(&mut random, n), name);
        for (held, (low, high)) in held.iter_mut().zip(intervals) {
            *held += usize::from(low <= truth && truth <= high);
        }
    }
    held.map(|held| held as f64 / LOADS as f64)
}

fn percentile(system: System, name: &str) -> f64 {
    let mut random = Random(0xD1B5_4A32_D192_ED03);
    let mut all: Vec<f64> = (0..6).flat_map(|_| system(&mut random, 20_000)).collect();
    all.sort_by(f64::total_cmp);
    all[(quantile_of(name).unwrap() * all.len() as f64) as usize]
}

#[test]
fn intervals_hold_the_percentile_as_often_as_they_say() {
    for (words, system) in SYSTEMS {
        for case in [("p50", 15), ("p90", 60), ("p95", 150), ("p99", 300), ("p99", 900)] {
            let [held, plain] = coverage(system, case, percentile(system, case.0));
            assert!(held >= 0.9, "{words}, {case:?}: {held} held, {plain} without their order");
            assert!(held >= plain, "{words}, {case:?}: {held} is less than {plain}");
        }
    }
}

/// The reason for the widening: treated as independent, the requests of a busy queue promise too much.
#[test]
fn requests_of_a_queue_are_not_independent() {
    let truth = percentile(busy_queue, "p95");
    let [_, plain] = coverage(busy_queue, ("p95", 150), truth);
    assert!(plain < 0.5, "{plain}");
    // And independent requests are not widened beyond usefulness: most have an upper end.
    let mut random = Random(1);
    let closed = |_: &usize| measured(&independent(&mut random, 900), "p99")[0].1.is_finite();
    let closed = (0..50).filter(closed).count();
    assert!(closed >= 20, "{closed} of 50");
}
