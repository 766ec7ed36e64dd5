//! Changes of ownership that ranks ask for, and what they name so that nobody else's word is undone.
//!
//! Absent: which are carried out (`changes`); what operators ask for (`Command`).

use proto::cluster::{Entry, MoveId, Policy, RankInfo, Slot, Unit};
use proto::{Incarnation, RankId};
use std::fmt;

/// What says whose a unit is: what governs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Governor {
    /// An entry: of the unit, of a larger one of its directory, or of one that its directory inherits from.
    Entry(Unit),
    /// A slot: of the unit, or of one that its directory inherits from.
    Slot(u16),
}

/// What a unit's owner resolves to, in the map that whoever asks has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Governing {
    pub by: Governor,
    pub version: u64,
}

/// What is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// What an entry has; a unit without one gets it.
    Unit { unit: Unit, governing: Governing },
    /// Neighbouring slots of one rank; `version`: the highest of theirs.
    Slots { first: u16, count: u16, version: u64 },
}

/// Why an entry is not needed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Its directory was purged.
    Purged,
    /// Without it the unit is governed so, and has the same owner.
    Merged(Governing),
}

/// A life of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub rank: RankId,
    pub incarnation: Incarnation,
}

/// What a rank asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// An entry of its own for a unit that has none; the owner stays the same.
    MakeExplicit { unit: Unit, policy: Policy, governing: Governing },
    /// The move is announced: what it needs is in the map that answers this.
    MoveBegin { moved: Subject, to: RankId },
    /// The other rank has it from now on. Whoever asks for this stays sealed until it has read a map without the move.
    Switch { id: MoveId },
    /// It stays where it is.
    Abort { id: MoveId },
    /// The unit has no entry of its own any more. `version`: of that entry, which is the asker's and does not move. `CommandError::Stale`
    /// if it is another version or another rank's, `WrongState` if it moves. The root directory keeps its entry (`Unsupported`).
    Drop { unit: Unit, version: u64, why: Dropped },
    /// The unit's entry has another policy; the owner stays the same. It is refused as `Drop` is; the root's may have another, too.
    SetPolicy { unit: Unit, version: u64, policy: Policy },
    /// Slots are to be spread: directories will be placed by them.
    UseSlots,
    /// It was stopping, has nothing left, and ends.
    Leave,
}

/// What is there instead of what was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Entry(Unit, Option<Entry>),
    Slot(u16, Slot),
    Rank(RankId, Option<RankInfo>),
    /// No move of that number, or not of a rank that may end it.
    Move(MoveId),
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(unit, None) => write!(f, "{}: it has no entry", Named(*unit)),
            Self::Entry(unit, Some(entry)) => {
                write!(f, "{}: rank {}'s, of version {}", Named(*unit), entry.rank.0, entry.version)
            }
            Self::Slot(number, slot) => {
                write!(f, "slot {number}: rank {}'s, of version {}", slot.rank.0, slot.version)
            }
            Self::Rank(rank, None) => write!(f, "rank {}: no such rank", rank.0),
            Self::Rank(rank, Some(info)) => {
                write!(f, "rank {}: {}, incarnation {}", rank.0, info.state.name(), info.incarnation.0)
            }
            Self::Move(id) => write!(f, "move {}: not under way, or not this rank's", id.0),
        }
    }
}

/// A unit for people.
#[derive(Debug)]
pub(super) struct Named(pub Unit);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unit { dir, frag } = self.0;
        write!(f, "directory {:#x}", dir.0)?;
        match frag.depth {
            0 => Ok(()),
            depth => write!(f, ", hashes {:#018x}/{depth}", frag.prefix),
        }
    }
}
