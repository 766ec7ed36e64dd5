//! Directories delegated to sessions, and inode numbers delegated to them: no two hold one, and nobody performs where it may not.
//!
//! Absent: what was performed there (`promise.rs`).

use super::depends::Fact;
use super::order::parents;
use super::promise::made;
use super::{Asked, Judge, Verdict};
use crate::model::judge::replies::rank_attr;
use crate::model::tree::Tree;
use proto::ids::{Position, SessionId, Tid};
use proto::message::{Delegated, Told};
use proto::reply::Reply;
use proto::request::Request;
use proto::{Ino, Name, NodeRef};
use std::collections::{BTreeMap, BTreeSet};

/// Inode numbers of a session.
#[derive(Clone, Copy, Debug)]
struct InoRange {
    session: SessionId,
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
#[derive(Clone, Debug, Default)]
pub(super) struct Trust {
    /// Who holds a directory, as the rank must know.
    holders: BTreeMap<Ino, SessionId>,
    /// What clients believe that they hold.
    believed: BTreeSet<(SessionId, Ino)>,
    delegated: Vec<InoRange>,
    /// Who made an inode, in lost histories too.
    makers: BTreeMap<Ino, (SessionId, Tid)>,
}

impl Judge {
    /// An early answer delegates a directory.
    ///
    /// # Errors
    /// Another session holds it, or what is said of it is wrong or not to be said yet.
    pub fn delegates(&mut self, session: SessionId, tid: Tid, delegated: &Delegated) -> Verdict {
        let dir = delegated.dir.ino;
        if let Some(holder) = self.trust.holders.insert(dir, session).filter(|holder| *holder != session) {
            return Err(format!(
                "directory {} is delegated to session {} while session {} holds it",
                dir.0, session.0, holder.0
            ));
        }
        let at = self.position_of(session, tid);
        let state = self.states.iter().find(|state| Some(state.end) == at);
        let (tree, end) = state.map_or((self.tree(), self.end), |state| (&state.tree, state.end));
        let Some(node) = tree.node(dir).filter(|node| node.is_dir()) else {
            return Err(format!("delegates {}, which is no directory", dir.0));
        };
        rank_attr(&tree.attr(node), &delegated.dir, self.wall)
            .map_err(|error| format!("delegates a directory: {error}"))?;
        if delegated.empty && !node.entries.is_empty() {
            return Err(format!("delegates directory {} as empty", dir.0));
        }
        let needs = self.by_others(session, &BTreeSet::from([Fact::Inode(dir), Fact::Names(dir)]), end);
        if needs > self.durable {
            return Err(format!(
                "tells of directory {} what others did before {} is durable",
                dir.0, needs.0
            ));
        }
        Ok(())
    }

    /// The client has heard that it may work in a directory.
    pub fn believes(&mut self, session: SessionId, dir: Ino) {
        self.trust.believed.insert((session, dir));
    }

    /// The client gives it back.
    pub fn gives_back(&mut self, session: SessionId, dir: Ino) {
        self.trust.believed.remove(&(session, dir));
    }

    /// The client has lost its connection, and with it everything that was delegated to it.
    pub fn believes_nothing(&mut self, session: SessionId) {
        self.trust.believed.retain(|(owner, _)| *owner != session);
    }

    /// The rank has a directory back.
    pub fn has_back(&mut self, session: SessionId, dir: Ino) {
        if self.trust.holders.get(&dir) == Some(&session) {
            self.trust.holders.remove(&dir);
        }
    }

    /// The rank has everything back.
    pub fn has_all_back(&mut self, session: SessionId) {
        self.trust.holders.retain(|_, holder| *holder != session);
    }

    /// Whether a session holds a directory.
    #[must_use]
    pub fn holds(&self, session: SessionId, dir: Ino) -> bool {
        self.trust.holders.get(&dir) == Some(&session)
    }

    /// The directories that others than this session believe to hold.
    pub(super) fn recovered_trust(&mut self, end: Position) {
        self.trust.holders.clear();
        self.trust.delegated.retain(|range| range.end <= end);
    }

    /// Whether a client may perform a request by itself.
    pub(super) fn may_perform(&mut self, asked: &Asked, told: &Told, reply: &Reply) -> Verdict {
        let (session, request) = (asked.session, &asked.request);
        for dir in parents(request) {
            if !self.trust.believed.contains(&(session, dir)) {
                return Err(format!(
                    "performs in directory {}, which is not delegated to it: {request:?}",
                    dir.0
                ));
            }
        }
        let ino = made(request, reply);
        if ino != told.ino {
            return Err(format!("performs with number {} and says {}: {request:?}", ino.0, told.ino.0));
        }
        if ino == Ino::NONE {
            return Ok(());
        }
        if !self.trust.delegated.iter().any(|range| range.session == session && range.has(ino)) {
            return Err(format!("performs with number {}, which is not its own: {request:?}", ino.0));
        }
        if matches!(request, Request::MkDir { .. }) {
            self.trust.believed.insert((session, ino));
        }
        self.is_first(ino, (session, asked.tid))
    }

    /// A directory that a client moves by itself is its own as well: it must not wait for what another session gives back behind
    /// what that one performed.
    pub(super) fn may_move(&self, asked: &Asked, tree: &Tree) -> Verdict {
        let Request::Rename { parent, name, new_parent, new_name, .. } = &asked.request else {
            return Ok(());
        };
        let behind = |dir: &NodeRef, name: &Name| tree.node(dir.ino)?.entries.get(name.as_bytes()).copied();
        let moved = behind(parent, name).into_iter().chain(behind(new_parent, new_name));
        let mut dirs = moved.filter(|ino| tree.node(*ino).is_some_and(|node| node.is_dir()));
        match dirs.find(|dir| !self.trust.believed.contains(&(asked.session, *dir))) {
            Some(dir) => Err(format!("moves directory {}, which is not delegated to it", dir.0)),
            None => Ok(()),
        }
    }

    /// An inode number names one inode ever, in lost histories too.
    pub(super) fn is_first(&mut self, ino: Ino, key: (SessionId, Tid)) -> Verdict {
        match self.trust.makers.insert(ino, key) {
            Some(other) if other != key => Err(format!(
                "number {} is given out to request {} of session {} and to request {} of session {}",
                ino.0, other.1.0, other.0.0, key.1.0, key.0.0
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn delegates_inos(
        &mut self,
        session: SessionId,
        first: Ino,
        count: u32,
        end: Position,
    ) -> Verdict {
        let new = InoRange { session, first, count, end };
        let last = Ino(first.0 + u64::from(count) - 1);
        let meets = |old: &&InoRange| old.has(first) || old.has(last) || new.has(old.first);
        if let Some(old) = self.trust.delegated.iter().find(meets) {
            return Err(format!(
                "numbers from {} are delegated to sessions {} and {}",
                first.0, old.session.0, session.0
            ));
        }
        self.trust.delegated.push(new);
        Ok(())
    }

    /// A session hears of numbers that are its own.
    ///
    /// # Errors
    /// They are not, or not durably.
    pub fn numbers(&self, session: SessionId, first: Ino, count: u32) -> Verdict {
        let last = Ino(first.0 + u64::from(count).saturating_sub(1));
        let mut all = self.trust.delegated.iter();
        match all.find(|range| range.session == session && range.has(first) && range.has(last)) {
            Some(range) if range.end > self.durable => {
                Err(format!("session {} hears of its numbers before {} is durable", session.0, range.end.0))
            }
            None if count > 0 => {
                Err(format!("session {} hears of numbers that are not delegated to it", session.0))
            }
            _ => Ok(()),
        }
    }
}
