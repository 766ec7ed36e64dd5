//! Executing a `DataOp`: which call answers it, and which of them only touch memory, so that nobody need wait for a worker.
//!
//! Absent: what the calls do.

use super::central::Form;
use super::locks::guard;
use super::{DataFiles, copy, fill};
use crate::disk::Disk;
use proto::FileId;
use proto::storeio::{Buffer, Cut, DataDone, DataOp, StoreError};

impl<D: Disk> DataFiles<D> {
    /// Executes one operation, blocking.
    ///
    /// # Errors
    /// `NoSpace` (nothing changed), `Damaged`, `Io`, `Poisoned`.
    pub fn run(&self, op: &DataOp) -> Result<DataDone, StoreError> {
        if !op.only_reads() {
            self.check_poison()?;
            self.admit(op)?;
        }
        match op {
            DataOp::Write { file, cut, offset, data } => {
                Ok(DataDone::Count(self.write(*file, *cut, *offset, data.bytes())?))
            }
            DataOp::Truncate { file, cut } => self.truncate(*file, *cut).map(|()| DataDone::Done),
            DataOp::Zero { file, cut, offset, len, punch } => {
                self.zero(*file, *cut, *offset, *len, *punch)?;
                Ok(DataDone::Count(*len))
            }
            DataOp::Allocate { file, cut, offset, len } => {
                self.allocate(*file, *cut, *offset, *len).map(|()| DataDone::Done)
            }
            DataOp::Copy { source, source_cut, source_offset, target, target_cut, target_offset, len } => {
                let from = copy::Side { file: *source, cut: *source_cut, offset: *source_offset };
                let to = copy::Side { file: *target, cut: *target_cut, offset: *target_offset };
                Ok(DataDone::Count(self.copy(from, to, *len)?))
            }
            DataOp::Sync { file } => self.sync_file(*file),
            DataOp::SyncAll => self.sync_all().map(|()| DataDone::Done),
            DataOp::Redo { file, truncate_seq, write_seq, data } => {
                self.redo(*file, *truncate_seq, *write_seq, data).map(|()| DataDone::Done)
            }
            DataOp::Remove { file } => self.remove(*file).map(|()| DataDone::Done),
            DataOp::Read { file, cut, offset, len, into } => {
                let read = |out: &mut [u8]| self.read_into(*file, *cut, *offset, out);
                fill(*len as usize, into.as_ref(), read).map(DataDone::Bytes)
            }
            DataOp::Seek { file, cut, offset, size, hole } => {
                Ok(DataDone::Offset(self.seek(*file, *cut, *offset, *size, *hole)?))
            }
            DataOp::StatFs => Ok(DataDone::Space(self.disk.space()?)),
        }
    }

    /// Runs the operation if that only touches memory.
    pub fn run_quick(&self, op: &DataOp) -> Option<Result<DataDone, StoreError>> {
        // What comes one after another, the removal of a tree or what is done to many small files: the look and the deed are one.
        match op {
            DataOp::Remove { file } => self.remove_quick(*file),
            DataOp::Read { file, cut, offset, len, into } => {
                self.read_quick((*file, *cut), *offset, *len, into.as_ref())
            }
            DataOp::Write { file, cut, offset, data } => {
                self.write_quick(op, (*file, *cut), *offset, data.bytes())
            }
            DataOp::Truncate { .. }
            | DataOp::Zero { .. }
            | DataOp::Allocate { .. }
            | DataOp::Copy { .. }
            | DataOp::Seek { .. }
            | DataOp::Sync { .. }
            | DataOp::SyncAll
            | DataOp::Redo { .. }
            | DataOp::StatFs => self.is_quick(op).then(|| self.run(op)),
        }
    }

    fn read_quick(
        &self,
        (file, cut): (FileId, Cut),
        offset: u64,
        len: u32,
        into: Option<&Buffer>,
    ) -> Option<Result<DataDone, StoreError>> {
        // Held while the bytes are copied out: a write meanwhile would have to copy the content first.
        let _guard = self.locks.try_lock(file)?;
        let content = guard(&self.central).content_in_memory(file)?.cut(cut);
        let read = |out: &mut [u8]| content.read(offset, out);
        Some(fill(len as usize, into, read).map(DataDone::Bytes))
    }

    fn write_quick(
        &self,
        op: &DataOp,
        (file, cut): (FileId, Cut),
        offset: u64,
        bytes: &[u8],
    ) -> Option<Result<DataDone, StoreError>> {
        let end = offset.checked_add(bytes.len() as u64)?;
        if end > u64::from(self.small_file_bytes) || bytes.is_empty() {
            return None;
        }
        let _guard = self.locks.try_lock(file)?;
        let mut central = guard(&self.central);
        let (form, held) = central.small_form(file, cut)?;
        let replaces = !matches!(form, Form::Packed(_)) || (offset == 0 && end >= held);
        if !replaces || central.shortage(end.max(held)).is_some() {
            return None;
        }
        if let Err(error) = self.check_poison().and_then(|()| self.admit(op)) {
            return Some(Err(error));
        }
        central.write_content((file, form), cut, offset as usize, bytes, Vec::new());
        Some(Ok(DataDone::Count(bytes.len() as u64)))
    }

    fn remove_quick(&self, file: FileId) -> Option<Result<DataDone, StoreError>> {
        if let Err(error) = self.check_poison() {
            return Some(Err(error));
        }
        let _guard = self.locks.try_lock(file)?;
        let mut central = guard(&self.central);
        if central.wants_flush() || central.large.contains_key(&file) {
            return None;
        }
        central.drop_buffer(file);
        central.bury(file);
        Some(Ok(DataDone::Done))
    }

    /// Whether `run` will only touch memory. True answers hold until another operation runs. What looks and does in one finds
    /// that out itself.
    fn is_quick(&self, op: &DataOp) -> bool {
        let file = match *op {
            DataOp::Truncate { file, .. }
            | DataOp::Zero { file, .. }
            | DataOp::Seek { file, .. }
            | DataOp::Sync { file }
            | DataOp::Redo { file, .. } => file,
            DataOp::Write { .. }
            | DataOp::Read { .. }
            | DataOp::Allocate { .. }
            | DataOp::Copy { .. }
            | DataOp::Remove { .. }
            | DataOp::SyncAll
            | DataOp::StatFs => return false,
        };
        if self.locks.is_busy(file) {
            return false;
        }
        let central = guard(&self.central);
        let form = central.form(file);
        let in_memory = matches!(form, Form::Absent | Form::Buffered);
        match op {
            DataOp::Seek { .. } | DataOp::Sync { .. } => in_memory,
            DataOp::Zero { .. } => form == Form::Absent,
            DataOp::Truncate { cut, .. } => match form {
                Form::Large => false,
                Form::Absent | Form::Buffered => true,
                Form::Packed(entry) => cut.size == 0 || cut.size >= u64::from(entry.place.len),
            },
            DataOp::Redo { data, .. } => in_memory && central.shortage(data.len() as u64).is_none(),
            DataOp::Write { .. }
            | DataOp::Read { .. }
            | DataOp::Allocate { .. }
            | DataOp::Copy { .. }
            | DataOp::Remove { .. }
            | DataOp::SyncAll
            | DataOp::StatFs => false,
        }
    }
}
