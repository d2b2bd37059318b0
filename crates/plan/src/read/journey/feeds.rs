//! Reads data feeds, and checks the columns that steps use against the files once those have been read.

use crate::keys::journey::FEED;
use crate::model::journey::{ColumnUse, FeedFormat, FeedSpec};
use crate::model::plan::Plan;
use crate::read::names::KnownFeed;
use crate::read::reader::{Fields, Reader};
use crate::read::texts::{in_folder, place};
use crate::text::error::{PlanError, PlanErrors, Problem};
use crate::text::node::Entry;
use crate::text::shorten::shorten;
use crate::text::suggest;

/// Reads the feeds of a load, and makes their names known to its steps.
pub(crate) fn read(r: &mut Reader<'_>, fields: &Fields<'_>) -> Vec<FeedSpec> {
    let Some(node) = fields.get("feeds") else { return Vec::new() };
    let mut feeds = Vec::new();
    for entry in r.map(node, "a map of feeds by name") {
        if !r.check_variable(&entry.key, entry.key_span, "a feed") {
            continue;
        }
        if let Some(slot) = r.names.slot(&entry.key) {
            let problem =
                Problem::new(entry.key_span, format!("`{}` is already captured by `setup`", entry.key));
            let problem = problem.related("captured here", r.names.captures[slot].span);
            r.push(problem.hint("rename one of the two"));
            continue;
        }
        // The feed is known even if something is wrong with it, so that its columns are not unknown names.
        let known = KnownFeed { name: entry.key.clone(), span: entry.key_span, columns: Vec::new() };
        r.names.feeds.push(known);
        feeds.push(read_one(r, entry));
    }
    // If a feed cannot be read, the whole plan is refused.
    if feeds.iter().all(Option::is_some) { feeds.into_iter().flatten().collect() } else { Vec::new() }
}

fn read_one(r: &mut Reader<'_>, entry: &Entry) -> Option<FeedSpec> {
    let fields = r.fields(&entry.value, &FEED, entry.key_span)?;
    let is_shuffled = r.choice(&fields, "order") == Some("shuffled");
    let is_once = r.flag(&fields, "once").unwrap_or(false);
    let is_per_user = r.choice(&fields, "per") == Some("user");
    let given = r.choice(&fields, "format");
    let node = fields.get("file")?;
    let path = r.scalar(node, "a path")?;
    let ends = |ending: &str| path.text.to_ascii_lowercase().ends_with(ending);
    let format = match given {
        Some("csv") => FeedFormat::Csv,
        Some(_) => FeedFormat::JsonLines,
        None if ends(".csv") => FeedFormat::Csv,
        None if ends(".jsonl") || ends(".ndjson") => FeedFormat::JsonLines,
        None => {
            let message = format!("unknown format of `{}`", shorten(&path.text));
            r.wrong(&path, message, Some("add `format: csv` or `format: json_lines`".to_owned()));
            return None;
        }
    };
    Some(FeedSpec {
        name: entry.key.clone(),
        file: in_folder(r.plan_dir, &path.text),
        at: place(r, node.span),
        format,
        is_shuffled,
        is_once,
        is_per_user,
        columns: Vec::new(),
    })
}

/// Adds the columns that steps use, once all steps have been read.
pub(crate) fn add_columns(r: &Reader<'_>, feeds: &mut [FeedSpec]) {
    for (feed, known) in feeds.iter_mut().zip(&r.names.feeds) {
        let place = |(name, span): &(String, _)| ColumnUse { name: name.clone(), at: place(r, *span) };
        feed.columns = known.columns.iter().map(place).collect();
    }
}

impl Plan {
    /// Checks the columns that steps use against the files. `columns_of` reads the names of a file's columns, or
    /// returns why it cannot; it is called once per file. Files that commands of the plan have yet to make cannot be
    /// checked before they exist.
    ///
    /// # Errors
    /// Every file that cannot be read, and every missing column, at its place in the plan.
    pub fn check_feeds(
        &self,
        columns_of: &mut dyn FnMut(&FeedSpec) -> Result<Vec<String>, String>,
    ) -> Result<(), PlanErrors> {
        let mut asked: Vec<(&str, FeedFormat, Option<Vec<String>>)> = Vec::new();
        let mut errors: Vec<PlanError> = Vec::new();
        for feed in self.cases.iter().flat_map(|c| &c.loads).flat_map(|l| &l.script.feeds) {
            let at = asked.iter().position(|(file, format, _)| *file == feed.file && *format == feed.format);
            let at = at.unwrap_or_else(|| {
                let read = columns_of(feed).map_err(|why| {
                    let message = format!("cannot read the feed `{}`: {why}", feed.name);
                    let hint = "relative paths start at the plan's folder";
                    errors.push(feed.at.mistake(message, Some(hint.to_owned())));
                });
                asked.push((&feed.file, feed.format, read.ok()));
                asked.len() - 1
            });
            let Some(known) = &asked[at].2 else { continue };
            let names: Vec<&str> = known.iter().map(String::as_str).collect();
            for column in feed.columns.iter().filter(|c| !known.contains(&c.name)) {
                let message = format!("feed `{}` has no column `{}`", feed.name, shorten(&column.name));
                let error = column.at.mistake(message, suggest::hint(&column.name, &names));
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(PlanErrors(errors)) }
    }
}
