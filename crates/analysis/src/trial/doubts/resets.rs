//! The doubt about requests that were sent again after a reset. A bare reset looks the same whether the server's
//! kernel discarded the request unread, in a race with the end of an idle connection, or the server read it and gave
//! up. The first is no failure, the second is one; from outside the server they cannot be distinguished.

use loadlab_record::Failure;
use loadlab_record::documents::summary::{Doubt, Summary};
use loadlab_record::expr::{Expr, Figure, SummaryNumbers};
use loadlab_record::text::units::{format_count, format_percent_short};

use super::{Grounds, doubt, share_of};

/// Fewer than one request in a thousand change no share of failures that matters.
const SHARE: f64 = 0.001;

/// Requests were sent again, enough of them to matter. Grave if an expectation holds only if none of them was a
/// failure.
pub(super) fn resent_after_reset(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let resent = summary.connections.resent_after_reset;
    // Requests that a program makes are not known to be sent again.
    let started = summary.started_by_loadlab() as f64;
    let share = share_of(resent as f64, started)?;
    let turned = turned_by(summary, resent, &grounds.planned.figures);
    if resent == 0 || share < SHARE && turned.is_none() {
        return None;
    }
    // A request that was sent again and then failed counts in both.
    let failed = summary.requests.failed as f64 / started;
    let most = share_of((summary.requests.failed + resent.min(own_ok(summary))) as f64, started)?;
    let so = turned.as_ref().map_or(String::new(), |expr| format!(", and `{expr}` does not hold"));
    doubt(
        "resent_after_reset",
        turned.is_some(),
        format!(
            "{} of {} requests ({}) were sent again because a connection that had been used before was reset without an \
             answer; if the server had read them, up to {} of the requests failed instead of {}{so}",
            format_count(resent as f64),
            format_count(started),
            format_percent_short(share),
            format_percent_short(most),
            format_percent_short(failed),
        ),
        "compare the server's own count of requests; on a connection for each request (`--no-keep-alive`, `keep_alive: false`) \
         every reset counts as a failure",
    )
}

/// Requests of loadlab's own that succeeded: all that a program makes count as ok, and none was sent again.
fn own_ok(summary: &Summary) -> u64 {
    let made = summary.requests.started - summary.started_by_loadlab();
    summary.requests.ok.saturating_sub(made)
}

/// The first expectation that holds, but would not if each of these requests had failed.
fn turned_by(summary: &Summary, resent: u64, figures: &[Figure]) -> Option<String> {
    if resent == 0 {
        return None;
    }
    let mut worst = summary.clone();
    let resent = resent.min(own_ok(summary));
    worst.requests.ok -= resent;
    worst.requests.failed += resent;
    worst.failures.add(Failure::Reset, resent);
    let ok = own_ok(summary) - resent;
    worst.availability = worst.availability.map(|_| ok as f64 / (ok + worst.requests.failed) as f64);
    let numbers = SummaryNumbers::new(&worst, &[]);
    let held = summary.expectations.iter().filter(|expectation| expectation.holds == Some(true));
    let fails = |text: &str| {
        let holds = |expr: Expr| expr.with_figures(figures).evaluate(&numbers).holds;
        Expr::parse(text).is_ok_and(|expr| holds(expr) == Some(false))
    };
    held.map(|expectation| expectation.expr.clone()).find(|text| fails(text))
}
