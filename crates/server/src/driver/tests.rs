//! The driver with a scripted rank: order, durability, load and data round trips, threads.

mod commits;
mod damage;
mod space;
mod throttle;
mod told_journal;
mod turns;

use crate::machine::RankMachine;
use crate::parts::{DataIo, JournalIo, Parts};
use crate::server::{Server, ServerError, ServerOptions};
use mds::input::{ConnId, Input, Tag};
use mds::output::Output;
use proto::message::{ClientMsg, ServerMsg};
use proto::reply::Reply;
use proto::request::Request;
use proto::storeio::{DataDone, DataOp, LoadRequest, Loaded, StoreBatch, StoreError, StoreKey};
use proto::{Cred, FileId, Incarnation, Ino, NodeRef, Position, RankId, Tid};
use runtime::Log;
use runtime::port::Sink;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use stdx::{Mono, Now};
use store::meta::MetaStore;

const ENTRY: usize = 16;
/// What a slow request takes.
const SLOW_NS: u64 = 600_000;

/// Lookup: appends an entry and answers when it is durable. Fallocate: one of that many bytes. GetAttr: loads. Read: a data operation.
/// StatFs: a store batch. SyncFs: says Recall and Renewed. ReadLink: takes long. A checkpoint: a store batch. Who waits when the journal fails is told Renewed.
#[derive(Default)]
struct Toy {
    end: u64,
    tags: u64,
    durable_waits: BTreeMap<u64, (ConnId, Tid)>,
    asked: BTreeMap<Tag, (ConnId, Tid)>,
    broken: Option<String>,
}

impl Toy {
    fn ask(&mut self, conn: ConnId, tid: Tid) -> Tag {
        self.tags += 1;
        self.asked.insert(Tag(self.tags), (conn, tid));
        Tag(self.tags)
    }

    fn reply(&mut self, tag: Tag, ok: bool, out: &mut Vec<Output>) {
        if let Some((conn, tid)) = self.asked.remove(&tag) {
            let outcome = if ok { Ok(Reply::Ok) } else { Err(proto::Errno::EIO) };
            out.push(Output::Send { conn, message: ServerMsg::Reply { tid, outcome } });
        }
    }

    fn request(&mut self, conn: ConnId, tid: Tid, request: &Request, out: &mut Vec<Output>) {
        match request {
            Request::Lookup { .. } | Request::Fallocate { .. } => {
                let position = Position(self.end);
                let mut bytes = [position.0.to_le_bytes(), tid.0.to_le_bytes()].concat();
                if let Request::Fallocate { len, .. } = request {
                    bytes.resize(*len as usize, 0);
                }
                self.end += bytes.len() as u64;
                self.durable_waits.insert(self.end, (conn, tid));
                out.push(Output::Append { position, bytes, urgent: tid.0.is_multiple_of(2) });
                out.push(Output::Commit);
            }
            Request::GetAttr { .. } => {
                let requests = vec![LoadRequest::Counter { rank: RankId(tid.0 as u16) }];
                out.push(Output::Load { tag: self.ask(conn, tid), requests });
            }
            Request::Read { offset, .. } => {
                let file = FileId { ino: Ino(*offset), generation: 0 };
                out.push(Output::Data { tag: self.ask(conn, tid), op: DataOp::Remove { file } });
            }
            Request::StatFs => {
                let mut batch = StoreBatch::new(Ino::SYSTEM, None);
                batch.put(StoreKey::Counter { rank: RankId(1) }, |w| {
                    w.u64(tid.0);
                });
                out.push(Output::Store { tag: self.ask(conn, tid), batches: vec![batch] });
            }
            Request::ReadLink { .. } => {
                let begin = std::time::Instant::now();
                while begin.elapsed().as_nanos() < u128::from(SLOW_NS) {
                    std::hint::spin_loop();
                }
                out.push(Output::Send { conn, message: ServerMsg::Reply { tid, outcome: Ok(Reply::Ok) } });
            }
            _ => {
                out.push(Output::Send { conn, message: ServerMsg::Recall { list: Vec::new() } });
                out.push(Output::Send { conn, message: ServerMsg::Renewed { number: 1 } });
                out.push(Output::Send { conn, message: ServerMsg::Reply { tid, outcome: Ok(Reply::Ok) } });
            }
        }
    }
}

impl RankMachine for Toy {
    fn step(&mut self, _now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Boot => match &self.broken {
                Some(why) => out.push(Output::Damaged { reason: why.clone() }),
                None => out.push(Output::ReadJournal { from: Position(0) }),
            },
            Input::ReplayEnd { end, .. } => {
                self.end = end.0;
                out.push(Output::Active);
            }
            Input::Message { conn, message: ClientMsg::Request { tid, request, .. } } => {
                self.request(conn, tid, &request, out);
            }
            Input::Durable(to) => {
                let later = self.durable_waits.split_off(&(to.0 + 1));
                for (conn, tid) in std::mem::replace(&mut self.durable_waits, later).into_values() {
                    let message = ServerMsg::Reply { tid, outcome: Ok(Reply::Ok) };
                    out.push(Output::Send { conn, message });
                }
            }
            Input::JournalFailed(_) => {
                let waits = self.durable_waits.first_key_value().map(|(_, (conn, _))| *conn);
                out.extend(
                    waits.map(|conn| Output::Send { conn, message: ServerMsg::Renewed { number: 0 } }),
                );
            }
            Input::Loaded { tag, results } => self.reply(tag, results[0].is_ok(), out),
            Input::Stored { tag, result } => self.reply(tag, result.is_ok(), out),
            Input::DataDone { tag, result } => self.reply(tag, result.is_ok(), out),
            Input::Checkpoint => {
                let batches = vec![StoreBatch::new(Ino::SYSTEM, None)];
                out.push(Output::Store { tag: Tag(u64::MAX), batches });
            }
            Input::Stop => out.push(Output::Stopped),
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn is_at_rest(&self) -> bool {
        true
    }

    fn report(&self, _: Mono, _question: &serde_json::Value) -> Option<serde_json::Value> {
        None
    }
}

/// Checks that positions come in order, and forgets what was not synced.
#[derive(Default)]
struct MemoryJournal {
    synced: Arc<Mutex<Vec<u8>>>,
    written: Mutex<Vec<u8>>,
}

impl JournalIo for MemoryJournal {
    fn read(&self, _: Position, piece: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        let bytes = self.synced.lock().expect("lock").clone();
        piece(Position(0), &bytes);
        self.written.lock().expect("lock").clone_from(&bytes);
        Ok(Position(bytes.len() as u64))
    }

    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError> {
        let mut written = self.written.lock().expect("lock");
        assert_eq!(position.0, written.len() as u64);
        written.extend_from_slice(entries);
        Ok(())
    }

    fn sync(&self) -> Result<Position, StoreError> {
        let written = self.written.lock().expect("lock");
        self.synced.lock().expect("lock").clone_from(&written);
        Ok(Position(written.len() as u64))
    }

    fn trim(&self, _: Position) -> Result<(), StoreError> {
        Ok(())
    }

    fn prepare(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn former(&self) -> Incarnation {
        Incarnation(0)
    }
}

/// Even inodes are quick. Two changes of one file at once are a defect of the driver.
#[derive(Default)]
struct ToyData {
    running: Mutex<BTreeMap<u64, u32>>,
}

impl DataIo for ToyData {
    fn run(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        let DataOp::Remove { file } = op else { return Ok(DataDone::Done) };
        let running = |by: i32| {
            let mut running = self.running.lock().expect("lock");
            let n = running.entry(file.ino.0).or_insert(0);
            *n = n.checked_add_signed(by).expect("count");
            *n
        };
        assert_eq!(running(1), 1, "two changes of one file at once");
        std::thread::yield_now();
        running(-1);
        Ok(DataDone::Done)
    }

    fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        matches!(op, DataOp::Remove { file } if file.ino.0.is_multiple_of(2)).then(|| self.run(op))
    }

    fn background(&self, _now: Mono) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn flush_aged(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

struct EmptyMeta;

impl MetaStore for EmptyMeta {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        requests.iter().map(|_| Ok(Loaded::Value(None))).collect()
    }

    fn apply(&self, _: &[StoreBatch]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[derive(Default)]
struct Seen {
    replies: BTreeMap<Tid, u32>,
    others: Vec<ServerMsg>,
    gone: bool,
}

/// Collects what arrives.
#[derive(Default)]
struct Mailbox {
    seen: Mutex<Seen>,
    more: Condvar,
}

impl Mailbox {
    fn take(&self, batch: Vec<ServerMsg>) {
        let mut seen = self.seen.lock().expect("lock");
        for message in batch {
            match message {
                ServerMsg::Reply { tid, outcome } => {
                    assert_eq!(outcome, Ok(Reply::Ok));
                    *seen.replies.entry(tid).or_insert(0) += 1;
                }
                other => seen.others.push(other),
            }
        }
        self.more.notify_all();
    }

    fn wait(&self, until: impl Fn(&Seen) -> bool) -> std::sync::MutexGuard<'_, Seen> {
        self.more.wait_while(self.seen.lock().expect("lock"), |s| !until(s)).expect("lock")
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

fn server(rank: Toy, synced: Arc<Mutex<Vec<u8>>>) -> Result<Arc<Server>, ServerError> {
    let parts = Parts {
        rank: Box::new(rank),
        journal: Arc::new(MemoryJournal { synced, written: Mutex::default() }),
        meta: Arc::new(EmptyMeta),
        data: Arc::new(ToyData::default()),
        ballast: None,
    };
    Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent()))
}

fn message(tid: u64, request: Request) -> ClientMsg {
    ClientMsg::Request { tid: Tid(tid), floor: Tid(0), cred: Cred::ROOT, request }
}

fn request(tid: u64) -> Request {
    let node = NodeRef::bare(Ino::ROOT);
    match tid % 4 {
        0 => Request::Lookup { parent: node, name: proto::Name::new(b"n").expect("name") },
        1 => Request::GetAttr { node },
        2 => Request::Read { node, offset: tid / 4 % 6, len: 1, into: None },
        _ => Request::StatFs,
    }
}

#[test]
fn every_request_is_answered_once_whatever_thread_works() {
    let synced = Arc::new(Mutex::new(Vec::new()));
    let server = server(Toy::default(), synced.clone()).expect("boot");
    let threads: Vec<_> = (0..4_u64)
        .map(|n| {
            let connector = server.embedded();
            std::thread::spawn(move || {
                let mailbox = Arc::new(Mailbox::default());
                let port = connector.connect(mailbox.clone()).expect("connect");
                for tid in n * 100_000..n * 100_000 + 5_000 {
                    let mut answers = Vec::new();
                    port.send(vec![message(tid, request(tid))], &mut answers).expect("send");
                    mailbox.take(answers);
                }
                let seen = mailbox.wait(|s| s.replies.len() == 5_000);
                assert!(seen.replies.values().all(|n| *n == 1));
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("client");
    }
    let lookups = 4 * 5_000 / 4;
    assert_eq!(synced.lock().expect("lock").len(), lookups * ENTRY);
    server.stop().expect("stop");
    assert!(server.embedded().connect(Arc::new(Mailbox::default())).is_err());
}

#[test]
fn messages_that_are_no_answers_arrive_in_the_order_they_were_said() {
    let server = server(Toy::default(), Arc::default()).expect("boot");
    let mailbox = Arc::new(Mailbox::default());
    let port = server.embedded().connect(mailbox.clone()).expect("connect");
    std::thread::scope(|scope| {
        for n in 0..3_u64 {
            let port = &port;
            scope.spawn(move || {
                for tid in 0..1_000 {
                    port.send(vec![message(n * 1_000 + tid, Request::SyncFs)], &mut Vec::new())
                        .expect("send");
                }
            });
        }
    });
    let seen = mailbox.wait(|s| s.others.len() == 6_000);
    for pair in seen.others.chunks(2) {
        assert_eq!(pair, [ServerMsg::Recall { list: Vec::new() }, ServerMsg::Renewed { number: 1 }]);
    }
}

#[test]
fn a_dropped_server_tells_its_connections_and_keeps_what_was_durable() {
    let synced = Arc::new(Mutex::new(Vec::new()));
    let first = server(Toy::default(), synced.clone()).expect("boot");
    let mailbox = Arc::new(Mailbox::default());
    let port = first.embedded().connect(mailbox.clone()).expect("connect");
    port.send(vec![message(0, request(0))], &mut Vec::new()).expect("send");
    drop(mailbox.wait(|s| s.replies.len() == 1));
    drop(first);
    drop(mailbox.wait(|s| s.gone));
    assert!(port.send(vec![message(4, request(4))], &mut Vec::new()).is_err());
    let second = server(Toy::default(), synced).expect("boot");
    let port = second.embedded().connect(mailbox.clone()).expect("connect");
    port.send(vec![message(8, request(8))], &mut Vec::new()).expect("send");
    drop(mailbox.wait(|s| s.replies.len() == 2));
}

#[test]
fn damage_is_an_error_of_open() {
    let toy = Toy { broken: Some("journal/00000001 at 0x10: checksum mismatch".into()), ..Toy::default() };
    match server(toy, Arc::default()) {
        Err(ServerError::Damaged(why)) => assert!(why.contains("journal/00000001")),
        other => panic!("booted from damage: {}", other.is_ok()),
    }
}
