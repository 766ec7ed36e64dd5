//! The part of the journal that no checkpoint covers, as an overlay of the tables.
//!
//! The overlay holds the last statement about each key; walking a table through it shows the state a server would have after
//! replay. Absent: trimming and repair.

use crate::bytes::Bytes;
use crate::finding::{Kind, Report};
use crate::folder::{Folder, FsckError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use stdx::checksum::{crc32c, crc32c_parts};

const HEADER_BYTES: usize = 4096;
const ENTRY_HEADER_BYTES: usize = 24;
const ENTRY_BYTES_MAX: usize = 4 << 20;

/// Key -> value, or `None` where the record is gone.
pub(crate) type Statements = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What the journal says beyond the tables.
#[derive(Default)]
pub(crate) struct Overlay {
    pub(crate) dentry: Statements,
    pub(crate) backptr: Statements,
    /// Highest `next` of an inode counter mutation of rank 0.
    pub(crate) counter: Option<u64>,
}

struct Segment {
    path: PathBuf,
    name: String,
    start: u64,
    predecessor_end: u64,
}

/// Reads every entry from `checkpoint` on.
pub(crate) fn read_tail(
    folder: &Folder,
    checkpoint: Option<u64>,
    report: &mut Report,
) -> Result<Overlay, FsckError> {
    let mut overlay = Overlay::default();
    let segments = list(folder, report)?;
    let from = checkpoint.unwrap_or(0);
    let Some(first) = segments.iter().rposition(|segment| segment.start <= from) else {
        if !segments.is_empty() {
            let detail = format!("checkpoint at {from:#x}, journal from {:#x}", segments[0].start);
            report.add(Kind::JournalBeforeCheckpoint, "journal", detail);
        }
        return Ok(overlay);
    };
    for (i, segment) in segments.iter().enumerate().skip(first) {
        let end = segments.get(i + 1).map(|next| next.predecessor_end);
        let bytes = std::fs::read(&segment.path)
            .map_err(|source| FsckError::Io { path: segment.path.clone(), source })?;
        walk(segment, &bytes, end, from, &mut overlay, report);
    }
    Ok(overlay)
}

fn list(folder: &Folder, report: &mut Report) -> Result<Vec<Segment>, FsckError> {
    let io = |source| FsckError::Io { path: folder.journal.clone(), source };
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(&folder.journal).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() != 8 || !name.bytes().all(|b| b.is_ascii_hexdigit()) {
            continue;
        }
        let path = entry.path();
        let mut head = vec![0; HEADER_BYTES];
        let read = std::fs::File::open(&path)
            .and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, 0));
        match read.ok().and_then(|()| read_header(&head)) {
            Some((start, predecessor_end)) => segments.push(Segment { path, name, start, predecessor_end }),
            // A segment that waits for reuse has no header, or an erased one.
            None if head.iter().all(|b| *b == 0) => {}
            None => report.add(Kind::JournalHeaderDamaged, format!("journal/{name} at 0x0"), ""),
        }
    }
    segments.sort_by_key(|segment| segment.start);
    Ok(segments)
}

fn read_header(head: &[u8]) -> Option<(u64, u64)> {
    let mut b = Bytes(head);
    let magic = b.take(8)?;
    let crc = b.u32()?;
    if magic != b"PandoJ1\n" || crc32c(b.0) != crc {
        return None;
    }
    let (_rank, _incarnation, _sequence) = (b.u16()?, b.u64()?, b.u64()?);
    Some((b.u64()?, b.u64()?))
}

fn walk(
    segment: &Segment,
    bytes: &[u8],
    end: Option<u64>,
    from: u64,
    overlay: &mut Overlay,
    report: &mut Report,
) {
    let mut position = segment.start;
    loop {
        if end.is_some_and(|end| position >= end) {
            return;
        }
        let at = HEADER_BYTES + (position - segment.start) as usize;
        let Some((len, payload)) = entry(bytes.get(at..).unwrap_or_default(), position) else {
            bad_entry(segment, bytes, position, end, report);
            return;
        };
        if position >= from {
            let place = format!("journal/{} at {at:#x}", segment.name);
            if apply(payload, overlay, report).is_none() {
                report.add(Kind::JournalMutationUnknown, place, "");
            }
        }
        position += len as u64;
    }
}

/// The entry at the front of `bytes`: its length and payload.
fn entry(bytes: &[u8], position: u64) -> Option<(usize, &[u8])> {
    let mut b = Bytes(bytes);
    let (len, crc) = (b.u32()? as usize, b.u32()?);
    if !(ENTRY_HEADER_BYTES..=ENTRY_BYTES_MAX).contains(&len) || b.u64()? != position {
        return None;
    }
    let body = bytes.get(8..len)?;
    (crc32c_parts(&[&bytes[..4], body]) == crc).then(|| (len, &bytes[ENTRY_HEADER_BYTES..len]))
}

/// A bad entry below a stated end, or below a mark of a later entry, is damage; else it is the torn tail.
fn bad_entry(segment: &Segment, bytes: &[u8], position: u64, end: Option<u64>, report: &mut Report) {
    let offset = HEADER_BYTES + (position - segment.start) as usize;
    let (mut at, mut later, mut mark) = (offset + 1, 0_u64, 0);
    while at + ENTRY_HEADER_BYTES <= bytes.len() {
        let here = segment.start + (at - HEADER_BYTES) as u64;
        match entry(&bytes[at..], here) {
            Some((len, _)) => {
                later += 1;
                mark = mark.max(Bytes(&bytes[at + 16..]).u64().unwrap_or(0));
                at += len;
            }
            None => at += 1,
        }
    }
    if end.is_some() || mark > position {
        let place = format!("journal/{} at {offset:#x}", segment.name);
        report.add(Kind::JournalEntryDamaged, place, format!("{later} operations after it unreadable"));
    }
}

fn apply(payload: &[u8], overlay: &mut Overlay, report: &mut Report) -> Option<()> {
    let mut b = Bytes(payload);
    match b.u8()? {
        2 => return Some(()),
        1 => {}
        _ => return None,
    }
    let flags = b.u8()?;
    b.u64()?;
    if flags & 1 != 0 {
        b.take(16)?;
        b.bytes()?;
    }
    if flags & 2 != 0 {
        b.take(24)?;
    }
    report.journal_operations += 1;
    while !b.is_empty() {
        mutation(&mut b, overlay)?;
    }
    Some(())
}

fn mutation(b: &mut Bytes<'_>, overlay: &mut Overlay) -> Option<()> {
    match b.u8()? {
        ordinal @ (1 | 2) => {
            let (dir, hash, _version) = (b.u64()?, b.u64()?, b.u64()?);
            let name = b.name()?;
            let value = if ordinal == 1 { Some(b.bytes()?.into()) } else { None };
            let snap = 0_u64.to_be_bytes();
            let key = [&dir.to_be_bytes()[..], &hash.to_be_bytes(), name, &snap].concat();
            overlay.dentry.insert(key.into(), value);
        }
        3 => {
            let (dir, prefix, depth, _version) = (b.u64()?, b.u64()?, b.u8()?, b.u64()?);
            let _newborn = b.u8()?;
            let value = b.bytes()?;
            let key = [&dir.to_be_bytes()[..], &[0; 8], &prefix.to_be_bytes(), &[depth]].concat();
            overlay.dentry.insert(key.into(), Some(value.into()));
        }
        4 => {
            let ino = b.u64()?;
            let value = b.0;
            b.take(8 + 8 + 8)?;
            b.name()?;
            let value = &value[..value.len() - b.0.len()];
            overlay.backptr.insert(ino.to_be_bytes().into(), Some(value.into()));
        }
        5 => {
            let (ino, _version) = (b.u64()?, b.u64()?);
            overlay.backptr.insert(ino.to_be_bytes().into(), None);
        }
        6 => {
            b.take(9)?;
            b.name()?;
        }
        7 => {
            b.take(16)?;
        }
        8 => {
            let (rank, next) = (b.u16()?, b.u64()?);
            if rank == 0 {
                overlay.counter = overlay.counter.max(Some(next));
            }
        }
        9 => {
            b.take(12 + 12)?;
        }
        10 => {
            b.take(12 + 12)?;
            b.bytes()?;
        }
        11 => {
            b.take(12)?;
        }
        _ => return None,
    }
    Some(())
}
