//! How far apart two names are, for "did you mean".

/// Edits to get from one to the other: insert, remove, replace, swap neighbours (restricted Damerau-Levenshtein). Takes
/// time proportional to the product of both lengths.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edit_counts_once() {
        for (a, b, expect) in [
            ("", "", 0),
            ("", "abc", 3),
            ("users", "users", 0),
            ("users", "user", 1),
            ("users", "usres", 1),
            ("users", "uzers", 1),
            ("rate", "tare", 2),
            ("größe", "grösse", 2),
        ] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (expect, expect), "{a} {b}");
        }
    }
}
