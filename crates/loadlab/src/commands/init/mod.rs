//! `loadlab init`: a first plan that runs, from a URL, a Compose file or an example, with the schema for editors next
//! to it. Its output has passed the same check as `loadlab check`; it overwrites nothing without `--force`.

mod compose;

use std::path::{Path, PathBuf};

use loadlab_analysis::Exit;
use loadlab_load::target::Url;
use loadlab_plan::{Options, Plan};
use loadlab_record::store::files;
use loadlab_record::text::url::is_url;

use super::url_plan::{absolute, literal, written};
use crate::args::InitArgs;
use crate::exit::{CommandEnd, note};
use crate::{mask, output};

/// The file next to the plan that editors read keys from.
const SCHEMA: &str = "loadlab.schema.json";

/// Self-contained example plans, by name, with what they demonstrate.
const EXAMPLES: &[(&str, &str, &str)] = &[
    ("hello", "ten users on one small service", include_str!("examples/hello.yaml")),
    ("workers", "two cases compared: one worker against two", include_str!("examples/workers.yaml")),
    ("stages", "a rate that grows until the service cannot keep up", include_str!("examples/stages.yaml")),
    ("shop", "users who log in, look, and fill a cart", include_str!("examples/shop.yaml")),
    ("messages", "is everything stored that was accepted?", include_str!("examples/messages.yaml")),
];

/// Runs the command.
pub fn command(args: &InitArgs) -> CommandEnd {
    if args.list {
        output::print(&listed());
        return CommandEnd::with(Exit::Ok);
    }
    match text_of(args).and_then(|text| checked(args, text)).and_then(|text| write(args, &text)) {
        Ok(()) => CommandEnd::with(Exit::Ok),
        Err(why) => CommandEnd::error(Exit::BadPlan, why),
    }
}

fn listed() -> String {
    let width = EXAMPLES.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
    let lines = EXAMPLES.iter().map(|(name, about, _)| format!("{name:width$}  {about}\n"));
    lines.collect::<String>() + "\nloadlab init --example NAME writes one to plan.yaml\n"
}

/// The plan's text, without its first line, which names the schema.
fn text_of(args: &InitArgs) -> Result<String, String> {
    if let Some(name) = &args.example {
        let found = EXAMPLES.iter().find(|(example, ..)| example == name);
        let (.., text) = found.ok_or_else(|| {
            let names: Vec<String> = EXAMPLES.iter().map(|(name, ..)| format!("`{name}`")).collect();
            format!("there is no example `{name}`\nhint: the examples are {}", names.join(", "))
        })?;
        return Ok(text.replace("LOADLAB", &program()));
    }
    let from = args.from.as_deref().unwrap_or_default();
    if is_url(from) {
        return of_url(from);
    }
    if Path::new(from).is_file() {
        return compose::plan(Path::new(from), &dir_of(&args.out));
    }
    let looks_like_host = from.contains(':') && !from.contains('/') || from.starts_with("localhost");
    Err(match looks_like_host {
        true => format!("`{from}` is not a URL\nhint: write `http://{from}/`"),
        false => format!(
            "`{from}` is neither a URL nor a file\nhint: `loadlab init http://127.0.0.1:8080/`, `loadlab init compose.yaml`, or `loadlab init --list`"
        ),
    })
}

/// The program that examples start as their service: this one, quoted for a shell.
fn program() -> String {
    let path = std::env::current_exe().map_or_else(|_| "loadlab".to_owned(), |p| p.display().to_string());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match path.chars().all(is_plain) {
        true => path,
        // Within single quotes a shell changes nothing, and a doubled `$` is not a plan variable.
        false => literal(&format!("'{}'", path.replace('\'', "'\\''"))),
    }
}

/// A plan for a URL.
fn of_url(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let quoted = serde_json::Value::from(literal(&written(&url)));
    // That of a Unix socket is `localhost`.
    let host = url.host.as_str();
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let allowed = match is_loopback {
        true => String::new(),
        false => format!(
            "# Load only systems that are yours, or that you were asked to load.\nallow_hosts: [{}]\n",
            serde_json::Value::from(host)
        ),
    };
    let trust = match url.is_secure {
        true => {
            "  # tls: { insecure: true }           # accept any certificate, or trust one: { ca: FILE }\n"
        }
        false => "",
    };
    Ok(format!(
        "loadlab: 1
name: first
{allowed}# What is under test. `external` only watches it: its CPU and memory are then in the report.
# system:
#   components:
#     web: {{ external: {{ command: NAME_OF_THE_PROGRAM }} }}
load:
  users: 10                           # or `rate: 100/s`: requests fall due whatever the system does
  duration: 10s
{trust}  journey:
    - {{ get: {quoted} }}
# trials: 5                           # from five trials on, `loadlab compare` tells differences from chance
expect: [\"errors < 1%\"]               # such as \"p95 < 200ms\" as well; sets the exit code
"
    ))
}

/// The folder of a file.
fn dir_of(path: &Path) -> PathBuf {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// The whole text, after checking that it is a valid plan.
fn checked(args: &InitArgs, text: String) -> Result<String, String> {
    let text = format!("# yaml-language-server: $schema={SCHEMA}\n{text}");
    let dir = absolute(&dir_of(&args.out));
    let options = Options { plan_dir: Some(dir), ..Options::default() };
    let name = args.out.display().to_string();
    match Plan::parse(&name, &text, &options) {
        Ok(plan) => {
            mask::add_all(&plan.secrets);
            Ok(text)
        }
        Err(errors) => Err(format!("the plan made of it is not valid, and was not written:\n{errors}")),
    }
}

/// Writes plan and schema.
fn write(args: &InitArgs, text: &str) -> Result<(), String> {
    check_out(args)?;
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    if exists(&args.out) && !args.force {
        return Err(format!(
            "{} already exists\nhint: -o FILE writes another file, --force overwrites it",
            args.out.display()
        ));
    }
    let schema_path = dir_of(&args.out).join(SCHEMA);
    let schema = format!("{:#}\n", loadlab_plan::schema());
    let kept = std::fs::read_to_string(&schema_path).ok();
    output::write_file(&args.out, text)?;
    match kept {
        Some(kept) if kept == schema => {}
        Some(_) if !args.force => note(&format!(
            "{} differs from this version's schema and is kept; --force renews it",
            schema_path.display()
        )),
        _ => files::replace(&schema_path, schema.as_bytes())
            .map_err(|e| format!("cannot write {}: {e}", schema_path.display()))?,
    }
    let plan = args.out.display();
    output::print(&format!(
        "wrote {plan}, and {SCHEMA} beside it for editors\n\nnext:  loadlab check {plan}\n       loadlab run {plan}\n"
    ));
    Ok(())
}

/// Refuses to write the plan where something else has to be: what it is made from, or its schema.
fn check_out(args: &InitArgs) -> Result<(), String> {
    let out = args.out.display();
    if args.out.is_dir() {
        return Err(format!("{out} is a folder\nhint: -o FILE names the plan file"));
    }
    if args.out.file_name().is_some_and(|name| name == SCHEMA) {
        return Err(format!("{out} is where the schema goes\nhint: -o FILE writes the plan to another file"));
    }
    let real = |path: &Path| path.canonicalize().ok();
    let from = args.from.as_deref().and_then(|from| real(Path::new(from)));
    if from.is_some() && from == real(&args.out) {
        return Err(format!(
            "{out} is the Compose file that the plan is made from\nhint: -o FILE writes the plan to another file"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_plans() {
        for (url, holds) in [
            ("http://127.0.0.1:8080/a?b=1", "- { get: \"http://127.0.0.1:8080/a?b=1\" }"),
            ("http://[::1]:8080/", "- { get: \"http://[::1]:8080/\" }"),
            ("https://localhost/", "# tls: { insecure: true }"),
            ("http://shop.example/${x}", "- { get: \"http://shop.example/$${x}\" }"),
            ("http://shop.example/", "allow_hosts: [\"shop.example\"]"),
            ("unix:/run/web.sock:/", "- { get: \"unix:/run/web.sock:/\" }"),
            ("HTTP://127.0.0.1?b=1#top", "- { get: \"http://127.0.0.1/?b=1\" }"),
        ] {
            let text = of_url(url).unwrap();
            assert!(text.contains(holds), "{url}: {text}");
            assert_eq!(text.contains("allow_hosts"), url.contains("shop.example"), "{url}");
            Plan::parse("plan.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{url}: {e}"));
        }
        assert!(of_url("http://").is_err());
    }

    #[test]
    fn examples_are_plans() {
        for (name, about, text) in EXAMPLES {
            assert!(text.contains(&format!("name: {name}\n")) && about.len() < 60, "{name}");
            let text = text.replace("LOADLAB", "/usr/bin/loadlab");
            Plan::parse("plan.yaml", &text, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
