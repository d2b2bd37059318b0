//! How cases are distinguished: by the axes that vary, or by the names that the plan gave them.

use loadlab_record::documents::manifest::CaseFacts;

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
}

/// The suffix by which a control's name differs from that of the case it repeats: ` (control)`.
fn again(case: &CaseFacts) -> &str {
    case.control_of.as_deref().and_then(|base| case.name.strip_prefix(base)).unwrap_or_default()
}

/// Some of the cases in a few words, if one axis distinguishes them from the others: `size=10000`, `users ≤ 100`.
/// `None` if no axis does, or all cases are meant.
pub fn subset_in_words<'a>(
    cases: impl Iterator<Item = &'a CaseFacts> + Clone,
    labels: &Labels,
    is_meant: &dyn Fn(&CaseFacts) -> bool,
) -> Option<String> {
    let meant = cases.clone().filter(|case| is_meant(case)).count();
    if meant < 2 || meant == cases.clone().count() {
        return None;
    }
    labels.axes.iter().zip(&labels.heads).find_map(|(axis, head)| {
        // Each value, and whether cases with it are meant; none if only some are.
        let mut values: Vec<(&str, bool)> = Vec::new();
        for case in cases.clone() {
            let value = case.values.get(*axis)?.1.as_str();
            match values.iter().find(|(v, _)| *v == value) {
                Some((_, of)) if *of != is_meant(case) => return None,
                Some(_) => {}
                None => values.push((value, is_meant(case))),
            }
        }
        let numbers: Option<Vec<(f64, &str, bool)>> =
            values.iter().map(|(v, of)| Some((v.parse().ok()?, *v, *of))).collect();
        let own: Vec<&str> = values.iter().filter(|(_, of)| *of).map(|(v, _)| *v).collect();
        if let ([_, _, ..], Some(mut numbers)) = (own.as_slice(), numbers) {
            numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
            if let Some(turn) = numbers.iter().position(|(.., of)| *of != numbers[0].2)
                && numbers[turn..].iter().all(|(.., of)| *of != numbers[0].2)
            {
                return Some(match numbers[0].2 {
                    true => format!("{head} ≤ {}", numbers[turn - 1].1),
                    false => format!("{head} ≥ {}", numbers[turn].1),
                });
            }
        }
        Some(format!("{head}={}", own.join(" or ")))
    })
}

/// The default name of a case with axes.
fn generated(case: &CaseFacts) -> String {
    case.values.iter().map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_varies_is_left_out() {
        let case = |name: &str, values: &[(&str, &str)]| CaseFacts {
            name: name.to_owned(),
            values: values.iter().map(|(a, v)| ((*a).to_owned(), (*v).to_owned())).collect(),
            ..CaseFacts::default()
        };
        let axes = |all: &[&str]| all.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
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
        let grid: Vec<CaseFacts> =
            ["1", "10", "100"].iter().flat_map(|s| ["x", "y"].map(|b| two(s, b))).collect();
        let labels = Labels::of(grid.iter(), &axes(&["size", "by"]));
        let said = |meant: &[usize]| {
            subset_in_words(grid.iter(), &labels, &|c| meant.iter().any(|i| grid[*i] == *c))
        };
        assert_eq!(said(&[4, 5]).as_deref(), Some("size=100"));
        assert_eq!(said(&[0, 1, 2, 3]).as_deref(), Some("size ≤ 10"));
        assert_eq!(said(&[2, 3, 4, 5]).as_deref(), Some("size ≥ 10"));
        assert_eq!(said(&[0, 1, 4, 5]).as_deref(), Some("size=1 or 100"));
        assert_eq!(said(&[1, 3, 5]).as_deref(), Some("by=y"));
        assert_eq!((said(&[0, 3]), said(&[0]), said(&[0, 1, 2, 3, 4, 5])), (None, None, None));
        let given = [case("free", &[("cpu", "none")]), case("tight", &[("cpu", "1%")])];
        assert_eq!(named(&given, &["cpu"]), (axes(&["case"]), axes(&["free", "tight"])));
        assert_eq!(named(&[case("default", &[])], &[]), (axes(&["case"]), axes(&["default"])));
    }
}
