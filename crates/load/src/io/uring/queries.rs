//! Synchronous queries to the kernel about a connection. Other completions that arrive meanwhile are kept for the next
//! turn.

use std::collections::VecDeque;

use io_uring::{opcode, squeue};

use super::{Completion, CompletionKind, ConnId, UringOps, now_ns};

/// `SOCKET_URING_OP_SIOCOUTQ` of `<linux/io_uring.h>`.
const SIOCOUTQ: u32 = 1;

impl UringOps<'_> {
    /// Number of bytes that the peer has not acknowledged.
    pub(super) fn unacknowledged(&mut self, conn: ConnId) -> Option<usize> {
        let (_, place) = self.place(conn);
        self.ask(conn, opcode::UringCmd16::new(place, SIOCOUTQ).build())
    }

    /// Queries the kernel about a connection and waits for that completion alone; `None` if it does not arrive or
    /// fails.
    pub(super) fn ask(&mut self, conn: ConnId, question: squeue::Entry) -> Option<usize> {
        let data = self.data(CompletionKind::Asked, conn);
        let generation = self.slots[conn as usize].generation();
        let (ring, _) = self.place(conn);
        self.push(ring, &question.user_data(data)).ok()?;
        let until_ns = now_ns() + 100_000_000;
        while now_ns() < until_ns {
            self.enter(ring, until_ns).ok()?;
            let mut done = VecDeque::new();
            self.reap(ring, &mut done);
            let is_answer = |c: &&Completion| {
                c.kind == CompletionKind::Asked && c.conn == conn && c.generation == generation
            };
            let answer = done.iter().find(is_answer).map(|c| c.result);
            self.came.extend(done.iter().filter_map(Completion::received));
            self.early.extend(done);
            if let Some(result) = answer {
                return usize::try_from(result).ok();
            }
        }
        None
    }
}
