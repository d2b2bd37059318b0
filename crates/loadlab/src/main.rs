//! The binary: arguments, commands, live views, signals, exit codes. The only place that prints or exits.

mod accept;
mod args;
mod baseline;
mod bench;
mod check;
mod clean;
mod compare;
mod exit;
mod find;
mod history;
mod live;
mod mask;
mod metrics;
mod output;
mod report;
mod run;
mod screen;
mod signals;
mod ui;
mod view;

use clap::Parser;

use args::{Args, Command};

fn main() -> std::process::ExitCode {
    // The guardian is this same program: a process that must outlive the run it guards.
    if std::env::args().nth(1).as_deref() == Some(run::GUARDIAN) {
        let code = loadlab_system::guardian::main(std::io::stdin());
        return std::process::ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    // And what stands before a component whose link has a delay or loses something.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == loadlab_system::relay::ARG) {
        return match loadlab_system::relay::main(&words[1..]) {
            Ok(()) => std::process::ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                std::process::ExitCode::FAILURE
            }
        };
    }
    loadlab_load::generator::large_blocks_apart();
    let args = Args::parse();
    let exit = match args.command {
        Command::Run(args) => run::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Find(args) => find::command(&args),
        Command::Report(args) => report::command(&args),
        Command::Compare(args) => compare::command(&args),
        Command::List(args) => history::list(&args),
        Command::Show(args) => history::show(&args),
        Command::Baseline(args) => baseline::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Clean(args) => clean::command(&args),
        Command::Schema => output::schema(),
        Command::Completions { shell } => output::completions(shell),
        Command::Man => output::man(),
    };
    exit.into_code()
}
