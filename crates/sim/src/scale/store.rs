//! The store of all ranks: a generated namespace, and over it what was changed. What nobody changes takes no memory, however many files
//! there are.
//!
//! Absent: time (`seat.rs`); failures; the guards of batches, because no owner changes here.

use super::layout::{Layout, Node};
use super::settings::Placement;
use proto::cluster::Unit;
use proto::dentry::encode_primary;
use proto::header::{FragHeader, Spread, Spreading};
use proto::inode::{InodeCore, flags};
use proto::storeio::{Backptr, LoadRequest, Loaded, StoreBatch, StoreError, StoreKey, StoredDentry, Table};
use proto::{Frag, Ino, NameHash, RankId, SnapId, Version, Writer};
use std::collections::BTreeMap;
use std::ops::Bound;
use stdx::Wall;
use stdx::hash::HashSeed;
use store::MemoryMeta;
use store::initial::{ensure_rank, initial_batches};
use store::meta::MetaStore;

/// When everything that is generated was made.
const MADE: Wall = Wall(1);
/// Bytes of each generated file.
const FILE_BYTES: u64 = 4096;

/// Records that were written, by table and key. `None`: a generated one that was deleted.
type Changed = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// The store.
pub(super) struct Store {
    layout: Layout,
    placement: Placement,
    changed: [Changed; 3],
}

const fn place(table: Table) -> usize {
    match table {
        Table::Dentry => 0,
        Table::Backptr => 1,
        Table::System => 2,
    }
}

fn bytes_of(encode: impl FnOnce(&mut Writer)) -> Box<[u8]> {
    let mut w = Writer::new();
    encode(&mut w);
    w.0.into()
}

impl Store {
    /// With the records of so many ranks.
    pub(super) fn new(
        seed: &HashSeed,
        layout: Layout,
        placement: Placement,
        ranks: u16,
    ) -> Result<Self, StoreError> {
        let meta = MemoryMeta::new(0);
        meta.apply(&initial_batches(seed, MADE, (0, 0)))?;
        for rank in 0..ranks {
            ensure_rank(&meta, seed, RankId(rank), MADE)?;
        }
        let mut store = Self { layout, placement, changed: Default::default() };
        for table in [Table::Dentry, Table::Backptr, Table::System] {
            for (key, value) in meta.dump(table)? {
                store.changed[place(table)].insert(key.into(), Some(value.into()));
            }
        }
        // What is generated has numbers that were given out.
        let counter = store.layout.end();
        store.put(StoreKey::Counter { rank: RankId(0) }, |w| {
            w.u64(counter);
        });
        // Root's header counts what is in it.
        store.drop_header_of_root();
        Ok(store)
    }

    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Records that are kept.
    pub(super) fn kept(&self) -> u64 {
        self.changed.iter().map(|table| table.len() as u64).sum()
    }

    fn put(&mut self, key: StoreKey<'_>, value: impl FnOnce(&mut Writer)) {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        self.changed[place(key.table())].insert(bytes.into(), Some(bytes_of(value)));
    }

    /// An empty directory is spread: what the transaction of the rank that did it has put here.
    pub(super) fn spread(&mut self, dir: Ino, spread: Spread) {
        let header = |spreading| FragHeader {
            version: Version(1),
            mtime: MADE,
            change: 1,
            spreading: Some(Box::new(spreading)),
            ..FragHeader::default()
        };
        let whole = (Frag::WHOLE, header(Spreading::Over(spread)));
        let units = spread.all().map(|(_, frag)| (frag, header(Spreading::Unit(Unit { dir, frag }))));
        for (frag, header) in units.chain([whole]) {
            self.put(StoreKey::Header { dir, frag }, |w| header.encode(w));
        }
    }

    fn drop_header_of_root(&mut self) {
        let mut bytes = Vec::new();
        StoreKey::Header { dir: Ino::ROOT, frag: Frag::WHOLE }.encode(&mut bytes);
        self.changed[place(Table::Dentry)].remove(bytes.as_slice());
    }

    /// Carries a batch out.
    pub(super) fn apply(&mut self, batch: &StoreBatch) {
        for (table, key, value) in batch.iter() {
            let deleted_for_good = value.is_none()
                && StoreKey::decode(table, key).is_ok_and(|key| self.generated(&key).is_none());
            let changed = &mut self.changed[place(table)];
            if deleted_for_good {
                changed.remove(key);
            } else {
                changed.insert(key.into(), value.map(Into::into));
            }
        }
    }

    pub(super) fn load(&self, request: &LoadRequest) -> Loaded {
        match request {
            LoadRequest::Dentry { dir, hash, name } => {
                Loaded::Value(self.get(StoreKey::head(*dir, *hash, name)))
            }
            LoadRequest::ByHash { dir, hash } => {
                let (mut entries, _) = self.scan(*dir, *hash, 1);
                entries.retain(|entry| entry.hash == *hash);
                Loaded::Dentries { entries, next: None }
            }
            LoadRequest::Scan { dir, from, entries_max } => {
                let (entries, next) = self.scan(*dir, *from, *entries_max as usize);
                Loaded::Dentries { entries, next }
            }
            LoadRequest::Header { dir, frag } => {
                Loaded::Value(self.get(StoreKey::Header { dir: *dir, frag: *frag }))
            }
            LoadRequest::Backptr { ino } => Loaded::Value(self.get(StoreKey::Backptr { ino: *ino })),
            LoadRequest::Counter { rank } => Loaded::Value(self.get(StoreKey::Counter { rank: *rank })),
            LoadRequest::Checkpoint { rank } => Loaded::Value(self.get(StoreKey::Checkpoint { rank: *rank })),
            // Ranks are loaded once, before there are any.
            LoadRequest::Sessions { .. } => Loaded::Sessions(Vec::new()),
        }
    }

    fn get(&self, key: StoreKey<'_>) -> Option<Box<[u8]>> {
        let mut bytes = Vec::new();
        key.encode(&mut bytes);
        match self.changed[place(key.table())].get(bytes.as_slice()) {
            Some(changed) => changed.clone(),
            None => self.generated(&key),
        }
    }

    /// A record as it was before any change.
    fn generated(&self, key: &StoreKey<'_>) -> Option<Box<[u8]>> {
        match *key {
            StoreKey::Dentry { dir, hash, name, snap } => {
                let ino = self.layout.child(dir, hash, name).filter(|_| snap == SnapId::HEAD)?;
                Some(self.dentry(ino))
            }
            StoreKey::Header { dir, frag } => {
                let (entries, subdirs) = self.layout.child_count(dir).filter(|_| frag == Frag::WHOLE)?;
                let subdirs = if subdirs { entries } else { 0 };
                let header = FragHeader {
                    version: Version(1),
                    entries,
                    subdirs,
                    mtime: MADE,
                    change: 1,
                    ..FragHeader::default()
                };
                Some(bytes_of(|w| header.encode(w)))
            }
            StoreKey::Backptr { ino } => match self.layout.node(ino)? {
                Node::Dir { level, index } => {
                    let (name, hash) = self.layout.dir_name(level, index);
                    let parent = self.layout.parent(level, index);
                    let backptr = Backptr { version: 1, parent, hash, name: name.into() };
                    Some(bytes_of(|w| backptr.encode(w)))
                }
                Node::File { .. } => None,
            },
            StoreKey::Session { .. } | StoreKey::Counter { .. } | StoreKey::Checkpoint { .. } => None,
        }
    }

    /// The value of a generated dentry.
    fn dentry(&self, ino: Ino) -> Box<[u8]> {
        let (is_file, flags) = match self.layout.node(ino) {
            Some(Node::Dir { level, .. }) if self.placement.by_slots(level) => {
                (false, flags::BACKPTR | flags::SLOTS)
            }
            Some(Node::Dir { .. }) => (false, flags::BACKPTR),
            Some(Node::File { .. }) | None => (true, flags::PACKED),
        };
        let core = InodeCore {
            ino,
            generation: 1,
            mode: if is_file { 0o100_644 } else { 0o040_755 },
            nlink: 1,
            size: if is_file { FILE_BYTES } else { 0 },
            flags,
            atime: MADE,
            mtime: MADE,
            ctime: MADE,
            btime: MADE,
            change: 1,
            ..InodeCore::default()
        };
        bytes_of(|w| encode_primary(&core, None, w))
    }

    /// At least `least` names from a hash on, if there are as many, and all of equal cookies; and the hash that comes next.
    fn scan(&self, dir: Ino, from: NameHash, least: usize) -> (Vec<StoredDentry>, Option<NameHash>) {
        let mut low = Vec::new();
        StoreKey::Dentry { dir, hash: from.max(NameHash::FIRST), name: b"", snap: SnapId(0) }
            .encode(&mut low);
        let mut changed = self.changed[0]
            .range::<[u8], _>((Bound::Included(low.as_slice()), Bound::Unbounded))
            .map_while(|(key, value)| match StoreKey::decode(Table::Dentry, key) {
                Ok(StoreKey::Dentry { dir: of, hash, name, .. }) if of == dir => Some((hash, name, value)),
                Ok(_) | Err(_) => None,
            })
            .peekable();
        let mut made = self.layout.scan(dir, from).peekable();
        let mut entries: Vec<StoredDentry> = Vec::new();
        loop {
            let (next_made, next_changed) = (made.peek(), changed.peek());
            let key_made = next_made.map(|(hash, name, _)| (*hash, &name[..]));
            let key_changed = next_changed.map(|(hash, name, _)| (*hash, *name));
            let Some((hash, _)) = key_made.into_iter().chain(key_changed).min() else {
                return (entries, None);
            };
            if entries.len() >= least
                && entries.last().is_some_and(|last| last.hash.cookie() != hash.cookie())
            {
                return (entries, Some(hash));
            }
            let takes_changed = key_changed.is_some_and(|key| key_made.is_none_or(|made| key <= made));
            let same = key_made == key_changed;
            if takes_changed {
                let Some((hash, name, value)) = changed.next() else { return (entries, None) };
                if let Some(value) = value {
                    entries.push(StoredDentry { hash, name: name.into(), value: value.clone() });
                }
                if same {
                    made.next();
                }
            } else if let Some((hash, name, ino)) = made.next() {
                entries.push(StoredDentry { hash, name: name.into(), value: self.dentry(ino) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::dentry::DentryValue;
    use proto::name::name_hash;

    const SEED: HashSeed = HashSeed([7; 16]);

    fn listing(store: &Store, dir: Ino, entries_max: u32) -> Vec<Box<[u8]>> {
        let (mut names, mut from) = (Vec::new(), NameHash(0));
        loop {
            let Loaded::Dentries { entries, next } =
                store.load(&LoadRequest::Scan { dir, from, entries_max })
            else {
                panic!("no listing")
            };
            names.extend(entries.into_iter().map(|entry| entry.name));
            match next {
                Some(next) => from = next,
                None => return names,
            }
        }
    }

    fn put(dir: Ino, name: &[u8], ino: u64) -> StoreBatch {
        let mut batch = StoreBatch::new(dir, None);
        let core = InodeCore { ino: Ino(ino), mode: 0o100_644, ..InodeCore::default() };
        batch.put(StoreKey::head(dir, name_hash(&SEED, name), name), |w| encode_primary(&core, None, w));
        batch
    }

    #[test]
    fn changes_lie_over_what_is_generated() {
        let mut store =
            Store::new(&SEED, Layout::new(&SEED, &[2, 2], 20), Placement::Hash, 2).expect("sound");
        let dir = store.layout().leaf_ref(3).ino;
        let kept = store.kept();
        assert_eq!(listing(&store, dir, 7).len(), 20);
        store.apply(&put(dir, b"new", 5));
        store.apply(&put(dir, b"f000003", 6));
        let mut batch = StoreBatch::new(dir, None);
        for name in [&b"f000004"[..], b"gone"] {
            batch.delete(StoreKey::head(dir, name_hash(&SEED, name), name));
        }
        store.apply(&batch);
        assert_eq!(store.kept(), kept + 3, "what never was takes nothing");
        for entries_max in [1, 3, 100] {
            let names = listing(&store, dir, entries_max);
            assert_eq!(names.len(), 20);
            assert!(names.iter().all(|name| **name != *b"f000004") && names.contains(&b"new"[..].into()));
            assert!(names.is_sorted_by_key(|name| name_hash(&SEED, name)));
        }
        let at = |name: &[u8]| {
            let request = LoadRequest::Dentry { dir, hash: name_hash(&SEED, name), name: name.into() };
            let Loaded::Value(value) = store.load(&request) else { panic!("no value") };
            value.map(|value| DentryValue::decode(&value).expect("decodes").ino().0)
        };
        assert_eq!((at(b"f000003"), at(b"f000004"), at(b"new")), (Some(6), None, Some(5)));
        let Loaded::Dentries { entries, .. } =
            store.load(&LoadRequest::ByHash { dir, hash: name_hash(&SEED, b"f000005") })
        else {
            panic!("no names")
        };
        assert_eq!(entries.len(), 1);
    }

    #[test]
    fn root_lists_what_is_generated_and_its_header_counts_it() {
        let store = Store::new(&SEED, Layout::new(&SEED, &[30, 2], 1), Placement::Subtree, 1).expect("sound");
        assert_eq!(listing(&store, Ino::ROOT, 9).len(), 30);
        let header = LoadRequest::Header { dir: Ino::ROOT, frag: Frag::WHOLE };
        let Loaded::Value(Some(header)) = store.load(&header) else { panic!("no header") };
        assert_eq!(FragHeader::decode(&header).map(|header| (header.entries, header.subdirs)), Ok((30, 30)));
    }
}
