//! Crate `stdx`: what std lacks and every pure crate needs: time values, a seeded PRNG, the `Machine`
//! contract, checksums, the keyed name hash, sizes as people write them, and the switch for seeded defects.
//!
//! Absent: any clock, file, socket, thread, global state or hash-order iteration.

pub mod checksum;
pub mod hash;
pub mod machine;
pub mod mutant;
pub mod prng;
pub mod size;
pub mod time;

pub use checksum::crc32c;
pub use machine::{Machine, Outbox};
pub use prng::Prng;
pub use time::{Mono, Now, Wall};
