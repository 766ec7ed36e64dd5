//! A rank with a CPU of its own: what comes waits until the CPU is free, each thing that is done keeps it busy for its cost, and what the
//! rank says leaves when the turn is over. As in the driver (`server::driver`), a turn takes in what one connection has to say, or one
//! answer of a store.
//!
//! Absent: what the stores hold, the network, and when events happen (`world.rs`).

use super::costs::{Costs, records};
use super::journal::{Group, Journal};
use super::settings::ClientCosts;
use mds::input::{ConnId, Input, Peer, Tag};
use mds::order::DataOrder;
use mds::output::Output;
use mds::{Rank, RankConfig};
use proto::message::{ClientMsg, ServerMsg};
use proto::storeio::{DataDone, DataOp, LoadRequest, StoreBatch, StoreError};
use proto::{Incarnation, RankId};
use std::collections::{BTreeMap, VecDeque};
use stdx::time::{MS, SECOND};
use stdx::{Machine, Mono, Now, Wall};

/// Messages of a connection that are handed over together.
const BATCH_MAX: usize = 64;
/// So long the store's writer has the CPU before others get it.
const SLICE_NS: u64 = 200_000;
/// So long a thread has the CPU that always has something to do: a tick of Linux.
const THREAD_NS: u64 = 4 * MS;
/// The wall clock when the run begins.
const EPOCH: i64 = 1_700_000_000 * SECOND as i64;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Far {
    Host(usize),
    Rank(RankId),
}

/// What wants the CPU: a thread of the server, or what wakes one. Each is done in the order in which they were woken.
enum Work {
    /// The thread that all connections have.
    Conns,
    /// Of a store, or of the clock; in one turn.
    Inputs(Vec<Input>),
    FromRank(RankId, Vec<ServerMsg>),
    /// A worker that reads what is in memory; what it takes is known when it has the CPU.
    Load,
    /// Answers of the store that came together.
    Loaded(Vec<Input>),
    /// The journal writes what has gathered.
    Journal,
    /// A thread of the journal tells of what it has synced.
    Durable(Group),
    /// The client at the other end of that connection, on this CPU.
    Client(ConnId),
    /// The store writer's part.
    Writer(u64),
}

struct Conn {
    far: Far,
    came: VecDeque<ClientMsg>,
    queued: bool,
    outbox: Vec<ServerMsg>,
    /// What the client has not read, if it runs on this CPU.
    unread: Vec<ServerMsg>,
}

/// What a turn leads to, when it is over.
pub(super) enum Effect {
    Answers {
        to: Far,
        messages: Vec<ServerMsg>,
    },
    Ask {
        rank: RankId,
        messages: Vec<ClientMsg>,
    },
    Load {
        tag: Tag,
        requests: Vec<LoadRequest>,
    },
    Store {
        tag: Tag,
        batches: Vec<StoreBatch>,
    },
    SyncData {
        tag: Tag,
    },
    /// The journal gathers: look again then.
    Gather {
        at: u64,
    },
    Commit(Group),
    /// A client has read that.
    Heard {
        host: usize,
        messages: Vec<ServerMsg>,
    },
    Active,
    Failed(String),
}

/// What a rank did since its counts were taken last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Did {
    pub busy_ns: u64,
    /// Requests of clients that were answered.
    pub answered: u64,
    /// Requests that were another rank's.
    pub sent_away: u64,
    /// Turns that took something from a connection, and writes to one.
    pub reads: u64,
    pub writes: u64,
    pub loads: u64,
    pub commits: u64,
    pub journal_bytes: u64,
    /// Records that went to the store.
    pub records: u64,
    /// Parts of directories that they were of.
    pub batches: u64,
    /// What was said to other ranks.
    pub to_ranks: u64,
}

/// A rank and its CPU.
pub(super) struct Seat {
    pub(super) rank: Rank,
    /// A turn is planned, or goes on until then.
    pub(super) turn_at: Option<u64>,
    /// A look at the rank's deadline is planned.
    pub(super) tick_at: Option<u64>,
    pub(super) did: Did,
    /// When the last sync of the journal ends.
    pub(super) sync_ends: u64,
    cache_limit: u64,
    conns: Vec<Conn>,
    ready: VecDeque<Work>,
    /// Connections with something to read, and since when their thread has the CPU.
    readable: VecDeque<ConnId>,
    reads_since: Option<u64>,
    journal: Journal,
    order: DataOrder,
    /// Of the turn under way.
    out: Vec<Output>,
    touched: Vec<usize>,
    asks: BTreeMap<RankId, Vec<ClientMsg>>,
    quick: VecDeque<Input>,
    effects: Vec<Effect>,
}

impl Seat {
    pub(super) fn new(config: RankConfig) -> Self {
        Self {
            cache_limit: config.cache_bytes,
            rank: Rank::new(config),
            turn_at: None,
            tick_at: None,
            did: Did::default(),
            sync_ends: 0,
            conns: Vec::new(),
            ready: VecDeque::new(),
            readable: VecDeque::new(),
            reads_since: None,
            journal: Journal::default(),
            order: DataOrder::default(),
            out: Vec::new(),
            touched: Vec::new(),
            asks: BTreeMap::new(),
            quick: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    /// A new connection.
    pub(super) fn connect(&mut self, far: Far) -> ConnId {
        self.conns.push(Conn {
            far,
            came: VecDeque::new(),
            queued: false,
            outbox: Vec::new(),
            unread: Vec::new(),
        });
        let conn = ConnId(self.conns.len() as u64);
        // The thread that reads it has taken it in: nothing of it is read before the rank knows of it.
        self.ready.push_front(Work::Inputs(vec![Input::Connected { conn, peer: Peer::Trusted }]));
        conn
    }

    /// Messages of a connection have arrived.
    pub(super) fn receive(&mut self, conn: ConnId, messages: Vec<ClientMsg>) {
        let Some(known) = self.conns.get_mut(conn.0 as usize - 1) else { return };
        known.came.extend(messages);
        if !std::mem::replace(&mut known.queued, true) {
            // Else its thread waits for the CPU, or has it and looks again.
            if self.readable.is_empty() && self.reads_since.is_none() {
                self.ready.push_back(Work::Conns);
            }
            self.readable.push_back(conn);
        }
    }

    pub(super) fn receive_from_rank(&mut self, rank: RankId, messages: Vec<ServerMsg>) {
        self.ready.push_back(Work::FromRank(rank, messages));
    }

    /// Something else has happened.
    pub(super) fn say(&mut self, input: Input) {
        self.say_all(vec![input]);
    }

    pub(super) fn say_all(&mut self, inputs: Vec<Input>) {
        self.ready.push_back(Work::Inputs(inputs));
    }

    /// So many more workers are woken to read what is in memory.
    pub(super) fn wake_loads(&mut self, workers: usize) {
        self.ready.extend((0..workers).map(|_| Work::Load));
    }

    /// Whether such a worker is the next to have the CPU.
    pub(super) fn loads_next(&self) -> bool {
        matches!(self.ready.front(), Some(Work::Load))
    }

    /// That is what it has read.
    pub(super) fn has_read(&mut self, answers: Vec<Input>) {
        self.ready[0] = Work::Loaded(answers);
    }

    /// The store has answered.
    pub(super) fn loaded(&mut self, answers: Vec<Input>) {
        self.ready.push_back(Work::Loaded(answers));
    }

    /// A client that runs on this CPU has something to read.
    pub(super) fn tell_client(&mut self, conn: ConnId, messages: Vec<ServerMsg>) {
        let Some(known) = self.conns.get_mut(conn.0 as usize - 1) else { return };
        if known.unread.is_empty() {
            self.ready.push_back(Work::Client(conn));
        }
        known.unread.extend(messages);
    }

    /// What the writer's CPU does for so many records in one commit.
    pub(super) fn write(&mut self, costs: &Costs, records: u64, batches: u64) {
        self.ready.push_back(Work::Writer(costs.stored(records, batches)));
    }

    /// Whether anything wants the CPU, which nothing has. The thread of the connections sleeps when there is nothing to read.
    pub(super) fn wants_cpu(&mut self) -> bool {
        if self.readable.is_empty() && matches!(self.ready.front(), Some(Work::Conns)) {
            self.ready.pop_front();
            self.reads_since = None;
        }
        !self.ready.is_empty()
    }

    /// A group is on the disk.
    pub(super) fn synced(&mut self, group: Group) {
        self.did.commits += 1;
        self.did.journal_bytes += group.bytes;
        self.ready.push_back(Work::Durable(group));
    }

    /// The journal may have gathered for long enough.
    pub(super) fn gathered(&mut self, now: u64) {
        if self.journal.wants_cpu(now) {
            self.ready.push_front(Work::Journal);
        }
    }

    /// The next turn, which begins now. Answers its end and what follows from it then.
    pub(super) fn turn(&mut self, now: u64, costs: &Costs, client: ClientCosts) -> (u64, Vec<Effect>) {
        let mut at = now;
        match self.ready.pop_front() {
            Some(Work::Client(conn)) => return self.client_reads(conn, now, costs, client),
            Some(Work::Journal) => {
                at += costs.commit_begins();
                let group = self.journal.take();
                self.effects.push(Effect::Commit(group));
            }
            Some(Work::Loaded(answers)) => {
                at += costs.load_batch();
                for answer in answers {
                    if !self.cache_is_full() {
                        at += costs.grow(&answer);
                    }
                    self.step(answer, &mut at, costs);
                }
            }
            Some(Work::Durable(group)) => {
                self.step(Input::Durable(group.end), &mut at, costs);
                self.journal.synced();
            }
            Some(Work::Conns) => self.read_next(&mut at, costs),
            Some(Work::Load) => debug_assert!(false, "what it has read is known by now"),
            Some(Work::Inputs(inputs)) => {
                for input in inputs {
                    self.step(input, &mut at, costs);
                }
            }
            Some(Work::FromRank(rank, messages)) => {
                at += costs.read();
                for message in messages {
                    self.step(Input::FromRank { rank, message: Box::new(message) }, &mut at, costs);
                }
            }
            Some(Work::Writer(nanos)) => {
                let slice = nanos.min(SLICE_NS);
                at += slice;
                if nanos > slice {
                    self.ready.push_back(Work::Writer(nanos - slice));
                }
            }
            None => {}
        }
        if self.rank.deadline().is_some_and(|due| due.0 <= at) {
            self.step(Input::Tick, &mut at, costs);
        }
        self.end_turn(&mut at, costs);
        self.did.busy_ns += at - now;
        (at, std::mem::take(&mut self.effects))
    }

    /// As the rank sees it: it makes room for a sixteenth at a time.
    fn cache_is_full(&self) -> bool {
        let limit = self.cache_limit;
        self.rank.status().cache_bytes > limit - limit / 8
    }

    /// Of this time only what the rank loses by it is its own.
    fn client_reads(
        &mut self,
        conn: ConnId,
        now: u64,
        costs: &Costs,
        client: ClientCosts,
    ) -> (u64, Vec<Effect>) {
        let known = &mut self.conns[conn.0 as usize - 1];
        let messages = std::mem::take(&mut known.unread);
        let lost = costs.switched(messages.len());
        self.did.busy_ns += lost;
        let end = now + client.of(messages.len()) + lost;
        match known.far {
            Far::Host(host) => (end, vec![Effect::Heard { host, messages }]),
            Far::Rank(_) => (end, Vec::new()),
        }
    }

    /// The thread of the connections keeps the CPU while there is anything to read, but for no longer than its slice.
    fn read_next(&mut self, at: &mut u64, costs: &Costs) {
        let since = *self.reads_since.get_or_insert(*at);
        if let Some(conn) = self.readable.pop_front() {
            self.take_in(conn, at, costs);
        }
        let over = *at - since >= THREAD_NS;
        self.reads_since = self.reads_since.filter(|_| !over);
        if over && !self.readable.is_empty() {
            self.ready.push_back(Work::Conns);
        } else if !over {
            self.ready.push_front(Work::Conns);
        }
    }

    fn take_in(&mut self, conn: ConnId, at: &mut u64, costs: &Costs) {
        let known = &mut self.conns[conn.0 as usize - 1];
        let count = known.came.len().min(BATCH_MAX);
        let messages: Vec<ClientMsg> = known.came.drain(..count).collect();
        known.queued = !known.came.is_empty();
        if known.queued {
            self.readable.push_back(conn);
        }
        self.did.reads += 1;
        *at += costs.read();
        let far = known.far;
        for message in messages {
            *at += match far {
                Far::Host(_) => costs.message(&message),
                Far::Rank(_) => costs.rank_message(),
            };
            self.step(Input::Message { conn, message }, at, costs);
        }
    }

    /// Steps an input, and what is answered at once.
    fn step(&mut self, input: Input, at: &mut u64, costs: &Costs) {
        let mut next = Some(input);
        while let Some(input) = next.take().or_else(|| self.quick.pop_front()) {
            let now = Now { mono: Mono(*at), wall: Wall(EPOCH + *at as i64) };
            *at += costs.input(&input);
            if let Input::DataDone { tag, .. } = &input
                && let Some((tag, op)) = self.order.done(*tag)
            {
                self.run_data(tag, op);
            }
            let mut out = std::mem::take(&mut self.out);
            self.rank.step(now, input, &mut out);
            for output in out.drain(..) {
                self.sort(output, *at);
            }
            self.out = out;
        }
    }

    fn sort(&mut self, output: Output, at: u64) {
        match output {
            Output::Send { conn, message } => self.send(conn, message),
            Output::Append { position, bytes, urgent } => {
                self.journal.append(at, position, bytes.len() as u64);
                if urgent {
                    self.journal.hurry();
                }
            }
            Output::Commit => self.journal.hurry(),
            // Every run begins with an empty journal.
            Output::ReadJournal { from } => {
                self.say(Input::ReplayEnd { end: from, former: Incarnation(0) });
            }
            Output::Load { tag, requests } => {
                self.did.loads += requests.len() as u64;
                self.effects.push(Effect::Load { tag, requests });
            }
            Output::Store { tag, batches } => {
                self.did.records += records(&batches);
                self.did.batches += batches.len() as u64;
                self.effects.push(Effect::Store { tag, batches });
            }
            Output::Data { tag, op } => {
                if let Some((tag, op)) = self.order.admit(tag, op) {
                    self.run_data(tag, op);
                }
            }
            Output::SendRank { rank, message } => {
                self.did.to_ranks += 1;
                self.asks.entry(rank).or_default().push(message);
            }
            Output::Active => self.effects.push(Effect::Active),
            Output::Damaged { reason } => self.effects.push(Effect::Failed(reason)),
            Output::Wish(wish) => self.effects.push(Effect::Failed(format!("nothing moves here: {wish:?}"))),
            Output::Close { conn } => {
                let far = self.conns.get(conn.0 as usize - 1).map(|conn| conn.far);
                self.effects.push(Effect::Failed(format!("a connection was closed: {far:?}")));
            }
            Output::Trim { .. } | Output::Stopped | Output::Note { .. } => {}
        }
    }

    fn send(&mut self, conn: ConnId, message: ServerMsg) {
        let at = conn.0 as usize - 1;
        let Some(known) = self.conns.get_mut(at) else { return };
        match &message {
            ServerMsg::Reply { .. } | ServerMsg::Granted { .. } => self.did.answered += 1,
            ServerMsg::NotMine { .. } => self.did.sent_away += 1,
            ServerMsg::Welcome { .. }
            | ServerMsg::Refused { .. }
            | ServerMsg::Admin { .. }
            | ServerMsg::Recall { .. }
            | ServerMsg::Renewed { .. }
            | ServerMsg::Early { .. }
            | ServerMsg::Done { .. }
            | ServerMsg::Durable { .. }
            | ServerMsg::Numbers { .. }
            | ServerMsg::Join { .. }
            | ServerMsg::Damaged
            | ServerMsg::Map { .. } => {}
        }
        if known.outbox.is_empty() {
            self.touched.push(at);
        }
        known.outbox.push(message);
    }

    /// Small things are done by the thread that steps the rank; a sync is not.
    fn run_data(&mut self, tag: Tag, op: DataOp) {
        let result: Result<DataDone, StoreError> = match &op {
            DataOp::SyncAll | DataOp::Sync { .. } => return self.effects.push(Effect::SyncData { tag }),
            DataOp::Write { data, .. } => Ok(DataDone::Count(data.bytes().len() as u64)),
            DataOp::Zero { len, .. } | DataOp::Copy { len, .. } => Ok(DataDone::Count(*len)),
            DataOp::Truncate { .. }
            | DataOp::Allocate { .. }
            | DataOp::Redo { .. }
            | DataOp::Remove { .. } => Ok(DataDone::Done),
            DataOp::Read { .. } | DataOp::Seek { .. } | DataOp::StatFs => {
                return self.effects.push(Effect::Failed(format!("no workload does that: {op:?}")));
            }
        };
        self.quick.push_back(Input::DataDone { tag, result });
    }

    /// What was said leaves.
    fn end_turn(&mut self, at: &mut u64, costs: &Costs) {
        for conn in std::mem::take(&mut self.touched) {
            *at += costs.write();
            self.did.writes += 1;
            let conn = &mut self.conns[conn];
            let (to, messages) = (conn.far, std::mem::take(&mut conn.outbox));
            self.effects.push(Effect::Answers { to, messages });
        }
        for (rank, messages) in std::mem::take(&mut self.asks) {
            *at += costs.write();
            self.did.writes += 1;
            self.effects.push(Effect::Ask { rank, messages });
        }
        if self.journal.wants_cpu(*at) {
            self.ready.push_front(Work::Journal);
        } else if let Some(at) = self.journal.due() {
            self.effects.push(Effect::Gather { at });
        }
    }
}
