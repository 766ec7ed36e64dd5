//! A slot: the thread that carries one rank, or stands by. It begins and ends lives; whatever these take, nobody else waits.
//!
//! Absent: which life it is to carry (the coordinator's).

use super::neighbours::Around;
use super::{SMALL_STACK, Shared};
use crate::driver::{Last, Neighbours};
use crate::life::{Identity, RankLife};
use crate::server::ServerError;
use mds::State;
use mds::coordinator::{Beacon, BeaconState, Input};
use proto::cluster::{ClusterMap, DaemonId, RankState};
use proto::{Incarnation, RankId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use store::fence::Fence;

/// What it is told, in order.
pub(super) enum Order {
    Registered(DaemonId),
    Refused(String),
    Begin {
        daemon: DaemonId,
        rank: RankId,
        incarnation: Incarnation,
    },
    /// End this life, or an earlier one of the rank.
    Fence {
        rank: RankId,
        incarnation: Incarnation,
    },
    Dismiss(DaemonId),
    /// End the life as by a crash.
    Crash,
    Stop,
}

/// What it carries.
enum Carries {
    Nothing,
    Life(Arc<RankLife>),
    /// A life that did not begin: the rank is damaged until somebody says that it may be tried again.
    Failed(Identity),
}

impl Carries {
    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Nothing => None,
            Self::Life(life) => Some(&life.identity),
            Self::Failed(identity) => Some(identity),
        }
    }
}

struct Slot {
    shared: Arc<Shared>,
    /// Its number here: the coordinator's token for it.
    n: usize,
    name: String,
    daemon: Option<DaemonId>,
    /// It has asked for a number.
    asked: bool,
    carries: Carries,
    /// Of its beacons.
    seq: Arc<AtomicU64>,
}

/// The thread.
pub(super) fn run(shared: Arc<Shared>, n: usize, orders: &Receiver<Order>) {
    let (name, interval) = (shared.slot_name(n), shared.interval);
    let mut slot =
        Slot { shared, n, name, daemon: None, asked: false, carries: Carries::Nothing, seq: Arc::default() };
    slot.register();
    loop {
        match orders.recv_timeout(interval) {
            Ok(Order::Registered(daemon)) => {
                (slot.daemon, slot.asked) = (Some(daemon), false);
                slot.beat();
            }
            Ok(Order::Refused(why)) => {
                slot.shared.log.warn(
                    "cluster",
                    "a slot was not taken in",
                    &[("mds", &slot.name), ("why", &why)],
                );
                slot.asked = false;
            }
            Ok(Order::Begin { daemon, rank, incarnation }) => slot.assigned(daemon, rank, incarnation),
            Ok(Order::Fence { rank, incarnation }) => slot.fence(rank, incarnation),
            Ok(Order::Dismiss(daemon)) => {
                if slot.daemon == Some(daemon) {
                    slot.drop_all(Last::Journal, "dismissed");
                }
            }
            Ok(Order::Crash) => {
                if matches!(slot.carries, Carries::Life(_)) {
                    slot.drop_all(Last::Nothing, "crash asked for");
                }
            }
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => slot.beat(),
        }
    }
}

impl Slot {
    fn register(&mut self) {
        if !self.asked {
            self.asked = true;
            self.shared.tell(Input::Register { token: self.n as u64, name: self.name.clone() });
        }
    }

    /// Says that it is there, unless the pulse of its life does.
    fn beat(&mut self) {
        let Some(daemon) = self.daemon else {
            self.register();
            return;
        };
        let state = match &self.carries {
            Carries::Nothing => BeaconState::Standby,
            Carries::Life(_) => return,
            Carries::Failed(identity) => {
                let Identity { rank, incarnation, .. } = *identity;
                BeaconState::Rank { rank, incarnation, state: RankState::Damaged }
            }
        };
        beacon(&self.shared, &self.seq, daemon, state);
    }

    fn assigned(&mut self, daemon: DaemonId, rank: RankId, incarnation: Incarnation) {
        if self.daemon != Some(daemon)
            || self.carries.identity().is_some_and(|i| i.incarnation >= incarnation)
        {
            return;
        }
        let identity = Identity { rank, incarnation, name: self.name.clone() };
        match self.begin(daemon, identity.clone()) {
            Ok(life) => {
                self.shared.log.info(
                    "cluster",
                    "a life begins",
                    &[("rank", &rank.0), ("incarnation", &incarnation.0), ("mds", &self.name)],
                );
                self.carries = Carries::Life(life);
            }
            Err(error) => {
                self.shared.log.error(
                    "cluster",
                    "a life does not begin",
                    &[("rank", &rank.0), ("incarnation", &incarnation.0), ("why", &error)],
                );
                let passes = error.passes();
                self.shared.views.begun(rank, Err(error));
                if passes {
                    // Nothing is damaged, and nothing that an operator could repair: the rank is for the next slot, or for this one once
                    // it has asked for a number again, which it does after one interval.
                    self.shared.tell(Input::Gone { daemon });
                    self.daemon = None;
                } else {
                    self.carries = Carries::Failed(identity);
                    self.beat();
                }
            }
        }
    }

    fn begin(&self, daemon: DaemonId, identity: Identity) -> Result<Arc<RankLife>, ServerError> {
        let shared = &self.shared;
        let fence = Fence::new();
        let now = shared.clock.now().wall;
        let tell = || beacon(shared, &self.seq, daemon, BeaconState::Standby);
        let parts = || shared.maker.parts((identity.rank, identity.incarnation), now, &fence);
        let parts = telling(shared.interval, tell, parts)?;
        let threads = |source| ServerError::Io { what: "threads".into(), source };
        let around = (shared.log.clone(), shared.maker.place.clone(), shared.maker.warm, shared.clock);
        let Identity { rank, incarnation, .. } = identity;
        let out =
            Around { shared: Arc::downgrade(shared), life: mds::coordinator::Life { rank, incarnation } };
        // The map that named this life is there, or it would not begin.
        let map = shared.views.map().unwrap_or_else(|| Arc::new(ClusterMap::first()));
        let out: (Arc<dyn Neighbours>, _) = (Arc::new(out), map);
        let life = RankLife::begin(parts, identity, Some(fence), around, Some(out)).map_err(threads)?;
        shared.stage.enter(life.clone());
        // One that was published before it entered.
        if let Some(map) = shared.views.map() {
            life.driver.news.map(map);
        }
        let (heard_by, seq) = (shared.clone(), self.seq.clone());
        let tell = move |state: State, loads| {
            if let Some(state) = state.in_map() {
                beacon(&heard_by, &seq, daemon, BeaconState::Rank { rank, incarnation, state });
                heard_by.tell(Input::Loads { daemon, loads });
            }
        };
        let watched = life.watch(shared.interval, tell);
        if let Err(error) = watched {
            self.end(&life, Last::Nothing, "no thread for its pulse");
            return Err(threads(error));
        }
        shared.views.begun(rank, Ok(life.clone()));
        Ok(life)
    }

    fn fence(&mut self, rank: RankId, incarnation: Incarnation) {
        let is_meant = |i: &Identity| i.rank == rank && i.incarnation <= incarnation;
        if self.carries.identity().is_some_and(is_meant) {
            self.drop_all(Last::Journal, "failed");
        }
        self.shared.tell(Input::Fenced { rank, incarnation });
    }

    /// Ends what it carries and begins anew as somebody else: whatever was said of the one before is not about this one.
    fn drop_all(&mut self, last: Last, why: &str) {
        if let Carries::Life(life) = std::mem::replace(&mut self.carries, Carries::Nothing) {
            self.end(&life, last, why);
        }
        if let Some(daemon) = self.daemon.take() {
            self.shared.tell(Input::Gone { daemon });
        }
        self.register();
    }

    fn end(&self, life: &Arc<RankLife>, last: Last, why: &str) {
        let Identity { rank, incarnation, .. } = life.identity;
        let left = life.end(last);
        self.shared.stage.leave(life);
        let log = &self.shared.log;
        let lasted_ms = life.began.elapsed().as_millis();
        log.info(
            "cluster",
            "a life ended",
            &[
                ("rank", &rank.0),
                ("incarnation", &incarnation.0),
                ("mds", &self.name),
                ("why", &why),
                ("lasted_ms", &lasted_ms),
            ],
        );
        if left > 0 {
            log.error(
                "cluster",
                "threads of a life do not come back: they are left behind, fenced",
                &[("incarnation", &incarnation.0), ("threads", &left)],
            );
            self.shared.views.change(|view| view.left_behind += left as u64);
        }
    }
}

/// Does what may take long, and says meanwhile that the slot is there. On a busy disk the syncs at the beginning of a life took longer
/// than the grace: the coordinator gave the rank to the next slot, whose life began as slowly, and so on for as long as the load lasted.
/// The standby's beacons are the right ones: that the slot was assigned a life it need not have heard yet.
fn telling<T>(interval: Duration, tell: impl Fn() + Send, work: impl FnOnce() -> T) -> T {
    let (done, over) = channel::<()>();
    thread::scope(|scope| {
        let tells = move || {
            while over.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
        };
        // Without a thread it is silent, and perhaps quick enough.
        let _no_thread = thread::Builder::new()
            .name("slot-tells".into())
            .stack_size(SMALL_STACK)
            .spawn_scoped(scope, tells);
        let result = work();
        drop(done);
        result
    })
}

fn beacon(shared: &Shared, seq: &AtomicU64, daemon: DaemonId, state: BeaconState) {
    let seq = 1 + seq.fetch_add(1, Ordering::Relaxed);
    let beacon = Beacon { seq, sent: shared.clock.mono(), state };
    shared.tell(Input::Beacon { daemon, beacon });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What broke: a slot that began a life was silent until the disk had done what that takes.
    #[test]
    fn a_slot_says_that_it_is_there_while_a_life_begins() {
        let (told, heard) = channel();
        let tell = move || {
            let _over = told.send(());
        };
        let beats = telling(Duration::from_millis(1), tell, || {
            (0..3).filter(|_| heard.recv_timeout(Duration::from_secs(20)).is_ok()).count()
        });
        assert_eq!(beats, 3);
    }

    #[test]
    fn what_is_quick_is_not_kept_waiting_for_a_beacon() {
        assert_eq!(telling(Duration::from_secs(3_600), || panic!("so soon"), || 7), 7);
    }
}
