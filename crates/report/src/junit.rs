//! Expectations as JUnit XML, for continuous integration that shows test results.
//!
//! A case is a suite and an expectation of a trial a test. One that does not hold, or is unknown, is a failure; one
//! that too few samples leave undecided is skipped, with that reason; a measurement that cannot be trusted, or a
//! broken or missing trial, is an error. A trial without expectations is one test that passes by having been run.

use std::fmt::Write;

use loadlab_analysis::DiagnosedRun;
use loadlab_analysis::findings::findings;
use loadlab_analysis::verdict_of_search;
use loadlab_record::documents::summary::{Ended, Expectation, Summary, Verdict};

use crate::figures::with_name;
use crate::markup::escaped;
use crate::wording::describe_expectation;

/// A case as a suite: its name, and its trials.
struct Suite<'a> {
    name: &'a str,
    /// The figures that matter, with their medians.
    figures: Vec<(String, String)>,
    trials: Vec<JunitTrial<'a>>,
}

/// A trial: its number if there are several, its summary, and what spoiled it.
struct JunitTrial<'a> {
    number: Option<u32>,
    summary: Option<&'a Summary>,
    trouble: Option<&'a str>,
}

/// A test of a trial.
struct Test {
    name: String,
    time_s: f64,
    result: TestResult,
}

/// The result of a test.
enum TestResult {
    Good,
    Failure(String),
    Undecided(String),
    Error(String),
}

/// A run's expectations.
pub fn junit(run: &DiagnosedRun) -> String {
    let findings = findings(run);
    let suites = findings.cases.iter().map(|case| Suite {
        name: &case.case.facts.name,
        figures: findings.figures.iter().map(|m| (m.title(), with_name(case.spread(m).median, m))).collect(),
        trials: case
            .trials
            .iter()
            .map(|t| JunitTrial {
                number: (case.trials.len() > 1).then_some(t.number),
                summary: t.summary,
                trouble: t.trouble.as_deref(),
            })
            .collect(),
    });
    document(&run.manifest.name, &suites.collect::<Vec<_>>())
}

/// The expectations of a single load, under this name.
pub fn junit_of(name: &str, summary: &Summary, trouble: Option<&str>) -> String {
    // As a run's record says it.
    let interrupted = (summary.ended == Ended::Interrupted).then_some("the load was interrupted");
    let trials = vec![JunitTrial { number: None, summary: Some(summary), trouble: trouble.or(interrupted) }];
    document("loadlab bench", &[Suite { name, figures: Vec::new(), trials }])
}

/// A search as one test, which passes if an answer was found. Levels that missed are not failures: a search looks for
/// them.
pub fn junit_of_search(run: &DiagnosedRun) -> String {
    let name = escape(&run.manifest.name);
    let answer = run.manifest.search.as_ref().and_then(|search| search.found.as_deref());
    let result = match run.manifest.search.as_ref().map(verdict_of_search) {
        Some(Verdict::Pass) => "good",
        Some(Verdict::Fail) => "failure",
        Some(Verdict::Undecided) => "skipped",
        Some(Verdict::Invalid | Verdict::None) | None => "error",
    };
    let answer = escape(answer.unwrap_or("the search found no answer"));
    let [failures, errors, skipped] = ["failure", "error", "skipped"].map(|all| usize::from(result == all));
    let counts = format!("tests=\"1\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"");
    let inside = match result {
        "good" => format!("<system-out>{answer}</system-out>"),
        element => format!("<{element} message=\"{answer}\"/>"),
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{name}\" {counts}>\n  \
         <testsuite name=\"{name}\" {counts}>\n    <testcase classname=\"{name}\" name=\"find\">{inside}</testcase>\n  \
         </testsuite>\n</testsuites>\n"
    )
}

fn document(name: &str, suites: &[Suite<'_>]) -> String {
    let all_tests: Vec<Vec<Test>> = suites.iter().map(tests).collect();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all = || all_tests.iter().flatten();
    let _ = writeln!(out, "<testsuites name=\"{}\" {}>", escape(name), counts(all()));
    for (suite, tests) in suites.iter().zip(&all_tests) {
        let name = escape(suite.name);
        let _ = writeln!(out, "  <testsuite name=\"{name}\" {}>", counts(tests.iter()));
        properties(&mut out, &suite.figures);
        for test in tests {
            let _ = write!(
                out,
                "    <testcase classname=\"{name}\" name=\"{}\" time=\"{:.3}\"",
                escape(&test.name),
                test.time_s
            );
            let (element, text) = match &test.result {
                TestResult::Good => {
                    out.push_str("/>\n");
                    continue;
                }
                TestResult::Failure(text) => ("failure", text),
                TestResult::Undecided(text) => ("skipped", text),
                TestResult::Error(text) => ("error", text),
            };
            let first = text.lines().next().unwrap_or_default();
            let _ = writeln!(
                out,
                ">\n      <{element} message=\"{}\">{}</{element}>\n    </testcase>",
                escape(first),
                escape(text)
            );
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn properties(out: &mut String, figures: &[(String, String)]) {
    if figures.is_empty() {
        return;
    }
    out.push_str("    <properties>\n");
    for (name, value) in figures {
        let _ = writeln!(out, "      <property name=\"{}\" value=\"{}\"/>", escape(name), escape(value));
    }
    out.push_str("    </properties>\n");
}

fn counts<'a>(tests: impl Iterator<Item = &'a Test>) -> String {
    let (mut all, mut failures, mut errors, mut skipped, mut time_s) = (0, 0, 0, 0, 0.0);
    for Test { result, time_s: took_s, .. } in tests {
        all += 1;
        failures += u64::from(matches!(result, TestResult::Failure(_)));
        errors += u64::from(matches!(result, TestResult::Error(_)));
        skipped += u64::from(matches!(result, TestResult::Undecided(_)));
        time_s += took_s;
    }
    let counted = format!("tests=\"{all}\" failures=\"{failures}\" errors=\"{errors}\"");
    let skipped = if skipped > 0 { format!(" skipped=\"{skipped}\"") } else { String::new() };
    format!("{counted}{skipped} time=\"{time_s:.3}\"")
}

fn tests(suite: &Suite<'_>) -> Vec<Test> {
    suite.trials.iter().flat_map(of_trial).collect()
}

/// The trial's time is on its first test, so that sums are right.
fn of_trial(trial: &JunitTrial<'_>) -> Vec<Test> {
    let named = |text: &str| trial.number.map_or(text.to_owned(), |n| format!("{text} (trial {n})"));
    let mut time_s = trial.summary.map_or(0.0, |s| s.elapsed_s);
    let mut out = Vec::new();
    let mut add = |name: String, result: TestResult| {
        out.push(Test { name, time_s: std::mem::take(&mut time_s), result });
    };
    let doubts: Vec<String> = trial
        .summary
        .filter(|s| s.verdict == Verdict::Invalid)
        .iter()
        .flat_map(|s| &s.doubts)
        .filter(|d| d.grave)
        .map(|d| format!("INVALID {}: {}", d.kind, d.evidence))
        .collect();
    let spoiled = match (trial.trouble, trial.summary) {
        (Some(trouble), _) => Some(trouble.to_owned()),
        (None, None) => Some("nothing was measured".to_owned()),
        _ if !doubts.is_empty() => Some(doubts.join("\n")),
        _ => None,
    };
    let measured = named("the measurement can be trusted");
    let expectations = trial.summary.map_or(&[][..], |s| &s.expectations);
    match spoiled {
        Some(why) => add(measured, TestResult::Error(why)),
        None if expectations.is_empty() => add(measured, TestResult::Good),
        None => {}
    }
    for expectation in expectations {
        let result = result_of(expectation);
        add(named(&expectation.expr), result);
    }
    out
}

fn result_of(expectation: &Expectation) -> TestResult {
    match expectation.holds {
        Some(true) => TestResult::Good,
        None if expectation.is_undecided() => {
            TestResult::Undecided(format!("undecided: {}", describe_expectation(expectation)))
        }
        _ => TestResult::Failure(describe_expectation(expectation)),
    }
}

/// Text in XML 1.0, including attributes; characters that it cannot represent are replaced.
fn escape(text: &str) -> String {
    let held = |c: char| match c {
        '\n' => c,
        '\t' => ' ',
        c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
        c => c,
    };
    escaped(&text.chars().map(held).collect::<String>()).replace('\n', "&#10;")
}

#[cfg(test)]
mod tests {
    use loadlab_analysis::{TrialInput, summarise};

    use super::*;

    #[test]
    fn what_is_undecided_is_skipped_and_says_so() {
        let expectation = |expr: &str, holds, undecided| {
            let expectation = loadlab_record::documents::summary::Expectation {
                expr: expr.into(),
                holds,
                value: None,
                unit: String::new(),
                note: Some("why".into()),
                undecided,
            };
            Test { name: expectation.expr.clone(), time_s: 0.0, result: result_of(&expectation) }
        };
        let few =
            loadlab_record::documents::summary::FewSamples { samples: 300, needed: 1000, needed_s: None };
        let tests = [
            expectation("p50 < 1s", Some(true), None),
            expectation("p99 < 1s", None, Some(few)),
            expectation("drain < 1s", None, None),
        ];
        let is = |at: usize| match &tests[at].result {
            TestResult::Good => "good",
            TestResult::Undecided(text) => text.as_str(),
            TestResult::Failure(_) => "failure",
            TestResult::Error(_) => "error",
        };
        assert_eq!([is(0), is(1), is(2)], ["good", "undecided: p99 < 1s: why", "failure"]);
        assert_eq!(counts(tests.iter()), r#"tests="3" failures="1" errors="0" skipped="1" time="0.000""#);
    }

    /// What is expected may have held by then.
    #[test]
    fn a_bench_that_was_interrupted_has_an_error() {
        let of = |ended: Ended| {
            let summary = summarise(TrialInput { ended, ..TrialInput::default() });
            junit_of("http://a.test/", &summary, None)
        };
        assert!(!of(Ended::Complete).contains("<error"), "{}", of(Ended::Complete));
        let interrupted = of(Ended::Interrupted);
        assert!(interrupted.contains("<error message=\"the load was interrupted\">"), "{interrupted}");
        assert!(interrupted.contains("errors=\"1\""), "{interrupted}");
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(escape("p99 < 2s & \"x\"\u{1b}\n"), "p99 &lt; 2s &amp; &quot;x&quot;\u{fffd}&#10;");
    }
}
