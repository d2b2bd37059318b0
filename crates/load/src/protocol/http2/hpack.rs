//! HPACK (RFC 7541): the decoder with its dynamic table, and the building blocks of an encoder.
//!
//! A block is decoded whole. The work a peer can cause is bounded: the table by the size that this side announces, the
//! list of fields by `max_list`. A block that exceeds it ends the connection, since expanding it further (two bytes can
//! represent a whole table entry) would be wasted work. The meaning of fields is not known here.

use std::collections::VecDeque;

use super::error::{HEAD_TOO_LARGE, Http2Error};
use super::frame::Code;
use super::huffman;

/// Size of the dynamic table unless a setting changes it (RFC 9113 §6.5.2).
pub const DEFAULT_TABLE: usize = 4096;
/// An entry's overhead (RFC 7541 §4.1), in the table and in a list of fields.
pub const ENTRY_OVERHEAD: usize = 32;

/// RFC 7541 appendix A. Index 1 is the first.
pub static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// How decoding a block used the decoder's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Whether it referred to the dynamic table.
    pub read: bool,
    /// Whether it changed the dynamic table or its size.
    pub changed: bool,
}

/// Decodes the blocks of one connection, in their order.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// Largest size that a block may set for the table.
    announced: usize,
    /// Longest list of fields, counted as in the RFC.
    max_list: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

const fn fault(message: &'static str) -> Http2Error {
    Http2Error { code: Code::COMPRESSION_ERROR, message }
}

const TRUNCATED: Http2Error = fault("a header block ends inside a field");

impl Decoder {
    /// With the announced table size and the longest list of fields, in bytes; names and values count, plus 32 bytes
    /// for each field.
    pub fn new(table_size: usize, max_list: usize) -> Self {
        Decoder {
            table: Table { limit: table_size, ..Table::default() },
            announced: table_size,
            max_list,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Decodes a whole block and reports its fields, in order.
    ///
    /// # Errors
    /// The encoding is broken, or the list is too long. Either makes the connection unusable.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<Touched, Http2Error> {
        let mut touched = Touched::default();
        let mut list = 0;
        let mut rest = block;
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                let (name, value) = self.table.get(index)?;
                touched.read |= index > STATIC.len();
                self.count(&mut list, name, value)?;
                field(name, value);
            } else if first & 0xe0 == 0x20 {
                if list > 0 {
                    return Err(fault("a table size update after a field"));
                }
                let size = integer(&mut rest, 5)?;
                if size > self.announced {
                    return Err(fault("a table size update beyond the announced size"));
                }
                self.table.resize(size);
                touched.changed = true;
            } else {
                let indexed = first & 0x40 != 0;
                let index = integer(&mut rest, if indexed { 6 } else { 4 })?;
                self.name.clear();
                if index == 0 {
                    string(&mut rest, &mut self.name)?;
                } else {
                    self.name.extend_from_slice(self.table.get(index)?.0);
                    touched.read |= index > STATIC.len();
                }
                self.value.clear();
                string(&mut rest, &mut self.value)?;
                self.count(&mut list, &self.name, &self.value)?;
                field(&self.name, &self.value);
                if indexed {
                    self.table.insert(&self.name, &self.value);
                    touched.changed = true;
                }
            }
        }
        Ok(touched)
    }

    #[inline]
    fn count(&self, list: &mut usize, name: &[u8], value: &[u8]) -> Result<(), Http2Error> {
        *list += name.len() + value.len() + ENTRY_OVERHEAD;
        if *list > self.max_list {
            return Err(HEAD_TOO_LARGE);
        }
        Ok(())
    }

    /// Frees the memory that an unusually long head took.
    #[inline]
    pub fn slim(&mut self, keep: usize) {
        for scratch in [&mut self.name, &mut self.value] {
            if scratch.capacity() > keep {
                *scratch = Vec::new();
            }
        }
    }
}

/// Reads an integer with a prefix of `prefix` bits (RFC 7541 §5.1). Values beyond 2²⁸ are rejected.
#[inline]
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Http2Error> {
    let mask = (1usize << prefix) - 1;
    let (first, mut after) = rest.split_first().ok_or(TRUNCATED)?;
    let mut value = usize::from(*first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (byte, next) = after.split_first().ok_or(TRUNCATED)?;
            after = next;
            if shift > 21 {
                return Err(fault("an integer in a header block is too large"));
            }
            value += usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = after;
    Ok(value)
}

/// Reads a string and appends it (RFC 7541 §5.2).
#[inline]
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Http2Error> {
    let encoded = rest.first().ok_or(TRUNCATED)? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length).ok_or(TRUNCATED)?;
    *rest = after;
    if encoded {
        huffman::decode(text, out).map_err(fault)
    } else {
        out.extend_from_slice(text);
        Ok(())
    }
}

/// The dynamic table (RFC 7541 §2.3.2): entries are stored one after another in `bytes`, the oldest first.
#[derive(Debug, Default)]
struct Table {
    bytes: Vec<u8>,
    /// Newest first.
    entries: VecDeque<Entry>,
    size: usize,
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl Entry {
    fn size(self) -> usize {
        self.name_len + self.value_len + ENTRY_OVERHEAD
    }
}

impl Table {
    #[inline]
    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), Http2Error> {
        if let Some((name, value)) = index.checked_sub(1).and_then(|i| STATIC.get(i)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = index.checked_sub(1 + STATIC.len()).and_then(|i| self.entries.get(i));
        let text = entry.and_then(|e| self.bytes.get(e.start..e.start + e.name_len + e.value_len));
        match (entry, text) {
            (Some(entry), Some(text)) => Ok(text.split_at(entry.name_len)),
            _ => Err(fault("an index outside the header table")),
        }
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        self.evict(self.limit.saturating_sub(size));
        if size > self.limit {
            // Not an error: it empties the table (RFC 7541 §4.4).
            return;
        }
        // Compacting only once dead bytes fill half the space moves each byte at most once.
        if self.bytes.len() + name.len() + value.len() > 2 * self.limit {
            self.compact();
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_front(Entry { start, name_len: name.len(), value_len: value.len() });
        self.size += size;
    }

    fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// Drops the oldest entries until at most `target` bytes are left.
    fn evict(&mut self, target: usize) {
        while self.size > target {
            let Some(entry) = self.entries.pop_back() else { break };
            self.size -= entry.size();
        }
        if self.entries.is_empty() {
            self.bytes.clear();
            self.size = 0;
        }
    }

    fn compact(&mut self) {
        let dead = self.entries.back().map_or(self.bytes.len(), |oldest| oldest.start);
        self.bytes.copy_within(dead.., 0);
        self.bytes.truncate(self.bytes.len() - dead);
        self.entries.iter_mut().for_each(|entry| entry.start -= dead);
    }
}

/// Appends an integer after the upper bits of its first byte.
#[inline]
pub fn write_integer(out: &mut Vec<u8>, upper: u8, prefix: u32, value: usize) {
    let mask = (1usize << prefix) - 1;
    if value < mask {
        out.push(upper | value as u8);
        return;
    }
    out.push(upper | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string, in the shorter of its two forms.
pub fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    let encoded = huffman::encoded_len(text);
    if encoded < text.len() {
        write_integer(out, 0x80, 7, encoded);
        huffman::encode(text, out);
    } else {
        write_integer(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes from hex digits, ignoring blanks.
    pub fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|d| (d[0] << 4 | d[1]) as u8).collect()
    }

    /// Fields as `name: value` lines.
    fn fields(decoder: &mut Decoder, block: &[u8]) -> Result<String, &'static str> {
        let mut lines = Vec::new();
        let decoded = decoder.decode(block, |name, value| {
            let text = String::from_utf8_lossy;
            lines.push(format!("{}: {}", text(name), text(value)));
        });
        decoded.map(|_| lines.join("\n")).map_err(|fault| fault.message)
    }

    /// Entries of the table, newest first, and its size.
    fn table(decoder: &Decoder) -> (Vec<String>, usize) {
        let entry = |i| {
            let (name, value) = decoder.table.get(62 + i).unwrap();
            format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
        };
        ((0..decoder.table.entries.len()).map(entry).collect(), decoder.table.size)
    }

    /// One example of appendix C: block, its fields, and the table and its size after it.
    type Example<'a> = (&'a str, &'a str, &'a [&'a str], usize);

    fn check_all(limit: usize, examples: &[Example<'_>]) {
        let mut decoder = Decoder::new(limit, 10_000);
        for (block, expect, entries, size) in examples {
            assert_eq!(fields(&mut decoder, &hex(block)).as_deref(), Ok(*expect), "{block}");
            assert_eq!(
                table(&decoder),
                (entries.iter().map(|e| (*e).to_owned()).collect(), *size),
                "{block}"
            );
        }
    }

    #[test]
    fn integers_of_appendix_c_1() {
        for (value, prefix, bytes) in
            [(10, 5, &[10][..]), (1337, 5, &[0x1f, 0x9a, 0x0a]), (42, 8, &[42]), (127, 7, &[127, 0])]
        {
            let mut out = Vec::new();
            write_integer(&mut out, 0, prefix, value);
            assert_eq!(out, bytes, "{value}");
            let mut rest = out.as_slice();
            assert_eq!(integer(&mut rest, prefix), Ok(value));
            assert!(rest.is_empty());
        }
        for (bytes, message) in [
            (&[0x1f][..], "a header block ends inside a field"),
            (&[0x1f, 0x80], "a header block ends inside a field"),
            (
                &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "an integer in a header block is too large",
            ),
            (&[0x1f, 0x80, 0x80, 0x80, 0x80, 0x80, 0], "an integer in a header block is too large"),
        ] {
            assert_eq!(integer(&mut &bytes[..], 5).unwrap_err().message, message, "{bytes:x?}");
        }
    }

    #[test]
    fn fields_of_appendix_c_2() {
        let whole = "custom-key: custom-header";
        let literal = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        check_all(4096, &[(literal, whole, &[whole], 55)]);
        check_all(4096, &[("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", &[], 0)]);
        check_all(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", &[], 0)]);
        check_all(4096, &[("82", ":method: GET", &[], 0)]);
    }

    const AUTHORITY: &str = ":authority: www.example.com";
    const NO_CACHE: &str = "cache-control: no-cache";
    const CUSTOM: &str = "custom-key: custom-value";

    fn requests(blocks: [&str; 3]) {
        let get = format!(":method: GET\n:scheme: http\n:path: /\n{AUTHORITY}");
        let cached = format!("{get}\n{NO_CACHE}");
        let third = format!(":method: GET\n:scheme: https\n:path: /index.html\n{AUTHORITY}\n{CUSTOM}");
        check_all(
            4096,
            &[
                (blocks[0], &get, &[AUTHORITY], 57),
                (blocks[1], &cached, &[NO_CACHE, AUTHORITY], 110),
                (blocks[2], &third, &[CUSTOM, NO_CACHE, AUTHORITY], 164),
            ],
        );
    }

    #[test]
    fn requests_of_appendix_c_3_and_4() {
        requests([
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ]);
        requests([
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ]);
    }

    fn responses(blocks: [&str; 3]) {
        let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
        let later = "date: Mon, 21 Oct 2013 20:13:22 GMT";
        let (private, location) = ("cache-control: private", "location: https://www.example.com");
        let (gzip, cookie) = (
            "content-encoding: gzip",
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        );
        let tail = format!("{private}\n{date}\n{location}");
        check_all(
            256,
            &[
                (
                    blocks[0],
                    &format!(":status: 302\n{tail}"),
                    &[location, date, private, ":status: 302"],
                    222,
                ),
                (
                    blocks[1],
                    &format!(":status: 307\n{tail}"),
                    &[":status: 307", location, date, private],
                    222,
                ),
                (
                    blocks[2],
                    &format!(":status: 200\n{private}\n{later}\n{location}\n{gzip}\n{cookie}"),
                    &[cookie, gzip, later],
                    215,
                ),
            ],
        );
    }

    #[test]
    fn responses_of_appendix_c_5_and_6() {
        responses([
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
             3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
             7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
             6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ]);
        responses([
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
             1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
             e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ]);
    }

    #[test]
    fn what_is_refused() {
        for (block, message) in [
            ("80", "an index outside the header table"),
            ("be", "an index outside the header table"),
            ("7f00 01 61", "an index outside the header table"),
            ("82 20", "a table size update after a field"),
            ("3f e2 1f", "a table size update beyond the announced size"),
            ("40", "a header block ends inside a field"),
            ("40 05 61", "a header block ends inside a field"),
            ("40 01 61 85 ff", "a header block ends inside a field"),
            ("00 81 ff 00", "Huffman padding is wrong"),
            ("00 7f ff ff ff ff 7f", "an integer in a header block is too large"),
        ] {
            assert_eq!(fields(&mut Decoder::new(4096, 1000), &hex(block)), Err(message), "{block}");
        }
    }

    #[test]
    fn bombs_end_at_the_bound_on_lists() {
        let mut decoder = Decoder::new(4096, 65_536);
        // An entry of nearly the whole table, then two bytes each that would copy it.
        let mut block = vec![0x40, 0x7f, 0xa1, 0x1e];
        block.extend(vec![b'a'; 4000]);
        block.push(0);
        assert!(decoder.decode(&block, |_, _| {}).is_ok());
        for bomb in [[0xbe, 0xbe], [0x7e, 0]] {
            let mut reported = 0;
            let result = decoder.decode(&bomb.repeat(30_000), |_, _| reported += 1);
            assert_eq!(result.unwrap_err().code, Code::ENHANCE_YOUR_CALM);
            assert!(reported <= 17, "{reported} fields reported");
        }
        assert!(decoder.table.bytes.len() <= 2 * 4096);
    }

    #[test]
    fn sizes_change_and_long_entries_empty_the_table() {
        let mut decoder = Decoder::new(100, 10_000);
        for _ in 0..1000 {
            assert!(fields(&mut decoder, b"\x40\x01a\x01b\x40\x01c\x01d").is_ok());
            assert!(decoder.table.bytes.capacity() <= 256, "{}", decoder.table.bytes.capacity());
        }
        assert_eq!(table(&decoder), (vec!["c: d".to_owned(), "a: b".to_owned()], 68));
        // 67 bytes hold one entry only; a later block may raise the size again.
        assert!(fields(&mut decoder, &hex("3f 24")).is_ok());
        assert_eq!(table(&decoder), (vec!["c: d".to_owned()], 34));
        assert!(fields(&mut decoder, &hex("20 3f 45")).is_ok());
        assert_eq!(table(&decoder).1, 0);
        assert!(fields(&mut decoder, b"\x40\x01a\x01b").is_ok());
        let mut long = vec![0x40, 80];
        long.extend(vec![b'x'; 80]);
        long.push(0);
        assert!(fields(&mut decoder, &long).is_ok());
        assert_eq!(table(&decoder).1, 0);
    }

    #[test]
    fn a_name_may_be_that_of_an_entry_it_evicts() {
        let mut decoder = Decoder::new(40, 1000);
        assert_eq!(fields(&mut decoder, b"\x40\x01a\x01b").as_deref(), Ok("a: b"));
        assert_eq!(fields(&mut decoder, b"\x7e\x02xy").as_deref(), Ok("a: xy"));
        assert_eq!(table(&decoder), (vec!["a: xy".to_owned()], 35));
    }

    proptest! {
        #[test]
        fn random_blocks_never_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8), limit in 0usize..300) {
            let mut decoder = Decoder::new(limit, 2000);
            for block in blocks {
                let _ = decoder.decode(&block, |_, _| {});
                prop_assert!(decoder.table.size <= limit);
                prop_assert!(decoder.table.bytes.len() <= 2 * limit);
                prop_assert_eq!(decoder.table.entries.iter().map(|e| e.size()).sum::<usize>(), decoder.table.size);
            }
        }

        #[test]
        fn strings_read_as_written(text in prop::collection::vec(any::<u8>(), 0..400)) {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            write_string(&mut out, &text);
            prop_assert!(out.len() <= text.len() + 3);
            let mut rest = out.as_slice();
            prop_assert!(string(&mut rest, &mut back).is_ok());
            prop_assert!(rest.is_empty());
            prop_assert_eq!(back, text);
        }
    }
}
