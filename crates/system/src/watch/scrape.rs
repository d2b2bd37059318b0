//! Samples from a Prometheus endpoint: what a program, cAdvisor or node_exporter reports about CPU and memory.
//!
//! Read each second on the trial's clock by a dedicated thread, since an endpoint may be slow and that must not delay
//! other samples. Only values that have a meaning in a sample are taken; nothing is guessed. Names are those of the
//! Prometheus client libraries (`process_*`), of cAdvisor (`container_*`) and of node_exporter (`node_*`).

use std::collections::HashSet;

use loadlab_record::watch::sample::Sample;

use super::probe::prometheus::{self, Metric};
use super::{Emit, SecondTicker, WatchEvent, Watcher};
use crate::cancel::Cancel;
use crate::clock::{self, TrialClock};
use crate::error::Result;
use crate::http::{self, HttpError, Url};

/// Time limit of a reading, nanoseconds.
const READ_TIMEOUT_NS: u64 = 5_000_000_000;

/// An endpoint whose URL is valid.
#[derive(Clone, Debug)]
pub struct Scraper {
    name: String,
    text: String,
    url: Url,
    labels: Vec<(String, String)>,
}

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScrapeError {
    /// The endpoint did not respond.
    #[error(
        "component `{component}`: GET {url}: {source}\nhint: is the endpoint up, and may this machine access it?"
    )]
    Http {
        /// The component the endpoint belongs to.
        component: String,
        /// The URL that was read.
        url: String,
        /// The HTTP error.
        source: HttpError,
    },
    /// It is not a Prometheus endpoint, or has nothing for these labels.
    #[error(
        "component `{component}`: GET {url}: {why}\nhint: it needs `process_*`, `container_*` (cAdvisor) or \
         `node_*` (node_exporter) metrics with the labels of `match`"
    )]
    Nothing {
        /// The component the endpoint belongs to.
        component: String,
        /// The URL that was read.
        url: String,
        /// What was wrong with the response, in words.
        why: String,
    },
}

impl Scraper {
    /// Checks the URL.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(
        name: &str,
        url: &str,
        labels: Vec<(String, String)>,
    ) -> std::result::Result<Scraper, ScrapeError> {
        let text = url.to_owned();
        match Url::parse(url) {
            Ok(url) => Ok(Scraper { name: name.to_owned(), text, url, labels }),
            Err(source) => Err(ScrapeError::Http { component: name.to_owned(), url: text, source }),
        }
    }

    /// The name of its component.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the endpoint now; `stop` is checked every 20 ms and ends the attempt. `at_s` of the sample is 0.
    ///
    /// # Errors
    /// It does not answer, or reports nothing that belongs in a sample.
    pub fn read(&self, stop: &mut dyn FnMut() -> bool) -> std::result::Result<Sample, ScrapeError> {
        let nothing =
            |why: String| ScrapeError::Nothing { component: self.name.clone(), url: self.text.clone(), why };
        let response = http::fetch(&self.url, clock::now_ns() + READ_TIMEOUT_NS, stop).map_err(|source| {
            ScrapeError::Http { component: self.name.clone(), url: self.text.clone(), source }
        })?;
        if response.status != 200 {
            return Err(nothing(format!("answered with status {}", response.status)));
        }
        let text = String::from_utf8_lossy(&response.body);
        let sample = sample_in(&text, &self.labels).map_err(nothing)?;
        Ok(Sample { component: self.name.clone(), ..sample })
    }
}

impl Watcher {
    /// Also reads an endpoint, each second.
    ///
    /// # Errors
    /// No thread can be created.
    pub fn scrape(&mut self, clock: TrialClock, scraper: Scraper, emit: Emit) -> Result<()> {
        let stop = self.stopper();
        let ticker = self.ticker(clock);
        self.spawn("loadlab-scrape", move || watch(&scraper, ticker, &stop, &emit))
    }
}

fn watch(scraper: &Scraper, ticker: SecondTicker, stop: &Cancel, emit: &Emit) {
    let mut failing: Option<String> = None;
    ticker.each(stop, &mut || {
        let at_s = ticker.clock.at_s(clock::now_ns());
        match scraper.read(&mut || stop.is_cancelled()) {
            Ok(sample) => {
                failing = None;
                emit(WatchEvent::Samples(vec![Sample { at_s, ..sample }]));
            }
            Err(_) if stop.is_cancelled() => {}
            Err(error) => {
                // Reported only once while it fails in the same way.
                let text = error.to_string();
                if failing.as_ref() != Some(&text) {
                    emit(WatchEvent::Note(text.clone()));
                    failing = Some(text);
                }
            }
        }
    });
}

/// Makes a sample from the metrics with these labels.
///
/// # Errors
/// There is no metric of CPU or memory, or one cannot be read: the sum of the others would silently be too small.
fn sample_in(text: &str, labels: &[(String, String)]) -> std::result::Result<Sample, String> {
    let is_known = |name: &str| ["process_", "container_", "node_"].iter().any(|kind| name.starts_with(kind));
    let all = prometheus::metrics(text, is_known).collect::<std::result::Result<Vec<_>, _>>()?;
    // An empty label is the same as a missing one.
    let is_wanted = |m: &&Metric<'_>| labels.iter().all(|(name, value)| m.label(name) == value);
    let metrics: Vec<&Metric<'_>> = all.iter().filter(|m| m.value.is_finite()).filter(is_wanted).collect();
    let has = |prefix: &str| metrics.iter().any(|m| m.name.starts_with(prefix));
    // cAdvisor and node_exporter also report on themselves, as `process_*`.
    let sample = if has("container_cpu_usage_seconds_total") || has("container_memory_") {
        of_container(&metrics)
    } else if has("node_cpu_seconds_total") || has("node_memory_") {
        of_node(&metrics)
    } else {
        of_process(&metrics)
    };
    match sample.cpu_s.is_some() || sample.memory_bytes.is_some() {
        true => Ok(sample),
        false => Err("it has no CPU or memory metrics".to_owned()),
    }
}

/// Sum of a metric over all series that `keep` accepts; `None` if there are none.
fn sum(metrics: &[&Metric<'_>], name: &str, keep: &dyn Fn(&Metric<'_>) -> bool) -> Option<f64> {
    let values = metrics.iter().filter(|m| m.name == name && keep(m)).map(|m| m.value);
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn whole(value: Option<f64>) -> Option<u64> {
    value.filter(|v| *v >= 0.0).map(|v| v as u64)
}

fn of_process(metrics: &[&Metric<'_>]) -> Sample {
    let get = |name: &str| sum(metrics, name, &|_| true);
    let resident = whole(get("process_resident_memory_bytes"));
    Sample {
        cpu_s: get("process_cpu_seconds_total"),
        memory_bytes: resident,
        resident_bytes: resident,
        pids: whole(get("process_threads").or_else(|| get("process_num_threads"))),
        open_files: whole(get("process_open_fds")),
        net_in_bytes: whole(get("process_network_receive_bytes_total")),
        net_out_bytes: whole(get("process_network_transmit_bytes_total")),
        ..Sample::default()
    }
}

fn of_container(metrics: &[&Metric<'_>]) -> Sample {
    // `/` is the machine, and `total` is listed beside the cores it sums up.
    let has_total = metrics.iter().any(|m| m.label("cpu") == "total");
    let one =
        |m: &&&Metric<'_>| m.label("id") != "/" && (!has_total || matches!(m.label("cpu"), "" | "total"));
    let get = |name: &str| {
        let of_name: Vec<&Metric<'_>> =
            metrics.iter().filter(|m| m.name == name).filter(one).copied().collect();
        // A pod's group includes its containers, which are below it.
        let ids: HashSet<&str> = of_name.iter().map(|m| m.label("id")).collect();
        sum(&of_name, name, &|m| !is_below_one_of(m.label("id"), &ids))
    };
    Sample {
        cpu_s: get("container_cpu_usage_seconds_total"),
        cpu_user_s: get("container_cpu_user_seconds_total"),
        cpu_system_s: get("container_cpu_system_seconds_total"),
        throttled_periods: whole(get("container_cpu_cfs_throttled_periods_total")),
        throttled_s: get("container_cpu_cfs_throttled_seconds_total"),
        memory_bytes: whole(get("container_memory_working_set_bytes")),
        resident_bytes: whole(get("container_memory_rss")),
        cache_bytes: whole(get("container_memory_cache")),
        memory_limit_bytes: whole(get("container_spec_memory_limit_bytes")).filter(|limit| *limit > 0),
        oom_kills: whole(get("container_oom_events_total")),
        block_read_bytes: whole(get("container_fs_reads_bytes_total")),
        block_written_bytes: whole(get("container_fs_writes_bytes_total")),
        net_in_bytes: whole(get("container_network_receive_bytes_total")),
        net_out_bytes: whole(get("container_network_transmit_bytes_total")),
        pids: whole(get("container_threads").or_else(|| get("container_processes"))),
        open_files: whole(get("container_file_descriptors")),
        ..Sample::default()
    }
}

/// Whether an ancestor of this cgroup is in `ids`.
fn is_below_one_of(id: &str, ids: &HashSet<&str>) -> bool {
    id.match_indices('/').any(|(end, _)| end > 0 && ids.contains(&id[..end]))
}

fn of_node(metrics: &[&Metric<'_>]) -> Sample {
    let get = |name: &str| sum(metrics, name, &|_| true);
    let mode = |modes: &[&str]| {
        sum(metrics, "node_cpu_seconds_total", &|m: &Metric<'_>| modes.contains(&m.label("mode")))
    };
    let outside = |name: &str| whole(sum(metrics, name, &|m: &Metric<'_>| m.label("device") != "lo"));
    // Idle, iowait and stolen time is not used by anyone.
    let (user_s, system_s) = (mode(&["user", "nice"]), mode(&["system", "irq", "softirq"]));
    let total = whole(get("node_memory_MemTotal_bytes"));
    let available = whole(get("node_memory_MemAvailable_bytes"));
    Sample {
        cpu_s: user_s.zip(system_s).map(|(user, system)| user + system),
        cpu_user_s: user_s,
        cpu_system_s: system_s,
        memory_bytes: total.zip(available).map(|(total, available)| total.saturating_sub(available)),
        cache_bytes: whole(get("node_memory_Cached_bytes")),
        memory_limit_bytes: total,
        oom_kills: whole(get("node_vmstat_oom_kill")),
        block_read_bytes: whole(get("node_disk_read_bytes_total")),
        block_written_bytes: whole(get("node_disk_written_bytes_total")),
        net_in_bytes: outside("node_network_receive_bytes_total"),
        net_out_bytes: outside("node_network_transmit_bytes_total"),
        open_files: whole(get("node_filefd_allocated")),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, labels: &[(&str, &str)]) -> std::result::Result<Sample, String> {
        let labels: Vec<_> = labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        sample_in(text, &labels)
    }

    #[test]
    fn figures_that_a_program_exports_about_itself() {
        let text = "# HELP process_cpu_seconds_total x\nprocess_cpu_seconds_total 12.5\nother{a=\"}\"} NaN\n\
                    process_resident_memory_bytes 1.048576e+06 1700000000000\nprocess_open_fds 9\n";
        let sample = of(text, &[]).unwrap();
        assert_eq!(
            (sample.cpu_s, sample.memory_bytes, sample.open_files, sample.net_in_bytes),
            (Some(12.5), Some(1 << 20), Some(9), None)
        );
    }

    #[test]
    fn one_container_of_many() {
        let text = "container_cpu_usage_seconds_total{id=\"/\",name=\"\",cpu=\"total\"} 900\n\
                    container_cpu_usage_seconds_total{id=\"/d/a\",name=\"a\",cpu=\"total\"} 3\n\
                    container_cpu_usage_seconds_total{id=\"/d/a\",name=\"a\",cpu=\"cpu00\"} 1\n\
                    container_cpu_usage_seconds_total{id=\"/d/b\",name=\"b\",cpu=\"total\"} 4\n\
                    container_memory_working_set_bytes{id=\"/d/a\",name=\"a\"} 100\n\
                    container_spec_memory_limit_bytes{id=\"/d/a\",name=\"a\"} 0\n\
                    container_network_receive_bytes_total{name=\"a\",interface=\"eth0\"} 7\n\
                    process_cpu_seconds_total 55\n";
        let sample = of(text, &[("name", "a")]).unwrap();
        assert_eq!(
            (sample.cpu_s, sample.memory_bytes, sample.memory_limit_bytes, sample.net_in_bytes),
            (Some(3.0), Some(100), None, Some(7))
        );
        assert_eq!(of(text, &[]).unwrap().cpu_s, Some(7.0));
        assert_eq!(of(text, &[("name", "c")]), Err("it has no CPU or memory metrics".into()));
    }

    #[test]
    fn a_pod_is_not_counted_twice() {
        let text = "container_cpu_usage_seconds_total{id=\"/kubepods/pod1\",pod=\"x\",container=\"\"} 10\n\
                    container_cpu_usage_seconds_total{id=\"/kubepods/pod1/aa\",pod=\"x\",container=\"web\"} 7\n\
                    container_cpu_usage_seconds_total{id=\"/kubepods/pod1/bb\",pod=\"x\",container=\"log\"} 2\n\
                    container_cpu_usage_seconds_total{id=\"/kubepods/pod10/cc\",pod=\"x\",container=\"web\"} 4\n\
                    container_memory_working_set_bytes{id=\"/kubepods/pod1/aa\",pod=\"x\",container=\"web\"} 70\n\
                    container_memory_working_set_bytes{id=\"/kubepods/pod1/bb\",pod=\"x\",container=\"log\"} 20\n\
                    container_network_receive_bytes_total{id=\"/kubepods/pod1\",pod=\"x\",interface=\"eth0\"} 5\n\
                    container_network_receive_bytes_total{id=\"/kubepods/pod1\",pod=\"x\",interface=\"eth1\"} 6\n";
        let sample = of(text, &[("pod", "x")]).unwrap();
        // If only the containers are reported, they are summed up.
        assert_eq!(
            (sample.cpu_s, sample.memory_bytes, sample.net_in_bytes),
            (Some(14.0), Some(90), Some(11))
        );
        assert_eq!(of(text, &[("container", "web")]).unwrap().cpu_s, Some(11.0));
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let text = "other{a=\"1} 2\nprocess_cpu_seconds_total 1\n";
        assert_eq!(of(text, &[]).unwrap().cpu_s, Some(1.0));
        let text = format!("{text}process_resident_memory_bytes many\n");
        let why = of(&text, &[]).unwrap_err();
        assert_eq!(why, "`process_resident_memory_bytes` is not a number but `many`");
        assert!(of("<html>\nnothing here\n", &[]).is_err());
    }

    #[test]
    fn a_machine() {
        let text = "node_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} 1000\nnode_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 5\n\
                    node_cpu_seconds_total{cpu=\"1\",mode=\"user\"} 6\nnode_cpu_seconds_total{cpu=\"1\",mode=\"system\"} 2\n\
                    node_memory_MemTotal_bytes 100\nnode_memory_MemAvailable_bytes 30\n\
                    node_network_receive_bytes_total{device=\"lo\"} 9\nnode_network_receive_bytes_total{device=\"eth0\"} 4\n\
                    process_resident_memory_bytes 1\n";
        let sample = of(text, &[]).unwrap();
        assert_eq!((sample.cpu_s, sample.memory_bytes, sample.net_in_bytes), (Some(13.0), Some(70), Some(4)));
    }
}
