//! Doubts about the generator and its machine: too little CPU, stalls, its own limits.

use loadlab_record::counts::load::OwnLimits;
use loadlab_record::documents::summary::{Doubt, LoadFacts, Stalls, Summary};
use loadlab_record::text::units::{format_count, format_duration_ns, format_percent_short};

use super::lateness::{
    figures_in, has_due_times, late_is_grave, quantile_ns, responses, shortage_is_grave, tail_of,
};
use super::{Grounds, doubt, ms, share_of};
use crate::trial::doubt_kind;

/// CPU above this share of a thread, a limit, a core or a machine leaves no reserve to react on time.
pub(crate) const BUSY_SHARE: f64 = 0.90;
/// A wait for a core above this share of the median response shows in response times: a request meets such waits when
/// it is due and when its answer arrives. Many short waits – every thread on a shared machine has them – do not show.
const CPU_WAIT_SHARE: f64 = 0.10;
/// Waits that add up to less than this share of the time are ignored.
const CPU_WAIT_FLOOR: f64 = 0.01;
/// loadlab itself throttled by a CPU limit for more than this share of the time.
const LOADLAB_THROTTLED_SHARE: f64 = 0.01;
/// A machine suspended for longer than this. The measured time is a lower bound: a thread that loses its core between
/// two readings does not count.
const SUSPENDED_S: f64 = 1e-3;
/// A shorter load is mostly its own start and end, which keep a thread busy however much reserve it has.
const SHORTEST_BUSY_S: f64 = 0.1;

/// loadlab's own cgroup was throttled by a CPU limit: whole periods in which it saw nothing.
pub(super) fn throttled(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let grave = shortage_is_grave(summary, grounds);
    throttled_so_far(summary.generator.throttled_s?, grounds.load_s, &summary.load, grave)
}

/// As [`throttled`], for a load so far. `is_grave`: a shortage of the generator spoils what this run is to show.
pub(crate) fn throttled_so_far(
    throttled_s: f64,
    load_s: f64,
    load: &LoadFacts,
    is_grave: bool,
) -> Option<Doubt> {
    let share = share_of(throttled_s, load_s)?;
    if throttled_s < 1e-3 {
        return None;
    }
    doubt(
        doubt_kind::THROTTLED,
        share > LOADLAB_THROTTLED_SHARE && is_grave,
        format!(
            "loadlab itself was throttled by a CPU limit for {} of a load of {} (summed over cores){}",
            ms(throttled_s * 1e3),
            ms(load_s * 1e3),
            lower_bound(load)
        ),
        "raise the CPU limit of the container or session in which loadlab runs",
    )
}

/// What a saturated generator means for a throughput.
fn lower_bound(load: &LoadFacts) -> &'static str {
    if has_due_times(load) { "" } else { "; the throughput is a lower bound of what the system can do" }
}

/// loadlab or its machine was stopped: SIGSTOP, a debugger, a virtual machine that was moved or paused, or cores that
/// others held for that long.
///
/// If requests have due times, lateness decides. Otherwise each gap affects one request of every user, and is grave if
/// these suffice to move a time that an expectation depends on. A suspended machine is always grave: its clock stood
/// still.
pub(super) fn generator_stalled(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let still = summary.generator.stalls;
    let suspended_s = summary.generator.suspended_s.filter(|s| *s > SUSPENDED_S);
    if still.count == 0 && suspended_s.is_none() {
        return None;
    }
    let mut evidence: Vec<String> = describe_stalls(still).into_iter().collect();
    evidence.extend(suspended_s.map(|s| format!("this machine was suspended for {}", ms(s * 1e3))));
    let touched = share_of(
        still.count as f64 * summary.concurrency_mean,
        responses(&grounds.measured.series).count() as f64,
    );
    let moved = |figure: &String| tail_of(figure).zip(touched).is_some_and(|(tail, share)| share >= tail);
    let grave = suspended_s.is_some()
        || match has_due_times(&summary.load) {
            true => late_is_grave(&grounds.measured.series),
            false => summary.expectations.iter().any(|e| figures_in(&e.expr, grounds).iter().any(moved)),
        };
    doubt(
        doubt_kind::GENERATOR_STALLED,
        grave,
        evidence.join("; "),
        "find what stops it: a signal, a suspended or migrated virtual machine, or other processes on its cores (`--cpus`)",
    )
}

/// How long loadlab stalled; `None` if it did not.
pub(crate) fn describe_stalls(still: Stalls) -> Option<String> {
    let all = match still.count {
        0 => return None,
        1 => String::new(),
        n => format!(", {} times for {} in all", format_count(n as f64), ms(still.total_s * 1e3)),
    };
    let (longest, at) = (ms(still.max_s * 1e3), ms(still.max_at_s * 1e3));
    Some(format!("loadlab stalled for {longest}, {at} into the load{all}"))
}

/// The thread that merges the counts of load threads had too little time, and ticks are longer than a second. Counts,
/// rates and percentiles of the whole load are complete.
pub(super) fn coarse_ticks(summary: &Summary) -> Option<Doubt> {
    let coarse_s = summary.generator.coarse_s;
    if coarse_s <= 0.0 {
        return None;
    }
    doubt(
        "coarse_ticks",
        false,
        format!(
            "the thread that merges counts fell behind: {} of the load is in ticks longer than a second",
            ms(coarse_s * 1e3)
        ),
        "totals are complete, but these ticks hide what happened within them: leave loadlab a core, or use fewer tags",
    )
}

/// Connects that failed because loadlab's own machine lacked something. They are counted as failures of the system,
/// but are not.
pub(super) fn client_limit(summary: &Summary) -> Option<Doubt> {
    client_limit_so_far(summary.connections.own_limits, summary.connections.attempted)
}

/// As [`client_limit`], for the attempts so far.
pub(crate) fn client_limit_so_far(own: OwnLimits, attempted: u64) -> Option<Doubt> {
    let kinds = [
        (
            own.open_files,
            "no file descriptor was left",
            "raise the limit on open files (`ulimit -n`), or use `--io uring`, whose sockets need none",
        ),
        (
            own.ports,
            "no local port was left",
            "widen `net.ipv4.ip_local_port_range`, connect from several addresses of this machine (`--source`), or keep connections alive",
        ),
        (own.memory, "the kernel had no memory for a socket", "free memory, or raise `net.ipv4.tcp_mem`"),
    ];
    let met: Vec<_> = kinds.into_iter().filter(|(n, _, _)| *n > 0).collect();
    if met.is_empty() {
        return None;
    }
    let whys: Vec<String> =
        met.iter().map(|(n, why, _)| format!("{} because {why}", format_count(*n as f64))).collect();
    let hints: Vec<&str> = met.iter().map(|(_, _, hint)| *hint).collect();
    let attempts = format_count(attempted as f64);
    doubt(
        doubt_kind::CLIENT_LIMIT,
        true,
        format!(
            "of {attempts} connection attempts, {} failed on limits of loadlab's own machine: {}",
            format_count(met.iter().map(|(n, ..)| *n as f64).sum()),
            whys.join(", ")
        ),
        format!("{}; `loadlab check --preflight` shows this machine's limits", hints.join("; ")),
    )
}

/// A load thread without reserve: the busiest one, since others may have little or no share of the load. In the closed
/// model the throughput is then a lower bound; it is grave only if an expectation depends on response times, which
/// include the generator's own queue.
pub(super) fn generator_cpu(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let generator = &summary.generator;
    // Threads whose connects are all refused at once are always busy, however many cores they have.
    let connections = grounds.measured.connections;
    if connections.attempted > 0 && connections.opened + connections.reused == 0 {
        return None;
    }
    let share = share_of(generator.busiest_s()?, grounds.load_s)?;
    if share <= BUSY_SHARE || grounds.load_s < SHORTEST_BUSY_S {
        return None;
    }
    let thread = match generator.threads {
        1 => "1 load thread".to_owned(),
        n => format!("the busiest of {n} load threads"),
    };
    doubt(
        doubt_kind::GENERATOR_CPU,
        !has_due_times(&summary.load) && shortage_is_grave(summary, grounds),
        format!(
            "{thread} was busy for {} of the time{}",
            format_percent_short(share),
            lower_bound(&summary.load)
        ),
        "give loadlab more cores (`--threads`, `--cpus`), or send the load from another machine",
    )
}

/// Load threads that were ready and got no core, for long enough each time to show in response times.
///
/// The mean wait is compared with the median response, not the sum of waits with the time: on a machine shared with
/// the system a busy thread waits for a fifth of its time in slices of microseconds, and no figure shows it.
pub(super) fn cpu_wait(summary: &Summary, grounds: &Grounds<'_>) -> Option<Doubt> {
    let generator = &summary.generator;
    let share = share_of(generator.longest_delay_s()?, grounds.load_s)?;
    let each_ns = share_of(generator.run_delay_s? * 1e9, generator.time_slices? as f64)?;
    let median_ns = quantile_ns(&responses(&grounds.measured.series), 0.5)?;
    if share <= CPU_WAIT_FLOOR || each_ns <= CPU_WAIT_SHARE * median_ns {
        return None;
    }
    let whose = if generator.threads == 1 { " in total" } else { ", on the thread that waited longest" };
    doubt(
        "cpu_wait",
        false,
        format!(
            "load threads waited {} for a core each time they were ready ({} of the time{whose}), compared with a median response of {}",
            format_duration_ns(each_ns),
            format_percent_short(share),
            format_duration_ns(median_ns)
        ),
        "give loadlab and the system under test separate cores (`--cpus`), or expect times to include the wait",
    )
}
