//! Converts journeys of the plan to the engine's building blocks: templates, captures, checks, rows.
//!
//! Every error is reported with the step it belongs to or its position in the plan.

use std::path::Path;

use loadlab_load::journey::capture::{Capture, CaptureSource, Pattern};
use loadlab_load::journey::check::{self, Checks, Expect, JsonCheck};
use loadlab_load::journey::json::Pointer;
use loadlab_load::journey::rows::{self, Rows};
use loadlab_load::journey::script::Expected;
use loadlab_load::journey::template::Template;
use loadlab_load::spec::request::RequestError;
use loadlab_plan as plan;

use crate::translate::error::{Names, TranslateError};
use crate::translate::urls;

/// Compiles a text of a step.
///
/// # Errors
/// A name has no value, or a header field contains a control character.
pub fn template(text: &plan::Template, what: &str, names: Names<'_>) -> Result<Template, TranslateError> {
    let name = |error| TranslateError::Name { what: what.to_owned(), error };
    let mut out = Template::default();
    append(&mut out, text.resolve(names).map_err(name)?, what)?;
    Ok(out)
}

/// Appends the segments of a text.
///
/// # Errors
/// A header field contains a control character.
pub fn append(
    out: &mut Template,
    segments: impl IntoIterator<Item = plan::Segment>,
    what: &str,
) -> Result<(), TranslateError> {
    for segment in segments {
        match segment {
            plan::Segment::Text { text, escape } => {
                let pushed = out.push_text(text.as_bytes(), escape);
                pushed.map_err(|_| TranslateError::Request {
                    what: what.to_owned(),
                    error: RequestError::HeaderValue(text),
                })?;
            }
            plan::Segment::Variable { variable, escape } => out.push(variable, escape),
        }
    }
    Ok(())
}

/// The value of the `Authorization` header.
///
/// # Errors
/// See [`template`].
pub fn authorization(auth: &plan::Auth, what: &str, names: Names<'_>) -> Result<Template, TranslateError> {
    match auth {
        plan::Auth::Bearer(token) => {
            let mut out = Template::fixed(b"Bearer ");
            out.append(template(token, what, names)?);
            Ok(out)
        }
        plan::Auth::Basic { user, password } => {
            let mut inner = template(user, what, names)?;
            inner.append(Template::fixed(b":"));
            inner.append(template(password, what, names)?);
            let mut out = Template::fixed(b"Basic ");
            out.push_base64(inner);
            Ok(out)
        }
    }
}

/// The body of a step and its default content type, which a header may override.
///
/// # Errors
/// See [`template`]; also, a file cannot be read.
pub fn body(
    body: &plan::Body,
    what: &str,
    plan_dir: &Path,
    names: Names<'_>,
) -> Result<Option<(Template, Option<String>)>, TranslateError> {
    let typed = |text, kind: &str| Ok(Some((template(text, what, names)?, Some(kind.to_owned()))));
    match body {
        plan::Body::Empty => Ok(None),
        plan::Body::Text(text) => Ok(Some((template(text, what, names)?, None))),
        plan::Body::Json(text) => typed(text, "application/json"),
        plan::Body::Form(text) => typed(text, "application/x-www-form-urlencoded"),
        plan::Body::File(path) => {
            let path = plan_dir.join(path);
            let read = std::fs::read(&path);
            let bytes = read.map_err(|error| TranslateError::Body { what: what.to_owned(), path, error })?;
            Ok(Some((Template::fixed(&bytes), None)))
        }
        plan::Body::Multipart(parts) => {
            let (text, boundary) = multipart(parts, what, plan_dir, names)?;
            Ok(Some((text, Some(format!("multipart/form-data; boundary={boundary}")))))
        }
    }
}

/// RFC 7578: the parts, separated by lines with a boundary that occurs in none of them.
fn multipart(
    parts: &[plan::FormPart],
    what: &str,
    plan_dir: &Path,
    names: Names<'_>,
) -> Result<(Template, String), TranslateError> {
    let mut contents = Vec::new();
    for part in parts {
        contents.push(match &part.content {
            plan::PartContent::Text(text) => template(text, what, names)?,
            plan::PartContent::File(path, at) => {
                let path = plan_dir.join(path);
                let what = format!("{}:{}:{}: {what}", at.file, at.line, at.column);
                let bytes =
                    std::fs::read(&path).map_err(|error| TranslateError::Body { what, path, error })?;
                Template::fixed(&bytes)
            }
        });
    }
    let boundary = boundary(&contents);
    let mut out = Template::default();
    for (part, content) in parts.iter().zip(contents) {
        let mut head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"", part.name);
        if let Some(filename) = &part.filename {
            head.push_str(&format!("; filename=\"{filename}\""));
        }
        head.push_str("\r\n");
        if let Some(kind) = &part.content_type {
            head.push_str(&format!("Content-Type: {kind}\r\n"));
        }
        head.push_str("\r\n");
        out.append(Template::fixed(head.as_bytes()));
        out.append(content);
        out.append(Template::fixed(b"\r\n"));
    }
    out.append(Template::fixed(format!("--{boundary}--\r\n").as_bytes()));
    Ok((out, boundary))
}

/// Chooses a boundary, always the same for the same parts. Values of variables are unknown: 64 bits make a clash
/// sufficiently unlikely.
fn boundary(contents: &[Template]) -> String {
    let fixed = || contents.iter().filter_map(Template::as_fixed);
    // FNV-1a over the fixed contents.
    let mut hash = fixed().flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    loop {
        let boundary = format!("loadlab-{hash:016x}");
        let holds = |text: &[u8]| text.windows(boundary.len()).any(|w| w == boundary.as_bytes());
        if !fixed().any(holds) {
            return boundary;
        }
        hash = hash.wrapping_add(1);
    }
}

/// The bytes of a text without variables, for a header field or body.
///
/// # Errors
/// The text has variables, which only the engine can fill in.
pub fn fixed(template: &Template, what: &str) -> Result<Vec<u8>, TranslateError> {
    let fixed = template.as_fixed().map(<[u8]>::to_vec);
    // The plan reader has rejected variables already; only base64 of fixed texts is left.
    fixed
        .or_else(|| written(template))
        .ok_or_else(|| TranslateError::NotYet { what: what.to_owned(), feature: "variables in requests are" })
}

fn written(template: &Template) -> Option<Vec<u8>> {
    use loadlab_load::journey::capture::{CaptureSlots, Captured};
    use loadlab_load::journey::template::Values;
    use loadlab_load::random::Random;

    if !template.variables().is_empty() {
        return None;
    }
    let (slots, mut random, mut out) = (CaptureSlots::new(0), Random::new(0), Vec::new());
    let mut values = Values {
        user: 0,
        iteration: 0,
        id: 0,
        sequence: 0,
        now_ns: 0,
        feeds: &[],
        rows: &[],
        captured: Captured { shared: &slots, own: &slots },
        random: &mut random,
    };
    template.write(&mut values, &mut out).ok().map(|()| out)
}

/// Converts a capture of a step. The plan reader has already compiled its expression and parsed its pointer, with the
/// same limits.
///
/// # Errors
/// The reason in words, if the plan reader let an invalid capture through.
pub fn capture(capture: &plan::Capture) -> Result<(u16, Capture), String> {
    let from = match &capture.from {
        plan::CaptureFrom::Json(pointer) => CaptureSource::Json(Pointer::parse(pointer)?),
        plan::CaptureFrom::Header(name) => CaptureSource::Header(name.as_bytes().into()),
        plan::CaptureFrom::Regex(regex) => CaptureSource::Regex(Pattern::new(regex)?),
        plan::CaptureFrom::Body => CaptureSource::Body,
    };
    Ok((capture.slot, Capture { from, is_number: capture.is_number }))
}

/// Converts the checks of a step, or of a WebSocket message (which has no status).
///
/// # Errors
/// As [`capture`].
pub fn checks(statuses: Option<&[u16]>, checks: &plan::Checks) -> Result<Checks, String> {
    let mut out = Checks { statuses: statuses.unwrap_or_default().to_vec(), ..Checks::default() };
    for (name, expect) in &checks.headers {
        out.headers.push((name.as_bytes().into(), expect_of(expect)?));
    }
    for (pointer, expect) in &checks.json {
        let shown = pointer.as_str().into();
        out.json.push(JsonCheck { shown, pointer: Pointer::parse(pointer)?, expect: expect_of(expect)? });
    }
    out.contains = checks.contains.iter().map(|t| check::Text::new(t.as_bytes())).collect();
    out.holds = vec![Vec::new(); checks.contains_written.len()];
    out.size = checks.size.clone();
    out.time = checks.time.clone();
    Ok(out)
}

/// The parts of a step's checks that are rendered anew for each response.
///
/// # Errors
/// See [`template`].
pub fn expected(
    checks: &plan::Checks,
    what: &str,
    names: Names<'_>,
) -> Result<Vec<(Expected, Template)>, TranslateError> {
    let mut out = Vec::new();
    for (at, (_, expect)) in checks.headers.iter().enumerate() {
        if let plan::Expect::Written(text) = expect {
            out.push((Expected::Header(at), template(text, what, names)?));
        }
    }
    for (at, (_, expect)) in checks.json.iter().enumerate() {
        if let plan::Expect::Written(text) = expect {
            out.push((Expected::Json(at), template(text, what, names)?));
        }
    }
    for (at, text) in checks.contains_written.iter().enumerate() {
        out.push((Expected::Holds(at), template(text, what, names)?));
    }
    Ok(out)
}

fn expect_of(expect: &plan::Expect) -> Result<Expect, String> {
    Ok(match expect {
        plan::Expect::Exists(is) => Expect::Exists(*is),
        plan::Expect::Text(text) => Expect::Text(text.as_bytes().into()),
        plan::Expect::Written(_) => Expect::Same(Vec::new()),
        plan::Expect::Contains(text) => Expect::Contains(check::Text::new(text.as_bytes())),
        plan::Expect::Number(text) => {
            let number = check::Decimal::parse(text.as_bytes());
            Expect::Number(number.ok_or_else(|| format!("`{text}` is not a number"))?)
        }
        plan::Expect::Bool(is) => Expect::Bool(*is),
        plan::Expect::Null => Expect::Null,
        plan::Expect::Within(list) => Expect::Within(list.clone()),
    })
}

/// Reads a feed: the columns that are used, and how its rows are dealt.
///
/// # Errors
/// The file cannot be read or is not a valid feed; in words, with its path.
pub fn feed(feed: &plan::FeedSpec, plan_dir: &Path, seed: u64) -> Result<(Rows, rows::Dealing), String> {
    let path = plan_dir.join(&feed.file);
    let reported =
        |error: &dyn std::fmt::Display| format!("feed `{}`, {}: {error}", feed.name, path.display());
    let bytes = std::fs::read(&path).map_err(|error| reported(&error))?;
    let wanted: Vec<String> = feed.columns.iter().map(|c| c.name.clone()).collect();
    let rows = match feed.format {
        plan::FeedFormat::UrlList => {
            Rows::from_csv(&urls::as_csv(&path).map_err(|error| error.to_string())?, &wanted)
        }
        plan::FeedFormat::Csv => Rows::from_csv(&bytes, &wanted),
        plan::FeedFormat::JsonLines => Rows::from_json_lines(&bytes, &wanted),
    };
    let dealing = rows::Dealing { is_shuffled: feed.is_shuffled, is_once: feed.is_once, seed };
    Ok((rows.map_err(|error| reported(&error))?, dealing))
}

/// Checks that the feeds' files contain the columns that steps use. The files must exist, unless the plan has commands
/// that may still create them.
///
/// # Errors
/// Every file that cannot be read and every missing column, with its position in the plan.
pub fn check_feeds(plan: &plan::Plan, plan_dir: &Path) -> Result<(), plan::PlanErrors> {
    let makes = |case: &plan::Case| !case.system.seed.is_empty() || !case.system.before_trial.is_empty();
    let made_later = plan.cases().iter().any(makes);
    plan.check_feeds(&mut |feed| {
        let path = plan_dir.join(&feed.file);
        if made_later && !path.exists() {
            return Ok(feed.columns.iter().map(|c| c.name.clone()).collect());
        }
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let columns = match feed.format {
            plan::FeedFormat::Csv | plan::FeedFormat::UrlList => rows::csv_columns(&bytes),
            plan::FeedFormat::JsonLines => rows::json_lines_columns(&bytes),
        };
        columns.map_err(|error| error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use loadlab_record::spec::variable::Variable;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn steps(journey: &str) -> Vec<plan::Step> {
        let text = format!("loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 1\n  journey:\n{journey}");
        let options = plan::Options::default();
        let plan = plan::Plan::parse("plan.yaml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
        plan.cases()[0].loads[0].journey.clone()
    }

    fn sent(step: &plan::Step, dir: &Path) -> (String, String) {
        let (text, kind) = body(&step.body, "step 1", dir, &nothing).unwrap().unwrap();
        let bytes = fixed(&text, "step 1").unwrap();
        (String::from_utf8(bytes).unwrap(), kind.unwrap_or_default())
    }

    #[test]
    fn bodies_are_written() {
        let steps = steps(
            "    - { post: \"http://a/\", form: { \"a b\": \"c&d\", e: é } }\n    - { post: \"http://a/\", body: { json: { a: \"x\\\"y\" } } }\n",
        );
        let dir = Path::new("");
        assert_eq!(
            sent(&steps[0], dir),
            ("a+b=c%26d&e=%C3%A9".into(), "application/x-www-form-urlencoded".into())
        );
        assert_eq!(sent(&steps[1], dir), (r#"{"a":"x\"y"}"#.into(), "application/json".into()));
    }

    #[test]
    fn parts_are_written_and_read_from_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("p.png"), "PNG").unwrap();
        let steps = steps(
            "    - post: http://a/\n      multipart:\n        - { name: note, text: hi }\n        - { name: picture, file: p.png, type: image/png }\n",
        );
        let plan::Body::Multipart(parts) = &steps[0].body else { panic!("parts") };
        // The plan is in the current folder, the test's file elsewhere.
        let (text, boundary) = multipart(parts, "step 1", dir.path(), &nothing).unwrap();
        let text = String::from_utf8(fixed(&text, "step 1").unwrap()).unwrap();
        assert_eq!(
            text.replace(&boundary, "B"),
            "--B\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n\
             --B\r\nContent-Disposition: form-data; name=\"picture\"; filename=\"p.png\"\r\nContent-Type: image/png\r\n\r\nPNG\r\n--B--\r\n"
        );
        std::fs::remove_file(dir.path().join("p.png")).unwrap();
        let error = multipart(parts, "step 1 of `load`", dir.path(), &nothing).unwrap_err().to_string();
        assert!(error.starts_with("plan.yaml:10:34: step 1 of `load`: cannot read the body"), "{error}");
    }

    #[test]
    fn a_boundary_is_in_no_part() {
        let first = boundary(&[Template::fixed(b"a")]);
        // A content that contains its own boundary cannot be constructed; one that has to be skipped can.
        let held = Template::fixed(first.as_bytes());
        assert_ne!(boundary(std::slice::from_ref(&held)), first);
    }

    #[test]
    fn users_are_reported() {
        let steps = steps(
            "    - { get: \"http://a/\", auth: { basic: { user: Aladdin, password: \"open sesame\" } } }\n    - { get: \"http://a/\", auth: { bearer: x } }\n",
        );
        let reported = |step: &plan::Step| {
            let value = authorization(step.auth.as_ref().unwrap(), "step 1", &nothing).unwrap();
            String::from_utf8(fixed(&value, "step 1").unwrap()).unwrap()
        };
        assert_eq!(reported(&steps[0]), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(reported(&steps[1]), "Bearer x");
    }

    #[test]
    fn captures_and_checks_are_taken_over() {
        let steps = steps(
            "    - { get: \"http://a/\", check: { status: 200, json: { /id: 3, /x: { number: \"> 1\" } }, header: { a: { contains: b } }, size: \"< 9\" }, capture: { a: { regex: \"(a)\" }, b: { json: /b, number: true } } }\n",
        );
        let checks = checks(steps[0].statuses.as_deref(), &steps[0].checks).unwrap();
        let good = check::CheckedResponse {
            status: 200,
            head: b"HTTP/1.1 200 OK\r\nA: abc\r\n\r\n",
            body: br#"{"id":3,"x":2}"#,
            size: 8,
            time_ns: 1,
        };
        assert_eq!(checks.judge(&good), Ok(()));
        assert!(checks.judge(&check::CheckedResponse { size: 9, ..good }).is_err());
        let captures: Vec<_> = steps[0].captures.iter().map(|c| capture(c).unwrap()).collect();
        assert_eq!((captures[0].0, captures[1].0), (0, 1));
        assert!(captures[1].1.is_number && captures[1].1.needs_body());
    }

    #[test]
    fn variables_reach_the_engine() {
        let steps = steps("    - { get: \"http://a/${uuid}/${random(1, 2)}\" }\n");
        let compiled = template(&steps[0].url, "step 1", &nothing).unwrap();
        assert_eq!(compiled.variables(), [Variable::Uuid, Variable::Random { low: 1, high: 2 }]);
        let error = fixed(&compiled, "step 1 of `load`").unwrap_err();
        assert_eq!(error.to_string(), "step 1 of `load`: variables in requests are not supported yet");
    }

    #[test]
    fn feeds_are_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("people.csv"), "id,name\n1,Ada\n2,Bo\n").unwrap();
        let text = "loadlab: 1\nname: n\nload:\n  users: 1\n  requests: 1\n  feeds: { people: { file: people.csv, once: true } }\n  journey:\n    - { get: \"http://a/${people.name}\" }\n";
        let options =
            plan::Options { plan_dir: Some(dir.path().display().to_string()), ..plan::Options::default() };
        let parse =
            |text: &str| plan::Plan::parse("plan.yaml", text, &options).unwrap_or_else(|e| panic!("{e}"));
        let plan = parse(text);
        assert_eq!(check_feeds(&plan, dir.path()), Ok(()));
        let (rows, dealing) = feed(&plan.cases()[0].loads[0].script.feeds[0], dir.path(), 7).unwrap();
        assert_eq!((rows.count(), rows.cell(1, 0)), (2, Some(&b"Bo"[..])));
        assert!(dealing.is_once && !dealing.is_shuffled && dealing.seed == 7);
        let errors = check_feeds(&parse(&text.replace("people.name", "people.nam")), dir.path()).unwrap_err();
        assert!(
            errors.to_string().starts_with("plan.yaml:8:26: feed `people` has no column `nam`"),
            "{errors}"
        );
    }
}
