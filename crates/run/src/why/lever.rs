//! What can be changed under load: limits that the plan sets, CPU limits of a Compose file, busy threads, and levers
//! that the plan names.

use loadlab_plan::{Action, Case, ComponentSpec, LimitName};
use loadlab_record::documents::why::{LeverFacts, NotTried, RaisedFacts};

/// One step: a limit is tightened to this share of its planned value.
pub const STEP: f64 = 0.9;
/// Values that a limit is raised to, as multiples of the planned one; the first is one step up.
const RAISES: [f64; 4] = [1.1, 1.5, 2.0, 4.0];
/// Values that a delay is lowered to, as shares of the planned one.
const SHORTER: [f64; 3] = [0.9, 0.5, 0.0];
/// If less than this share of a CPU limit is used, tightening it by a step changes nothing.
const USED_FROM: f64 = 0.6;
/// A thread that is busy for at least this share of the time counts as saturated.
const BUSY: f64 = 0.85;
/// The lowest CPU limit that the kernel accepts, in cores: 1 ms in 100.
const LEAST_CORES: f64 = 0.01;

/// CPU use of a component under the load as planned, once it has warmed up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Mean CPU use, in cores.
    pub cores: Option<f64>,
    /// CPU use of its busiest thread, in cores.
    pub busiest_cores: Option<f64>,
}

/// Something that can be changed, and the values it can be set to.
#[derive(Clone, Debug)]
pub struct Lever {
    /// The lever as recorded, without measurements yet.
    pub facts: LeverFacts,
    /// The planned value.
    pub now: Setting,
    /// One step tighter.
    pub less: Setting,
    /// Raised values, smallest first.
    pub more: Vec<Setting>,
}

impl Lever {
    /// Whether both are the same lever.
    pub fn is(&self, other: &Lever) -> bool {
        // A lever of the plan may have the same name as a component's limit.
        (&self.facts.name, &self.facts.component) == (&other.facts.name, &other.facts.component)
    }
}

/// A value of a lever.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The value as a multiple of the planned one.
    pub factor: f64,
    /// The value in words: `45% CPU`.
    pub text: String,
    /// The action that sets it.
    pub action: Action,
    /// The components it applies to; empty for a lever of the plan.
    pub components: Vec<String>,
}

impl Setting {
    /// The record of a raise to this value, without measurements yet.
    pub fn raised(&self) -> RaisedFacts {
        RaisedFacts { to: self.text.clone(), factor: self.factor, ..RaisedFacts::default() }
    }
}

/// What can be changed in a case, and what cannot.
#[derive(Clone, Debug, Default)]
pub struct Levers {
    /// All levers.
    pub found: Vec<Lever>,
    /// What is not a lever, and why.
    pub not_tried: Vec<NotTried>,
    /// Everything in `not_tried` has room, rather than being unchangeable or unknown.
    pub others_have_room: bool,
}

/// Why a component's CPU is not a lever.
struct Unfit {
    why: String,
    has_room: bool,
}

impl Unfit {
    fn with_room(why: impl Into<String>) -> Unfit {
        Unfit { why: why.into(), has_room: true }
    }

    fn unknown(why: impl Into<String>) -> Unfit {
        Unfit { why: why.into(), has_room: false }
    }
}

/// The case with the CPU limits that its components have although the plan sets none, such as those of a Compose file.
/// `cores` looks one up. Without it such a limit would be taken for none, and lifted when a change of it is undone.
pub fn with_limits_of_engine(case: &Case, cores: impl Fn(&str) -> Option<f64>) -> Case {
    let mut case = case.clone();
    for component in &mut case.system.components {
        component.limits.cpu_cores = component.limits.cpu_cores.or_else(|| cores(&component.name));
    }
    case
}

/// The levers of a case. `usage` looks up a component's CPU use.
pub fn levers(case: &Case, usage: &dyn Fn(&str) -> Usage, cores: f64) -> Levers {
    let (mut found, mut not_tried, mut others_have_room) = (Vec::new(), Vec::new(), true);
    for component in &case.system.components {
        if matches!(component.kind, loadlab_plan::ComponentKind::External(_)) {
            let why = "loadlab only watches it".to_owned();
            not_tried.push(NotTried { name: component.name.clone(), why });
            others_have_room = false;
            continue;
        }
        match cpu(component, usage(&component.name), cores) {
            Ok(lever) => found.push(lever),
            Err(Unfit { why, has_room }) => {
                not_tried.push(NotTried { name: format!("{} CPU", component.name), why });
                others_have_room &= has_room;
            }
        }
        found.extend(others(component));
    }
    found.extend(case.levers.iter().enumerate().map(|(place, lever)| planned(place, lever)));
    Levers { found, not_tried, others_have_room }
}

/// The CPU lever of a component: its limit, or a thread that is busy all the time.
fn cpu(component: &ComponentSpec, usage: Usage, cores: f64) -> Result<Lever, Unfit> {
    let Some(limit) = component.limits.cpu_cores else {
        return busy_cpu(component, usage, cores);
    };
    let used = usage.cores.map(|used| used / limit);
    if used.is_some_and(|used| used < USED_FROM) {
        // One thread cannot use more than one core, whatever the limit allows.
        if limit > 1.0 && usage.busiest_cores.is_none_or(|busiest| busiest >= BUSY) {
            return busy_cpu(component, usage, cores);
        }
        let percent = used.unwrap_or(0.0) * 100.0;
        return Err(Unfit::with_room(format!(
            "it used {percent:.0} % of its limit, so a tenth less would change nothing"
        )));
    }
    if limit * STEP < LEAST_CORES {
        return Err(Unfit::unknown("its limit is the lowest that the kernel accepts"));
    }
    let setting = |factor: f64| limited(component, LimitName::Cpu, limit, factor);
    let more = RAISES.iter().filter(|factor| limit * **factor <= cores + 1e-9).map(|f| setting(*f)).collect();
    let settings = Settings { now: setting(1.0), less: setting(STEP), more };
    Ok(lever(component, "CPU", "cpu", settings, used))
}

/// The CPU lever of a component whose limit, if any, does not matter: it uses all that its threads can use, or all that
/// the machine has.
fn busy_cpu(component: &ComponentSpec, usage: Usage, cores: f64) -> Result<Lever, Unfit> {
    let used = usage.cores.ok_or_else(|| Unfit::unknown("how much it uses is not known"))?;
    let is_thread = usage.busiest_cores.is_some_and(|busiest| busiest >= BUSY);
    if usage.busiest_cores.is_none() && used < BUSY * cores {
        return Err(Unfit::unknown("how busy its threads are is not known"));
    }
    if !is_thread && used < BUSY * cores {
        return Err(Unfit::with_room("it has no CPU limit, and no thread of it is always busy"));
    }
    let setting = |factor: f64| limited(component, LimitName::Cpu, used, factor);
    let mut now = setting(1.0);
    // The planned limit, not what was used.
    let limit = component.limits.cpu_cores;
    now.action = Action::Limit { limit: LimitName::Cpu, value: limit };
    let planned = limit.map_or("no limit".to_owned(), cpu_text);
    now.text = format!("{planned}, {} used", cpu_text(used));
    let share = limit.map_or(1.0, |limit| used / limit);
    let settings = Settings { now, less: setting(STEP), more: Vec::new() };
    Ok(lever(component, "CPU", "cpu", settings, Some(share)))
}

/// The limits of a component that can safely be changed by a step: those on its link and its disks.
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
    for (name, limit, value) in rates {
        // A tenth of fewer than ten operations is less than one.
        let Some(value) = value.filter(|value| *value >= 10.0) else { continue };
        let setting = |factor: f64| limited(component, limit, value, factor);
        let more = RAISES.iter().map(|f| setting(*f)).collect();
        let settings = Settings { now: setting(1.0), less: setting(STEP), more };
        found.push(lever(component, name, limit.key(), settings, None));
    }
    if let Some(delay) = whole(limits.delay_ns) {
        let least = limits.jitter_ns.unwrap_or(0) as f64;
        let setting = |factor: f64| limited(component, LimitName::Delay, delay, factor);
        let shorter =
            SHORTER.iter().filter(|factor| delay * **factor >= least).map(|f| setting(*f)).collect();
        // A longer delay is a tighter one.
        let settings = Settings { now: setting(1.0), less: setting(2.0 - STEP), more: shorter };
        found.push(lever(component, "delay", "delay", settings, None));
    }
    found
}

/// The settings of a lever: as planned, one step tighter, and looser ones.
struct Settings {
    now: Setting,
    less: Setting,
    more: Vec<Setting>,
}

fn lever(component: &ComponentSpec, name: &str, kind: &str, settings: Settings, used: Option<f64>) -> Lever {
    let Settings { now, less, more } = settings;
    let facts = LeverFacts {
        name: format!("{} {name}", component.name),
        component: Some(component.name.clone()),
        kind: kind.to_owned(),
        now: now.text.clone(),
        less: less.text.clone(),
        factor: less.factor,
        used,
        ..LeverFacts::default()
    };
    Lever { facts, now, less, more }
}

fn limited(component: &ComponentSpec, limit: LimitName, planned: f64, factor: f64) -> Setting {
    let value = match limit {
        // Restore exactly the planned value.
        _ if factor == 1.0 => planned,
        LimitName::Cpu => (planned * factor * 1e5).round() / 1e5,
        _ => (planned * factor).round(),
    };
    Setting {
        factor,
        text: limit_text(limit, value),
        action: Action::Limit { limit, value: Some(value) },
        components: vec![component.name.clone()],
    }
}

fn limit_text(limit: LimitName, value: f64) -> String {
    use loadlab_record::text::units::{format_bytes, format_count, format_duration_ns};
    match limit {
        LimitName::Cpu => cpu_text(value),
        LimitName::Delay | LimitName::Jitter => format_duration_ns(value),
        LimitName::Bandwidth | LimitName::BlockRead | LimitName::BlockWrite => {
            format!("{}/s", format_bytes(value))
        }
        _ => format!("{}/s", format_count(value)),
    }
}

fn cpu_text(cores: f64) -> String {
    let percent = (cores * 1000.0).round() / 10.0;
    format!("{percent}% CPU")
}

/// Converts a lever that the plan names.
fn planned(place: usize, lever: &loadlab_plan::LeverSpec) -> Lever {
    let setting = |number: usize, one: &loadlab_plan::LeverSetting| Setting {
        factor: one.value / lever.now.value,
        text: one.text.clone(),
        action: Action::Set { lever: place, setting: number },
        components: Vec::new(),
    };
    let now = setting(0, &lever.now);
    let less = setting(1, &lever.less);
    let more: Vec<Setting> = lever.more.iter().enumerate().map(|(i, one)| setting(i + 2, one)).collect();
    let facts = LeverFacts {
        name: lever.name.clone(),
        kind: "lever".to_owned(),
        now: now.text.clone(),
        less: less.text.clone(),
        factor: less.factor,
        ..LeverFacts::default()
    };
    Lever { facts, now, less, more }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use loadlab_plan::{Options, Plan};

    use super::*;

    #[test]
    fn a_limit_that_the_plan_does_not_set_is_restored() {
        let text = "loadlab: 1\nname: n\n\
                    system: { components: { web: { run: x }, db: { run: y, limits: { cpu: 50% } } } }\n\
                    load: { users: 1, duration: 1s, journey: [ { get: \"http://127.0.0.1:1/\" } ] }\n";
        let plan = Plan::parse("p.yaml", text, &Options::default()).expect("a plan");
        let case = with_limits_of_engine(&plan.cases()[0], |_| Some(2.0));
        // One thread is busy all the time, which is less than half of what `web` may use.
        let usage = |_: &str| Usage { cores: Some(1.0), busiest_cores: Some(0.98) };
        let Levers { found, .. } = levers(&case, &usage, 16.0);
        let now = |lever: &Lever| match lever.now.action {
            Action::Limit { value, .. } => (lever.facts.name.clone(), value),
            _ => (lever.facts.name.clone(), None),
        };
        let expect = [("web CPU".to_owned(), Some(2.0)), ("db CPU".to_owned(), Some(0.5))];
        assert_eq!(found.iter().map(now).collect::<BTreeMap<_, _>>(), BTreeMap::from(expect));
    }

    #[test]
    fn a_thread_that_is_always_busy_is_a_lever_under_a_roomy_limit_too() {
        let lever = |limit: &str, cores: f64, busiest: f64| {
            let text = format!(
                "loadlab: 1\nname: n\nsystem: {{ components: {{ web: {{ run: x{limit} }} }} }}\n\
                 load: {{ users: 1, duration: 1s, journey: [ {{ get: \"http://127.0.0.1:1/\" }} ] }}\n"
            );
            let plan = Plan::parse("p.yaml", &text, &Options::default()).expect("a plan");
            let usage = |_: &str| Usage { cores: Some(cores), busiest_cores: Some(busiest) };
            let Levers { mut found, not_tried, others_have_room } = levers(&plan.cases()[0], &usage, 16.0);
            match found.pop() {
                Some(one) => {
                    let Action::Limit { value, .. } = one.now.action else { panic!("{:?}", one.now) };
                    let Action::Limit { value: Some(less), .. } = one.less.action else {
                        panic!("{:?}", one.less)
                    };
                    Ok((value, less, one.more.len(), one.facts.now))
                }
                None => Err((not_tried[0].why.clone(), others_have_room)),
            }
        };
        let owned = |text: &str| text.to_owned();
        for (limit, cores, busiest, expect) in [
            // The thread is what binds; the planned limit is what gets restored.
            (", limits: { cpu: 200% }", 1.0, 0.98, (Some(2.0), 0.9, 0, owned("200% CPU, 100% CPU used"))),
            ("", 1.0, 0.98, (None, 0.9, 0, owned("no limit, 100% CPU used"))),
            (", limits: { cpu: 100% }", 0.95, 0.9, (Some(1.0), 0.9, 4, owned("100% CPU"))),
        ] {
            assert_eq!(lever(limit, cores, busiest), Ok(expect), "{limit} {cores} {busiest}");
        }
        for (limit, why, has_room) in [
            (", limits: { cpu: 200% }", "50 % of its limit", true),
            ("", "no thread of it is always busy", true),
            (", limits: { cpu: 1% }", "the lowest that the kernel accepts", false),
        ] {
            let (text, room) = lever(limit, 1.0, 0.5).expect_err("nothing of it is busy");
            assert!(text.contains(why) && room == has_room, "{text}");
        }
    }
}
