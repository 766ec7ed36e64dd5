//! How each message of a client is treated on its way to the rank: one table for everyone who holds messages back, lets them pass
//! each other or counts them. docs/PROTOCOL.md, "Early answers" and "Delegated directories".
//!
//! Absent: who does so: the mount's link, the listener, the driver's gate, the session's line in the rank.

use super::{ClientMsg, ServerMsg};
use crate::caps::Returned;
use crate::ids::Tid;
use crate::request::Request;

/// A message's row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// On its connection it may overtake messages like it, and be overtaken by them: no caller can tell.
    pub overtakes: bool,
    /// What of its session, before it in the stream, it may not overtake.
    pub behind: Behind,
    /// While a backup copies the driver holds it back, whatever is before it.
    pub held_back: bool,
}

/// What a message keeps its place behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    Nothing,
    /// What the session performed: it may build on that, or says that it is over.
    Performed,
    /// The same, for those of its items that are delegated: what came of that was performed.
    PerformedIfDelegated,
    /// The request that it takes back: before that the rank would not know what it is about.
    Request(Tid),
}

const fn class(overtakes: bool, behind: Behind, held_back: bool) -> Class {
    Class { overtakes, behind, held_back }
}

impl ClientMsg {
    /// Its row in the table.
    ///
    /// `Performed` overtakes nothing: its caller has its result, and whoever asks next must find it so. Nor does `Returned`: which
    /// of two answers to recalls of one inode came first, and whether before `Settled`, the rank must see. `Idle` is held back as
    /// requests are: nobody waits for what is offered, and recalls are unrest.
    #[inline]
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            //                                     overtakes, behind, held back
            // Locks that are given back, too: whoever gets them next must find what their holder did before.
            Self::Request { .. } => class(true, Behind::Performed, true),
            Self::Performed { .. } => class(false, Behind::Performed, true),
            Self::Idle { .. } => class(false, Behind::Performed, true),
            Self::Presented => class(false, Behind::Performed, false),
            Self::Settled => class(false, Behind::Performed, false),
            Self::Goodbye => class(false, Behind::Performed, false),
            Self::Returned { .. } => class(false, Behind::PerformedIfDelegated, false),
            Self::Cancel { tid } => class(false, Behind::Request(*tid), false),
            Self::Renew { .. } => class(true, Behind::Nothing, false),
            Self::Hello { .. } => class(false, Behind::Nothing, false),
            Self::Reclaim { .. } => class(false, Behind::Nothing, false),
            Self::Reclaimed => class(false, Behind::Nothing, false),
            Self::Admin { .. } => class(false, Behind::Nothing, false),
            Self::RankHello { .. } => class(false, Behind::Nothing, false),
            Self::WantMap { .. } => class(true, Behind::Nothing, false),
            Self::CapsMax { .. } => class(false, Behind::Nothing, false),
        }
    }

    /// What it asks to be done, under which number: it may make the journal longer, and counts until it is answered.
    #[inline]
    #[must_use]
    pub const fn asked(&self) -> Option<(Tid, &Request)> {
        match self {
            Self::Request { tid, request, .. } | Self::Performed { tid, request, .. } => {
                Some((*tid, request))
            }
            Self::Hello { .. }
            | Self::Cancel { .. }
            | Self::Renew { .. }
            | Self::Reclaim { .. }
            | Self::Reclaimed
            | Self::Goodbye
            | Self::Admin { .. }
            | Self::Returned { .. }
            | Self::Settled
            | Self::Presented
            | Self::Idle { .. }
            | Self::RankHello { .. }
            | Self::WantMap { .. }
            | Self::CapsMax { .. } => None,
        }
    }

    /// Whether it gives back something that was used without asking.
    #[must_use]
    pub fn gives_back_delegated(&self) -> bool {
        matches!(self, Self::Returned { list } if list.iter().any(Returned::is_delegated))
    }

    /// Whether its caller has its result already.
    #[inline]
    #[must_use]
    pub const fn is_performed(&self) -> bool {
        matches!(self, Self::Performed { .. })
    }
}

impl ServerMsg {
    /// The request that is not under way any more: it was answered, or sent away.
    #[inline]
    #[must_use]
    pub const fn ended(&self) -> Option<Tid> {
        match self {
            Self::Reply { tid, .. }
            | Self::Granted { tid, .. }
            | Self::Early { tid, .. }
            | Self::Done { tid, .. }
            | Self::NotMine { tid, .. } => Some(*tid),
            Self::Welcome { .. }
            | Self::Refused { .. }
            | Self::Admin { .. }
            | Self::Recall { .. }
            | Self::Renewed { .. }
            | Self::Durable { .. }
            | Self::Numbers { .. }
            | Self::Damaged
            | Self::Join { .. }
            | Self::Map { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Cred;
    use crate::message::Told;

    fn asks(request: Request) -> ClientMsg {
        ClientMsg::Request { tid: Tid(7), floor: Tid(1), cred: Cred::ROOT, request }
    }

    fn performed() -> ClientMsg {
        let (tid, cred, told) = (Tid(8), Cred::ROOT, Told::default());
        ClientMsg::Performed { tid, floor: tid, cred, told, request: Request::SyncFs }
    }

    #[test]
    fn only_requests_and_renewals_pass_each_other() {
        let ordered = [
            performed(),
            ClientMsg::Cancel { tid: Tid(7) },
            ClientMsg::Returned { list: Vec::new() },
            ClientMsg::Idle { list: Vec::new() },
            ClientMsg::Settled,
            ClientMsg::Presented,
            ClientMsg::Reclaimed,
            ClientMsg::Goodbye,
        ];
        assert!(ordered.iter().all(|message| !message.class().overtakes));
        assert!(asks(Request::SyncFs).class().overtakes && ClientMsg::Renew { number: 1 }.class().overtakes);
    }

    #[test]
    fn what_asks_for_something_is_held_back_and_counted() {
        for message in [asks(Request::SyncFs), performed()] {
            assert!(message.class().held_back && message.asked().is_some(), "{message:?}");
        }
        assert!(ClientMsg::Goodbye.asked().is_none() && !ClientMsg::Goodbye.class().held_back);
    }
}
