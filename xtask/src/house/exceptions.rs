//! `house-exceptions.txt`: what may break a rule, each line with its reason.
//!
//! ```text
//! RULE | PATH or PATH::ITEM, a `*` at the end stands for anything | the most it may reach, or nothing | why
//! ```

use std::cell::Cell;

use anyhow::{Context, Result, ensure};

/// The list, relative to the repository.
pub const FILE: &str = "xtask/house-exceptions.txt";

/// All exceptions.
#[derive(Default)]
pub struct Exceptions(Vec<Exception>);

struct Exception {
    line: usize,
    rule: String,
    place: String,
    most: Option<usize>,
    used: Cell<bool>,
}

impl Exceptions {
    /// Reads the list.
    ///
    /// # Errors
    /// A line without its four parts, an unknown rule, or no reason.
    pub fn parse(text: &str) -> Result<Exceptions> {
        let mut all = Vec::new();
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let parse = || -> Result<Exception> {
                let parts: Vec<_> = line.splitn(4, '|').map(str::trim).collect();
                let [rule, place, most, why] = parts.as_slice() else {
                    anyhow::bail!("expected `rule | place | most | why`");
                };
                ensure!(super::RULES.iter().any(|r| r.name == *rule), "there is no rule `{rule}`");
                ensure!(!why.is_empty(), "no reason is given");
                let most = if most.is_empty() { None } else { Some(most.parse()?) };
                Ok(Exception {
                    line: i + 1,
                    rule: (*rule).to_owned(),
                    place: (*place).to_owned(),
                    most,
                    used: Cell::new(false),
                })
            };
            all.push(parse().with_context(|| format!("{FILE}:{}", i + 1))?);
        }
        Ok(Exceptions(all))
    }

    /// Whether something may break a rule: `place` is its path, or path and item; `amount` what it reaches.
    pub fn allow(&self, rule: &str, place: &str, amount: usize) -> bool {
        let mut allowed = false;
        for exception in self.0.iter().filter(|e| e.rule == rule && e.covers(place)) {
            exception.used.set(true);
            allowed |= exception.most.is_none_or(|most| amount <= most);
        }
        allowed
    }

    /// Those that nothing needed, after all rules were checked.
    pub fn unused(&self) -> Vec<String> {
        let unused = self.0.iter().filter(|e| !e.used.get());
        unused.map(|e| format!("{FILE}:{}: {} | {}", e.line, e.rule, e.place)).collect()
    }
}

impl Exception {
    fn covers(&self, place: &str) -> bool {
        match self.place.strip_suffix('*') {
            Some(start) => place.starts_with(start),
            None => place == self.place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_needs_a_rule_a_place_and_a_reason() {
        for (line, expect) in [
            ("unsafe | a.rs |", "expected `rule | place | most | why`"),
            ("unsave | a.rs | | why", "there is no rule `unsave`"),
            ("unsafe | a.rs | | ", "no reason is given"),
            ("unsafe | a.rs | many | why", "invalid digit"),
        ] {
            let error = format!("{:#}", Exceptions::parse(line).err().unwrap());
            assert!(error.contains(expect), "{line}: {error}");
        }
        assert!(
            Exceptions::parse("# a remark\n\nunsafe | a/* | | why\n").unwrap().allow("unsafe", "a/b.rs", 1)
        );
    }
}
