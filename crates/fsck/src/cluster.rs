//! The cluster map: its file, its sections, and whether it contradicts itself or the folder.
//!
//! Absent: which daemon lives; what ranks own beyond that they exist.

use crate::bytes::{Bytes, Out};
use crate::finding::{Found, Kind};
use crate::fix::Fix;
use crate::folder::{Folder, FsckError, io_error, sync_dir, write_whole};
use crate::record::{RANKS, ROOT};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use stdx::crc32c;

const FOLDER: &str = "cluster";
const NAME: &str = "map";
const PLACE: &str = "cluster/map";
const MAGIC: &[u8; 8] = b"PandoReg";
/// Bytes of the file before those of the map, and of the map at most.
const HEADER_BYTES: usize = 28;
const MAP_BYTES_MAX: usize = 8 << 20;
const DAEMONS_MAX: usize = 256;
const ENTRIES_MAX: usize = 65_536;
const SLOTS: u32 = 4096;
const DEPTH_MAX: u8 = 24;
/// Sections of later versions together.
const LATER_BYTES_MAX: usize = 1 << 20;
/// The section with what ranks are to have, and the most that it may say.
const WEIGHTS: u8 = 6;
const WEIGHT_MAX: u16 = 1_000;
/// Joinable, hash placement, slots used.
const FLAGS: u8 = 7;
const JOINABLE: u8 = 1;
const SLOTS_USED: u8 = 4;
/// States of a rank.
const FAILED: u8 = 1;
const DAMAGED: u8 = 7;
const CREATING: u8 = 8;
/// Why root's entry is there: it was split off nothing.
const CARVED: u8 = 3;

/// What a check needs of the map.
#[derive(Default)]
pub(crate) struct Map {
    version: u64,
    last_incarnation: u64,
    last_daemon: u64,
    last_move: u64,
    made: [u64; 4],
    ranks: BTreeMap<u16, Rank>,
    daemons: BTreeSet<u64>,
}

struct Rank {
    state: u8,
    incarnation: u64,
    daemon: u64,
}

/// Where a map stops making sense, and why.
struct Bad {
    /// Bytes of the map before it.
    at: usize,
    why: String,
    /// The bytes can be read; what they say cannot be.
    contradicts: bool,
}

/// Looks at the map; `None`: there is none that can be used.
pub(crate) fn check(folder: &Folder, found: &mut Found) -> Result<Option<Map>, FsckError> {
    let path = folder.root.join(FOLDER).join(NAME);
    let bytes = match read_bounded(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Whoever says that there are several ranks has written a map before.
            if folder.ranks {
                found.add(Kind::ClusterMapMissing, PLACE, "");
                found.fix(Fix::ClusterMap);
            }
            return Ok(None);
        }
        Err(source) => return Err(FsckError::Io { path, source }),
    };
    let (version, map) = match container(&bytes) {
        Ok(content) => content,
        Err((at, why)) => {
            found.add(Kind::RegistryDamaged, format!("{PLACE} at {at:#x}"), why);
            found.fix(Fix::ClusterMap);
            return Ok(None);
        }
    };
    match read(map) {
        Ok(read) if read.version == version => Ok(Some(read)),
        Ok(read) => {
            let why = format!("version {}, in a record of version {version}", read.version);
            found.add(Kind::ClusterMapWrong, PLACE, why);
            found.fix(Fix::ClusterMap);
            Ok(None)
        }
        Err(Bad { at, why, contradicts }) => {
            let kind = if contradicts { Kind::ClusterMapWrong } else { Kind::ClusterMapUnreadable };
            found.add(kind, format!("{PLACE} at {:#x}", HEADER_BYTES + at), why);
            found.fix(Fix::ClusterMap);
            Ok(None)
        }
    }
}

/// The file, but for what no record has.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = (HEADER_BYTES + MAP_BYTES_MAX) as u64 + 1;
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Map {
    /// Ranks that have what they need in the store, as it says.
    pub(crate) fn made(&self) -> impl Iterator<Item = u16> {
        (0..RANKS).filter(|rank| self.made[usize::from(rank / 64)] >> (rank % 64) & 1 == 1)
    }
}

/// Version and content of a registry record, or where it is wrong.
fn container(bytes: &[u8]) -> Result<(u64, &[u8]), (usize, &'static str)> {
    let mut b = Bytes(bytes);
    if b.take(8) != Some(MAGIC) {
        return Err((0, "no registry record"));
    }
    match b.u32() {
        Some(1) => {}
        Some(format) if format > 1 => return Err((8, "a later format")),
        _ => return Err((8, "no format")),
    }
    let crc = b.u32().ok_or((12, "it ends"))?;
    if crc32c(b.0) != crc {
        return Err((12, ""));
    }
    let version = b.u64().filter(|version| *version > 0).ok_or((16, "version 0"))?;
    let content = b.bytes().filter(|content| content.len() <= MAP_BYTES_MAX);
    let content = content.filter(|_| b.is_empty()).ok_or((24, "another length than the file's"))?;
    Ok((version, content))
}

/// Reads a map piece by piece, so that what is wrong has a place.
struct Cursor<'a> {
    whole: usize,
    rest: Bytes<'a>,
}

impl<'a> Cursor<'a> {
    const fn at(&self) -> usize {
        self.whole - self.rest.0.len()
    }

    fn bad<T>(&self, why: &str) -> Result<T, Bad> {
        Err(Bad { at: self.at(), why: why.into(), contradicts: false })
    }

    fn get<T>(&mut self, take: impl FnOnce(&mut Bytes<'a>) -> Option<T>) -> Result<T, Bad> {
        let at = self.at();
        take(&mut self.rest).ok_or_else(|| Bad { at, why: "it ends too early".into(), contradicts: false })
    }

    /// What is true of every map.
    fn must(at: usize, holds: bool, why: impl Into<String>) -> Result<(), Bad> {
        if holds { Ok(()) } else { Err(Bad { at, why: why.into(), contradicts: true }) }
    }

    /// The next section, which must have this tag.
    fn section(&mut self, tag: u8) -> Result<Cursor<'a>, Bad> {
        let at = self.at();
        if self.get(Bytes::u8)? != tag {
            return Err(Bad { at, why: format!("section {tag} is missing"), contradicts: false });
        }
        self.body()
    }

    /// What a section has behind its tag.
    fn body(&mut self) -> Result<Cursor<'a>, Bad> {
        let body = self.get(Bytes::bytes)?;
        Ok(Cursor { whole: self.at(), rest: Bytes(body) })
    }

    /// What is announced of an owner; another rank than its own.
    fn owner(&mut self, map: &Map, at: usize) -> Result<(), Bad> {
        let (rank, version) = (self.get(Bytes::u16)?, self.get(Bytes::u64)?);
        Self::must(at, map.ranks.contains_key(&rank), format!("rank {rank} is not in the map"))?;
        Self::must(
            at,
            (1..=map.version).contains(&version),
            format!("version {version} of {}", map.version),
        )?;
        match self.get(Bytes::u8)? {
            0 => {}
            1 => {
                let (id, to) = (self.get(Bytes::u64)?, self.get(Bytes::u16)?);
                let begun = (1..=map.last_move).contains(&id);
                Self::must(at, begun, format!("move {id} of {}", map.last_move))?;
                let right = to != rank && map.ranks.contains_key(&to);
                Self::must(at, right, format!("from rank {rank} to rank {to}"))?;
            }
            _ => return self.bad("no flag"),
        }
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Result<Map, Bad> {
    let mut c = Cursor { whole: bytes.len(), rest: Bytes(bytes) };
    if c.get(Bytes::u8)? != 1 {
        return Err(Bad { at: 0, why: "no map".into(), contradicts: false });
    }
    let mut map = read_core(c.section(1)?)?;
    read_ranks(c.section(2)?, &mut map)?;
    read_daemons(c.section(3)?, &mut map)?;
    check_ranks(&map)?;
    read_entries(c.section(4)?, &map)?;
    read_slots(c.section(5)?, &map)?;
    let (mut last, mut later) = (5, 0);
    while !c.rest.is_empty() {
        let (at, tag) = (c.at(), c.get(Bytes::u8)?);
        let body = c.body()?;
        later += if tag == WEIGHTS { 0 } else { body.rest.0.len() };
        if tag <= last || body.rest.is_empty() || later > LATER_BYTES_MAX {
            return Err(Bad { at, why: format!("section {tag}"), contradicts: false });
        }
        if tag == WEIGHTS {
            read_weights(body)?;
        }
        last = tag;
    }
    Ok(map)
}

fn read_core(mut c: Cursor<'_>) -> Result<Map, Bad> {
    let at = c.at();
    let (version, max_mds, flags) = (c.get(Bytes::u64)?, c.get(Bytes::u16)?, c.get(Bytes::u8)?);
    let coordinator = c.get(Bytes::u64)?;
    let mut map = Map { version, last_incarnation: c.get(Bytes::u64)?, ..Map::default() };
    (map.last_daemon, map.last_move) = (c.get(Bytes::u64)?, c.get(Bytes::u64)?);
    c.get(|b| b.take(4 * 8))?;
    for word in &mut map.made {
        *word = c.get(Bytes::u64)?;
    }
    if !c.rest.is_empty() || flags & !FLAGS != 0 {
        return c.bad("the fields of a later version");
    }
    Cursor::must(at, version > 0, "version 0")?;
    let counted = [version, coordinator, map.last_incarnation, map.last_daemon, map.last_move];
    Cursor::must(at, counted.iter().all(|number| number >> 63 == 0), "a number of 2^63 or more")?;
    Cursor::must(at + 8, (1..=RANKS).contains(&max_mds), format!("max_mds {max_mds}"))?;
    Ok(map)
}

fn read_ranks(mut c: Cursor<'_>, map: &mut Map) -> Result<(), Bad> {
    while !c.rest.is_empty() {
        let (at, rank) = (c.at(), c.get(Bytes::u16)?);
        let state = c.get(Bytes::u8)?;
        let read = Rank { state, incarnation: c.get(Bytes::u64)?, daemon: c.get(Bytes::u64)? };
        let follows = map.ranks.last_key_value().is_none_or(|(last, _)| *last < rank);
        if !(FAILED..=CREATING).contains(&state) || !follows || rank >= RANKS {
            return Err(Bad { at, why: format!("rank {rank} in state {state}"), contradicts: false });
        }
        map.ranks.insert(rank, read);
    }
    Cursor::must(c.at(), map.ranks.contains_key(&0), "rank 0 is missing")
}

/// What ranks are to have beside others that have 100.
fn read_weights(mut c: Cursor<'_>) -> Result<(), Bad> {
    let mut last = None;
    while !c.rest.is_empty() {
        let (at, rank, weight) = (c.at(), c.get(Bytes::u16)?, c.get(Bytes::u16)?);
        let why = || format!("weight {weight} of rank {rank}");
        if last.is_some_and(|last| last >= rank) {
            return Err(Bad { at, why: why(), contradicts: false });
        }
        Cursor::must(at, rank < RANKS && (1..=WEIGHT_MAX).contains(&weight) && weight != 100, why())?;
        last = Some(rank);
    }
    Ok(())
}

fn read_daemons(mut c: Cursor<'_>, map: &mut Map) -> Result<(), Bad> {
    while !c.rest.is_empty() {
        let (at, daemon) = (c.at(), c.get(Bytes::u64)?);
        let name = c.get(Bytes::name)?;
        let follows = map.daemons.last().is_none_or(|last| *last < daemon);
        if !follows || name.is_empty() || str::from_utf8(name).is_err() || map.daemons.len() == DAEMONS_MAX {
            return Err(Bad { at, why: format!("daemon {daemon}"), contradicts: false });
        }
        let given = (1..=map.last_daemon).contains(&daemon);
        Cursor::must(at, given, format!("daemon {daemon} of {}", map.last_daemon))?;
        map.daemons.insert(daemon);
    }
    Ok(())
}

fn check_ranks(map: &Map) -> Result<(), Bad> {
    let (mut lives, mut carried) = (BTreeSet::new(), BTreeSet::new());
    for (rank, &Rank { state, incarnation, daemon }) in &map.ranks {
        let must = |holds, why: String| Cursor::must(0, holds, format!("rank {rank}: {why}"));
        let last = map.last_incarnation;
        must(incarnation <= last, format!("incarnation {incarnation}, the last one is {last}"))?;
        must(
            incarnation == 0 || lives.insert(incarnation),
            format!("incarnation {incarnation} is another's"),
        )?;
        must(daemon == 0 || carried.insert(daemon), format!("daemon {daemon} has another"))?;
        must(daemon == 0 || map.daemons.contains(&daemon), format!("daemon {daemon} is not known"))?;
        must(daemon == 0 || incarnation > 0, "a daemon and no incarnation".into())?;
        let needs = !matches!(state, FAILED | DAMAGED);
        must(!needs || daemon != 0, "no daemon".into())?;
        must(state != FAILED || daemon == 0, format!("failed, with daemon {daemon}"))?;
        let made = !needs || state == CREATING || map.made().any(|made| made == *rank);
        must(made, "it serves, and was never made".into())?;
    }
    Ok(())
}

fn read_entries(mut c: Cursor<'_>, map: &Map) -> Result<(), Bad> {
    let (mut last, mut count, mut root) = (None, 0, false);
    while !c.rest.is_empty() {
        let at = c.at();
        let unit = (c.get(Bytes::u64)?, c.get(Bytes::u64)?, c.get(Bytes::u8)?);
        let policy = c.get(Bytes::u8)?;
        let (dir, prefix, depth) = unit;
        count += 1;
        if last.is_some_and(|last| last >= unit) || !(1..=4).contains(&policy) || count > ENTRIES_MAX {
            let why = format!("entry of directory {dir:x} with policy {policy}");
            return Err(Bad { at, why, contradicts: false });
        }
        last = Some(unit);
        let beyond = u64::MAX.checked_shr(depth.into()).unwrap_or(0);
        let right = dir != 0 && dir >> 63 == 0 && depth <= DEPTH_MAX && prefix & beyond == 0;
        Cursor::must(at, right, format!("entry of directory {dir:x}, prefix {prefix:x} of depth {depth}"))?;
        c.owner(map, at)?;
        root |= unit == (ROOT, 0, 0);
    }
    Cursor::must(c.at(), root, "the root directory has no entry")
}

fn read_slots(mut c: Cursor<'_>, map: &Map) -> Result<(), Bad> {
    let (mut slots, mut last): (u32, &[u8]) = (0, &[]);
    while !c.rest.is_empty() {
        let (at, run) = (c.at(), c.get(Bytes::u16)?);
        let before = c.rest.0;
        c.owner(map, at)?;
        let slot = &before[..before.len() - c.rest.0.len()];
        slots += u32::from(run);
        // Neighbours are one run unless they differ.
        if run == 0 || slots > SLOTS || slot == last {
            return Err(Bad { at, why: format!("a run of {run} slots, up to {slots}"), contradicts: false });
        }
        last = slot;
    }
    if slots == SLOTS { Ok(()) } else { c.bad(&format!("{slots} slots, not {SLOTS}")) }
}

/// The map of a file system that rank 0 serves alone, whose numbers go on behind all that may have been given out. `made`: ranks
/// that have what they need in the store. `incarnation`: no rank had a higher one. `now`: seconds since 1970. `slots_used`: there are directories
/// that are placed by slots.
pub(crate) fn write_first(
    folder: &Folder,
    made: &BTreeSet<u16>,
    incarnation: u64,
    now: u64,
    slots_used: bool,
) -> Result<(), FsckError> {
    // What was given out is not known any more. No file system counts a million of anything a second for all its life.
    let version = now << 20;
    let mut words = [0_u64; 4];
    for rank in made.iter().chain([&0]).filter(|rank| **rank < RANKS) {
        words[usize::from(rank / 64)] |= 1 << (rank % 64);
    }
    let mut core = Out::default();
    // One rank, joinable, no placement by hash, no coordinator yet. That slots are used stays for ever: of a directory that they place a
    // rank that has only what is above it would not ask any more, once something else is given to a second rank.
    let flags = if slots_used { JOINABLE | SLOTS_USED } else { JOINABLE };
    core.u64(version).u16(1).u8(flags).u64(version).u64(incarnation).u64(version).u64(version);
    for word in [u64::MAX; 4].into_iter().chain(words) {
        core.u64(word);
    }
    let mut ranks = Out::default();
    ranks.u16(0).u8(FAILED).u64(incarnation).u64(0);
    let mut entries = Out::default();
    entries.u64(ROOT).u64(0).u8(0).u8(CARVED).u16(0).u64(version).u8(0);
    let mut slots = Out::default();
    slots.u16(SLOTS as u16).u16(0).u64(version).u8(0);
    let mut map = Out::default();
    map.u8(1);
    for (tag, body) in [(1, &core), (2, &ranks), (3, &Out::default()), (4, &entries), (5, &slots)] {
        map.u8(tag).bytes(&body.0);
    }
    let mut out = Out::default();
    out.raw(MAGIC).u32(1).u32(0).u64(version).bytes(&map.0);
    let crc = crc32c(&out.0[16..]);
    out.patch_u32(12, crc);
    let place = folder.root.join(FOLDER);
    fs::create_dir_all(&place).map_err(io_error(&place))?;
    sync_dir(&folder.root)?;
    write_whole(&place, NAME, "map.new", &out.0)
}

/// The bytes of the map's file, to be kept before they are written over.
pub(crate) fn bytes(folder: &Folder) -> Option<Vec<u8>> {
    read_bounded(&folder.root.join(FOLDER).join(NAME)).ok()
}
