//! What is true of every cluster map. Whoever reads one checks it; whoever changes one must leave it so.
//!
//! Absent: what is true of two maps that follow each other (`mds::coordinator`).

use super::codec::SECTION_WEIGHTS;
use super::{
    ClusterMap, DAEMONS_MAX, DaemonId, ENTRIES_MAX, MoveId, Moving, RANKS_MAX, RankInfo, RankState,
    UNIT_DEPTH_MAX, UNKNOWN_BYTES_MAX, Unit, WEIGHT, WEIGHT_MAX,
};
use crate::codec::DecodeError;
use crate::ids::{Frag, Incarnation, Ino, NameHash, RankId};
use std::collections::BTreeSet;
use thiserror::Error;

/// Why something is not a cluster map, or not one that a delta fits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MapError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("{0}")]
    Field(&'static str),
    #[error("rank {}: {why}", rank.0)]
    Rank { rank: RankId, why: &'static str },
    #[error("daemon {}: {why}", daemon.0)]
    Daemon { daemon: DaemonId, why: &'static str },
    #[error("entry of {:#x}, prefix {:#x} of depth {}: {why}", unit.dir.0, unit.frag.prefix, unit.frag.depth)]
    Entry { unit: Unit, why: &'static str },
    #[error("slot {first}: {why}")]
    Slot { first: u16, why: &'static str },
    #[error("a delta from version {from}, and a map of version {have}")]
    Base { from: u64, have: u64 },
}

type Why = Result<(), &'static str>;

const fn must(holds: bool, why: &'static str) -> Why {
    if holds { Ok(()) } else { Err(why) }
}

impl ClusterMap {
    /// Whether it contradicts itself.
    ///
    /// # Errors
    /// `MapError` names the first thing that does.
    pub fn check(&self) -> Result<(), MapError> {
        self.check_fields().map_err(MapError::Field)?;
        for (rank, info) in &self.ranks {
            self.check_rank(*rank, *info).map_err(|why| MapError::Rank { rank: *rank, why })?;
        }
        for (daemon, info) in &self.daemons {
            let named = must((1..=255).contains(&info.name.len()), "its name has not 1 to 255 bytes");
            let given = must(
                (DaemonId(1)..=self.last_daemon).contains(daemon),
                "its number was not given to anybody",
            );
            given.and(named).map_err(|why| MapError::Daemon { daemon: *daemon, why })?;
        }
        for (unit, entry) in self.entries.iter() {
            check_unit(*unit)
                .and_then(|()| self.check_owner(entry.rank, entry.version, entry.moving))
                .map_err(|why| MapError::Entry { unit: *unit, why })?;
        }
        for (range, slot) in self.slots.runs() {
            self.check_owner(slot.rank, slot.version, slot.moving)
                .map_err(|why| MapError::Slot { first: range.start, why })?;
        }
        Ok(())
    }

    fn check_fields(&self) -> Why {
        must(self.version >= 1, "version 0")?;
        let counted = [self.version, self.coordinator, self.last_daemon.0, self.last_move.0];
        let small = |number: u64| number >> 63 == 0;
        must(counted.into_iter().all(small) && small(self.last_incarnation.0), "a number of 2^63 or more")?;
        must((1..=RANKS_MAX).contains(&self.max_mds), "max_mds is not 1 to 256")?;
        must(self.ranks.contains_key(&RankId(0)), "rank 0 is missing")?;
        must(self.daemons.len() <= DAEMONS_MAX, "more than 256 daemons")?;
        must(self.entries.len() <= ENTRIES_MAX, "more than 65,536 entries")?;
        must(self.entries.contains_key(&Unit::ROOT), "the root's entry is missing")?;
        must(
            self.unknown.iter().all(|(tag, body)| *tag > SECTION_WEIGHTS && !body.is_empty()),
            "an odd section",
        )?;
        must(
            self.weights.iter().all(|(rank, weight)| {
                rank.0 < RANKS_MAX && (1..=WEIGHT_MAX).contains(weight) && *weight != WEIGHT
            }),
            "a weight that none is, or of a rank above 255",
        )?;
        let unknown: usize = self.unknown.values().map(|body| body.len()).sum();
        must(unknown <= UNKNOWN_BYTES_MAX, "more than 1 MiB of a later version")?;
        let mut lives = BTreeSet::new();
        let mut carried = BTreeSet::new();
        let once = |info: &RankInfo| {
            (info.incarnation == Incarnation(0) || lives.insert(info.incarnation))
                && (info.daemon == DaemonId::NONE || carried.insert(info.daemon))
        };
        must(self.ranks.values().all(once), "a life of two ranks, or a daemon with two")
    }

    fn check_rank(&self, rank: RankId, info: RankInfo) -> Why {
        must(rank.0 < RANKS_MAX, "above 255")?;
        must(info.incarnation <= self.last_incarnation, "its incarnation was not given to any rank")?;
        let carried = info.daemon != DaemonId::NONE;
        must(!carried || self.daemons.contains_key(&info.daemon), "its daemon is not known")?;
        must(
            !carried || info.incarnation > Incarnation(0),
            "a daemon carries it, and it has no incarnation",
        )?;
        match info.state {
            RankState::Failed => must(!carried, "failed, and a daemon carries it"),
            RankState::Damaged => Ok(()),
            RankState::Creating => must(carried, "no daemon carries it"),
            RankState::Replay
            | RankState::Resolve
            | RankState::Reconnect
            | RankState::Active
            | RankState::Stopping => {
                must(carried, "no daemon carries it")?;
                must(self.made.has(rank), "it serves, and was never made")
            }
        }
    }

    fn check_owner(&self, rank: RankId, version: u64, moving: Option<Moving>) -> Why {
        must(self.ranks.contains_key(&rank), "its rank is not in the map")?;
        must((1..=self.version).contains(&version), "its version is 0 or newer than the map's")?;
        let Some(Moving { id, to }) = moving else { return Ok(()) };
        must((MoveId(1)..=self.last_move).contains(&id), "its move was never begun")?;
        must(to != rank && self.ranks.contains_key(&to), "it moves to its own rank or to one not in the map")
    }
}

fn check_unit(Unit { dir, frag }: Unit) -> Why {
    must(dir != Ino::NONE && dir.0 >> 63 == 0, "not the number of an inode")?;
    must(frag.depth <= UNIT_DEPTH_MAX, "deeper than 24")?;
    must(frag == Frag::leading(NameHash(frag.prefix), frag.depth), "its prefix has bits beyond its depth")
}
