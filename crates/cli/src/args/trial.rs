//! Hidden verbs of `make run` and of the system tests: work on a mount, and its verification.
//!
//! Absent: performance runs (`bench.rs`).

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Files to make
    #[arg(long, default_value_t = 20_000)]
    pub files: u64,
    /// Processes that work at once
    #[arg(long, default_value_t = 4)]
    pub processes: u64,
}

/// `load`.
#[derive(Debug, Subcommand)]
pub enum Load {
    /// Write files one after the other, fsync each, and note each in ACK once it is durable
    Write(LoadWrite),
    /// Check that every noted file is there with its content
    Verify { folder: PathBuf, ack: PathBuf },
    /// Do one thing to each of a row of files; prints the nanoseconds each took
    Phase(LoadPhase),
}

/// `load phase`.
#[derive(Debug, Args)]
pub struct LoadPhase {
    #[arg(value_enum)]
    pub phase: Phase,
    pub folder: PathBuf,
    pub first: u64,
    pub count: u64,
}

/// What is done to every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    Create,
    Stat,
    Read,
    List,
}

/// `load write`.
#[derive(Debug, Args)]
pub struct LoadWrite {
    pub folder: PathBuf,
    /// Where to note the number of each durable file; on another file system
    pub ack: PathBuf,
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    #[arg(long, default_value_t = u64::MAX)]
    pub count: u64,
    #[arg(long, default_value = "4K", value_parser = stdx::size::parse)]
    pub bytes: u64,
}
