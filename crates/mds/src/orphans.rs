//! `//orphans`: inodes without a name that are open, and their end.
//!
//! Absent: how they come there (`ops/destroy.rs`, `ops/tmpfile.rs`).

use crate::cache::node;
use crate::ops::Headers;
use crate::ops::destroy::end;
use crate::output::Output;
use crate::rank::Rank;
use proto::dentry::DentryValue;
use proto::storeio::StoredDentry;
use proto::{Ino, NameHash};
use stdx::{Now, Outbox};

/// Orphans ended per step.
const PURGE_SLICE: usize = 64;

impl Rank {
    /// The node of an inode that has no name, if it is one.
    fn orphan(&self, ino: Ino) -> Option<u32> {
        let slot = self.view.cache.by_ino(ino)?;
        let cache = &self.view.cache;
        (cache.parent_ino(slot) == self.view.orphans() && cache.node(slot).core.nlink == 0).then_some(slot)
    }

    /// Something that kept the inode may have ended: forget its state, purge it if it has no name.
    pub(crate) fn forget_or_purge(&mut self, ino: Ino) {
        if !self.view.files.forget_idle(ino) {
            return;
        }
        // It is perhaps about to get a name at another rank: what becomes of it is looked at when that is known.
        let may_stay = self.view.transactions.is_reserved(ino) && !stdx::mutant!("mds_reserved_is_purged");
        // What broke: it left the cache meanwhile. Then nothing of it showed when it was free again, and nobody looks for it in the store
        // before the rank's next life: it was never purged, and its rank could not go.
        let waits = may_stay && self.orphan(ino).is_some() && !stdx::mutant!("mds_reserved_leaves_cache");
        let (set, clear) = if waits { (node::BUSY, 0) } else { (0, node::BUSY) };
        self.view.cache.flag(ino, set, clear);
        if may_stay {
            return;
        }
        if !self.view.reconnecting && self.state.serves() && self.orphan(ino).is_some() {
            self.view.files.get_mut(ino).purging = true;
            self.view.cache.flag(ino, node::BUSY, 0);
            self.purges.push_back(ino);
        }
    }

    /// Ends orphans that nobody has open: record and data go with one transaction, the data itself
    /// once that is durable, as with a file that was closed when it lost its name.
    pub(crate) fn purge_slice(&mut self, now: Now, out: &mut Outbox<Output>) {
        for _ in 0..PURGE_SLICE {
            let Some(ino) = self.purges.pop_front() else { return };
            let Some(file) = self.view.files.existing(ino) else { continue };
            file.purging = false;
            // Opened again meanwhile, or given a name.
            if !file.needs_data()
                && let Some(slot) = self.orphan(ino)
            {
                self.purge(now, slot, out);
            }
            // Another rank may have asked for it meanwhile, for a transaction: it hears that there is no such inode.
            if !stdx::mutant!("mds_purge_wakes_nobody") {
                self.wake(ino);
            }
            if self.view.files.forget_idle(ino) {
                self.view.cache.flag(ino, 0, node::BUSY);
            }
        }
    }

    fn purge(&mut self, now: Now, slot: u32, out: &mut Outbox<Output>) {
        let node = self.view.cache.node(slot);
        let (dir, core, hash) = (node.dir, node.core, node.hash);
        let name = core.ino.link_name();
        self.view.txn.delete(self.view.place_in(dir, hash, &name));
        end(&mut self.view, slot, &core);
        let mut headers = Headers::new();
        headers.add(dir, -1, 0, Some(now.wall));
        headers.emit(&mut self.view);
        self.commit(now, None, out);
    }

    /// A page of orphans that a former life left: those nobody has claimed go.
    pub(crate) fn found_orphans(&mut self, entries: &[StoredDentry], next: Option<NameHash>) {
        for entry in entries {
            if let Ok(DentryValue::Primary(record)) = DentryValue::decode(&entry.value) {
                self.forget_or_purge(record.core.ino);
            }
        }
        if let Some(next) = next {
            self.scan_orphans(next);
        }
    }

    /// Orphans that only the cache knows (from the replayed tail).
    pub(crate) fn settle_cached_orphans(&mut self) {
        let orphans = self.view.orphans();
        let Some(dir) = self.view.cache.find_dir(orphans) else { return };
        let mut inos = Vec::new();
        let cache = &self.view.cache;
        cache.dir(dir).table.walk(NameHash(0), &cache.nodes, |slot| {
            if cache.node(slot).primary() {
                inos.push(cache.node(slot).ino());
            }
            true
        });
        for ino in inos {
            self.forget_or_purge(ino);
        }
    }
}
