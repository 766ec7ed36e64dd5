//! Loading whole directories: what it may take, and when it is left alone.

use super::*;
use crate::WarmState;
use crate::config::Prefetch;
use crate::op::OpId;
use stdx::Prng;

const DIRS: u64 = 40;
const NAMES: u64 = 100;
const CACHE: u64 = 256 << 10;

/// Directories whose names are all in the store and none in the cache, which holds some twelve of the forty.
fn world(prefetch: Prefetch, cache: u64) -> (World, Vec<NodeRef>) {
    let mut w = World::with(|c| {
        c.cache_bytes = cache;
        c.prefetch = prefetch;
        c.limits.scan_entries = 32;
        c.limits.load_entries = 1_000;
        c.limits.forget = 4;
    });
    let mut dirs = Vec::new();
    for d in 0..DIRS {
        let dir = w.mkdir(root(), &format!("d{d}"));
        for name in 0..NAMES {
            w.create(dir, &format!("{name}"));
        }
        dirs.push(dir);
    }
    w.checkpoint();
    w.drop_cache();
    w.pass(100);
    w.max_bytes = 0;
    (w, dirs)
}

#[test]
fn whole_directories_stay_within_the_cache_while_they_are_loaded() {
    let (mut w, dirs) = world(Prefetch::Full, CACHE);
    assert!(w.rank.status().cached < 100, "{:?}", w.rank.status());
    // Everybody asks before anything is answered.
    w.hold_loads = true;
    for round in 0..20 {
        for (d, dir) in dirs.iter().enumerate() {
            let name = n(&format!("{}", (d + 7 * round) % NAMES as usize));
            w.start(EMBEDDED, Cred::ROOT, Request::Lookup { parent: *dir, name });
        }
        w.hold_loads = true;
        while let Some(answer) = w.held.pop_front() {
            w.inject(answer);
        }
    }
    w.let_go();
    assert_eq!(w.rank.status().parked, 0);
    assert!(w.rank.status().loaded_ahead > 4 * NAMES, "{:?}", w.rank.status());
    assert!(w.max_bytes < CACHE + CACHE / 4, "{} of {CACHE}: {:?}", w.max_bytes, w.rank.status());
}

/// What broke: a search that had asked two ranks and then the store was woken by the second one's answer, took it for the store's, and did
/// not find what is there.
#[test]
fn an_operation_that_waits_for_the_store_is_woken_by_nobody_else() {
    let (mut w, dirs) = world(Prefetch::Auto, 8 << 20);
    w.hold_loads = true;
    let tid = w.start(EMBEDDED, Cred::ROOT, Request::Lookup { parent: dirs[0], name: n("7") });
    let waits: Vec<OpId> = w.rank.parked.keys().copied().collect();
    assert_eq!(waits.len(), 1);
    w.rank.look_again(waits);
    assert!(w.rank.runnable.is_empty());
    w.let_go();
    assert!(w.answer(EMBEDDED, tid).is_some_and(|outcome| outcome.is_ok()));
}

#[cfg(feature = "mutants")]
#[test]
fn an_operation_that_is_woken_from_the_store_is_caught() {
    stdx::mutant::activate(Some("mds_woken_from_store"));
    let verdict = std::panic::catch_unwind(an_operation_that_waits_for_the_store_is_woken_by_nobody_else);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// Asks for names at random. Returns the share of names that were loaded ahead.
fn ask(w: &mut World, dirs: &[NodeRef], count: u64) -> f64 {
    let mut p = Prng::new(1);
    let before = w.rank.status().loaded_ahead;
    for _ in 0..count {
        let (dir, name) = (dirs[p.index(dirs.len())], p.below(NAMES));
        w.lookup(dir, &format!("{name}")).expect("it is there");
    }
    (w.rank.status().loaded_ahead - before) as f64 / count as f64
}

#[test]
fn a_cache_that_holds_everything_is_filled_by_directories() {
    let (mut w, dirs) = world(Prefetch::Auto, 8 << 20);
    ask(&mut w, &dirs, 4_000);
    assert!(w.rank.status().loaded_ahead >= DIRS * NAMES);
    let loads = w.rank.status().loads;
    ask(&mut w, &dirs, 1_000);
    assert_eq!(w.rank.status().loads, loads, "everything is known");
}

/// Each of many directories is asked for a few names: reading them whole would cost many times what is asked for.
#[test]
fn a_directory_is_loaded_when_single_names_have_cost_about_as_much() {
    let (mut w, dirs) = world(Prefetch::Auto, 8 << 20);
    let mut lookup = |name: u64| {
        w.lookup(dirs[0], &format!("{name}")).expect("it is there");
        w.rank.status().loaded_ahead
    };
    let before = lookup(0);
    for name in 1..NAMES / 4 - 1 {
        assert_eq!(lookup(name), before, "after {name}");
    }
    lookup(NAMES / 4);
    assert!(lookup(NAMES / 4) > before + NAMES / 2);
}

#[test]
fn directories_that_are_thrown_away_unused_are_no_longer_loaded() {
    let (mut w, dirs) = world(Prefetch::Auto, 96 << 10);
    ask(&mut w, &dirs, 2_000);
    assert!(w.rank.status().loaded_ahead > 0, "it is tried");
    let share = ask(&mut w, &dirs, 10_000);
    assert!(share < 0.2, "{share} names loaded ahead for each that was asked for");
    // What is small against the cache and used is loaded again.
    let few = &dirs[..2];
    ask(&mut w, few, 4_000);
    let loads = w.rank.status().loads;
    ask(&mut w, few, 1_000);
    assert!(w.rank.status().loads < loads + 100, "{:?}", w.rank.status());
}

#[test]
fn a_warmed_tree_needs_no_loads_any_more() {
    let (mut w, dirs) = world(Prefetch::Keyed, 8 << 20);
    let under = w.mkdir(dirs[1], "under");
    w.create(under, "deep");
    w.checkpoint();
    w.drop_cache();
    w.path("/").expect("the root");
    w.inject(Input::Warmup { dir: Some(Ino::ROOT) });
    let status = w.rank.warm_status();
    assert_eq!((status.state, status.waiting), (WarmState::Done, 0), "{status:?}");
    // The root and `under` besides.
    assert_eq!((status.dirs, status.names), (DIRS + 2, DIRS * NAMES + DIRS + 2), "{status:?}");
    // What is in use is cached already.
    assert!((DIRS * NAMES..=status.names).contains(&status.loaded), "{status:?}");
    let loads = w.rank.status().loads;
    ask(&mut w, &dirs, 1_000);
    for dir in &dirs {
        w.attr(Request::GetAttr { node: *dir }).expect("with its header");
    }
    assert_eq!(w.lookup(under, "none"), Err(Errno::ENOENT));
    w.lookup(under, "deep").expect("it is there");
    assert_eq!((w.rank.status().loads, w.rank.status().loaded_ahead), (loads, 0), "everything is known");
    // Again, with all known and one directory gone that the store still has.
    w.unlink(under, "deep").expect("unlinked");
    w.call(Request::RmDir { parent: dirs[1], name: n("under") }).expect("removed");
    w.inject(Input::Warmup { dir: Some(Ino::ROOT) });
    let status = w.rank.warm_status();
    assert_eq!((status.state, status.dirs), (WarmState::Done, DIRS + 1), "{status:?}");
    assert!(status.names > DIRS * NAMES && status.loaded == 0, "nothing was missing: {status:?}");
    assert!(w.notes.iter().all(|note| !note.contains("load")), "{:?}", w.notes);
}

#[test]
fn warming_stops_before_the_cache_is_full() {
    let (mut w, dirs) = world(Prefetch::Keyed, CACHE);
    w.path("/").expect("the root");
    w.max_bytes = 0;
    w.inject(Input::Warmup { dir: Some(Ino::ROOT) });
    assert_eq!(w.rank.warm_status().state, WarmState::Full);
    assert!(w.max_bytes < CACHE + CACHE / 4, "{} of {CACHE}", w.max_bytes);
    w.inject(Input::Warmup { dir: Some(Ino((1 << 48) + 7)) });
    assert_eq!(w.rank.warm_status().state, WarmState::Nowhere);
    ask(&mut w, &dirs, 100);
}

/// A search looks at one place after the other; each was right when its load began.
#[test]
fn who_moves_behind_a_search_and_is_forgotten_again_is_found() {
    let mut w = World::new();
    let first = w.create(root(), "a");
    w.rename((root(), "a"), (root(), "b"), 0).expect("free");
    w.checkpoint();
    w.drop_cache();
    w.hold_loads = true;
    let tid = w.start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: first });
    for _ in 0..2 {
        // It is not `a` any more; the backpointer says `b`.
        let answer = w.held.pop_front().expect("a place to look at");
        w.inject(answer);
    }
    w.hold_loads = false;
    let late = std::mem::take(&mut w.held);
    assert_eq!(late.len(), 1, "`b` as the store had it");
    w.rename((root(), "b"), (root(), "c"), 0).expect("free");
    w.checkpoint();
    w.drop_cache();
    late.into_iter().for_each(|answer| w.inject(answer));
    let found = w.answer(EMBEDDED, tid);
    assert!(matches!(found, Some(Ok(Reply::Attr(attr))) if attr.ino == first.ino), "{found:?}");
}

#[cfg(feature = "mutants")]
#[test]
fn a_search_that_gives_up_too_soon_is_caught() {
    stdx::mutant::activate(Some("mds_moved_is_gone"));
    let verdict = std::panic::catch_unwind(who_moves_behind_a_search_and_is_forgotten_again_is_found);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// The same record under two names is damage. It was taken for an absent name: what made it anew had lost what was behind it.
#[test]
fn a_second_name_of_an_inode_is_told_and_not_taken_for_an_absent_one() {
    for prefetch in [Prefetch::Keyed, Prefetch::Full] {
        let mut w = World::with(|c| c.prefetch = prefetch);
        let dir = w.mkdir(root(), "d");
        w.create(dir, "f");
        w.create(dir, "g");
        w.checkpoint();
        w.drop_cache();
        let key = |name: &str| {
            key_bytes(StoreKey::head(dir.ino, name_hash(&SEED, name.as_bytes()), name.as_bytes()))
        };
        let record = w.store[&key("f")].clone();
        w.store.insert(key("g"), record);
        // Whichever is cached is the first one.
        let ino = DentryValue::decode(&w.store[&key("f")]).expect("a record").ino();
        let both = |w: &mut World| ["f", "g"].map(|name| w.lookup(dir, name).map(|attr| attr.ino));
        let told = [both(&mut w), both(&mut w)];
        let may_be = [[Ok(ino), Err(Errno::EIO)], [Err(Errno::EIO), Ok(ino)]];
        assert!(told.iter().all(|told| may_be.contains(told)), "{told:?}");
        let note = format!(
            "damage: in directory {} the name {:?} is of inode {}, which has another name",
            dir.ino.0,
            if told[1][0].is_ok() { "g" } else { "f" },
            ino.0
        );
        assert!(w.notes.contains(&note), "{:?}", w.notes);
        for name in ["f", "g"] {
            let make = Request::MkNod { parent: dir, name: n(name), new: mode(0o100_644) };
            assert!(matches!(w.call(make), Err(Errno::EIO | Errno::EEXIST)), "it is not free");
        }
        // Listed whole, too, which brings both.
        assert!(w.call(Request::ReadDir { dir, after: 0, attrs: true, bytes_max: 4_096 }).is_ok());
        w.pass(100);
        assert!(may_be.contains(&both(&mut w)));
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_second_name_that_is_taken_for_an_absent_one_is_caught() {
    stdx::mutant::activate(Some("mds_second_name_is_absent"));
    let verdict = std::panic::catch_unwind(a_second_name_of_an_inode_is_told_and_not_taken_for_an_absent_one);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}
