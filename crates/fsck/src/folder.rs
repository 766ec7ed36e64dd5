//! The data folder: its record, where its parts lie, and the lock that keeps servers out.
//!
//! Absent: repair of the record; without the hash seed nothing in a folder can be found.

use crate::bytes::{Bytes, Out};
use crate::finding::{Found, Kind, Report};
use crate::fix::Fix;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use stdx::crc32c;
use stdx::hash::HashSeed;
use thiserror::Error;

const RECORD: &str = "pando.fs";
const RECORD_NEW: &str = "pando.fs.new";
/// Where the lowest byte of `incompat` lies in the record.
const INCOMPAT_AT: usize = 32;
const LOCK: &str = "pando.lock";
const INCARNATION: &str = "pando.incarnation";
const INCARNATION_NEW: &str = "pando.incarnation.new";
/// Incompatible feature: flags of sessions, and numbers delegated to them.
const INCOMPAT_SESSIONS: u64 = 1;
/// Incompatible feature: ranks above 0.
const INCOMPAT_RANKS: u64 = 2;
const MEMBER: &str = "pando.member";
const RESTORE: &str = "pando.restore";

/// Why a folder cannot be examined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FsckError {
    #[error("{} holds no file system", .0.display())]
    NoFileSystem(PathBuf),
    #[error("{} is half formatted: an earlier format did not finish", .0.display())]
    HalfFormatted(PathBuf),
    #[error("{} is half restored: an earlier restore from a backup did not finish", .0.display())]
    HalfRestored(PathBuf),
    #[error("{} is in use by {by}", dir.display())]
    InUse { dir: PathBuf, by: String },
    #[error("{} has format {found}; this version reads 1", dir.display())]
    TooNew { dir: PathBuf, found: u32 },
    #[error("{} uses features that this version does not know ({bits:#x})", dir.display())]
    Features { dir: PathBuf, bits: u64 },
    #[error("{}: the file-system record is damaged", .0.display())]
    RecordDamaged(PathBuf),
    /// Repair would lose what the journal holds behind the damage; see `RepairOptions`. The report is that of a check.
    #[error("{}: the journal is damaged: {what}", dir.display())]
    JournalDamaged { dir: PathBuf, what: String, report: Box<Report> },
    /// A start ends them: what one rank has done and another has not yet is no damage. The report has what is damage in any case, which
    /// may keep the file system from starting.
    #[error("{}: transactions of several ranks are under way ({count}): serve the file system once, which ends them, and stop it", dir.display())]
    Undecided { dir: PathBuf, count: usize, report: Box<Report> },
    /// Repair needs every part: what is not there would be taken for lost.
    #[error("{}: {part}: the part is not marked as this file system's; nothing was changed", dir.display())]
    PartForeign { dir: PathBuf, part: String },
    /// Repair needs every environment. The report is that of a check.
    #[error("{}: {what}", dir.display())]
    EnvironmentUnreadable { dir: PathBuf, what: String, report: Box<Report> },
    /// Repair began and came upon what it cannot go on without.
    #[error("{}: {what}", dir.display())]
    Unreadable { dir: PathBuf, what: String },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{place}: {source}")]
    Store { place: String, source: heed::Error },
}

impl FsckError {
    /// Whether bytes are lost that have no second copy: only a backup brings them back.
    #[must_use]
    pub fn wants_backup(&self) -> bool {
        use heed::{Error, MdbError};
        match self {
            Self::RecordDamaged(_) | Self::EnvironmentUnreadable { .. } | Self::Unreadable { .. } => true,
            Self::Store { source: Error::Io(source), .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Store { source: Error::Mdb(error), .. } => {
                matches!(error, MdbError::Invalid | MdbError::Corrupted | MdbError::PageNotFound)
            }
            Self::NoFileSystem(_)
            | Self::HalfFormatted(_)
            | Self::HalfRestored(_)
            | Self::InUse { .. }
            | Self::TooNew { .. }
            | Self::Features { .. }
            | Self::JournalDamaged { .. }
            | Self::Undecided { .. }
            | Self::PartForeign { .. }
            | Self::Io { .. }
            | Self::Store { .. } => false,
        }
    }
}

pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FsckError {
    move |source| FsckError::Io { path: path.into(), source }
}

/// An opened and locked folder.
pub(crate) struct Folder {
    pub(crate) root: PathBuf,
    pub(crate) meta: PathBuf,
    pub(crate) journal: PathBuf,
    /// The folder that holds `data/`.
    pub(crate) data_root: PathBuf,
    pub(crate) environments: u16,
    pub(crate) seed: HashSeed,
    pub(crate) epoch: u32,
    /// The record says that there may be ranks above 0.
    pub(crate) ranks: bool,
    /// `None` when it cannot be read.
    pub(crate) incarnation: Option<u64>,
    /// Folders elsewhere, and `data/`, that must be marked as this file system's, and the mark.
    members: Vec<PathBuf>,
    member: String,
    _lock: File,
}

impl Folder {
    pub(crate) fn open(dir: &Path) -> Result<Self, FsckError> {
        let path = dir.join(RECORD);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FsckError::NoFileSystem(dir.into()));
            }
            Err(source) => return Err(FsckError::Io { path, source }),
        };
        let lock = lock(dir)?;
        let damaged = || FsckError::RecordDamaged(path.clone());
        let mut b = Bytes(&bytes);
        let (magic, format, crc) = (b.take(8), b.u32(), b.u32());
        let (Some(magic), Some(format), Some(crc)) = (magic, format, crc) else { return Err(damaged()) };
        if magic != b"PandoFS\n" {
            return Err(damaged());
        }
        if format > 1 {
            return Err(FsckError::TooNew { dir: dir.into(), found: format });
        }
        // No version wrote format 0, and the checksum does not cover the number.
        if format == 0 || crc32c(b.0) != crc {
            return Err(damaged());
        }
        let record = read_record(b).ok_or_else(damaged)?;
        if record.features != 0 {
            return Err(FsckError::Features { dir: dir.into(), bits: record.features });
        }
        if !record.complete {
            // What cannot be looked at is no reason to offer a fresh format.
            let restoring = dir.join(RESTORE).try_exists().unwrap_or(true);
            let half = if restoring { FsckError::HalfRestored } else { FsckError::HalfFormatted };
            return Err(half(dir.into()));
        }
        Ok(record.into_folder(dir, lock))
    }

    /// Checks the small files beside the record.
    pub(crate) fn check(&mut self, found: &mut Found) {
        for path in &self.members {
            if !fs::read(path).is_ok_and(|text| text == self.member.as_bytes()) {
                found.add(Kind::PartForeign, path.display().to_string(), "");
            }
        }
        // A repair may have said so by now.
        let record = fs::read(self.root.join(RECORD)).unwrap_or_default();
        self.ranks = record.get(INCOMPAT_AT).is_some_and(|byte| byte & INCOMPAT_RANKS as u8 != 0);
        self.incarnation = read_incarnation(&self.root);
        if self.incarnation.is_none() {
            found.add(Kind::IncarnationDamaged, INCARNATION, "");
        }
    }

    /// Says in the file-system record that there may be ranks above 0.
    pub(crate) fn declare_ranks(&self) -> Result<(), FsckError> {
        let path = self.root.join(RECORD);
        let mut bytes = fs::read(&path).map_err(io_error(&path))?;
        if let Some(byte) = bytes.get_mut(INCOMPAT_AT) {
            *byte |= INCOMPAT_RANKS as u8;
        }
        let crc = crc32c(bytes.get(16..).unwrap_or_default()).to_le_bytes();
        bytes.get_mut(12..16).into_iter().for_each(|place| place.copy_from_slice(&crc));
        write_whole(&self.root, RECORD, RECORD_NEW, &bytes)
    }

    /// Where the segments of a rank's journal lie.
    pub(crate) fn journal_of(&self, rank: u16) -> PathBuf {
        if rank == 0 { self.journal.clone() } else { self.journal.join(format!("{rank:04x}")) }
    }

    /// Writes the incarnation file.
    pub(crate) fn write_incarnation(&self, number: u64) -> Result<(), FsckError> {
        let mut out = Out::default();
        out.u64(number);
        let crc = crc32c(&out.0);
        out.u32(crc);
        write_whole(&self.root, INCARNATION, INCARNATION_NEW, &out.0)
    }
}

struct Record {
    /// `data/` carries the mark.
    data_marked: bool,
    ranks: bool,
    features: u64,
    fsid: [u8; 16],
    seed: HashSeed,
    environments: u16,
    epoch: u32,
    parts: [String; 3],
    complete: bool,
}

fn read_record(mut b: Bytes<'_>) -> Option<Record> {
    let (compat, ro_compat, incompat) = (b.u64()?, b.u64()?, b.u64()?);
    let fsid = b.take(16)?.try_into().ok()?;
    b.bytes()?;
    let function = b.u8()?;
    let seed = HashSeed(b.take(16)?.try_into().ok()?);
    let environments = b.u16()?;
    let (_small, epoch) = (b.u32()?, b.u32()?);
    let mut part = || String::from_utf8(b.bytes()?.to_vec()).ok();
    let parts = [part()?, part()?, part()?];
    let complete = b.u8()? == 1;
    let good = function == 1 && environments > 0;
    good.then_some(Record {
        data_marked: compat & 1 != 0,
        ranks: incompat & INCOMPAT_RANKS != 0,
        features: ro_compat | (incompat & !(INCOMPAT_SESSIONS | INCOMPAT_RANKS)),
        fsid,
        seed,
        environments,
        epoch,
        parts,
        complete,
    })
}

impl Record {
    fn into_folder(self, dir: &Path, lock: File) -> Folder {
        let fsid: String = self.fsid.iter().map(|byte| format!("{byte:02x}")).collect();
        let elsewhere = self.parts.iter().filter(|part| !part.is_empty());
        let mut members: Vec<PathBuf> = elsewhere.map(|part| Path::new(part).join(MEMBER)).collect();
        let [meta, journal, data_root] =
            self.parts.map(|part| if part.is_empty() { dir.to_path_buf() } else { part.into() });
        if self.data_marked {
            members.push(data_root.join("data").join(MEMBER));
        }
        Folder {
            root: dir.into(),
            meta: meta.join("meta"),
            journal: journal.join("journal"),
            data_root,
            environments: self.environments,
            seed: self.seed,
            epoch: self.epoch,
            ranks: self.ranks,
            incarnation: None,
            members,
            member: format!("PandoFS {fsid}\n"),
            _lock: lock,
        }
    }
}

/// The correction of an incarnation that cannot be read: higher than any that was.
pub(crate) fn incarnation_fix(folder: &Folder, newest: u64, found: &mut Found) {
    const JUMP: u64 = 1000;
    if folder.incarnation.is_none() {
        found.fix(Fix::Incarnation { number: newest + JUMP });
    }
}

fn read_incarnation(dir: &Path) -> Option<u64> {
    let bytes = fs::read(dir.join(INCARNATION)).ok()?;
    let mut b = Bytes(&bytes);
    let (number, crc) = (b.u64()?, b.u32()?);
    (b.is_empty() && crc32c(&bytes[..8]) == crc).then_some(number)
}

fn lock(dir: &Path) -> Result<File, FsckError> {
    let path = dir.join(LOCK);
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(io_error(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Whoever holds it may be about to write its name; then it stays unnamed.
            let _ = file.read_to_string(&mut holder);
            let mut words = holder.lines().next().unwrap_or_default().split_whitespace();
            let by = match (words.next(), words.next()) {
                (Some(pid), Some(host)) => format!("pid {pid} (host {host})"),
                _ => "another process".to_owned(),
            };
            return Err(FsckError::InUse { dir: dir.into(), by });
        }
        Err(TryLockError::Error(source)) => return Err(FsckError::Io { path, source }),
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let owner = format!("{} {}\n", std::process::id(), host.trim());
    let written = file.set_len(0).and_then(|()| file.write_all(owner.as_bytes()));
    written.map_err(io_error(&path))?;
    Ok(file)
}

/// Replaces a file so that a crash leaves the old content or the new. What a crash leaves of the file `new`, a server's next start
/// replaces or removes: it knows the name (docs/FORMAT.md).
pub(crate) fn write_whole(dir: &Path, name: &str, new: &str, bytes: &[u8]) -> Result<(), FsckError> {
    let (path, new) = (dir.join(name), dir.join(new));
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, &path));
    written.map_err(io_error(&path))?;
    sync_dir(dir)
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), FsckError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error(dir))
}
