//! Fenced blocks of commands in Markdown. A block fenced as `sh` is run; one fenced as `sh not-run: WHY` is only shown,
//! and states the reason.

/// A fenced block of commands.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// Line number of its opening fence, from 1.
    pub line: usize,
    pub text: String,
    /// Why the block is not run; an empty reason is a mistake.
    pub not_run: Option<String>,
}

const MARK: &str = "not-run";
/// Other names for the language; a block fenced with one of them would escape the checks.
const OTHERS: [&str; 5] = ["bash", "shell", "console", "shell-session", "zsh"];
/// A block without a language escapes the checks as well if it begins with one of these, or with a program's path.
const COMMANDS: [&str; 3] = ["cargo", "docker", "loadlab"];

/// All blocks of a page.
pub fn blocks(text: &str) -> Vec<Block> {
    fenced(text).into_iter().filter_map(|(line, info, text)| block(line, &info, text)).collect()
}

fn block(line: usize, info: &str, text: String) -> Option<Block> {
    let (language, rest) = info.split_once(char::is_whitespace).unwrap_or((info, ""));
    if language != "sh" {
        return None;
    }
    let not_run = rest.trim().strip_prefix(MARK).map(|why| why.trim_start_matches(':').trim().to_owned());
    Some(Block { line, text, not_run })
}

/// Mistakes in how blocks are fenced: line number and message.
pub fn mistakes(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, info, body) in fenced(text) {
        let (language, rest) = info.split_once(char::is_whitespace).unwrap_or((&info, ""));
        let first = body.split_whitespace().next().unwrap_or_default();
        if info.is_empty()
            && (COMMANDS.contains(&first) || first.starts_with("./") || first.starts_with("../"))
        {
            found.push((line, "commands are fenced as `sh`, and these as nothing".to_owned()));
        }
        if OTHERS.contains(&language) {
            found.push((line, format!("commands are fenced as `sh`, not as `{language}`")));
        }
        let marked = rest.trim().strip_prefix(MARK).and_then(|why| why.strip_prefix(':'));
        if language == "sh" && !rest.trim().is_empty() && marked.is_none_or(|why| why.trim().len() < 5) {
            found.push((line, format!("`sh {}` is not `sh not-run: WHY`", rest.trim())));
        }
    }
    found
}

/// Line, info string and text of each fenced block.
fn fenced(text: &str) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((i, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let body: Vec<_> =
            lines.by_ref().map(|(_, l)| l).take_while(|l| !l.trim_start().starts_with("```")).collect();
        found.push((i + 1, info.trim().to_owned(), body.join("\n")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_commands_are_found_and_marks_heeded() {
        let text = "# A\n\n```sh\necho 1\necho 2\n```\n\n```yaml\na: 1\n```\n\n\
            ```sh not-run: takes an hour\nsleep 3600\n```\ntext\n```sh\necho 3\n```\n";
        let block = |line, text: &str, why: Option<&str>| Block {
            line,
            text: text.into(),
            not_run: why.map(str::to_owned),
        };
        let expect = [
            block(3, "echo 1\necho 2", None),
            block(12, "sleep 3600", Some("takes an hour")),
            block(16, "echo 3", None),
        ];
        assert_eq!(blocks(text), expect);
        assert_eq!(mistakes(text), []);
    }

    #[test]
    fn a_block_that_is_not_run_says_why() {
        let lines = |text: &str| mistakes(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(
            lines("```sh not-run\nx\n```\n```sh not-run: \nx\n```\n```sh run: now\nx\n```\n"),
            [1, 4, 7]
        );
        assert_eq!(lines("```console\nx\n```\n```text\nx\n```\n"), [1]);
        assert_eq!(lines("```\ncargo run\n```\n```\n10 users\n```\n```\n./run.sh\n```\n"), [1, 7]);
    }
}
