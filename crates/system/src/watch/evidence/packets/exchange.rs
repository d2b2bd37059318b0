//! When one connection waited for an answer, derived from its segments in a burst.
//!
//! Headers show neither where a request ends nor how many requests a segment holds. What counts is the direction: after
//! data from the client the connection waits, and data from the other end begins an answer. If several requests are sent
//! before an answer comes (HTTP/2, pipelining), the connection waits throughout, and they count as one exchange.

use super::super::rhythm::Waits;
use super::segment::Segment;

/// Segments of one request follow one another within this time. After a longer pause it is another request, or one that
/// is sent slowly: the connection waits from the first segment on.
const ONE_REQUEST_NS: u64 = 1_000_000;
/// A connection without traffic for this many times the longest wait seen on its pair, plus a few ticks of the kernel's
/// clock, is not waiting.
const TIMES_LONGEST: u64 = 4;
const SOME_TICKS_NS: u64 = 20_000_000;

/// What the socket table showed of a connection while the burst was under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// When the table had been read, on the packets' clock.
    pub at_ns: u64,
    /// Whether the client was waiting.
    pub waits: Waits,
    /// How long before that the client had last sent.
    pub since_sent_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No new data seen yet.
    Silent,
    Idle,
    Waits {
        since_ns: u64,
        last_ns: u64,
        /// Whether the request is sent in several parts.
        is_long: bool,
    },
}

/// A watched connection. Times are on the packets' clock, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct PacketConnection {
    from_ns: u64,
    read: Option<Read>,
    state: State,
    busy_ns: u64,
    exchanges: u64,
    longest_ns: u64,
    sent: Sequence,
    came: Sequence,
    ended_ns: Option<u64>,
}

/// What a connection, or all connections of a pair, did while watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExchangeSums {
    /// Time watched.
    pub watched_ns: u64,
    /// Part of `watched_ns` spent waiting for an answer to begin.
    pub busy_ns: u64,
    /// Answers that began.
    pub exchanges: u64,
    /// Time of connections that may or may not have been waiting; included in none of the above.
    pub unknown_ns: u64,
}

impl ExchangeSums {
    pub fn add(&mut self, other: ExchangeSums) {
        self.watched_ns += other.watched_ns;
        self.busy_ns += other.busy_ns;
        self.exchanges += other.exchanges;
        self.unknown_ns += other.unknown_ns;
    }
}

/// The longest recent wait of a pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Longest {
    wait_ns: u64,
    exchanges: u64,
}

impl Longest {
    /// With fewer exchanges than this, nothing is known about how long answers take.
    const MIN_EXCHANGES: u64 = 5;

    pub fn add(&mut self, wait_ns: u64, exchanges: u64) {
        self.wait_ns = self.wait_ns.max(wait_ns);
        self.exchanges += exchanges;
    }

    /// Lets the longest wait fade, so that one stall does not count forever.
    pub fn fade(&mut self) {
        self.wait_ns /= 2;
    }

    /// Silence of at least this long is not a wait.
    fn idle_after_ns(self) -> Option<u64> {
        let known = self.exchanges >= Self::MIN_EXCHANGES;
        known.then(|| self.wait_ns.saturating_mul(TIMES_LONGEST).saturating_add(SOME_TICKS_NS))
    }
}

/// The end of the data seen in one direction. Retransmitted data, or data seen on a second device, is not ahead of it.
#[derive(Clone, Copy, Debug, Default)]
struct Sequence(Option<u32>);

impl Sequence {
    fn advance(&mut self, segment: &Segment) -> bool {
        let end = segment.sequence.wrapping_add(segment.data);
        // Sequence numbers wrap around: half of them are ahead.
        let is_new =
            segment.data > 0 && self.0.is_none_or(|last| end.wrapping_sub(last).wrapping_sub(1) < 1 << 31);
        if is_new {
            self.0 = Some(end);
        }
        is_new
    }
}

impl PacketConnection {
    /// A connection that was established when the socket table was read, watched since `from_ns`.
    pub fn established(from_ns: u64, read: Read) -> PacketConnection {
        PacketConnection { read: Some(read), ..PacketConnection::opened(from_ns) }
    }

    /// A connection that was opened at this time.
    pub fn opened(at_ns: u64) -> PacketConnection {
        PacketConnection {
            from_ns: at_ns,
            read: None,
            state: State::Silent,
            busy_ns: 0,
            exchanges: 0,
            longest_ns: 0,
            sent: Sequence::default(),
            came: Sequence::default(),
            ended_ns: None,
        }
    }

    /// Adds the next segment, from the client or from the other end.
    pub fn add(&mut self, at_ns: u64, is_of_client: bool, segment: &Segment) {
        if self.ended_ns.is_some() {
            return;
        }
        let at_ns = at_ns.max(self.from_ns);
        let direction = if is_of_client { &mut self.sent } else { &mut self.came };
        if direction.advance(segment) {
            match is_of_client {
                true => self.asked(at_ns),
                false => self.answered(at_ns),
            }
        }
        // The client may close its side and still wait for the answer.
        let waits = matches!(self.state, State::Waits { .. });
        if segment.is_reset || (segment.is_last && !(is_of_client && waits)) {
            self.ended_ns = Some(at_ns);
        }
    }

    /// The table's reading, if it was before this moment and showed this state.
    fn was(&self, waits: Waits, at_ns: u64) -> Option<Read> {
        self.read.filter(|read| read.waits == waits && read.at_ns < at_ns)
    }

    fn asked(&mut self, at_ns: u64) {
        self.state = match self.state {
            // It was already waiting when the table was read: this is more of its request, or another one.
            State::Silent if self.was(Waits::Yes, at_ns).is_some() => {
                State::Waits { since_ns: self.from_ns, last_ns: at_ns, is_long: true }
            }
            State::Silent | State::Idle => State::Waits { since_ns: at_ns, last_ns: at_ns, is_long: false },
            State::Waits { last_ns, is_long: false, .. }
                if at_ns.saturating_sub(last_ns) <= ONE_REQUEST_NS =>
            {
                State::Waits { since_ns: at_ns, last_ns: at_ns, is_long: false }
            }
            State::Waits { since_ns, .. } => State::Waits { since_ns, last_ns: at_ns, is_long: true },
        };
    }

    fn answered(&mut self, at_ns: u64) {
        match self.state {
            // The rest of an answer that had already begun, or something unsolicited.
            State::Silent if self.read.is_none() || self.was(Waits::No, at_ns).is_some() => {}
            State::Silent => {
                // The request is older than the burst: the table shows how old, by its coarse clock.
                let read = self.read.filter(|read| read.at_ns < at_ns);
                let waited_ns =
                    read.map_or(0, |read| (at_ns - read.at_ns).saturating_add(read.since_sent_ns));
                self.wait(self.from_ns, at_ns);
                self.longest_ns = self.longest_ns.max(waited_ns);
                self.exchanges += 1;
            }
            State::Waits { since_ns, .. } => {
                self.wait(since_ns, at_ns);
                self.exchanges += 1;
            }
            State::Idle => {}
        }
        self.state = State::Idle;
    }

    fn wait(&mut self, since_ns: u64, at_ns: u64) {
        let waited_ns = at_ns.saturating_sub(since_ns);
        self.busy_ns = self.busy_ns.saturating_add(waited_ns);
        self.longest_ns = self.longest_ns.max(waited_ns);
    }

    /// Ends the burst and adds up what was seen; for a connection without traffic use [`silent`](Self::silent).
    pub fn end(&mut self, until_ns: u64, longest: &mut Longest) -> Option<ExchangeSums> {
        let until_ns = self.until_ns(until_ns);
        let sums = match self.state {
            State::Silent => return None,
            State::Idle => self.sums(until_ns),
            State::Waits { since_ns, .. } => {
                self.wait(since_ns, until_ns);
                self.sums(until_ns)
            }
        };
        longest.add(self.longest_ns, self.exchanges);
        Some(sums)
    }

    /// What a connection without traffic did: what it did when the table was read. If that is unknown, it sent and
    /// received within one tick and has been silent since. Idle connections are silent for long and the others are not,
    /// once it is known how long answers take. Those in between may be either, and count as neither.
    pub fn silent(&self, until_ns: u64, longest: Longest) -> Option<ExchangeSums> {
        let until_ns = self.until_ns(until_ns);
        let mut sums = self.sums(until_ns);
        let Some(read) = self.read else { return Some(sums) };
        match read.waits {
            Waits::Yes => sums.busy_ns = sums.watched_ns,
            Waits::No => {}
            Waits::Unknown => {
                let silence_ns = until_ns.saturating_sub(read.at_ns).saturating_add(read.since_sent_ns);
                if silence_ns <= longest.idle_after_ns()? {
                    return Some(ExchangeSums { unknown_ns: sums.watched_ns, ..ExchangeSums::default() });
                }
            }
        }
        Some(sums)
    }

    fn until_ns(&self, until_ns: u64) -> u64 {
        self.ended_ns.map_or(until_ns, |ended_ns| ended_ns.min(until_ns)).max(self.from_ns)
    }

    fn sums(&self, until_ns: u64) -> ExchangeSums {
        let watched_ns = until_ns - self.from_ns;
        let busy_ns = self.busy_ns.min(watched_ns);
        ExchangeSums { watched_ns, busy_ns, exchanges: self.exchanges, unknown_ns: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::made;
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const BURST: u64 = 40 * MS;

    /// A connection, and the sequence numbers of its two ends.
    struct MadeConnection(PacketConnection, [u32; 2]);

    impl MadeConnection {
        fn established(waits: Waits) -> MadeConnection {
            let read = Read { at_ns: MS, waits, since_sent_ns: 8 * MS };
            MadeConnection(PacketConnection::established(0, read), [u32::MAX - 3, 7])
        }

        /// Ten bytes from the client (`q`) or from the other end (`a`), the same bytes again (`Q`, `A`),
        /// acknowledgements (`.`), and what ends the connection, at these milliseconds.
        fn then(mut self, all: &[(u64, char)]) -> MadeConnection {
            for (at_ms, what) in all {
                let is_of_client = matches!(what, 'q' | 'Q' | 'F' | 'R');
                let at = &mut self.1[usize::from(!is_of_client)];
                let data =
                    if what.is_ascii_alphabetic() && !matches!(what, 'F' | 'f' | 'R') { 10 } else { 0 };
                if matches!(what, 'q' | 'a') {
                    *at = at.wrapping_add(10);
                }
                let ends = ("1.1.1.1:4000".parse().unwrap(), "1.1.1.2:80".parse().unwrap());
                let mut segment = made::segment(ends.0, ends.1, at.wrapping_sub(data), data);
                segment.is_last = matches!(what, 'F' | 'f');
                segment.is_reset = *what == 'R';
                self.0.add(at_ms * MS, is_of_client, &segment);
            }
            self
        }
    }

    /// Milliseconds watched and busy, and exchanges.
    #[track_caller]
    fn check(mut watched: MadeConnection, expect: Option<(u64, u64, u64)>) {
        let mut longest = Longest::default();
        let seen = watched.0.end(BURST, &mut longest).or_else(|| watched.0.silent(BURST, longest));
        assert_eq!(seen.map(|s| (s.watched_ns / MS, s.busy_ns / MS, s.exchanges)), expect);
    }

    #[test]
    fn it_waits_from_the_end_of_a_request_to_the_begin_of_its_answer() {
        use Waits::{No, Unknown};
        let check = |before, all: &[(u64, char)], busy_ms, exchanges| {
            check(MadeConnection::established(before).then(all), Some((40, busy_ms, exchanges)));
        };
        check(No, &[(10, 'q'), (15, 'a'), (30, 'q'), (31, '.'), (33, 'a')], 8, 2);
        check(Unknown, &[(10, 'q'), (15, 'a'), (16, 'a'), (30, 'a')], 5, 1);
        check(Unknown, &[(10, 'q'), (11, 'q'), (12, 'q'), (20, 'a')], 8, 1);
        check(Unknown, &[(10, 'q'), (18, 'Q'), (20, 'a'), (22, 'A'), (23, 'Q')], 10, 1);
        check(Unknown, &[(30, 'q')], 10, 0);
        // Several requests before an answer, and one request that is sent slowly.
        check(Unknown, &[(10, 'q'), (15, 'q'), (15, 'q'), (20, 'a'), (21, 'a')], 10, 1);
    }

    #[test]
    fn what_was_under_way_before_the_burst_counts_for_its_part() {
        use Waits::{No, Unknown, Yes};
        let check = |before, all: &[(u64, char)], busy_ms, exchanges| {
            check(MadeConnection::established(before).then(all), Some((40, busy_ms, exchanges)));
        };
        check(Unknown, &[(30, 'a'), (30, 'q')], 40, 1);
        check(Yes, &[(30, 'a')], 30, 1);
        check(No, &[(30, 'a'), (31, 'a')], 0, 0);
        // The table was read after that answer, and may show this state because of it.
        check(No, &[(1, 'a')], 1, 1);
        check(Yes, &[(1, 'q'), (3, 'a')], 2, 1);
        check(Yes, &[(5, 'q'), (8, 'a')], 8, 1);
    }

    #[test]
    fn where_nothing_moved_the_table_knows_or_age_does() {
        check(MadeConnection::established(Waits::Yes), Some((40, 40, 0)));
        check(MadeConnection::established(Waits::No), Some((40, 0, 0)));
        // Silent for 47 ms.
        let silent = MadeConnection::established(Waits::Unknown);
        let after = |wait_ms: u64, exchanges| {
            let mut longest = Longest::default();
            longest.add(wait_ms * MS, exchanges);
            silent.0.silent(BURST, longest).map(|s| (s.watched_ns / MS, s.busy_ns, s.unknown_ns / MS))
        };
        assert_eq!(after(6, 100), Some((40, 0, 0)), "answers take 6 ms: it is idle");
        assert_eq!(after(7, 100), Some((0, 0, 40)), "it may wait");
        assert_eq!(after(6, 4), None, "who knows how long answers take");
        assert_eq!(after(0, 0), None);
    }

    #[test]
    fn waits_that_began_before_the_burst_are_as_long_as_the_table_says() {
        let mut watched = MadeConnection::established(Waits::Unknown).then(&[(21, 'a')]);
        let mut longest = Longest::default();
        watched.0.end(BURST, &mut longest).unwrap();
        // Sent 8 ms before the reading at 1 ms, answered at 21 ms.
        assert_eq!((longest.wait_ns / MS, longest.exchanges), (28, 1));
    }

    #[test]
    fn connections_open_and_close_during_a_burst() {
        let opened = || MadeConnection(PacketConnection::opened(10 * MS), [0, 0]);
        check(opened().then(&[(11, 'q'), (15, 'a'), (16, 'f'), (17, 'F')]), Some((6, 4, 1)));
        check(opened().then(&[(11, 'a'), (20, 'q'), (25, 'a')]), Some((30, 5, 1)));
        check(opened(), Some((30, 0, 0)));
        check(opened().then(&[(11, 'q'), (12, 'F'), (20, 'a'), (20, 'f')]), Some((10, 9, 1)));
        check(opened().then(&[(11, 'q'), (15, 'R'), (16, 'a')]), Some((5, 4, 0)));
        check(opened().then(&[(11, 'q'), (15, 'f')]), Some((5, 4, 0)));
    }

    proptest! {
        #[test]
        fn sums_are_possible_whatever_is_seen(
            begin_ns in 0..2 * BURST,
            waits in prop_oneof![Just(Waits::Yes), Just(Waits::No), Just(Waits::Unknown)],
            read_ns in any::<u64>(),
            since_sent_ns in any::<u64>(),
            is_established in any::<bool>(),
            seen in proptest::collection::vec(
                (any::<u64>(), 0..50 * MS, any::<bool>(), any::<u32>(), 0u32..70_000, any::<(bool, bool, bool)>()),
                0..60,
            ),
            is_far in any::<bool>(),
        ) {
            let read = Read { at_ns: read_ns, waits, since_sent_ns };
            let mut connection = match is_established {
                true => PacketConnection::established(begin_ns, read),
                false => PacketConnection::opened(begin_ns),
            };
            let ends = ("1.1.1.1:4000".parse().unwrap(), "1.1.1.2:80".parse().unwrap());
            let mut answers = 0;
            for (far_ns, near_ns, is_of_client, sequence, data, (is_last, is_reset, is_opening)) in seen {
                let segment = Segment {
                    is_last: is_last && is_reset,
                    is_reset: is_reset && is_opening && is_last,
                    is_opening,
                    ..made::segment(ends.0, ends.1, sequence, data)
                };
                answers += u64::from(!is_of_client && data > 0);
                connection.add(if is_far { far_ns } else { near_ns }, is_of_client, &segment);
            }
            let mut longest = Longest::default();
            let sums = connection.end(BURST, &mut longest).or_else(|| connection.silent(BURST, longest));
            if let Some(sums) = sums {
                prop_assert!(sums.busy_ns <= sums.watched_ns, "{sums:?}");
                prop_assert!(sums.watched_ns + sums.unknown_ns <= BURST);
                prop_assert!(sums.exchanges <= answers);
            }
        }
    }
}
