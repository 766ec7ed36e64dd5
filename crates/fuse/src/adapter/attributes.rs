//! GETATTR, STATX and SETATTR.
//! Absent on purpose: judging who may change what; the kernel did.

use std::sync::Arc;

use proto::request::Request as Ask;

use super::keep::Given;
use super::{About, Shared, convert};
use crate::reply::Reply;
use crate::request::Operation;

impl Shared {
    pub(super) fn attribute_operation(
        self: &Arc<Self>,
        about: About,
        operation: &Operation<'_>,
        reply: Reply,
    ) {
        let About { cred, nodeid, node, .. } = about;
        match operation {
            Operation::SetAttr(set) => {
                let ask = Ask::SetAttr { node, set: convert::set_attr(set) };
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
            Operation::Statx { .. } => {
                self.ask_attr(cred, Ask::GetAttr { node }, reply, move |shared, reply, attr, given| {
                    let timeout = shared.learn(nodeid, &attr, given, false);
                    reply.statx(timeout, &convert::statx(&attr));
                });
            }
            _ => {
                self.ask_attr(cred, Ask::GetAttr { node }, reply, move |shared, reply, attr, given| {
                    shared.answer_attr(reply, nodeid, &attr, given);
                });
            }
        }
    }
}
