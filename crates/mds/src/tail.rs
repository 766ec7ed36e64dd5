//! Files whose bytes a crash may have taken: those that the journal's tail says were written. It also says by whom, in which order,
//! and so who may write them once more: docs/PROTOCOL.md, "Bytes".
//!
//! A session keeps what it wrote until it is synced. After a crash its bytes go where they were, unless anybody else has changed
//! the file since: then old bytes would come over new ones, which may have been synced.
//!
//! Absent: the bytes; writing them (`ops/rewrite.rs`). What is before the tail was synced by the checkpoint.

use crate::op::Op;
use crate::rank::Rank;
use proto::dentry::DentryValue;
use proto::journal::{Mutations, TxnOrigin};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::Request;
use proto::{Errno, Ino, Reader, SessionId, Tid};
use std::collections::{BTreeMap, BTreeSet};

/// One file.
#[derive(Debug, Default)]
struct Written {
    /// Who changed it last; none: not a session that can say so.
    owner: Option<SessionId>,
    /// Its writes since somebody else had changed the file.
    wrote: BTreeSet<Tid>,
    /// Their writes came before a change by somebody else, or could not be repeated.
    late: BTreeSet<SessionId>,
    /// The owner has changed it in this life of the rank: what it had to write once more came before that.
    goes_on: bool,
}

/// What is to become of bytes that are to be written once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Write,
    /// They are there.
    There,
    Lost,
}

/// All files of the tail, until bytes that are lost cannot be told from those that are not.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    files: BTreeMap<Ino, Written>,
    over: bool,
}

impl Tail {
    /// A transaction states this inode. `wrote`: it is of a write. `lives`: it is one of this life.
    fn stated(&mut self, ino: Ino, origin: Option<(SessionId, Tid)>, wrote: bool, lives: bool) {
        if wrote && !lives {
            self.files.entry(ino).or_default();
        }
        let Some(file) = self.files.get_mut(&ino) else { return };
        let session = origin.map(|(session, _)| session);
        if file.owner != session && !stdx::mutant!("mds_rewrite_over_others") {
            file.late.extend(file.owner.take());
            (file.owner, file.goes_on) = (session, false);
            file.wrote.clear();
        }
        file.goes_on |= lives;
        if let Some((_, tid)) = origin.filter(|_| wrote && !lives) {
            file.wrote.insert(tid);
        }
    }

    /// `follows`: this life of the rank comes right after that in which the bytes were there.
    fn verdict(&self, session: SessionId, ino: Ino, wrote: Tid, follows: bool) -> Verdict {
        let follows = follows || stdx::mutant!("mds_rewrite_life_ignored");
        let before = if follows { Verdict::There } else { Verdict::Lost };
        match self.files.get(&ino) {
            _ if self.over => Verdict::Lost,
            None => before,
            Some(file) if file.late.contains(&session) => Verdict::Lost,
            Some(file) if file.owner != Some(session) => before,
            Some(file) if file.goes_on => Verdict::There,
            Some(file) if file.wrote.contains(&wrote) => Verdict::Write,
            Some(_) => before,
        }
    }

    /// Bytes of a session could not be written once more.
    pub(crate) fn failed(&mut self, session: SessionId, ino: Ino) {
        self.files.entry(ino).or_default().late.insert(session);
    }

    /// The next life of the rank will not find these transactions: what is not written by now is lost.
    pub(crate) fn end(&mut self) {
        self.files.clear();
        self.over = true;
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }
}

impl Rank {
    /// A transaction, of the tail or of this life.
    pub(crate) fn note_tail(&mut self, origin: Option<&TxnOrigin<'_>>, mutations: &[u8], lives: bool) {
        let tail = &mut self.view.tail;
        if tail.over || (lives && tail.files.is_empty()) {
            return;
        }
        let wrote = origin.is_some_and(|origin| {
            matches!(decode_outcome(&mut Reader::new(origin.result)), Ok(Ok(Reply::Written { .. })))
        });
        if tail.files.is_empty() && !wrote {
            return;
        }
        let origin = origin.map(|origin| (origin.session, origin.tid));
        for mutation in Mutations::new(mutations).flatten() {
            if let Mutation::PutDentry { value, .. } = mutation
                && let Ok(value) = DentryValue::decode(value)
            {
                tail.stated(value.ino(), origin, wrote, lives);
            }
        }
    }

    /// Whether bytes may still be written once more, so that a checkpoint that syncs all has to come after them. Not while somebody
    /// waits for the room that it makes in the journal.
    pub(crate) fn awaits_rewrites(&self) -> bool {
        !self.presenting.is_empty()
            && self.state.serves()
            && self.pace.waiting.is_empty()
            && !self.view.tail.is_over()
    }

    /// What comes of a `Rewrite`, if nothing has to be written.
    pub(crate) fn rewrite_outcome(&mut self, op: &mut Op) -> Option<Outcome> {
        let Request::Rewrite { node, wrote, life, append, offset, data } = &mut op.request else {
            return None;
        };
        if op.told.is_none() {
            return Some(Err(Errno::EINVAL));
        }
        let follows = life.0.checked_add(1) == Some(self.view.config.incarnation.0);
        match self.view.tail.verdict(op.session, node.ino, *wrote, follows) {
            Verdict::There => return Some(Ok(Reply::Ok)),
            Verdict::Lost => return Some(Err(Errno::EIO)),
            Verdict::Write => {}
        }
        // What came of it says where it was appended, and how much of it was taken.
        let results = &self.sessions.map.get(&op.session)?.results;
        let result = results.get(*wrote).map(|result| decode_outcome(&mut Reader::new(&result.bytes)));
        match result {
            Some(Ok(Ok(Reply::Written { count, attr }))) => {
                if *append {
                    (*append, *offset) = (false, attr.size.saturating_sub(count));
                }
                if count < data.len() {
                    *data = data.bytes()[..count as usize].to_vec().into();
                }
                None
            }
            // Its client knew where.
            _ if !*append => None,
            _ => Some(Err(Errno::EIO)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const FILE: Ino = Ino(7);

    fn write(tail: &mut Tail, session: SessionId, tid: u64) {
        tail.stated(FILE, Some((session, Tid(tid))), true, false);
    }

    #[test]
    fn only_who_wrote_last_writes_again() {
        let mut tail = Tail::default();
        assert_eq!(tail.verdict(A, FILE, Tid(1), true), Verdict::There, "a checkpoint has synced it");
        assert_eq!(tail.verdict(A, FILE, Tid(1), false), Verdict::Lost, "in which life is not known");
        write(&mut tail, A, 5);
        assert_eq!(tail.verdict(A, FILE, Tid(5), false), Verdict::Write);
        assert_eq!(tail.verdict(A, FILE, Tid(4), true), Verdict::There);
        write(&mut tail, B, 5);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        assert_eq!(tail.verdict(B, FILE, Tid(5), true), Verdict::Write);
        // Whatever it was that the rank did by itself.
        tail.stated(FILE, None, false, true);
        assert_eq!(tail.verdict(B, FILE, Tid(5), true), Verdict::Lost);
    }

    #[test]
    fn what_comes_again_after_a_change_of_this_life_is_there() {
        let mut tail = Tail::default();
        write(&mut tail, A, 5);
        tail.stated(FILE, Some((A, Tid(9))), true, true);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::There, "it was written before that");
        tail.failed(A, FILE);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        tail.end();
        assert_eq!(tail.verdict(B, FILE, Tid(5), true), Verdict::Lost);
    }
}
