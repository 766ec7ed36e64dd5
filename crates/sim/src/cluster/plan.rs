//! What one seed decides before it begins: how many of whom, how long, which faults, how often.
//!
//! Absent: what happens then (`faults.rs`).

use super::faults::Fault;
use stdx::Prng;
use stdx::time::SECOND;

/// The fixed part of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) daemons: usize,
    pub(super) seats: usize,
    /// Everything is in one process, which has the folder's lock: one coordinator, and its daemons end with it.
    pub(super) sole: bool,
    /// The incarnation that the folder counted before there was a map.
    pub(super) floor: u64,
    /// How often a daemon says that it is there, and how long a rank goes on without hearing that this was heard.
    pub(super) interval: u64,
    pub(super) lease: u64,
    /// Virtual time with faults.
    pub(super) length: u64,
    /// Which faults strike, and one in how much time.
    pub(super) faults: Vec<Fault>,
    pub(super) fault_every: u64,
    /// Of a thousand messages: lost, said twice, late.
    pub(super) lost: u64,
    pub(super) twice: u64,
    pub(super) late: u64,
    /// Of a thousand requests to the registry: fail.
    pub(super) failing: u64,
    /// A coordinator that was deposed begins again some time.
    pub(super) again: bool,
    /// Each beacon goes to every coordinator, not to one.
    pub(super) to_all: bool,
    /// Of eight deaths so many are told to the coordinators.
    pub(super) told: u64,
    /// An operator says something that often.
    pub(super) command_every: u64,
    /// The longest that one state of a rank on its way takes.
    pub(super) work: u64,
    /// One life of so many finds its journal damaged; 0: none.
    pub(super) damaged: u64,
    /// A rank acts that often.
    pub(super) act_every: u64,
}

impl Plan {
    pub(super) fn any(rng: &mut Prng) -> Self {
        let lease = [15 * SECOND, 15 * SECOND, 4 * SECOND, 60 * SECOND][rng.index(4)];
        // Messages are lost in some runs, so that others show what happens without.
        let mut some = |of: &[u64]| of[rng.index(of.len())];
        let (lost, twice, late) = (some(&[0, 10, 100]), some(&[0, 10, 100]), some(&[0, 10, 60]));
        let (failing, told, damaged) = (some(&[0, 20, 150]), some(&[0, 4, 8]), some(&[0, 6, 20]));
        let fault_every = lease * some(&[1, 2, 4]) / 2;
        let command_every = lease * some(&[1, 4, 12]);
        let work = lease * some(&[1, 4, 24]) / 8;
        let sole = rng.chance(1, 6);
        let seats = if sole { 1 } else { 1 + rng.index(3) };
        let floor = rng.below(2) * rng.below(1000);
        let faults = Fault::ALL.iter().copied().filter(|_| rng.chance(3, 4)).collect();
        Self {
            daemons: 1 + rng.index(8),
            seats,
            sole,
            floor,
            interval: lease * 4 / 15,
            lease,
            length: lease * (20 + rng.below(30)),
            faults,
            fault_every,
            lost,
            twice,
            late,
            failing,
            again: true,
            to_all: rng.chance(1, 2),
            told,
            command_every,
            work,
            damaged,
            act_every: lease / 8,
        }
    }

    /// Nothing goes wrong by itself: for scenarios.
    pub(super) fn calm(daemons: usize, seats: usize) -> Self {
        let lease = 15 * SECOND;
        Self {
            daemons,
            seats,
            sole: false,
            floor: 0,
            interval: 4 * SECOND,
            lease,
            length: 0,
            faults: Vec::new(),
            fault_every: lease,
            lost: 0,
            twice: 0,
            late: 0,
            failing: 0,
            again: false,
            to_all: true,
            told: 0,
            command_every: 0,
            work: SECOND,
            damaged: 0,
            act_every: SECOND,
        }
    }
}
