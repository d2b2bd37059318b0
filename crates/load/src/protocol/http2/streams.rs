//! The open streams of a connection, found by their identifier.
//!
//! An open-addressed table that also stores the streams. Identifiers ascend by two and few are open at once, so the
//! first slot probed is nearly always the right one, and once the table has grown to the peak number of streams nothing
//! allocates.

/// Stands for a body whose length was not announced.
pub const ANY_LENGTH: u64 = u64::MAX;

/// An open stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Stream identifier; 0 marks a free place.
    pub id: u32,
    /// The caller's token for the request.
    pub token: u32,
    /// Bytes of body that may be sent on it; negative after the peer has shrunk the window.
    pub send_window: i64,
    /// Bytes of the request's body sent so far.
    pub sent: u64,
    /// Bytes of the response's body to come, or [`ANY_LENGTH`].
    pub left: u64,
    /// Bytes that the peer may still send before the window is reopened.
    pub receive_window: i64,
    /// Whether the request has been sent completely.
    pub all_sent: bool,
    /// Whether it waits in the queue of bodies.
    pub queued: bool,
    /// Number of interim heads received.
    pub interim: u8,
    /// Whether the final head has been received.
    pub head: bool,
    /// Whether the response has no body, whatever its head says.
    pub no_body: bool,
}

const FREE: Stream = Stream {
    id: 0,
    token: 0,
    send_window: 0,
    sent: 0,
    left: 0,
    receive_window: 0,
    all_sent: false,
    queued: false,
    interim: 0,
    head: false,
    no_body: false,
};

/// All open streams of a connection.
#[derive(Debug, Default)]
pub struct StreamTable {
    /// Its length is a power of two, at least twice the number of open streams.
    places: Vec<Stream>,
    open: usize,
}

impl StreamTable {
    /// Number of open streams.
    #[inline]
    pub fn len(&self) -> usize {
        self.open
    }

    #[inline]
    fn home(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.places.len().wrapping_sub(1))
    }

    /// Index of a stream's place.
    #[inline]
    fn find(&self, id: u32) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mask = self.places.len() - 1;
        let mut at = self.home(id);
        loop {
            match self.places[at].id {
                0 => return None,
                found if found == id => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// An open stream.
    #[inline]
    pub fn get(&mut self, id: u32) -> Option<&mut Stream> {
        self.find(id).map(|at| &mut self.places[at])
    }

    /// The stream of a request. A linear search, for rare cases.
    pub fn of_token(&self, token: u32) -> Option<Stream> {
        self.iter().find(|s| s.token == token).copied()
    }

    /// All open streams, unordered.
    pub fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.places.iter().filter(|s| s.id != 0)
    }

    /// All open streams, unordered and mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().filter(|s| s.id != 0)
    }

    /// Adds a stream with a new identifier; its `id` is not 0.
    #[inline]
    pub fn insert(&mut self, stream: Stream) {
        if (self.open + 1) * 2 > self.places.len() {
            self.grow();
        }
        self.place(stream);
        self.open += 1;
    }

    #[inline]
    fn place(&mut self, stream: Stream) {
        let mask = self.places.len() - 1;
        let mut at = self.home(stream.id);
        while self.places[at].id != 0 {
            at = (at + 1) & mask;
        }
        self.places[at] = stream;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = (self.places.len() * 2).max(2);
        let old = std::mem::replace(&mut self.places, vec![FREE; larger]);
        old.into_iter().filter(|s| s.id != 0).for_each(|s| self.place(s));
    }

    /// Removes a stream. Streams that it had displaced move up.
    #[inline]
    pub fn remove(&mut self, id: u32) -> Option<Stream> {
        let mut hole = self.find(id)?;
        let mask = self.places.len() - 1;
        let stream = self.places[hole];
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.places[at];
            if next.id == 0 {
                break;
            }
            // `next` may fill the hole unless its home lies after the hole (cyclically).
            let from_home = at.wrapping_sub(self.home(next.id)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.places[hole] = next;
                hole = at;
            }
        }
        self.places[hole].id = 0;
        self.open -= 1;
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0usize..40), 0..400)) {
            let (mut streams, mut model) = (StreamTable::default(), BTreeMap::new());
            let mut next = 1;
            for (add, nth) in steps {
                if add || model.is_empty() {
                    streams.insert(Stream { id: next, token: next * 7, ..FREE });
                    model.insert(next, next * 7);
                    // Some are skipped, so that homes collide.
                    next += 2 + nth as u32 / 8 * 2;
                } else {
                    let id = *model.keys().nth(nth % model.len()).unwrap();
                    let token = model.remove(&id);
                    prop_assert_eq!(streams.remove(id).map(|s| s.token), token);
                    prop_assert_eq!(streams.remove(id), None);
                }
                prop_assert_eq!(streams.len(), model.len());
                for (id, token) in &model {
                    prop_assert_eq!(streams.get(*id).map(|s| s.token), Some(*token));
                    prop_assert_eq!(streams.of_token(*token).map(|s| s.id), Some(*id));
                }
                prop_assert_eq!(streams.get(next), None);
                prop_assert_eq!(streams.iter().count(), model.len());
            }
            prop_assert!(streams.places.len() <= 512);
        }
    }
}
