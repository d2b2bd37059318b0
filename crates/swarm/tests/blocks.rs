//! Agents' reports that were packed, unpacked and merged match what their parts counted; damaged bytes are rejected.

use loadlab_load::io::sim::Sim;
use loadlab_load::run::{PartReport, simulate};
use loadlab_load::{Control, LoadSpec};
use loadlab_swarm::block::{Block, pack, unpack};
use proptest::prelude::*;

use crate::support::{Varying, merged_of, reports, spec};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_was_packed_merges_to_the_same(
        rate in 1.0f64..300.0, parts in 1u64..6, is_closed: bool, has_warmup: bool, cut in 0.0f64..1.0
    ) {
        let spec = spec(rate, is_closed, has_warmup);
        let direct = merged_of(&spec, parts as usize, reports(&spec, parts).into_iter());
        let packed = reports(&spec, parts).into_iter().map(|report| (report.part, pack(&report.content)));
        let packed: Vec<(usize, Vec<u8>)> = packed.collect();
        let unpacked = packed.iter().map(|(part, bytes)| PartReport { part: *part, content: unpack(bytes).unwrap() });
        let over_bytes = merged_of(&spec, parts as usize, unpacked);
        prop_assert_eq!(&direct.measured, &over_bytes.measured);
        prop_assert_eq!(&direct.slowest, &over_bytes.slowest);
        prop_assert_eq!(direct.generator, over_bytes.generator);
        over_bytes.measured.counts.balance().unwrap();
        let alone = LoadSpec { threads: parts as usize, ..spec };
        let one = simulate(&alone, &Control::default(), &mut Sim::new(Varying), &mut |_| {}).unwrap();
        prop_assert_eq!(one.measured.series, over_bytes.measured.series);
        for (_, bytes) in packed {
            prop_assert!(unpack(&bytes[..(bytes.len() as f64 * cut) as usize]).is_err());
        }
    }

    /// A report whose histograms are damaged still counts: the merged totals add up.
    #[test]
    fn damaged_histograms_leave_the_accounts_whole(rate in 1.0f64..300.0, is_closed: bool, which in 0usize..60) {
        let spec = spec(rate, is_closed, false);
        let damage = |place: usize, report: PartReport| {
            let block = Block::open(&pack(&report.content)).unwrap();
            let is_counted = block.known().is_some();
            let block = if place == which && is_counted { block.without_last_byte() } else { block };
            let (content, whole) = block.into_content(None);
            (PartReport { part: report.part, content }, whole.is_err())
        };
        let all = reports(&spec, 2).into_iter().enumerate();
        let read: Vec<(PartReport, bool)> = all.map(|(place, report)| damage(place, report)).collect();
        let damaged = read.iter().filter(|(_, is_damaged)| *is_damaged).count();
        let direct = merged_of(&spec, 2, reports(&spec, 2).into_iter());
        let merged = merged_of(&spec, 2, read.into_iter().map(|(report, _)| report));
        prop_assert!(damaged <= 1);
        prop_assert_eq!(&direct.measured.counts, &merged.measured.counts);
        merged.measured.counts.balance().unwrap();
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes: Vec<u8>) {
        let _ = unpack(&bytes);
    }
}
