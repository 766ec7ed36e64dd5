//! Why a folder cannot be used, with the facts, and what to do about it.
//!
//! Absent: the verb and its exit code, which belong to the command line.

use proto::storeio::StoreError;
use std::fmt::{self, Display, Formatter};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a folder cannot be opened or formatted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    #[error("{} holds no file system and this mount may not create one", .dir.display())]
    Absent { dir: PathBuf },
    #[error("{}: files present that are not PandoFS's ({})", .dir.display(), Strangers(.shown, *.more))]
    Strangers { dir: PathBuf, shown: Vec<String>, more: usize },
    #[error("{} already holds file system {name} {id}", .dir.display())]
    Exists { dir: PathBuf, name: String, id: String },
    #[error("{} is half formatted: an earlier format did not finish", .dir.display())]
    HalfFormatted { dir: PathBuf },
    #[error("{} is half restored: an earlier restore from a backup did not finish", .dir.display())]
    HalfRestored { dir: PathBuf },
    #[error("{} has format {found}; this version reads {}", .dir.display(), Formats(*.supported))]
    NewerFormat { dir: PathBuf, found: u32, supported: u32 },
    #[error("{} uses features that this version does not know ({bits:#x})", .dir.display())]
    Features { dir: PathBuf, bits: u64 },
    /// `pid` 0: the owner did not write who it is. `ending`: it is about to let go.
    #[error("{} is in use by {}", .dir.display(), Owner(*.pid, .host))]
    InUse { dir: PathBuf, pid: u32, host: String, ending: bool },
    #[error("{} should hold this file system's {part} and does not", .dir.display())]
    PartMissing { dir: PathBuf, part: &'static str },
    #[error("{} belongs to another file system", .dir.display())]
    OtherFileSystem { dir: PathBuf, part: &'static str },
    #[error("{}: needs at least {} MiB free, has {}", .dir.display(), .needed >> 20, .available >> 20)]
    TooSmall { dir: PathBuf, needed: u64, available: u64 },
    #[error("{}: the name is not valid text", .dir.display())]
    NotText { dir: PathBuf },
    #[error("{}: {what}", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl FolderError {
    /// The step that helps, for the line `do: STEP`.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Absent { dir } => format!("is the disk mounted? else `pando format {}`", dir.display()),
            Self::Strangers { .. } => "choose an empty folder".into(),
            Self::Exists { dir, .. } => {
                format!("`pando mount {} MNT`, or choose another folder", dir.display())
            }
            Self::HalfFormatted { dir } => format!("`pando format {}` again", dir.display()),
            Self::HalfRestored { dir } => {
                format!("restore again: `pando backup restore FILE {}`", dir.display())
            }
            Self::NewerFormat { .. } | Self::Features { .. } => "use a later version".into(),
            Self::InUse { dir, .. } => format!("stop it, or mount unix:{}/pando.sock", dir.display()),
            Self::PartMissing { .. } => "is the disk mounted? else restore it from a backup".into(),
            Self::OtherFileSystem { .. } => "mount the disk that belongs there".into(),
            Self::TooSmall { .. } => "free some, or choose a folder on a larger device".into(),
            Self::NotText { .. } => "choose a folder whose name is UTF-8".into(),
            // Without the record nothing else in the folder can be read.
            Self::Damaged { path, .. } if path.ends_with(super::RECORD) => {
                "restore the file system into an empty folder: `pando backup restore FILE DIR`".into()
            }
            Self::Damaged { path, .. } => {
                format!("`pando fsck {}`", path.parent().unwrap_or(path).display())
            }
            // An environment: its pages have no second copy, so fsck could only say the same again.
            Self::Store(StoreError::Damaged { .. }) => {
                "restore the file system into an empty folder: `pando backup restore FILE DIR`".into()
            }
            Self::Io { source, .. } => return io_remedy(source.kind()).map(Into::into),
            Self::Store(_) => return None,
        })
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the errors of a system: those that we know a remedy for")]
const fn io_remedy(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::PermissionDenied => Some("run it as the user who owns the folder, or as root"),
        ErrorKind::ReadOnlyFilesystem => Some("remount its disk writable, or choose another folder"),
        ErrorKind::NotADirectory => Some("name a folder"),
        _ => None,
    }
}

struct Strangers<'a>(&'a [String], usize);

impl Display for Strangers<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))?;
        if self.1 > 0 { write!(f, ", {} more", self.1) } else { Ok(()) }
    }
}

struct Formats(u32);

impl Display for Formats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 1 { f.write_str("1") } else { write!(f, "1 to {}", self.0) }
    }
}

struct Owner<'a>(u32, &'a str);

impl Display for Owner<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            f.write_str("another process")
        } else {
            write!(f, "pid {} (host {})", self.0, self.1)
        }
    }
}

/// Whether the whole folder is closed to this process, and not only the file that showed it.
pub(super) const fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

pub(super) fn io_error(path: &Path, source: io::Error) -> FolderError {
    FolderError::Io { path: path.into(), source }
}
