//! Files that were written and have not been synced since, and their bytes. A server that dies before it has written them to its
//! disk loses them although their writers were told of success, as an operating system that dies does; but there the programs
//! die with it. Here they go on: what is kept is rewritten (docs/PROTOCOL.md, "Bytes"), and where that cannot be, a sync
//! must not be told that all is well.
//!
//! Absent: sending (`machine/rewrite.rs`); what was performed and is presented again (`window.rs`).

pub(crate) mod pieces;

use pieces::{Bytes, Piece, Pieces, Span};
use proto::every_request;
use proto::reply::{Outcome, Reply};
use proto::request::fallocate::changes_bytes;
use proto::request::{Request, open_flags};
use proto::storeio::Payload;
use proto::{Incarnation, Ino, NodeRef, Tid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use stdx::hash::HashSeed;

/// Files that are remembered one by one.
pub(crate) const FILES_MAX: usize = 65_536;
/// Ranges of one file; of one with more nothing is kept.
const PIECES_MAX: usize = 1 << 16;

/// One file.
#[derive(Clone, Debug, Default)]
struct File {
    node: NodeRef,
    pieces: Pieces,
    /// What was sent before this and is answered now came before or after a cut or a sync: nobody can tell.
    hazard: Tid,
}

/// How things are when an answer comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) tid: Tid,
    /// The tid that the next request will have.
    pub(crate) next: Tid,
    pub(crate) life: Incarnation,
    /// The most that may be kept; nothing where nothing could be rewritten.
    pub(crate) bytes_max: usize,
}

/// Bytes to be rewritten.
#[derive(Clone, Debug)]
pub(crate) struct Rewrite {
    pub(crate) node: NodeRef,
    pub(crate) wrote: Tid,
    pub(crate) life: Incarnation,
    pub(crate) append: bool,
    pub(crate) offset: u64,
    pub(crate) data: Payload,
}

/// A request of a former life of the rank that has no answer yet, and may have changed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unanswered<'a> {
    pub(crate) tid: Tid,
    pub(crate) life: Incarnation,
    pub(crate) request: &'a Request,
}

/// Files of which nothing is known but that there are some.
#[derive(Clone, Copy, Debug)]
struct Others {
    /// A sync with this tid or a later one covers them.
    until: Tid,
    /// The life of the rank in which their bytes were there. All that is from another has been told as lost.
    life: Incarnation,
}

/// The book.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    files: BTreeMap<Ino, File>,
    /// All those for which there was no room.
    others: Option<Others>,
    /// What all pieces count for.
    cost: usize,
}

/// What a server that died has lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) inos: Vec<Ino>,
    /// And more, of which the numbers are not known.
    pub(crate) others: bool,
}

/// The file that a request has cut.
pub(crate) fn cut_by(request: &Request, outcome: &Outcome) -> Option<NodeRef> {
    match (request, outcome) {
        (Request::SetAttr { node, set }, Ok(_)) if set.size.is_some() => Some(*node),
        (
            Request::Open { flags, .. } | Request::Create { flags, .. },
            Ok(Reply::Attr(attr) | Reply::Created { attr, .. }),
        ) if flags & open_flags::TRUNC != 0 => Some(attr.node()),
        (every_request!(), _) => None,
    }
}

/// The file that a request would cut, and its size then.
fn cut_asked(request: &Request) -> Option<(Ino, u64)> {
    match request {
        Request::SetAttr { node, set } => Some((node.ino, set.size?)),
        Request::Open { node, flags } if flags & open_flags::TRUNC != 0 => Some((node.ino, 0)),
        every_request!() => None,
    }
}

impl Unsynced {
    pub(crate) const fn new() -> Self {
        Self { files: BTreeMap::new(), others: None, cost: 0 }
    }

    /// What is kept counts for so much.
    pub(crate) const fn cost(&self) -> usize {
        self.cost
    }

    /// Changes a file's record, and counts what it keeps then.
    fn with(&mut self, node: NodeRef, change: impl FnOnce(&mut File)) -> bool {
        let room = self.files.len() < FILES_MAX;
        let file = match self.files.get_mut(&node.ino) {
            Some(file) => file,
            None if room => self.files.entry(node.ino).or_default(),
            None => return false,
        };
        file.node = node;
        self.cost -= file.pieces.cost();
        change(file);
        self.cost += file.pieces.cost();
        true
    }

    /// A request was answered. What it carries is its own (`kept::own`).
    pub(crate) fn answered(&mut self, request: &Request, outcome: &Outcome, heard: &Heard) {
        let span = Span { tid: heard.tid, until: heard.next };
        match (request, outcome) {
            (Request::Write { node, offset, append, data, .. }, Ok(Reply::Written { count, attr })) => {
                let at = if *append { attr.size.saturating_sub(*count) } else { *offset };
                self.wrote(*node, (at, *count), span, Some(data), heard);
            }
            (Request::CopyRange { target, target_offset, .. }, Ok(Reply::Written { count, .. })) => {
                self.wrote(*target, (*target_offset, *count), span, None, heard);
            }
            (Request::Fallocate { node, mode, offset, len }, Ok(_)) if changes_bytes(*mode) => {
                self.wrote(*node, (*offset, *len), span, None, heard);
            }
            (Request::SetAttr { node, set }, Ok(_)) => {
                if let Some(size) = set.size {
                    self.cut(node.ino, size, span);
                }
            }
            (
                Request::Open { flags, .. } | Request::Create { flags, .. },
                Ok(Reply::Attr(attr) | Reply::Created { attr, .. }),
            ) if flags & open_flags::TRUNC != 0 => self.cut(attr.ino, 0, span),
            (Request::Fsync { node, .. }, Ok(_)) if self.files.contains_key(&node.ino) => {
                self.with(*node, |file| file.synced(heard.tid, heard.life));
            }
            (Request::SyncFs, Ok(_)) => {
                self.files.values_mut().for_each(|file| file.synced(heard.tid, heard.life));
                self.count();
                self.others = self.others.filter(|others| others.until > heard.tid);
            }
            (every_request!(), _) => {}
        }
    }

    /// Drops records of which nothing is needed: everything below `unanswered` has its answer.
    pub(crate) fn tidy(&mut self, unanswered: Tid) {
        self.files.retain(|_, file| !file.pieces.is_empty() || file.hazard > unanswered);
    }

    /// A write to this file is under way, and a cut was answered before it.
    pub(crate) fn overtaken(&mut self, node: NodeRef) {
        self.with(node, |_| {});
    }

    fn count(&mut self) {
        self.cost = self.files.values().map(|file| file.pieces.cost()).sum();
    }

    fn wrote(
        &mut self,
        node: NodeRef,
        (at, len): (u64, u64),
        span: Span,
        data: Option<&Payload>,
        heard: &Heard,
    ) {
        let fits = self.cost.saturating_add(len as usize) < heard.bytes_max;
        let bytes = data.filter(|data| fits && data.len() >= len).map(|data| Bytes::whole(data.clone()));
        let len = len.min(u64::MAX - at);
        let known = self.with(node, |file| {
            let bytes = bytes.filter(|_| span.tid >= file.hazard);
            file.pieces.put(at, Piece { len, span, life: heard.life, bytes });
            // Where nothing is kept, that something is missing is all there is to know.
            if file.pieces.len() > PIECES_MAX || heard.bytes_max == 0 {
                file.pieces.forget();
            }
        });
        if !known {
            let until = self.others.map_or(span.until, |others| others.until.max(span.until));
            self.others = Some(Others { until, life: heard.life });
        }
    }

    fn cut(&mut self, ino: Ino, size: u64, span: Span) {
        let Some(node) = self.files.get(&ino).map(|file| file.node) else { return };
        self.with(node, |file| {
            file.pieces.cut(size, span);
            file.hazard = file.hazard.max(span.until);
        });
    }

    /// Whether a sync would be of use.
    pub(crate) fn is_empty(&self) -> bool {
        self.cost == 0 && self.others.is_none()
    }

    /// Everything is given up.
    pub(crate) fn lose_all(&mut self) -> Losses {
        let files = std::mem::take(&mut self.files);
        self.cost = 0;
        let inos =
            files.into_iter().filter(|(_, file)| !file.pieces.is_empty()).map(|(ino, _)| ino).collect();
        Losses { inos, others: self.others.take().is_some() }
    }

    /// Nothing can be rewritten: the session is gone that had written it.
    pub(crate) fn forget_bytes(&mut self) {
        self.files.values_mut().for_each(|file| file.pieces.forget());
        self.count();
    }

    /// What is under way will not be asked for again, and its answers not be heard: whether it came before or after what is kept of
    /// its files nobody will know, and old bytes must not go over new ones.
    pub(crate) fn given_up(&mut self, unanswered: &[Unanswered<'_>], seed: Option<&HashSeed>) {
        let mut doubted = BTreeSet::new();
        for pending in unanswered {
            self.doubts(pending, seed, &mut doubted);
            if let Request::Write { node, .. } = pending.request {
                doubted.insert(node.ino);
            }
        }
        for ino in doubted {
            if let Some(file) = self.files.get_mut(&ino) {
                file.pieces.forget();
            }
        }
        self.count();
    }

    /// Welcomed by `life` of the rank: what has to be rewritten, in this order, before anything else is sent; and what is
    /// lost. `synced`: that life, the one before, had written everything to its disk when it ended. `may`: bytes are kept for that.
    /// `unanswered`: what has no answer yet.
    pub(crate) fn restarted(
        &mut self,
        life: Incarnation,
        (synced, may): (Option<Incarnation>, bool),
        (unanswered, seed): (&[Unanswered<'_>], Option<&HashSeed>),
    ) -> (VecDeque<Rewrite>, Losses) {
        let was_synced = |of: Incarnation| synced == Some(of);
        let (mut again, mut losses) = (VecDeque::new(), Losses::default());
        for file in self.files.values_mut() {
            file.pieces.retain(|piece| !was_synced(piece.life));
        }
        let before: Vec<_> = unanswered.iter().filter(|pending| pending.life != life).copied().collect();
        let (mut doubted, mut cuts) = (BTreeSet::new(), BTreeMap::new());
        for pending in &before {
            match self.cuts_all(pending, &before) {
                Some((ino, size)) => {
                    let least: &mut u64 = cuts.entry(ino).or_insert(size);
                    *least = size.min(*least);
                }
                None => self.doubts(pending, seed, &mut doubted),
            }
        }
        self.crossed(life, unanswered, &mut doubted);
        self.files.retain(|ino, file| {
            let old = file.pieces.iter().any(|(_, piece)| piece.life != life);
            let all = file.pieces.iter().all(|(_, piece)| piece.life == life || piece.bytes.is_some());
            let keeps = !old || (may && all && !doubted.contains(ino));
            if !keeps {
                losses.inos.push(*ino);
                return false;
            }
            let end = cuts.get(ino).copied().unwrap_or(u64::MAX);
            file.pieces.split(end);
            let old = file.pieces.iter().filter(|(offset, piece)| piece.life != life && *offset < end);
            again.extend(old.filter_map(|(offset, piece)| {
                let (node, wrote, life) = (file.node, piece.span.tid, piece.life);
                Some(Rewrite { node, wrote, life, append: false, offset, data: piece.payload()? })
            }));
            true
        });
        self.count();
        let writes = unanswered.iter().filter(|pending| may && pending.life != life);
        again.extend(writes.filter_map(|pending| match pending.request {
            Request::Write { node, offset, append, data, .. } if !doubted.contains(&node.ino) => {
                let (wrote, life, data) = (pending.tid, pending.life, data.clone());
                Some(Rewrite { node: *node, wrote, life, append: *append, offset: *offset, data })
            }
            every_request!() => None,
        }));
        // Which they were nobody knows. In the life in which they were written they are there.
        let before = self.others.take_if(|others| others.life != life);
        if stdx::mutant!("client_others_forgotten") {
            self.others = None;
        }
        losses.others = before.is_some_and(|others| !was_synced(others.life));
        (again, losses)
    }

    /// The file that something without an answer cuts, or has cut, and where, if everything that is kept of it was answered before
    /// that was sent, and nothing is written to it at the same time. What is before the cut is there in the end, carried out or not. What is
    /// behind it is left alone: the file may be longer again, and zero there.
    fn cuts_all(&self, cut: &Unanswered<'_>, unanswered: &[Unanswered<'_>]) -> Option<(Ino, u64)> {
        let (ino, size) = cut_asked(cut.request)?;
        let file = self.files.get(&ino)?;
        let is_of = |request: &Request| match request {
            Request::Write { node, .. } | Request::Fallocate { node, .. } => node.ino == ino,
            Request::CopyRange { target, .. } => target.ino == ino,
            every_request!() => false,
        };
        let crossed = unanswered.iter().any(|pending| is_of(pending.request))
            || file.hazard > cut.tid
            || file.pieces.iter().any(|(_, piece)| piece.span.until > cut.tid);
        (!crossed).then_some((ino, size))
    }

    /// A cut that was asked of a former life was refused by this one: whether bytes behind it are missing.
    pub(crate) fn lacks_behind(&self, request: &Request, life: Incarnation) -> Option<Ino> {
        let (ino, size) = cut_asked(request)?;
        let pieces = &self.files.get(&ino).filter(|_| !stdx::mutant!("client_cut_refused_untold"))?.pieces;
        pieces.iter().any(|(at, piece)| at >= size && piece.life != life).then_some(ino)
    }

    /// Files that something without an answer may have cut, or filled with what is not known here.
    fn doubts(&self, pending: &Unanswered<'_>, seed: Option<&HashSeed>, doubted: &mut BTreeSet<Ino>) {
        match pending.request {
            Request::SetAttr { node, set } if set.size.is_some() => drop(doubted.insert(node.ino)),
            Request::Open { node, flags } if flags & open_flags::TRUNC != 0 => {
                doubted.insert(node.ino);
            }
            Request::Fallocate { node, .. } | Request::CopyRange { target: node, .. } => {
                doubted.insert(node.ino);
            }
            // If it was there, this name led to it.
            Request::Create { parent, name, flags, .. } if flags & open_flags::TRUNC != 0 => {
                let is = |node: &NodeRef| {
                    node.parent == parent.ino && seed.is_none_or(|seed| node.hash == name.hash(seed))
                };
                let linked = |node: &NodeRef| node.parent == Ino::LINKS;
                let there = self.files.iter().filter(|(_, file)| is(&file.node) || linked(&file.node));
                doubted.extend(there.map(|(ino, _)| *ino));
            }
            every_request!() => {}
        }
    }

    /// Files whose writes without an answer cannot be put in order with others.
    fn crossed(&self, life: Incarnation, unanswered: &[Unanswered<'_>], doubted: &mut BTreeSet<Ino>) {
        let mut ranges: BTreeMap<Ino, Vec<Option<(u64, u64)>>> = BTreeMap::new();
        for pending in unanswered.iter().filter(|pending| pending.life != life) {
            let Request::Write { node, offset, append, data, .. } = pending.request else { continue };
            let range = (!append).then(|| (*offset, offset.saturating_add(data.len())));
            let (start, end) = range.unwrap_or((0, u64::MAX));
            let file = self.files.get(&node.ino);
            let before = ranges.entry(node.ino).or_default();
            // What is appended is never at the same place.
            let overlaps = before.iter().any(|before| match (before, range) {
                (Some((from, to)), Some((start, end))) => *from < end && start < *to,
                (None, None) => false,
                _ => true,
            });
            let late = file.is_some_and(|file| {
                pending.tid < file.hazard || file.pieces.is_crossed(start, end, pending.tid)
            });
            if overlaps || late {
                doubted.insert(node.ino);
            }
            before.push(range);
        }
    }

    /// The rank has it again.
    pub(crate) fn rewritten(&mut self, ino: Ino, offset: u64, wrote: Tid, life: Incarnation) {
        let piece = self.files.get_mut(&ino).and_then(|file| file.pieces.get_mut(offset));
        if let Some(piece) = piece.filter(|piece| piece.span.tid == wrote) {
            piece.life = life;
        }
    }

    /// It cannot be rewritten. What is under way to the file stays in doubt.
    pub(crate) fn lose(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            self.cost -= file.pieces.cost();
            file.pieces = Pieces::default();
        }
    }
}

impl File {
    fn synced(&mut self, tid: Tid, life: Incarnation) {
        self.pieces.synced(tid, life);
        self.hazard = self.hazard.max(tid);
    }
}
