//! Sizes and bounds of the data store, validated once.
//!
//! Absent: where they come from (configuration is the driver's).

/// The most bytes a packed file may have: what a journal record may carry.
pub const SMALL_FILE_BYTES_MAX: u32 = 65_536;

/// Bounds of one `DataFiles`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A segment is sealed when its next record would end beyond this. At most 64 MiB.
    pub segment_bytes: u64,
    /// Bytes of one block file; part of the disk format (kept in `data/state`).
    pub block_bytes: u64,
    /// Memory for content of small files that is in no segment yet.
    pub buffer_bytes: u64,
    /// Bytes written to a segment with one write.
    pub flush_bytes: u64,
    /// Open files kept.
    pub handles_max: usize,
    /// Nanoseconds since a segment lost a record after which compaction takes it for one that will not lose the rest of them soon.
    pub settle_ns: u64,
    /// An index checkpoint is due when this much was written to segments since the last one.
    pub index_tail_bytes: u64,
    /// Page cache of files larger than this is dropped behind reads and writes.
    pub data_cache_max_filesize: u64,
    /// Page cache of block files beyond this is dropped, oldest first.
    pub data_cache_limit: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            block_bytes: 4 << 20,
            buffer_bytes: 64 << 20,
            flush_bytes: 1 << 20,
            handles_max: 512,
            settle_ns: 3 * stdx::time::SECOND,
            index_tail_bytes: 256 << 20,
            data_cache_max_filesize: 1 << 30,
            data_cache_limit: 2 << 30,
        }
    }
}

impl Limits {
    /// So small that every bound is met in a short test: use with `small_file_bytes` <= 1024.
    #[must_use]
    pub fn tiny() -> Self {
        Self {
            segment_bytes: 16 << 10,
            block_bytes: 8 << 10,
            buffer_bytes: 8 << 10,
            flush_bytes: 2 << 10,
            handles_max: 4,
            settle_ns: 0,
            index_tail_bytes: 24 << 10,
            data_cache_max_filesize: 64 << 10,
            data_cache_limit: 64 << 10,
        }
    }

    /// The nearest limits that can work with small files of this size.
    pub(super) fn checked(mut self, small_file_bytes: u32) -> Self {
        let record = super::record::record_bytes(small_file_bytes);
        self.segment_bytes = self.segment_bytes.min(64 << 20).max(record * 4 + 4096) / 4096 * 4096;
        self.block_bytes = self.block_bytes.max(u64::from(small_file_bytes)).max(4096).div_ceil(4096) * 4096;
        self.flush_bytes = self.flush_bytes.clamp(1, self.segment_bytes);
        self.handles_max = self.handles_max.max(1);
        self
    }
}
