//! Explains in words why a load that got no response could not run: the reason behind exit code 5.

use loadlab_analysis::trial::judge::was_never_connected;
use loadlab_record::Failure;
use loadlab_record::counts::example::{Example, ExampleReason};
use loadlab_record::documents::summary::Summary;

/// The reason and a hint, if no request ever got a usable connection.
pub fn unanswered(summary: &Summary, examples: &[Example]) -> Option<String> {
    if !was_never_connected(summary) {
        return None;
    }
    let most = summary.failures.nonzero().max_by_key(|(_, n)| *n).map(|(kind, _)| kind)?;
    let example = examples.iter().find(|e| e.kept == ExampleReason::Failed && e.outcome == most.name());
    let address = example.map_or_else(|| summary.load.url.clone(), |e| e.address.clone());
    let why = example.and_then(|e| e.error.clone()).unwrap_or_else(|| "no request was answered".to_owned());
    Some(match most {
        Failure::Tls => format!("no TLS connection with {address}: {why}\nhint: {}", hint(&why)),
        Failure::Dns => format!("cannot resolve {address}: {why}\nhint: is the host name right?"),
        _ => format!("cannot connect to {address}: {why}\nhint: is the server up, and is this its port?"),
    })
}

/// A remedy for this kind of handshake failure.
fn hint(why: &str) -> &'static str {
    match why {
        _ if why.contains("does not speak TLS") => "should the URL begin with http://, or is the port wrong?",
        _ if why.contains("self-signed") => {
            "pass the authority's certificate (`--cacert FILE`, in a plan `tls: { ca: FILE }`), or accept any \
             certificate (`--insecure`, `tls: { insecure: true }`)"
        }
        _ if why.contains("certificate is not for") => {
            "use a name that the certificate covers, or accept any certificate (`--insecure`, in a plan `tls: { \
             insecure: true }`)"
        }
        _ if why.contains("client certificate") => {
            "use one that the server trusts, with its key (`--cert` and `--key`, in a plan `tls: { cert: FILE, \
             key: FILE }`)"
        }
        _ if why.contains("ALPN") => {
            "the server speaks another version of HTTP: try without HTTP/2, or with it"
        }
        _ if why.contains("certificate") => {
            "fix the server's certificate, or accept any (`--insecure`, in a plan `tls: { insecure: true }`)"
        }
        _ => "does the server speak TLS on this port, in a version that both support?",
    }
}
