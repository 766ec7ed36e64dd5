//! The metadata tables, walked in key order through the journal's overlay, every value's checksum verified.
//!
//! An environment is mapped only while it is walked, so that memory does not grow with the metadata.
//! Absent: the meaning of keys and values beyond the checksum; writing (`editor.rs`).

use crate::bytes::Bytes;
use crate::finding::{Found, Kind};
use crate::fix::{At, Fix};
use crate::folder::Folder;
use crate::journal::Statements;
use crate::pages::{self, Pages};
use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use std::path::{Path, PathBuf};
use stdx::checksum::crc32c_parts;
use stdx::hash::mix64;

pub(crate) type Records = Database<'static, Raw, Raw>;

/// Of an environment's map beyond its file, for what a repair adds.
const MAP_SLACK: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;
/// Zeros behind the last page: a damaged page's offsets then lead to zeros, not past the file's end,
/// where a mapped read kills the process.
const TAIL_BYTES: u64 = 128 << 10;
/// The longest stored value: a length beyond it comes from a damaged page and is not followed.
const STORED_BYTES_MAX: usize = 4 << 20;

/// A keyspace of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Dentry,
    Backptr,
    System,
}

impl Table {
    pub(crate) const ALL: [Self; 3] = [Self::Dentry, Self::Backptr, Self::System];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dentry => "dentry",
            Self::Backptr => "backptr",
            Self::System => "system",
        }
    }
}

/// An open environment.
pub(crate) struct Environment {
    pub(crate) env: Env<WithoutTls>,
    /// In the order of `Table::ALL`.
    pub(crate) tables: [Records; 3],
}

impl Environment {
    /// Opens one environment file; `None`: a table is missing in it.
    pub(crate) fn open(path: &Path, writable: bool) -> Result<Option<Self>, heed::Error> {
        let size = std::fs::metadata(path)?.len();
        let map = (size + MAP_SLACK).next_multiple_of(PAGE_BYTES).saturating_add(size);
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.max_dbs(3).map_size(usize::try_from(map).unwrap_or(usize::MAX) / 4096 * 4096);
        let mode = if writable { EnvFlags::empty() } else { EnvFlags::READ_ONLY };
        // SAFETY: the folder's lock is held, so no other process has the environment open, and this one
        // opens each environment once; LMDB's own lock file is therefore not needed.
        let env = unsafe {
            options.flags(EnvFlags::NO_SUB_DIR | EnvFlags::NO_LOCK | EnvFlags::NO_READ_AHEAD | mode);
            options.open(path)?
        };
        pad(&env, path)?;
        let opened = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
            let open = |table: Table| opener.open_database::<Raw, Raw>(txn, Some(table.name()));
            let [a, b, c] = Table::ALL;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit([open(a)?, open(b)?, open(c)?]))
        })?;
        Ok(match opened.commit() {
            Some([Some(a), Some(b), Some(c)]) => Some(Self { env, tables: [a, b, c] }),
            _ => None,
        })
    }

    pub(crate) fn records(&self, table: Table) -> Records {
        self.tables[table as usize]
    }

    /// Closes it; it may be opened again when this returns.
    pub(crate) fn close(self) {
        self.env.prepare_for_closing().wait();
    }
}

/// Lengthens the file, sparsely, to past its last page, as the server does when it opens it: pages at
/// the end may be unwritten, and a file that was cut must read as damage instead of killing the process.
fn pad(env: &Env<WithoutTls>, path: &Path) -> Result<(), heed::Error> {
    let wanted = (env.info().last_page_number as u64 + 1) * PAGE_BYTES + TAIL_BYTES;
    if std::fs::metadata(path)?.len() < wanted {
        std::fs::OpenOptions::new().write(true).open(path)?.set_len(wanted)?;
    }
    Ok(())
}

/// The environments of a folder.
pub(crate) struct Tables {
    meta: PathBuf,
    pub(crate) count: u16,
}

impl Tables {
    pub(crate) fn new(folder: &Folder) -> Self {
        Self { meta: folder.meta.clone(), count: folder.environments }
    }

    pub(crate) fn path(&self, environment: u16) -> PathBuf {
        self.meta.join(format!("env-{environment:02x}.mdb"))
    }

    /// Calls `visit(environment, key, value)` for every record of a table, overlay included, in key order
    /// within each environment. Values with a wrong checksum and environments that cannot be read are
    /// findings.
    pub(crate) fn walk(
        &self,
        table: Table,
        overlay: &Statements,
        found: &mut Found,
        mut visit: impl FnMut(&mut Found, u16, &[u8], &[u8]),
    ) {
        for number in 0..self.count {
            let said = overlay.iter().filter(|(key, _)| self.home(table, key) == number);
            let said = said.map(|(key, value)| (&**key, value.as_deref()));
            self.walk_one(number, table, said, found, &mut visit);
        }
    }

    /// Looks at the pages of every environment. One whose pages are damaged is a finding, and is not read.
    pub(crate) fn check_pages(&self, found: &mut Found) {
        for number in 0..self.count {
            let place = environment_name(number);
            match pages::check(&self.path(number)) {
                Pages::Good => {}
                Pages::Unreadable(what) => found.add(Kind::EnvironmentUnreadable, place, what),
                Pages::Unwritable(what) => {
                    found.add(Kind::FreePagesDamaged, place, what);
                    found.fix(Fix::Rewrite { environment: number });
                }
            }
        }
    }

    fn walk_one<'o>(
        &self,
        number: u16,
        table: Table,
        said: impl Iterator<Item = (&'o [u8], Option<&'o [u8]>)>,
        found: &mut Found,
        visit: &mut impl FnMut(&mut Found, u16, &[u8], &[u8]),
    ) {
        let mut said = said.peekable();
        let name = environment_name(number);
        let is_told = |found: &Found| {
            let is = |f: &crate::Finding| f.kind == Kind::EnvironmentUnreadable && f.place == name;
            found.report.findings.iter().any(is)
        };
        // LMDB is not let into pages that are known to be damaged: they could end the process.
        if is_told(found) {
            said.filter_map(|(key, value)| Some((key, value?)))
                .for_each(|(key, value)| visit(found, number, key, value));
            return;
        }
        let result = self.each(number, table, |key, stored| {
            while let Some((ahead, value)) = said.next_if(|(ahead, _)| *ahead < key) {
                value.into_iter().for_each(|value| visit(found, number, ahead, value));
            }
            if let Some((_, value)) = said.next_if(|(same, _)| *same == key) {
                value.into_iter().for_each(|value| visit(found, number, key, value));
                return;
            }
            match checked(key, stored) {
                Some(value) => visit(found, number, key, value),
                None => {
                    found.add(Kind::ValueDamaged, place(number, table, key), "");
                    found.fix(Fix::Damaged(At { environment: number, table, key: key.into() }));
                }
            }
        });
        for (key, value) in said {
            value.into_iter().for_each(|value| visit(found, number, key, value));
        }
        if let Err(what) = result {
            found.add(Kind::EnvironmentUnreadable, name, what);
        }
    }

    fn each(&self, number: u16, table: Table, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), String> {
        let text = |error: heed::Error| error.to_string();
        let opened = Environment::open(&self.path(number), false).map_err(text)?;
        let environment = opened.ok_or_else(|| "a table is missing".to_owned())?;
        let walked = each_record(&environment, table, &mut visit).map_err(text);
        environment.close();
        walked
    }

    /// Which environment a record belongs to: by the hash of its leading number.
    pub(crate) fn home(&self, table: Table, key: &[u8]) -> u16 {
        const SYSTEM: u64 = 3;
        let number = if table == Table::System { SYSTEM } else { Bytes(key).u64_be().unwrap_or(0) };
        (mix64(number) % u64::from(self.count)) as u16
    }
}

fn each_record(
    environment: &Environment,
    table: Table,
    visit: &mut impl FnMut(&[u8], &[u8]),
) -> Result<(), heed::Error> {
    let txn = environment.env.read_txn()?;
    for record in environment.records(table).iter(&txn)? {
        let (key, value) = record?;
        visit(key, value);
    }
    Ok(())
}

/// The value without its checksum, if that matches.
pub(crate) fn checked<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    if stored.len() > STORED_BYTES_MAX {
        return None;
    }
    let (crc, value) = stored.split_first_chunk::<4>()?;
    (crc32c_parts(&[key, value]) == u32::from_le_bytes(*crc)).then_some(value)
}

/// The stored form of a value.
pub(crate) fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut stored = crc32c_parts(&[key, value]).to_le_bytes().to_vec();
    stored.extend_from_slice(value);
    stored
}

pub(crate) fn environment_name(number: u16) -> String {
    format!("meta/env-{number:02x}")
}

/// Environment, table and key, for people.
pub(crate) fn place(environment: u16, table: Table, key: &[u8]) -> String {
    let environment = environment_name(environment);
    let mut b = Bytes(key);
    match (table, b.u64_be(), b.u64_be()) {
        (Table::Dentry, Some(dir), Some(0)) => format!("{environment} header of directory {dir:x}"),
        (Table::Dentry, Some(dir), Some(_)) => {
            let name = b.0.strip_suffix(&[0; 8]).unwrap_or(b.0);
            format!("{environment} name \"{}\" in directory {dir:x}", name.escape_ascii())
        }
        (Table::Backptr, Some(ino), None) => format!("{environment} backptr of inode {ino:x}"),
        (Table::System, ..) => system_place(&environment, key),
        _ => format!("{environment} {} key {}", table.name(), key.escape_ascii()),
    }
}

fn system_place(environment: &str, key: &[u8]) -> String {
    let mut b = Bytes(key);
    match (b.u8(), b.u64_be()) {
        (Some(1), Some(id)) => format!("{environment} session {id:x}"),
        (Some(4), Some(rank)) => match b.u64_be() {
            Some(id) => format!("{environment} session {id:x} of rank {rank}"),
            None => format!("{environment} system key {}", key.escape_ascii()),
        },
        (Some(2), Some(rank)) => format!("{environment} inode counter of rank {rank}"),
        (Some(3), Some(rank)) => format!("{environment} checkpoint of rank {rank}"),
        _ => format!("{environment} system key {}", key.escape_ascii()),
    }
}
