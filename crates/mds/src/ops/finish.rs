//! The second half of a data operation: the data store has answered.
//!
//! Absent: the first half (`data.rs`, `write.rs`, `sync.rs`).

use crate::cache::{attr_of, node};
use crate::op::{Next, Op, Plan};
use crate::ops::setattr::{adopt_cut, without_capability};
use crate::perm;
use crate::view::{Found, View};
use proto::every_request;
use proto::reply::{Reply, StatFs};
use proto::request::Request;
use proto::storeio::{Cut, DataDone, StoreError};
use proto::{Errno, Ino};
use stdx::time::SECOND;

/// The errno a data store's failure becomes.
pub(crate) const fn errno_of(error: &StoreError) -> Errno {
    if matches!(error, StoreError::NoSpace) { Errno::ENOSPC } else { Errno::EIO }
}

/// Plans what follows. Never parks: the first half made sure that everything is at hand, and the
/// operation's claim keeps it there.
pub(crate) fn plan(view: &mut View, op: &Op, next: Next, done: DataDone) -> Found<Plan> {
    let cut = next.changed().map(|(_, cut)| cut).unwrap_or_default();
    match (next, done) {
        (Next::Read, DataDone::Bytes(bytes)) => {
            if let Request::Read { node, .. } = &op.request {
                touch(view, node.ino);
            }
            Plan::reply(Reply::Data(bytes))
        }
        (Next::Write { ino, offset, .. }, DataDone::Count(count)) => {
            let kill = match &op.request {
                Request::Write { kill_suidgid, .. } => *kill_suidgid || (op.check && op.cred.uid != 0),
                every_request!() => false,
            };
            if count == 0 {
                return Err(Errno::EIO.into());
            }
            wrote(view, (ino, cut), offset.saturating_add(count), count, kill)
        }
        (Next::Rewrite { ino, len, .. }, DataDone::Count(count)) => {
            // A sync of everything that began meanwhile may have passed it.
            if count < len || view.tail_writes.is_over() {
                view.tail_writes.failed(op.session, ino);
                return Err(Errno::EIO.into());
            }
            changed_bytes(view, ino);
            Plan::reply(Reply::Ok)
        }
        (Next::Zero { ino, size, .. }, DataDone::Count(_) | DataDone::Done) => {
            wrote(view, (ino, cut), size, 0, op.check && op.cred.uid != 0)?;
            view.cache.flag(ino, node::ALLOCATED, 0);
            Plan::commit(Reply::Ok)
        }
        (Next::Copy { ino, offset, .. }, DataDone::Count(count)) => {
            wrote(view, (ino, cut), offset.saturating_add(count), count, op.check && op.cred.uid != 0)
        }
        (Next::Seek, DataDone::Offset(Some(offset))) => Plan::reply(Reply::Offset(offset)),
        (Next::Seek, DataDone::Offset(None)) => Err(Errno::ENXIO.into()),
        (Next::Fsync { .. } | Next::SyncFs, DataDone::Done) => Ok(Plan::Durable(Reply::Ok)),
        (Next::StatFs, DataDone::Space(mut space)) => {
            // What is free then is kept for unlink and checkpoints.
            if view.is_full() {
                space.available = 0;
            }
            let files = view.inos.next.saturating_sub(Ino::FIRST_COUNTER);
            Plan::reply(Reply::StatFs(StatFs { space, files }))
        }
        // An answer to another question; and what is planned again has no second half.
        (
            Next::Read
            | Next::Write { .. }
            | Next::Rewrite { .. }
            | Next::Zero { .. }
            | Next::Copy { .. }
            | Next::Seek
            | Next::Fsync(_)
            | Next::Synced(_)
            | Next::CutDone { .. }
            | Next::SyncFs
            | Next::StatFs,
            _,
        ) => Err(Errno::EIO.into()),
    }
}

/// relatime, in memory only: no record changes because a file was read.
fn touch(view: &mut View, ino: Ino) {
    let now = view.wall();
    let Some(slot) = view.cache.by_ino(ino) else { return };
    let core = &mut view.cache.nodes.get_mut(slot).core;
    let old = now.0.saturating_sub(core.atime.0) > (24 * 3600 * SECOND) as i64;
    if core.atime <= core.mtime || core.atime <= core.ctime || old {
        core.atime = now;
    }
}

/// What was synced is not all any more.
pub(crate) fn changed_bytes(view: &mut View, ino: Ino) {
    view.cache.flag(ino, node::WRITTEN, node::DATA_CLEAN);
    if let Some(file) = view.files.existing(ino) {
        file.writes = file.writes.wrapping_add(1);
    }
}

/// Plans the inode after its data changed up to `end`.
fn wrote(view: &mut View, (ino, cut): (Ino, Cut), end: u64, count: u64, kill: bool) -> Found<Plan> {
    let slot = view.cache.by_ino(ino).ok_or(Errno::EIO)?;
    let mut core = view.changed_core(slot);
    let (now, seq) = (view.wall(), core.truncate_seq);
    adopt_cut(&mut core, cut);
    let new_cut = core.truncate_seq != seq;
    core.size = core.size.max(end);
    (core.mtime, core.ctime) = (now, now);
    let mut ext = None;
    if kill {
        core.mode = perm::kill_suidgid(core.mode);
        ext = without_capability(view.cache.ext(slot));
    }
    match &ext {
        Some(ext) => view.put_inode(slot, &core, Some(ext).filter(|ext| !ext.is_empty()))?,
        None => view.put_core(slot, &core)?,
    }
    if new_cut && !stdx::mutant!("mds_end_cut_unjournaled") {
        view.txn.cut(&core);
    }
    changed_bytes(view, ino);
    let (parent, hash) = (view.cache.parent_of(slot), view.cache.node(slot).hash);
    let attr = attr_of(&core, ext.as_ref().or_else(|| view.cache.ext(slot)), parent, hash);
    Plan::commit(Reply::Written { count, attr })
}
