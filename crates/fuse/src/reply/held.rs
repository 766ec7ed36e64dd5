//! A reply that keeps the data of its WRITE request, for handlers that answer without a session: the null responder, tests.
//! Absent: data that outlives the reply ([`KernelReply::lend`]).

use super::KernelReply;

impl KernelReply {
    /// Keeps the data of a WRITE readable, uncopied, until the answer; of other requests nothing is kept.
    pub fn hold(self) -> Held {
        Held { reply: self }
    }
}

/// A reply together with the data of its WRITE request.
#[derive(Debug)]
#[must_use = "a dropped reply answers EIO"]
pub struct Held {
    reply: KernelReply,
}

impl Held {
    /// What the caller wrote.
    pub fn data(&self) -> &[u8] {
        self.reply.channel.data()
    }

    /// Gives the data up, to answer.
    pub fn into_reply(self) -> KernelReply {
        self.reply
    }
}
