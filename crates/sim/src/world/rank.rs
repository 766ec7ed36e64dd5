//! The driver of the rank's process: the production rank, journal files and data files; every output
//! is carried out later, each after a delay of its own.
//!
//! Absent: clients (`clients.rs`), the disks (`disks.rs`), deaths (`faults.rs`).

use super::brief::{brief, brief_entries, brief_message};
use super::{Event, Kind, World, fold};
use crate::model::judge::{Manner, Sent, Verdict};
use mds::Rank;
use mds::input::{ConnId, Input, Tag};
use mds::order::DataOrder;
use mds::output::Output;
use proto::caps::Bits;
use proto::ids::{Incarnation, Position, RankId, SessionId};
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::Reply;
use proto::storeio::StoreError;
use proto::{FileId, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stdx::time::MS;
use stdx::{Machine, Mono};
use store::SimDisk;
use store::data::DataFiles;
use store::journal_files::JournalFiles;

/// One life of the rank's process.
pub(super) struct Life {
    pub(super) rank: Rank,
    pub(super) journal: JournalFiles<SimDisk>,
    pub(super) data: Arc<DataFiles<SimDisk>>,
    pub(super) order: DataOrder,
    /// Connection to client, and the session it became.
    pub(super) conns: BTreeMap<ConnId, (usize, Option<SessionId>)>,
    /// Appends handed over and not yet committed.
    pub(super) appends: Vec<(Position, Vec<u8>)>,
    /// When the next commit is due, `None`: nothing to commit or one is planned.
    pub(super) commit_at: Option<u64>,
    pub(super) tick_at: Option<u64>,
    /// Store tags with batches under way: how many, and what went wrong.
    pub(super) stores: BTreeMap<Tag, (usize, Result<(), StoreError>)>,
    /// The last store event of each shard, so that its batches keep their order.
    pub(super) shards: BTreeMap<u64, u64>,
    /// The journal was read to its end.
    pub(super) replayed: bool,
    pub(super) active: bool,
    pub(super) journal_failed: bool,
}

/// Whether a rank says that it found a record damaged. The worlds damage none that it could not tell from its checksum.
pub(crate) fn is_damage(note: &str) -> bool {
    note.starts_with("damage: ")
}

impl World {
    /// A new process of the rank on what the disk still has.
    pub(super) fn restart(&mut self) -> Verdict {
        self.lives += 1;
        let life = self.lives;
        // A crash counts, too; an incarnation is one start.
        let incarnation = Incarnation(life.div_ceil(2));
        self.trace.event(self.now, "restart", life, || format!("life {life}"));
        let limits = self.plan.journal();
        let journal = JournalFiles::open(self.disk.clone(), RankId(0), incarnation, limits);
        let data = DataFiles::open(self.disk.clone(), self.plan.small_file_bytes, self.plan.data());
        let (journal, data) = match (journal, data) {
            _ if self.disk.is_dead() => return Ok(()),
            (Err(error), _) => return Err(format!("journal does not open: {error}")),
            (_, Err(error)) => return Err(format!("data does not open: {error}")),
            (Ok(journal), Ok(data)) => (journal, data),
        };
        self.life = Some(Life {
            rank: Rank::new(self.plan.rank(incarnation)),
            journal,
            data: Arc::new(data),
            order: DataOrder::default(),
            conns: BTreeMap::new(),
            appends: Vec::new(),
            commit_at: None,
            tick_at: None,
            stores: BTreeMap::new(),
            shards: BTreeMap::new(),
            replayed: false,
            active: false,
            journal_failed: false,
        });
        self.after(MS, Event::Background { life });
        self.step_rank(Input::Boot)
    }

    pub(super) fn step_rank(&mut self, input: Input) -> Verdict {
        let now = self.now();
        let Some(life) = &mut self.life else { return Ok(()) };
        if let Input::DataDone { tag, .. } = &input
            && let Some((tag, op)) = life.order.done(*tag)
        {
            let at = self.now + 1 + self.rng.below(self.plan.disk_ns);
            self.at(at, Event::Data { life: self.lives, tag, op: Box::new(op) });
        }
        let Some(life) = &mut self.life else { return Ok(()) };
        if let Input::Disconnected { conn } = &input {
            self.positions.remove(conn);
            // Nothing more arrives on it, whatever was on its way.
            if let Some((_, Some(session))) = life.conns.remove(conn) {
                self.owed.runs_out(session);
            }
        }
        let mut out = Vec::new();
        life.rank.step(now, input, &mut out);
        self.judge_step(&out)?;
        self.judge_backlog()?;
        for output in out {
            self.carry_out(output)?;
        }
        self.plan_tick();
        Ok(())
    }

    /// However slow the store is, the journal does not grow without end; only on a full disk nobody waits.
    fn judge_backlog(&self) -> Verdict {
        let Some(life) = self.life.as_ref().filter(|_| !self.plan.full_disk) else { return Ok(()) };
        let (backlog, most) = (life.rank.status().journal_backlog, self.plan.backlog_max());
        if backlog > most {
            return Err(format!("the journal holds {backlog} bytes that are not stored; at most {most} may"));
        }
        Ok(())
    }

    /// Shows the judge what the step did, before any of it is carried out.
    fn judge_step(&mut self, out: &[Output]) -> Verdict {
        let refused = self.refused(out);
        // What was delegated to them ends at once, and with that perhaps what waited.
        refused.iter().for_each(|session| self.owed.runs_out(*session));
        let Some(life) = &self.life else { return Ok(()) };
        let mut appends = Vec::new();
        let mut sent = Vec::new();
        for output in out {
            match output {
                Output::Append { position, bytes, .. } => {
                    self.trace.explain(self.now, "commit", || brief_entries(*position, bytes));
                    appends.push((*position, &bytes[..]));
                }
                Output::Send { conn, message } => {
                    let Some((client, Some(session))) = life.conns.get(conn) else { continue };
                    let Some(mut one) = answer_of(*session, message) else { continue };
                    one.embedded = self.clients[*client].kind == Kind::Embedded;
                    if let ServerMsg::Granted { grants, .. } | ServerMsg::Early { grants, .. } = message {
                        self.judge_grants(&one, *client, grants)?;
                        let files = u64::from(grants.of(0).has(Bits::ALONE));
                        self.coverage.count("files delegated", files);
                    }
                    self.judge_open(&one)?;
                    sent.push(one);
                }
                _ => {}
            }
        }
        // A step appends once, at its end: a data operation may have been planned before any of it.
        for output in out {
            if let Output::Data { op, .. } = output {
                self.judge.data_op(op)?;
            }
        }
        self.judge.wall = self.now().wall;
        self.excuse_the_silent();
        self.refusals(&refused);
        self.judge.step(&appends, &sent)?;
        self.judge_promises(out)?;
        self.judge_keeping()?;
        for output in out {
            if let Output::Store { batches, .. } = output {
                batches.iter().try_for_each(|batch| self.judge.batch(batch))?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, output: Output) -> Verdict {
        let life = self.lives;
        match output {
            Output::Send { conn, message } => {
                self.note_recall(conn, &message);
                self.judge_refusal(conn, &message)?;
                self.told_hostile(conn, &message);
                self.send_to_client(conn, message);
            }
            Output::Close { conn } => self.close_conn(conn),
            Output::ReadJournal { from } => return self.read_journal(from),
            Output::Append { position, bytes, urgent } => self.append(position, bytes, urgent),
            Output::Commit => self.commit_soon(self.now + 1),
            Output::Trim { before } => return self.trim(before),
            Output::Load { tag, requests } => {
                self.trace.event(self.now, "load", tag.0, || format!("{} {requests:?}", tag.0));
                self.after(self.plan.disk_ns, Event::Load { life, tag, requests });
            }
            Output::Store { tag, batches } => self.store_later(tag, batches),
            Output::Data { tag, op } => {
                self.trace.event(self.now, "data", tag.0, || format!("{} {}", tag.0, brief(&op)));
                let admitted = self.life.as_mut().and_then(|life| life.order.admit(tag, op));
                if let Some((tag, op)) = admitted {
                    self.after(self.plan.disk_ns, Event::Data { life, tag, op: Box::new(op) });
                }
            }
            Output::Active => {
                self.trace.event(self.now, "active", life, String::new);
                self.active_since = self.now;
                if let Some(life) = &mut self.life {
                    life.active = true;
                }
                self.plan_again();
                return self.read_all();
            }
            Output::Damaged { reason } => return Err(format!("the rank says it is damaged: {reason}")),
            Output::Stopped => return self.stopped(),
            Output::SendRank { .. } | Output::Wish(_) => return Err("the only rank asks for another".into()),
            Output::Note { text, .. } => {
                self.trace.event(self.now, "note", fold(text.as_bytes()), || text.clone());
                if is_damage(&text) {
                    return Err(format!("the rank says: {text}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn message_to_rank(&mut self, conn: ConnId, message: ClientMsg) -> Verdict {
        let Some(life) = &self.life else { return Ok(()) };
        let Some((client, session)) = life.conns.get(&conn).copied() else { return Ok(()) };
        let mut w = Writer::new();
        message.encode(&mut w);
        self.trace.event(self.now, "request", conn.0 ^ fold(&w.0), || {
            format!("{} {}", conn.0, brief_message(&message))
        });
        if matches!(message, ClientMsg::Hello { .. }) {
            self.greeted.insert(conn, self.now);
        }
        if let Some(session) = session {
            let goodbye = message == ClientMsg::Goodbye;
            let asks_nothing =
                matches!(message, ClientMsg::Returned { .. } | ClientMsg::Settled | ClientMsg::Cancel { .. });
            if !asks_nothing {
                self.heard.insert(session, (self.now, goodbye));
            }
            if goodbye {
                // What it was asked for it has no more, and who waited for that goes on in this very step.
                self.owed.runs_out(session);
            }
            self.settle_debts(client, session, &message)?;
            self.heard_by_rank(client, session, &message)?;
        }
        if let (Some(session), ClientMsg::Request { tid, cred, request, .. }) = (session, &message) {
            self.asked(client, session, *tid, cred, request);
        }
        self.step_rank(Input::Message { conn, message })
    }

    fn plan_tick(&mut self) {
        let life_number = self.lives;
        let Some(life) = &mut self.life else { return };
        let Some(Mono(at)) = life.rank.deadline() else { return };
        if life.tick_at.is_some_and(|planned| planned <= at) {
            return;
        }
        life.tick_at = Some(at);
        let late = self.rng.below(MS / 20);
        self.at(at.saturating_add(late), Event::RankTick { life: life_number });
    }

    pub(super) fn rank_tick(&mut self) -> Verdict {
        if let Some(life) = &mut self.life {
            life.tick_at = None;
        }
        self.step_rank(Input::Tick)
    }

    fn stopped(&mut self) -> Verdict {
        self.trace.event(self.now, "stopped", 0, String::new);
        let stored = self.dump()?;
        self.judge.check_promises()?;
        self.judge.check_stopped(&stored)?;
        let live: BTreeSet<FileId> = self.judge.files().into_iter().map(|(file, ..)| file).collect();
        let (mut left, judge) = (None, &self.judge);
        if let Some(life) = &self.life {
            let listed = life.data.objects(&mut |object| {
                if !live.contains(&object.file) && !judge.was_lost(object.file.ino) {
                    left = Some(object.file);
                }
            });
            listed.map_err(|error| format!("data objects: {error}"))?;
        }
        if let Some(file) = left {
            return Err(format!("data of {} is left although its inode is gone", file.ino.0));
        }
        self.phase = super::Phase::Done;
        Ok(())
    }
}

/// A message that answers a request.
fn answer_of(session: SessionId, message: &ServerMsg) -> Option<Sent> {
    let (tid, outcome, manner) = match message {
        ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
            (*tid, outcome.clone(), Manner::Plain)
        }
        ServerMsg::Early { tid, wall, outcome, .. } => (*tid, outcome.clone(), Manner::Early { wall: *wall }),
        ServerMsg::Done { tid, .. } => (*tid, Ok(Reply::Ok), Manner::Done),
        ServerMsg::Welcome { .. }
        | ServerMsg::Refused { .. }
        | ServerMsg::Admin { .. }
        | ServerMsg::Recall { .. }
        | ServerMsg::Renewed { .. }
        | ServerMsg::Durable { .. }
        | ServerMsg::Numbers { .. }
        | ServerMsg::NotMine { .. }
        | ServerMsg::Map { .. }
        | ServerMsg::Join { .. }
        | ServerMsg::Damaged => return None,
    };
    Some(Sent { session, tid, outcome, embedded: false, manner })
}
