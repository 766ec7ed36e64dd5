//! Who holds what: 16 bytes for each inode and session, in a hash table of small parts, so that none grows in one long step.
//!
//! An inode with many holders has a list of its own; equal keys would make the table slow for their neighbours.
//!
//! Absent: how a part is searched (`part`), what may be held together (`proto::caps`), sessions (`book.rs`).

mod part;

use part::{OLD, Part, Record, SLOTS_MIN, hash_of};
use proto::Ino;
use proto::caps::Bits;
use std::collections::BTreeMap;
use std::ops::Bound;
use stdx::Mono;
use stdx::time::SECOND;

pub(super) const PARTS: usize = 256;
/// Holders of one inode in the table; beyond, it has a list.
const HOLDERS_MAX: usize = 4;

/// Lists looked at in one pass.
const CROWDS: usize = 64;

const fn seconds(now: Mono) -> u32 {
    (now.0 / SECOND) as u32
}

/// A session's number in the records: its place, and which of the sessions that had the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub place: u16,
    pub serial: u32,
}

/// One holder of an inode that has many.
#[derive(Clone, Copy, Debug)]
struct Crowded {
    holder: Holder,
    bits: Bits,
    /// The second of the last grant.
    granted: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Records {
    parts: Vec<Part>,
    hand: usize,
    /// Lists of inodes with many holders, in the order of holders.
    crowds: BTreeMap<Ino, Vec<Crowded>>,
    crowd_hand: Ino,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Part::default()).collect(),
            hand: 0,
            crowds: BTreeMap::new(),
            crowd_hand: Ino::NONE,
        }
    }
}

impl Records {
    fn part(ino: Ino) -> (usize, u64) {
        let hash = hash_of(ino);
        ((hash >> 56) as usize, hash)
    }

    /// Adds to what `holder` holds of `ino`; whether it held nothing.
    pub(crate) fn add(
        &mut self,
        ino: Ino,
        holder: Holder,
        (bits, now): (Bits, Mono),
        is_live: &impl Fn(Holder) -> bool,
    ) -> bool {
        if !self.crowds.is_empty()
            && let Some(crowd) = self.crowds.get_mut(&ino)
        {
            return match crowd.binary_search_by_key(&holder, |one| one.holder) {
                Ok(at) => {
                    (crowd[at].bits, crowd[at].granted) = (crowd[at].bits.with(bits), seconds(now));
                    false
                }
                Err(_) => {
                    // Those who are gone leave when the list would double.
                    if crowd.len().is_power_of_two() {
                        crowd.retain(|one| is_live(one.holder));
                    }
                    let at = crowd.partition_point(|one| one.holder < holder);
                    crowd.insert(at, Crowded { holder, bits, granted: seconds(now) });
                    true
                }
            };
        }
        let (part, hash) = Self::part(ino);
        let part = &mut self.parts[part];
        part.reserve(is_live);
        let (mut found, mut count) = (None, 0);
        for at in part.places(ino, hash) {
            count += 1;
            if part.slots[at].holder() == holder {
                found = Some(at);
            }
        }
        if let Some(at) = found {
            let record = &mut part.slots[at];
            record.bits = record.held().with(bits);
            return false;
        }
        if count >= HOLDERS_MAX {
            self.crowd(ino, Crowded { holder, bits, granted: seconds(now) }, is_live);
        } else {
            part.insert(hash, Record { ino, serial: holder.serial, place: holder.place, bits });
        }
        true
    }

    /// Gives an inode a list of its own.
    fn crowd(&mut self, ino: Ino, one: Crowded, is_live: &impl Fn(Holder) -> bool) {
        let (part, hash) = Self::part(ino);
        let part = &mut self.parts[part];
        let mut crowd = vec![one];
        while let Some(at) = { part.places(ino, hash).next() } {
            let record = part.slots[at];
            if is_live(record.holder()) {
                crowd.push(Crowded { holder: record.holder(), bits: record.held(), ..one });
            }
            part.remove(at);
        }
        crowd.sort_unstable_by_key(|one| one.holder);
        self.crowds.insert(ino, crowd);
    }

    /// What `holder` has of an inode.
    pub(crate) fn of(&self, ino: Ino, holder: Holder) -> Bits {
        if let Some(crowd) = self.crowds.get(&ino) {
            let found = crowd.binary_search_by_key(&holder, |one| one.holder);
            return found.map_or(Bits::NONE, |at| crowd[at].bits);
        }
        let (part, hash) = Self::part(ino);
        let part = &self.parts[part];
        let found = { part.places(ino, hash).find(|at| part.slots[*at].holder() == holder) };
        found.map_or(Bits::NONE, |at| part.slots[at].held())
    }

    /// What everybody holds of an inode.
    pub(crate) fn holders(&self, ino: Ino) -> Vec<(Holder, Bits)> {
        if !self.crowds.is_empty()
            && let Some(crowd) = self.crowds.get(&ino)
        {
            return crowd.iter().map(|one| (one.holder, one.bits)).collect();
        }
        let (part, hash) = Self::part(ino);
        let part = &self.parts[part];
        part.places(ino, hash).map(|at| (part.slots[at].holder(), part.slots[at].held())).collect()
    }

    /// Every record.
    pub(crate) fn in_part(&self, part: usize) -> impl Iterator<Item = (Ino, Holder)> {
        let slots = self.parts.get(part).into_iter().flat_map(|part| &part.slots);
        slots.filter(|record| record.ino != Ino::NONE).map(|record| (record.ino, record.holder()))
    }

    /// Those of inodes that have many holders.
    pub(crate) fn crowded(&self) -> impl Iterator<Item = (Ino, Holder)> {
        self.crowds.iter().flat_map(|(ino, crowd)| crowd.iter().map(|one| (*ino, one.holder)))
    }

    /// Takes from what `holder` holds of `ino`; whether it holds nothing any more and did before.
    pub(crate) fn take(&mut self, ino: Ino, holder: Holder, bits: Bits) -> bool {
        if let Some(crowd) = self.crowds.get_mut(&ino) {
            let Ok(at) = crowd.binary_search_by_key(&holder, |one| one.holder) else { return false };
            crowd[at].bits = crowd[at].bits.without(bits);
            let gone = crowd[at].bits.is_empty();
            if gone {
                crowd.remove(at);
            }
            if crowd.is_empty() {
                self.crowds.remove(&ino);
            }
            return gone;
        }
        let (part, hash) = Self::part(ino);
        let part = &mut self.parts[part];
        let Some(at) = ({ part.places(ino, hash).find(|at| part.slots[*at].holder() == holder) }) else {
            return false;
        };
        let record = &mut part.slots[at];
        record.bits = record.bits.without(bits);
        let gone = record.held().is_empty();
        if gone {
            part.remove(at);
        }
        gone
    }

    /// The inode is gone: takes all its records out and tells whose they were.
    pub(crate) fn end(&mut self, ino: Ino, mut each: impl FnMut(Holder)) {
        if !self.crowds.is_empty()
            && let Some(crowd) = self.crowds.remove(&ino)
        {
            return crowd.into_iter().for_each(|one| each(one.holder));
        }
        let (part, hash) = Self::part(ino);
        let part = &mut self.parts[part];
        while let Some(at) = { part.places(ino, hash).next() } {
            each(part.slots[at].holder());
            part.remove(at);
        }
    }

    /// The hand of a clock looks at one part: what it saw `wait_ns` ago already, and nobody was granted since, is named. It goes no
    /// further while that time is not over.
    pub(crate) fn pass(&mut self, now: Mono, wait_ns: u64, mut old: impl FnMut(Ino, Holder, Bits)) -> bool {
        self.pass_crowds(now, wait_ns, &mut old);
        let part = &mut self.parts[self.hand];
        if part.passed != Mono(0) && now.since(part.passed) < wait_ns {
            return false;
        }
        for record in part.slots.iter_mut().filter(|record| record.ino != Ino::NONE) {
            if record.bits.0 & OLD != 0 {
                old(record.ino, record.holder(), record.held());
            }
            record.bits.0 |= OLD;
        }
        part.passed = Mono(now.0.max(1));
        self.hand = (self.hand + 1) % PARTS;
        true
    }

    /// Gives back what the part that the hand passed last has too much.
    pub(crate) fn shrink(&mut self) {
        let part = &mut self.parts[(self.hand + PARTS - 1) % PARTS];
        if part.slots.len() > SLOTS_MIN && part.used * 3 < part.slots.len() {
            part.resize(|_| true);
        }
    }

    /// The same for a slice of the lists, whose entries know their age.
    fn pass_crowds(&mut self, now: Mono, wait_ns: u64, old: &mut impl FnMut(Ino, Holder, Bits)) {
        let mut slice = self.crowds.range((Bound::Excluded(self.crowd_hand), Bound::Unbounded)).take(CROWDS);
        let mut last = Ino::NONE;
        for (ino, crowd) in &mut slice {
            last = *ino;
            for one in crowd {
                // Rounded down when it was noted, so a second longer.
                if u64::from(seconds(now).wrapping_sub(one.granted)) * SECOND > wait_ns + SECOND {
                    old(*ino, one.holder, one.bits);
                }
            }
        }
        self.crowd_hand = last;
    }

    /// Bytes of memory, estimated.
    pub(crate) fn bytes(&self) -> u64 {
        let slots: usize = self.parts.iter().map(|part| part.slots.capacity()).sum();
        let crowded: usize = self.crowds.values().map(Vec::capacity).sum();
        (slots * size_of::<Record>() + crowded * size_of::<Crowded>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::Prng;

    const LIVE: fn(Holder) -> bool = |_| true;

    fn holder(place: u16) -> Holder {
        Holder { place, serial: 1 }
    }

    #[test]
    fn a_record_is_sixteen_bytes() {
        assert_eq!(size_of::<Record>(), 16);
    }

    /// Against a plain map, with few inodes so that probes cross and lists come and go.
    #[test]
    fn agrees_with_a_map() {
        let mut rng = Prng::new(7);
        let mut records = Records::default();
        let mut model: BTreeMap<(Ino, Holder), Bits> = BTreeMap::new();
        for _ in 0..200_000 {
            let (ino, held) = (Ino(1 + rng.below(500)), holder(rng.below(9) as u16));
            let bits = Bits(1 << rng.below(4));
            match rng.below(20) {
                0..=9 => {
                    let new = records.add(ino, held, (bits, Mono(0)), &LIVE);
                    assert_eq!(new, !model.contains_key(&(ino, held)));
                    let known = model.entry((ino, held)).or_default();
                    *known = known.with(bits);
                }
                10..=17 => {
                    let before = model.get(&(ino, held)).copied();
                    let left = before.map(|known| known.without(bits));
                    let gone = records.take(ino, held, bits);
                    assert_eq!(gone, left == Some(Bits::NONE));
                    match left {
                        Some(left) if !left.is_empty() => drop(model.insert((ino, held), left)),
                        _ => drop(model.remove(&(ino, held))),
                    }
                }
                18 => {
                    let mut ended = Vec::new();
                    records.end(ino, |holder| ended.push(holder));
                    ended.sort_unstable();
                    let known: Vec<Holder> =
                        model.keys().filter(|(known, _)| *known == ino).map(|(_, holder)| *holder).collect();
                    assert_eq!(ended, known);
                    model.retain(|(known, _), _| *known != ino);
                }
                _ => {
                    let mut all = records.holders(ino);
                    all.sort_unstable_by_key(|(holder, _)| *holder);
                    let known: Vec<(Holder, Bits)> = model
                        .iter()
                        .filter(|((known, _), _)| *known == ino)
                        .map(|((_, holder), bits)| (*holder, *bits))
                        .collect();
                    assert_eq!(all, known);
                }
            }
        }
    }

    #[test]
    fn records_of_the_gone_leave_when_a_part_grows() {
        let mut records = Records::default();
        for ino in 1..=100_000 {
            records.add(Ino(ino), holder(1), (Bits::FS, Mono(0)), &|_| false);
        }
        assert!(records.bytes() < 100_000, "{}", records.bytes());
    }
}
