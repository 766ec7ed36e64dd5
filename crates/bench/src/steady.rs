//! A load that goes on: clients that create, stat and unlink files in many directories, or rename them to and fro, and what each second brought.
//!
//! Directories are in groups, each below a folder of its own (that an operator pins, places, moves): every second says of each group the calls that
//! ended in it, and how long they took; a file can have each call. Through the Rust API, a session each client; calls that fail are counted. Absent: data,
//! kernels, what is done to the ranks meanwhile.

use crate::report::histogram;
use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use mount::{Fs, Mount};
use proto::message::ClientInfo;
use proto::request::{NewNode, Request};
use proto::{Attr, Cred, Errno, Name, NodeRef};
use runtime::port::Connector;
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stdx::Prng;

const FILE: u32 = 0o100_644;
/// Files of a client that exist together.
const YOUNG: usize = 64;

/// One run.
#[derive(Clone, Debug)]
pub struct Steady {
    /// Folders below the root, one a group; made if they are not there.
    pub groups: Vec<String>,
    /// Where files of each group are renamed to, and back; as many as groups, or none.
    pub to: Vec<String>,
    /// Directories of each group, or of all alike; made first, but for those that are there.
    pub dirs: Vec<u32>,
    /// Clients of each group.
    pub clients: u32,
    /// 0: the directories are made, and that is all.
    pub seconds: u64,
    /// A file for each call: `BEGAN MICROSECONDS GROUP CLIENT CALL ok|ERROR`, written every second.
    pub calls: Option<PathBuf>,
}

/// What a second brought to a group.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// When it ended, in seconds since 1970.
    pub at: f64,
    pub group: String,
    /// Calls that did not fail; the latencies are of all.
    pub ops: u64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    pub errors: u64,
}

impl Second {
    /// As one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { at, group, ops, p50_us, p99_us, max_us, errors } = self;
        format!(
            "{at:.3} {group} ops {ops} p50 {p50_us:.0} p99 {p99_us:.0} max {max_us:.0} us errors {errors}"
        )
    }

    fn of(at: f64, group: &str, window: &Window) -> Self {
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        Self {
            at,
            group: group.to_owned(),
            ops: window.ops,
            p50_us: micros(window.latencies.value_at_quantile(0.50)),
            p99_us: micros(window.latencies.value_at_quantile(0.99)),
            max_us: micros(window.latencies.max()),
            errors: window.errors,
        }
    }
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Steadied {
    /// Directories that are there.
    pub dirs: u64,
    pub seconds: Vec<Second>,
    /// Of each group in the whole run.
    pub all: Vec<Second>,
    /// What the first call said that failed.
    pub first_error: Option<String>,
}

/// What is being counted.
struct Window {
    ops: u64,
    latencies: Histogram<u64>,
    errors: u64,
    /// Only if a file is to have them.
    calls: Vec<Call>,
}

impl Window {
    fn new() -> Self {
        Self { ops: 0, latencies: histogram(), errors: 0, calls: Vec::new() }
    }
}

/// One call of a client.
struct Call {
    /// In seconds since 1970.
    began: f64,
    took: Duration,
    client: u32,
    kind: &'static str,
    failed: Option<Errno>,
}

impl Call {
    fn line(&self, group: &str) -> String {
        let Self { began, took, client, kind, failed } = self;
        let result = failed.map_or_else(|| "ok".to_owned(), |errno| errno.to_string());
        format!("{began:.6} {} {group} {client} {kind} {result}\n", took.as_micros())
    }
}

/// A group: its directories, those files are renamed to, and this second's counts.
struct Group {
    dirs: Vec<NodeRef>,
    to: Vec<NodeRef>,
    window: Mutex<Window>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Makes the directories, then lets the clients loose; `told` has every second's line as it comes.
///
/// # Errors
/// When directories cannot be made or a session not begun.
pub fn run(connector: &Arc<dyn Connector>, steady: &Steady, told: impl FnMut(&Second)) -> Result<Steadied> {
    let counts = match steady.dirs[..] {
        [count] => vec![count; steady.groups.len()],
        _ => steady.dirs.clone(),
    };
    ensure!(
        !steady.groups.is_empty() && !counts.contains(&0),
        "--groups and --dirs: there must be one at least"
    );
    ensure!(counts.len() == steady.groups.len(), "--dirs: one number, or as many as --groups");
    ensure!(steady.to.is_empty() || steady.to.len() == steady.groups.len(), "--to: as many as --groups");
    let setup = open(connector)?;
    let mut groups = Vec::new();
    for (i, (name, count)) in steady.groups.iter().zip(counts).enumerate() {
        let dirs = directories(&setup, name, count)?;
        let to = steady.to.get(i).map(|to| directories(&setup, to, count)).transpose()?;
        groups.push(Group { dirs, to: to.unwrap_or_default(), window: Mutex::new(Window::new()) });
    }
    let dirs = groups.iter().map(|group| (group.dirs.len() + group.to.len()) as u64).sum();
    let mut result = Steadied { dirs, seconds: Vec::new(), all: Vec::new(), first_error: None };
    if steady.seconds > 0 {
        measure(connector, steady, &groups, &mut result, told)?;
    }
    setup.mount().close();
    Ok(result)
}

fn open(connector: &Arc<dyn Connector>) -> Result<Fs> {
    let info =
        ClientInfo { host: "bench".into(), mount: "bench".into(), pid: std::process::id(), caps_max: 0 };
    Ok(Fs::new(Mount::open(connector.clone(), info)?, Cred::ROOT))
}

/// The directories of a group, made if need be.
fn directories(fs: &Fs, name: &str, count: u32) -> Result<Vec<NodeRef>> {
    let make = |path: &str| -> Result<NodeRef> {
        match fs.mkdir(path, 0o755) {
            Ok(attr) => Ok(Attr::node(&attr)),
            Err(_) => Ok(fs.node(path).with_context(|| format!("cannot make {path}"))?),
        }
    };
    make(name)?;
    (0..count).map(|i| make(&format!("{name}/d{i}"))).collect()
}

/// The clients work until the time is over, and are counted each second.
fn measure(
    connector: &Arc<dyn Connector>,
    steady: &Steady,
    groups: &[Group],
    result: &mut Steadied,
    mut told: impl FnMut(&Second),
) -> Result<()> {
    let (stop, first_error) = (AtomicBool::new(false), Mutex::new(None));
    let create = |path: &PathBuf| File::create(path).with_context(|| path.display().to_string());
    let mut calls = steady.calls.as_ref().map(create).transpose()?.map(BufWriter::new);
    let (keeps, begin, began) = (calls.is_some(), Instant::now(), now());
    let mut totals: Vec<Window> = groups.iter().map(|_| Window::new()).collect();
    std::thread::scope(|scope| -> Result<()> {
        let stops = Stops(&stop);
        let mut clients = Vec::new();
        for number in 0..groups.len() as u32 * steady.clients {
            let group = &groups[(number / steady.clients) as usize];
            let fs = open(connector)?;
            let (stop, first_error) = (&stop, &first_error);
            clients.push(scope.spawn(move || {
                let client = Client { fs, group, number, keeps, epoch: (begin, began), stop, first_error };
                if group.to.is_empty() {
                    client.change()
                } else {
                    client.rename()
                }
                client.fs.mount().close();
            }));
        }
        for second in 1..=steady.seconds {
            let due = begin + Duration::from_secs(second);
            while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                std::thread::park_timeout(left);
            }
            let (at, mut lines) = (now(), Vec::new());
            for ((group, name), total) in groups.iter().zip(&steady.groups).zip(&mut totals) {
                let window = std::mem::replace(&mut *lock(&group.window), Window::new());
                total.ops += window.ops;
                total.latencies.add(&window.latencies)?;
                total.errors += window.errors;
                lines.push(Second::of(at, name, &window));
                if let Some(file) = &mut calls {
                    window.calls.iter().try_for_each(|call| file.write_all(call.line(name).as_bytes()))?;
                }
            }
            // Whoever ends this process has the calls of all seconds that were told.
            calls.as_mut().map_or(Ok(()), BufWriter::flush)?;
            lines.iter().for_each(&mut told);
            result.seconds.append(&mut lines);
        }
        drop(stops);
        for client in clients {
            if client.join().is_err() {
                bail!("a client panicked");
            }
        }
        Ok(())
    })?;
    let at = now();
    result.all = totals.iter().zip(&steady.groups).map(|(total, name)| Second::of(at, name, total)).collect();
    result.first_error = lock(&first_error).take();
    Ok(())
}

/// Tells the clients that it is over, also when something fails: they are waited for.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One session and what it works on.
struct Client<'a> {
    fs: Fs,
    group: &'a Group,
    number: u32,
    /// Each call is kept.
    keeps: bool,
    /// The same time on both clocks.
    epoch: (Instant, f64),
    stop: &'a AtomicBool,
    first_error: &'a Mutex<Option<String>>,
}

impl Client<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Makes a call, and counts it.
    fn call(&self, request: Request) -> Option<proto::reply::Reply> {
        let kind = request.kind();
        let begin = Instant::now();
        let outcome = self.fs.mount().call(Cred::ROOT, request);
        let took = begin.elapsed();
        let mut window = lock(&self.group.window);
        window.latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
        if self.keeps {
            let began = self.epoch.1 + begin.duration_since(self.epoch.0).as_secs_f64();
            let failed = outcome.as_ref().err().copied();
            window.calls.push(Call { began, took, client: self.number, kind: kind.name(), failed });
        }
        match outcome {
            Ok(reply) => {
                window.ops += 1;
                Some(reply)
            }
            Err(errno) => {
                window.errors += 1;
                drop(window);
                lock(self.first_error).get_or_insert_with(|| format!("{}: {errno}", kind.name()));
                None
            }
        }
    }

    fn name(&self, i: u64) -> Option<Name> {
        Name::new(format!("f{:04}.{i:014}", self.number).as_bytes()).ok()
    }

    fn create(&self, parent: NodeRef, i: u64) -> Option<(NodeRef, Name)> {
        let name = self.name(i)?;
        let new = NewNode { mode: FILE, umask: 0o022, rdev: 0 };
        let reply = self.call(Request::MkNod { parent, name: name.clone(), new })?;
        Some((crate::link::Link::node(&reply), name))
    }

    /// Files are made in directories that chance decides, asked for, and removed when there are many.
    fn change(&self) {
        let mut prng = Prng::new(u64::from(self.number) + 1);
        let mut young: VecDeque<(NodeRef, Name)> = VecDeque::new();
        // A run that was ended leaves names behind, which this one does not meet.
        let mut i = (self.epoch.1 * 1e6) as u64;
        while self.goes_on() {
            let parent = self.group.dirs[prng.below(self.group.dirs.len() as u64) as usize];
            if let Some((node, name)) = self.create(parent, i) {
                self.call(Request::GetAttr { node });
                young.push_back((parent, name));
            }
            if young.len() > YOUNG
                && let Some((parent, name)) = young.pop_front()
            {
                self.call(Request::Unlink { parent, name });
            }
            i += 1;
        }
        for (parent, name) in young {
            // Nobody measures any more.
            let _counted = self.fs.mount().call(Cred::ROOT, Request::Unlink { parent, name });
        }
    }

    /// Files go to the other directory and back by turns.
    fn rename(&self) {
        let at = |dirs: &[NodeRef], i: u64| dirs[(i % dirs.len() as u64) as usize];
        let files: Vec<(u64, Name)> = (0..YOUNG as u64)
            .filter_map(|i| {
                let parent = at(&self.group.dirs, i);
                let name = self.name(i)?;
                let new = NewNode { mode: FILE, umask: 0o022, rdev: 0 };
                let made = Request::MkNod { parent, name: name.clone(), new };
                // One that was left behind by a run before will do.
                match self.fs.mount().call(Cred::ROOT, made) {
                    Ok(_) | Err(Errno::EEXIST) => Some((i, name)),
                    Err(errno) => {
                        lock(&self.group.window).errors += 1;
                        lock(self.first_error)
                            .get_or_insert_with(|| format!("{name:?} of the load: {errno}"));
                        None
                    }
                }
            })
            .collect();
        let mut forth = true;
        while self.goes_on() && !files.is_empty() {
            for (i, name) in files.iter().take_while(|_| self.goes_on()) {
                let (from, to) = (at(&self.group.dirs, *i), at(&self.group.to, *i));
                let (parent, new_parent) = if forth { (from, to) } else { (to, from) };
                let (name, new_name) = (name.clone(), name.clone());
                self.call(Request::Rename { parent, name, new_parent, new_name, flags: 0 });
            }
            forth = !forth;
        }
        // Nobody measures any more. Where the last turn ended, the files are in either.
        for (i, name) in files {
            for parent in [at(&self.group.dirs, i), at(&self.group.to, i)] {
                let _gone = self.fs.mount().call(Cred::ROOT, Request::Unlink { parent, name: name.clone() });
            }
        }
    }
}
