//! Lives of ranks: the production rank and its journal files; every output is carried out later, each after a delay of its own.
//!
//! Absent: connections (`links.rs`), disks (`disks.rs`).

use super::alarm::Alarm;
use super::event::Event;
use super::judge::Sent;
use super::judge::struck::Strike;
use super::links::End;
use super::{Phase, Ranks};
use crate::model::judge::{Manner, Verdict};
use crate::trace::fold;
use crate::world::brief::{brief, brief_entries, brief_message};
use crate::world::is_damage;
use mds::Rank;
use mds::input::{ConnId, Input, Tag};
use mds::order::DataOrder;
use mds::output::Output;
use proto::Writer;
use proto::cluster::MoveId;
use proto::ids::{Incarnation, Position, RankId};
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::Reply;
use proto::storeio::DataOp;
use std::collections::BTreeMap;
use stdx::time::MS;
use stdx::{Machine, Mono, Wall};
use store::SimDisk;
use store::journal_files::JournalFiles;

/// One life of a rank.
pub(super) struct Life {
    pub(super) rank: RankId,
    pub(super) incarnation: Incarnation,
    pub(super) place: usize,
    pub(super) machine: Rank,
    pub(super) journal: JournalFiles<SimDisk>,
    pub(super) order: DataOrder,
    /// Appends handed over and not yet committed.
    pub(super) appends: Vec<(Position, Vec<u8>)>,
    pub(super) commit_at: Option<u64>,
    alarm: Alarm,
    /// Store tags of which the rank has no answer: how many batches are under way, and what it had sealed when it gave them.
    pub(super) stores: BTreeMap<Tag, (usize, Option<MoveId>)>,
    /// The last store event of each shard, so that its batches keep their order.
    pub(super) shards: BTreeMap<u64, u64>,
    /// It dies after so many more steps at the store.
    pub(super) store_dies: Option<u64>,
    pub(super) active: bool,
    /// It makes no progress until then.
    pub(super) hung_until: u64,
}

impl Ranks {
    pub(super) fn life_begins(&mut self, place: usize, rank: RankId, incarnation: Incarnation) -> Verdict {
        let life = incarnation.0;
        self.coverage.count("lives begun");
        self.trace.event(self.now, "begins", life, || format!("rank {} at {place} as {life}", rank.0));
        store::initial::ensure_rank(&self.meta, &self.plan.hash_seed, rank, Wall(super::WALL_START))
            .map_err(|error| format!("records of rank {}: {error}", rank.0))?;
        let stored = self.dump()?;
        self.judge.made(&stored);
        let disk = self.disks.get(&rank).cloned().ok_or_else(|| format!("there is no rank {}", rank.0))?;
        let journal = JournalFiles::open(disk, rank, incarnation, self.plan.journal())
            .map_err(|error| format!("the journal of rank {} does not open: {error}", rank.0))?;
        self.lives.insert(
            life,
            Life {
                rank,
                incarnation,
                place,
                machine: Rank::new(self.plan.rank(rank, incarnation)),
                journal,
                order: DataOrder::default(),
                appends: Vec::new(),
                commit_at: None,
                alarm: Alarm::default(),
                stores: BTreeMap::new(),
                shards: BTreeMap::new(),
                store_dies: None,
                active: false,
                hung_until: 0,
            },
        );
        self.places[place].life = Some(life);
        self.after(MS, Event::Background { life });
        if let Some(map) = self.seat.map.clone() {
            self.step_rank(life, Input::Map(map))?;
        }
        self.step_rank(life, Input::Boot)
    }

    /// `power`: what its journal's disk had not synced is lost piece by piece.
    pub(super) fn life_ends(&mut self, life: u64, power: bool) -> Verdict {
        let Some(gone) = self.lives.remove(&life) else { return Ok(()) };
        self.judge.struck(Strike::Dies(gone.rank));
        self.trace
            .event(self.now, "ends", life, || format!("rank {} life {life} power {power}", gone.rank.0));
        if let Some(disk) = self.disks.get(&gone.rank) {
            if power { disk.crash() } else { disk.kill() }
        }
        self.batches_of_dead(life)?;
        self.conns_of_dead(life);
        if self.places[gone.place].life == Some(life) {
            let told = self.rng.chance(1, 2);
            self.places[gone.place].life = None;
            self.place_ends(gone.place, told)?;
        }
        Ok(())
    }

    pub(super) fn step_rank(&mut self, number: u64, input: Input) -> Verdict {
        let now = self.now();
        let Some(life) = self.lives.get_mut(&number) else { return Ok(()) };
        let rank = life.rank;
        if let Input::Stored { tag, .. } = &input {
            let sealed = life.stores.remove(tag).and_then(|(_, sealed)| sealed);
            if self.judge.sealed(rank).is_some_and(|now| sealed != Some(now)) {
                self.coverage.count("answers of the store behind a seal");
            }
        }
        if let Input::DataDone { tag, .. } = &input
            && let Some((tag, op)) = life.order.done(*tag)
        {
            self.after(self.plan.disk_ns, Event::Data { life: number, tag, op: Box::new(op) });
        }
        if let Input::Map(map) = &input {
            self.trace.event(self.now, "map", map.version ^ (number << 32), || {
                format!("rank {} version {}", rank.0, map.version)
            });
            self.judge.hears_map(rank, map);
        }
        let Some(life) = self.lives.get_mut(&number) else { return Ok(()) };
        let mut out = Vec::new();
        life.machine.step(now, input, &mut out);
        self.judge_step(rank, &out)?;
        for output in out {
            self.carry_out(number, output)?;
        }
        self.plan_tick(number);
        Ok(())
    }

    /// Shows the judge what the step did, before any of it is carried out.
    fn judge_step(&mut self, rank: RankId, out: &[Output]) -> Verdict {
        let (mut appends, mut sent, mut welcomed) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut granted = Vec::new();
        for output in out {
            match output {
                Output::Append { position, bytes, .. } => {
                    self.trace.explain(self.now, "commit", || brief_entries(*position, bytes));
                    appends.push((*position, &bytes[..]));
                }
                Output::Send { conn, message } => {
                    let client = self.conns.get(conn).filter(|conn| matches!(conn.end, End::Client { .. }));
                    let Some(client) = client else { continue };
                    // What comes with the welcome is the session's already.
                    if let ServerMsg::Welcome { session, .. } = message {
                        welcomed.insert(*conn, *session);
                    }
                    let Some(session) = welcomed.get(conn).copied().or(client.session) else { continue };
                    if let ServerMsg::Granted { tid, grants, .. } = message
                        && !grants.of(0).is_empty()
                    {
                        granted.push((rank, session, *tid));
                    }
                    match message {
                        ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
                            let (key, outcome) = ((rank, session, *tid), outcome.clone());
                            sent.push(Sent { key, outcome, manner: Manner::Plain });
                        }
                        ServerMsg::Early { tid, wall, outcome, .. } => {
                            let (key, outcome) = ((rank, session, *tid), outcome.clone());
                            sent.push(Sent { key, outcome, manner: Manner::Early { wall: *wall } });
                        }
                        ServerMsg::Done { tid, .. } => {
                            let (key, outcome) = ((rank, session, *tid), Ok(Reply::Ok));
                            sent.push(Sent { key, outcome, manner: Manner::Done });
                        }
                        ServerMsg::NotMine { tid, .. } => {
                            self.coverage.count("requests sent away");
                            self.judge.turned_away((rank, session, *tid))?;
                        }
                        _ => {}
                    }
                }
                Output::Data { op: DataOp::Remove { file }, .. } => self.removes_data(file.ino)?,
                _ => {}
            }
        }
        self.judge.wall = self.now().wall;
        self.excuse_the_silent();
        self.judge.step(rank, &appends, &sent)?;
        self.judge_keeping()?;
        granted.into_iter().try_for_each(|key| self.judge.may_be_granted(key))?;
        self.judge_promises(rank, out)?;
        for output in out {
            if let Output::Store { batches, .. } = output {
                batches.iter().try_for_each(|batch| self.judge.batch(rank, batch))?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, life: u64, output: Output) -> Verdict {
        match output {
            Output::Send { conn, message } => self.send_from_rank(conn, message),
            Output::Close { conn } => self.close_conn(conn),
            Output::ReadJournal { from } => return self.read_journal(life, from),
            Output::Append { position, bytes, urgent } => self.append(life, position, bytes, urgent),
            Output::Commit => self.commit_soon(life, self.now + 1),
            Output::Trim { before } => return self.trim(life, before),
            Output::Load { tag, requests } => {
                self.trace.event(self.now, "load", tag.0, || format!("{life} {} {requests:?}", tag.0));
                self.after(self.plan.disk_ns, Event::Load { life, tag, requests });
            }
            Output::Store { tag, batches } => self.store_later(life, tag, batches),
            Output::Data { tag, op } => {
                self.trace.event(self.now, "data", tag.0, || format!("{life} {} {}", tag.0, brief(&op)));
                let admitted = self.lives.get_mut(&life).and_then(|life| life.order.admit(tag, op));
                if let Some((tag, op)) = admitted {
                    self.after(self.plan.disk_ns, Event::Data { life, tag, op: Box::new(op) });
                }
            }
            Output::SendRank { rank, message } => self.send_to_rank(life, rank, message),
            Output::Wish(wish) => return self.wish(life, wish),
            Output::Active => {
                self.trace.event(self.now, "active", life, String::new);
                if let Some(life) = self.lives.get_mut(&life) {
                    life.active = true;
                    let rank = life.rank;
                    self.is_active(rank);
                }
                if let Some(place) = self.places.iter().position(|place| place.life == Some(life)) {
                    self.beacon(place);
                }
            }
            Output::Damaged { reason } => return Err(format!("life {life} says it is damaged: {reason}")),
            Output::Stopped => return self.stopped(life),
            Output::Note { text, .. } => {
                self.coverage.count_note(&text);
                self.count_spread(&text);
                if let Some(rank) = self.lives.get(&life).map(|life| life.rank) {
                    self.judge_eviction(rank, &text)?;
                }
                self.trace.event(self.now, "note", fold(text.as_bytes()), || format!("{life}: {text}"));
                if is_damage(&text) {
                    return Err(format!("life {life} says: {text}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn message_to_rank(&mut self, life: u64, conn: ConnId, message: ClientMsg) -> Verdict {
        let Some(at) = self.conns.get(&conn) else { return Ok(()) };
        let mut w = Writer::new();
        message.encode(&mut w);
        self.trace.event(self.now, "request", conn.0 ^ fold(&w.0), || {
            format!("{life} {} {}", conn.0, brief_message(&message))
        });
        if let (End::Client { client, .. }, Some(session)) = (at.end, at.session) {
            let (rank, guest) = (at.rank, at.guest);
            self.heard_by_rank((client, guest), (rank, session), &message)?;
        }
        self.step_rank(life, Input::Message { conn, message })
    }

    fn plan_tick(&mut self, number: u64) {
        let Some(life) = self.lives.get_mut(&number) else { return };
        let Some(Mono(at)) = life.machine.deadline() else { return };
        let Some(alarm) = life.alarm.set(at) else { return };
        let late = self.rng.below(MS / 20);
        self.at(at.saturating_add(late), Event::RankTick { life: number, number: alarm });
    }

    pub(super) fn rank_tick(&mut self, life: u64, number: u64) -> Verdict {
        let rings = self.lives.get_mut(&life).is_some_and(|life| life.alarm.rings(number));
        if rings { self.step_rank(life, Input::Tick) } else { Ok(()) }
    }

    fn stopped(&mut self, life: u64) -> Verdict {
        self.trace.event(self.now, "stopped", life, String::new);
        if self.phase != Phase::Stop {
            return Err(format!("life {life} has stopped, and nobody asked for that"));
        }
        self.lives.remove(&life);
        self.conns_of_dead(life);
        if self.lives.is_empty() {
            let stored = self.dump()?;
            self.judge.check_stopped(&stored)?;
            self.phase = Phase::Done;
        }
        Ok(())
    }
}
