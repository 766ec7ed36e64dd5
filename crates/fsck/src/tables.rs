//! The metadata tables, walked in key order through the journal's overlay, every value's checksum verified.
//!
//! Absent: meaning of keys and values beyond the checksum; writing.

use crate::bytes::Bytes;
use crate::finding::{Kind, Report};
use crate::folder::{Folder, FsckError};
use crate::journal::Statements;
use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions};
use stdx::checksum::crc32c_parts;
use stdx::hash::mix64;

/// One environment.
struct Environment {
    name: String,
    env: Env,
}

/// All environments of a folder, read-only.
pub(crate) struct Tables {
    environments: Vec<Environment>,
}

impl Tables {
    /// Opens every environment; one that cannot be read is a finding and is left out.
    pub(crate) fn open(folder: &Folder, report: &mut Report) -> Result<Self, FsckError> {
        let mut environments = Vec::new();
        for number in 0..folder.environments {
            let name = format!("meta/env-{number:02}");
            let path = folder.meta.join(format!("env-{number:02}"));
            let size = std::fs::metadata(path.join("data.mdb")).map_or(0, |meta| meta.len());
            let mut options = EnvOpenOptions::new();
            options.max_dbs(8).map_size(map_size(size));
            // SAFETY: the folder's lock is held, so no other process writes the environment while it is mapped, and this
            // process opens each environment once and only reads.
            let opened = unsafe {
                options.flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK);
                options.open(&path)
            };
            match opened {
                Ok(env) => environments.push(Environment { name, env }),
                Err(error) => report.add(Kind::EnvironmentUnreadable, name, error.to_string()),
            }
        }
        Ok(Self { environments })
    }

    /// Calls `visit(key, value)` for every record of a table, overlay included, in key order within each environment.
    pub(crate) fn walk(
        &self,
        table: &str,
        overlay: &Statements,
        report: &mut Report,
        mut visit: impl FnMut(&mut Report, &str, &[u8], &[u8]),
    ) {
        for (number, environment) in self.environments.iter().enumerate() {
            let mut said = overlay
                .iter()
                .filter(|(key, _)| self.home(key) == number)
                .map(|(key, value)| (&**key, value.as_deref()))
                .peekable();
            let result = environment.each(table, |key, stored| {
                while let Some((ahead, value)) = said.next_if(|(ahead, _)| *ahead < key) {
                    value.into_iter().for_each(|value| visit(report, &environment.name, ahead, value));
                }
                if let Some((_, value)) = said.next_if(|(same, _)| *same == key) {
                    value.into_iter().for_each(|value| visit(report, &environment.name, key, value));
                    return;
                }
                match checked(key, stored) {
                    Some(value) => visit(report, &environment.name, key, value),
                    None => report.add(Kind::ValueDamaged, place(&environment.name, table, key), ""),
                }
            });
            for (key, value) in said {
                value.into_iter().for_each(|value| visit(report, &environment.name, key, value));
            }
            if let Err(error) = result {
                let place = format!("{} {table}", environment.name);
                report.add(Kind::EnvironmentUnreadable, place, error.to_string());
            }
        }
    }

    /// The position of rank 0's checkpoint; `None` when there is none.
    pub(crate) fn checkpoint(&self, report: &mut Report) -> Option<u64> {
        let mut position = None;
        let key = [&[3][..], &0_u64.to_be_bytes()].concat();
        self.walk("system", &Statements::new(), report, |report, name, found, value| {
            if found == key {
                position = Bytes(value).u64();
                if position.is_none() {
                    report.add(Kind::CheckpointUnreadable, place(name, "system", found), "");
                }
            }
        });
        position
    }

    /// Which environment a key of `dentry` or `backptr` belongs to: by the hash of its leading number.
    fn home(&self, key: &[u8]) -> usize {
        let number = Bytes(key).u64_be().unwrap_or(0);
        (mix64(number) % self.environments.len().max(1) as u64) as usize
    }
}

impl Environment {
    fn each(&self, table: &str, mut visit: impl FnMut(&[u8], &[u8])) -> Result<(), heed::Error> {
        let opened = self.env.open_databases_and_commit(self.env.read_txn()?, |opener, txn| {
            opener.open_database::<Raw, Raw>(txn, Some(table)).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        let Some(table) = opened.commit().flatten() else { return Ok(()) };
        let txn = self.env.read_txn()?;
        for record in table.iter(&txn)? {
            let (key, value) = record?;
            visit(key, value);
        }
        Ok(())
    }
}

/// The value without its checksum, if that matches.
fn checked<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (value, crc) = stored.split_last_chunk::<4>()?;
    (crc32c_parts(&[key, value]) == u32::from_le_bytes(*crc)).then_some(value)
}

/// Environment, table and key, for people.
pub(crate) fn place(environment: &str, table: &str, key: &[u8]) -> String {
    let mut b = Bytes(key);
    match (table, b.u64_be(), b.u64_be()) {
        ("dentry", Some(dir), Some(0)) => format!("{environment} header of directory {dir}"),
        ("dentry", Some(dir), Some(_)) => {
            let name = b.0.strip_suffix(&[0; 8]).unwrap_or(b.0);
            format!("{environment} name \"{}\" in directory {dir}", name.escape_ascii())
        }
        ("backptr", Some(ino), _) => format!("{environment} backptr of inode {ino}"),
        _ => format!("{environment} {table} key {}", key.escape_ascii()),
    }
}

/// LMDB wants a multiple of the page size that covers the file.
fn map_size(file: u64) -> usize {
    let page = 1 << 20;
    usize::try_from(file.div_ceil(page) * page).unwrap_or(usize::MAX).max(page as usize)
}
