//! Decoders on hostile bytes: nothing panics, and what decodes means the same after encoding it again.
//!
//! Inputs come from the kept corpus (tests/corpus, one file per decoder), from zeros behind every tag, and
//! from mutations of whatever decoded before. The seed is fixed: a failure repeats, and prints its input.
//! `PANDOFS_FUZZ_RUNS=N` sets the budget; `UPDATE_CORPUS=1` writes what decoded back into the corpus.
//!
//! Absent: coverage guidance; the journal's files (room `store`).

use proto::codec::{Reader, Writer};
use proto::dentry::DentryValue;
use proto::frame::{put_frame, take_frame};
use proto::fsrecord::FsRecord;
use proto::header::FragHeader;
use proto::inode::{InodeCore, InodeExt, InodeRecord};
use proto::journal::{
    Mutations, TxnCluster, begin_entry, end_entry, highest_mark, put_transaction, read_entry,
};
use proto::message::{ClientMsg, ServerMsg};
use proto::mutation::Mutation;
use proto::reply::{decode_outcome, encode_outcome};
use proto::request::{LockSpec, Request};
use proto::storeio::{Backptr, StoreKey, Table};
use proto::{Attr, Cred, Position, SetAttr};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use stdx::Prng;

/// Decodes; the value encoded again if it was one.
type Decoder = fn(&[u8]) -> Option<Vec<u8>>;

macro_rules! whole {
    ($type:ty) => {
        |bytes| {
            let value = <$type>::decode(bytes).ok()?;
            let mut w = Writer::new();
            value.encode(&mut w);
            Some(w.0)
        }
    };
}

macro_rules! from_reader {
    ($type:ty) => {
        |bytes| {
            let value = <$type>::decode(&mut Reader::new(bytes)).ok()?;
            let mut w = Writer::new();
            value.encode(&mut w);
            Some(w.0)
        }
    };
}

fn key(table: Table, bytes: &[u8]) -> Option<Vec<u8>> {
    let key = StoreKey::decode(table, bytes).ok()?;
    let mut out = Vec::new();
    key.encode(&mut out);
    Some(out)
}

const DECODERS: &[(&str, Decoder)] = &[
    ("client-message", whole!(ClientMsg)),
    ("server-message", whole!(ServerMsg)),
    ("request", from_reader!(Request)),
    ("lock", from_reader!(LockSpec)),
    ("attr", from_reader!(Attr)),
    ("set-attr", from_reader!(SetAttr)),
    ("cred", from_reader!(Cred)),
    ("mutation", from_reader!(Mutation<'_>)),
    ("backptr", whole!(Backptr)),
    ("header", whole!(FragHeader)),
    ("outcome", |bytes| {
        let outcome = decode_outcome(&mut Reader::new(bytes)).ok()?;
        let mut w = Writer::new();
        encode_outcome(&outcome, &mut w);
        Some(w.0)
    }),
    ("inode", whole!(InodeRecord)),
    ("dentry", whole!(DentryValue)),
    ("fs-record", |bytes| FsRecord::decode(bytes).ok().map(|record| record.encode())),
    ("key-dentry", |bytes| key(Table::Dentry, bytes)),
    ("key-backptr", |bytes| key(Table::Backptr, bytes)),
    ("key-system", |bytes| key(Table::System, bytes)),
    ("frame", |bytes| take_frame(bytes).ok().flatten().map(|(_, len)| bytes[..len].to_vec())),
    ("journal", |bytes| {
        let at = Position(4096);
        let _mark = highest_mark(&bytes[..bytes.len().min(256)], at);
        let entry = read_entry(bytes, at).ok()?;
        Some(bytes[..entry.len].to_vec())
    }),
    ("mutations", |bytes| {
        let mut w = Writer::new();
        for mutation in Mutations::new(bytes) {
            mutation.ok()?.encode(&mut w);
        }
        Some(w.0)
    }),
];

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format!("{name}.hex"))
}

/// The corpus file: one input per line, in hexadecimal digits.
fn read_corpus(name: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(corpus(name)).unwrap_or_default();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    text.lines()
        .map(|line| line.as_bytes().chunks(2).map(|pair| byte(pair).expect("a byte")).collect())
        .collect()
}

fn write_corpus<'a>(name: &str, inputs: impl Iterator<Item = &'a Vec<u8>>) {
    let line = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    let path = corpus(name);
    fs::create_dir_all(path.parent().expect("a folder above")).expect("a folder");
    fs::write(path, inputs.map(line).collect::<String>()).expect("a file");
}

/// Records whose zeros decode to nothing, because they must have a core.
fn samples(name: &str) -> Vec<Vec<u8>> {
    let link = InodeExt { symlink: Some(b"to".as_slice().into()), rdev: 3, ..InodeExt::default() };
    let full = InodeExt {
        xattrs: vec![(b"user.a".as_slice().into(), b"v".as_slice().into())],
        links: vec![(proto::Ino(4096), proto::NameHash(9))],
        unknown: vec![(200, b"later".as_slice().into())],
        ..InodeExt::default()
    };
    let mut w = Writer::new();
    let exts = [None, Some(Box::new(link)), Some(Box::new(full))];
    let inodes = exts.map(|ext| InodeRecord { core: InodeCore::default(), ext });
    match name {
        "header" => {
            FragHeader { unknown: vec![(9, b"x".as_slice().into())], ..Default::default() }.encode(&mut w)
        }
        "inode" | "dentry" => return inodes.map(|inode| encoded(name, inode)).to_vec(),
        "frame" => put_frame(&mut w, |w| {
            w.u64(7);
        }),
        "journal" => {
            let start = begin_entry(&mut w, Position(4096), Position(0));
            put_transaction(&mut w, stdx::Wall(5), None, TxnCluster::default());
            Mutation::InoCounter { rank: proto::Rank(0), next: 1 }.encode(&mut w);
            end_entry(&mut w, start);
        }
        _ => return Vec::new(),
    }
    vec![w.0]
}

fn encoded(name: &str, inode: InodeRecord) -> Vec<u8> {
    let mut w = Writer::new();
    if name == "inode" {
        inode.encode(&mut w)
    } else {
        DentryValue::Primary(inode).encode(&mut w)
    }
    w.0
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let mut seeds = read_corpus(name);
    seeds.extend(samples(name));
    for tag in 0..=80_u8 {
        for zeros in [0, 7, 8, 16, 24, 40, 64, 100, 200] {
            let mut bytes = vec![tag];
            bytes.resize(1 + zeros, 0);
            seeds.push(bytes);
        }
    }
    seeds
}

/// One input made from others.
fn mutate(prng: &mut Prng, pool: &[Vec<u8>]) -> Vec<u8> {
    let pick = |prng: &mut Prng, len: usize| prng.below(len.max(1) as u64) as usize;
    let mut bytes = pool[pick(prng, pool.len())].clone();
    for _ in 0..=prng.below(4) {
        let at = pick(prng, bytes.len() + 1);
        match prng.below(7) {
            0 if !bytes.is_empty() => {
                bytes[pick(prng, at.max(1)).min(at.saturating_sub(1))] ^= 1 << prng.below(8)
            }
            1 => bytes.insert(at, prng.below(256) as u8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 => bytes.truncate(at),
            4 => {
                let numbers = [0_u64, 1, 0x7F, 0xFF, 0xFFFF, 1 << 20, 0x7FFF_FFFF, 0xFFFF_FFFF, u64::MAX];
                let number = numbers[pick(prng, numbers.len())].to_le_bytes();
                let width = [1, 2, 4, 8][pick(prng, 4)];
                for (byte, new) in bytes.iter_mut().skip(at).zip(&number[..width]) {
                    *byte = *new;
                }
            }
            5 => {
                let other = &pool[pick(prng, pool.len())];
                let from = pick(prng, other.len() + 1);
                bytes.splice(at..at, other[from..].iter().copied().take(64));
            }
            _ => bytes.resize((bytes.len() + pick(prng, 32)).min(4096), 0),
        }
    }
    bytes
}

fn runs() -> u64 {
    std::env::var("PANDOFS_FUZZ_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

/// Feeds one decoder; how many inputs it took for a value.
fn fuzz(name: &str, decode: Decoder, runs: u64) -> u64 {
    let mut prng = Prng::new(0x5EED ^ name.len() as u64);
    let mut pool = seeds(name);
    // One kept input per tag and length class: variety, not volume.
    let mut kept: BTreeMap<(u8, u32), Vec<u8>> = BTreeMap::new();
    let mut decoded = 0;
    for run in 0..runs {
        let bytes = match pool.get(run as usize) {
            Some(seed) => seed.clone(),
            None => mutate(&mut prng, &pool),
        };
        let result = std::panic::catch_unwind(|| decode(&bytes));
        let Ok(again) = result else { panic!("{name}: run {run} panicked on {bytes:02x?}") };
        let Some(first) = again else { continue };
        decoded += 1;
        let second = decode(&first);
        assert_eq!(second.as_ref(), Some(&first), "{name}: {bytes:02x?} changes its meaning");
        let class = (bytes.first().copied().unwrap_or(0), bytes.len().checked_ilog2().unwrap_or(0));
        if !kept.contains_key(&class) && kept.len() < 64 && bytes.len() <= 512 {
            kept.insert(class, bytes.clone());
            pool.push(bytes);
        }
    }
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        write_corpus(name, kept.values());
    }
    decoded
}

#[test]
fn fuzz_every_decoder() {
    let share = runs() / DECODERS.len() as u64 + 1;
    for (name, decode) in DECODERS {
        let decoded = fuzz(name, *decode, share.max(1_000));
        // Behind a checksum nearly everything is refused, which is the point of it.
        let guarded = *name == "fs-record";
        assert!(decoded > 0 || guarded, "{name}: nothing decoded, so nothing was tested");
    }
}
