//! Opening and reading a journal whose files were damaged: damage is named, or what comes back is a prefix of what was
//! written that holds everything a surviving entry knew to be durable, and appending goes on behind it.
//!
//! Absent: applying what was read; crashes (crate `store` and the simulator).

use crate::class::class;
use crate::damage::{self, Damaged, Files, Rules, disk_of, files_of};
use crate::repair;
use crate::target::{Target, Verdict};
use proto::codec::Writer;
use proto::journal::{TxnCluster, begin_entry, end_entry, put_mark, put_transaction, read_entry};
use proto::mutation::Mutation;
use proto::storeio::StoreError;
use proto::{FileId, Incarnation, Ino, Position, RankId};
use std::sync::OnceLock;
use stdx::Wall;
use store::SimDisk;
use store::journal_files::{HEADER_BYTES, JournalFiles, JournalLimits};

pub(super) const TARGET: Target =
    Target { name: "journal-recovery", execute: recover, repair: None, seeds: damage::seeds };

const LIMITS: JournalLimits = JournalLimits { segment_bytes: 8 << 10, journal_bytes: 64 << 10 };
const RULES: Rules = Rules {
    strangers: &[
        "journal/00000001",
        "journal/00000009",
        "journal/ffffffff",
        "journal/0000000000000009",
        "journal/spare.00000007",
        "journal/spare.zz",
        "journal/new",
        "journal/notes",
        "journal/0000000G",
    ],
    forge: repair::journal_file,
};

/// A journal of two lives with several segments, a spare, and a tail that was not synced.
struct Template {
    files: Files,
    from: u64,
    stream: Vec<u8>,
}

type Journal = JournalFiles<SimDisk>;

fn put(w: &mut Writer, base: u64, mark: Position, bytes: usize) {
    let position = base + w.len() as u64;
    let start = begin_entry(w, Position(position), mark);
    if bytes == 0 {
        put_mark(w);
    } else {
        put_transaction(w, Wall(1), None, TxnCluster::default());
        let data = vec![position as u8; bytes];
        let file = FileId { ino: Ino(4096), generation: 0 };
        Mutation::DataRedo { file, truncate_seq: 0, write_seq: 0, data: &data }.encode(w);
    }
    end_entry(w, start);
}

fn append(journal: &Journal, stream: &mut Vec<u8>, base: u64, sizes: &[usize]) -> Result<(), StoreError> {
    let at = base + stream.len() as u64;
    let mut w = Writer::new();
    sizes.iter().for_each(|bytes| put(&mut w, at, journal.durable(), *bytes));
    journal.append(Position(at), &w.0)?;
    stream.extend_from_slice(&w.0);
    Ok(())
}

fn open(disk: &SimDisk, life: u64) -> Result<Journal, StoreError> {
    JournalFiles::open(disk.clone(), RankId(0), Incarnation(life), LIMITS)
}

fn build() -> Result<Template, StoreError> {
    let disk = SimDisk::new(1);
    let mut stream = Vec::new();
    for life in 1..3 {
        let journal = open(&disk, life)?;
        journal.read(Position(0), &mut |_, _| {})?;
        for round in 0..12 {
            append(&journal, &mut stream, 0, &[100, round * 90, 0, 700])?;
            if round % 2 == 0 {
                journal.sync()?;
            }
        }
    }
    let journal = open(&disk, 3)?;
    let end = journal.read(Position(0), &mut |_, _| {})?;
    let from = journal.segments().get(1).map_or(0, |segment| segment.header.start.0);
    journal.trim(Position(from))?;
    journal.prepare()?;
    append(&journal, &mut stream, 0, &[300, 300])?;
    journal.sync()?;
    append(&journal, &mut stream, 0, &[200])?;
    append(&journal, &mut stream, 0, &[50, 0])?;
    debug_assert!(end.0 < stream.len() as u64);
    stream.drain(..from as usize);
    Ok(Template { files: files_of(&disk), from, stream })
}

fn template() -> Result<&'static Template, String> {
    static TEMPLATE: OnceLock<Result<Template, StoreError>> = OnceLock::new();
    TEMPLATE.get_or_init(build).as_ref().map_err(|error| format!("no journal to damage: {error}"))
}

fn recover(script: &[u8]) -> Verdict {
    let template = template()?;
    let damaged = damage::apply(script, &template.files, RULES);
    let disk = disk_of(&damaged.files)?;
    match read(&disk, 4, template.from) {
        Err(error @ StoreError::Damaged { .. }) => Ok(class("refused", &error)),
        Err(error) if damaged.forged => Ok(class("refused", &error)),
        Err(error) => Err(format!("{error:?} is no name for damage")),
        Ok((_, bytes)) if damaged.forged => Ok(format!("read {}", bytes.len() / 4096)),
        Ok((journal, bytes)) => {
            check(template, &damaged, &bytes)?;
            go_on(template, &disk, journal, bytes)
        }
    }
}

fn read(disk: &SimDisk, life: u64, from: u64) -> Result<(Journal, Vec<u8>), StoreError> {
    let journal = open(disk, life)?;
    let mut bytes = Vec::new();
    journal.read(Position(from), &mut |_, piece| bytes.extend_from_slice(piece))?;
    Ok((journal, bytes))
}

fn check(template: &Template, damaged: &Damaged, bytes: &[u8]) -> Result<(), String> {
    if !template.stream.starts_with(bytes) {
        return Err(format!("{} bytes that were never written so", bytes.len()));
    }
    let end = template.from + bytes.len() as u64;
    match highest_surviving_mark(template, damaged) {
        Some(mark) if mark > end => Err(format!("ends at {end} although an entry tells of {mark}")),
        _ => Ok(()),
    }
}

/// The highest durable mark of an entry that is still where it was, in a segment whose header is.
fn highest_surviving_mark(template: &Template, damaged: &Damaged) -> Option<u64> {
    let mut highest = None;
    for (name, original) in &template.files {
        let header = HEADER_BYTES as usize;
        let Some(now) = damaged.files.get(name) else { continue };
        let is_segment = name.len() == "journal/".len() + 8 && now.get(..header) == original.get(..header);
        let Some(start) = original.get(34..42).and_then(|bytes| bytes.first_chunk::<8>()) else { continue };
        let start = u64::from_le_bytes(*start);
        let mut at = header;
        while is_segment && at < original.len() {
            let position = Position(start + (at - header) as u64);
            let Ok(entry) = read_entry(&original[at..], position) else { break };
            if now.get(at..at + entry.len) == original.get(at..at + entry.len) && position.0 >= template.from
            {
                highest = highest.max(Some(entry.mark.0));
            }
            at += entry.len;
        }
    }
    highest
}

/// What is appended behind a recovered journal is read back by the next life.
fn go_on(template: &Template, disk: &SimDisk, journal: Journal, mut bytes: Vec<u8>) -> Verdict {
    let found = bytes.len();
    let result = append(&journal, &mut bytes, template.from, &[80, 0, 900]).and_then(|()| journal.sync());
    result.map_err(|error| format!("no append after recovery: {error:?}"))?;
    drop(journal);
    disk.crash();
    match read(disk, 5, template.from) {
        Ok((_, again)) if again == bytes => {
            Ok(format!("read {} of {}", found / 4096, template.stream.len() / 4096))
        }
        Ok((_, again)) => Err(format!("{} bytes after a restart, not {}", again.len(), bytes.len())),
        Err(error) => Err(format!("unreadable after an append and a restart: {error:?}")),
    }
}
