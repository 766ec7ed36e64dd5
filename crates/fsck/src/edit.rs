//! Changing inode records and headers as bytes: what is not understood stays as it is.
//!
//! Absent: deciding what to change.

use crate::bytes::{Bytes, Out};
use crate::fix::Edit;
use crate::record::{
    DIRECTORY, FLAG_BACKPTR, FLAGS_KNOWN, Frag, REGULAR, SECTION_CORE, SECTION_LINKS, SECTION_UNIT,
    SECTION_XATTRS,
};
use std::collections::BTreeMap;

/// Offsets in an inode's core.
const MODE: usize = 12;
const NLINK: usize = 16;
const SIZE: usize = 32;
const CHANGE: usize = 72;
const FLAGS: usize = 92;
const CORE_BYTES: usize = 104;
/// How far a repair moves versions and change counters, so that nobody takes the new state for an old.
const STEP: u64 = 1 << 20;

type Sections = Vec<(u8, Vec<u8>)>;

fn sections(value: &[u8]) -> Option<Sections> {
    let mut b = Bytes(value.strip_prefix(&[1])?);
    let mut sections = Vec::new();
    while !b.is_empty() {
        sections.push((b.u8()?, b.bytes()?.to_vec()));
    }
    let core = sections.iter().find(|(tag, _)| *tag == SECTION_CORE)?;
    (core.1.len() >= CORE_BYTES).then_some(sections)
}

fn join(sections: &Sections) -> Vec<u8> {
    let mut out = Out(vec![1]);
    for (tag, body) in sections {
        out.u8(*tag).bytes(body);
    }
    out.0
}

fn set(core: &mut [u8], at: usize, bytes: &[u8]) {
    core[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(core: &[u8], at: usize) -> u32 {
    Bytes(&core[at..]).u32().unwrap_or_default()
}

fn u64_at(core: &[u8], at: usize) -> u64 {
    Bytes(&core[at..]).u64().unwrap_or_default()
}

/// A primary dentry with one change; `None` when it is none that can be changed.
pub(crate) fn inode(value: &[u8], edit: &Edit) -> Option<Vec<u8>> {
    let mut sections = sections(value)?;
    match edit {
        Edit::DropSection(tag) => sections.retain(|(known, _)| known != tag),
        Edit::SortXattrs => {
            let xattrs = sections.iter_mut().find(|(tag, _)| *tag == SECTION_XATTRS)?;
            xattrs.1 = sort_xattrs(&xattrs.1)?;
        }
        Edit::Links(links) => {
            sections.retain(|(tag, _)| *tag != SECTION_LINKS);
            let mut out = Out::default();
            links.iter().for_each(|(parent, hash)| {
                out.u64(*parent).u64(*hash);
            });
            sections.push((SECTION_LINKS, out.0));
        }
        Edit::Nlink(_) | Edit::Kind(_) | Edit::Size(_) | Edit::Flags | Edit::BackptrFlag => {}
    }
    let core = &mut sections.iter_mut().find(|(tag, _)| *tag == SECTION_CORE)?.1;
    match edit {
        Edit::Nlink(nlink) => set(core, NLINK, &nlink.to_le_bytes()),
        Edit::Kind(kind) => {
            let mode = u32_at(core, MODE) & 0o7777 | u32::from(*kind) << 12;
            set(core, MODE, &mode.to_le_bytes());
        }
        Edit::Size(size) => set(core, SIZE, &size.to_le_bytes()),
        Edit::Flags => {
            let flags = u32_at(core, FLAGS) & FLAGS_KNOWN;
            set(core, FLAGS, &flags.to_le_bytes());
        }
        Edit::BackptrFlag => {
            let flags = u32_at(core, FLAGS) | FLAG_BACKPTR;
            set(core, FLAGS, &flags.to_le_bytes());
        }
        Edit::DropSection(_) | Edit::SortXattrs | Edit::Links(_) => {}
    }
    let change = u64_at(core, CHANGE).saturating_add(STEP);
    set(core, CHANGE, &change.to_le_bytes());
    Some(join(&sections))
}

fn sort_xattrs(body: &[u8]) -> Option<Vec<u8>> {
    let mut b = Bytes(body);
    let mut xattrs = BTreeMap::new();
    while !b.is_empty() {
        let (name, value) = (b.name()?, b.bytes()?);
        if !name.is_empty() {
            xattrs.entry(name).or_insert(value);
        }
    }
    let mut out = Out::default();
    for (name, value) in xattrs {
        out.name(name).bytes(value);
    }
    Some(out.0)
}

/// A primary dentry of a directory of root's, for nobody else.
pub(crate) fn new_directory(ino: u64, generation: u32, permissions: u32, now: i64) -> Vec<u8> {
    new_inode((ino, generation), (u32::from(DIRECTORY) << 12 | permissions, 2), 0, 0, now)
}

/// A primary dentry of a file of root's, for nobody else.
pub(crate) fn new_file(ino: u64, generation: u32, size: u64, now: i64) -> Vec<u8> {
    // Whether it has a backptr nobody knows; with the flag it gets one.
    new_inode((ino, generation), (u32::from(REGULAR) << 12 | 0o600, 1), size, FLAG_BACKPTR, now)
}

fn new_inode(file: (u64, u32), (mode, nlink): (u32, u32), size: u64, flags: u32, now: i64) -> Vec<u8> {
    let mut core = Out::default();
    core.u64(file.0).u32(file.1).u32(mode).u32(nlink);
    core.u32(0).u32(0).u32(0).u64(size);
    (0..4).for_each(|_| {
        core.u64(now as u64);
    });
    core.u64(STEP).u64(0).u32(0).u32(flags).u64(0);
    join(&vec![(SECTION_CORE, core.0)])
}

/// Number and generation in the stored form of a primary dentry, wherever else it is damaged.
pub(crate) fn legible_number(stored: &[u8]) -> Option<(u64, u32)> {
    // Behind the checksum, the dentry's tag, and tag and length of the core, which is first.
    let mut b = Bytes(stored.get(4 + 1 + 5..)?);
    Some((b.u64()?, b.u32()?))
}

/// What the header of a unit says of that.
pub(crate) fn unit_section(dir: u64, frag: Frag) -> Vec<u8> {
    let head = [&[SECTION_UNIT][..], &17_u32.to_le_bytes()].concat();
    [&head[..], &dir.to_le_bytes(), &frag.prefix.to_le_bytes(), &[frag.depth]].concat()
}

/// A header with other counts; a new one where there is none that can be read.
pub(crate) fn header(old: Option<&[u8]>, entries: u64, subdirs: u64, now: i64) -> Vec<u8> {
    // Above any version that can have been given out.
    const UNKNOWN: u64 = 1 << 48;
    let old = old.and_then(|old| {
        let mut b = Bytes(old);
        let mut sections = Vec::new();
        while !b.is_empty() {
            sections.push((b.u8()?, b.bytes()?.to_vec()));
        }
        let core = sections.iter().find(|(tag, _)| *tag == SECTION_CORE)?.1.clone();
        (core.len() >= 48).then_some((sections, core))
    });
    let (mut sections, core) = old.unwrap_or_else(|| {
        let mut core = Out::default();
        core.u64(UNKNOWN).u64(0).u64(0).u64(0).u64(now as u64).u64(UNKNOWN);
        (vec![(SECTION_CORE, core.0.clone())], core.0)
    });
    let mut core = core;
    let (version, change) = (u64_at(&core, 0).saturating_add(STEP), u64_at(&core, 40).saturating_add(STEP));
    set(&mut core, 0, &version.to_le_bytes());
    set(&mut core, 8, &entries.to_le_bytes());
    set(&mut core, 24, &subdirs.to_le_bytes());
    set(&mut core, 40, &change.to_le_bytes());
    sections.iter_mut().filter(|(tag, _)| *tag == SECTION_CORE).for_each(|(_, body)| body.clone_from(&core));
    let mut out = Out::default();
    for (tag, body) in &sections {
        out.u8(*tag).bytes(body);
    }
    out.0
}

/// The value and checksum with one bit turned, if that makes them right: one flipped bit in all of a
/// record is the only damage that can be told and undone.
pub(crate) fn correct_bit(key: &[u8], stored: &[u8]) -> Option<Vec<u8>> {
    const TRIED_MAX: usize = 4096;
    if !(4..=TRIED_MAX).contains(&stored.len()) {
        return None;
    }
    let mut stored = stored.to_vec();
    for bit in 0..stored.len() * 8 {
        stored[bit / 8] ^= 1 << (bit % 8);
        if let Some(value) = crate::tables::checked(key, &stored) {
            return Some(value.to_vec());
        }
        stored[bit / 8] ^= 1 << (bit % 8);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{self, Dentry};
    use crate::tables::sealed;

    #[test]
    fn an_edit_changes_what_it_says_and_nothing_else() {
        let mut value = new_directory(5000, 3, 0o700, 9);
        value.extend_from_slice(&[200, 2, 0, 0, 0, 7, 7]);
        let edited = inode(&value, &Edit::Nlink(4)).expect("editable");
        let Some(Dentry::Primary(read)) = record::dentry(&edited, &mut Vec::new()) else {
            panic!("unreadable")
        };
        assert_eq!((read.ino, read.generation, read.kind, read.nlink), (5000, 3, DIRECTORY, 4));
        assert_eq!(edited[edited.len() - 7..], [200, 2, 0, 0, 0, 7, 7]);
        assert!(inode(&value[..50], &Edit::Nlink(4)).is_none());
    }

    #[test]
    fn a_header_keeps_its_other_sections_and_moves_its_version() {
        let mut old = header(None, 1, 0, 5);
        old.extend_from_slice(&[9, 1, 0, 0, 0, 8]);
        let new = header(Some(&old), 7, 2, 6);
        let (old, read) = (record::header(&old).expect("header"), record::header(&new).expect("header"));
        assert_eq!((read.entries, read.subdirs), (7, 2));
        assert!(read.version > old.version && new.ends_with(&[9, 1, 0, 0, 0, 8]));
    }

    #[test]
    fn one_flipped_bit_is_undone_and_two_are_not() {
        let stored = sealed(b"key", b"some value of a record");
        for bit in 0..stored.len() * 8 {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(correct_bit(b"key", &bad).as_deref(), Some(&b"some value of a record"[..]));
        }
        let mut bad = stored;
        (bad[5], bad[9]) = (bad[5] ^ 4, bad[9] ^ 1);
        assert_eq!(correct_bit(b"key", &bad), None);
    }
}
