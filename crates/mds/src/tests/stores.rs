//! The store and the data store of the world, as maps.
//!
//! Absent: when their answers arrive (`mod.rs`).

use super::*;

impl World {
    pub(super) fn store_batches(&mut self, tag: Tag, batches: Vec<StoreBatch>) {
        self.batch_bytes += batches.iter().map(StoreBatch::bytes).sum::<usize>();
        if let Some(error) = self.store_fails.clone() {
            self.inbox.push_back(Input::Stored { tag, result: Err(error) });
            return;
        }
        if let Some(left) = &mut self.stores_left {
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        for batch in &batches {
            for (table, key, value) in batch.iter() {
                match value {
                    Some(value) => self.store.insert((table, key.to_vec()), value.to_vec()),
                    None => self.store.remove(&(table, key.to_vec())),
                };
            }
        }
        self.later(self.hold_stores, Input::Stored { tag, result: Ok(()) });
    }

    pub(super) fn load(&self, request: &LoadRequest) -> Loaded {
        let get = |key| Loaded::Value(self.store.get(&key_bytes(key)).map(|v| v.as_slice().into()));
        match request {
            LoadRequest::Dentry { dir, hash, name } => get(StoreKey::head(*dir, *hash, name)),
            LoadRequest::ByHash { dir, hash } => {
                let entries = self.scan(*dir, *hash).take_while(|e| e.hash == *hash).collect();
                Loaded::Dentries { entries, next: None }
            }
            LoadRequest::Scan { dir, from, entries_max } => {
                let mut entries: Vec<StoredDentry> = Vec::new();
                let mut next = None;
                for entry in self.scan(*dir, *from) {
                    let same = entries.last().is_some_and(|l| l.hash.cookie() == entry.hash.cookie());
                    if entries.len() >= *entries_max as usize && !same {
                        next = Some(entry.hash);
                        break;
                    }
                    entries.push(entry);
                }
                Loaded::Dentries { entries, next }
            }
            LoadRequest::Header { dir, frag } => get(StoreKey::Header { dir: *dir, frag: *frag }),
            LoadRequest::Backptr { ino } => get(StoreKey::Backptr { ino: *ino }),
            LoadRequest::Counter { rank } => get(StoreKey::Counter { rank: *rank }),
            LoadRequest::Checkpoint { rank } => get(StoreKey::Checkpoint { rank: *rank }),
            LoadRequest::Sessions { rank: of } => Loaded::Sessions(
                self.store
                    .iter()
                    .filter_map(|((table, key), value)| match StoreKey::decode(*table, key) {
                        Ok(StoreKey::Session { rank, id }) if rank == *of => {
                            Some((id, value.as_slice().into()))
                        }
                        _ => None,
                    })
                    .collect(),
            ),
        }
    }

    fn scan(&self, dir: Ino, from: NameHash) -> impl Iterator<Item = StoredDentry> {
        let low = key_bytes(StoreKey::Dentry { dir, hash: from, name: b"", snap: SnapId(0) });
        self.store.range(low..).map_while(move |((table, key), value)| match StoreKey::decode(*table, key) {
            Ok(StoreKey::Dentry { dir: d, hash, name, .. }) if d == dir => {
                Some(StoredDentry { hash, name: name.into(), value: value.as_slice().into() })
            }
            _ => None,
        })
    }

    pub(super) fn run_data(&mut self, op: DataOp) -> Result<DataDone, StoreError> {
        Ok(match op {
            DataOp::Write { file, cut, offset, data } => {
                let data = data.bytes();
                let bytes = self.object(file, cut.seq, cut.size);
                let end = offset as usize + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(data);
                DataDone::Count(data.len() as u64)
            }
            DataOp::Read { file, cut, offset, len, .. } => {
                let bytes = self.object(file, cut.seq, cut.size);
                let mut read: Vec<u8> =
                    bytes.iter().skip(offset as usize).take(len as usize).copied().collect();
                read.resize(len as usize, 0);
                DataDone::Bytes(read.into())
            }
            DataOp::Truncate { file, cut } => {
                self.object(file, cut.seq, cut.size);
                DataDone::Done
            }
            DataOp::Zero { file, cut, offset, len, .. } => {
                let bytes = self.object(file, cut.seq, cut.size);
                let end = ((offset + len) as usize).min(bytes.len());
                bytes[(offset as usize).min(end)..end].fill(0);
                DataDone::Done
            }
            DataOp::Copy { source, source_offset, target, target_cut, target_offset, len, .. } => {
                let from = self.data.get(&source).map(|(_, b)| b.clone()).unwrap_or_default();
                let mut part: Vec<u8> =
                    from.iter().skip(source_offset as usize).take(len as usize).copied().collect();
                part.resize(len as usize, 0);
                let write = DataOp::Write {
                    file: target,
                    cut: target_cut,
                    offset: target_offset,
                    data: Payload::Owned(part),
                };
                return self.run_data(write);
            }
            DataOp::Seek { offset, size, hole, .. } => {
                DataDone::Offset(Some(if hole { size } else { offset }))
            }
            DataOp::Sync { file } if self.redo_syncs => {
                let (seq, data) = self.data.get(&file).cloned().unwrap_or_default();
                DataDone::Redo { truncate_seq: seq, write_seq: 1, data }
            }
            DataOp::Redo { file, truncate_seq, data, .. } => {
                self.data.insert(file, (truncate_seq, data));
                DataDone::Done
            }
            DataOp::Remove { file } => {
                self.data.remove(&file);
                DataDone::Done
            }
            DataOp::StatFs => DataDone::Space(Space { total: 100, free: 50, available: 40 }),
            DataOp::Sync { .. } | DataOp::SyncAll | DataOp::Allocate { .. } => DataDone::Done,
        })
    }

    fn object(&mut self, file: FileId, seq: u32, size: u64) -> &mut Vec<u8> {
        let (known, bytes) = self.data.entry(file).or_default();
        if *known < seq {
            *known = seq;
            bytes.truncate(size as usize);
        }
        bytes
    }
}
