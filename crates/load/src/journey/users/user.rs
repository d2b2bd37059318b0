//! One user's state: its place in the journey, the source of its request's values, what it remembers of responses.

use loadlab_record::text::time::SECOND_NS;

use crate::journey::capture::{CaptureSlots, Captured};
use crate::journey::cookies::{CookieScope, Jar};
use crate::journey::order::Progress;
use crate::journey::script::Journey;
use crate::journey::template::Values;
use crate::protocol::redirect_headers::OmittedHeaders;
use crate::random::Random;

/// One user's state. A load may have a million users, so what most journeys do not need is in [`Memory`].
#[derive(Debug)]
pub(super) struct User {
    /// Source of random values, weighted steps and pauses.
    pub(super) random: Random,
    pub(super) progress: Progress,
    /// Source of the values of its request, or of its last one until its next one is written.
    pub(super) draw: Draw,
    /// What it remembers of responses. If the journey captures values, it is there from the start.
    pub(super) memory: Option<Box<Memory>>,
}

/// What a user remembers of responses.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) slots: CaptureSlots,
    /// Its cookies, once it has been given some.
    pub(super) jar: Jar,
    /// After a redirect: what the user requests next instead.
    pub(super) redirect: Option<Box<Redirect>>,
    /// Number of redirects in a row.
    pub(super) redirected: u8,
}

/// The source of a request's values. Whatever is sent again (over another connection, or to the target of a redirect)
/// uses the same values, so it is the same request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// The request's number; [`UNWRITTEN`] if it has not been written.
    pub(super) sequence: u64,
    pub(super) id: u64,
    pub(super) now_ns: u64,
    pub(super) random: Random,
}

/// Number of a request that has not been written.
pub(super) const UNWRITTEN: u64 = u64::MAX;

/// The values of a user who remembers none.
static NOTHING_CAPTURED: CaptureSlots = CaptureSlots::EMPTY;

/// What a redirected user requests.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) host: u16,
    pub(super) target: Vec<u8>,
    /// Whether the request keeps the step's method and body.
    pub(super) keeps_request: bool,
    /// Whether it was redirected to another origin on the way: credentials are no longer sent.
    pub(super) is_cross_origin: bool,
    /// The id of the redirected request until it is sent to the new target: its outcome is not known yet.
    pub(super) pending: Option<u64>,
}

impl Redirect {
    /// Which of the step's header fields are not sent to the new target.
    pub(super) fn omitted_headers(&self) -> OmittedHeaders {
        OmittedHeaders { credentials: self.is_cross_origin, body: !self.keeps_request }
    }
}

impl Memory {
    /// Forgets everything, for another user of a journey with this number of captured values.
    pub(super) fn clear(&mut self, captures: u16) {
        (0..captures).for_each(|slot| self.slots.unset(slot));
        self.jar.clear();
        (self.redirect, self.redirected) = (None, 0);
    }
}

impl User {
    /// Whether its request has been written.
    #[inline]
    pub(super) fn is_written(&self) -> bool {
        self.draw.sequence != UNWRITTEN
    }

    #[inline]
    pub(super) fn redirect(&self) -> Option<&Redirect> {
        self.memory.as_ref()?.redirect.as_deref()
    }

    #[inline]
    pub(super) fn slots(&self) -> &CaptureSlots {
        self.memory.as_ref().map_or(&NOTHING_CAPTURED, |memory| &memory.slots)
    }

    /// Ends a series of redirects.
    #[inline]
    pub(super) fn forget_redirects(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.redirected = 0;
        }
    }

    /// Appends the value of the `Cookie` header of a request; `unix_ns` is the time of day. Returns `false`, and appends
    /// nothing, if no cookie belongs there.
    #[inline]
    pub(super) fn write_cookies(&self, scope: &CookieScope<'_>, unix_ns: u64, out: &mut Vec<u8>) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.jar.write(scope, unix_ns / SECOND_NS, out))
    }

    /// The values of the request of this user, who has this number.
    #[inline]
    pub(super) fn values<'a>(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A load may have a million of them.
    #[test]
    fn a_user_is_small() {
        assert_eq!(std::mem::size_of::<User>(), 64);
    }
}
