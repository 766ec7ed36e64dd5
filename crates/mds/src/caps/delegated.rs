//! Directories delegated to a session (Dx): its client makes and removes names there, and the rank hears of it later.
//!
//! Absent: files (`alone.rs`); what it hears (`performed.rs`); the book (`book.rs`).

use super::book::Need;
use super::needs::looking;
use crate::config::State;
use crate::early::{above, is_eager};
use crate::op::{Op, Plan, Stop};
use crate::ops::xattr::is_count;
use crate::rank::Rank;
use crate::recent::Resource;
use crate::view::Found;
use proto::caps::Bits;
use proto::message::{Delegated, Told};
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags};
use proto::{Errno, Ino, SessionId};
use proto::{every_reply, plain_replies};
use proto::{
    every_request, locking_requests, looking_requests, rank_requests, setting_requests, syncing_requests,
    writing_requests,
};

/// The directory in which a request changed a name, if it is one after which others of the kind often follow.
const fn worked_in(request: &Request) -> Option<Ino> {
    match request {
        Request::MkNod { parent, .. }
        | Request::MkDir { parent, .. }
        | Request::Symlink { parent, .. }
        | Request::Unlink { parent, .. }
        | Request::RmDir { parent, .. }
        | Request::Create { parent, .. } => Some(parent.ino),
        Request::Link { .. }
        | Request::Rename { .. }
        | looking_requests!()
        | setting_requests!()
        | writing_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Release { .. }
        | Request::Read { .. }
        | Request::Rewrite { .. } => None,
    }
}

impl Rank {
    /// What is delegated to others of the directories that an operation looks into, and of what it asks the attributes of, before
    /// it does.
    pub(crate) fn delegated_in_the_way(&self, op: &Op) -> Option<Vec<Need>> {
        if !self.view.book.is_delegated_to_others(op.place) || stdx::mutant!("mds_lookup_despite_dx") {
            return None;
        }
        let asked = match &op.request {
            // One that sets nothing has no transaction from which a need could follow, and shows the attributes.
            Request::GetAttr { node } | Request::SetAttr { node, .. } | Request::Parent { node } => {
                [Some(*node), None]
            }
            Request::GetXattr { node, name } if is_count(name.as_bytes()) => [Some(*node), None],
            every_request!() => above(&op.request),
        };
        let others = |ino: Ino| self.view.book.delegated_to(ino).is_some_and(|place| Some(place) != op.place);
        let list: Vec<Need> =
            asked.into_iter().flatten().filter(|dir| others(dir.ino)).map(|dir| looking(dir.ino)).collect();
        (!list.is_empty()).then_some(list)
    }

    /// A directory that is not empty for the rank, and delegated to somebody who may have emptied it.
    pub(crate) fn delegated_not_empty(&mut self, op: &Op, planned: &Found<Plan>) -> Option<Vec<Need>> {
        if !matches!(planned, Err(Stop::Fail(Errno::ENOTEMPTY)))
            || !self.view.book.is_delegated_to_others(op.place)
        {
            return None;
        }
        let (dir, name) = match &op.request {
            Request::RmDir { parent, name } => (parent.ino, name),
            Request::Rename { new_parent, new_name, .. } => (new_parent.ino, new_name),
            every_request!() => return None,
        };
        let hash = self.view.name_hash(name);
        let slot = self.view.cache.find_dir(self.view.cache.inner(dir, hash))?;
        let target = self.view.cache.find(slot, hash, name.as_bytes())?;
        let ino = self.view.cache.node(target).ino();
        let holder = self.view.book.delegated_to(ino).filter(|place| Some(*place) != op.place);
        holder.map(|_| vec![looking(ino)])
    }

    /// What is delegated to the session of an operation that was answered early, with its answer.
    pub(crate) fn delegate(&mut self, op: &Op, outcome: &Outcome) -> Vec<Delegated> {
        let mut list = Vec::new();
        let (Some(place), Ok(reply), Some(dir)) = (op.place, outcome, worked_in(&op.request)) else {
            return list;
        };
        let settled = |id: &SessionId| self.sessions.map.get(id).is_some_and(|s| s.settled && is_eager(s));
        if self.state != State::Active
            || self.view.config.delegate_pct == 0
            || self.view.is_full()
            || !settled(&op.session)
        {
            return list;
        }
        let made = match (&op.request, reply) {
            (Request::MkDir { .. }, Reply::Attr(attr)) => Some(attr.ino),
            (every_request!(), every_reply!()) => None,
        };
        for ino in [Some(dir), made].into_iter().flatten() {
            list.extend(self.delegate_one(op.session, place, ino));
        }
        list
    }

    fn delegate_one(&mut self, session: SessionId, place: u16, ino: Ino) -> Option<Delegated> {
        // What others made of it may still be taken back, and its attributes would tell.
        let shown = [Resource::Inode(ino), Resource::Header(ino)].into_iter();
        if self.recent.by_others(session, shown) > self.journal.durable {
            return None;
        }
        let view = &mut self.view;
        let most = view.config.limits.delegated_per_session;
        if ino.is_reserved() || view.book.delegated_to(ino).is_some() || view.book.directories(place) >= most
        {
            return None;
        }
        if !(view.territory.is_undisputed() || view.may_promise(ino)) {
            return None;
        }
        let node = view.cache.by_ino(ino)?;
        // Its client would work in what it makes there, and take it for this rank's.
        if view.may_place(node) && !stdx::mutant!("mds_delegates_where_slots_place") {
            return None;
        }
        let dir = view.cache.attr(node)?;
        // What is made there would take after them.
        if dir.has_xattrs || !view.book.may_delegate(place, ino, view.now.mono) {
            return None;
        }
        let empty = view.cache.dir(view.entries_of(node).ok()?).header.entries == 0;
        view.book.delegate(place, ino, None);
        Some(Delegated { dir, empty })
    }

    /// What the client has handed out with the result of something it performed.
    pub(crate) fn grant_told(&mut self, op: &Op, told: Told, reply: &Reply) {
        let Some(place) = op.place.filter(|_| told.ino != Ino::NONE) else { return };
        let Some(session) = self.sessions.map.get(&op.session) else { return };
        let (wants, settled) = (session.wants, session.settled);
        let (attr, reads) = match (reply, &op.request) {
            (Reply::Created { attr, .. }, Request::Create { flags, .. }) => {
                (attr, flags & open_flags::ACCMODE != open_flags::WRONLY)
            }
            (Reply::Attr(attr) | Reply::Created { attr, .. }, _) => (attr, false),
            (Reply::Entries { .. } | Reply::Written { .. } | plain_replies!(), _) => return,
        };
        let pages = if reads { Bits::FC } else { Bits::NONE };
        let now = self.view.now.mono;
        self.view.book.grant(place, attr.ino, wants.and(Bits::ATTRS.with(pages)), now);
        // What was presented once more the client does not take for its own.
        if matches!(op.request, Request::MkDir { .. }) && settled {
            self.view.book.delegate(place, attr.ino, None);
            // The client forgets one for it; this one will do.
            if self.view.book.directories(place) > self.view.config.limits.delegated_per_session {
                self.view.book.recall_one_delegated(place, attr.ino, now);
            }
        }
    }

    /// A number that was delegated is given out. A record that it may have in the data store is of a life that a crash took back.
    pub(crate) fn number_given(&mut self, id: SessionId, ino: Ino) {
        if let Some(session) = self.sessions.map.get_mut(&id) {
            session.used(ino);
        }
        if !self.presenting.is_empty() {
            self.presented_inos.insert(ino);
        }
        if ino < self.view.inos.former && !stdx::mutant!("mds_redo_end_clean") {
            self.view.cache.flag(ino, 0, crate::cache::node::END_CLEAN);
        }
    }
}
