//! What clients keep of directories whose content, or some part of it, is another rank's. Their home grants it by totals that the ranks
//! of the parts told; so whoever takes totals back is answered when these clients have given back what they were granted by them, or it has
//! run out. docs/PROTOCOL.md, "Boundaries".
//!
//! Absent: totals themselves (`totals.rs`), and who keeps them (`caps/book/copies.rs`).

use crate::caps::FADES_NS;
use crate::caps::book::Need;
use crate::op::Op;
use crate::output::Output;
use crate::rank::Rank;
use proto::caps::{Bits, Recalled};
use proto::message::ClientMsg;
use proto::{Ino, RankId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::{Mono, Outbox};

/// Parts remembered before it is looked which of them clients have given back.
const LENT_MIN: usize = 4096;

/// At the home, and at the rank that has the content.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// By whose totals of what parts clients were granted something of which directories.
    of: BTreeMap<Ino, Lender>,
    /// As many were left when it was looked last.
    left: usize,
    /// What other ranks recall, and clients have not given back yet.
    owed: Vec<(Lender, Recalled)>,
    /// Ranks to which the connection broke: until clients have given these back, or they have run out, no greeting says that nothing of
    /// before is kept.
    unsettled: BTreeMap<RankId, (Mono, Vec<Ino>)>,
    /// Places of ranks that live no more as they did: what they granted their clients by what they keep is in use until then.
    lingering: Vec<(RankId, Mono, u16)>,
    /// The same of ranks of which this life does not know what they keep.
    fading: BTreeMap<RankId, Mono>,
}

/// Who told the totals of a part of a directory, which is that as a whole or one of its units.
#[derive(Clone, Copy, Debug)]
struct Lender {
    rank: RankId,
    dir: Ino,
}

impl Lent {
    /// When something has run out.
    pub(crate) fn due(&self) -> Option<Mono> {
        let unsettled = self.unsettled.values().map(|(until, _)| *until);
        let lingering = self.lingering.iter().map(|(_, until, _)| *until);
        unsettled.chain(lingering).chain(self.fading.values().copied()).min()
    }

    /// Whether somebody waits for clients.
    pub(crate) fn is_busy(&self) -> bool {
        !self.owed.is_empty() || !self.unsettled.is_empty()
    }

    /// Whether a rank may not be greeted yet.
    pub(crate) fn is_unsettled(&self, rank: RankId) -> bool {
        self.unsettled.contains_key(&rank) && !stdx::mutant!("mds_greets_with_lent")
    }

    /// Whether clients of other ranks' former lives may keep what a former life of this one told.
    pub(crate) fn fades(&self) -> bool {
        !self.fading.is_empty() && !stdx::mutant!("mds_lent_ends_with_life")
    }
}

impl Rank {
    /// Whether clients may be granted something of a directory that is not all here: its home knows the totals that it shows until they
    /// are recalled. Returned: what other ranks told. A client in this process keeps what it has for longer than another rank waits.
    pub(crate) fn may_lend(&self, op: &Op, ino: Ino) -> Option<Vec<(Ino, RankId)>> {
        let embedded = self.sessions.map.get(&op.session).is_none_or(|session| session.embedded);
        let told_once = op.heard.as_ref().is_some_and(|heard| heard.told_once);
        if embedded || told_once { None } else { self.view.parts_told(ino) }
    }

    /// Clients are granted something of a directory by these.
    pub(crate) fn lends(&mut self, dir: Ino, parts: Vec<(Ino, RankId)>) {
        self.lent.of.extend(parts.into_iter().map(|(number, rank)| (number, Lender { rank, dir })));
        if self.lent.of.len() >= 2 * self.lent.left.max(LENT_MIN) {
            let book = &self.view.book;
            self.lent.of.retain(|_, lender| book.is_granted(lender.dir, Bits::FS));
            self.lent.left = self.lent.of.len();
        }
    }

    /// Another rank recalls totals. Returns whether it is answered now; if not it is when clients have given back what they have by them.
    pub(crate) fn recalls_lent(&mut self, rank: RankId, recalled: &Recalled) -> bool {
        if !recalled.bits.has(Bits::FS) || stdx::mutant!("mds_lent_stays") {
            return true;
        }
        let Some(Lender { dir, .. }) = self.lent.of.remove(&recalled.ino) else { return true };
        if !self.view.book.is_granted(dir, Bits::FS) {
            return true;
        }
        self.take_back_lent(dir);
        self.lent.owed.push((Lender { rank, dir }, recalled.clone()));
        false
    }

    fn take_back_lent(&mut self, dir: Ino) {
        let now = self.view.now.mono;
        self.view.book.recall_others(None, &Need::of(dir, Bits::FS), now);
    }

    /// The connection to a rank is gone, and what it told counts no more.
    pub(crate) fn lent_lost(&mut self, rank: RankId) {
        self.lent.owed.retain(|(lender, recalled)| {
            if lender.rank == rank {
                self.lent.of.insert(recalled.ino, *lender);
            }
            lender.rank != rank
        });
        let book = &self.view.book;
        let lent = self.lent.of.values().filter(|lender| lender.rank == rank).map(|lender| lender.dir);
        let inos: BTreeSet<Ino> = lent.filter(|dir| book.is_granted(*dir, Bits::FS)).collect();
        self.lent.of.retain(|_, lender| lender.rank != rank);
        for ino in &inos {
            self.take_back_lent(*ino);
        }
        // One that broke again before: what was lent then is, too.
        let before = self.lent.unsettled.remove(&rank).map(|(_, inos)| inos).unwrap_or_default();
        let inos: Vec<Ino> = before.into_iter().chain(inos).collect();
        if !inos.is_empty() {
            self.lent.unsettled.insert(rank, (self.view.now.mono.after(FADES_NS), inos));
        }
    }

    /// Who waits for clients goes on when these have given back.
    pub(crate) fn lent_turn(&mut self, out: &mut Outbox<Output>) {
        let book = &self.view.book;
        let is_kept = |ino: Ino| book.is_granted(ino, Bits::FS);
        let mut returned: BTreeMap<RankId, Vec<_>> = BTreeMap::new();
        self.lent.owed.retain(|(lender, recalled)| {
            let kept = is_kept(lender.dir);
            if !kept {
                returned.entry(lender.rank).or_default().push(recalled.returned(recalled.bits));
            }
            kept
        });
        for (rank, list) in returned {
            out.push(Output::SendRank { rank, message: ClientMsg::Returned { list } });
        }
        let (now, before) = (self.view.now.mono, self.lent.unsettled.len());
        self.lent.unsettled.retain(|_, (until, inos)| {
            inos.retain(|ino| is_kept(*ino));
            !inos.is_empty() && *until > now
        });
        if self.lent.unsettled.len() < before {
            self.greet_all(out);
        }
    }

    /// A rank lives no more as it did. Clients may go by totals that it was told; what else it kept is over.
    pub(crate) fn lingers(&mut self, rank: RankId, id: SessionId) {
        let Some(place) = self.sessions.map.get(&id).and_then(|session| session.place) else { return };
        if stdx::mutant!("mds_lent_ends_with_life") || !self.view.book.keeps_totals_alone(place) {
            return;
        }
        if let Some(session) = self.sessions.map.get_mut(&id) {
            session.place = None;
        }
        self.lent.lingering.push((rank, self.view.now.mono.after(FADES_NS), place));
    }

    /// The same of one of which this life does not know what it keeps.
    pub(crate) fn fades_later(&mut self, rank: RankId) {
        self.lent.fading.insert(rank, self.view.now.mono.after(FADES_NS));
    }

    /// That rank's clients keep nothing of before.
    pub(crate) fn rank_settled(&mut self, rank: RankId) {
        self.ran_out(|of, _| of == rank);
    }

    /// What has run out by now.
    pub(crate) fn lent_tick(&mut self, now: Mono) {
        self.ran_out(|_, until| until <= now);
    }

    fn ran_out(&mut self, is_over: impl Fn(RankId, Mono) -> bool) {
        let all = std::mem::take(&mut self.lent.lingering);
        let (over, left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(rank, until, _)| is_over(*rank, *until));
        self.lent.lingering = left;
        for (.., place) in over {
            self.view.book.leave(place);
        }
        let before = self.lent.fading.len();
        self.lent.fading.retain(|rank, until| !is_over(*rank, *until));
        if self.lent.fading.len() < before {
            self.look_at_ranks_again();
        }
    }
}
