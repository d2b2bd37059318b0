//! If nothing could be measured, the documents that the user asked for say so. Without that, a file of an earlier run
//! would still say that all is well.

use std::path::Path;

use clap::error::ContextKind;
use loadlab_analysis::Exit;
use loadlab_record::documents::manifest::RunEnded;
use loadlab_report::markup::escaped;
use loadlab_report::terminal::harmless_lines;
use serde_json::{Value, json};

use crate::exit::{CommandEnd, note};
use crate::output;

/// Documents that the user asked for.
pub struct Documents<'a> {
    /// What was to be measured.
    pub name: &'a str,
    /// `--junit`.
    pub junit: Option<&'a Path>,
    /// What the document of `--json` has besides the error; `None` if there is to be no document.
    pub json: Option<Value>,
}

impl Documents<'_> {
    /// Writes the documents: nothing was measured, for this reason.
    pub fn not_measured(&self, exit: Exit, why: impl std::fmt::Display) -> CommandEnd {
        self.refused(CommandEnd::error(exit, why))
    }

    /// Passes on the end of a command that measured nothing; the documents say why.
    pub fn refused(&self, ended: CommandEnd) -> CommandEnd {
        if let Some(why) = ended.message() {
            self.write(ended.exit(), why);
        }
        ended
    }

    /// Writes the documents of a command that measured nothing.
    pub fn write(&self, exit: Exit, why: &str) {
        self.junit(why);
        self.json(exit, why);
    }

    /// Prints only the JSON document.
    fn json(&self, exit: Exit, why: &str) {
        let Some(mut document) = self.json.clone() else { return };
        let is_interrupted = exit == Exit::Interrupted;
        document["ended"] = json!(if is_interrupted { RunEnded::Interrupted } else { RunEnded::Broken });
        document["exit"] = json!(exit.code());
        document["error"] = json!(why);
        output::print_json(&document);
    }

    /// Writes only the JUnit XML.
    pub fn junit(&self, why: &str) {
        let written = self.junit.map(|path| output::write_file(path, &junit(self.name, why)));
        if let Some(Err(error)) = written {
            note(&error);
        }
    }
}

/// JUnit XML with one test, which is an error.
fn junit(name: &str, why: &str) -> String {
    // XML does not allow control characters.
    let text = |text: &str| escaped(&harmless_lines(text)).replace('\n', "&#10;");
    let (name, why) = (text(name), text(why));
    let first = why.split("&#10;").next().unwrap_or_default();
    let counts = "tests=\"1\" failures=\"0\" errors=\"1\"";
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{name}\" {counts}>\n  <testsuite name=\"{name}\" \
         {counts}>\n    <testcase classname=\"{name}\" name=\"the measurement can be trusted\">\n      <error \
         message=\"{first}\">{why}</error>\n    </testcase>\n  </testsuite>\n</testsuites>\n"
    )
}

/// Commands that write expectations as JUnit XML.
const WITH_JUNIT: [&str; 5] = ["run", "ab", "bench", "find", "resume"];

/// The file behind `--junit` of a command line that is wrong; `None` for help, and where that option is what is wrong.
pub fn junit_of<'w>(words: &'w [String], error: &clap::Error) -> Option<&'w str> {
    const OPTION: &str = "--junit";
    let has_it = words.first().is_some_and(|command| WITH_JUNIT.contains(&command.as_str()));
    let is_wrong = error.get(ContextKind::InvalidArg).is_some_and(|arg| arg.to_string().starts_with(OPTION));
    if !has_it || !error.use_stderr() || is_wrong {
        return None;
    }
    let file =
        words.iter().zip(words.iter().skip(1)).find_map(|(word, next)| (word == OPTION).then_some(next));
    let file = file.map(String::as_str).filter(|file| !file.starts_with('-'));
    file.or_else(|| words.iter().find_map(|word| word.strip_prefix(OPTION)?.strip_prefix('=')))
}

/// Whether a command line that cannot be parsed asks for a JSON document from a command that prints one even if nothing
/// was measured.
pub fn wants_json(words: &[String], error: &clap::Error) -> bool {
    const COMMANDS: [&str; 4] = ["run", "ab", "find", "resume"];
    let has_it = words.first().is_some_and(|command| COMMANDS.contains(&command.as_str()));
    has_it && error.use_stderr() && words.iter().any(|word| word == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_test() {
        insta::assert_snapshot!(junit("a & b", "no \"agent\" came\u{1b}[1m\nhint: start <one>"), @r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="a &amp; b" tests="1" failures="0" errors="1">
          <testsuite name="a &amp; b" tests="1" failures="0" errors="1">
            <testcase classname="a &amp; b" name="the measurement can be trusted">
              <error message="no &quot;agent&quot; came�[1m">no &quot;agent&quot; came�[1m&#10;hint: start &lt;one&gt;</error>
            </testcase>
          </testsuite>
        </testsuites>
        "#);
    }
}
