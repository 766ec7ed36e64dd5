//! The rank with its journal and store, without kernel and network: the operations of Lustre's mds-survey.
//!
//! Each thread has a session of its own and works in directories of its own, one after the other (`dirs` at least threads), or all
//! in one (`dirs` = 1). With several ranks thread N works at rank N modulo their number, whose the directory is that its own are in.
//! Absent: data; requests that cross ranks.

use crate::link::{Link, SentAway};
use crate::report::{Phase, cpu_seconds, histogram, memory_peak};
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use proto::request::{NewNode, Request, XattrMode};
use proto::{Errno, Name, NodeRef, RankId};
use runtime::port::Connector;
use runtime::process::Cpus;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How often a rank is asked that does not know yet what it was given.
const MAP_CHECK: Duration = Duration::from_millis(5);

/// One run.
#[derive(Clone, Debug)]
pub struct Survey {
    pub threads: u32,
    /// Directories: 1 = shared, `threads` = a private one each, more = several private ones each, filled one after the other.
    pub dirs: u32,
    /// Files per thread, in all its directories together.
    pub files: u64,
    /// Requests handed over together.
    pub depth: u64,
    /// Threads of rank N run where rank N's own do if `mds_rank_affinity` is set: on part N of the CPUs.
    pub bound: bool,
    /// Operations in this order: create, lookup, getattr, setxattr, unlink, mkdir, rmdir.
    pub tests: Vec<String>,
}

/// Runs the survey in directories named `prefix`.N; one phase per test. `ranks`: how each of them is reached, from 0 on.
///
/// # Errors
/// When an operation fails.
pub fn run(ranks: &[&dyn Connector], survey: &Survey, prefix: &str) -> Result<Vec<Phase>> {
    ensure!(survey.threads > 0 && survey.dirs > 0, "--threads and --dirs must be at least 1");
    ensure!(survey.threads as usize >= ranks.len(), "--threads must be at least --ranks");
    let first = ranks.first().context("no rank to ask")?;
    let mut setup = Link::open(*first)?;
    let mut places = places(&mut setup, ranks, prefix)?;
    let shared = survey.dirs.min(survey.threads);
    let rank_of = |dir: u32| (dir % shared) as usize % ranks.len();
    let mut dirs = Vec::new();
    for i in 0..survey.dirs {
        let place = &mut places[rank_of(i)];
        dirs.push(make_dir_in(&mut place.link, place.parent, &format!("{prefix}.{i}"))?);
    }
    let mut workers = (0..survey.threads)
        .map(|thread| {
            let step = survey.threads as usize;
            let own = dirs.iter().skip(thread as usize % dirs.len()).step_by(step).copied().collect();
            let mut link = Link::open(*first)?;
            let mut home = None;
            if let rank @ 1.. = rank_of(thread) {
                let there = link.join(ranks[rank], RankId(rank as u16))?;
                home = Some(std::mem::replace(&mut link, there));
            }
            let cpus = Cpus::of_this_thread().filter(|_| survey.bound);
            let cpus = cpus.map(|all| all.part(rank_of(thread), ranks.len()));
            Ok(Worker { link, _home: home, survey, dirs: own, thread, nodes: Vec::new(), cpus })
        })
        .collect::<Result<Vec<_>>>()?;
    let mut phases = Vec::new();
    for test in &survey.tests {
        let before = setup.checkpoints()?;
        let mut phase = phase(&mut workers, test)?;
        phase.checkpoints = Some(setup.checkpoints()? - before);
        phases.push(phase);
    }
    Ok(phases)
}

/// What a rank works below.
struct Place {
    link: Link,
    parent: NodeRef,
}

/// Of rank 0 it is the root, of rank N a directory that is pinned to it.
fn places(setup: &mut Link, ranks: &[&dyn Connector], prefix: &str) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for (rank, connector) in ranks.iter().enumerate() {
        if rank == 0 {
            let parent = NodeRef::bare(setup.root);
            places.push(Place { link: Link::open(*connector)?, parent });
            continue;
        }
        let parent = make_dir(setup, &format!("{prefix}-rank{rank}"))?;
        let (name, value) = (Name::new(b"pando.dir.pin")?, rank.to_string().into_bytes());
        setup.call(Request::SetXattr {
            node: parent,
            name,
            value: value.into_boxed_slice(),
            mode: XattrMode::Either,
        })?;
        let link = setup.join(*connector, RankId(rank as u16))?;
        places.push(Place { link, parent });
    }
    Ok(places)
}

/// The line mds-survey prints.
#[must_use]
pub fn line(survey: &Survey, ranks: usize, phases: &[Phase]) -> String {
    let mut text = format!(
        "mdt {ranks} file {} dir {} thr {}",
        survey.files * u64::from(survey.threads),
        survey.dirs,
        survey.threads
    );
    for phase in phases {
        text += &format!(" {} {:.2}", phase.name, phase.ops_per_second);
    }
    text
}

/// What makes the rates count: how often the journal was emptied meanwhile, and the process's memory.
#[must_use]
pub fn counters(phases: &[Phase]) -> String {
    let counts: Vec<String> = phases
        .iter()
        .map(|phase| format!("{} {}", phase.name, phase.checkpoints.unwrap_or_default()))
        .collect();
    let memory =
        memory_peak().map_or_else(String::new, |bytes| format!("; memory at its peak {} MiB", bytes >> 20));
    format!("checkpoints completed: {}{memory}", counts.join(", "))
}

/// The directory of this name in the root; made if it is not there.
pub(crate) fn make_dir(link: &mut Link, name: &str) -> Result<NodeRef> {
    make_dir_in(link, NodeRef::bare(link.root), name)
}

/// The directory of this name; made if it is not there. A rank that was given the parent just now may have to hear of it first.
fn make_dir_in(link: &mut Link, parent: NodeRef, name: &str) -> Result<NodeRef> {
    let name = Name::new(name.as_bytes())?;
    let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
    let made = loop {
        match link.batch([Request::MkDir { parent, name: name.clone(), new: new.clone() }]) {
            Err(error) if error.is::<SentAway>() => std::thread::park_timeout(MAP_CHECK),
            made => break made?,
        }
    };
    match made.first() {
        Some(Ok(reply)) => Ok(Link::node(reply)),
        Some(Err(Errno::EEXIST)) => Ok(Link::node(&link.call(Request::Lookup { parent, name })?)),
        other => bail!("cannot make {name:?}: {other:?}"),
    }
}

/// `f0007.00000000000042`: 20 bytes, as the memory figures assume. Without the formatting machinery, which cost a sixth of what was
/// to be measured.
fn name_of(thread: u32, number: u64) -> [u8; 20] {
    let mut name = *b"f0000.00000000000000";
    for (digits, mut left) in [(1..5, u64::from(thread)), (6..20, number)] {
        for digit in name[digits].iter_mut().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
    }
    name
}

/// One thread's share of one test.
struct Share {
    start: Instant,
    end: Instant,
    latencies: Histogram<u64>,
}

/// One load thread: a session, its directories, and the files it made.
struct Worker<'a> {
    link: Link,
    /// Where its session has its number from, if that is another rank.
    _home: Option<Link>,
    survey: &'a Survey,
    dirs: Vec<NodeRef>,
    thread: u32,
    /// Filled by create, mkdir or lookup; getattr and setxattr go by number.
    nodes: Vec<NodeRef>,
    cpus: Option<Cpus>,
}

impl Worker<'_> {
    fn run(&mut self, test: &str) -> Result<Share> {
        let mut latencies = histogram();
        let keeps = matches!(test, "create" | "mkdir" | "lookup");
        if keeps {
            self.nodes.clear();
        }
        let start = Instant::now();
        let mut at = 0;
        while at < self.survey.files {
            let end = (at + self.survey.depth.max(1)).min(self.survey.files);
            let requests = (at..end).map(|i| self.request(test, i)).collect::<Result<Vec<_>>>()?;
            let sent = Instant::now();
            for (i, outcome) in self.link.batch(requests)?.into_iter().enumerate() {
                let reply = outcome.with_context(|| format!("{test} of file {}", at + i as u64))?;
                if keeps {
                    self.nodes.push(Link::node(&reply));
                }
            }
            let nanos = u64::try_from(sent.elapsed().as_nanos()).unwrap_or(u64::MAX);
            latencies.saturating_record_n(nanos.max(1), end - at);
            at = end;
        }
        Ok(Share { start, end: Instant::now(), latencies })
    }

    fn request(&self, test: &str, i: u64) -> Result<Request> {
        let name = Name::new(&name_of(self.thread, i))?;
        let parent = self.dirs[(i * self.dirs.len() as u64 / self.survey.files) as usize];
        let node = || {
            self.nodes
                .get(i as usize)
                .copied()
                .context("getattr and setxattr need create or lookup before them")
        };
        Ok(match test {
            "create" => {
                Request::MkNod { parent, name, new: NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 } }
            }
            "mkdir" => {
                Request::MkDir { parent, name, new: NewNode { mode: 0o040_755, umask: 0o022, rdev: 0 } }
            }
            "lookup" => Request::Lookup { parent, name },
            "getattr" => Request::GetAttr { node: node()? },
            "setxattr" => {
                let (name, value) = (Name::new(b"user.survey")?, b"1"[..].into());
                Request::SetXattr { node: node()?, name, value, mode: XattrMode::Either }
            }
            "unlink" => Request::Unlink { parent, name },
            "rmdir" => Request::RmDir { parent, name },
            other => {
                bail!("unknown test {other}: one of create, lookup, getattr, setxattr, unlink, mkdir, rmdir")
            }
        })
    }
}

fn phase(workers: &mut [Worker<'_>], test: &str) -> Result<Phase> {
    let barrier = Barrier::new(workers.len());
    let cpu = cpu_seconds(std::process::id());
    let shares: Vec<Result<Share>> = std::thread::scope(|scope| {
        let handles: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let barrier = &barrier;
                scope.spawn(move || {
                    worker.cpus.inspect(Cpus::take);
                    barrier.wait();
                    worker.run(test)
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| bail!("a load thread panicked"))).collect()
    });
    let mut total = histogram();
    let (mut first, mut last) = (None::<Instant>, None::<Instant>);
    for share in shares {
        let share = share?;
        total.add(share.latencies)?;
        first = Some(first.map_or(share.start, |first| first.min(share.start)));
        last = last.max(Some(share.end));
    }
    let elapsed = last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first);
    let used = cpu_seconds(std::process::id()).zip(cpu).map(|(after, before)| after - before);
    Ok(Phase::new(test, &total, elapsed, used))
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn names_are_those_of_the_formatting_machinery() {
        for (thread, number) in [(0, 0), (7, 42), (9999, 99_999_999_999_999)] {
            assert_eq!(name_of(thread, number).to_vec(), format!("f{thread:04}.{number:014}").into_bytes());
        }
    }
}
