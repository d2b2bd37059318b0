//! The experiment in words: what a reader of the report or of `--dry-run` wants to know first.
//!
//! A fact that holds in all cases is stated once; one that differs is stated for each variant, with the cases it holds
//! in. Only what the plan specifies, not how it is carried out.

mod journey;

use std::collections::HashMap;

use loadlab_record::spec::schedule::{Arrivals, Think, Until, WhenBehind};
use loadlab_record::text::units::{format_bytes, format_count, format_duration_ns, plural, significant};

use crate::model::component_kind::{Command, ComponentKind, Lifetime};
use crate::model::journey::Step;
use crate::model::limits::Limits;
use crate::model::plan::{Plan, TrialOrder};
use crate::model::spec::{
    Case, CommandLoad, ComponentSpec, FindSpec, LoadSpec, Model, Persisted, ProbeSource, ReadySign,
};
use crate::text::shorten::shorten_to;

/// Maximum number of variants of one fact that are spelled out.
const VARIANTS: usize = 8;
/// Maximum number of case names in one line.
const NAMES: usize = 6;

/// One fact per line.
pub(crate) fn of(plan: &Plan) -> Vec<String> {
    let mut lines = vec![plan.name.clone()];
    let description = plan.description.iter().flat_map(|d| d.lines()).map(str::trim);
    lines.extend(description.filter(|l| !l.is_empty()).map(str::to_owned));
    // A control differs in nothing from the case that it repeats.
    let cases = plan.own_cases();
    let names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    if cases.len() > 1 {
        lines.push(format!("{} cases: {}", cases.len(), names_of(&names, 20)));
    }
    if !plan.revisions.is_empty() {
        let names: Vec<&str> = plan.revisions.iter().map(|r| r.name.as_str()).collect();
        lines.push(format!("revisions of its repository: {}", names_of(&names, 20)));
    }
    lines.push(trials(plan));
    lines.extend(vary(cases));
    if let Some(case) = cases.first().filter(|c| !c.figures.is_empty()) {
        let figures: Vec<String> = case.figures.iter().map(|f| format!("{} = {}", f.name, f.value)).collect();
        lines.push(format!("figures: {}", figures.join("; ")));
    }
    if !plan.allow_hosts.is_empty() {
        lines.push(format!("may load {} besides loopback", plan.allow_hosts.join(", ")));
    }
    lines.extend(plan.notes.iter().map(|n| format!("note: {n}")));
    lines
}

/// Said of trials whose base case is measured twice.
const WITH_CONTROL: &str = "; a control shows what is chance";

fn trials(plan: &Plan) -> String {
    let (cases, trials) = (plan.cases().len(), plan.trials);
    if let Some(until) = plan.until_certain {
        let within = format!("{} %", significant(until.within * 100.0, 3));
        let budget = until.budget_ns.map(|ns| format!(" and at most {}", format_duration_ns(ns as f64)));
        return format!(
            "trials of all cases in rounds, in random order, until it is certain whether they differ or are the same \
             within {within}: at most {}{}{}{}",
            plural(u64::from(trials), "round", "rounds"),
            budget.unwrap_or_default(),
            if plan.has_control { WITH_CONTROL } else { "" },
            plan.profile.as_ref().map_or(String::new(), |p| format!(" (profile {p})")),
        );
    }
    let each = if trials == 1 { "one trial".to_owned() } else { format!("{trials} trials") };
    let order = match plan.order {
        _ if cases == 1 || trials == 1 => "",
        TrialOrder::Interleaved => ", cases in turn",
        TrialOrder::Sequential => ", one case after another",
    };
    let of_each = if cases == 1 { String::new() } else { format!(" of each case{order}") };
    let total = if cases > 1 && trials > 1 {
        format!(": {} in all", cases as u64 * u64::from(trials))
    } else {
        String::new()
    };
    let profile = plan.profile.as_ref().map_or(String::new(), |p| format!(" (profile {p})"));
    let quick = if plan.quick { "; a first look: no verdicts on differences" } else { "" };
    let control = if plan.has_control { WITH_CONTROL } else { "" };
    format!("{each}{of_each}{total}{control}{profile}{quick}")
}

fn names_of(names: &[&str], most: usize) -> String {
    let shown = names.iter().take(most).copied().collect::<Vec<_>>().join("; ");
    if names.len() > most { format!("{shown}; and {} more", names.len() - most) } else { shown }
}

/// Facts of all cases, with common ones stated once.
fn vary(cases: &[Case]) -> Vec<String> {
    let mut subjects: Vec<String> = Vec::new();
    let mut variants: HashMap<String, Vec<(String, Vec<&Case>)>> = HashMap::new();
    let compares = cases.iter().any(|case| case.durability.is_some());
    for case in cases {
        let compared_with_none = (compares && case.durability.is_none())
            .then(|| ("durability".to_owned(), "none, since no step carries a `${unique}`".to_owned()));
        for (subject, text) in facts(case, &case.dir).into_iter().chain(compared_with_none) {
            let known = variants.entry(subject.clone()).or_insert_with(|| {
                subjects.push(subject);
                Vec::new()
            });
            match known.iter_mut().find(|(t, _)| *t == text) {
                Some((_, within)) => within.push(case),
                None => known.push((text, vec![case])),
            }
        }
    }
    let mut lines = Vec::new();
    for subject in subjects {
        let known = &variants[&subject];
        for (text, within) in known.iter().take(VARIANTS) {
            let only = match within.len() {
                n if n == cases.len() => String::new(),
                _ => format!(" (in {})", which(within, cases)),
            };
            lines.push(format!("{subject}: {text}{only}"));
        }
        if known.len() > VARIANTS {
            lines.push(format!("{subject}: {} more variants", known.len() - VARIANTS));
        }
    }
    lines
}

/// Some of the cases: by the values of one axis if that identifies them, otherwise by name.
fn which(within: &[&Case], cases: &[Case]) -> String {
    let axes = cases.first().map_or(&[][..], |c| c.values.as_slice());
    for (i, (axis, _)) in axes.iter().enumerate() {
        let value = |case: &Case| case.values.get(i).map(|(_, v)| v.clone()).unwrap_or_default();
        let mut values: Vec<String> = within.iter().map(|c| value(c)).collect();
        values.dedup();
        values.sort();
        values.dedup();
        let alike = cases.iter().filter(|c| values.binary_search(&value(c)).is_ok()).count();
        let by_axes = cases.iter().all(|c| c.name.contains(&format!("{axis}=")));
        if by_axes && alike == within.len() && values.len() < within.len().max(2) {
            return format!("{axis}={}", values.join(", "));
        }
    }
    let names: Vec<&str> = within.iter().map(|c| c.name.as_str()).collect();
    names_of(&names, NAMES)
}

/// A case's facts, as (subject, fact).
fn facts(case: &Case, dir: &str) -> Vec<(String, String)> {
    let command = |c: &Command| command(c, dir);
    let mut facts = Vec::new();
    let firsts: Vec<&ComponentSpec> = case.system.components.iter().filter(|c| c.replica == 1).collect();
    for component in &firsts {
        let times =
            if component.replicas > 1 { format!("{} × ", component.replicas) } else { String::new() };
        facts.push((component.group.clone(), format!("{times}{}", kind(&component.kind, &command))));
        facts.push((component.group.clone(), lives(component)));
        facts.extend(limits(&component.limits).map(|l| (component.group.clone(), l)));
    }
    let commands = [
        ("seed", &case.system.seed),
        ("before each trial", &case.system.before_trial),
        ("after each trial", &case.system.after_trial),
    ];
    for (subject, list) in commands.into_iter().filter(|(_, list)| !list.is_empty()) {
        facts.push((subject.to_owned(), list.iter().map(&command).collect::<Vec<_>>().join(", then ")));
    }
    for probe in &case.system.probes {
        facts.push((format!("probe {}", probe.name), probe_line(&probe.source, &command)));
    }
    if !case.setup.steps.is_empty() {
        let names = |slot: u16| {
            case.setup.captures.get(usize::from(slot)).map_or_else(String::new, |c| c.name.clone())
        };
        facts.push(("setup".to_owned(), steps(&case.setup.steps, dir, &names)));
    }
    for load in &case.loads {
        let subject = if load.name == "load" { "load".to_owned() } else { format!("load {}", load.name) };
        if let Some(program) = load.command() {
            facts.push((subject, program_line(load, program, &command)));
            continue;
        }
        facts.push((subject.clone(), load_line(load)));
        facts.extend(details(load).map(|d| (subject.clone(), d)));
        facts.extend(journey::around(load).map(|line| (subject.clone(), line)));
        let names = |slot: u16| {
            let slot = usize::from(slot);
            let own = slot.checked_sub(case.setup.captures.len()).and_then(|s| load.script.captures.get(s));
            own.map_or_else(String::new, |c| c.name.clone())
        };
        let of = |what: &str| {
            if load.name == "load" { what.to_owned() } else { format!("{what} of {}", load.name) }
        };
        let lists = [
            ("user_setup", &load.script.user_setup),
            ("journey", &load.journey),
            ("user_teardown", &load.script.user_teardown),
        ];
        for (what, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            facts.push((of(what), steps(list, dir, &names)));
        }
    }
    facts.extend(case.stop_when.iter().map(|e| ("ends early".to_owned(), format!("when {}", e.text))));
    facts.extend(case.drain.iter().map(|d| {
        ("drain".to_owned(), format!("until {}, at most {}", d.until.text, duration(d.at_most_ns)))
    }));
    facts.extend(
        case.durability.iter().map(|d| ("durability".to_owned(), durability_line(&d.persisted, &command))),
    );
    facts.extend(
        case.events.iter().map(|e| ("event".to_owned(), format!("{} after {}", e.text, duration(e.at_ns)))),
    );
    facts.extend(case.find.iter().map(|find| ("searched".to_owned(), search_line(find, &case.loads))));
    facts.extend(case.expect.iter().map(|e| ("expected".to_owned(), e.text.clone())));
    facts
}

fn search_line(find: &FindSpec, loads: &[LoadSpec]) -> String {
    let expect: Vec<&str> = find.expect.iter().map(|e| e.text.as_str()).collect();
    let load = match loads {
        [_] => String::new(),
        _ => loads.get(find.load).map_or(String::new(), |load| format!(" of {}", load.name)),
    };
    format!(
        "in each trial, {}{load} from {} to {} for {}: at most {} of {}",
        find.vary.name(),
        find.range.0,
        find.range.1,
        expect.join(" and "),
        plural(u64::from(find.max_levels), "level", "levels"),
        duration(find.level_ns.saturating_add(find.settle_ns))
    )
}

fn durability_line(persisted: &Persisted, command: &dyn Fn(&Command) -> String) -> String {
    let stored = match persisted {
        Persisted::Http { url, .. } => format!("the ids that {url} lists"),
        Persisted::Command(c) => format!("the ids that {} prints", command(c)),
        Persisted::Probe(name) => format!("the count of probe {name}"),
    };
    format!("compares what was accepted with {stored}")
}

fn probe_line(source: &ProbeSource, command: &dyn Fn(&Command) -> String) -> String {
    match source {
        ProbeSource::Http { url, json_pointer } => format!("`{json_pointer}` of {url}"),
        ProbeSource::Prometheus { url, metric, labels } => {
            let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(", ")) };
            format!("`{metric}{labels}` of {url}")
        }
        ProbeSource::Redis { address, words } => {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            format!("`{}` of Redis at {address}", words.join(" "))
        }
        ProbeSource::Command(line) => format!("what {} prints", command(line)),
        ProbeSource::Log { components, contains } => {
            format!("lines with `{contains}` in the log of {}", components.join(", "))
        }
    }
}

/// What a component is, with its command as in the plan.
fn kind(kind: &ComponentKind, command: &dyn Fn(&Command) -> String) -> String {
    match kind {
        ComponentKind::Process(run) => command(run),
        other => other.text(),
    }
}

/// A command with paths as in the plan.
fn command(command: &Command, dir: &str) -> String {
    let text = match command {
        Command::Shell(line) => line.to_string(),
        Command::Words(words) => words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    format!("`{}`", shorten_to(within(&text, dir).trim(), 100))
}

/// The text without the plan's folder in front of paths: the folder is where the plan is, and long.
fn within(text: &str, dir: &str) -> String {
    if dir.len() > 1 { text.replace(&format!("{dir}/"), "") } else { text.to_owned() }
}

fn lives(component: &ComponentSpec) -> String {
    let lifetime = match component.lifetime {
        Lifetime::Trial => "restarted for each trial",
        Lifetime::Case => "restarted when the case changes",
        Lifetime::Experiment => "lives for the whole experiment",
    };
    let ready = component.ready.as_ref().map(|r| match &r.sign {
        ReadySign::Http(url) => format!(", ready when {url} answers"),
        ReadySign::Tcp(address) => format!(", ready when {address} accepts"),
        ReadySign::Log(text) => format!(", ready when it logs `{text}`"),
        ReadySign::Health => ", ready when its health check passes".to_owned(),
    });
    format!("{lifetime}{}", ready.unwrap_or_default())
}

fn limits(limits: &Limits) -> Option<String> {
    let cpu = limits.cpu_cores.map(|c| format!("{}% of one core", round(c * 100.0)));
    let memory = limits.memory_bytes.map(|b| format!("{} of memory", format_bytes(b as f64)));
    let pids = limits.pids.map(|n| format!("{} processes and threads", format_count(n as f64)));
    let files = limits.open_files.map(|n| format!("{} open files", format_count(n as f64)));
    let bytes = |n: u64, what: &str| format!("{}/s {what}", format_bytes(n as f64));
    let swap = limits.memory_swap_bytes.map(|b| format!("{} of memory and swap", format_bytes(b as f64)));
    let block = [
        limits.block_read_bytes_per_s.map(|n| bytes(n, "read from a disk")),
        limits.block_write_bytes_per_s.map(|n| bytes(n, "written to a disk")),
        limits.block_read_ops_per_s.map(|n| format!("{n} reads/s from a disk")),
        limits.block_write_ops_per_s.map(|n| format!("{n} writes/s to a disk")),
    ];
    let link = [
        limits.bandwidth_bytes_per_s.map(|n| bytes(n, "over its link each way")),
        limits.delay_ns.map(|ns| match limits.jitter_ns {
            Some(jitter_ns) => format!("round trips longer by {} ± {}", duration(ns), duration(jitter_ns)),
            None => format!("round trips longer by {}", duration(ns)),
        }),
        limits.packet_loss.map(|share| format!("{}% packet loss on its link", round(share * 100.0))),
    ];
    let cpus: Vec<String> = limits.cpuset.iter().map(usize::to_string).collect();
    let cpus = (!cpus.is_empty()).then(|| format!("cores {}", cpus.join(", ")));
    let measured = limits.measured.iter().map(|m| format!("{} of {}", m.limit.key(), m.text));
    let plain = [cpu, memory, swap, pids, files].into_iter().chain(block).chain([cpus]).chain(link).flatten();
    let all: Vec<String> = plain.chain(measured).collect();
    (!all.is_empty()).then(|| format!("at most {}", all.join(", ")))
}

/// A load that a program makes.
fn program_line(load: &LoadSpec, program: &CommandLoad, command: &dyn Fn(&Command) -> String) -> String {
    let start = match load.start_ns {
        0 => String::new(),
        ns => format!("after {}: ", duration(ns)),
    };
    let how_many = program.requests.map_or("requests".to_owned(), |n| plural(n, "request", "requests"));
    let begins =
        program.started_when_output.as_ref().map(|text| format!(", starting at `{text}` in its output"));
    format!(
        "{start}{how_many} made by {}{}, counted by probe {}, at most {}{}",
        command(&program.command),
        begins.unwrap_or_default(),
        program.counted_by,
        duration(program.timeout_ns),
        batches(load)
    )
}

/// `, 3 times with pauses of 10s`.
fn batches(load: &LoadSpec) -> String {
    match (load.batches, load.pause_ns) {
        (1, _) => String::new(),
        (n, 0) => format!(", {n} times"),
        (n, pause) => format!(", {n} times with pauses of {}", duration(pause)),
    }
}

/// Who sends, for how long and how often.
fn load_line(load: &LoadSpec) -> String {
    let who = match &load.model {
        // Described by `program_line`.
        Model::Command(_) => String::new(),
        Model::Closed { users, pace_ns } => {
            let who = match load.stages.is_empty() {
                true => plural(*users, "user", "users"),
                false => format!("up to {} in stages", plural(*users, "user", "users")),
            };
            match pace_ns {
                Some(pace) => format!("{who}, each with a request due every {}", duration(*pace)),
                None => format!("{who}, each sends when its last request has ended{}", think(load.think)),
            }
        }
        Model::Open { rate_per_s, arrivals, .. } => {
            let spread = match arrivals {
                Arrivals::Constant => "evenly",
                Arrivals::Poisson => "at random (Poisson)",
            };
            let up_to = if load.stages.is_empty() { "" } else { "up to " };
            format!("{up_to}{} requests due per second, spread {spread}", round(*rate_per_s))
        }
        Model::Sessions { rate_per_s, arrivals, max_users } => {
            let spread = match arrivals {
                Arrivals::Constant => "evenly",
                Arrivals::Poisson => "at random (Poisson)",
            };
            let most = format_count(*max_users as f64);
            format!(
                "{} users arrive per second, spread {spread}, at most {most} at a time",
                round(*rate_per_s)
            )
        }
    };
    let until = match load.until {
        Until::Elapsed(ns) => format!("for {}", duration(ns)),
        Until::Requests(n) if matches!(load.model, Model::Sessions { .. }) => {
            format!("until {} have come", plural(n, "user", "users"))
        }
        Until::Requests(n) => format!("until {} are sent", plural(n, "request", "requests")),
        Until::Repeats(n) => format!("{} of the journey each", plural(n, "round", "rounds")),
    };
    let start = match load.start_ns {
        0 => String::new(),
        ns => format!("after {}: ", duration(ns)),
    };
    format!("{start}{who}, {until}{}", batches(load))
}

fn think(think: Think) -> String {
    match think {
        Think::None => String::new(),
        Think::Constant(ns) => format!(" and it has thought for {}", duration(ns)),
        Think::Uniform(low_ns, high_ns) => {
            format!(" and it has thought for {} to {}", duration(low_ns), duration(high_ns))
        }
        Think::Exponential(mean_ns) => {
            format!(" and it has thought for {} on average (exponentially distributed)", duration(mean_ns))
        }
    }
}

/// `0 → 100 over 10s, 100 for 30s, at once to 20`; the first twelve.
fn stages(load: &LoadSpec) -> Option<String> {
    let unit = if matches!(load.model, Model::Open { .. }) { "/s" } else { "" };
    let mut level = 0.0;
    let mut said: Vec<String> = Vec::new();
    for stage in &load.stages {
        let (from, to, over) = (round(stage.from), round(stage.to), duration(stage.over_ns));
        let jump = if stage.from == level || said.is_empty() { "" } else { "at once " };
        said.push(match () {
            () if stage.over_ns == 0 => format!("at once to {to}{unit}"),
            () if stage.from == stage.to => format!("{jump}{to}{unit} for {over}"),
            () => format!("{jump}{from}{unit} → {to}{unit} over {over}"),
        });
        level = stage.to;
    }
    let more = said.len().saturating_sub(12);
    said.truncate(12);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    (!said.is_empty()).then(|| format!("stages: {}", said.join(", ")))
}

/// The load's differences from the defaults.
fn details(load: &LoadSpec) -> Option<String> {
    let mut said: Vec<String> = stages(load).into_iter().collect();
    if load.ramp_ns > 0 {
        said.push(format!("ramp of {}", duration(load.ramp_ns)));
    }
    if load.warmup_ns > 0 {
        said.push(format!("percentiles and rates leave out the first {}", duration(load.warmup_ns)));
    }
    if load.is_warmup_found {
        said.push("percentiles and rates leave out the warm-up, if one is found".to_owned());
    }
    if load.when_behind == WhenBehind::Drop {
        said.push("requests that cannot start when due are dropped".to_owned());
    }
    if let Model::Open { max_in_flight, .. } = load.model
        && max_in_flight != 10_000
    {
        said.push(format!("at most {} in flight", format_count(max_in_flight as f64)));
    }
    if !load.keep_alive {
        said.push("a new connection for each request".to_owned());
    }
    said.push(format!("timeout {}, grace {}", duration(load.timeout_ns), duration(load.grace_ns)));
    if let Some(threads) = load.threads {
        said.push(plural(u64::from(threads), "thread", "threads"));
    }
    Some(said.join("; "))
}

/// The first dozen of some steps.
fn steps(list: &[Step], dir: &str, names: &dyn Fn(u16) -> String) -> String {
    let shown: Vec<String> = list.iter().take(12).map(|s| step(s, dir, names)).collect();
    let more = if list.len() > 12 { format!(", and {} more", list.len() - 12) } else { String::new() };
    format!("{}{more}", shown.join(", then "))
}

fn step(step: &Step, dir: &str, names: &dyn Fn(u16) -> String) -> String {
    let body = journey::body(&step.body, &|path| within(path, dir));
    let tags = if step.tags.is_empty() { String::new() } else { format!(" [{}]", step.tags.join(", ")) };
    let good = step.statuses.as_ref().map_or(String::new(), |list| {
        let list: Vec<String> = list.iter().map(u16::to_string).collect();
        format!(" → {}", list.join(" or "))
    });
    let more = journey::more(step, names);
    let what = match (&step.urls, &step.websocket) {
        (Some(file), _) => format!("GET the URLs of {} in turn", within(file, dir)),
        (None, Some(conversation)) => {
            let said = conversation.messages.iter().filter(|m| !m.is_pause()).count() as u64;
            let times = if conversation.repeat > 1 {
                format!(" {} times", conversation.repeat)
            } else {
                String::new()
            };
            let held = match conversation.hold_ns {
                0 => String::new(),
                ns => format!(", held open for {}", duration(ns)),
            };
            format!("WebSocket {}, {}{times}{held}", step.url, plural(said, "message", "messages"))
        }
        (None, None) => format!("{} {}", step.method, step.url),
    };
    format!("{what}{body}{tags}{good}{more}")
}

/// A number without insignificant digits: `1`, `0.5`, `33.33`. A rate of `10/h` must not read as 0: `0.0028`.
fn round(value: f64) -> String {
    let text = match value.abs() {
        small if small > 0.0 && small < 0.1 => significant(value, 2),
        _ => format!("{value:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A duration as in a plan, exact.
fn duration(ns: u64) -> String {
    const UNITS: [(&str, u64); 7] = [
        ("d", 86_400_000_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let mut rest = ns;
    let mut out = String::new();
    for (unit, size) in UNITS {
        if rest >= size {
            out.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_they_are_written() {
        for text in ["0s", "300ms", "10s", "1m30s", "1s500ms", "1h", "2d1h", "250us", "7ns"] {
            assert_eq!(duration(loadlab_record::text::units::parse_duration_ns(text).unwrap()), text);
        }
    }

    #[test]
    fn numbers_have_no_idle_digits() {
        for (value, expect) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (33.333, "33.33"),
            (1000.0, "1000"),
            (100.0, "100"),
            (0.0, "0"),
            (10.0 / 3600.0, "0.0028"),
            (1.0 / 60.0, "0.017"),
            (0.02, "0.02"),
        ] {
            assert_eq!(round(value), expect);
        }
    }
}
