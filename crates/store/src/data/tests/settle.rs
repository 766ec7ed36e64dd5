//! When compaction takes a segment that goes on losing records: not before the rest of them could have gone as well.

use super::super::locks::guard;
use super::*;
use stdx::Mono;
use stdx::time::SECOND;

const FILES: u64 = 1000;
const LEN: usize = 200;

/// A store of some sealed segments, covered by an index, that waits for a second.
fn waiting(disk: &SimDisk) -> DataFiles<SimDisk> {
    let limits = Limits { settle_ns: SECOND, ..Limits::tiny() };
    let store = DataFiles::open(disk.clone(), 1000, limits).expect("open");
    store.keep_time(Mono(100 * SECOND));
    (0..FILES).for_each(|number| drop(write(&store, file(number), 0, &[1; LEN]).unwrap()));
    sync_all(&store);
    store.checkpoint(&mut guard(&store.checkpointer)).unwrap();
    store
}

fn remove(store: &DataFiles<SimDisk>, numbers: impl IntoIterator<Item = u64>) {
    numbers.into_iter().for_each(|number| drop(store.run(&DataOp::Remove { file: file(number) }).unwrap()));
}

/// Bytes that compaction copies until it finds nothing more to do.
fn moved(store: &DataFiles<SimDisk>) -> u64 {
    let mut bytes = 0;
    loop {
        let done = store.compact_step(16 << 10).unwrap();
        bytes += done.moved_bytes;
        if !done.more {
            return bytes;
        }
    }
}

/// Measured: a tenth of the CPU time of a tree's removal went to moving files that were removed next.
#[test]
fn a_tree_that_is_being_removed_is_not_moved_about() {
    let disk = SimDisk::new(1);
    let store = waiting(&disk);
    let before = store.stats().segment_bytes;
    let mut copied = 0;
    for (turn, numbers) in (0..FILES).collect::<Vec<_>>().chunks(20).enumerate() {
        store.keep_time(Mono(100 * SECOND + turn as u64 * SECOND / 50));
        remove(&store, numbers.iter().copied());
        copied += moved(&store);
    }
    assert_eq!(copied, 0);
    store.flush_all().unwrap();
    moved(&store);
    assert!(store.stats().segment_bytes * 4 < before, "emptied segments go at once: {:?}", store.stats());
}

#[test]
fn what_is_left_is_moved_when_nothing_more_was_removed_for_a_while() {
    let disk = SimDisk::new(2);
    let store = waiting(&disk);
    remove(&store, (0..FILES).filter(|number| number % 10 != 3));
    store.flush_all().unwrap();
    store.keep_time(Mono(100 * SECOND + SECOND - 1));
    assert_eq!(moved(&store), 0);
    store.keep_time(Mono(101 * SECOND));
    assert!(moved(&store) > 0);
    let (stats, open) = (store.stats(), 2 * Limits::tiny().segment_bytes);
    assert!(stats.segment_bytes <= stats.live_bytes * 5 / 4 + open, "{stats:?}");
    (0..FILES).for_each(|number| {
        let expected = if number % 10 == 3 { 1 } else { 0 };
        assert_eq!(read(&store, file(number), LEN), Ok(vec![expected; LEN]));
    });
}

/// Else what is overwritten a little all the time would keep its dead records for good.
#[test]
fn a_segment_that_never_stops_losing_records_is_taken_in_the_end() {
    let disk = SimDisk::new(3);
    let store = waiting(&disk);
    // Some of what is left goes from each segment twice within the time that would settle it.
    remove(&store, (0..FILES).filter(|number| number % 3 != 0));
    let lose = |half: u64| {
        store.keep_time(Mono(100 * SECOND + half * SECOND / 2));
        remove(&store, (0..FILES).filter(|number| number % 3 == 0 && number / 3 % 12 == half));
        moved(&store)
    };
    (0..10).for_each(|half| assert_eq!(lose(half), 0, "after {half} half seconds"));
    assert!(lose(10) > 0);
}

#[test]
fn where_space_is_short_nothing_is_waited_for() {
    let short = |shorten: &dyn Fn(&SimDisk, &DataFiles<SimDisk>)| {
        let disk = SimDisk::new(4);
        let store = waiting(&disk);
        remove(&store, (0..FILES).filter(|number| number % 3 == 0 || number % 2 == 0));
        store.flush_all().unwrap();
        assert_eq!(moved(&store), 0);
        shorten(&disk, &store);
        moved(&store)
    };
    let room = 2 * Limits::tiny().segment_bytes;
    assert!(short(&|disk, _| disk.set_capacity(used(disk) + room)) > 0, "the disk is nearly full");
    assert!(short(&|_, store| store.keep_room(true)) > 0, "the ballast was given up");
}
