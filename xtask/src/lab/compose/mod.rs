//! The labs on Docker: their Compose files and plans unchanged, on images that are made here. What a lab builds comes
//! from this machine, since containers here have no network to fetch it through.

mod images;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, getrlimit};

use super::{Claims, LABS, Lab, Record, built, loadlab};
use crate::command::{LONGEST, captured, program, say};
use crate::engine::{Engine, ensure_compose};
use crate::root::{root, target};
use crate::steps::Outcome;

/// A lab on Docker.
struct Form {
    /// The lab's folder.
    folder: &'static str,
    /// The name in its plan.
    plan: &'static str,
    /// Where it differs from the lab on processes: see [`Lab`].
    cases: usize,
    failing: f64,
    lives_on: bool,
    /// Command that makes what the images contain; it runs in the lab's folder.
    prepare: &'static [&'static str],
    /// A phrase in its plan, and the phrase that replaces it where a stand-in serves.
    description: Option<(&'static str, &'static str)>,
}

const BUILD: [&str; 8] = [
    "cargo",
    "build",
    "--release",
    "--locked",
    "--manifest-path",
    "service/Cargo.toml",
    "--target-dir",
    "service/target",
];

const FORMS: [Form; 4] = [
    Form {
        folder: "edge-tiers",
        plan: "edge-tiers-compose",
        cases: 6,
        failing: 0.05,
        lives_on: false,
        prepare: &BUILD,
        description: None,
    },
    Form {
        folder: "message-inserts",
        plan: "message-inserts-compose",
        cases: 18,
        failing: 1.0,
        lives_on: false,
        prepare: &["service/install.sh"],
        description: Some(("on MongoDB 7;", "on mongo-java-server in place of MongoDB 7;")),
    },
    Form {
        folder: "index-page",
        plan: "index-page-compose",
        cases: 6,
        failing: 0.0,
        lives_on: true,
        prepare: &BUILD,
        description: Some((
            "in MongoDB and ten records of each store,",
            "in MongoDB (mongo-java-server in its place) and ten records of each store (Elasticsearch 7.10.2),",
        )),
    },
    Form {
        folder: "trade-processor",
        plan: "trade-processor-compose",
        cases: 1,
        failing: 0.0,
        lives_on: false,
        prepare: &["./prepare.sh"],
        description: None,
    },
];

/// Runs each lab on Docker, as a step of `cargo xtask long`.
///
/// # Errors
/// There is no engine, an image cannot be made, a run fails, or an assertion fails.
pub fn long() -> Outcome {
    built()?;
    ensure_compose()?;
    let engine = Engine::start()?;
    images::make(&engine)?;
    let (mut reported, mut wrong) = (Vec::new(), Vec::new());
    for form in &FORMS {
        match form.run(&engine) {
            Ok(text) => reported.push(text),
            Err(error) => wrong.push(format!("{}: {error:#}", form.plan)),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("all four run with docker-compose: {}", reported.join(", ")))
}

impl Form {
    /// What the record of its quick profile must contain.
    fn lab(&self) -> Result<Lab> {
        let lab = LABS.iter().find(|lab| lab.name == self.folder).context("a lab without a row")?;
        let Form { plan: name, cases, failing, lives_on, .. } = *self;
        Ok(Lab { name, cases, failing, lives_on, ..*lab })
    }

    fn run(&self, engine: &Engine) -> Outcome {
        let copy = self.copied()?;
        let out = target().join("xtask/compose").join(self.plan);
        let _ = fs::remove_dir_all(&out);
        let mut command = program(loadlab());
        command.arg("run").arg(copy.join("compose-plan.yaml")).args(["--profile", "quick", "--quiet"]);
        command.arg("--out").arg(&out).env("DOCKER_HOST", engine.host());
        let ran = captured(&mut command, LONGEST)?.ok("loadlab run")?;
        say(&ran.stdout);
        let record = Record::read(&out)?;
        let mut claims = Claims::default();
        let lab = self.lab()?;
        record.check(&lab, &mut claims)?;
        (lab.own)(&record, &mut claims)?;
        claims.into_outcome(self.folder)
    }

    /// Copies the lab, with a Dockerfile that takes what was built on this machine.
    fn copied(&self) -> Result<PathBuf> {
        let lab = root().join("labs").join(self.folder);
        let [name, args @ ..] = self.prepare else { unreachable!("a command has a name") };
        let mut prepare =
            program(if name.contains('/') { lab.join(name).into_os_string() } else { name.into() });
        captured(prepare.args(args).current_dir(&lab), LONGEST)?.ok(name)?;
        let labs = target().join("xtask/compose/labs");
        let copy = labs.join(self.folder);
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir_all(&labs)?;
        captured(program("cp").arg("--archive").arg(&lab).arg(&labs), LONGEST)?.ok("cp")?;
        change(&copy.join("service/Dockerfile"), |text| Some(from_here(text)))?;
        fs::write(
            copy.join("service/.dockerignore"),
            "target\n!target/release/edge-tiers\n!target/release/index-page\n",
        )?;
        // An engine cannot raise the limit on open files above its own.
        let files = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).min(200_000);
        change(&copy.join("compose.yaml"), |text| {
            Some(text.replace("nofile: 200000", &format!("nofile: {files}")))
        })?;
        if let Some((from, to)) = self.description {
            change(&copy.join("compose-plan.yaml"), |text| {
                (text.matches(from).count() == 1).then(|| text.replace(from, to))
            })?;
        }
        Ok(copy)
    }
}

fn change(file: &Path, to: impl FnOnce(&str) -> Option<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let changed = to(&text).with_context(|| format!("{} is not as expected", file.display()))?;
    Ok(fs::write(file, changed)?)
}

/// The last stage of a Dockerfile, changed to copy what its commands would make from the build context.
fn from_here(dockerfile: &str) -> String {
    let last = dockerfile.rfind("FROM ").unwrap_or(0);
    let line = |line: &str| {
        let copied = line.replace("COPY --from=build /service/", "COPY ");
        if line.starts_with("RUN npm ci ") { "COPY node_modules node_modules".to_owned() } else { copied }
    };
    dockerfile[last..].lines().map(line).map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dockerfiles_take_what_was_built_here() {
        for form in &FORMS {
            let file = root().join("labs").join(form.folder).join("service/Dockerfile");
            let changed = from_here(&fs::read_to_string(file).unwrap());
            assert!(changed.starts_with("FROM "), "{changed}");
            assert_eq!(changed.matches("FROM ").count(), 1, "{changed}");
            assert!(!changed.contains("RUN ") && !changed.contains("--from"), "{changed}");
            assert!(
                changed.contains("COPY target/release/")
                    || changed.contains("COPY node_modules node_modules"),
                "{changed}"
            );
        }
    }

    #[test]
    fn plans_say_where_a_stand_in_serves() {
        for form in &FORMS {
            let plan = root().join("labs").join(form.folder).join("compose-plan.yaml");
            let text = fs::read_to_string(plan).unwrap();
            assert!(text.contains(&format!("\nname: {}\n", form.plan)), "{text}");
            assert_eq!(form.description.is_some(), text.contains("MongoDB"), "{text}");
            if let Some((from, _)) = form.description {
                assert_eq!(text.matches(from).count(), 1, "{from}");
            }
        }
    }
}
