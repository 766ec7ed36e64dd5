//! The book of capabilities: holders, recalls that have no answer, operations that wait for them and what they withhold from
//! others meanwhile.
//!
//! Absent: what an operation needs (`needs.rs`); messages, sessions and time (`caps.rs`).

use super::records::{Holder, PARTS, Records};
use crate::op::OpId;
use proto::caps::{Bits, KEEP_ASKED_MS, KEEP_EMBEDDED_MS, KEEP_MARGIN_MS, KEEP_MS, Recalled, Returned};
use proto::{Ino, Name, SessionId};
use std::collections::{BTreeMap, VecDeque};
use stdx::Mono;
use stdx::time::{MS, SECOND};

/// An inode that two sessions want by turns is granted to the one that changes it for so long, and longer each time.
const CONTEST_FIRST_NS: u64 = SECOND;
const CONTEST_MOST_NS: u64 = 60 * SECOND;
/// Nothing but file data is kept longer than this after it was granted.
pub(crate) const AGE_NS: u64 = (KEEP_EMBEDDED_MS + KEEP_ASKED_MS - KEEP_MS + KEEP_MARGIN_MS) * MS;
/// Recalls without an answer while which no more is recalled to make room.
const ROOM_RECALLS_MAX: usize = 1024;
/// Inodes remembered as contested.
const CONTESTS_MAX: usize = 1 << 16;

/// What an operation needs that others do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub ino: Ino,
    /// Held by nobody else.
    pub bits: Bits,
    /// The name that goes.
    pub name: Option<(Ino, Name)>,
}

/// One session's place.
#[derive(Debug)]
struct Place {
    session: SessionId,
    epoch: u32,
    /// Records.
    count: u64,
    /// Of the last recall.
    number: u32,
    /// Inodes of which something was recalled, in order; the first has no answer yet, others may have.
    asked: VecDeque<(Mono, Ino)>,
    /// Directories and files entrusted to it, and how many of them are files.
    entrusted: usize,
    files: usize,
    /// It wants no more records than that.
    wants_max: u64,
}

impl Place {
    const fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }
}

/// An operation that waits, or waited, for others to give something back.
#[derive(Debug)]
struct Intent {
    inos: Vec<Ino>,
    /// Recalls without an answer.
    waits: usize,
}

/// A recall without an answer.
#[derive(Debug)]
struct Recall {
    bits: Bits,
    /// The number of the first message. Answers to earlier ones, of before everything was forgotten, may still come.
    first: u32,
    /// Messages without an answer, and when the first was sent.
    sent: u32,
    since: Mono,
    waiters: Vec<OpId>,
}

/// The recall of an inode, which begins now if none is under way.
fn open<'a>(
    recalls: &'a mut BTreeMap<(u16, Ino), Recall>,
    place: &mut Place,
    key: (u16, Ino),
    now: Mono,
) -> &'a mut Recall {
    recalls.entry(key).or_insert_with(|| {
        place.asked.push_back((now, key.1));
        let first = place.number.wrapping_add(1);
        Recall { bits: Bits::NONE, first, sent: 0, since: now, waiters: Vec::new() }
    })
}

/// Something that is entrusted to one session: a directory, or a file that is in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trust {
    slot: u16,
    file_in: Option<Ino>,
}

impl Trust {
    /// What is granted, recalled and returned.
    const fn bits(self) -> Bits {
        if self.file_in.is_some() { Bits::ALONE } else { Bits::DX }
    }

    /// Whether it stands in the way of who needs that nobody else holds these. Whoever writes a file by itself tells its
    /// attributes, all of them.
    const fn blocks(self, need: Bits) -> bool {
        let held = if self.file_in.is_some() { Bits::ALONE.with(Bits::ATTRS) } else { Bits::DX };
        !need.and(held).is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
struct Contest {
    /// Who changes it.
    session: SessionId,
    until: Mono,
    span: u64,
}

/// The book.
#[derive(Debug, Default)]
pub(crate) struct Book {
    records: Records,
    places: Vec<Place>,
    free: Vec<u16>,
    total: u64,
    intents: BTreeMap<OpId, Intent>,
    withheld: BTreeMap<Ino, Vec<(OpId, SessionId)>>,
    recalls: BTreeMap<(u16, Ino), Recall>,
    contests: BTreeMap<Ino, Contest>,
    /// Directories on which one session holds Dx, and files on which one holds Fx and Fb. Not among the records: nothing of it
    /// runs out by itself.
    entrusted: BTreeMap<Ino, Trust>,
    /// How many of these files a directory has, by the place of who holds them.
    files_in: BTreeMap<(Ino, u16), u32>,
    /// When room was made last.
    passed: Mono,
    /// To be sent at the end of the step.
    pub outbox: Vec<(SessionId, Recalled)>,
    /// Operations that wait for nobody any more.
    pub woken: Vec<OpId>,
}

impl Book {
    /// A place for a session; none when all are taken.
    pub(crate) fn enter(&mut self, session: SessionId) -> Option<u16> {
        if let Some(slot) = self.free.pop() {
            let place = &mut self.places[usize::from(slot)];
            (place.session, place.wants_max) = (session, u64::MAX);
            return Some(slot);
        }
        let slot = u16::try_from(self.places.len()).ok()?;
        let asked = VecDeque::new();
        self.places.push(Place {
            session,
            epoch: 1,
            count: 0,
            number: 0,
            asked,
            entrusted: 0,
            files: 0,
            wants_max: u64::MAX,
        });
        Some(slot)
    }

    /// The session of that place wants to keep something of so many inodes at most; 0: as many as it may.
    pub(crate) fn ask_for(&mut self, slot: u16, caps_max: u32) {
        let most = if caps_max == 0 { u64::MAX } else { u64::from(caps_max) };
        self.places[usize::from(slot)].wants_max = most;
    }

    /// How many records that place may have, where each may have `limit`.
    fn room(&self, slot: u16, limit: u64) -> u64 {
        limit.min(self.places[usize::from(slot)].wants_max)
    }

    /// Everything the session of that place holds is gone, and what was recalled from it is as good as returned; not so what is
    /// entrusted to it.
    pub(crate) fn forget(&mut self, slot: u16) {
        if stdx::mutant!("mds_dx_fades") {
            self.end_entrusted(slot);
        }
        let entrusted = &self.entrusted;
        let is_entrusted = |ino: &Ino| entrusted.get(ino).is_some_and(|trust| trust.slot == slot);
        let place = &mut self.places[usize::from(slot)];
        place.epoch = place.epoch.wrapping_add(1);
        place.asked.retain(|(_, ino)| is_entrusted(ino));
        self.total -= std::mem::take(&mut place.count);
        let recalls = self.recalls.range((slot, Ino(0))..=(slot, Ino(u64::MAX)));
        let inos: Vec<Ino> = recalls.map(|((_, ino), _)| *ino).filter(|ino| !is_entrusted(ino)).collect();
        for ino in inos {
            self.answered(slot, ino);
        }
    }

    /// The session is gone and its place another's.
    pub(crate) fn leave(&mut self, slot: u16) {
        self.end_entrusted(slot);
        self.forget(slot);
        self.free.push(slot);
    }

    /// Records of one place.
    pub(crate) fn count(&self, slot: u16) -> u64 {
        self.places[usize::from(slot)].count
    }

    /// Records of all.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Recalls without an answer.
    pub(crate) fn recalls(&self) -> usize {
        self.recalls.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.records.bytes()
    }

    /// Whether nobody but that place has anything.
    pub(crate) fn is_alone(&self, slot: Option<u16>) -> bool {
        self.total == slot.map_or(0, |slot| self.count(slot)) && !self.is_entrusted_to_others(slot)
    }

    /// Whether a session may be granted anything of an inode now.
    pub(crate) fn may_grant(&self, slot: u16, ino: Ino, now: Mono) -> bool {
        let session = self.places[usize::from(slot)].session;
        let withheld = !self.withheld.is_empty()
            && !stdx::mutant!("mds_grant_under_intent")
            && self.withheld.get(&ino).is_some_and(|ops| ops.iter().any(|(_, other)| *other != session));
        let recalled = !self.recalls.is_empty()
            && !stdx::mutant!("mds_grant_while_recalled")
            && self.recalls.contains_key(&(slot, ino));
        let contested = !self.contests.is_empty()
            && self.contests.get(&ino).is_some_and(|c| c.session != session && c.until > now);
        // Its times and counts are somebody else's to change.
        let entrusted = !self.entrusted.is_empty()
            && self.entrusted.get(&ino).is_some_and(|trust| trust.slot != slot)
            && !stdx::mutant!("mds_grants_what_is_entrusted");
        !withheld && !recalled && !contested && !entrusted
    }

    /// Notes a grant.
    pub(crate) fn grant(&mut self, slot: u16, ino: Ino, bits: Bits, now: Mono) {
        let places = &mut self.places;
        let holder = Holder { slot, epoch: places[usize::from(slot)].epoch };
        let is_live = |holder: Holder| places[usize::from(holder.slot)].epoch == holder.epoch;
        if self.records.add(ino, holder, (bits, now), &is_live) {
            places[usize::from(slot)].count += 1;
            self.total += 1;
        }
    }

    /// Whether it has something of an inode already.
    pub(crate) fn has(&self, slot: u16, ino: Ino) -> bool {
        let holder = Holder { slot, epoch: self.places[usize::from(slot)].epoch };
        self.records.has(ino, holder)
    }

    /// What others than `slot` hold of what a need excludes.
    fn in_the_way(&self, slot: Option<u16>, need: &Need) -> Vec<(u16, Bits)> {
        let mut found = Vec::new();
        for (holder, held) in self.records.holders(need.ino) {
            let live = self.places[usize::from(holder.slot)].epoch == holder.epoch;
            let bits = held.and(need.bits);
            if live && Some(holder.slot) != slot && !bits.is_empty() {
                found.push((holder.slot, bits));
            }
        }
        let trust = self.entrusted.get(&need.ino).filter(|trust| Some(trust.slot) != slot);
        if let Some(trust) = trust.filter(|trust| trust.blocks(need.bits)) {
            match found.iter_mut().find(|(at, _)| *at == trust.slot) {
                Some((_, bits)) => *bits = bits.with(trust.bits()),
                None => found.push((trust.slot, trust.bits())),
            }
        }
        found
    }

    /// Whether others hold what a need excludes.
    pub(crate) fn is_blocked(&self, slot: Option<u16>, need: &Need) -> bool {
        !self.in_the_way(slot, need).is_empty()
    }

    /// Recalls everything that an operation needs. It waits until `woken` has it.
    pub(crate) fn wait(
        &mut self,
        op: OpId,
        (session, slot): (SessionId, Option<u16>),
        needs: &[Need],
        now: Mono,
    ) {
        let mut waits = 0;
        for need in needs {
            let blockers = self.in_the_way(slot, need);
            let contested = Bits(Bits::FS.0 | Bits::DX.0 | Bits::FX.0);
            if !blockers.is_empty() && !need.bits.and(contested).is_empty() {
                self.contest(need.ino, session, now);
            }
            for (holder, bits) in blockers {
                waits += 1;
                self.recall(holder, need, bits, (op, now));
            }
        }
        let intent = self.intents.entry(op).or_insert(Intent { inos: Vec::new(), waits: 0 });
        intent.waits += waits;
        for need in needs {
            if !intent.inos.contains(&need.ino) {
                intent.inos.push(need.ino);
                self.withheld.entry(need.ino).or_default().push((op, session));
            }
        }
        if self.intents.get(&op).is_some_and(|intent| intent.waits == 0) {
            self.woken.push(op);
        }
    }

    fn recall(&mut self, slot: u16, need: &Need, bits: Bits, (op, now): (OpId, Mono)) {
        let recall = open(&mut self.recalls, &mut self.places[usize::from(slot)], (slot, need.ino), now);
        recall.waiters.push(op);
        if recall.sent > 0 && recall.bits.has(bits) && need.name.is_none() {
            return;
        }
        recall.bits = recall.bits.with(bits);
        recall.sent += 1;
        let place = &mut self.places[usize::from(slot)];
        let number = place.next_number();
        let message = Recalled { ino: need.ino, bits, number, name: need.name.clone() };
        self.outbox.push((place.session, message));
    }

    /// Takes something back that no operation waits for.
    pub(crate) fn recall_unawaited(
        &mut self,
        slot: u16,
        ino: Ino,
        (bits, name): (Bits, Option<(Ino, Name)>),
        now: Mono,
    ) {
        let place = &mut self.places[usize::from(slot)];
        let held = self.records.holders(ino);
        if held.iter().any(|(holder, _)| *holder == (Holder { slot, epoch: place.epoch })) {
            let recall = open(&mut self.recalls, place, (slot, ino), now);
            recall.bits = recall.bits.with(bits);
            recall.sent += 1;
            let number = place.next_number();
            self.outbox.push((place.session, Recalled { ino, bits, number, name }));
        }
    }

    /// Takes back what others hold in the way of what has happened already.
    pub(crate) fn recall_others(&mut self, slot: Option<u16>, need: &Need, now: Mono) {
        for (holder, bits) in self.in_the_way(slot, need) {
            self.recall_unawaited(holder, need.ino, (bits, None), now);
        }
    }

    fn contest(&mut self, ino: Ino, session: SessionId, now: Mono) {
        let known = self.contests.get(&ino).copied();
        // Soon after the last time: it goes on.
        let again = known.filter(|c| c.until.after(c.span) > now);
        let span = again.map_or(CONTEST_FIRST_NS, |c| (2 * c.span).min(CONTEST_MOST_NS));
        if known.is_none() && self.contests.len() >= CONTESTS_MAX {
            self.contests.retain(|_, contest| contest.until > now);
            if self.contests.len() >= CONTESTS_MAX {
                return;
            }
        }
        self.contests.insert(ino, Contest { session, until: now.after(span), span });
    }

    /// A session gives back what was recalled from it, and perhaps more, because attributes go together. Of an inode that is not
    /// being recalled nothing is taken: it could have been granted meanwhile. Nor is it by the answer to a recall of before
    /// everything of the session was forgotten.
    pub(crate) fn returned(&mut self, slot: u16, Returned { ino, bits, number }: Returned) {
        let last = self.places[usize::from(slot)].number;
        let Some(recall) = self.recalls.get_mut(&(slot, ino)) else { return };
        let older = number.wrapping_sub(recall.first) > last.wrapping_sub(recall.first);
        if older && !stdx::mutant!("mds_old_return_counts") {
            return;
        }
        recall.sent -= 1;
        if recall.sent > 0 {
            return;
        }
        let bits = bits.with(recall.bits);
        let place = &mut self.places[usize::from(slot)];
        let holder = Holder { slot, epoch: place.epoch };
        if self.records.take(ino, holder, bits) {
            place.count -= 1;
            self.total -= 1;
        }
        if self.entrusted.get(&ino).is_some_and(|trust| trust.slot == slot && bits.has(trust.bits())) {
            self.end_trust(ino);
        }
        self.answered(slot, ino);
    }

    /// Entrusts a directory to the session of that place, or a file that is in one.
    pub(crate) fn entrust(&mut self, slot: u16, ino: Ino, file_in: Option<Ino>) {
        self.end_trust(ino);
        self.entrusted.insert(ino, Trust { slot, file_in });
        let place = &mut self.places[usize::from(slot)];
        place.entrusted += 1;
        if let Some(dir) = file_in {
            place.files += 1;
            *self.files_in.entry((dir, slot)).or_default() += 1;
        }
    }

    /// It is nobody's any more.
    fn end_trust(&mut self, ino: Ino) {
        let Some(Trust { slot, file_in }) = self.entrusted.remove(&ino) else { return };
        let place = &mut self.places[usize::from(slot)];
        place.entrusted -= 1;
        let Some(dir) = file_in else { return };
        place.files -= 1;
        if let Some(count) = self.files_in.get_mut(&(dir, slot)) {
            *count -= 1;
            if *count == 0 {
                self.files_in.remove(&(dir, slot));
            }
        }
    }

    /// A session has closed a file that is entrusted to it, or moves it to directory `to`: its client does nothing by itself with
    /// it from there on. What is being recalled ends with the answer to that.
    pub(crate) fn gives_up(&mut self, slot: u16, ino: Ino, to: Option<Ino>) {
        let Some(trust) = self.entrusted.get(&ino).filter(|trust| trust.slot == slot) else { return };
        if trust.file_in.is_none() {
            return;
        }
        self.end_trust(ino);
        if let Some(dir) = to.filter(|_| self.recalls.contains_key(&(slot, ino))) {
            self.entrust(slot, ino, Some(dir));
        }
    }

    /// Whose it is.
    pub(crate) fn entrusted_to(&self, ino: Ino) -> Option<u16> {
        self.entrusted.get(&ino).map(|trust| trust.slot)
    }

    pub(crate) fn is_entrusted_to_others(&self, slot: Option<u16>) -> bool {
        self.entrusted.len() > slot.map_or(0, |slot| self.places[usize::from(slot)].entrusted)
    }

    /// How many directories and files are entrusted to it.
    pub(crate) fn entrusted(&self, slot: u16) -> usize {
        self.places[usize::from(slot)].entrusted
    }

    /// How many directories.
    pub(crate) fn directories(&self, slot: u16) -> usize {
        let place = &self.places[usize::from(slot)];
        place.entrusted - place.files
    }

    /// How many files.
    pub(crate) fn files(&self, slot: u16) -> usize {
        self.places[usize::from(slot)].files
    }

    /// Takes back whatever is entrusted to a session; nobody waits for it.
    pub(crate) fn recall_entrusted(&mut self, slot: u16, now: Mono) {
        let mine = self.entrusted.iter().filter(|(_, trust)| trust.slot == slot);
        let inos: Vec<Ino> =
            mine.map(|(ino, _)| *ino).filter(|ino| !self.recalls.contains_key(&(slot, *ino))).collect();
        for ino in inos {
            self.recall_one_entrusted(slot, ino, now);
        }
    }

    /// The same of one of these.
    pub(crate) fn recall_one_entrusted(&mut self, slot: u16, ino: Ino, now: Mono) {
        let Some(bits) = self.entrusted.get(&ino).map(|trust| trust.bits()) else { return };
        if self.recalls.contains_key(&(slot, ino)) {
            return;
        }
        let place = &mut self.places[usize::from(slot)];
        let recall = open(&mut self.recalls, place, (slot, ino), now);
        (recall.bits, recall.sent) = (bits, 1);
        let message = Recalled { ino, bits, number: place.next_number(), name: None };
        self.outbox.push((place.session, message));
    }

    /// Nothing is entrusted to that place any more.
    pub(crate) fn end_entrusted(&mut self, slot: u16) {
        if self.places[usize::from(slot)].entrusted == 0 {
            return;
        }
        let mine = self.entrusted.iter().filter(|(_, trust)| trust.slot == slot);
        let mine: Vec<Ino> = mine.map(|(ino, _)| *ino).collect();
        for ino in mine {
            self.end_trust(ino);
            self.answered(slot, ino);
        }
    }

    /// Whether a directory may be entrusted to the session of that place: nobody else keeps anything of its listing or has files
    /// there entrusted to it, waits for it, or wanted it lately.
    pub(crate) fn may_entrust(&self, slot: u16, ino: Ino, now: Mono) -> bool {
        // Who removes names by itself must not wait for what others give back behind what they performed.
        let files = self.files_in.range((ino, 0)..=(ino, u16::MAX)).any(|((_, at), _)| *at != slot);
        (!files || stdx::mutant!("mds_dx_over_files_of_others")) && self.is_free(slot, ino, Bits::DX, now)
    }

    /// The same for a file in directory `dir`.
    pub(crate) fn may_entrust_file(&self, slot: u16, ino: Ino, dir: Ino, now: Mono) -> bool {
        let others = self.entrusted_to(dir).is_some_and(|at| at != slot);
        !others && self.is_free(slot, ino, Bits::ALONE, now)
    }

    fn is_free(&self, slot: u16, ino: Ino, bits: Bits, now: Mono) -> bool {
        let need = Need { ino, bits: bits.excludes(), name: None };
        let withheld = self.withheld.contains_key(&ino) && !stdx::mutant!("mds_entrusts_under_intent");
        let contested = self.contests.get(&ino).is_some_and(|contest| contest.until > now);
        let recalled = self.recalls.contains_key(&(slot, ino));
        !withheld
            && !contested
            && !recalled
            && (!self.is_blocked(Some(slot), &need)
                || (bits.has(Bits::DX) && stdx::mutant!("mds_dx_two_holders")))
    }

    fn answered(&mut self, slot: u16, ino: Ino) {
        let Some(recall) = self.recalls.remove(&(slot, ino)) else { return };
        let asked = &mut self.places[usize::from(slot)].asked;
        let stands = |(since, ino): &(Mono, Ino)| {
            self.recalls.get(&(slot, *ino)).is_some_and(|recall| recall.since == *since)
        };
        while asked.front().is_some_and(|first| !stands(first)) {
            asked.pop_front();
        }
        for op in recall.waiters {
            let Some(intent) = self.intents.get_mut(&op) else { continue };
            intent.waits -= 1;
            if intent.waits == 0 {
                self.woken.push(op);
            }
        }
    }

    /// Since when something is recalled from that place.
    pub(crate) fn asked_since(&self, slot: u16) -> Option<Mono> {
        self.places[usize::from(slot)].asked.front().map(|(since, _)| *since)
    }

    /// Since when file data of an inode is recalled from that place.
    pub(crate) fn pages_asked_at(&self, slot: u16, ino: Ino) -> Option<Mono> {
        self.recalls.get(&(slot, ino)).filter(|recall| recall.bits.has(Bits::FC)).map(|recall| recall.since)
    }

    /// Whether that place has as much as it may.
    pub(crate) fn is_full(&self, slot: u16, limit: u64) -> bool {
        self.count(slot) >= self.room(slot, limit)
    }

    /// Makes room at a place that has as much as it may. What was granted long ago is kept by no kernel any more: names and
    /// attributes go without a word, file data is recalled. Whether there is room.
    pub(crate) fn make_room(&mut self, slot: u16, limit: u64, now: Mono) -> bool {
        let room = self.room(slot, limit);
        // Who wants little is at its limit always: the hand does not go faster for it than what it looks for grows old.
        if room < limit && now.since(self.passed) < AGE_NS / PARTS as u64 {
            return false;
        }
        // One part in each step, however long a listing is, and no more recalls than are answered soon.
        if self.passed == now || self.places[usize::from(slot)].asked.len() >= ROOM_RECALLS_MAX {
            return false;
        }
        self.pass(Some(slot), now);
        self.count(slot) < room
    }

    /// Memory is short: the hand goes on by one part, whoever has what is there.
    pub(crate) fn shed(&mut self, now: Mono) {
        if self.passed != now && self.recalls.len() < ROOM_RECALLS_MAX {
            self.pass(None, now);
        }
    }

    /// The hand of the clock passes one part. `mine`: of others only what goes without a word is taken, so that none of them is
    /// asked for something because somebody else keeps much.
    fn pass(&mut self, mine: Option<u16>, now: Mono) {
        self.passed = now;
        let mut old = Vec::new();
        let places = &self.places;
        self.records.pass(now, AGE_NS, |ino, holder, bits| {
            // Nobody may pass that part again soon: what others have there goes as well.
            let takes = mine.is_none_or(|slot| holder.slot == slot) || !bits.has(Bits::FC);
            if takes && places[usize::from(holder.slot)].epoch == holder.epoch {
                old.push((ino, holder, bits));
            }
        });
        for (ino, holder, bits) in old {
            if self.recalls.contains_key(&(holder.slot, ino)) {
                continue;
            }
            if bits.has(Bits::FC) {
                self.recall_unawaited(holder.slot, ino, (bits, None), now);
            } else if self.records.take(ino, holder, bits) {
                self.places[usize::from(holder.slot)].count -= 1;
                self.total -= 1;
            }
        }
        self.records.shrink();
    }

    /// An operation is over: what it withheld may be granted.
    pub(crate) fn over(&mut self, op: OpId) {
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

    /// An inode is gone.
    pub(crate) fn end(&mut self, ino: Ino) {
        self.end_trust(ino);
        if self.total == 0 {
            return;
        }
        let places = &mut self.places;
        let total = &mut self.total;
        self.records.end(ino, |holder| {
            let place = &mut places[usize::from(holder.slot)];
            if place.epoch == holder.epoch {
                place.count -= 1;
                *total -= 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::caps::KEEP_MS;

    const HELD: Bits = Bits::ATTRS;

    fn book(slots: u16) -> Book {
        let mut book = Book::default();
        for slot in 0..slots {
            assert_eq!(book.enter(SessionId(u64::from(slot) + 1)), Some(slot));
        }
        book
    }

    /// Found by review: after 2^31 recalls of one session no answer counted any more.
    #[test]
    fn numbers_of_recalls_may_wrap() {
        for start in [u32::MAX - 1, i32::MAX as u32 - 1] {
            let mut book = book(2);
            book.places[1].number = start;
            for op in 1..6 {
                book.grant(1, Ino(7), HELD, Mono(0));
                let need = Need { ino: Ino(7), bits: Bits::FS, name: None };
                book.wait(op, (SessionId(1), Some(0)), &[need], Mono(0));
                let (_, recalled) = book.outbox.pop().expect("recalled");
                book.returned(
                    1,
                    Returned { number: recalled.number.wrapping_sub(1), ..recalled.returned(HELD) },
                );
                assert!(book.woken.is_empty(), "an older one");
                book.returned(1, recalled.returned(HELD));
                assert_eq!(book.woken.pop(), Some(op));
                book.over(op);
            }
        }
    }

    #[test]
    fn a_directory_of_which_others_keep_something_is_nobodys() {
        let mut book = book(2);
        assert!(book.may_entrust(0, Ino(7), Mono(0)));
        book.grant(0, Ino(7), HELD, Mono(0));
        assert!(book.may_entrust(0, Ino(7), Mono(0)), "its own");
        let need = Need { ino: Ino(8), bits: Bits::AS, name: None };
        book.grant(1, Ino(8), HELD, Mono(0));
        book.wait(1, (SessionId(1), Some(0)), &[need], Mono(0));
        book.forget(1);
        assert!(!book.may_entrust(0, Ino(8), Mono(0)), "somebody waits to change it");
        book.over(1);
        assert!(book.may_entrust(0, Ino(8), Mono(0)));
        book.grant(1, Ino(7), HELD, Mono(0));
        assert!(!book.may_entrust(0, Ino(7), Mono(0)));
    }

    /// What is on its way back, what somebody waits for, and what is in a directory of another.
    #[test]
    fn what_is_somebody_elses_or_will_be_is_not_granted() {
        let mut book = book(3);
        let need = Need { ino: Ino(7), bits: Bits::AS, name: None };
        book.grant(1, Ino(7), HELD, Mono(0));
        book.wait(1, (SessionId(1), Some(0)), &[need], Mono(0));
        assert!(!book.may_grant(2, Ino(7), Mono(0)), "somebody waits for it");
        assert!(book.may_grant(0, Ino(7), Mono(0)), "who does may have it");
        book.over(1);
        let late = Mono(100 * SECOND);
        assert!(!book.may_grant(1, Ino(7), late), "it is asked back still");
        assert!(book.may_grant(2, Ino(7), late));
        let (_, recalled) = book.outbox.pop().expect("recalled");
        book.returned(1, recalled.returned(HELD));
        assert!(book.may_grant(1, Ino(7), late));
        book.entrust(0, Ino(7), None);
        assert!(!book.may_grant(1, Ino(7), late), "a directory of another");
        assert!(book.may_grant(0, Ino(7), late));
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn what_is_granted_too_soon_is_caught() {
        for defect in ["mds_grant_under_intent", "mds_grant_while_recalled", "mds_grants_what_is_entrusted"] {
            stdx::mutant::activate(Some(defect));
            let verdict = std::panic::catch_unwind(what_is_somebody_elses_or_will_be_is_not_granted);
            stdx::mutant::activate(None);
            assert!(verdict.is_err(), "{defect}");
        }
    }

    /// Each would remove a file that the other holds, and give its own back only behind that.
    #[test]
    fn a_directory_with_files_of_others_is_nobodys() {
        let (dir, file, other) = (Ino(7), Ino(8), Ino(9));
        let mut book = book(2);
        assert!(book.may_entrust_file(0, file, dir, Mono(0)));
        book.entrust(0, file, Some(dir));
        assert!(book.may_entrust_file(0, file, dir, Mono(0)), "once more");
        assert!(!book.may_entrust_file(1, file, dir, Mono(0)));
        assert!(book.may_entrust(0, dir, Mono(0)) && !book.may_entrust(1, dir, Mono(0)));
        book.gives_up(1, file, None);
        assert!(!book.may_entrust(1, dir, Mono(0)), "it is not that one's");
        book.gives_up(0, file, Some(other));
        assert!(book.may_entrust(1, dir, Mono(0)) && book.may_entrust(1, other, Mono(0)));
        book.entrust(1, dir, None);
        assert!(
            !book.may_entrust_file(0, file, dir, Mono(0)) && book.may_entrust_file(1, file, dir, Mono(0))
        );
        // Under a recall it goes where its name does, until it is given back.
        book.entrust(0, file, Some(other));
        book.recall_entrusted(0, Mono(0));
        book.gives_up(0, file, Some(Ino(10)));
        assert!(book.may_entrust(1, other, Mono(0)) && !book.may_entrust(1, Ino(10), Mono(0)));
        let (_, recalled) = book.outbox.pop().expect("recalled");
        book.returned(0, recalled.returned(recalled.bits));
        assert!(book.may_entrust(1, Ino(10), Mono(0)) && book.files_in.is_empty());
        assert_eq!((book.entrusted(0), book.files(0), book.entrusted(1)), (0, 0, 1));
        book.entrust(0, file, Some(other));
        book.end_entrusted(0);
        assert!(book.files_in.is_empty() && book.entrusted_to(file).is_none());
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn a_directory_of_two_is_caught() {
        let all: [(&str, fn()); 3] = [
            ("mds_dx_two_holders", a_directory_of_which_others_keep_something_is_nobodys),
            ("mds_entrusts_under_intent", a_directory_of_which_others_keep_something_is_nobodys),
            ("mds_dx_over_files_of_others", a_directory_with_files_of_others_is_nobodys),
        ];
        for (defect, test) in all {
            stdx::mutant::activate(Some(defect));
            let verdict = std::panic::catch_unwind(test);
            stdx::mutant::activate(None);
            assert!(verdict.is_err(), "{defect}");
        }
    }

    /// Whoever has them: what no kernel keeps any more goes without a word, and the memory with it.
    #[test]
    fn memory_that_is_short_comes_back() {
        let mut book = book(2);
        for ino in 1..=60_000 {
            book.grant((ino % 2) as u16, Ino(ino), if ino < 10 { Bits::FC } else { HELD }, Mono(0));
        }
        let before = book.bytes();
        for step in 0..1_000 {
            book.shed(Mono(1 + step * MS));
        }
        assert_eq!(book.total(), 60_000, "all of it may be kept still");
        for step in 0..1_000 {
            book.shed(Mono(AGE_NS + 2 * SECOND + step * MS));
        }
        assert_eq!((book.total(), book.recalls()), (9, 9), "file data is recalled");
        assert!(book.bytes() < before / 4, "{} of {before}", book.bytes());
    }

    /// It wants little, so it is at its limit always: it must not make the hand go round for nothing.
    #[test]
    fn who_wants_few_records_has_few_and_costs_little() {
        let mut book = book(2);
        book.ask_for(0, 100);
        for ino in 1..=100 {
            assert!(!book.is_full(0, 1000));
            book.grant(0, Ino(ino), HELD, Mono(0));
        }
        assert!(book.is_full(0, 1000) && !book.is_full(1, 1000));
        let late = Mono(AGE_NS + 3 * SECOND);
        assert!(!book.make_room(0, 1000, late) || book.count(0) < 100);
        let passed = book.passed;
        book.make_room(0, 1000, late.after(MS));
        assert_eq!(book.passed, passed, "too soon");
        let room = (1..300).any(|step| book.make_room(0, 1000, late.after(step * 100 * MS)));
        assert!(room && book.count(0) < 100, "{}", book.count(0));
        book.ask_for(0, 0);
        assert!(!book.is_full(0, 101), "no wish of its own");
        book.ask_for(0, 5);
        book.leave(0);
        assert_eq!(book.enter(SessionId(9)), Some(0));
        assert!(!book.is_full(0, 6), "the next one's wish is its own");
        (200..206).for_each(|ino| book.grant(0, Ino(ino), HELD, late));
        assert!(book.is_full(0, 6) && !book.is_full(0, 7));
    }

    /// Found by review: what five sessions kept never made room.
    #[test]
    fn what_many_hold_makes_room_too() {
        let mut book = book(6);
        for slot in 0..6 {
            (1..=100).for_each(|ino| book.grant(slot, Ino(ino), HELD, Mono(0)));
        }
        assert_eq!((book.count(3), book.total()), (100, 600));
        assert!(!book.make_room(3, 100, Mono(KEEP_MS * MS)), "all of it may be kept still");
        let late = Mono(AGE_NS + 3 * SECOND);
        let room = (0..4).any(|step| book.make_room(3, 100, late.after(step)));
        assert!(room && book.count(3) < 100, "{}", book.count(3));
    }
}
