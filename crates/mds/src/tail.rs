//! Files whose bytes a crash may have taken: those that the journal's tail says were written. It also says by whom, in which order,
//! and so who may rewrite them: docs/PROTOCOL.md, "Bytes".
//!
//! A session keeps what it wrote until it is synced. After a crash its bytes go where they were, unless others may have changed bytes
//! at the same place since: then old bytes would come over new ones, which may have been synced. What is appended is at no such
//! place, and in a file that was emptied there is none. What was another rank's since was synced when it left, and what was done to it
//! there no journal here tells.
//!
//! Absent: the bytes; writing them (`ops/rewrite.rs`). What is before the tail was synced by the checkpoint.

use crate::cache::Source;
use crate::op::Op;
use crate::rank::Rank;
use proto::dentry::DentryValue;
use proto::every_reply;
use proto::inode::InodeCore;
use proto::journal::{Mutations, TxnOrigin};
use proto::mutation::Mutation;
use proto::reply::{Outcome, Reply, decode_outcome};
use proto::request::Request;
use proto::transact::take_left;
use proto::{Errno, Ino, NameHash, Reader, SessionId, Tid};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Wall;

/// One file.
#[derive(Debug, Default)]
struct Written {
    /// What was stated of it last.
    last: Option<Stated>,
    /// What each session wrote, as long as nothing that others did can be at the same place.
    wrote: BTreeMap<SessionId, BTreeSet<Tid>>,
    /// Their writes that came before such a change.
    lost: BTreeMap<SessionId, BTreeSet<Tid>>,
    /// Something of theirs could not be repeated.
    failed: BTreeSet<SessionId>,
    /// They have changed it in this incarnation: what they had to rewrite came before that.
    changed_since: BTreeSet<SessionId>,
}

/// What a transaction states of a file: its size, when its bytes changed, and the dentry of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stated {
    size: u64,
    mtime: Wall,
    place: (Ino, NameHash),
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
    source: Source,
}

/// All files of the tail, until bytes that are lost cannot be told from those that are not.
#[derive(Debug, Default)]
pub(crate) struct TailWrites {
    files: BTreeMap<Ino, Written>,
    over: bool,
}

impl Written {
    /// Bytes changed, and the size and time with them.
    fn change(&mut self, size: u64, before: Option<Stated>, Change { by, count, source, .. }: Change) {
        let session = by.map(|(session, _)| session);
        let end = before.map(|before| before.size);
        let appends = count.is_some_and(|count| end.is_some_and(|end| size == end.saturating_add(count)));
        if size == 0 {
            // Nothing is left that could be old or new.
            self.wrote.clear();
            self.lost.clear();
            self.failed.clear();
        } else if !appends && !stdx::mutant!("mds_rewrite_over_others") {
            for (writer, tids) in self.wrote.extract_if(.., |writer, _| Some(*writer) != session) {
                // Not `append`, which makes the whole set anew: where two write by turns, a replay would take hours.
                self.lost.entry(writer).or_default().extend(tids);
            }
        }
        match (source, by, count) {
            (Source::Live, Some((session, _)), _) => {
                self.changed_since.insert(session);
            }
            (Source::Replay, Some((session, tid)), Some(_)) => {
                self.wrote.entry(session).or_default().insert(tid);
            }
            (Source::Replay, Some(_), None) | (_, None, _) => {}
        }
    }

    /// It is another rank's from here on, and was synced before that.
    fn left(&mut self, source: Source) {
        self.last = None;
        let wrote = std::mem::take(&mut self.wrote);
        match source {
            Source::Replay => self.lost.clear(),
            // Whoever has not written his again by now comes too late: it was synced without that.
            Source::Live => {
                for (writer, tids) in wrote {
                    self.lost.entry(writer).or_default().extend(tids);
                }
            }
        }
    }
}

impl TailWrites {
    /// A transaction states this inode at that dentry.
    fn state(&mut self, place: (Ino, NameHash), core: &InodeCore, change: Change) {
        let InodeCore { ino, size, mtime, ctime, .. } = *core;
        if change.count.is_some() && change.source == Source::Replay {
            self.files.entry(ino).or_default();
        }
        let Some(file) = self.files.get_mut(&ino) else { return };
        let before = file.last.replace(Stated { size, mtime, place });
        // Names, modes and owners are not where bytes are. Two changes can have one time; but what moves a file changes nothing in it.
        let same_time = |before: Stated| before.mtime == mtime && (ctime != mtime || before.place != place);
        let keeps_bytes = |before: Stated| before.size == size && (change.attributes || same_time(before));
        if change.count.is_some() || !before.is_some_and(keeps_bytes) {
            file.change(size, before, change);
        }
    }

    /// A transaction takes these to other ranks. What broke: bytes that were written before went over those that were written and
    /// synced there, when such a file was back and its first rank died; or were told as lost, if somebody else had brought it back.
    fn left(&mut self, left: &[u8], source: Source) {
        // That it cannot be read is found, and told, where it is applied.
        for left in take_left(&mut Reader::new(left)).into_iter().flatten() {
            if let Some(file) = self.files.get_mut(&left.ino)
                && !stdx::mutant!("mds_rewrite_of_left")
            {
                file.left(source);
            }
        }
    }

    /// `follows`: this incarnation comes right after that in which the bytes were there.
    fn verdict(&self, session: SessionId, ino: Ino, wrote: Tid, follows: bool) -> Verdict {
        let follows = follows || stdx::mutant!("mds_rewrite_life_ignored");
        let before = if follows { Verdict::There } else { Verdict::Lost };
        match self.files.get(&ino) {
            _ if self.over => Verdict::Lost,
            None => before,
            Some(file) => {
                let is_in = |writes: &BTreeMap<SessionId, BTreeSet<Tid>>| {
                    writes.get(&session).is_some_and(|tids| tids.contains(&wrote))
                };
                // Written behind whatever others did, also if something that it wrote earlier was not.
                let is_last = is_in(&file.wrote);
                // What is in neither was synced, or is presented again.
                if is_in(&file.lost) || (!is_last && file.failed.contains(&session)) {
                    Verdict::Lost
                } else if file.changed_since.contains(&session) {
                    Verdict::There
                } else if is_last {
                    Verdict::Write
                } else {
                    before
                }
            }
        }
    }

    /// Bytes of a session could not be rewritten.
    pub(crate) fn failed(&mut self, session: SessionId, ino: Ino) {
        let file = self.files.entry(ino).or_default();
        file.wrote.remove(&session);
        file.failed.insert(session);
    }

    /// The next incarnation will not find these transactions: what is not written by now is lost.
    pub(crate) fn end(&mut self) {
        self.files.clear();
        self.over = true;
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }
}

impl Rank {
    /// A transaction, of the tail or of this incarnation.
    pub(crate) fn note_tail(&mut self, origin: Option<&TxnOrigin<'_>>, mutations: &[u8], source: Source) {
        let tail = &mut self.view.tail_writes;
        if tail.over || (source == Source::Live && tail.files.is_empty()) {
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
        let change = Change { by, count, attributes, source };
        for mutation in Mutations::new(mutations).flatten() {
            if let Mutation::PutDentry { dir, hash, value, .. } = mutation
                && let Ok(DentryValue::Primary(record)) = DentryValue::decode(value)
            {
                tail.state((dir, hash), &record.core, change);
            }
            if let Mutation::Committed { left, .. } | Mutation::Resolved { left, .. } = mutation {
                tail.left(left, source);
            }
        }
    }

    /// Whether bytes may still be rewritten, so that a checkpoint that syncs all has to come after them. Not while somebody
    /// waits for the room that it makes in the journal.
    pub(crate) fn awaits_rewrites(&self) -> bool {
        !self.presenting.is_empty()
            && self.state.serves()
            && self.pace.waiting.is_empty()
            && !self.view.tail_writes.is_over()
    }

    /// What comes of a `Rewrite`, if nothing has to be written.
    pub(crate) fn rewrite_outcome(&mut self, op: &mut Op) -> Option<Outcome> {
        let Request::Rewrite { node, wrote, life, append, offset, data } = &mut op.request else {
            return None;
        };
        if op.told.is_none() {
            return Some(Err(Errno::EINVAL));
        }
        // What no journal tells of is presented again, whatever life it was of: what its client does not need any more is below its floor.
        let known = self.sessions.map.get(&op.session);
        let is_new = known.is_some_and(|session| session.is_unheard_of(*wrote));
        let follows = (*life == self.former && self.former.0 > 0) || is_new;
        match self.view.tail_writes.verdict(op.session, node.ino, *wrote, follows) {
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
    use proto::transact::Left;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const FILE: Ino = Ino(7);
    const PLACE: (Ino, NameHash) = (Ino::ROOT, NameHash(1));

    fn change(by: Option<(SessionId, u64)>, count: Option<u64>, source: Source) -> Change {
        let by = by.map(|(session, tid)| (session, Tid(tid)));
        Change { by, count, attributes: false, source }
    }

    /// The file is this long, and was changed then, its bytes and all else.
    fn core(size: u64, mtime: i64, ctime: i64) -> InodeCore {
        InodeCore { ino: FILE, size, mtime: Wall(mtime), ctime: Wall(ctime), ..InodeCore::default() }
    }

    /// A write of ten bytes that leaves the file this long.
    fn write(tail: &mut TailWrites, session: SessionId, tid: u64, size: u64) {
        let at = tid as i64;
        tail.state(PLACE, &core(size, at, at), change(Some((session, tid)), Some(10), Source::Replay));
    }

    #[test]
    fn only_who_wrote_last_writes_again() {
        let mut tail = TailWrites::default();
        assert_eq!(tail.verdict(A, FILE, Tid(1), true), Verdict::There, "a checkpoint has synced it");
        assert_eq!(tail.verdict(A, FILE, Tid(1), false), Verdict::Lost, "in which life is not known");
        write(&mut tail, A, 5, 20);
        assert_eq!(tail.verdict(A, FILE, Tid(5), false), Verdict::Write);
        assert_eq!(tail.verdict(A, FILE, Tid(4), true), Verdict::There);
        write(&mut tail, B, 6, 20);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        assert_eq!(tail.verdict(B, FILE, Tid(6), true), Verdict::Write);
        // What broke: two that write one file by turns, as databases do, could not write the last of it again, because of the first.
        write(&mut tail, A, 7, 20);
        assert_eq!(tail.verdict(A, FILE, Tid(7), false), Verdict::Write);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        assert_eq!(tail.verdict(B, FILE, Tid(6), true), Verdict::Lost);
        write(&mut tail, B, 8, 20);
        // What broke: of two that write by turns, one's last write was not durable when the rank died. It comes again.
        assert_eq!(tail.verdict(A, FILE, Tid(9), true), Verdict::There);
        assert_eq!(tail.verdict(A, FILE, Tid(9), false), Verdict::Lost, "in which life is not known");
        // Whatever it was that the rank did by itself.
        assert_eq!(tail.verdict(B, FILE, Tid(8), true), Verdict::Write);
        tail.state(PLACE, &core(15, 9, 9), change(None, None, Source::Live));
        assert_eq!(tail.verdict(B, FILE, Tid(8), true), Verdict::Lost);
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
        let mut tail = TailWrites::default();
        write(&mut tail, A, 5, 20);
        write(&mut tail, B, 6, 30);
        // A link, a new mode: the bytes are where they were.
        tail.state(PLACE, &core(30, 6, 7), change(Some((B, 7)), None, Source::Replay));
        // Other times, as `touch` sets them.
        let touch = Change { attributes: true, ..change(Some((B, 7)), None, Source::Replay) };
        tail.state(PLACE, &core(30, 7, 7), touch);
        write(&mut tail, A, 8, 40);
        // A rename in the tick of that write: its time of change is not later.
        tail.state((Ino(9), NameHash(2)), &core(40, 8, 8), change(Some((B, 9)), None, Source::Replay));
        for (session, tid) in [(A, 5), (B, 6), (A, 8)] {
            assert_eq!(tail.verdict(session, FILE, Tid(tid), true), Verdict::Write, "{session:?} {tid}");
        }
        // As long as before, but zeroed somewhere, perhaps; within the same moment, even.
        for at in [9, 8] {
            let mut tail = TailWrites::default();
            write(&mut tail, A, 8, 40);
            tail.state(PLACE, &core(40, at, at), change(Some((B, 9)), None, Source::Replay));
            assert_eq!(tail.verdict(A, FILE, Tid(8), true), Verdict::Lost);
        }
        let cut = Change { attributes: true, ..change(Some((B, 9)), None, Source::Replay) };
        tail.state(PLACE, &core(35, 9, 9), cut);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
    }

    #[test]
    fn of_an_emptied_file_nothing_is_lost() {
        let mut tail = TailWrites::default();
        write(&mut tail, A, 5, 20);
        write(&mut tail, B, 6, 20);
        tail.state(PLACE, &core(0, 7, 7), change(Some((B, 7)), None, Source::Replay));
        write(&mut tail, B, 8, 10);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::There);
        assert_eq!(tail.verdict(B, FILE, Tid(6), true), Verdict::There);
        assert_eq!(tail.verdict(B, FILE, Tid(8), true), Verdict::Write);
    }

    #[test]
    fn what_left_its_rank_was_synced() {
        let mut bytes = proto::Writer::new();
        proto::transact::put_left(&[Left { ino: FILE, parent: PLACE.0, hash: PLACE.1 }], &mut bytes);
        let mut tail = TailWrites::default();
        for (session, tid) in [(A, 5), (B, 6)] {
            write(&mut tail, session, tid, 20);
        }
        tail.left(&bytes.0, Source::Replay);
        // It is back, and as long as it was.
        tail.state(PLACE, &core(20, 9, 9), change(Some((A, 9)), None, Source::Replay));
        for (session, tid) in [(A, 5), (B, 6)] {
            assert_eq!(tail.verdict(session, FILE, Tid(tid), true), Verdict::There, "{session:?}");
            // They were written in a life before the last, and perhaps not again in the last, in which it left.
            assert_eq!(tail.verdict(session, FILE, Tid(tid), false), Verdict::Lost, "{session:?}");
        }
        write(&mut tail, B, 10, 20);
        assert_eq!(tail.verdict(B, FILE, Tid(10), true), Verdict::Write);
        // In this life it left before that was written again.
        tail.left(&bytes.0, Source::Live);
        assert_eq!(tail.verdict(B, FILE, Tid(10), true), Verdict::Lost);
    }

    #[test]
    fn what_comes_again_after_a_change_of_this_life_is_there() {
        let mut tail = TailWrites::default();
        write(&mut tail, A, 5, 20);
        tail.state(PLACE, &core(20, 9, 9), change(Some((A, 9)), Some(10), Source::Live));
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::There, "it was written before that");
        tail.failed(A, FILE);
        assert_eq!(tail.verdict(A, FILE, Tid(5), true), Verdict::Lost);
        tail.end();
        assert_eq!(tail.verdict(B, FILE, Tid(5), true), Verdict::Lost);
    }
}
