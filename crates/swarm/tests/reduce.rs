//! Reports that arrive in any order, more than once, or not at all.

use std::cell::Cell;
use std::collections::BTreeMap;

use loadlab_load::random::Random;
use loadlab_load::run::{LoadEvent, PartReport};
use loadlab_record::text::time::SECOND_NS;
use loadlab_swarm::block::{Block, pack};
use loadlab_swarm::reduce::{Reducer, ReportId};
use proptest::prelude::*;

use crate::support::{merged_blocks, merged_of, reports, spec};

/// Every report with its id, as bytes, so that it can be taken more than once.
fn numbered(reports: Vec<PartReport>) -> Vec<(ReportId, Vec<u8>)> {
    let mut next: BTreeMap<usize, u64> = BTreeMap::new();
    let numbered = reports.into_iter().map(|report| {
        let number = next.entry(report.part).or_default();
        *number += 1;
        (ReportId { slot: report.part, epoch: 0, number: *number - 1 }, pack(&report.content))
    });
    numbered.collect()
}

fn shuffled<T>(mut items: Vec<T>, random: &mut Random) -> Vec<T> {
    for i in (1..items.len()).rev() {
        items.swap(i, random.next_u64() as usize % (i + 1));
    }
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn order_and_repetition_do_not_matter(
        rate in 1.0f64..300.0, parts in 1u64..6, is_closed: bool, seed: u64, repeated in 0usize..20
    ) {
        let spec = spec(rate, is_closed, false);
        let slots = parts as usize;
        let direct = merged_of(&spec, slots, reports(&spec, parts).into_iter());
        let mut random = Random::new(seed);
        let mut arriving = numbered(reports(&spec, parts));
        for _ in 0..repeated {
            let again = arriving[random.next_u64() as usize % arriving.len()].clone();
            arriving.push(again);
        }
        let (mut reducer, mut ordered) = (Reducer::new(slots), Vec::new());
        for (id, bytes) in shuffled(arriving, &mut random) {
            ordered.extend(reducer.take(id, Block::open(&bytes).unwrap()));
        }
        prop_assert!(reducer.is_over() && reducer.finish().is_empty());
        let merged = merged_blocks(&spec, slots, ordered.into_iter(), &mut |_| {});
        prop_assert_eq!(&direct.measured, &merged.measured);
        prop_assert_eq!(&direct.slowest, &merged.slowest);
    }

    /// An agent is lost after some of its reports. What it sent until then counts, requests in flight stay in flight,
    /// the totals add up, and what it sends after coming back is not counted.
    #[test]
    fn what_a_lost_agent_leaves_open_is_in_flight(
        rate in 20.0f64..300.0, parts in 1u64..6, is_closed: bool, lost in 0usize..6, kept in 0u64..4
    ) {
        let spec = spec(rate, is_closed, false);
        let (slots, lost) = (parts as usize, lost % parts as usize);
        let (mut reducer, mut ordered, mut late) = (Reducer::new(slots), Vec::new(), Vec::new());
        let (mut until_ns, mut in_flight) = (0, 0);
        for (id, bytes) in numbered(reports(&spec, parts)) {
            let block = Block::open(&bytes).unwrap();
            if id.slot != lost || id.number < kept {
                if let (Some(known), true) = (block.known(), id.slot == lost) {
                    (until_ns, in_flight) = (known.until_ns, known.in_flight);
                }
                ordered.extend(reducer.take(id, block));
            } else {
                late.push((id, block));
            }
        }
        prop_assume!(!late.is_empty());
        let what = reducer.lose(lost).expect("it has not ended");
        prop_assert_eq!((what.until_ns, what.in_flight, what.epoch), (until_ns, in_flight, 0));
        prop_assert_eq!(reducer.lose(lost), None);
        for (id, block) in late {
            prop_assert!(reducer.take(id, block).is_empty());
        }
        prop_assert!(!reducer.is_over());
        ordered.extend(reducer.finish());
        prop_assert!(reducer.is_over());
        let merged = merged_blocks(&spec, slots, ordered.into_iter(), &mut |_| {});
        merged.measured.counts.balance().unwrap();
        prop_assert!(merged.measured.counts.in_flight >= in_flight);
    }

    /// The seconds of the others are complete without a part that nobody sends, and the totals are the same as if they
    /// had waited for it.
    #[test]
    fn a_vacant_part_does_not_hold_up_the_others(rate in 20.0f64..300.0, kept in 0u64..3) {
        let spec = spec(rate, false, false);
        let merged = |passes: bool| {
            let (mut reducer, mut ordered) = (Reducer::new(2), Vec::new());
            let (first, others): (Vec<_>, Vec<_>) =
                numbered(reports(&spec, 2)).into_iter().partition(|(id, _)| id.slot == 0);
            for (id, bytes) in first.iter().filter(|(id, _)| id.number < kept) {
                ordered.extend(reducer.take(*id, Block::open(bytes).unwrap()));
            }
            reducer.lose(0).expect("it has not ended");
            if passes {
                (0..=2).for_each(|s| ordered.extend(reducer.pass(0, s * SECOND_NS)));
            }
            for (id, bytes) in &others {
                ordered.extend(reducer.take(*id, Block::open(bytes).unwrap()));
            }
            let at = ordered.len();
            ordered.extend(reducer.finish());
            let (taken, mut seconds) = (Cell::new(0), Vec::new());
            let blocks = ordered.into_iter().inspect(|_| taken.set(taken.get() + 1));
            let outcome = merged_blocks(&spec, 2, blocks, &mut |event| {
                if let LoadEvent::Second(second) = event {
                    seconds.push((taken.get() <= at, second.tick.to_s - second.tick.from_s));
                }
            });
            (outcome, seconds)
        };
        let ((waited, _), (passed, seconds)) = (merged(false), merged(true));
        prop_assert_eq!(&waited.measured.counts, &passed.measured.counts);
        prop_assert_eq!(&waited.measured.series, &passed.measured.series);
        let in_time = seconds.iter().filter(|(is_early, length_s)| *is_early && *length_s <= 1.0);
        prop_assert!(in_time.count() >= 2, "{:?}", seconds);
    }

    /// A replacement's reports count from its epoch on, even those that arrived before the replacement was known; the
    /// lost agent's no longer count.
    #[test]
    fn a_replacement_is_not_counted_beside_the_lost_agent(rate in 20.0f64..300.0, kept in 0u64..3) {
        let spec = spec(rate, false, false);
        let (mut reducer, mut ordered) = (Reducer::new(1), Vec::new());
        let all = numbered(reports(&spec, 1));
        let (first, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(id, _)| id.number < kept);
        for (id, bytes) in &first {
            ordered.extend(reducer.take(*id, Block::open(bytes).unwrap()));
        }
        // The replacement reports what the lost agent would have reported.
        let epoch_1 = |id: &ReportId| ReportId { epoch: 1, number: id.number - kept, ..*id };
        let (early, later) = rest.split_at(rest.len() / 2);
        for (id, bytes) in early {
            prop_assert!(reducer.take(epoch_1(id), Block::open(bytes).unwrap()).is_empty());
        }
        prop_assert_eq!(reducer.replace(0).map(|(epoch, _)| epoch), None);
        let lost = reducer.lose(0).expect("it has not ended");
        for (id, bytes) in &rest {
            prop_assert!(reducer.take(*id, Block::open(bytes).unwrap()).is_empty());
        }
        let (epoch, came) = reducer.replace(0).expect("it is vacant");
        prop_assert_eq!(epoch, 1);
        ordered.extend(came);
        for (id, bytes) in later {
            ordered.extend(reducer.take(epoch_1(id), Block::open(bytes).unwrap()));
        }
        prop_assert!(reducer.is_over());
        let direct = merged_of(&spec, 1, reports(&spec, 1).into_iter());
        let merged = merged_blocks(&spec, 1, ordered.into_iter(), &mut |_| {});
        // The same load, plus the requests that stay in flight for good.
        prop_assert_eq!(merged.measured.counts.in_flight, direct.measured.counts.in_flight + lost.in_flight);
        prop_assert_eq!(merged.measured.counts.ok, direct.measured.counts.ok);
        // How long they had been in flight is not known: at least no time.
        let mut expected = direct.measured.series;
        expected.response_censored.record_n(0, lost.in_flight);
        prop_assert_eq!(merged.measured.series, expected);
    }
}
