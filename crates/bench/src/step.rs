//! The rank machine alone, stepped in one thread: what planning, applying and journalling an operation costs at most.
//!
//! Around it stands what answers at once: a journal that counts bytes, drops them and says after every batch that they are
//! durable, and a metadata store in memory. The configuration is a server's, outputs are drained after each step, and each
//! answer is looked at. The time is that of the rank's steps and of drains; making requests and the store's own work are not in
//! it. Absent: sockets, codecs, threads, files, data.

use crate::link::Link;
use crate::report::{Phase, cpu_seconds, histogram};
use anyhow::{Result, bail, ensure};
use mds::input::{ConnId, Input, Peer};
use mds::output::Output;
use mds::{Rank, RankConfig};
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::request::{NewNode, Request};
use proto::storeio::{DataDone, DataOp};
use proto::{Cred, Incarnation, Ino, Name, NodeRef, Position, SessionId, Tid};
use runtime::Clock;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use stdx::hash::HashSeed;
use stdx::{Machine, Now};
use store::MemoryMeta;
use store::initial::initial_batches;
use store::meta::MetaStore;

const CONN: ConnId = ConnId(1);
const SEED: HashSeed = HashSeed([7; 16]);

/// One run.
#[derive(Clone, Debug)]
pub struct Step {
    pub files: u64,
    /// Directories of the same size, filled one after the other.
    pub dirs: u64,
    /// Requests stepped before the journal says that everything is durable, and clocks are read.
    pub batch: u64,
    /// Answers wait for durability, as every client's over a socket do; else they leave at once, as in the server's process.
    pub held: bool,
    /// Each is asked for in an order without locality, where the order is free.
    pub random: bool,
    /// In this order: create, lookup, getattr, unlink.
    pub tests: Vec<String>,
}

/// What a run made the rank put out.
#[derive(Clone, Debug, Serialize)]
pub struct Stepped {
    pub phases: Vec<Phase>,
    pub counters: Vec<PhaseCounters>,
}

/// What belongs to one phase's rate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PhaseCounters {
    pub name: String,
    pub steps: u64,
    pub replies: u64,
    pub journal_bytes: u64,
    pub checkpoints: u64,
    /// Time of the store in memory, which is not in the rate.
    pub store_seconds: f64,
}

/// Boots a rank on an empty file system and steps the tests.
///
/// # Errors
/// When a request fails, or the rank asks for something that none of the tests needs.
pub fn run(step: &Step) -> Result<Stepped> {
    ensure!(step.files > 0 && step.batch > 0, "--files and --batch must be at least 1");
    ensure!((1..=step.files).contains(&step.dirs), "--dirs must be between 1 and --files");
    let mut world = World::boot(step.held)?;
    let dirs = world.directories(step.dirs)?;
    let mut nodes = Vec::new();
    let (mut phases, mut counters) = (Vec::new(), Vec::new());
    for test in &step.tests {
        let before = world.count.clone();
        let checkpoints = world.rank.status().checkpoints;
        let cpu = cpu_seconds(std::process::id());
        let (latencies, elapsed) = phase(&mut world, step, test, &dirs, &mut nodes)?;
        let cpu = cpu_seconds(std::process::id()).zip(cpu).map(|(after, before)| after - before);
        let mut phase = Phase::new(test, &latencies, elapsed, cpu);
        phase.checkpoints = Some(world.rank.status().checkpoints - checkpoints);
        counters.push(PhaseCounters {
            name: test.clone(),
            steps: world.count.steps - before.steps,
            replies: world.count.replies - before.replies,
            journal_bytes: world.count.journal_bytes - before.journal_bytes,
            checkpoints: phase.checkpoints.unwrap_or_default(),
            store_seconds: (world.count.store - before.store).as_secs_f64(),
        });
        phases.push(phase);
    }
    Ok(Stepped { phases, counters })
}

fn phase(
    world: &mut World,
    step: &Step,
    test: &str,
    dirs: &[NodeRef],
    nodes: &mut Vec<NodeRef>,
) -> Result<(hdrhistogram::Histogram<u64>, Duration)> {
    let mut order: Vec<u64> = (0..step.files).collect();
    if step.random && test != "create" {
        let mut dice = stdx::Prng::new(1);
        for i in (1..order.len()).rev() {
            order.swap(i, dice.index(i + 1));
        }
    }
    if test == "create" {
        nodes.clear();
        nodes.resize(step.files as usize, NodeRef::default());
    }
    let mut latencies = histogram();
    let mut total = Duration::ZERO;
    for batch in order.chunks(step.batch as usize) {
        let requests =
            batch.iter().map(|i| request(step, test, *i, dirs, nodes)).collect::<Result<Vec<_>>>()?;
        let took = world.batch(requests)?;
        latencies.saturating_record_n(nanos(took) / batch.len() as u64 + 1, batch.len() as u64);
        total += took;
        if test == "create" {
            for (i, reply) in batch.iter().zip(&world.answers) {
                nodes[*i as usize] = *reply;
            }
        }
    }
    Ok((latencies, total))
}

fn request(step: &Step, test: &str, i: u64, dirs: &[NodeRef], nodes: &[NodeRef]) -> Result<Request> {
    // 20 bytes, as in the other runs.
    let name = Name::new(format!("file.{i:015}").as_bytes())?;
    let parent = dirs[(u128::from(i) * dirs.len() as u128 / u128::from(step.files)) as usize];
    Ok(match test {
        "create" => Request::MkNod { parent, name, new: NewNode { mode: 0o100_644, umask: 0o022, rdev: 0 } },
        "lookup" => Request::Lookup { parent, name },
        "getattr" => match nodes.get(i as usize) {
            Some(node) => Request::GetAttr { node: *node },
            None => bail!("getattr needs create before it"),
        },
        "unlink" => Request::Unlink { parent, name },
        other => bail!("unknown test {other}: one of create, lookup, getattr, unlink"),
    })
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// What the rank put out so far.
#[derive(Clone, Debug, Default)]
struct Count {
    steps: u64,
    replies: u64,
    journal_bytes: u64,
    store: Duration,
}

/// One rank and what answers it.
struct World {
    rank: Rank,
    meta: MemoryMeta,
    clock: Clock,
    out: Vec<Output>,
    inbox: VecDeque<Input>,
    /// End of what was appended, and what the rank was told of it.
    end: Position,
    told: Position,
    next_tid: u64,
    /// The first tid of the batch under way, and who answered it.
    first_tid: u64,
    answers: Vec<NodeRef>,
    missing: usize,
    welcome: Option<Ino>,
    failed: Option<String>,
    count: Count,
}

impl World {
    fn boot(held: bool) -> Result<Self> {
        let meta = MemoryMeta::new(1);
        let clock = Clock::new();
        meta.apply(&initial_batches(&SEED, clock.now().wall, (0, 0)))?;
        let config = RankConfig::new([1; 16], SEED, Incarnation(1));
        let mut world = Self {
            rank: Rank::new(config),
            meta,
            clock,
            out: Vec::new(),
            inbox: VecDeque::new(),
            end: Position(0),
            told: Position(0),
            next_tid: 1,
            first_tid: 1,
            answers: Vec::new(),
            missing: 0,
            welcome: None,
            failed: None,
            count: Count::default(),
        };
        world.say(Input::Boot)?;
        let peer = if held { Peer::Trusted } else { Peer::Embedded };
        world.say(Input::Connected { conn: CONN, peer })?;
        let info =
            ClientInfo { host: "bench".into(), mount: "bench".into(), pid: std::process::id(), caps_max: 0 };
        let hello = ClientMsg::Hello {
            protocol: PROTOCOL,
            session: SessionId(0),
            info,
            wants: Bits::NONE,
            at: At::default(),
        };
        world.say(Input::Message { conn: CONN, message: hello })?;
        ensure!(world.welcome.is_some(), "the rank took no session");
        Ok(world)
    }

    fn directories(&mut self, count: u64) -> Result<Vec<NodeRef>> {
        let parent = NodeRef::bare(self.welcome.unwrap_or(Ino::ROOT));
        (0..count)
            .map(|i| {
                let name = Name::new(format!("dir.{i}").as_bytes())?;
                let new = NewNode { mode: 0o040_755, umask: 0, rdev: 0 };
                self.batch(vec![Request::MkDir { parent, name, new }])?;
                Ok(self.answers[0])
            })
            .collect()
    }

    fn say(&mut self, input: Input) -> Result<()> {
        let now = self.clock.now();
        self.step(now, input);
        self.settle(now)
    }

    /// Steps these requests and whatever follows from them, and returns the time that took.
    fn batch(&mut self, requests: Vec<Request>) -> Result<Duration> {
        self.first_tid = self.next_tid;
        self.missing = requests.len();
        self.answers.clear();
        self.answers.resize(requests.len(), NodeRef::default());
        let store = self.count.store;
        let messages: Vec<Input> = requests.into_iter().map(|request| self.message(request)).collect();
        let begin = Instant::now();
        let now = self.clock.now();
        for message in messages {
            self.step(now, message);
        }
        self.settle(now)?;
        // A checkpoint under way may hold requests back for a slice of time.
        while self.missing > 0 {
            let Some(at) = self.rank.deadline() else { bail!("a request is not answered") };
            std::thread::park_timeout(self.clock.until(at));
            self.settle(self.clock.now())?;
        }
        Ok(begin.elapsed().saturating_sub(self.count.store - store))
    }

    fn message(&mut self, request: Request) -> Input {
        let tid = Tid(self.next_tid);
        self.next_tid += 1;
        let message = ClientMsg::Request { tid, floor: Tid(self.first_tid), cred: Cred::ROOT, request };
        Input::Message { conn: CONN, message }
    }

    /// Tells what is durable and answers the stores until the rank has nothing left to do now.
    fn settle(&mut self, now: Now) -> Result<()> {
        loop {
            if let Some(failed) = self.failed.take() {
                bail!(failed);
            }
            let input = match self.inbox.pop_front() {
                Some(input) => input,
                None if self.told < self.end => {
                    self.told = self.end;
                    Input::Durable(self.end)
                }
                None if self.rank.deadline().is_some_and(|at| at <= now.mono) => Input::Tick,
                None => return Ok(()),
            };
            self.step(now, input);
        }
    }

    fn step(&mut self, now: Now, input: Input) {
        self.count.steps += 1;
        let mut out = std::mem::take(&mut self.out);
        self.rank.step(now, input, &mut out);
        for output in out.drain(..) {
            self.carry_out(output);
        }
        self.out = out;
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { message, .. } => self.receive(message),
            Output::Append { position, bytes, .. } => {
                self.count.journal_bytes += bytes.len() as u64;
                self.end = Position(position.0 + bytes.len() as u64);
            }
            Output::ReadJournal { from } => {
                self.inbox.push_back(Input::ReplayEnd { end: from, former: Incarnation(0) })
            }
            Output::Load { tag, requests } => {
                let begin = Instant::now();
                let results = self.meta.load(&requests);
                self.count.store += begin.elapsed();
                self.inbox.push_back(Input::Loaded { tag, results });
            }
            Output::Store { tag, batches } => {
                let begin = Instant::now();
                let result = self.meta.apply(&batches);
                self.count.store += begin.elapsed();
                self.inbox.push_back(Input::Stored { tag, result });
            }
            Output::Data { tag, op: DataOp::SyncAll | DataOp::Remove { .. } } => {
                self.inbox.push_back(Input::DataDone { tag, result: Ok(DataDone::Done) });
            }
            Output::Data { op, .. } => self.failed = Some(format!("file data is not in this run: {op:?}")),
            Output::Damaged { reason } => self.failed = Some(reason),
            Output::SendRank { .. } | Output::Wish(_) => {
                self.failed = Some("the rank asks for another".into())
            }
            Output::Close { .. } => self.failed = Some("the rank closed the connection".into()),
            Output::Commit | Output::Trim { .. } | Output::Active | Output::Stopped | Output::Note { .. } => {
            }
        }
    }

    fn receive(&mut self, message: ServerMsg) {
        match message {
            ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
                self.count.replies += 1;
                let at = tid.0.wrapping_sub(self.first_tid) as usize;
                match (outcome, self.answers.get_mut(at)) {
                    (Ok(reply), Some(node)) => *node = Link::node(&reply),
                    (outcome, _) => self.failed = Some(format!("request {} answered {outcome:?}", tid.0)),
                }
                self.missing = self.missing.saturating_sub(1);
            }
            ServerMsg::Welcome { root, .. } => self.welcome = Some(root),
            ServerMsg::Refused { reason, .. } => self.failed = Some(reason),
            ServerMsg::Admin { .. }
            | ServerMsg::Recall { .. }
            | ServerMsg::Renewed { .. }
            | ServerMsg::NotMine { .. }
            | ServerMsg::Map { .. }
            | ServerMsg::Join { .. }
            | ServerMsg::Damaged => {}
            // For sessions that want to be answered early.
            ServerMsg::Early { .. }
            | ServerMsg::Done { .. }
            | ServerMsg::Durable { .. }
            | ServerMsg::Numbers { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(held: bool, tests: &str) -> Step {
        let tests = tests.split(',').map(str::to_owned).collect();
        Step { files: 1_000, dirs: 3, batch: 32, held, random: true, tests }
    }

    #[test]
    fn every_request_is_answered_and_changes_are_journalled() {
        for held in [false, true] {
            let stepped = run(&plan(held, "create,lookup,getattr,unlink")).expect("a run");
            for (phase, around) in stepped.phases.iter().zip(&stepped.counters) {
                assert_eq!((phase.ops, around.replies), (1_000, 1_000), "{}", phase.name);
                let changes = matches!(phase.name.as_str(), "create" | "unlink");
                assert_eq!(around.journal_bytes > 0, changes, "{}", phase.name);
            }
        }
    }

    #[test]
    fn a_request_that_fails_fails_the_run() {
        assert!(run(&plan(false, "lookup")).is_err());
        assert!(run(&plan(false, "getattr")).is_err_and(|error| error.to_string().contains("needs create")));
        assert!(run(&plan(false, "nothing")).is_err_and(|error| error.to_string().contains("unknown test")));
    }
}
