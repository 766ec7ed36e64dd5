//! Refusals that POSIX does not know, legal while ranks cannot do better: the whole list, so that it can shrink.
//!
//! Absent: errors that a rule gives (`model/rules.rs`).

use super::policies::{Policy, policy_of};
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, Request};
use proto::{Errno, every_request};

/// Whether that is how a request may fail between ranks for now, and why. `is_former`: a rank that lives again remembers an answer about what
/// it is about.
pub(super) const fn legal(request: &Request, errno: Errno, is_former: bool) -> Option<&'static str> {
    match (request, errno) {
        (Request::Rename { .. } | Request::Link { .. }, Errno::EXDEV) if is_former => {
            Some("what an answer of a former life may have opened leaves its rank by no transaction")
        }
        (Request::CopyRange { .. }, Errno::EXDEV) => Some("copy between files of two ranks"),
        (Request::Create { .. }, Errno::EXDEV) => Some(
            "a name of a file with several, at a rank above 0: its client opens it at rank 0, and no caller hears this",
        ),
        (Request::RmDir { .. } | Request::Rename { .. }, Errno::EBUSY) => {
            Some("a boundary's content cannot be handed over now")
        }
        _ => None,
    }
}

/// Errors that a client gives by itself, legal for now, and why.
pub(super) const fn legal_of_client(request: &Request, errno: Errno) -> Option<&'static str> {
    match (request, errno) {
        (Request::Fsync { .. } | Request::SyncFs, Errno::EIO) => {
            Some("a rank died with bytes that were written and not synced")
        }
        _ => None,
    }
}

/// How a lock may fail although there is the file: others have it, or they were waited for in vain.
pub(super) const fn lock_may_fail(request: &Request, errno: Errno) -> bool {
    match request {
        Request::SetLock { lock, .. } if matches!(lock.kind, LockKind::Unlock) => false,
        Request::SetLock { wait: false, .. } => matches!(errno, Errno::EAGAIN),
        Request::SetLock { lock, wait: true, .. } => {
            matches!(errno, Errno::EINTR) || (!lock.flock && matches!(errno, Errno::EDEADLK))
        }
        every_request!() => false,
    }
}

/// How a change of a policy may end besides, and why: it changes nothing in the tree.
pub(super) fn legal_of_policy(request: &Request, outcome: &Outcome) -> Option<&'static str> {
    let policy = policy_of(request)?;
    let takes_away = match request {
        Request::SetXattr { value, .. } => value[..] == b"-1"[..],
        Request::RemoveXattr { .. } => true,
        every_request!() => false,
    };
    match (policy, outcome) {
        (Policy::Pin, Err(Errno::EBUSY)) => Some("something below cannot go along, or moves, now"),
        (Policy::Pin, Ok(Reply::Ok)) if takes_away => {
            Some("a pin taken away of which its inode knew nothing")
        }
        (Policy::Distributed | Policy::Random | Policy::Placement, Err(Errno::EBUSY)) if !takes_away => {
            Some("the coordinator went, and does not say that slots are used")
        }
        _ => None,
    }
}
