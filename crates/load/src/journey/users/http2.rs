//! A user's request in HTTP/2 form: the pieces of its head, the head as text for examples, and its body. The head is
//! compressed once its connection is known.

use crate::journey::cookies::CookieScope;
use crate::journey::script::Written;
use crate::journey::template::{self, TemplateError};
use crate::journey::users::user::Redirect;
use crate::journey::users::{Users, rows_of};
use crate::protocol::http2::head::{AUTHORITY, CONTENT_LENGTH, COOKIE, METHOD, PATH, SCHEME};
use crate::protocol::http2::{Head, HeadPart, Name};
use crate::protocol::redirect_headers::OmittedHeaders;

/// A piece of a head; a field's value is a range of the head's text.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadPiece<'r> {
    Packed(&'r Head),
    Field(&'r Name, (usize, usize)),
}

/// A request that was written.
#[derive(Clone, Copy, Debug)]
pub struct Http2Request<'a, 'r> {
    pieces: &'a [HeadPiece<'r>],
    /// The head for display: `:method GET`, `accept: */*`, one field per line.
    pub text: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// The request's id, if it has one.
    pub id: Option<u64>,
}

impl<'a> Http2Request<'a, '_> {
    /// The parts of the head, to be compressed.
    pub fn parts(&self) -> impl Iterator<Item = HeadPart<'a>> {
        let text = self.text;
        self.pieces.iter().map(move |piece| match *piece {
            HeadPiece::Packed(head) => HeadPart::Packed(head),
            HeadPiece::Field(name, (from, to)) => HeadPart::Field(name, &text[from..to]),
        })
    }
}

/// A head being written.
struct HeadWriter<'a, 'r> {
    text: &'a mut Vec<u8>,
    pieces: &'a mut Vec<HeadPiece<'r>>,
}

impl<'r> HeadWriter<'_, 'r> {
    fn packed(&mut self, head: &'r Head) {
        self.text.extend_from_slice(head.text().as_bytes());
        self.pieces.push(HeadPiece::Packed(head));
    }

    /// Adds a field whose value is written now.
    fn field(
        &mut self,
        name: &'r Name,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), TemplateError>,
    ) -> Result<(), TemplateError> {
        let is_pseudo = name.text().starts_with(':');
        self.text.extend_from_slice(name.text().as_bytes());
        self.text.extend_from_slice(if is_pseudo { b" " } else { b": " });
        let from = self.text.len();
        write(self.text)?;
        // HTTP/2 does not allow blanks around values.
        let value = &self.text[from..];
        let (blanks, length) = (value.len() - value.trim_ascii_start().len(), value.trim_ascii().len());
        self.pieces.push(HeadPiece::Field(name, (from + blanks, from + blanks + length)));
        self.text.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn known(&mut self, name: &'r Name, value: &[u8]) -> Result<(), TemplateError> {
        self.field(name, |out| {
            out.extend_from_slice(value);
            Ok(())
        })
    }
}

impl<'r> Users<'r> {
    /// Writes a request that has variables; `written` is what is known in advance of its head.
    ///
    /// # Errors
    /// A value is missing, or not allowed in its place.
    pub fn write_http2(
        &mut self,
        user: u32,
        request: u32,
        now_ns: u64,
        written: &'r Written,
    ) -> Result<Http2Request<'_, 'r>, TemplateError> {
        let draw = self.draw(user, request, now_ns);
        let (number, mut random) = (self.number_of(user), draw.random);
        let script = &self.scripts[request as usize];
        let state = &self.users[user as usize];
        self.head.clear();
        self.body.clear();
        self.pieces.clear();
        let mut page = HeadWriter { text: &mut self.head, pieces: &mut self.pieces };
        let Some(message) = &script.message else {
            return Ok(Http2Request { pieces: &[], text: &[], body: &[], id: None });
        };
        let rows = &self.rows[rows_of(user, self.cursors.len())];
        let mut values = state.values(number, self.journey, self.unix_ns, rows, &draw, &mut random);
        let redirect = state.redirect();
        let site = self.journey.sites.get(usize::from(redirect.map_or(script.host, |r| r.host)));
        let keeps_request = redirect.is_none_or(|r| r.keeps_request);
        match (redirect, site) {
            (Some(redirect), Some(site)) => {
                page.known(&METHOD, if keeps_request { message.method.as_bytes() } else { b"GET" })?;
                page.known(&SCHEME, if site.is_secure { b"https" } else { b"http" })?;
                page.known(&AUTHORITY, site.authority.as_bytes())?;
                page.known(&PATH, &redirect.target)?;
            }
            _ => {
                page.packed(&written.outline.front);
                page.field(&PATH, |out| message.target.write(&mut values, out))?;
            }
        }
        // The path was the last field written.
        let path = page.pieces.last().copied();
        let omitted = redirect.map_or(OmittedHeaders::default(), Redirect::omitted_headers);
        page.packed(written.outline.back(omitted));
        let fields = written.outline.names.iter().zip(&written.values);
        for (name, value) in fields.filter(|(name, _)| !omitted.contains(name.text().as_bytes())) {
            page.field(name, |out| value.write(&mut values, out))?;
        }
        if let (Some(site), Some(HeadPiece::Field(_, (from, to))), true) = (site, path, self.journey.cookies)
        {
            let scope = CookieScope::of(site, &page.text[from..to]);
            if state.write_cookies(&scope, self.unix_ns + now_ns, &mut self.body) {
                page.known(&COOKIE, &self.body)?;
                self.body.clear();
            }
        }
        if let Some(body) = message.body.as_ref().filter(|_| keeps_request) {
            body.write(&mut values, &mut self.body)?;
            let length = self.body.len() as u64;
            page.field(&CONTENT_LENGTH, |out| {
                template::number(length, out);
                Ok(())
            })?;
        }
        self.keep_draw(user, draw, random);
        Ok(Http2Request { pieces: &self.pieces, text: &self.head, body: &self.body, id: self.last_id })
    }
}
