//! Corrections of the data store: redone content and tombstones go to a new segment, the state file is
//! written anew.
//!
//! Absent: bringing back content that is damaged.

use super::segment::{encode_header, encode_record, name};
use super::state::{Mark, State};
use super::{Data, FileId, Seqs};
use crate::bytes::Out;
use crate::fix::DataFix;
use crate::folder::{FsckError, io_error, sync_dir};
use crate::journal::Redo;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A segment is not made longer.
const SEGMENT_BYTES: usize = 32 << 20;
/// Write sequences go on this far above all that were used.
const WRITE_STEP: u64 = 1 << 20;

/// Writes to a data store.
pub(crate) struct Mender {
    folder: PathBuf,
    state: State,
    next_segment: u32,
    records: Out,
}

impl Mender {
    pub(crate) fn new(data: &Data) -> Self {
        let next_segment = data.next_segment.max(1);
        let next_write = data.newest_write + WRITE_STEP;
        // Nothing is covered by an index any more; what is durable stays known as such.
        let marks = data.marks.iter().map(|mark| Mark { covered: 0, ..*mark }).collect();
        let state = State { index: 0, entries: 0, next_segment, next_write, marks, ..data.state.clone() };
        Self { folder: data.folder.clone(), state, next_segment, records: Out::default() }
    }

    /// Makes the content that the journal holds durable in the store, where the store has no newer one.
    pub(crate) fn redo(&mut self, data: &Data, redo: &BTreeMap<FileId, Redo>) -> Result<(), FsckError> {
        for (file, content) in redo {
            let seqs = (content.truncate, content.write);
            let packed = data.packed.get(file).is_some_and(|packed| packed.seqs >= seqs);
            let newer = |block: &super::Block| block.truncate.is_some_and(|seq| seq >= content.truncate);
            let blocks = data.blocks.get(file).is_some_and(|blocks| blocks.iter().any(newer));
            if !packed && !blocks {
                self.append(*file, seqs, Some(&content.data))?;
            }
            self.state.next_write = self.state.next_write.max(content.write + 1);
        }
        self.flush()
    }

    /// Carries out corrections.
    pub(crate) fn apply(&mut self, fixes: &[DataFix]) -> Result<(), FsckError> {
        for fix in fixes {
            match fix {
                DataFix::Bury { ino, generation, seqs } => self.append((*ino, *generation), *seqs, None)?,
                DataFix::Unlink { path } => self.unlink(path)?,
                DataFix::Header { segment } => self.header(*segment)?,
                DataFix::Rescan => {}
            }
        }
        self.flush()?;
        if fixes.iter().any(|fix| matches!(fix, DataFix::Rescan)) {
            self.state.write(&self.folder)?;
        }
        Ok(())
    }

    fn unlink(&self, path: &str) -> Result<(), FsckError> {
        let path = self.folder.join(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error(&path)(error)),
            _ => path.parent().map_or(Ok(()), sync_dir),
        }
    }

    fn header(&self, segment: u32) -> Result<(), FsckError> {
        let path = self.folder.join(name(segment));
        let file = File::options().write(true).open(&path).map_err(io_error(&path))?;
        let written = file.write_all_at(&encode_header(segment), 0).and_then(|()| file.sync_all());
        written.map_err(io_error(&path))
    }

    fn append(&mut self, file: FileId, seqs: Seqs, body: Option<&[u8]>) -> Result<(), FsckError> {
        if self.records.0.len() > SEGMENT_BYTES {
            self.flush()?;
        }
        if self.records.0.is_empty() {
            self.records.raw(&encode_header(self.next_segment));
        }
        let offset = self.records.0.len() as u64;
        encode_record(self.next_segment, offset, (file, seqs), body, &mut self.records);
        Ok(())
    }

    /// Writes what was gathered as a segment of its own. The state file need not know it: a segment
    /// above those it lists is read in full.
    fn flush(&mut self) -> Result<(), FsckError> {
        if self.records.0.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        let path = self.folder.join(name(self.next_segment));
        let bytes = std::mem::take(&mut self.records.0);
        let written = File::create_new(&path)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
        written.map_err(io_error(&path))?;
        self.next_segment += 1;
        sync_dir(&self.folder)
    }
}
