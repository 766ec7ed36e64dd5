//! Connections of a rank to others: one to each, made when there is something to say and the map says that the other one serves. A
//! thread of the life makes them; what comes is brought by the thread that reads it.
//!
//! Whoever had the turn in which something is said sends it (`flush`): a transaction of two ranks would else wake one thread more for each
//! message. But nobody who steps the rank may wait for room at another one, whose threads may wait for this one; so what a peer that
//! is behind has not read yet is the thread's to send.
//!
//! What is said on a connection is meant for that one: between its loss and when the rank hears of it nothing is kept. So messages are
//! put into a lane under the rank's mutex, and the lane begins anew in the same section in which the rank hears `RankGone`.
//!
//! Absent: what ranks say (crate `mds`), where others are (`Neighbours`).

use super::Driver;
use mds::input::Input;
use mds::output::MapWish;
use proto::RankId;
use proto::cluster::ClusterMap;
use proto::message::{ClientMsg, ServerMsg};
use runtime::port::{Port, Sink};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A connection that was lost, or not made, is tried again after that.
const PAUSE: Duration = Duration::from_millis(100);

/// What leads out of a life: to other ranks, and to the coordinator.
pub(crate) trait Neighbours: Send + Sync {
    /// A connection to a rank, which takes whoever comes so for a rank.
    ///
    /// # Errors
    /// It does not serve.
    fn connect(&self, rank: RankId, sink: Arc<dyn Sink>) -> io::Result<Arc<dyn Port>>;

    /// Tells the coordinator what this life's rank wishes. Never waits.
    fn wish(&self, wish: MapWish);
}

/// What there is of one other rank.
#[derive(Default)]
struct Lane {
    /// Counts connections.
    generation: u64,
    port: Option<Arc<dyn Port>>,
    waiting: Vec<ClientMsg>,
    /// Somebody sends, and comes back for what was added meanwhile: so what is said stays in order.
    sending: bool,
    /// The other one has much to read: the thread waits until there is room.
    behind: bool,
    /// The connection is gone, and the rank has not heard it.
    lost: bool,
    not_before: Option<Instant>,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<RankId, Lane>,
    /// The others that serve, by the map.
    serving: BTreeSet<RankId>,
    stop: bool,
}

/// All lanes.
#[derive(Default)]
pub(crate) struct Links {
    state: Mutex<State>,
    wake: Condvar,
}

/// What the thread does next.
enum Job {
    Send(RankId, Arc<dyn Port>, Vec<ClientMsg>),
    Connect(RankId, u64),
}

impl State {
    /// The next thing to do, or when there may be one.
    fn next(&mut self, now: Instant) -> Result<Job, Option<Instant>> {
        let mut due: Option<Instant> = None;
        for (rank, lane) in self.lanes.iter_mut().filter(|(_, lane)| !lane.waiting.is_empty()) {
            if lane.sending {
                continue;
            }
            if let Some(port) = &lane.port {
                lane.sending = true;
                return Ok(Job::Send(*rank, port.clone(), std::mem::take(&mut lane.waiting)));
            }
            // What the map says comes with a wake-up.
            if !self.serving.contains(rank) {
                continue;
            }
            match lane.not_before.filter(|at| *at > now) {
                Some(at) => due = Some(due.map_or(at, |due| due.min(at))),
                None => return Ok(Job::Connect(*rank, lane.generation)),
            }
        }
        Err(due)
    }

    /// What may be sent without waiting.
    fn offer(&mut self) -> Option<(RankId, Arc<dyn Port>, Vec<ClientMsg>)> {
        let (rank, lane) = self.lanes.iter_mut().find(|(_, lane)| {
            !lane.waiting.is_empty() && !lane.sending && !lane.behind && lane.port.is_some()
        })?;
        lane.sending = true;
        Some((*rank, lane.port.clone()?, std::mem::take(&mut lane.waiting)))
    }

    fn sent(&mut self, rank: RankId, behind: bool) {
        if let Some(lane) = self.lanes.get_mut(&rank) {
            (lane.sending, lane.behind) = (false, behind);
        }
    }
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who serves.
    pub(super) fn learn(&self, map: &ClusterMap) {
        let serving = map.ranks.iter().filter(|(_, info)| info.state.serves_ranks()).map(|(rank, _)| *rank);
        self.lock().serving = serving.collect();
        self.wake.notify_one();
    }

    /// Called under the rank's mutex; `flush` has to follow.
    pub(super) fn push(&self, rank: RankId, message: ClientMsg) {
        let mut state = self.lock();
        let lane = state.lanes.entry(rank).or_default();
        if !lane.lost {
            lane.waiting.push(message);
        }
    }

    /// Sends what was said, as far as nobody has to wait for that; the thread does the rest. Called with no mutex held.
    pub(super) fn flush(&self) {
        let mut state = self.lock();
        while let Some((rank, port, messages)) = state.offer() {
            drop(state);
            // Who reads a lost one tells of its end.
            let behind = matches!(port.offer(messages), Ok(false));
            state = self.lock();
            state.sent(rank, behind);
        }
        if state.lanes.values().any(|lane| !lane.waiting.is_empty() && !lane.sending) {
            self.wake.notify_one();
        }
    }

    /// Called under the rank's mutex, when it hears `RankGone`.
    pub(super) fn heard_gone(&self, rank: RankId) {
        if let Some(lane) = self.lock().lanes.get_mut(&rank) {
            lane.lost = false;
            lane.generation += 1;
        }
    }

    pub(super) fn stop(&self) {
        let lanes = {
            let mut state = self.lock();
            state.stop = true;
            std::mem::take(&mut state.lanes)
        };
        self.wake.notify_one();
        for port in lanes.into_values().filter_map(|lane| lane.port) {
            port.close();
        }
    }

    /// Waits for something to do; `None` at the end.
    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            let now = Instant::now();
            state = match state.next(now) {
                Ok(job) => return Some(job),
                Err(None) => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Err(Some(due)) => {
                    let waited = self.wake.wait_timeout(state, due.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// That connection stands. It may be gone already.
    fn made(&self, rank: RankId, generation: u64, port: Arc<dyn Port>) {
        let mut state = self.lock();
        match state.lanes.get_mut(&rank).filter(|lane| lane.generation == generation && !lane.lost) {
            Some(lane) => lane.port = Some(port),
            None => {
                drop(state);
                port.close();
            }
        }
    }

    /// That connection is gone; whether the rank is to hear of it.
    fn lost(&self, rank: RankId, generation: u64) -> bool {
        let mut state = self.lock();
        let lane = state.lanes.get_mut(&rank).filter(|lane| lane.generation == generation && !lane.lost);
        let Some(lane) = lane else { return false };
        (lane.lost, lane.port, lane.behind) = (true, None, false);
        lane.waiting.clear();
        lane.not_before = Some(Instant::now() + PAUSE);
        true
    }
}

/// The thread that connects, and sends where that has to wait.
pub(super) fn run(driver: &Driver, me: &Weak<Driver>) {
    let Some(neighbours) = driver.neighbours.clone() else { return };
    while let Some(job) = driver.links.take() {
        match job {
            // Who reads it tells of its end.
            Job::Send(rank, port, messages) => {
                drop(port.send(messages, &mut Vec::new()));
                driver.links.lock().sent(rank, false);
            }
            Job::Connect(rank, generation) => {
                let sink = Arc::new(LinkSink { driver: me.clone(), rank, generation });
                match neighbours.connect(rank, sink) {
                    Ok(port) => driver.links.made(rank, generation, port),
                    Err(_not_now) => driver.link_lost(rank, generation),
                }
            }
        }
    }
}

impl Driver {
    fn link_lost(&self, rank: RankId, generation: u64) {
        if self.links.lost(rank, generation) {
            self.feed([Input::RankGone { rank }]);
        }
    }
}

struct LinkSink {
    driver: Weak<Driver>,
    rank: RankId,
    generation: u64,
}

impl Sink for LinkSink {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let Some(driver) = self.driver.upgrade() else { return };
        let rank = self.rank;
        driver.feed(batch.into_iter().map(|message| Input::FromRank { rank, message: Box::new(message) }));
    }

    fn disconnected(&self) {
        if let Some(driver) = self.driver.upgrade() {
            driver.link_lost(self.rank, self.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Incarnation;
    use proto::cluster::{DaemonId, RankInfo, RankState};
    use runtime::port::PortError;

    struct Nowhere;

    impl Port for Nowhere {
        fn send(&self, _: Vec<ClientMsg>, _: &mut Vec<ServerMsg>) -> Result<(), PortError> {
            Ok(())
        }
        fn close(&self) {}
    }

    const OTHER: RankId = RankId(1);

    fn serving() -> ClusterMap {
        let mut map = ClusterMap::first();
        let info = RankInfo { state: RankState::Active, incarnation: Incarnation(2), daemon: DaemonId(2) };
        map.ranks.insert(OTHER, info);
        map
    }

    fn hello() -> ClientMsg {
        ClientMsg::Renew { number: 0 }
    }

    #[test]
    fn nobody_is_called_before_the_map_says_that_he_serves() {
        let links = Links::default();
        links.push(OTHER, hello());
        assert!(matches!(links.lock().next(Instant::now()), Err(None)));
        links.learn(&serving());
        assert!(matches!(links.lock().next(Instant::now()), Ok(Job::Connect(OTHER, 0))));
    }

    #[test]
    fn what_was_meant_for_a_lost_connection_is_sent_on_no_other() {
        let links = Links::default();
        links.learn(&serving());
        links.push(OTHER, hello());
        links.made(OTHER, 0, Arc::new(Nowhere));
        assert!(links.lost(OTHER, 0) && !links.lost(OTHER, 0), "told once");
        // The rank does not know yet.
        links.push(OTHER, hello());
        links.heard_gone(OTHER);
        assert!(matches!(links.lock().next(Instant::now()), Err(None)), "nothing is left");
        links.push(OTHER, hello());
        let now = Instant::now();
        assert!(matches!(links.lock().next(now), Err(Some(due)) if due > now), "not at once");
        assert!(matches!(links.lock().next(now + PAUSE), Ok(Job::Connect(OTHER, 1))));
        assert!(!links.lost(OTHER, 0), "the one before is over");
        links.made(OTHER, 1, Arc::new(Nowhere));
        assert!(matches!(links.lock().next(now), Ok(Job::Send(OTHER, _, messages)) if messages.len() == 1));
    }

    /// A peer that has room for so many messages.
    struct Peer {
        room: usize,
        got: Mutex<Vec<u32>>,
        /// Meanwhile this is said, and somebody else sends what there is.
        meanwhile: Mutex<Option<(Arc<Links>, u32)>>,
    }

    impl Peer {
        fn new(room: usize) -> Arc<Self> {
            Arc::new(Self { room, got: Mutex::default(), meanwhile: Mutex::default() })
        }

        fn got(&self) -> Vec<u32> {
            self.got.lock().expect("no panic").clone()
        }
    }

    impl Port for Peer {
        fn send(&self, messages: Vec<ClientMsg>, _: &mut Vec<ServerMsg>) -> Result<(), PortError> {
            self.offer(messages).map(drop)
        }
        fn offer(&self, messages: Vec<ClientMsg>) -> Result<bool, PortError> {
            if let Some((links, number)) = self.meanwhile.lock().expect("no panic").take() {
                links.push(OTHER, ClientMsg::Renew { number });
                links.flush();
                assert!(self.got().is_empty(), "whoever comes later does not overtake");
            }
            let numbers = messages.iter().map(|message| match message {
                ClientMsg::Renew { number } => *number,
                other => panic!("{other:?}"),
            });
            let mut got = self.got.lock().expect("no panic");
            got.extend(numbers);
            Ok(got.len() <= self.room)
        }
        fn close(&self) {}
    }

    #[test]
    fn what_two_threads_say_stays_in_order() {
        let (links, peer) = (Arc::new(Links::default()), Peer::new(usize::MAX));
        links.learn(&serving());
        links.push(OTHER, ClientMsg::Renew { number: 1 });
        links.made(OTHER, 0, peer.clone());
        *peer.meanwhile.lock().expect("no panic") = Some((links.clone(), 2));
        links.flush();
        assert_eq!(peer.got(), [1, 2]);
        assert!(matches!(links.lock().next(Instant::now()), Err(None)), "nothing is left");
    }

    #[test]
    fn whoever_steps_the_rank_does_not_wait_for_a_peer_that_is_behind() {
        let (links, peer) = (Links::default(), Peer::new(1));
        links.learn(&serving());
        links.push(OTHER, ClientMsg::Renew { number: 1 });
        links.made(OTHER, 0, peer.clone());
        links.flush();
        for number in [2, 3] {
            links.push(OTHER, ClientMsg::Renew { number });
            links.flush();
        }
        assert_eq!(peer.got(), [1, 2], "it is behind with the second");
        let Ok(Job::Send(rank, port, messages)) = links.lock().next(Instant::now()) else {
            panic!("the thread sends")
        };
        links.push(OTHER, ClientMsg::Renew { number: 4 });
        links.flush();
        port.send(messages, &mut Vec::new()).expect("there is room");
        links.lock().sent(rank, false);
        links.flush();
        assert_eq!(peer.got(), [1, 2, 3, 4]);
    }
}
