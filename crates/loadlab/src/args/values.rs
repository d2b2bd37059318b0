//! Values of options, read from text.

use std::path::PathBuf;

use loadlab_record::documents::search::SearchVariable;
use loadlab_record::text::cores::{MAX_IN_SET, parse_cores};
use loadlab_record::text::units::{self, YEAR_NS};
use loadlab_record::text::url;

/// A range of addresses.
#[derive(Clone, Debug)]
pub struct Sources(pub Vec<std::net::IpAddr>);

pub(super) fn sources(text: &str) -> Result<Sources, String> {
    loadlab_load::target::parse_sources(text).map(Sources)
}

/// A list of cores.
#[derive(Clone, Debug)]
pub struct Cpus(pub Vec<usize>);

/// The path of a record, which names itself in JSON: clap refuses a path that is not text.
pub(super) fn text_path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

/// A count in these bounds; `10k` and `1M` are understood.
pub(super) fn counts(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let count =
            units::parse_count(text).ok_or("expected a whole number such as `50` or `10k`".to_owned())?;
        match count {
            n if (least..=most).contains(&n) => Ok(n),
            _ if most == u64::MAX => Err(format!("must be at least {least}")),
            _ => Err(format!("must be from {least} to {most}")),
        }
    }
}

/// As [`counts`], for small numbers.
pub(super) fn few(
    least: u32,
    most: u32,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    let count = counts(least.into(), most.into());
    move |text| count(text).map(|n| u32::try_from(n).unwrap_or(most))
}

pub(super) fn duration(text: &str) -> Result<u64, String> {
    match units::parse_duration_ns(text).map_err(|e| e.to_string())? {
        ns if ns > YEAR_NS => Err("must be at most a year".to_owned()),
        ns => Ok(ns),
    }
}

pub(super) fn positive_duration(text: &str) -> Result<u64, String> {
    match duration(text)? {
        0 => Err("must be greater than zero".to_owned()),
        ns => Ok(ns),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    units::parse_short_rate_per_s(text).map_err(|e| e.to_string())
}

/// A host as a rule of which hosts may be loaded names it.
pub(super) fn host(text: &str) -> Result<String, String> {
    match url::is_bare_host(text) {
        true => Ok(text.to_owned()),
        false => Err("expected a name or an address, without a scheme, port or path".to_owned()),
    }
}

/// A share such as `2%` or `0.02`, below 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n.trim(), 100.0));
    let value: f64 = number.parse().map_err(|_| format!("`{text}` is not a share such as `2%`"))?;
    let value = value / unit;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("must be at least 0 and below 100%".to_owned()) }
}

pub(super) fn users_range(text: &str) -> Result<(u64, u64), String> {
    SearchVariable::Users.range(text)
}

pub(super) fn rate_range(text: &str) -> Result<(u64, u64), String> {
    SearchVariable::Rate.range(text)
}

pub(super) fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) = text.split_once('=').ok_or("expected PATH=VALUE, such as `load.duration=5s`")?;
    if path.trim().is_empty() {
        return Err("the path before `=` is empty".to_owned());
    }
    Ok((path.trim().to_owned(), value.to_owned()))
}

pub(super) fn cpus(text: &str) -> Result<Cpus, String> {
    let cores = parse_cores(text, MAX_IN_SET).map(Cpus);
    cores.ok_or_else(|| format!("`{text}` is not a list of cores such as `1,3` or `4-7`"))
}
