//! Some of a run's cases in a few words.

use loadlab_record::documents::labels::Labels;
use loadlab_record::documents::manifest::CaseFacts;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_that_distinguishes_them_is_named() {
        let axes = ["size", "by"].map(str::to_owned);
        let two = |size: &str, by: &str| CaseFacts {
            name: format!("size={size}, by={by}"),
            values: vec![("size".to_owned(), size.to_owned()), ("by".to_owned(), by.to_owned())],
            ..CaseFacts::default()
        };
        let grid: Vec<CaseFacts> =
            ["1", "10", "100"].iter().flat_map(|s| ["x", "y"].map(|b| two(s, b))).collect();
        let labels = Labels::of(grid.iter(), &axes);
        let said = |meant: &[usize]| {
            subset_in_words(grid.iter(), &labels, &|c| meant.iter().any(|i| grid[*i] == *c))
        };
        assert_eq!(said(&[4, 5]).as_deref(), Some("size=100"));
        assert_eq!(said(&[0, 1, 2, 3]).as_deref(), Some("size ≤ 10"));
        assert_eq!(said(&[2, 3, 4, 5]).as_deref(), Some("size ≥ 10"));
        assert_eq!(said(&[0, 1, 4, 5]).as_deref(), Some("size=1 or 100"));
        assert_eq!(said(&[1, 3, 5]).as_deref(), Some("by=y"));
        assert_eq!((said(&[0, 3]), said(&[0]), said(&[0, 1, 2, 3, 4, 5])), (None, None, None));
    }
}
