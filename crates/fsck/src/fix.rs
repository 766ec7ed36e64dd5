//! What puts a finding right, as values: the checks say it where they find, the repair carries it out.
//!
//! Absent: carrying it out (`editor.rs`, `data/mend.rs`).

use crate::record::Frag;
use crate::tables::Table;

/// A record and where it lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) environment: u16,
    pub(crate) table: Table,
    pub(crate) key: Box<[u8]>,
}

/// A primary dentry: by its key, or by what a check keeps of it.
#[derive(Clone, Debug)]
pub(crate) enum Spot {
    At(At),
    Inode { dir: u64, hash: u64, ino: u64 },
}

/// A change of one inode record.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Nlink(u32),
    Links(Vec<(u64, u64)>),
    Kind(u8),
    Size(u64),
    /// Clears flags that no format has.
    Flags,
    /// Says that the inode has a backptr.
    BackptrFlag,
    DropSection(u8),
    SortXattrs,
}

/// One correction.
#[derive(Clone, Debug)]
pub(crate) enum Fix {
    /// The value's checksum is wrong: corrected if it is one bit, else moved aside.
    Damaged(At),
    /// Moved aside: the record goes to the dump file.
    Remove(Spot),
    /// Deleted; nothing of worth is in it.
    Delete(At),
    /// The record's value becomes this.
    Put(At, Vec<u8>),
    Inode(Spot, Edit),
    /// The record moves to the environment it belongs to.
    Rehome(At),
    /// The record moves to the hash (and in system directories the name) it belongs to.
    Rekey(At),
    /// The inode moves to lost+found.
    Rescue(Spot),
    /// A directory whose inode is gone gets one, in lost+found.
    Adopt {
        dir: u64,
    },
    /// An inode of `//links` without names gets one, in lost+found.
    Name {
        ino: u64,
        kind: u8,
    },
    /// The counts of a directory's header; makes one where there is none.
    Header {
        dir: u64,
        frag: Frag,
        entries: u64,
        subdirs: u64,
    },
    /// The header of a directory that does not exist.
    DropHeader {
        dir: u64,
        frag: Frag,
    },
    Backptr {
        ino: u64,
        version: u64,
        parent: u64,
        hash: u64,
    },
    Counter {
        rank: u16,
        next: u64,
    },
    /// Root, `//links` or a rank's `//orphans`.
    SystemDirectory {
        ino: u64,
    },
    Incarnation {
        number: u64,
    },
    /// The environment is replaced by a copy of its records, which has a list of free pages of its own.
    Rewrite {
        environment: u16,
    },
    /// The journal is replaced by an empty one, once its tail is in the tables.
    Journal,
    /// The file-system record says that there may be ranks above 0.
    DeclareRanks,
    /// The cluster map is replaced by that of a file system with one rank.
    ClusterMap,
    Data(DataFix),
}

/// A correction of the data store.
#[derive(Clone, Debug)]
pub(crate) enum DataFix {
    /// The packed record is declared dead.
    Bury { ino: u64, generation: u32, seqs: (u32, u64) },
    /// The block file is unlinked; its path below the data folder.
    Unlink { path: String },
    /// The segment's header is written anew; its number says all of it.
    Header { segment: u32 },
    /// The state file is written anew; every segment will be scanned in full.
    Rescan,
}

impl Fix {
    /// Whether it is right while what the journals' tails say is not in the tables: no tail says anything of it, or nothing but what
    /// its rank brings there itself.
    pub(crate) fn is_of_no_tail(&self) -> bool {
        match self {
            Self::Incarnation { .. } | Self::Rewrite { .. } | Self::DeclareRanks => true,
            Self::Damaged(at) | Self::Rehome(at) | Self::Remove(Spot::At(at)) => at.table == Table::System,
            Self::Remove(Spot::Inode { .. })
            | Self::Delete(_)
            | Self::Put(..)
            | Self::Inode(..)
            | Self::Rekey(_)
            | Self::Rescue(_)
            | Self::Adopt { .. }
            | Self::Name { .. }
            | Self::Header { .. }
            | Self::DropHeader { .. }
            | Self::Backptr { .. }
            | Self::Counter { .. }
            | Self::SystemDirectory { .. }
            | Self::Journal
            | Self::ClusterMap
            | Self::Data(_) => false,
        }
    }

    /// In which order corrections are made: what comes later is judged anew after what comes first, so
    /// that no name is given up for a record that can be saved.
    pub(crate) const fn tier(&self) -> u8 {
        match self {
            Self::Damaged(_)
            | Self::Rehome(_)
            | Self::Incarnation { .. }
            | Self::Rewrite { .. }
            | Self::Journal
            | Self::DeclareRanks
            | Self::ClusterMap
            | Self::Data(DataFix::Header { .. } | DataFix::Rescan) => 0,
            Self::Rekey(_) | Self::Inode(..) | Self::SystemDirectory { .. } | Self::Counter { .. } => 1,
            Self::Remove(_) | Self::Rescue(_) | Self::Adopt { .. } => 2,
            Self::Delete(_)
            | Self::Put(..)
            | Self::Name { .. }
            | Self::Header { .. }
            | Self::DropHeader { .. }
            | Self::Backptr { .. }
            | Self::Data(DataFix::Bury { .. } | DataFix::Unlink { .. }) => 3,
        }
    }
}

/// What is there of an inode whose record is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Entries.
    Directory,
    /// Data of this size.
    File(u64),
}
