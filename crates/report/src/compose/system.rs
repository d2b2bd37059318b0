//! The system, drawn: components in the order of a request's path, how much each used of its limits, and where
//! requests waited.

use std::collections::BTreeMap;

use loadlab_analysis::cases::case::CaseFindings;
use loadlab_analysis::cases::groups::Groups;
use loadlab_analysis::cases::metric::{Unit, Value};
use loadlab_analysis::findings::Findings;
use loadlab_analysis::trial::bottleneck::flow::waiting;
use loadlab_analysis::trial::bottleneck::{BottleneckKind, Diagnosis};
use loadlab_record::documents::manifest::Manifest;
use loadlab_record::documents::summary::{ComponentSummary, LoadFacts, Summary};
use loadlab_record::watch::names::GENERATOR;

use super::cases::bottleneck;
use crate::document::{Drawing, Edge, Gauge, Node};
use crate::figures;

/// How many nodes of one layer are drawn; beyond that, those that use least are left out.
const MOST_IN_LAYER: usize = 8;

/// A drawing for each case that was measured.
pub(super) fn drawings(findings: &Findings<'_>, manifest: &Manifest) -> Vec<Drawing> {
    let groups = Groups::of(&manifest.components);
    findings.cases.iter().filter_map(|case| drawing(case, &groups, manifest)).collect()
}

fn drawing(case: &CaseFindings<'_>, groups: &Groups, manifest: &Manifest) -> Option<Drawing> {
    let summary = case.typical().and_then(|t| t.summary).or_else(|| case.whole().next())?;
    if summary.components.is_empty() {
        return None;
    }
    let mut members: BTreeMap<&str, Vec<(&str, &ComponentSummary)>> = BTreeMap::new();
    for (name, component) in &summary.components {
        members.entry(groups.name(name)).or_default().push((name, component));
    }
    let edges = edges(&case.diagnosis, &summary.load, groups, manifest, &members);
    let culprit = culprit(case);
    let most = Most::of(summary);
    let node = |name: &str| {
        let own = members.get(name).map_or(&[][..], Vec::as_slice);
        let is_bottleneck = culprit.is_some_and(|c| own.iter().any(|(m, _)| names(c).any(|n| n == *m)));
        Node {
            name: name.to_owned(),
            replicas: own.len().max(1),
            gauges: gauges(own, &most),
            note: is_bottleneck.then(|| what_of(&bottleneck(case))),
            is_bottleneck,
        }
    };
    let mut layers = vec![vec![generator(summary, case)]];
    for names in layers_of(&edges, groups, &members) {
        let mut layer: Vec<Node> = names.into_iter().map(node).collect();
        if layer.len() > MOST_IN_LAYER {
            let weight = |n: &Node| (n.is_bottleneck, n.gauges.iter().map(|g| g.share).fold(0.0, f64::max));
            layer.sort_by(|a, b| weight(b).partial_cmp(&weight(a)).unwrap_or(std::cmp::Ordering::Equal));
            let left_out = layer.split_off(MOST_IN_LAYER);
            let name = figures::plural(left_out.len() as u64, "other", "others");
            layer.push(Node { name, replicas: 1, gauges: Vec::new(), note: None, is_bottleneck: false });
        }
        layers.push(layer);
    }
    Some(Drawing { case: case.label.clone(), layers, edges })
}

/// The component or link that is the bottleneck.
fn culprit<'a>(case: &'a CaseFindings<'_>) -> Option<&'a str> {
    let found = case.diagnosis.bottleneck.as_ref()?;
    // Latency inside a component is not a bottleneck as long as nothing is saturated.
    found
        .component
        .as_deref()
        .filter(|_| !matches!(found.kind, BottleneckKind::Nothing | BottleneckKind::Latency))
}

/// Components that an answer names: `edge1, edge2` are two.
fn names(culprit: &str) -> impl Iterator<Item = &str> {
    culprit.split([',', ' ']).filter(|name| !name.is_empty())
}

/// The text without the component, in whose box it appears.
fn what_of(text: &str) -> String {
    text.rsplit_once(" · ").map_or(text, |(_, what)| what).to_owned()
}

fn generator(summary: &Summary, case: &CaseFindings<'_>) -> Node {
    let load = &summary.load;
    let what = match (load.users, load.rate_per_s) {
        (Some(users), None) => figures::plural(users, "user", "users"),
        (None, Some(rate)) => figures::rate(rate),
        _ => "several loads".to_owned(),
    };
    let is_bottleneck =
        case.diagnosis.bottleneck.as_ref().is_some_and(|b| b.kind == BottleneckKind::Generator);
    Node {
        name: GENERATOR.to_owned(),
        replicas: 1,
        gauges: Vec::new(),
        note: Some(format!("{what}, {} ok", figures::rate(summary.rate_per_s.ok))),
        is_bottleneck,
    }
}

/// The maximum of any component, for bars of those without a limit.
struct Most {
    cpu_percent: f64,
    memory_bytes: f64,
}

impl Most {
    fn of(summary: &Summary) -> Most {
        let most = |read: fn(&ComponentSummary) -> Option<f64>| {
            summary.components.values().filter_map(read).fold(0.0, f64::max)
        };
        Most {
            // Less than a core is drawn relative to a core.
            cpu_percent: most(|c| c.cpu_percent.mean).max(100.0),
            memory_bytes: most(|c| c.memory_bytes.max),
        }
    }
}

/// CPU and memory of a node; for replicas, of the one that uses most of its limit.
fn gauges(own: &[(&str, &ComponentSummary)], most: &Most) -> Vec<Gauge> {
    let largest = |all: Vec<(f64, String)>| all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let cpu = own.iter().filter_map(|(_, c)| {
        let used = c.cpu_percent.mean?;
        let text = figures::value(Value::Known(used), Unit::CpuPercent);
        Some(match c.cpu_limit {
            Some(limit) => {
                (used / (limit * 100.0), format!("{text} of {}", figures::cpu_percent(limit * 100.0)))
            }
            None => (used / most.cpu_percent, text),
        })
    });
    let memory = own.iter().filter_map(|(_, c)| {
        let used = c.memory_bytes.max?;
        let text = figures::bytes(used);
        Some(match c.memory_bytes.limit {
            Some(limit) if limit > 0 => {
                (used / limit as f64, format!("{text} of {}", figures::bytes(limit as f64)))
            }
            _ => (if most.memory_bytes > 0.0 { used / most.memory_bytes } else { 0.0 }, text),
        })
    });
    let gauge = |name: &str, found: Option<(f64, String)>| {
        found.map(|(share, text)| Gauge { name: name.to_owned(), text, share: share.clamp(0.0, 1.0) })
    };
    [gauge("CPU", largest(cpu.collect())), gauge("memory", largest(memory.collect()))]
        .into_iter()
        .flatten()
        .collect()
}

/// Who calls whom: as seen in connections, else as components name one another in their configuration.
fn edges(
    diagnosis: &Diagnosis,
    load: &LoadFacts,
    groups: &Groups,
    manifest: &Manifest,
    members: &BTreeMap<&str, Vec<(&str, &ComponentSummary)>>,
) -> Vec<Edge> {
    let is_drawn = |name: &str| name == GENERATOR || members.contains_key(name);
    let mut seen: Vec<(String, String, f64, f64)> = Vec::new();
    for pair in &diagnosis.pairs {
        let (from, to) = (groups.name(&pair.from), groups.name(&pair.to));
        if from == to || !is_drawn(from) || !is_drawn(to) {
            continue;
        }
        match seen.iter_mut().find(|(f, t, ..)| f == from && t == to) {
            Some((.., open, waits)) => {
                *open += pair.open;
                *waits += waiting(pair);
            }
            None => seen.push((from.to_owned(), to.to_owned(), pair.open, waiting(pair))),
        }
    }
    let slow_link = diagnosis.bottleneck.as_ref().filter(|b| b.kind == BottleneckKind::Link);
    let slow_link = slow_link.and_then(|b| b.component.as_deref()).and_then(|c| c.split_once('→'));
    let edge = |(from, to, open, waits): (String, String, f64, f64)| {
        let one = |v: f64| figures::number((v * 10.0).round() / 10.0);
        let is_slow = |(a, b): (&str, &str)| groups.name(a) == from && groups.name(b) == to;
        Edge {
            text: format!("{} of {} waiting", one(waits), one(open)),
            is_bottleneck: slow_link.is_some_and(is_slow),
            from,
            to,
        }
    };
    let mut all: Vec<Edge> = seen.into_iter().map(edge).collect();
    let programs = programs(load, groups, members);
    let is_source = |name: &str| name == GENERATOR || programs.contains(&name);
    // Sockets of another machine are not seen.
    if !all.iter().any(|e| is_source(&e.from)) {
        let is_unseen = all.is_empty();
        let of_plan = planned(load, groups, manifest, members).into_iter();
        all.extend(of_plan.filter(|e| is_unseen || is_source(&e.from)));
    }
    all.extend(programs.iter().map(|program| unseen_edge(GENERATOR, program)));
    all
}

fn unseen_edge(from: &str, to: &str) -> Edge {
    Edge { from: from.to_owned(), to: to.to_owned(), text: String::new(), is_bottleneck: false }
}

/// Programs that make loads: they are watched beside the components, under their loads' names, which no component has.
fn programs<'a>(
    load: &LoadFacts,
    groups: &Groups,
    members: &BTreeMap<&'a str, Vec<(&str, &ComponentSummary)>>,
) -> Vec<&'a str> {
    let has_programs = load.has_programs();
    let is_component = |name: &str| groups.all.iter().any(|(component, _)| component == name);
    members.keys().copied().filter(|name| has_programs && !is_component(name)).collect()
}

/// Edges derived from the plan: a component that names another calls it, the load goes to those that its URLs name,
/// and a program that makes a load calls those that its command names.
fn planned(
    load: &LoadFacts,
    groups: &Groups,
    manifest: &Manifest,
    members: &BTreeMap<&str, Vec<(&str, &ComponentSummary)>>,
) -> Vec<Edge> {
    let is_drawn = |name: &str| name == GENERATOR || members.contains_key(name);
    let mut all: Vec<Edge> = Vec::new();
    let mut add = |from: &str, to: &str| {
        let is_new = !all.iter().any(|e| e.from == from && e.to == to);
        if from != to && is_drawn(from) && members.contains_key(to) && is_new {
            all.push(unseen_edge(from, to));
        }
    };
    for component in &manifest.components {
        for asked in named_in(&component.run) {
            add(groups.name(&component.name), groups.name(asked));
        }
    }
    // Not what probes and conditions name: the load does not go there.
    for text in texts_of_loads(&manifest.plan_text) {
        let from = match text.has_program() {
            true => text.name,
            false if load.is_command() => continue,
            false => GENERATOR,
        };
        for asked in text.lines.iter().copied().flat_map(named_in) {
            add(from, groups.name(asked));
        }
    }
    all
}

/// What a plan says of a load.
#[derive(Debug, PartialEq)]
struct LoadText<'a> {
    name: &'a str,
    lines: Vec<&'a str>,
}

impl LoadText<'_> {
    /// Whether it has the key `command`: a program makes the load.
    fn has_program(&self) -> bool {
        let is_key = |part: &str| part.trim_start().starts_with("command:");
        self.lines.iter().any(|line| line.split(['{', ',']).any(is_key))
    }
}

/// The lines of a plan's `load`, or of each of its `loads`.
fn texts_of_loads(plan: &str) -> Vec<LoadText<'_>> {
    let mut found: Vec<LoadText<'_>> = Vec::new();
    let (mut section, mut depth_of_names) = ("", None);
    for line in plan.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        let key = text.split(':').next().unwrap_or(text).trim_matches(['"', '\'']);
        // A key of the plan itself.
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            (section, depth_of_names) = (key, None);
        }
        let is_name = match section {
            "load" => depth == 0 && key == "load",
            "loads" if text.is_empty() || text.starts_with('#') => false,
            // All of them in a line, under one name.
            "loads" if depth == 0 => text.contains('{'),
            "loads" => depth == *depth_of_names.get_or_insert(depth),
            _ => continue,
        };
        if is_name {
            found.push(LoadText { name: key, lines: Vec::new() });
        }
        if let Some(load) = found.last_mut() {
            load.lines.push(line);
        }
    }
    found
}

/// Components that a text of a plan names as `${components.NAME.…}`.
fn named_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("${components.").skip(1).filter_map(|rest| rest.split(['.', '}']).next())
}

/// All drawn nodes except loadlab, by how many steps a request takes to them, in the plan's order. Of those that nobody
/// was seen calling, callers of others, such as consumers, are with the first, and the rest is with the last.
fn layers_of<'a>(
    edges: &[Edge],
    groups: &'a Groups,
    members: &BTreeMap<&'a str, Vec<(&str, &ComponentSummary)>>,
) -> Vec<Vec<&'a str>> {
    let planned = groups.all.iter().map(|(name, _)| name.as_str()).filter(|name| members.contains_key(name));
    let mut left: Vec<&str> = planned.collect();
    left.extend(members.keys().filter(|name| !groups.all.iter().any(|(n, _)| n == *name)));
    let mut layers: Vec<Vec<&str>> = Vec::new();
    let mut asking: Vec<String> = vec![GENERATOR.to_owned()];
    while !left.is_empty() {
        let is_asked = |name: &&str| edges.iter().any(|e| e.to == **name && asking.contains(&e.from));
        let is_caller = |name: &&str| edges.iter().any(|e| e.from == **name);
        let is_called = |name: &&str| edges.iter().any(|e| e.to == **name);
        let begins = |name: &&str| layers.is_empty() && is_caller(name) && !is_called(name);
        let (next, others): (Vec<&str>, Vec<&str>) =
            left.into_iter().partition(|name| is_asked(name) || begins(name));
        if next.is_empty() {
            match layers.last_mut() {
                Some(last) => last.extend(others),
                None => layers.push(others),
            }
            break;
        }
        asking = next.iter().map(|name| (*name).to_owned()).collect();
        layers.push(next);
        left = others;
    }
    layers
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::manifest::ComponentFacts;
    use loadlab_record::documents::summary::LoadModel;
    use loadlab_record::watch::evidence::Pair;

    use super::*;

    #[test]
    fn layers_are_steps_of_the_load() {
        let names = ["balancer", "edge", "backend", "consumer", "store"];
        let facts = |name: &str| ComponentFacts { name: name.to_owned(), run: String::new() };
        let groups = Groups::of(&names.map(facts));
        let members: BTreeMap<&str, Vec<(&str, &ComponentSummary)>> =
            names.iter().map(|name| (*name, Vec::new())).collect();
        let check = |calls: &[(&str, &str)], expect: &[&[&str]]| {
            let edge = |(from, to): &(&str, &str)| Edge {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                text: String::new(),
                is_bottleneck: false,
            };
            let edges: Vec<Edge> = calls.iter().map(edge).collect();
            assert_eq!(layers_of(&edges, &groups, &members), expect, "{calls:?}");
        };
        let all = [("loadlab", "balancer"), ("balancer", "edge"), ("edge", "backend"), ("consumer", "store")];
        check(&all, &[&["balancer", "consumer"], &["edge", "store"], &["backend"]]);
        check(&all[..3], &[&["balancer"], &["edge"], &["backend", "consumer", "store"]]);
        // Two that call only each other.
        let circle = [("loadlab", "balancer"), ("edge", "backend"), ("backend", "edge")];
        check(&circle, &[&["balancer", "edge", "backend", "consumer", "store"]]);
        check(&all[1..3], &[&["balancer"], &["edge"], &["backend", "consumer", "store"]]);
        check(&[], &[&names]);
    }

    #[test]
    fn the_load_goes_to_what_its_own_section_names() {
        let plan = "# a plan\nloadlab: 1\nsystem:\n  probes: { a: ${components.db.port} }\n\
            load:\n  get: http://${components.web.address}\n# or\n  - ${components.api.port}\n\
            drain: { until: ${components.queue.port} }\n";
        let named = |plan: &str| -> Vec<String> {
            let of = |load: &LoadText<'_>| {
                let asked: Vec<&str> = load.lines.iter().copied().flat_map(named_in).collect();
                format!("{} {} {}", load.name, load.has_program(), asked.join(","))
            };
            texts_of_loads(plan).iter().map(of).collect()
        };
        assert_eq!(named(plan), ["load false web,api"]);
        let several = "loads:\n# two\n  get:\n    journey: [{ get: 'http://${components.web.address}/' }]\n\n\
            \x20 \"raw one\":\n    command:\n      run: [./insert, '${components.db.port}']\n\
            drain: { until: ${components.queue.port} }\n";
        assert_eq!(named(several), ["get false web", "raw one true db"]);
        let short = "loads:\n  raw: { cases: raw, command: { run: './insert ${components.db.port}' } }\n";
        assert_eq!(named(short), ["raw true db"]);
    }

    /// `web`, which calls `db`: its edges with a plan like this, where these were seen.
    fn drawn(plan: &str, load: &LoadFacts, others: &[&str], seen: &[(&str, &str)]) -> Vec<String> {
        let manifest: Manifest = serde_json::from_value(serde_json::json!({
            "record": 2, "loadlab": "0", "name": "test", "plan_path": "", "plan_text": plan, "plan_sha256": "",
            "options": [], "started": "", "ended": null, "how": "complete", "writer": { "pid": 1, "start_ticks": 1 },
            "host": { "kernel": "", "cpu": "", "cores": 2, "memory_bytes": 1, "clock_source": "", "cgroup": "" },
            "words": [], "axes": [], "trials": 1, "expect": [], "quick": false, "cases": [],
            "components": [{ "name": "web", "run": "./web ${components.db.port}" }, { "name": "db", "run": "./db" }],
        }))
        .expect("a manifest");
        let names = ["web", "db"].iter().chain(others);
        let members: BTreeMap<&str, Vec<(&str, &ComponentSummary)>> =
            names.map(|name| (*name, Vec::new())).collect();
        let pair = |(from, to): &(&str, &str)| Pair {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            ..Pair::default()
        };
        let diagnosis = Diagnosis { pairs: seen.iter().map(pair).collect(), ..Diagnosis::default() };
        let all = edges(&diagnosis, load, &Groups::of(&manifest.components), &manifest, &members);
        all.iter().map(|edge| format!("{}→{}", edge.from, edge.to)).collect()
    }

    #[test]
    fn a_load_that_was_not_seen_goes_where_its_urls_say() {
        let plan = "load:\n  journey: [{ get: 'http://${components.web.address}/' }]\n";
        let check = |seen: &[(&str, &str)], expect: &[&str]| {
            assert_eq!(drawn(plan, &LoadFacts::default(), &[], seen), expect, "{seen:?}");
        };
        check(&[], &["web→db", "loadlab→web"]);
        check(&[("web", "db")], &["web→db", "loadlab→web"]);
        check(&[("loadlab", "web")], &["loadlab→web"]);
    }

    #[test]
    fn a_program_calls_what_its_command_names_and_loadlab_only_the_program() {
        let plan = "load:\n  command:\n    run: 'wrk http://${components.web.address}/'\n";
        let load = LoadFacts { model: LoadModel::Command, ..LoadFacts::default() };
        let check = |others: &[&str], seen: &[(&str, &str)], expect: &[&str]| {
            assert_eq!(drawn(plan, &load, others, seen), expect, "{others:?}, {seen:?}");
        };
        check(&["load"], &[], &["web→db", "load→web", "loadlab→load"]);
        check(&["load"], &[("web", "db")], &["web→db", "load→web", "loadlab→load"]);
        check(&["load"], &[("load", "web"), ("web", "db")], &["load→web", "web→db", "loadlab→load"]);
        // It was not watched.
        check(&[], &[("web", "db")], &["web→db"]);
    }

    #[test]
    fn components_that_a_plan_names() {
        let text = "nginx -g ${components.web.port} ${run.dir} ${components.db} ${components.x.address}";
        assert_eq!(named_in(text).collect::<Vec<_>>(), ["web", "db", "x"]);
    }
}
