//! What the kernel may keep of an answer, and for how long.
//!
//! Most answers are compared: the kernel ignores their attributes if it has forgotten the node's since it asked. CREATE, MKNOD,
//! MKDIR, SYMLINK, LINK and, before Linux 6.16, SETATTR are not, they are believed whatever came meanwhile. So of a node that the
//! kernel may have already, these give nothing to keep; one that they make was answered first a moment ago, which recalls look at.
//! Absent: absent names, which no grant covers; taking back (`recall`).

use std::time::Duration;

use ::mount::Validity;
use proto::caps::Bits;
use proto::{Attr, Ino};
use stdx::Mono;

use super::{Shared, convert};
use crate::reply::{Entry, KernelReply};

/// What an answer gives to keep of one inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) bits: Bits,
    pub(super) stamp: u64,
    pub(super) until: Mono,
    /// Recalls with this stamp, or a lower one, came before it was asked for.
    pub(super) asked: u64,
}

/// How the kernel comes to attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Of a node that it has.
    Asked,
    /// By a name that is right; it will count the node.
    Found,
    /// With a name that it has just made of a node that it has by another; it will count the node once more.
    Linked,
}

impl Given {
    /// What is left of the `at`th inode of an answer.
    pub(super) fn of(validity: &Validity, at: usize) -> Given {
        let Validity { stamp, until, asked, .. } = *validity;
        Given { bits: validity.grants.of(at), stamp, until, asked }
    }

    /// Nothing of it may be kept; what it says is as young as ever.
    pub(super) fn of_nothing(validity: &Validity) -> Given {
        Given { asked: validity.asked, ..Given::default() }
    }

    /// Whether it is in force, given the last recall of the inode and the last loss of everything.
    pub(super) fn is_good(self, recalled: u64, lost: u64) -> bool {
        self.stamp >= recalled && self.stamp >= lost
    }
}

impl Shared {
    /// Takes in attributes that go to the kernel: how long it may keep them.
    pub(super) fn learn(&self, nodeid: u64, attr: &Attr, given: Given, way: Way) -> Duration {
        let now = self.mount.now();
        self.unopened_shown(nodeid, attr);
        let good = self.nodes.learn(nodeid, attr, given, (now, way), || self.mount.lost_stamp());
        if way != Way::Asked {
            self.one_node_more(now);
        }
        if good { Duration::from_nanos(given.until.since(now)) } else { Duration::ZERO }
    }

    /// The kernel's entry for an inode, whose node it thereby counts; `dir`: in which directory it found it by its name.
    pub(super) fn entry(&self, attr: &Attr, dir: Option<Ino>, given: Given) -> Entry {
        let nodeid = self.nodeid(attr.ino);
        let attr_timeout = self.learn(nodeid, attr, given, Way::Found);
        // Ls is about the one primary name. An inode that has, or had, several has none.
        let primary = dir == Some(attr.parent) && attr.parent != Ino::LINKS;
        Entry {
            nodeid,
            generation: u64::from(attr.generation),
            entry_timeout: if primary { attr_timeout } else { Duration::ZERO },
            attr_timeout,
            attr: convert::attr(attr),
        }
    }

    /// The entry of a new name of an inode that the kernel has: it believes this answer whatever it was told meanwhile.
    pub(super) fn linked(&self, attr: &Attr) -> Entry {
        let nodeid = self.nodeid(attr.ino);
        self.learn(nodeid, attr, Given::default(), Way::Linked);
        let (generation, attr) = (u64::from(attr.generation), convert::attr(attr));
        Entry { nodeid, generation, entry_timeout: Duration::ZERO, attr_timeout: Duration::ZERO, attr }
    }

    pub(super) fn answer_attr(&self, reply: KernelReply, nodeid: u64, attr: &Attr, given: Given) {
        let timeout = self.learn(nodeid, attr, given, Way::Asked);
        reply.attr(timeout, &convert::attr(attr));
    }

    pub(super) fn has_no_xattrs(&self, nodeid: u64) -> bool {
        self.nodes.has_no_xattrs(nodeid, self.mount.now(), || self.mount.lost_stamp())
    }
}
