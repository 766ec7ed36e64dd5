//! The server that is measured: a process of its own on one CPU, and what is read of it.
//!
//! Absent: its load.

use proto::message::ClientMsg;
use runtime::Log;
use runtime::addr::Addr;
use runtime::config::DirPrefetch;
use serde_json::{Value, json};
use server::{Server, ServerOptions};
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use stdx::Wall;
use store::folder::{FormatOptions, format};

use crate::host::Link;

/// Serves until its input ends.
pub(crate) fn serve(
    dir: &Path,
    cache_mib: u64,
    journal_mib: u64,
    prefetch: &str,
) -> Result<(), Box<dyn Error>> {
    if std::fs::read_dir(dir)?.next().is_none() {
        format(dir, &FormatOptions::new(Wall(1)))?;
    }
    let mut options = ServerOptions { log: Arc::new(Log::silent()), ranks: Some(1), ..Default::default() };
    options.config.mds_cache_memory_limit = cache_mib << 20;
    options.config.journal_size = journal_mib << 20;
    options.config.mds_dir_prefetch =
        if prefetch == "keyed" { DirPrefetch::Keyed } else { DirPrefetch::Auto };
    let server = Server::open(dir, &options)?;
    server.listen(&[socket(dir)])?;
    println!("serves");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop()?;
    Ok(())
}

fn socket(dir: &Path) -> Addr {
    Addr::Unix(dir.with_extension("sock"))
}

/// A running server.
pub(crate) struct Served {
    child: Child,
    dir: PathBuf,
    admin: Link,
    asked: u64,
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) cpu_ns: u64,
    /// Of the process that loads it.
    pub(crate) load_ns: u64,
    pub(crate) turns: u64,
    pub(crate) commits: u64,
    pub(crate) loads: u64,
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
    ) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new("taskset")
            .args(["-c", cpu])
            .arg(std::env::current_exe()?)
            .arg("serve")
            .arg(dir)
            .args([&cache_mib.to_string(), &journal_mib.to_string(), prefetch])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let admin = Link::guest(&socket(dir))?;
        Ok(Self { child, dir: dir.to_owned(), admin, asked: 0 })
    }

    pub(crate) fn connect(&self) -> Result<Link, Box<dyn Error>> {
        Link::open(&socket(&self.dir))
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
        Ok(Done {
            cpu_ns: cpu_ns(self.child.id())?,
            load_ns: cpu_ns(std::process::id())?,
            turns: of("driver", "turns"),
            commits: of("driver", "journal_commits"),
            loads: of("driver", "loads"),
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
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
    }

    pub(crate) fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.admin);
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// What all threads of a process have run for. Those that have ended are not in it: a server's do not end while it serves.
fn cpu_ns(pid: u32) -> Result<u64, Box<dyn Error>> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that ends now is not there any more.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
        sum += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sum)
}
