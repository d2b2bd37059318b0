//! Names of functions compiled by a Java virtual machine, which lists them on request through `jcmd`.

use std::path::{Path, PathBuf};

use loadlab_record::Secrets;
use loadlab_record::store::files;
use loadlab_system::{Command, OutputCommand, clock};

/// How long `jcmd` may take.
const LONGEST_NS: u64 = 20_000_000_000;
const MOST_BYTES: u64 = 64 << 10;

/// Whether this process is a Java virtual machine.
pub fn is_java(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| path.file_name().is_some_and(|name| name == "java"))
}

/// Makes the process write its list to `/tmp/perf-PID.map`, where profilers look for function names.
///
/// # Errors
/// There is no `jcmd`, or it fails; the reason in words.
pub fn list_functions(pid: u32) -> Result<(), String> {
    // A `jcmd` next to the `java` executable has the matching version.
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let beside = program.ok().map(|path| path.with_file_name("jcmd")).filter(|path| path.exists());
    let jcmd = beside.unwrap_or_else(|| PathBuf::from("jcmd")).display().to_string();
    let command = OutputCommand {
        command: Command::Argv(vec![jcmd, pid.to_string(), "Compiler.perfmap".to_owned()]),
        dir: Path::new("/").to_owned(),
        env: Vec::new(),
        secrets: Secrets::default(),
    };
    command.run(clock::now_ns() + LONGEST_NS, MOST_BYTES, &mut || false)?;
    let list = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    let failed = |error: std::io::Error| format!("{}: {error}", list.display());
    let text = std::fs::read_to_string(&list).map_err(failed)?;
    // Anyone may have put a link there: it is replaced, not followed.
    files::replace(&list, without_prefixes(&text).as_bytes()).map_err(failed)
}

/// Java writes `0x7fe4 0x270 NAME`, where other runtimes write, and readers expect, `7fe4 270 NAME`.
fn without_prefixes(list: &str) -> String {
    let line = |line: &str| {
        let line = line.strip_prefix("0x").unwrap_or(line);
        let line = line.split_once(' ').map(|(start, rest)| (start, rest.strip_prefix("0x").unwrap_or(rest)));
        line.map(|(start, rest)| format!("{start} {rest}\n")).unwrap_or_default()
    };
    list.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_java_becomes_one_that_others_read() {
        let list = "0x00007fe490 0x0270 byte a.B.c(java.lang.Object, int)\nodd\n7f 10 plain 0x1\n";
        assert_eq!(
            without_prefixes(list),
            "00007fe490 0270 byte a.B.c(java.lang.Object, int)\n7f 10 plain 0x1\n"
        );
    }
}
