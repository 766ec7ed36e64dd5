//! Setattr: mode, owner, size, times.
//!
//! Absent: flags and project ids.

use crate::acl::{self, Acl};
use crate::cache::dir::{JUMPED, next_number};
use crate::cache::{attr_of, header_attr, node};
use crate::op::{Claim, Effects, Next, Op, Park, Plan, Stop};
use crate::perm;
use crate::txn::file_id;
use crate::view::{Found, View};
use proto::attr::SetTime;
use proto::header::{FragHeader, Spread, Spreading};
use proto::inode::{InodeCore, InodeExt, flags};
use proto::reply::Reply;
use proto::storeio::{Cut, DataOp};
use proto::{Errno, FileKind, NodeRef, SetAttr};
use stdx::Wall;

/// Cuts of one file that one life of the rank can count before it reaches the next one's numbers.
const CUT_BITS: u32 = 10;

pub(crate) fn plan(view: &mut View, op: &mut Op, node: NodeRef, set: &SetAttr) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    perm::setattr(view, op, slot, set)?;
    if *set == SetAttr::default() {
        let attr = view.attr(slot)?;
        return Plan::reply(Reply::Attr(attr));
    }
    let now = view.wall();
    let mut core = view.changed_core(slot);
    core.ctime = now;
    let mut cut = false;
    if let Some(size) = set.size {
        cut = match resize(view, op, &mut core, size)? {
            Ok(cut) => cut,
            Err(plan) => return Ok(plan),
        };
        core.mtime = now;
    }
    let ext = change_owner_and_mode(view, op, slot, &mut core, set);
    let at = |time: SetTime| if let SetTime::At(wall) = time { wall } else { now };
    if let Some(time) = set.atime {
        core.atime = at(time);
    }
    if let Some(time) = set.mtime {
        core.mtime = at(time);
    }
    let ext = ext.as_ref().or_else(|| view.cache.ext(slot)).cloned();
    let mut attr = attr_of(&core, ext.as_ref(), view.cache.parent_of(slot), view.cache.node(slot).hash);
    if view.cache.node(slot).is_dir() {
        directory_times(view, slot, &mut core, set.mtime.map(at), &mut attr)?;
    }
    view.put_inode(slot, &core, ext.as_ref().filter(|ext| !ext.is_empty()))?;
    if cut {
        view.txn.cut(&core);
    }
    // O_TRUNC comes as an open and this.
    let emptied =
        cut && core.size == 0 && view.files.get(core.ino).is_some_and(|file| !file.opens.is_empty());
    let effects = Effects { truncated: emptied.then_some(core.ino), ..Default::default() };
    Ok(Plan::Commit(Reply::Attr(attr), effects))
}

/// The modification time of a directory is the later of its inode's and its header's: setting it
/// writes both, the header's never later than now, so that the change time does not run ahead.
fn directory_times(
    view: &mut View,
    slot: u32,
    core: &mut InodeCore,
    mtime: Option<Wall>,
    attr: &mut proto::Attr,
) -> Found<()> {
    view.writable(slot)?;
    let shown = match (mtime, view.is_boundary(core.ino)) {
        (Some(_), true) if view.has_times(core.ino) => None,
        _ => Some(view.header_of(slot)?),
    };
    let stamp = |shown: &FragHeader, own: &FragHeader| View::stamp_of(own, shown);
    match mtime {
        None => header_attr(attr, &shown.unwrap_or_default()),
        Some(mtime) if view.is_boundary(core.ino) => {
            let by = match &shown {
                Some(shown) => {
                    let own = view.own_header_of(slot)?;
                    (own.first_unit(), stamp(shown, own))
                }
                None => (proto::Ino::NONE, 0),
            };
            let own = view.header_set(core.ino, mtime, by)?;
            header_attr(attr, &view.sum(&own, core.ino)?);
        }
        Some(mtime) => {
            let (dir, shown) = (view.entries_of(slot)?, shown.unwrap_or_default());
            let stamp = stamp(&shown, view.own_header_of(slot)?);
            let header = timed_header(view, dir, mtime, stamp);
            header_attr(attr, &shown);
            attr.mtime = mtime;
            attr.ctime = core.ctime;
            attr.change = core.change.wrapping_add(header.change).wrapping_add(stamp);
            view.txn.whole_header(core.ino, &header);
        }
    }
    Ok(())
}

/// A directory's header with another time; `stamp`: the sum of its units' change counters by then.
pub(crate) fn timed_header(view: &View, dir: u32, mtime: Wall, stamp: u64) -> FragHeader {
    let dir = view.cache.dir(dir);
    let mut header = dir.header.clone();
    header.version = dir.next_version(view.config.incarnation);
    header.mtime = mtime.min(view.now.wall);
    header.change = next_number(header.change, dir.has(JUMPED), view.config.incarnation);
    if let Some(spread) = header.spread() {
        header.spreading = Some(Box::new(Spreading::Over(Spread { stamp, ..spread })));
    }
    header
}

/// Changes size fields. `Ok(true)`: the data must be cut. Inner `Err`: the
/// data operation to run before planning again.
pub(crate) fn resize(
    view: &mut View,
    op: &mut Op,
    core: &mut InodeCore,
    size: u64,
) -> Found<Result<bool, Plan>> {
    match FileKind::of_mode(core.mode) {
        Some(FileKind::Regular) => {}
        Some(FileKind::Directory) => return Err(Errno::EISDIR.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    if size > i64::MAX as u64 {
        return Err(Errno::EFBIG.into());
    }
    let (ino, seq) = (core.ino, core.truncate_seq);
    if !view.files.may_claim(Claim::Exclusive(ino), op.woken) {
        return Err(Stop::Park(Park::File(ino)));
    }
    if size > core.size
        && let Some(plan) = clean_end(view, op, core)?
    {
        return Ok(Err(plan));
    }
    if size >= core.size {
        core.size = size;
        return Ok(Ok(core.truncate_seq != seq));
    }
    if let Some(plan) = earlier_cut(view, ino, core)? {
        return Ok(Err(plan));
    }
    cut_at(view, core, size);
    core.size = size;
    Ok(Ok(true))
}

/// A cut may begin only when the one before it has reached the data.
fn earlier_cut(view: &View, ino: proto::Ino, core: &InodeCore) -> Found<Option<Plan>> {
    if core.flags & flags::CUT_PENDING == 0 {
        return Ok(None);
    }
    if view.files.get(ino).is_some_and(|f| f.cutting) {
        return Err(Stop::Park(Park::File(ino)));
    }
    // The record came from the store: nobody knows whether that cut was carried out.
    let data = DataOp::Truncate { file: file_id(core), cut: cut_of(core) };
    Ok(Some(Plan::Data(data, Claim::Exclusive(ino), Next::CutDone { ino })))
}

/// The number of a cut is never used twice: data written under a cut that a crash took back must not
/// count as written under the next one. Only the first cut of a life may be acted on before it is journaled (`clean_end`); so
/// the first one is higher than that of any life before that began with the same record, also where the file was
/// cut so often that its number is ahead of the life's. Of another rank's life, too, that had the file before it came here: incarnations
/// are one count for all ranks.
fn cut_at(view: &View, core: &mut InodeCore, size: u64) {
    let incarnation = view.config.incarnation.max(view.territory.last_incarnation()).0 as u32;
    let ours = view.cache.by_ino(core.ino).is_some_and(|slot| view.cache.node(slot).has(node::END_CLEAN));
    let step = if ours || stdx::mutant!("mds_cut_number_again") { 1 } else { incarnation.saturating_add(1) };
    let spent = view.spent_cuts.get(&core.ino).copied().unwrap_or(0);
    core.truncate_seq = core.truncate_seq.max(spent).saturating_add(step).max(incarnation << CUT_BITS);
    core.flags |= flags::CUT_PENDING;
    core.truncate_size = size;
}

/// Before a file gets longer: what a former life wrote beyond its end, without the transaction that
/// would have made it longer, must read as zeros. The change that makes it longer is therefore a cut
/// at the present end as well. It is journaled like any other: the record keeps only the last cut, so each must be
/// carried out by replay, in order, until the data store has it durably. `Some`: to be done first.
pub(crate) fn clean_end(view: &View, op: &Op, core: &mut InodeCore) -> Found<Option<Plan>> {
    let ino = core.ino;
    let slot = view.cache.by_ino(ino).ok_or(Errno::EIO)?;
    if view.cache.node(slot).has(node::END_CLEAN) || stdx::mutant!("mds_stale_end") {
        return Ok(None);
    }
    if !view.files.may_claim(Claim::Exclusive(ino), op.woken) {
        return Err(Stop::Park(Park::File(ino)));
    }
    if let Some(plan) = earlier_cut(view, ino, core)? {
        return Ok(Some(plan));
    }
    let size = core.size;
    cut_at(view, core, size);
    Ok(None)
}

/// Takes over the cut that a data operation ran under.
pub(crate) const fn adopt_cut(core: &mut InodeCore, cut: Cut) {
    if cut.seq > core.truncate_seq {
        core.truncate_seq = cut.seq;
        core.truncate_size = cut.size;
        core.flags |= flags::CUT_PENDING;
    }
}

/// The cut that data operations of an inode run under.
pub(crate) const fn cut_of(core: &InodeCore) -> Cut {
    Cut { seq: core.truncate_seq, size: core.truncate_size }
}

/// Applies owner, mode and what they take away. Returns the new ext when it changed.
fn change_owner_and_mode(
    view: &View,
    op: &Op,
    slot: u32,
    core: &mut InodeCore,
    set: &SetAttr,
) -> Option<InodeExt> {
    let is_dir = view.cache.node(slot).is_dir();
    let mut ext: Option<InodeExt> = None;
    let chown = set.uid.is_some() || set.gid.is_some();
    core.uid = set.uid.unwrap_or(core.uid);
    core.gid = set.gid.unwrap_or(core.gid);
    if (chown || set.kill_suidgid) && !is_dir {
        core.mode = perm::kill_suidgid(core.mode);
        ext = without_capability(view.cache.ext(slot));
    }
    if let Some(mode) = set.mode {
        let mut bits = mode & 0o7777;
        if op.check && op.cred.uid != 0 && !op.cred.in_group(core.gid) {
            bits &= !0o2000;
        }
        core.mode = (core.mode & !0o7777) | bits;
        let current = ext.as_ref().or_else(|| view.cache.ext(slot));
        if let Some(mut acl) = current.and_then(|ext| acl::stored(ext, acl::ACCESS)) {
            acl.follow_mode(bits);
            ext = current.cloned().map(|ext| with_acl(ext, &acl));
        }
    }
    ext
}

fn with_acl(mut ext: InodeExt, acl: &Acl) -> InodeExt {
    if let Some((_, value)) = ext.xattrs.iter_mut().find(|(name, _)| name.as_ref() == acl::ACCESS) {
        *value = acl.bytes();
    }
    ext
}

/// File capabilities do not survive a write or a change of owner.
pub(crate) fn without_capability(ext: Option<&InodeExt>) -> Option<InodeExt> {
    let ext = ext?;
    let at = ext.xattrs.iter().position(|(name, _)| name.as_ref() == b"security.capability")?;
    let mut ext = ext.clone();
    ext.xattrs.remove(at);
    Some(ext)
}
