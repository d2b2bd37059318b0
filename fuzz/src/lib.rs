//! The fuzz targets, one module each. Each has a plain `target(data)` that panics when a promise is broken, so that the
//! same body serves libFuzzer, a test over seeds, and the replay of a file on any toolchain.
//!
//! Targets check promises (`http1`: cutting changes nothing), not only "does not crash". They use no clock and no
//! network; only `record` has a folder, since the code it fuzzes reads one.

use std::process::ExitCode;

pub mod block;
pub mod capture;
pub mod expr;
pub mod hpack;
pub mod http1;
pub mod http2;
pub mod plan;
pub mod record;
pub mod secrets;
pub mod template;
pub mod websocket;

/// Runs a target over the files (and the files in the folders) named on the command line. A broken promise panics after
/// the name of the offending file is printed.
pub fn replay(target: fn(&[u8])) -> ExitCode {
    let mut count = 0;
    for path in std::env::args_os().skip(1).map(std::path::PathBuf::from) {
        let files = match files_of(&path) {
            Ok(files) => files,
            Err(error) => {
                eprintln!("error: cannot read {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        };
        for (file, bytes) in files {
            eprintln!("{}", file.display());
            target(&bytes);
            count += 1;
        }
    }
    record::clean();
    println!("{count} file(s), every promise kept");
    if count == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The file, or the files in the folder, sorted, with their bytes.
///
/// # Errors
/// The file system's error.
pub fn files_of(path: &std::path::Path) -> std::io::Result<Vec<(std::path::PathBuf, Vec<u8>)>> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        paths = std::fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
        paths.retain(|p| p.is_file());
        paths.sort();
    }
    paths.into_iter().map(|p| std::fs::read(&p).map(|bytes| (p, bytes))).collect()
}
