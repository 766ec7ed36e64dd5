//! The reference tree: what a POSIX file system with these names, links and attributes looks like.
//! Nodes are shared between states, so that a state per transaction costs little.
//!
//! Absent: file bytes (`bytes.rs`), the rules of operations (`rules.rs`), everything PandoFS-specific.

use proto::attr::FileKind;
use proto::inode::Policies;
use proto::{Attr, Ino, NameHash};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use stdx::Wall;

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub ino: Ino,
    pub generation: u32,
    pub mode: u32,
    /// Names; of a directory unused.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub atime: Wall,
    pub mtime: Wall,
    pub ctime: Wall,
    pub btime: Wall,
    pub target: Option<Rc<[u8]>>,
    pub xattrs: BTreeMap<Rc<[u8]>, Rc<[u8]>>,
    /// Of a directory.
    pub entries: BTreeMap<Rc<[u8]>, Ino>,
    /// Of a directory: where it is.
    pub parent: Ino,
    /// Made without a name, so that a link may still give it one.
    pub tmpfile: bool,
    /// How often the file was cut shorter.
    pub cuts: u32,
    /// Of a directory: the modification time last set by hand, which later changes never go below.
    pub floor: Wall,
    /// From the records: where the inode's is, its change counter, and that of a directory's listing.
    pub home: (Ino, NameHash),
    pub change: u64,
    pub listing: u64,
    /// Of a directory, with several ranks: what was asked for about directories that are made in it; whether slots place it; whether
    /// it was made without a header.
    pub policies: Policies,
    pub placed: bool,
    pub newborn: bool,
}

impl Node {
    /// The file type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode).unwrap_or(FileKind::Regular)
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Whether an ACL decides over its permission bits.
    #[must_use]
    pub fn has_acl(&self) -> bool {
        self.xattrs.keys().any(|name| name.starts_with(ACL_PREFIX))
    }

    /// A new node without times.
    #[must_use]
    pub fn new(ino: Ino, mode: u32, wall: Wall) -> Self {
        Self {
            ino,
            generation: 0,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: wall,
            mtime: wall,
            ctime: wall,
            btime: wall,
            target: None,
            xattrs: BTreeMap::new(),
            entries: BTreeMap::new(),
            parent: Ino::NONE,
            tmpfile: false,
            cuts: 0,
            floor: Wall(i64::MIN),
            home: (Ino::NONE, NameHash(0)),
            change: 0,
            listing: 0,
            policies: Policies::default(),
            placed: false,
            newborn: false,
        }
    }
}

/// The names of ACL attributes: their values are carried by the model, not computed.
pub const ACL_PREFIX: &[u8] = b"system.posix_acl_";

/// A whole tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub nodes: BTreeMap<Ino, Rc<Node>>,
}

/// Where an inode is named: directories, and the names in them.
pub type Places = BTreeSet<(Ino, Rc<[u8]>)>;

impl Tree {
    /// The tree of a file system made at `wall`.
    #[must_use]
    pub fn fresh(wall: Wall) -> Self {
        let mut root = Node::new(Ino::ROOT, FileKind::Directory.mode_bits() | 0o755, wall);
        root.parent = Ino::ROOT;
        Self { nodes: BTreeMap::from([(Ino::ROOT, Rc::new(root))]) }
    }

    /// The node, if it exists.
    #[must_use]
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(Rc::as_ref)
    }

    /// The node for changing; it must exist.
    ///
    /// # Panics
    /// When it does not: callers have looked it up.
    pub fn change(&mut self, ino: Ino) -> &mut Node {
        Rc::make_mut(self.nodes.get_mut(&ino).expect("the caller looked the node up"))
    }

    /// Where each inode is named.
    #[must_use]
    pub fn names(&self) -> BTreeMap<Ino, Places> {
        let mut names: BTreeMap<Ino, Places> = BTreeMap::new();
        for (dir, node) in &self.nodes {
            for (name, ino) in &node.entries {
                names.entry(*ino).or_default().insert((*dir, Rc::clone(name)));
            }
        }
        names
    }

    /// Subdirectories of a directory.
    #[must_use]
    pub fn subdirs(&self, node: &Node) -> u32 {
        node.entries.values().filter(|ino| self.node(**ino).is_some_and(Node::is_dir)).count() as u32
    }

    /// What `stat` shows, as far as a model knows it.
    #[must_use]
    pub fn attr(&self, node: &Node) -> Attr {
        let (nlink, size, blocks) = if node.is_dir() {
            (2 + self.subdirs(node), node.entries.len() as u64, 0)
        } else {
            (node.nlink, node.size, node.size.div_ceil(512))
        };
        Attr {
            ino: node.ino,
            generation: node.generation,
            mode: node.mode,
            nlink,
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            size,
            blocks,
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            btime: node.btime,
            change: node.change.wrapping_add(node.listing),
            parent: node.home.0,
            hash: node.home.1,
            has_xattrs: !node.xattrs.is_empty() || node.policies.places(),
        }
    }

    /// Whether `ino` is `below` or one of its ancestors.
    #[must_use]
    pub fn is_at_or_above(&self, ino: Ino, below: Ino) -> bool {
        let mut at = below;
        for _ in 0..self.nodes.len() + 1 {
            if at == ino {
                return true;
            }
            match self.node(at) {
                Some(node) if at != Ino::ROOT => at = node.parent,
                _ => return false,
            }
        }
        true
    }
}
