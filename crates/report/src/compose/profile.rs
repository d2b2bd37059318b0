//! Where components spent their CPU time, and where they waited: flame graphs, and what taking the samples cost.

use std::collections::{BTreeMap, BTreeSet};

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::comparison::compare::Comparison;
use loadlab_analysis::trial::profile::{CaseProfile, ProfileCost};
use loadlab_record::watch::profile::{ComponentProfile, Function, INCOMPLETE};

use super::{PlanOrder, case_id};
use crate::document::{Block, Cell, Flame, FlameNode, FlameUnit, Remark, Table, Weight};
use crate::figures;

/// Functions in the table of a component.
const MOST_FUNCTIONS: usize = 10;
/// Functions of a flame graph that are kept: narrower ones could not be seen.
const MOST_NODES: u64 = 4_000;

/// The flame graphs of a case, with their notes.
pub fn blocks(index: usize, case: &CaseFindings<'_>, order: &PlanOrder<'_>) -> Vec<Block> {
    let Some(profile) = loadlab_analysis::trial::profile::of_case(case.case.trials.iter()) else {
        return Vec::new();
    };
    let of_all = |of: ProfileKind| {
        let mut components: Vec<&ComponentProfile> = of.components(&profile).iter().collect();
        order.sort(&mut components, |component| &component.component);
        let flame = |component: &&ComponentProfile| {
            Block::Flame(flame(&case_id(index), &Shown { component, before: None, of, profile: &profile }))
        };
        components.iter().map(flame).collect::<Vec<_>>()
    };
    let (cpu, waits) = (of_all(ProfileKind::Cpu), of_all(ProfileKind::Waits));
    let mut out = Vec::new();
    if !cpu.is_empty() || waits.is_empty() {
        out.push(Block::Heading("Where the CPU time went".into()));
        out.extend(cpu);
    }
    if !waits.is_empty() {
        out.push(Block::Heading("Where threads waited".into()));
        out.extend(waits);
    }
    let remarks = remarks(&profile);
    out.extend((!remarks.is_empty()).then_some(Block::Remarks(remarks)));
    out
}

/// Two cases by function: what has a larger or a smaller share than in the base.
pub fn compared(index: usize, comparison: &Comparison) -> Vec<Block> {
    let Some((base, other)) = comparison.profiles.as_deref() else { return Vec::new() };
    let mut out = Vec::new();
    for of in [ProfileKind::Cpu, ProfileKind::Waits] {
        for component in of.components(other) {
            let is_same = |one: &&ComponentProfile| one.component == component.component && one.samples > 0;
            let Some(before) = of.components(base).iter().find(is_same) else { continue };
            let id = format!("comparison-{}", index + 1);
            let shown = Shown { component, before: Some((before, &comparison.base)), of, profile: other };
            out.push(Block::Flame(flame(&id, &shown)));
        }
    }
    if !out.is_empty() {
        out.insert(0, Block::Heading(format!("Functions: {} against {}", comparison.other, comparison.base)));
    }
    out
}

/// What is sampled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProfileKind {
    Cpu,
    Waits,
}

impl ProfileKind {
    fn components(self, profile: &CaseProfile) -> &[ComponentProfile] {
        match self {
            ProfileKind::Cpu => &profile.components,
            ProfileKind::Waits => &profile.waits,
        }
    }

    fn functions(self, component: &ComponentProfile) -> Vec<Function<'_>> {
        match self {
            ProfileKind::Cpu => component.functions(),
            ProfileKind::Waits => component.waiting_functions(),
        }
    }
}

/// A component's stacks.
struct Shown<'a> {
    component: &'a ComponentProfile,
    /// The component's stacks in another case, with the name of that case.
    before: Option<(&'a ComponentProfile, &'a str)>,
    of: ProfileKind,
    profile: &'a CaseProfile,
}

fn remarks(profile: &CaseProfile) -> Vec<Remark> {
    let remark = |weight, label: &str, text| Remark { weight, label: label.to_owned(), text, hint: None };
    let mut out = vec![remark(Weight::Plain, "cost of sampling", cost(&profile.cost))];
    if profile.components.is_empty() && profile.waits.is_empty() {
        let text = "no sample was taken: nothing ran long enough, or nothing was allowed".to_owned();
        out.push(remark(Weight::Doubtful, "no samples", text));
    }
    if profile.lost > 0 {
        let text = format!("{} samples did not fit into the kernel's buffers", figures::count(profile.lost));
        out.push(remark(Weight::Doubtful, "lost", text));
    }
    if !profile.has_kernel && !profile.components.is_empty() {
        let text = "functions of the kernel: the kernel shows them only to root or CAP_PERFMON, unless \
                    kernel.perf_event_paranoid is 1 or less"
            .to_owned();
        out.push(remark(Weight::Plain, "not sampled", text));
    }
    out.extend(profile.not_seen.iter().map(|what| remark(Weight::Doubtful, "not sampled", what.clone())));
    out
}

/// `goodput 0.998 × (0.991 … 1.005) in 8 of 16 seconds with samples, beside the other 8; p99 12.1 ms beside 12.0 ms`.
fn cost(cost: &ProfileCost) -> String {
    let number = |ratio: f64| figures::number(figures::round(ratio, 3));
    let mut text = match cost.goodput {
        Some(ratio) => format!(
            "goodput {} × ({} … {}, 95 %) in {} seconds with samples, compared with the same number without",
            number(ratio.value),
            number(ratio.low),
            number(ratio.high),
            cost.pairs,
        ),
        None => "not known: fewer than two seconds with samples can be compared with one without".to_owned(),
    };
    if let Some((with, without)) = cost.p99_ms {
        text.push_str(&format!("; p99 {} beside {}", figures::ms(with), figures::ms(without)));
    }
    text
}

fn flame(id: &str, shown: &Shown<'_>) -> Flame {
    let Shown { component, before, of, .. } = *shown;
    let name = loadlab_record::store::case_dir_name(&component.component);
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let FlameTree { names, nodes, left_out_below } = tree(component, before.map(|(before, _)| before));
    let (kind, what, unit) = match of {
        ProfileKind::Cpu => ("flame", "CPU time", FlameUnit::Samples),
        ProfileKind::Waits => ("waits", "Waits", FlameUnit::Waits),
    };
    let title = format!("{what} of {} by function", component.component);
    Flame {
        id: format!("{id}-{kind}-{plain}"),
        title: before.map_or_else(|| title.clone(), |(_, name)| format!("{title}, against {name}")),
        unit,
        names,
        nodes,
        hottest: match before {
            Some((before, name)) => changed(of, component, before, name),
            None => hottest(of, component),
        },
        note: Some(note(shown, left_out_below)),
    }
}

/// What a reader must know about a flame graph.
fn note(shown: &Shown<'_>, left_out: u64) -> String {
    let Shown { component, of, profile, before } = *shown;
    let share = |part: u64| figures::percent(part as f64 / component.samples.max(1) as f64);
    let threads = |us: u64| figures::number(figures::round(us as f64 / 1e6 / profile.waits_s.max(1e-9), 2));
    let mut note = match of {
        ProfileKind::Cpu => format!(
            "{} at {}/s on each core.",
            figures::plural(component.samples, "sample", "samples"),
            profile.rate_per_s
        ),
        ProfileKind::Waits => {
            format!("On average {} threads were waiting, over {} s.", threads(component.samples), {
                figures::number(figures::round(profile.waits_s, 1))
            })
        }
    };
    if !component.idle.is_empty() {
        let one = |idle: &loadlab_record::watch::profile::IdleWait| {
            format!("{} for {}", threads(idle.samples), idle.why)
        };
        let all: Vec<String> = component.idle.iter().map(one).collect();
        note.push_str(&format!(" Threads without work are left out: on average {}.", all.join(", ")));
    }
    if let Some((_, name)) = before {
        note.push_str(&format!(
            " Colours compare shares of the whole with {name}; widths are the shares themselves."
        ));
    }
    if component.incomplete > 0 {
        note.push_str(&format!(
            " The outermost callers of {} are not known ({INCOMPLETE}): code without frame pointers.",
            share(component.incomplete)
        ));
    }
    if component.unnamed > 0 {
        note.push_str(&format!(
            " In {} the innermost function has no name: a file without symbols (its name is in brackets), or code made at \
             run time.",
            share(component.unnamed)
        ));
    }
    if left_out > 0 {
        let least = match of {
            ProfileKind::Cpu => figures::plural(left_out, "sample", "samples"),
            ProfileKind::Waits => figures::ms(left_out as f64 / 1e3),
        };
        note.push_str(&format!(" The flame graph leaves out functions with less than {least}."));
    }
    note
}

/// The hottest functions of a component, or those that waited longest.
fn hottest(of: ProfileKind, component: &ComponentProfile) -> Table {
    let share = |part: u64| Cell::new(figures::percent(part as f64 / component.samples.max(1) as f64));
    let functions = of.functions(component);
    let real = functions.iter().filter(|function| function.own > 0);
    let caption = match of {
        ProfileKind::Cpu => format!("Functions of {} with most CPU time", component.component),
        ProfileKind::Waits => format!("Functions of {} that waited longest", component.component),
    };
    Table {
        caption,
        head: ["function", "itself", "and its calls"].map(str::to_owned).to_vec(),
        text_columns: vec![],
        rows: real
            .take(MOST_FUNCTIONS)
            .map(|function| vec![Cell::new(function.name), share(function.own), share(function.total)])
            .collect(),
        note: None,
    }
}

/// The functions whose share changed most, including those that only one of the two has.
fn changed(of: ProfileKind, now: &ComponentProfile, before: &ComponentProfile, name: &str) -> Table {
    let shares = |component: &ComponentProfile| -> BTreeMap<String, f64> {
        let whole = component.samples.max(1) as f64;
        let functions = of.functions(component);
        functions.iter().map(|f| (f.name.to_owned(), f.own as f64 / whole)).collect()
    };
    let (of_now, of_before) = (shares(now), shares(before));
    let names: BTreeSet<&String> = of_now.keys().chain(of_before.keys()).collect();
    let share = |all: &BTreeMap<String, f64>, name: &String| all.get(name).copied().unwrap_or(0.0);
    let mut rows: Vec<(&String, f64, f64)> =
        names.into_iter().map(|name| (name, share(&of_before, name), share(&of_now, name))).collect();
    rows.retain(|(_, before, now)| before != now);
    // Compared to the tenth of a percentage point that is shown.
    let change = |(_, before, now): &(&String, f64, f64)| ((now - before).abs() * 1_000.0).round() as u64;
    rows.sort_by(|a, b| change(b).cmp(&change(a)).then_with(|| a.0.cmp(b.0)));
    let row = |(name, before, now): (&String, f64, f64)| {
        let sign = if now > before { "+" } else { "−" };
        let points = (now - before).abs() * 100.0;
        vec![
            Cell::new(name.as_str()),
            Cell::new(figures::percent(before)),
            Cell::new(figures::percent(now)),
            Cell::new(format!("{sign}{points:.1}")),
        ]
    };
    Table {
        caption: format!("Functions of {} whose own share changed most", now.component),
        head: vec!["function".into(), name.to_owned(), "now".into(), "percentage points".into()],
        text_columns: vec![],
        rows: rows.into_iter().take(MOST_FUNCTIONS).map(row).collect(),
        note: None,
    }
}

/// A function as called from others.
#[derive(Default)]
struct Called {
    samples: u64,
    before: u64,
    calls: BTreeMap<u32, Called>,
}

/// Stacks as a tree.
struct FlameTree {
    names: Vec<String>,
    /// In preorder.
    nodes: Vec<FlameNode>,
    /// Nodes with fewer samples are left out; 0 if none is.
    left_out_below: u64,
}

/// The tree of a component. Earlier samples are as counted: if they were scaled to the current total, a function with
/// few of them would look as if it had had none.
fn tree(component: &ComponentProfile, before: Option<&ComponentProfile>) -> FlameTree {
    let mut whole = Called::default();
    for stack in &component.stacks {
        let mut at = &mut whole;
        at.samples += stack.samples;
        for frame in &stack.frames {
            at = at.calls.entry(*frame).or_default();
            at.samples += stack.samples;
        }
    }
    let mut names = component.names.clone();
    if let Some(before) = before {
        add_before(&mut whole, &names, before);
    }
    let place = names.len() as u32;
    names.push(component.component.clone());
    let least = whole.samples.div_ceil(MOST_NODES).max(1);
    let counted = |called: &Called| before.map(|_| called.before);
    let (mut nodes, mut is_any_left_out) = (Vec::new(), false);
    // Depth first, without recursion: the depth of a stack is the system's choice.
    let mut open = vec![(0, place, &whole)];
    while let Some((depth, name, called)) = open.pop() {
        nodes.push(FlameNode { depth, name, samples: called.samples, before: counted(called) });
        for (frame, inner) in called.calls.iter().rev() {
            if inner.samples < least {
                is_any_left_out |= inner.samples > 0;
            } else {
                open.push((depth + 1, *frame, inner));
            }
        }
    }
    FlameTree { names, nodes, left_out_below: if is_any_left_out { least } else { 0 } }
}

/// Adds the stacks of another case as far as this one has their functions; the rest is in the table.
fn add_before(whole: &mut Called, names: &[String], before: &ComponentProfile) {
    let places: BTreeMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
    for stack in &before.stacks {
        let mut at = &mut *whole;
        at.before += stack.samples;
        for name in before.named(stack) {
            let Some(inner) = places.get(name).and_then(|place| at.calls.get_mut(place)) else { break };
            at = inner;
            at.before += stack.samples;
        }
    }
}

#[cfg(test)]
mod tests {
    use loadlab_record::watch::profile::Stack;

    use super::*;

    #[test]
    fn stacks_become_a_tree_in_preorder() {
        let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
        let component = ComponentProfile {
            component: "api".into(),
            samples: 10,
            names: ["main", "b", "a"].map(str::to_owned).to_vec(),
            stacks: vec![stack(&[0, 1], 5), stack(&[0, 2, 1], 3), stack(&[0, 2], 2)],
            ..ComponentProfile::default()
        };
        let FlameTree { names, nodes, left_out_below } = tree(&component, None);
        let shown: Vec<_> =
            nodes.iter().map(|n| (n.depth, names[n.name as usize].as_str(), n.samples)).collect();
        assert_eq!(shown, [(0, "api", 10), (1, "main", 10), (2, "b", 5), (2, "a", 5), (3, "b", 3)]);
        assert_eq!(left_out_below, 0);
        let rows: Vec<_> =
            hottest(ProfileKind::Cpu, &component).rows.iter().map(|row| row[0].text.clone()).collect();
        assert_eq!(rows, ["b", "a"]);
    }

    #[test]
    fn two_cases_are_compared_by_their_shares() {
        let of = |names: &[&str], stacks: &[(&[u32], u64)]| ComponentProfile {
            component: "api".into(),
            samples: stacks.iter().map(|(_, samples)| samples).sum(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            stacks: stacks
                .iter()
                .map(|(f, samples)| Stack { frames: f.to_vec(), samples: *samples })
                .collect(),
            ..ComponentProfile::default()
        };
        let now = of(&["main", "parse", "new"], &[(&[0, 1], 60), (&[0, 2], 40)]);
        // Half as many samples, a function that is gone, and another order of names.
        let before = of(&["gone", "parse", "main"], &[(&[2, 1], 40), (&[2, 0], 10)]);
        let FlameTree { names, nodes, .. } = tree(&now, Some(&before));
        let shown: Vec<_> =
            nodes.iter().map(|n| (names[n.name as usize].as_str(), n.samples, n.before.unwrap())).collect();
        assert_eq!(shown, [("api", 100, 50), ("main", 100, 50), ("parse", 60, 40), ("new", 40, 0)]);
        // Out of many more samples before, one in a function is still one.
        let longer = of(&["main", "parse", "new"], &[(&[0, 1], 9_999), (&[0, 2], 1)]);
        let nodes = tree(&now, Some(&longer)).nodes;
        assert_eq!(nodes.iter().filter_map(|n| n.before).collect::<Vec<_>>(), [10_000, 10_000, 9_999, 1]);
        let rows: Vec<Vec<String>> = changed(ProfileKind::Cpu, &now, &before, "base")
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| cell.text.clone()).collect())
            .collect();
        assert_eq!(rows[0], ["new", "0 %", "40.0 %", "+40.0"]);
        assert_eq!(rows[1], ["gone", "20.0 %", "0 %", "−20.0"]);
        assert_eq!(rows[2], ["parse", "80.0 %", "60.0 %", "−20.0"]);
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn what_could_not_be_seen_is_left_out() {
        let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
        let component = ComponentProfile {
            samples: 10_001,
            names: ["main", "rare"].map(str::to_owned).to_vec(),
            stacks: vec![stack(&[0], 10_000), stack(&[0, 1], 1)],
            ..ComponentProfile::default()
        };
        let found = tree(&component, None);
        assert_eq!((found.nodes.len(), found.left_out_below), (2, 3));
    }
}
