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
pub struct BufferPool {
    buffers: Vec<Vec<u8>>,
    /// Sum of their capacities.
    bytes: usize,
}

impl BufferPool {
    /// Lends a buffer if `buffer` has no memory.
    #[inline]
    pub fn lend(&mut self, buffer: &mut Vec<u8>) {
        if buffer.capacity() == 0
            && let Some(spare) = self.buffers.pop()
        {
            self.bytes -= spare.capacity();
            *buffer = spare;
        }
    }

    /// Takes back a buffer if it is empty.
    #[inline]
    pub fn take_back(&mut self, buffer: &mut Vec<u8>) {
        if !buffer.is_empty() || buffer.capacity() == 0 {
            return;
        }
        let buffer = std::mem::take(buffer);
        if buffer.capacity() <= LARGEST && self.bytes + buffer.capacity() <= MOST_BYTES {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_lent_again_and_bounded() {
        let mut buffers = BufferPool::default();
        let mut buffer = Vec::with_capacity(100);
        buffer.push(1);
        buffers.take_back(&mut buffer);
        assert_eq!((buffer.len(), buffers.buffers.len()), (1, 0), "something is in it");
        buffer.clear();
        let at = buffer.as_ptr();
        buffers.take_back(&mut buffer);
        assert_eq!((buffer.capacity(), buffers.bytes >= 100), (0, true));
        buffers.lend(&mut buffer);
        assert_eq!((buffer.as_ptr(), buffers.bytes), (at, 0));
        buffers.take_back(&mut Vec::with_capacity(LARGEST + 1));
        assert_eq!(buffers.bytes, 0);
        (0..1000).for_each(|_| buffers.take_back(&mut Vec::with_capacity(LARGEST)));
        assert!((1..=MOST_BYTES).contains(&buffers.bytes), "{} bytes", buffers.bytes);
    }
}
