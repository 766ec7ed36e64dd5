//! By which place the rank of a request is found. One table, reviewed as data; docs/PROTOCOL.md, "Several ranks".
//!
//! Absent: who owns a place (`map.rs`).

use proto::request::Request;
use proto::{Name, NameHash, NodeRef};
use proto::{every_request, rank_requests};
use stdx::hash::HashSeed;

/// What says whose a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A name in a directory, or its listing: whose that directory's content is, and if that is spread, whose the part with this
    /// hash.
    Inside(NodeRef, Option<NameHash>),
    /// An inode: whose the content of the directory is that it is in.
    Home(NodeRef),
    /// It is the same everywhere.
    Any,
    /// It is for all that the session is with.
    All,
}

/// The table. Where two places are concerned that one decides where something new will be.
pub(crate) fn of(request: &Request, seed: Option<&HashSeed>) -> Place {
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
        | Request::ReadDir { dir: parent, .. } => Place::Inside(*parent, hash_of(request, seed)),
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

/// The hash of what a request is about in its directory, which says whose it is where that is spread; `seed`: that of name hashes, if
/// it is known. None: it is not known, or the request is about no name.
fn hash_of(request: &Request, seed: Option<&HashSeed>) -> Option<NameHash> {
    let name: &Name = match request {
        Request::Lookup { name, .. }
        | Request::MkNod { name, .. }
        | Request::MkDir { name, .. }
        | Request::Symlink { name, .. }
        | Request::Create { name, .. }
        | Request::Unlink { name, .. }
        | Request::RmDir { name, .. }
        | Request::Link { name, .. }
        | Request::Rename { new_name: name, .. } => name,
        Request::ReadDir { after, .. } => return after.checked_add(1).map(NameHash::from_cookie),
        every_request!() => return None,
    };
    seed.map(|seed| name.hash(seed))
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
            (Request::Create { parent: a, name: name(), new: new(), flags: 0 }, Place::Inside(a, None)),
            (Request::TmpFile { parent: a, new: new(), flags: 0 }, Place::Inside(a, None)),
            (
                Request::ReadDir { dir: a, after: 70, attrs: true, bytes_max: 9 },
                Place::Inside(a, Some(NameHash(142))),
            ),
            (rename, Place::Inside(b, None)),
            (Request::Link { node: b, parent: a, name: name() }, Place::Inside(a, None)),
            (copy, Place::Home(b)),
            (Request::GetAttr { node: a }, Place::Home(a)),
            (Request::Fsync { node: a, data_only: false }, Place::Home(a)),
            (Request::SyncFs, Place::All),
            (Request::StatFs, Place::Any),
        ];
        for (request, place) in rows {
            assert_eq!(of(&request, None), place, "{}", request.kind().name());
        }
        let seed = HashSeed([1; 16]);
        let request = Request::Lookup { parent: a, name: name() };
        assert_eq!(of(&request, Some(&seed)), Place::Inside(a, Some(name().hash(&seed))));
    }
}
