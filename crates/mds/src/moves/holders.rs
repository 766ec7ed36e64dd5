//! What sessions have open and locked below what moves: who they are, so that they join the new owner, and what they have, which it is
//! told. docs/PROTOCOL.md, "What is open moves, too".
//!
//! Absent: the new owner's side (`holders.rs` of the crate).

use super::below::{InUse, Slice};
use super::{Move, Moves, Phase};
use crate::files::FileState;
use crate::holders::{JOIN_NS, chunks};
use crate::op::OpId;
use crate::output::Output;
use crate::peers::Question;
use crate::rank::Rank;
use crate::territory::{Below, Part};
use crate::unheard::done_by;
use proto::holder::{Holder, LOCKS_MAX, Moved};
use proto::message::ServerMsg;
use proto::request::Request;
use proto::unheard::Unheard;
use proto::{Ino, NodeRef, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Outbox;

/// What is found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) sessions: BTreeSet<SessionId>,
    /// Those that have joined the new owner.
    joined: BTreeSet<SessionId>,
    list: BTreeMap<(SessionId, Ino), Holder>,
    /// Of the list, as it is told.
    chunks: Vec<Vec<Holder>>,
    /// What they may not have heard that the list counts.
    pub(super) unheard: Vec<Unheard>,
}

impl Found {
    fn of(&mut self, session: SessionId, node: NodeRef) -> &mut Holder {
        let NodeRef { ino, parent, hash } = node;
        let new = || Holder { session, ino, parent, hash, ..Holder::default() };
        self.list.entry((session, ino)).or_insert_with(new)
    }
}

impl Found {
    /// It is looked for once more: some of them may be gone by now.
    pub(super) fn again(&mut self) {
        *self = Self { joined: std::mem::take(&mut self.joined), ..Self::default() };
    }

    /// Where they were.
    pub(super) fn places(&self) -> impl Iterator<Item = NodeRef> {
        self.list.values().map(|holder| NodeRef { ino: holder.ino, parent: holder.parent, hash: holder.hash })
    }
}

impl Moves {
    /// A transaction brings an inode that may have gone with a move of which this rank has not heard yet that it was made. What sessions have
    /// of it from here on does not go with that: an open file was purged.
    pub(crate) fn is_here_again(&mut self, ino: Ino) {
        if let Some(one) = self.current.as_mut().filter(|_| !stdx::mutant!("mds_move_takes_what_came")) {
            one.found.list.retain(|(_, of), _| *of != ino);
        }
    }
}

impl Move {
    pub(super) fn moved(&self) -> Moved {
        let slot = match self.part {
            Part::Slots { first, .. } => first,
            Part::Of(_) => 0,
        };
        Moved { unit: self.unit, slot }
    }
}

impl Rank {
    /// Whether an inode that is open or locked goes with what is below; or why it holds everything up. Of one of which it is not known
    /// where it is nothing is handed over: elsewhere it counts here, and somebody else would get its locks.
    fn goes_along(&self, ino: Ino, file: Option<&FileState>, part: Part) -> Result<bool, &'static str> {
        match self.view.inode_below(ino, part) {
            Below::No => Ok(false),
            Below::Yes => self.stays(ino, file).map_or(Ok(true), Err),
            Below::Unknown(_) => Err("which may be below, is open or locked"),
        }
    }

    /// Why an inode that is open or locked holds everything up, wherever it is; none: it does not.
    pub(super) fn holds_up(&self, ino: Ino, file: Option<&FileState>, part: Part) -> Option<String> {
        self.goes_along(ino, file, part).err().map(|why| format!("inode {:#x}, {why}", ino.0))
    }

    /// Why an inode that is open or locked below holds everything up; none: that goes with it.
    fn stays(&self, ino: Ino, file: Option<&FileState>) -> Option<&'static str> {
        let embedded = |id: &SessionId| self.sessions.map.get(id).is_some_and(|session| session.embedded);
        if stdx::mutant!("mds_move_despite_opens") {
            return None;
        }
        if file.is_some_and(|file| file.kept > 0) {
            return Some("which is below, may be open by an answer of before");
        }
        let locks = self.view.locks.held_on(ino);
        if locks.len() > LOCKS_MAX {
            return Some("which is below, has more locks than one list has room for");
        }
        let opens = file.into_iter().flat_map(|file| file.opens.iter());
        let by_mount = opens.map(|open| open.session).any(|id| embedded(&id))
            || locks.iter().any(|(id, _)| embedded(id));
        by_mount.then_some("which is below, is open or locked in the rank's process")
    }

    /// An inode and where the cache says that it is.
    fn at_place(&self, ino: Ino) -> NodeRef {
        let cache = &self.view.cache;
        cache.by_ino(ino).map_or(NodeRef::bare(ino), |slot| NodeRef {
            ino,
            parent: cache.parent_of(slot),
            hash: cache.node(slot).hash,
        })
    }

    /// Notes who has something open or locked below; `all`: and what.
    pub(super) fn find_holders(&mut self, part: Part, at: InUse, all: bool) -> Slice<InUse> {
        let found = self.moves.current.as_mut().map(|one| std::mem::take(&mut one.found));
        let mut found = found.unwrap_or_default();
        let slice = match at {
            InUse::Files(from) => self.find_opens(part, from, all, &mut found),
            InUse::Locks(from) => self.find_locks(part, from, all, &mut found),
            InUse::Answers(from) => self.find_unheard(part, from, &mut found),
        };
        if let Some(one) = &mut self.moves.current {
            one.found = found;
        }
        slice
    }

    fn find_opens(&self, part: Part, from: Ino, all: bool, found: &mut Found) -> Slice<InUse> {
        for (count, (ino, file)) in self.view.files.from(from).enumerate() {
            if count == self.looks() {
                return Slice::More(InUse::Files(ino));
            }
            if file.opens.is_empty() {
                continue;
            }
            match self.goes_along(ino, Some(file), part) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => return Slice::No(format!("inode {:#x}, {why}", ino.0)),
            }
            if file.opens.iter().any(|open| self.is_being_closed(open.session)) {
                return Slice::Wait;
            }
            for open in file.opens.iter() {
                found.sessions.insert(open.session);
                if all {
                    let holder = found.of(open.session, self.at_place(ino));
                    (holder.opens, holder.rights, holder.writes) = (open.count, open.rights(), open.writes);
                }
            }
        }
        Slice::More(InUse::Locks(Ino(0)))
    }

    /// Its session has ended and what it had is dropped soon, or when a transaction is over: it joins nobody, and the new owner would refuse
    /// what it has.
    fn is_being_closed(&self, session: SessionId) -> bool {
        !self.sessions.map.contains_key(&session) && !stdx::mutant!("mds_ended_go_along")
    }

    fn find_locks(&self, part: Part, from: Ino, all: bool, found: &mut Found) -> Slice<InUse> {
        for (count, ino) in self.view.locks.files_from(from).enumerate() {
            if count == self.looks() {
                return Slice::More(InUse::Locks(ino));
            }
            match self.goes_along(ino, self.view.files.get(ino), part) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => return Slice::No(format!("inode {:#x}, {why}", ino.0)),
            }
            let locks = self.view.locks.held_on(ino);
            if locks.iter().any(|(session, _)| self.is_being_closed(*session)) {
                return Slice::Wait;
            }
            for (session, _) in locks.iter().filter(|_| all) {
                // Noted before, if this was waited for.
                found.of(*session, self.at_place(ino)).locks.clear();
            }
            for (session, lock) in locks {
                found.sessions.insert(session);
                if all {
                    found.of(session, self.at_place(ino)).locks.push(lock);
                }
            }
        }
        if all { Slice::More(InUse::Answers(SessionId(0))) } else { Slice::Done }
    }

    /// What is counted of inodes below and may not be heard, from that session on. Of one that nobody has open or locked any more it may not be
    /// known where it is. If it is elsewhere, what its client claims of it in this rank's next life says so.
    fn find_unheard(&self, part: Part, from: SessionId, found: &mut Found) -> Slice<InUse> {
        let mut looked = 0;
        for (id, session) in self.sessions.map.range(from..) {
            if looked >= self.looks() {
                return Slice::More(InUse::Answers(*id));
            }
            looked += 1 + session.results.len();
            let leaves = |ino| self.view.inode_below(ino, part) != Below::No;
            found.unheard.extend(done_by(*id, session, leaves));
        }
        let done = std::mem::take(&mut found.unheard);
        found.unheard = self.with_ended(done, |ino| self.view.inode_below(ino, part) == Below::Yes);
        Slice::Done
    }

    /// All who have something below are to be at the new owner's before anything is sealed.
    pub(super) fn ask_sessions(&mut self, after_ns: u64, out: &mut Outbox<Output>) -> Option<Phase> {
        let one = self.moves.current.as_mut()?;
        let (id, to) = (one.id?, one.to?);
        // One that has ended joins nobody any more, and what it has is closed before anything is sealed.
        let is_there = |session: &SessionId| self.sessions.map.contains_key(session);
        if !one.found.sessions.iter().all(is_there) && !stdx::mutant!("mds_seals_with_ended") {
            one.found.again();
            return Some(Phase::Note(InUse::FIRST));
        }
        one.found.sessions.retain(is_there);
        let sessions: Vec<SessionId> = one.found.sessions.difference(&one.found.joined).copied().collect();
        if sessions.is_empty() {
            let (part, of) = (one.part, one.unit.dir);
            return Some(self.seal_part(part, of));
        }
        let version = self.view.territory.version();
        for session in &sessions {
            self.send_now(*session, ServerMsg::Join { rank: to, version }, out);
        }
        self.ask_unawaited(Question::Sessions(id), to, Request::Sessions { sessions }, after_ns);
        Some(Phase::Join)
    }

    /// Whether they are.
    pub(super) fn sessions_joined(&mut self, out: &mut Outbox<Output>) -> Option<Phase> {
        match self.moves.heard.take()? {
            true => {
                let one = self.moves.current.as_mut()?;
                one.found.joined = one.found.sessions.clone();
                self.ask_sessions(0, out)
            }
            false => self.ask_sessions(JOIN_NS, out).filter(|next| *next != Phase::Join),
        }
    }

    /// The new owner is told what sessions have.
    pub(super) fn tell_holders(&mut self) -> Option<Phase> {
        let one = self.moves.current.as_mut()?;
        one.found.chunks = chunks(one.found.list.values());
        self.tell_chunk(0)
    }

    fn tell_chunk(&mut self, at: usize) -> Option<Phase> {
        let version = self.view.territory.version();
        let one = self.moves.current.as_ref()?;
        let (id, to, moved) = (one.id?, one.to?, one.moved());
        let list = one.found.chunks.get(at).cloned().unwrap_or_default();
        let list = if stdx::mutant!("mds_move_forgets_holders") { Vec::new() } else { list };
        let request = Request::Holders { id, moved, version, first: at == 0, list };
        self.ask_unawaited(Question::Holders(id, at as u32), to, request, 0);
        Some(Phase::Tell(at))
    }

    /// It has heard one list; the next one, if there is one.
    pub(super) fn chunk_told(&mut self, at: usize, out: &mut Outbox<Output>) -> Option<Told> {
        match self.moves.heard.take()? {
            true if at + 1 < self.moves.current.as_ref()?.found.chunks.len() => {
                self.tell_chunk(at + 1).map(Told::More)
            }
            true => Some(Told::All),
            false => {
                self.give_up_move("somebody who has something open there has not joined its new rank", out);
                None
            }
        }
    }

    /// Nobody has anything there any more.
    pub(super) fn hand_over_holders(&mut self, out: &mut Outbox<Output>) {
        let list =
            self.moves.current.as_mut().map(|one| std::mem::take(&mut one.found.list)).unwrap_or_default();
        let mut waiters: Vec<OpId> = Vec::new();
        for (session, ino) in list.into_keys() {
            self.view.files.close(ino, session, u32::MAX);
            self.view.files.forget_idle(ino);
            waiters.extend(self.view.locks.leave(ino));
            self.holder_gone(session, ino, out);
        }
        self.look_again(waiters);
    }

    /// Nobody waits any more for what was asked for a move.
    pub(super) fn end_asks_of_move(&mut self) {
        self.moves.heard = None;
        self.peers
            .keep_questions(|question| !matches!(question, Question::Sessions(_) | Question::Holders(..)));
    }
}

/// How far the lists are.
pub(super) enum Told {
    More(Phase),
    All,
}
