//! Helpers shared by the tests of `loadlab run`: a folder with a plan, the binary run on it, its record read back.

pub mod engine;
pub mod front;
pub mod server;
pub mod swarm;

use crate::common::{OF_A_BUSY_MACHINE, ports};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use crate::common::skip;

/// The binary under test.
pub const LOADLAB: &str = env!("CARGO_BIN_EXE_loadlab");

/// How long a test waits for anything. No measurement depends on it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A separate folder for a test.
pub struct Lab {
    dir: tempfile::TempDir,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Lab {
    /// Creates an empty folder.
    pub fn new() -> Lab {
        Lab { dir: tempfile::tempdir().expect("a folder can be made") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file in the folder.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// Lines of a file that a plan's commands append to; empty if it does not exist.
    pub fn lines(&self, name: &str) -> Vec<String> {
        self.read(name).lines().map(str::to_owned).collect()
    }

    /// `loadlab` in this folder, without the caller's terminal settings, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(LOADLAB);
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
        command
    }

    /// Runs `loadlab` to its end.
    pub fn loadlab(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().expect("loadlab starts"))
    }

    /// Writes the plan and runs it; checks that nothing is left behind, whatever the result.
    #[track_caller]
    pub fn run(&self, plan: &str, args: &[&str]) -> Ran {
        self.file("plan.yaml", plan);
        let ran = self.loadlab(&[&["run", "plan.yaml", "--out", &self.run_name()], args].concat());
        assert_eq!(self.left_behind(), Vec::<String>::new(), "{}", ran.err);
        ran
    }

    /// Writes the plan and starts it, in its own process group.
    pub fn start(&self, plan: &str, args: &[&str]) -> Running {
        use std::os::unix::process::CommandExt;
        self.file("plan.yaml", plan);
        let mut command = self.command(&[&["run", "plan.yaml", "--out", &self.run_name()], args].concat());
        // Files, so that no one has to read the output while it runs.
        let open = |name: &str| std::fs::File::create(self.path().join(name)).expect("a file can be made");
        command.stdout(open("stdout")).stderr(open("stderr")).process_group(0);
        Running { child: command.spawn().expect("loadlab starts"), dir: self.path().to_owned() }
    }

    /// The run's name, unique to this test: cgroups and processes are found by it.
    pub fn run_name(&self) -> String {
        let name = self.path().file_name().expect("a temporary folder has a name").to_string_lossy();
        format!("run-{}", name.trim_start_matches(".tmp"))
    }

    /// The record of this lab's run.
    pub fn record(&self) -> Record {
        Record { dir: self.path().join(self.run_name()) }
    }

    /// What the run has left on this machine: processes, cgroups, scratch folder.
    pub fn left_behind(&self) -> Vec<String> {
        let name = self.run_name();
        let processes = processes_with(&format!("LOADLAB_RUN={name}-"));
        let processes = processes.iter().map(|pid| format!("process {pid}"));
        let cgroups = cgroups_of(&name).into_iter().map(|dir| dir.display().to_string());
        let scratch = Some(self.record().dir.join("scratch")).filter(|dir| dir.exists());
        processes.chain(cgroups).chain(scratch.map(|dir| dir.display().to_string())).collect()
    }
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts the exit code, and that standard error contains these texts.
    #[track_caller]
    pub fn expect(&self, code: i32, err_holds: &[&str]) -> &Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        for text in err_holds {
            assert!(self.err.contains(text), "no `{text}` in:\n{}", self.err);
        }
        self
    }

    /// Asserts the exit code that these trials call for. None may have failed; one may be INVALID only because this
    /// machine is busy, and undecided only if `may_be_undecided`, which is for answers that depend on the number of
    /// requests.
    #[track_caller]
    pub fn expect_however_busy(&self, summaries: &[Value], may_be_undecided: bool) {
        let code_of = |summary: &Value| match summary["verdict"].as_str() {
            Some("pass" | "none") => 0,
            Some("undecided") if may_be_undecided => 6,
            Some("invalid") => {
                let doubts = summary["doubts"].as_array().expect("doubts");
                let of_machine = |d: &&Value| OF_A_BUSY_MACHINE.iter().any(|kind| d["kind"] == *kind);
                let grave: Vec<&Value> = doubts.iter().filter(|d| d["grave"] == true).collect();
                assert!(!grave.is_empty() && grave.iter().all(of_machine), "{grave:?}");
                4
            }
            verdict => panic!("{verdict:?}: {summary}"),
        };
        let codes: Vec<i32> = summaries.iter().map(code_of).collect();
        // In order of precedence.
        let wanted = [4, 6].into_iter().find(|code| codes.contains(code)).unwrap_or(0);
        assert!(!codes.is_empty());
        self.expect(wanted, &[]);
    }

    /// Whether the run was refused because this host provides no limits. If so, the test is skipped, which is reported.
    #[track_caller]
    pub fn lacks_limits(&self) -> bool {
        let is_refused = self.code == Some(3) && self.err.contains("loadlab has no cgroup");
        if is_refused {
            skip::skip_for_limits("this host gives no limits");
        }
        is_refused
    }
}

/// A run in progress.
pub struct Running {
    pub child: Child,
    dir: PathBuf,
}

impl Running {
    /// Waits until standard error contains a text.
    #[track_caller]
    pub fn wait_for_output(&mut self, text: &str) {
        let ended = |child: &mut Child| child.try_wait().expect("it can be waited for").is_some();
        let reported = || std::fs::read_to_string(self.dir.join("stderr")).unwrap_or_default();
        let until = Instant::now() + TIMEOUT;
        while !reported().contains(text) {
            let reported = reported();
            assert!(
                Instant::now() < until && !ended(&mut self.child),
                "never printed `{text}`, but:\n{reported}"
            );
            nap();
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it can be signalled");
    }

    /// Signals the whole process group.
    pub fn signal_group(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process_group(pid, signal).expect("it can be signalled");
    }

    /// Waits for the run to end.
    pub fn end(mut self) -> Ran {
        let status = self.child.wait().expect("it can be waited for");
        let read = |name: &str| std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        Ran { code: status.code(), out: read("stdout"), err: read("stderr") }
    }
}

/// A run directory, read as plain files, as other tools would.
pub struct Record {
    pub dir: PathBuf,
}

impl Record {
    pub fn manifest(&self) -> Value {
        json(&self.dir.join("manifest.json"))
    }

    /// Folder of a trial of a case.
    pub fn trial(&self, case: &str, trial: u32) -> PathBuf {
        self.dir.join("cases").join(case).join(trial.to_string())
    }

    pub fn summary(&self, case: &str, trial: u32) -> Value {
        json(&self.trial(case, trial).join("summary.json"))
    }

    /// Lines of a JSONL file of a trial.
    pub fn lines(&self, case: &str, trial: u32, name: &str) -> Vec<Value> {
        let path = self.trial(case, trial).join(name);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// Events of one kind.
    pub fn events(&self, case: &str, trial: u32, kind: &str) -> Vec<Value> {
        let all = self.lines(case, trial, "events.jsonl");
        all.into_iter().filter(|e| e["event"] == kind).collect()
    }

    /// The output of `loadlab report` on it.
    #[track_caller]
    pub fn report(&self, format: &str) -> String {
        let output = Command::new(LOADLAB).args(["report", "--format", format]).arg(&self.dir).output();
        let ran = Ran::of(output.expect("loadlab starts"));
        ran.expect(0, &[]);
        ran.out
    }
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Pause between two checks for something that another process brings about.
#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at what others bring about, in a loop with an end"
)]
fn nap() {
    std::thread::sleep(Duration::from_millis(10));
}

/// The test server as a separate process, outside any plan; killed when dropped.
pub struct Served {
    child: Child,
    port: u16,
}

impl Served {
    /// Starts the server; `ways` is JSON without its braces.
    pub fn start(ways: &str) -> Served {
        // The server is given its port, as a plan's components are.
        let port = ports::unused().port();
        let exe = std::env::current_exe().expect("a test program has a path");
        let ways = format!("{{\"port\": {port}, \"name\": \"served\", {ways}}}");
        let mut command = Command::new(exe);
        command.args(server::ARGS).env("LAB_SERVER", ways).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the server starts");
        let served = Served { child, port };
        eventually("the server", || server::get(&served.url("/health")).ok());
        served
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Polls until there is a result.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        nap();
    }
}

/// Whether a trial's ticks show an answered request.
pub fn has_answers(ticks: &Path) -> bool {
    let text = std::fs::read_to_string(ticks).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut ticks = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    ticks.any(|tick| tick["ok"].as_u64() > Some(0))
}

/// Waits for a second of load with answers; in rounds of faults (`cargo xtask long`), also for a time that differs from round to
/// round, so that the fault may come at any moment.
pub fn moment_of_a_fault(lab: &Lab, case: &str, within: Duration) {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let ticks = lab.record().trial(case, 1).join("ticks.jsonl");
    eventually("a second of load with answers", || has_answers(&ticks).then_some(()));
    if let Ok(round) = std::env::var("LOADLAB_TEST_FAULTS") {
        let test = std::thread::current().name().map(str::to_owned);
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((round, test));
        hold_back(within.mul_f64(hash as f64 / u64::MAX as f64));
    }
}

/// Does nothing for a while.
#[expect(
    clippy::disallowed_methods,
    reason = "a fault or a slow network is simulated: nothing waits for it to be over"
)]
pub fn hold_back(time: Duration) {
    std::thread::sleep(time);
}

/// A component that runs the test server, as lines of a plan: `ways` is JSON without its braces, `more` are further
/// keys.
pub fn component(name: &str, ways: &str, more: &[&str]) -> String {
    let exe = std::env::current_exe().expect("a test program has a path");
    let mut text = String::new();
    let args: Vec<String> = server::ARGS.iter().map(|a| format!("\"{a}\"")).collect();
    let comma = if ways.is_empty() { "" } else { ", " };
    writeln!(text, "    {name}:").expect("text");
    writeln!(text, "      run: [{:?}, {}]", exe.display().to_string(), args.join(", ")).expect("text");
    writeln!(
        text,
        "      env: {{ LAB_SERVER: '{{\"port\": ${{port}}, \"name\": \"{name}\"{comma}{ways}}}' }}"
    )
    .expect("text");
    if !more.iter().any(|line| line.starts_with("port:")) {
        text.push_str("      port: auto\n");
    }
    if !more.iter().any(|line| line.starts_with("ready:")) {
        text.push_str("      ready: { http: \"http://127.0.0.1:${port}/health\" }\n");
    }
    for line in more {
        writeln!(text, "      {line}").expect("text");
    }
    text
}

/// A whole plan: the components' lines, then the rest. If `rest` has no `load`, a short one on `web` is added.
pub fn plan(components: &[String], rest: &str) -> String {
    let mut text = format!("loadlab: 1\nname: test\nsystem:\n  components:\n{}", components.concat());
    text.push_str(rest);
    if !rest.contains("\nload:") && !rest.starts_with("load:") && !rest.contains("loads:") {
        text.push_str(LOAD);
    }
    text
}

/// Two users, forty requests in total.
pub const LOAD: &str =
    "load:\n  users: 2\n  requests: 40\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";

/// A load that lasts until it is stopped.
pub const LONG: &str = "load:\n  users: 2\n  duration: 10m\n  journey: [{ get: \"http://127.0.0.1:${components.web.port}/\" }]\n";

/// Processes whose environment contains a text, such as a folder's name.
pub fn processes_with(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if String::from_utf8_lossy(&environ).contains(text) {
            found.push(pid);
        }
    }
    found
}

/// Folders of a run in any cgroup hierarchy.
pub fn cgroups_of(run: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut look = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = look.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|t| t.is_dir()) {
                continue;
            }
            let path = entry.path();
            let is_run = path.parent().and_then(Path::file_name).is_some_and(|n| n == "loadlab");
            if is_run && entry.file_name().to_string_lossy().starts_with(run) {
                found.push(path.clone());
            }
            look.push(path);
        }
    }
    found
}
