//! Which server a command means: `--cluster` > a path inside a mount > $PANDO_CLUSTER > pando.toml > the
//! only socket in /run/pando.
//!
//! Servers started as root put a link to their socket into /run/pando, those of a user into
//! $XDG_RUNTIME_DIR/pando, which is looked at in the same step.
//!
//! Absent: talking to the server (`admin.rs`).

use crate::problem::{Exit, Problem};
use crate::source::Source;
use crate::{admin, conf, mounts};
use std::path::{Path, PathBuf};

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
    let parse = |text: &str| Source::parse(text).map_err(|why| Problem::new(Exit::Usage, why));
    if let Some(text) = hints.cluster {
        return parse(text);
    }
    if let Some(path) = hints.path {
        let mount = mounts::containing(path).ok_or_else(|| {
            Problem::new(Exit::Unreachable, format!("{}: not inside a PandoFS mount", path.display()))
        })?;
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

/// Folders in which running servers link their sockets.
#[must_use]
pub fn socket_folders() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|folder| Path::new(&folder).join("pando"));
    std::iter::once(PathBuf::from("/run/pando")).chain(own).collect()
}

/// Links in the folder whose server answers.
fn living(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut sockets: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|ext| ext == "sock") && admin::is_alive(path))
        .collect();
    sockets.sort();
    sockets
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
    for folder in socket_folders() {
        let link = folder.join(format!("{name}.sock"));
        let _there_or_not_ours = std::fs::create_dir(&folder);
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
