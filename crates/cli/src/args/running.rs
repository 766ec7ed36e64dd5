//! Verbs that ask or tell a server or a mount that runs.
//!
//! Absent: starting and ending these (`args.rs`).

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// A path inside a mount: asks that mount's server
    #[arg(value_hint = ValueHint::AnyPath)]
    pub path: Option<PathBuf>,
}

/// `health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Each check with what it found
    #[arg(value_parser = ["detail"])]
    pub detail: Option<String>,
    /// Exit with 0 for HEALTH_OK, 1 for HEALTH_WARN, 2 for HEALTH_ERR
    #[arg(long)]
    pub check: bool,
}

/// `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// What the lines are
    #[arg(long, value_enum, default_value_t = By::Client)]
    pub by: By,
    /// Seconds between two looks, at least 0.5
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    pub delay: u64,
    /// Look so many times (default: until interrupted on a terminal, else once)
    #[arg(short = 'n', long, value_name = "N")]
    pub iterations: Option<u64>,
}

/// `stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// The mount, or a path in it
    #[arg(value_name = "MNT")]
    pub mountpoint: PathBuf,
    /// Seconds between two lines, at least 0.1
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: u64,
    /// Stop after so many lines (default: when interrupted)
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// The mount's numbers as it tells them, once: for `status`
    #[arg(long, hide = true)]
    pub raw: bool,
}

/// Milliseconds.
fn interval(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok((seconds * 1000.0) as u64),
        _ => Err("not between 0.1 and 3600".into()),
    }
}

/// Milliseconds.
fn delay(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.5..=3600.0).contains(&seconds) => Ok((seconds * 1000.0) as u64),
        _ => Err("not between 0.5 and 3600".into()),
    }
}

/// What the lines of `top` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    Client,
    User,
    Rank,
    Subtree,
}

impl By {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::User => "user",
            Self::Rank => "rank",
            Self::Subtree => "subtree",
        }
    }
}

/// `ops`.
#[derive(Debug, Args)]
pub struct Ops {
    /// Instead those of late that took longer than `mds_op_complaint_time` (30 s unless set) and are over
    #[arg(long, conflicts_with = "blocked")]
    pub slow: bool,
    /// Only those under way for longer than `mds_op_complaint_time`, and not for a file lock
    #[arg(long)]
    pub blocked: bool,
}

/// `perf`.
#[derive(Debug, Subcommand)]
pub enum Perf {
    /// Every counter, under Ceph's name where Ceph has it
    Dump,
    /// Count from zero; the metrics page goes on as it was
    Reset,
}

/// `cache`.
#[derive(Debug, Subcommand)]
pub enum Cache {
    /// How much is cached
    Status,
    /// Forget what the store has
    Drop,
}

/// `warmup`.
#[derive(Debug, Args)]
pub struct Warmup {
    /// A directory or file inside a mount
    #[arg(value_hint = ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Names and attributes only, no file data
    #[arg(long)]
    pub metadata: bool,
    /// Files read at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = threads)]
    pub threads: usize,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=256).contains(&threads) => Ok(threads),
        _ => Err("not between 1 and 256".into()),
    }
}

/// `client`.
#[derive(Debug, Subcommand)]
pub enum Client {
    /// List the clients
    Ls,
    /// End a client's session: its mount gets errors from then on
    Evict {
        /// Its number, as `client ls` has it; or client<ID>, as its mount's pando.client_id and the logs have it
        #[arg(value_parser = crate::verbs::client::number)]
        id: u64,
    },
    /// Everything known of one client
    Info {
        /// As for `evict`
        #[arg(value_parser = crate::verbs::client::number)]
        id: u64,
    },
}
