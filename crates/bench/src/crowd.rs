//! Many clients that list one directory without end, one that creates and unlinks elsewhere, and one that stats files of that directory.
//!
//! Through the Rust API, each client with a session of its own, or through the kernel on a path of any mount, each a thread. What a
//! server's rank did meanwhile is asked of its counters. Absent: whether a listing is whole (`list.rs` checks that), data.

use crate::link::Link;
use crate::list;
use crate::report::{Phase, cpu_seconds, histogram};
use crate::survey::make_dir;
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use mount::{Fs, Mount};
use proto::Cred;
use proto::message::ClientInfo;
use runtime::port::Connector;
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Names of the changing client that exist together.
const YOUNG: u64 = 64;
const FILE: u32 = 0o100_644;
/// How often a thread that waits looks whether others have failed.
const LOOK: Duration = Duration::from_millis(20);

/// Where the clients come from.
pub enum Place {
    /// A server, or a rank in this process.
    Server(Arc<dyn Connector>),
    /// A folder of a mount.
    Path(PathBuf),
}

/// One run.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Name of the listed directory; the other is NAME.other.
    pub dir: String,
    pub entries: u64,
    pub listers: u32,
    pub seconds: u64,
    /// Server's process whose CPU seconds are reported.
    pub watch_pid: Option<u32>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Crowded {
    pub names_per_second: f64,
    /// list (one whole listing), create, unlink, stat.
    pub phases: Vec<Phase>,
    pub cpu_seconds: Option<f64>,
    /// Absent without a server that could be asked.
    pub rank: Option<RankLoad>,
}

/// What the rank's driver counted: a turn is one holding of the rank, a wait a thread's that found it held; queued are requests that came
/// over sockets, from when they may have lain in theirs to their step.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RankLoad {
    pub turns: u64,
    pub turn_longest_us: f64,
    pub turns_over_5ms: u64,
    pub waits: u64,
    pub wait_average_us: f64,
    pub waits_over_5ms: u64,
    pub queued: u64,
    pub queue_average_us: f64,
    pub queue_longest_us: f64,
    pub queue_over_5ms: u64,
    /// Of the requests, the share that waited longer than 5 ms: at most 1 % means a 99th percentile of at most 5 ms.
    pub late_percent: f64,
}

/// Makes the files that are not there, then lets everybody loose.
///
/// # Errors
/// When an operation fails.
pub fn run(place: &Place, crowd: &Crowd) -> Result<Crowded> {
    ensure!(crowd.entries > 0 && crowd.seconds > 0, "--entries and --seconds must be at least 1");
    make(place, crowd)?;
    if let Place::Server(connector) = place {
        Link::open(&**connector)?.admin("perf reset")?;
    }
    let cpu = crowd.watch_pid.and_then(cpu_seconds);
    let start = Instant::now();
    let mut all = all(place, crowd)?;
    let elapsed = start.elapsed();
    let cpu_seconds = crowd.watch_pid.and_then(cpu_seconds).zip(cpu).map(|(after, before)| after - before);
    let rank = match place {
        Place::Server(connector) => Some(load(&Link::open(&**connector)?.admin("perf dump")?)?),
        Place::Path(_) => None,
    };
    let named = [("list", &all.list), ("create", &all.create), ("unlink", &all.unlink), ("stat", &all.stat)];
    let phases = named.map(|(name, latencies)| Phase::new(name, latencies, elapsed, None));
    all.names = all.names.max(1);
    Ok(Crowded {
        names_per_second: all.names as f64 / elapsed.as_secs_f64().max(1e-9),
        phases: phases.into_iter().filter(|phase| phase.ops > 0).collect(),
        cpu_seconds,
        rank,
    })
}

fn load(dump: &serde_json::Value) -> Result<RankLoad> {
    let count = |key: &str| dump["driver"][key].as_u64().with_context(|| format!("no counter {key}"));
    let (turns, waits) = (count("turns")?, count("waits")?);
    let (queued, late) = (count("queued")?, count("queue_over_5ms")?);
    Ok(RankLoad {
        turns,
        turn_longest_us: count("turn_nanos_max")? as f64 / 1e3,
        turns_over_5ms: count("turns_over_5ms")?,
        waits,
        wait_average_us: count("wait_nanos")? as f64 / 1e3 / waits.max(1) as f64,
        waits_over_5ms: count("waits_over_5ms")?,
        queued,
        queue_average_us: count("queue_nanos")? as f64 / 1e3 / queued.max(1) as f64,
        queue_longest_us: count("queue_nanos_max")? as f64 / 1e3,
        queue_over_5ms: late,
        late_percent: late as f64 * 100.0 / queued.max(1) as f64,
    })
}

fn other(dir: &str) -> String {
    format!("{dir}.other")
}

fn file(number: u64) -> String {
    format!("file.{number:015}")
}

fn make(place: &Place, crowd: &Crowd) -> Result<()> {
    match place {
        Place::Server(connector) => {
            let mut link = Link::open(&**connector)?;
            make_dir(&mut link, &other(&crowd.dir))?;
            let dir = make_dir(&mut link, &crowd.dir)?;
            list::make(&mut link, dir, crowd.entries).map(drop)
        }
        Place::Path(path) => {
            for dir in [crowd.dir.clone(), other(&crowd.dir)] {
                let dir = path.join(dir);
                fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            }
            (0..crowd.entries).try_for_each(|number| {
                let file = path.join(&crowd.dir).join(file(number));
                let made = OpenOptions::new().write(true).create(true).truncate(false).open(&file);
                made.map(drop).with_context(|| format!("cannot make {}", file.display()))
            })
        }
    }
}

/// What the clients did.
struct All {
    names: u64,
    list: Histogram<u64>,
    create: Histogram<u64>,
    unlink: Histogram<u64>,
    stat: Histogram<u64>,
}

impl All {
    fn new() -> Self {
        Self { names: 0, list: histogram(), create: histogram(), unlink: histogram(), stat: histogram() }
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.names += other.names;
        self.list.add(&other.list)?;
        self.create.add(&other.create)?;
        self.unlink.add(&other.unlink)?;
        Ok(self.stat.add(&other.stat)?)
    }
}

/// What one client does until it is told to stop.
type Role = fn(&Client, &Crowd, &AtomicBool, &mut All) -> Result<()>;

fn all(place: &Place, crowd: &Crowd) -> Result<All> {
    let stop = AtomicBool::new(false);
    let mut roles: Vec<Role> = vec![changer, asker];
    roles.extend((0..crowd.listers).map(|_| lister as Role));
    let deadline = Instant::now() + Duration::from_secs(crowd.seconds);
    std::thread::scope(|scope| {
        let stop = &stop;
        let clients: Vec<_> = roles
            .into_iter()
            .map(|role| {
                scope.spawn(move || {
                    let mut share = All::new();
                    let done = Client::open(place).and_then(|client| role(&client, crowd, stop, &mut share));
                    // When one failed nothing is left to measure.
                    stop.store(true, Ordering::Relaxed);
                    done.map(|()| share)
                })
            })
            .collect();
        while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(LOOK);
        }
        stop.store(true, Ordering::Relaxed);
        let mut total = All::new();
        for client in clients {
            total.add(&client.join().unwrap_or_else(|_| bail!("a load thread panicked"))?)?;
        }
        Ok(total)
    })
}

/// Lists until told; what a listing that was broken off took is not counted.
fn lister(client: &Client, crowd: &Crowd, stop: &AtomicBool, share: &mut All) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let Some(names) = client.list(&crowd.dir, stop)? else { return Ok(()) };
        ensure!(names >= crowd.entries, "a listing has {names} names of {}", crowd.entries);
        share.list.saturating_record(nanos(begin));
        share.names += names;
    }
    Ok(())
}

fn changer(client: &Client, crowd: &Crowd, stop: &AtomicBool, share: &mut All) -> Result<()> {
    // No name is used twice, by this run or by an earlier one.
    let path = |number: u64| format!("{}/new.{}.{number}", other(&crowd.dir), std::process::id());
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        client.create(&path(number))?;
        share.create.saturating_record(nanos(begin));
        if let Some(old) = number.checked_sub(YOUNG) {
            let begin = Instant::now();
            client.unlink(&path(old))?;
            share.unlink.saturating_record(nanos(begin));
        }
        number += 1;
    }
    (number.saturating_sub(YOUNG)..number).try_for_each(|number| client.unlink(&path(number)))
}

fn asker(client: &Client, crowd: &Crowd, stop: &AtomicBool, share: &mut All) -> Result<()> {
    let mut dice = stdx::Prng::new(1);
    while !stop.load(Ordering::Relaxed) {
        let path = format!("{}/{}", crowd.dir, file(dice.below(crowd.entries)));
        let begin = Instant::now();
        client.stat(&path)?;
        share.stat.saturating_record(nanos(begin));
    }
    Ok(())
}

/// One client; paths are relative to the place.
enum Client {
    Api(Fs),
    Path(PathBuf),
}

impl Client {
    fn open(place: &Place) -> Result<Self> {
        Ok(match place {
            Place::Server(connector) => {
                let info = ClientInfo {
                    host: "bench".into(),
                    mount: "bench".into(),
                    pid: std::process::id(),
                    caps_max: 0,
                };
                Self::Api(Fs::new(Mount::open(Arc::clone(connector), info)?, Cred::ROOT))
            }
            Place::Path(path) => Self::Path(path.clone()),
        })
    }

    /// How many names there are; `None` when it was told to stop.
    fn list(&self, dir: &str, stop: &AtomicBool) -> Result<Option<u64>> {
        let names: Box<dyn Iterator<Item = Result<()>>> = match self {
            Self::Api(fs) => Box::new(fs.readdir(dir)?.map(|entry| Ok(entry.map(drop)?))),
            Self::Path(path) => Box::new(fs::read_dir(path.join(dir))?.map(|entry| Ok(entry.map(drop)?))),
        };
        let mut count = 0;
        for name in names {
            name.with_context(|| format!("cannot list {dir}"))?;
            count += 1;
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        Ok(Some(count))
    }

    fn create(&self, path: &str) -> Result<()> {
        let made = match self {
            Self::Api(fs) => fs.mknod(path, FILE, 0).map(drop).map_err(Into::into),
            Self::Path(top) => File::create_new(top.join(path)).map(drop).map_err(anyhow::Error::from),
        };
        made.with_context(|| format!("cannot make {path}"))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        let gone = match self {
            Self::Api(fs) => fs.unlink(path).map_err(Into::into),
            Self::Path(top) => fs::remove_file(top.join(path)).map_err(anyhow::Error::from),
        };
        gone.with_context(|| format!("cannot unlink {path}"))
    }

    fn stat(&self, path: &str) -> Result<()> {
        let found = match self {
            Self::Api(fs) => fs.stat(path).map(drop).map_err(Into::into),
            Self::Path(top) => exists(&top.join(path)),
        };
        found.with_context(|| format!("cannot stat {path}"))
    }
}

/// stat(2) as C programs call it: without the birth time, which would make a kernel ask each time.
fn exists(path: &Path) -> Result<()> {
    Ok(runtime::process::stat_ino(path).map(drop)?)
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_on_any_folder_counts_what_it_did() {
        let folder = tempfile::tempdir().expect("a folder");
        let crowd = Crowd { dir: "d".into(), entries: 50, listers: 2, seconds: 1, watch_pid: None };
        let done = run(&Place::Path(folder.path().into()), &crowd).expect("a run");
        let names: Vec<&str> = done.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["list", "create", "unlink", "stat"]);
        assert_eq!(fs::read_dir(folder.path().join("d.other")).expect("a folder").count(), 0);
        assert_eq!(fs::read_dir(folder.path().join("d")).expect("a folder").count(), 50);
    }

    #[test]
    fn what_the_rank_counted_is_read() {
        let driver = serde_json::json!({
            "turns": 1000, "turn_nanos_max": 7_000, "turns_over_5ms": 0, "waits": 10, "wait_nanos": 20_000, "waits_over_5ms": 5,
            "queued": 400, "queue_nanos": 800_000, "queue_nanos_max": 9_000, "queue_over_5ms": 2,
        });
        let load = load(&serde_json::json!({ "driver": driver })).expect("counters");
        assert_eq!((load.turn_longest_us, load.wait_average_us), (7.0, 2.0));
        assert_eq!((load.queue_average_us, load.queue_longest_us, load.late_percent), (2.0, 9.0, 0.5));
        assert!(super::load(&serde_json::json!({})).is_err());
    }
}
