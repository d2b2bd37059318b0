//! The book: `cargo xtask book` builds it with mdBook if that is installed, `--commands` runs its commands. House
//! rules check that the contents name every page and that links lead somewhere.

pub mod commands;
mod stage;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, find, program, shown};
use crate::root::{files, root, target};
use crate::steps::Outcome;

const MDBOOK: &str = "mdbook";

/// Build the book, or run its commands
#[derive(clap::Args)]
pub struct Args {
    /// Install mdBook with `cargo install` where it is missing; it takes minutes
    #[arg(long)]
    install: bool,
    /// Run the commands on its pages instead
    #[arg(long)]
    commands: bool,
    /// With --commands: only pages whose path contains this
    #[arg(long, value_name = "PART", requires = "commands", default_value = "")]
    only: String,
    /// With --commands: the loadlab to run, instead of the release build
    #[arg(long, value_name = "FILE", requires = "commands")]
    binary: Option<PathBuf>,
}

/// Runs `cargo xtask book`.
///
/// # Errors
/// mdBook is missing or fails; a command fails.
pub fn run(args: &Args) -> Result<ExitCode> {
    let done = if args.commands {
        let binary = args.binary.clone().unwrap_or_else(|| target().join("release/loadlab"));
        commands::run_with(&std::path::absolute(binary)?, &args.only)?
    } else {
        if args.install && find(MDBOOK).is_none() {
            shown(&mut cargo(&["install", MDBOOK, "--locked"]))?.ok("cargo install mdbook")?;
        }
        let mdbook = find(MDBOOK).or_else(installed);
        build(&mdbook.context("mdbook is not installed\nhint: cargo xtask book --install")?)?
    };
    println!("{done}");
    Ok(ExitCode::SUCCESS)
}

/// Step of `cargo xtask test`: builds the book if mdBook is installed, otherwise only stages it.
///
/// # Errors
/// A page cannot be read, or mdBook rejects the book.
pub fn step() -> Outcome {
    match find(MDBOOK).or_else(installed) {
        Some(mdbook) => build(&mdbook),
        None => {
            let (_, beside) = staged()?;
            Ok(format!(
                "NOT built, since mdBook is not here: only staged, with {beside} pages from beside it"
            ))
        }
    }
}

/// mdBook where `cargo install` puts it, even if that folder is not in `PATH`.
fn installed() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))?;
    Some(home.join("bin").join(MDBOOK)).filter(|file| file.is_file())
}

fn build(mdbook: &Path) -> Outcome {
    let site = site(mdbook)?;
    Ok(format!("{} pages: {}", site.pages, site.index.display()))
}

/// The book as a site.
pub struct Site {
    /// Path of its first page.
    pub index: PathBuf,
    /// Number of pages, including those from elsewhere in the repository.
    pub pages: usize,
}

/// Builds the site.
///
/// # Errors
/// A page cannot be read, or mdBook rejects the book.
pub fn site(mdbook: &Path) -> Result<Site> {
    let (dir, beside) = staged()?;
    let out = target().join("book");
    let _ = fs::remove_dir_all(&out);
    let mut command = program(mdbook);
    command.arg("build").arg(&dir).arg("--dest-dir").arg(&out);
    let ran = shown(&mut command)?;
    ensure!(ran.status.success(), "mdbook: {}", ran.status);
    let index = out.join("index.html");
    ensure!(index.is_file(), "mdbook made no {}", index.display());
    let pages = files(&out)?.iter().filter(|file| file.ends_with(".html")).count();
    ensure!(pages > beside, "mdbook made {pages} pages, {beside} of them from beside the book");
    Ok(Site { index, pages })
}

/// Stages the book's sources, with `book.toml`, in a separate folder. Returns the folder and the number of pages from
/// outside `docs/`.
fn staged() -> Result<(PathBuf, usize)> {
    let dir = target().join("xtask/book");
    let _ = fs::remove_dir_all(&dir);
    let beside = stage::stage(&root(), &files(&root())?, &dir)?;
    Ok((dir, beside))
}
