//! `loadlab check`, and reading a plan for other commands.

use std::path::Path;
use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_plan::{Options, Outside, Plan, Revision};
use loadlab_record::text::units::plural;
use loadlab_record::text::url;
use loadlab_report::terminal::{self, Paint, Tone};
use loadlab_run::foreseen::foreseen;
use loadlab_run::needs;
use loadlab_run::preflight::{self, Demand, Finding, Severity};
use loadlab_system::open_files;

use super::bench::default_threads;
use crate::args::given;
use crate::args::{CheckArgs, PlanArgs, PlanChoice};
use crate::exit::Ended;
use crate::{mask, output};

/// How long the preflight watches how much of the CPUs other programs use.
const WATCH: Duration = Duration::from_millis(500);

/// A plan as it was read, with its text and the options that changed it.
pub struct ReadPlan {
    /// The plan, checked and expanded.
    pub plan: Plan,
    /// The plan's text as in the file.
    pub text: String,
    /// The plan's name in messages.
    pub path: String,
    /// The options with which it was read.
    pub read_with: Options,
    /// The options that changed it in words, for the record.
    pub options: Vec<String>,
}

/// Reads and checks a plan with its options.
pub fn read_plan(args: &PlanArgs) -> Result<ReadPlan, Ended> {
    read(&args.plan, &args.choice)
}

fn read(path: &Path, choice: &PlanChoice) -> Result<ReadPlan, Ended> {
    let name = path.to_string_lossy();
    if url::is_url(&name) {
        let why = format!(
            "`{}` is a URL, not a plan\nhint: `loadlab bench` loads a URL, `loadlab init` writes a plan for it",
            url::masked(&name)
        );
        return Err(Ended::error(Exit::BadPlan, why));
    }
    let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        Ended::error(Exit::BadPlan, format!("{}:{line}: the plan is not UTF-8 text", path.display()))
    })?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut options = Options {
        profile: choice.profile.clone(),
        set: choice.set.clone(),
        tags: choice.tags.clone(),
        cases_glob: choice.case.clone(),
        trials: choice.trials,
        until_certain: choice.until_certain,
        flame_graphs: choice.flame_graphs.as_ref().map(|names| names.0.clone()),
        revisions: choice.revisions.iter().flat_map(|r| &r.0).map(|name| revision(name)).collect(),
        plan_dir: Some(dir.display().to_string()),
        outside: Outside::default(),
    };
    options.outside = given::outside(&text, &options, &dir);
    parse(&path.display().to_string(), text, options, choice)
}

fn revision(name: &str) -> Revision {
    Revision { name: name.to_owned(), dir: None }
}

/// Parses a plan; `read_with` has everything that it takes from outside. Its secrets are masked from here on.
pub fn parse(path: &str, text: String, read_with: Options, choice: &PlanChoice) -> Result<ReadPlan, Ended> {
    let plan = Plan::parse(path, &text, &read_with).map_err(|errors| Ended::error(Exit::BadPlan, errors))?;
    mask::add_all(&plan.secrets);
    let options = option_texts(choice, &plan.shown_set);
    Ok(ReadPlan { plan, text, path: path.to_owned(), read_with, options })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Ended {
    let hint = match error.kind() {
        std::io::ErrorKind::NotFound => "\nhint: the path is relative to the current folder",
        std::io::ErrorKind::IsADirectory => "\nhint: name the plan file inside it",
        _ => "",
    };
    Ended::error(Exit::BadPlan, format!("cannot read the plan {}: {error}{hint}", path.display()))
}

fn option_texts(choice: &PlanChoice, set: &[String]) -> Vec<String> {
    let mut texts = Vec::new();
    texts.extend(choice.profile.iter().map(|p| format!("--profile {p}")));
    texts.extend(set.iter().map(|change| format!("--set {change}")));
    texts.extend(choice.case.iter().map(|c| format!("--case {c}")));
    if !choice.tags.is_empty() {
        texts.push(format!("--tags {}", choice.tags.join(",")));
    }
    texts.extend(choice.trials.iter().map(|n| format!("--trials {n}")));
    texts.extend(choice.revisions.iter().map(|revisions| format!("--revisions {revisions}")));
    texts.extend(choice.until_certain.then(|| "--until-certain".to_owned()));
    texts.extend(choice.flame_graphs.as_ref().map(ToString::to_string));
    texts
}

/// The experiment in words, and the trials in the order they would run.
pub fn describe(plan: &Plan) -> String {
    let mut out = String::new();
    for word in plan.describe() {
        out.push_str(&format!("{word}\n"));
    }
    for foreseen in foreseen(plan) {
        out.push_str(&format!("note: {}\n", foreseen.text));
    }
    if plan.until_certain.is_some() {
        let (cases, rounds) = (plan.cases().len(), plan.trials);
        out.push_str(&format!(
            "\nat most {rounds} rounds of {cases} cases; the order in each is drawn when the run begins\n"
        ));
        return out;
    }
    let schedule = plan.schedule();
    out.push_str(&format!("\n{}, in this order:\n", plural(schedule.len() as u64, "trial", "trials")));
    for (place, key) in schedule.iter().enumerate() {
        out.push_str(&format!("{:>5}. {}, trial {}\n", place + 1, plan.cases()[key.case].name, key.trial));
    }
    out
}

/// Runs the command.
pub fn command(args: &CheckArgs) -> Ended {
    let Some(path) = &args.plan else {
        return machine(None);
    };
    match read(path, &args.choice) {
        Ok(read) => {
            let trials = read.plan.schedule().len();
            let cases = read.plan.own_cases().len();
            let control = match read.plan.cases().len() - cases {
                0 => String::new(),
                1 => " and a control".to_owned(),
                n => format!(" and {n} controls"),
            };
            let name = path.display();
            let at_most = if read.plan.until_certain.is_some() { "at most " } else { "" };
            output::print(&format!(
                "{name}: good – {}{control}, {at_most}{}\n",
                plural(cases as u64, "case", "cases"),
                plural(trials as u64, "trial", "trials")
            ));
            for note in &read.plan.notes {
                crate::exit::note(note);
            }
            for foreseen in foreseen(&read.plan) {
                crate::exit::note(&foreseen.text);
            }
            if args.preflight { machine(Some(&read.plan)) } else { Ended::with(Exit::Ok) }
        }
        Err(ended) => ended,
    }
}

/// Whether this machine is fit for a plan; without one, what it is fit for.
fn machine(plan: Option<&Plan>) -> Ended {
    // Every command that sends a load does this first: the limit that remains is the one that limits the load.
    let _ = open_files::raise();
    let facts = preflight::read(WATCH);
    let threads = default_threads(&[]);
    let mut findings = match plan {
        None => preflight::findings(None, &facts),
        Some(plan) => {
            let of_case = |case: &loadlab_plan::Case| {
                let planned = Demand::of_case(case, threads)?.isolated(plan.isolate);
                Some((case.name.clone(), preflight::findings(Some(&planned), &facts)))
            };
            preflight::worst(&plan.cases().iter().filter_map(of_case).collect::<Vec<_>>())
        }
    };
    findings.extend(plan.map(needs::findings).unwrap_or_default());
    let width = output::out_width();
    output::print(&table(&findings, width, Paint { colour: output::out_has_colour() }));
    let blocked = findings.iter().any(|f| f.severity == Severity::Blocker);
    Ended::with(if blocked { Exit::CouldNotRun } else { Exit::Ok })
}

fn tone_of(severity: Severity) -> Tone {
    match severity {
        Severity::Ok => Tone::Good,
        Severity::Note => Tone::Faint,
        Severity::Doubt => Tone::Warn,
        Severity::Blocker => Tone::Bad,
    }
}

/// Below this width, each finding is a paragraph instead of a row.
const ROOM_FOR_COLUMNS: usize = 72;

/// Findings as a table `width` columns wide, and a line that counts them.
fn table(findings: &[Finding], width: usize, paint: Paint) -> String {
    // This is narrower than any terminal, but the first lines of paragraphs are not wrapped.
    let width = width.max(30);
    let names = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    let columns = width >= ROOM_FOR_COLUMNS;
    let mut out = String::new();
    for finding in findings {
        let word = terminal::left(finding.severity.word(), 7);
        let word = paint.tone(tone_of(finding.severity), &word);
        let (first, text, indent) = match columns {
            true => {
                let text = format!("{} – {}", finding.figure, finding.effect);
                (format!("{word}  {}  ", terminal::left(finding.what, names)), text, names + 11)
            }
            false => {
                let text = format!("{} – {}", finding.figure, finding.effect);
                (format!("{word} {}\n  ", finding.what), text, 2)
            }
        };
        out.push_str(&first);
        let gap = " ".repeat(indent);
        let lines = terminal::wrap(&terminal::harmless(&text), width - indent);
        out.push_str(&format!("{}\n", lines.join(&format!("\n{gap}"))));
        if let (Some(command), true) = (&finding.remedy, finding.severity > Severity::Ok) {
            let lines = shell_lines(&terminal::harmless(command), width - indent - 2);
            let lines: Vec<String> = lines.iter().map(|l| paint.tone(Tone::Strong, l)).collect();
            out.push_str(&format!("{gap}$ {}\n", lines.join(&format!("\n{gap}  "))));
        }
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count() as u64;
    let counts = format!(
        "{}, {}, {}",
        plural(count(Severity::Blocker), "blocker", "blockers"),
        plural(count(Severity::Doubt), "doubt", "doubts"),
        plural(count(Severity::Note), "note", "notes")
    );
    terminal::hanging(&mut out, "", &counts, width, str::to_owned);
    out
}

/// A command split into lines that a shell still reads as one: broken at spaces, with a backslash at the end of each
/// line but the last. A word that is longer than a line (a path) stays whole, since a broken one could not be copied.
fn shell_lines(command: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in command.split(' ') {
        let line = lines.last().map_or("", String::as_str);
        let fits = terminal::width_of(line) + 1 + terminal::width_of(word) + 2 <= width;
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if fits => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let last = lines.len() - 1;
    lines[..last].iter_mut().for_each(|line| line.push_str(" \\"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, remedy: Option<&str>) -> Finding {
        Finding {
            what: "closed connections",
            figure: "hold a port 60 s".to_owned(),
            effect: "30,000 connections in that time for 28,232 ports: they run out after 14.1 s".to_owned(),
            remedy: remedy.map(str::to_owned),
            severity,
        }
    }

    #[test]
    fn a_table_for_every_width() {
        let found = [
            finding(Severity::Blocker, Some("unshare -rn sh -c 'ip link set lo up && exec loadlab …'")),
            finding(Severity::Ok, Some("not shown")),
        ];
        insta::assert_snapshot!(table(&found, 80, Paint { colour: false }), @r"
        blocker  closed connections  hold a port 60 s – 30,000 connections in that time
                                     for 28,232 ports: they run out after 14.1 s
                                     $ unshare -rn sh -c 'ip link set lo up && exec \
                                       loadlab …'
        ok       closed connections  hold a port 60 s – 30,000 connections in that time
                                     for 28,232 ports: they run out after 14.1 s
        1 blocker, 0 doubts, 0 notes
        ");
        insta::assert_snapshot!(table(&found, 40, Paint { colour: false }), @r"
        blocker closed connections
          hold a port 60 s – 30,000 connections
          in that time for 28,232 ports: they
          run out after 14.1 s
          $ unshare -rn sh -c 'ip link set lo \
            up && exec loadlab …'
        ok      closed connections
          hold a port 60 s – 30,000 connections
          in that time for 28,232 ports: they
          run out after 14.1 s
        1 blocker, 0 doubts, 0 notes
        ");
        for width in 30..200 {
            let text = table(&found, width, Paint { colour: false });
            assert!(text.lines().all(|l| terminal::width_of(l) <= width), "{width}:\n{text}");
        }
        assert!(table(&found, 40, Paint { colour: true }).contains("\x1b["));
    }

    #[test]
    fn commands_stay_commands() {
        for width in [10, 20, 38, 100] {
            let command = "unshare -rn sh -c 'ip link set lo up && exec loadlab'";
            let lines = shell_lines(command, width);
            let joined = lines.join("\n").replace(" \\\n", " ");
            assert_eq!(joined, command, "{width}");
        }
    }
}
