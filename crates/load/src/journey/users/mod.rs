//! The users of a journey: where each of them is, and its state (rows, captures, cookies, a redirect).
//!
//! Nothing here sends or counts; the worker asks for bytes ([`http1`], [`http2`]) and for a verdict ([`judge`]).

mod buffers;
mod captured;
mod http1;
mod http2;
mod judge;
mod user;

use std::ops::Range;

use loadlab_record::spec::schedule::Think;

use self::user::{Draw, Memory, UNWRITTEN, User};
use crate::journey::capture::CaptureSlots;
use crate::journey::order::{Advance, Progress, StepOrder};
use crate::journey::response::BufferedResponse;
use crate::journey::rows::{Cursor, Rows};
use crate::journey::script::{ConversationAction, ConversationStep, Journey, Script};
use crate::journey::template::TemplateError;
use crate::random::Random;
use crate::schedule::share::Share;

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
    pub fn set_start_unix_ns(&mut self, unix_ns: u64) {
        self.unix_ns = self.journey.unix_ns.unwrap_or(unix_ns);
    }

    /// Sets the first id: other loads and batches of the trial use the ids before and after this load's.
    pub fn set_first_id(&mut self, first: u64) {
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
    pub fn begin_request(&mut self, user: u32) {
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
    fn keep_draw(&mut self, user: u32, draw: Draw, used: Random) {
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
    pub fn assign_arrival(&mut self, place: u32, number: u64, request: u32) {
        match self.has_sessions() {
            true => self.replace_user(place, number, request),
            false => self.take_rows(place, number),
        }
    }

    /// Prepares a slot for a request that belongs to no journey, by its number in the schedule: new rows for each such
    /// request, and nothing that an earlier one captured. A request that needs a missing row fails for that reason.
    fn take_rows(&mut self, place: u32, number: u64) {
        let state = &mut self.users[place as usize];
        state.random = Random::of(self.seed, number);
        if let Some(memory) = &mut state.memory {
            memory.clear(self.journey.own);
        }
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
            memory.clear(self.journey.own);
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
    ) -> Result<&[u8], TemplateError> {
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
        self.keep_draw(user, draw, random);
        Ok(&self.body)
    }
}

/// Where a user's rows are, among all rows of this many feeds.
#[inline]
fn rows_of(user: u32, feeds: usize) -> Range<usize> {
    let from = user as usize * feeds;
    from..from + feeds
}
