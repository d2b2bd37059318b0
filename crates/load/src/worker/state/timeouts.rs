//! Deadlines of exchanges in flight. Exchanges with the same timeout expire in the order they started, and a load has
//! few different timeouts: each has a doubly linked list through the table of slots, O(1) to enter and leave, without
//! allocation.

/// No slot or connection.
pub const NONE: u32 = u32::MAX;

/// A slot's place in the lists.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineLink {
    before: u32,
    after: u32,
    list: u32,
    /// When it expires.
    pub at_ns: u64,
}

impl Default for DeadlineLink {
    fn default() -> Self {
        DeadlineLink { before: NONE, after: NONE, list: 0, at_ns: u64::MAX }
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

/// Storage of the links.
pub trait DeadlineLinks {
    /// The link of a slot, to be changed.
    fn link(&mut self, id: u32) -> &mut DeadlineLink;
    /// When a slot expires.
    fn at_ns(&self, id: u32) -> u64;
}

impl Deadlines {
    /// Without deadlines.
    pub fn new() -> Self {
        Deadlines { lists: Vec::new() }
    }

    /// The slot that expires first.
    #[inline]
    pub fn first(&self, links: &impl DeadlineLinks) -> Option<u32> {
        let firsts = self.lists.iter().map(|list| list.first).filter(|first| *first != NONE);
        firsts.min_by_key(|first| links.at_ns(*first))
    }

    /// Enters a slot with its start and its timeout; none may have started later.
    #[inline]
    pub fn push(&mut self, links: &mut impl DeadlineLinks, id: u32, now_ns: u64, timeout_ns: u64) {
        let found = self.lists.iter().position(|list| list.timeout_ns == timeout_ns);
        let index = found.unwrap_or_else(|| {
            self.lists.push(List { timeout_ns, first: NONE, last: NONE });
            self.lists.len() - 1
        });
        let list = &mut self.lists[index];
        let at_ns = now_ns.saturating_add(timeout_ns);
        *links.link(id) = DeadlineLink { before: list.last, after: NONE, list: index as u32, at_ns };
        match list.last {
            NONE => list.first = id,
            last => links.link(last).after = id,
        }
        list.last = id;
    }

    /// Removes a slot that is in a list.
    #[inline]
    pub fn remove(&mut self, links: &mut impl DeadlineLinks, id: u32) {
        let DeadlineLink { before, after, list, .. } = std::mem::take(links.link(id));
        let Some(list) = self.lists.get_mut(list as usize) else { return };
        match before {
            NONE => list.first = after,
            b => links.link(b).after = after,
        }
        match after {
            NONE => list.last = before,
            a => links.link(a).before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl DeadlineLinks for Vec<DeadlineLink> {
        fn link(&mut self, id: u32) -> &mut DeadlineLink {
            &mut self[id as usize]
        }
        fn at_ns(&self, id: u32) -> u64 {
            self[id as usize].at_ns
        }
    }

    #[test]
    fn first_in_first_out_with_removals_anywhere() {
        let mut links = vec![DeadlineLink::default(); 4];
        let mut list = Deadlines::new();
        for id in 0..4 {
            list.push(&mut links, id, u64::from(id) * 10, 5);
        }
        list.remove(&mut links, 1);
        list.remove(&mut links, 3);
        assert_eq!(list.first(&links), Some(0));
        list.remove(&mut links, 0);
        assert_eq!(list.first(&links), Some(2));
        list.push(&mut links, 0, 50, 5);
        list.remove(&mut links, 2);
        assert_eq!(list.first(&links), Some(0));
        list.remove(&mut links, 0);
        assert_eq!(list.first(&links), None);
    }

    #[test]
    fn what_may_take_less_time_expires_earlier() {
        let mut links = vec![DeadlineLink::default(); 4];
        let mut list = Deadlines::new();
        for (id, started_ns, timeout_ns) in [(0, 0, 100), (1, 1, 10), (2, 2, 100), (3, 3, 10)] {
            list.push(&mut links, id, started_ns, timeout_ns);
        }
        let mut order = Vec::new();
        while let Some(id) = list.first(&links) {
            order.push((id, links[id as usize].at_ns));
            list.remove(&mut links, id);
        }
        assert_eq!(order, [(1, 11), (3, 13), (0, 100), (2, 102)]);
    }
}
