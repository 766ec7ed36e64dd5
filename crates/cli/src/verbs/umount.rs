//! `pando umount`: takes a mount away, says who keeps it busy, and waits until its daemon has let go of the
//! data folder, so that the next command may use it.
//!
//! Absent: unmounting what is not ours.

use crate::args::Umount;
use crate::output::Output;
use crate::problem::{Exit, Problem, Verdict, chain};
use crate::source::Source;
use crate::{admin, busy, mounts};
use fuse::{Unmount, UnmountError};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a daemon may take for its last checkpoint before we stop waiting (it goes on).
const LAST_CHECKPOINT: Duration = Duration::from_secs(60);

/// Runs the verb.
///
/// # Errors
/// Exit 5: not mounted, busy; exit 4: not permitted.
pub fn run(args: &Umount, out: &Output) -> Verdict {
    let named = args.mountpoint.as_path();
    let place = named.display();
    let mount = mounts::at(named)
        .ok_or_else(|| Problem::new(Exit::State, format!("{place}: not a PandoFS mount")))?;
    let how = match (args.force, args.lazy) {
        (true, _) => Unmount::Force,
        (_, true) => Unmount::Lazy,
        _ => Unmount::Plain,
    };
    let daemon = daemon_of(&mount);
    fuse::unmount(&mount.path, how).map_err(|error| explain(&error, &mount.path, named))?;
    if how == Unmount::Plain {
        wait_for_end(daemon, out);
    }
    out.result("", json!({"unmounted": mounts::shown(&mount.path)}));
    Ok(0)
}

fn explain(error: &UnmountError, path: &Path, named: &Path) -> Problem {
    let place = named.display();
    match error {
        UnmountError::Busy => {
            let holders: Vec<String> = busy::holders(path, named).iter().map(ToString::to_string).collect();
            let who = if holders.is_empty() {
                "by a process that cannot be seen".into()
            } else {
                holders.join(", ")
            };
            Problem::new(Exit::State, format!("{place}: busy: {who}"))
                .do_this(format!("end them, or `pando umount --lazy {place}`"))
        }
        UnmountError::NotMounted => Problem::new(Exit::State, format!("{place}: not a PandoFS mount")),
        UnmountError::NotPermitted { .. } => {
            Problem::new(Exit::Refused, format!("{place}: not permitted: mounted by another user"))
        }
        other => Problem::failed(place, chain(other)),
    }
}

/// The process behind a mount, if its server is on this host and says so.
#[must_use]
pub fn daemon_of(mount: &mounts::Mounted) -> Option<u32> {
    let source = Source::parse(&mount.source).ok()?;
    let answer = admin::ask(&source, &json!({"cmd": "client ls"}), Duration::from_secs(2)).ok()?;
    let path = mounts::shown(&mount.path);
    let clients = answer.get("clients").and_then(|list| list.as_array())?;
    let client = clients.iter().find(|client| client["mount"] == *path)?;
    client["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0)
}

/// A process is gone, or waits only to be reaped.
fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => true,
    }
}

/// Waits until a process that was killed is gone, but not for ever.
pub fn wait_until_gone(pid: u32, at_most: Duration) {
    let start = Instant::now();
    while !is_gone(pid) && start.elapsed() < at_most {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn wait_for_end(daemon: Option<u32>, out: &Output) {
    let Some(pid) = daemon else { return };
    let start = Instant::now();
    let mut told = false;
    while !is_gone(pid) && !serves_others(pid) {
        if start.elapsed() > LAST_CHECKPOINT {
            out.say(&format!("unmounted; its daemon (pid {pid}) still writes its last checkpoint"));
            return;
        }
        if !told && start.elapsed() > Duration::from_secs(2) {
            out.say(&format!("unmounted; waiting for its daemon (pid {pid}) to write its last checkpoint"));
            told = true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the daemon still carries another mount or serves other clients: then it is not about to end.
fn serves_others(pid: u32) -> bool {
    mounts::ours().iter().any(|mount| {
        let Ok(source) = Source::parse(&mount.source) else { return false };
        let answer = admin::ask(&source, &json!({"cmd": "status"}), Duration::from_secs(2));
        answer.is_ok_and(|answer| answer["pid"].as_u64() == Some(u64::from(pid)))
    })
}
