//! Opening an environment's file: its tables, and zeros behind its last page.
//!
//! Absent: what is read and written there (`environment`).

use super::PAGE_BYTES;
use super::environment::store_error;
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use proto::storeio::{StoreError, Table};
use std::path::Path;

const READERS_MAX: u32 = 512;
const TABLES: [(Table, &str); 3] =
    [(Table::Dentry, "dentry"), (Table::Backptr, "backptr"), (Table::System, "system")];
/// Zeros behind the last page: a damaged page's offsets then lead to zeros, not past the file's end,
/// where a mapped read kills the process.
const TAIL_BYTES: u64 = 128 << 10;

pub(super) type Records = Database<'static, Bytes, Bytes>;

/// An open environment.
pub(super) struct Live {
    pub(super) env: Env<WithoutTls>,
    pub(super) tables: [Records; 3],
}

impl Live {
    pub(super) fn open(place: &str, path: &Path, map_bytes: u64, create: bool) -> Result<Self, StoreError> {
        let bad = |error: &heed::Error| store_error(place, error);
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.max_readers(READERS_MAX).max_dbs(TABLES.len() as u32);
        options.map_size(usize::try_from(map_bytes).unwrap_or(usize::MAX));
        // SAFETY: none of these flags weakens durability or isolation.
        unsafe { options.flags(EnvFlags::NO_SUB_DIR | EnvFlags::NO_READ_AHEAD) };
        // SAFETY: the folder's lock keeps other processes away from the file, which only LMDB writes;
        // heed refuses to open it twice in this one.
        let env = unsafe { options.open(path) }.map_err(|error| bad(&error))?;
        pad(&env).map_err(|error| bad(&error))?;
        let tables = if create {
            let txn = env.write_txn().map_err(|error| bad(&error))?;
            env.create_databases_and_commit(txn, |opener, txn| {
                let mut make = |name| opener.create_database::<Bytes, Bytes>(txn, Some(name));
                let [a, b, c] = TABLES;
                let made = [make(a.1)?, make(b.1)?, make(c.1)?];
                Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(made.map(Some)))
            })
        } else {
            let txn = env.read_txn().map_err(|error| bad(&error))?;
            env.open_databases_and_commit(txn, |opener, txn| {
                let open = |name| opener.open_database::<Bytes, Bytes>(txn, Some(name));
                let [a, b, c] = TABLES;
                Ok(CommitOrAbort::<_, ()>::Commit([open(a.1)?, open(b.1)?, open(c.1)?]))
            })
        };
        match tables.map_err(|error| bad(&error))?.commit() {
            Some([Some(dentry), Some(backptr), Some(system)]) => {
                Ok(Self { env, tables: [dentry, backptr, system] })
            }
            _ => Err(StoreError::Damaged { at: place.into(), what: "a table is missing".into() }),
        }
    }
}

/// Lengthens the file, sparsely, to past its last page: LMDB may have left pages at the end unwritten,
/// and a file that was cut must read as damaged pages instead of killing the process.
fn pad(env: &Env<WithoutTls>) -> heed::Result<()> {
    let pages = env.info().last_page_number as u64 + 1;
    let wanted = pages * PAGE_BYTES + TAIL_BYTES;
    if env.real_disk_size()? < wanted {
        let file = std::fs::OpenOptions::new().write(true).open(env.path())?;
        file.set_len(wanted)?;
    }
    Ok(())
}
