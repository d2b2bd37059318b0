//! If nothing could be measured, the documents that the user asked for say so. Without that, a file of an earlier run
//! would still say that all is well.

use std::path::Path;

use loadlab_analysis::Exit;
use loadlab_record::documents::manifest::RunEnded;
use loadlab_report::markup::escaped;
use loadlab_report::terminal::harmless_lines;
use serde_json::{Value, json};

use crate::exit::{Ended, note};
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
    pub fn not_measured(&self, exit: Exit, why: impl std::fmt::Display) -> Ended {
        self.refused(Ended::error(exit, why))
    }

    /// Passes on the end of a command that measured nothing; the documents say why.
    pub fn refused(&self, ended: Ended) -> Ended {
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
