//! Folders of the real server, stopped and killed: nothing is found, and repair does not touch them.

mod common;

use common::{FILES, attach, content, crashed, listing, serve, stopped};
use fsck::{FsckError, RepairOptions, check, repair};
use proto::storeio::{StoreKey, Table};
use proto::system::{SessionRecord, session_flags};
use proto::{RankId, SessionId, Writer};
use std::collections::BTreeMap;

#[test]
fn a_stopped_servers_folder_is_clean() {
    let folder = stopped();
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!((report.directories, report.files, report.journal_operations), (5, 11, 0), "{report:#?}");
    assert_eq!(report.data_objects, 6 + 3, "{report:#?}");
    let again = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert_eq!(again, report);
}

#[test]
fn a_killed_servers_folder_is_clean_and_its_tail_is_seen() {
    let folder = crashed();
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(report.journal_operations > 30, "{report:#?}");
    assert_eq!(report.directories, 7);
}

#[test]
fn a_folder_in_use_is_not_touched() {
    let folder = stopped();
    let server = serve(&folder.path);
    let Err(FsckError::InUse { by, .. }) = check(&folder.path) else { panic!("examined while served") };
    assert!(by.starts_with(&format!("pid {}", std::process::id())), "{by}");
    assert!(matches!(repair(&folder.path, &RepairOptions::default()), Err(FsckError::InUse { .. })));
    server.stop().expect("stop");
}

/// Damage that needs a repair, but nothing of the journal's tail: all of it must survive the fold.
#[test]
fn folding_the_journal_keeps_everything() {
    let folder = crashed();
    let meta = common::Meta::open(&folder.path);
    meta.put_at(1, Table::System, b"stranger", b"?");
    meta.close();
    let before = check(&folder.path).expect("checked");
    let after = repair(&folder.path, &RepairOptions::default()).expect("repaired");
    assert!(after.is_clean() && after.is_changed(), "{before:#?} {after:#?}");
    let report = check(&folder.path).expect("checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(report.journal_operations, 0);
    let server = serve(&folder.path);
    let fs = attach(&server);
    for (name, seed, len) in FILES {
        assert_eq!(fs.read(name).expect("read"), content(seed, len), "{name}");
    }
    assert_eq!(fs.read("d/cut").expect("read").len(), 10);
    let names = listing(&fs);
    for name in ["/a/name2", "/a/symlink", "/d/device", "/life0/file", "/life1/file"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    server.stop().expect("stop");
    drop((fs, server));
    assert!(check(&folder.path).expect("checked").is_clean());
}

/// What broke: a repair forgot that a session was evicted, so that its client would have been let in again; then it forgot the
/// session, so that a server that started at once did not wait for what that client kept.
#[test]
fn a_session_is_evicted_after_a_repair_too() {
    let folder = crashed();
    let (evicted, other) = (SessionId(1 << 40), SessionId(1 << 41));
    let meta = common::Meta::open(&folder.path);
    for (id, flags) in [(evicted, session_flags::EVICTED), (other, session_flags::KEEPS_NOTHING)] {
        let record = SessionRecord { flags, ..SessionRecord::default() };
        let mut w = Writer::new();
        record.encode(&mut w);
        meta.put(StoreKey::Session { rank: RankId(0), id }, &w.0);
    }
    meta.put_at(1, Table::System, b"stranger", b"?");
    meta.close();
    assert!(repair(&folder.path, &RepairOptions::default()).expect("repaired").is_changed());
    let meta = common::Meta::open(&folder.path);
    let sessions = meta.all(Table::System).into_iter().filter(|record| record.key[0] == 1);
    let flags: BTreeMap<u64, u8> = sessions
        .map(|record| {
            let id = u64::from_be_bytes(record.key[1..9].try_into().expect("a number"));
            (id, SessionRecord::decode(&record.value).expect("a record").flags)
        })
        .collect();
    meta.close();
    assert_eq!((flags.get(&evicted.0), flags.get(&other.0)), (Some(&session_flags::EVICTED), Some(&0)));
}
