//! The one function that changes the namespace: it reads a transaction's mutations from the journal's
//! bytes, whether they were just planned or are being replayed.
//!
//! Absent: planning; anything a mutation does not say.

use crate::cache::dir;
use crate::cache::{Cache, DentryKey, Source};
use crate::recent::{Resource, Touched};
use crate::session::Sessions;
use crate::view::{Purged, View};
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::holder::take_holders;
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::storeio::{Backptr, Cut, DataOp};
use proto::transact::{Left, TxnId, take_decided, take_left, take_reserved};
use proto::unheard::{When, take_unheard};
use proto::{DecodeError, Ino, RankId, Reader};

/// The linkage version of an inode that was just made.
const FIRST: u64 = 1;

/// Work for the data store that follows a transaction.
pub(crate) type Followups = Vec<(DataOp, Option<Ino>)>;

/// Applies all mutations of one transaction. Returns the data operations that must follow once it is
/// durable (none in nearly all cases, so that the vector is not allocated).
pub(crate) fn apply(
    view: &mut View,
    sessions: &mut Sessions,
    muts: &[u8],
    source: Source,
) -> Result<Followups, DecodeError> {
    let mut follow = Followups::new();
    // The directory of a name just put: it has one, so it stays where it is, and its header comes next.
    let mut put_in = None;
    let (mut left, mut without_content) = (Vec::new(), Vec::new());
    for mutation in Mutations::new(muts) {
        let before = std::mem::take(&mut put_in);
        match mutation? {
            Mutation::PutDentry { dir, hash, name, value, .. } => {
                let value = DentryValue::decode(value)?;
                put_in = Some((dir, put_dentry(view, DentryKey { dir, hash, name }, value, source)));
            }
            Mutation::DelDentry { dir, hash, name, .. } => {
                del_dentry(view, DentryKey { dir, hash, name }, source);
            }
            Mutation::PutHeader { dir, newborn, header, .. } => {
                if let Some(touched) = &mut view.touched {
                    touched.headers.push(Resource::Header(view.cache.outer(dir)));
                }
                let known = before.filter(|(put_in, _)| *put_in == dir).map(|(_, slot)| slot);
                let slot = known.unwrap_or_else(|| view.cache.dir_or_new(dir));
                put_header(view, slot, FragHeader::decode(header)?, newborn, source);
            }
            Mutation::PutBackptr { ino, version, parent, hash, name } => {
                put_backptr(view, ino, Backptr { version, parent, hash, name: name.into() });
            }
            Mutation::DelBackptr { ino, version } => inode_gone(view, ino, version, source),
            Mutation::DelPlace { ino, version } => {
                place_gone(view, ino, version);
                without_content.push(ino);
            }
            Mutation::DelContent { dir } => vacated(view, dir, source),
            Mutation::Session { id, open, client } => {
                if !open {
                    view.holders.end_session(id);
                    view.unheard.end_session(id);
                }
                sessions.replay_session(id, open, client, source);
            }
            Mutation::Holders { id, moved, first, list } => {
                view.holders.note(id, moved, first, take_holders(&mut Reader::new(list))?);
            }
            Mutation::HolderGone { session, ino } => view.holders.gone(session, ino),
            Mutation::Unheard { when, list } => unheard(view, when, list)?,
            Mutation::SessionFloor { id, floor } => sessions.set_floor(id, floor),
            Mutation::InoCounter { rank, next } => reserve_numbers(view, rank, next),
            Mutation::DataCut { file, size, truncate_seq } => {
                let cut = Cut { seq: truncate_seq, size };
                follow.push((DataOp::Truncate { file, cut }, Some(file.ino)));
            }
            Mutation::DataRedo { file, truncate_seq, write_seq, data } => {
                view.redone.note(file.ino);
                if source == Source::Replay {
                    let redo = DataOp::Redo { file, truncate_seq, write_seq, data: data.to_vec() };
                    follow.push((redo, None));
                }
            }
            Mutation::DataRemove { file } => {
                view.spent_cuts.remove(&file.ino);
                follow.push((DataOp::Remove { file }, None));
            }
            Mutation::Sealed { unit, .. } => sealed(view, unit.dir, source),
            Mutation::Prepared { id, leader, parts } => reserved(view, (id, leader), parts, source)?,
            Mutation::Committed { id, decided, left: gone } => left = committed(view, id, decided, gone)?,
            Mutation::Resolved { id, left: gone } => left = resolved(view, id, gone)?,
            Mutation::DelegateInos { id, first, count } => sessions.delegate_inos(id, first, count),
            Mutation::SessionFlags { id, flags } => sessions.set_flags(id, flags, source),
        }
    }
    end_transaction(view, &left);
    forget_content(view, &without_content);
    Ok(follow)
}

/// What has no name here any more is gone, or another rank's.
fn end_transaction(view: &mut View, left: &[Ino]) {
    let View { cache, book, .. } = view;
    cache.end_transaction(|ino| if left.contains(&ino) { book.left(ino) } else { book.end(ino) });
    // Neither inode nor content is here: what is known of it counts no more. That slots place it did, when it was gone and its entry with it:
    // it was read from the store, where its names still were.
    if !stdx::mutant!("mds_left_keeps_facts") {
        forget_content(view, left);
    }
}

/// Of directories whose content is another rank's.
fn forget_content(view: &mut View, dirs: &[Ino]) {
    for dir in dirs {
        if let Some(slot) = view.cache.find_dir(*dir) {
            view.cache.drop_dir_if_idle(slot);
        }
    }
}

/// Returns where its directory is cached.
fn put_dentry(view: &mut View, at: DentryKey<'_>, value: DentryValue, source: Source) -> u32 {
    let DentryKey { dir, hash, name } = at;
    let slot = view.cache.dir_or_new(dir);
    if let Some(touched) = &mut view.touched {
        touched.resources.push(Resource::Inode(value.ino()));
        let dir = view.cache.dir(slot).of();
        replaced(&mut view.cache, slot, DentryKey { dir, hash, name }, touched);
    }
    if dir == Ino::LINKS || dir == view.orphans() {
        view.moved.note(value.ino());
    }
    view.cache.put(slot, hash, name, value, source);
    slot
}

/// Numbers of another rank are its own to count.
fn reserve_numbers(view: &mut View, rank: RankId, next: u64) {
    if rank == view.config.rank {
        view.inos.reserved = view.inos.reserved.max(next);
    }
}

fn del_dentry(view: &mut View, at: DentryKey<'_>, source: Source) {
    let DentryKey { dir, hash, name } = at;
    let slot = view.cache.dir_or_new(dir);
    if let Some(touched) = &mut view.touched {
        let dir = view.cache.dir(slot).of();
        replaced(&mut view.cache, slot, DentryKey { dir, hash, name }, touched);
    }
    view.cache.delete(slot, hash, name, source);
}

/// Where the primary dentry of an inode is.
fn put_backptr(view: &mut View, ino: Ino, place: Backptr) {
    view.moved.note(ino);
    view.moved.is_back(ino);
    if view.backptrs.get(&ino).is_none_or(|(known, _)| *known <= place.version) {
        view.backptrs.insert(ino, (place.version, Some(place)));
    }
}

/// The name, and what it led to: a directory that goes must have been empty.
fn replaced(cache: &mut Cache, slot: u32, at: DentryKey<'_>, touched: &mut Touched) {
    let touched = &mut touched.resources;
    touched.push(Resource::Name(at.dir, at.hash));
    if let Some(old) = cache.find(slot, at.hash, at.name)
        && cache.node(old).positive()
    {
        let node = cache.node(old);
        touched.push(Resource::Inode(node.ino()));
        if node.is_dir() {
            touched.push(Resource::Header(node.ino()));
        }
    }
}

fn put_header(view: &mut View, slot: u32, header: FragHeader, newborn: bool, source: Source) {
    let cache = &mut view.cache;
    let (round, checkpointing) = (cache.round, cache.checkpointing);
    let dir = cache.dirs.get_mut(slot);
    // The stored header may not be ahead of the entries: the checkpoint writes this copy.
    if checkpointing && dir.round != round && dir.has(dir::QUEUED) && dir.queued != round {
        // A copy: what is there says below whether the directory is in parts already.
        dir.saved = Some(Box::new(dir.header.clone()));
        if stdx::mutant!("mds_parts_known_in_full") {
            dir.header = FragHeader::default();
        }
    }
    dir.round = round;
    let becomes_spread = header.spreading.is_some() && dir.header.spreading.is_none();
    let is_merged = header.spreading.is_none() && dir.header.spread().is_some();
    if is_merged {
        cache.gather(slot);
        cache.merged.insert(cache.dir(slot).ino);
    }
    let dir = cache.dirs.get_mut(slot);
    let (number, unit) = (dir.ino, header.unit());
    dir.header = header;
    dir.set(dir::HEADER | dir::HEADER_DIRTY);
    if source == Source::Live {
        dir.set(dir::JUMPED);
    } else {
        dir.set(dir::STORED);
    }
    if newborn {
        dir.set(dir::COMPLETE);
    }
    cache.queue_dir(slot);
    let hands_out = match unit {
        Some(unit) => cache.note_spread(number, unit),
        None => {
            if becomes_spread {
                cache.hand_out(slot);
            }
            becomes_spread || is_merged
        }
    };
    if hands_out {
        view.territory.outdate_loads();
    }
}

/// What waits for a transaction of another rank.
#[cold]
fn reserved(
    view: &mut View,
    (id, leader): (TxnId, RankId),
    parts: &[u8],
    source: Source,
) -> Result<(), DecodeError> {
    if source == Source::Replay && stdx::mutant!("mds_prepared_not_replayed") {
        return Ok(());
    }
    view.transactions.prepare(id, leader, take_reserved(&mut Reader::new(parts))?);
    view.territory.reserve(true);
    Ok(())
}

/// A transaction that this rank leads.
#[cold]
fn committed(view: &mut View, id: TxnId, decided: &[u8], left: &[u8]) -> Result<Vec<Ino>, DecodeError> {
    let decided = take_decided(&mut Reader::new(decided))?;
    view.transactions.committed.insert(id, decided);
    gone_to_others(view, id, left)
}

/// One of either that is over.
#[cold]
fn resolved(view: &mut View, id: TxnId, left: &[u8]) -> Result<Vec<Ino>, DecodeError> {
    let gone = gone_to_others(view, id, left)?;
    view.transactions.resolve(id);
    view.territory.reserve(!view.transactions.is_free());
    Ok(gone)
}

/// What clients may not have heard of inodes that leave.
#[cold]
fn unheard(view: &mut View, when: When, list: &[u8]) -> Result<(), DecodeError> {
    view.unheard.note(when, take_unheard(&mut Reader::new(list))?);
    Ok(())
}

/// Their new owner says where they are, and stores it; what this rank has said of it before would be stored over that.
fn gone_to_others(view: &mut View, id: TxnId, left: &[u8]) -> Result<Vec<Ino>, DecodeError> {
    let left = take_left(&mut Reader::new(left))?;
    for Left { ino, parent, hash } in &left {
        let (ino, parent, hash) = (*ino, *parent, *hash);
        if !stdx::mutant!("mds_left_backptr_stored") {
            view.backptrs.remove(&ino);
            view.backptrs_old.remove(&ino);
        }
        view.holders.left(ino);
        view.moved.left(ino, (parent, hash));
        view.moved.note(ino);
    }
    let left: Vec<Ino> = left.iter().map(|left| left.ino).collect();
    view.unheard.over(id, &left);
    Ok(left)
}

/// Another rank may have changed the directory's content since: what the tail said of it before counts no more.
fn sealed(view: &mut View, dir: Ino, source: Source) {
    if source == Source::Replay && !stdx::mutant!("mds_seal_not_replayed") {
        // Of a directory whose names are in units, these are not sealed with it.
        let cache = &view.cache;
        let inside = |place: &Backptr| match stdx::mutant!("mds_seal_takes_units_places") {
            true => place.parent == dir,
            false => cache.inner(place.parent, place.hash) == dir,
        };
        view.backptrs.retain(|_, (_, place)| !place.as_ref().is_some_and(inside));
        view.cache.undo_content(dir);
    }
}

/// An inode is gone: its backptr, and its header if it was a directory.
fn inode_gone(view: &mut View, ino: Ino, version: u64, source: Source) {
    note_end(view, ino);
    let never_stored = content_gone(view, ino, true, source);
    let written = view.backptrs_old.contains_key(&ino) || view.backptrs_writing.contains_key(&ino);
    // The first place that it had: of one that came from another rank the store may have an older one.
    let is_first = |(version, _): &(u64, _)| *version <= FIRST || stdx::mutant!("mds_came_unstored");
    if never_stored && !written && view.backptrs.get(&ino).is_some_and(is_first) {
        view.backptrs.remove(&ino);
        return;
    }
    view.backptrs.insert(ino, (version, None));
}

/// A directory is gone; its content, which another rank ends, told its totals before.
#[cold]
fn place_gone(view: &mut View, ino: Ino, version: u64) {
    note_end(view, ino);
    view.totals.recalled(ino);
    view.backptrs.insert(ino, (version, None));
}

/// Where one rank has everything it is found nowhere at once.
fn note_end(view: &mut View, ino: Ino) {
    if !view.territory.is_undisputed() {
        view.moved.end(ino);
    }
}

/// The content of a directory ends whose inode was another rank's; nobody keeps anything of it any more.
#[cold]
fn vacated(view: &mut View, dir: Ino, source: Source) {
    content_gone(view, dir, false, source);
    view.book.end(dir);
}

/// What was in a directory is gone, with its header. Whether it is known that the store has nothing of it.
fn content_gone(view: &mut View, ino: Ino, at_home: bool, source: Source) -> bool {
    let unit = view.cache.unit(ino);
    // What was asked for before may come to be behind that.
    let is_asked = view.moving == Some(unit) && !stdx::mutant!("mds_announced_outlives_directory");
    let has_entry = view.territory.entry_of(unit).is_some() || view.carving.contains(&ino) || is_asked;
    if has_entry && !stdx::mutant!("mds_purged_keeps_entry") {
        view.purged.push(Purged { unit, at_home });
    }
    let slot = match source {
        Source::Live => view.cache.find_dir(ino),
        Source::Replay => Some(view.cache.dir_or_new(ino)),
    };
    let Some(slot) = slot else { return false };
    let dir = view.cache.dirs.get_mut(slot);
    // Also of one that stays in the cache and of which nothing is to be deleted: nothing may come into it any more.
    dir.set(dir::REMOVED);
    let unknown_to_store = source == Source::Live && !dir.has(dir::STORED) && dir.dirty == 0;
    if unknown_to_store && dir.table.len() == 0 && dir.loads == 0 {
        dir.clear(dir::QUEUED | dir::HEADER_DIRTY);
        view.cache.drop_dir_if_idle(slot);
        return true;
    }
    dir.set(dir::HEADER_DIRTY);
    view.cache.queue_dir(slot);
    false
}
