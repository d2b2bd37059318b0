//! The users of a journey: where each of them is, and what it remembers – rows, captures, cookies, a redirect.
//!
//! Nothing here sends or counts; the worker asks for bytes and for a verdict.

use loadlab_record::outcome::{Failure, Outcome};

use crate::course::{Course, Progress, Step};
use crate::journey::capture::{self, Captured, Slots};
use crate::journey::cookies::{self, Jar};
use crate::journey::redirect;
use crate::journey::rows::{Cursor, Rows};
use crate::journey::template::{self, Values};
use crate::schedule::Random;
use crate::script::{Ended, Journey, Kept, Script, Trouble};

const SECOND_NS: u64 = 1_000_000_000;

/// What one user remembers.
#[derive(Debug)]
struct User {
    /// Over all workers, from 0.
    number: u64,
    progress: Progress,
    slots: Slots,
    rows: Box<[u32]>,
    jar: Jar,
    /// It was redirected: what it asks for next instead.
    redirect: Option<Box<Redirect>>,
    /// How often in a row.
    redirected: u8,
}

/// What a redirected user asks for.
#[derive(Debug)]
struct Redirect {
    host: u16,
    target: Vec<u8>,
    /// With the same method and body.
    same: bool,
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
            redirect: None,
            redirected: 0,
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

    /// It was redirected, and goes on at once: where to, index into the load's hosts.
    #[inline]
    pub fn redirected_to(&self, user: u32) -> Option<u16> {
        self.users[user as usize].redirect.as_ref().map(|r| r.host)
    }

    /// A hop of a redirect failed otherwise: the step is over.
    pub fn stop_redirect(&mut self, user: u32) {
        let state = &mut self.users[user as usize];
        (state.redirect, state.redirected) = (None, 0);
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
        (state.redirect, state.redirected) = (None, 0);
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
        let redirect = state.redirect.as_deref();
        let site = self.journey.sites.get(usize::from(redirect.map_or(script.host, |r| r.host)));
        let as_given = redirect.is_none_or(|r| r.same || matches!(&*message.method, "GET" | "HEAD"));
        self.head.clear();
        self.head.extend_from_slice(if as_given { message.method.as_bytes() } else { b"GET" });
        self.head.push(b' ');
        let target_at = self.head.len();
        match redirect {
            Some(redirect) => self.head.extend_from_slice(&redirect.target),
            None => message.target.write(&mut values, &mut self.head)?,
        }
        let target_to = self.head.len();
        self.head.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        self.head.extend_from_slice(site.map_or(b"", |s| s.authority.as_bytes()));
        self.head.extend_from_slice(b"\r\n");
        message.fields.write(&mut values, &mut self.head)?;
        if let Some(site) = site.filter(|_| self.journey.cookies) {
            self.body.clear();
            let path = path_of(&self.head[target_at..target_to]);
            let place = cookies::Site { host: site.host.as_bytes(), path, is_secure: site.is_secure };
            if state.jar.write(&place, values.now_ns / SECOND_NS, &mut self.body) {
                self.head.extend_from_slice(b"Cookie: ");
                self.head.extend_from_slice(&self.body);
                self.head.extend_from_slice(b"\r\n");
            }
        }
        if let Some(body) = message.body.as_ref().filter(|_| as_given) {
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
        let host = state.redirect.take().map_or(script.host, |r| r.host);
        if let Some(site) = self.journey.sites.get(usize::from(host)).filter(|_| self.journey.cookies) {
            let path = path_of(kept.target());
            let place = cookies::Site { host: site.host.as_bytes(), path, is_secure: site.is_secure };
            let now_s = (self.journey.unix_ns + ended.now_ns) / SECOND_NS;
            let set = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"set-cookie");
            capture::headers(kept.head()).filter(set).for_each(|(_, v)| state.jar.set(v, &place, now_s));
        }
        if script.redirects > 0
            && let Some(same) = redirect::redirects(ended.status)
            && let Some(location) = capture::header(kept.head(), b"location")
        {
            let led = match state.redirected < script.redirects {
                true => redirect::leads_to(location, host, kept.target(), &self.journey.sites),
                false => Err(redirect::Fault::TooMany),
            };
            match led {
                Ok((host, target)) => {
                    state.redirected += 1;
                    state.redirect = Some(Box::new(Redirect { host, target, same }));
                    return (Outcome::Ok, None);
                }
                Err(fault) => {
                    state.redirected = 0;
                    return (Outcome::Failed(Failure::Check), Some(Trouble::Redirect(fault)));
                }
            }
        }
        state.redirected = 0;
        script.judge(kept, ended, &mut state.slots)
    }

    /// What a user captured, slot by slot.
    pub fn captured(&self, user: u32) -> Vec<Option<Vec<u8>>> {
        let slots = self.users.get(user as usize).map(|u| &u.slots);
        (0..self.journey.own).map(|slot| slots.and_then(|s| s.get(slot)).map(<[u8]>::to_vec)).collect()
    }
}

/// A target without its query.
fn path_of(target: &[u8]) -> &[u8] {
    target.split(|b| *b == b'?').next().unwrap_or_default()
}
