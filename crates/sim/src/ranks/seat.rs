//! The coordinator and its registry: each output is carried out later.
//!
//! Absent: several coordinators, a registry that fails (`crate::cluster`).

use super::event::{Event, ToPlace};
use super::judge::owners::Part;
use super::judge::struck::Strike;
use super::{Phase, Ranks};
use crate::model::judge::Verdict;
use mds::coordinator::{Command, Coordinator, CoordinatorConfig, Input, Life as Asker, Output, SwapFailure};
use mds::input::Input as RankInput;
use mds::output::MapWish;
use proto::cluster::{ClusterMap, Entry, Unit};
use proto::ids::{Frag, Incarnation, RankId};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::{Machine, Mono};

/// Older ones nobody says any more.
const MAPS_KEPT: usize = 256;

/// The coordinator's process.
pub(super) struct Seat {
    machine: Option<Coordinator>,
    /// How often it was started.
    life: u64,
    tick: Option<u64>,
    /// It stands still until then.
    pub(super) paused: u64,
    registry: Option<(u64, Vec<u8>)>,
    /// The map that is stored.
    pub(super) map: Option<Arc<ClusterMap>>,
    /// The last that were stored, by version: ranks say them to each other.
    pub(super) maps: BTreeMap<u64, Arc<ClusterMap>>,
    commands: u64,
    /// What an operator says again until it is so.
    wanted: Option<Command>,
    /// Wishes without an answer: of which life, about what.
    asks: BTreeMap<u64, (u64, MapWish)>,
}

impl Seat {
    pub(super) const fn new() -> Self {
        Self {
            machine: None,
            life: 0,
            tick: None,
            paused: 0,
            registry: None,
            map: None,
            maps: BTreeMap::new(),
            commands: 0,
            wanted: None,
            asks: BTreeMap::new(),
        }
    }

    /// Whether there is a coordinator that makes progress.
    pub(super) const fn is_awake(&self, now: u64) -> bool {
        self.machine.is_some() && self.paused <= now
    }
}

impl Ranks {
    /// A coordinator begins; one of before is no more.
    pub(super) fn seat_starts(&mut self) -> Verdict {
        if self.seat.machine.is_some() || self.phase == Phase::Stop {
            return Ok(());
        }
        let grace_ns = self.plan.grace_ns;
        let config = CoordinatorConfig { grace_ns, floor: Incarnation(0), sole: false };
        self.seat.machine = Some(Coordinator::new(config));
        self.seat.life += 1;
        self.seat.tick = None;
        let life = self.seat.life;
        self.trace.event(self.now, "seat", life, || format!("coordinator {life}"));
        // Whoever asked the one before hears that it is gone.
        for (_, (life, wish)) in std::mem::take(&mut self.seat.asks) {
            self.refuse_wish(life, wish, "the coordinator is gone".into());
        }
        if let Some(command) = self.seat.wanted {
            self.command(command)?;
        }
        self.step_seat(Input::Boot)
    }

    /// The coordinator's process ends: what it was asked, and has not answered, is lost with it.
    pub(super) fn seat_ends(&mut self) {
        self.seat.machine = None;
        self.seat.life += 1;
    }

    pub(super) fn seat_hears(&mut self, input: Input) -> Verdict {
        // An operator gives one command after the other: what broke here was a world in which an older number of ranks came in
        // behind the newer one that it then waited for.
        let input = match (input, self.seat.wanted) {
            (Input::Command { id, command: Command::SetMaxMds(_) }, Some(wanted)) => {
                Input::Command { id, command: wanted }
            }
            (input, _) => input,
        };
        self.step_seat(input)
    }

    pub(super) fn answered(&mut self, life: u64, input: Input) -> Verdict {
        if self.seat.life == life { self.step_seat(input) } else { Ok(()) }
    }

    /// An operator's command.
    pub(super) fn command(&mut self, command: Command) -> Verdict {
        self.seat.commands += 1;
        let id = self.seat.commands;
        if let Command::SetMaxMds(_) = command {
            self.seat.wanted = Some(command);
        }
        self.tell_seat(Input::Command { id, command });
        Ok(())
    }

    /// A rank wishes something of the map.
    pub(super) fn wish(&mut self, life: u64, wish: MapWish) -> Verdict {
        let Some(at) = self.lives.get(&life) else { return Ok(()) };
        let asker = Asker { rank: at.rank, incarnation: at.incarnation };
        self.trace.event(self.now, "wish", life, || format!("rank {} {wish:?}", asker.rank.0));
        self.seat.commands += 1;
        let id = self.seat.commands;
        self.seat.asks.insert(id, (life, wish));
        let command = Command::Ask(asker, wish.ask());
        self.tell_seat(Input::Command { id, command });
        if wish == MapWish::Leave { self.leaves(life) } else { Ok(()) }
    }

    pub(super) fn tell_seat(&mut self, input: Input) {
        self.after(self.plan.message_ns, Event::ToSeat { input: Box::new(input) });
    }

    fn refuse_wish(&mut self, life: u64, wish: MapWish, reason: String) {
        self.coverage.count("wishes refused");
        let input = RankInput::WishRefused { wish, reason };
        self.after(self.plan.message_ns, Event::Rank { life, input: Box::new(input) });
    }

    pub(super) fn seat_ticks(&mut self, life: u64) -> Verdict {
        if self.seat.life != life {
            return Ok(());
        }
        self.seat.tick = None;
        self.step_seat(Input::Tick)
    }

    fn step_seat(&mut self, input: Input) -> Verdict {
        let now = self.now();
        let Some(machine) = &mut self.seat.machine else { return Ok(()) };
        let mut out = Vec::new();
        machine.step(now, input, &mut out);
        for output in out {
            self.seat_says(output)?;
        }
        self.plan_seat_tick();
        Ok(())
    }

    fn plan_seat_tick(&mut self) {
        let Some(Mono(at)) = self.seat.machine.as_ref().and_then(Machine::deadline) else { return };
        if self.seat.tick.is_none_or(|planned| planned > at) {
            self.seat.tick = Some(at);
            let life = self.seat.life;
            self.at(at, Event::SeatTick { life });
        }
    }

    fn seat_says(&mut self, output: Output) -> Verdict {
        let (life, delay) = (self.seat.life, self.plan.disk_ns);
        match output {
            Output::Read => self.after(delay, Event::Read { life }),
            Output::Swap { expected, bytes } => self.after(delay, Event::Swap { life, expected, bytes }),
            Output::Registered { token, daemon } => {
                self.tell_place(|place| place.token == token, ToPlace::Registered { token, daemon });
            }
            Output::Refused { text, .. } => return Err(format!("a daemon is refused: {text}")),
            Output::Fence { rank, incarnation } => {
                self.after(delay, Event::Fence { life, rank, incarnation })
            }
            Output::Assign { daemon, rank, incarnation } => {
                self.tell_place(
                    |place| place.id == Some(daemon),
                    ToPlace::Assign { daemon, rank, incarnation },
                );
            }
            Output::Dismiss { daemon } => {
                self.tell_place(|place| place.id == Some(daemon), ToPlace::Dismiss { daemon });
            }
            Output::Publish(map) => self.publish(map),
            Output::Answer { id, result } => {
                self.trace.event(self.now, "told", id, || {
                    format!("{id}: {:?}", result.as_ref().map(|reply| &reply.text))
                });
                let asked = self.seat.asks.remove(&id);
                match (asked, result) {
                    (Some((life, wish)), Err(error)) => self.refuse_wish(life, wish, error.to_string()),
                    (None, Err(error)) if self.phase == Phase::Begin => {
                        return Err(format!("a command is refused: {error}"));
                    }
                    (None, Err(_)) => self.coverage.count("commands refused"),
                    (_, Ok(_)) => {}
                }
            }
            Output::Ack { .. } => {}
            Output::Deposed => return Err("the only coordinator is deposed".into()),
            Output::Note { text, .. } => {
                self.trace.explain(self.now, "note", || vec![format!("coordinator: {text}")])
            }
        }
        Ok(())
    }

    /// Each rank hears of a map at its own time.
    fn publish(&mut self, map: Arc<ClusterMap>) {
        self.trace.event(self.now, "publish", map.version, || brief_map(&map));
        let lives: Vec<u64> = self.lives.keys().copied().collect();
        for life in lives {
            self.tell_map(life, map.clone());
        }
    }

    pub(super) fn tell_map(&mut self, life: u64, map: Arc<ClusterMap>) {
        self.after(self.plan.map_ns, Event::Rank { life, input: Box::new(RankInput::Map(map)) });
    }

    pub(super) fn registry_read(&mut self, life: u64) -> Verdict {
        let found = self.seat.registry.clone();
        self.after(self.plan.disk_ns, Event::Answered { life, input: Box::new(Input::Read(Ok(found))) });
        Ok(())
    }

    /// What is asked by a coordinator that is no more may still come to be.
    pub(super) fn registry_swap(&mut self, life: u64, expected: u64, bytes: Vec<u8>) -> Verdict {
        let stored = self.seat.registry.as_ref().map_or(0, |(version, _)| *version);
        let result = if stored == expected {
            let map = ClusterMap::decode(&bytes).map_err(|error| format!("a map that is none: {error:?}"))?;
            map.check().map_err(|error| format!("a map that may not be: {error:?}"))?;
            self.swapped(Arc::new(map))?;
            self.seat.registry = Some((expected + 1, bytes));
            Ok(expected + 1)
        } else {
            self.coverage.count("swaps that came too late");
            Err(SwapFailure::Stale { stored })
        };
        self.after(self.plan.disk_ns, Event::Answered { life, input: Box::new(Input::Swapped(result)) });
        Ok(())
    }

    /// The registry has a new map: what it says counts from this instant.
    fn swapped(&mut self, map: Arc<ClusterMap>) -> Verdict {
        let before = self.seat.map.replace(map.clone());
        self.seat.maps.insert(map.version, map.clone());
        if self.seat.maps.len() > MAPS_KEPT {
            self.seat.maps.pop_first();
        }
        if let Some(before) = &before {
            self.judge.struck(Strike::Other("map"));
            self.switched(before, &map)?;
        }
        self.judge.has_map(map.clone());
        self.ranks_go(before.as_deref(), &map)
    }

    /// What a map gives to another rank must be in the store; of what is gone, nothing.
    fn switched(&mut self, before: &ClusterMap, map: &ClusterMap) -> Verdict {
        let changed = map.entries.iter().filter_map(|(unit, entry)| {
            let old = before.entries.get(unit).filter(|old| old.rank != entry.rank)?;
            Some((*unit, old.rank, entry.rank))
        });
        let moved: Vec<(Unit, RankId, RankId)> = changed.collect();
        let slots = Self::slots_switched(before, map);
        let is_dropped = |(unit, _): &(&Unit, &Entry)| !map.entries.contains_key(unit);
        let dropped = before.entries.iter().filter(is_dropped).map(|(unit, entry)| (*unit, entry.rank));
        let dropped: Vec<(Unit, RankId)> = dropped.collect();
        if moved.is_empty() && slots.is_empty() && dropped.is_empty() {
            return Ok(());
        }
        let stored = self.dump()?;
        for dropped in dropped {
            self.judge.check_dropped(dropped, map, &stored)?;
        }
        for (unit, from, to) in moved {
            self.coverage.count("moves switched");
            if unit.frag != Frag::WHOLE {
                self.coverage.count("units switched");
            }
            self.trace.event(self.now, "switch", unit.dir.0 ^ unit.frag.prefix, || {
                format!("directory {} {} is rank {}'s", unit.dir.0, brief_frag(unit.frag), to.0)
            });
            self.judge.check_moved(&Part::Unit(unit), &stored)?;
            self.count_unit(before, unit, (from, to))?;
        }
        for (range, to) in slots {
            self.trace.event(self.now, "switch", range.start.into(), || {
                format!("slots {} to {} are rank {}'s", range.start, range.end - 1, to.0)
            });
            self.count_slots(&range)?;
            self.judge.check_moved(&Part::Slots(range), &stored)?;
        }
        Ok(())
    }

    /// Whoever lived as this rank until then can do nothing any more.
    pub(super) fn fence(&mut self, life: u64, rank: RankId, incarnation: Incarnation) -> Verdict {
        let old: Vec<u64> = self
            .lives
            .values()
            .filter(|life| life.rank == rank && life.incarnation <= incarnation)
            .map(|life| life.incarnation.0)
            .collect();
        for life in old {
            self.coverage.count("lives that a fence ended");
            self.life_ends(life, false)?;
        }
        let input = Box::new(Input::Fenced { rank, incarnation });
        self.after(self.plan.disk_ns, Event::Answered { life, input });
        Ok(())
    }
}

/// Ranks and entries of a map for a trace.
fn brief_map(map: &ClusterMap) -> String {
    let ranks: Vec<String> = map
        .ranks
        .iter()
        .map(|(rank, info)| format!("{}:{}.{}", rank.0, info.state.name(), info.incarnation.0))
        .collect();
    let entries: Vec<String> = map
        .entries
        .iter()
        .map(|(unit, entry)| {
            let moving = entry.moving.map(|moving| format!(" -> {} ({})", moving.to.0, moving.id.0));
            let frag = brief_frag(unit.frag);
            format!("{}{frag}@{}{}", unit.dir.0, entry.rank.0, moving.unwrap_or_default())
        })
        .collect();
    let slots = if map.slots_used { brief_slots(map) } else { String::new() };
    format!("{} ranks {} entries {}{slots}", map.version, ranks.join(" "), entries.join(" "))
}

fn brief_slots(map: &ClusterMap) -> String {
    let runs = map.slots.runs().map(|(range, slot)| {
        let moving = slot.moving.map(|moving| format!(" -> {} ({})", moving.to.0, moving.id.0));
        format!("{}-{}@{}{}", range.start, range.end - 1, slot.rank.0, moving.unwrap_or_default())
    });
    let (mask, runs) = (map.bal_rank_mask.hex(), runs.collect::<Vec<_>>().join(" "));
    format!(" mask {mask} weights {:?} hash {} slots {runs}", map.weights, map.hash_placement)
}

/// The part of a directory; the whole of it: nothing.
fn brief_frag(Frag { prefix, depth }: Frag) -> String {
    if depth == 0 { String::new() } else { format!("[{}/{depth}]", prefix >> (64 - u32::from(depth))) }
}
