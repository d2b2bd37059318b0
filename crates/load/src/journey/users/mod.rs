//! The users of a journey: where each of them is, and its state (rows, captures, cookies, a redirect).
//!
//! Nothing here sends or counts; the worker asks for bytes and for a verdict.

mod http2;

use std::ops::Range;

use loadlab_record::Secrets;
use loadlab_record::counts::outcome::{Failure, Outcome};
use loadlab_record::spec::schedule::Think;
use loadlab_record::text::time::SECOND_NS;

use crate::journey::capture::{self, CaptureSlots, Captured};
use crate::journey::cookies::{self, Jar};
use crate::journey::example::{CapturedName, ExampleContext, step_of, with_captured};
use crate::journey::failure::StepFailure;
use crate::journey::order::{Advance, Progress, StepOrder};
use crate::journey::redirect;
use crate::journey::response::{BufferedResponse, Ended};
use crate::journey::rows::{Cursor, Rows};
use crate::journey::script::{ConversationAction, ConversationStep, Journey, Script};
use crate::journey::template::{self, Values};
use crate::protocol::redirect_headers::OmittedHeaders;
use crate::random::Random;
use crate::schedule::share::Share;

/// Most buffers that one thread provides before responses have come, and most that it keeps unused.
const MAX_BUFFERS: usize = 4096;

/// One user's state. A load may have a million users, so what most journeys do not need is in [`Memory`].
#[derive(Debug)]
struct User {
    /// Source of random values, weighted steps and pauses.
    random: Random,
    progress: Progress,
    /// Source of the values of its request, or of its last one until its next one is written.
    draw: Draw,
    /// What it remembers of responses. If the journey captures values, it is there from the start.
    memory: Option<Box<Memory>>,
}

/// What a user remembers of responses.
#[derive(Debug, Default)]
struct Memory {
    slots: CaptureSlots,
    /// Its cookies, once it has been given some.
    jar: Jar,
    /// After a redirect: what the user requests next instead.
    redirect: Option<Box<Redirect>>,
    /// Number of redirects in a row.
    redirected: u8,
}

/// The source of a request's values. Whatever is sent again (over another connection, or to the target of a redirect)
/// uses the same values, so it is the same request.
#[derive(Clone, Copy, Debug)]
struct Draw {
    /// The request's number; [`UNWRITTEN`] if it has not been written.
    sequence: u64,
    id: u64,
    now_ns: u64,
    random: Random,
}

/// Number of a request that has not been written.
const UNWRITTEN: u64 = u64::MAX;

/// The values of a user who remembers none.
static NOTHING_CAPTURED: CaptureSlots = CaptureSlots::EMPTY;

/// What a redirected user requests.
#[derive(Debug)]
struct Redirect {
    host: u16,
    target: Vec<u8>,
    /// Whether the request keeps the step's method and body.
    keeps_request: bool,
    /// Whether it was redirected to another origin on the way: credentials are no longer sent.
    is_cross_origin: bool,
    /// The id of the redirected request until it is sent to the new target: its outcome is not known yet.
    pending: Option<u64>,
}

/// Numbers that one worker hands out: no two workers share a number.
#[derive(Clone, Copy, Debug)]
struct Counter {
    /// The number that is handed out next.
    next: u64,
    /// The number of workers: the distance between two numbers of one worker.
    step: u64,
}

/// One worker's users of a journey.
#[derive(Debug)]
pub struct Users<'r> {
    journey: &'r Journey,
    /// This worker's own copy, since searching for a value stores the match.
    scripts: Vec<Script>,
    cursors: Vec<Cursor>,
    users: Vec<User>,
    share: Share,
    /// Where arrivals are users: the number of each slot's user over all workers.
    arrived: Vec<u64>,
    /// The users' rows, one of each feed: user after user.
    rows: Vec<u32>,
    /// Seed of random values.
    seed: u64,
    /// Numbers of the requests written here.
    sequence: Counter,
    /// Ids; used up only by requests that carry an id.
    ids: Counter,
    /// The id of the last request written, if it has one.
    last_id: Option<u64>,
    head: Vec<u8>,
    body: Vec<u8>,
    /// The head of an HTTP/2 request, in pieces.
    pieces: Vec<http2::HeadPiece<'r>>,
    #[expect(clippy::vec_box, reason = "they move into exchanges and back")]
    spare: Vec<Box<BufferedResponse>>,
    /// Number of buffers that exchanges have.
    lent: usize,
    /// Users that left because a feed had no row for them.
    pub without_row: u64,
    /// Wall clock at the load's start, nanoseconds since 1970.
    unix_ns: u64,
    /// Numbers from the response judged last: index in the journey's list, and value.
    pub numbers: Vec<(usize, f64)>,
}

impl Redirect {
    /// Which of the step's header fields are not sent to the new target.
    fn omitted_headers(&self) -> OmittedHeaders {
        OmittedHeaders { credentials: self.is_cross_origin, body: !self.keeps_request }
    }
}

impl User {
    /// Whether its request has been written.
    #[inline]
    fn is_written(&self) -> bool {
        self.draw.sequence != UNWRITTEN
    }

    #[inline]
    fn redirect(&self) -> Option<&Redirect> {
        self.memory.as_ref()?.redirect.as_deref()
    }

    #[inline]
    fn slots(&self) -> &CaptureSlots {
        self.memory.as_ref().map_or(&NOTHING_CAPTURED, |memory| &memory.slots)
    }

    /// Ends a series of redirects.
    #[inline]
    fn forget_redirects(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.redirected = 0;
        }
    }

    /// The values of the request of this user, who has this number.
    #[inline]
    fn values<'a>(
        &'a self,
        number: u64,
        journey: &'a Journey,
        unix_ns: u64,
        rows: &'a [u32],
        draw: &Draw,
        random: &'a mut Random,
    ) -> Values<'a> {
        Values {
            user: number,
            iteration: self.progress.rounds,
            sequence: draw.sequence,
            id: draw.id,
            now_ns: unix_ns + draw.now_ns,
            feeds: &journey.feeds,
            rows,
            captured: Captured { shared: &journey.shared, own: self.slots() },
            random,
        }
    }
}

impl<'r> Users<'r> {
    /// The users of one load thread.
    pub fn new(journey: &'r Journey, count: usize, seed: u64, share: Share) -> Self {
        let Share { thread, threads } = share;
        let feeds = journey.feeds.iter().zip(&journey.dealings);
        let cursors = feeds.map(|(rows, deal)| Cursor::new(rows.count(), deal.dealing, thread, threads));
        let mut users = Users {
            journey,
            scripts: journey.scripts.clone(),
            cursors: cursors.collect(),
            users: Vec::with_capacity(count),
            share,
            arrived: Vec::new(),
            rows: Vec::with_capacity(count * journey.feeds.len()),
            seed: seed ^ 0x5eed_0003,
            sequence: Counter { next: thread, step: threads },
            ids: Counter { next: thread, step: threads },
            last_id: None,
            head: Vec::new(),
            body: Vec::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
            lent: 0,
            without_row: 0,
            numbers: Vec::new(),
            unix_ns: journey.unix_ns.unwrap_or(0),
        };
        (0..count).for_each(|_| users.add());
        users
    }

    /// Sets the wall clock at the load's start, unless the load specifies it.
    pub fn begins_at_unix(&mut self, unix_ns: u64) {
        self.unix_ns = self.journey.unix_ns.unwrap_or(unix_ns);
    }

    /// Sets the first id: other loads and batches of the trial use the ids before and after this load's.
    pub fn ids_from(&mut self, first: u64) {
        self.ids.next += first;
    }

    /// The id of the request that was written last, if it has one.
    #[inline]
    pub fn last_id(&self) -> Option<u64> {
        self.last_id
    }

    /// Adds a user.
    pub fn add(&mut self) {
        let number = self.share.number_of(self.users.len() as u32);
        if self.has_sessions() {
            self.arrived.push(number);
        }
        self.users.push(User {
            random: Random::of(self.seed, number),
            progress: Progress::default(),
            draw: Draw { sequence: UNWRITTEN, id: 0, now_ns: 0, random: Random::new(0) },
            memory: (self.journey.own > 0).then(|| {
                let slots = CaptureSlots::new(self.journey.own);
                Box::new(Memory { slots, ..Memory::default() })
            }),
        });
        self.rows.resize(self.users.len() * self.cursors.len(), Rows::NONE);
    }

    /// A user's number over all workers, from 0.
    #[inline]
    fn number_of(&self, user: u32) -> u64 {
        self.arrived.get(user as usize).copied().unwrap_or_else(|| self.share.number_of(user))
    }

    /// The id that a user's request carries; only for a request that was written and carries one.
    #[inline]
    pub fn id_of(&self, user: u32) -> u64 {
        self.users[user as usize].draw.id
    }

    /// The script of a request.
    #[inline]
    pub fn script(&self, request: u32) -> &Script {
        &self.scripts[request as usize]
    }

    /// The order of requests.
    pub fn step_order(&self) -> &'r StepOrder {
        &self.journey.step_order
    }

    /// The request that a user makes next.
    #[inline]
    pub fn request_of(&self, user: u32) -> u32 {
        self.users[user as usize].progress.request
    }

    /// Whether the user has not begun yet.
    pub fn is_outside(&self, user: u32) -> bool {
        self.users[user as usize].progress.is_outside()
    }

    /// If the user was redirected and continues at once: index of the new target's host in the load's hosts.
    #[inline]
    pub fn redirected_to(&self, user: u32) -> Option<u16> {
        self.users[user as usize].redirect().map(|r| r.host)
    }

    /// Whether the user was redirected, so that the request sent to the new target will report the outcome of its id.
    #[inline]
    pub fn follows_redirect(&self, user: u32) -> bool {
        self.users[user as usize].redirect().is_some_and(|r| r.pending.is_some())
    }

    /// Ends the step, whatever it was redirected to. Returns the id of a request that was redirected but not sent to
    /// the new target.
    #[inline]
    pub fn stop_redirect(&mut self, user: u32) -> Option<u64> {
        let memory = self.users[user as usize].memory.as_deref_mut()?;
        memory.redirected = 0;
        memory.redirect.take()?.pending
    }

    /// Ends the load: returns the ids of requests that were redirected but not sent to the new target.
    pub fn stop_redirects(&mut self) -> Vec<u64> {
        (0..self.users.len() as u32).filter_map(|user| self.stop_redirect(user)).collect()
    }

    /// Begins a user's request, with new values unless it follows a redirect.
    #[inline]
    pub fn begins(&mut self, user: u32) {
        let state = &mut self.users[user as usize];
        if state.redirect().is_none() {
            state.draw.sequence = UNWRITTEN;
        }
    }

    /// The source of the values of a user's request: the same as before if it is sent again.
    #[inline]
    fn draw(&mut self, user: u32, request: u32, now_ns: u64) -> Draw {
        let state = &mut self.users[user as usize];
        let has_id = self.scripts[request as usize].has_id;
        // If the redirect drops the request's content, it drops its id too.
        let carries = has_id && state.redirect().is_none_or(|r| r.keeps_request);
        if let Some(redirect) = state.memory.as_mut().and_then(|memory| memory.redirect.as_mut()) {
            redirect.pending = None;
        }
        let kept = state.is_written().then_some(state.draw);
        let draw = kept.unwrap_or_else(|| {
            let (sequence, id, random) = (self.sequence.next, self.ids.next, state.random);
            let draw = Draw { sequence, id, now_ns, random };
            self.sequence.next += self.sequence.step;
            self.ids.next += if has_id { self.ids.step } else { 0 };
            draw
        });
        self.last_id = carries.then_some(draw.id);
        draw
    }

    /// Keeps the source of a request's values, in case it is sent again. Later random values continue after those it
    /// took.
    #[inline]
    fn drawn(&mut self, user: u32, draw: Draw, used: Random) {
        let state = &mut self.users[user as usize];
        if !state.is_written() {
            (state.draw, state.random) = (draw, used);
        }
    }

    /// Whether the user is at its final steps.
    pub fn is_leaving(&self, user: u32) -> bool {
        self.users[user as usize].progress.is_leaving()
    }

    /// Most requests that the user may still make, including the current one, if none of them fails.
    pub fn most_left(&self, user: u32) -> u64 {
        self.users[user as usize].progress.most_left(&self.journey.step_order)
    }

    /// Whether the user will make no further request.
    pub fn is_gone(&self, user: u32) -> bool {
        self.users[user as usize].progress.is_gone()
    }

    /// Advances a user to its next request; returns false if there is none. A user begins by taking its own rows, and
    /// each round takes new rows of the other feeds.
    #[inline]
    pub fn advance(&mut self, user: u32, step: Advance) -> bool {
        let step_order = &self.journey.step_order;
        let state = &mut self.users[user as usize];
        let begins = state.progress.is_outside();
        let more = state.progress.step(step_order, &mut state.random, step);
        let inside = matches!(step, Advance::Ahead(_));
        let begins_round = more && !inside && state.progress.begins_round(step_order);
        let dealt = (!begins || self.deal(user, true)) && (!begins_round || self.deal(user, false));
        if more && !dealt {
            self.without_row += 1;
            let state = &mut self.users[user as usize];
            return state.progress.step(step_order, &mut state.random, Advance::Leave);
        }
        more
    }

    /// The user's own random numbers.
    #[inline]
    pub fn random_of(&mut self, user: u32) -> &mut Random {
        &mut self.users[user as usize].random
    }

    /// Assigns a schedule's arrival to its slot: another user, or new rows for a request.
    #[inline]
    pub fn arrives(&mut self, place: u32, number: u64, request: u32) {
        match self.has_sessions() {
            true => self.replace_user(place, number, request),
            false => self.take_rows(place, number),
        }
    }

    /// Prepares a slot for a request that belongs to no journey, by its number in the schedule: new rows for each such
    /// request. A request that needs a missing row fails for that reason.
    fn take_rows(&mut self, place: u32, number: u64) {
        self.users[place as usize].random = Random::of(self.seed, number);
        let _ = self.deal(place, true) && self.deal(place, false);
    }

    /// Takes the next row of each feed of this kind; returns false if a feed has none left.
    fn deal(&mut self, user: u32, per_user: bool) -> bool {
        let rows = &mut self.rows[rows_of(user, self.cursors.len())];
        let deals = self.cursors.iter_mut().zip(&self.journey.dealings).zip(rows);
        deals.filter(|((_, deal), _)| deal.per_user == per_user).fold(true, |all, ((cursor, _), row)| {
            *row = cursor.next().unwrap_or(Rows::NONE);
            all && *row != Rows::NONE
        })
    }

    /// Prepares a slot for another user that arrives and begins with this request; the previous user's state is
    /// cleared.
    fn replace_user(&mut self, place: u32, number: u64, request: u32) {
        let state = &mut self.users[place as usize];
        state.random = Random::of(self.seed, number);
        if let Some(arrived) = self.arrived.get_mut(place as usize) {
            *arrived = number;
        }
        state.progress.begin_with(&self.journey.step_order, request);
        if let Some(memory) = &mut state.memory {
            (0..self.journey.own).for_each(|slot| memory.slots.unset(slot));
            memory.jar.clear();
            (memory.redirect, memory.redirected) = (None, 0);
        }
        self.rows[rows_of(place, self.cursors.len())].fill(Rows::NONE);
        // Steps before the first round do not take rows that belong to rounds.
        let begins_round = state.progress.begins_round(&self.journey.step_order);
        let _ = self.deal(place, true) && (!begins_round || self.deal(place, false));
    }

    /// Whether arrivals are users, not requests.
    pub fn has_sessions(&self) -> bool {
        self.journey.sessions
    }

    /// Writes a request that has variables.
    ///
    /// # Errors
    /// A value is missing, or not allowed in its place.
    pub fn write(&mut self, user: u32, request: u32, now_ns: u64) -> Result<&[u8], template::TemplateError> {
        let draw = self.draw(user, request, now_ns);
        let used = self.compose(user, request, now_ns, draw)?;
        self.drawn(user, draw, used);
        Ok(&self.head)
    }

    /// Composes a user's request, with values from this source. Returns the random numbers after those it took.
    fn compose(
        &mut self,
        user: u32,
        request: u32,
        now_ns: u64,
        draw: Draw,
    ) -> Result<Random, template::TemplateError> {
        let (number, mut random) = (self.number_of(user), draw.random);
        let script = &self.scripts[request as usize];
        self.head.clear();
        let Some(message) = &script.message else { return Ok(random) };
        let state = &self.users[user as usize];
        let rows = &self.rows[rows_of(user, self.cursors.len())];
        let mut values = state.values(number, self.journey, self.unix_ns, rows, &draw, &mut random);
        let redirect = state.redirect();
        let site = self.journey.sites.get(usize::from(redirect.map_or(script.host, |r| r.host)));
        let keeps_request = redirect.is_none_or(|r| r.keeps_request);
        self.head.extend_from_slice(if keeps_request { message.method.as_bytes() } else { b"GET" });
        self.head.push(b' ');
        let by_proxy = site.and_then(|s| s.by_proxy.as_deref());
        if let Some(site) = site.filter(|_| by_proxy.is_some()) {
            self.head.extend_from_slice(b"http://");
            self.head.extend_from_slice(site.authority.as_bytes());
        }
        let target_at = self.head.len();
        match redirect {
            Some(redirect) => self.head.extend_from_slice(&redirect.target),
            None => message.target.write(&mut values, &mut self.head)?,
        }
        let target_to = self.head.len();
        self.head.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        self.head.extend_from_slice(site.map_or(b"", |s| s.authority.as_bytes()));
        self.head.extend_from_slice(b"\r\n");
        self.head.extend_from_slice(by_proxy.unwrap_or_default().as_bytes());
        let fields_at = self.head.len();
        message.fields.write(&mut values, &mut self.head)?;
        if let Some(redirect) = redirect {
            redirect.omitted_headers().remove_from(&mut self.head, fields_at);
        }
        if let Some(site) = site.filter(|_| self.journey.cookies) {
            self.body.clear();
            let path = path_of(&self.head[target_at..target_to]);
            let place = cookies::CookieScope { host: site.host.as_bytes(), path, is_secure: site.is_secure };
            let now_s = (self.unix_ns + now_ns) / SECOND_NS;
            if state.memory.as_ref().is_some_and(|memory| memory.jar.write(&place, now_s, &mut self.body)) {
                self.head.extend_from_slice(b"Cookie: ");
                self.head.extend_from_slice(&self.body);
                self.head.extend_from_slice(b"\r\n");
            }
        }
        if let Some(body) = message.body.as_ref().filter(|_| keeps_request) {
            self.body.clear();
            body.write(&mut values, &mut self.body)?;
            self.head.extend_from_slice(b"Content-Length: ");
            template::number(self.body.len() as u64, &mut self.head);
            self.head.extend_from_slice(b"\r\n\r\n");
            self.head.extend_from_slice(&self.body);
        } else {
            self.head.extend_from_slice(b"\r\n");
        }
        Ok(random)
    }

    /// Checks whether a request could be written now, without using up any of its values.
    ///
    /// # Errors
    /// See [`Users::write`].
    pub fn try_out(&mut self, user: u32, request: u32, now_ns: u64) -> Result<(), template::TemplateError> {
        let Some(message) = &self.scripts[request as usize].message else { return Ok(()) };
        let state = &self.users[user as usize];
        let (sequence, id, mut random) = (self.sequence.next, self.ids.next, state.random);
        let number = self.number_of(user);
        let draw = Draw { sequence, id, now_ns, random };
        let rows = &self.rows[rows_of(user, self.cursors.len())];
        let mut values = state.values(number, self.journey, self.unix_ns, rows, &draw, &mut random);
        let keeps_request = state.redirect().is_none_or(|r| r.keeps_request);
        self.head.clear();
        if state.redirect().is_none() {
            message.target.write(&mut values, &mut self.head)?;
        }
        message.fields.write(&mut values, &mut self.head)?;
        message
            .body
            .iter()
            .filter(|_| keeps_request)
            .try_for_each(|body| body.write(&mut values, &mut self.head))
    }

    /// The part of a conversation that a request is, if it is one.
    #[inline]
    pub fn conversation(&self, request: u32) -> Option<&ConversationStep> {
        self.script(request).conversation.as_deref()
    }

    /// If a user's next request continues a conversation: number of parts that follow it.
    #[inline]
    pub fn in_conversation(&self, user: u32) -> Option<u32> {
        let progress = &self.users[user as usize].progress;
        if progress.is_outside() || progress.is_gone() {
            return None;
        }
        let conversation = self.conversation(progress.request)?;
        (!matches!(conversation.part, ConversationAction::Open { .. })).then_some(conversation.left)
    }

    /// How long a user waits before its next request, if it differs from the load's setting.
    #[inline]
    pub fn pause_of(&self, user: u32, last: u32) -> Option<Think> {
        let script = self.script(last);
        // A conversation that broke off skips its pause.
        let skips =
            script.conversation.as_ref().is_some_and(|t| t.left > 0) && self.request_of(user) != last + 1;
        script.think.filter(|_| !skips)
    }

    /// Writes what a user sends in a conversation, and the texts it expects, with the same values in them.
    ///
    /// # Errors
    /// See [`Users::write`].
    pub fn write_message(
        &mut self,
        user: u32,
        request: u32,
        now_ns: u64,
        kept: &mut BufferedResponse,
    ) -> Result<&[u8], template::TemplateError> {
        self.body.clear();
        let part = self.conversation(request).map(|t| &t.part);
        let Some(ConversationAction::Message { send, echoes, .. }) = part else { return Ok(&[]) };
        if send.is_none() && echoes.is_empty() {
            return Ok(&[]);
        }
        let draw = self.draw(user, request, now_ns);
        let (number, mut random) = (self.number_of(user), draw.random);
        let part = self.scripts[request as usize].conversation.as_deref().map(|t| &t.part);
        let Some(ConversationAction::Message { send, echoes, .. }) = part else { return Ok(&[]) };
        let rows = &self.rows[rows_of(user, self.cursors.len())];
        let mut values =
            self.users[user as usize].values(number, self.journey, self.unix_ns, rows, &draw, &mut random);
        if let Some((_, text)) = send {
            text.write(&mut values, &mut self.body)?;
        }
        for text in echoes {
            kept.expect(text, &mut values)?;
        }
        self.drawn(user, draw, random);
        Ok(&self.body)
    }

    /// Provides a buffer for a request and the response to it, if they have to be kept.
    #[inline]
    pub fn provide_buffer(&mut self, request: u32, buffer: &mut Option<Box<BufferedResponse>>) {
        if self.scripts[request as usize].wants_buffer() {
            *buffer = Some(self.take_buffer(request, buffer.take()));
        }
    }

    /// As `provide_buffer`, when a request is sent. Returns whether the buffer is to be
    /// [provided later](Users::late_buffer): if very many requests are in flight, each has one only once its response
    /// arrives. Then the request is written again, so it must not have cookies, which may expire meanwhile.
    #[inline]
    pub fn provide_early_buffer(
        &mut self,
        user: u32,
        request: u32,
        buffer: &mut Option<Box<BufferedResponse>>,
    ) -> bool {
        let has_cookies =
            || self.users[user as usize].memory.as_ref().is_some_and(|memory| !memory.jar.is_empty());
        if self.lent < MAX_BUFFERS || buffer.is_some() || has_cookies() {
            self.provide_buffer(request, buffer);
            return false;
        }
        self.scripts[request as usize].wants_buffer()
    }

    /// A buffer for a request that was sent without one, with the request as it was sent. Its response must not have
    /// been judged yet, since it may change the values.
    #[cold]
    pub fn late_buffer(&mut self, user: u32, request: u32) -> Box<BufferedResponse> {
        let mut buffer = self.take_buffer(request, None);
        let draw = self.users[user as usize].draw;
        if self.compose(user, request, draw.now_ns, draw).is_ok() {
            buffer.keep_request(&self.head);
        }
        buffer
    }

    /// Provides a buffer for a conversation's messages.
    pub fn take_buffer(
        &mut self,
        request: u32,
        buffer: Option<Box<BufferedResponse>>,
    ) -> Box<BufferedResponse> {
        self.lent += usize::from(buffer.is_none());
        let mut buffer = buffer.or_else(|| self.spare.pop()).unwrap_or_default();
        buffer.begin(self.scripts[request as usize].keeps());
        buffer
    }

    /// Takes back a buffer.
    pub fn give_back(&mut self, mut kept: Box<BufferedResponse>) {
        self.lent -= 1;
        if self.spare.len() < MAX_BUFFERS {
            kept.clear();
            self.spare.push(kept);
        }
    }

    /// Judges a complete response to a user's request; its head and body were kept if needed.
    pub fn judge(
        &mut self,
        user: u32,
        request: u32,
        kept: Option<&mut BufferedResponse>,
        ended: Ended,
    ) -> (Outcome, Option<StepFailure>) {
        let number = self.number_of(user);
        let (script, state) = (&mut self.scripts[request as usize], &mut self.users[user as usize]);
        let mut empty = BufferedResponse::default();
        let kept = kept.unwrap_or(&mut empty);
        let before = state.memory.as_mut().and_then(|memory| memory.redirect.take());
        let host = before.as_ref().map_or(script.host, |r| r.host);
        if let Some(site) = self.journey.sites.get(usize::from(host)).filter(|_| self.journey.cookies) {
            let path = path_of(kept.target());
            let place = cookies::CookieScope { host: site.host.as_bytes(), path, is_secure: site.is_secure };
            let now_s = (self.unix_ns + ended.now_ns) / SECOND_NS;
            let set = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"set-cookie");
            for (_, value) in capture::headers(kept.head()).filter(set) {
                state.memory.get_or_insert_default().jar.set(value, &place, now_s);
            }
        }
        if script.redirects > 0
            && let Some(same) =
                redirect::redirects(ended.status, script.message.as_ref().map_or("GET", |m| &m.method))
            && let Some(location) = capture::header(kept.head(), b"location")
        {
            let redirected = state.memory.as_ref().map_or(0, |memory| memory.redirected);
            let next = match redirected < script.redirects {
                true => redirect::leads_to(location, host, kept.target(), &self.journey.sites),
                false => Err(redirect::RedirectError::TooMany),
            };
            match next {
                Ok((to, target)) => {
                    // Whatever was dropped at one redirect stays dropped at later ones.
                    let keeps_request = same && before.as_ref().is_none_or(|b| b.keeps_request);
                    let sites = &self.journey.sites;
                    let is_cross_origin = before.is_some_and(|b| b.is_cross_origin)
                        || to != host
                            && !redirect::is_same_origin(&sites[usize::from(host)], &sites[usize::from(to)]);
                    let id = (state.is_written() && keeps_request && script.has_id).then_some(state.draw.id);
                    let redirect = Redirect { host: to, target, keeps_request, is_cross_origin, pending: id };
                    let memory = state.memory.get_or_insert_default();
                    (memory.redirect, memory.redirected) = (Some(Box::new(redirect)), redirected + 1);
                    return (Outcome::Ok, None);
                }
                Err(fault) => {
                    state.forget_redirects();
                    return (Outcome::Failed(Failure::Check), Some(StepFailure::Redirect(fault)));
                }
            }
        }
        state.forget_redirects();
        if !script.expected.is_empty() {
            // A check compares with the same value in every request.
            let mut random = state.random;
            let draw = Draw { sequence: 0, id: 0, now_ns: ended.now_ns, random };
            let rows = &self.rows[rows_of(user, self.cursors.len())];
            let mut values = state.values(number, self.journey, self.unix_ns, rows, &draw, &mut random);
            if let Err(fault) = script.expect(&mut values) {
                return (Outcome::Failed(Failure::Check), Some(StepFailure::Unwritten(fault)));
            }
        }
        let mut none = CaptureSlots::EMPTY;
        let slots = state.memory.as_mut().map_or(&mut none, |memory| &mut memory.slots);
        let judged = script.judge(kept, ended, slots);
        for (slot, _) in script.captures.iter().filter(|(_, capture)| capture.is_number) {
            let place = self.journey.numbers.iter().position(|(number, _)| number == slot);
            // A value not captured now does not exist, and nothing was captured if the response failed.
            let value = state.slots().get(*slot).filter(|_| judged.1.is_none_or(StepFailure::is_of_capture));
            self.numbers.extend(place.zip(value.and_then(capture::number)));
        }
        judged
    }

    /// What an example shows of a user at a request. Slots of a schedule's requests are not users.
    #[cold]
    pub fn shown(&self, user: u32, request: u32, is_user: bool, secrets: &Secrets) -> ExampleContext {
        let number = is_user.then(|| self.number_of(user));
        ExampleContext::new(
            step_of(&self.journey.step_order, request),
            number,
            self.remembered(user),
            secrets,
        )
    }

    /// The secrets that must not be shown of a user's exchange, and whether they are known to be all that its body
    /// contains. `is_whole`: the response was received completely.
    #[cold]
    pub fn secrets(
        &self,
        user: u32,
        request: u32,
        kept: Option<&BufferedResponse>,
        is_whole: bool,
        given: &Secrets,
    ) -> (Secrets, bool) {
        let mut secrets = with_captured(given, self.remembered(user));
        let (own, shared) = (self.users[user as usize].slots(), self.journey.shared.count());
        let named = |slot: u16| self.journey.remembered.get(usize::from(shared + slot));
        let is_secret = |slot: &u16| named(*slot).is_some_and(|known| known.is_secret);
        // If a value was captured anew, the request was written with the previous one.
        (0..own.count()).filter(is_secret).for_each(|slot| secrets.add_captured(own.before(slot)));
        // Nothing is captured from a failed response, but it contains what would have been captured.
        let mut is_known = true;
        for (_, capture) in self.script(request).captures.iter().filter(|(slot, _)| is_secret(slot)) {
            let Some(kept) = kept else { continue };
            let ((body, is_all), mut value) = (kept.looked_into(), Vec::new());
            match capture.clone().take(kept.head(), &body, &mut value) {
                Ok(()) => secrets.add_captured(&value),
                // The value may be cut off in the middle.
                Err(_) => is_known &= is_all && is_whole || !capture.needs_body(),
            }
        }
        (secrets, is_known)
    }

    /// A user's captured values, by name.
    fn remembered(&self, user: u32) -> impl Iterator<Item = (&CapturedName, &[u8])> {
        let captured = Captured { shared: &self.journey.shared, own: self.users[user as usize].slots() };
        let named = self.journey.remembered.iter().enumerate();
        named.filter_map(move |(slot, known)| Some((known, captured.get(slot as u16)?)))
    }

    /// A user's captured values, by slot.
    pub fn captured(&self, user: u32) -> Vec<Option<Vec<u8>>> {
        let slots = self.users.get(user as usize).map(User::slots);
        (0..self.journey.own).map(|slot| slots.and_then(|s| s.get(slot)).map(<[u8]>::to_vec)).collect()
    }
}

/// Where a user's rows are, among all rows of this many feeds.
#[inline]
fn rows_of(user: u32, feeds: usize) -> Range<usize> {
    let from = user as usize * feeds;
    from..from + feeds
}

/// A target without its query.
fn path_of(target: &[u8]) -> &[u8] {
    target.split(|b| *b == b'?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load may have a million of them.
    #[test]
    fn a_user_is_small() {
        assert_eq!(std::mem::size_of::<User>(), 64);
    }
}
