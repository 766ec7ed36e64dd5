//! The registry: one record, replaced by compare-and-swap, whose requests and answers are late, fail, or are lost with who asked.
//!
//! Absent: the production registry on a disk, whose conformance the crate `store` tests; what may be in the record (`judge/maps.rs`).

use super::Cluster;
use super::event::Event;
use crate::model::judge::Verdict;
use mds::coordinator::{Input, SwapFailure};
use proto::cluster::ClusterMap;
use proto::storeio::{IoError, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::time::MS;

/// The record, and everything that was ever in it.
#[derive(Default)]
pub(super) struct Registry {
    record: Option<(u64, Vec<u8>)>,
    pub(super) history: BTreeMap<u64, Arc<ClusterMap>>,
    /// It answers nobody until then, or with an error only.
    pub(super) slow: u64,
    pub(super) down: u64,
}

impl Registry {
    pub(super) fn version(&self) -> u64 {
        self.record.as_ref().map_or(0, |(version, _)| *version)
    }

    /// The map that is durable.
    pub(super) fn map(&self) -> Option<&Arc<ClusterMap>> {
        self.history.get(&self.version())
    }
}

const FAILED: IoError = IoError(5);

fn failed() -> StoreError {
    StoreError::Io { at: "registry".to_owned(), source: FAILED }
}

impl Cluster {
    /// A request leaves a coordinator.
    pub(super) fn asks_registry(&mut self, seat: usize, event: Event) {
        let at = self.registry_at().max(self.seats[seat].cut);
        self.at(at, event);
    }

    fn registry_at(&mut self) -> u64 {
        let delay = self.delay();
        (self.now + delay).max(self.registry.slow)
    }

    fn answers(&mut self, seat: usize, life: u64, input: Input) {
        let of = &self.seats[seat];
        let held = of.cut.max(of.unheard);
        let at = self.registry_at().max(held);
        self.at(at, Event::Answered { seat, life, input: Box::new(input) });
    }

    fn is_refused(&self, seat: usize) -> bool {
        self.now < self.registry.down.max(self.seats[seat].refused)
    }

    fn registry_fails(&mut self, seat: usize) -> bool {
        let fails = self.is_refused(seat) || self.rng.chance(self.plan.failing, 1000);
        if fails {
            self.coverage.count("requests to the registry that failed", 1);
        }
        fails
    }

    pub(super) fn registry_read(&mut self, seat: usize, life: u64) {
        let result = if self.registry_fails(seat) { Err(failed()) } else { Ok(self.registry.record.clone()) };
        self.answers(seat, life, Input::Read(result));
    }

    /// A swap leaves: what it would write must be right even if it never arrives.
    pub(super) fn swap_leaves(&mut self, seat: usize, life: u64, expected: u64, bytes: Vec<u8>) -> Verdict {
        let map = self.judge_swap(seat, expected, &bytes)?;
        self.trace.explain(self.now, "swap", || vec![format!("{seat}.{life} {}", super::text_of(&map))]);
        self.seats[seat].writes = Some(map);
        self.asks_registry(seat, Event::Swap { seat, life, expected, bytes });
        Ok(())
    }

    /// It arrives, whether its coordinator lives or not.
    pub(super) fn registry_swap(&mut self, seat: usize, life: u64, expected: u64, bytes: Vec<u8>) -> Verdict {
        let is_alive = self.seats[seat].life == life && self.seats[seat].is_up();
        if self.plan.sole && !is_alive {
            // What a process has not written when it ends nobody writes.
            return Ok(());
        }
        let fails = self.registry_fails(seat);
        // An error says nothing about what is stored, nor about what will be.
        let takes_place = !fails || (!self.is_refused(seat) && self.rng.chance(1, 2));
        if fails && !takes_place && !self.plan.sole && self.rng.chance(1, 4) {
            let longest = self.plan.lease;
            let again = bytes.clone();
            self.after(longest, Event::Lands { seat, life, expected, bytes: again });
        }
        let stored = self.registry.version();
        let result = if stored != expected {
            self.coverage.count("swaps that came too late", 1);
            Err(SwapFailure::Stale { stored })
        } else if takes_place {
            let version = expected + 1;
            self.stored(seat, life, version, &bytes)?;
            self.registry.record = Some((version, bytes));
            Ok(version)
        } else {
            Err(SwapFailure::Store(failed()))
        };
        let result = if fails && takes_place && result.is_ok() {
            self.coverage.count("swaps that failed and took place", 1);
            Err(SwapFailure::Store(failed()))
        } else {
            result
        };
        if !is_alive && stored == expected {
            self.coverage.count("swaps of a coordinator that died", 1);
        }
        self.answers(seat, life, Input::Swapped(result));
        Ok(())
    }

    /// A swap that was answered with an error takes place after all.
    pub(super) fn registry_lands(
        &mut self,
        seat: usize,
        life: u64,
        expected: u64,
        bytes: Vec<u8>,
    ) -> Verdict {
        if self.registry.version() != expected {
            return Ok(());
        }
        self.coverage.count("swaps that failed and took place later", 1);
        let version = expected + 1;
        self.stored(seat, life, version, &bytes)?;
        self.registry.record = Some((version, bytes));
        Ok(())
    }

    /// When something that leaves now reaches the rank's store.
    pub(super) fn store_at(&mut self) -> u64 {
        let delay = self.delay();
        (self.now + delay).max(self.store.slow)
    }

    /// How long something takes: mostly milliseconds.
    pub(super) fn delay(&mut self) -> u64 {
        if self.rng.chance(self.plan.late, 1000) {
            return 1 + self.rng.below(self.plan.lease * 2);
        }
        1 + self.rng.below(20 * MS)
    }
}
