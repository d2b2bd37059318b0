//! What is shown while a load runs: a screen on a terminal; with `--plain`, or if the terminal is too small, a status
//! line that is redrawn in place; without a terminal, one line per second. `--ui` adds a page in the browser.
//!
//! It reads events, never the engine's state, and writes only to standard error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use loadlab_record::documents::figure::FigureValue;
use loadlab_record::documents::manifest::FigureFacts;
use loadlab_record::sync::lock;
use loadlab_record::text::units::{format_count, format_duration_ns};
use loadlab_report::terminal::hanging;
use loadlab_run::RunEvent;
use loadlab_run::event::Progress;
use loadlab_system::Cancel;

use crate::args::ProgressArgs;
use crate::args::serving::Serving;
use crate::exit::CommandEnd;
use crate::live::Live;
use crate::live::wording::{self, describe};
use crate::mask;
use crate::metrics::Metrics;
use crate::output;
use crate::screen::Screen;
use crate::ui::Ui;

/// A live view; called from several threads.
pub struct View {
    quiet: bool,
    terminal: bool,
    screen: Option<Screen>,
    metrics: Option<Metrics>,
    ui: Option<Ui>,
    /// The state for screen and page, if there is either.
    live: Option<Arc<Live>>,
    after: Mutex<After>,
    state: Mutex<ViewState>,
}

/// Text that must outlive the screen: it is printed once the screen is gone.
#[derive(Default)]
struct After {
    title: String,
    remarks: Vec<String>,
}

/// How much of a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputMode {
    /// No progress: `--quiet`.
    Nothing,
    /// Lines, of which a terminal shows the last one only: `--plain`.
    Lines,
    /// A screen, if the terminal has room for one.
    Screen,
}

impl OutputMode {
    /// The mode that `--quiet` and `--plain` ask for.
    pub fn of(args: &ProgressArgs) -> OutputMode {
        match (args.quiet, args.plain) {
            (true, _) => OutputMode::Nothing,
            (false, true) => OutputMode::Lines,
            (false, false) => OutputMode::Screen,
        }
    }
}

#[derive(Default)]
struct ViewState {
    /// A status line that can be redrawn is on the terminal.
    drawn: bool,
    /// Running loads, by name.
    loads: BTreeMap<String, Running>,
    /// The figures that matter, for the current case.
    facts: Vec<FigureFacts>,
}

/// A running load.
#[derive(Default)]
struct Running {
    planned_s: Option<f64>,
    planned_requests: Option<u64>,
    /// Last whole second that was printed as a plain line.
    printed_s: u64,
    prefix: String,
    /// The first figures that matter, each as `NAME VALUE`.
    figures: Vec<String>,
}

impl ViewState {
    /// Stores the first of the figures that matter, for the line of their load.
    fn figures(&mut self, load: &str, values: &[(String, FigureValue)]) {
        let Some(running) = self.loads.get_mut(load) else { return };
        running.figures.clear();
        for facts in self.facts.iter().take(wording::IN_LINE) {
            if let Some((name, value)) = values.iter().find(|(name, _)| *name == facts.name) {
                running.figures.push(format!("{name} {}", wording::figure(facts, value)));
            }
        }
    }
}

impl View {
    /// Starts the view; `title` names what runs.
    ///
    /// # Errors
    /// Metrics or the page cannot be served on the given address.
    pub fn new(mode: OutputMode, title: &str, serving: Serving) -> Result<Self, CommandEnd> {
        let title = &mask::text(title);
        let metrics = Metrics::start(serving.metrics, title)?;
        let live = Arc::new(Live::new(title));
        // Prints its URL before there is a screen, so that the URL is still on the terminal afterwards.
        let ui = serving.page.map(|address| Ui::serve(address, live.clone())).transpose()?;
        let terminal = output::err_is_terminal();
        let screen = (terminal && mode == OutputMode::Screen)
            .then(|| Screen::start(live.clone(), output::err_has_colour()))
            .flatten();
        Ok(View {
            quiet: mode == OutputMode::Nothing,
            terminal,
            live: (ui.is_some() || screen.is_some()).then_some(live),
            screen,
            metrics,
            ui,
            after: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// Shows how the run ended, turns the page into the report, and waits while the report is served.
    pub fn serve_report(
        &self,
        ended: CommandEnd,
        wait: Option<Duration>,
        cancel: &Cancel,
        report: impl FnOnce() -> Option<String>,
    ) -> CommandEnd {
        let Some(ui) = &self.ui else { return ended };
        let ended = ended.shown();
        ui.serve_report(report(), wait, cancel);
        ended
    }

    /// Shows a line, cut to the terminal's width.
    pub fn title(&self, text: &str) {
        let text = &mask::text(text);
        let width = if self.terminal { output::err_width() } else { usize::MAX };
        match text.char_indices().nth(width) {
            Some(_) => {
                self.text(&text.chars().take(width.saturating_sub(1)).chain(['…']).collect::<String>())
            }
            None => self.text(text),
        }
    }

    /// Shows remarks on the run, most of them before the load begins.
    pub fn remarks(&self, remarks: Vec<String>) {
        for text in remarks {
            let text = mask::text(&text).into_owned();
            if let Some(live) = &self.live {
                live.remark(&text);
            }
            match self.screen {
                Some(_) => self.after().remarks.push(text),
                None if self.quiet => {}
                None => crate::exit::note(&text),
            }
        }
    }

    /// Shows a plain line; with a screen, once that is gone.
    pub fn text(&self, text: &str) {
        if self.screen.is_some() {
            self.after().title = text.to_owned();
        } else if !self.quiet {
            let mut state = lock(&self.state);
            self.line(&mut state, text);
        }
    }

    /// Removes the screen or the renewable line.
    pub fn done(&self) {
        self.clear();
        if let Some(metrics) = &self.metrics {
            metrics.finish();
            // Even with `--quiet`: a user who asked for a push has to learn that none arrived.
            metrics.fault().into_iter().for_each(|text| crate::exit::note(&text));
        }
    }

    fn clear(&self) {
        if let Some(screen) = &self.screen {
            screen.stop();
            let After { title, remarks } = std::mem::take(&mut *self.after());
            if !title.is_empty() {
                crate::exit::line(&title);
            }
            remarks.iter().for_each(|text| crate::exit::note(text));
            return;
        }
        let mut state = lock(&self.state);
        self.wipe(&mut state);
    }

    fn after(&self) -> MutexGuard<'_, After> {
        lock(&self.after)
    }

    /// Shows an event.
    pub fn on_event(&self, event: &RunEvent) {
        if let Some(live) = &self.live {
            live.on_event(event);
        }
        if let Some(metrics) = &self.metrics {
            metrics.on_event(event);
        }
        if self.quiet {
            return;
        }
        if let Some(fault) = self.metrics.as_ref().and_then(Metrics::fault) {
            self.remarks(vec![fault]);
        }
        if self.screen.is_some() {
            return;
        }
        let mut state = lock(&self.state);
        let state = &mut *state;
        match event {
            RunEvent::LoadStarted { load, planned_s, planned_requests, batch } => {
                let prefix = match batch {
                    (_, 1) => String::new(),
                    (at, of) => format!("batch {}/{of} ", at + 1),
                };
                let (planned_s, planned_requests) = (*planned_s, *planned_requests);
                let running = Running { planned_s, planned_requests, prefix, ..Running::default() };
                state.loads.insert(load.clone(), running);
            }
            RunEvent::Progress(progress) => self.progress(state, progress),
            RunEvent::Figures { load, values } => state.figures(load, values),
            RunEvent::LoadEnded { load, how } => {
                state.loads.remove(load);
                if how.starts_with("stopped") { self.line(state, how) } else { self.wipe(state) }
            }
            other => {
                if let RunEvent::TrialStarted { figures, .. } = other {
                    state.facts.clone_from(figures);
                }
                if let Some(text) = describe(other) {
                    let text = if self.terminal { wrapped(&text, output::err_width()) } else { text };
                    self.line(state, &text);
                }
            }
        }
    }

    fn progress(&self, state: &mut ViewState, progress: &Progress) {
        // Several loads at once are shown with their names.
        let name = match state.loads.len() {
            0 | 1 => String::new(),
            _ => format!("{}: ", progress.load),
        };
        let load = state.loads.entry(progress.load.clone()).or_default();
        if self.terminal {
            let width = output::err_width();
            let text = progress_line(&name, load, progress, width);
            output::renew(&text);
            state.drawn = true;
        } else if progress.at_s as u64 > load.printed_s {
            load.printed_s = progress.at_s as u64;
            let text = progress_line(&name, load, progress, 200);
            crate::exit::line(text.trim_end());
        }
    }

    fn line(&self, state: &mut ViewState, text: &str) {
        self.wipe(state);
        crate::exit::line(text);
    }

    fn wipe(&self, state: &mut ViewState) {
        if state.drawn {
            state.drawn = false;
            output::renew("");
        }
    }
}

/// Wraps lines to the terminal's width, each with its own indent: notes and doubts may be long.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        hanging(&mut out, indent, rest, width, str::to_owned);
    }
    out.trim_end().to_owned()
}

/// Progress and figures in one line; if the terminal is narrow, parts are dropped from the end.
fn progress_line(name: &str, load: &Running, p: &Progress, width: usize) -> String {
    let ms = |v: Option<f64>| v.map_or("–".to_owned(), |ms| format_duration_ns(ms * 1e6));
    let left = left_of(load, p);
    let figures = match load.figures.is_empty() {
        true => vec![format!("p50 {}", ms(p.p50_ms)), format!("p99 {}", ms(p.p99_ms))],
        false => load.figures.clone(),
    };
    let before = [
        format!("{name}{}{left}", load.prefix),
        format!("{}/s", format_count(p.ok_per_s.round())),
        format!("{} ok", format_count(p.counts.ok as f64)),
        match p.counts.failed() {
            0 => "0 failed".to_owned(),
            n => format!("{} FAILED", format_count(n as f64)),
        },
    ];
    let after = match p.counts.dropped {
        0 => format!("{} in flight", format_count(p.counts.in_flight as f64)),
        n => format!("{} dropped", format_count(n as f64)),
    };
    let mut line = String::new();
    for part in before.into_iter().chain(figures).chain([after]) {
        let gap = if line.is_empty() { 0 } else { 2 };
        // One column stays free, or some terminals wrap.
        if line.chars().count() + gap + part.chars().count() >= width {
            break;
        }
        line.push_str(&" ".repeat(gap));
        line.push_str(&part);
    }
    line
}

fn left_of(load: &Running, p: &Progress) -> String {
    let done = p.counts.ok + p.counts.failed();
    let share = match (load.planned_s, load.planned_requests) {
        (Some(s), _) if s > 0.0 => Some(p.at_s / s),
        (_, Some(n)) if n > 0 => Some(done as f64 / n as f64),
        _ => None,
    };
    let Some(share) = share.map(|s| s.clamp(0.0, 1.0)) else { return format!("{:.0}s", p.at_s) };
    let filled = (share * 10.0).round() as usize;
    let bar = format!("{}{}", "█".repeat(filled), "░".repeat(10 - filled));
    let left_s = match load.planned_s {
        Some(s) => s - p.at_s,
        None if share > 0.0 => p.at_s / share - p.at_s,
        None => return format!("{bar} {:.0}s", p.at_s),
    };
    format!("{bar} {:.0}s left", left_s.max(0.0))
}
