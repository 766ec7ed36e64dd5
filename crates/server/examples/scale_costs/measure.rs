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
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

pub(crate) type Failed = Box<dyn Error>;

/// Files of the wide phases of `costs`, and of the narrow ones: so many that they are in no CPU's cache, as in a server that is used.
const FILES: u64 = 320_000;
const NARROW_FILES: u64 = 80_000;
/// Sessions and requests under way in each: many turns, and few.
const NARROW: (usize, usize) = (16, 1);
const WIDE: (usize, usize) = (4, 64);
/// Sessions of the loads that come one by one.
const FEW_HOSTS: usize = 4;
/// What one turn of a connection costs is half reading and half writing.
const HALVES: f64 = 2.0;

/// Not a server's: told beside the file.
const CLIENT_BATCH: &str = "# client-batch-ns";
const CLIENT_MESSAGE: &str = "# client-message-ns";
/// Nor is what a disk takes.
const SYNC: &str = "# sync-ns";
const SYNC_BYTES: usize = 16 << 10;
const SYNCS: u64 = 500;

/// Costs of what no phase does, and what they are taken to be.
const TAKEN: [(&str, &str); 4] = [
    ("message", "request.getattr"),
    ("tick", "request.getattr"),
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
    pub(crate) requests: f64,
    pub(crate) commits: f64,
    pub(crate) journal_bytes: f64,
    pub(crate) loads: f64,
    pub(crate) load_batches: f64,
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
            requests: part(|done| done.requests),
            commits: part(|done| done.commits),
            loads: part(|done| done.loads),
            load_batches: part(|done| done.load_batches),
            journal_bytes: part(|done| done.journal_bytes),
            checkpoints: part(|done| done.checkpoints),
            batches: part(|done| done.batches),
            threads: of_threads(&before, &after),
        })
    }
}

impl Bench {
    /// Everything goes to the store: what that takes.
    pub(crate) fn settle(&mut self) -> Result<Settled, Failed> {
        let before = self.served.done()?;
        self.served.settle(&self.links)?;
        let after = self.served.done()?;
        Ok(Settled {
            cpu_ns: (after.cpu_ns - before.cpu_ns) as f64,
            records: before.dirty.max(1) as f64,
            batches: (after.batches - before.batches) as f64,
        })
    }
}

/// What went to the store.
pub(crate) struct Settled {
    cpu_ns: f64,
    records: f64,
    /// Parts of directories.
    batches: f64,
}

fn of_threads(before: &Done, after: &Done) -> Vec<(String, f64)> {
    let since =
        |name: &String, now: u64| now.saturating_sub(before.threads.get(name).copied().unwrap_or(0)) as f64;
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

/// Where a server is, on which CPUs, and how many ranks it has.
#[derive(Clone, Copy)]
struct Place<'a> {
    dir: &'a Path,
    cpus: &'a str,
    ranks: u16,
}

impl Place<'_> {
    /// A server with room for everything.
    fn start(self, prefetch: &str) -> Result<Served, Failed> {
        Served::start(self.dir, self.cpus, 4096, 1024, prefetch, self.ranks)
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
    std::fs::create_dir_all(dir.join("fs"))?;
    Ok(dir)
}

type Costs = Vec<(&'static str, f64)>;

/// What turns of connections, commits and requests cost that ask no store; and the clients.
struct Basics {
    turn: f64,
    commit: f64,
}

impl Basics {
    /// Of a phase of changes. A commit's own turn lets go of the answers: one write for each session that waits.
    fn turns(&self, phase: &Phase, hosts: usize) -> f64 {
        turns_of(phase, hosts) * self.turn
    }

    /// What its requests cost by themselves.
    fn own(&self, phase: &Phase) -> f64 {
        phase.cpu_ns - self.turns(phase, WIDE.0) - phase.commits * self.commit
    }

    /// What is left of a phase of lookups in a server that has nothing cached.
    fn loading(&self, phase: &Phase, lookup: f64, hosts: usize) -> (f64, f64, f64) {
        let left = phase.cpu_ns - self.turns(phase, hosts) - phase.operations * lookup;
        (phase.loads, phase.load_batches, left)
    }
}

/// Both halves of a turn are one. Who brings the rank what is durable, or was read, has a second turn when all is delivered.
fn turns_of(phase: &Phase, hosts: usize) -> f64 {
    let told = phase.commits + phase.load_batches;
    let reads = (phase.turns - 2.0 * told).max(0.0);
    // Any of the sessions may wait for each of the answers.
    let (hosts, each) = (hosts as f64, phase.operations / told.max(1.0));
    let writes = told * hosts * (1.0 - (1.0 - 1.0 / hosts).powf(each));
    (reads + writes) / HALVES
}

/// Sessions of the server with the directories that others had.
fn reopen(served: Served, works: Vec<Work>) -> Result<Bench, Failed> {
    let mut bench = Bench { served, links: Vec::new() };
    for work in works {
        let link = bench.served.connect()?;
        link.prepare(work);
        bench.links.push(link);
    }
    Ok(bench)
}

impl Bench {
    /// The server goes on without sessions.
    fn part(mut self) -> (Served, Vec<Work>) {
        let works = self.links.drain(..).map(|link| link.take_work()).collect();
        (self.served, works)
    }

    /// Another server takes over, with nothing cached.
    fn restart(self, place: Place<'_>, cache_mib: u64, prefetch: &str) -> Result<Self, Failed> {
        let Place { dir, cpus, ranks } = place;
        let (served, works) = self.part();
        served.stop()?;
        reopen(Served::start(dir, cpus, cache_mib, 1024, prefetch, ranks)?, works)
    }
}

/// Turns, commits, the simplest requests, the clients. Leaves the sessions of few requests each, and their work for later.
fn basics(place: Place<'_>, costs: &mut Costs) -> Result<(Bench, Vec<Work>, Basics), Failed> {
    let served = place.start("keyed")?;
    let mut wide = Bench::start(served, WIDE.0, "w", FILES / WIDE.0 as u64, 400)?;
    let made_wide = wide.phase(Job::MkNod, WIDE.1)?;
    let got_wide = wide.phase(Job::GetAttr, WIDE.1)?;
    // Their leases end meanwhile.
    let (served, works) = wide.part();
    let mut narrow = Bench::start(served, NARROW.0, "n", NARROW_FILES / NARROW.0 as u64, 25)?;
    let made_narrow = narrow.phase(Job::MkNod, NARROW.1)?;
    let got_narrow = narrow.phase(Job::GetAttr, NARROW.1)?;
    let of = |phase: &Phase| (phase.turns, phase.operations, phase.cpu_ns);
    let (turn, getattr) = solve(of(&got_narrow), of(&got_wide));
    costs.extend([("read", turn / HALVES), ("write", turn / HALVES), ("request.getattr", getattr)]);
    // The same where the clients take turns with the server on its CPU.
    let mine = cpus_of_this_process(place.cpus)?;
    let shared_narrow = narrow.phase(Job::GetAttr, NARROW.1)?;
    let (served, narrow) = narrow.part();
    let mut wide = reopen(served, works)?;
    let shared_wide = wide.phase(Job::GetAttr, WIDE.1)?;
    cpus_of_this_process(&mine)?;
    let (shared_turn, shared) = solve(of(&shared_narrow), of(&shared_wide));
    // Two ranks are measured so from the beginning: it is in all of their costs.
    let lost = if place.ranks > 1 { (0.0, 0.0) } else { (shared_turn - turn, shared - getattr) };
    costs.extend([("switch", lost.0), ("switch_message", lost.1)]);
    let changes = |phase: &Phase, hosts| {
        (phase.commits, phase.operations, phase.cpu_ns - turns_of(phase, hosts) * turn)
    };
    let (commit, mknod) = solve(changes(&made_narrow, NARROW.0), changes(&made_wide, WIDE.0));
    costs.extend([("commit", commit), ("request.mknod", mknod)]);
    // Of a getattr each turn of the server is answered by one of the client's.
    let of = |phase: &Phase| (phase.turns, phase.operations, phase.load_ns);
    let (batch, message) = solve(of(&got_narrow), of(&got_wide));
    costs.extend([(CLIENT_BATCH, batch), (CLIENT_MESSAGE, message)]);
    Ok((wide, narrow, Basics { turn, commit }))
}

/// Records that go to the store: many of each directory, and few. Answers the cost of one, and of a directory's part.
fn storing(wide: &mut Bench, costs: &mut Costs) -> Result<impl Fn(&Settled) -> f64 + use<>, Failed> {
    let many = wide.settle()?;
    wide.phase(Job::Few, WIDE.1)?;
    let few = wide.settle()?;
    let of = |settled: &Settled| (settled.records, settled.batches, settled.cpu_ns);
    let (record, batch) = solve(of(&many), of(&few));
    costs.extend([("record", record), ("batch", batch)]);
    Ok(move |settled: &Settled| settled.records * record + settled.batches * batch)
}

/// What a server does whose cache is full, and one whose cache is not. Leaves one that has all of it.
fn loading(
    wide: Bench,
    narrow: Vec<Work>,
    place: Place<'_>,
    basics: &Basics,
    costs: &mut Costs,
) -> Result<Bench, Failed> {
    let lookup = costs.iter().find(|(name, _)| *name == "request.lookup").map_or(0.0, |(_, cost)| *cost);
    let mut full = wide.restart(place, 4, "keyed")?;
    let many = full.phase(Job::Any, WIDE.1)?;
    let (served, works) = full.part();
    // With so few under way hardly any two are read together.
    let mut few = reopen(served, narrow.into_iter().take(FEW_HOSTS).collect())?;
    let one = few.phase(Job::Any, NARROW.1)?;
    let (served, _) = few.part();
    let (load, batch) = solve(basics.loading(&many, lookup, WIDE.0), basics.loading(&one, lookup, FEW_HOSTS));
    costs.extend([("load", load), ("load_batch", batch)]);
    let mut empty = reopen(served, works)?.restart(place, 4096, "keyed")?;
    let grown = empty.phase(Job::Any, WIDE.1)?;
    let (loads, batches, left) = basics.loading(&grown, lookup, WIDE.0);
    costs.push(("grow", (left - loads * load - batches * batch) / loads));
    // In memory names are in their directories' order, not in that of who asks.
    let mut warm = empty.restart(place, 4096, "auto")?;
    warm.phase(Job::Lookup, WIDE.1)?;
    Ok(warm)
}

/// Renames of one rank; and of two, each from one to the other: beyond what a rename costs there are the messages of ranks.
fn renaming(dir: &Path, cpu: &str, basics: &Basics, costs: &mut Costs) -> Result<(), Failed> {
    let renamed = |ranks: u16| -> Result<Phase, Failed> {
        let folder = empty(dir.join(format!("renames.{ranks}")))?.join("fs");
        let served = Served::start(&folder, cpu, 4096, 1024, "auto", ranks)?;
        let mut bench = Bench::start(served, WIDE.0, "m", NARROW_FILES / WIDE.0 as u64, 100)?;
        bench.phase(Job::MkNod, WIDE.1)?;
        let phase = bench.phase(Job::Rename, WIDE.1)?;
        drop(bench.links);
        bench.served.stop()?;
        Ok(phase)
    };
    let (one, two) = (renamed(1)?, renamed(2)?);
    let rename = basics.own(&one) / one.operations;
    // A rank is asked, and answers; what is written to one of them the other reads.
    let messages = HALVES * (two.requests - two.operations).max(1.0);
    let known = (two.turns - two.commits) * basics.turn + two.commits * basics.commit;
    let left = two.cpu_ns - known - two.operations * rename;
    costs.extend([("request.rename", rename), ("rank_message", left / messages)]);
    Ok(())
}

/// The costs of one round by name.
fn round(dir: &Path, cpus: &str, ranks: u16, number: u32) -> Result<Costs, Failed> {
    let dir = empty(dir.join(format!("costs.{number}")))?;
    let mut costs = vec![(SYNC, sync_ns(&dir)?)];
    let fs = dir.join("fs");
    let place = Place { dir: &fs, cpus, ranks };
    let (mut wide, narrow, basics) = basics(place, &mut costs)?;
    let stored = storing(&mut wide, &mut costs)?;
    let (served, _) = wide.part();
    served.stop()?;
    // As where files are made that are used: by a server that has just made their directories.
    let mut wide = Bench::start(place.start("keyed")?, WIDE.0, "f", FILES / WIDE.0 as u64, 400)?;
    let created = wide.phase(Job::Create, WIDE.1)?;
    costs.push(("request.create", basics.own(&created) / created.operations));
    let wrote = wide.phase(Job::Write, WIDE.1)?;
    let look = |wide: &mut Bench, costs: &mut Costs, name: &'static str, job| -> Result<(), Failed> {
        let phase = wide.phase(job, WIDE.1)?;
        costs.push((name, (phase.cpu_ns - phase.turns * basics.turn) / phase.operations));
        Ok(())
    };
    look(&mut wide, &mut costs, "request.release", Job::Release)?;
    // What is done later for each request's sake is its own: file data goes to its files.
    let settled = wide.settle()?;
    let later = settled.cpu_ns - stored(&settled);
    costs.push(("request.write", (basics.own(&wrote) + later) / wrote.operations));
    let (served, _) = wide.part();
    served.stop()?;
    // Files that were made one after the other, each with what is done to it, are elsewhere in memory than those of whom all were made first.
    let mut wide = Bench::start(place.start("keyed")?, WIDE.0, "u", FILES / WIDE.0 as u64, 400)?;
    wide.phase(Job::Mdtest, WIDE.1)?;
    wide.settle()?;
    look(&mut wide, &mut costs, "request.lookup", Job::Lookup)?;
    look(&mut wide, &mut costs, "request.open", Job::Open)?;
    wide.phase(Job::Release, WIDE.1)?;
    let mut wide = loading(wide, narrow, place, &basics, &mut costs)?;
    let unlinked = wide.phase(Job::Unlink, WIDE.1)?;
    let settled = wide.settle()?;
    let later = settled.cpu_ns - stored(&settled);
    costs.push(("request.unlink", (basics.own(&unlinked) + later) / unlinked.operations));
    drop(wide.links);
    wide.served.stop()?;
    renaming(&dir, cpus, &basics, &mut costs)?;
    std::fs::remove_dir_all(&dir)?;
    Ok(costs)
}

/// All threads of this process run there from now on. Answers where they ran before.
fn cpus_of_this_process(cpus: &str) -> Result<String, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let before = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let pid = std::process::id().to_string();
    let moved = Command::new("taskset").args(["-apc", cpus, &pid]).stdout(Stdio::null()).status()?;
    if !moved.success() {
        return Err(format!("taskset: {moved}").into());
    }
    Ok(before.ok_or("no CPUs")?.trim().to_owned())
}

/// What a small write and its sync take on the disk.
fn sync_ns(dir: &Path) -> Result<f64, Failed> {
    let file = std::fs::File::create(dir.join("sync"))?;
    let bytes = [7; SYNC_BYTES];
    (0..SYNCS).try_for_each(|at| file.write_all_at(&bytes, at * SYNC_BYTES as u64))?;
    file.sync_all()?;
    let mut took = Vec::new();
    for at in 0..SYNCS {
        let begin = Instant::now();
        file.write_all_at(&bytes, at * SYNC_BYTES as u64)?;
        file.sync_data()?;
        took.push(begin.elapsed().as_nanos() as f64);
    }
    took.sort_by(f64::total_cmp);
    // Of most, who has waited for the CPU that others had: that is not the disk's time.
    Ok(took[took.len() / 10])
}

/// Prints the cost file: of each cost the median of the rounds.
pub(crate) fn costs(dir: &Path, cpus: &str, rounds: u32, ranks: u16) -> Result<(), Failed> {
    let mut all: Vec<Vec<(&'static str, f64)>> = Vec::new();
    for number in 0..rounds.max(1) {
        all.push(round(dir, cpus, ranks, number)?);
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
