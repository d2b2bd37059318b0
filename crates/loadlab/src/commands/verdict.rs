//! The verdict of a comparison, in a word and in a line.

use loadlab_analysis::Exit;
use loadlab_analysis::comparison::compare::{Comparison, Row};
use loadlab_analysis::comparison::figures::Scale;
use loadlab_analysis::comparison::interval::Call;
use loadlab_record::text::units::significant;

/// One word for all figures: `better` and `worse` if no figure contradicts it.
pub fn word(comparison: &Comparison) -> &'static str {
    let has = |call: Call| comparison.called(call).next().is_some();
    let is_open = comparison.called(Call::CannotTell).any(|row| row.decides);
    match (has(Call::Better), has(Call::Worse), is_open) {
        (true, true, _) => "mixed",
        (true, false, _) => Call::Better.name(),
        (false, true, _) => Call::Worse.name(),
        (false, false, true) => Call::CannotTell.name(),
        (false, false, false) if comparison.called(Call::Same).next().is_none() => Call::CannotTell.name(),
        (false, false, false) => Call::Same.name(),
    }
}

/// The exit of comparisons that the user asked for: 1 if anything is worse, 6 if a figure that decides is not certain.
pub fn exit(comparisons: &[Comparison]) -> Exit {
    let is_settled = |c: &Comparison| {
        word(c) != Call::CannotTell.name() && !c.called(Call::CannotTell).any(|row| row.decides)
    };
    match () {
        () if comparisons.iter().any(Comparison::is_worse) => Exit::Failed,
        () if !comparisons.is_empty() && comparisons.iter().all(is_settled) => Exit::Ok,
        () => Exit::Undecided,
    }
}

/// The verdict in a line: the figures that decide it, with their intervals, and the parts in which they differ.
pub fn line(comparison: &Comparison) -> String {
    let word = word(comparison);
    let deciding = comparison.rows.iter().filter(|row| match word {
        "mixed" => matches!(row.call, Call::Better | Call::Worse),
        word => row.call.name() == word,
    });
    let figure = |row: &Row| {
        let effect = row.effect?;
        let number = |value: f64| match row.scale {
            Scale::Ratio => format!("{} ×", significant(value, 3)),
            Scale::Difference => format!("{:+.2} points", value * 100.0),
        };
        let interval = effect.interval.map(|i| {
            let of = |value: f64| number(value).replace(" ×", "").replace(" points", "");
            match row.scale {
                // Only one end is known.
                Scale::Ratio if i.high.is_infinite() => format!(" (≥ {})", of(i.low)),
                Scale::Ratio if i.low <= 0.0 => format!(" (≤ {})", of(i.high)),
                _ => format!(" ({} … {})", of(i.low), of(i.high)),
            }
        });
        let call = if word == "mixed" { format!(" {}", row.call.name()) } else { String::new() };
        Some(format!("{}{call} {}{}", row.metric.id, number(effect.value), interval.unwrap_or_default()))
    };
    // A figure without a ratio shows the reason.
    let figures: Vec<String> = deciding.filter_map(|row| figure(row).or_else(|| row.note.clone())).collect();
    let figures = match &comparison.why_not {
        _ if !figures.is_empty() => figures.join(", "),
        Some(why) => why.clone(),
        None => "no figure is known in every trial".to_owned(),
    };
    let said = match word {
        "cannot_tell" => "cannot tell".to_owned(),
        "mixed" => format!("{} is better in some figures and worse in others", comparison.other),
        "same" => format!("{} is the same", comparison.other),
        word => format!("{} is {word}", comparison.other),
    };
    let parts = loadlab_report::describe_differing_parts(comparison)
        .map(|parts| format!("; {parts}"))
        .unwrap_or_default();
    format!("Verdict: {said}: {figures}{parts}\n\n")
}
