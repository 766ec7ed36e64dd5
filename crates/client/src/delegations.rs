//! The directories and files that are delegated to this session (Dx, Fx), and what it knows about them and in them.
//!
//! A request that goes to the rank to change something here makes what it concerns unknown until its answer is there, and ends
//! the newborn status of what it changes: the answer of the rank counts from there on.
//!
//! Absent: performing (`machine/perform.rs`).

mod answers;
mod files;
mod moves;

pub(crate) use moves::MovedTo;

use crate::changes::{changed_dir, ends_file, may_move_dirs, touched};
use crate::made::{Counts, change_dir};
use crate::names::{Known, Names};
use crate::newborns::{Granted, Newborns};
use crate::validity::Validity;
use crate::window::Tids;
use proto::caps::Bits;
use proto::message::Delegated;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, FileKind, Ino, Name, NameHash, Tid};
use std::collections::{BTreeMap, BTreeSet};
use stdx::hash::HashSeed;
use stdx::{Mono, Wall};

/// Directories at once. Beyond, one that was used long ago is forgotten; the rank may still recall it.
const DELEGATIONS_MAX: usize = 1024;
/// Of so many the one that was used longest ago is forgotten, beyond that.
const SAMPLE: usize = 16;
/// Displaced ones that are remembered, to be offered to the rank.
const DISPLACED_MAX: usize = 128;
/// Names of all of them. Beyond, names are forgotten.
const NAMES_MAX: usize = 256 << 10;
/// After so many changes that had to be asked for all names of a directory are, if it has no more than this.
const LIST_AFTER: u32 = 2;
const LIST_MAX: u64 = 65_536;
/// Of so many answers about a directory's attributes that the edge may not keep the last is asked of the rank.
const SHOWN_MAX: u32 = 8;
/// Inodes remembered to have had a second name made.
const LINKED_MAX: usize = 65_536;
/// Directories remembered one by one in which something changed while an answer was on its way.
const CROSSED_MAX: usize = 1024;

/// One directory.
#[derive(Clone, Debug)]
pub(crate) struct Delegation {
    pub(crate) attr: Attr,
    pub(crate) names: Names,
    /// Changes of the directory itself that are at the rank.
    changing: Vec<Tid>,
    /// It was changed, and no answer has shown how.
    stale: bool,
    /// Attributes that were asked for under a lower tid are old.
    since: Tid,
    /// Counts and times are what the rank will come to, too: nothing that it changes there is on its way.
    exact: bool,
    /// Changes of names there that are at the rank.
    asking: u32,
    /// What was asked for under a lower tid may not show the last of these that were answered.
    counted: Tid,
    /// The last that was performed in it.
    used: Tid,
    /// Changes that had to be asked for because a name was not known.
    misses: u32,
    /// The request for a page of all names that is at the rank.
    listing: Option<Tid>,
    /// What the edge may keep of its attributes.
    granted: Granted,
    /// How often they were told since, to be kept for no time.
    shown: u32,
}

impl Delegation {
    /// Its attributes, if they are what the rank will come to.
    pub(crate) fn exact(&self) -> Option<&Attr> {
        (self.exact && self.changing.is_empty() && !self.stale).then_some(&self.attr)
    }

    /// The rank granted something of it.
    pub(crate) fn grants(&mut self, validity: &Validity) {
        let bits = validity.grants.of(0);
        if bits.has(Bits::ATTRS) {
            self.granted = Granted::new(bits, validity);
        }
    }

    /// What the edge may keep of its attributes, which are known here. `None`: the rank is to be asked for more. Who looks at a
    /// directory now and then does not have to wait for that, and whoever works in it is told by one answer for as long as it lasts.
    pub(crate) fn shows(&mut self, now: Mono) -> Option<Validity> {
        if self.granted.is_fresh(now) {
            self.shown = 0;
            return Some(self.granted.validity(now));
        }
        self.shown = (self.shown + 1) % SHOWN_MAX;
        (self.shown != 0).then(Validity::default)
    }

    /// Whether new inodes can be made in it: who may enter, what they inherit and that it stays is known.
    pub(crate) fn is_clear(&self) -> bool {
        self.changing.is_empty() && !self.stale && !self.attr.has_xattrs
    }

    /// Whether it may be there, or come there. Where it is while it changes, and after a change that no answer has shown yet,
    /// nobody knows.
    fn may_be_at(&self, place: (Ino, Option<NameHash>)) -> bool {
        let known = self.changing.is_empty() && !self.stale;
        !known || (self.attr.parent == place.0 && place.1.is_none_or(|hash| hash == self.attr.hash))
    }

    /// Whether the one change that is at the rank was sent when its place was known.
    fn is_only_changed_once(&self) -> bool {
        self.changing.len() == 1 && !self.stale
    }

    /// Notes a request that is at the rank, as far as it changes this directory or names in it.
    fn note(&mut self, ino: Ino, tid: Tid, request: &Request, seed: Option<&HashSeed>) {
        for (dir, name) in request.changed_names() {
            if dir == ino {
                self.names.change_begins(name);
                (self.exact, self.asking) = (false, self.asking + 1);
            }
        }
        let changes = changed_dir(request) == Some(ino);
        let place = |(dir, name): (Ino, &Name)| self.may_be_at((dir, seed.map(|seed| name.hash(seed))));
        if changes || (may_move_dirs(request) && request.changed_names().any(place)) {
            self.changing.push(tid);
        }
    }

    /// A change of the directory itself is answered.
    fn change_ended(&mut self, tid: Tid, outcome: &Outcome, next: Tid) {
        self.changing.retain(|changing| *changing != tid);
        let Ok(reply) = outcome else { return };
        // The answer to a change that no other crossed shows what came of it.
        let alone = self.changing.is_empty() && tid >= self.since;
        self.stale = true;
        if let (Reply::Attr(attr), true) = (reply, alone) {
            self.learn(attr);
        }
        self.since = next;
    }

    /// An answer does not include what this client performed meanwhile: counts, which nobody asks for here, and times, which must not
    /// go back.
    fn learn(&mut self, attr: &Attr) {
        if self.exact && !self.stale {
            return;
        }
        let ctime = attr.ctime.max(self.attr.ctime);
        (self.attr, self.stale, self.exact) = (Attr { ctime, ..*attr }, false, false);
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegations {
    dirs: BTreeMap<Ino, Delegation>,
    /// Where the next one that is displaced is looked for.
    hand: Ino,
    displaced: Vec<Ino>,
    pub(crate) newborns: Newborns,
    /// They may have several names, so that none goes without asking.
    linked: BTreeSet<Ino>,
    names: usize,
    /// Directories and files that changed by requests which are answered: what the answers to requests below show of them may be
    /// older.
    crossed: BTreeMap<Ino, Tid>,
    /// The same for all directories.
    all_crossed: Tid,
}

impl Delegations {
    pub(crate) const fn new() -> Self {
        Self {
            dirs: BTreeMap::new(),
            hand: Ino::NONE,
            displaced: Vec::new(),
            newborns: Newborns::new(),
            linked: BTreeSet::new(),
            names: 0,
            crossed: BTreeMap::new(),
            all_crossed: Tid(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty() && self.newborns.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.dirs.len()
    }

    pub(crate) fn get(&self, dir: Ino) -> Option<&Delegation> {
        self.dirs.get(&dir)
    }

    pub(crate) fn get_mut(&mut self, dir: Ino) -> Option<&mut Delegation> {
        self.dirs.get_mut(&dir)
    }

    /// Something of it was recalled: what was granted of it before counts no more.
    pub(crate) fn recalled(&mut self, ino: Ino) {
        self.newborns.remove(ino);
        if let Some(delegation) = self.dirs.get_mut(&ino).filter(|_| !stdx::mutant!("client_shows_recalled"))
        {
            delegation.granted = Granted::none();
        }
    }

    pub(crate) fn known(&self, dir: Ino, name: &Name) -> Known {
        self.dirs.get(&dir).map_or(Known::Unknown, |delegation| delegation.names.get(name))
    }

    pub(crate) fn may_be_linked(&self, ino: Ino) -> bool {
        self.linked.contains(&ino)
    }

    /// The rank delegates a directory, with the answer to that request. `under_way`: the requests that are there; those of them
    /// that concern it cross.
    pub(crate) fn begin<'a>(
        &mut self,
        delegated: &Delegated,
        (tid, next): (Tid, Tid),
        seed: Option<&HashSeed>,
        under_way: impl Iterator<Item = (Tid, &'a Request)>,
    ) {
        let ino = delegated.dir.ino;
        if delegated.dir.kind() != FileKind::Directory || self.dirs.contains_key(&ino) {
            return;
        }
        // Answers may overtake each other: what one changed that came before this one may be missing here.
        let crossed = tid < self.all_crossed || self.crossed.get(&ino).is_some_and(|at| tid < *at);
        let crossed = crossed && !stdx::mutant!("client_delegated_crossed");
        let mut delegation = Self::delegation(delegated.dir, delegated.empty && !crossed, next);
        delegation.stale = crossed;
        for (tid, request) in under_way {
            delegation.note(ino, tid, request, seed);
            if let Request::Link { node, .. } = request {
                self.link(node.ino, next);
            }
        }
        self.add(ino, delegation);
    }

    /// A change is answered. Directories that answers still on their way delegate may have changed by it meanwhile.
    pub(crate) fn crosses(&mut self, request: &Request, tids: Tids) {
        let next = tids.next;
        if tids.unanswered == next {
            return self.crossed.clear();
        }
        let dirs =
            request.changed_names().map(|(dir, _)| dir).chain(changed_dir(request)).chain(ends_file(request));
        self.crossed.extend(dirs.map(|dir| (dir, next)));
        if may_move_dirs(request) || self.crossed.len() > CROSSED_MAX {
            self.all_crossed = next;
            self.crossed.clear();
        }
    }

    /// This client made a directory under that tid.
    pub(crate) fn made(&mut self, attr: Attr, validity: &Validity, tid: Tid) {
        let mut delegation = Self::delegation(attr, true, Tid(tid.0 + 1));
        delegation.grants(validity);
        self.add(attr.ino, delegation);
    }

    const fn delegation(attr: Attr, empty: bool, next: Tid) -> Delegation {
        let names = Names::new(empty, next);
        Delegation {
            attr,
            names,
            changing: Vec::new(),
            stale: false,
            since: next,
            exact: true,
            asking: 0,
            counted: Tid(0),
            used: next,
            misses: 0,
            listing: None,
            granted: Granted::none(),
            shown: 0,
        }
    }

    fn add(&mut self, ino: Ino, delegation: Delegation) {
        if self.dirs.len() >= DELEGATIONS_MAX {
            self.displace(delegation.since);
        }
        self.names += delegation.names.len();
        self.dirs.insert(ino, delegation);
    }

    /// Makes room for one. The rank believes that it is here still.
    fn displace(&mut self, since: Tid) {
        let sample = || self.dirs.range(self.hand..).chain(self.dirs.range(..self.hand)).take(SAMPLE);
        let Some(oldest) = sample().min_by_key(|(_, delegation)| delegation.used).map(|(ino, _)| *ino) else {
            return;
        };
        self.hand = sample().last().map_or(Ino::NONE, |(ino, _)| Ino(ino.0.saturating_add(1)));
        self.end(oldest);
        // What was performed in it may not have reached the rank.
        self.crossed.insert(oldest, since);
        if self.displaced.len() < DISPLACED_MAX {
            self.displaced.push(oldest);
        }
    }

    /// Those that made room since this was asked last.
    pub(crate) fn take_displaced(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.displaced)
    }

    /// It is delegated no more, or not used any more.
    pub(crate) fn end(&mut self, dir: Ino) {
        let Some(delegation) = self.dirs.remove(&dir) else { return };
        self.names -= delegation.names.len();
        self.newborns.remove_in(dir);
    }

    pub(crate) fn end_all(&mut self) {
        *self = Self::new();
    }

    /// Something did not come to what was told: everything is asked for again. `ino`: what was not made, with all below it.
    pub(crate) fn doubt(&mut self, ino: Ino, next: Tid) {
        let mut gone = vec![ino];
        while let Some(ino) = gone.pop() {
            self.end(ino);
            gone.extend(self.dirs.iter().filter(|(_, t)| t.attr.parent == ino).map(|(below, _)| *below));
        }
        self.newborns.clear();
        for delegation in self.dirs.values_mut() {
            delegation.names.forget(next);
            (delegation.stale, delegation.since) = (true, next);
        }
        self.names = self.dirs.values().map(|delegation| delegation.names.len()).sum();
    }

    /// Changes what is known of one directory's names, within the bound.
    fn with_names(&mut self, dir: Ino, tids: Tids, change: impl FnOnce(&mut Names)) {
        let Some(delegation) = self.dirs.get_mut(&dir) else { return };
        let before = delegation.names.len();
        change(&mut delegation.names);
        self.names = self.names + delegation.names.len() - before;
        if self.names > NAMES_MAX {
            self.shrink(tids);
        }
    }

    fn shrink(&mut self, tids: Tids) {
        self.dirs.values_mut().for_each(|delegation| delegation.names.prune(tids.unanswered));
        self.names = self.dirs.values().map(|delegation| delegation.names.len()).sum();
        // A quarter is left free, so that this is rare.
        while self.names > NAMES_MAX / 4 * 3
            && let Some(delegation) = self.dirs.values_mut().max_by_key(|delegation| delegation.names.len())
        {
            let before = delegation.names.len();
            delegation.names.forget(tids.next);
            if delegation.names.len() == before {
                break;
            }
            self.names = self.names + delegation.names.len() - before;
        }
    }

    /// This client made or removed a name by itself, under that tid.
    pub(crate) fn performed(
        &mut self,
        (dir, name): (Ino, &Name),
        known: Known,
        counts: Counts,
        wall: Wall,
        at: Tids,
    ) {
        self.name_performed((dir, name), known, at);
        self.dir_performed(dir, counts, wall, at.next);
    }

    fn name_performed(&mut self, (dir, name): (Ino, &Name), known: Known, at: Tids) {
        self.with_names(dir, at.later(), |table| table.performed(name, known, at.next));
    }

    /// The one change of a directory that comes with all that an operation did to its names.
    fn dir_performed(&mut self, dir: Ino, counts: Counts, wall: Wall, tid: Tid) {
        if let Some(delegation) = self.dirs.get_mut(&dir) {
            // What was asked before shows it as it was.
            (delegation.used, delegation.since) = (tid, Tid(tid.0 + 1));
            change_dir(&mut delegation.attr, counts, wall);
        }
        if let Some(newborn) = self.newborns.get_mut(dir) {
            change_dir(&mut newborn.attr, counts, wall);
        }
    }

    /// This client changed a newborn by itself, under that tid.
    pub(crate) fn changed(&mut self, attr: Attr, tid: Tid) {
        if let Some(newborn) = self.newborns.get_mut(attr.ino) {
            newborn.attr = attr;
        }
        if let Some(delegation) = self.dirs.get_mut(&attr.ino) {
            (delegation.attr, delegation.since) = (attr, Tid(tid.0 + 1));
        }
    }

    /// A request goes to the rank.
    pub(crate) fn sent(&mut self, tids: Tids, request: &Request, seed: Option<&HashSeed>) {
        let tid = tids.next;
        for (dir, name) in request.changed_names() {
            // Whatever becomes of it, that directory's attributes and those behind the name are the rank's from here on.
            self.newborns.remove_at(dir, seed.map(|seed| name.hash(seed)));
            self.newborns.remove(dir);
            self.with_names(dir, tids, |names| names.change_begins(name));
            if let Some(delegation) = self.dirs.get_mut(&dir) {
                (delegation.exact, delegation.asking) = (false, delegation.asking + 1);
            }
        }
        if let Some(ino) = touched(request) {
            self.newborns.remove(ino);
        }
        if let Some(ino) = ends_file(request).filter(|ino| self.newborns.is_delegated(*ino)) {
            self.newborns.remove(ino);
        }
        if let Request::Link { node, .. } = request {
            self.link(node.ino, tid);
        }
        if let Some(delegation) = changed_dir(request).and_then(|dir| self.dirs.get_mut(&dir)) {
            delegation.changing.push(tid);
        }
        if may_move_dirs(request) {
            for (dir, name) in request.changed_names() {
                let place = (dir, seed.map(|seed| name.hash(seed)));
                self.dirs
                    .values_mut()
                    .filter(|delegation| delegation.may_be_at(place))
                    .for_each(|delegation| delegation.changing.push(tid));
            }
        }
    }

    fn link(&mut self, ino: Ino, next: Tid) {
        self.linked.insert(ino);
        if self.linked.len() > LINKED_MAX {
            self.dirs.values_mut().for_each(|delegation| delegation.names.forget(next));
            self.names = self.dirs.values().map(|delegation| delegation.names.len()).sum();
            self.linked = [ino].into();
        }
    }
}
