//! Limits of sessions: whether what a request names is the directory that its session is limited to, or below it. It is looked at before
//! every planning, by what this rank has and by replicas of directories of others, which are taken back before those get another place:
//! so a rank never goes by a way that is over. docs/PROTOCOL.md, "Limited sessions".
//!
//! Absent: how a session comes by its limit (`session/greeting.rs`); how replicas come and go (`replicas.rs`).

use crate::files::{Looked, Open};
use crate::op::{Op, Park, Stop};
use crate::ops::{here, readdir};
use crate::territory::Side;
use crate::transactions::{across, dirs};
use crate::view::{Found, View};
use proto::inode::InodeExt;
use proto::request::{LockKind, LockSpec, Request};
use proto::{Errno, Ino, Name, NameHash, NodeRef, RankId, SessionId};

/// Parts of a way up that are looked at, each as long as homes are one rank's, and at most 4,096 directories long.
const PIECES_MAX: usize = 256;
/// Different directories that an inode with several names is looked for in.
const LINKS_MAX: usize = 64;

/// The old name of a rename, of which another rank may have told.
type Old<'a> = Option<(NodeRef, &'a Name)>;

/// EACCES unless all that a request names is inside of its session's limit. Notes of one that is not, and is open, that nothing may be granted
/// of it.
pub(crate) fn check(view: &mut View, op: &mut Op, request: &Request) -> Found<()> {
    if op.limit == Ino::NONE || stdx::mutant!("mds_limit_unchecked") {
        return Ok(());
    }
    op.by_open = false;
    let inside = is_inside(view, op, request);
    // What is asked of it is not asked of those above.
    view.resolved = crate::cache::slab::NONE;
    if inside? { Ok(()) } else { Err(Errno::EACCES.into()) }
}

fn is_inside(view: &mut View, op: &mut Op, request: &Request) -> Found<bool> {
    match request {
        Request::Lookup { parent, name }
        | Request::MkNod { parent, name, .. }
        | Request::MkDir { parent, name, .. }
        | Request::Symlink { parent, name, .. }
        | Request::Create { parent, name, .. }
        | Request::Unlink { parent, name }
        | Request::RmDir { parent, name } => {
            let hash = view.name_hash(name);
            content(view, op, *parent, Some(hash), None)
        }
        Request::TmpFile { parent, .. } => content(view, op, *parent, None, None),
        Request::ReadDir { dir, after, .. } => {
            content(view, op, *dir, Some(readdir::first_after(*after)), None)
        }
        Request::Rename { parent, name, new_parent, new_name, .. } => {
            let hash = view.name_hash(new_name);
            let old = Some((*parent, name));
            let first = content(view, op, *new_parent, Some(hash), old)?;
            Ok(first && (stdx::mutant!("mds_limit_first_only") || within(view, op, *parent, old)?))
        }
        Request::Link { node, parent, name } => {
            let hash = view.name_hash(name);
            let first = content(view, op, *parent, Some(hash), None)?;
            Ok(first && (stdx::mutant!("mds_limit_first_only") || links_here(view, op, *node)?))
        }
        Request::CopyRange { source, target, .. } => {
            let first = is_inode_here(view, op, *source)?;
            Ok(first && (stdx::mutant!("mds_limit_first_only") || is_inode_here(view, op, *target)?))
        }
        Request::Fsync { node, .. } => synced(view, op, *node),
        Request::GetAttr { node }
        | Request::SetAttr { node, .. }
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
        | Request::TestLock { node, .. }
        | Request::SetLock { node, lock: LockSpec { kind: LockKind::Read | LockKind::Write, .. }, .. }
        | Request::Access { node, .. }
        | Request::Parent { node }
        | Request::Rewrite { node, .. } => {
            let slot = view.resolve(*node, op)?;
            is_inode(view, op, slot)
        }
        // They give something back, or name nothing.
        Request::Release { .. }
        | Request::ReleaseLocks { .. }
        | Request::SetLock { lock: LockSpec { kind: LockKind::Unlock, .. }, .. }
        | Request::SyncFs
        | Request::StatFs => Ok(true),
        // No client asks for these.
        proto::rank_requests!() => Ok(true),
    }
}

/// A directory whose content, or the part of it that this hash is in, is here.
fn content(view: &mut View, op: &mut Op, dir: NodeRef, hash: Option<NameHash>, old: Old<'_>) -> Found<bool> {
    match view.inode_of_content(dir, hash, op) {
        Ok(_) => within(view, op, dir, old),
        Err(Stop::Park(Park::Replica { node, home })) => needed(view, (node, home), old),
        Err(stop) => Err(stop),
    }
}

/// A replica is needed. Not of a directory that is to come below itself: its home has it reserved with its old name, and gives none while that
/// lasts; and would take back one that was there. That it is inside follows from its old name, which is looked at as well.
fn needed(view: &View, (node, home): (NodeRef, Option<RankId>), old: Old<'_>) -> Found<bool> {
    match old {
        Some(old) if across::told_itself(view, old, node.ino).is_some() => Ok(true),
        Some(_) | None => Err(Stop::Park(Park::Replica { node, home })),
    }
}

/// A directory, wherever it is.
fn within(view: &mut View, op: &mut Op, dir: NodeRef, old: Old<'_>) -> Found<bool> {
    let mut at = dir;
    for _ in 0..PIECES_MAX {
        let (dir, hint) = dirs::up(view, op, at, op.limit)?;
        if dir == op.limit || dir == Ino::ROOT || dir.is_reserved() {
            return Ok(dir == op.limit);
        }
        if stdx::mutant!("mds_limit_ends_at_boundary") {
            return Ok(true);
        }
        match view.cache.by_ino(dir).filter(|_| !view.is_at_home(dir)) {
            Some(replica) => at = NodeRef::bare(view.cache.parent_of(replica)),
            None => {
                let node = if at.ino == dir { at } else { NodeRef::bare(dir) };
                return needed(view, (node, hint), old);
            }
        }
    }
    Err(Errno::ELOOP.into())
}

/// The inode at a node that is at home here.
fn is_inode(view: &mut View, op: &mut Op, slot: u32) -> Found<bool> {
    let (node, parent) = (view.cache.node(slot), view.cache.parent_of(slot));
    let (ino, is_dir) = (node.ino(), node.is_dir());
    if ino == op.limit {
        return Ok(true);
    }
    if is_orphans(parent) {
        return Ok(has_nameless_open(view, op.session, ino));
    }
    let inside = if parent == Ino::LINKS {
        let dirs = named_in(view.cache.ext(slot));
        is_any(view, op, &dirs)?
    } else {
        within(view, op, NodeRef::bare(parent), None)?
    };
    if inside && !is_dir {
        view.files.is_inside(ino, op.session);
    }
    if !inside && !is_dir && has_checked_open(view, op, ino) {
        op.by_open = !stdx::mutant!("mds_open_grants_outside");
        return Ok(true);
    }
    Ok(inside)
}

/// One of two inodes that may be at two ranks: the plan says what becomes of that. Of one that is to get one more name its home looks.
fn is_inode_here(view: &mut View, op: &mut Op, node: NodeRef) -> Found<bool> {
    match here(view.resolve(node, op))? {
        Ok(slot) => is_inode(view, op, slot),
        Err(_) => Ok(true),
    }
}

/// What gets one more name. That it is open is not enough: with a name inside it would stay there.
fn links_here(view: &mut View, op: &mut Op, node: NodeRef) -> Found<bool> {
    let inside = is_inode_here(view, op, node)?;
    Ok(inside && !std::mem::take(&mut op.by_open))
}

/// EACCES unless an inode here, which another rank asks for to give it one more name, is inside of the limit of the session that wants that.
/// As there, that it is open is not enough.
pub(crate) fn check_linked(
    view: &mut View,
    op: &mut Op,
    slot: u32,
    (limit, session): (Ino, SessionId),
) -> Found<()> {
    if limit == Ino::NONE || stdx::mutant!("mds_limit_unchecked") || stdx::mutant!("mds_limit_first_only") {
        return Ok(());
    }
    // The operation is the other rank's, which has no limit itself.
    let own = (std::mem::replace(&mut op.limit, limit), std::mem::replace(&mut op.session, session));
    let inside = is_inode(view, op, slot);
    (op.limit, op.session) = own;
    let by_open = std::mem::take(&mut op.by_open);
    if matches!(inside, Err(Stop::Park(_))) {
        // Whom it waits for may wait for something that is withheld for it.
        view.book.let_go(op.id);
    }
    match inside? && !by_open {
        true => Ok(()),
        // Whoever has it open may not have been back yet: he asks another rank for this.
        false if view.reconnecting && is_orphans(view.cache.parent_of(slot)) => {
            Err(Stop::Park(Park::Reconnect))
        }
        false => Err(Errno::EACCES.into()),
    }
}

/// What a sync names: a directory whose content is here, wherever its inode is, or an inode.
fn synced(view: &mut View, op: &mut Op, node: NodeRef) -> Found<bool> {
    let has_content = !view.territory.is_undisputed()
        && (view.of_itself(node.ino) == Some(Side::Mine) || view.territory.has_unit(node.ino));
    if has_content {
        return within(view, op, node, None);
    }
    let slot = view.resolve(node, op)?;
    is_inode(view, op, slot)
}

/// The directories in which an inode has a name, each once, as far as they are looked at.
fn named_in(ext: Option<&InodeExt>) -> Vec<Ino> {
    let mut dirs = Vec::new();
    for (dir, _) in ext.map_or(&[][..], |ext| &ext.links) {
        if dirs.last() != Some(dir) && !dirs.contains(dir) {
            dirs.push(*dir);
        }
        if dirs.len() == LINKS_MAX {
            break;
        }
    }
    dirs
}

/// Whether one of them is inside. First by what is cached: no other name's rank, which may be down, is waited for then. What the search for
/// one waits for is waited for: it goes on with that one.
fn is_any(view: &mut View, op: &mut Op, dirs: &[Ino]) -> Found<bool> {
    if stdx::mutant!("mds_links_pass_limit") {
        return Ok(true);
    }
    if dirs.iter().any(|dir| is_known_inside(view, op.limit, *dir)) {
        return Ok(true);
    }
    for dir in dirs {
        if within(view, op, NodeRef::bare(*dir), None)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a directory is inside by directories that are all cached, here or as replicas, and that nobody is about to move.
fn is_known_inside(view: &mut View, limit: Ino, dir: Ino) -> bool {
    let mut at = dir;
    for _ in 0..PIECES_MAX {
        if at == limit || at == Ino::ROOT || at.is_reserved() {
            return at == limit;
        }
        let Some(slot) = view.cache.by_ino(at).filter(|_| !view.transactions.is_on_the_move(at)) else {
            return false;
        };
        at = view.cache.parent_of(slot);
    }
    false
}

/// The last name of a file goes, which is in that directory. Of who has it open and has not been looked at it is looked now whether that is
/// inside: later nobody can. What broke: who had something open inside when its rank died, and had not named it since, lost it for ever
/// (EACCES) when anybody removed it. No other rank is waited for: by what is here, and by replicas that are at hand; else it is outside.
pub(crate) fn look_at_last(view: &mut View, op: &mut Op, ino: Ino, dir: Ino) -> Found<()> {
    let mut unlooked = unlooked(view, ino);
    let mut at = dir;
    for _ in 0..dirs::WAY_MAX {
        unlooked.retain(|(session, limit)| {
            let is_inside = *limit == at;
            if is_inside {
                view.files.is_inside(ino, *session);
            }
            !is_inside
        });
        if unlooked.is_empty() {
            return Ok(());
        }
        match above_at_hand(view, op, at)? {
            Some(above) => at = above,
            None => return Ok(()),
        }
    }
    Ok(())
}

/// Who is limited, to what, and has an inode open by what nobody has checked.
fn unlooked(view: &View, ino: Ino) -> Vec<(SessionId, Ino)> {
    if view.limits.is_empty() || stdx::mutant!("mds_last_name_unlooked") {
        return Vec::new();
    }
    let opens = view.files.get(ino).into_iter().flat_map(|file| file.opens.iter());
    let claims = opens.filter(|open| open.rights() == 0 && open.looked != Looked::Inside);
    claims.filter_map(|open| Some((open.session, *view.limits.get(&open.session)?))).collect()
}

/// The directory above, if nobody is about to change that and it is known here.
fn above_at_hand(view: &mut View, op: &mut Op, dir: Ino) -> Found<Option<Ino>> {
    if dir == Ino::ROOT || dir.is_reserved() || view.transactions.is_on_the_move(dir) {
        return Ok(None);
    }
    let slot = match view.resolve(NodeRef::bare(dir), op) {
        Ok(slot) => Some(slot),
        Err(stop @ Stop::Park(Park::Load(_))) => return Err(stop),
        Err(Stop::NotMine(_)) => view.cache.by_ino(dir).filter(|_| !view.is_at_home(dir)),
        Err(Stop::Park(_) | Stop::Fail(_)) => None,
    };
    Ok(slot.map(|slot| view.cache.parent_of(slot)))
}

/// Whether files without a name are there.
fn is_orphans(dir: Ino) -> bool {
    dir.is_reserved() && dir >= Ino::orphans(RankId(0))
}

/// Whether the session has it open since it had a name inside, or none. What it says of a former life of this rank nobody has checked: of a
/// file that had a name since then, and was not found inside by it, that counts for nothing.
fn has_nameless_open(view: &View, session: SessionId, ino: Ino) -> bool {
    let counts = |open: &Open| {
        let claimed = open.rights() == 0 && open.looked == Looked::TooLate;
        open.session == session && (!claimed || stdx::mutant!("mds_claims_outlive_names"))
    };
    view.files.get(ino).is_some_and(|file| file.opens.iter().any(counts))
}

/// Whether the session has it open since it was inside. What it says of a former life of this rank nobody has checked.
fn has_checked_open(view: &View, op: &Op, ino: Ino) -> bool {
    let checked = |open: &Open| open.session == op.session && open.rights() != 0;
    view.files.get(ino).is_some_and(|file| file.opens.iter().any(checked))
}
