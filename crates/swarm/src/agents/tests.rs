//! Agents that join, answer, fall silent and are replaced.

use loadlab_load::measure::delta::{Delta, Sizes};
use loadlab_load::run::PartContent;
use loadlab_record::text::time::SECOND_NS;

use super::*;
use crate::block::pack_counted;

fn claim(agent: &str) -> Claim {
    Claim { agent: agent.to_owned(), id: format!("id of {agent}"), threads: 2 }
}

#[test]
fn a_slot_has_one_agent() {
    let mut agents = Agents::new(2);
    agents.claim(1, 0, claim("a"), 5);
    agents.claim(1, 0, claim("b"), 6);
    agents.claim(7, 0, claim("c"), 6);
    let open = OpenSlot { slot: 0, epoch: 0, from_order: 0 };
    assert_eq!((agents.open(), agents.name(1), agents.name(0)), (vec![open], "a", "nobody"));
    assert_eq!((agents.threads(None), agents.threads(Some(4))), (vec![1, 2], vec![4, 4]));
    assert_eq!(agents.ids(), ["", "id of a"]);
}

#[test]
fn a_load_begins_when_all_are_ready_and_not_if_one_refuses() {
    let mut agents = Agents::new(2);
    agents.ordered(3, 0);
    let ready = |uncertainty_ns| Answer {
        load: 3,
        ready: Ok(Clock { offset_ns: 0, uncertainty_ns }),
        joins_ns: None,
    };
    assert_eq!(agents.readiness(3), Readiness::Waiting(vec![0, 1]));
    agents.answered(1, 0, ready(7));
    agents.answered(9, 0, ready(7));
    assert_eq!(agents.readiness(3), Readiness::Waiting(vec![0]));
    let mut refused = Agents::new(2);
    refused.ordered(3, 0);
    refused.answered(0, 0, Answer { load: 3, ready: Err("no".into()), joins_ns: None });
    assert_eq!(refused.readiness(3), Readiness::Refused(0, "no".into()));
    agents.answered(0, 0, ready(4));
    // Only the first answer counts.
    agents.answered(0, 0, ready(40));
    assert_eq!(agents.readiness(3), Readiness::Ready { uncertainty_ns: 7 });
    assert_eq!(agents.damage(3), None);
    agents.answered(1, 0, Answer { load: 3, ready: Err("the disk is full".into()), joins_ns: None });
    assert_eq!(agents.damage(3), Some("agent nobody (slot 1): the disk is full"));
}

/// All agents are silent while the server or the coordinator is stalled: their messages are still to come.
#[test]
fn no_agent_is_lost_while_the_coordinator_does_not_hear_itself() {
    let mut agents = Agents::new(1);
    agents.claim(0, 0, claim("a"), 0);
    agents.ordered(0, 0);
    agents.heard(LOST_AFTER_NS, LOST_AFTER_NS);
    assert_eq!(
        (agents.lost(0, 9 * LOST_AFTER_NS), agents.deaf_for_ns(9 * LOST_AFTER_NS)),
        (vec![], 8 * LOST_AFTER_NS)
    );
    // Everything it sent itself arrives before anything of the agent, which gets some time from then on.
    for said_ns in [2, 4, 8].map(|times| times * LOST_AFTER_NS) {
        agents.heard(said_ns, 9 * LOST_AFTER_NS);
        assert_eq!((agents.lost(0, 9 * LOST_AFTER_NS), agents.deaf_for_ns(9 * LOST_AFTER_NS)), (vec![], 0));
    }
    let mut now_ns = 9 * LOST_AFTER_NS;
    while now_ns < 10 * LOST_AFTER_NS {
        now_ns += QUIET_NS / 2;
        agents.heard(now_ns, now_ns);
        assert_eq!(agents.lost(0, now_ns), if now_ns > 10 * LOST_AFTER_NS { vec![0] } else { vec![] });
    }
    agents.heard(10 * LOST_AFTER_NS + 1, now_ns);
    assert_eq!(agents.lost(0, now_ns + 2), [0]);
    // A restored connection starts afresh.
    agents.connected(false, 20 * LOST_AFTER_NS);
    agents.connected(true, 21 * LOST_AFTER_NS);
    assert_eq!((agents.lost(0, 21 * LOST_AFTER_NS), agents.deaf_for_ns(21 * LOST_AFTER_NS)), (vec![], 0));
}

#[test]
fn an_agent_is_lost_by_its_silence_until_its_part_has_ended() {
    let mut agents = Agents::new(2);
    agents.claim(0, 0, claim("a"), 0);
    agents.claim(1, 0, claim("b"), 0);
    agents.ordered(0, 0);
    agents.seen(0, 0, LOST_AFTER_NS);
    assert_eq!(agents.lost(0, LOST_AFTER_NS), [] as [usize; 0]);
    assert_eq!(agents.lost(0, LOST_AFTER_NS + 1), [1]);
    let id = ReportId { slot: 1, epoch: 0, number: 0 };
    agents.reported(0, id, Block::end(), 0);
    assert_eq!(agents.lost(0, LOST_AFTER_NS + 1), [] as [usize; 0]);
    assert!(!agents.are_others_lost(0, LOST_AFTER_NS + 1));
    assert_eq!(agents.lost(0, 3 * LOST_AFTER_NS), [0]);
    assert!(agents.are_others_lost(0, 3 * LOST_AFTER_NS));
    agents.connected(false, 3 * LOST_AFTER_NS);
    assert_eq!(agents.lost(0, 3 * LOST_AFTER_NS), [] as [usize; 0]);
    agents.connected(false, 3 * LOST_AFTER_NS + 2);
    assert_eq!(agents.deaf_for_ns(3 * LOST_AFTER_NS + 5), 5);
    agents.connected(true, 3 * LOST_AFTER_NS + 5);
    assert_eq!(agents.deaf_for_ns(3 * LOST_AFTER_NS + 5), 0);
    agents.damaged(0, "first".into());
    agents.damaged(0, "second".into());
    assert_eq!(agents.damage(0), Some("first"));
    assert!(!agents.is_over(0));
    agents.finish(0);
    assert!(agents.is_over(0));
    let parts: Vec<usize> = std::iter::from_fn(|| agents.next_report(0)).map(|report| report.part).collect();
    assert_eq!(parts, [1, 0]);
    agents.forget(0);
    assert!(agents.is_over(0) && agents.next_report(0).is_none());
}

fn counted(until_ns: u64, in_flight: u64) -> Block {
    let mut delta = Delta::new(Sizes { worker: 0, tags: 0, numbers: 0, warmup: false });
    (delta.until_ns, delta.in_flight, delta.counts.due) = (until_ns, in_flight, 2);
    Block::open(&pack_counted(&delta)).expect("it was packed here")
}

/// Another agent takes a lost one's slot: from then on only its reports count, it is told what was ordered before
/// it came, and requests that the lost agent had in flight stay in flight.
#[test]
fn a_lost_agent_is_replaced() {
    let mut agents = Agents::new(1);
    agents.claim(0, 0, claim("a"), 0);
    agents.ordered(0, 4);
    let id = |epoch, number| ReportId { slot: 0, epoch, number };
    agents.reported(0, id(0, 0), counted(1_000, 3), 0);
    agents.seen(0, 0, 7);
    assert_eq!((agents.quiet(7 + QUIET_NS), agents.quiet(8 + QUIET_NS)), (vec![], vec![(0, 0)]));
    agents.gone(0, 0, 20);
    agents.gone(0, 0, 30);
    assert!(agents.vacate(0, 6) && !agents.vacate(0, 6));
    assert_eq!(agents.open(), [OpenSlot { slot: 0, epoch: 1, from_order: 6 }]);
    assert_eq!(agents.joining(0), []);
    // The agent was not dead after all, but its slot is taken.
    agents.reported(0, id(0, 1), counted(2_000, 9), 0);
    agents.claim(0, 0, claim("a"), 9);
    agents.claim(0, 1, claim("b"), 10);
    assert_eq!(agents.joining(0), [(0, 1)]);
    assert_eq!(agents.joining(0), []);
    agents.seen(0, 0, 100);
    agents.gone(0, 0, 101);
    agents.answered(0, 0, Answer { load: 0, ready: Err("late".into()), joins_ns: None });
    assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
    let clock = Clock { offset_ns: 0, uncertainty_ns: 2 };
    agents.answered(0, 1, Answer { load: 0, ready: Ok(clock), joins_ns: Some(5_000) });
    assert_eq!(agents.clock(0, 0), Some(clock));
    agents.reported(0, id(1, 0), counted(6_000, 0), 0);
    agents.reported(0, id(1, 1), Block::end(), 0);
    assert!(agents.is_over(0));
    let in_flight: Vec<u64> = std::iter::from_fn(|| agents.next_report(0))
        .map(|report| match report.block.into_content(None).0 {
            PartContent::Counted(delta) => delta.counts.in_flight,
            _ => 99,
        })
        .collect();
    assert_eq!(in_flight, [0, 3, 0, 99]);
    let lost = LostPart {
        slot: 0,
        agent: "a".into(),
        until_ns: 1_000,
        due: 2,
        seen_ns: 7,
        gone_ns: Some(20),
        joined_ns: Some(5_000),
    };
    assert_eq!(agents.losses(0), [lost]);
    // A load ordered later is among the orders that the new agent reads.
    agents.ordered(1, 6);
    assert_eq!(agents.joining(1), []);
    agents.reported(1, id(1, 0), Block::end(), 0);
    assert!(agents.is_over(1));
}

/// The coordinator that did not hear itself for a moment gives all agents time again, but has not heard them.
#[test]
fn only_a_sign_of_life_shows_that_an_agent_is_back() {
    let mut agents = Agents::new(2);
    (0..2).for_each(|slot| agents.claim(slot, 0, claim("a"), 0));
    agents.ordered(0, 0);
    agents.heard(0, 0);
    agents.heard(2 * LOST_AFTER_NS, 2 * LOST_AFTER_NS);
    let silent_ns = 4 * LOST_AFTER_NS;
    agents.heard(silent_ns, silent_ns);
    assert!(agents.lost(0, silent_ns).is_empty() && !agents.has_returned(0, 0, silent_ns));
    agents.seen(0, 0, silent_ns + 1);
    agents.reported(0, ReportId { slot: 1, epoch: 0, number: 0 }, Block::end(), 0);
    assert!(agents.has_returned(0, 0, silent_ns) && agents.has_returned(0, 1, silent_ns));
}

/// An agent that is merely silent may come back; one without a connection for long is no longer waited for.
#[test]
fn a_dead_agent_is_not_waited_for() {
    let mut agents = Agents::new(2);
    agents.claim(0, 0, claim("a"), 0);
    agents.claim(1, 0, claim("b"), 0);
    agents.ordered(0, 0);
    agents.give_up_dead(0, DEAD_NS + 1);
    assert_eq!(agents.losses(0), []);
    agents.gone(1, 0, 1);
    agents.give_up_dead(0, DEAD_NS);
    assert_eq!(agents.losses(0), []);
    assert_eq!(agents.give_up_dead(0, DEAD_NS + 1), [(1, 0)]);
    assert_eq!(agents.give_up_dead(0, DEAD_NS + 2), []);
    // What one reports that was given up is nobody's business any more.
    agents.damaged_by(0, 1, 0, "late".into());
    agents.answered(1, 0, Answer { load: 0, ready: Err("late".into()), joins_ns: None });
    agents.answered(1, 0, Answer { load: 0, ready: Err("later".into()), joins_ns: None });
    assert_eq!(agents.damage(0), None);
    assert_eq!(agents.losses(0).len(), 1);
    assert_eq!(agents.lost(0, DEAD_NS + 2), [0]);
    assert!(agents.next_report(0).is_some_and(|next| next.part == 1 && next.block.known().is_none()));
    assert!(agents.next_report(0).is_none() && !agents.is_over(0));
}

#[test]
fn one_that_takes_a_slot_and_is_not_told_to_join_is_not_waited_for() {
    let mut agents = Agents::new(1);
    agents.claim(0, 0, claim("a"), 0);
    agents.ordered(0, 0);
    assert!(agents.vacate(0, 1));
    agents.claim(0, 1, claim("b"), 0);
    assert!(agents.are_others_lost(0, 0));
    assert_eq!(agents.joining(0), [(0, 1)]);
    assert!(!agents.are_others_lost(0, 0));
}

#[test]
fn a_replacement_lost_before_it_joins_is_skipped() {
    let mut agents = Agents::new(1);
    agents.claim(0, 0, claim("a"), 0);
    agents.ordered(0, 0);
    assert!(agents.vacate(0, 1));
    agents.claim(0, 1, claim("b"), 0);
    assert!(agents.vacate(0, 2));
    agents.claim(0, 2, claim("c"), 0);
    assert_eq!(agents.joining(0), [(0, 2)]);
    agents.reported(0, ReportId { slot: 0, epoch: 1, number: 0 }, Block::end(), 0);
    assert!(!agents.is_over(0));
    agents.finish(0);
    let names: Vec<&str> = agents.losses(0).iter().map(|lost| lost.agent.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
}

/// An agent that is alive and whose next report does not come is asked to send it again, now and then.
#[test]
fn a_report_that_is_missing_for_long_is_asked_for() {
    let mut agents = Agents::new(2);
    (0..2).for_each(|slot| agents.claim(slot, 0, claim("a"), 0));
    agents.ordered(0, 0);
    let ready = Ok(Clock { offset_ns: 0, uncertainty_ns: 2 });
    let answer = Answer { load: 0, ready, joins_ns: None };
    (0..2).for_each(|slot| agents.answered(slot, 0, answer.clone()));
    let id = |slot, number| ReportId { slot, epoch: 0, number };
    let s = |s: u64| s * SECOND_NS;
    let overdue = |agents: &Agents, now_ns| -> Vec<(usize, u64, u64)> {
        let overdue = agents.overdue(0, s(100), now_ns).into_iter();
        overdue.map(|of| (of.slot, of.number, of.for_ns / SECOND_NS)).collect()
    };
    agents.reported(0, id(0, 0), counted(s(1), 0), s(101));
    for now in 101..=112 {
        agents.reported(0, id(1, now - 101), counted(s(now - 100), 0), s(now));
        // One is lost on the way; those that follow show that its agent is alive.
        agents.reported(0, id(0, now - 99), counted(s(now - 98), 0), s(now));
    }
    assert_eq!(overdue(&agents, s(111)), []);
    assert_eq!(overdue(&agents, s(112)), [(0, 1, 11)]);
    assert!(agents.may_ask(0, 0, s(112)) && !agents.may_ask(0, 0, s(113)) && agents.may_ask(0, 0, s(123)));
    assert_eq!(overdue(&agents, s(118)), [], "silent agents are lost, not overdue");
    // One that was silent has some time when it is back, and so has one that could not be heard.
    agents.seen(1, 0, s(119));
    assert_eq!((overdue(&agents, s(123)), overdue(&agents, s(124))), (vec![], vec![]));
    (120..=131).for_each(|now| agents.seen(1, 0, s(now)));
    assert_eq!(overdue(&agents, s(131)), [(1, 12, 12)]);
    agents.connected(false, s(132));
    agents.connected(true, s(133));
    agents.seen(1, 0, s(134));
    assert_eq!(overdue(&agents, s(134)), []);
    agents.reported(0, id(0, 1), counted(s(2), 0), s(134));
    let of_first = std::iter::from_fn(|| agents.next_report(0)).filter(|report| report.part == 0);
    assert_eq!(of_first.count(), 14);
}

/// A load does not begin while the agent that was ready for a part is gone, and nobody else is.
#[test]
fn a_slot_that_was_lost_after_it_was_ready_is_not_ready() {
    let mut agents = Agents::new(1);
    agents.claim(0, 0, claim("a"), 0);
    agents.ordered(0, 0);
    let ready = Ok(Clock { offset_ns: 0, uncertainty_ns: 2 });
    let answer = Answer { load: 0, ready, joins_ns: None };
    agents.answered(0, 0, answer.clone());
    assert_eq!(agents.readiness(0), Readiness::Ready { uncertainty_ns: 2 });
    assert!(!agents.is_busy_elsewhere(0, 0) && agents.is_busy_elsewhere(0, 1));
    assert!(agents.vacate(0, 1));
    assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
    agents.claim(0, 1, claim("b"), 0);
    assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
    assert_eq!(agents.joining(0), [(0, 1)]);
    assert_eq!(agents.readiness(0), Readiness::Waiting(vec![0]));
    agents.answered(0, 1, answer);
    assert_eq!(agents.readiness(0), Readiness::Ready { uncertainty_ns: 2 });
}

/// While nobody sends a part, the others' seconds go on, and what is reported of it later follows.
#[test]
fn seconds_go_on_without_a_vacant_part() {
    let mut agents = Agents::new(2);
    agents.claim(0, 0, claim("a"), 0);
    agents.claim(1, 0, claim("other"), 0);
    agents.ordered(0, 0);
    let id = |epoch| ReportId { slot: 0, epoch, number: 0 };
    agents.reported(0, id(0), counted(2 * SECOND_NS, 3), 0);
    agents.pass_vacant(0, 9 * SECOND_NS);
    assert!(agents.vacate(0, 1));
    agents.pass_vacant(0, 4 * SECOND_NS + 1);
    agents.pass_vacant(0, 3 * SECOND_NS);
    agents.claim(0, 1, claim("b"), 0);
    assert_eq!(agents.sender(0, 0), "a");
    assert_eq!(agents.joining(0), [(0, 1)]);
    agents.pass_vacant(0, 9 * SECOND_NS);
    agents.reported(0, id(1), counted(6 * SECOND_NS, 0), 0);
    assert!(agents.vacate(0, 2));
    agents.pass_vacant(0, 7 * SECOND_NS);
    // Once nobody else sends anything, no second is held up.
    agents.reported(0, ReportId { slot: 1, epoch: 0, number: 0 }, Block::end(), 0);
    agents.pass_vacant(0, 9 * SECOND_NS);
    let found: Vec<(u64, u64)> = std::iter::from_fn(|| agents.next_report(0))
        .map(|report| match report.block.into_content(None).0 {
            PartContent::Counted(delta) => (delta.until_ns / SECOND_NS, delta.counts.in_flight),
            PartContent::Ended(_) => (99, 99),
        })
        .collect();
    assert_eq!(found, [(2, 0), (2, 3), (3, 0), (4, 0), (6, 0), (7, 0), (99, 99)]);
    assert_eq!((agents.sender(0, 0), agents.losses(0)[0].until_ns), ("b", 2 * SECOND_NS));
}

/// If a replacement cannot send the part, that is noticed even though no one waits for its answer; and a part that
/// was lost twice without being sent in between is missing only once.
#[test]
fn those_that_take_a_place_answer_too() {
    let mut agents = Agents::new(1);
    let answer = |ready, joins_ns| Answer { load: 0, ready, joins_ns };
    let clock = Clock { offset_ns: 0, uncertainty_ns: 2 };
    agents.claim(0, 0, claim("a"), 0);
    agents.ordered(0, 0);
    agents.answered(0, 0, answer(Ok(clock), None));
    let until = |agents: &Agents| -> Vec<(u64, Option<u64>)> {
        agents.losses(0).iter().map(|lost| (lost.until_ns, lost.joined_ns)).collect()
    };
    let next = |agents: &mut Agents, epoch: u32, name: &str| {
        assert!(agents.vacate(0, u64::from(epoch)));
        agents.claim(0, epoch, claim(name), 0);
        assert_eq!(agents.joining(0), [(0, epoch)]);
    };
    // Before the load has begun, nothing is missing.
    next(&mut agents, 1, "b");
    assert_eq!(until(&agents), [(0, None)]);
    agents.answered(0, 1, answer(Ok(clock), None));
    assert_eq!(until(&agents), []);
    agents.reported(0, ReportId { slot: 0, epoch: 1, number: 0 }, counted(9_000, 0), 0);
    next(&mut agents, 2, "c");
    next(&mut agents, 3, "d");
    agents.answered(0, 3, answer(Ok(clock), Some(12_000)));
    assert_eq!(until(&agents), [(9_000, Some(12_000)), (9_000, Some(12_000))]);
    assert_eq!(agents.damage(0), None);
    next(&mut agents, 4, "e");
    agents.answered(0, 4, answer(Err("not from here".to_owned()), None));
    assert_eq!(agents.damage(0), Some("agent e (slot 0): not from here"));
}
