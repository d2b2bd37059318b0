//! What the plan says → what the engine and the system understand.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use loadlab_load::http2::{Head, HeadError, HeadParts, Heads};
use loadlab_load::journey::capture::Slots;
use loadlab_load::journey::redirect::Site;
use loadlab_load::source::{Request, RequestError, RequestParts};
use loadlab_load::spec::{Http2, Order, Think};
use loadlab_load::stages::Stage;
use loadlab_load::target::{Allowed, TargetError, Url};
use loadlab_load::tls::Versions;
use loadlab_load::{Arrivals, IoChoice, LoadSpec, Model, Until, WhenBehind};
use loadlab_plan as plan;
use loadlab_system as system;

use crate::journey;
use crate::script::{Desk, Steps, steps_of};
use crate::trust::{TlsWords, TrustError, tls_spec};

/// Puts values in for `${names}`.
pub type Names<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Why a part of a plan cannot be carried out here and now.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// A name without a value.
    #[error("{what}: {error}")]
    Name {
        /// Where it stands.
        what: String,
        /// Which.
        error: plan::UnknownName,
    },
    /// A target.
    #[error("{what}: {error}")]
    Target {
        /// Which step.
        what: String,
        /// Why.
        error: TargetError,
    },
    /// A request that cannot be written.
    #[error("{what}: {error}")]
    Request {
        /// Which step.
        what: String,
        /// Why.
        error: RequestError,
    },
    /// A body's file.
    #[error(
        "{what}: cannot read the body {path}: {error}\nhint: a relative path starts in the plan's folder; `seed` and `build` commands may make it"
    )]
    Body {
        /// Which step.
        what: String,
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A part of a journey that cannot be used.
    #[error("{what}: {words}")]
    Part {
        /// Which step or load.
        what: String,
        /// Why.
        words: String,
    },
    /// Something that plans can say and the engine cannot do. The plan refuses it at its place before this.
    #[error("{what}: {feature} not supported yet")]
    NotYet {
        /// Which step or load.
        what: String,
        /// What, and `is` or `are`.
        feature: &'static str,
    },
}

impl TranslateError {
    /// The target is at fault: it does not resolve, or it is not allowed.
    pub fn is_target(&self) -> bool {
        matches!(self, TranslateError::Target { error, .. } if !error.is_usage())
    }
}

/// Hosts of a load and their addresses, each resolved once.
pub struct Hosts<'a> {
    allowed: &'a Allowed,
    names: Vec<(String, u16, bool)>,
    authorities: Vec<String>,
    addresses: Vec<Vec<SocketAddr>>,
}

impl<'a> Hosts<'a> {
    fn new(allowed: &'a Allowed) -> Self {
        Hosts { allowed, names: Vec::new(), authorities: Vec::new(), addresses: Vec::new() }
    }

    /// The number of a URL's host.
    ///
    /// # Errors
    /// It does not resolve, or may not be loaded.
    pub fn index(&mut self, url: &Url) -> Result<u16, TargetError> {
        let name = (url.host.clone(), url.port, url.is_secure);
        if let Some(found) = self.names.iter().position(|n| *n == name) {
            return Ok(found as u16);
        }
        self.addresses.push(url.resolve(self.allowed)?);
        self.authorities.push(url.authority.clone());
        self.names.push(name);
        Ok(self.names.len() as u16 - 1)
    }

    /// Each of them.
    pub fn sites(&self) -> impl Iterator<Item = Site> {
        let both = self.authorities.iter().zip(&self.names);
        both.map(|(authority, (host, _, is_secure))| Site {
            authority: authority.as_str().into(),
            host: host.as_str().into(),
            is_secure: *is_secure,
        })
    }
}

/// What is to be requested, and where.
pub struct Targets {
    /// Requests in order.
    pub requests: Vec<Request>,
    /// Their hosts' addresses.
    pub hosts: Vec<Vec<SocketAddr>>,
    /// Their hosts, in the same order.
    pub sites: Vec<Site>,
}

/// Requests for a list of URLs that differ in nothing else, with the addresses of their hosts.
///
/// # Errors
/// A URL that is none, does not resolve or is not allowed; a part that cannot go onto the wire.
pub fn requests_for_urls(
    urls: &[String],
    parts: &RequestParts,
    allowed: &Allowed,
) -> Result<Targets, UrlError> {
    let mut hosts = Hosts::new(allowed);
    let mut requests = Vec::new();
    for text in urls {
        let url = Url::parse(text)?;
        let host = hosts.index(&url)?;
        let parts = RequestParts { host: url.authority, path: url.path, ..parts.clone() };
        requests.push(Request { host, ..parts.build()? });
    }
    Ok(Targets { requests, sites: hosts.sites().collect(), hosts: hosts.addresses })
}

/// The heads of the same requests as HTTP/2 says them.
///
/// # Errors
/// A URL that is none; a head that HTTP/2 cannot say.
pub fn http2_heads(urls: &[String], parts: &RequestParts) -> Result<Vec<Head>, UrlError> {
    let mut heads = Heads::default();
    let mut all = Vec::new();
    for text in urls {
        let url = Url::parse(text)?;
        let head = head_of(&mut heads, parts, &url);
        all.push(head?);
    }
    Ok(all)
}

/// Why a URL cannot be requested.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request over HTTP/2.
    #[error(transparent)]
    Http2(#[from] HeadError),
}

impl UrlError {
    /// What was written is at fault, not the world.
    pub fn is_usage(&self) -> bool {
        match self {
            UrlError::Target(error) => error.is_usage(),
            UrlError::Request(_) | UrlError::Http2(_) => true,
        }
    }
}

/// Whether the targets that are known before anything runs may be loaded.
///
/// # Errors
/// The first that may not, or does not resolve. URLs with ports that are still to be found are looked at when
/// they are known.
pub fn check_targets(cases: &[plan::Case], allowed: &Allowed) -> Result<(), TranslateError> {
    let mut hosts = Hosts::new(allowed);
    for (whose, steps) in cases.iter().flat_map(lists_of) {
        for (i, step) in steps.iter().enumerate() {
            // A list of URLs is looked at when it is read.
            let Some(text) = step.url.until_variable().filter(|_| step.urls.is_none()) else { continue };
            let what = || format!("step {} of {whose}", i + 1);
            let found = Url::parse(text).and_then(|url| hosts.index(&url));
            found.map_err(|error| TranslateError::Target { what: what(), error })?;
        }
    }
    Ok(())
}

/// All lists of steps of a case, and what they are called.
fn lists_of(case: &plan::Case) -> Vec<(String, &[plan::Step])> {
    let mut lists = vec![("`setup`".to_owned(), case.setup.steps.as_slice())];
    for load in &case.loads {
        lists.push((format!("`before` of `{}`", load.name), &load.script.before));
        lists.push((format!("`{}`", load.name), &load.journey));
        lists.push((format!("`after` of `{}`", load.name), &load.script.after));
    }
    lists
}

/// A load of the plan, ready for the engine, and its first URL.
///
/// # Errors
/// See [`TranslateError`].
pub fn load_spec(
    load: &plan::LoadSpec,
    (plan_dir, shared): (&Path, &Slots),
    names: Names<'_>,
    allowed: &Allowed,
    threads: usize,
) -> Result<(LoadSpec, String), TranslateError> {
    let mut hosts = Hosts::new(allowed);
    let desk = Desk { plan_dir, names, shared };
    let Steps { requests, journey, tags, first_url } = steps_of(load, &desk, &mut hosts)?;
    let http2 = http2_of(load, &desk, journey.is_some())?;
    let part = |error: TrustError| TranslateError::Part {
        what: format!("`tls` of `{}`", load.name),
        words: error.to_string(),
    };
    let sites: Vec<Site> = hosts.sites().collect();
    let tls = tls_spec(&tls_words(&load.http.tls, plan_dir), &sites, http2.is_some()).map_err(part)?;
    let spec = LoadSpec {
        name: load.name.clone(),
        model: model_of(load),
        until: match load.until {
            plan::Until::DurationNs(ns) => Until::Elapsed(ns),
            plan::Until::Requests(n) => Until::Requests(n),
            plan::Until::Repeats(n) => Until::Repeats(n),
        },
        ramp_ns: load.ramp_ns,
        stages: load.stages.iter().map(stage).collect(),
        warmup_ns: load.warmup_ns,
        grace_ns: load.grace_ns,
        pace_ns: match load.model {
            plan::Model::Closed { pace_ns, .. } => pace_ns,
            plan::Model::Open { .. } | plan::Model::Sessions { .. } => None,
        },
        pace_when_behind: when_behind(load),
        think: match load.think {
            plan::Think::None => Think::None,
            plan::Think::Constant { ns } => Think::Constant(ns),
            plan::Think::Uniform { low_ns, high_ns } => Think::Uniform(low_ns, high_ns),
            plan::Think::Exponential { mean_ns } => Think::Exponential(mean_ns),
        },
        timeout_ns: load.timeout_ns,
        keep_alive: load.keep_alive,
        requests,
        journey,
        tls,
        http2,
        order: Order::Journey,
        hosts: hosts.addresses,
        tags,
        held: None,
        sources: Vec::new(),
        threads: load.threads.map_or(threads, |t| t as usize).max(1),
        cpus: Vec::new(),
        io: IoChoice::Auto,
        seed: load.seed,
    };
    Ok((spec, first_url))
}

fn tls_words(tls: &plan::Tls, plan_dir: &Path) -> TlsWords {
    let file = |name: &String| plan_dir.join(name);
    TlsWords {
        ca: tls.ca.as_ref().map(file),
        identity: tls.identity.as_ref().map(|(certificate, key)| (file(certificate), file(key))),
        is_insecure: tls.is_insecure,
        versions: match tls.versions.as_slice() {
            [12] => Versions::Only12,
            [13] => Versions::Only13,
            _ => Versions::Both,
        },
        is_resumed: tls.is_resumed,
    }
}

/// The load's requests as HTTP/2 says them, if that is what it speaks.
fn http2_of(
    load: &plan::LoadSpec,
    desk: &Desk<'_>,
    has_journey: bool,
) -> Result<Option<Http2>, TranslateError> {
    let what = || format!("`protocol` of `{}`", load.name);
    match load.http.protocol {
        plan::Protocol::Http1 => return Ok(None),
        plan::Protocol::Auto => {
            return Err(TranslateError::NotYet { what: what(), feature: "`auto` is" });
        }
        plan::Protocol::Http2 if has_journey => {
            let feature = "journeys with variables, captures, checks or rounds of their own over HTTP/2 are";
            return Err(TranslateError::NotYet { what: what(), feature });
        }
        plan::Protocol::Http2 => {}
    }
    let mut heads = Heads::default();
    let mut all = Vec::new();
    for (i, step) in load.journey.iter().enumerate() {
        let what = format!("step {} of `{}`", i + 1, load.name);
        let (parts, url) = parts_of(step, &what, load, desk)?;
        let head = head_of(&mut heads, &parts, &url);
        all.push(head.map_err(|error| TranslateError::Part { what, words: error.to_string() })?);
    }
    Ok(Some(Http2 { heads: all, streams: load.http.streams.max(1) }))
}

/// A request's head as HTTP/2 says it.
fn head_of(heads: &mut Heads, parts: &RequestParts, url: &Url) -> Result<Head, HeadError> {
    let mut headers = parts.headers.clone();
    if let Some(body) = &parts.body {
        headers.push(("content-length".to_owned(), body.len().to_string()));
    }
    heads.add(&HeadParts {
        method: &parts.method,
        scheme: if url.is_secure { "https" } else { "http" },
        authority: &url.authority,
        path: &url.path,
        headers: &headers,
    })
}

fn stage(stage: &plan::Stage) -> Stage {
    Stage { from: stage.from, to: stage.to, over_ns: stage.over_ns }
}

fn when_behind(load: &plan::LoadSpec) -> WhenBehind {
    match load.when_behind {
        plan::WhenBehind::Queue => WhenBehind::Queue,
        plan::WhenBehind::Drop => WhenBehind::Drop,
    }
}

fn model_of(load: &plan::LoadSpec) -> Model {
    let arrivals_of = |arrivals: &plan::Arrivals| match arrivals {
        plan::Arrivals::Constant => Arrivals::Constant,
        plan::Arrivals::Poisson => Arrivals::Poisson,
    };
    match &load.model {
        plan::Model::Closed { users, .. } => Model::Closed { users: *users },
        plan::Model::Sessions { rate_per_s, arrivals, at_most } => Model::Open {
            rate_per_s: *rate_per_s,
            arrivals: arrivals_of(arrivals),
            when_behind: when_behind(load),
            max_in_flight: *at_most,
        },
        plan::Model::Open { rate_per_s, arrivals, max_in_flight } => Model::Open {
            rate_per_s: *rate_per_s,
            arrivals: arrivals_of(arrivals),
            when_behind: when_behind(load),
            max_in_flight: *max_in_flight,
        },
    }
}

/// A step without variables, and its URL.
///
/// # Errors
/// See [`TranslateError`].
pub fn request_of(
    step: &plan::Step,
    what: &str,
    load: &plan::LoadSpec,
    desk: &Desk<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<(Request, String), TranslateError> {
    let (parts, url) = parts_of(step, what, load, desk)?;
    let target = |error| TranslateError::Target { what: what.to_owned(), error };
    let host = hosts.index(&url).map_err(target)?;
    let text = step.url.render(desk.names);
    let text = text.map_err(|error| TranslateError::Name { what: what.to_owned(), error })?;
    let request = parts.build().map_err(|error| TranslateError::Request { what: what.to_owned(), error })?;
    let ok_statuses = step.statuses.clone().unwrap_or_default();
    Ok((Request { host, ok_statuses, ..request }, text))
}

/// What a step without variables consists of.
fn parts_of(
    step: &plan::Step,
    what: &str,
    load: &plan::LoadSpec,
    desk: &Desk<'_>,
) -> Result<(RequestParts, Url), TranslateError> {
    let (names, plan_dir, keep_alive) = (desk.names, desk.plan_dir, load.keep_alive);
    let fill = |template: &plan::Template| {
        template.render(names).map_err(|error| TranslateError::Name { what: what.to_owned(), error })
    };
    let target = |error| TranslateError::Target { what: what.to_owned(), error };
    let text = fill(&step.url)?;
    let url = Url::parse(&text).map_err(target)?;
    let mut headers = Vec::new();
    for (name, value) in &step.headers {
        headers.push((name.clone(), fill(value)?));
    }
    let given =
        |headers: &[(String, String)], name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    if let Some(auth) = &step.auth {
        let value = journey::fixed(&journey::authorization(auth, what, names)?, what)?;
        headers.push(("Authorization".to_owned(), String::from_utf8_lossy(&value).into_owned()));
    }
    let body = match journey::body(&step.body, what, plan_dir, names)? {
        None => None,
        Some((text, kind)) => {
            if let Some(kind) = kind.filter(|_| !given(&headers, "content-type")) {
                headers.push(("Content-Type".to_owned(), kind));
            }
            Some(journey::fixed(&text, what)?)
        }
    };
    if load.http.compressed && !given(&headers, "accept-encoding") {
        headers.push(("Accept-Encoding".to_owned(), "gzip, deflate".to_owned()));
    }
    let method = step.method.to_owned();
    let (host, path) = (url.authority.clone(), url.path.clone());
    Ok((RequestParts { method, host, path, headers, body, keep_alive }, url))
}

/// A command of the plan.
pub fn command(
    command: &plan::Command,
    what: &str,
    names: Names<'_>,
) -> Result<system::Command, TranslateError> {
    let fill = |template: &plan::Template| {
        template.render(names).map_err(|error| TranslateError::Name { what: what.to_owned(), error })
    };
    Ok(match command {
        plan::Command::Shell(line) => system::Command::Shell(fill(line)?),
        plan::Command::Words(words) => {
            system::Command::Argv(words.iter().map(fill).collect::<Result<_, _>>()?)
        }
    })
}

/// A component of the plan, its ports known.
///
/// # Errors
/// A name without a value.
pub fn component(
    component: &plan::ComponentSpec,
    names: Names<'_>,
    ports: Vec<u16>,
    logs: (PathBuf, PathBuf),
) -> Result<system::ComponentSpec, TranslateError> {
    let what = format!("component `{}`", component.name);
    let fill = |template: &plan::Template| {
        template.render(names).map_err(|error| TranslateError::Name { what: what.clone(), error })
    };
    let mut env = Vec::new();
    for (name, value) in &component.env {
        env.push((name.clone(), fill(value)?));
    }
    let ready = match &component.ready {
        None => system::Ready::Alive,
        Some(plan::ReadySpec { sign, within_ns }) => {
            let within_ns = *within_ns;
            match sign {
                plan::ReadySign::Http(url) => system::Ready::Http { url: fill(url)?, within_ns },
                plan::ReadySign::Tcp(addr) => system::Ready::Tcp { addr: fill(addr)?, within_ns },
                plan::ReadySign::Log(pattern) => system::Ready::Log { pattern: fill(pattern)?, within_ns },
            }
        }
    };
    let signal = system::Signal::parse(&component.stop.signal).unwrap_or(system::Signal::TERM);
    Ok(system::ComponentSpec {
        name: component.name.clone(),
        command: command(&component.run, &what, names)?,
        dir: PathBuf::from(&component.dir),
        env,
        ready,
        limits: system::Limits {
            cpu_cores: component.limits.cpu_cores,
            memory_bytes: component.limits.memory_bytes,
            pids: component.limits.pids,
            open_files: component.limits.open_files,
        },
        stop: system::Stop { signal, within_ns: component.stop.within_ns },
        logs,
        ports,
        cpus: Vec::new(),
    })
}

/// Names of other components' ports that a component is started with.
pub fn names_told(component: &plan::ComponentSpec) -> Vec<String> {
    let command: Vec<&plan::Template> = match &component.run {
        plan::Command::Shell(line) => vec![line],
        plan::Command::Words(words) => words.iter().collect(),
    };
    let env = component.env.iter().map(|(_, value)| value);
    let names = command.into_iter().chain(env).flat_map(plan::Template::names);
    names.filter(|name| name.starts_with("components.")).map(str::to_owned).collect()
}

/// A probe of the plan.
pub fn probe(probe: &plan::ProbeSpec, names: Names<'_>) -> Result<system::ProbeSpec, TranslateError> {
    let what = format!("probe `{}`", probe.name);
    let url = probe.url.render(names).map_err(|error| TranslateError::Name { what, error })?;
    Ok(system::ProbeSpec { name: probe.name.clone(), url, json: Some(probe.json_pointer.clone()) })
}
