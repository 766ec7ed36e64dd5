//! The book of capabilities: sessions' places, who holds what, and what may be granted now.
//!
//! Absent: recalls and who waits for them (`book/recalls.rs`); what an operation needs (`needs.rs`); messages, sessions and time (`caps.rs`).

mod copies;
mod recalls;
mod room;
#[cfg(test)]
mod tests;
mod trust;

use super::records::{Holder, PARTS, Records};
use crate::op::OpId;
use copies::Copies;
use proto::caps::{Bits, KEEP_ASKED_MS, KEEP_EMBEDDED_MS, KEEP_MARGIN_MS, KEEP_MS, Recalled};
use proto::{Ino, Name, SessionId};
use recalls::{Intent, Recall};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::Mono;
use stdx::time::{MS, SECOND};
use trust::Trust;

pub(crate) use copies::RECORD;
pub(crate) use room::RoomLimits;

/// An inode that two sessions want by turns is granted to the one that changes it for so long, and longer each time.
const CONTEST_FIRST_NS: u64 = SECOND;
const CONTEST_MOST_NS: u64 = 60 * SECOND;
/// Nothing but file data is kept longer than this after it was granted.
pub(crate) const AGE_NS: u64 = (KEEP_EMBEDDED_MS + KEEP_ASKED_MS - KEEP_MS + KEEP_MARGIN_MS) * MS;
/// Inodes remembered as contested.
const CONTESTS_MAX: usize = 1 << 16;
/// Places that clients leave: two for each rank.
const FOR_RANKS: usize = 2 * proto::cluster::RANKS_MAX as usize;

/// What an operation needs that others do not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub ino: Ino,
    /// Held by nobody else.
    pub bits: Bits,
    /// The name that goes.
    pub name: Option<(Ino, Name)>,
    /// Nor by the session that asks: what it has kept. What is delegated to it comes behind the operation.
    pub own: bool,
}

impl Need {
    pub(crate) const fn of(ino: Ino, bits: Bits) -> Self {
        Self { ino, bits, name: None, own: false }
    }
}

/// One session's place.
#[derive(Debug)]
struct Place {
    session: SessionId,
    serial: u32,
    /// Records.
    count: u64,
    /// Of the last recall.
    number: u32,
    /// Inodes of which something was recalled, in order; the first has no answer yet, others may have.
    recalls_pending: VecDeque<(Mono, Ino)>,
    /// How many of these were recalled to make room.
    rooms: usize,
    /// Directories and files delegated to it, and how many of them are files.
    delegated: usize,
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
    intents_begun: u64,
    withheld: BTreeMap<Ino, Vec<(OpId, SessionId)>>,
    recalls: BTreeMap<(u16, Ino), Recall>,
    contests: BTreeMap<Ino, Contest>,
    /// Directories on which one session holds Dx, and files on which one holds Fx and Fb. Not among the records: nothing of it
    /// runs out by itself.
    delegated: BTreeMap<Ino, Trust>,
    /// The same by place.
    trusts: BTreeSet<(u16, Ino)>,
    /// What other ranks keep.
    copies: Copies,
    /// How far it is taken back from everybody; none: it is not.
    taking_back: Option<(u16, Ino)>,
    /// How many of these files a directory has, by the place of who holds them.
    files_in: BTreeMap<(Ino, u16), u32>,
    limits: RoomLimits,
    /// When the hand passed a part last to make room, and by itself.
    passed: Mono,
    aged: Mono,
    /// To be sent at the end of the step.
    pub outbox: Vec<(SessionId, Recalled)>,
    /// Operations that wait for nobody any more.
    pub woken: Vec<OpId>,
}

impl Book {
    /// An empty one.
    pub(crate) fn bounded(limits: RoomLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A place for a session; none when all are taken. Clients leave some for ranks: without a place a client is granted nothing, and a
    /// rank gets no replica, so that what it needs one for would wait without end.
    pub(crate) fn enter(&mut self, session: SessionId, is_rank: bool) -> Option<u16> {
        let taken = self.places.len() - self.free.len();
        if !is_rank && taken >= usize::from(u16::MAX) - FOR_RANKS {
            return None;
        }
        if let Some(place) = self.free.pop() {
            let entry = &mut self.places[usize::from(place)];
            (entry.session, entry.wants_max) = (session, u64::MAX);
            return Some(place);
        }
        let place = u16::try_from(self.places.len()).ok()?;
        let recalls_pending = VecDeque::new();
        self.places.push(Place {
            session,
            serial: 1,
            count: 0,
            number: 0,
            recalls_pending,
            rooms: 0,
            delegated: 0,
            files: 0,
            wants_max: u64::MAX,
        });
        Some(place)
    }

    /// The session of that place wants to keep something of so many inodes at most; 0: as many as it may.
    pub(crate) fn ask_for(&mut self, place: u16, caps_max: u32) {
        let most = if caps_max == 0 { u64::MAX } else { u64::from(caps_max) };
        self.places[usize::from(place)].wants_max = most;
    }

    /// Everything the session of that place holds is gone, and what was recalled from it is as good as returned; not so what is
    /// delegated to it.
    pub(crate) fn forget(&mut self, place: u16) {
        if stdx::mutant!("mds_dx_fades") {
            self.end_delegated(place);
        }
        let delegated = &self.delegated;
        let is_delegated = |ino: &Ino| delegated.get(ino).is_some_and(|trust| trust.place == place);
        let entry = &mut self.places[usize::from(place)];
        entry.serial = entry.serial.wrapping_add(1);
        entry.recalls_pending.retain(|(_, ino)| is_delegated(ino));
        self.total -= std::mem::take(&mut entry.count);
        let recalls = self.recalls.range((place, Ino(0))..=(place, Ino(u64::MAX)));
        let inos: Vec<Ino> = recalls.map(|((_, ino), _)| *ino).filter(|ino| !is_delegated(ino)).collect();
        for ino in inos {
            self.answered(place, ino);
        }
    }

    /// The session is gone and its place another's.
    pub(crate) fn leave(&mut self, place: u16) {
        self.end_delegated(place);
        self.copies.leave(place);
        self.forget(place);
        self.free.push(place);
    }

    /// Records of one place.
    pub(crate) fn count(&self, place: u16) -> u64 {
        self.places[usize::from(place)].count
    }

    /// Records of all.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.records.bytes()
    }

    /// Whether nobody but that place has anything.
    pub(crate) fn is_alone(&self, place: Option<u16>) -> bool {
        self.is_alone_among_clients(place) && self.copies.is_empty()
    }

    /// Whether other ranks keep copies of anything.
    pub(crate) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Whether nobody but that place has anything, other ranks not counted.
    pub(crate) fn is_alone_among_clients(&self, place: Option<u16>) -> bool {
        self.total == place.map_or(0, |place| self.count(place)) && !self.is_delegated_to_others(place)
    }

    /// Whether a session may be granted anything of an inode now.
    pub(crate) fn may_grant(&self, place: u16, ino: Ino, now: Mono) -> bool {
        let session = self.places[usize::from(place)].session;
        let withheld = !self.withheld.is_empty()
            && !stdx::mutant!("mds_grant_under_intent")
            && self.withheld.get(&ino).is_some_and(|ops| ops.iter().any(|(_, other)| *other != session));
        let recalled = !self.recalls.is_empty()
            && !stdx::mutant!("mds_grant_while_recalled")
            && self.recalls.contains_key(&(place, ino));
        let contested = !self.contests.is_empty()
            && self.contests.get(&ino).is_some_and(|c| c.session != session && c.until > now);
        // Its times and counts are somebody else's to change.
        let delegated = !self.delegated.is_empty()
            && self.delegated.get(&ino).is_some_and(|trust| trust.place != place)
            && !stdx::mutant!("mds_grants_what_is_delegated");
        !withheld && !recalled && !contested && !delegated
    }

    /// Notes a grant.
    pub(crate) fn grant(&mut self, place: u16, ino: Ino, bits: Bits, now: Mono) {
        let places = &mut self.places;
        let holder = Holder { place, serial: places[usize::from(place)].serial };
        let is_live = |holder: Holder| places[usize::from(holder.place)].serial == holder.serial;
        if self.records.add(ino, holder, (bits, now), &is_live) {
            places[usize::from(place)].count += 1;
            self.total += 1;
        }
    }

    /// Inodes of which anybody has anything, in one part of the book; none: there are no more parts.
    pub(crate) fn held_in(&self, part: usize) -> Option<BTreeSet<Ino>> {
        let places = &self.places;
        let is_live = |holder: Holder| places[usize::from(holder.place)].serial == holder.serial;
        let live = |(ino, holder): (Ino, Holder)| is_live(holder).then_some(ino);
        match part {
            0..PARTS => Some(self.records.in_part(part).filter_map(live).collect()),
            PARTS => {
                let crowded = self.records.crowded().filter_map(live);
                Some(crowded.chain(self.delegated.keys().copied()).chain(self.copies.inos()).collect())
            }
            _ => None,
        }
    }

    /// Whether it has something of an inode already.
    pub(crate) fn has(&self, place: u16, ino: Ino) -> bool {
        let holder = Holder { place, serial: self.places[usize::from(place)].serial };
        !self.records.of(ino, holder).is_empty()
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

    /// An inode is gone.
    pub(crate) fn end(&mut self, ino: Ino) {
        self.copies.end_all(ino);
        self.end_home(ino);
    }

    /// An inode is another rank's. If it is a directory its content may be here: who keeps totals of that goes on keeping them.
    pub(crate) fn left(&mut self, ino: Ino) {
        self.copies.end_records(ino);
        self.end_home(ino);
    }

    fn end_home(&mut self, ino: Ino) {
        self.end_trust(ino);
        if self.total == 0 {
            return;
        }
        let places = &mut self.places;
        let total = &mut self.total;
        self.records.end(ino, |holder| {
            let entry = &mut places[usize::from(holder.place)];
            if entry.serial == holder.serial {
                entry.count -= 1;
                *total -= 1;
            }
        });
    }
}
