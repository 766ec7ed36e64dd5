//! New cluster maps: what they say of what this rank has, and of moves under way.
//!
//! Absent: other ranks' lives (`peers/links.rs`); whose each directory is (`territory.rs`).

use super::{AGAIN_NS, Abandoned, Goal, Phase};
use crate::cache::dir;
use crate::op::LoadKey;
use crate::output::{Level, MapWish, Output};
use crate::rank::Rank;
use crate::territory::Part;
use proto::cluster::{ClusterMap, Entry, Unit};
use proto::{Errno, Frag};
use std::sync::Arc;
use stdx::{Now, Outbox};

impl Rank {
    /// A directory whose entry is gone may be gone itself. Whether slots place it whoever has its inode says, if anybody has.
    fn facts_by_map(&mut self, before: Option<&ClusterMap>) {
        let (Some(before), Some(map)) = (before, self.view.territory.map().cloned()) else { return };
        if Arc::ptr_eq(&before.entries, &map.entries) {
            return;
        }
        let me = self.view.config.rank;
        let over = |(unit, entry): &(&Unit, &Entry)| {
            unit.frag == Frag::WHOLE && entry.rank != me && !map.entries.contains_key(*unit)
        };
        for (unit, _) in before.entries.iter().filter(over) {
            let Some(slot) = self.view.cache.find_dir(unit.dir) else { continue };
            self.view.cache.dirs.get_mut(slot).clear(dir::SLOTS | dir::NEWBORN);
            self.view.cache.drop_dir_if_idle(slot);
        }
    }

    /// A map: what it says of this rank's territory counts from here on.
    pub(crate) fn new_map(&mut self, now: Now, map: Arc<ClusterMap>, out: &mut Outbox<Output>) {
        let before = self.view.territory.map().cloned();
        let alone = !self.view.territory.has_others();
        if !self.view.territory.set(map.clone()) {
            return;
        }
        self.view.heats.look_anew();
        self.news.note(before.as_deref(), &map);
        if alone && self.view.territory.has_others() {
            self.tell_who_performs(out);
        }
        self.slots_by_map(&map);
        self.forget_spreads(before.as_deref());
        self.facts_by_map(before.as_deref());
        self.replicas_by_map();
        self.totals_by_map();
        self.ranks_by_map(now, out);
        self.move_by_map(&map, out);
        self.settle_holders(now, out);
        self.unnaming_by_map();
        self.carry_out_announced(&map, out);
        self.leave_by_map(&map, now.mono);
        self.moves.pins.look_again(now.mono);
        self.ask_by_map();
        // What waited for a rank that has it no more looks again.
        if self.moves.current.is_none() {
            let waiting = std::mem::take(&mut self.moves.waiting);
            self.look_again(waiting);
        }
    }

    fn move_by_map(&mut self, map: &ClusterMap, out: &mut Outbox<Output>) {
        let Some(one) = &mut self.moves.current else { return };
        let (part, unit, to) = (one.part, one.unit, one.to);
        let version = map.entries.get(&unit).map_or(0, |entry| entry.version);
        // Whose it is, and which move it is in.
        let found = match part {
            Part::Of(_) => map.entries.get(&unit).map(|entry| (entry.rank, entry.moving)),
            Part::Slots { first, .. } => Some(map.slots.get(first)).map(|slot| (slot.rank, slot.moving)),
        };
        let moving = found.and_then(|(_, moving)| moving).map(|moving| moving.id);
        let found = found.map(|(rank, moving)| (rank == self.view.config.rank, moving));
        match (one.phase, found) {
            (Phase::PreFlush { .. } | Phase::Announce, _) if one.id.is_some() && moving != one.id => {
                self.say_refused(part, "it was given up before it began", out);
                self.end_move(false, out);
            }
            (Phase::Announce, Some((true, moving))) => {
                one.id = moving.filter(|moving| Some(moving.to) == to).map(|moving| moving.id);
                // Begun and given up before any map said so; or it is to be refused, as what it named has another version by now.
                let is_over = one.id.is_none() && version > one.asked;
                if is_over && !stdx::mutant!("mds_announce_outlives_itself") {
                    self.say_refused(part, "the coordinator gave it up", out);
                    self.end_move(false, out);
                }
            }
            // Not every map is heard of: the other rank has it, and may have dropped its entry since.
            (Phase::Dropping | Phase::Switch, None) => self.end_move(true, out),
            (_, Some((true, moving))) if one.id.is_some() && moving.map(|moving| moving.id) != one.id => {
                self.say_refused(part, "the coordinator gave it up", out);
                self.end_move(false, out);
            }
            (
                Phase::Name
                | Phase::Seek { announced: false }
                | Phase::Look(_)
                | Phase::Named
                | Phase::Unname
                | Phase::Dropping
                | Phase::PreFlush { .. }
                | Phase::Announce,
                _,
            ) => {}
            (Phase::Switch, Some((false, _))) => self.end_move(true, out),
            (_, Some((true, _))) => {}
            // Somebody else's, though this rank did not let go of it: it cannot know what it has any more.
            (_, Some((false, _)) | None) => {
                self.damage(format!("the content of {} was taken from this rank", words(part)), out);
            }
        }
    }

    /// Moves of what is this rank's that others have announced are its to carry out; what it had asked for and given up itself it
    /// gives up in the map as well.
    pub(super) fn carry_out_announced(&mut self, map: &ClusterMap, out: &mut Outbox<Output>) {
        let me = self.view.config.rank;
        let current = self.moves.current.as_ref().map(|one| one.unit);
        let announced =
            map.entries.iter().filter(|(unit, entry)| entry.rank == me && Some(**unit) != current);
        for (unit, moving) in announced.filter_map(|(unit, entry)| Some((*unit, entry.moving?))) {
            if self.moves.abandoned.remove(&unit).is_some() || stdx::mutant!("mds_others_moves_aborted") {
                out.push(Output::Wish(MapWish::Abort { unit, id: moving.id }));
            } else if let Some(number) = self.number_of(unit) {
                self.moves.add((Part::Of(number), unit), Goal::Carry(moving.id, moving.to), None);
            } else {
                // Once it is known it is looked at again.
                self.start_load(LoadKey::Spread { dir: unit.dir }, None);
            }
        }
        self.forget_abandoned(map);
        for (run, slot) in map.slots.runs().filter(|(_, slot)| slot.rank == me) {
            if let Some(moving) = slot.moving {
                let part = Part::Slots { first: run.start, count: run.end - run.start };
                self.moves.add((part, Unit::NOTHING), Goal::Carry(moving.id, moving.to), None);
            }
        }
    }

    /// Those that no coordinator will begin any more: another one has the map, and had found what the one before began; or the entry was
    /// changed since without a move, or dropped, so that what was asked names an old one. What broke: a coordinator that died before it
    /// answered left a directory taken for one that is about to move. And a directory was removed: its rank kept in mind
    /// that it has an entry to be dropped, and never went.
    fn forget_abandoned(&mut self, map: &ClusterMap) {
        if stdx::mutant!("mds_abandoned_for_ever") {
            return;
        }
        self.moves.abandoned.retain(|unit, Abandoned { version, coordinator, had_entry }| {
            let is_over = match map.entries.get(unit) {
                Some(entry) => entry.version > *version,
                None => *had_entry && !stdx::mutant!("mds_abandoned_outlives_entry"),
            };
            map.coordinator == *coordinator && !is_over
        });
    }

    /// What was refused may be that a move that was given up ends: it is asked for once, and where the map could not be written the
    /// coordinator says no more of it, so the map would have that move until it changes for another reason.
    fn looks_again_at(&mut self, unit: Unit) {
        let me = self.view.config.rank;
        let Some(map) = self.view.territory.map() else { return };
        let is_announced = unit == Unit::NOTHING
            || map.entries.get(&unit).is_some_and(|entry| entry.rank == me && entry.moving.is_some());
        if is_announced && !stdx::mutant!("mds_abort_said_once") {
            self.moves.again.get_or_insert(self.view.now.mono.after(AGAIN_NS));
        }
    }

    /// The coordinator does not do what was asked.
    pub(crate) fn wish_refused(&mut self, wish: &MapWish, why: &str, out: &mut Outbox<Output>) {
        let unit = wish.unit();
        // Of a move that was given up: what is asked of that unit by now is something else, and may be carried out.
        if matches!(wish, MapWish::Abort { .. }) && !stdx::mutant!("mds_old_refusal_ends_new_wish") {
            return self.looks_again_at(unit);
        }
        if unit == Unit::ROOT {
            return self.end_slots_wait(Some(Errno::EBUSY));
        }
        if self.carve_refused(unit) {
            return;
        }
        self.moves.abandoned.remove(&unit);
        let Some(one) = self.moves.current.as_ref().filter(|one| one.unit == unit) else {
            return self.looks_again_at(unit);
        };
        let (part, is_known) = (one.part, one.id.is_some());
        match one.phase {
            // All know of it: an earlier coordinator has done what was asked.
            Phase::Announce if is_known => {}
            // What is refused may be under way already, as a coordinator that is gone was asked: while this one was, it was taken for it.
            Phase::Named | Phase::Dropping | Phase::Announce => {
                self.give_up_move(why, out);
            }
            // Whatever it says, the switch may have been made: the map will tell, or has told.
            Phase::Switch => {
                self.say_refused(part, why, out);
                if let Some(map) = self.view.territory.map().cloned() {
                    self.move_by_map(&map, out);
                }
            }
            Phase::Name
            | Phase::Unname
            | Phase::PreFlush { .. }
            | Phase::Seek { .. }
            | Phase::Look(_)
            | Phase::Recall { .. }
            | Phase::Note(_)
            | Phase::Join
            | Phase::Settle { .. }
            | Phase::Drain(_)
            | Phase::List(_)
            | Phase::Tell(_)
            | Phase::Places(..)
            | Phase::Empty(_)
            | Phase::Flush { .. }
            | Phase::Journal(_) => {}
        }
    }

    pub(super) fn say_refused(&self, part: Part, why: &str, out: &mut Outbox<Output>) {
        let text = format!("{} does not move: {why}", words(part));
        out.push(Output::Note { level: Level::Warn, text });
    }
}

/// What moves, for people.
pub(super) fn words(part: Part) -> String {
    match part {
        Part::Of(dir) => format!("directory {:#x}", dir.0),
        Part::Slots { first, count } => format!("run of {count} slots from {first}"),
    }
}
