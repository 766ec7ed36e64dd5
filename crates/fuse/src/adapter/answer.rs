//! Asking the rank and passing its answers on.
//! Absent on purpose: which question an operation asks.

use std::sync::Arc;
use std::time::Duration;

use ::mount::Asker;
use proto::attr::Attr;
use proto::reply::Reply as Answer;
use proto::request::Request as Ask;
use proto::{Cred, Effect, NodeRef};

use super::{About, Shared, convert};
use crate::reply::{Entry, Reply};

/// For whom a reply is.
pub(super) fn asker(reply: &Reply) -> Asker {
    Asker { unique: reply.unique(), pid: reply.pid() }
}

impl Shared {
    /// Asks the rank; an error goes to the kernel, anything else to `then`.
    pub(super) fn ask(
        self: &Arc<Self>,
        cred: Cred,
        ask: Ask,
        reply: Reply,
        then: impl FnOnce(&Arc<Self>, Reply, Answer) + Send + 'static,
    ) {
        let (shared, asker) = (Arc::clone(self), asker(&reply));
        let changes = ask.effect() != Effect::Nothing;
        let done = Box::new(move |outcome: proto::reply::Outcome| match outcome {
            // What follows a change is not given up: it may be the half that makes it whole.
            Ok(answer) => then(&shared, if changes { reply.to(0) } else { reply }, answer),
            Err(errno) => reply.error(errno.0),
        });
        self.mount.submit_for(asker, cred, ask, done);
    }

    /// Asks for something whose success is all there is to say.
    pub(super) fn done(self: &Arc<Self>, cred: Cred, ask: Ask, reply: Reply) {
        self.ask(cred, ask, reply, |_, reply, _| reply.ok());
    }

    /// Asks for attributes.
    pub(super) fn ask_attr(
        self: &Arc<Self>,
        cred: Cred,
        ask: Ask,
        reply: Reply,
        then: impl FnOnce(&Arc<Self>, Reply, Attr) + Send + 'static,
    ) {
        self.ask(cred, ask, reply, |shared, reply, answer| match answer {
            Answer::Attr(attr) | Answer::Created { attr, .. } | Answer::Written { attr, .. } => {
                then(shared, reply, attr);
            }
            _ => reply.error(libc::EIO),
        });
    }

    /// Goes on when what was answered so far about `node` is durable.
    pub(super) fn after_sync(
        self: &Arc<Self>,
        cred: Cred,
        node: NodeRef,
        reply: Reply,
        then: impl FnOnce(&Arc<Self>, Reply) + Send + 'static,
    ) {
        let ask = Ask::Fsync { node, data_only: false };
        self.ask(cred, ask, reply, |shared, reply, _| then(shared, reply));
    }

    /// Goes on at once, or under `wsync` when the change in `dir` is durable.
    pub(super) fn after_names(
        self: &Arc<Self>,
        cred: Cred,
        dir: NodeRef,
        reply: Reply,
        then: impl FnOnce(&Arc<Self>, Reply) + Send + 'static,
    ) {
        match self.behaviour.sync_names || self.behaviour.sync_all {
            true => self.after_sync(cred, dir, reply, then),
            false => then(self, reply),
        }
    }

    /// How long the kernel may keep what it is told now. Half of what the rank allows: the other half is
    /// for answers on their way into the kernel, which counts from their arrival.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.mount.ttl_ns() / 2)
    }

    /// Whether what was asked for in `era` may still be cached.
    pub(super) fn may_cache(&self, era: u64) -> bool {
        self.mount.ttl_ns() != 0 && self.era() == era
    }

    /// The kernel's entry for an inode, whose node it thereby counts.
    pub(super) fn entry(&self, attr: &Attr, era: u64) -> Entry {
        let nodeid = self.nodeid(attr.ino);
        self.nodes.learn(nodeid, attr, era, true);
        self.entry_uncounted(attr)
    }

    pub(super) fn entry_uncounted(&self, attr: &Attr) -> Entry {
        let timeout = self.timeout();
        Entry {
            nodeid: self.nodeid(attr.ino),
            generation: u64::from(attr.generation),
            entry_timeout: timeout,
            attr_timeout: timeout,
            attr: convert::attr(attr),
        }
    }

    pub(super) fn answer_attr(&self, reply: Reply, nodeid: u64, attr: &Attr, era: u64) {
        self.nodes.learn(nodeid, attr, era, false);
        reply.attr(self.timeout(), &convert::attr(attr));
    }

    pub(super) fn statfs(self: &Arc<Self>, about: About, reply: Reply) {
        self.ask(about.cred, Ask::StatFs, reply, |_, reply, answer| match answer {
            Answer::StatFs(stat) => reply.statfs(&convert::statfs(&stat)),
            _ => reply.error(libc::EIO),
        });
    }
}
