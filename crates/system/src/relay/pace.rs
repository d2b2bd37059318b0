//! When a packet may be forwarded, and which are lost: pure arithmetic on a given clock.

use super::LinkShape;

/// Linux's minimum wait before TCP retransmits unacknowledged data (`TCP_RTO_MIN`).
const RETRANSMIT_NS: u64 = 200_000_000;
/// Bytes of a stream in one packet.
const SEGMENT_BYTES: usize = 1448;

/// One direction of a link or of a connection, in which nothing is reordered.
#[derive(Debug, Default)]
pub(super) struct Fifo {
    last_due_ns: u64,
}

impl Fifo {
    /// Nothing may be forwarded before this time.
    pub fn not_before(ns: u64) -> Fifo {
        Fifo { last_due_ns: ns }
    }
}

/// Decides delay and loss for one relay.
#[derive(Debug)]
pub(super) struct Pace {
    pub shape: LinkShape,
    random: u64,
}

impl Pace {
    pub fn new(shape: LinkShape) -> Pace {
        Pace { shape, random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// When something that arrives now may be forwarded: at least half the delay later, apart from the jitter.
    pub fn due(&mut self, order: &mut Fifo, now_ns: u64) -> u64 {
        let LinkShape { delay_ns, jitter_ns, .. } = self.shape;
        // Round up: the two halves are never less than the whole.
        let half_ns = delay_ns.div_ceil(2);
        let spread_ns = jitter_ns / 2;
        let varied_ns = match spread_ns {
            0 => half_ns,
            _ => half_ns.saturating_sub(spread_ns) + self.next() % (2 * spread_ns + 1),
        };
        order.last_due_ns = order.last_due_ns.max(now_ns + varied_ns);
        order.last_due_ns
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        // 53 bits: a number from 0 to just below 1.
        self.shape.loss > 0.0 && ((self.next() >> 11) as f64) < self.shape.loss * (1u64 << 53) as f64
    }

    /// As [`Pace::due`], for a piece of a stream, which must not be lost: if one of its packets would have been, the
    /// piece and all behind it arrive when that packet would have been retransmitted. Also returns whether that is so.
    pub fn due_in_stream(&mut self, order: &mut Fifo, now_ns: u64, bytes: usize) -> (u64, bool) {
        let due_ns = self.due(order, now_ns);
        let packets = bytes.div_ceil(SEGMENT_BYTES);
        let is_lost = (0..packets).filter(|_| self.loses()).count() > 0;
        if is_lost {
            order.last_due_ns = due_ns + RETRANSMIT_NS + self.shape.delay_ns;
        }
        (order.last_due_ns, is_lost)
    }

    /// Xorshift: good enough to choose which packets are lost.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(delay_ns: u64, jitter_ns: u64, loss: f64) -> Pace {
        Pace::new(LinkShape { delay_ns, jitter_ns, loss })
    }

    #[test]
    fn two_ways_are_the_delay_at_least() {
        for delay_ns in [0, 1, 7, 40_000_000] {
            let mut pace = pace(delay_ns, 0, 0.0);
            let there = pace.due(&mut Fifo::default(), 100);
            let back = pace.due(&mut Fifo::default(), there);
            assert!(back - 100 >= delay_ns && back - 100 <= delay_ns + 1, "{delay_ns}: {back}");
        }
    }

    #[test]
    fn jitter_is_spread_and_nothing_overtakes() {
        let mut pace = pace(10_000, 4_000, 0.0);
        let (mut order, mut last_ns, mut delays) = (Fifo::default(), 0, Vec::new());
        for i in 0..2000u64 {
            // Far enough apart that none waits for its predecessor.
            let now_ns = i * 20_000;
            let due_ns = pace.due(&mut order, now_ns);
            assert!(due_ns >= last_ns);
            last_ns = due_ns;
            delays.push(due_ns - now_ns);
        }
        let (low, high) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!((3_000..3_100).contains(low) && (6_900..=7_000).contains(high), "{low} to {high}");
        let mut order = Fifo::default();
        let together: Vec<u64> = (0..100).map(|_| pace.due(&mut order, 5)).collect();
        assert!(together.is_sorted());
    }

    #[test]
    fn the_share_is_lost_that_was_asked_for() {
        assert!(!(0..1000).any(|_| pace(0, 0, 0.0).loses()));
        let mut pace = pace(0, 0, 0.1);
        let lost = (0..100_000).filter(|_| pace.loses()).count();
        assert!((9_500..10_500).contains(&lost), "{lost}");
    }

    #[test]
    fn a_lost_piece_of_a_stream_comes_late_with_all_behind_it() {
        let mut pace = pace(40_000_000, 0, 0.999_999);
        let mut order = Fifo::default();
        assert_eq!(pace.due_in_stream(&mut order, 0, 10), (260_000_000, true));
        pace.shape.loss = 0.0;
        assert_eq!(pace.due_in_stream(&mut order, 1, 10), (260_000_000, false));
        assert_eq!(pace.due_in_stream(&mut Fifo::not_before(7), 1, 10), (20_000_001, false));
        assert_eq!(pace.due_in_stream(&mut Fifo::not_before(90_000_000), 1, 10), (90_000_000, false));
    }
}
