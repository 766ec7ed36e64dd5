//! Units of a spread directory go to the ranks that share what is placed, by ordinary moves. A move may be refused: for a lease after its life
//! began a rank gives nothing away, as it waits for sessions of before; a file may be kept open by an answer that nobody has; a rank that is
//! to get it may not serve. So those that are not on their way are asked to move again, after a pause that grows.
//!
//! Absent: the moves (`moves.rs`); how a directory comes to be spread (`spreads.rs`).

use super::Want;
use crate::rank::Rank;
use proto::cluster::{ClusterMap, Unit};
use proto::{Frag, Ino, RankId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::time::SECOND;
use stdx::{Mono, Now};

/// Pauses before units are asked to move again: the first, and the longest.
const PAUSE_NS: u64 = SECOND;
const PAUSE_MAX_NS: u64 = 64 * SECOND;
/// Directories with units that are to move; what comes beyond is shared when its header is next read.
const SHARES_MAX: usize = 1024;

/// When a directory's units are looked at again.
#[derive(Debug)]
struct Share {
    at: Mono,
    pause_ns: u64,
    /// Those that were asked to move.
    asked: BTreeSet<Unit>,
}

/// Directories with units that are to be other ranks' and are not yet.
#[derive(Debug, Default)]
pub(super) struct Shares {
    of: BTreeMap<Ino, Share>,
}

impl Shares {
    pub(super) fn is_idle(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn due(&self) -> Option<Mono> {
        self.of.values().map(|share| share.at).min()
    }

    /// Whether a unit was asked to move.
    fn has_asked(&self, unit: Unit) -> bool {
        self.of.get(&unit.dir).is_some_and(|share| share.asked.contains(&unit))
    }

    fn look_again(&mut self, dir: Ino, asked: BTreeSet<Unit>, now: Mono) {
        let has_room = self.of.len() < SHARES_MAX;
        match self.of.get_mut(&dir) {
            Some(share) => {
                share.asked = asked;
                share.pause_ns = (2 * share.pause_ns).min(PAUSE_MAX_NS);
                share.at = now.after(share.pause_ns);
            }
            None if has_room => {
                self.of.insert(dir, Share { at: now.after(PAUSE_NS), pause_ns: PAUSE_NS, asked });
            }
            None => {}
        }
    }
}

impl Rank {
    /// Units of a directory that have no entry of their own go to the ranks that share what is placed, each to another.
    pub(super) fn share_units(&mut self, dir: Ino) {
        // Its inode may name them. Of a directory that is used it is cached, or comes soon.
        let is_known = self.view.cache.by_ino(dir).is_some() || self.view.cache.spread(dir).is_none();
        let before = || self.spreads.shares.of.get(&dir).map(|share| share.asked.clone());
        let asked = if is_known { self.ask_units_to_move(dir) } else { before().unwrap_or_default() };
        if (asked.is_empty() && is_known) || stdx::mutant!("mds_units_asked_once") {
            self.spreads.shares.of.remove(&dir);
        } else {
            self.spreads.shares.look_again(dir, asked, self.view.now.mono);
        }
    }

    /// Those whose moves were refused, or came to nothing.
    pub(super) fn share_again(&mut self, now: Now) {
        if !self.may_spread() {
            return;
        }
        let due = |(dir, share): (&Ino, &Share)| (share.at <= now.mono).then_some(*dir);
        for dir in self.spreads.shares.of.iter().filter_map(due).collect::<Vec<_>>() {
            self.share_units(dir);
        }
    }

    /// Those that have to move yet.
    fn ask_units_to_move(&mut self, dir: Ino) -> BTreeSet<Unit> {
        let mut asked = BTreeSet::new();
        let Some(spread) = self.view.cache.spread(dir) else { return asked };
        let Some(map) = self.view.territory.map().cloned() else { return asked };
        // One that was pinned since it was spread by itself comes together where it is.
        if self.is_to_be_one(dir) || (spread.by_itself && self.view.is_pinned(dir)) {
            return asked;
        }
        let me = self.view.config.rank;
        let ranks = self.takers_of_units(dir, &map);
        if ranks.is_empty() || !map.bal_rank_mask.has(me) || !self.view.serves(me) {
            return asked;
        }
        // Where the directory's own mask leaves this rank out, all go.
        let own = ranks.iter().position(|rank| *rank == me).unwrap_or(0);
        for (at, (number, frag)) in spread.all().enumerate() {
            let (to, unit) = (ranks[(own + at) % ranks.len()], Unit { dir, frag });
            // A move that came to nothing when it was announced leaves an entry behind, with this rank.
            let stays = map.entries.get(&unit).is_some_and(|entry| {
                entry.rank != me || (entry.moving.is_none() && !self.spreads.shares.has_asked(unit))
            });
            if to == me || frag == Frag::WHOLE || stays {
                continue;
            }
            asked.insert(unit);
            if !self.moves.has_wanted(unit) {
                self.move_wanted(number, to);
            }
        }
        asked
    }

    /// Those that the file system's mask has, and the directory's own, if there is one: what was set on it, or counted above when it was
    /// made.
    fn takers_of_units(&self, dir: Ino, map: &ClusterMap) -> Vec<RankId> {
        let node = self.view.cache.by_ino(dir);
        let own = node.and_then(|node| self.view.rules(node).mask);
        let own = own.filter(|_| !stdx::mutant!("mds_units_despite_mask"));
        let may = |rank: &RankId| {
            map.bal_rank_mask.has(*rank) && own.is_none_or(|mask| mask.has(*rank)) && self.view.serves(*rank)
        };
        map.ranks.keys().copied().filter(may).collect()
    }

    fn is_to_be_one(&self, dir: Ino) -> bool {
        let current = self.spreads.current.map(|one| (one.dir, one.want));
        let waiting = self.spreads.queue.iter().map(|one| (one.dir, one.want));
        waiting.chain(current).any(|one| one == (dir, Want::One))
    }
}
