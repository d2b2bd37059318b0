//! Would-be charts without information: lines that do not move, or by no more than noise. A sentence reports them in
//! less space.

use loadlab_analysis::cases::metric::{Unit, Value};

use crate::document::Line;
use crate::figures;

/// A line that varies by no more than this share of its largest value counts as constant: in a chart that begins at
/// zero its movement would be invisible.
const NOISE: f64 = 0.04;
/// CPU below this much of one core, in per cent, is what an idle process uses.
const IDLE_PERCENT: f64 = 1.0;
/// More of a limit than this is not idle, however small the limit is.
const IDLE_OF_LIMIT: f64 = 0.1;
/// Bytes per second below this are housekeeping.
const IDLE_BYTES_PER_S: f64 = 1024.0;
/// The most names in a sentence.
const NAMES: usize = 6;

/// A chart's name in a sentence, and the text if all of it is zero.
#[derive(Clone, Copy)]
pub(super) struct QuietText {
    pub(super) name: &'static str,
    pub(super) zero: &'static str,
}

/// Separates lines worth a chart from those reported in a sentence. A line that is constant but not zero stays if
/// another one moves, for comparison. `limit_of` is in the unit of the lines.
pub(super) fn parted(
    lines: Vec<Line>,
    unit: Unit,
    text: QuietText,
    limit_of: impl Fn(&Line) -> Option<f64>,
) -> (Vec<Line>, Option<String>) {
    let lines: Vec<Line> = lines.into_iter().filter(|l| range(l).is_some()).collect();
    if lines.iter().all(|l| is_still(l, unit, limit_of(l))) {
        return (Vec::new(), all_still(&lines, unit, text, &limit_of));
    }
    let (idle, moving): (Vec<Line>, Vec<Line>) =
        lines.into_iter().partition(|l| is_idle(l, unit, limit_of(l)));
    let level = bound(unit).unwrap_or_else(|| text.zero.to_owned());
    let sentence = (!idle.is_empty())
        .then(|| format!("{} {level}: {}.", text.name, names(idle.iter().map(|l| l.name.clone()))));
    (moving, sentence)
}

fn range(line: &Line) -> Option<(f64, f64)> {
    let mut known = line.values.iter().flatten().copied();
    let first = known.next()?;
    Some(known.fold((first, first), |(least, most), v| (least.min(v), most.max(v))))
}

fn is_zero(line: &Line) -> bool {
    range(line).is_some_and(|r| r == (0.0, 0.0))
}

/// Whether a line is next to nothing, without a shape worth drawing.
fn is_idle(line: &Line, unit: Unit, limit: Option<f64>) -> bool {
    let Some((_, most)) = range(line) else { return true };
    match unit {
        Unit::CpuPercent => most < IDLE_PERCENT && limit.is_none_or(|l| most < l * IDLE_OF_LIMIT),
        Unit::BytesPerS => most < IDLE_BYTES_PER_S,
        _ => is_zero(line),
    }
}

fn is_still(line: &Line, unit: Unit, limit: Option<f64>) -> bool {
    let Some((least, most)) = range(line) else { return true };
    is_idle(line, unit, limit) || most - least <= NOISE * most.abs()
}

/// What counts as idle, in words.
fn bound(unit: Unit) -> Option<String> {
    match unit {
        Unit::CpuPercent => Some(format!("below {IDLE_PERCENT} %")),
        Unit::BytesPerS => Some("below 1 KiB/s".to_owned()),
        _ => None,
    }
}

fn all_still(
    lines: &[Line],
    unit: Unit,
    QuietText { name, zero }: QuietText,
    limit_of: &dyn Fn(&Line) -> Option<f64>,
) -> Option<String> {
    if lines.is_empty() {
        return None;
    }
    if lines.iter().all(is_zero) {
        return Some(format!("{name}: {zero}."));
    }
    if let (true, Some(bound)) = (lines.iter().all(|l| is_idle(l, unit, limit_of(l))), bound(unit)) {
        return Some(format!("{name}: {bound} throughout."));
    }
    let level = |line: &Line| {
        let (least, most) = range(line)?;
        let level = between(least, most, unit);
        let limit = limit_of(line).map(|l| format!(" of {}", figures::value(Value::Known(l), unit)));
        Some(format!("{level}{}", limit.unwrap_or_default()))
    };
    match lines {
        [line] => Some(format!("{name}: {} throughout.", level(line)?)),
        few if few.len() <= NAMES => {
            let each = few.iter().filter_map(|l| Some(format!("{} {}", l.name, level(l)?)));
            Some(format!("{name} throughout: {}.", each.collect::<Vec<_>>().join(", ")))
        }
        many => {
            let ranges = || many.iter().filter_map(range);
            let least = ranges().map(|(least, _)| least).fold(f64::INFINITY, f64::min);
            let most = ranges().map(|(_, most)| most).fold(0.0, f64::max);
            let all = between(least, most, unit);
            Some(format!("{name}: constant in each of {} components, {all}.", many.len()))
        }
    }
}

fn between(least: f64, most: f64, unit: Unit) -> String {
    let most_text = figures::value(Value::Known(most), unit);
    figures::range(Some(least), Value::Known(most), unit).unwrap_or(most_text)
}

/// Some names, and the number of the others.
fn names(all: impl ExactSizeIterator<Item = String>) -> String {
    let others = all.len().saturating_sub(NAMES);
    let mut shown: Vec<String> = all.take(NAMES).collect();
    if others > 0 {
        shown.push(format!("{others} more"));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::Colour;

    fn line(name: &str, values: &[f64]) -> Line {
        let values = values.iter().map(|v| Some(*v)).collect();
        Line { name: name.into(), values, colour: Colour::Nth(0), limit: false, of: vec![name.into()] }
    }

    const CPU: QuietText = QuietText { name: "CPU", zero: "none" };

    fn check(lines: &[Line], unit: Unit, limit: Option<f64>, drawn: &[&str], said: Option<&str>) {
        let (left, sentence) = parted(lines.to_vec(), unit, CPU, |_| limit);
        assert_eq!(left.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), drawn);
        assert_eq!(sentence.as_deref(), said);
    }

    #[test]
    fn what_does_not_move_is_a_sentence() {
        let (zero, idle) = (line("a", &[0.0, 0.0]), line("b", &[0.2, 0.9]));
        let (flat, busy) = (line("c", &[50.0, 50.5]), line("d", &[10.0, 60.0]));
        let one = std::slice::from_ref;
        check(&[], Unit::CpuPercent, None, &[], None);
        check(one(&zero), Unit::CpuPercent, None, &[], Some("CPU: none."));
        check(one(&idle), Unit::CpuPercent, None, &[], Some("CPU: below 1 % throughout."));
        check(one(&flat), Unit::CpuPercent, None, &[], Some("CPU: 50.0 … 50.5 % throughout."));
        check(one(&busy), Unit::CpuPercent, None, &["d"], None);
        let both = [flat.clone(), line("e", &[7.0, 7.0])];
        check(&both, Unit::Count, None, &[], Some("CPU throughout: c 50 … 51, e 7."));
        check(
            &[zero, idle.clone(), flat, busy],
            Unit::CpuPercent,
            None,
            &["c", "d"],
            Some("CPU below 1 %: a, b."),
        );
        // what is zero and left out of a chart is named; what is negative is not zero
        let both = [line("a", &[0.0, 0.0]), line("b", &[1.0, 9.0])];
        check(&both, Unit::Number, None, &["b"], Some("CPU none: a."));
        check(
            &[line("a", &[0.0, 0.0]), line("b", &[10.0, 9e9])],
            Unit::BytesPerS,
            None,
            &["b"],
            Some("CPU below 1 KiB/s: a."),
        );
        check(&[line("a", &[-9.0, 0.0])], Unit::Number, None, &["a"], None);
        // one per cent of a core is this component's whole limit
        check(one(&idle), Unit::CpuPercent, Some(1.0), &["b"], None);
        check(&[line("a", &[f64::MAX, 1.0])], Unit::Bytes, None, &["a"], None);
    }

    #[test]
    fn many_components_are_counted() {
        let many: Vec<Line> =
            (0..60).map(|i| line(&format!("shard-{i}"), &[f64::from(i) + 1.0; 3])).collect();
        check(&many, Unit::Count, None, &[], Some("CPU: constant in each of 60 components, 1 … 60."));
    }
}
