//! Full disks and compaction.

use super::super::locks::guard;
use super::*;

#[test]
fn a_full_disk_refuses_new_data_and_loses_nothing() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        disk.set_capacity((30 + seed) * 4096);
        let store = opened(&disk);
        let (mut kept, mut refused) = (Vec::new(), 0);
        for number in 0..300_u64 {
            let len = if number % 5 == 0 { 5000 } else { 700 };
            match write(&store, file(number), 0, &vec![number as u8 | 1; len]) {
                Ok(DataDone::Count(count)) if count == len as u64 => kept.push((number, len)),
                Ok(other) => panic!("{other:?}"),
                Err(StoreError::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0 && kept.len() > 5, "seed {seed}: {refused} {}", kept.len());
        assert!(!store.is_poisoned());
        for (number, len) in &kept {
            assert_eq!(read(&store, file(*number), *len), Ok(vec![*number as u8 | 1; *len]));
        }
        // Removal works, and its space comes back.
        for (number, _) in &kept {
            store.run(&DataOp::Remove { file: file(*number) }).unwrap();
        }
        disk.set_capacity(u64::MAX);
        sync_all(&store);
        while store.background_step(1 << 20).unwrap() {}
        disk.set_capacity((30 + seed) * 4096);
        write(&store, file(1000), 0, &[3; 700]).unwrap();
        sync_all(&store);
        drop(store);
        disk.crash();
        let store = opened(&disk);
        assert_eq!(read(&store, file(1000), 700), Ok(vec![3; 700]));
        assert_eq!(read(&store, file(kept[0].0), 9), Ok(vec![0; 9]));
    }
}

#[test]
fn a_block_that_could_not_be_written_leaves_no_bytes_behind() {
    let disk = SimDisk::new(1);
    let store = opened(&disk);
    write(&store, file(1), 0, &[5; 5000]).unwrap();
    let used = disk
        .names()
        .iter()
        .filter_map(|name| disk.content(name))
        .map(|c| c.len().div_ceil(4096))
        .sum::<usize>();
    disk.set_capacity(used as u64 * 4096);
    assert_eq!(write(&store, file(1), 5000, &[6; 3100]), Ok(DataDone::Count(3100)), "it fits its pages");
    assert_eq!(write(&store, file(1), 8100, &[6; 5000]), Ok(DataDone::Count(92)), "short at the block's end");
    assert_eq!(write(&store, file(1), 9000, &[6; 5000]), Err(StoreError::NoSpace));
    assert_eq!(write(&store, file(2), 0, &[6; 5000]), Err(StoreError::NoSpace));
    disk.set_capacity(u64::MAX);
    assert_eq!(read(&store, file(1), 16_000).unwrap()[8192..], [0; 16_000 - 8192]);
    assert_eq!(store.stats().large_files, 1);
}

#[test]
fn deleting_nine_of_ten_files_gives_their_space_back() {
    let disk = SimDisk::new(3);
    let store = opened(&disk);
    for number in 0..2000 {
        write(&store, file(number), 0, &[number as u8 | 1; 400]).unwrap();
    }
    sync_all(&store);
    for number in (0..2000).filter(|number| number % 10 != 3) {
        store.run(&DataOp::Remove { file: file(number) }).unwrap();
    }
    sync_all(&store);
    let mut steps = 0;
    while store.background_step(16 << 10).unwrap() {
        steps += 1;
        assert!(steps < 1000, "{:?}", store.stats());
    }
    let stats = store.stats();
    assert_eq!(stats.packed_files, 200);
    assert!(stats.segment_bytes * 10 <= stats.live_bytes * 13, "{stats:?}");
    drop(store);
    disk.crash();
    let store = opened(&disk);
    assert_eq!(store.stats().packed_files, 200);
    for number in 0..2000 {
        let expected = if number % 10 == 3 { number as u8 | 1 } else { 0 };
        assert_eq!(read(&store, file(number), 400), Ok(vec![expected; 400]));
    }
}

/// Live bytes times 1.25 and two segments that records are added to; on the disk, index and state as well.
fn assert_compact(store: &DataFiles<SimDisk>) {
    let (stats, open) = (store.stats(), 2 * Limits::tiny().segment_bytes);
    let wanted = stats.live_bytes * 5 / 4 + open;
    assert!(stats.segment_bytes <= wanted, "{stats:?}");
    let (used, pages) = (used(store.disk()), (stats.segments + 3) * 4096);
    assert!(used <= wanted + pages + store.index_bytes() * 2, "{used}: {stats:?}");
}

/// Files die all over the segments, so that many are left with more than half and less than they should.
#[test]
fn compaction_ends_at_no_more_than_1_3_times_what_lives() {
    for (len, kept) in [(400, 10), (400, 4), (100, 72), (100, 40), (8, 76), (8, 30)] {
        let disk = SimDisk::new(4);
        let store = opened(&disk);
        let files = if len == 8 { 50_000 } else { 800_000 / (64 + len) };
        for number in 0..files {
            write(&store, file(number), 0, &vec![1; len as usize]).unwrap();
        }
        sync_all(&store);
        let mut steps = 0;
        // Some files of each hundred stay; some removals come while compaction is under way.
        for number in (0..files).filter(|number| number * 37 % 100 >= kept) {
            store.run(&DataOp::Remove { file: file(number) }).unwrap();
            if number % 64 == 0 {
                store.background_step(2 << 10).unwrap();
            }
        }
        store.flush_all().unwrap();
        while store.background_step(16 << 10).unwrap() {
            steps += 1;
            assert!(steps < 2000, "{:?}", store.stats());
        }
        assert_compact(&store);
        let indexes = guard(&store.checkpointer).state.index;
        assert!(indexes < 60, "{indexes} index checkpoints for {len} {kept}");
    }
}

/// All segments were just within the bound, and a segment's worth that is reserved came on top.
#[test]
fn what_is_reserved_counts_as_wasted() {
    let mut met = 0;
    for files in (200..400).step_by(10) {
        let disk = SimDisk::new(4);
        let store = opened(&disk);
        (0..files).for_each(|number| drop(write(&store, file(number), 0, &[1; 400]).unwrap()));
        sync_all(&store);
        for number in (0..files).filter(|number| number * 37 % 100 >= 84) {
            store.run(&DataOp::Remove { file: file(number) }).unwrap();
        }
        store.flush_all().unwrap();
        let all = || {
            let reserved = guard(&store.central).space_left;
            (store.stats().segment_bytes, reserved, store.stats().live_bytes)
        };
        let (bytes, reserved, live) = all();
        met += u64::from(bytes * 4 < live * 5 && (bytes + reserved) * 4 > live * 5);
        let mut steps = 0;
        while store.background_step(16 << 10).unwrap() {
            steps += 1;
            assert!(steps < 1000, "{:?}", store.stats());
        }
        let (bytes, reserved, live) = all();
        // Or no segment is left of which a ninth is dead, but for the two that are being filled.
        let packed = bytes <= live * 9 / 8 + 2 * Limits::tiny().segment_bytes / 8;
        assert!((bytes + reserved) * 4 <= live * 5 || packed, "{files}: {bytes} {reserved} {live}");
    }
    assert!(met > 2, "only {met} were just within the bound");
}

/// What is sealed before it is full keeps nothing reserved.
#[test]
fn a_segment_that_is_mostly_dead_gives_back_what_was_reserved_behind_it() {
    let disk = SimDisk::new(4);
    let store = opened(&disk);
    for number in 0..20 {
        write(&store, file(number), 0, &[1; 400]).unwrap();
    }
    sync_all(&store);
    let full = used(&disk);
    for number in 0..19 {
        store.run(&DataOp::Remove { file: file(number) }).unwrap();
    }
    store.flush_all().unwrap();
    store.rotate_dead_active().unwrap();
    assert!(used(&disk) < full, "{} {full}", used(&disk));
    assert_eq!(read(&store, file(19), 400), Ok(vec![1; 400]));
}

/// Half the index is a quarter of what such files take: a checkpoint that never came for less left that unused.
#[test]
fn an_index_as_large_as_its_files_does_not_keep_dead_segments() {
    let disk = SimDisk::new(4);
    let store = opened(&disk);
    let fill = |from: u64, to: u64| {
        (from..to).for_each(|number| drop(write(&store, file(number), 0, &[1; 8]).unwrap()));
        store.flush_all().unwrap();
    };
    let remove = |from: u64, to: u64, of: u64| {
        let gone = (from..to).filter(|number| number % of == 0);
        gone.for_each(|number| drop(store.run(&DataOp::Remove { file: file(number) }).unwrap()));
        store.flush_all().unwrap();
    };
    fill(0, 25_000);
    remove(0, 25_000, 5);
    store.checkpoint(&mut guard(&store.checkpointer)).unwrap();
    fill(25_000, 26_500);
    remove(25_000, 26_500, 1);
    while store.background_step(16 << 10).unwrap() {}
    assert_compact(&store);
}

#[test]
fn compaction_at_rest_keeps_no_space_reserved() {
    let disk = SimDisk::new(4);
    let store = opened(&disk);
    (0..80).for_each(|number| drop(write(&store, file(number), 0, &[1; 1000]).unwrap()));
    sync_all(&store);
    drop(store);
    // Without an active segment, which keeps its space.
    let store = opened(&disk);
    (0..77).for_each(|number| drop(store.run(&DataOp::Remove { file: file(number) }).unwrap()));
    while store.compact_step(16 << 10).unwrap().more {}
    let pages = |disk: &SimDisk| -> u64 {
        let contents = disk.names().into_iter().filter_map(|name| disk.content(&name));
        contents.map(|content| content.len().div_ceil(4096) as u64 * 4096).sum()
    };
    assert_eq!(used(&disk), pages(&disk));
    // Its output goes on without.
    (77..79).for_each(|number| drop(store.run(&DataOp::Remove { file: file(number) }).unwrap()));
    while store.compact_step(16 << 10).unwrap().more {}
    assert_eq!(read(&store, file(79), 1000), Ok(vec![1; 1000]));
}

#[test]
fn compaction_rests_on_a_full_disk_and_burns_no_segment_numbers() {
    let disk = SimDisk::new(5);
    let store = opened(&disk);
    for number in 0..600 {
        write(&store, file(number), 0, &[1; 400]).unwrap();
    }
    sync_all(&store);
    store.checkpoint(&mut guard(&store.checkpointer)).unwrap();
    for number in (0..600).filter(|number| number % 10 != 3) {
        store.run(&DataOp::Remove { file: file(number) }).unwrap();
    }
    disk.set_capacity(0);
    let before = guard(&store.central).next_segment;
    let mut busy = 0;
    for _ in 0..100 {
        // What is reserved still takes some flushes.
        busy += u32::from(store.background_step(16 << 10).unwrap());
        assert_eq!(write(&store, file(700), 0, &[1; 5000]), Err(StoreError::NoSpace));
    }
    assert_eq!(guard(&store.central).next_segment, before);
    assert!(busy < 10, "{busy}");
    disk.set_capacity(u64::MAX);
    sync_all(&store);
    while store.background_step(16 << 10).unwrap() {}
    assert_compact(&store);
    drop(store);
    disk.crash();
    assert_eq!(opened(&disk).stats().packed_files, 60);
}

#[test]
fn segment_numbers_end_before_a_store_that_would_not_open() {
    let disk = SimDisk::new(6);
    let store = opened(&disk);
    guard(&store.central).next_segment = super::super::record::SEGMENT_ID_MAX - 1;
    for number in 0..100 {
        if write(&store, file(number), 0, &[1; 1000]).is_err() {
            break;
        }
    }
    assert_eq!(write(&store, file(100), 0, &[1; 1000]), Err(StoreError::NoSpace));
    sync_all(&store);
    drop(store);
    assert_eq!(read(&opened(&disk), file(0), 1000), Ok(vec![1; 1000]));
}

#[test]
fn packed_files_are_cut_on_a_full_disk_at_replay_and_in_service() {
    let disk = SimDisk::new(7);
    let store = opened(&disk);
    let cut = |number| DataOp::Truncate { file: file(number), cut: Cut { seq: 1, size: 600 } };
    for number in 0..80 {
        write(&store, file(number), 0, &[1; 1000]).unwrap();
    }
    sync_all(&store);
    disk.set_capacity(0);
    (0..40).for_each(|number| assert_eq!(store.run(&cut(number)), Ok(DataDone::Done)));
    drop(store);
    disk.crash();
    let store = opened(&disk);
    (0..80).for_each(|number| assert_eq!(store.run(&cut(number)), Ok(DataDone::Done)));
    assert_eq!(store.run(&DataOp::SyncAll), Err(StoreError::NoSpace));
    let check = |store: &DataFiles<SimDisk>| {
        let expected = [&[1; 600][..], &[0; 400]].concat();
        (0..80).for_each(|number| assert_eq!(read(store, file(number), 1000), Ok(expected.clone())));
    };
    check(&store);
    disk.set_capacity(u64::MAX);
    sync_all(&store);
    drop(store);
    disk.crash();
    check(&opened(&disk));
}

/// Where buffers wait for space, compaction is what gives it back: it must not wait for them.
#[test]
fn dead_segments_go_although_buffers_cannot_be_flushed() {
    let disk = SimDisk::new(8);
    let store = opened(&disk);
    for number in 0..80 {
        write(&store, file(number), 0, &[1; 1000]).unwrap();
    }
    sync_all(&store);
    drop(store);
    let store = opened(&disk);
    (0..60).for_each(|number| drop(store.run(&DataOp::Remove { file: file(number) }).unwrap()));
    let before = store.stats().segment_bytes;
    // Room for an index and a state file, not for a segment.
    disk.set_capacity(used(&disk) + 3 * 4096);
    for number in 60..80 {
        let cut = Cut { seq: 1, size: 900 };
        assert_eq!(store.run(&DataOp::Truncate { file: file(number), cut }), Ok(DataDone::Done));
    }
    while store.background_step(16 << 10).unwrap() {}
    assert!(store.stats().segment_bytes * 2 < before, "{:?}", store.stats());
}

/// Compaction met a full disk after some records of its batch were written. They lay behind the output's end,
/// whole and in their right place; once an index covered the tombstones of their files, a power cut brought the files back.
#[test]
fn a_move_that_meets_a_full_disk_leaves_nothing_behind_the_output() {
    let mut refused = 0;
    for kept in 0..30 {
        let disk = SimDisk::new(9);
        let store = opened(&disk);
        (0..120).for_each(|number| drop(write(&store, file(number), 0, &[1; 300]).unwrap()));
        sync_all(&store);
        drop(store);
        // Without an active segment; the first moves make an output and give its reserved space back.
        let store = opened(&disk);
        let remove =
            |store: &DataFiles<SimDisk>, number| drop(store.run(&DataOp::Remove { file: file(number) }));
        (0..40).filter(|number| number % 8 != 0).for_each(|number| remove(&store, number));
        while store.compact_step(16 << 10).unwrap().more {}
        (40..80).filter(|number| number % 32 != kept).for_each(|number| remove(&store, number));
        store.checkpoint(&mut guard(&store.checkpointer)).unwrap();
        disk.set_capacity(used(&disk));
        store.compact_step(16 << 10).unwrap();
        let output =
            guard(&store.compactor).output.as_ref().map(|output| (output.id, output.end, output.reserved));
        let Some((id, end, false)) = output else { continue };
        refused += u64::from(guard(&store.compactor).victim.is_some());
        let content = disk.content(&super::super::record::segment_name(id)).unwrap();
        assert_eq!(content.len() as u64, end, "kept {kept}");
    }
    assert!(refused > 0);
}

/// Files until the disk is full, synced, then a ballast of a segment and a little given up. Returns how many files.
fn filled(disk: &SimDisk, store: &DataFiles<SimDisk>) -> u64 {
    let count = (0..).take_while(|number| write(store, file(*number), 0, &[7; 900]).is_ok()).count() as u64;
    store.flush_all().unwrap();
    while store.background_step(16 << 10).unwrap() {}
    store.keep_room(true);
    disk.set_capacity(used(disk) + Limits::tiny().segment_bytes + 4 * 4096);
    count
}

/// The next segment's reservation once took the whole ballast, and the journal found no room for unlinks.
#[test]
fn what_the_ballast_left_is_not_reserved_for_data() {
    let disk = SimDisk::new(9);
    disk.set_capacity(40 * 4096);
    let store = opened(&disk);
    let count = filled(&disk, &store);
    let before = used(&disk);
    for _ in 0..20 {
        store.background_step(16 << 10).unwrap();
        store.flush_aged().unwrap();
    }
    // An index may have been due.
    assert!(used(&disk) <= before + 2 * 4096, "reserved ahead");
    let before = used(&disk);
    // Of whoever was on the way when the ballast went, nobody takes it.
    assert_eq!(write(&store, file(count), 0, &[1; 900]), Err(StoreError::NoSpace));
    assert_eq!(write(&store, file(count), 0, &[1; 5000]), Err(StoreError::NoSpace));
    let range = DataOp::Allocate { file: file(0), cut: Cut::default(), offset: 0, len: 5000 };
    assert_eq!(store.run(&range), Err(StoreError::NoSpace));
    assert_eq!(used(&disk), before);
    // Nor does room for others hold up what makes it.
    (0..count).for_each(|number| drop(store.run(&DataOp::Remove { file: file(number) }).unwrap()));
    sync_all(&store);
    while store.background_step(16 << 10).unwrap() {}
    let room = disk.space().unwrap().available;
    assert!(room > 4 * Limits::tiny().segment_bytes, "{room}");
    store.keep_room(false);
    (0..20).for_each(|number| drop(write(&store, file(number), 0, &[8; 900]).unwrap()));
    sync_all(&store);
    drop(store);
    disk.crash();
    let store = opened(&disk);
    assert_eq!(read(&store, file(19), 900), Ok(vec![8; 900]));
    assert_eq!(read(&store, file(20), 9), Ok(vec![0; 9]));
}

/// Every second file goes, so that space comes from moving the others; no step of it may use up what is free.
#[test]
fn compaction_leaves_room_and_gives_back_segment_by_segment() {
    let disk = SimDisk::new(10);
    disk.set_capacity(80 * 4096);
    let store = opened(&disk);
    let count = filled(&disk, &store);
    let gone = |number: u64| !number.is_multiple_of(3);
    for number in (0..count).filter(|number| gone(*number)) {
        store.run(&DataOp::Remove { file: file(number) }).unwrap();
    }
    store.flush_all().unwrap();
    let start = disk.space().unwrap().available;
    while store.background_step(2 << 10).unwrap() {
        let room = disk.space().unwrap().available;
        assert!(room >= Limits::tiny().segment_bytes / 16, "{room}");
    }
    let room = disk.space().unwrap().available;
    assert!(room > start + 4 * Limits::tiny().segment_bytes, "{start} {room} {:?}", store.stats());
    for number in 0..count {
        let expected = if gone(number) { 0 } else { 7 };
        assert_eq!(read(&store, file(number), 900), Ok(vec![expected; 900]));
    }
}

#[test]
fn small_files_are_taken_where_there_is_no_room_for_a_whole_segment() {
    let disk = SimDisk::new(11);
    disk.set_capacity(4 * 4096);
    let store = opened(&disk);
    write(&store, file(1), 0, &[1; 900]).unwrap();
    sync_all(&store);
    drop(store);
    disk.crash();
    assert_eq!(read(&opened(&disk), file(1), 900), Ok(vec![1; 900]));
}
