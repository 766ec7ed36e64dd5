//! A disk in memory that forgets what was not synced: the simulator's, and the tests' of everything
//! that lays out files. Seeded, so that one seed gives one history.
//!
//! What a crash may do: per file, metadata steps (lengths, cuts, punches) survive as a prefix of their
//! order; each 512-byte sector holds any of the contents it had since the last sync, independently of
//! its neighbours (so writes tear and reorder); each folder change not covered by `sync_folder` is kept
//! or lost on its own, except that a rename is whole. A failed sync leaves the disk as a crash would and
//! later syncs do not repair it, as on Linux.
//!
//! Absent: latency (the simulator delays whole operations), directories as objects.

mod content;
mod file;

use crate::disk::Disk;
use content::{Content, PAGE, Step};
use proto::storeio::{IoError, Space, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stdx::Prng;

const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOENT: i32 = 2;
const ESTALE: i32 = 116;

/// Which operations an injected error hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    Read,
    Write,
    Sync,
    /// Opening, and making: there is no descriptor.
    Open,
}

/// What the disk was asked for so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    pub reads: u64,
    pub writes: u64,
    pub syncs: u64,
    pub folder_syncs: u64,
    pub drops: u64,
    pub prefetches: u64,
    pub write_outs: u64,
    pub crashes: u64,
}

/// The disk. Clones are handles of one disk: the simulator keeps one to crash it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

/// An open file of a `SimDisk`; stale after a crash.
pub struct SimFile {
    disk: SimDisk,
    node: u64,
    life: u64,
    name: String,
}

struct State {
    prng: Prng,
    /// Grows with each crash; handles of an earlier life are stale.
    life: u64,
    nodes: BTreeMap<u64, Node>,
    next_node: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Folder changes not yet durable, in order; each is applied whole or not.
    pending: Vec<FolderChange>,
    capacity: u64,
    /// Bytes of the pages of files that have a name or a handle.
    used: u64,
    faults: Vec<Armed>,
    /// Mutating operations left until the power fails.
    fuse: Option<u64>,
    dead: bool,
    counts: DiskCounts,
    meanwhile: Option<Meanwhile>,
}

/// What others do while an operation of the disk takes its time.
type Meanwhile = Box<dyn FnMut() + Send>;

type FolderChange = Vec<(String, Option<u64>)>;

struct Armed {
    fault: DiskFault,
    prefix: String,
    left: u32,
}

#[derive(Default)]
struct Node {
    current: Content,
    durable: Content,
    /// Changes since the last sync, in order.
    steps: Vec<Step>,
    handles: u32,
    names: u32,
}

impl SimDisk {
    /// An empty disk without a capacity limit.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            prng: Prng::new(seed),
            life: 0,
            nodes: BTreeMap::new(),
            next_node: 1,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending: Vec::new(),
            capacity: u64::MAX,
            used: 0,
            faults: Vec::new(),
            fuse: None,
            dead: false,
            counts: DiskCounts::default(),
            meanwhile: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of another holder is that test's failure; the disk itself is whole between calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the bytes of all files together (in pages of 4 KiB); beyond it writes answer `NoSpace`.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Fails the next `count` operations of that kind on files whose name starts with `prefix`.
    pub fn inject(&self, fault: DiskFault, prefix: &str, count: u32) {
        self.state().faults.push(Armed { fault, prefix: prefix.into(), left: count });
    }

    /// Lets the power fail after `operations` more mutating operations (writes, lengths, syncs, folder
    /// changes): from then on everything fails until `crash`. The operation it dies in may be half done.
    pub fn die_after(&self, operations: u64) {
        self.state().fuse = Some(operations);
    }

    /// From now on `work` is called after each write and sync of a file, before its caller goes on: what other threads do in
    /// that time. It must not wait for what the caller holds. `None`: no longer.
    pub fn meanwhile(&self, work: Option<Meanwhile>) {
        self.state().meanwhile = work;
    }

    fn others(&self) {
        let Some(mut work) = self.state().meanwhile.take() else { return };
        work();
        self.state().meanwhile.get_or_insert(work);
    }

    /// Whether the power failed and `crash` was not called yet.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Power loss and restart: what was not synced survives by chance; all handles become stale.
    pub fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        state.life += 1;
        state.counts.crashes += 1;
        (state.dead, state.fuse) = (false, None);
        state.crash_names();
        for node in state.nodes.values_mut() {
            node.handles = 0;
            if !node.steps.is_empty() {
                node.durable = content::after_crash(&node.durable, &node.steps, &mut state.prng);
                node.steps.clear();
            }
            node.current = node.durable.clone();
        }
        state.recount();
    }

    /// The process dies, the machine does not: handles become stale, nothing is lost.
    pub fn kill(&self) {
        let mut state = self.state();
        state.life += 1;
        (state.dead, state.fuse) = (false, None);
        for node in state.nodes.values_mut() {
            node.handles = 0;
        }
        state.recount();
    }

    /// Flips one bit of a file, on the medium too. Whether there was such a bit.
    pub fn flip(&self, name: &str, bit: u64) -> bool {
        let mut state = self.state();
        let Some(node) = state.node_of(name) else { return false };
        let hit = node.current.flip(bit);
        node.durable.flip(bit);
        hit
    }

    /// The whole content of a file as it reads now.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let mut state = self.state();
        let node = state.node_of(name)?;
        let mut bytes = vec![0; node.current.len() as usize];
        node.current.read(&mut bytes, 0);
        Some(bytes)
    }

    /// All file names, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// What the disk was asked for so far.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.state().counts
    }
}

impl State {
    fn node_of(&mut self, name: &str) -> Option<&mut Node> {
        let id = *self.names.get(name)?;
        self.nodes.get_mut(&id)
    }

    /// Counts down to the planned power failure; `Err` when it is dead or dies with this operation.
    fn burn(&mut self, at: &str) -> Result<(), StoreError> {
        match &mut self.fuse {
            Some(0) => {
                self.dead = true;
                self.fuse = None;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.alive(at)
    }

    fn alive(&self, at: &str) -> Result<(), StoreError> {
        if self.dead { Err(io(at, EIO)) } else { Ok(()) }
    }

    fn faulty(&mut self, fault: DiskFault, name: &str) -> bool {
        let Some(at) =
            self.faults.iter().position(|armed| armed.fault == fault && name.starts_with(&armed.prefix))
        else {
            return false;
        };
        self.faults[at].left = self.faults[at].left.saturating_sub(1);
        if self.faults[at].left == 0 {
            self.faults.remove(at);
        }
        true
    }

    fn change_names(&mut self, change: FolderChange) {
        for (name, node) in &change {
            let old = match node {
                Some(node) => self.names.insert(name.clone(), *node),
                None => self.names.remove(name),
            };
            if let Some(node) = node.and_then(|node| self.nodes.get_mut(&node)) {
                node.names += 1;
            }
            if let Some(old) = old {
                if let Some(node) = self.nodes.get_mut(&old) {
                    node.names -= 1;
                }
                self.release(old);
            }
        }
        self.pending.push(change);
    }

    /// Gives the space of a file back that has neither name nor handle. Its content stays as long as
    /// a crash may bring the name back.
    fn release(&mut self, id: u64) {
        let Some(node) = self.nodes.get(&id) else { return };
        if node.names > 0 || node.handles > 0 {
            return;
        }
        self.used -= node.current.pages() * PAGE;
        let wanted = self.durable_names.values().any(|durable| *durable == id)
            || self.pending.iter().flatten().any(|(_, node)| *node == Some(id));
        if !wanted {
            self.nodes.remove(&id);
        }
    }

    /// Makes pending changes durable that touch `folder`, and earlier ones of the same names.
    fn sync_names(&mut self, folder: &str) {
        let mut touched: BTreeSet<String> = BTreeSet::new();
        let mut keep = Vec::new();
        let mut done = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            let hit = change.iter().any(|(name, _)| folder_of(name) == folder || touched.contains(name));
            if hit {
                touched.extend(change.iter().map(|(name, _)| name.clone()));
                done.push(change);
            } else {
                keep.push(change);
            }
        }
        keep.reverse();
        self.pending = keep;
        for (name, node) in done.into_iter().rev().flatten() {
            match node {
                Some(node) => self.durable_names.insert(name, node),
                None => self.durable_names.remove(&name),
            };
        }
        self.drop_unreachable();
    }

    fn crash_names(&mut self) {
        let mode = self.prng.below(4);
        for change in std::mem::take(&mut self.pending) {
            let kept = match mode {
                0 => false,
                1 => true,
                _ => self.prng.chance(1, 2),
            };
            if !kept {
                continue;
            }
            for (name, node) in change {
                match node {
                    Some(node) => self.durable_names.insert(name, node),
                    None => self.durable_names.remove(&name),
                };
            }
        }
        self.names = self.durable_names.clone();
    }

    /// After a crash: names, space and reachability from scratch.
    fn recount(&mut self) {
        for node in self.nodes.values_mut() {
            node.names = 0;
        }
        for id in self.names.values() {
            if let Some(node) = self.nodes.get_mut(id) {
                node.names += 1;
            }
        }
        self.drop_unreachable();
        self.used =
            self.nodes.values().filter(|node| node.names > 0).map(|node| node.current.pages() * PAGE).sum();
    }

    fn drop_unreachable(&mut self) {
        let wanted: BTreeSet<u64> = self
            .durable_names
            .values()
            .copied()
            .chain(self.pending.iter().flatten().filter_map(|(_, node)| *node))
            .collect();
        self.nodes.retain(|id, node| node.names > 0 || node.handles > 0 || wanted.contains(id));
    }

    fn space_for(&self, pages: u64) -> Result<(), StoreError> {
        let need = self.used.saturating_add(pages * PAGE);
        if pages > 0 && need > self.capacity { Err(StoreError::NoSpace) } else { Ok(()) }
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn open(&self, name: &str) -> Result<Option<SimFile>, StoreError> {
        let mut state = self.state();
        state.alive(name)?;
        if state.faulty(DiskFault::Open, name) {
            return Err(io(name, EMFILE));
        }
        let Some(id) = state.names.get(name).copied() else { return Ok(None) };
        let life = state.life;
        if let Some(node) = state.nodes.get_mut(&id) {
            node.handles += 1;
        }
        Ok(Some(SimFile { disk: self.clone(), node: id, life, name: name.into() }))
    }

    fn create(&self, name: &str) -> Result<SimFile, StoreError> {
        if let Some(file) = self.open(name)? {
            return Ok(file);
        }
        let mut state = self.state();
        state.burn(name)?;
        state.space_for(1)?;
        let id = state.next_node;
        state.next_node += 1;
        state.nodes.insert(id, Node { handles: 1, ..Node::default() });
        state.change_names(vec![(name.into(), Some(id))]);
        Ok(SimFile { disk: self.clone(), node: id, life: state.life, name: name.into() })
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        state.burn(name)?;
        if state.names.contains_key(name) {
            state.change_names(vec![(name.into(), None)]);
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        state.burn(from)?;
        let Some(id) = state.names.get(from).copied() else { return Err(io(from, ENOENT)) };
        if from != to {
            // The new name first, so that the file is never without one.
            state.change_names(vec![(to.into(), Some(id)), (from.into(), None)]);
        }
        Ok(())
    }

    fn exchange(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        let (Some(new), Some(old)) = (state.names.get(from).copied(), state.names.get(to).copied()) else {
            drop(state);
            return self.rename(from, to);
        };
        state.burn(from)?;
        // Its space stays while it is between two names.
        let held = |state: &mut State, by: i8| {
            if let Some(node) = state.nodes.get_mut(&old) {
                node.handles = node.handles.saturating_add_signed(by.into());
            }
        };
        held(&mut state, 1);
        state.change_names(vec![(to.into(), Some(new)), (from.into(), Some(old))]);
        held(&mut state, -1);
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        state.alive(folder)?;
        let inside = state.names.keys().filter(|name| folder_of(name) == folder);
        Ok(inside.map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()).collect())
    }

    fn sync_folder(&self, folder: &str) -> Result<(), StoreError> {
        let mut state = self.state();
        state.burn(folder)?;
        state.counts.folder_syncs += 1;
        if state.faulty(DiskFault::Open, folder) {
            return Err(io(folder, EMFILE));
        }
        if state.faulty(DiskFault::Sync, folder) {
            return Err(io(folder, EIO));
        }
        state.sync_names(folder.trim_end_matches('/'));
        Ok(())
    }

    fn space(&self) -> Result<Space, StoreError> {
        let state = self.state();
        state.alive("")?;
        let total = state.capacity.min(1 << 50);
        let free = total.saturating_sub(state.used);
        Ok(Space { total, free, available: free })
    }
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn io(at: &str, errno: i32) -> StoreError {
    StoreError::Io { at: at.into(), source: IoError(errno) }
}

#[cfg(test)]
mod tests;
