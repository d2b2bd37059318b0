//! Text for a terminal of a given width: colour that can be left out, wrapping, columns, bars.
//!
//! Widths are columns of a terminal, not bytes: wide East Asian characters and emoji take two, combining marks none.
//! Nothing here reads the environment: the caller decides about width and colour.

use std::fmt::Write;

/// The role of a piece of text, for colour. Meaning never depends on it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Neutral.
    Plain,
    /// A heading, the figure to look at.
    Strong,
    /// Secondary.
    Faint,
    /// Holds, passed.
    Good,
    /// Doubtful.
    Warn,
    /// Failed, invalid.
    Bad,
    /// Bars.
    Bar,
}

/// Paints text with escape sequences, or leaves it alone.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether to paint.
    pub colour: bool,
}

impl Paint {
    /// The text in a tone.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Faint => "2",
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31;1",
            Tone::Bar => "36",
        };
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Columns a character takes. Ranges: Unicode's combining blocks (none) and East Asian Wide / emoji (two); exact
/// enough for names and units, without a table that would have to be kept up to date.
fn char_width(c: char) -> usize {
    match c as u32 {
        0..=0x1f | 0x7f..=0x9f => 0,
        0x300..=0x36f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2064 | 0xfe00..=0xfe0f | 0xfeff => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Columns a text takes.
pub fn width_of(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// A character that can control a terminal or reorder a line: C0 and C1 controls, Unicode's line ends, and overrides
/// and isolates of the writing direction.
pub fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c as u32, 0x2028 | 0x2029 | 0x202a..=0x202e | 0x2066..=0x2069)
}

/// Makes control characters visible (including escape sequences in a server's answer), and turns tabs and line ends
/// into spaces: foreign text must not control the terminal.
pub fn harmless(text: &str) -> String {
    text.chars().map(harmless_char).collect()
}

fn harmless_char(c: char) -> char {
    match c {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        c if is_harmful(c) => '\u{fffd}',
        c => c,
    }
}

/// As [`harmless`], for text of several lines, which stay lines.
pub fn harmless_lines(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { c } else { harmless_char(c) }).collect()
}

/// As [`harmless_lines`], for text that is already painted: colours stay colours. It is the last step before a
/// terminal, so that anything missed earlier can change a colour and nothing else.
pub fn harmless_painted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        let (before, from) = rest.split_at(at);
        out.push_str(&harmless_lines(before));
        let length = colour_length(from);
        match length {
            0 => out.push('\u{fffd}'),
            n => out.push_str(&from[..n]),
        }
        rest = &from[length.max(1)..];
    }
    out.push_str(&harmless_lines(rest));
    out
}

/// Bytes of the escape sequence that a text begins with, if it is one that [`Paint`] or help texts use: weight,
/// underline and the sixteen foreground colours. Hidden, blinking and inverse letters, which can deceive, are
/// excluded.
fn colour_length(text: &str) -> usize {
    let Some((codes, _)) = text.strip_prefix("\x1b[").and_then(|t| t.split_once('m')) else { return 0 };
    let is_colour = |code: &str| {
        matches!(code.parse::<u8>(), Ok(0..=4 | 22..=24 | 30..=37 | 39 | 90..=97)) && code.len() <= 2
    };
    let all = codes.is_empty() || codes.split(';').all(is_colour);
    if all { "\x1b[".len() + codes.len() + 1 } else { 0 }
}

/// The text, cut with `…` to at most `columns`.
pub fn cut(text: &str, columns: usize) -> String {
    if width_of(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        if used + char_width(c) + 1 > columns {
            break;
        }
        used += char_width(c);
        out.push(c);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

/// Texts cut to `columns` that remain distinct: where two would look alike, their middles are left out instead, and
/// where that does not distinguish them either, they are numbered.
pub fn cut_apart(texts: &[String], columns: usize) -> Vec<String> {
    let differ = |cuts: &[String]| {
        let alike = |i: usize, j: usize| cuts[i] == cuts[j] && texts[i] != texts[j];
        !(0..cuts.len()).any(|i| (0..i).any(|j| alike(i, j)))
    };
    let at_end: Vec<String> = texts.iter().map(|t| cut(t, columns)).collect();
    if differ(&at_end) {
        return at_end;
    }
    let in_middle = |text: &String| {
        if width_of(text) <= columns {
            return text.clone();
        }
        let room = columns.saturating_sub(1);
        let head = take_columns(text, room / 3);
        let mut tail = String::new();
        for c in text.chars().rev() {
            if width_of(&tail) + char_width(c) > room - width_of(&head) {
                break;
            }
            tail.insert(0, c);
        }
        format!("{head}…{tail}")
    };
    let middle: Vec<String> = texts.iter().map(in_middle).collect();
    if differ(&middle) {
        return middle;
    }
    let number = |(i, text): (usize, &String)| {
        let number = format!("#{} ", i + 1);
        format!("{number}{}", cut(text, columns.saturating_sub(width_of(&number))))
    };
    texts.iter().enumerate().map(number).collect()
}

/// Padded on the left to `columns`.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width_of(text))))
}

/// Padded on the right to `columns`.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width_of(text))))
}

/// Lines of at most `columns`, broken at spaces; a word that is longer than a line is broken inside.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        let mut word = word.to_owned();
        loop {
            let space = usize::from(used > 0);
            if used + space + width_of(&word) <= columns {
                break;
            }
            if used > 0 {
                lines.push(String::new());
                used = 0;
                continue;
            }
            let head: String = take_columns(&word, columns);
            word = word[head.len()..].to_owned();
            lines.last_mut().unwrap_or(&mut String::new()).push_str(&head);
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            used += width_of(&word);
            line.push_str(&word);
        }
    }
    lines
}

fn take_columns(word: &str, columns: usize) -> String {
    let mut used = 0;
    word.chars()
        .take_while(|c| {
            used += char_width(*c);
            used <= columns
        })
        .collect()
}

/// A paragraph with a hanging indent: `first` begins it, the following lines align below the text, which is made
/// [`harmless`].
pub fn hanging(out: &mut String, first: &str, text: &str, columns: usize, paint: impl Fn(&str) -> String) {
    let indent = width_of(first);
    for (i, line) in wrap(&harmless(text), columns.saturating_sub(indent)).iter().enumerate() {
        let lead = if i == 0 { first.to_owned() } else { " ".repeat(indent) };
        let _ = writeln!(out, "{lead}{}", paint(line));
    }
}

/// Items separated by `·`, broken between items when a line is full, and inside one only if it alone is wider than a
/// line. They are made [`harmless`].
pub fn items(out: &mut String, items: &[String], columns: usize) {
    let mut line = String::new();
    let mut flush = |line: &str| {
        for piece in wrap(line, columns) {
            let _ = writeln!(out, "{piece}");
        }
    };
    for item in items {
        let item = &harmless(item);
        let joined = if line.is_empty() { item.clone() } else { format!("{line} · {item}") };
        if width_of(&joined) > columns && !line.is_empty() {
            flush(&line);
            line.clone_from(item);
        } else {
            line = joined;
        }
    }
    flush(&line);
}

/// A bar of eighths of a block: `share` (0..=1) of `columns`. Anything above zero shows.
pub fn bar(share: f64, columns: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { 0 };
    let mut out = "█".repeat(eighths / 8);
    if let Some(part) = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'].get(eighths % 8).filter(|p| **p != ' ')
    {
        out.push(*part);
    }
    out
}

/// A bar up to the lower bound of a value, and hatched from there to the end: it may be anything beyond.
pub fn open_bar(share: f64, columns: usize) -> String {
    let solid = bar(share, columns);
    let rest = columns.saturating_sub(width_of(&solid));
    format!("{solid}{}", "░".repeat(rest))
}

/// A line of blocks, one per value, scaled to the largest; `·` where there is no value.
pub fn sparkline(values: &[Option<f64>]) -> String {
    let max = values.iter().flatten().copied().fold(0.0, f64::max);
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let block =
        |v: f64| if max > 0.0 { BLOCKS[((v / max * 7.0).round() as usize).min(7)] } else { BLOCKS[0] };
    values.iter().map(|v| v.map_or('·', block)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_stays_different() {
        let cut = |texts: &[&str], columns| {
            cut_apart(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>(), columns)
        };
        assert_eq!(cut(&["short", "other"], 8), ["short", "other"]);
        assert_eq!(cut(&["alpha-one", "beta-one"], 6), ["alpha…", "beta-…"]);
        assert_eq!(
            cut(&["size=medium, by=jemalloc", "size=medium, by=mimalloc"], 14),
            ["size…=jemalloc", "size…=mimalloc"]
        );
        assert_eq!(
            cut(&["aaaaaaaaaaaaXbbbbbbbbbbbb", "aaaaaaaaaaaaYbbbbbbbbbbbb"], 9),
            ["#1 aaaaa…", "#2 aaaaa…"]
        );
    }

    #[test]
    fn widths_cuts_and_pads_count_columns() {
        assert_eq!(width_of("naïve"), 5);
        assert_eq!(width_of("負荷試験"), 8);
        assert_eq!(width_of("e\u{301}"), 1);
        assert_eq!(cut("負荷試験", 5), "負荷…");
        assert_eq!(cut("short", 5), "short");
        assert_eq!(right("負", 4), "  負");
    }

    #[test]
    fn wraps_at_spaces_and_inside_long_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("http://a.very.long/url x", 10), ["http://a.v", "ery.long/u", "rl x"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn what_others_sent_does_not_steer_the_terminal() {
        assert_eq!(harmless("a\x1b[31mb\u{202e}c\td"), "a\u{fffd}[31mb\u{fffd}c d");
        assert_eq!(harmless("\u{9b}2J\u{2066}x\r\n"), "\u{fffd}2J\u{fffd}x  ");
        assert_eq!(harmless_lines("a\x1b\nb\r"), "a\u{fffd}\nb ");
    }

    #[test]
    fn colours_are_all_that_comes_through_to_a_terminal() {
        let painted = format!(
            "{}\n\x1b[1m\x1b[31;1merror:\x1b[0m x\x1b[m\n",
            Paint { colour: true }.tone(Tone::Bad, "x")
        );
        assert_eq!(harmless_painted(&painted), painted);
        for (given, expect) in [
            ("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}"),
            ("\x1b[2J\x1b[H", "\u{fffd}[2J\u{fffd}[H"),
            ("\x1b[8mhidden", "\u{fffd}[8mhidden"),
            ("\x1b[38;5;1mx", "\u{fffd}[38;5;1mx"),
            ("\x1b[0001mx", "\u{fffd}[0001mx"),
            ("\x1b[31", "\u{fffd}[31"),
            ("\x1b", "\u{fffd}"),
            ("\x1b\x1b[0mx", "\u{fffd}\x1b[0mx"),
            ("\x1b[\u{9b}31m", "\u{fffd}[\u{fffd}31m"),
            ("a\rb\x08\u{85}\u{202e}c", "a b\u{fffd}\u{fffd}\u{fffd}c"),
        ] {
            assert_eq!(harmless_painted(given), expect, "{given:?}");
        }
    }

    #[test]
    fn paragraphs_and_items_are_harmless() {
        let mut out = String::new();
        hanging(&mut out, "- ", "a\x1b[2Jb", 40, str::to_owned);
        items(&mut out, &["c\u{9b}d".to_owned(), "e\nf".to_owned()], 40);
        assert_eq!(out, "- a\u{fffd}[2Jb\nc\u{fffd}d · e f\n");
    }

    #[test]
    fn bars_and_sparklines() {
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(0.000_1, 10), "▏");
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(sparkline(&[Some(0.0), Some(7.0), None, Some(3.5)]), "▁█·▅");
        assert_eq!(sparkline(&[Some(0.0)]), "▁");
    }
}
