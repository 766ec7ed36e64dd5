//! What happens to an inode that loses a name: one link less, `//orphans`, or the end.
//!
//! Absent: the name itself; the caller deletes or replaces it.

use crate::cache::node;
use crate::limits;
use crate::op::Op;
use crate::ops::Headers;
use crate::view::{Found, View};
use proto::inode::{InodeCore, LINKS_MAX, flags};
use proto::mutation::Mutation;
use proto::{Ino, NameHash};

/// What the transaction did with the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has other names.
    Linked,
    /// Data and record are gone with this transaction.
    Removed,
    /// It waits in `//orphans`.
    Orphan,
}

/// Everything `lose_name` needs, found before anything is written: parks happen here, but for what is looked at for limited sessions.
pub(crate) fn prepare(view: &View, target: u32) -> Found<()> {
    view.writable(target)?;
    view.system(view.orphans())?;
    Ok(())
}

/// Plans the loss of the name (`parent`, `hash`) of a file. `named`: the caller's own mutation of that
/// name removes the record (a primary dentry); otherwise it is in `//links`.
pub(crate) fn lose_name(
    view: &mut View,
    op: &mut Op,
    target: u32,
    from: (Ino, NameHash),
    headers: &mut Headers,
) -> Found<Fate> {
    let now = view.wall();
    let mut core = view.changed_core(target);
    core.ctime = now;
    let links = view.cache.by_ino(Ino::LINKS).map(|slot| view.cache.node(slot).own);
    let dir = view.cache.node(target).dir;
    let in_links = links == Some(dir);
    if in_links && core.nlink > 1 {
        core.nlink = core.nlink.min(LINKS_MAX) - 1;
        let mut ext = view.cache.ext(target).cloned().unwrap_or_default();
        if let Some(at) = ext.links.iter().position(|link| *link == from) {
            ext.links.swap_remove(at);
        }
        let name = core.ino.link_name();
        let place = view.place_in(dir, view.cache.node(target).hash, &name);
        view.txn.primary(place, &core, Some(&ext));
        headers.add(dir, 0, 0, None);
        return Ok(Fate::Linked);
    }
    let file = view.files.get(core.ino);
    let keep = view.reconnecting
        || file.is_some_and(crate::files::FileState::needs_data)
        || core.size > view.config.limits.inline_remove_bytes;
    let fate = if keep && !stdx::mutant!("mds_unlink_ignores_opens") {
        limits::look_at_last(view, op, core.ino, from.0)?;
        orphan(view, target, core, headers)?;
        Fate::Orphan
    } else {
        end(view, target, &core);
        Fate::Removed
    };
    if in_links {
        let name = view.cache.node(target).ino().link_name();
        let place = view.place_in(dir, view.cache.node(target).hash, &name);
        view.txn.delete(place);
        headers.add(dir, -1, 0, Some(now));
    }
    Ok(fate)
}

fn orphan(view: &mut View, target: u32, mut core: InodeCore, headers: &mut Headers) -> Found<()> {
    let orphans = view.system(view.orphans())?;
    core.nlink = 0;
    // Planned again it may keep its name: then it is looked at there.
    view.files.is_nameless(core.ino);
    let mut ext = view.cache.ext(target).cloned();
    if let Some(ext) = &mut ext {
        ext.links.clear();
    }
    let name = core.ino.link_name();
    let place = view.place_in(orphans, view.hash(&name), &name);
    view.txn.primary(place, &core, ext.as_ref().filter(|ext| !ext.is_empty()));
    headers.add(orphans, 1, 0, Some(view.wall()));
    Ok(())
}

/// Plans the end of an inode: its data (if it ever had any) and its backptr go.
pub(crate) fn end(view: &mut View, slot: u32, core: &InodeCore) {
    let file = core.mode & 0o170_000 == 0o100_000;
    let node = view.cache.node(slot);
    let untouched = node.has(node::END_CLEAN) && !node.has(node::ALLOCATED);
    let empty = core.size == 0 && core.truncate_seq == 0 && untouched;
    let had_data = file && !empty;
    if had_data && !stdx::mutant!("mds_unlink_leaks_data") {
        view.txn.remove(core);
    }
    if core.flags & flags::BACKPTR != 0 {
        view.txn.no_backptr(core.ino, core.change);
    }
    end_holders(view, core.ino);
}

/// Plans the end of what sessions have open and locked of an inode that ends: a file has no opens then, and a directory without a name
/// has nothing to be kept for them. Nobody would find it any more to give them back, and they would hold up all that moves.
pub(crate) fn end_holders(view: &mut View, ino: Ino) {
    let is_locked = view.locks.is_locked(ino) && !stdx::mutant!("mds_locks_outlive_inode");
    let is_open = view.files.get(ino).is_some_and(|file| !file.opens.is_empty());
    if !is_locked && (!is_open || stdx::mutant!("mds_opens_outlive_directory")) {
        return;
    }
    for session in view.holders.sessions_of(ino) {
        Mutation::HolderGone { session, ino }.encode(&mut view.txn.muts);
    }
    view.txn.ended.push(ino);
}
