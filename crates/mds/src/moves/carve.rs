//! Entries of their own for directories that are about to be renamed to where something else governs. What is in them stays where it is,
//! and is governed as before. docs/PROTOCOL.md, "Directories that move".
//!
//! Absent: the rename (`transactions/across.rs`, `ops/rename.rs`); entries that somebody asked for by name (`pins.rs`).

use super::Phase;
use crate::config::State;
use crate::coordinator::{Governing, Governor};
use crate::op::OpId;
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use crate::units::whole;
use proto::cluster::{Policy, Unit};
use proto::{Ino, Position};
use std::collections::BTreeMap;
use stdx::time::MS;
use stdx::{Mono, Now, Outbox};

/// What was refused is asked for again after that: it was asked for by an older map.
const AGAIN_NS: u64 = 5 * MS;

/// One that is wanted.
#[derive(Debug)]
struct Carve {
    ops: Vec<OpId>,
    /// Nobody hears of a directory that a crash could take back.
    durable: Position,
    /// The coordinator has not answered.
    asked: bool,
    not_before: Mono,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Carves {
    wanted: BTreeMap<Ino, Carve>,
    due: Option<Mono>,
}

impl Carves {
    pub(super) fn is_idle(&self) -> bool {
        self.wanted.is_empty()
    }

    /// When one is asked for again. What waits for a map, or for the journal, waits for no time.
    pub(super) const fn due(&self) -> Option<Mono> {
        self.due
    }

    fn look_at_times(&mut self, now: Mono) {
        let open = self.wanted.values().filter(|carve| !carve.asked);
        self.due = open.map(|carve| carve.not_before).filter(|at| *at > now).min();
    }

    /// Whether the coordinator is asked for one: by the same map nothing else is asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.wanted.values().any(|carve| carve.asked)
    }
}

impl Rank {
    /// An operation waits until the directory has an entry of its own.
    pub(crate) fn carve(&mut self, op: OpId, dir: Ino) {
        // Another rank has seen to it: this one has yet to hear of the map.
        let is_elsewhere = !self.is_at_home(dir);
        let not_before = self.view.now.mono.after(if is_elsewhere { AGAIN_NS } else { 0 });
        let (ops, durable) = (Vec::new(), self.journal.end);
        let new = Carve { ops, durable, asked: false, not_before };
        let carve = self.moves.carves.wanted.entry(dir).or_insert(new);
        carve.ops.push(op);
        self.journal.want_durable();
    }

    /// Those that are there now, and those of which nobody here can see to it.
    pub(super) fn carves_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.moves.carves.is_idle() {
            return;
        }
        for (dir, carve) in std::mem::take(&mut self.moves.carves.wanted) {
            let is_wanted = carve.asked
                || carve.not_before > now.mono
                || carve.ops.iter().any(|op| self.parked.contains_key(op));
            if self.is_carved(dir) {
                self.view.carving.remove(&dir);
                self.look_again(carve.ops);
            } else if !carve.asked && carve.not_before <= now.mono && !self.is_at_home(dir) {
                // It may be gone, or where it was not when it was told of.
                carve.ops.into_iter().for_each(|op| self.tell_anew(op, out));
            } else if is_wanted {
                self.moves.carves.wanted.insert(dir, carve);
            }
        }
        self.ask_for_carve(now, out);
        self.moves.carves.look_at_times(now.mono);
    }

    /// It has an entry, and none that is about to be dropped.
    fn is_carved(&self, dir: Ino) -> bool {
        self.view.territory.entry(dir).is_some() && !self.view.unnaming.contains_key(&dir)
    }

    /// One at a time, and not beside what else is asked by this map: what governs a directory may have another version then.
    fn ask_for_carve(&mut self, now: Now, out: &mut Outbox<Output>) {
        let is_asking = self.moves.current.as_ref().is_some_and(|one| {
            matches!(one.phase, Phase::Named | Phase::Dropping)
                || (one.phase == Phase::Announce && one.id.is_none())
        });
        if is_asking || self.moves.carves.is_asked() || self.state != State::Active {
            return;
        }
        let durable = self.journal.durable;
        let ready = self
            .moves
            .carves
            .wanted
            .iter()
            .filter(|(_, carve)| carve.durable <= durable && carve.not_before <= now.mono);
        for dir in ready.map(|(dir, _)| *dir).collect::<Vec<_>>() {
            let Some(wish) = self.carve_wish(dir) else {
                // With the next map, or when its place is cached again.
                let again = now.mono.after(AGAIN_NS);
                self.moves.carves.wanted.entry(dir).and_modify(|carve| carve.not_before = again);
                continue;
            };
            out.push(Output::Wish(wish));
            self.view.carving.insert(dir);
            self.moves.carves.wanted.entry(dir).and_modify(|carve| carve.asked = true);
            return;
        }
    }

    /// What makes it so that the directory has an entry, and keeps it.
    fn carve_wish(&mut self, dir: Ino) -> Option<MapWish> {
        let unit = whole(dir);
        if let Some(entry) = self.view.territory.entry(dir) {
            // With another version what was asked before, to drop it, comes too late.
            let (version, policy) = (entry.version, entry.policy);
            return entry.moving.is_none().then_some(MapWish::SetPolicy { unit, version, policy });
        }
        let Some(governing) = self.governing(dir, false) else {
            // Who waits looks for its place again.
            let carve = self.moves.carves.wanted.get_mut(&dir);
            let ops = carve.map(|carve| std::mem::take(&mut carve.ops)).unwrap_or_default();
            self.look_again(ops);
            return None;
        };
        let is_still = !self.is_moving(governing) && self.owner(dir) == Some(self.view.config.rank);
        is_still.then_some(MapWish::Make { unit, policy: Policy::Carved, governing })
    }

    fn is_moving(&self, governing: Governing) -> bool {
        match governing.by {
            Governor::Entry(unit) => {
                self.view.territory.entry_of(unit).is_none_or(|entry| entry.moving.is_some())
            }
            Governor::Slot(slot) => {
                self.view.territory.map().is_none_or(|map| map.slots.get(slot).moving.is_some())
            }
        }
    }

    /// The coordinator does not do it. Whether that was said of one.
    pub(super) fn carve_refused(&mut self, unit: Unit) -> bool {
        let again = self.view.now.mono.after(AGAIN_NS);
        let carve = self.moves.carves.wanted.get_mut(&unit.dir).filter(|carve| carve.asked);
        let Some(carve) = carve.filter(|_| unit == whole(unit.dir)) else { return false };
        (carve.asked, carve.not_before) = (false, again);
        // It may come to be all the same: `carving` stays until the next map.
        true
    }

    /// A new map: what was to be dropped is gone, or stays.
    pub(super) fn unnaming_by_map(&mut self) {
        let territory = &self.view.territory;
        self.view
            .unnaming
            .retain(|dir, version| territory.entry(*dir).is_some_and(|entry| entry.version == *version));
        // What was refused and came to be all the same this map says.
        let asked = &self.moves.carves.wanted;
        self.view.carving.retain(|dir| asked.get(dir).is_some_and(|carve| carve.asked));
    }
}
