//! Reads, fallocate, seek and server-side copy: planned here, done by the data store.
//!
//! Absent: payloads; writes (`write.rs`); what follows the data store's answer (`finish.rs`).

use crate::caps::check_bytes;
use crate::files::FileState;
use crate::op::{Claim, Next, Op, Park, Plan, Stop};
use crate::ops::setattr::{clean_end, cut_of};
use crate::ops::{both, here};
use crate::perm;
use crate::txn::file_id;
use crate::view::{Found, View};
use proto::inode::InodeCore;
use proto::reply::Reply;
use proto::request::IO_BYTES_MAX;
use proto::request::fallocate::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use proto::storeio::{Buffer, DataOp, Payload};
use proto::{Errno, FileKind, NodeRef};

/// The longest server-side copy of one request; the caller goes on from there.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// A regular file the caller may use with `mask`, and its record.
pub(crate) fn file(view: &mut View, op: &mut Op, node: NodeRef, mask: u32) -> Found<(u32, InodeCore)> {
    let slot = view.resolve(node, op)?;
    let core = view.cache.node(slot).core;
    match FileKind::of_mode(core.mode) {
        Some(FileKind::Regular) => {}
        Some(FileKind::Directory) => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    if op.check && !view.has_open(op.session, core.ino, mask) {
        perm::access(view, op, slot, mask)?;
    }
    Ok((slot, core))
}

/// Waits until a data operation may start.
pub(crate) fn check_claim(view: &View, op: &Op, claim: Claim) -> Found<()> {
    match claim {
        Claim::Shared(ino) | Claim::Exclusive(ino) | Claim::Copy { target: ino, .. }
            if !view.files.may_claim(claim, op.woken) =>
        {
            Err(Stop::Park(Park::File(ino)))
        }
        Claim::Shared(ino) | Claim::Exclusive(ino) | Claim::Copy { target: ino, .. } => {
            check_bytes(view, op, ino)
        }
        // Reading shows what is there, whoever changes it meanwhile.
        Claim::None | Claim::User(_) => Ok(()),
    }
}

/// The end of a range, within what a file may hold.
pub(crate) fn end_of(offset: u64, len: u64) -> Result<u64, Errno> {
    offset.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EFBIG)
}

pub(crate) fn read(
    view: &mut View,
    op: &mut Op,
    node: NodeRef,
    (offset, len): (u64, u32),
    into: &mut Option<Buffer>,
) -> Found<Plan> {
    let (_, core) = file(view, op, node, perm::READ)?;
    let len = u64::from(len).min(IO_BYTES_MAX as u64).min(core.size.saturating_sub(offset));
    if len == 0 {
        return Plan::reply(Reply::Data(Payload::Owned(Vec::new())));
    }
    let (file, cut, len, into) = (file_id(&core), cut_of(&core), len as u32, into.take());
    let data = DataOp::Read { file, cut, offset, len, into };
    Ok(Plan::Data(data, Claim::User(core.ino), Next::Read))
}

pub(crate) fn seek(view: &mut View, op: &mut Op, node: NodeRef, offset: u64, hole: bool) -> Found<Plan> {
    let (_, core) = file(view, op, node, perm::READ)?;
    if offset >= core.size {
        return Err(Errno::ENXIO.into());
    }
    let (file, cut, size) = (file_id(&core), cut_of(&core), core.size);
    let data = DataOp::Seek { file, cut, offset, size, hole };
    Ok(Plan::Data(data, Claim::User(core.ino), Next::Seek))
}

pub(crate) fn fallocate(
    view: &mut View,
    op: &mut Op,
    node: NodeRef,
    mode: u32,
    offset: u64,
    len: u64,
) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    if len == 0 || offset > i64::MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    let zero = match mode {
        0 | KEEP_SIZE => None,
        m if m == PUNCH_HOLE | KEEP_SIZE => Some(true),
        m if m & !KEEP_SIZE == ZERO_RANGE => Some(false),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    match view.cache.node(slot).kind() {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Errno::EISDIR.into()),
        FileKind::Fifo => return Err(Errno::ESPIPE.into()),
        FileKind::Character | FileKind::Block | FileKind::Symlink | FileKind::Socket => {
            return Err(Errno::ENODEV.into());
        }
    }
    let (_, mut core) = file(view, op, node, perm::WRITE)?;
    let end = end_of(offset, len)?;
    if zero != Some(true) {
        view.space()?;
    }
    view.writable(slot)?;
    let claim = Claim::Exclusive(core.ino);
    check_claim(view, op, claim)?;
    let size = if mode & KEEP_SIZE != 0 { core.size } else { core.size.max(end) };
    if size > core.size
        && let Some(plan) = clean_end(view, op, &mut core)?
    {
        return Ok(plan);
    }
    let (file, cut) = (file_id(&core), cut_of(&core));
    let next = Next::Zero { ino: core.ino, size, cut };
    let data = match zero {
        None => DataOp::Allocate { file, cut, offset, len },
        Some(punch) => {
            // Beyond the end there is nothing to clear.
            let len = end.min(core.size).saturating_sub(offset);
            DataOp::Zero { file, cut, offset, len, punch }
        }
    };
    Ok(Plan::Data(data, claim, next))
}

pub(crate) fn copy(
    view: &mut View,
    op: &mut Op,
    (source, source_offset): (NodeRef, u64),
    (target, target_offset): (NodeRef, u64),
    len: u64,
) -> Found<Plan> {
    let from = here(file(view, op, source, perm::READ))?;
    let to = here(file(view, op, target, perm::WRITE))?;
    let ((_, from), (slot, mut to)) = both(from, to)?;
    if from.ino == to.ino
        && source_offset < target_offset.saturating_add(len)
        && target_offset < source_offset.saturating_add(len)
    {
        return Err(Errno::EINVAL.into());
    }
    let len = len.min(COPY_BYTES_MAX).min(from.size.saturating_sub(source_offset));
    let end = end_of(target_offset, len)?;
    if len == 0 {
        let attr = view.attr(slot)?;
        return Plan::reply(Reply::Written { count: 0, attr });
    }
    view.space()?;
    view.writable(slot)?;
    let claim = Claim::Copy { source: from.ino, target: to.ino };
    check_claim(view, op, claim)?;
    // A change of the source that is under way would be half copied; one that waits comes first.
    let changing = |f: &FileState| f.exclusive || f.shared > 0 || !(op.woken || f.queue.is_empty());
    if from.ino != to.ino && view.files.get(from.ino).is_some_and(changing) {
        return Err(Stop::Park(Park::File(from.ino)));
    }
    if end > to.size
        && let Some(plan) = clean_end(view, op, &mut to)?
    {
        return Ok(plan);
    }
    let cut = cut_of(&to);
    let data = DataOp::Copy {
        source: file_id(&from),
        source_cut: cut_of(&from),
        source_offset,
        target: file_id(&to),
        target_cut: cut,
        target_offset,
        len,
    };
    Ok(Plan::Data(data, claim, Next::Copy { ino: to.ino, offset: target_offset, cut }))
}
