//! The namespace as a whole: every record readable, every count right, every inode at one place and reachable.
//!
//! Memory: one number per inode, a few per directory and per hard link. Absent: file data.

use crate::bytes::Bytes;
use crate::finding::{Kind, Report};
use crate::folder::Folder;
use crate::journal::Overlay;
use crate::record::{self, DIRECTORY, Dentry, Header, Inode, LINKS, ORPHANS, ROOT, SYSTEM};
use crate::tables::{Tables, place};
use std::collections::{BTreeMap, BTreeSet};
use stdx::hash::keyed_hash;

/// One directory's entries as they were walked.
#[derive(Default)]
struct Listing {
    header: Option<Header>,
    entries: u64,
    subdirs: u64,
}

/// Everything the cross checks need.
#[derive(Default)]
struct Seen {
    /// Numbers of all primary inodes.
    inodes: Vec<u64>,
    /// Directory -> its parent.
    parents: BTreeMap<u64, u64>,
    /// Directory -> what lies under its number.
    listings: BTreeMap<u64, Listing>,
    /// Inodes of `//links`.
    linked: BTreeMap<u64, Inode>,
    /// (inode, directory, hash, type) of each remote name.
    remotes: Vec<(u64, u64, u64, u8)>,
    highest: u64,
}

/// Checks the whole namespace.
pub(crate) fn check(folder: &Folder, tables: &Tables, overlay: &Overlay, report: &mut Report) {
    let mut seen = Seen::default();
    tables.walk("dentry", &overlay.dentry, report, |report, env, key, value| {
        seen.dentry_record(folder, report, env, key, value);
    });
    seen.check_numbers(report);
    seen.check_listings(report);
    seen.check_reachable(report);
    seen.check_links(report);
    check_backptrs(tables, overlay, &seen, report);
    check_system(tables, overlay, &seen, report);
    report.directories = seen.parents.len() as u64;
    report.files = (seen.inodes.len() as u64).saturating_sub(report.directories);
}

impl Seen {
    fn dentry_record(&mut self, folder: &Folder, report: &mut Report, env: &str, key: &[u8], value: &[u8]) {
        let place = place(env, "dentry", key);
        let mut b = Bytes(key);
        let (Some(dir), Some(hash)) = (b.u64_be(), b.u64_be()) else {
            return report.add(Kind::KeyInvalid, place, "");
        };
        if hash == 0 {
            return self.header_record(report, place, dir, b.0, value);
        }
        let Some((name, snap)) = b.0.split_last_chunk::<8>() else {
            return report.add(Kind::KeyInvalid, place, "");
        };
        if *snap != [0; 8] {
            return report.add(Kind::SnapshotUnknown, place, "");
        }
        if name.is_empty()
            || name.len() > 255
            || name == b"."
            || name == b".."
            || name.iter().any(|b| b"/\0".contains(b))
        {
            report.add(Kind::NameInvalid, place.clone(), "");
        }
        let expected = keyed_hash(&folder.seed, name);
        if hash != if expected < 8 { expected + 8 } else { expected } {
            report.add(Kind::HashWrong, place.clone(), format!("{hash:#x}, not {expected:#x}"));
        }
        let mut wrong = Vec::new();
        let dentry = record::dentry(value, &mut wrong);
        if dentry.is_none() && wrong.is_empty() {
            report.add(Kind::DentryUnreadable, place.clone(), "");
        }
        for (kind, detail) in wrong {
            report.add(kind, place.clone(), detail);
        }
        let listing = self.listings.entry(dir).or_default();
        listing.entries += 1;
        match dentry {
            Some(Dentry::Primary(inode)) => self.primary(report, &place, dir, inode),
            Some(Dentry::Remote { ino, kind }) => self.remotes.push((ino, dir, hash, kind)),
            None => {}
        }
    }

    fn header_record(&mut self, report: &mut Report, place: String, dir: u64, rest: &[u8], value: &[u8]) {
        if rest.len() != 9 {
            return report.add(Kind::KeyInvalid, place, "");
        }
        match record::header(value) {
            None => report.add(Kind::HeaderUnreadable, place, ""),
            Some(header) => {
                if header.version == 0 {
                    report.add(Kind::HeaderVersionZero, place, "");
                }
                self.listings.entry(dir).or_default().header = Some(header);
            }
        }
    }

    fn primary(&mut self, report: &mut Report, place: &str, dir: u64, inode: Inode) {
        self.inodes.push(inode.ino);
        self.highest = self.highest.max(inode.ino);
        if inode.kind == DIRECTORY {
            self.listings.entry(dir).or_default().subdirs += 1;
            if let Some(other) = self.parents.insert(inode.ino, dir) {
                report.add(Kind::InodeTwice, place, format!("also in directory {other}"));
            }
        } else if dir == LINKS {
            self.linked.insert(inode.ino, inode);
        } else if (ORPHANS..0x200).contains(&dir) {
            if inode.nlink != 0 {
                report.add(Kind::OrphanNamed, place, format!("link count {}", inode.nlink));
            }
        } else if inode.nlink != 1 {
            report.add(Kind::PlainFileNlink, place, format!("{}, not 1", inode.nlink));
        }
    }

    fn check_numbers(&mut self, report: &mut Report) {
        self.inodes.sort_unstable();
        for pair in self.inodes.windows(2) {
            if pair[0] == pair[1] && !self.parents.contains_key(&pair[0]) {
                report.add(Kind::InodeTwice, format!("inode {}", pair[0]), "");
            }
        }
    }

    fn check_listings(&self, report: &mut Report) {
        for ino in [ROOT, LINKS, ORPHANS] {
            if !self.parents.contains_key(&ino) {
                report.add(Kind::SystemDirectoryMissing, format!("inode {ino}"), "");
            }
        }
        for (dir, listing) in &self.listings {
            let place = format!("directory {dir}");
            if *dir != SYSTEM && !self.parents.contains_key(dir) {
                match listing.entries {
                    0 => report.add(Kind::HeaderOrphaned, place, ""),
                    entries => report.add(Kind::Unreachable, place, format!("{entries} entries")),
                }
                continue;
            }
            let Some(header) = &listing.header else { continue };
            if header.entries != listing.entries {
                let detail = format!("{}, counted {}", header.entries, listing.entries);
                report.add(Kind::EntriesWrong, place.clone(), detail);
            }
            if header.subdirs != listing.subdirs {
                let detail = format!("{}, counted {}", header.subdirs, listing.subdirs);
                report.add(Kind::SubdirsWrong, place, detail);
            }
        }
        for dir in self.parents.keys() {
            if self.listings.get(dir).is_none_or(|listing| listing.header.is_none()) {
                report.add(Kind::HeaderMissing, format!("directory {dir}"), "");
            }
        }
    }

    /// Walks up from each directory; numbers proven to reach the top are not walked again.
    fn check_reachable(&self, report: &mut Report) {
        let mut proven = BTreeSet::from([SYSTEM]);
        for start in self.parents.keys() {
            let mut way = Vec::new();
            let mut at = *start;
            while !proven.contains(&at) && !way.contains(&at) {
                way.push(at);
                match self.parents.get(&at) {
                    Some(parent) => at = *parent,
                    None => break,
                }
            }
            if way.contains(&at) && self.parents.contains_key(&at) {
                report.add(Kind::Loop, format!("directory {at}"), "");
            }
            // Whatever was found is told once, for the first directory on the way.
            proven.extend(way);
        }
    }

    fn check_links(&self, report: &mut Report) {
        let mut names: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for (ino, dir, hash, kind) in &self.remotes {
            let place = format!("inode {ino} named in directory {dir}");
            match self.linked.get(ino) {
                None => report.add(Kind::RemoteDangling, place, ""),
                Some(inode) => {
                    if inode.kind != *kind {
                        report.add(Kind::RemoteTypeWrong, place, format!("{kind}, not {}", inode.kind));
                    }
                    names.entry(*ino).or_default().push((*dir, *hash));
                }
            }
        }
        for (ino, inode) in &self.linked {
            let place = format!("inode {ino}");
            let mut named = names.remove(ino).unwrap_or_default();
            if named.is_empty() {
                report.add(Kind::LinkWithoutNames, place.clone(), "");
            }
            if named.len() as u64 != u64::from(inode.nlink) {
                let detail = format!("{}, counted {}", inode.nlink, named.len());
                report.add(Kind::LinkCountWrong, place.clone(), detail);
            }
            let mut listed = inode.links.clone();
            listed.sort_unstable();
            named.sort_unstable();
            if listed != named {
                report.add(Kind::LinkListWrong, place, "");
            }
        }
    }
}

/// Backptrs are hints: a stale one is no fault, an unreadable one is, and a directory needs one.
fn check_backptrs(tables: &Tables, overlay: &Overlay, seen: &Seen, report: &mut Report) {
    let mut having = BTreeSet::new();
    tables.walk("backptr", &overlay.backptr, report, |report, env, key, value| {
        match (key.len(), Bytes(key).u64_be(), record::backptr(value)) {
            (8, Some(ino), Some(_)) => {
                if seen.parents.contains_key(&ino) {
                    having.insert(ino);
                }
            }
            (8, Some(_), None) => report.add(Kind::BackptrUnreadable, place(env, "backptr", key), ""),
            _ => report.add(Kind::KeyInvalid, place(env, "backptr", key), ""),
        }
    });
    for dir in seen.parents.keys().filter(|dir| **dir >= record::FIRST_COUNTER && !having.contains(dir)) {
        report.add(Kind::BackptrMissing, format!("directory {dir}"), "");
    }
}

fn check_system(tables: &Tables, overlay: &Overlay, seen: &Seen, report: &mut Report) {
    let mut counter = overlay.counter;
    tables.walk("system", &BTreeMap::new(), report, |report, env, key, value| {
        let place = || place(env, "system", key);
        let mut b = Bytes(key);
        match (b.u8(), b.u64_be(), b.is_empty()) {
            (Some(1), Some(_), true) if value.is_empty() => report.add(Kind::SessionUnreadable, place(), ""),
            (Some(1 | 3), Some(_), true) => {}
            (Some(2), Some(rank), true) => match Bytes(value).u64() {
                Some(next) if rank == 0 => counter = counter.max(Some(next)),
                Some(_) => {}
                None => report.add(Kind::CounterUnreadable, place(), ""),
            },
            _ => report.add(Kind::SystemKeyUnknown, place(), ""),
        }
    });
    let next = counter.unwrap_or(record::FIRST_COUNTER);
    if seen.highest >= next.max(record::FIRST_COUNTER) {
        report.add(
            Kind::CounterBehind,
            "inode counter",
            format!("{next}, but inode {} exists", seen.highest),
        );
    }
}
