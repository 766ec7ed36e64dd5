//! Names that move between delegated directories, and second names of newborns: what is certain, and what is known afterwards.
//!
//! Absent: names that are made and removed (`delegations.rs`).

use super::{Delegation, Delegations};
use crate::made::{self, Counts};
use crate::names::Known;
use crate::window::Tids;
use proto::{Attr, Ino, Name, NameHash};
use stdx::Wall;

/// A rename as the rank will carry it out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    ino: Ino,
    is_dir: bool,
    replaced: Option<Ino>,
    /// When what it changes changed last, as far as it was told to anybody.
    pub(crate) changed: Wall,
}

/// The name that something is moved to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MovedTo<'a> {
    pub dir: Ino,
    pub name: &'a Name,
    pub hash: NameHash,
}

impl Delegations {
    /// What a rename comes to. `None`: the rank has to say. `replaces`: the new name may lead to something.
    pub(crate) fn plan_move(&self, from: (Ino, &Name), to: (Ino, &Name), replaces: bool) -> Option<Move> {
        let (old, new) = (self.clear(from.0)?, self.clear(to.0)?);
        let (ino, is_dir) = match self.known(from.0, from.1) {
            Known::File(ino) if !self.may_be_linked(ino) => (ino, false),
            Known::Dir(ino) if self.may_move(ino, from.0, to.0) => (ino, true),
            Known::File(_) | Known::Dir(_) | Known::Absent | Known::Unknown => return None,
        };
        let replaced = match self.known(to.0, to.1) {
            Known::Absent => None,
            // Of two names of one inode a rename takes none away.
            Known::File(other) | Known::Dir(other) if other == ino || !replaces => return None,
            Known::File(other) if !is_dir && !self.may_be_linked(other) => Some(other),
            Known::Dir(other) if is_dir && self.is_empty_dir(other) => Some(other),
            Known::File(_) | Known::Dir(_) | Known::Unknown => return None,
        };
        let moved = self.get(ino).map(|delegation| &delegation.attr);
        let moved = moved.or_else(|| self.newborns.get(ino).map(|newborn| &newborn.attr));
        let moved = moved.map_or(Wall(i64::MIN), |attr| attr.ctime);
        let changed = old.attr.ctime.max(new.attr.ctime).max(moved);
        Some(Move { ino, is_dir, replaced, changed })
    }

    fn clear(&self, dir: Ino) -> Option<&Delegation> {
        self.get(dir).filter(|delegation| delegation.is_clear())
    }

    pub(crate) fn is_empty_dir(&self, dir: Ino) -> bool {
        self.clear(dir).is_some_and(|delegation| delegation.names.is_empty())
    }

    /// Whether a directory may go from one to another. If it were another session's, the line of this one would wait for what
    /// that one gives back, and that perhaps for what this one gives back behind it.
    fn may_move(&self, ino: Ino, from: Ino, to: Ino) -> bool {
        if self.clear(ino).is_none() || ino == to {
            return false;
        }
        from == to || self.is_empty_dir(ino) || self.leads_up(to, from, ino) || self.leads_up(from, to, ino)
    }

    /// Whether `low` is below `high`, and what is known of the way does not lead through `moved`.
    fn leads_up(&self, low: Ino, high: Ino, moved: Ino) -> bool {
        let mut at = low;
        for _ in 0..self.dirs.len() {
            let Some(delegation) = self.clear(at).filter(|_| at != moved) else { return false };
            at = delegation.attr.parent;
            if at == high {
                return true;
            }
        }
        false
    }

    /// This client has renamed by itself.
    pub(crate) fn moved(&mut self, plan: Move, from: (Ino, &Name), to: MovedTo<'_>, wall: Wall, at: Tids) {
        let Move { ino, is_dir, replaced, .. } = plan;
        if let Some(other) = replaced.filter(|_| !stdx::mutant!("client_replaced_lives_on")) {
            self.newborns.remove(other);
            if is_dir {
                self.end(other);
            }
        }
        let known = if is_dir { Known::Dir(ino) } else { Known::File(ino) };
        self.name_performed(from, Known::Absent, at);
        self.name_performed((to.dir, to.name), known, at);
        let (gone, dirs) = (i32::from(replaced.is_some()), i32::from(is_dir));
        if from.0 == to.dir {
            self.dir_performed(from.0, Counts { names: -i64::from(gone), dirs: -gone * dirs }, wall, at.next);
        } else {
            self.dir_performed(from.0, Counts { names: -1, dirs: -dirs }, wall, at.next);
            self.dir_performed(
                to.dir,
                Counts { names: i64::from(1 - gone), dirs: (1 - gone) * dirs },
                wall,
                at.next,
            );
        }
        let place = if stdx::mutant!("client_moved_stays_in_place") { from.0 } else { to.dir };
        let is_newborn = self.newborns.moved(ino, |attr| made::moved(attr, (place, to.hash), wall));
        if let Some(delegation) = self.dirs.get_mut(&ino) {
            made::moved(&mut delegation.attr, (to.dir, to.hash), wall);
            // How the rank counts the first change of what it has not made in this life, nobody here knows.
            (delegation.exact, delegation.since) = (delegation.exact && is_newborn, at.later().next);
        }
    }

    /// This client has linked a newborn by itself, whose attributes are these from here on. Which of its names goes first, and what
    /// becomes of it then, the rank has to say.
    pub(crate) fn linked(&mut self, attr: &Attr, to: (Ino, &Name), wall: Wall, at: Tids) {
        if !stdx::mutant!("client_linked_stays_newborn") {
            self.newborns.remove(attr.ino);
            self.link(attr.ino, at.later().next);
        }
        self.name_performed(to, Known::Unknown, at);
        self.dir_performed(to.0, Counts { names: 1, dirs: 0 }, wall, at.next);
    }
}
