//! What a user has captured, in examples and as secrets that examples must not show.

use loadlab_record::Secrets;

use crate::journey::capture::Captured;
use crate::journey::example::{CapturedName, ExampleContext, step_of, with_captured};
use crate::journey::response::BufferedResponse;
use crate::journey::users::Users;
use crate::journey::users::user::User;

impl Users<'_> {
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
