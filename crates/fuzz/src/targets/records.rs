//! Records of the metadata store and of the folder: values and keys.
//!
//! Absent: the stores.

use crate::class::class;
use crate::repair;
use crate::target::{Exact, Target, Verdict, round_trip};
use proto::cluster::Mask;
use proto::codec::Writer;
use proto::dentry::DentryValue;
use proto::fsrecord::{FORMAT, FsRecord, HASH_SIPHASH_1_3};
use proto::header::FragHeader;
use proto::inode::{Chance, InodeCore, InodeExt, InodeRecord, Placement, Policies, Rules};
use proto::storeio::{Backptr, StoreKey, Table};
use proto::system::{CheckpointRecord, SessionRecord, decode_counter};
use proto::{FileKind, Frag, Ino, NameHash, Position, RankId, SessionId, SnapId, Tid, Version};
use stdx::hash::HashSeed;
use store::registry::{self, Record};

pub(super) const INODE: Target = Target { name: "inode", execute: inode, repair: None, seeds: inode_seeds };
pub(super) const DENTRY: Target =
    Target { name: "dentry", execute: dentry, repair: None, seeds: dentry_seeds };
pub(super) const FRAG_HEADER: Target =
    Target { name: "frag-header", execute: frag_header, repair: None, seeds: frag_header_seeds };
pub(super) const FS_RECORD: Target =
    Target { name: "fs-record", execute: fs_record, repair: Some(repair::fs_record), seeds: fs_record_seeds };
pub(super) const STORE_KEY: Target =
    Target { name: "store-key", execute: store_key, repair: None, seeds: store_key_seeds };
pub(super) const BACKPTR: Target =
    Target { name: "backptr", execute: backptr, repair: None, seeds: backptr_seeds };
pub(super) const REGISTRY: Target = Target {
    name: "registry-record",
    execute: registry,
    repair: Some(repair::registry_record),
    seeds: registry_seeds,
};
pub(super) const SYSTEM: Target =
    Target { name: "system-record", execute: system, repair: None, seeds: system_seeds };

macro_rules! encoded {
    () => {
        |value| {
            let mut w = Writer::new();
            value.encode(&mut w);
            w.0
        }
    };
}

fn weigh_inode(record: &InodeRecord) -> usize {
    let ext = record.ext.as_deref().map_or(0, |ext| {
        let xattrs: usize = ext.xattrs.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        let unknown: usize = ext.unknown.iter().map(|(_, body)| body.len() + 24).sum();
        size_of::<InodeExt>()
            + ext.symlink.as_ref().map_or(0, |to| to.len())
            + xattrs
            + unknown
            + ext.links.len() * 16
    });
    size_of::<InodeRecord>() + ext
}

fn inode(input: &[u8]) -> Verdict {
    round_trip(input, Exact::Value, InodeRecord::decode, encoded!(), weigh_inode)
}

fn dentry(input: &[u8]) -> Verdict {
    let weigh = |value: &DentryValue| match value {
        DentryValue::Primary(record) => weigh_inode(record),
        DentryValue::Remote { .. } => size_of::<DentryValue>(),
    };
    let exact = if input.first() == Some(&2) { Exact::Bytes } else { Exact::Value };
    round_trip(input, exact, DentryValue::decode, encoded!(), weigh)
}

fn frag_header(input: &[u8]) -> Verdict {
    let weigh = |header: &FragHeader| {
        let unknown: usize = header.unknown.iter().map(|(_, body)| body.len() + 24).sum();
        size_of::<FragHeader>() + unknown
    };
    round_trip(input, Exact::Value, FragHeader::decode, encoded!(), weigh)
}

fn fs_record(input: &[u8]) -> Verdict {
    let weigh = |record: &FsRecord| {
        let texts = [&record.name, &record.meta_dir, &record.journal_dir, &record.data_dir];
        size_of::<FsRecord>() + texts.iter().map(|text| text.capacity()).sum::<usize>()
    };
    round_trip(input, Exact::Value, FsRecord::decode, FsRecord::encode, weigh)
}

/// The first byte chooses the table.
fn store_key(input: &[u8]) -> Verdict {
    let Some((table, bytes)) = input.split_first() else { return Ok("empty".to_owned()) };
    let table = [Table::Dentry, Table::Backptr, Table::System][usize::from(*table) % 3];
    let key = match StoreKey::decode(table, bytes) {
        Ok(key) => key,
        Err(error) => return Ok(class("refused", &error)),
    };
    let mut again = Vec::new();
    key.encode(&mut again);
    if key.table() != table || again != bytes {
        return Err(format!("{key:?} of {table:?} is encoded as {}", crate::corpus::hex(&again)));
    }
    Ok(class("read", &key))
}

fn registry(input: &[u8]) -> Verdict {
    let encode = |record: &Record| registry::encode(record.version, &record.bytes).unwrap_or_default();
    round_trip(input, Exact::Bytes, registry::decode, encode, |record| {
        size_of::<Record>() + record.bytes.len()
    })
}

fn backptr(input: &[u8]) -> Verdict {
    let weigh = |backptr: &Backptr| size_of::<Backptr>() + backptr.name.len();
    round_trip(input, Exact::Bytes, Backptr::decode, encoded!(), weigh)
}

/// The first byte chooses the record.
fn system(input: &[u8]) -> Verdict {
    let Some((kind, bytes)) = input.split_first() else { return Ok("empty".to_owned()) };
    match kind % 3 {
        0 => {
            let weigh = |session: &SessionRecord| {
                let results: usize = session.results.iter().map(|(_, result)| result.len() + 24).sum();
                let delegated = session.delegated.capacity() * size_of::<(Ino, u32)>();
                size_of::<SessionRecord>() + session.client.len() + results + delegated
            };
            round_trip(bytes, Exact::Bytes, SessionRecord::decode, encoded!(), weigh)
        }
        1 => round_trip(bytes, Exact::Bytes, CheckpointRecord::decode, encoded!(), size_of_val),
        _ => round_trip(bytes, Exact::Bytes, decode_counter, |next| next.to_le_bytes().to_vec(), size_of_val),
    }
}

fn inodes() -> Vec<InodeRecord> {
    let core = |mode| InodeCore { ino: Ino(4097), mode, nlink: 1, size: 9, ..InodeCore::default() };
    let record = |mode, ext: InodeExt| InodeRecord { core: core(mode), ext: Some(Box::new(ext)) };
    let xattrs = vec![(b"user.a"[..].into(), b"1"[..].into()), (b"user.b"[..].into(), b"22"[..].into())];
    let own = Rules {
        random: Chance::new(0.5),
        placement: Some(Placement::Hash),
        mask: Some(Mask::NONE.with(RankId(3))),
    };
    let taken = Rules { placement: Some(Placement::Subtree), ..Rules::default() };
    let unknown = vec![(7, b"later"[..].into())];
    let pinned = Policies { pin: Some(RankId(300)), distributed: true, own, taken, unknown };
    vec![
        InodeRecord { core: core(0o100_644), ext: None },
        record(0o120_777, InodeExt { symlink: Some(b"target"[..].into()), ..InodeExt::default() }),
        record(0o100_600, InodeExt { xattrs, ..InodeExt::default() }),
        record(0o020_600, InodeExt { rdev: 0x0103, ..InodeExt::default() }),
        record(0o100_644, InodeExt { links: vec![(Ino::ROOT, NameHash(9)); 3], ..InodeExt::default() }),
        record(0o040_755, InodeExt { policies: pinned, ..InodeExt::default() }),
        record(0o040_755, InodeExt { unknown: vec![(200, b"later"[..].into())], ..InodeExt::default() }),
    ]
}

fn named<T>(values: Vec<T>, encode: impl Fn(&T) -> Vec<u8>) -> Vec<(String, Vec<u8>)> {
    values.iter().enumerate().map(|(number, value)| (format!("{number:02}"), encode(value))).collect()
}

fn inode_seeds() -> Vec<(String, Vec<u8>)> {
    named(inodes(), encoded!())
}

fn dentry_seeds() -> Vec<(String, Vec<u8>)> {
    let mut values: Vec<DentryValue> = inodes().into_iter().map(DentryValue::Primary).collect();
    values.push(DentryValue::Remote { ino: Ino(5000), kind: FileKind::Fifo });
    values.push(DentryValue::Remote { ino: Ino(5001), kind: FileKind::Regular });
    named(values, encoded!())
}

fn frag_header_seeds() -> Vec<(String, Vec<u8>)> {
    let header =
        FragHeader { version: Version(3), entries: 2, subdirs: 1, change: 9, ..FragHeader::default() };
    let later = FragHeader { unknown: vec![(2, b"totals"[..].into()), (9, [][..].into())], ..header.clone() };
    named(vec![header, later, FragHeader::default()], encoded!())
}

fn fs_record_seeds() -> Vec<(String, Vec<u8>)> {
    let record = |name: &str, data_dir: &str, complete| FsRecord {
        format: FORMAT,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        fsid: [3; 16],
        name: name.to_owned(),
        hash_function: HASH_SIPHASH_1_3,
        hash_seed: HashSeed([9; 16]),
        environments: 16,
        small_file_bytes: 65_536,
        epoch: 0,
        meta_dir: String::new(),
        journal_dir: String::new(),
        data_dir: data_dir.to_owned(),
        complete,
    };
    named(vec![record("pandofs", "", true), record("", "/elsewhere", false)], FsRecord::encode)
}

fn store_key_seeds() -> Vec<(String, Vec<u8>)> {
    let keys = vec![
        StoreKey::head(Ino(5), NameHash(9), b"name"),
        StoreKey::Dentry { dir: Ino(5), hash: NameHash(9), name: b"old", snap: SnapId(7) },
        StoreKey::Header { dir: Ino(5), frag: Frag::WHOLE },
        StoreKey::Backptr { ino: Ino(4097) },
        StoreKey::Session { rank: RankId(0), id: SessionId(1) },
        StoreKey::Counter { rank: RankId(2) },
        StoreKey::Checkpoint { rank: RankId(0) },
        StoreKey::Session { rank: RankId(3), id: SessionId(1 << 40) },
    ];
    named(keys, |key| {
        let mut bytes = vec![key.table() as u8 - 1];
        key.encode(&mut bytes);
        bytes
    })
}

fn registry_seeds() -> Vec<(String, Vec<u8>)> {
    let record = |version, bytes: &[u8]| registry::encode(version, bytes).unwrap_or_default();
    named(vec![record(1, b""), record(u64::MAX, &[7; 300])], Vec::clone)
}

fn backptr_seeds() -> Vec<(String, Vec<u8>)> {
    let backptr =
        |name: &[u8]| Backptr { version: 3, parent: Ino::ROOT, hash: NameHash(99), name: name.into() };
    named(vec![backptr(b"name"), backptr(&[b'n'; 255])], encoded!())
}

fn system_seeds() -> Vec<(String, Vec<u8>)> {
    let results = vec![(Tid(4), b"r"[..].into()), (Tid(5), b"longer"[..].into())];
    let session = SessionRecord {
        client: b"host"[..].into(),
        floor: Tid(3),
        results,
        flags: 2,
        delegated: vec![(Ino(8192), 9)],
    };
    let checkpoint = CheckpointRecord { position: Position(9), next_ino: 4096 };
    let (mut a, mut b) = (Writer::new(), Writer::new());
    session.encode(a.u8(0));
    checkpoint.encode(b.u8(1));
    let counter = [&[2][..], &70_000_u64.to_le_bytes()].concat();
    named(vec![a.0, b.0, counter], Vec::clone)
}
