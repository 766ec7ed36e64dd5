//! A fresh file system: the records `format` writes (contract: `//` with root, `//links`, `//orphans`).
//!
//! Absent: folders and locks (room `store`).

use proto::attr::FileKind;
use proto::dentry::encode_primary;
use proto::header::FragHeader;
use proto::ids::{Frag, Rank, Version};
use proto::inode::InodeCore;
use proto::name::name_hash;
use proto::storeio::{StoreBatch, StoreKey};
use proto::Ino;
use stdx::hash::HashSeed;

/// The batches that make an empty store a file system.
#[must_use]
pub fn fresh(seed: &HashSeed) -> Vec<StoreBatch> {
    let dirs = [(&b"root"[..], Ino::ROOT, 0o755), (b"links", Ino::LINKS, 0o700), (b"orphans-0", Ino::orphans(Rank(0)), 0o700)];
    let mut system = StoreBatch::new(Ino::SYSTEM, None);
    header(&mut system, Ino::SYSTEM, dirs.len() as u64);
    let mut batches = Vec::new();
    for (name, ino, mode) in dirs {
        let mode = FileKind::Directory.mode_bits() | mode;
        let core = InodeCore { ino, mode, nlink: 2, change: 1, ..InodeCore::default() };
        system.put(StoreKey::head(Ino::SYSTEM, name_hash(seed, name), name), |w| encode_primary(&core, None, w));
        let mut batch = StoreBatch::new(ino, None);
        header(&mut batch, ino, 0);
        batches.push(batch);
    }
    batches.push(system);
    batches
}

fn header(batch: &mut StoreBatch, dir: Ino, entries: u64) {
    let header = FragHeader { version: Version(1), entries, subdirs: entries, ..FragHeader::default() };
    batch.put(StoreKey::Header { dir, frag: Frag::WHOLE }, |w| header.encode(w));
}
