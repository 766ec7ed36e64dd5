//! What a transaction changes that others may keep: derived from its mutations, compared with the cache they replace, in this
//! one place, so that no operation can forget one. docs/CAPABILITIES.md has the table.
//!
//! Absent: bytes, which change before their transaction is planned (`bytes`); what the rank does on its own, which shows nothing.

use super::book::Need;
use crate::cache::DentryKey;
use crate::view::View;
use proto::caps::Bits;
use proto::dentry::DentryValue;
use proto::header::FragHeader;
use proto::inode::{InodeExt, InodeRecord, Xattr};
use proto::journal::Mutations;
use proto::mutation::Mutation;
use proto::{Ino, Name, NameHash};

// Whoever a directory is delegated to goes by its mode, owner and ACLs, and by its being there.
const AUTH: Bits = Bits(Bits::AS.0 | Bits::AX.0 | Bits::DX.0);
const LINK: Bits = Bits(Bits::LS.0 | Bits::LX.0 | Bits::DX.0);
const XATTR: Bits = Bits(Bits::XS.0 | Bits::XX.0 | Bits::DX.0);
const FILE: Bits = Bits(Bits::FS.0 | Bits::FX.0 | Bits::DX.0);
const CONTENT: Bits = Bits(FILE.0 | Bits::FC.0 | Bits::FB.0);

/// What may not be held by others while the bytes of an inode change. `may_lose`: the mode or a capability goes with it.
pub(crate) fn bytes(ino: Ino, may_lose: bool) -> Need {
    let bits = if may_lose { CONTENT.with(AUTH).with(XATTR) } else { CONTENT };
    Need::of(ino, bits)
}

/// Nobody else keeps pages of what is opened for writing: a WRITE may not have to wait for them, because its page is locked
/// until it is answered.
pub(crate) fn writing(ino: Ino) -> Need {
    Need::of(ino, Bits(Bits::FC.0 | Bits::FB.0))
}

/// Nobody else works by himself in a directory, or writes a file, that is looked into, or whose attributes are told.
pub(crate) const fn looking(ino: Ino) -> Need {
    Need::of(ino, Bits::ALONE.with(Bits::DX))
}

/// The same where it is opened for writing.
pub(crate) fn opening(ino: Ino) -> Need {
    let Need { bits, .. } = writing(ino);
    Need::of(ino, bits.with(Bits::ALONE))
}

/// Nobody else keeps the listing of a directory, or works in it by himself.
pub(crate) fn of_listing(view: &View, dir: u32) -> Vec<Need> {
    let mut needs = Needs::default();
    needs.listed(view, dir, FILE);
    needs.list
}

/// Nobody else keeps anything of an inode that is, or may soon be, another rank's.
pub(crate) fn of_place(ino: Ino, dir: Ino, name: &Name) -> Vec<Need> {
    vec![Need { name: named(dir, name.as_bytes()), ..Need::of(ino, Bits::ALL) }]
}

/// Nor does the session that asks keep anything of what leaves: a kernel moves its entry with the rename, and nobody would know.
pub(crate) fn of_leaving(view: &View) -> Vec<Need> {
    let need = |ino| Need { name: name_of(view, ino), own: true, ..Need::of(ino, Bits::ALL) };
    view.txn.left.iter().map(|left| need(left.ino)).collect()
}

/// Nobody keeps anything of an inode. What broke: it was recalled without its name, which kernels kept, and nobody knew that any more: another
/// rank to which it moved renamed it, and a client still found it by its old name.
pub(crate) fn of_all(view: &View, ino: Ino) -> Need {
    let name = name_of(view, ino).filter(|_| !stdx::mutant!("mds_taken_back_without_name"));
    Need { name, ..Need::of(ino, Bits::ALL) }
}

/// The name of an inode, if it is cached, that somebody may keep.
fn name_of(view: &View, ino: Ino) -> Option<(Ino, Name)> {
    let slot = view.cache.by_ino(ino)?;
    named(view.cache.parent_of(slot), view.cache.node(slot).name.as_bytes())
}

#[derive(Default)]
struct Needs {
    list: Vec<Need>,
}

impl Needs {
    fn add(&mut self, ino: Ino, bits: Bits, name: Option<(Ino, Name)>) {
        if bits.is_empty() || ino.is_reserved() {
            return;
        }
        match self.list.iter_mut().find(|need| need.ino == ino) {
            Some(need) => {
                need.bits = need.bits.with(bits);
                need.name = need.name.take().or(name);
            }
            None => self.list.push(Need { name, ..Need::of(ino, bits) }),
        }
    }

    /// Of a directory whose content changes: clients keep that by its own number, ranks what a unit adds by the unit's.
    fn listed(&mut self, view: &View, slot: u32, bits: Bits) {
        let dir = view.cache.dir(slot);
        self.add(dir.of(), bits, None);
        if dir.of() != dir.ino {
            self.add(dir.ino, bits, None);
        }
    }
}

/// What an inode leaves behind when it goes to another rank: its name may stay, and is planned with that rank from then on. Whoever works by
/// himself in the directory would go on with it, and nothing that was told is planned with others.
pub(crate) fn of_left_name(dir: Ino) -> Option<Need> {
    let is_free = dir.is_reserved() || stdx::mutant!("mds_leaves_under_dx");
    (!is_free).then(|| Need::of(dir, Bits::DX))
}

/// What the planned transaction needs. Bytes that are not understood need nothing: applying them fails loudly.
pub(crate) fn of_transaction(view: &mut View) -> Vec<Need> {
    let muts = std::mem::take(&mut view.txn.muts);
    let mut needs = Needs::default();
    for mutation in Mutations::new(&muts.0).flatten() {
        match mutation {
            Mutation::PutDentry { dir, hash, name, value, .. } => {
                let Ok(value) = DentryValue::decode(value) else { continue };
                let at = DentryKey { dir, hash, name };
                replaced(view, at, value.ino(), &mut needs);
                if let DentryValue::Primary(record) = value {
                    changed(view, &record, at, &mut needs);
                }
            }
            Mutation::DelDentry { dir, hash, name, .. } => {
                replaced(view, DentryKey { dir, hash, name }, Ino::NONE, &mut needs);
            }
            Mutation::PutHeader { dir, header, .. } => listing(view, dir, header, &mut needs),
            // Nothing that clients keep. Where an inode is, its dentry has said.
            Mutation::PutBackptr { .. }
            | Mutation::DelBackptr { .. }
            | Mutation::DelPlace { .. }
            | Mutation::DelContent { .. }
            | Mutation::Session { .. }
            | Mutation::SessionFloor { .. }
            | Mutation::InoCounter { .. }
            | Mutation::DataCut { .. }
            | Mutation::DataRedo { .. }
            | Mutation::DataRemove { .. }
            | Mutation::DelegateInos { .. }
            | Mutation::SessionFlags { .. }
            | Mutation::Sealed { .. }
            | Mutation::Holders { .. }
            | Mutation::HolderGone { .. }
            | Mutation::Unheard { .. }
            | Mutation::Prepared { .. }
            | Mutation::Committed { .. }
            | Mutation::Resolved { .. } => {}
        }
    }
    view.txn.muts = muts;
    // Its new owner does not know who keeps something of it.
    for left in &view.txn.left {
        needs.add(left.ino, Bits::ALL, None);
        let dir = view.cache.by_ino(left.ino).map(|slot| view.cache.parent_of(slot));
        if let Some(need) = dir.and_then(of_left_name) {
            needs.add(need.ino, need.bits, None);
        }
    }
    if stdx::mutant!("mds_second_inode_forgotten") {
        needs.list.truncate(1);
    }
    needs.list
}

/// What a name leads to changes: listings and absent names that others keep of the directory with it, and what had it as its only one
/// loses it. The header does not always show that: a rename within a directory may happen in the same moment as the change before.
fn replaced(view: &mut View, at: DentryKey<'_>, by: Ino, needs: &mut Needs) {
    let DentryKey { dir, hash, name } = at;
    let Some(entries) = view.cache.find_dir(dir) else { return };
    let listed = if stdx::mutant!("mds_names_by_header") { Bits::NONE } else { FILE };
    let Some(slot) = view.cache.find(entries, hash, name) else {
        return needs.listed(view, entries, listed);
    };
    let dir = view.cache.dir(entries).of();
    let node = view.cache.node(slot);
    let (ino, primary) = (node.ino(), node.primary());
    if ino != by {
        needs.listed(view, entries, listed);
        if primary {
            needs.add(ino, LINK, named(dir, name));
        }
    }
}

/// Names in directories of the system's are nobody's to keep.
fn named(dir: Ino, name: &[u8]) -> Option<(Ino, Name)> {
    let name = Name::new(name).ok().filter(|_| !dir.is_reserved())?;
    (!stdx::mutant!("mds_name_not_recalled")).then_some((dir, name))
}

fn changed(view: &View, record: &InodeRecord, at: DentryKey<'_>, needs: &mut Needs) {
    let new = &record.core;
    let Some(slot) = view.cache.by_ino(new.ino) else { return };
    let node = view.cache.node(slot);
    let (old, ext) = (&node.core, view.cache.ext(slot));
    let mut bits = Bits::NONE;
    if (new.mode, new.uid, new.gid) != (old.mode, old.uid, old.gid) {
        bits = bits.with(AUTH);
    }
    let pin = |ext: Option<&InodeExt>| ext.and_then(|ext| ext.policies.pin);
    if xattrs(record.ext.as_deref()) != xattrs(ext) || pin(record.ext.as_deref()) != pin(ext) {
        // An ACL is one of them.
        bits = bits.with(XATTR).with(AUTH);
    }
    let times = (new.mtime, new.atime) != (old.mtime, old.atime);
    let forgotten = stdx::mutant!("mds_fs_not_recalled");
    if (new.size != old.size || times) && !forgotten {
        bits = bits.with(CONTENT);
    }
    let mut gone = None;
    let here = view.cache.parent_of(slot);
    // A unit is on its way by its own number.
    let dir = at.dir;
    let at = DentryKey { dir: view.cache.outer(dir), ..at };
    let mut own = false;
    if at != (DentryKey { dir: here, hash: node.hash, name: node.name.as_bytes() }) {
        let of = if stdx::mutant!("mds_units_come_with_grants") { at.dir } else { dir };
        own = comes_below_leaving(view, new.ino, of);
        bits = bits.with(if own { Bits::ALL } else { LINK });
        gone = named(here, node.name.as_bytes());
    }
    if new.nlink != old.nlink || links(record.ext.as_deref()) != links(ext) {
        bits = bits.with(LINK);
    }
    // The time of change belongs to every class; with the name's a client would give up what it needs to keep the name.
    if bits.is_empty() && new.ctime != old.ctime && !forgotten {
        bits = AUTH;
    }
    needs.add(new.ino, bits, gone);
    if own && let Some(need) = needs.list.iter_mut().find(|need| need.ino == new.ino) {
        need.own = true;
    }
}

/// Whether an inode comes into what is on its way to another rank. What was granted there has been taken back, and nothing is any more; nobody
/// looks again. What broke: a file was renamed into it while the move waited for somebody to join, and its clients kept what they had of it
/// when it was the new owner's, who did not know of them.
fn comes_below_leaving(view: &View, ino: Ino, dir: Ino) -> bool {
    let is_there = |part| view.is_below(dir, part) && !view.is_inode_below(ino, part);
    view.territory.leaving().is_some_and(is_there) && !stdx::mutant!("mds_comes_with_grants")
}

fn xattrs(ext: Option<&InodeExt>) -> &[Xattr] {
    ext.map_or(&[], |ext| &ext.xattrs)
}

fn links(ext: Option<&InodeExt>) -> &[(Ino, NameHash)] {
    ext.map_or(&[], |ext| &ext.links)
}

/// A write raises its directory's version: that shows nothing.
fn listing(view: &View, dir: Ino, header: &[u8], needs: &mut Needs) {
    let Some(slot) = view.cache.find_dir(dir) else { return };
    let Ok(new) = FragHeader::decode(header) else { return };
    let old = &view.cache.dir(slot).header;
    if (new.entries, new.subdirs, new.mtime) != (old.entries, old.subdirs, old.mtime) {
        needs.listed(view, slot, FILE);
    }
}
