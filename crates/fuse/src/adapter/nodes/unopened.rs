//! Files that may be open without anybody having said so: with `noopen` the kernel sends neither OPEN nor RELEASE.
//!
//! Absent: who asks the rank to keep them open (`unopened.rs` of the adapter).

use super::Nodes;
use proto::Attr;
use stdx::Wall;

/// Of a file that may be open without anybody having said so.
#[derive(Clone, Debug, Default)]
pub(super) struct Unopened {
    /// It is open at the rank until the kernel forgets it.
    pub(super) open_at_rank: bool,
    /// Its pages are about to be dropped.
    pub(super) dropping: bool,
    /// What the kernel was shown last: change counter, size and mtime.
    pub(super) shown: Option<(u64, u64, Wall)>,
}

impl Nodes {
    /// The kernel has the node, and the rank does not have it open for it yet.
    pub(in crate::adapter) fn wants_keeping(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| !node.unopened.as_ref().is_some_and(|unopened| unopened.open_at_rank))
            .unwrap_or(false)
    }

    /// The rank has it open, until the kernel forgets the node. False: that is not to be, it is forgotten or was kept already.
    pub(in crate::adapter) fn keep(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| {
            !std::mem::replace(&mut node.unopened.get_or_insert_default().open_at_rank, true)
        })
        .unwrap_or(false)
    }

    /// Takes in what the kernel is shown of a file: whether its bytes may be others than those it was shown before, by what it
    /// cannot see. It looks at size and mtime; mtime can be set back, and two changes can have one.
    pub(in crate::adapter) fn shows_a_hidden_change(&self, nodeid: u64, attr: &Attr) -> bool {
        let shown = (attr.change, attr.size, attr.mtime);
        self.with(nodeid, |node| {
            let before = node.unopened.get_or_insert_default().shown.replace(shown);
            before.is_some_and(|(change, size, mtime)| {
                change != attr.change && (size, mtime) == (attr.size, attr.mtime)
            })
        })
        .unwrap_or(false)
    }

    /// Whether a drop of the node's pages is to be ordered: not if one is waiting already.
    pub(in crate::adapter) fn begin_drop(&self, nodeid: u64) -> bool {
        self.with(nodeid, |node| {
            !std::mem::replace(&mut node.unopened.get_or_insert_default().dropping, true)
        })
        .unwrap_or(false)
    }

    /// That drop begins: what changes from here on needs another.
    pub(in crate::adapter) fn drop_begins(&self, nodeid: u64) {
        self.with(nodeid, |node| node.unopened.get_or_insert_default().dropping = false);
    }
}
