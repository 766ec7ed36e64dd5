//! What a rank does for a transaction that another one leads: takes back what clients keep, tells, reserves, and carries out.
//!
//! Absent: what the leader makes of it (`lead.rs`, `across.rs`).

use crate::cache::node;
use crate::caps::book::Need;
use crate::caps::needs;
use crate::limits;
use crate::op::{Effects, LoadKey, Op, OpId, Park, Plan, Stop};
use crate::ops::Headers;
use crate::ops::destroy::{self, Fate};
use crate::ops::{ranks, sync};
use crate::output::Output;
use crate::peers::Question;
use crate::rank::{Pending, Rank};
use crate::transactions::lead::FAILED_NS;
use crate::transactions::{Kept, carried, dirs, no_left};
use crate::txn::{Delta, DentryAt};
use crate::units::whole;
use crate::view::{Found, View, park};
use proto::dentry::{DentryValue, encode_primary, encode_remote};
use proto::holder::Holder;
use proto::mutation::Mutation;
use proto::reply::Reply;
use proto::request::Request;
use proto::transact::{
    Change, HAS_NAMES, IN_PARTS, Part, Reserved, Seen, Step, TxnId, put_left, put_reserved,
};
use proto::{Errno, Incarnation, Ino, Name, NameHash, RankId, SessionId, Version, Writer};
use stdx::{Now, Outbox, Wall};

/// Of records and holders that are told at once: with what is around them they fit into a frame.
const TOLD_BYTES_MAX: usize = 1 << 20;

/// A part as it is here.
struct Looked {
    seen: Seen,
    reserved: Reserved,
    /// Where the inode is, if the name is its primary one.
    node: Option<u32>,
    leaves: bool,
    synced: bool,
    /// Names of directories that were passed on a way: nothing of it is reserved.
    way: Option<Vec<Reserved>>,
}

impl Looked {
    /// What is told of it is no name.
    fn without_name(value: Box<[u8]>, reserved: Reserved, way: Option<Vec<Reserved>>) -> Found<Self> {
        let name = Name::new(&Ino::NONE.link_name()).map_err(|_| Errno::EIO)?;
        let seen = Seen { parent: Box::default(), dir: reserved.dir, name, value, holders: Vec::new() };
        Ok(Self { seen, reserved, node: None, leaves: false, synced: false, way })
    }

    /// What the transaction wants here.
    fn wanted(&self) -> &[Reserved] {
        self.way.as_deref().unwrap_or(std::slice::from_ref(&self.reserved))
    }
}

/// What a step may wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// For all: nothing is reserved.
    All,
    /// For the store alone: others may wait for what is reserved elsewhere.
    Store,
}

impl Patience {
    /// Waits, or says that it is not yet to be had.
    fn wait<T>(self, park: Park) -> Found<T> {
        match self {
            Self::All => Err(Stop::Park(park)),
            Self::Store => Err(Errno::EBUSY.into()),
        }
    }
}

/// Plans a step but for `Abort`, which waits for nothing.
pub(crate) fn plan(view: &mut View, op: &mut Op, id: TxnId, step: &Step) -> Found<Plan> {
    view.transactions.own = Some(id);
    let planned = match step {
        Step::Clear { since, parts } => clear(view, op, (id, *since), parts),
        Step::Prepare { since, hasty, parts, .. } => prepare(view, op, (id, *since), (parts, *hasty)),
        Step::Commit { changes } => commit(view, op, id, changes),
        Step::Ask => ask(view, id),
        Step::Abort => Plan::reply(Reply::Ok),
    };
    view.transactions.own = None;
    planned
}

pub(super) fn leader(op: &Op) -> RankId {
    op.of_rank.unwrap_or_default()
}

fn kept(op: &mut Op) -> Kept {
    let inherits = op.heard.as_mut().map(|heard| std::mem::take(&mut heard.inherits));
    Kept { pins: std::mem::take(&mut op.pins), inherits: inherits.unwrap_or_default() }
}

fn clear(view: &mut View, op: &mut Op, (id, since): (TxnId, Wall), parts: &[Part]) -> Found<Plan> {
    let mut looked = Vec::with_capacity(parts.len());
    for part in parts {
        let one = look(view, op, part, Patience::All)?;
        if let Some(plan) = sync_first(view, op, &one)? {
            return Ok(plan);
        }
        carried::say_join(view, op, part, &one.seen.holders);
        looked.push(one);
    }
    fits(&looked)?;
    let reserved: Vec<Reserved> = looked.iter().flat_map(Looked::wanted).copied().collect();
    let kept = kept(op);
    view.transactions.intend(id, (since, leader(op)), &reserved, kept);
    Plan::reply(Reply::Seen(looked.into_iter().map(|one| one.seen).collect()))
}

fn prepare(
    view: &mut View,
    op: &mut Op,
    (id, since): (TxnId, Wall),
    (parts, hasty): (&[Part], bool),
) -> Found<Plan> {
    // What the step before had to ask another rank for this one may not ask: it would be refused and begun anew, for ever.
    for ino in view.transactions.inherits(id) {
        if !op.inherits(*ino) && !stdx::mutant!("mds_heard_is_not_kept") {
            op.hears().inherits.push(*ino);
        }
    }
    let again = view.transactions.prepared().contains_key(&id);
    let mut looked = Vec::with_capacity(parts.len());
    for part in parts {
        let one = match look(view, op, part, Patience::Store) {
            Err(Stop::Park(Park::Load(key))) => return park(key),
            Err(Stop::Park(_)) => return Err(Errno::EBUSY.into()),
            other => other?,
        };
        let late = one.way.is_none() && view.transactions.comes_later((since, id), &one.reserved);
        let unclear = hasty && !is_plain(view, &one);
        if !again && (late || unclear || !is_synced_yet(view, &one)) {
            return Err(Errno::EBUSY.into());
        }
        looked.push(one);
    }
    fits(&looked)?;
    let seen = looked.iter().map(|one| one.seen.clone()).collect();
    if again {
        return Plan::reply(Reply::Seen(seen));
    }
    let names = looked.iter().filter(|one| one.way.is_none());
    let reserved: Vec<Reserved> = names.map(|one| one.reserved).collect();
    if reserved.is_empty() {
        return Plan::reply(Reply::Seen(seen));
    }
    if hasty {
        let kept = kept(op);
        view.transactions.intend(id, (since, leader(op)), &reserved, kept);
    }
    let leaves = looked.iter().filter(|one| one.leaves && one.way.is_none());
    view.txn.leaving = leaves.map(|one| one.reserved.ino).filter(|ino| *ino != Ino::NONE).collect();
    let mut w = Writer::new();
    put_reserved(&reserved, &mut w);
    if stdx::mutant!("mds_prepare_not_journaled") {
        view.transactions.prepare(id, leader(op), reserved);
        view.territory.reserve(true);
    } else {
        Mutation::Prepared { id, leader: leader(op), parts: &w.0 }.encode(&mut view.txn.muts);
    }
    Ok(Plan::Step(Reply::Seen(seen), Effects::default()))
}

/// What is told at once, and what is decided by it, is to fit into messages and journals: records of files with many names may not.
fn fits(looked: &[Looked]) -> Found<()> {
    let records: usize = looked.iter().map(|one| one.seen.parent.len() + one.seen.value.len()).sum();
    let carried: usize = looked.iter().flat_map(|one| &one.seen.holders).map(Holder::bytes).sum();
    match () {
        () if stdx::mutant!("mds_told_without_bound") => Ok(()),
        () if records > TOLD_BYTES_MAX => Err(Errno::EMLINK.into()),
        () if records + carried > TOLD_BYTES_MAX => Err(Errno::EXDEV.into()),
        () => Ok(()),
    }
}

/// What may be reserved without having been asked for before: a file that nobody has open or locked. Sessions need not join another rank
/// for it, and no directory gets another parent.
fn is_plain(view: &View, one: &Looked) -> bool {
    let file = one.node.is_some_and(|slot| !view.cache.node(slot).is_dir());
    (file && one.seen.holders.is_empty()) || stdx::mutant!("mds_all_are_plain")
}

fn ask(view: &View, id: TxnId) -> Found<Plan> {
    let known = view.transactions.leading.contains(&id) || view.transactions.committed.contains_key(&id);
    if known && !stdx::mutant!("mds_undecided_is_aborted") {
        return Err(Errno::EAGAIN.into());
    }
    Plan::reply(Reply::Ok)
}

fn is_blocked(view: &View, op: &Op, needs: &[Need]) -> bool {
    needs.iter().any(|need| view.book.is_blocked(op.place, need))
}

/// Whether what clients keep is out of the way; else it is taken back.
fn cleared(view: &View, op: &Op, needs: Vec<Need>, patience: Patience) -> Found<()> {
    if is_blocked(view, op, &needs) { patience.wait(Park::Caps(needs)) } else { Ok(()) }
}

fn look(view: &mut View, op: &mut Op, part: &Part, patience: Patience) -> Found<Looked> {
    match part {
        Part::Name { parent, name, leaves, synced } => {
            let (system, hash) = (parent.ino.is_reserved(), view.name_hash(name));
            let (above, dir) = if system {
                (None, view.system(parent.ino)?)
            } else {
                let (above, dir) = view.directory(*parent, hash, op)?;
                (Some(above), dir)
            };
            // Who works in it by himself may have made or removed the name.
            cleared(view, op, needs::of_listing(view, dir), patience)?;
            let found = view.lookup(dir, hash, name.as_bytes())?;
            let mut record = Writer::new();
            if let Some(above) = above {
                encode_primary(&view.cache.node(above).core, view.cache.ext(above), &mut record);
            }
            let (content, ino) = (view.cache.dir(dir).ino, view.cache.dir(dir).of());
            let seen = Seen {
                parent: record.0.into(),
                dir: ino,
                name: name.clone(),
                value: found.map(|slot| value_of(view, slot)).unwrap_or_default(),
                holders: Vec::new(),
            };
            if !view.cache.dir(dir).has(crate::cache::dir::HEADER) {
                return park(LoadKey::Header { dir: content });
            }
            let node = found.filter(|slot| view.cache.node(*slot).primary());
            let reserved = Reserved { dir: ino, hash, ino: ino_of(view, node) };
            let one = Looked { seen, reserved, node, leaves: *leaves, synced: *synced, way: None };
            at_rest(view, op, one, patience)
        }
        Part::Inode { node, limit, session } => {
            let slot = view.resolve(*node, op)?;
            look_at_inode(view, op, slot, (*limit, *session), patience)
        }
        Part::Above { node, moved } => {
            let top = dirs::above(view, op, *node, *moved)?;
            if top.passed.is_empty() && top.dir == node.ino && top.dir != *moved {
                return Err(Stop::NotMine(top.hint));
            }
            let seen = dirs::seen(&top)?;
            let passed = top.passed.into_iter().map(|(dir, hash, ino)| Reserved { dir, hash, ino });
            let way = Some(passed.collect());
            let reserved = Reserved { dir: Ino::NONE, hash: NameHash(0), ino: Ino::NONE };
            Ok(Looked { seen, reserved, node: None, leaves: false, synced: false, way })
        }
        Part::Sessions { rank, sessions } => {
            let strange = |session| view.transactions.strangers.contains(session);
            let all = *rank == view.config.rank && !sessions.iter().any(strange);
            let value: Box<[u8]> = if all { Box::default() } else { [1].into() };
            let none = Reserved { dir: Ino::NONE, hash: NameHash(0), ino: Ino::NONE };
            Looked::without_name(value, none, Some(Vec::new()))
        }
        Part::Content { dir, placed, newborn } => {
            view.note_told_facts(*dir, *placed, *newborn);
            if !placed {
                op.hears().inherits.push(*dir);
            }
            look_into(view, op, *dir, patience)
        }
    }
}

/// An inode that gets one more name. Nothing is asked of anybody for one that is outside of the limit, or a directory.
fn look_at_inode(
    view: &mut View,
    op: &mut Op,
    slot: u32,
    limited: (Ino, SessionId),
    patience: Patience,
) -> Found<Looked> {
    let late = stdx::mutant!("mds_limit_looks_late");
    if !late {
        limits::check_linked(view, op, slot, limited)?;
    }
    // It would get an entry of the cluster map, as if it left.
    if view.cache.node(slot).is_dir() && !stdx::mutant!("mds_linked_directory_leaves") {
        return Err(Errno::EPERM.into());
    }
    let dir = view.writable(slot)?;
    let found = view.cache.node(slot);
    let name = Name::new(found.name.as_bytes()).map_err(|_| Errno::EIO)?;
    let (ino, home) = (found.ino(), view.cache.dir(dir).of());
    let value = value_of(view, slot);
    let seen = Seen { parent: Box::default(), dir: home, name, value, holders: Vec::new() };
    // One without a name gets its first where that is to be, and leaves to there.
    let leaves = found.core.nlink == 0 || (home != Ino::LINKS && view.is_boundary(Ino::LINKS));
    let reserved = Reserved { dir: home, hash: found.hash, ino };
    let one = Looked { seen, reserved, node: Some(slot), leaves, synced: false, way: None };
    let one = at_rest(view, op, one, patience)?;
    if late {
        limits::check_linked(view, op, slot, limited)?;
    }
    Ok(one)
}

/// The whole content of a directory that is to go: whether there are names in it.
fn look_into(view: &mut View, op: &mut Op, dir: Ino, patience: Patience) -> Found<Looked> {
    let slot = ranks::content_here(view, op, whole(dir))?;
    cleared(view, op, needs::of_listing(view, slot), patience)?;
    // What is decided may fill or empty it.
    view.names_are_free(dir)?;
    let header = &view.cache.dir(slot).header;
    let value: Box<[u8]> = match () {
        () if header.spread().is_some() => [IN_PARTS].into(),
        () if header.entries > 0 => [HAS_NAMES].into(),
        () => Box::default(),
    };
    // What cannot go nobody reserves.
    let way = (!value.is_empty()).then(Vec::new);
    Looked::without_name(value, Reserved::content(dir), way)
}

fn ino_of(view: &View, node: Option<u32>) -> Ino {
    node.map_or(Ino::NONE, |slot| view.cache.node(slot).ino())
}

/// What a name leads to, for the leader. What a former life of this rank counted and lost the leader does not count again: it goes on
/// from where this life would begin.
fn value_of(view: &View, slot: u32) -> Box<[u8]> {
    let node = view.cache.node(slot);
    let mut value = Writer::new();
    if node.primary() {
        let mut core = node.core;
        if !node.has(node::BUMPED) && !stdx::mutant!("mds_told_as_counted") {
            core.change = view.changed_core(slot).change;
        }
        encode_primary(&core, view.cache.ext(slot), &mut value);
    } else {
        encode_remote(node.ino(), node.kind(), &mut value);
    }
    value.0.into()
}

/// Nothing is under way with the inode, and nobody keeps anything of it: what is told of it stays.
fn at_rest(view: &mut View, op: &mut Op, mut one: Looked, patience: Patience) -> Found<Looked> {
    let Some(slot) = one.node else { return Ok(one) };
    if one.leaves && view.cache.node(slot).is_dir() {
        dirs::explicit(view, op, slot)?;
    }
    let place = &one.seen;
    let mut needs = needs::of_place(one.reserved.ino, place.dir, &place.name);
    needs.extend(needs::of_left_name(place.dir).filter(|_| one.leaves));
    cleared(view, op, needs, patience)?;
    still(view, slot, one.leaves, patience)?;
    // Nobody is told when the store has it.
    if one.leaves && place_is_being_stored(view, one.reserved.ino) {
        return Err(if patience == Patience::All { Errno::EAGAIN } else { Errno::EBUSY }.into());
    }
    if one.leaves && !stdx::mutant!("mds_vote_forgets_holders") {
        one.seen.holders = carried::holders_of(view, slot)?;
    }
    Ok(one)
}

/// The store is about to get a place of an inode, which may be over when it has it.
fn place_is_being_stored(view: &View, ino: Ino) -> bool {
    view.backptrs_old.contains_key(&ino) || view.backptrs_writing.contains_key(&ino)
}

/// The inode at a node has no data operation under way; if it is to leave, all who may have it open are known.
fn still(view: &View, slot: u32, leaves: bool, patience: Patience) -> Found<()> {
    let node = view.cache.node(slot);
    let ino = node.ino();
    if leaves {
        if view.reconnecting {
            return patience.wait(Park::Reconnect);
        }
        carried::holders_of(view, slot)?;
    }
    let busy = |file: &crate::files::FileState| {
        file.shared > 0 || file.exclusive || file.users > 0 || file.cutting || file.purging
    };
    if view.files.get(ino).is_some_and(busy) {
        return patience.wait(Park::File(ino));
    }
    Ok(())
}

/// An inode of this rank's that leaves with a transaction that it leads itself.
pub(crate) fn may_leave(view: &View, slot: u32) -> Found<()> {
    still(view, slot, true, Patience::All)?;
    match place_is_being_stored(view, view.cache.node(slot).ino()) {
        true => Err(Stop::Park(Park::Reserved)),
        false => Ok(()),
    }
}

/// Bytes that no sync covers would be the old owner's to keep, or to write again.
fn sync_first(view: &View, op: &Op, one: &Looked) -> Found<Option<Plan>> {
    let Some(slot) = one.node.filter(|_| one.leaves || one.synced) else { return Ok(None) };
    if stdx::mutant!("mds_leaves_unsynced") {
        return Ok(None);
    }
    sync::sync_first(view, op, slot, one.leaves)
}

/// Whether what was synced before it was told is so yet; nobody syncs while others wait. Of what stays, and somebody writes on, that
/// was enough.
fn is_synced_yet(view: &View, one: &Looked) -> bool {
    let Some(slot) = one.node.filter(|_| one.leaves || one.synced) else { return true };
    let node = view.cache.node(slot);
    let written = |file: &crate::files::FileState| file.opens.iter().any(|open| open.writes);
    (if one.leaves { sync::is_stored(view, node) } else { sync::is_synced(node) })
        || (!one.leaves && view.files.get(node.ino()).is_some_and(written))
        || stdx::mutant!("mds_leaves_unsynced")
}

/// Carries out what was decided, with the end of what is reserved: both or none.
fn commit(view: &mut View, op: &mut Op, id: TxnId, changes: &[Change]) -> Found<Plan> {
    if !view.transactions.prepared().contains_key(&id) && !stdx::mutant!("mds_commit_carried_out_twice") {
        return Plan::reply(Reply::Ok);
    }
    let mut headers = Headers::new();
    let mut effects = Effects::default();
    for change in changes {
        if let Some(orphan) = carry_out(view, op, change, &mut headers)? {
            effects.orphan = Some(orphan);
        }
    }
    headers.emit(view);
    let mut left = Writer::new();
    put_left(&view.txn.left, &mut left);
    Mutation::Resolved { id, left: &left.0 }.encode(&mut view.txn.muts);
    Ok(Plan::Step(Reply::Ok, effects))
}

/// The names of a directory, or of that part of it, with its header. It is this rank's.
pub(super) fn content(view: &View, dir: Ino, hash: NameHash) -> Found<u32> {
    let dir = view.content_at(dir, hash)?;
    let known = view.cache.find_dir(dir);
    match known.filter(|slot| view.cache.dir(*slot).has(crate::cache::dir::HEADER)) {
        Some(slot) => Ok(slot),
        None => park(LoadKey::Header { dir }),
    }
}

/// One change; an inode that becomes an orphan by it.
fn carry_out(view: &mut View, op: &mut Op, change: &Change, headers: &mut Headers) -> Found<Option<Ino>> {
    match change {
        Change::Put { dir, name, value } => {
            let decoded = DentryValue::decode(value).map_err(|_| Errno::EIO)?;
            let hash = view.name_hash(name);
            let slot = content(view, *dir, hash)?;
            view.lookup(slot, hash, name.as_bytes())?;
            if let DentryValue::Primary(record) = &decoded {
                view.txn.counted.push(record.core.ino);
                // What took it away from here is decided, and comes yet: it may still have its old name here, and its new place would end
                // with that.
                if !stdx::mutant!("mds_back_before_it_left") {
                    view.inode_is_free(record.core.ino)?;
                }
                if !view.is_at_home(record.core.ino) {
                    view.txn.received.push(record.core.ino);
                }
            }
            let DentryAt { dir, hash, version, name, .. } = view.place_in(slot, hash, name.as_bytes());
            Mutation::PutDentry { dir, hash, version, name, value }.encode(&mut view.txn.muts);
        }
        Change::Delete { dir, name } => {
            let hash = view.name_hash(name);
            let slot = content(view, *dir, hash)?;
            view.lookup(slot, hash, name.as_bytes())?;
            view.txn.delete(view.place_in(slot, hash, name.as_bytes()));
        }
        Change::Header { .. } if stdx::mutant!("mds_others_count_nothing") => {}
        Change::Header { dir, hash, entries, subdirs, mtime } => {
            let slot = content(view, *dir, *hash)?;
            // The leader's clock may be behind: times do not go back.
            let mtime = mtime.map(|mtime| mtime.max(view.cache.dir(slot).header.mtime));
            headers.add(slot, *entries, *subdirs, mtime);
        }
        Change::Backptr { ino, version, parent, name } => {
            let (dir, hash, name) = (*parent, view.name_hash(name), name.as_bytes());
            let place = DentryAt { dir, of: dir, hash, version: Version(0), name };
            view.txn.backptr(*ino, *version, place);
        }
        Change::Left(left) => view.txn.left.push(*left),
        Change::Holders { ino, list } => carried::come(view, *ino, list.clone()),
        Change::Lose { .. } if stdx::mutant!("mds_lost_link_stays") => {}
        Change::Lose { ino, parent, hash } => {
            let hex = ino.link_name();
            let links = view.system(Ino::LINKS)?;
            view.system(view.orphans())?;
            let found = view.lookup(links, view.hash(&hex), &hex)?;
            let slot = found.filter(|slot| view.cache.node(*slot).primary()).ok_or(Errno::EIO)?;
            if destroy::lose_name(view, op, slot, (*parent, *hash), headers)? == Fate::Orphan {
                return Ok(Some(*ino));
            }
        }
        Change::Vacate { .. } if stdx::mutant!("mds_content_outlives_directory") => {}
        // Nobody ever changed anything in it. The map may have an entry for it.
        Change::Vacate { dir } if view.has_no_header(*dir) => {
            Mutation::DelContent { dir: *dir }.encode(&mut view.txn.muts);
        }
        Change::Vacate { dir } => {
            let slot = content(view, *dir, NameHash(0))?;
            // A replay may know nothing else of it.
            view.txn.header(view.cache.dirs.get(slot), Delta::default());
            Mutation::DelContent { dir: *dir }.encode(&mut view.txn.muts);
        }
    }
    Ok(None)
}

impl Rank {
    /// Whether another rank may keep something of what a step changes, from a former life of this one, and has not greeted this life.
    pub(crate) fn parts_may_be_copied(&mut self, parts: &[Part]) -> bool {
        if !self.awaits_ranks() {
            return false;
        }
        let unheard = !self.peers.ungreeted.is_empty() && !stdx::mutant!("mds_renamed_unheard");
        if unheard && parts.iter().any(|part| self.is_directory_that_leaves(part)) {
            return true;
        }
        let dir = |part: &Part| match part {
            // Nothing of it changes.
            Part::Above { .. } | Part::Sessions { .. } => Ino::NONE,
            Part::Content { dir, .. } => *dir,
            Part::Name { parent, name, .. } => self.view.cache.inner(parent.ino, self.view.name_hash(name)),
            Part::Inode { node, .. } => {
                let known = self.view.cache.by_ino(node.ino);
                known.map_or(node.parent, |slot| self.view.cache.parent_ino(slot))
            }
        };
        let dirs: Vec<Ino> = parts.iter().map(dir).filter(|dir| *dir != Ino::NONE).collect();
        dirs.into_iter().any(|dir| self.is_copied(dir))
    }

    /// Whether a name that goes leads to a directory, as far as that is cached: it is when it is looked at.
    fn is_directory_that_leaves(&mut self, part: &Part) -> bool {
        let Part::Name { parent, name, leaves: true, .. } = part else { return false };
        let hash = self.view.name_hash(name);
        let cache = &mut self.view.cache;
        let content = cache.find_dir(cache.inner(parent.ino, hash));
        let found = content.and_then(|content| cache.find(content, hash, name.as_bytes()));
        found.is_some_and(|slot| cache.node(slot).is_dir())
    }

    /// A transaction is given up: what was reserved for it is free, and what still looks for something stops.
    pub(crate) fn part_aborted(&mut self, now: Now, op: &Op, id: TxnId, out: &mut Outbox<Output>) {
        let is_it = |other: &Op| {
            other.session == op.session
                && matches!(&other.request, Request::Transact { id: of, .. } if *of == id)
        };
        let parked: Vec<OpId> =
            self.parked.values().filter(|other| is_it(other)).map(|other| other.id).collect();
        for id in parked {
            if let Some(other) = self.parked.remove(&id) {
                self.answer(&other, Err(Errno::EINTR), false, out);
            }
        }
        // One that waits for the data store hears of it behind that, and means to do nothing any more.
        for pending in self.pending.values_mut() {
            if let Pending::Op(other, ..) = pending
                && is_it(other)
            {
                other.failed = Some(Errno::EINTR);
            }
        }
        self.view.transactions.forget_intent(id);
        self.release_part(now, id, out);
        self.answer(op, Ok(Reply::Ok), false, out);
    }

    /// What is reserved for a transaction is free again.
    pub(crate) fn release_part(&mut self, now: Now, id: TxnId, out: &mut Outbox<Output>) {
        let Some(prepared) = self.view.transactions.prepared().get(&id) else { return };
        let inodes = prepared.parts.iter().filter(|part| !part.is_content());
        let inos: Vec<Ino> = inodes.map(|part| part.ino).collect();
        Mutation::Resolved { id, left: &no_left().0 }.encode(&mut self.view.txn.muts);
        self.commit(now, None, out);
        self.reservations_changed();
        inos.into_iter().filter(|ino| *ino != Ino::NONE).for_each(|ino| self.forget_or_purge(ino));
    }

    /// A leader that is in the map no more has left when all had acknowledged what it decided: what is reserved for it was given up.
    /// In a map of before its life, which may be heard of late, it is not yet.
    pub(crate) fn release_of_absent(&mut self, now: Now, out: &mut Outbox<Output>) {
        let Some(map) = self.view.territory.map().filter(|_| self.state.serves()).cloned() else { return };
        let prepared = self.view.transactions.prepared().iter();
        let knows =
            |life: Incarnation| life <= map.last_incarnation || stdx::mutant!("mds_old_map_ends_lives");
        let absent = prepared.filter(|(id, prepared)| {
            !map.ranks.contains_key(&prepared.leader) && knows(Incarnation(id.0 >> 32))
        });
        for id in absent.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.release_part(now, id, out);
        }
    }

    /// The step of a transaction that another rank leads: it is in the journal, and nobody presents it again.
    pub(crate) fn commit_step(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.view.touched = self.notes();
        self.commit(now, None, out);
        if let Some(touched) = self.view.touched.take() {
            let changed = touched.resources.into_iter().chain(touched.headers);
            self.recent.changed(SessionId(0), changed, self.journal.end, self.journal.durable);
        }
        self.reservations_changed();
    }

    /// What waited for something reserved looks again; of what is over nobody has to be asked.
    pub(crate) fn reservations_changed(&mut self) {
        let free = self.view.transactions.is_free();
        self.view.territory.reserve(!free);
        let waiting = std::mem::take(&mut self.view.transactions.waiting);
        self.runnable.extend(waiting);
        let prepared = self.view.transactions.prepared();
        self.peers.keep_questions(
            |question| !matches!(question, Question::Outcome(id) if !prepared.contains_key(id)),
        );
    }

    pub(super) fn ask_outcome_again(&mut self, id: TxnId) {
        if let Some(prepared) = self.view.transactions.prepared().get(&id) {
            let request = Request::Transact { id, step: Step::Ask };
            self.ask_unawaited(Question::Outcome(id), prepared.leader, request, FAILED_NS);
        }
    }

    /// The connection of a rank is gone: what it meant to do it says again with the next one. Who waits behind that would wait for a rank
    /// that is perhaps dead, and has reserved nothing.
    pub(crate) fn intents_end(&mut self, leader: RankId, session: SessionId) {
        if stdx::mutant!("mds_intents_outlive_link") {
            return;
        }
        self.view.transactions.forget_intents(leader);
        let clears = |op: &Op| {
            let step = matches!(op.request, Request::Transact { step: Step::Clear { .. }, .. });
            step && op.session == session
        };
        let parked: Vec<OpId> = self.parked.values().filter(|op| clears(op)).map(|op| op.id).collect();
        for id in parked {
            if let Some(op) = self.parked.remove(&id) {
                self.unpin(&op);
            }
        }
        // One whose file is being synced hears of it behind that.
        for pending in self.pending.values_mut() {
            if let Pending::Op(op, ..) = pending
                && clears(op)
                && !stdx::mutant!("mds_intents_noted_late")
            {
                op.failed = Some(Errno::EINTR);
            }
        }
    }

    /// Nobody may be there any more who remembers what that rank leads: it is asked.
    pub(crate) fn ask_outcomes(&mut self, leader: Option<RankId>) {
        if let Some(leader) = leader {
            self.view.transactions.forget_intents(leader);
        }
        let prepared = self.view.transactions.prepared().iter();
        let asked: Vec<(TxnId, RankId)> = prepared
            .filter(|(_, prepared)| leader.is_none_or(|leader| leader == prepared.leader))
            .map(|(id, prepared)| (*id, prepared.leader))
            .collect();
        for (id, leader) in asked {
            let request = Request::Transact { id, step: Step::Ask };
            self.ask_unawaited(Question::Outcome(id), leader, request, 0);
        }
    }
}
