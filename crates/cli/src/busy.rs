//! Who keeps a mount busy: processes whose working directory, root, program, open file or mapping lies in
//! it, read from /proc.
//!
//! Absent: asking the mount itself anything; its daemon may hang.

use crate::mounts::shown;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// One process and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    pub pid: u32,
    /// `cwd`, `root`, `exe`, or the file's path as the person named the mount.
    pub what: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}, {})", self.name, self.pid, self.what)
    }
}

/// The holders, by pid; one line per process. `named`: how the person wrote the mount point.
#[must_use]
pub fn holders(mountpoint: &Path, named: &Path) -> Vec<Holder> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut holders: Vec<Holder> = pids.filter_map(|pid| holder(pid, mountpoint, named)).collect();
    holders.sort_by_key(|holder| holder.pid);
    holders
}

fn holder(pid: u32, mountpoint: &Path, named: &Path) -> Option<Holder> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let what = held(&folder, mountpoint, named)?;
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    Some(Holder { name: name.trim_end().to_string(), pid, what })
}

fn held(process: &Path, mountpoint: &Path, named: &Path) -> Option<String> {
    let inside = |link: &Path| fs::read_link(link).ok().filter(|target| target.starts_with(mountpoint));
    for word in ["cwd", "root", "exe"] {
        if inside(&process.join(word)).is_some() {
            return Some(word.into());
        }
    }
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let open = files.filter_map(|file| inside(&file.path())).next();
    let target = open.or_else(|| mapped(process, mountpoint))?;
    let rest = target.strip_prefix(mountpoint).unwrap_or(Path::new(""));
    Some(shown(&if rest.as_os_str().is_empty() { named.to_path_buf() } else { named.join(rest) }))
}

fn mapped(process: &Path, mountpoint: &Path) -> Option<PathBuf> {
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    paths.into_iter().find(|path| path.starts_with(mountpoint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_named_as_the_person_names_the_mount() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let file = fs::File::create(root.join("a")).expect("a file");
        let me =
            |holders: &[Holder]| holders.iter().find(|h| h.pid == std::process::id()).map(|h| h.what.clone());
        assert_eq!(me(&holders(&root, Path::new("./mnt"))).as_deref(), Some("./mnt/a"));
        drop(file);
        assert_eq!(me(&holders(&root, Path::new("./mnt"))), None);
    }
}
