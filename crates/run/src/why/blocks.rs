//! One load in blocks: which change is made when, as events of the load's case, and what each block measured.

use std::collections::BTreeMap;

use loadlab_analysis::trial::components::cpu_s;
use loadlab_analysis::why::Block;
use loadlab_plan::{Case, EventSpec};
use loadlab_record::Histogram;
use loadlab_record::counts::hlog::Interval;
use loadlab_record::counts::load::Tick;
use loadlab_record::documents::event::{Event, EventKind};
use loadlab_record::documents::why::BlockFacts;
use loadlab_record::store::TrialRecord;
use loadlab_record::watch::sample::Sample;

use crate::rounds::rounds_in_random_order;
use crate::why::lever::{Lever, Setting};

/// How long a load runs before its first block, in seconds.
pub const WARM_UP_S: u64 = 3;
/// Seconds at the start of a block that do not count: earlier requests end, queues fill or drain.
const SETTLES_S: u64 = 1;

/// A change: a lever and the value it is set to.
#[derive(Clone, Copy)]
pub struct Change<'a> {
    /// The lever.
    pub lever: &'a Lever,
    /// The value it is set to.
    pub setting: &'a Setting,
}

impl Change<'_> {
    fn describe(&self) -> String {
        format!("{}: {}", self.lever.facts.name, self.setting.text)
    }
}

/// A load in blocks.
pub struct Blocks<'a> {
    changes: Vec<Change<'a>>,
    planned: Vec<PlannedBlock>,
    /// Length of the load in seconds.
    pub length_s: u64,
}

/// A block.
struct PlannedBlock {
    round: u32,
    /// Index of the change; `None`: nothing is changed.
    change: Option<usize>,
    from_s: u64,
    to_s: u64,
    /// The change was made in time and all seconds are present; known once the block was measured.
    counts: bool,
}

/// How long `rounds` rounds of this many changes take, in seconds.
pub fn rounds_s(rounds: u64, changes: usize, block_s: u64) -> u64 {
    (2 * rounds * changes as u64 + 1) * block_s
}

/// How many rounds of this many changes fit into `seconds`.
pub fn rounds_within(seconds: u64, changes: usize, block_s: u64) -> u64 {
    (seconds / block_s).saturating_sub(1) / (2 * changes.max(1) as u64)
}

impl<'a> Blocks<'a> {
    /// Plans the blocks: each round has every change once, in random order, with a block without a change before, after
    /// and between them.
    pub fn new(changes: Vec<Change<'a>>, rounds: u32, block_s: u64, seed: u64) -> Blocks<'a> {
        let drawn = rounds_in_random_order(changes.len(), rounds, seed);
        let changed = drawn.into_iter().flat_map(|(change, round)| [(round, Some(change)), (round, None)]);
        let planned =
            [(1, None)].into_iter().chain(changed).zip(0..).map(|((round, change), number): (_, u64)| {
                let from_s = WARM_UP_S + number * block_s;
                PlannedBlock { round, change, from_s, to_s: from_s + block_s, counts: false }
            });
        let planned: Vec<PlannedBlock> = planned.collect();
        let length_s = planned.last().map_or(WARM_UP_S, |last| last.to_s);
        Blocks { changes, planned, length_s }
    }

    /// These blocks, numbered after `rounds` rounds of another load.
    pub fn after(mut self, rounds: u32) -> Blocks<'a> {
        self.planned.iter_mut().for_each(|block| block.round += rounds);
        self
    }

    /// The events of the load: each change is made as its block begins, and the planned value is restored as the block
    /// ends. After the last block everything is as planned.
    pub fn events(&self) -> Vec<EventSpec> {
        let event = |at_s: u64, lever: &Lever, setting: &Setting| EventSpec {
            at_ns: at_s * 1_000_000_000,
            text: Change { lever, setting }.describe(),
            components: setting.components.clone(),
            action: setting.action,
        };
        let mut events = Vec::new();
        for block in &self.planned {
            let Some(change) = block.change else { continue };
            let Change { lever, setting } = self.changes[change];
            events.push(event(block.from_s, lever, setting));
            events.push(event(block.to_s, lever, &lever.now));
        }
        events
    }

    /// Events that restore every changed lever, however the load ended.
    pub fn restore(&self) -> Vec<EventSpec> {
        let mut levers: Vec<&Lever> = Vec::new();
        for change in &self.changes {
            if !levers.iter().any(|lever| lever.is(change.lever)) {
                levers.push(change.lever);
            }
        }
        let event = |lever: &&Lever| EventSpec {
            at_ns: 0,
            text: Change { lever, setting: &lever.now }.describe(),
            components: lever.now.components.clone(),
            action: lever.now.action,
        };
        levers.iter().map(event).collect()
    }

    /// What each block measured, in order.
    pub fn measure(&mut self, case: &str, trial: &TrialRecord, loads: usize) -> Vec<BlockFacts> {
        let made_s = made_s(&trial.events);
        for (place, block) in self.planned.iter_mut().enumerate() {
            // Every block but the first begins with a change or with the end of one.
            let made_s = place.checked_sub(1).map_or(Some(0.0), |place| made_s.get(place).copied());
            let is_in_time = made_s.is_some_and(|made_s| made_s <= (block.from_s + SETTLES_S) as f64);
            let goodput = goodput(&trial.ticks, block.from_s + SETTLES_S, block.to_s, loads);
            block.counts = is_in_time && goodput.is_some();
        }
        let of = |block: &PlannedBlock| {
            let from_s = block.from_s + SETTLES_S;
            BlockFacts {
                case: case.to_owned(),
                round: block.round,
                change: block.change.map_or_else(String::new, |change| self.changes[change].describe()),
                from_s,
                to_s: block.to_s,
                goodput_per_s: goodput(&trial.ticks, from_s, block.to_s, loads).filter(|_| block.counts),
            }
        };
        self.planned.iter().map(of).collect()
    }

    /// The blocks for the analysis, without incomplete ones.
    pub fn measured(&self, facts: &[BlockFacts]) -> Vec<Block> {
        let of = |(place, (block, facts)): (u32, (&PlannedBlock, &BlockFacts))| {
            let goodput_per_s = facts.goodput_per_s?;
            Some(Block { place, change: block.change, goodput_per_s })
        };
        (0..).zip(self.planned.iter().zip(facts)).filter_map(of).collect()
    }

    /// Adds the response times under a change, and the ages of requests that never ended.
    pub fn times(
        &self,
        change: Option<usize>,
        trial: &TrialRecord,
        all: &mut Histogram,
        censored: &mut Histogram,
    ) {
        for (from_s, to_s) in self.stretches(change) {
            let within = |i: &&Interval| is_within(i.from_s, i.to_s(), from_s, to_s);
            for interval in trial.intervals.iter().filter(within) {
                if interval.is("response") {
                    interval.merge_into(all);
                } else if interval.is("response_censored") {
                    interval.merge_into(censored);
                }
            }
        }
    }

    /// Mean CPU use of each component under a change, in cores.
    pub fn cores(&self, change: usize, samples: &BTreeMap<String, Vec<Sample>>) -> BTreeMap<String, f64> {
        let stretches = self.stretches(Some(change));
        let seconds: u64 = stretches.iter().map(|(from_s, to_s)| to_s - from_s).sum();
        if seconds == 0 {
            return BTreeMap::new();
        }
        let of = |(name, samples): (&String, &Vec<Sample>)| {
            let points: Vec<(f64, f64)> = samples.iter().filter_map(|s| Some((s.at_s, cpu_s(s)?))).collect();
            let used: Option<f64> = stretches
                .iter()
                .map(|(from_s, to_s)| Some(at(&points, *to_s as f64)? - at(&points, *from_s as f64)?))
                .sum();
            Some((name.clone(), used? / seconds as f64))
        };
        samples.iter().filter_map(of).collect()
    }

    fn stretches(&self, change: Option<usize>) -> Vec<(u64, u64)> {
        let blocks = self.planned.iter().filter(|block| block.counts && block.change == change);
        blocks.map(|block| (block.from_s + SETTLES_S, block.to_s)).collect()
    }
}

/// Seconds begin and end with this precision.
const EDGE_S: f64 = 0.05;

/// Whether an interval lies within the seconds `from_s` to `to_s`. What remains after the last second does not, however
/// short it is: those are responses that the load did not wait for.
fn is_within(begins_s: f64, ends_s: f64, from_s: u64, to_s: u64) -> bool {
    let (from_s, to_s) = (from_s as f64, to_s as f64);
    let middle_s = (begins_s + ends_s) / 2.0;
    begins_s >= from_s - EDGE_S && ends_s <= to_s + EDGE_S && (from_s..to_s).contains(&middle_s)
}

/// When each event of a load was carried out, in order: a command may take a while.
fn made_s(events: &[Event]) -> Vec<f64> {
    let made = |event: &&Event| matches!(event.what, EventKind::Action { error: None, .. });
    events.iter().filter(made).map(|event| event.at_s).collect()
}

/// Successful responses per second; `None` unless every one of these seconds is present as a separate tick.
fn goodput(ticks: &[Tick], from_s: u64, to_s: u64, loads: usize) -> Option<f64> {
    let seconds = (to_s - from_s) as f64;
    let within = |tick: &&Tick| is_within(tick.from_s, tick.to_s, from_s, to_s);
    let (mut ok, mut covered_s) = (0, 0.0);
    for tick in ticks.iter().filter(within) {
        ok += tick.counts.ok;
        covered_s += tick.to_s - tick.from_s;
    }
    (covered_s > seconds * loads as f64 - EDGE_S).then(|| ok as f64 / seconds)
}

/// Interpolates a counter between two readings; `None` outside them.
fn at(points: &[(f64, f64)], at_s: f64) -> Option<f64> {
    let after = points.partition_point(|(point_s, _)| *point_s < at_s);
    let (late_s, late) = *points.get(after)?;
    let (early_s, early) = *points.get(after.checked_sub(1)?)?;
    Some(early + (late - early) * (at_s - early_s) / (late_s - early_s))
}

/// The plan's case as a load of `length_s` seconds, on a system that stays up.
pub fn as_load(base: &Case, name: &str, length_s: u64) -> Case {
    let mut case = base.clone();
    case.name = name.to_owned();
    let warmup_ns = WARM_UP_S * 1_000_000_000;
    for load in &mut case.loads {
        load.until = loadlab_plan::Until::Elapsed(length_s * 1_000_000_000);
        (load.warmup_ns, load.is_warmup_found) = (warmup_ns, false);
        // Users that start together stay in step, so that a second would have one round of them more or less.
        load.ramp_ns = warmup_ns / 2;
        (load.batches, load.pause_ns, load.start_ns) = (1, 0, 0);
    }
    case.find = None;
    case.events = Vec::new();
    (case.drain, case.durability, case.control_of) = (None, None, None);
    (case.expect, case.stop_when) = (Vec::new(), Vec::new());
    case
}

#[cfg(test)]
mod tests {
    use loadlab_plan::{Action, LimitName};
    use loadlab_record::counts::load::Counts;
    use loadlab_record::documents::why::LeverFacts;

    use super::*;

    fn setting(value: f64) -> Setting {
        Setting {
            factor: value,
            text: format!("{value}"),
            action: Action::Limit { limit: LimitName::Cpu, value: Some(value) },
            components: vec!["db".to_owned()],
        }
    }

    fn lever(name: &str) -> Lever {
        let facts = LeverFacts { name: name.to_owned(), ..LeverFacts::default() };
        Lever { facts, now: setting(1.0), less: setting(0.9), more: vec![setting(1.1), setting(1.5)] }
    }

    #[test]
    fn every_round_has_every_change_and_all_is_as_planned_in_between_and_in_the_end() {
        let levers = [lever("a"), lever("b"), lever("c")];
        let changes = levers.iter().map(|lever| Change { lever, setting: &lever.less }).collect();
        let blocks = Blocks::new(changes, 5, 3, 7);
        assert_eq!(blocks.planned.len(), 5 * 2 * 3 + 1);
        assert_eq!(blocks.length_s, WARM_UP_S + rounds_s(5, 3, 3));
        assert!(blocks.planned.iter().step_by(2).all(|block| block.change.is_none()));
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        let mut events = blocks.events().into_iter().peekable();
        for block in &blocks.planned {
            while let Some(event) = events.next_if(|event| event.at_ns == block.from_s * 1_000_000_000) {
                let (lever, value) = event.text.split_once(": ").unwrap();
                now.insert(lever.to_owned(), value.to_owned());
            }
            let changed: Vec<&String> =
                now.iter().filter(|(_, value)| *value != "1").map(|(name, _)| name).collect();
            let wanted: Vec<&String> =
                block.change.iter().map(|change| &levers[*change].facts.name).collect();
            assert_eq!(changed, wanted, "from {} s", block.from_s);
        }
        assert!(events.next().is_none());
        for round in 1..=5 {
            let mut of_round: Vec<_> =
                blocks.planned.iter().filter(|b| b.round == round).map(|b| b.change).collect();
            of_round.retain(Option::is_some);
            of_round.sort();
            assert_eq!(of_round, [Some(0), Some(1), Some(2)]);
        }
        assert_eq!(blocks.restore().len(), 3);
    }

    #[test]
    fn a_block_whose_change_came_late_does_not_count() {
        let lever = lever("a");
        let mut blocks = Blocks::new(vec![Change { lever: &lever, setting: &lever.less }], 2, 3, 1);
        let mut trial = TrialRecord::empty(1, std::path::PathBuf::new());
        let tick = |s: u64| Tick {
            from_s: s as f64,
            to_s: s as f64 + 1.0,
            counts: Counts { ok: 10, ..Counts::default() },
            ..Tick::default()
        };
        trial.ticks = (0..blocks.length_s).map(tick).collect();
        let acted = |at_s: f64, error: Option<&str>| Event {
            at_s,
            what: EventKind::Action {
                what: "a: 0.9".into(),
                components: Vec::new(),
                error: error.map(str::to_owned),
            },
        };
        // Blocks of 3 s from 3 s on: planned, less, planned, less, planned. The second change takes 1.2 s, and the last
        // one is never undone.
        trial.events = vec![acted(6.01, None), acted(9.9, None), acted(13.2, None), acted(15.0, Some("no"))];
        let facts = blocks.measure("x", &trial, 1);
        let counted: Vec<bool> = facts.iter().map(|block| block.goodput_per_s.is_some()).collect();
        assert_eq!(counted, [true, true, true, false, false]);
        assert_eq!(blocks.measured(&facts).iter().map(|block| block.place).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(blocks.stretches(Some(0)), [(7, 9)]);
    }

    #[test]
    fn a_block_counts_only_if_all_of_its_seconds_are_there() {
        let tick = |from_s: f64, to_s: f64, ok: u64| Tick {
            from_s,
            to_s,
            counts: Counts { ok, ..Counts::default() },
            ..Tick::default()
        };
        let ticks = [tick(3.0, 4.0, 10), tick(4.0, 5.0, 20), tick(5.0, 6.0, 40), tick(6.0, 8.0, 80)];
        assert_eq!(goodput(&ticks, 4, 6, 1), Some(30.0));
        assert_eq!(goodput(&ticks, 6, 8, 1), Some(40.0));
        // A tick of two seconds is not within any single second.
        assert_eq!(goodput(&ticks, 5, 7, 1), None);
        assert_eq!(goodput(&ticks, 7, 9, 1), None);
        assert_eq!(goodput(&ticks, 4, 6, 2), None, "the other load has none");
        // Responses after the load's end do not belong to its last second, nor those of an earlier second to its first.
        let last = [tick(2.98, 3.0, 5), tick(3.0, 4.0, 10), tick(4.0, 4.03, 7)];
        assert_eq!(goodput(&last, 3, 4, 1), Some(10.0));
        let points = [(0.5, 1.0), (1.5, 2.0), (2.5, 4.0)];
        assert_eq!(
            [at(&points, 1.0), at(&points, 2.0), at(&points, 0.2), at(&points, 3.0)],
            [Some(1.5), Some(3.0), None, None]
        );
    }
}
