//! The cluster map as a client has it, and whose it says that a place is. Which directories are placed by slots a client does not
//! know: it learns from answers whose they are.
//!
//! Absent: what is known from answers (`places.rs`).

use super::many::Many;
use super::route::{self, Place};
use super::{FIRST, Out, parting};
use crate::machine::Client;
use crate::output::Output;
use proto::cluster::{ClusterMap, Delta, Entry, RANKS_MAX, RankState, SLOTS, Unit};
use proto::message::ClientMsg;
use proto::request::Request;
use proto::{Frag, Ino, NameHash, NodeRef, RankId};
use std::collections::BTreeSet;

/// What comes of a message with a map or a delta.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    Map(Box<ClusterMap>),
    /// Nothing new, or nothing that can be used.
    Nothing,
    /// It begins at another map than the one that is there: another rank's news was quicker, or was lost. It says what is different at
    /// its end, not what came and went in between; so it cannot be used, and the map of that version is to be asked for.
    Gap(u64),
}

pub(super) fn after(have: Option<&ClusterMap>, bytes: &[u8]) -> News {
    let version = have.map_or(0, |have| have.version);
    if let Ok(map) = ClusterMap::decode(bytes) {
        return if map.version > version { News::Map(Box::new(map)) } else { News::Nothing };
    }
    let Some(delta) = Delta::decode(bytes).ok().filter(|delta| delta.to > version) else {
        return News::Nothing;
    };
    match have.filter(|have| have.version == delta.from || stdx::mutant!("client_takes_any_delta")) {
        None => News::Gap(delta.to),
        Some(have) => {
            let mut next = have.clone();
            let applied = next.apply(&Delta { from: have.version, ..delta });
            applied.map_or(News::Nothing, |()| News::Map(Box::new(next)))
        }
    }
}

/// Whether that rank owns everything.
pub(super) fn is_all_of(map: &ClusterMap, rank: RankId) -> bool {
    map.entries.values().all(|entry| entry.rank == rank)
}

/// Whether there is no other rank, whose entries could divide what this one has.
pub(super) fn is_alone(map: &ClusterMap, rank: RankId) -> bool {
    map.ranks.keys().all(|other| *other == rank) || stdx::mutant!("client_alone_with_others")
}

/// Whether everything is whose it was; what is on its way still is.
fn have_same_owners(one: Option<&ClusterMap>, other: Option<&ClusterMap>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    let owners =
        |map: &ClusterMap| map.entries.iter().map(|(unit, entry)| (*unit, entry.rank)).collect::<Vec<_>>();
    let slot = |number: u16| one.slots.get(number).rank == other.slots.get(number).rank;
    (one.entries == other.entries || owners(one) == owners(other))
        && (one.slots == other.slots || (0..SLOTS).all(slot))
}

/// Whose the content of a directory is, or of the part of it that this hash is in, if its number says so: it has an entry, or is the
/// system's.
fn of_number(map: Option<&ClusterMap>, dir: Ino, hash: Option<NameHash>) -> Option<RankId> {
    let orphans = Ino::orphans(FIRST).0;
    match dir {
        Ino::NONE => None,
        Ino(number) if (orphans..orphans + u64::from(RANKS_MAX)).contains(&number) => {
            Some(RankId((number - orphans) as u16))
        }
        dir if dir.is_reserved() => Some(FIRST),
        dir => match hash {
            Some(hash) => map?.governing(dir, hash).map(|(_, entry)| entry.rank),
            None => map?.entries.get(&Unit { dir, frag: Frag::WHOLE }).map(|entry| entry.rank),
        },
    }
}

/// Entries of a directory's parts.
fn units_of(map: &ClusterMap, dir: Ino) -> impl Iterator<Item = &Entry> {
    let unit = |prefix, depth| Unit { dir, frag: Frag { prefix, depth } };
    map.entries.range(unit(0, 1)..=unit(u64::MAX, u8::MAX)).map(|(_, entry)| entry)
}

impl Many {
    /// A rank says what the cluster is like now.
    pub(super) fn on_map(&mut self, from: RankId, bytes: &[u8], out: &mut Out) {
        match after(self.map.as_ref(), bytes) {
            News::Map(map) => {
                self.has_map(Some(*map));
                self.look_for_parting(out);
                self.ask_parked(true, out);
            }
            News::Gap(version) => self.want_map(from, version, out),
            News::Nothing => {}
        }
    }

    /// `None`: what was known of it was wrong.
    pub(super) fn has_map(&mut self, map: Option<ClusterMap>) {
        let entries = |map: &Option<ClusterMap>| map.as_ref().map(|map| map.entries.clone());
        if entries(&self.map) != entries(&map) {
            self.places.map_changed();
        }
        let before = self.map.take().or_else(|| self.dropped.take());
        let version = map.as_ref().map_or(0, |map| map.version);
        match &map {
            // What was dropped and comes again with the same owners names nobody who was not asked.
            Some(map) => self.owners += u64::from(!have_same_owners(before.as_ref(), Some(map))),
            None if stdx::mutant!("client_drop_names_others") => self.owners += 1,
            None => self.dropped = before,
        }
        self.map = map;
        for client in &mut self.clients {
            client.has_map(version, client.rank() == FIRST, false);
        }
    }

    pub(super) fn map_version(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.version)
    }

    /// A rank says by that version that a place is not its own. If the map here says by the same one that it is, it is wrong. A rank that
    /// says so again of what came then contradicts itself: that is no reason to ask anew, again and again.
    pub(super) fn doubt_map(&mut self, place: Place, from: RankId, version: u64, out: &mut Out) {
        let Place::Inside(dir, hash) = place else { return };
        // Which part it is about may not be known here.
        let is_known = hash.is_some() || !self.has_units(dir.ino);
        if is_known
            && version == self.map_version()
            && (version > self.doubted || stdx::mutant!("client_doubts_for_ever"))
            && of_number(self.map.as_ref(), dir.ino, hash) == Some(from)
        {
            self.doubted = version;
            self.has_map(None);
            self.map_wanted = 0;
            self.want_map(from, version, out);
        }
    }

    /// That rank has a map of that version. It said so before, and that is on its way; or the session has dropped it since.
    pub(super) fn want_map(&mut self, rank: RankId, version: u64, out: &mut Out) {
        if version > self.map_wanted {
            self.map_wanted = version;
            let message = ClientMsg::WantMap { have: self.map_version() };
            out.push(Output::Send { rank, message });
        }
    }

    /// What says whose a request is.
    pub(super) fn place(&self, request: &Request) -> Place {
        // All ranks hash names alike.
        route::of(request, self.clients.iter().find_map(Client::seed))
    }

    /// Whether a directory has parts at several ranks.
    pub(super) fn has_units(&self, dir: Ino) -> bool {
        self.map.as_ref().is_some_and(|map| units_of(map, dir).next().is_some())
    }

    /// Whose a place is, as far as anybody here knows.
    pub(super) fn owner(&mut self, place: Place) -> Option<RankId> {
        match place {
            Place::Inside(dir, hash) => self.content(dir, hash),
            Place::Home(node) => self.home(node),
            Place::Any => self.clients.iter().find(|client| client.is_linked()).map(Client::rank),
            Place::All => None,
        }
    }

    fn content(&mut self, dir: NodeRef, hash: Option<NameHash>) -> Option<RankId> {
        let map = self.map.as_ref();
        let above = |ino| of_number(map, ino, None);
        let owns = |rank: &RankId| !owns_nothing(map, *rank);
        let known = of_number(map, dir.ino, hash).or_else(|| self.places.rank(dir.ino, above).filter(owns));
        // Of one that is not known: what it was last seen in.
        known.or_else(|| above(dir.parent)).or_else(|| self.places.rank(dir.parent, above).filter(owns))
    }

    fn home(&mut self, node: NodeRef) -> Option<RankId> {
        // Who had it when it was opened or locked, or has answered for it since. Without a name it is nowhere else.
        let holds =
            |client: &&Client| client.holds(node.ino) && !stdx::mutant!("client_asks_where_the_name_was");
        if let Some(client) = self.clients.iter().find(holds) {
            return Some(client.rank());
        }
        let parent = match node.parent {
            _ if node.ino == Ino::ROOT => Ino::SYSTEM,
            Ino::NONE => self.places.parent(node.ino),
            parent => parent,
        };
        match parent {
            // A directory, perhaps, that inherits.
            Ino::NONE => self.content(node, None),
            parent => {
                let hash = Some(node.hash).filter(|hash| *hash != NameHash(0));
                self.content(NodeRef::bare(parent), hash)
            }
        }
    }

    /// Who besides its home has what a sync of that inode is about: the owners of a directory's content, where they are others and the
    /// map shows them. Where slots place it, see `follows_others`.
    pub(super) fn content_elsewhere(&mut self, node: NodeRef) -> BTreeSet<RankId> {
        let whole = of_number(self.map.as_ref(), node.ino, None);
        let units = self.map.iter().flat_map(|map| units_of(map, node.ino));
        let mut ranks: BTreeSet<RankId> = units.map(|entry| entry.rank).chain(whole).collect();
        if let Some(home) = self.home(node) {
            ranks.remove(&home);
        }
        ranks
    }

    /// Ranks that may be asked for what nobody knows the place of: first those that serve. One with which the session has ended because
    /// it goes would only refuse the greeting.
    pub(super) fn askable(&self) -> Vec<RankId> {
        let Some(map) = &self.map else { return self.clients.iter().map(Client::rank).collect() };
        let state = |of: fn(RankState) -> bool| {
            let ranks = map.ranks.iter().filter(move |(_, info)| of(info.state));
            ranks.map(|(rank, _)| *rank)
        };
        state(serves_clients).chain(state(may_serve)).filter(|rank| self.is_rank(*rank)).collect()
    }

    /// Whether a rank that was named may have what is asked for.
    pub(super) fn may_have(&self, place: Place, rank: RankId) -> bool {
        let owns = match place {
            Place::Inside(..) => !owns_nothing(self.map.as_ref(), rank),
            Place::Home(_) | Place::Any | Place::All => true,
        };
        owns && self.is_rank(rank)
    }

    /// Whether there is such a rank, for this client. One that stops and has nothing any more is none, unless the session is there: it
    /// refuses the greeting of whoever has none there, and stops for as long as anybody has a file open at it. All it had is others'.
    pub(super) fn is_rank(&self, rank: RankId) -> bool {
        let goes = |map| parting::has_nothing(map, rank) && !stdx::mutant!("client_greets_who_goes");
        let named = self.map.as_ref().is_some_and(|map| map.ranks.contains_key(&rank) && !goes(map));
        named || self.place_of(rank).is_ok()
    }
}

/// Whether the rank has no directory by the map, whatever was learned of it before: it goes. It may have files without a name.
fn owns_nothing(map: Option<&ClusterMap>, rank: RankId) -> bool {
    map.is_some_and(|map| parting::has_nothing(map, rank)) && !stdx::mutant!("client_asks_who_owns_nothing")
}

const fn serves_clients(state: RankState) -> bool {
    matches!(state, RankState::Active | RankState::Stopping)
}

/// It does not serve now, and may again: asked after those that do.
const fn may_serve(state: RankState) -> bool {
    match state {
        RankState::Failed | RankState::Replay | RankState::Resolve | RankState::Reconnect => true,
        RankState::Active | RankState::Stopping | RankState::Damaged | RankState::Creating => false,
    }
}
