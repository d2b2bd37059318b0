//! How many segments a request and its answer take: with that, counts of segments show whether an answer is missing.

use std::collections::BTreeMap;

use super::sockets::Times;

/// Whether the connecting end waits for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waits {
    Yes,
    No,
    /// It sent and received within one tick of the kernel's clock.
    #[default]
    Unknown,
}

/// How many segments a request and its answer take on a pair's connections, if that is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rhythm {
    request: u64,
    answer: u64,
}

impl Rhythm {
    /// From all segments of a pair's connections since they were opened. The few connections that wait blur it by one
    /// exchange each.
    pub fn of(sent: u64, received: u64, connections: u64) -> Option<Rhythm> {
        /// With at least this many exchanges per connection, adjacent numbers of segments can be told apart.
        const MIN_EXCHANGES: u64 = 5;
        const MOST_SEGMENTS: u64 = 4;
        let mut all = (1..=MOST_SEGMENTS)
            .flat_map(|request| (1..=MOST_SEGMENTS).map(move |answer| Rhythm { request, answer }));
        all.find(|r| {
            let (asked, answered) = (sent / r.request, received / r.answer);
            asked >= MIN_EXCHANGES * connections && (answered..=answered + connections + 1).contains(&asked)
        })
    }

    /// Whether a connection waits: all requests are answered, or all but one.
    pub fn waits(self, t: Times) -> Waits {
        let (out, came) = (u64::from(t.segments_out), u64::from(t.segments_in));
        if out == 0 || out % self.request != 0 || came % self.answer != 0 {
            return Waits::Unknown;
        }
        match (out / self.request).checked_sub(came / self.answer) {
            Some(0) => Waits::No,
            Some(1) => Waits::Yes,
            _ => Waits::Unknown,
        }
    }
}

/// How many segments a request and its answer took, from single connections between two readings. Where answers take
/// long, this is known several exchanges earlier than from the sums over all connections.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// How often each combination was seen; exchanges that fit none are in `others`.
    seen: BTreeMap<(u64, u64), u64>,
    others: u64,
}

impl Exchanges {
    /// With this many exchanges, nearly all alike, the next is assumed to be like them.
    const MIN_EXCHANGES: u64 = 5;
    const ALIKE_PERCENT: u64 = 90;
    const MOST_KINDS: usize = 16;

    /// Adds what a connection that had been answered before exchanged since it was last read. If it is in the same
    /// state as then, waiting or not, these are whole exchanges. If the state has changed, they match no others.
    pub fn add(&mut self, exchanged: Exchanged) {
        let Exchanged { request, sent, received } = exchanged;
        let answer =
            (received * request).checked_div(sent).filter(|a| *a > 0 && a * sent == received * request);
        let Some(answer) = answer.filter(|_| sent.is_multiple_of(request)) else {
            self.others += 1;
            return;
        };
        let kind = (request, answer);
        match self.seen.contains_key(&kind) || self.seen.len() < Self::MOST_KINDS {
            true => *self.seen.entry(kind).or_default() += 1,
            false => self.others += 1,
        }
    }

    /// How many segments each takes, if enough exchanges agree.
    pub fn rhythm(&self) -> Option<Rhythm> {
        let all = self.others + self.seen.values().sum::<u64>();
        let ((request, answer), most) = self.seen.iter().max_by_key(|(_, n)| **n)?;
        let is_sure = *most >= Self::MIN_EXCHANGES && most * 100 >= all * Self::ALIKE_PERCENT;
        is_sure.then_some(Rhythm { request: *request, answer: *answer })
    }
}

/// Segments that a connection exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchanged {
    /// Of its first request.
    pub request: u64,
    /// Sent since the last reading.
    pub sent: u64,
    /// Received since then.
    pub received: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rhythm_shows_which_connections_await_an_answer() {
        // Ten connections, 28 exchanges each, of one segment there and two back; nine of ten wait.
        let rhythm = Rhythm::of(10 * 28 + 9, 10 * 56, 10).unwrap();
        assert_eq!(rhythm, Rhythm { request: 1, answer: 2 });
        let of =
            |segments_out, segments_in| rhythm.waits(Times { segments_out, segments_in, ..Times::default() });
        assert_eq!((of(28, 56), of(29, 56)), (Waits::No, Waits::Yes));
        assert_eq!((of(29, 57), of(31, 56), of(0, 0)), (Waits::Unknown, Waits::Unknown, Waits::Unknown));
        // Too few exchanges to be sure; answers of varying length; more answers than requests.
        assert_eq!(Rhythm::of(30, 60, 10), None);
        assert_eq!(Rhythm::of(280, 1711, 10), None);
    }

    #[test]
    fn a_few_slow_exchanges_show_what_one_takes() {
        let rhythm = |all: &[(u64, u64, u64)]| {
            let mut exchanges = Exchanges::default();
            for &(request, sent, received) in all {
                exchanges.add(Exchanged { request, sent, received });
            }
            exchanges.rhythm().map(|r| (r.request, r.answer))
        };
        assert_eq!(rhythm(&[(1, 1, 1); 5]), Some((1, 1)));
        assert_eq!(rhythm(&[(1, 1, 2), (1, 1, 2), (1, 3, 6), (1, 2, 4), (1, 1, 2)]), Some((1, 2)));
        assert_eq!(rhythm(&[(2, 2, 1); 5]), Some((2, 1)));
        assert_eq!(rhythm(&[(1, 1, 1); 4]), None, "too few");
        // A connection that waited no longer does when it is read again: two answers to one request, and vice versa.
        let mixed = [[(1, 1, 2); 5], [(1, 2, 1); 5]].concat();
        assert_eq!(rhythm(&mixed), None);
        assert_eq!(rhythm(&[[(1, 1, 1); 9].as_slice(), &[(1, 1, 2)]].concat()), Some((1, 1)));
        // Answers of varying length, and requests unlike the first.
        assert_eq!(rhythm(&(1..40).map(|n| (1, 1, n)).collect::<Vec<_>>()), None);
        assert_eq!(rhythm(&[(2, 3, 3); 5]), None);
    }
}
