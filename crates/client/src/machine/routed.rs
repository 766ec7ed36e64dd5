//! What a client of several ranks (`router.rs`) needs of the machine of one: how it greets, what it lets go of, and how far it is.
//!
//! Absent: which rank a request goes to.

use super::{Client, Life, Link, Out, answer};
use crate::config::ClientConfig;
use crate::held::Holding;
use crate::output::Output;
use crate::router::route::{self, Place};
use crate::validity::Validity;
use crate::window::{Pending, Sent};
use proto::cluster::{ClusterMap, RANKS_MAX};
use proto::message::{At, ClientMsg, JoinToken};
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, Request};
use proto::{Errno, Incarnation, Ino, NodeRef, RankId, SessionId, Tid, every_request};
use stdx::Mono;
use stdx::hash::HashSeed;

// The rank is the low byte of its stamps.
const _: () = assert!(RANKS_MAX <= 1 << 8);

/// Which rank's client this is among those of one mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// How it greets it.
    pub(super) at: At,
    /// An inode that gets a second name stays with this rank (`//links` does): the client may perform that.
    pub(super) links: bool,
    /// There is no other rank, as far as this one has said: a directory may be moved to any other, and the client may perform that.
    pub(super) alone: bool,
}

impl Seat {
    /// The only one, as far as anybody knows, of a client that limits itself to a directory, or to none.
    pub(super) const fn limited(limit: Ino) -> Self {
        let at = At { rank: RankId(0), join: false, token: JoinToken([0; 16]), map_version: 0, limit };
        Self { at, links: true, alone: true }
    }
}

impl Client {
    /// One more rank of a client whose session is there, with its token; 0: it will be (`joins`). `next`: the first tid; those below
    /// it were the rank's when the session was there before.
    pub(crate) fn of_rank(
        config: ClientConfig,
        rank: RankId,
        session: (SessionId, JoinToken),
        next: Tid,
    ) -> Self {
        let mut client = Self::new(config);
        client.window.begin_at(next);
        client.seat.at.rank = rank;
        client.joins(session);
        client
    }

    /// The session of which it is to be a part.
    pub(crate) fn joins(&mut self, (session, token): (SessionId, JoinToken)) {
        self.session = session;
        (self.seat.at.join, self.seat.at.token) = (session != SessionId(0), token);
    }

    /// The session, and what it shows where it joins; 0 while there is none.
    pub(crate) const fn member(&self) -> (SessionId, JoinToken) {
        (self.session, self.seat.at.token)
    }

    /// There is a cluster map of that version. `links`: `//links` is this rank's; `alone`: there is no other rank.
    pub(crate) const fn has_map(&mut self, version: u64, links: bool, alone: bool) {
        (self.seat.at.map_version, self.seat.links, self.seat.alone) = (version, links, alone);
    }

    /// The seed of name hashes, if the rank has told it.
    pub(crate) const fn seed(&self) -> Option<&HashSeed> {
        self.numbers.seed()
    }

    pub(crate) const fn rank(&self) -> RankId {
        self.seat.at.rank
    }

    /// Whether the rank has welcomed it, at any time.
    pub(crate) const fn was_welcomed(&self) -> bool {
        self.incarnation.0 != Incarnation(0).0
    }

    /// Whether a life of the rank has welcomed it that was given after that map, which tells of lives before: a living rank was taken for one
    /// that is gone.
    pub(crate) fn is_newer_than(&self, map: &ClusterMap) -> bool {
        self.incarnation > map.last_incarnation && !stdx::mutant!("client_parts_by_old_maps")
    }

    pub(crate) fn is_over(&self) -> bool {
        self.life == Life::Over
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.life == Life::Closing
    }

    /// Whether its connection stands, and the rank was silent for a lease.
    pub(crate) fn is_hung(&self) -> bool {
        self.link == Link::Up && self.config.retry && self.lease_end.is_none()
    }

    pub(crate) const fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Stamps say that they are this rank's from here on.
    pub(crate) const fn in_lane(&mut self) {
        self.validities.in_lane(self.seat.at.rank.0 as u8);
    }

    pub(crate) const fn stamp(&self) -> u64 {
        self.validities.stamp()
    }

    pub(crate) fn raise_stamp(&mut self, stamp: u64) {
        self.validities.raise(stamp);
    }

    /// Its share of what the client keeps: bytes that are not synced, and inodes of which it is granted something.
    pub(crate) fn shares(&mut self, unsynced_bytes_max: usize, caps_max: u32, out: &mut Out) {
        self.config.limits.unsynced_bytes_max = unsynced_bytes_max;
        let before = std::mem::replace(&mut self.config.info.caps_max, caps_max);
        // Whoever is yet to be greeted hears of it then.
        if before != caps_max && self.link == Link::Up {
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::CapsMax { caps_max } });
        }
    }

    /// Every tid from here on is new.
    pub(crate) fn next_tid(&self) -> Tid {
        self.window.next()
    }

    /// The oldest request that callers were told of and that is perhaps not durable.
    pub(crate) fn first_kept(&self) -> Option<Tid> {
        self.window.kept.first()
    }

    /// The last of these that moves a name, is about names of that directory, or about that inode.
    pub(crate) fn last_kept_about(&self, ino: Ino) -> Option<Tid> {
        self.window.kept.last_about(ino)
    }

    /// The rank has not carried it out. To the books it is a request that failed.
    pub(super) fn on_not_mine(
        &mut self,
        now: Mono,
        tid: Tid,
        (owner, version): (Option<RankId>, u64),
        out: &mut Out,
    ) {
        if self.window.kept.contains(tid) {
            // A directory in which a client performs something moves when the client has given it back, behind all that. A rank
            // that says this nevertheless cannot carry it out any more.
            return self.on_reply_to_kept(tid, Err(Errno::ESTALE), None, out);
        }
        let Some(mut pending) = self.window.remove(tid) else { return };
        self.note_bounced(now, tid, &mut pending, out);
        let Pending { call, sent, cancelled, .. } = pending;
        match sent.map(|sent| *sent) {
            Some(Sent { cred, request }) if cancelled => {
                // Nobody else is asked. In whose books the file is the router knows.
                out.push(Output::Bounced { call: None, cred, request, owner, version });
                answer(out, call, Err(Errno::EINTR));
            }
            Some(Sent { cred, request }) => out.push(Output::Bounced { call, cred, request, owner, version }),
            // Of a rank in this process nothing is kept, and it is the only one.
            None => answer(out, call, Err(Errno::EIO)),
        }
    }

    /// Opens and locks of nothing change.
    fn note_bounced(&mut self, now: Mono, tid: Tid, pending: &mut Pending, out: &mut Out) {
        if !self.config.retry {
            return;
        }
        let outcome = Err(Errno::ESTALE);
        self.note_answer(tid, pending, &outcome, out);
        let Some(sent) = &pending.sent else { return };
        self.note_negatives(now, tid, (sent, &outcome), &Validity::default());
        if self.is_delegable() {
            self.learn(now, tid, (&sent.request, &outcome), &Validity::default(), &[]);
        }
    }

    /// The inode whose home has answered a request that way, if what it says is about one; and when it was asked.
    pub(crate) fn answered_for(&self, tid: Tid, outcome: &Outcome) -> Option<(NodeRef, Mono)> {
        let pending = self.window.get(tid)?;
        let node = match (&pending.sent.as_ref()?.request, outcome) {
            (Request::Create { .. } | Request::TmpFile { .. }, Ok(Reply::Created { attr, .. })) => {
                attr.node()
            }
            // Who has the content of a directory answers for its part of it, too. What broke: what was open of one that another rank has was in
            // its books from then on, and not reclaimed of its home.
            (Request::Fsync { .. }, Ok(_)) if !stdx::mutant!("client_sync_moves_opens") => return None,
            (request, Ok(_)) => match route::of(request, None) {
                Place::Home(node) => node,
                Place::Inside(..) | Place::Any | Place::All => return None,
            },
            (_, Err(_)) => return None,
        };
        Some((node, pending.asked))
    }

    /// Whether something of an inode is in its books.
    pub(crate) fn holds(&self, ino: Ino) -> bool {
        self.held.has(ino)
    }

    /// Whether a request must fail because locks that it may rely on went with a session.
    pub(crate) fn has_lost(&self, request: &Request) -> bool {
        self.held.is_lost(request)
    }

    /// What is in its books of an inode goes to another rank's.
    pub(crate) fn hand_over(&mut self, ino: Ino) -> Option<Holding> {
        self.window.kept.went(ino);
        self.held.take(ino)
    }

    /// What another rank's client had in its books is in this one's, and its rank hears of that.
    pub(crate) fn take_over(&mut self, holding: Holding, out: &mut Out) {
        self.window.kept.came(holding.ino());
        let message = self.held.adopt(holding);
        if self.link == Link::Up {
            out.push(Output::Send { rank: self.rank(), message });
        }
    }

    /// Inodes of which something is in its books, a few of them.
    pub(crate) fn some_held(&self, most: usize) -> Vec<NodeRef> {
        self.held.some(most).collect()
    }

    /// Opens that callers gave back when the session ended, and that are in another rank's books.
    pub(crate) fn take_given_back(&mut self) -> Vec<(Ino, u32)> {
        std::mem::take(&mut self.given_back)
    }

    /// These were given back.
    pub(crate) fn released(&mut self, ino: Ino, count: u32) {
        self.held.released(ino, count);
    }

    /// A flock of another kind was asked for, and is not waited for any longer, or was refused. As the rank that heard of it first gave the old
    /// one up, nobody has that any more, wherever the file went. What broke: it stayed in the books of the rank that the file had been at, and
    /// was claimed of the next life of the one that had it.
    pub(crate) fn gives_up_flock(&mut self, request: &Request) {
        let is_flock = matches!(request, Request::SetLock { lock, .. } if lock.flock);
        if is_flock && !stdx::mutant!("client_keeps_changing_flocks") {
            self.held.on_answer(request, &Err(Errno::EINTR));
        }
    }

    /// What a rank has refused so, or gives up.
    pub(crate) fn refused_flock(&self, tid: Tid, outcome: &Outcome) -> Option<Request> {
        let Err(Errno::EAGAIN | Errno::EINTR) = outcome else { return None };
        let request = &self.window.get(tid)?.sent.as_ref()?.request;
        matches!(request, Request::SetLock { lock, .. } if lock.flock).then(|| request.clone())
    }

    /// Nobody has that inode, of which something is given back.
    pub(crate) fn gives_back_nowhere(&mut self, request: &Request) {
        let gives_back = match request {
            Request::Release { .. } => true,
            Request::SetLock { lock, .. } => {
                lock.kind == LockKind::Unlock && !stdx::mutant!("client_locks_of_nothing")
            }
            Request::ReleaseLocks { .. } => !stdx::mutant!("client_locks_of_nothing"),
            every_request!() => false,
        };
        if gives_back && request.subject().is_some_and(|(node, _)| self.held.has(node.ino)) {
            self.held.on_answer(request, &Ok(Reply::Ok));
        }
    }

    #[cfg(test)]
    pub(crate) fn recover_clean(&mut self) {
        self.config.recover_clean = true;
    }

    /// The session is over, because another rank has said so; it is to go on in another. `session`: that one's number, or 0 while
    /// nobody knows it.
    pub(crate) fn start_over_with(&mut self, session: (SessionId, JoinToken), out: &mut Out) {
        if self.life == Life::Over {
            return;
        }
        self.start_over(out);
        self.replaces = true;
        self.joins(session);
        self.on_disconnected(out);
    }

    /// The session is over, because another rank has said so, or the cluster has.
    pub(crate) fn end_with(&mut self, reason: String, out: &mut Out) {
        if self.life != Life::Over {
            self.end(reason, out);
        }
    }
}
