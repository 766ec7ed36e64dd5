//! What only LMDB has: environments, guards inside one transaction, full maps, damage, copies.

use super::*;
use crate::meta::MetaStore;
use proto::header::FragHeader;
use proto::ids::{Frag, NameHash, Version};
use proto::storeio::StoreKey;
use std::os::unix::fs::FileExt;

fn options(create: bool) -> LmdbOptions {
    LmdbOptions { environments: 4, map_bytes: Some(64 << 20), create }
}

fn put(dir: u64, from: u64, count: u64, bytes: usize) -> StoreBatch {
    let mut batch = StoreBatch::new(Ino(dir), None);
    for hash in from..from + count {
        batch.put(StoreKey::head(Ino(dir), NameHash(hash), b"name"), |w| {
            w.raw(&vec![hash as u8; bytes]);
        });
    }
    batch
}

fn get(meta: &LmdbMeta, dir: u64, hash: u64) -> Result<Loaded, StoreError> {
    let request = LoadRequest::Dentry { dir: Ino(dir), hash: NameHash(hash), name: b"name"[..].into() };
    meta.load(&[request]).remove(0)
}

fn header(version: u64) -> FragHeader {
    FragHeader { version: Version(version), ..FragHeader::default() }
}

#[test]
fn records_are_there_after_opening_again() {
    let folder = tempfile::tempdir().expect("folder");
    let meta = LmdbMeta::open(folder.path(), options(true)).expect("made");
    let batches: Vec<StoreBatch> = (1..40).map(|dir| put(dir, 8, 20, 100)).collect();
    meta.apply(&batches).expect("applied");
    assert!(meta.stats().expect("stats").iter().all(|stats| stats.entries[0] > 0));
    drop(meta);
    let meta = LmdbMeta::open(folder.path(), options(false)).expect("opened");
    assert_eq!(get(&meta, 17, 9), Ok(Loaded::Value(Some(vec![9; 100].into()))));
    let mut seen = 0;
    meta.each(Table::Dentry, &mut |_, value| {
        seen += u32::from(value.is_ok());
        true
    })
    .expect("visited");
    assert_eq!(seen, 39 * 20);
}

#[test]
fn a_missing_environment_is_damage() {
    let folder = tempfile::tempdir().expect("folder");
    drop(LmdbMeta::open(folder.path(), options(true)).expect("made"));
    std::fs::remove_file(folder.path().join("env-02.mdb")).expect("removed");
    let error = LmdbMeta::open(folder.path(), options(false)).err().expect("refused");
    assert_eq!(error.to_string(), "meta/env-02: is missing");
}

#[test]
fn a_guard_sees_headers_put_before_it_in_the_same_call() {
    let folder = tempfile::tempdir().expect("folder");
    let meta = LmdbMeta::open(folder.path(), options(true)).expect("made");
    let mut newer = StoreBatch::new(Ino(5), Some(Version(3)));
    newer.put(StoreKey::Header { dir: Ino(5), frag: Frag::WHOLE }, |w| header(9).encode(w));
    let mut late = put(5, 8, 1, 1);
    late.guard = Some(Version(8));
    let refused = Err(StoreError::Guard { stored: 9, guard: 8 });
    assert_eq!(meta.apply(&[newer.clone(), late.clone()]), refused);
    meta.apply(&[newer]).expect("applied");
    assert_eq!(meta.apply(&[late.clone()]), refused);
    assert_eq!(get(&meta, 5, 8), Ok(Loaded::Value(None)));
    late.guard = Some(Version(9));
    meta.apply(&[late]).expect("applied");
}

#[test]
fn a_full_map_refuses_and_the_environment_stays_usable() {
    let folder = tempfile::tempdir().expect("folder");
    let small = LmdbOptions { environments: 1, map_bytes: Some(1 << 20), create: true };
    let meta = LmdbMeta::open(folder.path(), small).expect("made");
    let mut applied = 0;
    let refused = loop {
        match meta.apply(&[put(5, 8 + applied * 50, 50, 1000)]) {
            Ok(()) => applied += 1,
            Err(error) => break error,
        }
        assert!(applied < 100);
    };
    assert_eq!(refused, StoreError::NoSpace);
    assert_eq!(get(&meta, 5, 8 + applied * 50), Ok(Loaded::Value(None)), "nothing of it is applied");
    let mut free = StoreBatch::new(Ino(5), None);
    for hash in 8..58 {
        free.delete(StoreKey::head(Ino(5), NameHash(hash), b"name"));
    }
    meta.apply(&[free]).expect("deleting goes on");
    meta.apply(&[put(6, 8, 10, 1000)]).expect("and so does writing");
}

#[test]
fn a_flipped_bit_is_found_and_named() {
    let folder = tempfile::tempdir().expect("folder");
    let one = LmdbOptions { environments: 1, map_bytes: Some(1 << 20), create: true };
    let meta = LmdbMeta::open(folder.path(), one).expect("made");
    meta.apply(&[put(5, 8, 3, 100)]).expect("applied");
    drop(meta);
    let path = folder.path().join("env-00.mdb");
    let bytes = std::fs::read(&path).expect("read");
    let at = bytes.windows(100).position(|window| window == [9; 100]).expect("stored");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.write_all_at(&[8], at as u64 + 50).expect("flipped");
    let meta = LmdbMeta::open(folder.path(), LmdbOptions { create: false, ..one }).expect("opened");
    let text = "meta/env-00 dentry 5/0000000000000009 \"name\" snap 0: checksum mismatch";
    assert_eq!(get(&meta, 5, 9).expect_err("damaged").to_string(), text);
    assert!(get(&meta, 5, 8).is_ok() && get(&meta, 5, 10).is_ok(), "only that one");
}

#[test]
fn a_cut_file_is_damaged_and_does_not_kill() {
    let folder = tempfile::tempdir().expect("folder");
    let one = LmdbOptions { environments: 1, map_bytes: Some(16 << 20), create: true };
    let meta = LmdbMeta::open(folder.path(), one).expect("made");
    meta.apply(&[put(5, 8, 3000, 500)]).expect("applied");
    drop(meta);
    let path = folder.path().join("env-00.mdb");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.set_len(100 << 10).expect("cut");
    let Ok(meta) = LmdbMeta::open(folder.path(), LmdbOptions { create: false, ..one }) else { return };
    let bad = (8..3008).filter(|hash| get(&meta, 5, *hash).is_err()).count();
    assert!(bad > 0);
}

/// Others in the same call were told MDB_BAD_TXN.
#[test]
fn a_damaged_page_fails_only_those_who_need_it() {
    let folder = tempfile::tempdir().expect("folder");
    let one = LmdbOptions { environments: 1, map_bytes: Some(16 << 20), create: true };
    let meta = LmdbMeta::open(folder.path(), one).expect("made");
    meta.apply(&[put(5, 8, 200, 500)]).expect("applied");
    drop(meta);
    let path = folder.path().join("env-00.mdb");
    let bytes = std::fs::read(&path).expect("read");
    // The leaf in which the first record lies.
    let at = bytes.windows(500).position(|window| window == [8; 500]).expect("stored") / 4096 * 4096;
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opened");
    file.write_all_at(&[0; 4096], at as u64).expect("zeroed");
    let meta = LmdbMeta::open(folder.path(), LmdbOptions { create: false, ..one }).expect("opened");
    let name = || b"name"[..].into();
    let request = |hash| LoadRequest::Dentry { dir: Ino(5), hash: NameHash(hash), name: name() };
    let results = meta.load(&[request(8), request(200)]);
    let error = results[0].as_ref().expect_err("damaged").to_string();
    assert!(error.starts_with("meta/env-00: MDB_CORRUPTED"), "{error}");
    assert_eq!(results[1], Ok(Loaded::Value(Some(vec![200; 500].into()))));
}

#[test]
fn compaction_gives_back_what_deletes_left() {
    let folder = tempfile::tempdir().expect("folder");
    let one = LmdbOptions { environments: 1, map_bytes: Some(64 << 20), create: true };
    let meta = LmdbMeta::open(folder.path(), one).expect("made");
    meta.apply(&[put(5, 8, 20_000, 400)]).expect("applied");
    let mut delete = StoreBatch::new(Ino(5), None);
    for hash in 8..19_000 {
        delete.delete(StoreKey::head(Ino(5), NameHash(hash), b"name"));
    }
    meta.apply(&[delete]).expect("deleted");
    let before = meta.stats().expect("stats")[0];
    assert!(before.free_pages > 1000 && before.entries[0] == 1008);
    let freed = meta.compact(0).expect("compacted");
    let after = meta.stats().expect("stats")[0];
    assert!(freed > 4 << 20 && after.free_pages < 50, "{freed} {after:?}");
    meta.apply(&[put(6, 8, 10, 10)]).expect("usable");
    assert_eq!(get(&meta, 5, 19_500), Ok(Loaded::Value(Some(vec![44; 400].into()))));
    assert_eq!(get(&meta, 6, 9), Ok(Loaded::Value(Some(vec![9; 10].into()))));
}
