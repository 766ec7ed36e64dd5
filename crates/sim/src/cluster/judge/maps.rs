//! What is written and published: each map follows from the one before by something that its coordinator was told.
//!
//! Absent: what is true of a map alone (`proto::cluster`); the order of states (`states.rs`); who owns what (`owners.rs`).

use super::super::Cluster;
use super::super::seats::{Heard, SKEW_MAX};
use super::Judge;
use super::owners::owners;
use super::states::{Way, is_at, way};
use crate::model::judge::Verdict;
use mds::coordinator::{Ask, Command, Life};
use proto::cluster::{ClusterMap, DaemonId, RankInfo, RankState};
use proto::ids::{Incarnation, RankId};
use std::sync::Arc;
use stdx::Mono;

pub(super) fn must(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// What the writer of a map knew when it wrote.
pub(super) struct Why<'a> {
    heard: &'a Heard,
    now: Mono,
    /// It stood still until then, and cannot know who spoke meanwhile.
    awake: Mono,
    /// Nothing was heard for so long by the writer's clock: then it may fail a life.
    patience: u64,
    sole: bool,
    /// Incarnations up to this one are somebody else's.
    floor: Incarnation,
    /// It begins with this map.
    begins: bool,
}

impl Why<'_> {
    pub(super) fn commanded(&self, wanted: impl Fn(&Command) -> bool) -> bool {
        self.heard.commands.iter().any(|(.., command)| wanted(command))
    }

    fn fails(&self, rank: RankId) -> bool {
        self.commanded(|command| match command {
            Command::FailRank(of) => *of == rank,
            Command::FailFs => true,
            Command::Get
            | Command::SetMaxMds(_)
            | Command::SetJoinable(_)
            | Command::SetBalRankMask(_)
            | Command::SetRankWeight { .. }
            | Command::SetHashPlacement(_)
            | Command::Move { .. }
            | Command::CancelMove(_)
            | Command::Ask(..) => false,
        })
    }

    /// Whether the life said that it has nothing left.
    fn left(&self, rank: RankId, incarnation: Incarnation) -> bool {
        self.commanded(|command| *command == Command::Ask(Life { rank, incarnation }, Ask::Leave))
    }

    /// Whether a damaged rank may be tried again: somebody asked, or a process has opened its stores anew.
    fn releases(&self, rank: RankId) -> bool {
        self.fails(rank) || (self.sole && self.begins)
    }

    /// Whether the daemon was heard of too recently for anybody to think that it is dead.
    fn is_alive(&self, daemon: DaemonId) -> bool {
        let last = self.heard.daemons.get(&daemon).copied();
        // A thread of a process that ended before this one began.
        if self.heard.gone.contains(&daemon) || (self.sole && last.is_none()) {
            return false;
        }
        self.now.since(last.unwrap_or(self.heard.started).max(self.awake)) < self.patience
    }

    /// Whether the life said that it is in that state, or further.
    fn reported(&self, incarnation: Incarnation, state: RankState) -> bool {
        let of = self.heard.reports.iter().filter(|(life, _)| *life == incarnation);
        of.into_iter().any(|(_, said)| is_at(*said, state))
    }
}

impl Cluster {
    /// A coordinator wants to write this map.
    pub(in super::super) fn judge_swap(
        &self,
        seat: usize,
        expected: u64,
        bytes: &[u8],
    ) -> Verdict<ClusterMap> {
        let wrong = |what: String| format!("coordinator {seat} writes a map that {what}");
        let map = ClusterMap::decode(bytes).map_err(|error| wrong(format!("nobody can read: {error}")))?;
        let judged = || -> Verdict {
            must(map.version == expected + 1, || format!("says {} over {expected}", map.version))?;
            must(map.encode() == bytes, || "is encoded otherwise".to_owned())?;
            // What it was made from may have been replaced since: then it never comes to be.
            let first = ClusterMap { version: 0, ..ClusterMap::first() };
            let old = match self.registry.history.get(&expected) {
                Some(old) => old.as_ref(),
                None if expected == 0 => &first,
                None => return Err(format!("follows version {expected}, which never was")),
            };
            self.judge.grows(old, &map)?;
            let at = &self.seats[seat];
            let why = Why {
                heard: &at.record,
                now: at.shows(self.now),
                awake: at.shows(at.awake),
                patience: self.plan.lease + self.plan.lease / 50,
                sole: self.plan.sole,
                floor: Incarnation(self.plan.floor),
                begins: map.coordinator > old.coordinator,
            };
            reasons(old, &map, &why)?;
            owners(old, &map, &why)?;
            self.gone(old, &map, &why)?;
            starts(old, &map, why.floor)
        };
        judged().map_err(wrong)?;
        Ok(map)
    }

    /// Ranks leave the map from above, when they are not wanted, have nothing, and no life of theirs can write or answer.
    fn gone(&self, old: &ClusterMap, map: &ClusterMap, why: &Why<'_>) -> Verdict {
        for (rank, info) in old.ranks.iter().filter(|(rank, _)| !map.ranks.contains_key(rank)) {
            let (life, state) = (info.incarnation, info.state);
            let no = |what: &str| format!("has no rank {}, which was {} and {what}", rank.0, state.name());
            must(rank.0 >= map.max_mds, || no("is wanted"))?;
            must(map.ranks.keys().all(|other| other < rank), || no("is not the highest"))?;
            let over = state == RankState::Failed || (state == RankState::Damaged && why.releases(*rank));
            must(over, || no("did not fail"))?;
            must(!old.made.has(*rank) || why.left(*rank, life), || no("never left"))?;
            must(!map.is_owner(*rank), || no("has something"))?;
            must(self.store.is_fenced(*rank, life), || no("is not fenced"))?;
            let acts =
                self.places.iter().any(|place| place.may_act(self.now).is_some_and(|(of, _)| of == *rank));
            must(!acts, || no("may act"))?;
        }
        Ok(())
    }

    /// It is in the registry.
    pub(in super::super) fn stored(&mut self, seat: usize, life: u64, version: u64, bytes: &[u8]) -> Verdict {
        let map = ClusterMap::decode(bytes).map_err(|error| format!("the registry holds {error}"))?;
        let old = self.registry.map().cloned();
        self.judge.terms(old.as_deref(), &map, (seat, life))?;
        let map = Arc::new(map);
        self.judge.learn(old.as_deref(), &map);
        self.count_changes(old.as_deref(), &map);
        self.trace.event(self.now, "stored", version, || super::super::text_of(&map));
        self.registry.history.insert(version, map);
        Ok(())
    }

    pub(in super::super) fn judge_published(&mut self, seat: usize, map: &ClusterMap) -> Verdict {
        let durable = self.registry.history.get(&map.version);
        must(durable.is_some_and(|durable| **durable == *map), || {
            format!("coordinator {seat} publishes version {}, which is not durable", map.version)
        })?;
        let before = self.seats[seat].published.as_ref().map_or(0, |map| map.version);
        must(map.version > before, || {
            format!("coordinator {seat} publishes version {} after {before}", map.version)
        })?;
        self.coverage.count("maps published", 1);
        Ok(())
    }

    fn count_changes(&mut self, old: Option<&ClusterMap>, map: &ClusterMap) {
        let gone =
            old.into_iter().flat_map(|old| old.ranks.keys()).filter(|rank| !map.ranks.contains_key(rank));
        for _ in gone {
            self.coverage.count("ranks gone", 1);
        }
        for (rank, info) in &map.ranks {
            let before = old.and_then(|old| old.ranks.get(rank)).copied();
            if before.map(|before| before.state) == Some(info.state) {
                continue;
            }
            self.coverage.count(named(info.state), 1);
            if before.is_some_and(|before| before.incarnation.0 > 0) && info.state == RankState::Replay {
                self.coverage.count("takeovers", 1);
            }
        }
    }
}

/// What a rank's state is called in the coverage table.
const fn named(state: RankState) -> &'static str {
    match state {
        RankState::Failed => "ranks failed",
        RankState::Replay => "ranks in replay",
        RankState::Resolve => "ranks in resolve",
        RankState::Reconnect => "ranks in reconnect",
        RankState::Active => "ranks active",
        RankState::Stopping => "ranks stopping",
        RankState::Damaged => "ranks damaged",
        RankState::Creating => "ranks in creating",
    }
}

impl Judge {
    /// Numbers are never given twice, and what this version does not change stays.
    fn grows(&self, old: &ClusterMap, map: &ClusterMap) -> Verdict {
        must(map.last_incarnation >= old.last_incarnation, || "forgets incarnations".to_owned())?;
        must(map.last_daemon >= old.last_daemon, || "forgets daemons".to_owned())?;
        must(map.coordinator >= old.coordinator, || "forgets coordinators".to_owned())?;
        must(old.made.0.iter().zip(map.made.0).all(|(old, new)| old & !new == 0), || {
            "unmakes a rank".to_owned()
        })?;
        for daemon in map.daemons.keys().filter(|id| !old.daemons.contains_key(id)) {
            must(*daemon > old.last_daemon, || format!("names daemon {} again", daemon.0))?;
        }
        for (rank, info) in &map.ranks {
            let before = old.ranks.get(rank);
            if before.map(|before| before.incarnation) == Some(info.incarnation) {
                continue;
            }
            must(info.incarnation > old.last_incarnation || info.incarnation == Incarnation(0), || {
                format!("gives rank {} incarnation {} again", rank.0, info.incarnation.0)
            })?;
        }
        Ok(())
    }

    /// Whoever writes under a coordinator's number is that coordinator.
    fn terms(&mut self, old: Option<&ClusterMap>, map: &ClusterMap, writer: (usize, u64)) -> Verdict {
        if old.is_none_or(|old| old.coordinator < map.coordinator) {
            self.terms.insert(map.coordinator, writer);
            return Ok(());
        }
        must(self.terms.get(&map.coordinator).is_none_or(|of| *of == writer), || {
            format!("coordinator {} writes as number {}, which is another", writer.0, map.coordinator)
        })
    }
}

/// Each change of a rank or a setting has a reason.
fn reasons(old: &ClusterMap, map: &ClusterMap, why: &Why<'_>) -> Verdict {
    let set = |wanted: Command| why.commanded(|command| *command == wanted);
    must(map.max_mds == old.max_mds || set(Command::SetMaxMds(map.max_mds)), || {
        format!("wants {} ranks, which nobody asked for", map.max_mds)
    })?;
    let off = set(Command::SetJoinable(false)) || set(Command::FailFs);
    let asked = if map.joinable { set(Command::SetJoinable(true)) } else { off };
    must(map.joinable == old.joinable || asked, || {
        format!("is joinable: {}, which nobody asked for", map.joinable)
    })?;
    for (rank, info) in &map.ranks {
        let before = old.ranks.get(rank).copied().unwrap_or(RankInfo::failed(Incarnation(0)));
        of_rank(*rank, map.max_mds, before, *info, why)
            .map_err(|what| format!("has rank {} {what}", rank.0))?;
    }
    for daemon in old.daemons.keys().filter(|id| !map.daemons.contains_key(id)) {
        let carried = old.rank_of(*daemon);
        must(!why.is_alive(*daemon) || carried.is_some(), || {
            format!("forgets daemon {}, which lives", daemon.0)
        })?;
    }
    Ok(())
}

fn of_rank(rank: RankId, wanted: u16, before: RankInfo, info: RankInfo, why: &Why<'_>) -> Verdict {
    let (from, to) = (before.state, info.state);
    let way = way(from, to).ok_or_else(|| format!("{} after {}", to.name(), from.name()))?;
    let (same_life, same_daemon) = (before.incarnation == info.incarnation, before.daemon == info.daemon);
    match way {
        Way::On => {
            must(same_life && same_daemon, || "carried by another, or in another life".to_owned())?;
            let ordered = to == RankState::Stopping && rank.0 >= wanted;
            must(from == to || ordered || why.reported(info.incarnation, to), || {
                format!("{}, which life {} never said", to.name(), info.incarnation.0)
            })
        }
        Way::Begins => must(!same_life, || "in replay in a life that is over".to_owned()),
        Way::Stays => {
            must(same_life, || "in another life that never began".to_owned())?;
            must(same_daemon || info.daemon == DaemonId::NONE, || "carried by another".to_owned())
        }
        Way::Damaged => {
            must(same_life, || "damaged in another life".to_owned())?;
            must(why.reported(info.incarnation, to), || "damaged, which no life said".to_owned())
        }
        Way::Released => {
            must(why.releases(rank) && same_life, || "failed after damage, which nobody asked for".to_owned())
        }
        Way::Failed => {
            must(same_life, || "failed in another life".to_owned())?;
            let alive = why.is_alive(before.daemon);
            let left = before.state == RankState::Stopping && why.left(rank, before.incarnation);
            must(why.fails(rank) || left || !alive, || {
                format!("failed, and life {} lives", before.incarnation.0)
            })
        }
    }
}

/// Lives begin where somebody wants them to.
fn starts(old: &ClusterMap, map: &ClusterMap, floor: Incarnation) -> Verdict {
    for (rank, info) in &map.ranks {
        let before = old.ranks.get(rank).map_or(Incarnation(0), |before| before.incarnation);
        if before == info.incarnation || info.state == RankState::Failed {
            continue;
        }
        must(info.incarnation > floor, || format!("begins life {} of somebody else", info.incarnation.0))?;
        must(map.joinable, || format!("begins rank {}, and is not joinable", rank.0))?;
        // One that was in goes on until it has been stopped in good order.
        must(old.ranks.contains_key(rank) || rank.0 < map.max_mds, || {
            format!("begins rank {}, and {} are wanted", rank.0, map.max_mds)
        })?;
        must(old.daemons.contains_key(&info.daemon), || {
            format!("gives rank {} to daemon {}, which is not known yet", rank.0, info.daemon.0)
        })?;
        let made = old.made.has(*rank);
        must(made == (info.state == RankState::Replay), || {
            format!("begins rank {} in {}, made: {made}", rank.0, info.state.name())
        })?;
    }
    let passed = |rank: &RankId| map.ranks.get(rank).is_some_and(|info| info.state != RankState::Creating);
    let fresh =
        (0..proto::cluster::RANKS_MAX).map(RankId).filter(|rank| map.made.has(*rank) && !old.made.has(*rank));
    for rank in fresh {
        must(passed(&rank), || format!("calls rank {} made, which is not", rank.0))?;
    }
    Ok(())
}

/// The clocks of a daemon and a coordinator differ by that much in a lease at most.
const _: () = assert!(SKEW_MAX * 2 < 20_000);
