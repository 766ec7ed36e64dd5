//! Spread directories: their units' headers are checked and mended one by one, and what a journal says of a unit is its directory's.

mod common;

use common::{Folder, Meta, bytes, stopped};
use fsck::{Kind, RepairOptions, Report, check, repair};
use proto::cluster::{MoveId, Unit};
use proto::dentry::encode_primary;
use proto::header::{FragHeader, Spread, Spreading};
use proto::inode::InodeCore;
use proto::journal::{TxnCluster, begin_entry, end_entry, put_mark, put_transaction};
use proto::mutation::Mutation;
use proto::storeio::{StoreKey, Table};
use proto::system::CheckpointRecord;
use proto::{Frag, Incarnation, Ino, NameHash, Position, RankId, Version, Writer};
use stdx::Wall;
use store::disk_real::RealDisk;
use store::initial::ensure_rank;
use store::journal_files::{JournalFiles, JournalLimits};

/// What is done to a unit of a directory.
type Harm = fn(&Meta, Ino, Frag);

const SPREAD: Spread = Spread { depth: 2, first: Ino(60_000), stamp: 4, by_itself: false };

fn encoded(header: &FragHeader) -> Vec<u8> {
    let mut w = Writer::new();
    header.encode(&mut w);
    w.0
}

fn unit_header(dir: Ino, frag: Frag, (entries, subdirs): (u64, u64)) -> FragHeader {
    let spreading = Some(Box::new(Spreading::Unit(Unit { dir, frag })));
    FragHeader { version: Version(1 << 40), entries, subdirs, change: 1, spreading, ..FragHeader::default() }
}

/// A folder in which directory `d` is spread, and its number.
fn spread() -> (Folder, Ino) {
    let folder = stopped();
    let meta = Meta::open(&folder.path);
    let dir = meta.ino("d");
    let prefix = dir.0.to_be_bytes();
    let names = meta.all(Table::Dentry);
    let hash_of = |key: &[u8]| u64::from_be_bytes(key[8..16].try_into().expect("8 bytes"));
    let hashes: Vec<NameHash> = names
        .iter()
        .filter(|record| record.key.starts_with(&prefix) && hash_of(&record.key) != 0)
        .map(|record| NameHash(hash_of(&record.key)))
        .collect();
    assert!(hashes.len() > 4, "{hashes:?}");
    meta.edit_header(dir, |header| {
        assert_eq!((header.entries, header.subdirs), (hashes.len() as u64, 0));
        (header.entries, header.subdirs) = (0, 0);
        header.spreading = Some(Box::new(Spreading::Over(SPREAD)));
    });
    for (_, frag) in SPREAD.all() {
        let entries = hashes.iter().filter(|hash| frag.covers(**hash)).count() as u64;
        meta.put(StoreKey::Header { dir, frag }, &encoded(&unit_header(dir, frag, (entries, 0))));
    }
    meta.close();
    (folder, dir)
}

fn clean(report: &Report) {
    assert!(report.is_clean() && report.notes.is_empty(), "{:#?} {:#?}", report.findings, report.notes);
}

fn place(dir: Ino, frag: Frag) -> String {
    format!("directory {:x}, part {:x}/{}", dir.0, frag.prefix, frag.depth)
}

#[test]
fn a_spread_directory_is_clean() {
    let (folder, _) = spread();
    clean(&check(&folder.path).expect("checked"));
}

#[test]
fn what_is_wrong_with_a_unit_is_named_and_mended() {
    let cases: [(Kind, Harm); 5] = [
        (Kind::EntriesWrong, |meta, dir, frag| {
            meta.put(StoreKey::Header { dir, frag }, &encoded(&unit_header(dir, frag, (77, 0))));
        }),
        (Kind::HeaderMissing, |meta, dir, frag| meta.delete(StoreKey::Header { dir, frag })),
        (Kind::HeaderOrphaned, |meta, dir, _| {
            let frag = Frag { prefix: 0, depth: 1 };
            meta.put(StoreKey::Header { dir, frag }, &encoded(&unit_header(dir, frag, (0, 0))));
        }),
        (Kind::HeaderUnreadable, |meta, dir, frag| {
            meta.put(StoreKey::Header { dir, frag }, &encoded(&unit_header(Ino(5), frag, (0, 0))));
        }),
        (Kind::HeaderUnreadable, |meta, dir, frag| meta.put(StoreKey::Header { dir, frag }, b"x")),
    ];
    for (kind, harm) in cases {
        let (folder, dir) = spread();
        let frag = SPREAD.unit(2).1;
        let meta = Meta::open(&folder.path);
        harm(&meta, dir, frag);
        meta.close();
        let report = check(&folder.path).expect("checked");
        let named = |finding: &fsck::Finding| {
            finding.kind == kind && (kind == Kind::HeaderUnreadable || finding.place.starts_with("directory"))
        };
        assert!(report.findings.iter().any(named), "{kind:?}: {:#?}", report.findings);
        if matches!(kind, Kind::EntriesWrong | Kind::HeaderMissing) {
            assert!(report.findings.iter().any(|finding| finding.place == place(dir, frag)));
        }
        let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
        assert!(report.is_clean() && report.is_changed(), "{kind:?}: {:#?}", report.findings);
        clean(&check(&folder.path).expect("checked"));
        let meta = Meta::open(&folder.path);
        let header = FragHeader::decode(&meta.value(StoreKey::Header { dir, frag })).expect("a header");
        assert_eq!(header.unit(), Some(Unit { dir, frag }), "{kind:?}");
        meta.close();
    }
}

/// A journal's tail says that a directory was merged: its units have ended, and all names are its own.
#[test]
fn a_directory_that_was_merged_is_clean() {
    let (folder, dir) = spread();
    let meta = Meta::open(&folder.path);
    let header = |frag| FragHeader::decode(&meta.value(StoreKey::Header { dir, frag })).expect("a header");
    let (own, mut entries, mut muts) = (header(Frag::WHOLE), 0, Writer::new());
    let mut put = |number: Ino, header: &FragHeader| {
        let (version, bytes) = (header.version, encoded(header));
        Mutation::PutHeader { dir: number, frag: Frag::WHOLE, version, newborn: false, header: &bytes }
            .encode(&mut muts);
    };
    for (number, frag) in SPREAD.all() {
        let unit = header(frag);
        entries += unit.entries;
        put(number, &FragHeader { version: Version(unit.version.0 + 1), ..unit });
    }
    let version = Version((1 << 40) + 2);
    put(dir, &FragHeader { version, entries, spreading: None, ..own });
    for (number, _) in SPREAD.all() {
        Mutation::DelBackptr { ino: number, version: version.0 }.encode(&mut muts);
    }
    let position = CheckpointRecord::decode(&meta.value(StoreKey::Checkpoint { rank: RankId(0) }))
        .expect("a checkpoint")
        .position;
    meta.close();
    append(&folder, (RankId(0), position), &muts);
    clean(&check(&folder.path).expect("checked"));
}

/// A journal calls a unit by its number.
#[test]
fn what_a_journal_says_of_a_unit_is_its_directorys() {
    let (folder, dir) = spread();
    let meta = Meta::open(&folder.path);
    let name = b"from the journal";
    let hash = meta.hash(name);
    let (number, frag) = SPREAD.of(hash);
    let known = FragHeader::decode(&meta.value(StoreKey::Header { dir, frag })).expect("a header").entries;
    let position = CheckpointRecord::decode(&meta.value(StoreKey::Checkpoint { rank: RankId(0) }))
        .expect("a checkpoint")
        .position;
    meta.close();
    let (mut value, mut muts) = (Writer::new(), Writer::new());
    let core =
        InodeCore { ino: Ino(4096 + 40), mode: 0o100_644, nlink: 1, change: 9, ..InodeCore::default() };
    encode_primary(&core, None, &mut value);
    let version = Version((1 << 40) + 1);
    let header = FragHeader { version, ..unit_header(dir, frag, (known + 1, 0)) };
    let header = encoded(&header);
    Mutation::PutDentry { dir: number, hash, version, name, value: &value.0 }.encode(&mut muts);
    Mutation::PutHeader { dir: number, frag: Frag::WHOLE, version, newborn: false, header: &header }
        .encode(&mut muts);
    append(&folder, (RankId(0), position), &muts);
    let report = check(&folder.path).expect("checked");
    clean(&report);
    assert_eq!(report.journal_operations, 1);
    // A repair of something else folds it in.
    let meta = Meta::open(&folder.path);
    let home = meta.home(Ino::SYSTEM.0);
    meta.put_at(home, Table::System, b"stranger", b"?");
    meta.close();
    assert!(repair(&folder.path, &RepairOptions::default()).expect("repaired").is_changed());
    clean(&check(&folder.path).expect("checked"));
    let meta = Meta::open(&folder.path);
    assert!(!meta.value(StoreKey::head(dir, hash, name)).is_empty());
    let stray = bytes(StoreKey::head(number, hash, name));
    assert!(meta.all(Table::Dentry).iter().all(|record| record.key != stray));
    meta.close();
}

/// Rank 1 let go of a directory that was not spread then, and rank 0, whose journal is read before, has spread it since.
#[test]
fn a_directory_that_was_spread_later_was_let_go_of_whole() {
    let (folder, dir) = spread();
    let opened = store::folder::Folder::open(&folder.path).expect("opened");
    opened.allow_ranks().expect("noted");
    let seed = opened.record().hash_seed;
    ensure_rank(&opened.open_meta().expect("meta"), &seed, RankId(1), Wall(1)).expect("made");
    drop(opened);
    let meta = Meta::open(&folder.path);
    let name = b"gone since";
    let hash = meta.hash(name);
    let (number, frag) = SPREAD.of(hash);
    let header = meta.value(StoreKey::Header { dir, frag });
    let position = CheckpointRecord::decode(&meta.value(StoreKey::Checkpoint { rank: RankId(0) }))
        .expect("a checkpoint")
        .position;
    meta.close();
    let (mut value, mut muts) = (Writer::new(), Writer::new());
    let core =
        InodeCore { ino: Ino(4096 + 40), mode: 0o100_644, nlink: 1, change: 9, ..InodeCore::default() };
    encode_primary(&core, None, &mut value);
    let version = Version(1);
    Mutation::PutDentry { dir, hash, version, name, value: &value.0 }.encode(&mut muts);
    Mutation::Sealed { id: MoveId(3), unit: Unit { dir, frag: Frag::WHOLE } }.encode(&mut muts);
    append(&folder, (RankId(1), Position(0)), &muts);
    let (version, mut muts) = (Version(1 << 40), Writer::new());
    Mutation::PutHeader { dir: number, frag: Frag::WHOLE, version, newborn: false, header: &header }
        .encode(&mut muts);
    append(&folder, (RankId(0), position), &muts);
    clean(&check(&folder.path).expect("checked"));
}

fn append(folder: &Folder, (rank, at): (RankId, Position), muts: &Writer) {
    let limits = JournalLimits { segment_bytes: 64 << 10, journal_bytes: 1 << 20 };
    let opened = store::folder::Folder::open(&folder.path).expect("opened");
    opened.note_incarnation(Incarnation(900)).expect("noted");
    let disk = RealDisk::new(&folder.path);
    let journal = JournalFiles::open(disk, rank, Incarnation(900), limits).expect("opens");
    let mut w = Writer::new();
    let entry = begin_entry(&mut w, at, at);
    put_transaction(&mut w, Wall(1), None, TxnCluster::default());
    w.raw(&muts.0);
    end_entry(&mut w, entry);
    let next = Position(at.0 + w.len() as u64);
    let mut mark = Writer::new();
    let entry = begin_entry(&mut mark, next, next);
    put_mark(&mut mark);
    end_entry(&mut mark, entry);
    journal.append(at, &w.0).expect("appended");
    journal.append(next, &mark.0).expect("appended");
    journal.sync().expect("synced");
}
