//! Inodes that this client made by itself in directories delegated to it, of which nobody else has heard, and files that are
//! delegated to it: it knows their attributes, and changes them, without the rank.
//!
//! Absent: how attributes change (`made.rs`).

use crate::validity::Validity;
use proto::caps::{Bits, Grants};
use proto::{Attr, Ino, NameHash};
use std::collections::BTreeMap;
use stdx::Mono;

/// Beyond, the oldest is treated as any other inode: what is done to it is asked of the rank.
const NEWBORNS_MAX: usize = 65_536;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Newborn {
    pub(crate) attr: Attr,
    /// It was there before, and is delegated for itself: where its name is does not matter.
    pub(crate) delegated: bool,
    pub(crate) granted: Granted,
}

/// What an answer of the rank left to the edge, and the rank's books say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    bits: Bits,
    stamp: u64,
    until: Mono,
}

impl Newborn {
    pub(crate) fn new(attr: Attr, validity: &Validity) -> Self {
        let granted = Granted::new(validity.grants.of(0), validity);
        Self { attr, delegated: false, granted }
    }

    pub(crate) fn delegated(attr: Attr, validity: &Validity) -> Self {
        Self { delegated: true, ..Self::new(attr, validity) }
    }
}

impl Granted {
    pub(crate) const fn none() -> Self {
        Self { bits: Bits::NONE, stamp: 0, until: Mono(0) }
    }

    pub(crate) fn new(bits: Bits, validity: &Validity) -> Self {
        Self { bits: bits.and(Bits::ATTRS), stamp: validity.stamp, until: validity.until }
    }

    /// What is left of it: what is told here is told behind the rank's back, and must not last longer than it believes.
    pub(crate) fn validity(&self, now: Mono) -> Validity {
        if now >= self.until || self.bits.is_empty() {
            return Validity::default();
        }
        Validity { grants: Grants::One(self.bits), stamp: self.stamp, until: self.until, asked: 0 }
    }

    /// Whether something of it is left to be kept.
    pub(crate) fn is_fresh(&self, now: Mono) -> bool {
        now < self.until
    }
}

/// All of them, by number and by place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Newborns {
    inodes: BTreeMap<Ino, Newborn>,
    places: BTreeMap<(Ino, NameHash), Ino>,
}

impl Newborns {
    pub(crate) const fn new() -> Self {
        Self { inodes: BTreeMap::new(), places: BTreeMap::new() }
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<&Newborn> {
        self.inodes.get(&ino)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// Whether it is a file that is delegated for itself.
    pub(crate) fn is_delegated(&self, ino: Ino) -> bool {
        self.inodes.get(&ino).is_some_and(|newborn| newborn.delegated)
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Newborn> {
        self.inodes.get_mut(&ino)
    }

    pub(crate) fn insert(&mut self, newborn: Newborn) {
        let Attr { ino, parent, hash, .. } = newborn.attr;
        // Two names of one hash: only one can be found by its place, and what cannot be found cannot be ended.
        if let Some(other) = self.places.insert((parent, hash), ino) {
            self.inodes.remove(&other);
        }
        self.inodes.insert(ino, newborn);
        if self.inodes.len() > NEWBORNS_MAX
            && let Some((_, oldest)) = self.inodes.pop_first()
        {
            self.places.remove(&(oldest.attr.parent, oldest.attr.hash));
        }
    }

    /// It has another place from here on. Returns whether it is one of these still: what is delegated for itself ends with its name.
    pub(crate) fn moved(&mut self, ino: Ino, change: impl FnOnce(&mut Attr)) -> bool {
        let Some(mut newborn) = self.inodes.remove(&ino) else { return false };
        self.places.remove(&(newborn.attr.parent, newborn.attr.hash));
        if newborn.delegated && !stdx::mutant!("client_moved_stays_delegated") {
            return false;
        }
        change(&mut newborn.attr);
        self.insert(newborn);
        true
    }

    pub(crate) fn remove(&mut self, ino: Ino) {
        let Some(newborn) = self.inodes.remove(&ino) else { return };
        self.places.remove(&(newborn.attr.parent, newborn.attr.hash));
    }

    /// The one of that name, if there is one; `hash` unknown: all of that directory.
    pub(crate) fn remove_at(&mut self, dir: Ino, hash: Option<NameHash>) {
        match hash {
            None => self.remove_in(dir),
            Some(hash) => {
                if let Some(ino) = self.places.remove(&(dir, hash)) {
                    self.inodes.remove(&ino);
                }
            }
        }
    }

    /// All of a directory.
    pub(crate) fn remove_in(&mut self, dir: Ino) {
        let all = (dir, NameHash(0))..=(dir, NameHash(u64::MAX));
        let places: Vec<_> = self.places.range(all).map(|(place, ino)| (*place, *ino)).collect();
        for (place, ino) in places {
            self.places.remove(&place);
            self.inodes.remove(&ino);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}
