//! One suite for every `MetaStore` and one for every `Disk`: what their contracts promise, whoever
//! keeps the bytes.
//!
//! Absent: crashes, which each implementation has in its own way.

use crate::disk::{Disk, DiskFile};
use crate::meta::MetaStore;
use proto::header::FragHeader;
use proto::ids::{Frag, Ino, NameHash, RankId, SessionId, SnapId, Version};
use proto::storeio::{LoadRequest, Loaded, StoreBatch, StoreError, StoreKey, StoredDentry};
use std::collections::BTreeMap;
use stdx::Prng;

fn load(meta: &dyn MetaStore, request: LoadRequest) -> Loaded {
    meta.load(&[request]).remove(0).expect("loaded")
}

fn value(meta: &dyn MetaStore, dir: u64, hash: u64, name: &[u8]) -> Option<Vec<u8>> {
    let request = LoadRequest::Dentry { dir: Ino(dir), hash: NameHash(hash), name: name.into() };
    match load(meta, request) {
        Loaded::Value(value) => value.map(Vec::from),
        other => panic!("{other:?}"),
    }
}

fn page(meta: &dyn MetaStore, request: LoadRequest) -> (Vec<StoredDentry>, Option<u64>) {
    match load(meta, request) {
        Loaded::Dentries { entries, next } => (entries, next.map(|hash| hash.0)),
        other => panic!("{other:?}"),
    }
}

fn put(batch: &mut StoreBatch, hash: u64, name: &[u8], bytes: &[u8]) {
    batch.put(StoreKey::head(batch.shard, NameHash(hash), name), |w| {
        w.raw(bytes);
    });
}

fn put_header(batch: &mut StoreBatch, version: u64) {
    let header = FragHeader { version: Version(version), ..FragHeader::default() };
    batch.put(StoreKey::Header { dir: batch.shard, frag: Frag::WHOLE }, |w| header.encode(w));
}

/// Everything the `MetaStore` contract promises.
fn check_meta(make: &dyn Fn() -> Box<dyn MetaStore>) {
    records_are_kept(&*make());
    system_records(&*make());
    guards(&*make());
    one_shard(&*make());
    one_hash(&*make());
    scans_against_a_model(&*make());
    sizes(&*make());
}

fn records_are_kept(meta: &dyn MetaStore) {
    assert_eq!(meta.apply(&[]), Ok(()));
    assert_eq!(meta.apply(&[StoreBatch::new(Ino(9), None)]), Ok(()));
    assert_eq!(value(meta, 5, 9, b"a"), None);
    let mut batch = StoreBatch::new(Ino(5), None);
    put(&mut batch, 100, b"z", b"last in order");
    put(&mut batch, 9, b"a", b"first");
    put(&mut batch, 9, b"a", b"second");
    put(&mut batch, 10, b"gone", b"x");
    batch.delete(StoreKey::head(Ino(5), NameHash(10), b"gone"));
    batch.delete(StoreKey::head(Ino(5), NameHash(11), b"never was"));
    let mut other = StoreBatch::new(Ino(6), None);
    put(&mut other, 9, b"a", b"other");
    meta.apply(&[batch, other]).expect("applied");
    assert_eq!(value(meta, 5, 9, b"a").as_deref(), Some(&b"second"[..]), "the last word on a key counts");
    assert_eq!(value(meta, 5, 100, b"z").as_deref(), Some(&b"last in order"[..]));
    assert_eq!((value(meta, 5, 10, b"gone"), value(meta, 5, 9, b"")), (None, None));
    let requests: Vec<LoadRequest> = (0..600)
        .map(|i| LoadRequest::Dentry { dir: Ino(5 + i % 3), hash: NameHash(9), name: b"a"[..].into() })
        .collect();
    for (i, result) in meta.load(&requests).into_iter().enumerate() {
        let expected = [Some(&b"second"[..]), Some(b"other"), None][i % 3];
        assert_eq!(result, Ok(Loaded::Value(expected.map(Into::into))), "answers come in order");
    }
    let mut first = StoreBatch::new(Ino(5), None);
    put(&mut first, 9, b"a", b"third");
    let mut then = StoreBatch::new(Ino(5), None);
    then.delete(StoreKey::head(Ino(5), NameHash(9), b"a"));
    meta.apply(&[first, then]).expect("applied");
    assert_eq!(value(meta, 5, 9, b"a"), None, "batches of a shard apply in order");
}

fn system_records(meta: &dyn MetaStore) {
    let sessions_of = |rank| match load(meta, LoadRequest::Sessions { rank: RankId(rank) }) {
        Loaded::Sessions(sessions) => sessions,
        other => panic!("{other:?}"),
    };
    assert_eq!(sessions_of(0), []);
    let mut system = StoreBatch::new(Ino::SYSTEM, None);
    put_header(&mut system, 1);
    for id in [3_u64, 1, 1 << 60] {
        for rank in [0, 2, 3] {
            let key = StoreKey::Session { rank: RankId(rank), id: SessionId(id + u64::from(rank)) };
            system.put(key, |w| {
                w.u64(id + u64::from(rank));
            });
        }
    }
    system.put(StoreKey::Counter { rank: RankId(0) }, |w| {
        w.u8(1);
    });
    system.put(StoreKey::Checkpoint { rank: RankId(0) }, |w| {
        w.u8(2);
    });
    let mut backptr = StoreBatch::new(Ino(77), None);
    backptr.put(StoreKey::Backptr { ino: Ino(77) }, |w| {
        w.u8(3);
    });
    meta.apply(&[system, backptr]).expect("applied");
    for rank in [0, 2, 3] {
        let sessions = sessions_of(rank);
        let ids: Vec<u64> = sessions.iter().map(|(id, _)| id.0 - u64::from(rank)).collect();
        assert_eq!(ids, [1, 3, 1 << 60], "those of rank {rank} and of no other");
        assert_eq!(*sessions[1].1, (3 + u64::from(rank)).to_le_bytes());
    }
    assert!(sessions_of(1).is_empty() && sessions_of(4).is_empty());
    let one = |byte: u8| Loaded::Value(Some([byte][..].into()));
    assert_eq!(load(meta, LoadRequest::Counter { rank: RankId(0) }), one(1));
    assert_eq!(load(meta, LoadRequest::Checkpoint { rank: RankId(0) }), one(2));
    assert_eq!(load(meta, LoadRequest::Backptr { ino: Ino(77) }), one(3));
    assert_eq!(load(meta, LoadRequest::Checkpoint { rank: RankId(1) }), Loaded::Value(None));
    assert_eq!(load(meta, LoadRequest::Backptr { ino: Ino(78) }), Loaded::Value(None));
    assert!(matches!(
        load(meta, LoadRequest::Header { dir: Ino::SYSTEM, frag: Frag::WHOLE }),
        Loaded::Value(Some(_))
    ));
}

fn guards(meta: &dyn MetaStore) {
    let guarded = |guard: u64, mark: &[u8]| {
        let mut batch = StoreBatch::new(Ino(5), Some(Version(guard)));
        put(&mut batch, 9, b"a", mark);
        batch
    };
    meta.apply(&[guarded(1, b"no header yet")]).expect("applied");
    let mut header = StoreBatch::new(Ino(5), None);
    put_header(&mut header, 10);
    meta.apply(&[header]).expect("applied");
    meta.apply(&[guarded(10, b"same version")]).expect("applied");
    let refused = Err(StoreError::Guard { stored: 10, guard: 9 });
    let mut mixed = guarded(9, b"late");
    put(&mut mixed, 50, b"b", b"late");
    assert_eq!(meta.apply(&[mixed]), refused);
    assert_eq!(value(meta, 5, 9, b"a").as_deref(), Some(&b"same version"[..]));
    assert_eq!(value(meta, 5, 50, b"b"), None);
    let mut other = StoreBatch::new(Ino(6), Some(Version(1)));
    put(&mut other, 9, b"a", b"x");
    meta.apply(&[other]).expect("another directory's header does not count");
}

/// A batch is of one shard; a record of another would go where nobody looks for it.
fn one_shard(meta: &dyn MetaStore) {
    let mut batch = StoreBatch::new(Ino(5), None);
    put(&mut batch, 1, b"a", b"1");
    batch.delete(StoreKey::head(Ino(6), NameHash(1), b"a"));
    assert!(matches!(meta.apply(&[batch]), Err(StoreError::Damaged { .. })));
    assert_eq!(value(meta, 5, 1, b"a"), None, "nothing of it");
}

fn one_hash(meta: &dyn MetaStore) {
    let mut batch = StoreBatch::new(Ino(5), None);
    put_header(&mut batch, 1);
    for (hash, name) in [(9, "b"), (9, "a"), (10, "c"), (8, "d")] {
        put(&mut batch, hash, name.as_bytes(), name.as_bytes());
    }
    let old = StoreKey::Dentry { dir: Ino(5), hash: NameHash(9), name: b"a", snap: SnapId(4) };
    batch.put(old, |w| {
        w.u8(0);
    });
    meta.apply(&[batch]).expect("applied");
    let find = |dir, hash| {
        let (entries, next) = page(meta, LoadRequest::ByHash { dir: Ino(dir), hash: NameHash(hash) });
        assert_eq!(next, None);
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(find(5, 9), ["a", "b"]);
    assert_eq!(find(5, 8), ["d"]);
    assert!(find(5, 11).is_empty() && find(6, 9).is_empty() && find(5, 0).is_empty());
}

fn scans_against_a_model(meta: &dyn MetaStore) {
    let mut prng = Prng::new(7);
    let mut model: BTreeMap<(u64, Vec<u8>), Vec<u8>> = BTreeMap::new();
    for _ in 0..6 {
        let mut batch = StoreBatch::new(Ino(5), None);
        put_header(&mut batch, 1);
        for _ in 0..150 {
            // Few hashes, so that many share one or share a cookie; some at the very end.
            let hash = if prng.chance(1, 20) { u64::MAX - prng.below(2) } else { 8 + prng.below(90) };
            let name = format!("n{}", prng.below(40)).into_bytes();
            if prng.chance(1, 4) {
                batch.delete(StoreKey::head(Ino(5), NameHash(hash), &name));
                model.remove(&(hash, name));
            } else {
                let bytes = prng.next_u64().to_le_bytes();
                put(&mut batch, hash, &name, &bytes);
                model.insert((hash, name), bytes.into());
            }
            let old = StoreKey::Dentry { dir: Ino(5), hash: NameHash(hash), name: b"old", snap: SnapId(1) };
            batch.put(old, |w| {
                w.u8(1);
            });
        }
        let mut neighbours = Vec::new();
        for dir in [4, 6] {
            let mut batch = StoreBatch::new(Ino(dir), None);
            put(&mut batch, 8, b"other", b"x");
            put(&mut batch, u64::MAX, b"other", b"x");
            neighbours.push(batch);
        }
        meta.apply(&[batch]).expect("applied");
        meta.apply(&neighbours).expect("applied");
        for max in [0, 1, 3, 50, 10_000] {
            let from = if prng.chance(1, 2) { 0 } else { prng.below(100) };
            scan_all(meta, &model, from, max);
        }
    }
}

/// Reads a directory page by page and compares with the model.
fn scan_all(meta: &dyn MetaStore, model: &BTreeMap<(u64, Vec<u8>), Vec<u8>>, from: u64, max: u32) {
    let mut expected = model.range((from, Vec::new())..);
    let mut at = from;
    loop {
        let request = LoadRequest::Scan { dir: Ino(5), from: NameHash(at), entries_max: max };
        let (entries, next) = page(meta, request);
        let count = entries.len();
        for entry in &entries {
            let ((hash, name), bytes) = expected.next().expect("no more than there is");
            assert_eq!((entry.hash.0, &*entry.name, &*entry.value), (*hash, &name[..], &bytes[..]));
        }
        let Some(next) = next else { break };
        let last = entries.last().expect("a page that goes on is not empty");
        assert!(next >> 1 > last.hash.cookie(), "equal cookies travel together");
        let without_last_cookie =
            entries.iter().filter(|entry| entry.hash.cookie() != last.hash.cookie()).count();
        assert!(count >= max as usize && without_last_cookie < max.max(1) as usize);
        at = next;
    }
    assert_eq!(expected.next(), None, "and no less");
}

fn sizes(meta: &dyn MetaStore) {
    let long = [b'n'; 255];
    let mut batch = StoreBatch::new(Ino(5), None);
    put(&mut batch, u64::MAX, &long, &vec![7; 1 << 20]);
    put(&mut batch, 8, b"empty", b"");
    meta.apply(&[batch]).expect("applied");
    assert_eq!(value(meta, 5, u64::MAX, &long), Some(vec![7; 1 << 20]));
    assert_eq!(value(meta, 5, 8, b"empty"), Some(Vec::new()));
    // More than one transaction of LMDB, in one batch and in many.
    let mut large = StoreBatch::new(Ino(6), None);
    for hash in 0..40_000 {
        put(&mut large, 8 + hash, b"n", b"v");
    }
    let small = (0..40_000_u64).map(|dir| {
        let mut batch = StoreBatch::new(Ino(1000 + dir), None);
        put(&mut batch, 8, b"n", b"v");
        batch
    });
    let mut batches = vec![large];
    batches.extend(small);
    meta.apply(&batches).expect("applied");
    assert!(value(meta, 6, 40_007, b"n").is_some() && value(meta, 40_999, 8, b"n").is_some());
    let (entries, _) =
        page(meta, LoadRequest::Scan { dir: Ino(6), from: NameHash(0), entries_max: u32::MAX });
    assert_eq!(entries.len(), 40_000);
}

/// Everything the `Disk` contract promises.
fn check_disk<D: Disk>(disk: &D) {
    assert!(disk.open("a/b").expect("opened").is_none());
    assert!(disk.list("a").expect("listed").is_empty());
    disk.sync_folder("a").expect("a folder that is not there has nothing to sync");
    let file = disk.create("a/b").expect("made");
    file.write_at(b"hello", 10_000).expect("written");
    assert_eq!(file.size(), Ok(10_005));
    let mut bytes = [1; 12];
    assert_eq!(file.read_at(&mut bytes, 9_998), Ok(7));
    assert_eq!(&bytes[..7], b"\0\0hello");
    assert_eq!(file.read_at(&mut bytes, 20_000), Ok(0));
    file.sync_data().expect("synced");
    disk.sync_folder("a").expect("synced");
    drop(disk.create("a/c/d").expect("made"));
    drop(disk.create("a/B").expect("made"));
    drop(disk.create("a/b").expect("exists"));
    assert_eq!(disk.list("a"), Ok(vec!["B".into(), "b".into()]));
    assert_eq!(disk.list("a/c"), Ok(vec!["d".into()]));
    disk.rename("a/b", "a/c/d").expect("renamed");
    assert_eq!(disk.open("a/c/d").expect("opened").expect("there").size(), Ok(10_005));
    assert!(disk.rename("a/b", "a/x").is_err());
    disk.remove("a/B").expect("removed");
    disk.remove("a/B").expect("gone already");
    disk.sync_folder("a/c").expect("synced");
    file.write_at(b"!", 0).expect("a renamed file stays open");
    disk.remove("a/c/d").expect("removed");
    let mut byte = [0];
    assert_eq!((file.read_at(&mut byte, 0), byte), (Ok(1), *b"!"), "and so does a removed one");
    assert!(disk.list("a").expect("listed").is_empty());
    disk.sync_disk().expect("synced, or no such call");
    assert!(disk.space().expect("space").available > 0);
    check_lengths(disk);
}

fn check_lengths<D: Disk>(disk: &D) {
    let file = disk.create("f").expect("made");
    file.write_at(&[5; 3 * 4096], 0).expect("written");
    file.set_len(4100).expect("cut");
    file.set_len(8192).expect("extended");
    let mut bytes = vec![1; 8192];
    assert_eq!(file.read_at(&mut bytes, 0), Ok(8192));
    assert!(bytes[..4100].iter().all(|byte| *byte == 5) && bytes[4100..].iter().all(|byte| *byte == 0));
    file.allocate(0, 64 << 10).expect("reserved");
    assert_eq!(file.size(), Ok(8192), "reserving keeps the length");
    file.punch(100, 5000).expect("punched");
    file.read_at(&mut bytes, 0).expect("read");
    assert!(bytes[..100].iter().all(|byte| *byte == 5) && bytes[100..].iter().all(|byte| *byte == 0));
    file.punch(8000, u64::MAX).expect("past the end");
    assert_eq!(file.size(), Ok(8192));
    let sparse = disk.create("g").expect("made");
    sparse.write_at(&[1; 4096], 1 << 20).expect("written");
    sparse.write_at(&[1; 4096], 3 << 20).expect("written");
    assert_eq!(sparse.seek(0, false), Ok(Some(1 << 20)));
    assert_eq!(sparse.seek(1 << 20, false), Ok(Some(1 << 20)));
    assert_eq!(sparse.seek(1 << 20, true), Ok(Some((1 << 20) + 4096)));
    assert_eq!(sparse.seek(3 << 20, true), Ok(Some((3 << 20) + 4096)), "the end is a hole");
    assert_eq!(sparse.seek((3 << 20) + 4096, true), Ok(None));
    assert_eq!(sparse.seek((3 << 20) + 4096, false), Ok(None));
}

#[test]
fn the_memory_store_conforms() {
    check_meta(&|| Box::new(crate::MemoryMeta::new(1)));
}

#[cfg(feature = "mutants")]
#[test]
fn a_store_without_its_guard_does_not_conform() {
    stdx::mutant::activate(Some("store_no_guard"));
    let verdict = std::panic::catch_unwind(the_memory_store_conforms);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn the_simulated_disk_conforms() {
    check_disk(&crate::SimDisk::new(1));
}

#[cfg(feature = "embedded")]
#[test]
fn lmdb_conforms() {
    for environments in [1, 16] {
        let place = tempfile::tempdir().expect("folder");
        let count = std::cell::Cell::new(0);
        check_meta(&|| {
            let folder = place.path().join(count.replace(count.get() + 1).to_string());
            std::fs::create_dir(&folder).expect("folder");
            let options =
                crate::meta_lmdb::LmdbOptions { environments, map_bytes: Some(256 << 20), create: true };
            Box::new(crate::meta_lmdb::LmdbMeta::open(&folder, options).expect("made"))
        });
    }
}

#[cfg(feature = "embedded")]
#[test]
fn the_real_disk_conforms() {
    let place = tempfile::tempdir().expect("folder");
    check_disk(&crate::disk_real::RealDisk::new(place.path()));
}
