//! `dir.pin`: set, read back, taken away, remembered for a rank to come; entries of the map that come and go with it.
//!
//! Absent: what moves (`moves.rs`).

use super::*;

/// Ranks below that may be given something.
fn max_mds(c: &mut Cluster, max: u16) {
    c.map.max_mds = max;
    c.publish();
    c.settle();
}

fn unpin(dir: NodeRef) -> Request {
    Request::RemoveXattr { node: dir, name: n("pando.dir.pin") }
}

#[test]
pub(crate) fn a_pin_is_read_back_and_taken_away() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.create(dir, "f");
    assert_eq!(c.pin_of(dir), Err(Errno::ENODATA));
    assert_eq!(c.pin_as(dir, " 1 "), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!((c.owner(dir), c.pin_of(dir)), (Some(1), Ok("1".to_owned())));
    c.create(dir, "g");
    // What inherits goes with it, and has no entry then.
    assert_eq!(c.pin_as(dir, "-1"), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!((c.owner(dir), c.pin_of(dir)), (None, Err(Errno::ENODATA)));
    assert_eq!(c.map.last_move, MoveId(2), "there and back");
    assert!(matches!(c.ask(0, Request::Lookup { parent: dir, name: n("g") }), Answered::Outcome(Ok(_))));
    assert_eq!(c.ask(1, Request::Lookup { parent: dir, name: n("g") }), NOT_MINE(0));
    assert_eq!(c.pin_as(dir, "-1"), Ok(Reply::Ok));
    assert_eq!(c.call(0, unpin(dir)), Err(Errno::ENODATA));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    assert_eq!(c.call(0, unpin(dir)), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!((c.owner(dir), c.pin_of(dir)), (None, Err(Errno::ENODATA)));
    let list = c.call(0, Request::ListXattr { node: dir });
    assert_eq!(list, Ok(Reply::XattrNames(b""[..].into())), "never listed");
    for rank in 0..2 {
        c.crash(rank);
    }
    assert_eq!((c.names(dir), c.pin_of(dir)), (vec!["f".to_owned(), "g".to_owned()], Err(Errno::ENODATA)));
}

/// Wherever it is pinned to, and whoever is asked first: it ends where its slot is.
#[test]
pub(crate) fn a_pin_of_what_a_slot_places_is_taken_away() {
    for (pinned_to, filled) in [(0, true), (1, true), (2, true), (2, false)] {
        let mut c = Cluster::with_slots_of(3);
        let dir = c.dir_at(root(), 1);
        if filled {
            let sub = c.mkdir(dir, "sub");
            assert_eq!(c.pin(sub, 0), Ok(Reply::Ok), "an entry below stays");
            c.create(dir, "f");
        }
        for at in 0..3 {
            c.drop_cache(at);
        }
        assert_eq!(c.pin(dir, pinned_to), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
        assert_eq!((c.owner(dir), c.slot_owner(dir)), (Some(pinned_to), 1));
        assert_eq!(c.pin_as(dir, "-1"), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
        assert_eq!((c.owner(dir), c.pin_of(dir)), (None, Err(Errno::ENODATA)));
        let names: &[&str] = if filled { &["f", "sub"] } else { &[] };
        assert_eq!(c.names(dir), names);
        let lookup = || Request::Lookup { parent: dir, name: n("f") };
        assert_eq!(c.ask(0, lookup()), NOT_MINE(1));
        assert!(matches!(c.ask(1, lookup()), Answered::Outcome(_)));
        assert_eq!(c.call(0, unpin(dir)), Err(Errno::ENODATA));
        // It is its slot's again, and goes with it.
        assert_eq!(c.move_slot(dir), 0, "{:?}", c.worlds[1].notes);
        c.create(dir, "g");
        assert!(matches!(c.ask(0, Request::Lookup { parent: dir, name: n("g") }), Answered::Outcome(Ok(_))));
        for at in [1, 0, 2] {
            c.crash(at);
        }
        assert_eq!((c.names(dir).len(), c.pin_of(dir)), (names.len() + 1, Err(Errno::ENODATA)));
    }
}

/// With each rank, and all, dying meanwhile, each after other things have happened, and living again.
#[test]
fn a_pin_of_what_a_slot_places_is_taken_away_whoever_dies() {
    for (at, who) in [vec![0], vec![1], vec![2], vec![0, 1, 2]].into_iter().enumerate() {
        let mut things = at;
        loop {
            let mut c = Cluster::with_slots_of(3);
            let dir = c.dir_at(root(), 1);
            c.create(dir, "f");
            assert_eq!(c.pin(dir, 2), Ok(Reply::Ok));
            c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
            let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, unpin(dir));
            let more = (0..things).all(|_| {
                if !c.one_thing() {
                    (0..3).for_each(|at| c.hold(at).pass(1));
                }
                c.take_answer(0, EMBEDDED, tid).is_none()
            });
            who.iter().for_each(|rank| c.crash(*rank));
            c.worlds.iter_mut().for_each(|world| world.auto_durable = true);
            (0..3).for_each(|at| c.hold(at).sync());
            c.pass(50);
            // Who asked is told nothing, or a refusal, and asks again.
            let again = (0..8).find_map(|_| match c.call(0, unpin(dir)) {
                Ok(Reply::Ok) | Err(Errno::ENODATA) => Some(()),
                Err(Errno::EBUSY) => {
                    c.pass(1_000);
                    None
                }
                other => panic!("{other:?}: {who:?} after {things}"),
            });
            assert_eq!(again, Some(()), "{who:?} after {things}");
            // Where it was pinned to nobody wants it any more, not even later.
            c.pass(if more { 50 } else { 25_000 });
            let found = (c.owner(dir), c.pin_of(dir), c.names(dir));
            assert_eq!(found, (None, Err(Errno::ENODATA), vec!["f".to_owned()]), "{who:?} after {things}");
            let lookup = Request::Lookup { parent: dir, name: n("f") };
            assert_eq!(c.ask(0, lookup.clone()), NOT_MINE(1), "{who:?} after {things}");
            assert!(matches!(c.ask(1, lookup), Answered::Outcome(Ok(_))), "{who:?} after {things}");
            if !more {
                break;
            }
            things += 4;
        }
        assert!(things > 8, "{things} things happen");
    }
}

/// What broke: the inode's home moved to the rank that was asked, and back, while that one looked for it; who took the pin away was told ESTALE.
#[test]
pub(crate) fn a_pin_is_taken_away_although_its_home_was_lost_sight_of() {
    let mut c = Cluster::with_slots_of(3);
    let dir = c.dir_at(root(), 1);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    let asks = |message: &ClientMsg| match message.asked() {
        Some((tid, Request::Unpin { .. })) => Some(tid),
        Some(_) | None => None,
    };
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, unpin(dir));
    let asked = (0..5_000).find_map(|_| {
        let at = c.worlds[0].to_ranks.iter().position(|(_, message)| asks(message).is_some());
        if at.is_none() {
            c.go_on();
        }
        c.worlds[0].to_ranks.remove(at?)
    });
    let (rank, message) = asked.expect("the rank with the slot is asked");
    let told = ServerMsg::Reply { tid: asks(&message).expect("its number"), outcome: Err(Errno::ESTALE) };
    c.inject(0, Input::FromRank { rank, message: Box::new(told) });
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!((c.owner(dir), c.pin_of(dir)), (None, Err(Errno::ENODATA)));
}

/// What broke: a pin waited for its turn behind the move of its own slot, and was refused (EBUSY) when that had gone.
#[test]
pub(crate) fn a_pin_behind_the_move_of_its_slot_is_asked_of_who_has_it_then() {
    let mut c = Cluster::with_slots_of(3);
    let dir = c.dir_at(root(), 1);
    c.create(dir, "f");
    let number = ClusterMap::slot_of(dir.ino, Frag::WHOLE);
    c.worlds[1].auto_durable = false;
    c.slots_begin(number..number + 1, 0);
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 2));
    c.worlds[1].auto_durable = true;
    c.hold(1).sync();
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[1].notes);
    assert_eq!((c.owner(dir), c.slot_owner(dir)), (Some(2), 0));
}

/// What broke: that an old move could not be given up any more ended a pin that was asked for since (EBUSY), and the pin came to be.
#[test]
pub(crate) fn an_old_refusal_ends_no_new_wish() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    c.deaf = true;
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 0));
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    assert!(matches!(c.worlds[0].wishes.front(), Some(MapWish::Make { unit: of, .. }) if *of == unit));
    let wish = MapWish::Abort { unit, id: MoveId(1) };
    c.inject(0, Input::WishRefused { wish, reason: "move 1: not under way".into() });
    c.deaf = false;
    assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert_eq!((c.owner(dir), c.pin_of(dir)), (Some(0), Ok("0".to_owned())));
}

#[test]
fn values_are_checked() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    for (value, errno) in [
        ("x", Errno::EINVAL),
        ("", Errno::EINVAL),
        ("1.5", Errno::EINVAL),
        ("256", Errno::EDOM),
        ("-2", Errno::EDOM),
        ("70000", Errno::EDOM),
        ("99999999999999999999", Errno::EDOM),
    ] {
        assert_eq!(c.pin_as(dir, value), Err(errno), "{value}");
    }
    assert_eq!(c.pin_as(root(), "1"), Err(Errno::EINVAL));
    assert_eq!(c.pin_as(file, "1"), Err(Errno::EINVAL));
    assert_eq!((c.pin_of(file), c.pin_of(dir)), (Err(Errno::EINVAL), Err(Errno::ENODATA)));
    let user = Cred { uid: 5, gid: 5, groups: Vec::new() };
    c.greet(0, Peer::User(user.clone()), Bits::NONE);
    let tid = c.start_as(0, REMOTE, user, unpin(dir));
    assert_eq!(c.wait(0, REMOTE, tid), Answered::Outcome(Err(Errno::EPERM)));
}

#[test]
fn a_pin_to_where_it_is_makes_an_entry_and_moves_nothing() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    // What stands in the way of a move is no matter.
    assert!(c.call(0, Request::Open { node: file, flags: 0 }).is_ok());
    let before = c.map.last_move;
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!((c.owner(dir), c.pin_of(dir), c.map.last_move), (Some(0), Ok("0".to_owned()), before));
    assert_eq!(c.map.entries[&Unit { dir: dir.ino, frag: Frag::WHOLE }].policy, Policy::Pin);
    // And it goes as it came.
    assert_eq!(c.pin_as(dir, "-1"), Ok(Reply::Ok));
    assert_eq!((c.owner(dir), c.map.last_move), (None, before));
    assert_eq!(c.names(dir), ["f"]);
}

#[test]
fn who_has_it_by_another_policy_keeps_it_by_name() {
    let (mut c, dir) = Cluster::with_moved();
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry").policy = Policy::Carved;
    c.publish();
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!((c.owner(dir), c.map.entries[&unit].policy), (Some(1), Policy::Pin));
}

#[test]
pub(crate) fn a_pin_to_a_rank_that_is_not_there_is_applied_when_it_is() {
    for dies in [false, true] {
        let mut c = Cluster::new();
        max_mds(&mut c, 1);
        let dir = c.mkdir(root(), "d");
        c.create(dir, "f");
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
        assert_eq!((c.owner(dir), c.pin_of(dir)), (Some(0), Ok("1".to_owned())));
        if dies {
            c.checkpoint(0);
            c.crash(0);
            // Nobody has looked at it since.
            max_mds(&mut c, 2);
            c.pass(50);
            assert_eq!(c.owner(dir), Some(0));
            assert!(c.lookup(root(), "d").is_ok());
        } else {
            max_mds(&mut c, 2);
        }
        c.pass(100);
        assert_eq!(c.owner(dir), Some(1), "{:?}", c.worlds[0].notes);
        assert_eq!((c.names(dir), c.pin_of(dir)), (vec!["f".to_owned()], Ok("1".to_owned())));
    }
}

/// What broke: a rank that lives again has the inode from its journal, and nothing of what is above. Whether the inode is at home there was
/// not known when it looked, and it never looked again.
#[test]
pub(crate) fn a_remembered_pin_waits_until_its_place_is_known() {
    let mut c = Cluster::of(3);
    max_mds(&mut c, 2);
    let other = c.mkdir(root(), "other");
    assert_eq!(c.pin(other, 1), Ok(Reply::Ok), "not everything is rank 0's");
    let top = c.mkdir(root(), "top");
    let dir = c.mkdir(top, "d");
    c.create(dir, "f");
    c.checkpoint(0);
    assert_eq!(c.pin(dir, 2), Ok(Reply::Ok));
    assert_eq!((c.owner(dir), c.pin_of(dir)), (Some(0), Ok("2".to_owned())));
    c.crash(0);
    max_mds(&mut c, 3);
    c.pass(50);
    assert_eq!(c.owner(dir), Some(0), "what is above is not cached");
    assert!(c.lookup(root(), "top").is_ok());
    c.pass(20_100);
    assert_eq!(c.owner(dir), Some(2), "{:?}", c.worlds[0].notes);
}

/// What broke: the coordinator began the move and gave it up with one map. Its owner waited for what had been, and saw nothing else that
/// was announced of the directory.
#[test]
pub(crate) fn a_move_that_was_given_up_before_a_map_said_it_is_over() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    let tid = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.deaf = true;
    c.pass(20);
    let wish = c.worlds[0].wishes.pop_front();
    assert!(matches!(wish, Some(MapWish::Begin { .. })), "{wish:?}");
    let (unit, version) = (crate::units::whole(dir.ino), c.map.version + 1);
    c.map.last_move = MoveId(c.map.last_move.0 + 1);
    Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry").version = version;
    c.publish();
    c.deaf = false;
    c.pass(1_000);
    let outcome = Answered::Outcome(Err(Errno::EBUSY));
    assert_eq!(c.take_answer(0, EMBEDDED, tid), Some(outcome), "not after leases");
    c.announce(unit, RankId(1));
    c.come_to_rest();
    assert_eq!(c.owner(dir), Some(1));
}

/// What broke: a pin is remembered, its entry is gone, and its slot is another rank's. Its home asked the coordinator itself, which refused
/// that, again and again. And where another entry had been made since, nobody looked at it.
#[test]
pub(crate) fn a_remembered_pin_without_an_entry_is_its_owners_to_carry_out() {
    for carved in [false, true] {
        let mut c = Cluster::with_slots();
        let dir = c.dir_at(root(), 1);
        c.create(dir, "f");
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
        let unit = crate::units::whole(dir.ino);
        // Somebody took it away and was gone before the inode was changed.
        let entries = Arc::make_mut(&mut c.map.entries);
        match carved {
            true => entries.get_mut(&unit).expect("an entry").policy = Policy::Carved,
            false => drop(entries.remove(&unit)),
        }
        c.publish();
        c.settle();
        c.pass(20_100);
        assert_eq!((c.owner(dir), c.pin_of(dir)), (Some(1), Ok("1".to_owned())), "{:?}", c.worlds[0].notes);
        assert_eq!(c.map.entries[&unit].policy, Policy::Pin);
        assert_eq!(c.names(dir), ["f"]);
    }
}

/// It is in the way of that now: it is tried again.
#[test]
fn a_remembered_pin_waits_for_what_is_open() {
    let mut c = Cluster::new();
    max_mds(&mut c, 1);
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    assert!(c.call(0, Request::Open { node: file, flags: 0 }).is_ok());
    max_mds(&mut c, 2);
    c.pass(100);
    assert_eq!(c.owner(dir), Some(0));
    assert!(c.call(0, Request::Release { node: file, count: 1 }).is_ok());
    c.pass(100);
    assert_eq!(c.owner(dir), Some(0), "not all the time");
    c.pass(20_000);
    assert_eq!(c.owner(dir), Some(1), "{:?}", c.worlds[0].notes);
}

#[test]
fn a_pin_from_the_home_is_applied_by_the_owner() {
    let (mut c, dir) = Cluster::with_moved();
    let inner = c.mkdir(dir, "inner");
    assert_eq!(c.pin(inner, 0), Ok(Reply::Ok));
    max_mds(&mut c, 1);
    assert_eq!(c.pin_as(inner, "1"), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!((c.owner(inner), c.pin_of(inner)), (Some(0), Ok("1".to_owned())));
    max_mds(&mut c, 2);
    c.pass(100);
    assert_eq!(c.owner(inner), Some(1), "{:?}", c.worlds[0].notes);
}

#[test]
fn several_at_once_are_carried_out_one_after_the_other() {
    let mut c = Cluster::new();
    let dirs: Vec<NodeRef> = ["a", "b", "c"].map(|name| c.mkdir(root(), name)).to_vec();
    let tids: Vec<Tid> =
        dirs.iter().map(|dir| c.hold(0).start(EMBEDDED, Cred::ROOT, Cluster::pin_request(*dir, 1))).collect();
    // The same again is the same, and another one waits for it.
    let again = c.hold(0).start(EMBEDDED, Cred::ROOT, Cluster::pin_request(dirs[0], 1));
    c.settle();
    for tid in tids.into_iter().chain([again]) {
        assert_eq!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    }
    for dir in dirs {
        assert_eq!(c.owner(dir), Some(1));
        c.create(dir, "f");
    }
}

#[test]
pub(crate) fn an_entry_goes_with_its_directory() {
    for dies in [false, true] {
        let (mut c, dir) = Cluster::with_moved();
        let inner = c.mkdir(dir, "inner");
        assert_eq!(c.pin(inner, 0), Ok(Reply::Ok));
        assert_eq!(c.owner(inner), Some(0));
        let tid = c.start(1, EMBEDDED, Request::RmDir { parent: dir, name: n("inner") });
        assert_eq!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
        if dies {
            c.crash(1);
        }
        c.pass(100);
        assert_eq!(c.owner(inner), None);
        assert_eq!(c.names(dir), ["f", "sub"]);
    }
}

/// What broke: without its entry the directory was its slot's. The rank that has that slot found what was removed in the store, where it
/// was still to be deleted, and gave it a name again.
#[test]
pub(crate) fn an_entry_stays_until_the_store_knows_that_its_directory_is_gone() {
    for (slot_of, waits) in [(0, true), (1, false)] {
        let mut c = Cluster::with_slots();
        let dir = c.dir_at(root(), slot_of);
        assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
        let file = c.create(dir, "f");
        c.checkpoint(1);
        assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
        c.worlds[1].hold_stores = true;
        let name = format!("d{}", c.names(root()).len() - 1);
        assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n(&name) }), Ok(Reply::Ok));
        c.pass(50);
        assert_eq!(c.owner(dir), waits.then_some(1), "slot of rank {slot_of}");
        for at in [0, 1] {
            let link = Request::Link { node: file, parent: root(), name: n("again") };
            assert!(!matches!(c.ask(at, link), Answered::Outcome(Ok(_))), "{at}");
        }
        c.hold(1).let_go();
        c.settle();
        c.pass(50);
        assert_eq!(c.owner(dir), None, "{:?}", c.worlds[1].notes);
    }
}

/// What broke: it was the last entry of another rank. The one that has everything went by where an older handle says that the file was, and
/// found it in the store.
#[test]
pub(crate) fn the_last_entry_stays_until_the_store_knows_that_its_directory_is_gone() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.checkpoint(0);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    c.worlds[1].hold_stores = true;
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    c.pass(50);
    assert_eq!(c.owner(dir), Some(1));
    assert_ne!(
        c.ask(0, Request::GetAttr { node: file }),
        Answered::Outcome(Err(Errno::ESTALE)),
        "who knows?"
    );
    c.hold(1).let_go();
    c.settle();
    c.pass(50);
    assert_eq!(c.owner(dir), None, "{:?}", c.worlds[1].notes);
    assert_eq!(c.call(0, Request::GetAttr { node: file }).map(drop), Err(Errno::ESTALE));
}

/// What broke: the slot was on its way from the very rank that had the directory by an entry of its own. What it had stored for that it had
/// stored before the removal; and it had the entry dropped as if the slot stayed.
#[test]
pub(crate) fn an_entry_stays_while_the_slot_of_what_is_gone_moves() {
    let mut c = Cluster::with_slots();
    let dir = c.dir_at(root(), 1);
    let name = format!("d{}", c.names(root()).len() - 1);
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    let file = c.create(dir, "f");
    c.checkpoint(1);
    c.deaf = true;
    let slot = ClusterMap::slot_of(dir.ino, Frag::WHOLE);
    c.slots_begin(slot..slot + 1, 0);
    c.pass(100);
    assert!(matches!(c.worlds[1].wishes.front(), Some(MapWish::Switch { .. })), "{:?}", c.worlds[1].wishes);
    // All that the slot has is stored. Nothing else is before the other rank has it.
    c.worlds[1].hold_stores = true;
    assert_eq!(c.call(0, Request::Unlink { parent: dir, name: n("f") }), Ok(Reply::Ok));
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n(&name) }), Ok(Reply::Ok));
    c.pass(50);
    c.deaf = false;
    c.settle();
    c.pass(50);
    assert_eq!((c.slot_owner(dir), c.owner(dir)), (0, Some(1)), "{:?}", c.worlds[1].notes);
    for at in [0, 1] {
        let link = Request::Link { node: file, parent: root(), name: n("again") };
        assert!(!matches!(c.ask(at, link), Answered::Outcome(Ok(_))), "{at}");
    }
    c.hold(1).let_go();
    c.settle();
    c.pass(50);
    assert_eq!(c.owner(dir), None, "{:?}", c.worlds[1].notes);
}

/// The rank dies before the coordinator has heard of it: the journal's tail tells it again.
#[test]
pub(crate) fn the_tail_tells_of_directories_that_are_gone() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    c.deaf = true;
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    c.pass(20);
    assert_eq!(c.owner(dir), Some(0));
    c.crash(0);
    c.deaf = false;
    c.pass(100);
    assert_eq!(c.owner(dir), None);
}

/// What broke: while one was not durable yet, all others were asked for with each step.
#[test]
pub(crate) fn each_is_asked_for_once_while_others_are_not_durable() {
    let mut c = Cluster::new();
    for name in ["d", "e"] {
        let dir = c.mkdir(root(), name);
        assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    }
    c.deaf = true;
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    c.worlds[0].auto_durable = false;
    c.start(0, EMBEDDED, Request::RmDir { parent: root(), name: n("e") });
    c.pass(20);
    assert_eq!(c.worlds[0].wishes.len(), 1);
    c.worlds[0].auto_durable = true;
    c.hold(0).sync();
    c.settle();
    c.pass(20);
    assert_eq!(c.worlds[0].wishes.len(), 2);
    c.deaf = false;
    c.settle();
    assert!(c.map.entries.iter().all(|(unit, _)| unit.dir == Ino::ROOT), "{:?}", c.map.entries);
}

#[test]
fn a_refused_wish_for_that_is_repeated_with_the_next_map() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok));
    c.refuses = true;
    assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
    c.pass(20);
    c.refuses = false;
    assert_eq!(c.owner(dir), Some(0));
    c.publish();
    c.pass(20);
    assert_eq!(c.owner(dir), None);
}

/// What the map announces for a directory of this rank's is its to carry out, whoever asked for it.
#[test]
pub(crate) fn a_move_that_others_announce_is_carried_out() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    let entry = Entry { rank: RankId(0), version: 1, policy: Policy::Carved, moving: None };
    Arc::make_mut(&mut c.map.entries).insert(unit, entry);
    let announce = |c: &mut Cluster| {
        c.announce(unit, RankId(1));
        c.settle();
        c.pass(50);
    };
    // It cannot be now: the coordinator may try again.
    assert!(c.call(0, Request::Open { node: file, flags: 0 }).is_ok());
    announce(&mut c);
    assert_eq!(c.owner(dir), Some(0));
    assert!(c.call(0, Request::Release { node: file, count: 1 }).is_ok());
    announce(&mut c);
    assert_eq!(c.owner(dir), Some(1), "{:?}", c.worlds[0].notes);
    assert_eq!((c.names(dir), c.pin_of(dir)), (vec!["f".to_owned()], Err(Errno::ENODATA)));
}

/// A coordinator that is gone has begun a move: the rank took that for what it was about to ask for, was refused, and carried out neither.
#[test]
pub(crate) fn a_move_that_a_refused_wish_hides_is_carried_out() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    let entry = Entry { rank: RankId(0), version: 1, policy: Policy::Carved, moving: None };
    Arc::make_mut(&mut c.map.entries).insert(unit, entry);
    c.publish();
    c.has_begun = true;
    let answer = c.pin(dir, 1);
    c.settle();
    c.come_to_rest();
    assert!(!c.has_begun, "{answer:?}");
    assert_eq!((c.owner(dir), c.map.entries[&unit].moving), (Some(1), None), "{:?}", c.worlds[0].notes);
}

/// A rank that goes gives up what is pinned to it, and gets it back when it is there again.
#[test]
fn what_is_pinned_comes_back_to_its_rank() {
    let (mut c, dir) = Cluster::with_moved();
    max_mds(&mut c, 1);
    c.map.last_move = MoveId(c.map.last_move.0 + 1);
    let moving = Some(Moving { id: c.map.last_move, to: RankId(0) });
    let unit = Unit { dir: dir.ino, frag: Frag::WHOLE };
    Arc::make_mut(&mut c.map.entries).get_mut(&unit).expect("an entry").moving = moving;
    c.publish();
    c.settle();
    c.pass(50);
    assert_eq!((c.owner(dir), c.pin_of(dir)), (Some(0), Ok("1".to_owned())), "{:?}", c.worlds[1].notes);
    max_mds(&mut c, 2);
    c.pass(20_000);
    assert_eq!((c.owner(dir), c.names(dir).len()), (Some(1), 2), "{:?}", c.worlds[0].notes);
}

#[test]
fn cached_inodes_count_for_the_entry_that_governs_them() {
    let mut c = Cluster::new();
    let dir = c.mkdir(root(), "d");
    let inner = c.mkdir(dir, "s");
    for (at, names) in [(dir, vec!["f"]), (inner, vec!["g", "h"])] {
        for name in names {
            c.create(at, name);
        }
    }
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    for (at, names) in [(dir, vec!["f", "s"]), (inner, vec!["g", "h"])] {
        names.iter().for_each(|name| assert!(c.lookup(at, name).is_ok(), "{name}"));
    }
    let count = |c: &Cluster, rank: usize, of: Ino| {
        let (mut sum, mut from) = (0, Some(0));
        while let Some(at) = from {
            let (counts, next) = c.worlds[rank].rank.census(at);
            sum += counts.iter().filter(|(dir, ..)| *dir == of).map(|(.., count)| count).sum::<u64>();
            from = next;
        }
        sum
    };
    assert_eq!((count(&c, 1, dir.ino), count(&c, 1, Ino::ROOT)), (4, 0));
    assert_eq!((count(&c, 0, dir.ino), count(&c, 0, Ino::ROOT)), (0, 1), "the pinned directory itself");
}
