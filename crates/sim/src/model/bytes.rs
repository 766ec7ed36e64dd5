//! File bytes with everything a crash may leave of them.
//!
//! A file is a list of ranges; each range has versions: what was written there, from when until when.
//! A read must return, byte by byte, a version that was valid at some moment between its request and
//! its answer. An fsync forgets what ended before it began. A crash makes every version since the last
//! fsync possible again, and zeros where anything was not synced (docs/OPERATIONS.md, "What survives what").
//!
//! Absent: sizes; they belong to the tree and are cut with `crash`.

#[cfg(test)]
mod tests;

use proto::SessionId;
use std::collections::BTreeMap;
use std::rc::Rc;
use stdx::hash::mix64;

/// Where bytes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Zero,
    /// The pattern of one write; the byte at file offset `o` is the pattern's byte `o + shift`.
    Pattern {
        id: u64,
        shift: u64,
    },
    /// Bytes once read after a crash; `data[0]` is at file offset `base`. A copy to a lower offset can
    /// take `base` below zero: it wraps, and so does what is counted from it.
    Bytes {
        data: Rc<[u8]>,
        base: u64,
    },
}

/// The byte `at` of pattern `id`; never zero, so that zeros are told apart.
#[must_use]
pub fn pattern_byte(id: u64, at: u64) -> u8 {
    let lane = mix64(id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at >> 3));
    (lane >> ((at & 7) * 8)) as u8 | 1
}

/// The bytes of pattern `id` from `at` on.
#[must_use]
pub fn pattern(id: u64, at: u64, len: u64) -> Vec<u8> {
    (at..at + len).map(|at| pattern_byte(id, at)).collect()
}

impl Source {
    fn byte(&self, offset: u64) -> u8 {
        match self {
            Self::Zero => 0,
            Self::Pattern { id, shift } => pattern_byte(*id, offset.wrapping_add(*shift)),
            Self::Bytes { data, base } => data[offset.wrapping_sub(*base) as usize],
        }
    }

    fn shifted(&self, by: u64) -> Self {
        match self {
            Self::Zero => Self::Zero,
            Self::Pattern { id, shift } => Self::Pattern { id: *id, shift: shift.wrapping_add(by) },
            Self::Bytes { data, base } => Self::Bytes { data: data.clone(), base: base.wrapping_sub(by) },
        }
    }
}

/// "Still valid", "still running".
const OPEN: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Version {
    source: Source,
    /// When its operation began, ended, and when a later one had certainly replaced it.
    from: u64,
    done: u64,
    to: u64,
    synced: bool,
    /// Replaced before an fsync began: only a read that was under way then may still see it.
    buried: bool,
    /// Of a cut: where its transaction ends in the journal. A crash that takes the transaction back takes the cut back.
    cut: u64,
    /// The same of what was written; 0: it has none, or has failed.
    tx: u64,
    /// Who wrote it.
    by: Option<SessionId>,
    /// Not what a crash only may have left.
    newest: bool,
}

impl Version {
    /// Of before everything that is watched.
    const fn at_rest(source: Source, synced: bool) -> Self {
        let (by, newest) = (None, true);
        Self { source, from: 0, done: 0, to: OPEN, synced, buried: false, cut: 0, tx: 0, by, newest }
    }

    /// It is what was there when the journal ended at `durable`, as far as its transaction tells.
    const fn is_certain(&self, durable: u64) -> bool {
        self.done != OPEN && self.tx <= durable && (self.from == 0 || self.tx > 0 || self.cut > 0)
    }
}

#[derive(Clone, Debug)]
struct Extent {
    end: u64,
    versions: Vec<Version>,
}

impl Extent {
    /// Something was written since the last crash.
    fn is_changed(&self) -> bool {
        self.versions.iter().any(|version| version.from > 0)
    }
}

/// The bytes of one file, from 0 to infinity.
#[derive(Clone, Debug)]
pub struct FileBytes {
    extents: BTreeMap<u64, Extent>,
}

impl Default for FileBytes {
    fn default() -> Self {
        let zero = Version::at_rest(Source::Zero, true);
        Self { extents: BTreeMap::from([(0, Extent { end: OPEN, versions: vec![zero] })]) }
    }
}

/// A byte that no allowed version explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub offset: u64,
    pub found: u8,
    pub allowed: Vec<u8>,
}

impl FileBytes {
    fn split(&mut self, at: u64) {
        if at == OPEN {
            return;
        }
        let Some((_, extent)) = self.extents.range_mut(..at).next_back() else { return };
        if extent.end > at {
            let right = Extent { end: extent.end, versions: extent.versions.clone() };
            extent.end = at;
            self.extents.insert(at, right);
        }
    }

    fn range(&mut self, start: u64, end: u64) -> impl Iterator<Item = (u64, &mut Extent)> {
        self.split(start);
        self.split(end);
        self.extents.range_mut(start..end).map(|(start, extent)| (*start, extent))
    }

    /// An operation that puts `source` into the range has begun: its bytes may appear.
    pub fn begin(&mut self, start: u64, end: u64, source: &Source, from: u64) {
        self.begin_by(start, end, source, (from, None));
    }

    /// The same, with who writes it.
    pub fn begin_by(&mut self, start: u64, end: u64, source: &Source, (from, by): (u64, Option<SessionId>)) {
        if start >= end {
            return;
        }
        for (_, extent) in self.range(start, end) {
            extent.versions.push(Version {
                source: source.clone(),
                from,
                done: OPEN,
                to: OPEN,
                synced: false,
                buried: false,
                cut: 0,
                tx: 0,
                by,
                newest: true,
            });
        }
    }

    /// It has ended: what ended before it began is replaced.
    pub fn end(&mut self, start: u64, end: u64, source: &Source, from: u64, now: u64) {
        if start >= end {
            return;
        }
        for (_, extent) in self.range(start, end) {
            for version in &mut extent.versions {
                if version.from == from && version.done == OPEN && version.source == *source {
                    version.done = now;
                } else if version.done < from && version.to == OPEN {
                    version.to = now;
                }
            }
        }
    }

    /// The transaction of what has ended is at `position` of the journal. It says nothing of what a full disk cut off.
    pub fn committed(&mut self, from: u64, position: u64) {
        let versions = self.extents.values_mut().flat_map(|extent| &mut extent.versions);
        let ended = versions.filter(|version| version.from == from && version.done != OPEN);
        ended.for_each(|version| version.tx = position);
    }

    /// It has failed, or what has not ended of it: its bytes may or may not be there.
    pub fn fail(&mut self, from: u64, now: u64) {
        for extent in self.extents.values_mut() {
            for version in &mut extent.versions {
                if version.from == from && version.done == OPEN {
                    version.done = now;
                }
            }
        }
    }

    /// A cut, over as soon as it is seen; its transaction ends at `position` of the journal.
    pub fn cut(&mut self, start: u64, from: u64, now: u64, position: u64) {
        self.begin(start, OPEN, &Source::Zero, from);
        self.end(start, OPEN, &Source::Zero, from, now);
        for (_, extent) in self.range(start, OPEN) {
            if let Some(version) = extent.versions.last_mut() {
                version.cut = position;
            }
        }
    }

    /// The versions of a range valid at or after `since`, moved by `by` bytes: for a copy.
    #[must_use]
    pub fn pieces(&mut self, start: u64, end: u64, since: u64, by: u64) -> Vec<(u64, u64, Source)> {
        let mut pieces = Vec::new();
        for (start, extent) in self.range(start, end) {
            for version in extent.versions.iter().filter(|version| version.to >= since) {
                // The target's offset is source + by, so its source offset is target - by.
                let source = version.source.shifted(by.wrapping_neg());
                pieces.push((start.wrapping_add(by), extent.end.wrapping_add(by), source));
            }
        }
        pieces
    }

    /// An fsync that began at `from` has answered: what was over by then is on disk and alone. Reads
    /// that began at `oldest` or later may be under way.
    pub fn synced(&mut self, from: u64, oldest: u64) {
        for extent in self.extents.values_mut() {
            extent.versions.retain(|version| version.to >= from.min(oldest));
            let mut left = 0;
            for version in &mut extent.versions {
                version.buried |= version.to < from;
                left += usize::from(!version.buried);
            }
            if left == 1 {
                let only = extent.versions.iter_mut().filter(|version| !version.buried);
                only.for_each(|version| version.synced |= version.done < from);
            }
        }
    }

    /// The rank's process died, the journal ends at `durable`, and the file is now `size` bytes long.
    pub fn crash(&mut self, size: u64, durable: u64) {
        for extent in self.extents.values_mut() {
            // What only a cut had replaced that is lost is there again.
            let lost = extent.versions.iter().filter(|version| version.cut > durable);
            if let Some(first) = lost.map(|version| version.from).min() {
                let replaced = extent.versions.iter_mut().filter(|version| version.to >= first);
                replaced.for_each(|version| version.to = OPEN);
            }
            extent.versions.retain(|version| !version.buried && version.cut <= durable);
            find_newest(&mut extent.versions, durable);
            extent.versions.iter_mut().for_each(|version| version.cut = 0);
            if extent.versions.iter().any(|version| !version.synced) {
                extent.versions.iter_mut().for_each(|version| version.synced = false);
                extent.versions.push(Version { newest: false, ..Version::at_rest(Source::Zero, false) });
            }
            for version in &mut extent.versions {
                (version.from, version.done, version.to, version.tx) = (0, 0, OPEN, 0);
            }
            dedup(&mut extent.versions);
        }
        let zero = Version::at_rest(Source::Zero, true);
        for (_, extent) in self.range(size, OPEN) {
            extent.versions = vec![zero.clone()];
        }
        self.merge();
    }

    /// Whether `found`, read between `since` and now, can be the bytes from `offset` on. Bytes that a
    /// crash left open are settled by what was found.
    ///
    /// # Errors
    /// The first byte that no version explains.
    pub fn check(&mut self, offset: u64, found: &[u8], since: u64, now: u64) -> Result<(), Mismatch> {
        let end = offset + found.len() as u64;
        for (start, extent) in self.range(offset, end) {
            let valid = extent.versions.iter().filter(|version| version.to >= since);
            let valid: Vec<&Version> = valid.collect();
            let piece = &found[(start - offset) as usize..(extent.end.min(end) - offset) as usize];
            check_piece(&valid, start, piece)?;
            let settled = valid.iter().all(|version| version.done < since);
            if settled && valid.len() > 1 {
                pin(extent, start, piece, now);
            }
        }
        self.merge();
        Ok(())
    }

    /// Bytes are put where they were before a crash: nothing newer may be there. With `now` they are in place.
    ///
    /// # Errors
    /// The first byte that was not there.
    pub fn rewrite(&mut self, offset: u64, data: &[u8], now: Option<u64>) -> Result<(), Mismatch> {
        let end = offset + data.len() as u64;
        for (start, extent) in self.range(offset, end) {
            let piece = &data[(start - offset) as usize..(extent.end.min(end) - offset) as usize];
            let since = extent.is_changed();
            let newest: Vec<_> = extent
                .versions
                .iter()
                .filter(|version| version.newest && (version.from > 0) == since)
                .collect();
            if !newest.is_empty() {
                check_piece(&newest, start, piece)?;
            } else if now.is_none() {
                // What the crash had left was read and synced since; what had been there only its author knows.
                let source = Source::Bytes { data: piece.into(), base: start };
                extent.versions.push(Version::at_rest(source, false));
            }
            for version in &mut extent.versions {
                let is = check_piece(&[version], start, piece).is_ok();
                version.to = if is { OPEN } else { version.to.min(now.unwrap_or(OPEN)) };
            }
        }
        Ok(())
    }

    /// Bytes are put over what may be newer, which follows.
    pub fn may_be(&mut self, offset: u64, data: &[u8]) {
        for (start, extent) in self.range(offset, offset + data.len() as u64) {
            let source = Source::Bytes { data: data[(start - offset) as usize..].into(), base: start };
            extent.versions.push(Version { newest: false, ..Version::at_rest(source, false) });
        }
    }

    /// A session was told that what it wrote before a crash is on the disk: nothing else is there.
    ///
    /// # Errors
    /// Something else was found there.
    pub fn vouched(&mut self, session: SessionId, now: u64) -> Result<(), Mismatch> {
        for (start, extent) in self.extents.iter_mut().filter(|(_, extent)| !extent.is_changed()) {
            let Some(own) = extent.versions.iter().position(|version| version.by == Some(session)) else {
                continue;
            };
            let (own, all) = (extent.versions[own].clone(), *start..extent.end);
            let found =
                extent.versions.iter().position(|version| version.to == OPEN).filter(|_| own.to != OPEN);
            if let Some(found) = found {
                let found = &mut extent.versions[found];
                if let Some(offset) =
                    all.into_iter().find(|at| found.source.byte(*at) != own.source.byte(*at))
                {
                    let allowed = vec![own.source.byte(offset)];
                    return Err(Mismatch { offset, found: found.source.byte(offset), allowed });
                }
                // It was read since: what was found is the same, and may be all that is left.
                found.newest = true;
                continue;
            }
            for version in &mut extent.versions {
                version.to = if version.by == Some(session) { OPEN } else { version.to.min(now) };
            }
        }
        Ok(())
    }

    /// A session was told that it is lost.
    pub fn disowned(&mut self, session: SessionId) {
        let versions = self.extents.values_mut().flat_map(|extent| &mut extent.versions);
        versions.filter(|version| version.by == Some(session)).for_each(|version| version.by = None);
    }

    /// Whether the byte may be zero (`Seek`).
    #[must_use]
    pub fn may_be_zero(&mut self, start: u64, end: u64, since: u64) -> bool {
        if start >= end {
            return true;
        }
        self.range(start, end).all(|(_, extent)| {
            extent
                .versions
                .iter()
                .any(|version| version.to >= since && !matches!(version.source, Source::Pattern { .. }))
        })
    }

    fn merge(&mut self) {
        let mut merged: BTreeMap<u64, Extent> = BTreeMap::new();
        for (start, extent) in std::mem::take(&mut self.extents) {
            if let Some(mut last) = merged.last_entry()
                && same(&last.get().versions, &extent.versions)
            {
                last.get_mut().end = extent.end;
                continue;
            }
            merged.insert(start, extent);
        }
        self.extents = merged;
    }
}

fn same(a: &[Version], b: &[Version]) -> bool {
    let key = |v: &Version| (v.from, v.done, v.to, v.synced, v.buried, v.tx, v.by, v.newest);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b) && a.source == b.source)
}

/// Which versions may be what was there when the rank ended; and that one's writer, if it is certain.
fn find_newest(versions: &mut [Version], durable: u64) {
    let hazy =
        versions.iter().filter(|version| !version.is_certain(durable)).map(|version| version.from).min();
    let changed = versions.iter().any(|version| version.from > 0 && version.is_certain(durable));
    for version in versions.iter_mut() {
        let valid = version.to == OPEN || hazy.is_some_and(|from| version.to >= from);
        version.newest &= valid && (version.from > 0 || !changed) || (version.from == 0 && !changed);
    }
    if !versions.iter().any(|version| version.newest) {
        // What a crash had left was synced since: now it is what was there.
        versions.iter_mut().for_each(|version| version.newest = true);
    }
    let one = hazy.is_none() && versions.iter().filter(|version| version.newest).count() == 1;
    for version in versions.iter_mut() {
        version.by = version.by.filter(|_| one && version.newest);
    }
}

fn dedup(versions: &mut Vec<Version>) {
    let mut kept: Vec<Version> = Vec::new();
    for version in versions.drain(..) {
        match kept.iter_mut().find(|k| k.source == version.source) {
            Some(same) if version.newest => {
                (same.newest, same.by) = (true, version.by.filter(|_| !same.newest).or(same.by));
            }
            Some(_) => {}
            None => kept.push(version),
        }
    }
    *versions = kept;
}

fn check_piece(valid: &[&Version], start: u64, piece: &[u8]) -> Result<(), Mismatch> {
    let explains = |version: &Version| match &version.source {
        Source::Zero => piece.iter().all(|b| *b == 0),
        source => piece.iter().enumerate().all(|(i, b)| source.byte(start + i as u64) == *b),
    };
    if valid.iter().any(|version| explains(version)) {
        return Ok(());
    }
    for (i, found) in piece.iter().enumerate() {
        let offset = start + i as u64;
        if !valid.iter().any(|version| version.source.byte(offset) == *found) {
            let allowed = valid.iter().map(|version| version.source.byte(offset)).collect();
            return Err(Mismatch { offset, found: *found, allowed });
        }
    }
    Ok(())
}

fn pin(extent: &mut Extent, start: u64, piece: &[u8], now: u64) {
    for version in &mut extent.versions {
        version.to = version.to.min(now);
    }
    let source = if piece.iter().all(|b| *b == 0) {
        Source::Zero
    } else {
        Source::Bytes { data: piece.into(), base: start }
    };
    // What a crash left is not what was there.
    let newest = extent.is_changed() || !extent.versions.iter().any(|version| version.newest);
    extent.versions.push(Version { newest, ..Version::at_rest(source, false) });
}
