//! Calls that a rank sends away: NotMine. The rank has not carried them out, so the next one is asked under a tid of the stream
//! there. docs/PROTOCOL.md, "Calls that are sent away".
//!
//! Absent: what was performed: no rank sends that away (`machine/routed.rs`).

use super::Out;
use super::many::{Life, Many};
use super::route::Place;
use crate::input::{CallId, Input};
use crate::machine::gives_back;
use crate::validity::Validity;
use proto::reply::Reply;
use proto::request::Request;
use proto::{Cred, Errno, Ino, NodeRef, RankId};
use std::collections::BTreeSet;
use stdx::Mono;
use stdx::time::{MS, SECOND};

/// So often a call goes at once to whom a rank names that goes by the same map.
const NAMED_MAX: u32 = 8;
/// How long it goes to whom ranks name that go by one map.
const NAMED_NS: u64 = 2 * SECOND;
/// The same in all, whatever owners maps name meanwhile; then each is asked once more by the map of now.
const SPENT_NS: u64 = 10 * SECOND;
/// How long a call waits before it is asked again: at first, and at most.
const PAUSE_NS: u64 = MS;
const PAUSE_MAX_NS: u64 = 100 * MS;

/// A call that was sent away.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounced {
    /// What the client's map said of owners when it was sent away first: all this counts as long as no other is named.
    owners: u64,
    /// When all had sent it away first, and last.
    since: Option<Mono>,
    last: Option<Mono>,
    /// How long it was asked in vain after that, by this map and those before.
    spent_ns: u64,
    /// Who has sent it away by that map, or one with the same owners.
    by: BTreeSet<RankId>,
    /// All had sent it away, and nobody was named: each is asked once more, the first after a pause.
    twice: bool,
    /// The time for whom ranks name is over: the others were asked once more.
    last_round: bool,
    named: u32,
    /// The last pause.
    pause_ns: u64,
    /// Of a listing: behind which cookie it goes on.
    after: Option<u64>,
    /// Of an inode: the directory in which it was last seen.
    pub(super) seen_in: Option<Ino>,
}

/// A call that is asked again later.
#[derive(Clone, Debug)]
pub(super) struct Parked {
    pub(super) call: CallId,
    cred: Cred,
    request: Request,
    /// Who was named.
    rank: Option<RankId>,
    pub(super) at: Mono,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Ask(RankId),
    /// After a pause; that rank, or whose it is by the map of then.
    Wait(Option<RankId>),
    /// Nobody has it.
    Fail,
}

impl Bounced {
    /// Twice as long as the one before.
    fn pause(&mut self) -> u64 {
        self.pause_ns = (self.pause_ns * 2).clamp(PAUSE_NS, PAUSE_MAX_NS);
        self.pause_ns
    }
}

impl Many {
    pub(super) fn on_bounced(
        &mut self,
        from: RankId,
        (call, cred, request): (Option<CallId>, Cred, Request),
        (owner, version): (Option<RankId>, u64),
        out: &mut Out,
    ) {
        if let Request::Release { count: 0, .. } = &request {
            // It has it no more, as the client knew: its claim has ended.
            let Some(call) = call else { return };
            return self.on_answer(super::FIRST, call, Ok(Reply::Ok), Validity::default(), out);
        }
        let place = self.place(&request);
        self.doubt_map(place, from, version, out);
        let owner = owner.filter(|owner| *owner != from && self.may_have(place, *owner));
        if let (Place::Inside(dir, _), Some(owner)) = (place, owner)
            && version >= self.map_version()
            && !self.has_units(dir.ino)
        {
            self.places.learn(dir.ino, owner, Ino::NONE);
        }
        // What nobody waits for gives something back, which may have gone to another rank, or was for the rank that it was sent to. What broke:
        // an unlock by SetLock was the only one that was not sent on, and the lock stayed where it had gone until its session ended.
        let is_unlock = matches!(request, Request::SetLock { .. });
        let is_kept = gives_back(&request) && !(is_unlock && stdx::mutant!("client_unlocks_where_it_was"));
        let Some(call) = call.or_else(|| is_kept.then(|| self.own_call())) else {
            return self.clients.iter_mut().for_each(|client| client.gives_up_flock(&request));
        };
        if self.life != Life::Serving {
            return self.failed(call, Errno::ESHUTDOWN, out);
        }
        // Who has it open waits longer.
        let holds = |node: NodeRef| self.clients.iter().any(|client| client.holds(node.ino));
        let is_held = matches!(place, Place::Home(node) if holds(node));
        self.lists_on(call, &request);
        let next = self.next_to_ask((call, is_held), from, (owner, version));
        if let (Place::Home(node), Some(bounced)) = (place, self.bounces.get_mut(&call)) {
            bounced.seen_in = Some(node.parent);
        }
        if version > self.map_version() {
            self.want_map(from, version, out);
        }
        match next {
            Next::Ask(rank) => self.ask_again(rank, (call, cred, request), out),
            Next::Wait(rank) => {
                let call = if matches!(request, Request::Release { .. }) {
                    self.goes_on_alone(call, out)
                } else {
                    call
                };
                let pause_ns = self.bounces.entry(call).or_default().pause();
                self.parked.push(Parked { call, cred, request, rank, at: self.now.after(pause_ns) });
            }
            Next::Fail => {
                self.clients.iter_mut().for_each(|client| client.gives_back_nowhere(&request));
                self.failed(call, Errno::ESTALE, out);
            }
        }
    }

    /// The next part of a listing is another question: who sent the one before away was not asked for this one.
    fn lists_on(&mut self, call: CallId, request: &Request) {
        let Request::ReadDir { after, .. } = request else { return };
        let owners = self.owners;
        let fresh = || Bounced { owners, after: Some(*after), ..Bounced::default() };
        let bounced = self.bounces.entry(call).or_insert_with(fresh);
        if bounced.after != Some(*after) && !stdx::mutant!("client_lists_parts_as_one") {
            *bounced = fresh();
        }
    }

    /// Whoever closed a file learns nothing by waiting for the rank that has it. Of many files that are gone, closed one after the other,
    /// each would be waited for as long as one that moves may take; so they are looked for together, behind the answers.
    fn goes_on_alone(&mut self, call: CallId, out: &mut Out) -> CallId {
        if self.is_own_call(call) || stdx::mutant!("client_closes_one_by_one") {
            return call;
        }
        let own = self.becomes_own(call);
        self.answer(call, Ok(Reply::Ok), Validity::default(), out);
        own
    }

    /// It is looked for on, as far as it came, and its caller does not wait for it.
    fn becomes_own(&mut self, call: CallId) -> CallId {
        let own = self.own_call();
        if let Some(bounced) = self.bounces.remove(&call) {
            self.bounces.insert(own, bounced);
        }
        own
    }

    /// What it has sent away before it welcomed us, it may be sent once more: it has been told since what is open there, and counts that.
    /// What broke: a file that is nowhere any more was to be closed, and two ranks sent that to each other until all of them died. The one
    /// was told in its next life that the file is open there; the other one sent the close away once more, by which all had, before the first
    /// was asked again. Nobody closed it there, and nothing above it moved any more.
    pub(super) fn is_asked_anew(&mut self, rank: RankId) {
        if !stdx::mutant!("client_asked_before_it_claimed") {
            self.bounces.values_mut().for_each(|bounced| {
                bounced.by.remove(&rank);
            });
        }
    }

    /// Calls with a caller that are asked again later, if they may be too many.
    pub(super) fn is_crowded(&self) -> bool {
        let most = self.config.limits.queued_max;
        let waits = |parked: &&Parked| !self.is_own_call(parked.call);
        self.parked.len() >= most && self.parked.iter().filter(waits).count() >= most
    }

    pub(super) fn ask_again(
        &mut self,
        rank: RankId,
        (call, cred, request): (CallId, Cred, Request),
        out: &mut Out,
    ) {
        let rank = self.needed(Some(rank), out);
        if let Request::Fsync { node, .. } = &request {
            self.follows_others(call, node.ino, Some(rank));
        }
        self.note_opening(rank, call, &cred, &request);
        if stdx::mutant!("client_bounce_asks_two") {
            let (cred, request) = (cred.clone(), request.clone());
            self.give(super::FIRST, Input::Call { call, cred, request });
        }
        self.give(rank, Input::Call { call, cred, request });
    }

    fn next_to_ask(
        &mut self,
        (call, is_held): (CallId, bool),
        from: RankId,
        (owner, version): (Option<RankId>, u64),
    ) -> Next {
        let (have, owners, now) = (self.map_version(), self.owners, self.now);
        let fresh = || Bounced { owners, ..Bounced::default() };
        let bounced = self.bounces.entry(call).or_insert_with(fresh);
        if bounced.owners != owners {
            // Whoever did not have it may have it now. Not with every map: where ranks die and return all the time there is a new one
            // before that time is over, and nobody would ever hear that a file is gone.
            let Bounced { seen_in, spent_ns, pause_ns, after, .. } = *bounced;
            *bounced = Bounced { seen_in, spent_ns, pause_ns, after, ..fresh() };
        }
        if version < have && !stdx::mutant!("client_believes_who_is_behind") {
            return Next::Wait(None);
        }
        if version > have {
            bounced.named += 1;
            // Its map is asked for. As long as that is not there, who names whom may have no end.
            return owner.filter(|_| bounced.named <= NAMED_MAX).map_or(Next::Wait(owner), Next::Ask);
        }
        bounced.by.insert(from);
        let by = bounced.by.clone();
        let again = owner.filter(|owner| by.contains(owner));
        if again.is_none()
            && let Some(owner) = owner
        {
            return Next::Ask(owner);
        }
        // Two that name each other go by hints: a third one may have it.
        let askable = self.askable();
        let other = askable.iter().find(|rank| !by.contains(rank));
        if let Some(rank) = other.filter(|_| !stdx::mutant!("client_asks_only_whom_hints_name")) {
            return Next::Ask(*rank);
        }
        // Where it is being renamed, and who decided that is dead, it may have come to one that was asked before, behind the back of one that
        // was asked later and knows of nothing any more.
        let later = askable.iter().copied().find(|rank| *rank != from);
        if let (None, Some(rank), Some(bounced)) = (again, later, self.bounces.get_mut(&call))
            && !bounced.twice
            && !stdx::mutant!("client_asks_all_once")
        {
            (bounced.twice, bounced.by) = (true, BTreeSet::from([from]));
            // Not at once: the dead one's next life says it to that rank as soon as it serves, and it served when it sent this away; but a
            // client's question may be there before what another rank says.
            let at_once = stdx::mutant!("client_asks_again_at_once");
            return if at_once { Next::Ask(rank) } else { Next::Wait(Some(rank)) };
        }
        // All have sent it away. Where it went meanwhile from one to the other, who is named has it by now.
        let Some((owner, bounced)) = again.zip(self.bounces.get_mut(&call)) else { return Next::Fail };
        bounced.named += 1;
        // From when all were asked, and not from when the first was: one that was dead meanwhile may have to tell another one yet what it
        // decided before it died.
        let here_ns = now.since(*bounced.since.get_or_insert(now));
        let third = askable.into_iter().find(|rank| *rank != from && *rank != owner);
        // A time in which one of them was dead is as short as any pause.
        let one_ns = bounced.last.replace(now).map_or(0, |last| now.since(last).min(PAUSE_MAX_NS));
        bounced.spent_ns += one_ns;
        // What broke: where something moves all the time no owners last two seconds, and calls for what was gone had no end.
        let in_vain = bounced.spent_ns >= SPENT_NS && !is_held && !stdx::mutant!("client_looks_for_ever");
        if bounced.named <= NAMED_MAX {
            Next::Ask(owner)
        } else if here_ns < if in_vain { PAUSE_MAX_NS } else { NAMED_NS } {
            Next::Wait(Some(owner))
        } else if let Some(third) = third.filter(|_| !bounced.last_round)
            && !stdx::mutant!("client_asks_thirds_once")
        {
            // What broke: two ranks named each other by hints, and the third one, which had been asked first, got the file meanwhile.
            (bounced.last_round, bounced.by) = (true, BTreeSet::from([from, owner]));
            Next::Ask(third)
        } else {
            Next::Fail
        }
    }

    /// Asks again what has waited long enough, or, with a new map, all of it.
    pub(super) fn ask_parked(&mut self, all: bool, out: &mut Out) {
        let due = |parked: &mut Parked| all || parked.at <= self.now;
        let parked: Vec<Parked> = self.parked.extract_if(.., due).collect();
        for Parked { call, cred, request, rank, .. } in parked {
            let rank = rank.filter(|rank| !all && self.is_rank(*rank));
            let rank = rank.or_else(|| self.owner(self.place(&request)));
            self.ask_again(rank.unwrap_or(super::FIRST), (call, cred, request), out);
        }
    }

    /// Whoever waits for it gives up: nobody has carried it out. What gives something back is still to be carried out, as it is where it
    /// waits to be sent (`Client::on_abandon`). What broke: a process was killed, which closes its files. Its unlock had been sent away, and was given up
    /// with it: the lock stayed at its rank, was claimed of each of its lives, and nobody else got it.
    pub(super) fn give_up_parked(&mut self, call: CallId, only_locks: bool, out: &mut Out) {
        let lock = |request: &Request| matches!(request, Request::SetLock { wait: true, .. });
        let is = |parked: &mut Parked| parked.call == call && (!only_locks || lock(&parked.request));
        // A sync may have two parts.
        let given_up: Vec<Parked> = self.parked.extract_if(.., is).collect();
        for parked in given_up {
            self.clients.iter_mut().for_each(|client| client.gives_up_flock(&parked.request));
            if gives_back(&parked.request) && !stdx::mutant!("client_killed_keeps_locks") {
                let call = self.becomes_own(call);
                self.parked.push(Parked { call, ..parked });
            }
            self.failed(call, Errno::EINTR, out);
        }
    }

    /// Nothing is asked again any more.
    pub(super) fn fail_parked(&mut self, out: &mut Out) {
        for parked in std::mem::take(&mut self.parked) {
            self.failed(parked.call, Errno::ESHUTDOWN, out);
        }
    }

    /// No rank has carried it out.
    fn failed(&mut self, call: CallId, errno: Errno, out: &mut Out) {
        self.on_answer(super::FIRST, call, Err(errno), Validity::default(), out);
    }
}
