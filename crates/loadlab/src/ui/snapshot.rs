//! The state as JSON for the page: figures worded as on the screen, and numbers where something is drawn.

use std::collections::VecDeque;

use loadlab_record::text::units::format_count;
use loadlab_report::figures;
use loadlab_report::terminal::harmless;
use serde::Serialize;

use crate::live::display;
use crate::live::state::{Agent, Component, Figure, Load, State, Weight};
use crate::live::wording;

/// How many lines of text a page gets; it shows the newest first.
const LINES: usize = 60;

#[derive(Serialize)]
struct Frame {
    title: String,
    trials: u64,
    trial: String,
    place: Option<String>,
    phase: String,
    phase_for: String,
    clock: String,
    figures: Vec<FigureFrame>,
    loads: Vec<LoadFrame>,
    components: Vec<ComponentFrame>,
    probes: Vec<ProbeFrame>,
    agents: Vec<AgentFrame>,
    settling: Vec<(&'static str, String)>,
    done: Vec<(&'static str, String)>,
    doubts: Vec<(&'static str, String)>,
    events: Vec<(String, &'static str, String)>,
}

#[derive(Serialize)]
struct FigureFrame {
    key: String,
    name: String,
    about: Option<String>,
    text: String,
    over: Over,
}

#[derive(Serialize)]
struct LoadFrame {
    name: String,
    batch: Option<String>,
    share: Option<f64>,
    far: String,
    rate: String,
    p50: String,
    p99: String,
    p50_so_far: String,
    p99_so_far: String,
    connections: String,
    ended: u64,
    outcomes: Vec<OutcomeFrame>,
    over: Over,
}

#[derive(Serialize)]
struct OutcomeFrame {
    name: &'static str,
    count: u64,
    text: String,
    weight: &'static str,
}

#[derive(Serialize)]
struct ComponentFrame {
    name: String,
    cpu: UseFrame,
    memory: UseFrame,
    stopped: Option<String>,
    net: Option<String>,
    over: Over,
}

#[derive(Serialize)]
struct UseFrame {
    text: String,
    share: Option<f64>,
    limit: Option<String>,
    weight: &'static str,
}

#[derive(Serialize)]
struct ProbeFrame {
    name: String,
    text: String,
    over: Over,
}

#[derive(Serialize)]
struct AgentFrame {
    key: String,
    name: String,
    rate: String,
    missing: bool,
    ok: String,
    failed: String,
    in_flight: String,
    over: Over,
}

/// Lines over time: the newest values, and how many there were in total.
#[derive(Serialize)]
struct Over {
    count: u64,
    lines: Vec<Vec<Option<f64>>>,
}

/// The state in JSON, with at most this many of the newest values of each line.
pub fn frame(state: &State, now_s: f64, tail: usize) -> String {
    let newest = |lines: &VecDeque<(Weight, String)>| {
        let lines = lines.iter().rev().take(LINES);
        lines.map(|(weight, text)| (name_of(*weight), harmless(text))).collect()
    };
    let events = state.events.iter().rev().take(LINES);
    let frame = Frame {
        title: harmless(&state.title),
        trials: state.trials,
        trial: harmless(&state.trial),
        place: state.place.clone(),
        phase: harmless(&state.phase),
        phase_for: display::clock(now_s - state.phase_since_s),
        clock: display::clock(now_s),
        figures: state.figures.iter().map(|f| figure_frame(state, f, tail)).collect(),
        loads: state.loads.iter().map(|load| load_frame(load, tail)).collect(),
        components: display::shown(&state.components).into_iter().map(|c| component_frame(c, tail)).collect(),
        probes: state.probes.iter().map(|p| probe_frame(p, tail)).collect(),
        agents: display::agents(state).into_iter().map(|a| agent_frame(state, a, tail)).collect(),
        settling: state.settling.iter().map(|(weight, text)| (name_of(*weight), harmless(text))).collect(),
        done: newest(&state.done),
        doubts: newest(&state.doubts),
        events: events
            .map(|event| (display::clock(event.at_s), name_of(event.weight), harmless(&event.text)))
            .collect(),
    };
    // Serialising fails only for maps with keys that are not text, and there are none.
    serde_json::to_string(&frame).unwrap_or_default()
}

fn figure_frame(state: &State, figure: &Figure, tail: usize) -> FigureFrame {
    FigureFrame {
        key: harmless(&display::figure_key(figure)),
        name: harmless(&display::figure_name(state, figure)),
        about: figure.facts.about.as_deref().map(harmless),
        text: wording::figure(&figure.facts, &figure.value),
        over: over(figure.count, tail, &[&figure.values]),
    }
}

fn load_frame(load: &Load, tail: usize) -> LoadFrame {
    let p = &load.progress;
    let (share, far) = display::far(load);
    LoadFrame {
        name: harmless(&load.name),
        batch: (load.batch.1 > 1).then(|| format!("batch {}/{}", load.batch.0 + 1, load.batch.1)),
        share: share.map(|s| s.clamp(0.0, 1.0)),
        far,
        rate: format!("{}/s", format_count(p.ok_per_s.round())),
        p50: display::ms(display::newest(load, &load.p50_ms, p.p50_ms)),
        p99: display::ms(display::newest(load, &load.p99_ms, p.p99_ms)),
        p50_so_far: display::ms(p.p50_ms),
        p99_so_far: display::ms(p.p99_ms),
        connections: format_count(p.connections as f64),
        ended: p.counts.ok + p.counts.failed(),
        outcomes: display::outcomes(&display::counts(load))
            .into_iter()
            .map(|o| OutcomeFrame {
                name: o.name,
                count: o.count,
                text: format_count(o.count as f64),
                weight: name_of(o.weight),
            })
            .collect(),
        over: over(
            load.seconds,
            tail,
            &[&load.at_s, &load.ok_per_s, &load.failed_per_s, &load.p50_ms, &load.p99_ms],
        ),
    }
}

fn component_frame(c: &Component, tail: usize) -> ComponentFrame {
    ComponentFrame {
        name: harmless(&c.name),
        cpu: use_frame(display::cpu(c)),
        memory: use_frame(display::memory(c)),
        stopped: display::stopped(c),
        net: display::net(c),
        over: over(c.readings, tail, &[&c.at_s, &c.cpu]),
    }
}

fn use_frame(used: display::Use) -> UseFrame {
    UseFrame {
        text: used.text.unwrap_or_else(|| figures::NOTHING.to_owned()),
        share: used.share.map(|s| s.clamp(0.0, 1.0)),
        limit: used.limit,
        weight: name_of(display::weight_of(used.share)),
    }
}

fn probe_frame(probe: &crate::live::state::Probe, tail: usize) -> ProbeFrame {
    let last = probe.values.back().copied().flatten();
    ProbeFrame {
        name: harmless(&probe.name),
        text: last.map_or(figures::NOTHING.to_owned(), figures::number),
        over: over(probe.readings, tail, &[&probe.values]),
    }
}

fn agent_frame(state: &State, agent: &Agent, tail: usize) -> AgentFrame {
    let counts = &agent.now.counts;
    AgentFrame {
        key: harmless(&display::agent_key(agent)),
        name: harmless(&display::agent_name(state, agent)),
        rate: display::agent_rate(agent),
        missing: agent.now.is_missing,
        ok: format_count(counts.ok as f64),
        failed: format_count(counts.failed() as f64),
        in_flight: format_count(counts.in_flight as f64),
        over: over(agent.reports, tail, &[&agent.ok_per_s]),
    }
}

fn over(count: u64, tail: usize, lines: &[&VecDeque<Option<f64>>]) -> Over {
    let newest = |line: &&VecDeque<Option<f64>>| {
        line.iter().skip(line.len().saturating_sub(tail)).map(|v| v.map(short)).collect()
    };
    Over { count, lines: lines.iter().map(newest).collect() }
}

/// Six significant digits: more than is visible in a line.
fn short(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn name_of(weight: Weight) -> &'static str {
    match weight {
        Weight::Plain => "plain",
        Weight::Good => "good",
        Weight::Doubtful => "doubtful",
        Weight::Bad => "bad",
    }
}

#[cfg(test)]
mod tests {
    use loadlab_record::documents::figure::{Better, NumberKind};
    use loadlab_record::documents::manifest::FigureFacts;
    use loadlab_run::RunEvent;
    use loadlab_run::senders::AgentNow;
    use serde_json::Value;

    use super::*;

    #[test]
    fn lines_keep_their_keys_when_names_change() {
        let mut state = State::new("test");
        let figure = FigureFacts {
            name: "p99".into(),
            value: "p99".into(),
            kind: NumberKind::Duration,
            unit: None,
            better: Better::Less,
            about: None,
        };
        let started = |load: &str| RunEvent::LoadStarted {
            load: load.to_owned(),
            batch: (0, 1),
            planned_s: None,
            planned_requests: None,
        };
        let agent = |name: &str| RunEvent::Agents {
            load: "main".into(),
            agents: vec![AgentNow { slot: 3, agent: name.to_owned(), ..AgentNow::default() }],
        };
        let shown = |state: &State| -> Vec<(String, String)> {
            let frame: Value = serde_json::from_str(&frame(state, 1.0, 8)).unwrap();
            let text = |thing: &Value, of: &str| thing[of].as_str().unwrap().to_owned();
            let first = |of: &str| (text(&frame[of][0], "key"), text(&frame[of][0], "name"));
            vec![first("figures"), first("agents")]
        };
        state.on_event(
            0.0,
            &RunEvent::TrialStarted {
                case: "default".into(),
                trial: 1,
                place: 1,
                of: 1,
                at_most: false,
                cpu_limits: Default::default(),
                figures: vec![figure],
            },
        );
        state.on_event(0.1, &started("main"));
        state.on_event(0.2, &agent("host-a"));
        let before = shown(&state);
        state.on_event(0.3, &started("second"));
        state.on_event(0.4, &agent("host-b"));
        let after = shown(&state);
        let names = |all: &[(String, String)]| all.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&before), ["p99", "host-a (slot 3)"]);
        assert_eq!(names(&after), ["p99 of main", "host-b (slot 3) of main"]);
        for ((was, _), (is, _)) in before.iter().zip(&after) {
            assert_eq!(was, is);
        }
    }
}
