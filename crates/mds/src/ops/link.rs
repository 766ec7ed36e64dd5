//! Link: the second name moves the inode to `//links`; a nameless file gets its first.
//!
//! Absent: links to directories; what takes several ranks (`transactions/across.rs`).

use crate::cache::attr_of;
use crate::op::{Op, Plan};
use crate::ops::create::free_name;
use crate::ops::{Headers, here};
use crate::transactions::across;
use crate::view::{Found, View};
use proto::inode::{EXT_BYTES_MAX, InodeCore, InodeExt, LINKS_MAX, flags};
use proto::reply::Reply;
use proto::{Errno, Ino, Name, NodeRef};

pub(crate) fn plan(view: &mut View, op: &mut Op, node: NodeRef, parent: NodeRef, name: &Name) -> Found<Plan> {
    if !view.territory.is_only() && of_several(view, op, node, (parent, name))? {
        return across::link(view, op, node, parent, name);
    }
    let target = view.resolve(node, op)?;
    let found = view.cache.node(target);
    if found.is_dir() {
        return Err(Errno::EPERM.into());
    }
    let bytes = view.cache.ext(target).map_or(0, InodeExt::bytes);
    if found.core.nlink >= LINKS_MAX || bytes >= EXT_BYTES_MAX {
        return Err(Errno::EMLINK.into());
    }
    let free = free_name(view, op, parent, name)?.map_err(|_| Errno::EEXIST)?;
    let home = view.writable(target)?;
    let first = view.cache.node(target).core.nlink == 0;
    let links = if first { home } else { view.system(Ino::LINKS)? };
    let new = (view.cache.dir(free.dir).of(), free.hash);
    let now = view.wall();
    let mut core = view.changed_core(target);
    core.ctime = now;
    core.flags |= flags::BACKPTR;
    let mut headers = Headers::new();
    headers.add(free.dir, 1, 0, Some(now));
    let place = view.place_in(free.dir, free.hash, name.as_bytes());
    if core.nlink == 0 {
        core.nlink = 1;
        view.txn.primary(place, &core, view.cache.ext(target));
        view.txn.backptr(core.ino, core.change, place);
        let hex = core.ino.link_name();
        view.txn.delete(view.place_in(home, view.cache.node(target).hash, &hex));
        headers.add(home, -1, 0, Some(now));
        headers.emit(view);
        let attr = attr_of(&core, view.cache.ext(target), new.0, new.1);
        return Plan::commit(Reply::Attr(attr));
    }
    core.nlink += 1;
    let attr = add_link(view, target, &core, new, (home, links), &mut headers);
    view.txn.remote(place, core.ino, view.cache.node(target).kind());
    headers.emit(view);
    Plan::commit(Reply::Attr(attr))
}

/// Whether the inode, its home or `//links` is another rank's. Whose the new name is leads. A file without a name just gets one.
fn of_several(view: &mut View, op: &mut Op, node: NodeRef, (parent, name): (NodeRef, &Name)) -> Found<bool> {
    view.directory(parent, view.name_hash(name), op)?;
    let Ok(target) = here(view.resolve(node, op))? else { return Ok(true) };
    Ok(view.cache.node(target).core.nlink > 0 && view.is_boundary(Ino::LINKS))
}

/// Plans the record in `//links`; coming from a primary dentry, that name becomes remote.
fn add_link(
    view: &mut View,
    target: u32,
    core: &InodeCore,
    new: (Ino, proto::NameHash),
    (home, links): (u32, u32),
    headers: &mut Headers,
) -> proto::Attr {
    let mut ext = view.cache.ext(target).cloned().unwrap_or_default();
    let hex = core.ino.link_name();
    let place = view.place_in(links, view.hash(&hex), &hex);
    if home == links {
        ext.links.push(new);
        view.txn.primary(place, core, Some(&ext));
        headers.add(links, 0, 0, None);
        return attr_of(core, Some(&ext), place.of, place.hash);
    }
    let node = view.cache.node(target);
    let old = (view.cache.dir(home).of(), node.hash);
    ext.links = vec![old, new];
    view.txn.primary(place, core, Some(&ext));
    view.txn.backptr(core.ino, core.change, place);
    let name = view.cache.node(target).name.clone();
    let from = view.place_in(home, old.1, name.as_bytes());
    view.txn.remote(from, core.ino, view.cache.node(target).kind());
    headers.add(links, 1, 0, Some(view.wall()));
    headers.add(home, 0, 0, None);
    attr_of(core, Some(&ext), place.of, place.hash)
}
