//! What differs between two maps, so that whoever has the older one is sent little.
//!
//! Absent: which versions anybody has.

use super::codec::{
    put_daemon, put_entry, put_mask, put_rank, put_slot, put_unit, take_daemon, take_entry, take_mask,
    take_rank, take_slot, take_unit, too_long,
};
use super::{
    ClusterMap, DaemonId, DaemonInfo, Entry, MAP_BYTES_MAX, MapError, Mask, MoveId, RankInfo, SLOTS, Slot,
    UNKNOWN_BYTES_MAX, Unit,
};
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Incarnation, RankId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first byte of a delta; a map has another.
const FORM_DELTA: u8 = 2;
const MAX_MDS: u8 = 1;
const JOINABLE: u8 = 2;
const HASH_PLACEMENT: u8 = 3;
const COORDINATOR: u8 = 4;
const LAST_INCARNATION: u8 = 5;
const LAST_DAEMON: u8 = 6;
const LAST_MOVE: u8 = 7;
const BAL_RANK_MASK: u8 = 8;
const MADE: u8 = 9;
const RANK: u8 = 10;
const DAEMON: u8 = 11;
const ENTRY: u8 = 12;
const SLOT_RUN: u8 = 13;
const SECTION: u8 = 14;
const SLOTS_USED: u8 = 15;
const RANK_WEIGHT: u8 = 16;

/// One field or one key that is different: what it is now, `None` when it is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    MaxMds(u16),
    Joinable(bool),
    HashPlacement(bool),
    Coordinator(u64),
    LastIncarnation(Incarnation),
    LastDaemon(DaemonId),
    LastMove(MoveId),
    BalRankMask(Mask),
    Made(Mask),
    Rank(RankId, Option<RankInfo>),
    Daemon(DaemonId, Option<DaemonInfo>),
    Entry(Unit, Option<Entry>),
    Slots {
        first: u16,
        count: u16,
        slot: Slot,
    },
    /// A section of a later version; empty when it is not there any more.
    Section(u8, Box<[u8]>),
    SlotsUsed(bool),
    Weight(RankId, Option<u16>),
}

/// The changes that make the map of version `from` the one of version `to`, in ascending order of what they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    pub from: u64,
    pub to: u64,
    pub changes: Vec<Change>,
}

impl ClusterMap {
    /// What makes the older map this one.
    #[must_use]
    pub fn diff(&self, older: &Self) -> Delta {
        let mut changes = Vec::new();
        macro_rules! fields {
            ($($field:ident: $change:ident,)*) => {
                $(if self.$field != older.$field {
                    changes.push(Change::$change(self.$field));
                })*
            };
        }
        fields! {
            max_mds: MaxMds,
            joinable: Joinable,
            hash_placement: HashPlacement,
            coordinator: Coordinator,
            last_incarnation: LastIncarnation,
            last_daemon: LastDaemon,
            last_move: LastMove,
            bal_rank_mask: BalRankMask,
            made: Made,
        }
        changes.extend(since(&self.ranks, &older.ranks).map(|(rank, info)| Change::Rank(rank, info)));
        changes.extend(since(&self.daemons, &older.daemons).map(|(id, info)| Change::Daemon(id, info)));
        // Usually the same table, which is seen at once.
        if self.entries != older.entries {
            let entries = since(&self.entries, &older.entries);
            changes.extend(entries.map(|(unit, entry)| Change::Entry(unit, entry)));
        }
        changes.extend(self.slots.since(&older.slots).into_iter().map(|(range, slot)| Change::Slots {
            first: range.start,
            count: range.end - range.start,
            slot,
        }));
        changes.extend(
            since(&self.unknown, &older.unknown)
                .map(|(tag, body)| Change::Section(tag, body.unwrap_or_default())),
        );
        if self.slots_used != older.slots_used {
            changes.push(Change::SlotsUsed(self.slots_used));
        }
        changes
            .extend(since(&self.weights, &older.weights).map(|(rank, weight)| Change::Weight(rank, weight)));
        Delta { from: older.version, to: self.version, changes }
    }

    /// Carries a delta out. A map that it does not fit stays as it is.
    ///
    /// # Errors
    /// `MapError::Base` when it begins at another version, any other when what it makes contradicts itself.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), MapError> {
        if delta.from != self.version {
            return Err(MapError::Base { from: delta.from, have: self.version });
        }
        let mut next = self.clone();
        next.version = delta.to;
        for change in &delta.changes {
            next.change(change);
        }
        next.check()?;
        *self = next;
        Ok(())
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::MaxMds(ranks) => self.max_mds = *ranks,
            Change::Joinable(joinable) => self.joinable = *joinable,
            Change::HashPlacement(on) => self.hash_placement = *on,
            Change::SlotsUsed(used) => self.slots_used = *used,
            Change::Coordinator(number) => self.coordinator = *number,
            Change::LastIncarnation(last) => self.last_incarnation = *last,
            Change::LastDaemon(last) => self.last_daemon = *last,
            Change::LastMove(last) => self.last_move = *last,
            Change::BalRankMask(mask) => self.bal_rank_mask = *mask,
            Change::Made(mask) => self.made = *mask,
            Change::Rank(rank, info) => replace(&mut self.ranks, *rank, *info),
            Change::Daemon(daemon, info) => replace(&mut self.daemons, *daemon, info.clone()),
            Change::Entry(unit, entry) => replace(Arc::make_mut(&mut self.entries), *unit, *entry),
            Change::Weight(rank, weight) => replace(&mut self.weights, *rank, *weight),
            Change::Slots { first, count, slot } => {
                Arc::make_mut(&mut self.slots).set(*first..first.saturating_add(*count), *slot);
            }
            Change::Section(tag, body) => {
                replace(&mut self.unknown, *tag, (!body.is_empty()).then(|| body.clone()));
            }
        }
    }
}

/// The keys whose values differ, with what they are in `new`.
fn since<K: Ord + Copy, V: PartialEq + Clone>(
    new: &BTreeMap<K, V>,
    old: &BTreeMap<K, V>,
) -> impl Iterator<Item = (K, Option<V>)> {
    let put = new.iter().filter(|(key, value)| old.get(key) != Some(*value));
    let gone = old.keys().filter(|key| !new.contains_key(key)).map(|key| (*key, None));
    let changed: BTreeMap<_, _> = put.map(|(key, value)| (*key, Some(value.clone()))).chain(gone).collect();
    changed.into_iter()
}

fn replace<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

impl Delta {
    /// The delta's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(FORM_DELTA).u64(self.from).u64(self.to);
        for change in &self.changes {
            change.encode(&mut w);
        }
        w.0
    }

    /// Reads a delta that fills `bytes` exactly. Whether it fits a map `ClusterMap::apply` finds out.
    ///
    /// # Errors
    /// `DecodeError` for an unknown change, one out of order, and anything cut or too long.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAP_BYTES_MAX {
            return Err(too_long("delta", bytes.len()));
        }
        let mut r = Reader::new(bytes);
        let form = r.u8()?;
        if form != FORM_DELTA {
            return Err(DecodeError::UnknownTag { what: "form of a delta", tag: form.into() });
        }
        let (from, to) = (r.u64()?, r.u64()?);
        if from >= to {
            return Err(DecodeError::Invalid { what: "versions of a delta" });
        }
        let mut changes: Vec<Change> = Vec::new();
        while !r.is_empty() {
            let change = Change::decode(&mut r)?;
            // Each key once: what is applied is bounded by what a map can hold.
            if changes.last().is_some_and(|last| last.end() >= change.place()) {
                return Err(DecodeError::Invalid { what: "order of changes" });
            }
            changes.push(change);
        }
        Ok(Self { from, to, changes })
    }
}

/// Where a change stands among others: its ordinal and its key.
type Place = (u8, u64, u64, u8);

impl Change {
    fn place(&self) -> Place {
        match self {
            Self::MaxMds(_) => (MAX_MDS, 0, 0, 0),
            Self::Joinable(_) => (JOINABLE, 0, 0, 0),
            Self::HashPlacement(_) => (HASH_PLACEMENT, 0, 0, 0),
            Self::Coordinator(_) => (COORDINATOR, 0, 0, 0),
            Self::LastIncarnation(_) => (LAST_INCARNATION, 0, 0, 0),
            Self::LastDaemon(_) => (LAST_DAEMON, 0, 0, 0),
            Self::LastMove(_) => (LAST_MOVE, 0, 0, 0),
            Self::BalRankMask(_) => (BAL_RANK_MASK, 0, 0, 0),
            Self::Made(_) => (MADE, 0, 0, 0),
            Self::Rank(rank, _) => (RANK, rank.0.into(), 0, 0),
            Self::Daemon(daemon, _) => (DAEMON, daemon.0, 0, 0),
            Self::Entry(unit, _) => (ENTRY, unit.dir.0, unit.frag.prefix, unit.frag.depth),
            Self::Slots { first, .. } => (SLOT_RUN, u64::from(*first), 0, 0),
            Self::Section(tag, _) => (SECTION, u64::from(*tag), 0, 0),
            Self::SlotsUsed(_) => (SLOTS_USED, 0, 0, 0),
            Self::Weight(rank, _) => (RANK_WEIGHT, rank.0.into(), 0, 0),
        }
    }

    /// The last place it takes: a run of slots takes several.
    fn end(&self) -> Place {
        match self {
            Self::Slots { first, count, .. } => (SLOT_RUN, u64::from(*first) + u64::from(*count) - 1, 0, 0),
            Self::MaxMds(_)
            | Self::Joinable(_)
            | Self::HashPlacement(_)
            | Self::Coordinator(_)
            | Self::LastIncarnation(_)
            | Self::LastDaemon(_)
            | Self::LastMove(_)
            | Self::BalRankMask(_)
            | Self::Made(_)
            | Self::Rank(..)
            | Self::Daemon(..)
            | Self::Entry(..)
            | Self::Section(..)
            | Self::SlotsUsed(_)
            | Self::Weight(..) => self.place(),
        }
    }

    fn encode(&self, w: &mut Writer) {
        w.u8(self.place().0);
        match self {
            Self::MaxMds(ranks) => {
                w.u16(*ranks);
            }
            Self::Joinable(on) | Self::HashPlacement(on) | Self::SlotsUsed(on) => {
                w.bool(*on);
            }
            Self::Coordinator(number)
            | Self::LastIncarnation(Incarnation(number))
            | Self::LastDaemon(DaemonId(number))
            | Self::LastMove(MoveId(number)) => {
                w.u64(*number);
            }
            Self::Weight(rank, weight) => {
                w.u16(rank.0).u16(weight.unwrap_or(0));
            }
            Self::BalRankMask(mask) | Self::Made(mask) => put_mask(w, *mask),
            Self::Rank(rank, info) => put_rank(w.u16(rank.0), *info),
            Self::Daemon(daemon, info) => put_daemon(w.u64(daemon.0), info.as_ref()),
            Self::Entry(unit, entry) => {
                put_unit(w, *unit);
                put_entry(w, entry.as_ref());
            }
            Self::Slots { first, count, slot } => put_slot(w.u16(*first).u16(*count), *slot),
            Self::Section(tag, body) => {
                w.u8(*tag).bytes(body);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            MAX_MDS => Self::MaxMds(r.u16()?),
            JOINABLE => Self::Joinable(r.bool()?),
            HASH_PLACEMENT => Self::HashPlacement(r.bool()?),
            SLOTS_USED => Self::SlotsUsed(r.bool()?),
            COORDINATOR => Self::Coordinator(r.u64()?),
            LAST_INCARNATION => Self::LastIncarnation(Incarnation(r.u64()?)),
            LAST_DAEMON => Self::LastDaemon(DaemonId(r.u64()?)),
            LAST_MOVE => Self::LastMove(MoveId(r.u64()?)),
            BAL_RANK_MASK => Self::BalRankMask(take_mask(r)?),
            MADE => Self::Made(take_mask(r)?),
            RANK => Self::Rank(RankId(r.u16()?), take_rank(r)?),
            DAEMON => Self::Daemon(DaemonId(r.u64()?), take_daemon(r)?),
            ENTRY => Self::Entry(take_unit(r)?, take_entry(r)?),
            SLOT_RUN => {
                let (first, count) = (r.u16()?, r.u16()?);
                if count == 0 || first >= SLOTS || count > SLOTS - first {
                    return Err(DecodeError::Invalid { what: "run of slots" });
                }
                Self::Slots { first, count, slot: take_slot(r)? }
            }
            RANK_WEIGHT => Self::Weight(RankId(r.u16()?), Some(r.u16()?).filter(|weight| *weight > 0)),
            SECTION => Self::Section(r.u8()?, r.bytes(UNKNOWN_BYTES_MAX)?.into()),
            tag => return Err(DecodeError::UnknownTag { what: "change of a cluster map", tag: tag.into() }),
        })
    }
}
