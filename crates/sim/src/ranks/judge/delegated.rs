//! Directories delegated by ranks to sessions, and inode numbers delegated to them: no two hold one, whichever rank it is of, and nobody
//! performs where it may not.
//!
//! Absent: what becomes of what was performed there (`promise.rs`).

use super::{Asked, Judge, Key};
use crate::model::judge::{Fact, Verdict, made, parents, rank_attr};
use crate::model::tree::Tree;
use proto::ids::{Position, RankId, SessionId};
use proto::message::{Delegated, Told};
use proto::reply::Reply;
use proto::request::Request;
use proto::{Ino, Name, NodeRef};
use std::collections::{BTreeMap, BTreeSet};

/// A session at a rank.
type Stream = (RankId, SessionId);

/// Inode numbers of a session.
#[derive(Clone, Copy, Debug)]
struct InoRange {
    of: Stream,
    first: Ino,
    count: u32,
    end: Position,
}

impl InoRange {
    fn has(&self, ino: Ino) -> bool {
        ino >= self.first && ino.0 - self.first.0 < u64::from(self.count)
    }
}

/// The book of both.
#[derive(Default)]
pub(super) struct Trust {
    /// Who holds a directory, as its rank must know.
    holders: BTreeMap<Ino, Stream>,
    /// What clients believe that they hold.
    believed: BTreeSet<(Stream, Ino)>,
    ranges: Vec<InoRange>,
    /// Who made an inode, in lost histories too.
    makers: BTreeMap<Ino, Key>,
}

impl Judge {
    /// An early answer delegates a directory.
    pub(in crate::ranks) fn delegates(&mut self, key: Key, delegated: &Delegated) -> Verdict {
        let (dir, of) = (delegated.dir.ino, (key.0, key.1));
        if let Some(holder) = self.trust.holders.insert(dir, of).filter(|holder| *holder != of) {
            return Err(format!("delegates directory {} to {of:?} while {holder:?} holds it", dir.0));
        }
        let at = self.position_of(key);
        let step = self.line.iter().position(|step| step.rank == key.0 && Some(step.end) == at);
        let (tree, number) = match step {
            Some(at) => (&self.line[at].tree, self.first + 1 + at as u64),
            None => (self.tree(), self.last()),
        };
        let Some(node) = tree.node(dir).filter(|node| node.is_dir()) else {
            return Err(format!("delegates {}, which is no directory", dir.0));
        };
        if self.is_of_several(dir) {
            return Err(format!("delegates directory {}, of which several ranks tell", dir.0));
        }
        rank_attr(&tree.attr(node), &delegated.dir, self.wall)
            .map_err(|error| format!("delegates a directory: {error}"))?;
        if delegated.empty && !node.entries.is_empty() {
            return Err(format!("delegates directory {} as empty", dir.0));
        }
        let shown = BTreeSet::from([Fact::Inode(dir), Fact::Names(dir)]);
        let needs = self.by_others(key.0, key.1, &shown, number);
        if needs > self.durable_to(key.0) {
            return Err(format!("tells of directory {} before {} is durable", dir.0, needs.0));
        }
        Ok(())
    }

    /// The client has heard that it may work in a directory.
    pub(in crate::ranks) fn believes(&mut self, rank: RankId, session: SessionId, dir: Ino) {
        self.trust.believed.insert(((rank, session), dir));
    }

    /// The client gives it back.
    pub(in crate::ranks) fn gives_back(&mut self, rank: RankId, session: SessionId, dir: Ino) {
        self.trust.believed.remove(&((rank, session), dir));
    }

    /// The client has lost its connection to a rank, or to all, and with it everything that was delegated to it there.
    pub(in crate::ranks) fn believes_nothing(&mut self, rank: Option<RankId>, session: SessionId) {
        self.trust
            .believed
            .retain(|((of, owner), _)| *owner != session || rank.is_some_and(|rank| rank != *of));
    }

    /// The rank has a directory back.
    pub(in crate::ranks) fn has_back(&mut self, rank: RankId, session: SessionId, dir: Ino) {
        if self.trust.holders.get(&dir) == Some(&(rank, session)) {
            self.trust.holders.remove(&dir);
        }
    }

    /// The rank has everything back.
    pub(in crate::ranks) fn has_all_back(&mut self, rank: RankId, session: SessionId) {
        self.trust.holders.retain(|_, holder| *holder != (rank, session));
    }

    /// A rank died: what it had delegated is nobody's, and numbers that its journal does not tell of are its own again.
    pub(super) fn recovered_trust(&mut self, rank: RankId, end: Position) {
        self.trust.holders.retain(|_, holder| holder.0 != rank);
        self.trust.ranges.retain(|range| range.of.0 != rank || range.end <= end);
    }

    /// What a rank seals is nobody's to work in. Of a directory that its holder removed nobody says that it has it back.
    pub(super) fn held_below(&self, mut goes: impl FnMut(Ino) -> bool) -> Option<(Ino, Stream)> {
        let is_there = |dir: Ino| self.tree().node(dir).is_some();
        let mut holders = self.trust.holders.iter();
        holders.find(|(dir, _)| is_there(**dir) && goes(**dir)).map(|(dir, holder)| (*dir, *holder))
    }

    /// Whether a client may perform a request by itself.
    pub(super) fn may_perform(&mut self, key: Key, asked: &Asked, told: &Told, reply: &Reply) -> Verdict {
        let (of, request) = ((key.0, key.1), &asked.request);
        for dir in parents(request) {
            if !self.trust.believed.contains(&(of, dir)) {
                return Err(format!("performs in directory {}, which is not delegated to it", dir.0));
            }
        }
        let ino = made(request, reply);
        if ino != told.ino {
            return Err(format!("performs with number {} and says {}", ino.0, told.ino.0));
        }
        if ino == Ino::NONE {
            return Ok(());
        }
        if !self.trust.ranges.iter().any(|range| range.of == of && range.has(ino)) {
            return Err(format!("performs with number {}, which is not its own", ino.0));
        }
        if matches!(request, Request::MkDir { .. }) {
            self.trust.believed.insert((of, ino));
        }
        self.is_first(ino, key)
    }

    /// A directory that a client moves by itself is its own as well.
    pub(super) fn may_move(&self, key: Key, asked: &Asked, tree: &Tree) -> Verdict {
        let Request::Rename { parent, name, new_parent, new_name, .. } = &asked.request else {
            return Ok(());
        };
        let behind = |dir: &NodeRef, name: &Name| tree.node(dir.ino)?.entries.get(name.as_bytes()).copied();
        let moved = behind(parent, name).into_iter().chain(behind(new_parent, new_name));
        let mut dirs = moved.filter(|ino| tree.node(*ino).is_some_and(|node| node.is_dir()));
        match dirs.find(|dir| !self.trust.believed.contains(&((key.0, key.1), *dir))) {
            Some(dir) => Err(format!("moves directory {}, which is not delegated to it", dir.0)),
            None => Ok(()),
        }
    }

    /// An inode number names one inode ever, in lost histories too.
    pub(super) fn is_first(&mut self, ino: Ino, key: Key) -> Verdict {
        match self.trust.makers.insert(ino, key) {
            Some(other) if other != key => {
                Err(format!("number {} is given out to {other:?} and to {key:?}", ino.0))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn delegates_inos(&mut self, of: Stream, first: Ino, count: u32, end: Position) -> Verdict {
        let new = InoRange { of, first, count, end };
        let last = Ino(first.0 + u64::from(count) - 1);
        let meets = |old: &&InoRange| old.has(first) || old.has(last) || new.has(old.first);
        if let Some(old) = self.trust.ranges.iter().find(meets) {
            return Err(format!("numbers from {} are delegated to {:?} and {of:?}", first.0, old.of));
        }
        self.trust.ranges.push(new);
        Ok(())
    }

    /// A session hears of numbers that are its own.
    pub(in crate::ranks) fn numbers(&self, of: Stream, first: Ino, count: u32) -> Verdict {
        let last = Ino(first.0 + u64::from(count).saturating_sub(1));
        let mut all = self.trust.ranges.iter();
        match all.find(|range| range.of == of && range.has(first) && range.has(last)) {
            Some(range) if range.end > self.durable_to(of.0) => {
                Err(format!("{of:?} hears of its numbers before {} is durable", range.end.0))
            }
            None if count > 0 => Err(format!("{of:?} hears of numbers that are not delegated to it")),
            _ => Ok(()),
        }
    }
}
