//! Capabilities in the world: answers and recalls on their way into the kernels, what these answer from what they keep, and
//! whether that is right, at each answer and each transaction.
//!
//! Absent: what a kernel keeps (`kernel.rs`); recalls that have no answer (`owed.rs`).

use super::kernel::Taken;
use super::{Event, Kind, Phase, World};
use crate::model::judge::{Sent, Verdict};
use proto::caps::{Bits, Grants, Recalled};
use proto::reply::Reply;
use proto::request::{Request, open_flags};
use stdx::time::MS;

impl World {
    pub(super) fn lease_ns(&self) -> u64 {
        self.plan.rank(proto::ids::Incarnation(1)).lease_ns
    }

    /// The rank's life as this client's kernel may rely on it for pages: after a crash bytes may be others, and a client that
    /// has no connection any more learns it later.
    fn live(&self, client: usize) -> Option<u64> {
        let (Some(life), Some(conn)) = (&self.life, self.clients[client].conn) else { return None };
        life.conns.get(&conn).and_then(|(_, session)| *session).map(|_| self.lives)
    }

    /// An answer is handed to the kernel, which may take it in a little later.
    pub(super) fn hand_over(&mut self, client: usize, taken: Taken) {
        let slot = &self.clients[client];
        let birth = slot.birth();
        let delay = match self.rng.below(8) {
            0 => self.rng.below(self.plan.message_ns),
            1 => self.rng.below(4 * self.plan.message_ns),
            _ => 0,
        };
        self.at(self.now + delay, Event::Take { client, birth, taken: Box::new(taken) });
    }

    pub(super) fn take(&mut self, client: usize, birth: u64, mut taken: Taken) -> Verdict {
        // A client that was stopped may hand out an answer of long ago before it hears that its connection is gone.
        let live = self.live(client);
        let slot = &mut self.clients[client];
        if slot.birth() != birth || !slot.is_alive() {
            return Ok(());
        }
        (taken.newest, taken.life) = (self.calls, live.unwrap_or(0));
        let (kernel, busy) = slot.kernel_and_requests();
        let took = kernel.take(&taken, self.now, &mut self.rng, busy);
        for (what, count) in [
            ("attributes kept", took.attrs),
            ("names kept", took.names),
            ("files with pages kept", took.files),
            ("grants void when they came", took.voided),
        ] {
            self.coverage.count(what, count);
        }
        if took.files == 0 || live.is_none() {
            return Ok(());
        }
        let Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) = &taken.outcome else { return Ok(()) };
        match self.judge.other_writer(attr.ino, taken.session) {
            Some(other) => Err(format!(
                "client {client} may keep pages of inode {}, which session {} has open for writing",
                attr.ino.0, other.0
            )),
            None => Ok(()),
        }
    }

    /// The machine tells its edge what was recalled: it is dropped after a while, now and then one by one.
    pub(super) fn recalled(&mut self, client: usize, stamp: u64, list: Vec<Recalled>) {
        let slot = &self.clients[client];
        let (birth, remote) = (slot.birth(), slot.kind != Kind::Embedded);
        let slow = remote && self.phase == Phase::Faults && self.plan.slow_returns && self.rng.chance(1, 30);
        let longest = match self.rng.below(8) {
            _ if slow => 3 * self.lease_ns(),
            0 => 50 * MS,
            1..=3 => self.plan.message_ns,
            _ => 1,
        };
        if slow {
            self.trace.event(self.now, "slow", stamp, || format!("client {client}: {list:?}"));
        }
        let calls = self.calls;
        if !self.rng.chance(1, 4) {
            return self.after(longest, Event::Drop { client, birth, stamp, calls, list });
        }
        for recalled in list {
            self.after(longest, Event::Drop { client, birth, stamp, calls, list: vec![recalled] });
        }
    }

    /// The kernel drops what was recalled; then, not before, the machine is told. Pages that a request of its own keeps locked are
    /// waited for: if the rank lets that request wait for these pages, nobody goes on.
    pub(super) fn dropped(
        &mut self,
        client: usize,
        birth: u64,
        (stamp, calls): (u64, u64),
        list: Vec<Recalled>,
    ) -> Verdict {
        let slot = &mut self.clients[client];
        if slot.birth() != birth || !slot.is_alive() {
            return Ok(());
        }
        let judge = &self.judge;
        let writes = |ino| slot.session().is_some_and(|session| judge.is_writer(session, ino));
        let is_locked = |recalled: &Recalled| {
            recalled.bits.has(Bits::FC) && slot.locks_pages(recalled.ino, writes(recalled.ino), calls)
        };
        let (locked, list): (Vec<_>, Vec<_>) = list.into_iter().partition(is_locked);
        if !locked.is_empty() {
            self.coverage.count("pages locked by a request", 1);
            self.at(self.now + MS / 2, Event::Drop { client, birth, stamp, calls, list: locked });
        }
        if list.is_empty() {
            return Ok(());
        }
        let slot = &mut self.clients[client];
        for recalled in &list {
            let had = slot.kernel.drop_recalled(stamp, recalled);
            let what = if had { "recalls of what was kept" } else { "recalls of nothing" };
            self.coverage.count(what, 1);
        }
        self.trace.event(self.now, "drop", stamp, || format!("client {client}: {list:?}"));
        let list = list.iter().map(|recalled| recalled.returned(recalled.bits)).collect();
        self.step_client(client, client::Input::Returned { stamp, list })
    }

    /// A request that the kernel can answer by itself never leaves it.
    pub(super) fn answered_by_kernel(&mut self, client: usize, request: &Request) -> Verdict<bool> {
        let (live, session) = (self.live(client), self.clients[client].session());
        let Some(hit) = self.clients[client].kernel.answers(request, self.now, live) else {
            return Ok(false);
        };
        self.coverage.count(hit.kind(), 1);
        let judged = hit.judge(&mut self.judge, session);
        judged.map_err(|error| format!("client {client} answers from what it keeps: {error}"))?;
        Ok(true)
    }

    /// Programs look at what they know already again and again.
    pub(super) fn glance(&mut self, client: usize) -> Verdict {
        if self.rng.chance(1, 16) {
            self.forgets(client)?;
        }
        let (live, session) = (self.live(client), self.clients[client].session());
        let Some(hit) = self.clients[client].kernel.some(self.now, &mut self.rng, live) else {
            return Ok(());
        };
        self.coverage.count(hit.kind(), 1);
        let judged = hit.judge(&mut self.judge, session);
        judged.map_err(|error| format!("client {client} answers from what it keeps: {error}"))
    }

    /// A kernel that is short of memory drops a file with all it keeps of it, and says so. Perhaps it has the file open still, or
    /// looked it up again before it is heard: what it says is a hint.
    fn forgets(&mut self, client: usize) -> Verdict {
        let drops = self.rng.chance(1, 2);
        let Some(ino) = self.clients[client].kernel.forget_one(&mut self.rng, drops) else { return Ok(()) };
        self.coverage.count("files forgotten", 1);
        self.step_client(client, client::Input::Forgotten { ino })
    }

    /// Transactions happened: what they changed is kept by nobody but their authors' kernels, which drop it.
    pub(super) fn judge_keeping(&mut self) -> Verdict {
        let all = std::mem::take(&mut self.judge.changed);
        if all.is_empty() {
            self.own_changes.clear();
            return Ok(());
        }
        let authors = all.iter().filter_map(|changed| Some((changed.author?.0, &changed.inos)));
        self.own_changes =
            authors.flat_map(|(author, inos)| inos.iter().map(move |ino| (author, *ino))).collect();
        for slot in &mut self.clients {
            // The state is that after all of them: first goes what each has changed itself.
            let (number, session) = (slot.number(), slot.session());
            let sight = self.judge.sight(session);
            let moving = slot.names_on_the_move();
            all.iter().for_each(|changed| slot.kernel.changes(changed, session, &sight, &moving));
            for changed in &all {
                slot.kernel.keeps_none_of(changed, self.now, &sight).map_err(|error| {
                    format!("{:?} changes what client {number} keeps: {error}", changed.author)
                })?;
            }
        }
        Ok(())
    }

    /// A crash may have taken something back: nobody keeps it.
    pub(super) fn judge_all_keeping(&self) -> Verdict {
        for slot in &self.clients {
            let sight = self.judge.sight(slot.session());
            slot.kernel
                .check(self.now, &sight)
                .map_err(|error| format!("client {} keeps what a crash took back: {error}", slot.number()))?;
        }
        Ok(())
    }

    /// An answer with grants leaves the rank.
    pub(super) fn judge_grants(&self, sent: &Sent, client: usize, grants: &Grants) -> Verdict {
        let wants = self.plan.wants(self.clients[client].number());
        let all: &[Bits] = match grants {
            Grants::None => return Ok(()),
            Grants::One(bits) => std::slice::from_ref(bits),
            Grants::Each(all) => all,
        };
        if let Some(bits) = all.iter().find(|bits| !wants.has(**bits)) {
            return Err(format!("grants {bits:?} to session {}, which wants {wants:?}", sent.session.0));
        }
        // Where processes are stopped what is recalled stays out for so long that whoever waited may have given up, or ask again.
        let came = self.judge.came(sent.session, sent.tid).filter(|_| !self.plan.hangs);
        let Some(came) = came else { return Ok(()) };
        let inos = match &sent.outcome {
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }) => vec![attr.ino],
            Ok(Reply::Entries { entries, .. }) => entries.iter().map(|entry| entry.ino).collect(),
            _ => Vec::new(),
        };
        for (_, ino) in inos.into_iter().enumerate().filter(|(at, _)| !grants.of(*at).is_empty()) {
            if let Some(other) = self.owed.withheld(ino, came) {
                return Err(format!(
                    "session {} is granted inode {} with request {} while an operation waits for it from session {}",
                    sent.session.0, ino.0, sent.tid.0, other.0
                ));
            }
        }
        Ok(())
    }

    /// An open for writing is answered: nobody else may keep pages of that file.
    pub(super) fn judge_open(&self, sent: &Sent) -> Verdict {
        let request = self.judge.request(sent.session, sent.tid);
        let (Some(Request::Open { flags, .. } | Request::Create { flags, .. }), Ok(reply)) =
            (request, &sent.outcome)
        else {
            return Ok(());
        };
        let (Reply::Attr(attr) | Reply::Created { attr, .. }) = reply else { return Ok(()) };
        if !open_flags::writes(*flags) {
            return Ok(());
        }
        for slot in &self.clients {
            let keeps = slot.kernel.keeps_pages(attr.ino, self.now, self.lives);
            if keeps.is_some_and(|session| session != sent.session) {
                return Err(format!(
                    "session {} opens inode {} for writing while client {} keeps pages of it",
                    sent.session.0,
                    attr.ino.0,
                    slot.number()
                ));
            }
        }
        Ok(())
    }
}
