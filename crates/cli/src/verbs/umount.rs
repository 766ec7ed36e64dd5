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
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a daemon may take for its last checkpoint before we stop waiting (it goes on).
const LAST_CHECKPOINT: Duration = Duration::from_secs(60);

/// How long a server may take to say who uses it.
const STATUS_TIME: Duration = Duration::from_secs(2);

/// Runs the verb.
///
/// # Errors
/// Exit 5: not mounted, busy; exit 4: not permitted.
pub fn run(args: &Umount, out: &Output) -> Verdict {
    let named = args.mountpoint.as_path();
    let mount = mounts::at(named).ok_or_else(|| no_mount(named))?;
    let how = match (args.force, args.lazy) {
        (true, _) => Unmount::Force,
        (_, true) => Unmount::Lazy,
        _ => Unmount::Plain,
    };
    let behind = Behind::of(&mount);
    leave(&mount.path);
    fuse::unmount(&mount.path, how).map_err(|error| explain(&error, &mount, named))?;
    if how == Unmount::Plain {
        behind.wait_for_end(out);
    }
    out.result("", json!({"unmounted": mounts::shown(&mount.path)}));
    Ok(0)
}

/// From inside the mount it would be we who keep it busy. From elsewhere we stay: whoever calls this as a step
/// of more (`demo`) has relative paths.
fn leave(mount: &Path) {
    if std::env::current_dir().is_ok_and(|here| !here.starts_with(mount)) {
        return;
    }
    let _stays_inside = std::env::set_current_dir("/");
}

fn no_mount(named: &Path) -> Problem {
    Problem::new(Exit::State, format!("{}: not a PandoFS mount", named.display()))
        .do_this("`findmnt -t fuse.pando` lists the mounts")
}

fn explain(error: &UnmountError, mount: &mounts::Mounted, named: &Path) -> Problem {
    let place = named.display();
    match error {
        UnmountError::Busy => {
            let others =
                busy::holders(&mount.path, named).into_iter().filter(|h| h.pid != std::process::id());
            let inner = mounts::below(&mount.path);
            let inner =
                inner.iter().map(|point| named.join(point.strip_prefix(&mount.path).unwrap_or(point)));
            let why = Busy {
                inner: inner.map(|point| mounts::shown(&point)).collect(),
                holders: others.map(|holder| holder.to_string()).collect(),
                server: unreachable(&mount.source),
            };
            why.problem(&mounts::shown(named))
        }
        UnmountError::NotMounted => no_mount(named),
        UnmountError::NotPermitted { .. } => {
            Problem::new(Exit::Refused, format!("{place}: not permitted: mounted by another user"))
        }
        other => Problem::failed(place, chain(other)),
    }
}

/// Why a mount is busy, as far as it can be seen.
#[derive(Default)]
struct Busy {
    /// Mount points inside, as the person names the mount.
    inner: Vec<String>,
    holders: Vec<String>,
    /// Why its server does not answer, with its place.
    server: Option<String>,
}

impl Busy {
    fn problem(&self, place: &str) -> Problem {
        let step = match (&self.server, self.inner.as_slice()) {
            // A process that waits for the server holds the mount and shows it nowhere; ending it would not help.
            (Some(_), _) => format!(
                "start its server again, or `pando umount --force {place}`: what waits for it fails then"
            ),
            (None, []) => format!("end them, or `pando umount --lazy {place}`"),
            (None, [.., last]) => {
                format!("`umount {last}` first, or `pando umount --lazy {place}` with all in it")
            }
        };
        let inner = self.inner.iter().map(|point| format!("{point} (mounted in it)"));
        let server = self.server.iter().map(|why| format!("its server is gone or not reachable ({why})"));
        let mut who: Vec<String> = inner.chain(self.holders.iter().cloned()).chain(server).collect();
        if who.is_empty() {
            who.push("by a process that cannot be seen".into());
        }
        Problem::new(Exit::State, format!("{place}: busy: {}", who.join(", "))).do_this(step)
    }
}

/// Why the server of a mount's source does not answer; `None` if it does.
fn unreachable(source: &str) -> Option<String> {
    let source = Source::parse(source).ok()?;
    let refused = admin::ask(&source, &json!({"cmd": "status"}), STATUS_TIME).err()?;
    (refused.code == Exit::Unreachable as u8).then_some(refused.what)
}

/// The process behind a mount, if its server is on this host and says so.
#[must_use]
pub fn daemon_of(mount: &mounts::Mounted) -> Option<u32> {
    let path = mounts::shown(&mount.path);
    let clients = clients(&Source::parse(&mount.source).ok()?)?;
    clients.iter().find(|client| client.is_at(&path) && client.is_here()).map(|client| client.pid)
}

/// A client as its server knows it.
struct Client {
    host: String,
    mount: String,
    pid: u32,
}

impl Client {
    /// A server keeps the beginning of a long path, and three dots.
    fn is_at(&self, path: &str) -> bool {
        self.mount == path || self.mount.strip_suffix("...").is_some_and(|start| path.starts_with(start))
    }

    fn is_here(&self) -> bool {
        self.host == runtime::process::host_name()
    }
}

fn clients(server: &Source) -> Option<Vec<Client>> {
    let answer = admin::ask(server, &json!({"cmd": "client ls"}), STATUS_TIME).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let read = |client: &Value| Client {
        host: text(&client["host"]),
        mount: text(&client["mount"]),
        pid: client["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
    };
    Some(answer["clients"].as_array()?.iter().map(read).collect())
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

/// The processes behind a mount, as they were before it went.
struct Behind {
    /// The client's; the server's own process if the mount is embedded.
    daemon: Option<u32>,
    /// The server and its process, if it is on this machine.
    server: Option<(Source, u32)>,
}

/// What became of the server.
#[derive(Debug, PartialEq, Eq)]
enum After {
    Gone,
    /// It will end, or has not noticed yet that the mount is gone.
    Ending,
    /// Its own mount went, and so many others use it.
    Serves(usize),
    /// It serves on its own account: `pando serve`, or a mount that stands.
    Stays,
}

impl Behind {
    fn of(mount: &mounts::Mounted) -> Self {
        let source = Source::parse(&mount.source).ok().filter(|source| source.socket().is_some());
        let server = source.and_then(|source| {
            let answer = admin::ask(&source, &json!({"cmd": "status"}), STATUS_TIME).ok()?;
            let pid = answer["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())?;
            Some((source, pid))
        });
        Self { daemon: daemon_of(mount).filter(|pid| *pid > 0), server }
    }

    fn wait_for_end(&self, out: &Output) {
        let start = Instant::now();
        let mut told = false;
        loop {
            let pid = match (self.after(), &self.server) {
                (After::Gone | After::Stays, _) => return,
                (After::Serves(count), Some((_, pid))) => {
                    let s = if count == 1 { "" } else { "s" };
                    return out.say(&format!("pid {pid} goes on serving for {count} client{s}"));
                }
                (_, Some((_, pid))) => *pid,
                (_, None) => self.daemon.unwrap_or(0),
            };
            if start.elapsed() > LAST_CHECKPOINT {
                return out
                    .say(&format!("unmounted; its daemon (pid {pid}) still writes its last checkpoint"));
            }
            if !told && start.elapsed() > Duration::from_secs(2) {
                out.say(&format!(
                    "unmounted; waiting for its daemon (pid {pid}) to write its last checkpoint"
                ));
                told = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn after(&self) -> After {
        let server = self.server.as_ref().map(|(_, pid)| *pid);
        let own = self.daemon.is_some() && self.daemon == server;
        if !own && self.daemon.is_some_and(|pid| !is_gone(pid)) {
            return After::Ending;
        }
        let Some((source, pid)) = &self.server else { return After::Gone };
        if is_gone(*pid) {
            return After::Gone;
        }
        // No answer: its doors are closed, or it was ended by others meanwhile, which the next look sees.
        let Ok(status) = admin::ask(source, &json!({"cmd": "status"}), STATUS_TIME) else {
            return After::Ending;
        };
        let Some(clients) = clients(source) else { return After::Ending };
        let ours = |client: &&Client| Some(client.pid) == self.daemon && client.is_here();
        let leaving = clients.iter().filter(ours).count();
        judge(&status, *pid, own, leaving, clients.len() - leaving)
    }
}

/// `own`: the mount that went was the server's own. `leaving`: sessions of ours that it still counts.
fn judge(status: &Value, pid: u32, own: bool, leaving: usize, others: usize) -> After {
    if status["pid"].as_u64() != Some(u64::from(pid)) {
        return After::Gone;
    }
    match status["ends_with_last_client"] == true {
        true if leaving == 0 && others > 0 => After::Serves(others),
        true => After::Ending,
        false if own => After::Ending,
        false => After::Stays,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_mount_busy_decides_what_to_do() {
        let text = |busy: Busy| busy.problem("./mnt").text("umount");
        let (inner, holders) = (vec!["./mnt/in".to_string()], vec!["sh (pid 7, cwd)".to_string()]);
        assert_eq!(
            text(Busy::default()),
            "pando umount: ./mnt: busy: by a process that cannot be seen\n  \
                do: end them, or `pando umount --lazy ./mnt`\n"
        );
        assert_eq!(
            text(Busy { inner, holders: holders.clone(), server: None }),
            "pando umount: ./mnt: busy: ./mnt/in (mounted in it), sh (pid 7, cwd)\n  \
                do: `umount ./mnt/in` first, or `pando umount --lazy ./mnt` with all in it\n"
        );
        let server = unreachable("unix:/nowhere/pando.sock");
        let problem = Busy { server, ..Busy::default() }.problem("./mnt");
        assert_eq!(problem.code, 5);
        assert_eq!(
            problem.text("umount"),
            "pando umount: ./mnt: busy: its server is gone or not reachable \
                (unix:/nowhere/pando.sock: no such file or directory)\n  \
                do: start its server again, or `pando umount --force ./mnt`: what waits for it fails then\n"
        );
    }

    #[test]
    fn what_is_waited_for() {
        let plain = json!({"pid": 7});
        let last = json!({"pid": 7, "ends_with_last_client": true});
        let cases = [
            (&plain, true, 1, 1, After::Ending),
            (&last, true, 1, 1, After::Ending),
            (&last, true, 0, 2, After::Serves(2)),
            (&last, false, 0, 0, After::Ending),
            (&plain, false, 0, 1, After::Stays),
        ];
        for (status, own, leaving, others, after) in cases {
            assert_eq!(judge(status, 7, own, leaving, others), after, "{status} {own} {leaving} {others}");
        }
        assert_eq!(judge(&last, 8, true, 0, 1), After::Gone, "another took the folder over");
    }
}
