//! The threads that drop what the kernel keeps, where that may wait: one for recalls as they come, some for names (`name_drops`),
//! one for pages, one for nodes whose first answer may be on its way, one for what is dropped to make room (`prune`), and one that ends long
//! waits for a name (`stale`).
//!
//! Names and pages wait for different things: a name for a host that answers late, which nothing else may be late for. The page
//! thread waits for READs and for WRITEs, and a WRITE may wait at the rank until another host has given attributes back; so attributes
//! never stand behind pages, or two hosts could wait for each other. They end with the adapter, whose ends of the queues they have.
//! Absent: bounds. A queue is no longer than what was granted and is being recalled, or than the files that the kernel knows.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;

use proto::caps::{Recalled, Returned};
use stdx::Mono;

use super::Shared;
use super::name_drops::{DropId, NameDrops, Owed};
use super::nodes::Found;
use crate::transport::uring::Given;

/// What the rank recalls, and what the kernel may have of it.
pub(super) struct Recall {
    pub(super) stamp: u64,
    pub(super) list: Vec<Item>,
}

pub(super) struct Item {
    pub(super) recalled: Recalled,
    pub(super) found: Option<Found>,
    /// Of the name that goes.
    pub(super) name: Option<DropId>,
}

/// A node of which something is to be dropped; afterwards the rank is told.
pub(super) struct NodeDrop {
    pub(super) nodeid: u64,
    pub(super) stamp: u64,
    pub(super) returned: Returned,
    /// Its pages, too.
    pub(super) pages: bool,
}

/// A file whose pages are to be dropped.
pub(super) struct PageDrop {
    pub(super) nodeid: u64,
    /// What the rank is told afterwards, with its stamp; none: it does not wait for this.
    pub(super) owed: Option<(u64, Returned)>,
}

impl PageDrop {
    pub(super) fn of(node: NodeDrop) -> PageDrop {
        PageDrop { nodeid: node.nodeid, owed: Some((node.stamp, node.returned)) }
    }
}

/// Nodes whose first answer may be on its way; no more when it is due and the kernel has what was given.
pub(super) struct SecondDrop {
    pub(super) stamp: u64,
    pub(super) due: Mono,
    pub(super) given: Given,
    pub(super) nodes: Vec<NodeDrop>,
    /// What is told then about names that are not dropped by then.
    pub(super) names: Vec<Arc<Owed>>,
}

impl SecondDrop {
    pub(super) fn new(stamp: u64, due: Mono) -> SecondDrop {
        SecondDrop { stamp, due, given: Given::default(), nodes: Vec::new(), names: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.names.is_empty()
    }
}

/// The adapter's ends of the queues.
pub(super) struct Droppers {
    recalls: Sender<Recall>,
    pub(super) names: Arc<NameDrops>,
    pages: Sender<PageDrop>,
    second: Sender<SecondDrop>,
    prunes: Sender<()>,
    stale: Sender<()>,
}

/// The threads' ends.
pub(super) struct Queues {
    recalls: Receiver<Recall>,
    names: Arc<NameDrops>,
    pages: Receiver<PageDrop>,
    second: Receiver<SecondDrop>,
    prunes: Receiver<()>,
    stale: Receiver<()>,
}

impl Droppers {
    pub(super) fn new() -> (Droppers, Queues) {
        let (recalls, recalls_queue) = channel();
        let names = Arc::new(NameDrops::default());
        let (pages, pages_queue) = channel();
        let (second, seconds_queue) = channel();
        let (prunes, prunes_queue) = channel();
        let (stale, stale_queue) = channel();
        let queues = Queues {
            recalls: recalls_queue,
            names: Arc::clone(&names),
            pages: pages_queue,
            second: seconds_queue,
            prunes: prunes_queue,
            stale: stale_queue,
        };
        (Droppers { recalls, names, pages, second, prunes, stale }, queues)
    }

    // A thread ends only with the adapter: whoever finds it gone has nobody left to tell.

    pub(super) fn drop_all(&self, recall: Recall) {
        let _ended = self.recalls.send(recall);
    }

    pub(super) fn drop_pages(&self, drop: PageDrop) {
        let _ended = self.pages.send(drop);
    }

    pub(super) fn prune(&self) {
        let _ended = self.prunes.send(());
    }

    /// Somebody waits for a name to be dropped, and nobody did.
    pub(super) fn watch_stale(&self) {
        let _ended = self.stale.send(());
    }

    pub(super) fn drop_again(&self, second: SecondDrop) {
        let _ended = self.second.send(second);
    }
}

impl Drop for Droppers {
    fn drop(&mut self) {
        self.names.end();
    }
}

impl Queues {
    /// Starts the threads.
    pub(super) fn serve(self, shared: &Weak<Shared>) -> io::Result<()> {
        serve("pando-recalls", self.recalls, shared, |shared, recall| shared.recalled(recall))?;
        let (drops, marks) = (Weak::clone(shared), Weak::clone(shared));
        let drop_name = move |drop: &_| {
            if let Some(shared) = drops.upgrade() {
                shared.drop_name(drop);
            }
        };
        let dropped = move |over| {
            if let Some(shared) = marks.upgrade() {
                shared.name_dropped(over);
            }
        };
        self.names.serve(drop_name, dropped)?;
        serve("pando-pages", self.pages, shared, |shared, drop| shared.drop_pages(&drop))?;
        serve("pando-prune", self.prunes, shared, |shared, ()| shared.prune())?;
        serve("pando-stale", self.stale, shared, |shared, ()| shared.end_waits_that_are_long())?;
        serve("pando-redrop", self.second, shared, |shared, second| {
            shared.await_first_answers(&second);
            shared.drop_again(second);
        })
    }
}

fn serve<T: Send + 'static>(
    name: &str,
    queue: Receiver<T>,
    shared: &Weak<Shared>,
    work: fn(&Shared, T),
) -> io::Result<()> {
    let shared = Weak::clone(shared);
    let serve = move || {
        while let Ok(job) = queue.recv() {
            let Some(shared) = shared.upgrade() else { return };
            work(&shared, job);
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(serve).map(drop)
}
