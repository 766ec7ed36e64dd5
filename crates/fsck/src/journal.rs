//! The part of each rank's journal that no checkpoint covers, as an overlay of the tables.
//!
//! The overlay holds the last statement about each key, of several ranks' the one with the highest version; walking a table through it shows the state a server would have
//! after replay. Absent: writing (`cut.rs`).

mod cut;
mod entry;
mod said;
mod segment;

pub(crate) use entry::Redo;

use crate::finding::{Found, Kind};
use crate::fix::Fix;
use crate::folder::{Folder, FsckError, io_error};
use crate::record::Frag;
use crate::record::RANKS;
use crate::system::System;
use entry::Entry;
use segment::{Header, Segment};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Key -> value, or `None` where the record is gone.
pub(crate) type Statements = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// The version of a statement, and the rank that said it.
type Said = (u64, u16);

/// What the journal says beyond the tables.
#[derive(Default)]
pub(crate) struct Overlay {
    pub(crate) dentry: Statements,
    pub(crate) backptr: Statements,
    backptr_versions: BTreeMap<u64, Said>,
    /// What units of spread directories are, by the numbers that journals call them by.
    units: BTreeMap<u64, (u64, Frag)>,
    /// The version of what was said of each last.
    unit_versions: BTreeMap<u64, u64>,
    /// Of what `dentry` says; kept only where several journals may speak of one key.
    versions: Option<BTreeMap<Box<[u8]>, Said>>,
    /// The system table with the tail applied to it.
    pub(crate) system: System,
    /// Sessions that the tail closed, with their rank.
    pub(crate) closed: BTreeSet<(u16, u64)>,
    /// Content of small files, by inode and generation.
    pub(crate) redo: BTreeMap<(u64, u32), Redo>,
    /// Transactions of several ranks, by the rank that leads them, that others have not all carried out.
    pub(crate) undecided: BTreeSet<(u16, u64)>,
    /// Data that the next start removes.
    pub(crate) removed: BTreeSet<(u64, u32)>,
}

/// One rank's journal as it was found.
#[derive(Default)]
pub(crate) struct Journal {
    pub(crate) rank: u16,
    /// Its folder, below the one that holds `journal/`.
    name: String,
    /// Where what can be read ends.
    pub(crate) end: u64,
    /// No file of the journal has a byte beyond this position.
    pub(crate) beyond: u64,
    pub(crate) sequence: u64,
    pub(crate) incarnation: u64,
    /// Something that a start would need cannot be read: what and where.
    pub(crate) lost: Option<String>,
    /// A start would refuse the files, although nothing is lost.
    pub(crate) awry: bool,
    /// Every file, spares included.
    pub(crate) files: Vec<PathBuf>,
    /// Where replay starts.
    pub(crate) from: u64,
}

impl Journal {
    /// Reads the journals of all ranks.
    pub(crate) fn read_all(
        folder: &Folder,
        system: System,
        found: &mut Found,
    ) -> Result<(Vec<Self>, Overlay), FsckError> {
        let mut ranks: BTreeSet<u16> = system.ranks.keys().copied().collect();
        ranks.extend(ranks_with_folder(&folder.journal)?);
        let versions = (ranks.len() > 1).then(BTreeMap::new);
        let mut overlay = Overlay { system, versions, ..Overlay::default() };
        let read = |rank| Self::read(folder, rank, &mut overlay, found);
        let journals = ranks.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok((journals, overlay))
    }

    /// Whether it must be replaced by an empty one.
    pub(crate) const fn is_unusable(&self) -> bool {
        self.lost.is_some() || self.awry
    }

    /// Reads every entry from the checkpoint on.
    fn read(folder: &Folder, rank: u16, overlay: &mut Overlay, found: &mut Found) -> Result<Self, FsckError> {
        let mut journal = Self { rank, name: folder_name(rank), ..Self::default() };
        let segments = journal.list(folder, found)?;
        // Each journal says for itself what it calls by these numbers. Whether a directory was spread when this rank let go of it,
        // another one that spread it later does not tell.
        overlay.units.clear();
        overlay.unit_versions.clear();
        overlay.system.rank(rank);
        // Without a readable record replay of all there is ends in the same state: mutations are
        // statements, and what a checkpoint needs is never trimmed before it.
        let oldest = segments.first().map_or(0, |segment| segment.start);
        journal.from = match overlay.system.rank(rank).checkpoint {
            Some(Ok(position)) => position,
            Some(Err(())) => oldest,
            None => 0,
        };
        journal.end = journal.from;
        journal.chain(&segments, overlay, found)?;
        if journal.is_unusable() {
            found.fix(Fix::Journal);
        }
        Ok(journal)
    }

    fn list(&mut self, folder: &Folder, found: &mut Found) -> Result<Vec<Segment>, FsckError> {
        let mut segments = Vec::new();
        let place = folder.journal_of(self.rank);
        let entries = match std::fs::read_dir(&place) {
            Ok(entries) => entries,
            // A file system that was never served has no journal.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(segments),
            Err(source) => return Err(FsckError::Io { path: place, source }),
        };
        for entry in entries {
            let path = entry.map_err(io_error(&place))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let is_segment = name.len() >= 8 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_segment {
                let sequence = u64::from_str_radix(&name, 16).unwrap_or(0);
                self.sequence = self.sequence.max(sequence);
                let (header, len) = segment::read_header(&path).map_err(io_error(&path))?;
                let good = header.filter(|header| header.fits(self.rank, sequence, folder.incarnation));
                if let Some(segment) = self.admit(good, sequence, &name, path.clone(), len, found)? {
                    self.beyond = self.beyond.max(segment.start + len);
                    segments.push(segment);
                }
                self.files.push(path);
            } else if name.starts_with("spare.") || name == "new" {
                self.files.push(path);
            }
        }
        segments.sort_by_key(|segment| segment.sequence);
        Ok(segments)
    }

    /// A segment from its header; without one, from what its first entry says of itself.
    fn admit(
        &mut self,
        header: Option<Header>,
        sequence: u64,
        name: &str,
        path: PathBuf,
        len: u64,
        found: &mut Found,
    ) -> Result<Option<Segment>, FsckError> {
        let name = format!("{}/{name}", self.name);
        let segment = |start| Segment { path: path.clone(), name: name.clone(), sequence, start };
        if let Some(header) = header {
            self.incarnation = self.incarnation.max(header.incarnation);
            return Ok(Some(segment(header.start)));
        }
        self.awry = true;
        let start = segment::start_by_entry(&path).map_err(io_error(&path))?;
        let detail = if start.is_some() { "its entries can be read" } else { "" };
        found.add(Kind::JournalHeaderDamaged, format!("{name} at 0x0"), detail);
        self.beyond = self.beyond.max(len);
        Ok(start.map(segment))
    }

    fn chain(
        &mut self,
        segments: &[Segment],
        overlay: &mut Overlay,
        found: &mut Found,
    ) -> Result<(), FsckError> {
        let from = self.from;
        let Some(first) = segments.iter().rposition(|segment| segment.start <= from) else {
            if from > 0 || !segments.is_empty() {
                let begins =
                    segments.first().map_or_else(|| "it is empty".into(), |s| format!("from {}", s.start));
                let what = format!("checkpoint at seq {from}, journal {begins}");
                found.add(Kind::JournalBeforeCheckpoint, self.name.as_str(), what.clone());
                self.lost = Some(format!("{}: {what}", self.name));
            }
            return Ok(());
        };
        let chain = &segments[first..];
        for (index, segment) in chain.iter().enumerate() {
            let next = chain.get(index + 1);
            if let Some(next) = next
                && next.sequence != segment.sequence + 1
            {
                let name = format!("{}/{:08x}", self.name, segment.sequence + 1);
                self.lost = Some(format!("{name} is missing"));
                found.add(Kind::JournalSegmentMissing, name, "");
            }
            if !self.segment(segment, next.map(|next| next.start), &chain[index + 1..], overlay, found)? {
                return Ok(());
            }
            if self.lost.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads one segment. Whether the next one can be read after it.
    fn segment(
        &mut self,
        segment: &Segment,
        stated: Option<u64>,
        later: &[Segment],
        overlay: &mut Overlay,
        found: &mut Found,
    ) -> Result<bool, FsckError> {
        // A missing successor: up to where it ends nobody knows.
        let stated = stated.filter(|_| self.lost.is_none());
        let begin = self.end;
        let bytes = segment.read(begin, stated).map_err(io_error(&segment.path))?;
        let mut at = 0;
        while let Some(entry) = Entry::read(&bytes[at..], begin + at as u64) {
            let Some(()) = entry::apply(entry.payload, self.rank, overlay) else {
                let place = segment.place(begin + at as u64);
                found.add(Kind::JournalMutationUnknown, place.clone(), "");
                self.lost = Some(place);
                return Ok(false);
            };
            found.report.journal_operations += u64::from(entry.is_transaction());
            at += entry.len;
            self.end = begin + at as u64;
        }
        let tail = &bytes[at..];
        match stated {
            Some(stated) if self.end == stated => return Ok(true),
            Some(_) => {}
            None => {
                let mark = entry::behind(tail, self.end).mark;
                if mark <= self.end {
                    return self.boundary(segment, begin, at, found);
                }
            }
        }
        let mut lost = 1 + entry::behind(tail, self.end).operations;
        for (index, segment) in later.iter().enumerate() {
            let stated = later.get(index + 1).map(|next| next.start);
            let bytes = segment.read(segment.start, stated).map_err(io_error(&segment.path))?;
            lost += entry::behind(&bytes, segment.start).operations;
        }
        let operations = if lost == 1 { "operation" } else { "operations" };
        let detail = format!("{lost} {operations} after seq {} unreadable", self.end);
        let place = segment.place(self.end);
        self.lost = Some(format!("{place}: {detail}"));
        found.add(Kind::JournalEntryDamaged, place, detail);
        Ok(false)
    }

    /// Nothing is readable at the checkpoint: fine if the segment's entries lead exactly there,
    /// otherwise what the checkpoint relied on is gone.
    fn boundary(
        &mut self,
        segment: &Segment,
        from: u64,
        read: usize,
        found: &mut Found,
    ) -> Result<bool, FsckError> {
        if read > 0 {
            return Ok(true);
        }
        let bytes = segment.read(segment.start, Some(from)).map_err(io_error(&segment.path))?;
        let mut at = 0;
        while let Some(entry) = Entry::read(&bytes[at..], segment.start + at as u64) {
            at += entry.len;
        }
        if segment.start + at as u64 == from {
            return Ok(true);
        }
        let place = segment.place(segment.start + at as u64);
        let detail = format!("the journal ends before seq {from}");
        // Entries that lead to the checkpoint behind the bad one: the tables hold all they say. Without
        // them nobody knows what was behind the checkpoint.
        if entry::behind(&bytes[at..], segment.start + at as u64).end == from {
            self.awry = true;
        } else {
            self.lost = Some(format!("{place}: {detail}"));
        }
        found.add(Kind::JournalBeforeCheckpoint, place, detail);
        Ok(true)
    }
}

/// The folder of a rank's journal, below the one that holds `journal/`.
fn folder_name(rank: u16) -> String {
    if rank == 0 { "journal".into() } else { format!("journal/{rank:04x}") }
}

/// Ranks above 0 that have a folder for their journal.
fn ranks_with_folder(journal: &Path) -> Result<Vec<u16>, FsckError> {
    let entries = match std::fs::read_dir(journal) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(FsckError::Io { path: journal.into(), source }),
    };
    let mut ranks = Vec::new();
    for entry in entries {
        let name = entry.map_err(io_error(journal))?.file_name();
        let rank = name.to_str().and_then(|name| u16::from_str_radix(name, 16).ok());
        ranks.extend(rank.filter(|rank| (1..RANKS).contains(rank) && *name == *format!("{rank:04x}")));
    }
    Ok(ranks)
}
