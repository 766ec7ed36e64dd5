//! Connections that break anywhere, against a rank that executes each tid once.
//!
//! Absent: what is performed by the client itself (`model.rs`).

use super::*;

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
                    let Input::Message { message, .. } = welcome(5, self.known) else { return };
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
                Output::Send { message, .. } => self.to_rank.push_back(message),
                Output::Answer { call, outcome, .. } => {
                    assert_eq!(self.answered.insert(call.0, outcome), None, "call {} answered twice", call.0);
                }
                Output::Refused { reason } => panic!("refused: {reason}"),
                Output::Late { .. } => panic!("nothing is early here"),
                Output::Bounced { .. } | Output::Connect { .. } | Output::Disconnect { .. } => {
                    panic!("there is one rank")
                }
                Output::BytesLost { .. }
                | Output::Ready { .. }
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
            self.feed(bench, from_rank(message));
        }
    }

    fn connect(&mut self, bench: &mut Bench, connected: bool) {
        self.to_rank.clear();
        self.to_client.clear();
        self.connected = connected;
        self.feed(
            bench,
            if connected { Input::Connected { rank: RANK } } else { Input::Disconnected { rank: RANK } },
        );
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
