//! Readdir: one page, merged from the store's listing and what the cache knows better.
//!
//! A page never tears names with equal cookies apart: the next page starts behind a cookie, so the
//! second of two would be lost. Absent: "." and ".." (the client makes them).

use crate::cache::{attr_of, dir};
use crate::op::{LoadKey, Op, Park, Plan, ScanFor, ScanPage, Stop};
use crate::perm;
use crate::view::{Found, View, park};
use proto::dentry::DentryValue;
use proto::reply::{DirEntry, Reply};
use proto::storeio::StoredDentry;
use proto::{Errno, FileKind, Frag, NameHash, NodeRef};

/// Bytes of an entry besides its name; of attributes.
const ENTRY_BYTES: usize = 32;
const ATTR_BYTES: usize = 120;

/// A page being filled.
struct Page {
    entries: Vec<DirEntry>,
    bytes: usize,
    max: usize,
    attrs: bool,
    full: bool,
}

impl Page {
    /// Whether an entry with this hash still belongs in: there is room, or it shares the last cookie.
    fn takes(&mut self, hash: NameHash) -> bool {
        let same = self.entries.last().is_some_and(|last| last.hash.cookie() == hash.cookie());
        if self.bytes >= self.max && !same {
            self.full = true;
        }
        !self.full
    }

    fn add(&mut self, entry: DirEntry) {
        self.bytes += ENTRY_BYTES + entry.name.len() + if self.attrs { ATTR_BYTES } else { 0 };
        self.entries.push(entry);
    }
}

/// From which hash on a listing goes on behind a cookie.
pub(crate) fn first_after(after: u64) -> NameHash {
    let from = after.checked_add(1).filter(|cookie| *cookie <= u64::MAX >> 1).map(NameHash::from_cookie);
    from.unwrap_or(NameHash::LAST).max(NameHash::FIRST)
}

pub(crate) fn plan(
    view: &mut View,
    op: &mut Op,
    dir: NodeRef,
    after: u64,
    attrs: bool,
    bytes_max: u32,
) -> Found<Plan> {
    let from = first_after(after);
    let (node, slot) = view.directory(dir, from, op)?;
    view.listing_is_free(dir.ino)?;
    if !(op.check && view.has_open(op.session, view.cache.node(node).ino(), perm::READ)) {
        may_list(view, op, node)?;
    }
    if after > u64::MAX >> 1 {
        return Err(Errno::EINVAL.into());
    }
    let max = bytes_max.clamp(1, view.config.limits.page_bytes) as usize;
    let mut page = Page { entries: Vec::new(), bytes: 0, max, attrs, full: false };
    if after == u64::MAX >> 1 {
        return Plan::reply(Reply::Entries { entries: page.entries, end: true });
    }
    if view.cache.dir(slot).has(dir::COMPLETE) {
        op.scan = None;
        cached(view, slot, from, &mut page);
        let end = !page.full;
        return Plan::reply(reply(view, slot, page, end));
    }
    let ino = view.cache.dir(slot).ino;
    let Some(scan) = op.scan.take() else {
        return park(LoadKey::Scan { dir: ino, from, purpose: ScanFor::Request(op.id) });
    };
    let next = scan.next;
    let cut = merge(view, slot, *scan, &mut page);
    if page.entries.is_empty()
        && let Some(next) = cut.or(next)
    {
        // Everything in this stretch was deleted since: go on behind it.
        return park(LoadKey::Scan { dir: ino, from: next, purpose: ScanFor::Request(op.id) });
    }
    let end = !page.full && next.is_none();
    Plan::reply(reply(view, slot, page, end))
}

/// A page; `end`: nothing of this part of the directory follows. Behind a part that is not the last one it goes on with the next.
fn reply(view: &View, slot: u32, page: Page, end: bool) -> Reply {
    let Frag { prefix, depth } = view.cache.dir(slot).unit().frag;
    let next = (1_u64 << 63).checked_shr(u32::from(depth) - u32::from(depth > 0));
    let next = next.filter(|_| depth > 0).and_then(|width| prefix.checked_add(width));
    match next {
        Some(next) if end && page.entries.is_empty() => Reply::Further(NameHash(next).cookie() - 1),
        Some(_) => Reply::Entries { entries: page.entries, end: false },
        None => Reply::Entries { entries: page.entries, end },
    }
}

/// Whether a directory may be listed that is not known to be open. Its home may know it: permission was checked there.
fn may_list(view: &View, op: &Op, node: u32) -> Found<()> {
    let allowed = perm::access(view, op, node, perm::READ);
    let found = view.cache.node(node);
    let (ino, parent) = (found.ino(), view.cache.dir(found.dir));
    let is_open = op.heard.as_ref().is_some_and(|heard| heard.opened == ino);
    if allowed.is_ok() || !parent.has(dir::FOREIGN) || is_open {
        return if is_open { Ok(()) } else { Ok(allowed?) };
    }
    Err(Stop::Park(Park::Opened(NodeRef { ino, parent: parent.of(), hash: found.hash })))
}

/// The hash from which on a stretch knows nothing: the first of its successor's cookie.
fn limit(next: Option<NameHash>) -> Option<NameHash> {
    next.map(|next| NameHash(next.cookie() << 1))
}

/// A page of a directory that the cache has whole.
fn cached(view: &View, slot: u32, from: NameHash, page: &mut Page) {
    let cache = &view.cache;
    cache.dir(slot).table.walk(from, &cache.nodes, |at| take(view, at, None, page));
}

/// An entry; without attributes if they are reserved: what is told of them could be over.
fn entry_of(view: &View, at: u32, attrs: bool) -> DirEntry {
    let node = view.cache.node(at);
    let inode = if node.primary() { Some(at) } else { view.cache.by_ino(node.ino()) };
    let shown = attrs && !view.transactions.is_reserved(node.ino());
    let attr = inode.filter(|_| shown).and_then(|slot| view.attr(slot).ok());
    DirEntry { hash: node.hash, name: node.name.as_bytes().into(), ino: node.ino(), kind: node.kind(), attr }
}

/// Returns where it stopped when the cache holds too many deleted names to look at in one step.
fn merge(view: &mut View, slot: u32, scan: ScanPage, page: &mut Page) -> Option<NameHash> {
    let to = limit(scan.next);
    let dir = view.cache.dir(slot).of();
    // Slots the cache has in this stretch, in order; a bound on it is the page's.
    let mut known = Vec::new();
    let most = page.max / ENTRY_BYTES + scan.entries.len() + 2;
    let mut cut = None;
    view.cache.dir(slot).table.walk(scan.from, &view.cache.nodes, |at| {
        let hash = view.cache.node(at).hash;
        if to.is_some_and(|to| hash >= to) {
            return false;
        }
        if known.len() >= most {
            cut = Some(NameHash(hash.cookie() << 1));
            return false;
        }
        known.push(at);
        true
    });
    let keep = view.cache.bytes() < view.config.cache_bytes / 8 * 7;
    let mut known = known.into_iter().peekable();
    for stored in scan.entries {
        while let Some(at) = known.next_if(|at| order(view, *at, &stored).is_lt()) {
            if !take(view, at, cut, page) {
                return cut;
            }
        }
        if known.next_if(|at| order(view, *at, &stored).is_eq()).is_some_and(|at| !take(view, at, cut, page))
        {
            return cut;
        }
        let is_known = view.cache.find(slot, stored.hash, &stored.name).is_some();
        if is_known {
            continue;
        }
        if cut.is_some_and(|cut| stored.hash >= cut) {
            page.full = true;
        }
        if page.full || !page.takes(stored.hash) {
            return cut;
        }
        add_stored(view, (slot, dir), stored, keep, page);
    }
    for at in known {
        if !take(view, at, cut, page) {
            return cut;
        }
    }
    page.full |= cut.is_some();
    cut
}

fn order(view: &View, at: u32, stored: &StoredDentry) -> std::cmp::Ordering {
    let node = view.cache.node(at);
    (node.hash, node.name.as_bytes()).cmp(&(stored.hash, &stored.name))
}

/// Adds a cached name; false when the page is full.
fn take(view: &View, at: u32, cut: Option<NameHash>, page: &mut Page) -> bool {
    let node = view.cache.node(at);
    if cut.is_some_and(|cut| node.hash >= cut) {
        page.full = true;
        return false;
    }
    if node.positive() {
        if !page.takes(node.hash) {
            return false;
        }
        page.add(entry_of(view, at, page.attrs));
    }
    true
}

/// Adds a name that only the store knows; with attributes it also enters the cache, if that has room,
/// because a listing with attributes is mostly followed by use.
fn add_stored(
    view: &mut View,
    (slot, dir): (u32, proto::Ino),
    stored: StoredDentry,
    keep: bool,
    page: &mut Page,
) {
    let Ok(value) = DentryValue::decode(&stored.value) else { return };
    let (ino, kind, attr) = match &value {
        DentryValue::Remote { ino, kind } => {
            let attr = view.cache.by_ino(*ino).and_then(|at| view.cache.attr(at));
            (*ino, *kind, attr)
        }
        DentryValue::Primary(record) => {
            let kind = FileKind::of_mode(record.core.mode).unwrap_or(FileKind::Regular);
            let attr = (kind != FileKind::Directory)
                .then(|| attr_of(&record.core, record.ext.as_deref(), dir, stored.hash));
            (record.core.ino, kind, attr)
        }
    };
    let attr = attr.filter(|_| page.attrs && !view.transactions.is_reserved(ino));
    if keep && page.attrs {
        view.cache.load(slot, stored.hash, &stored.name, Some(value), 0);
        if view.files.get(ino).is_some() {
            view.cache.flag(ino, crate::cache::node::BUSY, 0);
        }
        view.is_back(slot, ino);
    }
    // Of one that has another name in the cache: damage. Who looks at it is told.
    let is_second = matches!(view.cache.second_names.last(), Some(second) if second.ino == ino);
    let attr = attr.filter(|_| !is_second);
    page.add(DirEntry { hash: stored.hash, name: stored.name, ino, kind, attr });
}
