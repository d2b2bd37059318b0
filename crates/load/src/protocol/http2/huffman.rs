//! The Huffman code of HPACK (RFC 7541 appendix B).
//!
//! The code is canonical: among codes of one length, symbols ascend. So the lengths suffice, and the tables are
//! computed from them at compile time.

/// Code lengths in bits, by byte, and for the end-of-string symbol.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const SYMBOLS: usize = 257;
const END_OF_STRING: u16 = 256;
const MAX_CODE_BITS: usize = 30;
/// Codes of up to this many bits are found with one lookup.
const LOOKUP_BITS: usize = 10;

/// Symbols by length, then by value: the order in which codes ascend.
const SORTED: [u16; SYMBOLS] = {
    let mut sorted = [0; SYMBOLS];
    let (mut n, mut length) = (0, 0);
    while length <= MAX_CODE_BITS {
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                sorted[n] = symbol as u16;
                n += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    sorted
};

/// For each code length: its first code, how many codes it has, and where they begin in [`SORTED`].
const BY_LENGTH: [(u32, u32, u32); MAX_CODE_BITS + 1] = {
    let mut table = [(0, 0, 0); MAX_CODE_BITS + 1];
    let (mut code, mut at, mut length) = (0u32, 0u32, 1);
    while length <= MAX_CODE_BITS {
        code <<= 1;
        let first = at;
        while (at as usize) < SYMBOLS && LENGTHS[SORTED[at as usize] as usize] as usize == length {
            at += 1;
        }
        table[length] = (code, at - first, first);
        code += at - first;
        length += 1;
    }
    table
};

/// The code of each symbol.
const CODES: [u32; SYMBOLS] = {
    let mut codes = [0; SYMBOLS];
    let mut at = 0;
    while at < SYMBOLS {
        let symbol = SORTED[at] as usize;
        let (code, _, first) = BY_LENGTH[LENGTHS[symbol] as usize];
        codes[symbol] = code + (at as u32 - first);
        at += 1;
    }
    codes
};

/// By the next [`LOOKUP_BITS`] bits: code length in the high byte, decoded byte in the low one; 0 if the code is longer.
static LOOKUP: [u16; 1 << LOOKUP_BITS] = {
    let mut look = [0; 1 << LOOKUP_BITS];
    let mut symbol = 0;
    while symbol < 256 {
        let length = LENGTHS[symbol] as usize;
        if length <= LOOKUP_BITS {
            let first = (CODES[symbol] as usize) << (LOOKUP_BITS - length);
            let mut i = 0;
            while i < 1 << (LOOKUP_BITS - length) {
                look[first + i] = (length as u16) << 8 | symbol as u16;
                i += 1;
            }
        }
        symbol += 1;
    }
    look
};

/// Number of bytes that `text` takes when encoded.
pub fn encoded_len(text: &[u8]) -> usize {
    text.iter().map(|b| LENGTHS[*b as usize] as usize).sum::<usize>().div_ceil(8)
}

/// Appends the encoded `text`.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0u64, 0u32);
    for byte in text {
        let length = u32::from(LENGTHS[*byte as usize]);
        bits = bits << length | u64::from(CODES[*byte as usize]);
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // The rest of the last byte is the beginning of end-of-string: ones.
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
}

/// Appends the decoded `input`; at most 8/5 of its length.
///
/// # Errors
/// What is wrong, in words: end-of-string inside, or padding that is not a prefix of end-of-string.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.reserve(input.len() * 8 / 5 + 1);
    let mut rest = input;
    // Unused bits are at the upper end.
    let (mut bits, mut count) = (0u64, 0u32);
    loop {
        if count < MAX_CODE_BITS as u32 {
            if let Some((four, after)) = rest.split_first_chunk::<4>() {
                bits |= u64::from(u32::from_be_bytes(*four)) << (32 - count);
                count += 32;
                rest = after;
            } else {
                for byte in rest {
                    bits |= u64::from(*byte) << (56 - count);
                    count += 8;
                }
                rest = &[];
            }
        }
        if count == 0 {
            return Ok(());
        }
        // Bits after the end read as padding, so a lookup never reads past it.
        let padded = bits | u64::MAX >> count;
        let look = LOOKUP[(padded >> (64 - LOOKUP_BITS)) as usize];
        let (length, symbol) = if look != 0 { (u32::from(look >> 8), look & 0xff) } else { long(padded) };
        if length > count {
            return if count < 8 && padded == u64::MAX { Ok(()) } else { Err("Huffman padding is wrong") };
        }
        if symbol == END_OF_STRING {
            return Err("end-of-string inside a Huffman string");
        }
        out.push(symbol as u8);
        bits <<= length;
        count -= length;
    }
}

/// Length and symbol of a code of more than [`LOOKUP_BITS`] bits at the upper end.
#[cold]
fn long(bits: u64) -> (u32, u16) {
    for (length, (first, codes, at)) in BY_LENGTH.iter().enumerate().skip(LOOKUP_BITS + 1) {
        let code = (bits >> (64 - length)) as u32;
        if let Some(nth) = code.checked_sub(*first).filter(|nth| nth < codes) {
            return (length as u32, SORTED[(at + nth) as usize]);
        }
    }
    // The code is complete: every 30 bits begin with one.
    (MAX_CODE_BITS as u32, END_OF_STRING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        super::super::hpack::tests::hex(text)
    }

    #[test]
    fn the_code_is_complete_and_ends_in_ones() {
        let sum: u64 = LENGTHS.iter().map(|l| 1u64 << (MAX_CODE_BITS - *l as usize)).sum();
        assert_eq!(sum, 1 << MAX_CODE_BITS);
        assert_eq!(CODES[END_OF_STRING as usize], (1 << MAX_CODE_BITS) - 1);
        // Some codes of appendix B, one of every kind of length.
        for (symbol, code) in
            [(b'0', 0), (b'a', 3), (b' ', 0x14), (b'Z', 0xfd), (0, 0x1ff8), (b'\n', 0x3fff_fffc)]
        {
            assert_eq!(CODES[symbol as usize], code, "{symbol}");
        }
    }

    #[test]
    fn examples_of_the_rfc() {
        for (text, code) in [
            ("www.example.com", "f1e3 c2e5 f23a 6ba0 ab90 f4ff"),
            ("no-cache", "a8eb 1064 9cbf"),
            ("custom-key", "25a8 49e9 5ba9 7d7f"),
            ("Mon, 21 Oct 2013 20:13:21 GMT", "d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff"),
        ] {
            let mut out = Vec::new();
            encode(text.as_bytes(), &mut out);
            assert_eq!(out, hex(code), "{text}");
            assert_eq!(out.len(), encoded_len(text.as_bytes()));
            let mut back = Vec::new();
            decode(&out, &mut back).unwrap();
            assert_eq!(back, text.as_bytes());
        }
    }

    #[test]
    fn padding_and_end_of_string() {
        let check = |input: &[u8], expect: Result<&[u8], &str>| {
            let mut out = Vec::new();
            assert_eq!(decode(input, &mut out).map(|()| out.as_slice()), expect, "{input:x?}");
        };
        check(b"", Ok(b""));
        // `a` is 00011.
        check(&[0b0001_1111], Ok(b"a"));
        check(&[0b0001_1110], Err("Huffman padding is wrong"));
        check(&[0b0001_1000], Err("Huffman padding is wrong"));
        // More than seven bits of padding.
        check(&[0b0001_1111, 0xff], Err("Huffman padding is wrong"));
        check(&[0xff], Err("Huffman padding is wrong"));
        check(&[0xff; 3], Err("Huffman padding is wrong"));
        check(&[0xff; 4], Err("end-of-string inside a Huffman string"));
        check(&[0xff; 40], Err("end-of-string inside a Huffman string"));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let (mut code, mut back) = (Vec::new(), Vec::new());
            encode(&text, &mut code);
            prop_assert_eq!(code.len(), encoded_len(&text));
            prop_assert_eq!(decode(&code, &mut back), Ok(()));
            prop_assert_eq!(back, text);
        }

        #[test]
        fn there_is_one_code_for_each_text(code in prop::collection::vec(any::<u8>(), 0..60)) {
            let (mut text, mut again) = (Vec::new(), Vec::new());
            if decode(&code, &mut text).is_ok() {
                encode(&text, &mut again);
                prop_assert_eq!(&again, &code);
            }
            prop_assert!(text.len() <= code.len() * 8 / 5);
        }
    }
}
