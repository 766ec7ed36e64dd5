//! Lookups of names that the rank does not have in memory: the store's answer rate through the whole rank.
//!
//! The files are made first (or found from an earlier run), the rank's cache is dropped, then every thread asks for names it
//! has not asked for yet, in an order without locality. Whether the store's pages are warm is the caller's choice (memory
//! cgroup, dropped caches). Absent: data.

use crate::link::Link;
use crate::report::{Phase, cpu_seconds, histogram};
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use proto::request::{NewNode, Request};
use proto::{Errno, Name, NodeRef};
use runtime::port::Connector;
use std::time::{Duration, Instant};

/// One run.
#[derive(Clone, Debug)]
pub struct Cold {
    pub threads: u32,
    /// Requests each thread keeps under way.
    pub depth: u64,
    pub dirs: u64,
    /// Files in all; spread evenly over the directories.
    pub files: u64,
    /// Stops after this long, or when every name was asked for once.
    pub seconds: u64,
    /// The files are there already.
    pub keep: bool,
}

/// Makes the files (unless kept), drops the rank's cache, looks names up.
///
/// # Errors
/// When an operation fails or a name is missing.
pub fn run(connector: &dyn Connector, cold: &Cold) -> Result<Vec<Phase>> {
    ensure!(
        cold.threads > 0 && cold.depth > 0 && cold.dirs > 0,
        "threads, depth and dirs must be at least 1"
    );
    let mut phases = Vec::new();
    let mut link = Link::open(connector)?;
    let dirs = directories(&mut link, cold)?;
    if !cold.keep {
        phases.push(make(&mut link, cold, &dirs)?);
        link.settle()?;
    }
    link.admin("cache drop")?;
    phases.push(ask(connector, cold, &dirs)?);
    Ok(phases)
}

fn directories(link: &mut Link, cold: &Cold) -> Result<Vec<NodeRef>> {
    let parent = NodeRef::bare(link.root);
    (0..cold.dirs)
        .map(|i| {
            let name = Name::new(format!("cold.{i}").as_bytes())?;
            let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
            match link.batch([Request::MkDir { parent, name: name.clone(), new }])?.pop() {
                Some(Ok(reply)) => Ok(Link::node(&reply)),
                Some(Err(Errno::EEXIST)) => Ok(Link::node(&link.call(Request::Lookup { parent, name })?)),
                other => bail!("cannot make directory {i}: {other:?}"),
            }
        })
        .collect()
}

fn name(file: u64) -> Result<Name> {
    Ok(Name::new(format!("file.{file:015}").as_bytes())?)
}

fn make(link: &mut Link, cold: &Cold, dirs: &[NodeRef]) -> Result<Phase> {
    let mut latencies = histogram();
    let start = Instant::now();
    let mut at = 0;
    while at < cold.files {
        let end = (at + 256).min(cold.files);
        let requests = (at..end)
            .map(|file| {
                let parent = dirs[(file % cold.dirs) as usize];
                let new = NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
                Ok(Request::MkNod { parent, name: name(file)?, new })
            })
            .collect::<Result<Vec<_>>>()?;
        let sent = Instant::now();
        for outcome in link.batch(requests)? {
            outcome.context("create")?;
        }
        latencies.saturating_record_n(nanos(sent.elapsed()), end - at);
        at = end;
    }
    Ok(Phase::new("create", &latencies, start.elapsed(), None))
}

fn ask(connector: &dyn Connector, cold: &Cold, dirs: &[NodeRef]) -> Result<Phase> {
    let cpu = cpu_seconds(std::process::id());
    let start = Instant::now();
    let shares: Vec<Result<Histogram<u64>>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..cold.threads)
            .map(|thread| scope.spawn(move || share(connector, cold, dirs, u64::from(thread))))
            .collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|_| bail!("a load thread panicked"))).collect()
    });
    let elapsed = start.elapsed();
    let mut total = histogram();
    for share in shares {
        total.add(share?)?;
    }
    let used = cpu_seconds(std::process::id()).zip(cpu).map(|(after, before)| after - before);
    Ok(Phase::new("cold lookup", &total, elapsed, used))
}

fn share(connector: &dyn Connector, cold: &Cold, dirs: &[NodeRef], thread: u64) -> Result<Histogram<u64>> {
    let mut link = Link::open(connector)?;
    let mut latencies = histogram();
    let deadline = Instant::now() + Duration::from_secs(cold.seconds);
    let mine = cold.files / u64::from(cold.threads);
    let step = stride(mine);
    // A stride prime to the count visits each of this thread's names once, far apart.
    let names = (0..mine).map(|i| (i.wrapping_mul(step) % mine) * u64::from(cold.threads) + thread);
    let requests = names
        .take_while(|_| Instant::now() < deadline)
        .map(|file| Ok(Request::Lookup { parent: dirs[(file % cold.dirs) as usize], name: name(file)? }));
    link.stream(usize::try_from(cold.depth)?, requests, |outcome, took| {
        outcome.context("lookup")?;
        latencies.saturating_record(nanos(took));
        Ok(())
    })?;
    Ok(latencies)
}

/// A number near 0.618 of `count` without a common divisor with it.
fn stride(count: u64) -> u64 {
    let mut step = (count as f64 * 0.618) as u64 | 1;
    while step > 1 && gcd(step, count) != 1 {
        step += 2;
    }
    step.max(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_stride_visits_every_name_once() {
        for count in [1, 2, 10, 1000, 4096, 99_991] {
            let step = stride(count);
            let seen: BTreeSet<u64> = (0..count).map(|i| i.wrapping_mul(step) % count).collect();
            assert_eq!(seen.len() as u64, count);
        }
    }
}
