//! Ids of requests as ranges: few, since ids are assigned sequentially.
//!
//! A set of a billion ids without holes is one range. The cost is in the holes: requests that failed, and those still
//! in flight while their neighbours have ended.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The requests with an id that ended in one second of one load, by outcome: a line of `ids.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IdLine {
    /// End of the second, on the trial's clock.
    pub at_s: f64,
    /// The load.
    pub load: String,
    /// Repeat of the load.
    pub batch: u32,
    /// Answered with success.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub accepted: IdSet,
    /// Sent, without a complete answer.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub unanswered: IdSet,
    /// Answered, but not with success.
    #[serde(default, skip_serializing_if = "IdSet::is_empty")]
    pub refused: IdSet,
}

/// All ids of a trial, by outcome of their requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentIds {
    /// Answered with success.
    pub accepted: IdSet,
    /// Sent, without a complete answer.
    pub unanswered: IdSet,
    /// Answered, but not with success.
    pub refused: IdSet,
}

impl SentIds {
    /// Adds the ids of one second.
    pub fn add(&mut self, line: &IdLine) {
        self.accepted.merge(&line.accepted);
        self.unanswered.merge(&line.unanswered);
        self.refused.merge(&line.refused);
    }

    /// Reads a file of [`IdLine`]s; a missing file has none. Holds only one line in memory at a time.
    ///
    /// # Errors
    /// The file cannot be read, or has an invalid line.
    pub fn read(path: &Path) -> io::Result<SentIds> {
        let mut sent = SentIds::default();
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(sent),
            file => file?,
        };
        for line in BufReader::new(file).lines() {
            sent.add(&serde_json::from_str(&line?)?);
        }
        Ok(sent)
    }
}

/// A set of ids, as inclusive ranges in order; adjacent ranges are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdSet(Vec<(u64, u64)>);

impl IdSet {
    /// From ids in any order; duplicates count once.
    pub fn of(mut ids: Vec<u64>) -> IdSet {
        ids.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for id in ids {
            push(&mut ranges, id, id);
        }
        IdSet(ranges)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of ids in the set.
    pub fn len(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from + 1).sum()
    }

    /// Whether the set contains this id.
    pub fn has(&self, id: u64) -> bool {
        let at = self.0.partition_point(|(_, to)| *to < id);
        self.0.get(at).is_some_and(|(from, _)| *from <= id)
    }

    /// Adds all ids of another set.
    pub fn merge(&mut self, other: &IdSet) {
        if other.is_empty() {
            return;
        }
        let mut ranges = Vec::with_capacity(self.0.len() + other.0.len());
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let Some(next) = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.0 <= y.0 => a.next(),
            (Some(_), None) => a.next(),
            (_, Some(_)) => b.next(),
            (None, None) => None,
        } {
            push(&mut ranges, next.0, next.1);
        }
        self.0 = ranges;
    }

    /// Number of ids that are also in another set.
    pub fn common(&self, other: &IdSet) -> u64 {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut count = 0;
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            let (from, to) = (x.0.max(y.0), x.1.min(y.1));
            if from <= to {
                count += to - from + 1;
            }
            let _ = if x.1 <= y.1 { a.next() } else { b.next() };
        }
        count
    }

    /// The first `most` ids that are not in another set.
    pub fn missing_in(&self, other: &IdSet, most: usize) -> Vec<u64> {
        let ids = self.0.iter().flat_map(|(from, to)| *from..=*to);
        ids.filter(|id| !other.has(*id)).take(most).collect()
    }
}

/// Appends a range that begins no earlier than the last one.
fn push(ranges: &mut Vec<(u64, u64)>, from: u64, to: u64) {
    match ranges.last_mut() {
        Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
        _ => ranges.push((from, to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_become_ranges() {
        for (ids, expect) in [
            (vec![], "[]"),
            (vec![3], "[[3,3]]"),
            (vec![5, 3, 4, 9, 4], "[[3,5],[9,9]]"),
            (vec![u64::MAX, 0, u64::MAX - 1], "[[0,0],[18446744073709551614,18446744073709551615]]"),
        ] {
            let set = IdSet::of(ids.clone());
            assert_eq!(serde_json::to_string(&set).unwrap(), expect);
            assert_eq!(serde_json::from_str::<IdSet>(expect).unwrap(), set);
        }
    }

    proptest! {
        #[test]
        fn ranges_are_sets(a in prop::collection::vec(0u64..60, 0..40), b in prop::collection::vec(0u64..60, 0..40)) {
            let (x, y): (BTreeSet<u64>, BTreeSet<u64>) = (a.iter().copied().collect(), b.iter().copied().collect());
            let (mut s, t) = (IdSet::of(a), IdSet::of(b));
            prop_assert_eq!(s.len(), x.len() as u64);
            prop_assert!((0..60).all(|id| s.has(id) == x.contains(&id)));
            prop_assert_eq!(s.common(&t), x.intersection(&y).count() as u64);
            prop_assert_eq!(s.missing_in(&t, 100), x.difference(&y).copied().collect::<Vec<_>>());
            s.merge(&t);
            prop_assert_eq!(s, IdSet::of(x.union(&y).copied().collect()));
        }
    }
}
