//! mdtest: the flags, phases, barriers and tree of hpc/ior's mdtest, with processes instead of MPI tasks.
//!
//! The parent spawns `np` copies of its own executable; each is told phase by phase what to do over its standard
//! input and answers on its standard output, which is the barrier. Absent: MPI, collective creates, symlinks.

pub mod options;
mod parent;
mod task;
mod tree;

pub use options::Options;
pub use parent::{Summary, run};
pub use task::serve_task;
