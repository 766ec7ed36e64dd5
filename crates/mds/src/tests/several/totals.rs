//! What a home knows of the content of its boundaries: totals that count until they are recalled, times that are set, and who has
//! one open.
//!
//! Absent: the inode's own part (`boundaries.rs`).

use super::*;

pub(super) fn set_mtime(c: &mut Cluster, dir: NodeRef, mtime: i64) -> Result<Attr, Errno> {
    let mtime = Some(proto::attr::SetTime::At(Wall(mtime)));
    let set = proto::SetAttr { mtime, ..Default::default() };
    c.attr(0, Request::SetAttr { node: dir, set })
}

/// What rank 0 asks to have times set lies in a socket, for as long as that is so of it, and of how often it has asked.
fn sets_times_while(c: &mut Cluster, waits: impl Fn(&Cluster, usize) -> bool) -> Vec<(RankId, ClientMsg)> {
    let mut asked = Vec::new();
    for _ in 0..5_000 {
        let all = std::mem::take(&mut c.worlds[0].to_ranks).into_iter();
        let (asks, others): (VecDeque<_>, VecDeque<_>) =
            all.partition(|(_, message)| matches!(message.asked(), Some((_, Request::SetTimes { .. }))));
        c.worlds[0].to_ranks = others;
        asked.extend(asks);
        if !waits(c, asked.len()) {
            return asked;
        }
        c.go_on();
    }
    panic!("{} are asked for: {:?}", asked.len(), c.worlds[1].notes);
}

/// Whether rank 0 answers it although nothing that it says reaches rank 1.
fn is_known(c: &mut Cluster, dir: NodeRef) -> bool {
    c.cut.insert((0, 1));
    let tid = c.start(0, EMBEDDED, Request::GetAttr { node: dir });
    let known = c.take_answer(0, EMBEDDED, tid).is_some();
    c.cut.clear();
    if !known {
        c.wait(0, EMBEDDED, tid);
    }
    known
}

#[test]
pub(crate) fn nothing_is_asked_while_nothing_changes() {
    let (mut c, dir) = Cluster::with_moved();
    assert!(!is_known(&mut c, dir));
    let first = c.stat(dir);
    assert!(is_known(&mut c, dir) && is_known(&mut c, dir));
    // What does not show in them does not take them back.
    let file = node(&c.lookup(dir, "f").expect("there"));
    let set = proto::SetAttr { mode: Some(0o600), ..Default::default() };
    assert!(c.call(1, Request::SetAttr { node: file, set }).is_ok());
    assert!(is_known(&mut c, dir));
    assert_eq!(c.stat(dir), first);
    // Whatever does is seen at once, and costs one recall.
    c.create(dir, "one");
    let before = c.worlds[0].to_ranks.len() + c.worlds[1].sent.len();
    c.create(dir, "two");
    assert_eq!(c.worlds[0].to_ranks.len() + c.worlds[1].sent.len(), before);
    let after = c.stat(dir);
    assert_eq!((after.size, after.mtime > first.mtime), (first.size + 2, true));
    // It changes all the time, as far as anybody knows: for a while each look is a question.
    assert!(!is_known(&mut c, dir));
    c.pass(3_000);
    assert!(!is_known(&mut c, dir) && is_known(&mut c, dir));
}

#[test]
pub(crate) fn who_cannot_be_asked_is_waited_for() {
    let (mut c, dir) = Cluster::with_moved();
    c.stat(dir);
    // The connection breaks at the owner, and the home has not noticed.
    let conn = c.links[&(0, 1)];
    c.inject(1, Input::Disconnected { conn });
    let make = |name| Request::MkNod { parent: dir, name: n(name), new: mode(0o100_644) };
    let tid = c.start(1, EMBEDDED, make("made"));
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None, "the home may still show what it was told");
    assert_eq!(c.stat(dir).size, 2);
    // Failed is not fenced: it may serve, and go by what it was told.
    c.map.ranks.get_mut(&RankId(0)).expect("a rank").state = RankState::Failed;
    c.publish();
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None);
    assert_eq!(c.stat(dir).size, 2);
    c.map.ranks.get_mut(&RankId(0)).expect("a rank").state = RankState::Active;
    c.publish();
    // It notices: what it was told counts no more, before it greets again.
    c.cut.insert((0, 1));
    c.links.remove(&(0, 1));
    c.inject(0, Input::RankGone { rank: RankId(1) });
    let stat = c.start(0, EMBEDDED, Request::GetAttr { node: dir });
    c.pass(5);
    assert_eq!(c.take_answer(0, EMBEDDED, stat), None);
    c.cut.clear();
    assert!(matches!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    c.wait(0, EMBEDDED, stat);
    assert_eq!(c.stat(dir).size, 3);
}

#[test]
fn a_listing_shows_what_is_known() {
    let (mut c, dir) = Cluster::with_moved();
    let listed = |c: &mut Cluster| {
        let request = Request::ReadDir { dir: root(), after: 0, attrs: true, bytes_max: 600 };
        let Ok(Reply::Entries { entries, .. }) = c.call(0, request) else { panic!("no entries") };
        entries[0].attr
    };
    assert_eq!(listed(&mut c), None, "nobody is asked for it");
    let attr = c.stat(dir);
    assert_eq!(listed(&mut c), Some(attr));
    c.create(dir, "new");
    assert_eq!(listed(&mut c), None);
}

/// The home is dead, and its successor named: what it was told went with it.
#[test]
fn another_life_of_the_home_keeps_nothing() {
    let (mut c, dir) = Cluster::with_moved();
    c.stat(dir);
    let conn = c.links[&(0, 1)];
    c.inject(1, Input::Disconnected { conn });
    let tid = c.start(1, EMBEDDED, Request::MkNod { parent: dir, name: n("made"), new: mode(0o100_644) });
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None);
    c.crash(0);
    assert!(matches!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    assert_eq!(c.stat(dir).size, 3);
}

#[test]
pub(crate) fn an_owner_that_lives_again_changes_nothing_that_others_may_show() {
    let (mut c, dir) = Cluster::with_moved();
    c.stat(dir);
    c.cut.insert((0, 1));
    c.crash(1);
    let sub = node(&c.attr(1, Request::Lookup { parent: dir, name: n("sub") }).expect("there"));
    let tid = c.start(1, EMBEDDED, Request::MkNod { parent: dir, name: n("made"), new: mode(0o100_644) });
    let below = c.start(1, EMBEDDED, Request::MkNod { parent: sub, name: n("b"), new: mode(0o100_644) });
    c.pass(50);
    assert_eq!(c.take_answer(1, EMBEDDED, tid), None);
    assert!(c.take_answer(1, EMBEDDED, below).is_some(), "nobody else shows that");
    c.cut.clear();
    assert!(matches!(c.wait(1, EMBEDDED, tid), Answered::Outcome(Ok(_))));
    assert_eq!(c.stat(dir).size, 3);
}

#[test]
pub(crate) fn a_recall_that_overtakes_an_answer_makes_it_void() {
    let (mut c, dir) = Cluster::with_moved();
    c.stat(dir);
    c.create(dir, "x");
    c.pass(3_000);
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: dir });
    let answer = c.answer_on_its_way();
    assert!(matches!(answer, ServerMsg::Granted { .. }), "{answer:?}");
    // The owner has heard from the home that it is given back.
    c.create(dir, "y");
    c.inject(0, Input::FromRank { rank: RankId(1), message: Box::new(answer) });
    c.settle();
    c.wait(0, EMBEDDED, tid);
    assert_eq!(c.stat(dir).size, 4);
}

#[test]
pub(crate) fn who_asks_later_is_not_told_what_was_asked_before() {
    let (mut c, dir) = Cluster::with_moved();
    c.stat(dir);
    c.create(dir, "x");
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: dir });
    let answer = c.answer_on_its_way();
    assert!(matches!(answer, ServerMsg::Reply { .. }), "contested: {answer:?}");
    c.create(dir, "y");
    let late = c.start(0, EMBEDDED, Request::GetAttr { node: dir });
    c.inject(0, Input::FromRank { rank: RankId(1), message: Box::new(answer) });
    c.settle();
    c.wait(0, EMBEDDED, tid);
    let Answered::Outcome(Ok(Reply::Attr(attr))) = c.wait(0, EMBEDDED, late) else { panic!("no attributes") };
    assert_eq!(attr.size, 4);
}

#[test]
pub(crate) fn a_time_that_is_set_wins_over_what_is_there() {
    let (mut c, dir) = Cluster::with_moved();
    c.create(dir, "new");
    let before = c.stat(dir);
    let set = set_mtime(&mut c, dir, 5).expect("set");
    assert_eq!((set.mtime, set.size), (Wall(5), 3));
    assert!(set.change > before.change && set.ctime > before.ctime);
    assert_eq!(c.stat(dir), set);
    // Durable with its answer, on both sides.
    for rank in 0..2 {
        c.crash(rank);
        assert_eq!(c.stat(dir).mtime, Wall(5));
    }
    // What happens then is later.
    c.create(dir, "newer");
    let after = c.stat(dir);
    assert!(after.mtime > before.mtime && after.change > set.change);
    assert_eq!(set_mtime(&mut c, dir, 6).map(|attr| attr.mtime), Ok(Wall(6)));
    // As local ones: a time to come is shown, and the header is not ahead.
    let future = c.worlds[0].now as i64 * 1_000;
    assert_eq!(set_mtime(&mut c, dir, future).map(|attr| attr.mtime), Ok(Wall(future)));
    assert_eq!(set_mtime(&mut c, dir, 7).map(|attr| attr.mtime), Ok(Wall(7)));
    assert_eq!(c.pin(dir, 0), Ok(Reply::Ok), "{:?}", c.worlds[1].notes);
    assert_eq!(c.stat(dir).mtime, Wall(7));
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok), "{:?}", c.worlds[0].notes);
    assert_eq!(c.stat(dir).mtime, Wall(7));
}

/// What broke: between what its home had heard of a directory and what it asked to have set the directory was divided, or put together and
/// divided anew. The units that it had then had all changed since the time that was set, as far as anybody saw: it was not shown.
#[test]
pub(crate) fn a_time_is_set_that_is_asked_for_across_a_spreading() {
    for was_spread in [false, true] {
        let (mut c, dir) = Cluster::with_moved();
        // The home has no part of it, and learns nothing by that.
        c.map.bal_rank_mask = proto::cluster::Mask::NONE.with(RankId(1));
        c.publish();
        c.stat(dir);
        for at in 0..18 {
            c.create(dir, &format!("g{at}"));
        }
        if was_spread {
            c.spread(dir, 2);
            c.create(dir, "last");
            assert_eq!(c.names(dir).len(), 21, "only what is cached is merged");
        }
        let spread = |c: &Cluster| c.worlds[1].rank.view.cache.spread(dir.ino);
        let before = spread(&c);
        assert_eq!(before.is_some(), was_spread);
        let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(Wall(5))), ..Default::default() };
        let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::SetAttr { node: dir, set });
        let mut asked = sets_times_while(&mut c, |_, times| times == 0);
        if was_spread {
            c.inject(1, Input::Merge { dir: dir.ino });
            asked.extend(sets_times_while(&mut c, |c, _| spread(c).is_some()));
        }
        c.inject(1, Input::Spread { dir: dir.ino, depth: 2 });
        asked.extend(sets_times_while(&mut c, |c, _| spread(c).is_none()));
        let mut pass = |c: &mut Cluster, ms: u64| {
            let end = c.worlds[0].now + ms * MS;
            asked.extend(sets_times_while(c, |c, _| c.worlds[0].now < end));
        };
        pass(&mut c, 500);
        // Somebody else looks: what there is by now of the parts the home need not ask for any more.
        let look = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::GetAttr { node: dir });
        pass(&mut c, 100);
        assert!(c.take_answer(0, EMBEDDED, look).is_some());
        c.worlds[0].to_ranks.extend(asked);
        let answered = c.wait(0, EMBEDDED, tid);
        let Answered::Outcome(Ok(Reply::Attr(attr))) = answered else { panic!("{answered:?}") };
        assert_eq!((attr.mtime, attr.size), (Wall(5), 20 + u64::from(was_spread)));
        assert_eq!(c.stat(dir), attr);
        c.come_to_rest();
        assert_eq!(c.stat(dir).mtime, Wall(5));
        // What happens then is later, however often.
        for at in 0..8 {
            c.create(dir, &format!("later{at}"));
            assert!(c.stat(dir).mtime > Wall(5), "{at}");
        }
    }
}

#[cfg(feature = "mutants")]
#[test]
fn times_that_are_set_across_a_spreading_are_caught() {
    for defect in ["mds_times_set_of_another_spread", "mds_times_set_by_old_parts"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(a_time_is_set_that_is_asked_for_across_a_spreading);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// What broke: what it had asked before came to nothing later, which woke it, and it had the times set once more, behind the answer.
#[test]
pub(crate) fn a_time_is_not_set_again_behind_the_answer() {
    let (mut c, dir) = Cluster::with_moved();
    let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::Now), ..Default::default() };
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::SetAttr { node: dir, set });
    let mut asked = sets_times_while(&mut c, |_, times| times == 0);
    for again in 0..3 {
        let rank = &mut c.worlds[0].rank;
        let waits: Vec<_> = rank.parked.keys().copied().collect();
        assert_eq!(waits.len(), 1, "{again}");
        rank.look_again(waits.iter().copied());
        // What wakes others may have noted it, too.
        rank.runnable.extend(waits);
        let end = c.worlds[0].now + 100 * MS;
        asked.extend(sets_times_while(&mut c, |c, _| c.worlds[0].now < end));
    }
    assert_eq!(asked.len(), 1);
    c.worlds[0].to_ranks.extend(asked);
    let answered = c.wait(0, EMBEDDED, tid);
    let Answered::Outcome(Ok(Reply::Attr(attr))) = answered else { panic!("{answered:?}") };
    c.come_to_rest();
    assert_eq!(c.stat(dir), attr);
}

/// What broke: the content came home before its times were set there, and a rank that was dead was asked for it, and waited for.
#[test]
fn a_time_is_set_of_what_came_home_meanwhile() {
    let mut c = Cluster::of(3);
    let dir = c.mkdir(root(), "d");
    assert_eq!(c.pin(dir, 1), Ok(Reply::Ok));
    c.create(dir, "f");
    let set = proto::SetAttr { mtime: Some(proto::attr::SetTime::At(Wall(5))), ..Default::default() };
    let tid = c.hold(0).start(EMBEDDED, Cred::ROOT, Request::SetAttr { node: dir, set });
    let mut asked = sets_times_while(&mut c, |_, times| times == 0);
    c.inject(1, Input::Move { dir: dir.ino, to: RankId(0) });
    let is_home = |c: &Cluster| {
        let mut entries = c.map.entries.iter();
        entries.any(|(unit, entry)| unit.dir == dir.ino && entry.rank == RankId(0) && entry.moving.is_none())
    };
    asked.extend(sets_times_while(&mut c, |c, _| !is_home(c)));
    c.map.ranks.get_mut(&RankId(2)).expect("there").state = RankState::Failed;
    c.publish();
    c.cut.insert((0, 2));
    c.worlds[0].to_ranks.extend(asked);
    let answered = c.wait(0, EMBEDDED, tid);
    let Answered::Outcome(Ok(Reply::Attr(attr))) = answered else { panic!("{answered:?}") };
    assert_eq!((attr.mtime, c.stat(dir).mtime), (Wall(5), Wall(5)));
}

#[cfg(feature = "mutants")]
#[test]
fn times_that_are_set_where_or_when_it_is_too_late_are_caught() {
    let defects: [(&str, fn()); 2] = [
        ("mds_times_set_behind_answer", a_time_is_not_set_again_behind_the_answer),
        ("mds_times_set_of_what_came_home", a_time_is_set_of_what_came_home_meanwhile),
    ];
    for (defect, test) in defects {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(test);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// Nothing of what ranks ask for is remembered for a retry: nobody would ever say that it may be forgotten.
#[test]
fn what_ranks_ask_for_leaves_no_results() {
    let (mut c, dir) = Cluster::with_moved();
    for time in 0..5 {
        assert!(set_mtime(&mut c, dir, time).is_ok());
    }
    assert!(c.worlds[1].rank.sessions.map.values().all(|session| session.results.len() == 0));
    c.crash(1);
    assert_eq!(c.worlds[1].rank.sessions.map.len(), 2, "its mount's and the other rank's");
}

#[test]
pub(crate) fn an_open_directory_is_listed_whatever_its_mode_is_by_now() {
    let (mut c, dir) = Cluster::with_moved();
    let user = Cred { uid: 1000, gid: 1000, groups: Vec::new() };
    c.greet(0, Peer::User(user.clone()), Bits::NONE);
    c.join(0, 1, Peer::User(user.clone()));
    let list = |c: &mut Cluster| {
        let request = Request::ReadDir { dir, after: 0, attrs: false, bytes_max: 600 };
        let tid = c.start_as(1, REMOTE, user.clone(), request);
        match c.wait(1, REMOTE, tid) {
            Answered::Outcome(Ok(Reply::Entries { entries, .. })) => Ok(entries.len()),
            Answered::Outcome(Err(errno)) => Err(errno),
            other => panic!("{other:?}"),
        }
    };
    let tid = c.start_as(0, REMOTE, user.clone(), Request::Open { node: dir, flags: 0 });
    assert!(matches!(c.wait(0, REMOTE, tid), Answered::Outcome(Ok(_))));
    let set = proto::SetAttr { mode: Some(0o700), ..Default::default() };
    assert!(c.call(0, Request::SetAttr { node: dir, set }).is_ok());
    assert_eq!(list(&mut c), Ok(2));
    c.drop_cache(1);
    assert_eq!(list(&mut c), Ok(2));
    let tid = c.start_as(0, REMOTE, user.clone(), Request::Release { node: dir, count: 1 });
    assert!(matches!(c.wait(0, REMOTE, tid), Answered::Outcome(Ok(_))));
    assert_eq!(list(&mut c), Err(Errno::EACCES));
}
