//! A profile: where a component's threads spent their CPU time, and where they waited, from stacks sampled while loads
//! ran.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::omitted::is_default;

/// What was sampled in a trial: `profile.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Samples per second and core.
    pub rate_per_s: u32,
    /// When samples were taken, seconds on the trial's clock: in every two seconds, one chosen at random. The others
    /// are the control that shows what profiling costs.
    pub windows: Vec<TimeSpan>,
    /// Samples that did not fit into the kernel's buffers.
    pub lost: u64,
    /// CPU time spent reading samples and resolving names, seconds; the kernel takes the samples, and that is in the
    /// cost.
    pub cpu_s: f64,
    /// Functions of the kernel are part of the stacks.
    pub has_kernel: bool,
    /// Every component whose CPU time was sampled.
    pub components: Vec<ComponentProfile>,
    /// Every component whose waits were sampled: their samples are microseconds that threads waited. A thread that
    /// began to wait before a sampled second, and did not stop within it, is not seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<ComponentProfile>,
    /// Time during which waits were sampled, seconds: a second with very many waits ends early.
    #[serde(skip_serializing_if = "is_default")]
    pub waits_s: f64,
    /// What could not be sampled, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_seen: Vec<String>,
}

/// Seconds from a start to an end, on the trial's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSpan {
    /// Its start.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
}

/// The stacks of a component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComponentProfile {
    /// The component.
    pub component: String,
    /// Samples in all.
    pub samples: u64,
    /// Of those, the ones whose callers are known only in part: code without frame pointers.
    pub incomplete: u64,
    /// Of those, the ones whose innermost function has no name: a file without symbols, code made at run time.
    pub unnamed: u64,
    /// Names of functions.
    pub names: Vec<String>,
    /// Every stack that was seen.
    pub stacks: Vec<Stack>,
    /// Waits of idle threads, which are in none of the above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<IdleWait>,
}

/// What idle threads waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleWait {
    /// What the threads waited for.
    pub why: String,
    /// Time waited, microseconds.
    pub samples: u64,
}

/// A stack, and how often it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Its functions as indices of [`ComponentProfile::names`], the outermost first.
    pub frames: Vec<u32>,
    /// Number of samples with this stack.
    pub samples: u64,
}

/// How often a function was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// Samples in the function itself.
    pub own: u64,
    /// Samples in it and in what it calls; one that calls itself counts once.
    pub total: u64,
}

/// The outermost frame of a stack whose callers are not known.
pub const INCOMPLETE: &str = "[incomplete]";
/// Suffix of the names of kernel functions.
pub const KERNEL: &str = " [kernel]";

impl Profile {
    /// No sample was taken.
    pub fn is_empty(&self) -> bool {
        self.components.iter().chain(&self.waits).all(|component| component.samples == 0)
    }

    /// Share of a time in which samples were taken, 0 to 1.
    pub fn sampled_share(&self, time: TimeSpan) -> f64 {
        let within = |window: &TimeSpan| window.to_s.min(time.to_s) - window.from_s.max(time.from_s);
        let sampled: f64 = self.windows.iter().map(|window| within(window).max(0.0)).sum();
        sampled / (time.to_s - time.from_s).max(f64::MIN_POSITIVE)
    }

    /// CPU time as folded stacks, one per line, the component in front: `api;main;serve;parse 42`.
    pub fn folded(&self) -> String {
        folded(&self.components)
    }

    /// Waits as folded stacks, microseconds.
    pub fn folded_waits(&self) -> String {
        folded(&self.waits)
    }
}

fn folded(components: &[ComponentProfile]) -> String {
    let mut out = String::new();
    for component in components {
        for stack in &component.stacks {
            out.push_str(&folded_name(&component.component));
            for name in component.named(stack) {
                out.push(';');
                out.push_str(&folded_name(name));
            }
            let _ = writeln!(out, " {}", stack.samples);
        }
    }
    out
}

/// A name without the characters that would end a frame or a line of folded stacks.
fn folded_name(name: &str) -> String {
    let plain = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    name.chars().map(plain).collect()
}

impl ComponentProfile {
    /// The names of a stack's functions, the outermost first.
    pub fn named<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = &'a str> {
        stack.frames.iter().map(|frame| self.names.get(*frame as usize).map_or("[unknown]", String::as_str))
    }

    /// Adds the samples of another trial.
    pub fn add(&mut self, other: &ComponentProfile) {
        self.samples += other.samples;
        self.incomplete += other.incomplete;
        self.unnamed += other.unnamed;
        for idle in &other.idle {
            match self.idle.iter_mut().find(|known| known.why == idle.why) {
                Some(known) => known.samples += idle.samples,
                None => self.idle.push(idle.clone()),
            }
        }
        let mut places: HashMap<&str, u32> = HashMap::new();
        let mut new: Vec<&str> = Vec::new();
        let known = self.names.iter().map(String::as_str).zip(0..);
        places.extend(known);
        let mut counts: BTreeMap<Vec<u32>, u64> =
            self.stacks.drain(..).map(|stack| (stack.frames, stack.samples)).collect();
        for stack in &other.stacks {
            let place = |name| {
                *places.entry(name).or_insert_with(|| {
                    new.push(name);
                    (self.names.len() + new.len() - 1) as u32
                })
            };
            let frames = other.named(stack).map(place).collect();
            *counts.entry(frames).or_default() += stack.samples;
        }
        let new: Vec<String> = new.into_iter().map(str::to_owned).collect();
        self.names.extend(new);
        self.stacks = counts.into_iter().map(|(frames, samples)| Stack { frames, samples }).collect();
        self.stacks.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.frames.cmp(&b.frames)));
    }

    /// Its functions, those with the most samples of their own first.
    pub fn functions(&self) -> Vec<Function<'_>> {
        self.functions_by(|frames| frames.last())
    }

    /// As `functions`, for waits: a wait belongs to the innermost function of the program, which called what waits.
    pub fn waiting_functions(&self) -> Vec<Function<'_>> {
        let is_of_program = |frame: &&u32| {
            let name = self.names.get(**frame as usize).map_or("", String::as_str);
            !name.ends_with(KERNEL) && !name.starts_with('[')
        };
        self.functions_by(|frames| frames.iter().rev().find(is_of_program).or(frames.last()))
    }

    fn functions_by<'f>(&'f self, owner: impl Fn(&'f [u32]) -> Option<&'f u32>) -> Vec<Function<'f>> {
        let mut all: Vec<Function<'_>> =
            self.names.iter().map(|name| Function { name, own: 0, total: 0 }).collect();
        for stack in &self.stacks {
            let mut seen: Vec<u32> = stack.frames.clone();
            seen.sort_unstable();
            seen.dedup();
            for frame in seen {
                if let Some(function) = all.get_mut(frame as usize) {
                    function.total += stack.samples;
                }
            }
            if let Some(function) = owner(&stack.frames).and_then(|frame| all.get_mut(*frame as usize)) {
                function.own += stack.samples;
            }
        }
        all.sort_by(|a, b| (b.own, b.total).cmp(&(a.own, a.total)).then_with(|| a.name.cmp(b.name)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_calls_itself_counts_once_and_names_do_not_break_folded_stacks() {
        let names = vec!["main".to_owned(), "walk;\n".to_owned(), "read [kernel]".to_owned()];
        let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
        let component = ComponentProfile {
            component: "api".into(),
            samples: 10,
            names,
            stacks: vec![stack(&[0, 1, 1], 6), stack(&[0, 1, 2], 3), stack(&[0, 9], 1)],
            ..ComponentProfile::default()
        };
        let functions: Vec<_> = component.functions().iter().map(|f| (f.name, f.own, f.total)).collect();
        assert_eq!(functions, [("walk;\n", 6, 9), ("read [kernel]", 3, 3), ("main", 0, 10)]);
        let waiting: Vec<_> =
            component.waiting_functions().iter().map(|f| (f.name, f.own, f.total)).collect();
        assert_eq!(waiting, [("walk;\n", 9, 9), ("main", 0, 10), ("read [kernel]", 0, 3)]);
        let profile = Profile { components: vec![component], ..Profile::default() };
        assert_eq!(
            profile.folded(),
            "api;main;walk: ;walk:  6\napi;main;walk: ;read [kernel] 3\napi;main;[unknown] 1\n"
        );
    }

    #[test]
    fn profiles_of_two_trials_add_up_by_name() {
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
        let mut both = of(&["main", "read"], &[(&[0, 1], 3)]);
        both.add(&of(&["write", "main", "read"], &[(&[1, 2], 2), (&[1, 0], 4)]));
        let folded = Profile { components: vec![both.clone()], ..Profile::default() }.folded();
        assert_eq!((both.samples, folded.as_str()), (9, "api;main;read 5\napi;main;write 4\n"));
    }

    #[test]
    fn a_second_is_sampled_as_far_as_windows_cover_it() {
        let window = |from_s, to_s| TimeSpan { from_s, to_s };
        let profile = Profile { windows: vec![window(1.5, 2.0), window(3.0, 4.0)], ..Profile::default() };
        let share = |from_s| profile.sampled_share(window(from_s, from_s + 1.0));
        assert_eq!([0.0, 1.0, 2.5, 3.0].map(share), [0.0, 0.5, 0.5, 1.0]);
    }
}
