//! A rank with a store, a journal and data in memory around it, and scenarios played on it.
//!
//! Absent: the simulator; this driver keeps its order and fails only when told.

mod alone;
mod calls;
mod caps;
mod crash;
mod early;
mod files;
mod hostile;
mod loads;
mod names;
mod operations;
mod pace;
mod ranks;
mod restart;
mod sessions;
mod several;
mod stores;

use crate::config::{RankConfig, State};
use crate::input::{ConnId, Input, Peer, Tag};
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use proto::caps::Bits;
use proto::cluster::ClusterMap;
use proto::dentry::{DentryValue, encode_primary};
use proto::header::FragHeader;
use proto::inode::InodeCore;
use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::name::name_hash;
use proto::reply::{DirEntry, Outcome, Reply};
use proto::request::{NewNode, Request};
use proto::storeio::{
    DataDone, DataOp, LoadRequest, Loaded, Payload, Space, StoreBatch, StoreError, StoreKey, StoredDentry,
    Table,
};
use proto::{
    Attr, Cred, Errno, FileId, Frag, Incarnation, Ino, Name, NameHash, NodeRef, Position, RankId, SessionId,
    SnapId, Tid, Version, Writer,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use stdx::hash::HashSeed;
use stdx::time::MS;
use stdx::{Machine, Mono, Now, Wall};

pub(crate) const SEED: HashSeed = HashSeed([7; 16]);
pub(crate) const EMBEDDED: ConnId = ConnId(1);

type Records = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

fn key_bytes(key: StoreKey<'_>) -> (Table, Vec<u8>) {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    (key.table(), bytes)
}

/// What `format` writes, and what is made before a rank above 0 lives for the first time.
fn formatted(rank: RankId) -> Records {
    let mut records = Records::new();
    let own = Ino::orphans(rank);
    let dirs = [(Ino::SYSTEM, 3), (Ino::ROOT, 0), (Ino::LINKS, 0), (Ino(0x100), 0), (own, 0)];
    for (dir, subdirs) in dirs {
        let header = FragHeader { version: Version(1), entries: subdirs, subdirs, ..Default::default() };
        let mut w = Writer::new();
        header.encode(&mut w);
        records.insert(key_bytes(StoreKey::Header { dir, frag: Frag::WHOLE }), w.0);
    }
    let name = format!("orphans-{}", rank.0);
    let names = [("root", Ino::ROOT), ("links", Ino::LINKS), ("orphans-0", Ino(0x100)), (name.as_str(), own)];
    for (name, ino) in names {
        let core = InodeCore { ino, mode: 0o040_755, nlink: 1, change: 1, ..Default::default() };
        let mut w = Writer::new();
        encode_primary(&core, None, &mut w);
        let hash = name_hash(&SEED, name.as_bytes());
        records.insert(key_bytes(StoreKey::head(Ino::SYSTEM, hash, name.as_bytes())), w.0);
    }
    records
}

/// What passes from step to step.
const STEP_NS: u64 = 1_000;

/// The world around one rank.
pub(crate) struct World {
    pub rank: Rank,
    pub config: RankConfig,
    pub store: Records,
    pub journal: Vec<u8>,
    pub durable: usize,
    /// Appends become durable at once; otherwise with `sync`.
    pub auto_durable: bool,
    pub data: BTreeMap<FileId, (u32, Vec<u8>)>,
    /// Loads and data operations are kept back until `let_go`.
    pub hold_loads: bool,
    pub hold_data: bool,
    pub hold_stores: bool,
    /// Bytes of all batches so far.
    pub batch_bytes: usize,
    pub held: VecDeque<Input>,
    pub store_fails: Option<StoreError>,
    /// Store requests that still reach the store; later ones are lost with the power.
    pub stores_left: Option<usize>,
    pub redo_syncs: bool,
    pub sent: Vec<(ConnId, ServerMsg)>,
    /// What sessions say that they have a use for.
    pub wants: Bits,
    pub caps_max: u32,
    pub notes: Vec<String>,
    pub trims: Vec<Position>,
    pub data_ops: Vec<DataOp>,
    pub commits: usize,
    pub now: u64,
    inbox: VecDeque<Input>,
    tid: u64,
    pub sessions: BTreeMap<ConnId, SessionId>,
    pub incarnation: u64,
    /// Who began the newest segment of the journal, as its files say it.
    pub former: Incarnation,
    pub max_step_loads: usize,
    /// The most the cache and what is on its way to it took after a step.
    pub max_bytes: u64,
    /// Given to each life of the rank before it boots.
    pub map: Option<Arc<ClusterMap>>,
    /// What it said to other ranks, and to the coordinator.
    pub to_ranks: VecDeque<(RankId, ClientMsg)>,
    pub wishes: VecDeque<MapWish>,
    /// It takes so many steps, and then none until told otherwise.
    pub steps_left: Option<usize>,
}

impl World {
    pub(crate) fn with(config: impl Fn(&mut RankConfig)) -> Self {
        let mut base = RankConfig::tiny([1; 16], SEED, Incarnation(1));
        config(&mut base);
        let store = formatted(base.rank);
        Self::of(base, store, None)
    }

    /// A rank of perhaps several.
    pub(crate) fn of(base: RankConfig, store: Records, map: Option<Arc<ClusterMap>>) -> Self {
        let incarnation = base.incarnation.0;
        let mut world = Self {
            rank: Rank::new(base.clone()),
            config: base,
            store,
            journal: Vec::new(),
            durable: 0,
            auto_durable: true,
            data: BTreeMap::new(),
            hold_loads: false,
            hold_data: false,
            hold_stores: false,
            batch_bytes: 0,
            held: VecDeque::new(),
            store_fails: None,
            stores_left: None,
            redo_syncs: false,
            sent: Vec::new(),
            wants: Bits::NONE,
            caps_max: 0,
            notes: Vec::new(),
            trims: Vec::new(),
            data_ops: Vec::new(),
            commits: 0,
            now: 1_000 * MS,
            inbox: VecDeque::new(),
            tid: 0,
            sessions: BTreeMap::new(),
            incarnation,
            former: Incarnation(0),
            max_step_loads: 0,
            max_bytes: 0,
            map,
            to_ranks: VecDeque::new(),
            wishes: VecDeque::new(),
            steps_left: None,
        };
        world.boot();
        world.hello(EMBEDDED, Peer::Embedded, SessionId(0));
        world
    }

    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn boot(&mut self) {
        if let Some(map) = self.map.clone() {
            self.inject(Input::Map(map));
        }
        self.inject(Input::Boot);
        assert!(matches!(self.rank.state(), State::Active | State::Reconnect), "{:?}", self.notes);
    }

    pub(crate) fn hello(&mut self, conn: ConnId, peer: Peer, session: SessionId) -> Option<ServerMsg> {
        self.inject(Input::Connected { conn, peer });
        let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: 1, caps_max: self.caps_max };
        self.say(
            conn,
            ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: self.wants, at: self.at() },
        );
        self.welcomed(conn)
    }

    /// This rank, for who greets it.
    pub(crate) fn at(&self) -> At {
        At { rank: self.config.rank, ..At::default() }
    }

    pub(crate) fn welcomed(&mut self, conn: ConnId) -> Option<ServerMsg> {
        let at = self.sent.iter().position(|(c, m)| {
            *c == conn && matches!(m, ServerMsg::Welcome { .. } | ServerMsg::Refused { .. })
        })?;
        let (_, message) = self.sent.remove(at);
        if let ServerMsg::Welcome { session, .. } = &message {
            self.sessions.insert(conn, *session);
        }
        Some(message)
    }

    pub(crate) fn say(&mut self, conn: ConnId, message: ClientMsg) {
        self.inject(Input::Message { conn, message });
    }

    /// Power off: undurable journal bytes are gone, the store is as it is; a new incarnation boots.
    pub(crate) fn crash(&mut self) {
        self.crash_as(self.incarnation + 1);
    }

    pub(crate) fn crash_as(&mut self, incarnation: u64) {
        self.dies(incarnation);
        self.boot();
        self.hello(EMBEDDED, Peer::Embedded, SessionId(0));
    }

    /// The next life has not begun yet.
    pub(crate) fn dies(&mut self, incarnation: u64) {
        self.journal.truncate(self.durable);
        self.former = Incarnation(self.incarnation);
        self.incarnation = incarnation;
        self.config.incarnation = Incarnation(self.incarnation);
        self.rank = Rank::new(self.config.clone());
        self.inbox.clear();
        self.held.clear();
        self.sent.clear();
        self.to_ranks.clear();
        self.wishes.clear();
        self.sessions.clear();
        (self.hold_loads, self.hold_data, self.hold_stores, self.auto_durable) = (false, false, false, true);
        self.store_fails = None;
        self.stores_left = None;
    }

    pub(crate) fn inject(&mut self, input: Input) {
        self.inbox.push_back(input);
        self.pump();
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&mut self) {
        self.durable = self.journal.len();
        self.inject(Input::Durable(Position(self.durable as u64)));
    }

    pub(crate) fn let_go(&mut self) {
        (self.hold_loads, self.hold_data, self.hold_stores) = (false, false, false);
        self.inbox.append(&mut self.held);
        self.pump();
    }

    fn pump(&mut self) {
        let mut steps = 0;
        while self.one_step() {
            steps += 1;
            assert!(
                steps < 200_000,
                "the rank does not come to rest: {:?}",
                self.rank.operations(Mono(self.now), 9)
            );
        }
    }

    /// The next input, or a tick that is due.
    pub(crate) fn one_step(&mut self) -> bool {
        if self.steps_left == Some(0) {
            return false;
        }
        let due = self.rank.deadline().is_some_and(|at| at.0 <= self.now);
        let input = match self.inbox.pop_front() {
            Some(input) => input,
            None if due => Input::Tick,
            None => return false,
        };
        self.steps_left = self.steps_left.map(|left| left - 1);
        self.now += STEP_NS;
        let now = Now { mono: Mono(self.now), wall: Wall(self.now as i64) };
        let mut out = Vec::new();
        self.rank.step(now, input, &mut out);
        let status = self.rank.status();
        self.max_bytes = self.max_bytes.max(status.cache_bytes + status.loading_bytes);
        for output in out {
            self.carry_out(output);
        }
        true
    }

    /// Lets time pass, ticking at every deadline.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while let Some(at) = self.rank.deadline().filter(|at| at.0 <= end && self.steps_left != Some(0)) {
            self.now = self.now.max(at.0);
            self.inject(Input::Tick);
        }
        self.now = end;
        self.inject(Input::Tick);
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { conn, message } => self.sent.push((conn, message)),
            Output::Close { .. } | Output::Active | Output::Stopped => {}
            Output::ReadJournal { from } => {
                let bytes = self.journal[from.0 as usize..].to_vec();
                self.inbox.push_back(Input::Replay { position: from, entries: bytes });
                let end = Position(self.journal.len() as u64);
                self.inbox.push_back(Input::ReplayEnd { end, former: self.former });
            }
            Output::Append { position, bytes, urgent } => {
                assert_eq!(position.0 as usize, self.journal.len());
                self.journal.extend(bytes);
                self.commits += usize::from(urgent);
                self.durable_soon();
            }
            Output::Commit => {
                self.commits += 1;
                self.durable_soon();
            }
            Output::Trim { before } => self.trims.push(before),
            Output::SendRank { rank, message } => self.to_ranks.push_back((rank, message)),
            Output::Wish(wish) => self.wishes.push_back(wish),
            Output::Load { tag, requests } => {
                self.max_step_loads = self.max_step_loads.max(requests.len());
                let results = requests.iter().map(|r| Ok(self.load(r))).collect();
                self.later(self.hold_loads, Input::Loaded { tag, results });
            }
            Output::Store { tag, batches } => self.store_batches(tag, batches),
            Output::Data { tag, op } => {
                self.data_ops.push(op.clone());
                let result = self.run_data(op);
                self.later(self.hold_data, Input::DataDone { tag, result });
            }
            Output::Damaged { reason } => self.notes.push(format!("damaged: {reason}")),
            Output::Note { text, .. } => self.notes.push(text),
        }
    }

    fn durable_soon(&mut self) {
        if self.auto_durable {
            self.durable = self.journal.len();
            self.inbox.push_back(Input::Durable(Position(self.durable as u64)));
        }
    }

    fn later(&mut self, hold: bool, input: Input) {
        if hold { self.held.push_back(input) } else { self.inbox.push_back(input) }
    }
}

pub(crate) fn n(name: &str) -> Name {
    Name::new(name.as_bytes()).expect("a name")
}

pub(crate) fn root() -> NodeRef {
    NodeRef::bare(Ino::ROOT)
}

pub(crate) fn node(attr: &Attr) -> NodeRef {
    NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
}

pub(crate) fn mode(mode: u32) -> NewNode {
    NewNode { mode, umask: 0, rdev: 0 }
}
