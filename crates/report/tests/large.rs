//! A large record, written to disk and read back: the size of its report, and that nothing in it grows with requests.

use std::path::Path;

use loadlab_record::store::read_run;
use loadlab_report::html;

use crate::support::{compose, large, write_record};

/// `LARGE_CASES`, `LARGE_SECONDS` override the defaults, for measurements: the record stays in the target folder.
fn chosen(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn a_record_read_from_disk_makes_a_page_that_can_be_sent() {
    let (cases, seconds) = (chosen("LARGE_CASES", 3), chosen("LARGE_SECONDS", 600));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("large-{cases}-{seconds}"));
    let _ = std::fs::remove_dir_all(&dir);
    write_record(&dir, &large(cases, seconds, 10), |_, _| false);
    let page = html(&compose(&read_run(&dir).expect("the record")));
    let most = 200_000 + 110_000 * cases as usize;
    assert!(page.len() <= most, "{} bytes", page.len());
}
