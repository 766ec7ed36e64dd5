//! The parent: spawns the tasks, orders the phases, gathers rates.
//!
//! Absent: file-system work of its own, except making and removing the top directory.

use super::options::Options;
use super::tree;
use crate::report::{Phase, cpu_seconds, histogram};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// All iterations of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub options: Options,
    /// One list of phases per iteration.
    pub iterations: Vec<Vec<Phase>>,
}

struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
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
    let mut workers = spawn(options, &worker)?;
    let mut iterations = Vec::new();
    for iteration in 0..options.iterations {
        iterations.push(iterate(options, iteration, &mut workers)?);
    }
    for worker in workers {
        finish(worker)?;
    }
    Ok(Summary { options: options.clone(), iterations })
}

fn spawn(options: &Options, worker: &impl Fn(u32) -> Command) -> Result<Vec<Worker>> {
    let json = serde_json::to_string(options)?;
    let mut workers = Vec::new();
    for task in 0..options.np {
        let mut child = worker(task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start task {task}"))?;
        let mut orders = child.stdin.take().context("task without standard input")?;
        let answers = BufReader::new(child.stdout.take().context("task without standard output")?);
        writeln!(orders, "{json}")?;
        workers.push(Worker { child, orders, answers });
    }
    Ok(workers)
}

fn iterate(options: &Options, iteration: u32, workers: &mut [Worker]) -> Result<Vec<Phase>> {
    let top = tree::top(options, iteration);
    let creates = options.wants(options.create);
    if creates {
        fs::create_dir_all(&top).with_context(|| format!("cannot make {}", top.display()))?;
    }
    let removes = options.wants(options.remove);
    let mut phases = Vec::new();
    for (name, wanted) in plan(options, creates, removes) {
        if wanted {
            let phase = ordered(options, workers, name, iteration)?;
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

fn ordered(options: &Options, workers: &mut [Worker], phase: &str, iteration: u32) -> Result<Phase> {
    let cpu_before = options.watch_pid.and_then(cpu_seconds);
    for worker in workers.iter_mut() {
        writeln!(worker.orders, "{phase} {iteration}")?;
        worker.orders.flush()?;
    }
    let mut latencies = histogram();
    let (mut first, mut last) = (u128::MAX, 0);
    for (task, worker) in workers.iter_mut().enumerate() {
        let (start, end) =
            answer(worker, &mut latencies).with_context(|| format!("task {task} failed in {phase}"))?;
        first = first.min(start);
        last = last.max(end);
    }
    let cpu = options.watch_pid.and_then(cpu_seconds).zip(cpu_before).map(|(after, before)| after - before);
    let nanos = u64::try_from(last.saturating_sub(first)).unwrap_or(u64::MAX);
    Ok(Phase::new(phase, &latencies, Duration::from_nanos(nanos), cpu))
}

fn answer(worker: &mut Worker, latencies: &mut Histogram<u64>) -> Result<(u128, u128)> {
    let mut line = String::new();
    worker.answers.read_line(&mut line)?;
    let (start, end) = line.trim().split_once(' ').context("no answer")?;
    let times = (start.parse()?, end.parse()?);
    line.clear();
    worker.answers.read_line(&mut line)?;
    for pair in line.split_whitespace() {
        let (nanos, count) = pair.split_once(':').context("malformed latency")?;
        latencies.saturating_record_n(nanos.parse()?, count.parse()?);
    }
    line.clear();
    worker.answers.read_line(&mut line)?;
    ensure!(line.trim() == ".", "malformed answer");
    Ok(times)
}

fn finish(mut worker: Worker) -> Result<()> {
    drop(worker.orders);
    let status = worker.child.wait()?;
    ensure!(status.success(), "a task ended with {status}");
    Ok(())
}
