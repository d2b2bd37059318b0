//! No text makes the parser panic, and its messages always fit the text.

use loadlab_plan::{Options, Plan, PlanErrors};
use proptest::prelude::*;

use crate::common;

/// The result is usable: a plan with cases, or errors within the text.
fn looks_right(text: &str, result: Result<Plan, PlanErrors>) -> Result<(), TestCaseError> {
    match result {
        Ok(plan) => {
            prop_assert!(!plan.cases().is_empty());
            prop_assert!(!plan.describe().is_empty());
            prop_assert_eq!(plan.schedule().len(), plan.cases().len() * plan.trials as usize);
        }
        Err(errors) => {
            prop_assert!(!errors.0.is_empty());
            for error in &errors.0 {
                let lines = text.matches('\n').count() + 1;
                prop_assert!(error.line <= lines, "line {} of {}: {}", error.line, lines, error);
                prop_assert!(!error.message.is_empty());
            }
            prop_assert!(!errors.to_string().is_empty());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        looks_right(&text, Plan::parse("plan.yaml", &text, &Options::default()))?;
    }

    #[test]
    fn random_yaml_like_text(text in "([a-z]{1,6}: |- |\\[|\\]|\\{|\\}|&a |\\*a|<<: |\\$\\{[a-z.]{0,9}\\}?|\"|'|\\||#|!|%|1s|ü|\n|\n  |\n    |\t|,){0,60}") {
        looks_right(&text, Plan::parse("plan.yaml", &text, &Options::default()))?;
    }

    /// A good plan with a piece cut out, doubled or replaced.
    #[test]
    fn damaged_plans(
        which in 0usize..4,
        from in any::<prop::sample::Index>(),
        length in 0usize..40,
        piece in "[ -~\n]{0,12}|\\$\\{case\\.[a-z]{0,4}|: |\\{|ä",
    ) {
        let text = common::GOOD[which].1;
        let chars: Vec<char> = text.chars().collect();
        let at = from.index(chars.len());
        let end = (at + length).min(chars.len());
        let damaged: String = chars[..at].iter().copied().chain(piece.chars()).chain(chars[end..].iter().copied()).collect();
        looks_right(&damaged, Plan::parse("plan.yaml", &damaged, &Options::default()))?;
    }

    #[test]
    fn random_options(
        which in 0usize..4,
        path in "[a-z_.0-9]{0,20}|load\\.[a-z_]{1,12}|matrix\\.axes\\.[a-z]{1,9}|loads\\.browse\\.[a-z]{1,9}",
        value in "[ -~]{0,12}",
        glob in "[a-z=*?]{0,8}",
        profile in prop::option::of("[a-z]{1,6}|quick|short"),
    ) {
        let options = Options {
            set: vec![(path, value)],
            cases_glob: Some(glob),
            profile,
            tags: vec!["page".into()],
            trials: Some(3),
            ..Options::default()
        };
        let text = common::GOOD[which].1;
        if let Err(errors) = Plan::parse("plan.yaml", text, &options) {
            prop_assert!(!errors.to_string().is_empty());
        }
    }
}

/// Texts made to be slow: each is refused or read with work bounded by its size.
#[test]
fn hostile_texts() {
    let head = "loadlab: 1\nname: n\nload: { users: 1, requests: 1, journey: [ { get: \"http://a/\" } ] }\n";
    let numbers: String = (0..20_000).map(|i| format!("{i}, ")).collect();
    let keys: String = (0..20_000).map(|i| format!("k{i}: 1, ")).collect();
    let names: String = (0..9_000).map(|i| format!("  - {{ name: c{i}, a: {i} }}\n")).collect();
    let components: String = (0..2_000).map(|i| format!("c{i}: {{ run: x, replicas: 1000 }}, ")).collect();
    for (text, refused) in [
        (format!("{head}matrix: {{ axes: {{ a: [{numbers}] }} }}\n"), true),
        (format!("{head}matrix: {{ axes: {{ {keys} }} }}\n"), true),
        (format!("{head}matrix: [ {{ name: a, {keys} }} ]\n"), true),
        (format!("{head}matrix:\n{names}"), true),
        (format!("{head}system: {{ components: {{ {components} }} }}\n"), true),
        (format!("{head}system: {{ components: {{ a: {{ run: x, env: {{ {keys} }} }} }} }}\n"), false),
        (
            format!(
                "{head}system: {{ components: {{ a: {{ run: x, replicas: 1000, env: {{ {keys} }} }} }} }}\n"
            ),
            true,
        ),
        (format!("{head}system: {{ components: {{ {keys} }} }}\n"), true),
        (format!("{head}description: {}\n", "x ${".repeat(30_000)), true),
        (format!("{head}description: {}\n", "${a}".repeat(30_000)), true),
        (format!("{head}x: {}\n", "a".repeat(1 << 20)), true),
        ("a: ".repeat(100_000), true),
        ("- ".repeat(100_000), true),
        ("{".repeat(100_000), true),
        ("? ".repeat(100_000), true),
        ("&a ".repeat(100_000), true),
        ("\"\\".repeat(100_000), true),
        (format!("a: &a [{}]\nb: {}", "x, ".repeat(1000), "[*a, *a]\n".repeat(1000)), true),
    ] {
        let result = Plan::parse("plan.yaml", &text, &Options::default());
        assert_eq!(result.is_err(), refused, "{}", text.chars().take(150).collect::<String>());
    }
}
