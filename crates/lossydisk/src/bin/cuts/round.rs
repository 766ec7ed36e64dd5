//! One round: disk, server, load, cut, and the check at the start of the next.
//!
//! Absent: the model's rules.

use crate::model::{Content, Promise};
use anyhow::{Context, Result, bail, ensure};
use bench::link::Link;
use proto::reply::Reply;
use proto::request::{NewNode, Request};
use proto::storeio::Payload;
use proto::{Errno, Name, NodeRef, SetAttr};
use runtime::{Addr, SocketConnector};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use stdx::Prng;

const CLIENTS: usize = 3;
const NAMES: u64 = 24;
/// Files cross the boundary between packed and block files.
const FILE_BYTES_MAX: u64 = 160_000;

/// How long a server whose disk is gone may go on talking; it ends all its answers with an error at once.
const LIVES_ON: Duration = Duration::from_millis(300);

/// The program under test and its configuration file.
pub(crate) struct Tools {
    pub(crate) pando: PathBuf,
    pub(crate) conf: Option<PathBuf>,
}

/// Runs all rounds; the answer is a line about what was cut.
pub(crate) fn run(tools: &Tools, base: &Path, rounds: u64, seed: u64) -> Result<String> {
    let mut dice = Prng::new(seed);
    let mut promises = vec![Promise::default(); CLIENTS];
    let mut operations = 0;
    for round in 0..rounds {
        let mut place = Place::start(tools, base, round == 0)
            .with_context(|| format!("start of round {round} of seed {seed}"))?;
        operations +=
            place.load(&mut promises, &mut dice).with_context(|| format!("round {round} of seed {seed}"))?;
        place.cut(dice.next_u64())?;
        fsck(&tools.pando, base).with_context(|| format!("after the cut of round {round} of seed {seed}"))?;
    }
    let mut place = Place::start(tools, base, false)?;
    for (client, promise) in promises.iter_mut().enumerate() {
        check(&place.connector()?, client, promise)
            .with_context(|| format!("after the last round, seed {seed}"))?;
    }
    place.cut(0)?;
    Ok(format!("{operations} acknowledged operations, none lost"))
}

fn fsck(pando: &Path, base: &Path) -> Result<()> {
    let out = Command::new(pando).arg("fsck").arg(base.join("disk/fs")).output()?;
    ensure!(
        out.status.success(),
        "fsck: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(())
}

/// The processes of one round. Dropped, they are ended and the mount is removed.
struct Place<'a> {
    base: &'a Path,
    disk: Child,
    server: Option<Child>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        for child in self.server.iter_mut().chain([&mut self.disk]) {
            // Already gone is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new("umount").arg("-l").arg(self.base.join("mnt")).stderr(Stdio::null()).status();
    }
}

impl<'a> Place<'a> {
    fn start(tools: &Tools, base: &'a Path, first: bool) -> Result<Self> {
        for folder in ["disk", "mnt"] {
            std::fs::create_dir_all(base.join(folder))?;
        }
        let program = std::env::current_exe()?.with_file_name("lossydisk");
        let mut disk = Command::new(&program)
            .args([base.join("disk"), base.join("mnt")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let mut line = String::new();
        let out = disk.stdout.as_mut().context("no output of the disk")?;
        BufReader::with_capacity(1, out).read_line(&mut line)?;
        let mut place = Self { base, disk, server: None };
        ensure!(line.trim() == "mounted", "the lossy disk did not mount");
        let fs = base.join("mnt/fs");
        if first {
            let status = Command::new(&tools.pando).arg("format").arg(&fs).stdout(Stdio::null()).status()?;
            ensure!(status.success(), "format failed: {status}");
        }
        let socket = format!("unix:{}", base.join("sock").display());
        let mut server = Command::new(&tools.pando);
        server.arg("serve").arg(&fs).args(["--listen", &socket]);
        if let Some(conf) = &tools.conf {
            server.arg("--conf").arg(conf);
        }
        let server =
            server.stdout(Stdio::null()).stderr(std::fs::File::create(base.join("server.err"))?).spawn()?;
        place.server = Some(server);
        place.wait_for_socket()?;
        Ok(place)
    }

    fn connector(&self) -> Result<SocketConnector> {
        let addr = Addr::parse(&format!("unix:{}", self.base.join("sock").display()))?;
        Ok(SocketConnector::new(addr))
    }

    fn wait_for_socket(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if Link::open(&self.connector()?).is_ok() {
                return Ok(());
            }
            let server = self.server.as_mut().context("no server")?;
            if let Some(status) = server.try_wait()? {
                bail!(
                    "the server ended with {status}: {}",
                    std::fs::read_to_string(self.base.join("server.err"))?
                );
            }
            ensure!(
                Instant::now() < deadline,
                "the server does not answer; its threads and the disk's wait in: {} | {}",
                threads(server.id()),
                threads(self.disk.id())
            );
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Checks the last round's promises, then works until the time is up. Returns how many operations were acknowledged.
    fn load(&mut self, promises: &mut [Promise], dice: &mut Prng) -> Result<u64> {
        let connector = self.connector()?;
        let time = Duration::from_millis(dice.range(100, 500));
        let seeds: Vec<u64> = promises.iter().map(|_| dice.next_u64()).collect();
        let (disk, server) = (&mut self.disk, &mut self.server);
        // Any moment, or the one between the sync of a file and that of its name.
        let moment = if dice.chance(1, 2) { "cut" } else { "cut-before-name" };
        let cut_seed = dice.next_u64();
        std::thread::scope(|scope| {
            let mut workers = Vec::new();
            // On a busy machine the checks may take longer than the load: the power stays on for them.
            let (checking, checked) = std::sync::mpsc::channel::<()>();
            for (client, promise) in promises.iter_mut().enumerate() {
                let (connector, seed, checking) = (&connector, seeds[client], checking.clone());
                workers.push(scope.spawn(move || -> Result<u64> {
                    check(connector, client, promise)?;
                    drop(checking);
                    Ok(work(connector, client, promise, &mut Prng::new(seed)))
                }));
            }
            drop(checking);
            // Ends when each client has checked, or failed to.
            checked.iter().for_each(drop);
            std::thread::park_timeout(time);
            // The disk is cut under load: whatever is acknowledged before it must hold.
            let cut = disk
                .stdin
                .as_mut()
                .context("no input of the disk")
                .and_then(|input| writeln!(input, "{moment} {cut_seed}").context("cannot order the cut"));
            let ended = disk.wait();
            // The server lives on for a while: what it still calls durable would be a lie, and must not be told.
            let deadline = Instant::now() + LIVES_ON;
            while workers.iter().any(|worker| !worker.is_finished()) && Instant::now() < deadline {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            if let Some(server) = server {
                server.kill()?;
                server.wait()?;
            }
            let mut operations = 0;
            for worker in workers {
                operations += worker.join().unwrap_or_else(|_| bail!("a client panicked"))?;
            }
            cut?;
            ensure!(
                ended?.success(),
                "the lossy disk could not cut: what it left is no state a disk can be in"
            );
            Ok(operations)
        })
    }

    /// Ends the round: for a round without load, cuts; the rest is `Drop`'s.
    fn cut(&mut self, seed: u64) -> Result<()> {
        if self.disk.try_wait()?.is_none() {
            writeln!(self.disk.stdin.as_mut().context("no input of the disk")?, "cut {seed}")?;
            self.disk.wait()?;
        }
        Ok(())
    }
}

/// Where the threads of a process are in the kernel.
fn threads(pid: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return "gone".to_owned() };
    let place = |task: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        format!("{}: {}", read("comm").trim(), read("wchan").trim())
    };
    tasks.flatten().map(place).collect::<Vec<_>>().join(", ")
}

fn folder(link: &mut Link, client: usize) -> Result<NodeRef> {
    let (parent, name) = (NodeRef::bare(link.root), Name::new(format!("client-{client}").as_bytes())?);
    let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
    match link.batch([Request::MkDir { parent, name: name.clone(), new }])?.pop() {
        Some(Ok(reply)) => Ok(Link::node(&reply)),
        Some(Err(Errno::EEXIST)) => Ok(Link::node(&link.call(Request::Lookup { parent, name })?)),
        other => bail!("cannot make the folder of client {client}: {other:?}"),
    }
}

/// Reads everything and compares it with what was promised.
fn check(connector: &SocketConnector, client: usize, promise: &mut Promise) -> Result<()> {
    let mut link = Link::open(connector)?;
    let dir = folder(&mut link, client)?;
    let mut found = BTreeMap::new();
    let mut after = 2;
    loop {
        let page = link.call(Request::ReadDir { dir, after, attrs: true, bytes_max: 65_536 })?;
        let Reply::Entries { entries, end } = page else { bail!("no listing: {page:?}") };
        for entry in entries {
            after = entry.hash.cookie();
            let node = NodeRef { ino: entry.ino, parent: dir.ino, hash: entry.hash };
            let mut bytes = Vec::new();
            loop {
                let reply =
                    link.call(Request::Read { node, offset: bytes.len() as u64, len: 65_536, into: None })?;
                let Reply::Data(Payload::Owned(piece)) = reply else { bail!("no data: {reply:?}") };
                if piece.is_empty() {
                    break;
                }
                bytes.extend(piece);
            }
            found.insert(String::from_utf8_lossy(&entry.name).into_owned(), bytes);
        }
        if end {
            break;
        }
    }
    promise.check(found).with_context(|| format!("client {client}"))
}

/// Works until the connection is lost. Before each request the state it may lead to is noted, after its answer it is certain.
fn work(connector: &SocketConnector, client: usize, promise: &mut Promise, dice: &mut Prng) -> u64 {
    let Ok(mut link) = Link::open(connector) else { return 0 };
    let Ok(dir) = folder(&mut link, client) else { return 0 };
    let mut operations = 0;
    while step(&mut link, dir, promise, dice).is_ok() {
        operations += 1;
    }
    operations
}

fn step(link: &mut Link, dir: NodeRef, promise: &mut Promise, dice: &mut Prng) -> Result<()> {
    let name = format!("f{}", dice.below(NAMES));
    let wire = Name::new(name.as_bytes())?;
    if !promise.sure.contains_key(&name) {
        let new = NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
        return act(link, promise, Request::MkNod { parent: dir, name: wire, new }, |folder| {
            folder.insert(name, Content::default());
        });
    }
    match dice.below(10) {
        0 => act(link, promise, Request::Unlink { parent: dir, name: wire }, |folder| {
            folder.remove(&name);
        }),
        1 => {
            let other = format!("f{}", dice.below(NAMES));
            let new_name = Name::new(other.as_bytes())?;
            let request = Request::Rename { parent: dir, name: wire, new_parent: dir, new_name, flags: 0 };
            act(link, promise, request, |folder| {
                if let Some(content) = folder.remove(&name) {
                    folder.insert(other, content);
                }
            })
        }
        2 => {
            let node = Link::node(&link.call(Request::Lookup { parent: dir, name: wire })?);
            let size = dice.below(promise.sure.get(&name).map_or(0, |c| c.bytes.len() as u64) + 1);
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            act(link, promise, Request::SetAttr { node, set }, |folder| {
                if let Some(content) = folder.get_mut(&name) {
                    content.cut(size as usize);
                }
            })
        }
        _ => {
            let node = Link::node(&link.call(Request::Lookup { parent: dir, name: wire })?);
            write_and_sync(link, promise, dice, &name, node)
        }
    }
}

fn write_and_sync(
    link: &mut Link,
    promise: &mut Promise,
    dice: &mut Prng,
    name: &str,
    node: NodeRef,
) -> Result<()> {
    let len = if dice.chance(1, 8) { dice.below(FILE_BYTES_MAX / 2) } else { dice.below(6_000) } + 1;
    let offset = if dice.chance(1, 2) { 0 } else { dice.below(FILE_BYTES_MAX / 2) };
    let fill = (dice.below(255) + 1) as u8;
    let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add((i / 512) as u8) | 1).collect();
    let request = Request::Write {
        node,
        offset,
        append: false,
        kill_suidgid: false,
        data: Payload::Owned(data.clone()),
    };
    act(link, promise, request, |folder| {
        if let Some(content) = folder.get_mut(name) {
            content.write(offset as usize, &data);
        }
    })?;
    if dice.chance(1, 4) {
        return Ok(());
    }
    act(link, promise, Request::Fsync { node, data_only: false }, |folder| {
        if let Some(content) = folder.get_mut(name) {
            content.sync();
        }
    })
}

fn act(
    link: &mut Link,
    promise: &mut Promise,
    request: Request,
    change: impl FnOnce(&mut BTreeMap<String, Content>),
) -> Result<()> {
    let mut next = promise.sure.clone();
    change(&mut next);
    promise.maybe = Some(next);
    let mut line = format!("{request:?}");
    line.truncate(200);
    let reply = link.call(request)?;
    line += &format!(" -> {reply:?}");
    line.truncate(420);
    promise.told.push(line);
    if let Some(next) = promise.maybe.take() {
        promise.sure = next;
    }
    Ok(())
}
