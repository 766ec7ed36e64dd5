//! Speed of journal and metadata store on a real disk: `store_speed DIR`.
//!
//! Absent: percentiles, cold caches; the crate `bench` measures whole operations.

use proto::codec::Writer;
use proto::ids::{Incarnation, Ino, NameHash, Position, RankId};
use proto::journal::{TxnCluster, begin_entry, end_entry, put_transaction};
use proto::mutation::Mutation;
use proto::storeio::{LoadRequest, StoreBatch, StoreError, StoreKey};
use std::path::Path;
use std::time::Instant;
use stdx::hash::mix64;
use stdx::{Prng, Wall};
use store::disk_real::RealDisk;
use store::journal_files::{JournalFiles, JournalLimits};
use store::meta::MetaStore;
use store::meta_lmdb::{LmdbMeta, LmdbOptions};

fn main() {
    let place = std::env::args().nth(1).unwrap_or_else(|| "/tmp/store_speed".into());
    let place = Path::new(&place);
    if let Err(error) = std::fs::create_dir_all(place.join("meta"))
        .map_err(|e| e.to_string())
        .and_then(|()| run(place).map_err(|e| e.to_string()))
    {
        eprintln!("{error}");
    }
}

fn run(place: &Path) -> Result<(), StoreError> {
    journal(place)?;
    meta(place)
}

fn rate(what: &str, count: u64, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!("{what:40} {:>12.0}/s {:>10.2} us", count as f64 / seconds, seconds * 1e6 / count as f64);
}

fn entries(base: u64, count: u64) -> Vec<u8> {
    let mut w = Writer::new();
    for _ in 0..count {
        let position = Position(base + w.len() as u64);
        let start = begin_entry(&mut w, position, Position(base));
        put_transaction(&mut w, Wall(1), None, TxnCluster::default());
        Mutation::PutDentry {
            dir: Ino(5000),
            hash: NameHash(99),
            version: proto::Version(3),
            name: b"file.000001",
            value: &[7; 110],
        }
        .encode(&mut w);
        end_entry(&mut w, start);
    }
    w.0
}

fn journal(place: &Path) -> Result<(), StoreError> {
    let disk = RealDisk::new(place);
    let journal = JournalFiles::open(
        disk,
        RankId(0),
        Incarnation(std::process::id().into()),
        JournalLimits::default(),
    )?;
    let began = Instant::now();
    while journal.prepare()? {}
    println!("prepared in {:?}", began.elapsed());
    let first = journal.segments().first().map_or(Position(0), |segment| segment.header.start);
    let mut at = journal.read(first, &mut |_, _| {})?;
    let began = Instant::now();
    for _ in 0..2000 {
        let bytes = entries(at.0, 16);
        journal.append(at, &bytes)?;
        at = journal.sync()?;
    }
    rate("append 16 entries + sync", 2000, began);
    let began = Instant::now();
    for round in 0..2000 {
        let bytes = entries(at.0, 1000);
        journal.append(at, &bytes)?;
        at.0 += bytes.len() as u64;
        if round % 6 == 5 {
            journal.sync()?;
        }
        if round % 100 == 99 {
            journal.trim(Position(at.0))?;
        }
    }
    journal.sync()?;
    rate("entries, sync per 1 MB", 2_000_000, began);
    Ok(())
}

fn batch(dir: u64, files: std::ops::Range<u64>) -> StoreBatch {
    let mut batch = StoreBatch::new(Ino(dir), None);
    let mut hashes: Vec<u64> = files.map(|file| mix64(dir << 32 | file)).collect();
    hashes.sort_unstable();
    for hash in hashes {
        batch.put(StoreKey::head(Ino(dir), NameHash(hash), b"file.000001"), |w| {
            w.raw(&[7; 115]);
        });
    }
    batch
}

fn meta(place: &Path) -> Result<(), StoreError> {
    let options = LmdbOptions { environments: 16, map_bytes: None, create: true };
    let meta = LmdbMeta::open(&place.join("meta"), options)?;
    let (dirs, files) = (2000_u64, 1000_u64);
    let batches: Vec<Vec<StoreBatch>> = (0..20)
        .map(|slice| {
            (slice * dirs / 20..(slice + 1) * dirs / 20).map(|dir| batch(5000 + dir, 0..files)).collect()
        })
        .collect();
    let began = Instant::now();
    for slice in &batches {
        meta.apply(slice)?;
    }
    rate("apply, 100k entries a call", dirs * files, began);
    let began = Instant::now();
    for slice in batches.iter().take(5) {
        for one in slice.chunks(10) {
            meta.apply(one)?;
        }
    }
    rate("apply again, 10k entries a call", dirs * files / 4, began);
    let one = &batches[0][..1];
    let began = Instant::now();
    for _ in 0..200 {
        meta.apply(one)?;
    }
    rate("apply, 1k entries of one directory", 200_000, began);
    let mut prng = Prng::new(1);
    for size in [1, 64] {
        let requests: Vec<Vec<LoadRequest>> = (0..200_000 / size)
            .map(|_| {
                (0..size)
                    .map(|_| {
                        let (dir, file) = (5000 + prng.below(dirs), prng.below(files));
                        let hash = NameHash(mix64(dir << 32 | file));
                        LoadRequest::Dentry { dir: Ino(dir), hash, name: b"file.000001"[..].into() }
                    })
                    .collect()
            })
            .collect();
        let began = Instant::now();
        for group in &requests {
            for result in meta.load(group) {
                result?;
            }
        }
        rate(&format!("random gets, {size} a call"), 200_000, began);
    }
    let began = Instant::now();
    let mut scanned = 0;
    for dir in 0..dirs {
        let scan = LoadRequest::Scan { dir: Ino(5000 + dir), from: NameHash(0), entries_max: 10_000 };
        if let Ok(proto::storeio::Loaded::Dentries { entries, .. }) = meta.load(&[scan]).remove(0) {
            scanned += entries.len() as u64;
        }
    }
    rate("scan", scanned, began);
    println!("{:?}", meta.stats()?[0]);
    Ok(())
}
