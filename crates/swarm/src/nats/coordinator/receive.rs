//! Takes in what agents send: claims, answers and reports.

use loadlab_load::io::epoll::now_ns;

use super::Shared;
use crate::block::Block;
use crate::nats::{REPORT, Subjects, slot_of};
use crate::pieces::Pieces;
use crate::reduce::ReportId;

/// Handles what agents send; messages that cannot be parsed are ignored.
pub(super) fn message_handler<'s>(
    subjects: &'s Subjects,
    shared: &'s Shared,
) -> impl FnMut(&async_nats::Message) -> bool + use<'s> {
    let mut pieces = Pieces::default();
    move |message| {
        let Some((slot, what)) = slot_of(&message.subject, subjects) else { return true };
        let what_of = |word: &str| what.strip_prefix(word)?.strip_prefix('.')?.parse::<u32>().ok();
        match (what_of("claim"), what_of("answer")) {
            (Some(epoch), _) => {
                if let Ok(claim) = serde_json::from_slice(&message.payload) {
                    shared.change(|agents| agents.claim(slot, epoch, claim, now_ns()));
                }
            }
            (None, Some(epoch)) => {
                if let Ok(answer) = serde_json::from_slice(&message.payload) {
                    shared.change(|agents| agents.answered(slot, epoch, answer));
                }
            }
            (None, None) => {
                let report = report_of(slot, what, message, &mut pieces);
                if let Some(CompleteReport { load, id, bytes }) = report {
                    let block = Block::open(&bytes);
                    shared.change(|agents| match block {
                        Ok(block) => agents.reported(load, id, block, now_ns()),
                        Err(error) => {
                            agents.seen(slot, id.epoch, now_ns());
                            let why = format!(
                                "report {} of agent {} (slot {slot}) {error}",
                                id.number,
                                agents.name(slot)
                            );
                            agents.damaged_by(load, slot, id.epoch, why);
                        }
                    });
                }
            }
        }
        true
    }
}

/// A report of which all pieces are here.
struct CompleteReport {
    load: u64,
    id: ReportId,
    bytes: Vec<u8>,
}

/// The report that this message completes, if it does.
fn report_of(
    slot: usize,
    what: &str,
    message: &async_nats::Message,
    pieces: &mut Pieces,
) -> Option<CompleteReport> {
    let (load, epoch) = what.strip_prefix("report.")?.split_once('.')?;
    let header = message.headers.as_ref()?.get(REPORT)?.as_str();
    let numbers: Vec<u64> = header.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [number, piece, all] = numbers.try_into().ok()?;
    let (load, id) = (load.parse().ok()?, ReportId { slot, epoch: epoch.parse().ok()?, number });
    let (piece, all) = (usize::try_from(piece).ok()?, usize::try_from(all).ok()?);
    Some(CompleteReport { load, id, bytes: pieces.take(load, id, piece, all, &message.payload)? })
}
