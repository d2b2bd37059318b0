//! `loadlab bisect`: revisions from a good one to a bad one → the one that changed a figure.

mod reading;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loadlab_analysis::Exit;
use loadlab_analysis::bisect::{Bisection, Next};
use loadlab_plan::{ComponentKind, ComponentSpec, Image, Options, Plan, Revision};
use loadlab_record::documents::figure::{FigureValue, NumberKind};
use loadlab_record::documents::manifest::{FigureFacts, RevisionFacts};
use loadlab_record::documents::summary::Verdict;
use loadlab_record::text::first_line;
use loadlab_record::text::units::{plural, significant};
use loadlab_report::terminal;
use loadlab_run::{RunError, RunOptions, conduct};
use loadlab_system::{Cancel, guardian};
use serde_json::{Value, json};

use self::reading::{Measured, Reading, Unusable, misleading, reading_of, usable};
use super::read_plan::{self, ReadPlan};
use super::revisions::git::Repository;
use super::revisions::{Trees, changes};
use super::run::{GUARDIAN, default_options, default_out, own_exe};
use super::session;
use super::{only_case, without_revisions};
use crate::args::{self, BisectArgs, PlanArgs, PlanChoice};
use crate::exit::{self, CommandEnd, note};
use crate::live::wording;
use crate::{mask, output};

/// This many INVALID trials in a row end the search.
const MOST_INVALID: usize = 3;
/// The exit code that `git bisect run` takes for "cannot be tested".
const SKIP: u8 = 125;
/// The first code that ends `git bisect run`; most below it mean "bad", including those of our own errors.
const STOP: u8 = 128;

/// Runs the command.
pub fn command(args: &BisectArgs) -> CommandEnd {
    if args.exec {
        return once(args);
    }
    match searched(args) {
        Ok(ended) | Err(ended) => ended,
    }
}

fn choice(args: &BisectArgs, set: Vec<(String, String)>) -> PlanChoice {
    PlanChoice {
        profile: args.profile.clone(),
        set,
        case: args.case.clone(),
        tags: args.tags.clone(),
        // The search decides how many trials a revision has.
        trials: Some(1),
        ..PlanChoice::default()
    }
}

/// One trial of the working tree, with an exit code for `git bisect run`.
fn once(args: &BisectArgs) -> CommandEnd {
    if let Some(option) = args.not_with_exec() {
        let why = format!("{option} is for a search, and --exec measures one tree\nhint: leave it out");
        return CommandEnd::error(Exit::BadPlan, why).with_code(STOP);
    }
    let plan = PlanArgs { plan: PathBuf::from(&args.first), choice: choice(args, args.set.clone()) };
    let read = match read_plan::read_plan(&plan) {
        Ok(read) => read,
        // A plan that is wrong is wrong at all revisions.
        Err(ended) => return ended.with_code(STOP),
    };
    if let Err(why) = without_revisions(&read.plan, "bisect") {
        return CommandEnd::error(Exit::BadPlan, why).with_code(STOP);
    }
    if expects_nothing(&read.plan) {
        let why = "the plan expects nothing, so no revision is bad\nhint: give it `expect`, such as `p99 < 50ms`; \
                   without it, `loadlab bisect GOOD..BAD PLAN --figure NAME` finds what changed a figure";
        return CommandEnd::error(Exit::BadPlan, why).with_code(STOP);
    }
    let options =
        match options_of(args, &read, args.out.clone().unwrap_or_else(|| default_out(&read.plan.name))) {
            Ok(options) => options,
            Err(ended) => return ended.with_code(STOP),
        };
    let cancel = match session::prepare_process() {
        Ok(cancel) => cancel,
        Err(ended) => return ended.with_code(STOP),
    };
    let (exit, is_bad, why) = match conduct(&read.plan, &options, &cancel, &|_| {}) {
        Ok(result) => {
            let verdicts = result.trials.iter().filter_map(|trial| trial.summary.as_ref());
            let is_bad = verdicts.map(|summary| summary.verdict).any(|verdict| verdict == Verdict::Fail);
            (result.exit, is_bad, result.trials.iter().find_map(|trial| trial.failure.clone()))
        }
        Err(error) => (error.exit(), false, Some(error.to_string())),
    };
    let open = match exit {
        Exit::Undecided => Some("too few requests to decide what the plan expects: a longer load has more"),
        Exit::Invalid => Some("INVALID: the measurement cannot be trusted"),
        _ => None,
    };
    why.as_deref().or(open).iter().for_each(|why| note(why));
    CommandEnd::with(exit).with_code(answer(exit, is_bad))
}

/// The exit code for `git bisect run`. `is_bad`: the verdict on a trial is FAIL. Without that, something else has
/// failed, such as taking the system down, which says nothing about the revision.
fn answer(exit: Exit, is_bad: bool) -> u8 {
    match exit {
        Exit::Ok => 0,
        Exit::Failed if is_bad => 1,
        Exit::BadPlan | Exit::Interrupted => STOP,
        Exit::Failed | Exit::NotUp | Exit::Invalid | Exit::CouldNotRun | Exit::Undecided => SKIP,
    }
}

/// Whether every trial would pass, however slow its revision is. A search fails if its lowest level does.
fn expects_nothing(plan: &Plan) -> bool {
    plan.cases().iter().all(|case| case.expect.is_empty() && case.find.is_none())
}

/// `p99 of POST /order` in the syntax of conditions, and every other figure as it is.
fn formula(figure: &str) -> String {
    match figure.split_once(" of ") {
        Some((of, step)) if !step.trim().is_empty() && !of.contains(['/', '\'', '"']) => {
            format!("'tag.{}.{}'", step.trim().replace("${", "$${"), of.trim())
        }
        _ => figure.to_owned(),
    }
}

/// The images by name that components build, each with its component.
fn built_images(plan: &Plan) -> Vec<(String, String)> {
    let components = plan.cases().iter().flat_map(|case| &case.system.components);
    let image = |component: &ComponentSpec| match &component.kind {
        ComponentKind::Container(container) => match &container.image {
            Image::Named(image) => Some((component.name.clone(), image.clone())),
            Image::Built { .. } => None,
        },
        _ => None,
    };
    components.filter(|component| !component.build.is_empty()).filter_map(image).collect()
}

/// The plan with the figure among those that matter.
struct PlanWithFigure {
    read: ReadPlan,
    /// How it was read.
    choice: PlanChoice,
    /// The figure's definition.
    figure: FigureFacts,
}

fn with_figure(args: &BisectArgs, plan: &Path) -> Result<PlanWithFigure, CommandEnd> {
    let read_with = |set: Vec<(String, String)>| {
        let choice = choice(args, set);
        let read = read_plan::read_plan(&PlanArgs { plan: plan.to_owned(), choice: choice.clone() })?;
        Ok::<_, CommandEnd>((read, choice))
    };
    let (mut read, mut choice) = read_with(args.set.clone())?;
    without_revisions(&read.plan, "bisect").map_err(|why| CommandEnd::error(Exit::BadPlan, why))?;
    let has = |plan: &Plan, name: &str| {
        plan.cases().iter().all(|c| c.figures.iter().any(|figure| figure.name == name))
    };
    let mut name = args.figure.clone();
    if !has(&read.plan, &name) {
        let text = formula(&name);
        let added = if read.plan.cases().iter().any(|c| !c.figures.is_empty()) {
            // A dot would separate keys.
            name = name.replace('.', " ");
            while has(&read.plan, &name) {
                name.push_str(" again");
            }
            (format!("figures.{name}"), json!(text).to_string())
        } else {
            ("figures".to_owned(), json!({ name.as_str(): text }).to_string())
        };
        (read, choice) = read_with(args.set.iter().cloned().chain([added]).collect())?;
    }
    let case =
        only_case(&read.plan, "bisect").map_err(|message| CommandEnd::error(Exit::BadPlan, message))?;
    let found = case.figures.iter().find(|f| f.name == name);
    let facts = loadlab_run::figures_of_case(case).into_iter().find(|f| f.name == name);
    match (found, facts) {
        (Some(_), Some(figure)) => Ok(PlanWithFigure { read, choice, figure }),
        _ => Err(CommandEnd::error(Exit::BadPlan, format!("the plan has no figure `{}`", args.figure))),
    }
}

fn options_of(args: &BisectArgs, read: &ReadPlan, out: PathBuf) -> Result<RunOptions, CommandEnd> {
    Ok(RunOptions { has_viewer: false, ..default_options(read, out, &args.allow_host, &args.resolve)? })
}

/// A search in progress.
struct Search<'a> {
    args: &'a BisectArgs,
    read: ReadPlan,
    choice: PlanChoice,
    figure: FigureFacts,
    /// The revisions from the good one to the bad one.
    revisions: Vec<RevisionFacts>,
    trees: Trees,
    out: PathBuf,
    cancel: Cancel,
    /// Whether each revision is built.
    built: Vec<bool>,
    /// Images that were built: component, image, and index of the revision.
    images: Vec<(String, String, usize)>,
    trials: Vec<Trial>,
    /// Index of a skipped revision, and why it is skipped.
    skipped: Vec<(usize, String)>,
    made: usize,
}

/// A trial that counts.
struct Trial {
    revision: usize,
    reading: Reading,
    record: PathBuf,
}

fn searched(args: &BisectArgs) -> Result<CommandEnd, CommandEnd> {
    let bad = |why: String| CommandEnd::error(Exit::BadPlan, why);
    let range = args::revisions::range(&args.first).map_err(bad)?;
    let [good_name, bad_name] = range.0.as_slice() else {
        return Err(bad("a search has two ends: `GOOD..BAD`".to_owned()));
    };
    let plan = args.plan.clone().unwrap_or_default();
    let PlanWithFigure { read, choice, figure } = with_figure(args, &plan)?;
    let repository = Repository::of(Path::new(&read.plan.dir)).map_err(bad)?;
    let (good, last) =
        (repository.revision(good_name).map_err(bad)?, repository.revision(bad_name).map_err(bad)?);
    let revisions = repository.between(&good, &last).map_err(bad)?;
    if revisions.len() < 2 {
        return Err(bad(format!(
            "`{good_name}` and `{bad_name}` are the same commit: nothing changed between them"
        )));
    }
    let changed = changes(&repository, &[good, last], &read.path, args.allow_dirty).map_err(bad)?;
    changed.iter().for_each(|text| note(text));
    let cancel = session::prepare_process()?;
    let not_up = |why: String| CommandEnd::error(Exit::NotUp, why);
    let guardian = guardian::spawn(&own_exe()?, GUARDIAN).map_err(|error| not_up(error.to_string()))?;
    let trees = Trees::new(repository, guardian).map_err(not_up)?;
    let out = args.out.clone().unwrap_or_else(|| default_out(&format!("{}-bisect", read.plan.name)));
    let built = vec![false; revisions.len()];
    let mut all = Search {
        args,
        read,
        choice,
        figure,
        revisions,
        trees,
        out,
        cancel,
        built,
        images: Vec::new(),
        trials: Vec::new(),
        skipped: Vec::new(),
        made: 0,
    };
    let ended = all.search();
    all.trees.remove().iter().for_each(|text| note(text));
    ended
}

impl Search<'_> {
    fn search(&mut self) -> Result<CommandEnd, CommandEnd> {
        let began = Instant::now();
        let seed = RandomState::new().build_hasher().finish();
        let last = self.revisions.len() - 1;
        let mut search = Bisection::new(last, self.args.confidence, self.args.at_most as usize, seed);
        let what = plural(last as u64, "revision", "revisions");
        self.say(&format!("{what} to search, for what changed {}", self.figure.name));
        let mut invalid = 0;
        let next = loop {
            let next = search.next();
            let Next::Measure(revision) = next else { break next };
            let is_over = self.args.budget.is_some_and(|ns| began.elapsed() >= Duration::from_nanos(ns));
            if is_over {
                break Next::NotCertain(search.likeliest());
            }
            match self.measure(revision)? {
                Measured::Value(reading) => {
                    invalid = 0;
                    search.measured(revision, self.on_scale(reading.value)?);
                    self.announce(revision, reading, &search);
                    self.check_bounds()?;
                }
                Measured::Invalid if invalid + 1 < MOST_INVALID => invalid += 1,
                Measured::Invalid => {
                    let why =
                        format!("{MOST_INVALID} trials in a row are INVALID: see {}", self.out.display());
                    return Err(CommandEnd::error(Exit::Invalid, why));
                }
                Measured::Skipped(why) if revision == 0 || revision == last => {
                    let end = if revision == 0 { "good" } else { "bad" };
                    let why = format!("the {end} end {} cannot be measured: {why}", self.named(revision));
                    return Err(CommandEnd::error(Exit::NotUp, why));
                }
                Measured::Skipped(why) => {
                    invalid = 0;
                    self.say(&format!("{}: skipped: {why}", self.named(revision)));
                    self.skipped.push((revision, why));
                    search.skip(revision);
                }
            }
        };
        self.finish(&next, &search)
    }

    /// Runs one trial of a revision.
    fn measure(&mut self, revision: usize) -> Result<Measured, CommandEnd> {
        let known = self.revisions[revision].clone();
        let interrupted = format!("interrupted; the trials are in {}", self.out.display());
        let interrupted = || CommandEnd::error(Exit::Interrupted, &interrupted);
        // An interrupt ends git, too.
        let is_interrupted = || self.cancel.is_cancelled();
        match self.trees.repository().check_submodules(&known) {
            Err(_) if is_interrupted() => return Err(interrupted()),
            Err(why) => return Ok(Measured::Skipped(first_line(&why))),
            Ok(()) => {}
        }
        let failed = |why: String| match self.cancel.is_cancelled() {
            true => interrupted(),
            false => CommandEnd::error(Exit::NotUp, why),
        };
        let (dir, taken) = self.trees.check_out(&known, &self.read.text).map_err(failed)?;
        taken.iter().for_each(|text| note(text));
        let revisions = vec![Revision { name: known.name.clone(), dir: Some(dir) }];
        let with = Options { revisions, ..self.read.read_with.clone() };
        let read = read_plan::parse(&self.read.path, self.read.text.clone(), with, &self.choice)?;
        self.check_images(&read.plan, revision)?;
        self.made += 1;
        let out = self.out.join(format!("{:03}-{}", self.made, known.name.replace('/', "-")));
        let mut options = options_of(self.args, &read, out.clone())?;
        (options.revisions, options.is_built) = (vec![known], self.built[revision]);
        let result = match conduct(&read.plan, &options, &self.cancel, &|_| {}) {
            Ok(result) => result,
            Err(RunError::NotUp(why)) => return Ok(Measured::Skipped(first_line(&why))),
            Err(error) => return Err(CommandEnd::error(error.exit(), error)),
        };
        self.built[revision] = true;
        if self.cancel.is_cancelled() {
            return Err(interrupted());
        }
        let Some(trial) = result.trials.into_iter().next() else { return Ok(Measured::Invalid) };
        let why = trial.failure.as_deref().map(first_line);
        let summary = match usable(trial.summary, result.exit, why) {
            Ok(summary) => summary,
            Err(Unusable::Measured(measured)) => return Ok(measured),
            Err(Unusable::Failed(why)) => return Err(CommandEnd::error(Exit::CouldNotRun, why)),
        };
        let name = &self.figure.name;
        let reading = reading_of(name, summary.figures.get(name))
            .map_err(|why| CommandEnd::error(Exit::Undecided, why))?;
        self.trials.push(Trial { revision, reading, record: out });
        Ok(Measured::Value(reading))
    }

    /// Ends the search if two revisions build an image under one name: one that is measured again would run the other's.
    fn check_images(&mut self, plan: &Plan, revision: usize) -> Result<(), CommandEnd> {
        for (component, image) in built_images(plan) {
            let built = (component, image, revision);
            let is_shared = |(component, image, other): &(String, String, usize)| {
                (component, image) == (&built.0, &built.1) && *other != revision
            };
            if self.images.iter().any(is_shared) {
                let (component, image, _) = built;
                let why = format!(
                    "`{component}` has the image `{image}` at every revision, and builds it from each\n\
                     hint: let loadlab build it: `container: {{ build: FOLDER }}`"
                );
                return Err(CommandEnd::error(Exit::BadPlan, why));
            }
            self.images.push(built);
        }
        Ok(())
    }

    /// Ends the search if a figure of which only a lower bound is known may mislead it.
    fn check_bounds(&self) -> Result<(), CommandEnd> {
        let on_scale = |value: f64| if self.is_ratio() { value.ln() } else { value };
        let all: Vec<(usize, Reading)> = self
            .trials
            .iter()
            .map(|t| (t.revision, Reading { value: on_scale(t.reading.value), ..t.reading }))
            .collect();
        let Some(place) = misleading(&all, self.revisions.len() - 1) else { return Ok(()) };
        let Trial { revision, reading, .. } = &self.trials[place];
        let why = format!(
            "`{}` is only known to be {} in a trial of {}, because requests never ended, and that does not tell the \
             ends apart\nhint: a longer load, or a figure that falls among requests that end, such as `p50`",
            self.figure.name,
            self.worded(*reading),
            self.named(*revision)
        );
        Err(CommandEnd::error(Exit::Undecided, why))
    }

    /// A value on the search's scale: times, rates and sizes by their logarithm, shares as they are.
    fn on_scale(&self, value: f64) -> Result<f64, CommandEnd> {
        match self.is_ratio() {
            false => Ok(value),
            true if value > 0.0 => Ok(value.ln()),
            true => {
                let why = format!("`{}` is {value} in a trial, so there is no ratio", self.figure.name);
                Err(CommandEnd::error(Exit::Undecided, why))
            }
        }
    }

    fn is_ratio(&self) -> bool {
        self.figure.kind != NumberKind::Fraction
    }

    fn named(&self, revision: usize) -> String {
        let known = &self.revisions[revision];
        format!("{} ({})", known.name, known.subject)
    }

    fn say(&self, text: &str) {
        if !self.args.quiet {
            exit::line(text);
        }
    }

    fn shown(&self, value: f64) -> String {
        wording::figure(&self.figure, &FigureValue { value: Some(value), ..Default::default() })
    }

    fn worded(&self, reading: Reading) -> String {
        let least = if reading.is_at_least { "at least " } else { "" };
        format!("{least}{}", self.shown(reading.value))
    }

    fn announce(&self, revision: usize, reading: Reading, search: &Bisection) {
        let likeliest = search.likeliest();
        let so_far = match likeliest.first() {
            Some((k, p)) if *p >= 0.1 => {
                format!("; likeliest so far {} ({})", self.revisions[*k].name, probability(*p))
            }
            _ => String::new(),
        };
        let number = search.trials();
        self.say(&format!("[{number}] {}: {}{so_far}", self.named(revision), self.worded(reading)));
    }

    fn shift(&self, search: &Bisection, first_bad: usize) -> Option<f64> {
        let shift = search.shift(first_bad)?;
        Some(if self.is_ratio() { shift.exp() } else { shift })
    }

    fn finish(&self, next: &Next, search: &Bisection) -> Result<CommandEnd, CommandEnd> {
        let (verdict, named) = match next {
            Next::Found(named) => ("found", named.as_slice()),
            Next::NoDifference => ("no_difference", &[][..]),
            Next::NotCertain(named) => ("not_certain", named.as_slice()),
            Next::Measure(_) => ("not_certain", &[][..]),
        };
        let exit = if verdict == "found" { Exit::Ok } else { Exit::Undecided };
        let document = self.document(verdict, named, search, exit);
        let file = self.out.join("bisect.json");
        let made =
            std::fs::create_dir_all(&self.out).and_then(|()| std::fs::write(&file, masked(&document)?));
        made.map_err(|error| {
            CommandEnd::error(Exit::CouldNotRun, format!("cannot write {}: {error}", file.display()))
        })?;
        match self.args.json {
            true => output::print_json(&document),
            false => self.print(verdict, named, search),
        }
        Ok(CommandEnd::with(exit))
    }

    fn print(&self, verdict: &str, named: &[(usize, f64)], search: &Bisection) {
        let figure = &self.figure.name;
        let trials = plural(search.trials() as u64, "trial", "trials");
        // Lower bounds are at the higher end: the true difference is larger than the known one.
        let is_at_least = self.trials.iter().any(|trial| trial.reading.is_at_least);
        let further = |is_up: bool| match (is_at_least, is_up) {
            (false, _) => "",
            (true, true) => ", or more",
            (true, false) => ", or less",
        };
        let by = |k: usize| match (self.shift(search, k), self.is_ratio()) {
            (Some(ratio), true) => {
                format!(", {figure} {} × from there{}", significant(ratio, 3), further(ratio > 1.0))
            }
            (Some(points), false) => {
                format!(", {figure} {:+.2} points from there{}", points * 100.0, further(points > 0.0))
            }
            (None, _) => String::new(),
        };
        let together: f64 = named.iter().map(|(_, p)| p).sum();
        let line = match (verdict, named) {
            ("found", [(k, p)]) => {
                format!("{} changed it: {}, after {trials}{}", self.named(*k), probability(*p), by(*k))
            }
            ("found", several) => {
                let all: Vec<String> = several.iter().map(|(k, _)| self.named(*k)).collect();
                let k = several.iter().map(|(k, _)| *k).max().unwrap_or(1);
                let of = format!("{} after {trials}{}", probability(together), by(k));
                format!(
                    "one of these changed it ({of}); those between cannot be measured: {}",
                    all.join(", ")
                )
            }
            ("no_difference", _) => {
                format!(
                    "{} and {} do not differ in {figure}, after {trials}",
                    self.named(0),
                    self.named(self.revisions.len() - 1)
                )
            }
            (_, [(k, p), ..]) => {
                format!(
                    "not certain after {trials}; the likeliest is {}: {}",
                    self.named(*k),
                    probability(*p)
                )
            }
            _ => format!("not certain after {trials}: only the ends were measured"),
        };
        let mut lines = String::new();
        terminal::hanging(&mut lines, "", &line, output::out_width(), str::to_owned);
        output::print(&format!("{lines}\n"));
        for (revision, known) in self.revisions.iter().enumerate() {
            let own = self.trials.iter().filter(|trial| trial.revision == revision);
            let mut own: Vec<Reading> = own.map(|trial| trial.reading).collect();
            own.sort_by(|a, b| a.value.total_cmp(&b.value));
            let skipped = self.skipped.iter().find(|skipped| skipped.0 == revision);
            let mark = if named.iter().any(|(k, p)| *k == revision && *p >= 0.1) { "→" } else { " " };
            let text = match (own.get(own.len() / 2), skipped) {
                (Some(median), _) => {
                    format!("{}, {}", self.worded(*median), plural(own.len() as u64, "trial", "trials"))
                }
                (None, Some((_, why))) => format!("skipped: {why}"),
                (None, None) => continue,
            };
            output::print(&format!("{mark} {}  {text}  {}\n", known.name, known.subject));
        }
        output::print(&format!("\nrecords: {}\n", self.out.display()));
    }

    fn document(&self, verdict: &str, named: &[(usize, f64)], search: &Bisection, exit: Exit) -> Value {
        let revision =
            |k: usize| json!({ "commit": self.revisions[k].commit, "subject": self.revisions[k].subject });
        let with = |k: usize, key: &str, value: Value| {
            let mut of = revision(k);
            of[key] = value;
            of
        };
        let trial = |Trial { revision, reading, record }: &Trial| {
            let mut of = with(*revision, "value", json!(reading.value));
            if reading.is_at_least {
                of["is_at_least"] = json!(true);
            }
            of["record"] = json!(record.display().to_string());
            of
        };
        json!({
            "figure": self.figure.name,
            "good": revision(0),
            "bad": revision(self.revisions.len() - 1),
            "revisions": self.revisions.len() - 1,
            "verdict": verdict,
            "exit": exit.code(),
            "first_bad": named.iter().map(|(k, p)| with(*k, "probability", json!(p))).collect::<Vec<_>>(),
            "scale": if self.is_ratio() { "ratio" } else { "difference" },
            "effect": named.first().and_then(|(k, _)| self.shift(search, *k)),
            "trials": self.trials.iter().map(trial).collect::<Vec<_>>(),
            "skipped": self.skipped.iter().map(|(k, why)| with(*k, "why", json!(why))).collect::<Vec<_>>(),
        })
    }
}

/// The document as it is written to a file, masked: a command line that failed may hold a secret.
fn masked(document: &Value) -> std::io::Result<Vec<u8>> {
    let mut text = mask::secrets().json_pretty(document)?;
    text.push(b'\n');
    Ok(text)
}

fn probability(share: f64) -> String {
    // What is nearly certain must not read 100 %.
    format!("{:.0} %", (share * 100.0).min(99.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_takes_a_revision_for_bad_only_if_its_verdict_is_fail() {
        for (exit, is_bad, expect) in [
            (Exit::Ok, false, 0),
            (Exit::Failed, true, 1),
            // The system could not be taken down, or a component died when everything was measured.
            (Exit::Failed, false, 125),
            // A trial failed what the plan expects, but another one was not up.
            (Exit::NotUp, true, 125),
            (Exit::Undecided, false, 125),
            (Exit::Invalid, false, 125),
            (Exit::CouldNotRun, false, 125),
            (Exit::BadPlan, false, 128),
            (Exit::Interrupted, true, 128),
        ] {
            assert_eq!(answer(exit, is_bad), expect, "{exit:?} {is_bad}");
        }
    }

    #[test]
    fn a_plan_that_expects_nothing_finds_nothing() {
        let load = "load: { users: 1, duration: 1s, journey: [ { get: \"http://127.0.0.1:1/\" } ] }\n";
        let search = "find: { users: 1..9, expect: [\"p99 < 1s\"] }\n";
        for (more, expect) in [("", true), ("expect: [\"p50 < 1s\"]\n", false), (search, false)] {
            let text = format!("loadlab: 1\nname: n\n{load}{more}");
            let plan = Plan::parse("p.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(expects_nothing(&plan), expect, "{more}");
        }
    }

    /// The figure that is searched for comes to those of the plan, which may need one another.
    #[test]
    fn a_plan_keeps_its_own_figures() {
        let dir = tempfile::tempdir().expect("a folder");
        let plan = dir.path().join("plan.yaml");
        let load = "load: { users: 1, duration: 1s, journey: [ { get: \"http://127.0.0.1:1/\" } ] }\n";
        let own = "figures: { page time: p99, ok p99: p50 }\nexpect: [\"'page time' < 1s\"]\n";
        std::fs::write(&plan, format!("loadlab: 1\nname: n\n{load}{own}")).expect("a file");
        for (figure, name) in [("p50", "p50"), ("page time", "page time"), ("ok.p99", "ok p99 again")] {
            #[derive(clap::Parser)]
            struct Words {
                #[command(flatten)]
                args: BisectArgs,
            }
            let words = ["bisect", "a..b", "plan.yaml", "--figure", figure];
            let Words { args } = clap::Parser::try_parse_from(words).expect("options");
            let found = match with_figure(&args, &plan) {
                Ok(found) => found,
                Err(_) => panic!("{figure} is refused"),
            };
            assert_eq!(found.figure.name, name);
            let figures = &found.read.plan.cases()[0].figures;
            assert!(figures.iter().any(|f| f.name == "page time"), "{figure}");
        }
    }

    #[test]
    fn the_file_holds_no_secret() {
        mask::add(vec!["s3cret-of-a-bisection".to_owned()]);
        let why = "build of web at abc: `make TOKEN=s3cret-of-a-bisection` failed";
        let text = masked(&json!({ "skipped": [{ "why": why }] })).expect("JSON");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("build of web at abc") && !text.contains("s3cret-of-a-bisection"), "{text}");
        assert!(text.ends_with("}\n"), "{text}");
    }
}
