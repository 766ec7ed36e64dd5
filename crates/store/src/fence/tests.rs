//! After `revoke` returned, nothing changes, whatever was under way.

use super::*;
use crate::disk_sim::SimDisk;
use crate::journal_files::{JournalFiles, JournalLimits};
use crate::meta_memory::MemoryMeta;
use proto::Writer;
use proto::ids::{Incarnation, Ino, Position, RankId};
use proto::journal::{begin_entry, end_entry, put_mark};
use proto::storeio::{Loaded, StoreKey};
use std::thread;

fn batch(value: u64) -> StoreBatch {
    let mut batch = StoreBatch::new(Ino::SYSTEM, None);
    batch.put(StoreKey::Counter { rank: RankId(1) }, |w| {
        w.u64(value);
    });
    batch
}

fn stored(meta: &dyn MetaStore) -> Option<u64> {
    match meta.load(&[LoadRequest::Counter { rank: RankId(1) }]).remove(0) {
        Ok(Loaded::Value(value)) => value.map(|value| u64::from_le_bytes(value[..].try_into().expect("8"))),
        other => panic!("{other:?}"),
    }
}

fn entry(at: Position) -> Vec<u8> {
    let mut w = Writer::new();
    let start = begin_entry(&mut w, at, at);
    put_mark(&mut w);
    end_entry(&mut w, start);
    w.0
}

/// Lets four threads change something until they are refused, revokes their fence in the middle of that, and compares what `state`
/// says then with what it says when all threads have ended.
fn race<S: PartialEq + std::fmt::Debug>(
    change: impl Fn(&Fence) -> Result<(), StoreError> + Sync,
    state: impl Fn() -> S,
) {
    let fence = Fence::new();
    let changes = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Ok(()) = change(&fence) {
                    changes.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(change(&fence), Err(StoreError::Fenced), "and no other error ended it");
            });
        }
        while changes.load(Ordering::Relaxed) < 8 {
            thread::yield_now();
        }
        fence.revoke();
        let at_once = state();
        // A late writer has all the time it wants.
        scope.spawn(|| assert_eq!(change(&fence), Err(StoreError::Fenced))).join().expect("refused");
        assert_eq!(state(), at_once, "changed after revoke had returned");
    });
}

/// A change that is not one instruction: its halves differ while it is under way.
#[test]
fn nobody_is_inside_after_revoke() {
    for _ in 0..300 {
        let halves = [AtomicU64::new(0), AtomicU64::new(0)];
        let change = |fence: &Fence| {
            let _pass = fence.enter()?;
            halves[0].fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            halves[1].fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let state = || halves.each_ref().map(|half| half.load(Ordering::SeqCst));
        race(change, || {
            let [first, second] = state();
            assert_eq!(first, second, "somebody is inside");
            first
        });
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_fence_that_does_not_wait_is_caught() {
    stdx::mutant::activate(Some("fence_does_not_wait"));
    let verdict = std::panic::catch_unwind(nobody_is_inside_after_revoke);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_late_batch_changes_nothing() {
    for seed in 0..50 {
        let meta = Arc::new(MemoryMeta::new(seed));
        let value = AtomicU64::new(0);
        race(
            |fence| {
                let fenced = Fenced::new(Arc::clone(&meta), fence.clone());
                fenced.apply(&[batch(value.fetch_add(1, Ordering::Relaxed))])
            },
            || stored(&*meta),
        );
    }
    let (meta, fence) = (Arc::new(MemoryMeta::new(1)), Fence::new());
    let fenced = Fenced::new(Arc::clone(&meta), fence.clone());
    fenced.apply(&[batch(1)]).expect("applied");
    fence.revoke();
    fence.revoke();
    assert_eq!(fenced.apply(&[batch(2)]), Err(StoreError::Fenced));
    assert_eq!(fenced.load(&[LoadRequest::Counter { rank: RankId(1) }]), [Err(StoreError::Fenced)]);
    let next = Fenced::new(Arc::clone(&meta), Fence::new());
    assert_eq!(stored(&next), Some(1));
    next.apply(&[batch(3)]).expect("another life goes on");
}

#[cfg(feature = "embedded")]
#[test]
fn a_late_batch_is_not_committed_to_lmdb() {
    use crate::meta_lmdb::{LmdbMeta, LmdbOptions};
    let folder = tempfile::tempdir().expect("folder");
    let options = LmdbOptions { environments: 2, map_bytes: Some(16 << 20), create: true };
    let meta = Arc::new(LmdbMeta::open(folder.path(), options).expect("made"));
    let value = AtomicU64::new(0);
    for _ in 0..10 {
        race(
            |fence| {
                let fenced = Fenced::new(Arc::clone(&meta), fence.clone());
                fenced.apply(&[batch(value.fetch_add(1, Ordering::Relaxed))])
            },
            || stored(&*meta),
        );
    }
}

const LIMITS: JournalLimits = JournalLimits { segment_bytes: 8 << 10, journal_bytes: 64 << 10 };

fn open(disk: &SimDisk, life: u64, fence: &Fence) -> Result<JournalFiles<SimDisk>, StoreError> {
    JournalFiles::open_fenced(disk.clone(), RankId(2), Incarnation(life), LIMITS, fence.clone())
}

/// All files of the disk.
fn files(disk: &SimDisk) -> Vec<(String, Option<Vec<u8>>)> {
    disk.names().into_iter().map(|name| (name.clone(), disk.content(&name))).collect()
}

#[test]
fn a_life_that_was_ended_leaves_the_journal_to_the_next() {
    let (disk, fence) = (SimDisk::new(1), Fence::new());
    let old = open(&disk, 1, &fence).expect("opens");
    old.append(Position(0), &entry(Position(0))).expect("appended");
    let end = old.sync().expect("synced");
    fence.revoke();
    let next = open(&disk, 2, &Fence::new()).expect("opens");
    assert_eq!(next.read(Position(0), &mut |_, _| {}), Ok(end));
    next.append(end, &entry(end)).expect("appended");
    let after = next.sync().expect("synced");
    let before = files(&disk);
    let fenced = StoreError::Fenced;
    assert_eq!(old.append(end, &entry(end)), Err(fenced.clone()));
    assert_eq!(old.sync(), Err(fenced.clone()));
    assert_eq!(old.trim(after), Err(fenced.clone()));
    assert_eq!(old.prepare(), Err(fenced.clone()));
    assert_eq!(old.read(Position(0), &mut |_, _| {}), Err(fenced.clone()));
    assert_eq!(open(&disk, 1, &fence).err(), Some(fenced));
    assert_eq!(files(&disk), before);
    let again = open(&disk, 3, &Fence::new()).expect("opens");
    assert_eq!(again.read(Position(0), &mut |_, _| {}), Ok(after));
}

/// The spare that it makes is the work of seconds: its life does not keep the next one waiting, and leaves it alone.
#[test]
fn a_spare_that_is_being_made_does_not_outlive_its_life() {
    for pieces in 0..12 {
        let (disk, fence) = (SimDisk::new(1), Fence::new());
        let limits = JournalLimits { segment_bytes: 8 << 20, journal_bytes: 64 << 20 };
        let old = JournalFiles::open_fenced(disk.clone(), RankId(2), Incarnation(1), limits, fence.clone());
        let old = old.expect("opens");
        let (revoker, mut left) = (fence.clone(), pieces);
        // Between two pieces; `revoke` would wait for the pass of this thread.
        disk.meanwhile(Some(Box::new(move || {
            left -= 1;
            if left < 0 {
                revoker.0.revoked.store(true, Ordering::SeqCst);
            }
        })));
        let made = old.prepare();
        disk.meanwhile(None);
        fence.revoke();
        let names = disk.names();
        match made {
            Ok(made) => assert!(made && names == ["journal/0002/spare.00000000"], "{names:?}"),
            Err(error) => {
                assert_eq!((error, names), (StoreError::Fenced, vec!["journal/0002/new".to_owned()]));
            }
        }
    }
}

#[test]
fn a_late_append_does_not_reach_the_segment() {
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        let fence = Fence::new();
        let journal = open(&disk, 1, &fence).expect("opens");
        let appended = AtomicU64::new(0);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut at = Position(0);
                loop {
                    let bytes = entry(at);
                    match journal.append(at, &bytes) {
                        Ok(()) => at = Position(at.0 + bytes.len() as u64),
                        Err(error) => return error,
                    }
                    appended.fetch_add(1, Ordering::SeqCst);
                }
            });
            while appended.load(Ordering::SeqCst) < 20 {
                thread::yield_now();
            }
            fence.revoke();
            let at_once = files(&disk);
            assert_eq!(writer.join().expect("no panic"), StoreError::Fenced);
            assert!(files(&disk) == at_once, "changed after revoke had returned");
        });
    }
}
