//! A bare connection for load generators: requests in batches, answers counted, no client machine in between.
//!
//! Absent: locks, caching, reconnects by itself: a lost connection ends the run, unless that resumes the session.

use anyhow::{Context, Result, bail, ensure};
use proto::caps::Bits;
use proto::message::{At, ClientInfo, ClientMsg, JoinToken, PROTOCOL, ServerMsg};
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Cred, Ino, NodeRef, RankId, SessionId, Tid};
use runtime::port::{Connector, Port, Sink};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers that came later than `Port::send` returned.
#[derive(Default)]
struct Inbox {
    queue: Mutex<Late>,
    arrived: Condvar,
}

#[derive(Default)]
struct Late {
    messages: VecDeque<ServerMsg>,
    lost: bool,
}

impl Sink for Inbox {
    fn messages(&self, batch: Vec<ServerMsg>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).messages.extend(batch);
        self.arrived.notify_one();
    }

    fn disconnected(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).lost = true;
        self.arrived.notify_one();
    }
}

/// Another rank's request came here.
#[derive(Debug)]
pub struct SentAway;

impl std::fmt::Display for SentAway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the rank sent a request away: it is another's")
    }
}

impl std::error::Error for SentAway {}

/// One session of a load generator.
pub struct Link {
    port: Arc<dyn Port>,
    inbox: Arc<Inbox>,
    next_tid: u64,
    answers: Vec<ServerMsg>,
    session: SessionId,
    wants: Bits,
    token: JoinToken,
    /// The root directory's number.
    pub root: Ino,
}

impl Link {
    /// Opens a session.
    ///
    /// # Errors
    /// When the server cannot be reached or refuses.
    pub fn open(connector: &dyn Connector) -> Result<Self> {
        Self::open_wanting(connector, Bits::NONE)
    }

    /// Opens a session that is granted capabilities. It keeps nothing, and gives none back: only for servers that nobody else
    /// uses.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_wanting(connector: &dyn Connector, wants: Bits) -> Result<Self> {
        Self::hello(connector, SessionId(0), wants, At::default())
    }

    /// The same session at another rank, to which `connector` leads.
    ///
    /// # Errors
    /// As `open`.
    pub fn join(&self, connector: &dyn Connector, rank: RankId) -> Result<Self> {
        let at = At { rank, join: true, token: self.token, ..At::default() };
        Self::hello(connector, self.session, self.wants, at)
    }

    fn hello(connector: &dyn Connector, session: SessionId, wants: Bits, at: At) -> Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let port = connector.connect(Arc::<Inbox>::clone(&inbox))?;
        let answers = Vec::new();
        let (token, root) = (at.token, Ino::ROOT);
        let mut link = Self { port, inbox, next_tid: 1, answers, session, wants, token, root };
        let info =
            ClientInfo { host: "bench".into(), mount: "bench".into(), pid: std::process::id(), caps_max: 0 };
        link.port.send(
            vec![ClientMsg::Hello { protocol: PROTOCOL, session, info, wants, at }],
            &mut link.answers,
        )?;
        loop {
            match link.next()? {
                ServerMsg::Welcome { root, session: given, token, .. } => {
                    ensure!(session == SessionId(0) || session == given, "the session is not known any more");
                    (link.root, link.session, link.token) = (root, given, token);
                    return Ok(link);
                }
                ServerMsg::Refused { reason, .. } => bail!("refused: {reason}"),
                _ => {}
            }
        }
    }

    /// Connects again after the connection was lost, and presents the files that the session has open, each once and for reading.
    /// Requests that had no answer are forgotten.
    ///
    /// # Errors
    /// When the server cannot be reached or does not know the session; may be tried again.
    pub fn resume(&mut self, connector: &dyn Connector, open: &[NodeRef]) -> Result<()> {
        let mut link = Self::hello(connector, self.session, self.wants, At::default())?;
        link.next_tid = self.next_tid;
        let reclaim =
            |node: &NodeRef| ClientMsg::Reclaim { node: *node, count: 1, writes: false, locks: vec![] };
        let mut messages: Vec<ClientMsg> = open.iter().map(reclaim).collect();
        messages.push(ClientMsg::Reclaimed);
        if !self.wants.is_empty() {
            messages.push(ClientMsg::Settled);
        }
        link.port.send(messages, &mut link.answers)?;
        // What is dropped now is the broken connection: its goodbye reaches nobody.
        *self = link;
        Ok(())
    }

    /// Keeps the session alive without a request.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn renew(&mut self) -> Result<()> {
        self.port.send(vec![ClientMsg::Renew { number: 0 }], &mut self.answers)?;
        // Nobody waits for these.
        self.take_all(&mut Vec::new());
        Ok(())
    }

    /// Waits until the connection is lost, and keeps the session alive until then.
    pub fn wait_lost(&mut self, renew_every: Duration) {
        let mut renewed = Instant::now();
        loop {
            let late = self.inbox.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if late.lost {
                return;
            }
            let left = renew_every.saturating_sub(renewed.elapsed());
            drop(self.inbox.arrived.wait_timeout(late, left).unwrap_or_else(PoisonError::into_inner));
            if renewed.elapsed() >= renew_every {
                renewed = Instant::now();
                // That it failed is what the next look finds.
                let _lost = self.renew();
            }
        }
    }

    /// Sends all requests at once and waits for all answers, which come back in request order.
    ///
    /// # Errors
    /// When the connection is lost; `SentAway`.
    pub fn batch(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Outcome>> {
        let first = self.next_tid;
        let messages: Vec<ClientMsg> = requests
            .into_iter()
            .map(|request| {
                let tid = Tid(self.next_tid);
                self.next_tid += 1;
                ClientMsg::Request { tid, floor: Tid(first), cred: Cred::ROOT, request }
            })
            .collect();
        let mut outcomes: Vec<Option<Outcome>> = messages.iter().map(|_| None).collect();
        let mut missing = messages.len();
        self.port.send(messages, &mut self.answers)?;
        while missing > 0 {
            let (tid, outcome) = match self.next()? {
                ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } => (tid, outcome),
                ServerMsg::NotMine { .. } => return Err(SentAway.into()),
                _ => continue,
            };
            if let Some(slot) = outcomes.get_mut((tid.0.wrapping_sub(first)) as usize) {
                missing -= usize::from(slot.is_none());
                *slot = Some(outcome);
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// Keeps `depth` requests under way: sends another for each that was answered, until there are none. `answered` gets
    /// every outcome with how long it took, in the order in which they come.
    ///
    /// # Errors
    /// When the connection is lost, or what `requests` or `answered` says.
    pub fn stream(
        &mut self,
        depth: usize,
        mut requests: impl Iterator<Item = Result<Request>>,
        mut answered: impl FnMut(Outcome, Duration) -> Result<()>,
    ) -> Result<()> {
        let mut sent: BTreeMap<Tid, Instant> = BTreeMap::new();
        let mut came = Vec::new();
        loop {
            let first = self.next_tid;
            let now = Instant::now();
            let floor = sent.first_key_value().map_or(Tid(first), |(tid, _)| *tid);
            let mut messages = Vec::new();
            while sent.len() < depth
                && let Some(request) = requests.next().transpose()?
            {
                let tid = Tid(self.next_tid);
                self.next_tid += 1;
                sent.insert(tid, now);
                messages.push(ClientMsg::Request { tid, floor, cred: Cred::ROOT, request });
            }
            if sent.is_empty() {
                return Ok(());
            }
            if !messages.is_empty() {
                self.port.send(messages, &mut self.answers)?;
            }
            came.push(self.next()?);
            self.take_all(&mut came);
            let now = Instant::now();
            for message in came.drain(..) {
                if let ServerMsg::Reply { tid, outcome } | ServerMsg::Granted { tid, outcome, .. } = message
                    && let Some(begin) = sent.remove(&tid)
                {
                    answered(outcome, now - begin)?;
                }
            }
        }
    }

    /// One request.
    ///
    /// # Errors
    /// When the connection is lost or the request fails.
    pub fn call(&mut self, request: Request) -> Result<Reply> {
        let text = format!("{request:?}");
        match self.batch([request])?.pop() {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(errno)) => bail!("{text}: {errno}"),
            None => bail!("{text}: no answer"),
        }
    }

    /// Asks the server's driver; the answer's `result`.
    ///
    /// # Errors
    /// When the connection is lost or the command refused.
    pub fn admin(&mut self, command: &str) -> Result<serde_json::Value> {
        let id = self.next_tid;
        self.next_tid += 1;
        let command = serde_json::json!({ "cmd": command }).to_string();
        self.port.send(vec![ClientMsg::Admin { id, command: command.clone() }], &mut self.answers)?;
        loop {
            match self.next()? {
                ServerMsg::Admin { id: answered, answer } if answered == id => {
                    let mut answer: serde_json::Value = serde_json::from_str(&answer)?;
                    ensure!(answer["ok"] == true, "{command}: {answer}");
                    return Ok(answer["result"].take());
                }
                _ => {}
            }
        }
    }

    /// Waits until everything is in the store: a checkpoint that began after this call has ended.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn settle(&mut self) -> Result<()> {
        loop {
            let before = self.checkpoints()?;
            self.admin("checkpoint")?;
            while self.checkpoints()? == before {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            if self.admin("perf dump")?["rank"]["dirty"] == 0 {
                return Ok(());
            }
        }
    }

    /// How many checkpoints the rank has completed.
    ///
    /// # Errors
    /// When the connection is lost.
    pub fn checkpoints(&mut self) -> Result<u64> {
        let counters = self.admin("perf dump")?;
        counters["rank"]["checkpoints"].as_u64().context("no count of checkpoints")
    }

    /// A node reference to what a reply describes.
    #[must_use]
    pub fn node(reply: &Reply) -> NodeRef {
        match reply {
            Reply::Attr(attr) | Reply::Created { attr, .. } => {
                NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
            }
            _ => NodeRef::default(),
        }
    }

    /// What has come by now, without waiting.
    fn take_all(&mut self, came: &mut Vec<ServerMsg>) {
        came.append(&mut self.answers);
        came.extend(self.inbox.queue.lock().unwrap_or_else(PoisonError::into_inner).messages.drain(..));
    }

    fn next(&mut self) -> Result<ServerMsg> {
        if !self.answers.is_empty() {
            return Ok(self.answers.remove(0));
        }
        let mut late = self.inbox.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(message) = late.messages.pop_front() {
                return Ok(message);
            }
            if late.lost {
                bail!("connection lost");
            }
            late = self.inbox.arrived.wait(late).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The other side may be gone already; there is nobody left to tell.
        let _ = self.port.send(vec![ClientMsg::Goodbye], &mut self.answers);
        self.port.close();
    }
}
