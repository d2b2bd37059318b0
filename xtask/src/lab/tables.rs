//! Tables of a Markdown report, read as a person does: by heading and row, with the amount that a cell shows.

/// How far a cell may differ from the record: this share of its last digit, or, if that digit is left of the point, the
/// other share of the value, since numbers have at most four digits.
const ROUNDED: f64 = 0.55;
const FOUR_DIGITS: f64 = 0.0006;

/// A table.
pub struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// All tables of a report.
    pub fn all(markdown: &str) -> Vec<Table> {
        let mut tables = Vec::new();
        let mut lines = markdown.lines();
        while let Some(line) = lines.by_ref().find(|line| line.starts_with("| ")) {
            let rows = lines.by_ref().take_while(|line| line.starts_with('|')).skip(1).map(cells).collect();
            tables.push(Table { heading: cells(line), rows });
        }
        tables
    }

    /// The first table after this text.
    pub fn after(markdown: &str, text: &str) -> Option<Table> {
        let (_, rest) = markdown.split_once(text)?;
        Table::all(rest).into_iter().next()
    }

    /// The first cell of each row.
    pub fn names(&self) -> Vec<&str> {
        self.rows.iter().filter_map(|row| Some(row.first()?.as_str())).collect()
    }

    /// The cell below this heading, in the row whose first cell is `row`.
    pub fn cell(&self, row: &str, heading: &str) -> Option<&str> {
        let column = self.heading.iter().position(|name| name == heading)?;
        let row = self.rows.iter().find(|cells| cells.first().is_some_and(|name| name == row))?;
        row.get(column).map(String::as_str)
    }
}

/// A line's cells as displayed, without Markdown markup.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|').replace("**", "");
    let shown = |cell: &str| cell.trim().replace("&lt;", "<").replace("&gt;", ">").replace('\\', "");
    inner.split(" |").map(shown).collect()
}

/// The amount that a cell shows: in milliseconds, in bytes, or unscaled (`2,053/s`, `36.7 %`, `12`); and the value of
/// one unit in its last digit. `None` if it shows no amount.
fn amount(cell: &str) -> Option<(f64, f64)> {
    let cell = cell.trim_start_matches(['~', '>', '≥', ' ']);
    let ends = cell.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).unwrap_or(cell.len());
    let (digits, rest) = cell.split_at(ends);
    let number: f64 = digits.replace(',', "").parse().ok()?;
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let unit = rest.split('(').next().unwrap_or_default().trim();
    if unit.starts_with(['m', 'h']) && unit != "ms" {
        return Some((1e3 * seconds(cell.split(' ').next()?)?, 1e3));
    }
    let unit = scale(unit)?;
    Some((number * unit, unit / 10_f64.powi(decimals as i32)))
}

/// The seconds in a time such as `1h02m03s`.
fn seconds(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    for part in text.split_inclusive(['h', 'm', 's']) {
        let unit = match part.chars().last()? {
            'h' => 3600.0,
            'm' => 60.0,
            _ => 1.0,
        };
        seconds += unit * part.trim_end_matches(['h', 'm', 's']).parse::<f64>().ok()?;
    }
    Some(seconds)
}

/// The value of one unit; `None` if the unit is not known.
fn scale(unit: &str) -> Option<f64> {
    let base = unit.strip_suffix("/s").unwrap_or(unit);
    Some(match base {
        "ns" => 1e-6,
        "µs" => 1e-3,
        "s" => 1e3,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "" | "ms" | "B" | "%" => 1.0,
        _ => return None,
    })
}

/// Whether a cell shows a value, to the digits it has.
pub fn shows(cell: Option<&str>, value: f64) -> bool {
    if let Some(least) = cell.and_then(|cell| cell.strip_prefix("< ")) {
        return amount(least).is_some_and(|(least, _)| (0.0..least).contains(&value));
    }
    let close = |(shown, digit): (f64, f64)| {
        (shown - value).abs() <= (ROUNDED * digit).max(FOUR_DIGITS * value.abs())
    };
    cell.and_then(amount).is_some_and(close)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_row_and_heading() {
        let text = "**First**\n\n| case | p99 |\n|---|---:|\n| a | **3** |\n| b &lt; c | \\~4.5 ms (2…≥7) |\n\ntext\n\n| x |\n|---|\n| 1 |\n";
        let tables = Table::all(text);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].cell("a", "p99"), Some("3"));
        assert!(shows(tables[0].cell("b < c", "p99"), 4.5));
        assert!(tables[0].cell("c", "p99").is_none() && tables[0].cell("a", "p50").is_none());
        assert_eq!(Table::after(text, "text").map(|table| table.rows.len()), Some(1));
        assert!(Table::after(text, "nowhere").is_none());
    }

    #[test]
    fn amounts_have_one_unit() {
        for (cell, value) in [
            ("2,053/s", 2053.0),
            ("36.7 %", 36.7),
            ("688 µs", 0.688),
            ("~894 ms (701…1.35 s)", 894.0),
            ("1.35 s (923 ms…≥1.35)", 1350.0),
            ("1.29 MiB/s", 1.29 * 1024.0 * 1024.0),
            ("1,586", 1586.0),
            ("0 B", 0.0),
            ("830 ns", 0.00083),
            ("1m05s", 65e3),
            ("> 1h02m03s", 3_723e3),
        ] {
            let (is, _) = amount(cell).unwrap_or_else(|| panic!("{cell}"));
            assert!((is - value).abs() < 1e-9 * value.max(1.0), "{cell}: {is}");
        }
        for none in ["–", "", "server · one core", "3 apples"] {
            assert_eq!(amount(none), None, "{none}");
        }
        assert!(shows(Some("1.00 s"), 1004.0) && !shows(Some("1.00 s"), 1010.0) && !shows(Some("–"), 0.0));
        assert!(shows(Some("12,350/s"), 12_345.6) && !shows(Some("12,350/s"), 12_300.0));
        assert!(shows(Some("< 0.01 %"), 0.004) && !shows(Some("< 0.01 %"), 0.01));
        assert!(shows(Some("0.25 %"), 0.2477) && !shows(Some("0.25 %"), 0.26));
        assert!(shows(Some("0"), 0.0) && !shows(Some("1"), 0.0) && !shows(Some("1,305"), 1306.0));
    }
}
