//! What the metadata store has answered that a whole one does not: how often, the first and the last of it, for `health` and for a backup,
//! which needs a checkpoint that would never end.
//!
//! Absent: repair (crate `fsck`); damage that nobody has read yet.

use proto::storeio::StoreError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Damage since the server began.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    count: AtomicU64,
    first: Mutex<Option<StoreError>>,
    last: Mutex<Option<StoreError>>,
}

impl Damage {
    /// Notes an error of the store, if it is one of damage. Whether it is the first.
    pub(super) fn note(&self, error: &StoreError) -> bool {
        // A full disk, a write that came too late, and one of a life that has ended, say nothing of what is stored.
        // Nor does a file that was not opened for want of a descriptor.
        if matches!(error, StoreError::NoSpace | StoreError::Guard { .. } | StoreError::Fenced)
            || error.finds_no_descriptor()
        {
            return false;
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        self.count.fetch_add(1, Ordering::Release);
        let is_first = first.is_none();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        first.get_or_insert_with(|| error.clone());
        is_first
    }

    /// How often there was any.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last of it.
    pub(crate) fn last(&self) -> Option<StoreError> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first of it.
    pub(crate) fn first(&self) -> Option<StoreError> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_damage_and_the_first_error_is_kept() {
        let damage = Damage::default();
        assert!(!damage.note(&StoreError::NoSpace) && damage.first().is_none());
        assert!(!damage.note(&StoreError::Fenced) && damage.first().is_none());
        let bad = StoreError::Damaged { at: "meta/03".into(), what: "MDB_CORRUPTED".into() };
        assert!(damage.note(&bad) && !damage.note(&StoreError::Poisoned));
        assert_eq!((damage.count(), damage.first()), (2, Some(bad)));
    }
}
