//! What a check can find: kinds with stable codes, and the report.
//!
//! Absent: printing; the command line does it.

use crate::fix::Fix;
use std::fmt;

macro_rules! kinds {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// What is wrong. Codes are stable; scripts may match them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $(#[doc = $text] $name,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable code.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// One sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

kinds! {
    IncarnationDamaged = "F01", "the incarnation cannot be read";
    EnvironmentUnreadable = "F02", "the metadata environment cannot be read";
    PartForeign = "F03", "the part is not marked as this file system's";
    FreePagesDamaged = "F04", "nothing can be written to the metadata environment: its list of free pages is damaged";
    RanksUndeclared = "F05", "there is a rank above 0, and the file-system record does not say that there may be";
    RegistryDamaged = "C01", "checksum mismatch";
    ClusterMapUnreadable = "C02", "the cluster map cannot be read";
    ClusterMapWrong = "C03", "the cluster map contradicts itself";
    ClusterMapMissing = "C04", "there may be several ranks, and no cluster map says so";
    JournalEntryDamaged = "J01", "checksum mismatch";
    JournalSegmentMissing = "J02", "the segment that continues the journal is missing";
    JournalHeaderDamaged = "J03", "the segment header is damaged";
    JournalMutationUnknown = "J04", "a transaction holds a mutation that cannot be read";
    JournalBeforeCheckpoint = "J05", "the journal does not reach back to the checkpoint";
    CheckpointUnreadable = "J06", "the checkpoint record cannot be read";
    ValueDamaged = "M01", "checksum mismatch";
    KeyInvalid = "M02", "the key is not of this table";
    NameInvalid = "M03", "the name is not a file name";
    HashWrong = "M04", "the key's hash is not the name's";
    DentryUnreadable = "M05", "the dentry cannot be read";
    InodeUnreadable = "M06", "the inode record cannot be read";
    InodeNumberInvalid = "M07", "the inode number is impossible";
    TypeInvalid = "M08", "the file type is impossible";
    SizeInvalid = "M09", "the size is impossible";
    FlagsUnknown = "M10", "the inode has flags of no format";
    SymlinkWithoutTarget = "M11", "a symlink without a target";
    TargetOnNonSymlink = "M12", "a target on what is no symlink";
    XattrsInvalid = "M13", "the xattrs are not sorted, repeated, or too large";
    DeviceOnNonDevice = "M14", "a device number on what is no device";
    SnapshotUnknown = "M15", "a record of a snapshot that does not exist";
    HeaderUnreadable = "M16", "the directory's header cannot be read";
    HeaderMissing = "M17", "the directory has no header";
    EntriesWrong = "M18", "the header's entry count is wrong";
    SubdirsWrong = "M19", "the header's subdirectory count is wrong";
    HeaderOrphaned = "M20", "a header of a directory that does not exist";
    InodeTwice = "M21", "the inode is at more than one place";
    Unreachable = "M22", "entries of a directory that does not exist";
    Loop = "M23", "the directory is its own ancestor";
    RemoteDangling = "M24", "a name of an inode that does not exist";
    RemoteTypeWrong = "M25", "a name gives another type than its inode";
    LinkCountWrong = "M26", "the link count is not the number of names";
    LinkListWrong = "M27", "the list of names is not the names";
    LinkWithoutNames = "M28", "an inode in //links without any name";
    OrphanNamed = "M29", "an orphan with a link count";
    CounterBehind = "M30", "an inode number at or above the allocator's counter";
    CounterUnreadable = "M31", "the allocator's counter cannot be read";
    SystemDirectoryMissing = "M32", "a system directory is missing";
    BackptrUnreadable = "M33", "the backptr cannot be read";
    BackptrMissing = "M34", "a directory without a backptr";
    SessionUnreadable = "M35", "the session record cannot be read";
    SystemKeyUnknown = "M36", "a system record of no kind";
    PlainFileNlink = "M37", "a file with one name has another link count";
    HeaderVersionZero = "M38", "the header has no version";
    BackptrWrong = "M39", "the backptr leads elsewhere than to the inode";
    BackptrDangling = "M40", "a backptr of an inode that does not exist";
    EnvironmentWrong = "M41", "the record lies in another environment than its own";
    SystemNameWrong = "M42", "the name is not the inode's number";
    SystemDirectoryStranger = "M43", "a system directory holds what does not belong there";
    DataStateDamaged = "D01", "the state of the data store cannot be read";
    DataIndexDamaged = "D02", "checksum mismatch";
    DataRecordDamaged = "D03", "checksum mismatch";
    DataRecordMissing = "D04", "a record that was durable is missing";
    DataSegmentMissing = "D05", "the segment is missing";
    DataSegmentHeaderDamaged = "D06", "the segment header is damaged";
    BlockHeaderDamaged = "D07", "the block header is damaged or of another block";
    BlockInvalid = "D08", "the block cannot belong to a file";
    DataLeaked = "D09", "data of an inode that does not exist";
    DataOfNoFile = "D10", "data of an inode that is not a regular file";
    BlockBeyondSize = "D11", "a block beyond the file's size";
}

impl Kind {
    /// Whether records are missing that a check compares others with.
    #[must_use]
    pub const fn hides_records(self) -> bool {
        matches!(
            self,
            Self::EnvironmentUnreadable
                | Self::JournalEntryDamaged
                | Self::JournalSegmentMissing
                | Self::JournalHeaderDamaged
                | Self::JournalMutationUnknown
                | Self::JournalBeforeCheckpoint
                | Self::CheckpointUnreadable
        )
    }

    /// Whether it is found by comparing records: where some are hidden, it may be nothing but that.
    #[must_use]
    pub const fn may_follow(self) -> bool {
        matches!(
            self,
            Self::HeaderMissing
                | Self::EntriesWrong
                | Self::SubdirsWrong
                | Self::HeaderOrphaned
                | Self::InodeTwice
                | Self::Unreachable
                | Self::RemoteDangling
                | Self::RemoteTypeWrong
                | Self::LinkCountWrong
                | Self::LinkListWrong
                | Self::LinkWithoutNames
                | Self::OrphanNamed
                | Self::CounterBehind
                | Self::SystemDirectoryMissing
                | Self::BackptrMissing
                | Self::BackptrWrong
                | Self::BackptrDangling
                | Self::DataLeaked
                | Self::DataOfNoFile
                | Self::BlockBeyondSize
        )
    }
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: Kind,
    /// File and offset, or environment and key.
    pub place: String,
    /// What was expected and found; may be empty.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind.code(), self.place, self.kind.text())?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}

/// The most findings kept with their text; beyond it they are only counted.
const KEPT_MAX: usize = 10_000;

/// The result of a check or repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong; after a repair: what is still wrong.
    pub findings: Vec<Finding>,
    /// Findings beyond those kept.
    pub more: u64,
    /// Leftovers that a crash may leave and nobody can see; no errors.
    pub notes: Vec<Finding>,
    /// Leftovers beyond those kept.
    pub more_notes: u64,
    /// Leftovers that a repair removed.
    pub tidied: u64,
    /// What a repair put right.
    pub fixed: Vec<Finding>,
    /// What was put right beyond those kept.
    pub more_fixed: u64,
    pub directories: u64,
    pub files: u64,
    /// Operations in the journal that no checkpoint covers.
    pub journal_operations: u64,
    /// Objects of the data store: packed files and blocks.
    pub data_objects: u64,
}

impl Report {
    /// Whether nothing is wrong (any more).
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether a repair changed the folder.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !self.fixed.is_empty() || self.tidied > 0
    }
}

/// A report in the making, with what would put right what was found.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) report: Report,
    pub(crate) fixes: Vec<Fix>,
}

/// The most fixes of one round; further rounds bring the rest.
const FIXES_MAX: usize = 100_000;

impl Found {
    /// Adds a finding.
    pub(crate) fn add(&mut self, kind: Kind, place: impl Into<String>, detail: impl Into<String>) {
        if self.report.findings.len() >= KEPT_MAX {
            self.report.more += 1;
            return;
        }
        self.report.findings.push(Finding { kind, place: place.into(), detail: detail.into() });
    }

    /// Adds a note.
    pub(crate) fn note(&mut self, kind: Kind, place: impl Into<String>, detail: impl Into<String>) {
        if self.report.notes.len() >= KEPT_MAX {
            self.report.more_notes += 1;
            return;
        }
        self.report.notes.push(Finding { kind, place: place.into(), detail: detail.into() });
    }

    /// Leaves out what is found by comparing records, and what would be written over by transactions that are not over.
    pub(crate) fn keep_what_cannot_follow(&mut self) {
        self.report.findings.retain(|finding| !finding.kind.may_follow());
        self.report.notes.retain(|note| !note.kind.may_follow());
        self.report.more_notes = 0;
        self.fixes.retain(Fix::is_of_no_tail);
    }

    /// Adds what puts the last finding right.
    pub(crate) fn fix(&mut self, fix: Fix) {
        if self.fixes.len() < FIXES_MAX {
            self.fixes.push(fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique() {
        let codes: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), Kind::ALL.len());
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let mut found = Found::default();
        (0..KEPT_MAX + 3).for_each(|_| found.add(Kind::Loop, "", ""));
        assert_eq!((found.report.findings.len(), found.report.more), (KEPT_MAX, 3));
    }
}
