//! The machine against a rank reduced to its contract: a result per tid, executed once.
//!
//! Absent: what requests do; here each does nothing but count.

use super::*;
use crate::config::Limits;
use proto::caps::{Bits, Grants, KEEP_ASKED_MS, KEEP_MARGIN_MS, KEEP_MS, Recalled, Returned};
use proto::message::{ClientMsg, JoinToken, PROTOCOL};
use proto::reply::Reply;
use proto::request::{LockKind, LockSpec, NewNode};
use proto::{Attr, Incarnation, Name, NodeRef, RankId};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Prng;
use stdx::time::{MS, SECOND};

mod breaks;
mod calls;
mod delegated;
mod early;
mod ended;
mod files;
mod grants;
mod idle;
pub(crate) mod model;
mod moved;
mod rewrite;
mod shadow;
mod shown;

use shadow::Shadow;

const LEASE_MS: u32 = 9_000;

const RANK: RankId = RankId(0);

fn from_rank(message: ServerMsg) -> Input {
    Input::Message { rank: RANK, message }
}

fn to_rank(message: ClientMsg) -> Output {
    Output::Send { rank: RANK, message }
}

fn node(ino: u64) -> NodeRef {
    NodeRef::bare(Ino(ino))
}

fn getattr(ino: u64) -> Request {
    Request::GetAttr { node: node(ino) }
}

fn lock(owner: u64, kind: LockKind) -> LockSpec {
    LockSpec { flock: false, owner, kind, start: 0, end: 9, pid: 1 }
}

fn lock_wait(ino: u64, owner: u64) -> Request {
    Request::SetLock { node: node(ino), lock: lock(owner, LockKind::Write), wait: true }
}

fn attr(ino: u64) -> Outcome {
    Ok(Reply::Attr(Attr { ino: Ino(ino), ..Attr::default() }))
}

fn welcome(session: u64, resumed: bool) -> Input {
    welcome_in(session, resumed, 1)
}

fn welcome_in(session: u64, resumed: bool, life: u64) -> Input {
    welcome_after(session, resumed, life, false)
}

fn welcome_after(session: u64, resumed: bool, life: u64, synced: bool) -> Input {
    welcome_behind(session, resumed, (life, life - 1), synced)
}

/// Between a life of the rank and the one before there may be many of others.
fn welcome_behind(session: u64, resumed: bool, (life, former): (u64, u64), synced: bool) -> Input {
    welcome_below(Ino::ROOT, session, resumed, (life, former), synced)
}

/// Of a session that is limited to a directory.
fn welcome_below(root: Ino, session: u64, resumed: bool, (life, former): (u64, u64), synced: bool) -> Input {
    from_rank(ServerMsg::Welcome {
        protocol: PROTOCOL,
        session: SessionId(session),
        incarnation: Incarnation(life),
        fsid: [1; 16],
        resumed,
        lease_ms: LEASE_MS,
        root,
        synced,
        former: Incarnation(former),
        token: JoinToken([session as u8; 16]),
    })
}

fn reply(tid: u64, outcome: Outcome) -> Input {
    from_rank(ServerMsg::Reply { tid: Tid(tid), outcome })
}

struct Bench {
    client: Client,
    /// The same behind routers.
    shadows: [Shadow; 2],
    at: Now,
}

impl Bench {
    fn new(retry: bool, limits: Limits) -> Self {
        Self::with(ClientConfig { retry, limits, ..ClientConfig::default() })
    }

    fn with(config: ClientConfig) -> Self {
        let client = Client::new(config);
        let shadows = [Shadow::of_one(&client), Shadow::of_many(&client)];
        Self { client, shadows, at: Now::default() }
    }

    /// Does something to the client behind its edge.
    fn tamper(&mut self, act: impl Fn(&mut Client)) {
        act(&mut self.client);
        self.shadows.iter_mut().for_each(|shadow| shadow.router.each_client().for_each(&act));
    }

    fn up(retry: bool) -> Self {
        let mut bench = Self::new(retry, Limits::tiny());
        bench.step(Input::Connected { rank: RANK });
        bench.step(welcome(5, false));
        bench
    }

    /// One step; file data that it makes void are dropped at once.
    fn step(&mut self, input: Input) -> Vec<Output> {
        let out = self.step_undropped(input);
        for output in &out {
            if let Output::Lost { stamp } = *output {
                assert!(self.step_undropped(Input::Dropped { stamp }).is_empty());
            }
        }
        out
    }

    fn step_undropped(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.client.step(self.at, input.clone(), &mut out);
        for shadow in &mut self.shadows {
            shadow.follows(&self.client, self.at, input.clone(), &out);
        }
        out
    }

    fn call(&mut self, call: u64, request: Request) -> Vec<Output> {
        self.step(Input::Call { call: CallId(call), cred: Cred::ROOT, request })
    }

    fn wait(&mut self, nanos: u64) {
        self.at.mono = self.at.mono.after(nanos);
    }
}

/// What broke: who had written before, and synced afterwards, was told that all is well, and read zeros.
#[test]
fn bytes_that_a_dead_server_lost_are_told() {
    let node = NodeRef::bare(Ino(7));
    let write = || {
        let data = proto::storeio::Payload::Owned(vec![1]);
        Request::Write { node, offset: 0, append: false, kill_suidgid: false, data }
    };
    let written = || Ok(Reply::Written { count: 1, attr: Attr::default() });
    let lost = |out: Vec<Output>| {
        out.into_iter().find_map(|o| if let Output::BytesLost { inos, .. } = o { Some(inos) } else { None })
    };
    let again = |bench: &mut Bench, life, synced| {
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        lost(bench.step(welcome_after(5, true, life, synced)))
    };
    let mut bench = Bench::up(true);
    bench.call(1, write());
    bench.step(reply(1, written()));
    assert_eq!(again(&mut bench, 1, false), None, "the server lives on");
    assert_eq!(again(&mut bench, 2, true), None, "it stopped in order");
    for (first, call, synced) in [(2, 2, false), (3, 3, true)] {
        bench.call(call, write());
        bench.step(reply(first, written()));
        // Stopped in order, but after a life that this client has not met.
        let life = if synced { 5 } else { 3 };
        assert_eq!(again(&mut bench, life, synced), Some(vec![Ino(7)]));
    }
    bench.call(4, write());
    bench.step(reply(4, written()));
    bench.call(5, Request::Fsync { node, data_only: false });
    bench.step(reply(5, Ok(Reply::Ok)));
    assert_eq!(again(&mut bench, 6, false), None, "it was synced");
    // Or nobody did, but it was written some time ago. What broke: a program was told that bytes of hours ago may be lost.
    bench.call(6, write());
    bench.step(reply(6, written()));
    bench.wait(u64::from(LEASE_MS) * MS / 3);
    let out = sent(&bench.step(Input::Tick));
    let syncs = |message: &ClientMsg| matches!(message, ClientMsg::Request { request: Request::SyncFs, .. });
    assert_eq!(out.iter().filter(|message| syncs(message)).count(), 1, "{out:?}");
    bench.step(reply(7, Ok(Reply::Ok)));
    assert_eq!(again(&mut bench, 7, false), None, "it was synced behind it");
}

fn sent(out: &[Output]) -> Vec<ClientMsg> {
    let sends = out
        .iter()
        .filter_map(|o| if let Output::Send { message, .. } = o { Some(message.clone()) } else { None });
    sends.collect()
}

fn tids(out: &[Output]) -> Vec<u64> {
    let tid = |m: ClientMsg| if let ClientMsg::Request { tid, .. } = m { Some(tid.0) } else { None };
    sent(out).into_iter().filter_map(tid).collect()
}

fn answers(out: &[Output]) -> Vec<(u64, Outcome)> {
    let answer = |o: &Output| match o {
        Output::Answer { call, outcome, .. } => Some((call.0, outcome.clone())),
        _ => None,
    };
    out.iter().filter_map(answer).collect()
}

#[test]
fn calls_wait_for_the_session_and_carry_the_floor() {
    let mut bench = Bench::new(true, Limits::default());
    assert!(bench.call(1, getattr(1)).is_empty());
    let out = bench.step(Input::Connected { rank: RANK });
    assert!(matches!(sent(&out)[..], [ClientMsg::Hello { session: SessionId(0), .. }]));
    assert!(bench.call(2, getattr(2)).is_empty());
    let out = bench.step(welcome(5, false));
    assert_eq!(out[0], Output::Ready { rank: RANK });
    assert_eq!(tids(&out), [1, 2]);
    assert_eq!(answers(&bench.step(reply(1, attr(1)))), [(1, attr(1))]);
    let out = bench.call(3, getattr(3));
    assert!(matches!(sent(&out)[..], [ClientMsg::Request { tid: Tid(3), floor: Tid(2), .. }]));
    assert_eq!(bench.step(reply(1, attr(1))), [], "a second answer is dropped");
}

#[test]
fn a_resume_claims_opens_and_locks_then_retries_in_order() {
    let mut bench = Bench::up(true);
    bench.call(1, Request::Open { node: node(7), flags: 0 });
    bench.step(reply(1, attr(7)));
    bench.call(2, Request::SetLock { node: node(7), lock: lock(1, LockKind::Read), wait: false });
    bench.step(reply(2, Ok(Reply::Ok)));
    bench.call(3, getattr(1));
    bench.call(4, Request::Release { node: node(7), count: 1 });
    bench.call(5, lock_wait(9, 1));
    bench.step(Input::Interrupt { call: CallId(5) });
    bench.step(Input::Disconnected { rank: RANK });
    let out = bench.step(Input::Connected { rank: RANK });
    assert!(matches!(sent(&out)[..], [ClientMsg::Hello { session: SessionId(5), .. }]));
    let out = sent(&bench.step(welcome(5, true)));
    // The release has no answer, so it is claimed and released again.
    let claim =
        ClientMsg::Reclaim { node: node(7), count: 1, writes: false, locks: vec![lock(1, LockKind::Read)] };
    assert_eq!(out[..2], [claim, ClientMsg::Reclaimed]);
    let retried: Vec<_> = out[2..5].iter().cloned().map(to_rank).collect();
    assert_eq!(tids(&retried), [3, 4, 5]);
    assert_eq!(out[5], ClientMsg::Cancel { tid: Tid(5) });
    bench.step(reply(4, Ok(Reply::Ok)));
    assert_eq!(bench.client.opens(Ino(7)), 0);
}

/// What broke: a client that was idle said nothing, and its rank's next life kept what answers of the one before may have opened: files
/// without a name stayed, and their directories did not move.
#[test]
fn who_is_idle_shows_a_rank_that_lives_again_that_it_has_its_answers() {
    let asks = |bench: &mut Bench| {
        bench.at.mono = bench.at.mono.after(u64::from(LEASE_MS) * MS / 3);
        let is_request = |message: &ClientMsg| matches!(message, ClientMsg::Request { .. });
        sent(&bench.step(Input::Tick)).into_iter().filter(is_request).collect::<Vec<_>>()
    };
    for (lives_on, busy) in [(false, false), (true, false), (false, true)] {
        let mut bench = Bench::up(true);
        bench.call(1, getattr(1));
        bench.step(reply(1, attr(1)));
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        bench.step(welcome_in(5, true, if lives_on { 1 } else { 2 }));
        if busy {
            bench.call(2, getattr(1));
            bench.step(reply(2, attr(1)));
        }
        let shows =
            [ClientMsg::Request { tid: Tid(2), floor: Tid(2), cred: Cred::ROOT, request: Request::StatFs }];
        assert_eq!(asks(&mut bench), if lives_on || busy { &[][..] } else { &shows }, "{lives_on} {busy}");
        bench.step(reply(2, Err(Errno::EIO)));
        assert_eq!(asks(&mut bench), [], "once");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_is_idle_and_shows_nothing_is_caught() {
    stdx::mutant::activate(Some("client_floor_not_shown"));
    let verdict = std::panic::catch_unwind(who_is_idle_shows_a_rank_that_lives_again_that_it_has_its_answers);
    stdx::mutant::activate(None);
    assert!(verdict.is_err());
}

/// What broke: the rank gives the old flock up when its kind is to change, and the client kept it when that failed.
#[test]
fn a_flock_that_could_not_change_its_kind_is_gone() {
    for errno in [Errno::EAGAIN, Errno::EINTR, Errno::ENOLCK] {
        let mut bench = Bench::up(true);
        let flock = |kind| LockSpec { flock: true, ..lock(1, kind) };
        bench.call(1, Request::SetLock { node: node(7), lock: flock(LockKind::Read), wait: false });
        bench.step(reply(1, Ok(Reply::Ok)));
        bench.call(2, Request::SetLock { node: node(7), lock: flock(LockKind::Write), wait: false });
        bench.step(reply(2, Err(errno)));
        bench.step(Input::Disconnected { rank: RANK });
        bench.step(Input::Connected { rank: RANK });
        let out = sent(&bench.step(welcome(5, true)));
        let is_claimed = out.iter().any(|message| matches!(message, ClientMsg::Reclaim { .. }));
        assert_eq!(is_claimed, errno == Errno::ENOLCK, "{errno:?}");
    }
}

/// What broke: a file's locks were one message, and beyond 37,000 that was longer than a frame.
#[test]
fn many_locks_of_one_file_are_claimed_in_several_messages() {
    let mut bench = Bench::up(true);
    bench.client.config.limits.locks_max = 17_000;
    for at in 1..=17_000 {
        let place = LockSpec { start: 10 * at, end: 10 * at + 5, ..lock(1, LockKind::Write) };
        bench.call(at, Request::SetLock { node: node(7), lock: place, wait: false });
        bench.step(reply(at, Ok(Reply::Ok)));
    }
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    let claims = sent(&bench.step(welcome(5, true))).into_iter().filter_map(|message| match message {
        ClientMsg::Reclaim { locks, .. } => Some(locks.into_iter().map(|lock| lock.start / 10).collect()),
        _ => None,
    });
    let claims: Vec<Vec<u64>> = claims.collect();
    assert_eq!(claims.len(), 2);
    assert!(claims.concat().into_iter().eq(1..=17_000));
}

#[test]
fn an_evicted_session_ends_or_starts_over() {
    for clean in [false, true] {
        let mut bench = Bench::up(true);
        bench.client.config.recover_clean = clean;
        bench.call(1, Request::Open { node: node(7), flags: 0 });
        bench.step(reply(1, attr(7)));
        bench.call(2, Request::SetLock { node: node(7), lock: lock(1, LockKind::Write), wait: false });
        bench.step(reply(2, Ok(Reply::Ok)));
        bench.call(3, getattr(7));
        bench.step(Input::Disconnected { rank: RANK });
        bench.call(4, getattr(8));
        bench.step(Input::Connected { rank: RANK });
        let out = bench.step(welcome(6, false));
        let read = Request::Read { node: node(7), offset: 0, len: 1, into: None };
        if clean {
            assert_eq!(answers(&out), [(3, Err(Errno::EIO))]);
            assert!(sent(&out).contains(&ClientMsg::Reclaim {
                node: node(7),
                count: 1,
                writes: false,
                locks: Vec::new()
            }));
            assert_eq!(tids(&out), [4], "what was never sent goes on");
            assert_eq!(answers(&bench.call(5, read.clone())), [(5, Err(Errno::EIO))], "its lock was lost");
            bench.call(6, Request::Release { node: node(7), count: 1 });
            bench.step(reply(5, Ok(Reply::Ok)));
            assert_eq!(tids(&bench.call(7, read)), [6]);
        } else {
            assert_eq!(answers(&out), [(3, Err(Errno::EIO)), (4, Err(Errno::ESHUTDOWN))]);
            assert!(out.iter().any(|o| matches!(o, Output::Refused { .. })));
            assert_eq!(answers(&bench.call(5, read)), [(5, Err(Errno::ESHUTDOWN))]);
        }
    }
}

#[test]
fn a_refusal_of_an_evicted_session_starts_over_when_asked_to() {
    let refused =
        |errno: Errno| from_rank(ServerMsg::Refused { errno: errno.0 as u32, reason: "evicted".to_owned() });
    let mut bench = Bench::up(true);
    bench.client.config.recover_clean = true;
    bench.call(1, getattr(1));
    let out = bench.step(refused(Errno::ESTALE));
    assert_eq!(answers(&out), [(1, Err(Errno::EIO))]);
    assert!(!bench.client.is_linked());
    bench.call(2, getattr(2));
    let out = bench.step(Input::Connected { rank: RANK });
    assert!(matches!(sent(&out)[..], [ClientMsg::Hello { session: SessionId(0), .. }]));
    assert_eq!(tids(&bench.step(welcome(6, false))), [2]);
    bench.client.config.recover_clean = false;
    let out = bench.step(refused(Errno::ESTALE));
    assert_eq!(answers(&out), [(2, Err(Errno::EIO))]);
    assert!(matches!(out.last(), Some(Output::Refused { .. })));
}

#[test]
fn a_rank_that_stops_is_waited_for() {
    let mut bench = Bench::up(true);
    bench.call(1, getattr(1));
    assert_eq!(bench.step(reply(1, Err(Errno::ESHUTDOWN))), [], "not executed: kept");
    bench.step(Input::Disconnected { rank: RANK });
    bench.step(Input::Connected { rank: RANK });
    let reason = "the rank is stopping".to_owned();
    let stopping = ServerMsg::Refused { errno: Errno::ESHUTDOWN.0 as u32, reason };
    assert!(matches!(bench.step(from_rank(stopping))[..], [Output::Lost { .. }]));
    bench.step(Input::Connected { rank: RANK });
    assert_eq!(tids(&bench.step(welcome(5, true))), [1]);
}

#[test]
fn without_retry_the_end_of_the_connection_is_the_end() {
    let mut bench = Bench::up(false);
    bench.call(1, getattr(1));
    let out = bench.step(Input::Disconnected { rank: RANK });
    assert_eq!(answers(&out), [(1, Err(Errno::EIO))]);
    assert!(matches!(out.last(), Some(Output::Refused { .. })));
}

#[test]
fn the_lease_is_renewed_three_times_as_often_as_needed() {
    let mut bench = Bench::up(true);
    let due = bench.client.deadline().expect("a session has a lease");
    assert_eq!(due.0, 3 * SECOND);
    bench.wait(3 * SECOND - 1);
    assert_eq!(bench.step(Input::Tick), []);
    bench.wait(1);
    assert_eq!(sent(&bench.step(Input::Tick)), [ClientMsg::Renew { number: 1 }]);
    assert_eq!(bench.client.deadline().map(|at| at.0), Some(6 * SECOND));
    bench.step(Input::Disconnected { rank: RANK });
    assert_eq!(bench.client.deadline(), None);
}

fn granted(tid: u64, ino: u64, bits: Bits) -> Input {
    from_rank(ServerMsg::Granted { tid: Tid(tid), outcome: attr(ino), grants: Grants::One(bits) })
}

fn left(out: &[Output]) -> Vec<Bits> {
    let bits = |o: &Output| match o {
        Output::Answer { validity, .. } => Some(validity.grants.of(0)),
        _ => None,
    };
    out.iter().filter_map(bits).collect()
}

fn recall(ino: u64) -> Input {
    let list = vec![Recalled { ino: Ino(ino), bits: Bits::FS, number: 3, name: None }];
    from_rank(ServerMsg::Recall { list })
}

fn caching() -> Bench {
    let mut bench = Bench::up(true);
    bench.client.config.wants = Bits::ATTRS;
    bench
}

#[test]
fn closing_answers_everything_then_says_goodbye() {
    let mut bench = Bench::up(true);
    bench.call(1, getattr(1));
    bench.call(2, lock_wait(1, 1));
    assert_eq!(sent(&bench.step(Input::Close)), [ClientMsg::Cancel { tid: Tid(2) }]);
    assert_eq!(answers(&bench.call(3, getattr(1))), [(3, Err(Errno::ESHUTDOWN))]);
    bench.step(reply(2, Err(Errno::EINTR)));
    let out = bench.step(reply(1, attr(1)));
    assert_eq!(out[1..], [to_rank(ClientMsg::Goodbye), Output::Closed]);
    assert_eq!(bench.client.deadline(), None);
    let mut bench = Bench::new(true, Limits::tiny());
    bench.call(1, getattr(1));
    let out = bench.step(Input::Close);
    assert_eq!(answers(&out), [(1, Err(Errno::ESHUTDOWN))]);
    assert_eq!(out.last(), Some(&Output::Closed));
}
