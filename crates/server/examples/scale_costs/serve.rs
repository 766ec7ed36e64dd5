//! The server that is measured: a process of its own on one CPU, and what is read of it.
//!
//! Absent: its load.

use proto::cluster::SLOTS;
use proto::message::ClientMsg;
use runtime::Log;
use runtime::addr::Addr;
use runtime::config::DirPrefetch;
use serde_json::{Value, json};
use server::{Server, ServerOptions};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use stdx::Wall;
use store::folder::{FormatOptions, format};

use crate::host::Link;
use std::time::Duration;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Serves until its input ends.
pub(crate) fn serve(
    dir: &Path,
    cache_mib: u64,
    journal_mib: u64,
    prefetch: &str,
    ranks: u16,
) -> Result<(), Box<dyn Error>> {
    if std::fs::read_dir(dir)?.next().is_none() {
        format(dir, &FormatOptions::new(Wall(1)))?;
    }
    let mut options =
        ServerOptions { log: Arc::new(Log::silent()), ranks: Some(ranks), ..Default::default() };
    options.config.mds_cache_memory_limit = cache_mib << 20;
    options.config.journal_size = journal_mib << 20;
    // On a busy machine a checkpoint takes longer than leases usually do.
    options.config.session_timeout = 600;
    options.config.mds_dir_prefetch =
        if prefetch == "keyed" { DirPrefetch::Keyed } else { DirPrefetch::Auto };
    // Each rank has a CPU, and nothing moves.
    options.config.mds_rank_affinity = ranks > 1;
    (options.config.mds_bal_split_rd, options.config.mds_bal_split_wr) = (0, 0);
    let server = Server::open(dir, &options)?;
    if ranks > 1 {
        set(&server, "max_mds", &ranks.to_string())?;
        set(&server, "placement", "hash")?;
        while !settled(&server, ranks) {
            std::thread::park_timeout(PAUSE);
        }
    }
    server.listen(&[socket(dir)])?;
    println!("serves");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop()?;
    Ok(())
}

fn set(server: &Arc<Server>, key: &str, value: &str) -> Result<(), Box<dyn Error>> {
    let answer = server.admin(&json!({ "cmd": "fs set", "key": key, "value": value }));
    if answer["ok"] == true { Ok(()) } else { Err(answer.to_string().into()) }
}

/// Whether all ranks serve, each with the same part of the slots.
fn settled(server: &Arc<Server>, ranks: u16) -> bool {
    let answer = server.admin(&json!({ "cmd": "fs get" }));
    let map = &answer["result"]["mdsmap"];
    let active = map["info"]
        .as_object()
        .map_or(0, |info| info.values().filter(|daemon| daemon["state"] == "up:active").count());
    let least = u64::from(SLOTS / ranks);
    let rests = |of: &&Value| of["moving"] == 0 && of["slots"].as_u64().is_some_and(|slots| slots >= least);
    let resting = map["slots"].as_array().map_or(0, |slots| slots.iter().filter(rests).count());
    active >= ranks.into() && resting >= ranks.into()
}

fn socket(dir: &Path) -> Addr {
    Addr::Unix(dir.with_extension("sock"))
}

/// A running server.
pub(crate) struct Served {
    child: Child,
    dir: PathBuf,
    ranks: u16,
    admin: Link,
    asked: u64,
}

/// What a server has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub(crate) cpu_ns: u64,
    /// The same by the names of its threads, without their numbers.
    pub(crate) threads: BTreeMap<String, u64>,
    /// Of the process that loads it.
    pub(crate) load_ns: u64,
    pub(crate) turns: u64,
    /// Of clients, and of other ranks.
    pub(crate) requests: u64,
    pub(crate) commits: u64,
    pub(crate) journal_bytes: u64,
    /// Parts of directories that went to the store.
    pub(crate) batches: u64,
    pub(crate) loads: u64,
    /// Times that a worker brought what it had read.
    pub(crate) load_batches: u64,
    pub(crate) checkpoints: u64,
    pub(crate) dirty: u64,
}

impl Served {
    /// Starts one on that CPU.
    pub(crate) fn start(
        dir: &Path,
        cpu: &str,
        cache_mib: u64,
        journal_mib: u64,
        prefetch: &str,
        ranks: u16,
    ) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new("taskset")
            .args(["-c", cpu])
            .arg(std::env::current_exe()?)
            .arg("serve")
            .arg(dir)
            .args([&cache_mib.to_string(), &journal_mib.to_string(), prefetch, &ranks.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let admin = Link::guest(&socket(dir))?;
        Ok(Self { child, dir: dir.to_owned(), ranks, admin, asked: 0 })
    }

    pub(crate) fn connect(&self) -> Result<Link, Box<dyn Error>> {
        Link::open(&socket(&self.dir), self.ranks)
    }

    /// Asks the driver.
    pub(crate) fn admin(&mut self, command: &str) -> Result<Value, Box<dyn Error>> {
        self.asked += 1;
        let command = json!({ "cmd": command }).to_string();
        let answer = self.admin.ask(ClientMsg::Admin { id: self.asked, command })?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        if answer["ok"] != true {
            return Err(answer.to_string().into());
        }
        Ok(answer["result"].take())
    }

    pub(crate) fn done(&mut self) -> Result<Done, Box<dyn Error>> {
        let dump = self.admin("perf dump")?;
        let of = |room: &str, name: &str| dump[room][name].as_u64().unwrap_or_default();
        let threads = cpu_ns(self.child.id())?;
        Ok(Done {
            cpu_ns: threads.values().sum(),
            threads,
            load_ns: cpu_ns(std::process::id())?.values().sum(),
            turns: of("driver", "turns"),
            requests: of("mds", "request"),
            commits: of("driver", "journal_commits"),
            journal_bytes: of("driver", "journal_bytes"),
            batches: of("driver", "store_batches"),
            loads: of("driver", "loads"),
            load_batches: of("driver", "load_batches"),
            checkpoints: of("rank", "checkpoints"),
            dirty: of("rank", "dirty"),
        })
    }

    /// Everything is in the store. That may take longer than the leases of those who wait.
    pub(crate) fn settle(&mut self, links: &[Link]) -> Result<(), Box<dyn Error>> {
        let before = self.done()?.checkpoints;
        self.admin("checkpoint")?;
        loop {
            let done = self.done()?;
            if done.checkpoints > before && done.dirty == 0 {
                return Ok(());
            }
            if done.checkpoints > before {
                self.admin("checkpoint")?;
            }
            links.iter().try_for_each(Link::renew)?;
            std::thread::park_timeout(PAUSE);
        }
    }

    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.admin);
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// What all threads of a process have run for. Those that have ended are not in it: a server's do not end while it serves, but for
/// those that read a cold store before a write.
fn cpu_ns(pid: u32) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let mut sums = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?.path();
        // One that ends now is not there any more.
        let Ok(text) = std::fs::read_to_string(task.join("schedstat")) else { continue };
        let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
        *sums.entry(name.to_owned()).or_default() +=
            text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sums)
}
