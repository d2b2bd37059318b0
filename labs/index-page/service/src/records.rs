//! The seeded records: the same on every machine and in every run. This file knows nothing of the stores.

use serde::{Deserialize, Serialize};

/// Letters and digits, as in the document's `data`.
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Base of the entries' times, in milliseconds since 1970.
const FIRST_MS: i64 = 1_677_700_000_000;
/// The longest time between consecutive entries, in milliseconds.
const APART_MS: u64 = 500;

/// A record of MongoDB's `test_coll`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// A UUID of version 4, as text.
    #[serde(rename = "_id")]
    pub id: String,
    /// 16 letters and digits.
    pub data: String,
}

/// A record of Elasticsearch's `test_index`; its id is not in its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// A UUID of version 4, as text.
    #[serde(skip)]
    pub id: String,
    /// 16 letters and digits.
    pub data: String,
    /// Time of creation, in milliseconds since 1970; unique.
    pub time: i64,
}

/// This many records for MongoDB, sorted by id: a store that keeps them in id order writes each page once, and a store
/// that keeps insertion order also returns the same ones first.
pub fn records(count: usize) -> impl Iterator<Item = Record> {
    let mut random = Random(1);
    let mut records: Vec<Record> =
        (0..count).map(|_| Record { id: random.uuid(), data: random.data() }).collect();
    records.sort_by(|a, b| a.id.cmp(&b.id));
    records.into_iter()
}

/// This many entries for Elasticsearch, oldest first.
pub fn entries(count: usize) -> impl Iterator<Item = Entry> {
    let mut random = Random(2);
    let mut time = FIRST_MS;
    (0..count).map(move |_| {
        time += 1 + (random.next() % APART_MS) as i64;
        Entry { id: random.uuid(), data: random.data(), time }
    })
}

/// Steele, Lea and Flood's SplitMix64 (2014): small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn data(&mut self) -> String {
        (0..16).map(|_| char::from(LETTERS[(self.next() % LETTERS.len() as u64) as usize])).collect()
    }

    fn uuid(&mut self) -> String {
        let (a, b) = (self.next(), self.next());
        let variant = 0x8000 | (b >> 48 & 0x3FFF);
        format!(
            "{:08x}-{:04x}-4{:03x}-{variant:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xFFFF,
            a & 0xFFF,
            b & 0xFFFF_FFFF_FFFF
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_every_time_and_none_twice() {
        let ids: BTreeSet<String> = records(5000).map(|r| r.id).chain(entries(5000).map(|e| e.id)).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(records(5000).eq(records(5000)));
        assert!(records(5000).zip(records(5000).skip(1)).all(|(a, b)| a.id < b.id));
        assert!(entries(10).eq(entries(5000).take(10)));
        assert!(entries(5000).zip(entries(5000).skip(1)).all(|(a, b)| a.time < b.time));
    }

    #[test]
    fn they_look_like_the_documents() {
        let record = records(1).next().unwrap();
        assert_eq!(record.data.len(), 16);
        let parts: Vec<usize> = record.id.split('-').map(str::len).collect();
        assert_eq!((parts, &record.id[14..15]), (vec![8, 4, 4, 4, 12], "4"));
        assert!(["8", "9", "a", "b"].contains(&&record.id[19..20]), "{}", record.id);
        let json = serde_json::to_string(&Entry { id: "x".into(), data: "S5oI".into(), time: 5 }).unwrap();
        assert_eq!(json, r#"{"data":"S5oI","time":5}"#);
    }
}
