//! Backup: one file with the file-system record, every metadata record, every file's data. Streaming,
//! checksummed, consistent: the rank is brought to rest by a checkpoint and requests are held back
//! while it is copied, so all of it is one moment's state.
//!
//! Absent: increments, and copying while requests run (both come with snapshots).

mod container;
mod content;
mod registry;
mod restore;
mod task;

pub use restore::{restore, verify};
pub(crate) use task::{Task, start};

use crate::driver::{FreezeError, freeze};
use crate::life::RankLife;
use crate::server::Server;
use container::{ChunkWriter, Kind};
use content::Content;
use proto::cluster::{ClusterMap, MapError};
use proto::fsrecord::FsRecord;
use proto::storeio::{StoreError, Table};
use proto::{DecodeError, RankId};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::folder::FolderError;
use store::registry::MAP;
use thiserror::Error;

/// Why there is no backup, or no file system from it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    #[error("not a PandoFS backup")]
    Foreign,
    #[error("backup version {found}; this version reads up to {supported}")]
    Newer { found: u32, supported: u32 },
    #[error("damaged at {at:#x}: {what}")]
    Damaged { at: u64, what: String },
    #[error("{}: lies inside a FUSE mount, which stands still during a backup", .path.display())]
    InsideMount { path: PathBuf },
    #[error("another backup is running")]
    Busy,
    #[error("no checkpoint completed within a minute (is the disk full?)")]
    Restless,
    #[error("the server is damaged ({0}): stop it and run pando fsck on its data folder")]
    RankDamaged(String),
    #[error("the file system's epoch is {epoch}, the last there is: it cannot be restored once more")]
    LastEpoch { epoch: u32 },
    #[error("this server has no data folder")]
    NoFolder,
    #[error("no rank has a life now, or one began or ended meanwhile")]
    NoLife,
    /// What its journal has and the store has not would be left out.
    #[error(
        "rank {} has no life, and the backup would be without what only its journal has: `pando fs status` says why; \
        give it a slot (`pando serve --ranks`) or end what keeps it from serving, then make the backup", .0.0
    )]
    Lifeless(RankId),
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl BackupError {
    /// Whether something that was read is not what was once written.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Decode(_) | Self::Store(StoreError::Damaged { .. }))
    }

    /// Whether the same can succeed in another state of the server, or by another version.
    #[must_use]
    pub const fn is_state(&self) -> bool {
        matches!(
            self,
            Self::Newer { .. }
                | Self::Busy
                | Self::Restless
                | Self::LastEpoch { .. }
                | Self::NoLife
                | Self::Lifeless(_)
        )
    }
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    pub record: FsRecord,
    /// Metadata records.
    pub records: u64,
    /// Files with data.
    pub files: u64,
    /// Bytes of file data.
    pub data_bytes: u64,
    /// Bytes of the backup.
    pub bytes: u64,
}

/// Writes a backup of a running server to a new file at `path`, which appears when it is whole.
/// Requests wait meanwhile.
///
/// # Errors
/// `Busy`, `Restless`, `Lifeless`, `InsideMount`, `Store` when something to copy is damaged, `Io`.
pub fn create(server: &Server, path: &Path) -> Result<Summary, BackupError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Perhaps our own, whose requests wait.
    if runtime::process::is_fuse(folder)? {
        return Err(BackupError::InsideMount { path: path.to_owned() });
    }
    let mut partial = path.to_owned().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let result = write_file(server, &partial).and_then(|summary| {
        fs::rename(&partial, path)?;
        File::open(folder)?.sync_all()?;
        Ok(summary)
    });
    if result.is_err() {
        let _never_made_or_gone = fs::remove_file(&partial);
    }
    result
}

fn write_file(server: &Server, path: &Path) -> Result<Summary, BackupError> {
    let mut to = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let summary = write_to(server, &mut to)?;
    to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(summary)
}

/// Writes a backup of a running server as a stream.
///
/// # Errors
/// As `create`.
fn write_to(server: &Server, to: &mut dyn Write) -> Result<Summary, BackupError> {
    let opened = server.opened.as_ref().ok_or(BackupError::NoFolder)?;
    let record = opened.folder.current_record();
    let lives = server.stage.all();
    let drivers: Vec<_> = lives.iter().map(|life| life.driver.clone()).collect();
    let driver = drivers.first().ok_or(BackupError::NoLife)?;
    // Before anybody is made to wait: a request that waits for a rank without a life keeps the others from coming to rest.
    if let Some(map) = opened.registry.read(MAP)? {
        all_live(&map.bytes, &lives)?;
    }
    let _frozen = freeze(&drivers).map_err(|e| match e {
        FreezeError::AlreadyFrozen => BackupError::Busy,
        FreezeError::NotQuiescent => BackupError::Restless,
        FreezeError::Store(error) => BackupError::Store(error),
        FreezeError::Damaged(why) => BackupError::RankDamaged(why),
    })?;
    let map = opened.registry.read(MAP)?;
    if let Some(map) = &map {
        all_live(&map.bytes, &lives)?;
    }
    let mut chunks = ChunkWriter::begin(to, map.is_some())?;
    chunks.put(Kind::FsRecord, &record.encode())?;
    if let Some(map) = map {
        registry::put(&mut chunks, MAP, &map)?;
    }
    let mut content = Content::new(chunks, driver.data_io.as_ref());
    for table in [Table::System, Table::Dentry, Table::Backptr] {
        let mut failed = None;
        opened.meta.each(table, &mut |key, value| {
            let put = value.map_err(BackupError::from).and_then(|value| content.record(table, key, value));
            failed = put.err();
            failed.is_none()
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
    }
    let (counts, bytes) = content.end()?;
    let now = server.stage.all();
    let same = now.len() == lives.len() && now.iter().zip(&lives).all(|(a, b)| Arc::ptr_eq(a, b));
    if !same || drivers.iter().any(|driver| driver.is_halted()) {
        // What was copied last may be the next life's, or that of a rank that came meanwhile.
        return Err(BackupError::NoLife);
    }
    server.log.info("backup", "written", &[("records", &counts.records), ("bytes", &bytes)]);
    Ok(Summary { record, records: counts.records, files: counts.files, data_bytes: counts.data_bytes, bytes })
}

/// Whether every rank of the map has one of these lives. One that waits for a slot, or whose life did not begin, is in no list of lives,
/// and nobody has stored what its journal's tail says: a backup without that verified as good, and a file that was renamed from one rank
/// to another was in neither place. A rank that was never made has nothing.
fn all_live(map: &[u8], lives: &[Arc<RankLife>]) -> Result<(), BackupError> {
    let damaged = |e: MapError| StoreError::Damaged { at: "cluster/map".into(), what: e.to_string() };
    let map = ClusterMap::decode(map).map_err(damaged)?;
    let lives = |rank: RankId| lives.iter().any(|life| life.identity.rank == rank);
    match map.ranks.keys().find(|rank| map.made.has(**rank) && !lives(**rank)) {
        Some(rank) => Err(BackupError::Lifeless(*rank)),
        None => Ok(()),
    }
}
