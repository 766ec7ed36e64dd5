//! The machine against a rank reduced to its contract: a result per tid, executed once.
//!
//! Absent: what requests do; here each does nothing but count.

use super::*;
use crate::config::Limits;
use proto::caps::{Bits, Grants, KEEP_ASKED_MS, KEEP_MARGIN_MS, KEEP_MS, Recalled, Returned};
use proto::message::PROTOCOL;
use proto::reply::Reply;
use proto::request::{LockKind, LockSpec};
use proto::{Attr, Incarnation, NodeRef};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Prng;
use stdx::time::{MS, SECOND};

mod early;
mod ended;
mod entrusted;
mod files;
mod idle;
mod model;
mod moved;
mod rewrite;

const LEASE_MS: u32 = 9_000;

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
    Input::Message(ServerMsg::Welcome {
        protocol: PROTOCOL,
        session: SessionId(session),
        incarnation: Incarnation(life),
        fsid: [1; 16],
        resumed,
        lease_ms: LEASE_MS,
        root: Ino::ROOT,
        synced,
    })
}

fn reply(tid: u64, outcome: Outcome) -> Input {
    Input::Message(ServerMsg::Reply { tid: Tid(tid), outcome })
}

struct Bench {
    client: Client,
    at: Now,
}

impl Bench {
    fn new(retry: bool, limits: Limits) -> Self {
        let config = ClientConfig { retry, limits, ..ClientConfig::default() };
        Self { client: Client::new(config), at: Now::default() }
    }

    fn up(retry: bool) -> Self {
        let mut bench = Self::new(retry, Limits::tiny());
        bench.step(Input::Connected);
        bench.step(welcome(5, false));
        bench
    }

    fn step(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.client.step(self.at, input, &mut out);
        out
    }

    fn call(&mut self, call: u64, request: Request) -> Vec<Output> {
        self.step(Input::Call { call: CallId(call), cred: Cred::ROOT, request })
    }

    fn wait(&mut self, nanos: u64) {
        self.at.mono = self.at.mono.after(nanos);
    }
}

/// Found by killing a server: who had written before, and synced afterwards, was told that all is well, and read zeros.
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
        bench.step(Input::Disconnected);
        bench.step(Input::Connected);
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
}

fn sent(out: &[Output]) -> Vec<ClientMsg> {
    let sends =
        out.iter().filter_map(|o| if let Output::Send(message) = o { Some(message.clone()) } else { None });
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
    let out = bench.step(Input::Connected);
    assert!(matches!(sent(&out)[..], [ClientMsg::Hello { session: SessionId(0), .. }]));
    assert!(bench.call(2, getattr(2)).is_empty());
    let out = bench.step(welcome(5, false));
    assert_eq!(out[0], Output::Ready);
    assert_eq!(tids(&out), [1, 2]);
    assert_eq!(answers(&bench.step(reply(1, attr(1)))), [(1, attr(1))]);
    let out = bench.call(3, getattr(3));
    assert!(matches!(sent(&out)[..], [ClientMsg::Request { tid: Tid(3), floor: Tid(2), .. }]));
    assert_eq!(bench.step(reply(1, attr(1))), [], "a second answer is dropped");
}

#[test]
fn credit_holds_requests_back_but_never_what_releases() {
    let mut bench = Bench::up(true);
    assert_eq!(tids(&bench.call(1, getattr(1))), [1]);
    assert_eq!(tids(&bench.call(2, getattr(1))), [2]);
    assert_eq!(tids(&bench.call(3, getattr(1))), []);
    let unlock = Request::SetLock { node: node(1), lock: lock(1, LockKind::Unlock), wait: false };
    assert_eq!(tids(&bench.call(4, unlock)), [3]);
    assert_eq!(tids(&bench.call(5, lock_wait(1, 2))), [4]);
    // A lock wait uses no credit: the holder's next request must still get through.
    assert_eq!(tids(&bench.step(reply(1, attr(1)))), [], "the unlock counts until it is answered");
    assert_eq!(tids(&bench.step(reply(3, Ok(Reply::Ok)))), [5]);
}

#[test]
fn every_bound_has_its_answer() {
    let mut bench = Bench::new(true, Limits::tiny());
    for call in 0..8 {
        assert_eq!(bench.call(call, getattr(1)), []);
    }
    assert_eq!(answers(&bench.call(8, getattr(1))), [(8, Err(Errno::EAGAIN))]);
    let mut bench = Bench::up(true);
    bench.call(1, lock_wait(1, 1));
    bench.call(2, lock_wait(1, 2));
    assert_eq!(answers(&bench.call(3, lock_wait(1, 3))), [(3, Err(Errno::ENOLCK))]);
    let mut bench = Bench::up(true);
    for ino in 1..=4 {
        bench.call(ino, Request::Open { node: node(ino), flags: 0 });
        bench.step(reply(ino, attr(ino)));
    }
    assert_eq!(answers(&bench.call(5, Request::Open { node: node(5), flags: 0 })), [(5, Err(Errno::ENFILE))]);
    assert_eq!(tids(&bench.call(6, Request::Open { node: node(4), flags: 0 })), [5]);
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
    bench.step(Input::Disconnected);
    let out = bench.step(Input::Connected);
    assert!(matches!(sent(&out)[..], [ClientMsg::Hello { session: SessionId(5), .. }]));
    let out = sent(&bench.step(welcome(5, true)));
    // The release has no answer, so it is claimed and released again.
    let claim =
        ClientMsg::Reclaim { node: node(7), count: 1, writes: false, locks: vec![lock(1, LockKind::Read)] };
    assert_eq!(out[..2], [claim, ClientMsg::Reclaimed]);
    let retried: Vec<_> = out[2..5].iter().cloned().map(Output::Send).collect();
    assert_eq!(tids(&retried), [3, 4, 5]);
    assert_eq!(out[5], ClientMsg::Cancel { tid: Tid(5) });
    bench.step(reply(4, Ok(Reply::Ok)));
    assert_eq!(bench.client.opens(Ino(7)), 0);
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
        bench.step(Input::Disconnected);
        bench.call(4, getattr(8));
        bench.step(Input::Connected);
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
    let refused = |errno: Errno| {
        Input::Message(ServerMsg::Refused { errno: errno.0 as u32, reason: "evicted".to_owned() })
    };
    let mut bench = Bench::up(true);
    bench.client.config.recover_clean = true;
    bench.call(1, getattr(1));
    let out = bench.step(refused(Errno::ESTALE));
    assert_eq!(answers(&out), [(1, Err(Errno::EIO))]);
    assert!(!bench.client.is_linked());
    bench.call(2, getattr(2));
    let out = bench.step(Input::Connected);
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
    bench.step(Input::Disconnected);
    bench.step(Input::Connected);
    let reason = "the rank is stopping".to_owned();
    let stopping = ServerMsg::Refused { errno: Errno::ESHUTDOWN.0 as u32, reason };
    assert!(matches!(bench.step(Input::Message(stopping))[..], [Output::Lost { .. }]));
    bench.step(Input::Connected);
    assert_eq!(tids(&bench.step(welcome(5, true))), [1]);
}

#[test]
fn without_retry_the_end_of_the_connection_is_the_end() {
    let mut bench = Bench::up(false);
    bench.call(1, getattr(1));
    let out = bench.step(Input::Disconnected);
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
    bench.step(Input::Disconnected);
    assert_eq!(bench.client.deadline(), None);
}

fn granted(tid: u64, ino: u64, bits: Bits) -> Input {
    Input::Message(ServerMsg::Granted { tid: Tid(tid), outcome: attr(ino), grants: Grants::One(bits) })
}

fn left(out: &[Output]) -> Vec<Bits> {
    let bits = |o: &Output| match o {
        Output::Answer { leave, .. } => Some(leave.grants.of(0)),
        _ => None,
    };
    out.iter().filter_map(bits).collect()
}

fn recall(ino: u64) -> Input {
    let list = vec![Recalled { ino: Ino(ino), bits: Bits::FS, number: 3, name: None }];
    Input::Message(ServerMsg::Recall { list })
}

fn caching() -> Bench {
    let mut bench = Bench::up(true);
    bench.client.config.wants = Bits::ATTRS;
    bench
}

/// Another thread delivers it: it was sent after the answers, and comes before them.
#[test]
fn a_recall_voids_the_grants_of_answers_that_it_overtakes() {
    let mut bench = caching();
    bench.call(1, getattr(7));
    bench.call(2, getattr(8));
    let out = bench.step(recall(7));
    let [Output::Recalled { stamp, list }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(list[0].ino, Ino(7));
    assert_eq!(left(&bench.step(granted(1, 7, Bits::ATTRS))), [Bits::NONE]);
    assert_eq!(left(&bench.step(granted(2, 8, Bits::ATTRS))), [Bits::ATTRS], "another inode");
    bench.call(3, getattr(7));
    assert_eq!(left(&bench.step(granted(3, 7, Bits::ATTRS))), [Bits::ATTRS], "asked for after it");
    let list = vec![Returned { ino: Ino(7), bits: Bits::ATTRS, number: 3 }];
    let out = bench.step(Input::Returned { stamp: *stamp, list: list.clone() });
    assert_eq!(sent(&out), [ClientMsg::Returned { list }]);
}

#[test]
fn an_answer_that_lay_about_is_kept_for_less_or_not_at_all() {
    let mut bench = caching();
    for (call, late) in [(1, 0), (2, 1_000 * MS), (3, 3 * SECOND)] {
        bench.call(call, getattr(7));
        bench.wait(late);
        let out = bench.step(granted(call, 7, Bits::ATTRS));
        let [Output::Answer { leave, .. }] = &out[..] else { panic!("{out:?}") };
        let kept = leave.until.since(bench.at.mono);
        assert_eq!(kept, (KEEP_MS * MS).min((KEEP_ASKED_MS * MS).saturating_sub(late)));
    }
}

#[test]
fn after_a_break_nothing_is_kept_before_settled_and_settled_waits_for_what_was() {
    let mut bench = caching();
    bench.call(1, getattr(7));
    bench.step(granted(1, 7, Bits::ATTRS));
    let out = bench.step(recall(7));
    let Output::Recalled { stamp, .. } = &out[0] else { panic!("{out:?}") };
    assert!(matches!(bench.step(Input::Disconnected)[..], [Output::Lost { .. }]));
    bench.step(Input::Connected);
    bench.step(welcome(5, true));
    let list = vec![Returned { ino: Ino(7), bits: Bits::ATTRS, number: 3 }];
    assert!(bench.step(Input::Returned { stamp: *stamp, list }).is_empty(), "not owed any more");
    bench.call(2, getattr(7));
    bench.call(3, getattr(7));
    assert_eq!(left(&bench.step(granted(2, 7, Bits::ATTRS))), [Bits::NONE]);
    bench.wait((KEEP_MS + KEEP_MARGIN_MS) * MS - 1);
    assert!(!sent(&bench.step(Input::Tick)).contains(&ClientMsg::Settled));
    bench.wait(1);
    assert!(sent(&bench.step(Input::Tick)).contains(&ClientMsg::Settled));
    assert_eq!(left(&bench.step(granted(3, 7, Bits::ATTRS))), [Bits::NONE], "asked for before it");
    bench.call(4, getattr(7));
    assert_eq!(left(&bench.step(granted(4, 7, Bits::ATTRS))), [Bits::ATTRS]);
    assert!(bench.client.deadline().is_some_and(|at| at > bench.at.mono));
}

#[test]
fn a_lease_that_nobody_confirms_runs_out_here_first() {
    let mut bench = caching();
    let lease = u64::from(LEASE_MS) * MS;
    bench.wait(lease / 3);
    assert_eq!(sent(&bench.step(Input::Tick)), [ClientMsg::Renew { number: 1 }]);
    bench.step(Input::Message(ServerMsg::Renewed { number: 1 }));
    bench.wait(lease - 1);
    assert!(!bench.step(Input::Tick).iter().any(|o| matches!(o, Output::Lost { .. })));
    bench.wait(1);
    assert!(
        bench.step(Input::Tick).iter().any(|o| matches!(o, Output::Lost { .. })),
        "from when it was sent"
    );
}

#[test]
fn who_wants_nothing_returns_at_once() {
    let mut bench = Bench::up(true);
    let list = vec![Returned { ino: Ino(7), bits: Bits::FS, number: 3 }];
    assert_eq!(sent(&bench.step(recall(7))), [ClientMsg::Returned { list }]);
}

#[test]
fn an_interrupt_ends_waits_for_locks_only() {
    let mut bench = Bench::up(true);
    bench.call(1, getattr(1));
    assert_eq!(bench.step(Input::Interrupt { call: CallId(1) }), []);
    bench.call(2, lock_wait(1, 1));
    let out = bench.step(Input::Interrupt { call: CallId(2) });
    assert_eq!(sent(&out), [ClientMsg::Cancel { tid: Tid(2) }]);
    assert_eq!(bench.step(Input::Interrupt { call: CallId(2) }), [], "once is enough");
    assert_eq!(answers(&bench.step(reply(2, Err(Errno::EINTR)))), [(2, Err(Errno::EINTR))]);
    let mut bench = Bench::new(true, Limits::tiny());
    bench.call(3, lock_wait(1, 1));
    assert_eq!(answers(&bench.step(Input::Interrupt { call: CallId(3) })), [(3, Err(Errno::EINTR))]);
}

#[test]
fn a_killed_caller_is_answered_at_once_and_what_it_opened_is_closed() {
    let eintr = |call| vec![(call, Err(Errno::EINTR))];
    let mut bench = Bench::up(true);
    let open = Request::Open { node: node(7), flags: 0 };
    bench.call(1, open);
    assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(1) })), eintr(1));
    assert_eq!(bench.step(Input::Abandon { call: CallId(1) }), [], "once is enough");
    bench.step(Input::Disconnected);
    // Unsent: never was. What gives back is sent all the same, and the resume asks for the open again.
    bench.call(2, getattr(2));
    bench.call(3, Request::Release { node: node(9), count: 1 });
    for call in [2, 3] {
        assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(call) })), eintr(call));
    }
    bench.step(Input::Connected);
    let out = bench.step(welcome(5, true));
    let requests: Vec<_> =
        sent(&out).into_iter().filter(|m| matches!(m, ClientMsg::Request { .. })).collect();
    let is = |at: usize, wanted: &Request| matches!(&requests[at], ClientMsg::Request { request, .. } if request == wanted);
    assert!(requests.len() == 2 && is(0, &Request::Open { node: node(7), flags: 0 }), "{requests:?}");
    assert!(is(1, &Request::Release { node: node(9), count: 1 }), "{requests:?}");
    let out = bench.step(reply(1, attr(7)));
    assert_eq!(answers(&out), []);
    let release = Request::Release { node: NodeRef { ino: Ino(7), ..NodeRef::default() }, count: 1 };
    assert!(
        matches!(&sent(&out)[..], [ClientMsg::Request { tid: Tid(3), request, .. }] if *request == release)
    );
    bench.step(reply(3, Ok(Reply::Ok)));
    assert_eq!((bench.client.opens(Ino(7)), bench.client.awaits(Tid(3))), (0, false));
}

/// Found by review: a write of a killed process reached the file after its lock was somebody else's.
#[test]
fn a_change_that_was_sent_is_waited_for() {
    let mut bench = Bench::up(true);
    let name = proto::Name::new(b"a").expect("a name");
    bench.call(1, Request::Unlink { parent: node(1), name });
    bench.call(2, Request::SetLock { node: node(7), lock: lock(1, LockKind::Write), wait: false });
    for call in [1, 2] {
        assert_eq!(bench.step(Input::Abandon { call: CallId(call) }), []);
    }
    assert_eq!(answers(&bench.step(reply(1, Ok(Reply::Ok)))), [(1, Ok(Reply::Ok))]);
    // What gives back is no change that anybody waits for.
    bench.call(3, Request::ReleaseLocks { node: node(7), flock: false, owner: 1 });
    assert_eq!(answers(&bench.step(Input::Abandon { call: CallId(3) })), [(3, Err(Errno::EINTR))]);
}

#[test]
fn a_killed_wait_for_a_lock_is_cancelled() {
    let mut bench = Bench::up(true);
    bench.call(1, lock_wait(1, 1));
    let out = bench.step(Input::Abandon { call: CallId(1) });
    assert_eq!(sent(&out), [ClientMsg::Cancel { tid: Tid(1) }]);
    assert_eq!(answers(&out), [(1, Err(Errno::EINTR))]);
    assert_eq!(bench.step(reply(1, Err(Errno::EINTR))), []);
    // Granted before the rank heard of it: given back, the open file may live on in another process.
    bench.call(2, lock_wait(1, 1));
    bench.step(Input::Abandon { call: CallId(2) });
    let unlock = Request::SetLock { node: node(1), lock: lock(1, LockKind::Unlock), wait: false };
    let out = sent(&bench.step(reply(2, Ok(Reply::Ok))));
    assert!(matches!(&out[..], [ClientMsg::Request { request, .. }] if *request == unlock), "{out:?}");
    // In one process nothing is kept: the rank is here, and answers.
    let mut bench = Bench::up(false);
    bench.call(1, getattr(1));
    assert_eq!(bench.step(Input::Abandon { call: CallId(1) }), []);
}

#[test]
fn an_old_lock_wait_moves_on_so_that_the_rank_can_forget() {
    let mut bench = Bench::up(true);
    bench.call(0, lock_wait(1, 1));
    for call in 1..8 {
        let out = bench.call(call, getattr(1));
        bench.step(reply(tids(&out)[0], attr(1)));
    }
    // tids 1 to 8 are used: the window is as wide as it may be.
    let out = bench.call(8, getattr(1));
    assert_eq!(sent(&out), [ClientMsg::Cancel { tid: Tid(1) }]);
    let out = bench.step(reply(1, Err(Errno::EINTR)));
    assert_eq!((answers(&out), tids(&out)), (Vec::new(), vec![9, 10]));
    assert_eq!(answers(&bench.step(reply(9, Ok(Reply::Ok)))), [(0, Ok(Reply::Ok))]);
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
    assert_eq!(out[1..], [Output::Send(ClientMsg::Goodbye), Output::Closed]);
    assert_eq!(bench.client.deadline(), None);
    let mut bench = Bench::new(true, Limits::tiny());
    bench.call(1, getattr(1));
    let out = bench.step(Input::Close);
    assert_eq!(answers(&out), [(1, Err(Errno::ESHUTDOWN))]);
    assert_eq!(out.last(), Some(&Output::Closed));
}

/// A rank that executes each tid once and remembers results above the floor, behind a connection that
/// breaks anywhere and then loses everything on its way, in both directions.
#[derive(Default)]
struct Rank {
    results: BTreeMap<Tid, Outcome>,
    executed: BTreeMap<u64, u32>,
    waits: BTreeSet<Tid>,
    floor: Tid,
    known: bool,
}

impl Rank {
    fn receive(&mut self, message: ClientMsg, to_client: &mut VecDeque<ServerMsg>) {
        let ClientMsg::Request { tid, floor, request, .. } = message else {
            match message {
                ClientMsg::Hello { .. } => {
                    let Input::Message(message) = welcome(5, self.known) else { return };
                    self.known = true;
                    // A new connection: the former one's waits are sent again.
                    self.waits.clear();
                    to_client.push_back(message);
                }
                ClientMsg::Cancel { tid } if self.waits.remove(&tid) => {
                    self.answer(tid, Err(Errno::EINTR), to_client);
                }
                _ => {}
            }
            return;
        };
        assert!(floor >= self.floor, "a floor never goes back");
        assert!(tid >= floor);
        self.floor = floor;
        self.results.retain(|tid, _| *tid >= floor);
        if let Some(outcome) = self.results.get(&tid) {
            return to_client.push_back(ServerMsg::Reply { tid, outcome: outcome.clone() });
        }
        match request {
            Request::SetLock { wait: true, .. } => {
                self.waits.insert(tid);
            }
            Request::GetAttr { node } => {
                *self.executed.entry(node.ino.0).or_default() += 1;
                self.answer(tid, attr(node.ino.0), to_client);
            }
            _ => self.answer(tid, Ok(Reply::Ok), to_client),
        }
    }

    fn answer(&mut self, tid: Tid, outcome: Outcome, to_client: &mut VecDeque<ServerMsg>) {
        self.results.insert(tid, outcome.clone());
        to_client.push_back(ServerMsg::Reply { tid, outcome });
    }
}

#[derive(Default)]
struct Run {
    rank: Rank,
    to_rank: VecDeque<ClientMsg>,
    to_client: VecDeque<ServerMsg>,
    answered: BTreeMap<u64, Outcome>,
    connected: bool,
}

impl Run {
    fn feed(&mut self, bench: &mut Bench, input: Input) {
        for output in bench.step(input) {
            match output {
                Output::Send(message) => self.to_rank.push_back(message),
                Output::Answer { call, outcome, .. } => {
                    assert_eq!(self.answered.insert(call.0, outcome), None, "call {} answered twice", call.0);
                }
                Output::Refused { reason } => panic!("refused: {reason}"),
                Output::Late { .. } => panic!("nothing is early here"),
                Output::BytesLost { .. }
                | Output::Ready
                | Output::Recalled { .. }
                | Output::Lost { .. }
                | Output::Closed => {}
            }
        }
    }

    fn deliver(&mut self, bench: &mut Bench) {
        if let Some(message) = self.to_rank.pop_front() {
            self.rank.receive(message, &mut self.to_client);
        }
        if let Some(message) = self.to_client.pop_front() {
            self.feed(bench, Input::Message(message));
        }
    }

    fn connect(&mut self, bench: &mut Bench, connected: bool) {
        self.to_rank.clear();
        self.to_client.clear();
        self.connected = connected;
        self.feed(bench, if connected { Input::Connected } else { Input::Disconnected });
    }
}

/// Exactly one answer per call, and at most one execution per request, wherever connections break.
#[test]
fn random_breaks_lose_and_repeat_nothing() {
    for seed in 0..400 {
        random_breaks(seed);
    }
}

fn random_breaks(seed: u64) {
    let mut prng = Prng::new(seed);
    let limits = Limits { queued_max: 1000, ..Limits::tiny() };
    let mut bench = Bench::new(true, limits);
    let (mut run, mut calls) = (Run::default(), 0);
    for _ in 0..300 {
        bench.wait(prng.below(SECOND));
        match prng.below(10) {
            0 => {
                let connected = !run.connected;
                run.connect(&mut bench, connected);
            }
            1 => run.feed(&mut bench, Input::Tick),
            2 if calls > 0 => {
                run.feed(&mut bench, Input::Interrupt { call: CallId(prng.below(calls)) });
            }
            3 | 4 => {
                let request = if prng.chance(1, 4) { lock_wait(calls, calls) } else { getattr(calls) };
                let call = CallId(calls);
                run.feed(&mut bench, Input::Call { call, cred: Cred::ROOT, request });
                calls += 1;
            }
            _ => run.deliver(&mut bench),
        }
    }
    if !run.connected {
        run.connect(&mut bench, true);
    }
    for call in 0..calls {
        run.feed(&mut bench, Input::Interrupt { call: CallId(call) });
    }
    while !(run.to_rank.is_empty() && run.to_client.is_empty()) {
        run.deliver(&mut bench);
    }
    for call in 0..calls {
        assert!(run.answered.contains_key(&call), "seed {seed}: call {call} has no answer");
        assert!(run.rank.executed.get(&call).is_none_or(|times| *times == 1), "seed {seed}: executed twice");
    }
    assert_eq!((bench.client.waiting().count(), bench.client.queued()), (0, 0));
}

/// Found by review: each renewal without an answer made all later answers count for older ones, until nothing was kept any more.
#[test]
fn a_renewal_that_is_not_answered_shifts_no_other() {
    let mut bench = caching();
    let third = u64::from(LEASE_MS) * MS / 3;
    for round in 1..30 {
        bench.wait(third);
        let out = bench.step(Input::Tick);
        assert_eq!(sent(&out), [ClientMsg::Renew { number: round }]);
        assert!(!out.iter().any(|o| matches!(o, Output::Lost { .. })), "round {round}");
        // The server renews by itself, too: nobody asked for that one.
        bench.step(Input::Message(ServerMsg::Renewed { number: 0 }));
        if round % 3 != 0 {
            bench.step(Input::Message(ServerMsg::Renewed { number: round }));
        }
    }
}

/// Found by review: it went on keeping what it was granted, with no lease at all.
#[test]
fn without_a_lease_nothing_is_kept() {
    let mut bench = caching();
    let lease = u64::from(LEASE_MS) * MS;
    bench.call(1, getattr(7));
    bench.wait(lease);
    assert_eq!(
        left(&bench.step(granted(1, 7, Bits::ATTRS))),
        [Bits::NONE],
        "it ran out before the answer came"
    );
    bench.step(Input::Tick);
    bench.call(2, getattr(7));
    assert_eq!(left(&bench.step(granted(2, 7, Bits::ATTRS))), [Bits::NONE]);
    bench.step(Input::Message(ServerMsg::Renewed { number: 1 }));
    bench.call(3, getattr(7));
    assert_eq!(left(&bench.step(granted(3, 7, Bits::ATTRS))), [Bits::ATTRS]);
}
