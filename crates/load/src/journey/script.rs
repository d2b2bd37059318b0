//! What a step of a journey adds to a request: a text written anew each time, checks of the response, values captured
//! from it. Nothing here sends or counts.

use loadlab_record::Secrets;
use loadlab_record::counts::outcome::{Failure, Outcome};
use loadlab_record::spec::schedule::Think;
use loadlab_record::spec::variable::Variable;

use crate::journey::capture::{Capture, CaptureSlots};
use crate::journey::check::{Checks, Expect, Failed};
use crate::journey::example::CapturedName;
use crate::journey::failure::StepFailure;
use crate::journey::order::{Advance, StepOrder};
use crate::journey::redirect::Site;
use crate::journey::response::{BufferedResponse, Buffering, Ended};
use crate::journey::rows::{Dealing, Rows};
use crate::journey::template::{Template, TemplateError, Values};
use crate::protocol::http2::Outline;
use crate::protocol::websocket::MessageType;
use crate::protocol::websocket::opening::Opening;

/// What a step adds to its request.
#[derive(Clone, Debug)]
pub struct Script {
    /// The request, written anew each time; `None` if its bytes are always the same.
    pub message: Option<Message>,
    /// Whether the message has an id: its outcome is then reported ([`Message::has_id`]).
    pub has_id: bool,
    /// Checks that a good response passes.
    pub checks: Checks,
    /// Values in the checks that are written anew for each response.
    pub expected: Vec<(Expected, Template)>,
    /// Captures from a good response, each with the user's own slot that it goes into.
    pub captures: Vec<(u16, Capture)>,
    /// How a failure moves the user.
    pub on_failure: Advance,
    /// Index of the target host in the load's hosts.
    pub host: u16,
    /// Most redirects in a row that are followed; if any, the request has to be written each time.
    pub redirects: u8,
    /// How long a user waits before the next request, if it differs from the load's setting.
    pub think: Option<Think>,
    /// The part of a WebSocket conversation that it is, if it is one.
    pub conversation: Option<Box<ConversationStep>>,
}

/// A part of a conversation. All parts of a conversation are consecutive requests: the opening, messages, the close.
#[derive(Clone, Debug)]
pub struct ConversationStep {
    /// What the part does.
    pub part: ConversationAction,
    /// Number of parts that follow it.
    pub left: u32,
}

/// What a user does in a conversation.
#[derive(Clone, Debug)]
pub enum ConversationAction {
    /// Opens the WebSocket; the script's message is the request, with the headers of the opening.
    Open {
        /// The response required.
        opening: Opening,
        /// Whether messages that arrive while no part waits are kept for a later part.
        keeps: bool,
    },
    /// Sends a message, waits for one, or both.
    Message {
        /// The message to send.
        send: Option<(MessageType, Template)>,
        /// The wait for a message, besides the script's checks.
        wait: Option<Wait>,
        /// Texts that the answer must contain, written anew each time with the same values as the message sent.
        echoes: Vec<Template>,
    },
    /// Closes the WebSocket, and waits for the server's close.
    Close,
}

/// How a user waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Most time to wait, nanoseconds; `None`: the load's timeout.
    pub timeout_ns: Option<u64>,
    /// Whether messages that fail the checks are meant for others, and skipped; otherwise the first one decides.
    pub skips_unexpected: bool,
}

impl ConversationStep {
    /// Time limit of this part, if it sets one.
    #[inline]
    pub fn timeout_ns(&self) -> Option<u64> {
        match &self.part {
            ConversationAction::Message { wait, .. } => wait.and_then(|w| w.timeout_ns),
            ConversationAction::Open { .. } | ConversationAction::Close => None,
        }
    }
}

/// A value in the checks that is written anew, by its index among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Value of a header field.
    Header(usize),
    /// A JSON value.
    Json(usize),
    /// A text in the body.
    Holds(usize),
}

/// A request with variables in it.
#[derive(Clone, Debug)]
pub struct Message {
    /// HTTP method.
    pub method: Box<str>,
    /// Path and query.
    pub target: Template,
    /// Header fields, each with its line end; without `Host`, length and cookies.
    pub fields: Template,
    /// The body, if it has one.
    pub body: Option<Template>,
}

impl Message {
    /// Whether it carries a number that no other request of the trial has.
    pub fn has_id(&self) -> bool {
        let templates = [&self.target, &self.fields].into_iter().chain(&self.body);
        templates.flat_map(Template::variables).any(|variable| variable == Variable::Id)
    }
}

/// The head of a request that is written anew each time, in HTTP/2 form.
#[derive(Clone, Debug)]
pub struct Written {
    /// The fixed parts, and the names of the variable fields.
    pub outline: Outline,
    /// The values of the variable fields.
    pub values: Vec<Template>,
}

/// How users go through the requests of a load, and what the users share. Requests and scripts have the same indices.
#[derive(Clone, Debug)]
pub struct Journey {
    /// Order of the requests.
    pub step_order: StepOrder,
    /// One script for each request.
    pub scripts: Vec<Script>,
    /// The load's hosts, in the same order.
    pub sites: Vec<Site>,
    /// Whether users keep cookies; all requests then have to be written each time.
    pub cookies: bool,
    /// Data feeds.
    pub feeds: Vec<Rows>,
    /// How each feed is dealt.
    pub dealings: Vec<Deal>,
    /// Values that `setup` captured before the load, for all users.
    pub shared: CaptureSlots,
    /// Number of values that each user may capture.
    pub own: u16,
    /// Names of the slots, those of [`Journey::shared`] first; for examples.
    pub remembered: Vec<CapturedName>,
    /// Slots that are numbers of the load: slot among the user's own, and name.
    pub numbers: Vec<(u16, String)>,
    /// Whether a schedule's arrivals are users, who make their rounds and leave; otherwise they are single requests.
    pub sessions: bool,
    /// Wall clock at the load's start, nanoseconds since 1970; `None`: this machine's clock.
    pub unix_ns: Option<u64>,
}

/// How the rows of a feed are dealt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deal {
    /// In which order its rows are dealt.
    pub dealing: Dealing,
    /// Whether a user keeps its row (such as its login); otherwise each round takes another one.
    pub per_user: bool,
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
            on_failure: Advance::On,
            host: 0,
            redirects: 0,
            think: None,
            conversation: None,
        }
    }

    /// Whether the exchange has to be kept until it is judged: its response, or a request that could not be written
    /// again.
    pub fn wants_buffer(&self) -> bool {
        let checks = &self.checks;
        self.message.is_some()
            || !self.captures.is_empty()
            || checks.needs_body()
            || checks.needs_head()
            || !checks.size.is_empty()
    }

    /// How much of the response's body the checks and captures read.
    pub fn keeps(&self) -> Buffering {
        match (self.needs_body(), self.checks.size.is_empty()) {
            (true, _) => Buffering::All,
            (false, false) => Buffering::IfEncoded,
            (false, true) => Buffering::Beginning,
        }
    }

    fn needs_body(&self) -> bool {
        self.checks.needs_body() || self.captures.iter().any(|(_, c)| c.needs_body())
    }

    /// Writes the values that the checks compare with.
    ///
    /// # Errors
    /// A value is missing.
    pub fn expect(&mut self, values: &mut Values<'_>) -> Result<(), TemplateError> {
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

    /// Judges a response, and captures values from a good one.
    pub fn judge(
        &mut self,
        kept: &mut BufferedResponse,
        ended: Ended,
        slots: &mut CaptureSlots,
    ) -> (Outcome, Option<StepFailure>) {
        if !self.checks.status_is_good(ended.status) {
            return (by_status(ended.status), Some(StepFailure::Check(Failed::Status)));
        }
        let failed = |failure| (Outcome::Failed(Failure::Check), Some(failure));
        if kept.is_cut() && self.needs_body() {
            return failed(StepFailure::TooLong);
        }
        if !kept.is_cut()
            && (self.needs_body() || !self.checks.size.is_empty())
            && let Err(fault) = kept.decode()
        {
            return failed(StepFailure::Encoded(fault));
        }
        let response = &kept.checked(ended);
        if let Err(failed) = self.checks.judge(response) {
            return (Outcome::Failed(Failure::Check), Some(StepFailure::Check(failed)));
        }
        let mut failure = None;
        for (i, (slot, capture)) in self.captures.iter_mut().enumerate() {
            if let Err(fault) = slots.take(*slot, capture, response.head, response.body) {
                failure = failure.or(Some(StepFailure::Capture(i as u16, fault)));
            }
        }
        (if failure.is_some() { Outcome::Failed(Failure::Check) } else { Outcome::Ok }, failure)
    }

    /// Describes a failure with this response, without secrets.
    #[cold]
    pub fn describe(
        &self,
        failure: StepFailure,
        kept: Option<&BufferedResponse>,
        ended: Ended,
        secrets: &Secrets,
    ) -> String {
        match (failure, kept) {
            (StepFailure::Check(failed), _) => {
                let empty = BufferedResponse::default();
                let kept = kept.unwrap_or(&empty);
                self.checks.describe(failed, &kept.checked(ended), secrets)
            }
            (other, _) => other.describe().to_owned(),
        }
    }
}

/// The outcome for a status that is not good.
fn by_status(status: u16) -> Outcome {
    Outcome::Failed(match status {
        500.. => Failure::Http5xx,
        400.. => Failure::Http4xx,
        _ => Failure::Check,
    })
}
