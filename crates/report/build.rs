//! Compresses styles and scripts of pages: 0.1 MB of text, written a few times in a run.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate itself reads no files, environment or clock: its build does"
)]

use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Each output with the files it is assembled from, below `assets`.
const PACKED: [(&str, &[&str]); 4] = [
    ("report.css", &["report.css"]),
    (
        "report.js",
        &[
            "js/base.js",
            "js/charts.js",
            "js/tables.js",
            "js/planes.js",
            "js/flame.js",
            "js/drawings.js",
            "js/page.js",
        ],
    ),
    ("uplot.css", &["uplot/uPlot.min.css"]),
    ("uplot.js", &["uplot/uPlot.iife.min.js"]),
];

fn main() {
    let out = env::var_os("OUT_DIR").expect("Cargo names a folder");
    for (name, files) in PACKED {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        for file in files {
            let path = Path::new("assets").join(file);
            println!("cargo::rerun-if-changed={}", path.display());
            packed.write_all(&fs::read(&path).expect("assets can be read")).expect("memory takes everything");
        }
        let packed = packed.finish().expect("memory takes everything");
        fs::write(Path::new(&out).join(format!("{name}.zlib")), packed).expect("the folder can be written");
    }
}
