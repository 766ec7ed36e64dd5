//! Single flipped bits everywhere: in the journal, in every value of the tables, in the data segments. Each is found, and
//! named by file and offset, or by key.

mod common;

use common::{Meta, Record, crashed, flip, stopped};
use fsck::{Kind, check};
use proto::Position;
use proto::journal::read_entry;
use proto::storeio::Table;
use std::fs;
use std::path::Path;
use stdx::Prng;

/// Where entries of the tail begin and end in a segment, below the highest mark of all.
fn covered_entries(path: &Path) -> Vec<(u64, u64)> {
    let bytes = fs::read(path).expect("read");
    let start = u64::from_le_bytes(bytes[34..42].try_into().expect("8 bytes"));
    let (mut at, mut entries, mut mark) = (4096, Vec::new(), 0);
    while let Ok(entry) = read_entry(&bytes[at..], Position(start + at as u64 - 4096)) {
        mark = mark.max(entry.mark.0);
        entries.push((at as u64, (at + entry.len) as u64));
        at += entry.len;
    }
    entries.retain(|(_, end)| start + end - 4096 <= mark);
    entries
}

#[test]
fn flips_in_the_journal_are_found_and_named() {
    let folder = crashed();
    let mut prng = Prng::new(11);
    let mut flips = 0;
    for segment in ["00000001", "00000002", "00000003"] {
        let path = folder.path.join("journal").join(segment);
        let entries = covered_entries(&path);
        // The second and the third segment state where the first and the second end.
        assert!(!entries.is_empty() || segment == "00000003");
        for (begin, end) in entries.into_iter().step_by(3) {
            let offset = begin + prng.below(end - begin);
            let bit = prng.below(8) as u8;
            flip(&path, offset, bit);
            let report = check(&folder.path).expect("checked");
            flip(&path, offset, bit);
            let place = format!("journal/{segment} at {begin:#x}");
            let named = report.findings.iter().any(|finding| {
                finding.kind == Kind::JournalEntryDamaged
                    && finding.place == place
                    && finding.detail.contains("after seq")
            });
            assert!(named, "{segment} {offset:#x} bit {bit}: {:#?}", report.findings);
            flips += 1;
        }
        for offset in [0, 9, 17, 33, 40, 700, 4095] {
            flip(&path, offset, 5);
            let report = check(&folder.path).expect("checked");
            flip(&path, offset, 5);
            let place = format!("journal/{segment} at 0x0");
            assert!(report.findings.iter().any(|f| f.kind == Kind::JournalHeaderDamaged && f.place == place));
        }
    }
    assert!(flips > 10, "{flips}");
    assert!(check(&folder.path).expect("checked").is_clean());
}

fn flip_value(meta: &Meta, table: Table, record: &Record, prng: &mut Prng) {
    let crc = stdx::checksum::crc32c_parts(&[&record.key, &record.value]).to_le_bytes();
    let mut stored = [&crc[..], &record.value].concat();
    let at = prng.below(stored.len() as u64) as usize;
    stored[at] ^= 1 << prng.below(8);
    meta.put_raw(record.environment, table, &record.key, &stored);
}

#[test]
fn flips_in_values_are_found_and_named() {
    let folder = stopped();
    let meta = Meta::open(&folder.path);
    let mut prng = Prng::new(12);
    let mut records = Vec::new();
    for table in [Table::Dentry, Table::Backptr, Table::System] {
        records.extend(meta.all(table).into_iter().map(|record| (table, record)));
    }
    meta.close();
    assert!(records.len() > 30);
    let mut places = Vec::new();
    for (table, record) in &records {
        let meta = Meta::open(&folder.path);
        flip_value(&meta, *table, record, &mut prng);
        meta.close();
        let report = check(&folder.path).expect("checked");
        let damaged: Vec<_> = report.findings.iter().filter(|f| f.kind == Kind::ValueDamaged).collect();
        assert_eq!(damaged.len(), 1, "{:#?}", report.findings);
        places.push(damaged[0].place.clone());
        let meta = Meta::open(&folder.path);
        meta.put_at(record.environment, *table, &record.key, &record.value);
        meta.close();
    }
    for what in
        ["name \"small\" in directory", "header of directory 1", "backptr of inode", "checkpoint of rank 0"]
    {
        assert!(places.iter().any(|place| place.contains(what)), "{what} in {places:#?}");
    }
    let meta = Meta::open(&folder.path);
    records.iter().for_each(|(table, record)| flip_value(&meta, *table, record, &mut prng));
    meta.close();
    // All of them are single bits, so nothing is lost.
    let report = fsck::repair(&folder.path, &fsck::RepairOptions::default()).expect("repaired");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!((report.directories, report.files), (5, 11));
}

#[test]
fn flips_in_data_segments_are_found_and_named() {
    let folder = stopped();
    let mut prng = Prng::new(13);
    let mut flips = 0;
    for entry in fs::read_dir(folder.path.join("data")).expect("dir") {
        let path = entry.expect("entry").path();
        let name = path.file_name().expect("name").to_string_lossy().into_owned();
        let bytes = fs::read(&path).unwrap_or_default();
        let Some(last) = bytes.iter().rposition(|byte| *byte != 0).filter(|_| name.starts_with("seg-"))
        else {
            continue;
        };
        for _ in 0..120 {
            let (offset, bit) = (prng.below(last as u64 + 1), prng.below(8) as u8);
            flip(&path, offset, bit);
            let report = check(&folder.path).expect("checked");
            flip(&path, offset, bit);
            // Of a record that is out of date it is only a note.
            let named = report.findings.iter().chain(&report.notes).any(|finding| {
                let at = finding.place.strip_prefix(&format!("data/{name} at 0x")).unwrap_or("fffffff");
                let kind = [Kind::DataRecordDamaged, Kind::DataSegmentHeaderDamaged].contains(&finding.kind);
                kind && u64::from_str_radix(at, 16).is_ok_and(|at| at <= offset)
            });
            assert!(named, "{name} {offset:#x} bit {bit}: {:#?}", report.findings);
            flips += 1;
        }
    }
    assert!(flips >= 120);
    assert!(check(&folder.path).expect("checked").is_clean());
}
