//! The session's side of the machine: greeting, resuming, lease.
//!
//! Absent: requests and answers (`machine.rs`); what may be kept (`keep.rs`).

use super::rewrite::Resuming;
use super::{Client, Life, Link, Out, Queued, answer};
use crate::numbers::Numbers;
use crate::output::Output;
use crate::ranktime::RankTime;
use crate::window::Sent;
use proto::message::{ClientMsg, JoinToken, PROTOCOL, ServerMsg};
use proto::request::Request;
use proto::{Cred, Errno, Ino, SessionId};
use stdx::Mono;
use stdx::time::MS;

impl Client {
    pub(super) fn on_connected(&mut self, now: Mono, out: &mut Out) {
        if self.life == Life::Over || self.link != Link::Down {
            return;
        }
        (self.link, self.dismissed) = (Link::Greeting, false);
        let (session, info, wants) = (self.session, self.config.info.clone(), self.config.wants);
        self.renewing = [(0, now)].into();
        let mut at = self.seat.at;
        if session == SessionId(0) {
            at.token = JoinToken::default();
        }
        out.push(Output::Send {
            rank: self.rank(),
            message: ClientMsg::Hello { protocol: PROTOCOL, session, info, wants, at },
        });
    }

    pub(super) fn on_disconnected(&mut self, out: &mut Out) {
        if self.life == Life::Over || self.link == Link::Down {
            return;
        }
        if !self.config.retry {
            return self.end("the rank is gone".to_owned(), out);
        }
        (self.link, self.damaged) = (Link::Down, false);
        self.stop_clocks();
        self.delegations.end_all();
        self.negatives.clear();
        self.idle.clear();
        self.drop_rewrites();
        self.window.kept.disconnected();
        if stdx::mutant!("client_retry_under_new_tid") {
            for pending in self.window.take_all().into_values() {
                let Some(Sent { cred, request }) = pending.sent.map(|sent| *sent) else { continue };
                self.queue.push_back(Queued { call: pending.call, cred, request });
            }
        }
        let stamp = self.validities.disconnected(self.window.next());
        out.push(Output::Lost { stamp });
        if self.life == Life::Closing {
            self.fail_calls(Errno::EIO, out);
        }
    }

    /// A rank that stops or is not ready yet is asked again over the next connection; a session that was
    /// evicted is replaced if that was asked for; one that goes need not be asked again; anything else is the end.
    pub(super) fn on_refused(&mut self, errno: Errno, reason: String, out: &mut Out) {
        // While another session is to take the place of one that was refused, who stops is asked again, too.
        if (self.session == SessionId(0) && !self.replaces) || !self.config.retry {
            return self.end(reason, out);
        }
        match errno {
            Errno::ESHUTDOWN => self.on_disconnected(out),
            Errno::ENOTCONN => {
                self.dismissed = true;
                self.may_be_unknown();
                self.on_disconnected(out);
            }
            Errno::ESTALE if self.config.recover_clean => {
                self.start_over(out);
                (self.session, self.replaces) = (SessionId(0), true);
                self.on_disconnected(out);
            }
            _ => self.end(reason, out),
        }
    }

    pub(super) fn on_welcome(&mut self, now: Mono, message: ServerMsg, out: &mut Out) {
        let ServerMsg::Welcome { protocol, session, incarnation, resumed, lease_ms, root, .. } = message
        else {
            return;
        };
        let ServerMsg::Welcome { synced, former: before, token, .. } = message else { return };
        if protocol != PROTOCOL {
            return self.end(format!("the server speaks protocol {protocol}, not {PROTOCOL}"), out);
        }
        let former = std::mem::replace(&mut self.session, session);
        let joined = std::mem::take(&mut self.seat.at.join);
        self.seat.at.token = token;
        let known = former == SessionId(0) || ((resumed || joined) && former == session);
        if !known && !self.config.recover_clean {
            return self.end(format!("session {} was evicted", former.0), out);
        }
        let root = if stdx::mutant!("client_limited_performs") { Ino::ROOT } else { root };
        (self.root, self.link) = (root, Link::Up);
        // It knows what it counted, and counts nothing again.
        let life = std::mem::replace(&mut self.incarnation, incarnation);
        let lives_on = life == incarnation;
        if !resumed {
            self.unshown = None;
        } else if !lives_on {
            self.unshown = Some(self.window.next());
        }
        // A third of the lease: two renewals may be late before it ends.
        self.lease_ns = u64::from(lease_ms) * MS;
        self.renew_every_ns = self.lease_ns / 3;
        self.renew_at = Some(now.after(self.renew_every_ns));
        self.on_renewed(0);
        out.push(Output::Ready { rank: self.rank() });
        if resumed {
            self.validities.resume(now)
        } else {
            self.validities.begin()
        }
        if !known {
            self.start_over(out);
        }
        // What is open, and what was not synced, goes on in a session that takes the place of one that was refused.
        let replaces = std::mem::take(&mut self.replaces);
        let begins = former == SessionId(0) || (joined && !resumed && self.held.inodes() == 0);
        if !begins || replaces {
            // Of a life in between nothing is known. Not by the number: other ranks' lives have those between.
            self.plan_rewrites(resumed, (synced && before.0 > 0).then_some(before), out);
            self.resume(now, (resumed, lives_on), out);
        }
        self.answer_syncs(out);
    }

    /// The former session was evicted. What it sent is unknown: executed or not, nobody remembers; the
    /// callers get EIO, those who have their results later. Its locks may belong to others by now.
    pub(super) fn start_over(&mut self, out: &mut Out) {
        self.given_back.clear();
        for pending in self.window.take_all().into_values() {
            let outcome = Err(Errno::EIO);
            if let Some(sent) = &pending.sent {
                // It was sent away by the rank in whose books that is still.
                if let Request::Release { node, count } = &sent.request
                    && !self.held.has(node.ino)
                    && !stdx::mutant!("client_closes_where_it_was_sent")
                {
                    self.given_back.push((node.ino, *count));
                }
                self.held.on_answer(&sent.request, &outcome);
            }
            answer(out, pending.call, outcome);
        }
        self.lose_kept(out);
        self.forget_bytes();
        self.held.lose_locks();
        (self.numbers, self.time) = (Numbers::new(), RankTime::new());
    }

    /// Reclaims first, so that no file is purged and no lock granted to another before retried requests
    /// run; then bytes that may be lost; then what is not durable, as it was executed the first time, and what is unanswered.
    fn resume(&mut self, now: Mono, (resumed, lives_on): (bool, bool), out: &mut Out) {
        let again = self.opens_again();
        if !stdx::mutant!("client_no_reclaim") {
            let rank = self.rank();
            out.extend(
                self.held.reclaims(now, &again).into_iter().map(|message| Output::Send { rank, message }),
            );
        }
        out.push(Output::Send { rank: self.rank(), message: ClientMsg::Reclaimed });
        if resumed {
            // The rank says them again right behind its Welcome, however long the bytes take.
            self.numbers.resumed();
        }
        self.rewrites.resuming = Some(Resuming { resumed, lives_on, again });
        self.send_rewrites(out);
    }

    /// What comes after the bytes.
    pub(super) fn go_on(&mut self, Resuming { resumed, lives_on, again }: Resuming, out: &mut Out) {
        self.send_again(out);
        if resumed && self.is_delegable() {
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::Presented });
        }
        if !(resumed && lives_on) || stdx::mutant!("client_releases_twice") {
            self.release_again(again);
        }
    }

    pub(super) fn on_tick(&mut self, now: Mono, out: &mut Out) {
        if self.renew_at.is_some_and(|at| at <= now) {
            self.renewals = self.renewals.wrapping_add(1).max(1);
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::Renew { number: self.renewals } });
            self.renewing.push_back((self.renewals, now));
            self.renew_at = Some(now.after(self.renew_every_ns.max(MS)));
            self.look_for_idle(now);
            if self.link == Link::Up {
                self.unsynced.tidy(self.window.unanswered());
                self.sync_behind();
                self.show_answers();
            }
        }
        self.tick_leaves(now, out);
    }

    /// What an answer of the rank's life before may have opened the rank keeps where it is, until it hears that all answers up to then are
    /// here. Each request says so; who asks for nothing asks this.
    fn show_answers(&mut self) {
        let may = self.life == Life::Serving && self.config.retry && self.is_idle();
        if may && self.unshown.is_some() && !stdx::mutant!("client_floor_not_shown") {
            self.queue.push_back(Queued { call: None, cred: Cred::ROOT, request: Request::StatFs });
        }
    }

    /// A renewal is answered: from when it was sent the lease is good. Those before it will have no answer.
    pub(super) fn on_renewed(&mut self, number: u32) {
        let Some(at) = self.renewing.iter().position(|(sent, _)| *sent == number) else { return };
        let sent = self.renewing.drain(..=at).next_back();
        if let Some((_, sent)) = sent.filter(|_| self.config.retry) {
            self.lease_end = Some(sent.after(self.lease_ns));
        }
    }

    pub(super) fn stop_clocks(&mut self) {
        (self.renew_at, self.lease_end) = (None, None);
        self.renewing.clear();
        self.validities.settle_at = None;
    }
}
