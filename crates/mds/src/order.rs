//! Changes of one file's data are carried out one after another, in the order the rank said them.
//! Reads, seeks and syncs need no order against what is not yet answered, and pass. The driver's half of
//! `Output::Data`; every driver uses this one, so that the simulator runs what a server runs.
//!
//! Absent: locks (it lives behind the rank's mutex); what waits for the journal (the rank holds that back).

use crate::input::Tag;
use proto::FileId;
use proto::storeio::DataOp;
use std::collections::{BTreeMap, VecDeque};

/// The files with a change under way.
#[derive(Debug, Default)]
pub struct DataOrder {
    running: BTreeMap<Tag, FileId>,
    waiting: BTreeMap<FileId, VecDeque<(Tag, DataOp)>>,
}

impl DataOrder {
    /// Takes an operation in; returns it when it may run now.
    pub fn admit(&mut self, tag: Tag, op: DataOp) -> Option<(Tag, DataOp)> {
        let Some(file) = changed_file(&op) else { return Some((tag, op)) };
        if stdx::mutant!("mds_data_unordered") {
            return Some((tag, op));
        }
        if let Some(queue) = self.waiting.get_mut(&file) {
            queue.push_back((tag, op));
            return None;
        }
        self.waiting.insert(file, VecDeque::new());
        self.running.insert(tag, file);
        Some((tag, op))
    }

    /// An operation is done; returns the next of its file.
    pub fn done(&mut self, tag: Tag) -> Option<(Tag, DataOp)> {
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

pub(crate) const fn changed_file(op: &DataOp) -> Option<FileId> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Ino;

    fn remove(n: u64) -> DataOp {
        DataOp::Remove { file: FileId { ino: Ino(n), generation: 0 } }
    }

    #[test]
    fn changes_of_one_file_wait_for_each_other_and_reads_do_not() {
        let mut order = DataOrder::default();
        assert!(order.admit(Tag(1), remove(5)).is_some());
        assert!(order.admit(Tag(2), remove(5)).is_none());
        assert!(order.admit(Tag(3), remove(6)).is_some());
        assert!(order.admit(Tag(4), DataOp::StatFs).is_some());
        assert_eq!(order.done(Tag(4)), None);
        assert_eq!(order.done(Tag(1)), Some((Tag(2), remove(5))));
        assert!(order.admit(Tag(5), remove(5)).is_none());
        assert_eq!(order.done(Tag(2)), Some((Tag(5), remove(5))));
        assert_eq!(order.done(Tag(5)), None);
        assert_eq!(order.done(Tag(3)), None);
        assert!(order.waiting.is_empty() && order.running.is_empty());
    }
}
