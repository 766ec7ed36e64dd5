//! What requests change, and what their answers show of names.
//!
//! Absent: what follows from it (`delegations.rs`).

use crate::names::Known;
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags::TRUNC};
use proto::{Attr, FileKind, Ino, NodeRef};
use proto::{
    every_request, locking_requests, looking_requests, naming_requests, rank_requests, syncing_requests,
    writing_requests,
};

/// What a name leads to, seen from its directory.
pub(crate) fn of_attr(dir: Ino, attr: &Attr) -> Known {
    match attr.kind() {
        _ if attr.parent != dir => Known::Unknown,
        FileKind::Directory => Known::Dir(attr.ino),
        FileKind::Regular
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::Character
        | FileKind::Block => {
            if attr.nlink == 1 {
                Known::File(attr.ino)
            } else {
                Known::Unknown
            }
        }
    }
}

/// What is known of a name that a request changed, from its answer. One that was renamed may be there still: a rename between two
/// names of one inode does nothing.
pub(crate) fn after_change(request: &Request, dir: Ino, outcome: &Outcome) -> Known {
    match (request, outcome) {
        (Request::Unlink { .. } | Request::RmDir { .. }, Ok(_)) => Known::Absent,
        (
            Request::Create { .. } | Request::MkNod { .. } | Request::MkDir { .. } | Request::Symlink { .. },
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }),
        ) => of_attr(dir, attr),
        (every_request!(), _) => Known::Unknown,
    }
}

/// Whether a directory may lose its place or its end come by it.
pub(crate) const fn may_move_dirs(request: &Request) -> bool {
    matches!(request, Request::RmDir { .. } | Request::Rename { .. })
}

/// The directory, if it is one, whose own attributes a request changes.
pub(crate) const fn changed_dir(request: &Request) -> Option<Ino> {
    match request {
        Request::SetAttr { node, .. }
        | Request::SetXattr { node, .. }
        | Request::RemoveXattr { node, .. } => Some(node.ino),
        naming_requests!()
        | looking_requests!()
        | writing_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Release { .. }
        | Request::Read { .. }
        | Request::Rewrite { .. } => None,
    }
}

/// The inode whose attributes are the rank's business from this request on. Reading is: it sets the time of access.
pub(crate) const fn touched(request: &Request) -> Option<Ino> {
    let node: &NodeRef = match request {
        Request::SetAttr { node, .. }
        | Request::SetXattr { node, .. }
        | Request::RemoveXattr { node, .. }
        | Request::Link { node, .. }
        | Request::Read { node, .. }
        | Request::Write { node, .. }
        | Request::Fallocate { node, .. } => node,
        Request::CopyRange { target, .. } => target,
        Request::Open { node, flags } if *flags & TRUNC != 0 => node,
        naming_requests!()
        | looking_requests!()
        | locking_requests!()
        | syncing_requests!()
        | rank_requests!()
        | Request::Open { .. }
        | Request::TmpFile { .. }
        | Request::Release { .. }
        | Request::Rewrite { .. } => return None,
    };
    Some(node.ino)
}

/// The file that is delegated no more once a request has gone to the rank: who closes it may have closed it for the last time.
pub(crate) fn ends_file(request: &Request) -> Option<Ino> {
    match request {
        Request::Release { node, .. } if !stdx::mutant!("client_closed_stays_delegated") => Some(node.ino),
        every_request!() => touched(request),
    }
}
