//! A thread's part of a load: every n-th of its users, requests and connections, dealt out in turn.

/// A thread's share.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Number of the thread, from 0.
    pub thread: u64,
    /// Number of threads that have a share.
    pub threads: u64,
}

impl Share {
    /// How many of `total` items belong to this thread.
    pub fn of(self, total: u64) -> u64 {
        match self.thread < self.threads {
            true => total / self.threads + u64::from(self.thread < total % self.threads),
            false => 0,
        }
    }

    /// How many of `total` items belong to the threads before it.
    pub fn before(self, total: u64) -> u64 {
        total / self.threads * self.thread + self.thread.min(total % self.threads)
    }

    /// The global number of this thread's item `id`.
    #[inline]
    pub fn number_of(self, id: u32) -> u64 {
        self.thread + u64::from(id) * self.threads
    }

    /// Number of the thread within its process, if `before` threads belong to the processes before it.
    pub fn thread_after(self, before: u64) -> u64 {
        self.thread - before
    }

    /// Which of `count` things this thread's item `id` uses. Each thread uses all of them in turn, whatever the others
    /// have: an agent's source addresses are its own. Threads start at different ones.
    ///
    /// # Panics
    /// `count` is 0.
    #[inline]
    pub fn turn_of(self, id: u32, count: usize) -> usize {
        let count = count as u64;
        ((self.thread * count / self.threads + u64::from(id)) % count) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_lie_end_to_end_and_add_up(total in 0u64..1000, threads in 1u64..9, beyond in 0u64..3) {
            let mut before = 0;
            for thread in 0..threads + beyond {
                let share = Share { thread, threads };
                if thread < threads {
                    prop_assert_eq!(share.before(total), before);
                }
                before += share.of(total);
            }
            prop_assert_eq!(before, total);
        }

        #[test]
        fn each_thread_uses_all_things_evenly(items in 0u32..200, count in 1usize..20, threads in 1u64..9) {
            let mut firsts = Vec::new();
            for thread in 0..threads {
                let share = Share { thread, threads };
                let mut used = vec![0; count];
                (0..items).for_each(|id| used[share.turn_of(id, count)] += 1);
                let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
                prop_assert!(most - least <= 1, "{used:?}");
                firsts.push(share.turn_of(0, count));
            }
            firsts.dedup();
            prop_assert_eq!(firsts.len(), count.min(threads as usize));
        }
    }
}
