//! A program on the Rust API: threads and processes that call a rank through `mount`, one call at a time or many under way.
//!
//! Each process has one session, which its threads share; each thread works in a directory of its own, or all in one. Absent: data, kernels, and
//! the retries that a lost connection would bring: they would be in the latencies.

mod client;
mod window;

use crate::report::{Phase, cpu_seconds};
use crate::workers::{self, WorkerPool};
use anyhow::{Context, Result, ensure};
use client::Client;
use runtime::port::Connector;
use runtime::{Addr, SocketConnector};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::sync::Arc;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calls {
    /// `unix:PATH` or `HOST:PORT`, for processes of their own.
    pub at: Option<String>,
    pub procs: u32,
    pub threads: u32,
    /// Calls each thread keeps under way.
    pub depth: u64,
    /// Files per thread.
    pub files: u64,
    /// All threads of all processes work in one directory.
    pub shared: bool,
    /// By path with `mount::Fs`, which looks every component up, instead of by reference.
    pub paths: bool,
    /// Changes are answered before they are durable, and made again if a crash takes them back.
    pub nowsync: bool,
    /// In this order: create, lookup, getattr, getdir (attributes of the directory, once for each file), unlink.
    pub tests: Vec<String>,
    pub prefix: String,
    /// The server's process, if it is not this one.
    pub watch_pid: Option<u32>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Called {
    /// CPU seconds are the server's, where it is watched.
    pub phases: Vec<Phase>,
    /// Of the calling processes, by phase; the server's are in it where it is the same process.
    pub client_cpu_seconds: Vec<Option<f64>>,
}

/// Makes the calls: in this process if there is one, else in processes that `worker` makes the command of.
///
/// # Errors
/// When a call fails, or the options contradict each other.
pub fn run(connector: Arc<dyn Connector>, calls: &Calls, worker: impl Fn(u32) -> Command) -> Result<Called> {
    ensure!(calls.procs > 0 && calls.threads > 0, "--procs and --threads must be at least 1");
    ensure!(calls.depth > 0 && calls.files > 0, "--depth and --files must be at least 1");
    ensure!(!calls.paths || calls.depth == 1, "a call by path waits for its answer: --paths needs --depth 1");
    ensure!(calls.procs == 1 || calls.at.is_some(), "more than one process needs a server to connect to");
    let mut callers = if calls.procs == 1 {
        Callers::Here(Box::new(Client::open(connector, calls, 0)?))
    } else {
        Callers::Pool(WorkerPool::spawn(calls.procs, calls, worker)?)
    };
    let (mut phases, mut client_cpu_seconds) = (Vec::new(), Vec::new());
    for test in &calls.tests {
        let before = (callers.cpu_seconds(), calls.watch_pid.and_then(cpu_seconds));
        let measured = match &mut callers {
            Callers::Here(client) => client.phase(test)?,
            Callers::Pool(pool) => pool.run(test)?,
        };
        let after = (callers.cpu_seconds(), calls.watch_pid.and_then(cpu_seconds));
        let used =
            |pair: (Option<f64>, Option<f64>)| pair.0.zip(pair.1).map(|(after, before)| after - before);
        phases.push(Phase::new(test, &measured.latencies, measured.elapsed, used((after.1, before.1))));
        client_cpu_seconds.push(used((after.0, before.0)));
    }
    if let Callers::Pool(pool) = callers {
        pool.finish()?;
    }
    Ok(Called { phases, client_cpu_seconds })
}

enum Callers {
    Here(Box<Client>),
    Pool(WorkerPool),
}

impl Callers {
    fn cpu_seconds(&self) -> Option<f64> {
        match self {
            Self::Here(_) => cpu_seconds(std::process::id()),
            Self::Pool(pool) => pool.cpu_seconds(),
        }
    }
}

/// One of the processes.
///
/// # Errors
/// When a call fails.
pub fn serve_task(task: u32) -> Result<()> {
    let begin = |calls: Calls| {
        let at = Addr::parse(calls.at.as_deref().context("no server to connect to")?)?;
        Client::open(Arc::new(SocketConnector::new(at)), &calls, task)
    };
    workers::serve(begin, |client, test, latencies| Ok(latencies.add(client.phase(test)?.latencies)?))
}
