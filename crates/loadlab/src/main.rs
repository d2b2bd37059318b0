//! The binary: arguments, commands, live views, signals, exit codes. The only place that prints or exits.

mod args;
mod commands;
mod exit;
mod live;
mod mask;
mod metrics;
mod output;
mod runs;
mod screen;
mod serve;
mod signals;
#[cfg(feature = "swarm")]
mod swarm;
mod ui;
mod view;

use std::path::Path;

use args::{Command, other_tools, renamed, typed};
use commands::not_measured::{self, Documents};
use commands::{
    ab, about, baseline, bench, bench_saved, bisect, check, clean, compare, demo, find, init, list, report,
    resume, run, show, why,
};
use exit::CommandEnd;
use loadlab_analysis::Exit;

fn main() -> std::process::ExitCode {
    // The guardian is this same program: a process that must outlive the run it guards.
    let mut words = std::env::args_os().skip(1);
    let first = words.next().unwrap_or_default();
    if first == run::GUARDIAN {
        let code = loadlab_system::guardian::main(std::io::stdin());
        return std::process::ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    // So is the relay in front of a component whose link adds delay or loss.
    if first == loadlab_system::relay::ARG {
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        return match loadlab_system::relay::main(&words) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(why) => {
                exit::line(&why);
                std::process::ExitCode::FAILURE
            }
        };
    }
    loadlab_load::measure::own_usage::large_blocks_apart();
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    mask::add(typed::of_command_line(&words));
    let args = match args::parse_from(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => return report_usage_error(&error, &words),
    };
    let exit = match args.command {
        Command::Init(args) => init::command(&args),
        Command::Run(args) => run::command(&args),
        Command::Ab(args) => ab::command(*args),
        Command::Bisect(args) => bisect::command(&args),
        Command::Resume(args) => resume::command(&args),
        Command::Bench(args) if args.keeps_record() => bench_saved::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Find(args) => find::command(&args),
        Command::Why(args) => why::command(&args),
        Command::Report(args) => report::command(&args),
        Command::Compare(args) => compare::command(&args),
        Command::List(args) => list::command(&args),
        Command::Show(args) => show::command(&args),
        Command::Baseline(args) => baseline::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Demo(args) => demo::command(&args),
        #[cfg(feature = "swarm")]
        Command::Agent(args) => commands::agent::command(&args),
        Command::Clean(args) => clean::command(&args),
        Command::Schema => about::schema(),
        Command::Completions { shell } => about::completions(shell),
        Command::Man => about::man(),
        Command::Licenses => about::licenses(),
    };
    exit.into_code()
}

/// Ends with what is wrong with the command line. The documents that it asks for say so, too: the JUnit file would still
/// report an earlier run.
fn report_usage_error(error: &clap::Error, words: &[String]) -> std::process::ExitCode {
    let command = words.first().map_or("", String::as_str);
    let why = renamed::refusal(error, command).or_else(|| other_tools::explanation(error, command, words));
    let junit = not_measured::junit_of(words, error).map(Path::new);
    let json = not_measured::wants_json(words, error).then(|| serde_json::json!({}));
    let usage = || typed::without_credentials(&error.render().to_string(), words);
    let text = why.clone().unwrap_or_else(usage);
    Documents { name: command, junit, json }.write(Exit::BadPlan, text.trim_start_matches("error: "));
    match why {
        Some(why) => CommandEnd::error(Exit::BadPlan, why).into_code(),
        None => output::usage(error, words),
    }
}
