//! Verbs about the file system as a whole and about its ranks, as Ceph has them.
//!
//! Absent: file systems and subvolumes of which there could be several (`later.rs`).

use clap::{Args, Subcommand};

/// `fs`.
#[derive(Debug, Subcommand)]
pub enum Fs {
    /// List the file systems: a server has one
    Ls,
    /// Who carries which rank and does how much; standbys; space
    Status {
        /// The file system's name
        fs: Option<String>,
    },
    /// The cluster map
    Dump,
    /// The part of the map that is about one file system
    Get {
        #[arg(value_name = "FS")]
        fs: String,
    },
    /// Change a setting of the file system: max_mds (1 in this version), joinable (true or false)
    Set {
        #[arg(value_name = "FS")]
        fs: String,
        key: String,
        value: String,
    },
    /// End all ranks, and let none begin again until the file system is joinable
    Fail {
        #[arg(value_name = "FS")]
        fs: String,
    },
    /// Let ranks begin again
    Joinable {
        #[arg(value_name = "FS")]
        fs: String,
    },
}

/// `mds`.
#[derive(Debug, Subcommand)]
pub enum Mds {
    /// End a rank's life; a standby takes over. Of a damaged rank: let one try again
    Fail {
        /// 0, FS:0, or the name of the daemon that carries it
        #[arg(value_name = "RANK")]
        who: String,
    },
}

/// `tell`.
#[derive(Debug, Args)]
pub struct Tell {
    /// mds.0
    pub who: String,
    pub words: Vec<String>,
}
