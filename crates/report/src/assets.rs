//! The building blocks of our pages: their style, the chart library, and the policy that keeps everything else out.
//! The report and the live page share them, so that one turns into the other seamlessly.

use std::fmt;
use std::io::Read;
use std::ops::Deref;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use sha2::{Digest, Sha256};

/// A text, compressed in the program and unpacked where it is first needed.
#[derive(Debug)]
pub struct Asset {
    packed: &'static [u8],
    text: OnceLock<String>,
}

impl Asset {
    /// From what a build script compressed with zlib.
    pub const fn new(packed: &'static [u8]) -> Asset {
        Asset { packed, text: OnceLock::new() }
    }
}

impl Deref for Asset {
    type Target = str;

    fn deref(&self) -> &str {
        self.text.get_or_init(|| {
            let mut text = String::new();
            ZlibDecoder::new(self.packed).read_to_string(&mut text).expect("the build packed it");
            text
        })
    }
}

impl fmt::Display for Asset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// The style of a report.
pub static STYLE: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/report.css.zlib")));
/// A report's script.
pub static SCRIPT: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/report.js.zlib")));
/// The style uPlot needs.
pub static UPLOT_STYLE: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/uplot.css.zlib")));
/// uPlot, which draws lines over time; it defines `uPlot`.
pub static UPLOT_SCRIPT: Asset = Asset::new(include_bytes!(concat!(env!("OUT_DIR"), "/uplot.js.zlib")));

/// uPlot's licence, as a comment in the page: it must accompany every copy.
pub const UPLOT_LICENCE: &str =
    concat!("<!-- uPlot draws the charts.\n\n", include_str!("../assets/uplot/LICENSE"), "-->\n");

/// A content security policy: nothing is loaded, and no script runs but these, byte for byte.
pub fn policy(scripts: &[&str]) -> String {
    let hash = |script: &&str| format!("'sha256-{}'", BASE64.encode(Sha256::digest(script.as_bytes())));
    let hashes: Vec<String> = scripts.iter().map(hash).collect();
    format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        hashes.join(" ")
    )
}
