//! Changes of one file's data run one after another in the order the rank said them, as the server's
//! driver does it; reads, seeks and syncs pass.
//!
//! Absent: delays.

use mds::input::Tag;
use proto::FileId;
use proto::storeio::DataOp;
use std::collections::{BTreeMap, VecDeque};

/// Files with a change under way.
#[derive(Default)]
pub(super) struct Order {
    running: BTreeMap<Tag, FileId>,
    waiting: BTreeMap<FileId, VecDeque<(Tag, Box<DataOp>)>>,
}

impl Order {
    /// Takes an operation in; gives it back when it may run now.
    pub(super) fn admit(&mut self, tag: Tag, op: Box<DataOp>) -> Option<(Tag, Box<DataOp>)> {
        let Some(file) = changed(&op) else { return Some((tag, op)) };
        if let Some(queue) = self.waiting.get_mut(&file) {
            queue.push_back((tag, op));
            return None;
        }
        self.waiting.insert(file, VecDeque::new());
        self.running.insert(tag, file);
        Some((tag, op))
    }

    /// An operation is answered; the next of its file.
    pub(super) fn done(&mut self, tag: Tag) -> Option<(Tag, Box<DataOp>)> {
        let file = self.running.remove(&tag)?;
        let next = self.waiting.get_mut(&file).and_then(VecDeque::pop_front);
        match &next {
            Some((tag, _)) => {
                self.running.insert(*tag, file);
            }
            None => {
                self.waiting.remove(&file);
            }
        }
        next
    }
}

const fn changed(op: &DataOp) -> Option<FileId> {
    match op {
        DataOp::Write { file, .. }
        | DataOp::Truncate { file, .. }
        | DataOp::Zero { file, .. }
        | DataOp::Allocate { file, .. }
        | DataOp::Redo { file, .. }
        | DataOp::Remove { file } => Some(*file),
        DataOp::Copy { target, .. } => Some(*target),
        DataOp::Read { .. }
        | DataOp::Seek { .. }
        | DataOp::Sync { .. }
        | DataOp::SyncAll
        | DataOp::StatFs => None,
    }
}
