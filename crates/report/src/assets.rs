//! The building blocks of our pages: their style, the chart library, and the policy that keeps everything else out.
//! The report and the live page share them, so that one turns into the other seamlessly.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sha2::{Digest, Sha256};

/// The style of a report.
pub const STYLE: &str = include_str!("../assets/report.css");
/// The style uPlot needs.
pub const UPLOT_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
/// uPlot, which draws lines over time; it defines `uPlot`.
pub const UPLOT_SCRIPT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");

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
