//! What comes before the first load of every run, whether it runs a plan's trials, searches for capacity or changes
//! limits: conditions are parsed, targets are checked, and the system is prepared. If that fails, the record says why
//! the run never began.

use loadlab_load::target::Allowed;
use loadlab_plan::{Case, Plan};
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::manifest::{RunEnded, TrialKey};
use loadlab_record::expr::{Expr, ExprError, Figure};
use loadlab_record::text::time::SECOND_NS;
use loadlab_system::ledger::clean::GUARDIAN_TIMEOUT_NS;
use loadlab_system::{Cancel, Isolation, Net, System, SystemSpec, guardian};

use crate::error::RunError;
use crate::event::RunEvent;
use crate::manifest::plan_dir;
use crate::options::RunOptions;
use crate::record::Record;
use crate::running_system::RunningSystem;
use crate::running_system::error::BringUpError;
use crate::state::{EventSink, TrialState};
use crate::translate::{check_targets, journey, urls};
use crate::trial::Conditions;
use crate::{logs, needs};

/// Parses expressions given as options.
///
/// # Errors
/// The first invalid expression: its text and what is wrong.
pub fn parse_expressions(texts: &[String]) -> Result<Vec<Expr>, (String, ExprError)> {
    let parse = |text: &String| Expr::parse(text).map_err(|e| (text.clone(), e));
    texts.iter().map(parse).collect()
}

/// Parses the expressions of all cases.
///
/// # Errors
/// An expression or figure is invalid; the error says where.
pub fn conditions_of(plan: &Plan, options: &RunOptions) -> Result<Vec<Conditions>, RunError> {
    let parse = |e: &loadlab_plan::Expression| match Expr::parse(&e.text) {
        Ok(expr) => Ok(expr),
        Err(error) => Err(RunError::Expression {
            file: e.file.clone(),
            line: e.line,
            column: e.column + error.at,
            error,
        }),
    };
    let mut all = Vec::new();
    for case in plan.cases() {
        let figures = figures_of(case)?;
        let parse = |e| parse(e).map(|expr| expr.with_figures(&figures));
        all.push(Conditions {
            expect: case.expect.iter().map(parse).collect::<Result<_, _>>()?,
            stop_when: case.stop_when.iter().map(parse).collect::<Result<_, _>>()?,
            drain: case.drain.as_ref().map(|d| parse(&d.until)).transpose()?,
            find: case.find.iter().flat_map(|find| &find.expect).map(parse).collect::<Result<_, _>>()?,
            figures,
            has_viewer: options.has_viewer,
        });
    }
    Ok(all)
}

/// The figures of a case; each is computed from numbers alone.
fn figures_of(case: &Case) -> Result<Vec<Figure>, RunError> {
    let mut figures: Vec<Figure> = Vec::new();
    for spec in &case.figures {
        let figure = Figure::after(&figures, &spec.name, &spec.value, spec.kind);
        figures.push(figure.map_err(|error| RunError::Figure { name: spec.name.clone(), error })?);
    }
    Ok(figures)
}

/// Where loads may go. Every target the plan names is checked against this before anything is created.
///
/// # Errors
/// A target may not be loaded or does not resolve, or a URL list is invalid.
pub fn allowed_of(plan: &Plan, options: &RunOptions) -> Result<Allowed, RunError> {
    let hosts = [plan.allow_hosts.as_slice(), &options.allow_hosts].concat();
    let allowed = Allowed { hosts, resolved: options.resolved.clone(), ..Allowed::default() };
    check_targets(plan.cases(), &allowed)?;
    urls::check(plan, &plan_dir(plan), &allowed)?;
    Ok(allowed)
}

/// Does everything that precedes the first trial: guardian, cgroups, scratch folder, builds.
///
/// # Errors
/// Something could not be prepared.
pub fn prepare(
    plan: &Plan,
    options: &RunOptions,
    record: &mut Record,
    cancel: &Cancel,
    emit: EventSink<'_>,
) -> Result<RunningSystem, RunError> {
    if plan.isolate != loadlab_plan::Isolation::None {
        // Check this before anything is built.
        Net::check().map_err(BringUpError::from)?;
    }
    let guardian = guardian::spawn(&options.exe, &options.guardian_arg).map_err(BringUpError::from)?;
    let name = record.dir.file_name().map_or_else(|| plan.name.clone(), |n| n.to_string_lossy().into_owned());
    // Runs in different folders may share a name and run at the same time: the pid distinguishes them.
    let run_id = format!("{name}-{}", std::process::id());
    let spec = SystemSpec::new(&run_id, &record.dir, &record.dir.join("scratch"), Some(guardian));
    let spec = SystemSpec { exe: Some(options.exe.clone()), secrets: options.secrets.clone(), ..spec };
    if let Some(text) = awaited(&spec) {
        emit(RunEvent::Note(text));
    }
    let (system, notices) = System::new(spec).map_err(BringUpError::from)?;
    let mut running = RunningSystem::new(system, notices, &record.dir);
    record.set_host(running.cgroup_version())?;
    for missing in running.unavailable() {
        emit(RunEvent::Note(format!("{}: {}", missing.what, missing.why)));
    }
    needs::check(plan, &running)?;
    if !options.is_built {
        running.build(plan.cases(), cancel, &mut record.builds, emit)?;
    }
    if let Some(net) = enter_isolation(plan)? {
        running.isolate(net);
    }
    journey::check_feeds(plan, &plan_dir(plan))?;
    Ok(running)
}

/// What must end before the system can be prepared, in words.
fn awaited(spec: &SystemSpec) -> Option<String> {
    let pid = spec.awaited_guardian()?.pid;
    let most_s = GUARDIAN_TIMEOUT_NS / SECOND_NS;
    Some(format!("waiting at most {most_s} s until process {pid} has removed what the killed run left"))
}

/// Enters the run's own network, if the plan wants one. This thread moves into it, and so do all threads started from
/// here on: load, watcher and probes. Builds are done by then: they may need the outside network.
fn enter_isolation(plan: &Plan) -> Result<Option<Net>, RunError> {
    let isolation = match plan.isolate {
        loadlab_plan::Isolation::None => return Ok(None),
        loadlab_plan::Isolation::Shared => Isolation::Shared,
        loadlab_plan::Isolation::Each => Isolation::Each,
    };
    Ok(Some(Net::enter(isolation).map_err(BringUpError::from)?))
}

/// Records in the first trial's folder why not even that trial could start, so that a later report shows it. The record
/// of a run that was to be resumed stays as it was found.
pub fn never_began(
    record: &mut Record,
    first: Option<TrialKey>,
    error: RunError,
    cancel: &Cancel,
) -> RunError {
    let error = if cancel.is_cancelled() { RunError::Interrupted } else { error };
    logs::mask_all(&record.dir, record.secrets(), &|_| {});
    if let Some(given_back) = record.give_back() {
        return match given_back {
            Err(unwritten) if !cancel.is_cancelled() => RunError::Store(unwritten),
            _ => error,
        };
    }
    if let Some(writer) = first.and_then(|first| record.begin_trial(first).ok()) {
        let state = TrialState::new(Some(writer), cancel.clone(), record.secrets().clone());
        std::mem::take(&mut record.builds)
            .into_iter()
            .for_each(|(at_ns, what)| state.record_event_at(at_ns, what));
        state.ensure_clock();
        state.record_event(EventKind::Failed { text: error.to_string() });
    }
    let ended = if cancel.is_cancelled() { RunEnded::Interrupted } else { RunEnded::Broken };
    match record.end(ended) {
        Err(unwritten) if !cancel.is_cancelled() => RunError::Store(unwritten),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use loadlab_system::ProcessId;
    use loadlab_system::ledger::state::{Resource, RunState};

    use super::*;

    /// The guardian is still at work: this process takes its place.
    #[test]
    fn what_is_waited_for_is_said() {
        let work = tempfile::tempdir().expect("a folder");
        let (scratch, own) = (work.path().join("scratch"), ProcessId::own());
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("there is one");
        let killed = RunState {
            run_id: "killed".to_owned(),
            owner: ProcessId { start_ticks: own.start_ticks + 1, ..own },
            boot_id: boot_id.trim().to_owned(),
            run_dir: work.path().to_owned(),
            mark: "LOADLAB_RUN=killed/1/2".to_owned(),
            guardian: Some(own),
            resources: vec![Resource::Dir(scratch.clone())],
            file: work.path().join("killed.json"),
        };
        std::fs::write(&killed.file, serde_json::to_vec(&killed).expect("JSON")).expect("a file");
        let spec = SystemSpec::new("resumed", work.path(), &scratch, None);
        let spec = SystemSpec { state_dir: work.path().to_owned(), ..spec };
        assert_eq!(awaited(&spec), None, "nothing is left to remove");
        std::fs::create_dir(&scratch).expect("a folder");
        let said =
            format!("waiting at most 35 s until process {} has removed what the killed run left", own.pid);
        assert_eq!(awaited(&spec), Some(said));
    }
}
