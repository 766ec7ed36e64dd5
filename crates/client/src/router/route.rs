//! By which place the rank of a request is found. One table, reviewed as data; docs/PROTOCOL.md, "Several ranks".
//!
//! Absent: who owns a place (`map.rs`).

use proto::NodeRef;
use proto::rank_requests;
use proto::request::Request;

/// What says whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A name in a directory, or its listing: whose that directory's content is.
    Inside(NodeRef),
    /// An inode: whose the content of the directory is that it is in.
    Home(NodeRef),
    /// It is the same everywhere.
    Any,
    /// It is for all that the session is with.
    All,
}

/// The table. Where two places are concerned that one decides where something new will be.
pub(crate) const fn of(request: &Request) -> Place {
    match request {
        Request::Lookup { parent, .. }
        | Request::MkNod { parent, .. }
        | Request::MkDir { parent, .. }
        | Request::Symlink { parent, .. }
        | Request::Create { parent, .. }
        | Request::TmpFile { parent, .. }
        | Request::Unlink { parent, .. }
        | Request::RmDir { parent, .. }
        | Request::Link { parent, .. }
        | Request::Rename { new_parent: parent, .. }
        | Request::ReadDir { dir: parent, .. } => Place::Inside(*parent),
        Request::GetAttr { node }
        | Request::SetAttr { node, .. }
        | Request::ReadLink { node }
        | Request::Open { node, .. }
        | Request::Release { node, .. }
        | Request::Read { node, .. }
        | Request::Write { node, .. }
        | Request::Fallocate { node, .. }
        | Request::Seek { node, .. }
        | Request::CopyRange { target: node, .. }
        | Request::Fsync { node, .. }
        | Request::GetXattr { node, .. }
        | Request::ListXattr { node }
        | Request::SetXattr { node, .. }
        | Request::RemoveXattr { node, .. }
        | Request::TestLock { node, .. }
        | Request::SetLock { node, .. }
        | Request::ReleaseLocks { node, .. }
        | Request::Access { node, .. }
        | Request::Parent { node }
        | Request::Rewrite { node, .. } => Place::Home(*node),
        Request::SyncFs => Place::All,
        // What ranks ask each other no caller asks; whichever rank hears it refuses it.
        Request::StatFs | rank_requests!() => Place::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::request::NewNode;
    use proto::{Ino, Name};

    /// The rows of docs/PROTOCOL.md in which something is chosen.
    #[test]
    fn the_table_is_what_the_protocol_says() {
        let (a, b) = (NodeRef::bare(Ino(5000)), NodeRef::bare(Ino(6000)));
        let name = || Name::new(b"name").unwrap();
        let new = || NewNode { mode: 0, umask: 0, rdev: 0 };
        let rename = Request::Rename { parent: a, name: name(), new_parent: b, new_name: name(), flags: 0 };
        let copy = Request::CopyRange { source: a, source_offset: 0, target: b, target_offset: 0, len: 1 };
        let rows = [
            (Request::Create { parent: a, name: name(), new: new(), flags: 0 }, Place::Inside(a)),
            (Request::TmpFile { parent: a, new: new(), flags: 0 }, Place::Inside(a)),
            (Request::ReadDir { dir: a, after: 70, attrs: true, bytes_max: 9 }, Place::Inside(a)),
            (rename, Place::Inside(b)),
            (Request::Link { node: b, parent: a, name: name() }, Place::Inside(a)),
            (copy, Place::Home(b)),
            (Request::GetAttr { node: a }, Place::Home(a)),
            (Request::Fsync { node: a, data_only: false }, Place::Home(a)),
            (Request::SyncFs, Place::All),
            (Request::StatFs, Place::Any),
        ];
        for (request, place) in rows {
            assert_eq!(of(&request), place, "{}", request.kind().name());
        }
    }
}
