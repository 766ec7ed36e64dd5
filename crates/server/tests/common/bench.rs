//! A server with slots for ranks over a folder of its own, and what tests of lives ask of it.
//!
//! Absent: the tests.

use super::{Client, ROOT};
use proto::reply::{Outcome, Reply};
use proto::request::{NewNode, Request};
use proto::storeio::Payload;
use runtime::{Addr, Config, SocketConnector};
use serde_json::{Value, json};
use server::{Server, ServerError, ServerOptions};
use std::sync::Arc;
use std::thread;
use stdx::Wall;
use store::folder::{FormatOptions, format};

/// A server with slots, its folder and its socket.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    server: Option<Arc<Server>>,
    pub(crate) ranks: Option<u16>,
}

impl Bench {
    pub(crate) fn new(ranks: Option<u16>) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        format(&dir.path().join("fs"), &FormatOptions::new(Wall(1))).expect("format");
        let mut bench = Self { dir, server: None, ranks };
        bench.start().expect("open");
        bench
    }

    /// Of a folder that somebody else makes.
    pub(crate) fn closed(ranks: Option<u16>) -> Self {
        Self { dir: tempfile::tempdir().expect("dir"), server: None, ranks }
    }

    /// As kill -9 would: nothing more is written.
    pub(crate) fn crash(&mut self) {
        drop(self.server.take().expect("started"));
    }

    pub(crate) fn start(&mut self) -> Result<(), ServerError> {
        let config = Config { mds_beacon_interval: 1, mds_beacon_grace: 2, ..Config::default() };
        let options = ServerOptions { config, ranks: self.ranks, ..ServerOptions::default() };
        let server = Server::open(&self.dir.path().join("fs"), &options)?;
        server.listen(&[self.addr()]).expect("listen");
        self.server = Some(server);
        Ok(())
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().expect("started").stop().expect("stop");
    }

    pub(crate) fn addr(&self) -> Addr {
        Addr::Unix(self.dir.path().join("fs/pando.sock"))
    }

    pub(crate) fn connector(&self) -> SocketConnector {
        SocketConnector::new(self.addr())
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        self.server.as_ref().expect("started")
    }

    /// What an operator is answered.
    pub(crate) fn admin(&self, command: &Value) -> Value {
        self.server().admin(command)
    }

    pub(crate) fn ok(&self, command: &Value) -> Value {
        let mut answer = self.admin(command);
        assert_eq!(answer["ok"], true, "{command}: {answer}");
        answer["result"].take()
    }

    pub(crate) fn rank(&self) -> Value {
        self.ok(&json!({"cmd": "fs status"}))["mdsmap"][0].take()
    }

    /// Its line of `fs status`; null: there is none.
    pub(crate) fn of_rank(&self, rank: u64) -> Value {
        let status = self.ok(&json!({"cmd": "fs status"}));
        let mut all = status["mdsmap"].as_array().into_iter().flatten();
        all.find(|daemon| daemon["rank"] == rank).cloned().unwrap_or_default()
    }

    pub(crate) fn map(&self) -> Value {
        self.ok(&json!({"cmd": "fs get"}))["mdsmap"].take()
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.map()["last_incarnation"].as_u64().expect("a number")
    }

    /// Looks until it is so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let begin = std::time::Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed().as_secs() < 60, "{what}: {}", self.ok(&json!({"cmd": "fs dump"})));
            thread::yield_now();
        }
    }

    /// The rank serves in a later life than that one, and the map says so.
    pub(crate) fn until_after(&self, incarnation: u64) {
        self.until("no next life", |bench| {
            let map = bench.map();
            let mut daemons = map["info"].as_object().into_iter().flatten().map(|(_, daemon)| daemon);
            map["last_incarnation"].as_u64() > Some(incarnation)
                && daemons.any(|daemon| daemon["state"] == "up:active")
        });
    }

    /// What is wrong.
    pub(crate) fn checks(&self) -> Vec<String> {
        let health = self.ok(&json!({"cmd": "health"}));
        // The disk is others', too.
        let codes = health["checks"].as_object().expect("checks").keys();
        codes.filter(|code| !code.starts_with("POOL_")).cloned().collect()
    }
}

pub(crate) fn create(name: &str) -> Request {
    let new = NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 };
    Request::Create { parent: ROOT, name: super::name(name), new, flags: 2 }
}

/// Makes a file with its name in it and has it synced; whether all of it was answered.
pub(crate) fn synced(client: &mut Client, name: &str) -> bool {
    let made = match client.try_call(create(name)) {
        Some(Ok(Reply::Created { attr, .. })) => super::node(&attr),
        Some(other) => panic!("{name}: {other:?}"),
        None => return false,
    };
    let data = Payload::Owned(name.as_bytes().to_vec());
    let write = Request::Write { node: made, offset: 0, append: false, kill_suidgid: false, data };
    let sync = Request::Fsync { node: made, data_only: false };
    let done = |outcome: Option<Outcome>| match outcome {
        Some(Ok(_)) => true,
        Some(Err(errno)) => panic!("{name}: {errno}"),
        None => false,
    };
    done(client.try_call(write)) && done(client.try_call(sync))
}

pub(crate) fn holds(client: &mut Client, name: &str) -> bool {
    let Some(attr) = client.lookup(ROOT, name) else { return false };
    client.read(super::node(&attr), 0, 100) == name.as_bytes()
}
