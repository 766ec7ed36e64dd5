//! Bytes that clients rewrite after a crash: only what was there, and nothing over what is newer; and what a session is
//! told about what it wrote before.
//!
//! Absent: who may do so, and when; what comes of it shows.

use super::{Judge, Verdict};
use proto::Ino;
use proto::every_request;
use proto::ids::{SessionId, Tid};
use proto::request::Request;
use proto::storeio::Payload;
use std::ops::Range;

/// One of them, at the rank.
#[derive(Clone, Debug)]
pub(super) struct Rewriting {
    ino: Ino,
    /// None: where it was appended.
    offset: Option<u64>,
    data: Payload,
    /// Where its client has other writes without an answer: they follow, and the rank may have carried them out before it died.
    open: Vec<Range<u64>>,
    /// Handed to the data store: where, and how much of it.
    landed: Option<(u64, usize)>,
}

impl Judge {
    /// A session asks for bytes to be rewritten.
    pub fn asks_rewrite(&mut self, (session, tid): (SessionId, Tid), request: &Request) {
        let Request::Rewrite { node, wrote, append, offset, data, .. } = request else { return };
        let (offset, open) = ((!append).then_some(*offset), self.open_writes(session, node.ino, *wrote));
        let rewriting = Rewriting { ino: node.ino, offset, data: data.clone(), open, landed: None };
        self.rewriting.entry((session, tid)).or_insert(rewriting);
    }

    /// Where a session has writes that came to the rank and whose answers it still waits for; but for `wrote`: a write without an answer that is rewritten lies below no other, so it is what was there. Nor
    /// is anything below what is appended: where something may be, its client rewrites nothing.
    fn open_writes(&self, session: SessionId, ino: Ino, wrote: Tid) -> Vec<Range<u64>> {
        let of = self.pending.range((session, Tid(0))..=(session, Tid(u64::MAX)));
        let others = of.filter(|((_, tid), pending)| *tid != wrote && !pending.gone);
        let range = |request: &Request| match request {
            Request::Write { node, append: false, offset, data, .. } if node.ino == ino => {
                Some(*offset..*offset + data.len())
            }
            every_request!() => None,
        };
        others.filter_map(|(_, pending)| range(&pending.asked.request)).collect()
    }

    /// The rank hands bytes to the data store that nobody else has asked for.
    pub(super) fn rewrites(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Verdict {
        let found = self.rewriting.values_mut().find(|rewriting| {
            rewriting.ino == ino
                && rewriting.landed.is_none()
                && rewriting.offset.is_none_or(|at| at == offset)
                && rewriting.data.bytes().starts_with(data)
        });
        let Some(rewriting) = found else { return Ok(()) };
        let bytes = self.bytes.entry(ino).or_default();
        let (covered, sure) = parts(offset, data, &rewriting.open);
        covered.into_iter().for_each(|(at, piece)| bytes.may_be(at, piece));
        for (at, piece) in sure {
            bytes.rewrite(at, piece, None).map_err(|mismatch| {
                format!(
                    "byte {} of inode {} is written once more as {:#x}; it was {:x?}",
                    mismatch.offset, ino.0, mismatch.found, mismatch.allowed
                )
            })?;
        }
        rewriting.landed = Some((offset, data.len()));
        Ok(())
    }

    /// The rank has answered one. Whether it was one.
    pub(super) fn rewritten(&mut self, key: (SessionId, Tid), ok: bool) -> bool {
        let now = self.tick();
        let Some(rewriting) = self.rewriting.remove(&key) else { return false };
        if !ok {
            self.late.push("bytes that could not be");
        }
        if let (Some((offset, len)), true) = (rewriting.landed, ok) {
            self.late.push("bytes written once more");
            let data = &rewriting.data.bytes()[..len];
            let bytes = self.bytes.entry(rewriting.ino).or_default();
            for (at, piece) in parts(offset, data, &rewriting.open).1 {
                // It was looked at when it landed, and nothing else of the file changed since.
                let _same = bytes.rewrite(at, piece, Some(now));
            }
        }
        true
    }

    /// A caller heard that a file is synced, which it asked for at `begun`: what its session wrote before a crash that was earlier, and
    /// was not told to be lost, is there.
    ///
    /// # Errors
    /// It is not.
    pub fn vouches(&mut self, session: SessionId, ino: Ino, begun: u64) -> Verdict {
        let now = self.tick();
        if begun < self.recovered_at {
            return Ok(());
        }
        let Some(bytes) = self.bytes.get_mut(&ino) else { return Ok(()) };
        bytes.vouched(session, now).map_err(|mismatch| {
            format!(
                "session {} is told that inode {} is synced; byte {} is {:#x}, it wrote {:x?}",
                session.0, ino.0, mismatch.offset, mismatch.found, mismatch.allowed
            )
        })
    }

    /// A session was told that bytes of these files are lost.
    pub fn bytes_lost(&mut self, session: SessionId, inos: &[Ino]) {
        let now = self.tick();
        for ino in inos {
            self.told_lost.insert((session, *ino), now);
            if let Some(bytes) = self.bytes.get_mut(ino) {
                bytes.disowned(session);
            }
        }
    }

    /// Whether a write comes again whose caller was told that bytes of the file are lost after it was told of the write: that counts
    /// for this write, too, because its client forgets with it all that was written before (PROTOCOL.md, "Bytes": what it does not
    /// keep is lost: EIO, once). It may come nevertheless, as what was told does; nobody is told again if another crash takes it.
    /// A write that has no answer yet is no such one, nor is what the caller was told of later.
    pub(super) fn was_told_lost(&self, key: (SessionId, Tid), ino: Ino) -> bool {
        let lost = self.told_lost.get(&(key.0, ino));
        lost.is_some_and(|lost| self.promises.get(&key).is_some_and(|promise| promise.clock < *lost))
    }
}

type Parts<'a> = Vec<(u64, &'a [u8])>;

/// The parts of `data`, which begins at `offset`: those that lie in one of the ranges, and the others.
fn parts<'a>(offset: u64, data: &'a [u8], ranges: &[Range<u64>]) -> (Parts<'a>, Parts<'a>) {
    let end = offset + data.len() as u64;
    let mut ranges: Vec<_> =
        ranges.iter().map(|r| r.start.clamp(offset, end)..r.end.clamp(offset, end)).collect();
    ranges.push(end..end);
    ranges.sort_by_key(|range| range.start);
    let part = |from: u64, to: u64| (from, &data[(from - offset) as usize..(to - offset) as usize]);
    let (mut at, mut covered, mut sure) = (offset, Vec::new(), Vec::new());
    for range in ranges {
        if at < range.start {
            sure.push(part(at, range.start));
            at = range.start;
        }
        if at < range.end {
            covered.push(part(at, range.end));
            at = range.end;
        }
    }
    (covered, sure)
}

#[cfg(test)]
mod tests {
    use super::super::promise::Promise;
    use super::super::{Asked, HashSeed, Records};
    use super::*;
    use proto::Cred;
    use proto::message::Told;
    use proto::reply::Reply;
    use stdx::Wall;

    const WRITER: SessionId = SessionId(1);
    const FILE: Ino = Ino(7);

    /// Told now.
    fn promise(judge: &mut Judge, tid: Tid) {
        let (cred, request, pattern) = (Cred::ROOT, Request::SyncFs, (0, 0));
        let asked = Asked { session: WRITER, tid, cred, request, embedded: false, checked: false, pattern };
        let told = Told { ino: Ino::NONE, wall: Wall(0), heard: true };
        let (outcome, clock, executed, first) = (Ok(Reply::Ok), judge.tick(), None, None);
        let (lost, excused, failed) = (true, false, false);
        let promise = Promise { asked, told, outcome, clock, executed, first, lost, excused, failed };
        judge.promises.insert((WRITER, tid), promise);
    }

    #[test]
    fn a_loss_counts_for_what_was_told_before_it() {
        let mut judge = Judge::new(HashSeed([0; 16]), Records::default(), Wall(0));
        promise(&mut judge, Tid(1));
        assert!(!judge.was_told_lost((WRITER, Tid(1)), FILE));
        judge.bytes_lost(WRITER, &[FILE]);
        promise(&mut judge, Tid(2));
        let lost = |tid, ino| judge.was_told_lost((WRITER, Tid(tid)), ino);
        assert!(lost(1, FILE));
        assert!(!lost(1, Ino(8)) && !lost(2, FILE), "another file, and a later write");
        assert!(!lost(3, FILE), "nobody was told that this one was done");
        assert!(!judge.was_told_lost((SessionId(2), Tid(1)), FILE));
    }

    #[test]
    fn what_is_in_ranges_and_what_is_not() {
        let parts = |ranges: &[Range<u64>]| parts(10, b"abcdef", ranges);
        assert_eq!(parts(&[]), (vec![], vec![(10, &b"abcdef"[..])]));
        let (covered, sure) = parts(&[0..11, 13..14, 12..13]);
        assert_eq!(covered, [(10, &b"a"[..]), (12, b"c"), (13, b"d")]);
        assert_eq!(sure, [(11, &b"b"[..]), (14, b"ef")]);
        assert_eq!(parts(&[15..u64::MAX, 20..30]), (vec![(15, &b"f"[..])], vec![(10, &b"abcde"[..])]));
    }
}
