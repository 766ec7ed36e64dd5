//! Refusals that POSIX does not know, legal while ranks cannot do better: the whole list, so that it can shrink.
//!
//! Absent: errors that a rule gives (`model/rules.rs`).

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

/// How a pin may fail: it changes nothing in the tree.
pub(super) const fn pin_may_fail(errno: Errno) -> bool {
    matches!(
        errno,
        // Something below is open, or moves; it is root, or no directory by now.
        Errno::EBUSY | Errno::EINVAL
    )
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

/// Whether a request pins a directory to a rank.
pub(in crate::ranks) fn is_pin(request: &Request) -> bool {
    match request {
        Request::SetXattr { name, .. } => name.as_bytes() == super::super::PIN,
        every_request!() => false,
    }
}
