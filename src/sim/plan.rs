use rand::Rng;

use super::seed;

/// How many records each repo has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sizes {
    /// The same number for each.
    Each(u64),
    /// This many in all, as unevenly spread as on the real network (log-normal, σ = 2.5): most repos hold a handful, a few hold most of
    /// the records, none more than a fifth of all where there are more than ten repos.
    Total(u64),
}

impl Sizes {
    /// The number of records of each of `repos` repos of the world `seed`.
    pub(super) fn plan(self, world: u64, repos: usize) -> Vec<u64> {
        match self {
            Sizes::Each(records) => vec![records; repos],
            Sizes::Total(records) => spread(world, repos, records),
        }
    }
}

fn spread(world: u64, repos: usize, records: u64) -> Vec<u64> {
    let mut rng = seed::stream(world, "sizes", 0);
    let mut weights: Vec<f64> = (0..repos).map(|_| (2.5 * normal(&mut rng)).exp()).collect();
    if repos > 10 {
        // Cutting the largest raises the share of the others, so it is done until it holds.
        for _ in 0..8 {
            let cap = weights.iter().sum::<f64>() / 5.0;
            weights.iter_mut().for_each(|weight| *weight = weight.min(cap));
        }
    }
    let sum: f64 = weights.iter().sum();
    let mut sizes: Vec<u64> = weights.iter().map(|weight| (weight / sum * records as f64) as u64).collect();
    // Rounding down left fewer over than there are repos: one more for each of the first.
    let mut left = records - sizes.iter().sum::<u64>().min(records);
    for size in &mut sizes {
        let more = left.min(1);
        *size += more;
        left -= more;
    }
    sizes
}

/// A normal variate, by Box and Muller.
fn normal(rng: &mut impl Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_met_exactly_and_unevenly() {
        for (repos, total) in [(1, 7), (2, 0), (50, 20_000), (2_000, 1_000_000)] {
            let sizes = Sizes::Total(total).plan(7, repos);
            assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (repos, total));
        }
        let mut sizes = Sizes::Total(1_000_000).plan(7, 2_000);
        sizes.sort_unstable();
        assert!(sizes[1_000] < 100, "the median repo is small: {}", sizes[1_000]);
        assert!(sizes[1_999] > 20_000, "the largest repo is large: {}", sizes[1_999]);
    }
}
