//! What readings of a connection's two sockets show: whether its client waits for an answer, and what is on its way.

use std::cmp::Ordering;

use super::rhythm::{Exchanged, Rhythm, Waits};
use super::sockets::Socket;

/// A connection as of its last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Connection {
    /// Bytes the connecting end wrote.
    pub written: u64,
    /// Bytes the connecting end received.
    pub received: u64,
    pub waits: Waits,
    /// Segments retransmitted by either end.
    pub resent: u64,
    /// Segments with data that the connecting end sent and received.
    pub sent: u64,
    pub came: u64,
    /// How many segments its first request took, if it was read before the answer came.
    pub first_request: Option<u64>,
}

impl Connection {
    /// What this connection exchanged since the last reading, if it had been answered before and its first request was
    /// seen.
    pub fn exchanged(&self, now: &Connection) -> Option<Exchanged> {
        let request = self.first_request.filter(|_| self.received > 0 && now.resent == 0)?;
        let (sent, received) = (now.sent.checked_sub(self.sent)?, now.came.checked_sub(self.came)?);
        (sent > 0 && received > 0).then_some(Exchanged { request, sent, received })
    }

    /// The state that follows from this one, given the bytes written and received by now.
    fn then(self, written: u64, received: u64) -> Waits {
        match (written == self.written, received == self.received) {
            (true, true) => self.waits,
            (false, true) => Waits::Yes,
            (true, false) => Waits::No,
            (false, false) => Waits::Unknown,
        }
    }
}

/// What one reading shows of a connection. `client` connected, `other` accepted, if it was seen. The evidence, most
/// reliable first: bytes that were not read or did not arrive; bytes that were not acknowledged, since acknowledgements
/// wait up to some 40 ms for the answer, or for the next request; the times of the last bytes either way, unless they
/// are within one tick; whether there were as many answers as requests, counted in segments; and the state at the last
/// reading of this connection.
pub(super) fn waits(
    client: &Socket,
    other: Option<&Socket>,
    rhythm: Option<Rhythm>,
    last: Option<Connection>,
) -> Waits {
    let t = client.times;
    let (written, received) = (written(client), t.bytes_received);
    if client.is_connecting {
        return Waits::Yes;
    }
    if written == 0 {
        return Waits::No;
    }
    let is_unread = other.is_some_and(|other| other.unread > 0);
    if received == 0
        || is_unread
        || is_under_way(client, other)
        || is_held(client, other)
        || other.is_some_and(|o| is_under_way(o, Some(client)) || is_held(o, Some(client)))
    {
        return Waits::Yes;
    }
    match (client.unsent > 0, other.is_some_and(|o| o.unsent > 0)) {
        (true, false) if other.is_some() => return Waits::Yes,
        (false, true) => return Waits::No,
        _ => {}
    }
    match t.since_sent_ms.cmp(&t.since_received_ms) {
        Ordering::Less => Waits::Yes,
        Ordering::Greater => Waits::No,
        // The other end saw the same bytes a moment earlier or later, perhaps in another tick.
        Ordering::Equal => match other.map(|o| o.times.since_received_ms.cmp(&o.times.since_sent_ms)) {
            Some(Ordering::Less) => Waits::Yes,
            Some(Ordering::Greater) => Waits::No,
            _ => match rhythm.map_or(Waits::Unknown, |rhythm| rhythm.waits(t)) {
                Waits::Unknown => last.map_or(Waits::Unknown, |last| last.then(written, received)),
                known => known,
            },
        },
    }
}

/// Segments of a first request that has arrived and is not answered yet.
pub(super) fn first_request(client: &Socket) -> Option<u64> {
    let t = client.times;
    let has_arrived = t.bytes_received == 0 && client.unsent == 0;
    (has_arrived && t.segments_out > 0).then(|| t.segments_out.into())
}

/// Bytes that an end wrote. The handshake counts as one acknowledged byte.
pub(super) fn written(socket: &Socket) -> u64 {
    (socket.times.bytes_acked + u64::from(socket.unsent)).saturating_sub(1)
}

/// Whether bytes that one end wrote have not reached the other, which has read everything that arrived. Reading all
/// sockets takes a fraction of a millisecond: if the other end was read first, the bytes must be older than that.
pub(super) fn is_under_way(from: &Socket, to: Option<&Socket>) -> bool {
    let Some(to) = to.filter(|to| to.unread == 0) else { return false };
    let is_seen_in_order = from.place <= to.place || from.times.since_sent_ms > 0;
    is_seen_in_order && from.unsent > 0 && to.times.bytes_received < written(from) && !is_held(from, Some(to))
}

/// Whether less than a segment is held back by its writer although everything it sent has arrived and been read: it
/// waits for an acknowledgement first (Nagle), and the other end delays that.
pub(super) fn is_held(from: &Socket, to: Option<&Socket>) -> bool {
    let (not_sent, sent) = (from.times.not_sent, written(from).saturating_sub(from.times.not_sent.into()));
    let is_small = not_sent > 0 && not_sent < from.times.segment_bytes;
    is_small && to.is_some_and(|to| to.unread == 0 && to.times.bytes_received >= sent)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sockets::Times;
    use super::*;

    /// One end of a connection.
    pub fn end(sent_ms: u32, received_ms: u32, written: u64, received: u64) -> Socket {
        let at = "127.0.0.1:1".parse().unwrap();
        let times = Times {
            since_sent_ms: sent_ms,
            since_received_ms: received_ms,
            // The handshake counts as one byte.
            bytes_acked: written + 1,
            bytes_received: received,
            ..Times::default()
        };
        Socket {
            is_listener: false,
            is_connecting: false,
            place: 0,
            local: at,
            remote: at,
            inode: 7,
            unread: 0,
            unsent: 0,
            drops: 0,
            times,
        }
    }

    #[test]
    fn who_sent_last_waits() {
        use Waits::{No, Unknown, Yes};
        let answered = |sent, received| Some(end(sent, received, 50, 10));
        let check =
            |client: Socket, other: Option<Socket>, last: Option<Connection>, expect: Waits, what: &str| {
                assert_eq!(waits(&client, other.as_ref(), None, last), expect, "{what}");
            };
        check(end(4, 100, 10, 50), None, None, Yes, "sent 4 ms ago, received 100 ms ago");
        check(end(100, 4, 10, 50), None, None, No, "received last");
        check(end(900, 900, 0, 0), None, None, No, "a pool's connection that was never used");
        check(end(8, 8, 10, 0), None, None, Yes, "asked, and never answered");
        check(end(8, 8, 10, 50), answered(8, 8), None, Unknown, "a tie at both ends");
        check(end(8, 8, 10, 50), answered(12, 8), None, Yes, "the other end received after it sent");
        check(end(8, 8, 10, 50), answered(8, 12), None, No, "the other end sent after it received");
        let unread = Socket { unread: 10, ..end(8, 8, 50, 0) };
        check(end(8, 8, 10, 50), Some(unread), None, Yes, "the question was not read");
        let acked = |client: u32, other: u32| {
            (
                Socket { unsent: client, ..end(8, 8, 10, 50) },
                Some(Socket { unsent: other, ..end(8, 8, 50, 10 + u64::from(client)) }),
            )
        };
        let (client, other) = acked(10, 0);
        check(client, other, None, Yes, "the question waits for its acknowledgement");
        let last =
            |written, received, waits| Some(Connection { written, received, waits, ..Connection::default() });
        check(end(8, 8, 10, 50), None, last(10, 50, Yes), Yes, "nothing has changed");
        check(end(8, 8, 10, 50), None, last(0, 50, No), Yes, "it has asked since");
        check(end(8, 8, 10, 50), None, last(10, 0, Yes), No, "it was answered since");
        check(end(8, 8, 10, 50), None, last(0, 0, No), Unknown, "both");
    }

    #[test]
    fn bytes_under_way_are_waited_for() {
        // Ten bytes were written, and four have arrived.
        let client = Socket { unsent: 10, ..end(8, 8, 0, 50) };
        let other = end(8, 8, 50, 4);
        assert!(is_under_way(&client, Some(&other)));
        assert_eq!(waits(&client, Some(&other), None, None), Waits::Yes);
        assert!(!is_under_way(&client, Some(&end(8, 8, 50, 10))));
        // Bytes that arrived but were not read are not in flight.
        assert!(!is_under_way(&client, Some(&Socket { unread: 4, ..other.clone() })));
        // Written just now, after the other end was read.
        let quick = Socket { unsent: 10, place: 9, ..end(0, 8, 0, 50) };
        assert!(
            !is_under_way(&quick, Some(&other)) && is_under_way(&Socket { place: 0, ..quick }, Some(&other))
        );
    }

    #[test]
    fn exchanges_are_counted_from_the_second_answer_on() {
        let at = |received, sent, came| Connection { received, sent, came, ..Connection::default() };
        let first = Connection { first_request: Some(1), ..at(50, 2, 1) };
        let expect = Exchanged { request: 1, sent: 1, received: 1 };
        assert_eq!(first.exchanged(&at(100, 3, 2)), Some(expect));
        // Only one of the two has changed; something was retransmitted; the first request was not seen, or is the last.
        assert_eq!(first.exchanged(&at(50, 3, 1)), None);
        assert_eq!(first.exchanged(&Connection { resent: 1, ..at(100, 3, 2) }), None);
        assert_eq!(at(50, 2, 1).exchanged(&at(100, 3, 2)), None);
        assert_eq!(Connection { first_request: Some(1), ..at(0, 1, 0) }.exchanged(&at(100, 3, 2)), None);
    }
}
