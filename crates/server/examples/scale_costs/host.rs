//! A session, at each of the ranks, that keeps so many requests under way: what it asks next it sends from the thread that brought the
//! answer.
//!
//! Absent: what it asks (`job.rs`).

use crate::job::{Ask, Dir, Job, Work};
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, JoinToken, PROTOCOL, ServerMsg};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, Errno, Name, NodeRef, RankId, SessionId, Tid};
use runtime::addr::Addr;
use runtime::connect::SocketConnector;
use runtime::port::{Connector, Port, Sink};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The connection to one rank.
#[derive(Default)]
struct Line {
    port: Option<Arc<dyn Port>>,
    last_tid: u64,
    renew_at: u64,
    waiting: BTreeMap<Tid, usize>,
    /// To be sent.
    outbox: Vec<ClientMsg>,
}

/// What `call` hears.
enum Answer {
    Outcome(Outcome),
    /// It is another rank's, perhaps that one's.
    Elsewhere(Option<RankId>),
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    work: Work,
    /// Callers that are at something.
    busy: usize,
    /// What the last rank that was greeted said.
    welcome: Option<(SessionId, JoinToken)>,
    /// Answers to `call` and `ask`.
    answer: Option<Answer>,
    text: Option<String>,
    failed: Option<String>,
}

/// Requests between two renewals of the lease.
const RENEW_EVERY: u64 = 512;
/// The caller number of `call`.
const ALONE: usize = usize::MAX;
/// How often a rank is looked for that has a directory, and how long is waited in between: it may not have heard of it.
const TRIES: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ask(&mut self, caller: usize, ask: Ask) {
        let line = &mut self.lines[ask.rank];
        line.last_tid += 1;
        let tid = Tid(line.last_tid);
        line.waiting.insert(tid, caller);
        let floor = line.waiting.first_key_value().map_or(tid, |(first, _)| *first);
        line.outbox.push(ClientMsg::Request { tid, floor, cred: Cred::ROOT, request: ask.request });
    }

    /// The caller's next operation; none: it has nothing left to do.
    fn start(&mut self, caller: usize) -> bool {
        let next = self.work.start(caller);
        let goes_on = next.is_some();
        if let Some(ask) = next {
            self.ask(caller, ask);
        }
        goes_on
    }

    fn answered(&mut self, rank: usize, tid: Tid, answer: Answer) {
        let Some(caller) = self.lines[rank].waiting.remove(&tid) else { return };
        if caller == ALONE {
            self.answer = Some(answer);
            return;
        }
        let next = match answer {
            Answer::Outcome(outcome) => self.work.answered(caller, outcome),
            Answer::Elsewhere(owner) => Err(format!("moved from rank {rank} to {owner:?}")),
        };
        let goes_on = match next {
            Ok(Some(ask)) => {
                self.ask(caller, ask);
                true
            }
            Ok(None) => self.start(caller),
            Err(why) => {
                self.failed = Some(why);
                false
            }
        };
        self.busy -= usize::from(!goes_on);
    }

    /// Sends what is said, under the lock: ranks want the requests of a session in their order. Whether there was anything.
    fn flush(&mut self) -> bool {
        let mut said = false;
        for line in &mut self.lines {
            let mut next = std::mem::take(&mut line.outbox);
            if next.is_empty() {
                continue;
            }
            said = true;
            if line.last_tid >= line.renew_at {
                line.renew_at = line.last_tid + RENEW_EVERY;
                next.push(ClientMsg::Renew { number: 1 });
            }
            if let Some(port) = &line.port {
                // The loss is told as such.
                let _lost = port.send(next, &mut Vec::new());
            }
        }
        said
    }
}

/// What hears one rank.
struct Ear {
    shared: Arc<Shared>,
    rank: usize,
}

impl Sink for Ear {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let mut state = self.shared.state();
        for message in batch {
            match message {
                ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
                    state.answered(self.rank, tid, Answer::Outcome(outcome));
                }
                ServerMsg::NotMine { tid, owner, .. } => {
                    state.answered(self.rank, tid, Answer::Elsewhere(owner));
                }
                ServerMsg::Welcome { session, token, .. } => state.welcome = Some((session, token)),
                ServerMsg::Admin { answer, .. } => state.text = Some(answer),
                ServerMsg::Renewed { .. } | ServerMsg::Map { .. } | ServerMsg::Numbers { .. } => {}
                other => state.failed = Some(format!("{other:?}")),
            }
        }
        if !state.flush() {
            self.shared.changed.notify_all();
        }
    }

    fn disconnected(&self) {
        self.shared.state().failed.get_or_insert_with(|| "the connection was lost".into());
        self.shared.changed.notify_all();
    }
}

/// A session.
pub(crate) struct Link {
    shared: Arc<Shared>,
    ports: Vec<Arc<dyn Port>>,
}

impl Link {
    /// Without a session: for questions only.
    pub(crate) fn guest(addr: &Addr) -> Result<Self, Box<dyn Error>> {
        let mut link = Self { shared: Arc::default(), ports: Vec::new() };
        link.connect(addr)?;
        Ok(link)
    }

    /// One more connection.
    fn connect(&mut self, addr: &Addr) -> Result<(), Box<dyn Error>> {
        let ear = Ear { shared: self.shared.clone(), rank: self.ports.len() };
        self.shared.state().lines.push(Line::default());
        let port = SocketConnector::new(addr.clone()).connect(Arc::new(ear))?;
        self.shared.state().lines[self.ports.len()].port = Some(port.clone());
        self.ports.push(port);
        Ok(())
    }

    pub(crate) fn open(addr: &Addr, ranks: u16) -> Result<Self, Box<dyn Error>> {
        let mut link = Self { shared: Arc::default(), ports: Vec::new() };
        let (mut session, mut token) = (SessionId(0), JoinToken::default());
        for rank in 0..ranks {
            link.connect(addr)?;
            let info = ClientInfo { host: "bench".into(), mount: "bench".into(), pid: 1, caps_max: 0 };
            let at = At { rank: RankId(rank), join: rank > 0, token, ..At::default() };
            let hello = ClientMsg::Hello { protocol: PROTOCOL, session, info, wants: Bits::NONE, at };
            link.ports[usize::from(rank)].send(vec![hello], &mut Vec::new())?;
            (session, token) = link.wait(|state| state.welcome.take())?;
        }
        Ok(link)
    }

    fn wait<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> Result<T, Box<dyn Error>> {
        let mut state = self.shared.state();
        loop {
            if let Some(why) = state.failed.clone() {
                return Err(why.into());
            }
            if let Some(found) = ready(&mut state) {
                return Ok(found);
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An operator's question.
    pub(crate) fn ask(&self, question: ClientMsg) -> Result<String, Box<dyn Error>> {
        self.ports[0].send(vec![question], &mut Vec::new())?;
        self.wait(|state| state.text.take())
    }

    fn ask_rank(&self, rank: usize, request: Request) -> Result<Answer, Box<dyn Error>> {
        let mut state = self.shared.state();
        state.ask(ALONE, Ask { rank, request });
        state.flush();
        drop(state);
        self.wait(|state| state.answer.take())
    }

    /// One request, and the rank that it is for.
    fn find(&self, request: &Request) -> Result<(usize, Outcome), Box<dyn Error>> {
        let mut rank = 0;
        for _ in 0..TRIES {
            match self.ask_rank(rank, request.clone())? {
                Answer::Outcome(outcome) => return Ok((rank, outcome)),
                Answer::Elsewhere(Some(owner)) if usize::from(owner.0) < self.ports.len() => {
                    rank = owner.0.into();
                }
                Answer::Elsewhere(_) => std::thread::park_timeout(PAUSE),
            }
        }
        Err("no rank has that directory".into())
    }

    /// One request.
    pub(crate) fn call(&self, request: &Request) -> Result<Outcome, Box<dyn Error>> {
        Ok(self.find(request)?.1)
    }

    /// A directory, and whose it is.
    pub(crate) fn locate(&self, node: NodeRef) -> Result<Dir, Box<dyn Error>> {
        if self.ports.len() == 1 {
            return Ok(Dir { node, rank: 0 });
        }
        let request = Request::Lookup { parent: node, name: Name::new(b"nothing")? };
        match self.find(&request)? {
            (rank, Err(Errno::ENOENT)) => Ok(Dir { node, rank }),
            (_, outcome) => Err(format!("{outcome:?}").into()),
        }
    }

    /// The lease begins anew.
    pub(crate) fn renew(&self) -> Result<(), Box<dyn Error>> {
        let renew = |port: &Arc<dyn Port>| port.send(vec![ClientMsg::Renew { number: 1 }], &mut Vec::new());
        Ok(self.ports.iter().try_for_each(renew)?)
    }

    /// Gives the session what its jobs need.
    pub(crate) fn prepare(&self, work: Work) {
        self.shared.state().work = work;
    }

    /// For another session.
    pub(crate) fn take_work(&self) -> Work {
        std::mem::take(&mut self.shared.state().work)
    }

    /// Begins a job with so many callers.
    pub(crate) fn begin(&self, job: Job, callers: usize) -> Result<(), Box<dyn Error>> {
        self.renew()?;
        let mut state = self.shared.state();
        state.work.begin(job, callers);
        for caller in 0..callers {
            state.busy += usize::from(state.start(caller));
        }
        state.flush();
        state.failed.clone().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Waits until it is done; answers the number of operations.
    pub(crate) fn end(&self) -> Result<u64, Box<dyn Error>> {
        self.wait(|state| (state.busy == 0).then_some(state.work.operations()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for port in &self.ports {
            // The server may be gone.
            let _told = port.send(vec![ClientMsg::Goodbye], &mut Vec::new());
            port.close();
        }
        self.shared.state().lines.clear();
    }
}
