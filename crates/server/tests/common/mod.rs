//! A small client for tests: one session, one request at a time.
//!
//! Absent: retries, caching; that is the client machine's.

#![allow(dead_code, reason = "each of the tests uses a part of it")]

pub(crate) mod bench;

use proto::attr::Attr;
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::reply::{Outcome, Reply};
use proto::request::{NewNode, Request};
use proto::storeio::Payload;
use proto::{Cred, Errno, Ino, Name, NodeRef, SessionId, Tid};
use runtime::port::{Connector, Port, Sink};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};

#[derive(Default)]
struct Seen {
    welcome: Option<ServerMsg>,
    replies: BTreeMap<Tid, Outcome>,
    admin: Option<String>,
    gone: bool,
}

#[derive(Default)]
pub(crate) struct Mailbox {
    seen: Mutex<Seen>,
    more: Condvar,
    port: OnceLock<Arc<dyn Port>>,
}

impl Mailbox {
    fn take(&self, batch: Vec<ServerMsg>) {
        let mut seen = self.seen.lock().expect("lock");
        for message in batch {
            match message {
                ServerMsg::Welcome { .. } => seen.welcome = Some(message),
                ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
                    assert!(seen.replies.insert(tid, outcome).is_none(), "answered twice");
                }
                ServerMsg::Admin { answer, .. } => seen.admin = Some(answer),
                ServerMsg::Recall { .. } => panic!("nothing was wanted"),
                // It connects to no other rank.
                ServerMsg::Renewed { .. } | ServerMsg::Join { .. } => {}
                // For clients that want to be answered early.
                other @ (ServerMsg::Early { .. }
                | ServerMsg::Done { .. }
                | ServerMsg::Durable { .. }
                | ServerMsg::Numbers { .. }
                | ServerMsg::NotMine { .. }
                | ServerMsg::Map { .. }
                | ServerMsg::Damaged) => panic!("unasked: {other:?}"),
                // Its end follows.
                ServerMsg::Refused { errno, .. } if errno == Errno::ESHUTDOWN.0 as u32 => {}
                ServerMsg::Refused { reason, .. } => panic!("refused: {reason}"),
            }
        }
        drop(seen);
        self.more.notify_all();
    }

    fn wait(&self, until: impl Fn(&Seen) -> bool) -> MutexGuard<'_, Seen> {
        self.wait_or_end(until).expect("the connection ended")
    }

    /// `None`: the connection ended first.
    fn wait_or_end(&self, until: impl Fn(&Seen) -> bool) -> Option<MutexGuard<'_, Seen>> {
        let seen = self.more.wait_while(self.seen.lock().expect("lock"), |s| !until(s) && !s.gone);
        let seen = seen.expect("lock");
        until(&seen).then_some(seen)
    }
}

impl Sink for Mailbox {
    fn messages(&self, batch: Vec<ServerMsg>) {
        self.take(batch);
    }

    fn disconnected(&self) {
        self.seen.lock().expect("lock").gone = true;
        self.more.notify_all();
    }
}

/// One session.
pub(crate) struct Client {
    pub(crate) mailbox: Arc<Mailbox>,
    port: Arc<dyn Port>,
    tid: u64,
}

impl Client {
    pub(crate) fn connect(connector: &dyn Connector) -> Self {
        Self::wanting(connector, Bits::NONE)
    }

    /// Goes on with a session of before, which has nothing open and nothing granted, or begins one; comes back until a rank serves.
    pub(crate) fn resume(connector: &dyn Connector, session: SessionId, tid: u64) -> Self {
        loop {
            let mailbox = Arc::new(Mailbox::default());
            let Ok(port) = connector.connect(mailbox.clone()) else {
                std::thread::yield_now();
                continue;
            };
            mailbox.port.get_or_init(|| port.clone());
            let mut client = Self { mailbox, port, tid };
            let info = ClientInfo { host: "test".into(), mount: "/t".into(), pid: 1, caps_max: 0 };
            let hello =
                ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: Bits::NONE, at: At::default() };
            if !client.try_send(hello) || client.mailbox.wait_or_end(|s| s.welcome.is_some()).is_none() {
                continue;
            }
            let rest = [ClientMsg::Reclaimed, ClientMsg::Settled, ClientMsg::Presented];
            if session == SessionId(0) || rest.into_iter().all(|message| client.try_send(message)) {
                return client;
            }
        }
    }

    /// A connection without a session.
    pub(crate) fn connect_only(connector: &dyn Connector) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let port = connector.connect(mailbox.clone()).expect("connect");
        mailbox.port.get_or_init(|| port.clone());
        Self { mailbox, port, tid: 0 }
    }

    /// Its session's number, and the last tid.
    pub(crate) fn identity(&self) -> (SessionId, u64) {
        let seen = self.mailbox.seen.lock().expect("lock");
        match seen.welcome {
            Some(ServerMsg::Welcome { session, .. }) => (session, self.tid),
            _ => (SessionId(0), self.tid),
        }
    }

    /// One that has a use for these capabilities.
    pub(crate) fn wanting(connector: &dyn Connector, wants: Bits) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let port = connector.connect(mailbox.clone()).expect("connect");
        mailbox.port.get_or_init(|| port.clone());
        let mut client = Self { mailbox, port, tid: 0 };
        let info = ClientInfo { host: "test".into(), mount: "/t".into(), pid: 1, caps_max: 0 };
        client.send(ClientMsg::Hello {
            protocol: PROTOCOL,
            session: SessionId(0),
            info,
            wants,
            at: At::default(),
        });
        drop(client.mailbox.wait(|s| s.welcome.is_some()));
        client
    }

    fn send(&mut self, message: ClientMsg) {
        let mut answers = Vec::new();
        self.port.send(vec![message], &mut answers).expect("send");
        self.mailbox.take(answers);
    }

    fn try_send(&mut self, message: ClientMsg) -> bool {
        let mut answers = Vec::new();
        let sent = self.port.send(vec![message], &mut answers).is_ok();
        self.mailbox.take(answers);
        sent
    }

    /// `None`: the connection ended before the answer.
    pub(crate) fn try_call(&mut self, request: Request) -> Option<Outcome> {
        self.tid += 1;
        let tid = Tid(self.tid);
        let message = ClientMsg::Request { tid, floor: tid, cred: Cred::ROOT, request };
        if !self.try_send(message) {
            return None;
        }
        self.mailbox.wait_or_end(|s| s.replies.contains_key(&tid))?.replies.remove(&tid)
    }

    pub(crate) fn call(&mut self, request: Request) -> Outcome {
        self.tid += 1;
        let tid = Tid(self.tid);
        self.send(ClientMsg::Request { tid, floor: tid, cred: Cred::ROOT, request });
        let mut seen = self.mailbox.wait(|s| s.replies.contains_key(&tid));
        seen.replies.remove(&tid).expect("waited for")
    }

    pub(crate) fn ok(&mut self, request: Request) -> Reply {
        let text = format!("{request:?}");
        match self.call(request) {
            Ok(reply) => reply,
            Err(errno) => panic!("{errno}: {}", &text[..text.len().min(200)]),
        }
    }

    pub(crate) fn admin(&mut self, command: &serde_json::Value) -> serde_json::Value {
        self.send(ClientMsg::Admin { id: 1, command: command.to_string() });
        let answer = self.mailbox.wait(|s| s.admin.is_some()).admin.take().expect("waited for");
        serde_json::from_str(&answer).expect("json")
    }

    pub(crate) fn create(&mut self, parent: NodeRef, text: &str) -> NodeRef {
        let new = NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 };
        match self.ok(Request::Create { parent, name: name(text), new, flags: 2 }) {
            Reply::Created { attr, new: true } => node(&attr),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn mkdir(&mut self, parent: NodeRef, text: &str) -> NodeRef {
        let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
        match self.ok(Request::MkDir { parent, name: name(text), new }) {
            Reply::Attr(attr) => node(&attr),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn lookup(&mut self, parent: NodeRef, text: &str) -> Option<Attr> {
        match self.call(Request::Lookup { parent, name: name(text) }) {
            Ok(Reply::Attr(attr)) => Some(attr),
            Err(proto::Errno::ENOENT) => None,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn write(&mut self, node: NodeRef, offset: u64, bytes: &[u8]) {
        let data = Payload::Owned(bytes.to_vec());
        let request = Request::Write { node, offset, append: false, kill_suidgid: false, data };
        match self.ok(request) {
            Reply::Written { count, .. } => assert_eq!(count, bytes.len() as u64),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn read(&mut self, node: NodeRef, offset: u64, len: u32) -> Vec<u8> {
        match self.ok(Request::Read { node, offset, len, into: None }) {
            Reply::Data(Payload::Owned(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn fsync(&mut self, node: NodeRef) {
        self.ok(Request::Fsync { node, data_only: false });
    }

    /// Every name of a directory.
    pub(crate) fn list(&mut self, dir: NodeRef) -> Vec<String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            match self.ok(Request::ReadDir { dir, after, attrs: false, bytes_max: 4096 }) {
                Reply::Entries { entries, end } => {
                    if let Some(last) = entries.last() {
                        after = last.hash.cookie();
                    }
                    names.extend(entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()));
                    if end {
                        names.sort();
                        return names;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("name")
}

pub(crate) fn node(attr: &Attr) -> NodeRef {
    NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
}

pub(crate) const ROOT: NodeRef = NodeRef::bare(Ino::ROOT);
