//! Lock requests.
//!
//! Absent: the tables (`locks.rs`).

use crate::locks::LockOutcome;
use crate::op::{Effects, Op, Park, Plan, Stop};
use crate::view::{Found, View};
use proto::reply::Reply;
use proto::request::{LockKind, LockSpec};
use proto::{Errno, Ino, NodeRef, SessionId};

pub(crate) fn test(view: &mut View, op: &mut Op, node: NodeRef, lock: &LockSpec) -> Found<Plan> {
    view.resolve(node, op)?;
    // Whose locks these are is not known before all have reclaimed theirs.
    if view.reconnecting {
        return Err(Stop::Park(Park::Reconnect));
    }
    let conflict = view.locks.test(node.ino, op.session, lock);
    Plan::reply(Reply::Lock(conflict))
}

pub(crate) fn set(view: &mut View, op: &mut Op, node: NodeRef, lock: &LockSpec, wait: bool) -> Found<Plan> {
    view.resolve(node, op)?;
    if lock.start > lock.end {
        return Err(Errno::EINVAL.into());
    }
    let effects = Effects { remember: true, ..Default::default() };
    let limits = view.config.limits.locks();
    if lock.kind == LockKind::Unlock {
        view.locks.unlock(node.ino, op.session, lock, limits)?;
        return Ok(Plan::Answer(Ok(Reply::Ok), effects));
    }
    if view.reconnecting && !stdx::mutant!("mds_lock_in_reconnect") {
        return Err(Stop::Park(Park::Reconnect));
    }
    match view.locks.set(node.ino, op.session, op.id, lock, wait, limits) {
        LockOutcome::Yes => Ok(Plan::Answer(Ok(Reply::Ok), effects)),
        LockOutcome::Waits => Ok(Plan::Queued),
        LockOutcome::No(errno) => Err(errno.into()),
    }
}

/// Drops an owner's locks on one inode.
pub(crate) fn release(view: &mut View, session: SessionId, ino: Ino, flock: bool, owner: u64) -> Plan {
    view.locks.release_owner(ino, session, flock, owner);
    Plan::Answer(Ok(Reply::Ok), Effects { remember: true, ..Default::default() })
}
