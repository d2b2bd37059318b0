//! Searches for needles at every position of a text. Text in which nothing begins like a needle costs one lookup per
//! byte.

use std::collections::BTreeSet;
use std::ops::Range;

use super::MASK;
use super::decode::{self, DEPTH, Read};
use super::needle::Needle;

/// What is searched for, and how it may begin.
#[derive(Clone)]
pub struct Scan {
    /// By their first byte: a key file has hundreds, few of which begin alike.
    needles: Box<[Vec<Needle>; 256]>,
    /// Whether something may begin with a byte.
    begins: Box<[bool; 256]>,
}

impl Default for Scan {
    fn default() -> Self {
        Scan { needles: Box::new([const { Vec::new() }; 256]), begins: Box::new([false; 256]) }
    }
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Matches {
    /// The positions of secrets, in order, not overlapping.
    pub spans: Vec<Range<usize>>,
    /// The result is certain up to here; after it a secret may begin that continues beyond the end.
    pub certain: usize,
}

impl Matches {
    /// Writes the certain part of the text with its secrets masked.
    pub fn write(&self, text: &[u8], to: &mut Vec<u8>) {
        let mut from = 0;
        for span in &self.spans {
            to.extend_from_slice(&text[from..span.start]);
            to.extend_from_slice(MASK.as_bytes());
            from = span.end;
        }
        to.extend_from_slice(&text[from..self.written()]);
    }

    /// How much of the text [`Matches::write`] covers.
    pub fn written(&self) -> usize {
        self.spans.last().map_or(0, |last| last.end).max(self.certain)
    }

    /// Leaves the last character open: in base64 it may contain bits of what comes next.
    pub fn keep_last(&mut self) {
        self.certain = self.certain.saturating_sub(1);
    }
}

impl Scan {
    /// Adds needles.
    pub fn add(&mut self, needles: Vec<Needle>) {
        for needle in needles {
            if let Some(first) = needle.bytes.first() {
                self.begins[usize::from(*first)] = true;
                self.needles[usize::from(*first)].push(needle);
            }
        }
        for special in *b"%\\&+" {
            self.begins[usize::from(special)] = true;
        }
    }

    /// The positions of needles in a text; `is_whole` if nothing follows it.
    pub fn of(&self, text: &[u8], is_whole: bool) -> Matches {
        let mut found = Matches { spans: Vec::new(), certain: text.len() };
        let mut tries = Tries::default();
        for (at, byte) in text.iter().enumerate() {
            if !self.begins[usize::from(*byte)] {
                continue;
            }
            for needle in self.needles_at(text, at).flat_map(|first| &self.needles[usize::from(first)]) {
                match tries.at(needle, text, at) {
                    Tried::No => {}
                    Tried::CutOff if is_whole => {}
                    Tried::CutOff => {
                        found.certain = certain(&mut found.spans, at, needle);
                        return found;
                    }
                    Tried::Until(end) => {
                        if let Some(end) = behind(needle, text, end, is_whole) {
                            add(&mut found.spans, before(needle, text, at)..end);
                        } else {
                            found.certain = certain(&mut found.spans, at, needle);
                            return found;
                        }
                    }
                }
            }
        }
        found
    }

    /// First bytes of the needles that may begin at a position.
    fn needles_at(&self, text: &[u8], at: usize) -> Firsts {
        let mut firsts = Firsts::default();
        match decode::is_special(text[at]) {
            false => firsts.add(text[at]),
            true => decode::each(text, at, DEPTH, &mut |read| match read {
                Read::Unit(unit) => unit.bytes().iter().take(1).for_each(|first| firsts.add(*first)),
                Read::CutOff => firsts = Firsts::ALL,
            }),
        }
        firsts
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Default)]
struct Firsts([u128; 2]);

impl Firsts {
    /// The meaning of an escape that is cut off is unknown.
    const ALL: Firsts = Firsts([u128::MAX; 2]);

    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 7)] |= 1 << (byte & 0x7f);
    }
}

impl Iterator for Firsts {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let half = usize::from(self.0[0] == 0);
        let bits = self.0[half];
        let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
        self.0[half] = bits & (bits - 1);
        Some((half as u32 * 128 + lowest) as u8)
    }
}

/// Where a needle's encoding ends if it has been matched up to `end`; `None` if that depends on what follows.
fn behind(needle: &Needle, text: &[u8], end: usize, is_whole: bool) -> Option<usize> {
    if !needle.shared.is_base64 {
        return Some(end);
    }
    let end = match needle.shared.after {
        true => one(text, end, is_whole, is_base64)?,
        false => end,
    };
    let end = one(text, end, is_whole, |b| b == b'=')?;
    one(text, end, is_whole, |b| b == b'=')
}

/// The offset after one byte of a kind, however it is encoded; `at` itself if there is none.
fn one(text: &[u8], at: usize, is_whole: bool, is: fn(u8) -> bool) -> Option<usize> {
    let (mut end, mut is_cut_off) = (at, false);
    decode::each(text, at, DEPTH, &mut |read| match read {
        Read::Unit(unit) if matches!(unit.bytes(), [b] if is(*b)) => end = end.max(unit.end),
        Read::Unit(_) => {}
        Read::CutOff => is_cut_off = true,
    });
    (is_whole || !is_cut_off).then_some(end)
}

/// Where the encoding of a needle found at `at` begins.
fn before(needle: &Needle, text: &[u8], at: usize) -> usize {
    let shares = at > 0 && needle.shared.before && is_base64(text[at - 1]);
    at - usize::from(shares)
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Adds a span that begins no earlier than all others, except by one base64 character.
fn add(spans: &mut Vec<Range<usize>>, mut span: Range<usize>) {
    while let Some(last) = spans.pop_if(|last| last.end > span.start) {
        span = last.start.min(span.start)..last.end.max(span.end);
    }
    spans.push(span);
}

/// Up to where the result is certain if a needle may begin at `at` and continue beyond the end. Removes the spans that
/// extend further.
fn certain(spans: &mut Vec<Range<usize>>, at: usize, needle: &Needle) -> usize {
    let mut certain = at - usize::from(at > 0 && needle.shared.before);
    while let Some(last) = spans.pop_if(|last| last.end > certain) {
        certain = last.start;
    }
    certain
}

/// The result of matching at one position.
enum Tried {
    No,
    /// It matches up to here.
    Until(usize),
    /// The text ends before the match is decided.
    CutOff,
}

/// Parallel paths through a text and a needle, where the text can be decoded in more than one way.
#[derive(Default)]
struct Tries {
    /// How much of the needle has been matched, and where the text continues.
    open: Vec<(usize, usize)>,
    seen: BTreeSet<(usize, usize)>,
}

impl Tries {
    fn at(&mut self, needle: &Needle, text: &[u8], at: usize) -> Tried {
        let bytes = &needle.bytes;
        if text[at] != bytes[0] && !decode::is_special(text[at]) {
            return Tried::No;
        }
        self.open.clear();
        self.seen.clear();
        self.open.push((0, at));
        let (mut until, mut is_cut_off) = (None, false);
        while let Some((mut found, mut place)) = self.open.pop() {
            while found < bytes.len()
                && text.get(place).is_some_and(|b| *b == bytes[found] && !decode::is_special(*b))
            {
                found += 1;
                place += 1;
            }
            match text.get(place) {
                _ if found == bytes.len() => until = until.max(Some(place)),
                None => is_cut_off = true,
                Some(byte) if !decode::is_special(*byte) => {}
                Some(_) => is_cut_off |= self.branch(&bytes[found..], text, found, place),
            }
        }
        match until {
            Some(end) => Tried::Until(end),
            None if is_cut_off => Tried::CutOff,
            None => Tried::No,
        }
    }

    /// Continues with every way to decode what is here. Returns whether the text ends within one.
    fn branch(&mut self, rest: &[u8], text: &[u8], found: usize, place: usize) -> bool {
        let (open, seen, mut is_cut_off) = (&mut self.open, &mut self.seen, false);
        decode::each(text, place, DEPTH, &mut |read| match read {
            Read::Unit(unit) if rest.starts_with(unit.bytes()) => {
                let next = (found + unit.bytes().len(), unit.end);
                if seen.insert(next) {
                    open.push(next);
                }
            }
            Read::Unit(_) => {}
            Read::CutOff => is_cut_off = true,
        });
        is_cut_off
    }
}
