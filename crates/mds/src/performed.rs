//! Requests whose callers were told the result already: carried out in the order of their session, with the number and the time
//! they were told of. docs/PROTOCOL.md, "Early answers" and "Delegated directories".
//!
//! A session's stream is a line while one of these waits: what comes after it may build on it, and what gives a directory back
//! may not overtake it. Nothing that it waits for comes from behind it in the same line: others give back names and attributes
//! without waiting, and no directory that it works in is another's.
//!
//! Absent: what leaves early (`early.rs`); what is delegated to whom (`caps/delegated.rs`).

use crate::input::ConnId;
use crate::op::{Op, OpId};
use crate::output::{Level, Output};
use crate::rank::Rank;
use crate::session::Session;
use proto::caps::{Grants, Returned};
use proto::message::{Behind, ClientMsg, ServerMsg, Told};
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::Request;
use proto::transact::Step;
use proto::{Errno, Ino, Reader, SessionId, Tid};
use proto::{every_request, locking_requests};
use stdx::{Now, Outbox};

/// Messages taken from lines in one step.
const LINE_SLICE: usize = 256;

/// What is given back or offered in a message, item by item.
fn line_items(message: &ClientMsg) -> usize {
    match message {
        ClientMsg::Returned { list } => list.len(),
        ClientMsg::Idle { list } => list.len(),
        ClientMsg::Hello { .. }
        | ClientMsg::Request { .. }
        | ClientMsg::Cancel { .. }
        | ClientMsg::Renew { .. }
        | ClientMsg::Reclaim { .. }
        | ClientMsg::Reclaimed
        | ClientMsg::Goodbye
        | ClientMsg::Admin { .. }
        | ClientMsg::Settled
        | ClientMsg::Performed { .. }
        | ClientMsg::Presented
        | ClientMsg::RankHello { .. }
        | ClientMsg::WantMap { .. }
        | ClientMsg::CapsMax { .. } => 0,
    }
}

fn is_request(message: &ClientMsg, wanted: Tid) -> bool {
    matches!(message, ClientMsg::Request { tid, .. } if *tid == wanted)
}

const fn is_locking(request: &Request) -> bool {
    matches!(request, locking_requests!())
}

/// Whether another rank asks what names are: then they must be what their clients were told.
const fn clears(request: &Request) -> bool {
    matches!(request, Request::Transact { step: Step::Clear { .. }, .. })
}

impl Rank {
    /// Puts a message into its session's line if it must wait there; otherwise it comes back.
    fn line_up(&mut self, id: SessionId, message: ClientMsg, out: &mut Outbox<Output>) -> Option<ClientMsg> {
        let (results, now) = (self.view.config.limits.results, self.view.now.mono);
        let Some(session) = self.sessions.map.get_mut(&id) else { return Some(message) };
        if !session.is_in_line() || stdx::mutant!("mds_performed_out_of_order") {
            return Some(message);
        }
        let message = match (message.class().behind, message) {
            (Behind::PerformedIfDelegated, ClientMsg::Returned { list })
                if !stdx::mutant!("mds_dx_returned_overtakes") =>
            {
                let (later, list): (Vec<_>, Vec<_>) = list.into_iter().partition(Returned::is_delegated);
                if later.is_empty() {
                    return Some(ClientMsg::Returned { list });
                }
                session.line_items += later.len();
                if session.line_items < results {
                    session.line.push_back((now, ClientMsg::Returned { list: later }));
                    return (!list.is_empty()).then_some(ClientMsg::Returned { list });
                }
                ClientMsg::Returned { list: later }
            }
            // A wish, for which there is no room.
            (Behind::Performed, ClientMsg::Idle { list }) if session.line_items + list.len() >= results => {
                return None;
            }
            (Behind::Performed, ClientMsg::Idle { list }) => {
                session.line_items += list.len();
                ClientMsg::Idle { list }
            }
            // What it takes back is in the line.
            (Behind::Request(tid), message) if session.line.iter().any(|(_, m)| is_request(m, tid)) => {
                message
            }
            (Behind::Performed, message) => message,
            (Behind::Nothing | Behind::PerformedIfDelegated | Behind::Request(_), message) => {
                return Some(message);
            }
        };
        if session.line.len() >= results || session.line_items >= results {
            let conn = session.conn;
            let text = format!("session {} sends more than it may before it has answers", id.0);
            let note = format!("{text}{}", session.named());
            out.push(Output::Note { level: Level::Warn, text: note });
            if let Some(conn) = conn {
                self.refuse(conn, Errno::EPROTO, &text, out);
            }
            return None;
        }
        session.line.push_back((now, message));
        None
    }

    /// Lines whose first is over go on.
    pub(crate) fn run_lines(&mut self, now: Now, out: &mut Outbox<Output>) {
        let mut left = LINE_SLICE;
        while let Some(id) = self.sessions.lines.front().copied() {
            let Some(session) = self.sessions.map.get_mut(&id).filter(|s| s.performing.is_none()) else {
                self.sessions.lines.pop_front();
                continue;
            };
            let (message, conn) = (session.line.pop_front().map(|(_, message)| message), session.conn);
            session.line_items -= message.as_ref().map_or(0, line_items);
            let (Some(message), Some(conn)) = (message, conn) else {
                self.sessions.lines.pop_front();
                continue;
            };
            self.renew(now, id);
            // What changes locks looks at all of a file's, and at all who wait there.
            let locks = matches!(&message, ClientMsg::Request { request, .. } if is_locking(request));
            self.handle(now, (conn, Some(id)), message, out);
            left = if locks { 0 } else { left - 1 };
            if left == 0 {
                return;
            }
        }
    }

    /// The connection is gone, and what was behind something on it comes again over the next one.
    pub(crate) fn drop_line(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.map.get_mut(&id) {
            session.line.clear();
            session.line_items = 0;
        }
    }

    /// Something performed is carried out, or cannot be.
    pub(crate) fn performed_ended(&mut self, id: SessionId, op: OpId) {
        if let Some(session) = self.sessions.map.get_mut(&id)
            && session.performing == Some(op)
        {
            session.performing = None;
            if !session.line.is_empty() && !self.sessions.lines.contains(&id) {
                self.sessions.lines.push_back(id);
            }
        }
    }

    /// What a performed request came to: it was told already, so success is all there is to say.
    pub(crate) fn answer_told(&mut self, op: &Op, told: Told, outcome: Outcome, out: &mut Outbox<Output>) {
        let committed = self.committed.take();
        let tid = op.tid;
        match &outcome {
            Ok(reply) => {
                let position = committed.map_or(self.journal.end, |committed| committed.position);
                self.told_early(op.session, position);
                self.grant_told(op, told, reply);
                self.leaves(op.asked(), ServerMsg::Done { tid, position }, out);
            }
            Err(errno) => {
                // A rank that ends refuses it: its client presents it to the next life.
                if *errno != Errno::ESHUTDOWN {
                    let what = op.request.kind().name();
                    let client = self.sessions.named(op.session);
                    let text = format!(
                        "{what} of session {}, whose caller was told that it succeeded: {errno}{client}",
                        op.session.0
                    );
                    out.push(Output::Note { level: Level::Warn, text });
                }
                self.send_refusal(op.asked(), outcome, out);
            }
        }
        self.performed_ended(op.session, op.id);
    }

    /// It was carried out before: `Done` once more.
    pub(crate) fn told_again(
        &mut self,
        id: SessionId,
        asked: crate::meter::Asked,
        outcome: Outcome,
        out: &mut Outbox<Output>,
    ) {
        if outcome.is_err() {
            return self.send_reply(asked, outcome, Grants::None, out);
        }
        let (tid, position) = (asked.tid, self.journal.end);
        self.told_early(id, position);
        self.leaves(asked, ServerMsg::Done { tid, position }, out);
    }

    /// The time at which it happened: as told, but neither in the rank's future nor before its directory, or what it changes itself, changed last.
    pub(crate) fn told_now(&self, now: Now, op: &Op) -> Now {
        let Some(told) = op.told else { return now };
        if matches!(op.request, Request::Rename { .. }) && stdx::mutant!("mds_rename_at_its_own_time") {
            return now;
        }
        let changed = crate::early::above(&op.request)
            .into_iter()
            .flatten()
            .flat_map(|dir| self.view.cache.contents(dir.ino))
            .map(|dir| self.view.cache.dir(dir).header.mtime);
        // Times do not go back, of what is changed itself either.
        let node = match &op.request {
            Request::SetAttr { node, .. }
            | Request::SetXattr { node, .. }
            | Request::RemoveXattr { node, .. }
            | Request::Write { node, .. }
            | Request::Fallocate { node, .. }
            | Request::CopyRange { target: node, .. }
            | Request::Link { node, .. } => self.view.cache.by_ino(node.ino),
            every_request!() => None,
        };
        let own = node.and_then(|node| self.view.cache.attr(node)).map(|attr| attr.ctime);
        let changed = changed.chain(own).max();
        let wall = changed.map_or(told.wall, |changed| told.wall.max(changed)).min(now.wall);
        Now { wall, ..now }
    }

    /// The number that it must give out: one that is the session's to give, or that the rank itself gave for it in a former life.
    pub(crate) fn told_number(&self, op: &Op) -> Result<Option<Ino>, Errno> {
        let Some(told) = op.told else { return Ok(None) };
        if stdx::mutant!("mds_redo_new_number") || told.ino == Ino::NONE {
            return Ok(None);
        }
        let has_it = |session: &Session| session.has_delegated(told.ino);
        if self.sessions.map.get(&op.session).is_some_and(has_it) {
            return Ok(Some(told.ino));
        }
        let first = Ino::of_rank(self.view.config.rank, Ino::FIRST_COUNTER);
        let former = told.ino >= first && told.ino < self.view.inos.former;
        // Nobody has one of these to present once everything was.
        let presents = self.presenting.contains(&op.session);
        // A client that lies may still name one that was given to a file of before: only of those in the cache it is known.
        let is_taken = || {
            self.view.cache.by_ino(told.ino).is_some()
                || self.presented_inos.contains(&told.ino)
                || self.sessions.map.values().any(has_it)
        };
        if told.heard && former && presents && !is_taken() {
            return Ok(Some(told.ino));
        }
        Err(Errno::EINVAL)
    }

    /// A session has presented everything that it was answered early before the crash.
    pub(crate) fn presented(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.map.get_mut(&id) {
            session.presents = false;
        }
        if self.presenting.remove(&id) && self.presenting.is_empty() {
            self.presented_inos.clear();
            self.runnable.extend(std::mem::take(&mut self.after_presented));
        }
    }

    /// Whether a request must wait until what was answered early before the crash is presented.
    pub(crate) fn must_wait_for_presented(&self, op: &Op) -> bool {
        if self.presenting.is_empty() || op.told.is_some() || stdx::mutant!("mds_presented_not_awaited") {
            return false;
        }
        if clears(&op.request) {
            return true;
        }
        // What a rank asks may be for somebody who presents there, and that one may be waited for here.
        let shows = matches!(
            op.request,
            Request::Replicate { .. } | Request::Totals { .. } | Request::SetTimes { .. }
        );
        let presents = self.sessions.map.get(&op.session).is_some_and(|asker| asker.presents);
        let waits = shows && !presents && !stdx::mutant!("mds_ranks_shown_unpresented");
        waits || !matches!(op.request, proto::rank_requests!())
    }

    /// Ranks that were greeted hear that nobody presents here any more: what this one asks of them from here on is for others, who wait for
    /// those that present there.
    pub(crate) fn say_presented(&mut self, out: &mut Outbox<Output>) {
        if self.presenting.is_empty() {
            for rank in std::mem::take(&mut self.peers.to_hear_presented) {
                out.push(Output::SendRank { rank, message: ClientMsg::Presented });
            }
        }
    }

    /// A transaction of the tail: the numbers of its session that it used.
    pub(crate) fn replay_used(&mut self, id: SessionId, result: &[u8]) {
        let Some(session) = self.sessions.map.get_mut(&id).filter(|session| !session.delegated.is_empty())
        else {
            return;
        };
        if let Ok(Ok(Reply::Attr(attr) | Reply::Created { attr, new: true })) =
            decode_outcome(&mut Reader::new(result))
        {
            session.used(attr.ino);
        }
    }

    /// A message of a session that stands in line.
    pub(crate) fn in_line(
        &mut self,
        now: Now,
        (conn, id): (ConnId, SessionId),
        message: ClientMsg,
        out: &mut Outbox<Output>,
    ) {
        // What it kept of the life before it has dropped, whatever it performed there: others that present theirs wait for that, and
        // it perhaps for them. What is delegated to it in this life ends in its place in the line.
        if message == ClientMsg::Settled && !stdx::mutant!("mds_settled_waits_in_line") {
            self.former_settled(id);
        }
        if let Some(message) = self.line_up(id, message, out) {
            self.handle(now, (conn, Some(id)), message, out);
        }
    }
}
