//! The data folder: its record, where its parts lie, and the lock that keeps servers out.
//!
//! Absent: repair of the record; a folder without a readable one is not examined.

use crate::bytes::Bytes;
use crate::finding::{Kind, Report};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use stdx::crc32c;
use stdx::hash::HashSeed;
use thiserror::Error;

/// Why a folder cannot be examined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FsckError {
    #[error("{} holds no file system", .0.display())]
    NoFileSystem(PathBuf),
    #[error("{} is in use by {by}", dir.display())]
    InUse { dir: PathBuf, by: String },
    #[error("{} has format {found}; this version reads 1", dir.display())]
    TooNew { dir: PathBuf, found: u32 },
    #[error("{}: the file-system record is damaged", .0.display())]
    RecordDamaged(PathBuf),
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// An opened and locked folder.
pub(crate) struct Folder {
    pub(crate) meta: PathBuf,
    pub(crate) journal: PathBuf,
    pub(crate) environments: u16,
    pub(crate) seed: HashSeed,
    _lock: File,
}

impl Folder {
    pub(crate) fn open(dir: &Path, report: &mut Report) -> Result<Self, FsckError> {
        let path = dir.join("pando.fs");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FsckError::NoFileSystem(dir.into()));
            }
            Err(source) => return Err(FsckError::Io { path, source }),
        };
        let lock = lock(dir)?;
        if bytes.get(..8) != Some(b"PandoFS\n") {
            return Err(FsckError::NoFileSystem(dir.into()));
        }
        let damaged = || FsckError::RecordDamaged(path.clone());
        let mut b = Bytes(&bytes[8..]);
        let (format, crc) = (b.u32().ok_or_else(damaged)?, b.u32().ok_or_else(damaged)?);
        if format > 1 {
            return Err(FsckError::TooNew { dir: dir.into(), found: format });
        }
        if crc32c(b.0) != crc {
            return Err(damaged());
        }
        read_record(b, dir, lock, report).ok_or_else(damaged)
    }
}

fn read_record(mut b: Bytes<'_>, dir: &Path, lock: File, report: &mut Report) -> Option<Folder> {
    let (_compat, ro_compat, incompat) = (b.u64()?, b.u64()?, b.u64()?);
    if incompat != 0 || ro_compat != 0 {
        report.add(
            Kind::IncompatibleFeature,
            "pando.fs",
            format!("incompat {incompat:#x}, ro {ro_compat:#x}"),
        );
    }
    b.take(16)?;
    b.bytes()?;
    let _function = b.u8()?;
    let seed = HashSeed(b.take(16)?.try_into().ok()?);
    let environments = b.u16()?;
    let (_small, _epoch) = (b.u32()?, b.u32()?);
    let mut part = |name: &str| -> Option<PathBuf> {
        let stated = std::str::from_utf8(b.bytes()?).ok()?;
        Some(if stated.is_empty() { dir.join(name) } else { PathBuf::from(stated) })
    };
    let (meta, journal, _data) = (part("meta")?, part("journal")?, part("data")?);
    Some(Folder { meta, journal, environments, seed, _lock: lock })
}

fn lock(dir: &Path) -> Result<File, FsckError> {
    let path = dir.join("lock");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| FsckError::Io { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            let mut words = holder.split_whitespace();
            let by = match (words.next(), words.next()) {
                (Some(pid), Some(host)) => format!("pid {pid} (host {host})"),
                _ => "another process".to_owned(),
            };
            Err(FsckError::InUse { dir: dir.into(), by })
        }
        Err(TryLockError::Error(source)) => Err(FsckError::Io { path, source }),
    }
}
