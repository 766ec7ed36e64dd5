//! What a new file system's metadata store holds: the system directory with the root, `//links` and
//! rank 0's `//orphans`, and their frag headers; and what it holds more before a rank above 0 lives for the first time.
//!
//! Absent: counters, checkpoints, sessions. Without a record a counter starts at its first value and a
//! journal at position 0.

use crate::meta::MetaStore;
use proto::dentry::{DentryValue, encode_primary};
use proto::header::FragHeader;
use proto::ids::{Frag, Ino, RankId, Version};
use proto::inode::InodeCore;
use proto::name::name_hash;
use proto::storeio::{Backptr, LoadRequest, Loaded, StoreBatch, StoreError, StoreKey};
use stdx::Wall;
use stdx::hash::HashSeed;

const DIRECTORY: u32 = 0o040_000;

/// Name in `//`, number and permissions of each directory a file system begins with.
const DIRECTORIES: [(&[u8], Ino, u32); 3] = [
    (b"root", Ino::ROOT, 0o755),
    (b"links", Ino::LINKS, 0o700),
    (b"orphans-0", Ino::orphans(RankId(0)), 0o700),
];

/// The batches that make an empty store a new file system, whose root directory belongs to `owner`, a user and a group.
#[must_use]
pub fn initial_batches(seed: &HashSeed, now: Wall, owner: (u32, u32)) -> Vec<StoreBatch> {
    let mut system = StoreBatch::new(Ino::SYSTEM, None);
    let mut batches = Vec::new();
    for (name, ino, mode) in DIRECTORIES {
        let (uid, gid) = if ino == Ino::ROOT { owner } else { (0, 0) };
        let core = InodeCore { uid, gid, ..directory(ino, mode, now) };
        put_dentry(&mut system, seed, name, &core);
        batches.push(own_records(seed, name, ino, now));
    }
    put_header(&mut system, Ino::SYSTEM, DIRECTORIES.len() as u64, now);
    batches.push(system);
    batches
}

/// Makes the system records of a rank above 0, durably, unless they are there: `//orphans-R` with its header and backptr. Whoever
/// starts the first life of a rank calls it before that life boots; the file-system record must say that there are several ranks
/// (`Folder::allow_ranks`). A crash at any step leaves what the next call goes on with, and nothing that is used before.
///
/// The header of `//` does not count it (docs/FORMAT.md): that is rank 0's to write, which may be serving.
///
/// # Errors
/// `Damaged` if something else is in its place; those of the store.
pub fn ensure_rank(meta: &dyn MetaStore, seed: &HashSeed, rank: RankId, now: Wall) -> Result<(), StoreError> {
    if rank.0 == 0 {
        return Ok(());
    }
    let (ino, name) = (Ino::orphans(rank), orphans_name(rank));
    let hash = name_hash(seed, name.as_bytes());
    let header = LoadRequest::Header { dir: ino, frag: Frag::WHOLE };
    let dentry = LoadRequest::Dentry { dir: Ino::SYSTEM, hash, name: name.as_bytes().into() };
    let requests = [header, LoadRequest::Backptr { ino }, dentry];
    let mut there = meta.load(&requests).into_iter();
    let mut value = || match there.next() {
        Some(Ok(Loaded::Value(value))) => Ok(value),
        Some(Err(error)) => Err(error),
        _ => Err(other_record(&name)),
    };
    let (header, backptr, dentry) = (value()?, value()?, value()?);
    if let Some(dentry) = &dentry
        && DentryValue::decode(dentry).map(|dentry| dentry.ino()) != Ok(ino)
    {
        return Err(other_record(&name));
    }
    if dentry.is_some() && (header.is_none() || backptr.is_none()) {
        // The dentry is written last: what belongs to it was lost since, and with it perhaps what it counts.
        return Err(StoreError::Damaged {
            at: format!("//{name}"),
            what: "header or backptr is missing".into(),
        });
    }
    if dentry.is_some() {
        return Ok(());
    }
    // Its own records first: a directory that is named has a header.
    if header.is_none() || backptr.is_none() {
        meta.apply(&[own_records(seed, name.as_bytes(), ino, now)])?;
    }
    let mut system = StoreBatch::new(Ino::SYSTEM, None);
    put_dentry(&mut system, seed, name.as_bytes(), &directory(ino, 0o700, now));
    meta.apply(&[system])
}

/// The name of a rank's `//orphans` in `//`.
#[must_use]
pub fn orphans_name(rank: RankId) -> String {
    format!("orphans-{}", rank.0)
}

fn other_record(name: &str) -> StoreError {
    StoreError::Damaged { at: format!("//{name}"), what: "is not the directory of the rank's orphans".into() }
}

/// The inode of a system directory.
fn directory(ino: Ino, mode: u32, now: Wall) -> InodeCore {
    InodeCore {
        ino,
        mode: DIRECTORY | mode,
        nlink: 2,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        change: 1,
        ..InodeCore::default()
    }
}

fn put_dentry(system: &mut StoreBatch, seed: &HashSeed, name: &[u8], core: &InodeCore) {
    let key = StoreKey::head(Ino::SYSTEM, name_hash(seed, name), name);
    system.put(key, |w| encode_primary(core, None, w));
}

/// What a system directory has beside its dentry.
fn own_records(seed: &HashSeed, name: &[u8], ino: Ino, now: Wall) -> StoreBatch {
    let mut own = StoreBatch::new(ino, None);
    put_header(&mut own, ino, 0, now);
    let backptr = Backptr { version: 1, parent: Ino::SYSTEM, hash: name_hash(seed, name), name: name.into() };
    own.put(StoreKey::Backptr { ino }, |w| backptr.encode(w));
    own
}

fn put_header(batch: &mut StoreBatch, dir: Ino, directories: u64, now: Wall) {
    let header = FragHeader {
        version: Version(1),
        entries: directories,
        subdirs: directories,
        mtime: now,
        change: 1,
        ..FragHeader::default()
    };
    batch.put(StoreKey::Header { dir, frag: Frag::WHOLE }, |w| header.encode(w));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta_memory::{MemoryMeta, MetaFault};
    use proto::ids::NameHash;
    use proto::storeio::Table;
    use std::sync::Mutex;

    const SEED: HashSeed = HashSeed([1; 16]);

    fn formatted(seed: u64) -> MemoryMeta {
        let meta = MemoryMeta::new(seed);
        meta.apply(&initial_batches(&SEED, Wall(5), (1000, 100))).expect("applied");
        meta
    }

    fn all(meta: &MemoryMeta) -> Vec<Vec<crate::meta_memory::Record>> {
        [Table::Dentry, Table::Backptr, Table::System].map(|table| meta.dump(table).expect("sound")).into()
    }

    fn names(meta: &MemoryMeta) -> Vec<(Box<[u8]>, u64)> {
        let scan = LoadRequest::Scan { dir: Ino::SYSTEM, from: NameHash(0), entries_max: 10 };
        let Ok(Loaded::Dentries { entries, next: None }) = meta.load(&[scan]).remove(0) else {
            panic!("no listing")
        };
        let ino = |value: &[u8]| DentryValue::decode(value).expect("decodes").ino().0;
        let mut found: Vec<_> = entries.into_iter().map(|e| (e.name, ino(&e.value))).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_rank_gets_its_records_once() {
        let meta = formatted(1);
        ensure_rank(&meta, &SEED, RankId(0), Wall(6)).expect("rank 0 has its own");
        assert_eq!(names(&meta).len(), 3);
        let before = all(&meta);
        ensure_rank(&meta, &SEED, RankId(3), Wall(6)).expect("made");
        let made = all(&meta);
        assert_eq!(names(&meta)[2], (b"orphans-3"[..].into(), 0x103));
        let header = LoadRequest::Header { dir: Ino(0x103), frag: Frag::WHOLE };
        let Ok(Loaded::Value(Some(header))) = meta.load(&[header]).remove(0) else { panic!("no header") };
        assert_eq!(FragHeader::decode(&header).expect("decodes").entries, 0);
        // Nothing that rank 0 may be about to write was touched.
        for (before, made) in before.iter().zip(&made) {
            assert!(before.iter().all(|record| made.contains(record)));
        }
        ensure_rank(&meta, &SEED, RankId(3), Wall(9)).expect("there");
        assert_eq!(all(&meta), made, "a second call changes nothing");
    }

    #[test]
    fn a_crash_in_any_step_leaves_what_the_next_call_goes_on_with() {
        let complete = formatted(0);
        ensure_rank(&complete, &SEED, RankId(1), Wall(6)).expect("made");
        let complete = all(&complete);
        let mut steps_seen = [false; 3];
        for step in 0..3 {
            let meta = formatted(step);
            let made = ensure_rank(&CutAfter(&meta, Mutex::new(step)), &SEED, RankId(1), Wall(6));
            assert_eq!(made.is_ok(), step >= 2);
            meta.crash();
            let named = names(&meta).len() == 4;
            let header = LoadRequest::Header { dir: Ino(0x101), frag: Frag::WHOLE };
            let headed = matches!(meta.load(&[header]).remove(0), Ok(Loaded::Value(Some(_))));
            assert!(headed || !named, "a directory that is named has a header");
            steps_seen[usize::from(headed) + usize::from(named)] = true;
            ensure_rank(&meta, &SEED, RankId(1), Wall(6)).expect("goes on");
            assert_eq!(all(&meta), complete);
        }
        assert_eq!(steps_seen, [true; 3]);
    }

    /// A store whose power fails after so many applies.
    struct CutAfter<'a>(&'a MemoryMeta, Mutex<u64>);

    impl MetaStore for CutAfter<'_> {
        fn load(&self, requests: &[LoadRequest]) -> Vec<Result<Loaded, StoreError>> {
            self.0.load(requests)
        }

        fn apply(&self, batches: &[StoreBatch]) -> Result<(), StoreError> {
            let mut left = self.1.lock().expect("no panic");
            if *left == 0 {
                return Err(StoreError::Poisoned);
            }
            *left -= 1;
            self.0.apply(batches)
        }
    }

    #[test]
    fn errors_of_the_store_are_told() {
        let meta = formatted(1);
        meta.inject(MetaFault::Load, 1);
        assert!(matches!(ensure_rank(&meta, &SEED, RankId(1), Wall(6)), Err(StoreError::Io { .. })));
        meta.inject(MetaFault::Apply, 1);
        assert!(matches!(ensure_rank(&meta, &SEED, RankId(1), Wall(6)), Err(StoreError::Io { .. })));
        ensure_rank(&meta, &SEED, RankId(1), Wall(6)).expect("made");
    }

    #[test]
    fn what_is_not_the_ranks_own_is_not_written_over() {
        let meta = formatted(1);
        let name = orphans_name(RankId(1));
        let mut batch = StoreBatch::new(Ino::SYSTEM, None);
        put_dentry(&mut batch, &SEED, name.as_bytes(), &directory(Ino(4096), 0o755, Wall(1)));
        meta.apply(&[batch]).expect("applied");
        let before = all(&meta);
        let error = ensure_rank(&meta, &SEED, RankId(1), Wall(6)).expect_err("refused").to_string();
        assert_eq!(error, "//orphans-1: is not the directory of the rank's orphans");
        assert_eq!(all(&meta), before);
        // A header that was lost takes the count of the orphans with it: that is fsck's to find.
        let meta = formatted(2);
        ensure_rank(&meta, &SEED, RankId(1), Wall(6)).expect("made");
        let mut batch = StoreBatch::new(Ino(0x101), None);
        batch.delete(StoreKey::Header { dir: Ino(0x101), frag: Frag::WHOLE });
        meta.apply(&[batch]).expect("applied");
        assert!(matches!(ensure_rank(&meta, &SEED, RankId(1), Wall(6)), Err(StoreError::Damaged { .. })));
    }

    #[test]
    fn the_system_directory_lists_three_directories_with_headers() {
        let meta = MemoryMeta::new(1);
        meta.apply(&initial_batches(&HashSeed([1; 16]), Wall(5), (1000, 100))).expect("applied");
        let scan = LoadRequest::Scan { dir: Ino::SYSTEM, from: NameHash(0), entries_max: 10 };
        let Ok(Loaded::Dentries { entries, next: None }) = meta.load(&[scan]).remove(0) else {
            panic!("no listing")
        };
        let mut found: Vec<(&[u8], u64)> = Vec::new();
        for entry in &entries {
            let ino = DentryValue::decode(&entry.value).expect("decodes").ino();
            found.push((&entry.name, ino.0));
            let header = LoadRequest::Header { dir: ino, frag: Frag::WHOLE };
            let Ok(Loaded::Value(Some(header))) = meta.load(&[header]).remove(0) else { panic!("no header") };
            assert_eq!(FragHeader::decode(&header).expect("decodes").version, Version(1));
        }
        found.sort_unstable();
        assert_eq!(found, [(&b"links"[..], 2), (b"orphans-0", 0x100), (b"root", 1)]);
    }
}
