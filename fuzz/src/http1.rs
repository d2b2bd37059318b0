//! `http1`: however the bytes of a connection are cut, and whatever heads came before, the answers are the same.
//!
//! Input: byte 0 is flags (bit 0: the requests are HEADs), byte 1 seeds the cuts, the rest is the stream.

use loadlab_load::protocol::http1::{Http1Error, MAX_HEAD, Memo, Reader};

/// One answer as the engine sees it.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Complete: status, whether the connection is reusable, and the offset in the stream where the answer ends.
    Done { status: u16, keep_alive: bool, end: usize },
    /// The stream ended first: the status if the head was complete, and whether the end of the stream ends the answer.
    Open { status: Option<u16>, ends_with_connection: bool },
    /// Not a valid answer.
    Fault(Http1Error),
}

/// What the reader remembers between heads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Every head seen on the connection.
    Heads,
    /// Nothing.
    None,
}

/// An endless sequence of piece sizes; the same seed gives the same cuts.
pub(crate) struct Cuts {
    state: u32,
    whole: bool,
}

impl Cuts {
    pub(crate) fn whole() -> Self {
        Cuts { state: 0, whole: true }
    }

    pub(crate) fn seeded(seed: u8) -> Self {
        Cuts { state: u32::from(seed) * 2 + 1, whole: false }
    }

    pub(crate) fn next(&mut self, left: usize) -> usize {
        if self.whole {
            return left;
        }
        // Mostly small, occasionally large: heads should be cut many times, bodies a few times.
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let random = (self.state >> 16) as usize;
        let piece = if random.is_multiple_of(8) { random / 8 % 512 } else { random / 8 % 7 };
        (piece + 1).min(left)
    }
}

/// Reads a stream of answers back to back, each from where the previous one ended.
fn answers(stream: &[u8], no_body: bool, mut cuts: Cuts, memory: Memory) -> Vec<Answer> {
    let (mut reader, mut memo) = (Reader::default(), Memo::default());
    let (mut answers, mut at) = (Vec::new(), 0);
    let mut end_of_piece = 0;
    while at < stream.len() {
        if at == end_of_piece {
            end_of_piece += cuts.next(stream.len() - at);
        }
        if memory == Memory::None {
            memo = Memo::default();
        }
        let piece = &stream[at..end_of_piece];
        let fed = match reader.feed(piece, no_body, &mut memo) {
            Ok(fed) => fed,
            Err(fault) => {
                answers.push(Answer::Fault(fault));
                return answers;
            }
        };
        assert!(fed.used <= piece.len(), "{} of {} bytes used", fed.used, piece.len());
        assert!(fed.done || fed.used == piece.len(), "bytes left over in the middle of an answer");
        assert!(fed.head_end.is_none_or(|end| end <= fed.used), "the head ends behind what was used");
        at += fed.used;
        if fed.done {
            let head = reader.head().expect("a complete answer has a head");
            assert!((200..=999).contains(&head.status), "status {}", head.status);
            answers.push(Answer::Done { status: head.status, keep_alive: head.keep_alive, end: at });
            reader.reset();
            assert!(fed.used > 0, "an answer of no bytes");
        }
    }
    let ends_with_connection = reader.ends_with_connection();
    answers.push(Answer::Open { status: reader.head().map(|h| h.status), ends_with_connection });
    answers
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let [flags, seed, stream @ ..] = data else { return };
    let no_body = flags & 1 == 1;
    let expected = answers(stream, no_body, Cuts::whole(), Memory::None);
    for (cuts, memory) in [
        (Cuts::whole(), Memory::Heads),
        (Cuts::seeded(*seed), Memory::None),
        (Cuts::seeded(*seed), Memory::Heads),
        (Cuts::seeded(seed.wrapping_add(1)), Memory::Heads),
    ] {
        let found = answers(stream, no_body, cuts, memory);
        // Beyond the limit on heads, which of two faults is found first depends on how much arrived at once.
        let both_fault = |a: &Answer, b: &Answer| {
            stream.len() > MAX_HEAD && matches!((a, b), (Answer::Fault(_), Answer::Fault(_)))
        };
        let same = found.len() == expected.len()
            && found.iter().zip(&expected).all(|(a, b)| a == b || both_fault(a, b));
        assert!(same, "in one piece, without memory: {expected:?}\notherwise: {found:?}");
    }
}
