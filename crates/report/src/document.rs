//! A report before it has a form: headings, words, tables and charts, composed once and drawn by every
//! renderer.
//!
//! It holds text and numbers as they are; each renderer escapes for its own form. Nothing in it is markup.

use loadlab_analysis::metric::Unit;
use loadlab_record::summary::Verdict;

/// A report.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its title.
    pub title: String,
    /// When, by what, on what, in one line.
    pub subtitle: String,
    /// The answer in words: what was tested, what held, how sure.
    pub answer: Vec<Fact>,
    /// The worst verdict of its cases.
    pub verdict: Verdict,
    /// Every case with its verdict, in order; `section` is where it is told.
    pub cases: Vec<CaseLink>,
    /// Its sections, in order.
    pub sections: Vec<Section>,
}

impl Document {
    /// What fits at the end of a run on a terminal: the answer, the cases side by side, the doubts. With a single
    /// case its own section stays; how it was made is in the other forms.
    pub fn brief(mut self) -> Document {
        let one = self.cases.len() == 1;
        self.sections.retain(|s| s.id != "made" && (one || s.case.is_none()));
        self
    }
}

/// A word and what there is to say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The word.
    pub name: String,
    /// What there is to say.
    pub text: String,
}

impl Fact {
    /// From a word and a text.
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
    /// Its headline figures in a line.
    pub line: String,
}

/// A section.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Name within the document, of letters, digits and dashes.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// Set for the section of a case: its verdict.
    pub case: Option<Verdict>,
    /// What it holds.
    pub blocks: Vec<Block>,
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
    /// Figures of every case side by side, drawn.
    Compare(Compare),
    /// Figures over time.
    Chart(Chart),
    /// Long text that is folded away where a form can fold.
    Folded {
        /// What it is.
        title: String,
        /// The text as it is.
        text: String,
    },
}

/// How a remark or a cell is to be taken. Meaning never rests on colour: a mark or a word goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// As it is.
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
    /// How to take it.
    pub weight: Weight,
    /// A word or two in front: `INVALID late`, `holds`.
    pub label: String,
    /// What was seen.
    pub text: String,
    /// What to do about it, or what was received, in a line of its own.
    pub hint: Option<String>,
}

/// A table. The first column names the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Heads, the first column's included.
    pub head: Vec<String>,
    /// Columns that hold words and are read from the left, by index; all others but the first hold figures.
    pub words: Vec<usize>,
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
    /// Its spread over trials, smaller.
    pub detail: Option<String>,
    /// How to take it.
    pub weight: Weight,
}

impl Cell {
    /// A plain cell.
    pub fn new(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), detail: None, weight: Weight::Plain }
    }

    /// The cell, to be taken so.
    pub fn weighing(self, weight: Weight) -> Cell {
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
    /// Case and its figures.
    pub rows: Vec<(String, Vec<Point>)>,
    /// Drawn on a logarithmic scale.
    pub logarithmic: bool,
}

/// A figure of a case: its median and the range over trials; `None` where it cannot be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Median.
    pub median: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// Figures over the seconds of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Name within the document, of letters, digits and dashes.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Charts of one trial share a cursor.
    pub group: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Drawn on a logarithmic scale.
    pub logarithmic: bool,
    /// Seconds on the trial's clock, ascending.
    pub at_s: Vec<f64>,
    /// Lines, each with a value per moment.
    pub lines: Vec<Line>,
    /// Moments worth marking.
    pub marks: Vec<Mark>,
    /// Moments at which the plan changes the load: stages, and loads that begin later. Up to a `:` is what they are called.
    pub turns: Vec<Mark>,
    /// Stretches of time worth marking.
    pub bands: Vec<Band>,
    /// What a reader must know about it.
    pub note: Option<String>,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// A value for each moment; `None` where nothing was read.
    pub values: Vec<Option<f64>>,
    /// Index into the palette.
    pub colour: usize,
    /// A limit: dashed, and not a measurement.
    pub limit: bool,
}

/// A moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// When.
    pub at_s: f64,
    /// What happened.
    pub text: String,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Start.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
    /// What it is: `warm-up`, `pause`, `drain`.
    pub text: String,
}
