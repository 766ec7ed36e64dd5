//! Folders with several ranks: they are clean as their ranks leave them, what each says is seen, and what is wrong is named by the
//! rank's file and offset.

mod common;

use common::{Folder, Meta, bytes, flip, stopped};
use fsck::{FsckError, Kind, RepairOptions, Report, check, repair};
use proto::cluster::{ClusterMap, Mask, MoveId, Unit};
use proto::dentry::encode_primary;
use proto::header::FragHeader;
use proto::holder::Moved;
use proto::inode::InodeCore;
use proto::inode::flags::{BACKPTR, SLOTS};
use proto::journal::{TxnCluster, begin_entry, end_entry, put_mark, put_transaction};
use proto::mutation::Mutation;
use proto::name::name_hash;
use proto::storeio::{Cut, DataOp, Payload, StoreBatch, StoreKey, Table};
use proto::system::{CheckpointRecord, SessionRecord};
use proto::transact::{Left, TxnId, put_left};
use proto::unheard::When;
use proto::{FileId, Frag, Incarnation, Ino, Position, RankId, SessionId, Version, Writer};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use stdx::Wall;
use stdx::hash::HashSeed;
use store::data::{DataFiles, Limits};
use store::disk_real::RealDisk;
use store::folder;
use store::initial::ensure_rank;
use store::journal_files::{JournalFiles, JournalLimits};
use store::meta::MetaStore;
use store::registry::{MAP, Registry, RegistryFiles};

const RANK: RankId = RankId(2);
const LIMITS: JournalLimits = JournalLimits { segment_bytes: 64 << 10, journal_bytes: 1 << 20 };
const SEGMENT: &str = "journal/0002/00000001";
/// Sessions of rank 2: one that the tables know and the journal closes, one that only the journal knows, one that stays.
const CLOSED: SessionId = SessionId(7 << 32);
const OPENED: SessionId = SessionId(8 << 32);
const STAYS: SessionId = SessionId((7 << 32) + 1);
/// An inode that rank 2 made and that has lost its name.
const ORPHAN: u64 = 5000;
/// Numbers that sessions may give out, below it: of the table's session, and of the journal's.
const RECORDED: u64 = 4900;
const JOURNALED: u64 = 4950;

/// What rank 2 says in its journal, in three transactions.
fn tail(seed: &HashSeed) -> Vec<Writer> {
    let mut session = Writer::new();
    Mutation::Session { id: OPENED, open: true, client: b"uid=0 h:/m pid 1" }.encode(&mut session);
    Mutation::Session { id: CLOSED, open: false, client: b"" }.encode(&mut session);
    Mutation::DelegateInos { id: OPENED, first: Ino::of_rank(RANK, JOURNALED), count: 10 }
        .encode(&mut session);
    let mut counter = Writer::new();
    Mutation::InoCounter { rank: RANK, next: 4096 + 2 * 65_536 }.encode(&mut counter);
    let (ino, dir) = (Ino::of_rank(RANK, ORPHAN), Ino::orphans(RANK));
    let core = InodeCore { ino, mode: 0o100_644, change: 9, ..InodeCore::default() };
    let (mut value, mut header) = (Writer::new(), Writer::new());
    encode_primary(&core, None, &mut value);
    let version = Version(3);
    FragHeader { version, entries: 1, change: 2, ..FragHeader::default() }.encode(&mut header);
    let name = ino.link_name();
    let mut orphan = Writer::new();
    let hash = name_hash(seed, &name);
    Mutation::PutDentry { dir, hash, version, name: &name, value: &value.0 }.encode(&mut orphan);
    Mutation::PutHeader { dir, frag: Frag::WHOLE, version, newborn: false, header: &header.0 }
        .encode(&mut orphan);
    vec![session, counter, orphan]
}

/// Appends transactions, each with the mark that all before it is durable, and a mark behind them. Returns where they begin.
fn append(journal: &JournalFiles<RealDisk>, mut at: Position, transactions: &[Writer]) -> Vec<u64> {
    let mut begins = Vec::new();
    for muts in transactions.iter().map(Some).chain([None]) {
        let mut w = Writer::new();
        let entry = begin_entry(&mut w, at, at);
        match muts {
            Some(muts) => {
                put_transaction(&mut w, Wall(1), None, TxnCluster::default());
                w.raw(&muts.0);
            }
            None => put_mark(&mut w),
        }
        end_entry(&mut w, entry);
        journal.append(at, &w.0).expect("appended");
        begins.push(at.0);
        at = Position(at.0 + w.len() as u64);
    }
    journal.sync().expect("synced");
    begins
}

/// The map of a file system in which ranks 0 and 2 were made.
fn map() -> ClusterMap {
    let mut map = ClusterMap::first();
    map.max_mds = 3;
    map.last_incarnation = Incarnation(9);
    map.made = Mask::NONE.with(RankId(0)).with(RANK);
    map
}

/// A folder that rank 0 left cleanly, and rank 2 with a tail in its journal. And where the tail's entries begin.
fn two_ranks() -> (Folder, Vec<u64>) {
    let folder = stopped();
    // That of its server, with one rank.
    std::fs::remove_file(folder.path.join("cluster/map")).expect("removed");
    let opened = folder::Folder::open(&folder.path).expect("opened");
    opened.allow_ranks().expect("noted");
    opened.note_incarnation(Incarnation(9)).expect("noted");
    let seed = opened.record().hash_seed;
    let meta = opened.open_meta().expect("meta");
    ensure_rank(&meta, &seed, RANK, Wall(1)).expect("made");
    let mut system = StoreBatch::new(Ino::SYSTEM, None);
    for id in [CLOSED, STAYS] {
        let delegated = if id == STAYS { vec![(Ino::of_rank(RANK, RECORDED), 10)] } else { Vec::new() };
        let record = SessionRecord { delegated, ..SessionRecord::default() };
        system.put(StoreKey::Session { rank: RANK, id }, |w| record.encode(w));
    }
    let next_ino = 4096 + 65_536;
    system.put(StoreKey::Counter { rank: RANK }, |w| {
        w.u64(next_ino);
    });
    let journal = JournalFiles::open(RealDisk::new(&folder.path), RANK, Incarnation(8), LIMITS);
    let journal = journal.expect("opens");
    // A transaction that the checkpoint covers, then the tail.
    let covered = append(&journal, Position(0), &tail(&seed)[1..2]);
    let position = Position(covered[1] + 24 + 1);
    system.put(StoreKey::Checkpoint { rank: RANK }, |w| CheckpointRecord { position, next_ino }.encode(w));
    meta.apply(&[system]).expect("applied");
    let begins = append(&journal, position, &tail(&seed));
    let registry = RegistryFiles::open(RealDisk::new(&opened.registry_root())).expect("opened");
    registry.swap(MAP, 0, &map().encode()).expect("written");
    drop(journal);
    drop(meta);
    (folder, begins)
}

/// What a rank says next, in a life of its own.
fn says(folder: &Folder, rank: RankId, at: Position, transactions: &[Writer]) {
    let journal = JournalFiles::open(RealDisk::new(&folder.path), rank, Incarnation(9), LIMITS);
    append(&journal.expect("opens"), at, transactions);
}

/// Where rank 0 was stopped, and where what rank 2 has said ends: behind a mark.
fn ends(meta: &Meta, begins: &[u64]) -> [Position; 2] {
    let stored = meta.value(StoreKey::Checkpoint { rank: RankId(0) });
    let stopped = CheckpointRecord::decode(&stored).expect("a checkpoint").position;
    [stopped, Position(begins.last().expect("a mark") + 24 + 1)]
}

fn transaction(mutations: &[Mutation<'_>]) -> Writer {
    let mut w = Writer::new();
    mutations.iter().for_each(|mutation| mutation.encode(&mut w));
    w
}

/// A repair of this folds everything in.
fn put_stranger(path: &Path) {
    let meta = Meta::open(path);
    let home = meta.home(Ino::SYSTEM.0);
    meta.put_at(home, Table::System, b"stranger", b"?");
    meta.close();
}

fn clean(report: &Report) {
    assert!(report.is_clean() && report.notes.is_empty(), "{:#?} {:#?}", report.findings, report.notes);
}

fn finds(path: &Path, kind: Kind, place: &str) -> Report {
    let report = check(path).expect("checked");
    let named = report.findings.iter().any(|f| f.kind == kind && f.place == place);
    assert!(named, "no {kind:?} at {place}: {:#?}", report.findings);
    report
}

#[test]
fn a_folder_with_two_ranks_is_clean_and_both_tails_are_seen() {
    let (folder, _) = two_ranks();
    let one = check(&stopped().path).expect("checked");
    let report = check(&folder.path).expect("checked");
    clean(&report);
    assert_eq!(report.journal_operations, 3);
    assert_eq!((report.directories, report.files), (one.directories, one.files + 1), "the orphan is a file");
    assert_eq!(repair(&folder.path, &RepairOptions::default()).expect("repaired"), report, "nothing to do");
}

#[test]
fn what_rank_2_says_is_folded_into_the_tables_by_a_repair() {
    let (folder, _) = two_ranks();
    put_stranger(&folder.path);
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.is_changed(), "{report:#?}");
    let report = check(&folder.path).expect("checked");
    clean(&report);
    assert_eq!(report.journal_operations, 0);
    let meta = Meta::open(&folder.path);
    let sessions: Vec<_> = meta.all(Table::System).into_iter().filter(|record| record.key[0] == 4).collect();
    let keys: Vec<&[u8]> = sessions.iter().map(|record| record.key.as_slice()).collect();
    let expected = [STAYS, OPENED].map(|id| bytes(StoreKey::Session { rank: RANK, id }));
    assert_eq!(keys, expected);
    let number = |value: &[u8], at| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    assert_eq!(number(&meta.value(StoreKey::Counter { rank: RANK }), 0), 4096 + 2 * 65_536);
    let position = number(&meta.value(StoreKey::Checkpoint { rank: RANK }), 0);
    let rank_0 = number(&meta.value(StoreKey::Checkpoint { rank: RankId(0) }), 0);
    let name = Ino::of_rank(RANK, ORPHAN).link_name();
    meta.value(StoreKey::head(Ino::orphans(RANK), meta.hash(&name), &name));
    meta.close();
    // Each rank goes on where its own journal ends.
    for (rank, position) in [(RANK, position), (RankId(0), rank_0)] {
        let disk = RealDisk::new(&folder.path);
        let journal = JournalFiles::open(disk, rank, Incarnation(99), LIMITS).expect("opens");
        let end = journal.read(Position(position), &mut |_, _| panic!("nothing is left")).expect("read");
        assert_eq!(end, Position(position));
    }
}

#[test]
fn flips_in_the_journal_of_rank_2_are_named_with_its_folder() {
    let (folder, begins) = two_ranks();
    let path = folder.path.join(SEGMENT);
    for begin in &begins[..3] {
        for byte in [0, 5, 9, 30] {
            flip(&path, 4096 + begin + byte, 3);
            let place = format!("{SEGMENT} at {:#x}", 4096 + begin);
            let report = finds(&folder.path, Kind::JournalEntryDamaged, &place);
            assert!(report.findings[0].detail.contains("after seq"), "{:?}", report.findings);
            let refused = repair(&folder.path, &RepairOptions::default());
            assert!(matches!(&refused, Err(FsckError::JournalDamaged { what, .. }) if what.contains(&place)));
            flip(&path, 4096 + begin + byte, 3);
        }
    }
    for offset in [0, 9, 17, 33, 40, 700, 4095] {
        flip(&path, offset, 5);
        finds(&folder.path, Kind::JournalHeaderDamaged, &format!("{SEGMENT} at 0x0"));
        flip(&path, offset, 5);
    }
    clean(&check(&folder.path).expect("checked"));
}

/// A directory moved from rank 2 to rank 0, which then made a file in it. Rank 0's journal is read first.
#[test]
fn what_a_rank_let_go_of_is_anothers() {
    let (folder, begins) = two_ranks();
    let before = check(&folder.path).expect("checked");
    let meta = Meta::open(&folder.path);
    let [stopped, tail_ends] = ends(&meta, &begins);
    let dir = meta.ino("d");
    let stored = meta.value(StoreKey::Header { dir, frag: Frag::WHOLE });
    let known = FragHeader::decode(&stored).expect("a header");
    let header = |version, entries| {
        let mut w = Writer::new();
        FragHeader { version, entries, ..known.clone() }.encode(&mut w);
        w.0
    };
    let [old, new] = [known.version, Version(known.version.0 + 9)];
    let file = |number: u64| {
        let ino = Ino(4096 + number);
        let core =
            InodeCore { ino, mode: 0o100_644, nlink: 1, change: 9, flags: BACKPTR, ..InodeCore::default() };
        let mut value = Writer::new();
        encode_primary(&core, None, &mut value);
        (ino, value.0)
    };
    let ((made, made_value), (gone, gone_value)) = (file(40), file(41));
    let [name, gone_name] = [&b"made later"[..], b"gone since"];
    let [hash, gone_hash] = [name, gone_name].map(|name| meta.hash(name));
    meta.close();
    // What is in the tables by now is another rank's doing: the file is gone.
    let before_seal = transaction(&[
        Mutation::PutDentry { dir, hash: gone_hash, version: old, name: gone_name, value: &gone_value },
        Mutation::PutHeader {
            dir,
            frag: Frag::WHOLE,
            version: old,
            newborn: false,
            header: &header(old, known.entries + 1),
        },
        Mutation::PutBackptr { ino: gone, version: 9, parent: dir, hash: gone_hash, name: gone_name },
    ]);
    let seal = transaction(&[Mutation::Sealed { id: MoveId(3), unit: Unit { dir, frag: Frag::WHOLE } }]);
    says(&folder, RANK, tail_ends, &[before_seal, seal]);
    clean(&check(&folder.path).expect("checked"));
    let later = transaction(&[
        Mutation::PutDentry { dir, hash, version: new, name, value: &made_value },
        Mutation::PutHeader {
            dir,
            frag: Frag::WHOLE,
            version: new,
            newborn: false,
            header: &header(new, known.entries + 1),
        },
        Mutation::PutBackptr { ino: made, version: 9, parent: dir, hash, name },
    ]);
    says(&folder, RankId(0), stopped, &[later]);
    let report = check(&folder.path).expect("checked");
    clean(&report);
    assert_eq!(report.files, before.files + 1);
    put_stranger(&folder.path);
    clean(&repair(&folder.path, &RepairOptions::default()).expect("repaired"));
    clean(&check(&folder.path).expect("checked"));
    let meta = Meta::open(&folder.path);
    assert_eq!(meta.value(StoreKey::head(dir, hash, name)), made_value);
    assert!(!meta.value(StoreKey::Backptr { ino: made }).is_empty());
    meta.close();
}

/// A file went from rank 2 to rank 0, which checkpointed that: the tables are newer than the journal of rank 2. Another one was even removed there.
#[test]
fn a_place_that_went_to_another_rank_is_the_tables() {
    for committed in [false, true] {
        let (folder, begins) = two_ranks();
        let meta = Meta::open(&folder.path);
        let [_, tail_ends] = ends(&meta, &begins);
        let (ino, parent) = (meta.ino("renamed"), meta.ino("a"));
        let removed = Ino::of_rank(RANK, ORPHAN + 1);
        let stored = meta.value(StoreKey::Backptr { ino });
        let version = u64::from_le_bytes(stored[..8].try_into().expect("8 bytes")) - 1;
        let hash = meta.hash(b"before");
        meta.close();
        let content = [7; 3000];
        let redo = |ino| {
            let file = FileId { ino, generation: 0 };
            Mutation::DataRedo { file, truncate_seq: 900, write_seq: 1 << 40, data: &content }
        };
        let here = transaction(&[
            Mutation::PutBackptr { ino, version, parent, hash, name: b"before" },
            Mutation::PutBackptr { ino: removed, version: 9, parent, hash, name: b"before" },
        ]);
        let synced = transaction(&[redo(ino), redo(removed)]);
        let mut left = Writer::new();
        put_left(&[ino, removed].map(|ino| Left { ino, parent, hash }), &mut left);
        let id = TxnId(5);
        let mut gone = vec![Mutation::Resolved { id, left: &left.0 }];
        if committed {
            // Rank 2 leads it, and it is over everywhere.
            let (decided, nobody) = (&[0; 4], &[0; 4]);
            gone = vec![
                Mutation::Committed { id, decided, left: &left.0 },
                Mutation::Resolved { id, left: nobody },
            ];
        }
        says(&folder, RANK, tail_ends, &[here, synced, transaction(&gone)]);
        clean(&check(&folder.path).expect("checked"));
        let data = || {
            let names = fs::read_dir(folder.path.join("data")).expect("dir");
            names.map(|entry| entry.expect("entry").file_name()).collect::<BTreeSet<_>>()
        };
        let before = data();
        put_stranger(&folder.path);
        clean(&repair(&folder.path, &RepairOptions::default()).expect("repaired"));
        assert_eq!(data(), before, "nothing is written again");
        let meta = Meta::open(&folder.path);
        assert_eq!(meta.value(StoreKey::Backptr { ino }), stored);
        meta.close();
    }
}

/// Made and removed since the checkpoints: rank 0 has had its inode, and rank 2 its content. What broke: nobody could read what says so, and the
/// journal was taken for damaged.
#[test]
fn a_directory_that_two_ranks_have_removed_is_gone() {
    let (folder, begins) = two_ranks();
    let before = check(&folder.path).expect("checked");
    let meta = Meta::open(&folder.path);
    let [stopped, tail_ends] = ends(&meta, &begins);
    let stored = meta.value(StoreKey::Header { dir: Ino::ROOT, frag: Frag::WHOLE });
    let known = FragHeader::decode(&stored).expect("a header");
    let (name, ino) = (&b"gone since"[..], Ino(4096 + 40));
    let hash = meta.hash(name);
    meta.close();
    let (dir, frag, newborn) = (Ino::ROOT, Frag::WHOLE, false);
    let [made, gone] = [1, 2].map(|more| Version(known.version.0 + more));
    let header = |version, more| {
        let mut w = Writer::new();
        let (entries, subdirs) = (known.entries + more, known.subdirs + more);
        FragHeader { version, entries, subdirs, ..known.clone() }.encode(&mut w);
        w.0
    };
    let core = InodeCore { ino, mode: 0o040_755, nlink: 1, change: 9, ..InodeCore::default() };
    let (mut value, mut empty) = (Writer::new(), Writer::new());
    encode_primary(&core, None, &mut value);
    FragHeader { version: Version(1), change: 1, ..FragHeader::default() }.encode(&mut empty);
    let [makes, removes] = [
        [
            Mutation::PutDentry { dir, hash, version: made, name, value: &value.0 },
            Mutation::PutHeader { dir, frag, version: made, newborn, header: &header(made, 1) },
            Mutation::PutBackptr { ino, version: 9, parent: dir, hash, name },
        ],
        [
            Mutation::DelDentry { dir, hash, version: gone, name },
            Mutation::PutHeader { dir, frag, version: gone, newborn, header: &header(gone, 0) },
            Mutation::DelPlace { ino, version: 10 },
        ],
    ]
    .map(|mutations| transaction(&mutations));
    let version = Version(1);
    let begins = Mutation::PutHeader { dir: ino, frag, version, newborn, header: &empty.0 };
    says(&folder, RankId(0), stopped, &[makes, removes]);
    says(
        &folder,
        RANK,
        tail_ends,
        &[[begins], [Mutation::DelContent { dir: ino }]].map(|one| transaction(&one)),
    );
    let report = check(&folder.path).expect("checked");
    clean(&report);
    assert_eq!((report.directories, report.files), (before.directories, before.files));
    put_stranger(&folder.path);
    clean(&repair(&folder.path, &RepairOptions::default()).expect("repaired"));
    clean(&check(&folder.path).expect("checked"));
}

/// Only the rank has a use for it.
#[test]
fn what_nobody_may_have_heard_is_read() {
    let (folder, begins) = two_ranks();
    let meta = Meta::open(&folder.path);
    let [_, tail_ends] = ends(&meta, &begins);
    meta.close();
    let moved = Moved { unit: Unit { dir: Ino::ROOT, frag: Frag::WHOLE }, slot: 0 };
    let said = [When::Now, When::Transaction(TxnId(5)), When::Move(MoveId(3), moved)];
    let list = &[0; 4];
    let said = said.map(|when| transaction(&[Mutation::Unheard { when, list }]));
    says(&folder, RANK, tail_ends, &said);
    clean(&check(&folder.path).expect("checked"));
}

/// Rank 0 has decided a transaction that rank 2 has not carried out. What of the folder is damaged keeps a server from ending it.
#[test]
fn damage_is_named_while_a_transaction_is_not_over() {
    let (folder, begins) = two_ranks();
    let meta = Meta::open(&folder.path);
    let [stopped, _] = ends(&meta, &begins);
    meta.close();
    let nothing = &[0; 4];
    let committed = Mutation::Committed { id: TxnId(5), decided: nothing, left: nothing };
    says(&folder, RankId(0), stopped, &[transaction(&[committed])]);
    let undecided = |outcome: Result<Report, FsckError>| match outcome {
        Err(FsckError::Undecided { count: 1, report, .. }) => *report,
        other => panic!("{other:#?}"),
    };
    let checked = || undecided(check(&folder.path));
    let repaired = || undecided(repair(&folder.path, &RepairOptions::default()));
    let kinds = |findings: &[fsck::Finding]| findings.iter().map(|f| f.kind).collect::<Vec<_>>();
    clean(&checked());
    assert_eq!(repaired(), checked(), "nothing to do");
    let incarnation = folder.path.join("pando.incarnation");
    flip(&incarnation, 3, 1);
    let meta = Meta::open(&folder.path);
    let key = StoreKey::Checkpoint { rank: RANK };
    let (home, checkpoint) = (meta.home(Ino::SYSTEM.0), meta.stored(key));
    // More than one bit, so that it cannot be turned back: replay then starts where the journal does.
    let bad: Vec<u8> = checkpoint.iter().map(|byte| byte ^ 1).collect();
    meta.put_raw(home, Table::System, &bytes(key), &bad);
    // A name here, and not yet there: that is no damage, and nobody's to mend before the transaction is over.
    let renamed = meta.named("renamed");
    meta.delete_at(renamed.environment, Table::Dentry, &renamed.key);
    meta.close();
    assert_eq!(kinds(&checked().findings), [Kind::IncarnationDamaged, Kind::ValueDamaged]);
    let report = repaired();
    clean(&report);
    assert_eq!(kinds(&report.fixed), [Kind::IncarnationDamaged, Kind::ValueDamaged]);
    let meta = Meta::open(&folder.path);
    let position = CheckpointRecord::decode(&meta.value(key)).expect("a checkpoint").position;
    assert_eq!(position, Position(0), "where the journal begins");
    assert_eq!(
        CheckpointRecord::decode(&meta.value(StoreKey::Checkpoint { rank: RankId(0) }))
            .expect("a checkpoint")
            .position,
        stopped,
        "nothing was folded in"
    );
    meta.close();
    // A map of one rank would end it never: what else is wrong is told, and left alone.
    let map = folder.path.join("cluster/map");
    flip(&map, 40, 1);
    let report = repaired();
    assert_eq!(kinds(&report.findings), [Kind::RegistryDamaged]);
    assert!(!report.is_changed());
    flip(&map, 40, 1);
    clean(&checked());
}

#[test]
fn a_journal_that_is_cut_off_goes_on_empty_in_its_own_folder() {
    let (folder, begins) = two_ranks();
    flip(&folder.path.join(SEGMENT), 4096 + begins[1] + 9, 3);
    let options = RepairOptions { cut_damaged_journal: true };
    clean(&repair(&folder.path, &options).expect("repaired"));
    clean(&check(&folder.path).expect("checked"));
    let names: Vec<_> = fs::read_dir(folder.path.join("journal/0002"))
        .expect("dir")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["00000002"], "the old segment is gone, the new one goes on behind it");
    let journal = JournalFiles::open(RealDisk::new(&folder.path), RANK, Incarnation(99), LIMITS);
    assert_eq!(journal.expect("opens").segments()[0].header.rank, RANK);
}

#[test]
fn a_journal_that_is_gone_is_missed() {
    let (folder, _) = two_ranks();
    fs::remove_dir_all(folder.path.join("journal/0002")).expect("removed");
    finds(&folder.path, Kind::JournalBeforeCheckpoint, "journal/0002");
    // Rank 0's own segment there is a header of another rank.
    let (folder, _) = two_ranks();
    fs::copy(folder.path.join("journal/00000001"), folder.path.join(SEGMENT)).expect("copied");
    finds(&folder.path, Kind::JournalHeaderDamaged, &format!("{SEGMENT} at 0x0"));
}

/// Of numbers that a session gives out by itself others may have higher ones when it loses some to a crash.
#[test]
fn data_of_numbers_that_a_session_has_is_what_a_crash_left() {
    for (number, harmless) in
        [(RECORDED + 9, true), (JOURNALED, true), (RECORDED + 10, false), (JOURNALED - 1, false)]
    {
        let (folder, _) = two_ranks();
        let data =
            DataFiles::open(RealDisk::new(&folder.path), 65_536, Limits::default()).expect("data store");
        let file = FileId { ino: Ino::of_rank(RANK, number), generation: 0 };
        let payload = Payload::Owned(vec![7; 70_000]);
        data.run(&DataOp::Write { file, cut: Cut::default(), offset: 0, data: payload }).expect("written");
        data.run(&DataOp::SyncAll).expect("synced");
        drop(data);
        let report = check(&folder.path).expect("checked");
        let leaked = |found: &fsck::Finding| found.kind == Kind::DataLeaked;
        assert_eq!(report.findings.iter().any(leaked), !harmless, "{number}: {:#?}", report.findings);
        assert_eq!(report.notes.iter().any(leaked), harmless, "{number}: {:#?}", report.notes);
    }
}

#[test]
fn flips_in_the_cluster_map_are_named() {
    let (folder, _) = two_ranks();
    let path = folder.path.join("cluster/map");
    let len = fs::metadata(&path).expect("there").len();
    for offset in 0..len {
        flip(&path, offset, (offset % 8) as u8);
        let report = check(&folder.path).expect("checked");
        flip(&path, offset, (offset % 8) as u8);
        let named =
            |f: &fsck::Finding| f.kind == Kind::RegistryDamaged && f.place.starts_with("cluster/map at 0x");
        assert!(report.findings.iter().any(named), "{offset:#x}: {:#?}", report.findings);
    }
    clean(&check(&folder.path).expect("checked"));
}

/// Writes this map, rightly sealed, and has it checked.
fn with_map(folder: &Folder, version: u64, map: &[u8]) -> Report {
    let file = store::registry::encode(version, map).expect("short enough");
    fs::write(folder.path.join("cluster/map"), file).expect("written");
    check(&folder.path).expect("checked")
}

#[test]
fn a_map_that_contradicts_itself_is_named_where_it_does() {
    let (folder, _) = two_ranks();
    let whole = map().encode();
    clean(&with_map(&folder, 1, &whole));
    let placed = ClusterMap { hash_placement: true, slots_used: true, ..map() };
    clean(&with_map(&folder, 1, &placed.encode()));
    let mut later = whole.clone();
    later.extend_from_slice(&[9, 1, 0, 0, 0, 7]);
    clean(&with_map(&folder, 1, &later));
    let weights = [(RankId(0), 50), (RANK, 300)].into();
    let weighed = ClusterMap { weights, ..map() }.encode();
    clean(&with_map(&folder, 1, &weighed));
    // The server's own check is of the same mind about each of these.
    let mut wrong = 0;
    let added = whole.len()..weighed.len();
    for (of, at) in (0..whole.len()).map(|at| (&whole, at)).chain(added.map(|at| (&weighed, at))) {
        for bit in [0, 2, 7] {
            let mut bad = of.clone();
            bad[at] ^= 1 << bit;
            let report = with_map(&folder, 1, &bad);
            let version_differs = (6..14).contains(&at);
            assert_eq!(
                report.findings.iter().any(|f| {
                    matches!(f.kind, Kind::ClusterMapUnreadable | Kind::ClusterMapWrong)
                        && f.place.starts_with("cluster/map")
                }),
                ClusterMap::decode(&bad).is_err() || version_differs,
                "byte {at} bit {bit}: {:?} {:#?}",
                ClusterMap::decode(&bad),
                report.findings
            );
            wrong += u32::from(!report.is_clean());
        }
    }
    assert!(wrong > 100, "{wrong}");
    for len in 0..whole.len() {
        assert!(!with_map(&folder, 1, &whole[..len]).is_clean(), "cut at {len}");
    }
    let mut rootless = map();
    rootless.entries = Arc::default();
    let report = with_map(&folder, 1, &rootless.encode());
    assert_eq!(report.findings[0].kind, Kind::ClusterMapWrong);
    assert_eq!(report.findings[0].detail, "the root directory has no entry");
    let report = with_map(&folder, 2, &whole);
    assert_eq!(
        report.findings[0].to_string(),
        "C03 cluster/map: the cluster map contradicts itself (version 1, in a record of version 2)"
    );
}

#[test]
fn a_map_that_is_lost_is_made_anew_behind_all_numbers() {
    let (folder, _) = two_ranks();
    let meta = Meta::open(&folder.path);
    // Placed by slots: a rank asks about such directories only if the map says that there are any.
    meta.edit("b", |inode| inode.core.flags |= SLOTS);
    meta.close();
    let path = folder.path.join("cluster/map");
    for harm in [|path: &Path| fs::remove_file(path).expect("removed"), |path: &Path| flip(path, 40, 1)] {
        harm(&path);
        let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
        assert!(report.is_clean() && report.is_changed(), "{report:#?}");
        clean(&check(&folder.path).expect("checked"));
        let registry = RegistryFiles::open(RealDisk::new(&folder.path)).expect("opened");
        let record = registry.read(MAP).expect("read").expect("there");
        let map = ClusterMap::decode(&record.bytes).expect("a map");
        assert_eq!((map.version, map.max_mds), (record.version, 1));
        assert!(map.last_incarnation >= Incarnation(9) && map.last_move.0 > 1 << 40);
        assert!(map.made.has(RANK), "its orphans are still there");
        assert!(!map.ranks.contains_key(&RANK));
        assert!(map.slots_used && !map.hash_placement);
    }
}

/// What `ensure_rank` leaves when it is stopped half-way is no error, and gone after a repair.
#[test]
fn a_rank_that_is_being_made_is_no_error() {
    let folder = stopped();
    // That of its server, with one rank.
    std::fs::remove_file(folder.path.join("cluster/map")).expect("removed");
    let opened = folder::Folder::open(&folder.path).expect("opened");
    opened.allow_ranks().expect("noted");
    let registry = RegistryFiles::open(RealDisk::new(&folder.path)).expect("opened");
    registry.swap(MAP, 0, &ClusterMap::first().encode()).expect("written");
    let meta = opened.open_meta().expect("meta");
    let seed = opened.record().hash_seed;
    ensure_rank(&meta, &seed, RankId(1), Wall(1)).expect("made");
    drop((meta, opened));
    clean(&check(&folder.path).expect("checked"));
    let meta = Meta::open(&folder.path);
    let name = b"orphans-1";
    meta.delete(StoreKey::head(Ino::SYSTEM, meta.hash(name), name));
    meta.close();
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
    let kinds: Vec<Kind> = report.notes.iter().map(|note| note.kind).collect();
    assert_eq!(kinds, [Kind::BackptrDangling, Kind::HeaderOrphaned]);
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.tidied == 2, "{report:#?}");
    let opened = folder::Folder::open(&folder.path).expect("opened");
    let meta = opened.open_meta().expect("meta");
    ensure_rank(&meta, &seed, RankId(1), Wall(1)).expect("made again");
    drop((meta, opened));
    clean(&check(&folder.path).expect("checked"));
}

#[test]
fn what_a_rank_needs_and_has_lost_is_made_again() {
    let (folder, _) = two_ranks();
    let meta = Meta::open(&folder.path);
    let name = b"orphans-2";
    meta.delete(StoreKey::head(Ino::SYSTEM, meta.hash(name), name));
    meta.close();
    finds(&folder.path, Kind::SystemDirectoryMissing, "inode 102");
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.is_changed(), "{report:#?}");
    clean(&check(&folder.path).expect("checked"));
}

#[test]
fn a_counter_of_rank_2_that_is_behind_is_raised() {
    let (folder, _) = two_ranks();
    // So that only the tables speak.
    put_stranger(&folder.path);
    repair(&folder.path, &RepairOptions::default()).expect("repaired");
    let meta = Meta::open(&folder.path);
    let position = meta.value(StoreKey::Checkpoint { rank: RANK })[..8].to_vec();
    meta.put(StoreKey::Counter { rank: RANK }, &4097_u64.to_le_bytes());
    meta.put(StoreKey::Checkpoint { rank: RANK }, &[position, 4097_u64.to_le_bytes().to_vec()].concat());
    meta.close();
    finds(&folder.path, Kind::CounterBehind, "inode counter of rank 2");
    clean(&repair(&folder.path, &RepairOptions::default()).expect("repaired"));
    clean(&check(&folder.path).expect("checked"));
}
