//! Where components spent their CPU time: flame graphs, and what taking the samples cost.

use std::collections::BTreeMap;

use loadlab_analysis::case::CaseFindings;
use loadlab_analysis::profile::{CaseProfile, ProfileCost};
use loadlab_record::profile::{ComponentProfile, INCOMPLETE};

use super::{PlanOrder, case_id};
use crate::document::{Block, Cell, Flame, FlameNode, Remark, Table, Weight};
use crate::figures;

/// Functions in the table of a component.
const MOST_FUNCTIONS: usize = 10;
/// Functions of a flame graph that are kept: narrower ones could not be seen.
const MOST_NODES: u64 = 4_000;

/// The flame graphs of a case, and what is to be known about them.
pub fn blocks(index: usize, case: &CaseFindings<'_>, order: &PlanOrder<'_>) -> Vec<Block> {
    let Some(profile) = loadlab_analysis::profile::of_case(case.case.trials.iter()) else {
        return Vec::new();
    };
    let mut components: Vec<&ComponentProfile> = profile.components.iter().collect();
    order.sort(&mut components, |component| &component.component);
    let mut out = vec![Block::Heading("Where the CPU time went".into())];
    out.extend(components.iter().map(|component| Block::Flame(flame(index, component, &profile))));
    let remarks = remarks(&profile);
    out.extend((!remarks.is_empty()).then_some(Block::Remarks(remarks)));
    out
}

fn remarks(profile: &CaseProfile) -> Vec<Remark> {
    let remark = |weight, label: &str, text| Remark { weight, label: label.to_owned(), text, hint: None };
    let mut out = vec![remark(Weight::Plain, "cost of sampling", cost(&profile.cost))];
    if profile.components.is_empty() {
        let text = "no sample was taken: nothing ran long enough, or nothing was allowed".to_owned();
        out.push(remark(Weight::Doubtful, "no samples", text));
    }
    if profile.lost > 0 {
        let text = format!("{} samples did not fit into the kernel's buffers", figures::count(profile.lost));
        out.push(remark(Weight::Doubtful, "lost", text));
    }
    if !profile.has_kernel && !profile.components.is_empty() {
        let text = "functions of the kernel: the kernel shows them to root and CAP_PERFMON alone, or if \
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
            "goodput {} × ({} … {}, 95 %) in {} seconds with samples, beside as many without",
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

fn flame(index: usize, component: &ComponentProfile, profile: &CaseProfile) -> Flame {
    let name = loadlab_record::store::case_dir_name(&component.component);
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let (names, nodes, left_out) = tree(component);
    let share = |part: u64| figures::percent(part as f64 / component.samples.max(1) as f64);
    let mut note = format!(
        "{} at {}/s on each core.",
        figures::plural(component.samples, "sample", "samples"),
        profile.rate_per_s
    );
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
        note.push_str(&format!(" The flame graph leaves out functions with fewer than {left_out} samples."));
    }
    Flame {
        id: format!("{}-flame-{plain}", case_id(index)),
        title: format!("CPU time of {} by function", component.component),
        names,
        nodes,
        hottest: hottest(component),
        note: Some(note),
    }
}

/// Its hottest functions.
fn hottest(component: &ComponentProfile) -> Table {
    let share = |part: u64| Cell::new(figures::percent(part as f64 / component.samples.max(1) as f64));
    let functions = component.functions();
    let real = functions.iter().filter(|function| function.own > 0);
    Table {
        caption: format!("Functions of {} with most CPU time", component.component),
        head: ["function", "itself", "and its calls"].map(str::to_owned).to_vec(),
        words: vec![],
        rows: real
            .take(MOST_FUNCTIONS)
            .map(|function| vec![Cell::new(function.name), share(function.own), share(function.total)])
            .collect(),
        note: None,
    }
}

/// A function as called from others.
#[derive(Default)]
struct Called {
    samples: u64,
    calls: BTreeMap<u32, Called>,
}

/// Names and nodes, and the least number of samples of a node that is kept, if any is left out.
fn tree(component: &ComponentProfile) -> (Vec<String>, Vec<FlameNode>, u64) {
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
    let place = names.len() as u32;
    names.push(component.component.clone());
    let least = whole.samples.div_ceil(MOST_NODES).max(1);
    let (mut nodes, mut is_any_left_out) = (Vec::new(), false);
    // Depth first, without recursion: the depth of a stack is the system's choice.
    let mut open = vec![(0, place, &whole)];
    while let Some((depth, name, called)) = open.pop() {
        nodes.push(FlameNode { depth, name, samples: called.samples, before: None });
        for (frame, inner) in called.calls.iter().rev() {
            if inner.samples < least {
                is_any_left_out = true;
            } else {
                open.push((depth + 1, *frame, inner));
            }
        }
    }
    (names, nodes, if is_any_left_out { least } else { 0 })
}

#[cfg(test)]
mod tests {
    use loadlab_record::profile::Stack;

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
        let (names, nodes, left_out) = tree(&component);
        let shown: Vec<_> =
            nodes.iter().map(|n| (n.depth, names[n.name as usize].as_str(), n.samples)).collect();
        assert_eq!(shown, [(0, "api", 10), (1, "main", 10), (2, "b", 5), (2, "a", 5), (3, "b", 3)]);
        assert_eq!(left_out, 0);
        let rows: Vec<_> = hottest(&component).rows.iter().map(|row| row[0].text.clone()).collect();
        assert_eq!(rows, ["b", "a"]);
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
        let (_, nodes, left_out) = tree(&component);
        assert_eq!((nodes.len(), left_out), (2, 3));
    }
}
