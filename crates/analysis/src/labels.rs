//! How cases are told apart: by the axes that vary, or by their names where the plan gave them.

use loadlab_record::manifest::CaseFacts;

/// How the cases of a run are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// What each column of a label is called: axes, or `case`.
    pub heads: Vec<String>,
    /// Places of these axes among the manifest's; empty where cases go by their names.
    pub axes: Vec<usize>,
}

impl Labels {
    /// Of these cases, whose values are in the order of `axes`.
    pub fn of<'a>(cases: impl Iterator<Item = &'a CaseFacts> + Clone, axes: &[String]) -> Labels {
        let varies = |i: &usize| {
            let mut values = cases.clone().filter_map(|f| f.values.get(*i)).map(|(_, v)| v);
            let first = values.next();
            values.any(|v| Some(v) != first)
        };
        let varying: Vec<usize> = (0..axes.len()).filter(varies).collect();
        if varying.is_empty() || !cases.clone().all(|f| f.name == generated(f)) {
            return Labels { heads: vec!["case".to_owned()], axes: Vec::new() };
        }
        Labels { heads: varying.iter().map(|i| axes[*i].clone()).collect(), axes: varying }
    }

    /// What a case has in these columns.
    pub fn row(&self, case: &CaseFacts) -> Vec<String> {
        match self.axes.is_empty() {
            true => vec![case.name.clone()],
            false => self.axes.iter().filter_map(|i| case.values.get(*i)).map(|(_, v)| v.clone()).collect(),
        }
    }

    /// The same in one text.
    pub fn text(&self, case: &CaseFacts) -> String {
        self.row(case).join(", ")
    }

    /// Its name without the axes that do not vary, for sentences: values alone where a single axis varies.
    pub fn name(&self, case: &CaseFacts) -> String {
        match self.axes.as_slice() {
            [] | [_] => self.text(case),
            several => {
                let values = several.iter().filter_map(|i| case.values.get(*i));
                values.map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// The name that a case of axes has by itself.
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
        let given = [case("free", &[("cpu", "none")]), case("tight", &[("cpu", "1%")])];
        assert_eq!(named(&given, &["cpu"]), (axes(&["case"]), axes(&["free", "tight"])));
        assert_eq!(named(&[case("default", &[])], &[]), (axes(&["case"]), axes(&["default"])));
    }
}
