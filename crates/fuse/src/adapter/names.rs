//! Operations on names: lookup, making and removing, links, rename.
//! Absent: CREATE and TMPFILE, which also open (`data`).

use std::sync::Arc;

use proto::name::Name;
use proto::reply::Reply;
use proto::request::{NewNode, Request, rename_flags};
use proto::{Errno, Ino, NodeRef};

use super::{RequestContext, Shared};
use crate::reply::KernelReply;
use crate::request::groups::{
    attribute_operations, data_operations, listing_operations, lock_operations, mount_operations,
    xattr_operations,
};
use crate::request::{KernelRequest, Operation};

impl Shared {
    pub(super) fn name_operation(
        self: &Arc<Self>,
        about: RequestContext,
        request: &KernelRequest<'_>,
        reply: KernelReply,
    ) {
        if let Err((errno, reply)) = self.try_name_operation(about, request, reply) {
            reply.error(errno.0);
        }
    }

    fn try_name_operation(
        self: &Arc<Self>,
        about: RequestContext,
        request: &KernelRequest<'_>,
        reply: KernelReply,
    ) -> Result<(), (Errno, KernelReply)> {
        macro_rules! name {
            ($bytes:expr) => {
                match Name::new($bytes) {
                    Ok(name) => name,
                    Err(errno) => return Err((errno, reply)),
                }
            };
        }
        let parent = about.node;
        match request.operation {
            // The kernel asks for these two only to open NFS handles.
            Operation::Lookup { name: b"." } => self.lookup_self(about, parent, reply),
            Operation::Lookup { name: b".." } => self.lookup_parent(about, reply),
            Operation::Lookup { name } => {
                self.listers.looks_up(about.pid, about.nodeid);
                let ask = Request::Lookup { parent, name: name!(name) };
                self.answer_entry(about, Some(parent.ino), ask, reply);
            }
            Operation::MkNod { name, mode, rdev, umask } => {
                let ask = Request::MkNod { parent, name: name!(name), new: NewNode { mode, umask, rdev } };
                self.make(about, ask, reply);
            }
            Operation::MkDir { name, mode, umask } => {
                let mode = (mode & 0o7777) | libc::S_IFDIR;
                let ask = Request::MkDir { parent, name: name!(name), new: NewNode { mode, umask, rdev: 0 } };
                self.make(about, ask, reply);
            }
            Operation::Symlink { name, target } => {
                let ask = Request::Symlink { parent, name: name!(name), target: target.into() };
                self.make(about, ask, reply);
            }
            Operation::Link { target, name } => {
                // At once: the directory is locked, which may be that of the name that is to be dropped.
                if self.nodes.is_to_be_found(target) {
                    return Err((Errno::ESTALE, reply));
                }
                let node = self.nodes.node(target);
                let ask = Request::Link { node, parent, name: name!(name) };
                self.make(about, ask, reply);
            }
            Operation::Unlink { name } => {
                let name = name!(name);
                let ask = Request::Unlink { parent, name: name.clone() };
                self.keeping(about, parent, name, reply, move |shared, about, reply| {
                    shared.change(about, parent, ask, reply, |_| ());
                });
            }
            Operation::RmDir { name } => {
                self.change(about, parent, Request::RmDir { parent, name: name!(name) }, reply, |_| ());
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                let (name, new_name) = (name!(name), name!(new_name));
                let exchange = flags & rename_flags::EXCHANGE != 0;
                let places = ((about.nodeid, name.clone()), (new_parent, new_name.clone()));
                let new_parent = self.nodes.node(new_parent);
                let ask = Request::Rename { parent, name, new_parent, new_name: new_name.clone(), flags };
                self.keeping(about, new_parent, new_name, reply, move |shared, about, reply| {
                    shared.change(about, new_parent, ask, reply, move |shared| {
                        let ((dir, name), (new_dir, new_name)) = &places;
                        shared.droppers.names.moved((*dir, name), (*new_dir, new_name), exchange);
                    });
                });
            }
            Operation::ReadLink => self.readlink(about, reply),
            // `Adapter::handle` sends these elsewhere.
            attribute_operations!()
            | xattr_operations!()
            | listing_operations!()
            | lock_operations!()
            | data_operations!()
            | mount_operations!() => reply.error(libc::EIO),
        }
        Ok(())
    }

    fn answer_entry(
        self: &Arc<Self>,
        about: RequestContext,
        dir: Option<Ino>,
        ask: Request,
        reply: KernelReply,
    ) {
        self.ask_attr(about.cred, ask, reply, move |shared, reply, attr, given| {
            reply.entry(&shared.entry(&attr, dir, given));
        });
    }

    /// A change that ends in a new name.
    fn make(self: &Arc<Self>, about: RequestContext, ask: Request, reply: KernelReply) {
        let RequestContext { cred, node: parent, .. } = about;
        let links = matches!(ask, Request::Link { .. });
        self.ask_attr(cred.clone(), ask, reply, move |shared, reply, attr, given| {
            shared.after_names(cred, parent, reply, move |shared, reply| {
                let found = || shared.entry(&attr, Some(parent.ino), given);
                reply.entry(&if links { shared.linked(&attr) } else { found() });
            });
        });
    }

    /// A change whose success is all there is to say; `before` that is said, something is done.
    fn change(
        self: &Arc<Self>,
        about: RequestContext,
        dir: NodeRef,
        ask: Request,
        reply: KernelReply,
        before: impl FnOnce(&Shared) + Send + 'static,
    ) {
        let cred = about.cred;
        self.ask(cred.clone(), ask, reply, move |shared, reply, _| {
            shared.after_names(cred, dir, reply, |shared, reply| {
                before(shared);
                reply.ok();
            });
        });
    }

    fn readlink(self: &Arc<Self>, about: RequestContext, reply: KernelReply) {
        let ask = Request::ReadLink { node: about.node };
        self.ask(about.cred, ask, reply, |_, reply, answer| {
            let Reply::Target(target) = answer else { return reply.error(libc::EIO) };
            reply.bytes(&target);
        });
    }

    fn lookup_self(self: &Arc<Self>, about: RequestContext, node: NodeRef, reply: KernelReply) {
        self.answer_entry(about, None, Request::GetAttr { node }, reply);
    }

    fn lookup_parent(self: &Arc<Self>, about: RequestContext, reply: KernelReply) {
        if about.node.ino == self.root.ino {
            let root = self.root;
            return self.lookup_self(about, root, reply);
        }
        let ask = Request::Parent { node: about.node };
        self.ask(about.cred.clone(), ask, reply, move |shared, reply, answer| {
            let Reply::Node(node) = answer else { return reply.error(libc::EIO) };
            shared.lookup_self(about, node, reply);
        });
    }
}
