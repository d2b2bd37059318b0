//! `loadlab check`: whether a plan is good, and this machine fit for it.

use std::time::Duration;

use loadlab_analysis::Exit;
use loadlab_plan::Plan;
use loadlab_record::text::units::plural;
use loadlab_report::terminal::{self, Paint, Tone};
use loadlab_run::needs;
use loadlab_run::predictions::predict;
use loadlab_run::preflight::{self, Demand, Finding, Severity};
use loadlab_system::open_files;

use super::bench::default_threads;
use super::read_plan;
use crate::args::CheckArgs;
use crate::exit::CommandEnd;
use crate::output;

/// How long the preflight watches how much of the CPUs other programs use.
const WATCH: Duration = Duration::from_millis(500);

/// Runs the command.
pub fn command(args: &CheckArgs) -> CommandEnd {
    let Some(path) = &args.plan else {
        return machine(None);
    };
    match read_plan::read(path, &args.choice) {
        Ok(read) => {
            let name = path.display();
            if let Err(why) = needs::check_files(&read.plan) {
                return CommandEnd::error(Exit::BadPlan, why);
            }
            let trials = read.plan.schedule().len();
            let cases = read.plan.own_cases().len();
            let control = match read.plan.cases().len() - cases {
                0 => String::new(),
                1 => " and a control".to_owned(),
                n => format!(" and {n} controls"),
            };
            let at_most = if read.plan.until_certain.is_some() { "at most " } else { "" };
            output::print(&format!(
                "{name}: good – {}{control}, {at_most}{}\n",
                plural(cases as u64, "case", "cases"),
                plural(trials as u64, "trial", "trials")
            ));
            for note in &read.plan.notes {
                crate::exit::note(note);
            }
            for prediction in predict(&read.plan) {
                crate::exit::note(&prediction.text);
            }
            if let Some(why) = needs::refused_target(&read.plan) {
                crate::exit::note(&format!("without further options, a run would refuse this: {why}"));
            }
            if args.preflight { machine(Some(&read.plan)) } else { CommandEnd::with(Exit::Ok) }
        }
        Err(ended) => ended,
    }
}

/// Whether this machine is fit for a plan; without one, what it is fit for.
fn machine(plan: Option<&Plan>) -> CommandEnd {
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
    CommandEnd::with(if blocked { Exit::CouldNotRun } else { Exit::Ok })
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
