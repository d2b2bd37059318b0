//! Who sends the loads of a plan, for the commands that run one.

use std::sync::Arc;

use loadlab_load::target::Resolved;
use loadlab_run::senders::Senders;
use loadlab_system::Cancel;

use super::read_plan::ReadPlan;
use crate::args::SwarmArgs;
use crate::swarm::{NoSenders, Wanted, gathered};

/// The agents that `--swarm` asks for; `None` if this process sends the loads.
///
/// # Errors
/// Those of [`gathered`].
pub fn of(
    args: &SwarmArgs,
    read: &ReadPlan,
    allow_hosts: &[String],
    resolved: &[Resolved],
    is_quiet: bool,
    cancel: &Cancel,
) -> Result<Option<Arc<dyn Senders>>, NoSenders> {
    let ReadPlan { plan, text, path, read_with, .. } = read;
    gathered(&Wanted { args, plan, text, path, read_with, allow_hosts, resolved, is_quiet }, cancel)
}
