//! `--launch kubernetes`: agents are the pods of an Indexed Job, which `kubectl` applies.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{LEAVE_UNANNOUNCED, Launch, Queue, run};
use crate::args::SwarmArgs;
use crate::swarm::local::URL;

const PACKAGE: &str = "kubectl comes with Kubernetes; on Debian it is in the package kubernetes-client";
/// The template of `deploy/kubernetes/job.yaml`, with marks where Jobs differ.
const TEMPLATE: &str = include_str!("job.yaml");

/// A Job, deleted on drop.
pub struct KubernetesJob {
    name: String,
    /// The user's arguments for `kubectl`.
    args: Vec<String>,
}

/// What differs between Jobs.
struct Job<'a> {
    name: &'a str,
    image: &'a str,
    program: &'a str,
    agents: usize,
    key: &'a str,
    /// The agent's argument for how long it waits for a run.
    unannounced: &'a str,
    allow_hosts: &'a [String],
    server: Access<'a>,
}

/// How agents reach the NATS server.
pub enum Access<'a> {
    /// By a URL that everyone may read.
    Url(&'a str),
    /// By a Secret, which holds the URL, a key for each slot, and perhaps certificates to trust.
    Secret { name: &'a str, has_ca: bool },
}

impl KubernetesJob {
    /// Applies the Job.
    ///
    /// # Errors
    /// In words: an option that [`asked`] misses; `kubectl` is not installed, or it refuses.
    pub fn apply(launch: &Launch<'_>) -> Result<KubernetesJob, String> {
        let (image, server) = asked(launch.args, launch.url)?;
        let program =
            launch.args.launch_program.as_deref().map(|path| path.to_str().ok_or("it is not UTF-8"));
        let program = program.transpose().map_err(|why| format!("--launch-program: {why}"))?;
        let name = format!("loadlab-{}", launch.run);
        let manifest = manifest(&Job {
            name: &name,
            image,
            program: program.unwrap_or("/bin/loadlab"),
            agents: launch.agents,
            key: launch.public_key,
            unannounced: LEAVE_UNANNOUNCED,
            allow_hosts: &launch.allow_hosts,
            server,
        });
        // Made before the Job is applied: if `kubectl` is interrupted, the Job may exist, and the drop deletes it.
        let job = KubernetesJob { name, args: launch.args.launch_arg.clone() };
        run(&mut job.kubectl(&["apply", "--filename", "-"]), &manifest, PACKAGE)?;
        Ok(job)
    }

    /// What was applied, in words.
    pub fn described(&self) -> String {
        format!("applied as Job {}", self.name)
    }

    /// The state of the Job and its pods, from the API server.
    pub fn queue(&self) -> Queue {
        let label = format!("app.kubernetes.io/instance={}", self.name);
        let mut command = self.kubectl(&["get", "jobs,pods", "--output", "json", "--selector", &label]);
        let printed = run(&mut command, "", PACKAGE);
        let listed = printed.and_then(|printed| {
            serde_json::from_str(&printed).map_err(|error| format!("kubectl printed no JSON: {error}"))
        });
        match listed {
            Ok(listed) => queue_of(&self.name, &listed),
            // The API server may be unreachable for a moment.
            Err(why) => Queue { text: why, is_over: false },
        }
    }

    fn kubectl(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.args(args).args(&self.args);
        command
    }
}

impl Drop for KubernetesJob {
    fn drop(&mut self) {
        let mut command = self.kubectl(&["delete", "job", &self.name, "--ignore-not-found", "--wait=false"]);
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The image, and how agents reach the server.
///
/// # Errors
/// In words: an option is missing.
pub fn asked<'a>(args: &'a SwarmArgs, url: &'a str) -> Result<(&'a str, Access<'a>), String> {
    let image = args.launch_image.as_deref();
    let image = image.ok_or("kubernetes needs --launch-image IMAGE, an image with loadlab in it")?;
    match &args.launch_creds {
        Some(name) => Ok((image, Access::Secret { name, has_ca: args.swarm_ca.is_some() })),
        None if url.contains('@') || args.swarm_ca.is_some() => Err(
            "the agents need the NATS server's credentials, and others can read a Job\nhint: --launch-creds \
                 SECRET names a Secret with them; deploy/README.md says how it is made"
                .to_owned(),
        ),
        None => Ok((image, Access::Url(url))),
    }
}

/// The manifest of a Job as YAML.
fn manifest(job: &Job<'_>) -> String {
    // JSON strings are YAML strings. Kubernetes replaces `$(NAME)` by the container's variable, and `$$(` by `$(`.
    let text = |text: &str| Value::from(text).to_string();
    let literal = |word: &str| text(&word.replace("$(", "$$("));
    let mut args = String::new();
    let mut arg = |word: String| args.push_str(&format!("\n            - {word}"));
    arg(text(job.unannounced));
    let (url, mounts, volumes) = match &job.server {
        Access::Url(url) => (format!("value: {}", literal(url)), String::new(), String::new()),
        Access::Secret { name, has_ca } => {
            arg(text("--creds=/etc/loadlab/slot"));
            arg(text("--slot=$(JOB_COMPLETION_INDEX)"));
            let mount = |path: &str, key: &str| {
                format!(
                    "\n            - {{ name: access, mountPath: /etc/loadlab/{path}, {key}, readOnly: true }}"
                )
            };
            // An agent sees only the key of its own slot.
            let mut mounts = mount("slot", "subPathExpr: slot-$(JOB_COMPLETION_INDEX)");
            if *has_ca {
                arg(text("--ca=/etc/loadlab/ca.crt"));
                mounts += &mount("ca.crt", "subPath: ca.crt");
            }
            (
                format!("valueFrom: {{ secretKeyRef: {{ name: {}, key: url }} }}", text(name)),
                mounts,
                format!(
                    "\n        - {{ name: access, secret: {{ secretName: {}, defaultMode: 0440 }} }}",
                    text(name)
                ),
            )
        }
    };
    for host in job.allow_hosts {
        arg(literal(&format!("--allow-host={host}")));
    }
    // Only the template is searched for marks, so a value may contain one.
    let parts: [(&str, String); 10] = [
        ("@NAME@", text(job.name)),
        ("@AGENTS@", job.agents.to_string()),
        ("@IMAGE@", text(job.image)),
        ("@PROGRAM@", literal(job.program)),
        ("@KEY@", literal(job.key)),
        ("@URL_NAME@", URL.to_owned()),
        ("@URL@", url),
        ("@ARGS@", args),
        ("@MOUNTS@", mounts),
        ("@VOLUMES@", volumes),
    ];
    let mut rest = TEMPLATE;
    let mut made = String::new();
    while let Some((before, after)) = rest.split_once('@') {
        let (mark, after) = after.split_once('@').unwrap_or((after, ""));
        let part = parts.iter().find(|(name, _)| name.trim_matches('@') == mark);
        made.push_str(before);
        made.push_str(part.map_or("", |(_, text)| text));
        rest = after;
    }
    made + rest
}

/// Counts pods by phase and reason.
fn queue_of(name: &str, listed: &Value) -> Queue {
    let items = listed["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut pods, mut is_over, mut why) = (BTreeMap::<String, usize>::new(), false, String::new());
    for item in items {
        let conditions = item["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if item["kind"] == "Job" {
            let end = conditions.iter().find(|condition| {
                condition["status"] == "True"
                    && ["Complete", "Failed"].map(Value::from).contains(&condition["type"])
            });
            if let Some(end) = end {
                is_over = true;
                why = format!(
                    ", and it has ended ({})",
                    end["reason"].as_str().unwrap_or("no reason is given")
                );
            }
            continue;
        }
        let container = &item["status"]["containerStatuses"][0]["state"];
        let reasons = [
            &container["waiting"]["reason"],
            &container["terminated"]["reason"],
            &item["status"]["reason"],
            conditions.iter().find(|c| c["status"] == "False").map_or(&Value::Null, |c| &c["reason"]),
        ];
        let phase = item["status"]["phase"].as_str().unwrap_or("Unknown");
        let state = match reasons.iter().find_map(|reason| reason.as_str()) {
            Some(reason) => format!("{phase} ({reason})"),
            None => phase.to_owned(),
        };
        *pods.entry(state).or_default() += 1;
    }
    let shown: Vec<String> = pods.iter().map(|(state, pods)| format!("{pods} {state}")).collect();
    let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
    Queue { text: format!("pods of Job {name}: {shown}{why}"), is_over }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job<'a>(server: Access<'a>, allow_hosts: &'a [String]) -> Job<'a> {
        Job {
            name: "loadlab",
            image: "loadlab",
            program: "/bin/loadlab",
            agents: 4,
            key: "set-the-public-key-of-the-coordinator",
            unannounced: "--leave-unannounced=15m",
            allow_hosts,
            server,
        }
    }

    /// `deploy/kubernetes/job.yaml` is the manifest that this module makes. `UPDATE_GOLDEN=1` writes it.
    #[test]
    fn the_job_to_deploy_is_the_one_that_is_launched() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes/job.yaml");
        let made = manifest(&job(Access::Secret { name: "loadlab", has_ca: true }, &[]));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &made).expect("it can be written");
        }
        assert_eq!(made, std::fs::read_to_string(path).expect("it is there"), "UPDATE_GOLDEN=1 writes it");
        assert!(!made.contains('@'), "{made}");
    }

    #[test]
    fn what_users_give_stays_text() {
        let hosts = ["a\" # b".to_owned(), "$(POD_NAME)@KEY@".to_owned()];
        let made = manifest(&job(Access::Url("nats://n.test:4222"), &hosts));
        for line in [
            "            - { name: LOADLAB_NATS, value: \"nats://n.test:4222\" }\n",
            "            - \"--allow-host=a\\\" # b\"\n",
            "            - \"--allow-host=$$(POD_NAME)@KEY@\"\n",
        ] {
            assert!(made.contains(line), "no {line} in:\n{made}");
        }
        for word in ["secret", "--creds", "--slot", "--ca"] {
            assert!(!made.contains(word), "{word} in:\n{made}");
        }
    }

    #[test]
    fn pods_are_counted_by_phase_and_reason() {
        let waits = json!({ "kind": "Pod", "status": { "phase": "Pending", "conditions":
            [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } });
        let pulls = json!({ "kind": "Pod", "status": { "phase": "Pending", "containerStatuses":
            [{ "state": { "waiting": { "reason": "ImagePullBackOff" } } }] } });
        let listed = json!({ "items": [{ "kind": "Job", "status": {} }, waits, waits, pulls] });
        let queue = queue_of("j", &listed);
        assert_eq!(queue.text, "pods of Job j: 1 Pending (ImagePullBackOff), 2 Pending (Unschedulable)");
        assert!(!queue.is_over);
        let failed = json!({ "items": [{ "kind": "Job", "status": { "conditions":
            [{ "type": "Failed", "status": "True", "reason": "FailedIndexes" }] } }] });
        let queue = queue_of("j", &failed);
        assert_eq!(queue.text, "pods of Job j: none, and it has ended (FailedIndexes)");
        assert!(queue.is_over);
    }
}
