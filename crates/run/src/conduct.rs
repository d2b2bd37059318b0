//! The conductor: a plan from its builds to its last trial. The whole story of a run on one screen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadlab_analysis::Exit;
use loadlab_load::target::Allowed;
use loadlab_plan::{Case, Plan};
use loadlab_record::expr::Expr;
use loadlab_record::manifest::{CaseFacts, ComponentFacts, Host, Manifest, RunEnded};
use loadlab_record::store::{RECORD_VERSION, RunWriter, StoreError, case_dir_names};
use loadlab_record::summary::Summary;
use loadlab_system::{Cancel, Guardian, System};

use crate::bring_up::{Site, SiteError};
use crate::event::RunEvent;
use crate::host;
use crate::stage::{Stage, Tell};
use crate::trial::{Conditions, Trial, TrialOutcome};

/// How a plan is to be run.
pub struct How {
    /// The plan's text, for the record.
    pub plan_text: String,
    /// Options as given, for the record.
    pub options: Vec<String>,
    /// The record's folder; must not hold anything.
    pub out: PathBuf,
    /// This program, which serves as guardian when started with [`How::guardian_arg`].
    pub exe: PathBuf,
    /// See [`How::exe`].
    pub guardian_arg: String,
    /// Hosts that may be loaded beside loopback, from the command line.
    pub allow_hosts: Vec<String>,
    /// Load threads, where the plan does not say.
    pub threads: usize,
}

/// Why a run could not begin, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The record.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system, before any trial.
    #[error(transparent)]
    System(#[from] loadlab_system::Error),
    /// A build.
    #[error("{0}")]
    Build(String),
    /// An expression of the plan.
    #[error("{file}:{line}:{column}: {error}")]
    Expression {
        /// The plan.
        file: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What is wrong.
        error: loadlab_record::expr::ExprError,
    },
    /// Before any trial.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// What it asks for.
    pub fn exit(&self) -> Exit {
        match self {
            RunError::Expression { .. } => Exit::BadPlan,
            RunError::Store(StoreError::Exists { .. }) => Exit::BadPlan,
            RunError::Store(_) => Exit::CouldNotRun,
            RunError::System(_) | RunError::Build(_) => Exit::NotUp,
            RunError::Interrupted => Exit::Interrupted,
        }
    }
}

/// What came of a run.
pub struct RunResult {
    /// The record's folder.
    pub dir: PathBuf,
    /// How it ended.
    pub ended: RunEnded,
    /// Its trials in the order they ran.
    pub trials: Vec<TrialEnd>,
    /// What all of it asks for.
    pub exit: Exit,
}

/// A trial's end.
pub struct TrialEnd {
    /// Its case.
    pub case: String,
    /// Its number.
    pub trial: u32,
    /// What it measured, if it came to that.
    pub summary: Option<Summary>,
    /// What spoiled it.
    pub failure: Option<String>,
}

/// Runs a plan.
///
/// # Errors
/// Nothing could be measured: the record cannot be made, a build failed, an expression is none. Whatever
/// happens later is in the result and in the record; the system is down either way.
pub fn conduct(plan: &Plan, how: &How, cancel: &Cancel, tell: Tell<'_>) -> Result<RunResult, RunError> {
    let conditions = conditions_of(plan)?;
    let dirs = case_dir_names(&plan.cases().iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
    let schedule = plan.schedule();
    let mut manifest = manifest_of(plan, how, &dirs);
    let record = RunWriter::create(&how.out, &manifest)?;
    let dir = std::path::absolute(&how.out).unwrap_or_else(|_| how.out.clone());
    tell(RunEvent::Recording { dir: how.out.clone(), trials: schedule.len() });

    let mut site = site_of(plan, how, &dir)?;
    manifest.host = host::host(site.cgroup_version());
    record.manifest(&manifest)?;
    for missing in site.unavailable() {
        tell(RunEvent::Note(format!("{}: {}", missing.what, missing.why)));
    }
    let allowed = Allowed {
        hosts: [plan.allow_hosts.as_slice(), &how.allow_hosts].concat(),
        addresses: Vec::new(),
    };

    let built = site.build(plan.cases(), cancel, tell);
    let mut run = Conducted { trials: Vec::new(), exits: Vec::new(), given_up: vec![false; plan.cases().len()] };
    if built.is_ok() {
        let plan_dir = plan_dir_of(plan);
        for (place, &(index, trial)) in schedule.iter().enumerate() {
            if cancel.is_cancelled() {
                break;
            }
            let case = &plan.cases()[index];
            tell(RunEvent::TrialStarted { case: case.name.clone(), trial, place: place + 1, of: schedule.len() });
            let stage = Arc::new(Stage::new(Some(record.trial(&dirs[index], trial)?), cancel.clone()));
            let outcome = if run.given_up[index] {
                skipped(&stage)
            } else {
                let conditions = &conditions[index];
                let threads = how.threads;
                Trial { index, case, conditions, plan_dir: &plan_dir, allowed: &allowed, threads }
                    .run(&mut site, &stage, tell)
            };
            let last = |case: usize| !schedule[place + 1..].iter().any(|(c, _)| *c == case);
            if outcome.failure.is_some() { site.clear(&stage) } else { site.after_trial(&last, &stage) }
            run.add((index, &case.name, trial), outcome, tell);
        }
    }
    let ended = run.ended(cancel, built.is_err());
    let closed = site.close();
    manifest.how = ended;
    manifest.ended = Some(host::rfc3339_now());
    record.manifest(&manifest)?;
    if let Err(error) = built {
        return Err(if cancel.is_cancelled() { RunError::Interrupted } else { RunError::Build(error.to_string()) });
    }
    if let Err(error) = closed {
        tell(RunEvent::Note(format!("something could not be taken down: {error}\nhint: try `loadlab clean`")));
    }
    if ended == RunEnded::Interrupted {
        run.exits.push(Exit::Interrupted);
    }
    Ok(RunResult { dir: how.out.clone(), ended, trials: run.trials, exit: Exit::of(run.exits) })
}

/// What the trials have come to.
struct Conducted {
    trials: Vec<TrialEnd>,
    exits: Vec<Exit>,
    /// Cases whose system did not come up: their other trials would only wait for the same deadline.
    given_up: Vec<bool>,
}

impl Conducted {
    fn add(&mut self, (index, case, trial): (usize, &str, u32), outcome: TrialOutcome, tell: Tell<'_>) {
        self.given_up[index] |= outcome.summary.is_none();
        self.exits.push(outcome.exit);
        tell(RunEvent::TrialEnded {
            case: case.to_owned(),
            trial,
            summary: outcome.summary.clone().map(Box::new),
            failure: outcome.failure.clone(),
        });
        self.trials.push(TrialEnd {
            case: case.to_owned(),
            trial,
            summary: outcome.summary,
            failure: outcome.failure,
        });
    }

    fn ended(&self, cancel: &Cancel, unbuilt: bool) -> RunEnded {
        if cancel.is_cancelled() {
            RunEnded::Interrupted
        } else if unbuilt || self.trials.iter().any(|t| t.failure.is_some()) {
            RunEnded::Broken
        } else {
            RunEnded::Complete
        }
    }
}

/// A trial of a case that was given up.
fn skipped(stage: &Stage) -> TrialOutcome {
    let text = "not run: the system did not come up in an earlier trial of this case".to_owned();
    stage.settle_clock();
    stage.event(loadlab_record::event::What::Failed { text: text.clone() });
    TrialOutcome { summary: None, failure: Some(text), exit: Exit::NotUp }
}

/// The folder that relative paths of a plan start in.
fn plan_dir_of(plan: &Plan) -> PathBuf {
    let parent = Path::new(&plan.path).parent().filter(|p| !p.as_os_str().is_empty());
    let dir = parent.unwrap_or(Path::new("."));
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

fn site_of(plan: &Plan, how: &How, dir: &Path) -> Result<Site, RunError> {
    let guardian: Guardian = loadlab_system::guardian::spawn(&how.exe, &how.guardian_arg)?;
    let run_id = dir.file_name().map_or_else(|| plan.name.clone(), |n| n.to_string_lossy().into_owned());
    let scratch = dir.join("scratch");
    let spec = loadlab_system::SystemSpec::new(&run_id, dir, &scratch, Some(guardian));
    let (system, notices) = System::new(spec)?;
    Ok(Site::new(system, notices, &plan_dir_of(plan), dir))
}

fn manifest_of(plan: &Plan, how: &How, dirs: &[String]) -> Manifest {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(how.plan_text.as_bytes());
    let case_facts = |(case, dir): (&Case, &String)| CaseFacts {
        name: case.name.clone(),
        dir: dir.clone(),
        values: case.values.clone(),
        users: match case.loads.as_slice() {
            [load] => match load.model {
                loadlab_plan::Model::Closed { users, .. } => Some(users),
                loadlab_plan::Model::Open { .. } => None,
            },
            _ => None,
        },
        rate_per_s: match case.loads.as_slice() {
            [load] => match load.model {
                loadlab_plan::Model::Open { rate_per_s, .. } => Some(rate_per_s),
                loadlab_plan::Model::Closed { .. } => None,
            },
            _ => None,
        },
    };
    let mut components: Vec<ComponentFacts> = Vec::new();
    for component in plan.cases().iter().flat_map(|c| &c.system.components) {
        if !components.iter().any(|c| c.name == component.name) {
            components.push(ComponentFacts { name: component.name.clone(), run: run_text(&component.run) });
        }
    }
    let mut expect: Vec<String> = Vec::new();
    for expression in plan.cases().iter().flat_map(|c| &c.expect) {
        if !expect.contains(&expression.text) {
            expect.push(expression.text.clone());
        }
    }
    Manifest {
        record: RECORD_VERSION,
        loadlab: env!("CARGO_PKG_VERSION").to_owned(),
        name: plan.name.clone(),
        plan_path: plan.path.clone(),
        plan_text: how.plan_text.clone(),
        plan_sha256: digest.iter().map(|b| format!("{b:02x}")).collect(),
        options: how.options.clone(),
        started: host::rfc3339_now(),
        ended: None,
        how: RunEnded::Partial,
        writer: host::writer(),
        host: Host::default(),
        words: plan.words(),
        components,
        axes: plan.axes.clone(),
        cases: plan.cases().iter().zip(dirs).map(case_facts).collect(),
        trials: plan.trials,
        expect,
        quick: plan.quick,
    }
}

/// A component's command for reading, its names left as they are.
fn run_text(command: &loadlab_plan::Command) -> String {
    match command {
        loadlab_plan::Command::Shell(line) => line.to_string(),
        loadlab_plan::Command::Words(words) => words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// Parses every case's expressions.
fn conditions_of(plan: &Plan) -> Result<Vec<Conditions>, RunError> {
    let parse = |e: &loadlab_plan::Expression| match Expr::parse(&e.text) {
        Ok(expr) => Ok(expr),
        Err(error) => {
            Err(RunError::Expression { file: e.file.clone(), line: e.line, column: e.column + error.at, error })
        }
    };
    let mut all = Vec::new();
    for case in plan.cases() {
        all.push(Conditions {
            expect: case.expect.iter().map(parse).collect::<Result<_, _>>()?,
            stop_when: case.stop_when.iter().map(parse).collect::<Result<_, _>>()?,
            drain: case.drain.as_ref().map(|d| parse(&d.until)).transpose()?,
        });
    }
    Ok(all)
}

impl From<SiteError> for RunError {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::System(error) => RunError::System(error),
            other => RunError::Build(other.to_string()),
        }
    }
}
