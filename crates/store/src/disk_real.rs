//! The `Disk` seam on a real folder, with system calls.
//!
//! Absent: what an open file does (`file`); retries of failed writes or syncs (after one, the kernel may
//! have dropped the data: callers poison themselves).

mod file;

pub use file::RealFile;

use crate::disk::{Disk, DiskFile};
use proto::storeio::{IoError, Space, StoreError};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Threads that sync many files, and how many files each must have to pay.
const SYNC_THREADS: usize = 8;
const SYNCS_PER_THREAD: usize = 2;
const SYNC_STACK: usize = 64 << 10;
/// How long a sync of a folder waits for a descriptor, and how often it tries.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(10);
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);

/// A folder of a mounted file system.
pub struct RealDisk {
    /// Where names begin: the open folder, as the system names open files. Something mounted over the path later, or the disk
    /// taken away from it, does not lead to another folder, in which new files would be made and called durable.
    root: PathBuf,
    /// Open since the start. `None`: the folder could not be opened; asking says why.
    held: Option<File>,
    /// Folders whose own entries, up to the root, were made durable by this process.
    anchored: Mutex<BTreeSet<String>>,
}

impl RealDisk {
    /// Over the folder `root`, which must exist.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let held = File::open(root).ok();
        let open = held.as_ref().map(|folder| PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())));
        // Without /proc the path is all there is.
        let open = open.filter(|open| open.try_exists().unwrap_or(false));
        Self { root: open.unwrap_or_else(|| root.into()), held, anchored: Mutex::new(BTreeSet::new()) }
    }

    fn open_existing(&self, name: &str) -> Result<Option<RealFile>, StoreError> {
        match OpenOptions::new().read(true).write(true).open(self.root.join(name)) {
            Ok(file) => Ok(Some(RealFile { file, name: name.into() })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(name, &error)),
        }
    }

    fn make(&self, name: &str, flags: i32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(self.root.join(name))
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn open(&self, name: &str) -> Result<Option<RealFile>, StoreError> {
        self.open_existing(name)
    }

    fn create(&self, name: &str) -> Result<RealFile, StoreError> {
        let file = match self.make(name, 0) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Some(folder) = self.root.join(name).parent() {
                    fs::create_dir_all(folder).map_err(|error| no_space(name, &error))?;
                }
                self.make(name, 0)
            }
            made => made,
        };
        Ok(RealFile { file: file.map_err(|error| no_space(name, &error))?, name: name.into() })
    }

    fn create_direct(&self, name: &str) -> Result<RealFile, StoreError> {
        match self.make(name, libc::O_DIRECT) {
            Ok(file) => Ok(RealFile { file, name: name.into() }),
            // A file system without it says EINVAL; everything else `create` knows how to tell.
            Err(_) => self.create(name),
        }
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(name, &error)),
            _ => Ok(()),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        fs::rename(self.root.join(from), self.root.join(to)).map_err(|error| failed(from, &error))
    }

    fn exchange(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let exchanged = exchange(&self.root.join(from), &self.root.join(to));
        or_renamed(from, exchanged, || self.rename(from, to))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let entries = match fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(folder, &error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(folder, &error))?;
            let kind = entry.file_type().map_err(|error| failed(folder, &error))?;
            // Names that are not text are not ours.
            if let (true, Ok(name)) = (kind.is_file(), entry.file_name().into_string()) {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StoreError> {
        let folder = folder.trim_end_matches('/');
        match patiently(|| sync_path(&self.root.join(folder))) {
            Ok(()) => {}
            // Nothing was ever made in it. Any other error is one of the disk: when it dies between the sync of a
            // file and that of its folder, a folder that cannot be looked at must not count as one that is not there.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(folder, &error)),
        }
        let mut anchored = self.anchored.lock().unwrap_or_else(PoisonError::into_inner);
        // A folder made by an earlier life that crashed before syncing it looks like any other, so
        // each is anchored once per process.
        let mut below = folder;
        while !below.is_empty() && !anchored.contains(below) {
            let above = below.rsplit_once('/').map_or("", |(above, _)| above);
            patiently(|| sync_path(&self.root.join(above))).map_err(|error| failed(above, &error))?;
            anchored.insert(below.to_owned());
            below = above;
        }
        Ok(())
    }

    fn sync_disk(&self) -> Result<bool, StoreError> {
        let root = File::open(&self.root).map_err(|error| failed("", &error))?;
        // SAFETY: the descriptor is open as long as `root`; no memory is passed.
        if unsafe { libc::syncfs(root.as_raw_fd()) } != 0 {
            return Err(failed("", &io::Error::last_os_error()));
        }
        Ok(true)
    }

    /// All are handed to the device first, then synced by several threads: each sync ends with a flush of the
    /// device, and flushes that are asked for at the same time are one. One after the other, a flush each,
    /// took most of the time of an fsync.
    fn sync_files(&self, files: &[Arc<RealFile>]) -> Result<(), StoreError> {
        let workers = (files.len() / SYNCS_PER_THREAD).min(SYNC_THREADS);
        if workers < 2 {
            return files.iter().try_for_each(|file| file.sync_data());
        }
        files.iter().try_for_each(|file| file.start_writing())?;
        files.iter().try_for_each(|file| file.wait_written())?;
        std::thread::scope(|scope| {
            let share = |files: &[Arc<RealFile>]| files.iter().try_for_each(|file| file.sync_data());
            let mut threads = Vec::with_capacity(workers);
            let mut result = Ok(());
            for part in files.chunks(files.len().div_ceil(workers)) {
                match std::thread::Builder::new()
                    .stack_size(SYNC_STACK)
                    .spawn_scoped(scope, move || share(part))
                {
                    Ok(thread) => threads.push(thread),
                    // No thread to be had: its share is this one's.
                    Err(_) => result = result.and(share(part)),
                }
            }
            for thread in threads {
                result = result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            result
        })
    }

    fn space(&self) -> Result<Space, StoreError> {
        let space = match &self.held {
            Some(folder) => space_at(folder),
            None => space_of(&self.root),
        };
        space.map_err(|error| failed("", &error))
    }
}

/// Space of the device that holds `path`.
pub(crate) fn space_of(path: &Path) -> io::Result<Space> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` ends in NUL.
    statvfs(|stat| unsafe { libc::statvfs(path.as_ptr(), stat) })
}

fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    let path = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (from, to) = (path(from)?, path(to)?);
    let at = libc::AT_FDCWD;
    // SAFETY: both paths end in NUL.
    match unsafe { libc::renameat2(at, from.as_ptr(), at, to.as_ptr(), libc::RENAME_EXCHANGE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What an exchange comes to: a rename if there is nothing to exchange it with, or the file system cannot do it. Any other error does not
/// say that nothing was done. What broke: the rename brought back what had been exchanged away, and the old cluster map was called the
/// new one.
fn or_renamed(
    from: &str,
    exchanged: io::Result<()>,
    rename: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let cannot = |error: &io::Error| {
        let errno = error.raw_os_error();
        matches!(errno, Some(libc::ENOENT | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
    };
    match exchanged {
        Ok(()) => Ok(()),
        Err(error) if cannot(&error) || stdx::mutant!("disk_renames_whatever_it_was") => rename(),
        Err(error) => Err(failed(from, &error)),
    }
}

/// Space of the device that holds an open folder.
fn space_at(folder: &File) -> io::Result<Space> {
    // SAFETY: the descriptor is open as long as `folder`.
    statvfs(|stat| unsafe { libc::fstatvfs(folder.as_raw_fd(), stat) })
}

/// `call` gets a live, exclusive statvfs.
fn statvfs(call: impl FnOnce(*mut libc::statvfs) -> i32) -> io::Result<Space> {
    // SAFETY: all-zero bytes are a valid statvfs, which is plain numbers.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    if call(&raw mut stat) != 0 {
        return Err(io::Error::last_os_error());
    }
    let unit = stat.f_frsize;
    Ok(Space {
        total: stat.f_blocks.saturating_mul(unit),
        free: stat.f_bfree.saturating_mul(unit),
        available: stat.f_bavail.saturating_mul(unit),
    })
}

/// A folder is opened to be synced, and often in the middle of what cannot be begun anew: while there is no descriptor for that, it
/// waits, as on a slow disk.
fn patiently(sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match sync() {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
                    && begin.elapsed() < DESCRIPTOR_WAIT =>
            {
                std::thread::sleep(DESCRIPTOR_PAUSE);
            }
            done => return done,
        }
    }
}

/// Makes a folder's entries durable.
pub(crate) fn sync_path(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// An error of an operation that takes no space: never `NoSpace`, because a sync that ran out of space
/// has lost data.
pub(crate) fn failed(at: &str, error: &io::Error) -> StoreError {
    StoreError::Io { at: at.into(), source: IoError(error.raw_os_error().unwrap_or(libc::EIO)) }
}

/// An error of an operation that takes space.
pub(crate) fn no_space(at: &str, error: &io::Error) -> StoreError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => StoreError::NoSpace,
        _ => failed(at, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_descriptor_is_synced_when_there_is_one() {
        let tries = std::cell::Cell::new(0);
        let sync = || {
            tries.set(tries.get() + 1);
            let errno = [libc::EMFILE, libc::ENFILE].get(tries.get() - 1).copied();
            errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
        };
        assert!(patiently(sync).is_ok());
        assert_eq!(tries.get(), 3);
        assert!(patiently(|| Err(io::Error::from_raw_os_error(libc::EIO))).is_err());
    }

    /// What an exchange comes to that says so, of two files that it has exchanged, or has not; and what is there then.
    fn comes_to(errno: i32, is_done: bool) -> (Result<(), StoreError>, Vec<u8>) {
        let place = tempfile::tempdir().expect("a folder");
        let contents = if is_done { ["old", "new"] } else { ["new", "old"] };
        for (name, content) in ["map.new", "map"].into_iter().zip(contents) {
            fs::write(place.path().join(name), content).expect("written");
        }
        let disk = RealDisk::new(place.path());
        let exchanged = Err(io::Error::from_raw_os_error(errno));
        let result = or_renamed("map.new", exchanged, || disk.rename("map.new", "map"));
        (result, fs::read(place.path().join("map")).expect("there"))
    }

    fn what_may_have_been_exchanged_is_not_renamed() {
        for errno in [libc::EIO, libc::EINTR, libc::ENOSPC, libc::ETIMEDOUT] {
            for is_done in [false, true] {
                let (result, there) = comes_to(errno, is_done);
                assert!(matches!(result, Err(StoreError::Io { .. })), "{errno}: {result:?}");
                assert_eq!(there == b"new", is_done, "{errno}: whatever it was, it is still there");
            }
        }
    }

    #[test]
    fn an_exchange_is_a_rename_only_where_there_is_none() {
        what_may_have_been_exchanged_is_not_renamed();
        for errno in [libc::ENOENT, libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP] {
            assert_eq!(comes_to(errno, false), (Ok(()), b"new".to_vec()), "{errno}");
        }
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_rename_after_any_error_is_caught() {
        stdx::mutant::activate(Some("disk_renames_whatever_it_was"));
        let verdict = std::panic::catch_unwind(what_may_have_been_exchanged_is_not_renamed);
        stdx::mutant::activate(None);
        assert!(verdict.is_err());
    }

    #[test]
    fn a_folder_that_cannot_be_looked_at_does_not_count_as_synced() {
        let place = tempfile::tempdir().expect("a folder");
        fs::write(place.path().join("file"), b"in the way").expect("written");
        let disk = RealDisk::new(place.path());
        assert_eq!(disk.sync_folder("absent/folder"), Ok(()));
        let told = disk.sync_folder("file/folder");
        assert!(matches!(told, Err(StoreError::Io { source: IoError(libc::ENOTDIR), .. })), "{told:?}");
    }

    /// A folder that was opened, where it was and where it is.
    fn moved(place: &Path) -> (RealDisk, PathBuf, PathBuf) {
        let (before, after) = (place.join("before"), place.join("after"));
        fs::create_dir(&before).expect("made");
        let disk = RealDisk::new(&before);
        fs::rename(&before, &after).expect("moved");
        (disk, before, after)
    }

    #[test]
    fn names_begin_in_the_folder_that_was_opened_not_in_its_path() {
        let place = tempfile::tempdir().expect("a folder");
        let (disk, before, after) = moved(place.path());
        let made = disk.create("data/blk/00/x").and_then(|file| file.write_at(b"content", 0));
        assert_eq!((made, disk.sync_folder("data/blk/00")), (Ok(()), Ok(())));
        assert_eq!(fs::read(after.join("data/blk/00/x")).expect("there"), b"content");
        assert!(!before.exists());
        fs::remove_dir_all(&after).expect("removed");
        assert!(disk.create("data/x").is_err(), "a folder that is gone is not made again");
    }

    #[test]
    fn space_is_asked_of_the_folder_that_was_opened_not_of_its_path() {
        let place = tempfile::tempdir().expect("a folder");
        let (disk, before, _) = moved(place.path());
        assert!(disk.space().is_ok_and(|space| space.total > 0));
        assert!(RealDisk::new(&before).space().is_err());
    }
}
