//! Flags of other load generators: the message for a mistake that another tool's flag explains. If two tools mean
//! different things by one flag, both are named. What was typed is repeated only if it is a flag or a number: anything
//! else may be a credential.

mod answers;
mod flags;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use answers::ANSWERS;
use flags::{FLAGS, Meaning, NOT_DURATION, NOT_THREADS, OF_BENCH};

/// The message for an error of the parser, if another tool's flag explains it.
pub fn explanation(error: &clap::Error, command: &str, words: &[String]) -> Option<String> {
    if !["bench", "run", "find"].contains(&command) {
        return None;
    }
    let stopped = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) => typed.as_str(),
        _ => "",
    };
    if let Some(word) = words.iter().find_map(|word| with_one_dash(word)) {
        return Some(word.explained(command));
    }
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let flag = stopped.split('=').next().unwrap_or_default();
            if let Some((_, meanings)) = FLAGS.iter().find(|(known, _)| *known == flag) {
                return Some(foreign(flag, meanings, command));
            }
            if let (Some((_, wish)), true) = (OF_BENCH.iter().find(|(f, _)| *f == flag), command != "bench") {
                return Some(message(
                    &format!("`loadlab {command}` has no `{flag}`"),
                    &[("", *wish)],
                    command,
                ));
            }
            // `-q 100` is `-q` and a stray number.
            let before =
                words.iter().position(|word| word == stopped).and_then(|at| words.get(at.checked_sub(1)?));
            let is_number = !stopped.is_empty() && stopped.chars().all(|c| c.is_ascii_digit());
            (before.is_some_and(|word| word == "-q") && is_number).then(|| {
                let (_, meanings) = FLAGS.iter().find(|(flag, _)| *flag == "-q").unwrap_or(&FLAGS[0]);
                message("`-q` is short for `--quiet` and takes no value", meanings, command)
            })
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => bad_value(error, stopped, command),
        _ => None,
    }
}

/// A flag such as `-rate=50` of tools that write long names with one dash.
struct OneDash {
    flag: String,
    meanings: Option<&'static [Meaning]>,
}

impl OneDash {
    fn explained(&self, command: &str) -> String {
        match self.meanings {
            Some(meanings) => foreign(&self.flag, meanings, command),
            None => {
                format!("`{}` has one dash\nhint: names of options have two: `-{}`", self.flag, self.flag)
            }
        }
    }
}

/// The word as such a flag; `None` if it is a short option with its value, or a value.
fn with_one_dash(word: &str) -> Option<OneDash> {
    let flag = word.split('=').next().unwrap_or_default();
    if flag.len() < 3 || flag.starts_with("--") || !flag.starts_with('-') {
        return None;
    }
    if let Some((_, meanings)) = FLAGS.iter().find(|(known, _)| *known == flag) {
        return Some(OneDash { flag: flag.to_owned(), meanings: Some(meanings) });
    }
    let long = format!("-{flag}");
    let is_ours = OF_BENCH.iter().any(|(known, _)| *known == long);
    is_ours.then(|| OneDash { flag: flag.to_owned(), meanings: None })
}

fn foreign(flag: &str, meanings: &[Meaning], command: &str) -> String {
    message(&format!("`loadlab {command}` has no `{flag}`"), meanings, command)
}

/// What is wrong, and the equivalent here for each meaning.
fn message(what: &str, meanings: &[Meaning], command: &str) -> String {
    let mut out = what.to_owned();
    for (who, wish) in meanings {
        let Some(answer) = ANSWERS.iter().find(|a| a.wish == *wish) else { continue };
        let here = match command {
            "run" => answer.run,
            "find" => answer.find,
            _ => answer.bench,
        };
        let whose = if who.is_empty() { String::new() } else { format!(" ({who})") };
        out.push_str(&format!("\nhint: {}{whose}: {here}", answer.is));
    }
    out
}

/// A value that an option cannot take: a number without its unit, or what another tool would understand.
fn bad_value(error: &clap::Error, stopped: &str, command: &str) -> Option<String> {
    let option = stopped.split_whitespace().next().unwrap_or_default();
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else { return None };
    let is_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_of_time = stopped.ends_with("<T>");
    match option {
        _ if is_of_time && loadlab_record::text::units::parse_duration_ns(value).is_ok() => None,
        _ if is_of_time && is_number => Some(format!(
            "`{option} {value}`: `{value}` is not a duration, it has no unit\nhint: {value} seconds are `{value}s`"
        )),
        // hey's and siege's: `-t 30S`, `-z 1M`.
        _ if is_of_time && loadlab_record::text::units::parse_duration_ns(&value.to_lowercase()).is_ok() => {
            let lower = value.to_lowercase();
            Some(format!("`{option} {value}`: units are small letters\nhint: write `{lower}`"))
        }
        "--duration" => {
            Some(message("the value of `-d` is not a duration such as `10s`", NOT_DURATION, command))
        }
        "--threads" if !is_number => {
            Some(message("the value of `-t` is not a number of load threads", NOT_THREADS, command))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_from;

    /// The message about a command line.
    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match parse_from(std::iter::once("loadlab".to_owned()).chain(words.iter().cloned())) {
            Ok(_) => "understood".to_owned(),
            Err(error) => explanation(&error, &words[0], &words).unwrap_or_else(|| error.to_string()),
        }
    }

    const URL: &str = "http://127.0.0.1:1/";

    /// For every flag in the table and each command: the flag does not exist, and the hint has its equivalent.
    #[test]
    fn every_flag_of_the_table_is_explained() {
        let all = crate::args::whole();
        let bench = all.find_subcommand("bench").unwrap();
        let longs: Vec<&str> = bench.get_arguments().filter_map(clap::Arg::get_long).collect();
        let shorts: Vec<char> = bench.get_arguments().filter_map(clap::Arg::get_short).collect();
        for (flag, meanings) in FLAGS {
            let exists = match flag.strip_prefix("--") {
                Some(long) => longs.contains(&long),
                None => flag.len() == 2 && flag.chars().nth(1).is_some_and(|c| shorts.contains(&c)),
            };
            if exists {
                continue;
            }
            let text = said(&format!("bench {URL} {flag}"));
            for (who, wish) in *meanings {
                let answer = ANSWERS.iter().find(|a| a.wish == *wish).unwrap();
                let hint = format!("hint: {} ({who}): {}", answer.is, answer.bench);
                assert!(text.contains(&hint), "{flag}: {text}");
                assert!(text.contains(&format!("has no `{flag}`")), "{flag}: {text}");
            }
        }
    }

    #[test]
    fn flags_of_others_by_what_they_mean() {
        for (line, holds) in [
            ("-z 10s", &["oha and hey", "`-d 10s`"][..]),
            ("-k", &["(curl and k6): `--insecure`", "(ab): always on; `--no-keep-alive`"]),
            ("-m POST", &["(oha, hey and autocannon): `-X POST`", "(h2load): `--http2 --streams N`"]),
            ("-R 100", &["`-r 1000/s`"]),
            ("-q 100", &["`-q` is short for `--quiet`", "requests per second (oha)", "of each worker (hey)"]),
            ("-T application/json", &["`-H 'Content-Type: application/json'`"]),
            ("-s script.lua", &["a script (wrk): a plan says what users do"]),
            ("--vus 5", &["concurrent users (k6): `-c 50`"]),
            ("--iterations=5", &["`-n 1000`"]),
            ("--latency", &["always reported: leave it out"]),
            ("--qps 5", &["`-r 1000/s`"]),
            ("--summary-export=x.json", &["`--json > FILE`"]),
            ("--concurrency 5", &["`-c 50`"]),
            ("--run-time 5m", &["`-d 10s`"]),
            ("-rate=50", &["has no `-rate`", "`-r 1000/s`"]),
            ("-duration=5s", &["has no `-duration`", "`-d 10s`"]),
            ("-cpus 2", &["has no `-cpus`", "`-t 2`"]),
            ("-users=5", &["`-users` has one dash", "`--users`"]),
            ("-disable-keepalive", &["`--no-keep-alive`"]),
            ("-d 5", &["it has no unit", "`5s`"]),
            ("--timeout 5", &["it has no unit", "`5s`"]),
            ("-d 30S", &["units are small letters", "`30s`"]),
            ("-d {\"a\":1}", &["not a duration", "the body (oha, hey and curl): `-b TEXT`"]),
            ("-t 30s", &["(oha and hey): `--timeout 30s`", "(ab and siege): `-d 10s`"]),
        ] {
            let text = said(&format!("bench {URL} {line}"));
            for part in holds {
                assert!(text.contains(part), "{line}: {text}");
            }
        }
        for (line, holds) in [
            ("run plan.yaml --vus 10", "`--set load.users=50`"),
            ("run plan.yaml -d 10s", "`--set load.duration=10s`"),
            ("run plan.yaml -c 10", "`--set load.users=50`"),
            ("run plan.yaml --insecure", "`--set load.tls.insecure=true`"),
            ("run plan.yaml -e A=b", "`--set PATH=VALUE`"),
            ("find plan.yaml --vus 10", "`--users 1..500`"),
            ("find plan.yaml -d 10s", "`--level-duration 10s`"),
            ("find plan.yaml -r 100", "`--rate 100/s..5000/s`"),
        ] {
            assert!(said(line).contains(holds), "{line}: {}", said(line));
        }
    }

    #[test]
    fn counts_may_have_a_letter() {
        for line in ["-c 10k", "-n 1M", "-c 2K -n 10_000", "-r 5k", "-r 5k/s", "-r 100/s --max-in-flight 20k"]
        {
            assert_eq!(said(&format!("bench {URL} {line}")), "understood", "{line}");
        }
        for (line, holds) in [
            ("-c ten", "expected a whole number such as `50` or `10k`"),
            ("-c 0", "must be from 1 to 10000000"),
            ("-c 1.5", "expected a whole number such as `50` or `10k`"),
            ("-n 0", "must be at least 1"),
            ("-t 0", "must be from 1 to 1024"),
            ("--trials 0 --vs http://127.0.0.1/", "must be from 5 to 1000"),
            ("-d 0", "must be greater than zero"),
            ("-d 400d", "must be at most a year"),
        ] {
            let text = said(&format!("bench {URL} {line}"));
            assert!(text.contains(holds), "{line}: {text}");
        }
    }

    /// What was typed may be a credential.
    #[test]
    fn values_are_not_repeated() {
        for line in ["-d s3cret-body", "-t s3cret", "--data=s3cret", "--bearer s3cret", "--user=a:s3cret"] {
            let text = said(&format!("bench {URL} {line}"));
            assert!(!text.contains("s3cret") && text.contains("hint: "), "{line}: {text}");
        }
    }
}
