//! `block`: any bytes an agent reports are either refused or read, and what is read packs to the same bytes again. A
//! report with damaged histograms keeps its counts.
//!
//! Input: byte 0 says whether the rest is to be packed here (odd) or is already a packed block, so that a fuzzer need
//! not learn deflate.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use loadlab_load::run::PartContent;
use loadlab_swarm::block::{Block, pack, unpack};

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [is_unpacked, content @ ..] = data else { return };
    let packed = if is_unpacked % 2 == 1 { deflated(content) } else { content.to_vec() };
    let block = match Block::open(&packed) {
        Ok(block) => block,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let known = block.known();
    let (content, whole) = block.into_content(None);
    assert_eq!(unpack(&packed).is_ok(), whole.is_ok());
    match (&content, known) {
        (PartContent::Counted(delta), Some(known)) => {
            let read = (delta.until_ns, delta.in_flight, delta.window_to_ns);
            assert_eq!(read, (known.until_ns, known.in_flight, known.window_to_ns));
        }
        (PartContent::Ended(_), None) => {}
        (content, known) => panic!("{known:?} became {content:?}"),
    }
    let again = pack(&content);
    let back = unpack(&again).expect("what was packed here");
    assert_eq!(pack(&back), again, "{content:?}");
}

/// Compresses as agents do.
pub fn deflated(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}
