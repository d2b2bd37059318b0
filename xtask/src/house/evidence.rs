//! Tables of figures in the labs' READMEs match the kept figures.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Findings, House};
use crate::lab::figures::{file_of, with_tables};

/// Every figure of the source document is in a row of a table: a case or heading that is misspelt would be in none.
fn check_document(house: &House, lab: &str, shown: &[String], findings: &mut Findings) -> Result<()> {
    let path = file_of(lab, "document");
    let Some(text) = house.texts.get(&path) else { return Ok(()) };
    let document: Value = serde_json::from_str(text).with_context(|| path.clone())?;
    for (profile, cases) in document.as_object().into_iter().flatten() {
        for (case, figures) in cases.as_object().into_iter().flatten() {
            for heading in figures.as_object().into_iter().flatten().map(|(heading, _)| heading) {
                findings.look();
                if !shown.contains(&format!("document {profile} {case} {heading}")) {
                    findings.breach(
                        &path,
                        0,
                        format!("no table shows `{heading}` of `{case}` in `{profile}`"),
                    );
                }
            }
        }
    }
    Ok(())
}

/// Regenerating the tables changes no README, and every file of figures has a table.
pub fn check(house: &House, findings: &mut Findings) -> Result<()> {
    let mut shown = Vec::new();
    for (page, text) in &house.texts {
        let ["labs", lab, "README.md"] = page.split('/').collect::<Vec<_>>()[..] else { continue };
        let file = |profile: &str| house.texts.get(&file_of(lab, profile)).cloned();
        match with_tables(text, &file) {
            Err(error) => {
                findings.look();
                findings.breach(page, 0, format!("{error:#}"));
            }
            Ok((made, profiles)) => {
                if made != *text {
                    findings.breach(
                        page,
                        0,
                        "its tables are not those of the kept figures: `cargo xtask figures`",
                    );
                }
                profiles.iter().for_each(|_| findings.look());
                check_document(house, lab, &profiles, findings)?;
                shown.extend(profiles.iter().map(|profile| file_of(lab, profile)));
            }
        }
    }
    let kept = house.paths.iter().filter(|path| path.starts_with("labs/") && path.contains("/figures/"));
    // The source document's figures are in rows of these tables.
    let kept = kept.filter(|path| !path.ends_with("/figures/document.json"));
    for path in kept.filter(|path| !shown.contains(path)) {
        findings.breach(path, 0, "no README shows these figures");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn breaches(readme: &str, kept: &[(&str, &str)]) -> usize {
        let mut texts = BTreeMap::from([("labs/a/README.md".to_owned(), readme.to_owned())]);
        texts.extend(kept.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
        let paths = texts.keys().cloned().collect();
        let mut findings = Findings::default();
        check(&House { paths, texts, sources: Vec::new() }, &mut findings).unwrap();
        findings.breaches.len()
    }

    #[test]
    fn a_table_and_its_figures_agree() {
        let kept = r#"{"profile":"half","of":"a machine","trials":5,"comparisons":[],"cases":[{"case":"a","figures":{"x":{"unit":"count","median":1,"min":1,"max":1}}}]}"#;
        let right = "<!-- figures: half; x -->\n\n| case | x |\n|---|---|\n| a | 1 |\n\nProfile `half`, 5 trials of each case: \
                     the median (smallest … largest). a machine.\n\n<!-- end -->\n";
        let files = [("labs/a/figures/half.json", kept)];
        assert_eq!(breaches(right, &files), 0);
        assert_eq!(breaches(&right.replace("| a | 1 |", "| a | 2 |"), &files), 1);
        assert_eq!(breaches(right, &[]), 1, "no figures");
        assert_eq!(breaches("nothing\n", &files), 1, "no table");
        let document = |heading: &str| format!(r#"{{"half":{{"a":{{"{heading}":"7"}}}}}}"#);
        let beside = right.replace("| a | 1 |", "| a | 1 |\n| *a, document* | 7 |");
        let with =
            |document: &str| breaches(&beside, &[files[0], ("labs/a/figures/document.json", document)]);
        assert_eq!((with(&document("x")), with(&document("y"))), (0, 2));
    }
}
