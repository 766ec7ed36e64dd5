//! One reply against one state: what it must be, show and list.
//!
//! Absent: which states it may show (`answers.rs`), bytes (`data.rs`).

use super::Verdict;
use crate::model::rules::Answer;
use crate::model::tree::Tree;
use proto::attr::FileKind;
use proto::name::name_hash;
use proto::reply::{DirEntry, Reply};
use proto::request::Request;
use proto::{Attr, Ino};
use std::collections::BTreeSet;
use std::rc::Rc;
use stdx::Wall;
use stdx::hash::HashSeed;

/// Who tells of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// At that moment.
    Rank(Wall),
    /// It knows no counters, no times of access, and no places of what others moved.
    Client,
}

impl Teller {
    fn same(self, wanted: &Attr, found: &Attr) -> Verdict {
        match self {
            Self::Rank(wall) => rank_attr(wanted, found, wall),
            Self::Client => same_attr(wanted, found),
        }
    }
}

/// One reply against what the rules say it must show.
pub(crate) fn check_reply(tree: &Tree, answer: &Answer, reply: &Reply, teller: Teller) -> Verdict {
    let attr_of = |ino: &Ino, attr: &Attr| match tree.node(*ino) {
        Some(node) => teller.same(&tree.attr(node), attr),
        None => Err(format!("inode {} is gone", ino.0)),
    };
    match (answer, reply) {
        (Answer::Ok, Reply::Ok)
        | (Answer::Rewritten, Reply::Ok | Reply::Written { .. })
        | (Answer::Data, Reply::Data(_))
        | (Answer::Entries, Reply::Entries { .. } | Reply::Further(_))
        | (Answer::Offset, Reply::Offset(_))
        | (Answer::Lock, Reply::Lock(_))
        | (Answer::StatFs, Reply::StatFs(_)) => Ok(()),
        (Answer::Attr(ino), Reply::Attr(attr)) => attr_of(ino, attr),
        // A file without a name may be told of either way.
        (Answer::Attr(ino), Reply::Created { attr, new: true }) => attr_of(ino, attr),
        (Answer::Created { ino, new }, Reply::Created { attr, new: found }) if new == found => {
            attr_of(ino, attr)
        }
        (Answer::Target(target), Reply::Target(found)) if target[..] == found[..] => Ok(()),
        (Answer::Written { ino, count }, Reply::Written { attr, count: found }) if count == found => {
            attr_of(ino, attr)
        }
        (Answer::Xattr(value), Reply::Xattr(found)) if value[..] == found[..] => Ok(()),
        (Answer::Names(names), Reply::XattrNames(found)) => {
            let found: BTreeSet<&[u8]> = found.split(|b| *b == 0).filter(|name| !name.is_empty()).collect();
            let names: BTreeSet<&[u8]> = names.iter().map(|name| &name[..]).collect();
            if names == found { Ok(()) } else { Err("xattr names differ".into()) }
        }
        (Answer::Node { parent }, Reply::Node(node)) if node.ino == *parent => match tree.node(*parent) {
            Some(dir) if matches!(teller, Teller::Rank(_)) && (node.parent, node.hash) != dir.home => {
                Err(format!("parent at {node:?} instead of {:?}", dir.home))
            }
            _ => Ok(()),
        },
        _ => Err(format!("must answer {answer:?}")),
    }
}

/// A page of a listing holds every name from its start to its end, once.
pub(crate) fn check_listing(
    seed: &HashSeed,
    tree: &Tree,
    request: &Request,
    reply: &Reply,
    teller: Teller,
) -> Verdict {
    let Request::ReadDir { dir, after, .. } = request else { return Ok(()) };
    let (entries, end, until) = match reply {
        Reply::Entries { entries, end } => {
            (&entries[..], end, entries.last().map_or(*after, |entry| entry.hash.cookie()))
        }
        // Nothing so far.
        Reply::Further(until) if until > after => (&[][..], &false, *until),
        Reply::Further(_) => return Err("a listing does not go on".into()),
        _ => return Ok(()),
    };
    let Some(node) = tree.node(dir.ino) else { return Err("lists a directory that is gone".into()) };
    let mut all: Vec<(u64, Rc<[u8]>, Ino)> =
        node.entries.iter().map(|(name, ino)| (name_hash(seed, name).0, name.clone(), *ino)).collect();
    all.sort();
    let expected = all.iter().filter(|(hash, ..)| hash >> 1 > *after && (*end || hash >> 1 <= until));
    let expected: Vec<_> = expected.collect();
    if entries.is_empty() && !*end && until == *after {
        return Err("an empty page that is not the last".into());
    }
    if expected.len() != entries.len() {
        return Err(format!("a page of {} names instead of {}", entries.len(), expected.len()));
    }
    for ((hash, name, ino), entry) in expected.into_iter().zip(entries) {
        if (*hash, &name[..], *ino) != (entry.hash.0, &entry.name[..], entry.ino) {
            return Err(format!("lists {} instead of {}", entry.name.escape_ascii(), name.escape_ascii()));
        }
        check_entry(tree, entry, teller)?;
    }
    Ok(())
}

fn check_entry(tree: &Tree, entry: &DirEntry, teller: Teller) -> Verdict {
    let Some(node) = tree.node(entry.ino) else { return Err("lists an inode that is gone".into()) };
    if node.kind() != entry.kind {
        return Err(format!("lists {} as {:?}", entry.name.escape_ascii(), entry.kind));
    }
    match &entry.attr {
        Some(attr) => teller.same(&tree.attr(node), attr),
        None => Ok(()),
    }
}

/// Attributes as the rank tells them.
pub(crate) fn rank_attr(wanted: &Attr, found: &Attr, now: Wall) -> Verdict {
    same_attr(wanted, found)?;
    let rest = |a: &Attr| (a.parent, a.hash, a.change);
    // Reading a file sets the time of the last access in the rank's memory only, some time before it is answered.
    let was_read = found.kind() == FileKind::Regular && found.atime <= now;
    if rest(wanted) == rest(found) && (wanted.atime == found.atime || was_read) {
        return Ok(());
    }
    Err(format!("place, change or time of access of {found:?} instead of {wanted:?}"))
}

/// Attributes as anybody tells them.
pub(crate) fn same_attr(wanted: &Attr, found: &Attr) -> Verdict {
    let key = |a: &Attr| (a.ino, a.generation, a.mode, a.nlink, a.uid, a.gid, a.rdev, a.size, a.blocks);
    let times = |a: &Attr| (a.mtime, a.ctime, a.btime, a.has_xattrs);
    if key(wanted) == key(found) && times(wanted) == times(found) {
        return Ok(());
    }
    Err(format!("attributes {found:?} instead of {wanted:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::NameHash;

    const NOW: Wall = Wall(100);

    /// A file system with one file, and its attributes.
    fn file() -> (Tree, Attr) {
        let mut tree = Tree::fresh(Wall(1));
        let mut node = crate::model::tree::Node::new(Ino(7), FileKind::Regular.mode_bits() | 0o644, Wall(2));
        (node.size, node.home, node.change) = (1000, (Ino::ROOT, NameHash(3)), 9);
        let attr = tree.attr(&node);
        tree.change(Ino::ROOT).entries.insert(Rc::from(&b"f"[..]), node.ino);
        tree.nodes.insert(node.ino, Rc::new(node));
        (tree, attr)
    }

    #[test]
    fn the_rank_may_tell_of_nothing_but_the_access_otherwise() {
        let (tree, attr) = file();
        let told =
            |attr: Attr, teller| check_reply(&tree, &Answer::Attr(attr.ino), &Reply::Attr(attr), teller);
        let wrong = [
            (Attr { parent: Ino(8), ..attr }, true),
            (Attr { hash: NameHash(4), ..attr }, true),
            (Attr { change: 8, ..attr }, true),
            (Attr { atime: Wall(101), ..attr }, true),
            (Attr { blocks: 1, ..attr }, false),
            (Attr { size: 1001, ..attr }, false),
            (Attr { mtime: Wall(3), ..attr }, false),
            (Attr { nlink: 2, ..attr }, false),
        ];
        assert_eq!((attr.blocks, told(attr, Teller::Rank(NOW))), (2, Ok(())));
        assert_eq!(told(Attr { atime: NOW, ..attr }, Teller::Rank(NOW)), Ok(()), "it was read");
        for (other, clients) in wrong {
            assert!(told(other, Teller::Rank(NOW)).is_err(), "{other:?}");
            assert_eq!(told(other, Teller::Client).is_ok(), clients, "{other:?}");
        }
        let root = tree.attr(tree.node(Ino::ROOT).expect("it is there"));
        let root = Attr { atime: NOW, ..root };
        assert!(told(root, Teller::Rank(NOW)).is_err(), "no reading sets that of a directory");
    }

    #[test]
    fn each_answer_is_of_its_kind() {
        let (tree, attr) = file();
        let answers =
            [Answer::Ok, Answer::Data, Answer::Offset, Answer::Entries, Answer::Lock, Answer::StatFs];
        for answer in answers {
            for reply in [Reply::Attr(attr), Reply::Written { count: 1, attr }] {
                assert!(check_reply(&tree, &answer, &reply, Teller::Client).is_err(), "{answer:?}");
            }
            let ok = check_reply(&tree, &answer, &Reply::Ok, Teller::Client);
            assert_eq!(ok.is_ok(), answer == Answer::Ok, "{answer:?}");
        }
        let wrote = Answer::Written { ino: attr.ino, count: 2 };
        assert!(check_reply(&tree, &wrote, &Reply::Written { count: 1, attr }, Teller::Client).is_err());
    }

    #[test]
    fn a_listing_shows_attributes_as_the_rank_has_them() {
        let (tree, attr) = file();
        let seed = HashSeed([1; 16]);
        let list = |attr| {
            let hash = name_hash(&seed, b"f");
            let entry = DirEntry {
                name: Box::from(&b"f"[..]),
                hash,
                ino: Ino(7),
                kind: FileKind::Regular,
                attr: Some(attr),
            };
            let reply = Reply::Entries { entries: vec![entry], end: true };
            let dir = proto::NodeRef::bare(Ino::ROOT);
            let request = Request::ReadDir { dir, after: 0, attrs: true, bytes_max: 4096 };
            check_listing(&seed, &tree, &request, &reply, Teller::Rank(NOW))
        };
        assert_eq!(list(attr), Ok(()));
        assert!(list(Attr { change: 10, ..attr }).is_err());
    }
}
