//! Cases by their figures, and the system, in text formats: as tables, and as a line.

use super::verdict_word;
use crate::document::{CaseTable, Cell, Drawing, Grids, Node, Table, Weight};
use crate::terminal::bar;

/// The cases as a table. With `bars` the first figure has a bar of this many columns beside it.
pub(crate) fn table_of(cases: &CaseTable, bars: Option<usize>) -> Table {
    let bars = bars.filter(|_| cases.figures.first().is_some_and(|f| f.has_bars));
    let verdicts: Vec<&str> = cases.rows.iter().map(|r| verdict_word(r.verdict)).collect();
    let differ = verdicts.iter().any(|v| *v != verdicts[0]);
    let mut head = cases.labels.clone();
    let mut text_columns: Vec<usize> = (1..head.len()).collect();
    if differ {
        text_columns.push(head.len());
        head.push("verdict".to_owned());
    }
    for (i, figure) in cases.figures.iter().enumerate() {
        head.push(figure.name.clone());
        if i == 0 && bars.is_some() {
            text_columns.push(head.len());
            head.push(if figure.is_logarithmic { "(log)" } else { "" }.to_owned());
        }
    }
    text_columns.push(head.len());
    head.push("bottleneck".to_owned());
    let rows = cases.rows.iter().map(|row| {
        let mut cells: Vec<Cell> = row.labels.iter().map(Cell::new).collect();
        if differ {
            cells.push(Cell::new(verdict_word(row.verdict)).with_weight(weight_of(row.verdict)));
        }
        for (i, figure) in row.figures.iter().enumerate() {
            let difference = figure.difference.as_ref().map(|(text, _)| text.clone());
            let detail = match (&figure.range, difference) {
                (Some(range), Some(difference)) => Some(format!("{range}; {difference}")),
                (range, difference) => range.clone().or(difference),
            };
            let weight = figure.difference.as_ref().map_or(Weight::Plain, |(_, weight)| *weight);
            cells.push(Cell { text: figure.text.clone(), detail, weight });
            if let (0, Some(columns)) = (i, bars) {
                cells.push(Cell::new(figure.share.map_or(String::new(), |share| bar(share, columns))));
            }
        }
        cells.push(Cell::new(&row.bottleneck));
        cells
    });
    Table { caption: String::new(), head, text_columns, rows: rows.collect(), note: cases.note.clone() }
}

fn weight_of(verdict: loadlab_record::documents::summary::Verdict) -> Weight {
    use loadlab_record::documents::summary::Verdict;
    match verdict {
        Verdict::Pass => Weight::Good,
        Verdict::Fail | Verdict::Invalid => Weight::Bad,
        Verdict::Undecided => Weight::Doubtful,
        Verdict::None => Weight::Plain,
    }
}

/// A table for each grid: rows and columns are the axes' values.
pub(crate) fn tables_of(grids: &Grids) -> Vec<Table> {
    let one = |grid: &crate::document::Grid| {
        let head = std::iter::once(format!("{} ↓ {} →", grids.down, grids.across));
        let rows = grids.rows.iter().zip(&grid.cells).map(|(name, cells)| {
            let cell = |cell: &Option<crate::document::GridCell>| {
                cell.as_ref().map_or_else(
                    || Cell::new(""),
                    |c| {
                        let weight =
                            if weight_of(c.verdict) == Weight::Bad { Weight::Bad } else { Weight::Plain };
                        Cell { text: c.text.clone(), detail: c.range.clone(), weight }
                    },
                )
            };
            std::iter::once(Cell::new(name)).chain(cells.iter().map(cell)).collect()
        });
        Table {
            caption: if grid.facet.is_empty() {
                grid.figure.clone()
            } else {
                format!("{}, {}", grid.figure, grid.facet)
            },
            head: head.chain(grids.columns.iter().cloned()).collect(),
            text_columns: Vec::new(),
            rows: rows.collect(),
            note: None,
        }
    };
    grids.grids.iter().map(one).collect()
}

/// The system in a line: `loadlab → web ×4 [CPU limit] → db`.
pub(crate) fn line_of(drawing: &Drawing) -> String {
    let node = |n: &Node| {
        let replicas = if n.replicas > 1 { format!(" ×{}", n.replicas) } else { String::new() };
        let note = n.note.as_ref().filter(|_| n.is_bottleneck).map(|note| format!(" [{note}]"));
        format!("{}{replicas}{}", n.name, note.unwrap_or_default())
    };
    let layer = |nodes: &Vec<Node>| nodes.iter().map(node).collect::<Vec<_>>().join(", ");
    drawing.layers.iter().map(layer).collect::<Vec<_>>().join(" → ")
}
