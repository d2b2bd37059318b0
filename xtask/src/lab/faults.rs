//! Faults planted in copies of the labs. The lab's checks must find each of them: a check that cannot fail is
//! worthless. `cargo xtask test` shows that the labs without a fault pass the same checks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::{Claims, LABS, Lab, Record, built, loadlab};
use crate::command::{LONGEST, captured, program, say};
use crate::root::{root, target};
use crate::steps::Outcome;

/// A change to one file of a lab.
struct Fault {
    lab: &'static str,
    what: &'static str,
    file: &'static str,
    /// Text that occurs once in the file, and its replacement.
    change: (&'static str, &'static str),
    case: &'static str,
    /// Part of the assertion that must fail.
    found_by: &'static str,
}

const FAULTS: [Fault; 10] = [
    Fault {
        lab: "message-inserts",
        what: "a server that stores at once",
        file: "service/server.js",
        change: (
            "  kept.push(request.body);\n  quiet.refresh();\n  response.sendStatus(202);\n",
            "  insert(request.body).then(() => response.sendStatus(202), lost);\n",
        ),
        case: "grouped, server killed",
        found_by: "`0 < loss/lost_min`",
    },
    Fault {
        lab: "message-inserts",
        what: "a server that awaits what it should not",
        file: "service/server.js",
        change: (
            "  insert(request.body).catch(lost);\n  response.sendStatus(202);\n",
            "  insert(request.body).then(() => response.sendStatus(202), lost);\n",
        ),
        case: "async, server killed",
        found_by: "`0 < loss/lost_min`",
    },
    Fault {
        lab: "message-inserts",
        what: "back-pressure that awaits every insert",
        file: "service/server.js",
        change: (
            "    if (next && isMessage(...next)) accept(...next);\n  });\n  response.sendStatus(202);\n",
            "    if (next && isMessage(...next)) accept(...next);\n    response.sendStatus(202);\n  });\n",
        ),
        case: "bounded, server killed",
        found_by: "`0 < loss/lost_min`",
    },
    Fault {
        lab: "edge-tiers",
        what: "edges without their limit",
        file: "plan.yaml",
        change: ("limits: { cpu: \"${case.edge_cpu}\", memory", "limits: { memory"),
        case: "edges 1% CPU",
        found_by: "edge1: is not limited in CPU",
    },
    Fault {
        lab: "edge-tiers",
        what: "a tenth of the requests reset",
        file: "load-balancer.conf.template",
        change: (
            "    server {\n",
            "    split_clients $request_id $unlucky { 10% 1; * 0; }\n    reset_timedout_connection on;\n    server {\n        \
             if ($unlucky) { return 444; }\n",
        ),
        case: "control",
        found_by: "requests/failed + connections/resent_after_reset|0 <= 0.05",
    },
    Fault {
        lab: "index-page",
        what: "a page with nine records",
        file: "service/src/stores.rs",
        change: ("limit(LATEST)", "limit(LATEST - 1)"),
        case: "users=10",
        found_by: "< bytes/received <",
    },
    Fault {
        lab: "index-page",
        what: "views that are not counted",
        file: "service/src/stores.rs",
        change: ("\"$inc\": { \"value\": 1_i64 }", "\"$inc\": { \"value\": 0_i64 }"),
        case: "users=10",
        found_by: "`loss/lost_min == 0`",
    },
    Fault {
        lab: "stair-stepper",
        what: "an allocator with another's name",
        file: "plan.yaml",
        change: ("--features ${case.allocator} ", "--features system "),
        case: "size=medium, allocator=jemalloc",
        found_by: "the build for jemalloc says of itself",
    },
    Fault {
        lab: "stair-stepper",
        what: "a service that holds nothing while it waits",
        file: "service/src/widgets.rs",
        change: (
            "    let hoard = Hoard::gather(&body)?;\n    tokio::time::sleep(settings.sleep).await;\n",
            "    tokio::time::sleep(settings.sleep).await;\n    let hoard = Hoard::gather(&body)?;\n",
        ),
        case: "size=medium, allocator=jemalloc",
        found_by: "rate_per_s/ok < probes/live/max",
    },
    Fault {
        lab: "trade-processor",
        what: "a filter that lets wrong messages pass",
        file: "service/src/trade.js",
        change: ("if (!COUNTRIES.has(originatingCountry)) return", "if (false) return"),
        case: "all well",
        found_by: "<= probes/stored/last <=",
    },
];

/// Plants each fault, as a step of `cargo xtask long`.
///
/// # Errors
/// A lab does not run, or its checks do not find the fault.
pub fn long() -> Outcome {
    built()?;
    let found = FAULTS.iter().map(|fault| Ok((fault, fault.is_found()?))).collect::<Result<Vec<_>>>()?;
    let missed: Vec<&str> = found.iter().filter(|(_, found)| !found).map(|(fault, _)| fault.what).collect();
    ensure!(missed.is_empty(), "of {} faults not found: {}", FAULTS.len(), missed.join(", "));
    let early = loses("careless", "careless", "as it should be")?;
    let unsynced = loses("slow-disk", "synced every second", "synced before it answers")?;
    Ok(format!(
        "{} of {} faults found by the labs' checks; found by id: {early} messages lost by workers that acknowledge too early, \
         {unsynced} by a Redis that answers before its slow disk",
        found.len(),
        FAULTS.len()
    ))
}

/// How many messages a case of a profile of trade-processor loses, by id. Fails if it loses none, or if the other case
/// loses any.
fn loses(profile: &str, loser: &str, keeper: &str) -> Result<u64> {
    let lab = LABS.iter().find(|lab| lab.name == "trade-processor").context("no row of trade-processor")?;
    let out = target().join("xtask/faults").join(profile);
    let _ = fs::remove_dir_all(&out);
    let mut command = program(loadlab());
    command.arg("run").arg(lab.dir().join("plan.yaml")).args(["--profile", profile, "--trials", "1"]);
    let ran = captured(command.args(["--quiet", "--out"]).arg(&out), LONGEST)?;
    let record = Record::read(&out).with_context(|| format!("{}\n{}", ran.stdout, ran.stderr))?;
    let loss = |case: &str, key: &str| -> Result<u64> {
        let trial = record.trials.iter().find(|trial| trial.case == case).context("a case is missing")?;
        ensure!(trial.summary["loss"]["by_id"] == true, "{case}: the loss is not counted by id");
        trial.summary["loss"][key].as_u64().with_context(|| format!("{case}: no `{key}` is known"))
    };
    let lost = loss(loser, "lost_min")?;
    ensure!(lost > 0, "{profile}: `{loser}` is said to lose nothing");
    let (missing, doubled) = (loss(keeper, "lost_max")?, loss(keeper, "doubled")?);
    ensure!(
        (missing, doubled) == (0, 0),
        "{profile}: `{keeper}` may have lost {missing} messages, and doubled {doubled}"
    );
    say(&format!("{:<16} {loser}: {lost} messages lost, found by id", lab.name));
    Ok(lost)
}

impl Fault {
    /// Runs the copy of the lab, and reports whether the assertion about the fault failed.
    fn is_found(&self) -> Result<bool> {
        let lab = LABS.iter().find(|lab| lab.name == self.lab).context("a lab without a row")?;
        let copy = self.planted(lab)?;
        let out = target().join("xtask/faults/record");
        let _ = fs::remove_dir_all(&out);
        let mut command = program(loadlab());
        command.arg("run").arg(copy.join("plan.yaml")).args(["--profile", "quick", "--quiet"]);
        command.args(["--case", self.case, "--out"]).arg(&out);
        let ran = captured(&mut command, LONGEST)?;
        let record = Record::read(&out).with_context(|| format!("{}\n{}", ran.stdout, ran.stderr))?;
        let mut claims = Claims::default();
        record.check(lab, &mut claims)?;
        (lab.own)(&record, &mut claims)?;
        let is_found = claims.breaks(self.found_by);
        say(&format!("{:<16} {}: {}", self.lab, self.what, if is_found { "found" } else { "NOT FOUND" }));
        Ok(is_found)
    }

    /// Copies the lab and plants the fault. The copy includes what was built before, so that only what differs is
    /// rebuilt.
    fn planted(&self, lab: &Lab) -> Result<PathBuf> {
        let labs = target().join("xtask/faults/labs");
        let copy = labs.join(self.lab);
        let _ = fs::remove_dir_all(&copy);
        fs::create_dir_all(&labs)?;
        if !labs.join("parts").exists() {
            std::os::unix::fs::symlink(root().join("labs/parts"), labs.join("parts"))?;
        }
        let mut command = program("cp");
        captured(command.arg("--archive").arg(lab.dir()).arg(&labs), LONGEST)?.ok("cp")?;
        self.plant(&copy)?;
        Ok(copy)
    }

    /// Changes the file in a folder with the lab's files.
    fn plant(&self, dir: &Path) -> Result<()> {
        let file = dir.join(self.file);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (from, to) = self.change;
        match text.matches(from).count() {
            1 => Ok(fs::write(&file, text.replace(from, to))?),
            n => bail!("{} has {n} times what {} is planted at", file.display(), self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_place() {
        for fault in &FAULTS {
            let lab = LABS.iter().find(|lab| lab.name == fault.lab).expect(fault.lab);
            let dir = tempfile::tempdir().unwrap();
            let copy = dir.path().join(fault.file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(lab.dir().join(fault.file), copy).unwrap();
            let read = || fs::read_to_string(dir.path().join(fault.file)).unwrap();
            let before = read();
            fault.plant(dir.path()).unwrap_or_else(|error| panic!("{}: {error:#}", fault.what));
            assert!(read() != before && read().contains(fault.change.1), "{}", fault.what);
        }
    }
}
