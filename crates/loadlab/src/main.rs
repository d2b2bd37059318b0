//! The binary: arguments, commands, live views, signals, exit codes. The only place that prints or exits.

mod args;
mod bench;
mod check;
mod clean;
mod exit;
mod output;
mod report;
mod run;
mod signals;
mod view;

use clap::Parser;

use args::{Args, Command};

fn main() -> std::process::ExitCode {
    // The guardian is this same program: a process that must outlive the run it guards.
    if std::env::args().nth(1).as_deref() == Some(run::GUARDIAN) {
        let code = loadlab_system::guardian::main(std::io::stdin());
        return std::process::ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    let args = Args::parse();
    let exit = match args.command {
        Command::Run(args) => run::command(&args),
        Command::Bench(args) => bench::command(&args),
        Command::Report(args) => report::command(&args),
        Command::Check(args) => check::command(&args),
        Command::Clean(args) => clean::command(&args),
        Command::Schema => output::schema(),
        Command::Completions { shell } => output::completions(shell),
        Command::Man => output::man(),
    };
    exit.into_code()
}
