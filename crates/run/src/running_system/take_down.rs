//! Takes down what has lived long enough: after each trial, and at the end of the run whatever is left.

use std::collections::BTreeSet;

use loadlab_analysis::Exit;
use loadlab_plan::{Case, ComponentKind, ComponentSpec, Lifetime};
use loadlab_record::documents::event::EventKind;
use loadlab_record::text::units::format_duration_ns;
use loadlab_system::{RelayCounts, Takedown};

use crate::running_system::error::BringUpError;
use crate::running_system::{RunningSystem, StartedComponent, lifetime, longest_lifetime};
use crate::state::{EventSink, TrialState};

impl RunningSystem {
    /// Takes down what does not outlive the trial that ended, newest first. `next` is the case of the next trial, if
    /// there is one. After a failed trial, only live components of the whole experiment stay up, and if it could not be
    /// seeded, nothing. Returns what could not be taken down, in words, with the exit code that calls for.
    pub fn end_trial(
        &mut self,
        next: Option<usize>,
        failed: bool,
        state: &TrialState,
    ) -> Vec<(String, Exit)> {
        let cut_off = self.cut_off();
        let is_half_seeded = std::mem::take(&mut self.is_half_seeded);
        let outlives = |lifetime: Lifetime, case: usize| outlives_trial(lifetime, case, next, failed);
        let project = self.project.iter().map(|project| (project.lifetime, project.case));
        let mut all = self.up.iter().map(|up| (up.lifetime, up.case)).chain(project);
        if is_half_seeded && all.any(|(lifetime, case)| outlives(lifetime, case)) {
            let text = "everything is taken down: `seed` failed, and a part of the data may be there";
            state.record_note(text.to_owned());
        }
        let lives_on = |lifetime: Lifetime, case: usize| !is_half_seeded && outlives(lifetime, case);
        self.take_down(state, &lives_on, &|up| {
            let is_well = up.component.ended().is_none() && !cut_off.contains(up.component.name());
            up.is_ready && is_well
        })
    }

    /// Takes down all of the longest lifetime if a part of it must come up anew: they are seeded together, and what lived
    /// on would be seeded a second time. While it searches, everything lives on, so nothing is taken down.
    ///
    /// # Errors
    /// Something could not be taken down.
    pub(super) fn restart_seeded(
        &mut self,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let is_seeded = self.seeded.as_ref().is_some_and(|(_, commands)| !commands.is_empty());
        let is_seeded_again = is_seeded && !case.system.seed.is_empty() && !self.is_searching;
        let Some(longest) = longest_lifetime(case).filter(|_| is_seeded_again) else { return Ok(()) };
        let is_longest = |own: Lifetime| lifetime(own) == longest;
        // A Compose file that cannot go on is taken down later, when it is brought up.
        let is_project_fit = self.project.is_some() && self.unfit(case).is_none();
        let file = case.system.compose.as_ref().filter(|compose| is_longest(compose.lifetime));
        let is_up = |name: &str| self.up.iter().any(|up| up.component.name() == name);
        let is_anew = |planned: &&ComponentSpec| {
            let is_started = matches!(planned.kind, ComponentKind::Process(_) | ComponentKind::Container(_));
            is_started && is_longest(planned.lifetime) && !is_up(&planned.name)
        };
        let planned = case.system.components.iter().filter(is_anew).map(|planned| planned.name.as_str());
        let anew: Vec<&str> =
            planned.chain(file.filter(|_| !is_project_fit).map(|c| c.file.as_str())).collect();
        let own = self.up.iter().filter(|up| up.service.is_none() && is_longest(up.lifetime));
        let project = file.filter(|_| is_project_fit).map(|compose| compose.file.as_str());
        let others: Vec<&str> = own.map(|up| up.component.name()).chain(project).collect();
        if anew.is_empty() || others.is_empty() {
            return Ok(());
        }
        let (anew, others) = (anew.join(" and "), others.join(" and "));
        let text = format!(
            "{anew} must start anew, and so must {others}: what lived on would be seeded a second time"
        );
        state.record_and_show(text, emit);
        let takes_project = project.is_some();
        let lives_on = |own: Lifetime, _: usize| !(takes_project && is_longest(own));
        // In the record of the trial that begins, an end would make a restart of the beginning.
        let aside = TrialState::new(None, state.cancel.clone(), state.secrets.clone());
        let failed =
            self.take_down(&aside, &lives_on, &|up| up.service.is_some() || !is_longest(up.lifetime));
        failed.into_iter().next().map_or(Ok(()), |(text, _)| Err(BringUpError::BeforeLoad(text)))
    }

    /// Names of components whose relay has ended: nobody reaches them any more.
    pub(super) fn cut_off(&self) -> BTreeSet<String> {
        let names = self.up.iter().map(|up| up.component.name());
        names
            .filter(|name| self.system.relay_of(name).is_some_and(|relay| relay.ended().is_some()))
            .map(str::to_owned)
            .collect()
    }

    /// Ends a search, during which all components stayed up: those still up get back the lifetimes that the case
    /// specifies.
    pub fn end_search(&mut self, case: &Case) {
        self.is_searching = false;
        // Services live as long as their project, in a search too.
        for up in self.up.iter_mut().filter(|up| up.service.is_none()) {
            let planned = case.system.components.iter().find(|c| c.name == up.component.name());
            up.lifetime = planned.map_or(up.lifetime, |planned| planned.lifetime);
        }
    }

    /// Reports what the relay in front of a component did: it must not become the bottleneck unnoticed.
    fn report_relayed(&self, component: &str, state: &TrialState) {
        let Some(counts) = self.system.relayed(component) else { return };
        let RelayCounts { carried, lost, dropped, late_ns, latest_ns } = counts;
        let late = |ns: f64| format_duration_ns(ns);
        let text = format!(
            "the relay in front of `{component}` passed on {carried}, lost {lost} as configured and dropped \
             {dropped} more; it was later than configured by {} on average and {} at most",
            late(late_ns as f64 / (carried as f64).max(1.0)),
            late(latest_ns as f64)
        );
        state.record_note(text);
    }

    /// Takes down what does not live on, by its lifetime and the case it was started for, or is not well; newest first.
    /// A Compose file goes as a whole, even if none of its services is up. Returns what could not be taken down, as
    /// [`RunningSystem::end_trial`] does.
    pub(super) fn take_down(
        &mut self,
        state: &TrialState,
        lives_on: &dyn Fn(Lifetime, usize) -> bool,
        is_well: &dyn Fn(&StartedComponent) -> bool,
    ) -> Vec<(String, Exit)> {
        self.function_lists.note(&self.up);
        let stays = |u: &StartedComponent| lives_on(u.lifetime, u.case) && is_well(u);
        let is_over = self.project.as_ref().is_some_and(|started| !lives_on(started.lifetime, started.case));
        let project_goes = is_over || self.up.iter().any(|u| u.service.is_some() && !stays(u));
        let stays = |u: &StartedComponent| stays(u) && !(u.service.is_some() && project_goes);
        let (stay, down): (Vec<StartedComponent>, Vec<StartedComponent>) = self.up.drain(..).partition(stays);
        self.up = stay;
        // One that ends because others are gone has not died: a cluster may lose its quorum before it is its turn.
        down.iter().for_each(|up| up.component.expect_end());
        let mut failed = Vec::new();
        for up in down.into_iter().rev().filter(|u| u.service.is_none()) {
            let component = up.component.name().to_owned();
            self.report_relayed(&component, state);
            match self.system.down(&up.component) {
                Ok(Takedown { ending, escaped, .. }) => {
                    if escaped > 0 {
                        let text = format!(
                            "{escaped} processes of `{component}` that had left its cgroup were killed"
                        );
                        state.record_note(text);
                    }
                    state.record_event(EventKind::Down { component, how: ending.as_str().to_owned() });
                }
                Err(error) => {
                    let text = format!("cannot take down `{component}`: {error}");
                    state.record_event(EventKind::Failed { text: text.clone() });
                    failed.push((text, Exit::Failed));
                }
            }
        }
        if project_goes {
            failed.extend(self.compose_down(state));
        }
        self.function_lists.remove();
        failed
    }

    /// Takes down whatever is left and removes all traces.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn close(mut self) -> Result<(), BringUpError> {
        self.function_lists.note(&self.up);
        let closed = self.system.close();
        self.function_lists.remove();
        Ok(closed?)
    }
}

/// Whether what was started for a case lives on after a trial; `next` is the case of the next trial, if there is one.
fn outlives_trial(lifetime: Lifetime, case: usize, next: Option<usize>, failed: bool) -> bool {
    match lifetime {
        Lifetime::Trial => false,
        Lifetime::Case => !failed && next == Some(case),
        Lifetime::Experiment => next.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use loadlab_plan::{Options, Plan};
    use loadlab_record::Secrets;
    use loadlab_system::{Cancel, Notice, System, SystemSpec};

    use super::*;

    /// A plan with this `system`, and nothing up yet.
    fn lab(dir: &Path, system: &str) -> (Plan, RunningSystem) {
        let load = "load: { users: 1, requests: 1, journey: [{ get: \"http://127.0.0.1:1/\" }] }\n";
        let text = format!("loadlab: 1\nname: test\nsystem:\n{system}{load}");
        let path = dir.join("plan.yaml").display().to_string();
        let plan = Plan::parse(&path, &text, &Options::default()).unwrap();
        let mut spec = SystemSpec::new("ends", dir, &dir.join("scratch"), None);
        (spec.state_dir, spec.cgroup_root) = (dir.join("state"), dir.join("no-root"));
        let (system, notices) = System::new(spec).unwrap();
        (plan, RunningSystem::new(system, notices, dir))
    }

    fn state() -> TrialState {
        TrialState::new(None, Cancel::new(), Secrets::default())
    }

    /// `node1` ends because `node2`, which is taken down first, is gone. If it was to stay up, it has died.
    #[test]
    fn what_ends_because_its_peers_are_gone_has_not_died() {
        for (lifetime, has_died) in [("trial", false), ("experiment", true)] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("quorum"), "").unwrap();
            let node1 = "echo $$ > pid; echo up; while test -e quorum; do sleep 0.01; done; exit 4";
            let until_noticed = "while kill -0 $(cat pid) 2> /dev/null; do sleep 0.01; done";
            let node2 = format!(
                "trap 'rm quorum; {until_noticed}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
            );
            let system = format!(
                "  components:\n    node1: {{ run: \"{node1}\", lifetime: {lifetime}, ready: {{ log: up }} }}\n    \
                 node2: {{ run: \"{node2}\", ready: {{ log: up }}, stop: {{ timeout: 10m }} }}\n"
            );
            let (plan, mut running) = lab(dir.path(), &system);
            running.bring_up(0, &plan.cases()[0], &state(), &|_| {}).unwrap();
            let left = running.end_trial(Some(0), false, &state());
            assert!(left.is_empty(), "{left:?}");
            // If there is a notice, it comes at once.
            let patience = Duration::from_secs(if has_died { 60 } else { 0 });
            let notice = running.notices.lock().unwrap().recv_timeout(patience).ok();
            assert_eq!(matches!(notice, Some(Notice::Died { .. })), has_died, "{lifetime}: {notice:?}");
            running.close().unwrap();
        }
    }

    /// Two components that live for the experiment, and are seeded by a command that writes to the story.
    fn seeded(dir: &Path, seed: &str) -> (Plan, RunningSystem) {
        let run = "run: \"exec sleep 1000\", lifetime: experiment";
        lab(dir, &format!("  components: {{ db: {{ {run} }}, cache: {{ {run} }} }}\n  seed: {seed}\n"))
    }

    fn notes(state: &TrialState) -> Vec<String> {
        state.ensure_clock();
        let notes = state.collected().1.into_iter().filter_map(|event| match event.what {
            EventKind::Note { text } if !text.contains("is still up") => Some(text),
            _ => None,
        });
        notes.collect()
    }

    #[test]
    fn what_is_seeded_together_is_restarted_together() {
        let dir = tempfile::tempdir().unwrap();
        let (plan, mut running) = seeded(dir.path(), "echo seed >> story");
        let case = &plan.cases()[0];
        let mut began = Vec::new();
        let why = "what lived on would be seeded a second time";
        for (killed, expect) in [
            (None, Vec::new()),
            (None, Vec::new()),
            (Some("cache"), vec![format!("cache must start anew, and so must db: {why}")]),
            (Some("db"), vec![format!("db must start anew, and so must cache: {why}")]),
        ] {
            if let Some(name) = killed {
                // As an event of the trial before does it.
                running.system.kill(&running.component(name).unwrap()).unwrap();
                running.take_changed([(name.to_owned(), None)].into());
            }
            let state = state();
            running.bring_up(0, case, &state, &|_| {}).unwrap();
            running.seed(case, &state, &|_| {}).unwrap();
            assert_eq!(notes(&state), expect);
            began.push(["db", "cache"].map(|name| running.component(name).unwrap().process()));
            assert!(running.end_trial(Some(0), false, &state).is_empty());
        }
        let story = std::fs::read_to_string(dir.path().join("story")).unwrap();
        assert_eq!(story.lines().count(), 3);
        assert_eq!(began[0], began[1]);
        for pair in began[1..].windows(2) {
            assert!(pair[0][0] != pair[1][0] && pair[0][1] != pair[1][1], "{pair:?}");
        }
        running.close().unwrap();
    }

    #[test]
    fn nothing_outlives_a_seed_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        let (plan, mut running) = seeded(dir.path(), "[echo first >> story, \"test -e ready\"]");
        let case = &plan.cases()[0];
        let trial = |running: &mut RunningSystem| {
            let state = state();
            running.bring_up(0, case, &state, &|_| {}).unwrap();
            let failed = running.seed(case, &state, &|_| {}).is_err();
            // The next trial is of another case.
            assert!(running.end_trial(Some(1), failed, &state).is_empty());
            let notes = notes(&state);
            assert_eq!(notes.iter().any(|note| note.contains("`seed` failed")), failed, "{notes:?}");
            (failed, running.up.len())
        };
        assert_eq!(trial(&mut running), (true, 0));
        std::fs::write(dir.path().join("ready"), "").unwrap();
        assert_eq!(trial(&mut running), (false, 2));
        assert_eq!(trial(&mut running), (false, 2));
        let story = std::fs::read_to_string(dir.path().join("story")).unwrap();
        assert_eq!(story.lines().count(), 2);
        running.close().unwrap();
    }

    #[test]
    fn what_outlives_a_trial() {
        for (lifetime, next, failed, expect) in [
            (Lifetime::Trial, Some(3), false, false),
            (Lifetime::Case, Some(3), false, true),
            (Lifetime::Case, Some(4), false, false),
            (Lifetime::Case, Some(3), true, false),
            (Lifetime::Case, None, false, false),
            (Lifetime::Experiment, Some(4), true, true),
            (Lifetime::Experiment, None, false, false),
        ] {
            assert_eq!(outlives_trial(lifetime, 3, next, failed), expect, "{lifetime:?} {next:?} {failed}");
        }
    }
}
