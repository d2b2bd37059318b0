//! Deadlines of exchanges in flight. All have the same timeout, so they expire in the order they started:
//! a doubly linked list through the connection table, O(1) to enter, leave and look at, no allocation.

/// No connection.
pub const NONE: u32 = u32::MAX;

/// A connection's place in the list.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    before: u32,
    after: u32,
    /// When it expires.
    pub at_ns: u64,
}

impl Default for Link {
    fn default() -> Self {
        Link { before: NONE, after: NONE, at_ns: u64::MAX }
    }
}

/// The ends of the list.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    first: u32,
    last: u32,
}

/// Where links are kept.
pub trait Links {
    /// The link of a connection.
    fn link(&mut self, id: u32) -> &mut Link;
}

impl Deadlines {
    /// An empty list.
    pub fn new() -> Self {
        Deadlines { first: NONE, last: NONE }
    }

    /// The connection that expires first.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends; `at_ns` must not be before the last one's.
    #[inline]
    pub fn push(&mut self, links: &mut impl Links, id: u32, at_ns: u64) {
        *links.link(id) = Link { before: self.last, after: NONE, at_ns };
        match self.last {
            NONE => self.first = id,
            last => links.link(last).after = id,
        }
        self.last = id;
    }

    /// Takes out a connection that is in the list.
    #[inline]
    pub fn remove(&mut self, links: &mut impl Links, id: u32) {
        let Link { before, after, .. } = std::mem::take(links.link(id));
        match before {
            NONE => self.first = after,
            b => links.link(b).after = after,
        }
        match after {
            NONE => self.last = before,
            a => links.link(a).before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Links for Vec<Link> {
        fn link(&mut self, id: u32) -> &mut Link {
            &mut self[id as usize]
        }
    }

    #[test]
    fn first_in_first_out_with_removals_anywhere() {
        let mut links = vec![Link::default(); 4];
        let mut list = Deadlines::new();
        for id in 0..4 {
            list.push(&mut links, id, u64::from(id) * 10);
        }
        list.remove(&mut links, 1);
        list.remove(&mut links, 3);
        assert_eq!(list.first(), Some(0));
        list.remove(&mut links, 0);
        assert_eq!(list.first(), Some(2));
        list.push(&mut links, 0, 50);
        list.remove(&mut links, 2);
        assert_eq!(list.first(), Some(0));
        list.remove(&mut links, 0);
        assert_eq!(list.first(), None);
    }
}
