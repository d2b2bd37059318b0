//! What may happen to bytes between two sockets, how often it may happen, and what did happen.

use crate::io::{ConnId, Wait};
use crate::random::Random;

/// Pauses are multiples of this, so that events coincide as they do in reality.
const BEAT_NS: u64 = 50_000;
/// Longest stall that ends at all.
const STALL_NS: u64 = 3_000_000_000;

/// A network that does whatever real ones do. Probabilities are between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Network {
    /// The same seed gives the same network.
    pub seed: u64,
    /// Which backend it imitates.
    pub like: Like,
    /// Probability that a send does not go out whole.
    pub short_writes: f64,
    /// Probability that received bytes are only partly read.
    pub partial_reads: f64,
    /// Probability that the connection breaks within one send, in either direction.
    pub resets: f64,
    /// Probability that a cut send continues after seconds, or never.
    pub stalls: f64,
    /// Longest other pause, nanoseconds.
    pub pause_ns: u64,
    /// Time from which bytes travel whole and at once, nanoseconds.
    pub until_ns: u64,
}

/// The backend to imitate; backends report sends differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Like {
    /// Reports how much went out at once and each piece that followed, and the end together with the last bytes. While
    /// it holds sends back, it reports them as sent.
    #[default]
    Epoll,
    /// Reports a short request as sent before it goes out, and anything else once all of it has gone out.
    Uring,
}

/// Totals of what went over a simulated network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Connections requested, and connections closed by the worker.
    pub connects: u64,
    /// See [`Books::connects`].
    pub closes: u64,
    /// Connections on which the worker switched Nagle's algorithm off.
    pub without_delay: u64,
    /// Bytes reported to the worker as sent.
    pub sent: u64,
    /// Bytes that the server received.
    pub delivered: u64,
    /// Bytes that the worker received.
    pub received: u64,
    /// Most bytes that waited on one connection at one time.
    pub most_waiting: usize,
    /// Sends on a connection after the worker had received its end.
    pub after_last: u64,
    /// Hash of everything submitted and reported, with its time.
    pub trace: u64,
}

/// An entry's kind in a trace.
#[derive(Clone, Copy)]
pub(super) enum TraceKind {
    Connect,
    Connected,
    Send,
    Sent,
    Received,
    Ended,
    Failed,
    Close,
}

impl Books {
    /// Adds to the trace.
    pub(super) fn note(&mut self, at_ns: u64, kind: TraceKind, conn: ConnId, bytes: &[u8], number: u64) {
        let mut add = |word: u64| {
            // FNV-1a over words: enough to distinguish two runs.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        };
        add(at_ns);
        add((kind as u64) << 32 | u64::from(conn));
        add(number);
        add(bytes.len() as u64);
        for word in bytes.chunks(8) {
            add(word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        }
    }
}

/// Direction of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Written,
    Read,
}

/// A network's random choices.
pub(super) struct Chance {
    network: Network,
    random: Random,
}

impl Chance {
    pub(super) fn new(network: Network) -> Self {
        Chance { network, random: Random::new(network.seed) }
    }

    pub(super) fn like(&self) -> Like {
        self.network.like
    }

    /// Sets the current time.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        if now_ns >= self.network.until_ns {
            let Network { seed, like, until_ns, .. } = self.network;
            self.network = Network { seed, like, until_ns, ..Network::default() };
        }
    }

    fn happens(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.random.unit() <= chance
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.next_u64() % most.max(1)
    }

    /// How many of `length` bytes go at once.
    pub(super) fn piece(&mut self, length: usize, way: Direction) -> usize {
        let chance =
            if way == Direction::Written { self.network.short_writes } else { self.network.partial_reads };
        if length == 0 || !self.happens(chance) {
            return length;
        }
        match self.below(4) {
            // At the edges, where most bugs are.
            0 => self.below(2) as usize,
            1 => length - 1,
            // Roughly within most heads.
            2 => self.below(length.min(40) as u64) as usize,
            _ => self.below(length as u64) as usize,
        }
    }

    /// How many of `length` bytes arrive, and whether the connection breaks after them.
    pub(super) fn resets_within(&mut self, length: usize) -> (usize, bool) {
        match self.happens(self.network.resets) {
            true => (self.below(length as u64 + 1) as usize, true),
            false => (length, false),
        }
    }

    /// A short pause, or none.
    pub(super) fn short_ns(&mut self) -> u64 {
        self.below(self.network.pause_ns / BEAT_NS + 1) * BEAT_NS
    }

    /// A pause until the next piece goes; `None` if it never does.
    pub(super) fn pause_ns(&mut self) -> Option<u64> {
        if !self.happens(self.network.stalls) {
            return Some(self.short_ns());
        }
        let stall_ns = self.below(STALL_NS / BEAT_NS) * BEAT_NS;
        (self.below(3) > 0).then_some(stall_ns)
    }

    /// Whether a send is reported as done before it goes out.
    pub(super) fn holds_back(&mut self) -> bool {
        match self.network.like {
            Like::Uring => true,
            Like::Epoll => self.below(4) == 0,
        }
    }

    /// Whether the end is reported together with the last bytes.
    pub(super) fn reports_last(&mut self) -> bool {
        self.network.like == Like::Epoll && self.below(2) == 0
    }

    /// Whether a turn takes no more events.
    pub(super) fn ends_turn(&mut self) -> bool {
        self.below(16) == 0
    }

    /// When a wait without events ends: sometimes early.
    pub(super) fn interrupt(&mut self, now_ns: u64, until_ns: u64) -> u64 {
        match self.below(16) {
            0 => now_ns + self.below(until_ns.saturating_sub(now_ns) + 1),
            _ => until_ns,
        }
    }

    /// When a wait ends whose first event comes at `first_ns`: sometimes later, with more events.
    pub(super) fn wakes_at(&mut self, first_ns: u64, wait: Wait) -> u64 {
        if wait.at_least <= 1 {
            return first_ns;
        }
        let within_ns = self.below(wait.within_ns + 1);
        first_ns.saturating_add(within_ns).min(wait.until_ns).max(first_ns)
    }
}
