//! How many creates a second one thread gets through `Port::send`.
//!
//! `step_rate null [SECONDS]`: a rank that does nothing but append and answer, on a journal that
//! forgets: the driver's own cost. `step_rate journal SECONDS DIR`: the same rank on journal files.
//! `step_rate real SECONDS DIR [JOURNAL_MIB]`: the rank and its stores in a new folder.
//!
//! Absent: the kernel, sockets, a client machine.

use mds::input::{ConnId, Input};
use mds::output::Output;
use proto::attr::Attr;
use proto::caps::Bits;
use proto::journal::{TxnCluster, begin_entry, end_entry, put_transaction};
use proto::message::{ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::reply::Reply;
use proto::request::{NewNode, Request};
use proto::storeio::{DataDone, DataOp, LoadRequest, Loaded, StoreBatch, StoreError};
use proto::{Cred, Incarnation, Ino, Name, NodeRef, Position, RankId, SessionId, Tid, Writer};
use runtime::Log;
use runtime::port::{Port, Sink};
use server::machine::RankMachine;
use server::parts::{DataIo, JournalIo, Parts};
use server::{Server, ServerOptions};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stdx::{Mono, Now, Wall};
use store::disk_real::RealDisk;
use store::folder::{FormatOptions, format};
use store::journal_files::{JournalFiles, JournalLimits};
use store::meta::MetaStore;

struct NullRank {
    end: u64,
}

impl RankMachine for NullRank {
    fn step(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Boot => out.push(Output::ReadJournal { from: Position(0) }),
            Input::ReplayEnd { end, .. } => {
                self.end = end.0;
                out.push(Output::Active);
            }
            Input::Stop => out.push(Output::Stopped),
            Input::Message { conn: ConnId(n), message: ClientMsg::Request { tid, .. } } => {
                let position = Position(self.end);
                let mut w = Writer(Vec::with_capacity(320));
                let start = begin_entry(&mut w, position, Position(0));
                put_transaction(&mut w, now.wall, None, TxnCluster::default());
                w.raw(&[7; 260]);
                end_entry(&mut w, start);
                let bytes = w.0;
                self.end += bytes.len() as u64;
                out.push(Output::Append { position, bytes, urgent: false });
                let outcome = Ok(Reply::Created { attr: Attr::default(), new: true });
                out.push(Output::Send { conn: ConnId(n), message: ServerMsg::Reply { tid, outcome } });
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Mono> {
        None
    }

    fn is_at_rest(&self) -> bool {
        true
    }

    fn report(&self, _: Mono, _: &serde_json::Value) -> Option<serde_json::Value> {
        None
    }
}

struct NullStore {
    end: AtomicU64,
}

impl JournalIo for NullStore {
    fn read(&self, _: Position, _: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        Ok(Position(0))
    }

    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError> {
        self.end.store(position.0 + entries.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<Position, StoreError> {
        Ok(Position(self.end.load(Ordering::Relaxed)))
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

impl DataIo for NullStore {
    fn run(&self, _: &DataOp) -> Result<DataDone, StoreError> {
        Ok(DataDone::Done)
    }

    fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        Some(self.run(op))
    }

    fn background(&self, _now: Mono) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn flush_aged(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl MetaStore for NullStore {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        requests.iter().map(|_| Ok(Loaded::Value(None))).collect()
    }

    fn apply(&self, _: &[StoreBatch]) -> Result<(), StoreError> {
        Ok(())
    }
}

fn null_server(journal: Option<&Path>) -> Result<Arc<Server>, Box<dyn Error>> {
    let store = Arc::new(NullStore { end: AtomicU64::new(0) });
    let journal: Arc<dyn JournalIo> = match journal {
        None => store.clone(),
        Some(dir) => {
            let disk = RealDisk::new(dir);
            Arc::new(JournalFiles::open(disk, RankId(0), Incarnation(1), JournalLimits::default())?)
        }
    };
    let parts = Parts {
        rank: Box::new(NullRank { end: 0 }),
        journal,
        meta: store.clone(),
        data: store,
        ballast: None,
    };
    Ok(Server::with_parts(parts, "null", &ServerOptions::default(), Arc::new(Log::silent()))?)
}

fn real_server(dir: &Path, journal_mib: u64) -> Result<Arc<Server>, Box<dyn Error>> {
    format(dir, &FormatOptions::new(Wall(1)))?;
    let mut options = ServerOptions::default();
    options.config.journal_size = journal_mib << 20;
    Ok(Server::open(dir, &options)?)
}

/// Waits for the welcome.
#[derive(Default)]
struct Welcomed {
    seen: Mutex<bool>,
    more: Condvar,
}

impl Sink for Welcomed {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let welcome = batch.iter().any(|m| matches!(m, ServerMsg::Welcome { .. }));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) |= welcome;
        self.more.notify_all();
    }

    fn disconnected(&self) {}
}

fn hello(port: &dyn Port, sink: &Welcomed) -> Result<(), Box<dyn Error>> {
    let hello = ClientMsg::Hello {
        protocol: PROTOCOL,
        session: SessionId(0),
        info: ClientInfo::default(),
        wants: Bits::NONE,
        at: proto::message::At::default(),
    };
    port.send(vec![hello], &mut Vec::new())?;
    let seen = sink.seen.lock().unwrap_or_else(PoisonError::into_inner);
    drop(sink.more.wait_while(seen, |seen| !*seen).unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// Creates until the time is up; returns how many.
fn creates(port: &dyn Port, parent: NodeRef, span: Duration) -> Result<u64, Box<dyn Error>> {
    let (begin, mut tid) = (Instant::now(), 1_000_u64);
    let mut answers = Vec::new();
    let mut unanswered = 0_u64;
    while tid % 256 != 0 || begin.elapsed() < span {
        tid += 1;
        let name = Name::new(format!("file.mdtest.0.{tid}").as_bytes())?;
        let new = NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 };
        let request = Request::MkNod { parent, name, new };
        let message = ClientMsg::Request { tid: Tid(tid), floor: Tid(tid), cred: Cred::ROOT, request };
        port.send(vec![message], &mut answers)?;
        unanswered += u64::from(answers.is_empty());
        answers.clear();
    }
    if unanswered > 0 {
        println!("{unanswered} not answered at once");
    }
    Ok(tid - 1_000)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let seconds: u64 = args.next().map_or(Ok(5), |text| text.parse())?;
    let server = match what.as_str() {
        "null" => null_server(None)?,
        "journal" => null_server(Some(Path::new(&args.next().ok_or("no DIR")?)))?,
        "real" => {
            let dir = args.next().ok_or("no DIR")?;
            let mib: u64 = args.next().map_or(Ok(1024), |text| text.parse())?;
            real_server(Path::new(&dir), mib)?
        }
        _ => return Err("usage: step_rate null [SECONDS] | journal|real SECONDS DIR [JOURNAL_MIB]".into()),
    };
    let sink = Arc::new(Welcomed::default());
    let port = server.embedded().connect(sink.clone())?;
    if what == "real" {
        hello(port.as_ref(), &sink)?;
    }
    let begin = Instant::now();
    let count = creates(port.as_ref(), NodeRef::bare(Ino::ROOT), Duration::from_secs(seconds))?;
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    println!("{count} creates, {rate:.0}/s, {:.0} ns each", 1e9 / rate);
    println!("{}", server.admin(&serde_json::json!({ "cmd": "perf dump" })));
    server.stop()?;
    Ok(())
}
