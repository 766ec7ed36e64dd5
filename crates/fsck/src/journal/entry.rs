//! Entries: framing, and what their mutations do to the overlay.
//!
//! Absent: files; which of several statements counts (`said.rs`).

use super::Overlay;
use crate::bytes::Bytes;
use crate::record::{Frag, dentry_key, header, header_key};
use crate::system::{EVICTED, Session};
use stdx::checksum::crc32c_parts;

const ENTRY_HEADER_BYTES: usize = 24;
const ENTRY_BYTES_MAX: usize = 4 << 20;
const TRANSACTION: u8 = 1;
const MARK: u8 = 2;
const FLAG_SESSION: u8 = 1;
const FLAG_CLUSTER: u8 = 2;

/// A checked entry.
pub(super) struct Entry<'a> {
    pub(super) len: usize,
    pub(super) mark: u64,
    pub(super) payload: &'a [u8],
}

/// Content of a small file that an fsync made durable.
pub(crate) struct Redo {
    /// Who said so.
    pub(super) rank: u16,
    pub(crate) truncate: u32,
    pub(crate) write: u64,
    pub(crate) data: Box<[u8]>,
}

impl<'a> Entry<'a> {
    /// The entry at the front of `bytes`, which are the stream's from `position` on.
    pub(super) fn read(bytes: &'a [u8], position: u64) -> Option<Self> {
        let mut b = Bytes(bytes);
        let (len, crc) = (b.u32()? as usize, b.u32()?);
        if !(ENTRY_HEADER_BYTES..=ENTRY_BYTES_MAX).contains(&len) || b.u64()? != position {
            return None;
        }
        let (mark, body) = (b.u64()?, bytes.get(8..len)?);
        let payload = &bytes[ENTRY_HEADER_BYTES..len];
        (crc32c_parts(&[&bytes[..4], body]) == crc).then_some(Self { len, mark, payload })
    }

    pub(super) fn is_transaction(&self) -> bool {
        self.payload.first() == Some(&TRANSACTION)
    }
}

/// Valid entries behind a bad one.
#[derive(Default)]
pub(super) struct Behind {
    /// The highest durable mark of any of them.
    pub(super) mark: u64,
    pub(super) operations: u64,
    /// Where the last of them ends.
    pub(super) end: u64,
}

pub(super) fn behind(bytes: &[u8], position: u64) -> Behind {
    let mut behind = Behind::default();
    let mut at = 0;
    while at + ENTRY_HEADER_BYTES <= bytes.len() {
        let here = position + at as u64;
        // Compared first: this runs on every byte of a recycled segment.
        let found =
            (bytes[at + 8..at + 16] == here.to_le_bytes()).then(|| Entry::read(&bytes[at..], here)).flatten();
        match found {
            Some(entry) => {
                behind.mark = behind.mark.max(entry.mark);
                behind.operations += u64::from(entry.is_transaction());
                at += entry.len;
                behind.end = position + at as u64;
            }
            None => at += 1,
        }
    }
    behind
}

/// One mutation, as far as a check needs it.
enum Mutation<'a> {
    Dentry {
        /// The directory, or the number of a unit.
        dir: u64,
        hash: u64,
        name: &'a [u8],
        version: u64,
        value: Option<&'a [u8]>,
    },
    Header {
        dir: u64,
        frag: Frag,
        version: u64,
        value: &'a [u8],
    },
    Backptr {
        ino: u64,
        version: u64,
        value: Option<&'a [u8]>,
    },
    Session {
        id: u64,
        open: bool,
        client: &'a [u8],
    },
    Floor {
        id: u64,
        floor: u64,
    },
    /// A directory is gone whose content is another rank's, which ends that.
    Place {
        ino: u64,
        version: u64,
    },
    /// The content of such a directory ends.
    Content {
        dir: u64,
    },
    Delegated {
        id: u64,
        first: u64,
        count: u32,
    },
    /// A session is to be refused and to end.
    Evicted {
        id: u64,
    },
    Counter {
        rank: u16,
        next: u64,
    },
    Cut,
    Redo {
        ino: u64,
        generation: u32,
        truncate: u32,
        write: u64,
        data: &'a [u8],
    },
    Remove {
        ino: u64,
        generation: u32,
    },
    /// What earlier entries say of a directory's content counts no more.
    Sealed {
        dir: u64,
    },
    /// A transaction of several ranks that this one leads is committed, and others have not all carried it out.
    /// `left`: inodes that are another rank's from here on.
    Committed {
        id: u64,
        left: Vec<u64>,
    },
    /// It is over.
    Resolved {
        id: u64,
        left: Vec<u64>,
    },
    /// Numbers delegated to a session, its flags, or what waits for a transaction: only the rank has a use for them.
    OfRank,
}

/// Takes an entry's statements into the overlay: all of them, or none if one cannot be read.
pub(super) fn apply(payload: &[u8], rank: u16, overlay: &mut Overlay) -> Option<()> {
    let mut b = Bytes(payload);
    match b.u8()? {
        MARK => return Some(()),
        TRANSACTION => {}
        _ => return None,
    }
    let flags = b.u8()?;
    let _wall = b.u64()?;
    let mut origin = None;
    if flags & FLAG_SESSION != 0 {
        origin = Some((b.u64()?, b.u64()?, b.bytes()?));
    }
    if flags & FLAG_CLUSTER != 0 {
        b.take(24)?;
    }
    let mut mutations = Vec::new();
    while !b.is_empty() {
        mutations.push(read(&mut b)?);
    }
    // What the number of a unit means its header says, which comes behind the names.
    for mutation in &mutations {
        if let Mutation::Header { dir, value, .. } = mutation
            && let Some(unit) = header(value).and_then(|header| header.unit)
        {
            overlay.units.insert(*dir, unit);
        }
    }
    mutations.into_iter().for_each(|mutation| overlay.state(rank, mutation));
    if let Some((session, tid, result)) = origin
        && let Some(session) = overlay.system.rank(rank).sessions.get_mut(&session)
        && tid >= session.floor
    {
        session.results.insert(tid, result.into());
    }
    Some(())
}

fn read<'a>(b: &mut Bytes<'a>) -> Option<Mutation<'a>> {
    Some(match b.u8()? {
        ordinal @ (1 | 2) => {
            let (dir, hash, version) = (b.u64()?, b.u64()?, b.u64()?);
            let name = b.name()?;
            let value = if ordinal == 1 { Some(b.bytes()?) } else { None };
            Mutation::Dentry { dir, hash, name, version, value }
        }
        3 => {
            let (dir, prefix, depth, version) = (b.u64()?, b.u64()?, b.u8()?, b.u64()?);
            let _newborn = b.u8()?;
            Mutation::Header { dir, frag: Frag { prefix, depth }, version, value: b.bytes()? }
        }
        4 => {
            let ino = b.u64()?;
            let whole = b.0;
            let version = b.u64()?;
            b.take(8 + 8)?;
            b.name()?;
            Mutation::Backptr { ino, version, value: Some(&whole[..whole.len() - b.0.len()]) }
        }
        5 => Mutation::Backptr { ino: b.u64()?, version: b.u64()?, value: None },
        6 => Mutation::Session { id: b.u64()?, open: b.u8()? == 1, client: b.name()? },
        7 => Mutation::Floor { id: b.u64()?, floor: b.u64()? },
        8 => Mutation::Counter { rank: b.u16()?, next: b.u64()? },
        9 => {
            b.take(8 + 4 + 8 + 4)?;
            Mutation::Cut
        }
        10 => {
            let (ino, generation) = (b.u64()?, b.u32()?);
            Mutation::Redo { ino, generation, truncate: b.u32()?, write: b.u64()?, data: b.bytes()? }
        }
        11 => Mutation::Remove { ino: b.u64()?, generation: b.u32()? },
        12 => {
            let _move = b.u64()?;
            let dir = b.u64()?;
            b.take(8 + 1)?;
            Mutation::Sealed { dir }
        }
        13 => {
            b.take(8 + 2)?;
            b.bytes()?;
            Mutation::OfRank
        }
        14 => {
            let (id, _decided) = (b.u64()?, b.bytes()?);
            Mutation::Committed { id, left: read_left(b.bytes()?)? }
        }
        15 => Mutation::Resolved { id: b.u64()?, left: read_left(b.bytes()?)? },
        32 => Mutation::Delegated { id: b.u64()?, first: b.u64()?, count: b.u32()? },
        33 => match (b.u64()?, b.u8()?) {
            (id, flags) if flags & EVICTED != 0 => Mutation::Evicted { id },
            _ => Mutation::OfRank,
        },
        34 => b.take(8 + 8 + 8 + 1 + 2 + 1).and(b.bytes()).map(|_| Mutation::OfRank)?,
        35 => b.take(8 + 8).map(|_| Mutation::OfRank)?,
        36 => Mutation::Place { ino: b.u64()?, version: b.u64()? },
        37 => Mutation::Content { dir: b.u64()? },
        38 => {
            let when = match b.u8()? {
                0 => 0,
                1 => 8,
                2 => 8 + 8 + 8 + 1 + 2,
                _ => return None,
            };
            b.take(when).and(b.bytes())?;
            Mutation::OfRank
        }
        _ => return None,
    })
}

/// Inodes that go to another rank; where they have their names there, that one says.
fn read_left(bytes: &[u8]) -> Option<Vec<u64>> {
    let mut b = Bytes(bytes);
    let count = b.u32()?;
    (0..count).map(|_| b.u64().filter(|_| b.take(8 + 8).is_some())).collect()
}

impl Overlay {
    fn state(&mut self, rank: u16, mutation: Mutation<'_>) {
        match mutation {
            Mutation::Dentry { dir, hash, name, version, value } => {
                let dir = self.units.get(&dir).map_or(dir, |(dir, _)| *dir);
                self.state_dentry(rank, dentry_key(dir, hash, name), version, value);
            }
            Mutation::Header { dir, frag, version, value } => {
                if self.units.contains_key(&dir) {
                    self.unit_versions.insert(dir, version);
                }
                let (dir, frag) = self.units.get(&dir).copied().unwrap_or((dir, frag));
                self.state_dentry(rank, header_key(dir, frag), version, Some(value));
            }
            Mutation::Backptr { ino, version, value } => self.state_backptr(rank, ino, version, value),
            Mutation::Place { ino, version } => self.state_place(rank, ino, version, None),
            Mutation::Content { dir } => {
                self.state_dentry(rank, header_key(dir, Frag::WHOLE), u64::MAX, None);
            }
            Mutation::Session { id, open: true, client } => {
                self.closed.remove(&(rank, id));
                let session = Session { client: client.into(), ..Session::default() };
                self.system.rank(rank).sessions.insert(id, session);
            }
            Mutation::Session { id, open: false, .. } => {
                self.system.rank(rank).sessions.remove(&id);
                self.closed.insert((rank, id));
            }
            Mutation::Delegated { id, first, count } => {
                if let Some(session) = self.system.rank(rank).sessions.get_mut(&id) {
                    session.delegated.push((first, count));
                }
            }
            Mutation::Evicted { id } => {
                if let Some(session) = self.system.rank(rank).sessions.get_mut(&id) {
                    session.evicted = true;
                }
            }
            Mutation::Floor { id, floor } => {
                if let Some(session) = self.system.rank(rank).sessions.get_mut(&id) {
                    session.raise_floor(floor);
                }
            }
            Mutation::Counter { rank: of, next } if of == rank => {
                let rank = self.system.rank(rank);
                rank.counter = rank.counter.max(Some(next));
            }
            // A cut is in the inode's record, too, and every access goes by that. Which of the numbers delegated to a session are
            // used only the rank tells: after a repair none are delegated.
            Mutation::Counter { .. } | Mutation::Cut | Mutation::OfRank => {}
            Mutation::Redo { ino, generation, truncate, write, data } => {
                let known = self.redo.get(&(ino, generation)).map(|redo| (redo.truncate, redo.write));
                if known.is_none_or(|known| known < (truncate, write)) {
                    self.redo.insert((ino, generation), Redo { rank, truncate, write, data: data.into() });
                }
            }
            Mutation::Sealed { dir } => self.seal(rank, dir),
            Mutation::Committed { id, left } => {
                self.undecided.insert((rank, id));
                self.left(rank, &left);
            }
            Mutation::Resolved { id, left } => {
                self.undecided.remove(&(rank, id));
                self.left(rank, &left);
            }
            Mutation::Remove { ino, generation } => {
                self.redo.remove(&(ino, generation));
                self.removed.insert((ino, generation));
            }
        }
    }
}
