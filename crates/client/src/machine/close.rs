//! How a client ends: closed when nothing is unanswered, given up on, or refused for good.
//!
//! Absent: how a session ends and another takes its place (`session.rs`).

use super::calls::is_lock_wait;
use super::{Client, Life, Link, Out, Queued, answer};
use crate::output::Output;
use proto::Errno;
use proto::message::ClientMsg;
use std::collections::VecDeque;

impl Client {
    pub(super) fn on_close(&mut self, out: &mut Out) {
        if self.life != Life::Serving {
            return;
        }
        self.life = Life::Closing;
        if self.link != Link::Up {
            // Nobody to say goodbye to; the rank ends the session with its lease. What callers were told still has to come about.
            return self.fail_calls(Errno::EIO, out);
        }
        let (waits, rest) =
            std::mem::take(&mut self.uncredited).into_iter().partition(|q| is_lock_wait(&q.request));
        self.uncredited = rest;
        let waits: VecDeque<Queued> = waits;
        for queued in waits {
            answer(out, queued.call, Err(Errno::EINTR));
        }
        let rank = self.rank();
        for (tid, pending) in self.window.iter_mut().filter(|(_, p)| p.lock_wait && !p.cancelled) {
            pending.cancelled = true;
            out.push(Output::Send { rank, message: ClientMsg::Cancel { tid } });
        }
    }

    /// Nothing is unanswered.
    pub(super) fn is_idle(&self) -> bool {
        self.window.is_empty() && self.queued() == 0 && self.syncs.is_empty()
    }

    /// Closing ends when nothing is unanswered.
    pub(super) fn finish(&mut self, out: &mut Out) {
        if self.life == Life::Closing && self.is_idle() {
            if self.link == Link::Up {
                out.push(Output::Send { rank: self.rank(), message: ClientMsg::Goodbye });
            }
            self.life = Life::Over;
            self.stop_clocks();
            out.push(Output::Closed);
        }
    }

    /// Closing has taken too long.
    pub(super) fn on_give_up(&mut self, out: &mut Out) {
        if self.life == Life::Closing {
            self.fail_all(Errno::EIO, out);
            self.close_unsynced(out);
        }
    }

    fn fail_all(&mut self, sent: Errno, out: &mut Out) {
        self.lose_kept(out);
        self.fail_calls(sent, out);
    }

    /// Answers everything that has no answer: what may have been executed with `sent`.
    pub(super) fn fail_calls(&mut self, sent: Errno, out: &mut Out) {
        for call in std::mem::take(&mut self.syncs).into_values() {
            answer(out, Some(call), Err(sent));
        }
        self.give_up_unanswered();
        for pending in self.window.take_all().into_values() {
            answer(out, pending.call, Err(sent));
        }
        for queued in self.uncredited.drain(..).chain(self.queue.drain(..)) {
            answer(out, queued.call, Err(Errno::ESHUTDOWN));
        }
    }

    /// There will be no session any more.
    pub(super) fn end(&mut self, reason: String, out: &mut Out) {
        let closing = self.life == Life::Closing;
        // It may be another life of the rank that greets so. One that ends a session which stands has its bytes.
        let greeted = self.link == Link::Greeting;
        self.life = Life::Over;
        self.link = Link::Down;
        self.stop_clocks();
        self.fail_all(Errno::EIO, out);
        if greeted && !stdx::mutant!("client_refused_keeps_silent") {
            self.close_unsynced(out);
        }
        self.lose(out);
        out.push(Output::Refused { reason });
        if closing {
            out.push(Output::Closed);
        }
    }
}
