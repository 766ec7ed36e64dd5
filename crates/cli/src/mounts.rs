//! The kernel's table of mounts, read from /proc/self/mountinfo: which of them are PandoFS's and what
//! each is a mount of.
//!
//! Absent: mounting and unmounting (crate `fuse`).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a mount may take to answer whether it is alive.
const STATFS_TIME: Duration = Duration::from_secs(3);

/// The type column of our mounts.
pub const TYPE: &str = "fuse.pando";

/// One PandoFS mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    pub path: PathBuf,
    /// The first column of the mount table: a SOURCE.
    pub source: String,
}

/// PandoFS's mounts in this process's namespace, oldest first.
#[must_use]
pub fn ours() -> Vec<Mounted> {
    std::fs::read("/proc/self/mountinfo").map(|text| parse(&text)).unwrap_or_default()
}

/// The mount whose root is exactly this path. Asks nothing of the mount itself, which may be dead or wait
/// for a server that is gone.
#[must_use]
pub fn at(path: &Path) -> Option<Mounted> {
    let mounts = ours();
    let find = |path: PathBuf| mounts.iter().rev().find(|mount| mount.path == path).cloned();
    find(by_parent(path)).or_else(|| find(resolve(path)))
}

/// The mount points, of whatever file system, below this one, as the kernel's table has them.
#[must_use]
pub fn below(mountpoint: &Path) -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    points_below(&table, mountpoint)
}

fn points_below(table: &[u8], mountpoint: &Path) -> Vec<PathBuf> {
    let points = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let word = line.split(|byte| *byte == b' ').nth(4)?;
        Some(PathBuf::from(OsString::from_vec(unescape(word))))
    });
    points.filter(|point| point != mountpoint && point.starts_with(mountpoint)).collect()
}

/// The mount that this path lies in.
#[must_use]
pub fn containing(path: &Path) -> Option<Mounted> {
    let path = resolve(path);
    let inside = ours().into_iter().filter(|mount| path.starts_with(&mount.path));
    inside.max_by_key(|mount| mount.path.as_os_str().len())
}

/// The path without links and dots, where only the folder above was looked at.
fn by_parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// The path without links and dots. A mount point of ours is not touched.
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    let near = by_parent(path);
    if ours().iter().any(|mount| mount.path == near) {
        return near;
    }
    near.canonicalize().unwrap_or(near)
}

/// Whether the mount's daemon is gone: the kernel answers a statfs, which is never cached, with ENOTCONN. While it clears
/// away a process that was killed it may be ECANCELED (its io_uring) or ECONNABORTED; a daemon that lives answers with neither.
/// One that does not answer at all waits for its server, so it is not dead.
#[must_use]
pub fn is_dead(path: &Path) -> bool {
    const ENOTCONN: i32 = 107;
    const ECONNABORTED: i32 = 103;
    const ECANCELED: i32 = 125;
    let (send, receive) = std::sync::mpsc::channel();
    let path = path.to_path_buf();
    std::thread::spawn(move || {
        let error = runtime::process::space_of(&path).err().and_then(|error| error.raw_os_error());
        let _nobody_waits = send.send(error);
    });
    matches!(receive.recv_timeout(STATFS_TIME), Ok(Some(ENOTCONN | ECONNABORTED | ECANCELED)))
}

fn parse(text: &[u8]) -> Vec<Mounted> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `id parent major:minor root MOUNTPOINT options [tags...] - TYPE SOURCE super-options`
fn parse_line(line: &[u8]) -> Option<Mounted> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    if words.get(dash + 1)? != &TYPE.as_bytes() {
        return None;
    }
    let path = PathBuf::from(OsString::from_vec(unescape(words.get(4)?)));
    let source = String::from_utf8_lossy(&unescape(words.get(dash + 2)?)).into_owned();
    Some(Mounted { path, source })
}

/// Blanks, tabs, line ends and backslashes are written as `\ooo`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|three| std::str::from_utf8(three).ok());
        match octal.and_then(|three| u8::from_str_radix(three, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// For messages: a path as people type it.
#[must_use]
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ours_are_listed_and_escapes_are_read() {
        let text = b"36 35 98:0 / /mnt/a\\040b rw,nosuid - fuse.pando /srv/data rw,user_id=0\n\
            37 35 98:0 / /mnt/other rw shared:1 - fuse.sshfs host:/ rw\n\
            38 35 98:0 / /mnt/c rw shared:1 master:2 - fuse.pando unix:/x.sock rw\n";
        let expected = vec![
            Mounted { path: "/mnt/a b".into(), source: "/srv/data".into() },
            Mounted { path: "/mnt/c".into(), source: "unix:/x.sock".into() },
        ];
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn mounts_of_any_kind_below_are_found() {
        let text = b"36 35 98:0 / /m/a rw,nosuid - fuse.pando /srv/data rw\n\
            37 36 98:0 / /m/a/b\\040c rw shared:1 - tmpfs none rw\n\
            38 35 98:0 / /m/ab rw - ext4 /dev/x rw\n";
        assert_eq!(points_below(text, Path::new("/m/a")), [PathBuf::from("/m/a/b c")]);
    }

    #[test]
    fn a_cut_line_is_no_mount() {
        assert_eq!(parse(b"36 35 98:0 / /mnt - fuse.pando"), vec![]);
        assert_eq!(parse(b"garbage"), vec![]);
    }
}
