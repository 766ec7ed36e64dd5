//! Errors that came after their callers were told of success: who is still to hear of them.
//!
//! As Linux does it for pages that could not be written: each handle that was open hears of it once, at its next sync or close;
//! and if none was, the first that is opened later. While nothing ever came late nothing is kept, and no mutex taken.
//!
//! Absent: the operation itself; it is logged (`Mount::on_late`).

use crate::shared::lock;
use proto::{Errno, Ino, Kind, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Inodes that are remembered one by one. Beyond, every handle that was open hears of it, whatever inode it is of: rather a false
/// alarm than none.
const INODES_MAX: usize = 65_536;

/// An operation whose caller was told that it succeeded, and which did not, or nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateError {
    pub kind: Kind,
    pub name: Option<Name>,
    /// What it made or changed, and the directory.
    pub inos: Vec<Ino>,
    pub errno: Errno,
}

/// The book of all inodes of a mount.
#[derive(Default)]
pub(crate) struct LateErrors {
    /// Handles are numbered from 1 on: which were open when something happened is a comparison.
    handles: AtomicU64,
    any: AtomicBool,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    inodes: BTreeMap<Ino, Mark>,
    /// Of those that are not remembered one by one.
    rest: Option<Mark>,
    /// For a sync of everything.
    all: Option<Errno>,
}

struct Mark {
    errno: Errno,
    /// Handles up to this number were open.
    last: u64,
    /// Of these, who has heard of it. The inode is there for mounts without handles of their own (`noopen`), whose number is 0.
    heard: BTreeSet<(Ino, u64)>,
    /// Somebody has.
    seen: bool,
}

impl Mark {
    fn new(errno: Errno, last: u64) -> Self {
        Self { errno, last, heard: BTreeSet::new(), seen: false }
    }

    /// What the handle of the inode has not heard of yet.
    fn tell(&mut self, ino: Ino, handle: u64) -> Result<(), Errno> {
        let was_open = handle <= self.last;
        // Without handles nobody says that one is closed. Whoever is forgotten here hears of it again.
        if self.heard.len() >= INODES_MAX {
            self.heard.clear();
        }
        let news = if was_open { self.heard.insert((ino, handle)) } else { !self.seen };
        self.seen = true;
        if news { Err(self.errno) } else { Ok(()) }
    }
}

impl LateErrors {
    /// A number for a handle that is being opened.
    pub(crate) fn handle(&self) -> u64 {
        self.handles.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn add(&self, late: &LateError) {
        let mut book = lock(&self.book);
        let (last, errno) = (self.handles.load(Ordering::Relaxed), late.errno);
        for ino in &late.inos {
            // Of what nobody has heard of the first is the reason of the others: the file was not made, so nothing is written to it.
            let first = book.inodes.get(ino).filter(|mark| !mark.seen).map(|mark| mark.errno);
            let errno = first.unwrap_or(errno);
            let mark = Mark::new(errno, last);
            if book.inodes.len() < INODES_MAX || book.inodes.contains_key(ino) {
                book.inodes.insert(*ino, mark);
            } else {
                book.rest = Some(mark);
            }
        }
        book.all.get_or_insert(errno);
        self.any.store(true, Ordering::Release);
    }

    /// The same of inodes whose numbers are not known: every handle that is open may be of one.
    pub(crate) fn add_others(&self, errno: Errno) {
        let last = self.handles.load(Ordering::Relaxed);
        let mut book = lock(&self.book);
        book.rest = Some(Mark::new(errno, last));
        book.all.get_or_insert(errno);
        self.any.store(true, Ordering::Release);
    }

    /// What this handle of the inode has not heard of yet.
    pub(crate) fn of(&self, ino: Ino, handle: u64) -> Result<(), Errno> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut book = lock(&self.book);
        let Book { inodes, rest, .. } = &mut *book;
        let rest = rest.as_mut().filter(|mark| handle <= mark.last);
        // It may have had an error of its own, and be one of those that are not known. Whoever hears of one has heard of both.
        let own = inodes.get_mut(&ino).map_or(Ok(()), |mark| mark.tell(ino, handle));
        own.and(rest.map_or(Ok(()), |mark| mark.tell(ino, handle)))
    }

    /// What nobody has heard of at a sync of everything.
    pub(crate) fn of_all(&self) -> Result<(), Errno> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        lock(&self.book).all.take().map_or(Ok(()), Err)
    }

    /// The handle is closed.
    pub(crate) fn closed(&self, ino: Ino, handle: u64) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut book = lock(&self.book);
        let Book { inodes, rest, .. } = &mut *book;
        for mark in inodes.get_mut(&ino).into_iter().chain(rest) {
            mark.heard.remove(&(ino, handle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::request::Request;

    fn late(ino: u64, errno: Errno) -> LateError {
        LateError { kind: Request::SyncFs.kind(), name: None, inos: vec![Ino(ino)], errno }
    }

    #[test]
    fn each_handle_that_was_open_hears_of_it_once() {
        let errors = LateErrors::default();
        let (a, b, c) = (errors.handle(), errors.handle(), errors.handle());
        assert_eq!((errors.of(Ino(7), a), errors.of_all()), (Ok(()), Ok(())));
        errors.add(&late(7, Errno::ENOSPC));
        let later = errors.handle();
        assert_eq!((errors.of(Ino(7), a), errors.of(Ino(7), a)), (Err(Errno::ENOSPC), Ok(())));
        assert_eq!(errors.of(Ino(8), a), Ok(()), "another inode");
        assert_eq!(errors.of(Ino(7), b), Err(Errno::ENOSPC));
        errors.closed(Ino(7), b);
        assert_eq!(errors.of(Ino(7), later), Ok(()), "others have heard of it");
        errors.add(&late(7, Errno::EIO));
        assert_eq!((errors.of(Ino(7), a), errors.of(Ino(7), c)), (Err(Errno::EIO), Err(Errno::EIO)));
        assert_eq!((errors.of_all(), errors.of_all()), (Err(Errno::ENOSPC), Ok(())));
    }

    /// What broke: of a file that could not be made for want of space the next fsync said that its handle was stale.
    #[test]
    fn the_first_of_several_is_told() {
        let errors = LateErrors::default();
        let handle = errors.handle();
        errors.add(&late(7, Errno::ENOSPC));
        errors.add(&late(7, Errno::ESTALE));
        assert_eq!((errors.of(Ino(7), handle), errors.of_all()), (Err(Errno::ENOSPC), Err(Errno::ENOSPC)));
        errors.add(&late(7, Errno::EIO));
        assert_eq!((errors.of(Ino(7), handle), errors.of_all()), (Err(Errno::EIO), Err(Errno::EIO)));
    }

    /// What broke: beyond the bound nobody was told.
    #[test]
    fn errors_of_more_inodes_than_are_remembered_are_told_too() {
        let errors = LateErrors::default();
        let (a, b) = (errors.handle(), errors.handle());
        let last = INODES_MAX as u64 + 1;
        (1..=last).for_each(|ino| errors.add(&late(ino, Errno::ENOSPC)));
        assert_eq!((errors.of(Ino(1), a), errors.of(Ino(1), a)), (Err(Errno::ENOSPC), Ok(())));
        assert_eq!((errors.of(Ino(last), b), errors.of(Ino(last), b)), (Err(Errno::ENOSPC), Ok(())));
        let later = errors.handle();
        assert_eq!(errors.of(Ino(last + 1), later), Ok(()), "it was not open");
        errors.closed(Ino(last), b);
    }

    /// What broke: an error of long ago hid that bytes of unknown files were lost.
    #[test]
    fn an_error_of_an_inode_hides_none_of_inodes_that_are_not_known() {
        let errors = LateErrors::default();
        let (first, second) = (errors.handle(), errors.handle());
        errors.add(&late(7, Errno::ENOSPC));
        assert_eq!(errors.of(Ino(7), first), Err(Errno::ENOSPC));
        errors.add_others(Errno::EIO);
        assert_eq!((errors.of(Ino(7), first), errors.of(Ino(7), first)), (Err(Errno::EIO), Ok(())));
        assert_eq!((errors.of(Ino(7), second), errors.of(Ino(7), second)), (Err(Errno::ENOSPC), Ok(())));
    }

    /// What broke: on a mount without handles one file's close took the news from all others.
    #[test]
    fn without_handles_each_file_hears_of_it() {
        let errors = LateErrors::default();
        errors.add_others(Errno::EIO);
        assert_eq!((errors.of(Ino(7), 0), errors.of(Ino(7), 0)), (Err(Errno::EIO), Ok(())));
        assert_eq!((errors.of(Ino(8), 0), errors.of(Ino(8), 0)), (Err(Errno::EIO), Ok(())));
    }

    #[test]
    fn what_nobody_has_heard_of_the_next_handle_hears() {
        let errors = LateErrors::default();
        errors.add(&late(7, Errno::EIO));
        let (a, b) = (errors.handle(), errors.handle());
        assert_eq!((errors.of(Ino(7), a), errors.of(Ino(7), a)), (Err(Errno::EIO), Ok(())));
        assert_eq!(errors.of(Ino(7), b), Ok(()));
    }
}
