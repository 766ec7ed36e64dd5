//! Extended attributes: user, trusted, security, ACLs, and the virtual ones.
//!
//! Absent: policies of placement (`pin.rs`, `policies.rs`); others (layouts, quotas) cannot be set in this version, so none is there.

use crate::acl::{self, Acl};
use crate::op::{Op, Plan};
use crate::ops::{pin, policies, shown};
use crate::perm;
use crate::view::{Found, View};
use proto::inode::{EXT_BYTES_MAX, InodeExt, XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use proto::reply::Reply;
use proto::request::XattrMode;
use proto::{Errno, FileKind, NodeRef};

/// Which rules a name falls under.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    Acl,
    Virtual,
}

fn space_of(name: &[u8]) -> Result<Space, Errno> {
    match name {
        n if n == acl::ACCESS || n == acl::DEFAULT => Ok(Space::Acl),
        n if n.starts_with(b"user.") && n.len() > 5 => Ok(Space::User),
        n if n.starts_with(b"trusted.") && n.len() > 8 => Ok(Space::Trusted),
        n if n.starts_with(b"security.") && n.len() > 9 => Ok(Space::Security),
        n if n.starts_with(b"ceph.") || n.starts_with(b"pando.") => Ok(Space::Virtual),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn allows_user(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

pub(crate) fn get(view: &mut View, op: &mut Op, node: NodeRef, name: &[u8]) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    if pin::is_pin(view, name) {
        return pin::get(view, slot);
    }
    if let Some(kind) = policies::kind_of(view, name) {
        return policies::get(view, slot, kind);
    }
    if let Some(shown) = shown::kind_of(view, name) {
        return shown::get(view, op, slot, shown);
    }
    match space_of(name)? {
        Space::Virtual => return virtual_value(view, op, slot, name),
        Space::User if !allows_user(view.cache.node(slot).kind()) => return Err(Errno::ENODATA.into()),
        Space::User => perm::access(view, op, slot, perm::READ)?,
        Space::Trusted if op.cred.uid != 0 => return Err(Errno::ENODATA.into()),
        Space::Acl if view.cache.node(slot).kind() == FileKind::Symlink => {
            return Err(Errno::EOPNOTSUPP.into());
        }
        Space::Trusted | Space::Security | Space::Acl => {}
    }
    let value = view.cache.ext(slot).and_then(|ext| find(ext, name).ok().map(|at| ext.xattrs[at].1.clone()));
    Plan::reply(Reply::Xattr(value.ok_or(Errno::ENODATA)?))
}

fn find(ext: &InodeExt, name: &[u8]) -> Result<usize, usize> {
    ext.xattrs.binary_search_by(|(n, _)| n.as_ref().cmp(name))
}

pub(crate) fn list(view: &mut View, op: &mut Op, node: NodeRef) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    let mut names = Vec::new();
    for (name, _) in view.cache.ext(slot).iter().flat_map(|ext| &ext.xattrs) {
        if op.cred.uid != 0 && name.starts_with(b"trusted.") {
            continue;
        }
        names.extend_from_slice(name);
        names.push(0);
    }
    Plan::reply(Reply::XattrNames(names.into()))
}

/// The checks that setting and removing share.
fn may_change(view: &View, op: &Op, slot: u32, name: &[u8]) -> Found<Space> {
    let space = space_of(name)?;
    let node = view.cache.node(slot);
    let root = !op.check || op.cred.uid == 0;
    match space {
        Space::User => {
            if !allows_user(node.kind()) {
                return Err(Errno::EPERM.into());
            }
            if node.is_dir() && node.core.mode & 0o1000 != 0 {
                perm::owner(view, op, slot)?;
            }
            perm::access(view, op, slot, perm::WRITE)?;
        }
        Space::Trusted | Space::Security if !root => return Err(Errno::EPERM.into()),
        Space::Trusted | Space::Security => {}
        Space::Acl if node.kind() == FileKind::Symlink => return Err(Errno::EOPNOTSUPP.into()),
        Space::Acl => perm::owner(view, op, slot)?,
        Space::Virtual => {
            return Err(match known_virtual(name)? {
                Virtual::ReadOnly(_) => Errno::EPERM,
                Virtual::Policy(_) => Errno::EINVAL,
            }
            .into());
        }
    }
    Ok(space)
}

pub(crate) fn set(
    view: &mut View,
    op: &mut Op,
    node: NodeRef,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Errno::E2BIG.into());
    }
    if pin::is_pin(view, name) {
        return pin::set(view, op, slot, value);
    }
    if shown::kind_of(view, name).is_some() {
        return Err(Errno::EPERM.into());
    }
    if let Some(kind) = policies::kind_of(view, name) {
        return policies::set(view, op, slot, kind, value);
    }
    let space = may_change(view, op, slot, name)?;
    let exists = view.cache.ext(slot).is_some_and(|ext| find(ext, name).is_ok());
    match mode {
        XattrMode::Create if exists => return Err(Errno::EEXIST.into()),
        XattrMode::Replace if !exists => return Err(Errno::ENODATA.into()),
        XattrMode::Create | XattrMode::Replace | XattrMode::Either => {}
    }
    view.space()?;
    if space == Space::Acl {
        return set_acl(view, op, slot, name, Acl::parse(value)?);
    }
    change(view, slot, name, Some(value.into()), None)
}

pub(crate) fn remove(view: &mut View, op: &mut Op, node: NodeRef, name: &[u8]) -> Found<Plan> {
    let slot = view.resolve(node, op)?;
    if pin::is_pin(view, name) {
        return pin::remove(view, op, slot);
    }
    if shown::kind_of(view, name).is_some() {
        return Err(Errno::EPERM.into());
    }
    if let Some(kind) = policies::kind_of(view, name) {
        return policies::remove(view, op, slot, kind);
    }
    if space_of(name)? == Space::Virtual
        && let Virtual::Policy(of) = known_virtual(name)?
    {
        return Err(unset(view, slot, of).into());
    }
    may_change(view, op, slot, name)?;
    if view.cache.ext(slot).is_none_or(|ext| find(ext, name).is_err()) {
        return Err(Errno::ENODATA.into());
    }
    change(view, slot, name, None, None)
}

/// An access ACL also sets the mode; one that the mode can say alone is not kept.
fn set_acl(view: &mut View, op: &Op, slot: u32, name: &[u8], acl: Option<Acl>) -> Found<Plan> {
    let node = view.cache.node(slot);
    if name == acl::DEFAULT {
        if !node.is_dir() {
            return if acl.is_none() { Plan::reply(Reply::Ok) } else { Err(Errno::EACCES.into()) };
        }
        return change(view, slot, name, acl.map(|acl| acl.bytes()), None);
    }
    let Some(acl) = acl else { return change(view, slot, name, None, None) };
    let mut mode = (node.core.mode & !0o777) | acl.mode();
    if op.check && op.cred.uid != 0 && !op.cred.in_group(node.core.gid) {
        mode &= !0o2000;
    }
    let value = (!acl.is_mode()).then(|| acl.bytes());
    change(view, slot, name, value, Some(mode))
}

fn change(
    view: &mut View,
    slot: u32,
    name: &[u8],
    value: Option<Box<[u8]>>,
    mode: Option<u32>,
) -> Found<Plan> {
    let mut ext = view.cache.ext(slot).cloned().unwrap_or_default();
    match (find(&ext, name), value) {
        (Ok(at), Some(value)) => ext.xattrs[at].1 = value,
        (Ok(at), None) => {
            ext.xattrs.remove(at);
        }
        (Err(at), Some(value)) => ext.xattrs.insert(at, (name.into(), value)),
        (Err(_), None) => {}
    }
    let total: usize = ext.xattrs.iter().map(|(n, v)| n.len() + v.len()).sum();
    if total > XATTR_TOTAL_BYTES_MAX || ext.bytes() > EXT_BYTES_MAX {
        return Err(Errno::ENOSPC.into());
    }
    let mut core = view.changed_core(slot);
    core.ctime = view.wall();
    core.mode = mode.unwrap_or(core.mode);
    view.put_inode(slot, &core, Some(&ext).filter(|ext| !ext.is_empty()))?;
    Plan::commit(Reply::Ok)
}

const READ_ONLY: [&[u8]; 13] = [
    b"dir.entries",
    b"dir.files",
    b"dir.subdirs",
    b"dir.rentries",
    b"dir.rfiles",
    b"dir.rsubdirs",
    b"dir.rsnaps",
    b"dir.rbytes",
    b"dir.rctime",
    b"snap.btime",
    b"caps",
    b"cluster_fsid",
    b"client_id",
];

/// Of directories. Nothing of it can be set in this version: asked for, it is absent.
const POLICIES: [&[u8]; 16] = [
    b"dir.pin",
    b"dir.pin.distributed",
    b"dir.pin.random",
    b"dir.bal.mask",
    b"dir.subvolume",
    b"dir.subvolume.snaps.visible",
    b"dir.layout",
    b"quota",
    b"quota.max_bytes",
    b"quota.max_files",
    b"dmclock.mds_reservation",
    b"dmclock.mds_weight",
    b"dmclock.mds_limit",
    b"qos.reservation",
    b"qos.weight",
    b"qos.limit",
];

/// Of directories, under "pando." alone.
const OWN_POLICIES: [&[u8]; 10] = [
    b"dir.owner",
    b"dir.load",
    b"dir.wss",
    b"dir.rstat.sync",
    b"dir.placement",
    b"dir.prefetch",
    b"dir.async",
    b"dir.trash",
    b"quota.used_bytes",
    b"quota.used_files",
];

/// Of anything, under "pando." alone.
const OWN_ANYWHERE: [&[u8]; 2] = [b"project", b"durable"];

/// Behind "dir.layout" and "file.layout".
const LAYOUT_FIELDS: [&[u8]; 7] = [
    b".json",
    b".stripe_unit",
    b".stripe_count",
    b".object_size",
    b".pool",
    b".pool_name",
    b".pool_namespace",
];

/// What a virtual name is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Virtual<'a> {
    /// The part behind "ceph." or "pando.".
    ReadOnly(&'a [u8]),
    /// A policy that this version does not have, of a directory, a file, or either.
    Policy(Option<FileKind>),
}

fn known_virtual(name: &[u8]) -> Result<Virtual<'_>, Errno> {
    let at = name.iter().position(|b| *b == b'.').ok_or(Errno::EINVAL)?;
    let (own, key) = (name.starts_with(b"pando."), &name[at + 1..]);
    let field = |of: &[u8]| key.strip_prefix(of).is_some_and(|field| LAYOUT_FIELDS.contains(&field));
    if READ_ONLY.contains(&key) {
        Ok(Virtual::ReadOnly(key))
    } else if POLICIES.contains(&key) || field(b"dir.layout") || (own && OWN_POLICIES.contains(&key)) {
        Ok(Virtual::Policy(Some(FileKind::Directory)))
    } else if key == b"file.layout" || field(b"file.layout") {
        Ok(Virtual::Policy(Some(FileKind::Regular)))
    } else if own && OWN_ANYWHERE.contains(&key) {
        Ok(Virtual::Policy(None))
    } else {
        Err(Errno::EINVAL)
    }
}

/// What a policy answers that nobody can have set.
fn unset(view: &View, slot: u32, of: Option<FileKind>) -> Errno {
    if of.is_none_or(|kind| kind == view.cache.node(slot).kind()) { Errno::ENODATA } else { Errno::EINVAL }
}

/// Whether the value of that name is a count of the directory it is asked of.
pub(crate) fn is_count(name: &[u8]) -> bool {
    [b"ceph.dir.".as_slice(), b"pando.dir."].iter().any(|prefix| name.starts_with(prefix))
}

/// Only what is exact is told; this version has no recursive totals.
fn virtual_value(view: &View, op: &Op, slot: u32, name: &[u8]) -> Found<Plan> {
    let key = match known_virtual(name)? {
        Virtual::ReadOnly(key) => key,
        Virtual::Policy(of) => return Err(unset(view, slot, of).into()),
    };
    if key.starts_with(b"dir.") {
        if !view.cache.node(slot).is_dir() {
            return Err(Errno::EINVAL.into());
        }
        let header = view.header_of(slot)?;
        let value = match key {
            b"dir.entries" => header.entries,
            b"dir.files" => header.entries.saturating_sub(header.subdirs),
            b"dir.subdirs" => header.subdirs,
            _ => return Err(Errno::ENODATA.into()),
        };
        return Plan::reply(Reply::Xattr(value.to_string().into_bytes().into()));
    }
    let text = match key {
        b"cluster_fsid" => hex(&view.config.fsid),
        b"client_id" => format!("client{}", op.session.0),
        _ => return Err(Errno::ENODATA.into()),
    };
    Plan::reply(Reply::Xattr(text.into_bytes().into()))
}

fn hex(fsid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in fsid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
