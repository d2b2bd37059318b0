//! How autocorrelated the response times of a load are: requests of one burst, or of one busy period of a queue, are
//! slow together, so their effective sample size is smaller than their number.
//!
//! Requests are taken in the order in which they fell due. Each counts as 1 if it is slower than most, else as 0; for
//! independent requests the means of blocks of these vary binomially. They vary more where slow ones are clustered: the
//! ratio is the inflation, the number of requests that count as one independent request (batch means; A. M. Law,
//! *Simulation Modeling and Analysis*, section 9.5.3). Blocks of all sizes are tried and the largest inflation is
//! taken. Changes slower than the load's duration cannot be seen in it.

/// The threshold is the time exceeded by 20 of all requests, or by half of them if there are fewer than 40.
const SLOW: f64 = 20.0;
/// Fewer blocks than this do not show how they vary.
const FEWEST_BLOCKS: usize = 4;
/// Standard deviations added to the estimate: a few blocks may vary little by chance.
const SURE: f64 = 1.5;

/// Response times of a load's first requests, and when they fell due; both in nanoseconds. Seven digits suffice to
/// compare them, and take half the memory.
#[derive(Clone, Debug, Default)]
pub struct InOrder {
    requests: Vec<(f32, f32)>,
}

/// Equal if they hold the same requests, in whatever order threads reported them.
impl PartialEq for InOrder {
    fn eq(&self, other: &InOrder) -> bool {
        let sorted = |requests: &[(f32, f32)]| {
            let mut sorted = requests.to_vec();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            sorted
        };
        self.requests.len() == other.requests.len() && sorted(&self.requests) == sorted(&other.requests)
    }
}

impl InOrder {
    /// Maximum number of requests kept: as many as percentiles up to p99.9 need.
    pub const CAPACITY: usize = 10_000;

    /// Empty, with its full capacity allocated: recording takes no more memory.
    pub fn with_room() -> Self {
        InOrder { requests: Vec::with_capacity(Self::CAPACITY) }
    }

    /// Whether there is room for another request.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.requests.len() < Self::CAPACITY
    }

    /// Records when a request fell due and how long it took, or at least took; ignored if there is no room.
    #[inline]
    pub fn record(&mut self, due_ns: u64, response_ns: u64) {
        if self.has_room() {
            self.requests.push((due_ns as f32, response_ns as f32));
        }
    }

    /// Adds another's requests: of all of them, those that fell due first are kept.
    pub fn merge(&mut self, mut other: InOrder) {
        if self.requests.is_empty() {
            *self = other;
            return;
        }
        self.requests.append(&mut other.requests);
        if self.requests.len() > Self::CAPACITY {
            // Stable: requests that fell due at the same time keep their order, and slow ones are not grouped.
            self.requests.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.requests.truncate(Self::CAPACITY);
            self.requests.shrink_to_fit();
        }
    }

    /// When each request fell due and how long it took, nanoseconds.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (f32, f32)> + '_ {
        self.requests.iter().copied()
    }

    /// From when each request fell due and how long it took, nanoseconds.
    pub(crate) fn from_requests(requests: impl Iterator<Item = (f32, f32)>) -> Self {
        InOrder { requests: requests.take(Self::CAPACITY).collect() }
    }

    /// Number of requests kept.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request is kept.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Removes requests that fell due before `due_ns`.
    pub fn leave_out_before(&mut self, due_ns: u64) {
        self.requests.retain(|(due, _)| *due >= due_ns as f32);
    }
}

/// How many requests count as one independent request, at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dependence {
    inflation: f64,
}

impl Default for Dependence {
    fn default() -> Self {
        Dependence::NONE
    }
}

impl Dependence {
    /// Each request is independent.
    pub const NONE: Dependence = Dependence { inflation: 1.0 };

    /// This many requests count as one independent request.
    pub fn known(inflation: f64) -> Dependence {
        Dependence { inflation: if inflation.is_finite() { inflation.max(1.0) } else { 1.0 } }
    }

    /// The stronger of two.
    pub fn or(self, other: Dependence) -> Dependence {
        Dependence { inflation: self.inflation.max(other.inflation) }
    }

    /// How many requests count as one independent request.
    pub fn inflation(self) -> f64 {
        self.inflation
    }

    /// From the requests of a load.
    pub fn of_requests(requests: &InOrder) -> Dependence {
        let mut ordered = requests.requests.clone();
        ordered.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut sorted: Vec<u64> = ordered.iter().map(|(_, ns)| *ns as u64).collect();
        sorted.sort_unstable();
        let Some(limit) = threshold(&sorted) else { return Dependence::NONE };
        let is_slow = slower_than(limit, sorted.last().copied());
        let blocks: Vec<(u64, u64)> =
            ordered.iter().map(|(_, ns)| (u64::from(is_slow(*ns as u64)), 1)).collect();
        Dependence { inflation: inflation(&blocks) }
    }

    /// From consecutive stretches of time: the values of each, and how often each value was counted.
    pub fn of_stretches(stretches: &[Vec<(u64, u64)>]) -> Dependence {
        let mut all: Vec<(u64, u64)> = stretches.iter().flatten().copied().collect();
        all.sort_unstable();
        let total: u64 = all.iter().map(|(_, n)| n).sum();
        let rank = (share_below(total as f64) * total as f64).ceil() as u64;
        let mut seen = 0;
        let limit = all.iter().find_map(|(value, n)| {
            seen += n;
            (seen >= rank).then_some(*value)
        });
        let Some(limit) = limit else { return Dependence::NONE };
        let is_slow = slower_than(limit, all.last().map(|(value, _)| *value));
        let count = |stretch: &Vec<(u64, u64)>| {
            let slow = stretch.iter().filter(|(value, _)| is_slow(*value)).map(|(_, n)| n).sum();
            (slow, stretch.iter().map(|(_, n)| n).sum())
        };
        Dependence { inflation: inflation(&stretches.iter().map(count).collect::<Vec<_>>()) }
    }
}

/// The share of values that are not slow.
fn share_below(count: f64) -> f64 {
    (1.0 - SLOW / count.max(1.0)).max(0.5)
}

/// Values above this are slow.
fn threshold(sorted: &[u64]) -> Option<u64> {
    let rank = (share_below(sorted.len() as f64) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.checked_sub(1)?).copied()
}

/// Values above the threshold are slow; if there are none, values equal to it.
fn slower_than(limit: u64, largest: Option<u64>) -> impl Fn(u64) -> bool {
    let is_largest = largest == Some(limit);
    move |value| value > limit || is_largest && value == limit
}

/// The largest inflation over blocks of all sizes, from (slow, all) of the smallest ones.
fn inflation(smallest: &[(u64, u64)]) -> f64 {
    let sum = |parts: &[(u64, u64)]| parts.iter().fold((0, 0), |sum, p| (sum.0 + p.0, sum.1 + p.1));
    let (slow, all) = sum(smallest);
    let share = slow as f64 / all as f64;
    if slow == 0 || slow == all {
        return 1.0;
    }
    let (mut largest, mut blocks, mut size) = (1.0f64, smallest.to_vec(), 1usize);
    while blocks.len() >= FEWEST_BLOCKS {
        let n: u64 = blocks.iter().map(|(_, all)| all).sum();
        let squares: f64 =
            blocks.iter().map(|(slow, all)| (*slow as f64 - share * *all as f64).powi(2)).sum();
        let free = (blocks.len() - 1) as f64;
        let found = squares / (n as f64 * share * (1.0 - share)) * blocks.len() as f64 / free;
        // Blocks of one request do not show how requests are correlated.
        let sure = if n as usize > blocks.len() { 1.0 + SURE * (2.0 / free).sqrt() } else { 1.0 };
        largest = largest.max(found * sure);
        size *= 2;
        blocks = smallest.chunks_exact(size).map(sum).collect();
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> f64 {
        let mut order = InOrder::default();
        values.into_iter().enumerate().for_each(|(at, ns)| order.record(at as u64, ns));
        Dependence::of_requests(&order).inflation()
    }

    #[test]
    fn what_comes_together_counts_less() {
        // No inflation from no values, or from values that are all the same.
        assert_eq!((of([]), of([7]), of([7; 500])), (1.0, 1.0, 1.0));
        // Every other one is slow: the opposite of clustering.
        assert_eq!(of((0..40).map(|i| i % 2)), 40.0 / 39.0);
        // The slow ones in one piece.
        let piece = of((0..400).map(|i| u64::from(i >= 380)));
        assert!(piece > 20.0, "{piece}");
        // The same ones far apart.
        let apart = of((0..400).map(|i| u64::from(i % 20 == 0)));
        assert!(apart < 1.1, "{apart}");
    }

    #[test]
    fn order_is_that_of_due_times_and_room_ends() {
        let mut order = InOrder::default();
        let (mut first, mut second) = (InOrder::default(), InOrder::default());
        for i in 0..200u64 {
            let worker = if i % 2 == 0 { &mut first } else { &mut second };
            worker.record(i, u64::from(i >= 180));
        }
        order.merge(second);
        order.merge(first);
        assert_eq!(Dependence::of_requests(&order).inflation(), of((0..200).map(|i| u64::from(i >= 180))));
        order.leave_out_before(190);
        assert_eq!(order.len(), 10);
        (0..2 * InOrder::CAPACITY as u64).for_each(|i| order.record(i, i));
        assert!(!order.has_room() && order.len() == InOrder::CAPACITY);
        // Of two threads without room left, those that fell due first are kept, whichever comes first.
        let (mut even, mut odd) = (InOrder::with_room(), InOrder::with_room());
        for i in 0..InOrder::CAPACITY as u64 {
            even.record(2 * i, 2 * i);
            odd.record(2 * i + 1, 2 * i + 1);
        }
        let mut first = InOrder::default();
        (0..InOrder::CAPACITY as u64).for_each(|i| first.record(i, i));
        let merged = |a: &InOrder, b: &InOrder| {
            let mut all = a.clone();
            all.merge(b.clone());
            all
        };
        assert_eq!(merged(&even, &odd), first);
        assert_eq!(merged(&odd, &even), first);
    }

    #[test]
    fn stretches_show_dependence_as_requests_do() {
        let even: Vec<Vec<(u64, u64)>> = vec![vec![(1, 95), (9, 5)]; 20];
        assert_eq!(Dependence::of_stretches(&even).inflation(), 1.0);
        let mut burst: Vec<Vec<(u64, u64)>> = vec![vec![(1, 100)]; 20];
        burst[7] = vec![(9, 100)];
        assert!(Dependence::of_stretches(&burst).inflation() > 50.0);
        assert_eq!(Dependence::of_stretches(&[]).inflation(), 1.0);
    }
}
