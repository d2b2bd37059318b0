//! Compresses the licences of the libraries in the program: 0.5 MB of text that is read once in a while.

use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

fn main() {
    const NOTICES: &str = "THIRD-PARTY-NOTICES";
    println!("cargo::rerun-if-changed={NOTICES}");
    let text = fs::read(NOTICES).expect("the notices can be read");
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&text).expect("memory takes everything");
    let packed = packed.finish().expect("memory takes everything");
    let out = env::var_os("OUT_DIR").expect("Cargo names a folder");
    fs::write(Path::new(&out).join("notices.zlib"), packed).expect("the folder can be written");
}
