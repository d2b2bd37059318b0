//! Requests whose bytes are valid only during the call: copied, and kept in place until the kernel has finished with
//! them, whatever happens to their connection meanwhile.

/// A copied request longer than this frees its memory once it has gone out. There are never more copies than requests
/// were in flight at one time, and a new allocation costs a page fault per page.
const COPY_KEPT: usize = 1024 * 1024;

/// Copied requests, each in its place until the kernel has finished with it, whatever happens to its connection.
#[derive(Default)]
pub struct Copies {
    all: Vec<Copied>,
    free: Vec<u32>,
}

/// Bytes being sent on one connection from the ring's own memory.
#[derive(Default)]
pub struct Copied {
    /// The connection, and its generation in that place.
    pub conn: u32,
    pub generation: u32,
    /// Whether the kernel is sending it: it must not move.
    pub flying: bool,
    pub bytes: Vec<u8>,
    /// Bytes to send after it.
    pub next: Vec<u8>,
    /// Number of bytes at the beginning that were already reported as sent.
    pub reported: usize,
}

impl Copies {
    /// Takes a place for a connection.
    pub fn take(&mut self, conn: u32, generation: u32) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(Copied::default());
            self.all.len() as u32 - 1
        });
        let copied = &mut self.all[id as usize];
        (copied.conn, copied.generation) = (conn, generation);
        id
    }

    pub fn at(&mut self, id: u32) -> &mut Copied {
        &mut self.all[id as usize]
    }

    /// Frees a place: the kernel has finished with it, or never had it.
    pub fn give_back(&mut self, id: u32) {
        let copied = &mut self.all[id as usize];
        (copied.flying, copied.reported) = (false, 0);
        copied.next.clear();
        copied.bytes.clear();
        if copied.bytes.capacity() > COPY_KEPT {
            copied.bytes = Vec::new();
        }
        if copied.next.capacity() > COPY_KEPT {
            copied.next = Vec::new();
        }
        self.free.push(id);
    }
}
