//! An operation's way: planned against the cache, parked while something is missing, planned again, carried out.
//!
//! Absent: what each operation does (`ops/`); who wakes whom (`load.rs`, `files.rs`, `caps.rs`, `pace.rs`).

use crate::cache::node;
use crate::cache::slab::NONE;
use crate::hold::Waiting;
use crate::input::Tag;
use crate::limits;
use crate::op::{Claim, Effects, Learned, Next, Op, OpId, Park, Plan, Stop, Waits, asking_parks};
use crate::ops;
use crate::output::Output;
use crate::perm;
use crate::rank::requests::OWN;
use crate::rank::{Inner, Pending, Rank};
use crate::view::Found;
use proto::reply::Reply;
use proto::request::Request;
use proto::request::rename_flags::EXCHANGE;
use proto::storeio::DataOp;
use proto::transact::{Part, Step};
use proto::{Errno, Ino, RankId, SessionId};
use stdx::{Now, Outbox};

/// Parked operations run per step.
const RUN_MAX: usize = 256;

/// Whether what a rank keeps of what it asks to be changed is taken back from it as from any other: its clients may go by that.
pub(crate) fn gives_back_itself(request: &Request) -> bool {
    let sets_times =
        matches!(request, Request::SetTimes { .. }) && !stdx::mutant!("mds_times_set_under_lent");
    sets_times || matches!(request, Request::Transact { .. })
}

/// Whether a transaction may begin with what it reserves: the rename of what is probably a file, and nothing comes back for it.
fn is_hasty(request: &Request, part: &Part) -> bool {
    let renames = matches!(request, Request::Rename { flags, .. } if flags & EXCHANGE == 0);
    renames && matches!(part, Part::Name { .. })
}

/// The inode that a client names itself. What gives something back ends in its books only when all have said that they have not got it.
fn named_by(op: &Op) -> Ino {
    let gives_back = matches!(
        op.request,
        Request::Release { .. } | Request::ReleaseLocks { .. } | Request::SetLock { .. }
    );
    let named = op.request.subject().filter(|_| op.of_rank.is_none() && !gives_back);
    named.map_or(Ino::NONE, |(node, _)| node.ino)
}

impl Rank {
    /// Plans an operation and does what planning came to.
    pub(crate) fn run(&mut self, now: Now, op: &mut Op, out: &mut Outbox<Output>) {
        self.view.named = named_by(op);
        // It may have come before its session had a place.
        if op.place.is_none()
            && !gives_back_itself(&op.request)
            && let Some(session) = self.sessions.map.get(&op.session)
        {
            op.place = session.place;
        }
        if let Some(errno) = op.failed.take() {
            return self.answer(op, Err(errno), false, out);
        }
        if op.unheard {
            match self.unheard_answer(op, out) {
                Ok(Some(outcome)) => return self.answer_unheard(op, outcome, out),
                Ok(None) => return self.runs_again(now, op, out),
                Err(stop) => return self.carry_out_plan(now, op, Err(stop), out),
            }
        }
        if let Request::Release { node, count } = &op.request {
            let (node, count) = (*node, *count);
            return match ops::has_holders_of(&mut self.view, op, node) {
                Ok(()) => self.release(op, node.ino, count, out),
                Err(stop) => {
                    if matches!(stop, Stop::NotMine(_)) {
                        self.released_elsewhere(op, node.ino, count, out);
                    }
                    self.carry_out_plan(now, op, Err(stop), out)
                }
            };
        }
        if self.is_about_holders(now, op, out) {
            return;
        }
        if let Request::Transact { id, step } = &op.request {
            let id = *id;
            match step {
                Step::Abort => return self.part_aborted(now, op, id, out),
                // Nobody waits for others while something is reserved.
                Step::Prepare { parts, map, .. } => {
                    let is_behind = self.view.territory.version() < *map;
                    let waits = is_behind || !self.presenting.is_empty() || !self.sessions.former.is_empty();
                    if waits || self.parts_may_be_copied(parts) {
                        return self.answer(op, Err(Errno::EBUSY), false, out);
                    }
                }
                Step::Clear { .. } | Step::Commit { .. } | Step::Ask => {}
            }
            self.view.transactions.strangers = self.strangers_of(step);
        }
        if matches!(op.request, Request::Hand { .. }) {
            self.view.stands_still = self.nothing_moves().is_some();
        }
        if let Some(park) = self.waits_before_planning(op) {
            self.let_votes_go(op.id, out);
            return self.park(op, park);
        }
        if let Some(outcome) = self.rewrite_outcome(op) {
            // Of a file that went to another rank the tail may know nothing, and its bytes were synced before: it is looked for first.
            op.lost = outcome.is_err() && op.told.is_some() && !self.view.territory.is_undisputed();
            if !op.lost {
                return self.answer(op, outcome, false, out);
            }
        }
        match self.told_number(op) {
            Ok(number) => self.view.given = number,
            Err(errno) => return self.answer(op, Err(errno), false, out),
        }
        let now = self.told_now(now, op);
        self.plan_now(now, op, out);
        self.view.given = None;
        self.view.now.wall = self.wall;
    }

    /// What an operation waits for whatever it will come to.
    fn waits_before_planning(&mut self, op: &Op) -> Option<Park> {
        if self.must_wait_for_presented(op) {
            return Some(Park::Presented);
        }
        if self.must_wait(op.id, &op.request) {
            return Some(Park::Journal);
        }
        if self.must_settle(op) {
            return Some(Park::Settled);
        }
        // Who names what is outside takes nothing back from others: that is asked for each time it was found inside.
        if op.limit != Ino::NONE && !stdx::mutant!("mds_outside_takes_back") {
            return None;
        }
        self.in_the_way(op)
    }

    fn in_the_way(&self, op: &Op) -> Option<Park> {
        self.delegated_in_the_way(op).or_else(|| self.alone_in_the_way(op)).map(Park::Caps)
    }

    /// Whether all that it names is inside of its session's limit.
    fn inside(&mut self, op: &mut Op) -> Found<()> {
        if op.limit == Ino::NONE {
            return Ok(());
        }
        let request = std::mem::replace(&mut op.request, Request::StatFs);
        let checked = limits::check(&mut self.view, op, &request);
        op.request = request;
        if matches!(checked, Err(Stop::Park(_))) {
            // Whom it waits for may wait for something that is withheld for it.
            self.view.book.let_go(op.id);
        }
        checked?;
        self.in_the_way(op).map_or(Ok(()), |park| Err(Stop::Park(park)))
    }

    /// A release of what is another rank's. Its client did not know yet that it had gone, and may have claimed it.
    pub(crate) fn released_elsewhere(&mut self, op: &Op, ino: Ino, count: u32, out: &mut Outbox<Output>) {
        self.view.files.close(ino, op.session, count);
        // What was too far up to be looked for may be here all the same.
        let is_sure = stdx::mutant!("mds_nowhere_is_elsewhere");
        let climb = op.climb.as_ref();
        let is_short = climb.is_none_or(|climb| !climb.is_long());
        let is_known = is_short && climb.is_none_or(|climb| is_sure || climb.is_elsewhere(ino));
        let is_search = self.moves.unseen.is_search(op.id);
        if is_known && is_search {
            self.end_claims(ino, out);
        } else if is_short && count == 0 && !is_search {
            self.end_claims_of(ino, op.session);
        }
        self.forget_or_purge(ino);
    }

    /// Plans with what other ranks told for this operation, and what has been reserved for it, at hand. Of what was told for one planning
    /// the times of a directory are given back: they are needed once more if it must wait after all.
    #[inline(always)]
    fn plan_with_heard(
        &mut self,
        op: &mut Op,
        out: &mut Outbox<Output>,
    ) -> (Found<Plan>, Option<Box<Learned>>) {
        if let Some(heard) = &mut op.heard {
            self.view.learned = heard.learned.take();
            std::mem::swap(&mut self.view.learned_units, &mut heard.units);
        }
        if !self.leads.is_idle() {
            self.view.told = self.told_for(op.id);
            self.view.transactions.own = self.view.told.as_ref().map(|told| told.id);
        }
        let planned = self.inside(op).and_then(|()| {
            let mut request = std::mem::replace(&mut op.request, Request::StatFs);
            let planned = ops::plan(&mut self.view, op, &mut request);
            op.request = request;
            planned
        });
        if !self.view.transactions.joins.is_empty() {
            self.say_joins(out);
        }
        if let Some(heard) = &mut op.heard {
            heard.told_once = self.view.is_told_once();
        }
        // What broke: asked for once more behind each wait for capabilities, it was asked of a rank that lives again and waits for somebody
        // who waits for what is withheld for this operation.
        let learned = self.view.learned.take();
        let learned = learned.filter(|learned| matches!(learned.as_ref(), Learned::Times(..)));
        self.view.told = None;
        self.view.transactions.own = None;
        if let Some(heard) = &mut op.heard {
            std::mem::swap(&mut self.view.learned_units, &mut heard.units);
        }
        (planned, learned)
    }

    fn plan_now(&mut self, now: Now, op: &mut Op, out: &mut Outbox<Output>) {
        self.view.now = now;
        self.view.resolved = NONE;
        // The plan before may have come to a sync.
        self.view.txn.forget_way();
        let (planned, learned) = self.plan_with_heard(op, out);
        let needs = self.delegated_not_empty(op, &planned).or_else(|| self.alone_shown(op, &planned));
        let needs = needs.or_else(|| match &planned {
            Ok(Plan::Commit(_, effects)) => self.needs_if_blocked(op, effects.open, true),
            Ok(Plan::Answer(Ok(_), effects)) if effects.open.is_some() => {
                self.needs_if_blocked(op, effects.open, false)
            }
            Ok(Plan::Answer(..) | Plan::Step(..) | Plan::Data(..) | Plan::Durable(_) | Plan::Queued)
            | Err(_) => None,
        });
        if let Some(needs) = needs {
            if let Some(heard) = &mut op.heard {
                heard.learned = learned;
            }
            return self.carry_out_plan(now, op, Err(Stop::Park(Park::Caps(needs))), out);
        }
        if matches!(planned, Ok(Plan::Commit(..))) && self.may_be_copied(&op.request) {
            return self.carry_out_plan(now, op, Err(Stop::Park(Park::Ranks)), out);
        }
        let of_several = matches!(planned, Ok(Plan::Commit(..))) && self.view.txn.is_of_several();
        if of_several && !self.has_votes(op.id) {
            let moves = std::mem::take(&mut self.view.txn.moves);
            self.view.txn.clear();
            return self.gather_votes(op, moves);
        }
        if matches!(planned, Ok(Plan::Commit(..))) {
            self.own_names_change(op);
            self.own_files_move(op);
        }
        self.note_heat(op, &planned);
        let planned = self.with_unheard(op, planned);
        self.carry_out_plan(now, op, planned, out);
    }

    fn not_mine(&mut self, op: &mut Op, owner: Option<RankId>, out: &mut Outbox<Output>) {
        self.view.txn.clear();
        if matches!(op.request, Request::Rewrite { .. }) && !stdx::mutant!("mds_rewrite_sent_away") {
            // Before it left its bytes were synced.
            return self.answer(op, Ok(Reply::Ok), false, out);
        }
        self.bounce(op, owner, out);
    }

    pub(crate) fn carry_out_plan(
        &mut self,
        now: Now,
        op: &mut Op,
        planned: Found<Plan>,
        out: &mut Outbox<Output>,
    ) {
        let decides = matches!(planned, Ok(Plan::Commit(..))) && self.view.txn.is_of_several();
        if !decides && !self.leads.is_idle() {
            self.let_votes_go(op.id, out);
        }
        match planned {
            Ok(Plan::Answer(outcome, effects)) => {
                self.effects(op, effects);
                self.answer(op, outcome, effects.remember, out);
            }
            Ok(Plan::Commit(reply, effects)) => {
                let outcome = Ok(reply);
                let decided = if decides { self.decide(op.id, out) } else { None };
                self.deciding = decides || (self.view.txn.across && !stdx::mutant!("mds_across_early"));
                self.commit_for(now, op, &outcome, out);
                self.deciding = false;
                if let Some(id) = decided {
                    self.decided(id);
                }
                self.effects(op, effects);
                self.answer(op, outcome, false, out);
                self.committed = None;
            }
            Ok(Plan::Step(reply, effects)) => {
                self.commit_step(now, out);
                self.effects(op, effects);
                self.answer(op, Ok(reply), false, out);
            }
            Ok(Plan::Data(data, claim, next)) => self.carry_out_data(op, data, (claim, next), out),
            Ok(Plan::Durable(reply)) => self.answer_durable(op, Ok(reply), out),
            Ok(Plan::Queued) => {
                self.parks += 1;
                op.waits = Waits::Lock;
                self.parked.insert(op.id, op.take());
            }
            Err(Stop::Fail(errno)) => {
                self.view.txn.clear();
                self.answer(op, Err(errno), false, out);
            }
            Err(Stop::NotMine(owner)) => self.not_mine(op, owner, out),
            Err(Stop::Park(park)) => self.park_planned(op, park, out),
        }
    }

    fn carry_out_data(
        &mut self,
        op: &mut Op,
        data: DataOp,
        (claim, next): (Claim, Next),
        out: &mut Outbox<Output>,
    ) {
        self.view.files.claim(claim);
        for ino in claimed_inos(claim).into_iter().flatten() {
            self.view.cache.flag(ino, node::BUSY, 0);
        }
        let tag = self.new_tag();
        op.waits = Waits::Data;
        self.pending.insert(tag, Pending::Op(op.take(), claim, next));
        // What changes bytes carries the file's cut out, and that may be of a transaction just made: a crash that takes it back must not
        // find the bytes gone.
        let cutting = next.changed().is_some_and(|(ino, _)| {
            self.view.files.get(ino).is_some_and(|file| file.cutting)
                && !stdx::mutant!("mds_write_before_cut")
        });
        if cutting || matches!(next, Next::CutDone { .. }) {
            self.hold(Waiting::Data { op: data, tag });
        } else {
            out.push(Output::Data { tag: Tag(tag), op: data });
        }
    }

    fn park_planned(&mut self, op: &mut Op, park: Park, out: &mut Outbox<Output>) {
        let moves = std::mem::take(&mut self.view.txn.moves);
        self.view.txn.clear();
        if matches!(park, Park::Votes) {
            self.gather_votes(op, moves);
        } else if matches!(park, Park::Joins) {
            self.wait_for_joins(op, out);
        } else if matches!(park, Park::Part { .. }) && self.leads.is_full(op.id) {
            self.asks_for_less(op, out);
        } else {
            self.park(op, park);
        }
    }

    fn park(&mut self, op: &mut Op, park: Park) {
        self.parks += 1;
        op.waits = Waits::from(&park);
        // Who waits for the journal or for capabilities has claimed nothing: it keeps its place at the file.
        op.woken &= matches!(park, Park::Journal | Park::Caps(_));
        // A stretch of a listing is right with what the cache knew when it came: names that go later it does not remember for long.
        if !stdx::mutant!("mds_old_stretch") {
            op.scan = None;
        }
        let id = op.id;
        match park {
            Park::Load(key) => self.wait_for_load(id, key),
            Park::File(ino) => self.view.files.get_mut(ino).queue.push_back(id),
            Park::Inos => self.ino_waiters.push(id),
            Park::Reconnect => self.reconnect_waiters.push(id),
            Park::Caps(needs) => self.wait_for_caps(op, &needs),
            Park::Settled => self.settling.push(id),
            Park::Presented => self.after_presented.push(id),
            Park::Journal => drop(self.pace.waiting.insert(id)),
            Park::Ranks => self.peers.ungreeted_waiters.push(id),
            Park::Move => self.moves.waiting.push(id),
            Park::Slots => self.want_slots(id),
            Park::Pin(dir, goal) => self.pin(id, dir, goal),
            Park::Carve(dir) => self.carve(id, dir),
            Park::Reserved => self.view.transactions.waiting.push(id),
            Park::Part { hint, part } => {
                // It was planned where that was here yet: the directory that was its own then the other rank needs a replica of.
                if !stdx::mutant!("mds_withheld_from_part") {
                    self.view.book.let_go(id);
                }
                let hasty = is_hasty(&op.request, &part);
                if !self.ask_part(id, hint, *part, hasty) {
                    op.failed = Some(Errno::ESTALE);
                    self.runnable.push_back(id);
                }
            }
            // Carried out before.
            Park::Votes | Park::Joins => {}
            park @ asking_parks!() => {
                if !self.ask_for((id, op.session), &park) {
                    if let Park::Facts { node, .. } = park {
                        op.hears().inherits.push(node.ino);
                    } else {
                        op.failed = Some(Errno::ESTALE);
                    }
                    self.runnable.push_back(id);
                }
            }
        }
        self.parked.insert(id, op.take());
    }

    fn effects(&mut self, op: &Op, effects: Effects) {
        if let Some((ino, rights)) = effects.open {
            self.count_open(ino, op.session, rights);
        }
        if let Some(ino) = effects.truncated {
            self.view.files.get_mut(ino).truncated = true;
        }
        if let Some(ino) = effects.orphan {
            self.forget_or_purge(ino);
        }
    }

    pub(crate) fn count_open(&mut self, ino: Ino, session: SessionId, rights: u32) {
        self.view.files.open(ino, session, 1, rights, rights & perm::WRITE != 0);
        self.view.cache.flag(ino, node::BUSY, 0);
    }

    fn release(&mut self, op: &Op, ino: Ino, count: u32, out: &mut Outbox<Output>) {
        let open = self.view.files.close(ino, op.session, count);
        if !open && let Some(file) = self.view.files.existing(ino) {
            let written = std::mem::take(&mut file.truncated);
            let slot = self.view.cache.by_ino(ino).filter(|_| written);
            if let Some(found) = slot.map(|s| self.view.cache.node(s)).filter(|n| n.has(node::WRITTEN)) {
                let (file, syncing) = (crate::txn::file_id(&found.core), self.view.syncing(&found.core));
                self.view.files.claim(Claim::User(ino));
                self.internal_data(DataOp::Sync { file }, Inner::CloseSync(syncing), out);
            }
        }
        self.closed_alone(op, ino);
        self.forget_or_purge(ino);
        self.holder_let_go(op.session, ino, out);
        self.answer(op, Ok(Reply::Ok), true, out);
    }

    #[inline(always)]
    pub(crate) fn answer_granted_locks(&mut self, out: &mut Outbox<Output>) {
        while let Some(id) = self.view.locks.granted.pop() {
            if let Some(op) = self.parked.remove(&id) {
                self.answer(&op, Ok(Reply::Ok), true, out);
            }
        }
    }

    pub(super) fn run_parked(&mut self, now: Now, out: &mut Outbox<Output>) {
        for _ in 0..RUN_MAX {
            let Some(id) = self.runnable.pop_front() else { return };
            self.plan_again(now, id, out);
        }
    }

    /// Plans a parked operation again.
    pub(crate) fn plan_again(&mut self, now: Now, id: OpId, out: &mut Outbox<Output>) {
        let ended = |id| self.sessions.map.get(&id).is_none_or(|session| session.evicted);
        let Some(op) = self.parked.get(&id) else { return };
        let is_over = op.session != OWN && ended(op.session);
        // The store's answer wakes it, or those of other ranks: what else it was noted for it has not come to.
        let is_told_first = || op.waits == Waits::Store || self.sets_times(op);
        let waits = self.leads.is_waiting(id) || (self.state.serves() && is_told_first());
        if waits && !is_over {
            return;
        }
        let Some(mut op) = self.parked.remove(&id) else { return };
        if is_over {
            self.unpin(&op);
        } else if self.state.serves() {
            self.run(now, &mut op, out);
        } else {
            self.answer(&op, Err(Errno::ESHUTDOWN), false, out);
        }
    }
}

/// The inodes of a claim.
pub(crate) fn claimed_inos(claim: Claim) -> [Option<Ino>; 2] {
    match claim {
        Claim::None => [None, None],
        Claim::User(ino) | Claim::Shared(ino) | Claim::Exclusive(ino) => [Some(ino), None],
        Claim::Copy { source, target } => [Some(source), Some(target)],
    }
}
