//! A handle of a simulated file: what each call does to it, and when it fails.
//!
//! Absent: names and crashes (`disk_sim.rs`), what a file holds (`content.rs`).

use super::content::{PAGE, Step, after_crash};
use super::{DiskFault, EIO, ESTALE, SimFile, State, io};
use crate::disk::DiskFile;
use proto::storeio::StoreError;

impl SimFile {
    /// Runs `f` on the state and this file, if the handle is of this life.
    fn with<T>(&self, f: impl FnOnce(&mut State) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut state = self.disk.state();
        if state.life != self.life || !state.nodes.contains_key(&self.node) {
            return Err(io(&self.name, ESTALE));
        }
        f(&mut state)
    }

    /// Applies one step to the file as it reads now and keeps it until the next sync.
    fn step(&self, state: &mut State, step: Step) -> Result<(), StoreError> {
        let Some(node) = state.nodes.get(&self.node) else { return Err(io(&self.name, ESTALE)) };
        let new_pages = node.current.new_pages(&step);
        state.space_for(new_pages)?;
        let Some(node) = state.nodes.get_mut(&self.node) else { return Err(io(&self.name, ESTALE)) };
        let before = node.current.pages();
        node.current.apply(&step);
        let after = node.current.pages();
        node.steps.push(step);
        state.used = state.used + after * PAGE - before * PAGE;
        Ok(())
    }

    /// A write that meets a full disk leaves what found room.
    fn write_what_fits(&self, state: &mut State, bytes: &[u8], offset: u64) {
        let mut len = bytes.len();
        while len > 0 {
            len = (offset + len as u64 - 1) as usize / PAGE as usize * PAGE as usize;
            len = len.saturating_sub(offset as usize);
            if len > 0 && self.step(state, Step::write(offset, &bytes[..len])).is_ok() {
                return;
            }
        }
    }

    fn write(&self, state: &mut State, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        let dies = state.burn(&self.name).is_err();
        let fails = dies || state.faulty(DiskFault::Write, &self.name);
        let len = if fails { state.prng.index(bytes.len() + 1) } else { bytes.len() };
        state.counts.writes += 1;
        if len > 0
            && let Err(error) = self.step(state, Step::write(offset, &bytes[..len]))
        {
            self.write_what_fits(state, &bytes[..len], offset);
            return Err(error);
        }
        if fails { Err(io(&self.name, EIO)) } else { Ok(()) }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life != self.life {
            return;
        }
        if let Some(node) = state.nodes.get_mut(&self.node) {
            node.handles -= 1;
            state.release(self.node);
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, StoreError> {
        self.with(|state| {
            state.alive(&self.name)?;
            state.counts.reads += 1;
            if state.faulty(DiskFault::Read, &self.name) {
                return Err(io(&self.name, EIO));
            }
            Ok(state.nodes.get(&self.node).map_or(0, |node| node.current.read(buf, offset)))
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        let result = self.with(|state| {
            state.alive(&self.name)?;
            self.write(state, bytes, offset)
        });
        self.disk.others();
        result
    }

    fn sync_data(&self) -> Result<(), StoreError> {
        let result = self.with(|state| {
            let dies = state.burn(&self.name).is_err();
            state.counts.syncs += 1;
            if dies {
                return Err(io(&self.name, EIO));
            }
            let fails = state.faulty(DiskFault::Sync, &self.name);
            let Some(node) = state.nodes.get_mut(&self.node) else { return Err(io(&self.name, ESTALE)) };
            let steps = std::mem::take(&mut node.steps);
            if fails {
                // Linux marks the pages clean after reporting the error once: what did not reach the
                // medium never will, although it still reads back.
                node.durable = after_crash(&node.durable, &steps, &mut state.prng);
                return Err(io(&self.name, EIO));
            }
            node.durable.catch_up(&node.current, &steps);
            Ok(())
        });
        self.disk.others();
        result
    }

    fn set_len(&self, len: u64) -> Result<(), StoreError> {
        self.with(|state| {
            state.burn(&self.name)?;
            let old = state.nodes.get(&self.node).map_or(0, |node| node.current.len());
            self.step(state, Step::Len { old, len })
        })
    }

    fn size(&self) -> Result<u64, StoreError> {
        self.with(|state| {
            state.alive(&self.name)?;
            Ok(state.nodes.get(&self.node).map_or(0, |node| node.current.len()))
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.with(|state| {
            state.burn(&self.name)?;
            self.step(state, Step::Allocate { offset, len })
        })
    }

    fn punch(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.with(|state| {
            state.burn(&self.name)?;
            self.step(state, Step::Punch { offset, len })
        })
    }

    fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        self.with(|state| {
            state.alive(&self.name)?;
            Ok(state.nodes.get(&self.node).and_then(|node| node.current.seek(offset, hole)))
        })
    }

    fn drop_cache(&self, _offset: u64, _len: u64) {
        self.disk.state().counts.drops += 1;
    }

    fn prefetch(&self, _offset: u64, _len: u64) {
        self.disk.state().counts.prefetches += 1;
    }

    /// A failure is told once, here; what it lost looks clean, and later syncs succeed without it.
    fn wait_written(&self) -> Result<(), StoreError> {
        self.with(|state| {
            state.burn(&self.name)?;
            state.counts.write_outs += 1;
            if !state.faulty(DiskFault::Sync, &self.name) {
                return Ok(());
            }
            let Some(node) = state.nodes.get_mut(&self.node) else { return Err(io(&self.name, ESTALE)) };
            let steps = std::mem::take(&mut node.steps);
            node.durable = after_crash(&node.durable, &steps, &mut state.prng);
            Err(io(&self.name, EIO))
        })
    }
}
