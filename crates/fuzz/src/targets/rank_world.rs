//! A rank with stores in memory, one honest client and two that may say anything.
//!
//! Absent: threads, and delays but for those that the input names; what is said (`rank_session`).

use mds::Rank;
use mds::input::{ConnId, Input, Peer, Tag};
use mds::output::Output;
use mds::{RankConfig, State};
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, LockSpec, NewNode, Request};
use proto::storeio::DataOp;
use proto::{Cred, Errno, FileKind, Incarnation, Ino, Name, NodeRef, Position, SessionId, Tid};
use std::collections::{BTreeSet, VecDeque};
use stdx::hash::HashSeed;
use stdx::time::{MS, SECOND};
use stdx::{Machine, Mono, Now, Wall};
use store::SimDisk;
use store::data::{DataFiles, Limits};
use store::meta::MetaStore;
use store::meta_memory::MemoryMeta;

/// The peers, by their place.
pub(super) const HONEST: usize = 0;
pub(super) const ROOT_PEER: usize = 1;
pub(super) const USER_PEER: usize = 2;
/// One that comes at the end.
const VISITOR: usize = 3;

/// Steps of the rank on one message, its data operations and ticks included.
const STEPS_MAX: usize = 20_000;
/// Nobody is waited for longer: three leases, until a session that never finishes is given up, one until its silence is, and looks.
const PATIENCE: u64 = 45 * SECOND;
const SEED: HashSeed = HashSeed([9; 16]);
const SMALL_BYTES: u32 = 64;
/// What peers may write before there is no space.
const DISK_BYTES: u64 = 8 << 20;

/// One end of a session.
#[derive(Debug, Default)]
struct Client {
    /// None before the first.
    conn: Option<ConnId>,
    session: SessionId,
    over: bool,
    tid: u64,
    /// The outcomes that nobody has looked at.
    heard: Vec<(Tid, Outcome)>,
}

/// All of it.
pub(super) struct World {
    rank: Rank,
    life: u64,
    meta: MemoryMeta,
    data: DataFiles<SimDisk>,
    journal: Vec<(Position, Vec<u8>)>,
    durable: Position,
    clients: [Client; 4],
    conns: u64,
    now: u64,
    renewed: u64,
    inbox: VecDeque<Input>,
    damaged: Option<String>,
    stopped: bool,
    /// Who is not honest is limited to the honest client's directory.
    limited: bool,
    /// Names found at the end.
    pub(super) names: usize,
}

fn lock() -> LockSpec {
    LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: u64::MAX, pid: 1 }
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text.as_bytes()).map_err(|_| format!("{text} is no name"))
}

/// Where the honest client's file is.
const FILE: NodeRef = NodeRef::bare(Ino(Ino::FIRST_COUNTER + 1));
/// And its directory.
const DIRECTORY: Ino = Ino(Ino::FIRST_COUNTER);

impl World {
    /// A file system with an honest client's directory and its file, which it has open and locked.
    pub(super) fn new(limited: bool) -> Result<Self, String> {
        let meta = MemoryMeta::new(1);
        meta.apply(&store::initial::initial_batches(&SEED, Wall(0), (0, 0)))
            .map_err(|error| error.to_string())?;
        let disk = SimDisk::new(1);
        disk.set_capacity(DISK_BYTES);
        let data = DataFiles::open(disk, SMALL_BYTES, Limits::tiny()).map_err(|error| error.to_string())?;
        let mut world = Self {
            rank: Rank::new(RankConfig::tiny([1; 16], SEED, Incarnation(1))),
            life: 1,
            meta,
            data,
            journal: Vec::new(),
            durable: Position(0),
            clients: Default::default(),
            conns: 0,
            now: SECOND,
            renewed: 0,
            inbox: [Input::Boot].into(),
            damaged: None,
            stopped: false,
            limited,
            names: 0,
        };
        world.run()?;
        for peer in [HONEST, ROOT_PEER, USER_PEER] {
            world.greet(peer)?;
        }
        let parent = NodeRef::bare(Ino::ROOT);
        let new = NewNode { mode: 0o755, umask: 0, rdev: 0 };
        let made = world.call(HONEST, Request::MkDir { parent, name: name("honest")?, new: new.clone() })?;
        let Ok(Reply::Attr(dir)) = made else { return Err(format!("mkdir: {made:?}")) };
        let parent = NodeRef { ino: dir.ino, parent: dir.parent, hash: dir.hash };
        let made = world.call(HONEST, Request::Create { parent, name: name("file")?, new, flags: 2 })?;
        match made {
            Ok(Reply::Created { attr, .. }) if attr.ino == FILE.ino => {}
            other => return Err(format!("create: {other:?}")),
        }
        match world.call(HONEST, Request::SetLock { node: FILE, lock: lock(), wait: false })? {
            Ok(_) => Ok(world),
            other => Err(format!("lock: {other:?}")),
        }
    }

    pub(super) const fn is_over(&self, peer: usize) -> bool {
        self.clients[peer].over
    }

    /// A new connection of a peer, under the session it had, if it had one.
    fn greet(&mut self, peer: usize) -> Result<(), String> {
        self.conns += 1;
        let conn = ConnId(self.conns);
        self.clients[peer].conn = Some(conn);
        let user = Cred { uid: 1000, gid: 1000, groups: Vec::new() };
        let kind = if peer == USER_PEER { Peer::User(user) } else { Peer::Trusted };
        let wants = match peer {
            HONEST | VISITOR => Bits::NONE,
            _ => Bits::ATTRS.with(Bits::FC).with(Bits::DX).with(Bits::ALONE),
        };
        let info = ClientInfo { host: "h".into(), mount: "/m".into(), pid: peer as u32, caps_max: 0 };
        let session = self.clients[peer].session;
        self.inbox.push_back(Input::Connected { conn, peer: kind });
        if self.limited && !matches!(peer, HONEST | VISITOR) {
            self.inbox.push_back(Input::Limit { conn, dir: DIRECTORY });
        }
        let message = ClientMsg::Hello { protocol: PROTOCOL, session, info, wants, at: At::default() };
        self.inbox.push_back(Input::Message { conn, message });
        self.run()
    }

    pub(super) fn say(&mut self, peer: usize, message: ClientMsg) -> Result<(), String> {
        let Client { conn, over, .. } = self.clients[peer];
        if let Some(conn) = conn.filter(|_| !over) {
            self.inbox.push_back(Input::Message { conn, message });
            self.run()?;
        }
        Ok(())
    }

    /// The connection breaks, and another one takes its place.
    pub(super) fn come_back(&mut self, peer: usize) -> Result<(), String> {
        let conn = self.clients[peer].conn;
        self.inbox.extend(conn.map(|conn| Input::Disconnected { conn }));
        self.run()?;
        self.clients[peer].over = false;
        if self.clients[peer].session == SessionId(0) { Ok(()) } else { self.greet(peer) }
    }

    /// The rank dies, with it what was not durable, and lives again; the honest client has everything back before anybody else
    /// says anything, and what the others had they have to say themselves.
    pub(super) fn crash(&mut self) -> Result<(), String> {
        let durable = self.durable;
        self.journal.retain(|(position, _)| *position < durable);
        self.life += 1;
        self.rank = Rank::new(RankConfig::tiny([1; 16], SEED, Incarnation(self.life)));
        self.inbox = [Input::Boot].into();
        self.run()?;
        for peer in [HONEST, ROOT_PEER, USER_PEER] {
            self.clients[peer].over = false;
            self.greet(peer)?;
        }
        let locks = vec![lock()];
        self.say(HONEST, ClientMsg::Reclaim { node: FILE, count: 1, writes: true, locks })?;
        self.say(HONEST, ClientMsg::Reclaimed)
    }

    /// Time passes; who is honest renews its lease.
    pub(super) fn pass(&mut self, ms: u64) -> Result<(), String> {
        let end = self.now + ms * MS;
        while self.now < end {
            let due = self.rank.deadline().map_or(end, |at| at.0);
            self.now =
                due.clamp(self.now + 1, end.max(self.now + 1)).min(self.renewed + SECOND).max(self.now + 1);
            if self.now >= self.renewed + SECOND {
                self.renewed = self.now;
                for peer in [HONEST, VISITOR] {
                    self.say(peer, ClientMsg::Renew { number: 1 })?;
                }
            }
            self.inbox.push_back(Input::Tick);
            self.run()?;
        }
        self.sync()
    }

    fn sync(&mut self) -> Result<(), String> {
        let end = self.journal.last().map(|(at, bytes)| Position(at.0 + bytes.len() as u64));
        self.durable = self.durable.max(end.unwrap_or_default());
        self.inbox.push_back(Input::Durable(self.durable));
        self.run()
    }

    /// An answer of the rank, within its patience.
    fn call(&mut self, peer: usize, request: Request) -> Result<Outcome, String> {
        let client = &mut self.clients[peer];
        client.tid += 1;
        let (tid, until) = (Tid(client.tid), self.now + PATIENCE);
        let text = format!("{request:?}");
        self.say(peer, ClientMsg::Request { tid, floor: tid, cred: Cred::ROOT, request })?;
        self.sync()?;
        loop {
            let heard = &mut self.clients[peer].heard;
            if let Some(at) = heard.iter().position(|(of, _)| *of == tid) {
                return Ok(heard.swap_remove(at).1);
            }
            if self.now > until {
                return Err(format!("no answer to {text:.80}"));
            }
            if self.clients[peer].over {
                return Err(format!("the session of {peer} was ended"));
            }
            self.pass(500)?;
        }
    }

    /// What must be so whatever was said, now and after one more crash.
    pub(super) fn look(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            self.greet(VISITOR)?;
            match self
                .call(VISITOR, Request::TestLock { node: FILE, lock: LockSpec { owner: 2, ..lock() } })?
            {
                Ok(Reply::Lock(Some(_))) => {}
                other => return Err(format!("the honest client's lock: {other:?}")),
            }
            let probe = name(&format!("probe-{}", self.life))?;
            let new = NewNode { mode: 0o755, umask: 0, rdev: 0 };
            let made =
                self.call(HONEST, Request::MkDir { parent: NodeRef::bare(Ino::ROOT), name: probe, new })?;
            if !matches!(made, Ok(_) | Err(Errno::EEXIST | Errno::ENOSPC)) {
                return Err(format!("the honest client's mkdir: {made:?}"));
            }
            self.walk()?;
            self.crash()?;
            self.clients[VISITOR] = Client::default();
        }
        Ok(())
    }

    /// No inode is in two places, nothing is found that cannot be stated.
    fn walk(&mut self) -> Result<(), String> {
        let (mut todo, mut seen) = (vec![NodeRef::bare(Ino::ROOT)], BTreeSet::new());
        self.names = 0;
        while let Some(dir) = todo.pop() {
            let listing = Request::ReadDir { dir, after: 0, attrs: true, bytes_max: 65_536 };
            let Ok(Reply::Entries { entries, .. }) = self.call(VISITOR, listing)? else {
                return Err(format!("directory {} cannot be listed", dir.ino.0));
            };
            for entry in entries {
                self.names += 1;
                let attr = entry.attr.ok_or("an entry without attributes")?;
                if attr.ino != entry.ino || attr.kind() != entry.kind {
                    return Err(format!("{} leads to {}", entry.ino.0, attr.ino.0));
                }
                if attr.kind() == FileKind::Directory || attr.nlink == 1 {
                    if !seen.insert(attr.ino) {
                        return Err(format!("inode {} is in two places", attr.ino.0));
                    }
                    if attr.kind() == FileKind::Directory {
                        todo.push(NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash });
                    }
                }
            }
        }
        Ok(())
    }

    /// Until the rank waits for somebody.
    fn run(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        for _ in 0..STEPS_MAX {
            let due = self.rank.deadline().is_some_and(|at| at.0 <= self.now);
            let input = match self.inbox.pop_front() {
                Some(input) => input,
                None if due => Input::Tick,
                None => return Ok(()),
            };
            self.now += 1_000;
            self.rank.step(Now { mono: Mono(self.now), wall: Wall(self.now as i64) }, input, &mut out);
            out.drain(..).for_each(|output| self.carry_out(output));
            if let Some(reason) = self.damaged.take() {
                return Err(format!("the rank is damaged: {reason}"));
            }
            if self.stopped || self.rank.state() == State::Stopped {
                return Err("the rank has stopped".to_owned());
            }
        }
        Err("the rank does not come to rest".to_owned())
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { conn, message } => self.hear(conn, message),
            Output::Close { conn } => {
                self.clients
                    .iter_mut()
                    .filter(|client| client.conn == Some(conn))
                    .for_each(|client| client.over = true);
            }
            Output::ReadJournal { from } => {
                for (position, bytes) in self.journal.iter().filter(|(at, _)| *at >= from) {
                    self.inbox.push_back(Input::Replay { position: *position, entries: bytes.clone() });
                }
                self.inbox
                    .push_back(Input::ReplayEnd { end: self.durable, former: Incarnation(self.life - 1) });
            }
            Output::Append { position, bytes, .. } => {
                self.journal.push((position, bytes));
                // Before anybody is there nothing is lost.
                if self.rank.state() != State::Active {
                    self.durable_soon();
                }
            }
            Output::Load { tag, requests } => {
                let results = self.meta.load(&requests);
                self.inbox.push_back(Input::Loaded { tag, results });
            }
            Output::Store { tag, batches } => {
                let result = self.meta.apply(&batches);
                self.inbox.push_back(Input::Stored { tag, result });
            }
            Output::Data { tag, op } => self.data(tag, &op),
            Output::Damaged { reason } => self.damaged = Some(reason),
            Output::Stopped => self.stopped = true,
            Output::SendRank { .. } | Output::Wish(_) => self.damaged = Some("asks for another rank".into()),
            Output::Commit | Output::Trim { .. } | Output::Active | Output::Note { .. } => {}
        }
    }

    fn durable_soon(&mut self) {
        if let Some((at, bytes)) = self.journal.last() {
            self.durable = Position(at.0 + bytes.len() as u64);
            self.inbox.push_back(Input::Durable(self.durable));
        }
    }

    fn data(&mut self, tag: Tag, op: &DataOp) {
        let result = self.data.run(op);
        self.inbox.push_back(Input::DataDone { tag, result });
    }

    fn hear(&mut self, conn: ConnId, message: ServerMsg) {
        let Some(at) = self.clients.iter().position(|client| client.conn == Some(conn)) else { return };
        let client = &mut self.clients[at];
        match message {
            ServerMsg::Welcome { session, .. } => client.session = session,
            ServerMsg::Refused { .. } => client.over = true,
            ServerMsg::Reply { tid, outcome }
            | ServerMsg::Granted { tid, outcome, .. }
            | ServerMsg::Early { tid, outcome, .. }
                if at == HONEST || at == VISITOR =>
            {
                client.heard.push((tid, outcome));
            }
            _ => {}
        }
    }
}
