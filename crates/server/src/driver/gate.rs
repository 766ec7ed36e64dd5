//! The gate: while a backup copies, requests are held back and the stores keep one state.
//!
//! Lease renewals, ends of connections and everything else pass, but what takes back a request that is held stays behind it.
//!
//! Absent: snapshots, which will make this unnecessary.

use super::{Driver, Life};
use mds::input::{ConnId, Input};
use proto::message::{Behind, ClientMsg};
use proto::storeio::StoreError;
use proto::{Position, Tid};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state of the rank is looked at while it comes to rest.
const LOOK: Duration = Duration::from_millis(2);

/// Requests are not held back longer than this for a rank that does not come to rest.
const REST_MAX: Duration = Duration::from_secs(60);

/// Nor longer than this at a time while a client is to give something back.
const RECALL_MAX: Duration = Duration::from_secs(1);

/// Why the gate does not stay closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FreezeError {
    /// A backup is under way.
    AlreadyFrozen,
    /// The rank did not come to rest.
    NotQuiescent,
    /// The metadata store fails, so no checkpoint will complete.
    Store(StoreError),
    /// The rank serves no more; why.
    Damaged(String),
}

/// What is held back, in order; behind the rank's mutex.
#[derive(Default)]
pub(super) struct Gate {
    /// A backup is under way, from the moment it asks for rest.
    frozen: bool,
    /// Requests are held back. Not always while it is frozen: what others wait for is let through now and then.
    closed: bool,
    /// Everything is at rest: no map sets a move off.
    still: bool,
    maps: VecDeque<Input>,
    held: VecDeque<Input>,
    /// Connections of other ranks, which may be waited for while they come to rest.
    ranks: BTreeSet<ConnId>,
    hangs: bool,
}

impl Gate {
    /// Closes it for a backup. Whether there was none.
    fn freeze(&mut self) -> bool {
        let was_frozen = self.frozen;
        if !was_frozen {
            (self.frozen, self.closed) = (true, true);
        }
        !was_frozen
    }

    /// Whoever brings the next input does not come back.
    pub(super) fn hang_at_next(&mut self) {
        self.hangs = true;
    }

    /// Lets an input pass, or keeps it.
    #[inline]
    pub(super) fn pass(&mut self, input: Input) -> Option<Input> {
        if self.hangs {
            hang();
        }
        if let Input::Message { conn, message: ClientMsg::RankHello { .. } } = &input {
            self.ranks.insert(*conn);
        }
        if self.still && matches!(input, Input::Map(_)) {
            self.maps.push_back(input);
            return None;
        }
        if self.closed && self.is_held_back(&input) {
            self.held.push_back(input);
            return None;
        }
        Some(input)
    }

    /// Requests, and what takes back one that is held: the rank would not know what it is about. What says that everything
    /// performed was sent stays behind that, as in its stream.
    fn is_held_back(&self, input: &Input) -> bool {
        let Input::Message { conn, message } = input else { return false };
        if self.ranks.contains(conn) {
            return false;
        }
        let class = message.class();
        let stays_behind = || match class.behind {
            Behind::Nothing => false,
            Behind::Request(tid) => self.holds(*conn, tid),
            Behind::Performed => self.holds_performed(*conn),
            Behind::PerformedIfDelegated => message.gives_back_delegated() && self.holds_performed(*conn),
        };
        class.held_back || stays_behind()
    }

    fn holds_performed(&self, wanted: ConnId) -> bool {
        let performed = |held: &Input| matches!(held, Input::Message { conn, message } if *conn == wanted && message.is_performed());
        self.held.iter().any(performed)
    }

    fn holds(&self, wanted: ConnId, wanted_tid: Tid) -> bool {
        let request = |held: &Input| {
            matches!(held, Input::Message { conn, message: ClientMsg::Request { tid, .. } }
                if (*conn, *tid) == (wanted, wanted_tid))
        };
        self.held.iter().any(request)
    }

    /// The next of what was held when the gate opened. Whichever thread steps the rank takes all of it before its own inputs:
    /// one of them may take back what is held.
    #[inline]
    pub(super) fn let_go(&mut self) -> Option<Input> {
        if !self.still
            && let Some(map) = self.maps.pop_front()
        {
            return Some(map);
        }
        if self.closed { None } else { self.held.pop_front() }
    }

    /// Whether `let_go` has more.
    #[inline]
    pub(super) fn lets_go(&self) -> bool {
        (!self.still && !self.maps.is_empty()) || (!self.closed && !self.held.is_empty())
    }

    /// Requests held back.
    pub(super) fn len(&self) -> usize {
        self.held.iter().filter(|input| is_request(input)).count()
    }

    /// A connection ended: what it asked is not executed.
    pub(super) fn forget(&mut self, gone: ConnId) {
        self.ranks.remove(&gone);
        self.held.retain(|input| !matches!(input, Input::Message { conn, .. } if *conn == gone));
    }
}

/// As a defect in a step would, with the rank's mutex held.
#[cold]
fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Whether it asks for something to be done.
pub(super) fn is_request(input: &Input) -> bool {
    matches!(input, Input::Message { message, .. } if message.asked().is_some())
}

/// The closed gate; opens when dropped.
pub(crate) struct Frozen<'a> {
    driver: &'a Driver,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Some(mut core) = self.driver.core() {
            (core.gate.frozen, core.gate.closed, core.gate.still) = (false, false, false);
        }
        self.driver.feed([Input::Frozen(false)]);
    }
}

impl Driver {
    /// Whether a backup keeps the stores as they are.
    pub(crate) fn is_frozen(&self) -> bool {
        self.asked().is_some_and(|core| core.gate.frozen)
    }

    /// Requests that wait for the end of a backup.
    pub(crate) fn held_back(&self) -> usize {
        self.asked().map_or(0, |core| core.gate.len())
    }

    /// Closes the gate. Whoever comes to rest behind it does so by `rests`.
    fn close_gate(&self) -> Result<Resting<'_>, FreezeError> {
        if !self.core().ok_or(FreezeError::NotQuiescent)?.gate.freeze() {
            return Err(FreezeError::AlreadyFrozen);
        }
        let frozen = Frozen { driver: self };
        let errors = self.damage.count();
        // Its loads would never end before the cache is full.
        self.feed([Input::Warmup { dir: None }, Input::Frozen(true)]);
        Ok(Resting { frozen, errors, goal: None, closed: Instant::now() })
    }
}

/// A rank that comes to rest.
struct Resting<'a> {
    frozen: Frozen<'a>,
    /// Of its metadata store, before.
    errors: u64,
    /// What a checkpoint was asked for that stores all below it.
    goal: Option<Position>,
    closed: Instant,
}

impl Resting<'_> {
    /// Maps that come wait, or do no more.
    fn keep_still(&self, still: bool) -> Result<(), FreezeError> {
        let driver = self.frozen.driver;
        let was = {
            let mut core = driver.core().ok_or(FreezeError::NotQuiescent)?;
            std::mem::replace(&mut core.gate.still, still)
        };
        if was && !still {
            driver.feed([]);
        }
        Ok(())
    }

    /// Where its journal ends, if it is at rest and everything below is stored; asks for what is missing.
    fn look(&mut self) -> Result<Option<Position>, FreezeError> {
        let driver = self.frozen.driver;
        if driver.is_halted() {
            return Err(FreezeError::NotQuiescent);
        }
        let core = || driver.core().ok_or(FreezeError::NotQuiescent);
        let (at_rest, recalling, appended, trimmed) = {
            let core = core()?;
            let at_rest = core.in_flight == 0 && core.rank().is_at_rest();
            (at_rest, core.rank().is_recalling(), core.appended, core.trimmed)
        };
        if recalling && self.closed.elapsed() > RECALL_MAX {
            // A client's kernel gives pages back only when its READ of them is answered, and that is held back here.
            core()?.gate.closed = false;
            driver.feed([]);
            std::thread::sleep(LOOK);
            core()?.gate.closed = true;
            self.closed = Instant::now();
        }
        // Of a rank that has found damage before no checkpoint begins any more.
        if let Some(error) = driver.damage.last().filter(|_| driver.damage.count() > self.errors) {
            return Err(FreezeError::Store(error));
        }
        if let Life::Damaged(why) = driver.life.get() {
            return Err(FreezeError::Damaged(why));
        }
        let is_asked = self.goal == Some(appended);
        if at_rest && !is_asked {
            self.goal = Some(appended);
            driver.feed([Input::Checkpoint]);
        }
        Ok((at_rest && is_asked && trimmed >= appended).then_some(appended))
    }
}

/// Closes the gates and brings the ranks to rest: everything that was let in is answered by the stores, and a checkpoint that
/// began after the last change has written all of it. One that began before is not enough: it stores some directories as
/// they were, so that of a rename between two of them neither or both would be copied.
///
/// They come to rest together, because one may wait for what another tells: what ranks ask each other passes the gates. Two looks in
/// a row must find all of them so: between two of the first one may have asked another one something.
///
/// # Errors
/// `AlreadyFrozen` by another backup; `Store` when the metadata store turns out to be damaged; `Damaged` when a rank is; `NotQuiescent` when no checkpoint
/// completes (a full disk) or the server is ending.
pub(crate) fn freeze(drivers: &[Arc<Driver>]) -> Result<Vec<Frozen<'_>>, FreezeError> {
    let begin = Instant::now();
    let mut resting = Vec::with_capacity(drivers.len());
    for driver in drivers {
        resting.push(driver.close_gate()?);
    }
    let mut before: Option<Vec<Position>> = None;
    while begin.elapsed() < REST_MAX {
        let mut ends = Vec::with_capacity(resting.len());
        for one in &mut resting {
            ends.extend(one.look()?);
        }
        let all = (ends.len() == resting.len()).then_some(ends);
        for one in &resting {
            one.keep_still(all.is_some())?;
        }
        if all.is_some() && all == before {
            return Ok(resting.into_iter().map(|one| one.frozen).collect());
        }
        if all.is_none() {
            std::thread::sleep(LOOK);
        }
        before = all;
    }
    Err(FreezeError::NotQuiescent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Cred;
    use proto::caps::Bits;
    use proto::request::Request;

    fn says(conn: u64, message: ClientMsg) -> Input {
        Input::Message { conn: ConnId(conn), message }
    }

    /// What broke: the rank did not know what was taken back, and a lock that nobody waits for any more was waited for.
    #[test]
    fn what_takes_back_a_held_request_stays_behind_it() {
        let request =
            ClientMsg::Request { tid: Tid(7), floor: Tid(1), cred: Cred::ROOT, request: Request::StatFs };
        let mut gate = Gate { closed: true, ..Gate::default() };
        assert!(gate.pass(says(1, ClientMsg::Cancel { tid: Tid(7) })).is_some(), "it is under way");
        assert!(gate.pass(says(1, request)).is_none());
        assert!(gate.pass(says(2, ClientMsg::Cancel { tid: Tid(7) })).is_some(), "another client's");
        assert!(gate.pass(says(1, ClientMsg::Cancel { tid: Tid(8) })).is_some());
        assert!(gate.pass(says(1, ClientMsg::Cancel { tid: Tid(7) })).is_none());
        assert_eq!(gate.held.len(), 2);
        assert!(gate.let_go().is_none() && !gate.lets_go(), "it is closed");
        gate.closed = false;
        assert!(matches!(gate.let_go(), Some(Input::Message { message: ClientMsg::Request { .. }, .. })));
        assert!(gate.lets_go());
        assert!(matches!(gate.let_go(), Some(Input::Message { message: ClientMsg::Cancel { .. }, .. })));
        assert!(!gate.lets_go());
    }

    /// Else the rank would delegate to others a directory in which something was made that it has not heard of.
    #[test]
    fn what_gives_a_directory_back_stays_behind_what_was_performed() {
        let mut gate = Gate { closed: true, ..Gate::default() };
        let returned = |bits| {
            let list = vec![proto::caps::Returned { ino: proto::Ino(7), bits, number: 1 }];
            says(1, ClientMsg::Returned { list })
        };
        assert!(gate.pass(returned(Bits::DX)).is_some());
        let told = proto::message::Told::default();
        let performed = ClientMsg::Performed {
            tid: Tid(7),
            floor: Tid(1),
            cred: Cred::ROOT,
            told,
            request: Request::SyncFs,
        };
        assert!(gate.pass(says(1, performed)).is_none());
        assert!(gate.pass(returned(Bits::FC)).is_some());
        for bits in [Bits::DX, Bits::DS, Bits::FX, Bits::FB] {
            assert!(gate.pass(returned(bits)).is_none(), "{bits:?}");
        }
        assert!(gate.pass(says(1, ClientMsg::Goodbye)).is_none());
        assert!(gate.pass(says(2, ClientMsg::Goodbye)).is_some());
    }

    /// A rank that comes to rest may wait for another one, whose gate is closed, too.
    #[test]
    fn what_ranks_ask_each_other_passes() {
        let ask = |conn| {
            let request = Request::Totals { unit: proto::cluster::Unit::ROOT };
            says(conn, ClientMsg::Request { tid: Tid(7), floor: Tid(1), cred: Cred::ROOT, request })
        };
        let hello = ClientMsg::RankHello {
            protocol: 3,
            from: proto::RankId(1),
            incarnation: proto::Incarnation(2),
            to: proto::RankId(0),
            map_version: 1,
            settled: true,
        };
        let mut gate = Gate { closed: true, ..Gate::default() };
        assert!(gate.pass(says(2, hello)).is_some() && gate.pass(ask(2)).is_some());
        assert!(gate.pass(ask(3)).is_none(), "a client's");
        gate.forget(ConnId(2));
        assert!(gate.pass(ask(2)).is_none());
    }

    /// A move that the coordinator announces would write to what is being copied.
    #[test]
    fn no_map_comes_while_all_is_at_rest() {
        let map = || Input::Map(Arc::new(proto::cluster::ClusterMap::first()));
        let mut gate = Gate { closed: true, ..Gate::default() };
        assert!(gate.pass(map()).is_some(), "one that comes to rest may wait for it");
        gate.still = true;
        assert!(gate.pass(map()).is_none());
        assert!(gate.let_go().is_none());
        gate.still = false;
        assert!(matches!(gate.let_go(), Some(Input::Map(_))));
    }

    #[test]
    fn what_a_lost_connection_asked_is_forgotten() {
        let mut gate = Gate { closed: true, ..Gate::default() };
        let request = Request::StatFs;
        let message = ClientMsg::Request { tid: Tid(7), floor: Tid(1), cred: Cred::ROOT, request };
        assert!(gate.pass(says(1, message)).is_none());
        gate.forget(ConnId(1));
        assert!(gate.held.is_empty());
    }

    /// While requests were let through for a moment nobody seemed to make a backup: `warmup start` was not refused, and the backup,
    /// which had ended all warming before, did not come to rest.
    #[test]
    fn it_is_frozen_while_it_lets_requests_through() {
        let mut gate = Gate::default();
        assert!(gate.freeze());
        gate.closed = false;
        assert!(gate.frozen && !gate.freeze(), "no second backup either");
        assert!(!gate.closed, "and the first one is not disturbed");
    }
}
