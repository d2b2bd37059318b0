//! Threads that must not disturb the load: those that watch, scrape, draw and serve while requests are sent.
//!
//! They run at a lower priority than load threads, so that the kernel runs a waking load thread first, and off the
//! cores that load threads are bound to, if there are others. Both are best effort: a thread that is refused either
//! still watches.

use std::sync::OnceLock;

use rustix::process::{getpid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Nice levels below the load: the thread's weight is a tenth of a load thread's, which on a busy core is still ten
/// times what watching fifty components takes.
const NICE: i32 = 10;
/// The kernel's lowest priority.
const NICEST: i32 = 19;

/// The cores that load threads are bound to; set once per process.
static LOAD_CORES: OnceLock<Vec<usize>> = OnceLock::new();

/// Records the cores that load threads are bound to: threads that enter the background from now on keep off them. Set
/// once.
pub fn keep_off(load_cores: &[usize]) {
    // A second call would come from another load, and only one load per process binds its threads.
    let _ = LOAD_CORES.set(load_cores.to_vec());
}

/// Puts the calling thread, and the threads it starts from now on, behind the load.
pub fn enter() {
    enter_beside(LOAD_CORES.get().map_or(&[], Vec::as_slice));
}

fn enter_beside(load_cores: &[usize]) {
    // Priorities on Linux belong to threads (setpriority(2)): no pid means the calling thread, and the process's own
    // pid its first thread. Count from the latter, since a thread may have inherited its priority from one in the
    // background.
    let first = getpriority_process(Some(getpid())).unwrap_or(0);
    let _ = setpriority_process(None, (first + NICE).min(NICEST));
    if load_cores.is_empty() {
        return;
    }
    if let Ok(allowed) = sched_getaffinity(None)
        && let Some(others) = without(&allowed, load_cores)
    {
        let _ = sched_setaffinity(None, &others);
    }
}

/// The remaining cores, if any.
fn without(allowed: &CpuSet, load_cores: &[usize]) -> Option<CpuSet> {
    let mut others = *allowed;
    load_cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| others.unset(*core));
    (others.count() > 0).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_steps_behind_the_load_and_takes_its_children_along() {
        let before = getpriority_process(None).unwrap();
        let own = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|core| own.is_set(*core)).unwrap();
        std::thread::scope(|scope| {
            let body = || {
                enter_beside(&[first]);
                let of_child = || {
                    enter_beside(&[]);
                    (getpriority_process(None).unwrap(), sched_getaffinity(None).unwrap())
                };
                std::thread::scope(|scope| scope.spawn(of_child).join().unwrap())
            };
            let (nice, cores) = scope.spawn(body).join().unwrap();
            assert_eq!(nice, (before + NICE).min(NICEST), "once, however often it is asked for");
            // With a single core there is no other.
            assert_eq!(cores.is_set(first), own.count() == 1);
        });
        assert_eq!(getpriority_process(None).unwrap(), before, "its own alone");
    }

    #[test]
    fn cores_of_the_load_are_left_where_there_are_others() {
        let set = |cores: &[usize]| {
            let mut set = CpuSet::new();
            cores.iter().for_each(|core| set.set(*core));
            set
        };
        assert_eq!(without(&set(&[0, 1, 2]), &[1, 9]), Some(set(&[0, 2])));
        assert_eq!(without(&set(&[0, 1]), &[0, 1]), None);
    }
}
