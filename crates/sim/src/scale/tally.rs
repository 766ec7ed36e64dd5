//! What a phase came to: operations, how long they took, what each rank did.
//!
//! Absent: how it is shown (`report.rs`).

use super::seat::Did;

/// Each doubling of a time is cut into so many steps.
const STEPS: u64 = 32;
const BUCKETS: usize = 64 * STEPS as usize;

/// Times by size, to a thirty-second of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    counts: Vec<u64>,
    count: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0 }
    }
}

const fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - STEPS.ilog2();
    (shift as usize + 1) * STEPS as usize + ((nanos >> shift) - STEPS) as usize
}

/// The longest time in a bucket.
const fn longest(bucket: usize) -> u64 {
    let (row, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if row == 0 { step } else { ((STEPS + step + 1) << (row - 1)) - 1 }
}

impl Times {
    pub(super) fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
    }

    pub(super) fn clear(&mut self) {
        self.counts.fill(0);
        self.count = 0;
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The time in nanoseconds that so many of a thousand (0 to 1000; 500: the median) do not exceed, up to a thirty-second too long; 0 if there is none.
    #[must_use]
    pub fn of_thousand(&self, part: u64) -> u64 {
        let wanted = (self.count * part).div_ceil(1000);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted.max(1)
        });
        found.map_or(0, longest)
    }
}

/// One phase of a workload on so many ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// As tables and CSV files name it.
    pub name: &'static str,
    /// 1 and more.
    pub ranks: u16,
    /// Virtual nanoseconds that were counted.
    pub nanos: u64,
    /// Of each operation that ended meanwhile, from its begin to its answer.
    pub times: Times,
    /// What each rank did, by its number.
    pub did: Vec<Did>,
    /// Records that the store keeps because they were changed.
    pub kept: u64,
}

impl Phase {
    /// Operations that ended, for one second of virtual time, of all ranks together.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        per_second(self.times.count(), self.nanos)
    }

    /// Sum over all ranks.
    #[must_use]
    pub fn sum(&self, of: impl Fn(&Did) -> u64) -> u64 {
        self.did.iter().map(of).sum()
    }

    /// The part of its time that a rank's CPU was busy, 0 to about 1: of the most and of the least busy one.
    #[must_use]
    pub fn busy(&self) -> (f64, f64) {
        let busy = |did: &Did| did.busy_ns as f64 / self.nanos.max(1) as f64;
        let most = self.did.iter().map(busy).fold(0.0, f64::max);
        (most, self.did.iter().map(busy).fold(most, f64::min))
    }
}

pub(super) fn per_second(count: u64, nanos: u64) -> f64 {
    count as f64 * 1e9 / nanos.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_to_a_thirty_second() {
        for nanos in (0..5_000).chain([1 << 20, (1 << 33) + 12_345, u64::MAX >> 1]) {
            let told = longest(bucket(nanos));
            assert!(told >= nanos && told - nanos <= nanos / STEPS, "{nanos} {told}");
        }
        let mut times = Times::default();
        (1..=1000).for_each(|nanos| times.add(nanos));
        assert_eq!(times.count(), 1000);
        assert!((500..=516).contains(&times.of_thousand(500)));
        assert!((990..=1023).contains(&times.of_thousand(990)));
        times.clear();
        assert_eq!(times.of_thousand(500), 0);
    }
}
