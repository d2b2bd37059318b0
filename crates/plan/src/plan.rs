//! The whole plan: from text and options to cases and their order.

use std::collections::BTreeSet;

use loadlab_record::documents::manifest::TrialKey;
use loadlab_record::secrets::Secrets;

use crate::expand::overrides::{self, Overrides};
use crate::expand::{check, chosen};
use crate::hidden::Hidden;
use crate::model::plan::{Plan, Revision, TrialOrder};
use crate::model::spec::{Case, Expression};
use crate::outside::{self, Outside, Reference};
use crate::read::journey::series;
use crate::read::reader::SharedInputs;
use crate::read::{conditions, find, limits, load, trials};
use crate::text::error::{MAX_MISTAKES, PlanError, PlanErrors, Problem, Problems};
use crate::text::node::{Entry, Node, Value};
use crate::text::shorten::shorten;
use crate::text::source::Sources;
use crate::text::span::Span;
use crate::text::{suggest, yaml};
use crate::{describe, ids};

/// What the command line adds to a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// `--profile NAME`.
    pub profile: Option<String>,
    /// `--set path=value`, in order.
    pub set: Vec<(String, String)>,
    /// `--tags a,b`: only steps with one of these; empty is all.
    pub tags: Vec<String>,
    /// `--case GLOB`: only cases whose name matches, or the case with this label in reports.
    pub cases_glob: Option<String>,
    /// `--trials N`.
    pub trials: Option<u32>,
    /// `--until-certain`.
    pub until_certain: bool,
    /// `loadlab find`: options say what is searched. `expect` is of each level, and the plan's own search is left out.
    pub is_search: bool,
    /// `--flame-graphs[=a,b]`: sample these components; empty is all.
    pub flame_graphs: Option<Vec<String>>,
    /// The revisions to compare, in place of the plan's; or the plan's, with the folders where they are checked out.
    pub revisions: Vec<Revision>,
    /// The value of `${plan.dir}`, and the base of relative paths; by default the part of the plan's path before its
    /// last `/`. Programs give an absolute path, because components run in separate folders.
    pub plan_dir: Option<String>,
    /// Values of `${env.NAME}` and `${file:PATH}`, for the names that [`Plan::asks_for`] lists.
    pub outside: Outside,
}

impl Plan {
    /// Reads, checks and expands a plan. `path` is used in messages and for the plan's folder; nothing is opened.
    ///
    /// # Errors
    /// Every mistake that could be found in one pass.
    pub fn parse(path: &str, text: &str, options: &Options) -> Result<Plan, PlanErrors> {
        let mut sources = Sources::default();
        let source = sources.add(path, text);
        let read = yaml::parse(text, source, 0).and_then(|root| match &root.value {
            Value::Map(_) => Ok(root),
            _ => {
                let message = format!("expected a plan, found {}", root.called());
                Err(Problem::new(root.span.point(), message)
                    .hint("a plan begins with `loadlab: 1` and `name: …`"))
            }
        });
        let original = read.map_err(|problem| PlanErrors(vec![problem.render(&sources)]))?;
        let plan_dir = options.plan_dir.clone().unwrap_or_else(|| folder_of(path));

        let mut root = original.clone();
        let mut found = Progress::default();
        found.hidden.find(&original, "");
        change(&mut root, &mut sources, options, &mut found);
        sources.hide(found.hidden.spans(&sources));
        let outside = &options.outside;
        let revisions = &options.revisions;
        let from = SharedInputs {
            sources: &sources,
            plan_dir: &plan_dir,
            revisions,
            outside,
            is_search: options.is_search,
            is_lenient: false,
        };
        let mut checked = check(&root, from, options.cases_glob.as_deref());
        found.problems.append(checked.problems);
        let mut errors = found.problems.into_errors(&sources).0;
        errors.splice(0..0, found.errors);
        if errors.is_empty() && options.set.is_empty() {
            let from = SharedInputs { is_lenient: true, ..from };
            errors = check_other_profiles(&original, from, options, &mut checked.secrets);
        }
        let secrets = secrets_of(checked.secrets.iter().chain(&found.hidden.values));
        if !errors.is_empty() {
            return Err(PlanErrors(errors.into_iter().map(|e| e.masked(&secrets)).collect()));
        }
        let mut plan = if options.is_search { checked.plan.without_search() } else { checked.plan };
        for case in plan.cases.iter_mut().filter(|_| !secrets.is_empty()) {
            series::name(&mut case.loads, &secrets);
        }
        plan.shown_text = secrets.mask(&sources.shown(source)).into_owned();
        plan.shown_set =
            found.sets.iter().map(|set| secrets.mask(&sources.shown(*set)).into_owned()).collect();
        // A profile that is chosen is part of the plan by now; others do not matter.
        for entry in root.entries().iter().filter(|entry| entry.key != "profiles") {
            entry.value.each_text(&mut |text| outside::collect_public(text, outside, &mut plan.given));
        }
        plan.secrets = secrets;
        plan.path = path.to_owned();
        plan.dir = plan_dir;
        plan.profile.clone_from(&options.profile);
        plan.quick = options.profile.as_deref() == Some("quick");
        plan.choose(options, &checked.chosen)?;
        Ok(plan)
    }

    /// What a plan and its options ask for from outside, each once. A text that is not a plan asks for nothing;
    /// [`Plan::parse`] reports what is wrong with it.
    pub fn asks_for(text: &str, options: &Options) -> Vec<Reference> {
        let mut found = Vec::new();
        let texts = std::iter::once(text).chain(options.set.iter().map(|(_, value)| value.as_str()));
        for node in texts.filter_map(|text| yaml::parse(text, 0, 0).ok()) {
            node.each_text(&mut |text| outside::collect(text, &mut found));
        }
        found
    }

    /// The cases, in the order of the matrix.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The cases without controls, which repeat other cases and come last.
    pub fn own_cases(&self) -> &[Case] {
        let own = self.cases.iter().take_while(|case| case.control_of.is_none()).count();
        &self.cases[..own]
    }

    /// The plan without its own search and the search's figure, for a search of another kind.
    pub fn without_search(mut self) -> Plan {
        for case in self.cases.iter_mut().filter(|case| case.find.is_some()) {
            case.find = None;
            case.figures.retain(|figure| !find::is_capacity(figure));
        }
        self
    }

    /// Which case of [`Plan::cases`] runs when.
    ///
    /// Interleaved, every round runs all cases once, each round beginning one case later: whatever drifts over the
    /// experiment (heat, caches, neighbours) then affects all cases alike, and no case is always the first.
    pub fn schedule(&self) -> Vec<TrialKey> {
        let cases = self.cases.len();
        match self.order {
            TrialOrder::Sequential => {
                let of = |case| (1..=self.trials).map(move |trial| TrialKey { case, trial });
                (0..cases).flat_map(of).collect()
            }
            TrialOrder::Interleaved => {
                let round = |trial: u32| {
                    let case = move |i| (i + trial as usize - 1) % cases;
                    (0..cases).map(move |i| TrialKey { case: case(i), trial })
                };
                (1..=self.trials).flat_map(round).collect()
            }
        }
    }

    /// The experiment in words, one fact per line.
    pub fn describe(&self) -> Vec<String> {
        describe::of(self).iter().map(|line| self.secrets.mask_shortened(line).into_owned()).collect()
    }

    /// All conditions of all cases, each once.
    pub fn expressions(&self) -> Vec<&Expression> {
        let mut found: Vec<&Expression> = Vec::new();
        for case in &self.cases {
            let drain = case.drain.iter().map(|d| &d.until);
            let searched = case.find.iter().flat_map(|find| &find.expect);
            for expression in case.expect.iter().chain(searched).chain(&case.stop_when).chain(drain) {
                if !found.contains(&expression) {
                    found.push(expression);
                }
            }
        }
        found
    }

    /// `--tags` and `--case`, which means the cases with the names `chosen`.
    fn choose(&mut self, options: &Options, chosen: &BTreeSet<String>) -> Result<(), PlanErrors> {
        let mut errors = Vec::new();
        if !options.tags.is_empty() {
            self.choose_tags(options, chosen, &mut errors);
        }
        if let (Some(text), true) = (&options.cases_glob, errors.is_empty()) {
            let is_chosen = |case: &Case| chosen.contains(&case.name);
            if self.cases.iter().any(is_chosen) {
                self.cases.retain(is_chosen);
            } else {
                let message = format!("no case matches `{}`", shorten(text));
                errors.push(of_option("--case", message, chosen::hint(text, &self.cases)));
            }
        }
        if self.until_certain.is_some() && errors.is_empty() {
            errors.extend(self.never_certain(options));
        }
        if errors.is_empty() {
            trials::add_controls(self);
        }
        if errors.is_empty() {
            errors = limits::check_measured(self);
            errors.extend(ids::check(self));
        }
        if errors.is_empty() { Ok(()) } else { Err(PlanErrors(errors)) }
    }

    /// Why the options leave nothing to be certain of.
    fn never_certain(&self, options: &Options) -> Option<PlanError> {
        if self.quick {
            let message = "a quick run gives no verdicts, so it cannot run until one is certain".to_owned();
            let hint = "say how many trials it has: `quick: { trials: 1 }`".to_owned();
            return Some(of_option("--profile quick", message, Some(hint)));
        }
        let option = options.cases_glob.as_ref().map_or("--tags", |_| "--case");
        (self.cases.len() < 2).then(|| {
            let message = "only one case is left, and `until: certain` needs two to compare".to_owned();
            of_option(
                option,
                message,
                Some("choose two cases, or say how many trials: `--trials 5`".to_owned()),
            )
        })
    }

    fn choose_tags(&mut self, options: &Options, chosen: &BTreeSet<String>, errors: &mut Vec<PlanError>) {
        let tags = &options.tags;
        let loads = self.cases.iter().flat_map(|c| &c.loads);
        let known: BTreeSet<String> =
            loads.flat_map(|l| &l.journey).flat_map(|s| s.all_tags()).cloned().collect();
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        for tag in tags.iter().filter(|t| !known.contains(*t)) {
            let message = format!("no step has the tag `{}`", shorten(tag));
            errors.push(of_option("--tags", message, load::tag_hint(tag, &names)));
        }
        if errors.is_empty() {
            for case in &mut self.cases {
                let searched =
                    case.find.as_ref().and_then(|find| Some(case.loads.get(find.load)?.name.clone()));
                load::choose(&mut case.loads, tags);
                // The load may have another index now.
                let place = searched.and_then(|name| case.loads.iter().position(|load| load.name == name));
                match (&mut case.find, place) {
                    (Some(find), Some(place)) => find.load = place,
                    (Some(_), None) if !case.loads.is_empty() => {
                        let message =
                            "the load that `find` varies has no step with one of these tags".to_owned();
                        errors.push(of_option("--tags", message, None));
                        return;
                    }
                    _ => {}
                }
            }
            // If tags follow from an axis, choosing tags chooses cases.
            self.cases.retain(|c| !c.loads.is_empty());
            errors.extend(self.drop_left_out(options.is_search, chosen));
        }
    }

    /// Removes what `--tags` took the ground from. An error if nothing is left of what a level of a search must meet.
    fn drop_left_out(&mut self, is_search: bool, chosen: &BTreeSet<String>) -> Option<PlanError> {
        let (mut left, mut unmet) = (BTreeSet::new(), None);
        for case in &mut self.cases {
            let has_expected = !case.expect.is_empty();
            left.extend(conditions::drop_left_out(case));
            let nothing_is_left = match &case.find {
                Some(find) => find.expect.is_empty(),
                None => is_search && has_expected && case.expect.is_empty(),
            };
            if nothing_is_left && chosen.contains(&case.name) {
                let what = if is_search { "`--expect` asks" } else { "`find` expects" };
                let message = format!("every level would meet what {what}: nothing of it is left");
                unmet = Some(of_option("--tags", message, None));
            }
        }
        self.notes.extend(left);
        unmet
    }
}

fn of_option(option: &str, message: String, hint: Option<String>) -> PlanError {
    PlanError {
        file: option.to_owned(),
        line: 0,
        column: 0,
        message,
        snippet: String::new(),
        related: None,
        hint,
    }
}

/// The part of a path before its last slash.
fn folder_of(path: &str) -> String {
    match path.rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((folder, _)) => folder.to_owned(),
        None => ".".to_owned(),
    }
}

/// What is collected while a plan's text is turned into cases.
#[derive(Default)]
struct Progress {
    problems: Problems,
    /// Mistakes without a place in a text.
    errors: Vec<PlanError>,
    hidden: Hidden,
    /// Sources of `--set`.
    sets: Vec<u32>,
}

/// Values that are long enough. Shorter credentials of a plan are masked only in place.
fn secrets_of<'v>(values: impl Iterator<Item = &'v String>) -> Secrets {
    let mut secrets = Secrets::default();
    for value in values {
        let _ = secrets.add(value.as_bytes());
    }
    secrets
}

/// Profile, then `--set`, then `--trials`.
fn change(root: &mut Node, sources: &mut Sources, options: &Options, found: &mut Progress) {
    let Progress { problems, errors, hidden, sets } = found;
    let mut overrides = Overrides::default();
    if let Some(wanted) = &options.profile {
        let profiles = root.get("profiles").cloned();
        let entries = profiles.as_ref().map_or(&[][..], Node::entries);
        match entries.iter().find(|e| e.key == *wanted) {
            Some(profile) => overrides::apply_profile(root, profile, &mut overrides, problems),
            None => errors.push(no_profile(wanted, entries)),
        }
    }
    let mut typed = Overrides::default();
    if !options.revisions.is_empty() {
        let (span, node) =
            overrides::texts(sources, "--revisions", options.revisions.iter().map(|r| &r.name));
        typed.apply(root, "revisions", span, node, problems);
    }
    // First, so that `--set trials.within=1%` can refine it. What the plan says about it stays.
    if options.until_certain && root.get("trials").is_none_or(|trials| trials.get("until").is_none()) {
        let (span, read) = overrides::read_option(sources, "--until-certain", "trials", "{ until: certain }");
        let control = root.get("trials").and_then(|trials| trials.get("control")).cloned();
        let made = read.map(|mut node| {
            if let (Some(control), Value::Map(entries)) = (control, &mut node.value) {
                entries.push(Entry { key: "control".to_owned(), key_span: span, value: control });
            }
            typed.apply(root, "trials", span, node, problems);
        });
        made.unwrap_or_else(|problem| problems.push(problem));
    }
    if let Some(components) = &options.flame_graphs {
        sample(root, sources, components, &mut typed, problems);
    }
    for (path, value) in &options.set {
        let (span, read) = overrides::read_option(sources, "--set", path, value);
        sets.push(span.source);
        match read {
            Ok(node) => {
                hidden.find(&node, path);
                typed.apply(root, path, span, node, problems);
            }
            Err(problem) => {
                let start = span.end + 1;
                let of_value = Span { start, end: start + value.len() as u32, ..span };
                hidden.hide_unread(value, of_value, path);
                problems.push(problem);
            }
        }
    }
    if let Some(trials) = options.trials {
        let (span, node) = overrides::number(sources, "--trials", trials);
        // What the plan says of a control stays.
        let control = root.get("trials").and_then(|trials| trials.get("control")).cloned();
        let node = match control {
            Some(control) => overrides::map(span, [("count", node), ("control", control)]),
            None => node,
        };
        typed.apply(root, "trials", span, node, problems);
    }
}

fn no_profile(wanted: &str, entries: &[Entry]) -> PlanError {
    let names: Vec<&str> = entries.iter().map(|e| e.key.as_str()).collect();
    let hint = if names.is_empty() {
        "this plan has no profiles".to_owned()
    } else {
        let near = suggest::nearest(wanted, names.iter().copied());
        let near = near.map_or(String::new(), |n| format!("did you mean `{n}`? "));
        format!("{near}it has {}", suggest::listed(&names))
    };
    of_option("--profile", format!("this plan has no profile `{}`", shorten(wanted)), Some(hint))
}

/// Also checks profiles that were not chosen, so that choosing one later brings no surprises. Adds the secrets of those
/// with mistakes, which may quote them.
fn check_other_profiles(
    original: &Node,
    from: SharedInputs<'_>,
    options: &Options,
    secrets: &mut BTreeSet<String>,
) -> Vec<PlanError> {
    let entries = original.get("profiles").map_or(&[][..], Node::entries);
    let mut found: Vec<PlanError> = Vec::new();
    for profile in entries.iter().filter(|e| Some(&e.key) != options.profile.as_ref()) {
        let mut root = original.clone();
        let mut problems = Problems::default();
        overrides::apply_profile(&mut root, profile, &mut Overrides::default(), &mut problems);
        let checked = check(&root, from, options.cases_glob.as_deref());
        problems.append(checked.problems);
        // Those of other profiles are not in this run: they would mask what is none, such as an address.
        if problems.count() > 0 {
            secrets.extend(checked.secrets);
        }
        for mut error in problems.into_errors(from.sources).0 {
            error.message = format!("with profile `{}`: {}", shorten(&profile.key), error.message);
            found.push(error);
        }
    }
    found.truncate(MAX_MISTAKES);
    found
}

/// `--flame-graphs`: of these components, else of those that the plan names, else of all.
fn sample(
    root: &mut Node,
    sources: &mut Sources,
    components: &[String],
    typed: &mut Overrides,
    problems: &mut Problems,
) {
    const OPTION: &str = "--flame-graphs";
    let is_described = root.get("profile").is_some_and(|profile| matches!(profile.value, Value::Map(_)));
    if components.is_empty() && is_described {
        return;
    }
    if !is_described {
        // A map instead of a single value, so that `--set profile.on=both` can refine it.
        let (span, read) = overrides::read_option(sources, OPTION, "profile", "{}");
        let made = read.map(|node| typed.apply(root, "profile", span, node, problems));
        made.unwrap_or_else(|problem| problems.push(problem));
    }
    if !components.is_empty() {
        let (span, node) = overrides::texts(sources, OPTION, components.iter());
        typed.apply(root, "profile.components", span, node, problems);
    }
}
