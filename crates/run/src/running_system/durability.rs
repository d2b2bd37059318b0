//! Compares what was accepted with what was stored, by the ids that requests carried or by counts.
//!
//! Comparison by ids is exact. A count cannot distinguish a request that was stored without a successful response (none
//! arrived, or it was refused) from an accepted request that was not stored, so it only gives bounds.

use loadlab_plan as plan;
use loadlab_record::counts::ids::{IdSet, SentIds};
use loadlab_record::counts::load::Counts;
use loadlab_record::counts::outcome::Failure;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::Loss;
use loadlab_system::{OutputCommand, Probe, UNHURRIED_READ_TIMEOUT_NS, clock, http};

use crate::ids::Ids;
use crate::running_system::probes::{self, ProbeContext};
use crate::state::TrialState;
use crate::translate::error::TranslateError;

/// How long the query for what was stored may take.
const QUERY_TIMEOUT_NS: u64 = 60_000_000_000;
/// Maximum output of a command in bytes: ten million ids of a dozen digits, with some room to spare.
const OUTPUT_BYTES: u64 = 256 << 20;
/// How many missing ids to list.
const NAMED: usize = 10;

/// How to query what was stored, with all names filled in.
pub enum Persisted {
    /// A URL, and a JSON pointer to the list in its response.
    Http(String, Option<String>),
    /// A command that prints the ids.
    Command(OutputCommand),
    /// A probe that counts, and its value before the load.
    Probe(Probe, f64),
}

/// Fills in names, and reads the initial value if a probe counts.
///
/// # Errors
/// A name has no value. The inner error says in words why the probe cannot be read.
pub fn prepare(
    spec: &plan::DurabilitySpec,
    around: &ProbeContext<'_>,
    probes: &[Probe],
    state: &TrialState,
) -> Result<Result<Persisted, String>, TranslateError> {
    Ok(match &spec.persisted {
        plan::Persisted::Http { url, json_pointer } => {
            let url = url.render(around.names);
            let url = url.map_err(|error| TranslateError::Name { what: "`durability`".to_owned(), error })?;
            Ok(Persisted::Http(url, json_pointer.clone()))
        }
        plan::Persisted::Command(command) => {
            Ok(Persisted::Command(probes::output(command, "`durability`", around)?))
        }
        plan::Persisted::Probe(name) => match probes.iter().find(|p| p.name() == name) {
            Some(probe) => match probe.read_within(UNHURRIED_READ_TIMEOUT_NS, &mut || state.must_end()) {
                Ok(before) => Ok(Persisted::Probe(probe.clone(), before)),
                Err(error) => Err(format!("cannot read what was stored before the load: {error}")),
            },
            None => Err(format!("there is no probe `{name}`")),
        },
    })
}

/// Compares what was accepted with what is stored. The load's own counts are used if requests carry no ids.
///
/// # Errors
/// What was stored cannot be determined, or there were more requests than the trial has ids; in words.
pub fn compare(persisted: &Persisted, state: &TrialState, ids: Ids, counts: &Counts) -> Result<Loss, String> {
    if !matches!(persisted, Persisted::Probe(..)) {
        ids.check_room(counts.started)?;
    }
    let sent = state.sent_ids()?;
    let stop = &mut || state.must_end();
    let until_ns = clock::now_ns() + QUERY_TIMEOUT_NS;
    let stored = match persisted {
        Persisted::Probe(probe, before) => {
            // Counting may take as long as in the last reading of the probe.
            let now = probe.read_within(UNHURRIED_READ_TIMEOUT_NS, stop).map_err(|e| e.to_string())?;
            let by_ids = [&sent.accepted, &sent.unanswered, &sent.refused].map(IdSet::len);
            let [accepted, unanswered, refused] = match by_ids {
                [0, 0, 0] => [counts.ok, unanswered(counts), refused(counts)],
                by_ids => by_ids,
            };
            return Ok(by_count(accepted, unanswered, refused, (now - before).max(0.0) as u64));
        }
        Persisted::Http(url, pointer) => {
            let response = http::get(url, until_ns, stop);
            let response = response.map_err(|e| {
                format!("GET {url}: {e}\nhint: read a longer list with a command, such as `curl`")
            })?;
            if !(200..300).contains(&response.status) {
                return Err(format!("GET {url}: answered with status {}", response.status));
            }
            ids_in(&response.body, pointer.as_deref()).map_err(|why| format!("GET {url}: {why}"))?
        }
        Persisted::Command(command) => {
            let printed = command.run(until_ns, OUTPUT_BYTES, stop);
            let failed = |why| format!("`{}`: {why}", command.command);
            ids_in(&printed.map_err(failed)?, None).map_err(failed)?
        }
    };
    let ComparedIds { loss, missing, foreign } = by_id(&sent, stored);
    if foreign > 0 {
        let text = format!("{foreign} stored ids were not sent by this trial");
        state.record_note(text);
    }
    let Loss { accepted, persisted_distinct: persisted, lost_max, .. } = loss;
    state.record_event(EventKind::Compared { accepted, persisted, lost_max, missing });
    Ok(loss)
}

/// Number of requests that were sent and got no complete response.
fn unanswered(counts: &Counts) -> u64 {
    use Failure::{Protocol, Reset, Timeout, TooLarge, Truncated};
    let failed: u64 =
        [Protocol, Reset, Timeout, TooLarge, Truncated].into_iter().map(|f| counts.failures.get(f)).sum();
    failed + counts.in_flight
}

/// Number of requests that got a response other than success: what they were to store may be stored all the same.
fn refused(counts: &Counts) -> u64 {
    [Failure::Http4xx, Failure::Http5xx, Failure::Check].into_iter().map(|f| counts.failures.get(f)).sum()
}

/// What comparing ids shows.
struct ComparedIds {
    loss: Loss,
    /// The first few missing ids.
    missing: Vec<u64>,
    /// Number of stored ids that were never sent.
    foreign: u64,
}

fn by_id(sent: &SentIds, stored: Vec<u64>) -> ComparedIds {
    let mut stored = stored;
    stored.sort_unstable();
    let again =
        stored.windows(2).enumerate().filter(|(i, w)| w[0] == w[1] && (*i == 0 || stored[i - 1] != w[0]));
    let doubled: Vec<u64> = again.map(|(_, w)| w[0]).collect();
    let stored = IdSet::of(stored);
    let mut all = sent.accepted.clone();
    all.merge(&sent.unanswered);
    all.merge(&sent.refused);
    let persisted = stored.common(&all);
    let lost = sent.accepted.len() - sent.accepted.common(&stored);
    let loss = Loss {
        accepted: sent.accepted.len(),
        unanswered: sent.unanswered.len(),
        persisted_distinct: persisted,
        doubled: doubled.iter().filter(|id| all.has(**id)).count() as u64,
        lost_min: lost,
        lost_max: lost,
        by_id: true,
    };
    let missing = if lost > 0 { sent.accepted.missing_in(&stored, NAMED) } else { Vec::new() };
    ComparedIds { loss, missing, foreign: stored.len() - persisted }
}

/// Bounds from counts. The stored requests may include unanswered and refused ones. Assumes that nothing was stored
/// twice; any excess is reported as `doubled`.
fn by_count(accepted: u64, unanswered: u64, refused: u64, persisted: u64) -> Loss {
    let others = unanswered + refused;
    Loss {
        accepted,
        unanswered,
        persisted_distinct: persisted.min(accepted + others),
        doubled: persisted.saturating_sub(accepted + others),
        lost_min: accepted.saturating_sub(persisted),
        lost_max: accepted.saturating_sub(persisted.saturating_sub(others)),
        by_id: false,
    }
}

/// Parses ids: a JSON list of numbers or strings, or numbers separated by blanks, commas, semicolons, quotes or
/// newlines.
fn ids_in(bytes: &[u8], pointer: Option<&str>) -> Result<Vec<u64>, String> {
    let is_json = pointer.is_some() || bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    if is_json {
        let document: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|e| format!("the response is not JSON: {e}"))?;
        let pointer = pointer.unwrap_or_default();
        let list = document.pointer(pointer).and_then(|v| v.as_array());
        let list = list.ok_or_else(|| format!("there is no list at `{pointer}`"))?;
        let id = |v: &serde_json::Value| v.as_u64().or_else(|| v.as_str()?.trim().parse().ok());
        return list.iter().map(|v| id(v).ok_or_else(|| format!("`{v}` is not an id"))).collect();
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "the output is not text".to_owned())?;
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | '"' | ';'));
    let words = words.filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| format!("`{word}` is not an id"))).collect()
}

#[cfg(test)]
mod tests {
    use loadlab_record::Secrets;
    use loadlab_system::{Cancel, ProbeSource, ProbeSpec};

    use super::*;

    #[test]
    fn ids_in_every_form() {
        for (text, pointer, expect) in [
            ("1\n2\r\n\n3", None, Ok(vec![1, 2, 3])),
            ("\"7\",\"8\"", None, Ok(vec![7, 8])),
            ("", None, Ok(vec![])),
            (" [1, \"2\"]", None, Ok(vec![1, 2])),
            ("{\"ids\": [5]}", Some("/ids"), Ok(vec![5])),
            ("{\"ids\": 5}", Some("/ids"), Err("there is no list at `/ids`")),
            ("1 x", None, Err("`x` is not an id")),
            ("[1.5]", None, Err("`1.5` is not an id")),
            ("-1", None, Err("`-1` is not an id")),
        ] {
            assert_eq!(ids_in(text.as_bytes(), pointer), expect.map_err(str::to_owned), "{text}");
        }
    }

    /// After a load, counting takes longer than a reading may take while it runs.
    #[test]
    fn counting_what_was_stored_may_take_long() {
        let command = loadlab_system::Command::Shell("sleep 6; echo 107".to_owned());
        let (dir, env, secrets) = ("/".into(), Vec::new(), Secrets::default());
        let source = ProbeSource::Command(OutputCommand { command, dir, env, secrets });
        let probe = Probe::new(ProbeSpec { name: "stored".into(), source }).unwrap();
        let persisted = Persisted::Probe(probe, 10.0);
        let state = TrialState::new(None, Cancel::new(), Secrets::default());
        let counts = Counts { ok: 100, ..Counts::default() };
        // A busy machine may need another attempt.
        let mut attempts = (0..3).map(|_| compare(&persisted, &state, Ids::for_blocks(1, 1), &counts));
        let loss = attempts.find_map(Result::ok).expect("it is counted");
        assert_eq!((loss.persisted_distinct, loss.lost_max), (97, 3));
    }

    #[test]
    fn losses_by_id_are_exact() {
        let set = |ids: &[u64]| IdSet::of(ids.to_vec());
        let sent = SentIds { accepted: set(&[1, 2, 3, 4]), unanswered: set(&[5, 6]), refused: set(&[7]) };
        // 2 and 4 are lost; 5 was stored without a response, 7 although it was refused, 1 three times; 99 was never
        // sent.
        let ComparedIds { loss, missing, foreign } = by_id(&sent, vec![99, 5, 1, 3, 1, 7, 1]);
        let expect = Loss {
            accepted: 4,
            unanswered: 2,
            persisted_distinct: 4,
            doubled: 1,
            lost_min: 2,
            lost_max: 2,
            by_id: true,
        };
        assert_eq!((loss, missing, foreign), (expect, vec![2, 4], 1));
    }

    #[test]
    fn losses_by_count_are_bounds() {
        for (accepted, (unanswered, refused), persisted, lost, doubled) in [
            (100, (0, 0), 100, (0, 0), 0),
            (100, (0, 0), 97, (3, 3), 0),
            (100, (5, 0), 97, (3, 8), 0),
            (100, (5, 0), 103, (0, 2), 0),
            (100, (5, 0), 108, (0, 0), 3),
            (100, (5, 0), 0, (100, 100), 0),
            // Five refused requests are stored: five accepted ones may be lost, or none.
            (100, (0, 5), 100, (0, 5), 0),
            (100, (0, 5), 105, (0, 0), 0),
            (100, (2, 5), 108, (0, 0), 1),
        ] {
            let loss = by_count(accepted, unanswered, refused, persisted);
            assert_eq!(((loss.lost_min, loss.lost_max), loss.doubled), (lost, doubled), "{persisted}");
            assert_eq!(loss.persisted_distinct + loss.doubled, persisted);
            assert_eq!((loss.unanswered, loss.by_id), (unanswered, false));
        }
    }

    #[test]
    fn who_was_answered_without_success_is_refused() {
        let mut counts = Counts { ok: 7, in_flight: 2, ..Counts::default() };
        for (i, failure) in Failure::ALL.into_iter().enumerate() {
            counts.failures.add(failure, 1 << i);
        }
        let sum = |failures: &[Failure]| -> u64 { failures.iter().map(|f| counts.failures.get(*f)).sum() };
        use Failure::{Check, Http4xx, Http5xx, Protocol, Reset, Timeout, TooLarge, Truncated};
        assert_eq!(refused(&counts), sum(&[Http4xx, Http5xx, Check]));
        assert_eq!(unanswered(&counts), sum(&[Timeout, Reset, Truncated, Protocol, TooLarge]) + 2);
    }
}
