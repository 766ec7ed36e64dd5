//! Capabilities of the rank: what answers grant, what operations need and take back, what becomes of it when a session goes.
//!
//! An operation that needs what others hold asks for everything at once and waits; until it is answered nothing of those inodes
//! is granted to others. No operation waits for what its own session holds, but for what it keeps of what leaves with the operation: that
//! comes back whatever the session waits for. So no two wait for each other.
//!
//! Absent: what is not granted yet (docs/CAPABILITIES.md, "What comes later").

mod alone;
pub(crate) mod book;
mod delegated;
pub(crate) mod needs;
mod own_names;
mod records;

use crate::op::{Op, Park, Stop};
use crate::output::Output;
use crate::perm;
use crate::rank::Rank;
use crate::session::Session;
use crate::view::{Found, View};
use book::{AGE_NS, Need, RECORD};
use proto::caps::{Bits, Grants, KEEP_ASKED_MS, KEEP_MARGIN_MS, Recalled, Returned};
use proto::message::ServerMsg;
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags};
use proto::transact::Step;
use proto::{Attr, Effect, FileKind, Ino, Kind, SessionId};
use proto::{every_request, plain_replies};
use std::collections::BTreeMap;
use stdx::time::MS;
use stdx::{Mono, Now, Outbox};

/// What a client was granted has run out so long after it asked, whatever became of it: nobody keeps an answer for longer.
pub(crate) const FADES_NS: u64 = (KEEP_ASKED_MS + KEEP_MARGIN_MS) * MS;

/// Items of one message.
const RECALLED_MAX: usize = 2_000;
/// Of what is delegated to all, taken back in one step where there is no space.
const TAKE_BACK_SLICE: usize = 1_024;
/// For how many leases a session is not evicted for what it owes while the rank owes it file data, which may be why.
const OWED_LEASES: u64 = 6;

/// Capabilities of a session that is not there: they run out by themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fading {
    session: SessionId,
    pub until: Mono,
}

/// Which operations wait until clients of the life before have settled.
pub(crate) const fn waits_for_settled(request: &Request) -> bool {
    match request {
        Request::Fsync { .. } => false,
        Request::Open { flags, .. } => open_flags::writes(*flags),
        Request::Transact { step, .. } => matches!(step, Step::Clear { .. }),
        every_request!() => matches!(request.effect(), Effect::Journal),
    }
}

/// What others hold in the way of a change of a file's bytes. Asked before anything is taken out of the request: what carries
/// bytes out cannot wait any more.
pub(crate) fn check_bytes(view: &View, op: &Op, ino: Ino) -> Found<()> {
    if view.book.is_alone(op.place) {
        return Ok(());
    }
    let may_lose = view
        .cache
        .by_ino(ino)
        .is_some_and(|slot| view.cache.node(slot).core.mode & 0o6000 != 0 || view.cache.ext(slot).is_some());
    let need = needs::bytes(ino, may_lose);
    if view.book.is_blocked(op.place, &need) { Err(Stop::Park(Park::Caps(vec![need]))) } else { Ok(()) }
}

impl Rank {
    /// What stands in the way of a planned transaction or open.
    pub(crate) fn needs_if_blocked(
        &mut self,
        op: &Op,
        open: Option<(Ino, u32)>,
        commits: bool,
    ) -> Option<Vec<Need>> {
        let book = &self.view.book;
        let copies = || book.has_copies() && self.concerns_copies(&op.request);
        // What goes to another rank, now or soon, nobody keeps, be it his who asks.
        let stays = self.view.txn.left.is_empty() && self.view.territory.leaving().is_none();
        if book.is_alone_among_clients(op.place) && stays && !copies() {
            return None;
        }
        let mut all = if commits { needs::of_transaction(&mut self.view) } else { Vec::new() };
        all.extend(self.leaving_needs(op));
        // What its session has of what comes into a part that leaves is given back behind what was performed, in the same line: an operation that
        // was performed would wait for what waits for it. That is taken back before the part is sealed.
        if op.told.is_some() && !stdx::mutant!("mds_performed_awaits_own") {
            self.moves.came |= all.iter().any(|need| need.own);
            all.iter_mut().for_each(|need| need.own = false);
        }
        if let Some((ino, _)) = open.filter(|(_, rights)| rights & perm::WRITE != 0)
            && !stdx::mutant!("mds_open_keeps_fc")
        {
            all.push(needs::writing(ino));
        }
        let blocked = all.iter().any(|need| self.view.book.is_blocked(op.place, need));
        blocked.then_some(all)
    }

    /// What the session that asks keeps of what leaves with its own request. It is asked while others vote, so that the operation
    /// seldom waits for it.
    fn leaving_needs(&mut self, op: &Op) -> Vec<Need> {
        if self.view.txn.left.is_empty() || stdx::mutant!("mds_leaves_with_own_grants") {
            return Vec::new();
        }
        let needs = needs::of_leaving(&self.view);
        if self.has_votes(op.id) {
            return needs;
        }
        let now = self.view.now.mono;
        needs.iter().for_each(|need| self.view.book.recall_ahead(op.place, need, now));
        Vec::new()
    }

    /// Whether a change may concern a directory of which other ranks keep copies; nobody keeps copies of anything else. What makes or removes
    /// files changes one directory, and asks no more of the book for being at one rank of several.
    fn concerns_copies(&self, request: &Request) -> bool {
        let parent = match request {
            Request::MkNod { parent, .. }
            | Request::Create { parent, .. }
            | Request::Symlink { parent, .. }
            | Request::Unlink { parent, .. } => parent.ino,
            every_request!() => return true,
        };
        // Of a unit they are kept by its own number.
        let cache = &self.view.cache;
        let parts = cache.find_dir(parent).is_none_or(|slot| cache.dir(slot).header.spread().is_some());
        parts || (self.view.book.is_copied(parent) && !stdx::mutant!("mds_parents_copies_stay"))
    }

    /// What the answer grants its session.
    pub(crate) fn grants(&mut self, op: &Op, outcome: &Outcome) -> Grants {
        let Some(place) = op.place else { return Grants::None };
        if let Ok(Reply::Record { place: told, .. }) = outcome {
            if matches!(op.request, Request::Replicate { .. }) {
                self.view.book.copied(place, told.ino, RECORD);
            }
            return Grants::None;
        }
        if matches!(outcome, Ok(Reply::Totals(_))) {
            return match &op.request {
                Request::Totals { unit } => self.grant_totals(place, self.view.number_of(*unit)),
                Request::SetTimes { dir, .. } => self.grant_totals(place, *dir),
                every_request!() => Grants::None,
            };
        }
        // Kernels believe these answers whatever they were told meanwhile, so nobody keeps anything of them.
        if matches!(op.request, Request::SetAttr { .. } | Request::Link { .. }) {
            return Grants::None;
        }
        // Who takes it back would say where it is.
        if op.by_open {
            return Grants::None;
        }
        let Some(session) = self.sessions.map.get(&op.session) else { return Grants::None };
        if !session.settled || session.place != op.place {
            return Grants::None;
        }
        let wants = session.wants;
        let alone = self.grant_alone(op, place, outcome);
        match outcome {
            Ok(Reply::Written { .. }) if !alone.is_empty() => Grants::One(alone),
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => {
                let reads = match &op.request {
                    Request::Open { flags, .. }
                    | Request::Create { flags, .. }
                    | Request::TmpFile { flags, .. } => flags & open_flags::ACCMODE != open_flags::WRONLY,
                    every_request!() => false,
                };
                let wants = if reads { wants } else { wants.without(Bits::FC) };
                match self.grant(op, place, attr, wants).with(alone) {
                    Bits::NONE => Grants::None,
                    bits => Grants::One(bits),
                }
            }
            Ok(Reply::Entries { entries, .. }) if wants.has(Bits::ATTRS) => {
                let wants = wants.without(Bits::FC);
                let mut each = |attr: &Attr| self.grant(op, place, attr, wants);
                let all: Box<[Bits]> =
                    entries.iter().map(|entry| entry.attr.as_ref().map_or(Bits::NONE, &mut each)).collect();
                if all.iter().all(|bits| bits.is_empty()) { Grants::None } else { Grants::Each(all) }
            }
            Ok(Reply::Entries { .. } | Reply::Written { .. } | plain_replies!()) | Err(_) => Grants::None,
        }
    }

    /// Whether a rank may go by what it is told of a directory's content until it is recalled.
    fn grant_totals(&mut self, place: u16, dir: Ino) -> Grants {
        let now = self.view.now.mono;
        // Its content is about to be another's.
        if self.view.is_leaving(dir) || !self.view.book.may_keep_totals(place, dir, now) {
            return Grants::None;
        }
        self.view.book.copied(place, dir, Bits::FS);
        Grants::One(Bits::FS)
    }

    fn grant(&mut self, op: &Op, place: u16, attr: &Attr, wants: Bits) -> Bits {
        let session = op.session;
        let is_dir = FileKind::of_mode(attr.mode) == Some(FileKind::Directory);
        let in_parts = is_dir && !self.view.territory.is_undisputed();
        let lends = in_parts && (self.view.is_boundary(attr.ino) || self.view.is_spread(attr.ino));
        let lent = if lends { self.may_lend(op, attr.ino) } else { Some(Vec::new()) };
        let Some(lent) = lent else { return Bits::NONE };
        let view = &mut self.view;
        let (now, limit) = (view.now.mono, view.config.limits.caps_per_client);
        if attr.ino.is_reserved()
            || !(view.territory.is_undisputed() || view.may_promise_part(attr.ino))
            || !view.book.may_grant(place, attr.ino, now)
            || (view.book.is_full(place, limit)
                && !view.book.has(place, attr.ino)
                && !view.book.make_room(place, limit, now))
        {
            return Bits::NONE;
        }
        let mut bits = wants.and(Bits::ATTRS);
        // Also who keeps nothing itself opens files and writes.
        if self.sessions.many
            && let Some(file) = view.files.get(attr.ino)
        {
            // Its bytes are being changed: the size that will come of it nobody was asked about.
            if (file.shared > 0 || file.exclusive) && !stdx::mutant!("mds_grant_under_claim") {
                return Bits::NONE;
            }
            if file.opens.iter().all(|open| open.session == session || !open.writes) {
                bits = bits.with(wants.and(Bits::FC));
            }
        } else {
            bits = bits.with(wants.and(Bits::FC));
        }
        // Until all are back nobody knows who has it open for writing.
        if view.reconnecting || FileKind::of_mode(attr.mode) != Some(FileKind::Regular) {
            bits = bits.without(Bits::FC);
        }
        if !bits.is_empty() {
            view.book.grant(place, attr.ino, bits, now);
            if lends {
                self.lends(attr.ino, lent);
            }
        }
        bits
    }

    /// The operation waits for what it needs.
    pub(crate) fn wait_for_caps(&mut self, op: &Op, needs: &[Need]) {
        self.view.book.wait(op.id, (op.session, op.place), needs, self.view.now.mono);
    }

    /// Recalls leave, each session's in one message; who waits for nobody any more goes on.
    #[inline(always)]
    pub(crate) fn caps_turn(&mut self, out: &mut Outbox<Output>) {
        if self.view.book.takes_back() {
            self.view.book.recall_all_delegated(self.view.now.mono, TAKE_BACK_SLICE);
        }
        if !self.view.book.outbox.is_empty() || !self.view.book.woken.is_empty() {
            self.tell_caps(out);
        }
        if self.lent.is_busy() {
            self.lent_turn(out);
        }
    }

    fn tell_caps(&mut self, out: &mut Outbox<Output>) {
        if !self.view.book.outbox.is_empty() {
            let mut lists: BTreeMap<SessionId, Vec<Recalled>> = BTreeMap::new();
            for (session, recalled) in std::mem::take(&mut self.view.book.outbox) {
                lists.entry(session).or_default().push(recalled);
            }
            for (session, list) in lists {
                self.owes_return(session);
                // A name is up to 255 bytes, a frame 1 MiB.
                for list in list.chunks(RECALLED_MAX) {
                    if !stdx::mutant!("mds_recall_not_sent") {
                        self.send_now(session, ServerMsg::Recall { list: list.to_vec() }, out);
                    }
                }
            }
        }
        if !self.view.book.woken.is_empty() {
            for id in std::mem::take(&mut self.view.book.woken) {
                if let Some(op) = self.parked.get_mut(&id) {
                    op.waits = crate::op::Waits::Turn;
                    self.runnable.push_back(id);
                }
            }
        }
    }

    /// One that renews its lease and never gives back would keep others waiting for ever.
    fn owes_return(&mut self, id: SessionId) {
        let now = self.view.now.mono;
        self.sessions.set_return_deadline(id, now.after(self.view.config.lease_ns), now);
    }

    pub(crate) fn returned(&mut self, id: SessionId, list: &[Returned]) {
        let Some(place) = self.sessions.map.get(&id).and_then(|session| session.place) else { return };
        for returned in list {
            self.view.book.returned(place, *returned);
        }
        let since = self.view.book.asked_since(place);
        let end = since.map(|since| since.after(self.view.config.lease_ns));
        // Who answers some has no longer for the others; and what is overdue is not looked at as if it had just become so.
        if end.is_none_or(|end| end > self.view.now.mono) || stdx::mutant!("mds_returns_begin_anew") {
            self.sessions.clear_return_deadline(id);
        }
        if let Some(end) = end {
            self.sessions.set_return_deadline(id, end, self.view.now.mono);
        }
    }

    /// A session offers what it does not use.
    pub(crate) fn idle(&mut self, id: SessionId, list: &[Ino]) {
        let Some(session) = self.sessions.map.get(&id).filter(|session| session.settled) else { return };
        let (Some(place), now) = (session.place, self.view.now.mono) else { return };
        for ino in list {
            if !self.view.book.recall_idle(place, *ino, now) {
                return;
            }
        }
    }

    /// Whether a session may be late because of the rank: its kernel drops no pages while a READ or WRITE of them has no answer.
    pub(crate) fn is_owed(&self, id: SessionId, now: Now) -> bool {
        let Some(place) = self.sessions.map.get(&id).and_then(|session| session.place) else { return false };
        let lease_ns = self.view.config.lease_ns;
        let patient = |since: Mono| now.mono.since(since) < OWED_LEASES * lease_ns;
        // What it gives back may lie behind what it performed, and a READ there, too.
        if self.sessions.map.get(&id).is_some_and(Session::is_in_line) {
            return self.view.book.asked_since(place).is_some_and(patient);
        }
        self.unanswered().any(|(asked, ..)| {
            asked.session == id
                && (asked.kind == Kind::READ || asked.kind == Kind::WRITE)
                && now.mono.since(asked.since) > lease_ns / 4
                && self.view.book.pages_asked_at(place, asked.ino).is_some_and(patient)
        })
    }

    /// The session uses nothing that it was granted on earlier connections.
    pub(crate) fn settled(&mut self, id: SessionId) {
        // Said once on a connection; said again it would only make work.
        let Some(session) = self.sessions.map.get_mut(&id).filter(|session| !session.settled) else { return };
        session.settled = true;
        let place = session.place;
        if let Some(place) = place {
            self.view.book.end_delegated(place);
            self.view.book.forget(place);
            self.sessions.fading.retain(|fading| fading.session != id);
        }
        self.sessions.clear_return_deadline(id);
        self.former_settled(id);
    }

    /// One less of those that may keep what a former life of the rank told them.
    pub(crate) fn former_settled(&mut self, id: SessionId) {
        if self.sessions.former.remove(&id) {
            self.runnable.extend(std::mem::take(&mut self.settling));
        }
    }

    /// The rank lives again, and any session that it finds may keep what it was told by the life before: until it says that it
    /// does not, or all of it has run out, nobody else changes anything.
    pub(crate) fn await_former(&mut self, now: Now) {
        let evicted = |(id, session): (&SessionId, &Session)| session.evicted.then_some(*id);
        for id in self.sessions.map.iter().filter_map(evicted).collect::<Vec<_>>() {
            self.run_out(id, now);
        }
        if self.sessions.map.is_empty() || stdx::mutant!("mds_settled_not_awaited") {
            return;
        }
        let keeps = |(id, session): (&SessionId, &Session)| (!session.keeps_nothing).then_some(*id);
        self.sessions.former = self.sessions.map.iter().filter_map(keeps).collect();
        self.sessions.former_end = (!self.sessions.former.is_empty()).then(|| now.mono.after(FADES_NS));
    }

    /// Whether a change must wait for other clients of the life before.
    pub(crate) fn must_settle(&self, op: &Op) -> bool {
        let former = &self.sessions.former;
        // What was done in the life before was not in the way of anything that others keep.
        if op.told.is_some_and(|told| told.heard) {
            return false;
        }
        !former.is_empty() && former.iter().any(|id| *id != op.session) && waits_for_settled(&op.request)
    }

    /// What sessions that are not there were granted has run out.
    pub(crate) fn fade(&mut self, now: Now, out: &mut Outbox<Output>) {
        self.lent_tick(now.mono);
        if self.sessions.former_end.is_some_and(|end| end <= now.mono) {
            self.sessions.former_end = None;
            self.sessions.former.clear();
            self.runnable.extend(std::mem::take(&mut self.settling));
        }
        let (due, later): (Vec<Fading>, Vec<Fading>) =
            self.sessions.fading.iter().partition(|fading| fading.until <= now.mono);
        self.sessions.fading = later;
        for Fading { session: id, .. } in due {
            let Some(session) = self.sessions.map.get(&id) else { continue };
            if session.evicted {
                self.end_session(now, id, out);
            } else if let Some(place) = session.place {
                self.view.book.forget(place);
                self.sessions.clear_return_deadline(id);
            }
        }
    }

    /// A session lost its connection: it asks nothing more, so what it has runs out.
    pub(crate) fn fade_later(&mut self, id: SessionId, now: Now) {
        let Some(session) = self.sessions.map.get_mut(&id) else { return };
        session.settled = false;
        if session.place.is_some_and(|place| self.view.book.count(place) > 0) {
            self.run_out(id, now);
        }
    }

    fn run_out(&mut self, id: SessionId, now: Now) {
        if !self.sessions.fading.iter().any(|fading| fading.session == id) {
            let embedded = self.sessions.map.get(&id).is_some_and(|session| session.embedded);
            let until = now.mono.after(if embedded { AGE_NS } else { FADES_NS });
            self.sessions.fading.push(Fading { session: id, until });
        }
    }

    /// Whether a session that is to be evicted may keep something, of this life of the rank or the one before. Then it goes on until
    /// that has run out, with all it holds, but serves nobody: were its end in the journal before, a rank that lives again would not
    /// know that somebody still keeps names. That it is evicted is journaled at once, before anything that others do with what was
    /// delegated to it: a rank that lives again would let it in, and carry out what it performed before over what they synced.
    pub(crate) fn evict_later(&mut self, id: SessionId, now: Now, out: &mut Outbox<Output>) -> bool {
        let Some(session) = self.sessions.map.get_mut(&id) else { return false };
        let keeps = session.place.is_some_and(|place| self.view.book.count(place) > 0);
        if (!keeps && !self.sessions.former.contains(&id)) || stdx::mutant!("mds_eviction_ends_records") {
            return false;
        }
        (session.evicted, session.settled) = (true, false);
        if session.is_clients() && !stdx::mutant!("mds_eviction_not_journaled") {
            let flags = session.flags(session.quiet);
            Mutation::SessionFlags { id, flags }.encode(&mut self.view.txn.muts);
            self.commit(now, None, out);
        }
        self.run_out(id, now);
        true
    }

    /// A session has ended, and its client keeps nothing.
    pub(crate) fn caps_end(&mut self, id: SessionId, place: Option<u16>) {
        self.sessions.fading.retain(|fading| fading.session != id);
        // What it asked for and is not done asks for nobody any more: its place will be another's.
        self.parked.values_mut().filter(|op| op.session == id).for_each(|op| op.place = None);
        if let Some(place) = place {
            self.view.book.leave(place);
        }
        self.former_settled(id);
    }
}
