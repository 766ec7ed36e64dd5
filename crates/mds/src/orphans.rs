//! `//orphans`: inodes without a name that are open, and their end.
//!
//! Absent: how they come there (`ops/destroy.rs`, `ops/tmpfile.rs`).

use crate::cache::node;
use crate::hold::Waiting;
use crate::ops::Headers;
use crate::output::{Level, Output};
use crate::rank::{Inner, Rank};
use crate::txn::file_id;
use crate::view::hex_name;
use proto::dentry::DentryValue;
use proto::storeio::{DataOp, StoreError, StoredDentry};
use proto::{Ino, NameHash};
use stdx::{Now, Outbox};

impl Rank {
    /// The node of an inode that has no name, if it is one.
    fn orphan(&self, ino: Ino) -> Option<u32> {
        let slot = self.view.cache.by_ino(ino)?;
        let cache = &self.view.cache;
        (cache.parent_ino(slot) == self.view.orphans() && cache.node(slot).core.nlink == 0).then_some(slot)
    }

    /// Something that kept the inode may have ended: forget its state, purge it if it has no name.
    pub(crate) fn settle(&mut self, ino: Ino) {
        if !self.view.files.settle(ino) {
            return;
        }
        self.view.cache.flag(ino, 0, node::BUSY);
        if !self.view.reconnecting && self.orphan(ino).is_some() && self.state.serves() {
            self.view.files.get_mut(ino).purging = true;
            self.view.cache.flag(ino, node::BUSY, 0);
            self.hold(Waiting::Purge { ino });
        }
    }

    /// The orphan's last transaction is durable: its data goes first.
    pub(crate) fn purge(&mut self, now: Now, ino: Ino, out: &mut Outbox<Output>) {
        let Some(slot) = self.orphan(ino) else {
            self.stop_purge(ino);
            return;
        };
        if self.view.files.get(ino).is_some_and(crate::files::FileState::needs_data) {
            self.stop_purge(ino);
            return;
        }
        let core = self.view.cache.node(slot).core;
        if core.mode & 0o170_000 == 0o100_000 && (core.size > 0 || core.truncate_seq > 0) {
            self.internal_data(DataOp::Remove { file: file_id(&core) }, Inner::Purge { ino }, out);
        } else {
            self.purged(now, ino, Ok(()), out);
        }
    }

    fn stop_purge(&mut self, ino: Ino) {
        if let Some(file) = self.view.files.existing(ino) {
            file.purging = false;
        }
        if self.view.files.settle(ino) {
            self.view.cache.flag(ino, 0, node::BUSY);
        }
    }

    /// The data is gone: now the record.
    pub(crate) fn purged(
        &mut self,
        now: Now,
        ino: Ino,
        result: Result<(), StoreError>,
        out: &mut Outbox<Output>,
    ) {
        if let Err(error) = result {
            let text = format!("orphan {:x} stays until the next start: {error}", ino.0);
            out.push(Output::Note { level: Level::Warn, text });
            self.stop_purge(ino);
            return;
        }
        let Some(slot) = self.orphan(ino) else { return self.stop_purge(ino) };
        let dir = self.view.cache.node(slot).dir;
        let core = self.view.cache.node(slot).core;
        let name = hex_name(ino);
        let place = self.view.place_in(dir, self.view.cache.node(slot).hash, &name);
        self.view.txn.delete(place);
        if core.flags & proto::inode::flags::BACKPTR != 0 {
            self.view.txn.no_backptr(ino, core.change);
        }
        let mut headers = Headers::new();
        headers.add(dir, -1, 0, Some(now.wall));
        headers.emit(&mut self.view);
        self.commit(now, None, out);
        self.stop_purge(ino);
    }

    /// A page of orphans that a former life left: those nobody has claimed go.
    pub(crate) fn found_orphans(&mut self, entries: &[StoredDentry], next: Option<NameHash>) {
        for entry in entries {
            if let Ok(DentryValue::Primary(record)) = DentryValue::decode(&entry.value) {
                self.settle(record.core.ino);
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
            self.settle(ino);
        }
    }
}
