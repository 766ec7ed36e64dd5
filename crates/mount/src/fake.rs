//! A small rank in memory behind a connector, for tests of the edges: one process, no durability. Or several ranks of one tree.
//!
//! It keeps the session contract (tids, results, resume) to the letter and the file system
//! only as far as tests need it. What it grants and recalls the test says: it looks at no conflict.
//!
//! Absent: permissions, ACLs, byte-range conflicts (any two owners conflict, unless both read).

mod early;
mod rank;
mod ranks;
mod tree;

use crate::shared::lock;
use early::Early;
use proto::caps::{Bits, Recalled, Returned};
use proto::message::{ClientMsg, ServerMsg};
use proto::name::Name;
use proto::reply::Outcome;
use proto::request::{LockSpec, Request};
use proto::{Ino, RankId, SessionId, Tid};
use ranks::Ranks;
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
    /// So many connections are being made for ever.
    stalled: u32,
    stalling: u32,
    lease_ms: u32,
    /// Each session is granted what it wants.
    granting: bool,
    returned: Vec<Returned>,
    offered: Vec<Ino>,
    settled: u32,
    renewed: u32,
    early: Early,
    ranks: Ranks,
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
    /// With a rank: each has its own part of a session.
    session: SessionId,
    rank: RankId,
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

    /// How long the leases of those are who connect from here on.
    pub fn lease(&self, lease_ms: u32) {
        lock(&self.state).lease_ms = lease_ms;
    }

    /// Waits until sessions have renewed their leases so many times more.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn wait_renewed(&self, times: u32, patience: Duration) {
        let before = lock(&self.state).renewed;
        self.wait(patience, |state| state.renewed >= before + times);
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

    /// Whoever connects next waits, until this is said with 0.
    pub fn stall_connects(&self, count: u32) {
        lock(&self.state).stalled = count;
        self.said.notify_all();
    }

    /// Waits until somebody does.
    ///
    /// # Panics
    /// When nobody does in time.
    pub fn wait_stalled(&self, patience: Duration) {
        self.wait(patience, |state| state.stalling > 0);
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
        if state.stalled > state.stalling {
            state.stalling += 1;
            self.said.notify_all();
            while state.stalled > 0 {
                state = self.said.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.stalling -= 1;
        }
        if state.refuse_connect {
            let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return Err(PortError::Unreachable { at: self.describe(), source });
        }
        state.next += 1;
        let conn = state.next;
        state.conns.insert(conn, Conn { sink, session: SessionId(0), rank: RankId(0) });
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
