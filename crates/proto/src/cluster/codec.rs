//! A whole map as bytes: sections in ascending order of their tags, records in ascending order of their keys, so that there is one
//! encoding of each map. Sections of later versions are kept.
//!
//! Absent: deltas (`delta`); the file around it (`store::registry`).

use super::{
    ClusterMap, DAEMONS_MAX, DaemonId, DaemonInfo, ENTRIES_MAX, Entry, MAP_BYTES_MAX, MapError, Mask, MoveId,
    Moving, Policy, RANKS_MAX, RankInfo, RankState, SLOTS, Slot, Slots, UNKNOWN_BYTES_MAX, Unit,
};
use crate::codec::{DecodeError, Reader, Writer};
use crate::ids::{Frag, Incarnation, Ino, RankId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first byte of a map; a delta has another.
const FORM_MAP: u8 = 1;
const SECTION_CORE: u8 = 1;
const SECTION_RANKS: u8 = 2;
const SECTION_DAEMONS: u8 = 3;
const SECTION_ENTRIES: u8 = 4;
const SECTION_SLOTS: u8 = 5;
/// The last section that this version knows. It is there when there are any.
pub(super) const SECTION_WEIGHTS: u8 = 6;
const FLAG_JOINABLE: u8 = 1;
const FLAG_HASH_PLACEMENT: u8 = 2;
const FLAG_SLOTS_USED: u8 = 4;

impl ClusterMap {
    /// The map's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u8(FORM_MAP);
        w.u8(SECTION_CORE).sized(|w| self.encode_core(w));
        w.u8(SECTION_RANKS).sized(|w| {
            for (rank, info) in &self.ranks {
                put_rank(w.u16(rank.0), Some(*info));
            }
        });
        w.u8(SECTION_DAEMONS).sized(|w| {
            for (daemon, info) in &self.daemons {
                put_daemon(w.u64(daemon.0), Some(info));
            }
        });
        w.u8(SECTION_ENTRIES).sized(|w| {
            for (unit, entry) in self.entries.iter() {
                put_unit(w, *unit);
                put_entry(w, Some(entry));
            }
        });
        w.u8(SECTION_SLOTS).sized(|w| {
            for (range, slot) in self.slots.runs() {
                put_slot(w.u16(range.end - range.start), slot);
            }
        });
        if !self.weights.is_empty() {
            w.u8(SECTION_WEIGHTS).sized(|w| {
                for (rank, weight) in &self.weights {
                    w.u16(rank.0).u16(*weight);
                }
            });
        }
        for (tag, body) in &self.unknown {
            w.u8(*tag).bytes(body);
        }
        w.0
    }

    /// Reads a map that fills `bytes` exactly, and checks it.
    ///
    /// # Errors
    /// `MapError::Decode` when the bytes are no map, any other when the map contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, MapError> {
        if bytes.len() > MAP_BYTES_MAX {
            return Err(too_long("cluster map", bytes.len()).into());
        }
        let mut r = Reader::new(bytes);
        let form = r.u8()?;
        if form != FORM_MAP {
            return Err(DecodeError::UnknownTag { what: "form of a cluster map", tag: form.into() }.into());
        }
        let mut map = take_core(section(&mut r, SECTION_CORE)?)?;
        map.ranks = records(section(&mut r, SECTION_RANKS)?, RANKS_MAX.into(), |r| {
            Ok((RankId(r.u16()?), take_rank(r)?))
        })?;
        map.daemons = records(section(&mut r, SECTION_DAEMONS)?, DAEMONS_MAX, |r| {
            Ok((DaemonId(r.u64()?), take_daemon(r)?))
        })?;
        let entries =
            records(section(&mut r, SECTION_ENTRIES)?, ENTRIES_MAX, |r| Ok((take_unit(r)?, take_entry(r)?)))?;
        map.entries = Arc::new(entries);
        map.slots = Arc::new(take_slots(section(&mut r, SECTION_SLOTS)?)?);
        let mut last = SECTION_SLOTS;
        while !r.is_empty() {
            let tag = r.u8()?;
            if tag <= last {
                return Err(DecodeError::Invalid { what: "order of sections" }.into());
            }
            last = tag;
            if tag == SECTION_WEIGHTS {
                let body = r.bytes(MAP_BYTES_MAX)?;
                map.weights = records(body, RANKS_MAX.into(), |r| Ok((RankId(r.u16()?), Some(r.u16()?))))?;
                if map.weights.is_empty() {
                    return Err(DecodeError::Invalid { what: "weights of ranks" }.into());
                }
                continue;
            }
            map.unknown.insert(tag, r.bytes(UNKNOWN_BYTES_MAX)?.into());
        }
        map.check()?;
        Ok(map)
    }

    fn encode_core(&self, w: &mut Writer) {
        let joinable = if self.joinable { FLAG_JOINABLE } else { 0 };
        let placement = if self.hash_placement { FLAG_HASH_PLACEMENT } else { 0 };
        let used = if self.slots_used { FLAG_SLOTS_USED } else { 0 };
        w.u64(self.version).u16(self.max_mds).u8(joinable | placement | used).u64(self.coordinator);
        w.u64(self.last_incarnation.0).u64(self.last_daemon.0).u64(self.last_move.0);
        put_mask(w, self.bal_rank_mask);
        put_mask(w, self.made);
    }
}

/// The map but for what is in other sections.
fn take_core(body: &[u8]) -> Result<ClusterMap, DecodeError> {
    let mut r = Reader::new(body);
    let mut map = ClusterMap::first();
    (map.version, map.max_mds) = (r.u64()?, r.u16()?);
    let flags = r.u8()?;
    if flags & !(FLAG_JOINABLE | FLAG_HASH_PLACEMENT | FLAG_SLOTS_USED) != 0 {
        return Err(DecodeError::Invalid { what: "flags of a cluster map" });
    }
    (map.joinable, map.hash_placement) = (flags & FLAG_JOINABLE != 0, flags & FLAG_HASH_PLACEMENT != 0);
    map.slots_used = flags & FLAG_SLOTS_USED != 0;
    map.coordinator = r.u64()?;
    map.last_incarnation = Incarnation(r.u64()?);
    (map.last_daemon, map.last_move) = (DaemonId(r.u64()?), MoveId(r.u64()?));
    (map.bal_rank_mask, map.made) = (take_mask(&mut r)?, take_mask(&mut r)?);
    r.finish()?;
    Ok(map)
}

fn section<'a>(r: &mut Reader<'a>, tag: u8) -> Result<&'a [u8], DecodeError> {
    if r.u8()? != tag {
        return Err(DecodeError::Invalid { what: "order of sections" });
    }
    r.bytes(MAP_BYTES_MAX)
}

/// Records of which each key is higher than the one before, and of which none says that it is not there.
fn records<K: Ord, V>(
    body: &[u8],
    max: usize,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<(K, Option<V>), DecodeError>,
) -> Result<BTreeMap<K, V>, DecodeError> {
    let mut r = Reader::new(body);
    let mut records = BTreeMap::new();
    while !r.is_empty() {
        let (key, value) = take(&mut r)?;
        let value = value.ok_or(DecodeError::Invalid { what: "record of a cluster map" })?;
        if records.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(DecodeError::Invalid { what: "order of records" });
        }
        if records.len() == max {
            return Err(too_long("section of a cluster map", max + 1));
        }
        records.insert(key, value);
    }
    Ok(records)
}

fn take_slots(body: &[u8]) -> Result<Slots, DecodeError> {
    let mut r = Reader::new(body);
    let mut runs = Vec::new();
    while !r.is_empty() {
        if runs.len() == usize::from(SLOTS) {
            return Err(too_long("slot table", runs.len() + 1));
        }
        runs.push((r.u16()?, take_slot(&mut r)?));
    }
    Slots::from_runs(&runs).ok_or(DecodeError::Invalid { what: "slot table" })
}

pub(super) const fn too_long(what: &'static str, len: usize) -> DecodeError {
    DecodeError::TooLong { what, len: len as u64 }
}

/// What follows a rank's number; state 0: it is not there.
pub(super) fn put_rank(w: &mut Writer, info: Option<RankInfo>) {
    match info {
        None => w.u8(0),
        Some(info) => w.u8(info.state as u8).u64(info.incarnation.0).u64(info.daemon.0),
    };
}

pub(super) fn take_rank(r: &mut Reader<'_>) -> Result<Option<RankInfo>, DecodeError> {
    let state = match r.u8()? {
        0 => return Ok(None),
        1 => RankState::Failed,
        2 => RankState::Replay,
        3 => RankState::Resolve,
        4 => RankState::Reconnect,
        5 => RankState::Active,
        6 => RankState::Stopping,
        7 => RankState::Damaged,
        8 => RankState::Creating,
        tag => return Err(DecodeError::UnknownTag { what: "state of a rank", tag: tag.into() }),
    };
    Ok(Some(RankInfo { state, incarnation: Incarnation(r.u64()?), daemon: DaemonId(r.u64()?) }))
}

/// What follows a daemon's number; without a name it is not there.
pub(super) fn put_daemon(w: &mut Writer, info: Option<&DaemonInfo>) {
    w.name(info.map_or(&[], |info| info.name.as_bytes()));
}

pub(super) fn take_daemon(r: &mut Reader<'_>) -> Result<Option<DaemonInfo>, DecodeError> {
    let name = str::from_utf8(r.name()?).map_err(|_| DecodeError::Invalid { what: "name of a daemon" })?;
    Ok((!name.is_empty()).then(|| DaemonInfo { name: name.to_owned() }))
}

pub(crate) fn put_unit(w: &mut Writer, unit: Unit) {
    w.u64(unit.dir.0).u64(unit.frag.prefix).u8(unit.frag.depth);
}

pub(crate) fn take_unit(r: &mut Reader<'_>) -> Result<Unit, DecodeError> {
    Ok(Unit { dir: Ino(r.u64()?), frag: Frag { prefix: r.u64()?, depth: r.u8()? } })
}

/// What follows an entry's unit; policy 0: it is not there.
pub(super) fn put_entry(w: &mut Writer, entry: Option<&Entry>) {
    match entry {
        None => {
            w.u8(0);
        }
        Some(entry) => {
            w.u8(entry.policy as u8).u16(entry.rank.0).u64(entry.version);
            put_moving(w, entry.moving);
        }
    }
}

pub(super) fn take_entry(r: &mut Reader<'_>) -> Result<Option<Entry>, DecodeError> {
    let policy = match r.u8()? {
        0 => return Ok(None),
        1 => Policy::Pin,
        2 => Policy::Spread,
        3 => Policy::Carved,
        4 => Policy::Placement,
        tag => return Err(DecodeError::UnknownTag { what: "policy of an entry", tag: tag.into() }),
    };
    let (rank, version) = (RankId(r.u16()?), r.u64()?);
    Ok(Some(Entry { rank, version, policy, moving: take_moving(r)? }))
}

pub(super) fn put_slot(w: &mut Writer, slot: Slot) {
    w.u16(slot.rank.0).u64(slot.version);
    put_moving(w, slot.moving);
}

pub(super) fn take_slot(r: &mut Reader<'_>) -> Result<Slot, DecodeError> {
    Ok(Slot { rank: RankId(r.u16()?), version: r.u64()?, moving: take_moving(r)? })
}

fn put_moving(w: &mut Writer, moving: Option<Moving>) {
    w.option(moving.as_ref(), |w, moving| {
        w.u64(moving.id.0).u16(moving.to.0);
    });
}

fn take_moving(r: &mut Reader<'_>) -> Result<Option<Moving>, DecodeError> {
    r.option(|r| Ok(Moving { id: MoveId(r.u64()?), to: RankId(r.u16()?) }))
}

pub(super) fn put_mask(w: &mut Writer, mask: Mask) {
    for word in mask.0 {
        w.u64(word);
    }
}

pub(super) fn take_mask(r: &mut Reader<'_>) -> Result<Mask, DecodeError> {
    Ok(Mask([r.u64()?, r.u64()?, r.u64()?, r.u64()?]))
}
