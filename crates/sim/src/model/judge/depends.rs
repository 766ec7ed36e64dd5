//! What an answer shows, and whose undurable changes it depends on: a session may be told of its own, because it presents them
//! again after a crash, and of nobody else's.
//!
//! Absent: whether the answer is right (`answers.rs`); what is presented again (`promise.rs`).

use super::{Judge, State};
use crate::model::tree::{Node, Tree};
use proto::ids::{Position, SessionId};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Errno, Ino, Name, NodeRef};
use std::collections::BTreeSet;
use std::rc::Rc;
use stdx::Wall;

/// Something that changes, and that an answer can show.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// Which inode a name leads to, if to any.
    Name(Ino, Rc<[u8]>),
    /// That the inode is there.
    Life(Ino),
    /// Its attributes, bytes, xattrs; of a directory those that do not follow from its names.
    Inode(Ino),
    /// Of a directory: counts and times.
    Names(Ino),
    /// Where a directory is.
    Place(Ino),
}

/// A transaction that is not durable.
#[derive(Clone, Debug)]
pub(super) struct Undurable {
    pub(super) end: Position,
    pub(super) author: Option<SessionId>,
    /// Up to where others made what its request was told of: it comes to nothing else if the journal holds that much.
    pub(super) needs: Position,
    pub(super) facts: BTreeSet<Fact>,
}

impl Undurable {
    /// The inodes of which something changed.
    pub(super) fn inos(&self) -> impl Iterator<Item = Ino> {
        self.facts.iter().map(|fact| match fact {
            Fact::Name(ino, _) | Fact::Life(ino) | Fact::Inode(ino) | Fact::Names(ino) | Fact::Place(ino) => {
                *ino
            }
        })
    }
}

impl Judge {
    /// A transaction was made: `shown` is what the answer to its request shows, none for one that answers nobody.
    pub(super) fn note_undurable(
        &mut self,
        end: Position,
        author: Option<SessionId>,
        shown: &BTreeSet<Fact>,
        (before, after): (&Tree, &Tree),
    ) {
        let needs = author.map_or(end, |author| self.by_others(author, shown, end));
        let facts = touched(before, after);
        self.undurable.push_back(Undurable { end, author, needs, facts });
    }

    /// Up to where the journal must be durable before `session` may see these as they are at `upto`: what others changed, and
    /// what its own changes depend on.
    pub(super) fn by_others(&self, session: SessionId, shown: &BTreeSet<Fact>, upto: Position) -> Position {
        let all = self.undurable.iter().take_while(|change| change.end <= upto);
        let seen = all.filter(|change| !change.facts.is_disjoint(shown));
        let needs = seen.map(|change| if change.author == Some(session) { change.needs } else { change.end });
        needs.max().unwrap_or_default()
    }

    /// What a transaction needs that its author be told of it before it is durable.
    pub(super) fn needs_of(&self, end: Position) -> Position {
        self.undurable.iter().find(|change| change.end == end).map_or(Position(0), |change| change.needs)
    }

    /// What the transaction that ends there changed, if it is not durable.
    pub(super) fn facts_of(&self, end: Position) -> Option<&BTreeSet<Fact>> {
        self.undurable.iter().find(|change| change.end == end).map(|change| &change.facts)
    }

    /// Whether a session may be told of a state that is not durable.
    pub(super) fn may_show(
        &self,
        session: SessionId,
        state: &State,
        request: &Request,
        outcome: &Outcome,
    ) -> bool {
        self.eager.contains(&session)
            && self.by_others(session, &shown(&state.tree, request, outcome), state.end) <= self.durable
    }
}

pub(crate) fn touched(before: &Tree, after: &Tree) -> BTreeSet<Fact> {
    let mut facts = BTreeSet::new();
    let all: BTreeSet<Ino> = before.nodes.keys().chain(after.nodes.keys()).copied().collect();
    for ino in all {
        match (before.nodes.get(&ino), after.nodes.get(&ino)) {
            (Some(old), Some(new)) if Rc::ptr_eq(old, new) => {}
            (Some(old), Some(new)) => changed(old, new, &mut facts),
            _ => facts.extend([Fact::Life(ino), Fact::Inode(ino), Fact::Names(ino), Fact::Place(ino)]),
        }
    }
    facts
}

fn changed(old: &Node, new: &Node, facts: &mut BTreeSet<Fact>) {
    let ino = old.ino;
    if old.is_dir() && old.parent != new.parent {
        facts.insert(Fact::Place(ino));
    }
    let names = old.entries.keys().chain(new.entries.keys());
    let moved = names.filter(|name| old.entries.get(*name) != new.entries.get(*name));
    facts.extend(moved.map(|name| Fact::Name(ino, name.clone())));
    if !old.is_dir() {
        // A cut whose number a failed operation used up is nobody's to see, nor is when somebody has read it. It counts as a change
        // of the inode, which may be told before it is durable: a counter that a crash takes back is never used again.
        let seen = |node: &Node| Node { cuts: 0, change: 0, atime: Wall(0), ..node.clone() };
        if seen(old) != seen(new) {
            facts.insert(Fact::Inode(ino));
        }
        return;
    }
    // The time last set by hand is one of them: nothing shows it but the directory's times.
    let times = |node: &Node| (node.mtime, node.ctime, node.floor);
    if old.entries != new.entries || times(old) != times(new) {
        facts.insert(Fact::Names(ino));
    }
    let own = |node: &Node| (node.mode, node.uid, node.gid);
    if own(old) != own(new) || old.xattrs != new.xattrs {
        facts.insert(Fact::Inode(ino));
    }
}

/// What a request and its answer show of a tree.
pub(crate) fn shown(tree: &Tree, request: &Request, outcome: &Outcome) -> BTreeSet<Fact> {
    let mut shown = Shown { tree, empties: true, facts: BTreeSet::new() };
    shown.request(request);
    match outcome {
        Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => {
            shown.attributes(attr.ino)
        }
        Ok(Reply::Entries { entries, .. }) => entries.iter().for_each(|entry| shown.attributes(entry.ino)),
        _ => {}
    }
    shown.facts
}

/// What a request by itself asks for.
pub(crate) fn asked_for(tree: &Tree, request: &Request, outcome: &Outcome) -> BTreeSet<Fact> {
    // What fails for another reason does not tell whether a directory that would go is empty.
    let empties = matches!(outcome, Ok(_) | Err(Errno::ENOTEMPTY));
    // Whether an attribute is there has nothing to do with what is performed on a file.
    if matches!(request, Request::SetXattr { .. } | Request::RemoveXattr { .. }) && outcome.is_err() {
        return BTreeSet::new();
    }
    let mut shown = Shown { tree, empties, facts: BTreeSet::new() };
    match (request, outcome) {
        // That the name is taken says nothing of the file that was to have it.
        (Request::Link { parent, name, .. }, Err(Errno::EEXIST)) => shown.name(*parent, name),
        _ => shown.request(request),
    }
    shown.facts
}

struct Shown<'a> {
    tree: &'a Tree,
    empties: bool,
    facts: BTreeSet<Fact>,
}

impl Shown<'_> {
    fn attributes(&mut self, ino: Ino) {
        self.facts.extend([Fact::Inode(ino), Fact::Names(ino)]);
    }

    fn name(&mut self, dir: NodeRef, name: &Name) {
        self.facts.extend([Fact::Name(dir.ino, name.as_bytes().into()), Fact::Life(dir.ino)]);
    }

    /// A name that is made; what it leads to takes after its directory.
    fn made(&mut self, dir: NodeRef, name: &Name) {
        self.name(dir, name);
        self.facts.insert(Fact::Inode(dir.ino));
    }

    /// A name that goes; a directory must be empty.
    fn gone(&mut self, dir: NodeRef, name: &Name) {
        self.name(dir, name);
        let child = self.tree.node(dir.ino).and_then(|dir| dir.entries.get(name.as_bytes()));
        self.facts.extend(child.map(|ino| Fact::Life(*ino)));
        self.facts.extend(child.filter(|_| self.empties).map(|ino| Fact::Names(*ino)));
    }

    /// Where a directory is, up to the root: what is moved below it must not be above it.
    fn place(&mut self, dir: Ino) {
        let mut at = dir;
        for _ in 0..self.tree.nodes.len() {
            self.facts.extend([Fact::Place(at), Fact::Life(at)]);
            match self.tree.node(at) {
                Some(node) if at != Ino::ROOT => at = node.parent,
                _ => return,
            }
        }
    }

    fn request(&mut self, request: &Request) {
        match request {
            Request::Lookup { parent, name } | Request::Unlink { parent, name } => self.name(*parent, name),
            Request::MkNod { parent, name, .. }
            | Request::MkDir { parent, name, .. }
            | Request::Symlink { parent, name, .. }
            | Request::Create { parent, name, .. } => self.made(*parent, name),
            Request::Link { parent, name, node } => {
                self.name(*parent, name);
                self.attributes(node.ino);
            }
            Request::RmDir { parent, name } => self.gone(*parent, name),
            Request::Rename { parent, name, new_parent, new_name, flags } => {
                self.name(*parent, name);
                self.name(*new_parent, new_name);
                let moved = self.tree.node(parent.ino).and_then(|dir| dir.entries.get(name.as_bytes()));
                if moved.and_then(|ino| self.tree.node(*ino)).is_some_and(Node::is_dir) {
                    if parent.ino != new_parent.ino {
                        self.place(new_parent.ino);
                    }
                    if *flags == 0 && (parent.ino, name) != (new_parent.ino, new_name) {
                        self.gone(*new_parent, new_name);
                    }
                }
            }
            Request::ReadDir { dir: node, .. }
            | Request::GetAttr { node }
            | Request::SetAttr { node, .. } => {
                self.attributes(node.ino);
            }
            Request::CopyRange { source, target, .. } => {
                self.facts.extend([Fact::Inode(source.ino), Fact::Inode(target.ino)]);
            }
            Request::TmpFile { parent: node, .. }
            | Request::ReadLink { node }
            | Request::Open { node, .. }
            | Request::Read { node, .. }
            | Request::Write { node, .. }
            | Request::Fallocate { node, .. }
            | Request::Seek { node, .. }
            | Request::GetXattr { node, .. }
            | Request::ListXattr { node }
            | Request::SetXattr { node, .. }
            | Request::RemoveXattr { node, .. }
            | Request::Access { node, .. } => drop(self.facts.insert(Fact::Inode(node.ino))),
            Request::Parent { node } => drop(self.facts.insert(Fact::Place(node.ino))),
            // Locks, opens, space and durability are no facts of the journal.
            Request::Release { .. }
            | Request::Fsync { .. }
            | Request::Rewrite { .. }
            | Request::SyncFs
            | Request::StatFs
            | Request::TestLock { .. }
            | Request::SetLock { .. }
            | Request::ReleaseLocks { .. }
            | proto::rank_requests!() => {}
        }
    }
}
