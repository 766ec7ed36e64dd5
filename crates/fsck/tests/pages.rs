//! Each page of a small folder's environments damaged in turn: a check and a repair name it or do without it, and never die of it.

mod common;

use common::{ENVIRONMENTS, Meta, attach, content, listing, serve, stopped};
use fsck::{FsckError, Kind, RepairOptions, check, repair};
use proto::storeio::Table;
use std::fs;
use std::path::{Path, PathBuf};
use stdx::Prng;

const PAGE: usize = 4096;

fn environment(dir: &Path, number: u16) -> PathBuf {
    dir.join(format!("meta/env-{number:02x}.mdb"))
}

fn put(path: &Path, page: usize, with: &[u8]) {
    let mut bytes = fs::read(path).expect("read");
    bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(with);
    fs::write(path, bytes).expect("written");
}

/// Gives every environment tables of several levels, values in overflow pages, and free pages: of the garbage some fill the list.
fn grown() -> common::Folder {
    let folder = stopped();
    let meta = Meta::open(&folder.path);
    for environment in 0..usize::from(ENVIRONMENTS) {
        for round in 0..3_u64 {
            for n in 0..300_u64 {
                let key = [&(0x7000 + n).to_be_bytes()[..], &[1; 8], b"filler"].concat();
                meta.put_at(environment, Table::Dentry, &key, &content(n + round, 60 + n as usize % 90 * 80));
                if round == 2 {
                    meta.delete_at(environment, Table::Dentry, &key);
                }
                if round == 2 && n % 100 == 0 {
                    meta.put_at(environment, Table::Backptr, &(0x9000 + n).to_be_bytes(), &content(n, 6000));
                }
            }
        }
    }
    meta.close();
    folder
}

/// What a check makes of the damage to the first environment; a repair is refused if records are on that page.
fn examine(dir: &Path, what: &str) -> Option<Kind> {
    let report = check(dir).expect("checked");
    let kinds = [Kind::EnvironmentUnreadable, Kind::FreePagesDamaged];
    let told = report.findings.iter().find(|f| kinds.contains(&f.kind))?;
    assert_eq!(told.place, "meta/env-00", "{what}");
    if told.kind == Kind::EnvironmentUnreadable {
        let refused = repair(dir, &RepairOptions::default());
        assert!(matches!(refused, Err(FsckError::EnvironmentUnreadable { .. })), "{what}");
    }
    Some(told.kind)
}

#[test]
fn a_damaged_page_is_named_and_kills_nobody() {
    let folder = grown();
    let clean = check(&folder.path).expect("checked");
    let damaged = |f: &fsck::Finding| [Kind::EnvironmentUnreadable, Kind::FreePagesDamaged].contains(&f.kind);
    assert!(!clean.findings.iter().any(damaged), "{clean:#?}");
    let mut prng = Prng::new(7);
    let mut seen = [0_usize; 2];
    let path = environment(&folder.path, 0);
    let before = fs::read(&path).expect("read");
    for page in 0..before.len() / PAGE {
        let old = &before[page * PAGE..(page + 1) * PAGE];
        if old.iter().all(|byte| *byte == 0) {
            continue;
        }
        let random: Vec<u8> = (0..PAGE).map(|_| prng.next_u64() as u8).collect();
        let (name, with) = match page % 3 {
            0 => ("zeroed", vec![0; PAGE]),
            1 => ("random", random),
            // A header that is right, and nodes that lead anywhere.
            _ => ("disguised", [&old[..16], &random[16..]].concat()),
        };
        put(&path, page, &with);
        let told = examine(&folder.path, &format!("{name} page {page}"));
        seen[usize::from(told.is_some())] += 1;
        fs::write(&path, &before).expect("restored");
    }
    assert!(seen.iter().all(|count| *count > 3), "free pages, pages in use: {seen:?}");
}

#[test]
fn a_damaged_list_of_free_pages_is_found_and_the_environment_made_anew() {
    let folder = grown();
    let filler = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(filler.is_clean(), "{filler:#?}");
    let path = environment(&folder.path, 1);
    let bytes = fs::read(&path).expect("read");
    let txn = |page: usize| u64::from_le_bytes(bytes[page * PAGE + 144..][..8].try_into().expect("8 bytes"));
    let meta = usize::from(txn(1) > txn(0)) * PAGE;
    let root = u64::from_le_bytes(bytes[meta + 80..][..8].try_into().expect("8 bytes"));
    put(&path, root as usize, &[0; PAGE]);
    let report = check(&folder.path).expect("checked");
    let told: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(told, [Kind::FreePagesDamaged], "{report:#?}");
    let report = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(report.is_clean() && report.fixed.len() == 1, "{report:#?}");
    let server = serve(&folder.path);
    let fs = attach(&server);
    assert!(listing(&fs).iter().any(|name| name == "/a/b/large"));
    for n in 0..40 {
        fs.mkdir(format!("new{n}"), 0o755).expect("mkdir");
    }
    drop(fs);
    server.stop().expect("the checkpoint can be written");
    drop(server);
    assert!(check(&folder.path).expect("checked").is_clean());
}

/// LMDB followed a null pointer at a node that says that it has several values: that cost the process.
#[test]
fn nodes_with_flags_of_other_tables_are_named() {
    let folder = grown();
    let path = environment(&folder.path, 0);
    let before = fs::read(&path).expect("read");
    let u16_at = |page: &[u8], at: usize| usize::from(u16::from_le_bytes([page[at], page[at + 1]]));
    let mut named = 0;
    for page in 2..before.len() / PAGE {
        let mut with = before[page * PAGE..(page + 1) * PAGE].to_vec();
        // Leaves only; those of the tables' names have flags already.
        if u16_at(&with, 10) != 2 || u16_at(&with, u16_at(&with, 16) + 4) != 0 {
            continue;
        }
        for index in 0..(u16_at(&with, 12) - 16) / 2 {
            let node = u16_at(&with, 16 + 2 * index);
            with[node + 4] |= 4;
        }
        put(&path, page, &with);
        named += usize::from(examine(&folder.path, &format!("flags of page {page}")).is_some());
        fs::write(&path, &before).expect("restored");
    }
    assert!(named > 1, "{named}");
}
