//! A rank that stops for good: when it owns nothing any more it ends what is left at it, and asks to leave. docs/PROTOCOL.md, "Ranks
//! that go".
//!
//! Absent: how what it owns comes to others (`moves.rs`); a rank whose process stops, which lives again.

use crate::config::State;
use crate::input::ConnId;
use crate::output::{MapWish, Output};
use crate::rank::Rank;
use crate::session::Session;
use proto::cluster::{ClusterMap, RankState};
use proto::{Errno, Ino, SessionId};
use std::collections::BTreeSet;
use stdx::time::MS;
use stdx::{Mono, Now, Outbox};

/// Between two looks at what is left.
const LOOK_NS: u64 = 100 * MS;

/// How far a rank is that stops.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    /// It has owned nothing since.
    since: Option<Mono>,
    /// Transactions when the last checkpoint was asked for, and which one that is.
    flushed: Option<(u64, u64)>,
    /// When it looks again.
    due: Option<Mono>,
}

impl Leaving {
    pub(crate) const fn due(&self) -> Option<Mono> {
        self.due
    }

    /// Whether nobody has a reason to come.
    pub(crate) const fn is_over(&self) -> bool {
        self.since.is_some()
    }
}

impl Rank {
    /// A new map. An ask that has no answer is asked again with it.
    pub(crate) fn leave_by_map(&mut self, map: &ClusterMap, now: Mono) {
        let me = self.view.config.rank;
        let state = map.ranks.get(&me).map(|info| info.state);
        // Its wish was granted, and its process is about to be ended. Who greeted it then got a session, in a journal of which nothing was to
        // be left.
        let is_granted = matches!(state, None | Some(RankState::Failed)) && self.leaving.is_over();
        if is_granted && !stdx::mutant!("mds_greets_after_leaving") {
            self.leaving.due = None;
            return;
        }
        if state != Some(RankState::Stopping) || map.is_owner(me) {
            self.leaving = Leaving::default();
            return;
        }
        self.leaving.since.get_or_insert(now);
        self.leaving.due = Some(now);
    }

    #[inline]
    pub(crate) fn leave_turn(&mut self, now: Now, out: &mut Outbox<Output>) {
        if self.leaving.due.is_some_and(|due| due <= now.mono) {
            self.leave(now, out);
        }
    }

    fn leave(&mut self, now: Now, out: &mut Outbox<Output>) {
        let Some(since) = self.leaving.since else { return };
        self.leaving.due = Some(now.mono.after(LOOK_NS));
        if self.state != State::Active || !self.moves.is_idle() {
            return;
        }
        // What broke: a rank left while a backup was copied, which then failed because a life had ended meanwhile.
        if self.frozen && !stdx::mutant!("mds_leaves_frozen") {
            return;
        }
        // Who renews its lease meanwhile has all answers that were sent before.
        if since.after(self.view.config.lease_ns) <= now.mono || stdx::mutant!("mds_leaves_at_once") {
            self.end_what_is_elsewhere(out);
            self.end_idle_sessions(now, out);
        }
        if self.left_over().is_some() {
            self.leaving.flushed = None;
            return;
        }
        match self.leaving.flushed {
            Some((entries, until)) if entries == self.journal.entries => {
                if self.checkpoint.last >= until {
                    out.push(Output::Wish(MapWish::Leave));
                    self.leaving.due = Some(now.mono.after(self.view.config.lease_ns));
                }
            }
            Some(_) | None => self.leaving.flushed = Some((self.journal.entries, self.next_checkpoint())),
        }
    }

    /// The rank owns nothing, and has no file without a name: what is open or locked here went with a move of which a life before did not
    /// hear that it was made, or was claimed where it is not. Nothing moves any more for which it would be looked for.
    fn end_what_is_elsewhere(&mut self, out: &mut Outbox<Output>) {
        let may_be_here = !self.has_no_orphans() || !self.view.transactions.is_free();
        if may_be_here || stdx::mutant!("mds_leaves_with_claims") {
            return;
        }
        let open = self.view.files.all().map(|(ino, _)| ino);
        let inos: BTreeSet<Ino> = open.chain(self.view.locks.files()).collect();
        for ino in inos {
            self.end_claims(ino, out);
            self.forget_or_purge(ino);
        }
    }

    /// Ends sessions of clients that are connected and have nothing here.
    fn end_idle_sessions(&mut self, now: Now, out: &mut Outbox<Output>) {
        let idle = |(id, session): (&SessionId, &Session)| self.has_nothing(*id, session).then_some(*id);
        let idle: Vec<SessionId> = self.sessions.map.iter().filter_map(idle).collect();
        for id in idle {
            let Some(session) = self.sessions.map.get(&id) else { continue };
            let conn = session.conn;
            out.push(session.note(id, "ended: the rank leaves"));
            self.end_session(now, id, out);
            if let Some(conn) = conn {
                self.dismiss(conn, out);
            }
        }
    }

    /// Tells a client that the rank goes and has nothing of it. By an errno of its own: a rank that stops, or is not ready, has a next life,
    /// which may know the session.
    pub(crate) fn dismiss(&mut self, conn: ConnId, out: &mut Outbox<Output>) {
        let stops = stdx::mutant!("mds_leaves_as_one_that_stops");
        let errno = if stops { Errno::ESHUTDOWN } else { Errno::ENOTCONN };
        self.refuse(conn, errno, "the rank leaves", out);
    }

    fn has_nothing(&self, id: SessionId, session: &Session) -> bool {
        let opens =
            |(_, file): (Ino, &crate::files::FileState)| file.opens.iter().any(|open| open.session == id);
        session.is_clients()
            && session.conn.is_some()
            && !session.absent
            && !session.evicted
            && session.in_flight == 0
            && session.running.is_empty()
            && !session.is_in_line()
            && !self.sessions.hearing.contains(&id)
            && !self.is_unanswered(id)
            && !self.view.files.all().any(opens)
            && !self.view.locks.files().any(|ino| self.view.locks.has(ino, id))
    }

    /// Whether an answer of the session waits for what it tells to be durable.
    fn is_unanswered(&self, id: SessionId) -> bool {
        self.held.asked().any(|asked| asked.session == id) && !stdx::mutant!("mds_leaves_unanswered")
    }

    fn has_no_orphans(&self) -> bool {
        let orphans = self.view.cache.find_dir(self.view.orphans());
        orphans.is_some_and(|slot| self.view.cache.dir(slot).header.entries == 0)
    }

    /// What is here that nobody else will take care of, in words for an operator.
    fn left_over(&self) -> Option<&'static str> {
        let left = [
            (
                !self.has_no_orphans() || !self.purges.is_empty(),
                "unlinked files that are open or being removed",
            ),
            (self.view.files.len() > 0, "files that are open or locked"),
            (!self.data_is_idle(), "file data under way"),
            (!self.view.transactions.is_free() || self.leads.is_owed(), "transactions of several ranks"),
            (self.held.len() > 0 || !self.parked.is_empty(), "requests under way"),
            (self.sessions.map.values().any(Session::is_clients), "sessions of clients"),
            (self.sessions.busy_closing(), "sessions that end"),
        ];
        left.into_iter().find_map(|(is_left, what)| is_left.then_some(what))
    }

    /// What a rank that is to go still has; none: nothing is in its way, or it is not to go.
    #[must_use]
    pub fn stays_for(&self) -> Option<String> {
        let me = self.view.config.rank;
        let map = self.view.territory.map()?;
        if map.ranks.get(&me).map(|info| info.state) != Some(RankState::Stopping) {
            return None;
        }
        let entries = map.entries.values().filter(|entry| entry.rank == me).count();
        let slots: usize =
            map.slots.runs().filter(|(_, slot)| slot.rank == me).map(|(run, _)| run.len()).sum();
        if entries + slots > 0 {
            return Some(format!("{entries} entries of the cluster map, {slots} slots"));
        }
        self.left_over().map(str::to_owned)
    }
}
