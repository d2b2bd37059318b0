//! Extracts numbers from a page in Prometheus' text format.
//!
//! The format: <https://prometheus.io/docs/instrumenting/exposition_formats/>. A line is a metric's name, optional
//! labels in braces, and a value; lines that begin with `#` describe the metrics.

/// One line `name{label="value",…} number …`.
#[derive(Debug, PartialEq)]
pub(crate) struct Metric<'a> {
    pub name: &'a str,
    pub labels: Vec<(String, String)>,
    /// The sample's value; may be `NaN` or infinite.
    pub value: f64,
}

impl Metric<'_> {
    /// The value of a label; empty if it is missing, as in Prometheus.
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value.as_str())
    }

    /// Whether it has all of these labels, and perhaps others.
    pub fn has(&self, labels: &[(String, String)]) -> bool {
        labels.iter().all(|wanted| self.labels.contains(wanted))
    }
}

/// The lines of a page whose metric name is wanted; an error describes a line that cannot be read.
pub(crate) fn metrics<'a>(
    text: &'a str,
    is_wanted: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Result<Metric<'a>, String>> {
    text.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(move |line| {
        let (name, rest) = line.split_at(line.find(['{', ' ', '\t']).unwrap_or(line.len()));
        (!name.is_empty() && is_wanted(name)).then(|| metric(line, name, rest))
    })
}

fn metric<'a>(line: &str, name: &'a str, rest: &str) -> Result<Metric<'a>, String> {
    let rest = rest.trim_start();
    let (labels, rest) = match rest.strip_prefix('{').map(labels_of) {
        Some(Some(found)) => found,
        Some(None) => return Err(format!("cannot read the labels of `{}`", super::short(line))),
        None => (Vec::new(), rest),
    };
    let word = rest.split_ascii_whitespace().next().unwrap_or_default();
    match word.parse() {
        Ok(value) => Ok(Metric { name, labels, value }),
        Err(_) => Err(format!("`{name}` is not a number but `{}`", super::short(word))),
    }
}

/// The sum of all samples of a metric that have these labels; other labels may be anything.
///
/// # Errors
/// No sample matches, or a value is not a finite number; in words.
pub(super) fn value_in(text: &str, metric: &str, labels: &[(String, String)]) -> Result<f64, String> {
    let mut sum = None::<f64>;
    let mut seen = false;
    for found in metrics(text, |name| name == metric) {
        let found = found?;
        seen = true;
        if !found.has(labels) {
            continue;
        }
        if !found.value.is_finite() {
            return Err(format!("`{metric}` is not a number but `{}`", found.value));
        }
        *sum.get_or_insert(0.0) += found.value;
    }
    match sum {
        Some(sum) => Ok(sum),
        None if seen => Err(format!("no sample of `{metric}` has these labels")),
        None => Err(format!("there is no metric `{metric}`")),
    }
}

/// Labels with their values, and what follows the closing brace.
type Labels<'a> = (Vec<(String, String)>, &'a str);

fn labels_of(mut rest: &str) -> Option<Labels<'_>> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, value) = rest.split_once('=')?;
        let mut chars = value.trim_start().strip_prefix('"')?.char_indices();
        let mut text = String::new();
        let quoted = value.trim_start().strip_prefix('"')?;
        rest = loop {
            match chars.next()? {
                (at, '"') => break &quoted[at + 1..],
                (_, '\\') => match chars.next()?.1 {
                    'n' => text.push('\n'),
                    other => text.push(other),
                },
                (_, other) => text.push(other),
            }
        };
        labels.push((name.trim().to_owned(), text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"# HELP queue_depth Messages that wait.
# TYPE queue_depth gauge
queue_depth{queue="work",node="a"} 12
queue_depth{queue="work",node="b",} 3.5
queue_depth{queue="o\"th\\er"} 1e3 1700000000000
queue_depth_total 99
up 1
broken NaN
cut{a="b} 1
"#;

    #[test]
    fn metrics_are_found_by_name_and_labels() {
        let label = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for (metric, labels, expect) in [
            ("up", vec![], Ok(1.0)),
            ("queue_depth", label("queue", "work"), Ok(15.5)),
            ("queue_depth", label("node", "b"), Ok(3.5)),
            ("queue_depth", label("queue", "o\"th\\er"), Ok(1000.0)),
            ("queue_depth", vec![], Ok(1015.5)),
            ("queue_depth_total", vec![], Ok(99.0)),
            ("queue_depth", label("queue", "x"), Err("no sample of `queue_depth` has these labels")),
            ("queue", vec![], Err("there is no metric `queue`")),
            ("broken", vec![], Err("`broken` is not a number but `NaN`")),
            ("cut", vec![], Err("cannot read the labels of `cut{a=\"b} 1`")),
        ] {
            assert_eq!(value_in(PAGE, metric, &labels), expect.map_err(str::to_owned), "{metric} {labels:?}");
        }
    }

    #[test]
    fn labels_may_hold_anything() {
        let read = |line: &'static str| metrics(line, |_| true).next();
        let found = read(r#"a{x="1\"}\\,",y="2" } 3 4"#).unwrap().unwrap();
        assert_eq!((found.name, found.label("x"), found.label("y"), found.value), ("a", "1\"}\\,", "2", 3.0));
        assert_eq!((found.label("z"), read("a {} 1").unwrap().unwrap().value), ("", 1.0));
        for line in ["", "# x", "{"] {
            assert!(read(line).is_none(), "{line}");
        }
        for (line, why) in [
            ("a", "`a` is not a number but ``"),
            ("a b", "`a` is not a number but `b`"),
            ("a{", "cannot read the labels of `a{`"),
            ("a{x=\"1", "cannot read the labels of `a{x=\"1`"),
            ("a{x=1} 2", "cannot read the labels of `a{x=1} 2`"),
        ] {
            assert_eq!(read(line).unwrap(), Err(why.to_owned()), "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_page_makes_it_panic(page: String, braces: String) {
            let _ = value_in(&page, "m", &[]);
            let _ = value_in(&format!("m{{{braces}"), "m", &[]);
        }
    }
}
