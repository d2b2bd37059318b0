//! Why a step of a journey failed, beyond its status.

use crate::journey::check::Failed;
use crate::journey::{capture, decode, redirect, template};

/// Why a step failed, beyond its status; small, since each failure carries one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepFailure {
    /// The request could not be written.
    Unwritten(template::TemplateError),
    /// A check failed.
    Check(Failed),
    /// A value is missing or unsuitable; index of the capture within the step.
    Capture(u16, capture::CaptureError),
    /// The body is longer than [`MAX_BODY`](crate::journey::response::MAX_BODY).
    TooLong,
    /// A redirect was not followed.
    Redirect(redirect::RedirectError),
    /// The body does not decode.
    Encoded(decode::DecodeError),
    /// A text to be sent is not UTF-8.
    NotText,
    /// A text with variables does not occur in the response.
    NoEcho,
}

impl StepFailure {
    /// Whether the response was good except for a missing value.
    pub fn is_of_capture(self) -> bool {
        matches!(self, StepFailure::Capture(..))
    }

    /// The reason in words that fit every response.
    pub fn describe(self) -> &'static str {
        match self {
            StepFailure::Unwritten(fault) => fault.describe(),
            StepFailure::Check(Failed::Status) => "check failed: status",
            StepFailure::Check(Failed::Header(_)) => "check failed: header",
            StepFailure::Check(Failed::Contains(_)) => "check failed: the body does not contain the text",
            StepFailure::Check(Failed::Json(_)) => "check failed: JSON",
            StepFailure::Check(Failed::Size(_)) => "check failed: size",
            StepFailure::Check(Failed::Time(_)) => "check failed: time",
            StepFailure::Capture(_, fault) => fault.describe(),
            StepFailure::Redirect(fault) => fault.describe(),
            StepFailure::Encoded(fault) => fault.describe(),
            StepFailure::NoEcho => "check failed: the message does not contain the text",
            StepFailure::NotText => "the text to send is not UTF-8",
            StepFailure::TooLong => "the body is too long for checks and captures",
        }
    }
}
