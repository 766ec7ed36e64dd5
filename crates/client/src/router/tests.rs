//! The router against ranks that say what the test says.
//!
//! Absent: one rank that owns everything: `machine/tests/shadow.rs` runs the tests of the machine through a router.

use super::*;
use crate::config::Limits;
use crate::input::CallId;
use proto::caps::{Bits, Grants, Recalled, Returned};
use proto::cluster::{DaemonId, DaemonInfo, Entry, MoveId, Moving, Policy, RankInfo, RankState, Unit};
use proto::message::{At, ClientMsg, Delegated, JoinToken, PROTOCOL, Told};
use proto::reply::{Outcome, Reply, StatFs};
use proto::request::{LockKind, LockSpec, NewNode, Request};
use proto::{Attr, Cred, Errno, Frag, Incarnation, Name, NodeRef, Position, Tid};
use std::sync::Arc;
use stdx::Wall;
use stdx::hash::HashSeed;
use stdx::time::{MS, SECOND};

mod bounces;
mod going;
mod holdings;
mod model;
mod syncs;

const SEED: HashSeed = HashSeed([9; 16]);
const LEASE_MS: u32 = 9_000;
/// What is in it is rank 1's.
const PINNED: NodeRef = NodeRef { ino: Ino(7000), parent: Ino::ROOT, hash: proto::NameHash(99) };

/// A map in which those directories are those ranks', and the rest rank 0's.
pub(super) fn map(version: u64, ranks: u16, pins: &[(Ino, u16)]) -> ClusterMap {
    let mut map = ClusterMap::first();
    map.version = version;
    map.max_mds = ranks;
    (map.last_incarnation, map.last_daemon) = (Incarnation(ranks.into()), DaemonId(ranks.into()));
    for rank in 0..ranks {
        let (daemon, incarnation) = (DaemonId(u64::from(rank) + 1), Incarnation(u64::from(rank) + 1));
        map.daemons.insert(daemon, DaemonInfo { name: format!("d{rank}") });
        map.ranks.insert(RankId(rank), RankInfo { state: RankState::Active, incarnation, daemon });
        map.made = map.made.with(RankId(rank));
    }
    let entries = Arc::make_mut(&mut map.entries);
    for (dir, rank) in pins {
        let entry = Entry { rank: RankId(*rank), version, policy: Policy::Pin, moving: None };
        entries.insert(Unit { dir: *dir, frag: Frag::WHOLE }, entry);
    }
    map.check().expect("a map");
    map
}

fn said_map(map: &ClusterMap) -> ServerMsg {
    said(map.version, map.encode())
}

fn said(version: u64, bytes: Vec<u8>) -> ServerMsg {
    ServerMsg::Map { version, part: 0, parts: 1, bytes }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn create(parent: NodeRef, text: &str) -> Request {
    let new = NewNode { mode: 0o644, umask: 0, rdev: 0 };
    Request::Create { parent, name: name(text), new, flags: 2 }
}

fn lookup(parent: NodeRef, text: &str) -> Request {
    Request::Lookup { parent, name: name(text) }
}

fn attr(ino: u64, parent: Ino) -> Attr {
    Attr { ino: Ino(ino), mode: 0o100_644, nlink: 1, parent, ..Attr::default() }
}

fn dir(ino: u64, parent: Ino) -> Attr {
    Attr { ino: Ino(ino), mode: 0o040_755, nlink: 2, parent, ..Attr::default() }
}

fn lock() -> LockSpec {
    LockSpec { flock: true, owner: 1, kind: LockKind::Write, start: 0, end: 9, pid: 1 }
}

/// What a bench gathers from a step.
struct Said(Vec<Output>);

impl Said {
    fn sent(&self, to: u16) -> Vec<ClientMsg> {
        let to = |output: &Output| match output {
            Output::Send { rank, message } if *rank == RankId(to) => Some(message.clone()),
            _ => None,
        };
        self.0.iter().filter_map(to).collect()
    }

    /// The tids of what is asked of a rank.
    fn asked(&self, to: u16) -> Vec<u64> {
        self.sent(to).iter().filter_map(|message| Some(message.asked()?.0.0)).collect()
    }

    fn answers(&self) -> Vec<(u64, Outcome)> {
        let answer = |output: &Output| match output {
            Output::Answer { call, outcome, .. } => Some((call.0, outcome.clone())),
            _ => None,
        };
        self.0.iter().filter_map(answer).collect()
    }

    fn has(&self, output: &Output) -> bool {
        self.0.contains(output)
    }
}

struct Bench {
    router: Router,
    at: Now,
}

impl Bench {
    /// Rank 0 has welcomed it, and said the map.
    fn with(map: &ClusterMap) -> Self {
        let config = ClientConfig {
            retry: true,
            wants: Bits::ATTRS.with(Bits::DX),
            limits: Limits::default(),
            ..ClientConfig::default()
        };
        let mut bench = Self { router: Router::new(config), at: Now::default() };
        bench.step(Input::Connected { rank: RankId(0) });
        bench.welcome(0, 5, false);
        bench.say(0, said_map(map));
        bench
    }

    /// Two ranks; both have welcomed it.
    fn of_two() -> Self {
        let mut bench = Self::with(&map(2, 2, &[(PINNED.ino, 1)]));
        bench.call(900, lookup(PINNED, "first"));
        bench.step(Input::Connected { rank: RankId(1) });
        let said = bench.welcome(1, 5, false);
        assert_eq!(said.asked(1), [1]);
        bench.reply(1, 1, Err(Errno::ENOENT));
        bench
    }

    fn step(&mut self, input: Input) -> Said {
        let mut out = Vec::new();
        self.router.step(self.at, input, &mut out);
        let lost = out.iter().filter_map(|output| match output {
            Output::Lost { stamp } => Some(*stamp),
            _ => None,
        });
        if let Some(stamp) = lost.max() {
            self.router.step(self.at, Input::Dropped { stamp }, &mut out);
        }
        Said(out)
    }

    fn call(&mut self, call: u64, request: Request) -> Said {
        self.step(Input::Call { call: CallId(call), cred: Cred::ROOT, request })
    }

    fn say(&mut self, from: u16, message: ServerMsg) -> Said {
        self.step(Input::Message { rank: RankId(from), message })
    }

    fn reply(&mut self, from: u16, tid: u64, outcome: Outcome) -> Said {
        self.say(from, ServerMsg::Reply { tid: Tid(tid), outcome })
    }

    fn not_mine(&mut self, from: u16, tid: u64, owner: Option<u16>, version: u64) -> Said {
        self.say(from, ServerMsg::NotMine { tid: Tid(tid), owner: owner.map(RankId), version })
    }

    fn passes(&mut self, ms: u64) -> Said {
        self.at.mono = self.at.mono.after(ms * MS);
        self.step(Input::Tick)
    }

    fn welcome(&mut self, from: u16, session: u64, resumed: bool) -> Said {
        self.welcome_in(from, session, resumed, u64::from(from) + 1)
    }

    fn welcome_in(&mut self, from: u16, session: u64, resumed: bool, life: u64) -> Said {
        let message = ServerMsg::Welcome {
            protocol: PROTOCOL,
            session: SessionId(session),
            incarnation: Incarnation(life),
            fsid: [1; 16],
            resumed,
            lease_ms: LEASE_MS,
            root: Ino::ROOT,
            synced: false,
            former: Incarnation(0),
            token: token(session),
        };
        self.say(from, message)
    }

    /// The rank answers early, and delegates those directories.
    fn early(&mut self, from: u16, tid: u64, position: u64, attr: Attr, delegated: &[Attr]) -> Said {
        let delegated = delegated.iter().map(|dir| Delegated { dir: *dir, empty: true }).collect();
        self.say(
            from,
            ServerMsg::Early {
                tid: Tid(tid),
                position: Position(position),
                wall: Wall(1_000),
                outcome: Ok(Reply::Attr(attr)),
                grants: Grants::None,
                delegated,
            },
        )
    }
}

fn token(session: u64) -> JoinToken {
    JoinToken([session as u8; 16])
}

fn hello(message: &ClientMsg) -> (u64, At) {
    let ClientMsg::Hello { session, at, .. } = message else { panic!("{message:?}") };
    (session.0, *at)
}

#[test]
fn a_rank_is_connected_to_when_it_is_needed_and_joined() {
    let mut bench = Bench::with(&map(2, 3, &[(PINNED.ino, 1), (Ino(7001), 2)]));
    assert_eq!(bench.call(1, lookup(NodeRef::bare(Ino::ROOT), "pinned")).asked(0), [1]);
    let said = bench.call(2, lookup(PINNED, "a"));
    assert_eq!(said.0, [Output::Connect { rank: RankId(1) }]);
    assert_eq!(bench.call(3, create(PINNED, "b")).0, [], "asked for once");
    let said = bench.step(Input::Connected { rank: RankId(1) });
    let at = At { rank: RankId(1), join: true, token: token(5), map_version: 2, ..At::default() };
    assert_eq!(said.sent(1).iter().map(hello).collect::<Vec<_>>(), [(5, at)]);
    let said = bench.welcome(1, 5, false);
    assert!(said.has(&Output::Ready { rank: RankId(1) }));
    assert_eq!((said.asked(1), said.sent(1).len()), (vec![1, 2], 2), "nothing is resumed by who begins");
    assert_eq!(bench.reply(1, 1, Err(Errno::ENOENT)).answers(), [(2, Err(Errno::ENOENT))]);
    // Later it is resumed there, and joins nothing.
    bench.step(Input::Disconnected { rank: RankId(1) });
    let said = bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(hello(&said.sent(1)[0]), (5, At { join: false, ..at }));
    assert_eq!(bench.welcome(1, 5, true).asked(1), [2]);
}

#[test]
fn a_greeting_whose_answer_was_lost_is_said_again() {
    let mut bench = Bench::with(&map(2, 2, &[(PINNED.ino, 1)]));
    bench.call(1, lookup(PINNED, "a"));
    for _ in 0..2 {
        let said = bench.step(Input::Connected { rank: RankId(1) });
        assert!(hello(&said.sent(1)[0]).1.join);
        bench.step(Input::Disconnected { rank: RankId(1) });
    }
    bench.step(Input::Connected { rank: RankId(1) });
    // The rank had it from the first time.
    let said = bench.welcome(1, 5, true);
    assert!(said.sent(1).contains(&ClientMsg::Presented), "as any that is resumed");
    assert_eq!(said.asked(1), [1]);
}

#[test]
fn what_is_known_of_a_directory_says_whom_to_ask() {
    let mut bench = Bench::of_two();
    // What rank 1 shows of a directory is its own, too.
    bench.call(1, lookup(PINNED, "sub"));
    bench.reply(1, 2, Ok(Reply::Attr(dir(8000, PINNED.ino))));
    let sub = NodeRef { ino: Ino(8000), parent: PINNED.ino, hash: proto::NameHash(1) };
    assert_eq!(bench.call(2, lookup(NodeRef::bare(sub.ino), "deep")).asked(1), [3]);
    assert_eq!(bench.call(3, Request::GetAttr { node: sub }).asked(1), [4]);
    // An inode is with what it is in: the pinned directory itself with root.
    assert_eq!(bench.call(4, Request::GetAttr { node: PINNED }).asked(0), [1]);
    let root = Request::GetAttr { node: NodeRef::bare(Ino::ROOT) };
    assert_eq!(bench.call(5, root).asked(0), [2]);
    // One of which nothing is known is asked where it was last seen.
    let unknown = NodeRef { ino: Ino(8100), parent: sub.ino, hash: proto::NameHash(1) };
    assert_eq!(bench.call(6, lookup(unknown, "x")).asked(1), [5]);
    // Forgotten with the kernel.
    bench.step(Input::Forgotten { ino: sub.ino });
    assert_eq!(bench.call(7, lookup(NodeRef::bare(sub.ino), "deep")).asked(0), [3]);
    // Orphans say whose they are by where they are.
    let orphan = NodeRef { ino: Ino(9000), parent: Ino::orphans(RankId(1)), hash: proto::NameHash(1) };
    assert_eq!(bench.call(8, Request::GetAttr { node: orphan }).asked(1), [6]);
    let linked = NodeRef { ino: Ino(9001), parent: Ino::LINKS, hash: proto::NameHash(1) };
    assert_eq!(bench.call(9, Request::GetAttr { node: linked }).asked(0), [4]);
}

#[test]
fn a_map_of_many_entries_comes_in_parts() {
    let pins: Vec<(Ino, u16)> = (0..30_000).map(|at| (Ino(100_000 + at), 1)).collect();
    let mut bench = Bench::with(&map(1, 2, &[]));
    let great = map(2, 2, &pins);
    let parts = ServerMsg::maps(2, &great.encode());
    assert!(parts.len() > 1, "{}", great.encode().len());
    assert_eq!(bench.call(1, lookup(NodeRef::bare(Ino(129_999)), "a")).asked(0), [1]);
    for part in parts {
        bench.say(0, part);
    }
    assert_eq!(bench.call(2, lookup(NodeRef::bare(Ino(129_998)), "a")).asked(0), []);
    assert!(bench.not_mine(0, 1, Some(1), 2).asked(0).is_empty());
}

/// A rank that sends something away says the map first. One that names nobody, and is the only one, has nobody to name.
#[test]
fn where_no_other_rank_is_known_such_a_call_fails() {
    let mut bench = Bench::with(&map(1, 1, &[]));
    assert_eq!(bench.call(1, lookup(NodeRef::bare(Ino::ROOT), "a")).asked(0), [1]);
    let said = bench.not_mine(0, 1, Some(1), 1);
    assert_eq!(said.sent(0), [ClientMsg::WantMap { have: 0 }], "root is always that rank's");
    assert_eq!(said.answers(), [], "and the map is to say it");
    bench.say(0, said_map(&map(1, 1, &[])));
    let mut bench = Bench::with(&map(1, 1, &[]));
    assert_eq!(bench.call(2, lookup(NodeRef::bare(Ino(8000)), "a")).asked(0), [1]);
    assert_eq!(bench.not_mine(0, 1, Some(1), 1).answers(), [(2, Err(Errno::ESTALE))]);
}

#[test]
fn a_wait_that_was_given_up_is_sent_nowhere_else() {
    let mut bench = Bench::of_two();
    bench.call(1, Request::SetLock { node: NodeRef::bare(Ino(8000)), lock: lock(), wait: true });
    assert_eq!(bench.step(Input::Interrupt { call: CallId(1) }).sent(0).len(), 1);
    assert_eq!(bench.not_mine(0, 1, Some(1), 2).answers(), [(1, Err(Errno::EINTR))]);
}

#[test]
fn a_map_that_a_rank_contradicts_is_dropped_and_asked_for_anew() {
    let mut bench = Bench::of_two();
    bench.call(1, lookup(PINNED, "a"));
    bench.not_mine(1, 2, Some(0), 1);
    assert_eq!(bench.call(2, lookup(PINNED, "b")).asked(1), [3], "a rank that is behind proves nothing");
    bench.reply(1, 3, Err(Errno::ENOENT));
    bench.call(3, lookup(PINNED, "c"));
    let said = bench.not_mine(1, 4, Some(0), 2);
    assert_eq!((said.asked(0), said.sent(1)), (vec![1], vec![ClientMsg::WantMap { have: 0 }]));
    assert_eq!(bench.call(4, lookup(PINNED, "d")).asked(0), [2], "it goes by what was said");
    let said = bench.say(1, said_map(&map(2, 2, &[])));
    assert_eq!(said.asked(0), [3], "what waited for the slow one");
}

#[test]
fn maps_and_deltas_of_several_ranks_come_in_any_order() {
    let (second, third) = (map(2, 2, &[(PINNED.ino, 1)]), map(3, 2, &[(PINNED.ino, 1), (Ino(7001), 1)]));
    let mut fourth = third.clone();
    fourth.version = 4;
    Arc::make_mut(&mut fourth.entries).remove(&Unit { dir: PINNED.ino, frag: Frag::WHOLE });
    let last = News::Map(Box::new(fourth.clone()));
    let delta = |to: &ClusterMap, from: &ClusterMap| to.diff(from).encode();
    assert_eq!(map::after(None, &second.encode()), News::Map(Box::new(second.clone())));
    assert_eq!(map::after(Some(&third), &second.encode()), News::Nothing, "older");
    assert_eq!(map::after(Some(&third), &delta(&fourth, &third)), last);
    assert_eq!(map::after(Some(&second), &delta(&fourth, &third)), News::Gap(4), "something is missing");
    assert_eq!(map::after(Some(&fourth), &delta(&fourth, &second)), News::Nothing, "known");
    assert_eq!(map::after(None, &delta(&fourth, &third)), News::Gap(4));
    assert_eq!(map::after(None, b"rubbish"), News::Nothing);
}

/// What broke: a rank that came and went between two maps stayed in the client's, and calls waited for it for ever.
#[test]
fn what_came_and_went_between_two_maps_does_not_stay() {
    let second = map(2, 2, &[(PINNED.ino, 1)]);
    let (third, mut fourth) = (map(3, 3, &[(PINNED.ino, 1), (Ino(7001), 2)]), second.clone());
    fourth.version = 4;
    (fourth.last_incarnation, fourth.last_daemon) = (third.last_incarnation, third.last_daemon);
    let mut bench = Bench::with(&third);
    let gap = said(4, fourth.diff(&second).encode());
    assert_eq!(bench.say(0, gap.clone()).sent(0), [ClientMsg::WantMap { have: 3 }]);
    assert_eq!(bench.say(0, gap).0, [], "asked for once");
    assert_eq!(bench.call(1, lookup(NodeRef::bare(Ino(7001)), "a")).0, [Output::Connect { rank: RankId(2) }]);
    let gone = bench.say(0, said(4, fourth.diff(&third).encode()));
    assert_eq!((gone.asked(0), gone.has(&Output::Disconnect { rank: RankId(2) })), (vec![1], true));
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_takes_any_delta_is_caught() {
    stdx::mutant::activate(Some("client_takes_any_delta"));
    let verdict = std::panic::catch_unwind(what_came_and_went_between_two_maps_does_not_stay);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// A name of a file with several: the inode is rank 0's.
#[test]
fn a_file_with_several_names_is_opened_where_it_is() {
    let mut bench = Bench::of_two();
    let file = attr(8001, Ino::LINKS);
    let only = |said: &Said, at: u16| match said.asked(at)[..] {
        [tid] => tid,
        _ => panic!("{:?}", said.0),
    };
    let said = bench.call(1, create(PINNED, "a"));
    let said = bench.reply(1, only(&said, 1), Err(Errno::EXDEV));
    assert!(matches!(&said.sent(1)[..], [ClientMsg::Request { request: Request::Lookup { .. }, .. }]));
    let said = bench.reply(1, only(&said, 1), Ok(Reply::Attr(file)));
    assert!(matches!(
        &said.sent(0)[..],
        [ClientMsg::Request { request: Request::Open { node, .. }, .. }] if node.ino == file.ino
    ));
    // Its last name goes just then, and another file gets that one.
    let said = bench.reply(0, only(&said, 0), Err(Errno::ESTALE));
    assert!(matches!(&said.sent(1)[..], [ClientMsg::Request { request: Request::Create { .. }, .. }]));
    let said = bench.reply(1, only(&said, 1), Err(Errno::EXDEV));
    let said = bench.reply(1, only(&said, 1), Err(Errno::ENOENT));
    let said = bench.reply(1, only(&said, 1), Err(Errno::EXDEV));
    let other = attr(8002, Ino::LINKS);
    let said = bench.reply(1, only(&said, 1), Ok(Reply::Attr(other)));
    let opened = Ok(Reply::Created { attr: other, new: false });
    assert_eq!(bench.reply(0, only(&said, 0), Ok(Reply::Attr(other))).answers(), [(1, opened)]);
    assert_eq!((bench.router.opens(Ino(8001)), bench.router.opens(Ino(8002))), (0, 1));
    assert_eq!(bench.router.waiting().count(), 0);
    // What may not be looked up is said so.
    let said = bench.call(2, create(PINNED, "b"));
    let said = bench.reply(1, only(&said, 1), Err(Errno::EXDEV));
    assert_eq!(bench.reply(1, only(&said, 1), Err(Errno::EACCES)).answers(), [(2, Err(Errno::EACCES))]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_opens_no_link_is_caught() {
    stdx::mutant::activate(Some("client_opens_no_link"));
    let verdict = std::panic::catch_unwind(a_file_with_several_names_is_opened_where_it_is);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn a_sync_of_everything_is_everybodys() {
    let mut bench = Bench::of_two();
    let said = bench.call(1, Request::SyncFs);
    assert_eq!((said.asked(0), said.asked(1)), (vec![1], vec![2]));
    assert_eq!(bench.reply(0, 1, Ok(Reply::Ok)).answers(), []);
    assert_eq!(bench.reply(1, 2, Ok(Reply::Ok)).answers(), [(1, Ok(Reply::Ok))]);
    bench.call(2, Request::SyncFs);
    assert_eq!(bench.reply(0, 2, Err(Errno::EIO)).answers(), []);
    assert_eq!(bench.reply(1, 3, Ok(Reply::Ok)).answers(), [(2, Err(Errno::EIO))]);
    // Whoever waits for it is killed.
    bench.call(3, Request::SyncFs);
    bench.reply(0, 3, Ok(Reply::Ok));
    let said = bench.step(Input::Abandon { call: CallId(3) });
    assert_eq!(said.answers(), [(3, Err(Errno::EINTR))]);
}

#[test]
fn the_space_of_the_file_system_anybody_tells() {
    let mut bench = Bench::of_two();
    bench.step(Input::Disconnected { rank: RankId(0) });
    assert_eq!(bench.call(1, Request::StatFs).asked(1), [2], "who is there");
    let outcome = Ok(Reply::StatFs(StatFs::default()));
    assert_eq!(bench.reply(1, 2, outcome.clone()).answers(), [(1, outcome)]);
}

#[test]
fn a_sync_of_a_directory_that_is_pinned_is_of_both_its_ranks() {
    let mut bench = Bench::of_two();
    let said = bench.call(1, Request::Fsync { node: PINNED, data_only: false });
    let sent =
        |to| said.sent(to).into_iter().filter_map(|m| m.asked().map(|(_, request)| request.kind().name()));
    assert_eq!((sent(0).collect::<Vec<_>>(), sent(1).collect::<Vec<_>>()), (vec!["fsync"], vec!["fsync"]));
    bench.reply(1, 2, Ok(Reply::Ok));
    assert_eq!(bench.reply(0, 1, Ok(Reply::Ok)).answers(), [(1, Ok(Reply::Ok))]);
}

/// Renames something at rank 0, which says so early.
fn renamed(bench: &mut Bench) {
    let root = NodeRef::bare(Ino::ROOT);
    let (name, new_name) = (name("old"), name("new"));
    bench.call(10, Request::Rename { parent: root, name, new_parent: root, new_name, flags: 0 });
    bench.say(
        0,
        ServerMsg::Early {
            tid: Tid(1),
            position: Position(70),
            wall: Wall(1),
            outcome: Ok(Reply::Ok),
            grants: Grants::None,
            delegated: Vec::new(),
        },
    );
}

fn fsync_at_the_other(bench: &mut Bench) {
    let node = NodeRef { ino: Ino(8000), parent: PINNED.ino, hash: proto::NameHash(1) };
    assert_eq!(bench.call(11, Request::Fsync { node, data_only: false }).asked(1), [2]);
    if !stdx::mutant!("client_sync_of_one_rank") {
        assert_eq!(bench.reply(1, 2, Ok(Reply::Ok)).answers(), [], "it may be elsewhere after a crash");
    }
}

/// What an fsync is about lies below what was moved, perhaps.
#[test]
fn a_sync_waits_for_what_was_moved_at_another_rank() {
    let mut bench = Bench::of_two();
    renamed(&mut bench);
    fsync_at_the_other(&mut bench);
    assert_eq!(bench.say(0, ServerMsg::Durable { position: Position(69) }).answers(), []);
    let said = bench.say(0, ServerMsg::Durable { position: Position(70) });
    assert_eq!(said.answers(), [(11, Ok(Reply::Ok))]);
}

/// What broke: the rank that was asked first was not looked at.
#[test]
fn a_sync_that_is_sent_away_waits_for_what_was_moved_where_it_was_sent_first() {
    let mut bench = Bench::of_two();
    renamed(&mut bench);
    bench.call(12, lookup(NodeRef::bare(Ino::ROOT), "sub"));
    bench.reply(0, 2, Ok(Reply::Attr(dir(8000, Ino::ROOT))));
    let node = NodeRef { ino: Ino(8001), parent: Ino(8000), hash: proto::NameHash(1) };
    assert_eq!(bench.call(11, Request::Fsync { node, data_only: false }).asked(0), [3]);
    assert_eq!(bench.not_mine(0, 3, Some(1), 2).asked(1), [2]);
    assert_eq!(bench.reply(1, 2, Ok(Reply::Ok)).answers(), []);
    let said = bench.say(0, ServerMsg::Durable { position: Position(70) });
    assert_eq!(said.answers(), [(11, Ok(Reply::Ok))]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_sync_that_looks_at_one_rank_is_caught() {
    stdx::mutant::activate(Some("client_sync_of_one_rank"));
    let verdict = std::panic::catch_unwind(a_sync_waits_for_what_was_moved_at_another_rank);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

#[test]
fn such_a_sync_fails_with_what_it_waits_for_and_can_be_given_up() {
    let refusal = || ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    let mut bench = Bench::of_two();
    renamed(&mut bench);
    fsync_at_the_other(&mut bench);
    let said = bench.say(0, refusal());
    assert!(said.answers().contains(&(11, Err(Errno::EIO))), "{:?}", said.0);
    let mut bench = Bench::of_two();
    renamed(&mut bench);
    fsync_at_the_other(&mut bench);
    let said = bench.step(Input::Abandon { call: CallId(11) });
    assert_eq!(said.answers(), [(11, Err(Errno::EINTR))]);
    assert_eq!(bench.say(0, ServerMsg::Durable { position: Position(70) }).answers(), []);
}

#[test]
fn stamps_are_one_order_and_say_whose_they_are() {
    let mut bench = Bench::of_two();
    let recall = |ino| {
        let list = vec![Recalled { ino: Ino(ino), bits: Bits::FS, number: 3, name: None }];
        ServerMsg::Recall { list }
    };
    let returned = |ino| vec![Returned { ino: Ino(ino), bits: Bits::FS, number: 3 }];
    let mut last = 0;
    let mut recalled = Vec::new();
    for (from, ino) in [(1, 10), (0, 20), (1, 30), (1, 40), (0, 50)] {
        let said = bench.say(from, recall(ino));
        let [Output::Recalled { stamp, .. }] = said.0[..] else { panic!("{:?}", said.0) };
        assert!(stamp > last);
        last = stamp;
        recalled.push((from, ino, stamp));
    }
    for (from, ino, stamp) in recalled.into_iter().rev() {
        let list = returned(ino);
        let said = bench.step(Input::Returned { stamp, list: list.clone() });
        assert_eq!((said.sent(from), said.0.len()), (vec![ClientMsg::Returned { list }], 1));
    }
    // What one rank's end voids comes before all that is handed out later, by whomever.
    let said = bench.step(Input::Disconnected { rank: RankId(1) });
    let lost = said.0.iter().find_map(|o| if let Output::Lost { stamp } = o { Some(*stamp) } else { None });
    assert!(lost.is_some_and(|lost| lost > last));
    bench.call(1, lookup(NodeRef::bare(Ino::ROOT), "a"));
    let (outcome, grants) = (Ok(Reply::Attr(attr(8000, Ino::ROOT))), Grants::One(Bits::ATTRS));
    let said = bench.say(0, ServerMsg::Granted { tid: Tid(1), outcome, grants });
    let [Output::Answer { validity, .. }] = &said.0[..] else { panic!("{:?}", said.0) };
    assert!(validity.stamp >= lost.unwrap() && validity.grants.of(0) == Bits::ATTRS);
}

/// A recall of before there were several is the first rank's.
#[test]
fn what_was_recalled_before_there_were_several_ranks_goes_back_to_the_first() {
    let first = map(1, 2, &[]);
    let mut bench = Bench::with(&first);
    let list = vec![Recalled { ino: Ino(9), bits: Bits::FS, number: 7, name: None }];
    for _ in 0..5 {
        bench.say(0, ServerMsg::Recall { list: list.clone() });
    }
    let said = bench.say(0, ServerMsg::Recall { list });
    let [Output::Recalled { stamp, .. }] = said.0[..] else { panic!("{:?}", said.0) };
    bench.say(0, said_map(&map(2, 2, &[(PINNED.ino, 1)])));
    let list = vec![Returned { ino: Ino(9), bits: Bits::FS, number: 7 }];
    assert_eq!(bench.step(Input::Returned { stamp, list }).sent(0).len(), 1);
}

#[test]
fn a_rank_that_is_away_is_waited_for_and_the_others_serve() {
    let mut bench = Bench::of_two();
    assert_eq!(bench.call(1, lookup(PINNED, "a")).asked(1), [2]);
    bench.step(Input::Disconnected { rank: RankId(1) });
    assert!(bench.call(2, lookup(PINNED, "b")).0.is_empty());
    assert_eq!(bench.call(3, lookup(NodeRef::bare(Ino::ROOT), "c")).asked(0), [1]);
    assert_eq!(bench.reply(0, 1, Err(Errno::ENOENT)).answers(), [(3, Err(Errno::ENOENT))]);
    assert!(bench.router.is_linked(RankId(0)) && !bench.router.is_linked(RankId(1)));
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.welcome(1, 5, true).asked(1), [2, 3]);
    // Its lease is renewed for itself.
    bench.at.mono = bench.at.mono.after(4 * SECOND);
    let said = bench.step(Input::Tick);
    assert_eq!((said.sent(0).len(), said.sent(1).is_empty()), (1, false));
}

#[test]
fn a_session_that_is_over_at_one_rank_is_over_at_all_and_one_takes_its_place() {
    let mut bench = Bench::of_two();
    bench.router.each_client().for_each(|client| client.recover_clean());
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: attr(8000, PINNED.ino), new: true }));
    bench.call(2, lookup(PINNED, "b"));
    bench.call(3, lookup(NodeRef::bare(Ino::ROOT), "c"));
    let refused = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    let said = bench.say(0, refused);
    let mut answers = said.answers();
    answers.sort_by_key(|(call, _)| *call);
    assert_eq!(answers, [(2, Err(Errno::EIO)), (3, Err(Errno::EIO))]);
    assert!(said.has(&Output::Disconnect { rank: RankId(1) }) && !bench.router.is_linked(RankId(1)));
    assert_eq!(bench.router.session(), SessionId(0));
    // What comes meanwhile waits. Rank 0 gives the number, rank 1 is joined with it.
    bench.call(4, lookup(PINNED, "d"));
    let said = bench.step(Input::Connected { rank: RankId(0) });
    assert_eq!(
        hello(&said.sent(0)[0]),
        (0, At { rank: RankId(0), join: false, token: token(0), map_version: 2, ..At::default() })
    );
    let said = bench.welcome(0, 6, false);
    assert!(said.has(&Output::Connect { rank: RankId(1) }));
    let said = bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(
        hello(&said.sent(1)[0]),
        (6, At { rank: RankId(1), join: true, token: token(6), map_version: 2, ..At::default() })
    );
    let said = bench.welcome(1, 6, false);
    let claims = said.sent(1).iter().filter(|m| matches!(m, ClientMsg::Reclaim { .. })).count();
    assert_eq!((claims, said.asked(1).len()), (1, 1), "what is open is open in the new one");
}

#[test]
fn a_session_that_is_refused_for_good_is_over_everywhere_and_that_is_said_once() {
    let mut bench = Bench::of_two();
    bench.call(1, lookup(PINNED, "a"));
    bench.call(2, lookup(NodeRef::bare(Ino::ROOT), "b"));
    let refused = ServerMsg::Refused { errno: Errno::ESTALE.0 as u32, reason: "evicted".to_owned() };
    let said = bench.say(1, refused);
    let mut answers = said.answers();
    answers.sort_by_key(|(call, _)| *call);
    assert_eq!(answers, [(1, Err(Errno::EIO)), (2, Err(Errno::EIO))]);
    let refusals = said.0.iter().filter(|o| matches!(o, Output::Refused { .. })).count();
    assert_eq!(refusals, 1);
    assert_eq!(bench.call(3, lookup(PINNED, "c")).answers(), [(3, Err(Errno::ESHUTDOWN))]);
    assert_eq!(bench.router.deadline(), None);
}

#[test]
fn closing_is_over_when_all_have_heard_goodbye() {
    let mut bench = Bench::of_two();
    bench.call(1, lookup(PINNED, "a"));
    let said = bench.step(Input::Close);
    assert_eq!((said.sent(0), said.has(&Output::Closed)), (vec![ClientMsg::Goodbye], false));
    assert_eq!(bench.call(2, lookup(NodeRef::bare(Ino(7)), "c")).answers(), [(2, Err(Errno::ESHUTDOWN))]);
    // It was not carried out, and is asked nowhere else.
    let said = bench.not_mine(1, 2, Some(0), 1);
    assert_eq!(said.answers(), [(1, Err(Errno::ESHUTDOWN))]);
    assert_eq!(said.sent(1), [ClientMsg::Goodbye]);
    assert_eq!(said.0.last(), Some(&Output::Closed));
    assert_eq!(bench.step(Input::Tick).0, []);
}

/// Directories 8000 and 8001 below the pinned one are delegated by rank 1, and a directory and a file are made in the first.
fn delegated() -> Bench {
    let mut bench = Bench::of_two();
    bench.say(1, ServerMsg::Numbers { first: Ino(1 << 48), count: 50, generation: 1, seed: SEED });
    for (tid, ino) in [(2, 8000), (3, 8001)] {
        let new = NewNode { mode: 0o755, umask: 0, rdev: 0 };
        let made = Request::MkDir { parent: PINNED, name: name(&ino.to_string()), new };
        assert_eq!(bench.call(100 + ino, made).asked(1), [tid]);
        bench.early(1, tid, ino, dir(ino, PINNED.ino), &[dir(ino, PINNED.ino)]);
    }
    let new = || NewNode { mode: 0o755, umask: 0, rdev: 0 };
    let first = NodeRef::bare(Ino(8000));
    let said = bench.call(1, Request::MkDir { parent: first, name: name("sub"), new: new() });
    assert!(matches!(said.sent(1)[..], [ClientMsg::Performed { told: Told { heard: false, .. }, .. }]));
    let said = bench.call(2, create(first, "file"));
    assert!(matches!(said.sent(1)[..], [ClientMsg::Performed { .. }]));
    bench
}

fn rename(from: u64, text: &str, to: u64) -> Request {
    let (parent, new_parent) = (NodeRef::bare(Ino(from)), NodeRef::bare(Ino(to)));
    Request::Rename { parent, name: name(text), new_parent, new_name: name("moved"), flags: 0 }
}

/// One of several ranks refuses what it may not know to be right; a client that performed it would have told its caller otherwise.
#[test]
fn what_only_a_rank_that_has_everything_can_do_is_not_performed() {
    let performed = |said: &Said| matches!(said.sent(1)[..], [ClientMsg::Performed { .. }]);
    let mut bench = delegated();
    assert!(performed(&bench.call(3, rename(8000, "file", 8001))), "a file goes anywhere");
    let mut bench = delegated();
    assert!(performed(&bench.call(3, rename(8000, "sub", 8000))), "a directory gets another name");
    let mut bench = delegated();
    assert!(!performed(&bench.call(3, rename(8000, "sub", 8001))), "the two may be below two entries");
    let mut bench = delegated();
    let file = NodeRef::bare(Ino((1 << 48) + 1));
    let link = Request::Link { node: file, parent: NodeRef::bare(Ino(8000)), name: name("second") };
    assert!(!performed(&bench.call(3, link)), "inodes with several names are rank 0's");
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_performs_it_is_caught() {
    for defect in ["client_moves_dirs_of_several", "client_links_anywhere"] {
        stdx::mutant::activate(Some(defect));
        let verdict = std::panic::catch_unwind(what_only_a_rank_that_has_everything_can_do_is_not_performed);
        stdx::mutant::activate(None);
        assert!(verdict.is_err(), "{defect}");
    }
}

/// What broke: a client that had asked nobody but rank 0 took it for the only one, and moved a directory by itself to where another entry
/// governs.
#[test]
fn a_directory_is_moved_by_its_client_only_where_there_is_no_other_rank() {
    let performs = |ranks: u16| {
        let mut bench = Bench::with(&map(2, ranks, &[(PINNED.ino, 0)]));
        bench.say(0, ServerMsg::Numbers { first: Ino(1 << 48), count: 50, generation: 1, seed: SEED });
        let new = || NewNode { mode: 0o755, umask: 0, rdev: 0 };
        for (tid, ino) in [(1, 8000), (2, 8001)] {
            let made = Request::MkDir { parent: PINNED, name: name(&ino.to_string()), new: new() };
            assert_eq!(bench.call(100 + ino, made).asked(0), [tid]);
            bench.early(0, tid, ino, dir(ino, PINNED.ino), &[dir(ino, PINNED.ino)]);
        }
        bench.call(1, Request::MkDir { parent: NodeRef::bare(Ino(8000)), name: name("sub"), new: new() });
        matches!(bench.call(3, rename(8000, "sub", 8001)).sent(0)[..], [ClientMsg::Performed { .. }])
    };
    assert_eq!([1, 2].map(performs), [true, false]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_takes_itself_for_alone_is_caught() {
    stdx::mutant::activate(Some("client_alone_with_others"));
    let verdict =
        std::panic::catch_unwind(a_directory_is_moved_by_its_client_only_where_there_is_no_other_rank);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// No rank says so; if one does, whoever was told is to hear of it.
#[test]
fn what_was_performed_and_is_sent_away_is_told_late() {
    let mut bench = delegated();
    let said = bench.not_mine(1, 5, Some(0), 2);
    assert!(matches!(said.0[..], [Output::Late { errno: Errno::ESTALE, .. }]), "{:?}", said.0);
}

/// The map without the last rank, or with it stopping.
fn going(version: u64, stops: bool) -> ClusterMap {
    let mut map = map(version, 2, &[(PINNED.ino, 0)]);
    match stops {
        true => map.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Stopping,
        false => drop(map.ranks.remove(&RankId(1))),
    }
    map
}

/// It goes, and has nothing of the session.
fn dismissed() -> ServerMsg {
    ServerMsg::Refused { errno: Errno::ENOTCONN.0 as u32, reason: "the rank leaves".to_owned() }
}

#[test]
fn the_session_ends_where_a_rank_stops_when_nothing_is_left_there() {
    let mut bench = Bench::of_two();
    let file = attr(8000, PINNED.ino);
    bench.call(1, create(PINNED, "a"));
    bench.reply(1, 2, Ok(Reply::Created { attr: file, new: true }));
    let mut stops = map(3, 2, &[(PINNED.ino, 1)]);
    stops.ranks.get_mut(&RankId(1)).expect("a rank").state = RankState::Stopping;
    assert_eq!(bench.say(0, said_map(&stops)).0, [], "it owns something yet");
    assert_eq!(bench.say(0, said_map(&going(4, true))).0, [], "a file is open there");
    let said = bench.call(2, Request::Release { node: NodeRef::bare(Ino(8000)), count: 1 });
    // It was opened there; by now it is somewhere else.
    assert_eq!(said.asked(1), [3]);
    assert_eq!(bench.not_mine(1, 3, Some(0), 4).asked(0), [1]);
    let said = bench.reply(0, 1, Ok(Reply::Ok));
    assert_eq!((said.answers(), said.sent(1)), (vec![(2, Ok(Reply::Ok))], vec![]));
    assert!(bench.router.is_linked(RankId(1)), "the rank ends it");
    assert!(bench.say(1, dismissed()).has(&Output::Disconnect { rank: RankId(1) }));
    assert_eq!(bench.router.session(), SessionId(5), "it goes on");
    // It comes again.
    bench.say(0, said_map(&map(5, 2, &[(PINNED.ino, 1)])));
    assert_eq!(bench.call(4, lookup(PINNED, "b")).0, [Output::Connect { rank: RankId(1) }]);
    let said = bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(
        hello(&said.sent(1)[0]),
        (5, At { rank: RankId(1), join: true, token: token(5), map_version: 5, ..At::default() })
    );
    assert_eq!(bench.welcome(1, 5, false).asked(1), [4], "tids go on");
}

/// What broke: calls to a rank that was not there any more waited for ever.
#[test]
fn what_was_asked_of_a_rank_that_has_left_is_asked_of_others() {
    let mut bench = Bench::of_two();
    bench.call(1, lookup(PINNED, "a"));
    bench.call(2, create(PINNED, "b"));
    bench.call(3, Request::SyncFs);
    bench.reply(0, 1, Ok(Reply::Ok));
    bench.step(Input::Disconnected { rank: RankId(1) });
    bench.call(4, create(PINNED, "c"));
    let said = bench.say(0, said_map(&going(3, false)));
    let mut answers = said.answers();
    answers.sort_by_key(|(call, _)| *call);
    assert_eq!(answers, [(2, Err(Errno::EIO)), (3, Ok(Reply::Ok))], "it may have made the one");
    let asked: Vec<_> = said.sent(0).iter().filter_map(|m| Some(m.asked()?.1.kind().name())).collect();
    assert_eq!(asked, ["lookup", "create"]);
    assert!(said.has(&Output::Disconnect { rank: RankId(1) }));
    assert!(!said.0.iter().any(|o| matches!(o, Output::Refused { .. } | Output::Late { .. })));
    assert_eq!(bench.reply(0, 2, Err(Errno::ENOENT)).answers(), [(1, Err(Errno::ENOENT))]);
    assert_eq!(bench.router.session(), SessionId(5));
}

#[test]
fn what_a_rank_that_has_left_had_said_early_is_told_late() {
    let mut bench = delegated();
    let said = bench.say(0, said_map(&going(3, false)));
    let late = said.0.iter().filter(|o| matches!(o, Output::Late { errno: Errno::EIO, .. })).count();
    assert_eq!(late, 4, "{:?}", said.0);
    assert_eq!(bench.router.kept(), 0);
    assert_eq!(bench.call(50, Request::SyncFs).asked(0).len(), 1);
}

#[test]
fn a_greeting_that_is_refused_for_now_is_no_eviction() {
    let refused = || ServerMsg::Refused { errno: Errno::ESHUTDOWN.0 as u32, reason: "another".to_owned() };
    let mut bench = Bench::with(&map(2, 2, &[(PINNED.ino, 1)]));
    bench.call(1, lookup(PINNED, "a"));
    for _ in 0..3 {
        bench.step(Input::Connected { rank: RankId(1) });
        let said = bench.say(1, refused());
        assert!(said.answers().is_empty() && !bench.router.is_linked(RankId(1)), "{:?}", said.0);
    }
    // With a map that says that it need not.
    bench.step(Input::Connected { rank: RankId(1) });
    assert_eq!(bench.say(1, said_map(&map(3, 2, &[(PINNED.ino, 0)]))).0, []);
    bench.say(1, refused());
    assert_eq!(bench.call(2, lookup(PINNED, "b")).asked(0), [1]);
    assert_eq!(bench.router.session(), SessionId(5));
}

#[test]
fn what_there_is_is_divided_among_ranks() {
    let config = ClientConfig {
        retry: true,
        wants: Bits::ATTRS,
        info: proto::message::ClientInfo { caps_max: 1000, ..Default::default() },
        ..ClientConfig::default()
    };
    let mut bench = Bench { router: Router::new(config), at: Now::default() };
    bench.step(Input::Connected { rank: RankId(0) });
    bench.welcome(0, 5, false);
    bench.say(0, said_map(&map(2, 2, &[(PINNED.ino, 1)])));
    let said = bench.call(1, lookup(PINNED, "a"));
    assert_eq!(said.sent(0), [ClientMsg::CapsMax { caps_max: 500 }]);
    let said = bench.step(Input::Connected { rank: RankId(1) });
    let [ClientMsg::Hello { info, .. }] = &said.sent(1)[..] else { panic!("{:?}", said.0) };
    assert_eq!(info.caps_max, 500);
    let said = bench.say(0, said_map(&going(3, false)));
    assert!(said.sent(0).contains(&ClientMsg::CapsMax { caps_max: 1000 }));
}

/// A rank that stops ends what is left of a session there, and closes the connection.
#[test]
fn a_rank_that_stops_and_has_ended_the_session_is_not_greeted_again() {
    let mut bench = Bench::of_two();
    bench.step(Input::Disconnected { rank: RankId(1) });
    assert_eq!(bench.say(0, said_map(&going(3, true))).0, [], "it may know the session");
    let said = bench.step(Input::Connected { rank: RankId(1) });
    let at = At { rank: RankId(1), join: true, token: token(5), map_version: 3, ..At::default() };
    assert_eq!(said.sent(1).iter().map(hello).collect::<Vec<_>>(), [(5, at)]);
    assert!(bench.say(1, dismissed()).has(&Output::Disconnect { rank: RankId(1) }));
    assert!(!bench.router.has(RankId(1)));
    assert_eq!(bench.call(1, lookup(PINNED, "a")).asked(0), [1]);
}

/// Cookies are hashes of names: they mean the same at the rank to which the directory has moved.
#[test]
fn a_listing_goes_on_where_the_directory_has_moved() {
    let mut bench = Bench::of_two();
    let page = |after| Request::ReadDir { dir: PINNED, after, attrs: true, bytes_max: 4096 };
    bench.call(1, page(0));
    let entries = vec![];
    let outcome = Ok(Reply::Entries { entries, end: false });
    assert_eq!(bench.reply(1, 2, outcome.clone()).answers(), [(1, outcome)]);
    bench.call(2, page(77));
    bench.say(1, said_map(&map(3, 2, &[(PINNED.ino, 0)])));
    let said = bench.not_mine(1, 3, Some(0), 3);
    let asked = said.sent(0).iter().filter_map(|m| Some(m.asked()?.1.clone())).collect::<Vec<_>>();
    assert_eq!(asked, [page(77)]);
}
