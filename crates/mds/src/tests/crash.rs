//! Crashes: replay gives back what was durable, wherever the checkpoint was.

use super::*;
use proto::SetAttr;
use proto::request::XattrMode;
use proto::request::rename_flags::EXCHANGE;
use proto::storeio::Cut;
use stdx::Prng;

/// Names used by the random workload: few, so that operations meet.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "a-name-that-does-not-fit-in-a-node"];

fn name(p: &mut Prng) -> &'static str {
    NAMES[p.index(NAMES.len())]
}

/// A directory of the tree, by a random walk.
fn somewhere(w: &mut World, p: &mut Prng) -> NodeRef {
    let mut at = root();
    for _ in 0..p.below(4) {
        match w.lookup(at, name(p)) {
            Ok(attr) if attr.mode & 0o170_000 == 0o040_000 => at = node(&attr),
            _ => {}
        }
    }
    at
}

/// One random operation; errors are fine.
fn step(w: &mut World, p: &mut Prng) {
    let (parent, at) = (somewhere(w, p), name(p));
    let found = w.lookup(parent, at).map(|a| node(&a));
    match (p.below(16), found) {
        (0..=2, _) => drop(w.call(Request::MkDir { parent, name: n(at), new: mode(0o755) })),
        (3..=5, _) => drop(w.call(Request::MkNod { parent, name: n(at), new: mode(0o100_644) })),
        (6, Ok(_)) => drop(w.unlink(parent, at)),
        (7, Ok(_)) => drop(w.call(Request::RmDir { parent, name: n(at) })),
        (8 | 9, Ok(_)) => {
            let (to, new) = (somewhere(w, p), name(p));
            let flags = if p.chance(1, 3) { EXCHANGE } else { 0 };
            drop(w.rename((parent, at), (to, new), flags));
        }
        (10, Ok(node)) => {
            let (to, new) = (somewhere(w, p), name(p));
            drop(w.call(Request::Link { node, parent: to, name: n(new) }));
        }
        (11 | 12, Ok(node)) => drop(w.write(node, p.below(100), &[1; 50])),
        (13, Ok(node)) => {
            let set = SetAttr {
                mode: Some(p.below(0o1000) as u32),
                size: Some(p.below(150)),
                ..Default::default()
            };
            let set =
                if p.chance(1, 2) { SetAttr { size: None, ..set } } else { SetAttr { mode: None, ..set } };
            drop(w.call(Request::SetAttr { node, set }));
        }
        (14, Ok(node)) => {
            let value = vec![p.below(256) as u8; p.below(40) as usize].into();
            drop(w.call(Request::SetXattr { node, name: n("user.x"), value, mode: XattrMode::Either }));
        }
        (15, _) => w.drop_cache(),
        _ => {}
    }
}

/// Header counts of everything equal a recount, in cache and store after a checkpoint.
fn recount(w: &mut World) {
    w.checkpoint();
    let mut counts: BTreeMap<Ino, (u64, u64)> = BTreeMap::new();
    let mut inodes: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut headers: BTreeMap<Ino, FragHeader> = BTreeMap::new();
    let mut remotes: BTreeMap<Ino, u32> = BTreeMap::new();
    for ((table, key), value) in &w.store {
        match StoreKey::decode(*table, key).expect("key") {
            StoreKey::Dentry { dir, .. } => {
                let count = counts.entry(dir).or_default();
                count.0 += 1;
                match DentryValue::decode(value).expect("value") {
                    DentryValue::Primary(record) => {
                        count.1 += u64::from(record.core.mode & 0o170_000 == 0o040_000);
                        assert!(inodes.insert(record.core.ino, record.core.nlink).is_none(), "twice");
                    }
                    DentryValue::Remote { ino, .. } => *remotes.entry(ino).or_default() += 1,
                }
            }
            StoreKey::Header { dir, .. } => {
                drop(headers.insert(dir, FragHeader::decode(value).expect("header")))
            }
            _ => {}
        }
    }
    for (ino, names) in remotes {
        assert_eq!(inodes.get(&ino), Some(&names), "links of {ino:?}");
    }
    for (dir, header) in &headers {
        let (entries, subdirs) = counts.remove(dir).unwrap_or_default();
        assert_eq!((header.entries, header.subdirs), (entries, subdirs), "{dir:?}");
    }
    assert!(counts.is_empty(), "entries without a header: {counts:?}");
    for dir in headers.keys().filter(|dir| !dir.is_reserved()) {
        assert!(inodes.contains_key(dir), "header of a directory that is gone: {dir:?}");
    }
}

#[test]
fn replay_gives_back_the_tree_once_and_twice() {
    for seed in 0..60 {
        let mut p = Prng::new(seed);
        let mut w = World::new();
        for _ in 0..p.range(50, 400) {
            step(&mut w, &mut p);
            if p.chance(1, 60) {
                w.checkpoint();
            }
        }
        let before = w.tree();
        w.crash();
        assert_eq!(w.tree(), before, "seed {seed}");
        w.crash();
        assert_eq!(w.tree(), before, "seed {seed}, again");
        for _ in 0..50 {
            step(&mut w, &mut p);
        }
        let before = w.tree();
        recount(&mut w);
        w.crash();
        assert_eq!(w.tree(), before, "seed {seed}, later");
    }
}

#[test]
fn a_crash_anywhere_in_a_checkpoint_loses_nothing() {
    for stores in 0..40 {
        let mut p = Prng::new(stores as u64);
        let mut w = World::new();
        for _ in 0..200 {
            step(&mut w, &mut p);
        }
        w.stores_left = Some(stores);
        w.inject(Input::Checkpoint);
        for _ in 0..60 {
            w.pass(1);
            if p.chance(1, 2) {
                step(&mut w, &mut p);
            }
        }
        let before = w.tree();
        w.crash();
        assert_eq!(w.tree(), before, "after {stores} store requests");
        recount(&mut w);
        w.crash();
        assert_eq!(w.tree(), before, "and after the next checkpoint");
    }
}

#[test]
fn what_was_not_durable_is_gone_as_a_whole() {
    for seed in 100..130 {
        let mut p = Prng::new(seed);
        let mut w = World::with(|c| c.journal_bytes = 1 << 30);
        w.auto_durable = false;
        let mut durable = w.tree();
        for _ in 0..150 {
            step(&mut w, &mut p);
            if p.chance(1, 10) {
                w.sync();
                w.pass(1);
                durable = w.tree();
                assert_eq!(w.durable, w.journal.len(), "reading appends nothing");
            }
        }
        w.crash();
        assert_eq!(w.tree(), durable, "seed {seed}");
    }
}

#[test]
fn inode_numbers_and_versions_are_never_used_twice() {
    let mut w = World::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut version = 0;
    for round in 0..5 {
        w.auto_durable = false;
        for i in 0..30 {
            let f = w.create(root(), &format!("f{round}-{i}"));
            assert!(seen.insert(f.ino), "{:?}", f.ino);
        }
        let slot = w.rank.view.cache.find_dir(Ino::ROOT).expect("root");
        let now = w.rank.view.cache.dir(slot).header.version.0;
        assert!(now > version + (1 << 19), "a new life jumps");
        version = now;
        w.crash();
    }
}

#[test]
fn a_failed_store_keeps_everything_and_the_next_checkpoint_succeeds() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    for i in 0..50 {
        w.create(d, &format!("{i}"));
    }
    let before = w.tree();
    w.store_fails = Some(StoreError::NoSpace);
    w.inject(Input::Checkpoint);
    w.pass(5);
    assert_eq!(w.rank.status().checkpoints, 0);
    assert!(w.stored(d.ino, "7").is_none());
    assert_eq!(w.tree(), before);
    w.store_fails = None;
    w.pass(3_000);
    assert_eq!(w.rank.status().checkpoints, 1);
    assert!(w.stored(d.ino, "7").is_some());
    w.crash();
    assert_eq!(w.tree(), before);
}

/// What broke: rounds are counted modulo 256, and checkpoints that fail count. What none of them had come to counted as new, and a
/// checkpoint that was none of it moved the position past it.
#[test]
fn what_many_failed_checkpoints_did_not_come_to_is_stored() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    for i in 0..50 {
        w.create(d, &format!("{i}"));
    }
    let (before, round) = (w.tree(), w.rank.view.cache.round);
    w.store_fails = Some(StoreError::NoSpace);
    w.inject(Input::Checkpoint);
    while w.rank.view.cache.round != round.wrapping_sub(1) {
        w.pass(1_000);
    }
    w.store_fails = None;
    w.pass(3_000);
    assert_eq!(w.rank.status().checkpoints, 1);
    w.crash();
    assert_eq!(w.tree(), before);
}

#[cfg(feature = "mutants")]
#[test]
fn rounds_that_wrap_are_caught() {
    stdx::mutant::activate(Some("mds_rounds_wrap"));
    let verdict = std::panic::catch_unwind(what_many_failed_checkpoints_did_not_come_to_is_stored);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// Who waits for a checkpoint that begins behind the one under way has it with the next that succeeds.
#[test]
fn a_checkpoint_that_failed_is_not_waited_for_twice() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    for i in 0..50 {
        w.create(d, &format!("{i}"));
    }
    w.hold_stores = true;
    w.inject(Input::Checkpoint);
    w.pass(5);
    assert!(w.rank.view.cache.checkpointing);
    let until = w.rank.next_checkpoint();
    assert_eq!(until, 2);
    w.store_fails = Some(StoreError::NoSpace);
    w.let_go();
    w.pass(20);
    assert!(!w.rank.view.cache.checkpointing, "it has failed");
    w.store_fails = None;
    w.pass(3_000);
    assert_eq!((w.rank.checkpoint.last, w.rank.status().checkpoints), (until, 1));
}

/// The store may carry out what is under way in any order.
#[test]
fn the_header_of_a_split_directory_is_stored_after_its_entries() {
    let mut w = World::with(|c| c.limits.store_bytes = 1 << 20);
    let d = w.mkdir(root(), "d");
    for i in 0..100 {
        w.create(d, &format!("{i}"));
    }
    w.hold_stores = true;
    w.inject(Input::Checkpoint);
    w.pass(20);
    let header = key_bytes(StoreKey::Header { dir: d.ino, frag: Frag::WHOLE });
    assert!(w.held.len() > 1);
    while let Some(done) = w.held.pop_front() {
        assert!(!w.store.contains_key(&header), "some of its entries may be lost");
        w.hold_stores = !w.held.is_empty();
        w.inject(done);
    }
    w.pass(20);
    assert!(w.store.contains_key(&header));
}

#[cfg(feature = "mutants")]
#[test]
fn a_header_before_its_entries_is_caught() {
    stdx::mutant::activate(Some("mds_header_before_entries"));
    let verdict = std::panic::catch_unwind(the_header_of_a_split_directory_is_stored_after_its_entries);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn stop_leaves_everything_in_the_store() {
    let mut w = World::new();
    let d = w.mkdir(root(), "d");
    let f = w.create(d, "f");
    w.write(f, 0, b"x").expect("write");
    let before = w.tree();
    w.inject(Input::Stop);
    w.pass(100);
    assert_eq!(w.rank.state(), State::Stopped);
    w.crash();
    assert!(
        w.notes.iter().any(|note| note.starts_with("replayed 0 ") || note.starts_with("replayed 1 ")),
        "{:?}",
        w.notes
    );
    assert_eq!(w.tree(), before);
}

#[test]
fn the_cache_stays_within_its_limit() {
    let mut w = World::with(|c| c.cache_bytes = 128 << 10);
    let d = w.mkdir(root(), "d");
    for i in 0..3_000 {
        w.create(d, &format!("{i}"));
        if i % 50 == 0 {
            w.pass(20);
        }
    }
    w.pass(100);
    assert!(w.rank.status().cache_bytes < 200 << 10, "{:?}", w.rank.status());
    assert_eq!(w.list(d).len(), 3_000);
    assert!(w.rank.status().cache_bytes < 200 << 10);
    for i in (0..3_000).step_by(7) {
        assert!(w.lookup(d, &format!("{i}")).is_ok());
    }
}

#[test]
fn a_bad_journal_is_damage() {
    let mut w = World::new();
    w.create(root(), "f");
    w.journal.truncate(w.durable);
    let last = w.journal.len() - 5;
    w.journal[last] ^= 1;
    w.rank = Rank::new(w.config.clone());
    w.inbox.clear();
    w.inject(Input::Boot);
    assert_eq!(w.rank.state(), State::Damaged);
}

#[test]
fn stop_stores_a_header_whose_names_came_and_went() {
    let mut w = World::new();
    w.checkpoint();
    let f = w.create(root(), "f");
    w.unlink(root(), "f").expect("unlink");
    assert!(w.stored(Ino::ROOT, "f").is_none() && f.ino != Ino::NONE);
    w.hold_stores = true;
    w.inject(Input::Stop);
    w.pass(5);
    w.let_go();
    w.pass(100);
    assert_eq!(w.rank.state(), State::Stopped);
    let header = &w.store[&key_bytes(StoreKey::Header { dir: Ino::ROOT, frag: Frag::WHOLE })];
    let header = FragHeader::decode(header).expect("header");
    let slot = w.rank.view.cache.find_dir(Ino::ROOT).expect("root");
    assert_eq!(header.version, w.rank.view.cache.dir(slot).header.version);
}

/// Of a removal nothing but its tag is kept until the data store says that it is done.
#[test]
fn the_rank_is_at_rest_when_removed_data_is_gone() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"x").expect("write");
    w.checkpoint();
    assert!(w.rank.is_at_rest());
    w.hold_data = true;
    w.unlink(root(), "f").expect("unlink");
    w.pass(5);
    assert!(!w.rank.is_at_rest() && w.held.len() == 1);
    w.let_go();
    assert!(w.rank.is_at_rest());
    w.inject(Input::Stop);
    w.pass(100);
    assert_eq!(w.rank.state(), State::Stopped);
}

#[test]
fn what_a_lost_write_left_beyond_the_end_reads_as_zeros() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    w.write(f, 0, b"ab").expect("write");
    w.auto_durable = false;
    w.write(f, 4, b"LOST").expect("early");
    w.attr(Request::SetAttr { node: f, set: SetAttr { size: Some(1), ..Default::default() } })
        .expect("early");
    // Under a cut that is lost too: it may not touch the bytes before the cut is durable.
    let data = Payload::Owned(b"LOST".to_vec());
    let write = Request::Write { node: f, offset: 6, append: false, kill_suidgid: false, data };
    let tid = w.start(EMBEDDED, Cred::ROOT, write);
    assert_eq!(w.answer(EMBEDDED, tid), None);
    w.crash();
    assert_eq!(w.stat("/f").map(|a| a.size), Ok(2));
    let f = w.path("/f").expect("lookup");
    w.write(f, 12, b"new").expect("write");
    let bytes = w.read(f);
    assert_eq!(&bytes[2..], b"\0\0\0\0\0\0\0\0\0\0new");
    w.attr(Request::SetAttr { node: f, set: SetAttr { size: Some(2), ..Default::default() } }).expect("cut");
    w.attr(Request::SetAttr { node: f, set: SetAttr { size: Some(14), ..Default::default() } })
        .expect("grow");
    assert_eq!(&w.read(f)[2..], &[0; 12]);
}

/// What broke: of a file cut so often that its numbers were ahead of the incarnation's, two lives gave out the same number.
#[test]
fn a_cut_that_a_crash_took_back_is_not_taken_for_the_next_one() {
    let mut w = World::new();
    let f = w.create(root(), "f");
    let size = |size| SetAttr { size: Some(size), ..Default::default() };
    for _ in 0..3000 {
        w.attr(Request::SetAttr { node: f, set: size(2) }).expect("longer");
        w.attr(Request::SetAttr { node: f, set: size(1) }).expect("cut");
    }
    w.checkpoint();
    for life in 0..3 {
        w.crash();
        let f = w.path("/f").expect("lookup");
        w.auto_durable = false;
        w.write(f, 4, b"LOST").expect("early");
        w.crash();
        let f = w.path("/f").expect("lookup");
        w.auto_durable = false;
        w.attr(Request::SetAttr { node: f, set: size(8) }).expect("longer");
        assert_eq!(w.read(f)[1..], [0; 7], "life {life}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_cut_number_given_out_again_is_caught() {
    stdx::mutant::activate(Some("mds_cut_number_again"));
    let verdict = std::panic::catch_unwind(a_cut_that_a_crash_took_back_is_not_taken_for_the_next_one);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: the record keeps one cut. A file of a former life was cut where it ended, grew, the rank died, and
/// the next growth's cut took the place of one that the disk had never seen: bytes behind the first were back.
#[test]
fn the_cut_before_a_file_of_a_former_life_grows_is_carried_out_by_replay() {
    let mut w = World::new();
    let file = w.create(root(), "f");
    w.write(file, 0, b"abc").expect("written");
    w.checkpoint();
    w.crash();
    let file = w.path("f").expect("there");
    w.write(file, 3, b"def").expect("written");
    w.data_ops.clear();
    w.crash();
    let cuts: Vec<_> = w
        .data_ops
        .iter()
        .filter_map(|op| match op {
            DataOp::Truncate { file: cut, .. } if cut.ino == file.ino => Some(op.clone()),
            _ => None,
        })
        .collect();
    assert!(matches!(cuts[..], [DataOp::Truncate { cut: Cut { size: 3, .. }, .. }]), "{cuts:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_cut_that_is_not_journaled_is_caught() {
    stdx::mutant::activate(Some("mds_end_cut_unjournaled"));
    let verdict =
        std::panic::catch_unwind(the_cut_before_a_file_of_a_former_life_grows_is_carried_out_by_replay);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
