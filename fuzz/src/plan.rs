//! `plan`: any text, with any options, yields a plan with cases or a list of errors located in the text: never a panic,
//! and never two different results.
//!
//! Input: the plan's text; after a zero byte, if there is one, one option per line: `set PATH=VALUE`, `profile NAME`,
//! `case GLOB`, `tags A,B`, `trials N`.

use loadlab_plan::{Options, Plan, PlanErrors};

const PATH: &str = "plan.yaml";

fn options_of(text: &str) -> Options {
    let mut options = Options::default();
    for line in text.lines() {
        let Some((word, rest)) = line.split_once(' ') else { continue };
        match word {
            "set" => options.set.extend(rest.split_once('=').map(|(p, v)| (p.to_owned(), v.to_owned()))),
            "profile" => options.profile = Some(rest.to_owned()),
            "case" => options.cases_glob = Some(rest.to_owned()),
            "tags" => options.tags = rest.split(',').map(str::to_owned).collect(),
            // The range accepted on the command line.
            "trials" => options.trials = rest.parse().ok().filter(|n| (1..=10_000).contains(n)),
            _ => {}
        }
    }
    options
}

fn good(plan: &Plan, options: &Options) {
    // `--tags` selects cases if tags follow from an axis, so none may be left.
    assert!(!plan.cases().is_empty() || !options.tags.is_empty(), "a plan without cases");
    assert!(plan.trials >= 1);
    assert_eq!(plan.schedule().len(), plan.cases().len() * plan.trials as usize);
    assert!(!plan.describe().is_empty());
    for case in plan.cases() {
        assert!(!case.loads.is_empty(), "case `{}` has no load", case.name);
        for load in &case.loads {
            assert!(!load.journey.is_empty(), "load `{}` has no step", load.name);
            assert!(load.batches >= 1);
        }
    }
    plan.expressions();
}

fn bad(text: &str, errors: &PlanErrors) {
    assert!(!errors.0.is_empty(), "refused without a mistake");
    let lines = text.split('\n').collect::<Vec<_>>();
    for error in &errors.0 {
        assert!(!error.message.is_empty());
        if error.file == PATH {
            assert!(
                (1..=lines.len()).contains(&error.line),
                "line {} of {}: {error}",
                error.line,
                lines.len()
            );
            assert!(error.column >= 1, "column 0: {error}");
        }
    }
    assert!(!errors.to_string().is_empty());
}

/// The fuzz target; see the module.
pub fn target(data: &[u8]) {
    let end = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let text = String::from_utf8_lossy(&data[..end]);
    let options = options_of(&String::from_utf8_lossy(data.get(end + 1..).unwrap_or_default()));
    let read = Plan::parse(PATH, &text, &options);
    match &read {
        Ok(plan) => good(plan, &options),
        Err(errors) => bad(&text, errors),
    }
    let again = Plan::parse(PATH, &text, &options);
    assert_eq!(read.map_err(|e| e.to_string()), again.map_err(|e| e.to_string()), "two answers to one text");
}
