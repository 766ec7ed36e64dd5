//! Open: counts an open; with O_TRUNC cuts the file first.
//!
//! Absent: share modes.

use crate::op::{Effects, Op, Plan};
use crate::ops::setattr::resize;
use crate::perm;
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::request::open_flags::{ACCMODE, RDWR, TRUNC, WRONLY};
use proto::{Errno, FileKind, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, node: NodeRef, flags: u32) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    existing(view, op, slot, flags, false)
}

/// The permission bits that open flags ask for.
pub(crate) const fn rights(how: u32) -> u32 {
    let access = how & ACCMODE;
    let reads = if access == WRONLY { 0 } else { perm::READ };
    let writes = access == WRONLY || access == RDWR || how & TRUNC != 0;
    if writes { reads | perm::WRITE } else { reads }
}

/// Opens an inode that exists. `create`: the answer of a create.
pub(crate) fn existing(view: &mut View, op: &mut Op, slot: u32, how: u32, create: bool) -> Found<Plan> {
    let mask = rights(how);
    let writes = mask & perm::WRITE != 0;
    let kind = view.cache.node(slot).kind();
    match kind {
        FileKind::Symlink => return Err(Errno::ELOOP.into()),
        FileKind::Directory if writes || create => return Err(Errno::EISDIR.into()),
        FileKind::Directory
        | FileKind::Regular
        | FileKind::Fifo
        | FileKind::Character
        | FileKind::Block
        | FileKind::Socket => {}
    }
    perm::access(view, op, slot, mask)?;
    let ino = view.cache.node(slot).ino();
    let open = Some((ino, mask));
    let reply = |attr| if create { Reply::Created { attr, new: false } } else { Reply::Attr(attr) };
    if how & TRUNC == 0 || kind != FileKind::Regular {
        let attr = view.attr(slot)?;
        return Ok(Plan::Answer(Ok(reply(attr)), Effects { open, remember: true, ..Default::default() }));
    }
    let mut core = view.changed_core(slot);
    let cut = match resize(view, op, &mut core, 0)? {
        Ok(cut) => cut,
        Err(plan) => return Ok(plan),
    };
    let now = view.wall();
    (core.mtime, core.ctime) = (now, now);
    view.put_core(slot, &core)?;
    if cut {
        view.txn.cut(&core);
    }
    let parent = view.cache.parent_of(slot);
    let attr = crate::cache::attr_of(&core, view.cache.ext(slot), parent, view.cache.node(slot).hash);
    let effects = Effects { open, truncated: cut.then_some(ino), ..Default::default() };
    Ok(Plan::Commit(reply(attr), effects))
}
