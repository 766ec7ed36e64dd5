//! What sessions have open and locked of inodes that come to this rank with a move. Their clients know nothing of it yet: they find out
//! when they ask for such an inode the next time. Until then it is in the journal, so that this rank's next life has it, too.
//! docs/PROTOCOL.md, "What is open moves, too".
//!
//! Absent: who tells it (`moves/holders.rs`); the tables in which it counts (`files.rs`, `locks.rs`).

use crate::cache::node;
use crate::op::Op;
use crate::output::Output;
use crate::rank::Rank;
use crate::recent::Resource;
use proto::cluster::{ClusterMap, MoveId, Unit};
use proto::holder::{HOLDERS_BYTES_MAX, HOLDERS_MAX, Holder, Moved, put_holders};
use proto::mutation::Mutation;
use proto::reply::Reply;
use proto::request::Request;
use proto::{Errno, Frag, Ino, NodeRef, Position, RankId, SessionId, Writer};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::MS;
use stdx::{Now, Outbox};

/// Whoever waits until sessions have joined a rank looks and asks again after that.
pub(crate) const JOIN_NS: u64 = 20 * MS;

type Key = (SessionId, Ino);

/// Of a move that is not over.
#[derive(Debug)]
struct Coming {
    id: MoveId,
    list: BTreeMap<Key, Holder>,
}

/// All of it that the journal has.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    coming: BTreeMap<Moved, Coming>,
    here: BTreeMap<Key, Holder>,
    /// Up to there the journal says what became of moves. As long as that is not durable only the map does.
    settled: Position,
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Came,
    Nothing,
}

/// What stands for nothing that moves: of what has come it is not said with what.
const WITH_NOTHING: Moved = Moved { unit: Unit { dir: Ino::NONE, frag: Frag::WHOLE }, slot: 0 };

fn fate(map: &ClusterMap, me: RankId, moved: Moved, id: MoveId) -> Fate {
    let (rank, moving) = if moved.unit.dir == Ino::NONE {
        let slot = map.slots.get(moved.slot);
        (Some(slot.rank), slot.moving)
    } else {
        let entry = map.entries.get(&moved.unit);
        (entry.map(|entry| entry.rank), entry.and_then(|entry| entry.moving))
    };
    match moving {
        Some(moving) if moving.id == id => Fate::Open,
        Some(_) | None if rank == Some(me) => Fate::Came,
        Some(_) | None => Fate::Nothing,
    }
}

/// Lists of which each has room in one message, and in one mutation.
pub(crate) fn chunks<'a>(list: impl Iterator<Item = &'a Holder>) -> Vec<Vec<Holder>> {
    let (mut all, mut last, mut bytes) = (Vec::new(), Vec::new(), 0);
    for holder in list {
        if last.len() == HOLDERS_MAX || bytes + holder.bytes() > HOLDERS_BYTES_MAX {
            all.push(std::mem::take(&mut last));
            bytes = 0;
        }
        bytes += holder.bytes();
        last.push(holder.clone());
    }
    if !last.is_empty() {
        all.push(last);
    }
    all
}

/// What has come, for the entry that brings it.
pub(crate) fn encode_here(list: &[Holder], muts: &mut Writer) {
    let (id, moved) = (MoveId(0), WITH_NOTHING);
    Mutation::Holders { id, moved, first: false, list: &encoded(list) }.encode(muts);
}

fn encoded(list: &[Holder]) -> Vec<u8> {
    let mut w = Writer::new();
    put_holders(list.iter(), &mut w);
    w.0
}

impl Holders {
    /// A mutation says so.
    pub(crate) fn note(&mut self, id: MoveId, moved: Moved, first: bool, list: Vec<Holder>) {
        let list = list.into_iter().map(|holder| ((holder.session, holder.ino), holder));
        if id == MoveId(0) {
            if first {
                self.coming.remove(&moved);
            }
            return self.here.extend(list);
        }
        let coming = self.coming.entry(moved).or_insert_with(|| Coming { id, list: BTreeMap::new() });
        if first || coming.id != id {
            (coming.id, coming.list) = (id, BTreeMap::new());
        }
        coming.list.extend(list);
    }

    pub(crate) fn gone(&mut self, session: SessionId, ino: Ino) {
        self.here.remove(&(session, ino));
    }

    /// The inode is another rank's from here on.
    pub(crate) fn left(&mut self, ino: Ino) {
        self.here.retain(|(_, of), _| *of != ino);
    }

    /// A session has ended.
    pub(crate) fn end_session(&mut self, id: SessionId) {
        self.here.retain(|(session, _), _| *session != id);
        self.coming.values_mut().for_each(|coming| coming.list.retain(|(session, _), _| *session != id));
    }

    /// Who has something of that inode by what has come.
    pub(crate) fn sessions_of(&self, ino: Ino) -> BTreeSet<SessionId> {
        self.here.keys().filter(|(_, of)| *of == ino).map(|(session, _)| *session).collect()
    }

    pub(crate) fn has(&self, session: SessionId, ino: Ino) -> bool {
        self.here.contains_key(&(session, ino))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.here.is_empty() && self.coming.is_empty()
    }

    /// All of it once more, for a journal whose beginning goes.
    pub(crate) fn journal_again(&self, mut each: impl FnMut(&Mutation<'_>)) {
        if stdx::mutant!("mds_holders_trimmed") {
            return;
        }
        for (moved, coming) in &self.coming {
            // Another move's list is over with that; to what was said of the same one it adds nothing, should a crash keep some of these.
            for list in chunks(coming.list.values()) {
                let (id, moved) = (coming.id, *moved);
                each(&Mutation::Holders { id, moved, first: false, list: &encoded(&list) });
            }
        }
        for list in chunks(self.here.values()) {
            let (id, moved) = (MoveId(0), WITH_NOTHING);
            each(&Mutation::Holders { id, moved, first: false, list: &encoded(&list) });
        }
    }
}

impl Rank {
    /// Another rank is about to hand something over, and asks whether these sessions are here, or says what they have of it. False: it
    /// asks for something else.
    pub(crate) fn is_about_holders(&mut self, now: Now, op: &Op, out: &mut Outbox<Output>) -> bool {
        let outcome = match &op.request {
            Request::Sessions { sessions } => {
                let all = sessions.iter().all(|id| self.knows(*id));
                if all { Ok(Reply::Ok) } else { Err(Errno::EBUSY) }
            }
            Request::Holders { id, moved, version, first, list } => {
                self.holders_come(now, (*id, *moved, *version), (*first, list), out)
            }
            proto::every_request!() => return false,
        };
        self.answer(op, outcome, false, out);
        true
    }

    /// Whether a client has that session here.
    pub(crate) fn knows(&self, id: SessionId) -> bool {
        self.sessions.map.get(&id).is_some_and(|session| session.is_clients() && !session.evicted)
    }

    fn holders_come(
        &mut self,
        now: Now,
        (id, moved, version): (MoveId, Moved, u64),
        (first, list): (bool, &[Holder]),
        out: &mut Outbox<Output>,
    ) -> Result<Reply, Errno> {
        let map = self.view.territory.map().filter(|map| map.version >= version);
        let map = map.ok_or(Errno::EAGAIN)?;
        let open = fate(map, self.view.config.rank, moved, id) == Fate::Open;
        if !open || !list.iter().all(|holder| self.knows(holder.session)) {
            return Err(Errno::EBUSY);
        }
        // What was claimed here while it was another's would count with what comes.
        if !self.has_settled_claims() && !stdx::mutant!("mds_claims_of_nothing") {
            return Err(Errno::EAGAIN);
        }
        if !list.is_empty() || self.view.holders.coming.contains_key(&moved) {
            let list = &encoded(list);
            Mutation::Holders { id, moved, first, list }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
        Ok(Reply::Ok)
    }

    /// What a map says of it: what has come counts from here on.
    pub(crate) fn settle_holders(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.view.holders.coming.is_empty() || !self.state.serves() {
            return;
        }
        let Some(map) = self.view.territory.map().cloned() else { return };
        let me = self.view.config.rank;
        let fates = self
            .view
            .holders
            .coming
            .iter()
            .map(|(moved, coming)| (*moved, fate(&map, me, *moved, coming.id)));
        let over: Vec<(Moved, Fate)> = fates.filter(|(_, fate)| *fate != Fate::Open).collect();
        if over.is_empty() {
            return;
        }
        for (moved, fate) in over {
            let Some(coming) = self.view.holders.coming.remove(&moved) else { continue };
            let came = if fate == Fate::Came { chunks(coming.list.values()) } else { Vec::new() };
            if came.is_empty() && !stdx::mutant!("mds_holders_of_nothing") {
                // What broke: with another move of the same this one would have come, after a crash.
                let (id, list) = (MoveId(0), encoded(&[]));
                Mutation::Holders { id, moved, first: true, list: &list }.encode(&mut self.view.txn.muts);
                self.commit(now, None, out);
            }
            // Of these inodes nobody has anything but what was told, whatever was claimed before.
            let inos: BTreeSet<Ino> = came.iter().flatten().map(|holder| holder.ino).collect();
            for ino in inos {
                self.view.unheard.came(ino);
                if !stdx::mutant!("mds_claims_of_nothing") {
                    self.forget_holders(ino);
                }
            }
            for (at, list) in came.iter().enumerate() {
                // The last one ends what was coming: as long as a crash may keep some of them, it is there as a whole.
                let ends = if stdx::mutant!("mds_first_ends_what_was_coming") { 0 } else { came.len() - 1 };
                let (id, first, bytes) = (MoveId(0), at == ends, encoded(list));
                Mutation::Holders { id, moved, first, list: &bytes }.encode(&mut self.view.txn.muts);
                self.commit(now, None, out);
                list.iter().for_each(|holder| self.holds(holder));
            }
        }
        self.view.holders.settled = self.journal.end;
    }

    /// Whether the journal durably has what came with all moves that have come.
    pub(crate) fn is_settled(&self) -> bool {
        self.view.holders.settled <= self.journal.durable
    }

    /// The rank lives again: what had come to it counts.
    pub(crate) fn restore_holders(&mut self, now: Now, out: &mut Outbox<Output>) {
        let known = |id: &SessionId| self.sessions.map.contains_key(id);
        let here = std::mem::take(&mut self.view.holders.here);
        let here: BTreeMap<Key, Holder> = here.into_iter().filter(|((id, _), _)| known(id)).collect();
        if !stdx::mutant!("mds_holders_not_replayed") {
            here.values().for_each(|holder| self.holds(holder));
        }
        self.view.holders.here = here;
        self.settle_holders(now, out);
    }

    /// In place of whatever it had of that inode: it may have been here before.
    pub(crate) fn holds(&mut self, holder: &Holder) {
        let Holder { session, ino, parent, hash, opens, rights, writes, locks } = holder;
        if !self.sessions.map.contains_key(session) {
            return;
        }
        self.view.files.close(*ino, *session, u32::MAX);
        if *opens > 0 {
            self.view.files.open(*ino, *session, *opens, u32::from(*rights), *writes);
            self.note_limit(*session);
            self.view.cache.flag(*ino, node::BUSY, 0);
        }
        self.seen_at(NodeRef { ino: *ino, parent: *parent, hash: *hash });
        let limits = self.view.config.limits.locks();
        self.view.locks.forget(*ino, *session);
        // It had no more of them than one may have.
        let _ = self.view.locks.reclaim(*ino, *session, locks, limits);
    }

    /// The client has it in its books for this rank, or has nothing of it any more: the journal need not.
    pub(crate) fn holder_gone(&mut self, session: SessionId, ino: Ino, out: &mut Outbox<Output>) {
        if self.view.holders.has(session, ino) {
            Mutation::HolderGone { session, ino }.encode(&mut self.view.txn.muts);
            self.commit(self.view.now, None, out);
            // Told of a close or an unlock before this is durable its client would reclaim nothing after a crash, and the rank's next life would
            // count it for ever.
            if !stdx::mutant!("mds_holder_gone_early") {
                let (end, durable) = (self.journal.end, self.journal.durable);
                self.recent.changed(SessionId(0), std::iter::once(Resource::Held(ino)), end, durable);
            }
        }
    }

    /// Something that a session had may be the last that it had of that inode.
    pub(crate) fn holder_let_go(&mut self, session: SessionId, ino: Ino, out: &mut Outbox<Output>) {
        if self.view.holders.is_empty() {
            return;
        }
        let file = self.view.files.get(ino);
        let opens = file.is_some_and(|file| file.opens.iter().any(|open| open.session == session));
        if !opens && !self.view.locks.has(ino, session) {
            self.holder_gone(session, ino, out);
        }
    }
}
