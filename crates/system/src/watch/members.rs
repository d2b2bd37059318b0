//! Which component a process belongs to where several list it: a control group such as `system.slice` lists the
//! processes of all groups in it, which may include those of other components, and loadlab.

use std::collections::{HashMap, HashSet};
use std::iter::successors;
use std::path::PathBuf;

use loadlab_record::watch::names::GENERATOR;

use super::evidence::Members;
use crate::process;

/// Maximum number of ancestors of a process that are looked at.
const MOST_ANCESTORS: usize = 100;

/// Leaves each process to one component, the innermost.
#[derive(Debug, Default)]
pub(super) struct InnermostFirst {
    /// For each target, the places of those whose group is in its own.
    inside: Vec<Vec<usize>>,
    /// Whether processes descend from loadlab. Only those are asked that are in a group together with it.
    descends: HashMap<u32, bool>,
}

impl InnermostFirst {
    /// For targets that read the groups in these folders, one for each hierarchy.
    pub fn of(groups: &[&[PathBuf]]) -> InnermostFirst {
        let all_inside = |outer: &&[PathBuf]| -> Vec<usize> {
            (0..groups.len()).filter(|at| is_inside(groups[*at], outer)).collect()
        };
        InnermostFirst { inside: groups.iter().map(all_inside).collect(), descends: HashMap::new() }
    }

    /// Removes a process from all lists but one. loadlab, whose pid is `own`, and what it started that is no component
    /// are in no list of a component.
    pub fn settle(&mut self, all: &mut [Members], own: u32) {
        let mut order = self.order(all);
        // What is around loadlab is around what it started.
        order.sort_by_key(|at| all[*at].pids.contains(&own));
        let (mut taken, mut asked) = (HashSet::new(), HashSet::new());
        for at in order {
            let one = &mut all[at];
            if one.component == GENERATOR {
                continue;
            }
            if one.pids.contains(&own) {
                asked.extend(one.pids.iter().copied());
                one.pids.retain(|pid| *pid != own && !self.descends_from(*pid, own));
            }
            one.pids.retain(|pid| taken.insert(*pid));
        }
        self.descends.retain(|pid, _| asked.contains(pid));
    }

    /// The places of the lists, shortest first. A group comes after those in it even if they have grown since it was
    /// read.
    fn order(&self, all: &[Members]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..all.len()).collect();
        // A group in another has fewer in it.
        order.sort_by_key(|at| self.inside.get(*at).map_or(0, Vec::len));
        let mut ranks: Vec<usize> = all.iter().map(|one| one.pids.len()).collect();
        for at in &order {
            let inside = self.inside.get(*at).into_iter().flatten();
            let after = inside.map(|inner| ranks[*inner] + 1).max().unwrap_or(0);
            ranks[*at] = ranks[*at].max(after);
        }
        order.sort_by_key(|at| ranks[*at]);
        order
    }

    fn descends_from(&mut self, pid: u32, own: u32) -> bool {
        if let Some(known) = self.descends.get(&pid) {
            return *known;
        }
        let of_parent = |parent: u32| match parent == own {
            true => Some(true),
            false => self.descends.get(&parent).copied(),
        };
        let descends =
            successors(parent_of(pid), |pid| parent_of(*pid)).take(MOST_ANCESTORS).find_map(of_parent);
        let descends = descends.unwrap_or(false);
        self.descends.insert(pid, descends);
        descends
    }
}

/// Whether a group is below another in any hierarchy: on hosts with several, a component need not have groups in all.
fn is_inside(inner: &[PathBuf], outer: &[PathBuf]) -> bool {
    inner.iter().any(|inner| outer.iter().any(|outer| inner != outer && inner.starts_with(outer)))
}

fn parent_of(pid: u32) -> Option<u32> {
    process::stat(pid).map(|stat| stat.parent).filter(|parent| *parent > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists that are left of these, each with the group that is read.
    fn settled(own: u32, all: &[(&str, Option<&str>, &[u32])]) -> Vec<Vec<u32>> {
        let dirs =
            |group: &Option<&str>| group.iter().flat_map(|dirs| dirs.split(' ')).map(PathBuf::from).collect();
        let groups: Vec<Vec<PathBuf>> = all.iter().map(|(_, group, _)| dirs(group)).collect();
        let groups: Vec<&[PathBuf]> = groups.iter().map(Vec::as_slice).collect();
        let members = |(name, _, pids): &(&str, Option<&str>, &[u32])| Members {
            component: (*name).to_owned(),
            pids: pids.to_vec(),
        };
        let mut members: Vec<Members> = all.iter().map(members).collect();
        InnermostFirst::of(&groups).settle(&mut members, own);
        members.into_iter().map(|one| one.pids).collect()
    }

    #[test]
    fn a_process_belongs_to_the_innermost_component() {
        let none: [u32; 0] = [];
        // A slice with two containers, and a process of one of them.
        let left = settled(
            99,
            &[
                ("all", Some("/g/system.slice"), &[1, 2, 3, 4, 5]),
                ("web", Some("/g/system.slice/web"), &[1, 2]),
                ("db", Some("/g/system.slice/db"), &[3, 4]),
                ("worker", None, &[4]),
            ],
        );
        assert_eq!(left, [vec![5u32], vec![1, 2], vec![3], vec![4]]);
        // Nothing else is in the slice, and two processes are newer than its reading.
        let left = settled(
            99,
            &[("all", Some("/g/a"), &[1, 2]), ("web", Some("/g/a/b"), &[1, 2, 3, 4]), ("host", None, &[])],
        );
        assert_eq!(left, [none.to_vec(), vec![1, 2, 3, 4], none.to_vec()]);
        // Several hierarchies, of which one has groups for both.
        let left = settled(
            99,
            &[("all", Some("/cpu/a /pids/a /x/a"), &[1]), ("web", Some("/cpu/a/b /pids/a/b"), &[1, 2])],
        );
        assert_eq!(left, [none.to_vec(), vec![1, 2]]);
        // The same group twice.
        let left = settled(99, &[("a", Some("/g/a"), &[1]), ("b", Some("/g/a"), &[1])]);
        assert_eq!(left, [vec![1u32], none.to_vec()]);
    }

    #[test]
    fn loadlab_is_in_no_component() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (own, of_own, other) = (std::process::id(), child.id(), u32::MAX - 1);
        let slice: &[u32] = &[own, of_own, other];
        let left = settled(own, &[("all", Some("/g/user.slice"), slice), (GENERATOR, None, &[own])]);
        assert_eq!(left, [vec![other], vec![own]]);
        // One that has grown since the slice was read is no less one.
        let left =
            settled(own, &[("all", Some("/g"), &[own, of_own]), ("web", None, &[of_own, other, 7, 8])]);
        assert_eq!(left, [vec![], vec![of_own, other, 7, 8]]);
        // A component that loadlab has started is one.
        let left = settled(own, &[("all", Some("/g"), slice), ("web", Some("/g/web"), &[of_own])]);
        assert_eq!(left, [vec![other], vec![of_own]]);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
