//! Answers that leave before they are durable: to a session that keeps what it asked for and presents it again after a crash, if
//! they show nothing that a crash could take back behind its back. docs/PROTOCOL.md, "Early answers".
//!
//! Absent: what is presented again (`performed.rs`); who changed what (`recent.rs`); the mount in this process, which dies with
//! the rank.

use crate::config::State;
use crate::op::Op;
use crate::ops::create::hands_down;
use crate::ops::pin::is_pin;
use crate::ops::xattr::is_count;
use crate::output::Output;
use crate::rank::Rank;
use crate::recent::{Resource, Touched};
use crate::session::Session;
use crate::view::View;
use proto::caps::{Bits, Grants};
use proto::every_request;
use proto::message::ServerMsg;
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, FileKind, Ino, Name, NodeRef, Position, SessionId};
use proto::{
    locking_requests, looking_requests, naming_requests, rank_requests, setting_requests, syncing_requests,
    writing_requests,
};
use stdx::time::{MS, SECOND};
use stdx::{Now, Outbox, Wall};

/// What `ino_block` is divided by for one session's numbers.
const DELEGATED_PART: u64 = 8;
/// Directories taken back and sessions noted, together, in one look at who has gone quiet; and when it goes on after that many.
const QUIET_SLICE: usize = 1_024;
const QUIET_PAUSE_NS: u64 = 10 * MS;
/// After so long without a request a session has nothing to present any more.
const QUIET_NS: u64 = 5 * SECOND;

/// How the transaction of the operation at hand stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed {
    /// Its answer may leave before it is durable.
    pub early: bool,
    pub position: Position,
    pub wall: Wall,
}

/// Whether a session is answered early at all: it may act for anyone, so that what it presents again needs no check of
/// permissions, and it wants to; and all is inside that it may ask for: what it presents again is not looked at anew.
pub(crate) const fn is_eager(session: &Session) -> bool {
    let unlimited = session.limit.0 == Ino::NONE.0;
    session.wants.has(Bits::DX) && !session.embedded && session.check.is_none() && unlimited
}

impl Rank {
    /// Delegates numbers to an eager session that has few left, with the transaction at hand. That a session has any says in the
    /// journal, too, that it may have been answered early: after a crash the rank waits for what it presents. Returns whether
    /// it did.
    pub(crate) fn delegate_inos(&mut self, id: SessionId) -> bool {
        let share = self.view.config.limits.ino_block / DELEGATED_PART;
        let count = (share * self.view.config.delegate_pct / 100).max(1);
        let Some(session) = self.sessions.map.get(&id).filter(|session| is_eager(session)) else {
            return false;
        };
        let left: u64 = session.delegated.iter().map(|range| range.end - range.next).sum();
        let first = self.view.inos.next + self.view.txn.inos;
        if session.quiet {
            Mutation::SessionFlags { id, flags: session.flags(false) }.encode(&mut self.view.txn.muts);
            return true;
        }
        let few = session.delegated.is_empty() || (self.view.config.delegate_pct > 0 && left <= count / 2);
        if !few || first + count > self.view.inos.usable {
            return false;
        }
        self.view.txn.inos += count;
        let first = Ino::of_rank(self.view.config.rank, first);
        Mutation::DelegateInos { id, first, count: count as u32 }.encode(&mut self.view.txn.muts);
        true
    }

    /// The numbers delegated with the transaction that was made: the client hears of them when they are durably its own.
    pub(crate) fn tell_delegated_inos(&mut self, id: SessionId) {
        let end = self.journal.end;
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        let Some(range) = session.delegated.last().copied() else { return };
        if std::mem::take(&mut session.was_quiet) {
            session.early_from = Some(end);
            return;
        }
        session.early_from.get_or_insert(end);
        if let Some(conn) = session.conn {
            let message = self.numbers(range);
            self.hold(crate::hold::Waiting::Message { conn, message });
        }
    }

    /// To a session that comes back: what it has not used, as far as the rank knows.
    pub(crate) fn numbers_again(&mut self, id: SessionId) {
        let Some(session) = self.sessions.map.get(&id).filter(|session| is_eager(session)) else { return };
        let Some(conn) = session.conn else { return };
        for range in session.delegated.clone() {
            let message = self.numbers(range);
            self.hold(crate::hold::Waiting::Message { conn, message });
        }
    }

    fn numbers(&self, range: crate::session::InoRange) -> ServerMsg {
        ServerMsg::Numbers {
            first: Ino(range.next),
            count: (range.end - range.next) as u32,
            generation: self.view.config.fs_epoch,
            seed: self.view.config.hash_seed,
        }
    }

    /// Sessions that have asked for nothing for a while give back the directories delegated to them; then the journal says that a
    /// rank that lives again need not wait for what they present, for there is nothing.
    pub(crate) fn quiet(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.sessions.quiet_due.is_none_or(|due| due > now.mono)
            || self.state != State::Active
            || self.frozen
        {
            return;
        }
        let idle = |(id, session): (&SessionId, &Session)| {
            let idle = now.mono.since(session.last_request) >= QUIET_NS;
            let waits = session.is_in_line() || self.presenting.contains(id);
            (idle && !waits && session.may_present() && session.conn.is_some())
                .then_some((*id, session.place))
        };
        let list: Vec<_> = self.sessions.map.iter().filter_map(idle).collect();
        let mut left = QUIET_SLICE;
        for (id, place) in list {
            if left == 0 {
                self.sessions.quiet_due = Some(now.mono.after(QUIET_PAUSE_NS));
                return;
            }
            if let Some(place) = place.filter(|place| self.view.book.delegated(*place) > 0) {
                left -= self.view.book.recall_delegated(place, now.mono, left);
                continue;
            }
            let session = &self.sessions.map[&id];
            if session.told_early <= self.journal.durable && session.performing.is_none() {
                Mutation::SessionFlags { id, flags: session.flags(true) }.encode(&mut self.view.txn.muts);
                self.commit(now, None, out);
                left -= 1;
            }
        }
        let waits = self.sessions.map.values().any(|session| session.may_present() && session.conn.is_some());
        self.sessions.quiet_due = waits.then(|| now.mono.after(QUIET_NS / 4));
    }

    /// Whether notes are taken of who changes what: only where somebody is answered early and is not alone.
    pub(crate) fn notes(&self) -> Option<Touched> {
        (self.sessions.many && self.sessions.eager > 0).then(Touched::default)
    }

    /// From here on notes are taken.
    pub(crate) fn begin_notes(&mut self, before: bool) {
        if !before && self.notes().is_some() {
            self.recent.begin(self.journal.end);
        }
    }

    /// The transaction of `op` is in the journal and applied: may its answer leave before it is durable? What it changed is
    /// noted: as nobody's if it may not, because then its author presents nothing again that would come to the same.
    pub(crate) fn committed_by(&mut self, op: &Op, wall: Wall) {
        let touched = self.view.touched.take();
        let position = self.journal.end;
        let ready = |session: &Session| {
            let delegated = session.early_from.is_some_and(|from| from <= self.journal.durable);
            is_eager(session) && (delegated || stdx::mutant!("mds_early_before_delegated"))
        };
        let is_dir = |ino: proto::Ino| {
            self.view.cache.by_ino(ino).is_some_and(|slot| self.view.cache.node(slot).is_dir())
        };
        // How much of a copy is made depends on data that a crash may take back; and the counts of a directory on the order in
        // which what is presented again is carried out.
        let partial = match &op.request {
            Request::CopyRange { .. } => true,
            Request::SetAttr { node, .. } => is_dir(node.ino),
            // Whether a directory may be handed over depends on what is open there, and on other moves.
            Request::SetXattr { name, .. } | Request::RemoveXattr { name, .. } => {
                is_pin(&self.view, name.as_bytes()) && !stdx::mutant!("mds_pins_early")
            }
            // What a directory hands down its rank may have changed when this is presented; that it hands nothing down is gone by then. Its
            // inode may be another rank's by then, too, if its name is reserved for a transaction: that one may be decided, and the
            // decision comes to the next life of this rank before anybody presents anything.
            Request::MkNod { parent, .. }
            | Request::MkDir { parent, .. }
            | Request::Symlink { parent, .. }
            | Request::Create { parent, .. }
            | Request::TmpFile { parent, .. } => {
                let goes = self.view.transactions.is_reserved(parent.ino)
                    && !stdx::mutant!("mds_early_below_reserved");
                let stays = !goes && self.view.is_at_home(parent.ino);
                let slot = self.view.cache.by_ino(parent.ino).filter(|_| !stays);
                slot.is_some_and(|slot| hands_down(&self.view, slot))
                    && !stdx::mutant!("mds_early_by_replica")
            }
            every_request!() => false,
        };
        let mut early =
            (self.sessions.map.get(&op.session).is_some_and(ready) && !partial) || op.told.is_some();
        // Whether it comes to the same once more, other ranks have a say in.
        early &= !self.deciding;
        if let Some(Touched { resources, headers }) = touched {
            let source = match &op.request {
                Request::CopyRange { source: node, .. } | Request::TmpFile { parent: node, .. } => {
                    Some(*node)
                }
                every_request!() => None,
            };
            let read = above(&op.request).into_iter().chain([source]).flatten();
            let read = resources.iter().copied().chain(read.map(|node| Resource::Inode(node.ino)));
            // That a directory does not come below itself depends on where all those above it are.
            let moved = |thing: &Resource| matches!(thing, Resource::Inode(ino) if is_dir(*ino));
            let others = match &op.request {
                Request::Rename { parent, new_parent, .. }
                    if parent.ino != new_parent.ino && resources.iter().any(moved) =>
                {
                    self.recent.anything_by_others(op.session)
                }
                every_request!() => self.recent.by_others(op.session, read),
            };
            let free = others <= self.journal.durable;
            early &= free || stdx::mutant!("mds_early_despite_others");
            let author = if early { op.session } else { SessionId(0) };
            let changed = resources.into_iter().chain(headers);
            self.recent.changed(author, changed, position, self.journal.durable);
        }
        self.committed = Some(Committed { early, position, wall });
    }

    /// Whether an answer without a transaction may leave although the journal is not durable.
    pub(crate) fn may_show(&self, op: &Op, outcome: &Outcome) -> bool {
        let Some(session) = self.sessions.map.get(&op.session) else { return false };
        let syncs = matches!(op.request, Request::Fsync { .. } | Request::SyncFs);
        if syncs || !is_eager(session) || session.early_from.is_none_or(|from| from > self.journal.durable) {
            return false;
        }
        let by_others = match shown(&self.view, &op.request, outcome) {
            Some(resources) => self.recent.by_others(op.session, resources.into_iter()),
            None => self.recent.anything_by_others(op.session),
        };
        by_others <= self.journal.durable
    }

    /// Answers before durability, or what is durable by chance: either way the client hears what is delegated to it.
    pub(crate) fn send_early(
        &mut self,
        op: &Op,
        Committed { position, wall, .. }: Committed,
        (outcome, grants): (Outcome, Grants),
        out: &mut Outbox<Output>,
    ) {
        let delegated = self.delegate(op, &outcome);
        self.told_early(op.session, position);
        let tid = op.tid;
        let message = ServerMsg::Early { tid, position, wall, outcome, grants, delegated };
        self.leaves(op.asked(), message, out);
    }

    pub(crate) fn told_early(&mut self, id: SessionId, position: Position) {
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        session.told_early = session.told_early.max(position);
        if position <= self.journal.durable {
            // Carried out before: on this connection nobody has said how far things are durable.
            self.told_durable = Position(0);
        } else if self.sessions.hearing.is_empty() {
            // Nobody waits to hear of what is durable by now.
            self.told_durable = self.told_durable.max(self.journal.durable);
        }
        self.sessions.hearing.insert(id);
    }

    /// What was answered early has become durable.
    #[inline(always)]
    pub(crate) fn tell_durable(&mut self, out: &mut Outbox<Output>) {
        if !self.sessions.hearing.is_empty() && self.told_durable < self.journal.durable {
            self.tell_hearing(out);
        }
    }

    fn tell_hearing(&mut self, out: &mut Outbox<Output>) {
        let position = self.journal.durable;
        self.told_durable = position;
        for id in std::mem::take(&mut self.sessions.hearing) {
            self.send_now(id, ServerMsg::Durable { position }, out);
            if self.sessions.map.get(&id).is_some_and(|session| session.told_early > position) {
                self.sessions.hearing.insert(id);
            }
        }
    }
}

/// The directories whose names a request is about.
pub(crate) const fn above(request: &Request) -> [Option<NodeRef>; 2] {
    match request {
        Request::Lookup { parent, .. }
        | Request::MkNod { parent, .. }
        | Request::MkDir { parent, .. }
        | Request::Symlink { parent, .. }
        | Request::Link { parent, .. }
        | Request::Unlink { parent, .. }
        | Request::RmDir { parent, .. }
        | Request::Create { parent, .. } => [Some(*parent), None],
        Request::Rename { parent, new_parent, .. } => [Some(*parent), Some(*new_parent)],
        Request::ReadDir { dir, .. } => [Some(*dir), None],
        looking_requests!()
        | setting_requests!()
        | writing_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Release { .. }
        | Request::Read { .. }
        | Request::Rewrite { .. } => [None, None],
    }
}

/// What an answer without a transaction shows; none: it could be anything.
fn shown(view: &View, request: &Request, outcome: &Outcome) -> Option<Vec<Resource>> {
    let mut resources = Vec::new();
    let mut name = |parent: &NodeRef, name: &Name| {
        resources.extend([Resource::Inode(parent.ino), Resource::Name(parent.ino, view.name_hash(name))]);
    };
    match request {
        Request::Lookup { parent, name: sought }
        | Request::MkNod { parent, name: sought, .. }
        | Request::MkDir { parent, name: sought, .. }
        | Request::Symlink { parent, name: sought, .. }
        | Request::Create { parent, name: sought, .. } => name(parent, sought),
        // Of what does not succeed all sorts of things are the reason.
        Request::Unlink { parent, name: sought } if outcome.is_ok() => name(parent, sought),
        Request::GetAttr { node }
        | Request::SetAttr { node, .. }
        | Request::ReadLink { node }
        | Request::Open { node, .. }
        | Request::Read { node, .. }
        | Request::Write { node, .. }
        | Request::GetXattr { node, .. }
        | Request::ListXattr { node }
        | Request::Access { node, .. } => resources.push(Resource::Inode(node.ino)),
        Request::Release { node, .. } => resources.push(Resource::Held(node.ino)),
        naming_requests!()
        | looking_requests!()
        | setting_requests!()
        | writing_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::TmpFile { .. }
        | Request::Rewrite { .. } => return None,
    }
    if let Request::GetXattr { node, name } = request
        && is_count(name.as_bytes())
    {
        resources.push(Resource::Header(node.ino));
    }
    match outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => {
            attributes(attr, &mut resources);
        }
        Ok(Reply::Ok | Reply::Target(_) | Reply::Data(_) | Reply::Xattr(_) | Reply::XattrNames(_))
        | Err(_) => {}
        Ok(_) => return None,
    }
    Some(resources)
}

fn attributes(attr: &Attr, resources: &mut Vec<Resource>) {
    resources.push(Resource::Inode(attr.ino));
    if attr.kind() == FileKind::Directory {
        resources.push(Resource::Header(attr.ino));
    }
}
