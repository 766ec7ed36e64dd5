//! Pages of large files: written out early, dropped late, read ahead, and synced many at once.
//!
//! Absent: what the kernel makes of it.

use super::{SMALL, file, opened, sync_all, write};
use crate::data::{DataFiles, Limits};
use crate::disk_sim::{DiskFault, SimDisk};
use proto::storeio::{Cut, DataDone, DataOp, StoreError};

const BLOCK: usize = 8 << 10;

fn read_at(store: &DataFiles<SimDisk>, number: u64, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    store.read_into(file(number), Cut::default(), offset as u64, &mut bytes).expect("a read");
    bytes
}

#[test]
fn complete_blocks_are_written_out_before_anybody_syncs() {
    let disk = SimDisk::new(1);
    let store = opened(&disk);
    write(&store, file(1), 0, &[1; BLOCK + 10]).unwrap();
    assert_eq!(disk.counts().write_outs, 0);
    while store.background_step(0).unwrap() {}
    assert_eq!(disk.counts().write_outs, 1, "not the one that grows");
    assert!(!store.background_step(0).unwrap());
    write(&store, file(1), 0, &[2; BLOCK]).unwrap();
    while store.background_step(0).unwrap() {}
    assert_eq!(disk.counts().write_outs, 2, "changed, and complete again");
}

#[test]
fn a_writer_does_not_run_away_from_the_disk() {
    let disk = SimDisk::new(2);
    let store = opened(&disk);
    for block in 0..40 {
        write(&store, file(1), (block * BLOCK) as u64, &[1; BLOCK]).unwrap();
    }
    // No background work ran: the writer itself waited for all but the newest.
    assert!(disk.counts().write_outs >= 40 - 10, "{:?}", disk.counts());
}

#[test]
fn a_failed_write_out_poisons_as_a_failed_sync_does() {
    let disk = SimDisk::new(3);
    let store = opened(&disk);
    write(&store, file(1), 0, &[1; 2 * BLOCK]).unwrap();
    disk.inject(DiskFault::Sync, "data/blk", 1);
    assert!(matches!(store.background_step(0), Err(StoreError::Io { .. })));
    // The disk would say yes now, and what the write-out lost is gone.
    assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Err(StoreError::Poisoned));
    assert_eq!(store.run(&DataOp::SyncAll), Err(StoreError::Poisoned));
}

/// The kernel tells a failed write to who has the file open, and nobody would have.
#[test]
fn a_handle_is_not_closed_before_what_was_written_through_it_is_on_disk() {
    let disk = SimDisk::new(6);
    let store = opened(&disk);
    write(&store, file(1), 0, &[1; BLOCK - 1]).unwrap();
    disk.inject(DiskFault::Sync, "data/blk", 1);
    // More files than handles are kept.
    for number in 2..8 {
        let _refused_once_it_is_known = write(&store, file(number), 0, &[1; BLOCK - 1]);
    }
    assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Err(StoreError::Poisoned));
}

#[test]
fn a_block_in_turn_with_another_is_counted_once_and_stays_cached() {
    let disk = SimDisk::new(4);
    let store = opened(&disk);
    // Eight blocks may be cached; two files have four each.
    for number in [1, 2] {
        write(&store, file(number), 0, &[1; 4 * BLOCK]).unwrap();
    }
    sync_all(&store);
    while store.background_step(0).unwrap() {}
    for _ in 0..50 {
        read_at(&store, 1, 0, 100);
        read_at(&store, 2, 0, 100);
    }
    assert_eq!(disk.counts().drops, 0);
}

#[test]
fn blocks_beyond_the_limit_are_dropped_when_they_are_written() {
    let disk = SimDisk::new(5);
    let store = opened(&disk);
    for number in 0..30 {
        // None is complete: only the lack of room has them written out.
        write(&store, file(number), 0, &[1; BLOCK - 1]).unwrap();
        while store.background_step(0).unwrap() {}
    }
    let counts = disk.counts();
    assert!(counts.drops >= 10 && counts.drops <= counts.write_outs, "{counts:?}");
}

#[test]
fn the_next_block_is_read_ahead_of_a_sequential_reader_only() {
    let disk = SimDisk::new(6);
    // Blocks so large that the run that must come first fits into one.
    let limits = Limits {
        block_bytes: 4 << 20,
        data_cache_limit: 1 << 30,
        data_cache_max_filesize: 1 << 30,
        ..Limits::tiny()
    };
    let store = DataFiles::open(disk.clone(), SMALL, limits).unwrap();
    for mib in 0..12 {
        write(&store, file(1), mib << 20, &vec![mib as u8; 1 << 20]).unwrap();
    }
    for mib in [6, 2, 10, 2, 6] {
        read_at(&store, 1, (mib << 20) - 4096, 8192);
    }
    assert_eq!(disk.counts().prefetches, 0);
    for step in 0..96 {
        let at = step * (128 << 10);
        assert_eq!(read_at(&store, 1, at, 128 << 10), vec![(at >> 20) as u8; 128 << 10]);
    }
    assert_eq!(disk.counts().prefetches, 2, "of blocks 1 and 2, and of none behind the end");
}

#[test]
fn all_of_many_blocks_are_synced() {
    let disk = SimDisk::new(7);
    let store = opened(&disk);
    let body: Vec<u8> = (0..300 * BLOCK).map(|at| (at / BLOCK) as u8 | 1).collect();
    write(&store, file(1), 0, &body).unwrap();
    assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Ok(DataDone::Done));
    drop(store);
    disk.crash();
    assert!(read_at(&opened(&disk), 1, 0, body.len()) == body);
}
