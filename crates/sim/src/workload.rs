//! Random requests on a small name space, so that clients collide: six names, a handful of
//! directories, few files. Clients that want directories delegated to them have some of their own besides
//! (`workload/home.rs`), into which others look seldom, and work on one file for a while (`workload/bursts.rs`).
//!
//! Absent: who asks and when (`world/`), what the answer must be (`model/`).

mod bursts;
mod files;
mod home;

use crate::model::bytes::pattern;
use crate::model::tree::Tree;
use proto::attr::{FileKind, SetAttr, SetTime};
use proto::request::{LockSpec, NewNode, Request, XattrMode, open_flags, rename_flags};
use proto::{Ino, Name, NodeRef};
use std::collections::BTreeMap;
use stdx::hash::HashSeed;
use stdx::{Prng, Wall};

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"name-that-is-longer-than-inline", b"\xff\x01"];
const XATTRS: [&[u8]; 4] = [b"user.a", b"user.bb", b"trusted.c", b"security.d"];
/// Directories the workload makes at most.
const DIRECTORIES_MAX: usize = 8;
/// Whole blocks of the data store whatever their size, far beyond any end.
const BLOCK: u64 = 4 << 20;

/// What one client knows and holds.
#[derive(Default)]
pub struct Knowledge {
    /// The directory that it begins at; none: the root.
    pub root: Option<Ino>,
    /// Where each inode was last seen.
    pub places: BTreeMap<Ino, NodeRef>,
    /// Opens answered and not released.
    pub opens: Vec<NodeRef>,
    /// Places in listings to go on from.
    pub cursors: BTreeMap<Ino, u64>,
    /// A name that was not there: it is looked for again, as search paths are gone through.
    pub missed: Option<(NodeRef, Name)>,
    /// Locks asked for and not given back.
    pub locks: Vec<(NodeRef, LockSpec)>,
    /// Who it is, if it works in directories of its own.
    pub homely: Option<usize>,
    /// Whether it works on one file for a while; and on which, for so many requests.
    pub bursts: bool,
    pub busy_with: Option<(NodeRef, u64)>,
    /// Whether an answer about that file is to come: one program does one thing after the other.
    pub awaits_it: bool,
}

impl Knowledge {
    /// Where it begins.
    #[must_use]
    pub fn root(&self) -> NodeRef {
        NodeRef::bare(self.root.unwrap_or(Ino::ROOT))
    }
}

/// Makes requests.
pub struct Workload {
    rng: Prng,
    writes: u64,
    /// Directories of clients' own.
    homes: BTreeMap<Ino, usize>,
    /// A file that one of them works on.
    busy: Option<NodeRef>,
    /// Of name hashes: where an inode is, a client knows from whoever told it of the name.
    seed: HashSeed,
}

/// Every kind of operation, with its weight.
const KINDS: [(&str, u64); 37] = [
    ("lookup", 16),
    ("getattr", 14),
    ("chmod", 2),
    ("chown", 2),
    ("utimens", 2),
    ("truncate", 5),
    ("readlink", 4),
    ("mknod", 2),
    ("mkdir", 5),
    ("symlink", 2),
    ("link", 6),
    ("unlink", 8),
    ("rmdir", 4),
    ("rename", 8),
    ("exchange", 3),
    ("noreplace", 2),
    ("open", 5),
    ("create", 12),
    ("tmpfile", 2),
    ("release", 6),
    ("readdir", 4),
    ("read", 9),
    ("write", 12),
    ("append", 4),
    ("fallocate", 3),
    ("punch", 3),
    ("seek", 2),
    ("copy", 3),
    ("fsync", 4),
    ("syncfs", 1),
    ("statfs", 1),
    ("getxattr", 2),
    ("listxattr", 1),
    ("setxattr", 4),
    ("removexattr", 2),
    ("acl", 2),
    ("lock", 6),
];

/// The names of the operations, for the coverage table.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(kind, _)| *kind)
}

impl Workload {
    /// A generator of its own stream.
    #[must_use]
    pub const fn new(rng: Prng, seed: HashSeed) -> Self {
        Self { rng, writes: 0, homes: BTreeMap::new(), busy: None, seed }
    }

    /// The next request of a client, with the name of its kind. `tree` is the model's present tree:
    /// it only steers towards names that exist.
    pub fn next(&mut self, known: &mut Knowledge, tree: &Tree) -> (&'static str, Request) {
        if let Some(me) = known.homely
            && self.rng.chance(1, 2)
            && let Some(work) = self.at_home(me, known, tree)
        {
            return work;
        }
        if let Some(work) = self.at_anothers(known, tree) {
            return work;
        }
        if known.bursts
            && let Some(work) = self.at_one_file(known, tree)
        {
            return work;
        }
        loop {
            let kind = self.weighed(&KINDS);
            if let Some(request) = self.make(kind, known, tree) {
                return (kind, request);
            }
        }
    }

    /// A request of that kind alone, if there can be one.
    pub fn only(&mut self, kind: &str, known: &mut Knowledge, tree: &Tree) -> Option<Request> {
        self.make(kind, known, tree)
    }

    /// One of these, by weight.
    fn weighed(&mut self, kinds: &[(&'static str, u64)]) -> &'static str {
        let total = kinds.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.below(total);
        let kind = kinds.iter().find(|(_, weight)| {
            let hit = at < *weight;
            at = at.saturating_sub(*weight);
            hit
        });
        kind.map_or(kinds[0].0, |(kind, _)| kind)
    }

    fn make(&mut self, kind: &str, known: &mut Knowledge, tree: &Tree) -> Option<Request> {
        match kind {
            "lookup" => {
                let again = known.missed.clone().filter(|_| self.rng.chance(1, 3));
                let (parent, name) = again.unwrap_or_else(|| self.entry(known, tree, |_| true));
                Some(Request::Lookup { parent, name })
            }
            "getattr" => Some(Request::GetAttr { node: self.any(known, tree)? }),
            "chmod" => self.set(known, tree, |rng| SetAttr {
                mode: Some(rng.below(0o10000) as u32),
                ..SetAttr::default()
            }),
            "chown" => self.set(known, tree, |rng| SetAttr {
                uid: Some(rng.below(3) as u32),
                gid: rng.chance(1, 2).then_some(7),
                kill_suidgid: rng.chance(1, 3),
                ..SetAttr::default()
            }),
            "utimens" => self.set(known, tree, |rng| {
                let time = |rng: &mut Prng| match rng.below(3) {
                    0 => None,
                    1 => Some(SetTime::Now),
                    _ => Some(SetTime::At(Wall(rng.below(1 << 60) as i64 - (1 << 59)))),
                };
                SetAttr { atime: time(rng), mtime: time(rng), ..SetAttr::default() }
            }),
            "readlink" => Some(Request::ReadLink { node: self.of_kind(known, tree, FileKind::Symlink)? }),
            "open" => {
                Some(Request::Open { node: self.file(known, tree)?, flags: self.flags() & !open_flags::EXCL })
            }
            "tmpfile" => Some(Request::TmpFile {
                parent: self.dir(known, tree),
                new: self.new_node(0),
                flags: open_flags::RDWR,
            }),
            "release" => {
                let at = self.rng.index(known.opens.len());
                (!known.opens.is_empty())
                    .then(|| Request::Release { node: known.opens.swap_remove(at), count: 1 })
            }
            "readdir" => Some(self.readdir(known, tree)),
            "syncfs" => Some(Request::SyncFs),
            "statfs" => Some(Request::StatFs),
            "lock" => self.lock(known, tree),
            "mknod" | "mkdir" | "symlink" | "link" | "unlink" | "rmdir" | "create" | "rename"
            | "exchange" | "noreplace" => self.naming(kind, known, tree),
            "getxattr" | "listxattr" | "setxattr" | "removexattr" | "acl" => self.xattr(kind, known, tree),
            _ => self.data(kind, known, tree),
        }
    }

    fn name(&mut self) -> Name {
        Name::new(NAMES[self.rng.index(NAMES.len())]).expect("the workload's names are valid")
    }

    /// A known directory; mostly one that still exists.
    fn dir(&mut self, known: &Knowledge, tree: &Tree) -> NodeRef {
        let fits = |ino: Ino| tree.node(ino).is_some_and(|node| node.is_dir());
        let stale = self.rng.chance(1, 30);
        let visits = self.visits();
        let mine = |ino: Ino| visits || self.is_open(known, ino);
        let all: Vec<NodeRef> = known
            .places
            .values()
            .filter(|place| (stale || fits(place.ino)) && mine(place.ino))
            .copied()
            .collect();
        if all.is_empty() || self.rng.chance(1, 5) {
            return known.root();
        }
        all[self.rng.index(all.len())]
    }

    /// A directory and a name; half of the time one that exists and fits.
    fn entry(&mut self, known: &Knowledge, tree: &Tree, fits: impl Fn(FileKind) -> bool) -> (NodeRef, Name) {
        let dir = self.dir(known, tree);
        if self.rng.chance(1, 4) {
            return (dir, self.name());
        }
        let mut all = Vec::new();
        let visits = self.visits();
        for place in known.places.values().copied().chain([known.root()]) {
            let Some(node) = tree.node(place.ino).filter(|_| visits || self.is_open(known, place.ino)) else {
                continue;
            };
            for (name, ino) in &node.entries {
                if tree.node(*ino).is_some_and(|child| fits(child.kind())) {
                    all.push((place, name));
                }
            }
        }
        match all.get(self.rng.index(all.len())) {
            Some((place, name)) => (*place, Name::new(name).expect("names of the tree are valid")),
            None => (dir, self.name()),
        }
    }

    fn any(&mut self, known: &Knowledge, tree: &Tree) -> Option<NodeRef> {
        let stale = self.rng.chance(1, 20);
        self.pick(known, |place| stale || tree.node(place.ino).is_some())
    }

    fn of_kind(&mut self, known: &Knowledge, tree: &Tree, kind: FileKind) -> Option<NodeRef> {
        self.pick(known, |place| tree.node(place.ino).is_some_and(|node| node.kind() == kind))
    }

    fn pick(&mut self, known: &Knowledge, fits: impl Fn(&NodeRef) -> bool) -> Option<NodeRef> {
        let visits = self.visits();
        let mine =
            |place: &NodeRef| visits || (self.is_open(known, place.ino) && self.is_open(known, place.parent));
        let all: Vec<NodeRef> =
            known.places.values().filter(|place| fits(place) && mine(place)).copied().collect();
        (!all.is_empty()).then(|| all[self.rng.index(all.len())])
    }

    /// A regular file: an open one as often as any.
    fn file(&mut self, known: &Knowledge, tree: &Tree) -> Option<NodeRef> {
        if !known.opens.is_empty() && self.rng.chance(1, 2) {
            return Some(known.opens[self.rng.index(known.opens.len())]);
        }
        self.of_kind(known, tree, FileKind::Regular)
    }

    fn flags(&mut self) -> u32 {
        let mut flags = if self.rng.chance(1, 2) { open_flags::RDWR } else { 0 };
        if self.rng.chance(1, 4) {
            flags |= open_flags::TRUNC;
        }
        if self.rng.chance(1, 4) {
            flags |= open_flags::EXCL;
        }
        flags
    }

    fn new_node(&mut self, kind_bits: u32) -> NewNode {
        let mode = [0o644, 0o755, 0o600, 0o2755, 0o4711, 0o777][self.rng.index(6)];
        NewNode { mode: kind_bits | mode, umask: [0o022, 0, 0o077][self.rng.index(3)], rdev: 0 }
    }

    fn set(
        &mut self,
        known: &Knowledge,
        tree: &Tree,
        make: impl Fn(&mut Prng) -> SetAttr,
    ) -> Option<Request> {
        let node = self.any(known, tree)?;
        Some(Request::SetAttr { node, set: make(&mut self.rng) })
    }

    fn readdir(&mut self, known: &mut Knowledge, tree: &Tree) -> Request {
        let dir = self.dir(known, tree);
        let after = known.cursors.get(&dir.ino).copied().unwrap_or(0);
        Request::ReadDir {
            dir,
            after,
            attrs: self.rng.chance(1, 2),
            bytes_max: [64, 400, 65_536][self.rng.index(3)],
        }
    }

    fn naming(&mut self, kind: &str, known: &Knowledge, tree: &Tree) -> Option<Request> {
        let not_dir = |kind| kind != FileKind::Directory;
        Some(match kind {
            "mknod" => {
                let parent = self.dir(known, tree);
                let bits = [FileKind::Fifo, FileKind::Socket, FileKind::Character, FileKind::Regular];
                let kind = bits[self.rng.index(4)];
                let mut new = self.new_node(kind.mode_bits());
                new.rdev = 0x103;
                Request::MkNod { parent, name: self.name(), new }
            }
            "mkdir" => {
                if tree.nodes.values().filter(|node| node.is_dir()).count() > DIRECTORIES_MAX {
                    return None;
                }
                Request::MkDir { parent: self.dir(known, tree), name: self.name(), new: self.new_node(0) }
            }
            "symlink" => {
                let len = 1 + self.rng.index(60);
                Request::Symlink {
                    parent: self.dir(known, tree),
                    name: self.name(),
                    target: vec![b't'; len].into(),
                }
            }
            "link" => {
                let node =
                    self.pick(known, |place| tree.node(place.ino).is_some_and(|node| !node.is_dir()))?;
                Request::Link { node, parent: self.dir(known, tree), name: self.name() }
            }
            "unlink" => {
                let (parent, name) = self.entry(known, tree, not_dir);
                Request::Unlink { parent, name }
            }
            "rmdir" => {
                let (parent, name) = self.entry(known, tree, |kind| kind == FileKind::Directory);
                Request::RmDir { parent, name }
            }
            "create" => {
                let parent = self.dir(known, tree);
                Request::Create { parent, name: self.name(), new: self.new_node(0), flags: self.flags() }
            }
            _ => {
                let (parent, name) = self.entry(known, tree, |_| true);
                let (new_parent, new_name) = self.entry(known, tree, |_| true);
                let flags = match kind {
                    "exchange" => rename_flags::EXCHANGE,
                    "noreplace" => rename_flags::NOREPLACE,
                    _ => 0,
                };
                Request::Rename { parent, name, new_parent, new_name, flags }
            }
        })
    }

    fn xattr(&mut self, kind: &str, known: &Knowledge, tree: &Tree) -> Option<Request> {
        let node = self.pick(known, |place| {
            tree.node(place.ino)
                .is_some_and(|node| matches!(node.kind(), FileKind::Regular | FileKind::Directory))
        })?;
        let name = Name::new(XATTRS[self.rng.index(XATTRS.len())]).expect("the workload's names are valid");
        Some(match kind {
            "getxattr" => Request::GetXattr { node, name },
            "listxattr" => Request::ListXattr { node },
            "removexattr" => Request::RemoveXattr { node, name },
            "acl" => self.acl(node, tree),
            _ => {
                let len = if self.rng.chance(1, 20) { 40_000 } else { self.rng.below(300) };
                let mode = [XattrMode::Either, XattrMode::Create, XattrMode::Replace][self.rng.index(3)];
                Request::SetXattr { node, name, value: pattern(self.rng.next_u64(), 0, len).into(), mode }
            }
        })
    }

    /// A valid ACL with a named user, as the kernel's xattr form has it.
    fn acl(&mut self, node: NodeRef, tree: &Tree) -> Request {
        let is_dir = tree.node(node.ino).is_some_and(|node| node.is_dir());
        let which: &[u8] = if is_dir && self.rng.chance(1, 2) {
            b"system.posix_acl_default"
        } else {
            b"system.posix_acl_access"
        };
        let name = Name::new(which).expect("a valid name");
        if self.rng.chance(1, 3) {
            return Request::RemoveXattr { node, name };
        }
        let mut value = 2_u32.to_le_bytes().to_vec();
        let user = self.rng.below(8) as u16;
        for (tag, perm, id) in [
            (1_u16, 7_u16, u32::MAX),
            (2, user, 1000),
            (4, 5, u32::MAX),
            (16, 7, u32::MAX),
            (32, 4, u32::MAX),
        ] {
            value.extend(tag.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        Request::SetXattr { node, name, value: value.into(), mode: XattrMode::Either }
    }

    /// The number of the write that has just been made: the pattern of its bytes.
    #[must_use]
    pub const fn last_write(&self) -> u64 {
        self.writes
    }
}
