//! `pando journal inspect`: the transactions in a folder's journal, read without changing anything.
//!
//! Absent: repair; the meaning of records inside mutations.

mod looking;

use crate::args::Journal;
use crate::output::{Format, Output, grouped, write_out};
use crate::place;
use crate::problem::{Exit, Problem, Verdict, chain};
use looking::Looking;
use proto::journal::{Entry, Mutations, Payload, read_entry};
use proto::mutation::Mutation;
use proto::{Incarnation, Position, Rank};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::disk_real::RealDisk;
use store::folder::{self, FolderError, Found};
use store::journal_files::{JournalFiles, JournalLimits};

/// Runs the verb.
///
/// # Errors
/// The folder's refusals; damage in the journal, with file and offset.
pub fn run(verb: &Journal, out: &Output) -> Verdict {
    let Journal::Inspect { dir, rank, from, limit } = verb;
    place::expect_existing(dir, "journal inspect DIR")?;
    let found = folder::inspect(dir).map_err(|error| place::explain(&error))?;
    let Found::Complete(record) = found else {
        return Err(place::explain(&FolderError::Absent { dir: dir.clone() }));
    };
    if *rank != 0 {
        let what = format!("{}: no rank {rank}: there is one, rank 0", dir.display());
        return Err(Problem::new(Exit::State, what).do_this("leave out `--rank`"));
    }
    let root = if record.journal_dir.is_empty() { dir.clone() } else { record.journal_dir.into() };
    let disk = Looking(RealDisk::new(&root));
    let damaged = |error: proto::storeio::StoreError| Problem::new(Exit::Refused, chain(&error));
    // The highest incarnation may look at every segment.
    let files = JournalFiles::open(disk, Rank(*rank), Incarnation(u64::MAX), JournalLimits::default())
        .map_err(damaged)?;
    let mut list = Listing { limit: limit.unwrap_or(u64::MAX), out: *out, ..Listing::default() };
    for segment in files.segments() {
        list.segment(&segment);
    }
    let first = files.segments().first().map_or(Position(0), |segment| segment.header.start);
    let start = list.starts.range(..=*from).next_back().map_or(first, |(start, _)| Position(*start));
    list.from = *from;
    let end = files.read(start, &mut |position, bytes| list.piece(position, bytes)).map_err(damaged)?;
    list.end(end);
    Ok(0)
}

#[derive(Default)]
struct Listing {
    /// Positions at which segments start.
    starts: BTreeMap<u64, String>,
    from: u64,
    limit: u64,
    seen: u64,
    shown: Vec<Value>,
    out: Output,
}

impl Listing {
    fn segment(&mut self, segment: &store::journal_files::SegmentInfo) {
        self.starts.insert(segment.header.start.0, segment.name.clone());
        if self.out.format == Format::Plain {
            let header = &segment.header;
            write_out(&format!(
                "segment {} incarnation {} start {}\n",
                segment.name, header.incarnation.0, header.start.0
            ));
        }
    }

    /// Whole, checked entries.
    fn piece(&mut self, position: Position, bytes: &[u8]) {
        let mut at = 0;
        while let Ok(entry) = read_entry(&bytes[at..], Position(position.0 + at as u64)) {
            if entry.position.0 >= self.from && matches!(entry.payload, Payload::Transaction { .. }) {
                self.seen += 1;
                if self.seen <= self.limit {
                    self.entry(&entry);
                }
            }
            at += entry.len;
            if at >= bytes.len() {
                break;
            }
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        let Payload::Transaction { wall, origin, mutations, .. } = &entry.payload else { return };
        let names: Vec<String> = Mutations::new(mutations)
            .map(|mutation| mutation.map_or_else(|error| format!("({error})"), |mutation| text(&mutation)))
            .collect();
        let who = origin.as_ref().map(|origin| (origin.session.0, origin.tid.0));
        if self.out.format == Format::Json {
            let (session, tid) = who.unzip();
            self.shown.push(json!({
                "position": entry.position.0, "bytes": entry.len, "time_ns": wall.0,
                "session": session, "tid": tid, "mutations": names,
            }));
            return;
        }
        let who = who.map_or_else(|| "-".into(), |(session, tid)| format!("{session}/{tid}"));
        write_out(&format!("{:>12} {who:>12}  {}\n", entry.position.0, names.join(", ")));
    }

    fn end(self, end: Position) {
        let count = self.seen;
        if self.out.format == Format::Json {
            let segments: Vec<_> =
                self.starts.iter().map(|(start, name)| json!({"name": name, "start": start})).collect();
            let json = json!({
                "segments": segments, "transactions": self.shown, "count": count, "end": end.0,
            });
            self.out.result("", json);
            return;
        }
        write_out(&format!("{} transactions, end {}\n", grouped(count), end.0));
    }
}

/// A mutation in a few words.
fn text(mutation: &Mutation<'_>) -> String {
    let name = |name: &[u8]| String::from_utf8_lossy(name).escape_default().to_string();
    match mutation {
        Mutation::PutDentry { dir, name: n, version, .. } => {
            format!("put {:#x}/{} v{}", dir.0, name(n), version.0)
        }
        Mutation::DelDentry { dir, name: n, version, .. } => {
            format!("del {:#x}/{} v{}", dir.0, name(n), version.0)
        }
        Mutation::PutHeader { dir, version, .. } => format!("header {:#x} v{}", dir.0, version.0),
        Mutation::PutBackptr { ino, parent, .. } => format!("backptr {:#x} in {:#x}", ino.0, parent.0),
        Mutation::DelBackptr { ino, .. } => format!("no backptr {:#x}", ino.0),
        Mutation::Session { id, open, .. } => {
            format!("session {} {}", id.0, if *open { "opens" } else { "ends" })
        }
        Mutation::SessionFloor { id, floor } => format!("session {} floor {}", id.0, floor.0),
        Mutation::InoCounter { next, .. } => format!("numbers below {next}"),
        Mutation::DataCut { file, size, truncate_seq } => {
            format!("cut {:#x} to {size} #{truncate_seq}", file.ino.0)
        }
        Mutation::DataRedo { file, data, .. } => format!("redo {:#x} {} bytes", file.ino.0, data.len()),
        Mutation::DataRemove { file } => format!("remove {:#x}", file.ino.0),
    }
}
