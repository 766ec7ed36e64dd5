//! What a life is told from outside of its rank's work: the cluster map, and what the coordinator refuses. Who tells never waits for the
//! rank; a thread of the life brings it.
//!
//! Absent: what is made of it (crate `mds`).

use super::Driver;
use mds::input::Input;
use mds::output::MapWish;
use proto::cluster::ClusterMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    /// The newest map that was not brought.
    map: Option<Arc<ClusterMap>>,
    /// The version of the newest one that there was.
    version: u64,
    refused: Vec<(MapWish, String)>,
    stop: bool,
}

/// What is brought together: a map, and units for which something was refused, and why.
type Brought = (Option<Arc<ClusterMap>>, Vec<(MapWish, String)>);

/// What was not brought to the rank yet.
#[derive(Default)]
pub(crate) struct News {
    state: Mutex<State>,
    wake: Condvar,
}

impl News {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The map with which the life begins: whoever begins it tells the rank.
    pub(super) fn begin(&self, map: &ClusterMap) {
        self.lock().version = map.version;
    }

    /// A map is durable. An older one than the rank has is not brought.
    pub(crate) fn map(&self, map: Arc<ClusterMap>) {
        let mut state = self.lock();
        if map.version > state.version {
            state.version = map.version;
            state.map = Some(map);
            self.wake.notify_one();
        }
    }

    /// The coordinator does not do what was wished.
    pub(crate) fn refused(&self, wish: MapWish, reason: String) {
        self.lock().refused.push((wish, reason));
        self.wake.notify_one();
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }

    /// Waits for something to bring; `None` at the end.
    fn take(&self) -> Option<Brought> {
        let nothing = |state: &mut State| !state.stop && state.map.is_none() && state.refused.is_empty();
        let mut state = self.wake.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        if state.stop { None } else { Some((state.map.take(), std::mem::take(&mut state.refused))) }
    }
}

/// The thread that brings them.
pub(super) fn run(driver: &Driver) {
    while let Some((map, refused)) = driver.news.take() {
        // First: a refusal may be because of what it says.
        if let Some(map) = map {
            driver.links.learn(&map);
            driver.feed([Input::Map(map)]);
        }
        driver.feed(refused.into_iter().map(|(wish, reason)| Input::WishRefused { wish, reason }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(version: u64) -> Arc<ClusterMap> {
        Arc::new(ClusterMap { version, ..ClusterMap::first() })
    }

    #[test]
    fn the_newest_map_is_brought_and_no_older_one_after_it() {
        let news = News::default();
        news.begin(&map(3));
        news.map(map(3));
        assert!(news.lock().map.is_none(), "the life began with it");
        news.map(map(5));
        news.map(map(4));
        let brought = news.take().and_then(|(map, _)| map).map(|map| map.version);
        assert_eq!(brought, Some(5));
        news.map(map(5));
        news.refused(MapWish::UseSlots, "no".into());
        let (map, refused) = news.take().expect("not over");
        assert_eq!((map.is_none(), refused.len()), (true, 1));
        news.stop();
        assert!(news.take().is_none());
    }
}
