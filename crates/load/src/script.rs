//! What a step of a journey adds to a request: a text that is written anew each time, checks of the answer, values
//! taken out of it. Nothing here sends or counts.

use loadlab_record::outcome::{Failure, Outcome};

use crate::course::{Course, Step};
use crate::http1::Keep;
use crate::journey::capture::{self, Capture, Slots};
use crate::journey::check::{Answer, Checks, Failed};
use crate::journey::decode;
use crate::journey::redirect::{self, Site};
use crate::journey::rows::{Dealing, Rows};
use crate::journey::template::{self, Template};
use crate::spec::Think;

/// Most bytes of a body that are kept for checks and captures. What is beyond is counted, not looked at, and a
/// check or capture that needs the body fails, saying so.
pub const MAX_BODY: usize = 4 << 20;
/// Kept bodies larger than this give their memory back.
const BODY_KEPT: usize = 64 * 1024;

/// What a step adds to its request.
#[derive(Clone, Debug)]
pub struct Script {
    /// Written anew each time; `None` where the request's bytes are always the same.
    pub message: Option<Message>,
    /// When the answer is good.
    pub checks: Checks,
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

/// A response of which head and body are kept until it is complete.
#[derive(Debug, Default)]
pub struct Kept {
    head: Vec<u8>,
    body: Vec<u8>,
    size: u64,
    /// The body as it was meant, if it came encoded.
    decoded: Vec<u8>,
    is_decoded: bool,
    /// Beginning of the request, if it was written for this exchange.
    pub request: Vec<u8>,
}

impl Keep for Kept {
    fn head(&mut self, bytes: &[u8]) {
        self.head.clear();
        self.head.extend_from_slice(bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        let room = MAX_BODY.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Kept {
    /// Ready for another response.
    pub fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.request.clear();
        self.decoded.clear();
        (self.size, self.is_decoded) = (0, false);
        if self.decoded.capacity() > BODY_KEPT {
            self.decoded = Vec::new();
        }
        if self.body.capacity() > BODY_KEPT {
            self.body = Vec::new();
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

    /// Its final head.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// What was asked for: path and query.
    pub fn target(&self) -> &[u8] {
        self.request.split(|b| *b == b' ').nth(1).unwrap_or_default()
    }
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
}

impl Trouble {
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
            Trouble::TooLong => "the body is longer than what is kept for checks and captures",
        }
    }
}

impl Script {
    /// A request that is always the same, good below 400.
    pub fn plain() -> Script {
        Script {
            message: None,
            checks: Checks::default(),
            captures: Vec::new(),
            on_failure: Step::On,
            host: 0,
            redirects: 0,
            think: None,
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

    fn needs_body(&self) -> bool {
        self.checks.needs_body() || self.captures.iter().any(|(_, c)| c.needs_body())
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

    /// A trouble with this answer in words.
    #[cold]
    pub fn told(&self, trouble: Trouble, kept: Option<&Kept>, ended: Ended) -> String {
        match (trouble, kept) {
            (Trouble::Check(failed), _) => {
                let empty = Kept::default();
                let kept = kept.unwrap_or(&empty);
                self.checks.words(failed, &answer(kept, ended))
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
