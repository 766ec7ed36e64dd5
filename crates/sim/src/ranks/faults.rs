//! Faults: dice, and what they do.
//!
//! Absent: how everything comes to rest after them (`heal.rs`).

use super::event::Event;
use super::judge::struck::Strike;
use super::links::End;
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use mds::coordinator::Command;
use mds::input::{ConnId, Input};
use proto::ids::{Ino, RankId};
use stdx::Prng;
use stdx::time::{MS, SECOND};

/// After so many faults, and again after so many more, the time between them doubles; so often at most.
const FAULTS_FAST: u64 = 64;
const SLOWER_MAX: u64 = 8;
/// A fault in ambush strikes behind one of so many events.
const AMBUSH_ONE_IN: u64 = 6;
/// A life dies within so many steps at the store.
const STORE_STEPS: u64 = 24;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A rank's process ends; what its journal's disk has not synced is lost, or not.
    Power,
    Process,
    /// The power fails in one of the next operations of a journal's disk.
    JournalStep,
    /// A rank dies at one of its next steps at the store, when it has given a batch to it, or is about to hear that it is there.
    StoreStep,
    /// A rank makes no progress for a while, shorter than its lease or longer.
    Hang,
    /// Connections of clients to ranks break; of ranks to ranks.
    CutClient,
    CutLink,
    /// The coordinator stands still; another one begins in its place.
    SeatPause,
    SeatRestart,
    /// A client dies, half of the time with a rank.
    Kill,
    /// An operator ends a session, or a rank's life.
    Evict,
    FailRank,
    /// Caches are dropped, filled, checkpoints made.
    DropCache,
    Warmup,
    Checkpoint,
    /// One more rank.
    Grow,
    /// Fewer ranks, or more again.
    Shrink,
    /// An operator changes the placement of the file system, the balancer's ranks, or what ranks are to have (`placing.rs`).
    Placement,
    Mask,
    Weight,
    /// He moves a directory, or slots, or gives a move up.
    MoveDir,
    MoveSlots,
    CancelMove,
}

pub(super) const ALL: [Fault; 14] = [
    Fault::Power,
    Fault::Process,
    Fault::JournalStep,
    Fault::Hang,
    Fault::CutClient,
    Fault::CutLink,
    Fault::SeatPause,
    Fault::SeatRestart,
    Fault::Evict,
    Fault::FailRank,
    Fault::DropCache,
    Fault::Warmup,
    Fault::Checkpoint,
    Fault::Grow,
];

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Power => "fault: power",
            Self::Process => "fault: process",
            Self::JournalStep => "fault: power in a journal operation",
            Self::StoreStep => "fault: power in a step of the store",
            Self::Kill => "fault: client killed",
            Self::Hang => "fault: hang",
            Self::CutClient => "fault: connection of a client",
            Self::CutLink => "fault: connection between ranks",
            Self::SeatPause => "fault: coordinator pauses",
            Self::SeatRestart => "fault: coordinator begins anew",
            Self::Evict => "fault: session evicted",
            Self::FailRank => "fault: rank failed by an operator",
            Self::DropCache => "fault: cache dropped",
            Self::Warmup => "warming asked for",
            Self::Checkpoint => "checkpoints asked for",
            Self::Grow => "ranks added",
            Self::Shrink => "fault: another number of ranks wanted",
            Self::Placement => "placement of the file system changed",
            Self::Mask => "bal_rank_mask changed",
            Self::Weight => "rank_weight changed",
            Self::MoveDir => "directories moved by an operator",
            Self::MoveSlots => "slots moved by an operator",
            Self::CancelMove => "moves given up by an operator",
        }
    }

    /// What it is in the table of what was under way; a life that ends is counted where it ends, a seal and a map where they come.
    const fn strike(self, rank: RankId) -> Option<Strike> {
        match self {
            Self::Hang => Some(Strike::Hangs(rank)),
            Self::CutLink => Some(Strike::Other("link cut")),
            Self::CutClient => Some(Strike::Other("client cut")),
            Self::Kill => Some(Strike::Other("client dies")),
            Self::Evict => Some(Strike::Other("evicted")),
            Self::SeatPause | Self::SeatRestart => Some(Strike::Other("coordinator")),
            Self::DropCache => Some(Strike::Other("cache")),
            Self::Power
            | Self::Process
            | Self::JournalStep
            | Self::StoreStep
            | Self::FailRank
            | Self::Warmup
            | Self::Checkpoint
            | Self::Grow
            | Self::Shrink
            | Self::Placement
            | Self::Mask
            | Self::Weight
            | Self::MoveDir
            | Self::MoveSlots
            | Self::CancelMove => None,
        }
    }

    /// Some of them, for one run.
    pub(super) fn some(rng: &mut Prng) -> Vec<Self> {
        if rng.chance(1, 8) {
            return Vec::new();
        }
        ALL.into_iter().filter(|_| rng.chance(1, 2)).collect()
    }
}

impl Ranks {
    pub(super) fn strikes(&mut self) -> Verdict {
        if self.phase > Phase::Faults {
            return Ok(());
        }
        // Where faults come faster than ranks begin to serve nobody would ever be done: the more there were the slower they come.
        let slower = (self.struck / FAULTS_FAST).min(SLOWER_MAX);
        self.after(self.plan.fault_every << slower, Event::Strikes);
        if self.phase != Phase::Faults || self.plan.kinds.is_empty() {
            return Ok(());
        }
        let fault = self.plan.kinds[self.rng.index(self.plan.kinds.len())];
        // One that waited in vain strikes whatever there is.
        let waits = self.rng.chance(1, 2);
        let now = if waits { self.ambush.replace(fault) } else { Some(fault) };
        let (Some(fault), Some(life)) = (now, self.any_target()) else { return Ok(()) };
        self.strikes_at(fault, life)
    }

    /// A fault that waits for a transaction of several ranks strikes a rank that has a part in it, at any of its steps.
    pub(super) fn ambushes(&mut self) -> Verdict {
        let Some(fault) = self.ambush.filter(|_| self.phase == Phase::Faults) else { return Ok(()) };
        let parties = self.judge.parties();
        if parties.is_empty() || !self.rng.chance(1, AMBUSH_ONE_IN) {
            return Ok(());
        }
        let lives: Vec<u64> = self
            .lives
            .values()
            .filter(|life| parties.contains(&life.rank))
            .map(|life| life.incarnation.0)
            .collect();
        let Some(life) = lives.get(self.rng.index(lives.len())).copied() else { return Ok(()) };
        self.ambush = None;
        self.coverage.count("faults in ambush");
        self.strikes_at(fault, life)
    }

    fn strikes_at(&mut self, fault: Fault, life: u64) -> Verdict {
        self.struck += 1;
        if self.strike(fault, life)? {
            self.coverage.count(fault.name());
            let map = self.seat.map.as_ref();
            if map.is_some_and(|map| map.entries.values().any(|entry| entry.moving.is_some())) {
                self.coverage.count("faults while something moves");
            }
            let map = self.seat.map.as_ref();
            if map.is_some_and(|map| map.slots.runs().any(|(_, slot)| slot.moving.is_some())) {
                self.coverage.count("faults while slots move");
            }
        }
        Ok(())
    }

    /// Whether there was something to strike.
    fn strike(&mut self, fault: Fault, life: u64) -> Verdict<bool> {
        self.trace.event(self.now, "fault", life, || format!("{fault:?} {life}"));
        let rank = self.lives.get(&life).map_or(RankId(0), |life| life.rank);
        fault.strike(rank).into_iter().for_each(|strike| self.judge.struck(strike));
        match fault {
            Fault::Power => self.life_ends(life, true)?,
            Fault::Process => self.life_ends(life, false)?,
            Fault::JournalStep => {
                let operations = self.rng.below(12);
                let disk = self.lives.get(&life).and_then(|life| self.disks.get(&life.rank));
                disk.into_iter().for_each(|disk| disk.die_after(operations));
            }
            Fault::StoreStep => {
                let steps = self.rng.below(STORE_STEPS);
                if let Some(life) = self.lives.get_mut(&life) {
                    life.store_dies = Some(steps);
                }
            }
            Fault::Kill => return self.kills(life),
            Fault::Hang => self.hangs(life),
            Fault::CutClient => return Ok(self.cut_some(|end| matches!(end, End::Client { .. }))),
            Fault::CutLink => return Ok(self.cut_some(|end| matches!(end, End::Rank { .. }))),
            Fault::SeatPause => {
                let longest = [SECOND / 4, self.plan.grace_ns * 2][self.rng.index(2)];
                let until = self.now + 1 + self.rng.below(longest);
                if self.seat.paused <= self.now {
                    self.seat.paused = until;
                }
            }
            Fault::SeatRestart => {
                let longest = [50 * MS, self.plan.grace_ns][self.rng.index(2)];
                self.seat_ends();
                self.after(longest, Event::SeatStarts);
            }
            Fault::Evict => {
                let sessions = self
                    .conns
                    .values()
                    .filter(|conn| conn.life == life && matches!(conn.end, End::Client { .. }));
                let sessions: Vec<_> = sessions.filter_map(|conn| conn.session).collect();
                let Some(session) = sessions.get(self.rng.index(sessions.len())).copied() else {
                    return Ok(false);
                };
                self.evicted.insert(session);
                self.step_rank(life, Input::Evict { session })?;
            }
            Fault::FailRank => {
                self.command(Command::FailRank(rank))?;
            }
            Fault::DropCache => self.step_rank(life, Input::DropCache)?,
            Fault::Warmup => {
                let map = self.seat.map.as_ref();
                let placed: Vec<_> = map.into_iter().flat_map(|map| map.entries.keys()).collect();
                let dir = placed.get(self.rng.index(placed.len())).map_or(Ino::ROOT, |unit| unit.dir);
                self.step_rank(life, Input::Warmup { dir: Some(dir) })?;
            }
            Fault::Checkpoint => self.step_rank(life, Input::Checkpoint)?,
            Fault::Shrink => return self.resizes(),
            Fault::Grow => return self.grows(),
            Fault::Placement | Fault::Mask | Fault::Weight => self.operator_places(fault)?,
            Fault::MoveDir => return self.operator_moves_a_directory(),
            Fault::MoveSlots => return self.operator_moves_slots(),
            Fault::CancelMove => return self.operator_gives_up(),
        }
        Ok(true)
    }

    fn hangs(&mut self, life: u64) {
        let longest = [self.plan.grace_ns / 2, self.plan.grace_ns * 2][self.rng.index(2)];
        let until = self.now + 1 + self.rng.below(longest);
        // Not while it hangs: a shorter one would let what comes overtake what is held up, longer ones never end.
        let now = self.now;
        if let Some(life) = self.lives.get_mut(&life).filter(|life| life.hung_until <= now) {
            life.hung_until = until;
        }
    }

    fn grows(&mut self) -> Verdict<bool> {
        if self.plan.ranks >= self.plan.most {
            return Ok(false);
        }
        self.plan.ranks += 1;
        let ranks = self.plan.ranks;
        self.command(Command::SetMaxMds(ranks))?;
        Ok(true)
    }

    pub(super) fn any_life(&mut self) -> Option<u64> {
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        lives.get(self.rng.index(lives.len())).copied()
    }

    /// Cuts one connection, or all of that kind.
    fn cut_some(&mut self, is: impl Fn(End) -> bool) -> bool {
        let conns: Vec<ConnId> =
            self.conns.iter().filter(|(_, conn)| is(conn.end)).map(|(conn, _)| *conn).collect();
        let Some(one) = conns.get(self.rng.index(conns.len())).copied() else { return false };
        let all = self.rng.chance(1, 4);
        conns.into_iter().filter(|conn| all || *conn == one).for_each(|conn| self.cut(conn));
        true
    }

    /// Gives an event back if whose it is can do something now; otherwise it happens when he can, behind what came to him before.
    pub(super) fn unless_hung(&mut self, event: Event) -> Option<Event> {
        let until = match (&event, event.life()) {
            (
                Event::Commit { .. }
                | Event::Load { .. }
                | Event::Store { .. }
                | Event::StoreComplete { .. }
                | Event::Data { .. }
                | Event::Background { .. },
                _,
            ) => 0,
            (_, Some(life)) => self.lives.get(&life).map_or(0, |life| life.hung_until),
            _ if event.is_seats() => self.seat.paused,
            _ => 0,
        };
        if until <= self.now {
            return Some(event);
        }
        self.at(until, event);
        None
    }
}
