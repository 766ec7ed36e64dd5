//! Opening and using a data store whose files were damaged: damage is named, and no file ever reads as bytes of another.
//!
//! Absent: repair; crashes (crate `store` and the simulator).

use crate::class::class;
use crate::damage::{self, Damaged, Files, Rules, disk_of, files_of};
use crate::repair;
use crate::target::{Target, Verdict};
use proto::storeio::{Cut, DataOp, Payload, StoreError};
use proto::{FileId, Ino};
use std::sync::OnceLock;
use stdx::hash::mix64;
use store::SimDisk;
use store::data::{DataFiles, Limits};

pub(super) const TARGET: Target =
    Target { name: "data-recovery", execute: recover, repair: None, seeds: damage::seeds };

const SMALL_BYTES: u32 = 1024;
const SMALL_FILES: u64 = 44;
const FILES: u64 = 47;
const RULES: Rules = Rules {
    strangers: &[
        "data/seg-00000001",
        "data/seg-00000009",
        "data/seg-ffffffff",
        "data/seg-x",
        "data/index-00000001",
        "data/index-00000002",
        "data/index-ffffffff",
        "data/state.tmp",
        "data/blk/00/0000000000001001.1.0",
        "data/blk/00/strange.tmp",
    ],
    forge: repair::data_file,
};

fn file(number: u64) -> FileId {
    FileId { ino: Ino(4096 + number), generation: 1 }
}

/// Eight bytes that no other file has.
fn word(number: u64) -> [u8; 8] {
    mix64(number + 1).to_le_bytes()
}

fn content(number: u64) -> Vec<u8> {
    let words = if number < SMALL_FILES { 20 + number as usize * 2 } else { 2200 };
    word(number).repeat(words)
}

fn open(disk: &SimDisk) -> Result<DataFiles<SimDisk>, StoreError> {
    DataFiles::open(disk.clone(), SMALL_BYTES, Limits::tiny())
}

fn write(store: &DataFiles<SimDisk>, number: u64) -> Result<(), StoreError> {
    let data = Payload::Owned(content(number));
    store.run(&DataOp::Write { file: file(number), cut: Cut::default(), offset: 0, data }).map(|_| ())
}

/// Small files with an index file behind most of them, large files, removed ones; everything synced.
fn build() -> Result<Files, StoreError> {
    let disk = SimDisk::new(1);
    let store = open(&disk)?;
    (0..SMALL_FILES - 6).chain([SMALL_FILES + 1]).try_for_each(|number| write(&store, number))?;
    store.run(&DataOp::SyncAll)?;
    while store.background_step(1 << 16)? {}
    (SMALL_FILES - 6..FILES).chain([FILES + 1]).try_for_each(|number| write(&store, number))?;
    (0..4).try_for_each(|number| write(&store, number))?;
    store.run(&DataOp::Remove { file: file(FILES + 1) })?;
    store.run(&DataOp::SyncAll)?;
    drop(store);
    Ok(files_of(&disk))
}

fn template() -> Result<&'static Files, String> {
    static TEMPLATE: OnceLock<Result<Files, StoreError>> = OnceLock::new();
    TEMPLATE.get_or_init(build).as_ref().map_err(|error| format!("no data to damage: {error}"))
}

fn recover(script: &[u8]) -> Verdict {
    let original = template()?;
    let damaged = damage::apply(script, original, RULES);
    let disk = disk_of(&damaged.files)?;
    let store = match open(&disk) {
        Ok(store) => store,
        Err(error @ StoreError::Damaged { .. }) => {
            if files_of(&disk) != damaged.files {
                let now = Damaged { files: files_of(&disk), ..damaged.clone() };
                return Err(format!(
                    "a disk with damage is changed by opening it{}",
                    now.differences(&damaged.files)
                ));
            }
            return rebuild(original, &damaged, &disk, &error);
        }
        Err(error) if damaged.forged => return Ok(class("refused", &error)),
        Err(error) => return Err(format!("{error:?} is no name for damage")),
    };
    let refused = check(original, &damaged, &store, Lost::Never)
        .map_err(|what| what + &damaged.differences(original))?;
    use_it(&damaged, &store)?;
    drop(store);
    disk.crash();
    match open(&disk) {
        Ok(store) => {
            check(original, &damaged, &store, Lost::Never).map(|_| format!("read all but {refused}"))
        }
        Err(StoreError::Damaged { .. }) => Ok(format!("read all but {refused}, then refused")),
        Err(error) if damaged.forged => Ok(class("then refused", &error)),
        Err(error) => Err(format!("after use: {error:?}")),
    }
}

/// A store opened for repair leaves damaged records out, and serves what is left.
fn rebuild(original: &Files, damaged: &Damaged, disk: &SimDisk, error: &StoreError) -> Verdict {
    match DataFiles::open_damaged(disk.clone(), SMALL_BYTES, Limits::tiny()) {
        Ok((store, found)) => {
            check(original, damaged, &store, Lost::Whole)
                .map_err(|what| format!("opened for repair: {what}{}", damaged.differences(original)))?;
            if found.is_empty() && !damaged.forged {
                return Err(format!("{error:?}, and yet no damage"));
            }
            Ok(format!("{} rebuilt {}", class("refused", error), found.len().min(4)))
        }
        Err(StoreError::Damaged { .. }) => Ok(class("refused", error)),
        Err(_) if damaged.forged => Ok(class("refused", error)),
        Err(other) => Err(format!("{other:?} is no name for damage")),
    }
}

/// Whether a synced small file may be gone without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Never,
    Whole,
}

/// Reads every file; how many were refused.
fn check(
    original: &Files,
    damaged: &Damaged,
    store: &DataFiles<SimDisk>,
    lost: Lost,
) -> Result<usize, String> {
    let mut refused = 0;
    for number in 0..FILES {
        let expected = content(number);
        let mut bytes = vec![0xEE; expected.len()];
        match store.read_into(file(number), Cut::default(), 0, &mut bytes) {
            Ok(()) if damaged.forged => {}
            Ok(()) => served(original, damaged, number, &bytes, lost)?,
            Err(StoreError::Damaged { .. }) => refused += 1,
            Err(_) if damaged.forged => refused += 1,
            Err(error) => return Err(format!("file {number}: {error:?} is no name for damage")),
        }
    }
    Ok(refused)
}

/// Judges what a read gave. Blocks carry no checksum of their data (the format says so): there damage may show, but
/// not another file's words, unless the script wrote them there.
fn served(original: &Files, damaged: &Damaged, number: u64, bytes: &[u8], lost: Lost) -> Result<(), String> {
    if bytes == content(number) {
        return Ok(());
    }
    let stem = format!("/{:016x}.1.", file(number).ino.0);
    let blocks = original.keys().chain(damaged.files.keys()).filter(|name| name.contains(&stem));
    let has_blocks = blocks.clone().next().is_some();
    let state_lost = damaged.removed.contains("data/state");
    if !has_blocks {
        let is_empty = bytes.iter().all(|byte| *byte == 0);
        return if is_empty && (state_lost || lost == Lost::Whole) {
            Ok(())
        } else {
            Err(format!(
                "file {number} is served wrong: {}",
                crate::corpus::hex(&bytes[..bytes.len().min(64)])
            ))
        };
    }
    // A whole block file of another file under this name is refused by its header. Data alone that the script copied
    // behind a header of which one copy is right is not seen.
    let mixed = blocks.clone().any(|name| {
        let (was, is) = (original.get(name), damaged.files.get(name));
        let is_kept = |copy: std::ops::Range<usize>| {
            was.and_then(|was| was.get(copy.clone()))
                .is_some_and(|was| is.and_then(|is| is.get(copy)) == Some(was))
        };
        damaged.mixed.contains(name) && (is_kept(0..40) || is_kept(512..552))
    });
    let strange = bytes
        .chunks_exact(8)
        .find(|chunk| (0..FILES + 2).any(|other| other != number && word(other) == **chunk));
    match strange {
        Some(strange) if !mixed => Err(format!("file {number} is served another's bytes: {strange:02x?}")),
        _ => Ok(()),
    }
}

/// Writes, removes, compacts and syncs on what was opened; only a panic counts, and what is read afterwards.
fn use_it(damaged: &Damaged, store: &DataFiles<SimDisk>) -> Result<(), String> {
    let text = |what: &str, error: StoreError| match error {
        StoreError::Damaged { .. } => Ok(()),
        _ if damaged.forged => Ok(()),
        error => Err(format!("{what}: {error:?}")),
    };
    let fresh = FILES + 5;
    write(store, fresh).or_else(|error| text("write", error))?;
    for number in [3, 20, SMALL_FILES] {
        write(store, number).or_else(|error| text("write", error))?;
    }
    store.run(&DataOp::Remove { file: file(fresh) }).map(|_| ()).or_else(|error| text("remove", error))?;
    store.background_step(1 << 14).map(|_| ()).or_else(|error| text("background step", error))?;
    store.verify(&mut |_| {}).map(|_| ()).or_else(|error| text("verify", error))?;
    store.run(&DataOp::SyncAll).map(|_| ()).or_else(|error| text("sync", error))
}
