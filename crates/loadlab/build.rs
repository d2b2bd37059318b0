//! Compresses the licences of the libraries in the program, 0.5 MB of text that is read once in a while, and the live
//! page.

use std::io::Write;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

fn main() {
    pack("THIRD-PARTY-NOTICES", "notices");
    for name in ["live.css", "live.js", "live.html"] {
        pack(&format!("assets/{name}"), name);
    }
}

fn pack(file: &str, name: &str) {
    println!("cargo::rerun-if-changed={file}");
    let text = fs::read(file).expect("the file can be read");
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&text).expect("memory takes everything");
    let packed = packed.finish().expect("memory takes everything");
    let out = env::var_os("OUT_DIR").expect("Cargo names a folder");
    fs::write(Path::new(&out).join(format!("{name}.zlib")), packed).expect("the folder can be written");
}
