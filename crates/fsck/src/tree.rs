//! The namespace as it is walked: every record readable, and what the cross checks need of it.
//!
//! Memory: about 64 bytes per inode and 48 per directory. Absent: the cross checks (`cross.rs`), file data.

use crate::bytes::Bytes;
use crate::finding::{Found, Kind};
use crate::fix::{At, Edit, Fix, Spot};
use crate::folder::Folder;
use crate::journal::Overlay;
use crate::record::{
    self, DIRECTORY, Dentry, FIRST_COUNTER, Frag, Header, Inode, LINKS, SYSTEM, Wrong, is_later_orphans,
    is_orphans, number_name,
};
use crate::tables::{Table, Tables, place};
use std::collections::BTreeMap;
use stdx::hash::keyed_hash;

/// The part of an inode's number that its rank counted.
const COUNTER: u64 = 0xFFFF_FFFF_FFFF;

/// An inode and where its record is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) ino: u64,
    pub(crate) dir: u64,
    pub(crate) hash: u64,
    pub(crate) size: u64,
    pub(crate) change: u64,
    pub(crate) generation: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u32,
    /// It has a backptr, and that leads here.
    pub(crate) backptr: Hint,
}

/// What is known of an inode's backptr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    None,
    Right,
    Wrong,
}

/// One directory's entries as they were walked.
#[derive(Clone, Copy, Default)]
pub(crate) struct Listing {
    pub(crate) dir: u64,
    pub(crate) header: Option<Header>,
    /// There is a header and it cannot be read.
    pub(crate) unreadable: bool,
    pub(crate) entries: u64,
    pub(crate) subdirs: u64,
}

/// A second name of an inode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Remote {
    pub(crate) ino: u64,
    pub(crate) dir: u64,
    pub(crate) hash: u64,
    pub(crate) kind: u8,
    pub(crate) at: At,
}

/// An inode of `//links`.
pub(crate) struct Linked {
    pub(crate) ino: u64,
    pub(crate) kind: u8,
    pub(crate) nlink: u32,
    pub(crate) links: Vec<(u64, u64)>,
}

/// What the walk leaves behind.
#[derive(Default)]
pub(crate) struct Tree {
    /// Sorted by number.
    pub(crate) nodes: Vec<Node>,
    /// Sorted by directory.
    pub(crate) listings: Vec<Listing>,
    /// Sorted by inode.
    pub(crate) remotes: Vec<Remote>,
    /// Sorted by inode.
    pub(crate) linked: Vec<Linked>,
    /// The highest number that each rank gave out, as far as the records tell.
    pub(crate) highest: BTreeMap<u16, u64>,
    current: Listing,
    /// Parts of the directory at hand that have headers, or should.
    parts: Vec<Part>,
    wrong: Wrong,
}

/// A part of a directory, as it was walked.
struct Part {
    frag: Frag,
    header: Option<Header>,
    /// There is one and it cannot be read.
    unreadable: bool,
    entries: u64,
    subdirs: u64,
}

impl Node {
    pub(crate) const fn spot(&self) -> Spot {
        Spot::Inode { dir: self.dir, hash: self.hash, ino: self.ino }
    }
}

impl Tree {
    /// Walks all dentries and headers.
    pub(crate) fn walk(folder: &Folder, tables: &Tables, overlay: &Overlay, found: &mut Found) -> Self {
        let mut tree = Self::default();
        tables.walk(Table::Dentry, &overlay.dentry, found, |found, environment, key, value| {
            tree.record(folder, tables, found, (environment, key), value);
        });
        tree.turn(0, found);
        tree.nodes.sort_unstable_by_key(|node| (node.ino, node.dir, node.hash));
        tree.listings.sort_unstable_by_key(|listing| listing.dir);
        tree.remotes.sort_unstable();
        tree.linked.sort_unstable_by_key(|inode| inode.ino);
        tree
    }

    /// All places of an inode: one, if all is well.
    pub(crate) fn places(&self, ino: u64) -> &[Node] {
        let from = self.nodes.partition_point(|node| node.ino < ino);
        let len = self.nodes[from..].partition_point(|node| node.ino == ino);
        &self.nodes[from..from + len]
    }

    /// Whether there are entries under a number.
    pub(crate) fn lists(&self, dir: u64) -> bool {
        let listing = self.listings.binary_search_by_key(&dir, |listing| listing.dir);
        listing.is_ok_and(|at| self.listings[at].entries > 0)
    }

    pub(crate) fn node(&self, ino: u64) -> Option<&Node> {
        self.places(ino).first()
    }

    /// Records of a directory lie together: its listing is done when the next one begins.
    fn turn(&mut self, dir: u64, found: &mut Found) {
        if self.current.dir != dir {
            self.end_parts(found);
            let done = std::mem::replace(&mut self.current, Listing { dir, ..Listing::default() });
            if done.dir != 0 {
                self.listings.push(done);
            }
        }
    }

    /// Each unit of a spread directory has a header with its counts, the directory's own counts nothing; other directories have none.
    fn end_parts(&mut self, found: &mut Found) {
        let Listing { dir, .. } = self.current;
        let place = |frag: Frag| format!("directory {dir:x}, part {:x}/{}", frag.prefix, frag.depth);
        let spread = self.current.header.and_then(|header| header.spread);
        for Part { frag, header, unreadable, entries, subdirs } in std::mem::take(&mut self.parts) {
            if spread != Some(frag.depth) {
                found.add(Kind::HeaderOrphaned, place(frag), "");
                found.fix(Fix::DropHeader { dir, frag });
                continue;
            }
            match header {
                Some(header) if (header.entries, header.subdirs) == (entries, subdirs) => continue,
                Some(header) if header.entries != entries => {
                    let detail = format!("{}, counted {entries}", header.entries);
                    found.add(Kind::EntriesWrong, place(frag), detail);
                }
                Some(header) => {
                    let detail = format!("{}, counted {subdirs}", header.subdirs);
                    found.add(Kind::SubdirsWrong, place(frag), detail);
                }
                None if unreadable => {}
                None => found.add(Kind::HeaderMissing, place(frag), ""),
            }
            found.fix(Fix::Header { dir, frag, entries, subdirs });
        }
        let (entries, subdirs) = (self.current.entries, self.current.subdirs);
        if let Some(header) = self.current.header.as_mut().filter(|_| spread.is_some()) {
            if (header.entries, header.subdirs) != (0, 0) {
                found.add(
                    Kind::EntriesWrong,
                    format!("directory {dir:x}"),
                    "it is spread, and counts names itself",
                );
                found.fix(Fix::Header { dir, frag: Frag::WHOLE, entries: 0, subdirs: 0 });
            }
            (header.entries, header.subdirs) = (entries, subdirs);
        }
    }

    /// The part of the directory at hand that a name is in.
    fn part(&mut self, hash: u64) -> Option<&mut Part> {
        let depth = self.current.header?.spread?;
        self.parts.iter_mut().find(|part| part.frag.depth == depth && part.frag.covers(hash))
    }

    fn record(
        &mut self,
        folder: &Folder,
        tables: &Tables,
        found: &mut Found,
        (environment, key): (u16, &[u8]),
        value: &[u8],
    ) {
        let at = || At { environment, table: Table::Dentry, key: key.into() };
        let place = || place(environment, Table::Dentry, key);
        let mut b = Bytes(key);
        let (Some(dir), Some(hash)) = (b.u64_be(), b.u64_be()) else {
            found.add(Kind::KeyInvalid, place(), "");
            return found.fix(Fix::Remove(Spot::At(at())));
        };
        if tables.home(Table::Dentry, key) != environment {
            found.add(Kind::EnvironmentWrong, place(), "");
            return found.fix(Fix::Rehome(at()));
        }
        let is_directory = dir == SYSTEM || record::is_ino(dir);
        let name = if hash == 0 { None } else { b.0.split_last_chunk::<8>() };
        match name {
            _ if !is_directory => {}
            None if hash == 0 && b.0 == [0; 9] => {
                self.turn(dir, found);
                return self.header(found, at, value);
            }
            None if hash == 0 && frag_of(b.0).is_some_and(Frag::is_unit) => {
                self.turn(dir, found);
                return self.unit(found, at, (dir, frag_of(b.0).unwrap_or_default()), value);
            }
            Some((_, snap)) if *snap != [0; 8] => {
                found.add(Kind::SnapshotUnknown, place(), "");
                return found.fix(Fix::Remove(Spot::At(at())));
            }
            Some((name, _)) => {
                self.turn(dir, found);
                return self.dentry(folder, found, (dir, hash, name), &at, value);
            }
            None => {}
        }
        found.add(Kind::KeyInvalid, place(), "");
        found.fix(Fix::Remove(Spot::At(at())));
    }

    fn header(&mut self, found: &mut Found, at: impl Fn() -> At, value: &[u8]) {
        let header = record::header(value);
        self.current.unreadable = header.is_none();
        self.current.header = header;
        let Some(header) = header else {
            let at = at();
            found.add(Kind::HeaderUnreadable, place(at.environment, at.table, &at.key), "");
            return found.fix(Fix::Remove(Spot::At(at)));
        };
        if header.version == 0 {
            let at = at();
            found.add(Kind::HeaderVersionZero, place(at.environment, at.table, &at.key), "");
            let Listing { dir, .. } = self.current;
            let (frag, Header { entries, subdirs, .. }) = (Frag::WHOLE, header);
            found.fix(Fix::Header { dir, frag, entries, subdirs });
        }
        // In the order of keys it comes before theirs.
        let missing = |frag| Part { frag, header: None, unreadable: false, entries: 0, subdirs: 0 };
        let units =
            header.spread.into_iter().flat_map(|depth| (0..1 << depth).map(move |n| Frag::unit(depth, n)));
        self.parts.extend(units.map(missing));
    }

    /// The header of a unit.
    fn unit(&mut self, found: &mut Found, at: impl Fn() -> At, (dir, frag): (u64, Frag), value: &[u8]) {
        let header = record::header(value).filter(|header| header.unit == Some((dir, frag)));
        let unreadable = header.is_none();
        if unreadable {
            let at = at();
            found.add(Kind::HeaderUnreadable, place(at.environment, at.table, &at.key), "");
            found.fix(Fix::Remove(Spot::At(at)));
        }
        match self.parts.iter_mut().find(|part| part.frag == frag) {
            Some(part) => (part.header, part.unreadable) = (header, unreadable),
            None => self.parts.push(Part { frag, header, unreadable, entries: 0, subdirs: 0 }),
        }
    }

    fn dentry(
        &mut self,
        folder: &Folder,
        found: &mut Found,
        (dir, hash, name): (u64, u64, &[u8]),
        at: &impl Fn() -> At,
        value: &[u8],
    ) {
        self.current.entries += 1;
        if let Some(part) = self.part(hash) {
            part.entries += 1;
        }
        let place = || {
            let at = at();
            place(at.environment, at.table, &at.key)
        };
        let mut wrong = std::mem::take(&mut self.wrong);
        let dentry = record::dentry(value, &mut wrong);
        if dentry.is_none() && wrong.is_empty() {
            wrong.push((Kind::DentryUnreadable, String::new(), None));
        }
        for (kind, detail, edit) in wrong.drain(..) {
            found.add(kind, place(), detail);
            found.fix(match edit {
                Some(edit) => Fix::Inode(Spot::At(at()), edit),
                None => Fix::Remove(Spot::At(at())),
            });
        }
        self.wrong = wrong;
        let is_name = (1..=255).contains(&name.len())
            && name != b"."
            && name != b".."
            && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        let expected = name_hash(folder, name);
        if !is_name {
            found.add(Kind::NameInvalid, place(), "");
            found.fix(Fix::Rescue(Spot::At(at())));
        } else if hash != expected {
            found.add(Kind::HashWrong, place(), format!("{hash:#x}, not {expected:#x}"));
            found.fix(Fix::Rekey(at()));
        }
        match dentry {
            Some(Dentry::Primary(inode)) => self.primary(found, (dir, hash, name), at, inode),
            Some(Dentry::Remote { ino, kind }) => {
                if matches!(dir, SYSTEM | LINKS) || is_orphans(dir) {
                    found.add(Kind::SystemDirectoryStranger, place(), "");
                    return found.fix(Fix::Delete(at()));
                }
                self.remotes.push(Remote { ino, dir, hash, kind, at: at() });
            }
            None => {}
        }
    }

    fn primary(
        &mut self,
        found: &mut Found,
        (dir, hash, name): (u64, u64, &[u8]),
        at: &impl Fn() -> At,
        inode: Inode,
    ) {
        let Inode { ino, generation, kind, nlink, size, change, flags, links: named } = inode;
        if ino >> 63 == 0 {
            let highest = self.highest.entry(record::rank_of(ino)).or_default();
            *highest = (*highest).max(ino & COUNTER);
        }
        let backptr = Hint::None;
        self.nodes.push(Node { ino, dir, hash, size, change, generation, kind, flags, backptr });
        let place = || {
            let at = at();
            place(at.environment, at.table, &at.key)
        };
        let system_name = record::system_name(ino);
        self.current.subdirs += u64::from(kind == DIRECTORY);
        if let Some(part) = self.part(hash) {
            part.subdirs += u64::from(kind == DIRECTORY);
        }
        if dir == SYSTEM && is_later_orphans(ino) {
            // The header of `//` counts what every file system has.
            self.current.entries -= 1;
            self.current.subdirs -= u64::from(kind == DIRECTORY);
        }
        let (links, orphans) = (dir == LINKS, is_orphans(dir));
        let belongs = match dir {
            SYSTEM => system_name.is_some(),
            _ if links || orphans => kind != DIRECTORY && ino >= FIRST_COUNTER,
            _ => system_name.is_none(),
        };
        if !belongs {
            found.add(Kind::SystemDirectoryStranger, place(), "");
            // A copy of a system directory elsewhere is nobody's.
            let spot = Spot::At(at());
            return found.fix(if system_name.is_some() { Fix::Remove(spot) } else { Fix::Rescue(spot) });
        }
        let named_right = match dir {
            SYSTEM => system_name.as_deref().map(str::as_bytes) == Some(name),
            _ if links || orphans => number_name(ino).as_bytes() == name,
            _ => true,
        };
        if !named_right {
            found.add(Kind::SystemNameWrong, place(), format!("inode {ino:x}"));
            found.fix(Fix::Rekey(at()));
        }
        match dir {
            LINKS => self.linked.push(Linked { ino, kind, nlink, links: named }),
            _ if orphans && nlink != 0 => {
                found.add(Kind::OrphanNamed, place(), format!("link count {nlink}"));
                found.fix(Fix::Rescue(Spot::At(at())));
            }
            SYSTEM => {}
            _ if !orphans && kind != DIRECTORY && nlink != 1 => {
                found.add(Kind::PlainFileNlink, place(), format!("{nlink}, not 1"));
                found.fix(Fix::Inode(Spot::At(at()), Edit::Nlink(1)));
            }
            _ => {}
        }
    }
}

/// What the rest of a header's key says.
fn frag_of(rest: &[u8]) -> Option<Frag> {
    let mut b = Bytes(rest);
    let frag = Frag { prefix: b.u64_be()?, depth: b.u8()? };
    b.is_empty().then_some(frag)
}

/// The hash of a name, lifted out of the reserved range.
pub(crate) fn name_hash(folder: &Folder, name: &[u8]) -> u64 {
    let hash = keyed_hash(&folder.seed, name);
    if hash < 8 { hash + 8 } else { hash }
}
