//! The records a journal describes, applied by code of the simulator's own: what store plus journal
//! tail must come to. One function applies an entry, to the mirror of the running rank and to a dump
//! of its store after a crash.
//!
//! Absent: the rank's own replay, on purpose; meaning of names (`compare.rs`).

use proto::attr::FileKind;
use proto::dentry::DentryValue;
use proto::header::{FragHeader, Spread};
use proto::ids::{Frag, NameHash, RankId, SessionId, Version};
use proto::inode::flags;
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::storeio::{Backptr, StoreKey, Table};
use proto::transact::take_left;
use proto::{DecodeError, Ino, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stdx::Wall;

/// The key of a record, owned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Dentry {
        dir: Ino,
        hash: NameHash,
        name: Rc<[u8]>,
    },
    /// Of a directory, or of a unit of it.
    Header {
        dir: Ino,
        frag: Frag,
    },
    Backptr {
        ino: Ino,
    },
    Session {
        rank: RankId,
        id: SessionId,
    },
    Counter {
        rank: RankId,
    },
    Checkpoint {
        rank: RankId,
    },
}

impl Key {
    /// From a store's key.
    #[must_use]
    pub fn of(key: &StoreKey<'_>) -> Self {
        match *key {
            StoreKey::Dentry { dir, hash, name, .. } => Self::Dentry { dir, hash, name: name.into() },
            StoreKey::Header { dir, frag } => Self::Header { dir, frag },
            StoreKey::Backptr { ino } => Self::Backptr { ino },
            StoreKey::Session { rank, id } => Self::Session { rank, id },
            StoreKey::Counter { rank } => Self::Counter { rank },
            StoreKey::Checkpoint { rank } => Self::Checkpoint { rank },
        }
    }
}

/// Behind all others.
const LAST_FRAG: Frag = Frag { prefix: u64::MAX, depth: u8::MAX };

/// What a mutation of a directory is about: a name, or a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    Hash(NameHash),
    Frag(Frag),
}

/// A record: its bytes, and what they say where that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub bytes: Rc<[u8]>,
    pub dentry: Option<Rc<DentryValue>>,
    pub header: Option<FragHeader>,
}

impl Record {
    /// Decodes what the key says it is.
    ///
    /// # Errors
    /// A value that is not what its key says.
    pub fn new(key: &Key, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut record = Self { bytes: bytes.into(), dentry: None, header: None };
        match key {
            Key::Dentry { .. } => record.dentry = Some(Rc::new(DentryValue::decode(bytes)?)),
            Key::Header { .. } => record.header = Some(FragHeader::decode(bytes)?),
            Key::Backptr { .. } | Key::Session { .. } | Key::Counter { .. } | Key::Checkpoint { .. } => {}
        }
        Ok(record)
    }

    /// Whether a stored record says what history says. Reading a file and carrying out a cut change a
    /// record in the rank's memory only: the time of the last access, the mark of a cut under way, and a
    /// cut at the present size, which hides what a lost write left behind the end.
    #[must_use]
    pub fn says(&self, history: &Self) -> bool {
        let (Some(DentryValue::Primary(found)), Some(DentryValue::Primary(wanted))) =
            (self.dentry.as_deref(), history.dentry.as_deref())
        else {
            return self == history;
        };
        let mut found = found.clone();
        let (core, wanted_core) = (&mut found.core, &wanted.core);
        if core.truncate_seq > wanted_core.truncate_seq && core.truncate_size == core.size {
            (core.truncate_seq, core.truncate_size) = (wanted_core.truncate_seq, wanted_core.truncate_size);
        }
        core.atime = wanted_core.atime;
        core.flags ^= (core.flags ^ wanted_core.flags) & flags::CUT_PENDING;
        found == *wanted
    }

    /// The directory this dentry is the home of.
    fn directory(&self) -> Option<Ino> {
        match self.dentry.as_deref() {
            Some(DentryValue::Primary(inode))
                if FileKind::of_mode(inode.core.mode) == Some(FileKind::Directory) =>
            {
                Some(inode.core.ino)
            }
            _ => None,
        }
    }
}

/// The rows of a store's table: key and value.
pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// What a key held before an entry.
pub type Undo = Vec<(Key, Option<Record>)>;

/// All records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records(pub BTreeMap<Key, Record>);

impl Records {
    /// Applies the mutations of one entry. Returns what they replaced.
    ///
    /// # Errors
    /// A mutation that cannot be read, or a version that goes back.
    pub fn apply(&mut self, mutations: &[u8], strict: bool) -> Result<Undo, String> {
        let mut undo = Undo::new();
        let (mut left, mut settled) = (BTreeSet::new(), BTreeSet::new());
        for mutation in Mutations::new(mutations) {
            let mutation = mutation.map_err(|error| format!("journal mutation: {error}"))?;
            let before = undo.len();
            // It has its name at another rank from here on.
            if let Mutation::Committed { left, .. } | Mutation::Resolved { left, .. } = mutation {
                let gone = take_left(&mut Reader::new(left)).map_err(|error| format!("left: {error}"))?;
                settled.extend(gone.iter().map(|left| left.ino));
            }
            self.apply_one(&mutation, strict, &mut undo)?;
            for (key, old) in &undo[before..] {
                left.extend(old.as_ref().and_then(Record::directory));
                settled.extend(self.0.get(key).and_then(Record::directory));
            }
        }
        // On a store that is ahead of this entry a directory that seems to go may be one that comes later.
        if strict {
            for gone in left.difference(&settled) {
                let headers: Vec<Key> = self.headers(*gone).map(|(key, _)| key.clone()).collect();
                headers.into_iter().for_each(|key| self.set(key, None, &mut undo));
            }
        }
        Ok(undo)
    }

    /// Applies the mutations of one entry to a store, those that count under the version of their directory, or of the part of it that
    /// the hash is in.
    ///
    /// # Errors
    /// A mutation that cannot be read.
    pub fn apply_if(
        &mut self,
        mutations: &[u8],
        counts: impl Fn(Ino, NamedBy, Version) -> bool,
    ) -> Result<(), String> {
        let mut undo = Undo::new();
        for mutation in Mutations::new(mutations) {
            let mutation = mutation.map_err(|error| format!("journal mutation: {error}"))?;
            let of = match mutation {
                Mutation::PutDentry { dir, hash, version, .. }
                | Mutation::DelDentry { dir, hash, version, .. } => Some((dir, NamedBy::Hash(hash), version)),
                Mutation::PutHeader { dir, frag, version, .. } => Some((dir, NamedBy::Frag(frag), version)),
                _ => None,
            };
            if of.is_none_or(|(dir, by, version)| counts(dir, by, version)) {
                self.apply_one(&mutation, false, &mut undo)?;
            } else if let Mutation::PutHeader { dir, frag: Frag::WHOLE, version, header, .. } = mutation
                && FragHeader::decode(header).is_ok_and(|header| header.spread().is_none())
            {
                // What a merge says of the directory is stored, and its units may not be gone yet.
                self.end_units(dir, version, &mut undo);
            }
        }
        Ok(())
    }

    /// Takes an entry back.
    pub fn revert(&mut self, undo: Undo) {
        for (key, old) in undo.into_iter().rev() {
            match old {
                Some(old) => self.0.insert(key, old),
                None => self.0.remove(&key),
            };
        }
    }

    fn set(&mut self, key: Key, record: Option<Record>, undo: &mut Undo) {
        let old = match record {
            Some(record) => self.0.insert(key.clone(), record),
            None => self.0.remove(&key),
        };
        undo.push((key, old));
    }

    fn put(&mut self, key: Key, bytes: &[u8], undo: &mut Undo) -> Result<(), String> {
        let record = Record::new(&key, bytes).map_err(|error| format!("{key:?}: {error}"))?;
        self.set(key, Some(record), undo);
        Ok(())
    }

    fn apply_one(&mut self, mutation: &Mutation<'_>, strict: bool, undo: &mut Undo) -> Result<(), String> {
        match *mutation {
            Mutation::PutDentry { dir, hash, name, value, version } => {
                self.check_version(self.key_of(dir, hash), version, strict)?;
                self.put(Key::Dentry { dir, hash, name: name.into() }, value, undo)
            }
            Mutation::DelDentry { dir, hash, name, version } => {
                self.check_version(self.key_of(dir, hash), version, strict)?;
                self.set(Key::Dentry { dir, hash, name: name.into() }, None, undo);
                Ok(())
            }
            Mutation::PutHeader { dir, frag, version, header, .. } => {
                let key = Key::Header { dir, frag };
                self.check_version(key.clone(), version, strict)?;
                self.put(key, header, undo)?;
                if frag == Frag::WHOLE && self.spread(dir).is_none() {
                    self.end_units(dir, version, undo);
                }
                Ok(())
            }
            Mutation::PutBackptr { ino, version, parent, hash, name } => {
                let key = Key::Backptr { ino };
                if self.backptr(&key).is_some_and(|old| old.version >= version) {
                    return Ok(());
                }
                let mut w = Writer::new();
                Backptr { version, parent, hash, name: name.into() }.encode(&mut w);
                self.put(key, &w.0, undo)
            }
            Mutation::DelBackptr { ino, version } | Mutation::DelPlace { ino, version } => {
                let key = Key::Backptr { ino };
                if self.backptr(&key).is_some_and(|old| old.version <= version) {
                    self.set(key, None, undo);
                }
                Ok(())
            }
            Mutation::DelContent { dir } => {
                let headers: Vec<Key> = self.headers(dir).map(|(key, _)| key.clone()).collect();
                headers.into_iter().for_each(|key| self.set(key, None, undo));
                Ok(())
            }
            Mutation::Session { id, open, .. } => {
                let key = Key::Session { rank: RankId(0), id };
                if open {
                    self.put(key, b"", undo)
                } else {
                    self.set(key, None, undo);
                    Ok(())
                }
            }
            Mutation::InoCounter { rank, next } => self.put(Key::Counter { rank }, &next.to_le_bytes(), undo),
            // Bytes (`judge/data.rs`), and what a session may do (`judge/delegated.rs`): in no record that is looked at here.
            Mutation::DataCut { .. }
            | Mutation::DataRedo { .. }
            | Mutation::DataRemove { .. }
            | Mutation::SessionFloor { .. }
            | Mutation::DelegateInos { .. }
            | Mutation::SessionFlags { .. }
            | Mutation::Sealed { .. }
            | Mutation::Holders { .. }
            | Mutation::HolderGone { .. }
            | Mutation::Unheard { .. }
            | Mutation::Prepared { .. }
            | Mutation::Committed { .. }
            | Mutation::Resolved { .. } => Ok(()),
        }
    }

    /// A directory was in one part under that version: all units that are older have ended.
    fn end_units(&mut self, dir: Ino, version: Version, undo: &mut Undo) {
        let is_old = |(key, header): (&Key, &FragHeader)| {
            (header.unit().is_some() && header.version < version).then(|| key.clone())
        };
        let old: Vec<Key> = self.headers(dir).filter_map(is_old).collect();
        old.into_iter().for_each(|key| self.set(key, None, undo));
    }

    /// A frag's version never goes back while the rank runs (invariant 10, rising versions).
    fn check_version(&self, key: Key, version: Version, strict: bool) -> Result<(), String> {
        match self.0.get(&key).and_then(|record| record.header.as_ref()) {
            Some(header) if strict && version < header.version => {
                Err(format!("version of {key:?} went from {} back to {}", header.version.0, version.0))
            }
            _ => Ok(()),
        }
    }

    fn backptr(&self, key: &Key) -> Option<Backptr> {
        self.0.get(key).and_then(|record| Backptr::decode(&record.bytes).ok())
    }

    /// The records of a store's tables.
    ///
    /// # Errors
    /// A key or value that cannot be read.
    pub fn of_store(tables: &[(Table, Rows)]) -> Result<Self, String> {
        let mut records = Self::default();
        for (table, rows) in tables {
            for (key, value) in rows {
                let key =
                    StoreKey::decode(*table, key).map_err(|error| format!("store key {key:x?}: {error}"))?;
                let key = Key::of(&key);
                let record = Record::new(&key, value).map_err(|error| format!("store {key:?}: {error}"))?;
                records.0.insert(key, record);
            }
        }
        Ok(records)
    }

    /// The dentries as (directory, name, value).
    pub fn dentries(&self) -> impl Iterator<Item = (Ino, NameHash, &Rc<[u8]>, &DentryValue)> {
        self.0.iter().filter_map(|(key, record)| match (key, record.dentry.as_deref()) {
            (Key::Dentry { dir, hash, name }, Some(value)) => Some((*dir, *hash, name, value)),
            _ => None,
        })
    }

    /// A directory's header.
    #[must_use]
    pub fn header(&self, dir: Ino) -> Option<&FragHeader> {
        self.0.get(&Key::Header { dir, frag: Frag::WHOLE })?.header.as_ref()
    }

    /// A directory's own header and those of its units.
    pub fn headers(&self, dir: Ino) -> impl Iterator<Item = (&Key, &FragHeader)> {
        let all = Key::Header { dir, frag: Frag::WHOLE }..=Key::Header { dir, frag: LAST_FRAG };
        self.0.range(all).filter_map(|(key, record)| Some((key, record.header.as_ref()?)))
    }

    /// The header of the unit that a hash is in, if there is one.
    #[must_use]
    pub fn unit_header(&self, dir: Ino, hash: NameHash) -> Option<&FragHeader> {
        let mut units = self.headers(dir).map(|(_, header)| header);
        units.find(|header| header.unit().is_some_and(|unit| unit.frag.covers(hash)))
    }

    /// How a directory is spread.
    #[must_use]
    pub fn spread(&self, dir: Ino) -> Option<Spread> {
        self.header(dir)?.spread()
    }

    /// All directories that are spread.
    pub fn spreads(&self) -> impl Iterator<Item = (Ino, Spread)> {
        self.0.iter().filter_map(|(key, record)| match (key, record.header.as_ref()?.spread()) {
            (Key::Header { dir, .. }, Some(spread)) => Some((*dir, spread)),
            _ => None,
        })
    }

    /// The header under whose version a name of a directory is.
    #[must_use]
    pub fn key_of(&self, dir: Ino, hash: NameHash) -> Key {
        let frag = self.spread(dir).map_or(Frag::WHOLE, |spread| spread.of(hash).1);
        Key::Header { dir, frag }
    }

    /// What a directory shows: its header, or what its units come to together.
    #[must_use]
    pub fn totals(&self, dir: Ino) -> Option<FragHeader> {
        let mut sum = self.header(dir)?.clone();
        let Some(spread) = sum.spread() else { return Some(sum) };
        let (mut changes, mut latest) = (0_u64, Wall(i64::MIN));
        for (_, frag) in spread.all() {
            let unit = self.0.get(&Key::Header { dir, frag })?.header.as_ref()?;
            sum.entries += unit.entries;
            sum.subdirs += unit.subdirs;
            changes = changes.wrapping_add(unit.change);
            latest = latest.max(unit.mtime);
        }
        if changes != spread.stamp {
            sum.mtime = latest;
        }
        sum.change = sum.change.wrapping_add(changes);
        Some(sum)
    }
}
