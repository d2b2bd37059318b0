//! Data feeds: rows of a CSV or JSON lines file, and which user gets which.
//!
//! [`Rows`] holds the columns that a load uses, read once and shared by all threads. A [`Cursor`] is one thread's share
//! of the order in which rows are dealt: n threads take positions in turn, so the shares of all threads make up the
//! whole order, for every n. This module takes bytes; the caller reads the files.

use loadlab_record::random::mixed;

use crate::journey::json;

/// Rows of a feed, with only the columns that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// All cells, one after the other.
    bytes: Vec<u8>,
    /// The end of each cell, row by row.
    ends: Vec<u32>,
    columns: usize,
}

/// Why a file is not a feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    /// There is no row.
    #[error("it has no rows")]
    Empty,
    /// There is no such column.
    #[error("it has no column `{column}`\nhint: its columns are {known}")]
    Column {
        /// The missing column.
        column: String,
        /// The columns that exist.
        known: String,
    },
    /// A line that is not a CSV record.
    #[error("line {line}: {why}")]
    Csv {
        /// Line number, from 1.
        line: u64,
        /// What is wrong, in words.
        why: String,
    },
    /// A line that is not a JSON map.
    #[error("line {line}: not a JSON map\nhint: JSON Lines have one `{{…}}` on each line")]
    Json {
        /// Line number, from 1.
        line: u64,
    },
    /// A map lacks a value that is used.
    #[error("line {line} has no `{column}`")]
    Missing {
        /// Line number, from 1.
        line: u64,
        /// The missing member.
        column: String,
    },
    /// The values exceed 4 GiB.
    #[error("its values exceed 4 GiB in total")]
    TooLarge,
}

impl Rows {
    /// Stands for no row.
    pub const NONE: u32 = u32::MAX;

    /// Reads CSV (RFC 4180) whose first line names the columns; keeps the `wanted` columns, in that order.
    ///
    /// # Errors
    /// See [`RowsError`].
    pub fn from_csv(bytes: &[u8], wanted: &[String]) -> Result<Rows, RowsError> {
        let mut reader = csv_reader(bytes);
        let header = read_header(&mut reader)?;
        let places = wanted.iter().map(|w| {
            let unknown = || unknown_column(w, &header);
            header.iter().position(|h| h == w).ok_or_else(unknown)
        });
        let places: Vec<usize> = places.collect::<Result<_, _>>()?;
        let mut rows = Rows { columns: wanted.len(), ..Rows::default() };
        let mut record = csv::ByteRecord::new();
        let mut count = 0;
        while reader.read_byte_record(&mut record).map_err(csv_error)? {
            places.iter().try_for_each(|place| rows.push(record.get(*place).unwrap_or_default()))?;
            count += 1;
        }
        rows.whole(count)
    }

    /// Reads JSON lines: one map per line, empty lines allowed; keeps the `wanted` members, in that order. Strings are
    /// kept without quotes and escapes, `null` as empty, anything else as written.
    ///
    /// # Errors
    /// See [`RowsError`].
    pub fn from_json_lines(bytes: &[u8], wanted: &[String]) -> Result<Rows, RowsError> {
        let mut rows = Rows { columns: wanted.len(), ..Rows::default() };
        let (mut text, mut count) = (Vec::new(), 0);
        for (line, row) in json_lines(bytes) {
            let not_json = |_| RowsError::Json { line };
            json::members(row, |_, _| {}).map_err(not_json)?;
            for column in wanted {
                let found = json::Pointer::to_member(column).find(row).map_err(not_json)?;
                let value = found.ok_or_else(|| RowsError::Missing { line, column: column.clone() })?;
                text.clear();
                if value.kind != json::JsonKind::Null {
                    value.write_text(&mut text).map_err(not_json)?;
                }
                rows.push(&text)?;
            }
            count += 1;
        }
        rows.whole(count)
    }

    fn push(&mut self, cell: &[u8]) -> Result<(), RowsError> {
        self.bytes.extend_from_slice(cell);
        self.ends.push(u32::try_from(self.bytes.len()).map_err(|_| RowsError::TooLarge)?);
        Ok(())
    }

    /// Completes a feed. One with no used column still has rows to run out of.
    fn whole(mut self, count: u64) -> Result<Rows, RowsError> {
        if count == 0 {
            return Err(RowsError::Empty);
        }
        if count >= u64::from(Rows::NONE) {
            return Err(RowsError::TooLarge);
        }
        if self.columns == 0 {
            self.columns = 1;
            self.ends = vec![0; count as usize];
        }
        Ok(self)
    }

    /// Number of rows.
    pub fn count(&self) -> u64 {
        self.ends.len().checked_div(self.columns).unwrap_or(0) as u64
    }

    /// A cell; `None` beyond the last row or column, and for [`Rows::NONE`].
    #[inline]
    pub fn cell(&self, row: u32, column: u16) -> Option<&[u8]> {
        let column = usize::from(column);
        if column >= self.columns {
            return None;
        }
        let at = (row as usize).checked_mul(self.columns)? + column;
        let to = *self.ends.get(at)? as usize;
        let from = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        self.bytes.get(from..to)
    }
}

/// Names of the columns of a CSV file.
///
/// # Errors
/// It has no first line, or that line is not CSV.
pub fn csv_columns(bytes: &[u8]) -> Result<Vec<String>, RowsError> {
    read_header(&mut csv_reader(bytes))
}

/// Names of the members of the first line of a JSON lines file.
///
/// # Errors
/// It has no line, or the first one is not a JSON map.
pub fn json_lines_columns(bytes: &[u8]) -> Result<Vec<String>, RowsError> {
    let (line, row) = json_lines(bytes).next().ok_or(RowsError::Empty)?;
    let mut columns = Vec::new();
    let read = json::members(row, |name, _| {
        let quoted = [b"\"", name, b"\""].concat();
        let mut plain = Vec::new();
        let name = json::Value { kind: json::JsonKind::Text, raw: &quoted };
        if name.write_text(&mut plain).is_ok() {
            columns.push(String::from_utf8_lossy(&plain).into_owned());
        }
    });
    read.map_err(|_| RowsError::Json { line })?;
    Ok(columns)
}

fn unknown_column(column: &str, known: &[String]) -> RowsError {
    let known: Vec<String> = known.iter().take(20).map(|k| format!("`{k}`")).collect();
    RowsError::Column { column: column.to_owned(), known: known.join(", ") }
}

fn csv_reader(bytes: &[u8]) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new().has_headers(false).from_reader(without_mark(bytes))
}

/// The content without the byte order mark that spreadsheets and editors write at the start: it is not part of a name.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn read_header(reader: &mut csv::Reader<&[u8]>) -> Result<Vec<String>, RowsError> {
    let mut record = csv::ByteRecord::new();
    if !reader.read_byte_record(&mut record).map_err(csv_error)? {
        return Err(RowsError::Empty);
    }
    Ok(record.iter().map(|name| String::from_utf8_lossy(name.trim_ascii()).into_owned()).collect())
}

fn csv_error(error: csv::Error) -> RowsError {
    let line = error.position().map_or(1, csv::Position::line);
    let why = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} values, but the first line has {expected_len}")
        }
        _ => error.to_string(),
    };
    RowsError::Csv { line, why }
}

/// Non-empty lines, numbered from 1.
fn json_lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = without_mark(bytes).split(|b| *b == b'\n').enumerate();
    lines.map(|(i, line)| (i as u64 + 1, line.trim_ascii())).filter(|(_, line)| !line.is_empty())
}

/// In which order rows are dealt, and whether more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dealing {
    /// Whether rows are dealt in an order derived from the seed, different in each pass; otherwise as in the file.
    pub is_shuffled: bool,
    /// Whether each row is dealt only once: after that the feed has run out.
    pub is_once: bool,
    /// Seed of the shuffled order.
    pub seed: u64,
}

/// One thread's share of the rows.
#[derive(Clone, Debug)]
pub struct Cursor {
    rows: u64,
    dealing: Dealing,
    /// Position of the next row in the whole order.
    position: u64,
    slots: u64,
}

impl Cursor {
    /// The share of `slot` (from 0) among `slots`.
    pub fn new(rows: u64, dealing: Dealing, slot: u64, slots: u64) -> Cursor {
        Cursor { rows, dealing, position: slot, slots: slots.max(1) }
    }

    /// The next row; `None` when the feed has run out.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "the order repeats endlessly, and must not be collected"
    )]
    pub fn next(&mut self) -> Option<u32> {
        if self.rows == 0 || self.dealing.is_once && self.position >= self.rows {
            return None;
        }
        let (round, place) = (self.position / self.rows, self.position % self.rows);
        self.position += self.slots;
        let row = if self.dealing.is_shuffled {
            shuffled(place, self.rows, self.dealing.seed ^ mixed(round))
        } else {
            place
        };
        Some(row as u32)
    }
}

/// Maps a position through a permutation of `0..count` derived from the seed: no list is kept, so threads share an
/// order without sharing memory. A Feistel network permutes the next power of four; a value outside the range is
/// permuted again until it is inside (cycle walking), which takes fewer than four steps on average.
#[inline]
fn shuffled(place: u64, count: u64, seed: u64) -> u64 {
    // Four would suffice for large files; with few rows each round mixes little.
    const ROUNDS: u64 = 8;
    let half_bits = (64 - count.saturating_sub(1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half_bits) - 1;
    let mut value = place;
    loop {
        let (mut left, mut right) = (value >> half_bits, value & mask);
        for round in 0..ROUNDS {
            let turned = left ^ (mixed(right ^ mixed(seed ^ mixed(round))) & mask);
            (left, right) = (right, turned);
        }
        value = left << half_bits | right;
        if value < count {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|n| (*n).to_owned()).collect()
    }

    fn all(rows: &Rows) -> Vec<Vec<String>> {
        let cell = |row, column| rows.cell(row, column).map(|c| String::from_utf8_lossy(c).into_owned());
        (0..rows.count() as u32)
            .map(|row| (0..rows.columns as u16).map(|c| cell(row, c).unwrap()).collect())
            .collect()
    }

    #[test]
    fn csv_is_read() {
        let text = b"\xef\xbb\xbfid, name ,mail\r\n1,Ada,\"a,\"\"b\"\"\nc\"\r\n\n2,,x";
        let rows = Rows::from_csv(text, &names(&["mail", "id"])).unwrap();
        assert_eq!(all(&rows), [["a,\"b\"\nc", "1"], ["x", "2"]]);
        assert_eq!((rows.cell(2, 0), rows.cell(0, 2), rows.cell(Rows::NONE, 0)), (None, None, None));
        assert_eq!(csv_columns(text).unwrap(), ["id", "name", "mail"]);
        assert_eq!(Rows::from_csv(text, &[]).unwrap().count(), 2);
    }

    #[test]
    fn json_lines_are_read() {
        let text = b"{\"id\": 1, \"na\\u006de\": \"A\\nB\", \"x\": {\"a\": [1]}}\r\n\n {\"name\": null, \"id\": 2.50, \"x\": true}\n";
        let rows = Rows::from_json_lines(text, &names(&["name", "x", "id"])).unwrap();
        assert_eq!(all(&rows), [["A\nB", "{\"a\": [1]}", "1"], ["", "true", "2.50"]]);
        assert_eq!(json_lines_columns(text).unwrap(), ["id", "name", "x"]);
        let marked = [&b"\xef\xbb\xbf"[..], text].concat();
        assert_eq!(Rows::from_json_lines(&marked, &names(&["name", "x", "id"])).unwrap(), rows);
        assert_eq!(json_lines_columns(&marked).unwrap(), ["id", "name", "x"]);
    }

    #[test]
    fn invalid_feeds_are_refused() {
        let csv = |text: &str| Rows::from_csv(text.as_bytes(), &names(&["id"])).unwrap_err().to_string();
        assert_eq!(csv(""), "it has no rows");
        assert_eq!(csv("id\n"), "it has no rows");
        assert_eq!(csv("a,b\n1,2"), "it has no column `id`\nhint: its columns are `a`, `b`");
        assert_eq!(csv("id,b\n1,2\n3"), "line 3: 1 values, but the first line has 2");
        let json =
            |text: &str| Rows::from_json_lines(text.as_bytes(), &names(&["id"])).unwrap_err().to_string();
        assert_eq!(json("\n\n"), "it has no rows");
        assert_eq!(
            json("{\"id\":1}\n[1]"),
            "line 2: not a JSON map\nhint: JSON Lines have one `{…}` on each line"
        );
        assert_eq!(
            json("{\"id\":1} x"),
            "line 1: not a JSON map\nhint: JSON Lines have one `{…}` on each line"
        );
        assert_eq!(json("{\"id\":1}\n\n{\"ID\":1}"), "line 3 has no `id`");
        assert!(json_lines_columns(b"").is_err() && csv_columns(b"").is_err());
    }

    fn dealt(cursor: &mut Cursor, most: usize) -> Vec<u32> {
        std::iter::from_fn(|| cursor.next()).take(most).collect()
    }

    #[test]
    fn rows_are_dealt_in_turn() {
        let mut cursor = Cursor::new(3, Dealing::default(), 0, 1);
        assert_eq!(dealt(&mut cursor, 7), [0, 1, 2, 0, 1, 2, 0]);
        let mut cursor = Cursor::new(3, Dealing { is_once: true, ..Dealing::default() }, 1, 2);
        assert_eq!(dealt(&mut cursor, 7), [1]);
        assert_eq!(cursor.next(), None);
        assert_eq!(Cursor::new(0, Dealing::default(), 0, 1).next(), None);
    }

    #[test]
    fn each_round_is_shuffled_anew() {
        let mut cursor = Cursor::new(50, Dealing { is_shuffled: true, is_once: false, seed: 1 }, 0, 1);
        let (first, second) = (dealt(&mut cursor, 50), dealt(&mut cursor, 50));
        assert_ne!(first, second);
        assert_ne!(first, (0..50).collect::<Vec<_>>());
        let mut again = Cursor::new(50, Dealing { is_shuffled: true, is_once: false, seed: 1 }, 0, 1);
        assert_eq!(dealt(&mut again, 50), first);
    }

    #[test]
    fn shuffling_is_fair() {
        // Where row 0 of seven goes, over many seeds: each position about equally often.
        let mut counts = [0u32; 7];
        (0..70_000).for_each(|seed| counts[shuffled(0, 7, seed) as usize] += 1);
        assert!(counts.iter().all(|n| (9_500..10_500).contains(n)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn shares_are_the_whole_and_each_row_comes_once(rows in 1u64..200, slots in 1u64..9, seed: u64, is_shuffled: bool) {
            let dealing = Dealing { is_shuffled, is_once: true, seed };
            let mut seen: Vec<u32> =
                (0..slots).flat_map(|slot| dealt(&mut Cursor::new(rows, dealing, slot, slots), 1000)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows as u32).collect::<Vec<_>>());
        }

        #[test]
        fn rounds_are_permutations(rows in 1u64..300, seed: u64) {
            let mut seen: Vec<u64> = (0..rows).map(|place| shuffled(place, rows, seed)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..rows).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_rows_or_refused(bytes: Vec<u8>, column in "[a-c]?") {
            for rows in [Rows::from_csv(&bytes, std::slice::from_ref(&column)), Rows::from_json_lines(&bytes, std::slice::from_ref(&column))].into_iter().flatten() {
                prop_assert!(rows.cell(rows.count() as u32 - 1, 0).is_some());
                prop_assert!(rows.cell(rows.count() as u32, 0).is_none());
            }
        }

        #[test]
        fn cells_come_back(table in prop::collection::vec(prop::collection::vec(".{0,6}", 2..3), 1..8)) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["a", "b"]).unwrap();
            table.iter().for_each(|row| writer.write_record(row).unwrap());
            let rows = Rows::from_csv(&writer.into_inner().unwrap(), &names(&["b", "a"])).unwrap();
            let expect: Vec<Vec<String>> = table.iter().map(|r| vec![r[1].clone(), r[0].clone()]).collect();
            prop_assert_eq!(all(&rows), expect);
        }
    }
}
