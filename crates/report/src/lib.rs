//! Findings → documents. Pure: a record goes in, text comes out, and twice the same makes the same bytes.
//!
//! - [`compose()`]: record → [`document::Document`], what a report says and in which order.
//! - [`render`]: a document as text for a terminal, as Markdown, as HTML.
//! - [`export`]: a record as JSON and CSV, for other programs.
//! - [`mod@junit`]: expectations for continuous integration.
//! - [`history`]: runs side by side as time went on.
//! - [`trial`]: the end of `loadlab bench` on a terminal.
//! - [`figures`]: figures as people read them, the same in every format.
//! - [`colour`]: what a colour stands for.
//! - [`plane`]: points in a plane, and where they stand.
//! - [`bins`]: a histogram with round edges.
//! - [`markup`]: text in HTML and XML.
//! - [`terminal`]: text of a given width.
//! - [`assets`]: what our pages stand on.

pub mod assets;
pub mod bins;
pub mod colour;
pub mod compose;
pub mod document;
pub mod export;
pub mod figures;
pub mod history;
pub mod junit;
pub mod markup;
pub mod plane;
pub mod render;
pub mod terminal;
pub mod trial;

pub use compose::compared::document as compared;
pub use compose::{Layout, brief, compose, layout};
pub use export::{comparisons_json, csv, json};
pub use junit::{junit, junit_of, junit_of_search};
pub use render::html::html;
pub use render::markdown::markdown;
pub use render::text::text;
pub use trial::{Trial, trial_text};
