//! What is renamed into a part that is about to move: nobody keeps anything of it when it is another rank's.
//!
//! Absent: what was there before (`../moves.rs`).

use super::*;

/// The client gives back what a rank recalls from it.
fn gives_back(c: &mut Cluster, at: usize) {
    while let Some(message) = c.heard(at, |message| matches!(message, ServerMsg::Recall { .. })) {
        let ServerMsg::Recall { list } = message else { return };
        let list = list.iter().map(|item| item.returned(Bits::ATTRS)).collect();
        c.inject(at, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list } });
        c.settle();
    }
}

/// What broke: a file was renamed into what moves while that waited for somebody to join. Its clients kept what they had of it, and the new
/// owner did not know of them.
#[test]
fn nobody_keeps_anything_of_what_comes_into_what_moves() {
    for by in [REMOTE, EMBEDDED] {
        let mut c = Cluster::new();
        let (dir, stage) = (c.mkdir(root(), "d"), c.mkdir(root(), "stage"));
        let (held, file) = (c.create(dir, "f"), c.create(stage, "g"));
        c.greet(0, Peer::Trusted, Bits::ATTRS);
        c.asks_well(0, Request::Open { node: held, flags: 0 });
        c.asks_well(0, Request::GetAttr { node: file });
        let is_granted = |c: &Cluster| c.worlds[0].rank.view.book.is_granted(file.ino, Bits::ATTRS);
        assert!(is_granted(&c));
        let moves = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
        c.pass(50);
        gives_back(&mut c, 0);
        c.pass(50);
        assert!(c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_some());
        let (name, new_name) = (n("g"), n("g"));
        let request = Request::Rename { parent: stage, name, new_parent: dir, new_name, flags: 0 };
        let tid = c.start(0, by, request);
        c.pass(20);
        assert_eq!(c.take_answer(0, by, tid), None, "{by:?} renames");
        gives_back(&mut c, 0);
        assert_eq!(c.wait(0, by, tid), Answered::Outcome(Ok(Reply::Ok)));
        assert!(!is_granted(&c));
        c.asks_well(0, Request::GetAttr { node: file });
        assert!(!is_granted(&c), "nor is it granted anew");
        c.join(0, 1, Peer::Trusted);
        assert_eq!(c.wait(0, EMBEDDED, moves), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
        assert_eq!(c.owner(dir), Some(1));
    }
}

/// What broke: a performed rename into what moves waited for what its own session had of the file, and what the session gave back waited behind
/// it in the same line, until the session was evicted.
#[test]
fn what_was_performed_does_not_wait_for_its_own_session() {
    let mut c = Cluster::new();
    let (dir, stage) = (c.mkdir(root(), "d"), c.mkdir(root(), "stage"));
    let (held, file) = (c.create(dir, "f"), c.create(stage, "g"));
    c.greet(0, Peer::Trusted, Bits::ATTRS.with(Bits::DX));
    c.asks_well(0, Request::Open { node: held, flags: 0 });
    c.asks_well(0, Request::GetAttr { node: file });
    assert!(c.worlds[0].rank.view.book.is_granted(file.ino, Bits::ATTRS));
    let moves = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    c.pass(50);
    gives_back(&mut c, 0);
    c.pass(50);
    assert!(c.heard(0, |message| matches!(message, ServerMsg::Join { .. })).is_some());
    let tid = c.hold(0).next_tid();
    let told = proto::message::Told { ino: Ino::NONE, wall: Wall(c.worlds[0].now as i64), heard: false };
    let (name, new_name) = (n("g"), n("g"));
    let request = Request::Rename { parent: stage, name, new_parent: dir, new_name, flags: 0 };
    let performed = ClientMsg::Performed { tid, floor: tid, cred: Cred::ROOT, told, request };
    c.inject(0, Input::Message { conn: REMOTE, message: performed });
    c.pass(20);
    let heard: Vec<_> = std::iter::from_fn(|| c.heard(0, |_| true)).collect();
    assert!(heard.iter().any(|message| matches!(message, ServerMsg::Done { .. })), "{heard:?}");
    assert_eq!(c.lookup(dir, "g").map(|attr| attr.ino), Ok(file.ino));
    // It is taken back when it can be, and not later than that its new owner has the file.
    c.join(0, 1, Peer::Trusted);
    c.pass(50);
    assert!(!c.worlds[0].rank.moves.is_sealed());
    gives_back(&mut c, 0);
    assert_eq!(c.wait(0, EMBEDDED, moves), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    assert!(!c.worlds[0].rank.view.book.is_granted(file.ino, Bits::ATTRS));
    assert_eq!(c.owner(dir), Some(1));
}

/// What broke: it was looked for what is granted below by the directory's number, and a unit has its own.
#[test]
fn nobody_keeps_anything_of_what_comes_into_a_unit_that_moves() {
    let (mut c, dir) = Cluster::with_spread(4);
    let stage = c.mkdir(root(), "stage");
    assert_eq!(c.pin(stage, 1), Ok(Reply::Ok));
    let (old, new) = (c.name_in(1, 0), c.name_in(1, 100));
    let (held, file) = (c.create(dir, &old), c.create(stage, "g"));
    let unit = c.worlds[1].rank.view.cache.spread(dir.ino).expect("it is spread").of(NameHash(u64::MAX)).0;
    c.greet(1, Peer::Trusted, Bits::ATTRS);
    c.asks_well(1, Request::Open { node: held, flags: 0 });
    c.asks_well(1, Request::GetAttr { node: file });
    let is_granted = |c: &Cluster| c.worlds[1].rank.view.book.is_granted(file.ino, Bits::ATTRS);
    assert!(is_granted(&c));
    c.inject(1, Input::Move { dir: unit, to: RankId(0) });
    c.pass(50);
    gives_back(&mut c, 1);
    c.pass(50);
    assert!(
        c.heard(1, |message| matches!(message, ServerMsg::Join { .. })).is_some(),
        "{:?}",
        c.worlds[1].notes
    );
    let request =
        Request::Rename { parent: stage, name: n("g"), new_parent: dir, new_name: n(&new), flags: 0 };
    let tid = c.start(1, REMOTE, request);
    c.pass(20);
    assert_eq!(c.take_answer(1, REMOTE, tid), None);
    gives_back(&mut c, 1);
    assert_eq!(c.wait(1, REMOTE, tid), Answered::Outcome(Ok(Reply::Ok)));
    assert!(!is_granted(&c));
    c.join(1, 0, Peer::Trusted);
    c.come_to_rest();
    assert!(c.units(dir).iter().all(|(_, rank)| *rank == 0), "{:?}", c.worlds[1].notes);
}

/// What broke: a move waited for names that had left the cache until 3 s after its announcement, and was given up after two leases. With leases
/// of a second none was over before.
#[test]
fn a_move_lasts_until_names_that_left_the_cache_have_run_out() {
    let mut c = Cluster::new();
    c.worlds[0].rank.view.config.lease_ns = 1_000 * MS;
    let dir = c.mkdir(root(), "d");
    let file = c.create(dir, "f");
    c.greet(0, Peer::Trusted, Bits::ATTRS);
    c.asks_well(0, Request::GetAttr { node: file });
    c.drop_cache(0);
    let moves = c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
    for _ in 0..10 {
        c.pass(400);
        c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Renew { number: 1 } });
        while let Some(message) = c.heard(0, |message| matches!(message, ServerMsg::Recall { .. })) {
            let ServerMsg::Recall { list } = message else { return };
            let list = list.iter().map(|item| item.returned(item.bits)).collect();
            c.inject(0, Input::Message { conn: REMOTE, message: ClientMsg::Returned { list } });
        }
    }
    assert_eq!(c.wait(0, EMBEDDED, moves), Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[0].notes);
    assert_eq!(c.owner(dir), Some(1));
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_comes_are_caught() {
    let defects: [(&str, fn()); 5] = [
        ("mds_short_leases_end_moves", a_move_lasts_until_names_that_left_the_cache_have_run_out),
        ("mds_seals_with_what_came", what_was_performed_does_not_wait_for_its_own_session),
        ("mds_units_come_with_grants", nobody_keeps_anything_of_what_comes_into_a_unit_that_moves),
        ("mds_performed_awaits_own", what_was_performed_does_not_wait_for_its_own_session),
        ("mds_comes_with_grants", nobody_keeps_anything_of_what_comes_into_what_moves),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
