//! A user's request in HTTP/1.1 form.

use crate::journey::cookies::CookieScope;
use crate::journey::template::{self, TemplateError};
use crate::journey::users::user::Draw;
use crate::journey::users::{Users, rows_of};
use crate::random::Random;

impl Users<'_> {
    /// Writes a request that has variables.
    ///
    /// # Errors
    /// A value is missing, or not allowed in its place.
    pub fn write(&mut self, user: u32, request: u32, now_ns: u64) -> Result<&[u8], TemplateError> {
        let draw = self.draw(user, request, now_ns);
        let used = self.compose(user, request, now_ns, draw)?;
        self.keep_draw(user, draw, used);
        Ok(&self.head)
    }

    /// Composes a user's request, with values from this source. Returns the random numbers after those it took.
    pub(super) fn compose(
        &mut self,
        user: u32,
        request: u32,
        now_ns: u64,
        draw: Draw,
    ) -> Result<Random, TemplateError> {
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
            let scope = CookieScope::of(site, &self.head[target_at..target_to]);
            if state.write_cookies(&scope, self.unix_ns + now_ns, &mut self.body) {
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
    pub fn try_out(&mut self, user: u32, request: u32, now_ns: u64) -> Result<(), TemplateError> {
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
}
