//! How each of a server's frames changes a session.
//!
//! Violations that leave the connection's state in doubt are faults of the connection; those in one response end only
//! its stream (RFC 9113 §5.4). Frames for ended streams are ignored: they may have been in flight when this side ended
//! the stream.

use super::error::{HEAD_TOO_LARGE, Http2Error, flood, flow, protocol, size};
use super::fields::Facts;
use super::frame::{
    self, Code, DEFAULT_MAX_FRAME, FrameHead, LARGEST_FRAME, MAX_31, flag, kind, read_u32, setting,
};
use super::session::{
    Data, Event, KEEP, MAX_CONTINUATIONS, MAX_LIST, MAX_MEMO, OpenHead, Reading, Session, Settings, slim,
};
use super::streams::ANY_LENGTH;
use crate::protocol::http1::{MAX_INTERIM, TOO_MANY_INTERIM};

impl Session {
    /// Handles the head of a DATA frame: streams and windows are counted per frame, not per received piece.
    #[inline]
    pub(super) fn open_data(
        &mut self,
        head: FrameHead,
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if head.stream == 0 || self.is_unopened(head.stream) {
            return Err(protocol("DATA for a stream that was not opened"));
        }
        let end = head.has(flag::END_STREAM);
        let known = self.count_data(head, end, out)?;
        let pad_to_come = head.has(flag::PADDED);
        if head.len == 0 {
            return match (pad_to_come, end && known) {
                (true, _) => Err(size("a padded frame without the length of its padding")),
                (false, true) => self.data(head.stream, &[], true, out, sink),
                (false, false) => self.floods.idle(),
            };
        }
        match (known, pad_to_come) {
            (false, _) => self.floods.stray()?,
            (true, false) => self.floods.body(head.len),
            // As much of the frame as is certainly not padding.
            (true, true) => self.floods.body(head.len.saturating_sub(256)),
        }
        let left = head.len - u32::from(pad_to_come);
        self.reading = Reading::Data(Data { stream: head.stream, pad_to_come, left, padding: 0, end });
        Ok(())
    }

    /// Counts a DATA frame against both windows, and reopens them in large steps. Returns whether its stream is open.
    #[inline]
    fn count_data(&mut self, head: FrameHead, end: bool, out: &mut Vec<u8>) -> Result<bool, Http2Error> {
        let len = i64::from(head.len);
        let allowed = i64::from(self.settings.connection_window);
        self.receive_window -= len;
        if self.receive_window < 0 {
            return Err(flow("more DATA than the connection's window allows"));
        }
        if self.receive_window <= allowed / 2 {
            frame::write_window_update(out, 0, (allowed - self.receive_window) as u32);
            self.receive_window = allowed;
        }
        let Some(stream) = self.streams.get(head.stream) else { return Ok(false) };
        let allowed = i64::from(self.settings.stream_window);
        stream.receive_window -= len;
        if stream.receive_window < 0 {
            return Err(flow("more DATA than the stream's window allows"));
        }
        if stream.receive_window <= allowed / 2 && !end {
            frame::write_window_update(out, stream.id, (allowed - stream.receive_window) as u32);
            stream.receive_window = allowed;
        }
        Ok(true)
    }

    /// Reads the next bytes of a DATA frame. Returns how many were used, possibly none at the frame's end.
    #[inline]
    pub(super) fn read_data(
        &mut self,
        mut data: Data,
        bytes: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<usize, Http2Error> {
        let mut used = 0;
        if data.pad_to_come {
            data.pad_to_come = false;
            data.padding = u32::from(bytes[0]);
            data.left = data
                .left
                .checked_sub(data.padding)
                .ok_or(protocol("more padding than the frame has bytes"))?;
            used = 1;
            if data.left == 0 && !data.end {
                self.floods.idle()?;
            }
        }
        let take = (data.left as usize).min(bytes.len() - used);
        let piece = &bytes[used..used + take];
        data.left -= take as u32;
        used += take;
        if data.left == 0 {
            let skip = (data.padding as usize).min(bytes.len() - used);
            data.padding -= skip as u32;
            used += skip;
        }
        let whole = data.left == 0 && data.padding == 0;
        self.reading = if whole { Reading::Frame } else { Reading::Data(data) };
        let end = whole && data.end;
        if !piece.is_empty() || end {
            self.data(data.stream, piece, end, out, sink)?;
        }
        Ok(used)
    }

    /// Handles a piece of a body.
    #[inline]
    fn data(
        &mut self,
        id: u32,
        piece: &[u8],
        end: bool,
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        let Some(stream) = self.streams.get(id) else { return Ok(()) };
        let token = stream.token;
        if !stream.head {
            self.malformed(id, "DATA before the response head", out, sink);
            return Ok(());
        }
        let known = stream.left != ANY_LENGTH;
        let good =
            if known { piece.len().min(stream.left.min(u64::from(u32::MAX)) as usize) } else { piece.len() };
        if known {
            stream.left -= good as u64;
        }
        let breach = if good < piece.len() {
            Some("more body than content-length says, or than this response is allowed")
        } else if end && known && stream.left > 0 {
            Some("less body than content-length says")
        } else {
            None
        };
        let end = end && breach.is_none();
        if end {
            self.end(id, out);
        }
        if end {
            self.floods.response();
        }
        if good > 0 || end {
            sink(Event::Data { token, bytes: &piece[..good], end });
        }
        if let Some(message) = breach {
            self.malformed(id, message, out, sink);
        }
        Ok(())
    }

    /// Ends the stream of a complete response.
    #[inline]
    fn end(&mut self, id: u32, out: &mut Vec<u8>) {
        if self.forget(id).is_some_and(|stream| !stream.all_sent) {
            frame::write_reset(out, id, Code::CANCEL);
        }
    }

    /// Ends a stream whose response is malformed.
    #[cold]
    fn malformed(
        &mut self,
        id: u32,
        message: &'static str,
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        if let Some(stream) = self.forget(id) {
            frame::write_reset(out, id, Code::PROTOCOL_ERROR);
            self.floods.gave_up();
            sink(Event::Malformed { token: stream.token, message });
        }
    }

    /// Handles a complete frame.
    #[inline]
    pub(super) fn frame(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        match head.kind {
            kind::HEADERS => return self.headers(head, payload, out, sink),
            kind::CONTINUATION => return self.continuation(head, payload, out, sink),
            kind::RST_STREAM => return self.reset(head, payload, sink),
            kind::WINDOW_UPDATE => {
                self.floods.update()?;
                return self.window_update(head, payload, out, sink);
            }
            _ => self.floods.idle()?,
        }
        match head.kind {
            kind::PRIORITY => self.priority(head, out, sink),
            kind::SETTINGS => self.settings(head, payload, out, sink),
            kind::PUSH_PROMISE => Err(protocol("a pushed response, although push is disabled")),
            kind::PING => self.ping(head, payload, out),
            _ => self.go_away(head, payload, sink),
        }
    }

    #[inline]
    fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if head.stream == 0 || self.is_unopened(head.stream) {
            return Err(protocol("a head for a stream that was not opened"));
        }
        let mut block = payload;
        if head.has(flag::PADDED) {
            let (padding, rest) =
                block.split_first().ok_or(size("a padded frame without the length of its padding"))?;
            let kept = rest
                .len()
                .checked_sub(usize::from(*padding))
                .ok_or(protocol("more padding than the frame has bytes"))?;
            block = &rest[..kept];
        }
        if head.has(flag::PRIORITY) {
            block = block.get(5..).ok_or(size("a frame too short for its priority"))?;
        }
        let end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.block(head.stream, end, block, out, sink);
        }
        self.head = Some(OpenHead { stream: head.stream, end, continuations: 0 });
        self.block.clear();
        self.block.extend_from_slice(block);
        self.bound_block(head.stream, sink)
    }

    #[cold]
    fn continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        let Some(open) = self.head.as_mut().filter(|open| open.stream == head.stream) else {
            return Err(protocol("a CONTINUATION without a head to continue"));
        };
        open.continuations += 1;
        if open.continuations > MAX_CONTINUATIONS {
            return Err(flood("a head in too many frames"));
        }
        let open = *open;
        self.block.extend_from_slice(payload);
        self.bound_block(head.stream, sink)?;
        if !head.has(flag::END_HEADERS) {
            return Ok(());
        }
        self.head = None;
        let block = std::mem::take(&mut self.block);
        let result = self.block(open.stream, open.end, &block, out, sink);
        self.block = block;
        slim(&mut self.block);
        result
    }

    fn bound_block(&mut self, id: u32, sink: &mut impl FnMut(Event<'_>)) -> Result<(), Http2Error> {
        if self.block.len() > MAX_LIST { Err(self.head_too_large(id, sink)) } else { Ok(()) }
    }

    /// Ends the stream whose head is too long; the connection is to end with the fault that is returned.
    #[cold]
    fn head_too_large(&mut self, id: u32, sink: &mut impl FnMut(Event<'_>)) -> Http2Error {
        if let Some(stream) = self.forget(id) {
            sink(Event::HeadTooLarge { token: stream.token });
        }
        HEAD_TOO_LARGE
    }

    /// Handles a whole block of fields: a head, an interim head, or trailers.
    #[inline]
    fn block(
        &mut self,
        id: u32,
        end: bool,
        block: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        let token = self.streams.get(id).map(|stream| stream.token);
        // Also for an ended stream: the table must keep up.
        let facts = match self.unpack(block, token, sink) {
            Err(HEAD_TOO_LARGE) => return Err(self.head_too_large(id, sink)),
            unpacked => unpacked?,
        };
        let Some(stream) = self.streams.get(id) else { return self.floods.stray() };
        let token = stream.token;
        let status = facts.status;
        let breach = if facts.breach.is_some() {
            facts.breach
        } else if stream.head {
            trailers_breach(&facts, end, stream.left)
        } else if status == 0 {
            Some("a head without :status")
        } else if status == 101 {
            Some("status 101, which HTTP/2 does not have")
        } else if status < 200 {
            stream.interim += 1;
            match (end, stream.interim > MAX_INTERIM) {
                (true, _) => Some("an interim head that ends the stream"),
                (false, true) => Some(TOO_MANY_INTERIM),
                (false, false) => return self.floods.idle(),
            }
        } else {
            let no_body = stream.no_body || status == 204 || status == 304;
            stream.left = if no_body { 0 } else { facts.length.unwrap_or(ANY_LENGTH) };
            let short = end && stream.left != 0 && stream.left != ANY_LENGTH;
            short.then_some("less body than content-length says")
        };
        if let Some(message) = breach {
            self.malformed(id, message, out, sink);
            return Ok(());
        }
        let first = !std::mem::replace(&mut stream.head, true);
        if end {
            self.end(id, out);
        }
        self.floods.response();
        sink(match first {
            true => Event::Head { token, status, end },
            false => Event::Data { token, bytes: &[], end: true },
        });
        Ok(())
    }

    /// Decodes a block, or recognizes it as the last one.
    #[inline]
    fn unpack(
        &mut self,
        block: &[u8],
        token: Option<u32>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<Facts, Http2Error> {
        let known = !block.is_empty() && self.memo.block == block;
        let Settings { report_fields, report_failures, .. } = self.settings;
        let reported = token.filter(|_| report_fields || report_failures);
        let unreported = !(report_fields || (report_failures && self.memo.facts.status >= 400));
        if known && unreported && self.memo.table.is_none_or(|table| table == self.table) {
            return Ok(self.memo.facts);
        }
        let mut facts = Facts::default();
        let touched = self.decoder.decode(block, |name, value| {
            facts.take(name, value);
            if let Some(token) = reported {
                sink(Event::Field { token, name, value });
            }
        })?;
        self.decoder.slim(KEEP);
        self.table += u64::from(touched.changed);
        if !touched.changed && !self.settings.report_fields && block.len() <= MAX_MEMO {
            self.memo.block.clear();
            self.memo.block.extend_from_slice(block);
            self.memo.facts = facts;
            self.memo.table = touched.read.then_some(self.table);
        }
        Ok(facts)
    }

    fn reset(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if head.stream == 0 || self.is_unopened(head.stream) {
            return Err(protocol("RST_STREAM for a stream that was not opened"));
        }
        let (Some(code), 4) = (read_u32(payload), payload.len()) else {
            return Err(size("RST_STREAM of a wrong size"));
        };
        match self.forget(head.stream) {
            None => self.floods.stray(),
            Some(stream) => {
                self.floods.response();
                sink(Event::Reset { token: stream.token, code: Code(code) });
                Ok(())
            }
        }
    }

    fn priority(
        &mut self,
        head: FrameHead,
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if head.stream == 0 {
            return Err(protocol("PRIORITY for the connection"));
        }
        if head.len != 5 {
            self.malformed(head.stream, "PRIORITY of a wrong size", out, sink);
        }
        Ok(())
    }

    fn settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if head.stream != 0 {
            return Err(protocol("SETTINGS for a stream"));
        }
        let (pairs, []) = payload.as_chunks::<6>() else { return Err(size("SETTINGS of a wrong size")) };
        if head.has(flag::ACK) {
            return if pairs.is_empty() { Ok(()) } else { Err(size("an acknowledgement with settings")) };
        }
        let before = self.peer_max_streams;
        if !self.greeted {
            // Unlimited unless announced.
            self.peer_max_streams = u32::MAX;
        }
        let mut window = self.peer_window;
        for [i, j, a, b, c, d] in pairs {
            let (id, value) = (u16::from_be_bytes([*i, *j]), u32::from_be_bytes([*a, *b, *c, *d]));
            if id == setting::INITIAL_WINDOW_SIZE {
                window = i64::from(value);
            }
            self.setting(id, value)?;
        }
        self.resize_windows(window)?;
        frame::write(out, kind::SETTINGS, flag::ACK, 0, &[]);
        self.floods.reply()?;
        if !self.greeted || before != self.peer_max_streams {
            sink(Event::SettingsChanged { max_streams: self.peer_max_streams });
        }
        self.greeted = true;
        Ok(())
    }

    fn setting(&mut self, id: u16, value: u32) -> Result<(), Http2Error> {
        match id {
            setting::HEADER_TABLE_SIZE => self.encoder.allow(value),
            setting::ENABLE_PUSH if value != 0 => {
                return Err(protocol("a server that enables push"));
            }
            setting::MAX_CONCURRENT_STREAMS => self.peer_max_streams = value,
            setting::INITIAL_WINDOW_SIZE if value > MAX_31 => return Err(flow("a window beyond 2^31 - 1")),
            setting::MAX_FRAME_SIZE => {
                if !(DEFAULT_MAX_FRAME..=LARGEST_FRAME).contains(&value) {
                    return Err(protocol("a frame size out of range"));
                }
                self.peer_max_frame = value;
            }
            _ => {}
        }
        Ok(())
    }

    /// Adjusts the windows of open streams to a new initial size (RFC 9113 §6.9.2). Once per frame: visiting every
    /// stream for each setting in it would make an attack cheap.
    fn resize_windows(&mut self, window: i64) -> Result<(), Http2Error> {
        let more = window - self.peer_window;
        if more == 0 {
            return Ok(());
        }
        self.peer_window = window;
        self.may_flush |= !self.queue.is_empty();
        for stream in self.streams.iter_mut() {
            stream.send_window += more;
            if stream.send_window > i64::from(MAX_31) {
                return Err(flow("a window beyond 2^31 - 1"));
            }
        }
        Ok(())
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Http2Error> {
        if head.stream != 0 {
            return Err(protocol("PING for a stream"));
        }
        if payload.len() != 8 {
            return Err(size("PING of a wrong size"));
        }
        if head.has(flag::ACK) {
            return Ok(());
        }
        frame::write(out, kind::PING, flag::ACK, 0, payload);
        self.floods.reply()
    }

    fn go_away(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        if head.stream != 0 {
            return Err(protocol("GOAWAY for a stream"));
        }
        let (Some(last), Some(code)) = (read_u32(payload), payload.get(4..).and_then(read_u32)) else {
            return Err(size("GOAWAY of a wrong size"));
        };
        // A later GOAWAY may name an earlier stream, never a later one.
        let last_stream = (last & MAX_31).min(self.going_away.unwrap_or(MAX_31));
        self.going_away = Some(last_stream);
        sink(Event::GoAway { last_stream, code: Code(code) });
        // A GOAWAY is rare: it may allocate.
        let mut after: Vec<u32> = self.streams.iter().map(|s| s.id).filter(|id| *id > last_stream).collect();
        after.sort_unstable();
        for stream in after.into_iter().filter_map(|id| self.forget(id)) {
            sink(Event::Unprocessed { token: stream.token });
        }
        Ok(())
    }

    fn window_update(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        out: &mut Vec<u8>,
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Http2Error> {
        let (Some(word), 4) = (read_u32(payload), payload.len()) else {
            return Err(size("WINDOW_UPDATE of a wrong size"));
        };
        let more = i64::from(word & MAX_31);
        self.may_flush |= !self.queue.is_empty();
        if head.stream == 0 {
            self.send_window += more;
            return match more {
                0 => Err(protocol("a window that grows by nothing")),
                _ if self.send_window > i64::from(MAX_31) => Err(flow("a window beyond 2^31 - 1")),
                _ => Ok(()),
            };
        }
        if self.is_unopened(head.stream) {
            return Err(protocol("WINDOW_UPDATE for a stream that was not opened"));
        }
        let Some(stream) = self.streams.get(head.stream) else { return Ok(()) };
        stream.send_window += more;
        if more == 0 {
            self.malformed(head.stream, "a window that grows by nothing", out, sink);
        } else if stream.send_window > i64::from(MAX_31) {
            self.malformed(head.stream, "a window beyond 2^31 - 1", out, sink);
        }
        Ok(())
    }
}

fn trailers_breach(facts: &Facts, end: bool, left: u64) -> Option<&'static str> {
    if !end {
        Some("a second head")
    } else if facts.pseudo {
        Some("a pseudo-header field in trailers")
    } else if left != 0 && left != ANY_LENGTH {
        Some("less body than content-length says")
    } else {
        None
    }
}
