//! What is wanted of entries of the cluster map: pins that are asked for, remembered ones, and entries of directories that are gone.
//!
//! Absent: how a wish is carried out (`moves.rs`); the xattr (`ops/pin.rs`).

use super::{Goal, Move};
use crate::coordinator::{Dropped, Governing, Governor};
use crate::op::OpId;
use crate::output::{MapWish, Output};
use crate::peers::Question;
use crate::rank::Rank;
use crate::territory::{Part, Side};
use crate::units::whole;
use crate::view::Purged;
use proto::cluster::{ClusterMap, Entry, Moving, Policy, Unit};
use proto::request::Request;
use proto::{Frag, Ino, Position, RankId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::{Mono, Now, Outbox};

/// Pins, by directory.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// Cached directories at home here that have one, and when it is looked at next if it is not as it says.
    known: BTreeMap<Ino, Mono>,
    due: Option<Mono>,
    /// Of some it is not known whether they are at home here.
    unplaced: bool,
    /// Directories that are gone and may have an entry, and where the journal says so.
    purged: BTreeMap<Unit, Removal>,
    /// Those of them for which this was asked by the map of now. What comes of it the next one says: asked with each step while others are
    /// not durable yet, the coordinator had nothing else to do.
    asked: BTreeSet<Unit>,
    /// The map is to be asked for without them.
    purge: bool,
}

/// Of a directory that has an entry.
#[derive(Clone, Copy, Debug)]
struct Removal {
    /// Where it ends in the journal.
    at: Position,
    /// The first checkpoint that is sure to have it.
    stored_by: u64,
    /// Its inode was here.
    at_home: bool,
}

impl Pins {
    pub(super) fn due(&self) -> Option<Mono> {
        self.due
    }

    pub(super) fn is_idle(&self) -> bool {
        self.purged.is_empty()
    }

    /// A new map: each is looked at again.
    pub(super) fn look_again(&mut self, now: Mono) {
        self.purge = !self.purged.is_empty();
        self.asked.clear();
        if !self.known.is_empty() {
            self.due = Some(now);
        }
    }
}

impl Rank {
    /// A directory's entry is to be as `goal` says; the operation waits for it. If its content is elsewhere, that rank is asked.
    pub(crate) fn pin(&mut self, op: OpId, dir: Ino, goal: Goal) {
        self.hold_pin(dir);
        match (self.view.of_itself(dir), goal) {
            (Some(Side::Other(Some(owner))), Goal::Pin(to)) => {
                let unit = self.view.cache.unit(dir);
                self.ask(Question::Hand(unit, to), owner, Request::Hand { unit, to }, Some(op));
            }
            (Some(Side::Other(Some(owner))), Goal::Unpin) => {
                self.ask(Question::Unpin(dir), owner, Request::Unpin { dir }, Some(op));
            }
            _ => self.moves.add(self.part_of(dir), goal, Some(op)),
        }
    }

    /// Somebody is about to have it elsewhere than its pin says yet, or to remove it.
    pub(crate) fn hold_pin(&mut self, dir: Ino) {
        let until = self.after_leases(self.view.now);
        if !stdx::mutant!("mds_pin_pulls_back") {
            self.moves.pins.known.insert(dir, until);
        }
    }

    /// What governs a directory's content; `without`: if it had no entry itself.
    pub(crate) fn governing(&self, dir: Ino, without: bool) -> Option<Governing> {
        let mut at = dir;
        let mut skip = without;
        loop {
            let unit = self.view.cache.unit(at);
            if let Some(entry) = self.view.territory.entry_of(unit).filter(|_| !skip) {
                return Some(Governing { by: Governor::Entry(unit), version: entry.version });
            }
            skip = false;
            if unit.dir != at {
                at = unit.dir;
                continue;
            }
            if self.view.is_placed(at) {
                let slot = ClusterMap::slot_of(at, Frag::WHOLE);
                let version = self.view.territory.map()?.slots.get(slot).version;
                return Some(Governing { by: Governor::Slot(slot), version });
            }
            let node = self.view.cache.by_ino(at)?;
            at = self.view.cache.parent_ino(node);
        }
    }

    pub(super) fn governing_part(&self, part: Part, without: bool) -> Option<Governing> {
        match part {
            Part::Of(number) => self.governing(number, without),
            Part::Slots { .. } => None,
        }
    }

    /// Whose a directory's content is; none: what governs it is not cached, or this rank has no map.
    pub(crate) fn owner(&self, dir: Ino) -> Option<RankId> {
        match self.governing(dir, false)?.by {
            Governor::Entry(unit) => Some(self.view.territory.entry_of(unit)?.rank),
            Governor::Slot(number) => Some(self.view.territory.map()?.slots.get(number).rank),
        }
    }

    /// Pins that may be set now, and entries that nobody needs.
    pub(super) fn pins_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        for dir in std::mem::take(&mut self.view.cache.pinned) {
            self.moves.pins.known.entry(dir).or_insert(now.mono);
            self.moves.pins.due = Some(now.mono);
        }
        if self.moves.pins.due.is_some_and(|due| due <= now.mono) {
            let known = std::mem::take(&mut self.moves.pins.known);
            let looked =
                known.into_iter().filter_map(|(dir, at)| Some((dir, self.look_at_pin(dir, at, now)?)));
            let looked: BTreeMap<Ino, Mono> = looked.collect();
            let unplaced = std::mem::take(&mut self.moves.pins.unplaced).then(|| self.after_leases(now));
            let later = looked.values().copied().filter(|at| *at > now.mono);
            self.moves.pins.due = later.chain(unplaced).min();
            self.moves.pins.known = looked;
        }
        self.drop_purged(out);
    }

    /// Has a pin carried out that is not, if that is possible now. Returns when to look again (not later than now: not before
    /// something changes); none: it is not this rank's to see to. As long as nobody knows whether it is, it may be: a replay brings an inode
    /// without the directories above it. So it is while its home is sealed, which may come to nothing.
    fn look_at_pin(&mut self, dir: Ino, at: Mono, now: Now) -> Option<Mono> {
        let node = self.view.cache.by_ino(dir)?;
        let to = self.view.cache.ext(node)?.policies.pin?;
        let home = self.view.cache.node(node).dir;
        match self.view.side(home) {
            Some(Side::Mine) => {}
            None | Some(Side::Sealed) if !stdx::mutant!("mds_pin_forgotten_unplaced") => {
                self.moves.pins.unplaced = true;
                return Some(at);
            }
            None | Some(Side::Sealed | Side::Other(_)) => return None,
        }
        let entry = self.view.territory.entry(dir);
        let is_so = entry.is_some_and(|entry| entry.rank == to && entry.policy == Policy::Pin);
        if is_so || !self.view.serves(to) || at > now.mono {
            return Some(at);
        }
        // An entry says whose its content is, or a slot; else it is with its name, which is here.
        let side = self.view.of_itself(dir);
        let side = side.filter(|_| entry.is_some() || !stdx::mutant!("mds_pin_goes_by_entries"));
        match side {
            Some(Side::Other(Some(owner))) => {
                let unit = whole(dir);
                self.ask(Question::Hand(unit, to), owner, Request::Hand { unit, to }, None);
            }
            None | Some(Side::Mine | Side::Sealed | Side::Other(None)) => {
                self.moves.add((Part::Of(dir), whole(dir)), Goal::Pin(to), None);
            }
        }
        // If nothing comes of it, it is tried again, but not all the time.
        Some(self.after_leases(now))
    }

    pub(super) fn after_leases(&self, now: Now) -> Mono {
        now.mono.after(super::LEASES * self.view.config.lease_ns)
    }

    /// An inode is gone; its directory may have an entry here.
    pub(crate) fn note_purged(&mut self) {
        let (at, stored_by) = (self.journal.end, self.checkpoint.begun + 1);
        for Purged { unit, at_home } in std::mem::take(&mut self.view.purged) {
            self.moves.pins.purged.insert(unit, Removal { at, stored_by, at_home });
            self.moves.pins.asked.remove(&unit);
            self.moves.pins.purge = true;
        }
    }

    fn drop_purged(&mut self, out: &mut Outbox<Output>) {
        if !self.moves.pins.purge {
            return;
        }
        self.stop_moves_of_purged(out);
        let me = self.view.config.rank;
        let territory = &self.view.territory;
        // One may be in the making.
        let moving = self.moves.current.as_ref().map(|one| one.unit);
        let (carving, abandoned) = (&self.view.carving, &self.moves.abandoned);
        self.moves.pins.purged.retain(|unit, _| {
            moving == Some(*unit)
                || abandoned.contains_key(unit)
                || carving.contains(&unit.dir)
                || territory.entry_of(*unit).is_some_and(|entry| entry.rank == me)
        });
        let (all, may_go) = self.removals_to_tell();
        self.moves.pins.purge = !all;
        let asked = &mut self.moves.pins.asked;
        let asks = |unit: &Unit| asked.insert(*unit) || stdx::mutant!("mds_asks_for_drops_without_end");
        let units: Vec<Unit> = may_go.into_iter().filter(asks).collect();
        let territory = &self.view.territory;
        let drop = |unit: &Unit| {
            let Entry { version, moving, .. } = *territory.entry_of(*unit)?;
            match moving {
                None => Some(MapWish::Drop { unit: *unit, version, why: Dropped::Purged }),
                // Of a unit that there is not nobody knows the number, to move it.
                Some(Moving { id, .. }) if unit.frag != Frag::WHOLE => {
                    Some(MapWish::Abort { unit: *unit, id })
                }
                Some(_) => None,
            }
        };
        out.extend(units.iter().filter_map(drop).map(Output::Wish));
    }

    /// Which entries nobody needs any more, and whether those are all: the removal is durable, and where another rank has the directory without
    /// its entry, it is in the store, too. Else one of these comes to be:
    /// (a) the slot's owner knows the directory and not that it is gone, takes it for its own by the next map, and finds its names still stored:
    /// a client with an old handle gave a removed file a name so;
    /// (b) the same if the slot is this rank's and moves away: what was stored for that move is older than the removal;
    /// (c) without slots what has no entry is with its inode. If this was the last entry of a rank other than the inode's, that one owns
    /// everything then, and follows an old handle's place without looking whether there is such a directory.
    /// The rest of the checkpoint is not waited for: what it takes out of the journal no next life asks for.
    fn removals_to_tell(&mut self) -> (bool, Vec<Unit>) {
        let (durable, checkpoint) = (self.journal.durable, &self.checkpoint);
        let view = &self.view;
        let stays = |dir, removal: &Removal| match view.has_slots() {
            true => view.territory.keeps_slot(dir),
            false => removal.at_home && view.territory.leaving().is_none(),
        };
        let mut wanted = false;
        let may_go = self.moves.pins.purged.iter().filter(|(unit, removal)| {
            let is_stored = checkpoint.has_names(removal.stored_by) || stays(unit.dir, removal);
            let is_durable = removal.at <= durable;
            wanted |= is_durable && !is_stored && checkpoint.begun < removal.stored_by;
            is_durable && (is_stored || stdx::mutant!("mds_drops_unstored"))
        });
        let may_go: Vec<Unit> = may_go.map(|(unit, _)| *unit).collect();
        // One that nobody waits for may be long in coming.
        self.checkpoint.wanted |= wanted;
        (may_go.len() == self.moves.pins.purged.len(), may_go)
    }

    /// What is gone does not move. It was removed before the seal, or what was decided before that took it away while that was waited for:
    /// once the journal says that it is sealed nothing of it is changed.
    fn stop_moves_of_purged(&mut self, out: &mut Outbox<Output>) {
        let gone = |unit: &Unit| self.moves.pins.purged.contains_key(unit);
        let may_stop = |one: &Move| one.phase.is_before_seal() || one.sealed_until.is_some();
        if self.moves.current.as_ref().is_some_and(|one| gone(&one.unit) && may_stop(one)) {
            self.give_up_move("it was removed", out);
        }
    }

    /// Whether the entry of a directory says that it was pinned.
    pub(super) fn is_pinned(&self, unit: Unit) -> bool {
        self.view.territory.entry_of(unit).is_some_and(|entry| entry.policy == Policy::Pin)
    }
}
