//! Runs `action.yml` as a runner does: fills in its inputs, sets its files, runs its steps in its shell, and keeps the
//! exit code.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};

use super::api::Api;
use super::server;
use crate::command::{Ran, captured, program};
use crate::dist::{QUICK, Release};
use crate::root::root;
use crate::steps::Outcome;

const TOKEN: &str = "token-of-a-check";
/// Variables that hold the paths of a step's files (outputs, summary, event): see the runner's documentation of its
/// environment.
const FILES: &[&str] = &["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_PATH"];

/// Checks the action.
///
/// # Errors
/// The action does not do what it claims.
pub fn check(release: &Release) -> Outcome {
    let scratch = tempfile::tempdir()?;
    let server = server(scratch.path())?;
    let job = Job::new(format!("http://{}/128", server.address()))?;
    let program = release.program().display().to_string();
    let archive = release.archive.display().to_string();

    let passed = job.run(&program, "errors == 0", "")?;
    passed.ensure(0, "PASS", 0)?;
    // With a token, as published in a release.
    let failed = job.run(&archive, "errors == 1", TOKEN)?;
    failed.ensure(1, "FAIL", 1)?;
    failed.comment_has("FAIL")?;
    let again = job.run(&program, "errors == 0", TOKEN)?;
    again.ensure(0, "PASS", 1)?;
    again.comment_has("PASS")?;
    let records: Vec<_> = [&passed, &failed, &again].iter().map(|d| d.outputs["record"].as_str()).collect();
    ensure!(records == ["load", "load-2", "load-3"], "records: {records:?}");
    ensure!(job.dir.path().join("load-3/report.html").is_file(), "no report in the record");

    let broken = job.run(&program, "no condition", TOKEN)?;
    broken.ensure(2, "plan.yaml:", 1)?;
    ensure!(broken.summary.contains("no report"), "{}", broken.summary);
    let missing = job.run("no-such-loadlab", "errors == 0", "")?;
    ensure!(missing.code == Some(2) && missing.said.contains("::error"), "{}", missing.said);
    job.api.refuse();
    let refused = job.run(&program, "errors == 1", TOKEN)?;
    refused.ensure(1, "FAIL", 1)?;
    ensure!(refused.said.contains("::warning"), "no warning: {}", refused.said);
    // The two revisions are the same commit, so after one trial each there is no verdict.
    let compared = job.compare(&program, "v1..v2")?;
    compared.ensure(6, "Verdict: cannot tell", refused.comments.len())?;
    ensure!(compared.summary.contains("v1") && compared.summary.contains("v2"), "{}", compared.summary);
    let is_shown = [&failed, &again, &broken, &refused].iter().any(|done| done.said.contains(TOKEN));
    ensure!(!is_shown, "the token is printed");
    Ok("a runner's steps: passed, failed, broken and missing plans, two revisions; one comment, replaced"
        .to_owned())
}

/// A job: a workspace, a pull request, and the API that receives comments.
struct Job {
    dir: tempfile::TempDir,
    api: Api,
    url: String,
}

/// The result of a step.
struct Done {
    code: Option<i32>,
    said: String,
    summary: String,
    outputs: BTreeMap<String, String>,
    comments: Vec<String>,
}

impl Job {
    fn new(url: String) -> Result<Job> {
        Ok(Job { dir: tempfile::tempdir()?, api: Api::start(TOKEN)?, url })
    }

    /// Runs the action once, with a plan that has an expectation.
    fn run(&self, loadlab: &str, expected: &str, token: &str) -> Result<Done> {
        self.act(loadlab, expected, token, "")
    }

    /// Runs the action in a repository, to compare two revisions.
    fn compare(&self, loadlab: &str, revisions: &str) -> Result<Done> {
        let user = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"];
        for words in [
            &["init", "--quiet"][..],
            &["commit", "--quiet", "--allow-empty", "--message", "One"],
            &["tag", "v1"],
            &["tag", "v2"],
        ] {
            let mut git = program("git");
            captured(git.arg("-C").arg(self.dir.path()).args(user).args(words), QUICK)?.ok("git")?;
        }
        self.act(loadlab, "errors == 0", "", revisions)
    }

    fn act(&self, loadlab: &str, expected: &str, token: &str, compare: &str) -> Result<Done> {
        let plan = format!(
            "loadlab: 1\nname: action\nload:\n  users: 2\n  requests: 40\n  journey:\n    - get: {}\nexpect: [\"{expected}\"]\n",
            self.url
        );
        fs::write(self.dir.path().join("plan.yaml"), plan)?;
        let inputs = [
            ("plan", "plan.yaml"),
            ("compare", compare),
            ("options", "\n  --trials=1  \n\n--set\nload.users=3\n"),
            ("loadlab", loadlab),
            ("out", "load"),
            ("token", token),
        ];
        let action = Action::read(&inputs.map(|(name, value)| (name, value.to_owned())))?;
        let files = self.files()?;
        let mut done = Done {
            code: None,
            said: String::new(),
            summary: String::new(),
            outputs: BTreeMap::new(),
            comments: Vec::new(),
        };
        for step in &action.steps {
            let ran = self.step(step, &files)?;
            done.code = ran.status.code();
            done.said.push_str(&(ran.stdout + &ran.stderr));
        }
        let outputs = fs::read_to_string(&files[0])?;
        let pairs = outputs.lines().filter_map(|line| line.split_once('='));
        done.outputs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        done.summary = fs::read_to_string(&files[1])?;
        done.comments = self.api.comments();
        Ok(done)
    }

    /// Creates the files of a step, in the order of [`FILES`].
    fn files(&self) -> Result<Vec<PathBuf>> {
        let files: Vec<_> = FILES.iter().map(|name| self.dir.path().join(name)).collect();
        for file in &files {
            fs::write(file, "")?;
        }
        fs::write(&files[2], "{\"pull_request\": {\"number\": 7}}")?;
        Ok(files)
    }

    fn step(&self, step: &Step, files: &[PathBuf]) -> Result<Ran> {
        let script = self.dir.path().join("step.sh");
        fs::write(&script, &step.script)?;
        // `shell: bash` is short for this command line.
        ensure!(step.shell == "bash", "the check knows no shell {}", step.shell);
        let mut command = program("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail"]).arg(&script);
        command.current_dir(self.dir.path());
        self.environment(&mut command, files);
        command.envs(step.env.iter().map(|(name, value)| (name, value)));
        captured(&mut command, QUICK)
    }

    fn environment(&self, command: &mut Command, files: &[PathBuf]) {
        command.env("GITHUB_ACTIONS", "true").env("GITHUB_REPOSITORY", "owner/name").env("CI", "true");
        command.env("GITHUB_WORKSPACE", self.dir.path()).env("GITHUB_API_URL", self.api.url());
        command.envs(FILES.iter().zip(files));
        // A proxy set on this machine could not reach the server.
        command.env("NO_PROXY", "127.0.0.1");
    }
}

impl Done {
    /// Ensures the exit code, that the summary contains these words, and the number of comments.
    fn ensure(&self, code: i32, text: &str, comments: usize) -> Result<()> {
        let said = &self.said;
        ensure!(self.code == Some(code), "exit code {:?}, not {code}:\n{said}", self.code);
        let output = self.outputs.get("exit-code").map(String::as_str);
        ensure!(output == Some(&code.to_string()), "output {output:?}, not {code}:\n{said}");
        ensure!(self.summary.contains(text), "no {text} in the summary:\n{}\n{said}", self.summary);
        ensure!(self.comments.len() == comments, "{} comments:\n{said}", self.comments.len());
        Ok(())
    }

    /// Ensures that the last comment contains these words.
    fn comment_has(&self, text: &str) -> Result<()> {
        let last = self.comments.last().context("no comment")?;
        ensure!(last.contains(text), "no {text} in the comment:\n{last}\n{}", self.said);
        Ok(())
    }
}

/// The action with its inputs filled in.
struct Action {
    steps: Vec<Step>,
}

struct Step {
    shell: String,
    script: String,
    env: Vec<(String, String)>,
}

impl Action {
    fn read(inputs: &[(&str, String)]) -> Result<Action> {
        let text = fs::read_to_string(root().join("action.yml")).context("action.yml")?;
        let action: Value = serde_saphyr::from_str(&text).context("action.yml")?;
        ensure!(action["runs"]["using"] == "composite", "action.yml: not a composite action");
        let known = action["inputs"].as_object().context("action.yml: no inputs")?;
        for (name, _) in inputs {
            ensure!(known.contains_key(*name), "action.yml: no input {name}");
        }
        ensure!(known.len() == inputs.len(), "the check does not set all inputs: {known:?}");
        let steps = action["runs"]["steps"].as_array().context("action.yml: no steps")?;
        Ok(Action { steps: steps.iter().map(|step| step_of(step, inputs)).collect::<Result<_>>()? })
    }
}

fn step_of(step: &Value, inputs: &[(&str, String)]) -> Result<Step> {
    let text = |key: &str| step[key].as_str().with_context(|| format!("action.yml: a step without {key}"));
    let nothing = Map::new();
    let env = step["env"].as_object().unwrap_or(&nothing).iter();
    let env = env.map(|(name, value)| {
        let value = value.as_str().context("action.yml: env: not a text")?;
        Ok((name.clone(), filled(value, inputs)?))
    });
    let script = text("run")?;
    // Otherwise a user's input would become code.
    ensure!(!script.contains("${{"), "action.yml: an expression in a script");
    let env = env.collect::<Result<_>>()?;
    Ok(Step { shell: text("shell")?.to_owned(), script: script.to_owned(), env })
}

/// A text with its expressions replaced by inputs.
fn filled(text: &str, inputs: &[(&str, String)]) -> Result<String> {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${{") {
        let (expression, behind) = behind.split_once("}}").context("an expression without an end")?;
        let name = expression.trim().strip_prefix("inputs.");
        let input = inputs.iter().find(|(input, _)| Some(*input) == name);
        let (_, value) = input.with_context(|| format!("the check cannot fill in {expression}"))?;
        done.push_str(before);
        done.push_str(value);
        rest = behind;
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_replaced_by_inputs() {
        let inputs = [("plan", "a.yaml".to_owned())];
        assert_eq!(filled("x ${{ inputs.plan }} y", &inputs).unwrap(), "x a.yaml y");
        assert_eq!(filled("none", &inputs).unwrap(), "none");
        assert!(filled("${{ github.token }}", &inputs).is_err());
        assert!(filled("${{ inputs.plan", &inputs).is_err());
    }

    #[test]
    fn a_script_with_an_expression_is_refused() {
        let step = serde_json::json!({ "shell": "bash", "run": "echo ${{ inputs.plan }}" });
        assert!(step_of(&step, &[("plan", String::new())]).is_err());
    }
}
