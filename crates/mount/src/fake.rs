//! A small rank in memory behind a connector, for tests of the edges: one process, no durability.
//!
//! It keeps the session contract (tids, results, resume) to the letter and the file system
//! only as far as tests need it. What it grants and recalls the test says: it looks at no conflict.
//!
//! Absent: permissions, ACLs, byte-range conflicts (any two owners conflict, unless both read).

mod early;
mod tree;

use crate::mount::lock;
use early::Early;
use proto::caps::{Bits, Grants, Recalled, Returned};
use proto::message::{ClientMsg, PROTOCOL, ServerMsg};
use proto::name::Name;
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, LockSpec, Request};
use proto::storeio::Payload;
use proto::{Errno, Ino, SessionId, Tid};
use runtime::port::{Connector, Port, PortError, Sink};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tree::Tree;

/// The rank. Clones are the same rank.
#[derive(Clone, Default)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    said: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    tree: Tree,
    sessions: BTreeMap<SessionId, Session>,
    conns: BTreeMap<u64, Conn>,
    next: u64,
    locks: Vec<(SessionId, Ino, LockSpec)>,
    waits: Vec<Wait>,
    seen: Vec<Request>,
    /// Which requests are kept unanswered.
    hold: Option<fn(&Request) -> bool>,
    held: Vec<(u64, ClientMsg)>,
    sends: u64,
    embedded: bool,
    refuse_connect: bool,
    lease_ms: u32,
    /// Each session is granted what it wants.
    granting: bool,
    returned: Vec<Returned>,
    offered: Vec<Ino>,
    settled: u32,
    early: Early,
}

#[derive(Default)]
struct Session {
    results: BTreeMap<Tid, Outcome>,
    opens: BTreeMap<Ino, u32>,
    /// It was resumed: the rank has its opens and locks, and what is claimed is nothing new.
    lives_on: bool,
    wants: Bits,
}

struct Conn {
    sink: Arc<dyn Sink>,
    session: SessionId,
}

struct Wait {
    conn: u64,
    session: SessionId,
    tid: Tid,
    ino: Ino,
    lock: LockSpec,
}

/// Messages for connections, sent when no mutex is held.
type Posts = Vec<(u64, ServerMsg)>;

impl Fake {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        let fake = Self::default();
        lock(&fake.state).lease_ms = 10_000;
        fake
    }

    /// Connections last as long as the rank, as in one process.
    #[must_use]
    pub fn embedded(self) -> Self {
        lock(&self.state).embedded = true;
        self
    }

    /// How to reach it.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::new(self.clone())
    }

    /// All requests executed so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Request> {
        lock(&self.state).seen.clone()
    }

    /// Forgets what was executed so far.
    pub fn clear_seen(&self) {
        lock(&self.state).seen.clear();
    }

    /// Opens all sessions have of an inode.
    #[must_use]
    pub fn opens(&self, ino: Ino) -> u32 {
        let state = lock(&self.state);
        state.sessions.values().filter_map(|session| session.opens.get(&ino)).sum()
    }

    /// Locks held and waits, over all sessions.
    #[must_use]
    pub fn locks(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.locks.len(), state.waits.len())
    }

    /// Sessions open.
    #[must_use]
    pub fn sessions(&self) -> usize {
        lock(&self.state).sessions.len()
    }

    /// From now on requests are received but not executed.
    pub fn hold(&self) {
        self.hold_only(|_| true);
    }

    /// The same for some requests.
    pub fn hold_only(&self, which: fn(&Request) -> bool) {
        lock(&self.state).hold = Some(which);
    }

    /// Requests received and not executed.
    #[must_use]
    pub fn held(&self) -> usize {
        lock(&self.state).held.len()
    }

    /// How often anything was sent to it.
    #[must_use]
    pub fn sends(&self) -> u64 {
        lock(&self.state).sends
    }

    /// Executes what was held, in order.
    pub fn release(&self) {
        for (conn, message) in self.take_held() {
            let posts = lock(&self.state).receive(conn, message);
            self.post(posts);
        }
    }

    /// The same; the answers and behind them `last` arrive together, so that who hands the answers out has heard it all.
    pub fn release_with(&self, last: &ServerMsg) {
        let mut batches: BTreeMap<u64, Vec<ServerMsg>> = BTreeMap::new();
        for (conn, message) in self.take_held() {
            for (to, post) in lock(&self.state).receive(conn, message) {
                batches.entry(to).or_default().push(post);
            }
        }
        for (conn, mut batch) in batches {
            let sink = lock(&self.state).conns.get(&conn).map(|conn| Arc::clone(&conn.sink));
            if let Some(sink) = sink {
                batch.push(last.clone());
                sink.messages(batch);
            }
        }
    }

    fn take_held(&self) -> Vec<(u64, ClientMsg)> {
        let mut state = lock(&self.state);
        state.hold = None;
        std::mem::take(&mut state.held)
    }

    /// Breaks every connection; sessions stay. What was held is lost.
    pub fn cut(&self) {
        let conns = {
            let mut state = lock(&self.state);
            state.held.clear();
            state.waits.clear();
            std::mem::take(&mut state.conns)
        };
        for conn in conns.into_values() {
            conn.sink.disconnected();
        }
    }

    /// Forgets every session, as an eviction does.
    pub fn evict(&self) {
        let mut state = lock(&self.state);
        state.sessions.clear();
        state.locks.clear();
    }

    /// Whether each session is granted, with each answer, what it wants. Answers given again grant nothing.
    pub fn grant(&self, granting: bool) {
        lock(&self.state).granting = granting;
    }

    /// Takes something back from every session; `name`: the directory and the name that goes.
    ///
    /// # Panics
    /// When there can be no such name.
    pub fn recall(&self, ino: Ino, bits: Bits, name: Option<(Ino, &[u8])>) {
        let name = name.map(|(dir, name)| (dir, Name::new(name).expect("a name")));
        self.say(&ServerMsg::Recall { list: vec![Recalled { ino, bits, number: 0, name }] });
    }

    /// What sessions said to have dropped, in order.
    #[must_use]
    pub fn returned(&self) -> Vec<Returned> {
        lock(&self.state).returned.clone()
    }

    /// Waits until sessions have offered so much that they do not use, and what that is.
    ///
    /// # Panics
    /// When they do not in time.
    #[must_use]
    pub fn wait_offered(&self, count: usize, patience: Duration) -> Vec<Ino> {
        self.wait(patience, |state| state.offered.len() >= count);
        lock(&self.state).offered.clone()
    }

    /// Waits until sessions have given something back so many times.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn wait_returned(&self, times: usize, patience: Duration) {
        self.wait(patience, |state| state.returned.len() >= times);
    }

    /// How often a session said `Settled`.
    #[must_use]
    pub fn settled(&self) -> u32 {
        lock(&self.state).settled
    }

    /// Waits until sessions have said `Settled` so many times.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn wait_settled(&self, times: u32, patience: Duration) {
        self.wait(patience, |state| state.settled >= times);
    }

    fn wait(&self, patience: Duration, what: impl Fn(&State) -> bool) {
        let until = Instant::now() + patience;
        let mut state = lock(&self.state);
        while !what(&state) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not in time");
            state = self.said.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether connecting fails.
    pub fn refuse_connect(&self, refuse: bool) {
        lock(&self.state).refuse_connect = refuse;
    }

    /// Says something to every connection.
    pub fn say(&self, message: &ServerMsg) {
        let posts = lock(&self.state).conns.keys().map(|conn| (*conn, message.clone())).collect();
        self.post(posts);
    }

    fn post(&self, posts: Posts) {
        for (conn, message) in posts {
            let sink = lock(&self.state).conns.get(&conn).map(|conn| Arc::clone(&conn.sink));
            if let Some(sink) = sink {
                sink.messages(vec![message]);
            }
        }
    }
}

impl Connector for Fake {
    fn connect(&self, sink: Arc<dyn Sink>) -> Result<Arc<dyn Port>, PortError> {
        let mut state = lock(&self.state);
        if state.refuse_connect {
            let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return Err(PortError::Unreachable { at: self.describe(), source });
        }
        state.next += 1;
        let conn = state.next;
        state.conns.insert(conn, Conn { sink, session: SessionId(0) });
        Ok(Arc::new(FakePort { state: Arc::downgrade(&self.state), fake: self.clone(), conn }))
    }

    fn ends_with_rank(&self) -> bool {
        lock(&self.state).embedded
    }

    fn describe(&self) -> String {
        "fake".to_owned()
    }
}

struct FakePort {
    state: Weak<Mutex<State>>,
    fake: Fake,
    conn: u64,
}

impl Port for FakePort {
    fn send(&self, messages: Vec<ClientMsg>, answers: &mut Vec<ServerMsg>) -> Result<(), PortError> {
        let state = self.state.upgrade().ok_or(PortError::Lost)?;
        lock(&state).sends += 1;
        for message in messages {
            let posts = {
                let mut state = lock(&state);
                if !state.conns.contains_key(&self.conn) {
                    return Err(PortError::Lost);
                }
                let holds = match (&message, state.hold) {
                    (ClientMsg::Request { request, .. }, Some(holds)) => holds(request),
                    _ => false,
                };
                if holds {
                    state.held.push((self.conn, message));
                    continue;
                }
                state.receive(self.conn, message)
            };
            self.fake.said.notify_all();
            let (own, others): (Posts, Posts) = posts.into_iter().partition(|(conn, _)| *conn == self.conn);
            answers.extend(own.into_iter().map(|(_, message)| message));
            self.fake.post(others);
        }
        Ok(())
    }

    fn close(&self) {
        if let Some(state) = self.state.upgrade() {
            lock(&state).conns.remove(&self.conn);
        }
    }
}

impl State {
    fn receive(&mut self, conn: u64, message: ClientMsg) -> Posts {
        let Some(session) = self.conns.get(&conn).map(|conn| conn.session) else { return Vec::new() };
        match message {
            ClientMsg::Hello { session, wants, .. } => self.hello(conn, session, wants),
            ClientMsg::Request { tid, floor, request, .. } => {
                let Some(known) = self.sessions.get_mut(&session) else { return Vec::new() };
                known.results.retain(|tid, _| *tid >= floor);
                if let Some(outcome) = known.results.get(&tid) {
                    return vec![(conn, ServerMsg::Reply { tid, outcome: outcome.clone() })];
                }
                self.seen.push(kept(&request));
                self.request(conn, session, tid, &request)
            }
            ClientMsg::Cancel { tid } => {
                let before = self.waits.len();
                self.waits.retain(|wait| wait.session != session || wait.tid != tid);
                match self.waits.len() < before {
                    true => vec![(conn, ServerMsg::Reply { tid, outcome: Err(Errno::EINTR) })],
                    false => Vec::new(),
                }
            }
            ClientMsg::Reclaim { node, count, locks, .. } => {
                let Some(known) = self.sessions.get_mut(&session).filter(|known| !known.lives_on) else {
                    return Vec::new();
                };
                known.opens.insert(node.ino, count);
                self.locks.retain(|(holder, ino, _)| *holder != session || *ino != node.ino);
                self.locks.extend(locks.into_iter().map(|lock| (session, node.ino, lock)));
                Vec::new()
            }
            ClientMsg::Goodbye => {
                self.sessions.remove(&session);
                self.locks.retain(|(holder, _, _)| *holder != session);
                Vec::new()
            }
            ClientMsg::Returned { list } => {
                self.returned.extend(list);
                Vec::new()
            }
            ClientMsg::Idle { list } => {
                self.offered.extend(list);
                Vec::new()
            }
            ClientMsg::Settled => {
                self.settled += 1;
                Vec::new()
            }
            ClientMsg::Renew { number } => vec![(conn, ServerMsg::Renewed { number })],
            ClientMsg::Performed { tid, floor, told, request, .. } => {
                self.performed(conn, session, (tid, floor), told, &request)
            }
            ClientMsg::Presented => {
                self.presented();
                Vec::new()
            }
            ClientMsg::Reclaimed | ClientMsg::Admin { .. } => Vec::new(),
        }
    }

    fn hello(&mut self, conn: u64, former: SessionId, wants: Bits) -> Posts {
        let resumed = self.sessions.contains_key(&former);
        if former != SessionId(0) && !resumed {
            let (errno, reason) = (Errno::ESTALE.0 as u32, "the session was evicted".to_owned());
            return vec![(conn, ServerMsg::Refused { errno, reason })];
        }
        self.next += 1;
        let session = if resumed { former } else { SessionId(self.next) };
        let known = self.sessions.entry(session).or_default();
        (known.wants, known.lives_on) = (wants, resumed);
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.session = session;
        }
        let welcome = ServerMsg::Welcome {
            protocol: PROTOCOL,
            session,
            incarnation: proto::Incarnation(1),
            fsid: [7; 16],
            resumed,
            lease_ms: self.lease_ms,
            root: Ino::ROOT,
            synced: true,
        };
        let mut posts = vec![(conn, welcome)];
        if !resumed {
            self.greet_early(conn, wants, &mut posts);
        }
        posts
    }

    fn request(&mut self, conn: u64, session: SessionId, tid: Tid, request: &Request) -> Posts {
        let outcome = match request {
            Request::SetLock { node, lock, wait } => match self.take_lock(session, node.ino, *lock) {
                Err(_) if *wait => {
                    self.waits.push(Wait { conn, session, tid, ino: node.ino, lock: *lock });
                    return Vec::new();
                }
                outcome => outcome,
            },
            Request::ReleaseLocks { node, flock, owner } => {
                self.locks.retain(|(holder, ino, lock)| {
                    *holder != session || *ino != node.ino || lock.flock != *flock || lock.owner != *owner
                });
                Ok(Reply::Ok)
            }
            Request::TestLock { node, lock } => Ok(Reply::Lock(self.in_the_way(session, node.ino, lock))),
            Request::Release { node, count } => {
                self.count(session, node.ino, -i64::from(*count));
                Ok(Reply::Ok)
            }
            other => self.tree.execute(other),
        };
        self.count_opened(session, request, &outcome);
        if let Some(session) = self.sessions.get_mut(&session) {
            session.results.insert(tid, outcome.clone());
        }
        let mut posts = vec![(conn, self.answer(session, tid, request, outcome))];
        posts.append(&mut self.unblocked());
        posts
    }

    fn count_opened(&mut self, session: SessionId, request: &Request, outcome: &Outcome) {
        if matches!(request, Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. })
            && let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = outcome
        {
            self.count(session, attr.ino, 1);
        }
    }

    /// A reply, with what is granted.
    fn answer(&mut self, session: SessionId, tid: Tid, request: &Request, outcome: Outcome) -> ServerMsg {
        let wants = self
            .sessions
            .get(&session)
            .map_or(Bits::NONE, |session| session.wants.without(Bits::DX.with(Bits::ALONE)));
        let grants = match &outcome {
            Ok(Reply::Attr(_) | Reply::Created { .. }) => Grants::One(wants),
            Ok(Reply::Entries { entries, .. }) => Grants::Each(entries.iter().map(|_| wants).collect()),
            _ => Grants::None,
        };
        let granted = self.granting && wants != Bits::NONE && grants != Grants::None;
        let left = if granted { &grants } else { &Grants::None };
        if let Some(early) = self.early_answer(session, tid, request, &outcome, left) {
            return early;
        }
        match granted {
            true => ServerMsg::Granted { tid, outcome, grants },
            false => ServerMsg::Reply { tid, outcome },
        }
    }

    fn count(&mut self, session: SessionId, ino: Ino, by: i64) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        let opens = session.opens.entry(ino).or_default();
        *opens = opens.saturating_add_signed(by as i32);
        if *opens == 0 {
            session.opens.remove(&ino);
        }
    }

    fn in_the_way(&self, session: SessionId, ino: Ino, lock: &LockSpec) -> Option<LockSpec> {
        let conflicts = |(holder, at, held): &&(SessionId, Ino, LockSpec)| {
            *at == ino
                && held.flock == lock.flock
                && (*holder != session || held.owner != lock.owner)
                && !(held.kind == LockKind::Read && lock.kind == LockKind::Read)
        };
        self.locks.iter().find(conflicts).map(|(_, _, held)| *held)
    }

    fn take_lock(&mut self, session: SessionId, ino: Ino, lock: LockSpec) -> Outcome {
        if lock.kind != LockKind::Unlock && self.in_the_way(session, ino, &lock).is_some() {
            return Err(Errno::EAGAIN);
        }
        self.locks.retain(|(holder, at, held)| {
            *holder != session || *at != ino || held.flock != lock.flock || held.owner != lock.owner
        });
        if lock.kind != LockKind::Unlock {
            self.locks.push((session, ino, lock));
        }
        Ok(Reply::Ok)
    }

    /// Ends waits that nothing blocks any more, oldest first.
    fn unblocked(&mut self) -> Posts {
        let mut posts = Vec::new();
        for wait in std::mem::take(&mut self.waits) {
            match self.take_lock(wait.session, wait.ino, wait.lock) {
                Ok(reply) => {
                    if let Some(session) = self.sessions.get_mut(&wait.session) {
                        session.results.insert(wait.tid, Ok(reply.clone()));
                    }
                    posts.push((wait.conn, ServerMsg::Reply { tid: wait.tid, outcome: Ok(reply) }));
                }
                Err(_) => self.waits.push(wait),
            }
        }
        posts
    }
}

/// A copy that may be kept: a kernel that lent its bytes, or room for them, waits until it has them back.
fn kept(request: &Request) -> Request {
    let mut copy = request.clone();
    match &mut copy {
        Request::Write { data, .. } => *data = Payload::Owned(data.bytes().to_vec()),
        Request::Read { into, .. } => *into = None,
        _ => {}
    }
    copy
}
