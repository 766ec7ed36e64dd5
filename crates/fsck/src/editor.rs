//! Carries out corrections of the metadata: gathered in memory, then one transaction per environment.
//!
//! What is moved aside goes, as text, to a file `fsck-removed-N` in the data folder, durably before the
//! tables change. Absent: deciding what is wrong.

mod dump;
mod rescue;

use crate::bytes::Bytes;
use crate::edit;
use crate::fix::{At, DataFix, Fix, Rest, Spot};
use crate::folder::{Folder, FsckError};
use crate::journal::{Overlay, Statements};
use crate::record::{self, DIRECTORY, Dentry, FLAG_BACKPTR, Frag, header_key};
use crate::system::{counter_keys, session_key};
use crate::tables::{Environment, Table, Tables, checked, environment_name, place, sealed};
use dump::Dump;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::{SystemTime, UNIX_EPOCH};

/// Open environments and the changes to come.
pub(crate) struct Editor<'a> {
    folder: &'a Folder,
    tables: &'a Tables,
    environments: Vec<Environment>,
    pending: BTreeMap<At, Option<Vec<u8>>>,
    dump: Dump,
    now: i64,
    /// The next number for an inode that a repair makes.
    next_ino: u64,
    lost_found: Option<u64>,
    /// Inodes that got a new record.
    rebuilt: BTreeSet<u64>,
    /// The cluster map is to be replaced, once what it says is kept.
    pub(crate) forget_map: bool,
    /// Corrections of the data store that were met.
    pub(crate) data: Vec<DataFix>,
}

fn failed(environment: u16) -> impl FnOnce(heed::Error) -> FsckError {
    move |source| FsckError::Store { place: environment_name(environment), source }
}

impl<'a> Editor<'a> {
    pub(crate) fn open(folder: &'a Folder, tables: &'a Tables, next_ino: u64) -> Result<Self, FsckError> {
        let mut environments = Vec::new();
        for number in 0..tables.count {
            let opened = Environment::open(&tables.path(number), true).map_err(failed(number))?;
            environments.push(opened.ok_or_else(|| FsckError::Unreadable {
                dir: folder.root.clone(),
                what: format!("{}: a table is missing", environment_name(number)),
            })?);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
        let dump = Dump::new(&folder.root);
        Ok(Self {
            folder,
            tables,
            environments,
            pending: BTreeMap::new(),
            dump,
            now,
            next_ino,
            lost_found: None,
            rebuilt: BTreeSet::new(),
            forget_map: false,
            data: Vec::new(),
        })
    }

    /// Writes the tails of the journals into the tables; replay of each rank's then starts at its position.
    pub(crate) fn fold(&mut self, overlay: &Overlay, positions: &BTreeMap<u16, u64>) {
        let mut take = |table, statements: &Statements| {
            for (key, value) in statements {
                let at = self.at(table, key.clone());
                self.pending.insert(at, value.as_ref().map(|value| value.to_vec()));
            }
        };
        take(Table::Dentry, &overlay.dentry);
        take(Table::Backptr, &overlay.backptr);
        take(Table::System, &overlay.system.records(positions));
        for (rank, id) in &overlay.closed {
            let at = self.at(Table::System, session_key(*rank, *id));
            self.pending.insert(at, None);
        }
    }

    /// Makes all changes durable, the environment of the system records last: a crash before it leaves
    /// the old checkpoint, and the journal's tail is replayed over what is there.
    pub(crate) fn commit(mut self) -> Result<(), FsckError> {
        if let Some(bytes) = crate::cluster::bytes(self.folder).filter(|_| self.forget_map) {
            self.dump.add("cluster/map", b"map", &bytes);
        }
        self.dump.finish()?;
        let system = self.tables.home(Table::System, &[]);
        let numbers = (0..self.tables.count).filter(|number| *number != system);
        for number in numbers.chain([system]) {
            self.commit_one(number).map_err(failed(number))?;
        }
        self.environments.into_iter().for_each(Environment::close);
        Ok(())
    }

    fn commit_one(&self, number: u16) -> Result<(), heed::Error> {
        let environment = &self.environments[usize::from(number)];
        let changes = self.pending.iter().filter(|(at, _)| at.environment == number);
        let mut changes = changes.peekable();
        if changes.peek().is_none() {
            return Ok(());
        }
        let mut txn = environment.env.write_txn()?;
        for (at, value) in changes {
            let records = environment.records(at.table);
            match value {
                Some(value) => records.put(&mut txn, &at.key, &sealed(&at.key, value))?,
                None => {
                    records.delete(&mut txn, &at.key)?;
                }
            }
        }
        txn.commit()
    }

    fn at(&self, table: Table, key: Box<[u8]>) -> At {
        At { environment: self.tables.home(table, &key), table, key }
    }

    /// The stored bytes, checksum included, whatever they are.
    fn stored(&self, at: &At) -> Result<Option<Vec<u8>>, FsckError> {
        let Some(environment) = self.environments.get(usize::from(at.environment)) else { return Ok(None) };
        let read = || -> Result<Option<Vec<u8>>, heed::Error> {
            let txn = environment.env.read_txn()?;
            Ok(environment.records(at.table).get(&txn, &at.key)?.map(<[u8]>::to_vec))
        };
        read().map_err(failed(at.environment))
    }

    /// A record's value, as it will be after the changes so far.
    fn get(&self, at: &At) -> Result<Option<Vec<u8>>, FsckError> {
        if let Some(value) = self.pending.get(at) {
            return Ok(value.clone());
        }
        Ok(self.stored(at)?.and_then(|stored| checked(&at.key, &stored).map(<[u8]>::to_vec)))
    }

    fn put(&mut self, at: At, value: Vec<u8>) {
        self.pending.insert(at, Some(value));
    }

    fn delete(&mut self, at: At) {
        self.pending.insert(at, None);
    }

    /// Writes a record to the dump and deletes it.
    fn remove(&mut self, at: At) -> Result<(), FsckError> {
        let value = match self.pending.get(&at) {
            Some(value) => value.clone(),
            None => self.stored(&at)?,
        };
        if let Some(value) = value {
            self.dump.add(&place(at.environment, at.table, &at.key), &at.key, &value);
        }
        self.delete(at);
        Ok(())
    }

    /// Where a primary dentry is.
    fn find(&self, spot: &Spot) -> Result<Option<At>, FsckError> {
        let (dir, hash, ino) = match spot {
            Spot::At(at) => return Ok(Some(at.clone())),
            Spot::Inode { dir, hash, ino } => (*dir, *hash, *ino),
        };
        let from = [dir.to_be_bytes(), hash.to_be_bytes()].concat();
        let home = self.tables.home(Table::Dentry, &from);
        let search = || -> Result<Option<At>, heed::Error> {
            let environment = &self.environments[usize::from(home)];
            let txn = environment.env.read_txn()?;
            let range = (Bound::Included(&from[..]), Bound::Unbounded);
            for record in environment.records(Table::Dentry).range(&txn, &range)? {
                let (key, stored) = record?;
                if !key.starts_with(&from) {
                    break;
                }
                let dentry = checked(key, stored).and_then(|value| record::dentry(value, &mut Vec::new()));
                if matches!(dentry, Some(Dentry::Primary(inode)) if inode.ino == ino) {
                    return Ok(Some(At { environment: home, table: Table::Dentry, key: key.into() }));
                }
            }
            Ok(None)
        };
        search().map_err(failed(home))
    }

    /// Prepares one correction. `rest` tells what is there of an inode without a record.
    pub(crate) fn apply(
        &mut self,
        fix: &Fix,
        rest: &dyn Fn(u64, u32) -> Option<Rest>,
    ) -> Result<(), FsckError> {
        match fix {
            Fix::Damaged(at) => self.damaged(at, rest)?,
            Fix::Remove(spot) => {
                if let Some(at) = self.find(spot)? {
                    self.remove(at)?;
                }
            }
            Fix::Delete(at) => self.delete(at.clone()),
            Fix::Put(at, value) => self.put(at.clone(), value.clone()),
            Fix::Inode(spot, change) => {
                if let Some(at) = self.find(spot)?
                    && let Some(value) = self.get(&at)?
                    && let Some(value) = edit::inode(&value, change)
                {
                    self.put(at, value);
                }
            }
            Fix::Rehome(at) => self.rehome(at)?,
            Fix::Rekey(at) => self.rekey(at)?,
            Fix::Rescue(spot) => self.rescue(spot)?,
            Fix::Adopt { dir } => self.adopt(*dir)?,
            Fix::Name { ino, kind } => self.name(*ino, *kind)?,
            Fix::Header { dir, frag, entries, subdirs } => {
                let at = self.at(Table::Dentry, header_key(*dir, *frag));
                let old = self.get(&at)?;
                let mut new = edit::header(old.as_deref(), *entries, *subdirs, self.now);
                if *frag != Frag::WHOLE && old.is_none() {
                    new.extend(edit::unit_section(*dir, *frag));
                }
                self.put(at, new);
            }
            Fix::DropHeader { dir, frag } => {
                let at = self.at(Table::Dentry, header_key(*dir, *frag));
                self.delete(at);
            }
            Fix::Backptr { ino, version, parent, hash } => self.backptr(*ino, *version, *parent, *hash)?,
            Fix::Counter { rank, next } => self.raise_counter(*rank, *next)?,
            Fix::SystemDirectory { ino } => self.system_directory(*ino)?,
            Fix::Incarnation { number } => self.folder.write_incarnation(*number)?,
            // They were replaced before, and when the journal's tail was folded in.
            Fix::Rewrite { .. } | Fix::Journal => {}
            Fix::DeclareRanks => self.folder.declare_ranks()?,
            Fix::ClusterMap => self.forget_map = true,
            Fix::Data(fix) => self.data.push(fix.clone()),
        }
        Ok(())
    }

    /// A value with a wrong checksum: one turned bit is turned back. Otherwise it is moved aside; if
    /// the number of its inode can be made out, and data or entries are there under that, the name
    /// stays with a new inode.
    fn damaged(&mut self, at: &At, rest: &dyn Fn(u64, u32) -> Option<Rest>) -> Result<(), FsckError> {
        let Some(stored) = self.stored(at)?.filter(|_| !self.pending.contains_key(at)) else {
            return Ok(());
        };
        if let Some(value) = edit::correct_bit(&at.key, &stored) {
            self.put(at.clone(), value);
            return Ok(());
        }
        self.remove(at.clone())?;
        let known = edit::legible_number(&stored).filter(|_| at.table == Table::Dentry);
        let Some((ino, generation)) = known.filter(|(ino, _)| record::is_ino(*ino)) else { return Ok(()) };
        if at.key.get(8..16) == Some(&[0; 8]) || !self.rebuilt.insert(ino) {
            return Ok(());
        }
        match rest(ino, generation) {
            Some(Rest::Directory) => {
                self.put(at.clone(), edit::new_directory(ino, generation, 0o700, self.now));
            }
            Some(Rest::File(size)) => self.put(at.clone(), edit::new_file(ino, generation, size, self.now)),
            None => {}
        }
        Ok(())
    }

    fn rehome(&mut self, at: &At) -> Result<(), FsckError> {
        let Some(value) = self.get(at)? else { return Ok(()) };
        let home = self.at(at.table, at.key.clone());
        if self.get(&home)?.is_some() {
            return self.remove(at.clone());
        }
        self.delete(at.clone());
        self.put(home, value);
        Ok(())
    }

    fn raise_counter(&mut self, rank: u16, next: u64) -> Result<(), FsckError> {
        let [counter, _] = counter_keys(rank);
        let at = self.at(Table::System, counter);
        let known = self.get(&at)?.and_then(|value| Bytes(&value).u64()).unwrap_or(0);
        if rank == 0 {
            self.next_ino = self.next_ino.max(next);
        }
        self.put(at, known.max(next).to_le_bytes().to_vec());
        Ok(())
    }

    /// A checkpoint that had to be taken out is replaced: without one replay would start where the journal no longer reaches back to.
    pub(crate) fn start_at(&mut self, rank: u16, position: u64, next: u64) {
        let [_, checkpoint] = counter_keys(rank);
        let at = self.at(Table::System, checkpoint);
        if self.pending.get(&at).is_some_and(Option::is_none) {
            self.put(at, [position, next].map(u64::to_le_bytes).concat());
        }
    }

    /// Writes the backptr of the inode whose primary dentry is there; a file that was never renamed or
    /// linked has none.
    fn backptr(&mut self, ino: u64, version: u64, parent: u64, hash: u64) -> Result<(), FsckError> {
        let backptr = self.at(Table::Backptr, ino.to_be_bytes().into());
        let Some(at) = self.find(&Spot::Inode { dir: parent, hash, ino })? else { return Ok(()) };
        let Some(value) = self.get(&at)? else { return Ok(()) };
        let Some(Dentry::Primary(inode)) = record::dentry(&value, &mut Vec::new()) else { return Ok(()) };
        if inode.kind != DIRECTORY && inode.flags & FLAG_BACKPTR == 0 {
            self.delete(backptr);
        } else if let Some(name) = at.key.get(16..at.key.len() - 8) {
            self.put(backptr, rescue::backptr_value(version, parent, hash, name));
        }
        Ok(())
    }
}
