//! The callers above the clients: random requests, pins among them, and what they learn of the answers.
//!
//! Absent: what is asked (`crate::workload`), whether the answers are right (`judge.rs`).

use super::clients::Busy;
use super::event::Event;
use super::judge::{Asked, Key};
use super::{PIN, Phase, Ranks};
use crate::model::judge::Verdict;
use crate::trace::fold;
use crate::workload::Knowledge;
use client::{CallId, Input, Validity};
use proto::reply::{Outcome, Reply, encode_outcome};
use proto::request::{Request, XattrMode};
use proto::{Attr, Cred, Errno, Ino, Name, NodeRef, Writer};
use std::collections::BTreeSet;

impl Ranks {
    /// The callers' turn: one more call, then a pause.
    pub(super) fn call(&mut self, client: usize, birth: u64) -> Verdict {
        let slot = &self.clients[client];
        if slot.birth != birth || slot.machine.is_none() || self.phase != Phase::Faults {
            return Ok(());
        }
        let (busy, ready) = (slot.busy.len(), slot.is_ready());
        self.after(self.pause_ns(), Event::Call { client, birth });
        if busy >= self.plan.calls_max || !ready {
            return Ok(());
        }
        if self.is_nowhere(client) {
            self.kill(client);
            return Ok(());
        }
        self.issued += 1;
        if let Some((kind, cred, request)) = self.placing_call(client) {
            return self.start(client, kind, cred, request);
        }
        if self.rng.chance(1, self.plan.pin_one_in)
            && let Some(request) = self.pin(client)
        {
            return self.start(client, "pin", Cred::ROOT, request);
        }
        if self.plan.spread_one_in > 0 && self.rng.chance(1, self.plan.spread_one_in) {
            return self.spread_or_merge();
        }
        if self.plan.lock_one_in > 0
            && self.rng.chance(1, self.plan.lock_one_in)
            && let Some(request) = self.lock_request(client)
        {
            return self.start(client, "lock", Cred::ROOT, request);
        }
        if self.plan.sync_one_in > 0
            && self.rng.chance(1, self.plan.sync_one_in)
            && let Some(request) = self.sync_request(client)
        {
            return self.start(client, "sync", Cred::ROOT, request);
        }
        // What is open goes along, or keeps all of it where it is: for a while before pins everybody closes what it has open, in most runs.
        let tidy = self.plan.tidy && self.now % self.plan.turn_ns < self.plan.turn_ns / 2;
        if tidy
            && let Some(node) = self.clients[client].known.opens.pop()
            && let Some(request) = self.closes(client, Request::Release { node, count: 1 })
        {
            return self.start(client, "release", Cred::ROOT, request);
        }
        let (kind, request) = self.any_request(client, tidy);
        let Some(request) = self.closes(client, request) else { return Ok(()) };
        let cred = match self.rng.below(4) {
            0 => Cred { uid: 1, gid: 2, groups: Vec::new() },
            _ => Cred::ROOT,
        };
        self.start(client, kind, cred, request)
    }

    /// What any program may ask for. `tidy`: nothing is opened.
    fn any_request(&mut self, client: usize, tidy: bool) -> (&'static str, Request) {
        let mut all = self.knows_all(client);
        let locked = self.clients[client].known.locks.clone();
        loop {
            let slot = &mut self.clients[client];
            let known = all.as_mut().unwrap_or(&mut slot.known);
            let (kind, request) = self.workload.next(known, self.judge.tree());
            let opens = matches!(kind, "open" | "create" | "tmpfile");
            if kind != "lock" && !(tidy && opens) {
                return (kind, request);
            }
            // It is not asked for. Runs without locks go on as if it were, as they always did.
            if self.plan.lock_one_in > 0 {
                slot.known.locks.clone_from(&locked);
            }
        }
    }

    /// Gives a directory to a rank.
    fn pin(&mut self, client: usize) -> Option<Request> {
        let tree = self.judge.tree();
        let is_dir = |place: &&NodeRef| tree.node(place.ino).is_some_and(|node| node.is_dir());
        let known = &self.clients[client].known;
        let all: Vec<NodeRef> = known.places.values().filter(is_dir).copied().collect();
        if all.is_empty() {
            return None;
        }
        let node = all[self.rng.index(all.len())];
        let rank =
            self.rng.below(u64::from(if self.plan.shrinks { self.plan.most } else { self.plan.ranks }));
        let name = Name::new(PIN).ok()?;
        Some(Request::SetXattr {
            node,
            name,
            value: rank.to_string().into_bytes().into(),
            mode: XattrMode::Either,
        })
    }

    /// An operator wants a directory spread, or one that is spread in one part again. Who serves now hears of it.
    fn spread_or_merge(&mut self) -> Verdict {
        let spread = self.judge.spread_dirs();
        if spread.is_empty() || self.rng.chance(1, 2) {
            return self.spread();
        }
        let dir = spread[self.rng.index(spread.len())];
        let Some(life) = self.serving(self.judge.owner(dir)) else { return Ok(()) };
        self.trace.event(self.now, "merge", dir.0, || format!("{life} directory {}", dir.0));
        self.step_rank(life, mds::input::Input::Merge { dir })
    }

    /// An operator tells the rank that has a directory that it is to be spread: one with many names as often as one with few.
    fn spread(&mut self) -> Verdict {
        let tree = self.judge.tree();
        let mut dirs: Vec<_> =
            tree.nodes.values().filter(|node| node.is_dir() && node.ino != Ino::ROOT).collect();
        dirs.sort_by_key(|node| (std::cmp::Reverse(node.entries.len()), node.ino));
        let among = if self.rng.chance(1, 2) { dirs.len().min(3) } else { dirs.len() };
        let Some(dir) = dirs.get(self.rng.index(among)).map(|node| node.ino) else { return Ok(()) };
        let depth = 1 + self.rng.below(2) as u8;
        let Some(life) = self.serving(self.judge.owner(dir)) else { return Ok(()) };
        self.trace.event(self.now, "spread", dir.0, || format!("{life} directory {} by {depth}", dir.0));
        self.step_rank(life, mds::input::Input::Spread { dir, depth })
    }

    /// Hands a call to the machine.
    pub(super) fn start(
        &mut self,
        client: usize,
        kind: &'static str,
        cred: Cred,
        request: Request,
    ) -> Verdict {
        self.calls += 1;
        let call = CallId(self.calls);
        self.trace.event(self.now, "call", call.0, || format!("client {client}: {} {kind}", call.0));
        let guest = self.clients[client].limited.map(|limited| limited.guest);
        let asked = Asked { cred: cred.clone(), request: request.clone(), call: Some(call.0), guest };
        if self.plan.lock_one_in > 0 {
            self.lock_asked(client, call, &request);
        }
        self.judge.sync_begins(client, call.0, &request);
        self.open_asked(client, &request);
        self.judge.begins(call.0, &request);
        self.clients[client].busy.insert(call, Busy { kind, asked, since: self.now, keys: BTreeSet::new() });
        self.step_client(client, Input::Call { call, cred, request })
    }

    /// A caller has its answer.
    pub(super) fn finish(
        &mut self,
        client: usize,
        call: CallId,
        outcome: Outcome,
        validity: &Validity,
    ) -> Verdict {
        let Some(busy) = self.clients[client].busy.remove(&call) else {
            return Err(format!("client {client} answers call {} that is not open", call.0));
        };
        let mut w = Writer::new();
        encode_outcome(&outcome, &mut w);
        self.trace.event(self.now, "finish", call.0 ^ fold(&w.0), || {
            let text = format!("{outcome:?}");
            format!("client {client}: {} {} {text:.120}", call.0, busy.kind)
        });
        let keys: Vec<Key> = busy.keys.iter().copied().collect();
        if self.may_lack_locks(client, &busy.asked.request, &outcome) {
            self.coverage.count("calls refused for locks that were lost");
            self.judge.excuse_call(call.0);
        }
        self.judge.tells(client, &keys, &busy.asked, &outcome);
        self.sync_answered(call, &busy.asked.request, &outcome)?;
        if !self.own_performance(client, call.0, &busy, &outcome)? {
            self.count_own(client, &busy, &outcome);
            let session = self.clients[client].session().unwrap_or_default();
            self.judge.heard(session, &keys, &busy.asked, &outcome)?;
        }
        self.lock_answered(client, call, &busy, &outcome)?;
        self.open_answered(client, call, &busy, &outcome)?;
        self.count_policy(&busy.asked.request, &outcome);
        if keys.len() > 1 {
            self.coverage.count("calls asked of several ranks");
        }
        self.learn(client, &busy, &outcome);
        self.keeps(client, (&busy.asked.request, &outcome), validity, (call.0, busy.since));
        Ok(())
    }

    fn learn(&mut self, client: usize, busy: &Busy, outcome: &Outcome) {
        self.learn_home(client, &busy.asked.request, outcome);
        let known = &mut self.clients[client].known;
        let request = &busy.asked.request;
        if let (Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. }, Ok(reply)) =
            (request, outcome)
            && let Reply::Attr(attr) | Reply::Created { attr, .. } = reply
        {
            known.opens.push(place(attr));
        }
        if let (Request::Lookup { parent, name }, Err(Errno::ENOENT)) = (request, outcome) {
            known.missed = Some((*parent, name.clone()));
        }
        match outcome {
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. } | Reply::Written { attr, .. }) => {
                see(known, attr)
            }
            Ok(Reply::Entries { entries, end }) => {
                entries.iter().filter_map(|entry| entry.attr.as_ref()).for_each(|attr| see(known, attr));
                if let Request::ReadDir { dir, .. } = request {
                    let next = entries.last().filter(|_| !*end).map_or(0, |entry| entry.hash.cookie());
                    known.cursors.insert(dir.ino, next);
                }
            }
            _ => {}
        }
    }
}

const fn place(attr: &Attr) -> NodeRef {
    NodeRef { ino: attr.ino, parent: attr.parent, hash: attr.hash }
}

fn see(known: &mut Knowledge, attr: &Attr) {
    known.places.insert(attr.ino, place(attr));
}
