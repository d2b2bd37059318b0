//! Which parts of the journey language can be carried out today.
//!
//! The language is written down before the engine speaks all of it. A key or variable of a feature that is not in
//! [`READY`] is refused at its place, and the schema does not have it; adding the feature there switches it on.
//! [`crate::Options::preview`] reads all of it, for tests and for those who build on it.

/// A part of the language that is switched on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// `setup`: steps once before the loads.
    Setup,
    /// `before` and `after`: steps once per user.
    Around,
    /// `weight`: a mix of requests.
    Weight,
    /// `${user}`, `${uuid}` and their like in steps.
    Variables,
    /// `feeds`: rows of data.
    Feeds,
    /// `urls`: a list of URLs from a file.
    Urls,
    /// `capture`.
    Capture,
    /// Checks beyond the status.
    Checks,
    /// `on_failure`.
    OnFailure,
    /// `auth`.
    Auth,
    /// `form`.
    Form,
    /// `multipart`.
    Multipart,
    /// `cookies`.
    Cookies,
    /// `redirects`.
    Redirects,
    /// `compressed`.
    Compressed,
    /// `sessions`: users that arrive and leave.
    Sessions,
    /// `https` URLs and `tls`.
    Tls,
    /// `protocol` and `streams`.
    Http2,
    /// `proxy`.
    Proxy,
    /// `unix:` URLs.
    Unix,
    /// `websocket`.
    WebSocket,
}

/// What can be carried out.
pub(crate) const READY: &[Feature] = &[
    Feature::Setup,
    Feature::Around,
    Feature::Weight,
    Feature::Variables,
    Feature::Feeds,
    Feature::Capture,
    Feature::Checks,
    Feature::OnFailure,
    Feature::Auth,
    Feature::Form,
    Feature::Multipart,
    Feature::Cookies,
    Feature::Redirects,
    Feature::Compressed,
    Feature::Sessions,
    Feature::Tls,
    Feature::Http2,
];

impl Feature {
    /// Whether it can be carried out.
    pub fn is_ready(self) -> bool {
        READY.contains(&self)
    }

    /// What is said where it is used and cannot be carried out.
    pub(crate) fn refusal(self) -> &'static str {
        match self {
            Feature::Setup => "`setup` is not supported yet",
            Feature::Around => "`before` and `after` are not supported yet",
            Feature::Weight => "`weight` is not supported yet",
            Feature::Variables => "variables in requests are not supported yet",
            Feature::Feeds => "data feeds are not supported yet",
            Feature::Urls => "lists of URLs are not supported yet in plans",
            Feature::Capture => "`capture` is not supported yet",
            Feature::Checks => "checks beyond the status are not supported yet",
            Feature::OnFailure => "`on_failure` is not supported yet",
            Feature::Auth => "`auth` is not supported yet",
            Feature::Form => "`form` is not supported yet",
            Feature::Multipart => "`multipart` is not supported yet",
            Feature::Cookies => "`cookies` are not supported yet",
            Feature::Redirects => "`redirects` are not supported yet",
            Feature::Compressed => "`compressed` is not supported yet",
            Feature::Sessions => "`sessions` are not supported yet",
            Feature::Tls => "`https` targets are not supported yet",
            Feature::Http2 => "only HTTP/1.1 is supported yet",
            Feature::Proxy => "`proxy` is not supported yet",
            Feature::Unix => "`unix` targets are not supported yet",
            Feature::WebSocket => "WebSocket steps are not supported yet",
        }
    }
}
