//! What a cached file costs the rank: growth of the process's anonymous memory over many creations with 20-byte names.
//!
//! Absent: file-backed memory (the store's pages), which the system reclaims by itself.

use crate::link::Link;
use crate::survey::{Survey, run as survey};
use anyhow::{Context, Result};
use runtime::port::Connector;
use serde::Serialize;

/// The result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub files: u64,
    /// Anonymous resident bytes before and after.
    pub before: u64,
    pub after: u64,
    pub bytes_per_file: f64,
}

/// Creates `files` files in `dirs` directories, waits for a checkpoint, and compares.
///
/// # Errors
/// When an operation fails or /proc cannot be read.
pub fn run(connector: &dyn Connector, files: u64, dirs: u32) -> Result<Memory> {
    // The first files pay for buffers that do not grow with their number.
    create(connector, 10_000, 1)?;
    let mut link = Link::open(connector)?;
    link.settle()?;
    let before = resident()?;
    create(connector, files, dirs)?;
    link.settle()?;
    let after = resident()?;
    let bytes_per_file = after.saturating_sub(before) as f64 / files as f64;
    Ok(Memory { files, before, after, bytes_per_file })
}

fn create(connector: &dyn Connector, files: u64, dirs: u32) -> Result<()> {
    let each = files / u64::from(dirs);
    let plan = Survey { threads: 1, dirs, files: each, depth: 256, tests: vec!["create".into()] };
    // One thread with many directories: the survey gives a thread one directory, so it runs once per directory.
    for dir in 0..dirs {
        survey(connector, &Survey { dirs: 1, ..plan.clone() }, &format!("memory.{files}.{dir}"))?;
    }
    Ok(())
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
