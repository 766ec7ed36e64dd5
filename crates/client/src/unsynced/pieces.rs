//! What was written to one file and not synced since: ranges, each with its bytes, or with the knowledge that they are not here.
//! A later write takes the place of an earlier one.
//!
//! Absent: which order is the right one where two requests were under way at the same time: nobody can tell from here, and the
//! bytes are not kept.

use proto::storeio::{Lent, Payload};
use proto::{Incarnation, Tid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a piece counts for at least: a book of single bytes must not become large.
const PIECE_COST_MIN: usize = 4096;
/// The same of one without bytes.
const GAP_COST: usize = 128;

/// When something was asked for and answered, in tids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) tid: Tid,
    /// The next one when it was answered: a sync with this tid or a later one covers it.
    pub(crate) until: Tid,
}

/// Bytes of a write, or the rest of them.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    payload: Payload,
    from: usize,
}

impl Bytes {
    /// Shares what `payload` refers to: it must be its own (`kept::own`).
    pub(crate) const fn whole(payload: Payload) -> Self {
        Self { payload, from: 0 }
    }

    /// The bytes from `skip` on, `len` of them. Less than half of what is held is held by itself.
    fn part(&self, skip: u64, len: u64) -> Self {
        let from = self.from + skip as usize;
        let all = self.payload.bytes();
        if (len as usize) < all.len() / 2 {
            return Self::whole(share(all[from..from + len as usize].to_vec()));
        }
        Self { payload: self.payload.clone(), from }
    }

    /// As a request carries them.
    fn payload(&self, len: u64) -> Payload {
        let all = self.payload.bytes();
        if self.from == 0 && all.len() as u64 == len {
            return self.payload.clone();
        }
        share(all[self.from..self.from + len as usize].to_vec())
    }
}

fn share(bytes: Vec<u8>) -> Payload {
    Payload::Lent(Lent::new(Arc::new(bytes)))
}

/// One range.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) len: u64,
    pub(crate) span: Span,
    /// A life of the rank in which the bytes were there.
    pub(crate) life: Incarnation,
    /// None: not kept.
    pub(crate) bytes: Option<Bytes>,
}

impl Piece {
    fn cost(&self) -> usize {
        if self.bytes.is_some() { PIECE_COST_MIN.max(self.len as usize) } else { GAP_COST }
    }

    pub(crate) fn payload(&self) -> Option<Payload> {
        self.bytes.as_ref().map(|bytes| bytes.payload(self.len))
    }

    fn part(&self, skip: u64, len: u64) -> Self {
        Self { len, bytes: self.bytes.as_ref().map(|bytes| bytes.part(skip, len)), ..*self }
    }

    fn gap(&self, span: Span) -> Self {
        Self { span, bytes: None, ..*self }
    }
}

/// All ranges of a file, apart from each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    map: BTreeMap<u64, Piece>,
    cost: usize,
}

impl Pieces {
    /// What they count for.
    pub(crate) const fn cost(&self) -> usize {
        self.cost
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.map.iter().map(|(at, piece)| (*at, piece))
    }

    pub(crate) fn get_mut(&mut self, at: u64) -> Option<&mut Piece> {
        self.map.get_mut(&at)
    }

    fn insert(&mut self, at: u64, piece: Piece) {
        if piece.len > 0 {
            self.cost += piece.cost();
            self.map.insert(at, piece);
        }
    }

    /// Takes out what overlaps a range, but for what of it lies outside.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, Piece)> {
        let before = self.map.range(..start).next_back().filter(|(at, piece)| **at + piece.len > start);
        let inside = self.map.range(start..end);
        let keys: Vec<u64> = before.into_iter().chain(inside).map(|(at, _)| *at).collect();
        let mut taken = Vec::with_capacity(keys.len());
        for at in keys {
            let Some(piece) = self.map.remove(&at) else { continue };
            self.cost -= piece.cost();
            let (piece_end, from) = (at + piece.len, at.max(start));
            let to = piece_end.min(end);
            if at < start {
                self.insert(at, piece.part(0, start - at));
            }
            if piece_end > end {
                self.insert(end, piece.part(end - at, piece_end - end));
            }
            let whole = from == at && to == piece_end;
            taken.push((from, if whole { piece } else { piece.part(from - at, to - from) }));
        }
        taken
    }

    /// Whether something in this range was answered after `tid` was sent: nobody knows which of them came first.
    pub(crate) fn is_crossed(&self, start: u64, end: u64, tid: Tid) -> bool {
        let before = self.map.range(..start).next_back().filter(|(at, piece)| **at + piece.len > start);
        before.into_iter().chain(self.map.range(start..end)).any(|(_, piece)| piece.span.until > tid)
    }

    /// Something was written.
    pub(crate) fn put(&mut self, at: u64, mut piece: Piece) {
        let end = at.saturating_add(piece.len);
        let old = self.take(at, end);
        if old.iter().any(|(_, old)| old.span.until > piece.span.tid)
            && !stdx::mutant!("client_keeps_crossed")
        {
            piece.bytes = None;
        }
        self.insert(at, piece);
    }

    /// Everything from `size` on is cut off.
    pub(crate) fn cut(&mut self, size: u64, span: Span) {
        let cut = self.take(size, u64::MAX);
        if stdx::mutant!("client_rewrite_not_cut") {
            cut.into_iter().for_each(|(at, piece)| self.insert(at, piece));
            return;
        }
        for (at, piece) in cut.into_iter().filter(|(_, piece)| piece.span.until > span.tid) {
            self.insert(at, piece.gap(span));
        }
    }

    /// No piece goes on over this place.
    pub(crate) fn split(&mut self, at: u64) {
        for (at, piece) in self.take(at, u64::MAX) {
            self.insert(at, piece);
        }
    }

    /// What was answered before this was sent is on the disk. Of what is not known to be there in this life it says nothing: that
    /// may have failed before, and not have been heard of yet.
    pub(crate) fn synced(&mut self, tid: Tid, life: Incarnation) {
        self.retain(|piece| piece.span.until > tid || piece.life != life);
    }

    pub(crate) fn retain(&mut self, keeps: impl Fn(&Piece) -> bool) {
        let cost = &mut self.cost;
        self.map.retain(|_, piece| {
            let kept = keeps(piece);
            *cost -= if kept { 0 } else { piece.cost() };
            kept
        });
    }

    /// No bytes are kept any more. What is not known to be there in a later life of the rank than others is not there.
    pub(crate) fn forget(&mut self) {
        let last = self.map.values().map(|piece| piece.span.until).max();
        let oldest = self.map.values().min_by_key(|piece| piece.life).cloned();
        (self.map, self.cost) = (BTreeMap::new(), 0);
        if let (Some(piece), Some(until)) = (oldest, last) {
            let span = Span { tid: piece.span.tid, until };
            self.insert(0, Piece { len: u64::MAX, ..piece.gap(span) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation(1);

    fn put(pieces: &mut Pieces, at: u64, len: usize, tid: u64, until: u64) {
        let span = Span { tid: Tid(tid), until: Tid(until) };
        let bytes = Some(Bytes::whole(share(vec![tid as u8; len])));
        pieces.put(at, Piece { len: len as u64, span, life: LIFE, bytes });
    }

    fn shown(pieces: &Pieces) -> Vec<(u64, Option<Vec<u8>>)> {
        let bytes = |piece: &Piece| piece.payload().map(|payload| payload.bytes().to_vec());
        pieces.iter().map(|(at, piece)| (at, bytes(piece))).collect()
    }

    #[test]
    fn a_later_write_takes_the_place_of_an_earlier_one() {
        let mut pieces = Pieces::default();
        put(&mut pieces, 10, 6, 1, 2);
        put(&mut pieces, 12, 2, 2, 3);
        assert_eq!(shown(&pieces), [(10, Some(vec![1, 1])), (12, Some(vec![2, 2])), (14, Some(vec![1, 1]))]);
        put(&mut pieces, 9, 4, 3, 4);
        assert_eq!(shown(&pieces), [(9, Some(vec![3; 4])), (13, Some(vec![2])), (14, Some(vec![1, 1]))]);
        pieces.synced(Tid(3), LIFE);
        assert_eq!(shown(&pieces), [(9, Some(vec![3; 4]))]);
        assert_eq!(pieces.cost(), PIECE_COST_MIN);
        pieces.synced(Tid(4), Incarnation(2));
        assert!(!pieces.is_empty(), "it is not known to be there in that life");
        pieces.synced(Tid(4), LIFE);
        assert!(pieces.is_empty() && pieces.cost() == 0);
    }

    #[test]
    fn what_was_under_way_together_is_not_kept() {
        let mut pieces = Pieces::default();
        put(&mut pieces, 0, 4, 2, 3);
        // Sent before that one was answered: which of them came first?
        put(&mut pieces, 2, 4, 1, 3);
        assert_eq!(shown(&pieces), [(0, Some(vec![2, 2])), (2, None)]);
        put(&mut pieces, 8, 4, 5, 6);
        put(&mut pieces, 12, 4, 4, 6);
        assert_eq!(shown(&pieces)[2..], [(8, Some(vec![5; 4])), (12, Some(vec![4; 4]))], "apart");
    }

    #[test]
    fn a_cut_leaves_what_is_before_it() {
        let mut pieces = Pieces::default();
        put(&mut pieces, 0, 8, 1, 2);
        put(&mut pieces, 8, 8, 2, 3);
        pieces.cut(4, Span { tid: Tid(3), until: Tid(4) });
        assert_eq!(shown(&pieces), [(0, Some(vec![1; 4]))]);
        put(&mut pieces, 20, 4, 5, 6);
        pieces.cut(22, Span { tid: Tid(4), until: Tid(7) });
        assert_eq!(shown(&pieces)[1..], [(20, Some(vec![5; 2])), (22, None)], "it may have come before");
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn bytes_that_are_not_there_any_more_are_caught() {
        let defects: [(&str, fn()); 2] = [
            ("client_keeps_crossed", what_was_under_way_together_is_not_kept),
            ("client_rewrite_not_cut", a_cut_leaves_what_is_before_it),
        ];
        for (defect, test) in defects {
            stdx::mutant::activate(Some(defect));
            let verdict = std::panic::catch_unwind(test);
            stdx::mutant::activate(None);
            assert!(verdict.is_err(), "{defect}");
        }
    }

    #[test]
    fn what_is_forgotten_is_known_to_be_missing() {
        let mut pieces = Pieces::default();
        put(&mut pieces, 4, 4, 1, 2);
        put(&mut pieces, 0, 4, 2, 5);
        pieces.forget();
        assert_eq!(shown(&pieces), [(0, None)]);
        pieces.synced(Tid(4), LIFE);
        assert!(!pieces.is_empty());
        pieces.synced(Tid(5), LIFE);
        assert!(pieces.is_empty());
        // Some of it was there again, the rest was not yet.
        put(&mut pieces, 0, 4, 6, 7);
        put(&mut pieces, 8, 4, 7, 8);
        pieces.get_mut(0).expect("a piece").life = Incarnation(2);
        pieces.forget();
        assert!(pieces.iter().all(|(_, piece)| piece.life == LIFE));
    }
}
