//! `loadlab compare`: two cases of a run, or the same cases of several runs → whether they differ.

use std::path::{Path, PathBuf};

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::comparison::compare::{Comparison, Options};
use loadlab_analysis::comparison::differences::{Comparing, across, pair, side, within};
use loadlab_analysis::findings::{Findings, findings};
use loadlab_analysis::{DiagnosedRun, Exit};

use crate::args::{CompareArgs, CompareFormat};
use crate::exit::{CommandEnd, note};
use crate::output::{self, Form};
use crate::runs::baselines::{Baselines, place_of};
use crate::runs::{self, is_run};

/// Runs the command.
pub fn command(args: &CompareArgs) -> CommandEnd {
    let comparisons = match comparisons(args) {
        Ok(comparisons) => comparisons,
        Err(message) => return CommandEnd::error(Exit::BadPlan, message),
    };
    let text = render(&comparisons, args.format, args.out.is_some());
    let form = match args.format {
        CompareFormat::Text | CompareFormat::Md => Form::Text,
        CompareFormat::Json => Form::Json,
        CompareFormat::Html => Form::Data,
    };
    if let Err(ended) = super::deliver(args.out.as_deref(), form, &text) {
        return ended;
    }
    let worse = args.fail_on_worse && comparisons.iter().any(Comparison::is_worse);
    CommandEnd::with(if worse { Exit::Failed } else { Exit::Ok })
}

fn render(comparisons: &[Comparison], format: CompareFormat, to_file: bool) -> String {
    let document = loadlab_report::compared(comparisons);
    match format {
        CompareFormat::Json => loadlab_report::comparisons_json(comparisons),
        CompareFormat::Md => loadlab_report::markdown(&document),
        CompareFormat::Html => loadlab_report::html(&document),
        CompareFormat::Text if to_file => loadlab_report::text(&document, 100, false),
        CompareFormat::Text => loadlab_report::text(&document, output::out_width(), output::out_has_colour()),
    }
}

/// The requested comparisons; errors are in words, with a hint.
fn comparisons(args: &CompareArgs) -> Result<Vec<Comparison>, String> {
    let (mut dirs, mut names) = (Vec::new(), Vec::new());
    for (place, text) in args.what.iter().enumerate() {
        match run_of(args, text)? {
            Some(dir) => dirs.push(dir),
            None if place == 0 => return Err(no_run(text)),
            None => names.push(text),
        }
    }
    let mut runs: Vec<DiagnosedRun> =
        dirs.iter().map(|dir| runs::read(dir).map_err(|e| e.to_string())).collect::<Result<_, _>>()?;
    if let Some(base) = &args.baseline {
        if let Some(name) = names.first() {
            return Err(format!("`{name}` is not a run\nhint: --baseline compares runs case by case"));
        }
        let base = baseline(args, base.as_deref(), &runs[0])?;
        runs.insert(0, base);
    }
    let all: Vec<Findings<'_>> = runs.iter().map(findings).collect();
    let Some(first) = all.first() else { return Ok(Vec::new()) };
    let options = options(args, first);
    match (all.as_slice(), names.as_slice()) {
        ([one], names) => in_one(&runs[0], one, names, options),
        (_, [name, ..]) => Err(format!(
            "`{name}` is not a run folder, and a case can only be named with a single run\nhint: runs are compared case by case"
        )),
        (many, []) => in_many(&runs, many, options),
    }
}

fn options(args: &CompareArgs, first: &Findings<'_>) -> Options {
    let usual = first.options();
    let equivalence_margin = args.equivalence_margin.unwrap_or(usual.equivalence_margin);
    Options { equivalence_margin, ..usual }
}

/// The folder of a run: by path, by its name in the folder of runs, or `last` for the newest.
fn run_of(args: &CompareArgs, text: &str) -> Result<Option<PathBuf>, String> {
    let (path, named) = (PathBuf::from(text), args.dir.join(text));
    if is_run(&path) {
        return Ok(Some(path));
    }
    if is_run(&named) {
        return Ok(Some(named));
    }
    match text == "last" {
        true => runs::found(&path, &args.dir).map(Some),
        false => Ok(None),
    }
}

fn no_run(text: &str) -> String {
    format!(
        "{text} is not a run folder: it has no `manifest.json`\nhint: `loadlab run` prints the name of the folder it makes"
    )
}

/// The run to compare with: the named one, or the plan's baseline in the folder of `run`.
fn baseline(args: &CompareArgs, named: Option<&Path>, run: &DiagnosedRun) -> Result<DiagnosedRun, String> {
    let dir = match named {
        Some(named) => {
            run_of(args, &named.display().to_string())?.ok_or_else(|| no_run(&named.display().to_string()))?
        }
        None => Baselines::of(&place_of(&run.dir)?.0)?.run_of(&run.manifest.name)?,
    };
    // One may be typed as an absolute path, the other not.
    let whole =
        |dir: &Path| std::fs::canonicalize(dir).map_err(|e| format!("cannot find {}: {e}", dir.display()));
    if whole(&dir)? == whole(&run.dir)? {
        return Err(format!(
            "{} is the baseline itself\nhint: name a later run, or `last`",
            run.dir.display()
        ));
    }
    let base = runs::read(&dir).map_err(|e| e.to_string())?;
    if base.manifest.plan_sha256 != run.manifest.plan_sha256 {
        note("the plan has changed since the baseline; cases are compared by name");
    }
    Ok(base)
}

/// Cases of one run: the named ones against the first of them, or all against the base.
fn in_one(
    record: &DiagnosedRun,
    run: &Findings<'_>,
    names: &[&String],
    options: Options,
) -> Result<Vec<Comparison>, String> {
    let place = |name: &&String| {
        place(record, name)
            .ok_or_else(|| format!("the run has no case `{name}`\nhint: its cases are {}", listed(run)))
    };
    let places: Vec<usize> = names.iter().map(place).collect::<Result<_, _>>()?;
    let pair_of = |base: usize, other: usize| pair(&run.cases, base, other, run.comparing(options));
    let found = match places.as_slice() {
        [] => within(&run.cases, &run.pairs, run.comparing(options)),
        [only] if base_of(run, *only).is_none() => {
            return Err(format!(
                "`{}` would be compared with itself\nhint: name a second case: {}",
                names[0],
                listed(run)
            ));
        }
        [only] => base_of(run, *only).map(|base| pair_of(base, *only)).into_iter().collect(),
        [base, others @ ..] => others.iter().map(|other| pair_of(*base, *other)).collect(),
    };
    match found.is_empty() {
        true => {
            Err("this run has a single case and nothing to compare it with\nhint: name a second run"
                .to_owned())
        }
        false => Ok(found),
    }
}

/// The case that a case is compared with; `None` if others are compared with it.
fn base_of(run: &Findings<'_>, case: usize) -> Option<usize> {
    let of_pairs = run.pairs.iter().find(|(_, other)| *other == case).map(|(base, _)| *base);
    let control_of = run.cases[case].case.facts.control_of.as_ref();
    of_pairs.or_else(|| run.cases.iter().position(|c| Some(&c.case.facts.name) == control_of))
}

/// The index of a case by its name, its folder, or its label in the report.
fn place(run: &DiagnosedRun, name: &str) -> Option<usize> {
    let named = run.cases.iter().position(|c| c.facts.name == name || c.facts.dir == name);
    named.or_else(|| {
        let name = runs::labelled(run, name)?;
        run.cases.iter().position(|c| c.facts.name == name)
    })
}

fn listed(run: &Findings<'_>) -> String {
    run.cases.iter().map(|c| format!("`{}`", c.case.facts.name)).collect::<Vec<_>>().join(", ")
}

/// Every later run against the first: cases with the same name, or the only case of each.
fn in_many(runs: &[DiagnosedRun], all: &[Findings<'_>], options: Options) -> Result<Vec<Comparison>, String> {
    let mut found = Vec::new();
    let base = &all[0];
    for (place, other) in all.iter().enumerate().skip(1) {
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        // A control serves only comparisons within its own run.
        for (i, case) in base.cases.iter().enumerate().filter(|(_, case)| !case.is_control()) {
            let same = other.cases.iter().position(|c| c.case.facts.name == case.case.facts.name);
            pairs.extend(same.map(|j| (i, j)));
        }
        if pairs.is_empty() && base.cases.len() == 1 && other.cases.len() == 1 {
            pairs.push((0, 0));
        }
        if pairs.is_empty() {
            return Err(format!(
                "{} and {} have no case in common\nhint: the first has {}, the second {}",
                runs[0].dir.display(),
                runs[place].dir.display(),
                listed(base),
                listed(other)
            ));
        }
        let compared = |of: fn(&(usize, usize)) -> usize| pairs.iter().map(of).collect::<Vec<_>>();
        lone(&runs[0], base, &compared(|pair| pair.0));
        lone(&runs[place], other, &compared(|pair| pair.1));
        for (i, j) in pairs {
            let name = |run: usize, case: usize| match all[run].cases.len() {
                1 => dir_name(&runs[run], runs),
                _ => format!("{} in {}", all[run].cases[case].case.facts.name, dir_name(&runs[run], runs)),
            };
            let sides = (side(&base.cases[i], &name(0, i)), side(&other.cases[j], &name(place, j)));
            let quick = runs[0].manifest.quick || runs[place].manifest.quick;
            // Figures that either plan names are relevant to the comparison.
            let named = if other.are_of_plan { other } else { base };
            // Replicas are those of the run that has more of them.
            let members =
                |run: &Findings<'_>| run.groups.all.iter().map(|(_, members)| members.len()).sum::<usize>();
            let groups = if members(other) > members(base) { &other.groups } else { &base.groups };
            let comparing = Comparing { quick, groups, ..named.comparing(options) };
            let (of_base, of_other) = (&base.cases[i].case.trials, &other.cases[j].case.trials);
            let compared = across(&sides.0, &sides.1, comparing);
            found.push(compared.with_profiles(of_base.iter(), of_other.iter()));
        }
    }
    Ok(found)
}

/// Reports cases that are compared with nothing: a reader who sees that nothing is worse must know what that covers.
fn lone(run: &DiagnosedRun, reported: &Findings<'_>, compared: &[usize]) {
    let is_lone =
        |(place, case): &(usize, &CaseFindings<'_>)| !compared.contains(place) && !case.is_control();
    for (_, case) in reported.cases.iter().enumerate().filter(is_lone) {
        let (name, dir) = (&case.case.facts.name, run.dir.display());
        note(&format!("case `{name}` of {dir} is not compared: the other run has no such case"));
    }
}

/// The name of a run's folder, or its path if another run's folder has the same name.
fn dir_name(run: &DiagnosedRun, all: &[DiagnosedRun]) -> String {
    let alike = all.iter().filter(|other| other.dir.file_name() == run.dir.file_name()).count();
    match run.dir.file_name() {
        Some(name) if alike == 1 => name.to_string_lossy().into_owned(),
        _ => run.dir.display().to_string(),
    }
}
