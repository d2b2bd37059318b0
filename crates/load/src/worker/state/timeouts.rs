//! Deadlines of exchanges in flight. Exchanges with the same timeout expire in the order they started, and a load has
//! few different timeouts: each has a doubly linked list through the table of slots, O(1) to enter and leave, without
//! allocation.

use crate::worker::state::{NONE, SlotId};

/// A slot's place in its list.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineLink {
    before: u32,
    after: u32,
}

impl Default for DeadlineLink {
    fn default() -> Self {
        DeadlineLink { before: NONE, after: NONE }
    }
}

/// One list for each timeout.
#[derive(Clone, Debug)]
pub struct Deadlines {
    lists: Vec<List>,
}

/// One timeout's list, by its ends.
#[derive(Clone, Copy, Debug)]
struct List {
    timeout_ns: u64,
    first: u32,
    last: u32,
}

/// A slot that expires, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The slot.
    pub id: SlotId,
    /// When it expires.
    pub at_ns: u64,
}

/// Storage of the links.
pub trait DeadlineLinks {
    /// The link of a slot, to be changed.
    fn link(&mut self, id: SlotId) -> &mut DeadlineLink;
    /// When a slot started; this does not change while the slot is in a list.
    fn started_ns(&self, id: SlotId) -> u64;
}

impl Deadlines {
    /// Without deadlines.
    pub fn new() -> Self {
        Deadlines { lists: Vec::new() }
    }

    /// The slot that expires first.
    #[inline]
    pub fn first(&self, links: &impl DeadlineLinks) -> Option<Expiry> {
        let firsts = self.lists.iter().filter(|list| list.first != NONE).map(|list| Expiry {
            id: list.first,
            at_ns: links.started_ns(list.first).saturating_add(list.timeout_ns),
        });
        firsts.min_by_key(|expiry| expiry.at_ns)
    }

    /// Enters a slot that has just started; none in its list may have started later.
    #[inline]
    pub fn push(&mut self, links: &mut impl DeadlineLinks, id: SlotId, timeout_ns: u64) {
        let found = self.lists.iter().position(|list| list.timeout_ns == timeout_ns);
        let index = found.unwrap_or_else(|| {
            self.lists.push(List { timeout_ns, first: NONE, last: NONE });
            self.lists.len() - 1
        });
        let list = &mut self.lists[index];
        *links.link(id) = DeadlineLink { before: list.last, after: NONE };
        match list.last {
            NONE => list.first = id,
            last => links.link(last).after = id,
        }
        list.last = id;
    }

    /// Removes a slot that is in a list. Only at a list's end does it matter which list that is, and there the list
    /// names the slot.
    #[inline]
    pub fn remove(&mut self, links: &mut impl DeadlineLinks, id: SlotId) {
        let DeadlineLink { before, after } = std::mem::take(links.link(id));
        match before {
            NONE => self.lists.iter_mut().filter(|list| list.first == id).for_each(|list| list.first = after),
            b => links.link(b).after = after,
        }
        match after {
            NONE => self.lists.iter_mut().filter(|list| list.last == id).for_each(|list| list.last = before),
            a => links.link(a).before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots with their starts and links.
    struct Started(Vec<(u64, DeadlineLink)>);

    impl Started {
        fn at(starts_ns: &[u64]) -> Started {
            Started(starts_ns.iter().map(|at| (*at, DeadlineLink::default())).collect())
        }
    }

    impl DeadlineLinks for Started {
        fn link(&mut self, id: SlotId) -> &mut DeadlineLink {
            &mut self.0[id as usize].1
        }
        fn started_ns(&self, id: SlotId) -> u64 {
            self.0[id as usize].0
        }
    }

    #[test]
    fn first_in_first_out_with_removals_anywhere() {
        let mut links = Started::at(&[0, 10, 20, 30]);
        let mut list = Deadlines::new();
        for id in 0..4 {
            list.push(&mut links, id, 5);
        }
        list.remove(&mut links, 1);
        list.remove(&mut links, 3);
        assert_eq!(list.first(&links), Some(Expiry { id: 0, at_ns: 5 }));
        list.remove(&mut links, 0);
        assert_eq!(list.first(&links), Some(Expiry { id: 2, at_ns: 25 }));
        links.0[0].0 = 50;
        list.push(&mut links, 0, 5);
        list.remove(&mut links, 2);
        assert_eq!(list.first(&links), Some(Expiry { id: 0, at_ns: 55 }));
        list.remove(&mut links, 0);
        assert_eq!(list.first(&links), None);
        list.remove(&mut links, 0);
        assert_eq!(list.first(&links), None, "a slot in no list is not removed from one");
    }

    #[test]
    fn what_may_take_less_time_expires_earlier() {
        let mut links = Started::at(&[0, 1, 2, 3]);
        let mut list = Deadlines::new();
        for (id, timeout_ns) in [(0, 100), (1, 10), (2, 100), (3, 10)] {
            list.push(&mut links, id, timeout_ns);
        }
        let mut order = Vec::new();
        while let Some(Expiry { id, at_ns }) = list.first(&links) {
            order.push((id, at_ns));
            list.remove(&mut links, id);
        }
        assert_eq!(order, [(1, 11), (3, 13), (0, 100), (2, 102)]);
    }
}
