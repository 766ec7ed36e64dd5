//! Operations on names: lookup, making and removing, links, rename.
//! Absent on purpose: CREATE and TMPFILE, which also open (`data`).

use std::sync::Arc;

use proto::name::Name;
use proto::reply::Reply as Answer;
use proto::request::{NewNode, Request as Ask, rename_flags};
use proto::{Errno, Ino, NodeRef};

use super::{About, Shared};
use crate::reply::Reply;
use crate::request::{Operation, Request};

impl Shared {
    pub(super) fn name_operation(self: &Arc<Self>, about: About, request: &Request<'_>, reply: Reply) {
        if let Err((errno, reply)) = self.try_name_operation(about, request, reply) {
            reply.error(errno.0);
        }
    }

    fn try_name_operation(
        self: &Arc<Self>,
        about: About,
        request: &Request<'_>,
        reply: Reply,
    ) -> Result<(), (Errno, Reply)> {
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
                let ask = Ask::Lookup { parent, name: name!(name) };
                self.answer_entry(about, Some(parent.ino), ask, reply);
            }
            Operation::MkNod { name, mode, rdev, umask } => {
                let ask = Ask::MkNod { parent, name: name!(name), new: NewNode { mode, umask, rdev } };
                self.make(about, ask, reply);
            }
            Operation::MkDir { name, mode, umask } => {
                let mode = (mode & 0o7777) | libc::S_IFDIR;
                let ask = Ask::MkDir { parent, name: name!(name), new: NewNode { mode, umask, rdev: 0 } };
                self.make(about, ask, reply);
            }
            Operation::Symlink { name, target } => {
                let ask = Ask::Symlink { parent, name: name!(name), target: target.into() };
                self.make(about, ask, reply);
            }
            Operation::Link { target, name } => {
                let (node, stale) = self.nodes.place(target);
                if stale {
                    return Err((Errno::ESTALE, reply));
                }
                let ask = Ask::Link { node, parent, name: name!(name) };
                self.make(about, ask, reply);
            }
            Operation::Unlink { name } => {
                let name = name!(name);
                let ask = Ask::Unlink { parent, name: name.clone() };
                self.keeping(about, parent, name, reply, move |shared, about, reply| {
                    shared.change(about, parent, ask, reply, |_| ());
                });
            }
            Operation::RmDir { name } => {
                self.change(about, parent, Ask::RmDir { parent, name: name!(name) }, reply, |_| ());
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                let (name, new_name) = (name!(name), name!(new_name));
                let exchange = flags & rename_flags::EXCHANGE != 0;
                let places = ((about.nodeid, name.clone()), (new_parent, new_name.clone()));
                let new_parent = self.nodes.node(new_parent);
                let ask = Ask::Rename { parent, name, new_parent, new_name: new_name.clone(), flags };
                self.keeping(about, new_parent, new_name, reply, move |shared, about, reply| {
                    shared.change(about, new_parent, ask, reply, move |shared| {
                        let ((dir, name), (new_dir, new_name)) = &places;
                        shared.droppers.names.moved((*dir, name), (*new_dir, new_name), exchange);
                    });
                });
            }
            _ => self.readlink(about, reply),
        }
        Ok(())
    }

    fn answer_entry(self: &Arc<Self>, about: About, dir: Option<Ino>, ask: Ask, reply: Reply) {
        self.ask_attr(about.cred, ask, reply, move |shared, reply, attr, given| {
            reply.entry(&shared.entry(&attr, dir, given));
        });
    }

    /// A change that ends in a new name.
    fn make(self: &Arc<Self>, about: About, ask: Ask, reply: Reply) {
        let About { cred, node: parent, .. } = about;
        let links = matches!(ask, Ask::Link { .. });
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
        about: About,
        dir: NodeRef,
        ask: Ask,
        reply: Reply,
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

    fn readlink(self: &Arc<Self>, about: About, reply: Reply) {
        let ask = Ask::ReadLink { node: about.node };
        self.ask(about.cred, ask, reply, |_, reply, answer| match answer {
            Answer::Target(target) => reply.bytes(&target),
            _ => reply.error(libc::EIO),
        });
    }

    fn lookup_self(self: &Arc<Self>, about: About, node: NodeRef, reply: Reply) {
        self.answer_entry(about, None, Ask::GetAttr { node }, reply);
    }

    fn lookup_parent(self: &Arc<Self>, about: About, reply: Reply) {
        if about.node.ino == self.root.ino {
            let root = self.root;
            return self.lookup_self(about, root, reply);
        }
        let ask = Ask::Parent { node: about.node };
        self.ask(about.cred.clone(), ask, reply, move |shared, reply, answer| match answer {
            Answer::Node(node) => shared.lookup_self(about, node, reply),
            _ => reply.error(libc::EIO),
        });
    }
}
