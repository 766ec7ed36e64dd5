//! Block files: names, headers, lengths.
//!
//! Absent: their content.

use super::FileId;
use crate::bytes::{Bytes, Out};
use crate::finding::{Found, Kind};
use crate::folder::{FsckError, io_error};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use stdx::crc32c;
use stdx::hash::mix64;

/// Bytes before the data.
const HEADER_BYTES: u64 = 4096;
const SECOND_COPY: usize = 512;
const COPY_BYTES: usize = 40;
const MAGIC: &[u8; 8] = b"PANDOBLK";
const FORMAT: u16 = 1;

/// One block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) number: u64,
    /// The truncation it has seen; `None`: a crash left it blank, or it is damaged.
    pub(super) truncate: Option<u32>,
    /// Bytes of data.
    pub(super) len: u64,
}

/// The path of a block file below `data/`.
pub(super) fn path((ino, generation): FileId, block: u64) -> String {
    format!("blk/{:02x}/{ino:016x}.{generation:x}.{block:x}", mix64(ino) & 0xFF)
}

fn parse(folder: u32, name: &str) -> Option<(FileId, u64)> {
    let mut parts = name.split('.');
    let ino = u64::from_str_radix(parts.next()?, 16).ok()?;
    let generation = u32::from_str_radix(parts.next()?, 16).ok()?;
    let block = u64::from_str_radix(parts.next()?, 16).ok()?;
    let file = (ino, generation);
    (path(file, block) == format!("blk/{folder:02x}/{name}")).then_some((file, block))
}

/// Lists and checks all block files.
pub(super) fn list(
    data: &Path,
    block_bytes: u64,
    found: &mut Found,
) -> Result<BTreeMap<FileId, Vec<Block>>, FsckError> {
    let mut files: BTreeMap<FileId, Vec<Block>> = BTreeMap::new();
    for folder in 0..256 {
        let dir = data.join(format!("blk/{folder:02x}"));
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(source) => return Err(FsckError::Io { path: dir, source }),
        };
        for entry in entries {
            let name = entry.map_err(io_error(&dir))?.file_name().to_string_lossy().into_owned();
            let place = || format!("data/blk/{folder:02x}/{name}");
            let Some((file, number)) = parse(folder, &name) else {
                // A block that was being made when the server died.
                if name.strip_suffix(".tmp").is_none_or(|name| parse(folder, name).is_none()) {
                    found.add(Kind::BlockInvalid, place(), "the name is of no block of this folder");
                }
                continue;
            };
            let path = dir.join(&name);
            let block = read(&path, file, number, block_bytes, &place, found).map_err(io_error(&path))?;
            files.entry(file).or_default().push(block);
        }
    }
    Ok(files)
}

fn read(
    path: &Path,
    file: FileId,
    number: u64,
    block_bytes: u64,
    place: &impl Fn() -> String,
    found: &mut Found,
) -> std::io::Result<Block> {
    let opened = File::open(path)?;
    let len = opened.metadata()?.len();
    let mut bytes = [0; SECOND_COPY + COPY_BYTES];
    let have = len.min(bytes.len() as u64) as usize;
    opened.read_exact_at(&mut bytes[..have], 0)?;
    let copies = [&bytes[..COPY_BYTES], &bytes[SECOND_COPY..]];
    let truncate = copies.iter().filter_map(|copy| read_copy(copy, file, number)).max();
    if truncate.is_none() && !copies.iter().any(|copy| copy.iter().all(|byte| *byte == 0)) {
        found.add(Kind::BlockHeaderDamaged, format!("{} at 0x0", place()), "");
    }
    let len = len.saturating_sub(HEADER_BYTES);
    let end = number.checked_mul(block_bytes).and_then(|begin| begin.checked_add(len));
    if len > block_bytes || end.is_none_or(|end| end >> 63 != 0) {
        found.add(Kind::BlockInvalid, place(), format!("{len} bytes at block {number:#x}"));
    }
    Ok(Block { number, truncate, len })
}

/// The truncation that one copy of the header tells of.
fn read_copy(bytes: &[u8], file: FileId, number: u64) -> Option<u32> {
    let truncate = Bytes(bytes.get(28..)?).u32()?;
    let mut out = Out::default();
    out.raw(MAGIC).u32(0).u16(FORMAT).u16(0).u64(file.0).u32(file.1).u32(truncate).u64(number);
    let crc = crc32c(&out.0[12..]);
    out.patch_u32(8, crc);
    (out.0 == bytes).then_some(truncate)
}
