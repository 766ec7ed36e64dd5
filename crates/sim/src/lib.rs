//! Crate `sim`: a world from one seed. The production rank, clients, journal and data files run on a
//! simulated disk under virtual time; a judge follows them with a reference tree.
//!
//! Absent: threads, clocks and files (the binary brings threads for sweeps); LMDB.

pub mod model;
pub mod mutants;
pub mod workload;
pub mod world;
