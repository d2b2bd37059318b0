//! The report that the page becomes after a `bench` without a record, made from memory.

use std::collections::BTreeMap;

use loadlab_record::documents::manifest::{CaseFacts, Manifest, RunEnded, Writer};
use loadlab_record::documents::summary::Ended;
use loadlab_record::store::{CaseRecord, RECORD_VERSION, RunRecord, TrialRecord};
use loadlab_run::{BenchResult, host, rfc3339_now};

use crate::mask;

/// The report as a page; `title` names what was loaded, `expect` what had to hold.
pub fn page(title: &str, expect: &[String], result: BenchResult) -> String {
    let expect: Vec<String> = expect.iter().map(|e| mask::text(e).into_owned()).collect();
    loadlab_report::html(&loadlab_report::compose(&record(&mask::text(title), &expect, result).into()))
}

/// A record of one case and one trial, in memory only.
fn record(title: &str, expect: &[String], result: BenchResult) -> RunRecord {
    let how = match (&result.trouble, result.summary.ended) {
        (_, Ended::Interrupted) => RunEnded::Interrupted,
        (Some(_), _) => RunEnded::Broken,
        (None, _) => RunEnded::Complete,
    };
    let load = &result.summary.load;
    let facts = CaseFacts {
        control_of: None,
        name: "bench".to_owned(),
        users: load.users,
        rate_per_s: load.rate_per_s,
        ..CaseFacts::default()
    };
    let manifest = Manifest {
        record: RECORD_VERSION,
        loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        name: title.to_owned(),
        plan_path: String::new(),
        plan_text: String::new(),
        plan_sha256: String::new(),
        options: Vec::new(),
        given: BTreeMap::new(),
        started: rfc3339_now(),
        ended: None,
        how,
        writer: Writer { pid: std::process::id(), start_ticks: 0 },
        host: host("none"),
        words: vec![title.to_owned()],
        components: Vec::new(),
        axes: Vec::new(),
        cases: vec![facts.clone()],
        trials: 1,
        until_certain: None,
        revisions: Vec::new(),
        commit: None,
        expect: expect.to_vec(),
        figures: Vec::new(),
        layout: None,
        derive: Vec::new(),
        quick: false,
        search: None,
        why: None,
    };
    let trial = TrialRecord {
        summary: Some(result.summary),
        ticks: result.ticks,
        examples: result.examples,
        series: result.series,
        ..TrialRecord::empty(1, Default::default())
    };
    let cases = vec![CaseRecord { facts, trials: vec![trial] }];
    RunRecord { dir: Default::default(), manifest, cases, notes: Vec::new() }
}
