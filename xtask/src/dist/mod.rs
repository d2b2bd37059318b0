//! `cargo xtask dist`: everything for users who do not build loadlab themselves, in `target/dist`. For each
//! architecture: a static program, and the archive and the Debian package that contain it. For all of them: the CI
//! action and checksums. Nothing is published here, and nothing depends on where the files will be.

mod archive;
mod build;
pub mod check;
mod deb;
mod elf;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

pub use build::Arch;

use crate::command::{captured, program};
use crate::root::{root, target};

/// Time limit of any command that compiles nothing.
const QUICK: Duration = Duration::from_secs(120);
/// The promised maximum size of the program.
pub const LARGEST_BYTES: u64 = 15_000_000;
/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The Cargo profile of the programs that users get.
const PROFILE: &str = "packaged";

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Args {
    /// Build for this architecture instead of this machine's; may be repeated
    #[arg(long, value_name = "ARCH")]
    target: Vec<Arch>,
    /// Build for all architectures
    #[arg(long, conflicts_with = "target")]
    all: bool,
    /// Install parts of Rust that are missing
    #[arg(long)]
    install: bool,
}

/// Runs `cargo xtask dist`.
///
/// # Errors
/// Something is missing, cannot be built or written, or is too large.
pub fn run(args: &Args) -> Result<ExitCode> {
    let arches = match (args.all, args.target.as_slice()) {
        (true, _) => Arch::ALL.to_vec(),
        (false, []) => vec![Arch::of_this_machine()?],
        (false, some) => some.to_vec(),
    };
    let dir = target().join("dist");
    let made = make(&arches, PROFILE, &dir, args.install)?;
    for release in &made {
        let bytes = release.program().metadata()?.len();
        println!("{}: {:.1} MB", release.program().display(), bytes as f64 / 1e6);
        ensure!(bytes <= LARGEST_BYTES, "it is larger than {} MB", LARGEST_BYTES / 1_000_000);
    }
    print!("{}", fs::read_to_string(dir.join(SUMS))?);
    Ok(ExitCode::SUCCESS)
}

/// Name of the file with the checksums of all others.
const SUMS: &str = "SHA256SUMS";

/// The results for one architecture.
pub struct Release {
    /// The architecture.
    pub arch: Arch,
    /// The folder that the archive contains.
    pub folder: PathBuf,
    /// The archive: that folder, packed.
    pub archive: PathBuf,
    /// The Debian package.
    pub deb: PathBuf,
}

impl Release {
    /// The files that [`make`] creates for an architecture in a folder.
    pub fn of(dir: &Path, arch: Arch) -> Release {
        let folder = dir.join(format!("loadlab-{VERSION}-{}-linux", arch.name()));
        let archive = dir.join(format!("loadlab-{VERSION}-{}-linux.tar.gz", arch.name()));
        let deb = dir.join(format!("loadlab_{VERSION}_{}.deb", arch.debian()));
        Release { arch, folder, archive, deb }
    }

    /// Path of the program.
    pub fn program(&self) -> PathBuf {
        self.folder.join("loadlab")
    }
}

/// Builds for these architectures with a Cargo profile, and packs into `dir`, which is emptied first.
///
/// # Errors
/// Something is missing, or cannot be built or written.
pub fn make(arches: &[Arch], profile: &str, dir: &Path, install: bool) -> Result<Vec<Release>> {
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir)?;
    let mut programs = Vec::new();
    for arch in arches {
        programs.push((*arch, build::program_for(*arch, profile, install)?));
    }
    let here = Arch::of_this_machine().ok();
    let runs_here = programs.iter().find(|(arch, _)| Some(*arch) == here).map(|(_, file)| file.clone());
    let runs_here = runs_here.map_or_else(build::for_this_machine, Ok)?;
    let stamp = Stamp::of_checkout();
    let mut made = Vec::new();
    for (arch, program) in &programs {
        let release = Release::of(dir, *arch);
        archive::lay_out(&release.folder, program, &runs_here)?;
        archive::pack(&release.folder, &release.archive, &stamp)?;
        deb::write(&release, VERSION, &stamp)?;
        made.push(release);
    }
    fs::copy(root().join("action.yml"), dir.join("action.yml")).context("action.yml")?;
    write_sums(dir)?;
    Ok(made)
}

/// The timestamp of packed files, in seconds since 1970: the same commit gives the same archives.
pub struct Stamp(String);

impl Stamp {
    /// The timestamp from `SOURCE_DATE_EPOCH`, or of the last commit, or, without either, 1980: the first year that
    /// every format can represent.
    fn of_checkout() -> Stamp {
        let set = std::env::var("SOURCE_DATE_EPOCH").ok();
        let commit = || {
            let ran = captured(program("git").args(["log", "-1", "--format=%ct"]), QUICK).ok()?;
            ran.status.success().then_some(ran.stdout)
        };
        let number = |text: String| Some(text.trim().to_owned()).filter(|t| t.parse::<u64>().is_ok());
        Stamp(
            set.and_then(number)
                .or_else(|| commit().and_then(number))
                .unwrap_or_else(|| "315532800".to_owned()),
        )
    }
}

/// Writes a checksum for each file of the folder, in the form that `sha256sum --check` reads.
fn write_sums(dir: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let ran = captured(program("sha256sum").args(&names).current_dir(dir), QUICK)?.ok("sha256sum")?;
    Ok(fs::write(dir.join(SUMS), ran.stdout)?)
}
