//! Refuses a mount point that covers the folders of its own file system, or lies in one of them. A server whose folder
//! lies under its own mount asks the kernel, which asks the server: both wait for ever, and not even SIGKILL helps.
//! And one that would take from the whole machine what every process needs.
//!
//! And a backup in the folders that it is a copy of.
//!
//! Absent: other file systems' folders.

use crate::problem::{Exit, Problem};
use crate::source::Source;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use store::folder::{self, Found};

/// Looks at the mount point as the person wrote it; neither it nor the folder needs to exist.
///
/// # Errors
/// Exit 5, names both.
pub fn refuse(source: &Source, mountpoint: &Path) -> Result<(), Problem> {
    let Some(dir) = folder_of(source) else { return Ok(()) };
    let (place, at) = (mountpoint.display(), real(mountpoint));
    for (word, folder) in folders(&dir) {
        let shown = folder.display();
        let path = real(&folder);
        let what = if at == path {
            format!("{place}: is the {word} folder of this file system")
        } else if path.starts_with(&at) {
            format!("{place}: the {word} folder {shown} lies in it")
        } else if at.starts_with(&path) {
            format!("{place}: lies in the {word} folder {shown}")
        } else {
            continue;
        };
        return Err(Problem::new(Exit::State, what)
            .do_this("choose a mount point outside of the file system's folders"));
    }
    Ok(())
}

/// A backup in the folders that it is a copy of: whoever loses them loses both, and it would be a stranger's file in a data folder.
/// Neither the file nor the folder needs to exist.
///
/// # Errors
/// Exit 2, names both.
pub fn refuse_backup(dir: &Path, file: &Path) -> Result<(), Problem> {
    let at = real(file);
    let Some((word, folder)) = folders(dir).into_iter().find(|(_, folder)| at.starts_with(real(folder)))
    else {
        return Ok(());
    };
    let what = format!("{}: lies in the {word} folder {}", file.display(), folder.display());
    Err(Problem::new(Exit::Usage, what)
        .do_this("write it outside of the file system's folders, best to another disk"))
}

/// Mount points without which hardly a program starts, and no unmount either.
const VITAL: [&str; 4] = ["/", "/proc", "/sys", "/dev"];
/// The kernel's own trees: no place for anybody's files.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// Looks at the mount point only by its name.
///
/// # Errors
/// Exit 2.
pub fn refuse_vital(mountpoint: &Path) -> Result<(), Problem> {
    let at = real(mountpoint);
    let place = mountpoint.display();
    let what = if VITAL.iter().any(|vital| at == Path::new(vital)) {
        format!("{place}: the whole machine needs what is there")
    } else if let Some(tree) = KERNELS.iter().find(|tree| at.starts_with(tree)) {
        format!("{place}: lies in {tree}, which is the kernel's")
    } else {
        return Ok(());
    };
    Err(Problem::new(Exit::Usage, what).do_this("choose an empty folder, as /mnt/pando"))
}

/// The data folder behind a source on this machine.
fn folder_of(source: &Source) -> Option<PathBuf> {
    match source {
        Source::Folder(dir) => Some(dir.clone()),
        // The socket lies in the folder; its link in /run/pando leads there.
        Source::Unix(socket) => {
            let dir = real(socket).parent()?.to_path_buf();
            matches!(folder::inspect(&dir), Ok(Found::Complete(_))).then_some(dir)
        }
        Source::Tcp { .. } => None,
    }
}

/// The folder, and the parts that lie elsewhere.
fn folders(dir: &Path) -> Vec<(&'static str, PathBuf)> {
    let mut folders = vec![("data", dir.to_path_buf())];
    if let Ok(Found::Complete(record) | Found::Half(record)) = folder::inspect(dir) {
        let parts =
            [("metadata", record.meta_dir), ("journal", record.journal_dir), ("file data", record.data_dir)];
        folders.extend(parts.into_iter().filter(|(_, dir)| !dir.is_empty()).map(|(w, dir)| (w, dir.into())));
    }
    folders
}

/// The path without links and dots, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let mut path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut absent: Vec<OsString> = Vec::new();
    loop {
        if let Ok(found) = path.canonicalize() {
            return absent.iter().rev().fold(found, |path, name| path.join(name));
        }
        match path.file_name() {
            Some(name) => absent.push(name.to_owned()),
            None => return path,
        }
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use stdx::Wall;
    use store::folder::FormatOptions;

    fn text(source: &Path, mountpoint: &Path) -> Option<String> {
        let refused = refuse(&Source::Folder(source.into()), mountpoint).err();
        refused.map(|problem| {
            assert_eq!(problem.code, 5);
            problem.what
        })
    }

    #[test]
    fn a_mount_on_in_or_above_the_folder_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let show = |name: &str| at(name).display().to_string();
        fs::create_dir_all(at("p/data")).expect("made");
        std::os::unix::fs::symlink(at("p"), at("link")).expect("a link");
        let data = at("p/data");
        assert_eq!(
            text(&data, &data),
            Some(format!("{}: is the data folder of this file system", show("p/data")))
        );
        let above = format!("{}: the data folder {} lies in it", show("link"), show("p/data"));
        assert_eq!(text(&data, &at("link")), Some(above));
        let inside = format!("{}: lies in the data folder {}", show("p/data/m/n"), show("p/data"));
        assert_eq!(text(&data, &at("p/data/m/n")), Some(inside));
        assert_eq!(text(&data, &at("p/data2")), None);
        assert_eq!(text(&data, &at("p/other")), None);
        // Neither is there yet.
        assert!(text(&at("new/fs"), &at("new")).is_some());
        assert_eq!(text(&at("new/fs"), &at("new/mnt")), None);
    }

    /// Never with a mount: should the check fail, it would be the machine's last.
    #[test]
    fn what_the_machine_needs_is_no_mount_point() {
        let place = tempfile::tempdir().expect("a folder");
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).expect("a link");
        let below = link.join("sys");
        for at in ["/", "/proc", "/sys/", "/dev", "/usr/..", "//proc", "/proc/nosuch", "/sys/kernel/x"]
            .map(Path::new)
            .into_iter()
            .chain([link.as_path(), below.as_path()])
        {
            assert_eq!(refuse_vital(at).map_err(|problem| problem.code), Err(2), "{}", at.display());
        }
        for at in ["/dev/shm/x", "/mnt", "/process", "/srv/proc", "/usr"] {
            assert_eq!(refuse_vital(Path::new(at)), Ok(()), "{at}");
        }
        let text = refuse_vital(Path::new("/dev")).expect_err("refused").text("mount");
        let expected = "pando mount: /dev: the whole machine needs what is there\n  \
            do: choose an empty folder, as /mnt/pando\n";
        assert_eq!(text, expected);
    }

    /// What broke: it was written there without a word.
    #[test]
    fn a_backup_in_the_folder_that_it_copies_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("fs/data")).expect("made");
        std::os::unix::fs::symlink(at("fs"), at("link")).expect("a link");
        std::os::unix::fs::symlink(at("fs/data/b"), at("dangling")).expect("a link");
        for (dir, file) in
            [("fs", "fs/b"), ("fs", "fs/data/b"), ("fs", "link/b"), ("link", "fs/b"), ("fs", "fs/../fs/b")]
        {
            let problem = refuse_backup(&at(dir), &at(file)).expect_err(file);
            let what = format!("{}: lies in the data folder {}", at(file).display(), at(dir).display());
            assert_eq!((problem.what, problem.code), (what, 2));
        }
        // A link is replaced, not followed.
        for file in ["b", "fs2", "fs.pando", "dangling"] {
            assert_eq!(refuse_backup(&at("fs"), &at(file)), Ok(()), "{file}");
        }
    }

    #[test]
    fn parts_elsewhere_count() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        let options =
            FormatOptions { environments: 1, data_dir: Some(at("disk/big")), ..FormatOptions::new(Wall(1)) };
        folder::format(&at("fs"), &options).expect("formatted");
        let above =
            format!("{}: the file data folder {} lies in it", at("disk").display(), at("disk/big").display());
        assert_eq!(text(&at("fs"), &at("disk")), Some(above));
        assert!(refuse_backup(&at("fs"), &at("disk/big/b.pando")).is_err());
        assert_eq!(refuse_backup(&at("fs"), &at("disk/b.pando")), Ok(()));
        assert!(refuse(&Source::Unix(at("fs/pando.sock")), &at("disk/big")).is_err());
        assert!(refuse(&Source::Unix(at("other/pando.sock")), &at("disk")).is_ok());
    }
}
