//! Makes a folder with a million files (or as many as asked for) through the store's batches and times its check.
//!
//! Absent: file data; its check is bounded by reading it.

use proto::dentry::encode_primary;
use proto::header::FragHeader;
use proto::inode::InodeCore;
use proto::name::name_hash;
use proto::storeio::{Backptr, StoreBatch, StoreKey};
use proto::{Frag, Ino, RankId, Version};
use std::error::Error;
use std::time::Instant;
use stdx::Wall;
use stdx::hash::HashSeed;
use store::folder::{Folder, FormatOptions, format};
use store::meta::MetaStore;

const FILES_PER_DIRECTORY: u64 = 1000;

fn header(entries: u64, subdirs: u64) -> FragHeader {
    FragHeader { version: Version(9), entries, subdirs, change: 1, ..FragHeader::default() }
}

fn inode(ino: u64, mode: u32) -> InodeCore {
    InodeCore { ino: Ino(ino), mode, nlink: 1, change: 1, ..InodeCore::default() }
}

/// One directory below the root with its files.
fn directory(seed: &HashSeed, ino: u64, files: u64) -> [StoreBatch; 3] {
    let (dir, name) = (Ino(ino), format!("dir{ino}"));
    let mut root = StoreBatch::new(Ino::ROOT, None);
    let hash = name_hash(seed, name.as_bytes());
    root.put(StoreKey::head(Ino::ROOT, hash, name.as_bytes()), |w| {
        encode_primary(&inode(ino, 0o040_755), None, w);
    });
    let mut backptr = StoreBatch::new(dir, None);
    let place = Backptr { version: 1, parent: Ino::ROOT, hash, name: name.as_bytes().into() };
    backptr.put(StoreKey::Backptr { ino: dir }, |w| place.encode(w));
    let mut entries = StoreBatch::new(dir, None);
    entries.put(StoreKey::Header { dir, frag: Frag::WHOLE }, |w| header(files, 0).encode(w));
    for file in 1..=files {
        let name = format!("file.mdtest.0.{file}");
        let hash = name_hash(seed, name.as_bytes());
        entries.put(StoreKey::head(dir, hash, name.as_bytes()), |w| {
            encode_primary(&inode(ino + file, 0o100_644), None, w);
        });
    }
    [root, backptr, entries]
}

/// "VmHWM" and "RssAnon" of this process in MiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: million DIR [FILES]")?;
    let files: u64 = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let path = std::path::Path::new(&dir);
    if !path.join("pando.fs").exists() {
        let began = Instant::now();
        generate(path, files)?;
        println!("made {files} files in {:.1} s", began.elapsed().as_secs_f64());
        println!("run again to check");
        return Ok(());
    }
    let began = Instant::now();
    let report = fsck::check(path)?;
    let seconds = began.elapsed().as_secs_f64();
    for finding in report.findings.iter().take(10) {
        println!("{finding}");
    }
    println!(
        "{} directories, {} files, {} findings in {seconds:.2} s; {} MiB at most",
        report.directories,
        report.files,
        report.findings.len() as u64 + report.more,
        memory("VmHWM"),
    );
    Ok(())
}

fn generate(path: &std::path::Path, files: u64) -> Result<(), Box<dyn Error>> {
    let record = format(path, &FormatOptions::new(Wall(1)))?;
    let folder = Folder::open(path)?;
    let meta = folder.open_meta()?;
    let (mut ino, mut left, mut directories) = (4096, files, 0);
    while left > 0 {
        let mut batches = Vec::new();
        while left > 0 && batches.len() < 96 {
            let here = left.min(FILES_PER_DIRECTORY);
            batches.extend(directory(&record.hash_seed, ino, here));
            ino += here + 1;
            left -= here;
            directories += 1;
        }
        meta.apply(&batches)?;
    }
    let mut root = StoreBatch::new(Ino::ROOT, None);
    root.put(StoreKey::Header { dir: Ino::ROOT, frag: Frag::WHOLE }, |w| {
        header(directories, directories).encode(w);
    });
    let mut system = StoreBatch::new(Ino::SYSTEM, None);
    system.put(StoreKey::Counter { rank: RankId(0) }, |w| {
        w.u64(ino);
    });
    Ok(meta.apply(&[root, system])?)
}
