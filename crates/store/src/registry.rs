//! The registry: small records that are replaced whole by compare-and-swap. What the processes that serve one file system
//! must agree on (the cluster map) is kept here.
//!
//! `RegistryFiles` keeps each as a file `cluster/NAME` on the `Disk` seam, so that the simulator runs the same code. A swap writes
//! `cluster/NAME.new`, syncs it, exchanges it with the record and syncs the folder: a crash leaves the old record or the new one. What
//! was the record is written over by the next swap: to sync a file that has its blocks and its length takes half as long as a fresh
//! one, and requests wait for the map when something changes hands.
//!
//! Absent: the meaning of records; exclusion between processes, which is the lock of the data folder.

mod file;

pub use file::{RECORD_BYTES_MAX, RECORD_HEADER_BYTES, decode, encode};

use crate::disk::{Disk, DiskFile};
use proto::Errno;
use proto::codec::DecodeError;
use proto::storeio::{IoError, StoreError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The folder of the records below the root of the disk.
pub const FOLDER: &str = "cluster";
/// The name of the record that holds the cluster map.
pub const MAP: &str = "map";
/// The name of the record that holds what tokens of sessions are made of.
pub const JOIN_KEY: &str = "join-key";
/// Letters of a record's name at most.
const NAME_BYTES_MAX: usize = 64;

/// A record as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How often it was replaced; 1 is the first.
    pub version: u64,
    pub bytes: Vec<u8>,
}

/// Why a record was not replaced.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SwapError {
    /// Somebody else replaced it (0: it is absent). Nothing was changed.
    #[error("the record has version {stored}")]
    Stale { stored: u64 },
    /// After `NoSpace` the old record is there. After any other error it is the old one or the new one.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Records by name. All methods may block.
pub trait Registry: Send + Sync {
    /// The record and its version; `None` if it was never written. What it returns a crash cannot take back.
    ///
    /// # Errors
    /// `Damaged`, `Io`, `Poisoned`.
    fn read(&self, name: &str) -> Result<Option<Record>, StoreError>;

    /// Replaces the record if its version is `expected` (0: it must be absent). Returns the new version, `expected` + 1. Durable
    /// when it returns.
    ///
    /// # Errors
    /// `Stale` if it has another version, else that of the store; after a failed write or sync it is poisoned until reopened.
    fn swap(&self, name: &str, expected: u64, bytes: &[u8]) -> Result<u64, SwapError>;

    /// Serves on after a failed write or sync: whatever record is there is written again as a whole, so that it is durable without
    /// the sync that failed.
    ///
    /// # Errors
    /// `Damaged`, `NoSpace`, `Io`; then it stays poisoned.
    fn recover(&self, name: &str) -> Result<(), StoreError>;
}

/// The registry as files. One object per folder and process: exclusion inside the process is its mutex.
pub struct RegistryFiles<D: Disk> {
    disk: D,
    state: Mutex<State>,
}

struct State {
    poisoned: bool,
}

impl<D: Disk> RegistryFiles<D> {
    /// Opens the registry on the disk that holds `cluster/`; it may be absent.
    ///
    /// # Errors
    /// `Io`.
    pub fn open(disk: D) -> Result<Self, StoreError> {
        // A process that was killed between a rename and the sync of the folder left a record that a crash of the machine could
        // still take back: nobody may act on it before it is durable.
        if !stdx::mutant!("registry_reads_undurable") {
            disk.sync_folder(FOLDER)?;
        }
        Ok(Self { disk, state: Mutex::new(State { poisoned: false }) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record as its file has it.
    fn stored(&self, name: &str) -> Result<Option<Record>, StoreError> {
        let path = format!("{FOLDER}/{name}");
        let Some(file) = self.disk.open(&path)? else { return Ok(None) };
        let damaged = |error: &DecodeError| StoreError::Damaged { at: path.clone(), what: error.to_string() };
        let size = file.size()?;
        let too_long = || DecodeError::TooLong { what: "record", len: size };
        let size = usize::try_from(size).map_err(|_| damaged(&too_long()))?;
        if size > RECORD_HEADER_BYTES + RECORD_BYTES_MAX {
            return Err(damaged(&too_long()));
        }
        let mut bytes = vec![0; size];
        let count = file.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        decode(&bytes).map(Some).map_err(|error| damaged(&error))
    }

    /// Writes the new record beside the old one and makes it durable. After an error the old one is untouched. What is written over is
    /// durably not the record: the folder was synced since the two were exchanged.
    fn prepare(&self, new: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.disk.create(new)?;
        if file.size()? != bytes.len() as u64 {
            file.set_len(bytes.len() as u64)?;
        }
        file.write_at(bytes, 0)?;
        if stdx::mutant!("registry_no_sync") { Ok(()) } else { file.sync_data() }
    }

    /// Writes a record that is absent with a version that it had elsewhere: in a file system that goes on from a backup. Durable when
    /// it returns.
    ///
    /// # Errors
    /// As `swap`.
    pub fn adopt(&self, name: &str, version: u64, bytes: &[u8]) -> Result<(), SwapError> {
        let before = version.checked_sub(1).ok_or_else(|| misuse(name, Errno::EINVAL))?;
        self.put(name, 0, before, bytes).map(|_| ())
    }

    /// Replaces the record of version `expected` by one of the version behind `before`.
    fn put(&self, name: &str, expected: u64, before: u64, bytes: &[u8]) -> Result<u64, SwapError> {
        check_name(name)?;
        let mut state = self.lock();
        if state.poisoned {
            return Err(StoreError::Poisoned.into());
        }
        let stored = self.stored(name)?.map_or(0, |record| record.version);
        if stored != expected {
            return Err(SwapError::Stale { stored });
        }
        let version = before.checked_add(1).ok_or_else(|| misuse(name, Errno::EOVERFLOW))?;
        let record = encode(version, bytes).ok_or_else(|| misuse(name, Errno::EFBIG))?;
        let replaced = self.replace(name, &record);
        state.poisoned |= replaced.as_ref().is_err_and(|error| *error != StoreError::NoSpace);
        replaced?;
        Ok(version)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (path, new) = (format!("{FOLDER}/{name}"), format!("{FOLDER}/{name}.new"));
        if let Err(error) = self.prepare(&new, bytes) {
            if error == StoreError::NoSpace {
                self.disk.remove(&new)?;
            }
            return Err(error);
        }
        self.disk.exchange(&new, &path)?;
        if stdx::mutant!("registry_no_folder_sync") { Ok(()) } else { self.disk.sync_folder(FOLDER) }
    }
}

impl<D: Disk> Registry for RegistryFiles<D> {
    fn read(&self, name: &str) -> Result<Option<Record>, StoreError> {
        check_name(name)?;
        // Under the mutex: between a rename and the sync of the folder the new record is not durable yet.
        let state = self.lock();
        if state.poisoned {
            return Err(StoreError::Poisoned);
        }
        self.stored(name)
    }

    fn swap(&self, name: &str, expected: u64, bytes: &[u8]) -> Result<u64, SwapError> {
        self.put(name, expected, expected, bytes)
    }

    fn recover(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let mut state = self.lock();
        if !state.poisoned {
            return Ok(());
        }
        match self.stored(name)? {
            Some(record) => {
                let bytes =
                    encode(record.version, &record.bytes).ok_or_else(|| misuse(name, Errno::EFBIG))?;
                // If the sync of the folder failed, a crash may find this file as the record.
                if !stdx::mutant!("registry_recovers_in_place") {
                    self.disk.remove(&format!("{FOLDER}/{name}.new"))?;
                }
                self.replace(name, &bytes)?;
            }
            None => self.disk.sync_folder(FOLDER)?,
        }
        state.poisoned = false;
        Ok(())
    }
}

/// The key of sessions' tokens. It is made once: by whoever is first, of bytes that nobody can guess.
///
/// # Errors
/// As `Registry::read` and `Registry::swap`; `Damaged` if what is there is no key.
pub fn join_key(registry: &dyn Registry, fresh: &[u8; 16]) -> Result<[u8; 16], StoreError> {
    let odd = || StoreError::Damaged { at: format!("{FOLDER}/{JOIN_KEY}"), what: "no key".to_owned() };
    if registry.read(JOIN_KEY)?.is_none() {
        match registry.swap(JOIN_KEY, 0, fresh) {
            // Somebody else's, then.
            Ok(_) | Err(SwapError::Stale { .. }) => {}
            Err(SwapError::Store(error)) => return Err(error),
        }
    }
    let record = registry.read(JOIN_KEY)?.ok_or_else(odd)?;
    record.bytes.try_into().map_err(|_| odd())
}

/// Names become file names: lower-case letters, digits and `-`, so that none leads out of the folder or ends in `.new`.
fn check_name(name: &str) -> Result<(), StoreError> {
    let ours = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(ours) {
        return Ok(());
    }
    Err(misuse(name, Errno::EINVAL))
}

fn misuse(name: &str, errno: Errno) -> StoreError {
    StoreError::Io { at: format!("{FOLDER}/{name:?}"), source: IoError(errno.0) }
}

#[cfg(test)]
mod tests;
