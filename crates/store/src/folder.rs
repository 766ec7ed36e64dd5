//! A data folder: its record, lock and incarnation, its parts on other devices, and the ballast.
//!
//! `pando.fs` is the file-system record, written whole by rename; without its `complete` flag the folder is half formatted, and
//! half restored if `pando.restore` lies beside it. `pando.lock` is locked by the process that serves the folder. A part that
//! lies elsewhere carries `pando.member` with the file system's id, so that an unmounted disk or a swapped one is refused; so
//! does `data/`, whose loss nothing else would show.
//!
//! Absent: making one (`make.rs`); what the files of the parts hold; command-line texts beyond the error itself and its remedy.

mod ballast;
mod error;
mod lock;
mod make;

pub use ballast::{BALLAST_BYTES, Ballast};
pub use error::FolderError;
pub use make::{FormatOptions, format, format_from, random};

use crate::meta_lmdb::{LmdbMeta, LmdbOptions};
use error::{io_error, is_closed};
use lock::Lock;
use proto::codec::DecodeError;
use proto::fsrecord::{COMPAT_DATA_MARKED, FsRecord, INCOMPAT_KNOWN, INCOMPAT_RANKS, INCOMPAT_SESSIONS};
use proto::ids::Incarnation;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stdx::crc32c;

const RECORD: &str = "pando.fs";
const INCARNATION: &str = "pando.incarnation";
const MEMBER: &str = "pando.member";
const RESTORE: &str = "pando.restore";
/// Where the server listens for attaching mounts.
pub const SOCKET: &str = "pando.sock";
const FOLDERS: [&str; 5] = ["meta", "journal", "data", "log", "cluster"];
/// Strangers named in an error.
const SHOWN: usize = 2;

/// What a folder is, as found without changing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is not there or holds nothing: may be formatted.
    Empty,
    /// A format did not finish: may be formatted again.
    Half(FsRecord),
    /// A restore from a backup did not finish: may be restored again, and nothing else.
    HalfRestored,
    Complete(FsRecord),
}

/// A folder that is open and locked by this process.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    record: FsRecord,
    incarnation: Incarnation,
    written: Mutex<Written>,
    lock: Lock,
}

/// What the small files say by now.
#[derive(Debug)]
struct Written {
    incarnation: Incarnation,
    /// The record says that there may be ranks above 0.
    ranks: bool,
}

impl Folder {
    /// Opens a formatted folder: locks it, checks its parts, and begins a new incarnation, durably.
    ///
    /// # Errors
    /// Every `FolderError` but `Exists`.
    pub fn open(dir: &Path) -> Result<Self, FolderError> {
        // Nothing is written into a folder before it is known to be ours: it may be the mount point of
        // a disk that is not mounted.
        if !matches!(inspect(dir)?, Found::Complete(_)) {
            return Err(Self::not_complete(dir, inspect(dir)?));
        }
        let lock = Lock::take(dir)?;
        let record = match inspect(dir)? {
            Found::Complete(record) => record,
            found @ (Found::Empty | Found::Half(_) | Found::HalfRestored) => {
                return Err(Self::not_complete(dir, found));
            }
        };
        let written = Written { incarnation: Incarnation(0), ranks: record.incompat & INCOMPAT_RANKS != 0 };
        let written = Mutex::new(written);
        let mut folder = Self { root: dir.into(), record, incarnation: Incarnation(0), written, lock };
        for (part, place) in folder.parts_elsewhere() {
            check_member(&folder.record, part, &place)?;
        }
        // An empty data store looks like one that lost everything: its files would read as zeros.
        if folder.record.compat & COMPAT_DATA_MARKED != 0 {
            check_member(&folder.record, "data", &folder.data_root().join("data"))?;
        }
        if folder.record.incompat & INCOMPAT_SESSIONS == 0 {
            // Version 0.1.0 wrote here: from now on it would take the journal for damaged.
            folder.record.incompat |= INCOMPAT_SESSIONS;
            write_whole(dir, RECORD, &folder.record.encode())?;
        }
        folder.incarnation = begin_incarnation(dir)?;
        folder.written.get_mut().unwrap_or_else(PoisonError::into_inner).incarnation = folder.incarnation;
        // Left where a restore stopped between its last two steps; the record says that it was complete.
        let _gone_or_never_there = fs::remove_file(dir.join(RESTORE));
        Ok(folder)
    }

    fn not_complete(dir: &Path, found: Found) -> FolderError {
        match found {
            Found::Half(_) => FolderError::HalfFormatted { dir: dir.into() },
            Found::HalfRestored => FolderError::HalfRestored { dir: dir.into() },
            Found::Empty | Found::Complete(_) => FolderError::Absent { dir: dir.into() },
        }
    }

    /// The record, as it was when the folder was opened.
    #[must_use]
    pub const fn record(&self) -> &FsRecord {
        &self.record
    }

    /// The record as it is now.
    #[must_use]
    pub fn current_record(&self) -> FsRecord {
        let ranks = if self.allows_ranks() { INCOMPAT_RANKS } else { 0 };
        FsRecord { incompat: self.record.incompat | ranks, ..self.record.clone() }
    }

    /// What the folder's counter was raised to by opening it: higher than any life of any rank before.
    #[must_use]
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Notes, durably, that a life of a rank has this incarnation. To be called before that life writes anything: a counter behind it
    /// would be given out again by whoever opens the folder later and does not ask the cluster map, and fsck takes the header of a
    /// journal segment with a higher incarnation for damaged.
    ///
    /// # Errors
    /// `Io`.
    pub fn note_incarnation(&self, incarnation: Incarnation) -> Result<(), FolderError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if incarnation > written.incarnation {
            write_incarnation(&self.root, incarnation)?;
            written.incarnation = incarnation;
        }
        Ok(())
    }

    /// Says in the record, durably, that there may be ranks above 0. To be called before anything of one is made: versions that know
    /// rank 0 only would overlook the journals of the others.
    ///
    /// # Errors
    /// `Io`.
    pub fn allow_ranks(&self) -> Result<(), FolderError> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.ranks {
            let record = FsRecord { incompat: self.record.incompat | INCOMPAT_RANKS, ..self.record.clone() };
            write_whole(&self.root, RECORD, &record.encode())?;
            written.ranks = true;
        }
        Ok(())
    }

    /// Whether the record says that there may be ranks above 0.
    #[must_use]
    pub fn allows_ranks(&self) -> bool {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).ranks
    }

    /// The root of the `Disk` that holds `cluster/`.
    #[must_use]
    pub fn registry_root(&self) -> PathBuf {
        self.root.clone()
    }

    /// Tells whoever wants the folder that it will be free in a moment.
    ///
    /// # Errors
    /// The lock file could not be written; then others give up at once, as for any folder in use.
    pub fn mark_ending(&self) -> std::io::Result<()> {
        self.lock.mark_ending()
    }

    /// The folder of the LMDB environments.
    #[must_use]
    pub fn meta(&self) -> PathBuf {
        meta_folder(&self.root, &self.record)
    }

    /// The root of the `Disk` that holds `journal/`.
    #[must_use]
    pub fn journal_root(&self) -> PathBuf {
        part_root(&self.root, &self.record.journal_dir)
    }

    /// The root of the `Disk` that holds `data/`.
    #[must_use]
    pub fn data_root(&self) -> PathBuf {
        part_root(&self.root, &self.record.data_dir)
    }

    /// Opens the metadata store.
    ///
    /// # Errors
    /// `Store`.
    pub fn open_meta(&self) -> Result<LmdbMeta, FolderError> {
        let options = LmdbOptions { environments: self.record.environments, map_bytes: None, create: false };
        Ok(LmdbMeta::open(&self.meta(), options)?)
    }

    /// The space kept for unlink and checkpoints, on the devices of metadata and journal.
    #[must_use]
    pub fn ballast(&self) -> Ballast {
        let mut roots = vec![part_root(&self.root, &self.record.meta_dir), self.journal_root()];
        roots.dedup();
        Ballast::new(&roots)
    }

    fn parts_elsewhere(&self) -> Vec<(&'static str, PathBuf)> {
        parts_elsewhere(&self.record)
    }
}

/// Looks at a folder without changing it.
///
/// # Errors
/// `Strangers`, `NewerFormat`, `Features`, `Damaged`, `Io`.
pub fn inspect(dir: &Path) -> Result<Found, FolderError> {
    let names = names(dir)?;
    if names.iter().any(|name| name == RECORD) {
        return read_record(dir);
    }
    refuse_strangers(dir, &names)?;
    if names.iter().any(|name| name == RESTORE) {
        return Ok(Found::HalfRestored);
    }
    match names.iter().find(|name| matches!(name.as_str(), "meta" | "journal" | "data" | "cluster")) {
        // Never taken for an empty folder: format would begin anew over somebody's files.
        Some(part) => {
            let what = format!("is missing, but {part} is there");
            Err(FolderError::Damaged { path: dir.join(RECORD), what })
        }
        None => Ok(Found::Empty),
    }
}

/// Whether this process may write into a formatted folder. Changes nothing.
///
/// # Errors
/// `Io` on the folder itself: read-only, or not this user's.
pub fn check_writable(dir: &Path) -> Result<(), FolderError> {
    match OpenOptions::new().write(true).open(dir.join(lock::LOCK)) {
        Err(error) if is_closed(error.kind()) => Err(io_error(dir, error)),
        // Whatever else is wrong with the lock is told when it is taken.
        _ => Ok(()),
    }
}

fn read_record(dir: &Path) -> Result<Found, FolderError> {
    let path = dir.join(RECORD);
    let bytes = fs::read(&path).map_err(|error| io_error(&path, error))?;
    let record = match FsRecord::decode(&bytes) {
        Ok(record) => record,
        Err(DecodeError::TooNew { found, supported }) => {
            return Err(FolderError::NewerFormat { dir: dir.into(), found, supported });
        }
        Err(error) => return Err(FolderError::Damaged { path, what: error.to_string() }),
    };
    let bits = (record.incompat & !INCOMPAT_KNOWN) | record.ro_compat;
    if bits != 0 {
        return Err(FolderError::Features { dir: dir.into(), bits });
    }
    let marker = dir.join(RESTORE);
    Ok(match record.complete {
        true => Found::Complete(record),
        false if marker.try_exists().map_err(|error| io_error(&marker, error))? => Found::HalfRestored,
        false => Found::Half(record),
    })
}

/// The first eight hex digits of a file system's id, for people.
#[must_use]
pub fn short_id(record: &FsRecord) -> String {
    hex(&record.fsid[..4])
}

/// The whole id, as the attribute `ceph.cluster_fsid` has it, for programs.
#[must_use]
pub fn full_id(record: &FsRecord) -> String {
    let id = &record.fsid;
    [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]].map(hex).join("-")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names in a folder, sorted; none when it is not there.
fn names(dir: &Path) -> Result<Vec<String>, FolderError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(dir, error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| io_error(dir, error))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

fn refuse_strangers(dir: &Path, names: &[String]) -> Result<(), FolderError> {
    let ours = |name: &&String| !(name.starts_with("pando.") || FOLDERS.contains(&name.as_str()));
    let strangers: Vec<&String> = names.iter().filter(ours).collect();
    if strangers.is_empty() {
        return Ok(());
    }
    let shown = strangers.iter().take(SHOWN).map(|name| (*name).clone()).collect();
    let more = strangers.len().saturating_sub(SHOWN);
    Err(FolderError::Strangers { dir: dir.into(), shown, more })
}

/// Raises the incarnation and makes it durable before anything is done in its name.
fn begin_incarnation(dir: &Path) -> Result<Incarnation, FolderError> {
    let path = dir.join(INCARNATION);
    let bytes = fs::read(&path).map_err(|error| io_error(&path, error))?;
    let number = bytes.first_chunk::<8>().copied().unwrap_or_default();
    if bytes.len() != 12 || bytes[8..] != crc32c(&number).to_le_bytes() {
        return Err(FolderError::Damaged { path, what: "checksum mismatch".into() });
    }
    let next = Incarnation(u64::from_le_bytes(number) + 1);
    write_incarnation(dir, next)?;
    Ok(next)
}

fn write_incarnation(dir: &Path, incarnation: Incarnation) -> Result<(), FolderError> {
    let mut bytes = incarnation.0.to_le_bytes().to_vec();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    write_whole(dir, INCARNATION, &bytes)
}

/// Replaces a file so that a crash leaves the old content or the new.
fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), FolderError> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, &path));
    written.map_err(|error| io_error(&path, error))?;
    sync_dir(dir)
}

fn sync_dir(dir: &Path) -> Result<(), FolderError> {
    crate::disk_real::sync_path(dir).map_err(|error| io_error(dir, error))
}

fn part_root(root: &Path, elsewhere: &str) -> PathBuf {
    if elsewhere.is_empty() { root.into() } else { elsewhere.into() }
}

fn meta_folder(root: &Path, record: &FsRecord) -> PathBuf {
    part_root(root, &record.meta_dir).join("meta")
}

fn parts_elsewhere(record: &FsRecord) -> Vec<(&'static str, PathBuf)> {
    let parts = [("meta", &record.meta_dir), ("journal", &record.journal_dir), ("data", &record.data_dir)];
    parts.into_iter().filter(|(_, dir)| !dir.is_empty()).map(|(part, dir)| (part, dir.into())).collect()
}

/// What `pando.member` says: one line for all parts of the file system in that folder.
fn member_text(record: &FsRecord) -> String {
    format!("PandoFS {}\n", hex(&record.fsid))
}

fn check_member(record: &FsRecord, part: &'static str, place: &Path) -> Result<(), FolderError> {
    let path = place.join(MEMBER);
    match fs::read_to_string(&path) {
        Ok(text) if text == member_text(record) => Ok(()),
        Ok(_) => Err(FolderError::OtherFileSystem { dir: place.into(), part }),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(FolderError::PartMissing { dir: place.into(), part })
        }
        Err(error) => Err(io_error(&path, error)),
    }
}

#[cfg(test)]
mod tests;
