//! A small seeded PRNG (xoshiro256**, Blackman and Vigna 2018), the only dice of the pure crates.
//!
//! Absent: seeding from the environment, and cryptographic strength.

/// Deterministic pseudo-random numbers from one 64-bit seed.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// Expands the seed with SplitMix64, as the authors of xoshiro advise.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
            crate::hash::mix64(x)
        };
        Self { state: [next(), next(), next(), next()] }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let result = self.state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = self.state[1] << 17;
        self.state[2] ^= self.state[0];
        self.state[3] ^= self.state[1];
        self.state[1] ^= self.state[2];
        self.state[0] ^= self.state[3];
        self.state[2] ^= t;
        self.state[3] = self.state[3].rotate_left(45);
        result
    }

    /// Uniform in `0..bound`; `bound` 0 gives 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..high`; `low` when the range is empty.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True with probability `numerator / denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// An index below `len`; 0 for an empty list.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// An independent stream, so that one consumer's draws do not shift another's.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_stream() {
        let (mut a, mut b) = (Prng::new(1), Prng::new(1));
        assert!((0..1000).all(|_| a.next_u64() == b.next_u64()));
        assert_ne!(Prng::new(1).next_u64(), Prng::new(2).next_u64());
    }

    #[test]
    fn bounds_hold() {
        let mut p = Prng::new(3);
        assert!((0..10_000).all(|_| p.below(7) < 7));
        assert!((0..10_000).all(|_| (5..9).contains(&p.range(5, 9))));
        assert_eq!(p.below(0), 0);
    }
}
