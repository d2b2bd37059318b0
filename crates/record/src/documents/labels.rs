//! How cases are distinguished: by the axes that vary, or by the names that the plan gave them.

use crate::documents::manifest::CaseFacts;

/// How the cases of a run are distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// What each column of a label is called: axes, or `case`.
    pub heads: Vec<String>,
    /// Indices of these axes in the manifest; empty if cases go by their names.
    pub axes: Vec<usize>,
}

impl Labels {
    /// For these cases, whose values are in the order of `axes`. A control is labelled like the case that it repeats.
    pub fn of<'a>(cases: impl Iterator<Item = &'a CaseFacts> + Clone, axes: &[String]) -> Labels {
        let varying = Labels::varying(cases.clone(), axes);
        let mut own = cases.clone().filter(|f| f.control_of.is_none());
        if varying.is_empty() || !own.all(|f| f.name == generated(f)) {
            return Labels { heads: vec!["case".to_owned()], axes: Vec::new() };
        }
        Labels { heads: varying.iter().map(|i| axes[*i].clone()).collect(), axes: varying }
    }

    /// Indices of the axes that have several values, whether cases go by them or by their own names.
    pub fn varying<'a>(cases: impl Iterator<Item = &'a CaseFacts> + Clone, axes: &[String]) -> Vec<usize> {
        let varies = |i: &usize| {
            let mut values = cases.clone().filter_map(|f| f.values.get(*i)).map(|(_, v)| v);
            let first = values.next();
            values.any(|v| Some(v) != first)
        };
        (0..axes.len()).filter(varies).collect()
    }

    /// A case's values in these columns.
    pub fn row(&self, case: &CaseFacts) -> Vec<String> {
        match self.axes.is_empty() {
            true => vec![case.name.clone()],
            false => {
                let values = self.axes.iter().filter_map(|i| case.values.get(*i)).map(|(_, v)| v.clone());
                let mut row: Vec<String> = values.collect();
                row.last_mut().into_iter().for_each(|last| last.push_str(again(case)));
                row
            }
        }
    }

    /// A case's values in these columns, as a single text.
    pub fn text(&self, case: &CaseFacts) -> String {
        self.row(case).join(", ")
    }

    /// Its name without the axes that do not vary, for sentences: only values if a single axis varies.
    pub fn name(&self, case: &CaseFacts) -> String {
        match self.axes.as_slice() {
            [] | [_] => self.text(case),
            several => {
                let values = several.iter().filter_map(|i| case.values.get(*i));
                let values: Vec<String> = values.map(|(axis, value)| format!("{axis}={value}")).collect();
                values.join(", ") + again(case)
            }
        }
    }

    /// The name of the case with this label, as a table or a sentence shows it; `None` if no case has it, or if
    /// several do.
    pub fn named<'a>(&self, label: &str, cases: impl Iterator<Item = &'a CaseFacts>) -> Option<&'a str> {
        let mut found = cases.filter(|case| self.name(case) == label || self.text(case) == label);
        let first = found.next()?.name.as_str();
        found.all(|case| case.name == first).then_some(first)
    }
}

/// The suffix by which a control's name differs from that of the case it repeats: ` (control)`.
fn again(case: &CaseFacts) -> &str {
    case.control_of.as_deref().and_then(|base| case.name.strip_prefix(base)).unwrap_or_default()
}

/// The default name of a case with axes.
fn generated(case: &CaseFacts) -> String {
    case.values.iter().map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, values: &[(&str, &str)]) -> CaseFacts {
        CaseFacts {
            name: name.to_owned(),
            values: values.iter().map(|(a, v)| ((*a).to_owned(), (*v).to_owned())).collect(),
            ..CaseFacts::default()
        }
    }

    fn axes(all: &[&str]) -> Vec<String> {
        all.iter().map(|a| (*a).to_owned()).collect()
    }

    #[test]
    fn what_never_varies_is_left_out() {
        let named = |cases: &[CaseFacts], all: &[&str]| {
            let labels = Labels::of(cases.iter(), &axes(all));
            let names: Vec<String> = cases.iter().map(|c| labels.name(c)).collect();
            (labels.heads, names)
        };
        let two = |a: &str, b: &str| case(&format!("size={a}, by={b}"), &[("size", a), ("by", b)]);
        assert_eq!(
            named(&[two("m", "x"), two("m", "y")], &["size", "by"]),
            (axes(&["by"]), axes(&["x", "y"])),
        );
        assert_eq!(
            named(&[two("m", "x"), two("l", "y")], &["size", "by"]),
            (axes(&["size", "by"]), axes(&["size=m, by=x", "size=l, by=y"])),
        );
        let control = CaseFacts { control_of: Some("size=m, by=x".to_owned()), ..two("m", "x") };
        let control = CaseFacts { name: "size=m, by=x (control)".to_owned(), ..control };
        assert_eq!(
            named(&[two("m", "x"), two("m", "y"), control.clone()], &["size", "by"]),
            (axes(&["by"]), axes(&["x", "y", "x (control)"])),
        );
        assert_eq!(
            named(&[two("m", "x"), two("l", "y"), control], &["size", "by"]).1[2],
            "size=m, by=x (control)",
        );
        let given = [case("free", &[("cpu", "none")]), case("tight", &[("cpu", "1%")])];
        assert_eq!(named(&given, &["cpu"]), (axes(&["case"]), axes(&["free", "tight"])));
        assert_eq!(named(&[case("default", &[])], &[]), (axes(&["case"]), axes(&["default"])));
    }

    #[test]
    fn a_label_means_one_case() {
        let meant = |cases: &[CaseFacts], all: &[&str], label: &str| {
            Labels::of(cases.iter(), &axes(all)).named(label, cases.iter()).map(str::to_owned)
        };
        let one = ["400", "800"].map(|rate| case(&format!("rate={rate}"), &[("rate", rate)]));
        assert_eq!(meant(&one, &["rate"], "400").as_deref(), Some("rate=400"));
        let two = |a: &str, b: &str| case(&format!("a={a}, b={b}"), &[("a", a), ("b", b)]);
        let grid = [two("1", "x"), two("1", "y"), two("2", "x")];
        for label in ["1, y", "a=1, b=y"] {
            assert_eq!(meant(&grid, &["a", "b"], label).as_deref(), Some("a=1, b=y"), "{label}");
        }
        for label in ["1", "y", "b=y", "3, x", ""] {
            assert_eq!(meant(&grid, &["a", "b"], label), None, "{label}");
        }
        // Values that contain a comma.
        assert_eq!(meant(&[two("1, 2", "3"), two("1", "2, 3")], &["a", "b"], "1, 2, 3"), None);
        let given = [case("free", &[("cpu", "none")]), case("tight", &[("cpu", "1%")])];
        assert_eq!(meant(&given, &["cpu"], "1%"), None);
    }
}
