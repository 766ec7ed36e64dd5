//! A full disk and a failed journal, as the driver meets them.

use super::*;
use crate::parts::Ballast;
use runtime::log::LogOptions;
use std::sync::atomic::{AtomicBool, Ordering};

/// A disk that is full until the ballast goes, and has room again when `freed` is set.
#[derive(Default)]
struct FullDisk {
    given_up: AtomicBool,
    freed: AtomicBool,
    /// By a former life.
    given_up_before: bool,
}

impl Ballast for FullDisk {
    fn release(&self) -> u64 {
        if self.given_up.swap(true, Ordering::SeqCst) { 0 } else { 64 << 20 }
    }

    fn is_held(&self) -> bool {
        !self.given_up.load(Ordering::SeqCst)
    }

    fn restore(&self) -> bool {
        self.freed.load(Ordering::SeqCst) && self.given_up.swap(false, Ordering::SeqCst)
    }
}

struct FullMeta(Arc<FullDisk>);

impl MetaStore for FullMeta {
    fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
        EmptyMeta.load(requests)
    }

    fn apply(&self, _: &[StoreBatch]) -> Result<(), StoreError> {
        if self.0.given_up.load(Ordering::SeqCst) { Ok(()) } else { Err(StoreError::NoSpace) }
    }
}

/// Remembers what it was told of space and of its journal.
struct Told {
    toy: Toy,
    spaces: Arc<(Mutex<Vec<bool>>, Condvar)>,
}

impl RankMachine for Told {
    fn step(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Space { full } => {
                self.spaces.0.lock().expect("lock").push(full);
                self.spaces.1.notify_all();
            }
            Input::JournalFailed(e) => out.push(Output::Damaged { reason: e.to_string() }),
            other => self.toy.step(now, other, out),
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

#[test]
fn a_full_disk_costs_the_ballast_and_is_told_once() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("log");
    let log = Log::open(LogOptions { file: Some(path.clone()), ..LogOptions::default() }).expect("log");
    let disk = Arc::new(FullDisk::default());
    let spaces = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    let parts = Parts {
        rank: Box::new(Told { toy: Toy::default(), spaces: spaces.clone() }),
        journal: Arc::new(MemoryJournal::default()),
        meta: Arc::new(FullMeta(disk.clone())),
        data: Arc::new(ToyData::default()),
        ballast: Some(disk.clone()),
    };
    let server =
        Server::with_parts(parts, "/srv/pando", &ServerOptions::default(), Arc::new(log)).expect("boot");
    let mailbox = Arc::new(Mailbox::default());
    let port = server.embedded().connect(mailbox.clone()).expect("connect");
    for tid in 0..3 {
        port.send(vec![message(tid, Request::StatFs)], &mut Vec::new()).expect("send");
        drop(mailbox.wait(|s| s.replies.contains_key(&Tid(tid))));
    }
    disk.freed.store(true, Ordering::SeqCst);
    let wait = spaces.1.wait_while(spaces.0.lock().expect("lock"), |s| s.len() < 2);
    assert_eq!(*wait.expect("lock"), [true, false]);
    let text = std::fs::read_to_string(&path).expect("log");
    let told = "store /srv/pando: no space left: new data refused, unlink still works, 64 MiB kept for it";
    assert_eq!(text.matches(told).count(), 1, "{text}");
}

/// A journal with one fault.
#[derive(Default)]
struct FaultyJournal {
    journal: MemoryJournal,
    /// The next append finds the disk full.
    full_once: AtomicBool,
    /// Every sync fails.
    broken: bool,
}

impl JournalIo for FaultyJournal {
    fn read(&self, from: Position, piece: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        self.journal.read(from, piece)
    }

    fn append(&self, position: Position, entries: &[u8]) -> Result<(), StoreError> {
        if self.full_once.swap(false, Ordering::SeqCst) {
            Err(StoreError::NoSpace)
        } else {
            self.journal.append(position, entries)
        }
    }

    fn sync(&self) -> Result<Position, StoreError> {
        if self.broken { Err(StoreError::Poisoned) } else { self.journal.sync() }
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

#[test]
fn after_a_failed_commit_nothing_is_answered_and_stop_says_so() {
    let parts = Parts {
        rank: Box::new(Told { toy: Toy::default(), spaces: Arc::default() }),
        journal: Arc::new(FaultyJournal { broken: true, ..FaultyJournal::default() }),
        meta: Arc::new(EmptyMeta),
        data: Arc::new(ToyData::default()),
        ballast: None,
    };
    let server =
        Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent())).expect("boot");
    let mailbox = Arc::new(Mailbox::default());
    let port = server.embedded().connect(mailbox.clone()).expect("connect");
    for tid in 0..10 {
        port.send(vec![message(4 * tid, request(4 * tid))], &mut Vec::new()).expect("send");
    }
    match server.driver().expect("a life").life.wait(|life| matches!(life, crate::driver::Life::Damaged(_))) {
        crate::driver::Life::Damaged(why) => assert!(why.contains("poisoned"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(server.stop(), Err(ServerError::Damaged(_))));
    assert!(mailbox.seen.lock().expect("lock").replies.is_empty());
}

#[test]
fn a_journal_that_finds_the_disk_full_while_another_makes_room_goes_on() {
    let ballast = FullDisk::default();
    // By that other thread.
    ballast.given_up.store(true, Ordering::SeqCst);
    let parts = Parts {
        rank: Box::new(Told { toy: Toy::default(), spaces: Arc::default() }),
        journal: Arc::new(FaultyJournal { full_once: true.into(), ..FaultyJournal::default() }),
        meta: Arc::new(EmptyMeta),
        data: Arc::new(ToyData::default()),
        ballast: Some(Arc::new(ballast)),
    };
    let server =
        Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent())).expect("boot");
    let mailbox = Arc::new(Mailbox::default());
    let port = server.embedded().connect(mailbox.clone()).expect("connect");
    port.send(vec![message(4, request(4))], &mut Vec::new()).expect("send");
    drop(mailbox.wait(|seen| seen.replies.contains_key(&Tid(4))));
    assert!(!matches!(server.driver().expect("a life").life.get(), crate::driver::Life::Damaged(_)));
    server.stop().expect("stop");
}

/// Background work fails once, for a reason that concerns one segment only.
#[derive(Default)]
struct BadSector {
    toy: ToyData,
    calls: Arc<(Mutex<u32>, Condvar)>,
}

impl DataIo for BadSector {
    fn run(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        self.toy.run(op)
    }

    fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        self.toy.run_quick(op)
    }

    fn background(&self, _now: Mono) -> Result<bool, StoreError> {
        let mut calls = self.calls.0.lock().expect("lock");
        *calls += 1;
        self.calls.1.notify_all();
        let source = proto::storeio::IoError(5);
        if *calls == 1 { Err(StoreError::Io { at: "data/seg-00000001".into(), source }) } else { Ok(false) }
    }

    fn flush_aged(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn background_work_goes_on_after_an_error_that_spoils_nothing() {
    let calls = Arc::new((Mutex::new(0), Condvar::new()));
    let parts = Parts {
        rank: Box::new(Told { toy: Toy::default(), spaces: Arc::default() }),
        journal: Arc::new(MemoryJournal::default()),
        meta: Arc::new(EmptyMeta),
        data: Arc::new(BadSector { toy: ToyData::default(), calls: calls.clone() }),
        ballast: None,
    };
    let server =
        Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent())).expect("boot");
    let minute = std::time::Duration::from_secs(60);
    let waited = calls.1.wait_timeout_while(calls.0.lock().expect("lock"), minute, |calls| *calls < 2);
    assert!(!waited.expect("lock").1.timed_out(), "called again");
    server.stop().expect("stop");
}

type Watched<T> = Arc<(Mutex<T>, Condvar)>;

/// Remembers whether it keeps room for others.
struct KeepingData {
    kept: Watched<bool>,
    disk: Arc<FullDisk>,
}

impl DataIo for KeepingData {
    fn run(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        ToyData::default().run(op)
    }

    fn run_quick(&self, _: &DataOp) -> Option<Result<DataDone, StoreError>> {
        None
    }

    fn background(&self, _now: Mono) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn flush_aged(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn keep_room(&self, keep: bool) {
        let mut kept = self.kept.0.lock().expect("lock");
        if keep && !*kept {
            // Before the ballast goes, or what is reserved meanwhile is its room.
            assert!(self.disk.is_held() || self.disk.given_up_before);
        }
        *kept = keep;
        self.kept.1.notify_all();
    }
}

fn keeping(disk: &Arc<FullDisk>) -> (Arc<Server>, Watched<bool>, Watched<Vec<bool>>) {
    let kept = Arc::new((Mutex::new(false), Condvar::new()));
    let spaces = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    let parts = Parts {
        rank: Box::new(Told { toy: Toy::default(), spaces: spaces.clone() }),
        journal: Arc::new(FaultyJournal { full_once: true.into(), ..FaultyJournal::default() }),
        meta: Arc::new(EmptyMeta),
        data: Arc::new(KeepingData { kept: kept.clone(), disk: disk.clone() }),
        ballast: Some(disk.clone()),
    };
    let server =
        Server::with_parts(parts, "toy", &ServerOptions::default(), Arc::new(Log::silent())).expect("boot");
    (server, kept, spaces)
}

#[test]
fn data_keeps_room_for_the_journal_from_before_the_ballast_goes_until_it_is_back() {
    let disk = Arc::new(FullDisk::default());
    let (server, kept, spaces) = keeping(&disk);
    let mailbox = Arc::new(Mailbox::default());
    let port = server.embedded().connect(mailbox.clone()).expect("connect");
    port.send(vec![message(4, request(4))], &mut Vec::new()).expect("send");
    drop(mailbox.wait(|seen| seen.replies.contains_key(&Tid(4))));
    assert!(*kept.0.lock().expect("lock") && !disk.is_held());
    disk.freed.store(true, Ordering::SeqCst);
    drop(kept.1.wait_while(kept.0.lock().expect("lock"), |kept| *kept).expect("told"));
    let wait = spaces.1.wait_while(spaces.0.lock().expect("lock"), |s| s.len() < 2);
    assert_eq!(*wait.expect("lock"), [true, false]);
    server.stop().expect("stop");
}

#[test]
fn a_start_without_a_ballast_refuses_new_data_until_there_is_one() {
    let disk = Arc::new(FullDisk { given_up: true.into(), given_up_before: true, ..FullDisk::default() });
    let (server, kept, spaces) = keeping(&disk);
    let wait = spaces.1.wait_while(spaces.0.lock().expect("lock"), |s| s.is_empty());
    assert_eq!(*wait.expect("lock"), [true]);
    assert!(*kept.0.lock().expect("lock"));
    disk.freed.store(true, Ordering::SeqCst);
    let wait = spaces.1.wait_while(spaces.0.lock().expect("lock"), |s| s.len() < 2);
    assert_eq!(*wait.expect("lock"), [true, false]);
    assert!(!*kept.0.lock().expect("lock"));
    server.stop().expect("stop");
}
