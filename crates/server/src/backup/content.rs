//! Bodies of a backup's chunks: metadata records, pieces of file data, the trailer.
//!
//! Data follows from metadata: every regular file's inode record leads to its data, read under the
//! file's own cut, so what nobody refers to is not carried along.
//!
//! Absent: framing (`container.rs`).

use super::BackupError;
use super::container::{CHUNK_BYTES_MAX, ChunkWriter, Kind};
use crate::parts::DataIo;
use proto::dentry::DentryValue;
use proto::storeio::{Cut, DataDone, DataOp, StoreError, Table};
use proto::{DecodeError, FileId, FileKind, Reader, Writer};
use std::io::Write;

/// Records gathered into one chunk.
const RECORDS_BYTES: usize = 512 << 10;
/// Data of one chunk.
const PIECE_BYTES: u64 = 1 << 20;

/// What a backup holds, for its trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) files: u64,
    pub(super) data_bytes: u64,
    pub(super) chunks: u64,
}

impl Counts {
    pub(super) fn encode(&self, w: &mut Writer) {
        w.u64(self.records).u64(self.files).u64(self.data_bytes).u64(self.chunks);
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let counts = Self { records: r.u64()?, files: r.u64()?, data_bytes: r.u64()?, chunks: r.u64()? };
        r.finish()?;
        Ok(counts)
    }
}

/// One metadata record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) table: Table,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl<'a> Record<'a> {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.table as u8).bytes(self.key).bytes(self.value);
    }

    pub(super) fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let table = match r.u8()? {
            1 => Table::Dentry,
            2 => Table::Backptr,
            3 => Table::System,
            tag => return Err(DecodeError::UnknownTag { what: "table", tag: u64::from(tag) }),
        };
        Ok(Self { table, key: r.bytes(CHUNK_BYTES_MAX)?, value: r.bytes(CHUNK_BYTES_MAX)? })
    }
}

/// A piece of a file's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub(super) file: FileId,
    pub(super) cut: Cut,
    pub(super) offset: u64,
    pub(super) data: &'a [u8],
}

impl<'a> Piece<'a> {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.file.ino.0).u32(self.file.generation);
        w.u32(self.cut.seq).u64(self.cut.size).u64(self.offset).raw(self.data);
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let file = FileId { ino: proto::Ino(r.u64()?), generation: r.u32()? };
        let cut = Cut { seq: r.u32()?, size: r.u64()? };
        Ok(Self { file, cut, offset: r.u64()?, data: r.rest() })
    }
}

/// Writes the content of a backup.
pub(super) struct Content<'a, W> {
    chunks: ChunkWriter<W>,
    data: &'a dyn DataIo,
    records: Writer,
    counts: Counts,
}

impl<'a, W: Write> Content<'a, W> {
    pub(super) const fn new(chunks: ChunkWriter<W>, data: &'a dyn DataIo) -> Self {
        let counts = Counts { records: 0, files: 0, data_bytes: 0, chunks: 0 };
        Self { chunks, data, records: Writer::new(), counts }
    }

    /// Adds a record, and the data of the file it describes.
    pub(super) fn record(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), BackupError> {
        Record { table, key, value }.encode(&mut self.records);
        self.counts.records += 1;
        if self.records.len() >= RECORDS_BYTES {
            self.flush()?;
        }
        // Headers share the table with dentries; their keys tell.
        let is_dentry =
            matches!(proto::storeio::StoreKey::decode(table, key)?, proto::storeio::StoreKey::Dentry { .. });
        if is_dentry && let DentryValue::Primary(inode) = DentryValue::decode(value)? {
            let core = &inode.core;
            if FileKind::of_mode(core.mode) == Some(FileKind::Regular) && core.size > 0 {
                let file = FileId { ino: core.ino, generation: core.generation };
                let cut = Cut { seq: core.truncate_seq, size: core.truncate_size };
                self.file(file, cut, core.size)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        if !self.records.is_empty() {
            self.chunks.put(Kind::Records, &self.records.0)?;
            self.records.0.clear();
        }
        Ok(())
    }

    /// Copies the data of a file, without its holes.
    fn file(&mut self, file: FileId, cut: Cut, size: u64) -> Result<(), BackupError> {
        let (mut offset, mut any) = (0, false);
        while let Some(start) = self.seek(file, cut, offset, size, false)? {
            let end = self.seek(file, cut, start, size, true)?.unwrap_or(size).min(size);
            offset = start;
            while offset < end {
                let len = (end - offset).min(PIECE_BYTES) as u32;
                let DataDone::Bytes(data) =
                    self.data.run(&DataOp::Read { file, cut, offset, len, into: None })?
                else {
                    return Err(unexpected("read"));
                };
                let mut body = Writer::new();
                Piece { file, cut, offset, data: data.bytes() }.encode(&mut body);
                self.chunks.put(Kind::Data, &body.0)?;
                offset += u64::from(len);
                self.counts.data_bytes += u64::from(len);
                any = true;
            }
        }
        self.counts.files += u64::from(any);
        Ok(())
    }

    fn seek(
        &self,
        file: FileId,
        cut: Cut,
        offset: u64,
        size: u64,
        hole: bool,
    ) -> Result<Option<u64>, BackupError> {
        if offset >= size {
            return Ok(None);
        }
        let done = self.data.run(&DataOp::Seek { file, cut, offset, size, hole })?;
        let DataDone::Offset(at) = done else { return Err(unexpected("seek")) };
        Ok(at)
    }

    /// Writes the trailer; returns the counts and the bytes written.
    pub(super) fn end(mut self) -> Result<(Counts, u64), BackupError> {
        self.flush()?;
        self.counts.chunks = self.chunks.count();
        let mut trailer = Writer::new();
        self.counts.encode(&mut trailer);
        self.chunks.put(Kind::Trailer, &trailer.0)?;
        let bytes = self.chunks.bytes();
        self.chunks.end().flush()?;
        Ok((self.counts, bytes))
    }
}

/// The data store answered another question than the one asked.
fn unexpected(what: &str) -> BackupError {
    let what = format!("{what} was answered by something else");
    BackupError::Store(StoreError::Damaged { at: "data".into(), what })
}
