//! Open files of segments and blocks, the least recently used one closed first.
//!
//! Absent: opening and closing; both are I/O and happen outside the lock that guards this table.

use proto::FileId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a handle is open on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HandleKey {
    Segment(u32),
    Block(FileId, u64),
}

/// A bounded table of open files.
#[derive(Debug)]
pub(super) struct Handles<F> {
    open: BTreeMap<HandleKey, (u64, Arc<F>)>,
    order: BTreeMap<u64, HandleKey>,
    stamp: u64,
    max: usize,
}

impl<F> Handles<F> {
    pub(super) const fn new(max: usize) -> Self {
        Self { open: BTreeMap::new(), order: BTreeMap::new(), stamp: 0, max }
    }

    pub(super) fn get(&mut self, key: HandleKey) -> Option<Arc<F>> {
        let (stamp, file) = self.open.get_mut(&key)?;
        self.order.remove(stamp);
        self.stamp += 1;
        *stamp = self.stamp;
        self.order.insert(self.stamp, key);
        Some(Arc::clone(file))
    }

    /// Adds a handle; the one returned is to be closed after the lock is released (`DataFiles::retire`).
    #[must_use]
    pub(super) fn put(&mut self, key: HandleKey, file: Arc<F>) -> Option<(HandleKey, Arc<F>)> {
        let replaced = self.remove(key).map(|file| (key, file));
        self.stamp += 1;
        self.order.insert(self.stamp, key);
        self.open.insert(key, (self.stamp, file));
        if self.open.len() <= self.max {
            return replaced;
        }
        let oldest = self.order.first_key_value().map(|(_, key)| *key)?;
        self.remove(oldest).map(|file| (oldest, file))
    }

    pub(super) fn remove(&mut self, key: HandleKey) -> Option<Arc<F>> {
        let (stamp, file) = self.open.remove(&key)?;
        self.order.remove(&stamp);
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_handle_goes_first() {
        let mut handles = Handles::new(2);
        assert!(handles.put(HandleKey::Segment(1), Arc::new(1)).is_none());
        assert!(handles.put(HandleKey::Segment(2), Arc::new(2)).is_none());
        assert!(handles.get(HandleKey::Segment(1)).is_some());
        let evicted = handles.put(HandleKey::Segment(3), Arc::new(3));
        assert_eq!(evicted, Some((HandleKey::Segment(2), Arc::new(2))));
        assert!(handles.get(HandleKey::Segment(2)).is_none());
        assert_eq!(handles.remove(HandleKey::Segment(1)).as_deref(), Some(&1));
    }
}
