//! Files delegated to a session (Fx and Fb): its client writes them by itself, and the rank hears of it later.
//!
//! A file is delegated, with an answer that shows it, to a session that alone has it open, one of the opens for writing. It ends
//! when it is recalled, when that session closes the file or changes its name, and with what ends Dx.
//!
//! Absent: what the rank hears (`performed.rs`); the book (`book.rs`); who may look at a file and change it (`needs.rs`).

use super::book::Need;
use super::needs;
use crate::cache::dir::counts_by_one;
use crate::cache::node;
use crate::config::State;
use crate::early::is_eager;
use crate::op::{Op, Plan};
use crate::rank::Rank;
use crate::recent::Resource;
use crate::view::Found;
use proto::caps::Bits;
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags};
use proto::{Attr, FileKind, Ino, Name, NodeRef, SessionId};
use proto::{every_reply, every_request, plain_replies};
use proto::{
    locking_requests, looking_requests, naming_requests, rank_requests, setting_requests, syncing_requests,
    writing_requests,
};

/// The file that a request shows because its client has it open for writing.
fn writes<'a>(request: &Request, outcome: &'a Outcome) -> Option<&'a Attr> {
    match (request, outcome) {
        (
            Request::Open { flags, .. } | Request::Create { flags, .. },
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }),
        ) if open_flags::writes(*flags) => Some(attr),
        (Request::Write { .. }, Ok(Reply::Written { attr, .. })) => Some(attr),
        (every_request!(), Ok(every_reply!()) | Err(_)) => None,
    }
}

/// The file that a request looks into, before it is planned: what comes of it, an error too, depends on it. Attributes are asked
/// for as those of directories are (`delegated.rs`).
const fn looks_into(request: &Request) -> Option<NodeRef> {
    match request {
        Request::Open { node, .. } | Request::Read { node, .. } | Request::Seek { node, .. } => Some(*node),
        Request::CopyRange { source, .. } => Some(*source),
        naming_requests!()
        | looking_requests!()
        | setting_requests!()
        | writing_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::TmpFile { .. }
        | Request::Release { .. }
        | Request::Rewrite { .. } => None,
    }
}

impl Rank {
    /// What is delegated to others of the files that an operation looks into.
    pub(crate) fn alone_in_the_way(&self, op: &Op) -> Option<Vec<Need>> {
        if !self.view.book.is_delegated_to_others(op.place) || stdx::mutant!("mds_read_despite_fx") {
            return None;
        }
        let node = looks_into(&op.request)?;
        let need = match &op.request {
            // All at once: who opens it for writing needs the pages of others as well.
            Request::Open { flags, .. } if open_flags::writes(*flags) => needs::opening(node.ino),
            every_request!() => needs::looking(node.ino),
        };
        self.is_anothers(op, node.ino).then(|| vec![need])
    }

    /// The same of what a planned answer shows besides.
    pub(crate) fn alone_shown(&self, op: &Op, planned: &Found<Plan>) -> Option<Vec<Need>> {
        if !self.view.book.is_delegated_to_others(op.place) || stdx::mutant!("mds_lookup_despite_fx") {
            return None;
        }
        let Ok(Plan::Answer(Ok(reply), _)) = planned else { return None };
        let list: Vec<Need> = match reply {
            Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. } => {
                self.is_anothers(op, attr.ino).then(|| needs::looking(attr.ino)).into_iter().collect()
            }
            Reply::Entries { entries, .. } => {
                let shown = entries.iter().filter_map(|entry| Some(entry.attr.as_ref()?.ino));
                shown.filter(|ino| self.is_anothers(op, *ino)).map(needs::looking).collect()
            }
            plain_replies!() => return None,
        };
        (!list.is_empty()).then_some(list)
    }

    fn is_anothers(&self, op: &Op, ino: Ino) -> bool {
        self.view.book.delegated_to(ino).is_some_and(|place| Some(place) != op.place)
    }

    /// Whether an answer delegates the file that it shows.
    pub(crate) fn grant_alone(&mut self, op: &Op, place: u16, outcome: &Outcome) -> Bits {
        let Some(attr) = writes(&op.request, outcome) else { return Bits::NONE };
        let (ino, dir, now) = (attr.ino, attr.parent, self.view.now.mono);
        // Where its name is decides who may make it go without asking; and a write may take a capability away.
        let plain = FileKind::of_mode(attr.mode) == Some(FileKind::Regular)
            && attr.nlink == 1
            && !attr.has_xattrs
            && !dir.is_reserved();
        let stays = self.view.territory.is_undisputed() || self.view.may_promise(ino);
        let book = &self.view.book;
        let room = book.delegated_to(ino) == Some(place)
            || book.files(place) < self.view.config.limits.delegated_per_session;
        if !plain
            || !stays
            || !room
            || !self.may_perform(op.session)
            || !self.is_quiet_but_for(op, ino)
            || self.recent.by_others(op.session, std::iter::once(Resource::Inode(ino))) > self.journal.durable
            || !self.view.book.may_delegate_file(place, ino, dir, now)
        {
            return Bits::NONE;
        }
        self.view.book.delegate(place, ino, Some(dir));
        Bits::ALONE
    }

    /// Whether what a session performs from now on would be waited for after a crash, and there is room for it.
    fn may_perform(&self, id: SessionId) -> bool {
        let Some(session) = self.sessions.map.get(&id) else { return false };
        session.wants.has(Bits::ALONE)
            && is_eager(session)
            && session.may_present()
            && session.early_from.is_some_and(|from| from <= self.journal.durable)
            && self.state == State::Active
            && self.presenting.is_empty()
            && self.view.config.delegate_pct > 0
            && !self.view.is_full()
    }

    /// Whether nobody else has the file open, one of the session's own opens is for writing, and nothing is under way that the
    /// answer does not show. How the rank counts the first change of a file in this life the client does not know.
    fn is_quiet_but_for(&self, op: &Op, ino: Ino) -> bool {
        let Some(file) = self.view.files.get(ino) else { return false };
        let mine = u32::from(matches!(op.request, Request::Write { .. }));
        let alone = file.opens.iter().all(|open| open.session == op.session);
        let counted = self.view.cache.by_ino(ino).is_some_and(|slot| {
            let found = self.view.cache.node(slot);
            found.has(node::BUMPED) && counts_by_one(found.core.change, self.view.config.incarnation)
        });
        alone
            && file.opens.iter().any(|open| open.session == op.session && open.writes)
            && file.shared + u32::from(file.exclusive) <= mine
            && file.users + file.kept == 0
            && counted
    }

    /// A session changes names of files that are delegated to it: from here on its client asks. Where the files then are is
    /// the rank's to know, because of whom that directory is delegated to.
    pub(crate) fn own_files_move(&mut self, op: &Op) {
        let Some(place) = op.place.filter(|place| self.view.book.files(*place) > 0) else { return };
        if let Request::Link { node, .. } = &op.request {
            return self.view.book.gives_up(place, node.ino, Some(Ino::LINKS));
        }
        let to = match &op.request {
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                [Some((parent.ino, name, new_parent.ino)), Some((new_parent.ino, new_name, parent.ino))]
            }
            Request::Unlink { parent, name } => [Some((parent.ino, name, parent.ino)), None],
            every_request!() => return,
        };
        for (dir, name, to) in to.into_iter().flatten() {
            if let Some(ino) = self.file_at(dir, name) {
                self.view.book.gives_up(place, ino, Some(to));
            }
        }
    }

    fn file_at(&mut self, dir: Ino, name: &Name) -> Option<Ino> {
        let hash = self.view.name_hash(name);
        let entries = self.view.cache.find_dir(self.view.cache.inner(dir, hash))?;
        let found = self.view.cache.find(entries, hash, name.as_bytes())?;
        Some(self.view.cache.node(found).ino())
    }

    /// A session has closed a file for the last time.
    pub(crate) fn closed_alone(&mut self, op: &Op, ino: Ino) {
        let open = |file: &crate::files::FileState| file.opens.iter().any(|open| open.session == op.session);
        if let Some(place) = op.place
            && !self.view.files.get(ino).is_some_and(open)
        {
            self.view.book.gives_up(place, ino, None);
        }
    }
}
