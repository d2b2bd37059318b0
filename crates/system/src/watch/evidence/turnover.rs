//! Sockets that come and go: a socket opened for one request lives as long as the request, which shows who waits where
//! the sockets themselves do not.

use std::collections::HashMap;

/// Sockets by inode, as of the last reading.
#[derive(Debug)]
pub(crate) struct Turnover<K> {
    known: HashMap<u32, Known<K>>,
    reading: u32,
}

#[derive(Debug)]
struct Known<K> {
    key: K,
    /// When it was first seen; `None` if it existed before the first reading.
    since_ns: Option<u64>,
    reading: u32,
}

/// What is known of a socket seen in this reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// Whether it was absent in the last reading.
    pub is_new: bool,
    /// How long it has existed; `None` if it existed before the first reading.
    pub age_ns: Option<u64>,
}

impl<K> Default for Turnover<K> {
    fn default() -> Turnover<K> {
        Turnover { known: HashMap::new(), reading: 0 }
    }
}

impl<K: Clone> Turnover<K> {
    /// Records that a socket with this key exists.
    pub fn see(&mut self, inode: u32, key: &K, now_ns: u64) -> Age {
        let (is_first, reading) = (self.reading == 0, self.reading);
        let mut is_new = false;
        let known = self.known.entry(inode).or_insert_with(|| {
            is_new = !is_first;
            Known { key: key.clone(), since_ns: is_new.then_some(now_ns), reading }
        });
        known.reading = reading;
        if is_new {
            return Age { is_new, age_ns: Some(0) };
        }
        known.key.clone_from(key);
        Age { is_new, age_ns: known.since_ns.map(|since_ns| now_ns.saturating_sub(since_ns)) }
    }

    /// Ends a reading. Returns the keys of the sockets that are gone, with their ages.
    pub fn end(&mut self, now_ns: u64) -> Vec<(K, Option<u64>)> {
        let (mut gone, reading) = (Vec::new(), self.reading);
        self.known.retain(|_, known| {
            let is_there = known.reading == reading;
            if !is_there {
                gone.push((
                    known.key.clone(),
                    known.since_ns.map(|since_ns| now_ns.saturating_sub(since_ns)),
                ));
            }
            is_there
        });
        self.reading = self.reading.saturating_add(1);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_come_and_go() {
        let mut turnover = Turnover::default();
        let age = |is_new, age_ns| Age { is_new, age_ns };
        assert_eq!(turnover.see(1, &"a", 10), age(false, None), "it was there before");
        assert_eq!(turnover.end(10), []);
        assert_eq!(turnover.see(1, &"a", 20), age(false, None));
        assert_eq!(turnover.see(2, &"", 20), age(true, Some(0)));
        assert_eq!(turnover.end(20), []);
        // The key may become known only later.
        assert_eq!(turnover.see(2, &"b", 50), age(false, Some(30)));
        assert_eq!(turnover.end(50), [("a", None)]);
        assert_eq!(turnover.end(60), [("b", Some(40))]);
    }
}
