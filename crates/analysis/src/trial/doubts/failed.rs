//! The doubt about a load in which nothing succeeded: what failed, and what to look at. It must not advise more of
//! the same.

use std::collections::BTreeMap;

use loadlab_record::Failure;
use loadlab_record::documents::summary::{Doubt, Ended, Requests, Summary};
use loadlab_record::text::units::format_count;

use super::doubt;

/// What to check if there are no responses.
const UNANSWERED: &str = "no response came in time: does the server answer a single request at all?";

/// Whether not one request succeeded, although some should have: a server that hangs fails none before its timeout, which
/// may be later than the end of the load.
pub(super) fn nothing_succeeded(summary: &Summary) -> bool {
    let Requests { ok, failed, in_flight, .. } = summary.requests;
    let was_unanswered = in_flight > 0 && summary.ended == Ended::Complete;
    ok == 0 && (failed > 0 || was_unanswered) && !summary.load.is_command()
}

/// Not one request succeeded. Never grave: the failures were measured, and may be the very finding; but throughput
/// and response times are then meaningless, and a longer load does not change that.
pub(super) fn all_failed(summary: &Summary) -> Option<Doubt> {
    if !nothing_succeeded(summary) {
        return None;
    }
    let Requests { failed, in_flight, .. } = summary.requests;
    if failed == 0 {
        let evidence = match in_flight {
            1 => "the only request was not answered before the load ended".to_owned(),
            n => format!("none of {} requests was answered before the load ended", format_count(n as f64)),
        };
        return doubt("all_failed", false, evidence, UNANSWERED);
    }
    let kinds: Vec<String> = summary
        .failures
        .nonzero()
        .map(|(kind, n)| format!("{} {}", kind.name(), format_count(n as f64)))
        .collect();
    let statuses: Vec<String> = summary.statuses.keys().map(u16::to_string).collect();
    let reported = match statuses.is_empty() {
        true => String::new(),
        false => format!(", status {}", statuses.join(", ")),
    };
    let all = match failed {
        1 => "the only request that ended failed".to_owned(),
        n => format!("all {} requests that ended failed", format_count(n as f64)),
    };
    // Over HTTP/2, a head that is too long fails many other requests with it.
    let weight = |kind: Failure| (kind == Failure::TooLarge, summary.failures.get(kind));
    let worst = summary.failures.nonzero().map(|(kind, _)| kind).max_by_key(|kind| weight(*kind));
    let hint = hint_for_failures(worst?, &summary.statuses);
    doubt("all_failed", false, format!("{all}: {}{reported}", kinds.join(", ")), hint)
}

/// What to check if this kind of failure is the most frequent.
fn hint_for_failures(kind: Failure, statuses: &BTreeMap<u16, u64>) -> &'static str {
    let most = statuses.iter().max_by_key(|(_, n)| **n).map(|(status, _)| *status);
    match (kind, most) {
        (Failure::Http4xx, Some(401 | 403 | 407)) => {
            "the server requires authentication: send credentials in a header, and see the examples"
        }
        (Failure::Http4xx, Some(404 | 410)) => {
            "is the path right, or does the server expect another host name?"
        }
        (Failure::Http4xx, Some(429)) => {
            "the server limits its request rate: lower the load, or lift that limit"
        }
        (Failure::Http4xx, _) => "see the examples for what the server rejects: method, headers or body",
        (Failure::Http5xx, _) => "see the server's own log, and the examples for what it answered",
        (Failure::Check, _) => {
            "a check rejects every response: see the examples for what came back, and whether the check is right"
        }
        (Failure::Timeout, _) => UNANSWERED,
        (Failure::Connect, _) => "is the server up, and is this its port?",
        (Failure::Dns, _) => "is the host name right?",
        (Failure::Tls, _) => {
            "see the examples for why TLS failed; `--cacert` or `--insecure` help with certificates"
        }
        (Failure::Reset | Failure::Truncated | Failure::Protocol, _) => {
            "does the server speak this protocol here: http or https, HTTP/1.1 or HTTP/2?"
        }
        (Failure::TooLarge, _) => "see the examples for what the server sends in its headers",
    }
}
