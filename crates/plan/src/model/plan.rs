//! A plan with all its cases, and the order of its trials.

use std::collections::BTreeMap;

use loadlab_record::secrets::Secrets;

use crate::model::component_kind::Isolation;
use crate::model::spec::{Case, DerivedSpec};

/// A checked plan with all its cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The plan's path as given.
    pub path: String,
    /// The plan's folder: where `seed`, `before_trial` and `after_trial` run.
    pub dir: String,
    /// The experiment's name.
    pub name: String,
    /// What the experiment is about.
    pub description: Option<String>,
    /// The chosen profile.
    pub profile: Option<String>,
    /// A quick first look (profile `quick`), without verdicts on differences.
    pub quick: bool,
    /// Names of all profiles.
    pub profiles: Vec<String>,
    /// Revisions of its repository to compare, in order; empty if the plan is about the working tree.
    pub revisions: Vec<Revision>,
    /// Names of the axes, in order.
    pub axes: Vec<String>,
    /// How often each case is repeated; at least 1. With [`Plan::until_certain`] this is the maximum.
    pub trials: u32,
    /// Set if trials continue until it is certain how the cases differ.
    pub until_certain: Option<UntilCertain>,
    /// Whether the cases that others are compared with are measured twice, under two names.
    pub has_control: bool,
    /// The order of trials.
    pub order: TrialOrder,
    /// Hosts that may be loaded besides loopback.
    pub allow_hosts: Vec<String>,
    /// The run's network namespaces.
    pub isolate: Isolation,
    /// Remarks that are not mistakes, such as an axis that nothing uses.
    pub notes: Vec<String>,
    /// The tool whose layout the report shows next to its own: `siege` or `wrk`.
    pub layout: Option<&'static str>,
    /// Figures derived from those of its cases.
    pub derive: Vec<DerivedSpec>,
    /// What it takes from outside and marks as public, by what asks for it: `env.NAME`, `file:PATH`.
    pub given: BTreeMap<String, String>,
    /// Values that must not be shown: those of `${env.…}` and `${file:…}`, and credentials written out in the plan.
    pub secrets: Secrets,
    /// The plan's text without the credentials written out in it.
    pub shown_text: String,
    /// `path=value` of each `--set`, without credentials.
    pub shown_set: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

/// A revision of the plan's repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Its name in git: a branch, a tag, a commit, `HEAD~3`.
    pub name: String,
    /// The plan's folder where the revision is checked out; `None`: it is not, and paths are those of the working tree.
    pub dir: Option<String>,
}

/// Trials that continue until it is certain how the cases differ, in rounds of all cases in random order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UntilCertain {
    /// Cases that differ by less than this share count as the same: above 0 and below 1.
    pub within: f64,
    /// Time budget of all trials together.
    pub budget_ns: Option<u64>,
}

/// The order of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrialOrder {
    /// Every case once, then every case again.
    #[default]
    Interleaved,
    /// All trials of a case before the next case.
    Sequential,
}
