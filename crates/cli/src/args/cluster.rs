//! Verbs about the file system as a whole and about its ranks, as Ceph has them.
//!
//! Absent: file systems and subvolumes of which there could be several (`later.rs`).

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

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
        /// The file system's name
        #[arg(value_name = "FS")]
        fs: String,
    },
    /// Change a setting of the file system: max_mds, also max_ranks (how many ranks are wanted, 1 to 256), joinable
    /// (true or false), bal_rank_mask (ranks that may be given what nobody pinned: 0x38, or all, which is also -1;
    /// 0x0: what is there stays), placement (of new directories: subtree or hash), rank_weight (RANK=WEIGHT, 0 to 255
    /// and 1 to 1000: what the rank is to have of what nobody pinned, beside others that have 100)
    Set {
        /// The file system's name
        #[arg(value_name = "FS")]
        fs: String,
        /// The setting
        key: String,
        /// What it is to be
        #[arg(allow_negative_numbers = true)]
        value: String,
    },
    /// End all ranks, and let none begin again until the file system is joinable
    Fail {
        /// The file system's name
        #[arg(value_name = "FS")]
        fs: String,
    },
    /// Let ranks begin again
    Joinable {
        /// The file system's name
        #[arg(value_name = "FS")]
        fs: String,
    },
}

/// `mds`.
#[derive(Debug, Subcommand)]
pub enum Mds {
    /// End a rank's life; a standby takes over. Of a damaged rank: let one try again
    Fail {
        /// N, mds.N, FS:N, or the name of the daemon that carries it
        #[arg(value_name = "RANK")]
        who: String,
    },
}

/// `tell`.
#[derive(Debug, Args)]
pub struct Tell {
    /// mds.N, or the name of the daemon that carries the rank
    #[arg(value_name = "MDS")]
    pub who: String,
    /// perf dump|reset, cache status|drop, session ls, session evict ID, ops, flush journal; crash, hang: to try a
    /// failover with
    #[arg(value_name = "COMMAND", required = true)]
    pub words: Vec<String>,
}

/// `subtree`.
#[derive(Debug, Subcommand)]
pub enum Subtree {
    /// Which directories are a rank's by an entry of the cluster map, and how far moves are
    Ls {
        /// Only what is at or below that directory, which is inside a mount
        #[arg(value_hint = ValueHint::DirPath)]
        path: Option<PathBuf>,
    },
    /// Have a directory's content, with all that inherits below it, handed over to another rank
    Move {
        /// A directory inside a mount
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
        /// N, or mds.N
        #[arg(value_name = "RANK", value_parser = rank, allow_negative_numbers = true)]
        rank: u16,
        /// Only that part of it, as `pando dirfrag ls` shows it
        #[arg(long, value_name = "FRAG")]
        frag: Option<String>,
    },
    /// Give such a move up, while that is possible
    Cancel {
        /// A directory inside a mount
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
        /// The move of that part of it, as `pando dirfrag ls` shows it
        #[arg(long, value_name = "FRAG")]
        frag: Option<String>,
    },
}

/// A rank's number, as Ceph's commands take it, too.
fn rank(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("mds.").unwrap_or(text);
    match digits.parse() {
        Ok(rank) if rank < proto::cluster::RANKS_MAX => Ok(rank),
        Ok(_) | Err(_) => Err(format!("ranks are 0 to {}", proto::cluster::RANKS_MAX - 1)),
    }
}

/// `dirfrag`.
#[derive(Debug, Subcommand)]
pub enum Dirfrag {
    /// The parts of a directory's names, and which rank has each
    Ls {
        /// A directory inside a mount
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
    },
    /// Have a directory's names divided into parts, which go to several ranks
    Split {
        /// A directory inside a mount, not divided yet
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
        /// Into 2^BITS parts
        #[arg(value_name = "BITS", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
        bits: u8,
    },
    /// Have such a directory's names put together again at one rank
    Merge {
        /// A directory inside a mount, divided into parts
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
    },
}
