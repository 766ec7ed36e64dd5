//! The keyed 64-bit name hash: SipHash-1-3 under a 128-bit seed that belongs to one file system.
//!
//! Keyed, so that nobody who chooses names can fill one prefix of a directory (hash flooding).
//! Absent: unkeyed hashes; where one is needed for placement it gets its own function.

use std::hash::Hasher;

/// The seed of a file system's name hash. Part of the disk format; never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed(pub [u8; 16]);

/// SipHash-1-3 of `bytes` under `seed`.
#[must_use]
pub fn keyed_hash(seed: &HashSeed, bytes: &[u8]) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new_with_key(&seed.0);
    hasher.write(bytes);
    hasher.finish()
}

/// What nobody can make, or tell from chance, who does not have the key: SipHash-2-4 with 128 bits.
#[must_use]
pub fn keyed_tag(key: &[u8; 16], bytes: &[u8]) -> [u8; 16] {
    let mut hasher = siphasher::sip128::SipHasher24::new_with_key(key);
    hasher.write(bytes);
    siphasher::sip128::Hasher128::finish128(&hasher).as_bytes()
}

/// A fixed bijective mix of 64 bits (the finalizer of SplitMix64): spreads consecutive inode
/// numbers over environments and hash-table slots. Part of the disk format where it chooses an
/// environment.
#[must_use]
pub const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fixed_forever() {
        let seed = HashSeed([7; 16]);
        assert_eq!(keyed_hash(&seed, b"name"), 0x4a06_1907_1467_0c61);
        assert_ne!(keyed_hash(&seed, b"name"), keyed_hash(&HashSeed([8; 16]), b"name"));
        assert_eq!(mix64(1), 0x5692_161D_100B_05E5);
    }

    #[test]
    fn a_tag_depends_on_each_bit_of_key_and_bytes() {
        let tag = keyed_tag(&[7; 16], b"12345678");
        assert_ne!(tag, keyed_tag(&[6; 16], b"12345678"));
        assert_ne!(tag, keyed_tag(&[7; 16], b"12345679"));
        // The test vector of SipHash-2-4-128 for no bytes.
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let expected = 0xa3_81_7f_04_ba_25_a8_e6_6d_f6_72_14_c7_55_02_93_u128.to_be_bytes();
        assert_eq!(keyed_tag(&key, b""), expected);
    }
}
