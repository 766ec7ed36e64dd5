//! Sessions that are limited to a directory, by names alone: what is neither the directory nor below it is refused, and what is inside is
//! not. By the tree, whichever ranks the way up leads through.
//!
//! Absent: who is limited to what (`ranks/limits.rs`); what becomes of what is inside (`answers.rs`, `history.rs`).

use super::{Asked, Judge, Key, Pending, Step, is_lock_wait};
use crate::model::judge::Verdict;
use crate::model::tree::{Node, Tree};
use proto::ids::RankId;
use proto::reply::{Outcome, Reply};
use proto::request::{LockKind, Request};
use proto::{Errno, Ino, every_request, writing_requests};
use std::collections::{BTreeMap, BTreeSet};

/// A client, in one life, and the directory that it is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ranks) struct Guest {
    pub(in crate::ranks) client: usize,
    pub(in crate::ranks) birth: u64,
    pub(in crate::ranks) limit: Ino,
}

/// What is known of all of them.
#[derive(Default)]
pub(in crate::ranks) struct Guests {
    /// What each has opened. With that it may go on by its number wherever it is, or not: what a rank's next life hears of it counts for less.
    opened: BTreeSet<(Guest, Ino)>,
    /// What each was let in to.
    seen: BTreeSet<(Guest, Ino)>,
    counts: BTreeMap<&'static str, u64>,
}

impl Guests {
    pub(in crate::ranks) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counts.iter().map(|(what, count)| (*what, *count))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

/// Where something is that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Inside,
    Outside,
    /// Outside, or without a name, and open.
    Open,
    /// There is no such thing.
    Nowhere,
}

/// How something is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// By its number.
    Inode(Ino),
    /// By its number, to do something with its names. What is no directory is refused for one reason or another.
    Dir(Ino),
    /// To get one more name: that it is open is not enough.
    Linked(Ino),
}

impl Judge {
    /// An answer to a request that named only what is outside is a refusal, whatever else is legal between ranks.
    pub(super) fn is_kept_out(&self, pending: &Pending, outcome: &Outcome) -> Verdict {
        let Asked { request, guest: Some(guest), .. } = &pending.asked else { return Ok(()) };
        if matches!(outcome, Err(Errno::EACCES | Errno::ESTALE)) || is_second_late(request, outcome) {
            return Ok(());
        }
        let is_out = |tree: &Tree| self.places(tree, *guest, request).contains(&Place::Outside);
        let mut states = self.states(pending.first);
        if is_lock_wait(request) || !states.all(|(_, tree)| is_out(tree)) {
            return Ok(());
        }
        Err(format!("names what is outside of {}, and is not refused", guest.limit.0))
    }

    /// Whether an answer is the refusal that is due in a state, or would be legal. Without it the request's own rule counts.
    pub(super) fn is_within(&self, tree: &Tree, asked: &Asked, outcome: &Outcome) -> Verdict<bool> {
        let Asked { request, guest: Some(guest), .. } = asked else { return Ok(false) };
        if is_lock_wait(request) {
            // Nobody keeps the states for those who wait for long.
            return Ok(matches!(outcome, Err(Errno::EACCES)));
        }
        let places = self.places(tree, *guest, request);
        let refused = matches!(outcome, Err(Errno::EACCES));
        if !places.contains(&Place::Outside) {
            return Ok(refused && places.contains(&Place::Open));
        }
        let gone = places.contains(&Place::Nowhere) && matches!(outcome, Err(Errno::ESTALE));
        if refused || gone {
            return Ok(true);
        }
        if is_second_late(request, outcome) {
            return Ok(false);
        }
        Err(format!("must be refused: {places:?} of {}", guest.limit.0))
    }

    /// A transaction of somebody who is limited is about what is inside, by the tree before it.
    pub(super) fn keeps_limit(&self, step: &Step) -> Verdict {
        let Some((Asked { request, .. }, guest)) = asked_by_guest(step) else { return Ok(()) };
        if is_about_bytes(request) {
            return Ok(());
        }
        match self.places(&step.tree, guest, request) {
            places if places.contains(&Place::Outside) => Err(is_outside(guest, &places, request)),
            _ => Ok(()),
        }
    }

    /// One about bytes, which are on their way to the disk for a while before that, is about what was inside at some time since it was asked for.
    pub(super) fn kept_limit(&self, step: &Step) -> Verdict {
        let Some((Asked { request, .. }, guest)) = asked_by_guest(step) else { return Ok(()) };
        let pending = step.origin.as_ref().and_then(|origin| self.pending.get(&origin.key));
        let (Some(pending), true) = (pending, is_about_bytes(request)) else { return Ok(()) };
        let is_out = |tree: &Tree| self.places(tree, guest, request).contains(&Place::Outside);
        // Of a request whose caller is gone nobody keeps the states.
        let is_known = pending.first >= self.first;
        if is_known && self.states(pending.first).all(|(_, tree)| is_out(tree)) {
            return Err(is_outside(guest, &self.places(self.tree(), guest, request), request));
        }
        Ok(())
    }

    /// An answer grants something. Not of what is only open to somebody who is limited: a recall would say where it is.
    pub(in crate::ranks) fn may_be_granted(&self, key: Key) -> Verdict {
        let Some(pending) = self.pending.get(&key) else { return Ok(()) };
        let Asked { request, guest: Some(guest), .. } = &pending.asked else { return Ok(()) };
        let [Named::Inode(ino)] = named(request)[..] else { return Ok(()) };
        let is_out = |tree: &Tree| self.place(tree, *guest, ino, false) == Place::Outside;
        if self.states(pending.first).all(|(_, tree)| is_out(tree)) {
            return Err(format!("grants inode {} to {key:?}, outside of {}", ino.0, guest.limit.0));
        }
        Ok(())
    }

    /// A request of somebody who is limited was carried out: what it opened.
    pub(super) fn opens_for_guest(&mut self, asked: &Asked, outcome: &Outcome) {
        if let (Some(guest), Ok(Reply::Attr(attr) | Reply::Created { attr, .. })) = (asked.guest, outcome)
            && opens(&asked.request)
        {
            self.guests.opened.insert((guest, attr.ino));
        }
    }

    /// An answer leaves a rank for somebody who is limited.
    pub(super) fn tells_guest(&mut self, (rank, ..): Key, asked: &Asked, outcome: &Outcome) {
        let Some(guest) = asked.guest else { return };
        self.opens_for_guest(asked, outcome);
        self.guests.count("limited sessions answered");
        if rank != RankId(0) {
            self.guests.count("limited sessions answered above rank 0");
        }
        let inos = named(&asked.request);
        let places = self.places(self.tree(), guest, &asked.request);
        let is_refused = matches!(outcome, Err(Errno::EACCES));
        if outcome.is_ok() && places.contains(&Place::Open) {
            self.guests.count("limited sessions served what they have open outside");
        }
        if is_refused {
            self.guests.count("limited sessions refused what is outside");
        }
        for (Named::Inode(ino) | Named::Dir(ino) | Named::Linked(ino), place) in inos.into_iter().zip(places)
        {
            if outcome.is_ok() && place == Place::Inside {
                self.guests.seen.insert((guest, ino));
            }
            if is_refused && place == Place::Outside && self.guests.seen.contains(&(guest, ino)) {
                self.guests.count("limited sessions refused what moved out");
            }
        }
    }

    /// Where all is that a request names, in the order of `named`.
    fn places(&self, tree: &Tree, guest: Guest, request: &Request) -> Vec<Place> {
        let place = |what| match what {
            Named::Inode(ino) => self.place(tree, guest, ino, true),
            Named::Linked(ino) => self.place(tree, guest, ino, false),
            Named::Dir(ino) => match self.place(tree, guest, ino, false) {
                Place::Inside if tree.node(ino).is_some_and(|node| !node.is_dir()) => Place::Open,
                place => place,
            },
        };
        named(request).into_iter().map(place).collect()
    }

    /// `by_open`: one with names counts as open, too.
    fn place(&self, tree: &Tree, guest: Guest, ino: Ino, by_open: bool) -> Place {
        let Some(node) = tree.node(ino) else { return Place::Nowhere };
        if node.is_dir() {
            let inside = tree.is_at_or_above(guest.limit, ino);
            return if inside { Place::Inside } else { Place::Outside };
        }
        let has_it = |dir: &&Node| dir.entries.values().any(|child| *child == ino);
        let mut dirs = tree.nodes.values().map(std::rc::Rc::as_ref).filter(has_it).peekable();
        let nameless = dirs.peek().is_none();
        if dirs.any(|dir| tree.is_at_or_above(guest.limit, dir.ino)) {
            return Place::Inside;
        }
        if (by_open || nameless) && self.may_have_open(tree, guest, ino) {
            Place::Open
        } else {
            Place::Outside
        }
    }

    /// Whether it was opened, or may have been by an open that is under way.
    fn may_have_open(&self, tree: &Tree, guest: Guest, ino: Ino) -> bool {
        let leads = |request: &Request| match request {
            Request::Open { node, .. } => node.ino == ino,
            Request::Create { parent, name, .. } => {
                tree.node(parent.ino).is_some_and(|dir| dir.entries.get(name.as_bytes()) == Some(&ino))
            }
            every_request!() => false,
        };
        let mut pending = self.pending.values().filter(|pending| pending.asked.guest == Some(guest));
        self.guests.opened.contains(&(guest, ino)) || pending.any(|pending| leads(&pending.asked.request))
    }
}

/// What a request names, so that all of it must be inside.
fn named(request: &Request) -> Vec<Named> {
    match request {
        Request::Rename { parent, new_parent, .. } => {
            vec![Named::Dir(parent.ino), Named::Dir(new_parent.ino)]
        }
        Request::Link { node, parent, .. } => vec![Named::Dir(parent.ino), Named::Linked(node.ino)],
        Request::CopyRange { source, target, .. } => vec![Named::Inode(source.ino), Named::Inode(target.ino)],
        Request::TmpFile { parent: dir, .. } | Request::ReadDir { dir, .. } => vec![Named::Dir(dir.ino)],
        // They give something back, or name nothing.
        Request::Release { .. } | Request::ReleaseLocks { .. } | Request::SyncFs | Request::StatFs => {
            Vec::new()
        }
        Request::SetLock { lock, .. } if lock.kind == LockKind::Unlock => Vec::new(),
        every_request!() => match request.subject() {
            Some((dir, Some(_))) => vec![Named::Dir(dir.ino)],
            Some((node, None)) => vec![Named::Inode(node.ino)],
            None => Vec::new(),
        },
    }
}

/// Whether a request may fail by its own rule before anybody looks where the second is that it names: that may be another rank's.
fn is_second_late(request: &Request, outcome: &Outcome) -> bool {
    outcome.is_err() && matches!(request, Request::Link { .. } | Request::CopyRange { .. })
}

/// A step that somebody wanted who is limited.
fn asked_by_guest(step: &Step) -> Option<(&Asked, Guest)> {
    let asked = &step.origin.as_ref()?.asked;
    Some((asked, asked.guest?))
}

fn is_outside(guest: Guest, places: &[Place], request: &Request) -> String {
    let request = format!("{request:?}");
    format!("is outside of {}: {places:?} of {request:.200}", guest.limit.0)
}

/// Whether the data store has a part in it.
const fn is_about_bytes(request: &Request) -> bool {
    matches!(request, writing_requests!())
}

/// Whether it opens a file.
const fn opens(request: &Request) -> bool {
    matches!(request, Request::Open { .. } | Request::Create { .. } | Request::TmpFile { .. })
}
