//! What takes names or inodes of two ranks: planned by the rank that has the name in the end, from what the others tell.
//!
//! Each thing is at a place, here or at another rank; what changes there goes into the transaction's `others`.
//!
//! Absent: how others are asked (`lead.rs`); what is all here (`ops/`); what directories need besides (`dirs.rs`).

use crate::cache::attr_of;
use crate::cache::dir::next_number;
use crate::cache::slab::NONE;
use crate::op::{Effects, Learned, Op, Park, Plan, Stop};
use crate::ops::destroy::{self, Fate};
use crate::ops::sync::sync_first;
use crate::ops::{Headers, here, rmdir};
use crate::perm;
use crate::territory::{Side, is_placed};
use crate::transactions::part::{content, may_leave};
use crate::transactions::{carried, dirs};
use crate::txn::DentryAt;
use crate::view::{Found, View};
use proto::dentry::{DentryValue, encode_primary, encode_remote};
use proto::holder::Holder;
use proto::inode::{EXT_BYTES_MAX, InodeCore, InodeExt, InodeRecord, LINKS_MAX, flags};
use proto::reply::Reply;
use proto::request::rename_flags::{EXCHANGE, NOREPLACE};
use proto::transact::{Change, IN_PARTS, Left, Part, Seen};
use proto::{Errno, FileKind, Ino, Name, NameHash, NodeRef, RankId, Version, Writer};

/// A name, existing or not.
#[derive(Clone, Debug)]
struct At {
    /// None: here.
    rank: Option<RankId>,
    dir: Ino,
    /// The directory's names, if here.
    slot: u32,
    hash: NameHash,
    name: Name,
}

/// A name, the directory that it is in, and what it leads to.
struct End {
    at: At,
    above: InodeRecord,
    held: Option<Held>,
}

/// An inode, and the place of its record.
struct Held {
    core: InodeCore,
    ext: Option<Box<InodeExt>>,
    home: At,
    /// Its node, if here.
    node: u32,
    /// The name that led here is its primary one.
    direct: bool,
    /// Who has it open or locked, if another rank tells of it and it leaves.
    holders: Vec<Holder>,
}

impl Held {
    const fn ino(&self) -> Ino {
        self.core.ino
    }

    fn kind(&self) -> FileKind {
        FileKind::of_mode(self.core.mode).unwrap_or(FileKind::Regular)
    }

    fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Its record, about to be changed.
    fn changed(&self, view: &View) -> InodeCore {
        if self.node != NONE {
            return view.changed_core(self.node);
        }
        let change = next_number(self.core.change, false, view.config.incarnation);
        InodeCore { change, ..self.core }
    }
}

/// A record that another rank told.
fn record_of(bytes: &[u8]) -> Found<InodeRecord> {
    match DentryValue::decode(bytes) {
        Ok(DentryValue::Primary(record)) => Ok(record),
        Ok(DentryValue::Remote { .. }) | Err(_) => Err(Errno::EIO.into()),
    }
}

fn record_at(view: &View, slot: u32) -> InodeRecord {
    InodeRecord { core: view.cache.node(slot).core, ext: view.cache.ext(slot).cloned().map(Box::new) }
}

/// Place and record of an inode here.
fn held_here(view: &View, slot: u32, direct: bool) -> Found<Held> {
    let dir = view.writable(slot)?;
    view.system(view.orphans())?;
    let node = view.cache.node(slot);
    let name = Name::new(node.name.as_bytes()).map_err(|_| Errno::EIO)?;
    let home = At { rank: None, dir: view.cache.dir(dir).of(), slot: dir, hash: node.hash, name };
    let InodeRecord { core, ext } = record_at(view, slot);
    Ok(Held { core, ext, home, node: slot, direct, holders: Vec::new() })
}

fn there(view: &View, rank: RankId, seen: &Seen) -> At {
    let hash = view.name_hash(&seen.name);
    At { rank: Some(rank), dir: seen.dir, slot: NONE, hash, name: seen.name.clone() }
}

/// The record of an inode in `//links`; `synced`: with its data.
fn linked(view: &mut View, op: &mut Op, ino: Ino, synced: bool) -> Found<Held> {
    let hex = ino.link_name();
    let hash = view.hash(&hex);
    let hint = match view.territory.of_number(Ino::LINKS) {
        Some(Side::Other(rank)) => rank,
        Some(Side::Mine | Side::Sealed) | None => {
            let slot = match view.resolve(NodeRef { ino, parent: Ino::LINKS, hash }, op) {
                // The name that was told is over.
                Err(Stop::Fail(Errno::ESTALE) | Stop::NotMine(_)) if is_told_unreserved(view) => {
                    return Err(Stop::Park(Park::Votes));
                }
                Err(Stop::NotMine(_)) => return Err(Errno::EIO.into()),
                found => found?,
            };
            return held_here(view, slot, false);
        }
    };
    let name = Name::new(&hex).map_err(|_| Errno::EIO)?;
    let parent = NodeRef::bare(Ino::LINKS);
    let (rank, seen) = view.told(hint, &Part::Name { parent, name, leaves: false, synced })?;
    match DentryValue::decode(&seen.value) {
        Ok(DentryValue::Primary(InodeRecord { core, ext })) if core.ino == ino => {
            let home = there(view, rank, &seen);
            Ok(Held { core, ext, home, node: NONE, direct: false, holders: Vec::new() })
        }
        // What was told at different times.
        _ if !has_votes(view) => Err(Stop::Park(Park::Votes)),
        _ => Err(Errno::EIO.into()),
    }
}

/// What is planned by is from other ranks, and may be over by now.
fn is_told_unreserved(view: &View) -> bool {
    let told = view.told.as_ref().is_some_and(|told| !told.voted && !told.parts.is_empty());
    told && !stdx::mutant!("mds_told_name_is_believed")
}

fn has_votes(view: &View) -> bool {
    view.told.as_ref().is_some_and(|told| told.voted)
}

/// A name in a directory here; NotMine if it is another rank's.
fn end_here(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name, synced: bool) -> Found<End> {
    let hash = view.name_hash(name);
    let (above, slot) = view.directory(parent, hash, op)?;
    perm::access(view, op, above, perm::EXEC)?;
    let above = record_at(view, above);
    end_in(view, op, (above, slot), (hash, name), synced)
}

/// The new name, where that may be one in the very directory that is to get it. Its home reserves the directory with its old name, and
/// gives no replica of it while that lasts; but it has told the record, which stays so.
fn end_to(
    view: &mut View,
    op: &mut Op,
    from: (NodeRef, &Name),
    to: (NodeRef, &Name),
    how: u32,
) -> Found<End> {
    let synced = how & EXCHANGE != 0;
    match end_here(view, op, to.0, to.1, synced) {
        Err(Stop::Park(Park::Replica { node, home })) => {
            let told = told_itself(view, from, node.ino);
            let above = told.ok_or(Stop::Park(Park::Replica { node, home }))?;
            may(op, &above, perm::EXEC)?;
            let hash = view.name_hash(to.1);
            // Nobody has changed anything in it: only its record says that the store has no header of it.
            if above.core.flags & flags::NEWBORN != 0
                && matches!(view.learned.as_deref(), Some(Learned::NoHeader(of)) if *of == node.ino)
            {
                view.born(node.ino);
            }
            let slot = content(view, node.ino, hash)?;
            end_in(view, op, (above, slot), (hash, to.1), synced)
        }
        found => found,
    }
}

/// What another rank has told of the old name, if it leads to that directory.
pub(crate) fn told_itself(view: &View, (parent, name): (NodeRef, &Name), dir: Ino) -> Option<InodeRecord> {
    let part = Part::Name { parent, name: name.clone(), leaves: true, synced: true };
    let mut parts = view.told.iter().flat_map(|told| &told.parts);
    let (_, _, seen) = parts.find(|(_, of, _)| *of == part)?;
    record_of(&seen.value).ok().filter(|record| record.core.ino == dir)
}

/// A name in a directory whose names are here; `above`: its record.
fn end_in(
    view: &mut View,
    op: &mut Op,
    (above, slot): (InodeRecord, u32),
    (hash, name): (NameHash, &Name),
    synced: bool,
) -> Found<End> {
    let at = At { rank: None, dir: view.cache.dir(slot).of(), slot, hash, name: name.clone() };
    let held = match view.lookup(slot, hash, name.as_bytes())? {
        None => None,
        Some(found) if view.cache.node(found).primary() => Some(held_here(view, found, true)?),
        Some(found) => Some(linked(view, op, view.cache.node(found).ino(), synced)?),
    };
    Ok(End { at, above, held })
}

/// A name in a directory of another rank's.
fn end_there(
    view: &mut View,
    op: &mut Op,
    hint: Option<RankId>,
    (parent, name): (NodeRef, &Name),
    synced: bool,
) -> Found<End> {
    let part = Part::Name { parent, name: name.clone(), leaves: true, synced };
    let (rank, seen) = view.told(hint, &part)?;
    let above = record_of(&seen.parent)?;
    may(op, &above, perm::EXEC)?;
    let at = there(view, rank, &seen);
    let held = match DentryValue::decode(&seen.value) {
        _ if seen.value.is_empty() => None,
        Ok(DentryValue::Primary(InodeRecord { core, ext })) => {
            let holders = seen.holders.clone();
            Some(Held { core, ext, home: at.clone(), node: NONE, direct: true, holders })
        }
        Ok(DentryValue::Remote { ino, .. }) => Some(linked(view, op, ino, synced)?),
        Err(_) => return Err(Errno::EIO.into()),
    };
    Ok(End { at, above, held })
}

fn may(op: &Op, above: &InodeRecord, mask: u32) -> Found<()> {
    if op.check {
        perm::allowed_by((&above.core, above.ext.as_deref()), &op.cred, mask)?;
    }
    Ok(())
}

fn others(view: &mut View, rank: RankId) -> &mut Vec<Change> {
    view.txn.others.entry(rank).or_default()
}

/// The name leads to that inode from here on.
fn put_primary(view: &mut View, at: &At, core: &InodeCore, ext: Option<&InodeExt>) {
    match at.rank {
        None => {
            let place = view.place_in(at.slot, at.hash, at.name.as_bytes());
            view.txn.primary(place, core, ext);
        }
        Some(rank) => {
            let mut value = Writer::new();
            encode_primary(core, ext, &mut value);
            put_there(view, rank, at, value);
        }
    }
}

fn put_remote(view: &mut View, at: &At, ino: Ino, kind: FileKind) {
    match at.rank {
        None => {
            let place = view.place_in(at.slot, at.hash, at.name.as_bytes());
            view.txn.remote(place, ino, kind);
        }
        Some(rank) => {
            let mut value = Writer::new();
            encode_remote(ino, kind, &mut value);
            put_there(view, rank, at, value);
        }
    }
}

fn put_there(view: &mut View, rank: RankId, at: &At, value: Writer) {
    let change = Change::Put { dir: at.dir, name: at.name.clone(), value: value.0.into() };
    others(view, rank).push(change);
}

fn delete(view: &mut View, at: &At) {
    match at.rank {
        None => view.txn.delete(view.place_in(at.slot, at.hash, at.name.as_bytes())),
        Some(rank) => {
            let change = Change::Delete { dir: at.dir, name: at.name.clone() };
            others(view, rank).push(change);
        }
    }
}

/// The directory's counts change; `listing`: and its times.
fn count(view: &mut View, headers: &mut Headers, at: &At, (entries, subdirs): (i64, i64), listing: bool) {
    let mtime = listing.then(|| view.wall());
    match at.rank {
        None => headers.add(at.slot, entries, subdirs, mtime),
        Some(rank) => {
            others(view, rank).push(Change::Header { dir: at.dir, hash: at.hash, entries, subdirs, mtime })
        }
    }
}

/// Where the inode's primary dentry is: its owner stores that, and the rank that had it remembers it for a while.
fn backptr(view: &mut View, core: &InodeCore, held: &Held, (was, is): (&At, &At)) -> Found<()> {
    match is.rank {
        None => {
            let (dir, hash, name) = (is.dir, is.hash, is.name.as_bytes());
            let place = DentryAt { dir, of: dir, hash, version: Version(0), name };
            view.txn.backptr(core.ino, core.change, place);
        }
        Some(rank) => {
            let (ino, version, parent) = (core.ino, core.change, is.dir);
            let name = is.name.clone();
            others(view, rank).push(Change::Backptr { ino, version, parent, name });
        }
    }
    if is.rank == was.rank {
        return Ok(());
    }
    let holders = match was.rank {
        None => carried::holders_of(view, held.node)?,
        Some(_) => held.holders.clone(),
    };
    carried::go_along(view, (core.ino, was.rank.is_none()), holders, is.rank, (is.dir, is.hash))?;
    let left = Left { ino: core.ino, parent: is.dir, hash: is.hash };
    match was.rank {
        None => view.txn.left.push(left),
        Some(rank) => others(view, rank).push(Change::Left(left)),
    }
    if is.rank.is_none() {
        // It was this rank's a moment ago, and the transaction that took it away, which others know to be decided, is yet to be carried
        // out here. That one ends what is known of its place: the backptr would never be stored.
        if !stdx::mutant!("mds_back_before_it_left") {
            view.inode_is_free(core.ino)?;
        }
        view.txn.received.push(core.ino);
    }
    Ok(())
}

/// The inode that is named at `from` is named at `to`.
fn name_moves(view: &mut View, headers: &mut Headers, from: &At, held: &Held, to: &At) -> Found<()> {
    let mut core = held.changed(view);
    core.ctime = core.ctime.max(view.wall());
    if held.direct {
        if !held.is_dir() {
            core.flags |= flags::BACKPTR;
        }
        put_primary(view, to, &core, held.ext.as_deref());
        return backptr(view, &core, held, (from, to));
    }
    put_remote(view, to, core.ino, held.kind());
    let mut ext = held.ext.as_deref().cloned().unwrap_or_default();
    match ext.links.iter_mut().find(|link| **link == (from.dir, from.hash)) {
        Some(link) => *link = (to.dir, to.hash),
        None => ext.links.push((to.dir, to.hash)),
    }
    put_primary(view, &held.home, &core, Some(&ext));
    count(view, headers, &held.home, (0, 0), false);
    Ok(())
}

/// The inode loses the name at `at`; an orphan of this rank's.
fn lose(view: &mut View, op: &mut Op, headers: &mut Headers, (at, held): (&At, &Held)) -> Found<Option<Ino>> {
    if held.is_dir() {
        rmdir::end_units(view, held.node)?;
        destroy::end_holders(view, held.ino());
        view.txn.no_backptr(held.ino(), held.changed(view).change);
        return Ok(None);
    }
    if held.node != NONE {
        let fate = destroy::lose_name(view, op, held.node, (at.dir, at.hash), headers)?;
        return Ok((fate == Fate::Orphan).then_some(held.ino()));
    }
    let change = Change::Lose { ino: held.ino(), parent: at.dir, hash: at.hash };
    // Whoever has it open keeps it there, too.
    let rank = held.home.rank.ok_or(Errno::EIO)?;
    others(view, rank).push(change);
    Ok(None)
}

/// What was performed is not planned with other ranks: its client did it in a directory that is its own. Nor is it told before it is durable:
/// it would be presented here again.
fn begin(view: &mut View, op: &Op) -> Found<()> {
    view.txn.across = true;
    if op.told.is_some() { Err(Errno::EXDEV.into()) } else { Ok(()) }
}

/// Rename where a name or an inode is another rank's, or what governs a directory would be another.
pub(crate) fn rename(
    view: &mut View,
    op: &mut Op,
    (parent, name): (NodeRef, &Name),
    (new_parent, new_name): (NodeRef, &Name),
    how: u32,
) -> Found<Plan> {
    begin(view, op)?;
    let planned = plan_rename(view, op, (parent, name), (new_parent, new_name), how);
    certain(view, op, planned)
}

/// What was told may be long over, and no state was ever such that it fails so: it is reserved, and told once more.
/// A few times: others may have reserved it first.
fn certain(view: &View, op: &mut Op, planned: Found<Plan>) -> Found<Plan> {
    match planned {
        Err(Stop::Fail(_)) if is_told_unreserved(view) && op.may_vote() => Err(Stop::Park(Park::Votes)),
        planned => planned,
    }
}

fn plan_rename(
    view: &mut View,
    op: &mut Op,
    (parent, name): (NodeRef, &Name),
    (new_parent, new_name): (NodeRef, &Name),
    how: u32,
) -> Found<Plan> {
    let to = end_to(view, op, (parent, name), (new_parent, new_name), how)?;
    let at = (parent, view.name_hash(name));
    let from = match view.at_name(op, at, |view, op| end_here(view, op, parent, name, true))? {
        Ok(from) => from,
        Err(hint) => end_there(view, op, hint, (parent, name), true)?,
    };
    let source = from.held.as_ref().ok_or(Errno::ENOENT)?;
    may(op, &from.above, perm::WRITE)?;
    may(op, &to.above, perm::WRITE)?;
    perm::sticky_by(op, &from.above.core, &source.core)?;
    if let Some(target) = &to.held {
        perm::sticky_by(op, &to.above.core, &target.core)?;
    }
    check_shape(to.held.as_ref(), how)?;
    if to.held.as_ref().is_some_and(|target| target.ino() == source.ino()) {
        return if has_votes(view) { Plan::reply(Reply::Ok) } else { Err(Stop::Park(Park::Votes)) };
    }
    directories_may_move(view, op, (&from, parent), (&to, new_parent), how)?;
    let mut headers = Headers::new();
    let subdir = |held: &Held| i64::from(held.is_dir());
    let effects = match &to.held {
        Some(target) if how & EXCHANGE != 0 => {
            if target.direct
                && from.at.rank.is_some()
                && let Some(plan) = leaves(view, op, target.node)?
            {
                return Ok(plan);
            }
            name_moves(view, &mut headers, &from.at, source, &to.at)?;
            name_moves(view, &mut headers, &to.at, target, &from.at)?;
            let subdirs = subdir(source) - subdir(target);
            count(view, &mut headers, &from.at, (0, -subdirs), true);
            count(view, &mut headers, &to.at, (0, subdirs), true);
            Effects::default()
        }
        target => {
            if let Some(plan) = replaces(view, op, source, target.as_ref())? {
                return Ok(plan);
            }
            count(view, &mut headers, &from.at, (-1, -subdir(source)), true);
            count(view, &mut headers, &to.at, (1, subdir(source)), true);
            name_moves(view, &mut headers, &from.at, source, &to.at)?;
            let mut orphan = None;
            if let Some(target) = target {
                count(view, &mut headers, &to.at, (-1, -subdir(target)), true);
                orphan = lose(view, op, &mut headers, (&to.at, target))?;
            }
            delete(view, &from.at);
            Effects { orphan, ..Default::default() }
        }
    };
    headers.emit(view);
    Ok(Plan::Commit(Reply::Ok, effects))
}

/// An inode of this rank's goes to another one: its bytes are synced before that, or this rank's next life would write them again for
/// nobody.
fn leaves(view: &View, op: &Op, slot: u32) -> Found<Option<Plan>> {
    may_leave(view, slot)?;
    if stdx::mutant!("mds_leaves_unsynced") { Ok(None) } else { sync_first(view, op, slot, true) }
}

/// What replaces a file is synced first, as where all is one rank's. Another rank has done that with what it has.
fn replaces(view: &View, op: &Op, source: &Held, target: Option<&Held>) -> Found<Option<Plan>> {
    if source.node == NONE || !target.is_some_and(|held| held.kind() == FileKind::Regular) {
        return Ok(None);
    }
    sync_first(view, op, source.node, false)
}

/// Whether there may be something at the new name, or must.
fn check_shape(target: Option<&Held>, how: u32) -> Found<()> {
    if how & EXCHANGE != 0 && target.is_none() {
        return Err(Errno::ENOENT.into());
    }
    if how & NOREPLACE != 0 && target.is_some() {
        return Err(Errno::EEXIST.into());
    }
    Ok(())
}

/// What may not replace what.
fn check_kinds(source: &Held, target: Option<&Held>, how: u32) -> Found<()> {
    let target = target.filter(|_| how & EXCHANGE == 0);
    match target.map(|target| (source.is_dir(), target.is_dir())) {
        Some((true, false)) => Err(Errno::ENOTDIR.into()),
        Some((false, true)) => Err(Errno::EISDIR.into()),
        Some((true, true) | (false, false)) | None => Ok(()),
    }
}

/// What has to be so of directories among them, before anything is planned: each that gets another parent may be written, does not come
/// below itself, and has an entry of its own if another one governs there; one that is replaced is empty, and here.
fn directories_may_move(
    view: &mut View,
    op: &mut Op,
    (from, parent): (&End, NodeRef),
    (to, new_parent): (&End, NodeRef),
    how: u32,
) -> Found<()> {
    let source = from.held.as_ref().ok_or(Errno::ENOENT)?;
    let (target, swaps) = (to.held.as_ref(), how & EXCHANGE != 0);
    if !source.is_dir() && !target.is_some_and(Held::is_dir) {
        return Ok(());
    }
    let within = |held: &Held, into: &End| held.is_dir() && held.ino() == into.at.dir;
    if within(source, to) || (swaps && target.is_some_and(|held| within(held, from))) {
        return Err(Errno::EINVAL.into());
    }
    let crosses = from.at.rank.is_some() || is_governed_otherwise(view, op, from, to)?;
    let kinds = check_kinds(source, target, how);
    let moving = [Some((source, new_parent)), target.filter(|_| swaps).map(|held| (held, parent))];
    for (held, into) in moving.into_iter().flatten().filter(|(held, _)| held.is_dir()) {
        if held.node != NONE {
            if crosses && kinds.is_ok() {
                dirs::explicit(view, op, held.node)?;
            }
            view.txn.moves.push(held.ino());
        } else {
            dirs::known_explicit(view, &held.core)?;
        }
        if from.at.dir != to.at.dir {
            if op.check {
                perm::allowed_by((&held.core, held.ext.as_deref()), &op.cred, perm::WRITE)?;
            }
            dirs::way(view, op, into, held.ino())?;
        }
    }
    kinds?;
    match target.filter(|held| held.is_dir() && !swaps) {
        // Its home is where its name is.
        Some(held) => rmdir::is_empty_here(view, held.node),
        None => Ok(()),
    }
}

/// Whether what is in a directory that goes from one name to the other, both here, would be governed by something else.
fn is_governed_otherwise(view: &mut View, op: &mut Op, from: &End, to: &End) -> Found<bool> {
    let [one, other] = [from, to].map(|end| view.cache.dir(end.at.slot).ino);
    Ok(one != other && dirs::region(view, op, one)? != dirs::region(view, op, other)?)
}

/// Link where the inode, its first name or `//links` is another rank's.
pub(crate) fn link(view: &mut View, op: &mut Op, node: NodeRef, parent: NodeRef, name: &Name) -> Found<Plan> {
    begin(view, op)?;
    let planned = plan_link(view, op, node, parent, name);
    certain(view, op, planned)
}

fn plan_link(view: &mut View, op: &mut Op, node: NodeRef, parent: NodeRef, name: &Name) -> Found<Plan> {
    let to = end_here(view, op, parent, name, false)?;
    let target = match here(view.resolve(node, op))? {
        Ok(slot) => held_here(view, slot, true)?,
        Err(hint) => {
            // Its home looks whether it is inside of the session's limit, before it does anything else for that.
            let part = Part::Inode { node, limit: op.limit, session: op.session };
            let (rank, seen) = view.told(hint, &part)?;
            let InodeRecord { core, ext } = record_of(&seen.value)?;
            let home = there(view, rank, &seen);
            Held { core, ext, home, node: NONE, direct: true, holders: seen.holders }
        }
    };
    if target.is_dir() {
        return Err(Errno::EPERM.into());
    }
    let bytes = target.ext.as_deref().map_or(0, InodeExt::bytes);
    if target.core.nlink >= LINKS_MAX || bytes >= EXT_BYTES_MAX {
        return Err(Errno::EMLINK.into());
    }
    if to.held.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if target.core.nlink == 0 {
        return first_name(view, op, &to, &target);
    }
    may(op, &to.above, perm::WRITE)?;
    view.space()?;
    let mut headers = Headers::new();
    let mut core = target.changed(view);
    core.ctime = core.ctime.max(view.wall());
    core.nlink += 1;
    core.flags |= flags::BACKPTR;
    let mut ext = target.ext.as_deref().cloned().unwrap_or_default();
    let new = (to.at.dir, to.at.hash);
    let kind = target.kind();
    let home = if target.home.dir == Ino::LINKS {
        ext.links.push(new);
        put_primary(view, &target.home, &core, Some(&ext));
        count(view, &mut headers, &target.home, (0, 0), false);
        target.home
    } else {
        let links = place_in_links(view, core.ino)?;
        if target.home.rank != links.rank
            && target.node != NONE
            && let Some(plan) = leaves(view, op, target.node)?
        {
            return Ok(plan);
        }
        ext.links = vec![(target.home.dir, target.home.hash), new];
        put_primary(view, &links, &core, Some(&ext));
        backptr(view, &core, &target, (&target.home, &links))?;
        put_remote(view, &target.home, core.ino, kind);
        count(view, &mut headers, &links, (1, 0), true);
        count(view, &mut headers, &target.home, (0, 0), false);
        links
    };
    put_remote(view, &to.at, core.ino, kind);
    count(view, &mut headers, &to.at, (1, 0), true);
    headers.emit(view);
    Plan::commit(Reply::Attr(attr_of(&core, Some(&ext), home.dir, home.hash)))
}

/// A file without a name (`O_TMPFILE`) that another rank has gets its first here, and comes here with it.
fn first_name(view: &mut View, op: &Op, to: &End, target: &Held) -> Found<Plan> {
    may(op, &to.above, perm::WRITE)?;
    view.space()?;
    let mut headers = Headers::new();
    let mut core = target.changed(view);
    core.ctime = core.ctime.max(view.wall());
    core.nlink = 1;
    core.flags |= flags::BACKPTR;
    put_primary(view, &to.at, &core, target.ext.as_deref());
    backptr(view, &core, target, (&target.home, &to.at))?;
    delete(view, &target.home);
    count(view, &mut headers, &target.home, (-1, 0), true);
    count(view, &mut headers, &to.at, (1, 0), true);
    headers.emit(view);
    Plan::commit(Reply::Attr(attr_of(&core, target.ext.as_deref(), to.at.dir, to.at.hash)))
}

/// Where an inode is put that gets its second name.
fn place_in_links(view: &mut View, ino: Ino) -> Found<At> {
    let hex = ino.link_name();
    let name = Name::new(&hex).map_err(|_| Errno::EIO)?;
    let hint = match view.territory.of_number(Ino::LINKS) {
        Some(Side::Other(rank)) => rank,
        Some(Side::Mine | Side::Sealed) | None => {
            let slot = view.system(Ino::LINKS)?;
            return Ok(At { rank: None, dir: Ino::LINKS, slot, hash: view.hash(&hex), name });
        }
    };
    let parent = NodeRef::bare(Ino::LINKS);
    let (rank, seen) = view.told(hint, &Part::Name { parent, name, leaves: false, synced: false })?;
    match seen.value.is_empty() {
        true => Ok(there(view, rank, &seen)),
        false if !has_votes(view) => Err(Stop::Park(Park::Votes)),
        false => Err(Errno::EIO.into()),
    }
}

/// Unlink of a name whose inode is another rank's.
pub(crate) fn unlink(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name) -> Found<Plan> {
    begin(view, op)?;
    let planned = plan_unlink(view, op, parent, name);
    certain(view, op, planned)
}

/// A directory is to go. Whether another rank has its content and ends it: that rank reserves all names in it, and there are none. If not,
/// the content has to be here. What was performed is not planned with others.
pub(crate) fn ends_content(view: &mut View, op: &Op, target: u32) -> Found<bool> {
    let core = view.cache.node(target).core;
    if op.told.is_some() || !view.is_boundary(core.ino) {
        return Ok(false);
    }
    let hint = match view.of_itself(core.ino) {
        Some(Side::Other(rank)) => rank,
        Some(Side::Mine | Side::Sealed) | None => None,
    };
    let (placed, newborn) = (is_placed(&core), core.flags & flags::NEWBORN != 0);
    let (rank, seen) = view.told(hint, &Part::Content { dir: core.ino, placed, newborn })?;
    match seen.value.first() {
        None => {
            view.txn.across = true;
            others(view, rank).push(Change::Vacate { dir: core.ino });
            Ok(true)
        }
        Some(&IN_PARTS) => Ok(false),
        // So it was when that was told, and is there yet.
        Some(_) => Err(Errno::ENOTEMPTY.into()),
    }
}

fn plan_unlink(view: &mut View, op: &mut Op, parent: NodeRef, name: &Name) -> Found<Plan> {
    let from = end_here(view, op, parent, name, false)?;
    let held = from.held.as_ref().ok_or(Errno::ENOENT)?;
    may(op, &from.above, perm::WRITE)?;
    perm::sticky_by(op, &from.above.core, &held.core)?;
    let mut headers = Headers::new();
    count(view, &mut headers, &from.at, (-1, 0), true);
    let orphan = lose(view, op, &mut headers, (&from.at, held))?;
    delete(view, &from.at);
    headers.emit(view);
    Ok(Plan::Commit(Reply::Ok, Effects { orphan, ..Default::default() }))
}
