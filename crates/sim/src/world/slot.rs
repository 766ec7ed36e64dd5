//! One client as the world sees it: its machine, its connection, its calls without an answer.
//!
//! Absent: what happens to it (`clients.rs`), what its callers ask (`callers.rs`).

use super::Kind;
use super::early::Performance;
use super::kernel::Kernel;
use crate::clock::HostClock;
use crate::workload::Knowledge;
use client::{CallId, Client};
use mds::input::ConnId;
use proto::Ino;
use proto::every_request;
use proto::ids::{SessionId, Tid};
use proto::request::{Request, rename_flags};
use std::collections::{BTreeMap, BTreeSet};

/// A call without an answer.
pub(super) struct Busy {
    pub(super) kind: &'static str,
    pub(super) request: Request,
    /// Of a write: the pattern of its bytes.
    pub(super) pattern: u64,
    pub(super) sent: Option<(SessionId, Tid)>,
    /// Another request about the same owner's locks was open at the same time: their order is unknown.
    pub(super) muddled: bool,
    /// Its caller was killed: nobody looks at the answer.
    pub(super) killed: bool,
    /// When it began, by the judge's clock; and by the world's.
    pub(super) begun: u64,
    pub(super) since: u64,
}

/// One client and its callers.
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) kind: Kind,
    pub(super) clock: HostClock,
    pub(super) machine: Option<Client>,
    /// Grows with each machine: events of an earlier one are stale.
    pub(super) birth: u64,
    pub(super) conn: Option<ConnId>,
    /// Since when it has been connected and not stopped.
    pub(super) connected_at: u64,
    /// When its callers could last call.
    pub(super) called_at: u64,
    pub(super) ready: bool,
    /// The last session that the client was told is gone: its requests may still take their course.
    pub(super) gone: Option<SessionId>,
    pub(super) busy: BTreeMap<CallId, Busy>,
    /// What it has said in this step that it performed.
    pub(super) performed: Vec<Performance>,
    /// What it was told with the message at hand that it has promised and that will not be.
    pub(super) broken: usize,
    pub(super) known: Knowledge,
    pub(super) tick_at: Option<u64>,
    /// When the last message of each direction arrives: a connection keeps order.
    pub(super) to_rank_at: u64,
    pub(super) to_client_at: u64,
    pub(super) kernel: Kernel,
    /// Healing: calls to show progress, then the end.
    pub(super) probes: u32,
    pub(super) closed: bool,
    /// It was closed, and what it fails with EIO may still be carried out.
    pub(super) closing: bool,
}

impl Slot {
    pub(super) fn new(number: usize, kind: Kind) -> Self {
        Self {
            number,
            kind,
            clock: HostClock::default(),
            machine: None,
            birth: 0,
            conn: None,
            connected_at: 0,
            called_at: 0,
            ready: false,
            gone: None,
            busy: BTreeMap::new(),
            performed: Vec::new(),
            broken: 0,
            known: Knowledge::default(),
            tick_at: None,
            to_rank_at: 0,
            to_client_at: 0,
            kernel: Kernel::default(),
            probes: 0,
            closed: false,
            closing: false,
        }
    }

    pub(super) const fn is_alive(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.machine.is_some() && self.conn.is_some() && self.ready
    }

    pub(super) const fn number(&self) -> usize {
        self.number
    }

    pub(super) const fn birth(&self) -> u64 {
        self.birth
    }

    /// The kernel, and the requests that have no answer.
    pub(super) fn kernel_and_requests(&mut self) -> (&mut Kernel, impl Iterator<Item = &Request>) {
        (&mut self.kernel, self.busy.values().map(|busy| &busy.request))
    }

    /// Requests without an answer for which a kernel keeps pages of that file locked; `writes`: it has the file open for writing. Who
    /// writes a file without that is a caller that has no pages, for no kernel does: two of them, each granted pages, would wait for
    /// each other.
    pub(super) fn page_locks(&self, ino: Ino, writes: bool) -> impl Iterator<Item = (CallId, &Busy)> {
        let moves = move |request: &Request| match request {
            Request::Read { node, .. } => node.ino == ino,
            Request::Write { node, .. } => writes && node.ino == ino,
            every_request!() => false,
        };
        self.busy.iter().filter(move |(_, busy)| moves(&busy.request)).map(|(call, busy)| (*call, busy))
    }

    /// Whether there is one among the calls up to that one.
    pub(super) fn locks_pages(&self, ino: Ino, writes: bool, calls: u64) -> bool {
        self.page_locks(ino, writes).any(|(call, _)| call.0 <= calls)
    }

    /// Whether there is one that was sent under this session and that the rank has not answered, and a connection.
    pub(super) fn is_locked_at_rank(
        &self,
        (ino, writes): (Ino, bool),
        session: SessionId,
        answered: &BTreeSet<Tid>,
    ) -> bool {
        let at_rank =
            |busy: &Busy| busy.sent.is_some_and(|(of, tid)| of == session && !answered.contains(&tid));
        self.conn.is_some() && self.ready && self.page_locks(ino, writes).any(|(_, busy)| at_rank(busy))
    }

    /// Names that renames without an answer take away.
    pub(super) fn names_on_the_move(&self) -> BTreeSet<(Ino, Box<[u8]>)> {
        let mut names = BTreeSet::new();
        for busy in self.busy.values() {
            if let Request::Rename { parent, name, new_parent, new_name, flags } = &busy.request {
                names.insert((parent.ino, name.as_bytes().into()));
                if flags & rename_flags::EXCHANGE != 0 {
                    names.insert((new_parent.ino, new_name.as_bytes().into()));
                }
            }
        }
        names
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        self.machine.as_ref().map(Client::session).filter(|session| session.0 != 0)
    }

    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.busy.values().map(|busy| busy.kind).collect()
    }

    pub(super) const fn holder(&self) -> u64 {
        ((self.number as u64) << 32) | self.birth
    }

    /// For reports: what has no answer.
    pub(super) fn waiting(&self) -> String {
        let mut text = format!("\n  client {} ({:?}, ready {}):", self.number, self.kind, self.ready);
        for (call, busy) in &self.busy {
            let request = format!("{:?}", busy.request);
            text.push_str(&format!("\n    call {} {:?}: {:.160}", call.0, busy.sent, request));
        }
        text
    }
}
