//! What was granted goes back: the kernel drops it, then the rank is told, once for each item.
//!
//! Forgetting attributes is enough for a node that the kernel has: it advances the version of the node's attributes, and an
//! answer to what was asked under an older version is not taken as valid (`fuse_reverse_inval_inode` and
//! `fuse_change_attributes_i` of Linux). A node that it does not have yet has no version, and the answer that makes it may be on
//! its way; so where the first answer about a node was given a moment ago attributes are forgotten once more when it must have come:
//! when the rings have none left that was given by then, and whoever asked has had the time to take it in.
//!
//! Pages of an open cached handle are read into after Fc is gone, too. AUTO_INVAL_DATA is agreed on: each read looks at the
//! attributes when their time is over, at once where none is granted, and drops the pages if size or mtime have changed. A write of
//! others needs Fs back first, so that is enough.
//!
//! Of a stale node nothing is told to who comes by its name, but that does not go for directories: the rank hears that the name of one
//! is given back when it is dropped, or after 20 ms where its parent is locked meanwhile.
//! Absent: waiting; what may wait has threads of its own (`droppers`).

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use ::mount::CapsEvent;
use proto::caps::{Bits, Recalled};
use stdx::Mono;
use stdx::time::MS;

use super::Shared;
use super::droppers::{Item, NodeDrop, PageDrop, Recall, SecondDrop};
use super::name_drops::{DropId, NameDrop, Over, Owed};
use crate::notify::Notifier;

/// After that an answer that the kernel has has come to whom it is for.
const FIRST_ANSWER_NS: u64 = 20 * MS;

/// So long the rank waits for the name of a directory to be dropped, which its old name leads to until then.
const DIRECTORY_NAME_NS: u64 = 20 * MS;

pub(super) fn on_caps(shared: &Weak<Shared>, event: CapsEvent) {
    let Some(shared) = shared.upgrade() else { return };
    match event {
        CapsEvent::Recalled { stamp, list } => shared.recall(stamp, list),
        CapsEvent::Lost { .. } => shared.lost(),
    }
}

/// What is in use no more once `bits` are dropped. A kernel has one timeout for all attributes, so with one class all are
/// forgotten; but not the name, which Ls stands for until it is recalled itself.
fn given_back(bits: Bits) -> Bits {
    if bits.and(Bits::ATTRS).is_empty() { bits } else { bits.with(Bits::ATTRS.without(Bits::LS)) }
}

impl Shared {
    /// Marks what is recalled before anything is dropped: what is answered from here on is answered accordingly. Never waits.
    fn recall(&self, stamp: u64, list: Vec<Recalled>) {
        let mark = |item: Recalled| {
            let nodeid = self.nodeid(item.ino);
            let found = self.nodes.recall(nodeid, item.bits, item.name.is_some(), stamp);
            // Of a node that the kernel does not have, too: under that name it may have another.
            let name = item.name.as_ref().map(|(dir, name)| {
                let drop = NameDrop { parent: self.nodeid(*dir), name: name.clone(), nodeid, stamp };
                self.droppers.names.announce(drop)
            });
            Item { recalled: item, found, name }
        };
        self.droppers.drop_all(Recall { stamp, list: list.into_iter().map(mark).collect() });
    }

    /// On the recall thread: an inode that the kernel is about to free is waited for, and with it perhaps for the answer to a READ,
    /// which the thread that received the recall may have to deliver.
    pub(super) fn recalled(&self, Recall { stamp, list }: Recall) {
        let mut dropped = Vec::new();
        let mut second = SecondDrop::new(stamp, self.mount.now());
        for Item { recalled: item, found, name } in list {
            let nodeid = self.nodeid(item.ino);
            let returned = item.returned(given_back(item.bits));
            let (Some(found), Some(notifier)) = (found, self.notifier.get()) else {
                self.begin_name(name, None);
                dropped.push(returned);
                continue;
            };
            let attributes = !item.bits.and(Bits::ATTRS).is_empty();
            // If it does not have the node, an answer that makes it is on its way, or a FORGET.
            let missing = attributes && matches!(notifier.inval_attributes(nodeid), Ok(false));
            if item.bits.has(Bits::FS) && !found.directory {
                self.unopened_may_change(nodeid);
            }
            // Pages of a file that nobody has open are dropped by its next open.
            let pages = item.bits.has(Bits::FC) && found.open;
            let node = NodeDrop { nodeid, stamp, returned, pages };
            let now = self.mount.now();
            let arrived =
                if missing { now.after(FIRST_ANSWER_NS) } else { found.first_answer.after(FIRST_ANSWER_NS) };
            let mut owed = None;
            if attributes && now < arrived {
                second.due = second.due.max(arrived);
                second.nodes.push(node);
            } else if pages {
                self.droppers.drop_pages(PageDrop::of(node));
            } else if found.directory && name.is_some() {
                second.due = second.due.max(now.after(DIRECTORY_NAME_NS));
                let name = Owed::new(stamp, returned);
                second.names.push(Arc::clone(&name));
                owed = Some(name);
            } else {
                dropped.push(returned);
            }
            self.begin_name(name, owed);
        }
        if !second.nodes.is_empty() {
            second.given = self.notifier.get().map(Notifier::answers_given).unwrap_or_default();
        }
        if !second.is_empty() {
            self.droppers.drop_again(second);
        }
        if !dropped.is_empty() {
            self.mount.returned(stamp, dropped);
        }
    }

    /// Drops what the kernel has of open files. What it has of closed ones is dropped by their next open.
    ///
    /// Pages that a READ or a WRITE has locked are waited for, and its answer may take as long as a lease: it waits for the next
    /// connection, and there for another mount. Files without one must not wait with them: the rank lets others write after 3 s.
    fn lost(&self) {
        let Some(notifier) = self.notifier.get() else { return };
        let mut locked = Vec::new();
        for nodeid in self.nodes.open() {
            // Looked at for each: a READ of a page that is dropped already may begin at any time.
            match self.mount.moves_bytes(self.nodes.node(nodeid).ino) {
                true => locked.push(nodeid),
                // Forgotten meanwhile, or the mount is gone: nothing is cached then either.
                false => drop(notifier.inval_inode(nodeid, 0, 0)),
            }
        }
        for nodeid in locked {
            let _gone = notifier.inval_inode(nodeid, 0, 0);
        }
    }

    fn begin_name(&self, name: Option<DropId>, owed: Option<Arc<Owed>>) {
        if let Some(id) = name {
            self.droppers.names.begin(id, owed);
        }
    }

    /// On a name thread. Waits while the kernel waits for an answer about a name in that directory.
    pub(super) fn drop_name(&self, drop: &NameDrop) {
        if let Some(notifier) = self.notifier.get() {
            let _gone = notifier.inval_entry(drop.parent, drop.name.as_bytes());
        }
    }

    pub(super) fn name_dropped(&self, Over { of, owed }: Over) {
        if let Some((nodeid, stamp)) = of
            && self.nodes.name_dropped(nodeid, stamp)
        {
            self.look_again(nodeid);
        }
        if let Some(owed) = owed
            && let Some(returned) = owed.take()
        {
            self.mount.returned(owed.stamp, vec![returned]);
        }
    }

    /// On the page thread. Waits while a READ is unanswered, or a page being written.
    pub(super) fn drop_pages(&self, drop: &PageDrop) {
        if drop.owed.is_none() {
            self.nodes.drop_begins(drop.nodeid);
        }
        if let Some(notifier) = self.notifier.get() {
            let _gone = notifier.inval_inode(drop.nodeid, 0, 0);
        }
        if let Some((stamp, returned)) = drop.owed {
            self.mount.returned(stamp, vec![returned]);
        }
    }

    /// On the thread for second drops. An answer that was given may lie with its ring thread, which handles other requests first or
    /// has no CPU: the kernel must have had it for as long as any other.
    pub(super) fn await_first_answers(&self, second: &SecondDrop) {
        let pause = |until: Mono| thread::sleep(Duration::from_nanos(until.since(self.mount.now())));
        pause(second.due);
        if let Some(notifier) = self.notifier.get()
            && notifier.wait_for_answers(&second.given)
        {
            pause(self.mount.now().after(FIRST_ANSWER_NS));
        }
    }

    /// When the first answers about the nodes have come.
    pub(super) fn drop_again(&self, second: SecondDrop) {
        let mut dropped: Vec<_> = second.names.iter().filter_map(|owed| owed.take()).collect();
        for node in second.nodes {
            if let Some(notifier) = self.notifier.get() {
                let _gone = notifier.inval_attributes(node.nodeid);
            }
            if node.pages {
                self.droppers.drop_pages(PageDrop::of(node));
            } else {
                dropped.push(node.returned);
            }
        }
        if !dropped.is_empty() {
            self.mount.returned(second.stamp, dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_back_only_when_it_is_recalled() {
        assert_eq!(given_back(Bits::FC), Bits::FC);
        assert_eq!(given_back(Bits::FS), Bits::ATTRS.without(Bits::LS));
        assert_eq!(given_back(Bits::LS.with(Bits::FC)), Bits::ATTRS.with(Bits::FC));
    }
}
