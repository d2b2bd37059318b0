//! `--launch slurm`: agents are the tasks of a job array.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::{Launch, Queue, run};
use crate::swarm::local::URL;

const PACKAGE: &str = "on Debian and Ubuntu it is in the package slurm-client";
/// States of tasks that have not ended.
const ALIVE: [&str; 7] =
    ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING"];

/// A job array, cancelled on drop.
pub struct SlurmJob {
    id: String,
    /// The cluster that it was submitted to, if Slurm names one.
    cluster: Option<String>,
}

impl SlurmJob {
    /// Submits the job array.
    ///
    /// # Errors
    /// In words: Slurm's commands are not installed, or it refuses.
    pub fn submit(launch: &Launch<'_>) -> Result<SlurmJob, String> {
        let script = script(launch)?;
        let mut command = Command::new("sbatch");
        command.args(["--parsable", "--job-name=loadlab", "--no-requeue", "--output=/dev/null"]);
        command.arg(format!("--array=0-{}", launch.agents - 1));
        // The URL may hold credentials. Other users can see the command lines and scripts of jobs, but not their
        // environments.
        command.arg("--export=ALL").env(URL, launch.url);
        command.args(&launch.args.launch_arg);
        let printed = run(&mut command, &script, PACKAGE)?;
        // With more than one cluster, the name of the cluster follows the id.
        let (id, cluster) = match printed.trim().split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (printed.trim(), None),
        };
        match !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) {
            true => Ok(SlurmJob { id: id.to_owned(), cluster }),
            false => Err(format!("sbatch printed `{}` instead of a job's number", printed.trim())),
        }
    }

    /// The option that names its cluster.
    fn of_cluster(&self) -> Option<String> {
        self.cluster.as_ref().map(|cluster| format!("--clusters={cluster}"))
    }

    /// What was submitted, in words.
    pub fn described(&self) -> String {
        format!("submitted as Slurm job {}", self.id)
    }

    /// The state of its tasks, from `squeue`.
    pub fn queue(&self) -> Queue {
        let mut command = Command::new("squeue");
        command.args(["--noheader", "--array", "--states=all", "--format=%T %r", "--jobs", &self.id]);
        command.args(self.of_cluster());
        match run(&mut command, "", PACKAGE) {
            Ok(printed) => queue_of(&self.id, &printed),
            // The controller may be unreachable for a moment.
            Err(why) => Queue { text: why, is_over: false },
        }
    }
}

impl Drop for SlurmJob {
    fn drop(&mut self) {
        let mut command = Command::new("scancel");
        command.args(self.of_cluster());
        command.args(["--quiet", &self.id]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = command.status();
    }
}

/// The script that each task runs.
fn script(launch: &Launch<'_>) -> Result<String, String> {
    let program = launch.program()?;
    let program = program.to_str().ok_or("the path of the program is not UTF-8")?.to_owned();
    let mut args = launch.agent_args();
    if let Some(ca) = &launch.args.swarm_ca {
        let ca = std::path::absolute(ca).map_err(|error| format!("{}: {error}", ca.display()))?;
        args.extend(["--ca".to_owned(), ca.display().to_string()]);
    }
    let words: Vec<String> = std::iter::once(program).chain(args).map(|word| quoted(&word)).collect();
    let mut line =
        format!("exec {} --name \"slurm-${{SLURM_ARRAY_JOB_ID}}-${{SLURM_ARRAY_TASK_ID}}\"", words.join(" "));
    if let Some(creds) = &launch.args.launch_creds {
        let creds = quoted(creds).replace("{slot}", "'\"${SLURM_ARRAY_TASK_ID}\"'");
        line.push_str(&format!(" --creds {creds} --slot \"${{SLURM_ARRAY_TASK_ID}}\""));
    }
    Ok(format!("#!/bin/sh\n{line}\n"))
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Counts tasks by state and reason; each line of `squeue` is a task.
fn queue_of(id: &str, printed: &str) -> Queue {
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    // Of another cluster, its name comes first.
    let is_task = |line: &&str| !line.is_empty() && !line.starts_with("CLUSTER:");
    for line in printed.lines().map(str::trim).filter(is_task) {
        *states.entry(line).or_default() += 1;
    }
    let is_over = !states.keys().any(|line| ALIVE.contains(&line.split(' ').next().unwrap_or_default()));
    let shown = states.iter().map(|(line, tasks)| {
        let (state, reason) = line.split_once(' ').unwrap_or((line, ""));
        match reason.trim().trim_matches(['(', ')']) {
            "" | "None" => format!("{tasks} {state}"),
            reason => format!("{tasks} {state} ({reason})"),
        }
    });
    let shown: Vec<String> = shown.collect();
    let text = match shown.is_empty() {
        true => format!("Slurm has no tasks of job {id} any more"),
        false => format!("tasks of Slurm job {id}: {}", shown.join(", ")),
    };
    Queue { text, is_over }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SwarmArgs;

    #[test]
    fn tasks_are_counted_by_state_and_reason() {
        let queue = queue_of("7", "PENDING Resources\nRUNNING None\nPENDING Resources\n");
        assert_eq!(queue.text, "tasks of Slurm job 7: 2 PENDING (Resources), 1 RUNNING");
        assert!(!queue.is_over);
        let queue = queue_of("7", "FAILED NonZeroExitCode\nFAILED NonZeroExitCode\n");
        assert_eq!(queue.text, "tasks of Slurm job 7: 2 FAILED (NonZeroExitCode)");
        assert!(queue.is_over);
        assert!(queue_of("7", "\n").is_over);
    }

    #[test]
    fn a_script_holds_no_url_and_quotes_what_it_was_given() {
        let args = SwarmArgs {
            launch_program: Some("/opt/it's/loadlab".into()),
            launch_creds: Some("/shared/slot-{slot}".into()),
            ..SwarmArgs::default()
        };
        let launch = Launch {
            args: &args,
            url: "nats://me:secret@a.test:4222",
            run: "1",
            agents: 2,
            public_key: "UAB",
            allow_hosts: vec!["$(reboot)".to_owned()],
        };
        assert_eq!(
            script(&launch).expect("a script"),
            "#!/bin/sh\nexec '/opt/it'\\''s/loadlab' 'agent' '--once' '--leave-unannounced=60s' '--coordinator-key' 'UAB' \
             '--allow-host' '$(reboot)' --name \"slurm-${SLURM_ARRAY_JOB_ID}-${SLURM_ARRAY_TASK_ID}\" --creds \
             '/shared/slot-'\"${SLURM_ARRAY_TASK_ID}\"'' --slot \"${SLURM_ARRAY_TASK_ID}\"\n"
        );
    }
}
