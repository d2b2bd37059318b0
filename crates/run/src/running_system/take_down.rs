//! Takes down what has lived long enough: after each trial, and at the end of the run whatever is left.

use std::collections::BTreeSet;

use loadlab_analysis::Exit;
use loadlab_plan::{Case, ComponentKind, ComponentSpec, Lifetime};
use loadlab_record::documents::event::EventKind;
use loadlab_record::text::units::format_duration_ns;
use loadlab_system::{RelayCounts, Takedown};

use crate::result::Trouble;
use crate::running_system::error::BringUpError;
use crate::running_system::{RunningSystem, StartedComponent, lifetime, longest_lifetime};
use crate::state::{EventSink, TrialState};

impl RunningSystem {
    /// Takes down what does not outlive the trial that ended, newest first. `next` is the case of the next trial, if
    /// there is one. After a failed trial, only live components of the whole experiment stay up, and if it could not be
    /// seeded, nothing. Returns what could not be taken down.
    pub fn end_trial(&mut self, next: Option<usize>, failed: bool, state: &TrialState) -> Vec<Trouble> {
        let cut_off = self.cut_off();
        let (is_half_seeded, is_searching) = (std::mem::take(&mut self.is_half_seeded), self.is_searching);
        let outlives = |lifetime: Lifetime, case: usize| outlives_trial(lifetime, case, next, failed);
        // Services live as long as their project, in a search too.
        let component_outlives = |up: &StartedComponent| match is_searching && up.service.is_none() {
            true => next.is_some(),
            false => outlives(up.lifetime, up.case),
        };
        let project_outlives = self.project.as_ref().is_some_and(|own| outlives(own.lifetime, own.case));
        if is_half_seeded && (project_outlives || self.up.iter().any(component_outlives)) {
            let text = "everything is taken down: `seed` failed, and a part of the data may be there";
            state.record_note(text.to_owned());
        }
        let stays = |up: &StartedComponent| {
            let is_well = up.component.ended().is_none() && !cut_off.contains(up.component.name());
            !is_half_seeded && component_outlives(up) && up.is_ready && is_well
        };
        self.take_down(state, &stays, !is_half_seeded && project_outlives)
    }

    /// Takes down all of the longest lifetime if a part of it must come up anew: they are seeded together, and what lived
    /// on would be seeded a second time.
    ///
    /// # Errors
    /// Something could not be taken down.
    pub(super) fn restart_seeded(
        &mut self,
        case: &Case,
        state: &TrialState,
        emit: EventSink<'_>,
    ) -> Result<(), BringUpError> {
        let Some((missing, others)) = self.missing_and_seeded(case) else { return Ok(()) };
        let text = format!(
            "{} must start anew, and so must {}: what lived on would be seeded a second time",
            missing.join(" and "),
            others.join(" and ")
        );
        state.record_and_show(text, emit);
        let longest = longest_lifetime(case);
        let is_longest = |own: Lifetime| Some(lifetime(own)) == longest;
        let project_stays = case.system.compose.as_ref().is_none_or(|own| !is_longest(own.lifetime));
        let stays = |up: &StartedComponent| up.service.is_some() || !is_longest(up.lifetime);
        let failed = self.take_down(&state.aside(), &stays, project_stays);
        failed.into_iter().next().map_or(Ok(()), |left| Err(BringUpError::BeforeLoad(left.why)))
    }

    /// Whether the next trial of this case will take down a part of what is up, because it was seeded with what is not.
    pub fn will_restart_seeded(&self, case: &Case) -> bool {
        self.missing_and_seeded(case).is_some()
    }

    /// What must come up anew of the longest lifetime, and what is still up of it and was seeded; `None` unless there is
    /// some of both.
    fn missing_and_seeded<'a>(&'a self, case: &'a Case) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
        let is_seeded = self.seeded.as_ref().is_some_and(|(_, commands)| !commands.is_empty());
        let is_seeded_again = is_seeded && !case.system.seed.is_empty();
        let longest = longest_lifetime(case).filter(|_| is_seeded_again)?;
        let is_longest = |own: Lifetime| lifetime(own) == longest;
        let file = case.system.compose.as_ref().filter(|compose| is_longest(compose.lifetime));
        let is_up = |name: &str| self.up.iter().any(|up| up.component.name() == name);
        let is_missing = |planned: &&ComponentSpec| {
            let is_started = matches!(planned.kind, ComponentKind::Process(_) | ComponentKind::Container(_));
            is_started && is_longest(planned.lifetime) && !is_up(&planned.name)
        };
        let planned = case.system.components.iter().filter(is_missing).map(|planned| planned.name.as_str());
        let file = file.map(|compose| compose.file.as_str());
        let missing: Vec<&str> = planned.chain(file.filter(|_| self.project.is_none())).collect();
        let own = self.up.iter().filter(|up| up.service.is_none() && is_longest(up.lifetime));
        let project = file.filter(|_| self.project.is_some());
        let others: Vec<&str> = own.map(|up| up.component.name()).chain(project).collect();
        (!missing.is_empty() && !others.is_empty()).then_some((missing, others))
    }

    /// Names of components whose relay has ended: nobody reaches them any more.
    pub(super) fn cut_off(&self) -> BTreeSet<String> {
        let names = self.up.iter().map(|up| up.component.name());
        names
            .filter(|name| self.system.relay_of(name).is_some_and(|relay| relay.ended().is_some()))
            .map(str::to_owned)
            .collect()
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

    /// Takes down what does not stay, newest first. A Compose file goes as a whole, even if none of its services is up.
    /// Returns what could not be taken down, as [`RunningSystem::end_trial`] does.
    pub(super) fn take_down(
        &mut self,
        state: &TrialState,
        stays: &dyn Fn(&StartedComponent) -> bool,
        project_stays: bool,
    ) -> Vec<Trouble> {
        self.function_lists.note(&self.up);
        let project_goes = !project_stays || self.up.iter().any(|u| u.service.is_some() && !stays(u));
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
                    let why = format!("cannot take down `{component}`: {error}");
                    state.record_event(EventKind::Failed { text: why.clone() });
                    failed.push(Trouble { why, exit: Exit::Failed });
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
pub(super) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use loadlab_plan::{Options, Plan};
    use loadlab_record::Secrets;
    use loadlab_record::documents::search::SearchVariable;
    use loadlab_system::{Cancel, Notice, System, SystemSpec};

    use super::*;
    use crate::level::Level;

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

    /// The notes of a trial, but for those of what is still up.
    pub fn notes(state: &TrialState) -> Vec<String> {
        state.ensure_clock();
        let notes = state.collected().1.into_iter().filter_map(|event| match event.what {
            EventKind::Note { text } if !text.contains("is still up") => Some(text),
            _ => None,
        });
        notes.collect()
    }

    /// Kills a component as an event of the trial before does.
    fn kill(running: &mut RunningSystem, name: &str) {
        running.system.kill(&running.component(name).unwrap()).unwrap();
        running.take_changed([(name.to_owned(), None)].into());
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
                kill(&mut running, name);
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

    /// Everything lives as long as a search; what is seeded together is what lives equally long by the plan.
    #[test]
    fn a_search_seeds_nothing_twice() {
        // If both live for a trial, they start anew for each search, and when one of them was killed.
        for (lifetime, starts) in [("trial", 4), ("experiment", 1)] {
            let dir = tempfile::tempdir().unwrap();
            let run = "run: \"exec sleep 1000\"";
            let system = format!(
                "  components: {{ db: {{ {run}, lifetime: {lifetime} }}, cache: {{ {run} }} }}\n  \
                 seed: echo seed >> story\n"
            );
            let (plan, mut running) = lab(dir.path(), &system);
            let (vary, settle_ns, length_ns) = (SearchVariable::Users, 0, 1);
            let level = Level { vary, load: 0, level: 7, settle_ns, length_ns };
            let case = level.of_trial(&plan.cases()[0]);
            let mut began = Vec::new();
            for killed in [false, false, true, false, false, true] {
                if killed {
                    kill(&mut running, "cache");
                    assert_eq!(running.will_restart_seeded(&case), starts > 1);
                }
                running.is_searching = true;
                let of_level = state();
                running.bring_up(0, &case, &of_level, &|_| {}).unwrap();
                running.seed(&case, &of_level, &|_| {}).unwrap();
                began.push(running.component("db").unwrap().process());
                assert!(running.end_trial(Some(0), false, &of_level).is_empty());
                if killed {
                    running.is_searching = false;
                    assert!(running.end_trial(Some(0), false, &state()).is_empty());
                }
            }
            began.dedup();
            assert_eq!(began.len(), starts, "{lifetime}: {began:?}");
            let story = std::fs::read_to_string(dir.path().join("story")).unwrap();
            assert_eq!(story.lines().count(), starts, "{lifetime}");
            running.close().unwrap();
        }
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
