//! The record in the registry: what was read of it, whether a swap came to be, and what follows.
//!
//! Absent: when it is read or written (`turn`).

use super::{Asked, Coordinator, Planned, Standing, assign, notes, respond};
use crate::coordinator::seen::Seen;
use crate::coordinator::{Beacon, BeaconState, CommandError, Output, SwapFailure};
use crate::output::Level;
use proto::cluster::{ClusterMap, DaemonId, RankState};
use proto::storeio::StoreError;
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::time::SECOND;
use stdx::{Mono, Outbox};

/// How long it waits at most before it tries again what failed. Whoever asks meanwhile waits with it, and the grace it has otherwise to do
/// with may be a hundred years: that of a mount's rank.
const RETRY_MAX_NS: u64 = SECOND;
/// Where the record is, for people.
const PLACE: &str = "cluster/map";

impl Coordinator {
    pub(super) fn take_swapped(
        &mut self,
        result: Result<u64, SwapFailure>,
        now: Mono,
        out: &mut Outbox<Output>,
    ) {
        let Some(Asked::Swap { planned, confirms }) = self.asked.take() else { return };
        let Planned { base, next, registered, answers, notes: told, marks } = *planned;
        match result {
            Ok(version) if version == next.version => {
                self.trouble = None;
                self.follow(&base, &next, now, out);
                self.seen.mark(marks, now);
                notes(told, out);
                self.registering.drain(..registered.len());
                for (token, daemon) in registered {
                    self.seen.hear(daemon, now, BeaconState::Standby);
                    out.push(Output::Registered { token, daemon });
                }
                speak(&mut self.seen, &base, &next, out);
                confirm(&base, &next, confirms, out);
                self.answer(&next, answers, out);
            }
            Err(SwapFailure::Stale { stored }) if stdx::mutant!("coord_overwrites") => {
                self.standing =
                    Standing::Leads { map: Arc::new(ClusterMap { version: stored, ..(*base).clone() }) };
            }
            // Another's map: nothing of what was planned holds.
            Ok(_) | Err(SwapFailure::Stale { .. }) => {
                self.stale = true;
                if stdx::mutant!("coord_acknowledges_stale") {
                    confirm(&base, &base, confirms, out);
                }
            }
            Err(SwapFailure::Store(error)) => {
                self.stale = true;
                self.fail(error, answers.len(), now, out);
            }
        }
    }

    pub(super) fn take_record(
        &mut self,
        result: Result<Option<(u64, Vec<u8>)>, StoreError>,
        now: Mono,
        out: &mut Outbox<Output>,
    ) {
        let Some(Asked::Read { confirms, commands }) = self.asked.take() else { return };
        let found = match result.and_then(|record| self.decode(record)) {
            Ok(found) => found,
            Err(error) => {
                self.stale = true;
                if let Some(map) = self.map().filter(|_| stdx::mutant!("coord_acknowledges_unreadable")) {
                    confirm(map, map, confirms, out);
                }
                return self.fail(error, self.commands.len(), now, out);
            }
        };
        self.stale = false;
        self.trouble = None;
        match &self.standing {
            Standing::Out => {}
            Standing::Begins { .. } => self.standing = Standing::Begins { found: Some(found) },
            Standing::Leads { map } if map.coordinator != found.coordinator => self.step_down(&found, out),
            Standing::Leads { map } => {
                let base = Arc::clone(map);
                if base.version != found.version {
                    self.follow(&base, &found, now, out);
                    speak(&mut self.seen, &base, &found, out);
                }
                confirm(&base, &found, confirms, out);
                self.confirmed = commands;
            }
        }
    }

    /// The map of a record. One of the version that is known is not read again; and what this coordinator has stored since it does not go back
    /// from: lives were begun and things have changed hands by that.
    fn decode(&self, record: Option<(u64, Vec<u8>)>) -> Result<Arc<ClusterMap>, StoreError> {
        let damaged = |what: String| StoreError::Damaged { at: PLACE.to_owned(), what };
        let Some((version, bytes)) = record else {
            return match &self.standing {
                Standing::Leads { .. } => Err(damaged("it is not there any more".to_owned())),
                Standing::Out | Standing::Begins { .. } => {
                    Ok(Arc::new(ClusterMap { version: 0, ..ClusterMap::first() }))
                }
            };
        };
        if let Some(map) = self.map().filter(|map| map.version == version) {
            return Ok(Arc::clone(map));
        }
        let map = ClusterMap::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
        if map.version != version {
            return Err(damaged(format!("a map of version {} as version {version}", map.version)));
        }
        let stored = self.map().filter(|known| known.coordinator == map.coordinator);
        if let Some(known) =
            stored.filter(|known| known.version > version && !stdx::mutant!("coord_follows_back"))
        {
            return Err(damaged(format!("version {version}, after version {}", known.version)));
        }
        Ok(Arc::new(map))
    }

    /// The registry failed: whoever waits is told, and the rest is tried again.
    fn fail(&mut self, error: StoreError, commands: usize, now: Mono, out: &mut Outbox<Output>) {
        let pause = self.look_ns();
        let pause = if stdx::mutant!("coord_retries_by_grace") { pause } else { pause.min(RETRY_MAX_NS) };
        self.retry = Some(now.after(pause));
        for (id, _) in self.commands.drain(..commands.min(self.commands.len())) {
            out.push(Output::Answer { id, result: Err(CommandError::Store(error.clone())) });
        }
        if self.trouble.as_ref() != Some(&error) {
            let text =
                format!("the cluster map: {error}: no rank changes hands before it can be read and written");
            out.push(Output::Note { level: Level::Error, text });
            self.trouble = Some(error);
        }
    }

    fn step_down(&mut self, found: &ClusterMap, out: &mut Outbox<Output>) {
        if stdx::mutant!("coord_deposed_goes_on") {
            self.standing = Standing::Leads { map: Arc::new(found.clone()) };
            return;
        }
        let text = format!("another coordinator began (number {}): this one ends", found.coordinator);
        out.push(Output::Note { level: Level::Warn, text });
        self.standing = Standing::Out;
        self.beacons.clear();
        for (token, _) in std::mem::take(&mut self.registering) {
            out.push(Output::Refused { token, text: "another coordinator began".to_owned() });
        }
        for (id, _) in std::mem::take(&mut self.commands) {
            if stdx::mutant!("coord_deposed_keeps_commands") {
                continue;
            }
            let error = CommandError::WrongState("another coordinator began: ask that one".to_owned());
            out.push(Output::Answer { id, result: Err(error) });
        }
        out.push(Output::Deposed);
    }

    /// `next` is durable, and this coordinator's.
    fn follow(&mut self, base: &ClusterMap, next: &Arc<ClusterMap>, now: Mono, out: &mut Outbox<Output>) {
        out.push(Output::Publish(Arc::clone(next)));
        for daemon in base.daemons.keys().filter(|daemon| !next.daemons.contains_key(daemon)) {
            if self.seen.knows(*daemon) && !self.seen.is_gone(*daemon) {
                out.push(Output::Dismiss { daemon: *daemon });
            }
        }
        self.seen.follow(base, next, now);
        self.standing = Standing::Leads { map: Arc::clone(next) };
    }
}

/// What follows from a map that is durable: lives to be fenced, and lives that begin.
fn speak(seen: &mut Seen, base: &ClusterMap, next: &ClusterMap, out: &mut Outbox<Output>) {
    for (rank, info) in &next.ranks {
        let failed_before = base.ranks.get(rank).is_some_and(|before| before.state == RankState::Failed);
        if failed_before && stdx::mutant!("coord_fence_not_repeated") {
            continue;
        }
        if info.state == RankState::Failed && seen.asks_fence(*rank, info.incarnation) {
            out.push(Output::Fence { rank: *rank, incarnation: info.incarnation });
        }
    }
    assign(base, next, out);
}

/// Answers what came before a map was read, or written.
fn confirm(
    known: &ClusterMap,
    map: &ClusterMap,
    beacons: BTreeMap<DaemonId, Beacon>,
    out: &mut Outbox<Output>,
) {
    for (daemon, beacon) in beacons {
        respond(known, map, daemon, beacon, out);
    }
}
