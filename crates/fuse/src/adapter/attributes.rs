//! GETATTR, STATX and SETATTR.
//! Absent on purpose: judging who may change what; the kernel did.

use std::sync::Arc;

use proto::request::Request as Ask;

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
        let About { cred, nodeid, node } = about;
        let era = self.era();
        match operation {
            Operation::SetAttr(set) => {
                let ask = Ask::SetAttr { node, set: convert::set_attr(set) };
                self.ask_attr(cred.clone(), ask, reply, move |shared, reply, attr| {
                    if !shared.behaviour.sync_all {
                        return shared.answer_attr(reply, nodeid, &attr, era);
                    }
                    shared.after_sync(cred, node, reply, move |shared, reply| {
                        shared.answer_attr(reply, nodeid, &attr, era);
                    });
                });
            }
            Operation::Statx { .. } => {
                self.ask_attr(cred, Ask::GetAttr { node }, reply, move |shared, reply, attr| {
                    shared.nodes.learn(nodeid, &attr, era, false);
                    reply.statx(shared.timeout(), &convert::statx(&attr));
                });
            }
            _ => {
                self.ask_attr(cred, Ask::GetAttr { node }, reply, move |shared, reply, attr| {
                    shared.answer_attr(reply, nodeid, &attr, era);
                });
            }
        }
    }
}
