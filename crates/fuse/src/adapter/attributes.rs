//! GETATTR, STATX and SETATTR.
//! Absent: judging who may change what; the kernel did.

use std::sync::Arc;

use ::mount::Validity;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Errno};

use super::answer::asker;
use super::keep::{Given, Way};
use super::{RequestContext, Shared, convert};
use crate::reply::KernelReply;
use crate::request::Operation;
use crate::request::groups::{
    data_operations, listing_operations, lock_operations, mount_operations, name_operations, xattr_operations,
};

impl Shared {
    pub(super) fn attribute_operation(
        self: &Arc<Self>,
        about: RequestContext,
        operation: &Operation<'_>,
        reply: KernelReply,
    ) {
        let RequestContext { nodeid, node, .. } = about;
        match operation {
            Operation::SetAttr(set) => {
                let cred = about.cred;
                let ask = Request::SetAttr { node, set: convert::set_attr(set) };
                self.ask_attr(cred.clone(), ask, reply, move |shared, reply, attr, _| {
                    // The kernel believes this answer whatever it was told meanwhile: nothing of it is kept.
                    let given = Given::default();
                    if !shared.behaviour.sync_all {
                        return shared.answer_attr(reply, nodeid, &attr, given);
                    }
                    shared.after_sync(cred, node, reply, move |shared, reply| {
                        shared.answer_attr(reply, nodeid, &attr, given);
                    });
                });
            }
            Operation::Statx { .. } => self.stat(about, reply, move |shared, reply, attr, given| {
                let timeout = shared.learn(nodeid, attr, given, Way::Asked);
                reply.statx(timeout, &convert::statx(attr));
            }),
            Operation::GetAttr { .. } => self.stat(about, reply, move |shared, reply, attr, given| {
                shared.answer_attr(reply, nodeid, attr, given);
            }),
            // `Adapter::handle` sends these elsewhere.
            name_operations!()
            | xattr_operations!()
            | listing_operations!()
            | lock_operations!()
            | data_operations!()
            | mount_operations!() => reply.error(libc::EIO),
        }
    }

    /// Asks for attributes, and answers with what remains of a directory that another mount removed: who stands in it, or has it
    /// open, goes on as in one that was removed here, and finds no name in it.
    fn stat(
        self: &Arc<Self>,
        about: RequestContext,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, KernelReply, &Attr, Given) + Send + 'static,
    ) {
        let RequestContext { cred, nodeid, node, .. } = about;
        let (shared, asker) = (Arc::clone(self), asker(&reply));
        let done = Box::new(move |outcome: Outcome, validity: Validity| match outcome {
            Ok(Reply::Attr(attr)) => then(&shared, reply, &attr, Given::of(&validity, 0)),
            Ok(_) => reply.error(libc::EIO),
            Err(Errno::ESTALE) => match shared.nodes.attr_of_removed(nodeid) {
                Some(attr) => then(&shared, reply, &attr, Given::default()),
                None => reply.error(libc::ESTALE),
            },
            Err(errno) => reply.error(errno.0),
        });
        self.mount.submit_for(asker, cred, Request::GetAttr { node }, done);
    }
}
