//! CPU time of steps and memory per cached file, with nothing around the rank:
//! `cargo run --release -p mds --example step_cost -- [files]`.
//!
//! Absent: journal, store, kernel; `pando bench survey` measures those together.

use mds::input::{ConnId, Input, Peer};
use mds::output::Output;
use mds::{Rank, RankConfig};
use proto::dentry::encode_primary;
use proto::header::FragHeader;
use proto::inode::InodeCore;
use proto::message::{ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::reply::Reply;
use proto::request::{NewNode, Request};
use proto::storeio::{LoadRequest, Loaded, StoredDentry};
use proto::{Cred, Incarnation, Ino, Name, NodeRef, Position, SessionId, Tid, Version, Writer};
use std::time::Instant;
use stdx::hash::HashSeed;
use stdx::{Machine, Mono, Now, Wall};

const CONN: ConnId = ConnId(1);

struct Driver {
    rank: Rank,
    out: Vec<Output>,
    tid: u64,
    clock: i64,
}

fn load(request: &LoadRequest, seed: &HashSeed) -> Loaded {
    match request {
        LoadRequest::Sessions => Loaded::Sessions(Vec::new()),
        LoadRequest::Header { dir, .. } => {
            let count = if *dir == Ino::SYSTEM { 3 } else { 0 };
            let header = FragHeader { version: Version(1), entries: count, subdirs: count, ..Default::default() };
            let mut w = Writer::new();
            header.encode(&mut w);
            Loaded::Value(Some(w.0.into()))
        }
        LoadRequest::Scan { dir: Ino::SYSTEM, .. } => {
            let names = [("root", Ino::ROOT), ("links", Ino::LINKS), ("orphans-0", Ino(0x100))];
            let entries = names
                .map(|(name, ino)| {
                    let core = InodeCore { ino, mode: 0o040_755, nlink: 1, ..Default::default() };
                    let mut w = Writer::new();
                    encode_primary(&core, None, &mut w);
                    let hash = proto::name::name_hash(seed, name.as_bytes());
                    StoredDentry { hash, name: name.as_bytes().into(), value: w.0.into() }
                })
                .to_vec();
            Loaded::Dentries { entries, next: None }
        }
        LoadRequest::Scan { .. } | LoadRequest::ByHash { .. } => {
            Loaded::Dentries { entries: Vec::new(), next: None }
        }
        _ => Loaded::Value(None),
    }
}

impl Driver {
    fn step(&mut self, input: Input) -> Option<Reply> {
        let mut todo = vec![input];
        let mut reply = None;
        while let Some(input) = todo.pop() {
            self.clock += 1000;
            let now = Now { mono: Mono(self.clock as u64), wall: Wall(self.clock) };
            self.rank.step(now, input, &mut self.out);
            for output in self.out.drain(..) {
                match output {
                    Output::Load { tag, requests } => {
                        let results = requests.iter().map(|r| Ok(load(r, &HashSeed([7; 16])))).collect();
                        todo.push(Input::Loaded { tag, results });
                    }
                    Output::ReadJournal { from } => todo.push(Input::ReplayEnd { end: from }),
                    Output::Append { position, bytes, urgent: true } => {
                        todo.push(Input::Durable(Position(position.0 + bytes.len() as u64)));
                    }
                    Output::Send { message: ServerMsg::Reply { outcome, .. }, .. } => {
                        reply = Some(outcome.expect("an operation of the benchmark"));
                    }
                    _ => {}
                }
            }
        }
        reply
    }

    fn call(&mut self, request: Request) -> Option<Reply> {
        self.tid += 1;
        let message = ClientMsg::Request { tid: Tid(self.tid), floor: Tid(0), cred: Cred::ROOT, request };
        self.step(Input::Message { conn: CONN, message })
    }

    fn timed(&mut self, what: &str, count: u64, mut request: impl FnMut(u64) -> Request) {
        let mut worst = 0;
        let start = cpu_ns();
        for i in 0..count {
            let request = request(i);
            let at = Instant::now();
            self.call(request);
            worst = worst.max(at.elapsed().as_micros());
            if i % 1024 == 0 {
                let end = self.rank.status().journal_end;
                self.step(Input::Durable(end));
            }
        }
        let each = (cpu_ns() - start) / count;
        println!("{what:8} {each:6} ns of CPU each; longest step by the wall clock {worst} us");
    }
}

/// CPU time of this thread, so that neighbours do not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn rss() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|p| p.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let mut config = RankConfig::new([1; 16], HashSeed([7; 16]), Incarnation(1));
    config.cache_bytes = 1 << 40;
    config.journal_bytes = 1 << 50;
    let mut d = Driver { rank: Rank::new(config), out: Vec::new(), tid: 0, clock: 0 };
    d.step(Input::Boot);
    d.step(Input::Durable(d.rank.status().journal_end));
    d.step(Input::Connected { conn: CONN, peer: Peer::Embedded });
    let hello = ClientMsg::Hello { protocol: PROTOCOL, session: SessionId(0), info: ClientInfo::default() };
    d.step(Input::Message { conn: CONN, message: hello });
    let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
    let made = d.call(Request::MkDir { parent: NodeRef::bare(Ino::ROOT), name: name("d"), new });
    let Some(Reply::Attr(attr)) = made else { panic!("mkdir: {made:?}") };
    let dir = NodeRef::bare(attr.ino);
    let before = rss();
    let file = |i: u64| name(&format!("file.with.20.by.{i:08}")[4..]);
    let new = || NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
    d.timed("create", count, |i| Request::MkNod { parent: dir, name: file(i), new: new() });
    println!("memory   {} bytes per file", (rss() - before) / count);
    d.timed("lookup", count, |i| Request::Lookup { parent: dir, name: file(i.wrapping_mul(7919) % count) });
    d.timed("getattr", count, |i| Request::GetAttr { node: NodeRef::bare(Ino(4097 + i)) });
    d.timed("unlink", count, |i| Request::Unlink { parent: dir, name: file(i) });
    d.timed("mkdir", count / 4, |i| Request::MkDir {
        parent: dir,
        name: file(i),
        new: NewNode { mode: 0o040_755, umask: 0, rdev: 0 },
    });
    d.timed("rmdir", count / 4, |i| Request::RmDir { parent: dir, name: file(i) });
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a valid name")
}
