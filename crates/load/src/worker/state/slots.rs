//! Slots: requests in flight, or room for them, with their timeouts and the beginnings of their responses.
//!
//! A load may have a million slots, so a slot holds what every request needs. What only some need is elsewhere: the
//! reader of a response that arrives in pieces, the beginning of one for the examples, the id that a request carries.

use loadlab_record::counts::example::RESPONSE_BYTES;

use crate::journey::failure::StepFailure;
use crate::journey::response::BufferedResponse;
use crate::journey::users::Users;
use crate::measure::examples::end_of_head;
use crate::protocol::http1::{Fed, Http1Error, Memo, Reader};
use crate::spec::request::Request;
use crate::worker::state::SlotId;
use crate::worker::state::timeouts::{DeadlineLink, DeadlineLinks, Deadlines, Expiry};

/// Most beginnings of responses kept at one time, in case they turn out slow or failed.
const STASHES: usize = 256;

/// Value of `unsent` once a request has more bytes left than fit into it: they are no longer counted, and its connection
/// is not used again.
const UNCOUNTED: u32 = u32::MAX;

/// A fact about a slot's request: a bit of [`Exchange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fact {
    /// The request is in flight.
    UnderWay = 1 << 0,
    /// It was sent before, on a connection that turned out to be closed.
    Resent = 1 << 1,
    /// At least one byte of its response has arrived.
    HasResponseBytes = 1 << 2,
    /// Some of its bytes have gone out.
    PartlySent = 1 << 3,
    /// It gets `buffered` only when its response arrives.
    LateBuffer = 1 << 4,
    /// It has been written and carries an id, which its user knows.
    HasId = 1 << 5,
    /// The beginning of its response is kept.
    HasStash = 1 << 6,
}

/// A slot: a request in flight, or room for one. In the closed model it is a user.
#[derive(Debug)]
pub struct Exchange {
    /// Its connection, or [`NONE`] while nothing is in flight and connections are shared.
    pub conn: u32,
    /// Index of the request.
    pub request: u32,
    /// Its place in the lists of deadlines.
    deadline_link: DeadlineLink,
    /// Each [`Fact`] that is true.
    facts: u8,
    /// Status of its response once known, otherwise 0.
    pub status: u16,
    /// Bytes of the request that have not gone out; [`UNCOUNTED`] stays as it is.
    unsent: u32,
    /// When the request fell due; times are on the load's clock.
    pub due_ns: u64,
    /// When its first action began.
    pub started_ns: u64,
    /// Number of requests begun or dropped in this slot.
    pub begun: u64,
    /// Reader of the response, once part of it has arrived: most arrive in one piece and need none.
    reader: Option<Box<Reader>>,
    /// The whole response, if it is judged by more than its status.
    pub buffered: Option<Box<BufferedResponse>>,
}

/// Requests of a paced user that were due, besides the one in flight.
#[derive(Debug, Default)]
pub struct Paced {
    /// When the last request fell due that the user began, dropped or skipped while nothing waited. The request in
    /// flight may be another one: a redirected one, or one the user sends when it leaves.
    pub due_ns: u64,
    /// Later times at which nothing fell due, since the waiting requests were all the user had to do, in order.
    pub skipped: Vec<SkippedRun>,
    /// Number of requests that fell due while the user was busy with an earlier one, and wait for it.
    pub waiting: u64,
}

/// Consecutive times of a paced user's schedule at which nothing fell due.
#[derive(Clone, Copy, Debug)]
pub struct SkippedRun {
    /// The first of them.
    pub first_ns: u64,
    /// The last of them.
    pub last_ns: u64,
}

/// An exchange whose request could not be written, and why. It is identified by its request and start: the slot may be
/// at another request when this is reported.
#[derive(Debug)]
pub struct Unwritten {
    /// The exchange's slot.
    pub id: SlotId,
    /// Index of its request.
    pub request: u32,
    /// When it started.
    pub started_ns: u64,
    /// Why it could not be written.
    pub failure: StepFailure,
}

/// Beginning of a response.
#[derive(Debug, Default)]
pub struct Stash {
    slot: u32,
    /// Head and body as received, up to what examples keep.
    pub bytes: Vec<u8>,
    /// Offset of the head's end, if the head is complete.
    pub head_end: Option<usize>,
}

impl Exchange {
    /// A free slot.
    pub fn new(conn: u32) -> Self {
        Exchange {
            conn,
            request: 0,
            deadline_link: DeadlineLink::default(),
            facts: 0,
            status: 0,
            unsent: 0,
            due_ns: 0,
            started_ns: 0,
            begun: 0,
            reader: None,
            buffered: None,
        }
    }

    /// Begins a request; the caller enters it in the timeouts.
    #[inline]
    fn begin(&mut self, request: u32, due_ns: u64, started_ns: u64) {
        self.request = request;
        self.due_ns = due_ns;
        self.started_ns = started_ns;
        self.facts = Fact::UnderWay as u8;
        self.status = 0;
    }

    /// Whether a fact is true.
    #[inline]
    pub fn is(&self, fact: Fact) -> bool {
        self.facts & fact as u8 != 0
    }

    /// Sets whether a fact is true.
    #[inline]
    pub fn set(&mut self, fact: Fact, is_true: bool) {
        self.facts = if is_true { self.facts | fact as u8 } else { self.facts & !(fact as u8) };
    }

    /// Records that a request of this length is being sent, and how much of it has gone out.
    #[inline]
    pub fn begin_sending(&mut self, length: usize, sent: usize) {
        self.unsent = u32::try_from(length - sent).unwrap_or(UNCOUNTED);
        self.set(Fact::PartlySent, sent > 0);
    }

    /// Records that more of the request has gone out.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        if self.unsent != UNCOUNTED {
            self.unsent = self.unsent.saturating_sub(u32::try_from(bytes).unwrap_or(UNCOUNTED));
        }
        self.set(Fact::PartlySent, self.is(Fact::PartlySent) || bytes > 0);
    }

    /// Whether all of the request has gone out.
    #[inline]
    pub fn is_sent(&self) -> bool {
        self.unsent == 0
    }

    /// Whether the response is complete if its connection ends now.
    pub fn ends_with_connection(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.ends_with_connection())
    }

    /// Provides the buffer that the request was sent without.
    #[cold]
    pub fn provide_late_buffer(&mut self, user: u32, journey: &mut Option<Users<'_>>) {
        self.set(Fact::LateBuffer, false);
        self.buffered = journey.as_mut().map(|journey| journey.late_buffer(user, self.request));
    }

    /// Whether the request may be sent again after it was sent on an idle connection that was being closed. A request
    /// that the server may have read is resent only if it is safe to repeat, as browsers do (RFC 9110 §9.2.2).
    pub fn may_resend(&self, request: &Request, unread: bool) -> bool {
        !self.is(Fact::HasResponseBytes) && !self.is(Fact::Resent) && (unread || request.safe)
    }

    /// Records that the current request could not be written.
    pub fn unwritten(&self, id: SlotId, failure: StepFailure) -> Unwritten {
        Unwritten { id, request: self.request, started_ns: self.started_ns, failure }
    }
}

/// The slots of one load thread.
pub struct Slots {
    /// Slots by number.
    pub exchanges: Vec<Exchange>,
    /// For paced users: what else each of them has to send.
    pub paced: Vec<Paced>,
    /// Deadlines of the requests in flight.
    timeouts: Deadlines,
    /// Requests that could not be written, to be failed in the next turn.
    pub unwritten: Vec<Unwritten>,
    /// Moving average of service times, nanoseconds.
    pub service_ns: u64,
    /// What the HTTP/1 readers remember of the last response head.
    memo: Memo,
    /// Reads responses that arrive in one piece.
    reader: Reader,
    #[expect(clippy::vec_box, reason = "they move into exchanges and back")]
    spare_readers: Vec<Box<Reader>>,
    stashes: Vec<Stash>,
    spare_stashes: Vec<Stash>,
}

impl Slots {
    /// These slots, all free.
    pub fn new(exchanges: Vec<Exchange>, is_paced: bool) -> Self {
        let paced = if is_paced { exchanges.len() } else { 0 };
        Slots {
            exchanges,
            paced: (0..paced).map(|_| Paced::default()).collect(),
            timeouts: Deadlines::new(),
            unwritten: Vec::new(),
            service_ns: 0,
            memo: Memo::default(),
            reader: Reader::default(),
            spare_readers: Vec::new(),
            stashes: Vec::new(),
            spare_stashes: Vec::new(),
        }
    }

    /// Begins a request in a slot, with its timeout.
    #[inline]
    pub fn begin(&mut self, id: SlotId, request: u32, due_ns: u64, started_ns: u64, timeout_ns: u64) {
        self.exchanges[id as usize].begin(request, due_ns, started_ns);
        self.timeouts.push(&mut self.exchanges, id, timeout_ns);
    }

    /// Ends the request in a slot.
    #[inline]
    pub fn end(&mut self, id: SlotId, now_ns: u64) {
        self.timeouts.remove(&mut self.exchanges, id);
        let exchange = &mut self.exchanges[id as usize];
        self.spare_readers.extend(exchange.reader.take());
        exchange.set(Fact::UnderWay, false);
        self.service_ns = self.service_ns - self.service_ns / 64 + (now_ns - exchange.started_ns) / 64;
    }

    /// The slot whose request times out first.
    #[inline]
    pub fn first_timeout(&self) -> Option<Expiry> {
        self.timeouts.first(&self.exchanges)
    }

    /// Reads bytes of the response to a slot's request; `no_body`: that was a HEAD.
    #[inline]
    pub fn feed(&mut self, id: SlotId, bytes: &[u8], no_body: bool) -> Result<Fed, Http1Error> {
        let exchange = &mut self.exchanges[id as usize];
        let reader = match &mut exchange.reader {
            Some(own) => &mut **own,
            None => {
                self.reader.reset();
                &mut self.reader
            }
        };
        let fed = match &mut exchange.buffered {
            None => reader.feed(bytes, no_body, &mut self.memo),
            Some(kept) => reader.feed_to(bytes, no_body, &mut self.memo, &mut **kept),
        };
        exchange.status = reader.head().map_or(0, |head| head.status);
        if exchange.reader.is_none() && fed.is_ok_and(|fed| !fed.done) {
            let mut own = self.spare_readers.pop().unwrap_or_default();
            std::mem::swap(&mut *own, &mut self.reader);
            exchange.reader = Some(own);
        }
        fed
    }

    /// The beginning of a slot's response, if it is kept.
    #[inline]
    pub fn stash_of(&mut self, id: SlotId) -> Option<&mut Stash> {
        if !self.exchanges[id as usize].is(Fact::HasStash) {
            return None;
        }
        self.stashes.iter_mut().find(|stash| stash.slot == id)
    }

    /// Keeps the beginning of a response that arrives in pieces.
    pub fn stash(&mut self, id: SlotId, bytes: &[u8], head_end: Option<usize>) {
        let Some(stash) = self.reserve_stash(id) else { return };
        if stash.bytes.is_empty() {
            stash.head_end = head_end;
        }
        let room = RESPONSE_BYTES.saturating_sub(stash.bytes.len());
        if room == 0 {
            return;
        }
        stash.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if stash.head_end.is_none() {
            stash.head_end = end_of_head(&stash.bytes);
        }
    }

    /// Gives a slot a stash, unless the maximum is in use.
    pub fn reserve_stash(&mut self, id: SlotId) -> Option<&mut Stash> {
        let exchange = &mut self.exchanges[id as usize];
        if !exchange.is(Fact::HasStash) && self.stashes.len() < STASHES {
            exchange.set(Fact::HasStash, true);
            let spare = self.spare_stashes.pop().unwrap_or_default();
            self.stashes.push(Stash { slot: id, ..spare });
        }
        self.stash_of(id)
    }

    /// Takes a slot's stash, which goes back with [`Slots::give_back_stash`].
    pub fn take_stash(&mut self, id: SlotId) -> Option<Stash> {
        let exchange = &mut self.exchanges[id as usize];
        if !exchange.is(Fact::HasStash) {
            return None;
        }
        exchange.set(Fact::HasStash, false);
        let at = self.stashes.iter().position(|stash| stash.slot == id)?;
        Some(self.stashes.swap_remove(at))
    }

    /// Takes back a stash.
    pub fn give_back_stash(&mut self, mut stash: Stash) {
        stash.bytes.clear();
        stash.head_end = None;
        self.spare_stashes.push(stash);
    }

    /// Takes back a slot's stash.
    #[inline]
    pub fn unstash(&mut self, id: SlotId) {
        if let Some(stash) = self.take_stash(id) {
            self.give_back_stash(stash);
        }
    }
}

impl DeadlineLinks for Vec<Exchange> {
    #[inline]
    fn link(&mut self, id: SlotId) -> &mut DeadlineLink {
        &mut self[id as usize].deadline_link
    }

    #[inline]
    fn started_ns(&self, id: SlotId) -> u64 {
        self[id as usize].started_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_arrive_in_pieces_at_the_same_time_do_not_mix() {
        let mut slots = Slots::new((0..3).map(Exchange::new).collect(), false);
        (0..3).for_each(|id| slots.begin(id, 0, 0, 0, 1000));
        let mut feed = |id: SlotId, bytes: &[u8]| {
            let fed = slots.feed(id, bytes, false);
            let exchange = &slots.exchanges[id as usize];
            let (status, ends) = (exchange.status, exchange.ends_with_connection());
            fed.map(|fed| (fed.done, fed.used, status, ends)).map_err(|error| error.describe())
        };
        assert_eq!(feed(0, b"HTTP/1.1 200 OK\r\nConte"), Ok((false, 22, 0, false)));
        assert_eq!(feed(1, b"HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\nab"), Ok((false, 40, 404, false)));
        // This one arrives whole, in between.
        assert_eq!(feed(2, b"HTTP/1.1 204 No\r\n\r\n"), Ok((true, 19, 204, false)));
        assert_eq!(feed(0, b"nt-Length: 3\r\n\r\nab"), Ok((false, 18, 200, false)));
        assert_eq!(feed(2, b"HTTP/1.1 500 No\r\n\r\nab"), Ok((false, 21, 500, true)));
        assert_eq!(feed(1, b"cd, and more"), Ok((true, 2, 404, false)));
        assert_eq!(feed(0, b"c"), Ok((true, 1, 200, false)));
        assert!(feed(2, b"cd").is_ok_and(|(done, ..)| !done));
        // A slot's next response begins anew, whatever became of the last one.
        (0..3).for_each(|id| slots.end(id, 5));
        (0..3).for_each(|id| slots.begin(id, 0, 0, 0, 1000));
        for id in 0..3 {
            let fed = slots.feed(id, b"HTTP/1.1 201 Yes\r\nContent-Length: 0\r\n\r\n", false);
            assert!(fed.is_ok_and(|fed| fed.done), "{id}");
            assert_eq!(slots.exchanges[id as usize].status, 201);
        }
        assert!(slots.exchanges.iter().all(|exchange| exchange.reader.is_none()));
    }

    #[test]
    fn the_beginning_of_a_response_is_kept_for_its_slot() {
        let mut slots = Slots::new((0..600).map(Exchange::new).collect(), false);
        (0..600).for_each(|id| slots.stash(id, format!("HTTP/1.1 2{id}\r\n\r\n").as_bytes(), None));
        let kept = |slots: &mut Slots, id| {
            let stash = slots.stash_of(id).map(|stash| (stash.bytes.clone(), stash.head_end));
            stash.map(|(bytes, head_end)| (String::from_utf8(bytes).expect("text"), head_end))
        };
        assert_eq!(kept(&mut slots, 7), Some(("HTTP/1.1 27\r\n\r\n".to_owned(), Some(15))));
        assert_eq!(kept(&mut slots, 255).map(|(_, end)| end), Some(Some(17)));
        assert_eq!(kept(&mut slots, 256), None, "no more than a maximum are kept");
        slots.unstash(7);
        slots.unstash(256);
        assert_eq!(kept(&mut slots, 7), None);
        slots.stash(256, b"HTTP/1.1 200 OK\r\n", Some(3));
        assert_eq!(kept(&mut slots, 256), Some(("HTTP/1.1 200 OK\r\n".to_owned(), Some(3))));
        assert_eq!(kept(&mut slots, 255).map(|(_, end)| end), Some(Some(17)), "the others stay");
    }

    /// A load may have a million of them.
    #[test]
    fn a_slot_is_as_long_as_a_cache_line() {
        assert_eq!(std::mem::size_of::<Exchange>(), 64);
    }
}
