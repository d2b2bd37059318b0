//! Sends: those of a turn, held back to its end and queued together, and final bytes before a close.

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};

use super::slot::{NO_COPY, SILENT};
use super::{CompletionKind, Uring, UringOps};
use crate::io::{ConnId, Event, ONE_SEGMENT, Sink};

/// Value that switches a socket option on.
static ONE: libc::c_int = 1;

/// Switches a socket option on.
pub fn switched_on(place: Fixed, level: libc::c_int, option: libc::c_int) -> squeue::Entry {
    let (value, length) = (std::ptr::addr_of!(ONE).cast(), std::mem::size_of_val(&ONE) as u32);
    opcode::SetSockOpt::new(place, level as u32, option as u32, value, length).build()
}

/// The bytes of a send.
pub enum SendKind<'r> {
    /// Bytes that outlive the ring.
    Kept(&'r [u8]),
    /// Index of a copied request.
    Copied(u32),
}

impl<'r> Uring<'r> {
    /// Handles a copied request that has gone out, or failed.
    pub(super) fn copy_reported(&mut self, id: u32, result: i32, sink: &mut impl Sink<UringOps<'r>>) {
        let copied = self.ops.copies.at(id);
        copied.flying = false;
        let (conn, generation) = (copied.conn, copied.generation);
        if !self.ops.live(conn, generation) {
            return self.ops.copies.give_back(id);
        }
        let copied = self.ops.copies.at(id);
        let reported = std::mem::take(&mut copied.reported);
        if result >= 0 && !copied.next.is_empty() {
            std::mem::swap(&mut copied.bytes, &mut copied.next);
            copied.next.clear();
            self.ops.sends.push((conn, generation, SendKind::Copied(id)));
        } else {
            let slot = &mut self.ops.slots[conn as usize];
            slot.copy = NO_COPY;
            slot.set_sending(false);
            self.ops.copies.give_back(id);
        }
        match usize::try_from(result) {
            // All of it was already reported as sent.
            Ok(sent) if sent <= reported => {}
            Ok(sent) => sink.event(&mut self.ops, Event::Sent(conn, sent - reported)),
            Err(_) => sink.event(&mut self.ops, Event::Failed(conn, -result)),
        }
    }
}

impl<'r> UringOps<'r> {
    /// Queues the sends whose connection is still open.
    pub(super) fn flush_sends(&mut self) -> std::io::Result<()> {
        let mut sends = std::mem::take(&mut self.sends);
        for (conn, generation, what) in sends.drain(..) {
            if !self.live(conn, generation) {
                if let SendKind::Copied(id) = what {
                    self.copies.give_back(id);
                }
                continue;
            }
            let (bytes, data, silent) = match what {
                SendKind::Kept(bytes) => {
                    (std::ptr::from_ref(bytes), self.data(CompletionKind::Send, conn), bytes.len() <= SILENT)
                }
                SendKind::Copied(id) => {
                    let copied = self.copies.at(id);
                    copied.flying = true;
                    let bytes = std::ptr::from_ref(copied.bytes.as_slice());
                    (bytes, (CompletionKind::Copied as u64) << 56 | u64::from(id), false)
                }
            };
            let slot = &mut self.slots[conn as usize];
            slot.set_submitted(true);
            slot.set_sending(slot.is_sending() || !silent);
            let (ring, place) = self.place(conn);
            // All of it or an error: once a full socket buffer has room, the kernel continues by itself. Not for sends
            // already reported as sent, which another send might overtake.
            let wait = libc::MSG_WAITALL | if silent { libc::MSG_DONTWAIT } else { 0 };
            let send = opcode::Send::new(place, bytes.cast(), bytes.len() as u32)
                .flags(libc::MSG_NOSIGNAL | wait)
                .build()
                .user_data(data);
            let send = if silent { send.flags(squeue::Flags::SKIP_SUCCESS) } else { send };
            self.push(ring, &send)?;
        }
        self.sends = sends;
        Ok(())
    }

    /// The kernel took only `result` bytes of a send already reported as sent, because the socket's buffer is full. The
    /// rest goes out as a copy, so that the next send goes after it.
    #[cold]
    pub(super) fn send_rest(&mut self, conn: ConnId, result: i32) -> Result<(), i32> {
        let taken = match result {
            taken if taken >= 0 => taken as usize,
            error if error == -libc::EAGAIN => 0,
            error => return Err(-error),
        };
        let slot = &mut self.slots[conn as usize];
        let rest = slot.silent().get(taken..).unwrap_or_default();
        slot.keep_silent(&[]);
        if slot.copy != NO_COPY || !slot.is_submitted() {
            // Another send followed, in reply to an unsolicited response: the order can no longer be restored.
            return Err(libc::EAGAIN);
        }
        let generation = slot.generation();
        let id = self.copies.take(conn, generation);
        slot.copy = id;
        slot.set_sending(true);
        let copied = self.copies.at(id);
        copied.bytes.extend_from_slice(rest);
        copied.reported = rest.len();
        self.sends.push((conn, generation, SendKind::Copied(id)));
        Ok(())
    }

    /// Records a send, and switches Nagle's algorithm off for long ones. Returns the connection's generation.
    #[inline]
    pub(super) fn before_send(&mut self, conn: ConnId, length: usize) -> u32 {
        let slot = &mut self.slots[conn as usize];
        slot.last_send = length as u32;
        slot.set_submitted(false);
        let generation = slot.generation();
        if length > ONE_SEGMENT {
            self.switch_off_delay(conn);
        }
        generation
    }

    /// Switches Nagle's algorithm off, unless it is off.
    pub(super) fn switch_off_delay(&mut self, conn: ConnId) {
        let slot = &mut self.slots[conn as usize];
        if slot.has_no_delay() {
            return;
        }
        slot.set_no_delay();
        let (_, place) = self.place(conn);
        let option = switched_on(place, libc::IPPROTO_TCP, libc::TCP_NODELAY);
        let option = option.user_data(CompletionKind::Nothing as u64);
        // A failure only makes a request slower: kernels before 6.7 do not support this.
        self.submit_or_fail(conn, &option.flags(squeue::Flags::SKIP_SUCCESS));
    }

    /// Queues bytes that nothing waits for, unless others are still going out. Returns how many.
    pub(super) fn last_word(&mut self, conn: ConnId, last: &[u8]) -> usize {
        let slot = self.slots[conn as usize];
        let (ring, place) = self.place(conn);
        if !slot.is_quiet() || ring >= self.rings.len() {
            return 0;
        }
        let id = self.copies.take(conn, slot.generation());
        let copied = self.copies.at(id);
        copied.flying = true;
        copied.bytes.extend_from_slice(last);
        let send = opcode::Send::new(place, copied.bytes.as_ptr(), copied.bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
            .build()
            .user_data((CompletionKind::Copied as u64) << 56 | u64::from(id));
        if self.push(ring, &send).is_err() {
            self.copies.give_back(id);
            return 0;
        }
        last.len()
    }
}
