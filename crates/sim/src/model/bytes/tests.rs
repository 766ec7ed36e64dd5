//! What a byte may be, case by case.
//!
//! Absent: histories (`world/`).

use super::*;

fn put(bytes: &mut FileBytes, range: std::ops::Range<u64>, source: &Source, from: u64, now: u64) {
    bytes.begin(range.start, range.end, source, from);
    bytes.end(range.start, range.end, source, from, now);
}

#[test]
fn a_cut_goes_with_its_transaction() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..8, &A, 1, 2);
    bytes.synced(3, 3);
    bytes.cut(4, 4, 5, 100);
    let mut kept = bytes.clone();
    kept.crash(4, 100);
    assert!(kept.check(4, &[0; 4], 9, 9).is_ok());
    bytes.crash(8, 99);
    assert!(bytes.check(4, &[0; 4], 9, 9).is_err(), "it was synced and never cut");
    assert!(bytes.check(4, &pattern(1, 4, 4), 9, 9).is_ok());
}

#[test]
fn what_a_lost_cut_had_replaced_was_there() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..8, &A, 1, 2);
    bytes.committed(1, 50);
    bytes.cut(0, 4, 5, 100);
    bytes.crash(8, 99);
    bytes.rewrite(0, &pattern(1, 0, 8), None).expect("its author may write it once more");
    assert!(bytes.rewrite(0, &[0; 8], None).is_err());
}

#[test]
fn bytes_found_after_a_crash_are_copied_to_a_lower_offset() {
    let mut bytes = FileBytes::default();
    bytes.begin(8, 12, &A, 1);
    bytes.crash(12, 0);
    let found = pattern(1, 8, 4);
    assert!(bytes.check(8, &found, 9, 9).is_ok());
    for (start, end, source) in bytes.pieces(10, 12, 10, 10_u64.wrapping_neg()) {
        put(&mut bytes, start..end, &source, 10, 11);
    }
    assert!(bytes.check(0, &found[2..], 12, 12).is_ok());
    assert!(bytes.check(0, &[0; 2], 12, 12).is_err());
}

const A: Source = Source::Pattern { id: 1, shift: 0 };
const B: Source = Source::Pattern { id: 2, shift: 0 };

#[test]
fn a_finished_write_is_what_is_read() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 10..20, &A, 1, 2);
    let mut expected = vec![0; 10];
    expected.extend(pattern(1, 10, 10));
    assert_eq!(bytes.check(0, &expected, 3, 4), Ok(()));
    assert!(bytes.check(0, &[0; 20], 3, 4).is_err());
}

#[test]
fn a_running_write_may_be_seen_in_part() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..8, &A, 1, 2);
    bytes.begin(0, 8, &B, 3);
    let mut mixed = pattern(1, 0, 4);
    mixed.extend(pattern(2, 4, 4));
    assert_eq!(bytes.check(0, &mixed, 4, 5), Ok(()));
    bytes.end(0, 8, &B, 3, 6);
    assert!(bytes.check(0, &mixed, 7, 8).is_err());
    assert_eq!(bytes.check(0, &pattern(2, 0, 8), 7, 8), Ok(()));
}

#[test]
fn what_a_crash_left_and_a_sync_kept_is_what_was_there() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..10, &Source::Pattern { id: 7, shift: 0 }, 1, 2);
    bytes.crash(10, 0);
    let written = pattern(7, 0, 10);
    // Read, synced, and lost to the next crash; its author has it still.
    bytes.check(0, &written, 3, 4).expect("one of what there may be");
    bytes.synced(5, 5);
    bytes.crash(10, 0);
    bytes.rewrite(0, &written, None).expect("that was there");
    assert!(bytes.rewrite(0, &pattern(8, 0, 10), None).is_err());
}

#[test]
fn a_crash_leaves_synced_bytes_alone_and_the_rest_open() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..8, &A, 1, 2);
    bytes.synced(3, 3);
    bytes.crash(8, 0);
    assert!(bytes.check(0, &[0; 8], 5, 6).is_err());
    put(&mut bytes, 4..8, &B, 7, 8);
    bytes.crash(8, 0);
    let mut found = pattern(1, 0, 4);
    found.extend([0; 4]);
    assert_eq!(bytes.check(0, &found, 10, 11), Ok(()));
    // Settled by the first read: another answer is wrong now.
    assert!(bytes.check(0, &pattern(1, 0, 8), 12, 13).is_err());
}

#[test]
fn a_read_under_way_sees_what_an_fsync_forgets() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..8, &A, 1, 2);
    put(&mut bytes, 0..8, &B, 4, 5);
    bytes.synced(6, 3);
    assert_eq!(bytes.check(0, &pattern(1, 0, 8), 3, 7), Ok(()));
    bytes.crash(8, 0);
    assert!(bytes.check(0, &pattern(1, 0, 8), 8, 9).is_err());
}

#[test]
fn beyond_the_recovered_size_there_is_nothing() {
    let mut bytes = FileBytes::default();
    put(&mut bytes, 0..8, &A, 1, 2);
    bytes.crash(3, 0);
    assert_eq!(bytes.check(3, &[0; 5], 5, 6), Ok(()));
    assert!(bytes.check(3, &pattern(1, 3, 5), 5, 6).is_err());
}

#[test]
fn what_a_full_disk_cut_off_is_nobodys() {
    let writer = SessionId(1);
    let mut bytes = FileBytes::default();
    bytes.begin_by(0, 8, &A, (1, Some(writer)));
    bytes.end(0, 4, &A, 1, 2);
    bytes.committed(1, 50);
    bytes.fail(1, 2);
    bytes.crash(8, 50);
    let mut found = pattern(1, 0, 4);
    found.extend([0; 4]);
    assert_eq!(bytes.check(0, &found, 3, 4), Ok(()));
    assert_eq!(bytes.vouched(writer, 5), Ok(()), "it was told of four bytes");
    assert!(bytes.check(0, &[0; 8], 6, 7).is_err());
}
