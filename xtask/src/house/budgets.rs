//! How long functions and files may be, and how many arguments a function may take.

use anyhow::Result;

use super::{Findings, House};

/// Lines of a function, from `fn` to its last brace.
const FUNCTION_LINES: usize = 70;
/// Lines of a file that are no tests.
const FILE_LINES: usize = 700;
/// Arguments of a function beside self.
const ARGUMENTS: usize = 5;

/// Functions are short.
pub fn functions(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped() {
        for function in source.functions() {
            findings.look();
            let lines = function.lines.end() - function.lines.start() + 1;
            let place = format!("{}::{}", source.path, function.name);
            if lines > FUNCTION_LINES && !house.exceptions.allow("function-lines", &place, lines) {
                findings.breach(
                    &source.path,
                    *function.lines.start(),
                    format!("`{}` has {lines} lines", function.name),
                );
            }
        }
    }
    Ok(())
}

/// Files are short.
pub fn files(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped() {
        findings.look();
        let lines = source.lines_without_tests();
        if lines > FILE_LINES && !house.exceptions.allow("file-lines", &source.path, lines) {
            findings.breach(&source.path, 0, format!("{lines} lines without tests"));
        }
    }
    Ok(())
}

/// Functions take few arguments.
pub fn arguments(house: &House, findings: &mut Findings) -> Result<()> {
    for source in house.shipped() {
        for function in source.functions() {
            findings.look();
            let count = function.arguments;
            let place = format!("{}::{}", source.path, function.name);
            if count > ARGUMENTS && !house.exceptions.allow("arguments", &place, count) {
                findings.breach(
                    &source.path,
                    *function.lines.start(),
                    format!("`{}` takes {count} arguments", function.name),
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::breaches_in;

    const PATH: &str = "crates/a/src/lib.rs";

    fn of_lines(lines: usize) -> String {
        format!("//! A.\nfn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn long_functions() {
        assert!(breaches_in("function-lines", &[(PATH, &of_lines(70))]).is_empty());
        let found = breaches_in("function-lines", &[(PATH, &of_lines(71))]);
        assert_eq!(found, ["crates/a/src/lib.rs:2: `long` has 71 lines"]);
        let in_impl = "//! A.\nimpl A {\n    fn long() {\n".to_owned() + &"a();\n".repeat(80) + "}\n}\n";
        assert_eq!(breaches_in("function-lines", &[(PATH, &in_impl)]).len(), 1);
    }

    #[test]
    fn long_files_not_counting_tests() {
        let text = |code: usize, tests: usize| {
            format!(
                "//! A.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n",
                "// a\n".repeat(code - 1),
                "// t\n".repeat(tests)
            )
        };
        assert!(breaches_in("file-lines", &[(PATH, &text(700, 500))]).is_empty());
        let found = breaches_in("file-lines", &[(PATH, &text(701, 0))]);
        assert_eq!(found, ["crates/a/src/lib.rs: 701 lines without tests"]);
    }

    #[test]
    fn many_arguments_beside_self() {
        let text = "//! A.\ntrait T {\n    fn five(&self, a: u8, b: u8, c: u8, d: u8, e: u8);\n    \
            fn six(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8);\n}\n";
        assert_eq!(
            breaches_in("arguments", &[(PATH, text)]),
            ["crates/a/src/lib.rs:4: `six` takes 6 arguments"]
        );
    }
}
