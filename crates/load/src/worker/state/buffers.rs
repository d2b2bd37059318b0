//! Buffers that a connection borrows while it holds something incomplete.
//!
//! An idle connection holds no buffer, however many connections there are; returned buffers are lent again, so nothing
//! is allocated for each record or message that arrives in pieces.

/// Most bytes kept for lending again; buffers beyond that are freed.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// A buffer that has grown beyond this is freed as well.
const LARGEST: usize = 64 * 1024;

/// One load thread's unused buffers.
#[derive(Debug, Default)]
pub struct Rooms {
    rooms: Vec<Vec<u8>>,
    /// Sum of their capacities.
    bytes: usize,
}

impl Rooms {
    /// Lends a buffer if `room` has none.
    #[inline]
    pub fn lend(&mut self, room: &mut Vec<u8>) {
        if room.capacity() == 0
            && let Some(spare) = self.rooms.pop()
        {
            self.bytes -= spare.capacity();
            *room = spare;
        }
    }

    /// Takes back a buffer if it is empty.
    #[inline]
    pub fn take_back(&mut self, room: &mut Vec<u8>) {
        if !room.is_empty() || room.capacity() == 0 {
            return;
        }
        let room = std::mem::take(room);
        if room.capacity() <= LARGEST && self.bytes + room.capacity() <= MOST_BYTES {
            self.bytes += room.capacity();
            self.rooms.push(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_lent_again_and_bounded() {
        let mut rooms = Rooms::default();
        let mut room = Vec::with_capacity(100);
        room.push(1);
        rooms.take_back(&mut room);
        assert_eq!((room.len(), rooms.rooms.len()), (1, 0), "something is in it");
        room.clear();
        let at = room.as_ptr();
        rooms.take_back(&mut room);
        assert_eq!((room.capacity(), rooms.bytes >= 100), (0, true));
        rooms.lend(&mut room);
        assert_eq!((room.as_ptr(), rooms.bytes), (at, 0));
        rooms.take_back(&mut Vec::with_capacity(LARGEST + 1));
        assert_eq!(rooms.bytes, 0);
        (0..1000).for_each(|_| rooms.take_back(&mut Vec::with_capacity(LARGEST)));
        assert!((1..=MOST_BYTES).contains(&rooms.bytes), "{} bytes", rooms.bytes);
    }
}
