//! Full disks and compaction.

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
