//! Negative names: those that a directory does not have. Kernels keep none over FUSE, so each search along a path of folders, and
//! each `#include`, would ask the rank again.
//!
//! A name is known to be absent while Fs of its directory has been held, without a gap, since before the LOOKUP was sent that did
//! not find it: whoever makes a name takes Fs from everybody else first. What this client makes itself it knows; while it waits for the
//! answer, nothing is known of the name: the rank may have made it, and others may have seen it.
//!
//! Absent: directories delegated to this client (`delegations.rs`); a mount in the rank's process, which asks as quickly.

use crate::changes::changed_dir;
use crate::validity::Validity;
use crate::window::Sent;
use proto::caps::Bits;
use proto::reply::{Outcome, Reply};
use proto::request::Request;
use proto::{Attr, Cred, Errno, FileKind, Ino, Name, Tid};
use proto::{every_reply, every_request};
use std::collections::{BTreeMap, BTreeSet};
use stdx::Mono;

/// Directories whose Fs is remembered; beyond, those go for which it has run out, and then all.
const DIRS_MAX: usize = 4096;
/// Names of all of them; beyond, all go.
const NAMES_MAX: usize = 16_384;

/// Whether what a LOOKUP finds may change by this request.
pub(crate) fn may_change(request: &Request, lookup: &Request) -> bool {
    let Request::Lookup { parent, name } = lookup else { return false };
    changed_dir(request) == Some(parent.ino) || request.changed_names().any(|of| of == (parent.ino, name))
}

/// A directory whose Fs is held.
#[derive(Clone, Debug)]
struct Dir {
    until: Mono,
    /// Answers to requests from here on were made while it was held, and after all that this client had asked to be made.
    since: Tid,
    /// Who looked: another may not be allowed to.
    cred: Cred,
    names: BTreeSet<Name>,
}

/// The book.
#[derive(Clone, Debug)]
pub(crate) struct Negatives {
    dirs: BTreeMap<Ino, Dir>,
    /// Of all directories.
    names: usize,
}

impl Negatives {
    pub(crate) const fn new() -> Self {
        Self { dirs: BTreeMap::new(), names: 0 }
    }

    /// Nothing is held any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Of this inode nothing is.
    pub(crate) fn remove(&mut self, ino: Ino) {
        if let Some(dir) = self.dirs.remove(&ino) {
            self.names -= dir.names.len();
        }
    }

    /// An answer came. `next`: the tid that the next request will have. `changing`: a request of this client that may change what a
    /// LOOKUP finds has no answer yet.
    pub(crate) fn answered(
        &mut self,
        now: Mono,
        tid: Tid,
        (Sent { cred, request }, outcome): (&Sent, &Outcome),
        validity: &Validity,
        (next, changing): (Tid, impl FnOnce(&Request) -> bool),
    ) {
        self.changed(request, next);
        match (request, outcome) {
            (Request::Lookup { parent, name }, Err(Errno::ENOENT)) if !changing(request) => {
                self.missed(now, tid, cred, parent.ino, name);
            }
            (_, Ok(Reply::Attr(attr))) => self.granted(now, attr, validity, 0, next),
            (_, Ok(Reply::Entries { entries, .. })) => {
                let attrs = entries.iter().map(|entry| entry.attr.as_ref()).enumerate();
                for (at, attr) in attrs.filter_map(|(at, attr)| Some((at, attr?))) {
                    self.granted(now, attr, validity, at, next);
                }
            }
            (every_request!(), Ok(every_reply!()) | Err(_)) => {}
        }
    }

    /// This client asks for a change, or was told of it, or has made it.
    pub(crate) fn changed(&mut self, request: &Request, next: Tid) {
        if self.dirs.is_empty() || stdx::mutant!("client_negative_beside_own") {
            return;
        }
        for (ino, name) in request.changed_names() {
            let Some(dir) = self.dirs.get_mut(&ino) else { continue };
            self.names -= usize::from(dir.names.remove(name));
            // A LOOKUP that is under way may have been carried out before it.
            dir.since = next;
        }
        // Who may look may change.
        if let Some(ino) = changed_dir(request) {
            self.remove(ino);
        }
    }

    fn granted(&mut self, now: Mono, attr: &Attr, validity: &Validity, at: usize, next: Tid) {
        if attr.kind() != FileKind::Directory || !validity.grants.of(at).has(Bits::FS) {
            return;
        }
        if let Some(dir) = self.dirs.get_mut(&attr.ino).filter(|dir| now < dir.until) {
            dir.until = dir.until.max(validity.until);
            return;
        }
        self.remove(attr.ino);
        if self.dirs.len() >= DIRS_MAX {
            self.dirs.retain(|_, dir| now < dir.until);
            self.names = self.dirs.values().map(|dir| dir.names.len()).sum();
            // Not for a few: each look at all of them makes room for many.
            if self.dirs.len() >= DIRS_MAX / 4 * 3 {
                self.clear();
            }
        }
        let dir = Dir { until: validity.until, since: next, cred: Cred::ROOT, names: BTreeSet::new() };
        self.dirs.insert(attr.ino, dir);
    }

    fn missed(&mut self, now: Mono, tid: Tid, cred: &Cred, ino: Ino, name: &Name) {
        if self.names >= NAMES_MAX {
            self.dirs.values_mut().for_each(|dir| dir.names.clear());
            self.names = 0;
        }
        let Some(dir) = self.dirs.get_mut(&ino).filter(|dir| now < dir.until) else { return };
        if tid < dir.since && !stdx::mutant!("client_negative_from_before") {
            return;
        }
        if dir.cred != *cred {
            self.names -= dir.names.len();
            dir.names.clear();
            dir.cred = cred.clone();
        }
        self.names += usize::from(dir.names.insert(name.clone()));
    }

    /// Whether the directory is known not to have the name.
    pub(crate) fn has(&self, now: Mono, cred: &Cred, ino: Ino, name: &Name) -> bool {
        let dir = self.dirs.get(&ino).filter(|dir| now < dir.until && dir.cred == *cred);
        dir.is_some_and(|dir| dir.names.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::NodeRef;
    use proto::caps::Grants;

    const DIR: Ino = Ino(4096);

    fn name() -> Name {
        Name::new(b"stdio.h").unwrap()
    }

    fn lookup() -> Request {
        Request::Lookup { parent: NodeRef::bare(DIR), name: name() }
    }

    fn valid(until: u64) -> Validity {
        Validity { grants: Grants::One(Bits::ATTRS), stamp: 1, until: Mono(until), asked: 0 }
    }

    /// Fs of the directory comes with an answer; the next request has that tid.
    fn held(book: &mut Negatives, now: u64, until: u64, next: u64) {
        let attr = Attr { ino: DIR, mode: 0o040_755, ..Attr::default() };
        let sent = Sent { cred: Cred::ROOT, request: Request::GetAttr { node: NodeRef::bare(DIR) } };
        book.answered(
            Mono(now),
            Tid(next - 1),
            (&sent, &Ok(Reply::Attr(attr))),
            &valid(until),
            (Tid(next), |_| false),
        );
    }

    fn missed(book: &mut Negatives, now: u64, tid: u64, cred: &Cred) {
        let sent = Sent { cred: cred.clone(), request: lookup() };
        book.answered(
            Mono(now),
            Tid(tid),
            (&sent, &Err(Errno::ENOENT)),
            &Validity::default(),
            (Tid(tid + 1), |_| false),
        );
    }

    fn knows(book: &Negatives, now: u64) -> bool {
        book.has(Mono(now), &Cred::ROOT, DIR, &name())
    }

    #[test]
    fn a_name_is_absent_as_long_as_its_directory_is_held_without_a_gap() {
        let mut book = Negatives::new();
        missed(&mut book, 1, 1, &Cred::ROOT);
        assert!(!knows(&book, 1), "nothing is held");
        held(&mut book, 2, 10, 4);
        missed(&mut book, 3, 3, &Cred::ROOT);
        assert!(!knows(&book, 3), "it was asked for before the directory was held");
        missed(&mut book, 3, 4, &Cred::ROOT);
        assert!(knows(&book, 9) && !knows(&book, 10));
        held(&mut book, 9, 20, 6);
        assert!(knows(&book, 19), "without a gap");
        held(&mut book, 20, 30, 7);
        assert!(!knows(&book, 21), "anybody may have made it between");
        missed(&mut book, 22, 7, &Cred::ROOT);
        assert!(knows(&book, 22));
        book.remove(DIR);
        assert!(!knows(&book, 22) && book.names == 0, "recalled");
    }

    #[test]
    fn what_this_client_makes_is_there() {
        let mut book = Negatives::new();
        held(&mut book, 1, 10, 2);
        missed(&mut book, 2, 2, &Cred::ROOT);
        let made = Request::Symlink { parent: NodeRef::bare(DIR), name: name(), target: b"/"[..].into() };
        book.changed(&made, Tid(4));
        assert!(!knows(&book, 3));
        missed(&mut book, 3, 3, &Cred::ROOT);
        assert!(!knows(&book, 3), "it was looked up before it was made");
        missed(&mut book, 3, 4, &Cred::ROOT);
        assert!(knows(&book, 3), "and perhaps removed");
    }

    #[test]
    fn it_is_known_to_whoever_looked() {
        let mut book = Negatives::new();
        let other = Cred { uid: 7, ..Cred::ROOT };
        held(&mut book, 1, 10, 2);
        missed(&mut book, 2, 2, &Cred::ROOT);
        assert!(!book.has(Mono(3), &other, DIR, &name()));
        missed(&mut book, 3, 3, &other);
        assert!(book.has(Mono(3), &other, DIR, &name()) && !knows(&book, 3));
        let mode = proto::SetAttr { mode: Some(0o700), ..proto::SetAttr::default() };
        book.changed(&Request::SetAttr { node: NodeRef::bare(DIR), set: mode }, Tid(5));
        assert!(!book.has(Mono(3), &other, DIR, &name()), "perhaps it may not look any more");
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut book = Negatives::new();
        held(&mut book, 1, 10, 2);
        for i in 0..2 * NAMES_MAX {
            book.missed(Mono(2), Tid(2), &Cred::ROOT, DIR, &Name::new(i.to_string().as_bytes()).unwrap());
            assert!(book.names <= NAMES_MAX && book.names == book.dirs[&DIR].names.len());
        }
        for ino in 0..2 * DIRS_MAX as u64 {
            let attr = Attr { ino: Ino(5000 + ino), mode: 0o040_755, ..Attr::default() };
            book.granted(Mono(2), &attr, &valid(10), 0, Tid(3));
            assert!(book.dirs.len() <= DIRS_MAX);
        }
        assert_eq!(book.names, book.dirs.values().map(|dir| dir.names.len()).sum::<usize>());
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn what_is_asked_too_soon_is_caught() {
        stdx::mutant::activate(Some("client_negative_from_before"));
        let held = a_name_is_absent_as_long_as_its_directory_is_held_without_a_gap;
        let verdicts =
            [held, what_this_client_makes_is_there].map(|test| std::panic::catch_unwind(test).is_err());
        stdx::mutant::activate(None);
        assert_eq!(verdicts, [true, true]);
    }
}
