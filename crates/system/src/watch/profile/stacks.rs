//! Counts stacks, by address while samples are taken and by name afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use loadlab_record::watch::profile::{ComponentProfile, INCOMPLETE, IdleWait, KERNEL, Stack};

use super::super::evidence::Members;
use super::names::{Calls, Name, Names};

/// Maximum number of different stacks; of further ones only the innermost function is kept.
const MOST_STACKS: usize = 40_000;
/// Values from here on are marks of the kernel within a stack (`PERF_CONTEXT_MAX`): no address is that high.
const MARKS: u64 = -4095i64 as u64;
/// Marks before addresses of the kernel (`PERF_CONTEXT_KERNEL`) and of the process (`PERF_CONTEXT_USER`).
const OF_KERNEL: u64 = -128i64 as u64;
const OF_USER: u64 = -512i64 as u64;

/// What is known about a sample besides its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// The thread ran.
    Ran,
    /// It waits; if on a futex, that is a contended mutex.
    Mutex,
    /// It waits; if for data, on a connection that its process accepted.
    Accepted,
    /// It waits for something else.
    Other,
}

/// A stack by its addresses, innermost first: those in the kernel, then those in the process.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Addresses {
    component: usize,
    pid: u32,
    reason: Reason,
    kernel: usize,
    all: Box<[u64]>,
}

/// The sampled stacks.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    components: Vec<String>,
    of_process: HashMap<u32, usize>,
    counts: HashMap<Addresses, u64>,
    /// Whether stacks were cut because there were too many.
    has_cut: bool,
    /// Scratch buffer, reused.
    read: Vec<u64>,
}

impl Stacks {
    /// Records which component the processes belong to.
    pub fn set_members(&mut self, members: &[Members]) {
        for one in members {
            let known = self.components.iter().position(|name| *name == one.component);
            let place = known.unwrap_or_else(|| {
                self.components.push(one.component.clone());
                self.components.len() - 1
            });
            for pid in &one.pids {
                self.of_process.insert(*pid, place);
            }
        }
    }

    /// Every process seen, with its component.
    pub fn processes(&self) -> Vec<(String, u32)> {
        let name = |place: usize| self.components.get(place).cloned().unwrap_or_default();
        self.of_process.iter().map(|(pid, place)| (name(*place), *pid)).collect()
    }

    /// Records that a process was created by another, and belongs to the same component.
    pub fn forked(&mut self, pid: u32, parent: u32) {
        if let Some(place) = self.of_process.get(&parent).copied() {
            // The pid may have belonged to another process before.
            self.of_process.insert(pid, place);
        }
    }

    /// The innermost address of each stack, and its weight.
    #[cfg(test)]
    pub fn weights(&self) -> Vec<(u64, u64)> {
        let first = |(stack, weight): (&Addresses, &u64)| (stack.all.first().copied().unwrap_or(0), *weight);
        let mut all: Vec<(u64, u64)> = self.counts.iter().map(first).collect();
        all.sort_unstable();
        all
    }

    /// Counts a sample with its weight, if its process belongs to a component.
    pub fn add(&mut self, pid: u32, chain: impl Iterator<Item = u64>, reason: Reason, weight: u64) {
        let Some(&component) = self.of_process.get(&pid) else { return };
        self.read.clear();
        let (mut kernel, mut context) = (0, OF_USER);
        for address in chain {
            if address >= MARKS {
                context = address;
            } else if context == OF_KERNEL {
                self.read.push(address);
                kernel = self.read.len();
            } else if context == OF_USER {
                self.read.push(address);
            }
        }
        let mut key = Addresses { component, pid, reason, kernel, all: self.read.as_slice().into() };
        if self.counts.len() >= MOST_STACKS && !self.counts.contains_key(&key) {
            self.has_cut = true;
            self.read.truncate(1);
            key = Addresses { kernel: kernel.min(1), all: self.read.as_slice().into(), ..key };
        }
        *self.counts.entry(key).or_default() += weight;
    }

    /// The sampled stacks by component, in the plan's order. `wanted` are the requested component names.
    pub fn named(self, wanted: &[String], not_seen: &mut Vec<String>) -> Vec<ComponentProfile> {
        for name in wanted.iter().filter(|name| !self.components.contains(name)) {
            not_seen.push(format!("{name}: it has no process on this machine"));
        }
        if self.has_cut {
            not_seen.push(format!("callers in stacks beyond the first {MOST_STACKS}"));
        }
        let (mut of_processes, mut of_kernel) = (BTreeMap::<u32, OfProcess>::new(), BTreeSet::new());
        for stack in self.counts.keys() {
            of_kernel.extend(stack.kernel_addresses());
            of_processes.entry(stack.pid).or_default().add(stack);
        }
        let names = Names::new();
        let of_kernel = names.of_kernel(&of_kernel.into_iter().collect::<Vec<_>>());
        of_processes.iter_mut().for_each(|(pid, of_process)| of_process.find(*pid, &names));
        let mut tables: Vec<Table> = self.components.iter().map(|name| Table::new(name)).collect();
        for (stack, samples) in &self.counts {
            let (Some(table), Some(own)) = (tables.get_mut(stack.component), of_processes.get(&stack.pid))
            else {
                continue;
            };
            let kernel = stack.kernel_addresses().filter_map(|address| of_kernel.get(&address));
            table.add(kernel.collect(), own.stack(stack), stack.reason, *samples);
        }
        tables.into_iter().map(Table::profile).collect()
    }
}

/// The functions of a process.
#[derive(Default)]
struct OfProcess {
    addresses: BTreeSet<u64>,
    /// Adjacent addresses of a stack, inner and outer, the outer one as it was recorded.
    pairs: BTreeSet<(u64, u64)>,
    names: HashMap<u64, Name>,
    /// The missing function between two adjacent addresses.
    between: HashMap<(u64, u64), u64>,
}

impl OfProcess {
    fn add(&mut self, stack: &Addresses) {
        self.addresses.extend(stack.user_addresses());
        self.pairs.extend(stack.user_pairs());
    }

    fn find(&mut self, pid: u32, names: &Names) {
        self.between = Calls::of_process(pid).between(&self.pairs);
        self.addresses.extend(self.between.values());
        let addresses: Vec<u64> = self.addresses.iter().copied().collect();
        self.names = addresses.iter().copied().zip(names.of_process(pid, &addresses)).collect();
    }

    /// A stack's functions, the innermost first.
    fn stack(&self, stack: &Addresses) -> Vec<&Name> {
        let mut missing = stack.user_pairs().map(|pair| {
            let target = self.between.get(&pair)?;
            // A target without a name is a jump to another file.
            self.names.get(target).filter(|name| name.is_function)
        });
        let named = |address| [self.names.get(&address), missing.next().flatten()];
        stack.user_addresses().flat_map(named).flatten().collect()
    }
}

impl Addresses {
    fn user_pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.all.get(self.kernel..).unwrap_or_default().windows(2).map(|pair| (pair[0], pair[1]))
    }

    /// The kernel's addresses, innermost first. A return address is just behind its call, which may be the end of its
    /// function.
    fn kernel_addresses(&self) -> impl Iterator<Item = u64> {
        calls(self.all.get(..self.kernel).unwrap_or_default())
    }

    fn user_addresses(&self) -> impl Iterator<Item = u64> {
        calls(self.all.get(self.kernel..).unwrap_or_default())
    }
}

fn calls(addresses: &[u64]) -> impl Iterator<Item = u64> {
    addresses.iter().enumerate().map(|(place, address)| address.saturating_sub(u64::from(place > 0)))
}

/// Stacks of a component, by name.
struct Table {
    profile: ComponentProfile,
    places: HashMap<String, u32>,
    stacks: BTreeMap<Vec<u32>, u64>,
    idle: BTreeMap<&'static str, u64>,
}

impl Table {
    fn new(component: &str) -> Table {
        let profile = ComponentProfile { component: component.to_owned(), ..ComponentProfile::default() };
        Table { profile, places: HashMap::new(), stacks: BTreeMap::new(), idle: BTreeMap::new() }
    }

    fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.profile.names.len() as u32;
        self.places.insert(name.to_owned(), place);
        self.profile.names.push(name.to_owned());
        place
    }

    fn add(&mut self, kernel: Vec<&Name>, user: Vec<&Name>, reason: Reason, samples: u64) {
        if let Some(why) = idle(&kernel, reason) {
            *self.idle.entry(why).or_default() += samples;
            return;
        }
        self.profile.samples += samples;
        if kernel.first().or(user.first()).is_none_or(|innermost| !innermost.is_function) {
            self.profile.unnamed += samples;
        }
        let mut frames = Vec::with_capacity(kernel.len() + user.len() + 1);
        // Without a user stack (kernel threads, or stacks that were not read) there is no outermost function to look
        // for.
        if !user.is_empty() && !is_complete(&user) {
            self.profile.incomplete += samples;
            frames.push(self.place(INCOMPLETE));
        }
        let is_shown = |name: &&&Name| reason == Reason::Ran || !is_of_waiting(name);
        for name in user.iter().rev().chain(kernel.iter().rev().filter(is_shown)) {
            frames.push(self.place(&name.text));
        }
        *self.stacks.entry(frames).or_default() += samples;
    }

    fn profile(self) -> ComponentProfile {
        let mut stacks: Vec<Stack> =
            self.stacks.into_iter().map(|(frames, samples)| Stack { frames, samples }).collect();
        stacks.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.frames.cmp(&b.frames)));
        let idle = |(why, samples): (&str, u64)| IdleWait { why: why.to_owned(), samples };
        ComponentProfile { stacks, idle: self.idle.into_iter().map(idle).collect(), ..self.profile }
    }
}

/// Functions in which every waiting thread is: the entry to a system call, and the way off the core.
fn is_of_waiting(name: &Name) -> bool {
    const EXACT: [&str; 4] = ["do_syscall_64", "x64_sys_call", "el0_svc", "invoke_syscall"];
    const BEGINNINGS: [&str; 6] =
        ["__schedule", "schedule", "io_schedule", "entry_SYSCALL", "el0_svc_", "el0t_64_"];
    let text = name.text.strip_suffix(KERNEL).unwrap_or_default();
    EXACT.contains(&text) || BEGINNINGS.iter().any(|begin| text.starts_with(begin))
}

/// What an idle thread waits for, that is, for work, which is no wait of any request. `None`: a request may be waiting,
/// too.
fn idle(kernel: &[&Name], reason: Reason) -> Option<&'static str> {
    if reason == Reason::Ran {
        return None;
    }
    let is_in = |functions: &[&str]| {
        let plain =
            |name: &Name| name.text.strip_suffix(KERNEL).is_some_and(|text| functions.contains(&text));
        kernel.iter().any(|name| plain(name))
    };
    const RECEIVES: &[&str] = &[
        "tcp_recvmsg",
        "inet_recvmsg",
        "inet6_recvmsg",
        "unix_stream_recvmsg",
        "unix_stream_read_generic",
        "unix_seqpacket_recvmsg",
    ];
    const EVENTS: &[&str] =
        &["ep_poll", "do_epoll_wait", "do_sys_poll", "do_poll", "do_select", "core_sys_select"];
    const URING: &[&str] = &["io_cqring_wait", "__do_sys_io_uring_enter", "__se_sys_io_uring_enter"];
    const ACCEPTS: &[&str] = &["inet_csk_accept", "unix_accept"];
    const FUTEXES: &[&str] = &["futex_wait", "__futex_wait", "futex_wait_queue", "futex_wait_queue_me"];
    const OTHERS: &[&str] = &[
        "pipe_read",
        "anon_pipe_read",
        "fifo_pipe_read",
        "eventfd_read",
        "do_sigtimedwait",
        "sigsuspend",
        "do_wait",
    ];
    match reason {
        _ if is_in(EVENTS) || is_in(URING) => Some("events (epoll, poll, io_uring)"),
        _ if is_in(ACCEPTS) => Some("connections (accept)"),
        Reason::Accepted if is_in(RECEIVES) => Some("the next request on a connection"),
        // The arguments of other system calls may look like those of a mutex.
        Reason::Mutex if is_in(FUTEXES) => None,
        _ if is_in(FUTEXES) => Some("condition variables and semaphores"),
        _ if is_in(OTHERS) => Some("pipes, signals and other processes"),
        _ => None,
    }
}

/// Whether a stack, innermost first, reaches the start of its thread: a function that threads start in, or a C library
/// without symbols whose callee has a frame. If there were further callers, the frame would lead to them.
fn is_complete(user: &[&Name]) -> bool {
    let is_c_library =
        |name: &Name| ["[libc.so", "[libc-", "[ld-musl"].iter().any(|file| name.text.starts_with(file));
    match user {
        [.., inner, outermost] => begins(outermost) || (inner.is_function && is_c_library(outermost)),
        [only] => begins(only),
        [] => false,
    }
}

/// Whether threads start in this function.
fn begins(name: &Name) -> bool {
    const EXACT: [&str; 10] = [
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "main",
        "thread_native_entry",
    ];
    const BEGINNINGS: [&str; 7] = [
        "__libc_start_main@",
        "runtime.goexit",
        "runtime.mstart",
        "runtime.rt0_go",
        "_rt0_",
        "runtime.mcall",
        "runtime.gcBgMarkWorker",
    ];
    let text = name.text.as_str();
    EXACT.contains(&text) || BEGINNINGS.iter().any(|begin| text.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name { text: text.to_owned(), is_function: !text.starts_with('[') }
    }

    #[test]
    fn addresses_are_counted_by_component_with_what_is_the_kernels() {
        let mut stacks = Stacks::default();
        stacks.set_members(&[Members { component: "api".into(), pids: vec![7] }]);
        let chain = [OF_KERNEL, 0xf1, 0xf2, OF_USER, 0x11, 0x12];
        let mut add = |pid, chain: &[u64]| stacks.add(pid, chain.iter().copied(), Reason::Ran, 1);
        add(7, &chain);
        add(7, &chain);
        add(9, &chain);
        stacks.forked(9, 7);
        let mut add = |pid, chain: &[u64]| stacks.add(pid, chain.iter().copied(), Reason::Ran, 1);
        add(9, &chain);
        // Addresses in a hypervisor belong to neither kernel nor process.
        add(7, &[-32i64 as u64, 0x99]);
        let mut seen: Vec<(u32, Vec<u64>, Vec<u64>, u64)> = stacks
            .counts
            .iter()
            .map(|(s, n)| (s.pid, s.kernel_addresses().collect(), s.user_addresses().collect(), *n))
            .collect();
        seen.sort();
        let (kernel, user) = (vec![0xf1, 0xf1], vec![0x11, 0x11]);
        assert_eq!(
            seen,
            [(7, vec![], vec![], 1), (7, kernel.clone(), user.clone(), 2), (9, kernel, user, 1)]
        );
    }

    #[test]
    fn of_too_many_stacks_the_innermost_function_is_counted() {
        let mut stacks = Stacks::default();
        stacks.set_members(&[Members { component: "api".into(), pids: vec![7] }]);
        let add = |stacks: &mut Stacks, caller: u64| {
            stacks.add(7, [OF_USER, 0x11, caller].into_iter(), Reason::Ran, 1);
        };
        let most = MOST_STACKS as u64;
        (0..most).for_each(|caller| add(&mut stacks, caller));
        // A known stack, and two that are not.
        [5, most, most + 1].into_iter().for_each(|caller| add(&mut stacks, caller));
        assert_eq!(stacks.counts.values().sum::<u64>(), most + 3, "every sample counts");
        assert_eq!((stacks.counts.len(), stacks.has_cut), (MOST_STACKS + 1, true));
        let of = |all: &[u64]| {
            let reason = Reason::Ran;
            stacks.counts.get(&Addresses { component: 0, pid: 7, reason, kernel: 0, all: all.into() })
        };
        assert_eq!((of(&[0x11, 5]), of(&[0x11])), (Some(&2), Some(&2)));
    }

    #[test]
    fn stacks_without_their_beginning_are_marked() {
        let mut table = Table::new("api");
        let [start, serve, odd, read] = ["_start", "serve", "[libfoo.so]", "read [kernel]"].map(name);
        table.add(vec![&read], vec![&serve, &start], Reason::Ran, 3);
        table.add(vec![], vec![&odd, &serve], Reason::Ran, 2);
        table.add(vec![&read], vec![], Reason::Ran, 1);
        let libc = name("[libc.so.6]");
        assert!(is_complete(&[&serve, &libc]) && !is_complete(&[&libc]) && !is_complete(&[&odd, &libc]));
        let profile = table.profile();
        assert_eq!((profile.samples, profile.incomplete, profile.unnamed), (6, 2, 2));
        let named = |stack: &Stack| profile.named(stack).collect::<Vec<_>>().join(";");
        assert_eq!(
            profile.stacks.iter().map(|stack| (named(stack), stack.samples)).collect::<Vec<_>>(),
            [
                ("_start;serve;read [kernel]".to_owned(), 3),
                ("[incomplete];serve;[libfoo.so]".to_owned(), 2),
                ("read [kernel]".to_owned(), 1)
            ]
        );
    }

    #[test]
    fn what_all_waits_have_in_common_is_not_shown() {
        let mut table = Table::new("api");
        let kernel =
            ["__schedule [kernel]", "schedule [kernel]", "futex_wait [kernel]", "do_syscall_64 [kernel]"];
        let [kernel, user] = [kernel.map(name).to_vec(), vec![name("lock"), name("main")]];
        table.add(kernel.iter().collect(), user.iter().collect(), Reason::Mutex, 7);
        table.add(kernel.iter().collect(), user.iter().collect(), Reason::Other, 5);
        let profile = table.profile();
        let named: Vec<_> =
            profile.stacks.iter().map(|s| profile.named(s).collect::<Vec<_>>().join(";")).collect();
        assert_eq!((profile.samples, named), (7, vec!["main;lock;futex_wait [kernel]".to_owned()]));
        let idle = IdleWait { why: "condition variables and semaphores".into(), samples: 5 };
        assert_eq!(profile.idle, [idle]);
    }

    #[test]
    fn waits_for_work_are_left_out() {
        let check = |function: &str, reason, expect: Option<&str>| {
            let name = name(&format!("{function} [kernel]"));
            assert_eq!(idle(&[&name], reason), expect, "{function}, {reason:?}");
        };
        check("ep_poll", Reason::Other, Some("events (epoll, poll, io_uring)"));
        check("inet_csk_accept", Reason::Other, Some("connections (accept)"));
        check("tcp_recvmsg", Reason::Accepted, Some("the next request on a connection"));
        check("tcp_recvmsg", Reason::Other, None);
        check("futex_wait", Reason::Other, Some("condition variables and semaphores"));
        check("futex_wait", Reason::Mutex, None);
        check("pipe_read", Reason::Other, Some("pipes, signals and other processes"));
        check("do_sigtimedwait", Reason::Mutex, Some("pipes, signals and other processes"));
        check("hrtimer_nanosleep", Reason::Mutex, None);
        check("io_schedule", Reason::Other, None);
        check("hrtimer_nanosleep", Reason::Other, None);
        check("ep_poll", Reason::Ran, None);
    }
}
