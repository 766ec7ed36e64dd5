//! Crate `sim`: worlds from one seed under virtual time. In one the production rank, clients, journal and data files run on a
//! simulated disk, and a judge follows them with a reference tree (`world`). In another production coordinators give ranks to daemons
//! (`cluster`). The third has several ranks, coordinator and clients of a cluster (`ranks`). `scale` is no world but a model of
//! throughput.
//!
//! Absent: threads, clocks and files (the binary brings threads for sweeps); LMDB.

mod clock;
pub mod cluster;
pub mod model;
pub mod mutants;
pub mod ranks;
pub mod scale;
mod trace;
pub mod workload;
pub mod world;

pub use trace::Sink;
