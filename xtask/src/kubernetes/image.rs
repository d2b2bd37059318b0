//! Images made without an engine: a single layer with one static program, in the format of `docker save`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::command::{captured, program};

/// Time limit for packing a program.
const LONGEST: Duration = Duration::from_secs(60);

/// Writes the archive of an image called `name` into a folder. The program is at `/bin/NAME`, and is started with these
/// arguments.
///
/// # Errors
/// A file cannot be read or written.
pub fn archive(dir: &Path, name: &str, file: &Path, words: &[&str]) -> Result<std::path::PathBuf> {
    let work = dir.join(format!("image-{name}"));
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(work.join("root/bin"))?;
    let own = file.file_name().context("a program has a name")?;
    fs::copy(file, work.join("root/bin").join(own)).with_context(|| file.display().to_string())?;
    let tar = |from: &Path, to: &Path, names: &[&str]| {
        let mut tar = program("tar");
        tar.arg("--create").arg("--file").arg(to).arg("--directory").arg(from).args(names);
        captured(&mut tar, LONGEST)?.ok("tar").map(drop)
    };
    tar(&work.join("root"), &work.join("layer.tar"), &["bin"])?;
    let sum = captured(program("sha256sum").arg(work.join("layer.tar")), LONGEST)?.ok("sha256sum")?.stdout;
    let sum = sum.split(' ').next().context("sha256sum prints a sum")?;
    let entry: Vec<String> = [format!("/bin/{}", own.display())]
        .into_iter()
        .chain(words.iter().map(|word| (*word).to_owned()))
        .collect();
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": arch,
        "os": "linux",
        "config": { "Entrypoint": entry },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{sum}")] },
    });
    let manifest =
        json!([{ "Config": "config.json", "RepoTags": [format!("{name}:test")], "Layers": ["layer.tar"] }]);
    fs::write(work.join("config.json"), config.to_string())?;
    fs::write(work.join("manifest.json"), manifest.to_string())?;
    let archive = dir.join(format!("{name}.tar"));
    tar(&work, &archive, &["manifest.json", "config.json", "layer.tar"])?;
    fs::remove_dir_all(work)?;
    Ok(archive)
}
