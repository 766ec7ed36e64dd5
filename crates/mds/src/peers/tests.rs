//! What is asked of other ranks: who waits for it, and when it is asked again.
//!
//! Absent: what comes of it (`tests/several.rs`).

use super::*;
use crate::RankConfig;
use proto::cluster::{ClusterMap, Delta};
use proto::reply::Reply;
use proto::request::Request;
use proto::{NameHash, NodeRef};
use stdx::hash::HashSeed;
use stdx::time::MS;

/// Whoever waits for several answers asks again with each that comes. That a question came to nothing counts once for it all the
/// same: after some it is told that there is no such inode.
#[test]
fn who_asks_again_waits_once() {
    let mut rank = Rank::new(RankConfig::tiny([1; 16], HashSeed([0; 16]), Incarnation(1)));
    let (question, node) = (Question::Replica(Ino(4096)), NodeRef::bare(Ino(4096)));
    for op in [7, 8, 7, 7] {
        rank.ask(question, RankId(1), Request::Replicate { node }, Some(op));
    }
    if let Some(asking) = rank.peers.questions.get_mut(&question) {
        asking.tid = Some(Tid(1));
    }
    for op in [7, 9, 9] {
        rank.ask(question, RankId(1), Request::Replicate { node }, Some(op));
    }
    let asking = &rank.peers.questions[&question];
    assert_eq!((asking.waiters.len(), asking.late.len()), (2, 1));
    rank.ask_again(rank.view.now, question, RankId(2), true);
    let asking = &rank.peers.questions[&question];
    assert_eq!((asking.waiters.len(), asking.late.len(), asking.rank), (3, 0, RankId(2)));
}

fn rank() -> Rank {
    Rank::new(RankConfig::tiny([1; 16], HashSeed([0; 16]), Incarnation(1)))
}

fn who_cannot_say_yet_is_asked_ever_more_seldom() {
    let (mut rank, mut out) = (rank(), Outbox::default());
    let (question, node) = (Question::Facts(Ino(4096)), NodeRef::bare(Ino(4096)));
    rank.ask(question, RankId(1), Request::Facts { node }, None);
    let mut pauses = Vec::new();
    for tid in 1..=5 {
        rank.peers.questions.get_mut(&question).expect("it is asked").tid = Some(Tid(tid));
        let now = rank.view.now;
        rank.told_elsewhere(now, (RankId(1), Tid(tid)), (None, rank.view.territory.version() + 1), &mut out);
        pauses.push(rank.peers.questions[&question].not_before.since(now.mono) / MS);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 8]);
    rank.ask_by_map();
    assert_eq!(rank.peers.questions[&question].not_before, rank.view.now.mono, "by another map at once");
}

fn what_was_handed_over_by_another_map_is_asked_for_with_pauses() {
    let (mut rank, mut out) = (rank(), Outbox::default());
    let unit = crate::units::whole(Ino(4096));
    let question = Question::Hand(unit, RankId(2));
    rank.ask(question, RankId(1), Request::Hand { unit, to: RankId(2) }, Some(7));
    let mut pauses = Vec::new();
    for tid in 1..=5 {
        rank.peers.questions.get_mut(&question).expect("it is asked").tid = Some(Tid(tid));
        let now = rank.view.now;
        rank.told(now, (RankId(1), Tid(tid)), (Ok(Reply::Ok), false), &mut out);
        pauses.push(rank.peers.questions[&question].not_before.since(now.mono) / MS);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 8]);
    rank.ask_by_map();
    assert!(rank.peers.questions.is_empty(), "whoever waits looks at the map");
}

fn maps_that_were_not_told_are_asked_for() {
    let (mut rank, mut out) = (rank(), Outbox::default());
    let mut map = ClusterMap::first();
    map.version = 3;
    let now = rank.view.now;
    rank.new_map(now, map.into(), &mut out);
    let mut asks = |from: u64, to: u64| {
        let mut out = Outbox::default();
        let delta = Delta { from, to, changes: Vec::new() };
        rank.told_map(now, RankId(1), &delta.encode(), &mut out);
        let wants = |output: &Output| match output {
            Output::SendRank { message: ClientMsg::WantMap { have }, .. } => Some(*have),
            _ => None,
        };
        out.iter().filter_map(wants).collect::<Vec<_>>()
    };
    assert_eq!((asks(4, 5), asks(4, 5)), (vec![3], vec![]), "once");
    assert_eq!((asks(1, 3), asks(1, 6)), (vec![], vec![3]), "not for what it has");
}

fn who_is_named_is_asked_at_once() {
    let (mut rank, mut out) = (rank(), Outbox::default());
    let question = Question::Facts(Ino(4096));
    rank.ask(question, RankId(1), Request::Facts { node: NodeRef::bare(Ino(4096)) }, Some(7));
    let mut asked = Vec::new();
    for (from, owner) in [(1, Some(2)), (2, Some(3)), (3, Some(1))] {
        rank.peers.questions.get_mut(&question).expect("it is asked").tid = Some(Tid(from.into()));
        let (now, version) = (rank.view.now, rank.view.territory.version());
        let told = (owner.map(RankId), version);
        rank.told_elsewhere(now, (RankId(from), Tid(from.into())), told, &mut out);
        let Some(asking) = rank.peers.questions.get(&question) else { break };
        asked.push((asking.rank.0, asking.not_before.since(now.mono) / MS));
    }
    assert_eq!(asked, [(2, 0), (3, 0)], "and nobody twice");
}

/// What broke: for each directory of one that another rank had, whoever was to serve its content asked the lowest rank first, which
/// had to say whose it is, twice.
fn who_told_of_one_is_asked_for_the_next() {
    let (mut rank, mut out) = (rank(), Outbox::default());
    let (parent, now, version) = (Ino(5000), rank.view.now, rank.view.territory.version());
    let node = |ino| NodeRef { ino: Ino(ino), parent, hash: NameHash(ino) };
    let question = Question::Facts(Ino(4096));
    rank.ask(question, RankId(3), Request::Facts { node: node(4096) }, Some(7));
    rank.peers.questions.get_mut(&question).expect("it is asked").tid = Some(Tid(1));
    let record = Reply::Record { place: node(4096), name: Box::default(), value: Box::default() };
    rank.told(now, (RankId(3), Tid(1)), (Ok(record), false), &mut out);
    let asked = |named: Option<u16>, node| rank.home_to_ask(node, named.map(RankId));
    assert_eq!(asked(None, node(4097)), Some(RankId(3)));
    assert_eq!(asked(Some(2), node(4097)), Some(RankId(2)), "whoever is named first");
    assert_eq!(asked(None, NodeRef { parent: Ino(5001), ..node(4097) }), None);
    assert_eq!(rank.peers.homes.of(parent, version + 1), None, "another map");
}

#[test]
fn named_at_once() {
    who_is_named_is_asked_at_once();
}

#[test]
fn homes_are_known() {
    who_told_of_one_is_asked_for_the_next();
}

#[test]
fn questions_have_pauses() {
    who_cannot_say_yet_is_asked_ever_more_seldom();
}

#[test]
fn what_is_done_by_another_map_has_pauses() {
    what_was_handed_over_by_another_map_is_asked_for_with_pauses();
}

#[test]
fn a_gap_between_maps_is_closed() {
    maps_that_were_not_told_are_asked_for();
}

#[cfg(feature = "mutants")]
#[test]
fn defects_of_questions_are_caught() {
    let defects: [(&str, fn()); 5] = [
        ("mds_named_asked_late", who_is_named_is_asked_at_once),
        ("mds_homes_forgotten", who_told_of_one_is_asked_for_the_next),
        ("mds_handed_asked_at_once", what_was_handed_over_by_another_map_is_asked_for_with_pauses),
        ("mds_asks_without_pause", who_cannot_say_yet_is_asked_ever_more_seldom),
        ("mds_gap_of_maps", maps_that_were_not_told_are_asked_for),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}
