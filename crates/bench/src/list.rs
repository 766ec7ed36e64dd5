//! One directory listed without end by some clients while another creates and unlinks names in it.
//!
//! Every listing is checked: a name that is there throughout appears once, no name twice. How long the other client waits for
//! its answers is an upper bound of how long the rank lets a request stand behind a listing: a lookup waits for nothing else, a
//! change also for the disk unless the rank is in this process. Absent: listings through a kernel, which asks for the same
//! pages.

use crate::link::Link;
use crate::report::{Phase, cpu_seconds, histogram};
use crate::survey::make_dir;
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use proto::reply::{Outcome, Reply};
use proto::request::{NewNode, Request};
use proto::{Errno, Name, NodeRef};
use runtime::port::Connector;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Names of the changing client that exist together.
const YOUNG: u64 = 64;

/// One run.
#[derive(Clone, Debug)]
pub struct List {
    /// Name of the directory, in the root.
    pub dir: String,
    /// Names that stay; made first, those that are there already are kept.
    pub entries: u64,
    /// No listing begins after this long; 0 = only make the names.
    pub seconds: u64,
    /// Clients that list; with none the other one runs alone, for comparison.
    pub listers: u32,
    /// Bytes of a page, roughly; a mount asks for 64 KiB.
    pub page_bytes: u32,
    /// Ask for attributes with the names.
    pub attrs: bool,
    /// Process whose CPU seconds are reported; absent: this one.
    pub watch_pid: Option<u32>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Listings completed, each with every name that stays once.
    pub listings: u64,
    /// Names in all of them.
    pub entries: u64,
    pub seconds: f64,
    pub entries_per_second: f64,
    /// User and system time of the watched process while both ran.
    pub cpu_seconds: Option<f64>,
    /// Checkpoints completed meanwhile.
    pub checkpoints: u64,
    /// make, page, create, lookup, unlink; those that had operations.
    pub phases: Vec<Phase>,
}

/// Makes the directory, lists it while it changes, and checks the listings.
///
/// # Errors
/// When an operation fails, or a listing lacks a name or has one twice.
pub fn run(connector: &dyn Connector, list: &List) -> Result<Listed> {
    ensure!(list.entries > 0, "--entries must be at least 1");
    let mut link = Link::open(connector)?;
    let dir = make_dir(&mut link, &list.dir)?;
    let mut phases = vec![make(&mut link, dir, list.entries)?];
    let checkpoints = link.checkpoints()?;
    // A session that is silent for the whole run would be taken for dead.
    drop(link);
    let pid = list.watch_pid.unwrap_or_else(std::process::id);
    let cpu = cpu_seconds(pid);
    let start = Instant::now();
    let (pages, changes) =
        if list.seconds > 0 { both(connector, list, dir)? } else { (Pages::new(), Changes::new()) };
    let elapsed = start.elapsed();
    let cpu_seconds = cpu_seconds(pid).zip(cpu).map(|(after, before)| after - before);
    let Changes { create, lookup, unlink } = changes;
    for (name, latencies) in
        [("page", pages.latencies), ("create", create), ("lookup", lookup), ("unlink", unlink)]
    {
        if !latencies.is_empty() {
            phases.push(Phase::new(name, &latencies, elapsed, None));
        }
    }
    let seconds = elapsed.as_secs_f64();
    Ok(Listed {
        listings: pages.listings,
        entries: pages.entries,
        seconds,
        entries_per_second: pages.entries as f64 / seconds.max(1e-9),
        cpu_seconds,
        checkpoints: Link::open(connector)?.checkpoints()? - checkpoints,
        phases,
    })
}

pub(crate) fn staying(number: u64) -> Result<Name> {
    // 20 bytes, as in the other runs.
    Ok(Name::new(format!("file.{number:015}").as_bytes())?)
}

pub(crate) fn make(link: &mut Link, dir: NodeRef, entries: u64) -> Result<Phase> {
    let mut latencies = histogram();
    let start = Instant::now();
    let mut at = 0;
    while at < entries {
        let end = (at + 256).min(entries);
        let requests =
            (at..end).map(|number| Ok(create(dir, staying(number)?))).collect::<Result<Vec<_>>>()?;
        let sent = Instant::now();
        for outcome in link.batch(requests)? {
            if outcome != Err(Errno::EEXIST) {
                outcome.context("create")?;
            }
        }
        latencies.saturating_record_n(nanos(sent), end - at);
        at = end;
    }
    Ok(Phase::new("make", &latencies, start.elapsed(), None))
}

fn create(parent: NodeRef, name: Name) -> Request {
    Request::MkNod { parent, name, new: NewNode { mode: 0o100_644, umask: 0, rdev: 0 } }
}

fn both(connector: &dyn Connector, list: &List, dir: NodeRef) -> Result<(Pages, Changes)> {
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(list.seconds);
    std::thread::scope(|scope| {
        let listers: Vec<_> = (0..list.listers)
            .map(|_| scope.spawn(|| lister(connector, list, dir, deadline, &stop)))
            .collect();
        let changer = scope.spawn(|| {
            let changes = changer(connector, list.entries, dir, &stop);
            // When it failed nothing is left to measure.
            stop.store(true, Ordering::Relaxed);
            changes
        });
        let mut pages = Pages::new();
        let mut failed = None;
        for lister in listers {
            match lister.join().unwrap_or_else(|_| bail!("a listing thread panicked")) {
                Ok(share) => pages.add(&share)?,
                Err(error) => failed = Some(error),
            }
        }
        while list.listers == 0 && Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        let changes = changer.join().unwrap_or_else(|_| bail!("the changing thread panicked"))?;
        failed.map_or(Ok((pages, changes)), Err)
    })
}

/// What the listing clients did.
struct Pages {
    listings: u64,
    entries: u64,
    latencies: Histogram<u64>,
}

impl Pages {
    fn new() -> Self {
        Self { listings: 0, entries: 0, latencies: histogram() }
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.listings += other.listings;
        self.entries += other.entries;
        Ok(self.latencies.add(&other.latencies)?)
    }
}

fn lister(
    connector: &dyn Connector,
    list: &List,
    dir: NodeRef,
    deadline: Instant,
    stop: &AtomicBool,
) -> Result<Pages> {
    let mut link = Link::open(connector)?;
    let mut pages = Pages::new();
    while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        let mut seen = Seen::new(list.entries);
        let mut after = 0;
        loop {
            let request = Request::ReadDir { dir, after, attrs: list.attrs, bytes_max: list.page_bytes };
            let (outcome, waited) = ask(&mut link, request)?;
            pages.latencies.saturating_record(waited);
            let (entries, end) = match outcome? {
                Reply::Entries { entries, end } => (entries, end),
                other => bail!("a listing answered {other:?}"),
            };
            for entry in &entries {
                seen.note(&entry.name)?;
            }
            pages.entries += entries.len() as u64;
            match entries.last() {
                Some(last) if !end => after = last.hash.cookie(),
                _ => break,
            }
        }
        seen.finish()?;
        pages.listings += 1;
    }
    Ok(pages)
}

/// How long the changing client waited, by request.
struct Changes {
    create: Histogram<u64>,
    lookup: Histogram<u64>,
    unlink: Histogram<u64>,
}

impl Changes {
    fn new() -> Self {
        Self { create: histogram(), lookup: histogram(), unlink: histogram() }
    }
}

fn changer(connector: &dyn Connector, entries: u64, dir: NodeRef, stop: &AtomicBool) -> Result<Changes> {
    let mut link = Link::open(connector)?;
    let mut changes = Changes::new();
    // No name is used twice, by this run or by an earlier one on the folder.
    let name = |number: u64| Name::new(format!("new.{}.{number}", std::process::id()).as_bytes());
    let mut dice = stdx::Prng::new(1);
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let (outcome, waited) = ask(&mut link, create(dir, name(number)?))?;
        outcome.context("create")?;
        changes.create.saturating_record(waited);

        let old = staying(dice.below(entries))?;
        let (outcome, waited) = ask(&mut link, Request::Lookup { parent: dir, name: old })?;
        outcome.context("lookup")?;
        changes.lookup.saturating_record(waited);

        if let Some(number) = number.checked_sub(YOUNG) {
            let (outcome, waited) = ask(&mut link, Request::Unlink { parent: dir, name: name(number)? })?;
            outcome.context("unlink")?;
            changes.unlink.saturating_record(waited);
        }
        number += 1;
    }
    for number in number.saturating_sub(YOUNG)..number {
        link.call(Request::Unlink { parent: dir, name: name(number)? })?;
    }
    Ok(changes)
}

fn ask(link: &mut Link, request: Request) -> Result<(Outcome, u64)> {
    let sent = Instant::now();
    let outcome = link.batch([request])?.pop().context("no answer")?;
    Ok((outcome, nanos(sent)))
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The names of one listing.
struct Seen {
    /// By number, of those that stay.
    staying: Vec<bool>,
    count: u64,
    others: BTreeSet<Box<[u8]>>,
}

impl Seen {
    fn new(entries: u64) -> Self {
        Self { staying: vec![false; entries as usize], count: 0, others: BTreeSet::new() }
    }

    fn note(&mut self, name: &[u8]) -> Result<()> {
        let number = name
            .strip_prefix(b"file.")
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
        let is_new = match number.and_then(|number| self.staying.get_mut(number)) {
            Some(seen) => {
                self.count += u64::from(!*seen);
                !std::mem::replace(seen, true)
            }
            None => self.others.insert(name.into()),
        };
        ensure!(is_new, "a listing has {} twice", String::from_utf8_lossy(name));
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let missing = self.staying.len() as u64 - self.count;
        if let Some(first) = self.staying.iter().position(|seen| !seen) {
            bail!(
                "a listing lacks {missing} names that were there throughout; the first is {:?}",
                staying(first as u64)?
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: &[&str]) -> Result<()> {
        let mut seen = Seen::new(2);
        names.iter().try_for_each(|name| seen.note(name.as_bytes()))?;
        seen.finish()
    }

    #[test]
    fn a_listing_has_each_staying_name_once_and_no_name_twice() {
        let (first, second) = ("file.000000000000000", "file.000000000000001");
        assert!(listing(&[second, "new.1.0", first, "file.000000000000002"]).is_ok());
        assert!(listing(&[first]).is_err_and(|error| error.to_string().contains("lacks 1 names")));
        assert!(listing(&[first, second, first]).is_err_and(|error| error.to_string().contains("twice")));
        assert!(listing(&[first, second, "new.1.0", "new.1.0"]).is_err());
    }
}
