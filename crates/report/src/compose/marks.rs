//! Marks in the charts of a trial: deaths and notes, stages and late starts, warm-up, pauses and the drain.

use std::collections::BTreeMap;

use loadlab_record::counts::load::Tick;
use loadlab_record::documents::event::EventKind;
use loadlab_record::documents::summary::LoadFacts;
use loadlab_record::store::TrialRecord;

use crate::document::{Band, Chart, Mark};
use crate::figures;
use crate::wording::stages;

/// Space after the end of what is shown, as a share of it, so that the end is visible.
const MARGIN: f64 = 0.015;

/// The time that charts show: from the beginning of the load to its end, or to the end of the drain. Anything before
/// and after is not about the load.
#[derive(Clone, Copy)]
pub(super) struct ShownTime {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
}

/// The time that the charts of a trial show; `None` if it is empty.
pub(super) fn shown_time(record: &TrialRecord) -> Option<ShownTime> {
    let at = |wanted: fn(&EventKind) -> bool| {
        record.events.iter().filter(move |e| wanted(&e.what)).map(|e| e.at_s)
    };
    let begins =
        record.ticks.iter().map(|t| t.from_s).chain(at(|w| matches!(w, EventKind::LoadStarted { .. })));
    let ends = record
        .ticks
        .iter()
        .map(|t| t.to_s)
        .chain(at(|w| matches!(w, EventKind::LoadEnded { .. } | EventKind::Drained { .. })));
    let (from_s, to_s) = (begins.reduce(f64::min)?.floor(), ends.reduce(f64::max)?);
    (to_s > from_s).then_some(ShownTime { from_s, to_s })
}

/// Where the time axis begins and ends: the same for all charts of a trial.
pub(super) fn axis_of(shown: ShownTime) -> (f64, f64) {
    let ShownTime { from_s, to_s } = shown;
    (from_s, to_s + (to_s - from_s) * MARGIN)
}

pub(super) fn marks(record: &TrialRecord) -> Vec<Mark> {
    let from_s = record.ticks.first().map_or(0.0, |t| t.from_s) - 5.0;
    let text = |what: &EventKind| match what {
        EventKind::Died { component, status } => Some(format!("{component} died: {status}")),
        EventKind::Note { text } | EventKind::Failed { text } => Some(text.clone()),
        EventKind::Up { component, .. } => Some(format!("{component} started")),
        EventKind::Down { component, .. } => Some(format!("{component} down")),
        _ => None,
    };
    // Coming up before and going down after the load is planned; in between it is news.
    let to_s = record.ticks.iter().map(|t| t.to_s).fold(0.0, f64::max);
    let news = |e: &&loadlab_record::documents::event::Event| {
        let planned = matches!(e.what, EventKind::Up { .. } | EventKind::Down { .. })
            && !(0.0..=to_s).contains(&e.at_s);
        e.at_s >= from_s && !planned
    };
    record
        .events
        .iter()
        .filter(news)
        .filter_map(|e| Some(Mark { at_s: e.at_s, text: text(&e.what)? }))
        .collect()
}

/// How many changes of one kind are marked; beyond that, marks hide what they point at.
const TURNS: usize = 12;

/// Where a load's stages begin, and where loads that start late begin.
pub(super) fn turns(record: &TrialRecord, facts: &LoadFacts) -> Vec<Mark> {
    let mut marks = Vec::new();
    for event in &record.events {
        let EventKind::LoadStarted { load, batch } = &event.what else { continue };
        let own = facts.loads.get(load).unwrap_or(facts);
        let name = if facts.loads.is_empty() { String::new() } else { format!("{load}, ") };
        if *batch == 0 && own.start_s > 0.0 && !facts.loads.is_empty() {
            marks.push(Mark { at_s: event.at_s, text: format!("{load} begins") });
        }
        // A jump shows where the next stage begins.
        let numbered = stages(own).into_iter().zip(&own.stages).enumerate().skip(1);
        let lasting = numbered.filter(|(_, (_, stage))| stage.over_s > 0.0).take(TURNS);
        marks.extend(lasting.map(|(i, ((at_s, text), _))| Mark {
            at_s: event.at_s + at_s,
            text: format!("{name}stage {}: {text}", i + 1),
        }));
    }
    marks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    marks.truncate(2 * TURNS);
    marks
}

/// The marks in a trial's charts, in words.
pub fn describe_marks(chart: &Chart) -> Option<String> {
    let span =
        |b: &Band| format!("{} from {} to {}", b.text, figures::seconds(b.from_s), figures::seconds(b.to_s));
    let moment = |m: &Mark| format!("{} at {}", m.text, figures::seconds(m.at_s));
    let moments = chart.turns.iter().chain(&chart.marks).map(moment);
    let texts: Vec<String> = chart.bands.iter().map(span).chain(moments).collect();
    (!texts.is_empty()).then(|| format!("Marked: {}.", texts.join("; ")))
}

/// Warm-up, pauses between batches, and the drain.
pub(super) fn bands(record: &TrialRecord) -> Vec<Band> {
    let mut bands = Vec::new();
    let mut ticks: Vec<&Tick> = record.ticks.iter().collect();
    ticks.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
    let mut covered_to_s = ticks.first().map_or(0.0, |t| t.from_s);
    for tick in &ticks {
        if tick.from_s > covered_to_s + 0.5 {
            bands.push(Band { from_s: covered_to_s, to_s: tick.from_s, text: "pause".into() });
        }
        covered_to_s = covered_to_s.max(tick.to_s);
    }
    bands.extend(warm_ups(&ticks));
    // A band without length would be a line.
    let last = |ticks: &mut dyn Iterator<Item = &&Tick>| ticks.map(|t| t.to_s).reduce(f64::max);
    let ends = last(&mut ticks.iter().filter(|t| t.in_window)).zip(last(&mut ticks.iter()));
    if let Some((from_s, to_s)) = ends.filter(|(from_s, to_s)| to_s - from_s > 0.5) {
        bands.push(Band { from_s, to_s, text: "stragglers".into() });
    }
    let at = |wanted: fn(&EventKind) -> bool| record.events.iter().find(|e| wanted(&e.what)).map(|e| e.at_s);
    let drain = at(|w| matches!(w, EventKind::DrainStarted { .. }))
        .zip(at(|w| matches!(w, EventKind::Drained { .. })));
    if let Some((from_s, to_s)) = drain.filter(|(from_s, to_s)| to_s > from_s) {
        bands.push(Band { from_s, to_s, text: "drain".into() });
    }
    bands
}

/// When loads warm up, from ticks in order of time: each load up to its own window, since their ticks interleave.
/// Loads that do so at the same time share one band.
fn warm_ups(ticks: &[&Tick]) -> Vec<Band> {
    let mut by_load: BTreeMap<&str, Vec<&Tick>> = BTreeMap::new();
    for tick in ticks {
        by_load.entry(&tick.load).or_default().push(tick);
    }
    let span = |own: &Vec<&Tick>| {
        // Without a window there is nothing to warm up for.
        let window = own.iter().position(|t| t.in_window)?;
        let to_s = own[..window].iter().map(|t| t.to_s).reduce(f64::max)?;
        Some((own.first()?.from_s, to_s))
    };
    let mut spans: Vec<(f64, f64)> = by_load.values().filter_map(span).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut bands: Vec<Band> = Vec::new();
    for (from_s, to_s) in spans {
        match bands.last_mut().filter(|band| from_s <= band.to_s) {
            Some(band) => band.to_s = band.to_s.max(to_s),
            None => bands.push(Band { from_s, to_s, text: "warm-up".into() }),
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_warms_up_until_its_own_window() {
        // Load, its first second, how many seconds it warms up, and how many it has.
        let check = |loads: &[(&str, u32, u32, u32)], expect: &[(f64, f64)]| {
            let mut ticks: Vec<Tick> = Vec::new();
            for (load, from, warm, all) in loads {
                ticks.extend((0..*all).map(|second| Tick {
                    load: (*load).to_owned(),
                    from_s: f64::from(from + second),
                    to_s: f64::from(from + second + 1),
                    in_window: second >= *warm,
                    ..Tick::default()
                }));
            }
            let mut ticks: Vec<&Tick> = ticks.iter().collect();
            ticks.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
            let bands: Vec<_> = warm_ups(&ticks).iter().map(|b| (b.from_s, b.to_s)).collect();
            assert_eq!(bands, expect, "{loads:?}");
        };
        check(&[("a", 0, 3, 9)], &[(0.0, 3.0)]);
        check(&[("a", 0, 0, 9)], &[]);
        // All of it is warm-up: the load was ended before its window.
        check(&[("a", 0, 4, 4)], &[]);
        check(&[("a", 0, 3, 9), ("b", 0, 3, 9)], &[(0.0, 3.0)]);
        check(&[("a", 0, 0, 9), ("b", 0, 3, 9)], &[(0.0, 3.0)]);
        check(&[("a", 0, 2, 9), ("b", 5, 2, 9)], &[(0.0, 2.0), (5.0, 7.0)]);
        check(&[("a", 0, 4, 9), ("b", 2, 4, 9)], &[(0.0, 6.0)]);
    }
}
