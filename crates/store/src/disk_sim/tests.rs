//! What the simulated disk promises and what it takes away.

use super::*;
use crate::disk::DiskFile;

fn file(disk: &SimDisk, name: &str) -> SimFile {
    disk.create(name).expect("created")
}

#[test]
fn synced_bytes_and_names_survive_every_crash() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let f = file(&disk, "a/b");
        f.write_at(&[7; 5000], 0).expect("written");
        f.sync_data().expect("synced");
        disk.sync_folder("a").expect("folder");
        f.write_at(&[8; 100], 6000).expect("written");
        disk.crash();
        assert!(f.size().is_err(), "stale");
        let bytes = disk.content("a/b").expect("there");
        assert!(bytes.len() == 5000 || bytes.len() == 6100);
        assert_eq!(bytes[..5000], [7; 5000]);
    }
}

#[test]
fn unsynced_writes_tear_and_reorder_at_sectors() {
    let (mut torn, mut reordered, mut lost) = (0, 0, 0);
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let f = file(&disk, "f");
        f.write_at(&[0; 4096], 0).expect("written");
        f.sync_data().expect("synced");
        disk.sync_folder("").expect("folder");
        f.write_at(&[1; 2048], 0).expect("written");
        f.write_at(&[2; 2048], 2048).expect("written");
        disk.crash();
        let bytes = disk.content("f").expect("there");
        let sectors: Vec<u8> = bytes
            .chunks(512)
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
                sector[0]
            })
            .collect();
        torn += u32::from(sectors[..4].contains(&0) && sectors[..4].contains(&1));
        reordered += u32::from(!sectors[..4].contains(&1) && sectors[4..].contains(&2));
        lost += u32::from(sectors.iter().all(|sector| *sector == 0));
    }
    assert!(torn > 50 && reordered > 5 && lost > 5, "{torn} {reordered} {lost}");
}

#[test]
fn names_not_synced_may_vanish_but_renames_are_whole() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        file(&disk, "old").sync_data().expect("synced");
        disk.sync_folder("").expect("folder");
        drop(file(&disk, "new"));
        disk.rename("old", "moved").expect("renamed");
        disk.crash();
        let names = disk.names();
        assert!(names.contains(&"old".into()) != names.contains(&"moved".into()));
        seen.insert(names);
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_full_disk_refuses_and_gives_back() {
    let disk = SimDisk::new(1);
    disk.set_capacity(8192);
    let f = file(&disk, "f");
    f.write_at(&[1; 8192], 0).expect("fits");
    assert_eq!(f.write_at(&[1], 8192), Err(StoreError::NoSpace));
    f.write_at(&[2; 4096], 100).expect("rewriting needs no space");
    f.punch(0, 4096).expect("punched");
    f.allocate(8192, 10).expect("fits again");
    assert_eq!(f.write_at(&[1], 0), Err(StoreError::NoSpace));
    drop(f);
    disk.remove("f").expect("removed");
    assert_eq!(disk.space().expect("space").free, 8192);
}

#[test]
fn a_failed_sync_is_not_repaired_by_the_next() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let f = file(&disk, "f");
        disk.sync_folder("").expect("folder");
        f.write_at(&[1; 512], 0).expect("written");
        disk.inject(DiskFault::Sync, "f", 1);
        assert!(f.sync_data().is_err());
        f.sync_data().expect("the error is reported once");
        disk.crash();
        lost += u32::from(disk.content("f").expect("there").iter().all(|byte| *byte == 0));
    }
    assert!(lost > 10);
}

#[test]
fn holes_are_found_and_cuts_read_as_zeros() {
    let disk = SimDisk::new(1);
    let f = file(&disk, "f");
    f.write_at(&[1; 4096], 8192).expect("written");
    assert_eq!(f.seek(0, false), Ok(Some(8192)));
    assert_eq!(f.seek(0, true), Ok(Some(0)));
    assert_eq!(f.seek(8192, true), Ok(Some(12288)));
    f.set_len(8200).expect("cut");
    f.set_len(9000).expect("extended");
    let mut bytes = [9; 808];
    assert_eq!(f.read_at(&mut bytes, 8192), Ok(808));
    assert_eq!((&bytes[..8], &bytes[8..]), (&[1; 8][..], &[0; 800][..]));
}

#[test]
fn power_fails_at_the_planned_operation() {
    let disk = SimDisk::new(5);
    let f = file(&disk, "f");
    disk.die_after(1);
    f.write_at(&[1; 100], 0).expect("one more");
    assert!(f.sync_data().is_err() && disk.is_dead());
    assert!(disk.open("f").is_err());
    disk.crash();
    assert!(disk.open("f").is_ok());
}
