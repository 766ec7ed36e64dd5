//! One task: executes phases as the parent commands them.
//!
//! A command is `PHASE iteration`. Absent: any timing decision.

use super::options::Options;
use super::tree;
use crate::workers;
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs as task `task` until the parent closes standard input.
///
/// # Errors
/// When a file operation fails; the message names the path.
pub fn serve_task(task: u32) -> Result<()> {
    let begin = |options| Ok(Task { options, task, made: None, buffer: Vec::new() });
    workers::serve(begin, |state: &mut Task, command, latencies| {
        let (phase, iteration) = command.split_once(' ').context("malformed command")?;
        state.phase(phase, iteration.parse()?, latencies)
    })
}

struct Task {
    options: Options,
    task: u32,
    /// How many items creation made, when a stonewall cut it short.
    made: Option<usize>,
    buffer: Vec<u8>,
}

impl Task {
    fn phase(&mut self, phase: &str, iteration: u32, latencies: &mut Histogram<u64>) -> Result<()> {
        let shift = self.options.stride;
        match phase {
            "tree-create" => self.tree(iteration, latencies, |dir| fs::create_dir_all(dir)),
            "tree-remove" => self.tree_remove(iteration, latencies),
            "dir-create" => self.create(iteration, latencies, "dir"),
            "file-create" => self.create(iteration, latencies, "file"),
            "dir-stat" => self.each(iteration, "dir", shift, latencies, |_, path| stat(path)),
            "file-stat" => self.each(iteration, "file", shift, latencies, |_, path| stat(path)),
            "file-read" => self.each(iteration, "file", shift, latencies, Self::read),
            "dir-remove" => self.each(iteration, "dir", shift, latencies, |_, path| fs::remove_dir(path)),
            "file-remove" => self.each(iteration, "file", shift, latencies, |_, path| fs::remove_file(path)),
            other => bail!("unknown phase {other}"),
        }
    }

    fn tree(
        &self,
        iteration: u32,
        latencies: &mut Histogram<u64>,
        make: impl Fn(&Path) -> std::io::Result<()>,
    ) -> Result<()> {
        if self.task != 0 && !self.options.unique {
            return Ok(());
        }
        for dir in tree::directories(&self.options, &tree::root(&self.options, iteration, self.task)) {
            timed(latencies, &dir, || make(&dir))?;
        }
        Ok(())
    }

    fn tree_remove(&self, iteration: u32, latencies: &mut Histogram<u64>) -> Result<()> {
        if self.task != 0 && !self.options.unique {
            return Ok(());
        }
        let root = tree::root(&self.options, iteration, self.task);
        for dir in tree::directories(&self.options, &root).iter().rev() {
            timed(latencies, dir, || fs::remove_dir(dir))?;
        }
        Ok(())
    }

    fn create(&mut self, iteration: u32, latencies: &mut Histogram<u64>, kind: &str) -> Result<()> {
        let limit = match self.options.stonewall_seconds {
            0 => Duration::MAX,
            seconds => Duration::from_secs(seconds),
        };
        let content = vec![b'm'; self.options.write_bytes];
        let start = Instant::now();
        let paths = tree::items(&self.options, iteration, self.task, kind);
        let mut made = 0;
        for path in &paths {
            if start.elapsed() > limit {
                break;
            }
            timed(latencies, path, || match kind {
                "dir" => fs::create_dir(path),
                _ => create_file(path, &content, self.options.fsync),
            })?;
            made += 1;
        }
        self.made = (made < paths.len()).then_some(made);
        Ok(())
    }

    fn each(
        &mut self,
        iteration: u32,
        kind: &str,
        shift: u32,
        latencies: &mut Histogram<u64>,
        act: impl Fn(&mut Self, &Path) -> std::io::Result<()>,
    ) -> Result<()> {
        let task = (self.task + shift) % self.options.np;
        let mut paths = tree::items(&self.options, iteration, task, kind);
        if let Some(made) = self.made {
            paths.truncate(made);
        }
        if self.options.random {
            shuffle(&mut paths, u64::from(task));
        }
        for path in &paths {
            timed(latencies, path, || act(self, path))?;
        }
        Ok(())
    }

    fn read(&mut self, path: &Path) -> std::io::Result<()> {
        let mut file = File::open(path)?;
        if self.options.read_bytes > 0 {
            self.buffer.resize(self.options.read_bytes, 0);
            file.read_exact(&mut self.buffer)?;
        }
        Ok(())
    }
}

fn create_file(path: &Path, content: &[u8], fsync: bool) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    if !content.is_empty() {
        file.write_all(content)?;
        if fsync {
            file.sync_all()?;
        }
    }
    Ok(())
}

fn stat(path: &Path) -> std::io::Result<()> {
    runtime::process::stat_ino(path).map(|ino| {
        std::hint::black_box(ino);
    })
}

fn timed(
    latencies: &mut Histogram<u64>,
    path: &Path,
    act: impl FnOnce() -> std::io::Result<()>,
) -> Result<()> {
    let start = Instant::now();
    act().with_context(|| path.display().to_string())?;
    latencies.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1));
    Ok(())
}

fn shuffle(paths: &mut [PathBuf], seed: u64) {
    let mut dice = stdx::Prng::new(seed);
    for i in (1..paths.len()).rev() {
        paths.swap(i, dice.index(i + 1));
    }
}
