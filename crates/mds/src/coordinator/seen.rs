//! What the coordinator observed of daemons and of lives: who was heard when and said what, who is gone, which life is fenced, and when
//! the lease of one that the map names no longer is over.
//!
//! Absent: what is made of it (`plan`); everything here is lost with the coordinator, and safe to lose.

use super::plan::Marks;
use super::{BeaconState, CoordinatorConfig, LOADS_MAX};
use proto::cluster::{ClusterMap, DaemonId, RankInfo, Unit};
use proto::{Incarnation, Ino, RankId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Mono;

/// So often the time doubles for which something is left alone whose move was given up: sixty-four times the first at most.
const DOUBLED_MAX: u32 = 6;

#[derive(Debug)]
pub(super) struct Seen {
    /// 1.02 L: a rank counts L from when it sent a beacon, by a clock of its own that is off by less than one part in fifty; so it
    /// has stopped by then.
    patience_ns: u64,
    sole: bool,
    /// Of the daemons in the map: who was heard, or was there when this coordinator began.
    heard: BTreeMap<DaemonId, Heard>,
    /// Daemons in the map that ended.
    gone: BTreeSet<DaemonId>,
    /// The last lives of ranks that nobody carries.
    ended: BTreeMap<RankId, Ended>,
    fenced: BTreeMap<RankId, Incarnation>,
    fencing: BTreeMap<RankId, Incarnation>,
    /// Lives that said that nothing of theirs is left.
    left: BTreeMap<RankId, Incarnation>,
    /// Ranks that gave a move up: until then none of theirs is begun.
    paused: BTreeMap<RankId, Mono>,
    /// What was to move from them: each time it was given up it is left alone for twice as long, and others are moved meanwhile.
    stuck: BTreeMap<Piece, Stuck>,
    pause_ns: u64,
    /// What is asked of what each daemon's rank has.
    loads: BTreeMap<DaemonId, BTreeMap<Ino, u64>>,
}

/// What has a move, as far as it is remembered that it was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Piece {
    Unit(Unit),
    /// A run of slots that begins with that one.
    Slots(u16),
}

#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// Who has it: once it has gone it is as any other.
    rank: RankId,
    times: u32,
    until: Mono,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Mono,
    said: Option<BeaconState>,
}

/// A life that the map names no longer.
#[derive(Clone, Copy, Debug)]
struct Ended {
    incarnation: Incarnation,
    /// Who carried it, if that is known.
    daemon: DaemonId,
    /// Its lease is over then; or earlier, if it is known to be gone.
    until: Mono,
}

/// Why a daemon is to be left out of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// It ended.
    Gone,
    /// Nothing was heard of it for so many nanoseconds.
    Silent(u64),
    /// It was a thread of a process that does not live any more.
    Before,
}

impl Seen {
    pub(super) fn new(config: &CoordinatorConfig) -> Self {
        let margin = if stdx::mutant!("coord_patience_is_lease") { 0 } else { config.grace_ns / 50 };
        Self {
            patience_ns: config.grace_ns.saturating_add(margin),
            sole: config.sole,
            heard: BTreeMap::new(),
            gone: BTreeSet::new(),
            ended: BTreeMap::new(),
            fenced: BTreeMap::new(),
            fencing: BTreeMap::new(),
            left: BTreeMap::new(),
            paused: BTreeMap::new(),
            stuck: BTreeMap::new(),
            pause_ns: config.grace_ns / 15,
            loads: BTreeMap::new(),
        }
    }

    /// A daemon in the map said so.
    pub(super) fn hear(&mut self, daemon: DaemonId, now: Mono, said: BeaconState) {
        self.heard.insert(daemon, Heard { at: now, said: Some(said) });
    }

    /// A daemon ended, and with it what it carries or carried.
    pub(super) fn bury(&mut self, map: &ClusterMap, daemon: DaemonId, now: Mono) {
        if map.daemons.contains_key(&daemon) {
            self.gone.insert(daemon);
        }
        for ended in self.ended.values_mut().filter(|ended| ended.daemon == daemon) {
            ended.until = ended.until.min(now);
        }
        if stdx::mutant!("coord_gone_is_fenced")
            && let Some((rank, info)) = map.rank_of(daemon)
        {
            self.fenced.insert(rank, info.incarnation);
        }
    }

    /// A daemon in the map says what its rank is asked for.
    pub(super) fn load(&mut self, daemon: DaemonId, loads: Vec<(Ino, u64)>) {
        if self.heard.contains_key(&daemon) {
            self.loads.insert(daemon, loads.into_iter().take(LOADS_MAX).collect());
        }
    }

    /// What is asked of what each directory's entry governs, in microseconds of a CPU for each second. It has just moved, perhaps: who had it
    /// says less and less, who has it more and more.
    pub(super) fn loads_of_entries(&self) -> BTreeMap<Ino, u64> {
        let mut sums = BTreeMap::new();
        for (dir, load) in self.loads.values().flatten() {
            let sum: &mut u64 = sums.entry(*dir).or_default();
            *sum = sum.saturating_add(*load);
        }
        sums
    }

    /// The same of what slots place at a daemon's rank.
    pub(super) fn load_of_slots(&self, daemon: DaemonId) -> u64 {
        self.loads.get(&daemon).and_then(|loads| loads.get(&Ino::NONE)).copied().unwrap_or(0)
    }

    pub(super) fn is_gone(&self, daemon: DaemonId) -> bool {
        self.gone.contains(&daemon)
    }

    /// Whether the daemon spoke to this coordinator, or was given time to.
    pub(super) fn knows(&self, daemon: DaemonId) -> bool {
        self.heard.contains_key(&daemon)
    }

    /// What the daemon said last.
    pub(super) fn said(&self, daemon: DaemonId) -> Option<BeaconState> {
        self.heard.get(&daemon)?.said
    }

    /// For how long nothing was heard of the daemon.
    pub(super) fn silence(&self, daemon: DaemonId, now: Mono) -> u64 {
        self.heard.get(&daemon).map_or(u64::MAX, |heard| now.since(heard.at))
    }

    /// Whether a daemon in the map has to go. `begun`: the map is this coordinator's already; before, others have had no time to speak.
    pub(super) fn death(&self, daemon: DaemonId, now: Mono, begun: bool) -> Option<Death> {
        if self.gone.contains(&daemon) {
            return Some(Death::Gone);
        }
        match self.heard.get(&daemon) {
            Some(heard) => {
                let silence = now.since(heard.at);
                (silence >= self.patience_ns).then_some(Death::Silent(silence))
            }
            None if self.sole => Some(Death::Before),
            None => (begun || stdx::mutant!("coord_begins_impatient")).then_some(Death::Before),
        }
    }

    /// Every daemon is given time anew: what was sent to the coordinator while it did not run may still be on its way.
    pub(super) fn forgive(&mut self, now: Mono) {
        for heard in self.heard.values_mut() {
            heard.at = now;
        }
    }

    /// The map `new` is durable, and `old` was before it.
    pub(super) fn follow(&mut self, old: &ClusterMap, new: &ClusterMap, now: Mono) {
        for (rank, info) in &old.ranks {
            let goes_on = |new: &RankInfo| (new.incarnation, new.daemon) == (info.incarnation, info.daemon);
            if info.daemon != DaemonId::NONE && !new.ranks.get(rank).is_some_and(goes_on) {
                let until = self.lease_end(info.daemon, now);
                let ended = Ended { incarnation: info.incarnation, daemon: info.daemon, until };
                self.ended.insert(*rank, ended);
            }
        }
        self.ended.retain(|rank, _| new.ranks.get(rank).is_some_and(|info| info.daemon == DaemonId::NONE));
        for (rank, info) in new.ranks.iter().filter(|(_, info)| info.daemon == DaemonId::NONE) {
            let incarnation = info.incarnation;
            if self.ended.get(rank).is_none_or(|ended| ended.incarnation != incarnation) {
                // Nothing is known of it: it may have been acknowledged until the map became this coordinator's.
                let over =
                    self.sole || incarnation == Incarnation(0) || stdx::mutant!("coord_unknown_lease_over");
                let until = if over { now } else { now.after(self.patience_ns) };
                self.ended.insert(*rank, Ended { incarnation, daemon: DaemonId::NONE, until });
            }
        }
        self.heard.retain(|daemon, _| new.daemons.contains_key(daemon));
        self.loads.retain(|daemon, _| new.daemons.contains_key(daemon));
        self.gone.retain(|daemon| new.daemons.contains_key(daemon));
        for daemon in new.daemons.keys() {
            self.heard.entry(*daemon).or_insert(Heard { at: now, said: None });
        }
        self.fenced.retain(|rank, _| new.ranks.contains_key(rank));
        self.fencing.retain(|rank, _| new.ranks.contains_key(rank));
        self.left.retain(|rank, _| new.ranks.contains_key(rank));
        self.paused.retain(|_, until| *until > now);
        self.stuck.retain(|piece, stuck| match piece {
            Piece::Unit(unit) => new.entries.get(unit).is_some_and(|entry| entry.rank == stuck.rank),
            Piece::Slots(first) => new.slots.get(*first).rank == stuck.rank,
        });
    }

    /// A map is durable of which this is to be remembered.
    pub(super) fn mark(&mut self, marks: Marks, now: Mono) {
        self.left.extend(marks.left);
        if !stdx::mutant!("coord_begins_again_at_once") {
            let until = now.after(self.pause_ns);
            self.paused.extend(marks.aborted.iter().map(|(rank, _)| (*rank, until)));
        }
        for (rank, piece) in marks.aborted {
            let stuck = self.stuck.entry(piece).or_insert(Stuck { rank, times: 0, until: now });
            let pause = self.pause_ns.saturating_mul(1 << stuck.times.min(DOUBLED_MAX));
            (stuck.rank, stuck.times, stuck.until) = (rank, stuck.times.saturating_add(1), now.after(pause));
        }
    }

    pub(super) fn has_left(&self, rank: RankId, incarnation: Incarnation) -> bool {
        self.left.get(&rank) == Some(&incarnation)
    }

    pub(super) fn is_paused(&self, rank: RankId, now: Mono) -> bool {
        self.paused.get(&rank).is_some_and(|until| now < *until)
    }

    /// Whether a move of that was given up not long ago.
    pub(super) fn is_stuck(&self, piece: Piece, now: Mono) -> bool {
        let stuck = self.stuck.get(&piece).is_some_and(|stuck| now < stuck.until);
        stuck && !stdx::mutant!("coord_stuck_goes_first")
    }

    /// By when a daemon's last acknowledgement has run out.
    fn lease_end(&self, daemon: DaemonId, now: Mono) -> Mono {
        if self.gone.contains(&daemon) {
            return now;
        }
        match self.heard.get(&daemon) {
            Some(heard) => heard.at.after(self.patience_ns),
            None if self.sole => now,
            None => now.after(self.patience_ns),
        }
    }

    /// Whether a fence has to be asked for; it then counts as asked for.
    pub(super) fn asks_fence(&mut self, rank: RankId, incarnation: Incarnation) -> bool {
        let done = [&self.fenced, &self.fencing];
        let asks = !done.iter().any(|done| done.get(&rank).is_some_and(|done| *done >= incarnation));
        if asks {
            self.fencing.insert(rank, incarnation);
        }
        asks
    }

    pub(super) fn fence(&mut self, rank: RankId, incarnation: Incarnation) {
        let fenced = self.fenced.entry(rank).or_default();
        *fenced = (*fenced).max(incarnation);
    }

    /// Whether a rank may have another life: the one before can neither write nor answer.
    pub(super) fn may_succeed(&self, rank: RankId, last: Incarnation, now: Mono) -> bool {
        let fenced = self.fenced.get(&rank).is_some_and(|fenced| *fenced >= last);
        let silent =
            self.ended.get(&rank).is_some_and(|ended| ended.incarnation == last && ended.until <= now);
        (fenced || stdx::mutant!("coord_no_fence")) && (silent || stdx::mutant!("coord_lease_ignored"))
    }

    /// When time alone changes what is to be done.
    pub(super) fn deadline(&self, now: Mono) -> Option<Mono> {
        let silent = self.heard.values().map(|heard| heard.at.after(self.patience_ns));
        let ended = self.ended.values().map(|ended| ended.until);
        let stuck = self.stuck.values().map(|stuck| stuck.until);
        let paused = self.paused.values().copied().chain(stuck);
        silent.chain(ended.chain(paused).filter(|until| *until > now)).min()
    }
}
