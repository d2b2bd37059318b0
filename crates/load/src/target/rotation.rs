//! Which address of a host the next connection goes to.
//!
//! Connections take a host's addresses in turn. An address that refuses is skipped for a while, so that a name with two
//! addresses and one server (`localhost` is 127.0.0.1 and ::1) costs nothing but the first attempt.

use crate::target::Address;

/// How long an address is skipped after it refused.
const SKIP_REFUSED_NS: u64 = 1_000_000_000;

/// The addresses of every host of a load, as one worker sees them.
pub struct Addresses<'r> {
    hosts: &'r [Vec<Address>],
    /// Until when each address is skipped, on the load's clock.
    refused_until_ns: Vec<Vec<u64>>,
}

impl<'r> Addresses<'r> {
    /// No address has refused yet.
    pub fn new(hosts: &'r [Vec<Address>]) -> Self {
        let refused_until_ns = hosts.iter().map(|h| vec![0; h.len()]).collect();
        Addresses { hosts, refused_until_ns }
    }

    /// Number of addresses of a host.
    pub fn count(&self, host: u16) -> usize {
        self.hosts[host as usize].len()
    }

    /// One address of a host.
    pub fn get(&self, host: u16, index: usize) -> Option<&'r Address> {
        self.hosts.get(host as usize)?.get(index)
    }

    /// Index of the first address from `from` on, wrapping around, that has not refused lately; `from` itself if all
    /// have.
    #[inline]
    pub fn choose(&self, host: u16, from: usize, now_ns: u64) -> usize {
        let until_ns = &self.refused_until_ns[host as usize];
        let round = |i: usize| (from + i) % until_ns.len().max(1);
        (0..until_ns.len()).map(round).find(|i| until_ns[*i] <= now_ns).unwrap_or_else(|| round(0))
    }

    /// Moves the zero of the load's clock later by `by_ns`.
    pub fn move_clock(&mut self, by_ns: u64) {
        self.refused_until_ns.iter_mut().flatten().for_each(|until| *until = until.saturating_sub(by_ns));
    }

    /// Records that an address refused.
    pub fn refused(&mut self, host: u16, index: usize, now_ns: u64) {
        self.refused_until_ns[host as usize][index] = now_ns + SKIP_REFUSED_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_refused_is_skipped_for_a_while() {
        let hosts = vec![vec!["127.0.0.1:1".parse().unwrap()], vec!["[::1]:1".parse().unwrap(); 3]];
        let mut addresses = Addresses::new(&hosts);
        let chosen = |a: &Addresses<'_>, now| (0..4).map(|i| a.choose(1, i, now)).collect::<Vec<_>>();
        assert_eq!(chosen(&addresses, 0), [0, 1, 2, 0]);
        addresses.refused(1, 1, 5);
        assert_eq!(chosen(&addresses, 5), [0, 2, 2, 0]);
        assert_eq!(chosen(&addresses, 5 + SKIP_REFUSED_NS), [0, 1, 2, 0]);
        (0..3).for_each(|i| addresses.refused(1, i, 5));
        assert_eq!(chosen(&addresses, 6), [0, 1, 2, 0]);
        addresses.refused(0, 0, 5);
        assert_eq!(addresses.choose(0, 7, 6), 0);
        // An address that refused before the load began is skipped no longer than any other.
        addresses.refused(1, 1, 90 * SKIP_REFUSED_NS);
        addresses.move_clock(90 * SKIP_REFUSED_NS + 1);
        assert_eq!(chosen(&addresses, 0), [0, 2, 2, 0]);
        assert_eq!(chosen(&addresses, SKIP_REFUSED_NS), [0, 1, 2, 0]);
    }
}
