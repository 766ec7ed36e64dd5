//! Rename, with NOREPLACE and EXCHANGE.
//!
//! Absent: WHITEOUT; what takes several ranks (`transactions/across.rs`).

use crate::op::{Effects, Op, Park, Plan, Stop};
use crate::ops::destroy::{Fate, end_holders, lose_name, prepare};
use crate::ops::rmdir::{end_units, is_empty_here};
use crate::ops::{Headers, sync};
use crate::perm;
use crate::transactions::{across, dirs};
use crate::view::{Found, View};
use proto::inode::flags;
use proto::reply::Reply;
use proto::request::rename_flags::{EXCHANGE, NOREPLACE};
use proto::{Errno, Ino, Name, NameHash, NodeRef};

/// One of the two names.
struct End<'a> {
    /// Node of the directory's inode, and its names.
    parent: u32,
    dir: u32,
    ino: Ino,
    hash: NameHash,
    name: &'a [u8],
}

/// A name that exists and the inode behind it.
#[derive(Clone, Copy)]
struct ExistingName {
    slot: u32,
    target: u32,
    is_dir: bool,
}

pub(crate) fn plan(
    view: &mut View,
    op: &mut Op,
    (parent, name): (NodeRef, &Name),
    (new_parent, new_name): (NodeRef, &Name),
    how: u32,
) -> Found<Plan> {
    if how & !(NOREPLACE | EXCHANGE) != 0 || how == NOREPLACE | EXCHANGE {
        return Err(Errno::EINVAL.into());
    }
    if !view.territory.is_only() && of_several(view, op, (parent, name), (new_parent, new_name))? {
        return across::rename(view, op, (parent, name), (new_parent, new_name), how);
    }
    let from = find_end(view, op, parent, name)?;
    let to = find_end(view, op, new_parent, new_name)?;
    let source = held(view, op, &from)?.ok_or(Errno::ENOENT)?;
    let target = held(view, op, &to)?;
    perm::access(view, op, from.parent, perm::WRITE)?;
    perm::access(view, op, to.parent, perm::WRITE)?;
    perm::sticky(view, op, from.parent, source.target)?;
    if let Some(target) = target {
        perm::sticky(view, op, to.parent, target.target)?;
    }
    let exchange = how & EXCHANGE != 0;
    check_shape(view, op, (&from, source), (&to, target), how)?;
    if target.is_some_and(|t| t.target == source.target) {
        return Plan::reply(Reply::Ok);
    }
    for held in [Some(source), target].into_iter().flatten() {
        prepare(view, held.target)?;
    }
    if !view.is_boundary(Ino::LINKS) {
        view.system(Ino::LINKS)?;
    }
    // An entry of the map may divide what governs the two names before this is presented again: such are made without this rank's journal.
    let is_dir = source.is_dir || target.is_some_and(|target| target.is_dir);
    let may_divide = op.told.is_none() && is_dir && from.dir != to.dir && !view.territory.is_only();
    view.txn.across |= may_divide && !stdx::mutant!("mds_directories_move_early");
    let mut headers = Headers::new();
    match target {
        Some(target) if exchange => {
            swap(view, (&from, source), (&to, target), &mut headers);
            headers.emit(view);
            Plan::commit(Reply::Ok)
        }
        _ => {
            if let Some(plan) = sync_first(view, op, source, target)? {
                return Ok(plan);
            }
            let orphan = replace(view, op, (&from, source), (&to, target), &mut headers)?;
            headers.emit(view);
            Ok(Plan::Commit(Reply::Ok, Effects { orphan, ..Default::default() }))
        }
    }
}

/// Whether one of the names, or of their inodes, is another rank's, or a directory would be governed by something else. Whose the new name
/// is leads.
fn of_several(
    view: &mut View,
    op: &mut Op,
    (parent, name): (NodeRef, &Name),
    (new_parent, new_name): (NodeRef, &Name),
) -> Found<bool> {
    let to = match find_end(view, op, new_parent, new_name) {
        Err(Stop::Park(Park::Replica { node, .. }))
            if across::told_itself(view, (parent, name), node.ino).is_some() =>
        {
            return Ok(true);
        }
        to => to?,
    };
    let at = (parent, view.name_hash(name));
    let Ok(from) = view.at_name(op, at, |view, op| find_end(view, op, parent, name))? else {
        return Ok(true);
    };
    // Whoever has everything has not what lost its name elsewhere: a directory that is open there may be called the old one's parent.
    if view.territory.is_undisputed() {
        return Ok(false);
    }
    Ok(is_elsewhere(view, &from)? || is_elsewhere(view, &to)? || is_divided(view, op, &from, &to)?)
}

/// Whether there is a directory among what the names lead to, and what governs the one name does not govern the other.
fn is_divided(view: &mut View, op: &mut Op, from: &End<'_>, to: &End<'_>) -> Found<bool> {
    if from.dir == to.dir {
        return Ok(false);
    }
    let mut is_dir = |end: &End<'_>| {
        let found = view.lookup(end.dir, end.hash, end.name)?;
        Ok::<bool, Stop>(found.is_some_and(|slot| view.cache.node(slot).is_dir()))
    };
    if !is_dir(from)? && !is_dir(to)? {
        return Ok(false);
    }
    let [one, other] = [from, to].map(|end| view.cache.dir(end.dir).ino);
    Ok(dirs::region(view, op, one)? != dirs::region(view, op, other)?)
}

/// Whether the inode of a name is another rank's.
fn is_elsewhere(view: &mut View, end: &End<'_>) -> Found<bool> {
    let found = view.lookup(end.dir, end.hash, end.name)?;
    let remote = found.is_some_and(|slot| !view.cache.node(slot).primary());
    Ok(remote && view.is_boundary(Ino::LINKS))
}

fn find_end<'a>(view: &mut View, op: &mut Op, parent: NodeRef, name: &'a Name) -> Found<End<'a>> {
    let hash = view.name_hash(name);
    let (parent, dir) = view.directory(parent, hash, op)?;
    perm::access(view, op, parent, perm::EXEC)?;
    let ino = view.cache.dir(dir).of();
    Ok(End { parent, dir, ino, hash, name: name.as_bytes() })
}

fn held(view: &mut View, op: &mut Op, end: &End<'_>) -> Found<Option<ExistingName>> {
    let Some(slot) = view.lookup(end.dir, end.hash, end.name)? else { return Ok(None) };
    let target = view.target(slot, op)?;
    Ok(Some(ExistingName { slot, target, is_dir: view.cache.node(target).is_dir() }))
}

/// The rules that depend on what the names lead to.
fn check_shape(
    view: &mut View,
    op: &mut Op,
    (from, source): (&End<'_>, ExistingName),
    (to, target): (&End<'_>, Option<ExistingName>),
    how: u32,
) -> Found<()> {
    if how & EXCHANGE != 0 && target.is_none() {
        return Err(Errno::ENOENT.into());
    }
    if how & NOREPLACE != 0 && target.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if from.ino != to.ino {
        let moved = [(source, to), (target.unwrap_or(source), from)];
        let moves = if how & EXCHANGE != 0 { &moved[..] } else { &moved[..1] };
        for (held, into) in moves {
            if held.is_dir {
                check_loop(view, op, view.cache.node(held.target).ino(), into)?;
                perm::access(view, op, held.target, perm::WRITE)?;
            }
        }
    }
    let Some(target) = target.filter(|t| how & EXCHANGE == 0 && t.target != source.target) else {
        return Ok(());
    };
    match (source.is_dir, target.is_dir) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        (false, false) => Ok(()),
        (true, true) => is_empty_here(view, target.target),
    }
}

/// A directory must not move below itself: walks from its new parent to the root, or to what governs both of its parents. What is above
/// that is above its old parent as well.
fn check_loop(view: &mut View, op: &mut Op, moved: Ino, into: &End<'_>) -> Found<()> {
    if stdx::mutant!("mds_rename_no_loop_check") {
        return Ok(());
    }
    let mut at = view.cache.dir(into.dir).ino;
    while view.cache.outer(at) != Ino::ROOT {
        let of = view.cache.outer(at);
        if of == moved {
            return Err(Errno::EINVAL.into());
        }
        if !view.territory.is_undisputed() && view.of_itself_alone(at).is_some() {
            break;
        }
        if of != at {
            at = of;
            continue;
        }
        let slot = view.resolve(NodeRef::bare(at), op)?;
        at = view.cache.parent_ino(slot);
        if view.cache.outer(at) == Ino::SYSTEM {
            break;
        }
    }
    Ok(())
}

/// Replacing a file by one that was written and not synced would, after a crash, leave neither
/// content: the source's data goes first. Who wrote it may have been a life that died without a sync.
fn sync_first(
    view: &View,
    op: &Op,
    source: ExistingName,
    target: Option<ExistingName>,
) -> Found<Option<Plan>> {
    let replaces = target.is_some_and(|t| view.cache.node(t.target).is_file());
    if !replaces || stdx::mutant!("mds_rename_no_sync") {
        return Ok(None);
    }
    sync::sync_first(view, op, source.target, false)
}

/// Plans that the inode of `held`, named at `from`, is named at `to`.
fn put_at(view: &mut View, from: &End<'_>, held: ExistingName, to: &End<'_>, headers: &mut Headers) {
    let place = view.place_in(to.dir, to.hash, to.name);
    let mut core = view.changed_core(held.target);
    // Who moves it by itself need not know when it changed last.
    core.ctime = core.ctime.max(view.wall());
    if held.slot == held.target {
        if !held.is_dir {
            core.flags |= flags::BACKPTR;
        }
        view.txn.primary(place, &core, view.cache.ext(held.target));
        view.txn.backptr(core.ino, core.change, place);
        return;
    }
    view.txn.remote(place, core.ino, view.cache.node(held.target).kind());
    let home = view.cache.node(held.target).dir;
    let mut ext = view.cache.ext(held.target).cloned().unwrap_or_default();
    match ext.links.iter_mut().find(|link| **link == (from.ino, from.hash)) {
        Some(link) => *link = (to.ino, to.hash),
        None => ext.links.push((to.ino, to.hash)),
    }
    let hex = core.ino.link_name();
    let place = view.place_in(home, view.cache.node(held.target).hash, &hex);
    view.txn.primary(place, &core, Some(&ext));
    headers.add(home, 0, 0, None);
}

fn swap(
    view: &mut View,
    (from, source): (&End<'_>, ExistingName),
    (to, target): (&End<'_>, ExistingName),
    headers: &mut Headers,
) {
    let now = Some(view.wall());
    put_at(view, from, source, to, headers);
    put_at(view, to, target, from, headers);
    let subdirs = i64::from(source.is_dir) - i64::from(target.is_dir);
    headers.add(from.dir, 0, -subdirs, now);
    headers.add(to.dir, 0, subdirs, now);
}

fn replace(
    view: &mut View,
    op: &mut Op,
    (from, source): (&End<'_>, ExistingName),
    (to, target): (&End<'_>, Option<ExistingName>),
    headers: &mut Headers,
) -> Found<Option<Ino>> {
    let now = Some(view.wall());
    headers.add(from.dir, -1, -i64::from(source.is_dir), now);
    headers.add(to.dir, 1, i64::from(source.is_dir), now);
    put_at(view, from, source, to, headers);
    let mut orphan = None;
    if let Some(target) = target {
        headers.add(to.dir, -1, -i64::from(target.is_dir), now);
        if target.is_dir {
            end_units(view, target.target)?;
            let core = view.changed_core(target.target);
            end_holders(view, core.ino);
            view.txn.no_backptr(core.ino, core.change);
        } else if lose_name(view, op, target.target, (to.ino, to.hash), headers)? == Fate::Orphan {
            orphan = Some(view.cache.node(target.target).ino());
        }
    }
    view.txn.delete(view.place_in(from.dir, from.hash, from.name));
    Ok(orphan)
}
