//! Translates the plan into the forms that the engine and the system need.

mod alpn;
pub mod component;
mod conversation;
pub mod error;
pub mod hosts;
pub mod journey;
mod scripted;
pub mod steps;
pub mod tls;
pub mod urls;
mod writing;

use std::path::Path;
use std::time::Duration;

use loadlab_load::journey::redirect::Site;
use loadlab_load::journey::script::Written;
use loadlab_load::journey::template::Template;
use loadlab_load::protocol::http2::{Head, HeadError, HeadParts, Heads};
use loadlab_load::protocol::tls::Versions;
use loadlab_load::spec::request::{Request, RequestError, RequestParts};
use loadlab_load::spec::{self, Http2};
use loadlab_load::target::{Address, Allowed, ProxyUrl, TargetError, Url, sources_for};
use loadlab_load::{IoChoice, LoadSpec, Model};
use loadlab_plan as plan;
use loadlab_record::Secrets;
use loadlab_record::text::url::as_http;

use crate::translate::error::{Names, TranslateError};
use crate::translate::hosts::{Hosts, Via};
use crate::translate::steps::{PlacedStep, Steps, all_steps, steps_of};
use crate::translate::tls::{TlsSettings, TrustError, tls_offering, tls_spec};
pub use crate::translate::writing::RequestContext;
use crate::translate::writing::label_of;

/// Requests and their hosts.
pub struct Targets {
    /// The requests, in order.
    pub requests: Vec<Request>,
    /// The addresses of each host.
    pub hosts: Vec<Vec<Address>>,
    /// The hosts, in the same order as their addresses.
    pub sites: Vec<Site>,
    /// How hosts are reached through a proxy, if there is one.
    pub proxy: Option<Box<spec::Proxy>>,
}

/// Builds requests for a list of URLs that are otherwise identical, with the addresses of their hosts.
///
/// # Errors
/// A URL, or the proxy's, is invalid, does not resolve or is not allowed; or a part of the request cannot be sent.
pub fn requests_for_urls(
    urls: &[String],
    parts: &RequestParts,
    allowed: &Allowed,
    via: Option<Via<'_>>,
) -> Result<Targets, UrlError> {
    let mut hosts = Hosts::new(allowed, via)?;
    let mut requests = Vec::new();
    for text in urls {
        let url = Url::parse(text)?;
        let host = hosts.index(&url)?;
        let mut parts = RequestParts { host: url.authority.clone(), path: url.path.clone(), ..parts.clone() };
        ask_whole(&mut parts, &hosts, &url)?;
        requests.push(Request { host, ..parts.build()? });
    }
    let (sites, proxy) = (hosts.sites().collect(), hosts.proxy());
    Ok(Targets { requests, sites, proxy, hosts: hosts.into_addresses() })
}

/// Makes a request that goes to a proxy name the whole URL.
fn ask_whole(parts: &mut RequestParts, hosts: &Hosts<'_>, url: &Url) -> Result<(), TargetError> {
    let Some((target, field)) = hosts.whole(url) else { return Ok(()) };
    let mut given = parts.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    // Proxies should go by the URL, but not all do: the load would end up at a host that is not allowed.
    if let Some((_, given)) = given.find(|(_, host)| !host.trim().eq_ignore_ascii_case(&url.authority)) {
        let (given, authority) = (given.clone(), url.authority.clone());
        return Err(TargetError::HostByProxy { given, authority });
    }
    parts.path = target;
    parts.headers.extend(field);
    Ok(())
}

/// The same requests' heads in HTTP/2 form.
///
/// # Errors
/// A URL is invalid, or HTTP/2 cannot express a head.
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
    /// The target is invalid, does not resolve or is not allowed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The request cannot be built.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request cannot be expressed in HTTP/2.
    #[error(transparent)]
    Http2(#[from] HeadError),
}

impl UrlError {
    /// Whether the input is at fault rather than the environment.
    pub fn is_usage(&self) -> bool {
        match self {
            UrlError::Target(error) => error.is_usage(),
            UrlError::Request(_) | UrlError::Http2(_) => true,
        }
    }
}

/// Checks that the targets known before anything runs may be loaded.
///
/// # Errors
/// The first target that must not be loaded or does not resolve. URLs with ports that are still to be found are checked
/// once those are known.
pub fn check_targets(cases: &[plan::Case], allowed: &Allowed) -> Result<(), TranslateError> {
    let target = |what: &str, error| TranslateError::Target { what: what.to_owned(), error };
    let mut direct = Hosts::new(allowed, None).map_err(|error| target("no proxy", error))?;
    for StepList { whose, steps, proxy } in cases.iter().flat_map(lists_of) {
        let what = format!("`proxy` of {whose}");
        if proxy.is_some() {
            allowed.by_proxy().map_err(|error| target(&what, error))?;
        }
        if let Some(text) = proxy.and_then(plan::Template::as_text) {
            let proxy = text.parse::<ProxyUrl>().and_then(|proxy| proxy.url.resolve(allowed));
            proxy.map_err(|error| target(&what, error))?;
        }
        for (i, step) in steps.iter().enumerate() {
            // A list of URLs is checked when it is read.
            let Some(text) = step.url.until_variable().filter(|_| step.urls.is_none()) else { continue };
            let checked = Url::parse(&as_http(&text)).and_then(|url| match proxy {
                None => direct.index(&url).map(drop),
                Some(_) => url.by_proxy(allowed),
            });
            checked.map_err(|error| target(&format!("step {} of {whose}", i + 1), error))?;
        }
    }
    Ok(())
}

/// Steps that are sent one after the other.
struct StepList<'p> {
    /// What they are called in messages: "`setup`".
    whose: String,
    steps: &'p [plan::Step],
    /// The proxy that they go through.
    proxy: Option<&'p plan::Template>,
}

/// All lists of steps in a case.
fn lists_of(case: &plan::Case) -> Vec<StepList<'_>> {
    // `setup` uses the first load's settings.
    let first = case.loads.first().and_then(|l| l.http.proxy.as_ref());
    let mut lists = vec![StepList { whose: "`setup`".to_owned(), steps: &case.setup.steps, proxy: first }];
    for load in &case.loads {
        let proxy = load.http.proxy.as_ref();
        let own = [
            (format!("`user_setup` of `{}`", load.name), &load.script.user_setup),
            (format!("`{}`", load.name), &load.journey),
            (format!("`user_teardown` of `{}`", load.name), &load.script.user_teardown),
        ];
        lists.extend(own.map(|(whose, steps)| StepList { whose, steps, proxy }));
    }
    lists.retain(|list| !list.steps.is_empty());
    lists
}

/// Builds the context's load for the engine. Also returns its first URL.
///
/// # Errors
/// See [`TranslateError`].
pub fn load_spec(
    context: &RequestContext<'_>,
    allowed: &Allowed,
    threads: usize,
) -> Result<(LoadSpec, String), TranslateError> {
    let RequestContext { plan_dir, names, .. } = *context;
    let (load, order) = urls::expanded(context.load, plan_dir)?;
    let load = load.as_ref();
    let context = RequestContext { load, ..*context };
    let proxy = proxy_of(load, names)?;
    // If the servers agree on HTTP/2, all of them are reached by TLS, which needs a tunnel anyway.
    let tunnels_all = load.http.protocol == plan::Protocol::Http2;
    let via = proxy.as_ref().map(|proxy| Via { proxy, tunnels_all });
    let wrong = |error| TranslateError::Target { what: format!("`proxy` of `{}`", load.name), error };
    let mut hosts = Hosts::new(allowed, via).map_err(wrong)?;
    let steps = steps_of(&context, &mut hosts)?;
    let speaks_http2 = speaks_http2(load, plan_dir, &hosts)?;
    let http2 = if speaks_http2 { Some(http2_of(&context, &steps, &hosts)?) } else { None };
    let Steps { requests, journey, tags, first_url, .. } = steps;
    let sites: Vec<Site> = hosts.sites().collect();
    let tls = tls_spec(&tls_settings(&load.http.tls, plan_dir), &sites, speaks_http2);
    let tls = tls.map_err(|error| untrusted(load, &error))?;
    let (proxy, addresses) = (hosts.proxy(), hosts.into_addresses());
    let spec = LoadSpec {
        name: load.name.clone(),
        model: model_of(load),
        until: load.until,
        ramp_ns: load.ramp_ns,
        stages: load.stages.clone(),
        warmup_ns: load.warmup_ns,
        grace_ns: load.grace_ns,
        pace_ns: match load.model {
            plan::Model::Closed { pace_ns, .. } => pace_ns,
            plan::Model::Open { .. } | plan::Model::Sessions { .. } | plan::Model::Command(_) => None,
        },
        pace_when_behind: load.when_behind,
        think: load.think,
        timeout_ns: load.timeout_ns,
        keep_alive: load.keep_alive,
        requests,
        journey,
        tls,
        http2,
        order,
        proxy,
        sources: sources_for(&addresses, connections_of(load)),
        hosts: addresses,
        tags,
        held: None,
        pool: None,
        threads: load.threads.map_or(threads, |t| t as usize).max(1),
        other_threads: spec::OtherThreads::default(),
        joins: spec::JoinPoint::default(),
        cpus: Vec::new(),
        io: IoChoice::Auto,
        seed: load.seed,
        secrets: Secrets::default(),
        known_end: spec::KnownEnd::default(),
    };
    Ok((spec, first_url))
}

/// Connections that a load opens at the same time. A rate opens as many as it needs: few, as long as all is well.
fn connections_of(load: &plan::LoadSpec) -> u64 {
    match load.model {
        plan::Model::Closed { users, .. } => users,
        plan::Model::Open { .. } | plan::Model::Sessions { .. } | plan::Model::Command(_) => 0,
    }
}

/// The proxy of a load, if it has one.
fn proxy_of(load: &plan::LoadSpec, names: Names<'_>) -> Result<Option<ProxyUrl>, TranslateError> {
    let Some(template) = &load.http.proxy else { return Ok(None) };
    let what = || format!("`proxy` of `{}`", load.name);
    let text = template.render(names).map_err(|error| TranslateError::Name { what: what(), error })?;
    text.parse().map(Some).map_err(|error| TranslateError::Target { what: what(), error })
}

fn tls_settings(tls: &plan::Tls, plan_dir: &Path) -> TlsSettings {
    let file = |name: &String| plan_dir.join(name);
    TlsSettings {
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

fn untrusted(load: &plan::LoadSpec, error: &TrustError) -> TranslateError {
    TranslateError::Part { what: format!("`tls` of `{}`", load.name), message: error.to_string() }
}

/// Whether a load uses HTTP/2. If the plan leaves that to the servers, negotiates with each of them, one handshake
/// each.
fn speaks_http2(load: &plan::LoadSpec, plan_dir: &Path, hosts: &Hosts<'_>) -> Result<bool, TranslateError> {
    match load.http.protocol {
        plan::Protocol::Http1 => return Ok(false),
        plan::Protocol::Http2 => return Ok(true),
        plan::Protocol::Auto => {}
    }
    let (settings, sites): (_, Vec<Site>) = (tls_settings(&load.http.tls, plan_dir), hosts.sites().collect());
    let offer: [&[u8]; 2] = [b"h2", b"http/1.1"];
    let tls = tls_offering(&settings, &sites, &offer).map_err(|error| untrusted(load, &error))?;
    let Some(tls) = tls else { return Ok(false) };
    let within = Duration::from_nanos(load.timeout_ns);
    let what = || format!("`protocol` of `{}`", load.name);
    let proxy = hosts.proxy();
    alpn::all_take_http2(&tls, hosts.addresses(), proxy.as_deref(), within)
        .map_err(|message| TranslateError::Unlearned { what: what(), message })
}

/// The load's requests in HTTP/2 form.
fn http2_of(context: &RequestContext<'_>, steps: &Steps, hosts: &Hosts<'_>) -> Result<Http2, TranslateError> {
    let sites: Vec<Site> = hosts.sites().collect();
    let mut heads = Heads::default();
    let (mut all, mut all_written) = (Vec::new(), Vec::new());
    for (i, PlacedStep { step, what, .. }) in all_steps(context.load).enumerate() {
        let wrong =
            |error: HeadError| TranslateError::Part { what: what.clone(), message: error.to_string() };
        let (head, written) = match &steps.fields[i] {
            None => {
                let (parts, url) = parts_of(step, &what, context)?;
                (head_of(&mut heads, &parts, &url).map_err(wrong)?, None)
            }
            Some(fields) => {
                let site = &sites[usize::from(steps.requests[i].host)];
                let written = written_of(&mut heads, step.method, site, fields).map_err(wrong)?;
                (written.outline.front.clone(), Some(written))
            }
        };
        all.push(head);
        all_written.push(written);
    }
    Ok(Http2 { heads: all, written: all_written, streams: context.load.http.streams_per_connection.max(1) })
}

/// The head of a step that is rendered anew for each request: its constant part is encoded only once.
fn written_of(
    heads: &mut Heads,
    method: &str,
    site: &Site,
    fields: &[(String, Template)],
) -> Result<Written, HeadError> {
    let (mut headers, mut names, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in fields {
        match value.as_fixed().map(<[u8]>::to_vec).map(String::from_utf8) {
            Some(Ok(text)) => headers.push((name.clone(), text)),
            _ => {
                names.push(name.as_str());
                values.push(value.clone());
            }
        }
    }
    let parts = HeadParts {
        method,
        scheme: if site.is_secure { "https" } else { "http" },
        authority: &site.authority,
        path: "/",
        headers: &headers,
    };
    Ok(Written { outline: heads.outline(&parts, &names)?, values })
}

/// A request's head in HTTP/2 form.
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

fn model_of(load: &plan::LoadSpec) -> Model {
    let open = |rate_per_s, arrivals, max_in_flight| {
        let when_behind = load.when_behind;
        Model::Open { rate_per_s, arrivals, when_behind, max_in_flight }
    };
    match load.model {
        plan::Model::Closed { users, .. } => Model::Closed { users },
        // The load is made by `program`; the engine sends nothing.
        plan::Model::Command(_) => Model::Closed { users: 0 },
        plan::Model::Sessions { rate_per_s, arrivals, max_users } => open(rate_per_s, arrivals, max_users),
        plan::Model::Open { rate_per_s, arrivals, max_in_flight } => {
            open(rate_per_s, arrivals, max_in_flight)
        }
    }
}

/// Builds the request of a step without variables. Also returns its URL.
///
/// # Errors
/// See [`TranslateError`].
pub fn request_of(
    step: &plan::Step,
    what: &str,
    context: &RequestContext<'_>,
    hosts: &mut Hosts<'_>,
) -> Result<(Request, String), TranslateError> {
    let (mut parts, url) = parts_of(step, what, context)?;
    let target = |error| TranslateError::Target { what: what.to_owned(), error };
    let host = hosts.index(&url).map_err(target)?;
    ask_whole(&mut parts, hosts, &url).map_err(target)?;
    // In what is shown, names replace secrets.
    let shown = step.url.shown(context.names);
    let is_secret = step.url.render(context.names).is_ok_and(|text| text != shown);
    let request = parts.build().map_err(|error| TranslateError::Request { what: what.to_owned(), error })?;
    let ok_statuses = step.statuses.clone().unwrap_or_default();
    let label = if is_secret { label_of(step.method, &shown) } else { request.label };
    Ok((Request { host, ok_statuses, label, ..request }, shown))
}

/// The parts of a request for a step without variables, and its URL.
fn parts_of(
    step: &plan::Step,
    what: &str,
    context: &RequestContext<'_>,
) -> Result<(RequestParts, Url), TranslateError> {
    let RequestContext { load, names, plan_dir, .. } = *context;
    let keep_alive = load.keep_alive;
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
    if load.http.compression && !given(&headers, "accept-encoding") {
        headers.push(("Accept-Encoding".to_owned(), "gzip, deflate".to_owned()));
    }
    let method = step.method.to_owned();
    let (host, path) = (url.authority.clone(), url.path.clone());
    Ok((RequestParts { method, host, path, headers, body, keep_alive }, url))
}
