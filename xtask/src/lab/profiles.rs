//! Every profile of every lab, once and shortened: a plan that is good may still not run.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::record::{Trial, text};
use super::{Claims, Record, built};
use crate::command::{LONGEST, captured, program, say};
use crate::root::{root, target};
use crate::steps::Outcome;

/// Profiles that differ in the same way, and what makes them short. `cargo xtask test` runs `quick`, and other steps of
/// `cargo xtask long` run `careless`, `slow-disk` and `swarm-agents`.
const SHORT: [(&str, &[&str], &[&str]); 11] = [
    ("edge-tiers", &["full", "half", "as-slow", "far", "cache-lock", "isolated"], &["load.duration=2s"]),
    ("index-page", &["full", "round", "to-the-end"], &["load.repeats=3"]),
    ("index-page", &["by-time", "isolated", "which-limit", "ports"], &["load.duration=2s"]),
    (
        "message-inserts",
        &["full"],
        &[
            "loads.get.requests=1000",
            "loads.empty-post.requests=1000",
            "loads.post.requests=1000",
            "loads.raw.command.requests=1000",
            "loads.until-killed.duration=10s",
            "events.0.at=3s",
        ],
    ),
    ("message-inserts", &["growth"], &["loads.post.requests=1000"]),
    ("stair-stepper", &["full", "medium", "many-workers", "climb", "waits"], &["load.requests=48"]),
    // Of 16 users, one at least comes to the last of four sizes.
    ("stair-stepper", &["mixed"], &["load.requests=64"]),
    (
        "trade-processor",
        &["full", "keep-alive", "round-robin", "isolated", "tuned", "five-servers"],
        &["load.users=100", "load.requests=1000"],
    ),
    ("trade-processor", &["wan"], &["load.users=50", "load.duration=4s"]),
    (
        "trade-processor",
        &["chaos"],
        &["load.users=50", "load.duration=6s", "events.0.at=1s", "events.1.at=3s"],
    ),
    (
        "trade-processor",
        &["swarm-360k", "swarm-1000k"],
        &["load.users=2000", "load.requests=10000", "system.components.consumer.env.PROCESSES=4"],
    ),
];

/// Runs them, as a step of `cargo xtask long`.
///
/// # Errors
/// A run does not finish, a case of it answered nothing, its counts do not add up, it lacks what the profile is about, or
/// trade-processor lost something.
pub fn long() -> Outcome {
    built()?;
    let (mut ran, mut wrong) = (0, Vec::new());
    for (lab, profiles, set) in SHORT {
        for profile in profiles {
            match run(lab, profile, set) {
                Ok(cases) => {
                    say(&format!("{lab:<16} {profile}: {cases} cases"));
                    ran += 1;
                }
                Err(error) => wrong.push(format!("{lab}, {profile}: {error:#}")),
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("{ran} profiles of the labs run, shortened"))
}

/// Profiles in which each component has its own network.
const IN_NETWORKS: [&str; 4] = ["isolated", "far", "wan", "five-servers"];

/// What a profile does to the system, where that can be seen on any machine, however fast.
fn condition_of(lab: &str, profile: &str, trial: &Trial) -> Option<String> {
    match (lab, profile) {
        ("edge-tiers", "far") => Some("86 <= response_ms/min".to_owned()),
        // Ten users for two seconds, who pause for 94 ms after each request.
        ("edge-tiers", "as-slow") => Some("requests/started <= 230".to_owned()),
        ("edge-tiers", "half") => {
            let percent = trial.value("edge_cpu").strip_suffix('%')?;
            Some(format!("100 * components/edge1/cpu_limit == {percent}"))
        }
        ("index-page", "which-limit") => {
            Some(format!("components/service/limits/open_files == {}", trial.value("files")))
        }
        ("message-inserts", "growth") => Some("probes/stored/last == requests/ok".to_owned()),
        ("trade-processor", "five-servers") => Some("100 * components/consumer/cpu_limit == 67".to_owned()),
        ("trade-processor", "keep-alive") => Some("connections/opened < requests/ok".to_owned()),
        ("trade-processor", "wan") => {
            let delay_ms = match trial.value("delay") {
                "0s" => "0",
                delay => delay.strip_suffix("ms").unwrap_or_default(),
            };
            Some(format!("{delay_ms} <= connect_ms/min"))
        }
        // Eight worker threads, whatever the machine has.
        ("stair-stepper", "climb" | "many-workers") => Some("9 <= components/service/pids_max".to_owned()),
        ("stair-stepper", "mixed") => Some("0 < by_tag/large/requests/ok".to_owned()),
        ("stair-stepper", "waits") => Some(format!("{} <= response_ms/min", trial.value("sleep_ms"))),
        _ => None,
    }
}

/// Runs a profile; returns its number of cases.
fn run(lab: &str, profile: &str, set: &[&str]) -> Result<usize> {
    let out = target().join("xtask/profiles").join(lab).join(profile);
    let _ = fs::remove_dir_all(&out);
    let mut command = program(super::loadlab());
    command.arg("run").arg(root().join(format!("labs/{lab}/plan.yaml")));
    command.args(["--profile", profile, "--trials", "1", "--quiet", "--out"]).arg(&out);
    set.iter().for_each(|set| {
        command.args(["--set", set]);
    });
    let ran = captured(&mut command, LONGEST)?;
    // So short a load may miss what is expected of it, or be too short to judge.
    let record = Record::read(&out).with_context(|| format!("{}\n{}", ran.stdout, ran.stderr))?;
    ensure!(record.manifest["how"] == "complete", "{}: {}", record.manifest["how"], ran.stderr);
    let mut claims = Claims::default();
    for trial in &record.trials {
        trial.hold(&mut claims, &["0 < requests/ok"]);
        trial.adds_up(&mut claims);
        if let Some(condition) = condition_of(lab, profile, trial) {
            trial.hold(&mut claims, &[&condition]);
        }
        if IN_NETWORKS.contains(&profile) {
            for component in record.manifest["components"].as_array().into_iter().flatten() {
                let received = format!("0 < components/{}/net_bytes/in", text(component, "/name"));
                trial.hold(&mut claims, &[&received]);
            }
        }
        if lab == "trade-processor" {
            let by_id = trial.summary["loss"]["by_id"] == true;
            claims.claim(by_id, || format!("{}: the loss is not counted by id", trial.case));
            trial.hold(&mut claims, &["loss/lost_max == 0", "loss/doubled == 0"]);
        }
    }
    claims.into_outcome(profile).with_context(|| ran.stderr)?;
    Ok(record.trials.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_runs_somewhere() {
        let elsewhere = ["quick", "careless", "slow-disk", "swarm-agents"];
        for lab in super::super::LABS {
            let plan = fs::read_to_string(lab.dir().join("plan.yaml")).unwrap();
            let plan: serde_json::Value = serde_saphyr::from_str(&plan).unwrap();
            for profile in plan["profiles"].as_object().unwrap().keys() {
                let runs =
                    SHORT.iter().any(|(of, names, _)| *of == lab.name && names.contains(&profile.as_str()));
                assert!(runs != elsewhere.contains(&profile.as_str()), "{}: {profile}", lab.name);
            }
        }
    }
}
