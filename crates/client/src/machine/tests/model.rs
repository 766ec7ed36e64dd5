//! A client that works in delegated directories against a small rank that computes by itself: what callers were told must be what
//! comes of it there, whatever is overtaken, recalled, lost or taken back by a crash.
//!
//! Absent: content, permissions, and what the kernel may keep; the simulator has these.

pub(crate) mod rank;
pub(crate) mod tree;

use super::early::name;
use super::*;
use proto::message::Told;
use proto::request::{NewNode, open_flags};
use proto::storeio::Payload;
use proto::{Effect, FileKind, Name, SetAttr};
use rank::Rank;
use tree::Tree;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Default)]
struct World {
    rank: Rank,
    to_rank: VecDeque<ClientMsg>,
    to_client: Vec<ServerMsg>,
    connected: bool,
    /// What callers ask, and which inode's names or attributes it changes.
    asked: BTreeMap<u64, Request>,
    told: BTreeMap<Tid, Outcome>,
    /// Inodes that callers have seen, and whether they are directories.
    seen: BTreeMap<Ino, bool>,
    /// Open files.
    handles: Vec<Ino>,
    calls: u64,
    /// Counted: how often something was performed; of these, moved and linked; and answered here.
    performed: usize,
    moved: usize,
    linked: usize,
    answered: usize,
}

fn is_plain(message: &ClientMsg) -> bool {
    message.class().overtakes
}

/// As a kernel does: changes of names in one directory, and of one inode, one after the other. Whether one of `asked` is in the way of a
/// request. `behind`: which inode has a name.
pub(crate) fn is_locked<'a>(
    request: &Request,
    asked: impl IntoIterator<Item = &'a Request>,
    behind: impl Fn(Ino, &Name) -> Option<Ino>,
) -> bool {
    let locks = |request: &Request| -> Vec<Ino> {
        if request.effect() != Effect::Journal {
            return Vec::new();
        }
        let second = match request {
            Request::Rename { new_parent, .. } => Some(new_parent.ino),
            Request::Link { node, .. } => Some(node.ino),
            _ => None,
        };
        let first = request.subject().map(|(node, _)| node.ino);
        // What loses its name as well.
        let names = match request {
            Request::Rename { parent, name, new_parent, new_name, .. } => {
                vec![(parent.ino, name), (new_parent.ino, new_name)]
            }
            Request::Unlink { parent, name } | Request::RmDir { parent, name } => vec![(parent.ino, name)],
            _ => Vec::new(),
        };
        let lost = names.into_iter().filter_map(|(dir, name)| behind(dir, name));
        first.into_iter().chain(second).chain(lost).collect()
    };
    let wanted = locks(request);
    asked.into_iter().flat_map(locks).any(|ino| wanted.contains(&ino))
}

impl World {
    fn feed(&mut self, bench: &mut Bench, input: Input) {
        let call = if let Input::Call { call, .. } = &input { Some(*call) } else { None };
        let mut performed = None;
        for output in bench.step(input) {
            match output {
                Output::Send { message, .. } => {
                    if let ClientMsg::Performed { tid, told: Told { heard: false, .. }, .. } = &message {
                        performed = Some(*tid);
                    }
                    self.to_rank.push_back(message);
                }
                // The judge of this model looks at names and attributes alone.
                Output::BytesLost { .. } => {}
                Output::Answer { call: answered, outcome, .. } => {
                    let request = self.asked.remove(&answered.0).expect("asked, and answered once");
                    if let Ok(Reply::Created { attr, .. }) = &outcome {
                        self.handles.push(attr.ino);
                    }
                    if let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = &outcome {
                        self.seen.insert(attr.ino, attr.kind() == FileKind::Directory);
                    }
                    match (performed.take(), Some(answered) == call) {
                        (Some(tid), true) => {
                            self.performed += 1;
                            self.moved += usize::from(matches!(request, Request::Rename { .. }));
                            self.linked += usize::from(matches!(request, Request::Link { .. }));
                            self.told.insert(tid, outcome);
                        }
                        (None, true) => self.check_answer(bench.at.mono, &request, &outcome),
                        _ => {}
                    }
                }
                Output::Late { kind, errno, .. } => panic!("{} came to {errno}", kind.name()),
                Output::Refused { reason } => panic!("refused: {reason}"),
                Output::Bounced { .. } | Output::Connect { .. } | Output::Disconnect { .. } => {
                    panic!("there is one rank")
                }
                Output::Ready { .. } | Output::Recalled { .. } | Output::Lost { .. } | Output::Closed => {}
            }
        }
    }

    /// What the client says by itself is what the rank would say once everything that was sent has reached it.
    fn check_answer(&mut self, now: Mono, request: &Request, outcome: &Outcome) {
        if matches!(outcome, Err(Errno::EAGAIN)) {
            return;
        }
        self.answered += 1;
        let mut rank = self.rank.clone();
        rank.at(now);
        for message in self.to_rank.iter().cloned() {
            rank.receive(message, &mut self.told.clone());
        }
        let truth = rank.execute(request, Ino::NONE, rank.wall);
        // The directory itself may be on its way to its end.
        let gone = truth == Err(Errno::ESTALE) && *outcome == Err(Errno::ENOENT);
        assert!(&truth == outcome || gone, "{request:?}: {outcome:?}, not {truth:?}");
    }

    fn deliver(&mut self, bench: &mut Bench, prng: &mut Prng, in_order: bool) {
        if prng.chance(1, 2) {
            let swap = prng.chance(1, 3) && self.to_rank.len() > 1;
            if swap && is_plain(&self.to_rank[0]) && is_plain(&self.to_rank[1]) {
                self.to_rank.swap(0, 1);
            }
            if let Some(message) = self.to_rank.pop_front() {
                self.rank.at(bench.at.mono);
                let answers = self.rank.receive(message, &mut self.told);
                self.to_client.extend(answers);
            }
        }
        let welcome = self.to_client.iter().position(|m| matches!(m, ServerMsg::Welcome { .. }));
        if !self.to_client.is_empty() && prng.chance(1, 2) {
            let ahead = if in_order { 1 } else { self.to_client.len().min(4) };
            let at = welcome.unwrap_or_else(|| prng.index(ahead));
            let message = self.to_client.remove(at);
            self.feed(bench, from_rank(message));
        }
    }

    fn connect(&mut self, bench: &mut Bench, connected: bool) {
        self.to_rank.clear();
        self.to_client.clear();
        self.connected = connected;
        self.rank.disconnected();
        self.feed(
            bench,
            if connected { Input::Connected { rank: RANK } } else { Input::Disconnected { rank: RANK } },
        );
    }

    fn ask(&mut self, bench: &mut Bench, prng: &mut Prng, locking: bool) {
        let closes = prng.chance(1, 15) && !self.handles.is_empty();
        let request = match closes {
            true => {
                let ino = self.handles.swap_remove(prng.index(self.handles.len()));
                Request::Release { node: node(ino.0), count: 1 }
            }
            false => self.any_request(prng),
        };
        if locking && is_locked(&request, self.asked.values(), |dir, name| self.rank.behind(dir, name)) {
            return;
        }
        let call = CallId(self.calls);
        self.calls += 1;
        self.asked.insert(call.0, request.clone());
        self.feed(bench, Input::Call { call, cred: Cred::ROOT, request });
    }

    fn any_request(&self, prng: &mut Prng) -> Request {
        let mut any = |dirs: bool| {
            let of_kind = self.seen.iter().filter(|(_, is_dir)| **is_dir == dirs).map(|(ino, _)| *ino);
            let of_kind: Vec<Ino> = of_kind.collect();
            node(of_kind.get(prng.index(of_kind.len().max(1))).map_or(1, |ino| ino.0))
        };
        let (parent, new_parent, file) = (any(true), any(true), any(false));
        let mut any_name = || name(NAMES[prng.index(NAMES.len())]);
        let (first, second) = (any_name(), any_name());
        let new = NewNode { mode: 0o644, umask: 0o022, rdev: 0 };
        let len = prng.range(1, 600) as usize;
        match prng.below(20) {
            0..=3 => Request::Lookup { parent, name: first },
            4 => Request::GetAttr { node: parent },
            5 | 6 => Request::GetAttr { node: file },
            7..=10 => Request::Create { parent, name: first, new, flags: open_flags::RDWR },
            11 | 12 => Request::MkDir { parent, name: first, new },
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
            _ => {
                let (offset, append) = (prng.below(900), prng.chance(1, 3));
                let data = Payload::Owned(vec![0; len]);
                Request::Write { node: file, offset, append, kill_suidgid: false, data }
            }
        }
    }
}

/// `crashes`: the rank may lose what is not durable. Then callers lock as a kernel does, and answers keep their order, as on a
/// socket: what has no answer is carried out anew, behind what others were told of, which shows if somebody has heard of it in
/// another way.
fn run(seed: u64, crashes: bool) -> [usize; 4] {
    let mut prng = Prng::new(seed);
    let limits = Limits { in_flight_max: 6, queued_max: 100, tid_span_max: 64, ..Limits::default() };
    let mut bench = Bench::new(true, limits);
    bench.client.config.wants = Bits::ATTRS.with(Bits::DX);
    let mut world = World::default();
    world.connect(&mut bench, true);
    for _ in 0..2_500 {
        bench.wait(prng.below(20 * MS));
        match prng.below(1_000) {
            0 if crashes && prng.chance(1, 2) => {
                world.rank.crash();
                world.connect(&mut bench, false);
            }
            0 => {
                let connected = !world.connected;
                world.connect(&mut bench, connected);
            }
            1..=10 if !world.connected => world.connect(&mut bench, true),
            11..=40 => world.to_client.extend(world.rank.sync()),
            41..=50 => world.to_client.extend(world.rank.begin_foreign(&mut prng, |_| true)),
            51..=100 => world.feed(&mut bench, Input::Tick),
            101..=400 => world.ask(&mut bench, &mut prng, crashes),
            _ => world.deliver(&mut bench, &mut prng, crashes),
        }
    }
    if !world.connected {
        world.connect(&mut bench, true);
    }
    let mut patience = 100_000;
    while !(world.to_rank.is_empty() && world.to_client.is_empty() && world.asked.is_empty()) {
        patience -= 1;
        assert!(
            patience > 0,
            "no answer to {:?}, {:?}",
            world.asked,
            bench.client.waiting().collect::<Vec<_>>()
        );
        world.deliver(&mut bench, &mut prng, crashes);
        if world.to_rank.is_empty() && world.to_client.is_empty() && !world.asked.is_empty() {
            world.to_client.extend(world.rank.sync());
        }
        world.feed(&mut bench, Input::Tick);
        bench.wait(MS);
    }
    world.to_client.extend(world.rank.sync());
    while !world.to_client.is_empty() {
        world.deliver(&mut bench, &mut prng, crashes);
    }
    assert_eq!((bench.client.kept(), bench.client.queued()), (0, 0));
    for (ino, _) in world.rank.inodes() {
        assert_eq!(world.rank.opens(ino), bench.client.opens(ino), "opens of {ino:?}");
    }
    [world.performed, world.answered, world.moved, world.linked]
}

fn runs(crashes: bool) {
    let mut counts = [0; 4];
    for seed in 0..500 {
        let run = std::panic::catch_unwind(|| run(seed, crashes));
        let Ok(run) = run else { panic!("seed {seed}") };
        counts.iter_mut().zip(run).for_each(|(all, one)| *all += one);
    }
    let [performed, answered, moved, linked] = counts;
    assert!(performed > 3_000 && answered > 1_000, "it performed {performed}, answered {answered}");
    assert!(moved > 200 && linked > 50, "it moved {moved}, linked {linked}");
}

#[test]
fn what_callers_were_told_is_what_comes_of_it() {
    runs(false);
}

#[test]
fn what_callers_were_told_survives_crashes() {
    runs(true);
}

/// The tests above can fail.
#[cfg(feature = "mutants")]
#[test]
fn each_defect_is_caught() {
    for defect in [
        "client_recall_overtakes_delegation",
        "client_keeps_delegation",
        "client_stale_name",
        "client_makes_unknown_names",
        "client_forgets_early",
        "client_claims_twice",
        "client_delegated_crossed",
        "client_linked_stays_newborn",
        "client_moved_stays_in_place",
        "client_replaced_lives_on",
    ] {
        stdx::mutant::activate(Some(defect));
        let noticed =
            [false, true].iter().any(|crashes| std::panic::catch_unwind(|| runs(*crashes)).is_err());
        stdx::mutant::activate(None);
        assert!(noticed, "{defect}");
    }
}
