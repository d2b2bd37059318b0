//! What a step of a journey adds to a request: a text that is written anew each time, checks of the answer, values
//! taken out of it. Nothing here sends or counts.

use std::borrow::Cow;

use loadlab_record::Secrets;
use loadlab_record::example::{BODY_BYTES, HEAD_BYTES};
use loadlab_record::outcome::{Failure, Outcome};

use crate::journey::capture::{self, Capture, Slots};
use crate::journey::check::{Answer, Checks, Expect, Failed};
use crate::journey::decode;
use crate::journey::example::Remembered;
use crate::journey::order::{Course, Step};
use crate::journey::redirect::{self, Site};
use crate::journey::rows::{Dealing, Rows};
use crate::journey::template::{self, Template, Values};
use crate::protocol::http1::Keep;
use crate::protocol::http2::Outline;
use crate::protocol::websocket::Kind;
use crate::protocol::websocket::opening::Opening;
use crate::schedule::think::Think;

/// Most bytes of a body that are kept for checks and captures. What is beyond is counted, not looked at, and a
/// check or capture that needs the body fails, saying so.
pub const MAX_BODY: usize = 4 << 20;
/// Most bytes of a body that nobody looks at: what an example shows of it.
const SHOWN: usize = HEAD_BYTES + BODY_BYTES;
/// Kept bodies larger than this give their memory back.
const BODY_KEPT: usize = 64 * 1024;

/// What a step adds to its request.
#[derive(Clone, Debug)]
pub struct Script {
    /// Written anew each time; `None` where the request's bytes are always the same.
    pub message: Option<Message>,
    /// The message has an id: what becomes of it is told ([`Message::has_id`]).
    pub has_id: bool,
    /// When the answer is good.
    pub checks: Checks,
    /// What of the checks is written anew for each answer.
    pub expected: Vec<(Expected, Template)>,
    /// What is taken out of a good answer, and where it goes: slots of the user's own.
    pub captures: Vec<(u16, Capture)>,
    /// What a failure means for the user's way.
    pub on_failure: Step,
    /// Where it goes: index into the load's hosts.
    pub host: u16,
    /// So many redirects in a row are followed; the request has to be written then.
    pub redirects: u8,
    /// How long a user waits before the request that follows, if other than the load says.
    pub think: Option<Think>,
    /// It is part of a conversation over a WebSocket.
    pub talk: Option<Box<Talk>>,
}

/// A part of a conversation. All parts of one are requests that follow one another: the opening, messages, the goodbye.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Which.
    pub part: Part,
    /// So many parts follow it.
    pub left: u32,
}

/// What a user does in a conversation.
#[derive(Clone, Debug)]
pub enum Part {
    /// It opens the WebSocket; the script's message is the request, with the headers of the opening.
    Open {
        /// What the answer must be.
        opening: Opening,
        /// Messages that come while nobody waits are kept for a later part.
        keeps: bool,
    },
    /// It says something, waits for something, or both.
    Say {
        /// What is sent.
        send: Option<(Kind, Template)>,
        /// What is waited for, besides the script's checks.
        wait: Option<Wait>,
        /// Texts that the answer must contain, written anew each time with the same values as what is sent.
        echoes: Vec<Template>,
    },
    /// It says goodbye, and waits for the server's.
    Goodbye,
}

/// How a user waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// No longer than this; `None`: the load's timeout.
    pub within_ns: Option<u64>,
    /// Messages that the checks do not take are others', and passed over; else the first one decides.
    pub passes_over: bool,
}

impl Talk {
    /// How long this part may take, if it says so.
    #[inline]
    pub fn within_ns(&self) -> Option<u64> {
        match &self.part {
            Part::Say { wait, .. } => wait.and_then(|w| w.within_ns),
            Part::Open { .. } | Part::Goodbye => None,
        }
    }
}

/// A value of the checks that is written anew: its place among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Of a header field.
    Header(usize),
    /// Of a JSON value.
    Json(usize),
    /// In the body.
    Holds(usize),
}

/// A request with variables in it.
#[derive(Clone, Debug)]
pub struct Message {
    /// Method.
    pub method: Box<str>,
    /// Path and query.
    pub target: Template,
    /// Header fields, each with its line end; without `Host`, length and cookies.
    pub fields: Template,
    /// The body, if it has one.
    pub body: Option<Template>,
}

impl Message {
    /// It carries a number that no other request of the trial has.
    pub fn has_id(&self) -> bool {
        let templates = [&self.target, &self.fields].into_iter().chain(&self.body);
        templates.flat_map(Template::variables).any(|variable| variable == template::Variable::Id)
    }
}

/// The head of a request that is written anew each time, as HTTP/2 says it.
#[derive(Clone, Debug)]
pub struct Written {
    /// What stays the same, and the names of what does not.
    pub outline: Outline,
    /// The values that belong to the names.
    pub values: Vec<Template>,
}

/// How users go through the requests of a load, and what they share. Requests and scripts have the same numbers.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Their order.
    pub course: Course,
    /// One for each request.
    pub scripts: Vec<Script>,
    /// The load's hosts, in the same order.
    pub sites: Vec<Site>,
    /// Users keep cookies; all requests have to be written then.
    pub cookies: bool,
    /// Data.
    pub feeds: Vec<Rows>,
    /// How each of them is dealt.
    pub dealings: Vec<Deal>,
    /// What was captured before the load, for all users.
    pub shared: Slots,
    /// How many values each user may capture.
    pub own: u16,
    /// Names of the slots, those of [`Journey::shared`] first; for examples.
    pub remembered: Vec<Remembered>,
    /// Those of them that are numbers of the load: slot of the user's own, and name.
    pub numbers: Vec<(u16, String)>,
    /// A schedule's arrivals are users, who make their rounds and leave; else they are single requests.
    pub sessions: bool,
    /// Wall clock at the load's start, nanoseconds since 1970.
    pub unix_ns: u64,
}

/// How the rows of a feed are dealt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deal {
    /// In which order.
    pub dealing: Dealing,
    /// A user keeps its row (what it logs in with); else each round takes another one.
    pub per_user: bool,
}

/// How much of a body is kept until it is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    /// Its beginning, for examples: checks and captures ask for the head at most.
    #[default]
    Beginning,
    /// All of it if it is encoded: its size is checked, and that is the size of what it decodes to.
    IfEncoded,
    /// Up to [`MAX_BODY`]: a check or a capture looks at it.
    All,
}

/// A response of which the head and as much of the body as somebody looks at are kept until it is complete.
#[derive(Debug, Default)]
pub struct Kept {
    keeps: Keeps,
    head: Vec<u8>,
    body: Vec<u8>,
    size: u64,
    /// The body as it was meant, if it came encoded.
    decoded: Vec<u8>,
    is_decoded: bool,
    /// Beginning of the request, if it was written for this exchange.
    pub request: Vec<u8>,
    /// Its body, where a part of it has to wait until the server has room.
    pub unsent: Vec<u8>,
    /// Texts that the answer must contain, end to end, and where each of them ends.
    echoes: Vec<u8>,
    echo_ends: Vec<usize>,
}

impl Keep for Kept {
    fn head(&mut self, bytes: &[u8]) {
        self.head.clear();
        self.head.extend_from_slice(bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.keeps == Keeps::IfEncoded && self.size == 0 {
            self.keeps = if decode::is_encoded(&self.head) { Keeps::All } else { Keeps::Beginning };
        }
        self.size += bytes.len() as u64;
        let most = if self.keeps == Keeps::All { MAX_BODY } else { SHOWN };
        let room = most.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Kept {
    /// Ready for another response, of which so much is looked at.
    pub fn begin(&mut self, keeps: Keeps) {
        self.clear();
        self.keeps = keeps;
    }

    /// Forgets the response.
    pub fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.request.clear();
        self.unsent.clear();
        self.echoes.clear();
        self.echo_ends.clear();
        self.decoded.clear();
        (self.size, self.is_decoded) = (0, false);
        if self.decoded.capacity() > BODY_KEPT {
            self.decoded = Vec::new();
        }
        if self.body.capacity() > BODY_KEPT {
            self.body = Vec::new();
        }
        if self.unsent.capacity() > BODY_KEPT {
            self.unsent = Vec::new();
        }
    }

    /// What came of the body, as far as it is kept.
    pub fn received(&self) -> &[u8] {
        &self.body
    }

    /// The body as it was meant, also of an answer that nobody had to look into; as much of it as can be decoded, and whether
    /// that is all.
    #[cold]
    pub fn looked_into(&self) -> (Cow<'_, [u8]>, bool) {
        if self.is_decoded {
            return (Cow::Borrowed(&self.decoded), !self.is_cut());
        }
        let mut decoded = Vec::new();
        match decode::decode(&self.head, &self.body, MAX_BODY, &mut decoded) {
            Ok(false) => (Cow::Borrowed(&self.body), !self.is_cut()),
            Ok(true) => (Cow::Owned(decoded), !self.is_cut()),
            Err(_) => (Cow::Owned(decoded), false),
        }
    }

    fn is_cut(&self) -> bool {
        self.size > self.body.len() as u64
    }

    /// Undoes the content's encoding, if it has one.
    fn decode(&mut self) -> Result<(), decode::Fault> {
        self.is_decoded = decode::decode(&self.head, &self.body, MAX_BODY, &mut self.decoded)?;
        Ok(())
    }

    /// Writes a text that the answer must contain.
    ///
    /// # Errors
    /// A value that is missing.
    pub fn expect(
        &mut self,
        text: &Template,
        values: &mut template::Values<'_>,
    ) -> Result<(), template::Fault> {
        text.write(values, &mut self.echoes)?;
        self.echo_ends.push(self.echoes.len());
        Ok(())
    }

    /// The answer contains what was expected of it.
    pub fn is_echo(&self, message: &[u8]) -> bool {
        let mut from = 0;
        self.echo_ends.iter().all(|to| {
            let text = &self.echoes[from..*to];
            from = *to;
            memchr::memmem::find(message, text).is_some()
        })
    }

    /// More of a head that comes in pieces.
    pub fn add_to_head(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
    }

    /// A whole message takes the place of what was kept before.
    pub fn hear(&mut self, message: &[u8]) {
        (self.size, self.is_decoded) = (0, false);
        self.body.clear();
        self.body(message);
    }

    /// Its final head.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// A field of an HTTP/2 head. The status comes first, and begins the head anew: interim ones do not count.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if name == b":status" {
            self.head.clear();
        }
        write_field(name, value, &mut self.head);
    }

    /// That was the head's last field.
    pub fn end_head(&mut self) {
        self.head.extend_from_slice(b"\r\n");
    }

    /// The body as it was meant, as far as it is known.
    pub fn body(&self) -> &[u8] {
        if self.is_decoded { &self.decoded } else { &self.body }
    }

    /// What was asked for: path and query.
    pub fn target(&self) -> &[u8] {
        if let Some(rest) =
            memchr::memmem::find(&self.request, b"\r\n:path ").map(|at| &self.request[at + 8..])
        {
            return rest.split(|b| *b == b'\r').next().unwrap_or_default();
        }
        let target = self.request.split(|b| *b == b' ').nth(1).unwrap_or_default();
        // A proxy is asked with the whole URL.
        match target.strip_prefix(b"http://") {
            None => target,
            Some(rest) => rest.iter().position(|b| *b == b'/').map_or(&[], |at| &rest[at..]),
        }
    }
}

/// A field of an HTTP/2 head in words: `:status 200`, `server: a`, with its line end.
pub fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(if name.starts_with(b":") { b" " } else { b": " });
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Why a step failed beyond its status; small, since it is carried for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The request could not be written.
    Unwritten(template::Fault),
    /// A check did not hold.
    Check(Failed),
    /// A value was not there; which of the step's captures.
    Capture(u16, capture::Fault),
    /// The body is longer than [`MAX_BODY`].
    TooLong,
    /// A redirect that is not followed.
    Redirect(redirect::Fault),
    /// The body does not decode.
    Encoded(decode::Fault),
    /// A text to be sent is not UTF-8.
    NotText,
    /// A text with variables is not in the answer.
    NoEcho,
}

impl Trouble {
    /// The answer was good but for a value that was not there.
    pub fn is_of_capture(self) -> bool {
        matches!(self, Trouble::Capture(..))
    }

    /// In words that hold for every answer.
    pub fn words(self) -> &'static str {
        match self {
            Trouble::Unwritten(fault) => fault.words(),
            Trouble::Check(Failed::Status) => "check failed: status",
            Trouble::Check(Failed::Header(_)) => "check failed: header",
            Trouble::Check(Failed::Contains(_)) => "check failed: the body does not contain it",
            Trouble::Check(Failed::Json(_)) => "check failed: JSON",
            Trouble::Check(Failed::Size(_)) => "check failed: size",
            Trouble::Check(Failed::Time(_)) => "check failed: time",
            Trouble::Capture(_, fault) => fault.words(),
            Trouble::Redirect(fault) => fault.words(),
            Trouble::Encoded(fault) => fault.words(),
            Trouble::NoEcho => "check failed: the message does not contain it",
            Trouble::NotText => "what was to be sent as a text is not UTF-8",
            Trouble::TooLong => "the body is longer than what is kept for checks and captures",
        }
    }
}

impl Script {
    /// A request that is always the same, good below 400.
    pub fn plain() -> Script {
        Script {
            message: None,
            has_id: false,
            checks: Checks::default(),
            expected: Vec::new(),
            captures: Vec::new(),
            on_failure: Step::On,
            host: 0,
            redirects: 0,
            think: None,
            talk: None,
        }
    }

    /// Whether the exchange has to be kept until it is judged: its answer, or a request that nobody could write again.
    pub fn wants_room(&self) -> bool {
        let checks = &self.checks;
        self.message.is_some()
            || !self.captures.is_empty()
            || checks.needs_body()
            || checks.needs_head()
            || !checks.size.is_empty()
    }

    /// How much of the answer's body its checks and captures look at.
    pub fn keeps(&self) -> Keeps {
        match (self.needs_body(), self.checks.size.is_empty()) {
            (true, _) => Keeps::All,
            (false, false) => Keeps::IfEncoded,
            (false, true) => Keeps::Beginning,
        }
    }

    fn needs_body(&self) -> bool {
        self.checks.needs_body() || self.captures.iter().any(|(_, c)| c.needs_body())
    }

    /// Writes what the checks compare with.
    ///
    /// # Errors
    /// A value that is missing.
    pub fn expect(&mut self, values: &mut Values<'_>) -> Result<(), template::Fault> {
        let Script { checks, expected, .. } = self;
        for (place, text) in expected {
            let room = match *place {
                Expected::Header(at) => checks.headers.get_mut(at).map(|(_, expect)| expect),
                Expected::Json(at) => checks.json.get_mut(at).map(|check| &mut check.expect),
                Expected::Holds(at) => {
                    if let Some(room) = checks.holds.get_mut(at) {
                        room.clear();
                        text.write(values, room)?;
                    }
                    continue;
                }
            };
            if let Some(Expect::Same(room)) = room {
                room.clear();
                text.write(values, room)?;
            }
        }
        Ok(())
    }

    /// Judges an answer, and takes values out of a good one.
    pub fn judge(&mut self, kept: &mut Kept, ended: Ended, slots: &mut Slots) -> (Outcome, Option<Trouble>) {
        if !self.checks.status_is_good(ended.status) {
            return (by_status(ended.status), Some(Trouble::Check(Failed::Status)));
        }
        let failed = |trouble| (Outcome::Failed(Failure::Check), Some(trouble));
        if kept.is_cut() && self.needs_body() {
            return failed(Trouble::TooLong);
        }
        if !kept.is_cut()
            && (self.needs_body() || !self.checks.size.is_empty())
            && let Err(fault) = kept.decode()
        {
            return failed(Trouble::Encoded(fault));
        }
        let answer = &answer(kept, ended);
        if let Err(failed) = self.checks.judge(answer) {
            return (Outcome::Failed(Failure::Check), Some(Trouble::Check(failed)));
        }
        let mut trouble = None;
        for (i, (slot, capture)) in self.captures.iter_mut().enumerate() {
            if let Err(fault) = slots.take(*slot, capture, answer.head, answer.body) {
                trouble = trouble.or(Some(Trouble::Capture(i as u16, fault)));
            }
        }
        (if trouble.is_some() { Outcome::Failed(Failure::Check) } else { Outcome::Ok }, trouble)
    }

    /// A trouble with this answer in words, and none of the secrets.
    #[cold]
    pub fn told(&self, trouble: Trouble, kept: Option<&Kept>, ended: Ended, secrets: &Secrets) -> String {
        match (trouble, kept) {
            (Trouble::Check(failed), _) => {
                let empty = Kept::default();
                let kept = kept.unwrap_or(&empty);
                self.checks.words(failed, &answer(kept, ended), secrets)
            }
            (other, _) => other.words().to_owned(),
        }
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The answer's status.
    pub status: u16,
    /// From the request's start to its end.
    pub time_ns: u64,
    /// When, on the load's clock.
    pub now_ns: u64,
}

fn answer(kept: &Kept, ended: Ended) -> Answer<'_> {
    let (body, size) = match kept.is_decoded {
        true => (kept.decoded.as_slice(), kept.decoded.len() as u64),
        false => (kept.body.as_slice(), kept.size),
    };
    Answer { status: ended.status, head: &kept.head, body, size, time_ns: ended.time_ns }
}

/// The outcome of a status that is not good.
pub fn by_status(status: u16) -> Outcome {
    Outcome::Failed(match status {
        500.. => Failure::Http5xx,
        400.. => Failure::Http4xx,
        _ => Failure::Check,
    })
}
