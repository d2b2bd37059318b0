//! Steps, one after the other, each with a heading, the time taken, and a loud failure. The next step always follows,
//! so that one run shows everything that is wrong.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::command::{in_background, say};

/// What a step found, in words with figures (`12 files`), or why it failed.
pub type Outcome = Result<String>;

/// Steps done so far.
#[derive(Default)]
pub struct Steps {
    only: Vec<String>,
    done: Vec<Done>,
}

struct Done {
    name: String,
    took: Duration,
    outcome: Outcome,
}

impl Steps {
    /// No steps yet. If `only` is not empty, steps whose names contain none of its texts are skipped.
    pub fn new(only: &[String]) -> Steps {
        Steps { only: only.to_vec(), done: Vec::new() }
    }

    /// Does a step, whatever the results of earlier steps.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Outcome) {
        if !self.only.is_empty() && !self.only.iter().any(|part| name.contains(part.as_str())) {
            return;
        }
        say(&format!("\n==== {name}"));
        let since = Instant::now();
        let outcome = work();
        let done = Done { name: name.to_owned(), took: since.elapsed(), outcome };
        say(&done.line());
        self.done.push(done);
    }

    /// Does a step, and others in the background while it runs. The output of the others follows the step's.
    pub fn step_with(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Outcome,
        others: impl FnOnce(&mut Steps) + Send,
    ) {
        self.steps_with(|steps| steps.step(name, work), others);
    }

    /// Does steps, and others in the background while they run. The output of the others follows that of the steps.
    pub fn steps_with(&mut self, steps: impl FnOnce(&mut Steps), others: impl FnOnce(&mut Steps) + Send) {
        let mut background = Steps::new(&self.only);
        let said = thread::scope(|scope| {
            let beside = scope.spawn(|| in_background(|| others(&mut background)).1);
            steps(self);
            beside.join()
        });
        match said {
            Ok(said) => println!("{said}"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
        self.done.append(&mut background.done);
    }

    /// Prints the results of all steps; the last line counts them.
    pub fn finish(self) -> Result<ExitCode> {
        ensure!(!self.done.is_empty(), "no step has one of these names: {}", self.only.join(", "));
        println!("\n==== all steps");
        for done in &self.done {
            println!("{}", done.line());
        }
        let failed = self.done.iter().filter(|d| d.outcome.is_err()).count();
        println!("{} passed, {failed} failed", self.done.len() - failed);
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Done {
    fn line(&self) -> String {
        let took = self.took.as_secs_f64();
        match &self.outcome {
            Ok(found) => format!("ok      {:<28} {took:>7.1} s   {found}", self.name),
            Err(error) => {
                let text = format!("{error:#}").replace('\n', "\n          ");
                format!("FAILED  {:<28} {took:>7.1} s\n          {text}", self.name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stops_nothing_and_is_not_forgotten() {
        let mut steps = Steps::new(&[]);
        let mut order = Vec::new();
        steps.step("first", || Ok("1 file".to_owned()));
        steps.step("second", || anyhow::bail!("not found"));
        steps.step("third", || {
            order.push(3);
            Ok(String::new())
        });
        assert_eq!(order, [3]);
        assert!(steps.done[1].line().starts_with("FAILED  second"), "{}", steps.done[1].line());
        assert_eq!(format!("{:?}", steps.finish().unwrap()), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn steps_in_the_background_count_too() {
        let mut steps = Steps::new(&[]);
        steps.step_with(
            "first",
            || Ok(String::new()),
            |others| others.step("second", || anyhow::bail!("no")),
        );
        assert_eq!(steps.done.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert_eq!(format!("{:?}", steps.finish().unwrap()), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn a_name_that_no_step_has_is_an_error() {
        let mut steps = Steps::new(&["nothing".to_owned()]);
        steps.step("first", || Ok(String::new()));
        assert!(steps.finish().is_err());
    }
}
