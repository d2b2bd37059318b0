//! Finds the hierarchies of this host and our place in each, and makes `loadlab/RUN` below it.
//!
//! In v1 our own group's folder can have children as it is. In v2 a group that holds processes cannot pass controllers
//! on to children, and loadlab itself sits in its own group; so the folder is made in the nearest ancestor whose
//! children have the controllers (with systemd's delegation the user's slice, for root any). Nothing outside
//! `loadlab/RUN` is changed, except that an ancestor may be asked to pass controllers on if no nearer one already does.

use std::fs;
use std::io;
use std::path::{Component as Part, Path, PathBuf};

use super::{CgroupDir, Controller, Version, folder_name};
use crate::spec::Unavailable;

/// Name of the folder of all runs in every hierarchy.
pub(crate) const TOP: &str = "loadlab";

/// Hint for hosts where groups cannot be made.
pub(crate) const HINT: &str = "run loadlab as root, or (cgroup v2 with systemd) in a delegated scope: \
                               `systemd-run --user --scope -p Delegate=yes loadlab …`";

/// One mounted hierarchy and our own group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// v1 only: the controllers it was mounted with.
    controllers: Vec<Controller>,
    mount: PathBuf,
    own: PathBuf,
}

/// A run's folder in each hierarchy that has one, and what is missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunGroups {
    pub cgroups: Vec<CgroupDir>,
    pub unavailable: Vec<Unavailable>,
}

impl RunGroups {
    /// Plans where the folders of a run will be, and asks for v2's controllers. `root` is `/` except in tests.
    pub fn plan(root: &Path, run_id: &str) -> RunGroups {
        let mut groups = RunGroups::default();
        let found = discover(root, "self");
        if found.is_empty() {
            groups.miss("cgroups", "none are mounted");
            return groups;
        }
        let in_v1: Vec<Controller> = found.iter().flat_map(|h| h.controllers.clone()).collect();
        let mut name = folder_name(run_id);
        for hierarchy in found {
            let (base, controllers) = match hierarchy.version {
                Version::V1 => (hierarchy.own, hierarchy.controllers),
                Version::V2 => v2_base(&hierarchy, &in_v1),
            };
            groups.cgroups.push(CgroupDir { version: hierarchy.version, controllers, dir: base.join(TOP) });
        }
        // Another run of this name may be using the folder, or have been killed: we must not take it over.
        if groups.cgroups.iter().any(|p| p.dir.join(&name).exists()) {
            name = format!("{name}-{}", std::process::id());
        }
        groups.cgroups.iter_mut().for_each(|p| p.dir.push(&name));
        groups
    }

    /// Makes the planned folders; a hierarchy that refuses is dropped and reported as unavailable.
    pub fn create(&mut self) {
        for mut cgroup in std::mem::take(&mut self.cgroups) {
            match make(&mut cgroup) {
                Ok(()) => self.cgroups.push(cgroup),
                Err(e) => {
                    let why = format!("cannot create {}: {e}", cgroup.dir.display());
                    for controller in &cgroup.controllers {
                        self.miss(&format!("cgroup controller `{}`", controller.v1_name()), &why);
                    }
                }
            }
        }
        for controller in Controller::ALL {
            let what = format!("cgroup controller `{}`", controller.v1_name());
            let known = self.unavailable.iter().any(|u| u.what == what || u.what == "cgroups");
            if !known && super::cgroup_of(&self.cgroups, controller).is_none() {
                self.miss(&what, "not available to loadlab on this host");
            }
        }
    }

    fn miss(&mut self, what: &str, why: &str) {
        self.unavailable.push(Unavailable {
            component: String::new(),
            what: what.to_owned(),
            why: why.to_owned(),
        });
    }

    /// The interface that provides the controllers in use: `v1`, `v2`, `hybrid` or `none`.
    pub fn version(&self) -> &'static str {
        let has = |version| self.cgroups.iter().any(|p| p.version == version && !p.controllers.is_empty());
        match (has(Version::V1), has(Version::V2)) {
            (true, true) => "hybrid",
            (true, false) => "v1",
            (false, true) => "v2",
            (false, false) => "none",
        }
    }
}

/// The groups of a process, with everything they may count; read-only.
pub(crate) fn groups_of(root: &Path, pid: u32) -> Vec<CgroupDir> {
    let found = discover(root, &pid.to_string());
    let in_v1: Vec<Controller> = found.iter().flat_map(|h| h.controllers.clone()).collect();
    let cgroup = |h: Hierarchy| {
        let controllers = match h.version {
            Version::V1 => h.controllers,
            // A file that does not exist reads as nothing.
            Version::V2 => Controller::ALL.into_iter().filter(|c| !in_v1.contains(c)).collect(),
        };
        CgroupDir { version: h.version, controllers, dir: h.own }
    };
    found.into_iter().map(cgroup).collect()
}

/// Groups given by their folders, read-only; their files show what each counts.
pub(crate) fn cgroups_at(dirs: &[PathBuf]) -> Vec<CgroupDir> {
    let by_file = [
        (Controller::Cpu, "cpu.cfs_quota_us"),
        (Controller::Cpuacct, "cpuacct.usage"),
        (Controller::Memory, "memory.usage_in_bytes"),
        (Controller::Pids, "pids.current"),
        (Controller::Io, "blkio.throttle.io_service_bytes"),
    ];
    let cgroup = |dir: &PathBuf| {
        let is_v2 = dir.join("cgroup.controllers").exists();
        let in_v1 = by_file.iter().filter(|(_, file)| dir.join(file).exists()).map(|(c, _)| *c);
        CgroupDir {
            version: if is_v2 { Version::V2 } else { Version::V1 },
            controllers: if is_v2 { Controller::ALL.to_vec() } else { in_v1.collect() },
            dir: dir.clone(),
        }
    };
    let mut cgroups: Vec<CgroupDir> = dirs.iter().map(cgroup).collect();
    // On a host with both, the v2 tree does not count what v1 has.
    let in_v1: Vec<Controller> =
        cgroups.iter().filter(|p| p.version == Version::V1).flat_map(|p| p.controllers.clone()).collect();
    for cgroup in cgroups.iter_mut().filter(|p| p.version == Version::V2) {
        cgroup.controllers.retain(|c| !in_v1.contains(c));
    }
    cgroups
}

/// Our own group in the hierarchy of CPU limits, read-only.
pub(crate) fn own_cpu_group(root: &Path) -> Vec<CgroupDir> {
    let found = discover(root, "self");
    let v1 = found.iter().find(|h| h.controllers.contains(&Controller::Cpu));
    let own = v1.or_else(|| found.iter().find(|h| h.version == Version::V2));
    let cgroup = |h: &Hierarchy| CgroupDir {
        version: h.version,
        controllers: vec![Controller::Cpu],
        dir: h.own.clone(),
    };
    own.map(cgroup).into_iter().collect()
}

/// Makes a run's folder and, in v2, enables the controllers for its children.
fn make(cgroup: &mut CgroupDir) -> io::Result<()> {
    let top = cgroup.dir.parent().map(Path::to_path_buf).unwrap_or_default();
    create_in(&top, &cgroup.dir)?;
    if cgroup.version == Version::V2 {
        cgroup.controllers.retain(|c| match c.v2_name() {
            Some(name) => pass_on(&top, name) && pass_on(&cgroup.dir, name),
            None => true,
        });
    }
    Ok(())
}

/// Makes a run's folder, below the folder of all runs. Another run that ends may remove the latter between the two
/// steps.
fn create_in(top: &Path, dir: &Path) -> io::Result<()> {
    let create = || fs::create_dir_all(top).and_then(|()| fs::create_dir(dir));
    let mut attempt = create();
    for _ in 0..10 {
        match &attempt {
            Err(e) if e.kind() == io::ErrorKind::NotFound => attempt = create(),
            _ => break,
        }
    }
    attempt
}

/// Whether the group's children have the controller, enabling it for them if needed.
fn pass_on(dir: &Path, controller: &str) -> bool {
    let file = dir.join("cgroup.subtree_control");
    let has = || describe(&file).iter().any(|w| w == controller);
    has() || fs::write(&file, format!("+{controller}")).is_ok() && has()
}

/// The v2 group to make our folder in, and the controllers its children can have. `taken` are those in v1.
fn v2_base(hierarchy: &Hierarchy, taken: &[Controller]) -> (PathBuf, Vec<Controller>) {
    let above = ancestors(&hierarchy.own, &hierarchy.mount);
    let offered = |file: &Path| -> Vec<Controller> {
        let names = describe(file);
        names.iter().filter_map(|w| Controller::from_v2(w)).filter(|c| !taken.contains(c)).collect()
    };
    let wanted = above.iter().map(|dir| offered(&dir.join("cgroup.controllers"))).max_by_key(Vec::len);
    let wanted = wanted.unwrap_or_default();
    let mut best = (hierarchy.own.clone(), offered(&hierarchy.own.join("cgroup.subtree_control")));
    for ask in [false, true] {
        for dir in &above {
            if best.1.len() == wanted.len() {
                break;
            }
            if !is_writable(dir) {
                continue;
            }
            if ask {
                for controller in wanted.iter().filter_map(|c| c.v2_name()) {
                    pass_on(dir, controller);
                }
            }
            let has = offered(&dir.join("cgroup.subtree_control"));
            if has.len() > best.1.len() {
                best = (dir.clone(), has);
            }
        }
    }
    // Every v2 group counts its CPU time, whatever its controllers.
    if !taken.contains(&Controller::Cpuacct) {
        best.1.push(Controller::Cpuacct);
    }
    best
}

/// A folder and its ancestors, up to the mount.
fn ancestors(own: &Path, mount: &Path) -> Vec<PathBuf> {
    own.ancestors().take_while(|dir| dir.starts_with(mount)).map(Path::to_path_buf).collect()
}

fn is_writable(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

fn describe(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The hierarchies that are v2 or have a controller of ours, with the group of a process (`self` or a pid) in each,
/// from `mountinfo` and `cgroup`.
fn discover(root: &Path, process: &str) -> Vec<Hierarchy> {
    let read = |name: &str| fs::read_to_string(root.join("proc").join(name)).unwrap_or_default();
    let (mounts, groups) = (read("self/mountinfo"), read(&format!("{process}/cgroup")));
    let mut found: Vec<Hierarchy> = Vec::new();
    for mount in mounts.lines().filter_map(parse_mount) {
        let Some(own) = own_group(&groups, &mount) else { continue };
        // `/` in `/proc/self/cgroup` is the hierarchy's root; the mount may show only part of the hierarchy.
        let Some(below) = strip(&own, &mount.root) else { continue };
        let at = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
        let hierarchy = Hierarchy {
            version: mount.version,
            controllers: mount.controllers.clone(),
            own: at.join(below),
            mount: at,
        };
        // A hierarchy that is mounted twice counts once.
        let again = found.iter().any(|h| {
            h.version == hierarchy.version
                && (h.version == Version::V2 || h.controllers == hierarchy.controllers)
        });
        if hierarchy.own.is_dir() && !again {
            found.push(hierarchy);
        }
    }
    found
}

/// A line of mountinfo that mounts cgroups.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    controllers: Vec<Controller>,
    root: String,
    point: PathBuf,
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (kind, options) = (right.next()?, right.nth(1)?);
    let controllers: Vec<Controller> = options.split(',').filter_map(Controller::from_v1).collect();
    let (version, controllers) = match kind {
        "cgroup2" => (Version::V2, Vec::new()),
        "cgroup" if !controllers.is_empty() => (Version::V1, controllers),
        _ => return None,
    };
    Some(Mount {
        version,
        controllers,
        root: unescape(left.get(3)?),
        point: PathBuf::from(unescape(left.get(4)?)),
    })
}

/// mountinfo writes space, tab, newline and backslash in octal.
fn unescape(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Our group in the mounted hierarchy, from lines such as `4:memory:/path` and `0::/path`.
fn own_group(groups: &str, mount: &Mount) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match mount.version {
            Version::V2 => number == "0" && names.is_empty(),
            Version::V1 => names
                .split(',')
                .any(|n| Controller::from_v1(n).is_some_and(|c| mount.controllers.contains(&c))),
        };
        is_it.then(|| path.to_owned())
    })
}

/// `path` below `root`, without a leading slash. `None` if it is not below: the mount does not show our group.
fn strip(path: &str, root: &str) -> Option<PathBuf> {
    let below = Path::new(path).strip_prefix(root).ok()?;
    below.components().all(|part| matches!(part, Part::Normal(_))).then(|| below.to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A fake host: files by path.
    pub(crate) fn fake(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn lines_of(groups: &RunGroups, root: &Path) -> Vec<String> {
        let mut lines: Vec<String> = groups
            .cgroups
            .iter()
            .map(|p| {
                let names: Vec<_> = p.controllers.iter().map(|c| c.v1_name()).collect();
                format!(
                    "{:?} {} [{}]",
                    p.version,
                    p.dir.strip_prefix(root).unwrap().display(),
                    names.join(" ")
                )
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn hybrid_hosts_are_read_controller_by_controller() {
        let root = fake(&[
            (
                "proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                 32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                 35 31 0:32 /box /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                 40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                 41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                 42 31 0:38 / /mnt/with\\040space rw - cgroup2 cgroup2 rw\n",
            ),
            ("proc/self/cgroup", "5:memory:/box/a\n3:cpu,cpuacct:/\n2:name=systemd:/x\n0::/user\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cgroup.procs", ""),
            ("sys/fs/cgroup/memory/a/cgroup.procs", ""),
            ("sys/fs/cgroup/unified/user/cgroup.controllers", "pids hugetlb\n"),
            ("sys/fs/cgroup/unified/user/cgroup.subtree_control", "pids\n"),
        ]);
        let groups = RunGroups::plan(root.path(), "r/1");
        assert_eq!(
            lines_of(&groups, root.path()),
            [
                "V1 sys/fs/cgroup/cpu,cpuacct/loadlab/r_1 [cpu cpuacct]",
                "V1 sys/fs/cgroup/memory/a/loadlab/r_1 [memory]",
                "V2 sys/fs/cgroup/unified/user/loadlab/r_1 [pids]",
            ]
        );
    }

    #[test]
    fn v2_goes_up_to_where_children_have_the_controllers() {
        let base = "sys/fs/cgroup";
        let root = fake(&[
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"),
            ("proc/self/cgroup", "0::/user.slice/app.slice/term.scope\n"),
            (&format!("{base}/cgroup.controllers"), "cpuset cpu io memory pids\n"),
            (&format!("{base}/cgroup.subtree_control"), "cpu io memory pids\n"),
            (&format!("{base}/user.slice/cgroup.controllers"), "cpu io memory pids\n"),
            (&format!("{base}/user.slice/cgroup.subtree_control"), "cpu memory pids io\n"),
            (&format!("{base}/user.slice/app.slice/cgroup.controllers"), "cpu io memory pids\n"),
            (&format!("{base}/user.slice/app.slice/cgroup.subtree_control"), "memory pids\n"),
            (&format!("{base}/user.slice/app.slice/term.scope/cgroup.controllers"), "memory pids\n"),
            (&format!("{base}/user.slice/app.slice/term.scope/cgroup.subtree_control"), "\n"),
        ]);
        let groups = RunGroups::plan(root.path(), "r");
        assert_eq!(
            lines_of(&groups, root.path()),
            ["V2 sys/fs/cgroup/user.slice/loadlab/r [cpu memory pids blkio cpuacct]"]
        );
    }

    #[test]
    fn a_host_without_cgroups_says_so() {
        let root = fake(&[("proc/self/mountinfo", "22 27 0:21 / /proc rw - proc proc rw\n")]);
        let mut groups = RunGroups::plan(root.path(), "r");
        groups.create();
        assert_eq!((groups.version(), groups.unavailable.len()), ("none", 1));
        assert_eq!(groups.unavailable[0].why, "none are mounted");
    }

    #[test]
    fn a_hierarchy_that_refuses_is_dropped_with_its_reason() {
        let root = fake(&[
            ("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("proc/self/cgroup", "5:memory:/\n"),
            // Not even root can create the folder where a file has its name.
            ("sys/fs/cgroup/memory/loadlab", ""),
        ]);
        let mut groups = RunGroups::plan(root.path(), "r");
        groups.create();
        assert!(groups.cgroups.is_empty());
        let memory = groups.unavailable.iter().find(|u| u.what == "cgroup controller `memory`").unwrap();
        assert!(memory.why.starts_with("cannot create "), "{}", memory.why);
        assert_eq!(groups.unavailable.len(), 5);
    }

    #[test]
    fn a_folder_of_the_same_name_is_left_to_its_owner() {
        let root = fake(&[
            ("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("proc/self/cgroup", "5:memory:/\n"),
            ("sys/fs/cgroup/memory/loadlab/r/cgroup.procs", ""),
        ]);
        let mut groups = RunGroups::plan(root.path(), "r");
        let dir = root.path().join(format!("sys/fs/cgroup/memory/loadlab/r-{}", std::process::id()));
        assert_eq!(groups.cgroups[0].dir, dir);
        groups.create();
        assert!(dir.is_dir());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(line: String, kind in "cgroup2?", options in "[a-z,=]*", root: String) {
            let mount = parse_mount(&format!("1 2 0:3 {root} {line} rw - {kind} x {options}"));
            if let Some(mount) = mount {
                let _ = own_group(&line, &mount);
                let _ = strip(&line, &mount.root);
            }
            let _ = crate::process::parse_stat(&line);
            let _ = crate::cgroup::read::keyed(&line, &options);
        }
    }

    #[test]
    fn a_mount_that_does_not_show_our_group_is_left_out() {
        let root = fake(&[
            ("proc/self/mountinfo", "35 31 0:32 /other /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"),
            ("proc/self/cgroup", "5:memory:/box\n"),
            ("sys/fs/cgroup/memory/cgroup.procs", ""),
        ]);
        assert_eq!(discover(root.path(), "self"), []);
    }
}
