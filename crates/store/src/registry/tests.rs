//! What every registry promises, and what the one of files promises across crashes.

use super::*;
use crate::disk_sim::{DiskFault, SimDisk};

const PATH: &str = "cluster/map";

fn open<D: Disk>(disk: D) -> RegistryFiles<D> {
    RegistryFiles::open(disk).expect("opened")
}

fn record(version: u64, bytes: &[u8]) -> Option<Record> {
    Some(Record { version, bytes: bytes.into() })
}

/// Everything the `Registry` contract promises.
fn check_registry(registry: &dyn Registry) {
    assert_eq!(registry.read(MAP), Ok(None));
    assert_eq!(registry.swap(MAP, 1, b"x"), Err(SwapError::Stale { stored: 0 }));
    assert_eq!(registry.read(MAP), Ok(None), "a refused swap makes nothing");
    assert_eq!(registry.swap(MAP, 0, b"first"), Ok(1));
    assert_eq!(registry.read(MAP), Ok(record(1, b"first")));
    for expected in [0, 2, u64::MAX] {
        assert_eq!(registry.swap(MAP, expected, b"late"), Err(SwapError::Stale { stored: 1 }));
    }
    assert_eq!(registry.read(MAP), Ok(record(1, b"first")));
    assert_eq!(registry.swap(MAP, 1, b""), Ok(2));
    assert_eq!(registry.read(MAP), Ok(record(2, b"")), "empty is not absent");
    let long = vec![7; RECORD_BYTES_MAX];
    assert_eq!(registry.swap(MAP, 2, &long), Ok(3));
    assert_eq!(registry.read(MAP), Ok(record(3, &long)));
    let too_long = vec![7; RECORD_BYTES_MAX + 1];
    assert!(matches!(registry.swap(MAP, 3, &too_long), Err(SwapError::Store(StoreError::Io { .. }))));
    assert_eq!(registry.swap(MAP, 3, b"short again"), Ok(4), "a refused one poisons nothing");
    assert_eq!(registry.read(MAP), Ok(record(4, b"short again")));
    // Names do not meet each other, nor anything outside.
    assert_eq!(registry.read("map-2"), Ok(None));
    assert_eq!(registry.swap("map-2", 0, b"other"), Ok(1));
    assert_eq!(registry.read(MAP), Ok(record(4, b"short again")));
    for name in ["", "../x", "a/b", "map.new", "Map", &"n".repeat(65)] {
        assert!(registry.read(name).is_err() && registry.swap(name, 0, b"x").is_err(), "{name:?}");
    }
    // Of several who expect the same version one is heard.
    let swap = |number: u8| registry.swap(MAP, 4, &[number]);
    let results = std::thread::scope(|scope| {
        let threads = [1, 2, 3, 4].map(|number| scope.spawn(move || swap(number)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(results.iter().filter(|result| **result == Ok(5)).count(), 1, "{results:?}");
    let stale = results.iter().filter(|result| **result == Err(SwapError::Stale { stored: 5 }));
    assert_eq!(stale.count(), 3, "{results:?}");
    let winner = results.iter().position(Result::is_ok).expect("one") as u8 + 1;
    assert_eq!(registry.read(MAP), Ok(record(5, &[winner])));
}

#[test]
fn the_key_of_tokens_is_made_once() {
    let registry = open(SimDisk::new(3));
    let (first, second) = ([1; 16], [2; 16]);
    assert_eq!(join_key(&registry, &first), Ok(first));
    assert_eq!(join_key(&registry, &second), Ok(first));
    assert_eq!(registry.swap(JOIN_KEY, 1, b"short"), Ok(2));
    assert!(matches!(join_key(&registry, &second), Err(StoreError::Damaged { .. })));
}

#[test]
fn the_registry_of_a_simulated_disk_conforms() {
    check_registry(&open(SimDisk::new(1)));
}

#[cfg(feature = "embedded")]
#[test]
fn the_registry_of_a_real_disk_conforms() {
    let place = tempfile::tempdir().expect("folder");
    check_registry(&open(crate::disk_real::RealDisk::new(place.path())));
    let again = open(crate::disk_real::RealDisk::new(place.path()));
    assert_eq!(again.read(MAP).expect("read").map(|record| record.version), Some(5));
    let mut names: Vec<_> = std::fs::read_dir(place.path().join("cluster"))
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["map", "map-2", "map.new"], "what was the map is written over next");
}

/// Long enough to be torn.
fn content(version: u64) -> Vec<u8> {
    vec![version as u8; 3000 + 500 * version as usize]
}

/// Kills a registry in each step of its third swap, in every way that a crash can go. What was durable stays; the last swap is whole
/// or absent; if it was acknowledged it is there. What somebody has read is not taken back by a second crash.
fn crash_everywhere(power: bool) {
    for seed in 0..60 {
        for steps in 0.. {
            let disk = SimDisk::new(seed * 1000 + steps);
            let registry = open(disk.clone());
            for version in 0..2 {
                assert_eq!(registry.swap(MAP, version, &content(version + 1)), Ok(version + 1));
            }
            disk.die_after(steps);
            let third = registry.swap(MAP, 2, &content(3));
            let acknowledged = third == Ok(3);
            assert!(acknowledged || registry.read(MAP) == Err(StoreError::Poisoned), "{third:?}");
            if power {
                disk.crash()
            } else {
                disk.kill()
            }
            let next = open(disk.clone());
            let found = next.read(MAP).expect("old or new, never neither").expect("there");
            assert!(found.version == 3 || (found.version == 2 && !acknowledged), "{found:?} {third:?}");
            assert_eq!(found.bytes, content(found.version));
            drop(next);
            disk.crash();
            let again = open(disk.clone());
            assert_eq!(again.read(MAP), Ok(Some(found.clone())), "what was read was not durable");
            assert_eq!(again.swap(MAP, found.version, b"goes on"), Ok(found.version + 1));
            if acknowledged {
                break;
            }
            assert!(steps < 100, "a swap has few steps");
        }
    }
}

#[test]
fn a_crash_in_any_step_leaves_the_old_record_or_the_new() {
    crash_everywhere(true);
}

#[test]
fn a_killed_process_leaves_nothing_that_a_later_crash_takes_back() {
    crash_everywhere(false);
}

/// A sync of the folder fails, the registry is recovered, and the machine dies in each step of that: nobody knows which of two files
/// the record is after a crash, so neither may be half written over.
#[test]
fn a_crash_in_any_step_of_a_recovery_leaves_a_record() {
    for seed in 0..60 {
        for steps in 0.. {
            let disk = SimDisk::new(seed * 1000 + steps);
            let registry = open(disk.clone());
            for version in 0..2 {
                assert_eq!(registry.swap(MAP, version, &content(version + 1)), Ok(version + 1));
            }
            let (hit, mut done) = (disk.clone(), 0);
            disk.meanwhile(Some(Box::new(move || {
                done += 1;
                if done == 2 {
                    hit.inject(DiskFault::Sync, "cluster", 1);
                }
            })));
            assert!(matches!(
                registry.swap(MAP, 2, &content(3)),
                Err(SwapError::Store(StoreError::Io { .. }))
            ));
            disk.meanwhile(None);
            disk.die_after(steps);
            let recovered = registry.recover(MAP);
            disk.crash();
            let found = open(disk.clone()).read(MAP).expect("old or new").expect("there");
            assert!(found.version == 3 || (found.version == 2 && recovered.is_err()), "{found:?}");
            assert_eq!(found.bytes, content(found.version));
            if recovered.is_ok() {
                break;
            }
            assert!(steps < 100, "a recovery has few steps");
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_registry_that_does_not_sync_is_caught() {
    let defects: [(&str, fn()); 4] = [
        ("registry_recovers_in_place", a_crash_in_any_step_of_a_recovery_leaves_a_record),
        ("registry_no_sync", a_crash_in_any_step_leaves_the_old_record_or_the_new),
        ("registry_no_folder_sync", a_crash_in_any_step_leaves_the_old_record_or_the_new),
        ("registry_reads_undurable", a_killed_process_leaves_nothing_that_a_later_crash_takes_back),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

#[test]
fn a_failed_write_or_sync_poisons_it_until_it_recovers_or_is_reopened() {
    // The third is that of the folder.
    let faults = [(DiskFault::Write, 0), (DiskFault::Sync, 0), (DiskFault::Sync, 2)];
    for ((fault, after), recovers) in faults.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let disk = SimDisk::new(3);
        let registry = open(disk.clone());
        assert_eq!(registry.swap(MAP, 0, b"first"), Ok(1));
        let (hit, mut done) = (disk.clone(), 0);
        if after == 0 {
            disk.inject(fault, "cluster/map.new", 1);
        } else {
            disk.meanwhile(Some(Box::new(move || {
                done += 1;
                if done == after {
                    hit.inject(fault, "cluster", 1);
                }
            })));
        }
        assert!(matches!(registry.swap(MAP, 1, b"second"), Err(SwapError::Store(StoreError::Io { .. }))));
        disk.meanwhile(None);
        let poisoned = StoreError::Poisoned;
        assert_eq!(registry.read(MAP), Err(poisoned.clone()), "which of the two is durable nobody knows");
        assert_eq!(registry.swap(MAP, 1, b"third"), Err(SwapError::Store(poisoned)));
        let crashed = disk.clone();
        if recovers {
            disk.inject(DiskFault::Sync, "cluster/map.new", 1);
            assert!(registry.recover(MAP).is_err());
            assert_eq!(registry.read(MAP), Err(StoreError::Poisoned), "it was not written again");
            assert_eq!(registry.recover(MAP), Ok(()));
            let read = registry.read(MAP).expect("read");
            crashed.crash();
            assert_eq!(open(crashed).read(MAP), Ok(read), "what is read is durable");
            continue;
        }
        crashed.crash();
        let again = open(disk);
        let version = again.read(MAP).expect("read").expect("there").version;
        assert!((1..=2).contains(&version));
        assert_eq!(again.swap(MAP, version, b"goes on"), Ok(version + 1));
    }
}

#[test]
fn a_full_disk_keeps_the_old_record_and_may_be_tried_again() {
    let disk = SimDisk::new(4);
    let registry = open(disk.clone());
    assert_eq!(registry.swap(MAP, 0, b"first"), Ok(1));
    disk.set_capacity(8192);
    let long = vec![1; 8192];
    assert_eq!(registry.swap(MAP, 1, &long), Err(SwapError::Store(StoreError::NoSpace)));
    assert_eq!(registry.read(MAP), Ok(record(1, b"first")));
    assert_eq!(disk.names(), [PATH], "nothing is left that takes space");
    assert_eq!(registry.swap(MAP, 1, b"second"), Ok(2));
    disk.set_capacity(u64::MAX);
    assert_eq!(registry.swap(MAP, 2, &long), Ok(3));
}

/// What the coordinator's process does on a disk without any room: read, recover, give up what is kept back, recover.
#[test]
fn a_poisoned_registry_recovers_when_a_full_disk_gets_room() {
    let disk = SimDisk::new(9);
    let registry = open(disk.clone());
    let long = content(1);
    assert_eq!(registry.swap(MAP, 0, &long), Ok(1));
    disk.inject(DiskFault::Sync, "cluster/map.new", 1);
    assert!(matches!(registry.swap(MAP, 1, &long), Err(SwapError::Store(StoreError::Io { .. }))));
    disk.remove("cluster/map.new").expect("removed");
    disk.set_capacity(used(&disk));
    assert_eq!(registry.read(MAP), Err(StoreError::Poisoned));
    assert_eq!(registry.recover(MAP), Err(StoreError::NoSpace));
    assert_eq!(registry.read(MAP), Err(StoreError::Poisoned), "not for good: it is tried again");
    disk.set_capacity(u64::MAX);
    assert_eq!(registry.recover(MAP), Ok(()));
    assert_eq!(registry.read(MAP), Ok(record(1, &long)));
    assert_eq!(registry.swap(MAP, 1, b"goes on"), Ok(2));
}

fn used(disk: &SimDisk) -> u64 {
    let space = disk.space().expect("alive");
    space.total - space.free
}

#[test]
fn every_flipped_bit_is_found_and_the_file_is_named() {
    let disk = SimDisk::new(5);
    let registry = open(disk.clone());
    assert_eq!(registry.swap(MAP, 0, b"the map"), Ok(1));
    let bits = (RECORD_HEADER_BYTES + 7) as u64 * 8;
    for bit in 0..bits {
        assert!(disk.flip(PATH, bit));
        match registry.read(MAP) {
            Err(StoreError::Damaged { at, .. }) => assert_eq!(at, PATH),
            other => panic!("bit {bit}: {other:?}"),
        }
        let swapped = registry.swap(MAP, 1, b"x");
        assert!(matches!(swapped, Err(SwapError::Store(StoreError::Damaged { .. }))), "{swapped:?}");
        assert!(disk.flip(PATH, bit));
    }
    assert_eq!(registry.read(MAP), Ok(record(1, b"the map")));
    assert!(!disk.flip(PATH, bits), "all were tried");
}

#[test]
fn lengths_that_cannot_be_are_damage() {
    let whole = encode(7, b"content").expect("short enough");
    assert_eq!(decode(&whole).map(Some), Ok(record(7, b"content")));
    for len in 0..whole.len() {
        assert!(decode(&whole[..len]).is_err(), "cut at {len}");
    }
    assert!(decode(&[whole.clone(), vec![0]].concat()).is_err());
    assert_eq!(encode(1, &vec![0; RECORD_BYTES_MAX + 1]), None);
    let newer = [&whole[..8], &3_u32.to_le_bytes(), &whole[12..]].concat();
    assert_eq!(decode(&newer), Err(DecodeError::TooNew { found: 3, supported: 1 }));
    // A file that is too long for any record is not even read.
    let disk = SimDisk::new(6);
    let file = disk.create(PATH).expect("made");
    file.set_len(RECORD_BYTES_MAX as u64 * 2).expect("longer");
    let error = open(disk).read(MAP).expect_err("damaged").to_string();
    assert_eq!(error, "cluster/map: record of 16777216 exceeds its limit");
}

#[test]
fn what_a_crash_left_of_a_longer_record_does_not_reach_the_next() {
    let disk = SimDisk::new(7);
    let registry = open(disk.clone());
    let left = disk.create("cluster/map.new").expect("made");
    left.write_at(&[9; 9000], 0).expect("written");
    assert_eq!(registry.swap(MAP, 0, b"short"), Ok(1));
    assert_eq!(registry.read(MAP), Ok(record(1, b"short")));
}

#[test]
fn a_record_of_another_registry_goes_on_with_its_version() {
    let registry = open(SimDisk::new(8));
    assert!(registry.adopt(MAP, 0, b"x").is_err(), "no record has version 0");
    assert_eq!(registry.adopt(MAP, 17, b"from a backup"), Ok(()));
    assert_eq!(registry.read(MAP), Ok(record(17, b"from a backup")));
    assert_eq!(registry.adopt(MAP, 20, b"late"), Err(SwapError::Stale { stored: 17 }));
    assert_eq!(registry.swap(MAP, 17, b"goes on"), Ok(18));
}
