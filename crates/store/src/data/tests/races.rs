//! What others do while a sync, a growing file or a compaction takes its time.
//!
//! Absent: random histories (`model`); here each test is one interleaving that once lost data.

use super::super::locks::guard;
use super::*;
use crate::disk_sim::DiskFault;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Lets `work` run once, in the first write or sync from now on.
fn once(disk: &SimDisk, mut work: impl FnMut() + Send + 'static) {
    let mut done = false;
    disk.meanwhile(Some(Box::new(move || {
        if !std::mem::replace(&mut done, true) {
            work();
        }
    })));
}

/// `sync_blocks` took the file off the list before its blocks were synced: a `SyncAll` that began meanwhile did not find it
/// there, did not wait, and answered while the data was volatile.
#[test]
fn a_sync_of_everything_waits_for_a_sync_of_one_file_under_way() {
    let disk = SimDisk::new(1);
    let store = Arc::new(opened(&disk));
    write(&store, file(1), 0, &[7; 20_000]).unwrap();
    let (other, (answer, answered)) = (Arc::clone(&store), mpsc::channel());
    let early = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&early);
    let answered = Arc::new(Mutex::new(answered));
    let later = Arc::clone(&answered);
    once(&disk, move || {
        // The first of three blocks is synced.
        let (other, answer) = (Arc::clone(&other), answer.clone());
        let begun = other.syncs_begun.load(SeqCst);
        let asks = Arc::clone(&other);
        std::thread::spawn(move || answer.send(asks.run(&DataOp::SyncAll)));
        while other.syncs_begun.load(SeqCst) == begun {
            std::thread::yield_now();
        }
        seen.store(guard(&answered).recv_timeout(Duration::from_millis(300)).is_ok(), SeqCst);
    });
    assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Ok(DataDone::Done));
    assert!(!early.load(SeqCst), "SyncAll answered while two blocks were volatile");
    assert_eq!(guard(&later).recv(), Ok(Ok(DataDone::Done)));
    // Before the store goes: the last handle of it may not be dropped with the disk's lock held.
    disk.meanwhile(None);
    drop(store);
    disk.crash();
    assert_eq!(read(&opened(&disk), file(1), 20_000), Ok(vec![7; 20_000]));
}

/// Who asks while a sync is under way is not answered by it, because it may have passed what was written meanwhile; who asked
/// before a sync began is answered by that one.
#[test]
fn who_waits_for_a_sync_is_answered_by_the_next() {
    let begun = |store: &DataFiles<SimDisk>| store.syncs_begun.load(SeqCst);
    let disk = SimDisk::new(3);
    let store = Arc::new(opened(&disk));
    write(&store, file(1), 0, &[7; 20_000]).unwrap();
    let (other, came) = (Arc::clone(&store), Arc::new(AtomicU64::new(0)));
    let noted = Arc::clone(&came);
    once(&disk, move || {
        write(&other, file(2), 0, &[8; 20_000]).unwrap();
        noted.store(begun(&other), SeqCst);
    });
    sync_all(&store);
    disk.meanwhile(None);
    let came = came.load(SeqCst);
    assert_eq!(store.sync_after(came), Ok(()));
    assert_eq!(begun(&store), came + 1, "the sync under way answered, or more than one began");
    assert_eq!(store.sync_after(came), Ok(()));
    assert_eq!(begun(&store), came + 1, "one was answered already");
    drop(store);
    disk.crash();
    assert_eq!(read(&opened(&disk), file(2), 20_000), Ok(vec![8; 20_000]));
}

/// A sync that failed is not tried again by whoever waited for the file: on Linux the second one succeeds.
#[test]
fn a_sync_of_everything_behind_a_failed_sync_of_one_file_fails_too() {
    let disk = SimDisk::new(2);
    let store = Arc::new(opened(&disk));
    write(&store, file(1), 0, &[7; 20_000]).unwrap();
    let (other, (answer, answered)) = (Arc::clone(&store), mpsc::channel());
    let (faulty, holds) = (disk.clone(), Arc::clone(&store));
    once(&disk, move || {
        faulty.inject(DiskFault::Sync, "data/blk", 1);
        let (other, answer) = (Arc::clone(&other), answer.clone());
        std::thread::spawn(move || answer.send(other.run(&DataOp::SyncAll)));
        // It has passed its own check once it holds the checkpointer.
        while holds.checkpointer.try_lock().is_ok() {
            std::thread::yield_now();
        }
    });
    assert!(matches!(store.run(&DataOp::Sync { file: file(1) }), Err(StoreError::Io { .. })));
    assert_eq!(answered.recv(), Ok(Err(StoreError::Poisoned)));
    disk.meanwhile(None);
}

/// A failed write is told once: to the write-out that ran beside the sync, which then succeeded without the bytes.
#[test]
fn a_sync_beside_a_write_out_that_fails_fails_too() {
    let disk = SimDisk::new(4);
    let store = Arc::new(opened(&disk));
    write(&store, file(1), 0, &[7; 16 << 10]).unwrap();
    let (other, faulty) = (Arc::clone(&store), disk.clone());
    once(&disk, move || {
        faulty.inject(DiskFault::Sync, "data/blk", 1);
        assert!(matches!(other.background_step(0), Err(StoreError::Io { .. })));
    });
    assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Err(StoreError::Poisoned));
    disk.meanwhile(None);
}

/// A buffered file grew without a sync, because nothing of it was durable; meanwhile `SyncAll` flushed it and made it so. The
/// tombstone became durable, block 0 did not, or its header did and its content did not.
#[test]
fn content_made_durable_while_its_file_grows_is_not_lost() {
    for (seed, tombstone) in (0..40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let disk = SimDisk::new(seed);
        let store = Arc::new(opened(&disk));
        write(&store, file(1), 0, &[7; 600]).unwrap();
        let other = Arc::clone(&store);
        once(&disk, move || sync_all(&other));
        write(&store, file(1), 600, &[8; 3000]).unwrap();
        disk.meanwhile(None);
        if tombstone {
            store.flush_all().unwrap();
            store.checkpoint(&mut guard(&store.checkpointer)).unwrap();
        }
        drop(store);
        disk.crash();
        assert_eq!(read(&opened(&disk), file(1), 600), Ok(vec![7; 600]), "seed {seed}, {tombstone}");
    }
}

#[test]
fn a_file_that_cannot_grow_for_lack_of_space_stays_as_it_is() {
    let disk = SimDisk::new(3);
    let store = opened(&disk);
    write(&store, file(1), 0, &[7; 600]).unwrap();
    for pages in 0..2 {
        disk.set_capacity(used(&disk) + pages * 4096);
        let grown = write(&store, file(1), 600, &[8; 3000]);
        disk.set_capacity(u64::MAX);
        assert_eq!(grown, Err(StoreError::NoSpace));
        assert_eq!((store.stats().large_files, store.is_poisoned()), (0, false));
        assert!(!disk.names().iter().any(|name| name.starts_with("data/blk")), "{:?}", disk.names());
        assert_eq!(read(&store, file(1), 600), Ok(vec![7; 600]), "{pages} pages");
    }
}

/// A segment counted as synced before the folder was: a file in it was told to be durable without a redo, and the power cut
/// took the segment's name.
#[test]
fn a_segment_is_not_synced_before_its_name_is() {
    // So few that no index is written, whose name would make all names durable.
    for (seed, operation) in (0..20).flat_map(|seed| (0..3).map(move |operation| (seed, operation))) {
        let disk = SimDisk::new(seed);
        let store = Arc::new(opened(&disk));
        let files = 20;
        (0..files).for_each(|number| drop(write(&store, file(number), 0, &[7; 1000]).unwrap()));
        store.flush_all().unwrap();
        assert!(store.stats().segments > 1, "the last one's sync sees the first ones synced");
        let (other, cut_off) = (Arc::clone(&store), disk.clone());
        let durable = Arc::new(Mutex::new(Vec::new()));
        let (told, operations) = (Arc::clone(&durable), AtomicU64::new(0));
        disk.meanwhile(Some(Box::new(move || {
            let sync = |number: &u64| other.run(&DataOp::Sync { file: file(*number) }) == Ok(DataDone::Done);
            if operations.fetch_add(1, SeqCst) == operation {
                guard(&told).extend((0..files).filter(sync));
                cut_off.die_after(0);
            }
        })));
        assert!(store.run(&DataOp::SyncAll).is_err());
        disk.meanwhile(None);
        drop(store);
        disk.crash();
        let store = opened(&disk);
        for number in guard(&durable).iter() {
            assert_eq!(
                read(&store, file(*number), 1000),
                Ok(vec![7; 1000]),
                "seed {seed}: {number}, {operation}"
            );
        }
    }
}
