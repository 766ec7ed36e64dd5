//! Who may do what, for sessions whose kernel does not check: mode bits, ACLs, ownership, sticky
//! directories. Every function answers `Ok` at once for a session that is trusted.
//!
//! Absent: the ACL format (`acl.rs`); capabilities other than "is uid 0".

use crate::acl;
use crate::op::Op;
use crate::view::View;
use proto::inode::{InodeCore, InodeExt};
use proto::{Cred, Errno, SetAttr};

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXEC: u32 = 1;

/// Checks `mask` on a primary node for the request's caller.
pub(crate) fn access(view: &View, op: &Op, slot: u32, mask: u32) -> Result<(), Errno> {
    if op.check { allowed(view, &op.cred, slot, mask) } else { Ok(()) }
}

/// Whether `cred` has `mask` on a primary node.
pub(crate) fn allowed(view: &View, cred: &Cred, slot: u32, mask: u32) -> Result<(), Errno> {
    allowed_by((&view.cache.node(slot).core, view.cache.ext(slot)), cred, mask)
}

/// The same by an inode's record.
pub(crate) fn allowed_by(
    (core, ext): (&InodeCore, Option<&InodeExt>),
    cred: &Cred,
    mask: u32,
) -> Result<(), Errno> {
    if cred.uid == 0 {
        // The superuser may execute a file only if someone may.
        let executable = core.mode & 0o170_000 == 0o040_000 || core.mode & 0o111 != 0;
        return if mask & EXEC == 0 || executable { Ok(()) } else { Err(Errno::EACCES) };
    }
    let granted = match ext.and_then(|ext| acl::stored(ext, acl::ACCESS)) {
        Some(acl) if cred.uid != core.uid => acl.permits(cred, core.gid, core.mode, mask),
        _ => mode_permits(cred, core.uid, core.gid, core.mode, mask),
    };
    if granted || stdx::mutant!("mds_no_permission_check") { Ok(()) } else { Err(Errno::EACCES) }
}

fn mode_permits(cred: &Cred, uid: u32, gid: u32, mode: u32, mask: u32) -> bool {
    let shift = match () {
        () if cred.uid == uid => 6,
        () if cred.in_group(gid) => 3,
        () => 0,
    };
    (mode >> shift) & mask == mask
}

/// Changing names in a directory.
pub(crate) fn modify(view: &View, op: &Op, dir: u32) -> Result<(), Errno> {
    access(view, op, dir, WRITE | EXEC)
}

/// Removing or renaming `target` out of a sticky directory takes the owner of either.
pub(crate) fn sticky(view: &View, op: &Op, dir: u32, target: u32) -> Result<(), Errno> {
    sticky_by(op, &view.cache.node(dir).core, &view.cache.node(target).core)
}

/// The same by their records.
pub(crate) fn sticky_by(op: &Op, parent: &InodeCore, target: &InodeCore) -> Result<(), Errno> {
    if !op.check || parent.mode & 0o1000 == 0 || stdx::mutant!("mds_no_sticky") {
        return Ok(());
    }
    let uid = op.cred.uid;
    let owner = uid == 0 || uid == parent.uid || uid == target.uid;
    if owner { Ok(()) } else { Err(Errno::EPERM) }
}

/// The owner or the superuser.
pub(crate) fn owner(view: &View, op: &Op, slot: u32) -> Result<(), Errno> {
    let uid = view.cache.node(slot).core.uid;
    if !op.check || op.cred.uid == 0 || op.cred.uid == uid { Ok(()) } else { Err(Errno::EPERM) }
}

/// What a setattr asks for.
pub(crate) fn setattr(view: &View, op: &Op, slot: u32, set: &SetAttr) -> Result<(), Errno> {
    if !op.check || op.cred.uid == 0 {
        return Ok(());
    }
    let core = view.cache.node(slot).core;
    let is_owner = op.cred.uid == core.uid;
    if set.uid.is_some_and(|uid| !is_owner || uid != core.uid) {
        return Err(Errno::EPERM);
    }
    if set.gid.is_some_and(|gid| !is_owner || (gid != core.gid && !op.cred.in_group(gid))) {
        return Err(Errno::EPERM);
    }
    if set.mode.is_some() && !is_owner {
        return Err(Errno::EPERM);
    }
    if set.size.is_some() && !view.has_open(op.session, core.ino, WRITE) {
        access(view, op, slot, WRITE)?;
    }
    let explicit = [set.atime, set.mtime].iter().flatten().any(|t| matches!(t, proto::attr::SetTime::At(_)));
    let touched = set.atime.is_some() || set.mtime.is_some();
    match (touched && set.size.is_none(), explicit, is_owner) {
        (true, true, false) => Err(Errno::EPERM),
        (true, false, false) => access(view, op, slot, WRITE),
        _ => Ok(()),
    }
}

/// Drops what a write or a change of owner by anyone takes away: setuid, and setgid where the group
/// may execute.
pub(crate) const fn kill_suidgid(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o2010 == 0o2010 { mode & !0o2000 } else { mode }
}
