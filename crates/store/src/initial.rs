//! What a new file system's metadata store holds: the system directory with the root, `//links` and
//! rank 0's `//orphans`, and their frag headers.
//!
//! Absent: counters, checkpoints, sessions. Without a record a counter starts at its first value and a
//! journal at position 0.

use proto::dentry::encode_primary;
use proto::header::FragHeader;
use proto::ids::{Frag, Ino, RankId, Version};
use proto::inode::InodeCore;
use proto::name::name_hash;
use proto::storeio::{Backptr, StoreBatch, StoreKey};
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
        let hash = name_hash(seed, name);
        let (uid, gid) = if ino == Ino::ROOT { owner } else { (0, 0) };
        let core = InodeCore {
            ino,
            mode: DIRECTORY | mode,
            uid,
            gid,
            nlink: 2,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: 1,
            ..InodeCore::default()
        };
        system.put(StoreKey::head(Ino::SYSTEM, hash, name), |w| encode_primary(&core, None, w));
        let mut own = StoreBatch::new(ino, None);
        put_header(&mut own, ino, 0, now);
        let backptr = Backptr { version: 1, parent: Ino::SYSTEM, hash, name: name.into() };
        own.put(StoreKey::Backptr { ino }, |w| backptr.encode(w));
        batches.push(own);
    }
    put_header(&mut system, Ino::SYSTEM, DIRECTORIES.len() as u64, now);
    batches.push(system);
    batches
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
    use crate::meta::MetaStore;
    use crate::meta_memory::MemoryMeta;
    use proto::dentry::DentryValue;
    use proto::ids::NameHash;
    use proto::storeio::{LoadRequest, Loaded};

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
