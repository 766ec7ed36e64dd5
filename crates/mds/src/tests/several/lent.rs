//! What clients keep of directories whose content, or a part of it, is another rank's.
//!
//! Absent: totals themselves (`totals.rs`).

use super::*;
use crate::caps::FADES_NS;
use crate::op::Op;
use proto::caps::Recalled;

/// A directory whose content is rank 1's, of which a client of rank 0 was granted everything.
fn lent() -> (Cluster, NodeRef) {
    lends(Cluster::with_moved())
}

fn lends((mut c, dir): (Cluster, NodeRef)) -> (Cluster, NodeRef) {
    c.greet(0, Peer::User(Cred { uid: 7, gid: 7, groups: Vec::new() }), Bits::ATTRS);
    c.stat(dir);
    assert_eq!(granted(&mut c, dir), Bits::ATTRS);
    (c, dir)
}

fn granted(c: &mut Cluster, dir: NodeRef) -> Bits {
    let tid =
        c.start_as(0, REMOTE, Cred { uid: 7, gid: 7, groups: Vec::new() }, Request::GetAttr { node: dir });
    c.pass(20);
    let is = |m: &ServerMsg| match m {
        ServerMsg::Reply { tid: of, .. } | ServerMsg::Granted { tid: of, .. } => *of == tid,
        _ => false,
    };
    match c.heard(0, is) {
        Some(ServerMsg::Granted { grants, .. }) => grants.of(0),
        _ => Bits::NONE,
    }
}

fn recalled(c: &mut Cluster, dir: NodeRef) -> Vec<Recalled> {
    match c.heard(0, |m| matches!(m, ServerMsg::Recall { .. })) {
        Some(ServerMsg::Recall { list }) => list.into_iter().filter(|item| item.ino == dir.ino).collect(),
        _ => Vec::new(),
    }
}

fn give_back(c: &mut Cluster, list: &[Recalled]) {
    let list = list.iter().map(|item| item.returned(Bits::ATTRS)).collect();
    c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list } });
    c.settle();
}

/// The home's connection to the owner breaks, and both hear of it.
fn lose_link(c: &mut Cluster) {
    let conn = c.links[&(0, 1)];
    c.inject(1, Input::Disconnected { conn });
    c.links.remove(&(0, 1));
    c.inject(0, Input::RankGone { rank: RankId(1) });
}

fn make(c: &mut Cluster, dir: NodeRef, name: &str) -> Tid {
    c.start(1, EMBEDDED, Request::MkNod { parent: dir, name: n(name), new: mode(0o100_644) })
}

#[test]
fn a_client_keeps_a_boundary_until_its_content_changes() {
    let (mut c, dir) = lent();
    let tid = make(&mut c, dir, "made");
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "a client may still show what was");
    let list = recalled(&mut c, dir);
    assert!(list.iter().any(|item| item.bits.has(Bits::FS)), "{list:?}");
    // What is asked for meanwhile is answered, and nothing of it kept.
    assert_eq!(granted(&mut c, dir), Bits::NONE);
    give_back(&mut c, &list);
    assert!(matches!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    assert_eq!(c.stat(dir).size, 3);
    // It may change all the time; when it has not for a while it is granted again.
    c.pass(3_000);
    c.stat(dir);
    assert_eq!(granted(&mut c, dir), Bits::ATTRS);
}

/// Its mode is the home's to change, and asks no other rank.
#[test]
fn a_client_gives_a_boundary_back_before_its_mode_changes() {
    let (mut c, dir) = lent();
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    let tid = c.start(0, EMBEDDED, Request::SetAttr { node: dir, set });
    c.pass(50);
    assert_eq!(c.take_answer(0, EMBEDDED, tid), None);
    let list = recalled(&mut c, dir);
    give_back(&mut c, &list);
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
}

/// The connection between the ranks breaks. The owner forgets what the home kept when that greets again, which it does not before its clients
/// have given back what they had by that.
#[test]
fn a_home_with_clients_greets_later() {
    let (mut c, dir) = lent();
    lose_link(&mut c);
    let tid = make(&mut c, dir, "made");
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "a client may still show what was");
    let list = recalled(&mut c, dir);
    give_back(&mut c, &list);
    c.pass(20);
    assert!(matches!(c.take_answer(1, EMBEDDED, tid), Some(Answered::Outcome(Ok(_)))));
}

/// The same if they do not: what they have runs out.
#[test]
fn a_home_with_silent_clients_greets_when_theirs_has_run_out() {
    let (mut c, dir) = lent();
    lose_link(&mut c);
    let tid = make(&mut c, dir, "made");
    let ms = FADES_NS / 1_000_000;
    c.pass(ms - 100);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None);
    c.pass(200);
    assert!(matches!(c.take_answer(1, EMBEDDED, tid), Some(Answered::Outcome(Ok(_)))));
}

/// The home dies, and lives again: its clients may go by what its former life granted, until that has run out.
#[test]
fn what_a_former_life_granted_runs_out() {
    let (mut c, dir) = lent();
    c.crash(0);
    let tid = make(&mut c, dir, "made");
    let ms = FADES_NS / 1_000_000;
    c.pass(ms - 200);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "a client may still show what was");
    c.pass(400);
    assert!(matches!(c.take_answer(1, EMBEDDED, tid), Some(Answered::Outcome(Ok(_)))));
}

/// The owner dies, lives again, and is to give the directory away. What broke: it went at once, and whoever had it then knew nothing of the
/// totals that the life before had told, and changed it while a client showed what it had been granted by them.
#[test]
fn what_a_former_life_told_is_given_back_before_it_moves() {
    for gives_back in [true, false] {
        let mut c = Cluster::of(3);
        let dir = c.mkdir(root(), "d");
        // A pin would pull it back.
        c.inject(0, Input::Move { dir: dir.ino, to: RankId(1) });
        c.pass(50);
        let (mut c, dir) = lends((c, dir));
        c.crash(1);
        c.inject(1, Input::Move { dir: dir.ino, to: RankId(2) });
        c.pass(200);
        let make = |c: &mut Cluster| {
            let request = Request::MkNod { parent: dir, name: n("made"), new: mode(0o100_644) };
            let tid = c.start(2, EMBEDDED, request);
            c.wait(2, EMBEDDED, tid)
        };
        assert_eq!(make(&mut c), NOT_MINE(1), "a client may still show what was");
        assert_eq!(c.owner(dir), Some(1), "it is not announced yet");
        let waits_for: Vec<_> = c.worlds[1].rank.moves_wanted().iter().map(|one| one.waits_for).collect();
        assert_eq!(waits_for, [Some("greetings of other ranks")]);
        let list = recalled(&mut c, dir);
        assert!(list.iter().any(|item| item.bits.has(Bits::FS)), "{list:?}");
        if gives_back {
            give_back(&mut c, &list);
            c.pass(200);
        } else {
            c.pass(FADES_NS / 1_000_000);
        }
        assert_eq!(c.owner(dir), Some(2), "{:?}", c.worlds[1].notes);
        assert!(matches!(make(&mut c), Answered::Outcome(Ok(_))));
        assert_eq!(c.stat(dir).size, 1);
    }
}

/// All ranks die, and the home lives again later than the owner: who keeps something from then may not have come back to the owner at all.
#[test]
fn what_was_granted_before_all_died_runs_out() {
    let (mut c, dir) = lent();
    let home = |c: &mut Cluster, state| {
        c.map.ranks.get_mut(&RankId(0)).expect("it is in the map").state = state;
        c.map.version += 1;
    };
    home(&mut c, RankState::Replay);
    c.crash(1);
    home(&mut c, RankState::Active);
    c.crash(0);
    let tid = make(&mut c, dir, "made");
    let ms = FADES_NS / 1_000_000;
    c.pass(ms - 200);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "a client may still show what was");
    c.pass(400);
    assert!(matches!(c.take_answer(1, EMBEDDED, tid), Some(Answered::Outcome(Ok(_)))));
}

/// The home has the owner set its time, which is a change as any other.
#[test]
fn a_client_gives_a_boundary_back_before_its_time_is_set() {
    let (mut c, dir) = lent();
    let header = |c: &Cluster| {
        let cache = &c.worlds[1].rank.view.cache;
        cache.dir(cache.find_dir(dir.ino).expect("it is here")).header.change
    };
    let before = header(&c);
    let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(Wall(7))), ..Default::default() };
    let tid = c.start(0, EMBEDDED, Request::SetAttr { node: dir, set });
    c.pass(50);
    assert_eq!(
        (c.take_answer(0, EMBEDDED, tid), header(&c)),
        (None, before),
        "a client may still show what was"
    );
    let list = recalled(&mut c, dir);
    give_back(&mut c, &list);
    assert!(matches!(c.wait(0, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    assert_eq!(c.stat(dir).mtime, Wall(7));
}

/// Nobody in the process of the home keeps anything of it: for longer than another rank would wait.
#[test]
fn a_client_of_the_process_keeps_nothing_of_a_boundary() {
    let (mut c, dir) = Cluster::with_moved();
    c.stat(dir);
    let rank = &c.worlds[0].rank;
    let (session, _) = rank.sessions.map.iter().find(|(_, session)| session.embedded).expect("one");
    let by = |session| {
        let request = Request::GetAttr { node: dir };
        Op::new(0, (session, Tid(1)), Cred::ROOT, request, Mono(0))
    };
    assert!(rank.view.totals.of(dir.ino).is_some());
    assert_eq!(rank.may_lend(&by(*session), dir.ino), None);
    let (session, _) = rank.sessions.map.iter().find(|(_, session)| !session.embedded).expect("one");
    assert_eq!(rank.may_lend(&by(*session), dir.ino), Some(vec![(dir.ino, RankId(1))]));
}

/// A directory of rank 0's with a part at rank 1, of which a client of rank 0 was granted everything.
fn lent_in_parts() -> (Cluster, NodeRef) {
    let (mut c, dir) = Cluster::with_spread(8);
    c.greet(0, Peer::User(Cred { uid: 7, gid: 7, groups: Vec::new() }), Bits::ATTRS);
    c.stat(dir);
    assert_eq!(granted(&mut c, dir), Bits::ATTRS);
    (c, dir)
}

/// That number of a part which is that rank's.
fn part_of(c: &Cluster, dir: NodeRef, rank: usize) -> (Ino, u64) {
    let spread = c.worlds[0].rank.view.cache.spread(dir.ino).expect("it is spread");
    let is_own = |frag: Frag| {
        let entry = c.map.entries.get(&Unit { dir: dir.ino, frag });
        entry.map_or(0, |entry| usize::from(entry.rank.0)) == rank
    };
    let (number, frag) = spread.all().find(|(_, frag)| is_own(*frag)).expect("a part");
    (number, frag.prefix >> 63)
}

/// Whichever part it is, and whoever makes something in it.
#[test]
fn a_client_keeps_a_directory_in_parts_until_one_changes() {
    for rank in 0..2 {
        let (mut c, dir) = lent_in_parts();
        let (_, half) = part_of(&c, dir, rank);
        let name = c.name_in(half, 0);
        let request = Request::MkNod { parent: dir, name: n(&name), new: mode(0o100_644) };
        let tid = c.start(rank, EMBEDDED, request);
        c.pass(50);
        assert_eq!(c.take_answer(rank, EMBEDDED, tid), None, "{rank}: a client may still show what was");
        let list = recalled(&mut c, dir);
        assert!(list.iter().any(|item| item.bits.has(Bits::FS)), "{list:?}");
        give_back(&mut c, &list);
        assert!(matches!(c.wait(rank, EMBEDDED, tid), Answered::Outcome(Ok(_))));
        assert_eq!(c.stat(dir).size, 10);
        c.pass(3_000);
        c.stat(dir);
        assert_eq!(granted(&mut c, dir), Bits::ATTRS);
    }
}

/// Whoever has it then knows nothing of these clients.
#[test]
fn a_part_leaves_when_nobody_keeps_anything_of_the_whole() {
    let (mut c, dir) = lent_in_parts();
    let (number, half) = part_of(&c, dir, 0);
    c.inject(0, Input::Move { dir: number, to: RankId(1) });
    c.pass(50);
    let name = c.name_in(half, 0);
    let request = Request::MkNod { parent: dir, name: n(&name), new: mode(0o100_644) };
    let tid = c.start(1, EMBEDDED, request);
    assert_eq!(c.wait(1, EMBEDDED, tid), NOT_MINE(0), "it is not there yet");
    assert_eq!(granted(&mut c, dir), Bits::NONE);
    let list = recalled(&mut c, dir);
    assert!(list.iter().any(|item| item.bits.has(Bits::FS)), "{list:?}");
    give_back(&mut c, &list);
    c.come_to_rest();
    assert_eq!(c.units(dir), [(1, 1), (1, 1)], "{:?}", c.worlds[0].notes);
    c.pass(3_000);
    c.stat(dir);
    assert_eq!(granted(&mut c, dir), Bits::ATTRS);
}

#[test]
fn a_directory_in_parts_is_merged_when_nobody_keeps_anything_of_it() {
    let (mut c, dir) = lent_in_parts();
    c.inject(0, Input::Merge { dir: dir.ino });
    c.pass(200);
    assert!(c.worlds[0].rank.view.cache.spread(dir.ino).is_some(), "a client may still show what was");
    let list = recalled(&mut c, dir);
    give_back(&mut c, &list);
    c.come_to_rest();
    c.pass(200);
    assert_eq!(c.worlds[0].rank.view.cache.spread(dir.ino), None, "{:?}", c.worlds[0].notes);
}

/// The connection to the rank of a part breaks: that does not change anything while a client may show what was.
#[test]
fn a_home_whose_clients_keep_something_of_parts_greets_later() {
    let (mut c, dir) = lent_in_parts();
    let (_, half) = part_of(&c, dir, 1);
    lose_link(&mut c);
    let name = c.name_in(half, 0);
    let request = Request::MkNod { parent: dir, name: n(&name), new: mode(0o100_644) };
    let tid = c.start(1, EMBEDDED, request);
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "a client may still show what was");
    let list = recalled(&mut c, dir);
    give_back(&mut c, &list);
    c.pass(20);
    assert!(matches!(c.take_answer(1, EMBEDDED, tid), Some(Answered::Outcome(Ok(_)))));
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_is_lent_are_caught() {
    let defects: [(&str, fn()); 10] = [
        ("mds_move_unheard", what_a_former_life_told_is_given_back_before_it_moves),
        ("mds_move_unheard", boundaries::a_home_that_lives_again_gives_nothing_away_that_others_may_keep),
        ("mds_beginners_clients_forgotten", what_was_granted_before_all_died_runs_out),
        ("mds_times_set_under_lent", a_client_gives_a_boundary_back_before_its_time_is_set),
        ("mds_lent_stays", a_client_keeps_a_boundary_until_its_content_changes),
        ("mds_lent_stays", a_client_keeps_a_directory_in_parts_until_one_changes),
        ("mds_unit_leaves_granted", a_part_leaves_when_nobody_keeps_anything_of_the_whole),
        ("mds_greets_with_lent", a_home_with_clients_greets_later),
        ("mds_greets_with_lent", a_home_with_silent_clients_greets_when_theirs_has_run_out),
        ("mds_lent_ends_with_life", what_a_former_life_granted_runs_out),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
