//! Reading a backup: verify looks at all of it, restore makes a file system of it.
//!
//! A restored file system has the old identity and the next epoch: generations and counters go on
//! from there, so no file handle or number given out after the backup ever names something else.
//!
//! Absent: restoring single files.

use super::container::{ChunkReader, Kind};
use super::content::{Counts, Piece, Record};
use super::registry::{Gathered, Whole};
use super::{BackupError, Summary};
use proto::fsrecord::FsRecord;
use proto::storeio::{DataOp, Payload, StoreBatch, StoreKey};
use proto::system::{CheckpointRecord, decode_counter};
use proto::{Ino, RankId, Reader};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use store::data::{DataFiles, Limits};
use store::disk_real::RealDisk;
use store::folder::{self, FormatOptions};
use store::meta::MetaStore;
use store::meta_lmdb::LmdbMeta;
use store::registry::{RegistryFiles, SwapError};

/// Metadata gathered before it is written.
const BATCH_BYTES: usize = 8 << 20;
/// Inode numbers left out after a restore: a million a second for three hours after the backup.
const NUMBERS_SKIPPED: u64 = 10_000_000_000;

/// Takes what a backup holds, piece by piece.
trait Target {
    fn record(&mut self, record: Record<'_>) -> Result<(), BackupError>;
    fn piece(&mut self, piece: Piece<'_>) -> Result<(), BackupError>;
    fn registry(&mut self, record: Whole) -> Result<(), BackupError>;
}

/// Looks only.
struct Nothing;

impl Target for Nothing {
    fn record(&mut self, record: Record<'_>) -> Result<(), BackupError> {
        StoreKey::decode(record.table, record.key)?;
        Ok(())
    }

    fn piece(&mut self, _: Piece<'_>) -> Result<(), BackupError> {
        Ok(())
    }

    fn registry(&mut self, record: Whole) -> Result<(), BackupError> {
        record.restored().map(|_| ())
    }
}

/// Reads a backup to its end and checks every checksum and count.
///
/// # Errors
/// `Foreign`, `Newer`, `Damaged` with the place, `Io`.
pub fn verify(path: &Path) -> Result<Summary, BackupError> {
    let mut chunks = ChunkReader::begin(open(path)?)?;
    let record = first(&mut chunks)?;
    rest(chunks, record, &mut Nothing)
}

fn open(path: &Path) -> Result<BufReader<File>, BackupError> {
    Ok(BufReader::with_capacity(1 << 20, File::open(path)?))
}

fn first(chunks: &mut ChunkReader<BufReader<File>>) -> Result<FsRecord, BackupError> {
    let at = chunks.at();
    match chunks.next()? {
        (Kind::FsRecord, body) => Ok(FsRecord::decode(body)?),
        _ => Err(BackupError::Damaged { at, what: "no file-system record at the start".into() }),
    }
}

fn rest(
    mut chunks: ChunkReader<BufReader<File>>,
    record: FsRecord,
    target: &mut dyn Target,
) -> Result<Summary, BackupError> {
    let mut counts = Counts::default();
    let mut gathered = Gathered::default();
    let mut last_file = None;
    loop {
        let at = chunks.at();
        counts.chunks = chunks.count();
        let (kind, body) = chunks.next()?;
        match kind {
            Kind::FsRecord => {
                return Err(BackupError::Damaged { at, what: "a second file-system record".into() });
            }
            Kind::Records => {
                let mut r = Reader::new(body);
                while !r.is_empty() {
                    target.record(Record::decode(&mut r)?)?;
                    counts.records += 1;
                }
            }
            Kind::Data => {
                let piece = Piece::decode(body)?;
                counts.data_bytes += piece.data.len() as u64;
                if last_file != Some(piece.file) {
                    last_file = Some(piece.file);
                    counts.files += 1;
                }
                target.piece(piece)?;
            }
            Kind::Registry => {
                if let Some(whole) = gathered.take(body, at)? {
                    target.registry(whole)?;
                }
            }
            Kind::Trailer => {
                gathered.check_end(at)?;
                if Counts::decode(body)? != counts {
                    return Err(BackupError::Damaged { at, what: "counts do not match".into() });
                }
                let bytes = chunks.at();
                chunks.finish()?;
                let Counts { records, files, data_bytes, .. } = counts;
                return Ok(Summary { record, records, files, data_bytes, bytes });
            }
        }
    }
}

/// Makes a file system in the empty folder `dir` from a backup. `places` says where its parts lie.
/// Until everything is there the folder counts as half restored.
///
/// # Errors
/// As `verify`, and those of formatting.
pub fn restore(path: &Path, dir: &Path, places: &FormatOptions) -> Result<Summary, BackupError> {
    let mut chunks = ChunkReader::begin(open(path)?)?;
    let mut record = first(&mut chunks)?;
    record.epoch = next_epoch(&record)?;
    let mut summary = None;
    folder::format_from(dir, places, &record, |meta, data_root| -> Result<(), BackupError> {
        let disk = RealDisk::new(data_root);
        let data = DataFiles::open(disk, record.small_file_bytes, Limits::default())?;
        let mut filler = Filler {
            meta,
            data,
            registry: RegistryFiles::open(RealDisk::new(dir))?,
            batches: BTreeMap::new(),
            counters: BTreeMap::new(),
            bytes: 0,
        };
        let all = rest(chunks, record.clone(), &mut filler)?;
        filler.finish()?;
        summary = Some(all);
        Ok(())
    })?;
    summary.ok_or_else(|| BackupError::Damaged { at: 0, what: "nothing was restored".into() })
}

/// The epoch of what is restored. A number used again would give out what the file system has given out before.
fn next_epoch(record: &FsRecord) -> Result<u32, BackupError> {
    record.epoch.checked_add(1).ok_or(BackupError::LastEpoch { epoch: record.epoch })
}

/// Writes into fresh stores.
struct Filler<'a> {
    meta: &'a LmdbMeta,
    data: DataFiles<RealDisk>,
    registry: RegistryFiles<RealDisk>,
    batches: BTreeMap<Ino, StoreBatch>,
    bytes: usize,
    counters: BTreeMap<RankId, u64>,
}

impl Target for Filler<'_> {
    fn record(&mut self, record: Record<'_>) -> Result<(), BackupError> {
        let key = StoreKey::decode(record.table, record.key)?;
        match key {
            // The new journal begins at 0, and nobody resumes a session of the old file system.
            StoreKey::Checkpoint { rank } => {
                let next = CheckpointRecord::decode(record.value)?.next_ino;
                self.skip_numbers(rank, next);
                return Ok(());
            }
            StoreKey::Counter { rank } => {
                self.skip_numbers(rank, decode_counter(record.value)?);
                return Ok(());
            }
            StoreKey::Session { .. } => return Ok(()),
            StoreKey::Dentry { .. } | StoreKey::Header { .. } | StoreKey::Backptr { .. } => {}
        }
        let batch = self.batches.entry(key.shard()).or_insert_with(|| StoreBatch::new(key.shard(), None));
        batch.put(key, |w| {
            w.raw(record.value);
        });
        self.bytes += record.key.len() + record.value.len();
        if self.bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece<'_>) -> Result<(), BackupError> {
        let data = Payload::Owned(piece.data.to_vec());
        self.data.run(&DataOp::Write { file: piece.file, cut: piece.cut, offset: piece.offset, data })?;
        Ok(())
    }

    fn registry(&mut self, record: Whole) -> Result<(), BackupError> {
        let Whole { name, version, bytes } = record.restored()?;
        match self.registry.adopt(&name, version, &bytes) {
            Ok(()) => Ok(()),
            Err(SwapError::Store(error)) => Err(error.into()),
            Err(SwapError::Stale { .. }) => {
                Err(BackupError::Damaged { at: 0, what: format!("{name:?} is there twice") })
            }
        }
    }
}

impl Filler<'_> {
    /// Numbers given out after the backup are not given out again.
    fn skip_numbers(&mut self, rank: RankId, next: u64) {
        let next = next.saturating_add(NUMBERS_SKIPPED);
        let known = self.counters.entry(rank).or_insert(next);
        *known = next.max(*known);
    }

    /// Writes what is known only at the end.
    fn finish(&mut self) -> Result<(), BackupError> {
        let mut batch = StoreBatch::new(Ino::SYSTEM, None);
        for (rank, next) in std::mem::take(&mut self.counters) {
            batch.put(StoreKey::Counter { rank }, |w| {
                w.u64(next);
            });
        }
        self.flush()?;
        self.meta.apply(&[batch])?;
        self.data.run(&DataOp::SyncAll)?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        let batches: Vec<StoreBatch> = std::mem::take(&mut self.batches).into_values().collect();
        self.bytes = 0;
        Ok(self.meta.apply(&batches)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::container::ChunkWriter;
    use super::*;
    use proto::fsrecord::{FORMAT, HASH_SIPHASH_1_3};
    use stdx::Wall;
    use stdx::hash::HashSeed;

    /// It went on at 0 in a shipped build: numbers of the first epoch would have been given out again.
    #[test]
    fn behind_the_last_epoch_there_is_none() {
        let record = FsRecord {
            format: FORMAT,
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            fsid: [3; 16],
            name: "pandofs".into(),
            hash_function: HASH_SIPHASH_1_3,
            hash_seed: HashSeed([9; 16]),
            environments: 1,
            small_file_bytes: 4096,
            epoch: u32::MAX,
            meta_dir: String::new(),
            journal_dir: String::new(),
            data_dir: String::new(),
            complete: true,
        };
        let folder = tempfile::tempdir().expect("a folder");
        let (file, dir) = (folder.path().join("backup"), folder.path().join("fs"));
        let mut chunks = ChunkWriter::begin(Vec::new(), false).expect("begin");
        chunks.put(Kind::FsRecord, &record.encode()).expect("put");
        std::fs::write(&file, chunks.end()).expect("written");
        let error = restore(&file, &dir, &FormatOptions::new(Wall(1))).expect_err("no epoch is left");
        assert!(matches!(error, BackupError::LastEpoch { epoch: u32::MAX }), "{error}");
        assert!(!error.is_damage() && !dir.exists());
        let before = FsRecord { epoch: u32::MAX - 1, ..record };
        assert!(next_epoch(&before).is_ok_and(|epoch| epoch == u32::MAX));
    }
}
