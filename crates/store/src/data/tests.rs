//! Tests of the data store on the simulated disk: a model with crashes, damage, full disks,
//! compaction, and what is quick.
//!
//! Absent: unit tests of the formats (beside their code), speed.

mod damage;
mod flow;
mod model;
mod races;
mod settle;
mod space;

use super::{DataFiles, Limits};
use crate::disk::Disk;
use crate::disk_sim::{DiskFault, SimDisk};
use proto::storeio::{Cut, DataDone, DataOp, Payload, StoreError};
use proto::{FileId, Ino};

const SMALL: u32 = 1024;

fn file(number: u64) -> FileId {
    FileId { ino: Ino(4096 + number), generation: 1 }
}

fn open(disk: &SimDisk) -> Result<DataFiles<SimDisk>, StoreError> {
    DataFiles::open(disk.clone(), SMALL, Limits::tiny())
}

fn opened(disk: &SimDisk) -> DataFiles<SimDisk> {
    open(disk).expect("a disk without damage opens")
}

fn write(
    store: &DataFiles<SimDisk>,
    file: FileId,
    offset: u64,
    bytes: &[u8],
) -> Result<DataDone, StoreError> {
    write_cut(store, file, Cut::default(), offset, bytes)
}

fn write_cut(
    store: &DataFiles<SimDisk>,
    file: FileId,
    cut: Cut,
    offset: u64,
    bytes: &[u8],
) -> Result<DataDone, StoreError> {
    store.run(&DataOp::Write { file, cut, offset, data: Payload::Owned(bytes.to_vec()) })
}

fn read(store: &DataFiles<SimDisk>, file: FileId, len: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0xEE; len];
    store.read_into(file, Cut::default(), 0, &mut bytes).map(|()| bytes)
}

/// Bytes that files take on the disk, reserved ones too.
fn used(disk: &SimDisk) -> u64 {
    let space = disk.space().unwrap();
    space.total - space.free
}

fn sync_all(store: &DataFiles<SimDisk>) {
    assert_eq!(store.run(&DataOp::SyncAll), Ok(DataDone::Done));
}

#[test]
fn a_small_file_is_buffered_then_packed_then_read_back() {
    let disk = SimDisk::new(1);
    let store = opened(&disk);
    assert_eq!(write(&store, file(1), 3, b"abc"), Ok(DataDone::Count(3)));
    assert_eq!(read(&store, file(1), 8), Ok(b"\0\0\0abc\0\0".to_vec()));
    assert_eq!(store.stats().live_bytes, 0);
    sync_all(&store);
    assert_eq!((store.stats().packed_files, store.stats().buffered_bytes), (1, 0));
    assert_eq!(read(&store, file(1), 6), Ok(b"\0\0\0abc".to_vec()));
    drop(store);
    disk.crash();
    assert_eq!(read(&opened(&disk), file(1), 6), Ok(b"\0\0\0abc".to_vec()));
}

#[test]
fn a_file_grows_to_blocks_and_back_over_an_empty_one() {
    let disk = SimDisk::new(2);
    let store = opened(&disk);
    let body = [7; 100];
    write(&store, file(1), 0, &body).unwrap();
    sync_all(&store);
    write(&store, file(1), 20_000, &[8; 10]).unwrap();
    let stats = store.stats();
    assert_eq!((stats.packed_files, stats.large_files, stats.blocks), (0, 1, 2));
    let bytes = read(&store, file(1), 20_010).unwrap();
    assert!(bytes[..100] == body && bytes[100..20_000].iter().all(|b| *b == 0) && bytes[20_000..] == [8; 10]);
    let cut = Cut { seq: 1, size: 0 };
    store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
    write_cut(&store, file(1), cut, 0, b"new").unwrap();
    assert_eq!((store.stats().large_files, store.stats().packed_files), (0, 1));
    assert_eq!(read(&store, file(1), 5), Ok(b"new\0\0".to_vec()));
    drop(store);
    disk.kill();
    let store = opened(&disk);
    assert_eq!(read(&store, file(1), 3), Ok(vec![7; 3]), "what was synced");
    store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
    assert_eq!(read(&store, file(1), 3), Ok(vec![0; 3]), "and cut again");
}

#[test]
fn sync_of_a_small_file_gives_its_content_and_redo_brings_it_back() {
    let disk = SimDisk::new(3);
    let store = opened(&disk);
    write(&store, file(1), 0, b"first").unwrap();
    let redo = store.run(&DataOp::Sync { file: file(1) }).unwrap();
    let DataDone::Redo { truncate_seq, write_seq, data } = redo else { panic!("{redo:?}") };
    assert_eq!((truncate_seq, &data[..]), (0, &b"first"[..]));
    drop(store);
    disk.crash();
    let store = opened(&disk);
    let op = DataOp::Redo { file: file(1), truncate_seq, write_seq, data };
    store.run(&op).unwrap();
    assert_eq!(read(&store, file(1), 5), Ok(b"first".to_vec()));
    write(&store, file(1), 0, b"later").unwrap();
    store.run(&op).unwrap();
    assert_eq!(read(&store, file(1), 5), Ok(b"later".to_vec()), "an older redo changes nothing");
    sync_all(&store);
    assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Ok(DataDone::Done), "it is in a synced segment");
}

/// A file was cut while `SyncAll` flushed the queue. The shorter content took a place behind
/// what `SyncAll` waited for; the journal let go of the fsynced content, and the power failed.
#[test]
fn what_changes_during_a_sync_of_everything_is_synced_too() {
    let disk = SimDisk::new(5);
    let store = std::sync::Arc::new(opened(&disk));
    let files = 9;
    for number in 0..files {
        write(&store, file(number), 0, &[7; 500]).unwrap();
    }
    let (other, last) = (std::sync::Arc::clone(&store), file(files - 1));
    let cut = Cut { seq: 1, size: 100 };
    disk.meanwhile(Some(Box::new(move || {
        let body = || Payload::Owned(vec![8; 500]);
        let writes =
            (0..3).map(|n| DataOp::Write { file: file(n), cut: Cut::default(), offset: 0, data: body() });
        for op in writes.chain([DataOp::Truncate { file: last, cut }]) {
            other.run_quick(&op).map(Result::unwrap);
        }
    })));
    sync_all(&store);
    disk.meanwhile(None);
    drop(store);
    disk.kill();
    disk.crash();
    let store = opened(&disk);
    assert_eq!(read(&store, last, 100), Ok(vec![7; 100]));
}

#[test]
fn content_nobody_synced_reaches_the_disk_with_the_second_flush_of_what_is_old() {
    let disk = SimDisk::new(6);
    let store = opened(&disk);
    write(&store, file(1), 0, b"old").unwrap();
    store.flush_aged().unwrap();
    assert!(store.stats().buffered_bytes > 0);
    store.flush_aged().unwrap();
    assert_eq!(store.stats().buffered_bytes, 0);
    drop(store);
    disk.kill();
    let store = opened(&disk);
    assert_eq!(read(&store, file(1), 3), Ok(b"old".to_vec()));
}

#[cfg(feature = "mutants")]
#[test]
fn a_changed_content_that_moves_back_is_caught() {
    stdx::mutant::activate(Some("data_edit_moves_back"));
    let verdict = std::panic::catch_unwind(what_changes_during_a_sync_of_everything_is_synced_too);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// Write, fsync, cut, write, fsync, crash. The replay cut the first content under a new
/// write sequence, and the second redo, written under one of the life before, looked older and was dropped.
#[test]
fn a_redo_after_a_cut_wins_over_what_the_replay_cut() {
    for in_segment in [false, true] {
        let disk = SimDisk::new(8);
        let store = opened(&disk);
        let cut = Cut { seq: 1, size: 2 };
        let synced = |store: &DataFiles<SimDisk>| {
            let redo = store.run(&DataOp::Sync { file: file(1) }).unwrap();
            let DataDone::Redo { truncate_seq, write_seq, data } = redo else { panic!("{redo:?}") };
            DataOp::Redo { file: file(1), truncate_seq, write_seq, data }
        };
        write(&store, file(1), 0, b"first").unwrap();
        let first = synced(&store);
        if in_segment {
            sync_all(&store);
        }
        store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
        write_cut(&store, file(1), cut, 3, b"xy").unwrap();
        let second = synced(&store);
        drop(store);
        disk.crash();
        let store = opened(&disk);
        for op in [first, DataOp::Truncate { file: file(1), cut }, second] {
            store.run(&op).unwrap();
        }
        assert_eq!(read(&store, file(1), 5), Ok(b"fi\0xy".to_vec()), "in a segment: {in_segment}");
    }
}

/// Write, sync of everything, cut to nothing, write, fsync, crash; replay, sync of everything, crash. What broke: the replay
/// buried the first content under sequences of its own life, and the tombstone was newer than the second content.
#[test]
fn a_tombstone_does_not_bury_a_redo_of_the_life_before() {
    let disk = SimDisk::new(10);
    let store = opened(&disk);
    let cut = Cut { seq: 1, size: 0 };
    write(&store, file(1), 0, b"first").unwrap();
    sync_all(&store);
    store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
    write_cut(&store, file(1), cut, 0, b"later").unwrap();
    let redo = store.run(&DataOp::Sync { file: file(1) }).unwrap();
    let DataDone::Redo { truncate_seq, write_seq, data } = redo else { panic!("{redo:?}") };
    drop(store);
    disk.crash();
    let store = opened(&disk);
    assert_eq!(read(&store, file(1), 5), Ok(b"first".to_vec()), "its tombstone was lost");
    store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
    store.run(&DataOp::Redo { file: file(1), truncate_seq, write_seq, data }).unwrap();
    // The journal lets go of both.
    sync_all(&store);
    drop(store);
    disk.crash();
    assert_eq!(read(&opened(&disk), file(1), 5), Ok(b"later".to_vec()));
}

#[cfg(feature = "mutants")]
#[test]
fn a_tombstone_of_the_life_that_replays_is_caught() {
    stdx::mutant::activate(Some("data_tombstone_of_now"));
    let verdict = std::panic::catch_unwind(a_tombstone_does_not_bury_a_redo_of_the_life_before);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn an_older_object_is_cut_before_it_is_read_or_written() {
    let disk = SimDisk::new(4);
    let store = opened(&disk);
    for (number, len) in [(1, 600), (2, 12_000)] {
        let cut = Cut { seq: 1, size: 10 };
        write(&store, file(number), 0, &vec![5; len]).unwrap();
        let mut bytes = vec![1; 40];
        store.read_into(file(number), cut, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [&[5; 10][..], &[0; 30]].concat(), "a reader sees the cut");
        write_cut(&store, file(number), cut, 20, &[6; 5]).unwrap();
        store.read_into(file(number), cut, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [&[5; 10][..], &[0; 10], &[6; 5], &[0; 15]].concat());
        store.run(&DataOp::Truncate { file: file(number), cut }).unwrap();
        store.read_into(file(number), cut, 0, &mut bytes).unwrap();
        assert_eq!(bytes[20..25], [6; 5], "the cut it has seen is not applied again");
    }
}

#[test]
fn a_cut_block_written_and_synced_survives_the_replay_of_its_cut() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let store = opened(&disk);
        write(&store, file(1), 0, &[5; 7000]).unwrap();
        sync_all(&store);
        let cut = Cut { seq: 1, size: 100 };
        store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
        write_cut(&store, file(1), cut, 3000, &[6; 50]).unwrap();
        assert_eq!(store.run(&DataOp::Sync { file: file(1) }), Ok(DataDone::Done));
        drop(store);
        disk.crash();
        let store = opened(&disk);
        store.run(&DataOp::Truncate { file: file(1), cut }).unwrap();
        let expected = [&[5; 100][..], &[0; 2900], &[6; 50], &[0; 3950]].concat();
        let mut bytes = vec![1; 7000];
        store.read_into(file(1), cut, 0, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "seed {seed}");
    }
}

#[test]
fn copies_keep_holes_and_stop_at_nothing() {
    let disk = SimDisk::new(5);
    let store = opened(&disk);
    write(&store, file(1), 0, &[1; 100]).unwrap();
    write(&store, file(1), 50_000, &[2; 9000]).unwrap();
    let copy = |source, source_offset, target, target_offset, len| {
        let (source_cut, target_cut) = (Cut::default(), Cut::default());
        let (source, target) = (file(source), file(target));
        store.run(&DataOp::Copy { source, source_cut, source_offset, target, target_cut, target_offset, len })
    };
    assert_eq!(copy(1, 0, 2, 10, 59_000), Ok(DataDone::Count(59_000)));
    assert_eq!(read(&store, file(2), 59_010).unwrap()[10..], read(&store, file(1), 59_000).unwrap());
    assert!(store.stats().blocks < 2 * 3 + 2, "{:?}", store.stats());
    assert_eq!(copy(1, 0, 1, 200, 100), Ok(DataDone::Count(100)), "within one file");
    assert_eq!(read(&store, file(1), 300).unwrap()[200..], [1; 100]);
    assert_eq!(copy(9, 0, 3, 0, 70_000), Ok(DataDone::Count(70_000)), "a hole");
    assert_eq!(store.stats().large_files, 2);
}

#[test]
fn seek_finds_data_and_holes_in_both_forms() {
    let disk = SimDisk::new(6);
    let store = opened(&disk);
    write(&store, file(1), 0, &[1; 100]).unwrap();
    write(&store, file(2), 20_480, &[1; 4096]).unwrap();
    let seek = |number, offset, size, hole| {
        store.run(&DataOp::Seek { file: file(number), cut: Cut::default(), offset, size, hole })
    };
    let at = |offset| Ok(DataDone::Offset(offset));
    assert_eq!(seek(1, 0, 500, false), at(Some(0)));
    assert_eq!(seek(1, 50, 500, true), at(Some(100)));
    assert_eq!(seek(1, 100, 500, false), at(None));
    assert_eq!(seek(1, 500, 500, true), at(None));
    assert_eq!(seek(1, 0, 100, true), at(Some(100)), "the end is a hole");
    assert_eq!(seek(2, 0, 30_000, false), at(Some(20_480)));
    assert_eq!(seek(2, 0, 30_000, true), at(Some(0)));
    assert_eq!(seek(2, 21_000, 30_000, true), at(Some(24_576)));
    assert_eq!(seek(2, 24_576, 30_000, false), at(None));
    assert_eq!(seek(3, 0, 10, false), at(None));
}

#[test]
fn what_is_said_to_be_quick_reads_and_writes_nothing() {
    let disk = SimDisk::new(7);
    let store = opened(&disk);
    let cut = Cut::default();
    let data = Payload::Owned(vec![1; 500]);
    let write = |number| DataOp::Write { file: file(number), cut, offset: 0, data: data.clone() };
    assert!(store.run_quick(&write(1)).is_none(), "no segment is reserved yet");
    store.background_step(0).unwrap();
    let ops = [
        write(1),
        DataOp::Read { file: file(1), cut, offset: 0, len: 9, into: None },
        DataOp::Sync { file: file(1) },
        DataOp::Remove { file: file(1) },
        write(2),
        DataOp::Truncate { file: file(2), cut: Cut { seq: 1, size: 5 } },
    ];
    let before = disk.counts();
    for op in &ops {
        store.run_quick(op).unwrap_or_else(|| panic!("{op:?} is not quick")).unwrap();
    }
    assert_eq!(disk.counts(), before);
    sync_all(&store);
    let slow = [
        DataOp::Read { file: file(2), cut, offset: 0, len: 9, into: None },
        DataOp::Write { file: file(2), cut, offset: 1, data: data.clone() },
        DataOp::Write { file: file(3), cut, offset: 2000, data: data.clone() },
    ];
    assert!(slow.iter().all(|op| store.run_quick(op).is_none()));
    let mut number = 10;
    while let Some(written) = store.run_quick(&write(number)) {
        written.unwrap();
        number += 1;
        assert!(number < 100, "buffers are bounded");
    }
}

#[test]
fn after_a_failed_write_or_sync_the_store_refuses_until_reopened() {
    use crate::disk_sim::DiskFault;
    for fault in [DiskFault::Write, DiskFault::Sync] {
        let disk = SimDisk::new(8);
        let store = opened(&disk);
        write(&store, file(1), 0, b"kept").unwrap();
        sync_all(&store);
        write(&store, file(2), 0, b"lost").unwrap();
        disk.inject(fault, "data/seg-", 1);
        assert!(matches!(store.run(&DataOp::SyncAll), Err(StoreError::Io { .. })));
        assert_eq!(write(&store, file(3), 0, b"no"), Err(StoreError::Poisoned));
        assert_eq!(store.run(&DataOp::SyncAll), Err(StoreError::Poisoned));
        assert_eq!(read(&store, file(1), 4), Ok(b"kept".to_vec()));
        drop(store);
        disk.crash();
        assert_eq!(read(&opened(&disk), file(1), 4), Ok(b"kept".to_vec()));
    }
}

#[test]
fn threads_on_many_files_find_their_own_bytes() {
    let disk = SimDisk::new(9);
    let store = opened(&disk);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let id = file(thread * 100 + round % 10);
                    let byte = (thread * 50 + round % 50 + 1) as u8;
                    let len = if round % 7 == 0 { 3000 } else { 300 };
                    write(store, id, 0, &vec![byte; len]).unwrap();
                    assert_eq!(read(store, id, 300), Ok(vec![byte; 300]));
                    match round % 20 {
                        0 => sync_all(store),
                        5 => drop(store.background_step(4096).unwrap()),
                        9 => drop(store.run(&DataOp::Remove { file: id }).unwrap()),
                        _ => {}
                    }
                }
            });
        }
    });
    assert_eq!(store.verify(&mut |damage| panic!("{damage:?}")).unwrap().damages, 0);
}

#[cfg(feature = "embedded")]
#[test]
fn a_real_folder_keeps_files_holes_and_gives_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let disk = crate::disk_real::RealDisk::new(folder.path());
        DataFiles::open(disk, SMALL, Limits::tiny()).unwrap()
    };
    let store = open();
    let cut = Cut::default();
    for number in 0..200 {
        store.write(file(number), cut, 0, &[number as u8 + 1; 500]).unwrap();
    }
    store.write(file(300), cut, 50_000, &[9; 5000]).unwrap();
    store.run(&DataOp::SyncAll).unwrap();
    for number in (0..200).filter(|number| number % 10 != 0) {
        store.run(&DataOp::Remove { file: file(number) }).unwrap();
    }
    while store.background_step(1 << 20).unwrap() {}
    store.run(&DataOp::SyncAll).unwrap();
    let stats = store.stats();
    // Of 112,800 bytes; the active segment is not compacted.
    assert!(stats.segment_bytes < stats.live_bytes + (16 << 10), "{stats:?}");
    drop(store);
    let store = open();
    for number in 0..200 {
        let mut bytes = [0; 500];
        store.read_into(file(number), cut, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [if number % 10 == 0 { number as u8 + 1 } else { 0 }; 500]);
    }
    let seek = |hole| DataOp::Seek { file: file(300), cut, offset: 0, size: 55_000, hole };
    assert_eq!(store.run(&seek(true)), Ok(DataDone::Offset(Some(0))));
    let data = store.run(&seek(false)).unwrap();
    assert!(matches!(data, DataDone::Offset(Some(at)) if at > 40_000 && at <= 50_000), "{data:?}");
    let mut objects = Vec::new();
    store.objects(&mut |object| objects.push(object)).unwrap();
    assert_eq!(objects.len(), 21);
    assert!(objects.contains(&super::ObjectInfo { file: file(300), size: 55_000, packed: false }));
}

/// What broke: a server that had no descriptor for a moment changed no data any more until it was started again.
#[test]
fn a_sync_that_finds_no_descriptor_may_be_tried_again() {
    for place in ["data/blk", "data/state", "data"] {
        for at in 0..30 {
            let disk = SimDisk::new(at);
            let store = opened(&disk);
            let large = vec![7; 20_000];
            write(&store, file(1), 0, &large).unwrap();
            write(&store, file(2), 0, b"small").unwrap();
            // Opened again for the sync, all of them.
            for number in 10..60 {
                write(&store, file(number), 0, &large).unwrap();
            }
            let op = if at % 2 == 0 || place == "data/state" {
                DataOp::SyncAll
            } else {
                DataOp::Sync { file: file(1) }
            };
            disk.inject(DiskFault::Open, place, 1 + at as u32 / 2);
            let mut failures = 0;
            while let Err(error) = store.run(&op) {
                assert!(error.finds_no_descriptor(), "{place}, {at}: {error}");
                failures += 1;
                assert!(failures < 40, "{place}, {at}");
            }
            assert!(failures > 0, "{place}, {at}: nothing was opened");
            sync_all(&store);
            drop(store);
            disk.crash();
            let store = opened(&disk);
            assert_eq!(read(&store, file(1), 20_000), Ok(large.clone()), "{place}, {at}");
            assert_eq!(read(&store, file(2), 5), Ok(b"small".to_vec()), "{place}, {at}");
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_store_that_gives_up_for_want_of_a_descriptor_is_caught() {
    stdx::mutant::activate(Some("data_no_descriptor_poisons"));
    let verdict = std::panic::catch_unwind(a_sync_that_finds_no_descriptor_may_be_tried_again);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
