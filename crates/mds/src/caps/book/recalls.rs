//! Recalls: taking back what stands in the way of an operation, and operations that wait for the answers.
//!
//! Absent: recalls to make room (`room.rs`) and of what is delegated (`trust.rs`); when an answer is late (`caps.rs`).

use super::{Book, Need, Place};
use crate::caps::records::Holder;
use crate::op::OpId;
use proto::caps::{Bits, Recalled, Returned};
use proto::{Ino, Name, SessionId};
use std::collections::BTreeMap;
use stdx::Mono;

/// An operation that waits, or waited, for others to give something back.
#[derive(Debug)]
pub(super) struct Intent {
    /// Of this one among all: an operation may let go of one and have another later, for which answers to the recalls of before do not
    /// count.
    pub(super) serial: u64,
    pub(super) inos: Vec<Ino>,
    /// Recalls without an answer.
    pub(super) waits: usize,
}

/// A recall without an answer.
#[derive(Debug)]
pub(super) struct Recall {
    pub(super) bits: Bits,
    /// The number of the first message. Answers to earlier ones, of before everything was forgotten, may still come.
    pub(super) first: u32,
    /// Messages without an answer, and when the first was sent.
    pub(super) sent: u32,
    pub(super) since: Mono,
    /// Operations that wait for it, or waited, by their intents of then.
    pub(super) waiters: Vec<(OpId, u64)>,
    /// It began to make room.
    pub(super) room: bool,
}

/// The recall of an inode, which begins now if none is under way.
pub(super) fn recall_entry<'a>(
    recalls: &'a mut BTreeMap<(u16, Ino), Recall>,
    entry: &mut Place,
    key: (u16, Ino),
    now: Mono,
) -> &'a mut Recall {
    recalls.entry(key).or_insert_with(|| {
        entry.recalls_pending.push_back((now, key.1));
        let first = entry.number.wrapping_add(1);
        Recall { bits: Bits::NONE, first, sent: 0, since: now, waiters: Vec::new(), room: false }
    })
}

impl Book {
    /// Recalls without an answer.
    pub(crate) fn recalls(&self) -> usize {
        self.recalls.len()
    }

    /// What others than `place` hold of what a need excludes; that one, too, if the need says so.
    fn blockers(&self, place: Option<u16>, need: &Need) -> Vec<(u16, Bits)> {
        let mut found = Vec::new();
        for (holder, held) in self.records.holders(need.ino) {
            let live = self.places[usize::from(holder.place)].serial == holder.serial;
            let bits = held.and(need.bits);
            let counts = need.own || Some(holder.place) != place;
            if live && counts && !bits.is_empty() {
                found.push((holder.place, bits));
            }
        }
        // A directory that its own session renames to another rank has its inode there and its names here: nobody may hold that.
        let own = need.own && !stdx::mutant!("mds_leaves_delegated");
        let trust = self.delegated.get(&need.ino).filter(|trust| own || Some(trust.place) != place);
        if let Some(trust) = trust.filter(|trust| trust.blocks(need.bits)) {
            match found.iter_mut().find(|(at, _)| *at == trust.place) {
                Some((_, bits)) => *bits = bits.with(trust.bits()),
                None => found.push((trust.place, trust.bits())),
            }
        }
        if !stdx::mutant!("mds_copy_not_recalled") {
            found.extend(self.copies.blockers(place, need.ino, need.bits));
        }
        found
    }

    /// Whether others hold what a need excludes.
    pub(crate) fn is_blocked(&self, place: Option<u16>, need: &Need) -> bool {
        !self.blockers(place, need).is_empty()
    }

    /// Recalls everything that an operation needs. It waits until `woken` has it.
    pub(crate) fn wait(
        &mut self,
        op: OpId,
        (session, place): (SessionId, Option<u16>),
        needs: &[Need],
        now: Mono,
    ) {
        self.intents_begun += u64::from(!self.intents.contains_key(&op));
        let new = Intent { serial: self.intents_begun, inos: Vec::new(), waits: 0 };
        let serial = self.intents.entry(op).or_insert(new).serial;
        let mut waits = 0;
        for need in needs {
            let blockers = self.blockers(place, need);
            let contested = Bits(Bits::FS.0 | Bits::DX.0 | Bits::FX.0);
            // Of those that come while it is being recalled none counts: many at once are not many times.
            let recalls = |(holder, _): &(u16, Bits)| self.recalls.contains_key(&(*holder, need.ino));
            let begins = !blockers.iter().all(recalls)
                || (stdx::mutant!("mds_each_waiter_contests") && !blockers.is_empty());
            if begins && !need.bits.and(contested).is_empty() {
                self.contest(need.ino, session, now);
            }
            for (holder, bits) in blockers {
                waits += 1;
                self.recall(holder, need, bits, ((op, serial), now));
            }
        }
        if let Some(intent) = self.intents.get_mut(&op) {
            intent.waits += waits;
            for need in needs {
                // Few wait for one inode; a move waits for thousands of them.
                let ops = self.withheld.entry(need.ino).or_default();
                if !ops.iter().any(|(waits, _)| *waits == op) {
                    intent.inos.push(need.ino);
                    ops.push((op, if need.own { SessionId(0) } else { session }));
                }
            }
        }
        if self.intents.get(&op).is_some_and(|intent| intent.waits == 0) {
            self.woken.push(op);
        }
    }

    fn recall(&mut self, place: u16, need: &Need, bits: Bits, (intent, now): ((OpId, u64), Mono)) {
        let recall =
            recall_entry(&mut self.recalls, &mut self.places[usize::from(place)], (place, need.ino), now);
        recall.waiters.push(intent);
        if recall.sent > 0 && recall.bits.has(bits) && need.name.is_none() {
            return;
        }
        recall.bits = recall.bits.with(bits);
        recall.sent += 1;
        let entry = &mut self.places[usize::from(place)];
        let number = entry.next_number();
        let message = Recalled { ino: need.ino, bits, number, name: need.name.clone() };
        self.outbox.push((entry.session, message));
    }

    /// Takes something back that no operation waits for.
    pub(crate) fn recall_unawaited(
        &mut self,
        place: u16,
        ino: Ino,
        (bits, name): (Bits, Option<(Ino, Name)>),
        now: Mono,
    ) {
        let entry = &mut self.places[usize::from(place)];
        let held = self.records.holders(ino);
        if held.iter().any(|(holder, _)| *holder == (Holder { place, serial: entry.serial })) {
            let recall = recall_entry(&mut self.recalls, entry, (place, ino), now);
            recall.bits = recall.bits.with(bits);
            recall.sent += 1;
            let number = entry.next_number();
            self.outbox.push((entry.session, Recalled { ino, bits, number, name }));
        }
    }

    /// Begins to take back what an operation is going to need, so that it waits the less.
    pub(crate) fn recall_ahead(&mut self, place: Option<u16>, need: &Need, now: Mono) {
        for (holder, bits) in self.blockers(place, need) {
            if !self.is_recalled(holder, need.ino) {
                self.recall_unawaited(holder, need.ino, (bits, need.name.clone()), now);
            }
        }
    }

    /// Whether clients were granted one of these.
    pub(crate) fn is_granted(&self, ino: Ino, bits: Bits) -> bool {
        let is_live = |holder: Holder| self.places[usize::from(holder.place)].serial == holder.serial;
        let held = self.records.holders(ino);
        held.iter().any(|(holder, held)| is_live(*holder) && !held.and(bits).is_empty())
    }

    /// Takes back what others hold in the way of what has happened already.
    pub(crate) fn recall_others(&mut self, place: Option<u16>, need: &Need, now: Mono) {
        for (holder, bits) in self.blockers(place, need) {
            self.recall_unawaited(holder, need.ino, (bits, None), now);
        }
    }

    /// A session gives back what was recalled from it, and perhaps more, because attributes go together. Of an inode that is not
    /// being recalled nothing is taken: it could have been granted meanwhile. Nor is it by the answer to a recall of before
    /// everything of the session was forgotten.
    pub(crate) fn returned(&mut self, place: u16, Returned { ino, bits, number }: Returned) {
        let last = self.places[usize::from(place)].number;
        let Some(recall) = self.recalls.get_mut(&(place, ino)) else { return };
        let older = number.wrapping_sub(recall.first) > last.wrapping_sub(recall.first);
        if older && !stdx::mutant!("mds_old_return_counts") {
            return;
        }
        recall.sent -= 1;
        if recall.sent > 0 {
            return;
        }
        let bits = bits.with(recall.bits);
        let entry = &mut self.places[usize::from(place)];
        let holder = Holder { place, serial: entry.serial };
        if self.records.take(ino, holder, bits) {
            entry.count -= 1;
            self.total -= 1;
        }
        if self.delegated.get(&ino).is_some_and(|trust| trust.place == place && bits.has(trust.bits())) {
            self.end_trust(ino);
        }
        self.copies.end(place, ino);
        self.answered(place, ino);
    }

    pub(super) fn answered(&mut self, place: u16, ino: Ino) {
        let Some(recall) = self.recalls.remove(&(place, ino)) else { return };
        let entry = &mut self.places[usize::from(place)];
        entry.rooms -= usize::from(recall.room);
        let pending = &mut entry.recalls_pending;
        let stands = |(since, ino): &(Mono, Ino)| {
            self.recalls.get(&(place, *ino)).is_some_and(|recall| recall.since == *since)
        };
        while pending.front().is_some_and(|first| !stands(first)) {
            pending.pop_front();
        }
        for (op, serial) in recall.waiters {
            let intent = self.intents.get_mut(&op);
            let Some(intent) = intent
                .filter(|intent| intent.serial == serial || stdx::mutant!("mds_recalls_of_before_count"))
            else {
                continue;
            };
            intent.waits -= 1;
            if intent.waits == 0 {
                self.woken.push(op);
            }
        }
    }

    /// Whether an operation, or what recalls like one, waits for answers.
    pub(crate) fn is_waiting(&self, op: OpId) -> bool {
        self.intents.get(&op).is_some_and(|intent| intent.waits > 0)
    }

    /// Since when something is recalled from that place.
    pub(crate) fn asked_since(&self, place: u16) -> Option<Mono> {
        self.places[usize::from(place)].recalls_pending.front().map(|(since, _)| *since)
    }

    /// Whether something of an inode is recalled from that place.
    pub(crate) fn is_recalled(&self, place: u16, ino: Ino) -> bool {
        self.recalls.contains_key(&(place, ino))
    }

    /// Since when file data of an inode is recalled from that place.
    pub(crate) fn pages_asked_at(&self, place: u16, ino: Ino) -> Option<Mono> {
        self.recalls.get(&(place, ino)).filter(|recall| recall.bits.has(Bits::FC)).map(|recall| recall.since)
    }

    /// An operation that waits for no answer wants something else than it did: what it withheld may be granted.
    pub(crate) fn let_go(&mut self, op: OpId) {
        if !self.is_waiting(op) {
            self.operation_ended(op);
        }
    }

    /// An operation is over: what it withheld may be granted.
    pub(crate) fn operation_ended(&mut self, op: OpId) {
        if self.intents.is_empty() {
            return;
        }
        let Some(intent) = self.intents.remove(&op) else { return };
        for ino in intent.inos {
            if let Some(ops) = self.withheld.get_mut(&ino) {
                ops.retain(|(other, _)| *other != op);
                if ops.is_empty() {
                    self.withheld.remove(&ino);
                }
            }
        }
    }
}
