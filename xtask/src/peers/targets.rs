//! What loadlab is held to, beside what was measured. A target that is missed is shown, never left out.

use std::fmt::Write;

use super::Figures;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Requests per CPU-second of the generator; where all bodies have one length, bytes per CPU-second as well.
    PerCpu,
    /// Requests per second.
    Rate,
    /// Median latency, milliseconds.
    P50,
    /// Most resident memory, bytes.
    Peak,
}

impl Figure {
    /// It, as far as a run has it.
    pub fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Figure::PerCpu => Some(figures.reported.requests / figures.used.cpu_s),
            Figure::Rate => Some(figures.reported.rate_per_s),
            Figure::P50 => figures.reported.p50.ms(),
            Figure::Peak => Some(figures.used.peak_bytes as f64),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Figure::PerCpu => "work per CPU-second",
            Figure::Rate => "throughput",
            Figure::P50 => "p50",
            Figure::Peak => "peak memory",
        }
    }
}

/// How far a ratio may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
}

impl Bound {
    /// Whether a value keeps it.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        }
    }

    fn words(self) -> String {
        match self {
            Bound::AtLeast(least) => format!("≥ {least}"),
            Bound::AtMost(most) => format!("≤ {most}"),
        }
    }
}

/// A ratio that is to be reached.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Of this tool …
    pub of: &'static str,
    /// … this figure …
    pub figure: Figure,
    /// … divided by that of the other …
    pub against: &'static str,
    /// … keeps this.
    pub bound: Bound,
}

/// A target beside what was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Of which row.
    pub case: String,
    /// What is compared.
    pub what: String,
    /// What is to be reached.
    pub target: String,
    /// What was; nothing if it was not measured.
    pub measured: Option<String>,
    /// Whether that will do.
    pub reached: bool,
}

impl Check {
    /// Of a ratio.
    pub fn of_ratio(case: &str, target: &Target, ratio: Option<f64>) -> Check {
        Check {
            case: case.to_owned(),
            what: format!("{}, {}", target.of, target.figure.words()),
            target: format!("{} × {}", target.bound.words(), target.against),
            measured: ratio.map(|r| format!("{r:.3}")),
            reached: ratio.is_some_and(|r| target.bound.holds(r)),
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.reached, &self.measured) {
            (true, _) => "reached",
            (false, Some(_)) => "**MISSED**",
            (false, None) => "**not measured**",
        }
    }
}

/// All of them as a table in Markdown.
pub fn table(checks: &[Check]) -> String {
    let mut out = String::from("| case | what | target | measured | |\n|---|---|---|---:|---|\n");
    for check in checks {
        let measured = check.measured.as_deref().unwrap_or("–");
        let (case, what, target) = (&check.case, &check.what, &check.target);
        let _ = writeln!(out, "| {case} | {what} | {target} | {measured} | {} |", check.verdict());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_their_edge_and_a_miss_is_loud() {
        let target =
            Target { of: "loadlab", figure: Figure::PerCpu, against: "wrk", bound: Bound::AtLeast(1.12) };
        let checks = [
            Check::of_ratio("GET", &target, Some(1.12)),
            Check::of_ratio("GET", &target, Some(1.1)),
            Check::of_ratio(
                "GET",
                &Target { bound: Bound::AtMost(1.05), figure: Figure::P50, ..target },
                None,
            ),
        ];
        assert_eq!(
            table(&checks),
            "| case | what | target | measured | |\n|---|---|---|---:|---|\n\
             | GET | loadlab, work per CPU-second | ≥ 1.12 × wrk | 1.120 | reached |\n\
             | GET | loadlab, work per CPU-second | ≥ 1.12 × wrk | 1.100 | **MISSED** |\n\
             | GET | loadlab, p50 | ≤ 1.05 × wrk | – | **not measured** |\n"
        );
    }
}
