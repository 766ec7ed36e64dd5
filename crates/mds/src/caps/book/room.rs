//! What goes so that there is room: records that nobody keeps anything by any more, without a word; file data, by recalls that
//! nobody waits for; and what clients offer because they do not use it.
//!
//! Absent: what an operation needs; what memory there is (`rank.rs`).

use super::{AGE_NS, Book};
use crate::caps::records::{Holder, PARTS};
use proto::Ino;
use proto::caps::Bits;
use stdx::Mono;

/// How long the hand takes for one part if it advances as fast as records grow old.
const PART_NS: u64 = AGE_NS / PARTS as u64;

/// How recalls that make room are bounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomLimits {
    /// Who has no more than that is asked for nothing because memory is short.
    pub least: u64,
    /// Of one session without an answer.
    pub recalls_max: usize,
}

impl Default for RoomLimits {
    fn default() -> Self {
        Self { least: 100, recalls_max: 1024 }
    }
}

/// Why the hand passes a part.
#[derive(Clone, Copy, Debug)]
enum Pass {
    /// That place has as much as it may.
    Full(u16),
    /// Memory is short.
    Short,
    /// Time passes. Each place may have so much.
    Aged(u64),
}

impl Book {
    /// How many records that place may have, where each may have `limit`.
    fn room(&self, place: u16, limit: u64) -> u64 {
        limit.min(self.places[usize::from(place)].wants_max)
    }

    /// Whether that place has as much as it may.
    pub(crate) fn is_full(&self, place: u16, limit: u64) -> bool {
        self.count(place) >= self.room(place, limit)
    }

    /// Makes room at a place that has as much as it may. What was granted long ago is kept by no kernel any more: names and
    /// attributes go without a word, file data is recalled. Whether there is room.
    pub(crate) fn make_room(&mut self, place: u16, limit: u64, now: Mono) -> bool {
        let room = self.room(place, limit);
        // Who wants little is at its limit always: the hand does not go faster for it than what it looks for grows old.
        if room < limit && now.since(self.passed) < PART_NS {
            return false;
        }
        // One part in each step, however long a listing is, and no more recalls than are answered soon.
        if self.passed == now || self.places[usize::from(place)].rooms >= self.limits.recalls_max {
            return false;
        }
        self.passed = now;
        self.pass(Pass::Full(place), now);
        self.count(place) < room
    }

    /// Memory is short: the hand goes on by one part, whoever has what is there.
    pub(crate) fn shed(&mut self, now: Mono) {
        if self.passed != now && self.recalls.len() < self.limits.recalls_max {
            self.passed = now;
            self.pass(Pass::Short, now);
        }
    }

    /// The hand advances by itself, as fast as records grow old: what no kernel keeps any more is not to be asked for when
    /// somebody changes it.
    pub(crate) fn age(&mut self, limit: u64, now: Mono) {
        if self.total > 0 && now.since(self.aged) >= PART_NS {
            self.aged = now;
            self.pass(Pass::Aged(limit), now);
        }
    }

    /// The hand of the clock passes one part. What is there for nothing goes, whoever has it, because nobody may pass that part
    /// again soon.
    fn pass(&mut self, why: Pass, now: Mono) {
        let mut old = Vec::new();
        let places = &self.places;
        self.records.pass(now, AGE_NS, |ino, holder, bits| {
            if places[usize::from(holder.place)].serial == holder.serial {
                old.push((ino, holder, bits));
            }
        });
        for (ino, holder, bits) in old {
            if self.recalls.contains_key(&(holder.place, ino)) {
                continue;
            }
            if bits.has(Bits::FC) {
                if self.is_asked_for(why, holder.place) {
                    self.recall_unawaited(holder.place, ino, (bits, None), now);
                    self.made_room(holder.place, ino);
                }
            } else if self.records.take(ino, holder, bits) {
                self.places[usize::from(holder.place)].count -= 1;
                self.total -= 1;
            }
        }
        self.records.shrink();
    }

    /// Whether file data is recalled from a place. Nobody is asked for something because somebody else has as much as it may; and
    /// where memory is short those who have most are, the average at least, and they keep the least that each may have.
    fn is_asked_for(&self, why: Pass, place: u16) -> bool {
        let entry = &self.places[usize::from(place)];
        if entry.rooms >= self.limits.recalls_max {
            return false;
        }
        match why {
            Pass::Full(mine) => place == mine,
            Pass::Aged(limit) => self.is_full(place, limit),
            Pass::Short => {
                let sessions = (self.places.len() - self.free.len()) as u64;
                let much = entry.count.saturating_mul(sessions) >= self.total;
                much && entry.count.saturating_sub(entry.rooms as u64) > self.limits.least
            }
        }
    }

    /// The recall that has begun makes room.
    fn made_room(&mut self, place: u16, ino: Ino) {
        if let Some(recall) = self.recalls.get_mut(&(place, ino)) {
            recall.room = true;
            self.places[usize::from(place)].rooms += 1;
        }
    }

    /// The session of that place does not use what it was granted of an inode, as it says. It is asked for it, and it is not
    /// taken: something that it will use may be on its way. Whether it may be asked for more.
    pub(crate) fn recall_idle(&mut self, place: u16, ino: Ino, now: Mono) -> bool {
        let entry = &self.places[usize::from(place)];
        if entry.rooms >= self.limits.recalls_max {
            return false;
        }
        if self.recalls.contains_key(&(place, ino)) {
            return true;
        }
        let holder = Holder { place, serial: entry.serial };
        if self.delegated_to(ino) == Some(place) {
            self.recall_one_delegated(place, ino, now);
        } else if self.records.of(ino, holder).has(Bits::FC) {
            if stdx::mutant!("mds_idle_taken_at_once") {
                if self.records.take(ino, holder, Bits::ATTRS.with(Bits::FC)) {
                    self.places[usize::from(place)].count -= 1;
                    self.total -= 1;
                }
                return true;
            }
            // Names and attributes run out by themselves.
            self.recall_unawaited(place, ino, (Bits::FC, None), now);
        }
        self.made_room(place, ino);
        true
    }

    /// Since when that place owes something that others wait for, and something that is to make room.
    pub(crate) fn owes_since(&self, place: u16) -> (Option<Mono>, Option<Mono>) {
        let (mut late, mut room) = (None, None);
        for (since, ino) in &self.places[usize::from(place)].recalls_pending {
            let Some(recall) = self.recalls.get(&(place, *ino)).filter(|recall| recall.since == *since)
            else {
                continue;
            };
            let first = if recall.room && recall.waiters.is_empty() { &mut room } else { &mut late };
            first.get_or_insert(*since);
            if late.is_some() && room.is_some() {
                break;
            }
        }
        (late, room)
    }
}
