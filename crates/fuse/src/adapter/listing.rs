//! Directory listings: "." and "..", then the rank's pages under the rank's cookies.
//!
//! A cookie is the hash of a name, so it stays good while others create and remove. Names with one cookie
//! (a hash collision) arrive in one page; when the kernel's buffer ends between them, the handle keeps the
//! rest of the page, because no offset could name the place.
//! Absent: opening at the rank; a directory needs no open to stay listable.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::mount::Validity;
use proto::Ino;
use proto::reply::{DirEntry, Reply};
use proto::request::Request;

use super::keep::Given;
use super::{RequestContext, Shared};
use crate::abi::fopen;
use crate::reply::{DirSink, KernelReply, Opened};
use crate::request::Operation;
use crate::request::groups::{
    attribute_operations, data_operations, lock_operations, mount_operations, name_operations,
    xattr_operations,
};

/// Offsets after "." and "..": below every cookie.
const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

/// The unread rest of a page, and the offset at which it continues.
#[derive(Default)]
struct Rest {
    at: u64,
    entries: VecDeque<DirEntry>,
    end: bool,
}

/// Open directories.
#[derive(Default)]
pub(super) struct Listings {
    open: Mutex<HashMap<u64, Arc<Mutex<Rest>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Listings {
    fn open(&self, fh: u64) -> u64 {
        lock(&self.open).insert(fh, Arc::default());
        fh
    }

    fn rest(&self, fh: u64) -> Option<Arc<Mutex<Rest>>> {
        lock(&self.open).get(&fh).cloned()
    }

    fn close(&self, fh: u64) {
        lock(&self.open).remove(&fh);
    }
}

/// One READDIR or READDIRPLUS.
struct Want {
    about: RequestContext,
    rest: Arc<Mutex<Rest>>,
    offset: u64,
    /// With attributes.
    plus: bool,
}

impl Shared {
    pub(super) fn listing_operation(
        self: &Arc<Self>,
        about: RequestContext,
        operation: &Operation<'_>,
        reply: KernelReply,
    ) {
        match *operation {
            Operation::OpenDir { .. } => {
                let (now, nodeid) = (self.mount.now(), about.nodeid);
                let flags = match self.nodes.listing(nodeid, now, || self.mount.lost_stamp()) {
                    (false, _) => 0,
                    (true, false) => fopen::CACHE_DIR,
                    (true, true) => fopen::CACHE_DIR | fopen::KEEP_CACHE,
                };
                reply.open(Opened { fh: self.listings.open(self.mount.handle()), flags });
            }
            Operation::ReadDir { fh, offset, size } => self.list(about, fh, offset, size, false, reply),
            Operation::ReadDirPlus { fh, offset, size } => {
                let plus = self.listers.lists(about.pid, about.nodeid, offset);
                self.list(about, fh, offset, size, plus, reply);
            }
            Operation::ReleaseDir(release) => {
                self.listings.close(release.fh);
                self.nodes.closed(about.nodeid);
                self.mount.handle_closed(about.node.ino, release.fh);
                reply.ok();
            }
            Operation::FSyncDir { fh, data_only } => self.sync(about, fh, data_only, reply),
            // `Adapter::handle` sends these elsewhere.
            name_operations!()
            | attribute_operations!()
            | xattr_operations!()
            | lock_operations!()
            | data_operations!()
            | mount_operations!() => reply.error(libc::EIO),
        }
    }

    fn list(
        self: &Arc<Self>,
        about: RequestContext,
        fh: u64,
        offset: u64,
        size: u32,
        plus: bool,
        reply: KernelReply,
    ) {
        let Some(rest) = self.listings.rest(fh) else { return reply.error(libc::EBADF) };
        let kept = {
            let mut rest = lock(&rest);
            match rest.at == offset && offset >= AFTER_DOTS {
                true => std::mem::take(&mut *rest),
                false => {
                    *rest = Rest::default();
                    Rest::default()
                }
            }
        };
        let want = Want { about, rest, offset, plus };
        if !kept.entries.is_empty() || kept.end {
            // Attributes of an earlier page may be older than what the kernel knows by now: names alone.
            return self.fill(&want, kept, None, reply);
        }
        let after = if offset <= AFTER_DOTS { 0 } else { offset };
        let ask = Request::ReadDir { dir: want.about.node, after, attrs: plus, bytes_max: size };
        self.ask_to_keep(want.about.cred.clone(), ask, reply, move |shared, reply, answer, validity| {
            let Reply::Entries { entries, end } = answer else { return reply.error(libc::EIO) };
            let page = Rest { at: 0, entries: entries.into(), end };
            shared.fill(&want, page, Some(&validity), reply);
        });
    }

    /// Writes what fits into the reply and keeps the rest; `fresh`: it came just now, and is valid.
    fn fill(&self, want: &Want, mut page: Rest, fresh: Option<&Validity>, reply: KernelReply) {
        reply.directory(|sink| {
            if !self.dots(want, sink) {
                return Ok(());
            }
            let (mut last, mut at) = (want.offset.max(AFTER_DOTS), 0);
            while let Some(entry) = page.entries.front() {
                let given = fresh.map(|validity| Given::of(validity, at));
                if !self.put(want.about.node.ino, entry, given, sink) {
                    break;
                }
                last = entry.hash.cookie();
                page.entries.pop_front();
                at += 1;
            }
            page.at = last;
            // With attributes a new page is better than an old one, unless no offset leads to it.
            let torn = page.entries.front().is_some_and(|entry| entry.hash.cookie() == last);
            let keep = if page.entries.is_empty() { page.end } else { torn || !want.plus };
            *lock(&want.rest) = if keep { page } else { Rest::default() };
            Ok(())
        });
    }

    /// "." and "..", as far as the offset lies before them; false when the buffer is full.
    fn dots(&self, want: &Want, sink: &mut DirSink<'_>) -> bool {
        let node = want.about.node;
        let parent = if node.ino == self.root.ino { node.ino } else { node.parent };
        let dots = [(&b"."[..], node.ino, AFTER_DOT), (b"..", parent, AFTER_DOTS)];
        dots.iter()
            .filter(|(_, _, next)| *next > want.offset)
            .all(|(name, ino, next)| sink.name(name, ino.0.max(1), libc::DT_DIR, *next))
    }

    fn put(&self, dir: Ino, entry: &DirEntry, given: Option<Given>, sink: &mut DirSink<'_>) -> bool {
        let next = entry.hash.cookie();
        match (&entry.attr, given) {
            // Counted before the reply leaves, so that no FORGET can come first; and only if it will leave.
            (Some(attr), Some(given)) if sink.wants_nodes() => {
                sink.fits(&entry.name) && sink.node(&entry.name, &self.entry(attr, Some(dir), given), next)
            }
            _ => sink.name(&entry.name, entry.ino.0, entry.kind as u8, next),
        }
    }
}
