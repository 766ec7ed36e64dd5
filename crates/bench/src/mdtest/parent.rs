//! The parent: commands the phases of all tasks, gathers rates.
//!
//! Absent: file-system work of its own, except making and removing the top directory.

use super::options::Options;
use super::tree;
use crate::report::{Phase, cpu_seconds};
use crate::workers::{Measured, WorkerPool};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fs;
use std::process::Command;

/// All iterations of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub options: Options,
    /// One list of phases per iteration.
    pub iterations: Vec<Vec<Phase>>,
}

/// Runs all phases of all iterations. `worker` makes the command that runs `serve_task` for a task number.
///
/// # Errors
/// When the options contradict each other or a task fails.
pub fn run(options: &Options, worker: impl Fn(u32) -> Command) -> Result<Summary> {
    ensure!(options.np > 0, "--np must be at least 1");
    ensure!(!(options.files_only && options.dirs_only), "-F and -D exclude each other");
    ensure!(options.items_per_dir > 0 || options.items > 0, "give -I or -n");
    ensure!(options.branch > 0, "-b must be at least 1");
    let mut pool = WorkerPool::spawn(options.np, options, worker)?;
    let mut iterations = Vec::new();
    for iteration in 0..options.iterations {
        iterations.push(iterate(options, iteration, &mut pool)?);
    }
    pool.finish()?;
    Ok(Summary { options: options.clone(), iterations })
}

fn iterate(options: &Options, iteration: u32, pool: &mut WorkerPool) -> Result<Vec<Phase>> {
    let top = tree::top(options, iteration);
    let creates = options.wants(options.create);
    if creates {
        fs::create_dir_all(&top).with_context(|| format!("cannot make {}", top.display()))?;
    }
    let removes = options.wants(options.remove);
    let mut phases = Vec::new();
    for (name, wanted) in plan(options, creates, removes) {
        if wanted {
            let phase = measured(options, pool, name, iteration)?;
            if name != "tree-create" && name != "tree-remove" || options.time_unique {
                phases.push(phase);
            }
        }
    }
    if removes {
        fs::remove_dir_all(&top).with_context(|| format!("cannot remove {}", top.display()))?;
    }
    Ok(phases)
}

fn plan(options: &Options, creates: bool, removes: bool) -> [(&'static str, bool); 9] {
    let (files, dirs) = (!options.dirs_only, !options.files_only);
    let (stats, reads) = (options.wants(options.stat), options.wants(options.read));
    [
        ("tree-create", creates),
        ("dir-create", dirs && creates),
        ("dir-stat", dirs && stats),
        ("dir-remove", dirs && removes),
        ("file-create", files && creates),
        ("file-stat", files && stats),
        ("file-read", files && reads),
        ("file-remove", files && removes),
        ("tree-remove", removes),
    ]
}

fn measured(options: &Options, pool: &mut WorkerPool, phase: &str, iteration: u32) -> Result<Phase> {
    let cpu_before = options.watch_pid.and_then(cpu_seconds);
    let Measured { latencies, elapsed } = pool.run(&format!("{phase} {iteration}"))?;
    let cpu = options.watch_pid.and_then(cpu_seconds).zip(cpu_before).map(|(after, before)| after - before);
    Ok(Phase::new(phase, &latencies, elapsed, cpu))
}
