//! Extended attributes and POSIX ACLs.
//! Absent: what values mean; the rank keeps them and enforces ACLs it must. Permission checks, but one: the kernel does them.

use std::sync::Arc;

use proto::name::Name;
use proto::reply::Reply;
use proto::request::{Request, XattrMode};
use proto::{Errno, NodeRef, SetAttr};

use super::{RequestContext, Shared};
use crate::reply::KernelReply;
use crate::request::Operation;
use crate::request::groups::{
    attribute_operations, data_operations, listing_operations, lock_operations, mount_operations,
    name_operations,
};

const SETGID: u32 = 0o2000;

/// Whether the name is a policy of directories, which only root sets. The rank leaves that to the mount, if that may act for anyone; and to the
/// kernel such a name is like any other, which whoever may write may set.
fn is_policy(name: &[u8]) -> bool {
    let name = name.strip_prefix(b"ceph.").or_else(|| name.strip_prefix(b"pando.")).unwrap_or_default();
    matches!(
        name,
        b"dir.pin" | b"dir.pin.distributed" | b"dir.pin.random" | b"dir.bal.mask" | b"dir.placement"
    )
}

impl Shared {
    pub(super) fn xattr_operation(
        self: &Arc<Self>,
        about: RequestContext,
        operation: &Operation<'_>,
        reply: KernelReply,
    ) {
        let RequestContext { nodeid, node, .. } = about;
        match *operation {
            Operation::GetXattr { name, .. } if self.is_about_stats(&about, name) => {
                self.answer_stats(&about, reply);
            }
            Operation::SetXattr { name, .. } | Operation::RemoveXattr { name }
                if self.is_about_stats(&about, name) =>
            {
                reply.error(libc::EPERM);
            }
            // Of whoever mounted it for himself the rank decides.
            Operation::SetXattr { name, .. } | Operation::RemoveXattr { name }
                if is_policy(name) && about.cred.uid != 0 && about.cred.uid != crate::caller::own_uid() =>
            {
                reply.error(libc::EPERM);
            }
            Operation::GetXattr { name, .. } => match self.xattr_name(name) {
                Ok(name) => self.get_xattr(about.cred, nodeid, node, name, reply),
                Err(errno) => reply.error(errno.0),
            },
            Operation::SetXattr { name, value, flags, acl_kill_sgid } => match self.xattr_name(name) {
                Ok(name) => self.set_xattr(about, name, value, flags, acl_kill_sgid, reply),
                Err(errno) => reply.error(errno.0),
            },
            Operation::RemoveXattr { name } => match self.xattr_name(name) {
                Ok(name) => self.remove_xattr(about.cred, node, name, reply),
                Err(errno) => reply.error(errno.0),
            },
            Operation::ListXattr { .. } => self.list_xattrs(about.cred, nodeid, node, reply),
            // `Adapter::handle` sends these elsewhere.
            name_operations!()
            | attribute_operations!()
            | listing_operations!()
            | lock_operations!()
            | data_operations!()
            | mount_operations!() => reply.error(libc::EIO),
        }
    }

    fn set_xattr(
        self: &Arc<Self>,
        about: RequestContext,
        name: Name,
        value: &[u8],
        flags: u32,
        kills_sgid: bool,
        reply: KernelReply,
    ) {
        let RequestContext { cred, nodeid, node, .. } = about;
        let mode = match flags as i32 {
            0 => XattrMode::Either,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(libc::EINVAL),
        };
        // Before the rank knows: no answer about attributes may say that there are none from here on.
        self.nodes.set_may_have_xattrs(nodeid);
        let ask = Request::SetXattr { node, name, value: value.into(), mode };
        self.ask(cred.clone(), ask, reply, move |shared, reply, _| match kills_sgid {
            true => shared.drop_setgid(cred, node, reply),
            false => shared.xattr_done(cred, node, reply),
        });
    }

    fn remove_xattr(self: &Arc<Self>, cred: proto::Cred, node: NodeRef, name: Name, reply: KernelReply) {
        let ask = Request::RemoveXattr { node, name };
        self.ask(cred.clone(), ask, reply, move |shared, reply, _| shared.xattr_done(cred, node, reply));
    }

    fn xattr_name(&self, name: &[u8]) -> Result<Name, Errno> {
        if self.behaviour.no_acl && name.starts_with(b"system.posix_acl_") {
            return Err(Errno::EOPNOTSUPP);
        }
        match Name::new(name) {
            // xattr(7) calls a name that is too long out of range.
            Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
            name => name,
        }
    }

    fn get_xattr(
        self: &Arc<Self>,
        cred: proto::Cred,
        nodeid: u64,
        node: NodeRef,
        name: Name,
        reply: KernelReply,
    ) {
        // Before each first write the kernel asks for security.capability, at each access for ACLs.
        let stored = [&b"security."[..], b"system.", b"user.", b"trusted."]
            .iter()
            .any(|space| name.as_bytes().starts_with(space));
        if stored && self.has_no_xattrs(nodeid) {
            return reply.error(libc::ENODATA);
        }
        self.ask(cred, Request::GetXattr { node, name }, reply, |_, reply, answer| {
            let Reply::Xattr(value) = answer else { return reply.error(libc::EIO) };
            reply.xattr(&value);
        });
    }

    fn list_xattrs(self: &Arc<Self>, cred: proto::Cred, nodeid: u64, node: NodeRef, reply: KernelReply) {
        if self.has_no_xattrs(nodeid) {
            return reply.xattr(&[]);
        }
        self.ask(cred, Request::ListXattr { node }, reply, |_, reply, answer| {
            let Reply::XattrNames(names) = answer else { return reply.error(libc::EIO) };
            reply.xattr(&names);
        });
    }

    /// An ACL was set by someone outside the file's group: the set-group-ID bit goes. The kernel holds the
    /// inode's lock meanwhile, so no chmod of this client comes between the two steps.
    fn drop_setgid(self: &Arc<Self>, cred: proto::Cred, node: NodeRef, reply: KernelReply) {
        self.ask_attr(cred.clone(), Request::GetAttr { node }, reply, move |shared, reply, attr, _| {
            if attr.mode & SETGID == 0 {
                return shared.xattr_done(cred, node, reply);
            }
            let set = SetAttr { mode: Some(attr.mode & 0o7777 & !SETGID), ..SetAttr::default() };
            shared.ask(cred.clone(), Request::SetAttr { node, set }, reply, move |shared, reply, _| {
                shared.xattr_done(cred, node, reply);
            });
        });
    }

    fn xattr_done(self: &Arc<Self>, cred: proto::Cred, node: NodeRef, reply: KernelReply) {
        match self.behaviour.sync_all {
            true => self.after_sync(cred, node, reply, |_, reply| reply.ok()),
            false => reply.ok(),
        }
    }
}
