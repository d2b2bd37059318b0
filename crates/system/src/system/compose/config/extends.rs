//! What services of a Compose file inherit by `extends`, for a Compose tool that does not print it: names, images and
//! limits only, since nothing else is needed. It must not guess: a reference that cannot be followed is an error.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Config, NEWER};

/// The keys that matter in a service; its own value takes precedence over the inherited one.
const KEYS: [&str; 10] = [
    "container_name",
    "image",
    "build",
    "cpus",
    "cpu_quota",
    "mem_limit",
    "pids_limit",
    "ulimits",
    "blkio_config",
    "deploy",
];
/// Values of [`KEYS`].
type Values = [Value; KEYS.len()];
/// The longest chain of services that extend one another.
const MAX_DEPTH: usize = 32;

/// Gives each service what it inherits. Files are looked up relative to `dir`.
///
/// # Errors
/// A file or service that does not exist, or that only Compose could find; services that extend one another in a cycle.
pub(super) fn resolve(document: &mut Value, dir: &Path) -> Result<(), String> {
    let Some(services) = document["services"].as_object() else { return Ok(()) };
    let mut all = Vec::new();
    for (name, service) in services.iter().filter(|(_, service)| !service["extends"].is_null()) {
        let here = Source { document, dir: dir.to_owned(), file: None };
        let found = inherited(service, &here, MAX_DEPTH).map_err(|why| format!("service `{name}` {why}"))?;
        all.push((name.clone(), found));
    }
    for (name, found) in all {
        for (key, value) in KEYS.into_iter().zip(found).filter(|(_, value)| !value.is_null()) {
            document["services"][&name][key] = value;
        }
    }
    Ok(())
}

/// A file that has services.
struct Source<'a> {
    document: &'a Value,
    /// The folder it is in.
    dir: PathBuf,
    /// The name it was referenced by; `None` for the file that is brought up.
    file: Option<&'a str>,
}

/// A service's own values of [`KEYS`], each replaced by the inherited one if missing.
fn inherited(service: &Value, source: &Source<'_>, most: usize) -> Result<Values, String> {
    let own = KEYS.map(|key| service[key].clone());
    let extends = &service["extends"];
    if extends.is_null() {
        return Ok(own);
    }
    if most == 0 {
        return Err("extends itself\nhint: remove one `extends`".to_owned());
    }
    let base = extends.as_str().or(extends["service"].as_str());
    let base = base.ok_or("has an `extends` that names no service\nhint: write `{ file: …, service: … }`")?;
    let file = extends["file"].as_str();
    if let Some(text) = file.into_iter().chain([base]).find(|text| text.contains('$')) {
        return Err(format!(
            "extends another: `{text}` contains a variable whose value this podman-compose does not print\n{NEWER}"
        ));
    }
    let above = match file {
        None => extended(source, base, most)?,
        Some(file) => {
            let path = source.dir.join(file);
            let failed = |why: String| {
                format!("extends `{file}`: {why}\nhint: the path is relative to the file that names it")
            };
            let text = fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
            let Config(document) = Config::parse(&text).map_err(failed)?;
            let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
            extended(&Source { document: &document, dir, file: Some(file) }, base, most)?
        }
    };
    let mut above = above.into_iter();
    Ok(own.map(|value| merged(value, above.next().unwrap_or_default())))
}

/// A service's own value, with what it inherits where it has none.
fn merged(own: Value, inherited: Value) -> Value {
    match (own, inherited) {
        (Value::Null, inherited) => inherited,
        (Value::Object(mut own), Value::Object(inherited)) => {
            for (key, inherited) in inherited {
                let value = own.remove(&key).unwrap_or_default();
                own.insert(key, merged(value, inherited));
            }
            Value::Object(own)
        }
        (own, _) => own,
    }
}

/// As [`inherited`], for a service that another one extends.
fn extended(source: &Source<'_>, name: &str, most: usize) -> Result<Values, String> {
    // A file that exists only to be extended may contain nothing but services.
    let services = match &source.document["services"] {
        Value::Null if source.file.is_some() => source.document,
        services => services,
    };
    match &services[name] {
        Value::Null => {
            let place = source.file.map_or("the file".to_owned(), |file| format!("`{file}`"));
            Err(format!(
                "extends another: there is no service `{name}` in {place}\nhint: name an existing one"
            ))
        }
        service => inherited(service, source, most - 1),
    }
}
