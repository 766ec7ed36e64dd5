//! The faults, each made by hand, and what a repair is to make of them.
//!
//! Absent: whether they are found (`corruptions.rs`).

use crate::common::{Folder, Meta, crashed, encode, flip, stopped};
use fsck::Kind;
use proto::cluster::ClusterMap;
use proto::dentry::DentryValue;
use proto::inode::InodeExt;
use proto::journal::{TxnCluster, begin_entry, end_entry, put_transaction, read_entry};
use proto::storeio::{DataOp, StoreKey, Table};
use proto::{FileKind, Frag, Ino, NameHash, Position, RankId, SessionId, SnapId, Writer};
use std::fs;
use std::path::{Path, PathBuf};
use stdx::Wall;
use store::data::{DataFiles, Limits};
use store::disk_real::RealDisk;

const SYSTEM: Ino = Ino::SYSTEM;

const ORPHANS: Ino = Ino(0x100);

/// What a repair is to make of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// All is well again.
    Clean,
    /// Only when the loss of journaled operations is allowed.
    Cut,
    /// It stays as it is.
    Left,
    /// It is refused as a whole.
    Refused,
}

pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) after: After,
    pub(crate) on: fn() -> Folder,
    pub(crate) harm: fn(&Path),
}

fn case(kind: Kind, harm: fn(&Path)) -> Case {
    Case { kind, after: After::Clean, on: stopped, harm }
}

fn header(dir: Ino) -> StoreKey<'static> {
    StoreKey::Header { dir, frag: Frag::WHOLE }
}

pub(crate) fn with_meta(dir: &Path, harm: impl FnOnce(&Meta)) {
    let meta = Meta::open(dir);
    harm(&meta);
    meta.close();
}

/// The first file of a folder whose name has this start.
fn file_of(dir: &Path, start: &str) -> PathBuf {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).expect("dir").map(|e| e.expect("entry").path()).collect();
    paths.sort();
    let is = |path: &&PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(start));
    paths.iter().find(is).cloned().expect("the file is there")
}

fn block(dir: &Path) -> PathBuf {
    let mut folders = fs::read_dir(dir.join("data/blk")).expect("dir").map(|e| e.expect("entry").path());
    let folder = folders.find(|folder| fs::read_dir(folder).expect("dir").next().is_some());
    file_of(&folder.expect("blocks"), "0")
}

fn move_dentry(meta: &Meta, name: &str, to: StoreKey<'_>) {
    let record = meta.named(name);
    meta.delete_at(record.environment, Table::Dentry, &record.key);
    meta.put(to, &record.value);
}

fn copy_dentry(meta: &Meta, name: &str, dir: Ino, new: &str) {
    let record = meta.named(name);
    meta.put(StoreKey::head(dir, meta.hash(new.as_bytes()), new.as_bytes()), &record.value);
}

pub(crate) fn count(meta: &Meta, dir: Ino, entries: i64, subdirs: i64) {
    meta.edit_header(dir, |header| {
        header.entries = header.entries.saturating_add_signed(entries);
        header.subdirs = header.subdirs.saturating_add_signed(subdirs);
    });
}

fn drop_name(meta: &Meta, name: &str) {
    let record = meta.named(name);
    let dir = Ino(u64::from_be_bytes(record.key[..8].try_into().expect("8 bytes")));
    meta.delete_at(record.environment, Table::Dentry, &record.key);
    count(meta, dir, -1, 0);
}

/// Adds a section to the record of a file.
fn with_ext(meta: &Meta, name: &str, change: impl FnOnce(&mut InodeExt)) {
    meta.edit(name, |inode| change(inode.ext.get_or_insert_default()));
}

fn dir_of(meta: &Meta, name: &str) -> Ino {
    meta.ino(name)
}

/// Appends an entry with a mutation of no format to the last segment.
fn strange_mutation(dir: &Path) {
    let path = file_of(&dir.join("journal"), "00000003");
    let mut bytes = fs::read(&path).expect("read");
    let start = u64::from_le_bytes(bytes[34..42].try_into().expect("8 bytes"));
    let mut at = 4096;
    while let Ok(entry) = read_entry(&bytes[at..], Position(start + at as u64 - 4096)) {
        at += entry.len;
    }
    let position = Position(start + at as u64 - 4096);
    let mut w = Writer::new();
    let entry = begin_entry(&mut w, position, position);
    put_transaction(&mut w, Wall(1), None, TxnCluster::default());
    w.u8(31).u64(1);
    end_entry(&mut w, entry);
    bytes[at..at + w.len()].copy_from_slice(&w.0);
    fs::write(&path, bytes).expect("write");
}

/// Makes the data store write an index file.
fn index(dir: &Path) -> PathBuf {
    let limits = Limits { index_tail_bytes: 1, ..Limits::default() };
    let data = DataFiles::open(RealDisk::new(dir), 65_536, limits).expect("data store");
    data.run(&DataOp::SyncAll).expect("sync");
    drop(data);
    file_of(&dir.join("data"), "index-")
}

fn shorten(path: &Path, by: u64) {
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_len(file.metadata().expect("metadata").len() - by).expect("length");
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = folder_and_journal();
    cases.extend(cluster());
    cases.extend(records());
    cases.extend(inodes());
    cases.extend(directories());
    cases.extend(links());
    cases.extend(system());
    cases.extend(data());
    cases
}

/// The map of a file system with one rank, as its file has it.
fn map(dir: &Path, version: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let mut map = ClusterMap::first().encode();
    change(&mut map);
    fs::create_dir_all(dir.join("cluster")).expect("made");
    let file = store::registry::encode(version, &map).expect("short enough");
    fs::write(dir.join("cluster/map"), file).expect("written");
}

fn cluster() -> Vec<Case> {
    vec![
        case(Kind::RegistryDamaged, |dir| {
            map(dir, 1, |_| {});
            flip(&dir.join("cluster/map"), 40, 3);
        }),
        case(Kind::ClusterMapUnreadable, |dir| map(dir, 1, |map| map[0] = 7)),
        case(Kind::ClusterMapWrong, |dir| map(dir, 2, |_| {})),
        case(Kind::ClusterMapMissing, |dir| {
            std::fs::remove_file(dir.join("cluster/map")).expect("its server's");
            store::folder::Folder::open(dir).expect("opened").allow_ranks().expect("written");
        }),
        case(Kind::RanksUndeclared, |dir| {
            let folder = store::folder::Folder::open(dir).expect("opened");
            let meta = folder.open_meta().expect("meta");
            let seed = folder.record().hash_seed;
            store::initial::ensure_rank(&meta, &seed, RankId(1), Wall(1)).expect("made");
        }),
    ]
}

fn folder_and_journal() -> Vec<Case> {
    let on_crashed = |kind, after, harm| Case { kind, after, on: crashed, harm };
    vec![
        case(Kind::IncarnationDamaged, |dir| flip(&dir.join("pando.incarnation"), 3, 1)),
        Case {
            after: After::Refused,
            ..case(Kind::EnvironmentUnreadable, |dir| {
                fs::remove_file(dir.join("meta/env-01.mdb")).expect("removed");
            })
        },
        on_crashed(Kind::JournalEntryDamaged, After::Cut, |dir| flip(&dir.join("journal/00000001"), 4500, 2)),
        on_crashed(Kind::JournalSegmentMissing, After::Cut, |dir| {
            fs::remove_file(dir.join("journal/00000002")).expect("removed");
        }),
        on_crashed(Kind::JournalHeaderDamaged, After::Clean, |dir| {
            flip(&dir.join("journal/00000002"), 30, 0)
        }),
        on_crashed(Kind::JournalMutationUnknown, After::Cut, strange_mutation),
        Case {
            after: After::Cut,
            ..case(Kind::JournalBeforeCheckpoint, |dir| {
                with_meta(dir, |meta| {
                    let key = StoreKey::Checkpoint { rank: RankId(0) };
                    let next = u64::from_le_bytes(meta.value(key)[8..].try_into().expect("8 bytes"));
                    meta.put(key, &[(1_u64 << 20).to_le_bytes(), next.to_le_bytes()].concat());
                });
            })
        },
        on_crashed(Kind::JournalBeforeCheckpoint, After::Cut, |dir| {
            fs::remove_file(dir.join("journal/00000001")).expect("removed");
        }),
        // The tables hold what the bad entry says, and the entries behind it lead to the checkpoint.
        case(Kind::JournalBeforeCheckpoint, |dir| flip(&dir.join("journal/00000001"), 4200, 2)),
        case(Kind::CheckpointUnreadable, |dir| {
            with_meta(dir, |meta| meta.put(StoreKey::Checkpoint { rank: RankId(0) }, b"no"));
        }),
    ]
}

fn records() -> Vec<Case> {
    vec![
        case(Kind::ValueDamaged, |dir| {
            with_meta(dir, |meta| {
                let record = meta.named("small");
                let mut stored = [&[0; 4][..], &record.value].concat();
                stored[9] ^= 0x55;
                meta.put_raw(record.environment, Table::Dentry, &record.key, &stored);
            });
        }),
        case(Kind::KeyInvalid, |dir| with_meta(dir, |meta| meta.put_at(0, Table::Dentry, b"short", b""))),
        case(Kind::NameInvalid, |dir| {
            with_meta(dir, |meta| {
                let to = StoreKey::head(dir_of(meta, "a"), meta.hash(b"x/y"), b"x/y");
                move_dentry(meta, "small", to);
            });
        }),
        case(Kind::HashWrong, |dir| {
            with_meta(dir, |meta| {
                let hash = NameHash(meta.hash(b"small").0 ^ 1);
                move_dentry(meta, "small", StoreKey::head(dir_of(meta, "a"), hash, b"small"));
            });
        }),
        case(Kind::DentryUnreadable, |dir| {
            with_meta(dir, |meta| meta.rewrite(&meta.named("symlink"), &[9, 9]));
        }),
        case(Kind::InodeUnreadable, |dir| {
            with_meta(dir, |meta| meta.rewrite(&meta.named("fifo"), &[1, 1, 104, 0, 0, 0, 7]));
        }),
        case(Kind::SnapshotUnknown, |dir| {
            with_meta(dir, |meta| {
                let record = meta.named("small");
                let hash = meta.hash(b"small");
                let dir = dir_of(meta, "a");
                let key = StoreKey::Dentry { dir, hash, name: b"small", snap: SnapId(7) };
                meta.put(key, &record.value);
            });
        }),
        case(Kind::EnvironmentWrong, |dir| {
            with_meta(dir, |meta| {
                let record = meta.named("small");
                meta.delete_at(record.environment, Table::Dentry, &record.key);
                let other = (record.environment + 1) % usize::from(crate::common::ENVIRONMENTS);
                meta.put_at(other, Table::Dentry, &record.key, &record.value);
            });
        }),
    ]
}

fn inodes() -> Vec<Case> {
    vec![
        case(Kind::InodeNumberInvalid, |dir| {
            with_meta(dir, |meta| meta.edit("fifo", |inode| inode.core.ino = Ino(77)));
        }),
        case(Kind::TypeInvalid, |dir| {
            with_meta(dir, |meta| meta.edit("small", |inode| inode.core.mode = 0o030_644));
        }),
        case(Kind::TypeInvalid, |dir| {
            with_meta(dir, |meta| meta.edit("b", |inode| inode.core.mode = 0o030_755));
        }),
        case(Kind::SizeInvalid, |dir| {
            with_meta(dir, |meta| meta.edit("large", |inode| inode.core.size |= 1 << 63));
        }),
        case(Kind::FlagsUnknown, |dir| {
            with_meta(dir, |meta| meta.edit("small", |inode| inode.core.flags |= 1 << 20));
        }),
        case(Kind::SymlinkWithoutTarget, |dir| {
            with_meta(dir, |meta| meta.edit("symlink", |inode| inode.ext = None));
        }),
        case(Kind::TargetOnNonSymlink, |dir| {
            with_meta(dir, |meta| with_ext(meta, "small", |ext| ext.symlink = Some(b"x"[..].into())));
        }),
        case(Kind::XattrsInvalid, |dir| {
            with_meta(dir, |meta| with_ext(meta, "xattrs", |ext| ext.xattrs.reverse()));
        }),
        case(Kind::DeviceOnNonDevice, |dir| {
            with_meta(dir, |meta| with_ext(meta, "small", |ext| ext.rdev = 5));
        }),
        case(Kind::PlainFileNlink, |dir| {
            with_meta(dir, |meta| meta.edit("small", |inode| inode.core.nlink = 2));
        }),
        case(Kind::InodeTwice, |dir| {
            with_meta(dir, |meta| {
                let to = dir_of(meta, "d");
                copy_dentry(meta, "renamed", dir_of(meta, "a"), "copy");
                count(meta, dir_of(meta, "a"), 1, 0);
                assert_ne!(to, dir_of(meta, "a"));
            });
        }),
    ]
}

fn directories() -> Vec<Case> {
    vec![
        case(Kind::HeaderUnreadable, |dir| {
            with_meta(dir, |meta| meta.put(header(dir_of(meta, "a")), &[1, 9, 0, 0, 0]));
        }),
        case(Kind::HeaderMissing, |dir| with_meta(dir, |meta| meta.delete(header(dir_of(meta, "d"))))),
        case(Kind::HeaderVersionZero, |dir| {
            with_meta(dir, |meta| meta.edit_header(dir_of(meta, "d"), |h| h.version.0 = 0));
        }),
        case(Kind::HeaderOrphaned, |dir| {
            with_meta(dir, |meta| {
                let value = meta.value(header(dir_of(meta, "c")));
                meta.put(header(Ino(999_999)), &value);
            });
        }),
        case(Kind::EntriesWrong, |dir| with_meta(dir, |meta| count(meta, dir_of(meta, "a"), 3, 0))),
        case(Kind::SubdirsWrong, |dir| with_meta(dir, |meta| count(meta, dir_of(meta, "a"), 0, 1))),
        case(Kind::Unreachable, |dir| {
            with_meta(dir, |meta| {
                let record = meta.named("b");
                meta.delete_at(record.environment, Table::Dentry, &record.key);
                count(meta, dir_of(meta, "a"), -1, -1);
            });
        }),
        case(Kind::Loop, |dir| {
            with_meta(dir, |meta| {
                let (a, c) = (dir_of(meta, "a"), dir_of(meta, "c"));
                move_dentry(meta, "a", StoreKey::head(c, meta.hash(b"a"), b"a"));
                count(meta, Ino::ROOT, -1, -1);
                count(meta, c, 1, 1);
                assert_ne!(a, c);
            });
        }),
        case(Kind::BackptrUnreadable, |dir| {
            with_meta(dir, |meta| meta.put(StoreKey::Backptr { ino: dir_of(meta, "a") }, b"no"));
        }),
        case(Kind::BackptrMissing, |dir| {
            with_meta(dir, |meta| meta.delete(StoreKey::Backptr { ino: dir_of(meta, "b") }));
        }),
        case(Kind::BackptrWrong, |dir| {
            with_meta(dir, |meta| {
                let other = meta.value(StoreKey::Backptr { ino: dir_of(meta, "b") });
                meta.put(StoreKey::Backptr { ino: meta.ino("renamed") }, &other);
            });
        }),
        case(Kind::BackptrDangling, |dir| {
            with_meta(dir, |meta| {
                let other = meta.value(StoreKey::Backptr { ino: dir_of(meta, "b") });
                meta.put(StoreKey::Backptr { ino: Ino(999_999) }, &other);
            });
        }),
    ]
}

pub(crate) fn linked(meta: &Meta) -> String {
    format!("{:016x}", meta.ino("name1").0)
}

fn links() -> Vec<Case> {
    vec![
        case(Kind::RemoteDangling, |dir| with_meta(dir, |meta| drop_name(meta, &linked(meta)))),
        case(Kind::RemoteTypeWrong, |dir| {
            with_meta(dir, |meta| {
                let value = DentryValue::Remote { ino: meta.ino("name1"), kind: FileKind::Fifo };
                meta.rewrite(&meta.named("name1"), &encode(&value));
            });
        }),
        case(Kind::LinkCountWrong, |dir| {
            with_meta(dir, |meta| meta.edit(&linked(meta), |inode| inode.core.nlink = 5));
        }),
        case(Kind::LinkListWrong, |dir| {
            with_meta(dir, |meta| with_ext(meta, &linked(meta), |ext| ext.links[0].1.0 ^= 1));
        }),
        case(Kind::LinkWithoutNames, |dir| {
            with_meta(dir, |meta| {
                drop_name(meta, "name1");
                drop_name(meta, "name2");
            });
        }),
        case(Kind::OrphanNamed, |dir| {
            with_meta(dir, |meta| {
                let orphan = orphan(meta);
                meta.edit(&orphan, |inode| inode.core.nlink = 1);
            });
        }),
        case(Kind::SystemNameWrong, |dir| {
            with_meta(dir, |meta| {
                let wrong = StoreKey::head(Ino::LINKS, meta.hash(b"wrong"), b"wrong");
                move_dentry(meta, &linked(meta), wrong);
            });
        }),
        case(Kind::SystemDirectoryStranger, |dir| {
            with_meta(dir, |meta| {
                let name = format!("{:016x}", dir_of(meta, "c").0);
                let to = StoreKey::head(ORPHANS, meta.hash(name.as_bytes()), name.as_bytes());
                move_dentry(meta, "c", to);
                count(meta, dir_of(meta, "b"), -1, -1);
                count(meta, ORPHANS, 1, 1);
            });
        }),
    ]
}

/// The name of the sample's nameless file.
fn orphan(meta: &Meta) -> String {
    let all = meta.all(Table::Dentry).into_iter();
    let mut orphans = all.filter(|r| r.key[..8] == ORPHANS.0.to_be_bytes() && r.key[8..16] != [0; 8]);
    let key = orphans.next().expect("an orphan").key;
    String::from_utf8(key[16..32].to_vec()).expect("hex")
}

fn system() -> Vec<Case> {
    vec![
        case(Kind::CounterBehind, |dir| {
            with_meta(dir, |meta| {
                meta.put(StoreKey::Counter { rank: RankId(0) }, &4097_u64.to_le_bytes());
                let key = StoreKey::Checkpoint { rank: RankId(0) };
                let position = meta.value(key)[..8].to_vec();
                meta.put(key, &[&position[..], &4097_u64.to_le_bytes()].concat());
            });
        }),
        case(Kind::CounterUnreadable, |dir| {
            with_meta(dir, |meta| meta.put(StoreKey::Counter { rank: RankId(0) }, b"no"));
        }),
        case(Kind::SystemDirectoryMissing, |dir| {
            with_meta(dir, |meta| {
                let record = meta.named("links");
                meta.delete_at(record.environment, Table::Dentry, &record.key);
                count(meta, SYSTEM, -1, -1);
            });
        }),
        case(Kind::SessionUnreadable, |dir| {
            with_meta(dir, |meta| meta.put(StoreKey::Session { rank: RankId(0), id: SessionId(9) }, b"no"));
        }),
        case(Kind::SystemKeyUnknown, |dir| {
            with_meta(dir, |meta| {
                meta.put_at(meta.home(3), Table::System, &[&[9][..], &[0; 8]].concat(), b"");
            });
        }),
    ]
}

fn data() -> Vec<Case> {
    let left = |kind, harm| Case { after: After::Left, ..case(kind, harm) };
    vec![
        case(Kind::DataStateDamaged, |dir| flip(&dir.join("data/state"), 20, 3)),
        case(Kind::DataStateDamaged, |dir| fs::remove_file(dir.join("data/state")).expect("removed")),
        case(Kind::DataIndexDamaged, |dir| flip(&index(dir), 80, 3)),
        case(Kind::DataIndexDamaged, |dir| fs::remove_file(index(dir)).expect("removed")),
        case(Kind::DataSegmentHeaderDamaged, |dir| flip(&file_of(&dir.join("data"), "seg-"), 3, 3)),
        left(Kind::DataRecordDamaged, |dir| flip(&file_of(&dir.join("data"), "seg-"), 140, 3)),
        left(Kind::DataRecordDamaged, |dir| {
            index(dir);
            flip(&file_of(&dir.join("data"), "seg-"), 140, 3);
        }),
        left(Kind::DataRecordMissing, |dir| {
            index(dir);
            let path = file_of(&dir.join("data"), "seg-");
            shorten(&path, fs::metadata(&path).expect("metadata").len() - 100);
        }),
        left(Kind::DataSegmentMissing, |dir| {
            fs::remove_file(file_of(&dir.join("data"), "seg-")).expect("removed");
        }),
        left(Kind::BlockHeaderDamaged, |dir| {
            flip(&block(dir), 10, 3);
            flip(&block(dir), 530, 3);
        }),
        left(Kind::BlockInvalid, |dir| {
            let block = block(dir);
            fs::copy(&block, block.with_extension("fff")).expect("copied");
            fs::rename(&block, block.with_extension("0.old")).expect("renamed");
        }),
        case(Kind::DataLeaked, |dir| {
            with_meta(dir, |meta| drop_name(meta, "small"));
        }),
        case(Kind::DataLeaked, |dir| {
            with_meta(dir, |meta| drop_name(meta, "large"));
        }),
        case(Kind::DataOfNoFile, |dir| {
            with_meta(dir, |meta| meta.edit("small", |inode| inode.core.mode = 0o010_644));
        }),
    ]
}
