//! What this client does not use any more it offers to the rank, many inodes in one message: files of which pages may be kept,
//! directories and files that are delegated. The rank asks for them by recalls like any other, so nothing that is on its way can
//! be given back by mistake. docs/PROTOCOL.md, "Idle".
//!
//! Absent: names and attributes, which run out by themselves; the mount in the server's process, where the rank's own clock does.

use super::{Client, Life, Link, Out};
use crate::output::Output;
use crate::uses::{Bounds, State, Uses};
use proto::Ino;
use proto::caps::Bits;
use proto::every_request;
use proto::message::ClientMsg;
use proto::request::Request;
use stdx::Mono;
use stdx::time::MS;

/// Offered at a time: the rank has no more recalls to make room under way than twice as many.
const BATCH: usize = 512;
/// Between two offers.
const PAUSE_NS: u64 = 100 * MS;

/// What does not run out by itself.
#[derive(Clone, Debug)]
pub(super) struct Idle {
    /// Files of which pages may be kept.
    pages: Uses,
    dirs: Uses,
    files: Uses,
    /// When to look.
    pub(super) at: Option<Mono>,
}

impl Idle {
    pub(super) const fn new() -> Self {
        Self { pages: Uses::new(), dirs: Uses::new(), files: Uses::new(), at: None }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    fn soon(&mut self, now: Mono) {
        let at = now.after(PAUSE_NS);
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
    }
}

impl Client {
    fn pages_max(&self) -> usize {
        match self.config.info.caps_max {
            0 => self.config.limits.files_kept_max,
            most => (most as usize).min(self.config.limits.files_kept_max),
        }
    }

    /// An answer of the rank, or of this client, leaves pages to be kept.
    pub(super) fn may_keep_pages(&mut self, now: Mono, ino: Ino, granted: Bits) {
        if granted.has(Bits::FC) && self.config.retry {
            self.idle.pages.used(ino, now);
            if self.idle.pages.len() > self.pages_max() {
                self.idle.soon(now);
            }
        }
    }

    pub(super) fn is_delegated_now(&mut self, now: Mono, ino: Ino) {
        if self.delegations.get(ino).is_some() {
            self.idle.dirs.used(ino, now);
        } else if self.delegations.newborns.is_delegated(ino) {
            self.idle.files.used(ino, now);
        }
    }

    /// This client has performed a request.
    pub(super) fn performed_in(&mut self, now: Mono, request: &Request, made: Ino) {
        for (dir, _) in request.changed_names() {
            self.idle.dirs.used(dir, now);
        }
        match request {
            Request::MkDir { .. } => self.idle.dirs.used(made, now),
            Request::SetAttr { node, .. } | Request::Write { node, .. }
                if self.delegations.newborns.is_delegated(node.ino) =>
            {
                self.idle.files.used(node.ino, now);
            }
            every_request!() => {}
        }
    }

    /// The rank has pages of it back, or is about to.
    pub(super) fn keeps_no_pages(&mut self, ino: Ino) {
        self.idle.pages.gone(ino);
    }

    /// The kernel does not know the inode any more.
    pub(super) fn on_forgotten(&mut self, now: Mono, ino: Ino) {
        if self.idle.pages.forgotten(ino) {
            self.idle.soon(now);
        }
    }

    /// With each renewal of the lease it is looked at what has grown old.
    pub(super) fn look_for_idle(&mut self, now: Mono) {
        self.idle.at = self.config.retry.then_some(now);
    }

    /// Offers what is idle or too much.
    pub(super) fn offer(&mut self, now: Mono, out: &mut Out) {
        let most = self.config.limits.delegated_max;
        // One who fills directory after directory does so faster than any clock: some more than there may be are soon too many.
        let many = most + most / 16;
        let full = self.idle.dirs.len() > many || self.idle.files.len() > many;
        let due = self.idle.at.is_some_and(|at| at <= now);
        if !(full || due) {
            return;
        }
        if self.link != Link::Up || self.life != Life::Serving || !self.validities.is_settled() {
            // The next renewal is soon enough.
            self.idle.at = None;
            return;
        }
        let idle_ns = self.config.limits.idle_ns;
        let bounds = Bounds { idle_ns, most, batch: BATCH };
        let delegated = |is: bool| if is { State::Idle } else { State::Gone };
        let delegations = &self.delegations;
        let mut list = self.idle.dirs.take(now, bounds, |dir| delegated(delegations.get(dir).is_some()));
        let is_file = |ino| delegated(delegations.newborns.is_delegated(ino));
        list.append(&mut self.idle.files.take(now, Bounds { batch: BATCH - list.len(), ..bounds }, is_file));
        if due {
            self.idle.at = None;
            let bounds = Bounds { idle_ns, most: self.pages_max(), batch: BATCH - list.len() };
            let held = &self.held;
            let open = |ino| if held.opens(ino) > 0 { State::Busy } else { State::Idle };
            list.append(&mut self.idle.pages.take(now, bounds, open));
            if list.len() >= BATCH || self.idle.pages.len() > bounds.most {
                self.idle.soon(now);
            }
        }
        // Of those that had to make room here the rank does not know it yet.
        list.append(&mut self.delegations.take_displaced());
        if !list.is_empty() {
            out.push(Output::Send { rank: self.rank(), message: ClientMsg::Idle { list } });
        }
    }
}
