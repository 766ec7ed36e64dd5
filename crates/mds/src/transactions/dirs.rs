//! Directories that get another parent, where the two parents are not governed by the same. Before that such a directory has an entry
//! of its own; and it must not come below itself. docs/PROTOCOL.md, "Directories that move".
//!
//! | what | who sees to it |
//! |---|---|
//! | an entry of its own | the rank that has its name: `explicit` |
//! | not below itself | the leader, who asks for the way up from the new parent, piece by piece: `way` |
//!
//! Absent: how entries are made (`moves/carve.rs`); everything else about the two names (`across.rs`).

use crate::op::{Op, Park, Stop};
use crate::ops::here;
use crate::territory::is_placed;
use crate::view::{Found, View};
use proto::cluster::ENTRIES_MAX;
use proto::inode::InodeCore;
use proto::request::Request;
use proto::request::rename_flags::EXCHANGE;
use proto::transact::{ITEMS_MAX, Part, Seen};
use proto::{Errno, Ino, NameHash, NodeRef, RankId, Reader, Writer};

/// Directories above each other that are looked at.
pub(crate) const WAY_MAX: usize = 1 << 12;
/// Pieces of ways that are asked for: with the names no more than a rank is asked for at once.
const PIECES_MAX: usize = ITEMS_MAX as usize - 4;

/// Where a way up leads.
pub(super) struct Top {
    /// The moved directory, the root, or a directory whose home is elsewhere; whichever comes first.
    pub dir: Ino,
    /// Where it may be.
    pub hint: Option<RankId>,
    /// The names of the directories that were passed.
    pub passed: Vec<(Ino, NameHash, Ino)>,
}

/// The way up from a directory, as far as homes are here. Nobody else may be about to change it.
pub(super) fn above(view: &mut View, op: &mut Op, from: NodeRef, moved: Ino) -> Found<Top> {
    let (mut at, mut passed) = (from, Vec::new());
    for _ in 0..WAY_MAX {
        if at.ino == moved || at.ino == Ino::ROOT || at.ino.is_reserved() {
            return Ok(Top { dir: at.ino, hint: None, passed });
        }
        // It may be gone from here when that is decided.
        if view.transactions.is_on_the_move(at.ino) {
            return Err(Stop::Park(Park::Reserved));
        }
        match here(view.resolve(at, op))? {
            Err(hint) => return Ok(Top { dir: at.ino, hint, passed }),
            Ok(slot) => {
                let parent = view.cache.parent_of(slot);
                passed.push((parent, view.cache.node(slot).hash, at.ino));
                at = NodeRef::bare(parent);
            }
        }
    }
    Err(Errno::ELOOP.into())
}

/// The directory that a way up leads to, as `above` says, and where it may be.
pub(crate) fn up(view: &mut View, op: &mut Op, from: NodeRef, to: Ino) -> Found<(Ino, Option<RankId>)> {
    let Top { dir, hint, .. } = above(view, op, from, to)?;
    Ok((dir, hint))
}

/// What a rank tells of a way: where it leads, and who may go on.
pub(super) fn seen(top: &Top) -> Found<Seen> {
    let mut value = Writer::new();
    value.option(top.hint.as_ref(), |w, rank| {
        w.u16(rank.0);
    });
    let name = proto::Name::new(&top.dir.link_name()).map_err(|_| Errno::EIO)?;
    Ok(Seen { parent: Box::default(), dir: top.dir, name, value: value.0.into(), holders: Vec::new() })
}

fn hint_of(seen: &Seen) -> Option<RankId> {
    Reader::new(&seen.value).option(|r| r.u16().map(RankId)).ok().flatten()
}

/// The directory `moved` may get a parent: it is not on the way up from there. What ranks told before all is reserved may be of several
/// moments, so that it is no reason to refuse anything.
pub(super) fn way(view: &mut View, op: &mut Op, from: NodeRef, moved: Ino) -> Found<()> {
    if stdx::mutant!("mds_rename_no_loop_check") {
        return Ok(());
    }
    let (mut at, mut named) = (from, None);
    let swaps = matches!(op.request, Request::Rename { flags, .. } if flags & EXCHANGE != 0);
    let pieces_max = if swaps { PIECES_MAX / 2 } else { PIECES_MAX };
    for _ in 0..pieces_max {
        let Top { mut dir, hint, .. } = above(view, op, at, moved)?;
        if dir != moved && dir != Ino::ROOT && !dir.is_reserved() {
            let (_, seen) = view.told(named.or(hint), &Part::Above { node: NodeRef::bare(dir), moved })?;
            view.txn.by_way = true;
            (dir, named) = (seen.dir, hint_of(&seen));
        }
        if dir == moved {
            let told = view.told.as_ref().is_some_and(|told| !told.voted && !told.parts.is_empty());
            return Err(if told { Stop::Park(Park::Votes) } else { Errno::EINVAL.into() });
        }
        if dir == Ino::ROOT || dir.is_reserved() {
            return Ok(());
        }
        at = NodeRef::bare(dir);
    }
    Err(Errno::EXDEV.into())
}

/// A directory has something of its own that says whose its content is, so that its name may go to where something else governs; and
/// keeps it.
pub(crate) fn explicit(view: &mut View, op: &mut Op, slot: u32) -> Found<()> {
    let core = view.cache.node(slot).core;
    let has_entry = view.territory.entry(core.ino).is_some();
    let stays = has_entry && !view.unnaming.contains_key(&core.ino);
    if is_placed(&core) || stays || stdx::mutant!("mds_renamed_without_entry") {
        return Ok(());
    }
    // What governs it is named to the coordinator: so it has to be cached.
    let parent = view.cache.parent_ino(slot);
    region(view, op, parent)?;
    let full = view.territory.map().is_none_or(|map| map.entries.len() >= ENTRIES_MAX);
    // There is no room for one more.
    Err(if full && !has_entry { Errno::EXDEV.into() } else { Stop::Park(Park::Carve(core.ino)) })
}

/// The same of one that another rank has seen to. By an older map it would be this rank's with its name.
pub(super) fn known_explicit(view: &View, core: &InodeCore) -> Found<()> {
    let known = view.territory.entry(core.ino).is_some() || is_placed(core);
    let passes =
        known || stdx::mutant!("mds_entry_not_heard_of") || stdx::mutant!("mds_renamed_without_entry");
    if passes { Ok(()) } else { Err(Stop::Park(Park::Carve(core.ino))) }
}

/// What governs the content of a directory here, or of a unit: the highest directory, or unit, that it inherits from.
pub(crate) fn region(view: &mut View, op: &mut Op, mut content: Ino) -> Found<Ino> {
    for _ in 0..WAY_MAX {
        let unit = view.cache.unit(content);
        if unit.dir != content {
            if view.territory.of_unit(content, unit).is_some() {
                return Ok(content);
            }
            content = unit.dir;
            continue;
        }
        if view.of_itself(content).is_some() {
            return Ok(content);
        }
        let slot = view.resolve(NodeRef::bare(content), op)?;
        if is_placed(&view.cache.node(slot).core) {
            return Ok(content);
        }
        content = view.cache.parent_ino(slot);
    }
    Err(Errno::ELOOP.into())
}
