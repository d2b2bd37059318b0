//! Several hypotheses tested together, in order of importance: the chance of any false alarm among them stays below
//! one significance level, which is spent first on those that matter most.
//!
//! Each hypothesis starts with a share of the level. A rejected one passes its share on along weighted edges, so what
//! follows from it is tested only then (the sequentially rejective graphical procedure: Bretz, Maurer, Brannath and
//! Posch 2009). With equal shares and equal edges between all it is Holm's procedure.

/// Hypotheses, and how they pass on their level.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// Each one's share of the level; the sum is at most 1.
    shares: Vec<f64>,
    /// By giver and taker: the part of its share that a rejected giver passes on; at most 1 in total for each giver.
    edges: Vec<Vec<f64>>,
}

impl Hierarchy {
    /// From figures, the details of each (by index), and details that any figure leads to. The level starts with the
    /// figures. A rejected figure passes half of its share to the other figures and the rest to its own details and
    /// the common ones; without details it passes on everything to the figures. A detail passes its share to its
    /// siblings.
    pub fn new(details_of: &[Vec<usize>], common: &[usize]) -> Hierarchy {
        let figures = details_of.len();
        let details = details_of.iter().flatten().chain(common).max().map_or(0, |last| last + 1);
        let all = figures + details;
        let mut shares = vec![0.0; all];
        shares[..figures].fill(1.0 / figures.max(1) as f64);
        let mut edges = vec![vec![0.0; all]; all];
        for (figure, own) in details_of.iter().enumerate() {
            let others: Vec<usize> = (0..figures).filter(|other| *other != figure).collect();
            let places = |details: &[usize]| details.iter().map(|d| figures + d).collect::<Vec<_>>();
            let (to_own, to_common) = parts(own.len(), common.len());
            let to_details = if others.is_empty() || to_own + to_common == 0.0 { 1.0 } else { 0.5 };
            let to_others = if to_own + to_common == 0.0 { 1.0 } else { 1.0 - to_details };
            for (takers, part) in [
                (others, to_others),
                (places(own), to_details * to_own),
                (places(common), to_details * to_common),
            ] {
                for taker in &takers {
                    edges[figure][*taker] = part / takers.len() as f64;
                }
            }
        }
        for group in details_of.iter().map(Vec::as_slice).chain([common]) {
            for giver in group {
                for taker in group.iter().filter(|taker| *taker != giver) {
                    edges[figures + giver][figures + taker] = 1.0 / (group.len() - 1) as f64;
                }
            }
        }
        Hierarchy { shares, edges }
    }

    /// The level at which each hypothesis is judged, given the probability of its result by chance: those at or below
    /// their level are rejected. 0 means not tested, since nothing led to it. `chances` has the figures first, then the
    /// details.
    pub fn levels(mut self, chances: &[f64], level: f64) -> Vec<f64> {
        let mut left: Vec<usize> = (0..self.shares.len()).collect();
        let mut levels = vec![0.0; self.shares.len()];
        let chance = |index: usize| chances.get(index).copied().unwrap_or(1.0);
        let passes =
            |shares: &[f64], index: usize| shares[index] > 0.0 && chance(index) <= shares[index] * level;
        // The order does not change what is rejected; taking the least probable first gives it the strictest level.
        while let Some(rejected) = left
            .iter()
            .copied()
            .filter(|index| passes(&self.shares, *index))
            .min_by(|a, b| chance(*a).total_cmp(&chance(*b)))
        {
            levels[rejected] = self.shares[rejected] * level;
            left.retain(|index| *index != rejected);
            self.hand_on(rejected, &left);
        }
        for index in left {
            levels[index] = self.shares[index] * level;
        }
        levels
    }

    /// Removes a hypothesis: its share moves along its edges, and edges that led to it now lead past it.
    fn hand_on(&mut self, gone: usize, left: &[usize]) {
        let share = std::mem::replace(&mut self.shares[gone], 0.0);
        let onward = self.edges[gone].clone();
        for giver in left {
            self.shares[*giver] += share * onward[*giver];
            let there = self.edges[*giver][gone];
            let and_back = there * onward[*giver];
            for taker in left {
                self.edges[*giver][*taker] = match giver == taker || and_back >= 1.0 {
                    true => 0.0,
                    false => (self.edges[*giver][*taker] + there * onward[*taker]) / (1.0 - and_back),
                };
            }
        }
    }
}

/// How a figure's level is divided between its own details and the common ones, given how many there are of each.
pub fn parts(own: usize, common: usize) -> (f64, f64) {
    match (own, common) {
        (0, 0) => (0.0, 0.0),
        (_, 0) => (1.0, 0.0),
        (0, _) => (0.0, 1.0),
        _ => (0.5, 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12)
    }

    #[test]
    fn without_details_it_is_holms_procedure() {
        let none = vec![Vec::new(); 4];
        let levels = Hierarchy::new(&none, &[]).levels(&[0.001, 0.5, 0.013, 0.03], 0.04);
        // 0.001 ≤ 0.04 / 4, 0.013 ≤ 0.04 / 3, 0.03 > 0.04 / 2
        assert!(near(&levels, &[0.01, 0.02, 0.04 / 3.0, 0.02]), "{levels:?}");
    }

    #[test]
    fn a_detail_is_tested_only_where_its_figure_differs() {
        let details = vec![vec![0, 1], vec![2], Vec::new()];
        let tested = |chances: &[f64]| Hierarchy::new(&details, &[3]).levels(chances, 0.06);
        let none = tested(&[0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0]);
        assert!(near(&none, &[0.02, 0.02, 0.02, 0.0, 0.0, 0.0, 0.0]), "{none:?}");
        // Half to the other figures, a quarter to its own two, a quarter to the common one.
        let first = tested(&[0.001, 0.5, 0.5, 0.5, 0.5, 0.0, 0.5]);
        assert!(near(&first, &[0.02, 0.025, 0.025, 0.0025, 0.0025, 0.0, 0.005]), "{first:?}");
        // A detail that differs passes its share to its sibling.
        let both = tested(&[0.001, 0.5, 0.5, 0.001, 0.004, 0.0, 0.5]);
        assert!(near(&both[3..5], &[0.0025, 0.005]), "{both:?}");
    }

    #[test]
    fn no_level_comes_from_nowhere() {
        let details = vec![vec![0, 1, 2], vec![3], Vec::new()];
        for rejected in 0..128usize {
            let chances: Vec<f64> = (0..8).map(|i| if rejected >> i & 1 == 1 { 0.0 } else { 1.0 }).collect();
            let levels = Hierarchy::new(&details, &[4]).levels(&chances, 0.05);
            let open: f64 = levels.iter().zip(&chances).filter(|(_, c)| **c == 1.0).map(|(l, _)| l).sum();
            assert!(open <= 0.05 + 1e-12, "{rejected:b}: {levels:?}");
        }
    }

    #[test]
    fn nothing_to_test_is_no_trouble() {
        assert!(Hierarchy::new(&[], &[]).levels(&[], 0.05).is_empty());
        assert!(near(&Hierarchy::new(&[vec![0]], &[]).levels(&[0.01, 0.02], 0.05), &[0.05, 0.05]));
    }
}
