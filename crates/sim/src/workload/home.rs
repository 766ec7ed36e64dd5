//! Work in directories of a client's own: many names made and removed in a row, as a build or an unpacked archive does.
//!
//! Absent: what all clients do everywhere (`workload.rs`).

use super::{Knowledge, Workload};
use crate::model::bytes::pattern;
use crate::model::tree::{Node, Tree};
use proto::attr::{FileKind, SetAttr, SetTime};
use proto::request::{Request, open_flags, rename_flags};
use proto::storeio::Payload;
use proto::{Ino, Name, NodeRef};
use stdx::Wall;

const NAMES: [&[u8]; 10] = [b"f0", b"f1", b"f2", b"f3", b"f4", b"f5", b"f6", b"f7", b"f8", b"f9"];
/// Directories of one client.
const HOMES_MAX: usize = 4;

/// What is done at home, with its weight; a name of the table of all operations.
const CHORES: [(&str, u64); 18] = [
    ("create", 14),
    ("unlink", 8),
    ("mkdir", 3),
    ("rmdir", 2),
    ("mknod", 1),
    ("symlink", 1),
    ("write", 6),
    ("append", 1),
    ("chmod", 2),
    ("utimens", 1),
    ("truncate", 2),
    ("lookup", 4),
    ("getattr", 4),
    ("rename", 5),
    ("noreplace", 1),
    ("link", 1),
    ("fsync", 1),
    ("syncfs", 1),
];

impl Workload {
    /// Others come by, in most runs seldom.
    pub(super) fn visits(&mut self) -> bool {
        let one_of = [3, 8, 16, 30][usize::from(self.seed.0[7] >> 6)];
        self.homes.is_empty() || self.rng.chance(1, one_of)
    }

    /// Whether a directory is not another client's own.
    pub(super) fn is_open(&self, known: &Knowledge, ino: Ino) -> bool {
        self.homes.get(&ino).is_none_or(|owner| known.homely == Some(*owner))
    }

    /// A client has made a directory.
    pub fn made_home(&mut self, client: usize, dir: Ino) {
        if self.homes.values().filter(|owner| **owner == client).count() < HOMES_MAX {
            self.homes.insert(dir, client);
        }
    }

    /// The next request of a client in a directory of its own.
    pub(super) fn at_home(
        &mut self,
        me: usize,
        known: &Knowledge,
        tree: &Tree,
    ) -> Option<(&'static str, Request)> {
        self.homes.retain(|ino, _| tree.node(*ino).is_some());
        let mine = self.homes.iter().filter(|(_, owner)| **owner == me).map(|(ino, _)| *ino);
        let dirs: Vec<NodeRef> = mine.filter_map(|ino| known.places.get(&ino).copied()).collect();
        if dirs.is_empty() {
            let parent = NodeRef::bare(Ino::ROOT);
            let new = self.new_node(0);
            return Some(("mkdir", Request::MkDir { parent, name: self.home_name(), new }));
        }
        let dir = dirs[self.rng.index(dirs.len())];
        let chore = self.weighed(&CHORES);
        let other = dirs[self.rng.index(dirs.len())];
        Some((chore, self.chore(chore, dir, other, tree)?))
    }

    fn home_name(&mut self) -> Name {
        Name::new(NAMES[self.rng.index(NAMES.len())]).expect("the workload's names are valid")
    }

    /// A name of a directory that leads to what fits.
    fn child(&mut self, dir: NodeRef, tree: &Tree, fits: impl Fn(&Node) -> bool) -> Option<(Name, NodeRef)> {
        let entries = tree.node(dir.ino)?.entries.iter();
        let all: Vec<_> = entries.filter(|(_, ino)| tree.node(**ino).is_some_and(&fits)).collect();
        let (name, ino) = all.get(self.rng.index(all.len()))?;
        let name = Name::new(name).expect("names of the tree are valid");
        let hash = name.hash(&self.seed);
        Some((name, NodeRef { ino: **ino, parent: dir.ino, hash }))
    }

    /// `other`: a second directory, or the same.
    fn chore(&mut self, chore: &str, dir: NodeRef, other: NodeRef, tree: &Tree) -> Option<Request> {
        let is_file = |node: &Node| node.kind() == FileKind::Regular;
        Some(match chore {
            "create" => {
                let flags = if self.rng.chance(1, 2) { open_flags::RDWR } else { open_flags::EXCL };
                let (name, new) = (self.home_name(), self.new_node(0));
                Request::Create { parent: dir, name, new, flags }
            }
            "mkdir" => Request::MkDir { parent: dir, name: self.home_name(), new: self.new_node(0) },
            "mknod" => {
                let kind = [FileKind::Fifo, FileKind::Character, FileKind::Regular][self.rng.index(3)];
                let mut new = self.new_node(kind.mode_bits());
                new.rdev = 0x103;
                Request::MkNod { parent: dir, name: self.home_name(), new }
            }
            "symlink" => {
                Request::Symlink { parent: dir, name: self.home_name(), target: b"target".as_slice().into() }
            }
            "unlink" => {
                let (name, _) = self.child(dir, tree, |node| !node.is_dir())?;
                Request::Unlink { parent: dir, name }
            }
            "rmdir" => {
                let (name, _) = self.child(dir, tree, Node::is_dir)?;
                Request::RmDir { parent: dir, name }
            }
            "lookup" => Request::Lookup { parent: dir, name: self.home_name() },
            "getattr" => match self.child(dir, tree, |_| true).filter(|_| self.rng.chance(2, 3)) {
                Some((_, node)) => Request::GetAttr { node },
                None => Request::GetAttr { node: dir },
            },
            "rename" | "noreplace" => {
                let (name, _) = self.child(dir, tree, |_| true)?;
                let new_parent = if self.rng.chance(1, 2) { dir } else { other };
                let flags = if chore == "noreplace" { rename_flags::NOREPLACE } else { 0 };
                Request::Rename { parent: dir, name, new_parent, new_name: self.home_name(), flags }
            }
            "link" => {
                let (_, node) = self.child(dir, tree, |node| !node.is_dir())?;
                Request::Link { node, parent: other, name: self.home_name() }
            }
            "chmod" | "utimens" => {
                let (_, node) = self.child(dir, tree, |_| true)?;
                Request::SetAttr { node, set: self.attributes(chore) }
            }
            "truncate" => {
                let (_, node) = self.child(dir, tree, is_file)?;
                let size = Some(self.rng.below(3000));
                Request::SetAttr { node, set: SetAttr { size, ..SetAttr::default() } }
            }
            "write" | "append" => {
                let (_, node) = self.child(dir, tree, is_file)?;
                let (offset, len) = (self.rng.below(2) * self.rng.below(3000), 1 + self.rng.below(1500));
                self.writes += 1;
                let data = Payload::Owned(pattern(self.writes, offset, len));
                let kill_suidgid = self.rng.chance(1, 4);
                Request::Write { node, offset, append: chore == "append", kill_suidgid, data }
            }
            "fsync" => {
                let node = self.child(dir, tree, is_file).map_or(dir, |(_, node)| node);
                Request::Fsync { node, data_only: self.rng.chance(1, 2) }
            }
            _ => Request::SyncFs,
        })
    }

    pub(super) fn attributes(&mut self, chore: &str) -> SetAttr {
        if chore == "chmod" {
            return SetAttr { mode: Some(self.rng.below(0o10000) as u32), ..SetAttr::default() };
        }
        let mut time = || match self.rng.below(4) {
            0 => None,
            1 => Some(SetTime::At(Wall(self.rng.below(1 << 60) as i64))),
            _ => Some(SetTime::Now),
        };
        SetAttr { atime: time(), mtime: time(), ..SetAttr::default() }
    }
}
