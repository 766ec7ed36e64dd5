//! One input made from others: bits, bytes, ranges, splices, and integers at the edges of their types.
//!
//! Absent: knowledge of formats (`repair` has what is needed).

use stdx::Prng;

/// No input grows beyond this.
pub const INPUT_BYTES_MAX: usize = 4096;

const EDGES: &[u64] = &[
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0xFFF,
    0x1000,
    0x7FFF,
    0xFFFF,
    0x1_0000,
    0xF_FFFF,
    0x10_0000,
    0x10_0001,
    0x3F_FFFF,
    0x40_0001,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 32,
    (1 << 48) - 1,
    1 << 56,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Seeded mutations.
#[derive(Clone, Debug)]
pub struct Mutator(Prng);

impl Mutator {
    /// One seed gives one sequence of inputs from one pool.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Prng::new(seed))
    }

    /// The next input; `pool` is not empty in any useful run.
    pub fn next(&mut self, pool: &[Vec<u8>], repair: Option<fn(&mut [u8])>) -> Vec<u8> {
        let mut bytes = pool.get(self.0.index(pool.len())).cloned().unwrap_or_default();
        for _ in 0..=self.0.below(5) {
            self.mutate(&mut bytes, pool);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        // Some stay unrepaired: the checks that refuse them are code, too.
        if let Some(repair) = repair
            && self.0.chance(3, 4)
        {
            repair(&mut bytes);
        }
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, pool: &[Vec<u8>]) {
        let p = &mut self.0;
        let len = bytes.len();
        let at = p.index(len);
        let end = at + p.index((len - at).min(64) + 1);
        match p.below(11) {
            0 if len > 0 => bytes[at] ^= 1 << p.below(8),
            1 if len > 0 => bytes[at] = p.below(256) as u8,
            2 => {
                let most = if p.chance(1, 8) { 300 } else { 16 };
                let count = 1 + p.index(most);
                let fill = p.chance(1, 2).then(|| p.below(256) as u8);
                let new: Vec<u8> = (0..count).map(|_| fill.unwrap_or_else(|| p.below(256) as u8)).collect();
                bytes.splice(at..at, new);
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let copy = bytes[at..end].to_vec();
                let to = p.index(len + 1);
                bytes.splice(to..to, copy);
            }
            5 => {
                let copy = bytes[at..end].to_vec();
                let to = p.index(len + 1 - copy.len());
                bytes[to..to + copy.len()].copy_from_slice(&copy);
            }
            6 => {
                let other = pool.get(p.index(pool.len())).map_or(&[][..], Vec::as_slice);
                let from = if p.chance(1, 2) { at.min(other.len()) } else { p.index(other.len() + 1) };
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            7 | 8 => self.tweak_number(bytes, at),
            9 => bytes.truncate(at),
            _ => bytes[at..end].fill(0),
        }
    }

    /// Sets or nudges an integer of some width in either byte order.
    fn tweak_number(&mut self, bytes: &mut [u8], at: usize) {
        let p = &mut self.0;
        let width = [1, 2, 4, 8][p.index(4)];
        let Some(field) = bytes.get_mut(at..at + width) else { return };
        let mut whole = [0; 8];
        whole[..width].copy_from_slice(field);
        let old = u64::from_le_bytes(whole);
        let new = match p.below(4) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            _ => EDGES[p.index(EDGES.len())],
        };
        field.copy_from_slice(&new.to_le_bytes()[..width]);
        if p.chance(1, 4) {
            field.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_nothing_outgrows_the_limit() {
        let pool = vec![vec![7; 40], vec![], (0..=255).collect()];
        let (mut a, mut b) = (Mutator::new(1), Mutator::new(1));
        let mut longest = 0;
        for _ in 0..20_000 {
            let input = a.next(&pool, None);
            assert_eq!(input, b.next(&pool, None));
            longest = longest.max(input.len());
        }
        assert!((300..=INPUT_BYTES_MAX).contains(&longest), "{longest}");
    }
}
