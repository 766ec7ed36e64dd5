//! Step 4 of `make run`: small files created, looked at, read and listed by several processes, with a table of
//! rates and latencies.
//!
//! Absent: everything mdtest would also measure.

use crate::output::{grouped, table, write_out};
use crate::problem::{Exit, Problem};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const PHASES: [&str; 4] = ["create", "stat", "read", "list"];

/// Runs all phases; the files stay in `folder`.
///
/// # Errors
/// The first operation that failed.
pub(super) fn run(folder: &Path, files: u64, processes: u64) -> Result<(), Problem> {
    let processes = processes.max(1);
    let what = format!("{} files of 4 KiB, {processes} processes", grouped(files));
    // Every phase but the listings is one step per file.
    let progress = Progress::new(files * 3 + processes, &what);
    let mut rows = vec![["phase", "ops", "ops/s", "p50", "p99"].map(String::from).to_vec()];
    for phase in PHASES {
        let start = Instant::now();
        let nanoseconds = together(folder, files, processes, phase, &progress)?;
        rows.push(row(phase, nanoseconds, start.elapsed().as_secs_f64()));
    }
    progress.end();
    let text = table(&rows);
    write_out(&text.lines().map(|line| format!("      {line}\n")).collect::<String>());
    Ok(())
}

fn row(phase: &str, mut nanoseconds: Vec<u64>, seconds: f64) -> Vec<String> {
    nanoseconds.sort_unstable();
    let count = nanoseconds.len() as u64;
    let rate = (count as f64 / seconds.max(1e-9)) as u64;
    let at = |percent: usize| {
        let index = nanoseconds.len() * percent / 100;
        let time = nanoseconds.get(index).or(nanoseconds.last());
        time.map_or_else(|| "-".into(), |time| format!("{} us", grouped(time / 1000)))
    };
    vec![phase.into(), grouped(count), grouped(rate), at(50), at(99)]
}

fn together(
    folder: &Path,
    files: u64,
    processes: u64,
    phase: &str,
    progress: &Progress,
) -> Result<Vec<u64>, Problem> {
    let share = files.div_ceil(processes);
    let results: Vec<Result<Vec<u64>, Problem>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processes)
            .map(|worker| {
                let own = folder.join(format!("p{worker}"));
                let first = (worker * share).min(files);
                let count = share.min(files - first);
                scope.spawn(move || one(&own, first, count, phase, progress))
            })
            .collect();
        let died = || Err(Problem::new(Exit::Failed, "a worker panicked"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| died())).collect()
    });
    results.into_iter().collect::<Result<Vec<_>, _>>().map(|all| all.concat())
}

/// One worker process; the times it prints.
fn one(folder: &Path, first: u64, count: u64, phase: &str, progress: &Progress) -> Result<Vec<u64>, Problem> {
    let failed = |error: io::Error| Problem::io("a worker", &error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .args(["load", "phase", phase])
        .arg(folder)
        .args([first.to_string(), count.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut times = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        times.extend(line.map_err(failed)?.parse::<u64>());
        progress.add();
    }
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(times),
        // The worker has said what.
        _ => Err(Problem::new(Exit::Failed, format!("{phase}: a worker failed"))),
    }
}

/// `[4/5] work            20,000 files of 4 KiB, 4 processes      [####      ]`, drawn over itself on a terminal.
struct Progress {
    total: u64,
    done: AtomicU64,
    what: String,
    shown: bool,
}

impl Progress {
    fn new(total: u64, what: &str) -> Self {
        let shown = io::stderr().is_terminal();
        let progress = Self { total: total.max(1), done: AtomicU64::new(0), what: what.into(), shown };
        progress.draw(0);
        progress
    }

    fn add(&self) {
        let before = self.done.fetch_add(1, Ordering::Relaxed);
        let tenths = (before + 1) * 10 / self.total;
        if tenths != before * 10 / self.total {
            self.draw(tenths);
        }
    }

    fn draw(&self, tenths: u64) {
        if self.shown {
            let bar = "#".repeat(usize::try_from(tenths.min(10)).unwrap_or(10));
            let mut err = io::stderr().lock();
            let _gone = write!(err, "\r[4/5] {:<15} {:<42} [{bar:<10}]", "work", self.what);
        }
    }

    fn end(&self) {
        if self.shown {
            let _gone = write!(io::stderr(), "\r\u{1b}[K");
        }
        super::line(4, "work", &self.what, "[##########] create | stat | read | list");
    }
}
