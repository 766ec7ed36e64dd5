//! What the rank has recalled and has no answer to: since when, who may be late with it, and what it withholds from others.
//!
//! Absent: what kernels keep of it (`kernel.rs`, `keeping.rs`).

use super::{Kind, World};
use crate::model::judge::Verdict;
use mds::input::ConnId;
use proto::Ino;
use proto::caps::{Bits, Recalled, Returned};
use proto::ids::{SessionId, Tid};
use proto::message::{ClientMsg, ServerMsg};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::{MS, SECOND};

/// A recall that the rank has sent and that has no answer yet.
#[derive(Debug)]
struct Debt {
    /// Messages without an answer.
    sent: u32,
    since: u64,
    /// The judge's clock then.
    clock: u64,
    /// File data is among it.
    pages: bool,
    /// An operation waits for it: nobody else is granted anything of the inode.
    withholds: bool,
}

/// The rank's patience with who may be late because of it.
const PATIENCE_LEASES: u64 = 6;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Owed {
    debts: BTreeMap<(SessionId, Ino), Debt>,
    /// Sessions that lost a connection and have not said Settled since. What they had runs out 3 s after that, on whatever
    /// connection it is asked for meanwhile, and nobody waits for it any more.
    fading: BTreeSet<SessionId>,
}

impl Owed {
    pub(super) fn forget(&mut self, session: SessionId) {
        self.debts.retain(|(owner, _), _| *owner != session);
    }

    /// A session lost its connection: what it has runs out, and perhaps nobody waits any more.
    pub(super) fn runs_out(&mut self, session: SessionId) {
        let of = self.debts.iter_mut().filter(|((owner, _), _)| *owner == session);
        of.for_each(|(_, debt)| debt.withholds = false);
        self.fading.insert(session);
    }

    /// It uses nothing of before.
    fn settled(&mut self, session: SessionId) {
        self.forget(session);
        self.fading.remove(&session);
    }

    /// A session has ended; perhaps it was the one that waited.
    pub(super) fn ended(&mut self, session: SessionId) {
        self.forget(session);
        self.debts.values_mut().for_each(|debt| debt.withholds = false);
    }

    /// The session from which something of the inode is recalled for an operation that waits, since before `came`.
    pub(super) fn withheld(&self, ino: Ino, came: u64) -> Option<SessionId> {
        let mut all = self.debts.iter();
        let found = all.find(|((_, of), debt)| *of == ino && debt.withholds && debt.clock < came)?;
        Some(found.0.0)
    }

    /// Files of which it was asked for pages.
    fn pages(&self, session: SessionId) -> impl Iterator<Item = Ino> {
        let of = self.debts.range((session, Ino(0))..=(session, Ino(u64::MAX)));
        of.filter(|(_, debt)| debt.pages).map(|((_, ino), _)| *ino)
    }

    /// When the oldest was sent.
    pub(super) fn since(&self, session: SessionId) -> Option<u64> {
        let of = self.debts.range((session, Ino(0))..=(session, Ino(u64::MAX)));
        of.map(|(_, debt)| debt.since).min()
    }
}

impl World {
    /// The rank asks for something back.
    pub(super) fn owe(&mut self, session: SessionId, list: &[Recalled]) {
        let (since, clock, fades) = (self.now, self.judge.clock(), self.owed.fading.contains(&session));
        for recalled in list {
            let (bits, all) = (recalled.bits, Bits::ATTRS.with(Bits::FC));
            // Whoever holds as much as it may gives back for its own sake what it was granted long ago.
            let room = recalled.name.is_none() && (bits == Bits::FC || bits.has(all));
            let withholds = !room && !fades && !self.own_changes.contains(&(session, recalled.ino));
            let debt = Debt { sent: 0, since, clock, pages: false, withholds };
            let debt = self.owed.debts.entry((session, recalled.ino)).or_insert(debt);
            debt.sent += 1;
            debt.pages |= recalled.bits.has(Bits::FC);
            let what = if recalled.bits.has(Bits::FC) {
                "recalls of pages"
            } else if recalled.name.is_some() {
                "recalls of a name"
            } else {
                "recalls of attributes"
            };
            self.coverage.count(what, 1);
        }
    }

    /// What a client says of capabilities reaches the rank.
    pub(super) fn settle_debts(&mut self, client: usize, session: SessionId, message: &ClientMsg) -> Verdict {
        match message {
            ClientMsg::Returned { list } => {
                for returned in list {
                    self.returned(client, session, *returned)?;
                }
            }
            ClientMsg::Idle { list } => self.coverage.count("offered", list.len() as u64),
            ClientMsg::Settled => {
                self.coverage.count("settled", 1);
                self.owed.settled(session);
            }
            _ => {}
        }
        Ok(())
    }

    fn returned(&mut self, client: usize, session: SessionId, returned: Returned) -> Verdict {
        // With a READ or WRITE of its own under way, whoever is asked for file data is given time, and that for all it owes.
        let of = |((owner, _), debt): (&(SessionId, Ino), &Debt)| *owner == session && debt.pages;
        let patience = if self.owed.debts.iter().any(of) { PATIENCE_LEASES } else { 1 };
        let lease = patience * self.lease_ns();
        let Some(debt) = self.owed.debts.get_mut(&(session, returned.ino)) else { return Ok(()) };
        let since = debt.since;
        debt.sent -= 1;
        if debt.sent == 0 {
            self.owed.debts.remove(&(session, returned.ino));
        }
        self.coverage.count("returned", 1);
        // A second for what the rank does by ticks, and a lease more if it was stopped.
        let late = since.max(self.hangs.rank_awake_at(self.lives)) + lease + SECOND;
        if self.clients[client].kind != Kind::Embedded && self.now > late {
            return Err(format!(
                "session {} left a recall of inode {} unanswered for {} ms and was not ended",
                session.0,
                returned.ino.0,
                (self.now - since) / MS
            ));
        }
        Ok(())
    }

    /// A file whose pages are asked of a session that cannot give them back, because the rank does not answer it.
    pub(super) fn locked_out(&self, session: SessionId) -> Option<Ino> {
        let slot = self.clients.iter().find(|slot| slot.session() == Some(session))?;
        // Where a client is stopped, or hears late, its answer may have left the rank long ago.
        let answered: BTreeSet<Tid> = self.on_their_way(slot.number()).collect();
        let locked = |ino: &Ino| {
            let writes = self.judge.is_writer(session, *ino);
            slot.is_locked_at_rank((*ino, writes), session, &answered)
        };
        self.owed.pages(session).find(locked)
    }

    /// Whether the rank may end a session for a recall that has no answer.
    pub(super) fn is_late(&self, session: SessionId) -> bool {
        // A rank that was stopped looks once more after a thousandth of a lease, when its sockets have been read; that nothing lies
        // unread then is judged by itself (`is_unread`).
        let heard = self.now >= self.hangs.rank_awake_at(self.lives) + self.lease_ns() / 1000;
        let since = self.owed.since(session);
        since.is_some_and(|since| self.now >= since + self.lease_ns() / 100 * 99) && heard
    }

    /// The recalls among what the rank sends.
    pub(super) fn note_recall(&mut self, conn: ConnId, message: &ServerMsg) {
        let ServerMsg::Recall { list } = message else { return };
        let Some(life) = &self.life else { return };
        if let Some((_, Some(session))) = life.conns.get(&conn).copied() {
            self.owe(session, list);
        }
    }
}
