//! How an inode that is not cached is found where only a part of the namespace is this rank's. The place in the request and the
//! store's backptr are hints. Each is followed only if the directory there is the rank's own, and for that it may have to be found
//! itself: so a search climbs until it meets a directory whose owner is known. docs/PROTOCOL.md, "What a rank has in its cache".
//!
//! Absent: the search where everything is this rank's (`View::resolve`).

use crate::cache::dir;
use crate::op::{LoadKey, Op, Park, Probe, Stop};
use crate::territory::Side;
use crate::view::{Found, View, park};
use proto::{Errno, Ino, NameHash, NodeRef, RankId};

/// Directories above each other that are not cached and are looked for.
const CLIMB_MAX: usize = 64;

/// The search of one operation: for an inode, and for directories above it.
#[derive(Debug, Default)]
pub(crate) struct Climb {
    /// The territory's: under another map everything is looked for anew.
    generation: u32,
    /// What was looked for stays, found nowhere too: an operation that looks for two things comes by it again.
    steps: Vec<Step>,
    /// To whom the hints led.
    elsewhere: Option<RankId>,
}

#[derive(Debug)]
struct Step {
    ino: Ino,
    probe: Probe,
    /// Where its backptr says that it is.
    noted: Option<(Ino, NameHash)>,
    /// Moves of inodes when it began.
    moves: u64,
    /// Where it was seen, or is stored, is another rank's.
    led: bool,
}

impl Climb {
    fn step(&mut self, ino: Ino, moves: u64) -> &mut Step {
        let at = self.steps.iter().position(|step| step.ino == ino).unwrap_or_else(|| {
            self.steps.push(Step { ino, probe: Probe::Seen, noted: None, moves, led: false });
            self.steps.len() - 1
        });
        &mut self.steps[at]
    }

    /// The store says where that one is. An operation looks for several at once, and what it looked for first may have left the cache
    /// meanwhile: so each has its own.
    pub(crate) fn note(&mut self, ino: Ino, place: Option<(Ino, NameHash)>) {
        if let Some(step) = self.steps.iter_mut().find(|step| step.ino == ino) {
            step.noted = place;
        }
    }

    /// Whether it may have ended before it came to a directory whose owner is known.
    pub(crate) fn is_long(&self) -> bool {
        self.steps.len() > CLIMB_MAX
    }

    /// Whether that one is another rank's, and not only nowhere to be found: of a file that never got another name the store does not
    /// say where it is, and without a place to look at it is found only while it is cached.
    pub(crate) fn is_elsewhere(&self, ino: Ino) -> bool {
        self.steps.iter().find(|step| step.ino == ino).is_none_or(|step| step.led)
    }

    fn found(&mut self, ino: Ino) {
        self.steps.retain(|step| step.ino != ino);
    }
}

/// What is to be done at one step.
enum Look {
    In(Ino, NameHash),
    ByNumber(Ino),
    Load(LoadKey),
    Nothing,
    Over,
}

impl View {
    /// The node of an inode: its own record, or a replica.
    fn find(&mut self, reference: NodeRef, op: &mut Op, above: usize) -> Found<u32> {
        let ino = reference.ino;
        if ino.is_reserved() || ino.0 >> 63 == 1 || self.territory.is_gone(ino) {
            return Err(Errno::ESTALE.into());
        }
        if let Some(slot) = self.cache.by_ino(ino) {
            if let Some(climb) = &mut op.climb {
                climb.found(ino);
            }
            return Ok(slot);
        }
        let climb = op.climb.get_or_insert_default();
        if climb.generation != self.territory.generation() {
            **climb = Climb { generation: self.territory.generation(), ..Climb::default() };
        }
        if above > CLIMB_MAX {
            return Err(Stop::NotMine(climb.elsewhere));
        }
        loop {
            let look = self.next_look(reference, op);
            // Nobody has seen it where all links are, or all orphans: that those are another rank's says nothing of it.
            let is_place = matches!(look, Look::In(..)) || stdx::mutant!("mds_links_lead");
            let (dir, hash, key) = match look {
                Look::Load(key) => {
                    self.advance(ino, op);
                    return park(key);
                }
                Look::In(dir, hash) => (dir, hash, LoadKey::ByHash { dir, hash }),
                Look::ByNumber(dir) => {
                    let name = ino.link_name();
                    let hash = self.hash(&name);
                    (dir, hash, LoadKey::Dentry { dir, hash, name: name.into() })
                }
                Look::Nothing => {
                    self.advance(ino, op);
                    continue;
                }
                Look::Over => return Err(self.nowhere(ino, op)),
            };
            let unit = self.unit_at(dir, hash)?;
            let side = match unit.and_then(|(number, unit)| self.territory.of_unit(number, unit)) {
                Some(side) => side,
                None => self.side_of(dir, op, above + 1)?,
            };
            let (dir, outer) = (unit.map_or(dir, |(number, _)| number), dir);
            let key = of_content(key, dir);
            // It may be coming here, from a rank that says so already.
            if side == Side::Mine {
                self.name_is_free(outer, hash)?;
            }
            self.advance(ino, op);
            match side {
                Side::Mine if self.is_complete(dir) => {}
                Side::Mine => return park(key),
                Side::Sealed => return Err(Stop::Park(Park::Move)),
                Side::Other(rank) => {
                    // Where it was seen is a better hint than where it was stored, and that than where everything may be. Where it
                    // went from here is better than all: the rank there has it, or knows where it went on.
                    let known = matches!(self.known_place(ino), Some(Some(place)) if place.parent == outer)
                        || self.moved.went(ino).is_some_and(|(parent, _)| parent == outer);
                    let moves = self.moved.count();
                    let climb = op.climb.get_or_insert_default();
                    climb.step(ino, moves).led |= is_place;
                    let (first, second) = match known {
                        true => (rank, climb.elsewhere),
                        false => (climb.elsewhere, rank),
                    };
                    climb.elsewhere = first.or(second);
                }
            }
        }
    }

    fn next_look(&mut self, NodeRef { ino, parent, hash }: NodeRef, op: &mut Op) -> Look {
        let moves = self.moved.count();
        let step = op.climb.get_or_insert_default().step(ino, moves);
        match step.probe {
            Probe::Seen if parent == Ino::NONE => Look::Nothing,
            Probe::Seen => Look::In(parent, hash),
            Probe::Backptr if self.known_place(ino).is_some() => Look::Nothing,
            Probe::Backptr if self.moved.went(ino).is_some() && stdx::mutant!("mds_went_hides_place") => {
                Look::Nothing
            }
            Probe::Backptr => Look::Load(LoadKey::Backptr { ino }),
            Probe::Noted => {
                step.noted = match self.known_place(ino) {
                    Some(known) => known.as_ref().map(|place| (place.parent, place.hash)),
                    None => step.noted,
                };
                step.noted.map_or(Look::Nothing, |(dir, hash)| Look::In(dir, hash))
            }
            Probe::Went => self.moved.went(ino).map_or(Look::Nothing, |(dir, hash)| Look::In(dir, hash)),
            Probe::Links => Look::ByNumber(Ino::LINKS),
            Probe::Orphans => Look::ByNumber(self.orphans()),
            Probe::Nowhere if self.moved.has(ino, step.moves) => {
                (step.probe, step.noted, step.moves) = (Probe::Seen, None, moves);
                self.next_look(NodeRef { ino, parent, hash }, op)
            }
            Probe::Nowhere => Look::Over,
        }
    }

    fn advance(&self, ino: Ino, op: &mut Op) {
        let step = op.climb.get_or_insert_default().step(ino, self.moved.count());
        step.probe = match step.probe {
            Probe::Seen => Probe::Backptr,
            Probe::Backptr => Probe::Noted,
            Probe::Noted => Probe::Went,
            Probe::Went => Probe::Links,
            Probe::Links => Probe::Orphans,
            Probe::Orphans | Probe::Nowhere => Probe::Nowhere,
        };
    }

    /// It was looked for everywhere here. It may have gone to another rank which has not stored its place yet, and this one may have
    /// forgotten that with its former life: only all of them together know that there is no such inode.
    pub(crate) fn nowhere(&self, ino: Ino, op: &mut Op) -> Stop {
        // No other rank knows that, and each may name one that was its home once. Only who names it himself is told: what he goes by to find
        // another one, or what a rank looks for because a name leads there yet, is looked for anew.
        if ino == self.named && self.moved.has_ended(ino) && !stdx::mutant!("mds_end_forgotten") {
            return Errno::ESTALE.into();
        }
        // Another rank has it without a name, as the store says. It may have got one here since, and that rank has not stored that it
        // went: so this is believed only of what is nowhere here.
        let nameless = op.heard.as_ref().and_then(|heard| heard.orphans_at.get(&ino).copied());
        let climb = op.climb.get_or_insert_default();
        if climb.generation != self.territory.generation() {
            **climb = Climb { generation: self.territory.generation(), ..Climb::default() };
        }
        // An operation that waits for something else then comes by it again, and is not to begin anew, for ever.
        let step = climb.step(ino, self.moved.count());
        step.probe = Probe::Nowhere;
        step.led |= nameless.is_some();
        // Who made it knows of it before the store does.
        let maker = Some(RankId((ino.0 >> Ino::COUNTER_BITS) as u16));
        let maker = maker.filter(|maker| *maker != self.config.rank && self.has_rank(*maker));
        // It may not be there yet, but is nowhere else.
        let decided = self.transactions.comes_to(ino);
        match decided.or(climb.elsewhere).or(nameless).or(maker) {
            None if stdx::mutant!("mds_forgotten_is_gone") => Errno::ESTALE.into(),
            named => Stop::NotMine(named),
        }
    }

    /// Whether this operation has looked for it everywhere here, and nothing has moved since.
    pub(crate) fn is_nowhere(&self, ino: Ino, op: &Op) -> bool {
        let nowhere = |step: &Step| {
            step.ino == ino && matches!(step.probe, Probe::Nowhere) && !self.moved.has(ino, step.moves)
        };
        let climb = op.climb.as_ref().filter(|climb| climb.generation == self.territory.generation());
        climb.is_some_and(|climb| climb.steps.iter().any(nowhere))
    }

    /// The store brought a name of an inode: if it is its primary one the inode is here again, wherever it had gone.
    pub(crate) fn is_back(&mut self, dir: u32, ino: Ino) {
        if self.cache.by_ino(ino).is_some_and(|slot| self.cache.node(slot).dir == dir) {
            self.moved.is_back(ino);
        }
    }

    /// Whose the content of a directory is, cached or not.
    fn side_of(&mut self, dir: Ino, op: &mut Op, above: usize) -> Found<Side> {
        if let Some(side) = self.of_itself(dir) {
            return Ok(side);
        }
        if let Some(slot) = self.cache.find_dir(dir)
            && let Some(side) = self.side(slot)
        {
            return Ok(side);
        }
        let of = self.cache.outer(dir);
        if of != dir {
            return self.side_of(of, op, above);
        }
        match self.find(NodeRef::bare(dir), op, above) {
            Ok(node) => {
                let parent = self.cache.node(node).dir;
                match self.side(parent) {
                    Some(side) => Ok(side),
                    None => self.side_of(self.cache.dir(parent).ino, op, above + 1),
                }
            }
            Err(Stop::NotMine(home)) if self.may_be_placed_here(dir, op) => {
                Err(Stop::Park(Park::Facts { node: NodeRef::bare(dir), home }))
            }
            Err(Stop::NotMine(rank)) => Ok(Side::Other(rank)),
            Err(Stop::Fail(_)) => Ok(Side::Other(None)),
            Err(stop @ Stop::Park(_)) => Err(stop),
        }
    }

    /// Whether a directory that is not at home here may have its content here: its home would have to be asked.
    fn may_be_placed_here(&self, dir: Ino, op: &Op) -> bool {
        self.territory.has_slot(dir) && !op.inherits(dir)
    }

    /// An inode whose home is here.
    pub(crate) fn at_home(&mut self, reference: NodeRef, op: &mut Op) -> Found<u32> {
        let slot = self.find(reference, op, 0)?;
        let dir = self.cache.node(slot).dir;
        let side = match self.side(dir) {
            Some(side) => side,
            None => self.side_of(self.cache.dir(dir).ino, op, 0)?,
        };
        match side {
            Side::Mine => self.inode_is_free(reference.ino).map(|()| slot),
            Side::Sealed => Err(Stop::Park(Park::Move)),
            Side::Other(rank) => Err(Stop::NotMine(rank)),
        }
    }

    fn is_home_sealed(&mut self, slot: u32) -> bool {
        let home = self.cache.node(slot).dir;
        self.side(home) == Some(Side::Sealed)
    }

    /// Of a cached directory whose home and whole content are noted as this rank's, with nothing in between: what most requests
    /// find, with one look at the index. None: `of_content` has to look.
    #[inline]
    fn is_plainly_here(&self, dir: Ino, op: &Op) -> Option<u32> {
        if op.climb.is_some() || self.territory.has_gone() || self.territory.has_live_parts(dir) {
            return None;
        }
        let slot = self.cache.by_ino(dir)?;
        let node = self.cache.node(slot);
        let plain = |own: &dir::Dir| own.has(dir::HEADER) && !own.is_spread();
        let here = self.is_noted_mine(node.own) && self.is_noted_mine(node.dir);
        (here && plain(self.cache.dir(node.own)) && self.inode_is_free(dir).is_ok()).then_some(slot)
    }

    /// The inode of a directory whose content, or the part of it that this hash is in, is here: its own record, or a replica.
    pub(crate) fn of_content(
        &mut self,
        reference: NodeRef,
        hash: Option<NameHash>,
        op: &mut Op,
    ) -> Found<u32> {
        if reference.ino.is_reserved() {
            return Err(Errno::ESTALE.into());
        }
        if let Some(slot) = self.is_plainly_here(reference.ino, op) {
            return Ok(slot);
        }
        let unit = hash.map_or(Ok(None), |hash| self.unit_at(reference.ino, hash))?;
        let of_unit = unit.and_then(|(number, unit)| self.territory.of_unit(number, unit));
        match of_unit.or_else(|| self.of_itself(reference.ino)) {
            None => match self.at_home(reference, op) {
                Err(Stop::NotMine(home)) if self.may_be_placed_here(reference.ino, op) => {
                    Err(Stop::Park(Park::Facts { node: reference, home }))
                }
                found => found,
            },
            Some(Side::Sealed) => Err(Stop::Park(Park::Move)),
            Some(Side::Other(rank)) => Err(Stop::NotMine(rank)),
            Some(Side::Mine) => match self.find(reference, op, 0) {
                Err(Stop::NotMine(home)) => {
                    // What takes it away from here is decided, and this rank is yet to hear of it: its old name is here, and with a replica
                    // it would have two.
                    if !stdx::mutant!("mds_replica_of_reserved") {
                        self.inode_is_free(reference.ino)?;
                    }
                    Err(Stop::Park(Park::Replica { node: reference, home }))
                }
                // Its home is on its way to another rank, who may have changed the inode.
                Ok(slot) if self.is_home_sealed(slot) => Err(Stop::Park(Park::Move)),
                found => found,
            },
        }
    }
}

/// The same load of that content.
fn of_content(key: LoadKey, dir: Ino) -> LoadKey {
    match key {
        LoadKey::ByHash { hash, .. } => LoadKey::ByHash { dir, hash },
        LoadKey::Dentry { hash, name, .. } => LoadKey::Dentry { dir, hash, name },
        key @ (LoadKey::Header { .. }
        | LoadKey::UnitHeader { .. }
        | LoadKey::Spread { .. }
        | LoadKey::Backptr { .. }
        | LoadKey::Scan { .. }) => key,
    }
}
