//! What can be changed under load: the limits that a plan sets, busy threads, and the levers that it names.

use loadlab_plan::{Action, Case, ComponentSpec, LimitName};
use loadlab_record::summary::Summary;
use loadlab_record::why::{LeverFacts, NotTried, RaisedFacts};

/// A step: a limit that binds is tightened to this share of itself.
pub const STEP: f64 = 0.9;
/// Values that a limit is raised to, as shares of the planned one; the first is as far as a step.
const RAISES: [f64; 4] = [1.1, 1.5, 2.0, 4.0];
/// Values that a delay is lowered to.
const SHORTER: [f64; 3] = [0.9, 0.5, 0.0];
/// A CPU limit of which less than this share is used has room for a step and more.
const USED_FROM: f64 = 0.6;
/// A thread that is busy for this share of its time has no more to give.
const BUSY: f64 = 0.85;
/// The least CPU limit that the kernel takes, in cores: 1 ms in 100.
const LEAST_CORES: f64 = 0.01;

/// What a trial as planned says of a component.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU, in cores; mean over the load.
    pub cores: Option<f64>,
    /// CPU of its busiest thread, in cores.
    pub busiest_cores: Option<f64>,
}

/// Something that can be changed, and what it is changed to.
#[derive(Clone, Debug)]
pub struct Lever {
    /// As recorded; nothing is measured yet.
    pub facts: LeverFacts,
    /// As planned.
    pub now: Setting,
    /// One step tighter.
    pub less: Setting,
    /// More of it, the smallest raise first.
    pub more: Vec<Setting>,
}

impl Lever {
    /// Whether it is the same one.
    pub fn is(&self, other: &Lever) -> bool {
        // A lever of the plan may be called as a limit of a component is.
        (&self.facts.name, &self.facts.component) == (&other.facts.name, &other.facts.component)
    }
}

/// A value of a lever.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The value as a share of the planned one.
    pub factor: f64,
    /// In words: `45% CPU`.
    pub words: String,
    /// What sets it.
    pub action: Action,
    /// What it happens to; empty for a lever of the plan.
    pub components: Vec<String>,
}

impl Setting {
    /// What a raise will record.
    pub fn raised(&self) -> RaisedFacts {
        RaisedFacts { to: self.words.clone(), factor: self.factor, ..RaisedFacts::default() }
    }
}

/// All levers of a case, and what is none. `usage` is that of a trial as planned.
pub fn levers(
    case: &Case,
    summary: &Summary,
    usage: &dyn Fn(&str) -> Usage,
    cores: f64,
) -> (Vec<Lever>, Vec<NotTried>) {
    let (mut found, mut not_tried) = (Vec::new(), Vec::new());
    for component in &case.system.components {
        if matches!(component.part, loadlab_plan::ComponentKind::External(_)) {
            let why = "loadlab only watches it".to_owned();
            not_tried.push(NotTried { name: component.name.clone(), why });
            continue;
        }
        let measured = summary.components.get(&component.name);
        let own = usage(&component.name);
        let mean = measured.and_then(|m| m.cpu_percent.mean).map(|percent| percent / 100.0);
        let own = Usage { cores: own.cores.or(mean), ..own };
        match cpu(component, own, cores) {
            Ok(lever) => found.push(lever),
            Err(why) => not_tried.push(NotTried { name: format!("{} CPU", component.name), why }),
        }
        found.extend(others(component));
    }
    found.extend(case.levers.iter().enumerate().map(|(place, lever)| planned(place, lever)));
    (found, not_tried)
}

/// CPU of a component: its limit, or the thread that is busy all the time.
fn cpu(component: &ComponentSpec, usage: Usage, cores: f64) -> Result<Lever, String> {
    let Some(limit) = component.limits.cpu_cores else {
        return busy_cpu(component, usage, cores);
    };
    let used = usage.cores.map(|used| used / limit);
    if used.is_some_and(|used| used < USED_FROM) {
        let percent = used.unwrap_or(0.0) * 100.0;
        return Err(format!(
            "it used {percent:.0} % of its limit: a tenth less of it is room that nobody uses"
        ));
    }
    if limit * STEP < LEAST_CORES {
        return Err("its limit is the least that the kernel takes".to_owned());
    }
    let setting = |factor: f64| limited(component, LimitName::Cpu, limit, factor);
    let more = RAISES.iter().filter(|factor| limit * **factor <= cores + 1e-9).map(|f| setting(*f)).collect();
    Ok(lever(component, "CPU", "cpu", (setting(1.0), setting(STEP), more), used))
}

/// CPU of a component without a limit: what it used is all that its threads can use, or all that the machine has.
fn busy_cpu(component: &ComponentSpec, usage: Usage, cores: f64) -> Result<Lever, String> {
    let used = usage.cores.ok_or("how much it uses is not known")?;
    let is_thread = usage.busiest_cores.is_some_and(|busiest| busiest >= BUSY);
    if !is_thread && used < BUSY * cores {
        return Err("it has no CPU limit, and no thread of it is always busy".to_owned());
    }
    let setting = |factor: f64| limited(component, LimitName::Cpu, used, factor);
    let mut now = setting(1.0);
    // As planned: without a limit.
    now.action = Action::Limit { limit: LimitName::Cpu, value: None };
    now.words = format!("no limit, {} used", cpu_words(used));
    Ok(lever(component, "CPU", "cpu", (now, setting(STEP), Vec::new()), Some(1.0)))
}

/// The limits of a component that a step of can be measured safely: those on its link and its disks.
fn others(component: &ComponentSpec) -> Vec<Lever> {
    let limits = &component.limits;
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    let rates = [
        ("bandwidth", LimitName::Bandwidth, whole(limits.bandwidth_bytes_per_s)),
        ("block read", LimitName::BlockRead, whole(limits.block_read_bytes_per_s)),
        ("block write", LimitName::BlockWrite, whole(limits.block_write_bytes_per_s)),
        ("block read ops", LimitName::BlockReadOps, whole(limits.block_read_ops_per_s)),
        ("block write ops", LimitName::BlockWriteOps, whole(limits.block_write_ops_per_s)),
    ];
    let mut found = Vec::new();
    for (words, limit, value) in rates {
        // A tenth of few operations is none.
        let Some(value) = value.filter(|value| *value >= 10.0) else { continue };
        let setting = |factor: f64| limited(component, limit, value, factor);
        let more = RAISES.iter().map(|f| setting(*f)).collect();
        found.push(lever(component, words, limit.key(), (setting(1.0), setting(STEP), more), None));
    }
    if let Some(delay) = whole(limits.delay_ns) {
        let least = limits.jitter_ns.unwrap_or(0) as f64;
        let setting = |factor: f64| limited(component, LimitName::Delay, delay, factor);
        let shorter =
            SHORTER.iter().filter(|factor| delay * **factor >= least).map(|f| setting(*f)).collect();
        // A delay is tighter if it is longer.
        found.push(lever(component, "delay", "delay", (setting(1.0), setting(2.0 - STEP), shorter), None));
    }
    found
}

fn lever(
    component: &ComponentSpec,
    words: &str,
    kind: &str,
    (now, less, more): (Setting, Setting, Vec<Setting>),
    used: Option<f64>,
) -> Lever {
    let facts = LeverFacts {
        name: format!("{} {words}", component.name),
        component: Some(component.name.clone()),
        kind: kind.to_owned(),
        now: now.words.clone(),
        less: less.words.clone(),
        factor: less.factor,
        used,
        ..LeverFacts::default()
    };
    Lever { facts, now, less, more }
}

fn limited(component: &ComponentSpec, limit: LimitName, planned: f64, factor: f64) -> Setting {
    let value = match limit {
        // To be set back as it was.
        _ if factor == 1.0 => planned,
        LimitName::Cpu => (planned * factor * 1e5).round() / 1e5,
        _ => (planned * factor).round(),
    };
    Setting {
        factor,
        words: limit_words(limit, value),
        action: Action::Limit { limit, value: Some(value) },
        components: vec![component.name.clone()],
    }
}

fn limit_words(limit: LimitName, value: f64) -> String {
    use loadlab_record::units::{format_bytes, format_count, format_duration_ns};
    match limit {
        LimitName::Cpu => cpu_words(value),
        LimitName::Delay | LimitName::Jitter => format_duration_ns(value),
        LimitName::Bandwidth | LimitName::BlockRead | LimitName::BlockWrite => {
            format!("{}/s", format_bytes(value))
        }
        _ => format!("{}/s", format_count(value)),
    }
}

fn cpu_words(cores: f64) -> String {
    let percent = (cores * 1000.0).round() / 10.0;
    format!("{percent}% CPU")
}

/// A lever that the plan names.
fn planned(place: usize, lever: &loadlab_plan::LeverSpec) -> Lever {
    let setting = |number: usize, one: &loadlab_plan::LeverSetting| Setting {
        factor: one.value / lever.now.value,
        words: one.text.clone(),
        action: Action::Set { lever: place, setting: number },
        components: Vec::new(),
    };
    let now = setting(0, &lever.now);
    let less = setting(1, &lever.less);
    let more: Vec<Setting> = lever.more.iter().enumerate().map(|(i, one)| setting(i + 2, one)).collect();
    let facts = LeverFacts {
        name: lever.name.clone(),
        kind: "lever".to_owned(),
        now: now.words.clone(),
        less: less.words.clone(),
        factor: less.factor,
        ..LeverFacts::default()
    };
    Lever { facts, now, less, more }
}
