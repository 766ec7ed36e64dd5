//! The one function that changes the namespace: it reads a transaction's mutations from the journal's
//! bytes, whether they were just planned or are being replayed.
//!
//! Absent: planning; anything a mutation does not say.

use crate::cache::dir;
use crate::cache::{Cache, DentryKey, Source};
use crate::recent::{Resource, Touched};
use crate::session::Sessions;
use crate::view::View;
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::storeio::{Backptr, Cut, DataOp};
use proto::{DecodeError, Ino};

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
    for mutation in Mutations::new(muts) {
        let before = std::mem::take(&mut put_in);
        match mutation? {
            Mutation::PutDentry { dir, hash, name, value, .. } => {
                let value = DentryValue::decode(value)?;
                let slot = view.cache.dir_or_new(dir);
                if let Some(touched) = &mut view.touched {
                    touched.resources.push(Resource::Inode(value.ino()));
                    replaced(&mut view.cache, slot, DentryKey { dir, hash, name }, touched);
                }
                if dir == Ino::LINKS || dir == view.orphans() {
                    view.moved.note(value.ino());
                }
                view.cache.put(slot, hash, name, value, source);
                put_in = Some((dir, slot));
            }
            Mutation::DelDentry { dir, hash, name, .. } => {
                let slot = view.cache.dir_or_new(dir);
                if let Some(touched) = &mut view.touched {
                    replaced(&mut view.cache, slot, DentryKey { dir, hash, name }, touched);
                }
                view.cache.delete(slot, hash, name, source);
            }
            Mutation::PutHeader { dir, newborn, header, .. } => {
                if let Some(touched) = &mut view.touched {
                    touched.headers.push(Resource::Header(dir));
                }
                let known = before.filter(|(put_in, _)| *put_in == dir).map(|(_, slot)| slot);
                let slot = known.unwrap_or_else(|| view.cache.dir_or_new(dir));
                put_header(view, slot, FragHeader::decode(header)?, newborn, source);
            }
            Mutation::PutBackptr { ino, version, parent, hash, name } => {
                view.moved.note(ino);
                let newer = view.backptrs.get(&ino).is_none_or(|(known, _)| *known <= version);
                if newer {
                    let place = Backptr { version, parent, hash, name: name.into() };
                    view.backptrs.insert(ino, (version, Some(place)));
                }
            }
            Mutation::DelBackptr { ino, version } => inode_gone(view, ino, version, source),
            Mutation::Session { id, open, client } => sessions.replay_session(id, open, client, source),
            Mutation::SessionFloor { id, floor } => sessions.set_floor(id, floor),
            Mutation::InoCounter { rank, next } if rank == view.config.rank => {
                view.inos.reserved = view.inos.reserved.max(next);
            }
            // Numbers of another rank: they are its own to count.
            Mutation::InoCounter { .. } => {}
            Mutation::DataCut { file, size, truncate_seq } => {
                let cut = Cut { seq: truncate_seq, size };
                follow.push((DataOp::Truncate { file, cut }, Some(file.ino)));
            }
            Mutation::DataRedo { file, truncate_seq, write_seq, data } => {
                if source == Source::Replay {
                    let data = data.to_vec();
                    follow.push((DataOp::Redo { file, truncate_seq, write_seq, data }, None));
                }
            }
            Mutation::DataRemove { file } => follow.push((DataOp::Remove { file }, None)),
            Mutation::DelegateInos { id, first, count } => sessions.delegate_inos(id, first, count),
            Mutation::SessionFlags { id, flags } => sessions.set_flags(id, flags, source),
        }
    }
    let book = &mut view.book;
    view.cache.end_transaction(|ino| book.end(ino));
    Ok(follow)
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
        dir.saved = Some(Box::new(std::mem::take(&mut dir.header)));
    }
    dir.round = round;
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
}

/// An inode is gone: its backptr, and its header if it was a directory.
fn inode_gone(view: &mut View, ino: Ino, version: u64, source: Source) {
    let slot = match source {
        Source::Live => view.cache.find_dir(ino),
        Source::Replay => Some(view.cache.dir_or_new(ino)),
    };
    let Some(slot) = slot else {
        view.backptrs.insert(ino, (version, None));
        return;
    };
    let dir = view.cache.dirs.get_mut(slot);
    let unknown_to_store = source == Source::Live && !dir.has(dir::STORED) && dir.dirty == 0;
    if unknown_to_store && dir.table.len() == 0 && dir.loads == 0 {
        dir.clear(dir::QUEUED | dir::HEADER_DIRTY);
        view.cache.drop_dir_if_idle(slot);
        let written = view.backptrs_old.contains_key(&ino) || view.backptrs_writing.contains_key(&ino);
        if !written && view.backptrs.remove(&ino).is_some() {
            return;
        }
    } else {
        dir.set(dir::REMOVED | dir::HEADER_DIRTY);
        view.cache.queue_dir(slot);
    }
    view.backptrs.insert(ino, (version, None));
}
