//! The file-system record: what a data folder says about itself. Small, checksummed, written whole.
//!
//! Absent: the incarnation (`pando.incarnation`), and anything that changes while the file system runs; the epoch changes with a
//! restore only.

use crate::codec::{DecodeError, Reader, Writer};
use stdx::crc32c;
use stdx::hash::HashSeed;

/// The first bytes of the record.
pub const MAGIC: &[u8; 8] = b"PandoFS\n";
/// The format this version writes, and the newest it reads.
pub const FORMAT: u32 = 1;
/// Hash function number 1: SipHash-1-3 with a 128-bit key.
pub const HASH_SIPHASH_1_3: u8 = 1;
/// `compat`: the folder `data/` carries the file system's mark, so that one that is gone is not taken for an empty one.
pub const COMPAT_DATA_MARKED: u64 = 1;
/// Incompatible feature: sessions may have flags and numbers delegated to them (FORMAT.md, mutations 32 and 33).
pub const INCOMPAT_SESSIONS: u64 = 1;
/// Incompatible feature: there may be ranks above 0, with journals in folders of their own and sessions under keys of their own. Set
/// before the first such thing is made.
pub const INCOMPAT_RANKS: u64 = 2;
/// Every incompatible feature that this version knows.
pub const INCOMPAT_KNOWN: u64 = INCOMPAT_SESSIONS | INCOMPAT_RANKS;

/// What a data folder says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsRecord {
    pub format: u32,
    /// Unknown bits: harmless.
    pub compat: u64,
    /// Unknown bits: read only. This version does not open such a folder at all.
    pub ro_compat: u64,
    /// Unknown bits: refuse.
    pub incompat: u64,
    pub fsid: [u8; 16],
    pub name: String,
    pub hash_function: u8,
    pub hash_seed: HashSeed,
    /// Number of LMDB environments metadata is spread over; fixed at format.
    pub environments: u16,
    /// Files up to this many bytes are one packed object.
    pub small_file_bytes: u32,
    /// Raised by a restore from backup: seeds generations, skips counters ahead.
    pub epoch: u32,
    /// Where metadata, journal and data lie, when not in the folder itself.
    pub meta_dir: String,
    pub journal_dir: String,
    pub data_dir: String,
    /// Set when `format` finished; a record without it is a half-formatted folder.
    pub complete: bool,
}

impl FsRecord {
    /// The whole file's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.raw(MAGIC).u32(self.format).u32(0);
        w.u64(self.compat).u64(self.ro_compat).u64(self.incompat);
        w.raw(&self.fsid).bytes(self.name.as_bytes());
        w.u8(self.hash_function).raw(&self.hash_seed.0);
        w.u16(self.environments).u32(self.small_file_bytes).u32(self.epoch);
        for dir in [&self.meta_dir, &self.journal_dir, &self.data_dir] {
            w.bytes(dir.as_bytes());
        }
        w.bool(self.complete);
        let crc = crc32c(&w.0[16..]);
        w.patch_u32(12, crc);
        w.0
    }

    /// Reads a record. The format number is read before the checksum, so that a folder of a later
    /// format says so.
    ///
    /// # Errors
    /// `Invalid` without the magic or with format 0, `TooNew` for a later format, `Checksum` for damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.raw(8)? != MAGIC {
            return Err(DecodeError::Invalid { what: "file-system record" });
        }
        let (format, crc) = (r.u32()?, r.u32()?);
        if format > FORMAT {
            return Err(DecodeError::TooNew { found: format, supported: FORMAT });
        }
        // No version wrote it, and the checksum does not cover it.
        if format == 0 {
            return Err(DecodeError::Invalid { what: "format number" });
        }
        if crc32c(r.rest()) != crc {
            return Err(DecodeError::Checksum);
        }
        let (compat, ro_compat, incompat) = (r.u64()?, r.u64()?, r.u64()?);
        let fsid = take16(&mut r)?;
        let name = text(&mut r)?;
        let hash_function = r.u8()?;
        let hash_seed = HashSeed(take16(&mut r)?);
        let (environments, small_file_bytes, epoch) = (r.u16()?, r.u32()?, r.u32()?);
        let (meta_dir, journal_dir, data_dir) = (text(&mut r)?, text(&mut r)?, text(&mut r)?);
        let complete = r.bool()?;
        if environments == 0 || hash_function != HASH_SIPHASH_1_3 {
            return Err(DecodeError::Invalid { what: "file-system record field" });
        }
        Ok(Self {
            format,
            compat,
            ro_compat,
            incompat,
            fsid,
            name,
            hash_function,
            hash_seed,
            environments,
            small_file_bytes,
            epoch,
            meta_dir,
            journal_dir,
            data_dir,
            complete,
        })
    }
}

fn take16(r: &mut Reader<'_>) -> Result<[u8; 16], DecodeError> {
    r.raw(16)?.try_into().map_err(|_| DecodeError::Invalid { what: "16 bytes" })
}

fn text(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    String::from_utf8(r.bytes(4096)?.to_vec()).map_err(|_| DecodeError::Invalid { what: "text" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FsRecord {
        FsRecord {
            format: FORMAT,
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            fsid: [3; 16],
            name: "pandofs".into(),
            hash_function: HASH_SIPHASH_1_3,
            hash_seed: HashSeed([9; 16]),
            environments: 16,
            small_file_bytes: 65_536,
            epoch: 0,
            meta_dir: String::new(),
            journal_dir: String::new(),
            data_dir: "/elsewhere".into(),
            complete: true,
        }
    }

    #[test]
    fn survives_and_any_flipped_bit_is_found() {
        let bytes = sample().encode();
        assert_eq!(FsRecord::decode(&bytes), Ok(sample()));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let read = FsRecord::decode(&bad);
            assert!(read.is_err(), "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn a_later_format_says_so() {
        let bytes = FsRecord { format: 3, ..sample() }.encode();
        assert_eq!(FsRecord::decode(&bytes), Err(DecodeError::TooNew { found: 3, supported: 1 }));
    }
}
