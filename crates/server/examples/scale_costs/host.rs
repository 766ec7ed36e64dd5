//! A session that keeps so many requests under way: what it asks next it sends from the thread that brought the answer.
//!
//! Absent: what it asks (`job.rs`).

use crate::job::{Job, Work};
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, PROTOCOL, ServerMsg};
use proto::reply::Outcome;
use proto::request::Request;
use proto::{Cred, SessionId, Tid};
use runtime::addr::Addr;
use runtime::connect::SocketConnector;
use runtime::port::{Connector, Port, Sink};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    port: Option<Arc<dyn Port>>,
    last_tid: u64,
    renew_at: u64,
    waiting: BTreeMap<Tid, usize>,
    work: Work,
    /// Callers that are at something.
    busy: usize,
    welcome: bool,
    /// Answers to `call` and `ask`.
    outcome: Option<Outcome>,
    text: Option<String>,
    failed: Option<String>,
}

/// Requests between two renewals of the lease.
const RENEW_EVERY: u64 = 512;
/// The caller number of `call`.
const ALONE: usize = usize::MAX;

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
    fn request(&mut self, caller: usize, request: Request) -> ClientMsg {
        self.last_tid += 1;
        let tid = Tid(self.last_tid);
        self.waiting.insert(tid, caller);
        let floor = self.waiting.first_key_value().map_or(tid, |(first, _)| *first);
        ClientMsg::Request { tid, floor, cred: Cred::ROOT, request }
    }

    fn answered(&mut self, tid: Tid, outcome: Outcome) -> Option<ClientMsg> {
        let caller = self.waiting.remove(&tid)?;
        if caller == ALONE {
            self.outcome = Some(outcome);
            return None;
        }
        let next = match self.work.answered(caller, outcome) {
            Ok(Some(request)) => Some(request),
            Ok(None) => self.work.start(caller),
            Err(why) => {
                self.failed = Some(why);
                None
            }
        };
        if next.is_none() {
            self.busy -= 1;
        }
        next.map(|request| self.request(caller, request))
    }
}

impl Sink for Shared {
    fn messages(&self, batch: Vec<ServerMsg>) {
        let mut state = self.state();
        let mut next = Vec::with_capacity(batch.len());
        for message in batch {
            match message {
                ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => {
                    next.extend(state.answered(tid, outcome));
                }
                ServerMsg::Welcome { .. } => state.welcome = true,
                ServerMsg::Admin { answer, .. } => state.text = Some(answer),
                ServerMsg::Renewed { .. } | ServerMsg::Map { .. } => {}
                other => state.failed = Some(format!("{other:?}")),
            }
        }
        if state.last_tid >= state.renew_at && !next.is_empty() {
            state.renew_at = state.last_tid + RENEW_EVERY;
            next.push(ClientMsg::Renew { number: 1 });
        }
        if next.is_empty() {
            self.changed.notify_all();
            return;
        }
        if let Some(port) = state.port.clone() {
            // The loss is told as such.
            let _lost = port.send(next, &mut Vec::new());
        }
    }

    fn disconnected(&self) {
        self.state().failed.get_or_insert_with(|| "the connection was lost".into());
        self.changed.notify_all();
    }
}

/// A session.
pub(crate) struct Link {
    shared: Arc<Shared>,
    port: Arc<dyn Port>,
}

impl Link {
    /// Without a session: for questions only.
    pub(crate) fn guest(addr: &Addr) -> Result<Self, Box<dyn Error>> {
        let shared = Arc::<Shared>::default();
        let port = SocketConnector::new(addr.clone()).connect(shared.clone())?;
        shared.state().port = Some(port.clone());
        Ok(Self { shared, port })
    }

    pub(crate) fn open(addr: &Addr) -> Result<Self, Box<dyn Error>> {
        let link = Self::guest(addr)?;
        let info = ClientInfo { host: "bench".into(), mount: "bench".into(), pid: 1, caps_max: 0 };
        let hello = ClientMsg::Hello {
            protocol: PROTOCOL,
            session: SessionId(0),
            info,
            wants: Bits::NONE,
            at: At::default(),
        };
        link.port.send(vec![hello], &mut Vec::new())?;
        link.wait(|state| state.welcome.then_some(()))?;
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
        self.port.send(vec![question], &mut Vec::new())?;
        self.wait(|state| state.text.take())
    }

    /// One request.
    pub(crate) fn call(&self, request: Request) -> Result<Outcome, Box<dyn Error>> {
        let message = self.shared.state().request(ALONE, request);
        self.port.send(vec![message], &mut Vec::new())?;
        self.wait(|state| state.outcome.take())
    }

    /// The lease begins anew.
    pub(crate) fn renew(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.port.send(vec![ClientMsg::Renew { number: 1 }], &mut Vec::new())?)
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
        let mut state = self.shared.state();
        state.work.begin(job, callers);
        let mut first = vec![ClientMsg::Renew { number: 1 }];
        for caller in 0..callers {
            if let Some(request) = state.work.start(caller) {
                state.busy += 1;
                first.push(state.request(caller, request));
            }
        }
        drop(state);
        let sent = self.port.send(first, &mut Vec::new());
        match self.shared.state().failed.clone() {
            Some(why) => Err(why.into()),
            None => Ok(sent?),
        }
    }

    /// Waits until it is done; answers the number of operations.
    pub(crate) fn end(&self) -> Result<u64, Box<dyn Error>> {
        self.wait(|state| (state.busy == 0).then_some(state.work.operations()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The server may be gone.
        let _told = self.port.send(vec![ClientMsg::Goodbye], &mut Vec::new());
        self.port.close();
        self.shared.state().port = None;
    }
}
