//! Phases of load, and what the CPU time of each says.
//!
//! Two phases of the same requests, one with a single request under way in each of many sessions, one with many in each of few, tell
//! what a turn of a connection costs from what a request costs; the same of changes tells what a commit of the journal costs.
//!
//! Absent: sending (`host.rs`), the server (`serve.rs`).

use crate::host::Link;
use crate::job::{Job, Work};
use crate::serve::{Done, Served};
use proto::reply::Reply;
use proto::request::{NewNode, Request};
use proto::{Ino, Name, NodeRef};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub(crate) type Failed = Box<dyn Error>;

/// Files of the wide phases of `costs`, and of the narrow ones: so many that they are in no CPU's cache, as in a server that is used.
const FILES: u64 = 320_000;
const NARROW_FILES: u64 = 80_000;
/// Sessions and requests under way in each: many turns, and few.
const NARROW: (usize, usize) = (16, 1);
const WIDE: (usize, usize) = (4, 64);
/// What one turn of a connection costs is half reading and half writing.
const HALVES: f64 = 2.0;

/// Not a server's: told beside the file.
const CLIENT_BATCH: &str = "# client-batch-ns";
const CLIENT_MESSAGE: &str = "# client-message-ns";

/// Costs of what no phase does, and what they are taken to be.
const TAKEN: [(&str, &str); 5] = [
    ("message", "request.getattr"),
    ("tick", "request.getattr"),
    ("rank_message", "request.lookup"),
    ("load_entry", "request.lookup"),
    ("request.other", "request.create"),
];

/// What a phase came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase {
    pub(crate) operations: f64,
    pub(crate) seconds: f64,
    pub(crate) cpu_ns: f64,
    pub(crate) load_ns: f64,
    pub(crate) turns: f64,
    pub(crate) commits: f64,
    pub(crate) journal_bytes: f64,
    pub(crate) loads: f64,
    pub(crate) checkpoints: f64,
    pub(crate) batches: f64,
    /// The server's CPU by the names of its threads.
    pub(crate) threads: Vec<(String, f64)>,
}

pub(crate) struct Bench {
    pub(crate) served: Served,
    pub(crate) links: Vec<Link>,
}

impl Bench {
    /// A server with sessions that have directories of their own.
    pub(crate) fn start(
        served: Served,
        hosts: usize,
        tag: &str,
        files: u64,
        dirs: u64,
    ) -> Result<Self, Failed> {
        let mut links = Vec::new();
        for host in 0..hosts {
            let link = served.connect()?;
            let top = make_dir(&link, NodeRef::bare(Ino::ROOT), &format!("{tag}.{host}"))?;
            let dirs = (0..dirs)
                .map(|dir| link.locate(make_dir(&link, top, &format!("dir.{dir}"))?))
                .collect::<Result<_, _>>()?;
            link.prepare(Work::new(dirs, files, host as u64 + 1));
            links.push(link);
        }
        Ok(Self { served, links })
    }

    pub(crate) fn phase(&mut self, job: Job, callers: usize) -> Result<Phase, Failed> {
        let before = self.served.done()?;
        let begin = Instant::now();
        for link in &self.links {
            link.begin(job, callers)?;
        }
        let operations = self.links.iter().map(Link::end).sum::<Result<u64, _>>()?;
        let seconds = begin.elapsed().as_secs_f64();
        let after = self.served.done()?;
        let part = |of: fn(&Done) -> u64| (of(&after) - of(&before)) as f64;
        Ok(Phase {
            operations: operations as f64,
            seconds,
            cpu_ns: part(|done| done.cpu_ns),
            load_ns: part(|done| done.load_ns),
            turns: part(|done| done.turns),
            commits: part(|done| done.commits),
            loads: part(|done| done.loads),
            journal_bytes: part(|done| done.journal_bytes),
            checkpoints: part(|done| done.checkpoints),
            batches: part(|done| done.batches),
            threads: of_threads(&before, &after),
        })
    }
}

impl Bench {
    /// Everything goes to the store: what that takes of CPU, and how many records there were.
    pub(crate) fn settle(&mut self) -> Result<(f64, f64), Failed> {
        let before = self.served.done()?;
        self.served.settle(&self.links)?;
        let after = self.served.done()?;
        Ok(((after.cpu_ns - before.cpu_ns) as f64, before.dirty.max(1) as f64))
    }
}

fn of_threads(before: &Done, after: &Done) -> Vec<(String, f64)> {
    let since = |name: &String, now: u64| (now - before.threads.get(name).copied().unwrap_or(0)) as f64;
    after.threads.iter().map(|(name, now)| (name.clone(), since(name, *now))).collect()
}

/// The directory of that name; made if it is not there.
fn make_dir(link: &Link, parent: NodeRef, name: &str) -> Result<NodeRef, Failed> {
    let name = Name::new(name.as_bytes())?;
    let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
    let made = link.call(&Request::MkDir { parent, name: name.clone(), new })?;
    let found =
        made.or_else(|_| link.call(&Request::Lookup { parent, name }).map_err(|_| proto::Errno::EIO)?);
    match found? {
        Reply::Attr(attr) | Reply::Created { attr, .. } => {
            Ok(NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash })
        }
        other => Err(format!("{other:?}").into()),
    }
}

/// Two equations with two unknowns: `a * x + b * y = c` of each phase.
fn solve(first: (f64, f64, f64), second: (f64, f64, f64)) -> (f64, f64) {
    let under = first.0 * second.1 - second.0 * first.1;
    let x = (first.2 * second.1 - second.2 * first.1) / under;
    let y = (first.0 * second.2 - second.0 * first.2) / under;
    (x, y)
}

/// A run that failed left its folder behind.
pub(crate) fn empty(dir: PathBuf) -> Result<PathBuf, Failed> {
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// The costs of one round by name.
fn round(dir: &Path, cpu: &str, number: u32) -> Result<Vec<(&'static str, f64)>, Failed> {
    let dir = empty(dir.join(format!("costs.{number}")))?;
    let mut costs = Vec::new();
    let served = Served::start(&dir, cpu, 4096, 1024, "keyed", 1)?;
    let mut wide = Bench::start(served, WIDE.0, "w", FILES / WIDE.0 as u64, 400)?;
    let made_wide = wide.phase(Job::MkNod, WIDE.1)?;
    let got_wide = wide.phase(Job::GetAttr, WIDE.1)?;
    // Their leases end meanwhile.
    let works: Vec<Work> = wide.links.drain(..).map(|link| link.take_work()).collect();
    let mut narrow = Bench::start(wide.served, NARROW.0, "n", NARROW_FILES / NARROW.0 as u64, 25)?;
    let made_narrow = narrow.phase(Job::MkNod, NARROW.1)?;
    let got_narrow = narrow.phase(Job::GetAttr, NARROW.1)?;
    drop(narrow.links);
    let mut wide = Bench { served: narrow.served, links: Vec::new() };
    for work in works {
        let link = wide.served.connect()?;
        link.prepare(work);
        wide.links.push(link);
    }
    let of = |phase: &Phase| (phase.turns, phase.operations, phase.cpu_ns);
    let (turn, getattr) = solve(of(&got_narrow), of(&got_wide));
    costs.extend([("read", turn / HALVES), ("write", turn / HALVES), ("request.getattr", getattr)]);
    // A commit's own turn lets go of the answers: one write for each session that waits.
    let turns_of = |phase: &Phase, hosts: usize| {
        let reads = (phase.turns - phase.commits).max(0.0);
        let writes = phase.operations.min(phase.commits * hosts as f64);
        (reads + writes) * turn / HALVES
    };
    let changes =
        |phase: &Phase, hosts| (phase.commits, phase.operations, phase.cpu_ns - turns_of(phase, hosts));
    let (commit, mknod) = solve(changes(&made_narrow, NARROW.0), changes(&made_wide, WIDE.0));
    costs.extend([("commit", commit), ("request.mknod", mknod)]);
    // Of a getattr each turn of the server is answered by one of the client's.
    let of = |phase: &Phase| (phase.turns, phase.operations, phase.load_ns);
    let (batch, message) = solve(of(&got_narrow), of(&got_wide));
    costs.extend([(CLIENT_BATCH, batch), (CLIENT_MESSAGE, message)]);
    let looks =
        [("request.lookup", Job::Lookup), ("request.open", Job::Open), ("request.release", Job::Release)];
    for (name, job) in looks {
        let phase = wide.phase(job, WIDE.1)?;
        costs.push((name, (phase.cpu_ns - phase.turns * turn) / phase.operations));
    }
    let lookup = costs.iter().find(|(name, _)| *name == "request.lookup").map_or(0.0, |(_, cost)| *cost);
    let (settling, records) = wide.settle()?;
    let record = settling / records;
    costs.push(("record", record));
    wide.phase(Job::Unlink, WIDE.1)?;
    wide.settle()?;
    let own = |phase: &Phase| phase.cpu_ns - turns_of(phase, WIDE.0) - phase.commits * commit;
    let created = wide.phase(Job::Create, WIDE.1)?;
    costs.push(("request.create", own(&created) / created.operations));
    let wrote = wide.phase(Job::Write, WIDE.1)?;
    wide.phase(Job::Release, WIDE.1)?;
    // What is done later for each request's sake is its own: file data goes to its files.
    let (settling, records) = wide.settle()?;
    costs.push(("request.write", (own(&wrote) + settling - records * record) / wrote.operations));
    wide.served.admin("cache drop")?;
    while wide.served.admin("perf dump")?["mds_mem"]["ino"].as_u64().unwrap_or(0) > FILES / 10 {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    let cold = wide.phase(Job::Lookup, WIDE.1)?;
    // Answers of the store come in turns of their own, some at once.
    let read_turns = cold.turns.min(cold.operations / WIDE.1 as f64);
    let loading = cold.cpu_ns - read_turns * turn - cold.operations * lookup;
    costs.push(("load", loading / cold.loads.max(1.0)));
    let unlinked = wide.phase(Job::Unlink, WIDE.1)?;
    let (settling, records) = wide.settle()?;
    costs.push(("request.unlink", (own(&unlinked) + settling - records * record) / unlinked.operations));
    drop(wide.links);
    wide.served.stop()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(costs)
}

/// Prints the cost file: of each cost the median of the rounds.
pub(crate) fn costs(dir: &Path, cpu: &str, rounds: u32) -> Result<(), Failed> {
    let mut all: Vec<Vec<(&'static str, f64)>> = Vec::new();
    for number in 0..rounds.max(1) {
        all.push(round(dir, cpu, number)?);
    }
    println!("# Nanoseconds of CPU: least, median and most of {rounds} rounds; the median counts.");
    for (at, (name, _)) in all[0].iter().enumerate() {
        let mut values: Vec<f64> = all.iter().map(|round| round[at].1.max(1.0)).collect();
        values.sort_by(f64::total_cmp);
        let (least, median, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        println!("{name:<18} {median:>8.0}   # {least:.0} to {most:.0}");
        for (other, _) in TAKEN.iter().filter(|(_, like)| like == name) {
            println!("{other:<18} {median:>8.0}   # not measured: taken as {name}");
        }
    }
    Ok(())
}
