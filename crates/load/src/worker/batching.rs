//! How many responses a turn waits for.
//!
//! Waking a sleeping generator costs the *system* several microseconds, if it runs where the response is sent. In a
//! closed loop with many users each response would pay for that, a twentieth of the throughput to be measured. So some
//! responses are taken together, within a small fraction of a response time.

use crate::io::Wait;

/// A closed loop waits for the responses of one in this many of its users, within these bounds.
const BATCH_SIZE_DIVISOR: u64 = 3;
const MAX_BATCH_SIZE: u64 = 20;
const MIN_BATCH_SIZE: u64 = 5;
/// It waits for them at most the mean service time divided by this, and at most this long.
const BATCH_WAIT_DIVISOR: u64 = 12;
const MAX_BATCH_WAIT_NS: u64 = 50_000;

/// How long a closed loop waits whose users send as soon as they are free, with `in_flight` of them waiting on
/// `connections` for a response that takes `service_ns` on average. With few users or few connections, responses are
/// taken at once: on few connections they arrive together anyway.
pub fn batch_wait(in_flight: u64, connections: u64, service_ns: u64, until_ns: u64) -> Wait {
    let at_least = (in_flight / BATCH_SIZE_DIVISOR).min(MAX_BATCH_SIZE).min(connections);
    if at_least < MIN_BATCH_SIZE {
        return Wait::until(until_ns);
    }
    let within_ns = (service_ns / BATCH_WAIT_DIVISOR).min(MAX_BATCH_WAIT_NS);
    Wait { until_ns, at_least: at_least as u32, within_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_many_users_within_a_twelfth_of_an_answer() {
        let check = |users, service_ns, expect| {
            let wait = batch_wait(users, users, service_ns, 7);
            assert_eq!(
                (wait.at_least, wait.within_ns, wait.until_ns),
                expect,
                "{users} users, {service_ns} ns"
            );
        };
        check(1, 1_000_000, (1, 0, 7));
        check(14, 1_000_000, (1, 0, 7));
        check(15, 120_000, (5, 10_000, 7));
        check(50, 360_000, (16, 30_000, 7));
        check(60, 600_000, (20, 50_000, 7));
        check(10_000, 60_000_000, (20, 50_000, 7));
    }

    #[test]
    fn not_for_more_than_there_are_connections() {
        let at_least = |users, connections| batch_wait(users, connections, 1_000_000, 7).at_least;
        assert_eq!((at_least(100, 1), at_least(100, 4), at_least(100, 5), at_least(200, 20)), (1, 1, 5, 20));
    }
}
