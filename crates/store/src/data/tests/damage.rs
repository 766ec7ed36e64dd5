//! Flipped bits: found, named, never served.

use super::*;
use stdx::Prng;

fn filled(disk: &SimDisk) -> DataFiles<SimDisk> {
    let store = opened(disk);
    for number in 0..60 {
        write(&store, file(number), 0, &vec![number as u8 + 1; 200 + number as usize * 10]).unwrap();
        if number == 50 {
            // An index checkpoint; what follows is in the tail behind it.
            sync_all(&store);
        }
    }
    for number in 60..63 {
        write(&store, file(number), 0, &[number as u8 + 1; 9000]).unwrap();
    }
    sync_all(&store);
    store
}

fn expected(number: u64) -> Vec<u8> {
    vec![number as u8 + 1; if number < 60 { 200 + number as usize * 10 } else { 9000 }]
}

#[test]
fn a_flipped_bit_in_a_segment_is_named_and_never_served() {
    let mut rng = Prng::new(1);
    let (mut at_open, mut at_read) = (0, 0);
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        drop(filled(&disk));
        disk.crash();
        let segments: Vec<String> =
            disk.names().into_iter().filter(|name| name.starts_with("data/seg-")).collect();
        let name = segments[rng.index(segments.len())].clone();
        let len = disk.content(&name).map_or(0, |content| content.len() as u64);
        if len <= 64 {
            continue;
        }
        let bit = rng.below(len * 8);
        assert!(disk.flip(&name, bit));
        let store = match open(&disk) {
            Ok(store) => store,
            Err(StoreError::Damaged { at, .. }) => {
                assert!(at.starts_with(&name), "{at}");
                at_open += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let mut found = Vec::new();
        store.verify(&mut |damage| found.push(damage)).unwrap();
        assert!(
            found.len() == 1 && found[0].name == name && found[0].offset <= bit / 8,
            "{name} {bit}: {found:?}"
        );
        for number in 0..63 {
            match read(&store, file(number), expected(number).len()) {
                Ok(bytes) => assert_eq!(bytes, expected(number)),
                Err(StoreError::Damaged { at, .. }) => {
                    assert!(at.starts_with(&name), "{at}");
                    at_read += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(at_open > 10 && at_read > 10, "{at_open} {at_read}");
}

#[test]
fn damage_of_state_index_and_blocks_is_named() {
    for (prefix, offset) in [("data/state", 20), ("data/index-", 100), ("data/index-", 5), ("data/blk/", 20)]
    {
        let disk = SimDisk::new(4);
        let store = filled(&disk);
        assert!(disk.names().iter().any(|name| name.starts_with("data/index-")), "an index was due");
        drop(store);
        disk.crash();
        let name = disk.names().into_iter().find(|name| name.starts_with(prefix)).unwrap();
        assert!(disk.flip(&name, offset * 8 + 1));
        if prefix == "data/blk/" {
            let number =
                (60..63).find(|number| read(&opened(&disk), file(*number), 9000) != Ok(expected(*number)));
            assert_eq!(number, None, "the second copy of the header serves");
            assert!(disk.flip(&name, (512 + offset) * 8));
        }
        match open(&disk) {
            Err(StoreError::Damaged { at, .. }) => assert!(at.starts_with(&name), "{at}"),
            Ok(store) => {
                assert_eq!(prefix, "data/blk/");
                let damaged = |number: &u64| match read(&store, file(*number), 9000) {
                    Err(StoreError::Damaged { at, .. }) => at.starts_with(&name),
                    other => {
                        assert_eq!(other, Ok(expected(*number)));
                        false
                    }
                };
                assert_eq!((60..63).filter(damaged).count(), 1);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_missing_synced_segment_is_damage_and_a_damaged_index_can_be_rebuilt() {
    use crate::disk::Disk;
    let disk = SimDisk::new(5);
    drop(filled(&disk));
    let name = disk.names().into_iter().find(|name| name.starts_with("data/index-")).unwrap();
    disk.flip(&name, 100 * 8);
    let (store, damages) = DataFiles::open_damaged(disk.clone(), SMALL, Limits::tiny()).unwrap();
    assert_eq!(damages.len(), 1);
    assert_eq!(damages[0].name, name);
    for number in 0..63 {
        assert_eq!(read(&store, file(number), expected(number).len()), Ok(expected(number)));
    }
    drop(store);
    disk.flip(&name, 100 * 8);
    disk.remove("data/seg-00000001").unwrap();
    match open(&disk) {
        Err(StoreError::Damaged { at, what }) => {
            assert!(at.starts_with("data/seg-00000001") && what.contains("missing"), "{at} {what}");
        }
        other => panic!("{:?}", other.err()),
    }
}
