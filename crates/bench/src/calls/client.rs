//! One calling process: its session and its threads.
//!
//! Absent: many calls under way (`window.rs`).

use super::Calls;
use super::window::Window;
use crate::report::histogram;
use crate::workers::Measured;
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use mount::{Fs, Mount, Settings};
use proto::caps::Bits;
use proto::message::ClientInfo;
use proto::request::{NewNode, Request};
use proto::{Attr, Cred, Name, NodeRef};
use runtime::port::Connector;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const FILE: u32 = 0o100_644;

/// A session and the threads that share it.
pub(super) struct Client {
    fs: Fs,
    calls: Calls,
    workers: Vec<Worker>,
}

/// One thread: its directory, and the files it made.
#[derive(Clone)]
struct Worker {
    /// Among all of all processes, if they share a directory.
    number: Option<u32>,
    dir: NodeRef,
    path: String,
    nodes: Arc<Vec<NodeRef>>,
}

/// One thread's part of a phase.
struct Part {
    start: Instant,
    end: Instant,
    latencies: Histogram<u64>,
    /// Those it made or found, if this test does.
    nodes: Vec<NodeRef>,
}

impl Client {
    /// Opens the session and makes the directories.
    pub(super) fn open(connector: Arc<dyn Connector>, calls: &Calls, task: u32) -> Result<Self> {
        let info =
            ClientInfo { host: "bench".into(), mount: "bench".into(), pid: std::process::id(), caps_max: 0 };
        let wants = if calls.nowsync { Bits::DX.with(Bits::ALONE) } else { Bits::NONE };
        let settings = Settings { wants, ..Settings::default() };
        let fs = Fs::new(Mount::open_with(connector, info, settings)?, Cred::ROOT);
        let workers = (0..calls.threads)
            .map(|thread| {
                let number = calls.shared.then_some(task * calls.threads + thread);
                let own = format!("{}.{task}.{thread}", calls.prefix);
                let path = if calls.shared { calls.prefix.clone() } else { own };
                let dir = match fs.mkdir(&path, 0o755) {
                    Ok(attr) => node_of(&attr),
                    // Placed by whoever made it, or made by another one that shares it.
                    Err(_) => fs.node(&path).with_context(|| format!("cannot make {path}"))?,
                };
                Ok(Worker { number, dir, path, nodes: Arc::default() })
            })
            .collect::<Result<_>>()?;
        Ok(Self { fs, calls: calls.clone(), workers })
    }

    /// All threads carry out one test.
    pub(super) fn phase(&mut self, test: &str) -> Result<Measured> {
        let barrier = Barrier::new(self.workers.len());
        let (fs, calls) = (&self.fs, &self.calls);
        let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
            let handles: Vec<_> = self
                .workers
                .iter()
                .map(|worker| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        worker.run(fs, calls, test)
                    })
                })
                .collect();
            handles
                .into_iter()
                .map(|h| h.join().unwrap_or_else(|_| bail!("a load thread panicked")))
                .collect()
        });
        let mut latencies = histogram();
        let (mut first, mut last) = (None::<Instant>, None::<Instant>);
        for (worker, part) in self.workers.iter_mut().zip(parts) {
            let part = part?;
            latencies.add(part.latencies)?;
            first = Some(first.map_or(part.start, |first| first.min(part.start)));
            last = last.max(Some(part.end));
            if !part.nodes.is_empty() {
                worker.nodes = Arc::new(part.nodes);
            }
        }
        let elapsed = last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first);
        Ok(Measured { latencies, elapsed })
    }
}

impl Worker {
    fn run(&self, fs: &Fs, calls: &Calls, test: &str) -> Result<Part> {
        let start = Instant::now();
        let keeps = matches!(test, "create" | "lookup");
        let (latencies, nodes) = if calls.depth > 1 {
            let (worker, named) = (self.clone(), test.to_owned());
            let make = Box::new(move |i| worker.request(&named, i));
            Window::run(Arc::clone(fs.mount()), make, calls.depth, calls.files, keeps)?
        } else {
            self.one_by_one(fs, calls, test, keeps)?
        };
        Ok(Part { start, end: Instant::now(), latencies, nodes })
    }

    fn one_by_one(
        &self,
        fs: &Fs,
        calls: &Calls,
        test: &str,
        keeps: bool,
    ) -> Result<(Histogram<u64>, Vec<NodeRef>)> {
        let (mut latencies, mut nodes) = (histogram(), Vec::new());
        for i in 0..calls.files {
            let sent = Instant::now();
            let attr = if calls.paths {
                self.by_path(fs, test, i)
            } else {
                let reply = fs.mount().call(Cred::ROOT, self.request(test, i)?);
                reply.map(|reply| Some(crate::link::Link::node(&reply))).map_err(Into::into)
            };
            let node = attr.with_context(|| format!("{test} of file {i}"))?;
            latencies.saturating_record(super::window::nanos(sent.elapsed()));
            nodes.extend(node.filter(|_| keeps));
        }
        Ok((latencies, nodes))
    }

    fn by_path(&self, fs: &Fs, test: &str, i: u64) -> Result<Option<NodeRef>> {
        let path = format!("{}/{}", self.path, self.name(i));
        Ok(match test {
            "create" => Some(node_of(&fs.mknod(path, FILE, 0)?)),
            "lookup" => Some(node_of(&fs.lstat(path)?)),
            "getattr" => Some(node_of(&fs.getattr(self.node(i)?)?)),
            "getdir" => Some(node_of(&fs.stat(&self.path)?)),
            "unlink" => fs.unlink(path).map(|()| None)?,
            other => bail!("unknown test {other}: one of create, lookup, getattr, getdir, unlink"),
        })
    }

    fn request(&self, test: &str, i: u64) -> Result<Request> {
        let (parent, name) = (self.dir, Name::new(self.name(i).as_bytes())?);
        Ok(match test {
            "create" => Request::MkNod { parent, name, new: NewNode { mode: FILE, umask: 0o022, rdev: 0 } },
            "lookup" => Request::Lookup { parent, name },
            "getattr" => Request::GetAttr { node: self.node(i)? },
            "getdir" => Request::GetAttr { node: parent },
            "unlink" => Request::Unlink { parent, name },
            other => bail!("unknown test {other}: one of create, lookup, getattr, getdir, unlink"),
        })
    }

    /// 20 bytes, as in the other runs.
    fn name(&self, i: u64) -> String {
        self.number.map_or_else(|| format!("file.{i:015}"), |number| format!("f{number:04}.{i:014}"))
    }

    fn node(&self, i: u64) -> Result<NodeRef> {
        self.nodes.get(i as usize).copied().context("getattr needs create or lookup before it")
    }
}

const fn node_of(attr: &Attr) -> NodeRef {
    attr.node()
}
