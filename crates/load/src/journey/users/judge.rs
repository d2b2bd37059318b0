//! The verdict on a user's response: its cookies are kept, a redirect is followed, and what remains is checked.

use loadlab_record::counts::outcome::{Failure, Outcome};
use loadlab_record::text::time::SECOND_NS;

use crate::journey::capture::{self, CaptureSlots};
use crate::journey::cookies::CookieScope;
use crate::journey::failure::StepFailure;
use crate::journey::redirect::{self, RedirectError};
use crate::journey::response::{BufferedResponse, Ended};
use crate::journey::users::user::{Draw, Redirect};
use crate::journey::users::{Users, rows_of};

impl Users<'_> {
    /// Judges a complete response to a user's request; its head and body were kept if needed.
    pub fn judge(
        &mut self,
        user: u32,
        request: u32,
        kept: Option<&mut BufferedResponse>,
        ended: Ended,
    ) -> (Outcome, Option<StepFailure>) {
        let mut empty = BufferedResponse::default();
        let kept = kept.unwrap_or(&mut empty);
        let memory = self.users[user as usize].memory.as_mut();
        let before = memory.and_then(|memory| memory.redirect.take());
        let host = before.as_ref().map_or(self.script(request).host, |r| r.host);
        self.keep_cookies(user, host, kept, ended.now_ns);
        match self.next_redirect(user, request, before.as_deref(), kept, ended.status) {
            Some(Ok(redirect)) => {
                let memory = self.users[user as usize].memory.get_or_insert_default();
                memory.redirect = Some(Box::new(redirect));
                memory.redirected += 1;
                (Outcome::Ok, None)
            }
            Some(Err(fault)) => {
                self.users[user as usize].forget_redirects();
                (Outcome::Failed(Failure::Check), Some(StepFailure::Redirect(fault)))
            }
            None => {
                self.users[user as usize].forget_redirects();
                self.check(user, request, kept, ended)
            }
        }
    }

    /// Keeps the cookies that a response of this host sets.
    fn keep_cookies(&mut self, user: u32, host: u16, kept: &BufferedResponse, now_ns: u64) {
        let site = self.journey.sites.get(usize::from(host)).filter(|_| self.journey.cookies);
        let Some(site) = site else { return };
        let scope = CookieScope::of(site, kept.target());
        let now_s = (self.unix_ns + now_ns) / SECOND_NS;
        let set = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"set-cookie");
        for (_, value) in capture::headers(kept.head()).filter(set) {
            let memory = self.users[user as usize].memory.get_or_insert_default();
            memory.jar.set(value, &scope, now_s);
        }
    }

    /// What a user requests next if a response redirects it. `before`: the redirect whose target sent the response.
    fn next_redirect(
        &self,
        user: u32,
        request: u32,
        before: Option<&Redirect>,
        kept: &BufferedResponse,
        status: u16,
    ) -> Option<Result<Redirect, RedirectError>> {
        let (script, state) = (self.script(request), &self.users[user as usize]);
        if script.redirects == 0 {
            return None;
        }
        let method = script.message.as_ref().map_or("GET", |m| &m.method);
        let keeps_request = redirect::redirects(status, method)?;
        let location = capture::header(kept.head(), b"location")?;
        if state.memory.as_ref().map_or(0, |memory| memory.redirected) >= script.redirects {
            return Some(Err(RedirectError::TooMany));
        }
        let (sites, from) = (&self.journey.sites, before.map_or(script.host, |b| b.host));
        Some(redirect::leads_to(location, from, kept.target(), sites).map(|(host, target)| {
            // Whatever was dropped at one redirect stays dropped at later ones.
            let keeps_request = keeps_request && before.is_none_or(|b| b.keeps_request);
            let leaves_origin =
                || !redirect::is_same_origin(&sites[usize::from(from)], &sites[usize::from(host)]);
            let is_cross_origin =
                before.is_some_and(|b| b.is_cross_origin) || host != from && leaves_origin();
            let pending = (state.is_written() && keeps_request && script.has_id).then_some(state.draw.id);
            Redirect { host, target, keeps_request, is_cross_origin, pending }
        }))
    }

    /// Checks a response that leads nowhere else, and captures its values.
    fn check(
        &mut self,
        user: u32,
        request: u32,
        kept: &mut BufferedResponse,
        ended: Ended,
    ) -> (Outcome, Option<StepFailure>) {
        let number = self.number_of(user);
        let (script, state) = (&mut self.scripts[request as usize], &mut self.users[user as usize]);
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
            let index = self.journey.numbers.iter().position(|(number, _)| number == slot);
            // A value not captured now does not exist, and nothing was captured if the response failed.
            let value = state.slots().get(*slot).filter(|_| judged.1.is_none_or(StepFailure::is_of_capture));
            self.numbers.extend(index.zip(value.and_then(capture::number)));
        }
        judged
    }
}
