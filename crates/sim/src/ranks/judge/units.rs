//! Spread directories: in journals a unit is called by a number, everywhere else by its directory and the hashes that it has. History
//! is told by the latter.
//!
//! Absent: whose a unit is (`owners.rs`).

use crate::model::judge::Verdict;
use crate::model::records::{NamedBy, Records};
use proto::cluster::Unit;
use proto::header::{FragHeader, Spread, Spreading};
use proto::ids::{Frag, NameHash, Version};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::{Ino, Writer};
use std::collections::BTreeMap;

/// What the numbers of a transaction mean.
type Numbers = BTreeMap<Ino, Unit>;

/// What becomes of directories with a transaction.
#[derive(Default)]
pub(super) struct Turned {
    pub spreads: Vec<Ino>,
    /// With how they were spread.
    pub merges: Vec<(Ino, Spread)>,
}

/// The mutations of a transaction, by the names that everybody has for things; and the directories that it spreads or merges.
pub(super) fn outer(mutations: &[u8], records: &Records) -> Verdict<(Vec<u8>, Turned)> {
    let (numbers, turned) = said(mutations, records)?;
    for (dir, spread) in &turned.merges {
        let ends = |number: Ino| {
            Mutations::new(mutations)
                .flatten()
                .any(|mutation| matches!(mutation, Mutation::DelBackptr { ino, .. } if ino == number))
        };
        if !spread.all().all(|(number, _)| ends(number)) {
            return Err(format!("merges directory {}, and not all of its units end", dir.0));
        }
    }
    let mut w = Writer::new();
    for mutation in Mutations::new(mutations) {
        let mutation = mutation.map_err(|error| format!("journal mutation: {error}"))?;
        match mutation {
            Mutation::PutDentry { dir, hash, name, value, version } => {
                let dir = of_name(&numbers, dir, hash, records)?;
                Mutation::PutDentry { dir, hash, name, value, version }.encode(&mut w);
            }
            Mutation::DelDentry { dir, hash, name, version } => {
                let dir = of_name(&numbers, dir, hash, records)?;
                Mutation::DelDentry { dir, hash, name, version }.encode(&mut w);
            }
            Mutation::PutHeader { dir, frag, version, newborn, header } => {
                let Unit { dir, frag } = numbers.get(&dir).copied().unwrap_or(Unit { dir, frag });
                Mutation::PutHeader { dir, frag, version, newborn, header }.encode(&mut w);
            }
            Mutation::Sealed { id, unit } => {
                let unit = numbers.get(&unit.dir).copied().or_else(|| unit_of(unit.dir, records));
                let Mutation::Sealed { unit: plain, .. } = mutation else { continue };
                Mutation::Sealed { id, unit: unit.unwrap_or(plain) }.encode(&mut w);
            }
            // The end of a unit: its directory ends in the same transaction, or is merged.
            Mutation::DelBackptr { ino, .. } if numbers.contains_key(&ino) => {}
            Mutation::PutBackptr { parent, .. } if unit_of(parent, records).is_some() => {
                return Err(format!("a place is told by the number of a unit, {}", parent.0));
            }
            plain => plain.encode(&mut w),
        }
    }
    Ok((w.0, turned))
}

/// What the headers say that the numbers mean, which must be what the directory says; and which directories become spread, or are so no more.
fn said(mutations: &[u8], records: &Records) -> Verdict<(Numbers, Turned)> {
    let (mut numbers, mut turned) = (Numbers::new(), Turned::default());
    let mut versions: BTreeMap<Ino, Version> = BTreeMap::new();
    for mutation in Mutations::new(mutations).flatten() {
        let Mutation::PutHeader { dir, header, .. } = mutation else { continue };
        let header = FragHeader::decode(header).map_err(|error| format!("header: {error}"))?;
        match header.spreading.as_deref() {
            Some(Spreading::Unit(unit)) => {
                numbers.insert(dir, *unit);
                versions.insert(dir, header.version);
            }
            Some(Spreading::Over(spread)) => match records.spread(dir) {
                None => {
                    let all = spread.all().map(|(number, frag)| (number, Unit { dir, frag }));
                    if !all.eq(numbers.iter().map(|(number, unit)| (*number, *unit))) {
                        return Err(format!("spreads directory {} and says not all of it", dir.0));
                    }
                    turned.spreads.push(dir);
                }
                Some(old) if (old.depth, old.first) != (spread.depth, spread.first) => {
                    return Err(format!("spreads directory {} in another way", dir.0));
                }
                Some(_) => {}
            },
            // Behind the headers of its units, which say what they had, and with a version behind all of theirs.
            None => {
                let Some(spread) = records.spread(dir) else { continue };
                let all = spread.all().map(|(number, frag)| (number, Unit { dir, frag }));
                if !all.eq(numbers.iter().map(|(number, unit)| (*number, *unit))) {
                    return Err(format!("merges directory {} and says not all of it", dir.0));
                }
                if versions.values().any(|version| *version >= header.version) {
                    return Err(format!("directory {} is merged under a version that its units had", dir.0));
                }
                turned.merges.push((dir, spread));
            }
        }
    }
    for (number, unit) in &numbers {
        let known = records.spread(unit.dir);
        let is_it = known.is_none_or(|spread| spread.of(NameHash(unit.frag.prefix)) == (*number, unit.frag));
        if !is_it || (known.is_none() && !turned.spreads.contains(&unit.dir)) {
            return Err(format!("number {} is said to be {unit:?}", number.0));
        }
    }
    Ok((numbers, turned))
}

/// The directory of a name; of a spread one its unit's number must have been said.
fn of_name(numbers: &Numbers, dir: Ino, hash: NameHash, records: &Records) -> Verdict<Ino> {
    match numbers.get(&dir) {
        Some(unit) if unit.frag.covers(hash) => Ok(unit.dir),
        Some(unit) => Err(format!("puts a name into {unit:?} that is not its own")),
        None if records.spread(dir).is_some() => {
            Err(format!("names of directory {} are in its units", dir.0))
        }
        None if unit_of(dir, records).is_some() => Err(format!("number {} is not explained", dir.0)),
        None => Ok(dir),
    }
}

/// The unit of which that is the number.
fn unit_of(number: Ino, records: &Records) -> Option<Unit> {
    records.spreads().find_map(|(dir, spread)| {
        let (_, frag) = spread.all().find(|(of, _)| *of == number)?;
        Some(Unit { dir, frag })
    })
}

/// Whether a mutation of a journal's tail is newer than what is stored. What a unit's header says counts for its names; while that is
/// not stored, and the directory's own is, all names are. A directory that was merged since has a version behind all that its units had.
pub(super) fn is_newer(stored: &Records, dir: Ino, by: NamedBy, version: Version) -> bool {
    let unit = match by {
        NamedBy::Hash(hash) => stored.unit_header(dir, hash),
        NamedBy::Frag(Frag::WHOLE) => return stored.header(dir).is_none_or(|own| version > own.version),
        // Stored may be how it is spread since, or was before.
        NamedBy::Frag(frag) if stored.spread(dir).is_some_and(|spread| spread.depth != frag.depth) => {
            return stored.header(dir).is_none_or(|own| version > own.version);
        }
        NamedBy::Frag(frag) => stored.unit_header(dir, NameHash(frag.prefix)),
    };
    let own = || stored.header(dir).filter(|own| own.spread().is_none());
    unit.or_else(own).is_none_or(|header| version > header.version)
}
