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

    fn report(&self, _: &serde_json::Value) -> Option<serde_json::Value> {
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

/// Every sync fails.
struct BrokenJournal;

impl JournalIo for BrokenJournal {
    fn read(&self, _: Position, _: &mut dyn FnMut(Position, &[u8])) -> Result<Position, StoreError> {
        Ok(Position(0))
    }

    fn append(&self, _: Position, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&self) -> Result<Position, StoreError> {
        Err(StoreError::Poisoned)
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
}

#[test]
fn after_a_failed_commit_nothing_is_answered_and_stop_says_so() {
    let parts = Parts {
        rank: Box::new(Told { toy: Toy::default(), spaces: Arc::default() }),
        journal: Arc::new(BrokenJournal),
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
    match server.driver.life.wait(|life| matches!(life, crate::driver::Life::Damaged(_))) {
        crate::driver::Life::Damaged(why) => assert!(why.contains("poisoned"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(server.stop(), Err(ServerError::Damaged(_))));
    assert!(mailbox.seen.lock().expect("lock").replies.is_empty());
}
