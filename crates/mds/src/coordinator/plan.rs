//! The next map, from the last one and what was observed since: a pure function. What it decides is said when the map is durable.
//!
//! Absent: I/O and its failures (`machine`); changes of entries and slots (`changes`, `moves`).

use super::seen::{Death, Piece, Seen};
use super::states::{is_made, reported, without_daemon};
use super::{BeaconState, Command, CommandError, CoordinatorConfig};
use super::{commands, moves};
use crate::output::Level;
use proto::cluster::{ClusterMap, DAEMONS_MAX, DaemonId, DaemonInfo, RankInfo, RankState};
use proto::{Incarnation, RankId};
use std::collections::VecDeque;
use stdx::Mono;
use stdx::time::SECOND;

/// What a plan looks at besides the map.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub config: &'a CoordinatorConfig,
    pub seen: &'a Seen,
    pub registering: &'a VecDeque<(u64, String)>,
    pub commands: &'a VecDeque<(u64, Command)>,
    /// The map is this coordinator's; otherwise the plan makes it so.
    pub begun: bool,
    pub now: Mono,
}

/// The next map, and what is to be said when it is durable.
#[derive(Debug)]
pub(super) struct Plan {
    pub next: ClusterMap,
    pub changed: bool,
    pub registered: Vec<(u64, DaemonId)>,
    /// Of every command that the view had, in order.
    pub answers: Vec<(u64, Result<String, CommandError>)>,
    pub notes: Vec<(Level, String)>,
    pub marks: Marks,
}

/// What is to be remembered of a map that is durable, and is not in it.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Lives that said that nothing of theirs is left.
    pub left: Vec<(RankId, Incarnation)>,
    /// Ranks that had a move given up, and what was to move.
    pub aborted: Vec<(RankId, Piece)>,
}

pub(super) fn plan(base: &ClusterMap, view: View<'_>) -> Plan {
    let mut plan = Plan {
        next: base.clone(),
        changed: false,
        registered: Vec::new(),
        answers: Vec::new(),
        notes: Vec::new(),
        marks: Marks::default(),
    };
    // What is changed says so.
    plan.next.version = base.version + 1;
    if !view.begun {
        plan.next.coordinator += 1;
    }
    if !stdx::mutant!("coord_floor_ignored") {
        plan.next.last_incarnation = plan.next.last_incarnation.max(view.config.floor);
    }
    plan.leave_out_dead(view);
    if !view.begun && (view.config.sole || stdx::mutant!("coord_damaged_tried_by_anybody")) {
        plan.retry_damaged();
    }
    plan.take_reports(view);
    for (id, command) in view.commands {
        let result = commands::carry_out(&mut plan, *command);
        plan.answers.push((*id, result));
    }
    plan.shrink();
    moves::end_lost(&mut plan, base, view.begun);
    plan.let_go(view);
    plan.give_ranks(view);
    moves::begin_due(&mut plan, view);
    // Behind the others: a daemon that nobody told its number carries nothing.
    plan.register(view);
    plan.next.version = base.version;
    plan.changed = plan.next != *base;
    plan.next.version = base.version + 1;
    debug_assert_eq!(plan.next.check(), Ok(()));
    plan
}

impl Plan {
    fn note(&mut self, level: Level, text: String) {
        self.notes.push((level, text));
    }

    /// The process that finds what it found damaged has opened the stores anew: a life of it looks again.
    fn retry_damaged(&mut self) {
        for info in self.next.ranks.values_mut().filter(|info| info.state == RankState::Damaged) {
            *info = RankInfo::failed(info.incarnation);
        }
    }

    fn leave_out_dead(&mut self, view: View<'_>) {
        let deaths: Vec<(DaemonId, Death)> = (self.next.daemons.keys())
            .filter_map(|daemon| Some((*daemon, view.seen.death(*daemon, view.now, view.begun)?)))
            .collect();
        for (daemon, death) in deaths {
            let name = daemon_name(&self.next, daemon);
            let carried = self.next.rank_of(daemon);
            let why = match death {
                Death::Gone => format!("{name} ended"),
                Death::Silent(silence) => {
                    format!("nothing heard of {name} for {} s", silence / SECOND)
                }
                Death::Before => format!("{name} ended with the process that had it"),
            };
            let level = if death == Death::Before { Level::Info } else { Level::Warn };
            match carried {
                Some((rank, info)) => {
                    let state = take_down(&mut self.next, rank).name();
                    self.note(level, format!("rank {}: {state}: {why} ({})", rank.0, life(info)));
                }
                None => self.note(level, format!("no standby any more: {why}")),
            }
            self.next.daemons.remove(&daemon);
        }
    }

    /// What lives say of their ranks.
    fn take_reports(&mut self, view: View<'_>) {
        for daemon in self.next.daemons.keys().copied().collect::<Vec<_>>() {
            let Some((rank, mut info)) = self.next.rank_of(daemon) else { continue };
            let Some(BeaconState::Rank { rank: of, incarnation, state: said }) = view.seen.said(daemon)
            else {
                continue;
            };
            let state = if stdx::mutant!("coord_states_go_back") { said } else { reported(info.state, said) };
            if (of, incarnation) != (rank, info.incarnation) || state == info.state {
                continue;
            }
            info.state = state;
            self.next.ranks.insert(rank, info);
            if is_made(state) {
                self.next.made = self.next.made.with(rank);
            }
            let level = if state == RankState::Damaged { Level::Error } else { Level::Info };
            let name = daemon_name(&self.next, daemon);
            self.note(level, format!("rank {}: {} on {name} ({})", rank.0, state.name(), life(info)));
        }
    }

    /// Marks the highest rank that is one too many, one at a time.
    fn shrink(&mut self) {
        if self.next.ranks.values().any(|info| info.state == RankState::Stopping) {
            return;
        }
        let Some((rank, info)) = self.next.ranks.iter_mut().next_back() else { return };
        if rank.0 >= self.next.max_mds && info.state == RankState::Active {
            info.state = RankState::Stopping;
            let text = format!("rank {}: stopping: max_mds is {}", rank.0, self.next.max_mds);
            self.note(Level::Info, text);
        }
    }

    /// Takes the highest ranks off the map that are not wanted, have nothing, and need no other life for that to stay so. A rank that is
    /// not in the map has no life that could write or answer.
    fn let_go(&mut self, view: View<'_>) {
        while let Some((rank, info)) = self.next.ranks.last_key_value().map(|(rank, info)| (*rank, *info)) {
            let over = view.seen.may_succeed(rank, info.incarnation, view.now)
                || stdx::mutant!("coord_left_unfenced");
            if !self.is_going(view, rank, info) || !over || self.next.is_owner(rank) {
                return;
            }
            self.next.ranks.remove(&rank);
            self.note(Level::Info, format!("rank {}: gone ({})", rank.0, life(info)));
        }
    }

    /// Whether a rank needs no other life: it was never made, or has left.
    fn is_going(&self, view: View<'_>, rank: RankId, info: RankInfo) -> bool {
        let idle = !self.next.made.has(rank) || view.seen.has_left(rank, info.incarnation);
        info.state == RankState::Failed && rank.0 >= self.next.max_mds && idle
    }

    /// Gives standbys the ranks that need a life: first those that had one, whose daemons nobody else is given while their last life may
    /// still write or answer, then those that are wanted and never had.
    fn give_ranks(&mut self, view: View<'_>) {
        if !self.next.joinable && !stdx::mutant!("coord_joinable_ignored") {
            return;
        }
        let standbys = self.standbys(view);
        let failed: Vec<(RankId, Incarnation)> = (self.next.ranks.iter())
            .filter(|(rank, info)| info.state == RankState::Failed && !self.is_going(view, **rank, **info))
            .map(|(rank, info)| (*rank, info.incarnation))
            .collect();
        let spare = standbys.len().saturating_sub(failed.len());
        let free = failed.into_iter().filter(|(rank, last)| view.seen.may_succeed(*rank, *last, view.now));
        let wanted = (0..self.next.max_mds).map(RankId);
        let missing: Vec<RankId> =
            wanted.filter(|rank| !self.next.ranks.contains_key(rank)).take(spare).collect();
        for (rank, daemon) in free.map(|(rank, _)| rank).chain(missing).zip(standbys) {
            let state = if self.next.made.has(rank) { RankState::Replay } else { RankState::Creating };
            let info = RankInfo { state, incarnation: self.new_incarnation(rank), daemon };
            self.next.ranks.insert(rank, info);
            if stdx::mutant!("coord_made_too_early") {
                self.next.made = self.next.made.with(rank);
            }
            let name = daemon_name(&self.next, daemon);
            self.note(Level::Info, format!("rank {}: {} on {name} ({})", rank.0, state.name(), life(info)));
        }
    }

    /// Daemons that said that they stand by: the oldest first, but rather those that spoke lately.
    fn standbys(&self, view: View<'_>) -> Vec<DaemonId> {
        let stands_by = |daemon: &DaemonId| {
            view.seen.said(*daemon) == Some(BeaconState::Standby) && self.next.rank_of(*daemon).is_none()
        };
        let lately = |daemon: DaemonId| view.seen.silence(daemon, view.now) <= view.config.grace_ns / 2;
        let mut standbys: Vec<DaemonId> = self.next.daemons.keys().copied().filter(stands_by).collect();
        standbys.sort_by_key(|daemon| (!lately(*daemon), *daemon));
        standbys
    }

    fn new_incarnation(&mut self, rank: RankId) -> Incarnation {
        let last = self.next.last_incarnation;
        let of_rank = self.next.ranks.get(&rank).map_or(Incarnation(0), |info| info.incarnation);
        let before = if stdx::mutant!("coord_incarnation_again") { of_rank } else { last };
        let new = Incarnation(before.0 + 1);
        self.next.last_incarnation = last.max(new);
        new
    }

    fn register(&mut self, view: View<'_>) {
        for (token, name) in view.registering {
            if self.next.daemons.len() >= DAEMONS_MAX {
                return;
            }
            let last = self.next.last_daemon;
            let highest = self.next.daemons.last_key_value().map_or(DaemonId::NONE, |(daemon, _)| *daemon);
            let before = if stdx::mutant!("coord_daemon_again") { highest } else { last };
            let daemon = DaemonId(before.0 + 1);
            self.next.last_daemon = last.max(daemon);
            self.next.daemons.insert(daemon, DaemonInfo { name: name.clone() });
            self.registered.push((*token, daemon));
            self.note(Level::Info, format!("a standby: {}", daemon_name(&self.next, daemon)));
        }
    }
}

/// Takes a rank's life and its daemon off the map, and says the state it is in then.
pub(super) fn take_down(next: &mut ClusterMap, rank: RankId) -> RankState {
    let Some(info) = next.ranks.get_mut(&rank) else { return RankState::Failed };
    let daemon = info.daemon;
    *info = RankInfo { state: without_daemon(info.state), ..RankInfo::failed(info.incarnation) };
    let state = info.state;
    next.daemons.remove(&daemon);
    state
}

/// A daemon for people.
pub(super) fn daemon_name(map: &ClusterMap, daemon: DaemonId) -> String {
    let name = map.daemons.get(&daemon).map_or("unknown", |info| &info.name);
    format!("{name} (daemon {})", daemon.0)
}

fn life(info: RankInfo) -> String {
    format!("incarnation {}", info.incarnation.0)
}
