//! One hand-made fault of every kind in a small real folder: it is found by its kind, and what can be repaired is clean
//! afterwards, for this crate and for the server.

mod cases;
mod common;

use cases::{After, Case, count, linked, with_meta};
use common::{attach, bytes, crashed, flip, listing, serve, stopped};
use fsck::{FsckError, Kind, RepairOptions, check, repair};
use proto::dentry::DentryValue;
use proto::inode::flags;
use proto::storeio::{Cut, DataOp, Payload, StoreKey, Table};
use proto::{FileId, Frag, Ino};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use stdx::Wall;
use store::data::{DataFiles, Limits};
use store::disk_real::RealDisk;
use store::folder::{FormatOptions, format};

/// Checks one case; what is wrong with it, if anything is.
fn run(case: &Case, number: usize) -> Result<(), String> {
    let folder = (case.on)();
    (case.harm)(&folder.path);
    let code = case.kind.code();
    let fail = |what: String| Err(format!("case {number}, {code} ({}): {what}", case.kind.text()));
    let report = check(&folder.path).expect("checked");
    if !report.findings.iter().any(|finding| finding.kind == case.kind) {
        return fail(format!("not found: {:#?}", report.findings));
    }
    let again = check(&folder.path).expect("checked");
    if again != report {
        return fail("a check changed something".into());
    }
    let mut options = RepairOptions::default();
    match (case.after, repair(&folder.path, &options)) {
        // A repair that is refused tells what a check does.
        (After::Cut, Err(FsckError::JournalDamaged { report: told, .. })) if *told == report => {
            options.cut_damaged_journal = true;
        }
        (After::Refused, Err(FsckError::EnvironmentUnreadable { report: told, .. })) if *told == report => {
            return Ok(());
        }
        (After::Left, Ok(report)) => {
            let there = report.findings.iter().any(|finding| finding.kind == case.kind);
            return if there { Ok(()) } else { fail(format!("repaired: {report:#?}")) };
        }
        (After::Clean, Ok(report)) if !report.fixed.iter().any(|finding| finding.kind == case.kind) => {
            return fail(format!("not told as fixed: {report:#?}"));
        }
        (After::Clean, Ok(report)) if report.is_clean() => {}
        (_, outcome) => return fail(format!("repair: {outcome:#?}")),
    }
    if options.cut_damaged_journal {
        let report = repair(&folder.path, &options).expect("repaired");
        if !report.is_clean() {
            return fail(format!("repair with a cut: {report:#?}"));
        }
    }
    let report = check(&folder.path).expect("checked");
    if !report.is_clean() || !report.notes.is_empty() {
        return fail(format!("after repair: {report:#?}"));
    }
    // A server takes its time to prepare space: it sees every third folder, and all whose files were at fault.
    if !number.is_multiple_of(3) && code.starts_with('M') {
        return Ok(());
    }
    let server = serve(&folder.path);
    let fs = attach(&server);
    let names = listing(&fs);
    fs.write("new", b"after the repair").expect("write");
    drop(fs);
    server.stop().expect("stop");
    drop(server);
    let report = check(&folder.path).expect("checked");
    if !report.is_clean() {
        return fail(format!("after service: {report:#?} {names:#?}"));
    }
    Ok(())
}

#[test]
fn every_kind_of_fault_is_found_and_repaired_where_it_can_be() {
    let cases = cases::all();
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    let failed: Vec<String> = std::thread::scope(|scope| {
        let parts = numbered.chunks(numbered.len().div_ceil(3));
        let threads: Vec<_> = parts
            .map(|part| {
                scope.spawn(move || {
                    part.iter().filter_map(|(n, case)| run(case, *n).err()).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

#[test]
fn every_kind_has_a_case() {
    let covered: BTreeSet<Kind> = cases::all().iter().map(|case| case.kind).collect();
    let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !covered.contains(kind)).collect();
    // These have tests of their own.
    assert_eq!(missing, [&Kind::PartForeign, &Kind::FreePagesDamaged, &Kind::BlockBeyondSize]);
}

/// One that was made for another rank is empty until that has changed something in it.
#[test]
fn a_newborn_needs_no_header_while_it_is_empty() {
    let folder = stopped();
    let header = |dir| StoreKey::Header { dir, frag: Frag::WHOLE };
    with_meta(&folder.path, |meta| {
        for name in ["a", "c"] {
            meta.edit(name, |inode| inode.core.flags |= flags::SLOTS | flags::NEWBORN);
        }
        meta.delete(header(meta.ino("c")));
    });
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean(), "{report:#?}");
    with_meta(&folder.path, |meta| meta.delete(header(meta.ino("a"))));
    let report = check(&folder.path).expect("checked");
    let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::HeaderMissing]);
}

#[test]
fn a_lost_name_is_found_again_with_its_content() {
    let folder = stopped();
    with_meta(&folder.path, |meta| {
        let record = meta.named("b");
        meta.delete_at(record.environment, Table::Dentry, &record.key);
        count(meta, meta.ino("a"), -1, -1);
    });
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.is_changed(), "{report:#?}");
    let server = serve(&folder.path);
    let fs = attach(&server);
    let names = listing(&fs);
    let found = names.iter().find(|name| name.starts_with("/lost+found/#") && name.ends_with("/large"));
    let found = found.unwrap_or_else(|| panic!("{names:#?}"));
    assert_eq!(fs.read(found).expect("read"), common::content(3, 9 << 20));
    assert!(names.iter().any(|name| name.ends_with("/c") && name.starts_with("/lost+found")));
    server.stop().expect("stop");
}

#[test]
fn one_flipped_bit_costs_nothing_and_more_are_kept_as_text() {
    let folder = stopped();
    let before = check(&folder.path).expect("checked");
    with_meta(&folder.path, |meta| {
        let record = meta.named("small");
        let key = StoreKey::head(meta.ino("a"), meta.hash(b"small"), b"small");
        let mut stored = meta.stored(key);
        stored[30] ^= 8;
        meta.put_raw(record.environment, Table::Dentry, &record.key, &stored);
        assert_eq!(bytes(key), record.key);
    });
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.files == before.files, "{report:#?}");
    assert!(!folder.path.join("fsck-removed-1").exists());
    with_meta(&folder.path, |meta| {
        let record = meta.named("small");
        meta.put_raw(record.environment, Table::Dentry, &record.key, b"not what it was");
    });
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.files == before.files - 1, "{report:#?}");
    assert_eq!(report.data_objects, before.data_objects - 1);
    let text = fs::read_to_string(folder.path.join("fsck-removed-1")).expect("dump");
    assert!(text.contains("name \"small\" in directory") && text.contains("6e6f742077686174"), "{text}");
}

#[test]
fn a_damaged_record_of_the_file_system_is_no_folder_at_all() {
    let folder = stopped();
    flip(&folder.path.join("pando.fs"), 60, 1);
    assert!(matches!(check(&folder.path), Err(FsckError::RecordDamaged(_))));
}

/// The checksum does not cover the format's number: 0 was taken for a format.
#[test]
fn no_flipped_bit_of_the_record_goes_unnoticed() {
    let folder = stopped();
    let record = folder.path.join("pando.fs");
    let bytes = fs::read(&record).expect("record");
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&record, bad).expect("written");
        let error = check(&folder.path).expect_err("a flipped bit");
        // One bit of 1 flipped is 0, or what looks like a later format.
        let newer = (64..96).contains(&bit) && bit != 64;
        let named = match error {
            FsckError::RecordDamaged(_) => !newer,
            FsckError::TooNew { .. } => newer,
            _ => false,
        };
        assert!(named, "bit {bit}: {error}");
    }
}

/// A stopped file system of one file, and the folder on another disk where its data is.
fn with_data_elsewhere(temp: &Path) -> (PathBuf, PathBuf) {
    let (path, data) = (temp.join("fs"), temp.join("disk"));
    let options =
        FormatOptions { data_dir: Some(data.clone()), environments: 2, ..FormatOptions::new(Wall(1)) };
    format(&path, &options).expect("format");
    let server = serve(&path);
    attach(&server).write("file", b"content").expect("write");
    server.stop().expect("stop");
    (path, data)
}

#[test]
fn a_part_that_is_another_file_systems_is_told() {
    let temp = tempfile::tempdir().expect("dir");
    let (path, data) = with_data_elsewhere(temp.path());
    let report = check(&path).expect("checked");
    assert!(report.is_clean() && report.data_objects == 1, "{report:#?}");
    fs::write(data.join("pando.member"), "PandoFS 00\n").expect("written");
    let report = check(&path).expect("checked");
    assert!(report.findings.iter().all(|finding| finding.kind == Kind::PartForeign), "{report:#?}");
    assert_eq!(report.findings.len(), 1);
}

/// With the data's disk away, names whose content is there would be taken for damaged, and the journal's content would be written
/// into a new folder in its place.
#[test]
fn nothing_is_repaired_while_a_part_is_not_there() {
    let temp = tempfile::tempdir().expect("dir");
    let (path, data) = with_data_elsewhere(temp.path());
    with_meta(&path, |meta| count(meta, Ino::ROOT, 1, 0));
    let away = temp.path().join("away");
    fs::rename(&data, &away).expect("taken away");
    let outcome = repair(&path, &RepairOptions::default());
    assert!(matches!(outcome, Err(FsckError::PartForeign { .. })), "{outcome:#?}");
    assert!(!data.exists());
    fs::rename(&away, &data).expect("back again");
    let report = repair(&path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.is_changed() && report.data_objects == 1, "{report:#?}");
}

/// A crash may leave the segment that a server was making; a repair makes its own under the same name.
#[test]
fn a_journal_is_cut_where_a_crash_left_an_unfinished_segment() {
    let folder = crashed();
    let journal = folder.path.join("journal");
    flip(&journal.join("00000001"), 4500, 2);
    fs::write(journal.join("new"), [7; 10_000]).expect("written");
    let options = RepairOptions { cut_damaged_journal: true };
    let report = repair(&folder.path, &options).expect("repaired");
    assert!(report.is_clean(), "{report:#?}");
    let names: Vec<_> =
        fs::read_dir(&journal).expect("dir").map(|entry| entry.expect("entry").file_name()).collect();
    assert!(names.len() == 1 && names[0] != "new", "{names:?}");
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean(), "{report:#?}");
}

/// Data may reach the disk before the journal says whose it is: a crash in between is no fault.
#[test]
fn what_a_crash_leaves_of_data_is_a_note_and_repair_removes_it() {
    let folder = stopped();
    let limits = Limits::default();
    let data = DataFiles::open(RealDisk::new(&folder.path), 65_536, limits).expect("data store");
    let (mut large, mut newest) = (FileId { ino: Ino(0), generation: 0 }, 0);
    with_meta(&folder.path, |meta| {
        large.ino = meta.ino("large");
        newest = meta
            .all(Table::Dentry)
            .iter()
            .filter_map(|r| DentryValue::decode(&r.value).ok())
            .map(|d| d.ino().0)
            .max()
            .unwrap_or(0);
    });
    let lost = FileId { ino: Ino(newest + 5), generation: 0 };
    for (file, offset, len) in [(large, 40 << 20, 10), (lost, 0, 10), (lost, 0, 70_000)] {
        let payload = Payload::Owned(vec![7; len]);
        data.run(&DataOp::Write { file, cut: Cut::default(), offset, data: payload }).expect("written");
        data.run(&DataOp::SyncAll).expect("synced");
    }
    drop(data);
    let report = check(&folder.path).expect("checked");
    let notes: BTreeSet<Kind> = report.notes.iter().map(|note| note.kind).collect();
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(notes, BTreeSet::from([Kind::DataLeaked, Kind::BlockBeyondSize]), "{:#?}", report.notes);
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.fixed.is_empty() && report.tidied == 1, "no error was corrected: {report:#?}");
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean() && report.notes.len() == 1, "{report:#?}");
}

/// A record that cannot be saved, with a number that can be read: what is under that keeps its name.
#[test]
fn content_survives_its_inodes_record() {
    let folder = stopped();
    let before = check(&folder.path).expect("checked");
    with_meta(&folder.path, |meta| {
        for name in ["small", "large", "b", "renamed"] {
            let record = meta.named(name);
            let mut stored = [&[0; 4][..], &record.value].concat();
            (stored[40], stored[60]) = (!stored[40], !stored[60]);
            meta.put_raw(record.environment, Table::Dentry, &record.key, &stored);
        }
    });
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean(), "{report:#?}");
    assert_eq!((report.files, report.directories), (before.files, before.directories));
    assert!(folder.path.join("fsck-removed-1").exists());
    let server = serve(&folder.path);
    let fs = attach(&server);
    for (name, seed, len) in common::FILES {
        assert_eq!(fs.read(name).expect("read"), common::content(seed, len), "{name}");
    }
    server.stop().expect("stop");
}

/// One turned bit in everything that others hang on: no name may be given up before it is turned back.
#[test]
fn turned_bits_in_directories_and_links_cost_no_name() {
    let folder = stopped();
    let server = serve(&folder.path);
    let fs = attach(&server);
    let names = listing(&fs);
    server.stop().expect("stop");
    drop((fs, server));
    with_meta(&folder.path, |meta| {
        for name in ["a", "b", "root", "links", &linked(meta)] {
            let record = meta.named(name);
            let mut stored = meta.stored_at(record.environment, Table::Dentry, &record.key);
            stored[12] ^= 2;
            meta.put_raw(record.environment, Table::Dentry, &record.key, &stored);
        }
    });
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean(), "{report:#?}");
    let server = serve(&folder.path);
    let fs = attach(&server);
    assert_eq!(listing(&fs), names);
    server.stop().expect("stop");
}
