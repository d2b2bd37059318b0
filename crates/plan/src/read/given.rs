//! Puts in what a text asks for from outside.

use loadlab_record::secrets::LEAST_BYTES;
use loadlab_record::spec::escape::Escape;

use crate::credentials;
use crate::outside::{MOST_BYTES, Missing, OutsideName, Reference};
use crate::read::journey::target;
use crate::read::reader::{NameSpot, Reader, Resolved, Scope, When};
use crate::text::encode;
use crate::text::error::Problem;
use crate::text::node::ScalarKind;
use crate::text::shorten::shorten;

impl Reader<'_> {
    /// Puts in what a name asks for from outside.
    pub fn put_outside(
        &mut self,
        asked: Result<OutsideName, (String, String)>,
        spot: &NameSpot<'_>,
        out: &mut Resolved,
    ) {
        out.kind = ScalarKind::Text;
        let value = asked.map_err(Some).and_then(|asked| {
            let value = self.outside_value(&asked, spot)?;
            Ok((asked, value))
        });
        match value {
            Ok((asked, value)) => {
                let escape = escape_at(spot, &out.template.sample().0);
                let escape = if asked.is_raw { encode::raw(escape) } else { escape };
                let value = encode::written(&value, escape);
                match (spot.when, asked.is_public) {
                    // A value that is needed now becomes part of the plan, and is masked where the plan is shown.
                    (When::Now, _) | (When::Run | When::Url, true) => out.template.push_text(&value),
                    (_, is_public) => {
                        out.template.push_given(value, (!is_public).then(|| spot.name.to_owned()));
                    }
                }
            }
            Err(wrong) => {
                out.whole = false;
                if let Some((message, hint)) = wrong {
                    self.wrong_outside(spot, message, hint);
                }
            }
        }
    }

    /// The value from outside; `Err(None)` if a missing value need not be reported.
    fn outside_value(
        &mut self,
        asked: &OutsideName,
        spot: &NameSpot<'_>,
    ) -> Result<String, Option<(String, String)>> {
        let OutsideName { reference, is_public, .. } = asked;
        let outside = self.outside;
        let value = match outside.get(reference) {
            Ok(value) => value,
            // A profile that was not chosen may ask for what is missing here.
            Err(_) if self.is_lenient => return Err(None),
            Err(missing) => return Err(Some(describe_missing(reference, missing))),
        };
        let is_header = matches!(spot.when, When::Request(Escape::Header));
        let bad = |c: char| if is_header { c.is_control() && c != '\t' } else { c == '\0' };
        if value.contains(bad) {
            let message =
                format!("the value of `${{{reference}}}` contains a line break or control character");
            let what = if is_header {
                "a header field must be a single line"
            } else {
                "NUL characters are not allowed here"
            };
            return Err(Some((message, what.to_owned())));
        }
        if *is_public {
            return Ok(value.to_owned());
        }
        if value.len() < LEAST_BYTES {
            let bytes = value.len();
            let message = format!(
                "the value of `${{{reference}}}` has {bytes} bytes: a secret needs at least {LEAST_BYTES}, \
                 because it is masked wherever it appears"
            );
            return Err(Some((message, format!("if it is not a secret, write `${{public:{reference}}}`"))));
        }
        self.used_secret = Some(spot.node.span);
        self.secrets.extend(credentials::parts(value));
        Ok(value.to_owned())
    }

    fn wrong_outside(&mut self, spot: &NameSpot<'_>, message: String, hint: String) {
        let here = self.inner_span(spot.node, spot.name);
        let problem = match (spot.origin, self.scope) {
            (Some(origin), Scope::Case(case)) => Problem::new(origin, message)
                .related(format!("used here, in case `{}`", case.name), spot.node.span),
            _ => Problem::new(here, message),
        };
        self.push(problem.hint(hint));
    }
}

fn describe_missing(reference: &Reference, missing: &Missing) -> (String, String) {
    let what = match reference {
        Reference::Env(name) => format!("the environment variable `{}`", shorten(name)),
        Reference::File(path) => format!("the file `{}`", shorten(path)),
    };
    match (missing, reference) {
        (Missing::Unset, Reference::Env(name)) => {
            (format!("{what} is not set"), format!("set it for loadlab: `export {}=…`", shorten(name)))
        }
        (Missing::Unset, Reference::File(_)) => {
            (format!("{what} was not read"), "values of files are given from outside".to_owned())
        }
        (Missing::NotText, _) => {
            (format!("{what} is not UTF-8 text"), "encode it, in base64 for example".to_owned())
        }
        (Missing::TooLong, _) => {
            let message = format!("{what} is larger than {} KiB", MOST_BYTES / 1024);
            (message, "to send a file as the body, write `body: { file: PATH }`".to_owned())
        }
        (Missing::Unreadable(why), _) => {
            (format!("cannot read {what}: {why}"), "the path is relative to the plan's folder".to_owned())
        }
    }
}

/// How a value is escaped at a place. At the beginning of a URL it is not escaped, since it may be the whole URL,
/// except as user or password.
fn escape_at(spot: &NameSpot<'_>, so_far: &str) -> Escape {
    match spot.when {
        When::Now | When::Run => Escape::Raw,
        When::Url | When::Request(Escape::Url | Escape::UrlRaw) if !target::has_path(so_far) => {
            if spot.is_user && so_far.contains("://") { Escape::Url } else { Escape::Raw }
        }
        When::Url => Escape::Url,
        When::Request(escape) => escape,
    }
}
