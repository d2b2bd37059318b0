//! URL files with one URL per line: `--urls FILE` of `bench`, and steps with `urls` in plans.
//!
//! If the list is all that a load does, it is used as in `bench`: any free user takes the next URL. In any other
//! journey the file is a feed, and each round takes the next path.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use loadlab_load::spec::RequestOrder;
use loadlab_load::target::{Allowed, TargetError, Url};
use loadlab_plan as plan;

use crate::translate::error::TranslateError;
use crate::translate::scripted::needs_script;

/// Maximum number of URLs in a file: hosts and requests have 16-bit indices.
const MAX_URLS: usize = u16::MAX as usize;
/// Column name of the paths when a list is used as a feed.
const COLUMN: &str = "url";

/// Why a URL file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlListError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// A line is not a URL.
    #[error("{}:{line}:1: {error}", path.display())]
    Line {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong.
        error: TargetError,
    },
    /// The file contains no URLs.
    #[error("{} contains no URL\nhint: write one on each line", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// There are more URLs than can be indexed.
    #[error("{} contains {count} URLs; at most {MAX_URLS} are allowed", path.display())]
    TooMany {
        /// Path of the file.
        path: PathBuf,
        /// Number of URLs in the file.
        count: usize,
    },
}

/// The URLs of a file, one per line; empty lines and lines that start with `#` are skipped.
///
/// # Errors
/// See [`UrlListError`].
pub fn read_urls(path: &Path) -> Result<Vec<String>, UrlListError> {
    let path = || path.to_owned();
    let text = std::fs::read_to_string(path()).map_err(|error| UrlListError::File { path: path(), error })?;
    let mut urls = Vec::new();
    // Editors on Windows begin a file with a byte-order mark.
    for (i, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        Url::parse(line).map_err(|error| UrlListError::Line { path: path(), line: i + 1, error })?;
        urls.push(line.to_owned());
    }
    match urls.len() {
        0 => Err(UrlListError::Empty { path: path() }),
        count if count > MAX_URLS => Err(UrlListError::TooMany { path: path(), count }),
        _ => Ok(urls),
    }
}

/// Checks that existing lists are valid and that their URLs may be loaded. Lists that the plan's commands may still
/// create are checked when they are used.
///
/// # Errors
/// The first list or URL that fails the check.
pub fn check(plan: &plan::Plan, plan_dir: &Path, allowed: &Allowed) -> Result<(), TranslateError> {
    for load in plan.cases().iter().flat_map(|case| &case.loads) {
        for (i, step) in load.journey.iter().enumerate() {
            let Some(file) = &step.urls else { continue };
            let what = format!("step {} of `{}`", i + 1, load.name);
            if !plan_dir.join(file).exists() && makes_files(plan) {
                continue;
            }
            for text in urls_of(file, &what, plan_dir)? {
                let wrong = |error| TranslateError::Target { what: what.clone(), error };
                let url = Url::parse(&text).map_err(wrong)?;
                match load.http.proxy {
                    None => url.resolve(allowed).map(drop).map_err(wrong)?,
                    Some(_) => url.by_proxy(allowed).map_err(wrong)?,
                }
            }
        }
    }
    Ok(())
}

/// Whether commands of the plan may create files before a load starts.
pub fn makes_files(plan: &plan::Plan) -> bool {
    plan.cases().iter().any(|case| {
        let system = &case.system;
        let builds = system.components.iter().any(|c| !c.build.is_empty());
        builds || !system.seed.is_empty() || !system.before_trial.is_empty()
    })
}

fn urls_of(file: &str, what: &str, plan_dir: &Path) -> Result<Vec<String>, TranslateError> {
    let part =
        |error: UrlListError| TranslateError::Part { what: what.to_owned(), message: error.to_string() };
    read_urls(&plan_dir.join(file)).map_err(part)
}

/// The load with its lists replaced by URLs, and how requests are assigned to users.
///
/// # Errors
/// A list cannot be read, or names several hosts although it has to be a feed.
pub fn expanded<'l>(
    load: &'l plan::LoadSpec,
    plan_dir: &Path,
) -> Result<(Cow<'l, plan::LoadSpec>, RequestOrder), TranslateError> {
    let lists = load.journey.iter().filter(|step| step.urls.is_some()).count();
    if lists == 0 {
        return Ok((Cow::Borrowed(load), RequestOrder::Journey));
    }
    let mut load = load.clone();
    if is_nothing_else(&load) {
        let step = load.journey.remove(0);
        let what = format!("step 1 of `{}`", load.name);
        for url in urls_of(step.urls.as_deref().unwrap_or_default(), &what, plan_dir)? {
            load.journey.push(plan::Step { url: plan::Template::text(url), urls: None, ..step.clone() });
        }
        return Ok((Cow::Owned(load), RequestOrder::Shared));
    }
    for i in 0..load.journey.len() {
        let Some(file) = load.journey[i].urls.take() else { continue };
        let what = format!("step {} of `{}`", i + 1, load.name);
        let urls = urls_of(&file, &what, plan_dir)?;
        let base = common_base(&urls, &what)?;
        let feed = load.script.feeds.len() as u16;
        let at = load.journey[i].at.clone();
        let columns = vec![plan::ColumnUse { name: COLUMN.to_owned(), at: at.clone() }];
        let shown = Path::new(&file).file_name().map_or(file.clone(), |n| n.to_string_lossy().into_owned());
        load.journey[i].url = plan::Template::with_target(&base, feed, 0, &shown);
        load.script.feeds.push(plan::FeedSpec {
            name: file.clone(),
            file,
            at,
            format: plan::FeedFormat::UrlList,
            is_shuffled: false,
            is_once: false,
            is_per_user: false,
            columns,
        });
    }
    Ok((Cow::Owned(load), RequestOrder::Journey))
}

/// Whether the list is the whole journey, and it does not matter which user takes which URL.
fn is_nothing_else(load: &plan::LoadSpec) -> bool {
    let paced = matches!(load.model, plan::Model::Closed { pace_ns: Some(_), .. });
    let counted = matches!(load.until, plan::Until::Repeats(_));
    load.journey.len() == 1 && !paced && !counted && !needs_script(load, load.journey.iter())
}

/// The prefix common to all URLs: scheme and host, or the socket.
fn common_base(urls: &[String], what: &str) -> Result<String, TranslateError> {
    let base = |text: &String| {
        let url =
            Url::parse(text).map_err(|error| TranslateError::Target { what: what.to_owned(), error })?;
        Ok::<_, TranslateError>(match (&url.socket, url.is_secure) {
            (Some(socket), _) => format!("unix:{socket}:"),
            (None, true) => format!("https://{}", url.authority),
            (None, false) => format!("http://{}", url.authority),
        })
    };
    let first = base(&urls[0])?;
    for text in urls {
        let other = base(text)?;
        if other != first {
            let message = format!(
                "its URLs go to `{first}` and to `{other}`\nhint: in a journey with other steps, rounds or \
                 variables, all URLs of a list must go to one host; for several hosts, put the list into a \
                 separate load"
            );
            return Err(TranslateError::Part { what: what.to_owned(), message });
        }
    }
    Ok(first)
}

/// Converts a list to the CSV file that a feed reads: a column of paths with queries.
///
/// # Errors
/// See [`UrlListError`].
pub fn as_csv(path: &Path) -> Result<Vec<u8>, UrlListError> {
    let mut text = format!("{COLUMN}\n");
    for (i, line) in read_urls(path)?.iter().enumerate() {
        let wrong = |error| UrlListError::Line { path: path.to_owned(), line: i + 1, error };
        let url = Url::parse(line).map_err(wrong)?;
        text.push_str(&format!("\"{}\"\n", url.path.replace('"', "\"\"")));
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_of(more: &str, steps: &str) -> plan::LoadSpec {
        let text = format!(
            "loadlab: 1\nname: n\nload:\n  users: 2\n  {more}\n  journey:\n    - {{ urls: list, headers: {{ a: b }} }}\n{steps}"
        );
        let plan = plan::Plan::parse("plan.yaml", &text, &plan::Options::default());
        plan.unwrap_or_else(|e| panic!("{e}")).cases()[0].loads[0].clone()
    }

    fn shown(load: &plan::LoadSpec, list: &str) -> Result<(Vec<String>, RequestOrder, usize), String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("list"), list).unwrap();
        let (load, order) = expanded(load, dir.path()).map_err(|e| e.to_string())?;
        assert!(load.journey.iter().all(|s| s.urls.is_none()));
        Ok((load.journey.iter().map(|s| s.url.to_string()).collect(), order, load.script.feeds.len()))
    }

    const LIST: &str = "# a list\nhttp://127.0.0.1:1/a?b=\"c\",d\n\n  http://127.0.0.1:1/e  \n";

    #[test]
    fn a_list_alone_is_shared_by_all_users() {
        let urls = ["http://127.0.0.1:1/a?b=\"c\",d".to_owned(), "http://127.0.0.1:1/e".to_owned()];
        assert_eq!(shown(&load_of("requests: 9", ""), LIST), Ok((urls.to_vec(), RequestOrder::Shared, 0)));
        let two = "http://127.0.0.1:1/\nunix:/run/x:/\n";
        assert_eq!(shown(&load_of("duration: 1s", ""), two).map(|s| s.0.len()), Ok(2));
    }

    #[test]
    fn a_list_that_is_not_alone_is_a_feed() {
        let url = "http://127.0.0.1:1${list}".to_owned();
        let plain = "    - { get: \"http://127.0.0.1:2/\" }\n";
        let with = vec![url.clone(), "http://127.0.0.1:2/".to_owned()];
        assert_eq!(shown(&load_of("requests: 9", plain), LIST), Ok((with, RequestOrder::Journey, 1)));
        for more in ["repeats: 3", "{ duration: 1s, pace: 1s }", "{ requests: 9, cookies: true }"] {
            let more = more.trim_matches(['{', '}', ' ']).replace(", ", "\n  ");
            assert_eq!(
                shown(&load_of(&more, ""), LIST),
                Ok((vec![url.clone()], RequestOrder::Journey, 1)),
                "{more}"
            );
        }
        let two = shown(&load_of("requests: 9", plain), "http://127.0.0.1:1/\nhttps://127.0.0.1:1/\n");
        assert_eq!(
            two.unwrap_err().lines().next(),
            Some("step 1 of `load`: its URLs go to `http://127.0.0.1:1` and to `https://127.0.0.1:1`")
        );
    }

    #[test]
    fn files_that_are_no_lists() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let check = |content: &str, expect: &str| {
            std::fs::write(&path, content).unwrap();
            let error =
                read_urls(&path).unwrap_err().to_string().replace(&path.display().to_string(), "list");
            assert!(error.starts_with(expect), "{error}");
        };
        check("# nothing\n\n", "list contains no URL");
        check("http://a/\n\nftp://b/\n", "list:3:1: `ftp://b/` is not a URL");
        check("\u{feff}http://a/\nb c\n", "list:2:1: ");
        check("unix:a:/", "list:1:1: `unix:a:/` is not a Unix socket");
        check(&"http://a/\n".repeat(MAX_URLS + 1), "list contains 65536 URLs; at most 65535 are allowed");
        std::fs::remove_file(&path).unwrap();
        assert!(read_urls(&path).unwrap_err().to_string().starts_with("cannot read "));
        std::fs::write(&path, LIST).unwrap();
        assert_eq!(as_csv(&path).unwrap(), b"url\n\"/a?b=\"\"c\"\",d\"\n\"/e\"\n");
    }
}
