//! The process behind a mount: opens the data folder or connects to a server, puts the adapter on the mount
//! point, and ends in order: kernel first, then the session, then the server.
//!
//! Absent: the person's side (`mount.rs`).

use crate::output::Output;
use crate::problem::{Exit, Problem, Verdict, chain, plain};
use crate::source::Source;
use crate::verbs::mount::{self, Plan};
use crate::{admin, daemon, mount_log, mounts, place};
use ::mount::{Fs, Mount, MountError, Settings};
use fuse::Unmount;
use fuse::adapter::{Adapter, Behaviour};
use proto::caps::Bits;
use proto::message::ClientInfo;
use proto::{Cred, Errno, FileKind, Ino};
use runtime::log::{Log, LogOptions};
use runtime::port::{Connector, PortError};
use runtime::process::{self, Endings};
use runtime::{Addr, Config, SocketConnector};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a server whose own mount is gone looks whether others still use it.
const GUEST_CHECK: Duration = Duration::from_millis(200);

/// How long a server may take to say its name. The mount stands without it.
const NAME_TIME: Duration = Duration::from_secs(2);

/// How long a server may take to open a session before we look whether it is still there.
const FIRST_TRY: Duration = Duration::from_secs(2);

/// A mount that stands.
struct LiveMount {
    kernel_mount: Arc<fuse::KernelMount>,
    mount: Arc<Mount>,
    served: Option<place::Served>,
    log: Arc<Log>,
    /// Where it is.
    at: String,
    /// What the person is told.
    word: Value,
}

/// In the background: tells the parent by one line, then serves until the end.
///
/// # Errors
/// Told to the parent, too.
pub fn as_daemon(plan: &Plan, conf_file: Option<&Path>) -> Verdict {
    // Fails only if this process leads a group already, and then it has no terminal to leave.
    let _led_already = process::leave_terminal();
    match stand(plan, conf_file) {
        Ok(live) => {
            daemon::stands(&live.word);
            serve_until_end(live)
        }
        Err(problem) => {
            daemon::fails(&problem);
            Ok(problem.code)
        }
    }
}

/// In the foreground (`-f`).
///
/// # Errors
/// Those of `mount`.
pub fn in_foreground(plan: &Plan, conf_file: Option<&Path>, out: &Output) -> Verdict {
    let live = stand(plan, conf_file)?;
    mount::report(plan, Path::new(&live.at), &live.word, out);
    serve_until_end(live)
}

fn stand(plan: &Plan, conf_file: Option<&Path>) -> Result<LiveMount, Problem> {
    // Before any thread starts: threads inherit what is held back.
    let endings = Endings::hold().map_err(|error| Problem::io("signals", &error))?;
    process::raise_file_limit();
    let mountpoint = mounts::resolve(&plan.mountpoint);
    let config = mount::config(plan, conf_file)?;
    let info = ClientInfo {
        host: process::host_name(),
        mount: mounts::shown(&mountpoint),
        pid: std::process::id(),
        caps_max: plan.options.caps_max,
    };
    let Reached { mount, source, served, log } = reach(plan, &config, &info)?;
    // What it is limited to is its root already.
    let subdir = mount::subdir(&plan.options, &plan.named).filter(|_| !plan.options.limited);
    let adapter = Adapter::new(Arc::clone(&mount), subdir, behaviour(plan))
        .map_err(|errno| not_a_root(plan, subdir.unwrap_or("/"), errno))?;
    let kernel = plan.options.config(&source.to_string());
    // From here on the kernel may wait for us: nothing below touches the mount point itself.
    let _elsewhere = std::env::set_current_dir("/");
    let kernel_mount = fuse::mount(&mountpoint, &kernel, Arc::clone(&adapter))
        .map_err(|error| explain_fuse(plan, &error))?;
    adapter.comes_over(kernel_mount.transport());
    let kernel_mount = Arc::new(kernel_mount);
    end_on_signal(endings, Arc::clone(&kernel_mount), (Arc::clone(&log), info.mount.clone()));
    let client = mount_log::client(mount.session());
    log.info("mount", "mounted", &[("at", &info.mount), ("client", &client), ("source", &source)]);
    let word = word(served.as_ref(), &source);
    Ok(LiveMount { kernel_mount, mount, served, log, at: info.mount, word })
}

/// What the person is told. The name of a file system that another process serves is its server's to tell.
fn word(served: Option<&place::Served>, source: &Source) -> Value {
    let mut word = json!({"pid": std::process::id(), "created": false, "name": "pandofs"});
    if let Some(served) = served {
        word["created"] = served.created.into();
        word["name"] = served.name.clone().into();
        word["fsid"] = served.fsid.clone().into();
    } else if let Ok(status) = admin::ask(source, &json!({"cmd": "status"}), NAME_TIME) {
        for key in ["name", "fsid"].into_iter().filter(|key| status[*key].is_string()) {
            word[key] = status[key].clone();
        }
    }
    word
}

fn not_a_root(plan: &Plan, place: &str, errno: Errno) -> Problem {
    let why = plain(&std::io::Error::from_raw_os_error(errno.0));
    Problem::new(Exit::Failed, format!("{place} in {}: {why}", plan.named))
        .do_this("name a directory of the file system")
}

/// The number of the directory to which the session is to be limited: a session before it, which asks for nothing else, looks for it.
fn limit(
    plan: &Plan,
    connector: &Arc<dyn Connector>,
    info: &ClientInfo,
    settings: &Settings,
) -> Result<Ino, Problem> {
    let Some(path) = mount::limit(&plan.options, &plan.named) else { return Ok(Ino::NONE) };
    let settings = Settings { wants: Bits::NONE, ..settings.clone() };
    let mount = Mount::open_with(Arc::clone(connector), info.clone(), settings)
        .map_err(|error| explain_mount(plan, &error))?;
    let found = Fs::new(Arc::clone(&mount), Cred::ROOT).stat(path);
    mount.close();
    match found {
        Ok(attr) if attr.kind() == FileKind::Directory => Ok(attr.ino),
        Ok(_) => Err(not_a_root(plan, path, Errno::ENOTDIR)),
        Err(errno) => Err(not_a_root(plan, path, errno)),
    }
}

/// What a node of the kernel's takes here, with what belongs to it.
const NODE_BYTES: u64 = 200;

/// The kernel forgets when the machine's memory is short, and knows nothing of the limit of a cgroup that only this process is in: it is
/// asked to forget before its nodes take more than a quarter of what there is.
fn behaviour(plan: &Plan) -> Behaviour {
    let behaviour = plan.options.behaviour();
    let room = || runtime::memory::memory_bytes().map_or(0, |bytes| bytes / 4 / NODE_BYTES);
    let nodes_max = plan.options.client_cache_size.unwrap_or_else(|| usize::try_from(room()).unwrap_or(0));
    Behaviour { nodes_max, ..behaviour }
}

fn open_log(plan: &Plan, config: &Config) -> Result<Arc<Log>, Problem> {
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let file = plan.log.as_ref().map(absolute);
    let options = LogOptions { file, format: config.log_format, level: Some(config.log_level) };
    Log::open(options).map(Arc::new).map_err(|error| {
        let place = plan.log.as_ref().map_or_else(|| "log".into(), |log| log.display().to_string());
        Problem::io(place, &error).do_this("name a file you may write: `-o log=FILE`")
    })
}

/// A session, and the server if it is ours.
struct Reached {
    mount: Arc<Mount>,
    /// Absolute: what the kernel's table shows.
    source: Source,
    served: Option<place::Served>,
    log: Arc<Log>,
}

/// Opens a session. A folder that was served when we looked may be let go meanwhile (umount(8) returns before the
/// daemon ends): then it is ours to serve.
fn reach(plan: &Plan, config: &Config, info: &ClientInfo) -> Result<Reached, Problem> {
    // Before the parent's patience, so that it hears why.
    let until = Instant::now() + plan.timeout * 7 / 8;
    let (Source::Folder(_), Some(socket)) = (&plan.named, attached(plan)) else {
        return open_session(plan, &plan.source, plan.timeout, until, config, info);
    };
    match open_session(plan, &plan.source, plan.timeout.min(FIRST_TRY), until, config, info) {
        Err(problem) if problem.code != Exit::Unreachable as u8 => Err(problem),
        Err(_) if !admin::is_alive(socket) => {
            open_session(plan, &plan.named, plan.timeout, until, config, info)
        }
        Err(_) => open_session(plan, &plan.source, plan.timeout, until, config, info),
        reached => reached,
    }
}

/// The socket that a folder has become.
fn attached(plan: &Plan) -> Option<&Path> {
    match &plan.source {
        Source::Unix(socket) => Some(socket),
        Source::Folder(_) | Source::Tcp { .. } => None,
    }
}

fn open_session(
    plan: &Plan,
    source: &Source,
    open_timeout: Duration,
    until: Instant,
    config: &Config,
    info: &ClientInfo,
) -> Result<Reached, Problem> {
    let (connector, served, log) = connect(plan, source, until, config)?;
    // What a kernel keeps; and where the rank is far away, and nobody asked to be answered when changes are durable, directories
    // and files to work in without asking.
    let early = !connector.ends_with_rank() && !plan.options.behaviour().sync_names;
    // Without opens nobody grants file data.
    let pages = if plan.options.no_open { Bits::NONE } else { Bits::FC };
    let works = if early { Bits::DX.with(Bits::ALONE) } else { Bits::NONE };
    let wants = Bits::ATTRS.with(pages).with(works);
    let settings =
        Settings { recover_clean: plan.options.recover_clean, open_timeout, wants, ..Settings::default() };
    let settings = Settings { limit: limit(plan, &connector, info, &settings)?, ..settings };
    let mount =
        Mount::open_with(connector, info.clone(), settings).map_err(|error| explain_mount(plan, &error))?;
    mount_log::follow(&mount, &log, &info.mount);
    Ok(Reached { mount, source: source.clone().absolute(), served, log })
}

type Connected = (Arc<dyn Connector>, Option<place::Served>, Arc<Log>);

fn connect(plan: &Plan, source: &Source, until: Instant, config: &Config) -> Result<Connected, Problem> {
    let addr = match source {
        Source::Folder(dir) => {
            let served = place::serve((dir, place::By::Mount), config, plan.may_create, &[], false, until)
                .map_err(place::may_not_create)?;
            let log = Arc::clone(&served.log);
            return Ok((served.server.embedded(), Some(served), log));
        }
        // Absolute: the daemon leaves this directory and connects again from elsewhere.
        Source::Unix(path) => Addr::Unix(path.canonicalize().unwrap_or_else(|_| path.clone())),
        Source::Tcp { hosts, .. } => first_that_answers(hosts),
    };
    let log = open_log(plan, config)?;
    let at = mounts::resolve(&plan.mountpoint);
    log.info("mount", "connecting", &[("at", &mounts::shown(&at)), ("to", &addr)]);
    Ok((Arc::new(SocketConnector::new(addr)), None, log))
}

/// Of several hosts the first that takes a connection; if none does, the first, so that the error names it.
fn first_that_answers(hosts: &[(String, u16)]) -> Addr {
    let name = |(host, port): &(String, u16)| {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    };
    let answers = |host: &&(String, u16)| std::net::TcpStream::connect((host.0.as_str(), host.1)).is_ok();
    let chosen = if hosts.len() > 1 { hosts.iter().find(answers) } else { None };
    Addr::Tcp(chosen.or_else(|| hosts.first()).map_or_else(String::new, name))
}

fn explain_mount(plan: &Plan, error: &MountError) -> Problem {
    match error {
        MountError::Unreachable { source: PortError::Unreachable { source, .. }, .. } => {
            let problem = Problem::new(Exit::Unreachable, format!("{}: {}", plan.named, plain(source)));
            Problem { step: plan.named.advice(source), ..problem }
        }
        MountError::Unreachable { .. } | MountError::TimedOut { .. } => {
            Problem::new(Exit::Unreachable, chain(error))
        }
        MountError::Refused { .. } => Problem::new(Exit::Refused, chain(error)),
        other => Problem::failed(&plan.named, chain(other)),
    }
}

/// The texts (docs/CLI.md) for what the kernel refuses.
fn explain_fuse(plan: &Plan, error: &fuse::MountError) -> Problem {
    let place = plan.mountpoint.display();
    match error {
        fuse::MountError::NoDevice(_) => mount::no_device(),
        fuse::MountError::NotPermitted { message } => {
            Problem::new(Exit::Refused, format!("{place}: {message}"))
        }
        fuse::MountError::StaleEndpoint { .. } => mount::dead(&plan.mountpoint),
        fuse::MountError::AlreadyMounted { .. } => {
            Problem::new(Exit::State, format!("{place} is already a PandoFS mount"))
                .do_this(format!("`pando umount {place}`"))
        }
        fuse::MountError::NoHelper(_) => Problem::new(Exit::Failed, "fusermount3: cannot be run")
            .do_this("`apt-get install fuse3`, or mount as root"),
        other => Problem::failed(place, chain(other)),
    }
}

/// SIGTERM takes the mount away; the main thread sees it go and ends everything in order.
fn end_on_signal(endings: Endings, kernel_mount: Arc<fuse::KernelMount>, (log, at): (Arc<Log>, String)) {
    std::thread::spawn(move || {
        while let Ok(signal) = endings.wait() {
            log.info("mount", "ending", &[("at", &at), ("signal", &signal)]);
            // Busy: out of the tree now, gone when the last file is closed. A second signal does not wait.
            if kernel_mount.unmount(Unmount::Plain).is_err() && kernel_mount.unmount(Unmount::Lazy).is_err() {
                let _gone = kernel_mount.unmount(Unmount::Force);
            }
        }
    });
}

fn serve_until_end(live: LiveMount) -> Verdict {
    let LiveMount { kernel_mount, mount, served, log, at, .. } = live;
    let ended = kernel_mount.wait();
    let client = mount_log::client(mount.session());
    if let Err(error) = &ended {
        log.error(
            "mount",
            "the kernel's connection failed",
            &[("at", &at), ("client", &client), ("why", error)],
        );
    }
    mount.close();
    log.info("mount", "unmounted", &[("at", &at), ("client", &client)]);
    if let Some(served) = served {
        served.end_with_last_client();
        wait_for_guests(&served);
        served.stop()?;
    }
    match ended {
        Ok(()) => Ok(0),
        Err(error) => Err(Problem::io("the kernel's connection", &error)),
    }
}

/// Other mounts attached to this server keep it alive.
fn wait_for_guests(served: &place::Served) {
    while served.clients() > 0 {
        std::thread::sleep(GUEST_CHECK);
    }
}
