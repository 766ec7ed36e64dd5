//! Files whose bytes a crash may have taken: those that the journal's tail says were written. It also says by whom, in which order,
//! and so who may rewrite them: docs/PROTOCOL.md, "Bytes".
//!
//! A session keeps what it wrote until it is synced. After a crash its bytes go where they were, unless others may have changed bytes
//! at the same place since: then old bytes would come over new ones, which may have been synced. What is appended is at no such
//! place, and in a file that was emptied there is none.
//!
//! Absent: the bytes; writing them (`ops/rewrite.rs`). What is before the tail was synced by the checkpoint.

use crate::op::Op;
use crate::rank::Rank;
use proto::dentry::DentryValue;
use proto::every_reply;
use proto::inode::InodeCore;
use proto::journal::{Mutations, TxnOrigin};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::Request;
use proto::{Errno, Ino, Reader, SessionId, Tid};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;

/// One file.
#[derive(Debug, Default)]
struct Written {
    /// Size and time of change as they were stated last.
    stated: Option<(u64, Wall)>,
    /// What each session wrote, as long as nothing that others did can be at the same place.
    wrote: BTreeMap<SessionId, BTreeSet<Tid>>,
    /// Their writes came before such a change, or could not be repeated.
    late: BTreeSet<SessionId>,
    /// They have changed it in this life of the rank: what they had to rewrite came before that.
    go_on: BTreeSet<SessionId>,
}

/// What is to become of bytes that are to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Write,
    /// They are there.
    There,
    Lost,
}

/// What a transaction that states an inode is of.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Of the rank itself: none.
    by: Option<(SessionId, Tid)>,
    /// Bytes that it wrote, if it is of a write or copy.
    count: Option<u64>,
    /// It was answered with attributes: of bytes it changed none but those that the size tells.
    attributes: bool,
    /// It is one of this life.
    lives: bool,
}

/// All files of the tail, until bytes that are lost cannot be told from those that are not.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    files: BTreeMap<Ino, Written>,
    over: bool,
}

impl Written {
    /// Bytes changed, and the size and time with them.
    fn change(&mut self, size: u64, before: Option<(u64, Wall)>, Change { by, count, lives, .. }: Change) {
        let session = by.map(|(session, _)| session);
        let appends =
            count.is_some_and(|count| before.is_some_and(|(end, _)| size == end.saturating_add(count)));
        if size == 0 {
            // Nothing is left that could be old or new.
            self.wrote.clear();
            self.late.clear();
        } else if !appends && !stdx::mutant!("mds_rewrite_over_others") {
            let others = self.wrote.extract_if(.., |writer, _| Some(*writer) != session);
            self.late.extend(others.map(|(writer, _)| writer));
        }
        if let (Some(session), true) = (session, lives) {
            self.go_on.insert(session);
        }
        if let (Some((session, tid)), Some(_), false) = (by, count, lives) {
            self.wrote.entry(session).or_default().insert(tid);
        }
    }
}

impl Tail {
    /// A transaction states this inode.
    fn stated(&mut self, core: &InodeCore, change: Change) {
        let InodeCore { ino, size, mtime, ctime, .. } = *core;
        if change.count.is_some() && !change.lives {
            self.files.entry(ino).or_default();
        }
        let Some(file) = self.files.get_mut(&ino) else { return };
        let before = file.stated.replace((size, mtime));
        // Names, modes and owners are not where bytes are; two changes can have one time.
        let is_quiet = change.attributes || (before.is_some_and(|(_, at)| at == mtime) && ctime != mtime);
        let is_elsewhere = is_quiet && before.is_some_and(|(end, _)| end == size);
        if change.count.is_some() || !is_elsewhere {
            file.change(size, before, change);
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
            Some(file) if file.go_on.contains(&session) => Verdict::There,
            Some(file) if file.wrote.get(&session).is_some_and(|tids| tids.contains(&wrote)) => {
                Verdict::Write
            }
            Some(_) => before,
        }
    }

    /// Bytes of a session could not be rewritten.
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
        let result = origin.map(|origin| decode_outcome(&mut Reader::new(origin.result)));
        let (count, attributes) = match result {
            Some(Ok(Ok(Reply::Written { count, .. }))) => (Some(count), false),
            Some(Ok(Ok(Reply::Attr(_) | Reply::Created { .. }))) => (None, true),
            Some(Ok(Ok(every_reply!()) | Err(_)) | Err(_)) | None => (None, false),
        };
        if tail.files.is_empty() && count.is_none() {
            return;
        }
        let by = origin.map(|origin| (origin.session, origin.tid));
        let change = Change { by, count, attributes, lives };
        for mutation in Mutations::new(mutations).flatten() {
            if let Mutation::PutDentry { value, .. } = mutation
                && let Ok(DentryValue::Primary(record)) = DentryValue::decode(value)
            {
                tail.stated(&record.core, change);
            }
        }
    }

    /// Whether bytes may still be rewritten, so that a checkpoint that syncs all has to come after them. Not while somebody
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

    fn change(by: Option<(SessionId, u64)>, count: Option<u64>, lives: bool) -> Change {
        let by = by.map(|(session, tid)| (session, Tid(tid)));
        Change { by, count, attributes: false, lives }
    }

    /// The file is this long, and was changed then, its bytes and all else.
    fn core(size: u64, mtime: i64, ctime: i64) -> InodeCore {
        InodeCore { ino: FILE, size, mtime: Wall(mtime), ctime: Wall(ctime), ..InodeCore::default() }
    }

    /// A write of ten bytes that leaves the file this long.
    fn write(tail: &mut Tail, session: SessionId, tid: u64, size: u64) {
        let at = tid as i64;
        tail.stated(&core(size, at, at), change(Some((session, tid)), Some(10), false));
    }

    #[test]
    fn only_who_wrote_last_writes_again() {
        let mut tail = Tail::default();
        assert_eq!(tail.verdict(A, FILE, Tid(1), true), Verdict::There, "a checkpoint has synced it");
        assert_eq!(tail.verdict(A, FILE, Tid(1), false), Verdict::Lost, "in which life is not known");
        write(&mut tail, A, 5, 20);
        assert_eq!(tail.verdict(A, FILE, Tid(5), false), Verdict::Write);
        assert_eq!(tail.verdict(A, FILE, Tid(4), true), Verdict::There);
        write(&mut tail, B, 6, 20);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        assert_eq!(tail.verdict(B, FILE, Tid(6), true), Verdict::Write);
        // Whatever it was that the rank did by itself.
        tail.stated(&core(15, 7, 7), change(None, None, true));
        assert_eq!(tail.verdict(B, FILE, Tid(6), true), Verdict::Lost);
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn bytes_of_others_or_of_an_unknown_life_are_caught() {
        for defect in ["mds_rewrite_over_others", "mds_rewrite_life_ignored"] {
            stdx::mutant::activate(Some(defect));
            let verdict = std::panic::catch_unwind(only_who_wrote_last_writes_again);
            stdx::mutant::activate(None);
            assert!(verdict.is_err(), "{defect}");
        }
    }

    #[test]
    fn what_others_append_or_do_to_the_inode_is_not_in_the_way() {
        let mut tail = Tail::default();
        write(&mut tail, A, 5, 20);
        write(&mut tail, B, 6, 30);
        // A link, a new mode: the bytes are where they were.
        tail.stated(&core(30, 6, 7), change(Some((B, 7)), None, false));
        // Other times, as `touch` sets them.
        let touch = Change { attributes: true, ..change(Some((B, 7)), None, false) };
        tail.stated(&core(30, 7, 7), touch);
        write(&mut tail, A, 8, 40);
        for (session, tid) in [(A, 5), (B, 6), (A, 8)] {
            assert_eq!(tail.verdict(session, FILE, Tid(tid), true), Verdict::Write, "{session:?} {tid}");
        }
        // As long as before, but zeroed somewhere, perhaps; within the same moment, even.
        for at in [9, 8] {
            let mut tail = Tail::default();
            write(&mut tail, A, 8, 40);
            tail.stated(&core(40, at, at), change(Some((B, 9)), None, false));
            assert_eq!(tail.verdict(A, FILE, Tid(8), true), Verdict::Lost);
        }
        let cut = Change { attributes: true, ..change(Some((B, 9)), None, false) };
        tail.stated(&core(35, 9, 9), cut);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
    }

    #[test]
    fn of_an_emptied_file_nothing_is_lost() {
        let mut tail = Tail::default();
        write(&mut tail, A, 5, 20);
        write(&mut tail, B, 6, 20);
        tail.stated(&core(0, 7, 7), change(Some((B, 7)), None, false));
        write(&mut tail, B, 8, 10);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::There);
        assert_eq!(tail.verdict(B, FILE, Tid(6), true), Verdict::There);
        assert_eq!(tail.verdict(B, FILE, Tid(8), true), Verdict::Write);
    }

    #[test]
    fn what_comes_again_after_a_change_of_this_life_is_there() {
        let mut tail = Tail::default();
        write(&mut tail, A, 5, 20);
        tail.stated(&core(20, 9, 9), change(Some((A, 9)), Some(10), true));
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::There, "it was written before that");
        tail.failed(A, FILE);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        tail.end();
        assert_eq!(tail.verdict(B, FILE, Tid(5), true), Verdict::Lost);
    }
}
