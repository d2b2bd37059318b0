//! Keeps whole exchanges: the first failures and the slowest of every outcome and tag.
//!
//! The slowest are kept in slots that are overwritten in place, so a load that keeps getting slower does not allocate.

use loadlab_record::Secrets;
use loadlab_record::counts::example::{
    BODY_BYTES, Example, ExampleReason, HEAD_BYTES, MAX_EXAMPLES, RESPONSE_BYTES,
};
use loadlab_record::counts::outcome::{Failure, Outcome};

use crate::journey::example::ExampleContext;
use crate::journey::failure::StepFailure;
use crate::measure::recorder::Times;
use crate::spec::request::Request;
use crate::target::Address;

/// Number of outcomes: ok and every failure.
const OUTCOMES: usize = Failure::ALL.len() + 1;

/// An exchange at its end, as the worker sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    /// The request that was sent.
    pub request: &'a Request,
    /// Address it was sent to.
    pub address: Option<&'a Address>,
    /// When it fell due, started and ended.
    pub times: Times,
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, if anything.
    pub error: Option<Reason>,
    /// What went wrong in words, including what the response contained instead.
    pub error_text: Option<&'a str>,
    /// Beginning of the request, if it was written for this exchange.
    pub written: Option<&'a [u8]>,
    /// The user, in the closed model.
    pub user: Option<u64>,
    /// Response status, if a head arrived.
    pub status: Option<u16>,
    /// Beginning of the response.
    pub response: ResponseBytes<'a>,
    /// What to show of the journey, if there is one.
    pub shown: Option<&'a ExampleContext>,
}

/// Bytes of a response, from its beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseBytes<'a> {
    /// The part that is available.
    pub bytes: &'a [u8],
    /// Offset of the head's end, if `bytes` contains it.
    pub head_end: Option<usize>,
}

/// What went wrong, in a form that is cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A fixed text.
    Text(&'static str),
    /// A kernel error number.
    Os(i32),
    /// The TLS handshake failed; the worker knows why.
    Tls,
    /// A WebSocket conversation went wrong; the worker knows why.
    WebSocket,
    /// The tunnel failed; the worker knows why.
    Proxy,
    /// A step of a journey failed.
    Script(StepFailure),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Text(text) => f.write_str(text),
            Reason::Tls => f.write_str("no TLS connection with the server"),
            Reason::WebSocket => f.write_str("the WebSocket failed"),
            Reason::Proxy => f.write_str("the proxy did not open a tunnel"),
            Reason::Script(failure) => f.write_str(failure.describe()),
            Reason::Os(number) => {
                let text = std::io::Error::from_raw_os_error(*number).to_string();
                f.write_str(text.split(" (os error").next().unwrap_or(&text).to_lowercase().as_str())
            }
        }
    }
}

/// A slow exchange; its texts are generated at the end.
#[derive(Debug)]
struct SlowExchange {
    label: usize,
    address: Option<Address>,
    times: Times,
    error: Option<Reason>,
    user: Option<u64>,
    status: Option<u16>,
    head_end: Option<usize>,
    bytes: Vec<u8>,
    error_text: Option<Box<str>>,
    written: Option<Box<[u8]>>,
    shown: Option<Box<ExampleContext>>,
}

#[derive(Debug, Default)]
struct Group {
    first: usize,
    slow: Vec<SlowExchange>,
    /// Response time to beat once [`MAX_EXAMPLES`] of them are kept.
    bar_ns: u64,
}

/// One worker's examples.
#[derive(Debug)]
pub struct ExampleStore {
    load: String,
    tags: Vec<String>,
    secrets: Secrets,
    /// By tag (0: none), then by outcome.
    groups: Vec<Group>,
}

impl ExampleStore {
    /// Nothing kept yet.
    pub fn new(load: &str, tags: &[String], secrets: &Secrets) -> Self {
        let groups = (0..(tags.len() + 1) * OUTCOMES).map(|_| Group::default()).collect();
        ExampleStore { load: load.to_owned(), tags: tags.to_vec(), secrets: secrets.clone(), groups }
    }

    #[inline]
    fn group(&self, request: &Request, outcome: Outcome) -> usize {
        let tag = request.tags.first().map_or(0, |t| *t as usize + 1);
        let outcome = match outcome {
            Outcome::Ok => 0,
            Outcome::Failed(f) => f as usize + 1,
        };
        tag * OUTCOMES + outcome
    }

    /// Whether this exchange would be kept.
    #[inline]
    pub fn wants(&self, request: &Request, outcome: Outcome, response_ns: u64) -> bool {
        let group = &self.groups[self.group(request, outcome)];
        response_ns > group.bar_ns || (outcome != Outcome::Ok && group.first < MAX_EXAMPLES)
    }

    /// Keeps an exchange. `number` is the request's index in the load. Returns an example to report at once if it is
    /// among the first of its failure.
    pub fn keep(&mut self, exchange: &Ending<'_>, number: usize) -> Option<Example> {
        let index = self.group(exchange.request, exchange.outcome);
        let first = exchange.outcome != Outcome::Ok && self.groups[index].first < MAX_EXAMPLES;
        let group = &mut self.groups[index];
        if first {
            group.first += 1;
        }
        let response_ns = exchange.times.end_ns - exchange.times.due_ns;
        if response_ns > group.bar_ns || group.slow.len() < MAX_EXAMPLES {
            group.insert(exchange, number);
        }
        first.then(|| {
            let slow = SlowExchange::of(exchange, number, Vec::new());
            self.example(&slow, exchange.request, exchange.outcome, ExampleReason::Failed)
        })
    }

    /// The slowest exchanges of every outcome and tag.
    pub fn slowest(&self, requests: &[Request]) -> Vec<Example> {
        let mut out = Vec::new();
        for (i, group) in self.groups.iter().enumerate() {
            let outcome = match i % OUTCOMES {
                0 => Outcome::Ok,
                n => Outcome::Failed(Failure::ALL[n - 1]),
            };
            out.extend(
                group.slow.iter().map(|s| self.example(s, &requests[s.label], outcome, ExampleReason::Slow)),
            );
        }
        out
    }

    fn example(
        &self,
        slow: &SlowExchange,
        request: &Request,
        outcome: Outcome,
        kept: ExampleReason,
    ) -> Example {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let head_end = slow.head_end.unwrap_or(slow.bytes.len()).min(slow.bytes.len());
        let (head, body) = slow.bytes.split_at(head_end);
        Example {
            kept,
            outcome: outcome.name().to_owned(),
            load: self.load.clone(),
            tag: request.tags.first().map(|t| self.tags[*t as usize].clone()),
            due_s: slow.times.due_ns as f64 / 1e9,
            response_ms: (slow.times.end_ns - slow.times.due_ns) as f64 / 1e6,
            service_ms: (slow.times.end_ns - slow.times.started_ns) as f64 / 1e6,
            user: slow.shown.as_ref().map_or(slow.user, |s| s.user),
            step: slow.shown.as_ref().map(|s| s.step.clone()),
            captured: slow.shown.iter().flat_map(|s| s.captured.iter().cloned()).collect(),
            address: slow.address.as_ref().map(Address::to_string).unwrap_or_default(),
            error: slow
                .error_text
                .as_deref()
                .map(str::to_owned)
                .or_else(|| slow.error.map(|e| e.to_string())),
            request: self.secrets.mask(&request.label).into_owned(),
            request_head: masked(&text(
                slow.written.as_deref().map_or(&request.bytes[..request.head_len.min(HEAD_BYTES)], head_of),
            )),
            status: slow.status,
            response_head: (!head.is_empty()).then(|| masked(&text(&head[..head.len().min(HEAD_BYTES)]))),
            response_body: (!body.is_empty()).then(|| text(&body[..body.len().min(BODY_BYTES)])),
        }
    }
}

/// A request's bytes up to its empty line.
fn head_of(bytes: &[u8]) -> &[u8] {
    &bytes[..end_of_head(bytes).unwrap_or(bytes.len())]
}

impl Group {
    fn insert(&mut self, exchange: &Ending<'_>, number: usize) {
        let least = self.slow.iter().enumerate().min_by_key(|(_, s)| s.response_ns()).map(|(i, _)| i);
        match least {
            Some(i) if self.slow.len() == MAX_EXAMPLES => {
                let bytes = std::mem::take(&mut self.slow[i].bytes);
                self.slow[i] = SlowExchange::of(exchange, number, bytes);
            }
            _ => self.slow.push(SlowExchange::of(exchange, number, Vec::with_capacity(RESPONSE_BYTES))),
        }
        if self.slow.len() == MAX_EXAMPLES {
            self.bar_ns = self.slow.iter().map(SlowExchange::response_ns).min().unwrap_or(0);
        }
    }
}

impl SlowExchange {
    fn of(exchange: &Ending<'_>, label: usize, mut bytes: Vec<u8>) -> SlowExchange {
        let ResponseBytes { bytes: response, head_end } = exchange.response;
        let kept = match head_end {
            Some(end) if end <= HEAD_BYTES => response.len().min(end + BODY_BYTES),
            _ => response.len().min(HEAD_BYTES),
        };
        bytes.clear();
        bytes.extend_from_slice(&response[..kept]);
        SlowExchange {
            label,
            address: exchange.address.cloned(),
            times: exchange.times,
            error: exchange.error,
            user: exchange.user,
            status: exchange.status,
            head_end,
            bytes,
            error_text: exchange.error_text.map(Into::into),
            written: exchange.written.map(Into::into),
            shown: exchange.shown.cloned().map(Box::new),
        }
    }

    fn response_ns(&self) -> u64 {
        self.times.end_ns - self.times.due_ns
    }
}

/// Header fields whose values grant access.
const SECRET: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

/// Redacts the secrets in a head, since a record is shared. Schemes and cookie names stay. Lines may end with a bare
/// LF, and a value may be folded onto lines that begin with a blank.
fn masked(head: &str) -> String {
    let (mut text, mut goes_on) = (String::with_capacity(head.len()), false);
    for line in head.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\r', '\n']);
        let end = &line[bare.len()..];
        if goes_on && bare.starts_with([' ', '\t']) {
            continue;
        }
        let masked = masked_line(bare);
        goes_on = masked.is_some();
        text.push_str(masked.as_deref().unwrap_or(bare));
        text.push_str(end);
    }
    text
}

/// The redacted line, if its field grants access.
fn masked_line(line: &str) -> Option<String> {
    let (name, value) = line.split_once(':')?;
    let known = name.trim();
    if !SECRET.iter().any(|s| known.eq_ignore_ascii_case(s)) {
        return None;
    }
    // What may be shown: a cookie's name, or the scheme of other fields. A token may contain `=`.
    let sign = if known.to_ascii_lowercase().contains("cookie") { "=" } else { " " };
    let is_name = |word: &&str| match sign {
        "=" => !word.contains([' ', ';', ',']),
        _ => word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
    };
    let shown = value.trim().split_once(sign).map(|(word, _)| word).filter(is_name);
    Some(shown.map_or(format!("{name}: ***"), |word| format!("{name}: {word}{sign}***")))
}

/// Offset after the empty line that ends the head, whatever the line ending. Interim responses belong to the head that
/// follows them.
pub fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let head = &bytes[end..];
        end += memchr::memchr_iter(b'\n', head).find_map(|at| match head.get(at + 1..)? {
            [b'\n', ..] => Some(at + 2),
            [b'\r', b'\n', ..] => Some(at + 3),
            _ => None,
        })?;
        if !is_interim(head) {
            return Some(end);
        }
    }
}

/// Whether a head is that of an interim response (RFC 9110, section 15.2).
fn is_interim(head: &[u8]) -> bool {
    matches!(head, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'1', b'0'..=b'9', b'0'..=b'9', ..])
        && head[9..12] != *b"101"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expect: &str) {
        assert_eq!(
            masked(&format!("GET / HTTP/1.1\r\n{head}\r\n\r\n")),
            format!("GET / HTTP/1.1\r\n{expect}\r\n\r\n")
        );
    }

    #[test]
    fn interim_responses_belong_to_the_head_after_them() {
        let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let head = format!("{interim}HTTP/1.1 200 OK\r\nSet-Cookie: id=7\r\n\r\n");
        assert_eq!(end_of_head(interim.as_bytes()), None);
        assert_eq!(end_of_head(format!("{head}body\r\n\r\n").as_bytes()), Some(head.len()));
        let opened = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(end_of_head(format!("{opened}x\n\n").as_bytes()), Some(opened.len()));
    }

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        check("Authorization: Bearer abc.def", "Authorization: Bearer ***");
        check("authorization: abc", "authorization: ***");
        check("Authorization: dXNlcjpwYXNzd29yZA==", "Authorization: ***");
        check("Authorization: dXNlcjpwYXNzd29yZA== ", "Authorization: ***");
        check("Authorization: token=abc123, realm=x", "Authorization: ***");
        check("Cookie: secret; a=b", "Cookie: ***");
        check("Cookie: sid=42; theme=dark", "Cookie: sid=***");
        check("Set-Cookie: id=7; Path=/", "Set-Cookie: id=***");
        check("X-Authorization: a", "X-Authorization: a");
        check("Cookie: sid=42;\r\n\ttheme=dark\r\nA: b", "Cookie: sid=***\r\nA: b");
        check("A: b\nAuthorization: Bearer abc.def\nC: d", "A: b\nAuthorization: Bearer ***\nC: d");
        check("Host: a:80\r\nDate: Fri, 20 Nov", "Host: a:80\r\nDate: Fri, 20 Nov");
    }
}
