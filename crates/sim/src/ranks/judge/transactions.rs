//! Transactions of several ranks, as the journals tell of them: what is reserved, what is committed, and who has carried it out.
//!
//! A committed one is a step of history as a whole, at its leader's entry. What journals say is behind that until the others have
//! carried out their changes; the leader's record says what is missing.
//!
//! Absent: what the request must come to (`history.rs`); who waits for what is reserved, the ranks' own doing.

use super::Judge;
use crate::model::judge::Verdict;
use crate::model::records::{Key, Record, Records};
use proto::dentry::{DentryValue, encode_primary};
use proto::ids::{Incarnation, NameHash, Position, RankId};
use proto::inode::InodeRecord;
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::name::name_hash;
use proto::transact::{Change, Decided, Reserved, TxnId, take_decided, take_reserved};
use proto::{Ino, Reader, Writer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;
use stdx::hash::HashSeed;

/// Reserved by a rank for a transaction that another one leads.
#[derive(Clone, Debug)]
struct Reservation {
    leader: RankId,
    end: Position,
    parts: Vec<Reserved>,
}

/// Committed, and not over.
#[derive(Clone, Debug)]
struct Committed {
    leader: RankId,
    end: Position,
    wall: Wall,
    decided: Decided,
    /// Who has carried his changes out, and where in his journal.
    carried: BTreeMap<RankId, Position>,
}

/// All of them, at one point of history.
#[derive(Clone, Debug, Default)]
pub(super) struct Transactions {
    reserved: BTreeMap<(RankId, TxnId), Reservation>,
    committed: BTreeMap<TxnId, Committed>,
    over: BTreeSet<TxnId>,
}

/// Where an entry is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) rank: RankId,
    pub(super) end: Position,
    pub(super) wall: Wall,
}

/// What an entry did to them.
#[derive(Clone, Debug, Default)]
pub(super) struct Did {
    /// A transaction begins to count.
    pub(super) commits: Option<TxnId>,
    /// Changes that were promised before.
    pub(super) carries: Vec<Change>,
    /// Reservations that ended with nothing.
    pub(super) released: u64,
}

/// What is durable of each rank's journal.
pub(super) type Durable = BTreeMap<RankId, Position>;

impl Transactions {
    /// Takes an entry. `durable`: the entry is new, and what it builds on must be that.
    pub(super) fn apply(&mut self, at: At, mutations: &[u8], durable: Option<&Durable>) -> Verdict<Did> {
        let mut did = Did::default();
        for mutation in Mutations::new(mutations).flatten() {
            match mutation {
                Mutation::Prepared { id, leader, parts } => self.prepared(at, id, leader, parts)?,
                Mutation::Committed { id, decided, .. } => {
                    did.commits = self.commits(at, id, decided, durable)?.then_some(id).or(did.commits);
                }
                Mutation::Resolved { id, .. } => self.resolved(at, id, durable, &mut did)?,
                _ => {}
            }
        }
        Ok(did)
    }

    fn prepared(&mut self, at: At, id: TxnId, leader: RankId, parts: &[u8]) -> Verdict {
        let parts = take_reserved(&mut Reader::new(parts)).map_err(|error| format!("prepared: {error}"))?;
        let carried = self.committed.get(&id).is_some_and(|one| one.carried.contains_key(&at.rank));
        if carried || self.over.contains(&id) {
            return Err(format!("reserves for transaction {:#x}, which it has carried out", id.0));
        }
        if self.reserved.contains_key(&(at.rank, id)) {
            return Ok(());
        }
        let same = |part: &Reserved| {
            let theirs = self.reserved.iter().filter(|((rank, _), _)| *rank == at.rank);
            let mut theirs = theirs.flat_map(|(_, held)| &held.parts);
            theirs.any(|held| {
                let inode = part.ino != Ino::NONE && !part.is_content() && !held.is_content();
                held.meets(part) || (inode && held.ino == part.ino)
            })
        };
        if let Some(twice) = parts.iter().find(|part| same(part)) {
            return Err(format!("reserves {twice:?} for transaction {:#x}, and for another one", id.0));
        }
        self.reserved.insert((at.rank, id), Reservation { leader, end: at.end, parts });
        Ok(())
    }

    /// Whether it counts from here on.
    fn commits(&mut self, at: At, id: TxnId, decided: &[u8], durable: Option<&Durable>) -> Verdict<bool> {
        let decided =
            take_decided(&mut Reader::new(decided)).map_err(|error| format!("committed: {error}"))?;
        if let Some(known) = self.committed.get(&id) {
            return if known.leader == at.rank && known.decided == decided {
                Ok(false)
            } else {
                Err(format!("transaction {:#x} is committed twice, in two ways", id.0))
            };
        }
        if self.over.contains(&id) {
            return Err(format!("transaction {:#x} is committed again", id.0));
        }
        for (rank, _) in &decided {
            let held = self.reserved.get(&(*rank, id));
            let Some(held) = held.filter(|held| held.leader == at.rank) else {
                return Err(format!("commits transaction {:#x}: rank {} has reserved nothing", id.0, rank.0));
            };
            if durable.is_some_and(|durable| !is_durable(durable, *rank, held.end)) {
                return Err(format!("commits {:#x} before the vote of rank {} is durable", id.0, rank.0));
            }
        }
        let carried = BTreeMap::new();
        let committed = Committed { leader: at.rank, end: at.end, wall: at.wall, decided, carried };
        self.committed.insert(id, committed);
        Ok(true)
    }

    fn resolved(&mut self, at: At, id: TxnId, durable: Option<&Durable>, did: &mut Did) -> Verdict {
        if self.committed.get(&id).is_some_and(|one| one.leader == at.rank) {
            return self.ends(id, durable);
        }
        if self.reserved.remove(&(at.rank, id)).is_none() {
            return Err(format!("ends transaction {:#x}, for which it has reserved nothing", id.0));
        }
        let Some(committed) = self.committed.get_mut(&id) else {
            did.released += 1;
            return Ok(());
        };
        if durable.is_some_and(|durable| !is_durable(durable, committed.leader, committed.end)) {
            return Err(format!("carries transaction {:#x} out before it is durable", id.0));
        }
        let changes = committed.decided.iter().filter(|(rank, _)| *rank == at.rank);
        did.carries.extend(changes.flat_map(|(_, changes)| changes).cloned());
        committed.carried.insert(at.rank, at.end);
        Ok(())
    }

    fn ends(&mut self, id: TxnId, durable: Option<&Durable>) -> Verdict {
        let Some(committed) = self.committed.remove(&id) else { return Ok(()) };
        for (rank, _) in &committed.decided {
            let Some(end) = committed.carried.get(rank) else {
                return Err(format!("forgets {:#x}, which rank {} has not carried out", id.0, rank.0));
            };
            if durable.is_some_and(|durable| !is_durable(durable, *rank, *end)) {
                return Err(format!("forgets {:#x} before it is durable at rank {}", id.0, rank.0));
            }
        }
        self.over.insert(id);
        Ok(())
    }

    /// Nothing is reserved, and all is carried out.
    pub(super) fn is_settled(&self) -> bool {
        self.reserved.is_empty() && self.committed.is_empty()
    }

    /// Who leads each, and who takes part.
    pub(super) fn parties(&self) -> BTreeMap<TxnId, (RankId, BTreeSet<RankId>)> {
        let mut all: BTreeMap<TxnId, (RankId, BTreeSet<RankId>)> = BTreeMap::new();
        for ((rank, id), held) in &self.reserved {
            all.entry(*id).or_insert((held.leader, BTreeSet::new())).1.insert(*rank);
        }
        for (id, one) in &self.committed {
            let parts = &mut all.entry(*id).or_insert((one.leader, BTreeSet::new())).1;
            parts.extend(one.decided.iter().map(|(rank, _)| *rank));
        }
        all
    }

    /// Whether something is reserved at that rank, led by it, or to be carried out by it; `life`: its last one.
    pub(super) fn has_part(&self, rank: RankId, life: Incarnation) -> bool {
        let is_its = |(id, one): (&TxnId, &Committed)| {
            let takes_part = one.decided.iter().any(|(of, _)| *of == rank);
            one.leader == rank
                || (takes_part
                    && (self.reserved.contains_key(&(rank, *id)) || !one.carried.contains_key(&rank)))
        };
        // What was reserved for a life of the leader that is over, and is not committed, is given up: that life cannot commit it any more, and
        // no later one knows of it. Who has reserved it may have been dead ever since: it need not live before the leader goes, and finds
        // the leader in no map then.
        let may_commit = |id: &TxnId| Incarnation(id.0 >> 32) >= life;
        let is_reserved = |((of, id), held): (&(RankId, TxnId), &Reservation)| {
            *of == rank || (held.leader == rank && may_commit(id))
        };
        self.reserved.iter().any(is_reserved) || self.committed.iter().any(is_its)
    }

    /// Names that a rank has reserved.
    pub(super) fn reserved_names(&self, rank: RankId) -> impl Iterator<Item = (Ino, NameHash)> {
        let theirs = self.reserved.iter().filter(move |((of, _), _)| *of == rank);
        theirs.flat_map(|(_, held)| held.parts.iter().map(|part| (part.dir, part.hash)))
    }

    /// Of one rank: what it has reserved, and what it leads.
    fn of(&self, rank: RankId) -> (BTreeSet<TxnId>, BTreeSet<TxnId>) {
        let reserved = self.reserved.keys().filter(|(of, _)| *of == rank).map(|(_, id)| *id).collect();
        let led = self.committed.iter().filter(|(_, one)| one.leader == rank).map(|(id, _)| *id).collect();
        (reserved, led)
    }

    /// Inodes of which a rank is to say where they are, and has not carried that out.
    pub(super) fn promised_places(&self) -> BTreeSet<Ino> {
        let missing = self.committed.values().flat_map(|committed| {
            committed.decided.iter().filter(|(rank, _)| !committed.carried.contains_key(rank))
        });
        let changes = missing.flat_map(|(_, changes)| changes);
        let places = changes.filter_map(|change| match change {
            Change::Backptr { ino, .. } => Some(*ino),
            Change::Put { .. }
            | Change::Delete { .. }
            | Change::Header { .. }
            | Change::Lose { .. }
            | Change::Holders { .. }
            | Change::Vacate { .. }
            | Change::Left(_) => None,
        });
        places.collect()
    }

    /// The records with all that is committed, and the keys where that makes a difference.
    pub(super) fn complete<'a>(
        &self,
        records: &'a Records,
        seed: &'a HashSeed,
    ) -> Verdict<(Cow<'a, Records>, Vec<Key>)> {
        let mut full = Full { records: Cow::Borrowed(records), seed, keys: Vec::new() };
        for committed in self.committed.values() {
            let missing = committed.decided.iter().filter(|(rank, _)| !committed.carried.contains_key(rank));
            for (rank, changes) in missing {
                changes.iter().try_for_each(|change| full.change(*rank, committed.wall, change))?;
            }
        }
        Ok((full.records, full.keys))
    }
}

fn is_durable(durable: &Durable, rank: RankId, end: Position) -> bool {
    durable.get(&rank).is_some_and(|durable| end <= *durable)
}

/// Records on which what is missing is carried out.
struct Full<'a> {
    records: Cow<'a, Records>,
    seed: &'a HashSeed,
    keys: Vec<Key>,
}

impl Full<'_> {
    fn key(&self, dir: Ino, name: &[u8]) -> Key {
        Key::Dentry { dir, hash: name_hash(self.seed, name), name: name.into() }
    }

    fn put(&mut self, key: Key, value: &[u8]) -> Verdict {
        let record = Record::new(&key, value).map_err(|error| format!("promised {key:?}: {error}"))?;
        self.keys.push(key.clone());
        self.records.to_mut().0.insert(key, record);
        Ok(())
    }

    fn delete(&mut self, key: &Key) {
        self.records.to_mut().0.remove(key);
    }

    fn change(&mut self, rank: RankId, wall: Wall, change: &Change) -> Verdict {
        match change {
            Change::Put { dir, name, value } => self.put(self.key(*dir, name.as_bytes()), value)?,
            Change::Delete { dir, name } => self.delete(&self.key(*dir, name.as_bytes())),
            Change::Header { dir, hash, entries, subdirs, mtime } => {
                let key = self.records.key_of(*dir, *hash);
                let record = self.records.to_mut().0.get_mut(&key);
                let Some(header) = record.and_then(|record| record.header.as_mut()) else { return Ok(()) };
                header.entries = header.entries.saturating_add_signed(*entries);
                header.subdirs = header.subdirs.saturating_add_signed(*subdirs);
                header.mtime = header.mtime.max(mtime.unwrap_or(header.mtime));
                // A time that was set by hand counts no more with the next change of a unit.
                header.change += u64::from(mtime.is_some() && header.unit().is_some());
            }
            Change::Lose { ino, parent, hash } => {
                let hex = ino.link_name();
                let key = self.key(Ino::LINKS, &hex);
                let dentry = self.records.0.get(&key).and_then(|record| record.dentry.as_deref());
                let Some(DentryValue::Primary(inode)) = dentry else {
                    return Err(format!("inode {} is to lose a name and is not in //links", ino.0));
                };
                let InodeRecord { mut core, ext } = inode.clone();
                let mut ext = ext.map(|ext| *ext).unwrap_or_default();
                ext.links.retain(|link| *link != (*parent, *hash));
                core.nlink = core.nlink.saturating_sub(1);
                core.ctime = core.ctime.max(wall);
                let mut value = Writer::new();
                encode_primary(&core, Some(&ext), &mut value);
                if core.nlink > 0 {
                    return self.put(key, &value.0);
                }
                self.delete(&key);
                self.put(self.key(Ino::orphans(rank), &hex), &value.0)?;
            }
            // Told to nobody but the store.
            Change::Backptr { .. } | Change::Left(_) | Change::Holders { .. } | Change::Vacate { .. } => {}
        }
        Ok(())
    }
}

/// Change counters of the inodes that are put.
pub(super) fn promised(decided: &[(RankId, Vec<Change>)]) -> BTreeMap<Ino, u64> {
    let changes = decided.iter().flat_map(|(_, changes)| changes);
    let puts = changes.filter_map(|change| match change {
        Change::Put { value, .. } => match DentryValue::decode(value) {
            Ok(DentryValue::Primary(inode)) => Some((inode.core.ino, inode.core.change)),
            _ => None,
        },
        _ => None,
    });
    puts.collect()
}

impl Judge {
    pub(super) fn durable_ends(&self) -> Durable {
        self.ranks.iter().map(|(rank, journal)| (*rank, journal.durable)).collect()
    }

    /// What a transaction that begins to count has promised.
    pub(super) fn decided(&self, id: TxnId) -> Decided {
        self.open.committed.get(&id).map(|one| one.decided.clone()).unwrap_or_default()
    }

    /// Nothing is reserved any more, and all that is committed is carried out everywhere.
    pub(in crate::ranks) fn is_settled(&self) -> bool {
        self.open.is_settled()
    }

    /// What is not over, in words.
    pub(in crate::ranks) fn unsettled(&self) -> String {
        format!("reserved {:?} committed {:?}", self.open.reserved, self.open.committed)
    }

    /// The tails of the journals know of everything that is not over.
    pub(super) fn check_remembered(&self, rank: RankId, from: Position) -> Verdict {
        let Some(journal) = self.ranks.get(&rank) else { return Ok(()) };
        let (mut reserved, mut led) = (BTreeSet::new(), BTreeSet::new());
        for (_, _, mutations) in journal.log.iter().filter(|(start, ..)| *start >= from) {
            for mutation in Mutations::new(mutations).flatten() {
                match mutation {
                    Mutation::Prepared { id, .. } => drop(reserved.insert(id)),
                    Mutation::Committed { id, .. } => drop(led.insert(id)),
                    Mutation::Resolved { id, .. } => {
                        reserved.remove(&id);
                        led.remove(&id);
                    }
                    _ => {}
                }
            }
        }
        let wanted = self.open.of(rank);
        if (&reserved, &led) == (&wanted.0, &wanted.1) {
            return Ok(());
        }
        Err(format!(
            "the journal of rank {} from {} on knows of {reserved:?} reserved and {led:?} led instead of {wanted:?}",
            rank.0, from.0
        ))
    }
}
