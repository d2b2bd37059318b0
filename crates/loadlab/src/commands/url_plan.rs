//! Builds a plan from a URL and options, for commands that load a URL as a run. It is text like any other plan: the
//! record shows it.

use std::path::Path;

use loadlab_load::target::Url;
use loadlab_plan::{METHODS, Options};
use loadlab_record::text::url::ServerUrl;
use serde_json::{Map, Value, json};

use super::read_plan::{self, ReadPlan};
use crate::args::PlanChoice;
use crate::args::given::{self, ProxyGiven};
use crate::args::request::RequestArgs;
use crate::exit::CommandEnd;

/// A map in a plan.
pub type Keys = Map<String, Value>;

/// Escapes text so that nothing in it is taken as a variable.
pub fn literal(text: &str) -> String {
    text.replace("${", "$${")
}

/// A URL in the plan's notation, where nothing can be left out as on a command line: its scheme, and the `/` before the
/// path. What follows `#` is never sent, and a plan refuses it.
pub fn written(url: &Url) -> String {
    let (authority, path) = (&url.authority, &url.path);
    match (&url.socket, url.is_secure) {
        (Some(socket), _) => format!("unix:{socket}:{path}"),
        (None, true) => format!("https://{authority}{path}"),
        (None, false) => format!("http://{authority}{path}"),
    }
}

/// A duration in the plan's notation.
pub fn duration(ns: u64) -> Value {
    Value::from(match ns {
        ns if ns % 1_000_000_000 == 0 => format!("{}s", ns / 1_000_000_000),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    })
}

/// The single step of a journey: the request that the options define. `target` is the URL in plan syntax, including
/// variables.
///
/// # Errors
/// The reason in words: something a plan cannot express, or a file that cannot be read.
pub fn step(request: &RequestArgs, target: &str) -> Result<Value, String> {
    let method = request.method().to_ascii_lowercase();
    if !METHODS.contains(&method.as_str()) {
        let known = METHODS.join(", ").to_ascii_uppercase();
        return Err(format!(
            "--method {}: a plan cannot send it\nhint: plans know {known}",
            request.method()
        ));
    }
    let mut step = Keys::new();
    step.insert(method, Value::from(target));
    let headers = headers(request)?;
    if !headers.is_empty() {
        step.insert("headers".to_owned(), Value::from(headers));
    }
    match request.body.as_deref().map(|body| (body, body.strip_prefix('@'))) {
        None => {}
        Some((_, Some(file))) => {
            if !Path::new(file).is_file() {
                return Err(format!("cannot read the body from {file}: it is not a file"));
            }
            step.insert("body".to_owned(), json!({ "file": literal(&absolute(Path::new(file))) }));
        }
        Some((text, None)) => {
            step.insert("body".to_owned(), Value::from(literal(text)));
        }
    }
    Ok(Value::from(step))
}

/// Header fields of a step. In a plan each field has one value.
fn headers(request: &RequestArgs) -> Result<Keys, String> {
    let mut headers = Keys::new();
    for (name, value) in given::headers(&request.headers, "-H", false)? {
        if headers.keys().any(|known| known.eq_ignore_ascii_case(&name)) {
            return Err(format!(
                "-H: `{name}` is given twice, and a plan has each header once\nhint: join the values with a comma"
            ));
        }
        headers.insert(name, Value::from(literal(&value)));
    }
    Ok(headers)
}

/// The options for all requests of a load.
///
/// # Errors
/// The reason in words: a file that cannot be read.
pub fn of_request(load: &mut Keys, request: &RequestArgs) -> Result<(), String> {
    let mut set = |key: &str, value: Value| load.insert(key.to_owned(), value);
    if let Some(ns) = request.timeout {
        set("timeout", duration(ns));
    }
    if request.no_keep_alive {
        set("keep_alive", Value::from(false));
    }
    if request.http2 {
        set("protocol", Value::from("http/2"));
        set("streams_per_connection", Value::from(request.streams()));
    }
    if let Some(proxy) = request.proxy.as_ref().map(ProxyGiven::text).transpose()? {
        let scheme = ServerUrl::split(&proxy).scheme.map_or("http://", |_| "");
        set("proxy", Value::from(literal(&format!("{scheme}{proxy}"))));
    }
    let mut tls = Keys::new();
    let mut trust = |key: &str, value: Value| tls.insert(key.to_owned(), value);
    for (key, file) in [("ca", &request.cacert), ("cert", &request.cert), ("key", &request.key)] {
        if let Some(file) = file {
            trust(key, Value::from(literal(&absolute(file))));
        }
    }
    if request.insecure {
        trust("insecure", Value::from(true));
    }
    if request.no_resumption {
        trust("resumption", Value::from(false));
    }
    if let Some(version) = &request.tls_version {
        trust("versions", json!([version]));
    }
    if !tls.is_empty() {
        set("tls", Value::from(tls));
    }
    Ok(())
}

/// An absolute path, which means the same wherever the plan is.
pub fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The text of a plan: each key on its own line, including those of `load`.
pub fn text(plan: &Keys) -> String {
    let mut out = String::new();
    for (key, value) in plan {
        match value {
            Value::Object(inner) if key == "load" => {
                out.push_str(&format!("{key}:\n"));
                inner.iter().for_each(|(key, value)| out.push_str(&format!("  {key}: {value}\n")));
            }
            value => out.push_str(&format!("{key}: {value}\n")),
        }
    }
    out
}

/// Checks a plan of these keys as if it were in the current folder.
///
/// # Errors
/// The plan's mistakes.
pub fn read(name: &str, plan: &Keys, choice: &PlanChoice) -> Result<ReadPlan, CommandEnd> {
    let text = text(plan);
    let here = std::env::current_dir().unwrap_or_else(|_| ".".into());
    let plan_dir = Some(here.display().to_string());
    let (set, is_search) = (choice.set.clone(), choice.is_search);
    let mut options = Options { set, is_search, plan_dir, ..Options::default() };
    options.outside = given::outside(&text, &options, &here);
    let read = read_plan::parse(name, text, options, choice)?;
    Ok(ReadPlan { options: Vec::new(), ..read })
}
