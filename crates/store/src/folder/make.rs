//! Making a file system in a folder: a fresh one, or one that goes on from a backup.
//!
//! Absent: looking at what is there (`folder.rs`).

use super::ballast::BALLAST_BYTES;
use super::error::{FolderError, io_error};
use super::lock::Lock;
use super::{
    Found, MEMBER, RECORD, RESTORE, check_member, inspect, member_text, meta_folder, names, part_root,
    parts_elsewhere, refuse_strangers, short_id, sync_dir, write_incarnation, write_whole,
};
use crate::initial::initial_batches;
use crate::meta::MetaStore;
use crate::meta_lmdb::{LmdbMeta, LmdbOptions};
use proto::fsrecord::{COMPAT_DATA_MARKED, FORMAT, FsRecord, HASH_SIPHASH_1_3, INCOMPAT_SESSIONS};
use proto::ids::Incarnation;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use stdx::Wall;
use stdx::hash::HashSeed;

/// Free space that each part needs to begin with and to be of use: environments and ballast; the first journal segments
/// and, where it lies alone, its own ballast; the first segment of small files and some data.
const META_NEEDS: u64 = BALLAST_BYTES + (16 << 20);
const JOURNAL_NEEDS: u64 = 16 << 20;
const DATA_NEEDS: u64 = 96 << 20;
const ENVIRONMENTS: u16 = 16;
/// The folder of the registry.
const CLUSTER: &str = crate::registry::FOLDER;

/// Choices of a format.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    pub name: String,
    /// Folders on other devices; made if absent, refused unless empty.
    pub meta_dir: Option<PathBuf>,
    pub journal_dir: Option<PathBuf>,
    pub data_dir: Option<PathBuf>,
    pub small_file_bytes: u32,
    pub environments: u16,
    /// The time of creation of the first directories.
    pub now: Wall,
    /// User and group of the root directory.
    pub owner: (u32, u32),
}

impl FormatOptions {
    /// The usual choices.
    #[must_use]
    pub fn new(now: Wall) -> Self {
        Self {
            name: "pandofs".into(),
            meta_dir: None,
            journal_dir: None,
            data_dir: None,
            small_file_bytes: 65_536,
            environments: ENVIRONMENTS,
            now,
            owner: (0, 0),
        }
    }
}

/// Makes a file system in an empty folder (made if absent), or finishes a half-formatted one.
///
/// # Errors
/// Every `FolderError` but `Absent` and `HalfFormatted`.
pub fn format(dir: &Path, options: &FormatOptions) -> Result<FsRecord, FolderError> {
    make(dir, options, None, |meta, record, _| {
        Ok(meta.apply(&initial_batches(&record.hash_seed, options.now, options.owner))?)
    })
}

/// Makes a file system that goes on from a backed-up one: identity, name hash, epoch and sizes are
/// those of `identity`, `options` says where its parts lie. `fill` writes the content into the empty
/// metadata store and under the root of `data/`; until it has returned the folder counts as half
/// restored, and a retry begins anew. When it fails, what it wrote is removed.
///
/// # Errors
/// As `format`, and those of `fill`.
pub fn format_from<E: From<FolderError>>(
    dir: &Path,
    options: &FormatOptions,
    identity: &FsRecord,
    fill: impl FnOnce(&LmdbMeta, &Path) -> Result<(), E>,
) -> Result<FsRecord, E> {
    make(dir, options, Some(identity), |meta, _, data_root| {
        // What an earlier try left.
        for place in [data_root.join("data"), dir.join(CLUSTER)] {
            match fs::remove_dir_all(&place) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(io_error(&place, error).into());
                }
                _ => {}
            }
        }
        fill(meta, data_root)
    })
}

fn make<E: From<FolderError>>(
    dir: &Path,
    options: &FormatOptions,
    identity: Option<&FsRecord>,
    fill: impl FnOnce(&LmdbMeta, &FsRecord, &Path) -> Result<(), E>,
) -> Result<FsRecord, E> {
    let restoring = identity.is_some();
    // Once before anything is written, so that a refusal leaves nothing behind, and once when nobody else may write.
    check_room(dir, &vetted_record(dir, options, identity)?)?;
    make_folder(dir)?;
    let _lock = Lock::take(dir)?;
    let mut record = vetted_record(dir, options, identity)?;
    let parts = parts_elsewhere(&record);
    // Before the record: nobody may take the folder for one that a format began, and make it an empty file system.
    if restoring {
        write_whole(dir, RESTORE, b"restore\n")?;
    }
    // The id is durable before the parts carry it, so that a format that stops here can be finished.
    write_whole(dir, RECORD, &record.encode())?;
    for (_, place) in &parts {
        make_folder(place)?;
        write_whole(place, MEMBER, member_text(&record).as_bytes())?;
    }
    let meta = meta_folder(dir, &record);
    clear_meta(&meta)?;
    fs::create_dir_all(&meta).map_err(|error| io_error(&meta, error))?;
    sync_dir(&part_root(dir, &record.meta_dir))?;
    let lmdb = LmdbOptions { environments: record.environments, map_bytes: None, create: true };
    let store = LmdbMeta::open(&meta, lmdb).map_err(FolderError::from)?;
    let data_root = part_root(dir, &record.data_dir);
    let filled = fill(&store, &record, &data_root);
    drop(store);
    if filled.is_err() && restoring {
        // Its space is wanted for the next try, which removes what is left, too.
        let _as_far_as_it_goes = (
            clear_meta(&meta),
            fs::remove_dir_all(data_root.join("data")),
            fs::remove_dir_all(dir.join(CLUSTER)),
        );
    }
    filled?;
    let data = data_root.join("data");
    fs::create_dir_all(&data).map_err(|error| io_error(&data, error))?;
    write_whole(&data, MEMBER, member_text(&record).as_bytes())?;
    sync_dir(&data_root)?;
    write_incarnation(dir, Incarnation(0))?;
    record.complete = true;
    write_whole(dir, RECORD, &record.encode())?;
    if restoring {
        let mark = dir.join(RESTORE);
        fs::remove_file(&mark).map_err(|error| io_error(&mark, error))?;
    }
    Ok(record)
}

/// The record to begin with, where the folder and those of its parts may be made this file system's.
fn vetted_record(
    dir: &Path,
    options: &FormatOptions,
    identity: Option<&FsRecord>,
) -> Result<FsRecord, FolderError> {
    let earlier = refuse_existing(dir, inspect(dir)?, identity.is_some())?;
    let mut record = new_record(options, earlier.map(|record| record.fsid))?;
    if let Some(identity) = identity {
        record = FsRecord {
            compat: record.compat | identity.compat,
            incompat: record.incompat | identity.incompat,
            meta_dir: record.meta_dir,
            journal_dir: record.journal_dir,
            data_dir: record.data_dir,
            complete: false,
            ..identity.clone()
        };
    }
    for (part, place) in parts_elsewhere(&record) {
        vet_part(&record, part, &place)?;
    }
    Ok(record)
}

/// Refused before anything is written: a format that runs out of space, or a file system that is full when it is new,
/// helps nobody.
pub(super) fn check_room(dir: &Path, record: &FsRecord) -> Result<(), FolderError> {
    let own_ballast = if record.journal_dir == record.meta_dir { 0 } else { BALLAST_BYTES };
    let parts = [
        (&record.meta_dir, META_NEEDS),
        (&record.journal_dir, JOURNAL_NEEDS + own_ballast),
        (&record.data_dir, DATA_NEEDS),
    ];
    let mut roots: Vec<(PathBuf, u64)> = Vec::new();
    for (elsewhere, needs) in parts {
        let root = part_root(dir, elsewhere);
        match roots.iter_mut().find(|(known, _)| *known == root) {
            Some((_, sum)) => *sum += needs,
            None => roots.push((root, needs)),
        }
    }
    for (root, needed) in roots {
        // A part's folder is made later: its device is that of the first folder above that is there.
        // Above a bare name is the empty path: the folder we are in.
        let there = root.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
        let space = crate::disk_real::space_of(there).map_err(|error| io_error(there, error))?;
        if space.available < needed {
            return Err(FolderError::TooSmall { dir: root, needed, available: space.available });
        }
    }
    Ok(())
}

fn refuse_existing(dir: &Path, found: Found, restoring: bool) -> Result<Option<FsRecord>, FolderError> {
    match found {
        Found::Empty => Ok(None),
        Found::HalfRestored if restoring => Ok(None),
        Found::HalfRestored => Err(FolderError::HalfRestored { dir: dir.into() }),
        Found::Half(record) => Ok(Some(record)),
        Found::Complete(record) => {
            let id = short_id(&record);
            Err(FolderError::Exists { dir: dir.into(), name: record.name, id })
        }
    }
}

pub(super) fn new_record(options: &FormatOptions, fsid: Option<[u8; 16]>) -> Result<FsRecord, FolderError> {
    let text = |dir: &Option<PathBuf>| -> Result<String, FolderError> {
        let Some(dir) = dir else { return Ok(String::new()) };
        let full = std::path::absolute(dir).map_err(|error| io_error(dir, error))?;
        full.into_os_string().into_string().map_err(|_| FolderError::NotText { dir: dir.clone() })
    };
    Ok(FsRecord {
        format: FORMAT,
        compat: COMPAT_DATA_MARKED,
        ro_compat: 0,
        incompat: INCOMPAT_SESSIONS,
        // The same id as an unfinished format's, whose mark the parts elsewhere carry.
        fsid: fsid.map_or_else(random, Ok)?,
        name: options.name.clone(),
        hash_function: HASH_SIPHASH_1_3,
        hash_seed: HashSeed(random()?),
        environments: options.environments.max(1),
        small_file_bytes: options.small_file_bytes,
        epoch: 0,
        meta_dir: text(&options.meta_dir)?,
        journal_dir: text(&options.journal_dir)?,
        data_dir: text(&options.data_dir)?,
        complete: false,
    })
}

/// Sixteen bytes that nobody can guess.
///
/// # Errors
/// `Io`.
pub fn random() -> Result<[u8; 16], FolderError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| io_error(path, error))?;
    Ok(bytes)
}

/// Whether a part may be made in this folder: it is empty or already marked as ours.
fn vet_part(record: &FsRecord, part: &'static str, place: &Path) -> Result<(), FolderError> {
    let names = names(place)?;
    refuse_strangers(place, &names)?;
    if names.iter().any(|name| name == MEMBER) {
        return check_member(record, part, place);
    }
    match names.split_first() {
        None => Ok(()),
        Some((name, others)) => {
            let shown = vec![name.clone()];
            Err(FolderError::Strangers { dir: place.into(), shown, more: others.len() })
        }
    }
}

/// Removes what an unfinished format left: environments that nobody can have used.
fn clear_meta(meta: &Path) -> Result<(), FolderError> {
    for name in names(meta)? {
        if name.starts_with("env-") {
            let path = meta.join(name);
            fs::remove_file(&path).map_err(|error| io_error(&path, error))?;
        }
    }
    Ok(())
}

/// Makes a folder, and those above it, whose names survive a power cut with what is synced in them.
fn make_folder(dir: &Path) -> Result<(), FolderError> {
    let above = |dir: &Path| match dir.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.into(),
        None => dir.into(),
    };
    let absent = |dir: &&Path| matches!(dir.try_exists(), Ok(false)) && !dir.as_os_str().is_empty();
    let made: Vec<&Path> = dir.ancestors().take_while(absent).collect();
    fs::create_dir_all(dir).map_err(|error| io_error(dir, error))?;
    for dir in made {
        match crate::disk_real::sync_path(&above(dir)) {
            // A folder that we may write to and not read: its own file system has to see to it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            synced => synced.map_err(|error| io_error(dir, error))?,
        }
    }
    Ok(())
}
