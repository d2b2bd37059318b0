//! The numbers of a finished trial, from its summary, its ticks and its interval histograms.

use super::names::{COMPONENT_FIGURES, FIGURES, component_number};
use super::{Between, Known, NumberKind, NumberSource, TrialPart, Window};
use crate::counts::dependence::Dependence;
use crate::counts::histogram::Histogram;
use crate::counts::hlog::Interval;
use crate::counts::load::{Counts, Tick};
use crate::counts::outcome::{Failure, Failures};
use crate::counts::quantile::{FewSamples, quantile_of, samples_needed};
use crate::documents::search::SearchVariable;
use crate::documents::summary::{Distribution, ProbeSummary, Requests, Summary, TagSummary};
use crate::text::units::format_count;

/// A second of the record belongs to a window if it extends past it by no more than this.
const SLACK_S: f64 = 0.001;
/// A window extends at most this far beyond the load's end, in seconds, since the load's last tick may be short. One that
/// extends further has no value.
pub const BEYOND_S: f64 = 1.0;

/// Numbers over a finished trial.
///
/// Without a window they are the summary's. With one, `p99[10s..30s]`, counts and rates come from the ticks
/// that lie inside it, and times from the histograms of [`SummaryNumbers::with_intervals`].
#[derive(Clone, Copy, Debug)]
pub struct SummaryNumbers<'a> {
    summary: &'a Summary,
    ticks: &'a [Tick],
    intervals: Option<&'a [Interval]>,
}

impl<'a> SummaryNumbers<'a> {
    /// From a trial's document and its ticks (none are needed for expressions without windows).
    pub fn new(summary: &'a Summary, ticks: &'a [Tick]) -> Self {
        SummaryNumbers { summary, ticks, intervals: None }
    }

    /// Adds the histograms that windows of times need.
    pub fn with_intervals(self, intervals: &'a [Interval]) -> Self {
        SummaryNumbers { intervals: Some(intervals), ..self }
    }

    /// The window from the start of a batch (from 1) to its end, by its ticks.
    ///
    /// # Errors
    /// The batch did not run, in words.
    pub fn batch(&self, number: u32) -> Result<Window, String> {
        let of = self.ticks.iter().filter(|t| t.batch + 1 == number);
        let window = of
            .map(|t| Window { from_s: t.from_s, to_s: t.to_s })
            .reduce(|a, b| Window { from_s: a.from_s.min(b.from_s), to_s: a.to_s.max(b.to_s) });
        window.ok_or_else(|| format!("there was no batch {number}"))
    }

    /// A number of the whole trial; `None` if there is no such name.
    fn whole(&self, name: &str) -> Option<Known> {
        let s = self.summary;
        let (prefix, figure) = name.split_once('.').unwrap_or(("response", name));
        if FIGURES.contains(&figure)
            && let Some(distribution) = self.distribution(prefix)
        {
            return Some(known_figure(distribution, figure, s.window.length_s()));
        }
        if name == "errors" && !s.load.is_command() {
            return Some(errors(s.requests.failed, s.ended_by_loadlab(), s.started_by_loadlab()));
        }
        if let Some(count) = self.count(name, &s.requests, &s.failures) {
            return Some(count);
        }
        let loss = |count: fn(&crate::documents::summary::Loss) -> u64| match &s.loss {
            Some(loss) => plain(count(loss)),
            None => Known::Unknown("what was stored was not compared: see `durability`".to_owned()),
        };
        Some(match name {
            "availability" if s.load.is_command() => not_measured(),
            "availability" => optional(s.availability, NumberKind::Fraction, "nothing ended"),
            "rate" => Known::Is(s.rate_per_s.started, NumberKind::Rate),
            "goodput" => Known::Is(s.rate_per_s.ok, NumberKind::Rate),
            "accepted" if s.loss.is_none() => plain(s.requests.ok),
            "accepted" => loss(|l| l.accepted),
            "unanswered" => loss(|l| l.unanswered),
            "persisted" => loss(|l| l.persisted_distinct),
            "doubled" => loss(|l| l.doubled),
            "lost" => loss(|l| l.lost_max),
            "drain" => optional(s.drain_s.map(|d| d * 1000.0), NumberKind::Duration, "nothing was drained"),
            "not_offered" if s.agents.is_empty() => plain(0),
            "not_offered" => {
                let why =
                    "an agent was lost, and how much of its part was due depends on how fast it is answered";
                optional(s.requests.not_offered.map(|n| n as f64), NumberKind::Plain, why)
            }
            "capacity" => capacity(s),
            "elapsed" => Known::Is(s.elapsed_s * 1000.0, NumberKind::Duration),
            "concurrency" if s.load.is_command() => not_measured(),
            "concurrency" => Known::Is(s.concurrency_mean, NumberKind::Plain),
            _ => {
                let number = || self.of_tag(name).or_else(|| self.of_number(name));
                let system = || self.of_probe(name).or_else(|| self.of_component(name));
                return number().or_else(system).or_else(|| self.of_figure(name));
            }
        })
    }

    /// A count of a load or of a part of it, if it is known: of a program's requests only how many there were.
    fn count(&self, name: &str, requests: &Requests, failures: &Failures) -> Option<Known> {
        let count = counted(name, requests, failures)?;
        let is_seen = ["due", "started", "ok", "dropped"].contains(&name);
        Some(if self.summary.load.is_command() && !is_seen { not_measured() } else { count })
    }

    /// The requests of some ticks without those of programs.
    fn sent_by_loadlab(&self, ticks: impl Iterator<Item = &'a Tick>) -> Requests {
        let mut counts = Counts::default();
        let own = ticks.filter(|tick| !self.summary.load.is_program(&tick.load));
        own.for_each(|tick| counts.merge(&tick.counts));
        Requests::from(&counts)
    }

    /// A distribution by its prefix.
    fn distribution(&self, prefix: &str) -> Option<&'a Distribution> {
        let s = self.summary;
        Some(match prefix {
            "response" => &s.response_ms,
            "ok" => &s.ok_response_ms,
            "failed_response" => &s.failed_response_ms,
            "service" => &s.service_ms,
            "late" => &s.late_ms,
            "blocked" => &s.blocked_ms,
            "connect" => &s.connect_ms,
            "tls" => &s.tls_ms,
            _ => return None,
        })
    }

    /// `tag.NAME.REST`, where both parts may contain dots.
    fn of_tag(&self, name: &str) -> Option<Known> {
        let name = name.strip_prefix("tag.")?;
        self.summary.by_tag.iter().find_map(|(tag, numbers)| {
            let rest = name.strip_prefix(tag.as_str())?.strip_prefix('.')?;
            tag_number(numbers, rest, self.summary.window.length_s())
        })
    }

    /// `number.NAME.FIGURE`, where the name may contain dots.
    fn of_number(&self, name: &str) -> Option<Known> {
        let (number, figure) = name.strip_prefix("number.")?.rsplit_once('.')?;
        let number = self.summary.numbers.get(number)?;
        let value = number.figure(figure)?;
        if let (Some(estimate), Some(quantile)) = (number.few.of(figure), quantile_of(figure)) {
            let few = FewSamples::of(number.count, quantile, self.summary.window.length_s());
            return Some(Known::Between(Between {
                estimate,
                largest: number.max,
                kind: NumberKind::Plain,
                few,
            }));
        }
        Some(value.map_or_else(|| too_few(figure, number.count), |value| Known::Is(value, NumberKind::Plain)))
    }

    fn of_probe(&self, name: &str) -> Option<Known> {
        let probes = &self.summary.probes;
        let (probe, figure) = match probes.get(name) {
            Some(probe) => (probe, "last"),
            None => name.rsplit_once('.').and_then(|(n, figure)| Some((probes.get(n)?, figure)))?,
        };
        let ProbeSummary { first, last, max, mean, failed } = *probe;
        let value = match figure {
            "first" => first,
            "last" => last,
            "max" => max,
            "mean" => mean,
            _ => return None,
        };
        let why = if failed > 0 { "the probe failed" } else { "the probe was never read" };
        Some(optional(value, NumberKind::Plain, why))
    }

    fn of_figure(&self, name: &str) -> Option<Known> {
        let figure = self.summary.figures.get(name)?;
        let kinds = [NumberKind::Duration, NumberKind::Bytes, NumberKind::Rate, NumberKind::Percent];
        let kind = kinds.into_iter().find(|kind| kind.unit() == figure.unit).unwrap_or(NumberKind::Plain);
        Some(figure.known(kind))
    }

    fn of_component(&self, name: &str) -> Option<Known> {
        COMPONENT_FIGURES.iter().find_map(|figure| {
            let component = name.strip_suffix(figure.name)?.strip_suffix('.')?;
            let summary = self.summary.components.get(component)?;
            Some(optional(component_number(summary, figure.name), figure.kind, "it was not measured"))
        })
    }

    /// A number that the summary has of each batch, without other batches that ran at the same time; rates and times are
    /// those of its windows, without warm-up and the wait for stragglers. `None` for others, and for a trial that was cut
    /// off.
    fn of_batch(&self, name: &str, number: u32) -> Option<Known> {
        let batch = self.summary.by_batch.get(&number)?;
        let (prefix, figure) = name.split_once('.').unwrap_or(("response", name));
        let of_times =
            |distribution: &Distribution| Some(known_figure(distribution, figure, batch.window.length_s()));
        match (name, prefix) {
            ("rate", _) => Some(Known::Is(batch.rate_per_s.started, NumberKind::Rate)),
            ("goodput", _) => Some(Known::Is(batch.rate_per_s.ok, NumberKind::Rate)),
            (_, "response") if FIGURES.contains(&figure) => of_times(&batch.response_ms),
            (_, "ok") if FIGURES.contains(&figure) => of_times(&batch.ok_response_ms),
            ("accepted", _) if self.summary.loss.is_none() => Some(plain(batch.requests.ok)),
            ("in_flight", _) => None,
            // The batch's counts include what programs made in it; its ticks tell loads apart.
            ("errors", _) if self.summary.load.has_programs() && !self.summary.load.is_command() => {
                let own = self.sent_by_loadlab(self.ticks.iter().filter(|t| t.batch + 1 == number));
                Some(errors(own.failed, own.ended(), own.started))
            }
            _ => self.count(name, &batch.requests, &batch.failures),
        }
    }

    /// A number of a part of the load; `None` if there is no such name.
    fn within(&self, name: &str, window: Window) -> Option<Known> {
        self.whole(name)?;
        if let Some(why) = self.not_covered(window) {
            return Some(Known::Unknown(why));
        }
        let (prefix, figure) = name.rsplit_once('.').unwrap_or(("response", name));
        if FIGURES.contains(&figure)
            && let Some(series) = self.series_of(prefix)
        {
            return Some(self.figure_within(&series, figure, window));
        }
        let inside = self.ticks.iter().filter(|t| is_inside(t.from_s, t.to_s, window));
        if name == "errors" && !self.summary.load.is_command() {
            let own = self.sent_by_loadlab(inside);
            return Some(errors(own.failed, own.ended(), own.started));
        }
        let mut counts = Counts::default();
        let (mut from_s, mut to_s) = (f64::INFINITY, f64::NEG_INFINITY);
        for tick in inside {
            counts.merge(&tick.counts);
            (from_s, to_s) = (from_s.min(tick.from_s), to_s.max(tick.to_s));
        }
        let per_s = |count: u64| Known::Is(count as f64 / (to_s - from_s), NumberKind::Rate);
        Some(match name {
            "rate" => per_s(counts.started),
            "goodput" => per_s(counts.ok),
            "accepted" if self.summary.loss.is_none() => plain(counts.ok),
            // in-flight requests carry over from tick to tick, and must not be summed
            "in_flight" => no_window(),
            _ => self.count(name, &Requests::from(&counts), &counts.failures).unwrap_or_else(no_window),
        })
    }

    /// Why a window cannot be evaluated at all.
    fn not_covered(&self, window: Window) -> Option<String> {
        let end_s = self.ticks.iter().map(|t| t.to_s).fold(f64::NEG_INFINITY, f64::max);
        if !self.ticks.iter().any(|t| is_inside(t.from_s, t.to_s, window)) {
            return Some(format!(
                "{}s..{}s contains no whole second of the load",
                window.from_s, window.to_s
            ));
        }
        let short = end_s + BEYOND_S < window.to_s;
        short.then(|| format!("the load ended after {} s", format_count(end_s)))
    }

    /// The interval log's series of a distribution: the exact and the censored values.
    fn series_of(&self, prefix: &str) -> Option<[LogTag; 2]> {
        let one = |name: &str| Some([Some(name.to_owned()), None]);
        match prefix {
            "response" | "service" => Some([Some(prefix.to_owned()), Some(format!("{prefix}_censored"))]),
            "ok" => one("response"),
            "late" | "blocked" | "connect" | "tls" => one(prefix),
            _ => {
                let tag = prefix.strip_prefix("tag.").filter(|tag| self.summary.by_tag.contains_key(*tag));
                tag.map(|_| [Some(format!("{prefix}.response")), Some(format!("{prefix}.response_censored"))])
            }
        }
    }

    fn figure_within(&self, series: &[LogTag; 2], figure: &str, window: Window) -> Known {
        let Some(intervals) = self.intervals else {
            return Known::Unknown("it needs the histograms of latency.hlog".to_owned());
        };
        let matching = |series: &LogTag| {
            let inside = intervals.iter().filter(|i| is_inside(i.from_s, i.to_s(), window));
            inside.filter(|i| series.as_ref().is_some_and(|s| i.is(s))).collect::<Vec<_>>()
        };
        let merged = |series: &LogTag| {
            let mut histogram = Histogram::new();
            matching(series).into_iter().for_each(|i| i.merge_into(&mut histogram));
            histogram
        };
        let [known, censored] = series;
        // The autocorrelation shows in the window's seconds, if there are several, and in the whole load.
        let seconds: Vec<Vec<(u64, u64)>> = matching(known).iter().map(|i| i.values().collect()).collect();
        let whole = Dependence::known(self.summary.response_ms.few.widened.unwrap_or(1.0));
        let dependence = Dependence::of_stretches(&seconds).or(whole);
        let distribution = Distribution::dependent(&merged(known), &merged(censored), dependence);
        // A service time equal to the response time is not recorded twice.
        if distribution.count == 0 && known.as_deref() == Some("service") {
            let response = [Some("response".to_owned()), Some("response_censored".to_owned())];
            return self.figure_within(&response, figure, window);
        }
        known_figure(&distribution, figure, window.length_s())
    }
}

impl NumberSource for SummaryNumbers<'_> {
    fn number(&self, name: &str, part: Option<TrialPart>) -> Known {
        let found = match part {
            None => self.whole(name),
            Some(TrialPart::Window(window)) => self.within(name, window),
            Some(TrialPart::Batch(number)) => {
                self.of_batch(name, number).or_else(|| match self.batch(number) {
                    Ok(window) => self.within(name, window),
                    Err(why) => self.whole(name).map(|_| Known::Unknown(why)),
                })
            }
            Some(TrialPart::Drain) => self.whole(name).map(|_| no_window()),
        };
        found.unwrap_or_else(|| Known::Unknown("the trial has no figure of that name".to_owned()))
    }

    /// A summary has no history to look back on.
    fn steady(&self, _name: &str, _for_ns: u64) -> Option<bool> {
        None
    }
}

/// A tag of the interval log, if a distribution has that part.
type LogTag = Option<String>;

fn is_inside(from_s: f64, to_s: f64, window: Window) -> bool {
    from_s >= window.from_s - SLACK_S && to_s <= window.to_s + SLACK_S
}

/// What a search found: a number, or only that the system takes at least what was tried.
fn capacity(summary: &Summary) -> Known {
    let Some(search) = &summary.search else {
        return Known::Unknown("no search has found it: `find` in the plan makes trials searches".to_owned());
    };
    let kind = match search.vary {
        SearchVariable::Users => NumberKind::Plain,
        SearchVariable::Rate => NumberKind::Rate,
    };
    match (&search.capacity, search.level) {
        (Some(capacity), _) => Known::Is(capacity.value, kind),
        (None, Some(level)) => Known::AtLeast(level as f64, kind),
        (None, None) => {
            let why = search.found.clone();
            Known::Unknown(why.unwrap_or_else(|| "the search came to no answer".to_owned()))
        }
    }
}

fn plain(count: u64) -> Known {
    Known::Is(count as f64, NumberKind::Plain)
}

fn optional(value: Option<f64>, kind: NumberKind, why: &str) -> Known {
    value.map_or_else(|| Known::Unknown(why.to_owned()), |value| Known::Is(value, kind))
}

fn no_window() -> Known {
    Known::Unknown("it is not recorded every second, so windows do not apply to it".to_owned())
}

fn not_measured() -> Known {
    Known::Unknown(
        "a program makes the load: its requests are counted, but nothing else about them is known".to_owned(),
    )
}

/// Failures as a share of the requests that were started. It is unknown if none ended: a server that hangs fails no
/// request before its timeout.
fn errors(failed: u64, ended: u64, started: u64) -> Known {
    match (started, ended) {
        (0, _) => Known::Unknown("nothing was started".to_owned()),
        (1, 0) => Known::Unknown("one request was started, and it did not end".to_owned()),
        (n, 0) => Known::Unknown(format!("{} requests were started, and none ended", format_count(n as f64))),
        _ => Known::Is(failed as f64 / started as f64, NumberKind::Fraction),
    }
}

/// A count by its name, and the share of errors.
fn counted(name: &str, requests: &Requests, failures: &Failures) -> Option<Known> {
    Some(plain(match name {
        "due" => requests.due,
        "dropped" => requests.dropped,
        "started" => requests.started,
        "ok" => requests.ok,
        "failed" => requests.failed,
        "in_flight" => requests.in_flight,
        "errors" => return Some(errors(requests.failed, requests.ended(), requests.started)),
        _ => failures.get(Failure::ALL.into_iter().find(|f| f.name() == name)?),
    }))
}

/// A figure of a distribution that lasted this many seconds.
fn known_figure(distribution: &Distribution, figure: &str, lasted_s: f64) -> Known {
    let Distribution { count, censored, .. } = *distribution;
    if let Some(bound) = distribution.over_ms.get(figure) {
        return Known::AtLeast(*bound, NumberKind::Duration);
    }
    let value = distribution.figure(figure).flatten();
    match value {
        _ if count == 0 => Known::Unknown("no times were recorded".to_owned()),
        _ if figure == "stdev" && censored > 0 => Known::Unknown(format!(
            "{} of {} never ended",
            format_count(censored as f64),
            format_count(count as f64)
        )),
        Some(value) => Known::Is(value, NumberKind::Duration),
        None => match (distribution.few.of(figure), quantile_of(figure)) {
            (Some(estimate), Some(quantile)) => {
                let few = FewSamples::of(count, quantile, lasted_s);
                let largest = distribution.largest_seen();
                Known::Between(Between { estimate, largest, kind: NumberKind::Duration, few })
            }
            _ => too_few(figure, count),
        },
    }
}

fn too_few(figure: &str, count: u64) -> Known {
    let needed = quantile_of(figure).map(samples_needed);
    let needed = needed.map_or("more".to_owned(), |n| format_count(n as f64));
    Known::Unknown(format!("needs {needed} samples, has {}", format_count(count as f64)))
}

fn tag_number(tag: &TagSummary, name: &str, lasted_s: f64) -> Option<Known> {
    let (prefix, figure) = name.split_once('.').unwrap_or(("", name));
    let distribution = match prefix {
        "" => &tag.response_ms,
        "ok" => &tag.ok_response_ms,
        "failed_response" => &tag.failed_response_ms,
        _ => return None,
    };
    match FIGURES.contains(&figure) {
        true => Some(known_figure(distribution, figure, lasted_s)),
        false => counted(name, &tag.requests, &tag.failures),
    }
}
