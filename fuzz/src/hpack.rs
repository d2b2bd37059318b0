//! `hpack`: blocks are decoded or refused; decoded fields that are encoded again decode to the same fields; a Huffman
//! code represents only one text.
//!
//! Input: byte 0 is the table size divided by 16, then blocks, each preceded by a length byte.

use loadlab_load::protocol::http2::hpack::{Decoder, write_string};
use loadlab_load::protocol::http2::huffman;

const MAX_LIST: usize = 4096;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let (mut fields, mut size) = (Fields::new(), 0);
    let result = decoder.decode(block, |name, value| {
        size += name.len() + value.len() + 32;
        assert!(size <= MAX_LIST, "told more than the bound");
        fields.push((name.to_vec(), value.to_vec()));
    });
    result.is_ok().then_some(fields)
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [table, rest @ ..] = data else { return };
    let mut decoder = Decoder::new(usize::from(*table) * 16, MAX_LIST);
    let mut rest = rest;
    while let [length, after @ ..] = rest {
        let (block, next) = after.split_at(after.len().min(usize::from(*length)));
        rest = next;
        let Some(fields) = decode(&mut decoder, block) else { break };
        let mut packed = Vec::new();
        for (name, value) in &fields {
            packed.push(0);
            write_string(&mut packed, name);
            write_string(&mut packed, value);
        }
        assert_eq!(decode(&mut Decoder::new(0, MAX_LIST), &packed), Some(fields), "packed again");
    }
    let (mut text, mut code) = (Vec::new(), Vec::new());
    if huffman::decode(data, &mut text).is_ok() {
        huffman::encode(&text, &mut code);
        assert_eq!(code, data, "two codes for one text");
        assert_eq!(huffman::encoded_len(&text), code.len());
    }
}
