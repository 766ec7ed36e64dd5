//! `pando mount`: checks what can be checked, starts the daemon, and returns when the mount answers.
//!
//! Absent: the daemon's own work (`mounted.rs`), mount(8)'s manners (`helper.rs`).

use crate::args::Mount;
use crate::daemon::Failure;
use crate::output::{Output, write_out};
use crate::problem::{Exit, Problem, Verdict};
use crate::source::Source;
use crate::verbs::{mounted, umount};
use crate::{ANSWER_TIME, admin, conf, daemon, mounts, overlap, place};
use fuse::adapter::Options;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is to be mounted where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// As the person wrote it.
    pub named: Source,
    /// Where the server is found: an embedded folder that is served already has become its socket.
    pub source: Source,
    pub mountpoint: PathBuf,
    pub options: Options,
    pub may_create: bool,
    pub log: Option<PathBuf>,
    pub timeout: Duration,
}

/// Runs the verb.
///
/// # Errors
/// Those of docs/CLI.md; the texts are golden.
pub fn run(args: &Mount, conf_file: Option<&Path>, out: &Output) -> Verdict {
    let mut plan = plan(args)?;
    if matches!(plan.source, Source::Folder(_)) && plan.options.log.is_none() {
        plan.log = config(&plan, conf_file)?.log_file.or(plan.log);
    }
    if args.daemon {
        return mounted::as_daemon(&plan, conf_file);
    }
    let made = prepare(&plan, out)?;
    let stands = if args.foreground {
        mounted::in_foreground(&plan, conf_file, out).map_err(Failure::from)
    } else {
        in_background(args, &plan, conf_file, out)
    };
    stands.map_err(|failure| taken_back(failure, &made))
}

fn in_background(args: &Mount, plan: &Plan, conf_file: Option<&Path>, out: &Output) -> Result<u8, Failure> {
    let word = daemon::start(&daemon_args(args, conf_file), plan.log.as_deref(), plan.timeout)?;
    first_look(plan)?;
    report(plan, &mounts::resolve(&plan.mountpoint), &word, out);
    Ok(0)
}

/// Takes back the folders that were made for a mount that did not come to be; a daemon that goes on may mount there yet.
fn taken_back(failure: Failure, made: &[PathBuf]) -> Problem {
    if !failure.goes_on {
        remove_empty(made);
    }
    failure.problem
}

fn remove_empty(made: &[PathBuf]) {
    for folder in made {
        let _used_meanwhile = std::fs::remove_dir(folder);
    }
}

/// Reads the places and options.
///
/// # Errors
/// Exit 2.
pub fn plan(args: &Mount) -> Result<Plan, Problem> {
    let usage = |why: String| Problem::new(Exit::Usage, why).do_this("`pando mount --help`");
    let (source, mountpoint) = match (args.places.as_slice(), &args.data) {
        ([source, mountpoint], None) => (source.as_str(), mountpoint),
        ([mountpoint], Some(data)) => (data.as_str(), mountpoint),
        ([_], None) => return Err(usage("SOURCE and MNT are wanted".into())),
        _ => return Err(usage("SOURCE is given twice".into())),
    };
    let options = Options::parse(&args.options).map_err(|why| usage(why.to_string()))?;
    let named = match (&args.data, Source::parse(source).map_err(usage)?) {
        (Some(data), _) => Source::Folder(data.into()),
        (None, source) => source,
    };
    let timeout = options.mount_timeout.unwrap_or(args.timeout).max(1);
    let source = match named.socket().filter(|socket| is_served(socket)) {
        Some(socket) => Source::Unix(socket),
        None => named.clone(),
    };
    if options.limited && limit(&options, &named).is_none() {
        return Err(usage("mount option limited: to a directory, which subdir=PATH names".into()));
    }
    if let Some(at) = &options.metrics {
        place::metrics(at)?;
        if !matches!(source, Source::Folder(_)) {
            let what = format!("metrics={at}: the server of {named} is another process");
            return Err(Problem::new(Exit::State, what).do_this("`pando serve DIR --metrics HOST:PORT`"));
        }
    }
    if options.no_open && matches!(source, Source::Unix(_)) && !runtime::process::is_root() {
        // The server judges for itself who may read and write, and remembers it of what was opened.
        let what =
            format!("mount option noopen: only root may have it of {named}, which another process serves");
        return Err(Problem::new(Exit::Refused, what).do_this("mount without it"));
    }
    if let Some(log) = &options.log {
        expect_folder_of(Path::new(log))?;
    }
    // A log has one writer: that of the folder is its server's.
    let log = options.log.as_ref().map(PathBuf::from).or_else(|| log_of(&source));
    Ok(Plan {
        source,
        named,
        mountpoint: mountpoint.into(),
        may_create: !options.nocreate,
        options,
        log,
        timeout: Duration::from_secs(timeout),
    })
}

/// The directory that is mounted as the root, if one is named.
pub fn subdir<'a>(options: &'a Options, named: &'a Source) -> Option<&'a str> {
    let of_source = match named {
        Source::Tcp { subdir, .. } => subdir.as_deref(),
        Source::Folder(_) | Source::Unix(_) => None,
    };
    options.subdir.as_deref().or(of_source)
}

/// The directory to which the session is to be limited, if it is. The root is no limit.
pub fn limit<'a>(options: &'a Options, named: &'a Source) -> Option<&'a str> {
    let is_below = |path: &&str| path.split('/').any(|part| !part.is_empty() && part != ".");
    subdir(options, named).filter(|_| options.limited).filter(is_below)
}

/// A log that is named goes where there is a folder: one that was mistyped, or whose disk is not mounted, would be made.
fn expect_folder_of(log: &Path) -> Result<(), Problem> {
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            let what = format!("mount option log: {}: its folder is not there", log.display());
            Err(Problem::new(Exit::State, what).do_this(format!("`mkdir -p {}`", mounts::shown(folder))))
        }
        _ => Ok(()),
    }
}

/// Whether a server will answer on the socket. One that was just killed takes connections until the system has cleared it
/// away; asked for something it breaks them, and then nobody is there. One that is only slow still takes them after that.
fn is_served(socket: &Path) -> bool {
    let status = json!({"cmd": "status"});
    admin::is_alive(socket)
        && (admin::ask(&Source::Unix(socket.to_path_buf()), &status, ANSWER_TIME).is_ok()
            || admin::is_alive(socket))
}

/// An embedded server logs into its folder; another mount into the user's log folder.
fn log_of(source: &Source) -> Option<PathBuf> {
    if let Source::Folder(dir) = source {
        return Some(dir.join("log/pando.log"));
    }
    let system = PathBuf::from("/var/log/pando/mount.log");
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state/pando/mount.log"));
    if runtime::process::is_root() { Some(system) } else { own }
}

/// What must hold before a daemon is started. Returns the folders that were made for it, the lowest first.
fn prepare(plan: &Plan, out: &Output) -> Result<Vec<PathBuf>, Problem> {
    let place = plan.mountpoint.display();
    if let Some(mount) = mounts::at(&plan.mountpoint) {
        if !mounts::is_dead(&mount.path) {
            let who = umount::daemon_of(&mount).map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let what = format!("{place} is already a PandoFS mount{who}");
            return Err(Problem::new(Exit::State, what).do_this(format!("`pando umount {place}`")));
        }
        let same = Source::parse(&mount.source).is_ok_and(|source| is_same(&source, plan));
        if !same {
            return Err(dead(&plan.mountpoint));
        }
        fuse::unmount(&mount.path, fuse::Unmount::Lazy).map_err(|_| dead(&plan.mountpoint))?;
        out.say(&format!("{place}: replaced the mount of a daemon that died"));
    }
    overlap::refuse_vital(&plan.mountpoint)?;
    overlap::refuse(&plan.named, &plan.mountpoint)?;
    // Before a file system is made that could not be mounted.
    look_at_device(Path::new("/dev/fuse"))?;
    if let (false, Source::Folder(dir)) = (plan.may_create, &plan.source) {
        place::expect_file_system(dir)?;
    }
    match std::fs::metadata(&plan.mountpoint) {
        Ok(found) if found.is_dir() => Ok(Vec::new()),
        Ok(_) => Err(Problem::failed(place, "not a directory")),
        Err(error) if error.kind() == ErrorKind::NotFound && plan.may_create => {
            // What takes them away again may have left this directory.
            let whole = std::path::absolute(&plan.mountpoint).map_err(|error| Problem::io(&place, &error))?;
            let absent = whole.ancestors().take_while(|above| !above.exists());
            let made: Vec<PathBuf> = absent.map(Path::to_path_buf).collect();
            std::fs::create_dir_all(&plan.mountpoint).map_err(|error| {
                remove_empty(&made);
                Problem::io(place, &error)
            })?;
            Ok(made)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Problem::io(&place, &error).do_this(format!("`mkdir {place}`")))
        }
        Err(error) => Err(Problem::io(place, &error)),
    }
}

/// Whether this user may use FUSE; opening the device changes nothing.
fn look_at_device(device: &Path) -> Result<(), Problem> {
    match std::fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let problem = Problem::io(device.display(), &error);
            Err(problem.do_this(format!("`chmod 666 {}` as root, or mount as root", device.display())))
        }
        Err(_) => Err(no_device()),
    }
}

/// The golden text for a machine without FUSE.
#[must_use]
pub fn no_device() -> Problem {
    Problem::new(Exit::Failed, "/dev/fuse: no such device")
        .do_this("`modprobe fuse`; in a container: `--device /dev/fuse --cap-add SYS_ADMIN`")
}

/// The golden text for the mount of a dead daemon.
#[must_use]
pub fn dead(mountpoint: &Path) -> Problem {
    let place = mountpoint.display();
    Problem::new(Exit::State, format!("{place}: transport endpoint is not connected (its daemon died)"))
        .do_this(format!("run the same mount again, or `umount -l {place}`"))
}

fn is_same(source: &Source, plan: &Plan) -> bool {
    let (old, named) = (source.clone().absolute(), plan.named.clone().absolute());
    old == named || (old.socket().is_some() && old.socket() == named.socket())
}

/// The same command line for the daemon; places are made absolute by the daemon itself, which starts here.
fn daemon_args(args: &Mount, conf_file: Option<&Path>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["mount".into(), "--daemon".into()];
    words.extend(["--timeout".into(), args.timeout.to_string().into()]);
    for options in &args.options {
        words.extend(["-o".into(), options.into()]);
    }
    if let Some(file) = conf_file {
        words.extend(["--conf".into(), file.into()]);
    }
    if let Some(data) = &args.data {
        words.extend(["--data".into(), data.into()]);
    }
    words.push("--".into());
    words.extend(args.places.iter().map(OsString::from));
    words
}

/// The first statfs: the kernel asks the daemon, and it answers.
fn first_look(plan: &Plan) -> Result<(), Problem> {
    let place = plan.mountpoint.display();
    runtime::process::space_of(&plan.mountpoint).map(drop).map_err(|error| Problem::io(place, &error))
}

/// Tells what stands. `path` is where, without links and dots: a mount in the foreground has left the directory from which it was
/// named. `word` is the daemon's: name, fsid, pid, created.
pub fn report(plan: &Plan, path: &Path, word: &Value, out: &Output) {
    let mut text = String::new();
    if word["created"] == true {
        text.push_str(&created_line(word, &plan.named));
    }
    let name = word["name"].as_str().unwrap_or("pandofs");
    let log = plan.log.as_ref().map_or_else(String::new, |log| format!(", log {}", log.display()));
    text.push_str(&format!("{name} is mounted at {} (pid {}{log})\n", path.display(), word["pid"]));
    let mut json = json!({"mount": mounts::shown(path), "source": plan.named.to_string()});
    for key in ["name", "fsid", "pid", "created"] {
        json[key] = word[key].clone();
    }
    if out.quiet && out.format == crate::output::Format::Plain {
        write_out("")
    } else {
        out.result(&text, json)
    }
}

/// `created file system NAME FSID in DIR (format 1, embedded, 1 rank)`
#[must_use]
pub fn created_line(word: &Value, place: &Source) -> String {
    let (name, fsid) =
        (word["name"].as_str().unwrap_or(""), place::short(word["fsid"].as_str().unwrap_or("")));
    let format = proto::fsrecord::FORMAT;
    format!("created file system {name} {fsid} in {place} (format {format}, embedded, 1 rank)\n")
}

/// The configuration with the mount's own options on top.
///
/// # Errors
/// As `conf::read`.
pub fn config(plan: &Plan, conf_file: Option<&Path>) -> Result<runtime::Config, Problem> {
    let mut config = conf::read(plan.options.conf.as_deref().map(Path::new).or(conf_file))?;
    if let Some(bytes) = plan.options.data_cache {
        config.data_cache_limit = bytes;
    }
    if let Some(log) = &plan.options.log {
        config.log_file = Some(log.into());
    }
    if let Some(at) = &plan.options.metrics {
        (config.metrics, config.metrics_must) = (Some(place::metrics(at)?), true);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn mount(line: &str) -> Mount {
        let cli = Cli::try_parse_from(line.split(' ')).expect("a command line");
        match cli.verb {
            crate::args::Verb::Mount(mount) => mount,
            _ => panic!("not mount"),
        }
    }

    #[test]
    fn data_is_source() {
        let a = plan(&mount("pando mount /data /m")).expect("a plan");
        let b = plan(&mount("pando mount --data /data /m")).expect("a plan");
        assert_eq!((a.named, a.mountpoint), (b.named, b.mountpoint));
    }

    #[test]
    fn the_daemon_gets_the_same_plan() {
        let args = mount("pando mount -o ro,nocreate -o noatime --timeout 7 /data /m");
        let again: Vec<OsString> = std::iter::once("pando".into()).chain(daemon_args(&args, None)).collect();
        let cli = Cli::try_parse_from(&again).expect("a command line");
        let crate::args::Verb::Mount(again) = cli.verb else { panic!("not mount") };
        let (a, b) = (plan(&args).expect("a plan"), plan(&again).expect("a plan"));
        assert_eq!((a.named, a.options, a.timeout), (b.named, b.options, b.timeout));
        assert!(again.daemon && !b.may_create);
    }

    #[test]
    fn wrong_places_are_usage() {
        for line in ["pando mount /a", "pando mount --data /a /b /c", "pando mount -o frob /a /b"] {
            assert_eq!(plan(&mount(line)).map_err(|problem| problem.code).map(drop), Err(2), "{line}");
        }
    }

    #[test]
    fn the_device_is_looked_at_before_anything_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let device = folder.path().join("fuse");
        assert_eq!(look_at_device(&device), Err(no_device()));
        std::fs::write(&device, "").expect("made");
        assert_eq!(look_at_device(&device), Ok(()));
    }

    #[test]
    fn a_daemon_that_is_only_slow_keeps_its_mount_point() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = [folder.path().join("a/b"), folder.path().join("a")];
        std::fs::create_dir_all(&made[0]).expect("made");
        let slow = Failure { problem: no_device(), goes_on: true };
        assert_eq!(taken_back(slow, &made), no_device());
        assert!(made[0].is_dir());
        taken_back(no_device().into(), &made);
        assert!(!made[1].exists());
    }

    #[test]
    fn the_dead_mounts_text() {
        let expected = "pando mount: ./mnt: transport endpoint is not connected (its daemon died)\n  \
            do: run the same mount again, or `umount -l ./mnt`\n";
        assert_eq!(dead(Path::new("./mnt")).text("mount"), expected);
    }
}
