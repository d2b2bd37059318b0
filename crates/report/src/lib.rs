//! Findings → documents. Pure: a record goes in, text comes out, and the same input gives the same bytes.
//!
//! - [`compose()`]: record → [`document::Document`], the contents and order of a report.
//! - [`render`]: a document as text for a terminal, as Markdown, as HTML.
//! - [`export`]: a record as JSON and CSV, for other programs.
//! - [`mod@junit`]: expectations for continuous integration.
//! - [`history`]: runs side by side over time.
//! - [`trial`]: one trial in words: the final output of `loadlab bench`; [`wording`]: words that all forms share.
//! - [`figures`]: figures for readers, the same in every format.
//! - [`colour`]: the meanings of colours.
//! - [`plane`]: points in a plane, and their positions.
//! - [`bins`]: a histogram with round edges.
//! - [`markup`]: text in HTML and XML.
//! - [`terminal`]: text of a given width.
//! - [`assets`]: the building blocks of our pages.

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
pub mod wording;

pub use compose::compared::{describe_differing_parts, document as compared};
pub use compose::{Layout, brief, compose, layout};
pub use export::{comparisons_json, csv, json};
pub use junit::{junit, junit_of, junit_of_search};
pub use render::html::html;
pub use render::markdown::{escape as escape_markdown, markdown};
pub use render::text::text;
pub use trial::{Trial, trial_text};
