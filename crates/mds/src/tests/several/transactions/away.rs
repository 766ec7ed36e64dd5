//! Transactions of ranks that are damaged, silent or gone: what they had decided stays, and nobody else waits for them.
//!
//! Absent: their deaths at every step of one that goes on (`../transactions.rs`).

use super::*;
use proto::transact::{Part, Step, TxnId};

/// What broke: a leader that is damaged answers nothing but errors. That it does not lead a transaction any more none of
/// them says: it had decided, and the next life told so. What was reserved was free by then, and the file had two names of its own.
#[test]
pub(super) fn what_a_damaged_leader_answers_ends_nothing() {
    let mut s = Scene::new();
    let file = s.c.create(s.dir, "x");
    s.c.write(file, DATA);
    s.c.worlds.iter_mut().for_each(|world| world.auto_durable = false);
    s.c.hold(0).start(EMBEDDED, Cred::ROOT, rename((s.dir, "x"), (root(), "y"), 0));
    while s.c.worlds[0].rank.view.transactions.committed.is_empty() {
        assert!(s.c.one_thing(), "nothing is decided");
    }
    // It is on the disk, and nobody was told.
    let world = s.c.hold(0);
    world.durable = world.journal.len();
    world.inject(Input::JournalFailed(StoreError::Damaged { at: "journal".into(), what: "gone".into() }));
    s.c.map.ranks.get_mut(&RankId(0)).expect("it is there").state = RankState::Damaged;
    s.c.hold(1).sync();
    s.c.publish();
    s.c.worlds[1].auto_durable = true;
    s.c.settle();
    s.c.pass(300);
    assert!(!s.c.worlds[1].rank.view.transactions.is_free(), "who knows");
    s.c.map.ranks.get_mut(&RankId(0)).expect("it is there").state = RankState::Active;
    s.c.crash(0);
    s.c.pass(300);
    s.c.assert_resolved();
    assert_eq!(s.c.lookup(s.dir, "x"), Err(Errno::ENOENT));
    let moved = s.c.lookup(root(), "y").expect("it was decided");
    assert_eq!((moved.ino, s.c.read(node(&moved))), (file.ino, DATA.to_vec()));
}

/// One thing more, but that rank 2 has rank 0 reserve anything.
fn one_thing_without_votes(c: &mut Cluster) -> bool {
    let reserves = |message: &ClientMsg| {
        let ClientMsg::Request { request: Request::Transact { step, .. }, .. } = message else {
            return false;
        };
        matches!(step, Step::Prepare { .. })
    };
    c.worlds[2].to_ranks.retain(|(to, message)| *to != RankId(0) || !reserves(message));
    c.one_thing()
}

/// What broke: a rank had reserved its part, another one died before it had, and everybody who listed that directory waited
/// for the dead one.
#[test]
pub(super) fn nothing_stays_reserved_for_a_rank_that_is_away() {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    let file = s.c.create(s.dir, "x");
    s.link(file, s.dir, "l");
    s.c.pass(20);
    let tid = s.c.hold(2).start(EMBEDDED, Cred::ROOT, rename((s.dir, "x"), (third, "y"), 0));
    while s.c.worlds[1].rank.view.transactions.is_free() {
        assert!(one_thing_without_votes(&mut s.c), "nothing is reserved");
    }
    while one_thing_without_votes(&mut s.c) {}
    assert!(!s.c.worlds[1].rank.view.transactions.is_free());
    s.c.map.ranks.get_mut(&RankId(0)).expect("it is there").state = RankState::Failed;
    s.c.behind.insert(0);
    // All but rank 0 hear it, and it nothing.
    s.c.map.version += 1;
    let map = Arc::new(s.c.map.clone());
    for at in [1, 2] {
        s.c.worlds[at].map = Some(map.clone());
        s.c.hold(at).inject(Input::Map(map.clone()));
        s.c.worlds[at].to_ranks.retain(|(to, _)| *to != RankId(0));
    }
    while s.c.one_thing() {
        s.c.worlds[2].to_ranks.retain(|(to, _)| *to != RankId(0));
    }
    assert!(s.c.worlds[1].rank.view.transactions.is_free(), "it is asked alone");
    s.c.map.ranks.get_mut(&RankId(0)).expect("it is there").state = RankState::Active;
    s.c.behind.remove(&0);
    s.c.crash(0);
    assert_eq!(s.c.wait(2, EMBEDDED, tid), Answered::Outcome(Ok(Reply::Ok)));
    s.c.pass(50);
    s.c.assert_resolved();
}

/// What broke: a rank said what it meant to rename, and died. Who came later waited for it.
#[test]
pub(super) fn what_a_rank_meant_to_do_ends_with_its_connection() {
    means_and_is_gone(false);
}

/// What broke: the file was being synced for it when the connection ended, and what was meant was noted behind that.
#[test]
pub(super) fn what_a_rank_meant_to_do_ends_with_its_connection_during_a_sync() {
    means_and_is_gone(true);
}

fn means_and_is_gone(syncs: bool) {
    let mut s = Scene::of(3);
    let third = s.third.expect("rank 2's");
    let file = s.c.create(s.dir, "x");
    if syncs {
        s.c.write(file, b"bytes");
    }
    s.link(s.file, s.dir, "l");
    s.c.pass(20);
    assert_eq!(s.c.rename((s.dir, "l"), (third, "l")), Ok(Reply::Ok));
    let since = Wall(1);
    let name = Part::Name { parent: s.dir, name: n("x"), leaves: true, synced: true };
    let step = Step::Clear { since, parts: vec![name] };
    let conn = *s.c.links.get(&(2, 1)).expect("they are connected");
    let request = Request::Transact { id: TxnId(1 << 40), step };
    s.c.hold(1).hold_data = syncs;
    s.c.hold(1).retry(conn, Tid(1 << 40), Cred::ROOT, request);
    s.c.settle();
    assert_eq!(s.c.worlds[1].held.is_empty(), !syncs);
    s.c.links.remove(&(2, 1));
    s.c.inject(1, Input::Disconnected { conn });
    s.c.hold(1).hold_data = false;
    s.c.hold(1).let_go();
    s.c.settle();
    let renamed = s.c.rename((s.dir, "x"), (root(), "y"));
    assert_eq!(renamed, Ok(Reply::Ok), "{:?}", s.c.worlds[1].notes);
}
