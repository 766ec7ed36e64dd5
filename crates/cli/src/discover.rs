//! Which server a command means: `--cluster` > a path inside a mount > $PANDO_CLUSTER > pando.toml > the
//! only socket in /run/pando.
//!
//! Servers started as root put a link to their socket into /run/pando, those of a user into
//! $XDG_RUNTIME_DIR/pando, which is looked at in the same step. A killed server's link is removed by
//! whoever looks there next.
//!
//! Absent: talking to the server (`admin.rs`).

use crate::problem::{Exit, Problem};
use crate::source::Source;
use crate::{admin, conf, mounts};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use store::folder::{self, Found};

/// What the search may look at.
#[derive(Clone, Debug, Default)]
pub struct Hints<'a> {
    pub cluster: Option<&'a str>,
    pub path: Option<&'a Path>,
    pub conf: Option<&'a Path>,
}

/// Finds the server.
///
/// # Errors
/// Exit 3 when there is none or it cannot be told which; exit 2 for a SOURCE that cannot be read.
pub fn find(hints: &Hints<'_>) -> Result<Source, Problem> {
    let parse = |text: &str| {
        Source::parse(text).map_err(|why| Problem::new(Exit::Usage, why).do_this("`pando --help`"))
    };
    if let Some(text) = hints.cluster {
        return parse(text).and_then(no_mount);
    }
    if let Some(path) = hints.path {
        let mount = mounts::containing(path).ok_or_else(|| outside(path))?;
        return parse(&mount.source);
    }
    let here = std::env::current_dir().ok().and_then(|path| mounts::containing(&path));
    if let Some(mount) = here {
        return parse(&mount.source);
    }
    if let Some(text) = std::env::var("PANDO_CLUSTER").ok().filter(|text| !text.is_empty()) {
        return parse(&text);
    }
    if let Some(text) = conf::read(hints.conf)?.cluster {
        return parse(&text);
    }
    only_socket(&socket_folders(), hints.conf)
}

/// A mount is no SOURCE: nobody listens in it.
fn no_mount(source: Source) -> Result<Source, Problem> {
    let Source::Folder(dir) = &source else { return Ok(source) };
    let Some(mount) = mounts::at(dir) else { return Ok(source) };
    let what = format!("--cluster {}: is a mount; its server is {}", dir.display(), mount.source);
    Err(Problem::new(Exit::Usage, what).do_this(format!("`--cluster {}`", mount.source)))
}

/// No mount: perhaps the data folder was meant.
fn outside(path: &Path) -> Problem {
    let shown = path.display();
    let problem = Problem::new(Exit::Unreachable, format!("{shown}: not inside a PandoFS mount"));
    match folder::inspect(path) {
        Ok(Found::Complete(_)) => {
            problem.do_this(format!("it is a data folder: `--cluster {shown}` asks its server"))
        }
        _ => problem.do_this("`findmnt -t fuse.pando` lists the mounts"),
    }
}

/// Folders in which running servers link their sockets.
#[must_use]
pub fn socket_folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("pando"));
    std::iter::once(PathBuf::from("/run/pando")).chain(own).collect()
}

/// What may be a socket in the folder, without the links of dead servers: those are removed.
fn swept(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut sockets: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    sockets.retain(|path| path.extension().is_some_and(|ext| ext == "sock"));
    for path in sockets.iter().filter(|path| is_dead(path)) {
        bury(path);
    }
    sockets.sort();
    sockets
}

/// Sockets in the folder whose server answers.
fn living(folder: &Path) -> Vec<PathBuf> {
    let mut sockets = swept(folder);
    sockets.retain(|path| admin::is_alive(path));
    sockets
}

/// Whether this is a link and its server is certainly gone: nothing is bound to the socket's path (a served
/// folder that was moved or is mounted elsewhere only looks gone), and nobody listens there either (a server
/// in another network namespace is bound out of sight). Every other failure, as a permission, says nothing.
fn is_dead(link: &Path) -> bool {
    let Ok(target) = std::fs::read_link(link) else { return false };
    let end = format!(" {}", target.display());
    let bound = std::fs::read_to_string("/proc/net/unix");
    // In this order: connecting to a server that stands still may block, and that one is bound.
    bound.is_ok_and(|bound| !bound.lines().any(|line| line.ends_with(&end)))
        && UnixStream::connect(link)
            .is_err_and(|error| matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound))
}

/// Removes a dead server's link. A new server of the same folder may replace it between the look and
/// the removal and would not be found: so the link steps aside first, and comes back if it lives.
fn bury(link: &Path) {
    let aside = link.with_extension(format!("{}.dead", std::process::id()));
    if std::fs::rename(link, &aside).is_err() {
        // Not ours to remove, or another command was faster.
        return;
    }
    if is_dead(&aside) {
        let _gone_either_way = std::fs::remove_file(&aside);
    } else {
        let _still_served = std::fs::rename(&aside, link);
    }
}

fn only_socket(folders: &[PathBuf], conf: Option<&Path>) -> Result<Source, Problem> {
    let sockets: Vec<PathBuf> = folders.iter().flat_map(|folder| living(folder)).collect();
    match sockets.as_slice() {
        [one] => Ok(Source::Unix(one.clone())),
        [] => {
            let file = conf.unwrap_or(Path::new(runtime::config::PATH_DEFAULT)).display();
            let what = format!("no server found (tried $PANDO_CLUSTER, {file}, /run/pando)");
            Err(Problem::new(Exit::Unreachable, what).do_this("name it: `--cluster SOURCE`"))
        }
        several => {
            let names: Vec<String> = several.iter().map(|path| format!("unix:{}", path.display())).collect();
            let what = format!("several servers run here ({})", names.join(", "));
            Err(Problem::new(Exit::Unreachable, what).do_this("name one: `--cluster SOURCE`"))
        }
    }
}

/// Makes a server's socket findable: links it as `NAME.sock` in the first folder that can be written.
/// Returns the link, to be removed at the end. Not being findable is no reason not to serve.
#[must_use]
pub fn announce(name: &str, socket: &Path) -> Option<PathBuf> {
    announce_in(&socket_folders(), name, socket)
}

fn announce_in(folders: &[PathBuf], name: &str, socket: &Path) -> Option<PathBuf> {
    for folder in folders {
        let link = folder.join(format!("{name}.sock"));
        let _there_or_not_ours = std::fs::create_dir(folder);
        let _others = swept(folder);
        // Left by a server of this folder that was killed: it seems to live, because we answer there now. It is ours.
        if std::fs::read_link(&link).is_ok_and(|target| target == socket) {
            return Some(link);
        }
        // A link left by a server that was killed names the same folder or nothing that answers.
        if !admin::is_alive(&link) {
            let _absent = std::fs::remove_file(&link);
        }
        if std::os::unix::fs::symlink(socket, &link).is_ok() {
            return Some(link);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_that_answer_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let dead = folder.path().join("dead.sock");
        drop(UnixListener::bind(&dead).expect("a socket"));
        let live = folder.path().join("live.sock");
        let _listener = UnixListener::bind(&live).expect("a socket");
        assert_eq!(living(folder.path()), vec![live]);
    }

    #[test]
    fn links_of_dead_servers_go_and_no_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, at(name)).expect("a link");
        };
        let live = at("live");
        let _listener = UnixListener::bind(&live).expect("a socket");
        // What a killed server leaves.
        let dead = at("dead");
        drop(UnixListener::bind(&dead).expect("a socket"));
        // Served under a path that leads nowhere from here.
        let hidden = at("hidden");
        let _unseen = UnixListener::bind(&hidden).expect("a socket");
        std::fs::rename(&hidden, at("moved")).expect("moved");
        link(&live, "live.sock");
        link(&dead, "killed.sock");
        link(&at("absent"), "absent.sock");
        link(&hidden, "hidden.sock");
        // No link: whoever listens there next takes it over.
        drop(UnixListener::bind(at("own.sock")).expect("a socket"));
        assert_eq!(living(folder.path()), vec![at("live.sock")]);
        let mut left: Vec<_> = std::fs::read_dir(folder.path())
            .expect("the folder")
            .map(|e| e.expect("an entry").path())
            .collect();
        left.sort();
        assert_eq!(left, ["dead", "hidden.sock", "live", "live.sock", "moved", "own.sock"].map(at));
    }

    #[test]
    fn a_link_that_came_to_life_meanwhile_comes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, link) = (folder.path().join("s"), folder.path().join("a.sock"));
        std::os::unix::fs::symlink(&socket, &link).expect("a link");
        assert!(is_dead(&link));
        let _new_server = UnixListener::bind(&socket).expect("a socket");
        bury(&link);
        assert_eq!(living(folder.path()), vec![link]);
    }

    #[test]
    fn the_link_of_a_killed_server_goes_with_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("pando.sock");
        let folders = [folder.path().to_path_buf()];
        let first = UnixListener::bind(&socket).expect("a socket");
        let link = announce_in(&folders, "id", &socket).expect("linked");
        // Killed: its link stays, and the next one binds before it announces itself.
        drop(first);
        std::fs::remove_file(&socket).expect("removed");
        let _second = UnixListener::bind(&socket).expect("a socket");
        assert_eq!(announce_in(&folders, "id", &socket), Some(link));
        // Another folder with this id, as a copy has, does not take a link that lives.
        let copy = folder.path().join("copy");
        let _third = UnixListener::bind(&copy).expect("a socket");
        assert_eq!(announce_in(&folders, "id", &copy), None);
    }

    #[test]
    fn nobody_there_says_where_it_looked() {
        let problem = only_socket(&["/nowhere".into()], None).expect_err("nobody");
        let expected = "pando status: no server found (tried $PANDO_CLUSTER, /etc/pando/pando.toml, /run/pando)\n  \
            do: name it: `--cluster SOURCE`\n";
        assert_eq!((problem.text("status").as_str(), problem.code), (expected, 3));
    }

    #[test]
    fn of_several_servers_none_is_guessed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (a, b) = (folder.path().join("a.sock"), folder.path().join("b.sock"));
        let _first = UnixListener::bind(&a).expect("a socket");
        let folders = [folder.path().to_path_buf()];
        assert_eq!(only_socket(&folders, None), Ok(Source::Unix(a)));
        let _second = UnixListener::bind(&b).expect("a socket");
        assert_eq!(only_socket(&folders, None).map_err(|problem| problem.code), Err(3));
    }

    #[test]
    fn the_command_line_wins() {
        let hints = Hints { cluster: Some("unix:/x"), path: Some(Path::new("/")), conf: None };
        assert_eq!(find(&hints), Ok(Source::Unix("/x".into())));
    }
}
