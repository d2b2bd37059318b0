//! A checked journey: its steps with their bodies, feeds, captures and checks, and its protocol settings.
//!
//! Names are already resolved to numbers: a capture is a slot, a feed its index in the load's list, a column its index
//! among those used.

use loadlab_record::spec::bound::Bound;

use crate::model::template::Template;
use crate::text::error::PlanError;

/// A place in the plan, for problems found later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The plan's path as given, or an option.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The line, with a caret under the place.
    pub snippet: String,
}

impl Place {
    /// A mistake here, found after the plan was read.
    pub fn mistake(&self, message: String, hint: Option<String>) -> PlanError {
        PlanError {
            file: self.file.clone(),
            line: self.line,
            column: self.column,
            message,
            snippet: self.snippet.clone(),
            related: None,
            hint,
        }
    }
}

/// One request of a journey.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// HTTP method in upper case.
    pub method: &'static str,
    /// A URL; variables only after the host.
    pub url: Template,
    /// Header fields in order, names as written.
    pub headers: Vec<(String, Template)>,
    /// The request's body.
    pub body: Body,
    /// Series it counts towards.
    pub tags: Vec<String>,
    /// Its own series, if none of its tags is unique to it: `GET /items`. For a conversation, that of the opening.
    pub series: Option<String>,
    /// Statuses that are good; `None`: below 400.
    pub statuses: Option<Vec<u16>>,
    /// Additional requirements.
    pub checks: Checks,
    /// Values captured from the answer.
    pub captures: Vec<Capture>,
    /// How often it is chosen relative to the others, if the journey is a mix.
    pub weight: Option<u32>,
    /// Its credentials.
    pub auth: Option<Auth>,
    /// What happens if it fails.
    pub on_failure: OnFailure,
    /// A file with URLs, one per line, taken in turn; `url` is then empty.
    pub urls: Option<String>,
    /// The step opens a WebSocket at `url` and has this conversation on it.
    pub websocket: Option<Conversation>,
    /// Its place in the plan.
    pub at: Place,
}

impl Step {
    /// Number of requests it makes if none of them fails: a conversation has an opening, messages and a close.
    pub fn requests(&self) -> u64 {
        self.websocket.as_ref().map_or(1, |conversation| {
            let messages = conversation.messages.iter().filter(|m| !m.is_pause());
            2 + u64::from(conversation.repeat) * messages.count() as u64
        })
    }

    /// How many of its requests count towards a series, by the series' name.
    pub fn requests_in(&self, series: &str) -> u64 {
        let is_it = |name: &Option<String>| name.as_deref() == Some(series);
        if self.tags.iter().any(|tag| tag == series) {
            return self.requests();
        }
        let conversation = self.websocket.as_ref().map_or(0, |conversation| {
            let counts = |m: &&Message| m.tags.iter().any(|tag| tag == series) || is_it(&m.series);
            let messages = conversation.messages.iter().filter(|m| !m.is_pause()).filter(counts).count();
            u64::from(conversation.repeat) * messages as u64 + u64::from(is_it(&conversation.closing_series))
        });
        u64::from(is_it(&self.series)) + conversation
    }

    /// The names of all series that it, or a part of it, counts towards.
    pub fn all_series(&self) -> impl Iterator<Item = &String> {
        let conversation = self.websocket.iter();
        let own = conversation
            .flat_map(|t| t.messages.iter().filter_map(|m| m.series.as_ref()).chain(&t.closing_series));
        self.all_tags().chain(&self.series).chain(own)
    }

    /// Its tags, and those of its messages.
    pub fn all_tags(&self) -> impl Iterator<Item = &String> {
        let messages = self.websocket.iter().flat_map(|conversation| &conversation.messages);
        self.tags.iter().chain(messages.flat_map(|message| &message.tags))
    }
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// No body.
    Empty,
    /// A text.
    Text(Template),
    /// A file, relative to the plan's folder unless the plan gives an absolute path; sent unchanged.
    File(String),
    /// JSON text; adds `content-type: application/json` unless a header sets another.
    Json(Template),
    /// A form, encoded; adds `content-type: application/x-www-form-urlencoded` unless a header sets another.
    Form(Template),
    /// Parts; at least one. Sets the content type with its boundary.
    Multipart(Vec<FormPart>),
}

/// What surrounds a load's journey.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// Once per user, before its first journey.
    pub user_setup: Vec<Step>,
    /// Once per user, after its last journey.
    pub user_teardown: Vec<Step>,
    /// Each round takes one step by weight instead of all in order; every step then has a weight.
    pub is_mix: bool,
    /// Rows of data.
    pub feeds: Vec<FeedSpec>,
    /// Slots of the user's captures, after those of [`Setup::captures`].
    pub captures: Vec<CapturedName>,
    /// A step uses what another one of the same user captured.
    pub uses_captures: bool,
    /// Users keep cookies.
    pub cookies: bool,
    /// Maximum number of redirects to follow; 0 follows none.
    pub redirects: u32,
}

/// Steps taken once, before the loads of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setup {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Slots of its captures, visible to all users.
    pub captures: Vec<CapturedName>,
}

/// A slot for a captured value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedName {
    /// Its name.
    pub name: String,
    /// Whether it is a custom number of the load.
    pub is_number: bool,
}

/// Rows of data for users.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedSpec {
    /// Its name.
    pub name: String,
    /// Path of its file, relative to the plan's folder unless the plan gives an absolute path.
    pub file: String,
    /// Where the file is named.
    pub at: Place,
    /// The file's format.
    pub format: FeedFormat,
    /// Whether rows are taken in an order derived from the load's seed.
    pub is_shuffled: bool,
    /// Whether each row is used only once; a user that finds none left ends.
    pub is_once: bool,
    /// Whether each user gets one row and keeps it; otherwise each journey gets one.
    pub is_per_user: bool,
    /// The columns that steps use, in the order of variables' column indices.
    pub columns: Vec<ColumnUse>,
}

/// The format of a feed's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedFormat {
    /// The first line names the columns.
    Csv,
    /// A JSON map per line.
    JsonLines,
    /// A URL per line; its path and query form the single column `url`: a step's `urls` become this.
    UrlList,
}

/// A column that steps use.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnUse {
    /// Its name.
    pub name: String,
    /// Where it is first used.
    pub at: Place,
}

/// A request's credentials.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// `Authorization: Basic`, with the base64 of `user:password`.
    Basic {
        /// The user name, without a colon.
        user: Template,
        /// The password, with any characters.
        password: Template,
    },
    /// `Authorization: Bearer`.
    Bearer(Template),
}

/// A part of a multipart body.
#[derive(Clone, Debug, PartialEq)]
pub struct FormPart {
    /// The field's name.
    pub name: String,
    /// Its content.
    pub content: PartContent,
    /// The file name sent to the server.
    pub filename: Option<String>,
    /// Its media type.
    pub content_type: Option<String>,
}

/// The content of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum PartContent {
    /// A text.
    Text(Template),
    /// A file, and where it is named.
    File(String, Place),
}

/// A value captured from an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Capture {
    /// Its slot, numbered as in [`Variable::Capture`](crate::Variable::Capture).
    pub slot: u16,
    /// Where in the answer the value is found.
    pub from: CaptureFrom,
    /// Whether it must be a number, and is shown as one.
    pub is_number: bool,
}

/// Where in an answer a value is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureFrom {
    /// JSON pointer.
    Json(String),
    /// A header field's name.
    Header(String),
    /// A regular expression with a group; it compiles.
    Regex(String),
    /// The whole body.
    Body,
}

/// Checks beyond the status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// Checks of header fields, by name.
    pub headers: Vec<(String, Expect)>,
    /// Texts that the body must contain.
    pub contains: Vec<String>,
    /// Texts with variables that the body must contain.
    pub contains_written: Vec<Template>,
    /// Checks of JSON values, by pointer.
    pub json: Vec<(String, Expect)>,
    /// Bounds of the body's length in bytes.
    pub size: Vec<Bound>,
    /// Bounds of the response time in nanoseconds.
    pub time: Vec<Bound>,
}

impl Checks {
    /// Whether nothing is checked.
    pub fn is_empty(&self) -> bool {
        *self == Checks::default()
    }
}

/// What a value must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// Whether it must exist.
    Exists(bool),
    /// This text.
    Text(String),
    /// A text with variables: the value, as a text, must equal it.
    Written(Template),
    /// A text that contains this one.
    Contains(String),
    /// This number, as written.
    Number(String),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// A number that satisfies all of these.
    Within(Vec<Bound>),
}

/// What follows a failed step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The next step.
    #[default]
    Continue,
    /// The end of this journey; the user starts its next one.
    End,
    /// The end of the user.
    Leave,
}

/// What a user does with an open WebSocket before closing it.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversation {
    /// Messages sent and received, in order.
    pub messages: Vec<Message>,
    /// Number of times all messages are repeated.
    pub repeat: u32,
    /// How long the connection is held open after the last message.
    pub hold_ns: u64,
    /// Subprotocols to offer, in order of preference.
    pub subprotocols: Vec<String>,
    /// The series that only its close counts towards.
    pub closing_series: Option<String>,
}

/// A message of a WebSocket step. One that neither sends nor waits is a pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// How long the user waits before the message.
    pub pause_ns: u64,
    /// What is sent, if anything.
    pub send: Option<MessageContent>,
    /// What an answer must be. `None` waits for nothing.
    pub expect: Option<Checks>,
    /// Texts with variables that it must contain.
    pub echoes: Vec<Template>,
    /// Values captured from the answer.
    pub captures: Vec<Capture>,
    /// Whether messages that do not match are meant for others and skipped; otherwise the first message decides.
    pub skips_unexpected: bool,
    /// Maximum wait for an answer; `None`: the load's timeout.
    pub timeout_ns: Option<u64>,
    /// Series it counts towards, besides those of its step.
    pub tags: Vec<String>,
    /// Its own series, if none of its tags is unique to it.
    pub series: Option<String>,
}

impl Message {
    /// Whether it neither sends nor waits for anything.
    pub fn is_pause(&self) -> bool {
        self.send.is_none() && self.expect.is_none()
    }
}

/// What is sent on a WebSocket.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    /// A text.
    Text(Template),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The bytes of a file, relative to the plan's folder unless the plan gives an absolute path.
    File(String),
}

/// A load's protocol settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Http {
    /// Protocol to use.
    pub protocol: Protocol,
    /// Maximum concurrent requests on one HTTP/2 connection.
    pub streams_per_connection: u32,
    /// Whether answers may be compressed.
    pub compression: bool,
    /// Proxy `http://HOST:PORT` that all requests go through.
    pub proxy: Option<Template>,
    /// How `https` targets are trusted.
    pub tls: Tls,
}

/// The protocol of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without an upgrade.
    Http2,
    /// Whatever the server offers with TLS (ALPN); otherwise HTTP/1.1.
    Auto,
}

/// How `https` targets are trusted.
#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    /// Certificates to trust besides the machine's: a PEM file.
    pub ca: Option<String>,
    /// The client certificate and its key: PEM files.
    pub identity: Option<(String, String)>,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// Whether sessions are resumed where the server allows it.
    pub is_resumed: bool,
    /// TLS versions that may be used: `12` and `13`.
    pub versions: Vec<u8>,
}

impl Default for Tls {
    fn default() -> Self {
        Tls { ca: None, identity: None, is_insecure: false, is_resumed: true, versions: vec![12, 13] }
    }
}
