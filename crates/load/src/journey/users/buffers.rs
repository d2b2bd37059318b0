//! Buffers of requests and responses that have to be kept: for checks, captures and examples.

use crate::journey::response::BufferedResponse;
use crate::journey::users::Users;

/// Most buffers that one thread provides before responses have come, and most that it keeps unused.
const MAX_BUFFERS: usize = 4096;

impl Users<'_> {
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
}
