//! The transaction being planned: mutations encoded once, read from the same bytes by `apply`.
//!
//! Absent: the entry around them (`journal.rs`), the decision to commit.

use crate::cache::dir::{Dir, JUMPED, next_number};
use proto::dentry::{encode_primary, encode_remote};
use proto::header::FragHeader;
use proto::holder::Holder;
use proto::inode::{InodeCore, InodeExt};
use proto::mutation::{Mutation, put_dentry, put_header};
use proto::transact::{Change, Left};
use proto::{FileId, FileKind, Frag, Incarnation, Ino, NameHash, RankId, Version, Writer};
use std::collections::BTreeMap;
use stdx::Wall;

/// A buffer of mutations.
#[derive(Debug, Default)]
pub(crate) struct Txn {
    pub muts: Writer,
    /// Inode numbers taken from the counter.
    pub inos: u64,
    /// Which life of the rank the versions belong to.
    pub incarnation: Incarnation,
    /// What other ranks change with it.
    pub others: BTreeMap<RankId, Vec<Change>>,
    /// Inodes that were another rank's until now: nothing is known of their data.
    pub received: Vec<Ino>,
    /// Inodes whose change counter another rank has set: it is not of this life.
    pub counted: Vec<Ino>,
    /// Inodes that end while somebody has, or waits for, a lock on them.
    pub ended: Vec<Ino>,
    /// Inodes that come, and what sessions have of them.
    pub came: Vec<(Ino, Vec<Holder>)>,
    /// Inodes that are another rank's from now on.
    pub left: Vec<Left>,
    /// Inodes that will be, if what this rank votes for comes to be.
    pub leaving: Vec<Ino>,
    /// It was planned by a way up that leads through other ranks, who reserve nothing of it.
    pub by_way: bool,
    /// It was planned as one of several ranks, even if it came to be of one; or may be when it is presented again.
    pub across: bool,
    /// Directories of this rank's that get another parent.
    pub moves: Vec<Ino>,
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct DentryAt<'a> {
    pub dir: Ino,
    /// The directory, where `dir` is a unit of it.
    pub of: Ino,
    pub hash: NameHash,
    pub version: Version,
    pub name: &'a [u8],
}

/// How a transaction changes a directory's header.
#[derive(Clone, Copy, Default)]
pub(crate) struct Delta {
    pub entries: i64,
    pub subdirs: i64,
    /// The listing changes at this time; `None`: only an inode in it does.
    pub mtime: Option<Wall>,
}

impl Txn {
    /// An empty buffer of this life.
    pub(crate) fn new(incarnation: Incarnation) -> Self {
        Self { incarnation, ..Self::default() }
    }

    /// Forgets what was planned.
    pub(crate) fn clear(&mut self) {
        self.muts.0.clear();
        self.inos = 0;
        if !self.others.is_empty() {
            self.others.clear();
        }
        self.received.clear();
        self.counted.clear();
        self.ended.clear();
        self.left.clear();
        self.leaving.clear();
        self.came.clear();
        self.forget_way();
    }

    /// What a directory that gets another parent was planned by.
    pub(crate) fn forget_way(&mut self) {
        (self.by_way, self.across) = (false, false);
        self.moves.clear();
    }

    /// Whether it was planned by what other ranks told.
    pub(crate) fn is_of_several(&self) -> bool {
        !self.others.is_empty() || self.by_way
    }

    /// The name leads to this inode.
    pub(crate) fn primary(&mut self, place: DentryAt<'_>, core: &InodeCore, ext: Option<&InodeExt>) {
        self.put(place, |w| encode_primary(core, ext, w));
    }

    /// The name leads to an inode in `//links`.
    pub(crate) fn remote(&mut self, place: DentryAt<'_>, ino: Ino, kind: FileKind) {
        self.put(place, |w| encode_remote(ino, kind, w));
    }

    fn put(
        &mut self,
        DentryAt { dir, hash, version, name, .. }: DentryAt<'_>,
        value: impl FnOnce(&mut Writer),
    ) {
        put_dentry(&mut self.muts, (dir, hash, version, name), value);
    }

    /// The name is gone.
    pub(crate) fn delete(&mut self, place: DentryAt<'_>) {
        let DentryAt { dir, hash, version, name, .. } = place;
        Mutation::DelDentry { dir, hash, version, name }.encode(&mut self.muts);
    }

    /// The header of `dir` after this transaction.
    pub(crate) fn header(&mut self, dir: &Dir, delta: Delta) {
        let mut header = dir.header.clone();
        header.version = dir.next_version(self.incarnation);
        header.entries = header.entries.saturating_add_signed(delta.entries);
        header.subdirs = header.subdirs.saturating_add_signed(delta.subdirs);
        if let Some(mtime) = delta.mtime {
            header.mtime = mtime;
            header.change = next_number(header.change, dir.has(JUMPED), self.incarnation);
        }
        self.put_header(dir.ino, &header, false);
    }

    /// The first header of a directory made by this transaction.
    pub(crate) fn newborn(&mut self, dir: Ino, now: Wall) {
        let header = FragHeader { version: Version(1), mtime: now, change: 1, ..Default::default() };
        self.put_header(dir, &header, true);
    }

    /// A header given in full.
    pub(crate) fn whole_header(&mut self, dir: Ino, header: &FragHeader) {
        self.put_header(dir, header, false);
    }

    fn put_header(&mut self, dir: Ino, header: &FragHeader, newborn: bool) {
        put_header(&mut self.muts, (dir, Frag::WHOLE, header.version, newborn), |w| header.encode(w));
    }

    /// Where the inode's primary dentry is.
    pub(crate) fn backptr(&mut self, ino: Ino, version: u64, place: DentryAt<'_>) {
        let DentryAt { of, hash, name, .. } = place;
        Mutation::PutBackptr { ino, version, parent: of, hash, name }.encode(&mut self.muts);
    }

    /// The inode is gone.
    pub(crate) fn no_backptr(&mut self, ino: Ino, version: u64) {
        Mutation::DelBackptr { ino, version }.encode(&mut self.muts);
    }

    /// The inode's data is to be cut as its record says.
    pub(crate) fn cut(&mut self, core: &InodeCore) {
        let (size, truncate_seq) = (core.truncate_size, core.truncate_seq);
        Mutation::DataCut { file: file_id(core), size, truncate_seq }.encode(&mut self.muts);
    }

    /// The inode's data is to be removed.
    pub(crate) fn remove(&mut self, core: &InodeCore) {
        Mutation::DataRemove { file: file_id(core) }.encode(&mut self.muts);
    }
}

/// The identity of an inode's data.
pub(crate) const fn file_id(core: &InodeCore) -> FileId {
    FileId { ino: core.ino, generation: core.generation }
}
