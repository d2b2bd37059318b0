//! Files as a bottleneck: file descriptors that ran out, and a disk that components wait for.

use std::collections::BTreeSet;

use loadlab_record::documents::summary::ComponentSummary;
use loadlab_record::text::units::{format_bytes, format_count, format_percent_whole};
use loadlab_record::watch::sample::Sample;

use super::{BottleneckKind, HELD_SHARE, Suspect, TrialData, during, is_short, parts, read_in};
use crate::trial::counter::Counter;

/// Open files above this share of the limit count as all: a process that closes some to accept others is sampled in
/// between.
const FILES_SHARE: f64 = 0.97;
/// Close to the limit in this share of the seconds, and at the limit itself in some of them. Servers that cannot accept
/// a connection commonly wait for a second before they try again, and close others meanwhile: they are held back for
/// much longer than they are at their limit.
const SECONDS_SHARE: f64 = 0.5;
/// At the limit itself in fewer seconds, it may just fit.
const MIN_SECONDS: usize = 3;
/// Disk-bound: some task waited for block I/O for this share of the time. Background writeback also waits now and
/// then.
const DISK_SHARE: f64 = 0.6;

/// A process at its limit of open files: it accepts no more, and new connections wait. How it reacts, by retrying at
/// once or closing other connections, is a consequence.
pub fn open_files(
    trial: &TrialData<'_>,
    name: &str,
    c: &ComponentSummary,
    own: &[&Sample],
) -> Option<Suspect> {
    let load = during(trial);
    let loaded = read_in(trial, own.iter(), |s, part| part.has(s.at_s)).into_iter();
    let loaded: Vec<(f64, f64)> = loaded.filter_map(|s| Some((s.at_s, s.open_files_share?))).collect();
    let full: Vec<f64> =
        loaded.iter().filter(|(_, share)| *share >= FILES_SHARE).map(|(at, _)| *at).collect();
    let at_s = *full.first()?;
    let mut share = full.len() as f64 / loaded.len() as f64;
    let mut how_long = format!("for {} of the time", format_percent_whole(share));
    // The end of the load belongs to its last second.
    let last = (load.to_s - load.from_s).ceil() as u64;
    let second = |at_s: f64| ((at_s - load.from_s) as u64).min(last.saturating_sub(1));
    let seconds = |least: f64| {
        let of = loaded.iter().filter(|(_, share)| *share >= least);
        of.map(|(at_s, _)| second(*at_s)).collect::<BTreeSet<u64>>().len()
    };
    let (read, close, at_limit) = (seconds(0.0), seconds(FILES_SHARE), seconds(1.0));
    // A thousand connections to a server that may have 1,024 files are close to its limit, and hold nothing back.
    if at_limit == 0 {
        return None;
    }
    let of_seconds = close as f64 / read as f64;
    if share < HELD_SHARE && at_limit >= MIN_SECONDS && of_seconds >= SECONDS_SHARE {
        share = of_seconds;
        how_long = format!("in {close} of {read} seconds, {how_long}");
    }
    let most = c.open_files_max.map_or(String::new(), |n| format!(", {} in total", format_count(n as f64)));
    Some(Suspect {
        kind: BottleneckKind::OpenFiles,
        component: Some(name.to_owned()),
        at_s: Some(at_s),
        text: format!(
            "{name} ran out of file descriptors: one of its processes was at its limit (`ulimit -n`) {how_long}{most}"
        ),
        share,
        evidence: Vec::new(),
    })
}

/// A component with some task waiting for block I/O nearly all the time (the kernel's pressure, \"some\").
pub fn disk(trial: &TrialData<'_>, name: &str, c: &ComponentSummary, own: &[&Sample]) -> Option<Suspect> {
    let io = Counter::of(own.iter().copied(), |s| s.pressure.and_then(|p| p.io_s));
    let waited = io.per_s_in(&parts(trial))?;
    if waited < DISK_SHARE || is_short(trial) {
        return None;
    }
    let bytes = |v: Option<u64>| v.map_or("–".to_owned(), |v| format_bytes(v as f64));
    Some(Suspect {
        kind: BottleneckKind::Disk,
        component: Some(name.to_owned()),
        at_s: None,
        text: format!(
            "{name} waited for its disk for {} of the time (read {}, written {})",
            format_percent_whole(waited.min(1.0)),
            bytes(c.block_bytes.read),
            bytes(c.block_bytes.written)
        ),
        share: waited.min(1.0),
        evidence: Vec::new(),
    })
}
