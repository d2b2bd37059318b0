//! Slots: requests in flight, or room for them, with their timeouts and the beginnings of their responses.

use loadlab_record::counts::example::{BODY_BYTES, HEAD_BYTES};

use crate::journey::failure::StepFailure;
use crate::journey::response::BufferedResponse;
use crate::journey::users::Users;
use crate::measure::examples::end_of_head;
use crate::protocol::http1::{Memo, Reader};
use crate::spec::request::Request;
use crate::worker::state::timeouts::{DeadlineLink, DeadlineLinks, Deadlines};

/// Most beginnings of responses kept at one time, in case they turn out slow or failed.
const STASHES: usize = 256;

/// A slot: a request in flight, or room for one. In the closed model it is a user.
#[derive(Debug)]
pub struct Exchange {
    /// Its connection, or [`NONE`] while nothing is in flight and connections are shared.
    pub conn: u32,
    /// Index of the request.
    pub request: u32,
    /// Whether the request is in flight.
    pub under_way: bool,
    /// Whether it was sent before, on a connection that turned out to be closed.
    pub resent: bool,
    /// Whether at least one byte of its response has arrived.
    pub has_response_bytes: bool,
    /// Status of its response, where the reader does not know it.
    pub status: u16,
    /// Whether some of its bytes have gone out.
    pub is_partly_sent: bool,
    /// Whether it gets `buffered` only when its response arrives.
    pub has_late_buffer: bool,
    /// Whether it carries an id, and has been written.
    has_id: bool,
    id: u64,
    /// Bytes of the request that have not gone out.
    pub unsent: usize,
    /// When the request fell due; times are on the load's clock.
    pub due_ns: u64,
    /// When its first action began.
    pub started_ns: u64,
    /// Number of requests begun or dropped in this slot.
    pub begun: u64,
    /// Reader of the response, as far as received.
    pub reader: Reader,
    /// Its place in the deadline lists.
    pub deadline_link: DeadlineLink,
    /// Beginning of a response that arrived in pieces, for the examples.
    pub stash: Option<Box<Stash>>,
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
    pub id: u32,
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
            under_way: false,
            resent: false,
            has_response_bytes: false,
            status: 0,
            is_partly_sent: false,
            has_late_buffer: false,
            has_id: false,
            id: 0,
            unsent: 0,
            due_ns: 0,
            started_ns: 0,
            begun: 0,
            reader: Reader::default(),
            deadline_link: DeadlineLink::default(),
            stash: None,
            buffered: None,
        }
    }

    /// Begins a request; the caller enters it in the timeouts.
    #[inline]
    fn begin(&mut self, request: u32, due_ns: u64, started_ns: u64) {
        self.request = request;
        self.due_ns = due_ns;
        self.started_ns = started_ns;
        self.under_way = true;
        self.resent = false;
        self.has_response_bytes = false;
        self.status = 0;
        self.has_id = false;
        self.has_late_buffer = false;
    }

    /// Records that a request of this length is being sent, and how much of it has gone out.
    #[inline]
    pub fn sends(&mut self, length: usize, sent: usize) {
        self.unsent = length - sent;
        self.is_partly_sent = sent > 0;
    }

    /// Records that more of the request has gone out.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.unsent = self.unsent.saturating_sub(bytes);
        self.is_partly_sent |= bytes > 0;
    }

    /// The id that the request carries, if it carries one and has been written.
    pub fn id(&self) -> Option<u64> {
        self.has_id.then_some(self.id)
    }

    /// Sets the id that the request carries.
    #[inline]
    pub fn set_id(&mut self, id: Option<u64>) {
        self.has_id = id.is_some();
        self.id = id.unwrap_or(0);
    }

    /// Takes the id that the request carries.
    #[inline]
    pub fn take_id(&mut self) -> Option<u64> {
        std::mem::take(&mut self.has_id).then_some(self.id)
    }

    /// Provides the buffer that the request was sent without.
    #[cold]
    pub fn provide_late_buffer(&mut self, user: u32, journey: &mut Option<Users<'_>>) {
        self.has_late_buffer = false;
        self.buffered = journey.as_mut().map(|journey| journey.late_buffer(user, self.request));
    }

    /// Whether the request may be sent again after it was sent on an idle connection that was being closed. A request
    /// that the server may have read is resent only if it is safe to repeat, as browsers do (RFC 9110 §9.2.2).
    pub fn may_resend(&self, request: &Request, unread: bool) -> bool {
        !self.has_response_bytes && !self.resent && (unread || request.safe)
    }

    /// Records that the current request could not be written.
    pub fn unwritten(&self, id: u32, failure: StepFailure) -> Unwritten {
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
    pub timeouts: Deadlines,
    /// Requests that could not be written, to be failed in the next turn.
    pub unwritten: Vec<Unwritten>,
    /// Moving average of service times, nanoseconds.
    pub service_ns: u64,
    /// What the HTTP/1 readers remember of the last response head.
    pub memo: Memo,
    #[expect(clippy::vec_box, reason = "they move into exchanges and back")]
    spare_stashes: Vec<Box<Stash>>,
    stashed: usize,
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
            spare_stashes: Vec::new(),
            stashed: 0,
        }
    }

    /// Begins a request in a slot, with its timeout.
    #[inline]
    pub fn begin(&mut self, id: u32, request: u32, due_ns: u64, started_ns: u64, timeout_ns: u64) {
        self.exchanges[id as usize].begin(request, due_ns, started_ns);
        self.timeouts.push(&mut self.exchanges, id, started_ns, timeout_ns);
    }

    /// Ends the request in a slot.
    #[inline]
    pub fn end(&mut self, id: u32, now_ns: u64) {
        self.timeouts.remove(&mut self.exchanges, id);
        let exchange = &mut self.exchanges[id as usize];
        exchange.under_way = false;
        self.service_ns = self.service_ns - self.service_ns / 64 + (now_ns - exchange.started_ns) / 64;
    }

    /// The slot whose request times out first, and when.
    #[inline]
    pub fn first_timeout(&self) -> Option<(u32, u64)> {
        let id = self.timeouts.first(&self.exchanges)?;
        Some((id, self.exchanges[id as usize].deadline_link.at_ns))
    }

    /// Keeps the beginning of a response that arrives in pieces.
    pub fn stash(&mut self, id: u32, bytes: &[u8], head_end: Option<usize>) {
        if !self.reserve_stash(id) {
            return;
        }
        let Some(stash) = &mut self.exchanges[id as usize].stash else { return };
        if stash.bytes.is_empty() {
            stash.head_end = head_end;
        }
        let room = (HEAD_BYTES + BODY_BYTES).saturating_sub(stash.bytes.len());
        if room == 0 {
            return;
        }
        stash.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if stash.head_end.is_none() {
            stash.head_end = end_of_head(&stash.bytes);
        }
    }

    /// Gives a slot a stash, unless the maximum is in use.
    pub fn reserve_stash(&mut self, id: u32) -> bool {
        let exchange = &mut self.exchanges[id as usize];
        if exchange.stash.is_none() && self.stashed < STASHES {
            self.stashed += 1;
            exchange.stash = Some(self.spare_stashes.pop().unwrap_or_default());
        }
        exchange.stash.is_some()
    }

    /// Takes back a slot's stash.
    pub fn unstash(&mut self, id: u32) {
        if let Some(mut stash) = self.exchanges[id as usize].stash.take() {
            stash.bytes.clear();
            stash.head_end = None;
            self.stashed -= 1;
            self.spare_stashes.push(stash);
        }
    }
}

impl DeadlineLinks for Vec<Exchange> {
    #[inline]
    fn link(&mut self, id: u32) -> &mut DeadlineLink {
        &mut self[id as usize].deadline_link
    }

    #[inline]
    fn at_ns(&self, id: u32) -> u64 {
        self[id as usize].deadline_link.at_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load may have a million of them.
    #[test]
    fn a_slot_is_two_cache_lines() {
        assert_eq!(std::mem::size_of::<Exchange>(), 128);
    }
}
