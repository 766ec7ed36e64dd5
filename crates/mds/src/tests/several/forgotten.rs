//! Directories that leave the cache, or are removed, while they wait to move.
//!
//! Absent: moves that nothing comes in between (`moves.rs`, `pins.rs`).

use super::*;

/// Found by random operations: a rename over an empty directory that another rank has, while that one moves something else. What it had been
/// told of the directory left the cache before its turn came, and the caller was told EBUSY.
#[test]
pub(crate) fn what_waits_for_its_turn_is_looked_for_again() {
    let mut c = Cluster::with_slots();
    let (busy, target) = (c.dir_at(root(), 1), c.dir_at(root(), 1));
    c.create(busy, "f");
    let name =
        c.names(root()).into_iter().find(|name| c.lookup(root(), name).map(|at| at.ino) == Ok(target.ino));
    let name = name.expect("a name");
    let source = c.mkdir(root(), "source");
    // Rank 1 asks the coordinator for the first, and has the other one behind that.
    c.deaf = true;
    let pin = c.start(0, EMBEDDED, Cluster::pin_request(busy, 0));
    let (parent, new_parent) = (root(), root());
    let request = Request::Rename { parent, name: n("source"), new_parent, new_name: n(&name), flags: 0 };
    let rename = c.start(0, EMBEDDED, request);
    c.pass(5);
    assert!(c.take_answer(0, EMBEDDED, pin).is_none() && c.take_answer(0, EMBEDDED, rename).is_none());
    assert!(c.worlds[1].rank.moves.has_wanted(Unit { dir: target.ino, frag: Frag::WHOLE }), "it waits");
    assert_eq!(
        c.ask(1, Request::Lookup { parent: target, name: n("none") }),
        Answered::Outcome(Err(Errno::ENOENT))
    );
    c.drop_cache(1);
    assert_eq!(c.worlds[1].rank.owner(target.ino), None, "nothing says whose it is");
    c.deaf = false;
    assert_eq!(c.wait(0, EMBEDDED, pin), Answered::Outcome(Ok(Reply::Ok)));
    let done = c.wait(0, EMBEDDED, rename);
    assert_eq!(done, Answered::Outcome(Ok(Reply::Ok)), "{:?}", c.worlds[1].notes);
    assert_eq!(c.lookup(root(), &name).map(|at| at.ino), Ok(source.ino));
}

/// Found by random operations: the coordinator was asked for the move of a directory, which was removed before a map said so. It had no
/// entry then, and got one with that map, which nobody dropped.
#[test]
pub(crate) fn what_was_asked_for_what_is_gone_is_dropped() {
    for by_hand in [false, true] {
        let mut c = Cluster::new();
        let dir = c.mkdir(root(), "d");
        c.deaf = true;
        if by_hand {
            c.inject(0, Input::Move { dir: dir.ino, to: RankId(1) });
            c.pass(5);
        } else {
            c.start(0, EMBEDDED, Cluster::pin_request(dir, 1));
        }
        let is_asked = |wish: &MapWish| {
            matches!(wish, MapWish::Make { .. } | MapWish::Begin { .. }) && wish.unit().dir == dir.ino
        };
        assert!(c.worlds[0].wishes.iter().any(is_asked), "the coordinator is asked");
        assert_eq!(c.call(0, Request::RmDir { parent: root(), name: n("d") }), Ok(Reply::Ok));
        c.deaf = false;
        c.come_to_rest();
        let of_dir = c.map.entries.keys().filter(|unit| unit.dir == dir.ino);
        assert_eq!(of_dir.count(), 0, "{:?}: {:?}", c.map.entries, c.worlds[0].notes);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_what_is_forgotten_are_caught() {
    let defects: [(&str, fn()); 2] = [
        ("mds_forgotten_place_fails", what_waits_for_its_turn_is_looked_for_again),
        ("mds_announced_outlives_directory", what_was_asked_for_what_is_gone_is_dropped),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
