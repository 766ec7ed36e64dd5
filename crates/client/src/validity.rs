//! What the edge may keep of an answer, and for how long: the grants of the rank, less those that a recall or a break of the
//! connection has overtaken.
//!
//! A recall may reach the machine before an answer that was sent earlier, because different threads carry them. So a recall
//! voids the grants in the answers to all requests that have none at that moment. What was answered before, and has not reached
//! the kernel, the edge voids by its stamp.
//!
//! Absent: who keeps what; the edge drops it without knowing whether it has it.

use proto::Ino;
use proto::Tid;
use proto::caps::{Bits, Grants, KEEP_ASKED_MS, KEEP_EMBEDDED_MS, KEEP_MARGIN_MS, KEEP_MS};
use std::collections::BTreeMap;
use stdx::Mono;
use stdx::time::MS;

/// The low bits of a stamp that say of which rank it is, where there are several.
const LANE_BITS: u32 = 8;

/// Inodes remembered one by one; beyond, everything asked for is void.
const BELOW_MAX: usize = 4096;

/// What an edge may keep of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    pub grants: Grants,
    /// Void once a recall of the inode, or a loss of everything, has a higher one.
    pub stamp: u64,
    /// Kept no longer than until then.
    pub until: Mono,
    /// The stamp of the last recall that the edge was told of when it asked, as the machine's driver knows it: what was recalled
    /// later the answer may be older than.
    pub asked: u64,
}

impl Validity {
    /// What the machine uses by itself is nothing to its edge.
    pub(crate) fn for_edge(mut self) -> Self {
        if let Grants::One(bits) = &mut self.grants {
            *bits = bits.without(Bits::ALONE);
        }
        if self.grants == Grants::One(Bits::NONE) { Self::default() } else { self }
    }
}

/// The machine's book of what is void.
#[derive(Clone, Debug)]
pub(crate) struct Validities {
    /// Moves with each recall and each loss.
    stamp: u64,
    /// Of several ranks: this one, in the stamps that are made here.
    lane: Option<u8>,
    /// The stamp when the connection broke last.
    broken: u64,
    /// The rank grants on this connection, and this client has dropped what it had from earlier ones.
    settled: bool,
    /// Grants in the answers to requests below are void.
    void_below: Tid,
    /// The same for one inode, because of a recall.
    recalled: Below,
    /// And because this client has changed it since: what is granted stands, but the answer shows it as it was.
    outdated: Below,
    /// Nothing handed out is kept after it.
    kept_until: Mono,
    /// When to say `Settled`, if file data are dropped by then.
    pub(crate) settle_at: Option<Mono>,
    /// The stamp of the last loss, while the edge drops file data because of it; 0: it does not.
    dropping: u64,
}

/// Of each inode the tid below which answers are void.
#[derive(Clone, Debug)]
struct Below(BTreeMap<Ino, Tid>);

impl Below {
    fn has(&self, ino: Ino, tid: Tid) -> bool {
        self.0.get(&ino).is_some_and(|below| tid < *below)
    }

    /// Whether there was room. `floor`: there are no answers to come below.
    fn add(&mut self, inos: impl Iterator<Item = Ino>, next: Tid, floor: Tid) -> bool {
        if floor == next {
            self.0.clear();
            return true;
        }
        if self.0.len() > BELOW_MAX {
            self.0.retain(|_, below| *below > floor);
        }
        self.0.extend(inos.map(|ino| (ino, next)));
        self.0.len() <= BELOW_MAX
    }
}

impl Validities {
    pub(crate) const fn new() -> Self {
        Self {
            stamp: 1,
            lane: None,
            broken: 0,
            settled: false,
            void_below: Tid(0),
            recalled: Below(BTreeMap::new()),
            outdated: Below(BTreeMap::new()),
            kept_until: Mono(0),
            settle_at: None,
            dropping: 0,
        }
    }

    /// A session begins: nobody has anything of it.
    pub(crate) fn begin(&mut self) {
        self.settled = true;
        self.settle_at = None;
    }

    /// A session goes on over a new connection: what was kept must have run out before the rank hears that it has.
    pub(crate) fn resume(&mut self, now: Mono) {
        self.settle_at = Some(now.max(self.kept_until.after(KEEP_MARGIN_MS * MS)));
    }

    /// `next`: the tid of the next request.
    pub(crate) fn settle(&mut self, next: Tid) {
        self.settled = true;
        self.settle_at = None;
        self.void(next);
    }

    fn void(&mut self, next: Tid) {
        self.void_below = next;
        self.recalled.0.clear();
        self.outdated.0.clear();
    }

    /// From here on stamps are of this rank, one of several.
    pub(crate) const fn in_lane(&mut self, lane: u8) {
        self.lane = Some(lane);
    }

    /// The rank in whose lane a stamp is.
    pub(crate) const fn lane_of(stamp: u64) -> u8 {
        (stamp & ((1 << LANE_BITS) - 1)) as u8
    }

    /// The newest stamp.
    pub(crate) const fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Another rank's stamp is newer: those that are made here from now on are higher.
    pub(crate) fn raise(&mut self, stamp: u64) {
        self.stamp = self.stamp.max(stamp);
    }

    fn advance(&mut self) {
        self.stamp = match self.lane {
            None => self.stamp + 1,
            Some(lane) => (((self.stamp >> LANE_BITS) + 1) << LANE_BITS) | u64::from(lane),
        };
    }

    /// Everything is void. Returns the stamp that says so.
    pub(crate) fn lose(&mut self, next: Tid) -> u64 {
        self.advance();
        self.void(next);
        self.dropping = self.stamp;
        self.stamp
    }

    /// The edge has dropped the file data that the loss with this stamp made void. Later losses have answers of their own.
    pub(crate) fn dropped(&mut self, stamp: u64) {
        if stamp >= self.dropping {
            self.dropping = 0;
        }
    }

    /// When to say `Settled`. Not while file data are being dropped: they are in use until then, and that may take as long as a
    /// READ that waits for its answer over the new connection.
    pub(crate) fn settles_at(&self) -> Option<Mono> {
        self.settle_at.filter(|_| self.dropping == 0)
    }

    /// The connection is gone. Returns the stamp of the loss.
    pub(crate) fn disconnected(&mut self, next: Tid) -> u64 {
        self.settled = false;
        self.settle_at = None;
        self.broken = self.lose(next);
        self.broken
    }

    /// The rank recalls these. Returns the stamp of it.
    pub(crate) fn recall(&mut self, inos: impl Iterator<Item = Ino>, next: Tid, floor: Tid) -> u64 {
        self.advance();
        if !self.recalled.add(inos, next, floor) {
            self.void(next);
        }
        self.stamp
    }

    /// What the answers to earlier requests show of these is no longer so.
    pub(crate) fn outdate(&mut self, inos: impl Iterator<Item = Ino>, next: Tid, floor: Tid) {
        if !self.outdated.add(inos, next, floor) {
            self.void(next);
        }
    }

    /// Whether the rank grants on this connection.
    pub(crate) const fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether a recall of that stamp is still to be answered.
    pub(crate) const fn stands(&self, stamp: u64) -> bool {
        stamp > self.broken
    }

    /// Whether what the answer to that request grants of that inode is void.
    pub(crate) fn is_void(&self, tid: Tid, ino: Ino) -> bool {
        !self.settled || tid < self.void_below || self.recalled.has(ino, tid) || self.outdated.has(ino, tid)
    }

    /// What is granted with an answer of an inode whose attributes are known here, however old those are that it shows.
    pub(crate) fn of_known(&mut self, tid: Tid, bits: Bits, ino: Ino, until: Mono) -> Validity {
        let outdated = self.outdated.has(ino, tid) && stdx::mutant!("client_grants_end_with_change");
        let void = !self.settled || tid < self.void_below || self.recalled.has(ino, tid) || outdated;
        if bits.is_empty() || void && !stdx::mutant!("client_recall_overtakes_known") {
            return Validity::default();
        }
        self.kept_until = self.kept_until.max(until);
        Validity { grants: Grants::One(bits), stamp: self.stamp, until, asked: 0 }
    }

    /// What may be kept of an answer. `inos`: those it carries attributes of, in its order.
    pub(crate) fn of(
        &mut self,
        tid: Tid,
        mut grants: Grants,
        inos: impl Iterator<Item = Ino>,
        until: Mono,
    ) -> Validity {
        if !self.settled || tid < self.void_below {
            grants = Grants::None;
        }
        let none = self.recalled.0.is_empty() && self.outdated.0.is_empty();
        if !none && !stdx::mutant!("client_recall_overtakes_grant") {
            let void = |ino: Ino| self.recalled.has(ino, tid) || self.outdated.has(ino, tid);
            match &mut grants {
                Grants::None => {}
                Grants::One(bits) => inos.take(1).filter(|ino| void(*ino)).for_each(|_| *bits = Bits::NONE),
                Grants::Each(all) => {
                    let voided = all.iter_mut().zip(inos).filter(|(_, ino)| void(*ino));
                    voided.for_each(|(bits, _)| *bits = Bits::NONE);
                }
            }
        }
        if grants != Grants::None {
            self.kept_until = self.kept_until.max(until);
        }
        Validity { grants, stamp: self.stamp, until, asked: 0 }
    }

    /// Until when an answer that came now may be kept at most. `embedded`: the rank is in this process.
    pub(crate) fn limit(now: Mono, asked: Mono, embedded: bool) -> Mono {
        let keep_ms = if embedded { KEEP_EMBEDDED_MS } else { KEEP_MS };
        now.after(keep_ms * MS).min(asked.after((keep_ms + KEEP_ASKED_MS - KEEP_MS) * MS))
    }
}
