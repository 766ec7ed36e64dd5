//! Format, open, refuse.

use super::make::{check_room, new_record};
use super::*;
use crate::initial::initial_batches;
use crate::meta::MetaStore;
use proto::ids::{Ino, NameHash};
use proto::storeio::{LoadRequest, Loaded};
use stdx::Wall;

fn options() -> FormatOptions {
    FormatOptions { environments: 2, ..FormatOptions::new(Wall(1)) }
}

#[test]
fn a_new_folder_opens_with_ever_higher_incarnations() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path().join("new/pando");
    let record = format(&dir, &options()).expect("formatted");
    for life in 1..4 {
        let folder = Folder::open(&dir).expect("opened");
        assert_eq!((folder.incarnation(), folder.record()), (Incarnation(life), &record));
        let scan = LoadRequest::Scan { dir: Ino::SYSTEM, from: NameHash(0), entries_max: 10 };
        let loaded = folder.open_meta().expect("meta").load(&[scan]).remove(0);
        assert!(matches!(loaded, Ok(Loaded::Dentries { entries, .. }) if entries.len() == 3));
    }
    let error = format(&dir, &options()).expect_err("refused").to_string();
    assert_eq!(error, format!("{} already holds file system pandofs {}", dir.display(), short_id(&record)));
}

#[test]
fn an_empty_folder_is_not_made_a_file_system_by_opening_it() {
    let place = tempfile::tempdir().expect("folder");
    let error = Folder::open(place.path()).expect_err("refused");
    let at = place.path().display();
    assert_eq!(error.to_string(), format!("{at} holds no file system and this mount may not create one"));
    assert_eq!(error.remedy(), Some(format!("is the disk mounted? else `pando format {at}`")));
    assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 0, "nothing was written");
    assert!(matches!(Folder::open(&place.path().join("no")), Err(FolderError::Absent { .. })));
}

#[test]
fn strangers_are_named() {
    let place = tempfile::tempdir().expect("folder");
    for name in ["x.db", "y", "lost+found", "z", "pando.toml"] {
        fs::write(place.path().join(name), "").expect("written");
    }
    let error = format(place.path(), &options()).expect_err("refused").to_string();
    let why = "files present that are not PandoFS's (lost+found, x.db, 2 more)";
    assert_eq!(error, format!("{}: {why}", place.path().display()));
}

#[test]
fn the_lock_names_its_owner() {
    let place = tempfile::tempdir().expect("folder");
    format(place.path(), &options()).expect("formatted");
    let folder = Folder::open(place.path()).expect("opened");
    let error = Folder::open(place.path()).expect_err("refused").to_string();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host");
    let (at, pid) = (place.path().display(), std::process::id());
    assert_eq!(error, format!("{at} is in use by pid {pid} (host {})", host.trim()));
    drop(folder);
    Folder::open(place.path()).expect("free again");
}

/// A folder of version 0.1.0 says from the first time on that it was served by a later one.
#[test]
fn a_folder_that_is_served_has_the_features_of_this_version() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path();
    let record = format(dir, &options()).expect("formatted");
    assert_eq!(record.incompat, INCOMPAT_SESSIONS);
    fs::write(dir.join(RECORD), FsRecord { incompat: 0, ..record }.encode()).expect("written");
    drop(Folder::open(dir).expect("opened"));
    let Ok(Found::Complete(record)) = inspect(dir) else { panic!("not complete") };
    assert_eq!(record.incompat, INCOMPAT_SESSIONS);
}

/// Version 0.2 refuses what it does not know; it must not overlook the journal of rank 1.
#[test]
fn several_ranks_are_told_before_there_are_any() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path();
    format(dir, &options()).expect("formatted");
    let features = || match inspect(dir) {
        Ok(Found::Complete(record)) => record.incompat,
        other => panic!("{other:?}"),
    };
    let folder = Folder::open(dir).expect("opened");
    assert!(!folder.allows_ranks());
    assert_eq!(features(), INCOMPAT_SESSIONS, "a folder with one rank opens with version 0.2");
    folder.allow_ranks().expect("written");
    assert!(folder.allows_ranks());
    assert_eq!(features(), INCOMPAT_SESSIONS | INCOMPAT_RANKS);
    assert_eq!(folder.current_record().incompat, features());
    // The record is not written once more.
    let inode =
        |dir: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(dir.join(RECORD)).expect("there"));
    let before = inode(dir);
    folder.allow_ranks().expect("written already");
    assert_eq!(inode(dir), before);
    drop(folder);
    let folder = Folder::open(dir).expect("opened");
    assert!(folder.allows_ranks());
    assert_eq!((folder.record().incompat, features()), (INCOMPAT_SESSIONS | INCOMPAT_RANKS, 3));
}

/// A folder that was never served by 0.2 or later gets both bits.
#[test]
fn several_ranks_keep_the_other_features() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path();
    let record = format(dir, &options()).expect("formatted");
    fs::write(dir.join(RECORD), FsRecord { incompat: 0, ..record }.encode()).expect("written");
    let folder = Folder::open(dir).expect("opened");
    folder.allow_ranks().expect("written");
    let Ok(Found::Complete(record)) = inspect(dir) else { panic!("not complete") };
    assert_eq!(record.incompat, INCOMPAT_SESSIONS | INCOMPAT_RANKS);
}

#[test]
fn incarnations_that_others_gave_are_not_given_again() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path();
    format(dir, &options()).expect("formatted");
    let folder = Folder::open(dir).expect("opened");
    assert_eq!(folder.incarnation(), Incarnation(1));
    folder.note_incarnation(Incarnation(7)).expect("noted");
    folder.note_incarnation(Incarnation(5)).expect("lower: nothing to do");
    assert_eq!(folder.incarnation(), Incarnation(1), "what opening gave stays");
    drop(folder);
    assert_eq!(Folder::open(dir).expect("opened").incarnation(), Incarnation(8));
}

#[test]
fn a_cluster_map_of_before_is_not_taken_for_that_of_a_new_file_system() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path();
    fs::create_dir(dir.join("cluster")).expect("made");
    assert!(matches!(format(dir, &options()), Err(FolderError::Damaged { .. })));
    fs::remove_dir(dir.join("cluster")).expect("removed");
    format(dir, &options()).expect("formatted");
    assert_eq!(Folder::open(dir).expect("opened").registry_root(), dir);
}

#[test]
fn half_formatted_newer_and_damaged_records_are_told_apart() {
    let place = tempfile::tempdir().expect("folder");
    let (dir, at) = (place.path(), place.path().display());
    let record = format(dir, &options()).expect("formatted");
    let path = dir.join(RECORD);
    fs::write(&path, FsRecord { format: 3, ..record.clone() }.encode()).expect("written");
    let error = Folder::open(dir).expect_err("refused").to_string();
    assert_eq!(error, format!("{at} has format 3; this version reads 1"));
    fs::write(&path, FsRecord { incompat: 4, ..record.clone() }.encode()).expect("written");
    assert!(matches!(Folder::open(dir), Err(FolderError::Features { bits: 4, .. })));
    let mut bad = record.encode();
    bad[40] ^= 1;
    fs::write(&path, bad).expect("written");
    assert!(matches!(Folder::open(dir), Err(FolderError::Damaged { .. })));
    fs::remove_file(&path).expect("removed");
    assert!(matches!(format(dir, &options()), Err(FolderError::Damaged { .. })), "never begun anew");
    fs::write(&path, FsRecord { complete: false, ..record.clone() }.encode()).expect("written");
    assert!(matches!(Folder::open(dir), Err(FolderError::HalfFormatted { .. })));
    assert_eq!(format(dir, &options()).expect("finished").fsid, record.fsid);
    Folder::open(dir).expect("opened");
}

#[test]
fn parts_elsewhere_must_be_the_right_ones() {
    let place = tempfile::tempdir().expect("folder");
    let (a, b) = (place.path().join("a"), place.path().join("b"));
    let elsewhere = |name: &str| Some(place.path().join(name));
    let with = |journal: &str, meta: &str| FormatOptions {
        journal_dir: elsewhere(journal),
        meta_dir: elsewhere(meta),
        ..options()
    };
    format(&a, &with("journal-a", "meta-a")).expect("formatted");
    assert!(!a.join("meta").exists() && place.path().join("meta-a/meta/env-00.mdb").exists());
    let refused = format(&b, &with("journal-a", "meta-b")).expect_err("taken");
    assert!(matches!(refused, FolderError::OtherFileSystem { part: "journal", .. }));
    let folder = Folder::open(&a).expect("opened");
    assert_eq!(folder.journal_root(), place.path().join("journal-a"));
    assert_eq!(folder.data_root(), a);
    drop(folder);
    fs::rename(place.path().join("journal-a"), place.path().join("away")).expect("unmounted");
    let error = Folder::open(&a).expect_err("refused");
    assert!(matches!(error, FolderError::PartMissing { part: "journal", .. }));
}

#[test]
fn ballast_is_released_and_rebuilt() {
    let place = tempfile::tempdir().expect("folder");
    format(place.path(), &options()).expect("formatted");
    let ballast = Folder::open(place.path()).expect("opened").ballast();
    assert!(!ballast.is_held() && !ballast.release().expect("nothing there"));
    assert!(ballast.rebuild().expect("rebuilt") && ballast.is_held());
    assert!(ballast.release().expect("released") && !ballast.is_held());
}

#[test]
fn an_unfinished_restore_can_only_be_restored_again() {
    let place = tempfile::tempdir().expect("folder");
    let (old, dir) = (place.path().join("old"), place.path().join("new"));
    let identity = format(&old, &options()).expect("formatted");
    let fails = |_: &LmdbMeta, data_root: &Path| -> Result<(), FolderError> {
        fs::create_dir(data_root.join("data")).expect("made");
        fs::write(data_root.join("data/some"), "bytes").expect("written");
        Err(FolderError::NotText { dir: "the backup is cut short".into() })
    };
    assert!(matches!(format_from(&dir, &options(), &identity, fails), Err(FolderError::NotText { .. })));
    assert!(
        !dir.join("data").exists() && names(&dir.join("meta")).expect("listed").is_empty(),
        "space is given back"
    );
    let at = dir.display();
    for error in [format(&dir, &options()).map(drop), Folder::open(&dir).map(drop)] {
        let error = error.expect_err("refused");
        assert_eq!(
            error.to_string(),
            format!("{at} is half restored: an earlier restore from a backup did not finish")
        );
        assert_eq!(error.remedy(), Some(format!("restore again: `pando backup restore FILE {at}`")));
    }
    // Killed before the record was written.
    fs::remove_file(dir.join(RECORD)).expect("removed");
    assert!(matches!(inspect(&dir), Ok(Found::HalfRestored)));
    let fill = |meta: &LmdbMeta, _: &Path| -> Result<(), FolderError> {
        Ok(meta.apply(&initial_batches(&identity.hash_seed, Wall(1), (0, 0)))?)
    };
    let record = format_from(&dir, &options(), &identity, fill).expect("restored");
    assert_eq!((record.fsid, record.complete), (identity.fsid, true));
    assert!(!dir.join(RESTORE).exists());
    // Killed between the record and the mark's removal.
    fs::write(dir.join(RESTORE), "restore\n").expect("written");
    drop(Folder::open(&dir).expect("opened"));
    assert!(!dir.join(RESTORE).exists());
}

#[test]
fn a_device_that_is_too_small_is_refused_before_anything_is_written() {
    let place = tempfile::tempdir().expect("folder");
    let record = new_record(&options(), None).expect("a record");
    check_room(&place.path().join("not/there/yet"), &record).expect("room enough");
    let full = Path::new("/proc/self");
    let error = check_room(full, &record).expect_err("refused").to_string();
    assert_eq!(error, "/proc/self: needs at least 192 MiB free, has 0");
    // The ballast of a journal elsewhere lies with it.
    let apart = FsRecord { journal_dir: "/proc/self".into(), ..record };
    let error = check_room(place.path(), &apart).expect_err("refused").to_string();
    assert_eq!(error, "/proc/self: needs at least 80 MiB free, has 0");
}

#[test]
fn data_that_is_gone_is_not_taken_for_an_empty_store() {
    let place = tempfile::tempdir().expect("folder");
    let dir = place.path();
    let record = format(dir, &options()).expect("formatted");
    let data = dir.join("data");
    fs::rename(&data, dir.join("log")).expect("away");
    let error = Folder::open(dir).expect_err("refused");
    assert_eq!(
        error.to_string(),
        format!("{} should hold this file system's data and does not", data.display())
    );
    assert_eq!(error.remedy().as_deref(), Some("is the disk mounted? else restore it from a backup"));
    fs::create_dir(&data).expect("made");
    assert!(matches!(Folder::open(dir), Err(FolderError::PartMissing { part: "data", .. })));
    // A folder of an earlier version has no mark.
    fs::write(dir.join(RECORD), FsRecord { compat: 0, ..record }.encode()).expect("written");
    Folder::open(dir).expect("opened");
}

#[test]
fn a_refused_format_leaves_nothing() {
    let place = tempfile::tempdir().expect("folder");
    let at = |name: &str| place.path().join(name);
    fs::create_dir(at("foreign")).expect("made");
    fs::write(at("foreign/x"), "").expect("written");
    let foreign = FormatOptions { meta_dir: Some(at("foreign")), ..options() };
    assert!(matches!(format(&at("new"), &foreign), Err(FolderError::Strangers { .. })));
    assert!(!at("new").exists());
    fs::create_dir(at("empty")).expect("made");
    assert!(matches!(format(&at("empty"), &foreign), Err(FolderError::Strangers { .. })));
    assert_eq!(fs::read_dir(at("empty")).expect("listed").count(), 0, "nothing was written");
    assert_eq!(fs::read_dir(at("foreign")).expect("listed").count(), 1, "nor there");
}

#[test]
fn a_bare_name_lies_in_the_folder_we_are_in() {
    let record = new_record(&options(), None).expect("a record");
    assert!(check_room(Path::new("no-such-folder-here"), &record).is_ok());
}
