//! What a step of a journey adds to a request: a text that is written anew each time, checks of the answer, values
//! taken out of it. And the users who walk through such steps, with what each of them remembers.
//!
//! Nothing here sends or counts; the worker asks for bytes and for a verdict.

use loadlab_record::outcome::{Failure, Outcome};

use crate::course::{Course, Progress, Step};
use crate::http1::Keep;
use crate::journey::capture::{self, Capture, Captured, Slots};
use crate::journey::check::{Answer, Checks, Failed};
use crate::journey::cookies::{Jar, Site};
use crate::journey::decode;
use crate::journey::rows::{Cursor, Dealing, Rows};
use crate::journey::template::{self, Template, Values};
use crate::schedule::Random;
use crate::spec::Think;

/// Most bytes of a body that are kept for checks and captures. What is beyond is counted, not looked at, and a
/// check or capture that needs the body fails, saying so.
pub const MAX_BODY: usize = 4 << 20;
const SECOND_NS: u64 = 1_000_000_000;
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
    /// The host, and whether it is reached in secret, where users keep cookies; the request has to be written then.
    pub cookies: Option<(Box<str>, bool)>,
    /// How long a user waits before the request that follows, if other than the load says.
    pub think: Option<Think>,
}

/// A request with variables in it.
#[derive(Clone, Debug)]
pub struct Message {
    /// Request line and header fields, each with its line end; without length and without the empty line.
    pub head: Template,
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

    /// The path that was asked for, without its query.
    fn path(&self) -> &[u8] {
        path_of(&self.request)
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
            cookies: None,
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
    fn judge(&mut self, kept: &mut Kept, ended: Ended, slots: &mut Slots) -> (Outcome, Option<Trouble>) {
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

/// The path of a request's first line, without its query.
fn path_of(request: &[u8]) -> &[u8] {
    let target = request.split(|b| *b == b' ').nth(1).unwrap_or_default();
    target.split(|b| *b == b'?').next().unwrap_or_default()
}

/// The outcome of a status that is not good.
pub fn by_status(status: u16) -> Outcome {
    Outcome::Failed(match status {
        500.. => Failure::Http5xx,
        400.. => Failure::Http4xx,
        _ => Failure::Check,
    })
}

/// What one user remembers.
#[derive(Debug)]
struct User {
    /// Over all workers, from 0.
    number: u64,
    progress: Progress,
    slots: Slots,
    rows: Box<[u32]>,
    jar: Jar,
}

/// One worker's users of a journey.
#[derive(Debug)]
pub struct Users<'r> {
    journey: &'r Journey,
    /// Its own, since looking for a value keeps where it was found.
    scripts: Vec<Script>,
    cursors: Vec<Cursor>,
    users: Vec<User>,
    random: Random,
    /// Number of the next request written here, and by how much it grows: no two workers share one.
    sequence: (u64, u64),
    head: Vec<u8>,
    body: Vec<u8>,
    // Boxes, since they wander into exchanges and back.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Kept>>,
    /// A user had to leave because a feed had no row left.
    pub ran_out: bool,
}

impl<'r> Users<'r> {
    /// The users of a slot among several.
    pub fn new(journey: &'r Journey, count: usize, seed: u64, (slot, slots): (u64, u64)) -> Self {
        let feeds = journey.feeds.iter().zip(&journey.dealings);
        let cursors = feeds.map(|(rows, deal)| Cursor::new(rows.count(), deal.dealing, slot, slots));
        let mut users = Users {
            journey,
            scripts: journey.scripts.clone(),
            cursors: cursors.collect(),
            users: Vec::new(),
            random: Random::new(seed ^ 0x5eed_0003 ^ slot.rotate_left(32)),
            sequence: (slot, slots),
            head: Vec::new(),
            body: Vec::new(),
            spare: Vec::new(),
            ran_out: false,
        };
        (0..count as u64).for_each(|id| users.add(slot + id * slots));
        users
    }

    /// One user more.
    pub fn add(&mut self, number: u64) {
        self.users.push(User {
            number,
            progress: Progress::default(),
            slots: Slots::new(self.journey.own),
            jar: Jar::default(),
            rows: vec![Rows::NONE; self.cursors.len()].into_boxed_slice(),
        });
    }

    /// The script of a request.
    #[inline]
    pub fn script(&self, request: u32) -> &Script {
        &self.scripts[request as usize]
    }

    /// The order of requests.
    pub fn course(&self) -> &'r Course {
        &self.journey.course
    }

    /// The request a user makes next.
    #[inline]
    pub fn request_of(&self, user: u32) -> u32 {
        self.users[user as usize].progress.request
    }

    /// It has not begun.
    pub fn is_outside(&self, user: u32) -> bool {
        self.users[user as usize].progress.is_outside()
    }

    /// It is at what it does last.
    pub fn is_leaving(&self, user: u32) -> bool {
        self.users[user as usize].progress.is_leaving()
    }

    /// It will make no further request.
    pub fn is_gone(&self, user: u32) -> bool {
        self.users[user as usize].progress.is_gone()
    }

    /// A user goes on to its next request; false if there is none. It begins with rows of its own, and each round
    /// takes new ones of the other feeds.
    #[inline]
    pub fn advance(&mut self, user: u32, step: Step) -> bool {
        let course = &self.journey.course;
        let state = &mut self.users[user as usize];
        let begins = state.progress.is_outside();
        let more = state.progress.step(course, &mut self.random, step);
        let begins_round = more && state.progress.begins_round(course);
        let dealt = (!begins || self.deal(user, true)) && (!begins_round || self.deal(user, false));
        if more && !dealt {
            self.ran_out = true;
            return self.users[user as usize].progress.step(course, &mut self.random, Step::Leave);
        }
        more
    }

    /// A place takes a request that is nobody's journey: new rows for each.
    pub fn take_rows(&mut self, place: u32) -> bool {
        let dealt = self.deal(place, true) && self.deal(place, false);
        self.ran_out |= !dealt;
        dealt
    }

    /// The next row of each feed of the kind; false if one has none left.
    fn deal(&mut self, user: u32, per_user: bool) -> bool {
        let rows = &mut self.users[user as usize].rows;
        let deals = self.cursors.iter_mut().zip(&self.journey.dealings).zip(rows);
        deals.filter(|((_, deal), _)| deal.per_user == per_user).fold(true, |all, ((cursor, _), row)| {
            *row = cursor.next().unwrap_or(Rows::NONE);
            all && *row != Rows::NONE
        })
    }

    /// Another user arrives in a place, and begins with this request; what was remembered there is forgotten.
    pub fn arrive(&mut self, place: u32, number: u64, request: u32) {
        let state = &mut self.users[place as usize];
        state.number = number;
        state.progress.begin_with(&self.journey.course, request);
        (0..self.journey.own).for_each(|slot| state.slots.unset(slot));
        state.jar.clear();
        self.take_rows(place);
    }

    /// Arrivals are users, not requests.
    pub fn has_sessions(&self) -> bool {
        self.journey.sessions
    }

    /// Writes a request that has variables.
    ///
    /// # Errors
    /// A value that is missing or cannot stand where it is wanted.
    pub fn write(&mut self, user: u32, request: u32, now_ns: u64) -> Result<&[u8], template::Fault> {
        let script = &self.scripts[request as usize];
        let Some(message) = &script.message else { return Ok(&[]) };
        let state = &self.users[user as usize];
        let sequence = self.sequence.0;
        self.sequence.0 += self.sequence.1;
        let mut values = Values {
            user: state.number,
            iteration: state.progress.rounds,
            sequence,
            now_ns: self.journey.unix_ns + now_ns,
            feeds: &self.journey.feeds,
            rows: &state.rows,
            captured: Captured { shared: &self.journey.shared, own: &state.slots },
            random: &mut self.random,
        };
        self.head.clear();
        message.head.write(&mut values, &mut self.head)?;
        if let Some((host, is_secure)) = &script.cookies {
            self.body.clear();
            let site = Site { host: host.as_bytes(), path: path_of(&self.head), is_secure: *is_secure };
            if state.jar.write(&site, values.now_ns / SECOND_NS, &mut self.body) {
                self.head.extend_from_slice(b"Cookie: ");
                self.head.extend_from_slice(&self.body);
                self.head.extend_from_slice(b"\r\n");
            }
        }
        if let Some(body) = &message.body {
            self.body.clear();
            body.write(&mut values, &mut self.body)?;
            self.head.extend_from_slice(b"Content-Length: ");
            template::number(self.body.len() as u64, &mut self.head);
            self.head.extend_from_slice(b"\r\n\r\n");
            self.head.extend_from_slice(&self.body);
        } else {
            self.head.extend_from_slice(b"\r\n");
        }
        Ok(&self.head)
    }

    /// Room for an answer.
    pub fn room(&mut self) -> Box<Kept> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes the room back.
    pub fn give_back(&mut self, mut kept: Box<Kept>) {
        kept.clear();
        self.spare.push(kept);
    }

    /// Judges a complete answer to a user's request, of which head and body were kept if they were wanted.
    pub fn judge(
        &mut self,
        user: u32,
        request: u32,
        kept: Option<&mut Kept>,
        ended: Ended,
    ) -> (Outcome, Option<Trouble>) {
        let (script, state) = (&mut self.scripts[request as usize], &mut self.users[user as usize]);
        let mut empty = Kept::default();
        let kept = kept.unwrap_or(&mut empty);
        if let Some((host, is_secure)) = &script.cookies {
            let site = Site { host: host.as_bytes(), path: kept.path(), is_secure: *is_secure };
            let now_s = (self.journey.unix_ns + ended.now_ns) / SECOND_NS;
            let set = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"set-cookie");
            capture::headers(&kept.head).filter(set).for_each(|(_, v)| state.jar.set(v, &site, now_s));
        }
        script.judge(kept, ended, &mut state.slots)
    }

    /// What a user captured, slot by slot.
    pub fn captured(&self, user: u32) -> Vec<Option<Vec<u8>>> {
        let slots = self.users.get(user as usize).map(|u| &u.slots);
        (0..self.journey.own).map(|slot| slots.and_then(|s| s.get(slot)).map(<[u8]>::to_vec)).collect()
    }
}
