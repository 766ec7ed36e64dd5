//! Thousands of sessions that have files open: what each costs the server while it is idle, and how soon the server answers
//! after it was killed under them and started again by somebody else.
//!
//! Absent: killing and starting the server, and what the sessions would do besides: no caching, no locks, no writing.

use crate::link::Link;
use crate::report::cpu_seconds;
use crate::survey::make_dir;
use anyhow::{Context, Result, bail, ensure};
use proto::caps::Bits;
use proto::request::{NewNode, Request};
use proto::{Name, NodeRef};
use runtime::port::Connector;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A session says that it lives this often; a lease is 10 s.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// Between two attempts to reach a server that is not there.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(1);
/// When the server has not come back, the run has failed.
const BACK_WITHIN: Duration = Duration::from_secs(60);
const BATCH: u64 = 256;
/// A program opens files one after the other: the server's buffers are not measured at what a burst of hundreds leaves them.
const OPENS_TOGETHER: usize = 8;

/// One run.
#[derive(Clone, Debug)]
pub struct Sessions {
    pub sessions: u64,
    /// Files each has open, read-only.
    pub opens: u64,
    /// Files there are; each session opens the next `opens` of them.
    pub files: u64,
    /// The sessions have a use for capabilities, as mounts do.
    pub caps: bool,
    /// Files made after the last checkpoint, before the server is killed; 0: nobody kills it.
    pub tail: u64,
    /// Threads that open, and that connect again.
    pub threads: u64,
    /// The server's process.
    pub watch_pid: u32,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    pub sessions: u64,
    pub opens: u64,
    /// Anonymous memory of the server before the sessions and with them.
    pub before_bytes: u64,
    pub after_bytes: u64,
    pub bytes_per_session: f64,
    /// CPU seconds of the server for opening them.
    pub cpu_seconds: Option<f64>,
    pub back: Option<Back>,
}

/// How the server came back. Times are since the connections were lost; `*_at` on the system's clock, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Back {
    pub lost_at: f64,
    /// The first answer to a GetAttr, of one session while all others come back, too.
    pub read_seconds: f64,
    pub read_at: f64,
    /// The first answer to a MkNod.
    pub change_seconds: f64,
    pub change_at: f64,
    /// Every session has presented its files and has had an answer.
    pub all_seconds: f64,
}

struct Session {
    link: Link,
    open: Vec<NodeRef>,
}

/// Opens the sessions and measures; with a tail then says `ready` and waits for the server to be killed and started again.
///
/// # Errors
/// When an operation fails, or the server does not come back within a minute.
pub fn run(connector: &dyn Connector, plan: &Sessions, ready: impl Fn()) -> Result<Held> {
    ensure!(plan.sessions > 0 && plan.threads > 0, "--sessions and --threads must be at least 1");
    ensure!(plan.files >= plan.opens.max(1), "--files must be at least --opens");
    let mut link = Link::open(connector)?;
    let dir = make_dir(&mut link, "sessions")?;
    let files = make(&mut link, dir, "file", plan.files)?;
    link.settle()?;
    // A session that is silent while all others are opened would be taken for dead.
    drop(link);
    let cpu = cpu_seconds(plan.watch_pid);
    let before_bytes = anonymous(plan.watch_pid)?;
    let sessions = open_all(connector, plan, &files)?;
    let mut link = Link::open(connector)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| keep_alive(&sessions, &over));
        let measured = (|| {
            link.settle()?;
            let after_bytes = anonymous(plan.watch_pid)?;
            let cpu = cpu_seconds(plan.watch_pid).zip(cpu).map(|(after, before)| after - before);
            let mut held = Held {
                sessions: plan.sessions,
                opens: plan.opens,
                before_bytes,
                after_bytes,
                bytes_per_session: after_bytes.saturating_sub(before_bytes) as f64 / plan.sessions as f64,
                cpu_seconds: cpu,
                back: None,
            };
            if plan.tail > 0 {
                make(&mut link, dir, "tail", plan.tail)?;
                ready();
                link.wait_lost(RENEW_EVERY);
                over.store(true, Ordering::Relaxed);
                held.back = Some(come_back(connector, plan, &sessions, (link, dir))?);
            }
            Ok(held)
        })();
        over.store(true, Ordering::Relaxed);
        keeper.join().unwrap_or_else(|_| bail!("a thread panicked"))?;
        measured
    })
}

/// No name is used twice, by this run or by an earlier one.
fn make(link: &mut Link, parent: NodeRef, kind: &str, count: u64) -> Result<Vec<NodeRef>> {
    let run = std::process::id();
    let mut nodes = Vec::new();
    for start in (0..count).step_by(BATCH as usize) {
        let requests = (start..(start + BATCH).min(count))
            .map(|i| {
                let new = NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
                Ok(Request::MkNod { parent, name: Name::new(format!("{kind}.{run}.{i}").as_bytes())?, new })
            })
            .collect::<Result<Vec<_>>>()?;
        for outcome in link.batch(requests)? {
            nodes.push(Link::node(&outcome.context("create")?));
        }
    }
    Ok(nodes)
}

/// Runs `work` for each session, on `threads` threads.
fn on_all<T: Send>(plan: &Sessions, work: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let mine = (thread..plan.sessions).step_by(plan.threads as usize);
                scope.spawn(move || mine.map(work).collect::<Result<Vec<T>>>())
            })
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|_| bail!("a load thread panicked"))?);
        }
        Ok(all)
    })
}

/// Those opened first must not wait until the last is there before they are heard of again: each thread renews its own.
fn open_all(connector: &dyn Connector, plan: &Sessions, files: &[NodeRef]) -> Result<Vec<Mutex<Session>>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    let mut renewed = Instant::now();
                    for number in (thread..plan.sessions).step_by(plan.threads as usize) {
                        mine.push(open(connector, plan, files, number)?);
                        if renewed.elapsed() >= RENEW_EVERY {
                            mine.iter_mut().try_for_each(|session: &mut Session| session.link.renew())?;
                            renewed = Instant::now();
                        }
                    }
                    Ok(mine)
                })
            })
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            let mine: Result<Vec<Session>> =
                thread.join().unwrap_or_else(|_| bail!("a load thread panicked"));
            all.extend(mine?.into_iter().map(Mutex::new));
        }
        Ok(all)
    })
}

fn open(connector: &dyn Connector, plan: &Sessions, files: &[NodeRef], number: u64) -> Result<Session> {
    let wants = if plan.caps { Bits::ATTRS } else { Bits::NONE };
    let mut link = Link::open_wanting(connector, wants).with_context(|| format!("session {number}"))?;
    let first = number.wrapping_mul(plan.opens);
    let at = |i: u64| files[(first.wrapping_add(i) % files.len() as u64) as usize];
    let open: Vec<NodeRef> = (0..plan.opens).map(at).collect();
    for some in open.chunks(OPENS_TOGETHER) {
        for outcome in link.batch(some.iter().map(|node| Request::Open { node: *node, flags: 0 }))? {
            outcome.with_context(|| format!("open in session {number}"))?;
        }
    }
    Ok(Session { link, open })
}

fn keep_alive(sessions: &[Mutex<Session>], over: &AtomicBool) -> Result<()> {
    let mut next = Instant::now() + RENEW_EVERY;
    while !over.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(20));
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + RENEW_EVERY;
        for session in sessions {
            if over.load(Ordering::Relaxed) {
                break;
            }
            // Lost with the server; whether that was meant, the others find out.
            let _lost = lock(session).link.renew();
        }
    }
    Ok(())
}

fn come_back(
    connector: &dyn Connector,
    plan: &Sessions,
    sessions: &[Mutex<Session>],
    (mut link, dir): (Link, NodeRef),
) -> Result<Back> {
    let lost = Instant::now();
    let mut back = Back { lost_at: clock(), ..Back::default() };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            on_all(plan, |number| {
                let session = &mut *lock(&sessions[number as usize]);
                resume(connector, session, lost).with_context(|| format!("session {number}"))?;
                let node = session.open.first().copied().unwrap_or(dir);
                session.link.call(Request::GetAttr { node }).map(drop)
            })
            .map(|_| lost.elapsed())
        });
        // This one asks by itself, in the crowd of all others.
        let prober = (|| {
            let mut session = Session { link, open: Vec::new() };
            resume(connector, &mut session, lost)?;
            link = session.link;
            link.call(Request::GetAttr { node: dir })?;
            (back.read_seconds, back.read_at) = (lost.elapsed().as_secs_f64(), clock());
            make(&mut link, dir, "after", 1)?;
            (back.change_seconds, back.change_at) = (lost.elapsed().as_secs_f64(), clock());
            Ok(())
        })();
        let others = others.join().unwrap_or_else(|_| bail!("a load thread panicked"));
        prober.and(others).map(|took| {
            back.all_seconds = took.as_secs_f64();
            back
        })
    })
}

fn resume(connector: &dyn Connector, session: &mut Session, lost: Instant) -> Result<()> {
    loop {
        match session.link.resume(connector, &session.open) {
            Err(error) if lost.elapsed() > BACK_WITHIN => return Err(error),
            Err(_) => std::thread::park_timeout(ATTEMPT_PAUSE),
            Ok(()) => return Ok(()),
        }
    }
}

fn lock(session: &Mutex<Session>) -> std::sync::MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Anonymous memory of a process.
fn anonymous(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("cannot look at process {pid}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
