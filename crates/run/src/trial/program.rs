//! A load made by a user's program, which is run to its end while a probe counts its requests.
//!
//! Two things are measured: how long the program ran, on the load's clock, and by how much the probe grew. What was not
//! measured (response times, failures, bytes, requests in flight) stays empty, and reports mention that. The program is
//! watched like a component, under the load's name. It is killed if the trial ends early, and so is anything it leaves
//! running.

use loadlab_analysis::LoadRun;
use loadlab_load::run::Origin;
use loadlab_plan as plan;
use loadlab_record::counts::load::{Counts, InWindow, Measured, Tick, Window};
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::{Generator, LoadFacts, LoadModel};
use loadlab_record::expr::{Expr, Figure};
use loadlab_record::text::time::SECOND_NS;
use loadlab_record::text::units::format_count;
use loadlab_record::watch::sample::Sample;
use loadlab_system::{
    CommandResult, CommandSpec, Probe, RunningCommand, UNHURRIED_READ_TIMEOUT_NS, WatchEvent, clock,
};

use crate::event::{Progress, RunEvent};
use crate::running_system::RunningSystem;
use crate::running_system::error::BringUpError;
use crate::state::{AbortReason, TrialState};
use crate::translate::component;
use crate::translate::error::TranslateError;
use crate::trial::actions::TrialContext;
use crate::trial::live_numbers::SystemFigures;
use crate::trial::measure::MeasuredLoad;
use crate::trial::running_load::RunningLoad;
use crate::trial::shown::ShownFigures;

/// How often the program is checked.
const POLL_INTERVAL_NS: u64 = 100_000_000;
/// How often it is checked until its load has started.
const BEGIN_POLL_INTERVAL_NS: u64 = 5_000_000;

/// A program that makes a load, with all names filled in.
pub struct Program {
    /// The load's name.
    pub name: String,
    command: CommandSpec,
    timeout_ns: u64,
    /// The probe that counts its requests by how much it grows.
    counted_by: Probe,
    requests: Option<u64>,
    started_when_output: Option<String>,
}

impl Program {
    /// Fills in names.
    ///
    /// # Errors
    /// A name has no value, or there is no such probe.
    pub fn new(
        name: &str,
        planned: &plan::CommandLoad,
        running: &RunningSystem,
        state: &TrialState,
        probes: &[Probe],
    ) -> Result<Program, BringUpError> {
        let names = |n: &str| running.name(n, None);
        let what = format!("load `{name}`");
        let fill = |template: &plan::Template| {
            let filled = template.render(&names);
            filled.map_err(|error| TranslateError::Name { what: what.clone(), error })
        };
        let mut env = Vec::new();
        for (variable, value) in &planned.env {
            env.push((variable.clone(), fill(value)?));
        }
        let no_probe =
            || BringUpError::BeforeLoad(format!("{what}: there is no probe `{}`", planned.counted_by));
        Ok(Program {
            name: name.to_owned(),
            command: CommandSpec {
                name: what.clone(),
                command: component::command(&planned.command, &what, &names)?,
                dir: planned.dir.clone().into(),
                env,
                timeout_ns: None,
                log: running.log_files(name, state).stdout,
            },
            timeout_ns: planned.timeout_ns,
            counted_by: probes
                .iter()
                .find(|p| p.name() == planned.counted_by)
                .cloned()
                .ok_or_else(no_probe)?,
            requests: planned.requests,
            started_when_output: planned.started_when_output.as_ref().map(fill).transpose()?,
        })
    }

    /// What was requested, for the summary.
    pub fn facts(&self) -> LoadFacts {
        LoadFacts {
            model: LoadModel::Command,
            requests: self.requests,
            url: self.command.command.to_string(),
            ..LoadFacts::default()
        }
    }
}

/// A program to be run as one batch of a load.
pub struct ProgramRequest<'a> {
    /// The program to run.
    pub program: &'a Program,
    /// Its description in the summary.
    pub facts: &'a LoadFacts,
    /// The load ends when any of these holds.
    pub stop_when: &'a [Expr],
    /// The figures that matter, and whether someone is watching them.
    pub shown: (&'a [Figure], bool),
    /// Its start and position within the trial.
    pub origin: Origin,
}

/// A program that is running.
struct ProgramRun<'a> {
    run: &'a ProgramRequest<'a>,
    context: &'a TrialContext<'a>,
    running: RunningCommand,
    /// The probe's value before the program started.
    base: f64,
    /// When its load started; `None` if it has not yet.
    began_ns: Option<u64>,
    /// The last check that found its load not started yet.
    looked_ns: u64,
    /// Start of the current second.
    second_ns: u64,
    /// Requests counted in completed seconds.
    reported: u64,
    ticks: Vec<Tick>,
    /// What stop conditions need from the system.
    system: SystemFigures,
    /// The plan's figures, if they are shown.
    shown: Option<ShownFigures<'a>>,
    stopped_by: Option<String>,
}

/// How the program's run ended.
enum ProgramEnd {
    /// The program ended on its own, or something else killed it.
    Itself,
    /// It did not end within its timeout.
    Late,
    /// A stop condition of the plan holds.
    Stopped,
    /// The trial must end.
    Trial,
}

impl ProgramRequest<'_> {
    /// Runs the program to its end. Trouble is recorded in the trial's state; what was counted is returned all the
    /// same.
    pub fn measure(&self, context: &TrialContext<'_>) -> Option<MeasuredLoad> {
        let TrialContext { state, .. } = *context;
        let name = &self.program.name;
        let fails = |why: String| {
            state.abort(AbortReason::Load(format!("load `{name}`: {why}")));
            None
        };
        let base = match self.program.counted_by.read(&mut || state.must_end()) {
            Ok(value) => value,
            Err(_) if state.must_end() => return None,
            Err(error) => {
                return fails(format!(
                    "cannot read the probe that counts its requests before it starts: {error}"
                ));
            }
        };
        if state.cancel.wait_until(self.origin.start_ns) {
            return None;
        }
        let running = match context.running.system.begin_command(&self.program.command) {
            Ok(running) => running,
            Err(error) => return fails(error.to_string()),
        };
        if let Some(watcher) = context.watcher {
            watcher.add(running.target(name));
        }
        let began_ns = self.program.started_when_output.is_none().then(|| running.started_ns());
        let mut program = ProgramRun {
            run: self,
            context,
            second_ns: running.started_ns(),
            looked_ns: running.started_ns(),
            running,
            base,
            began_ns,
            reported: 0,
            ticks: Vec::new(),
            system: SystemFigures::of(self.stop_when),
            shown: ShownFigures::of(self.shown.0, self.shown.1),
            stopped_by: None,
        };
        // The watcher reads at whole seconds, and the program may finish before the first one.
        let mut target = program.running.target(name);
        let first = target.read_now().map(with_nothing_used);
        program.sampled(first, program.running.started_ns());
        let end = program.follow();
        let last = target.read_now();
        let result = context.running.system.end_command(&program.running);
        match result {
            Ok(result) => {
                program.sampled(last, result.ended_ns);
                program.check_begin_at_end(result.ended_ns);
                Some(program.finish(end, result))
            }
            Err(error) => fails(error.to_string()),
        }
    }
}

impl<'a> ProgramRun<'a> {
    fn running_load(&self) -> RunningLoad<'a> {
        RunningLoad { name: &self.run.program.name, facts: self.run.facts, state: self.context.state }
    }

    /// Follows the program until it ends or must end.
    fn follow(&mut self) -> ProgramEnd {
        let state = self.context.state;
        let deadline_ns = self.running.started_ns().saturating_add(self.run.program.timeout_ns);
        loop {
            let look_ns = if self.began_ns.is_some() { POLL_INTERVAL_NS } else { BEGIN_POLL_INTERVAL_NS };
            let next_ns = deadline_ns.min(clock::now_ns() + look_ns);
            if self.running.wait(next_ns, &state.cancel) {
                return ProgramEnd::Itself;
            }
            state.handle_notices(&self.context.running.notices, self.context.emit);
            if state.must_end() {
                return ProgramEnd::Trial;
            }
            let now_ns = clock::now_ns();
            if now_ns >= deadline_ns {
                return ProgramEnd::Late;
            }
            if self.check_begin(now_ns) && self.report_progress(now_ns) {
                return ProgramEnd::Stopped;
            }
        }
    }

    /// Records a reading of what the program had used by `at_ns`.
    fn sampled(&self, sample: Option<Sample>, at_ns: u64) {
        let at_s = (at_ns as f64 - self.run.origin.zero_ns as f64) / 1e9;
        let samples = sample.map(|sample| vec![Sample { at_s, ..sample }]);
        samples
            .into_iter()
            .for_each(|samples| self.context.state.take_watch_event(WatchEvent::Samples(samples)));
    }

    fn check_begin(&mut self, now_ns: u64) -> bool {
        if let (None, Some(text)) = (self.began_ns, &self.run.program.started_when_output) {
            match self.running.has_written(text) {
                true => (self.began_ns, self.second_ns) = (Some(now_ns), now_ns),
                false => self.looked_ns = now_ns,
            }
        }
        self.began_ns.is_some()
    }

    /// Checks a program that has ended, whose load may have started and ended between two checks. The start then gets
    /// the time of the earlier check, so that no load has zero length.
    fn check_begin_at_end(&mut self, ended_ns: u64) {
        self.check_begin(self.looked_ns.min(ended_ns));
    }

    /// Reports progress; returns true if the load must end.
    fn report_progress(&mut self, now_ns: u64) -> bool {
        let counted = self.counted_so_far();
        while now_ns >= self.second_ns + SECOND_NS {
            self.second(self.second_ns + SECOND_NS, counted);
        }
        let at_s = self.since_began_s(now_ns);
        let last = self.ticks.last().map_or(0.0, |t| t.counts.ok as f64);
        // A line about the progress shows the figures too.
        self.show_figures(counted, at_s);
        (self.context.emit)(RunEvent::Progress(Progress {
            load: self.run.program.name.clone(),
            at_s,
            counts: counts_of(counted),
            ok_per_s: last,
            p50_ms: None,
            p99_ms: None,
            connections: 0,
        }));
        if self.run.stop_when.is_empty() {
            return false;
        }
        let (load, measured) = (self.running_load(), measured(counted, at_s));
        self.stopped_by = load.reached(self.run.stop_when, &mut self.system, measured);
        self.stopped_by.is_some()
    }

    fn show_figures(&mut self, counted: u64, at_s: f64) {
        let load = self.running_load();
        if let Some(shown) = &mut self.shown
            && shown.is_due(at_s)
        {
            load.show(shown, measured(counted, at_s), self.context.emit);
        }
    }

    /// The count according to the watcher's last reading.
    fn counted_so_far(&self) -> u64 {
        let last = self.context.state.readings().last(self.run.program.counted_by.name());
        last.map_or(self.reported, |value| self.grown_to(value)).max(self.reported)
    }

    fn grown_to(&self, value: f64) -> u64 {
        (value - self.base).max(0.0) as u64
    }

    /// Completes a second, with what was counted by its end.
    fn second(&mut self, end_ns: u64, counted: u64) {
        let zero_ns = self.run.origin.zero_ns;
        let at_s = |ns: u64| (ns as f64 - zero_ns as f64) / 1e9;
        let tick = Tick {
            load: self.run.program.name.clone(),
            batch: self.run.origin.batch,
            from_s: at_s(self.second_ns),
            to_s: at_s(end_ns),
            in_window: true,
            counts: counts_of(counted.saturating_sub(self.reported)),
            ..Tick::default()
        };
        (self.second_ns, self.reported) = (end_ns, counted.max(self.reported));
        self.context.state.write(|w| w.tick(&tick));
        (self.context.emit)(RunEvent::Second(Box::new(tick.clone())));
        self.ticks.push(tick);
    }

    fn since_began_s(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.began_ns.unwrap_or(now_ns)) as f64 / 1e9
    }

    /// The result of the program. Reads the probe once more: this last value counts.
    fn finish(mut self, end: ProgramEnd, result: CommandResult) -> MeasuredLoad {
        let TrialContext { state, .. } = *self.context;
        let program = self.run.program;
        let counted =
            match program.counted_by.read_within(UNHURRIED_READ_TIMEOUT_NS, &mut || state.must_end()) {
                Ok(value) => {
                    state.add_reading(program.counted_by.name(), value);
                    self.grown_to(value).max(self.reported)
                }
                Err(error) => {
                    if !state.must_end() {
                        let text = format!("load `{}`: cannot count its requests: {error}", program.name);
                        state.abort(AbortReason::Load(text));
                    }
                    self.counted_so_far()
                }
            };
        self.judge(&end, &result, counted);
        let began_ns = self.began_ns.unwrap_or(result.ended_ns);
        let ended_ns = result.ended_ns.max(began_ns);
        while ended_ns > self.second_ns + SECOND_NS {
            self.second(self.second_ns + SECOND_NS, self.reported);
        }
        self.second(ended_ns.max(self.second_ns), counted);
        let (ended, how) = state.how_load_ended(self.stopped_by.as_deref());
        let elapsed_s = (ended_ns - began_ns) as f64 / 1e9;
        MeasuredLoad {
            run: LoadRun {
                load: program.name.clone(),
                batch: self.run.origin.batch,
                at_s: (began_ns as f64 - self.run.origin.zero_ns as f64) / 1e9,
                measured: measured(counted, elapsed_s),
            },
            generator: Generator::default(),
            agents: Vec::new(),
            ticks: self.ticks,
            intervals: Vec::new(),
            examples: Vec::new(),
            ended,
            how,
        }
    }

    /// Checks whether the program did what it should.
    fn judge(&self, end: &ProgramEnd, result: &CommandResult, counted: u64) {
        let (state, program) = (self.context.state, self.run.program);
        if result.stragglers > 0 {
            let text = format!(
                "load `{}`: {} processes outlived its command and were killed",
                program.name, result.stragglers
            );
            state.record_and_show(text, self.context.emit);
        }
        let (exit, took_s) = (result.status.exit, result.took_s);
        let (name, command) = (result.name.clone(), result.command.clone());
        state.record_event(EventKind::Command { name, command, exit, took_s });
        let why = match end {
            ProgramEnd::Stopped | ProgramEnd::Trial => return,
            ProgramEnd::Late => {
                let within_s = program.timeout_ns as f64 / 1e9;
                let tail = &result.tail;
                format!(
                    "it had not ended after {within_s} s and was killed: `{}`{tail}\nhint: allow more with `timeout`",
                    result.command
                )
            }
            ProgramEnd::Itself if !result.is_ok() => match result.clone().checked() {
                Ok(_) => return,
                Err(error) => error.to_string(),
            },
            ProgramEnd::Itself if self.began_ns.is_none() => {
                let text = program.started_when_output.as_deref().unwrap_or_default();
                format!("it ended before `{text}`, which starts its load, appeared in its output")
            }
            ProgramEnd::Itself => match program.requests {
                Some(planned) if planned != counted => format!(
                    "probe `{}` counted {} of the {} planned requests",
                    program.counted_by.name(),
                    format_count(counted as f64),
                    format_count(planned as f64),
                ),
                _ => return,
            },
        };
        state.abort(AbortReason::Load(format!("load `{}`: {why}", program.name)));
    }
}

/// A reading as of the program's start: it may have been taken later, but at the start nothing had been used.
fn with_nothing_used(read: Sample) -> Sample {
    let none = |used: Option<f64>| used.map(|_| 0.0);
    Sample {
        cpu_s: none(read.cpu_s),
        cpu_user_s: none(read.cpu_user_s),
        cpu_system_s: none(read.cpu_system_s),
        block_read_bytes: read.block_read_bytes.map(|_| 0),
        block_written_bytes: read.block_written_bytes.map(|_| 0),
        ..read
    }
}

/// Requests known to have been made; everything unknown stays empty.
fn counts_of(counted: u64) -> Counts {
    Counts { due: counted, started: counted, ok: counted, ..Counts::default() }
}

fn measured(counted: u64, elapsed_s: f64) -> Measured {
    Measured {
        counts: counts_of(counted),
        window: Window { from_s: 0.0, to_s: elapsed_s },
        in_window: InWindow { due: counted, started: counted, ok: counted },
        elapsed_s,
        ..Measured::default()
    }
}
