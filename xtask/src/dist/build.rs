//! Static programs for any architecture, built on any: Rust's musl target, with Zig as the compiler of the C code in
//! loadlab (aws-lc). Both are pinned or come with Rust, so that the build machine does not matter. The linker, the C
//! library and the start code come with Rust.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::QUICK;
use crate::command::{captured, cargo, find, program, shown};
use crate::root::target;

/// The pinned version of Zig on PyPI.
const ZIG: &str = "0.17.1";

/// Link with what comes with Rust. Also pack relocations, of which a position-independent program has 30,000; this
/// saves 0.7 MB.
const FLAGS: [&str; 6] = [
    "-Clinker-flavor=ld.lld",
    "-Clink-self-contained=yes",
    "-Ctarget-feature=+crt-static",
    "-Clink-arg=--pack-dyn-relocs=relr",
    "-Clink-arg=--icf=all",
    // The profile's setting does not reach this linker.
    "-Clink-arg=--strip-all",
];

/// [`FLAGS`], and flags that remove this machine's folders from the paths of libraries' source files: they are nobody's
/// business and take 40 KB.
fn flags() -> Vec<String> {
    let mut flags: Vec<String> = FLAGS.map(str::to_owned).to_vec();
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let sources = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    for source in sources.into_iter().flatten().flatten() {
        // The variable is split at spaces.
        if let Some(path) = source.path().to_str().filter(|path| !path.contains(' ')) {
            flags.push(format!("--remap-path-prefix={path}/="));
        }
    }
    flags
}

/// What loadlab is built for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Arch {
    /// 64-bit Intel and AMD.
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    /// All architectures.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// The architecture that this program was built for.
    ///
    /// # Errors
    /// It is none of [`Arch::ALL`].
    pub fn of_this_machine() -> Result<Arch> {
        let name = std::env::consts::ARCH;
        let arch = Arch::ALL.into_iter().find(|arch| arch.name() == name);
        arch.with_context(|| format!("nothing is made for {name}\nhint: --target x86_64 or --target aarch64"))
    }

    /// Its name in Rust, Linux and file names.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// Its name in Debian.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    /// Rust's target.
    fn triple(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }
}

/// Builds the static program for an architecture.
///
/// # Errors
/// A part of Rust or Zig is missing and cannot be installed, or the build fails.
pub fn program_for(arch: Arch, profile: &str, install: bool) -> Result<PathBuf> {
    let triple = arch.triple();
    rust_target(&triple, install)?;
    let tools = compilers(&zig()?, arch)?;
    let mut build = cargo(&["build", "--locked", "--package", "loadlab", "--target", &triple]);
    build.args(["--profile", profile]);
    let name = triple.replace('-', "_");
    build.env(format!("CC_{name}"), &tools.cc).env(format!("AR_{name}"), &tools.ar);
    // The performance of aws-lc comes from its assembly. Cargo's own `opt-level = "s"` would drop part of that as well
    // (AES-GCM with AVX-512: large https responses then cost 20 % more CPU).
    build.env(format!("CFLAGS_{name}"), "-Os");
    let upper = name.to_uppercase();
    build.env(format!("CARGO_TARGET_{upper}_LINKER"), "rust-lld");
    build.env(format!("CARGO_TARGET_{upper}_RUSTFLAGS"), flags().join(" "));
    let ran = shown(&mut build)?;
    ensure!(ran.status.success(), "cargo build for {triple}: {}", ran.status);
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target().join(&triple).join(folder).join("loadlab"))
}

/// Builds a program that runs here, whatever the target, to write completions and man pages.
///
/// # Errors
/// The build fails.
pub fn for_this_machine() -> Result<PathBuf> {
    let ran = shown(&mut cargo(&["build", "--locked", "--package", "loadlab"]))?;
    ensure!(ran.status.success(), "cargo build: {}", ran.status);
    Ok(target().join("debug/loadlab"))
}

/// Ensures that Rust's standard library is installed for a target.
fn rust_target(triple: &str, install: bool) -> Result<()> {
    let ran = captured(program("rustc").args(["--print", "sysroot"]), QUICK)?.ok("rustc")?;
    let library = Path::new(ran.stdout.trim()).join("lib/rustlib").join(triple).join("lib");
    if library.is_dir() {
        return Ok(());
    }
    ensure!(
        install,
        "Rust has no standard library for {triple} here\nhint: rustup target add {triple}   (or `--install`)"
    );
    let ran = shown(program("rustup").args(["target", "add", triple]))?;
    ensure!(ran.status.success(), "rustup target add {triple}: {}", ran.status);
    Ok(())
}

/// The pinned version of Zig, installed from PyPI into the target folder: no other version has been tried.
fn zig() -> Result<PathBuf> {
    let dir = target().join(format!("xtask/zig-{ZIG}"));
    let zig = dir.join("ziglang/zig");
    if zig.is_file() {
        return Ok(zig);
    }
    if find("python3").is_none() {
        bail!("Zig comes from PyPI, and python3 is not installed\nhint: apt-get install python3-pip");
    }
    let mut pip = program("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]);
    pip.args(["--disable-pip-version-check", "--root-user-action", "ignore", "--upgrade"]);
    pip.arg("--target").arg(&dir).arg(format!("ziglang=={ZIG}"));
    let ran = shown(&mut pip)?;
    ensure!(
        ran.status.success() && zig.is_file(),
        "pip cannot install ziglang {ZIG}: {}\nhint: apt-get install python3-pip, and see that PyPI can be reached",
        ran.status
    );
    Ok(zig)
}

/// Scripts in place of `cc` and `ar`.
struct Tools {
    cc: PathBuf,
    ar: PathBuf,
}

/// Writes the scripts: builds of C code expect a program without arguments, and name targets differently from Zig.
fn compilers(zig: &Path, arch: Arch) -> Result<Tools> {
    let dir = target().join("xtask/zig-tools");
    fs::create_dir_all(&dir)?;
    let write = |name: String, lines: String| -> Result<PathBuf> {
        let file = dir.join(name);
        fs::write(&file, format!("#!/bin/sh\n{lines}"))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(file)
    };
    let (zig, target) = (quoted(zig), format!("{}-linux-musl", arch.name()));
    // Without optimisation Zig adds checks for undefined behaviour that need a library, which is not linked.
    let cc = format!(
        "for word; do\n    shift\n    case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\ndone\n\
         exec {zig} cc -target {target} -fno-sanitize=all \"$@\"\n"
    );
    Ok(Tools {
        cc: write(format!("cc-{}", arch.name()), cc)?,
        ar: write("ar".to_owned(), format!("exec {zig} ar \"$@\"\n"))?,
    })
}

/// Quoted as a single shell word.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_whatever_is_in_it() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
