//! A document on a terminal of a given width, with colour or without.

use std::fmt::Write;

use loadlab_analysis::cases::metric::Value;
use loadlab_record::documents::summary::Verdict;

use super::cases::{line_of, table_of, tables_of};
use super::{HEAT_ROWS, line_figures, plane_lines, ratio_line, shades, thinned, verdict_word};
use crate::document::{
    Along, Block, Cell, Chart, Compare, Document, Drawing, Fact, Multiples, Ratio, Ratios, Remark, Section,
    Table, Weight,
};
use crate::figures;
use crate::plane::Plane;
use crate::terminal::{
    Paint, Tone, bar, cut, cut_apart, hanging, harmless, left, open_bar, right, sparkline, width_of, wrap,
};

/// The document for a terminal of this width in columns.
pub fn text(document: &Document, width: usize, colour: bool) -> String {
    let page = TextPage {
        width: width.clamp(24, 400),
        paint: Paint { colour },
        is_brief: document.is_brief,
        is_omission_reported: std::cell::Cell::new(false),
    };
    let mut out = String::new();
    page.header(&mut out, document);
    for section in &document.sections {
        page.section(&mut out, section);
    }
    out
}

/// Rows of a table that keep their details in the short form.
const DETAILED_IN_BRIEF: usize = 4;
/// Size of a drawing of points.
pub(super) const PLANE_ROWS: usize = 12;
pub(super) const PLANE_COLUMNS: usize = 78;

/// A single table, for a terminal of this width in columns.
pub fn table(table: &Table, width: usize, colour: bool) -> String {
    let mut out = String::new();
    TextPage {
        width: width.clamp(24, 400),
        paint: Paint { colour },
        is_brief: false,
        is_omission_reported: std::cell::Cell::new(false),
    }
    .table(&mut out, table);
    out
}

struct TextPage {
    width: usize,
    paint: Paint,
    is_brief: bool,
    /// Whether omitted columns have been mentioned, which happens only once.
    is_omission_reported: std::cell::Cell<bool>,
}

fn tone_of(weight: Weight) -> Tone {
    match weight {
        Weight::Plain => Tone::Plain,
        Weight::Good => Tone::Good,
        Weight::Doubtful => Tone::Warn,
        Weight::Bad => Tone::Bad,
    }
}

fn tone_of_verdict(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Pass => Tone::Good,
        Verdict::Fail | Verdict::Invalid => Tone::Bad,
        Verdict::Undecided => Tone::Warn,
        Verdict::None => Tone::Faint,
    }
}

impl TextPage {
    fn header(&self, out: &mut String, document: &Document) {
        let mut lines = wrap(&harmless(&document.title), self.width.saturating_sub(12));
        let last = lines.pop().unwrap_or_default();
        for line in lines {
            let _ = writeln!(out, "{}", self.paint.tone(Tone::Strong, &line));
        }
        let verdict = match document.cases.is_empty() {
            true => String::new(),
            false => {
                let tone = tone_of_verdict(document.verdict);
                format!("   {}", self.paint.tone(tone, verdict_word(document.verdict)))
            }
        };
        let _ = writeln!(out, "{}{verdict}", self.paint.tone(Tone::Strong, &last));
        hanging(out, "", &harmless(&document.subtitle), self.width, |t| self.paint.tone(Tone::Faint, t));
        out.push('\n');
        let names = document.answer.iter().map(|f| width_of(&f.name)).max().unwrap_or(0);
        for fact in &document.answer {
            hanging(out, &left(&fact.name, names + 2), &harmless(&fact.text), self.width, |t| t.to_owned());
        }
    }

    fn section(&self, out: &mut String, section: &Section) {
        if section.title.is_empty() {
            section.blocks.iter().for_each(|block| self.block(out, block));
            return;
        }
        let verdict = section.case.map_or(String::new(), |v| format!("  [{}]", verdict_word(v)));
        let title = format!("{}{verdict}", harmless(&section.title));
        let rule = "═".repeat(width_of(&title).min(self.width));
        out.push('\n');
        hanging(out, "", &title, self.width, |t| self.paint.tone(Tone::Strong, t));
        let _ = writeln!(out, "{}", self.paint.tone(Tone::Faint, &rule));
        for block in &section.blocks {
            self.block(out, block);
        }
    }

    fn block(&self, out: &mut String, block: &Block) {
        match block {
            Block::Heading(text) => {
                out.push('\n');
                hanging(out, "", &harmless(text), self.width, |t| self.paint.tone(Tone::Strong, t));
            }
            Block::Paragraph(text) => hanging(out, "", &harmless(text), self.width, |t| t.to_owned()),
            Block::Facts(facts) => self.facts(out, facts),
            Block::Remarks(remarks) => remarks.iter().for_each(|r| self.remark(out, r)),
            Block::Table(table) => self.table(out, table),
            Block::Cases(cases) => {
                let bars = (self.width >= 72).then_some((self.width / 6).min(24));
                self.table(out, &table_of(cases, bars));
            }
            Block::Grids(grids) => tables_of(grids).iter().for_each(|table| self.table(out, table)),
            Block::System(drawings) => self.system(out, drawings),
            Block::Compare(compare) => self.compare(out, compare),
            Block::Ratios(ratios) => self.ratios(out, ratios),
            Block::Plane(plane) => self.plane(out, plane),
            Block::Chart(chart) => self.chart(out, chart),
            Block::Multiples(part) => self.multiples(out, part),
            Block::Flame(flame) => self.table(out, &flame.as_table()),
            // The same cases are in a table or in grids, which text can show.
            Block::Trends(_) => {}
            // A terminal has no folds, and the plan is in the record.
            Block::Folded { title, text } => {
                let line = format!(
                    "{} ({} in the record and the other formats)",
                    harmless(title),
                    figures::plural(text.lines().count() as u64, "line", "lines")
                );
                hanging(out, "", &line, self.width, |t| self.paint.tone(Tone::Faint, t));
            }
        }
    }

    /// Drawings that read the same appear once.
    fn system(&self, out: &mut String, drawings: &[Drawing]) {
        let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
        for drawing in drawings {
            let line = line_of(drawing);
            match lines.iter_mut().find(|(text, _)| *text == line) {
                Some((_, cases)) => cases.push(&drawing.case),
                None => lines.push((line, vec![&drawing.case])),
            }
        }
        out.push('\n');
        let several = lines.len() > 1;
        for (line, cases) in lines {
            let case = if several { format!("{}: ", cases.join(", ")) } else { String::new() };
            hanging(out, "", &format!("{case}{line}"), self.width, |t| t.to_owned());
        }
    }

    fn facts(&self, out: &mut String, facts: &[Fact]) {
        let most = (self.width / 3).max(8);
        let names = facts.iter().map(|f| width_of(&f.name)).max().unwrap_or(0).min(most);
        for fact in facts {
            let name = left(&cut(&harmless(&fact.name), names), names + 2);
            let mut block = String::new();
            hanging(&mut block, &name, &harmless(&fact.text), self.width, |t| t.to_owned());
            let rest = block.strip_prefix(&name).unwrap_or(&block);
            let _ = write!(out, "{}{rest}", self.paint.tone(Tone::Faint, &name));
        }
    }

    fn remark(&self, out: &mut String, remark: &Remark) {
        let label = match remark.label.as_str() {
            "" => "- ".to_owned(),
            label => format!("{}  ", harmless(label)),
        };
        let text = harmless(&remark.text);
        // A long label would leave no room beside it.
        if width_of(&label) * 2 > self.width {
            hanging(out, "", label.trim_end(), self.width, |t| self.paint.tone(tone_of(remark.weight), t));
            hanging(out, "  ", &text, self.width, |t| t.to_owned());
        } else {
            let mut block = String::new();
            hanging(&mut block, &label, &text, self.width, |t| t.to_owned());
            let rest = block.strip_prefix(&label).unwrap_or(&block);
            let _ = write!(out, "{}{rest}", self.paint.tone(tone_of(remark.weight), &label));
        }
        if let Some(hint) = &remark.hint {
            hanging(out, "    ", &harmless(hint), self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    /// As many columns side by side as fit, the rest below, each time with the rows' names.
    fn table(&self, out: &mut String, table: &Table) {
        out.push('\n');
        if !table.caption.is_empty() {
            hanging(out, "", &harmless(&table.caption), self.width, |t| self.paint.tone(Tone::Strong, t));
        }
        let names = self.column(table, 0).min((self.width / 3).max(10));
        let room = self.width - names;
        let mut columns = 1..table.head.len();
        let mut blocks: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut used = usize::MAX;
        for i in columns.by_ref() {
            let width = (self.column(table, i) + 2).min(room);
            if used.saturating_add(width) > room {
                blocks.push(Vec::new());
                used = 0;
            }
            used += width;
            blocks.last_mut().unwrap_or(&mut Vec::new()).push((i, width));
        }
        let left_out = if self.is_brief && blocks.len() > 1 { blocks.split_off(1) } else { Vec::new() };
        for (n, block) in blocks.iter().enumerate() {
            if n > 0 {
                out.push('\n');
            }
            self.table_block(out, table, names, block);
        }
        let heads = left_out.iter().flatten().map(|(i, _)| harmless(&table.head[*i]));
        let heads: Vec<String> = heads.filter(|head| !head.is_empty()).collect();
        if !heads.is_empty() && !self.is_omission_reported.replace(true) {
            let text = format!("no room for {}: `loadlab show --full`", heads.join(", "));
            hanging(out, "", &text, self.width, |t| self.paint.tone(Tone::Faint, t));
        }
        if let Some(note) = &table.note {
            hanging(out, "", &harmless(note), self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    fn table_block(&self, out: &mut String, table: &Table, names: usize, columns: &[(usize, usize)]) {
        let place = |i: usize, text: &str, width: usize| {
            let text = cut(text, width.saturating_sub(2));
            if table.text_columns.contains(&i) {
                format!("  {}", left(&text, width.saturating_sub(2)))
            } else {
                right(&text, width)
            }
        };
        let heads: Vec<String> = columns.iter().map(|(i, _)| harmless(&table.head[*i])).collect();
        let narrowest = columns.iter().map(|(_, width)| width.saturating_sub(2)).min().unwrap_or(0);
        let apart = cut_apart(&heads, narrowest);
        // If each fits its own column, or its beginning distinguishes it from the others, that is used.
        let own: Vec<String> =
            heads.iter().zip(columns).map(|(head, (_, width))| cut(head, width.saturating_sub(2))).collect();
        let is_plain = !(0..own.len()).any(|i| (0..i).any(|k| own[i] == own[k] && heads[i] != heads[k]));
        let head: String = columns
            .iter()
            .zip(heads.iter().zip(&apart))
            .map(|((i, width), (head, short))| place(*i, if is_plain { head } else { short }, *width))
            .collect();
        let line = format!("{}{head}", left(&cut(&harmless(&table.head[0]), names), names));
        let _ = writeln!(out, "{}", self.paint.tone(Tone::Faint, line.trim_end()));
        let all: Vec<String> = table.rows.iter().map(|row| harmless(&row[0].text)).collect();
        for (row, name) in table.rows.iter().zip(&cut_apart(&all, names)) {
            let cell = |(i, width): &(usize, usize)| {
                let text = place(*i, &harmless(&row[*i].text), *width);
                self.paint.tone(tone_of(row[*i].weight), &text)
            };
            let cells: String = columns.iter().map(cell).collect();
            let name = left(name, names);
            let _ = writeln!(out, "{}", format!("{name}{cells}").trim_end());
            let has_room = !self.is_brief || table.rows.len() <= DETAILED_IN_BRIEF;
            if has_room && columns.iter().any(|(i, _)| row[*i].detail.is_some()) {
                let detail =
                    |(i, width): &(usize, usize)| place(*i, row[*i].detail.as_deref().unwrap_or(""), *width);
                let details: String = columns.iter().map(detail).collect();
                let line = format!("{}{details}", " ".repeat(names));
                let _ = writeln!(out, "{}", self.paint.tone(Tone::Faint, line.trim_end()));
            }
        }
    }

    /// Columns that a column of a table needs. The first column's details are left out on a terminal.
    fn column(&self, table: &Table, i: usize) -> usize {
        let cell = |c: &Cell| {
            let detail = c.detail.as_deref().filter(|_| i > 0).map_or(0, width_of);
            width_of(&harmless(&c.text)).max(detail)
        };
        let widest = table.rows.iter().map(|r| cell(&r[i])).max().unwrap_or(0);
        // A long head is cut to the width of the figures, but not beyond recognition.
        widest.max(width_of(&harmless(&table.head[i])).min(18))
    }

    fn compare(&self, out: &mut String, compare: &Compare) {
        out.push('\n');
        hanging(out, "", &harmless(&compare.title), self.width, |t| self.paint.tone(Tone::Strong, t));
        let many = compare.figures.len() > 1;
        let label =
            |name: &str, figure: &str| if many { format!("{name} {figure}") } else { name.to_owned() };
        let mut rows = Vec::new();
        for (name, points) in &compare.rows {
            for (figure, point) in compare.figures.iter().zip(points) {
                rows.push((label(&harmless(name), figure), *point));
            }
        }
        let names = rows.iter().map(|(n, _)| width_of(n)).max().unwrap_or(0).min((self.width / 3).max(10));
        let values: Vec<String> = rows.iter().map(|(_, p)| figures::value(p.median, compare.unit)).collect();
        let value = values.iter().map(|v| width_of(v)).max().unwrap_or(0);
        let columns = self.width.saturating_sub(names + value + 4).min(60);
        let drawn = open_scale(rows.iter().map(|(_, p)| p.drawn()), compare.logarithmic);
        for ((name, point), text) in rows.iter().zip(values) {
            let drawn = self.paint.tone(Tone::Bar, &drawn.bar(point.drawn(), columns));
            // A name that is too long loses the end of its first part, not the figure's name after it.
            let line = format!("{}  {}  {drawn}", left(&cut(name, names), names), right(&text, value));
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    /// Each ratio in words, and in its interval if there is room to see one.
    fn ratios(&self, out: &mut String, ratios: &Ratios) {
        out.push('\n');
        hanging(out, "", &harmless(&ratios.title), self.width, |t| self.paint.tone(Tone::Strong, t));
        let widest = |text: &dyn Fn(&Ratio) -> usize, most: usize| {
            ratios.rows.iter().map(text).max().unwrap_or(0).min(most)
        };
        let names = widest(&|r| width_of(&harmless(&r.name)), (self.width / 3).max(10));
        let calls = widest(&|r| width_of(&harmless(&r.call)), 11);
        let described = widest(&|r| width_of(&r.described()), 40);
        let beside = self.width.saturating_sub(names + calls + described + 6).min(61);
        for row in &ratios.rows {
            let call = self.paint.tone(tone_of(row.weight), &left(&cut(&harmless(&row.call), calls), calls));
            let name = left(&cut(&harmless(&row.name), names), names);
            let line = match beside {
                0..13 => format!(
                    "{name}  {call}  {}",
                    cut(&row.described(), self.width.saturating_sub(names + calls + 4))
                ),
                _ => format!(
                    "{name}  {call}  {}  {}",
                    left(&row.described(), described),
                    ratio_line(ratios, row, beside)
                ),
            };
            let _ = writeln!(out, "{}", line.trim_end());
        }
        if let Some(note) = &ratios.note {
            hanging(out, "", &harmless(note), self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    fn plane(&self, out: &mut String, plane: &Plane) {
        out.push('\n');
        hanging(out, "", &harmless(&plane.title), self.width, |t| self.paint.tone(Tone::Strong, t));
        for line in plane_lines(plane, self.width.min(PLANE_COLUMNS), PLANE_ROWS) {
            let _ = writeln!(out, "{line}");
        }
        if let Some(note) = &plane.note {
            hanging(out, "", &harmless(note), self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }

    fn multiples(&self, out: &mut String, part: &Multiples) {
        out.push('\n');
        hanging(out, "", &harmless(&part.title), self.width, |t| self.paint.tone(Tone::Strong, t));
        let rule = "─".repeat(width_of(&harmless(&part.title)).min(self.width));
        let _ = writeln!(out, "{}", self.paint.tone(Tone::Faint, &rule));
        part.charts.iter().for_each(|chart| self.chart(out, chart));
        if !part.quiet.is_empty() {
            out.push('\n');
            hanging(out, "", &harmless(&part.quiet.join(" ")), self.width, |t| t.to_owned());
        }
    }

    fn chart(&self, out: &mut String, chart: &Chart) {
        // Percentiles are in the tables.
        if chart.along == Along::Nines {
            return;
        }
        out.push('\n');
        hanging(out, "", &harmless(&chart.title), self.width, |t| self.paint.tone(Tone::Strong, t));
        if let Some(heat) = &chart.heat {
            for (edge, line) in shades(heat, self.width.saturating_sub(14).min(60), HEAT_ROWS) {
                let edge = figures::value(Value::Known(edge), chart.unit);
                let line = format!("{}  {}", right(&edge, 10), self.paint.tone(Tone::Bar, line.trim_end()));
                let _ = writeln!(out, "{}", line.trim_end());
            }
        }
        let names = chart.lines.iter().map(|l| width_of(&harmless(&l.name))).max().unwrap_or(0);
        let names = names.min((self.width / 3).max(10));
        let described = |line: &crate::document::Line| {
            let value = |v: f64| figures::value(Value::Known(v), chart.unit);
            line_figures(line).map_or(String::new(), |f| match line.limit {
                true => String::new(),
                false => format!("{} … {}", value(f.min), value(f.max)),
            })
        };
        let tail = chart.lines.iter().map(|l| width_of(&described(l))).max().unwrap_or(0);
        let beside = self.width.saturating_sub(names + tail + 4);
        // If a line of blocks would be a stub, the range goes below it.
        let (below, columns) = if beside < 12 { (true, self.width - names - 2) } else { (false, beside) };
        let columns = columns.min(60);
        for line in &chart.lines {
            // A limit is a single figure, and its name contains it.
            if line.limit {
                hanging(out, "", &harmless(&line.name), self.width, |t| self.paint.tone(Tone::Faint, t));
                continue;
            }
            let name = left(&cut(&harmless(&line.name), names), names);
            let spark = self.paint.tone(Tone::Bar, &sparkline(&thinned(&line.values, columns)));
            if below {
                let _ = writeln!(out, "{name}  {spark}\n{}  {}", " ".repeat(names), described(line));
            } else {
                let _ = writeln!(out, "{name}  {}  {spark}", right(&described(line), tail));
            }
        }
        if let Some(note) = &chart.note {
            hanging(out, "", &harmless(note), self.width, |t| self.paint.tone(Tone::Faint, t));
        }
    }
}

/// Maps values to bars, some of which may be open: only a lower bound is known.
pub(crate) struct OpenScale<F>(F);

/// A scale for values and whether each is open. The largest bar leaves room to appear open if one is.
pub(crate) fn open_scale(
    values: impl Iterator<Item = Option<(f64, bool)>> + Clone,
    logarithmic: bool,
) -> OpenScale<impl Fn(f64) -> f64> {
    let room = if values.clone().flatten().any(|(_, open)| open) { 0.85 } else { 1.0 };
    let scale = scale(values.flatten().map(|(value, _)| value), logarithmic);
    OpenScale(move |value| scale(value) * room)
}

impl<F: Fn(f64) -> f64> OpenScale<F> {
    /// The position of a value, as a share of the whole length.
    pub(crate) fn share(&self, value: f64) -> f64 {
        (self.0)(value)
    }

    /// The bar of a value.
    pub(crate) fn bar(&self, value: Option<(f64, bool)>, columns: usize) -> String {
        match value {
            None => String::new(),
            Some((value, false)) => bar(self.share(value), columns),
            Some((value, true)) => open_bar(self.share(value), columns),
        }
    }
}

/// Maps values to shares of a bar: from zero, or logarithmic from a little below the smallest.
pub(crate) fn scale(values: impl Iterator<Item = f64>, logarithmic: bool) -> impl Fn(f64) -> f64 {
    let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(least, most), v| {
        (if v > 0.0 { least.min(v) } else { least }, most.max(v))
    });
    move |value| {
        if most <= 0.0 || value <= 0.0 {
            return 0.0;
        }
        let floor = least / 2.0;
        if logarithmic && floor > 0.0 && most > floor {
            (value / floor).ln() / (most / floor).ln()
        } else {
            value / most
        }
    }
}
