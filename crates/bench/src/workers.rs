//! A pool of worker processes that generate load, and the commands they carry out at the same time.
//!
//! Protocol, one line each: the parent sends the options as JSON, then commands; a worker answers `start_ns end_ns` on the system's
//! clock, then the latencies as `nanos:count` pairs, then `.`. That each answers is the barrier. Absent: what a command means.

use crate::report::{cpu_seconds, histogram};
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The processes, as their parent has them.
pub struct WorkerPool {
    workers: Vec<Worker>,
}

struct Worker {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What one command took, over all workers.
pub struct Measured {
    pub latencies: Histogram<u64>,
    /// From the first one's start to the last one's end.
    pub elapsed: Duration,
}

impl WorkerPool {
    /// Starts `count` processes. `worker` makes the command that runs `serve` for a number.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn spawn(count: u32, options: &impl Serialize, worker: impl Fn(u32) -> Command) -> Result<Self> {
        let json = serde_json::to_string(options)?;
        let mut workers = Vec::new();
        for task in 0..count {
            let mut child = worker(task)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("cannot start task {task}"))?;
            let mut commands = child.stdin.take().context("task without standard input")?;
            let answers = BufReader::new(child.stdout.take().context("task without standard output")?);
            writeln!(commands, "{json}")?;
            workers.push(Worker { child, commands, answers });
        }
        Ok(Self { workers })
    }

    /// Gives a command to all and waits until all have carried it out.
    ///
    /// # Errors
    /// When a task failed.
    pub fn run(&mut self, command: &str) -> Result<Measured> {
        for worker in &mut self.workers {
            writeln!(worker.commands, "{command}")?;
            worker.commands.flush()?;
        }
        let mut latencies = histogram();
        let (mut first, mut last) = (u128::MAX, 0);
        for (task, worker) in self.workers.iter_mut().enumerate() {
            let (start, end) =
                answer(worker, &mut latencies).with_context(|| format!("task {task} failed in {command}"))?;
            first = first.min(start);
            last = last.max(end);
        }
        let nanos = u64::try_from(last.saturating_sub(first)).unwrap_or(u64::MAX);
        Ok(Measured { latencies, elapsed: Duration::from_nanos(nanos) })
    }

    /// User and system time of all of them.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        self.workers.iter().map(|worker| cpu_seconds(worker.child.id())).sum()
    }

    /// Ends them.
    ///
    /// # Errors
    /// When one ended with an error.
    pub fn finish(self) -> Result<()> {
        for mut worker in self.workers {
            drop(worker.commands);
            let status = worker.child.wait()?;
            ensure!(status.success(), "a task ended with {status}");
        }
        Ok(())
    }
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

/// One of the processes: reads its options, then carries out commands until the parent closes standard input.
///
/// # Errors
/// What `begin` and `execute` say.
pub fn serve<O: DeserializeOwned, T>(
    begin: impl FnOnce(O) -> Result<T>,
    mut execute: impl FnMut(&mut T, &str, &mut Histogram<u64>) -> Result<()>,
) -> Result<()> {
    let mut lines = std::io::stdin().lock().lines();
    let mut task = begin(serde_json::from_str(&lines.next().context("no options")??)?)?;
    let mut out = std::io::stdout().lock();
    for line in lines {
        let mut latencies = histogram();
        let start = clock();
        execute(&mut task, &line?, &mut latencies)?;
        writeln!(out, "{} {}", start, clock())?;
        for value in latencies.iter_recorded() {
            write!(out, "{}:{} ", value.value_iterated_to(), value.count_at_value())?;
        }
        writeln!(out, "\n.")?;
        out.flush()?;
    }
    Ok(())
}

/// Nanoseconds on a clock that all processes of the machine share.
fn clock() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}
