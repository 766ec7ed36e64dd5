//! What a cached file costs the rank: growth of the process's anonymous memory over many creations with 20-byte names, if asked
//! for with the capabilities on them of one client.
//!
//! Absent: file-backed memory (the store's pages), which the system reclaims by itself.

use crate::link::Link;
use crate::survey::{Survey, run as survey};
use anyhow::{Context, Result, bail, ensure};
use proto::caps::Bits;
use proto::reply::Reply;
use proto::request::Request;
use proto::{FileKind, NodeRef};
use runtime::port::Connector;
use serde::Serialize;

/// Made before anything is measured.
const WARM_FILES: u64 = 10_000;
/// Of one page of a listing.
const PAGE_BYTES: u32 = 1 << 20;

/// The result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub files: u64,
    /// Anonymous resident bytes before and after.
    pub before: u64,
    pub after: u64,
    pub bytes_per_file: f64,
}

/// Creates `files` files in `dirs` directories, waits for a checkpoint, and compares. `caps`: one client lists them all and is
/// granted what it may keep.
///
/// # Errors
/// When an operation fails or /proc cannot be read.
pub fn run(connector: &dyn Connector, files: u64, dirs: u32, caps: bool) -> Result<Memory> {
    // The first files pay for buffers that do not grow with their number.
    create(connector, WARM_FILES, 1)?;
    let mut link = Link::open(connector)?;
    link.settle()?;
    let before = resident()?;
    create(connector, files, dirs)?;
    let keeper = caps.then(|| keep_all(connector, files)).transpose()?;
    link.settle()?;
    let after = resident()?;
    drop(keeper);
    let bytes_per_file = after.saturating_sub(before) as f64 / files as f64;
    Ok(Memory { files, before, after, bytes_per_file })
}

fn create(connector: &dyn Connector, files: u64, dirs: u32) -> Result<()> {
    let each = files / u64::from(dirs);
    let tests = vec!["create".into()];
    let plan = Survey { threads: 1, dirs, files: each, depth: 256, bound: false, tests };
    // One thread with many directories: the survey gives a thread one directory, so it runs once per directory.
    for dir in 0..dirs {
        survey(&[connector], &Survey { dirs: 1, ..plan.clone() }, &format!("memory.{files}.{dir}"))?;
    }
    Ok(())
}

/// A session that was granted attributes and name of each file.
fn keep_all(connector: &dyn Connector, files: u64) -> Result<Link> {
    let mut link = Link::open_wanting(connector, Bits::ATTRS)?;
    let mut dirs = vec![NodeRef::bare(link.root)];
    let mut seen = 0;
    while let Some(dir) = dirs.pop() {
        let mut after = 0;
        loop {
            let request = Request::ReadDir { dir, after, attrs: true, bytes_max: PAGE_BYTES };
            let outcome = link.batch([request])?.pop().context("no answer")?;
            let Ok(Reply::Entries { entries, end }) = outcome else { bail!("a listing answers {outcome:?}") };
            for entry in &entries {
                match &entry.attr {
                    Some(attr) if entry.kind == FileKind::Directory => {
                        dirs.push(NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash });
                    }
                    _ => seen += 1,
                }
            }
            match entries.last() {
                Some(last) if !end => after = last.hash.cookie(),
                _ => break,
            }
        }
    }
    ensure!(seen >= files + WARM_FILES, "only {seen} of {files} files were listed");
    Ok(link)
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
