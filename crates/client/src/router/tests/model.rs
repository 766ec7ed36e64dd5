//! A client of several small ranks that own parts of one tree, while parts move, connections break and ranks die: each call is
//! answered once, and carried out once at most, by the owner; what callers were told is what comes of it.
//!
//! Absent: how ranks agree (`mds`); here a move is one step, made when nothing below is open or delegated. What one rank says of
//! another's is at hand.

mod cluster;

use super::*;
use crate::machine::tests::model::is_locked;
use crate::machine::tests::model::tree::Tree;
use cluster::Cluster;
use proto::request::open_flags;
use proto::storeio::Payload;
use proto::{FileKind, SetAttr};
use std::collections::{BTreeMap, VecDeque};
use stdx::Prng;
use stdx::time::MS;

const NAMES: [&str; 3] = ["a", "b", "c"];
const RANKS: u16 = 3;

/// What lies between the client and one rank.
#[derive(Clone, Default)]
struct Wire {
    wanted: bool,
    connected: bool,
    to_rank: VecDeque<ClientMsg>,
    to_client: Vec<ServerMsg>,
    /// The rank has closed the connection: it reads nothing more.
    closed: bool,
}

#[derive(Default)]
struct World {
    cluster: Cluster,
    wires: Vec<Wire>,
    asked: BTreeMap<u64, Request>,
    /// What was performed came to this, by rank.
    told: Vec<BTreeMap<Tid, Outcome>>,
    seen: BTreeMap<Ino, (bool, NodeRef)>,
    handles: Vec<NodeRef>,
    calls: u64,
    counts: Counts,
}

/// That something happened at all.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    performed: usize,
    answered: usize,
    bounced: usize,
    moved: usize,
    joined: usize,
    crashed: usize,
    parted: usize,
    gone: usize,
    ended: usize,
}

impl World {
    fn feed(&mut self, bench: &mut Bench, input: Input) {
        let call = if let Input::Call { call, .. } = &input { Some(*call) } else { None };
        let mut performed = None;
        let out = bench.step(input);
        for (rank, waiting) in bench.router.waiting() {
            self.cluster.is_asked(rank.0, waiting.tid, waiting.call.0);
        }
        for output in out.0 {
            match output {
                Output::Connect { rank } => {
                    self.wires[usize::from(rank.0)].wanted = true;
                    self.counts.joined += 1;
                }
                Output::Send { rank, message } => {
                    if let ClientMsg::Performed { tid, told: Told { heard: false, .. }, .. } = &message {
                        performed = Some((rank, *tid));
                    }
                    self.wires[usize::from(rank.0)].to_rank.push_back(message);
                }
                Output::Answer { call: answered, outcome, .. } => {
                    let request = self.asked.remove(&answered.0).expect("asked, and answered once");
                    self.see(&outcome);
                    match (performed.take(), Some(answered) == call) {
                        (Some((rank, tid)), true) => {
                            self.counts.performed += 1;
                            self.told[usize::from(rank.0)].insert(tid, outcome);
                        }
                        (None, true) => self.check_answer(bench.at, &request, &outcome),
                        _ => {}
                    }
                }
                Output::Late { kind, errno, .. } => panic!("{} came to {errno}", kind.name()),
                Output::Refused { reason } => panic!("refused: {reason}"),
                Output::Disconnect { rank } => self.parts(bench.at, usize::from(rank.0)),
                Output::Bounced { .. } => panic!("that is the router's"),
                Output::BytesLost { .. }
                | Output::Ready { .. }
                | Output::Recalled { .. }
                | Output::Lost { .. }
                | Output::Closed => {}
            }
        }
    }

    /// The client has no use for a connection any more: what is to be sent on it leaves first.
    fn parts(&mut self, now: Now, rank: usize) {
        let wire = std::mem::take(&mut self.wires[rank]);
        for message in wire.to_rank.into_iter().filter(|_| wire.connected && !wire.closed) {
            self.cluster.receive(now.mono, rank, message, &mut self.told[rank]);
        }
        self.cluster.disconnected(rank);
        self.counts.parted += 1;
    }

    fn see(&mut self, outcome: &Outcome) {
        if let Ok(Reply::Created { attr, .. }) = &outcome {
            self.handles.push(attr.node());
        }
        if let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = &outcome {
            self.seen.insert(attr.ino, (attr.kind() == FileKind::Directory, attr.node()));
        }
    }

    /// What the client says by itself is what ranks would say once everything that was sent has reached them.
    fn check_answer(&mut self, now: Now, request: &Request, outcome: &Outcome) {
        if matches!(outcome, Err(Errno::EAGAIN)) {
            return;
        }
        self.counts.answered += 1;
        let mut cluster = self.cluster.clone();
        for (rank, wire) in self.wires.iter().enumerate() {
            let mut told = self.told[rank].clone();
            for message in wire.to_rank.iter().cloned() {
                cluster.receive(now.mono, rank, message, &mut told);
            }
        }
        let truth = cluster.execute(request);
        let gone = truth == Err(Errno::ESTALE) && *outcome == Err(Errno::ENOENT);
        assert!(&truth == outcome || gone, "{request:?}: {outcome:?}, not {truth:?}");
    }

    fn deliver(&mut self, bench: &mut Bench, prng: &mut Prng, in_order: bool) {
        let rank = prng.index(self.wires.len());
        let wire = &mut self.wires[rank];
        if !wire.connected {
            return;
        }
        if prng.chance(1, 2) {
            let plain = |at: usize| wire.to_rank.get(at).is_some_and(|message| message.class().overtakes);
            if prng.chance(1, 3) && plain(0) && plain(1) {
                wire.to_rank.swap(0, 1);
            }
            if wire.closed {
                wire.to_rank.clear();
            }
            if let Some(message) = wire.to_rank.pop_front() {
                let answers = self.cluster.receive(bench.at.mono, rank, message, &mut self.told[rank]);
                let bounced = answers.iter().filter(|m| matches!(m, ServerMsg::NotMine { .. })).count();
                self.counts.bounced += bounced;
                wire.to_client.extend(answers);
            }
        }
        if !wire.to_client.is_empty() && prng.chance(1, 2) {
            // A map comes before what goes by it, and the welcome before everything.
            let first = |m: &ServerMsg| matches!(m, ServerMsg::Welcome { .. } | ServerMsg::Map { .. });
            let ahead = if in_order { 1 } else { wire.to_client.len().min(4) };
            let at = wire.to_client.iter().position(first).filter(|at| *at < ahead);
            let at = at.unwrap_or_else(|| prng.index(ahead));
            let message = wire.to_client.remove(at);
            let refused = matches!(message, ServerMsg::Refused { .. });
            self.feed(bench, Input::Message { rank: RankId(rank as u16), message });
            if refused {
                let wanted = self.wires[rank].wanted;
                self.wires[rank] = Wire { wanted, ..Wire::default() };
            }
        }
    }

    fn connect(&mut self, bench: &mut Bench, rank: usize, connected: bool) {
        let wire = &mut self.wires[rank];
        if wire.connected == connected || !wire.wanted {
            return;
        }
        *wire = Wire { wanted: true, connected, ..Wire::default() };
        self.cluster.disconnected(rank);
        let rank = RankId(rank as u16);
        let input = if connected { Input::Connected { rank } } else { Input::Disconnected { rank } };
        self.feed(bench, input);
    }

    fn crash(&mut self, bench: &mut Bench, rank: usize) {
        self.cluster.crash(rank);
        self.counts.crashed += 1;
        self.connect(bench, rank, false);
    }

    fn say(&mut self, rank: usize, messages: impl IntoIterator<Item = ServerMsg>) {
        let wire = &mut self.wires[rank];
        if wire.connected {
            wire.to_client.extend(messages);
        }
    }

    /// Everything so far is durable at that rank.
    fn sync(&mut self, rank: usize) {
        let durable = self.cluster.sync(rank);
        self.say(rank, durable);
    }

    /// A rank that goes ends the session, if it has nothing: no answer that the client has not, nothing that it must make durable.
    fn end_session(&mut self, bench: &Bench, rank: usize) {
        let Wire { to_rank, to_client, connected, closed, .. } = &self.wires[rank];
        let quiet = *connected && !closed && to_rank.is_empty() && to_client.is_empty();
        let waits = bench.router.waiting().any(|(of, _)| usize::from(of.0) == rank);
        if !quiet || waits || !self.cluster.has_idle_session(rank as u16) {
            return;
        }
        if bench.router.kept() > 0 {
            return self.sync(rank);
        }
        let ended = self.cluster.ends_session(rank);
        self.say(rank, ended);
        self.wires[rank].closed = true;
        self.counts.ended += 1;
    }

    /// A part of the tree is on its way to another rank.
    fn move_on(&mut self, bench: &Bench, prng: &mut Prng, begin: bool) {
        if begin {
            let dirs: Vec<Ino> = self.seen.iter().filter(|(_, (dir, _))| *dir).map(|(ino, _)| *ino).collect();
            if !dirs.is_empty() {
                self.cluster.begin_move(dirs[prng.index(dirs.len())], prng.below(RANKS.into()) as u16);
            }
        }
        let (says, moved) = self.cluster.go_on(bench.at.mono);
        self.counts.moved += usize::from(moved);
        for (rank, message) in says {
            self.say(rank, [message]);
        }
    }

    fn ask(&mut self, bench: &mut Bench, prng: &mut Prng, locking: bool) {
        let closes = prng.chance(1, 8) && !self.handles.is_empty();
        let request = match closes {
            true => {
                let node = self.handles.swap_remove(prng.index(self.handles.len()));
                Request::Release { node, count: 1 }
            }
            false => self.any_request(prng),
        };
        if locking && is_locked(&request, self.asked.values(), |dir, name| self.cluster.behind(dir, name)) {
            return;
        }
        let call = CallId(self.calls);
        self.calls += 1;
        self.asked.insert(call.0, request.clone());
        self.feed(bench, Input::Call { call, cred: Cred::ROOT, request });
    }

    fn any_request(&self, prng: &mut Prng) -> Request {
        let mut any = |dirs: bool| {
            let of_kind: Vec<NodeRef> =
                self.seen.values().filter(|(is_dir, _)| *is_dir == dirs).map(|(_, node)| *node).collect();
            let node = of_kind.get(prng.index(of_kind.len().max(1))).copied();
            let node = node.unwrap_or(NodeRef::bare(Ino::ROOT));
            if prng.chance(1, 4) { NodeRef::bare(node.ino) } else { node }
        };
        let (parent, new_parent, file) = (any(true), any(true), any(false));
        let mut any_name = || name(NAMES[prng.index(NAMES.len())]);
        let (first, second) = (any_name(), any_name());
        let new = NewNode { mode: 0o644, umask: 0o022, rdev: 0 };
        let len = prng.range(1, 600) as usize;
        match prng.below(22) {
            0..=3 => lookup(parent, &String::from_utf8_lossy(first.as_bytes())),
            4 => Request::GetAttr { node: parent },
            5 | 6 => Request::GetAttr { node: file },
            7 | 8 => Request::MkNod { parent, name: first, new },
            9 => Request::Create { parent, name: first, new, flags: open_flags::RDWR },
            10..=12 => Request::MkDir { parent, name: first, new },
            13 => Request::Unlink { parent, name: first },
            14 => Request::RmDir { parent, name: first },
            15 | 19 => {
                let new_parent = if prng.chance(1, 2) { parent } else { new_parent };
                let flags = u32::from(prng.chance(1, 4));
                Request::Rename { parent, name: first, new_parent, new_name: second, flags }
            }
            16 => {
                let mode = Some([0o755, 0o2755, 0o700][prng.index(3)]);
                let node = if prng.chance(1, 2) { parent } else { file };
                Request::SetAttr { node, set: SetAttr { mode, ..SetAttr::default() } }
            }
            17 => Request::Link { node: file, parent, name: first },
            18 => Request::SyncFs,
            20 => Request::Fsync { node: parent, data_only: false },
            _ => {
                let (offset, append) = (prng.below(900), prng.chance(1, 3));
                let data = Payload::Owned(vec![0; len]);
                Request::Write { node: file, offset, append, kill_suidgid: false, data }
            }
        }
    }

    /// Whether nothing is on its way.
    fn is_quiet(&self) -> bool {
        let quiet = |wire: &Wire| wire.to_rank.is_empty() && wire.to_client.is_empty();
        self.asked.is_empty() && self.wires.iter().all(quiet)
    }
}

/// `crashes`: as in the model of one rank.
fn run(seed: u64, crashes: bool) -> Counts {
    let mut prng = Prng::new(seed);
    let limits = Limits { in_flight_max: 6, queued_max: 100, tid_span_max: 64, ..Limits::default() };
    let wants = Bits::ATTRS.with(Bits::DX);
    let config = ClientConfig { retry: true, wants, limits, ..ClientConfig::default() };
    let mut bench = Bench { router: Router::new(config), at: Now::default() };
    let ranks = usize::from(RANKS);
    let mut world = World {
        wires: vec![Wire::default(); ranks],
        told: vec![BTreeMap::new(); ranks],
        seen: [(Ino::ROOT, (true, NodeRef::bare(Ino::ROOT)))].into(),
        cluster: Cluster::new(RANKS),
        ..World::default()
    };
    world.wires[0].wanted = true;
    world.connect(&mut bench, 0, true);
    for _ in 0..4_000 {
        bench.at.mono = bench.at.mono.after(prng.below(20 * MS));
        let rank = prng.index(ranks);
        match prng.below(1_000) {
            0 if crashes && prng.chance(1, 2) => world.crash(&mut bench, rank),
            0 => {
                let connected = !world.wires[rank].connected;
                world.connect(&mut bench, rank, connected);
            }
            1..=30 => world.connect(&mut bench, rank, true),
            31..=60 => world.sync(rank),
            61..=70 => {
                let recall = world.cluster.begin_foreign(rank, bench.at.mono, &mut prng);
                world.say(rank, recall);
            }
            71..=75 => world.move_on(&bench, &mut prng, true),
            76..=100 => world.feed(&mut bench, Input::Tick),
            101..=300 => world.ask(&mut bench, &mut prng, crashes),
            301..=310 => world.cluster.learns(rank),
            319..=330 => world.end_session(&bench, rank),
            311..=318 => world.counts.gone += usize::from(world.cluster.stop_or_begin(rank as u16)),
            _ => {
                world.move_on(&bench, &mut prng, false);
                world.deliver(&mut bench, &mut prng, crashes);
            }
        }
    }
    end(&mut world, &mut bench, &mut prng, crashes);
    world.counts
}

/// Everything comes to an end, and the books agree.
fn end(world: &mut World, bench: &mut Bench, prng: &mut Prng, crashes: bool) {
    let mut patience = 200_000;
    while !world.is_quiet() || bench.router.kept() > 0 {
        patience -= 1;
        let wires =
            || world.wires.iter().map(|w| (w.connected, &w.to_rank, &w.to_client)).collect::<Vec<_>>();
        assert!(patience > 0, "no answer to {:?}, {} kept, {:?}", world.asked, bench.router.kept(), wires());
        let rank = prng.index(world.wires.len());
        world.connect(bench, rank, true);
        world.cluster.learns(rank);
        world.deliver(bench, prng, crashes);
        let Wire { to_rank, to_client, .. } = &world.wires[rank];
        // A sync that waits for what was moved elsewhere has no answer at any rank.
        let waits = bench.router.kept() > 0 || !world.asked.is_empty();
        if to_rank.is_empty() && to_client.is_empty() && waits {
            world.sync(rank);
        }
        world.feed(bench, Input::Tick);
        bench.at.mono = bench.at.mono.after(MS);
    }
    assert_eq!(bench.router.queued(), 0);
    for ino in world.cluster.inodes() {
        assert_eq!(world.cluster.opens(ino), bench.router.opens(ino), "opens of {ino:?}");
    }
}

fn runs(crashes: bool) {
    let mut all = Counts::default();
    for seed in 0..300 {
        let run = std::panic::catch_unwind(|| run(seed, crashes));
        let Ok(run) = run else { panic!("seed {seed}") };
        all.performed += run.performed;
        all.answered += run.answered;
        all.bounced += run.bounced;
        all.moved += run.moved;
        all.joined += run.joined;
        all.crashed += run.crashed;
        all.parted += run.parted;
        all.gone += run.gone;
        all.ended += run.ended;
    }
    let Counts { performed, answered, bounced, moved, joined, crashed, parted, gone, ended } = all;
    assert!(parted > 50 && gone > 50 && ended > 50, "{all:?}");
    assert!(performed > 1_000 && answered > 300 && bounced > 500 && moved > 300 && joined > 100, "{all:?}");
    assert!(!crashes || crashed > 30, "{all:?}");
}

#[test]
fn each_call_is_carried_out_once_by_the_owner() {
    runs(false);
}

#[test]
fn what_callers_of_several_ranks_were_told_survives_crashes() {
    runs(true);
}

/// The tests above can fail.
#[cfg(feature = "mutants")]
#[test]
fn each_defect_of_the_router_is_caught() {
    for defect in ["client_bounce_asks_two", "client_keeps_delegation", "client_links_anywhere"] {
        stdx::mutant::activate(Some(defect));
        let noticed =
            [false, true].iter().any(|crashes| std::panic::catch_unwind(|| runs(*crashes)).is_err());
        stdx::mutant::activate(None);
        assert!(noticed, "{defect}");
    }
}
