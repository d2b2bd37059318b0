//! A report before it has a format: headings, words, tables and charts, composed once and drawn by every renderer.
//!
//! It holds text and numbers as they are; each renderer escapes for its own format. Nothing in it is markup.

use loadlab_analysis::cases::metric::{Unit, Value};
use loadlab_record::documents::summary::Verdict;

use crate::colour::Colour;
use crate::plane::{Plane, RangedValue};

/// A report.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// When, by what and on what the run was made, in one line.
    pub subtitle: String,
    /// The answer in words: what was tested, what held, how sure.
    pub answer: Vec<Fact>,
    /// The worst verdict of its cases.
    pub verdict: Verdict,
    /// Every case with its verdict, in order; `section` is its section.
    pub cases: Vec<CaseLink>,
    /// Its sections, in order.
    pub sections: Vec<Section>,
    /// Whether it is the short form, for the end of a run on a terminal: tables show only the columns that fit.
    pub is_brief: bool,
}

/// A name and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The name, a word or two.
    pub name: String,
    /// The text.
    pub text: String,
}

impl Fact {
    /// From a name and a text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Fact {
        Fact { name: name.into(), text: text.into() }
    }
}

/// A case in the overview.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseLink {
    /// Its name.
    pub name: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Id of its section.
    pub section: String,
    /// The figures that matter, in one line.
    pub line: String,
}

/// A section.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Name within the document, of letters, digits and dashes.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// The verdict, if the section is about a case.
    pub case: Option<Verdict>,
    /// Whether it is folded away in formats that can fold.
    pub is_folded: bool,
    /// Its contents.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section that is not about a single case, and is open.
    pub fn new(id: &str, title: &str, blocks: Vec<Block>) -> Section {
        Section { id: id.to_owned(), title: title.to_owned(), case: None, is_folded: false, blocks }
    }
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A smaller heading.
    Heading(String),
    /// A paragraph.
    Paragraph(String),
    /// Facts, a line each.
    Facts(Vec<Fact>),
    /// A list of remarks.
    Remarks(Vec<Remark>),
    /// A table.
    Table(Table),
    /// Cases by the figures that matter.
    Cases(CaseTable),
    /// The same cases as grids, if two or more axes vary.
    Grids(Grids),
    /// The system, one drawing per case.
    System(Vec<Drawing>),
    /// Figures of every case side by side, drawn.
    Compare(Compare),
    /// Ratios with their intervals, drawn against what counts as the same.
    Ratios(Ratios),
    /// Points in a plane.
    Plane(Plane),
    /// Figures over time, or over quantiles.
    Chart(Chart),
    /// Figures over time, side by side.
    Multiples(Multiples),
    /// Figures over a numeric axis, side by side, for formats that draw.
    Trends(Trends),
    /// Functions by how often they were sampled.
    Flame(Flame),
    /// Long text that is folded away in formats that can fold.
    Folded {
        /// What the text is.
        title: String,
        /// The text as it is.
        text: String,
    },
}

/// The significance of a remark or a cell. Meaning never depends on colour alone: a mark or a word goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Neutral.
    Plain,
    /// Holds.
    Good,
    /// Doubtful.
    Doubtful,
    /// Failed, invalid, missing.
    Bad,
}

/// A remark: a short label, what was seen, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Its significance.
    pub weight: Weight,
    /// A word or two in front: `INVALID late`, `holds`.
    pub label: String,
    /// What was seen.
    pub text: String,
    /// What to do about it, or what was received, on a separate line.
    pub hint: Option<String>,
}

/// A table. The first column names the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Heads, the first column's included.
    pub head: Vec<String>,
    /// Columns that hold words and are left-aligned, by index; all others but the first hold figures.
    pub text_columns: Vec<usize>,
    /// Rows, each as long as the head.
    pub rows: Vec<Vec<Cell>>,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The figure.
    pub text: String,
    /// Its spread over trials, in smaller type.
    pub detail: Option<String>,
    /// Its significance.
    pub weight: Weight,
}

impl Cell {
    /// A plain cell.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), detail: None, weight: Weight::Plain }
    }

    /// The cell with this weight.
    pub fn with_weight(self, weight: Weight) -> Cell {
        Cell { weight, ..self }
    }
}

/// Figures of every case side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct Compare {
    /// What it shows.
    pub title: String,
    /// Unit of all figures.
    pub unit: Unit,
    /// Names of the figures of a row.
    pub figures: Vec<String>,
    /// For each case its name and its figures.
    pub rows: Vec<(String, Vec<Point>)>,
    /// Whether it is drawn on a logarithmic scale.
    pub logarithmic: bool,
}

/// Ratios of one thing to another, one row each.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// What is compared with what.
    pub title: String,
    /// A ratio within this of 1 counts as the same: 0.02 is two per cent.
    pub equivalence_margin: f64,
    /// Its rows.
    pub rows: Vec<Ratio>,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// A ratio and what it means.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// The name of the figure.
    pub name: String,
    /// `better`, `worse`, `same`, `cannot tell`.
    pub call: String,
    /// The weight of that verdict.
    pub weight: Weight,
    /// The ratio with the ends of its interval, all above zero; `None` if there is none.
    pub value: Option<RangedValue>,
    /// Shown instead of a ratio, if the difference is not a ratio.
    pub instead: Option<String>,
}

impl Ratios {
    /// The position of a ratio between the left (0) and the right end (1) of the drawing: logarithmic, 1 in the
    /// middle. Anything more than ten times away is at the end.
    pub fn place(&self, ratio: f64) -> f64 {
        ((ratio.max(f64::MIN_POSITIVE).ln() / self.reach()).clamp(-1.0, 1.0) + 1.0) / 2.0
    }

    /// The ends of what counts as the same, as in the verdicts: equally far from 1 on either side, not
    /// logarithmically.
    pub fn same(&self) -> (f64, f64) {
        (1.0 - self.equivalence_margin, 1.0 + self.equivalence_margin)
    }

    /// The logarithm at the right end.
    fn reach(&self) -> f64 {
        let ends = self.rows.iter().filter_map(|r| r.value).flat_map(|v| [v.low, v.high]);
        let far = ends.filter(|v| *v > 0.0).map(|v| v.ln().abs()).fold(0.0, f64::max);
        (far * 1.05).clamp((1.0 + 3.0 * self.equivalence_margin).ln().max(0.01), 10f64.ln())
    }

    /// Ratios worth a label: 1, and a round one on either side as far out as there is room.
    pub fn ticks(&self) -> [f64; 3] {
        let round = [10.0, 5.0, 3.0, 2.0, 1.5, 1.25, 1.1, 1.05, 1.02, 1.01];
        let most = round.into_iter().find(|r: &f64| r.ln() <= self.reach() * 0.93).unwrap_or(1.01);
        [1.0 / most, 1.0, most]
    }
}

impl Ratio {
    /// `1.10 × (1.02 … 1.19)`, or the placeholder.
    pub fn described(&self) -> String {
        let number = |v: f64| crate::figures::number(crate::figures::round(v, 3));
        let nothing = || self.instead.clone().unwrap_or(crate::figures::NOTHING.to_owned());
        self.value.map_or_else(nothing, |v| {
            format!("{} × ({} … {})", number(v.value), number(v.low), number(v.high))
        })
    }
}

/// A figure of a case: its median and the range over trials; `None` if unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Median.
    pub median: Value,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Value,
}

impl Point {
    /// Where its median is drawn, and whether it is open: at its value, or at its lower bound and open from there.
    pub fn drawn(&self) -> Option<(f64, bool)> {
        match self.median {
            Value::Known(v) => Some((v, false)),
            Value::Over(v) => Some((v, true)),
            Value::Between(few) if few.is_unknown() => None,
            Value::Between(few) => Some((few.likely(), few.estimate.value.is_none())),
            Value::Nothing => None,
        }
    }
}

/// Figures over the seconds of a trial, or over quantiles.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Name within the document, of letters, digits and dashes.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Charts of one trial share a cursor.
    pub group: String,
    /// What the horizontal axis shows.
    pub along: Along,
    /// Unit of the values.
    pub unit: Unit,
    /// Whether it is drawn on a logarithmic scale.
    pub logarithmic: bool,
    /// Where the axis begins and ends; by default the first and the last value of its group.
    pub span: Option<(f64, f64)>,
    /// The positions of the values, ascending, as [`Chart::along`] defines.
    pub at: Vec<f64>,
    /// Lines, each with a value per position.
    pub lines: Vec<Line>,
    /// How values are distributed: a column for each position.
    pub heat: Option<Heat>,
    /// Moments worth marking.
    pub marks: Vec<Mark>,
    /// Moments at which the plan changes the load: stages, and loads that begin later. The part before `:` is the
    /// label.
    pub turns: Vec<Mark>,
    /// Stretches of time worth marking.
    pub bands: Vec<Band>,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// Charts of one part of a system, as small multiples: all with the same time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Multiples {
    /// Which part: `Load`, `Other components`.
    pub title: String,
    /// In reading order.
    pub charts: Vec<Chart>,
    /// Would-be charts without information, a sentence each: `Throttled: never.`
    pub quiet: Vec<String>,
}

/// The figures that matter over a numeric axis. Text formats leave it out: the cases are in a table or in grids.
#[derive(Clone, Debug, PartialEq)]
pub struct Trends {
    /// The axis: `Over payload`.
    pub title: String,
    /// A drawing for each figure, and for each combination of further axes.
    pub planes: Vec<Plane>,
    /// What a reader must know about them.
    pub note: Option<String>,
}

/// What the horizontal axis of a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Seconds on the trial's clock.
    Seconds,
    /// Nines of a quantile, -log10(1 - q): 0 is the smallest, 1 is p90, 2 is p99, 3 is p99.9.
    Nines,
}

/// How values are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// Edges of the rows in the chart's unit, ascending, one more than there are rows.
    pub edges: Vec<f64>,
    /// For each position of the chart, how many values fell into each row.
    pub columns: Vec<Vec<u64>>,
}

impl Heat {
    /// The largest number of values in one row of one column.
    pub fn most(&self) -> u64 {
        self.columns.iter().flatten().copied().max().unwrap_or(0)
    }

    /// How strongly a number of values is shown, in 0..=1: logarithmic, so that a few slow ones are visible beside
    /// thousands of fast ones. Anything above zero shows.
    pub fn strength(count: u64, most: u64) -> f64 {
        match (count, most) {
            (0, _) | (_, 0) => 0.0,
            _ => 0.12 + 0.88 * (count as f64).ln_1p() / (most as f64).ln_1p(),
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// A value for each position; `None` if nothing was read.
    pub values: Vec<Option<f64>>,
    /// Its colour.
    pub colour: Colour,
    /// Whether it is a limit: dashed, and not a measurement.
    pub limit: bool,
    /// Components it is about; empty for the load.
    pub of: Vec<String>,
}

/// A moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Seconds on the trial's clock.
    pub at_s: f64,
    /// What happened.
    pub text: String,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Start, seconds on the trial's clock.
    pub from_s: f64,
    /// End, seconds on the trial's clock.
    pub to_s: f64,
    /// What it is: `warm-up`, `pause`, `drain`.
    pub text: String,
}

/// A flame graph: functions by how often they were sampled, each above its caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Flame {
    /// Name within the document, of letters, digits and dashes.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What its samples are.
    pub unit: FlameUnit,
    /// Names of functions; nodes refer to them by index.
    pub names: Vec<String>,
    /// The tree in preorder: each node is followed by what it calls; the first is the whole, with depth 0.
    pub nodes: Vec<FlameNode>,
    /// The functions with most samples as a table, for formats that cannot draw the graph.
    pub hottest: Table,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// What the samples of a flame graph are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlameUnit {
    /// Samples.
    #[default]
    Samples,
    /// Microseconds of waiting.
    Waits,
}

/// A function as called from those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameNode {
    /// Number of callers below it.
    pub depth: u32,
    /// Index of its name.
    pub name: u32,
    /// Samples in it and in what it calls.
    pub samples: u64,
    /// Samples in the run that this one is compared with, out of that run's total, which the first node has; `None` if
    /// nothing is compared.
    pub before: Option<u64>,
}

impl Flame {
    /// For formats that cannot draw it: its hottest functions under its title, with all that a reader must know.
    pub fn as_table(&self) -> Table {
        let notes: Vec<&str> = self.hottest.note.iter().chain(&self.note).map(String::as_str).collect();
        let note = (!notes.is_empty()).then(|| notes.join(" "));
        Table { caption: self.title.clone(), note, ..self.hottest.clone() }
    }
}

/// Cases side by side: one row per case, a column for each figure that matters.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseTable {
    /// Heads of the columns that distinguish cases.
    pub labels: Vec<String>,
    /// Heads of the figures.
    pub figures: Vec<FigureHead>,
    /// One per case, in order.
    pub rows: Vec<CaseRow>,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// A figure's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureHead {
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Whether its bars are on a logarithmic scale.
    pub is_logarithmic: bool,
    /// Whether it has bars.
    pub has_bars: bool,
}

/// A case in its table.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseRow {
    /// One for each label column of the table.
    pub labels: Vec<String>,
    /// Id of its section.
    pub section: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// Whether the others are compared with it.
    pub is_base: bool,
    /// One for each figure of the table.
    pub figures: Vec<FigureCell>,
    /// What held it back, in a few words.
    pub bottleneck: String,
}

/// A figure of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct FigureCell {
    /// The median.
    pub text: String,
    /// Smallest … largest.
    pub range: Option<String>,
    /// Length of its bar, 0 to 1.
    pub share: Option<f64>,
    /// Whether the median is only a lower bound.
    pub is_open: bool,
    /// How it differs from the base, and the weight of that.
    pub difference: Option<(String, Weight)>,
}

/// Cases of two axes: one grid for each figure that matters, and for each combination of further axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Grids {
    /// The axis that runs down.
    pub down: String,
    /// The axis that runs across.
    pub across: String,
    /// Values of the axis that runs down.
    pub rows: Vec<String>,
    /// Values of the axis that runs across, from left to right.
    pub columns: Vec<String>,
    /// One per figure and facet, in the order of the figures.
    pub grids: Vec<Grid>,
}

/// A figure over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The figure.
    pub figure: String,
    /// Values of the facet axes; empty if there are no others.
    pub facet: String,
    /// By row and column; `None` if there is no such case.
    pub cells: Vec<Vec<Option<GridCell>>>,
}

/// A case in a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct GridCell {
    /// The median.
    pub text: String,
    /// Smallest … largest.
    pub range: Option<String>,
    /// Its share of the maximum, 0 to 1.
    pub share: Option<f64>,
    /// Id of its section.
    pub section: String,
    /// Its verdict.
    pub verdict: Verdict,
}

/// The system under test in one case: who calls whom, and how much each uses of its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// The case.
    pub case: String,
    /// In the order of the request's path: each layer is called by those before it.
    pub layers: Vec<Vec<Node>>,
    /// Who calls whom, by names of nodes.
    pub edges: Vec<Edge>,
}

/// A component, or replicas of one, or loadlab.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name; for replicas the common part of their names.
    pub name: String,
    /// How many it represents.
    pub replicas: usize,
    /// CPU and memory, with limits if there are any.
    pub gauges: Vec<Gauge>,
    /// In a few words: what the load is, or why it is the bottleneck.
    pub note: Option<String>,
    /// Whether it held the case back.
    pub is_bottleneck: bool,
}

/// How much of something is used.
#[derive(Clone, Debug, PartialEq)]
pub struct Gauge {
    /// What is used: `CPU`, `memory`.
    pub name: String,
    /// In words: `78 % of 100 %`.
    pub text: String,
    /// Share of its limit, or of the most that any component uses, 0 to 1.
    pub share: f64,
}

/// A caller and the component it calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Name of the caller's node.
    pub from: String,
    /// Name of the called node.
    pub to: String,
    /// `9.8 waiting of 10 connections`; empty if unknown.
    pub text: String,
    /// Whether it held the case back.
    pub is_bottleneck: bool,
}
