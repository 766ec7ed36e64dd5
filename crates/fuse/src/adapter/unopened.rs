//! `noopen`: the kernel opens and closes files without a word to anyone, which it does once an OPEN was answered with ENOSYS.
//!
//! The rank does not know which files are open here, so three things are different:
//! - *Names that this mount takes away.* Before it removes or replaces a name it opens the file behind it, until the kernel forgets
//!   the node: whoever has it open goes on. Of what another mount removes nothing is left (ESTALE).
//! - *Pages.* The kernel keeps them over an open, and no Fc is asked for, since it comes with an open. Before each read the kernel
//!   looks at the attributes, for as long as these may be kept others need Fs back before they write, and it drops the pages when
//!   size or mtime differ. What that does not show, a mapping and a change with the mtime of before, is dropped here, on a thread.
//! - *Errors that come late* are told once for each file, not for each handle: all handles have the number 0.
//!
//! Directories are opened as ever: the kernel would keep every listing and look at mtime alone, and two changes can have one.
//! Absent: waiting for a drop. A WRITE that waits for Fs of others would wait for pages, and two hosts for each other.

use std::sync::Arc;

use ::mount::Validity;
use proto::name::Name;
use proto::reply::{Outcome, Reply};
use proto::request::{NewNode, Request};
use proto::{Attr, Cred, Errno, FileKind, NodeRef};

use super::answer::asker;
use super::data::goes_past_cache;
use super::droppers::PageDrop;
use super::keep::Given;
use super::{RequestContext, Shared};
use crate::abi::fopen;
use crate::reply::{KernelReply, Opened};

impl Shared {
    /// The kernel forgets a node; nobody has it open any more.
    pub(super) fn forget(&self, nodeid: u64, lookups: u64) {
        let Some(gone) = self.nodes.forget(nodeid, lookups) else { return };
        if gone.open_at_rank {
            self.release_unopened(gone.node);
        }
        if gone.pages {
            self.mount.forgotten(gone.node.ino);
        }
    }

    fn release_unopened(&self, node: NodeRef) {
        self.mount.submit(Cred::ROOT, Request::Release { node, count: 1 }, Box::new(|_, _| ()));
    }

    /// Goes on to take a name away when the file behind it lives for whoever may have it open here. If it cannot be opened, it is
    /// removed as if by another mount.
    pub(super) fn keeping(
        self: &Arc<Self>,
        about: RequestContext,
        parent: NodeRef,
        name: Name,
        reply: KernelReply,
        then: impl FnOnce(&Arc<Self>, RequestContext, KernelReply) + Send + 'static,
    ) {
        if !self.behaviour.no_open {
            return then(self, about, reply);
        }
        let (shared, asker, cred) = (Arc::clone(self), asker(&reply), about.cred.clone());
        let looked_up = Box::new(move |outcome: Outcome, _: Validity| {
            let file = match outcome {
                Ok(Reply::Attr(attr)) if attr.kind() == FileKind::Regular => attr,
                _ => return then(&shared, about, reply),
            };
            let nodeid = shared.nodeid(file.ino);
            if !shared.nodes.wants_keeping(nodeid) {
                return then(&shared, about, reply);
            }
            let (node, cred) = (file.node(), about.cred.clone());
            let next = Arc::clone(&shared);
            let opened = Box::new(move |outcome: Outcome, _: Validity| {
                // Forgotten meanwhile, or another request was faster: one open is enough.
                if outcome.is_ok() && !next.nodes.keep(nodeid) {
                    next.release_unopened(node);
                }
                then(&next, about, reply);
            });
            let ask = Request::Open { node, flags: libc::O_RDONLY as u32 };
            shared.mount.submit_for(asker, cred, ask, opened);
        });
        self.mount.submit_for(asker, cred, Request::Lookup { parent, name }, looked_up);
    }

    /// CREATE of a name that is most likely absent: nothing is opened. If somebody has made it meanwhile, and it need not be new,
    /// it is opened, and cut if asked for, and released when the kernel has it.
    pub(super) fn create_unopened(
        self: &Arc<Self>,
        about: RequestContext,
        name: Name,
        new: NewNode,
        flags: u32,
        reply: KernelReply,
    ) {
        let (parent, cred) = (about.node, about.cred.clone());
        let ask = Request::MkNod { parent, name: name.clone(), new: new.clone() };
        let (shared, asker) = (Arc::clone(self), asker(&reply));
        let done = Box::new(move |outcome: Outcome, validity: Validity| match outcome {
            Ok(Reply::Attr(attr)) => {
                // What follows a change is not given up: it may be the half that makes it whole.
                shared.after_names(about.cred, parent, reply.to(0), move |shared, reply| {
                    let entry = shared.entry(&attr, Some(parent.ino), Given::of(&validity, 0));
                    reply.create(&entry, unopened(flags));
                });
            }
            Err(Errno::EEXIST) if flags & libc::O_EXCL as u32 == 0 => {
                shared.create(about, Request::Create { parent, name, new, flags }, flags, reply);
            }
            // The directory is gone: there is no name in it.
            Err(Errno::ESTALE) => reply.error(libc::ENOENT),
            Err(errno) => reply.error(errno.0),
            Ok(_) => reply.error(libc::EIO),
        });
        self.mount.submit_for(asker, cred, ask, done);
    }

    /// The handle of what the rank has opened all the same: a file without a name lives by that until the kernel forgets it.
    pub(super) fn unopened_handle(&self, attr: &Attr, nodeid: u64, flags: u32) -> Opened {
        let nameless = attr.nlink == 0;
        if !nameless || !self.nodes.keep(nodeid) {
            self.release_unopened(attr.node());
        }
        unopened(flags)
    }

    /// The kernel is shown attributes of a file, which may hide that its bytes have changed.
    pub(super) fn unopened_shown(&self, nodeid: u64, attr: &Attr) {
        if self.behaviour.no_open
            && attr.kind() == FileKind::Regular
            && self.nodes.shows_a_hidden_change(nodeid, attr)
        {
            self.unopened_may_change(nodeid);
        }
    }

    /// Another mount is about to change bytes of which there may be pages here.
    pub(super) fn unopened_may_change(&self, nodeid: u64) {
        if self.behaviour.no_open && self.nodes.begin_drop(nodeid) {
            self.droppers.drop_pages(PageDrop { nodeid, owed: None });
        }
    }
}

/// A handle that nobody counts.
fn unopened(flags: u32) -> Opened {
    let past_cache = fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES;
    Opened { fh: 0, flags: if goes_past_cache(flags) { past_cache } else { 0 } }
}
