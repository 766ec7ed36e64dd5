//! A file that is opened by its name, or made, where the name is one of several: the inode is the first rank's, and the rank that has the name
//! opens nothing there (EXDEV). So it is looked up, and opened where it is. Is the name gone by then, or the file, all begins anew.
//! docs/PROTOCOL.md, "Hard links".
//!
//! Absent: whom each step is asked (`map.rs`); what comes of an open (`machine/`).

use super::many::Many;
use super::{FIRST, Out};
use crate::input::{CallId, Input};
use crate::validity::Validity;
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags};
use proto::{Cred, Errno, RankId};

/// So often it begins anew. Whoever makes and removes the name all the time may be slower or quicker than this.
const TRIES_MAX: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    LookUp,
    Open,
}

/// One such call.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    cred: Cred,
    create: Request,
    step: Step,
    tries: u8,
}

/// What follows an answer.
enum Then {
    Ask(Request),
    Over(Outcome),
}

impl Opening {
    /// What is asked next, or what the caller is told.
    fn next(&mut self, outcome: Outcome) -> Then {
        let Request::Create { parent, name, flags, .. } = &self.create else { return Then::Over(outcome) };
        let (step, request) = match (self.step, outcome) {
            (Step::Create, Err(Errno::EXDEV)) => {
                (Step::LookUp, Request::Lookup { parent: *parent, name: name.clone() })
            }
            (Step::LookUp, Ok(Reply::Attr(attr))) => {
                (Step::Open, Request::Open { node: attr.node(), flags: *flags })
            }
            (Step::LookUp, Err(Errno::ENOENT)) | (Step::Open, Err(Errno::ESTALE))
                if self.tries < TRIES_MAX =>
            {
                self.tries += 1;
                (Step::Create, self.create.clone())
            }
            (Step::Open, Ok(Reply::Attr(attr))) => {
                return Then::Over(Ok(Reply::Created { attr, new: false }));
            }
            (_, outcome) => return Then::Over(outcome),
        };
        self.step = step;
        Then::Ask(request)
    }
}

impl Many {
    /// A request goes to that rank.
    pub(super) fn note_opening(&mut self, rank: RankId, call: CallId, cred: &Cred, request: &Request) {
        let Request::Create { flags, .. } = request else { return };
        let may_be_elsewhere = rank != FIRST && flags & open_flags::EXCL == 0;
        if may_be_elsewhere && !stdx::mutant!("client_opens_no_link") {
            let (cred, create) = (cred.clone(), request.clone());
            self.openings.entry(call).or_insert(Opening { cred, create, step: Step::Create, tries: 0 });
        }
    }

    /// Takes an answer; what the caller is told, if the call is over with it.
    pub(super) fn opening_goes_on(
        &mut self,
        call: CallId,
        outcome: Outcome,
        validity: &mut Validity,
        out: &mut Out,
    ) -> Option<Outcome> {
        let Some(opening) = self.openings.get_mut(&call) else { return Some(outcome) };
        if opening.step == Step::Open {
            // It was granted of the inode. Of the name, which another rank has, nothing is known.
            *validity = Validity::default();
        }
        match opening.next(outcome) {
            Then::Ask(request) => {
                let cred = opening.cred.clone();
                self.bounces.remove(&call);
                let owner = self.owner(self.place(&request));
                let rank = self.needed(owner, out);
                self.give(rank, Input::Call { call, cred, request });
                None
            }
            Then::Over(outcome) => {
                self.openings.remove(&call);
                Some(outcome)
            }
        }
    }
}
