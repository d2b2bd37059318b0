//! Reports that were too large for one message, put together from their pieces.

use std::collections::BTreeMap;

use crate::reduce::ReportId;

/// Maximum number of pieces per report; the largest reports have only a few.
const MOST_PIECES: usize = 1_000;

/// Reassembles reports that were too large for one message.
#[derive(Debug, Default)]
pub struct Pieces {
    begun: BTreeMap<(u64, ReportId), Vec<Option<Vec<u8>>>>,
}

impl Pieces {
    /// Takes a piece of a load's report; returns the report once it is complete.
    pub fn take(
        &mut self,
        load: u64,
        id: ReportId,
        piece: usize,
        pieces: usize,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        if pieces > MOST_PIECES || piece >= pieces {
            return None;
        }
        if pieces == 1 {
            return Some(bytes.to_vec());
        }
        let begun = self.begun.entry((load, id)).or_insert_with(|| vec![None; pieces]);
        *begun.get_mut(piece)? = Some(bytes.to_vec());
        if begun.iter().any(Option::is_none) {
            return None;
        }
        Some(self.begun.remove(&(load, id))?.into_iter().flatten().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_a_report_in_any_order() {
        let id = ReportId { slot: 0, epoch: 0, number: 4 };
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(0, id, 0, 1, b"whole"), Some(b"whole".to_vec()));
        assert_eq!(pieces.take(0, id, 2, 3, b"c"), None);
        assert_eq!(pieces.take(1, id, 0, 3, b"other"), None);
        assert_eq!(pieces.take(0, id, 0, 3, b"a"), None);
        assert_eq!(pieces.take(0, id, 0, 3, b"a"), None);
        assert_eq!(pieces.take(0, id, 1, 3, b"b"), Some(b"abc".to_vec()));
        assert_eq!(pieces.take(0, id, 3, 3, b"d"), None);
        assert_eq!(pieces.take(0, id, 0, usize::MAX, b"d"), None);
    }
}
