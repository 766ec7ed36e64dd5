//! Units: the parts of a spread directory. Its own content has no names, only the header that says how it is spread; each unit is
//! content of its own, cached, journaled and moved like a directory's, under a number that no inode has. In the store its names stay
//! where they were: keys and hints there name the directory. docs/PROTOCOL.md, "Spread directories".
//!
//! What belongs to nobody by an entry of its own inherits from the directory's own content.
//!
//! Absent: when a directory is spread or merged, how its units come to several ranks (`spreads.rs`), and when it is forgotten how one is
//! spread (`spreads/known.rs`).

use crate::cache::dir::{self, Dir};
use crate::cache::table::Table;
use crate::cache::{Cache, node};
use crate::op::{Learned, LoadKey, Park, Stop};
use crate::territory::Side;
use crate::view::{Found, View, park};
use proto::cluster::Unit;
use proto::header::{FragHeader, Spread, Spreading};
use proto::{Frag, Ino, NameHash, RankId};
use stdx::Wall;

/// The whole of a directory.
pub(crate) const fn whole(dir: Ino) -> Unit {
    Unit { dir, frag: Frag::WHOLE }
}

impl Dir {
    /// The directory whose names it has: itself, if it is no unit.
    #[inline]
    pub(crate) fn of(&self) -> Ino {
        match &self.header.spreading {
            None => self.ino,
            Some(_) => self.unit().dir,
        }
    }

    /// What it is in the cluster map and in the store.
    pub(crate) fn unit(&self) -> Unit {
        self.header.unit().unwrap_or(whole(self.ino))
    }

    /// Whether its names are in units.
    #[inline]
    pub(crate) fn is_spread(&self) -> bool {
        self.header.spreading.is_some() && self.header.spread().is_some()
    }
}

impl Cache {
    /// The directory in which a node's name is, for everybody but this rank.
    #[inline]
    pub(crate) fn parent_of(&self, node: u32) -> Ino {
        self.dirs.get(self.nodes.get(node).dir).of()
    }

    /// The directory of which that content is.
    pub(crate) fn outer(&self, dir: Ino) -> Ino {
        self.find_dir(dir).map_or(dir, |slot| self.dir(slot).of())
    }

    /// What that content is in the cluster map, as far as it is cached.
    pub(crate) fn unit(&self, dir: Ino) -> Unit {
        self.find_dir(dir).map_or(whole(dir), |slot| self.dir(slot).unit())
    }

    pub(crate) fn spread(&self, dir: Ino) -> Option<Spread> {
        self.find_dir(dir).and_then(|slot| self.dir(slot).header.spread())
    }

    /// What is cached of a directory's content: its own, and its units'.
    pub(crate) fn contents(&self, dir: Ino) -> Vec<u32> {
        let units = self.spread(dir).into_iter().flat_map(Spread::all).map(|(number, _)| number);
        std::iter::once(dir).chain(units).filter_map(|content| self.find_dir(content)).collect()
    }

    /// The content in which a name of a directory is, as far as it is known how that is spread.
    pub(crate) fn inner(&self, dir: Ino, hash: NameHash) -> Ino {
        self.spread(dir).map_or(dir, |spread| spread.of(hash).0)
    }

    /// Notes what a number means. As long as it is known how a directory is spread, so it is of each of its units.
    pub(crate) fn note_unit(&mut self, dir: Ino, unit: Unit) -> u32 {
        let slot = self.dir_or_new(dir);
        let known = &mut self.dirs.get_mut(slot).header.spreading;
        if known.is_none() && unit.frag != Frag::WHOLE {
            *known = Some(Box::new(Spreading::Unit(unit)));
        }
        slot
    }

    /// A transaction says what a number means, and with that how the directory is spread. Whoever knows a unit has to know: what he
    /// looks for in the directory itself he would find as it is in the store. Whether it was not known.
    pub(crate) fn note_spread(&mut self, number: Ino, Unit { dir, frag }: Unit) -> bool {
        let slot = self.dir_or_new(dir);
        let spread = Spread::by_unit(number, frag);
        if stdx::mutant!("mds_unit_of_nothing") {
            return false;
        }
        self.is_spread_so(slot, spread)
    }

    /// A directory that is cached there is spread so, whatever was known of it: it may have been merged since. Whether it was not known.
    pub(crate) fn is_spread_so(&mut self, slot: u32, spread: Spread) -> bool {
        if let Some(known) = self.dir(slot).header.spread() {
            if (known.depth, known.first) == (spread.depth, spread.first) {
                return false;
            }
            self.gather(slot);
        }
        self.dirs.get_mut(slot).header.spreading = Some(Box::new(Spreading::Over(spread)));
        self.hand_out(slot);
        true
    }

    /// A directory is, or turns out to be, spread: what is cached of its names goes to its units. No checkpoint is under way then, so
    /// that all that is dirty is as old as what becomes so now.
    #[cold]
    pub(crate) fn hand_out(&mut self, slot: u32) {
        let Some(spread) = self.dir(slot).header.spread() else { return };
        let (of, complete) = (self.dir(slot).ino, self.dir(slot).has(dir::COMPLETE));
        self.spreads.insert(of);
        // Replicas of what is in units of others.
        let (foreign, side) = (self.dir(slot).has(dir::FOREIGN), self.dir(slot).side);
        // From here on its units say whether all their names are here.
        let whole = if stdx::mutant!("mds_parts_known_in_full") { 0 } else { dir::COMPLETE };
        self.dirs.get_mut(slot).clear(dir::FOREIGN | whole);
        for (unit, frag) in spread.all() {
            let own = self.note_unit(unit, Unit { dir: of, frag });
            if complete {
                self.dirs.get_mut(own).set(dir::COMPLETE);
            }
        }
        let names = std::mem::replace(&mut self.dirs.get_mut(slot).table, Table::new());
        let mut nodes = Vec::with_capacity(names.len() as usize);
        names.walk(NameHash(0), &self.nodes, |at| {
            nodes.push(at);
            true
        });
        for at in nodes {
            let to = self.dir_or_new(spread.of(self.node(at).hash).0);
            self.move_name(at, to);
            if foreign {
                let unit = self.dirs.get_mut(to);
                unit.set(dir::FOREIGN);
                unit.side = side;
            }
        }
    }

    /// A name that is in no content's table belongs to that one.
    fn move_name(&mut self, at: u32, to: u32) {
        let dirty = self.node(at).has(node::DIRTY);
        self.take_dirty(at);
        let node = self.nodes.get(at);
        let (_, spot) = self.dirs.get(to).table.seek(node.hash, node.name.as_bytes(), &self.nodes);
        self.dirs.get_mut(to).table.insert(at, spot, &self.nodes);
        self.nodes.get_mut(at).dir = to;
        if dirty {
            self.make_dirty(at);
        }
    }
}

impl Cache {
    /// A directory is, or turns out to be, in one part: what is cached of its units' names is its own. No checkpoint is under way then.
    #[cold]
    pub(crate) fn gather(&mut self, slot: u32) {
        let Some(spread) = self.dir(slot).header.spread() else { return };
        let of = self.dir(slot).ino;
        let mut complete = true;
        for (number, _) in spread.all() {
            let Some(unit) = self.find_dir(number) else {
                complete = false;
                continue;
            };
            complete &= self.dir(unit).has(dir::COMPLETE);
            self.take_names(unit, slot);
        }
        let whole = self.dirs.get_mut(slot);
        whole.header.spreading = None;
        whole.clear(dir::COMPLETE);
        if complete {
            whole.set(dir::COMPLETE);
        }
        self.spreads.remove(&of);
    }

    /// All names of one content are another one's.
    fn take_names(&mut self, from: u32, to: u32) {
        let names = std::mem::replace(&mut self.dirs.get_mut(from).table, Table::new());
        self.dirs.get_mut(from).clear(dir::COMPLETE);
        let mut nodes = Vec::with_capacity(names.len() as usize);
        names.walk(NameHash(0), &self.nodes, |at| {
            nodes.push(at);
            true
        });
        nodes.into_iter().for_each(|at| self.move_name(at, to));
    }
}

impl View {
    /// The unit that a name of a directory is in, with its number; none: the directory is not spread, or nothing says so before its
    /// header is there.
    pub(crate) fn unit_at(&self, dir: Ino, hash: NameHash) -> Found<Option<(Ino, Unit)>> {
        match self.cache.spread(dir) {
            Some(spread) => {
                let (number, frag) = spread.of(hash);
                Ok(Some((number, Unit { dir, frag })))
            }
            None if self.territory.has_live_parts(dir) => park(LoadKey::Spread { dir }),
            None => Ok(None),
        }
    }

    /// The content that a name of a directory is in.
    pub(crate) fn content_at(&self, dir: Ino, hash: NameHash) -> Found<Ino> {
        Ok(self.unit_at(dir, hash)?.map_or(dir, |(number, _)| number))
    }

    /// By which number a directory's content, or a unit of it, is called here.
    pub(crate) fn number_of(&self, Unit { dir, frag }: Unit) -> Ino {
        if frag == Frag::WHOLE { dir } else { self.cache.inner(dir, NameHash(frag.prefix)) }
    }

    /// Whose a unit is.
    pub(crate) fn side_of_unit(&self, (number, unit): (Ino, Unit)) -> Option<Side> {
        self.territory.of_unit(number, unit).or_else(|| self.of_itself(unit.dir))
    }

    /// The cached names of a unit that is here, with its header.
    pub(crate) fn unit_here(&self, (number, unit): (Ino, Unit)) -> Found<u32> {
        match self.side_of_unit((number, unit)) {
            Some(Side::Other(_)) => return Err(proto::Errno::EXDEV.into()),
            Some(Side::Sealed) => return Err(Stop::Park(Park::Move)),
            Some(Side::Mine) | None => {}
        }
        let found = self.cache.find_dir(number).filter(|slot| self.cache.dir(*slot).has(dir::HEADER));
        found.map_or_else(|| park(LoadKey::UnitHeader { dir: number, unit }), Ok)
    }

    /// What a spread directory and its units come to together. The parts may be of different moments.
    pub(crate) fn sum(&self, own: &FragHeader, dir: Ino) -> Found<FragHeader> {
        let Some(spread) = own.spread() else { return Ok(own.clone()) };
        let (mut sum, mut missing) = (own.clone(), Vec::new());
        let (mut changes, mut mtime) = (0_u64, Wall(i64::MIN));
        for (number, frag) in spread.all() {
            let unit = Unit { dir, frag };
            let header = match self.side_of_unit((number, unit)) {
                Some(Side::Sealed) => return Err(Stop::Park(Park::Move)),
                Some(Side::Other(_)) => {
                    let told = self.learned_units.get(&number).or_else(|| self.totals.of(number));
                    let Some(told) = told else {
                        missing.push((number, unit));
                        continue;
                    };
                    told
                }
                Some(Side::Mine) | None => {
                    self.listing_is_free(dir)?;
                    &self.cache.dir(self.unit_here((number, unit))?).header
                }
            };
            sum.entries += header.entries;
            sum.subdirs += header.subdirs;
            changes = changes.wrapping_add(header.change);
            mtime = mtime.max(header.mtime);
        }
        if !missing.is_empty() {
            return Err(Stop::Park(Park::Totals(missing)));
        }
        if changes != spread.stamp && !stdx::mutant!("mds_units_time_unseen") {
            sum.mtime = mtime;
        }
        sum.change = sum.change.wrapping_add(changes);
        Ok(sum)
    }

    /// Parts of a directory that other ranks have, and who told their totals, which it goes by until they are recalled. None: it does not
    /// go by all of them, or something is under way.
    pub(crate) fn parts_told(&self, dir: Ino) -> Option<Vec<(Ino, RankId)>> {
        let mut parts = Vec::new();
        let told = |number| self.totals.told_by(number).map(|rank| (number, rank));
        let own = if self.is_boundary(dir) {
            parts.push(told(dir)?);
            self.totals.of(dir)?
        } else {
            let slot = self.cache.find_dir(dir).filter(|slot| self.cache.dir(*slot).has(dir::HEADER))?;
            &self.cache.dir(slot).header
        };
        for (number, frag) in own.spread().into_iter().flat_map(Spread::all) {
            match self.side_of_unit((number, Unit { dir, frag })) {
                Some(Side::Sealed) => return None,
                Some(Side::Other(_)) => parts.push(told(number)?),
                Some(Side::Mine) | None => {}
            }
        }
        Some(parts)
    }

    /// Whether something that was told for the operation at hand is not what this rank goes by.
    pub(crate) fn is_told_once(&self) -> bool {
        let is_kept = |dir: Ino, header: &FragHeader| self.totals.of(dir) == Some(header);
        let learned = match self.learned.as_deref() {
            Some(Learned::Totals(dir, header) | Learned::Times(dir, header)) => is_kept(*dir, header),
            Some(_) | None => true,
        };
        !(learned && self.learned_units.iter().all(|(number, header)| is_kept(*number, header)))
    }

    /// The sum of the change counters of a directory's units.
    pub(crate) fn stamp_of(own: &FragHeader, sum: &FragHeader) -> u64 {
        sum.change.wrapping_sub(own.change)
    }

    /// The units of a directory that is here as a whole.
    pub(crate) fn units_of(&self, slot: u32) -> Vec<(Ino, Unit)> {
        let (dir, spread) = (self.cache.dir(slot).ino, self.cache.dir(slot).header.spread());
        let units = spread.into_iter().flat_map(Spread::all);
        units.map(|(number, frag)| (number, Unit { dir, frag })).collect()
    }
}
