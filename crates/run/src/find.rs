//! `loadlab find`: the record of one search, in which each level is a case and each measurement of a level is a trial.

use loadlab_analysis::Exit;
use loadlab_analysis::scaling::search::{Answer, Search};
use loadlab_plan::Plan;
use loadlab_record::documents::manifest::RunEnded;
use loadlab_record::documents::search::SearchFacts;
use loadlab_system::Cancel;

use crate::begin::{allowed_of, conditions_of, never_began, prepare};
use crate::error::RunError;
use crate::event::{Recorded, RunEvent};
use crate::ids::Ids;
use crate::logs;
use crate::options::RunOptions;
use crate::record::Record;
use crate::running_system::RunningSystem;
use crate::search::{SearchRequest, SearchTask, Searched};
use crate::state::EventSink;

/// The result of a search.
pub struct SearchResult {
    /// The record's folder.
    pub dir: std::path::PathBuf,
    /// How the run ended.
    pub ended: RunEnded,
    /// The answer; `None` if the search ended early.
    pub answer: Option<Answer>,
    /// The search as recorded.
    pub facts: SearchFacts,
    /// Why the search ended early, if it did.
    pub trouble: Option<String>,
    /// The exit code for the search as a whole.
    pub exit: Exit,
}

/// Runs a search. The plan has one case, whose expectations each level must meet.
///
/// # Errors
/// Nothing could be measured: a target is not allowed, the record cannot be created, a build failed.
pub fn find(
    plan: &Plan,
    request: &SearchRequest,
    options: &RunOptions,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<SearchResult, RunError> {
    let emit: EventSink<'_> = &|event: RunEvent| emit(event.masked(&options.secrets));
    let mut conditions = conditions_of(plan, options)?;
    let Some(base) = plan.cases().first().cloned() else {
        return Err(RunError::NotUp("the plan has no case".to_owned()));
    };
    let allowed = allowed_of(plan, options)?;
    let mut record = Record::begin_search(plan, options, request.facts())?;
    emit(RunEvent::Recording {
        dir: options.out.clone(),
        count: request.max_levels as usize,
        of: Recorded::Levels,
        at_most: true,
    });
    let mut running = match prepare(plan, options, &mut record, cancel, emit) {
        Ok(running) => running,
        Err(error) => return Err(never_began(&mut record, None, error, cancel)),
    };
    let ids = Ids::for_blocks(request.most_trials(), base.loads.len() as u64);
    let task = SearchTask {
        plan,
        base: &base,
        request,
        options,
        conditions: &conditions.pop().unwrap_or_default(),
        allowed: &allowed,
        cancel,
        emit,
        ids,
        first_place: 0,
        trial: None,
        notes: &[],
    };
    let search = Search::new(request.range.0, request.range.1, request.max_levels);
    let searched = task.run(search, &mut record, &mut running);
    Ok(end(searched, running, record, options, cancel, emit))
}

/// Takes the system down and closes the search's record.
fn end(
    searched: Searched,
    running: RunningSystem,
    mut record: Record,
    options: &RunOptions,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> SearchResult {
    if let Err(error) = running.close() {
        let text = format!("cleanup failed: {error}\nhint: try `loadlab clean`");
        emit(RunEvent::Note(text));
    }
    logs::mask_all(&record.dir, &options.secrets, emit);
    let Searched { facts, answer, trouble, exit, .. } = searched;
    let ended = match (&answer, &trouble) {
        _ if cancel.is_cancelled() => RunEnded::Interrupted,
        (Some(_), None) => RunEnded::Complete,
        _ => RunEnded::Broken,
    };
    record.set_search(&facts);
    let mut exits = vec![exit];
    if let Err(error) = record.end(ended) {
        exits.push(Exit::CouldNotRun);
        emit(RunEvent::Note(error.to_string()));
    }
    let trouble = trouble.map(|trouble| trouble.why);
    SearchResult { dir: options.out.clone(), ended, answer, facts, trouble, exit: Exit::of(exits) }
}
