//! An environment made anew from its records: for one whose list of free pages is damaged, so that LMDB can neither write to it
//! nor compact it.
//!
//! Absent: judging records; they are copied as they are stored.

use crate::folder::{FsckError, io_error, sync_dir};
use crate::tables::{Environment, Records, Table, Tables, environment_name};
use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, PutFlags, WithoutTls};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

/// Records of one transaction.
const RECORDS: usize = 4096;
const PAGE_BYTES: u64 = 4096;
/// Of the new map: more than any copy of the old file needs.
const MAP_SLACK: u64 = 1 << 30;

impl Tables {
    /// Puts a copy of an environment's records in its place. A crash leaves the old one or the new one, and perhaps a copy that is
    /// not whole, which the next open removes.
    pub(crate) fn rewrite(&self, number: u16) -> Result<(), FsckError> {
        let path = self.path(number);
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error(&new)(error)),
            _ => {}
        }
        copy(&path, &new).map_err(|source| FsckError::Store { place: environment_name(number), source })?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(io_error(&new))?;
        fs::rename(&new, &path).map_err(io_error(&path))?;
        path.parent().map_or(Ok(()), sync_dir)
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), heed::Error> {
    let missing = || heed::Error::Io(ErrorKind::NotFound.into());
    let old = Environment::open(from, false)?.ok_or_else(missing)?;
    let (new, tables) = make(to, fs::metadata(from)?.len())?;
    for (table, records) in Table::ALL.into_iter().zip(tables) {
        copy_table(&old, table, &new, records)?;
    }
    new.prepare_for_closing().wait();
    old.close();
    Ok(())
}

/// An empty environment with its tables.
fn make(path: &Path, bytes: u64) -> Result<(Env<WithoutTls>, [Records; 3]), heed::Error> {
    let map = bytes.saturating_mul(2).saturating_add(MAP_SLACK) / PAGE_BYTES * PAGE_BYTES;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_dbs(3).map_size(usize::try_from(map).unwrap_or(usize::MAX / 4096 * 4096));
    // SAFETY: nobody else knows this file, and the folder's lock is held.
    let env = unsafe {
        options.flags(EnvFlags::NO_SUB_DIR | EnvFlags::NO_LOCK);
        options.open(path)?
    };
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
        let mut make = |table: Table| opener.create_database::<Raw, Raw>(txn, Some(table.name()));
        let [a, b, c] = Table::ALL;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit([make(a)?, make(b)?, make(c)?]))
    })?;
    let tables = made.commit().ok_or_else(|| heed::Error::Io(ErrorKind::Other.into()))?;
    Ok((env, tables))
}

fn copy_table(
    old: &Environment,
    table: Table,
    new: &Env<WithoutTls>,
    records: Records,
) -> Result<(), heed::Error> {
    let reader = old.env.read_txn()?;
    let mut writer = new.write_txn()?;
    for (index, record) in old.records(table).iter(&reader)?.enumerate() {
        let (key, value) = record?;
        if index % RECORDS == RECORDS - 1 {
            writer.commit()?;
            writer = new.write_txn()?;
        }
        records.put_with_flags(&mut writer, PutFlags::APPEND, key, value)?;
    }
    writer.commit()
}
