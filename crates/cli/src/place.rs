//! A data folder and the server on it, with every refusal in the words people are promised.
//!
//! Absent: layouts and locks (crate `store`), serving (crate `server`).

use crate::problem::{Exit, Problem, chain};
use crate::source::Source;
use crate::{discover, mounts};
use proto::storeio::StoreError;
use runtime::http::Page;
use runtime::log::{Log, LogOptions};
use runtime::{Addr, Config, ListenError};
use serde_json::{Value, json};
use server::{Server, ServerError, ServerOptions};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use stdx::Wall;
use store::folder::{self, Folder, FolderError, FormatOptions, Found};

/// How long ranks may take to serve.
const RANKS_MAX_WAIT: Duration = Duration::from_secs(60);
/// How often a folder whose holder is ending is tried.
const ENDING_CHECK: Duration = Duration::from_millis(20);

/// A server that stands, with what its verb tells about it.
pub struct Served {
    pub server: Arc<Server>,
    pub log: Arc<Log>,
    pub name: String,
    /// The file system's id, whole.
    pub fsid: String,
    pub created: bool,
    pub addrs: Vec<Addr>,
    /// `HOST:PORT` of the metrics page.
    pub metrics: Option<String>,
    /// The link under which commands find it.
    link: Option<PathBuf>,
}

/// Makes a file system; its name and its id.
///
/// # Errors
/// The folder's refusals.
pub fn format(dir: &Path, options: &FormatOptions) -> Result<(String, String), Problem> {
    let record = folder::format(dir, options).map_err(|error| explain(&error))?;
    let id = folder::full_id(&record);
    Ok((record.name, id))
}

/// The usual choices of a format, now.
#[must_use]
pub fn format_options() -> FormatOptions {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Whoever makes a file system can use it.
    let owner = runtime::process::effective_ids();
    FormatOptions { owner, ..FormatOptions::new(Wall(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))) }
}

/// Who serves a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The process of a mount.
    Mount,
    /// `pando serve` with so many slots for ranks.
    Server { ranks: u16 },
}

/// Opens a folder and serves it at its own socket and at `listen`. With `may_create` an empty or absent
/// folder becomes a file system first. A holder that is ending is waited for until `until`.
///
/// # Errors
/// The folder's and the server's refusals.
pub fn serve(
    (dir, by): (&Path, By),
    config: &Config,
    may_create: bool,
    listen: &[Addr],
    insecure: bool,
    until: Instant,
) -> Result<Served, Problem> {
    let found = folder::inspect(dir).map_err(|error| explain(&error))?;
    // Before a file system is made that would not be served.
    let mut page = config.metrics.as_ref().map(|at| listen_for_metrics(at));
    // A server of this folder that was killed may have the place until the system has cleared it away, as it may have the folder.
    let complete = matches!(found, Found::Complete(_));
    let retried = page.take_if(|page| complete && page.is_err());
    let mut no_page = page.take_if(|page| page.is_err() && !config.metrics_must);
    let mut page = page.transpose()?;
    let created = may_create && !complete;
    if created {
        format(dir, &format_options())?;
    }
    let Found::Complete(record) = folder::inspect(dir).map_err(|error| explain(&error))? else {
        // Says which: absent or half formatted.
        return Err(Folder::open(dir).map_or_else(|error| explain(&error), |_| changed(dir)));
    };
    // Before its log: that it cannot be written would be only a consequence.
    folder::check_writable(dir).map_err(|error| explain(&error))?;
    // Daemons leave the current directory.
    let named = dir;
    let dir = dir.canonicalize().map_err(|error| Problem::io(dir.display(), &error))?;
    let log = open_log(&dir, config)?;
    let ranks = match by {
        By::Mount => None,
        By::Server { ranks } => Some(ranks),
    };
    let options = ServerOptions { config: config.clone(), log: Arc::clone(&log), insecure, ranks };
    let server = loop {
        match Server::open(&dir, &options) {
            // Its mount may be gone from the tree for long: it still writes its last checkpoint.
            Err(ServerError::Folder(FolderError::InUse { ending: true, .. })) if Instant::now() < until => {
                std::thread::sleep(ENDING_CHECK);
            }
            opened => break opened.map_err(|error| explain_server(named, error))?,
        }
    };
    if let (Some(_), Some(at)) = (retried, &config.metrics) {
        match listen_for_metrics(at) {
            Ok(listener) => page = Some(listener),
            Err(problem) if config.metrics_must => {
                server.stop().map_err(|error| Problem::new(Exit::Failed, chain(&error)))?;
                return Err(problem);
            }
            failed => no_page = Some(failed),
        }
    }
    let own = Addr::Unix(dir.join(folder::SOCKET));
    let wanted: Vec<Addr> = std::iter::once(own).chain(listen.iter().cloned()).collect();
    let addrs = server.listen(&wanted).map_err(|error| explain_listen(&error))?;
    if let Some(Err(problem)) = no_page {
        log.warn(
            "metrics",
            "no page: another server of this host may have its place",
            &[("why", &problem.what)],
        );
    }
    let metrics = page.map(|listener| server.metrics(listener)).transpose();
    let metrics = metrics.map_err(|error| Problem::io("metrics", &error))?;
    let fsid = folder::full_id(&record);
    let link = discover::announce(&folder::short_id(&record), &dir.join(folder::SOCKET));
    Ok(Served { server, log, name: record.name, fsid, created, addrs, metrics, link })
}

/// Where a metrics page is to be.
///
/// # Errors
/// Exit 2.
pub fn metrics(text: &str) -> Result<String, Problem> {
    runtime::addr::metrics_place(text).ok_or_else(|| {
        Problem::new(Exit::Usage, format!("metrics {text}: not HOST or HOST:PORT"))
            .do_this("127.0.0.1:7421, for example")
    })
}

fn listen_for_metrics(at: &str) -> Result<TcpListener, Problem> {
    Page::listen(at).map_err(|error| {
        Problem::io(format!("metrics at {at}"), &error)
            .do_this("name another place: `--metrics`, `-o metrics=`, or `metrics` in pando.toml")
    })
}

/// Opens a folder for this process alone: no socket, nobody else comes.
///
/// # Errors
/// The folder's and the server's refusals.
pub fn open_unheard(dir: &Path, config: &Config) -> Result<Arc<Server>, Problem> {
    let options = ServerOptions { config: config.clone(), ..ServerOptions::default() };
    Server::open_whole(dir, &options).map_err(|error| explain_server(dir, error))
}

/// The same with so many active ranks; returns when all serve.
///
/// # Errors
/// The folder's, the server's and the coordinator's refusals.
pub fn open_ranks(dir: &Path, config: &Config, ranks: u16) -> Result<Arc<Server>, Problem> {
    let options = ServerOptions { config: config.clone(), ranks: Some(ranks), ..ServerOptions::default() };
    let server = Server::open(dir, &options).map_err(|error| explain_server(dir, error))?;
    let wanted = json!({"cmd": "fs set", "key": "max_mds", "value": ranks.to_string()});
    let answer = server.admin(&wanted);
    if answer["ok"] != true {
        return Err(Problem::new(Exit::State, format!("{}: {answer}", dir.display())));
    }
    let until = Instant::now() + RANKS_MAX_WAIT;
    while active(&server) < ranks.into() {
        if Instant::now() > until {
            return Err(Problem::new(Exit::Failed, format!("{}: not all ranks serve", dir.display())));
        }
        std::thread::park_timeout(ENDING_CHECK);
    }
    Ok(server)
}

/// How many ranks are.
fn active(server: &Arc<Server>) -> usize {
    let answer = server.admin(&json!({"cmd": "fs get"}));
    let info = answer["result"]["mdsmap"]["info"].as_object();
    info.map_or(0, |info| info.values().filter(|daemon| daemon["state"] == "up:active").count())
}

fn changed(dir: &Path) -> Problem {
    Problem::new(Exit::State, format!("{}: changed while it was looked at", dir.display()))
}

fn open_log(dir: &Path, config: &Config) -> Result<Arc<Log>, Problem> {
    let file = config.log_file.clone().unwrap_or_else(|| dir.join("log/pando.log"));
    let place = file.display().to_string();
    let options = LogOptions { file: Some(file), format: config.log_format, level: Some(config.log_level) };
    Log::open(options).map(Arc::new).map_err(|error| {
        Problem::io(place, &error)
            .do_this("name a file you may write: `-o log=FILE`, or `log_file` in pando.toml")
    })
}

impl Served {
    /// Sessions that are open.
    #[must_use]
    pub fn clients(&self) -> usize {
        let answer = self.server.admin(&json!({"cmd": "client ls"}));
        answer["result"]["clients"].as_array().map_or(0, Vec::len)
    }

    /// From now on the server ends when its last client leaves.
    pub fn end_with_last_client(&self) {
        self.server.end_with_last_client();
    }

    /// Ends in order.
    ///
    /// # Errors
    /// The last checkpoint could not be written; nothing acknowledged is lost.
    pub fn stop(self) -> Result<(), Problem> {
        if let Some(link) = &self.link {
            let _another_took_it = std::fs::remove_file(link);
        }
        self.server.stop().map_err(|error| Problem::new(Exit::Failed, chain(&error)))
    }
}

/// For a mount that may not create a file system: that there is one, before anything is made or missed for it.
///
/// # Errors
/// The folder's refusals.
pub fn expect_file_system(dir: &Path) -> Result<(), Problem> {
    let found = folder::inspect(dir).map_err(|error| explain(&error))?;
    if matches!(found, Found::Complete(_)) {
        return Ok(());
    }
    // Says which: absent or half formatted.
    Folder::open(dir).map(drop).map_err(|error| may_not_create(explain(&error)))
}

/// A refusal of a mount that may not create one.
#[must_use]
pub fn may_not_create(mut problem: Problem) -> Problem {
    if problem.what.ends_with("holds no file system") {
        problem.what.push_str(" and this mount may not create one");
    }
    problem
}

/// For verbs that want a data folder which is one already: to choose an empty one would be no help. `command` is what
/// was meant, with DIR for the folder.
///
/// # Errors
/// It is a mount point, or holds other things.
pub fn expect_existing(dir: &Path, command: &str) -> Result<(), Problem> {
    let shown = mounts::shown(dir);
    if let Some(mount) = mounts::at(dir) {
        let (what, step) = match data_folder(&mount.source) {
            Some(data) => {
                let data = mounts::shown(&data);
                let step = format!("`pando {}`", command.replace("DIR", &data));
                (format!("{shown} is a mount; the data folder is {data}"), step)
            }
            None => {
                (format!("{shown} is a mount of {}", mount.source), "name its server's data folder".into())
            }
        };
        return Err(Problem::new(Exit::State, what).do_this(step));
    }
    match folder::inspect(dir) {
        Err(FolderError::Strangers { .. }) => {
            Err(Problem::new(Exit::State, format!("{shown} holds no file system"))
                .do_this("name a data folder: `pando.fs` lies in it"))
        }
        _ => Ok(()),
    }
}

/// The data folder behind a mount's source, if it is one of this machine.
fn data_folder(source: &str) -> Option<PathBuf> {
    let folder = match Source::parse(source).ok()? {
        Source::Folder(dir) => dir,
        // Perhaps by its link in /run/pando.
        Source::Unix(socket) => socket.canonicalize().ok()?.parent()?.to_path_buf(),
        Source::Tcp { .. } => return None,
    };
    matches!(folder::inspect(&folder), Ok(Found::Complete(_))).then_some(folder)
}

/// A folder's refusal.
#[must_use]
pub fn explain(error: &FolderError) -> Problem {
    let exit = match error {
        FolderError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => Exit::Refused,
        FolderError::Damaged { .. } | FolderError::Store(StoreError::Damaged { .. }) => Exit::Refused,
        FolderError::Io { .. } | FolderError::Store(_) | FolderError::TooSmall { .. } => Exit::Failed,
        _ => Exit::State,
    };
    let what = match error {
        FolderError::Absent { dir } => format!("{} holds no file system", dir.display()),
        other => chain(other),
    };
    Problem { step: error.remedy(), ..Problem::new(exit, what) }
}

/// `dir`: as the person wrote it.
fn explain_server(dir: &Path, error: ServerError) -> Problem {
    match error {
        ServerError::Folder(FolderError::InUse { pid, host, ending, .. }) => {
            explain(&FolderError::InUse { dir: dir.into(), pid, host, ending })
        }
        ServerError::Folder(error @ FolderError::Store(_)) => {
            let Problem { code, what, step } = explain(&error);
            Problem { code, what: format!("{}: {what}", dir.display()), step }
        }
        ServerError::Folder(error) => explain(&error),
        ServerError::Closed => Problem::new(Exit::State, format!("{}: {error}", dir.display())).do_this(
            format!("`pando serve {0}`, then `pando fs joinable FS --cluster {0}`", mounts::shown(dir)),
        ),
        ServerError::SeveralRanks(ranks) => {
            let place = mounts::shown(dir);
            Problem::new(Exit::State, format!("{}: {error}", dir.display()))
                .do_this(format!("`pando serve {place} --ranks {ranks}`, and mount unix:{place}/pando.sock"))
        }
        ServerError::Damaged(what) => Problem::new(Exit::Refused, format!("{}: {what}", dir.display()))
            .do_this(format!("`pando fsck {}`", mounts::shown(dir))),
        ServerError::Store(error @ StoreError::Damaged { .. }) => {
            Problem::new(Exit::Refused, format!("{}: {}", dir.display(), chain(&error)))
                .do_this(format!("`pando fsck {}`", mounts::shown(dir)))
        }
        other => Problem::failed(dir.display(), chain(&other)),
    }
}

pub fn explain_listen(error: &ListenError) -> Problem {
    match error {
        ListenError::Insecure { at } => insecure(at),
        // Another server has the address, or a file its name.
        ListenError::Io { source, .. }
            if matches!(source.kind(), ErrorKind::AddrInUse | ErrorKind::AlreadyExists) =>
        {
            Problem::new(Exit::State, chain(error)).do_this("name another address, or stop who has this one")
        }
        other => Problem::new(Exit::Failed, chain(other)),
    }
}

/// The golden text for TCP without TLS.
#[must_use]
pub fn insecure(at: &str) -> Problem {
    Problem::new(Exit::Refused, format!("{at}: refusing to listen without TLS")).do_this(
        "`--tls-cert`/`--tls-key`, or `--insecure` on a trusted network (any TCP, loopback too); \
         TLS is not in this version: `--insecure`, or a unix socket",
    )
}

/// The first digits of a whole id, for people.
#[must_use]
pub fn short(fsid: &str) -> &str {
    fsid.split('-').next().unwrap_or(fsid)
}

/// For JSON results.
#[must_use]
pub fn created_json(name: &str, fsid: &str, dir: &Path) -> Value {
    json!({"name": name, "fsid": fsid, "dir": mounts::shown(dir), "format": proto::fsrecord::FORMAT})
}
