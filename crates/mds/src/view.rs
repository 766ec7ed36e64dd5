//! What a plan may look at, and how it finds inodes and names; whatever is not cached parks it.
//!
//! Absent: changes. A plan fills the transaction buffer (`ops/mod.rs` has the exceptions).

use crate::cache::slab::NONE;
use crate::cache::{Cache, attr_of, dir, header_attr, node};
use crate::caps::book::{Book, RoomLimits};
use crate::config::RankConfig;
use crate::files::{Files, Open};
use crate::heat::Heats;
use crate::holders::Holders;
use crate::locks::Locks;
use crate::moved::Moved;
use crate::op::{Learned, LoadKey, Op, Park, Probe, Stop, Syncing};
use crate::recent::Touched;
use crate::redone::Redone;
use crate::tail::TailWrites;
use crate::territory::{Side, Territory};
use crate::totals::Totals;
use crate::transactions::hints::Hints;
use crate::transactions::{Told, Transactions};
use crate::txn::{Delta, DentryAt, Txn};
use crate::unheard::UnheardAnswers;
use crate::units::whole;
use proto::cluster::{ClusterMap, Policy, RankState, Unit};
use proto::header::FragHeader;
use proto::inode::{InodeCore, InodeExt};
use proto::storeio::Backptr;
use proto::{Attr, Errno, Incarnation, Ino, Name, NameHash, NodeRef, RankId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stdx::{Now, Wall};

/// What planning finds, or why it ends early.
pub(crate) type Found<T> = Result<T, Stop>;

/// Inode numbers this rank may give out.
#[derive(Debug, Default)]
pub(crate) struct Inos {
    pub next: u64,
    /// Below it numbers are reserved and the reservation is durable.
    pub usable: u64,
    /// Reserved, perhaps not yet durable.
    pub reserved: u64,
    /// Numbers below it were reserved by former lives of the rank.
    pub former: Ino,
}

/// Where primary dentries are, as far as the store has not heard: `None` = the inode is gone.
pub(crate) type Backptrs = BTreeMap<Ino, (u64, Option<Backptr>)>;

/// A directory that is gone, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purged {
    pub unit: Unit,
    /// Its inode was this rank's, too; or only the parts are gone.
    pub at_home: bool,
}

/// A planned operation's world.
pub(crate) struct View {
    pub config: RankConfig,
    pub cache: Cache,
    pub txn: Txn,
    pub files: Files,
    /// Numbers of cuts that operations ran under and no transaction tells of, until one does.
    pub spent_cuts: BTreeMap<Ino, u32>,
    pub locks: Locks,
    /// Who may keep what.
    pub book: Book,
    pub inos: Inos,
    /// The number that the operation at hand must give out, because its caller was told so.
    pub given: Option<Ino>,
    /// What the transaction at hand changes, where it matters who did.
    pub touched: Option<Touched>,
    pub backptrs: Backptrs,
    /// Being written by the present checkpoint.
    pub backptrs_old: Backptrs,
    /// On its way to the store: until that answers, a load may still bring what was there before.
    pub backptrs_writing: Backptrs,
    /// The store or the data store said that it is full.
    pub full: bool,
    /// The driver says that the disk is full.
    pub disk_full: bool,
    /// Former sessions may still come back with their opens.
    pub reconnecting: bool,
    /// What former sessions keep is not known yet: nothing may move.
    pub stands_still: bool,
    pub tail_writes: TailWrites,
    pub redone: Redone,
    /// What of the namespace is this rank's.
    pub territory: Territory,
    /// What is asked of it.
    pub heats: Heats,
    /// The node that was resolved last for the operation at hand.
    pub resolved: u32,
    /// Which inode a client's operation at hand names itself.
    pub named: Ino,
    /// What another rank has told for the operation at hand.
    pub learned: Option<Box<Learned>>,
    /// What other ranks have told of units for the operation at hand.
    pub learned_units: BTreeMap<Ino, FragHeader>,
    /// The directory that is being spread.
    pub spreading: Option<Ino>,
    /// Directories that have become so large that they are to be, or are and may have units to share.
    pub grown: Vec<Ino>,
    /// Spread ones of which a part has few names; directories of which much is asked.
    pub shrunk: Vec<Ino>,
    pub heated: Vec<Ino>,
    /// Directories that are gone and have an entry in the cluster map.
    pub purged: Vec<Purged>,
    /// Directories for which an entry was asked for, and none is there yet.
    pub carving: BTreeSet<Ino>,
    /// What is to move, or to get an entry of that kind: the coordinator may have been asked for it.
    pub moving: Option<Unit>,
    /// Directories whose entry of that version is about to be dropped.
    pub unnaming: BTreeMap<Ino, u64>,
    /// What other ranks have told of the content of directories that are at home here.
    pub totals: Totals,
    /// What other ranks told of parts of the transaction at hand.
    pub told: Option<Box<Told>>,
    /// Who told of names of which directories.
    pub hints: Hints,
    pub transactions: Transactions,
    /// Sessions of mounts in this process.
    pub mounts: BTreeSet<SessionId>,
    /// To what sessions are limited that have something open which nobody has checked.
    pub limits: BTreeMap<SessionId, Ino>,
    /// What sessions have of inodes that came with a move, or a transaction.
    pub holders: Holders,
    /// Answers that count in what was told of inodes that left.
    pub unheard: UnheardAnswers,
    pub moved: Moved,
    pub now: Now,
}

/// Where a node's record is to be put: the version its directory comes to.
fn place_of(cache: &Cache, slot: u32, incarnation: Incarnation) -> DentryAt<'_> {
    let node = cache.nodes.get(slot);
    let entries = cache.dirs.get(node.dir);
    let version = entries.next_version(incarnation);
    DentryAt { dir: entries.ino, of: entries.of(), hash: node.hash, version, name: node.name.as_bytes() }
}

impl View {
    /// Of a rank that has not booted.
    pub(crate) fn new(config: RankConfig) -> Self {
        Self {
            txn: Txn::new(config.incarnation),
            cache: Cache::new(config.limits.load_entries),
            files: Files::default(),
            spent_cuts: BTreeMap::new(),
            locks: Locks::default(),
            book: Book::bounded(RoomLimits {
                least: config.limits.caps_least,
                recalls_max: config.limits.recall_caps,
            }),
            territory: Territory::new(config.rank),
            heats: Heats::default(),
            resolved: NONE,
            named: Ino::NONE,
            learned: None,
            learned_units: BTreeMap::new(),
            spreading: None,
            grown: Vec::new(),
            shrunk: Vec::new(),
            heated: Vec::new(),
            told: None,
            hints: Hints::default(),
            transactions: Transactions::default(),
            mounts: BTreeSet::new(),
            limits: BTreeMap::new(),
            holders: Holders::default(),
            unheard: UnheardAnswers::default(),
            config,
            inos: Inos::default(),
            given: None,
            touched: None,
            backptrs: Backptrs::new(),
            backptrs_old: Backptrs::new(),
            backptrs_writing: Backptrs::new(),
            full: false,
            disk_full: false,
            reconnecting: false,
            stands_still: false,
            tail_writes: TailWrites::default(),
            redone: Redone::default(),
            purged: Vec::new(),
            carving: BTreeSet::new(),
            moving: None,
            unnaming: BTreeMap::new(),
            totals: Totals::default(),
            moved: Moved::default(),
            now: Now::default(),
        }
    }

    pub(crate) fn wall(&self) -> Wall {
        self.now.wall
    }

    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        proto::name::name_hash(&self.config.hash_seed, name)
    }

    pub(crate) const fn orphans(&self) -> Ino {
        Ino::orphans(self.config.rank)
    }

    /// The node of an inode that is at home here.
    #[inline]
    pub(crate) fn resolve(&mut self, reference: NodeRef, op: &mut Op) -> Found<u32> {
        let found = if self.territory.is_undisputed() {
            self.resolve_anywhere(reference, op)
        } else {
            self.at_home(reference, op)
        };
        self.resolved = found.as_ref().map_or(NONE, |slot| *slot);
        found
    }

    /// A file without a name is at the rank where it lost the last one, whoever has everything else by now.
    fn no_orphan_of_others(&self, slot: u32) -> Found<u32> {
        match self.territory.of_number(self.cache.parent_ino(slot)) {
            Some(Side::Other(rank)) => Err(Stop::NotMine(rank)),
            Some(Side::Mine | Side::Sealed) | None => Ok(slot),
        }
    }

    /// Where everything is this rank's, but for what others have in `//orphans`.
    fn resolve_anywhere(&self, reference: NodeRef, op: &mut Op) -> Found<u32> {
        let slot = self.look_anywhere(reference, op)?;
        if self.territory.is_only() { Ok(slot) } else { self.no_orphan_of_others(slot) }
    }

    /// Where everything is this rank's: from the cache, from where the client saw it, from its backptr, from the system directories;
    /// in this order.
    fn look_anywhere(&self, reference: NodeRef, op: &mut Op) -> Found<u32> {
        let ino = reference.ino;
        if ino.is_reserved() {
            return Err(Errno::ESTALE.into());
        }
        if let Some(slot) = self.cache.by_ino(ino) {
            // Forgotten again before the operation runs, it is looked for from the start.
            op.probe = op.probe.filter(|(sought, _)| *sought != ino);
            return Ok(slot);
        }
        if ino.0 >> 63 == 1 {
            return Err(Errno::ESTALE.into());
        }
        if self.is_nowhere(ino, op) {
            return Err(self.nowhere(ino, op));
        }
        if stdx::mutant!("mds_stored_orphan_is_elsewhere")
            && let Some(rank) = op.heard.as_ref().and_then(|heard| heard.orphans_at.get(&ino))
        {
            return Err(Stop::NotMine(Some(*rank)));
        }
        let mut probe = match op.probe {
            Some((sought, probe)) if sought == ino => probe,
            _ => {
                (op.hint, op.moves) = (None, self.moved.count());
                Probe::Seen
            }
        };
        loop {
            let (asked, next) = self.ask(probe, reference, op.hint);
            op.probe = next.map(|next| (ino, next));
            match (asked, next) {
                (Some(key), _) => return park(key),
                (None, Some(next)) => probe = next,
                // It was where this search had looked already, and perhaps is in neither place's load.
                (None, None) if self.moved.has(ino, op.moves) && !stdx::mutant!("mds_moved_is_gone") => {
                    (op.hint, op.moves, probe) = (None, self.moved.count(), Probe::Seen);
                }
                // A directory that the map has, or parts of it, is none that others may have without a name; and who asks goes by the map.
                (None, None)
                    if self.territory.is_only()
                        || self.of_itself_alone(ino).is_some()
                        || (self.territory.has_unit(ino) && !stdx::mutant!("mds_parts_lead_on"))
                        || stdx::mutant!("mds_whole_knows_all") =>
                {
                    return Err(Errno::ESTALE.into());
                }
                // Another rank may have it without a name, and nothing of that shows here.
                (None, None) => return Err(self.nowhere(ino, op)),
            }
        }
    }

    /// Whether that is what another rank has of files without a name.
    pub(crate) fn is_orphans_of_others(&self, dir: Ino) -> bool {
        dir.is_reserved() && matches!(self.territory.of_number(dir), Some(Side::Other(_)))
    }

    /// What is to be loaded to look in one place, `None` when nothing new can be there; and the next place.
    fn ask(
        &self,
        probe: Probe,
        reference: NodeRef,
        hint: Option<(Ino, NameHash)>,
    ) -> (Option<LoadKey>, Option<Probe>) {
        let ino = reference.ino;
        let by_hash = |dir, hash| {
            let dir = self.cache.inner(dir, hash);
            (!self.is_complete(dir)).then_some(LoadKey::ByHash { dir, hash })
        };
        let by_number = |dir| {
            let name = ino.link_name();
            LoadKey::Dentry { dir, hash: self.hash(&name), name: name.into() }
        };
        // Whose its names are depends on how it is spread, also while all of them are here: what came under its own number would not be
        // found below a part that moves.
        let unsorted = |dir: &Ino| self.territory.has_live_parts(*dir) && self.cache.spread(*dir).is_none();
        match probe {
            Probe::Seen => {
                let seen = Some(reference.parent).filter(|parent| *parent != Ino::NONE);
                if let Some(dir) = seen.filter(unsorted) {
                    return (Some(LoadKey::Spread { dir }), Some(Probe::Seen));
                }
                (seen.and_then(|dir| by_hash(dir, reference.hash)), Some(Probe::Backptr))
            }
            Probe::Backptr => {
                let unknown = self.known_place(ino).is_none();
                (unknown.then_some(LoadKey::Backptr { ino }), Some(Probe::Noted))
            }
            Probe::Noted => {
                let place = match self.known_place(ino) {
                    Some(known) => known.as_ref().map(|b| (b.parent, b.hash)),
                    None => hint,
                };
                if let Some(dir) = place.map(|(dir, _)| dir).filter(unsorted) {
                    return (Some(LoadKey::Spread { dir }), Some(Probe::Noted));
                }
                (place.and_then(|(dir, hash)| by_hash(dir, hash)), Some(Probe::Went))
            }
            // Nothing is another rank's: what came back came with its directory, and the store knows that.
            Probe::Went => (None, Some(Probe::Links)),
            Probe::Links => (Some(by_number(Ino::LINKS)), Some(Probe::Orphans)),
            Probe::Orphans => (Some(by_number(self.orphans())), Some(Probe::Nowhere)),
            Probe::Nowhere => (None, None),
        }
    }

    pub(crate) fn is_complete(&self, ino: Ino) -> bool {
        self.cache.find_dir(ino).is_some_and(|slot| self.cache.dir(slot).has(dir::COMPLETE))
    }

    /// What is known of an inode's place that the store may not know.
    pub(crate) fn known_place(&self, ino: Ino) -> Option<&Option<Backptr>> {
        let known = [&self.backptrs, &self.backptrs_old, &self.backptrs_writing];
        known.into_iter().find_map(|map| map.get(&ino)).map(|(_, place)| place)
    }

    /// The names of a directory inode, with its header; EXDEV if another rank has them.
    pub(crate) fn entries_of(&self, slot: u32) -> Found<u32> {
        let node = self.cache.node(slot);
        if !node.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if !self.territory.is_undisputed() && !self.is_noted_mine(node.own) {
            match self.of_itself(node.ino()) {
                Some(Side::Other(_)) => return Err(Errno::EXDEV.into()),
                Some(Side::Sealed) => return Err(Stop::Park(Park::Move)),
                Some(Side::Mine) | None => {}
            }
        }
        if node.own == NONE || !self.cache.dir(node.own).has(dir::HEADER) {
            return park(LoadKey::Header { dir: node.ino() });
        }
        Ok(node.own)
    }

    /// The names of a directory inode that are where this hash is, with their header; EXDEV if another rank has them.
    pub(crate) fn entries_at(&self, slot: u32, hash: NameHash) -> Found<u32> {
        let node = self.cache.node(slot);
        if node.is_dir() {
            let own = (node.own != NONE).then(|| self.cache.dir(node.own));
            let plain = own.is_some_and(|own| own.has(dir::HEADER) && !own.is_spread());
            if !plain && let Some(unit) = self.unit_at(node.ino(), hash)? {
                return self.unit_here(unit);
            }
        }
        self.entries_of(slot)
    }

    /// A directory whose content is here, by reference: (inode's node, names); of one that is spread, the part that this hash is in.
    pub(crate) fn directory(&mut self, reference: NodeRef, hash: NameHash, op: &mut Op) -> Found<(u32, u32)> {
        let slot = self.inode_of_content(reference, Some(hash), op)?;
        Ok((slot, self.entries_at(slot, hash)?))
    }

    /// The inode of a directory whose content, or the part of it that this hash is in, is here; perhaps a replica.
    pub(crate) fn inode_of_content(
        &mut self,
        reference: NodeRef,
        hash: Option<NameHash>,
        op: &mut Op,
    ) -> Found<u32> {
        let found = if self.territory.is_undisputed() {
            self.resolve_anywhere(reference, op)
        } else {
            self.of_content(reference, hash, op)
        };
        self.resolved = found.as_ref().map_or(NONE, |slot| *slot);
        found
    }

    /// Whether an inode's own record is cached, and no replica of it.
    pub(crate) fn is_at_home(&self, ino: Ino) -> bool {
        self.cache
            .by_ino(ino)
            .is_some_and(|slot| !self.cache.dir(self.cache.node(slot).dir).has(dir::FOREIGN))
    }

    /// Whether there is such a rank.
    pub(crate) fn has_rank(&self, rank: RankId) -> bool {
        self.territory.map().is_some_and(|map| map.ranks.contains_key(&rank))
    }

    /// Whether a rank can be given something.
    pub(crate) fn serves(&self, rank: RankId) -> bool {
        let info = self.territory.map().and_then(|map| map.ranks.get(&rank));
        let below = |map: &Arc<ClusterMap>| rank.0 < map.max_mds;
        info.is_some_and(|info| info.state == RankState::Active) && self.territory.map().is_some_and(below)
    }

    /// Whether it may be able to soon.
    pub(crate) fn is_coming(&self, rank: RankId) -> bool {
        let info = self.territory.map().and_then(|map| map.ranks.get(&rank));
        info.is_some_and(|info| {
            matches!(
                info.state,
                RankState::Creating | RankState::Replay | RankState::Resolve | RankState::Reconnect
            )
        })
    }

    /// The header of a directory at home here, wherever its content is.
    pub(crate) fn header_of(&self, slot: u32) -> Found<FragHeader> {
        let ino = self.cache.node(slot).ino();
        self.sum(self.own_header_of(slot)?, ino)
    }

    /// The same without its units.
    pub(crate) fn own_header_of(&self, slot: u32) -> Found<&FragHeader> {
        let ino = self.cache.node(slot).ino();
        if !self.is_boundary(ino) {
            self.listing_is_free(ino)?;
            return Ok(&self.cache.dir(self.entries_of(slot)?).header);
        }
        match (self.learned.as_deref(), self.learned_units.get(&ino).or_else(|| self.totals.of(ino))) {
            (Some(Learned::Totals(of, header)), _) if *of == ino => Ok(header),
            (_, Some(header)) => Ok(header),
            (_, None) => Err(Stop::Park(Park::Totals(vec![(ino, whole(ino))]))),
        }
    }

    /// Whether it was looked for in the store for the operation at hand, and is not there.
    pub(crate) fn has_no_header(&self, dir: Ino) -> bool {
        matches!(self.learned.as_deref(), Some(Learned::NoHeader(of)) if *of == dir)
    }

    /// Whether its time was set there already.
    pub(crate) fn has_times(&self, ino: Ino) -> bool {
        matches!(self.learned.as_deref(), Some(Learned::Times(of, _)) if *of == ino)
    }

    /// The header of a directory whose content is elsewhere, after its time was set there; and by what it is set if it was not: the number of
    /// its first unit, and the sum of its units' change counters.
    pub(crate) fn header_set(&self, ino: Ino, mtime: Wall, (first, stamp): (Ino, u64)) -> Found<FragHeader> {
        match self.learned.as_deref() {
            Some(Learned::Times(of, header)) if *of == ino => Ok(header.clone()),
            _ => Err(Stop::Park(Park::SetTimes { dir: ino, mtime, first, stamp })),
        }
    }

    /// One of the system's own directories; EXDEV if it is another rank's.
    pub(crate) fn system(&self, ino: Ino) -> Found<u32> {
        if self.is_boundary(ino) {
            return Err(Errno::EXDEV.into());
        }
        let slot = self.cache.by_ino(ino).ok_or(Errno::EIO)?;
        self.entries_of(slot)
    }

    /// The node of an existing name, `None` when it does not exist.
    pub(crate) fn lookup(&mut self, dir: u32, hash: NameHash, name: &[u8]) -> Found<Option<u32>> {
        if !self.territory.is_undisputed() {
            self.free_of_reservations(dir, hash)?;
        }
        if let Some(slot) = self.cache.find(dir, hash, name) {
            return Ok(self.cache.node(slot).positive().then_some(slot));
        }
        if self.cache.dir(dir).has(dir::COMPLETE) {
            return Ok(None);
        }
        let ino = self.cache.dir(dir).ino;
        park(LoadKey::Dentry { dir: ino, hash, name: name.into() })
    }

    /// The node that holds the inode a name leads to; EXDEV if another rank has it.
    pub(crate) fn target(&mut self, slot: u32, op: &mut Op) -> Found<u32> {
        let node = self.cache.node(slot);
        if node.primary() {
            return Ok(slot);
        }
        let ino = node.ino();
        let hash = self.hash(&ino.link_name());
        match self.resolve(NodeRef { ino, parent: Ino::LINKS, hash }, op) {
            Err(Stop::Fail(_)) => Err(Errno::EIO.into()),
            Err(Stop::NotMine(_)) if self.is_boundary(Ino::LINKS) => Err(Errno::EXDEV.into()),
            Err(Stop::NotMine(_)) => Err(Errno::EIO.into()),
            other @ (Ok(_) | Err(Stop::Park(_))) => other,
        }
    }

    /// The attributes of a primary node.
    pub(crate) fn attr(&self, slot: u32) -> Found<Attr> {
        if !self.territory.is_undisputed() {
            self.listing_is_free(self.cache.node(slot).ino())?;
        }
        match self.cache.attr(slot) {
            // What is sealed may be another's by now, who has changed it.
            Some(attr) if !self.territory.is_sealing() || !self.is_sealed(attr.ino) => Ok(attr),
            Some(_) | None => self.attr_of_content(slot),
        }
    }

    #[cold]
    fn is_sealed(&self, ino: Ino) -> bool {
        self.of_itself(ino) == Some(Side::Sealed)
    }

    /// Of a directory whose header is not cached, or may not be shown.
    #[cold]
    fn attr_of_content(&self, slot: u32) -> Found<Attr> {
        let ino = self.cache.node(slot).ino();
        match self.of_itself(ino) {
            Some(Side::Other(_)) => self.attr_by(slot, &self.header_of(slot)?),
            Some(Side::Sealed) => Err(Stop::Park(Park::Move)),
            Some(Side::Mine) | None if self.cache.spread(ino).is_some() => {
                self.attr_by(slot, &self.header_of(slot)?)
            }
            Some(Side::Mine) | None => park(LoadKey::Header { dir: ino }),
        }
    }

    fn attr_by(&self, slot: u32, header: &FragHeader) -> Found<Attr> {
        let node = self.cache.node(slot);
        let (ext, parent) = (self.cache.ext(slot), self.cache.parent_of(slot));
        let mut attr = attr_of(&node.core, ext, parent, node.hash);
        header_attr(&mut attr, header);
        Ok(attr)
    }

    /// What a sync that begins now will cover.
    pub(crate) fn syncing(&self, core: &InodeCore) -> Syncing {
        let (writes, cutting) =
            self.files.get(core.ino).map_or((0, false), |file| (file.writes, file.cutting));
        Syncing { ino: core.ino, writes, cut: core.truncate_seq, cutting }
    }

    /// A copy of an inode's core, about to be changed: counts the change.
    pub(crate) fn changed_core(&self, slot: u32) -> InodeCore {
        let node = self.cache.node(slot);
        let mut core = node.core;
        core.change = dir::next_number(core.change, node.has(node::BUMPED), self.config.incarnation);
        core
    }

    /// A new name in a directory.
    pub(crate) fn place_in<'a>(&self, dir: u32, hash: NameHash, name: &'a [u8]) -> DentryAt<'a> {
        let dir = self.cache.dir(dir);
        let version = dir.next_version(self.config.incarnation);
        DentryAt { dir: dir.ino, of: dir.of(), hash, version, name }
    }

    /// The directory a node's record is in must have a known header before it is changed.
    pub(crate) fn writable(&self, slot: u32) -> Found<u32> {
        let dir = self.cache.node(slot).dir;
        if self.cache.dir(dir).has(dir::HEADER) {
            return Ok(dir);
        }
        let ino = self.cache.dir(dir).ino;
        // Names without a header are damage, whatever their directory is.
        if matches!(self.learned.as_deref(), Some(Learned::NoHeader(of)) if *of == ino) {
            return Err(Errno::EIO.into());
        }
        park(LoadKey::Header { dir: ino })
    }

    /// Plans the change of one inode's record: the dentry and its directory's header.
    pub(crate) fn put_inode(&mut self, slot: u32, core: &InodeCore, ext: Option<&InodeExt>) -> Found<()> {
        let dir = self.writable(slot)?;
        let place = place_of(&self.cache, slot, self.config.incarnation);
        self.txn.primary(place, core, ext);
        self.txn.header(self.cache.dirs.get(dir), Delta::default());
        Ok(())
    }

    /// The same with the ext that is there.
    pub(crate) fn put_core(&mut self, slot: u32, core: &InodeCore) -> Found<()> {
        let dir = self.writable(slot)?;
        let place = place_of(&self.cache, slot, self.config.incarnation);
        self.txn.primary(place, core, self.cache.ext(slot));
        self.txn.header(self.cache.dirs.get(dir), Delta::default());
        Ok(())
    }

    /// Plans the change of the one directory in which names come or go.
    pub(crate) fn put_listing(&mut self, dir: u32, entries: i64, subdirs: i64) {
        let delta = Delta { entries, subdirs, mtime: Some(self.now.wall) };
        let dir = self.cache.dirs.get(dir);
        self.txn.header(dir, delta);
        // Once on the way up, and seldom beyond: whether it comes so far is looked at then.
        let (names, large) = (dir.header.entries.saturating_add_signed(entries), self.config.split_size);
        if entries > 0 && (names == large || (names > large && names.is_power_of_two())) {
            self.grows(dir.ino);
        }
    }

    /// A directory has become large. One that is placed by slots is there for several ranks.
    #[cold]
    fn grows(&mut self, dir: Ino) {
        if self.config.split_size > 0 && self.may_be_spread(dir) {
            self.grown.push(dir);
        }
    }

    /// Whether a directory is there for several ranks. One that was pinned since it was made is for that rank alone.
    pub(crate) fn may_be_spread(&self, dir: Ino) -> bool {
        let are_several = self.territory.map().is_some_and(|map| map.max_mds > 1);
        let is_placed = self.config.spread_unplaced || self.is_placed(dir);
        let may = !dir.is_reserved() && dir != Ino::ROOT;
        are_several && may && is_placed && !self.is_pinned(dir)
    }

    pub(crate) fn is_pinned(&self, dir: Ino) -> bool {
        self.territory.entry(dir).is_some_and(|entry| entry.policy == Policy::Pin)
    }

    /// Names went from a part of a spread directory of which few are left: all of it may have few.
    #[cold]
    fn shrinks(&mut self, dir: Ino) {
        if self.shrunk.last() != Some(&dir) {
            self.shrunk.push(dir);
        }
    }

    /// The change of one header, in a transaction of several.
    pub(crate) fn put_delta(&mut self, slot: u32, delta: Delta) {
        let dir = self.cache.dirs.get(slot);
        self.txn.header(dir, delta);
        if delta.entries < 0 && dir.header.entries <= self.config.merge_size && dir.of() != dir.ino {
            self.shrinks(dir.of());
        }
    }

    /// A fresh inode number for this transaction.
    pub(crate) fn new_ino(&mut self) -> Found<Ino> {
        if let Some(given) = self.given {
            return Ok(given);
        }
        let counter = self.inos.next + self.txn.inos;
        if counter >= self.inos.usable {
            return Err(Stop::Park(Park::Inos));
        }
        self.txn.inos += 1;
        Ok(Ino::of_rank(self.config.rank, counter))
    }

    /// Whether new data is refused.
    pub(crate) const fn is_full(&self) -> bool {
        self.full || self.disk_full
    }

    /// Refuses what needs new space while the store is full.
    pub(crate) const fn space(&self) -> Result<(), Errno> {
        if self.is_full() { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Whether the session has opened the file for `rights`.
    pub(crate) fn has_open(&self, session: SessionId, ino: Ino, rights: u32) -> bool {
        let opened = |open: &Open| open.session == session && open.has(rights);
        self.files.get(ino).is_some_and(|file| file.opens.iter().any(opened))
    }

    /// Hash of a checked name.
    pub(crate) fn name_hash(&self, name: &Name) -> NameHash {
        name.hash(&self.config.hash_seed)
    }
}

/// Waits for a load.
pub(crate) const fn park<T>(key: LoadKey) -> Found<T> {
    Err(Stop::Park(Park::Load(key)))
}
