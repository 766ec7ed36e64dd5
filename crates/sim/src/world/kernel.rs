//! What one client's kernel keeps: attributes, names and pages, from answers that grant them, until they run out, are recalled
//! or lost. It answers from them even when the connection is gone.
//!
//! Absent: when answers and recalls reach it, and whether what it keeps is right (`keeping.rs`).

use crate::model::judge::{Changed, Judge, Sight, Verdict};
use client::Validity;
use proto::caps::{Bits, KEEP_MARGIN_MS, Recalled};
use proto::ids::{SessionId, Tid};
use proto::reply::{Outcome, Reply};
use proto::request::{Request, open_flags};
use proto::{Attr, Ino, every_request};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Prng;
use stdx::time::MS;

/// Ranges kept of one file.
const RANGES_MAX: usize = 8;

/// An answer on its way into the kernel.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) session: SessionId,
    pub(super) tid: Tid,
    pub(super) request: Request,
    pub(super) outcome: Outcome,
    pub(super) validity: Validity,
    /// When the call began by the judge's clock, the number of the call, and of the newest one.
    pub(super) begun: u64,
    pub(super) call: u64,
    pub(super) newest: u64,
    /// The rank's life in which it is taken in; 0: the client had no connection then.
    pub(super) life: u64,
}

/// What became of an answer, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    pub(super) attrs: u64,
    pub(super) names: u64,
    pub(super) files: u64,
    pub(super) voided: u64,
}

/// One thing that is kept.
#[derive(Clone, Debug)]
struct Kept<T> {
    what: T,
    until: u64,
    session: SessionId,
}

/// A file whose pages may be kept.
#[derive(Clone, Debug)]
struct Pages {
    life: u64,
    session: SessionId,
    /// Calls up to this one began before the validity came: what they read is not kept.
    call: u64,
    /// Where, how much was asked for, and what was read.
    ranges: Vec<(u64, u32, Vec<u8>)>,
}

/// Which file's bytes a request changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    Nothing,
    One(Ino),
    /// By a name, whose inode is not known.
    Any,
}

/// What one kernel keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    attrs: BTreeMap<Ino, Kept<Attr>>,
    names: BTreeMap<(Ino, Box<[u8]>), Kept<Ino>>,
    pages: BTreeMap<Ino, Pages>,
    /// The stamps of the last recall of an inode, and of the last loss of everything.
    recalled: BTreeMap<Ino, u64>,
    lost: u64,
    /// When and by which request its own session last changed an inode. Of these a kernel knows by itself: it
    /// made them.
    own: BTreeMap<Ino, (u64, Tid)>,
    /// Calls up to this one may have read what the client itself was changing.
    muddled: BTreeMap<Ino, u64>,
    muddled_any: u64,
}

impl Kernel {
    fn until(validity: &Validity, rng: &mut Prng) -> u64 {
        validity.until.0 + rng.below(KEEP_MARGIN_MS * MS)
    }

    /// Whether the validity of an answer was taken back before the answer came.
    fn is_void(&self, ino: Ino, stamp: u64) -> bool {
        self.lost > stamp || self.recalled.get(&ino).is_some_and(|last| *last > stamp)
    }

    /// Whether the answer may show what its own session has changed since.
    fn is_outdated(&self, ino: Ino, taken: &Taken) -> bool {
        self.own.get(&ino).is_some_and(|(number, tid)| *number > taken.begun && *tid != taken.tid)
    }

    /// Takes an answer in. `busy`: the client's requests without an answer.
    pub(super) fn take<'a>(
        &mut self,
        taken: &Taken,
        now: u64,
        rng: &mut Prng,
        busy: impl Iterator<Item = &'a Request>,
    ) -> Took {
        let mut took = Took::default();
        for (at, attr, name) in carried(&taken.request, &taken.outcome) {
            let bits = taken.validity.grants.of(at);
            if bits.is_empty() {
                continue;
            }
            if self.is_void(attr.ino, taken.validity.stamp) {
                took.voided += 1;
                continue;
            }
            if bits.has(Bits::FC) && self.pages.get(&attr.ino).is_none_or(|pages| pages.life != taken.life) {
                let (life, session, call) = (taken.life, taken.session, taken.newest);
                self.pages.insert(attr.ino, Pages { life, session, call, ranges: Vec::new() });
                took.files += 1;
            }
            let until = Self::until(&taken.validity, rng);
            if !bits.has(Bits::ATTRS) || until <= now || self.is_outdated(attr.ino, taken) {
                continue;
            }
            took.attrs += 1;
            self.attrs.insert(attr.ino, Kept { what: attr, until, session: taken.session });
            // A name in `//links` is nobody's, and a second name is not where the inode is.
            if let Some((dir, name)) = name.filter(|(dir, _)| *dir == attr.parent && *dir != Ino::LINKS) {
                took.names += 1;
                self.names.insert((dir, name), Kept { what: attr.ino, until, session: taken.session });
            }
        }
        self.take_bytes(taken, busy);
        took
    }

    /// The bytes of a read are kept if its file's pages might be all the while, and the client did not change them itself.
    fn take_bytes<'a>(&mut self, taken: &Taken, mut busy: impl Iterator<Item = &'a Request>) {
        let (Request::Read { node, offset, len, .. }, Ok(Reply::Data(bytes))) =
            (&taken.request, &taken.outcome)
        else {
            return;
        };
        let muddled = self.muddled.get(&node.ino).copied().unwrap_or(0).max(self.muddled_any);
        let changes = |request: &Request| match writes(request) {
            Writes::Nothing => false,
            Writes::One(ino) => ino == node.ino,
            Writes::Any => true,
        };
        let Some(pages) = self.pages.get_mut(&node.ino) else { return };
        let gap = pages.session != taken.session || pages.life != taken.life || pages.call >= taken.call;
        if gap || muddled >= taken.call || busy.any(changes) {
            return;
        }
        if pages.ranges.len() >= RANGES_MAX {
            pages.ranges.remove(0);
        }
        pages.ranges.push((*offset, *len, bytes.bytes().to_vec()));
    }

    /// The client itself starts or has ended a request; what it writes is not what was read. `last`: the newest call.
    pub(super) fn own_request(&mut self, request: &Request, last: u64) {
        match writes(request) {
            Writes::Nothing => {}
            Writes::One(ino) => {
                self.muddled.insert(ino, last);
                if let Some(pages) = self.pages.get_mut(&ino) {
                    pages.ranges.clear();
                }
            }
            Writes::Any => {
                self.muddled_any = last;
                self.pages.values_mut().for_each(|pages| pages.ranges.clear());
            }
        }
    }

    /// Drops what was recalled, and remembers that answers under a lower stamp are void. Returns whether anything was kept.
    pub(super) fn drop_recalled(&mut self, stamp: u64, recalled: &Recalled) -> bool {
        let last = self.recalled.entry(recalled.ino).or_default();
        *last = (*last).max(stamp);
        let mut had = false;
        if !recalled.bits.and(Bits::ATTRS).is_empty() {
            had |= self.attrs.remove(&recalled.ino).is_some();
        }
        if recalled.bits.has(Bits::LS)
            && let Some((dir, name)) = &recalled.name
        {
            had |= self.names.remove(&(*dir, name.as_bytes().into())).is_some();
        }
        if recalled.bits.has(Bits::FC) {
            had |= self.pages.remove(&recalled.ino).is_some();
        }
        had
    }

    /// Everything under a lower stamp is lost: pages at once, the rest runs out.
    pub(super) fn lose(&mut self, stamp: u64) {
        self.lost = self.lost.max(stamp);
        self.pages.clear();
    }

    /// A transaction changed these inodes, or its client did by itself. If it was its own client's, or a former session's of it,
    /// the kernel drops what it knows of them; `mine`: its session.
    pub(super) fn changes(
        &mut self,
        changed: &Changed,
        mine: Option<SessionId>,
        sight: &Sight<'_>,
        moving: &BTreeSet<(Ino, Box<[u8]>)>,
    ) {
        let Some((author, tid)) = changed.author else { return };
        if changed.told && mine == Some(author) {
            return;
        }
        let is_own = |session: SessionId| author == session || mine == Some(author);
        if mine == Some(author) {
            self.own.extend(changed.inos.iter().map(|ino| (*ino, (changed.number, tid))));
        }
        self.attrs.retain(|ino, kept| !is_own(kept.session) || !changed.inos.contains(ino));
        self.names.retain(|place, kept| {
            // What one of its renames takes away is gone, also if a name like it was made since.
            let stays = sight.leads(place.0, &place.1, kept.what) && !moving.contains(place);
            !is_own(kept.session) || !changed.inos.contains(&kept.what) || stays
        });
    }

    /// What was told of an inode, or of names in it, has not come about.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.attrs.remove(&ino);
        self.names.retain(|(dir, _), kept| *dir != ino && kept.what != ino);
    }

    /// One file of which there are pages, of which all is dropped.
    pub(super) fn forget_one(&mut self, rng: &mut Prng, drops: bool) -> Option<Ino> {
        let ino = *self.pages.keys().nth(rng.index(self.pages.len().max(1)))?;
        if drops {
            self.pages.remove(&ino);
            self.forget(ino);
        }
        Some(ino)
    }

    /// What a session was told has not come about.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.attrs.retain(|_, kept| kept.session != session);
        self.names.retain(|_, kept| kept.session != session);
    }

    /// A transaction changed these inodes, and what is left of them here must be as it is now.
    pub(super) fn keeps_none_of(&self, changed: &Changed, now: u64, sight: &Sight<'_>) -> Verdict {
        for ino in &changed.inos {
            if let Some(attr) = self.attr(*ino, now) {
                sight.attr(attr)?;
            }
        }
        for ((dir, name), kept) in self.names.iter().filter(|(_, kept)| kept.until > now) {
            if changed.inos.contains(&kept.what) {
                sight.name(*dir, name, kept.what)?;
            }
        }
        Ok(())
    }

    /// Everything that has not run out, against the present state.
    pub(super) fn check(&self, now: u64, sight: &Sight<'_>) -> Verdict {
        for kept in self.attrs.values().filter(|kept| kept.until > now) {
            sight.attr(&kept.what)?;
        }
        for ((dir, name), kept) in self.names.iter().filter(|(_, kept)| kept.until > now) {
            sight.name(*dir, name, kept.what)?;
        }
        Ok(())
    }

    /// The session under which pages of a file may be read here: not without its attributes, which run out when nothing is heard
    /// of the rank.
    pub(super) fn keeps_pages(&self, ino: Ino, now: u64, life: u64) -> Option<SessionId> {
        self.attr(ino, now)?;
        self.pages.get(&ino).filter(|pages| pages.life == life).map(|pages| pages.session)
    }

    /// Answers a request from what is kept, if it can. `live`: the rank's life in which pages are good.
    pub(super) fn answers<'a>(
        &'a self,
        request: &'a Request,
        now: u64,
        live: Option<u64>,
    ) -> Option<Hit<'a>> {
        match request {
            Request::GetAttr { node } => self.attr(node.ino, now).map(Hit::Attr),
            Request::Lookup { parent, name } => {
                let key = (parent.ino, name.as_bytes().into());
                let kept = self.names.get(&key).filter(|kept| kept.until > now)?;
                Some(Hit::Name(parent.ino, name.as_bytes(), kept.what))
            }
            Request::Read { node, offset, len, .. } => {
                // A kernel asks for the attributes before it reads its pages.
                self.attr(node.ino, now)?;
                let pages = self.pages.get(&node.ino).filter(|pages| Some(pages.life) == live)?;
                let range = pages.ranges.iter().find(|(start, long, _)| (start, long) == (offset, len))?;
                Some(Hit::Bytes(node.ino, *offset, *len, &range.2))
            }
            every_request!() => None,
        }
    }

    fn attr(&self, ino: Ino, now: u64) -> Option<&Attr> {
        self.attrs.get(&ino).filter(|kept| kept.until > now).map(|kept| &kept.what)
    }

    /// Something that is kept, by chance, as a request that it answers.
    pub(super) fn some(&mut self, now: u64, rng: &mut Prng, live: Option<u64>) -> Option<Hit<'_>> {
        self.attrs.retain(|_, kept| kept.until > now);
        self.names.retain(|_, kept| kept.until > now);
        match rng.below(3) {
            0 => self.attrs.values().nth(rng.index(self.attrs.len())).map(|kept| Hit::Attr(&kept.what)),
            1 => {
                let ((dir, name), kept) = self.names.iter().nth(rng.index(self.names.len()))?;
                Some(Hit::Name(*dir, name, kept.what))
            }
            _ => {
                let (ino, pages) = self.pages.iter().nth(rng.index(self.pages.len()))?;
                if Some(pages.life) != live || !self.attrs.contains_key(ino) {
                    return None;
                }
                let (offset, len, bytes) = pages.ranges.get(rng.index(pages.ranges.len()))?;
                Some(Hit::Bytes(*ino, *offset, *len, bytes))
            }
        }
    }
}

/// An answer from what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hit<'a> {
    Attr(&'a Attr),
    Name(Ino, &'a [u8], Ino),
    Bytes(Ino, u64, u32, &'a [u8]),
}

impl Hit<'_> {
    /// Whether the rank would answer the same to this session, or will when it has heard what its client performed.
    pub(super) fn judge(&self, judge: &mut Judge, session: Option<SessionId>) -> Verdict {
        match *self {
            Self::Attr(attr) => judge.sight(session).attr(attr),
            Self::Name(dir, name, ino) => judge.sight(session).name(dir, name, ino),
            Self::Bytes(ino, offset, len, bytes) => judge.kept_bytes(session, ino, (offset, len), bytes),
        }
    }

    /// Its row in the coverage table.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Attr(_) => "attributes from the cache",
            Self::Name(..) => "names from the cache",
            Self::Bytes(..) => "pages from the cache",
        }
    }
}

/// A directory and a name in it.
pub(crate) type Place = (Ino, Box<[u8]>);

/// The inodes whose attributes an answer carries: where in it, and the name that was asked for.
pub(crate) fn carried(request: &Request, outcome: &Outcome) -> Vec<(usize, Attr, Option<Place>)> {
    let name = match request {
        Request::Lookup { parent, name }
        | Request::MkNod { parent, name, .. }
        | Request::MkDir { parent, name, .. }
        | Request::Symlink { parent, name, .. }
        | Request::Create { parent, name, .. } => Some((parent.ino, name.as_bytes().into())),
        every_request!() => None,
    };
    match (outcome, request) {
        (Ok(Reply::Attr(attr) | Reply::Created { attr, .. }), _) => vec![(0, *attr, name)],
        (Ok(Reply::Entries { entries, .. }), Request::ReadDir { dir, .. }) => {
            let entries = entries.iter().enumerate();
            entries
                .filter_map(|(at, entry)| Some((at, entry.attr?, Some((dir.ino, entry.name.clone())))))
                .collect()
        }
        _ => Vec::new(),
    }
}

const fn writes(request: &Request) -> Writes {
    match request {
        Request::Write { node, .. } | Request::Fallocate { node, .. } => Writes::One(node.ino),
        Request::SetAttr { node, set } if set.size.is_some() => Writes::One(node.ino),
        Request::CopyRange { target, .. } => Writes::One(target.ino),
        Request::Open { node, flags } if *flags & open_flags::TRUNC != 0 => Writes::One(node.ino),
        Request::Create { flags, .. } if *flags & open_flags::TRUNC != 0 => Writes::Any,
        every_request!() => Writes::Nothing,
    }
}
