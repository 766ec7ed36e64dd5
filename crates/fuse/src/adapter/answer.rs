//! Asking the rank and passing its answers on.
//! Absent: which question an operation asks.

use std::sync::Arc;

use ::mount::{Asker, Validity};
use proto::attr::Attr;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Cred, Effect, Errno, Ino, NodeRef};

use super::keep::Given;
use super::{RequestContext, Shared, convert};
use crate::reply::KernelReply;

/// For whom a reply is.
pub(super) fn asker(reply: &KernelReply) -> Asker {
    Asker { unique: reply.unique(), pid: reply.pid() }
}

impl Shared {
    /// Asks the rank; an error goes to the kernel, anything else to `then`.
    pub(super) fn ask(
        self: &Arc<Self>,
        cred: Cred,
        ask: Request,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply, Reply) + Send + 'static,
    ) {
        self.ask_to_keep(cred, ask, reply, |shared, reply, answer, _| then(shared, reply, answer));
    }

    /// The same, with what of the answer may be kept.
    pub(super) fn ask_to_keep(
        self: &Arc<Self>,
        cred: Cred,
        ask: Request,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply, Reply, Validity) + Send + 'static,
    ) {
        let (shared, asker) = (Arc::clone(self), asker(&reply));
        let changes = ask.effect() != Effect::Nothing;
        let inside =
            matches!(ask, Request::ReadDir { .. }) || ask.subject().is_some_and(|(_, name)| name.is_some());
        let done = Box::new(move |outcome: Outcome, validity: Validity| match outcome {
            // What follows a change is not given up: it may be the half that makes it whole.
            Ok(answer) => then(&shared, if changes { reply.to(0) } else { reply }, answer, validity),
            // The directory is gone, by another mount: there is no name in it, as in one that a process stands in when it goes.
            Err(Errno::ESTALE) if inside => reply.error(libc::ENOENT),
            Err(errno) => reply.error(errno.0),
        });
        self.mount.submit_for(asker, cred, ask, done);
    }

    /// Asks for something whose success is all there is to say.
    pub(super) fn done(self: &Arc<Self>, cred: Cred, ask: Request, reply: KernelReply) {
        self.ask(cred, ask, reply, |_, reply, _| reply.ok());
    }

    /// Asks for attributes.
    pub(super) fn ask_attr(
        self: &Arc<Self>,
        cred: Cred,
        ask: Request,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply, Attr, Given) + Send + 'static,
    ) {
        self.ask_to_keep(cred, ask, reply, |shared, reply, answer, validity| {
            let there = matches!(answer, Reply::Created { new: false, .. });
            let (Reply::Attr(attr) | Reply::Created { attr, .. }) = answer else {
                return reply.error(libc::EIO);
            };
            // The kernel may have that node already, and believes the answer to CREATE whatever came meanwhile.
            let given = match there {
                true => Given::of_nothing(&validity),
                false => Given::of(&validity, 0),
            };
            then(shared, reply, attr, given);
        });
    }

    /// Answers when what was answered so far is durable, with what of it came to nothing, if this handle has not heard of that.
    pub(super) fn sync(
        self: &Arc<Self>,
        about: RequestContext,
        fh: u64,
        data_only: bool,
        reply: KernelReply,
    ) {
        let node = about.node;
        let ask = Request::Fsync { node, data_only };
        self.ask(about.cred, ask, reply, move |shared, reply, _| shared.ok_or_late(node.ino, fh, reply));
    }

    /// The end of a sync or a close.
    pub(super) fn ok_or_late(&self, ino: Ino, fh: u64, reply: KernelReply) {
        match self.mount.late_error(ino, fh) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno.0),
        }
    }

    /// The same for everything.
    pub(super) fn sync_all(self: &Arc<Self>, cred: Cred, reply: KernelReply) {
        self.ask(cred, Request::SyncFs, reply, |shared, reply, _| match shared.mount.late_error_of_all() {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno.0),
        });
    }

    /// Goes on when what was answered so far about `node` is durable.
    pub(super) fn after_sync(
        self: &Arc<Self>,
        cred: Cred,
        node: NodeRef,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply) + Send + 'static,
    ) {
        let ask = Request::Fsync { node, data_only: false };
        self.ask(cred, ask, reply, |shared, reply, _| then(shared, reply));
    }

    /// Goes on at once, or under `wsync` when the change in `dir` is durable.
    pub(super) fn after_names(
        self: &Arc<Self>,
        cred: Cred,
        dir: NodeRef,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply) + Send + 'static,
    ) {
        match self.behaviour.sync_names || self.behaviour.sync_all {
            true => self.after_sync(cred, dir, reply, then),
            false => then(self, reply),
        }
    }

    pub(super) fn statfs(self: &Arc<Self>, about: RequestContext, reply: KernelReply) {
        self.ask(about.cred, Request::StatFs, reply, |_, reply, answer| {
            let Reply::StatFs(stat) = answer else { return reply.error(libc::EIO) };
            reply.statfs(&convert::statfs(&stat));
        });
    }
}
